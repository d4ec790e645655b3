"""The fast exact route of the Euclidean projection: tables eliminated, one multiplier per node or per edge.

With the cost functions f_e of :mod:`fastmix.projection.edges` the projection is a problem in one number per edge,
``min sum_e f_e(z_e)`` subject to a norm of the symmetric matrix Z being at most c (Eq. 3 of Liu and Domke, 2014):

- inf (and 1): ``sum of R at node i <= c``, one multiplier per node, over-relaxed coordinate ascent;
- spectral: ``lambda_max(Z) <= c``, a positive semidefinite multiplier of low rank, L-BFGS
  (:mod:`fastmix.projection.spectral`);
- frobenius: ``2 sum_e z_e^2 <= c^2``, one multiplier per edge, L-BFGS-B.

Factors add one number each, their scale, that counts in R of several edges (:mod:`fastmix.projection.edges`).
"""

from __future__ import annotations

import numpy as np

from fastmix._arrays import FloatArray
from fastmix.projection.edge_kernels import bounds_at
from fastmix.projection.edges import EdgeCosts
from fastmix.projection.euclidean_kernels import ascend_general, ascend_quadratic, dual_and_primal
from fastmix.projection.solution import Goal, Solution, descend_dual, repeat
from fastmix.projection.tuning import INF_RELAXATION, PASSES_PER_CHECK

__all__ = ["solve_frobenius", "solve_inf"]


def solve_inf(costs: EdgeCosts, goal: Goal) -> Solution:
    """Solution of the projection onto ``max_i sum of R at i <= limit``; multipliers are one per variable."""
    solver = _InfSolver(costs, goal)
    if not solver.close_gap():
        repeat(solver.step, solver.solution, goal)
    return solver.solution


class _InfSolver:
    """Coordinate ascent on the dual for the infinity norm, one pass over the nodes after another."""

    def __init__(self, costs: EdgeCosts, goal: Goal) -> None:
        self.costs = costs
        self.goal = goal
        self.multipliers = self._first_multipliers()
        #: What the multipliers make every item cost, and the bounds of all items that follow.
        self.loads = np.zeros(costs.num_items)
        self.z = np.empty(costs.num_items)
        self.solution = Solution(np.zeros(costs.num_items), self.multipliers)
        if costs.curvature:
            self.steepest_slopes = 2.0 * costs.curvature * costs.rho[costs.model.adjacency.edge_ids]

    def _first_multipliers(self) -> FloatArray:
        """Multipliers of an earlier solution on the same graph if given, made non-negative; zeros otherwise."""
        start = self.goal.start
        n = self.costs.model.num_variables
        if start is None or start.shape != (n,):
            return np.zeros(n)
        return np.maximum(start, 0.0)

    def step(self) -> bool:
        """Make some passes; returns whether the gap is small enough."""
        remaining = self.goal.max_iter - self.solution.iterations
        for _ in range(min(PASSES_PER_CHECK, remaining)):
            self._pass_over_nodes()
            self.solution.iterations += 1
            if self.goal.clock.past():
                break
        return self.close_gap()

    def _pass_over_nodes(self) -> None:
        """Move the multiplier of every node, in order, toward its best value with the others fixed."""
        costs = self.costs
        limit = self.goal.limit
        if costs.curvature:
            graph = costs.model.adjacency
            slope_limit = 2.0 * costs.curvature * limit
            ascend_quadratic(
                graph.indptr, graph.neighbors, self.steepest_slopes, self.multipliers, slope_limit, INF_RELAXATION
            )
        else:
            ascend_general(
                *costs.incidence, costs.items, costs.mu, costs.z, self.multipliers, self.loads, limit, INF_RELAXATION
            )

    def close_gap(self) -> bool:
        """Take in the point and the bound next to the multipliers; returns whether the gap is small enough."""
        costs = self.costs
        goal = self.goal
        dual, primal = dual_and_primal(
            *costs.incidence,
            costs.items,
            costs.mu,
            costs.z,
            costs.f,
            self.multipliers,
            self.loads,
            goal.limit,
            goal.cap,
            self.z,
        )
        return self.solution.update(primal, dual, self.z, goal.tol)


def solve_frobenius(costs: EdgeCosts, goal: Goal) -> Solution:
    """Solution of the projection onto ``2 sum R^2 <= limit^2``; multipliers are one per edge.

    L-BFGS-B climbs the dual of R in the ball.
    """
    radius = goal.limit / np.sqrt(2.0)
    solution = Solution(np.zeros(costs.num_items), _first_frobenius_multipliers(costs, goal, radius))

    def value(mu: FloatArray) -> tuple[float, FloatArray]:
        loads = costs.loads(mu)
        size = float(np.linalg.norm(mu))
        z = bounds_at(costs.items, costs.mu, costs.z, loads)
        dependencies = costs.dependencies(z)
        dual = costs.cost(z) + float(loads @ z) - radius * size

        norm = np.sqrt(2.0) * float(np.linalg.norm(dependencies))
        scaled = z * (goal.cap / norm) if norm > goal.cap else z
        best_so_far = solution.dual
        solution.update(costs.cost(scaled), dual, scaled, goal.tol)
        if dual > best_so_far:
            solution.multipliers = mu.copy()
        return -dual, radius * mu / max(size, 1e-300) - dependencies

    def after_step(_: FloatArray) -> None:
        solution.iterations += 1
        if solution.converged or goal.clock.past():
            raise StopIteration

    value(solution.multipliers)
    if not solution.converged:
        descend_dual(value, solution, after_step, goal.max_iter, lower_bound=0.0)
    solution.late = goal.clock.past() and not solution.converged
    return solution


def _first_frobenius_multipliers(costs: EdgeCosts, goal: Goal, radius: float) -> FloatArray:
    """Multipliers of an earlier solution on the same graph if given; else a guess from the dependencies."""
    if goal.start is not None and goal.start.shape == (costs.model.num_edges,):
        return goal.start
    no_loads = np.zeros(costs.num_items)
    dependencies = costs.dependencies(bounds_at(costs.items, costs.mu, costs.z, no_loads))
    if not costs.curvature:
        return dependencies
    # For f = k (rho - z)^2 the closest point is a multiple of rho.
    size = float(np.linalg.norm(dependencies))
    return dependencies * max(0.0, 2.0 * costs.curvature * (1.0 - radius / max(size, 1e-300)))
