"""``run_chains()``: Gibbs or Swendsen-Wang sampling of one model, from the start of its chains to the verdict."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._checks import as_array
from fastmix._clock import Ending
from fastmix._context import Context
from fastmix.chains.host import HostChains
from fastmix.model import MarkovRandomField
from fastmix.model.reduce import certain_entries
from fastmix.modes.descents import find_modes
from fastmix.results import Status
from fastmix.sampling.diagnostics import Summary, assess_mixing, log_odds_swings, summarize
from fastmix.sampling.engines import ChainMaker, cpu_chains
from fastmix.sampling.plans import ChainPlan, Schedule, make_plan, promise
from fastmix.sampling.results import SampleResult
from fastmix.sampling.runs import ChainRun, edge_averages
from fastmix.sampling.starts import dispersed_states, remembered_sweeps, starts_matter
from fastmix.sampling.tuning import (
    MIN_AGREEING_CHAINS,
    MODES_SHARE,
    SCOUT_CHAINS,
    SCOUT_SHARE,
    STARTS_SHARE,
    SWINGS_SHARE,
)

if TYPE_CHECKING:
    from fastmix.sampling.sample import ChainSampler

__all__ = ["START_RULE", "run_chains"]

START_RULE = "be dispersed, random, configurations or a SampleResult"


def run_chains(method: ChainSampler, model: MarkovRandomField, context: Context) -> SampleResult:
    """Marginals of a reduced model by chains of a method, with a verdict on their mixing.

    1. Plan how many chains and sweeps there are.
    2. Make the chains and put them where they start, or where a checkpoint left them.
    3. Sweep until the plan is done, or the time is over.
    4. Estimate errors and judge whether the chains have mixed.
    """
    clock = context.clock

    # 1. Plan.
    plan, schedule = make_plan(model, method, context)

    # 2. Start.
    maker = ChainMaker(model, plan.num_chains, method.moves_clusters, method.estimator, context)
    run, place, starts = _start_run(method, maker, plan, schedule)

    # 3. Sweep. What neighbors can do to a variable, and chains at further modes, is known before, for the errors.
    averages_in_order = run.averages_conditionals and schedule != "random"
    has_room_for_scouts = MIN_AGREEING_CHAINS <= plan.num_chains < SCOUT_CHAINS
    swings: FloatArray | None = None
    scouts: _BurnIn | None = None
    stopped_by = ""
    with Ending() as ending:
        if averages_in_order and not method.moves_clusters:
            swings = log_odds_swings(model, context.deciding_clock().part(SWINGS_SHARE))
        if has_room_for_scouts:
            left_out = starts.modes[len(starts.mode_groups) :]
            scouts = _burn_in_from(left_out, method, model, plan, context)
        stopped_by = run.go(clock, context.checkpoint)
    if ending.interrupted:
        stopped_by = "interrupt"
    if run.statistics.num_batches == 0:
        context.raise_nothing(stopped_by)

    # 4. Judge.
    stays = None
    if method.moves_clusters:
        from fastmix.sampling.clusters import lengths_of_stay

        stays = partial(lengths_of_stay, model)
    memory = _memory(run, starts, scouts)
    summary = summarize(run.statistics, model, swings=swings, memory=memory, stays=stays)
    verdict = _judge(method, run, plan, schedule, summary, stopped_by, context)
    return _result(method, run, plan, schedule, summary, verdict, place)


@dataclass(frozen=True, eq=False)
class _Starts:
    """Configurations that chains start from, and those of large weight ("modes") among them."""

    states: IntArray  # (num_chains, n)
    modes: IntArray  # (K, n), all that were found
    mode_groups: IntArray  # the groups of chains that start at the first of them, one each


@dataclass(frozen=True, eq=False)
class _BurnIn:
    """Averages of chains that started at modes, over their burn-in."""

    modes: IntArray  # (K, n)
    averages: FloatArray  # (E, K), of every chain over its sweeps
    num_sweeps: int


@dataclass(frozen=True)
class _Verdict:
    """The status of a run, and why."""

    status: Status
    note: str
    stopped_by: str
    bias_bound: FloatArray | None = None  # aligned with ``log_unary``, where an accuracy was reached


def _start_run(
    method: ChainSampler, maker: ChainMaker, plan: ChainPlan, schedule: Schedule
) -> tuple[ChainRun, str, _Starts]:
    """The run before its first sweep, or where a checkpoint left it; what it runs on; and where its chains start."""
    context = maker.context
    model = maker.model
    edges = bool(context.edge_marginals)
    changes_order = schedule == "random-burn-in"

    # Going on with the same seed must not draw the same numbers again: states that are gone on from name the stream.
    given = _given_states(method, plan, context)
    stream: tuple[str, ...] = ("chains",)
    if given is not None and isinstance(method.start, SampleResult):
        stream = ("chains", _digest(given))

    first_order: str = schedule
    if changes_order:
        first_order = "random" if plan.burn_in else "systematic"
    engine, place = maker.make(context.seed_of(*stream), backend=context.backend, schedule=first_order)
    if given is None:
        starts = _find_starts(method, model, plan, engine.group_size, context)
    else:
        starts = _Starts(given, _no_states(model), np.zeros(0, dtype=np.int64))
    engine.set_states(starts.states)

    run = ChainRun(model, engine, plan, method, edges, starts.mode_groups)
    if changes_order and plan.burn_in:
        # On the CPU: a GPU would have refused the random updates of the burn-in.
        seed = context.seed_of("after the burn-in", *stream)
        run.following = lambda: maker.make(seed, backend="cpu", schedule="systematic")[0]
    sweeps_are_free = method.num_sweeps is None and method.asked_accuracy is None
    if context.clock.asked is not None and sweeps_are_free and context.checkpoint is None:
        run.fills_time = True
        run.fills_burn_in = method.burn_in is None
    if context.checkpoint is not None:
        key = f"{model.content_hash} {method.name} {plan} {schedule} {method.estimator} {run.num_draws} "
        key += f"{run.history_at} {stream} {edges} {_digest(starts.states)}"
        if engine.device != "cpu":
            key += " cuda"
        context.checkpoint.restore(key, context.seed, run.restore)
    return run, place, starts


def _find_starts(
    method: ChainSampler, model: MarkovRandomField, plan: ChainPlan, group_size: int, context: Context
) -> _Starts:
    """Starts at random and, where chains are to be dispersed, at modes.

    Chains that are added up together start together: one at a mode would be lost among the others.
    """
    modes = _no_states(model)
    if method.start == "dispersed" and method.asked_accuracy is None and plan.num_chains > 1:
        modes = find_modes(model, rng=context.rng("modes"), clock=context.deciding_clock().part(MODES_SHARE))
    limited = context.deciding_clock().part(STARTS_SHARE)
    num_groups = plan.num_chains // group_size
    states, mode_groups = dispersed_states(model, num_groups, modes, context.rng("starts"), limited)
    return _Starts(np.repeat(states, group_size, axis=0), modes, mode_groups)


def _given_states(method: ChainSampler, plan: ChainPlan, context: Context) -> IntArray | None:
    """Configurations that the user gave to start from, as states of the reduced model; None where none were given."""
    start = method.start
    if isinstance(start, str):
        return None
    reduction = context.reduction
    assert reduction is not None
    model = reduction.model
    original = reduction.original
    given = start.states if isinstance(start, SampleResult) else as_array("start", start, START_RULE)
    if given.shape != (plan.num_chains, original.num_variables):
        raise ValueError(f"start must have shape ({plan.num_chains}, {original.num_variables}), got {given.shape}")
    given, _ = original._as_states(given)

    # Entries of the original unaries, numbered as in the reduced model; -1 for those that it does not have.
    number = np.full(len(original.log_unary), -1, dtype=np.int64)
    number[reduction.unary_positions] = np.arange(len(model.log_unary))
    entries = number[original.unary_offsets[reduction.variables] + given[:, reduction.variables]]
    # Models for cluster moves keep the states that a unary forbids.
    if (entries < 0).any() or (model.log_unary[entries] == -np.inf).any():
        raise ValueError("start must not hold states that are forbidden")
    states: IntArray = entries - model.unary_offsets[:-1]
    if starts_matter(model) and (np.atleast_1d(model.log_weight(states)) == -np.inf).any():
        raise ValueError("start must not hold configurations that a factor forbids")
    return states


def _burn_in_from(
    modes: IntArray, method: ChainSampler, model: MarkovRandomField, plan: ChainPlan, context: Context
) -> _BurnIn | None:
    """Chains ("scouts") that burn in from modes for which the run has no chains; None without such modes, or time."""
    if not len(modes) or not plan.burn_in:
        return None
    engine = cpu_chains(model, method.moves_clusters, len(modes), context.seed_of("scouts"))
    engine.set_states(modes)
    clock = context.clock.part(SCOUT_SHARE)
    done = 0
    step = 1  # sweeps between looks at the clock
    while done < plan.burn_in and not clock.past():
        begin = clock.used()
        count = min(step, plan.burn_in - done)
        engine.sweep(count, collect=True)
        done += count
        is_slow = clock.used() - begin > engine.step_seconds
        step = max(1, step // 2) if is_slow else 2 * step
    if not done:
        return None
    return _BurnIn(modes, engine.take_sums() / done, done)


def _memory(run: ChainRun, starts: _Starts, scouts: _BurnIn | None) -> float:
    """Sweeps for which chains that burned in from modes remembered these, the largest of all; 1 without a burn-in."""
    burn_in = run.plan.burn_in
    if not burn_in:
        return 1.0
    own = _BurnIn(starts.modes[: len(starts.mode_groups)], run.burn_sums / burn_in, burn_in)
    statistics = run.statistics
    mean = statistics.sums.sum(axis=1) / (statistics.num_chains * statistics.num_sweeps)
    return max(
        remembered_sweeps(run.model, seen.modes, seen.averages, seen.num_sweeps, mean)
        for seen in (own, scouts)
        if seen is not None
    )


def _judge(
    method: ChainSampler,
    run: ChainRun,
    plan: ChainPlan,
    schedule: Schedule,
    summary: Summary,
    stopped_by: str,
    context: Context,
) -> _Verdict:
    """The verdict on a run: by what its chains show, or by the certificate that set its numbers."""
    model = run.model
    bias_bound: FloatArray | None = None
    if method.asked_accuracy is None:
        # A certificate vouches for chains that are too few to vouch for each other; it is looked for where nothing else
        # stands against them.
        status, note = assess_mixing(summary, certified=True, names=model.variable_names)
        if status is Status.OK and plan.num_chains < MIN_AGREEING_CHAINS:
            vouched = not method.moves_clusters and promise(model, run.plan.burn_in, schedule, context.clock)
            status, note = assess_mixing(summary, certified=bool(vouched), names=model.variable_names)
    elif stopped_by == "done" and run.plan.burn_in == plan.burn_in:
        assert plan.biases is not None
        stopped_by = "accuracy"
        status = Status.OK
        note = "the certificate sets the burn-in and the number of chains"
        bias_bound = np.where(certain_entries(model), 0.0, np.repeat(plan.biases, model.num_states))
    else:
        status = Status.NOT_MIXED
        note = f"stopped after {run.plan.burn_in} of {plan.burn_in} certified sweeps"
    if stopped_by == "interrupt":
        status = Status.INTERRUPTED
    return _Verdict(status, note, stopped_by, bias_bound)


def _result(
    method: ChainSampler,
    run: ChainRun,
    plan: ChainPlan,
    schedule: Schedule,
    summary: Summary,
    verdict: _Verdict,
    place: str,
) -> SampleResult:
    """The result about the reduced model."""
    model = run.model
    if isinstance(run.engine, HostChains) and run.engine.sharing is not None:
        place = f"cpu ({run.engine.sharing})"
    options = {"num_chains": plan.num_chains, "num_sweeps": run.plan.num_sweeps, "burn_in": run.plan.burn_in}
    stats: dict[str, Any] = {
        **options,
        "num_sweeps": run.statistics.num_sweeps,  # after an interrupt fewer than were run
        "num_updates": (run.done + run.plan.burn_in) * model.num_variables * plan.num_chains,
        "updates_per_second": run.updates_per_second(),
        "bias": plan.bias,
        "note": verdict.note,
        "stopped_by": verdict.stopped_by,
        "backend": place,
    }
    if run.pairs is not None:
        stats["edge_marginals"] = "conditional averages" if run.averages_conditionals else "counts of pairs"
    # Variances of groups of chains say nothing about those of single chains.
    has_variances = plan.num_chains > 1 and run.engine.group_size == 1
    return SampleResult(
        model=model,
        method=method.name,
        status=verdict.status,
        node_marginals=summary.mean,
        edge_marginals=edge_averages(model, run.pairs),
        stats=stats,
        provenance={"device": run.engine.device, "options": {**options, "schedule": schedule}},
        std_error=summary.std_error,
        bias_bound=verdict.bias_bound,
        ess=summary.ess,
        r_hat=summary.r_hat,
        states=run.engine.get_states(),
        draws=np.stack(run.draws, axis=1) if run.draws else None,
        history=[{"sweep": sweep, "marginals": marginals} for sweep, marginals in run.history],
        chain_variances=run.statistics.chain_variances() if has_variances else None,
    )


def _no_states(model: MarkovRandomField) -> IntArray:
    """No configurations: an array (0, n)."""
    return np.zeros((0, model.num_variables), dtype=np.int64)


def _digest(states: IntArray) -> str:
    """A name for configurations that no others have."""
    return hashlib.sha256(states.tobytes()).hexdigest()
