"""The fast exact route of the Euclidean projection: tables eliminated, one multiplier per node or a low-rank matrix.

With the cost functions f_e of :mod:`fastmix.projection.edges` the projection is a problem in one number per edge,
``min sum_e f_e(z_e)`` subject to a norm of the symmetric matrix Z being at most c:

- inf (and 1): ``sum of z_e at node i <= c``, one multiplier per node, over-relaxed coordinate ascent;
- spectral: ``lambda_max(Z) <= c``, a positive semidefinite multiplier of low rank, L-BFGS;
- frobenius: ``2 sum_e z_e^2 <= c^2``, a single multiplier, bisection.

Every solver takes the limit c and a cap a little below it, and scales what it returns to the cap, which leaves room
for rounding; lower bounds are for the limit itself. It keeps the best feasible z it has met and the best lower bound,
so their difference is an honest gap.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fastmix.norms import matrix_norm
from fastmix.projection.edges import EdgeCosts

__all__ = ["SOLVERS", "Solution"]

FloatArray = NDArray[np.float64]

# Over-relaxation: on attractive 16x16 and 300x300 grids 1.5 to 1.7 took 40 to 100 passes where 1.0 took 100 to 460.
_RELAXATION = 1.6
_RANK = 8
_MEMORY = 8
_CHECK_EVERY = 10


@dataclass
class Solution:
    """State of a solver: best feasible bounds, best lower bound, multipliers for a warm start.

    ``history`` holds (iteration, cost of the best feasible point, best lower bound); ``late``: ended by a deadline.
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
    state: object = None

    def update(self, primal: float, dual: float, z: FloatArray, tol: float) -> bool:
        """Take in a feasible point and a lower bound; True when the relative gap is small enough."""
        if primal < self.primal:
            self.primal, self.z = primal, z.copy()
        self.dual = max(self.dual, dual)
        self.history.append((self.iterations, self.primal, self.dual))
        self.converged = self.primal - self.dual <= tol * (1.0 + self.primal)
        return self.converged


def solve_inf(
    costs: EdgeCosts,
    limit: float,
    cap: float,
    tol: float,
    max_iter: int,
    start: FloatArray | None,
    deadline: float = math.inf,
) -> Solution:
    """Projection onto ``max_i sum of z_e at i <= limit``; multipliers are one per variable."""
    from fastmix.projection import kernels

    model = costs.model
    n, adjacency = model.num_variables, model.adjacency
    lam = np.zeros(n) if start is None or start.shape != (n,) else np.maximum(start, 0.0)
    z, sums = np.empty(model.num_edges), np.empty(n)
    if costs.quadratic:
        tau, rho = lam / 8.0, costs.rho[adjacency.edge_ids]
        solution = Solution(np.zeros(model.num_edges), tau)

        def one_pass() -> None:
            kernels.quadratic_sweep(adjacency.indptr, adjacency.neighbors, rho, tau, limit, _RELAXATION)

        def judge() -> tuple[float, float]:
            return kernels.quadratic_dual_and_primal(model.edges, costs.rho, tau, limit, cap, z, sums)
    else:
        solution = Solution(np.zeros(model.num_edges), lam)

        def one_pass() -> None:
            kernels.sweep(
                adjacency.indptr, adjacency.neighbors, adjacency.edge_ids, costs.start, costs.mu, costs.z, lam,
                limit, _RELAXATION,
            )  # fmt: skip

        def judge() -> tuple[float, float]:
            return kernels.dual_and_primal(
                model.edges, costs.start, costs.mu, costs.z, costs.f, lam, limit, cap, z, sums
            )

    def step() -> bool:
        count = min(_CHECK_EVERY, max_iter - solution.iterations)
        for _ in range(count):
            one_pass()
        solution.iterations += count
        dual, primal = judge()
        return solution.update(primal, dual, z, tol)

    dual, primal = judge()
    if not solution.update(primal, dual, z, tol):
        _repeat(step, solution, max_iter, deadline)
    if costs.quadratic:
        solution.multipliers = 8.0 * tau
    return solution


def solve_spectral(
    costs: EdgeCosts,
    limit: float,
    cap: float,
    tol: float,
    max_iter: int,
    start: FloatArray | None,
    deadline: float = math.inf,
) -> Solution:
    """Projection onto ``lambda_max(Z) <= limit``; the multipliers are the factor V (n, rank) of W = V V^T."""
    from fastmix.projection import spectral_kernels

    model = costs.model
    n = model.num_variables
    if start is not None and start.ndim == 2 and start.shape[0] == n:
        v = np.ascontiguousarray(start, dtype=np.float64).copy()
    else:
        # Any start off the saddle at 0 will do; a fixed generator keeps the answer the same in every run.
        v = np.random.default_rng(0).normal(scale=0.5 / np.sqrt(_RANK), size=(n, _RANK))
    steps, changes = np.zeros((_MEMORY, v.size)), np.zeros((_MEMORY, v.size))
    products = np.zeros(_MEMORY)
    solution = Solution(np.zeros(model.num_edges), v)
    arrays = (model.edges, costs.start, costs.mu, costs.z, costs.f)
    used, block, scale = 0, 50, 1.0

    def step() -> bool:
        nonlocal used, scale
        count = min(block, max_iter - solution.iterations)
        dual, used, _, moving = spectral_kernels.ascend(*arrays, v, limit, count, steps, changes, products, used)
        solution.iterations += count
        z = spectral_kernels.edge_bounds(model.edges, costs.start, costs.mu, costs.z, v)
        norm = matrix_norm(symmetric(model.edges, z, n), "spectral")
        if norm > cap:
            z *= cap / norm
        return solution.update(costs.cost(z), dual, z, tol) or not moving

    _repeat(step, solution, max_iter, deadline)
    return solution


def solve_frobenius(
    costs: EdgeCosts,
    limit: float,
    cap: float,
    tol: float,
    max_iter: int,
    start: FloatArray | None,
    deadline: float = math.inf,
) -> Solution:
    """Projection onto ``2 sum z^2 <= limit^2``; the multiplier is one number."""
    from fastmix.projection import kernels

    arrays = (costs.start, costs.mu, costs.z)
    solution = Solution(np.zeros(len(costs.rho)), np.zeros(1))
    low, high = 0.0, 1.0
    size = np.sqrt(2.0) * float(np.linalg.norm(costs.rho))
    while size > limit:  # the norm falls as the multiplier grows
        high *= 4.0
        size = np.sqrt(2.0) * float(np.linalg.norm(kernels.frobenius_bounds(*arrays, high)))

    def step() -> bool:
        nonlocal low, high
        eta = (
            float(start[0])
            if solution.iterations == 0 and start is not None and start.shape == (1,)
            else 0.5 * (low + high)
        )
        z = kernels.frobenius_bounds(*arrays, eta)
        size = float(np.linalg.norm(z))
        dual = costs.cost(z) + eta * (2.0 * size**2 - limit**2)
        if np.sqrt(2.0) * size > limit:
            low = max(low, eta)
        else:
            high = min(high, eta)
        if np.sqrt(2.0) * size > cap:
            z *= cap / (np.sqrt(2.0) * size)
        solution.iterations += 1
        solution.multipliers[0] = eta
        return solution.update(costs.cost(z), dual, z, tol)

    _repeat(step, solution, max_iter, deadline)
    return solution


def symmetric(edges: NDArray[np.int64], values: FloatArray, n: int) -> object:
    """The symmetric sparse matrix with these values on the edges."""
    from scipy.sparse import csr_array

    rows, cols = np.concatenate([edges, edges[:, ::-1]]).T
    return csr_array((np.concatenate([values, values]), (rows, cols)), shape=(n, n))


def _repeat(step: Callable[[], bool], solution: Solution, max_iter: int, deadline: float) -> None:
    """Repeat until done, out of iterations or of time, or interrupted; the best point stays in the solution."""
    try:
        while solution.iterations < max_iter and not step():
            if time.perf_counter() > deadline:
                solution.late = True
                break
    except KeyboardInterrupt:
        solution.interrupted = True


SOLVERS: dict[str, Callable[..., Solution]] = {
    "inf": solve_inf,
    "1": solve_inf,
    "spectral": solve_spectral,
    "frobenius": solve_frobenius,
}
