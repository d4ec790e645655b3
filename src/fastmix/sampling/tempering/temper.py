"""``temper()``: replica exchange along a path of models, planned, run in batches and judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from fastmix._arrays import FloatArray
from fastmix._checks import (
    as_float_array,
    as_list,
    as_path,
    check_accuracy,
    check_choice,
    check_count,
    check_positive,
    check_share,
    describe,
)
from fastmix._clock import Ending, Report
from fastmix._context import DEFAULT_SECONDS, Context
from fastmix._signatures import takes_options
from fastmix.chains.conditionals import check_conditionals
from fastmix.chains.place import GPU_REFUSALS, place_after_refusal, place_on_gpu
from fastmix.errors import UnfitMethodError
from fastmix.method import Method, option, run_method, with_options
from fastmix.model import Evidence, MarkovRandomField
from fastmix.sampling.starts import check_starts
from fastmix.sampling.tempering.ladder import CudaLadder, Ladder, TemperingPath, make_path
from fastmix.sampling.tempering.results import TemperedResult
from fastmix.sampling.tempering.run import LadderRun
from fastmix.sampling.tempering.verdict import judge_run
from fastmix.sampling.tuning import (
    DRAWS_OF_RUNGS,
    HOUDAYER_MAX_NEIGHBORS,
    MAX_RUNGS,
    MAX_SWEEPS_FOR_ACCURACY,
    MAX_TEMPERED_STATES,
    MIN_TEMPERED_BURN_IN,
    TEMPERED_NUM_SWEEPS,
)

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = ["MOVES", "Tempered", "temper"]

MOVES = ("houdayer",)


@dataclass(frozen=True, kw_only=True)
class Tempered(Method):
    """Replica exchange: chains side by side on a path of models that leads to the one asked about.

    Parameters
    ----------
    num_replicas : int, optional
        Rungs of a ladder, from 2 to 10,000; as many as the model needs by default. That is 2 Lambda + 1, with the
        communication barrier Lambda that the burn-in uncovers.
    num_ensembles : int, optional
        Independent runs side by side, whose spread gives the error bars; 16 by default, fewer in large models. At least
        2 can be asked for, and 4 are taken by default. With the move ``houdayer`` an ensemble is two ladders.
    num_sweeps : int, optional
        Sweeps of every replica that are averaged, with an exchange after each; 5,000 by default.
    burn_in : int, optional
        Sweeps before, in which the ladder is adapted; a quarter of ``num_sweeps`` by default, but at least 200.
    accuracy : float, optional
        Error at which the run ends, for all probabilities, with 95 % confidence for each. The intervals are
        approximate; ``num_sweeps``, a million by default, and ``time_limit`` still hold.
    num_draws : int, optional
        Configurations kept of every ladder at its highest rung, the model itself, evenly over the sweeps that are
        averaged; where the time limit decides how many sweeps there are, as many as it turns out to allow, at most
        this. They are ``draws`` of the result, which ``expect``, ``variance`` and ``estimate`` average over. None by
        default, but 1,000 with ``temperatures`` or ``rungs``.
    temperatures : sequence of float, optional
        Temperatures at which configurations are kept too: at temperature T all log-weights are divided by T. The ladder
        leads from infinite temperature down to the lowest of them, and has a rung at each beside those that exchanges
        need. The result is about the model at the lowest one; ``result.observables()`` has curves over all of them,
        ``result.at(k)`` the answer at the k-th.
    rungs : "all", optional
        Keep configurations at all rungs of the ladder, which is then one of temperatures, down to the lowest of
        ``temperatures`` or to the model itself. The rungs are numbered from hot to cold.
    moves : "auto" or sequence of {"houdayer"}
        Moves beside Gibbs sweeps: auto, none or houdayer. With ``houdayer`` two ladders exchange clusters of variables
        in which they differ; ``auto`` takes it for graphs of at most six neighbors per variable on average.
    confidence : float
        Confidence of the lower bound on log Z, ``log_z_lower``.
    checkpoint : str, optional
        File in which the run is saved, and from which it continues if it exists. It continues with its own seed when
        none is given; the answer is the same, bit by bit, as that of an uninterrupted run. No plan follows from a time
        limit then, which only says when to stop for now. On the CPU only. A finished run stays in the file: remove it
        when what comes back is safe.
    checkpoint_seconds : float
        Seconds between two writes of the checkpoint.
    """

    name: ClassVar[str] = "tempered"
    guarantee: ClassVar[str] = (
        "exact in the limit of many sweeps; standard errors are estimates, the lower bound on log Z is proven"
    )
    on_gpu: ClassVar[bool] = True
    gives_log_z: ClassVar[bool] = True
    takes_factors: ClassVar[bool] = True
    shares: ClassVar[bool] = True

    num_replicas: int | None = None
    num_ensembles: int | None = None
    num_sweeps: int | None = None
    burn_in: int | None = None
    accuracy: float | None = None
    num_draws: int | None = None
    temperatures: Sequence[float] | None = option(None, parse=lambda text: _parse_temperatures(text))
    rungs: Literal["all"] | None = None
    moves: Literal["auto"] | Sequence[str] = option("auto", parse=lambda text: _parse_moves(text))
    confidence: float = 0.95
    checkpoint: str | None = None
    checkpoint_seconds: float = 30.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "confidence", check_share("confidence", self.confidence))
        self._check_rungs()
        limits = {"num_replicas": (2, MAX_RUNGS), "num_ensembles": (2, None), "num_sweeps": (1, None)}
        for name, (least, most) in (limits | {"burn_in": (0, None)}).items():
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, check_count(name, value, least=least, most=most))
        self._check_draws()
        if self.accuracy is not None:
            object.__setattr__(self, "accuracy", check_accuracy(self.accuracy))
        if self.checkpoint is not None:
            object.__setattr__(self, "checkpoint", as_path("checkpoint", self.checkpoint))
        seconds = check_positive("checkpoint_seconds", self.checkpoint_seconds, "number of seconds", or_zero=True)
        object.__setattr__(self, "checkpoint_seconds", seconds)
        if not isinstance(self.moves, str):
            named = as_list("moves", self.moves, f"'auto' or a list of {', '.join(MOVES)}")
            object.__setattr__(self, "moves", tuple(named))
        for name in [self.moves] if isinstance(self.moves, str) else self.moves:
            automatic = isinstance(self.moves, str) and self.moves == "auto"
            if not automatic and not (isinstance(name, str) and name in MOVES):
                raise ValueError(f"moves must be 'auto' or a list of {', '.join(MOVES)}, got {describe(name)}")

    def _check_rungs(self) -> None:
        """Check the temperatures and rungs at which draws are kept."""
        if self.rungs is not None:
            check_choice("rungs", self.rungs, ("all",))
        if self.temperatures is None:
            return
        rule = "one or more positive numbers"
        values = as_float_array("temperatures", as_list("temperatures", self.temperatures, rule))
        if values.ndim != 1 or not len(values) or not (values > 0.0).all() or values.min() == np.inf:
            raise ValueError(f"temperatures must be {rule}, not all infinite, got {describe(self.temperatures)}")
        object.__setattr__(self, "temperatures", tuple(values.tolist()))

    def _check_draws(self) -> None:
        """Check the number of draws, and fill in what it is by default."""
        least = 1 if self.measures else 0
        if self.num_draws is None:
            few = DRAWS_OF_RUNGS if self.num_sweeps is None else min(DRAWS_OF_RUNGS, self.num_sweeps)
            object.__setattr__(self, "num_draws", few if self.measures else 0)
        else:
            object.__setattr__(self, "num_draws", check_count("num_draws", self.num_draws, least=least))
        if self.num_sweeps is not None and self.count_draws() > self.num_sweeps:
            raise ValueError(f"num_draws must be at most num_sweeps, {self.num_sweeps}, got {self.num_draws}")

    @property
    def measures(self) -> bool:
        """Whether draws are kept at other rungs than the highest, for observables along the ladder."""
        return self.temperatures is not None or self.rungs is not None

    @property
    def coldest(self) -> float | None:
        """The temperature at the end of a path of temperatures; None for the path to the model itself."""
        if not self.measures:
            return None
        return 1.0 if self.temperatures is None else min(self.temperatures)

    def count_draws(self) -> int:
        """Draws that are kept of every ladder and rung."""
        return self.num_draws or 0

    def pinned_positions(self) -> FloatArray:
        """The positions (R,) on the path at which rungs must be, as ``temperatures`` are given."""
        if self.temperatures is None:
            return np.zeros(0)
        return min(self.temperatures) / np.array(self.temperatures)

    def default_limit(self) -> float | None:
        """A minute, unless the amount of work is known or the run can go on later."""
        known = self.num_sweeps is not None or self.accuracy is not None or self.checkpoint is not None
        return None if known else DEFAULT_SECONDS

    def checkpoint_file(self) -> tuple[str, float] | None:
        """The name of the file that the run is saved in, and the seconds between two writes."""
        return None if self.checkpoint is None else (self.checkpoint, self.checkpoint_seconds)

    def check(self, model: MarkovRandomField) -> None:
        """No variable may have too many states, and every conditional distribution must be defined."""
        if model.num_variables and model.num_states.max() > MAX_TEMPERED_STATES:
            raise UnfitMethodError(
                f"tempering needs variables of at most {MAX_TEMPERED_STATES} states, but variable "
                f"{int(model.num_states.argmax())} has {int(model.num_states.max())}; use Gibbs sampling instead"
            )
        check_conditionals(model)
        check_starts(model)

    def run(self, model: MarkovRandomField, context: Context) -> TemperedResult:
        """Marginals and log Z of the highest rung, with the verdict on them.

        1. Make the ladder, and go on from the checkpoint if there is one.
        2. Run it.
        3. Bound log Z by annealing in the time that is left, and judge.
        """
        # 1. Make the ladder.
        saved = context.checkpoint
        ladder, place = self._make_ladder(model, context)
        plan = self._planned(None if saved is not None else context.clock.asked)
        run = LadderRun(ladder, plan, context)
        if saved is not None:
            plain = replace(plan, checkpoint=None, checkpoint_seconds=0.0)
            key = f"{model.content_hash} {plain} {ladder.pairs} {context.edge_marginals}"
            saved.restore(key, context.seed, run.restore)

        # 2. Run it.
        stopped_by = run.go()
        if not run.statistics.num_batches:
            context.raise_nothing(stopped_by)

        # 3. Bound and judge.
        bound = None
        if stopped_by != "interrupt":
            with Ending() as ending:
                bound = run.bound(self.confidence)
            if ending.interrupted:
                stopped_by = "interrupt"
        if ladder.sharing is not None:
            place = f"cpu ({ladder.sharing})"
        stats: dict[str, Any] = {"stopped_by": stopped_by, "backend": place}
        if context.edge_marginals:
            stats["edge_marginals"] = "conditional averages"
        moves = list(MOVES) if ladder.pairs else []
        options = {"num_sweeps": plan.num_sweeps, "burn_in": plan.burn_in, "moves": moves}
        answered = model if self.coldest is None else model.at_temperature(self.coldest)
        return judge_run(answered, run, bound, stats, {"device": ladder.device, "options": options})

    def _make_ladder(self, model: MarkovRandomField, context: Context) -> tuple[Ladder, str]:
        """The ladder of a run on the CPU or a GPU, and what it runs on in words."""
        path = make_path(model, self.coldest)
        pairs = "houdayer" in self.moves
        if self.moves == "auto":
            pairs = 0 < 2 * model.num_edges <= HOUDAYER_MAX_NEIGHBORS * model.num_variables

        backend = context.backend
        if context.checkpoint is not None:
            if backend == "cuda":
                raise UnfitMethodError("checkpoint must come with backend cpu for tempering, got cuda")
            backend = "cpu"
        seed = context.seed_of("ladder")
        place = "cpu"
        if backend != "cpu":
            try:
                on_gpu = self._cuda_ladder(path, seed)
            except GPU_REFUSALS as refusal:
                place = place_after_refusal(backend, refusal)
            else:
                return on_gpu, place_on_gpu(on_gpu.device)
        ladder = Ladder(
            path,
            seed=seed,
            pairs=pairs,
            per_ensemble=2 if self.measures else None,  # ladders whose overlaps are measured
            num_threads=context.num_threads,
            pool=context.pool,
            clock=context.clock,
        )
        return ladder, place

    def _cuda_ladder(self, path: TemperingPath, seed: int) -> CudaLadder:
        """Ladders on a GPU, which has no cluster moves."""
        if self.moves != "auto" and self.moves:
            raise UnfitMethodError(f"backend must be cpu for tempering with {', '.join(self.moves)}, got cuda")
        return CudaLadder(path, seed=seed)

    def _planned(self, limit: float | None) -> Tempered:
        """A copy with the numbers of sweeps that were not given, unless a time limit decides."""
        num_sweeps = self.num_sweeps
        if num_sweeps is None and self.accuracy is not None:
            num_sweeps = MAX_SWEEPS_FOR_ACCURACY
        if num_sweeps is None and limit is None:
            num_sweeps = max(TEMPERED_NUM_SWEEPS, self.count_draws())
        burn_in = self.burn_in
        if burn_in is None and num_sweeps is not None:
            expected = num_sweeps if self.accuracy is None else min(num_sweeps, TEMPERED_NUM_SWEEPS)
            burn_in = max(MIN_TEMPERED_BURN_IN, expected // 4)
        return replace(self, num_sweeps=num_sweeps, burn_in=burn_in)


@takes_options(Tempered)
def temper(
    model: MarkovRandomField,
    *,
    evidence: Evidence | None = None,
    edge_marginals: bool = False,
    seed: int | None = None,
    num_threads: int | None = None,
    backend: Literal["cpu", "cuda", "auto"] = "cpu",
    time_limit: float | None = None,
    progress: Report = "auto",
    executor: Executor | None = None,
    **options: Any,
) -> TemperedResult:
    """Marginals and log Z by replica exchange, for models in which single chains get stuck.

    Replicas are sampled side by side at K rungs of a path of models, from the uniform distribution to the model itself,
    and neighboring rungs exchange their configurations: non-reversible parallel tempering (Syed, Bouchard-Côté,
    Deligiannidis and Doucet, JRSS B 84, 2022). The rungs are placed, during the burn-in, where exchanges are rejected
    equally often, and their number follows from the communication barrier Lambda that this uncovers.

    Parameters
    ----------
    model : MarkovRandomField
        Any state counts up to 256. Forbidden pairs are kept at all rungs, as long as every conditional distribution is
        defined; there is no log Z then, because it is unknown at the start of the path.
    **options
        Those of :class:`fastmix.Tempered`.
    edge_marginals : bool
        Whether to estimate the joint probabilities of the two ends of every edge, from the pairs of states in about
        1,000 configurations of every ladder.
    backend : {"cpu", "cuda", "auto"}
        See :func:`fastmix.sample`. On a GPU there are no cluster moves, and up to 1,024 ladders, of which 32 (binary
        variables with at most four neighbors) or 4 make an ensemble.
    evidence, seed, num_threads, progress, executor
        See :func:`fastmix.infer` and :func:`fastmix.sample`.
    time_limit : float, optional
        Seconds, without those of compiling. Without ``num_sweeps`` they are the plan: 40 % for the burn-in, the rest
        for the average. Without either, 5,000 sweeps that end after 60 seconds at the latest.

    Returns
    -------
    TemperedResult
        Status ``not_mixed`` when an ensemble (on a GPU, a ladder) made fewer than 10 round trips on average, bottom to
        top and back, or when R-hat over the ensembles is above 1.1 for some variable.

    Raises
    ------
    UnfitMethodError
        If a variable has too many states, or there is no GPU that could be used.
    ModelError
        If some conditional distribution is undefined, or the evidence is impossible.
    NotConvergedError
        If the time was over before there was anything to report, which only a checkpoint allows.
    Interrupted
        On Ctrl-C: a KeyboardInterrupt whose ``result`` is what was collected, None before the first batch.

    Notes
    -----
    A sweep takes K times the ladders times n updates, at about 1.5 ns each on one core. Lambda grows like the
    square root of n, and the memory is a byte an update of a sweep plus 4 K times the patterns of all neighborhoods.

    Examples
    --------
    >>> from fastmix.instances import ising_grid
    >>> model = ising_grid(4, 4, coupling_max=4.0, attractive=True, seed=0)
    >>> result = temper(model, num_sweeps=2000, seed=1)
    >>> str(result.status), bool(result.std_error.max() < 0.02)
    ('ok', True)
    >>> from fastmix import infer
    >>> bool(abs(result.log_z - infer(model, method="exact").log_z) < 4 * result.log_z_std_error)
    True
    """
    result: TemperedResult = run_method(
        with_options(Tempered, options),
        model,
        evidence=evidence,
        edge_marginals=edge_marginals,
        seed=seed,
        num_threads=num_threads,
        backend=backend,
        time_limit=time_limit,
        progress=progress,
        executor=executor,
    )
    return result


def _parse_temperatures(text: str) -> tuple[float, ...]:
    """Temperatures that a text of the command line lists, separated by commas."""
    try:
        return tuple(float(word) for word in text.split(","))
    except ValueError:
        raise ValueError(f"must be numbers separated by commas, got {describe(text)}") from None


def _parse_moves(text: str) -> Literal["auto"] | tuple[str, ...]:
    """Moves that a text of the command line names, separated by commas."""
    if text == "auto":
        return "auto"
    return () if text == "none" else tuple(name.strip() for name in text.split(","))
