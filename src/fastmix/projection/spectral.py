"""Euclidean projection onto the spectral-norm ball: compiled ascent on its low-rank dual.

The constraint ``lambda_max(Z) <= c`` has one positive semidefinite multiplier W = V V^T (Burer and Monteiro, 2003).
Only its entries on the edges matter, so the dual ``sum_e h_e(2 v_i . v_j) - c ||V||^2`` with
``h(mu) = min_z f(z) + mu z`` needs no decomposition; a factor adds h of its scale, at the weighted sum over its pairs.
The negative of the dual is minimized by limited-memory BFGS (Nocedal, 1980). A step may overshoot beyond the range of
numbers; its value is then NaN and the step is shortened.

Liu and Domke (2014, section 5.2) clip singular values instead.
"""

from __future__ import annotations

import numpy as np

from fastmix._arrays import FloatArray
from fastmix.projection.edge_kernels import bounds_at
from fastmix.projection.edges import EdgeCosts
from fastmix.projection.solution import Goal, Solution, repeat
from fastmix.projection.spectral_kernels import ascend
from fastmix.projection.tuning import (
    SPECTRAL_BLOCK,
    SPECTRAL_MEMORY,
    SPECTRAL_NORM_SHARE,
    SPECTRAL_NORM_SLACK,
    SPECTRAL_NUMBERS_PER_CALL,
    SPECTRAL_RANK,
    SPECTRAL_STEP_SHARE,
)
from fastmix.theory.dependency import to_matrix
from fastmix.theory.norms import matrix_norm

__all__ = ["solve_spectral"]


def solve_spectral(costs: EdgeCosts, goal: Goal) -> Solution:
    """Solution of the projection onto ``lambda_max(Z) <= limit``; the multipliers are the factor V (n, 8) of W = V V^T.

    At the optimum ``W (c I - Z) = 0``, so that the rank of W is at most the multiplicity of the largest eigenvalue of
    Z; 8 is enough unless more eigenvalues than that meet at the limit. The dual is concave in W and not in V, but any V
    gives a valid lower bound: an ascent that gets stuck, or lacks the rank, is reported as not converged.
    """
    solver = _SpectralSolver(costs, goal)
    repeat(solver.step, solver.solution, goal)
    return solver.solution


class _SpectralSolver:
    """The ascent from one set of multipliers, in blocks of steps, with the memory of L-BFGS between calls."""

    def __init__(self, costs: EdgeCosts, goal: Goal) -> None:
        self.costs = costs
        self.goal = goal
        self.pairs = costs.pairs
        self.v = self._first_multipliers()
        self.solution = Solution(np.zeros(costs.num_items), self.v)
        self.last_dual = -np.inf
        self.steps = np.zeros((SPECTRAL_MEMORY, self.v.size))
        self.changes = np.zeros((SPECTRAL_MEMORY, self.v.size))
        self.products = np.zeros(SPECTRAL_MEMORY)
        self.num_stored = 0
        numbers_per_step = 4.0 * SPECTRAL_MEMORY * self.v.size + 4.0 * self.v.shape[1] * costs.model.num_edges
        #: Steps that one compiled call may take; the clock is read between calls.
        self.steps_per_call = int(min(SPECTRAL_BLOCK, 1 + SPECTRAL_NUMBERS_PER_CALL / numbers_per_step))

    def _first_multipliers(self) -> FloatArray:
        """Multipliers of an earlier solution on the same graph if given; random ones otherwise."""
        start = self.goal.start
        n = self.costs.model.num_variables
        if start is not None and start.ndim == 2 and start.shape[0] == n:
            return np.ascontiguousarray(start, dtype=np.float64).copy()
        # Any start off the saddle at 0 will do; a fixed generator keeps the answer the same in every run.
        return np.random.default_rng(0).normal(scale=0.5 / np.sqrt(SPECTRAL_RANK), size=(n, SPECTRAL_RANK))

    def step(self) -> bool:
        """Take a block of steps, and look at the gap where it can be closed; returns whether the solver is done."""
        goal = self.goal
        dual, moving = self._ascend()
        late = goal.clock.past(SPECTRAL_STEP_SHARE)
        gain = dual - self.last_dual
        self.last_dual = dual
        still_gaining = gain > goal.tol * (1.0 + dual)
        if moving and not late and self.solution.iterations < goal.max_iter and still_gaining:
            return False  # the gap cannot be known to be closed: no need of the norm, which takes longer than steps
        z = self._feasible_point()
        done = self.solution.update(self.costs.cost(z), dual, z, goal.tol) or not moving
        self.solution.late = late and not self.solution.converged
        return done or late

    def _ascend(self) -> tuple[float, bool]:
        """The dual value after a block of steps, fewer if the time is up, and whether another step is possible."""
        costs = self.costs
        block_end = min(self.solution.iterations + SPECTRAL_BLOCK, self.goal.max_iter)
        moving = True
        while moving and self.solution.iterations < block_end:
            num_steps = min(self.steps_per_call, block_end - self.solution.iterations)
            dual, self.num_stored, moving = ascend(
                costs.model.edges,
                *self.pairs,
                costs.items,
                costs.mu,
                costs.z,
                costs.f,
                self.v,
                self.goal.limit,
                num_steps,
                self.steps,
                self.changes,
                self.products,
                self.num_stored,
            )
            self.solution.iterations += num_steps
            if self.goal.clock.past(SPECTRAL_STEP_SHARE):
                break
        return dual, moving

    def _feasible_point(self) -> FloatArray:
        """The point next to the multipliers, scaled so that its norm is at most the cap."""
        costs = self.costs
        goal = self.goal
        first, second = costs.model.edges.T
        prices = 2.0 * np.sum(self.v[first] * self.v[second], axis=1)
        z = bounds_at(costs.items, costs.mu, costs.z, costs.loads(prices))
        matrix = to_matrix(costs.model, costs.dependencies(z))
        norm = matrix_norm(matrix, "spectral", clock=goal.clock.part(SPECTRAL_NORM_SHARE))
        cap = goal.cap * (1.0 - min(SPECTRAL_NORM_SLACK, 0.01 * goal.tol))
        if norm > cap:
            z *= cap / norm
        return np.asarray(z)
