"""``sample()``: chains run in batches, with error bars, diagnostics, resumption and honest statuses."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix._checks import (
    check_accuracy,
    check_count,
    check_positive,
    check_threads,
    choose_seed,
)
from fastmix._clock import NO_LIMIT, Clock
from fastmix._memory import check_memory
from fastmix.chains.engine import Engine
from fastmix.chains.gibbs import Gibbs, check_conditionals, logit_arrays
from fastmix.errors import FormatError, NotConvergedError, ResourceError, UnfitMethodError
from fastmix.methods.checkpoint import Checkpoint
from fastmix.methods.diagnostics import (
    BatchStatistics,
    Summary,
    assess_mixing,
    log_odds_swings,
    summarise,
    to_arviz,
)
from fastmix.methods.starts import dispersed_states, find_modes, remembered_sweeps
from fastmix.model import Evidence, MarkovRandomField, check_model
from fastmix.model.reduce import Reduction, reduce_model
from fastmix.results import InferenceResult, Status, jsonable, provenance
from fastmix.theory.certificates import bias_after, certify
from fastmix.theory.comparison import comparison_bounds, original_intervals
from fastmix.theory.dependency import Dependency
from fastmix.theory.intervals import Intervals, rigorous_intervals

__all__ = ["SampleResult", "default_chains", "sample"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_BATCHES = 64
_BATCH_UPDATES = 2e8
_LEAST_BATCH, _LEAST_OF_MANY = 4, 25  # sweeps, of few chains and of many: taking sums costs more than some sweeps
_MANY_CHAINS = 64
_MOST_SITES, _LEAST_CHAINS = 1 << 24, 8  # variables of all chains together, and chains, by default
# A time limit is looked at after every step: sweeps that take about as long as this, beginning with a small part.
_STEP_SECONDS, _FIRST_STEP = 0.1, 64
_SCOUTED, _SCOUT_SHARE = 16, 0.1  # chains below which others look at the modes, and their share of a time limit
_EDGE_COUNTS = 1000  # configurations a chain that edge marginals are counted from
_CONFIDENCE = 0.95
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
    trace : list of (sweeps, flat node marginals)
        Running marginals at the sweeps asked for.
    """

    std_error: FloatArray = field(default_factory=lambda: np.zeros(0))
    ess: FloatArray = field(default_factory=lambda: np.zeros(0))
    r_hat: FloatArray = field(default_factory=lambda: np.zeros(0))
    states: IntArray = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))
    draws: NDArray[np.integer[Any]] | None = None
    trace: list[tuple[int, FloatArray]] = field(default_factory=list)
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
            Dependency bound behind the bias, see :func:`fastmix.certify`. For a model that cannot be certified the bias
            stays 1, and the intervals say so in ``vacuous``.
        original : MarkovRandomField, optional
            The model that the sampled one is a projection of: the intervals are then for its marginals, by the
            comparison theorem of Dobrushin.

        Raises
        ------
        UnfitMethodError
            For cluster moves, whose mixing no certificate bounds.
        """
        if self.method != "gibbs" or self.reduction is None:
            raise UnfitMethodError(f"intervals need the certificate of Gibbs sampling, and this is {self.method}")
        small = self.reduction.model
        schedule = self.provenance["options"]["schedule"]
        order = _order(small, schedule)
        bias = bias_after(small, int(self.stats["burn_in"]) + 1, schedule=schedule, order=order, dependency=dependency)
        kept = self.reduction.unary_positions
        inner = rigorous_intervals(
            small, self.node_marginals[kept], num_chains=int(self.stats["num_chains"]), bias=bias,
            variances=self.chain_variances, confidence=confidence, simultaneous=simultaneous,
        )  # fmt: skip
        lower = self.reduction.expand_node_marginals(np.maximum(inner.lower - _ROUNDING, 0.0))
        upper = self.reduction.expand_node_marginals(np.minimum(inner.upper + _ROUNDING, 1.0))
        vacuous = np.zeros(len(lower), dtype=bool)
        vacuous[kept] = inner.vacuous
        result = Intervals(lower, upper, vacuous, inner.confidence, inner.simultaneous)
        if original is None:
            return result
        if (self.reduction.fixed >= 0).any():
            raise UnfitMethodError("original needs a run without evidence: condition both models first")
        return original_intervals(original, result, comparison_bounds(self.model, original))

    def to_arviz(self) -> Any:
        """The draws as ArviZ's data object (extra ``interop``); the run must have kept some (``num_draws``)."""
        if self.draws is None:
            raise ValueError("to_arviz needs draws: run sample() with num_draws")
        return to_arviz(self.draws, self.model)

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data; adds ``std_error``, ``r_hat_max``, ``ess_min`` and ``updates_per_second``."""
        return {
            **super().to_dict(),
            "std_error": self._by_variable(self.std_error),
            "r_hat_max": jsonable(float(self.r_hat.max(initial=1.0))),
            "ess_min": jsonable(float(self.ess.min(initial=np.inf))),
            "updates_per_second": self.stats.get("updates_per_second"),
        }

    def _by_variable(self, values: FloatArray | None) -> list[Any] | None:
        """Numbers of every state as plain data, a list for every variable; None for None."""
        if values is None or not self.model.num_variables:
            return None if values is None else []
        return [jsonable(vector) for vector in np.split(values, self.model.unary_offsets[1:-1])]


def sample(
    model: MarkovRandomField,
    *,
    method: Literal["gibbs", "swendsen-wang"] = "gibbs",
    num_chains: int | None = None,
    num_sweeps: int | None = None,
    burn_in: int | None = None,
    accuracy: float | None = None,
    schedule: Literal["systematic", "random"] = "systematic",
    estimator: Literal["rao-blackwell", "counts"] = "rao-blackwell",
    evidence: Evidence | None = None,
    edge_marginals: bool = False,
    num_draws: int = 0,
    trace_at: Sequence[int] = (),
    start: Literal["dispersed", "random"] | ArrayLike | SampleResult = "dispersed",
    backend: Literal["cpu", "cuda", "auto"] = "cpu",
    seed: int | None = None,
    num_threads: int | None = None,
    time_limit: float | None = None,
    checkpoint: str | None = None,
    checkpoint_seconds: float = 30.0,
    progress: Callable[[int, int, float], None] | None = None,
) -> SampleResult:
    """Marginals by Markov chain Monte Carlo, with standard errors and a verdict on mixing.

    Parameters
    ----------
    model : MarkovRandomField
        Any state counts. Forbidden pairs are fine as long as every conditional distribution is defined.
    method : {"gibbs", "swendsen-wang"}
        Updates of single variables, or of clusters (attractive Ising and Potts models only).
    num_chains : int
        Independent chains; by default 64, in models of more than 262,144 variables fewer, 8 at least.
    num_sweeps : int
        Sweeps of every chain that are averaged, after the burn-in; 10,000 by default.
    burn_in : int
        Sweeps before; a tenth of ``num_sweeps`` by default.
    accuracy : float, optional
        Instead of sweeps: every probability to be within this, with 95 % confidence for each. The certificate of the
        model sets the burn-in and Hoeffding's bound the number of chains; refused for models without a certificate.
    schedule : {"systematic", "random"}
    estimator : {"rao-blackwell", "counts"}
        Average the conditional probabilities of the updates, or the states themselves.
    evidence : mapping, optional
    edge_marginals : bool
        Average over about 1,000 configurations of every chain: the conditional probabilities of either end of an edge
        beside the state of the other, or on a GPU, and with the estimator ``counts``, the pairs of states themselves,
        whose errors are larger; ``stats["edge_marginals"]`` says which, ``conditional averages`` or
        ``counts of pairs``.
    num_draws : int
        Configurations of every chain to keep, evenly spaced.
    trace_at : sequence of int
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
        them at most (but not with a checkpoint, from which it can go on).
    checkpoint : str, optional
        A file to which the run is saved every ``checkpoint_seconds``, and from which it goes on if it exists, with its
        seed when none is given; the answer is the same, bit by bit, as that of an uninterrupted run. A finished run
        stays in the file, and the same call answers from it at once: remove it when what comes back is safe.
    progress : callable, optional
        Called with sweeps done, sweeps in all and updates per second.

    Returns
    -------
    SampleResult
        Status ``not_mixed`` when R-hat or the effective sample size says that the chains have not met, ``interrupted``
        after Ctrl-C. ``stats["stopped_by"]`` is ``done``, ``accuracy``, ``time_limit`` or ``interrupt``.

    Examples
    --------
    >>> from fastmix.instances import ising_grid
    >>> result = sample(ising_grid(3, 3, coupling_max=0.5, seed=0), num_sweeps=2000, seed=1)
    >>> str(result.status), bool(result.std_error.max() < 0.01)
    ('ok', True)
    """
    clock = Clock(time_limit)
    check_model(model)
    num_threads = check_threads(num_threads)
    check_positive("checkpoint_seconds", checkpoint_seconds, "number of seconds", or_zero=True)
    saved = None if checkpoint is None else Checkpoint(checkpoint, checkpoint_seconds)
    seed = choose_seed(saved.seed if saved is not None and seed is None else seed)
    # Cluster moves need equal state counts at both ends of an edge, so forbidden states stay; they are never drawn.
    reduction = reduce_model(model, evidence, drop_forbidden=method != "swendsen-wang")
    small = reduction.model
    plan = _plan(small, method, num_chains, num_sweeps, burn_in, accuracy, schedule, start)
    _check_chains(small, plan, accuracy, backend)
    _check_draws(small, plan, num_draws)
    states, key_seed = None, seed
    if not isinstance(start, str):
        states = _start_states(reduction, start, plan.num_chains)
    elif start not in ("dispersed", "random"):
        raise ValueError(f"start must be dispersed, random, configurations or a SampleResult, got {start!r}")
    if isinstance(start, SampleResult) and states is not None:
        # Going on with the same seed must not draw the same numbers again.
        key_seed = int.from_bytes(hashlib.sha256(f"{seed} ".encode() + states.tobytes()).digest()[:8], "little")
    engine, place = _engine(small, method, plan.num_chains, key_seed, schedule, estimator, num_threads, backend)
    modes, at_modes = np.zeros((0, small.num_variables), dtype=np.int64), np.zeros(0, dtype=np.int64)
    if states is None:
        if start == "dispersed" and accuracy is None and plan.num_chains > 1:
            # What a checkpoint goes on from must not depend on the time.
            modes = find_modes(small, seed=seed, clock=clock.part(0.1) if saved is None else NO_LIMIT)
        # Chains that are added up together start together, or those at a mode would be lost among the others.
        size, rng = engine.group_size, np.random.default_rng([seed, 5])
        states, at_modes = dispersed_states(small, plan.num_chains // size, modes, rng)
        states = np.repeat(states, size, axis=0)
    engine.set_states(states)
    average = estimator == "rao-blackwell"
    run = _Run(engine, plan, num_draws, sorted(set(trace_at)), edge_marginals, average, watch=bool(at_modes.size))
    if saved is not None:
        begun = hashlib.sha256(states.tobytes()).hexdigest()
        key = f"{small.content_hash} {method} {plan} {schedule} {estimator} {num_draws} {run.trace_at} {key_seed} "
        key += f"{edge_marginals} {begun}" + ("" if engine.device == "cpu" else " cuda")
        parts = saved.resume(key, seed)
        try:
            run.restore(parts)
        except (LookupError, TypeError, ValueError):  # its sum is right, but this is not what was saved
            raise FormatError(f"{checkpoint}: the checkpoint is damaged; remove the file to begin anew") from None
    scouted: list[tuple[IntArray, FloatArray, int]] = []
    try:
        if 2 < plan.num_chains < _SCOUTED:
            scouted = _scout(small, method, plan, modes[len(at_modes) :], seed, clock)
        stopped_by = run.go(clock, progress, saved)
    except KeyboardInterrupt:
        stopped_by = "interrupt"
    if run.statistics.num_batches == 0:
        raise NotConvergedError(
            f"sampling stopped ({stopped_by}) before the first batch was complete: nothing to report"
        )
    swings = log_odds_swings(small) if method == "gibbs" and average and schedule == "systematic" else None
    summary = summarise(run.statistics, small, swings=swings)
    if run.burn_sums is not None and run.plan.burn_in:
        own = (modes[: len(at_modes)], run.burn_sums[:, at_modes] / run.plan.burn_in, run.plan.burn_in)
        memory = max(remembered_sweeps(small, *burned, summary.mean) for burned in (own, *scouted))
        summary = summarise(run.statistics, small, swings=swings, memory=memory)
    status, note = Status.OK, "the certificate sets the burn-in and the number of chains"
    if accuracy is None:
        certified = method == "gibbs" and plan.num_chains < 3 and _is_certified(small, run.plan, schedule)
        status, note = assess_mixing(summary, certified=certified)
    elif stopped_by == "done" and run.plan.burn_in == plan.burn_in:
        stopped_by = "accuracy"
    else:
        status, note = Status.NOT_MIXED, f"stopped after {run.plan.burn_in} of {plan.burn_in} certified sweeps"
    if stopped_by == "interrupt":
        status = Status.INTERRUPTED
    options: dict[str, Any] = {
        "num_chains": plan.num_chains, "num_sweeps": plan.num_sweeps, "burn_in": plan.burn_in, "accuracy": accuracy,
        "schedule": schedule, "estimator": estimator,
        "evidence": None if evidence is None else {str(k): v for k, v in evidence.items()},
    }  # fmt: skip
    result = _result(model, reduction, method, status, summary, run, seed, options)
    said = {"note": note, "stopped_by": stopped_by, "backend": place, **clock.stats()}
    return replace(result, stats={**result.stats, **said})


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
        engine.advance(count, collect=True)
        done += count
    return [(modes, engine.take_sums() / done, done)] if done else []


@dataclass(frozen=True)
class _Plan:
    num_chains: int
    num_sweeps: int
    burn_in: int
    bias: float | None = None


def _plan(
    model: MarkovRandomField,
    method: str,
    num_chains: int | None,
    num_sweeps: int | None,
    burn_in: int | None,
    accuracy: float | None,
    schedule: Literal["systematic", "random"],
    start: object,
) -> _Plan:
    for name, value, least in (("num_chains", num_chains, 1), ("num_sweeps", num_sweeps, 1), ("burn_in", burn_in, 0)):
        if value is not None:
            check_count(name, value, least=least)
    if accuracy is None:
        chains = int(num_chains or (len(start.states) if isinstance(start, SampleResult) else default_chains(model)))
        sweeps = int(num_sweeps or 10_000)
        default = 0 if isinstance(start, SampleResult) else sweeps // 10
        return _Plan(chains, sweeps, default if burn_in is None else int(burn_in))
    if num_chains is not None or num_sweeps is not None or burn_in is not None:
        raise ValueError("accuracy must come without num_chains, num_sweeps and burn_in, which it sets")
    if method != "gibbs":
        raise ValueError(f"accuracy must come with method='gibbs', which the certificate is for, got {method!r}")
    check_accuracy(accuracy)
    certificate = certify(
        model,
        accuracy=accuracy / 2,
        criterion="dobrushin",
        schedule=schedule,
        per_variable=True,
        order=_order(model, schedule),
    )
    if not certificate.certified or certificate.num_sweeps is None:
        check_conditionals(model)  # where the chain is undefined, num_sweeps or a projection would not help
        raise UnfitMethodError(
            f"accuracy needs a certified model, and this one has a dependency norm of {certificate.norm_value:.3g}: "
            "give num_sweeps instead, or project the model first"
        )
    # Hoeffding: exp(-2 C (accuracy / 2)^2) * 2 <= 1 - confidence.
    chains = math.ceil(math.log(2.0 / (1.0 - _CONFIDENCE)) / (2.0 * (accuracy / 2) ** 2))
    return _Plan(chains, 1, max(0, certificate.num_sweeps - 1), certificate.max_bias)


def default_chains(model: MarkovRandomField) -> int:
    """Chains of a run that was not told how many: 64, but fewer where their sums would take gigabytes."""
    return int(np.clip(_MOST_SITES // max(1, model.num_variables), _LEAST_CHAINS, _MANY_CHAINS))


def _is_certified(model: MarkovRandomField, plan: _Plan, schedule: Literal["systematic", "random"]) -> bool:
    """Whether the burn-in provably brings every marginal within 0.01."""
    certificate = certify(
        model,
        accuracy=_CERTIFIED_BIAS,
        criterion="dobrushin",
        schedule=schedule,
        per_variable=True,
        order=_order(model, schedule),
    )
    enough = certificate.num_sweeps is not None and certificate.num_sweeps <= plan.burn_in
    return certificate.certified and enough


def _order(model: MarkovRandomField, schedule: str) -> IntArray | None:

    return model.structure.visit_order[0].astype(np.int64) if schedule == "systematic" else None


def _engine(
    model: MarkovRandomField,
    method: str,
    num_chains: int,
    seed: int,
    schedule: Any,
    estimator: Any,
    num_threads: int | None,
    backend: str,
) -> tuple[Engine, str]:
    """The sampler, and what it runs on in words."""
    if backend not in ("cpu", "cuda", "auto"):
        raise ValueError(f"backend must be cpu, cuda or auto, got {backend!r}")
    if method == "swendsen-wang":
        from fastmix.methods.swendsen_wang import SwendsenWang

        if backend == "cuda":
            raise UnfitMethodError("backend must be cpu for Swendsen-Wang, got 'cuda'; Gibbs sampling can run on a GPU")
        return SwendsenWang(model, num_chains=num_chains, seed=seed, num_threads=num_threads), "cpu"
    if method != "gibbs":
        raise ValueError(f"method must be gibbs or swendsen-wang, got {method!r}")
    if schedule not in ("systematic", "random"):
        raise ValueError(f"schedule must be systematic or random, got {schedule!r}")
    if estimator not in ("rao-blackwell", "counts"):
        raise ValueError(f"estimator must be rao-blackwell or counts, got {estimator!r}")
    check_conditionals(model)
    place = "cpu"
    if backend != "cpu":
        from fastmix.chains.cuda.gibbs import CudaGibbs, choose_group_size, cuda_available

        try:
            engine = CudaGibbs(
                model, num_chains=num_chains, seed=seed, schedule=schedule, estimator=estimator,
                group_size=choose_group_size(model, num_chains),
            )  # fmt: skip
            engine.device = cuda_available()[1]
            return engine, engine.device
        except (UnfitMethodError, ResourceError, ValueError) as error:
            if backend == "cuda":
                raise
            place = f"cpu, because {error}"
    cpu = Gibbs(
        model, num_chains=num_chains, seed=seed, schedule=schedule, estimator=estimator, num_threads=num_threads
    )
    return cpu, place


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
    check_count("num_draws", num_draws, least=0)
    if num_draws > plan.num_sweeps:
        raise ValueError(f"num_draws must be at most num_sweeps, {plan.num_sweeps}, got {num_draws}")
    required = float(num_chains) * num_draws * model.num_variables * _DRAW_BYTES
    check_memory(required, f"num_draws {num_draws} of {num_chains} chains", "keep fewer, or run fewer chains")


class _Run:
    """A run in progress: what is done, what is collected, and what a checkpoint holds."""

    def __init__(
        self,
        engine: Engine,
        plan: _Plan,
        num_draws: int,
        trace_at: list[int],
        edge_marginals: bool,
        average_pairs: bool,
        *,
        watch: bool = False,
    ) -> None:
        model = engine.model
        # Sums over the burn-in (entries of log_unary, groups of chains), if it is watched.
        self.burn_sums = np.zeros((len(model.log_unary), engine.num_chains // engine.group_size)) if watch else None
        self.engine, self.plan = engine, plan
        self.done = -plan.burn_in  # sweeps, negative while burning in
        self.statistics = BatchStatistics(len(model.log_unary), engine.num_chains // engine.group_size, plan.num_sweeps)
        self.trace_at = [t for t in trace_at if 0 < t <= plan.num_sweeps]
        self.trace: list[tuple[int, FloatArray]] = []
        self.draws: list[NDArray[Any]] = []
        self.draw_every = plan.num_sweeps // num_draws if num_draws else 0
        self.num_draws = num_draws
        self.pairs = np.zeros(len(model.log_pairwise)) if edge_marginals else None
        # On a device configurations stay there unless they are wanted: it counts pairs itself.
        self.averages_pairs = average_pairs and engine.device == "cpu"
        self.pair_arrays = logit_arrays(model)[:-1] if edge_marginals and self.averages_pairs else None
        self.pair_every = max(1, plan.num_sweeps // _EDGE_COUNTS)
        # Long runs have more batches, so that an interrupt loses a second of work at most.
        most = int(_BATCH_UPDATES / max(1, engine.updates_per_sweep * engine.num_chains))
        least = _LEAST_OF_MANY if engine.num_chains >= _MANY_CHAINS else _LEAST_BATCH
        self.batch = min(plan.num_sweeps, max(least, min(most, math.ceil(plan.num_sweeps / _BATCHES))))
        self.seconds = 0.0

    def next_stop(self) -> int:
        """The next number of sweeps at which something has to be noted."""
        stops = [self.plan.num_sweeps, (self.done // self.batch + 1) * self.batch]
        stops += [t for t in self.trace_at if t > self.done][:1]
        if self.draw_every:
            stops.append((self.done // self.draw_every + 1) * self.draw_every)
        if self.pairs is not None:
            stops.append((self.done // self.pair_every + 1) * self.pair_every)
        return min(stop for stop in stops if stop > self.done)

    def go(
        self,
        clock: Clock,
        progress: Callable[[int, int, float], None] | None,
        checkpoint: Checkpoint | None,
    ) -> str:
        """Run to the end (``done``), the time limit (``time_limit``) or an interrupt (``interrupt``)."""
        most = max(
            1, int(self.engine.updates_per_step / max(1, self.engine.updates_per_sweep * self.engine.num_chains))
        )
        step = most if clock.limit is None else max(1, most // _FIRST_STEP)
        # What comes after the last sweep takes about a third of what came before the first.
        share = 1.0 if clock.limit is None else max(0.5, 1.0 - clock.used() / (3.0 * clock.limit))
        since_batch = self.done  # sums are taken at batches and trace points only
        snapshot: dict[str, NDArray[Any]] | None = None  # where a later process can go on
        try:
            while self.done < self.plan.num_sweeps:
                target = 0 if self.done < 0 else self.next_stop()
                start = clock.used()
                count = min(step, target - self.done)
                watched = self.done < 0 and self.burn_sums is not None
                self.engine.advance(count, collect=self.done >= 0 or watched)
                self.done += count
                seconds = clock.used() - start
                self.seconds += seconds
                if clock.limit is not None:
                    step = max(1, step // 2) if seconds > _STEP_SECONDS else min(most, 2 * step)
                if watched and (checkpoint is not None or self.done == 0):
                    self._take_burn_sums()
                if self.done == 0:
                    since_batch = 0
                if self.done == target and self.done > 0:
                    since_batch = self._note(since_batch)
                if progress is not None:
                    total = self.plan.burn_in + self.plan.num_sweeps
                    progress(self.done + self.plan.burn_in, total, self.updates_per_second())
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
        self.burn_sums += self._take_sums()

    def _note(self, since_batch: int) -> int:
        done = self.done
        if done % self.batch == 0 or done in self.trace_at or done == self.plan.num_sweeps:
            self.statistics.add(self._take_sums(), done - since_batch)
            since_batch = done
        if done in self.trace_at:
            self.trace.append((done, summarise(self.statistics, self.engine.model).mean))
        wants_draw = self.draw_every and done % self.draw_every == 0 and len(self.draws) < self.num_draws
        wants_pairs = self.pairs is not None and done % self.pair_every == 0
        counts_itself = self.engine.device != "cpu"
        states = None
        if wants_draw or (wants_pairs and not counts_itself):
            states = self.engine.get_states()
        if wants_draw and states is not None:
            self.draws.append(states.astype(np.uint8 if states.max(initial=0) < 256 else np.uint16))
        if wants_pairs:
            self._add_pairs(states if not counts_itself else None)
        return since_batch

    def _add_pairs(self, states: IntArray | None) -> None:
        from fastmix.chains import gibbs_kernels

        kernels: Any = gibbs_kernels
        model, engine = self.engine.model, cast("Any", self.engine)
        assert self.pairs is not None
        if states is None:
            counts = np.zeros(len(model.log_pairwise), dtype=np.int64)
            engine.count_pairs(counts)
            self.pairs += counts
        elif self.pair_arrays is not None:
            kernels.average_pairs(states, *self.pair_arrays, self.pairs)
        else:
            kernels.count_pairs(states, model.edges, model.num_states, model.pairwise_offsets, self.pairs)

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
            "trace": np.array([m for _, m in self.trace]),
            "pairs": np.zeros(0) if self.pairs is None else self.pairs.copy(),
            "burn_sums": np.zeros(0) if self.burn_sums is None else self.burn_sums.copy(),
        }
        return parts | {f"statistics_{k}": np.array(v) for k, v in self.statistics.to_arrays().items()}

    def restore(self, parts: dict[str, NDArray[Any]] | None) -> None:
        """Go on from what :meth:`arrays` gave."""
        if parts is None:
            return
        self.done, self.seconds = int(parts["done"][0]), float(parts["seconds"][0])
        self.engine.set_states(parts["states"].astype(np.int64))
        self.engine.set_random_state(parts["random"])
        self.draws = list(parts["draws"])
        self.trace = list(zip(self.trace_at, parts["trace"], strict=False))
        if self.pairs is not None:
            self.pairs = parts["pairs"].copy()
        if self.burn_sums is not None:
            self.burn_sums = parts["burn_sums"].copy()
        prefix = "statistics_"
        self.statistics = BatchStatistics.from_arrays(
            {k.removeprefix(prefix): v for k, v in parts.items() if k.startswith(prefix)}
        )


def _result(
    model: MarkovRandomField,
    reduction: Reduction,
    method: str,
    status: Status,
    summary: Summary,
    run: _Run,
    seed: int,
    options: dict[str, Any],
) -> SampleResult:
    std_error = np.zeros(len(model.log_unary))
    std_error[reduction.unary_positions] = summary.std_error
    ess, r_hat = np.full(model.num_variables, np.inf), np.ones(model.num_variables)
    ess[reduction.variables], r_hat[reduction.variables] = summary.ess, summary.r_hat
    edges = None
    if run.pairs is not None:
        total = run.pairs[: run.engine.model.pairwise_offsets[1]].sum() if len(run.pairs) else 1.0
        edges = reduction.expand_edge_marginals(summary.mean, run.pairs / max(total, 1.0))
    plan = run.plan
    whole = run.engine.group_size == 1  # variances of groups say nothing about those of chains
    sweeps = run.statistics.num_sweeps  # after an interrupt fewer than were run
    return SampleResult(
        model=model,
        method=method,
        status=status,
        node_marginals=reduction.expand_node_marginals(summary.mean),
        edge_marginals=edges,
        log_z=None,
        stats={
            "num_chains": plan.num_chains, "num_sweeps": sweeps, "burn_in": plan.burn_in,
            "updates": (run.done + plan.burn_in) * run.engine.updates_per_sweep * plan.num_chains,
            "updates_per_second": run.updates_per_second(), "bias": plan.bias,
            **({} if edges is None else {"edge_marginals": run.how_pairs}),
        },
        provenance=provenance(model, seed=seed, device=run.engine.device, **options),
        std_error=std_error,
        ess=ess,
        r_hat=r_hat,
        states=reduction.expand_states(run.engine.get_states()),
        draws=reduction.expand_states(np.stack(run.draws, axis=1)) if run.draws else None,
        trace=[(t, reduction.expand_node_marginals(m)) for t, m in run.trace],
        chain_variances=run.statistics.chain_variances() if plan.num_chains > 1 and whole else None,
        reduction=reduction,
    )  # fmt: skip
