"""``sample()``: Gibbs and Swendsen-Wang sampling, planned, run and judged."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from fastmix._arrays import FloatArray, IntArray
from fastmix._checks import (
    as_array,
    as_list,
    as_path,
    check_accuracy,
    check_choice,
    check_count,
    check_positive,
    describe,
)
from fastmix._clock import NO_LIMIT, Clock, Report
from fastmix.chains.base import Chains, make_chains
from fastmix.chains.conditionals import check_conditionals
from fastmix.chains.cpu import CpuChains
from fastmix.chains.host import HostChains
from fastmix.errors import FormatError, Interrupted, NotConvergedError, UnfitMethodError
from fastmix.methods.base import DEFAULT_SECONDS, Context, Method, find_method, make_method, option, run_method
from fastmix.methods.diagnostics import assess_mixing, log_odds_swings, summarise
from fastmix.methods.sample_result import SampleResult
from fastmix.methods.sampling_run import SCHEDULES, Checkpoint, Plan, Run, Schedule, edge_averages, make_plan, promise
from fastmix.methods.starts import check_starts, dispersed_states, find_modes, remembered_sweeps, starts_matter
from fastmix.model import Evidence, MarkovRandomField
from fastmix.model.reduce import Reduction, certain_entries
from fastmix.results import Status

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = ["SAMPLERS", "Gibbs", "SampleResult", "SwendsenWang", "run_chains", "sample"]

SAMPLERS = ("gibbs", "swendsen-wang", "perfect")

_SHARED_CHAINS = 32  # that go to a worker together where they are swept side by side: fewer are slower each
_SWINGS_SHARE = 0.1  # of a time limit, for what neighbors can do to a variable, which standard errors ask for
_START_RULE = "be dispersed, random, configurations or a SampleResult"
_SCOUTED, _SCOUT_SHARE = 16, 0.1  # chains below which others look at the modes, and their share of a time limit


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
                object.__setattr__(self, name, check_count(name, value, least=least))
        asked = as_list("history_at", self.history_at, "a list of numbers of sweeps")
        noted = {check_count("history_at", sweeps, least=0) for sweeps in asked}
        if self.checkpoint is not None:
            object.__setattr__(self, "checkpoint", as_path("checkpoint", self.checkpoint))
        object.__setattr__(self, "history_at", tuple(sorted(noted)))
        seconds = check_positive("checkpoint_seconds", self.checkpoint_seconds, "number of seconds", or_zero=True)
        object.__setattr__(self, "checkpoint_seconds", seconds)
        check_choice("estimator", self.estimator, ("rao-blackwell", "counts"))
        if isinstance(self.start, str) and self.start not in ("dispersed", "random"):
            raise ValueError(f"start must {_START_RULE}, got {describe(self.start)}")

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
        if self.schedule is not None:
            check_choice("schedule", self.schedule, SCHEDULES)
        if self.accuracy is not None:
            object.__setattr__(self, "accuracy", check_accuracy(self.accuracy))
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
        text = promise(model, int(result.stats["burn_in"]), schedule, context.clock) if wanted else None
        return result if text is None else replace(result, stats={**result.stats, "guarantee": text})

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
    drops_forbidden: ClassVar[bool] = False  # clusters need equal state counts at both ends of an edge

    def check(self, model: MarkovRandomField) -> None:
        """The model must be attractive; the message names an edge that is in the way."""
        from fastmix.methods.swendsen_wang import normal_form

        normal_form(model)


def sample(
    model: MarkovRandomField,
    *,
    method: str | Method = "gibbs",
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
    """Marginals by Markov chain Monte Carlo, with standard errors and a verdict on mixing (see docs/sampling.md).

    Parameters
    ----------
    model : MarkovRandomField
        Any state counts. Forbidden pairs are fine as long as every conditional distribution is defined.
    method : {"gibbs", "swendsen-wang", "perfect"} or Method
        Updates of single variables, or of clusters (attractive Ising and Potts models only), or exact draws by coupling
        from the past, which take ``num_draws`` and ``max_sweeps`` (see :func:`fastmix.perfect_sample`). Options of
        another method are refused. A :class:`fastmix.Gibbs`, :class:`fastmix.SwendsenWang` or :class:`fastmix.Perfect`
        brings its options along: they are not given beside it.
    num_chains : int
        Independent chains; by default 64, fewer in models of more than 16,384 variables or with as many states, 4 at
        least.
    num_sweeps, burn_in : int
        Sweeps of every chain that are averaged, by default as many as a ``time_limit`` leaves room for, without one
        10,000; and sweeps before, by default a tenth of these, or of the time.
    accuracy : float, optional
        Instead of sweeps: every probability to be within this, with 95 % confidence for each (half the width of an
        interval, unlike the total variation distance of :func:`fastmix.certify`); refused for models without a
        certificate, which sets the burn-in. Half of it is for the bias that the burn-in leaves: what the certificate
        proves of that stands in ``bias_bound`` of the result, beside ``std_error``, which is of chance alone.
    schedule : {"systematic", "random", "random-burn-in"}
        A sweep updates every variable once, color by color (default), or n variables chosen at random;
        ``random-burn-in`` does so until the burn-in is over, and is the default with an ``accuracy`` that no other
        order is certified for.
    estimator : {"rao-blackwell", "counts"}
        Average the conditional probabilities of the updates, or the states themselves (of Swendsen-Wang only for edge
        marginals: nodes always have the probabilities that clusters draw from).
    edge_marginals : bool
        Average the conditional probabilities of either end of an edge beside the state of the other, or with the
        estimator ``counts`` the pairs of states, over about 1,000 configurations of every chain.
    num_draws, history_at : int and sequence of int
        How many configurations of every chain to keep, evenly spaced, and after which sweeps to note the running
        marginals.
    start : "dispersed", "random", int array (num_chains, n) or SampleResult
        ``dispersed`` starts half of the chains, 16 at most, from configurations of large weight, far from each other
        (:func:`fastmix.methods.starts.find_modes`), and the others at random. A result goes on where its chains ended,
        with fresh random numbers also under its own seed.
    backend : {"cpu", "cuda", "auto"}
        Where Gibbs sweeps run. ``cuda`` needs an NVIDIA GPU and the extra ``gpu``; ``auto`` takes the GPU where
        there is one that fits the run, and says in ``stats["backend"]`` what it took and why.
    evidence, seed, num_threads, progress
        See :func:`fastmix.infer`. The same seed gives the same bits whatever the number of threads; CPU and GPU draw
        different numbers.
    time_limit : float, optional
        Seconds, without those of compiling, after which what has been collected is returned; burning in takes half of
        them at most (but not with a checkpoint). Without it, and without ``num_sweeps``, ``accuracy`` or
        ``checkpoint``, 60 seconds.
    checkpoint : str, optional
        A file to which the run is saved every ``checkpoint_seconds``, and from which it goes on if it exists, with its
        seed when none is given; the answer is the same, bit by bit, as that of an uninterrupted run. A finished run
        stays in the file: remove it when what comes back is safe.
    executor : concurrent.futures.Executor, optional
        Shares the chains out among its workers, with the same bits: see :mod:`fastmix.executors`.

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
        On Ctrl-C: a KeyboardInterrupt whose ``result`` is what was collected, None before the first batch.

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
        "history_at": history_at, "start": start, "checkpoint": checkpoint, "checkpoint_seconds": checkpoint_seconds,
        "max_sweeps": max_sweeps,
    }  # fmt: skip
    find_method(method.name if isinstance(method, Method) else method, among=SAMPLERS)
    return run_method(
        make_method(method, options), model, evidence=evidence, edge_marginals=edge_marginals, seed=seed,
        num_threads=num_threads, backend=backend, time_limit=time_limit, progress=progress, executor=executor,
        certify=False,
    )  # fmt: skip


def run_chains(method: _Sampler, model: MarkovRandomField, context: Context) -> SampleResult:
    """Marginals of a reduced model by chains of a method."""
    clock, seed, backend = context.clock, context.seed, context.backend
    gibbs = isinstance(method, Gibbs)
    accuracy = getattr(method, "accuracy", None)
    start, estimator, edges = method.start, method.estimator, bool(context.edge_marginals)
    saved = None if method.checkpoint is None else Checkpoint(method.checkpoint, method.checkpoint_seconds)
    plan, schedule = make_plan(model, method, context)
    states, key_seed = None, seed
    if not isinstance(start, str):
        assert context.reduction is not None
        states = _start_states(context.reduction, start, plan.num_chains)
        if isinstance(start, SampleResult):  # going on with the same seed must not draw the same numbers again
            key_seed = int.from_bytes(hashlib.sha256(f"{seed} ".encode() + states.tobytes()).digest()[:8], "little")
    changes = schedule == "random-burn-in"
    first = schedule if not changes else "random" if plan.burn_in else "systematic"
    make = partial(_engine, model, method.name, plan.num_chains, context, estimator=estimator)
    engine, place = make(seed=key_seed, backend=backend, schedule=first)
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
    run = Run(model, engine, plan, method, edges, at_modes)
    if changes and plan.burn_in:
        # Other numbers than those of the burn-in; on the CPU, or the first engine would have refused.
        run.following = lambda: make(seed=(key_seed + 1) % 2**63, backend="cpu", schedule="systematic")[0]
    if clock.asked is not None and method.num_sweeps is None and accuracy is None and saved is None:
        run.fills_time, run.fills_burn_in = True, method.burn_in is None
    if saved is not None:
        begun = hashlib.sha256(states.tobytes()).hexdigest()
        key = f"{model.content_hash} {method.name} {plan} {schedule} {estimator} {run.num_draws} {run.history_at} "
        key += f"{key_seed} {edges} {begun}" + ("" if engine.device == "cpu" else " cuda")
        parts = saved.resume(key, seed)
        try:
            if parts is not None:
                run.restore(parts)
        except (LookupError, TypeError, ValueError):  # its sum is right, but this is not what was saved
            raise FormatError(f"{saved.path}: the checkpoint is damaged; remove the file to begin anew") from None
    scouted: list[tuple[IntArray, FloatArray, int]] = []
    swings = None
    try:
        if gibbs and run.averages and schedule != "random":
            swings = log_odds_swings(model, clock.part(_SWINGS_SHARE) if saved is None else NO_LIMIT)
        if 2 < plan.num_chains < _SCOUTED:
            scouted = _scout(model, method.name, plan, modes[len(at_modes) :], seed, clock)
        stopped_by = run.go(clock, saved)
    except KeyboardInterrupt:
        stopped_by = "interrupt"
    if run.statistics.num_batches == 0:
        if stopped_by == "interrupt":
            raise Interrupted("interrupted before there was anything to report")
        raise NotConvergedError(f"sampling stopped ({stopped_by}) before there was anything to report")
    memory = 1.0
    if run.plan.burn_in:
        own = (modes[: len(at_modes)], run.burn_sums / run.plan.burn_in, run.plan.burn_in)
        mean = run.statistics.sums.sum(axis=1) / (run.statistics.num_chains * run.statistics.num_sweeps)
        memory = max(remembered_sweeps(model, *burned, mean) for burned in (own, *scouted))
    stays = None
    if not gibbs:
        from fastmix.methods.swendsen_wang import lengths_of_stay

        stays = partial(lengths_of_stay, model)
    summary = summarise(run.statistics, model, swings=swings, memory=memory, stays=stays)
    status, note = Status.OK, "the certificate sets the burn-in and the number of chains"
    bias_bound = None
    if accuracy is None:
        few = gibbs and plan.num_chains < 3
        certified = few and promise(model, run.plan.burn_in, schedule, clock) is not None
        status, note = assess_mixing(summary, certified=certified, names=model.variable_names)
    elif stopped_by == "done" and run.plan.burn_in == plan.burn_in:
        stopped_by = "accuracy"
        assert plan.biases is not None
        bias_bound = np.where(certain_entries(model), 0.0, np.repeat(plan.biases, model.num_states))
    else:
        status, note = Status.NOT_MIXED, f"stopped after {run.plan.burn_in} of {plan.burn_in} certified sweeps"
    if stopped_by == "interrupt":
        status = Status.INTERRUPTED
    if isinstance(run.engine, HostChains) and run.engine.sharing is not None:
        place = f"cpu ({run.engine.sharing})"
    options = {"num_chains": plan.num_chains, "num_sweeps": run.plan.num_sweeps, "burn_in": run.plan.burn_in}
    stats: dict[str, Any] = {
        **options, "num_sweeps": run.statistics.num_sweeps,  # after an interrupt fewer than were run
        "updates": (run.done + run.plan.burn_in) * model.num_variables * plan.num_chains,
        "updates_per_second": run.updates_per_second(), "bias": plan.bias, "note": note, "stopped_by": stopped_by,
        "backend": place,
    }  # fmt: skip
    if edges:
        stats["edge_marginals"] = "conditional averages" if run.averages else "counts of pairs"
    whole = plan.num_chains > 1 and run.engine.group_size == 1  # variances of groups say nothing about those of chains
    return SampleResult(
        model=model,
        method=method.name,
        status=status,
        node_marginals=summary.mean,
        edge_marginals=edge_averages(model, run.pairs),
        log_z=None,
        stats=stats,
        provenance={"device": run.engine.device, "options": {**options, "schedule": schedule}},
        std_error=summary.std_error,
        bias_bound=bias_bound,
        ess=summary.ess,
        r_hat=summary.r_hat,
        states=run.engine.get_states(),
        draws=np.stack(run.draws, axis=1) if run.draws else None,
        history=run.history,
        chain_variances=run.statistics.chain_variances() if whole else None,
    )


def _scout(
    model: MarkovRandomField, method: str, plan: Plan, modes: IntArray, seed: int, clock: Clock
) -> list[tuple[IntArray, FloatArray, int]]:
    """Modes (K, n) that few chains have no room for, averages (E, K) of others that burn in from them, and sweeps."""
    if not len(modes) or not plan.burn_in:
        return []
    engine = _cpu_chains(model, method, len(modes), seed + 1)
    engine.set_states(modes)
    clock, done = clock.part(_SCOUT_SHARE), 0
    while done < plan.burn_in and not clock.past():
        count = min(max(1, plan.burn_in // 16), plan.burn_in - done)
        engine.sweep(count, collect=True)
        done += count
    return [(modes, engine.take_sums() / done, done)] if done else []


def _engine(
    model: MarkovRandomField, method: str, num_chains: int, context: Context, *, seed: int, backend: str, **options: Any
) -> tuple[Chains, str]:
    """The sampler, with its chains shared among the workers of a pool, and what it runs on in words."""

    def make_cuda() -> Chains:
        from fastmix.chains.cuda.chains import CudaChains
        from fastmix.chains.cuda.device import choose_group_size

        if options["schedule"] != "systematic":
            raise UnfitMethodError(
                "schedule must be systematic on the GPU, which makes no random updates; use backend='cpu'"
            )
        size = choose_group_size(model.structure, num_chains, forbidden=model.has_forbidden)
        chains = CudaChains(
            model.structure, num_chains=num_chains, seed=seed, estimator=options["estimator"], group_size=size,
            forbidden=model.has_forbidden,
        )  # fmt: skip
        chains.load(model.parameters)
        return chains

    make_cpu = partial(_cpu_chains, model, method, num_chains, seed, context.num_threads, **options)
    chains, place = make_chains("cpu" if method == "swendsen-wang" else backend, make_cpu, make_cuda)
    if context.pool is not None and isinstance(chains, HostChains):
        from fastmix.chains.sharing import Sharing

        kernel = chains.kernel if isinstance(chains, CpuChains) else None
        make = partial(_cpu_chains, model, method, kernel=kernel, **options)
        least = _SHARED_CHAINS if kernel in ("table", "field", "layers") else 1
        chains.share(Sharing(context.pool, make, num_chains, least=least, clock=context.clock))
    return chains, place


def _cpu_chains(
    model: MarkovRandomField, method: str, num_chains: int, seed: int = 0, num_threads: int = 1, **options: Any
) -> Chains:
    """Chains of a sampler, all of them or, for a worker, some; the options are those of :class:`CpuChains`."""
    if method == "swendsen-wang":
        from fastmix.methods.swendsen_wang import ClusterChains

        return ClusterChains(model, num_chains=num_chains, seed=seed, num_threads=num_threads)
    chains = CpuChains(
        model.structure, num_chains=num_chains, seed=seed, num_threads=num_threads, forbidden=model.has_forbidden,
        **options,
    )  # fmt: skip
    chains.load(model.parameters)
    return chains


def _start_states(reduction: Reduction, start: Any, num_chains: int) -> IntArray:
    """Given configurations as states of the reduced model."""
    model, original = reduction.model, reduction.original
    given = start.states if isinstance(start, SampleResult) else as_array("start", start, _START_RULE)
    if given.shape != (num_chains, original.num_variables):
        raise ValueError(f"start must have shape ({num_chains}, {original.num_variables}), got {given.shape}")
    given, _ = original._as_states(given)
    number = np.full(len(original.log_unary), -1, dtype=np.int64)
    number[reduction.unary_positions] = np.arange(len(model.log_unary))
    flat = number[original.unary_offsets[reduction.variables] + given[:, reduction.variables]]
    if (flat < 0).any() or (model.log_unary[flat] == -np.inf).any():  # cluster moves leave such states in
        raise ValueError("start must not hold states that are forbidden")
    states = flat - model.unary_offsets[:-1]
    if starts_matter(model) and (np.atleast_1d(model.log_weight(states)) == -np.inf).any():
        raise ValueError("start must not hold configurations that a factor forbids")
    return states
