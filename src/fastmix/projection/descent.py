"""Projection in a divergence: gradient steps, each followed by the Euclidean projection."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fastmix._clock import Clock, OutOfTimeError
from fastmix.errors import NotConvergedError
from fastmix.model import MarkovRandomField
from fastmix.model.reduce import Reduction, reduce_model
from fastmix.projection.divergence import Divergence
from fastmix.projection.euclidean import project_euclidean
from fastmix.projection.euclidean_solvers import symmetric
from fastmix.projection.feasible import FeasibleSet
from fastmix.projection.paper_dual import PaperDual
from fastmix.projection.result import ProjectionResult
from fastmix.projection.steps import StepRule, Trace
from fastmix.results import Status, provenance
from fastmix.theory.dependency import edge_dependencies
from fastmix.theory.norms import Norm, matrix_norm

__all__ = ["project_divergence"]

FloatArray = NDArray[np.float64]

_STATUS = {"time_limit": Status.TIME_LIMIT, "interrupted": Status.INTERRUPTED}
_STOPPED_BY = {"time_limit": "time_limit", "interrupted": "interrupt"}


def project_divergence(
    model: MarkovRandomField,
    *,
    divergence: Divergence,
    step: StepRule,
    norm_bound: float,
    norm: Norm,
    bound: Literal["range", "linf"],
    solver: Literal["fast"] | PaperDual,
    tol: float,
    max_iter: int,
    warm_start: ProjectionResult | FloatArray | None,
    seed: int,
    clock: Clock,
) -> ProjectionResult:
    """The closest model in a divergence, see :func:`fastmix.project`; the arguments are checked there."""
    reduction = reduce_model(model)
    small = reduction.model
    options: dict[str, Any] = {"norm_bound": norm_bound, "norm": norm, "bound": bound, "tol": tol}
    options |= {"solver": str(solver), "divergence": repr(divergence), "step": repr(step)}
    settings: dict[str, Any] = {"norm_bound": norm_bound, "norm": norm, "bound": bound, "solver": solver}
    settings |= {"tol": tol, "max_iter": max_iter}
    trace = Trace(clock=clock)
    # Half of the time for the start, if it takes as long.
    nearest = project_euclidean(small, warm_start=warm_start, clock=clock.part(0.5), **settings)

    def build(theta: MarkovRandomField, value: float, constant: float, counts: dict[str, Any]) -> ProjectionResult:
        result = _expand(reduction, theta)
        z = edge_dependencies(result, bound=bound).max(axis=1, initial=0.0)
        unchanged = result is model
        stopped_by = _STOPPED_BY.get(trace.reason, "done")
        stats = {"stopped": trace.reason, "stopped_by": stopped_by, **counts, **clock.stats()}
        place = str(counts.get("backend", "cpu"))
        device = "cpu" if place.startswith("cpu") else place.removeprefix("cuda (").removesuffix(")")
        return ProjectionResult(
            model=result,
            status=_STATUS.get(trace.reason, Status.OK),
            norm=norm,
            bound=bound,
            norm_before=nearest.norm_before,
            norm_after=matrix_norm(symmetric(small.edges, z, small.num_variables), norm),
            norm_bound=float(norm_bound),
            squared_distance=float(np.sum((theta.log_pairwise - small.log_pairwise) ** 2)),
            duality_gap=0.0 if unchanged else math.inf,
            multipliers=nearest.multipliers,
            dependencies=z,
            divergence=divergence,
            divergence_value=value + constant,
            seed=seed,
            history=[(k, v + constant, -math.inf) for k, v in enumerate(trace.values)],
            stats=stats,
            solver_state=nearest.solver_state,
            provenance=provenance(model, seed=seed, device=device, **options),
        )

    if nearest.norm_before <= norm_bound:
        return build(small, 0.0, 0.0, {"num_steps": 0, "num_projections": 0, "num_inexact": 0})
    feasible = FeasibleSet(small, nearest=nearest, clock=clock, **settings)
    if clock.left() < divergence.least_seconds(small):
        trace.reason = "time_limit"
        counts = {"num_steps": 0, "num_projections": 0, "num_inexact": 0}
        return build(feasible.settle(nearest.model), math.nan, 0.0, counts)
    objective = divergence.start(small, seed=seed)
    objective.watch(clock)
    theta = nearest.model
    if isinstance(warm_start, ProjectionResult) and _same_graph(warm_start.model, model):
        parameters = warm_start.model.parameters[_positions(reduction)]
        theta = feasible.project(parameters, "indicator")
    trace.theta = theta
    interrupted = False
    try:
        if theta is nearest.model and nearest.status == Status.OK:  # out of time, it is the only start
            theta = objective.first(theta, feasible, trace)
        theta = step.descend(objective, theta, feasible, trace)
        if objective.exact or not trace.values or trace.reason != "time_limit":
            trace.values.append(objective.value(theta))
        value = trace.values[-1]  # out of time, an estimate along the way
    except OutOfTimeError:
        trace.reason = "time_limit"
        theta, value = trace.theta, trace.values[-1] if trace.values else math.nan
    except KeyboardInterrupt:
        interrupted = True
        trace.reason = "interrupted"
        theta, value = trace.theta, trace.values[-1] if trace.values else math.nan
    counts = {"num_steps": max(0, len(trace.values) - 1), "num_projections": feasible.num_projections}
    counts |= {"num_inexact": feasible.num_inexact, **objective.facts()}
    result = build(feasible.settle(theta), value, objective.constant, counts)
    if interrupted:
        raise NotConvergedError(
            f"the descent was interrupted after {counts['num_steps']} steps; the last model is in the result of this "
            "error and is within the bound",
            result,
        )
    return result


def _expand(reduction: Reduction, theta: MarkovRandomField) -> MarkovRandomField:
    """The model of all variables and states with the parameters of the reduced one."""
    original = reduction.original
    if theta is reduction.model:
        return original
    unary, pairwise = original.log_unary.copy(), original.log_pairwise.copy()
    unary[reduction.unary_positions] = theta.log_unary
    pairwise[reduction.pairwise_positions] = theta.log_pairwise
    return original.replace(log_unary=unary, log_pairwise=pairwise)


def _positions(reduction: Reduction) -> NDArray[np.int64]:
    """Places of the reduced parameters in the vector of all parameters."""
    shift = len(reduction.original.log_unary)
    return np.concatenate([reduction.unary_positions, shift + reduction.pairwise_positions])


def _same_graph(one: MarkovRandomField, other: MarkovRandomField) -> bool:
    return np.array_equal(one.num_states, other.num_states) and np.array_equal(one.edges, other.edges)
