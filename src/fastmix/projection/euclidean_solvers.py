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

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fastmix._clock import NO_LIMIT, Clock
from fastmix.projection.edges import EdgeCosts
from fastmix.theory.norms import matrix_norm

__all__ = ["SOLVERS", "Solution", "Target", "symmetric"]

FloatArray = NDArray[np.float64]

# Over-relaxation: on attractive 16x16 and 300x300 grids 1.5 to 1.7 took 40 to 100 passes where 1.0 took 100 to 460.
_RELAXATION = 1.6
_RANK = 8
_MEMORY = 8
_CHECK_EVERY = 10


@dataclass(frozen=True, eq=False)
class Target:
    """What a solver is to reach.

    Attributes
    ----------
    limit, cap : float
        The bound on the norm, and the one a little below that answers are scaled to.
    tol : float
        Relative gap.
    max_iter : int
    start : float array or None
        Multipliers of an earlier solution.
    clock : Clock
    """

    limit: float
    cap: float
    tol: float
    max_iter: int
    start: FloatArray | None = None
    clock: Clock = NO_LIMIT


@dataclass
class Solution:
    """State of a solver: best feasible bounds, best lower bound, multipliers for a warm start.

    ``history`` holds (iteration, cost of the best feasible point, best lower bound); ``late``: ended by the time limit.
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


def solve_inf(costs: EdgeCosts, target: Target) -> Solution:
    """Projection onto ``max_i sum of z_e at i <= limit``; multipliers are one per variable."""
    from fastmix.projection import kernels

    model = costs.model
    n, adjacency = model.num_variables, model.adjacency
    lam = np.zeros(n) if target.start is None or target.start.shape != (n,) else np.maximum(target.start, 0.0)
    z, sums = np.empty(model.num_edges), np.empty(n)
    if costs.quadratic:
        tau, rho = lam / 8.0, costs.rho[adjacency.edge_ids]
        solution = Solution(np.zeros(model.num_edges), tau)

        def one_pass() -> None:
            kernels.quadratic_sweep(adjacency.indptr, adjacency.neighbors, rho, tau, target.limit, _RELAXATION)

        def judge() -> tuple[float, float]:
            return kernels.quadratic_dual_and_primal(model.edges, costs.rho, tau, target.limit, target.cap, z, sums)
    else:
        solution = Solution(np.zeros(model.num_edges), lam)

        def one_pass() -> None:
            kernels.sweep(
                adjacency.indptr, adjacency.neighbors, adjacency.edge_ids, costs.start, costs.mu, costs.z, lam,
                target.limit, _RELAXATION,
            )  # fmt: skip

        def judge() -> tuple[float, float]:
            return kernels.dual_and_primal(
                model.edges, costs.start, costs.mu, costs.z, costs.f, lam, target.limit, target.cap, z, sums
            )

    def step() -> bool:
        count = min(_CHECK_EVERY, target.max_iter - solution.iterations)
        for _ in range(count):
            one_pass()
        solution.iterations += count
        dual, primal = judge()
        return solution.update(primal, dual, z, target.tol)

    dual, primal = judge()
    if not solution.update(primal, dual, z, target.tol):
        _repeat(step, solution, target)
    if costs.quadratic:
        solution.multipliers = 8.0 * tau
    return solution


def solve_spectral(costs: EdgeCosts, target: Target) -> Solution:
    """Projection onto ``lambda_max(Z) <= limit``; the multipliers are the factor V (n, 8) of W = V V^T.

    The multiplier W of the constraint is positive semidefinite, and written as V V^T (Burer and Monteiro, 2003) it
    needs no matrix decomposition: V climbs by L-BFGS. At the optimum ``W (c I - Z) = 0``, so that the rank of W is at
    most the multiplicity of the largest eigenvalue of Z; 8 is enough unless more eigenvalues than that meet at the
    limit. The dual is concave in W and not in V, but any V gives a valid lower bound: an ascent that gets stuck, or
    lacks the rank, leaves a gap and is reported as not converged.
    """
    from fastmix.projection import spectral_kernels

    model = costs.model
    n = model.num_variables
    if target.start is not None and target.start.ndim == 2 and target.start.shape[0] == n:
        v = np.ascontiguousarray(target.start, dtype=np.float64).copy()
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
        count = min(block, target.max_iter - solution.iterations)
        dual, used, _, moving = spectral_kernels.ascend(*arrays, v, target.limit, count, steps, changes, products, used)
        solution.iterations += count
        z = spectral_kernels.edge_bounds(model.edges, costs.start, costs.mu, costs.z, v)
        norm = matrix_norm(symmetric(model.edges, z, n), "spectral")
        if norm > target.cap:
            z *= target.cap / norm
        return solution.update(costs.cost(z), dual, z, target.tol) or not moving

    _repeat(step, solution, target)
    return solution


def solve_frobenius(costs: EdgeCosts, target: Target) -> Solution:
    """Projection onto ``2 sum z^2 <= limit^2``; the multiplier is one number."""
    from fastmix.projection import kernels

    arrays = (costs.start, costs.mu, costs.z)
    solution = Solution(np.zeros(len(costs.rho)), np.zeros(1))
    low, high = 0.0, 1.0
    size = np.sqrt(2.0) * float(np.linalg.norm(costs.rho))
    while size > target.limit:  # the norm falls as the multiplier grows
        high *= 4.0
        size = np.sqrt(2.0) * float(np.linalg.norm(kernels.frobenius_bounds(*arrays, high)))

    def step() -> bool:
        nonlocal low, high
        eta = (
            float(target.start[0])
            if solution.iterations == 0 and target.start is not None and target.start.shape == (1,)
            else 0.5 * (low + high)
        )
        z = kernels.frobenius_bounds(*arrays, eta)
        size = float(np.linalg.norm(z))
        dual = costs.cost(z) + eta * (2.0 * size**2 - target.limit**2)
        if np.sqrt(2.0) * size > target.limit:
            low = max(low, eta)
        else:
            high = min(high, eta)
        if np.sqrt(2.0) * size > target.cap:
            z *= target.cap / (np.sqrt(2.0) * size)
        solution.iterations += 1
        solution.multipliers[0] = eta
        return solution.update(costs.cost(z), dual, z, target.tol)

    _repeat(step, solution, target)
    return solution


def symmetric(edges: NDArray[np.int64], values: FloatArray, n: int) -> object:
    """The symmetric sparse matrix with these values on the edges."""
    from scipy.sparse import csr_array

    rows, cols = np.concatenate([edges, edges[:, ::-1]]).T
    return csr_array((np.concatenate([values, values]), (rows, cols)), shape=(n, n))


def _repeat(step: Callable[[], bool], solution: Solution, target: Target) -> None:
    """Repeat until done, out of iterations or of time, or interrupted; the best point stays in the solution."""
    try:
        while solution.iterations < target.max_iter and not step():
            if target.clock.past():
                solution.late = True
                break
    except KeyboardInterrupt:
        solution.interrupted = True


SOLVERS: dict[str, Callable[[EdgeCosts, Target], Solution]] = {
    "inf": solve_inf,
    "1": solve_inf,
    "spectral": solve_spectral,
    "frobenius": solve_frobenius,
}
