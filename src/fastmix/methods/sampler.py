"""``sample()``: chains run in batches, with error bars, diagnostics, resumption and honest statuses."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix._checks import check_accuracy, check_count, check_positive
from fastmix._clock import NO_LIMIT, Clock, Report
from fastmix._memory import check_memory
from fastmix.chains.base import Chains, make_chains
from fastmix.chains.conditionals import check_conditionals
from fastmix.chains.cpu import CpuChains
from fastmix.chains.host import HostChains
from fastmix.errors import FastmixError, FormatError, Interrupted, NotConvergedError, UnfitMethodError
from fastmix.methods.base import DEFAULT_SECONDS, Context, Method, find_method, make_method, option, run_method
from fastmix.methods.checkpoint import Checkpoint
from fastmix.methods.diagnostics import (
    BatchStatistics,
    Summary,
    assess_mixing,
    log_odds_swings,
    summarise,
)
from fastmix.methods.starts import check_starts, dispersed_states, find_modes, remembered_sweeps, starts_matter
from fastmix.model import Evidence, MarkovRandomField
from fastmix.model.reduce import Reduction, reduce_model
from fastmix.results import InferenceResult, Status, jsonable
from fastmix.theory.bias import bias_after
from fastmix.theory.certificates import Certificate, certify
from fastmix.theory.comparison import comparison_bounds, original_intervals
from fastmix.theory.criteria import bias_after_updates
from fastmix.theory.dependency import Dependency
from fastmix.theory.intervals import Intervals, rigorous_intervals

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = ["SAMPLERS", "Gibbs", "SampleResult", "SwendsenWang", "default_chains", "run_chains", "sample"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

Schedule = Literal["systematic", "random", "random-burn-in"]
_SCHEDULES: tuple[str, ...] = get_args(Schedule)

SAMPLERS = ("gibbs", "swendsen-wang", "perfect")

_NUM_SWEEPS = 10_000
_BURN_SHARE, _MARGIN = 0.1, 1.05  # of a time limit to burn in; more sweeps than fit the rest, which then ends them
_BATCHES = 64
_BATCH_UPDATES = 2e8
_LEAST_BATCH, _LEAST_OF_MANY = 4, 25  # sweeps, of few chains and of many: taking sums costs more than some sweeps
_MANY_CHAINS = 64
# Variables, and their states but one, of all chains together by default, and chains: beyond that, more sweeps of fewer
# chains are worth more in the same time, because every chain burns in and has its sums.
_MOST_SITES, _MOST_CUTS, _LEAST_CHAINS = 1 << 23, 1 << 24, 8
_FIRST_STEP = 64  # a time limit is looked at after every step: the first is this part of what a step can be
_SHARED_CHAINS = 32  # that go to a worker together where they are swept side by side: fewer are slower each
_SCOUTED, _SCOUT_SHARE = 16, 0.1  # chains below which others look at the modes, and their share of a time limit
_EDGE_COUNTS = 1000  # configurations a chain that edge marginals are counted from
_CONFIDENCE = 0.95
_MOST_CERTIFIED = 1e12  # updates of all chains together to burn in: about an hour
_CERTIFIED_BIAS = 0.01  # of every marginal, for one or two chains to be believed
# Probabilities are met to 4e-10 by the thresholds and averages to 3e-8 by the 24-bit sums: widened by more than both.
_ROUNDING = 1e-6
_CHAIN_BYTES = 48  # beside its states and sums
_DRAW_BYTES = 34  # a state of a draw: one as kept, one stacked, and four 8-byte arrays in mapping it to the original


@dataclass(frozen=True, eq=False, repr=False)
class SampleResult(InferenceResult):
    """Marginals from sampling, with their error bars.

    Attributes
    ----------
    std_error : float array, aligned with ``model.log_unary``
        Monte Carlo standard error of every probability, by batch means over all chains.
    ess, r_hat : float array (n,)
        Effective sample size and rank-normalised split R-hat of every variable; observed ones have the best values.
    states : int array (num_chains, n)
        Where the chains ended: give the result as ``start`` to go on from there.
    draws : int array (num_chains, num_draws, n) or None
    history : list of (sweeps, flat node marginals)
        Running marginals at the sweeps asked for (``history_at``).
    """

    std_error: FloatArray = field(default_factory=lambda: np.zeros(0))
    ess: FloatArray = field(default_factory=lambda: np.zeros(0))
    r_hat: FloatArray = field(default_factory=lambda: np.zeros(0))
    states: IntArray = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))
    draws: NDArray[np.integer[Any]] | None = None
    history: list[tuple[int, FloatArray]] = field(default_factory=list)
    chain_variances: FloatArray | None = field(default=None, repr=False)
    reduction: Reduction | None = field(default=None, repr=False)

    def intervals(
        self,
        *,
        confidence: float = _CONFIDENCE,
        simultaneous: bool = False,
        dependency: Dependency = "sigmoid",
        original: MarkovRandomField | None = None,
    ) -> Intervals:
        """Intervals that hold the marginals with a proven confidence: bias by the certificate, deviation by the chains.

        Parameters
        ----------
        confidence : float
        simultaneous : bool
            Whether all intervals shall hold at once.
        dependency : str
            Dependency bound behind the bias, see :func:`fastmix.certify`. After a burn-in of random updates the other
            criteria bound it too. For a model that cannot be certified the bias stays 1, and the intervals say so in
            ``vacuous``.
        original : MarkovRandomField, optional
            The model that the sampled one is a projection of: the intervals are then for its marginals, by the
            comparison theorem of Dobrushin.

        Raises
        ------
        UnfitMethodError
            For cluster moves, whose mixing no certificate bounds.
        """
        if self.method != "gibbs":
            raise UnfitMethodError(f"intervals need the certificate of Gibbs sampling, and this is {self.method}")
        reduction = self.reduction or reduce_model(self.model)  # None where there was nothing to reduce
        small = reduction.model
        bias = _bias(small, int(self.stats["burn_in"]), self.provenance["options"]["schedule"], dependency)
        kept = reduction.unary_positions
        inner = rigorous_intervals(
            small, self.node_marginals[kept], num_chains=int(self.stats["num_chains"]), bias=bias,
            variances=self.chain_variances, confidence=confidence, simultaneous=simultaneous,
        )  # fmt: skip
        lower = reduction.expand_node_marginals(np.maximum(inner.lower - _ROUNDING, 0.0))
        upper = reduction.expand_node_marginals(np.minimum(inner.upper + _ROUNDING, 1.0))
        vacuous = np.zeros(len(lower), dtype=bool)
        vacuous[kept] = inner.vacuous
        result = Intervals(lower, upper, vacuous, inner.confidence, inner.simultaneous)
        if original is None:
            return result
        if (reduction.fixed >= 0).any():
            raise UnfitMethodError("original needs a run without evidence: condition both models first")
        return original_intervals(original, result, comparison_bounds(self.model, original))

    def to_arviz(self) -> Any:
        """The draws as ArviZ's data object (extra ``interop``); the run must have kept some (``num_draws``)."""
        from fastmix.interop.arviz import to_arviz

        if self.draws is None:
            raise ValueError("to_arviz needs draws: run sample() with num_draws")
        return to_arviz(self.draws, self.model)

    def _expansion(self, reduction: Reduction) -> dict[str, Any]:
        values = super()._expansion(reduction)
        history = [(t, reduction.expand_node_marginals(m)) for t, m in self.history]
        return {**values, "history": history, "reduction": reduction}

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data; adds ``std_error``, ``r_hat_max``, ``ess_min`` and ``updates_per_second``."""
        return {
            **super().to_dict(),
            "std_error": self._by_variable(self.std_error),
            "r_hat_max": jsonable(float(self.r_hat.max(initial=1.0))),
            "ess_min": jsonable(float(self.ess.min(initial=np.inf))),
            "updates_per_second": self.stats.get("updates_per_second"),
        }


@dataclass(frozen=True)
class _Sampler(Method):
    """What Gibbs and Swendsen-Wang sampling have in common; see :func:`sample` for the options."""

    shares: ClassVar[bool] = True

    num_chains: int | None = option(help="Independent chains; 64 by default, fewer for very large models.")
    num_sweeps: int | None = option(help="Sweeps averaged in every chain; 10,000 by default.")
    burn_in: int | None = option(help="Sweeps before; a tenth of --num-sweeps by default.")
    num_draws: int = option(0, help="Draws kept of every chain.")
    history_at: tuple[int, ...] = option((), cli=False)
    start: Any = option("dispersed", help="Where chains start: dispersed or random.")
    checkpoint: str | None = option(help="File to save the run in, and to go on from if it exists.")
    checkpoint_seconds: float = option(30.0, help="Seconds between two writes of the checkpoint.")
    estimator: Literal["rao-blackwell", "counts"] = option(
        "rao-blackwell", help="What is averaged: rao-blackwell (conditional probabilities) or counts (states)."
    )

    def __post_init__(self) -> None:
        for name, least in (("num_chains", 1), ("num_sweeps", 1), ("burn_in", 0), ("num_draws", 0)):
            if (value := getattr(self, name)) is not None:
                check_count(name, value, least=least)
        object.__setattr__(self, "history_at", tuple(sorted(set(self.history_at))))
        check_positive("checkpoint_seconds", self.checkpoint_seconds, "number of seconds", or_zero=True)
        if self.estimator not in ("rao-blackwell", "counts"):
            raise ValueError(f"estimator must be rao-blackwell or counts, got {self.estimator!r}")
        if isinstance(self.start, str) and self.start not in ("dispersed", "random"):
            raise ValueError(f"start must be dispersed, random, configurations or a SampleResult, got {self.start!r}")

    def budget(self) -> float | None:
        """A minute, unless the amount of work is known or the run can go on later."""
        return DEFAULT_SECONDS if self.num_sweeps is None and self.checkpoint is None else None

    def saved_seed(self) -> int | None:
        """That of the checkpoint."""
        return None if self.checkpoint is None else Checkpoint(self.checkpoint, 0.0).seed

    def run(self, model: MarkovRandomField, context: Context) -> SampleResult:
        """Marginals of chains."""
        return run_chains(self, model, context)


@dataclass(frozen=True)
class Gibbs(_Sampler):
    """Gibbs sampling: updates of single variables, for any model; the options are those of :func:`fastmix.sample`."""

    name: ClassVar[str] = "gibbs"
    guarantee: ClassVar[str] = "exact in the limit of many sweeps; the standard errors are estimates"
    on_gpu: ClassVar[bool] = True
    takes_factors: ClassVar[bool] = True

    accuracy: float | None = option(
        help="Instead of sweeps: error to reach with 95 % confidence, for certified models."
    )
    schedule: Schedule | None = option(
        None,
        help="Order of updates: systematic (default), random, or random-burn-in (then systematic; the default of "
        "--accuracy where nothing else is certified).",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.schedule not in (None, *_SCHEDULES):
            raise ValueError(f"schedule must be one of {', '.join(_SCHEDULES)}, got {self.schedule!r}")
        if self.accuracy is not None:
            check_accuracy(self.accuracy)
            if not self.num_chains is self.num_sweeps is self.burn_in is None:
                raise ValueError("accuracy must come without num_chains, num_sweeps and burn_in, which it sets")

    def budget(self) -> float | None:
        """None also where an accuracy says how long to run."""
        return super().budget() if self.accuracy is None else None

    def run(self, model: MarkovRandomField, context: Context) -> SampleResult:
        """Marginals of chains, with what the certificate promises about them."""
        result = run_chains(self, model, context)
        wanted = context.certify and result.status == Status.OK
        schedule = result.provenance["options"]["schedule"]
        promise = _promise(model, int(result.stats["burn_in"]), schedule, context.clock) if wanted else None
        return result if promise is None else replace(result, stats={**result.stats, "guarantee": promise})

    def check(self, model: MarkovRandomField) -> None:
        """Every conditional distribution must be defined, and chains must have somewhere to start."""
        check_conditionals(model)
        check_starts(model)


@dataclass(frozen=True)
class SwendsenWang(_Sampler):
    """Swendsen-Wang sampling: updates of clusters, for attractive Ising and Potts models.

    The options are those of :func:`fastmix.sample`.
    """

    name: ClassVar[str] = "swendsen-wang"
    guarantee: ClassVar[str] = "exact in the limit of many sweeps; the standard errors are estimates"

    def check(self, model: MarkovRandomField) -> None:
        """The model must be attractive; the message names an edge that is in the way."""
        from fastmix.methods.swendsen_wang import check_swendsen_wang

        check_swendsen_wang(model)

    def reduce(self, model: MarkovRandomField, evidence: Evidence | None, clock: Clock = NO_LIMIT) -> Reduction:
        """With forbidden states: clusters need equal state counts at both ends of an edge. They are never drawn."""
        return reduce_model(model, evidence, drop_forbidden=False, clock=clock)


def sample(
    model: MarkovRandomField,
    *,
    method: str = "gibbs",
    num_chains: int | None = None,
    num_sweeps: int | None = None,
    burn_in: int | None = None,
    accuracy: float | None = None,
    schedule: Schedule | None = None,
    estimator: Literal["rao-blackwell", "counts"] | None = None,
    evidence: Evidence | None = None,
    edge_marginals: bool = False,
    num_draws: int | None = None,
    history_at: Sequence[int] | None = None,
    start: Literal["dispersed", "random"] | ArrayLike | SampleResult | None = None,
    backend: Literal["cpu", "cuda", "auto"] = "cpu",
    seed: int | None = None,
    num_threads: int | None = None,
    time_limit: float | None = None,
    checkpoint: str | None = None,
    checkpoint_seconds: float | None = None,
    max_sweeps: int | None = None,
    progress: Report = "auto",
    executor: Executor | None = None,
) -> Any:
    """Marginals by Markov chain Monte Carlo, with standard errors and a verdict on mixing.

    Parameters
    ----------
    model : MarkovRandomField
        Any state counts. Forbidden pairs are fine as long as every conditional distribution is defined.
    method : {"gibbs", "swendsen-wang", "perfect"}
        Updates of single variables, or of clusters (attractive Ising and Potts models only), or exact draws by coupling
        from the past, which take ``num_draws`` and ``max_sweeps`` (see :func:`fastmix.perfect_sample`). Options of
        another method are refused.
    num_chains : int
        Independent chains; by default 64, fewer in models of more than 131,072 variables or with as many
        states, 8 at least.
    num_sweeps : int
        Sweeps of every chain that are averaged, after the burn-in; by default as many as a ``time_limit`` leaves room
        for, without one 10,000.
    burn_in : int
        Sweeps before; a tenth of ``num_sweeps``, or of the time, by default.
    accuracy : float, optional
        Instead of sweeps: every probability to be within this, with 95 % confidence for each (half the width of an
        interval, unlike the total variation distance of :func:`fastmix.certify`). The certificate of the
        model sets the burn-in and Hoeffding's bound the number of chains; refused for models without a certificate.
    schedule : {"systematic", "random", "random-burn-in"}
        A sweep updates every variable once, color by color, or n variables chosen at random; ``random-burn-in`` does so
        until the burn-in is over, and sweeps systematically from there. Criteria past Dobrushin's are for random
        updates only: with ``accuracy`` and no schedule, a model that only they certify burns in at random.
        ``systematic`` by default.
    estimator : {"rao-blackwell", "counts"}
        Average the conditional probabilities of the updates, or the states themselves (of Swendsen-Wang only for edge
        marginals: nodes always have the probabilities that clusters draw from).
    evidence : mapping, optional
    edge_marginals : bool
        Average over about 1,000 configurations of every chain: the conditional probabilities of either end of an edge
        beside the state of the other, or with the estimator ``counts`` the pairs of states themselves, whose errors
        are larger; ``stats["edge_marginals"]`` says which, ``conditional averages`` or ``counts of pairs``.
    num_draws : int
        Configurations of every chain to keep, evenly spaced.
    history_at : sequence of int
        Numbers of sweeps at which to note the running marginals.
    start : "dispersed", "random", int array (num_chains, n) or SampleResult
        ``dispersed`` starts half of the chains, 16 at most, from configurations of large weight, far from each other
        (:func:`fastmix.methods.starts.find_modes`), and the others at random: chains that could get stuck then do so
        in different places, and disagree. A result goes on where its chains ended, with fresh random numbers also
        under its own seed.
    backend : {"cpu", "cuda", "auto"}
        Where Gibbs sweeps run. ``cuda`` needs an NVIDIA GPU and the extra ``gpu``; ``auto`` takes the GPU where
        there is one that fits the run, and says in ``stats["backend"]`` what it took and why.
    seed : int, optional
        Drawn and returned when not given. The same seed gives the same bits whatever the number of threads; CPU and
        GPU draw different numbers.
    num_threads : int, optional
        All cores by default.
    time_limit : float, optional
        Seconds, without those of compiling, after which what has been collected is returned. Burning in takes half of
        them at most (but not with a checkpoint, from which it can go on). Without it, and without ``num_sweeps``,
        ``accuracy`` or ``checkpoint``, 60 seconds (``stats["time_limit"]``).
    checkpoint : str, optional
        A file to which the run is saved every ``checkpoint_seconds``, and from which it goes on if it exists, with its
        seed when none is given; the answer is the same, bit by bit, as that of an uninterrupted run. A finished run
        stays in the file, and the same call answers from it at once: remove it when what comes back is safe.
    progress : "auto", None or callable
        See :func:`fastmix.infer`.
    executor : concurrent.futures.Executor, optional
        Shares the chains out among its workers: processes of this machine (:func:`fastmix.executors.processes`) or a
        Dask cluster (:func:`fastmix.executors.cluster`). The answer is the same, bit by bit, as without. A worker that
        dies is replaced; when all of them are gone this process goes on, and ``stats["backend"]`` says so.

    Returns
    -------
    SampleResult
        Status ``not_mixed`` when R-hat or the effective sample size says that the chains have not met.
        ``stats["stopped_by"]`` is ``done``, ``accuracy`` or ``time_limit``. :class:`fastmix.PerfectSamples` from the
        method ``perfect``.

    Raises
    ------
    UnfitMethodError
        If the method cannot handle the model.
    NotConvergedError
        If the time was over before there was anything to report.
    Interrupted
        On Ctrl-C: a KeyboardInterrupt whose ``result`` is what was collected.

    Examples
    --------
    >>> from fastmix.instances import ising_grid
    >>> result = sample(ising_grid(3, 3, coupling_max=0.5, seed=0), num_sweeps=2000, seed=1)
    >>> str(result.status), bool(result.std_error.max() < 0.01)
    ('ok', True)
    """
    options = {
        "num_chains": num_chains, "num_sweeps": num_sweeps, "burn_in": burn_in, "accuracy": accuracy,
        "schedule": schedule, "estimator": estimator, "num_draws": num_draws,
        "history_at": None if history_at is None else tuple(history_at), "start": start, "checkpoint": checkpoint,
        "checkpoint_seconds": checkpoint_seconds, "max_sweeps": max_sweeps,
    }  # fmt: skip
    find_method(method, among=SAMPLERS)
    if accuracy is not None and method != "gibbs":
        raise ValueError(f"accuracy must come with method='gibbs', which the certificate is for, got {method!r}")
    return run_method(
        make_method(method, options),
        model,
        evidence=evidence,
        edge_marginals=edge_marginals,
        seed=seed,
        num_threads=num_threads,
        backend=backend,
        time_limit=time_limit,
        progress=progress,
        executor=executor,
        certify=False,
    )


def run_chains(method: _Sampler, model: MarkovRandomField, context: Context) -> SampleResult:
    """Marginals of a reduced model by chains of a method."""
    clock, seed, backend = context.clock, context.seed, context.backend
    gibbs = method if isinstance(method, Gibbs) else None
    accuracy = None if gibbs is None else gibbs.accuracy
    start, num_draws, estimator = method.start, method.num_draws, method.estimator
    saved = None if method.checkpoint is None else Checkpoint(method.checkpoint, method.checkpoint_seconds)
    plan, schedule = _plan(model, method, accuracy, gibbs.schedule if gibbs is not None else None)
    _check_chains(model, plan, accuracy, backend)
    _check_draws(model, plan, num_draws)
    states, key_seed = None, seed
    if not isinstance(start, str):
        assert context.reduction is not None
        states = _start_states(context.reduction, start, plan.num_chains)
        if starts_matter(model) and (np.atleast_1d(model.log_weight(states)) == -np.inf).any():
            raise ValueError("start must not hold configurations that a factor forbids")
    if isinstance(start, SampleResult) and states is not None:
        # Going on with the same seed must not draw the same numbers again.
        key_seed = int.from_bytes(hashlib.sha256(f"{seed} ".encode() + states.tobytes()).digest()[:8], "little")
    changes = schedule == "random-burn-in"
    first = schedule if not changes else "random" if plan.burn_in else "systematic"
    make = _Maker(model, method.name, plan.num_chains, estimator, context)
    engine, place = make(key_seed, first, backend)
    modes, at_modes = np.zeros((0, model.num_variables), dtype=np.int64), np.zeros(0, dtype=np.int64)
    if states is None:
        if start == "dispersed" and accuracy is None and plan.num_chains > 1:
            # What a checkpoint goes on from must not depend on the time.
            modes = find_modes(model, seed=seed, clock=clock.part(0.1) if saved is None else NO_LIMIT)
        # Chains that are added up together start together, or those at a mode would be lost among the others.
        size, rng = engine.group_size, np.random.default_rng([seed, 5])
        limited = clock.part(0.1) if saved is None else NO_LIMIT
        states, at_modes = dispersed_states(model, plan.num_chains // size, modes, rng, limited)
        states = np.repeat(states, size, axis=0)
    engine.set_states(states)
    average = estimator == "rao-blackwell"
    edges = bool(context.edge_marginals)
    run = _Run(model, engine, plan, num_draws, method.history_at, edges, average, watch=at_modes)
    if changes and plan.burn_in:
        # Other numbers than those of the burn-in; on the CPU, or the first engine would have refused.
        run.following = lambda: make((key_seed + 1) % 2**63, "systematic", "cpu")[0]
    if clock.asked is not None and method.num_sweeps is None and accuracy is None and saved is None:
        run.fills_time, run.fills_burn_in = True, method.burn_in is None
    if saved is not None:
        begun = hashlib.sha256(states.tobytes()).hexdigest()
        key = f"{model.content_hash} {method.name} {plan} {schedule} {estimator} {num_draws} {run.history_at} "
        key += f"{key_seed} {bool(context.edge_marginals)} {begun}" + ("" if engine.device == "cpu" else " cuda")
        parts = saved.resume(key, seed)
        try:
            run.restore(parts)
        except (LookupError, TypeError, ValueError):  # its sum is right, but this is not what was saved
            raise FormatError(f"{saved.path}: the checkpoint is damaged; remove the file to begin anew") from None
    scouted: list[tuple[IntArray, FloatArray, int]] = []
    try:
        if 2 < plan.num_chains < _SCOUTED:
            scouted = _scout(model, method.name, plan, modes[len(at_modes) :], seed, clock)
        stopped_by = run.go(clock, saved)
    except KeyboardInterrupt:
        stopped_by = "interrupt"
    if run.statistics.num_batches == 0:
        text = f"sampling stopped ({stopped_by}) before the first batch was complete: nothing to report"
        raise Interrupted(text) if stopped_by == "interrupt" else NotConvergedError(text)
    swings = log_odds_swings(model) if gibbs is not None and average and schedule != "random" else None
    memory = 1.0
    if run.burn_sums is not None and run.plan.burn_in:
        own = (modes[: len(at_modes)], run.burn_sums / run.plan.burn_in, run.plan.burn_in)
        mean = run.statistics.sums.sum(axis=1) / (run.statistics.num_chains * run.statistics.num_sweeps)
        memory = max(remembered_sweeps(model, *burned, mean) for burned in (own, *scouted))
    summary = summarise(run.statistics, model, swings=swings, memory=memory)
    status, note = Status.OK, "the certificate sets the burn-in and the number of chains"
    if accuracy is None:
        certified = gibbs is not None and plan.num_chains < 3 and _is_certified(model, run.plan, schedule)
        status, note = assess_mixing(summary, certified=certified)
    elif stopped_by == "done" and run.plan.burn_in == plan.burn_in:
        stopped_by = "accuracy"
    else:
        status, note = Status.NOT_MIXED, f"stopped after {run.plan.burn_in} of {plan.burn_in} certified sweeps"
    if stopped_by == "interrupt":
        status = Status.INTERRUPTED
    if isinstance(run.engine, HostChains) and run.engine.sharing is not None:
        place = f"cpu ({run.engine.sharing})"
    stats: dict[str, Any] = {"note": note, "stopped_by": stopped_by, "backend": place}
    return _result(method.name, status, summary, run, stats, schedule)


def _promise(model: MarkovRandomField, burn_in: int, schedule: str, clock: Clock) -> str | None:
    """What the certificate guarantees after the burn-in, if anything."""
    from fastmix.methods.auto import certify_random, certify_sweeps

    try:
        certificate = certify_sweeps(model, clock) if schedule == "systematic" else certify_random(model, clock)
    except FastmixError:  # too large for a certificate: nothing to promise
        return None
    if not certificate.certified or certified_sweeps(certificate) > burn_in:
        return None
    bias = certificate.accuracy
    return f"after {burn_in} sweeps no marginal is off by more than {bias:g} but for chance; intervals() are proven"


def _scout(
    model: MarkovRandomField, method: str, plan: _Plan, modes: IntArray, seed: int, clock: Clock
) -> list[tuple[IntArray, FloatArray, int]]:
    """Modes (K, n) that few chains have no room for, averages (E, K) of others that burn in from them, and sweeps."""
    if not len(modes) or not plan.burn_in:
        return []
    engine, _ = _engine(model, method, len(modes), seed + 1, "systematic", "rao-blackwell", 1, "cpu")
    engine.set_states(modes)
    clock, done = clock.part(_SCOUT_SHARE), 0
    while done < plan.burn_in and not clock.past():
        count = min(max(1, plan.burn_in // 16), plan.burn_in - done)
        engine.sweep(count, collect=True)
        done += count
    return [(modes, engine.take_sums() / done, done)] if done else []


@dataclass(frozen=True)
class _Plan:
    num_chains: int
    num_sweeps: int
    burn_in: int
    bias: float | None = None


def _plan(
    model: MarkovRandomField, method: _Sampler, accuracy: float | None, schedule: Schedule | None
) -> tuple[_Plan, Schedule]:
    """The numbers of a run, and the order of its updates."""
    if accuracy is None:
        going_on = isinstance(method.start, SampleResult)
        chains = int(method.num_chains or (len(method.start.states) if going_on else default_chains(model)))
        sweeps = int(method.num_sweeps or _NUM_SWEEPS)
        default = 0 if going_on else sweeps // 10
        plan = _Plan(chains, sweeps, default if method.burn_in is None else int(method.burn_in))
        return plan, schedule or "systematic"
    # Hoeffding: exp(-2 C (accuracy / 2)^2) * 2 <= 1 - confidence.
    chains = math.ceil(math.log(2.0 / (1.0 - _CONFIDENCE)) / (2.0 * (accuracy / 2) ** 2))
    certificate = _certificate(model, accuracy / 2, schedule or "systematic", _MOST_CERTIFIED / chains)
    if not certificate.certified and schedule is None:
        at_random = _certificate(model, accuracy / 2, "random-burn-in", _MOST_CERTIFIED / chains)
        if at_random.certified:
            certificate, schedule = at_random, "random-burn-in"
    if not certificate.certified:
        raise UnfitMethodError(
            f"accuracy needs a certified model, and this one has a dependency norm of {certificate.norm_value:.3g}: "
            "give num_sweeps instead, or project the model first"
        )
    # The sweep that is averaged is the last of those that Dobrushin's criterion counts, in the same order.
    schedule = schedule or "systematic"
    counted = schedule != "random-burn-in" and certificate.criterion == "dobrushin"
    burn_in = max(0, certified_sweeps(certificate) - counted)
    return _Plan(chains, 1, burn_in, certificate.max_bias), schedule


def _certificate(model: MarkovRandomField, accuracy: float, schedule: Schedule, max_updates: float) -> Certificate:
    """The certificate for marginals of chains of a schedule; of the joint distribution, if that may change."""
    if schedule == "systematic":
        return certify(
            model, accuracy=accuracy, criterion="dobrushin", schedule=schedule, per_variable=True,
            order=_order(model, schedule),
        )  # fmt: skip
    joint = schedule == "random-burn-in"
    return certify(model, accuracy=accuracy, schedule="random", per_variable=not joint, max_updates=max_updates)


def certified_sweeps(certificate: Certificate) -> int:
    """Sweeps of a certified model, of n random updates each where those are what is certified."""
    if certificate.num_sweeps is not None:
        return certificate.num_sweeps
    assert certificate.num_updates is not None
    return -(-certificate.num_updates // max(1, len(certificate.bias)))


def _bias(model: MarkovRandomField, burn_in: int, schedule: str, dependency: Dependency) -> FloatArray:
    """Bounds on the bias of what is averaged first (n,), after the burn-in."""
    n = model.num_variables
    if schedule == "random-burn-in":
        # Whatever comes after it: the joint distribution is as close as this, and no sweep takes it away.
        bias = bias_after(model, burn_in, schedule="random", dependency=dependency)
        bias = np.full(n, min(1.0, float(bias.sum()) * (1.0 + 1e-12)))
    else:
        order = _order(model, schedule)
        known = cast("Literal['systematic', 'random']", schedule)
        bias = bias_after(model, burn_in + 1, schedule=known, order=order, dependency=dependency)
    if schedule != "systematic" and bias.max(initial=0.0) > _ROUNDING:
        bias = np.minimum(bias, bias_after_updates(model, float(burn_in) * n))
    return bias


def default_chains(model: MarkovRandomField) -> int:
    """Chains of a run that was not told how many: 64, but fewer for large models."""
    n, cuts = model.num_variables, len(model.log_unary) - model.num_variables
    most = min(_MOST_SITES // max(1, n), _MOST_CUTS // max(1, cuts))
    return int(np.clip(most, _LEAST_CHAINS, _MANY_CHAINS))


def _is_certified(model: MarkovRandomField, plan: _Plan, schedule: Schedule) -> bool:
    """Whether the burn-in provably brings every marginal within 0.01."""
    try:
        certificate = _certificate(model, _CERTIFIED_BIAS, schedule, _MOST_CERTIFIED)
    except UnfitMethodError:  # no certificate for such a model
        return False
    return certificate.certified and certified_sweeps(certificate) <= plan.burn_in


def _order(model: MarkovRandomField, schedule: str) -> IntArray | None:
    return model.structure.visit_order[0].astype(np.int64) if schedule == "systematic" else None


@dataclass(frozen=True)
class _Maker:
    """Makes the sampler of a run, and says what it runs on; with workers, it shares the chains with them."""

    model: MarkovRandomField
    method: str
    num_chains: int
    estimator: str
    context: Context

    def __call__(self, seed: int, schedule: Any, backend: str) -> tuple[Chains, str]:
        """The sampler for an order of updates, and a place in words."""
        threads, pool = self.context.num_threads, self.context.pool
        common = self.model, self.method
        chains, place = _engine(*common, self.num_chains, seed, schedule, self.estimator, threads, backend)
        if pool is not None and isinstance(chains, HostChains):
            from fastmix.chains.sharing import Sharing

            kernel = chains.kernel if isinstance(chains, CpuChains) else None
            make = partial(_twin, *common, schedule=schedule, estimator=self.estimator, kernel=kernel)
            least = _SHARED_CHAINS if kernel in ("table", "field", "layers") else 1
            chains.share(Sharing(pool, make, self.num_chains, least=least))
        return chains, place


def _twin(model: MarkovRandomField, method: str, num_chains: int, schedule: str, estimator: str, kernel: Any) -> Chains:
    """A sampler for some of the chains of another."""
    return _engine(model, method, num_chains, 0, schedule, estimator, 1, "cpu", kernel)[0]


def _engine(
    model: MarkovRandomField,
    method: str,
    num_chains: int,
    seed: int,
    schedule: Any,
    estimator: Any,
    num_threads: int | None,
    backend: str,
    kernel: Any = None,
) -> tuple[Chains, str]:
    """The sampler, and what it runs on in words."""
    if method == "swendsen-wang":
        from fastmix.methods import swendsen_wang

        return swendsen_wang.ClusterChains(model, num_chains=num_chains, seed=seed, num_threads=num_threads), "cpu"
    structure, forbidden = model.structure, model.has_forbidden

    def make_cpu() -> Chains:
        return CpuChains(
            structure, num_chains=num_chains, seed=seed, schedule=schedule, estimator=estimator,
            num_threads=num_threads, forbidden=forbidden, kernel=kernel,
        )  # fmt: skip

    def make_cuda() -> Chains:
        from fastmix.chains.cuda.chains import CudaChains
        from fastmix.chains.cuda.device import choose_group_size

        if schedule != "systematic":
            raise UnfitMethodError(f"schedule must be systematic on the GPU, got {schedule!r}; use backend='cpu'")
        size = choose_group_size(structure, num_chains, forbidden=forbidden)
        return CudaChains(
            structure, num_chains=num_chains, seed=seed, estimator=estimator, group_size=size, forbidden=forbidden
        )

    chains, place = make_chains(backend, make_cpu, make_cuda)
    chains.load(model.parameters)
    return chains, place


def _start_states(reduction: Reduction, start: object, num_chains: int) -> IntArray:
    """Given configurations as states of the reduced model."""
    model, original = reduction.model, reduction.original
    given = start.states if isinstance(start, SampleResult) else np.asarray(start)
    if given.shape != (num_chains, original.num_variables):
        raise ValueError(f"start must have shape ({num_chains}, {original.num_variables}), got {given.shape}")
    given, _ = original._as_states(given)
    number = np.full(len(original.log_unary), -1, dtype=np.int64)
    number[reduction.unary_positions] = np.arange(len(model.log_unary))
    flat = number[original.unary_offsets[reduction.variables] + given[:, reduction.variables]]
    if (flat < 0).any():
        raise ValueError("start must not hold states that are forbidden")
    return flat - model.unary_offsets[:-1]


def _check_chains(model: MarkovRandomField, plan: _Plan, accuracy: float | None, backend: str) -> None:
    """Refuse chains whose configurations and, but for groups of chains on a GPU, sums do not fit the memory."""
    each = _CHAIN_BYTES + 24.0 * model.num_variables
    if backend == "cpu":
        each += 24.0 * len(model.log_unary)
    what, way_out = f"num_chains {plan.num_chains}", "run fewer chains"
    if accuracy is not None:
        what, way_out = f"accuracy {accuracy:g}, which takes {plan.num_chains} chains,", "ask for less accuracy"
    check_memory(plan.num_chains * each, what, way_out)


def _check_draws(model: MarkovRandomField, plan: _Plan, num_draws: int) -> None:
    num_chains = plan.num_chains
    if num_draws > plan.num_sweeps:
        raise ValueError(f"num_draws must be at most num_sweeps, {plan.num_sweeps}, got {num_draws}")
    required = float(num_chains) * num_draws * model.num_variables * _DRAW_BYTES
    check_memory(required, f"num_draws {num_draws} of {num_chains} chains", "keep fewer, or run fewer chains")


class _Run:
    """A run in progress: what is done, what is collected, and what a checkpoint holds."""

    def __init__(
        self,
        model: MarkovRandomField,
        engine: Chains,
        plan: _Plan,
        num_draws: int,
        history_at: Sequence[int],
        edge_marginals: bool,
        average_pairs: bool,
        *,
        watch: IntArray,
    ) -> None:
        # Sums over the burn-in (entries of log_unary, those that are watched) of some groups of chains.
        self.watch = watch
        self.burn_sums = np.zeros((len(model.log_unary), len(watch))) if watch.size else None
        self.model, self.engine, self.plan = model, engine, plan
        self.done = -plan.burn_in  # sweeps, negative while burning in
        self.statistics = BatchStatistics(len(model.log_unary), engine.num_chains // engine.group_size, plan.num_sweeps)
        self.history_at = [t for t in history_at if 0 < t <= plan.num_sweeps]
        self.history: list[tuple[int, FloatArray]] = []
        self.draws: list[NDArray[Any]] = []
        self.num_draws = num_draws
        self.pairs = np.zeros(len(model.log_pairwise)) if edge_marginals else None
        self.averages_pairs = average_pairs
        self._set_stops()
        self.seconds = 0.0
        self.fills_time = self.fills_burn_in = False  # whether a time limit is to be used up
        self.timed = 0, 0.0  # sweeps and seconds of the burn-in when it was last planned
        self.following: Callable[[], Chains] | None = None  # what sweeps after the burn-in, if not the same

    def _change_over(self) -> None:
        """Go on with what sweeps after the burn-in, from where it ended."""
        if self.following is not None:
            states, self.engine, self.following = self.engine.get_states(), self.following(), None
            self.engine.set_states(states)

    def _set_stops(self) -> None:
        """When to note what, by the number of sweeps that are planned."""
        engine, planned = self.engine, self.plan.num_sweeps
        self.draw_every = planned // self.num_draws if self.num_draws else 0
        self.pair_every = max(1, planned // _EDGE_COUNTS)
        # Long runs have more batches, so that an interrupt loses a second of work at most.
        most = int(_BATCH_UPDATES / max(1, engine.updates_per_sweep * engine.num_chains))
        least = _LEAST_OF_MANY if engine.num_chains >= _MANY_CHAINS else _LEAST_BATCH
        self.batch = min(planned, max(least, min(most, math.ceil(planned / _BATCHES))))
        self.statistics.expected_sweeps = planned

    def _fill_time(self, clock: Clock) -> None:
        """After the burn-in, plan what the time leaves room for: first a tenth of it to burn in."""
        sweeps, seconds = self.timed
        each = (self.seconds - seconds) / max(1, self.plan.burn_in - sweeps)  # latest: first steps are small and slow
        self.timed = self.plan.burn_in, self.seconds
        rest = _BURN_SHARE * (clock.limit or 0.0) - clock.used()
        if self.fills_burn_in and rest > 0.2 * _BURN_SHARE * (clock.limit or 0.0) and each > 0.0:
            more = max(1, int(rest / each))
            self.plan, self.done = replace(self.plan, burn_in=self.plan.burn_in + more), -more
            return
        affordable = int(_MARGIN * clock.left() / each) if each > 0.0 else 0
        self.plan = replace(self.plan, num_sweeps=max(self.plan.num_sweeps, affordable))
        self._set_stops()

    def next_stop(self) -> int:
        """The next number of sweeps at which something has to be noted."""
        stops = [self.plan.num_sweeps, (self.done // self.batch + 1) * self.batch]
        stops += [t for t in self.history_at if t > self.done][:1]
        if self.draw_every:
            stops.append((self.done // self.draw_every + 1) * self.draw_every)
        if self.pairs is not None:
            stops.append((self.done // self.pair_every + 1) * self.pair_every)
        return min(stop for stop in stops if stop > self.done)

    def go(self, clock: Clock, checkpoint: Checkpoint | None) -> str:
        """Run to the end (``done``), the time limit (``time_limit``) or an interrupt (``interrupt``)."""
        most = max(
            1, int(self.engine.updates_per_step / max(1, self.engine.updates_per_sweep * self.engine.num_chains))
        )
        step = most if clock.limit is None else max(1, most // _FIRST_STEP)
        # What comes after the last sweep takes about a third of what came before the first.
        share = 1.0 if clock.limit is None else max(0.5, 1.0 - clock.used() / (3.0 * (clock.limit or 1e-3)))
        since_batch = self.done  # sums are taken at batches and trace points only
        snapshot: dict[str, NDArray[Any]] | None = None  # where a later process can go on
        try:
            while self.done < self.plan.num_sweeps:
                if self.done >= 0:
                    self._change_over()
                target = 0 if self.done < 0 else self.next_stop()
                start = clock.used()
                count = min(step, target - self.done)
                watched = self.done < 0 and self.burn_sums is not None
                self.engine.sweep(count, collect=self.done >= 0 or watched)
                self.done += count
                seconds = clock.used() - start
                self.seconds += seconds
                if clock.limit is not None:
                    step = max(1, step // 2) if seconds > self.engine.step_seconds else min(most, 2 * step)
                if watched and (checkpoint is not None or self.done == 0):
                    self._take_burn_sums()
                if self.done == 0:
                    if self.fills_time and self.plan.burn_in:
                        self._fill_time(clock)
                    since_batch = self.done
                if self.done == target and self.done > 0:
                    since_batch = self._note(since_batch)
                total = self.plan.burn_in + self.plan.num_sweeps
                clock.report(self.done + self.plan.burn_in, total, "sweeps", per_second=self.updates_per_second())
                resumable = since_batch == self.done or self.done < 0
                if checkpoint is not None and resumable:
                    snapshot = self.arrays()
                    checkpoint.save(snapshot, now=self.done == self.plan.num_sweeps)
                if self.done < 0 and clock.past(0.5 * share) and checkpoint is None:
                    # Half of the time must be left for what the answer is made of.
                    if watched:
                        self._take_burn_sums()
                    self.plan = replace(self.plan, burn_in=self.plan.burn_in + self.done)
                    self.done = since_batch = 0
                elif clock.past(share) and (self.done > 0 if checkpoint is None else snapshot is not None):
                    # A run with a checkpoint goes on until it can be saved: runs of any length add up to the answer.
                    if self.done == self.plan.num_sweeps:
                        return "done"
                    if checkpoint is not None and snapshot is not None:
                        checkpoint.save(snapshot, now=True)
                    if self.done > max(0, since_batch):
                        self.statistics.add(self._take_sums(), self.done - since_batch)
                    return "time_limit"
        except KeyboardInterrupt:
            if checkpoint is not None and snapshot is not None:
                checkpoint.save(snapshot, now=True)
            return "interrupt"
        return "done"

    def _take_sums(self) -> FloatArray:
        """Sums of single chains, or means over the chains of a group, which count as one chain from here on."""
        sums = self.engine.take_sums()
        return sums / self.engine.group_size if self.engine.group_size > 1 else sums

    def _take_burn_sums(self) -> None:
        assert self.burn_sums is not None
        self.burn_sums += self._take_sums()[:, self.watch]

    def _note(self, since_batch: int) -> int:
        done = self.done
        if done % self.batch == 0 or done in self.history_at or done == self.plan.num_sweeps:
            self.statistics.add(self._take_sums(), done - since_batch)
            since_batch = done
        if done in self.history_at:
            self.history.append((done, summarise(self.statistics, self.model).mean))
        wants_draw = self.draw_every and done % self.draw_every == 0 and len(self.draws) < self.num_draws
        wants_pairs = self.pairs is not None and done % self.pair_every == 0
        if wants_draw:
            states = self.engine.get_states()
            self.draws.append(states.astype(np.uint8 if states.max(initial=0) < 256 else np.uint16))
        if wants_pairs and self.pairs is not None:
            self.engine.add_pairs(self.pairs, average=self.averages_pairs)
        return since_batch

    @property
    def how_pairs(self) -> str:
        """What edge marginals are made of."""
        return "conditional averages" if self.averages_pairs else "counts of pairs"

    def updates_per_second(self) -> float:
        sweeps = self.done + self.plan.burn_in
        updates = float(sweeps) * self.engine.updates_per_sweep * self.engine.num_chains
        return updates / self.seconds if self.seconds else 0.0

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that a later process needs to go on."""
        parts: dict[str, NDArray[Any]] = {
            "done": np.array([self.done]),
            "seconds": np.array([self.seconds]),
            "states": self.engine.get_states().astype(np.uint16),
            "random": self.engine.get_random_state(),
            "draws": np.array(self.draws, dtype=np.uint16),
            "trace": np.array([m for _, m in self.history]),
            "pairs": np.zeros(0) if self.pairs is None else self.pairs.copy(),
            "burn_sums": np.zeros(0) if self.burn_sums is None else self.burn_sums.copy(),
        }
        return parts | {f"statistics_{k}": np.array(v) for k, v in self.statistics.to_arrays().items()}

    def restore(self, parts: dict[str, NDArray[Any]] | None) -> None:
        """Go on from what :meth:`arrays` gave."""
        if parts is None:
            return
        self.done, self.seconds = int(parts["done"][0]), float(parts["seconds"][0])
        if self.done > 0:  # at 0 the states are those of the burn-in still
            self._change_over()
        self.engine.set_states(parts["states"].astype(np.int64))
        self.engine.set_random_state(parts["random"])
        self.draws = list(parts["draws"])
        self.history = list(zip(self.history_at, parts["trace"], strict=False))
        if self.pairs is not None:
            self.pairs = parts["pairs"].copy()
        if self.burn_sums is not None:
            self.burn_sums = parts["burn_sums"].copy()
        prefix = "statistics_"
        self.statistics = BatchStatistics.from_arrays(
            {k.removeprefix(prefix): v for k, v in parts.items() if k.startswith(prefix)}
        )


def _result(
    method: str, status: Status, summary: Summary, run: _Run, stats: dict[str, Any], schedule: str
) -> SampleResult:
    """The result about the reduced model."""
    edges = None
    model, plan = run.model, run.plan
    if run.pairs is not None:
        total = run.pairs[: model.pairwise_offsets[1]].sum() if len(run.pairs) else 1.0
        edges = run.pairs / max(total, 1.0)
        stats["edge_marginals"] = run.how_pairs
    whole = run.engine.group_size == 1  # variances of groups say nothing about those of chains
    sweeps = run.statistics.num_sweeps  # after an interrupt fewer than were run
    options = {"num_chains": plan.num_chains, "num_sweeps": plan.num_sweeps, "burn_in": plan.burn_in}
    return SampleResult(
        model=model,
        method=method,
        status=status,
        node_marginals=summary.mean,
        edge_marginals=edges,
        log_z=None,
        stats={
            "num_chains": plan.num_chains, "num_sweeps": sweeps, "burn_in": plan.burn_in,
            "updates": (run.done + plan.burn_in) * run.engine.updates_per_sweep * plan.num_chains,
            "updates_per_second": run.updates_per_second(), "bias": plan.bias, **stats,
        },
        provenance={"device": run.engine.device, "options": {**options, "schedule": schedule}},
        std_error=summary.std_error,
        ess=summary.ess,
        r_hat=summary.r_hat,
        states=run.engine.get_states(),
        draws=np.stack(run.draws, axis=1) if run.draws else None,
        history=run.history,
        chain_variances=run.statistics.chain_variances() if plan.num_chains > 1 and whole else None,
    )  # fmt: skip
