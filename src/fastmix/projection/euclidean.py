"""The fast exact route of the Euclidean projection: tables eliminated, one multiplier per node or a low-rank matrix.

With the cost functions f_e of :mod:`fastmix.projection.edges` the projection is a problem in one number per edge,
``min sum_e f_e(z_e)`` subject to a norm of the symmetric matrix Z being at most c (Eq. 3 of Liu and Domke, 2014):

- inf (and 1): ``sum of R at node i <= c``, one multiplier per node, over-relaxed coordinate ascent;
- spectral: ``lambda_max(Z) <= c``, a positive semidefinite multiplier of low rank, L-BFGS
  (:mod:`fastmix.projection.spectral`);
- frobenius: ``2 sum_e z_e^2 <= c^2``, one multiplier per edge, L-BFGS-B.

Factors add one number each, their scale, that counts in R of several edges (:mod:`fastmix.projection.edges`).

Every solver takes the limit c and scales what it returns to a cap a little below it, which leaves room for rounding;
lower bounds are for the limit itself. It keeps the best feasible z it has met and the best lower bound, so their
difference is an honest gap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastmix._arrays import FloatArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix._jit import njit
from fastmix.projection.edge_kernels import bound_at, bounds_at, cost_at
from fastmix.projection.edges import EdgeCosts

__all__ = ["MARGIN", "Solution", "Target", "descend_dual", "repeat", "solve_frobenius", "solve_inf"]

# Room for rounding between what a solver aims at and what is promised; the objective moves by as little.
MARGIN = 1e-12
# Over-relaxation: on attractive 16x16 and 300x300 grids 1.5 to 1.7 took 40 to 100 passes where 1.0 took 100 to 460.
_RELAXATION = 1.6
_CHECK_EVERY = 10


@dataclass(frozen=True, eq=False)
class Target:
    """What a solver is to reach: the bound on the norm, a relative gap, from which multipliers, and by when."""

    limit: float
    tol: float
    max_iter: int
    start: FloatArray | None = None
    clock: Clock = NO_LIMIT

    @property
    def cap(self) -> float:
        """The norm that answers are scaled to, a little below the limit."""
        return self.limit * (1.0 - MARGIN)


@dataclass
class Solution:
    """State of a solver: best feasible bounds, best lower bound, multipliers for a warm start.

    ``history`` holds (iteration, cost of the best feasible point, best lower bound); ``late``: ended by the time limit;
    ``facts`` go into ``stats`` of the result.
    """

    z: FloatArray
    multipliers: FloatArray
    primal: float = np.inf
    dual: float = -np.inf
    iterations: int = 0
    converged: bool = False
    interrupted: bool = False
    late: bool = False
    history: list[tuple[int, float, float]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def update(self, primal: float, dual: float, z: FloatArray, tol: float) -> bool:
        """Take in a feasible point and a lower bound; True when the relative gap is small enough."""
        if primal < self.primal:
            self.primal, self.z = primal, z.copy()
        self.dual = max(self.dual, dual)
        self.history.append((self.iterations, self.primal, self.dual))
        self.converged = self.primal - self.dual <= tol * (1.0 + self.primal)
        return self.converged


def repeat(step: Callable[[], bool], solution: Solution, target: Target) -> None:
    """Repeat until done, out of iterations or of time, or interrupted; the best point stays in the solution."""
    try:
        while solution.iterations < target.max_iter and not step():
            target.clock.report(solution.iterations, None, "iterations")
            if target.clock.past():
                solution.late = True
                break
    except KeyboardInterrupt:
        solution.interrupted = True


def descend_dual(
    value: Callable[[FloatArray], tuple[float, FloatArray]],
    solution: Solution,
    after: Callable[[FloatArray], None],
    max_steps: int,
    least: float = -np.inf,
) -> None:
    """L-BFGS-B from the multipliers of a solution, each at least ``least``, until ``after`` a step stops it."""
    from scipy.optimize import Bounds, minimize

    start = solution.multipliers.ravel()
    options = {"maxiter": max_steps, "maxfun": 40 * max_steps, "ftol": 0.0, "gtol": 0.0, "maxcor": 20}
    bounds = None if least == -np.inf else Bounds(np.full(len(start), least), np.full(len(start), np.inf))
    try:
        minimize(value, start, jac=True, method="L-BFGS-B", bounds=bounds, callback=after, options=options)
    except KeyboardInterrupt:
        solution.interrupted = True


def solve_inf(costs: EdgeCosts, target: Target) -> Solution:
    """Projection onto ``max_i sum of R at i <= limit``; multipliers are one per variable."""
    n, adjacency, limit = costs.model.num_variables, costs.model.adjacency, target.limit
    lam = np.zeros(n) if target.start is None or target.start.shape != (n,) else np.maximum(target.start, 0.0)
    z, loads = np.empty(len(costs.start) - 1), np.zeros(len(costs.start) - 1)
    solution = Solution(np.zeros(len(z)), lam)
    knots, items = (costs.start, costs.mu, costs.z), costs.incidence
    steepest = 8.0 * costs.rho[adjacency.edge_ids] if costs.quadratic else costs.rho

    def judge() -> bool:
        dual, primal = _dual_and_primal(*items, *knots, costs.f, lam, loads, limit, target.cap, z)
        return solution.update(primal, dual, z, target.tol)

    def step() -> bool:
        for _ in range(min(_CHECK_EVERY, target.max_iter - solution.iterations)):
            if costs.quadratic:
                _quadratic_sweep(adjacency.indptr, adjacency.neighbors, steepest, lam, 8.0 * limit, _RELAXATION)
            else:
                _sweep(*items, *knots, lam, loads, limit, _RELAXATION)
            solution.iterations += 1
            if target.clock.past():
                break
        return judge()

    if not judge():
        repeat(step, solution, target)
    return solution


def solve_frobenius(costs: EdgeCosts, target: Target) -> Solution:
    """Projection onto ``2 sum R^2 <= limit^2``: ascent on the dual of R in the ball; multipliers are one per edge."""
    m, radius = costs.model.num_edges, target.limit / np.sqrt(2.0)
    first = costs.dependencies(bounds_at(costs.start, costs.mu, costs.z, np.zeros(len(costs.start) - 1)))
    if costs.quadratic:  # of f = 4 (rho - z)^2 the closest point is a multiple of rho
        first = first * max(0.0, 8.0 * (1.0 - radius / max(float(np.linalg.norm(first)), 1e-300)))
    fits = target.start is not None and target.start.shape == (m,)
    solution = Solution(np.zeros(len(costs.start) - 1), target.start if fits else first)  # type: ignore[arg-type]

    def value(mu: FloatArray) -> tuple[float, FloatArray]:
        loads, size = costs.loads(mu), float(np.linalg.norm(mu))
        z = bounds_at(costs.start, costs.mu, costs.z, loads)
        total = costs.dependencies(z)
        dual = costs.cost(z) + float(loads @ z) - radius * size
        norm = np.sqrt(2.0) * float(np.linalg.norm(total))
        scaled = z * (target.cap / norm) if norm > target.cap else z
        before = solution.dual
        solution.update(costs.cost(scaled), dual, scaled, target.tol)
        if dual > before:
            solution.multipliers = mu.copy()
        return -dual, radius * mu / max(size, 1e-300) - total

    def after(_: FloatArray) -> None:
        solution.iterations += 1
        if solution.converged or target.clock.past():
            raise StopIteration

    value(solution.multipliers)
    if not solution.converged:
        descend_dual(value, solution, after, target.max_iter, least=0.0)
    solution.late = target.clock.past() and not solution.converged
    return solution


# -- compiled -------------------------------------------------------------------------------------------------------


@njit(cache=True, error_model="numpy")
def _quadratic_sweep(indptr, neighbors, steepest, lam, limit, relaxation):  # type: ignore[no-untyped-def]
    """One pass over the nodes for ``f = 4 (rho - z)^2``, with the steepest slopes ``8 rho`` and 8 times the limit.

    With the others fixed, the best lam_i makes ``sum_j (8 rho_ij - lam_j - lam_i)_+`` equal to the limit, or is 0: the
    threshold of a projection onto the l1 ball. Newton's method from where it was takes one or two looks, of which the
    last changes nothing (from 0, Michelot 1986). Going beyond it by the factor ``relaxation`` (successive
    over-relaxation) saves most of the passes.
    """
    for i in range(len(lam)):
        best = lam[i]
        for look in range(2 + indptr[i + 1] - indptr[i]):
            total, count, lowest, highest = -limit, 0, np.inf, -np.inf
            for k in range(indptr[i], indptr[i + 1]):
                value = steepest[k] - lam[neighbors[k]]
                if value > best:
                    total += value
                    count += 1
                    lowest = min(lowest, value)
                else:
                    highest = max(highest, value)
            if count == 0 and look > 0:  # the threshold is the largest value, but for rounding
                break
            best = max(0.0, total / count) if count else 0.0
            if highest <= best < lowest:
                break
        lam[i] = max(0.0, lam[i] + relaxation * (best - lam[i]))


@njit(cache=True, error_model="numpy")
def _sweep(indptr, items, weights, start, mus, zs, lam, loads, limit, relaxation):  # type: ignore[no-untyped-def]
    """One pass over the nodes for general costs, multipliers lam, and what they make every item cost, ``loads``.

    The best multiplier of a node solves ``sum_k w_k z_k(load_k) = limit`` over its items, whose loads grow by w_k with
    it: a decreasing piecewise linear equation, solved by Newton's method with a bracket.
    """
    for i in range(len(lam)):
        low, high = 0.0, 0.0
        total = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            k, weight = items[p], weights[p]
            a, b = start[k], start[k + 1]
            other = loads[k] - weight * lam[i]
            total += weight * bound_at(other, mus, zs, a, b)[0]
            high = max(high, (mus[b - 1] - other) / weight)
        best = 0.0
        if total > limit:
            best = min(max(lam[i], low), high)
            for _ in range(100):
                total, slope = 0.0, 0.0
                for p in range(indptr[i], indptr[i + 1]):
                    k, weight = items[p], weights[p]
                    a, b = start[k], start[k + 1]
                    bound, tilt = bound_at(loads[k] + weight * (best - lam[i]), mus, zs, a, b)
                    total += weight * bound
                    slope += weight * weight * tilt
                if total > limit:
                    low = best
                else:
                    high = best
                if abs(total - limit) <= 1e-15 * limit or high - low <= 1e-16 * high:
                    break
                best = best - (total - limit) / slope if slope < 0.0 else 0.5 * (low + high)
                if not low < best < high:
                    best = 0.5 * (low + high)
        following = max(0.0, lam[i] + relaxation * (best - lam[i]))
        for p in range(indptr[i], indptr[i + 1]):
            loads[items[p]] += weights[p] * (following - lam[i])
        lam[i] = following


@njit(cache=True, error_model="numpy")
def _dual_and_primal(indptr, items, weights, start, mus, zs, fs, lam, loads, limit, cap, z):  # type: ignore[no-untyped-def]
    """Dual value for the limit, and the cost of the point next to lam that meets the cap, which is left in ``z``.

    The cap is the limit less a margin for rounding; ``loads`` are made anew.
    """
    loads[:] = 0.0
    dual, primal = 0.0, 0.0
    for i in range(len(lam)):
        dual -= limit * lam[i]
        for p in range(indptr[i], indptr[i + 1]):
            loads[items[p]] += weights[p] * lam[i]
    for k in range(len(z)):
        a, b = start[k], start[k + 1]
        z[k] = bound_at(loads[k], mus, zs, a, b)[0]
        dual += cost_at(z[k], mus, zs, fs, a, b) + loads[k] * z[k]
    share = np.ones(len(z))
    for i in range(len(lam)):
        total = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            total += weights[p] * z[items[p]]
        if total > cap:
            for p in range(indptr[i], indptr[i + 1]):
                share[items[p]] = min(share[items[p]], cap / total)
    for k in range(len(z)):
        a, b = start[k], start[k + 1]
        z[k] *= share[k]
        primal += cost_at(z[k], mus, zs, fs, a, b)
    return dual, primal
