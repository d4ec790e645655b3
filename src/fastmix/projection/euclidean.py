"""The Euclidean projection: the tables closest to those of a model whose dependency norm is bounded."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fastmix._checks import check_count, check_positive
from fastmix._clock import NO_LIMIT, Clock
from fastmix.errors import NotConvergedError
from fastmix.model import MarkovRandomField
from fastmix.model.reduce import reduce_model
from fastmix.projection.edges import edge_costs
from fastmix.projection.euclidean_solvers import SOLVERS, Solution, Target, symmetric
from fastmix.projection.paper_dual import PaperDual, PaperDualSolution, project_paper
from fastmix.projection.result import ProjectionResult
from fastmix.results import Status, provenance
from fastmix.theory.dependency import edge_dependencies
from fastmix.theory.norms import Norm, matrix_norm

__all__ = ["MARGIN", "check_arguments", "project_euclidean"]

FloatArray = NDArray[np.float64]

# Room for rounding between what the solver aims at and what is promised; the objective moves by as little.
MARGIN = 1e-12


def project_euclidean(
    model: MarkovRandomField,
    *,
    norm_bound: float,
    norm: Norm = "inf",
    dependency: Literal["range", "linf"] = "range",
    solver: Literal["fast"] | PaperDual = "fast",
    tol: float = 1e-6,
    max_iter: int = 10_000,
    warm_start: ProjectionResult | FloatArray | None = None,
    clock: Clock = NO_LIMIT,
) -> ProjectionResult:
    """The model with the closest tables, see :func:`fastmix.project`; after the time limit, one that is close."""
    begun = Clock()
    check_arguments(norm_bound, norm, dependency, solver, tol, max_iter)
    reduction = reduce_model(model)
    small = reduction.model
    options: dict[str, Any] = {"norm_bound": norm_bound, "norm": norm, "dependency": dependency, "tol": tol}
    options["solver"] = _name(solver)

    def build(tables: FloatArray, solution: Solution, before: float) -> ProjectionResult:
        flat = model.log_pairwise.copy()
        flat[reduction.pairwise_positions] = tables
        moved = not np.array_equal(flat, model.log_pairwise)
        result = model.replace(log_pairwise=flat) if moved else model
        z = edge_dependencies(result, dependency=dependency).max(axis=1, initial=0.0)
        distance = float(np.sum((tables - small.log_pairwise) ** 2))
        status = Status.OK if solution.converged else Status.NOT_CONVERGED
        status = Status.TIME_LIMIT if solution.late else status
        stopped_by = "interrupt" if solution.interrupted else "time_limit" if solution.late else "done"
        return ProjectionResult(
            model=result,
            status=Status.INTERRUPTED if solution.interrupted else status,
            norm=norm,
            dependency=dependency,
            norm_before=before,
            norm_after=_norm(small, z, norm),
            norm_bound=float(norm_bound),
            squared_distance=distance,
            duality_gap=max(0.0, distance - solution.dual) if moved else 0.0,
            multipliers=solution.multipliers,
            dependencies=z,
            divergence_value=distance,
            history=solution.history,
            stats={"iterations": solution.iterations, "stopped_by": stopped_by, **begun.stats()},
            solver_state=solution.state,
            provenance=provenance(model, **options),
        )

    rho = edge_dependencies(small, dependency=dependency).max(axis=1, initial=0.0)
    if np.isinf(rho).any():
        edge_costs(small, dependency)  # says which edge forbids a pair
    before = _norm(small, rho, norm)
    if before <= norm_bound:
        unchanged = Solution(rho, np.zeros(0), 0.0, 0.0, converged=True)
        return build(small.log_pairwise, unchanged, before)
    start = warm_start.multipliers if isinstance(warm_start, ProjectionResult) else warm_start

    cap = norm_bound * (1.0 - MARGIN)
    costs = None
    if solver == "fast":
        costs = edge_costs(small, dependency, clock)
        solution = SOLVERS[norm](costs, Target(norm_bound, cap, tol, max_iter, start, clock))
        tables = costs.tables(solution.z)
        if costs.scaled is not None or (not costs.quadratic and clock.past()):
            solution.late, solution.dual = True, -math.inf  # no bound for tables that are only scaled
    else:
        assert isinstance(solver, PaperDual)
        solution, tables = _solve_paper(small, norm_bound, norm, dependency, solver, tol, max_iter, warm_start)
    result = build(tables, solution, before)
    one_direction = isinstance(solver, PaperDual) and not solver.both_directions
    for _ in range(60):  # rounding has used up the margin: rare, and a hair's breadth each time
        if result.norm_after <= norm_bound or one_direction:
            break
        solution.z *= 1.0 - 4.0 * MARGIN - max(0.0, result.norm_after / norm_bound - 1.0)
        tables = (edge_costs(small, dependency) if costs is None else costs).tables(solution.z)
        result = build(tables, solution, before)
    if result.status not in (Status.OK, Status.TIME_LIMIT):
        reason = "was interrupted" if solution.interrupted else f"did not converge in {solution.iterations} iterations"
        raise NotConvergedError(
            f"the projection {reason}: relative gap {result.relative_gap:.3g}, tol {tol:.3g}; the best point is in "
            "the result of this error and is within the bound; raise max_iter or tol",
            result,
        )
    return result


def _solve_paper(
    model: MarkovRandomField,
    norm_bound: float,
    norm: str,
    dependency: Literal["range", "linf"],
    settings: PaperDual,
    tol: float,
    max_iter: int,
    start: ProjectionResult | FloatArray | None,
) -> tuple[Solution, FloatArray]:
    """The paper's route, in the terms of the fast one."""
    earlier = start.solver_state if isinstance(start, ProjectionResult) else None
    answer = project_paper(
        model,
        norm_bound=norm_bound * (1.0 - MARGIN),
        norm="inf" if norm == "1" else norm,  # type: ignore[arg-type]
        dependency=dependency,
        settings=settings,
        tol=tol,
        max_iter=max_iter,
        start=earlier if isinstance(earlier, PaperDualSolution) else None,
    )
    # Without the repetition the history holds residuals instead of gaps.
    steps = enumerate(answer.history)
    history = [(k, cost, cost - rest if settings.exact else answer.lower_bound) for k, (cost, rest) in steps]
    solution = Solution(
        answer.z, answer.multipliers, answer.objective, answer.lower_bound, answer.iterations, answer.converged,
        history=history, state=answer,
    )  # fmt: skip
    return solution, answer.log_pairwise


def _norm(model: MarkovRandomField, z: FloatArray, norm: Norm) -> float:
    return matrix_norm(symmetric(model.edges, z, model.num_variables), norm)


def _name(solver: Literal["fast"] | PaperDual) -> str:
    return solver if isinstance(solver, str) else repr(solver)


def check_arguments(norm_bound: float, norm: str, dependency: str, solver: object, tol: float, max_iter: int) -> None:
    """Refuse arguments of a projection that are out of range, by name."""
    check_positive("norm_bound", norm_bound)
    if norm not in SOLVERS:
        raise ValueError(f"norm must be one of {', '.join(SOLVERS)}, got {norm!r}")
    if dependency not in ("range", "linf"):
        raise ValueError(f"dependency must be range or linf, got {dependency!r}")
    if solver != "fast" and not isinstance(solver, PaperDual):
        raise ValueError(f"solver must be 'fast' or a PaperDual, got {solver!r}")
    if isinstance(solver, PaperDual) and norm == "frobenius":
        raise ValueError("norm must be inf, 1 or spectral with the paper's dual, got 'frobenius'")
    check_positive("tol", tol)
    check_count("max_iter", max_iter, least=1)
