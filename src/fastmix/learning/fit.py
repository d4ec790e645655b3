"""One fit with given penalties, on a given graph."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock, Ending
from fastmix.errors import ModelError
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.dataset import MISSING, Dataset, column_label
from fastmix.learning.independent import independent_parameters, moments_of_contrasts
from fastmix.learning.minimize import Search, minimize
from fastmix.learning.objective import Loss
from fastmix.learning.penalty import BallProjection, Penalty, table_norms
from fastmix.learning.problem import FitSize, Problem
from fastmix.learning.pseudo_likelihood import PseudoLikelihoodLoss
from fastmix.learning.result import LearnResult
from fastmix.learning.sampled import Sampled
from fastmix.learning.sampled_fit import SampledFit
from fastmix.learning.scaling import Scaling
from fastmix.learning.tuning import (
    DECIDED_RESIDUAL,
    HIDDEN_START_SPREAD,
    INFINITE_PARAMETER,
    MAX_ITERATIONS,
    MIN_TIMED_NORM_ENTRIES,
    NORM_TIME_SHARE,
    SECONDS_PER_NORM_ENTRY,
    SUSPECT_GROWTH,
    SUSPECT_PARAMETER,
    TOLERANCE,
)
from fastmix.model import MarkovRandomField
from fastmix.results import Status
from fastmix.theory import norms
from fastmix.theory.dependency import dependency_matrix

__all__ = ["Solution", "fit", "independent_fit", "model_norms", "validate"]


@dataclass
class Solution:
    """The optimum v of a fit, and what a :class:`LearnResult` says about it, as plain data for a checkpoint."""

    v: FloatArray
    moments: str
    stopped_by: str
    stats: dict[str, Any]
    mixed: bool = True
    value: float | None = None
    moment_error: float | None = None
    bias_bound: float | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    is_infinite: bool = False  # whether the optimum is, so that v is none

    @property
    def status(self) -> Status:
        """The verdict that follows from what ended the search, and from whether chains followed."""
        if self.stopped_by == "interrupt":
            return Status.INTERRUPTED
        if not self.mixed:
            return Status.NOT_MIXED
        is_there = self.stopped_by == "done" and not self.is_infinite
        return Status.OK if is_there else Status.NOT_CONVERGED

    def facts(self) -> dict[str, Any]:
        """All but v, as plain data, with the fields of results."""
        stopped_by = "done" if self.stopped_by == "max_iter" else self.stopped_by
        return {
            "moments": self.moments,
            "status": str(self.status),
            "value": self.value,
            "moment_error": self.moment_error,
            "bias_bound": self.bias_bound,
            "validation_log_likelihood": None,
            "history": self.history,
            "stats": {"stopped_by": stopped_by, **self.stats},
        }


def fit(
    problem: Problem, graph: IntArray, ridge: float, l1: float, start: MarkovRandomField | None = None
) -> LearnResult:
    """The fit with given penalties, begun at an earlier model if there is one; if the checkpoint has it, that.

    Ctrl-C and the end of the time give the best model so far.
    """
    known = problem.ledger.next_fit()
    problem = replace(problem, context=problem.context.within(f"fit {problem.ledger.number}"))
    data = problem.merged()
    if known is None:
        FitSize.of_graph(data.num_states, graph).check(problem)
    template = data.blank_model(graph)
    coordinates = Coordinates(template.structure)
    if known is None:
        penalty = Penalty(problem.penalty_scale * ridge, problem.penalty_scale * l1)
        solution = _solve(problem, template, coordinates, data, penalty, start)
        v = solution.v
        facts = solution.facts()
    else:
        v, facts = known
    model = template.with_parameters(coordinates.to_parameters(v))
    if l1:
        model = _without_empty_tables(model, coordinates, v)
    stats = facts["stats"]
    model_size = None
    with Ending() as ending:
        if known is None and stats["stopped_by"] != "interrupt":
            facts["validation_log_likelihood"] = validate(problem, model, data, stats)
            if stats["stopped_by"] == "done":
                problem.ledger.keep_fit(v, facts)
        model_size = model_norms(model, problem.context.clock)
    status = Status(facts["status"])
    if ending.interrupted or stats["stopped_by"] == "interrupt":  # the model is there
        status = Status.INTERRUPTED
        stats["stopped_by"] = "interrupt"
    if model_size is None:
        model_size = model_norms(model, problem.context.clock)
    result = LearnResult(
        model=model,
        objective=str(problem.objective),
        ridge=ridge,
        l1=l1,
        within=problem.within,
        norms=model_size,
        num_rows=problem.data.num_rows,
        **{**facts, "status": status},
    )
    problem.found.append(result)
    return result


def independent_fit(problem: Problem, ridge: float | str, l1: float | str) -> LearnResult:
    """The independent model with the marginals of the data, which is no fit: for when there is no time for one."""
    data = problem.data.with_hidden(problem.hidden)
    blank = data.blank_model()
    coordinates = Coordinates(blank.structure)
    v = coordinates.from_fields(independent_parameters(blank, data))
    return LearnResult(
        model=blank.with_parameters(coordinates.to_parameters(v)),
        objective=str(problem.objective),
        moments="none",
        status=Status.NOT_CONVERGED,
        value=None,
        ridge=0.0 if isinstance(ridge, str) else ridge,
        l1=0.0 if isinstance(l1, str) else l1,
        within=problem.within,
        norms={"spectral": 0.0, "inf": 0.0},
        moment_error=None,
        bias_bound=None,
        validation_log_likelihood=None,
        num_rows=problem.data.num_rows,
        stats={"stopped_by": "time_limit", "num_iterations": 0},
    )


def validate(problem: Problem, model: MarkovRandomField, data: Dataset, stats: dict[str, Any]) -> float | None:
    """How well a model fits the validation data, None where that is unknown; ``stats`` get what there is to say."""
    if problem.validation is None:
        return None
    rows = problem.validation.merged()[0]
    validation = problem.judged_by.validate(model, data, rows, problem.context, rough=problem.rough)
    stats |= validation.stats
    if validation.interrupted:
        stats["stopped_by"] = "interrupt"
    return validation.value


def model_norms(model: MarkovRandomField, clock: Clock = NO_LIMIT) -> dict[str, float]:
    """Norms of the dependency matrix of a model, ``spectral`` and ``inf``; NaN of a large one once the time is over."""
    num_entries = len(model.log_pairwise)
    if num_entries > MIN_TIMED_NORM_ENTRIES and clock.left() <= SECONDS_PER_NORM_ENTRY * num_entries:
        return {"spectral": math.nan, "inf": math.nan}
    matrix = dependency_matrix(model)
    return {"spectral": norms.matrix_norm(matrix, "spectral"), "inf": norms.matrix_norm(matrix, "inf")}


# -- the way to the optimum -------------------------------------------------------------------------------------------


def _solve(
    problem: Problem, template: MarkovRandomField, coordinates: Coordinates, data: Dataset, penalty: Penalty,
    start: MarkovRandomField | None,
) -> Solution:  # fmt: skip
    """The optimum, from an earlier model or the independent one on."""
    means, variances = moments_of_contrasts(coordinates, data)
    if penalty.ridge == 0.0:
        has_pairs = problem.within is None and not penalty.l1
        _check_seen(data, template.edges, problem.hidden, pairs=has_pairs)
    alike: Literal["all", "edges", "entries"] = "edges" if penalty.l1 else "entries"
    if problem.within is not None:
        alike = "all"
    scaling = Scaling.of(coordinates, means, variances, alike)
    if problem.within is not None:
        penalty = replace(penalty, ball=BallProjection(template, problem.within, scaling))
    v = _first_point(problem, template, coordinates, data, start)
    if problem.validation is not None and problem.validation.has_missing:
        problem.judged_by.check_validation(coordinates, problem.validation.merged()[0])
    loss = problem.objective.start(coordinates, data, problem.context)

    history: list[dict[str, Any]] = []
    report = partial(_report, problem, template, coordinates, history)
    if loss is None:
        fit_of_chains = SampledFit(problem, template, data, scaling, penalty, history, report)
        solution = _of_chains(fit_of_chains.run(v, anew=start is None), fit_of_chains.place, history)
    else:
        search = minimize(
            loss,
            v,
            scaling,
            penalty,
            tol=TOLERANCE if problem.tol is None else problem.tol,
            max_iter=problem.max_iter or MAX_ITERATIONS,
            clock=problem.context.clock,
            report=report,
        )
        solution = _of_search(search, loss.method, history)
    is_free = penalty.ridge == 0.0 and penalty.is_smooth
    if is_free and solution.status is Status.OK:
        solution.is_infinite = _is_infinite(problem, loss, data, solution.v, scaling)
    return solution


def _of_search(search: Search, moments: str, history: list[dict[str, Any]]) -> Solution:
    """What an exact minimization has found."""
    stats = {"num_iterations": search.num_iterations, "gradient_norm": search.gradient_norm}
    return Solution(
        search.v,
        moments,
        search.stopped_by,
        stats,
        value=search.value,
        moment_error=search.moment_error,
        history=history,
    )


def _of_chains(answer: Sampled, place: str, history: list[dict[str, Any]]) -> Solution:
    """What chains have found."""
    return Solution(
        answer.v,
        "sampled" if answer.num_rungs == 1 else "tempered",
        answer.stopped_by,
        {**answer.stats(), "backend": place},
        answer.mixed,
        moment_error=answer.moment_error,
        bias_bound=answer.bias_bound,
        history=history,
    )


def _report(
    problem: Problem, template: MarkovRandomField, coordinates: Coordinates, history: list[dict[str, Any]],
    entry: dict[str, Any], v: FloatArray,
) -> None:  # fmt: skip
    """Note an iteration in the history, with the norms of the model after 1, 4, 16, .. of them, and tell the user.

    Norms of every model would take longer than small exact steps, and a good part of a sampled round.
    """
    clock = problem.context.clock
    k = entry["iteration"]
    is_power_of_four = k & (k - 1) == 0 and k % 3 == 1
    size = None
    if is_power_of_four and not clock.past(NORM_TIME_SHARE):
        size = model_norms(template.with_parameters(coordinates.to_parameters(v)))
    history.append({**entry, "norms": size, "seconds": clock.seconds()})
    shown = {name: entry[name] for name in ("value", "moment_error", "gap") if entry.get(name) is not None}
    clock.report(k, None, "rounds" if "gap" in entry else "iterations", details=shown)


def _first_point(
    problem: Problem, template: MarkovRandomField, coordinates: Coordinates, data: Dataset,
    start: MarkovRandomField | None,
) -> FloatArray:  # fmt: skip
    """Where to begin: an earlier model on the same graph, else the independent one."""
    if start is not None:  # an l1 term may have removed some of its edges
        own = Coordinates(start.structure)
        v, _ = own.from_parameters(start.parameters)
        return coordinates.gather(v[: own.num_contrasts], own.matrix(v))
    v = coordinates.from_fields(independent_parameters(template, data))
    if problem.hidden:  # hidden variables must differ from each other to become different
        rng = problem.context.rng("hidden variables")
        num_tables = coordinates.size - coordinates.num_contrasts
        v[coordinates.num_contrasts :] = HIDDEN_START_SPREAD * rng.standard_normal(num_tables)
    return v


def _without_empty_tables(model: MarkovRandomField, coordinates: Coordinates, v: FloatArray) -> MarkovRandomField:
    """The model without the edges whose tables the l1 term made 0."""
    kept = table_norms(coordinates, v) > 0.0
    entries = np.repeat(kept, np.diff(model.pairwise_offsets))
    return MarkovRandomField(
        model.num_states,
        model.log_unary,
        model.edges[kept],
        model.log_pairwise[entries],
        variable_names=model.variable_names,
        state_names=model.state_names,
    )


# -- optima at infinity -----------------------------------------------------------------------------------------------


def _check_seen(data: Dataset, graph: IntArray, hidden: int, *, pairs: bool) -> None:
    """A :class:`ModelError` where a state, or a pair on an edge, never occurs and nothing keeps it finite."""
    instead = "so without a penalty its parameter is infinite: give a positive ridge"
    names = data.variable_names
    visible = len(data.num_states) - hidden
    for i, count in enumerate(data.num_states[:visible].tolist()):
        seen = data.states[data.states[:, i] != MISSING, i]
        counts = np.bincount(seen, minlength=count)
        if (counts == 0).any():
            state = int(np.flatnonzero(counts == 0)[0])
            label = column_label(names, i)
            raise ModelError(f"state {state} of {label} never occurs, {instead}, or leave the column out")
    if not pairs or data.has_missing:
        return
    for i, j in graph.tolist():
        rows = int(data.num_states[i])
        cols = int(data.num_states[j])
        joint = data.states[:, i] * np.int64(cols) + data.states[:, j]
        counts = np.bincount(joint, minlength=rows * cols)
        if (counts == 0).any():
            a, b = divmod(int(np.flatnonzero(counts == 0)[0]), cols)
            where = f"state {a} of {column_label(names, i)} and state {b} of {column_label(names, j)}"
            raise ModelError(f"{where} never occur together, {instead}")


def _is_infinite(problem: Problem, loss: Loss | None, data: Dataset, v: FloatArray, scaling: Scaling) -> bool:
    """Whether the optimum of an objective without penalties is at infinity, as far as v shows: states decide others.

    Parameters are large, and the others of every row tell the state of a variable: no finite optimum of the
    pseudo-likelihood is like that, and hardly one of the likelihood. Where values are missing, large parameters grow
    with a hundredth of the tolerance, if it does not happen to be met already.
    """
    coordinates = scaling.coordinates
    largest = float(np.abs(v).max(initial=0.0))
    if largest < SUSPECT_PARAMETER or largest > INFINITE_PARAMETER:
        return largest > INFINITE_PARAMETER
    if not problem.hidden and not data.has_missing:
        _, residuals = PseudoLikelihoodLoss(coordinates, data).rows(v)
        first = coordinates.starts[:-1][np.diff(coordinates.starts) > 0]
        squares = np.add.reduceat(residuals**2, first, axis=1)
        return bool((squares.max(axis=0) < DECIDED_RESIDUAL**2).any())
    if loss is None:
        return False
    later = minimize(
        loss,
        v,
        scaling,
        Penalty(),
        tol=1e-2 * (problem.tol or TOLERANCE),
        max_iter=MAX_ITERATIONS,
        clock=problem.context.clock,
    )
    return float(np.abs(later.v - v).max()) > SUSPECT_GROWTH
