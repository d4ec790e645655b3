"""Projection of a model onto the closest one whose dependency norm is bounded."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fastmix.dependency import edge_dependencies
from fastmix.errors import NotConvergedError
from fastmix.model import PairwiseMRF
from fastmix.norms import Norm, matrix_norm
from fastmix.projection.edges import edge_costs
from fastmix.projection.fast import SOLVERS, Solution, symmetric
from fastmix.projection.paper_dual import PaperDual, PaperDualSolution, project_paper
from fastmix.reduction import reduce_model
from fastmix.results import Status, jsonable, provenance

__all__ = ["ProjectionResult", "project"]

FloatArray = NDArray[np.float64]

# Room for rounding between what the solver aims at and what is promised; the objective moves by as little.
_MARGIN = 1e-12


@dataclass(frozen=True, eq=False, repr=False)
class ProjectionResult:
    """The closest model within a norm bound, and how close it is.

    Attributes
    ----------
    model : PairwiseMRF
        The projected model; always within the bound (but for ``PaperDual(both_directions=False)``, which bounds the
        one direction that the paper prints, and says in ``norm_after`` what both together have).
    status : Status
    norm, bound : str
        Which norm of which dependency bound.
    norm_before, norm_after, norm_bound : float
        Safe upper bounds on the norm of the dependency matrix (the larger of both directions on every edge), and
        what was asked for.
    squared_distance : float
        Sum over edges of the squared Frobenius distance between the tables; unaries do not change.
    duality_gap : float
        ``squared_distance`` minus a proven lower bound on it: how far from the closest model this one can be.
    multipliers : float array
        For a warm start of a later call on the same graph: one per variable (inf, 1), the factor (n, rank) of the
        matrix multiplier (spectral), one number (frobenius), or those of the paper's dual.
    dependencies : float array (m,)
        The bound z of every edge.
    history : list of (iteration, cost of the best feasible point, lower bound)
    solver_state : object
        What the paper's dual needs for a warm start beyond the multipliers.
    stats, provenance : mapping
    """

    model: PairwiseMRF
    status: Status
    norm: str
    bound: str
    norm_before: float
    norm_after: float
    norm_bound: float
    squared_distance: float
    duality_gap: float
    multipliers: FloatArray
    dependencies: FloatArray
    history: list[tuple[int, float, float]] = field(default_factory=list)
    stats: Mapping[str, Any] = field(default_factory=dict)
    solver_state: Any = field(default=None, repr=False)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return (
            f"ProjectionResult(status={str(self.status)!r}, norm_before={self.norm_before:.6g}, "
            f"norm_after={self.norm_after:.6g}, squared_distance={self.squared_distance:.6g}, "
            f"duality_gap={self.duality_gap:.3g}, {self.model})"
        )

    @property
    def relative_gap(self) -> float:
        """The gap that ``tol`` is compared with: ``duality_gap / (1 + squared_distance)``."""
        return self.duality_gap / (1.0 + self.squared_distance)

    def to_dict(self) -> dict[str, Any]:
        """The result without the model as plain data, the shape of the command line's JSON."""
        names = ("norm", "bound", "norm_before", "norm_after", "norm_bound", "squared_distance", "duality_gap")
        facts = {name: jsonable(getattr(self, name)) for name in names}
        facts["relative_gap"] = jsonable(self.relative_gap)
        return {
            "status": str(self.status),
            **facts,
            "seconds": self.stats.get("seconds"),
            "stats": jsonable(dict(self.stats)),
            "provenance": jsonable(dict(self.provenance)),
        }


def project(
    model: PairwiseMRF,
    *,
    norm_bound: float,
    norm: Norm = "inf",
    bound: Literal["range", "linf"] = "range",
    solver: Literal["fast"] | PaperDual = "fast",
    tol: float = 1e-6,
    max_iter: int = 10_000,
    warm_start: ProjectionResult | FloatArray | None = None,
) -> ProjectionResult:
    """The closest model whose dependency matrix has a norm of at most ``norm_bound``.

    Minimises ``sum over edges ||T_e - psi_e||_F^2`` subject to ``||R(T)|| <= norm_bound``, where R is the bound on the
    dependency in both directions of every edge (Liu and Domke, 2014, section 5, with the corrections of the docs).
    Below 1 the projected model provably mixes fast, see :func:`fastmix.certify`; the paper's practical choice is 2.5.

    Parameters
    ----------
    model : PairwiseMRF
        States forbidden by a unary are left alone; -inf in a table is refused.
    norm_bound : float
        Positive.
    norm : {"inf", "spectral", "1", "frobenius"}
        inf is the fastest; spectral changes the model least for the same guarantee. 1 equals inf here, because both
        directions share one bound.
    bound : {"range", "linf"}
        ``range`` is the tighter bound and ignores terms of one variable; ``linf`` is the paper's.
    solver : "fast" or PaperDual
        The exact route that eliminates the tables, or the paper's dual with L-BFGS-B.
    tol : float
        Relative duality gap: gap / (1 + squared distance).
    max_iter : int
        Passes (inf), steps (spectral, frobenius) or outer iterations (the paper's dual).
    warm_start : ProjectionResult or its multipliers, optional
        An earlier result on the same graph, as gradient descent has at hand.

    Returns
    -------
    ProjectionResult
        A model that already meets the bound comes back unchanged.

    Raises
    ------
    NotConvergedError
        If ``tol`` is not reached in ``max_iter``, or on an interrupt (Ctrl-C); its ``result`` is the best point, which
        is within the bound.
    UnfitMethodError
        If a table has -inf entries, or the solver cannot handle the bound.

    Notes
    -----
    Under a millisecond for a 16x16 Ising grid (inf), seconds for a million variables; spectral takes tens of
    milliseconds, and about a second for 10,000 variables.

    Examples
    --------
    >>> from fastmix.instances import ising_grid
    >>> result = project(ising_grid(4, 4, coupling_max=3.0, seed=0), norm_bound=0.9)
    >>> result.norm_after <= 0.9, result.duality_gap < 1e-4
    (True, True)
    """
    begin = time.perf_counter()
    _check_arguments(norm_bound, norm, bound, solver, tol, max_iter)
    reduction = reduce_model(model)
    small = reduction.model
    options: dict[str, Any] = {"norm_bound": norm_bound, "norm": norm, "bound": bound, "tol": tol}
    options["solver"] = _name(solver)

    def build(tables: FloatArray, solution: Solution, before: float) -> ProjectionResult:
        flat = model.log_pairwise.copy()
        flat[reduction.pairwise_positions] = tables
        moved = not np.array_equal(flat, model.log_pairwise)
        result = model.replace(log_pairwise=flat) if moved else model
        z = edge_dependencies(result, bound=bound).max(axis=1, initial=0.0)
        distance = float(np.sum((tables - small.log_pairwise) ** 2))
        status = Status.OK if solution.converged else Status.NOT_CONVERGED
        return ProjectionResult(
            model=result,
            status=Status.INTERRUPTED if solution.interrupted else status,
            norm=norm,
            bound=bound,
            norm_before=before,
            norm_after=_norm(small, z, norm),
            norm_bound=float(norm_bound),
            squared_distance=distance,
            duality_gap=max(0.0, distance - solution.dual) if moved else 0.0,
            multipliers=solution.multipliers,
            dependencies=z,
            history=solution.history,
            stats={"iterations": solution.iterations, "seconds": time.perf_counter() - begin},
            solver_state=solution.state,
            provenance=provenance(model, **options),
        )

    rho = edge_dependencies(small, bound=bound).max(axis=1, initial=0.0)
    if np.isinf(rho).any():
        edge_costs(small, bound)  # says which edge forbids a pair
    before = _norm(small, rho, norm)
    if before <= norm_bound:
        unchanged = Solution(rho, np.zeros(0), 0.0, 0.0, converged=True)
        return build(small.log_pairwise, unchanged, before)
    start = warm_start.multipliers if isinstance(warm_start, ProjectionResult) else warm_start

    cap = norm_bound * (1.0 - _MARGIN)
    if solver == "fast":
        costs = edge_costs(small, bound)
        solution = SOLVERS[norm](costs, norm_bound, cap, tol, max_iter, start)
        tables = costs.tables(solution.z)
    else:
        assert isinstance(solver, PaperDual)
        solution, tables = _solve_paper(small, norm_bound, norm, bound, solver, tol, max_iter, warm_start)
    result = build(tables, solution, before)
    one_direction = isinstance(solver, PaperDual) and not solver.both_directions
    for _ in range(60):  # rounding has used up the margin: rare, and a hair's breadth each time
        if result.norm_after <= norm_bound or one_direction:
            break
        solution.z *= 1.0 - 4.0 * _MARGIN - max(0.0, result.norm_after / norm_bound - 1.0)
        tables = edge_costs(small, bound).tables(solution.z)
        result = build(tables, solution, before)
    if result.status != Status.OK:
        reason = "was interrupted" if solution.interrupted else f"did not converge in {solution.iterations} iterations"
        raise NotConvergedError(
            f"the projection {reason}: relative gap {result.relative_gap:.3g}, tol {tol:.3g}; the best point is in "
            "the result of this error and is within the bound; raise max_iter or tol",
            result,
        )
    return result


def _solve_paper(
    model: PairwiseMRF,
    norm_bound: float,
    norm: str,
    bound: Literal["range", "linf"],
    settings: PaperDual,
    tol: float,
    max_iter: int,
    start: ProjectionResult | FloatArray | None,
) -> tuple[Solution, FloatArray]:
    """The paper's route, in the terms of the fast one."""
    earlier = start.solver_state if isinstance(start, ProjectionResult) else None
    answer = project_paper(
        model,
        norm_bound=norm_bound * (1.0 - _MARGIN),
        norm="inf" if norm == "1" else norm,  # type: ignore[arg-type]
        bound=bound,
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


def _norm(model: PairwiseMRF, z: FloatArray, norm: Norm) -> float:
    return matrix_norm(symmetric(model.edges, z, model.num_variables), norm)


def _name(solver: Literal["fast"] | PaperDual) -> str:
    return solver if isinstance(solver, str) else repr(solver)


def _check_arguments(norm_bound: float, norm: str, bound: str, solver: object, tol: float, max_iter: int) -> None:
    if not (isinstance(norm_bound, int | float | np.number) and np.isfinite(norm_bound) and norm_bound > 0):
        raise ValueError(f"norm_bound must be positive, got {norm_bound}")
    if norm not in SOLVERS:
        raise ValueError(f"norm must be one of {', '.join(SOLVERS)}, got {norm!r}")
    if bound not in ("range", "linf"):
        raise ValueError(f"bound must be range or linf, got {bound!r}")
    if solver != "fast" and not isinstance(solver, PaperDual):
        raise ValueError(f"solver must be 'fast' or a PaperDual, got {solver!r}")
    if isinstance(solver, PaperDual) and norm == "frobenius":
        raise ValueError("norm must be inf, 1 or spectral with the paper's dual, got 'frobenius'")
    if not tol > 0:
        raise ValueError(f"tol must be positive, got {tol}")
    if max_iter < 1:
        raise ValueError(f"max_iter must be at least 1, got {max_iter}")
