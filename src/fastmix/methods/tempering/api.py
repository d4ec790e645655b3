"""``temper()``: replica exchange along a path of models, planned, run in batches and judged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from fastmix._arrays import IntArray
from fastmix._checks import as_list, as_path, check_accuracy, check_count, check_positive, check_share, describe
from fastmix._clock import Report
from fastmix.chains.base import make_chains
from fastmix.chains.conditionals import check_conditionals
from fastmix.errors import FormatError, NotConvergedError, UnfitMethodError
from fastmix.methods.base import DEFAULT_SECONDS, Context, Method, option, run_method
from fastmix.methods.diagnostics import Summary, student_quantile, summarise
from fastmix.methods.sample_result import TemperResult
from fastmix.methods.sampling_run import Checkpoint, edge_averages
from fastmix.methods.starts import check_starts
from fastmix.methods.tempering.ladder import CudaLadder, Ladder, make_path
from fastmix.methods.tempering.phases import outweighing, proven_bound
from fastmix.methods.tempering.run import Run
from fastmix.methods.tempering.rungs import MOST_RUNGS
from fastmix.model import Evidence, MarkovRandomField
from fastmix.model.reduce import certain_entries
from fastmix.results import Status

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = ["MOVES", "Tempered", "temper"]

MOVES = ("houdayer",)
_NUM_SWEEPS = 5_000
_MOST_SWEEPS = 1_000_000  # where an accuracy decides
_LEAST_BURN_IN = 200
_SPARSE = 6.0  # neighbors a variable on average, up to which clusters of differing variables are worth a try
_MOST_STATES = 256
_MIN_TRIPS = 10.0
_SIGMAS = 3.0  # by which a lower bound may exceed an estimate of log Z
_SHOWN = 24  # states of a configuration that a note shows
_THREE_SIGMA = 0.9986501019683699  # probability below three standard deviations of a normal distribution
_MAX_R_HAT = 1.1


@dataclass(frozen=True)
class Tempered(Method):
    """Replica exchange; the options are those of :func:`fastmix.temper`."""

    name: ClassVar[str] = "tempered"
    guarantee: ClassVar[str] = (
        "exact in the limit of many sweeps; standard errors are estimates, the lower bound on log Z is proven"
    )
    on_gpu: ClassVar[bool] = True
    gives_log_z: ClassVar[bool] = True
    takes_factors: ClassVar[bool] = True
    shares: ClassVar[bool] = True

    num_replicas: int | None = option(help="Rungs of a ladder; as many as the model needs by default.")
    num_ensembles: int | None = option(help="Independent ladders (pairs of them with houdayer); 4 to 16 by default.")
    num_sweeps: int | None = option(help="Sweeps of every replica that are averaged; 5,000 by default.")
    burn_in: int | None = option(help="Sweeps before, in which the ladder is adapted.")
    accuracy: float | None = option(help="Stop once all probabilities are within this, with 95 % confidence.")
    moves: Literal["auto"] | Sequence[str] = option(
        "auto", help="Beside sweeps: auto, none or houdayer.", parse=lambda text: _parse_moves(text)
    )
    confidence: float = option(0.95, help="Of the lower bound on log Z.")
    checkpoint: str | None = option(help="File to save the run in, and to go on from if it exists.")
    checkpoint_seconds: float = option(30.0, help="Seconds between two writes of the checkpoint.")

    def __post_init__(self) -> None:
        object.__setattr__(self, "confidence", check_share("confidence", self.confidence))
        limits = {"num_replicas": (2, MOST_RUNGS), "num_ensembles": (2, None), "num_sweeps": (1, None)}
        for name, (least, most) in (limits | {"burn_in": (0, None)}).items():
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, check_count(name, value, least=least, most=most))
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

    def budget(self) -> float | None:
        """A minute, unless the amount of work is known or the run can go on later."""
        known = self.num_sweeps is not None or self.accuracy is not None or self.checkpoint is not None
        return None if known else DEFAULT_SECONDS

    def saved_seed(self) -> int | None:
        """That of the checkpoint."""
        return None if self.checkpoint is None else Checkpoint(self.checkpoint, 0.0).seed

    def check(self, model: MarkovRandomField) -> None:
        """No variable may have too many states, and every conditional distribution must be defined."""
        if model.num_variables and model.num_states.max() > _MOST_STATES:
            raise UnfitMethodError(
                f"tempering needs variables of at most {_MOST_STATES} states, but variable "
                f"{int(model.num_states.argmax())} has {int(model.num_states.max())}; use Gibbs sampling instead"
            )
        check_conditionals(model)
        check_starts(model)

    def run(self, model: MarkovRandomField, context: Context) -> TemperResult:
        """Marginals and log Z of the highest rung."""
        path = make_path(model)
        pairs = "houdayer" in self.moves
        if self.moves == "auto":
            pairs = 0 < 2 * model.num_edges <= _SPARSE * model.num_variables

        def make_cpu() -> Ladder:
            return Ladder(
                path, seed=context.seed, pairs=pairs, num_threads=context.num_threads, pool=context.pool,
                clock=context.clock,
            )  # fmt: skip

        def make_cuda() -> Ladder:
            if self.moves != "auto" and self.moves:
                raise UnfitMethodError(f"backend must be cpu for tempering with {', '.join(self.moves)}, got cuda")
            return CudaLadder(path, seed=context.seed)

        saved = None if self.checkpoint is None else Checkpoint(self.checkpoint, self.checkpoint_seconds)
        if saved is not None and context.backend == "cuda":
            raise UnfitMethodError("checkpoint must come with backend cpu for tempering, got cuda")
        ladder, place = make_chains("cpu" if saved is not None else context.backend, make_cpu, make_cuda)
        plan = self._planned(None if saved is not None else context.clock.asked)
        run = Run(ladder, plan, context.clock, edge_marginals=bool(context.edge_marginals), saved=saved)
        if saved is not None:
            plain = replace(plan, checkpoint=None, checkpoint_seconds=0.0)
            _go_on(run, saved, f"{model.content_hash} {plain} {ladder.pairs} {context.edge_marginals}", context.seed)
        stopped_by, bound = run.go(), None
        if not run.statistics.num_batches:
            raise NotConvergedError(f"tempering stopped ({stopped_by}) before there was anything to report")
        try:
            bound = run.bound(self.confidence) if stopped_by != "interrupt" else None
        except KeyboardInterrupt:
            stopped_by = "interrupt"
        place = place if ladder.sharing is None else f"cpu ({ladder.sharing})"
        stats: dict[str, Any] = {"stopped_by": stopped_by, "backend": place}
        if context.edge_marginals:
            stats["edge_marginals"] = "conditional averages"
        options = {"num_sweeps": plan.num_sweeps, "burn_in": plan.burn_in, "moves": list(MOVES) if ladder.pairs else []}
        return _result(model, run, bound, stats, {"device": ladder.device, "options": options})

    def _planned(self, limit: float | None) -> Tempered:
        """The same with numbers of sweeps that were not given, unless a time limit decides."""
        sweeps, burn_in = self.num_sweeps, self.burn_in
        if sweeps is None and self.accuracy is not None:
            sweeps = _MOST_SWEEPS
        if sweeps is None and limit is None:
            sweeps = _NUM_SWEEPS
        if burn_in is None and sweeps is not None:
            burn_in = max(_LEAST_BURN_IN, min(sweeps, _NUM_SWEEPS if self.accuracy is not None else sweeps) // 4)
        return replace(self, num_sweeps=sweeps, burn_in=burn_in)


def temper(
    model: MarkovRandomField,
    *,
    num_replicas: int | None = None,
    num_ensembles: int | None = None,
    num_sweeps: int | None = None,
    burn_in: int | None = None,
    accuracy: float | None = None,
    moves: Literal["auto"] | Sequence[str] = "auto",
    evidence: Evidence | None = None,
    edge_marginals: bool = False,
    confidence: float = 0.95,
    seed: int | None = None,
    num_threads: int | None = None,
    backend: Literal["cpu", "cuda", "auto"] = "cpu",
    time_limit: float | None = None,
    checkpoint: str | None = None,
    checkpoint_seconds: float = 30.0,
    progress: Report = "auto",
    executor: Executor | None = None,
) -> TemperResult:
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
    num_replicas : int, optional
        Rungs K of a ladder, from 2 to 10,000; 2 Lambda + 1 by default.
    num_ensembles : int, optional
        Independent runs side by side, at least 2, whose spread gives the error bars; 16 by default, fewer (down to 4)
        for large models.
    num_sweeps, burn_in : int, optional
        Sweeps of every replica that are averaged, with an exchange after each, 5,000 by default, and before, in which
        the ladder is adapted, a quarter of them but at least 200.
    accuracy : float, optional
        Stop as soon as all probabilities are within this, by approximate intervals of 95 % confidence each;
        ``num_sweeps``, a million by default, and ``time_limit`` still hold.
    moves : "auto" or sequence of {"houdayer"}
        What is done beside Gibbs sweeps. With ``houdayer`` an ensemble is two ladders, which exchange clusters of
        variables in which they differ; ``auto`` takes it for graphs of at most six neighbors a variable on average.
    edge_marginals : bool
        Average the pairs of states, in about 1,000 configurations of every ladder.
    confidence : float
        Of ``log_z_lower``.
    backend : {"cpu", "cuda", "auto"}
        See :func:`fastmix.sample`. On a GPU there are no cluster moves, and up to 1,024 ladders, of which 32 (binary
        variables with at most four neighbors) or 4 make an ensemble.
    evidence, seed, num_threads, progress, executor
        See :func:`fastmix.infer` and :func:`fastmix.sample`.
    time_limit : float, optional
        Seconds, without those of compiling. Without ``num_sweeps`` they are the plan: 40 % for the burn-in, the rest
        for the average. Without either, 5,000 sweeps that end after 60 seconds at the latest.
    checkpoint : str, optional
        A file to which the run is saved every ``checkpoint_seconds``, and from which it goes on if it exists, with its
        seed when none is given; the answer is the same, bit by bit, as that of an uninterrupted run. No plan follows
        from a time limit then, which only says when to stop for now. On the CPU only. A finished run stays in the file:
        remove it when what comes back is safe.

    Returns
    -------
    TemperResult
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
    method = Tempered(
        num_replicas, num_ensembles, num_sweeps, burn_in, accuracy, moves, confidence, checkpoint, checkpoint_seconds
    )
    return run_method(
        method, model, evidence=evidence, edge_marginals=edge_marginals, seed=seed, num_threads=num_threads,
        backend=backend, time_limit=time_limit, progress=progress, executor=executor,
    )  # fmt: skip


def _go_on(run: Run, saved: Checkpoint, options: str, seed: int) -> None:
    """Bring a run to where the checkpoint has it; a :class:`FormatError` if that is of another run, or damaged."""
    parts = saved.resume(options, seed)
    try:
        if parts is not None:
            run.restore(parts)
    except (AttributeError, LookupError, TypeError, ValueError):  # its sum is right, but this is not what was saved
        raise FormatError(f"{saved.path}: the checkpoint is damaged; remove the file to begin anew") from None


def _parse_moves(text: str) -> Literal["auto"] | tuple[str, ...]:
    """Moves as the command line names them, separated by commas."""
    return "auto" if text == "auto" else () if text == "none" else tuple(name.strip() for name in text.split(","))


def _judge(
    run: Run, summary: Summary, trips: IntArray, log_z: float | None, std_error: float, lower: float | None
) -> tuple[Status, str, bool]:
    """Whether there were enough round trips and nothing speaks against the answer, why, and whether log Z may be said.

    It may also be after few round trips, if every ensemble made one: then their spread covers the error.
    """
    mean, whose = float(trips.mean()), "an ensemble"
    if run.ladder.device != "cpu":
        # Many ladders make many trips together: what counts is whether each of them has forgotten its start.
        mean, whose = mean / run.ladder.per_ensemble, "a ladder"
    made = f"{mean:.3g} round trips {whose} on average"
    doubt = _doubt(run, summary, made, log_z, std_error, lower)
    if mean < _MIN_TRIPS:
        # Without variables, or parameters, there is nothing to travel for.
        alike = not run.ladder.path.thetas.any()
        why = f"{made}, fewer than {_MIN_TRIPS:g}; run longer"
        return Status.NOT_MIXED, f"Not mixed: {why}.", doubt is None and (alike or bool((trips > 0).all()))
    if doubt is not None:
        return Status.NOT_MIXED, f"Not mixed: {doubt}.", False
    return Status.OK, f"{made}; the ensembles agree.", True


def _doubt(
    run: Run, summary: Summary, made: str, log_z: float | None, std_error: float, lower: float | None
) -> str | None:
    """What speaks against the answer, whatever the number of round trips ``made``: None if nothing does."""
    margin = _SIGMAS * std_error
    estimate = f"log Z is estimated at {log_z or 0.0:.6g} with a standard error of {std_error:.2g}"
    way_out = "run longer, or with more replicas"
    if (worst := summary.r_hat.max(initial=0.0)) > _MAX_R_HAT:
        name = run.ladder.path.model.names_of_variables()[int(summary.r_hat.argmax())]
        why = f"R-hat over the ensembles is {worst:.4g} for variable {name}, above {_MAX_R_HAT:g}, in spite of {made}"
        return f"{why}; run longer"
    if log_z is not None and (found := outweighing(run.ladder.path, run.phases, log_z, margin)) is not None:
        phase, bound = found
        mode = " ".join(str(state) for state in phase.mode[:_SHOWN].tolist()) + " ..." * (len(phase.mode) > _SHOWN)
        why = f"{estimate}, but configurations around {mode}, of log-weight {phase.log_weight:.6g}, show that it is at "
        return f"{why}least {bound:.6g}; {way_out}"
    if log_z is not None and lower is not None and lower > log_z + margin:
        return f"{estimate}, below the bound {lower:.6g} from annealing; {way_out}"
    return None


def _result(
    model: MarkovRandomField, run: Run, bound: float | None, stats: dict[str, Any], origin: dict[str, Any]
) -> TemperResult:
    """The result about the reduced model."""
    ladder = run.ladder
    summary = summarise(run.statistics, model)
    counts = ladder.chains.exchanges()
    trips = counts.trips.reshape(run.num_ensembles, -1).sum(axis=1)
    overlooked = 1.0 / (float(trips.sum()) + 1.0)
    few = student_quantile(run.num_ensembles - 1, _THREE_SIGMA) / 3.0  # three of these errors cover as much as of many
    (ratio, ratio_error), start = run.log_z(), ladder.path.log_z
    if not math.isfinite(ratio):  # some rungs have not been compared yet
        start = None
    log_z = None if start is None else start + ratio
    log_z_error = math.hypot(ratio_error * few, overlooked)
    lower = None if start is None or bound is None else start + bound
    confidence = None if lower is None else run.plan.confidence
    status, note, credible = _judge(run, summary, trips, log_z, log_z_error, lower)
    if not credible:
        # Ensembles that have not mixed can agree on any number: what is proven is all that is known of log Z.
        log_z = None
        proven = None if ladder.path.log_z is None else proven_bound(ladder.path, run.phases)
        if proven is not None and (lower is None or proven >= lower):
            lower = proven
            confidence = 1.0
    if stats["stopped_by"] == "interrupt":
        status = Status.INTERRUPTED
    # Few ensembles can agree by chance: batches of sweeps and long parts of them, as in Gibbs sampling, are many more.
    parts = np.where(np.isfinite(summary.std_error), summary.std_error, 0.0)
    error = np.hypot(np.maximum(run.spread(), parts), overlooked)
    error[certain_entries(model)] = 0.0
    rejection = counts.rejection
    stats = {
        **stats,
        "num_ensembles": run.num_ensembles, "num_ladders": ladder.num_ladders, "num_replicas": ladder.num_rungs,
        "num_sweeps": run.statistics.num_sweeps, "burn_in": run.burned, "barrier": float(rejection.sum()),
        "round_trips": int(trips.sum()), "updates": run.updates, "updates_per_second": run.updates_per_second(),
        "note": note,
    }  # fmt: skip
    return TemperResult(
        model=model,
        method="tempered",
        status=status,
        node_marginals=summary.mean,
        edge_marginals=edge_averages(model, run.pairs),
        log_z=log_z,
        stats=stats,
        provenance=origin,
        std_error=error,
        ess=summary.ess,
        r_hat=summary.r_hat,
        log_z_kind="estimate" if log_z is not None else "unknown" if lower is None else "bound",
        log_z_std_error=None if log_z is None else log_z_error,
        log_z_lower=lower,
        log_z_confidence=confidence,
        positions=ladder.positions,
        rejection=rejection,
        round_trips=trips,
        states=ladder.chains.get_top_states(),
    )
