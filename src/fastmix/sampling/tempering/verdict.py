"""The answer of a run of replica exchange: marginals with errors, what is known of log Z, and whether to believe it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._student import student_quantile
from fastmix.model import MarkovRandomField
from fastmix.model.reduce import certain_entries
from fastmix.results import LogZKind, Status
from fastmix.sampling.diagnostics import Summary, summarize
from fastmix.sampling.runs import edge_averages
from fastmix.sampling.tempering.phases import outweighing, proven_bound
from fastmix.sampling.tempering.results import TemperedResult
from fastmix.sampling.tempering.run import LadderRun
from fastmix.sampling.tempering.rung_draws import collect_rung_draws
from fastmix.sampling.tuning import LOG_Z_SIGMAS, MAX_LADDER_R_HAT, MIN_TRIPS, SHOWN_STATES

__all__ = ["judge_run"]

_THREE_SIGMA = 0.9986501019683699  # probability below three standard deviations of a normal distribution


@dataclass(frozen=True)
class _LogZ:
    """Knowledge about log Z: an estimate, and a lower bound."""

    estimate: float | None
    std_error: float
    lower: float | None  # a lower bound
    confidence: float | None  # with which the lower bound holds

    @property
    def kind(self) -> LogZKind:
        """The kind of log Z, as a result names it."""
        if self.estimate is not None:
            return "estimate"
        return "unknown" if self.lower is None else "bound"


@dataclass(frozen=True)
class _Verdict:
    """The status of a run, why, and whether its log Z is to be believed."""

    status: Status
    note: str
    believes_log_z: bool


def judge_run(
    model: MarkovRandomField, run: LadderRun, bound: float | None, stats: dict[str, Any], origin: dict[str, Any]
) -> TemperedResult:
    """The result about the reduced model, with the verdict on it.

    ``bound`` is a lower bound on the log-ratio of the normalizers of the two ends of the path, None without any;
    ``stats`` and ``origin`` (the provenance) are what is known before.
    """
    ladder = run.ladder
    exchanges = ladder.chains.exchanges()
    trips = exchanges.trips.reshape(run.num_ensembles, -1).sum(axis=1)
    overlooked = 1.0 / (float(trips.sum()) + 1.0)
    summary = summarize(run.statistics, model)
    log_z = _estimate_log_z(run, bound, overlooked)
    verdict = _judge(run, summary, trips, log_z)
    if not verdict.believes_log_z:
        log_z = _proven_alone(run, log_z)
    status = Status.INTERRUPTED if stats["stopped_by"] == "interrupt" else verdict.status
    stats = {
        **stats,
        "num_ensembles": run.num_ensembles,
        "num_ladders": ladder.num_ladders,
        "num_replicas": ladder.num_rungs,
        "num_sweeps": run.statistics.num_sweeps,
        "burn_in": run.burned,
        "barrier": float(exchanges.rejection.sum()),
        "num_round_trips": int(trips.sum()),
        "num_updates": run.updates,
        "updates_per_second": run.updates_per_second(),
        "note": verdict.note,
    }
    states = run.all_draws()
    kept = None
    if run.plan.measures and states is not None and states.shape[2]:
        kept = collect_rung_draws(run, states)
    highest = states if states is None else states[-1 if kept is None else kept.coldest]
    return TemperedResult(
        model=model,
        method="tempered",
        status=status,
        node_marginals=summary.mean,
        edge_marginals=edge_averages(model, run.pairs),
        log_z=log_z.estimate,
        stats=stats,
        provenance=origin,
        std_error=_std_error(model, run, summary, overlooked),
        ess=summary.ess,
        r_hat=summary.r_hat,
        log_z_kind=log_z.kind,
        log_z_std_error=None if log_z.estimate is None else log_z.std_error,
        log_z_lower=log_z.lower,
        log_z_confidence=log_z.confidence,
        positions=ladder.positions,
        rejection=exchanges.rejection,
        round_trips=trips,
        states=ladder.chains.get_top_states(),
        draws=highest,
        rung_draws=kept,
    )


def _std_error(model: MarkovRandomField, run: LadderRun, summary: Summary, overlooked: float) -> FloatArray:
    """Standard errors of all probabilities, (entries of log_unary,).

    Few ensembles can agree by chance: batches of sweeps and long parts of them, as in Gibbs sampling, are many more.
    """
    of_batches = np.where(np.isfinite(summary.std_error), summary.std_error, 0.0)
    error = np.hypot(np.maximum(run.spread(), of_batches), overlooked)
    error[certain_entries(model)] = 0.0
    return np.asarray(error)


def _estimate_log_z(run: LadderRun, bound: float | None, overlooked: float) -> _LogZ:
    """Log Z from the ratio of the two ends of the path, if it is known at the start of it."""
    ratio, ratio_error = run.log_z()
    start = run.ladder.path.log_z
    if not math.isfinite(ratio):  # some rungs have not been compared yet
        start = None
    # Enlarged for few ensembles: three of these errors cover as much as three of many.
    enlarged = ratio_error * student_quantile(run.num_ensembles - 1, _THREE_SIGMA) / 3.0
    std_error = math.hypot(enlarged, overlooked)
    if start is None:
        return _LogZ(None, std_error, None, None)
    if bound is None:
        return _LogZ(start + ratio, std_error, None, None)
    return _LogZ(start + ratio, std_error, start + bound, run.plan.confidence)


def _proven_alone(run: LadderRun, log_z: _LogZ) -> _LogZ:
    """Knowledge about log Z that is proven, without the estimate: ensembles that have not mixed agree on any number."""
    proven = None if run.ladder.path.log_z is None else proven_bound(run.ladder.path, run.phases)
    if proven is not None and (log_z.lower is None or proven >= log_z.lower):
        return _LogZ(None, log_z.std_error, proven, 1.0)
    return replace(log_z, estimate=None)


def _judge(run: LadderRun, summary: Summary, trips: IntArray, log_z: _LogZ) -> _Verdict:
    """The verdict: whether there were enough round trips and nothing speaks against the answer.

    Log Z may also be believed after few round trips, if every ensemble made one: then their spread covers the error.
    """
    mean = float(trips.mean())
    whose = "an ensemble"
    if run.ladder.device != "cpu":
        # Many ladders make many trips together: what counts is whether each of them has forgotten its start.
        mean = mean / run.ladder.per_ensemble
        whose = "a ladder"
    made = f"{mean:.3g} round trips {whose} on average"
    doubt = _doubt(run, summary, made, log_z)
    if mean < MIN_TRIPS:
        # Without variables, or parameters, there is nothing to travel for.
        models_are_alike = not run.ladder.path.thetas.any()
        believes_log_z = doubt is None and (models_are_alike or bool((trips > 0).all()))
        note = f"Not mixed: {made}, fewer than {MIN_TRIPS:g}; run longer."
        return _Verdict(Status.NOT_MIXED, note, believes_log_z)
    if doubt is not None:
        return _Verdict(Status.NOT_MIXED, f"Not mixed: {doubt}.", believes_log_z=False)
    return _Verdict(Status.OK, f"{made}; the ensembles agree.", believes_log_z=True)


def _doubt(run: LadderRun, summary: Summary, made: str, log_z: _LogZ) -> str | None:
    """The reason to doubt the answer, whatever the number of round trips (``made``); None if there is none."""
    worst = float(summary.r_hat.max(initial=0.0))
    if worst > MAX_LADDER_R_HAT:
        name = run.ladder.path.model.names_of_variables()[int(summary.r_hat.argmax())]
        found = f"R-hat over the ensembles is {worst:.4g} for variable {name}, above {MAX_LADDER_R_HAT:g}"
        return f"{found}, in spite of {made}; run longer"
    if log_z.estimate is None:
        return None
    margin = LOG_Z_SIGMAS * log_z.std_error
    estimate = f"log Z is estimated at {log_z.estimate:.6g} with a standard error of {log_z.std_error:.2g}"
    way_out = "run longer, or with more replicas"
    outweighed = outweighing(run.ladder.path, run.phases, log_z.estimate, margin)
    if outweighed is not None:
        phase, bound = outweighed
        mode = " ".join(str(state) for state in phase.mode[:SHOWN_STATES].tolist())
        if len(phase.mode) > SHOWN_STATES:
            mode += " ..."
        found = f"configurations around {mode}, of log-weight {phase.log_weight:.6g}, show that it is at least"
        return f"{estimate}, but {found} {bound:.6g}; {way_out}"
    if log_z.lower is not None and log_z.lower > log_z.estimate + margin:
        return f"{estimate}, below the bound {log_z.lower:.6g} from annealing; {way_out}"
    return None
