"""The Euclidean projection of Liu and Domke (2014): a smoothed dual, climbed by L-BFGS-B.

The tables of a model psi move as little as possible until a norm of the dependency bound R is at most c. A symmetric
matrix Z of upper bounds on R, zero outside the edges, is drawn to a given matrix Y, which makes the dual smooth
(Eq. 4):

    minimize    ||theta - psi||^2 + alpha ||Z - Y||_F^2
    subject to  Z_ij >= R_ij(theta),  Z_ji >= R_ji(theta),  Z_ij = Z_ji,  ||Z|| <= c.

For ``linf`` every R is the largest of finitely many contrasts ``|theta_p - theta_q| / 2``, where p and q are two
entries in one row (R_ij, i < j) or in one column (R_ji) of the table of an edge. Each unordered contrast k of slot s(k)
(the matrix entry ij or ji) has a multiplier sigma_k >= 0 for the plus sign and phi_k >= 0 for the minus sign, Gamma_e
ties Z_ij to Z_ji, and Delta holds the entries outside the edges at zero. With

    w      = 1/2 sum_k (sigma_k - phi_k)(e_p - e_q)
    Lambda = sums of sigma + phi by slot, + Gamma_e at ij, - Gamma_e at ji, Delta outside the edges

the dual function (Eq. 5) splits into, the second by the ball of Eq. 6,

    min_theta  ||theta - psi||^2 + <w, theta>                  at theta = psi - w / 2
    min_Z      -<Lambda, Z> + alpha ||Z - Y||^2, ||Z|| <= c    at Z = point of the ball next to Y + Lambda / (2 alpha)

and its gradient is ``(theta_p - theta_q)/2 - Z_s`` for sigma, ``-(theta_p - theta_q)/2 - Z_s`` for phi,
``Z_ji - Z_ij`` for Gamma and ``-Z`` for Delta. The infinity norm needs no Delta, because its ball keeps zeros; the
spectral norm needs no Gamma, because the dual function is largest where Lambda is symmetric, and Z is symmetric then.
Repeating with Y <- Z is the proximal-point iteration, which ends at the projection without the smoothing term.

*Lower bound.* Let u_e >= 0 be prices and K a number such that ``sum_e u_e z_e <= K`` for every Z >= 0 with ||Z|| <= c.
If the multipliers of each edge e add up to at most u_e, then by the first part of the dual
``sum_e (<w_e, psi_e> - ||w_e||^2 / 4) - K`` bounds the objective of every feasible model from below. The prices are
read off the step from ``A = Y + Lambda / (2 alpha)`` into the ball, ``N = 2 alpha (A - Z)``, whose inner product with
any Z of the ball is at most c times its dual norm: for the infinity norm ``u_e = v_i + v_j``, with v_i the threshold
that row i was shrunk by times 2 alpha, and ``K = c sum_i v_i``; for the spectral norm ``u_e = 2 max(N_ij, 0)`` and K is
c times the nuclear norm of N so corrected. Lastly the multipliers of each edge are multiplied by the number, within its
price, that gives the largest bound.

See section 5, Theorem 7, and Eq. 9 to 11 in the appendix of the paper.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._checks import check_count, check_flag, check_positive, keep_checked
from fastmix._clock import Clock
from fastmix._memory import check_memory
from fastmix.errors import UnfitMethodError
from fastmix.model import MarkovRandomField
from fastmix.projection.contrasts import Bound, contrasts, groups, interactions
from fastmix.projection.edges import check_finite
from fastmix.projection.paper_balls import Ball, InfBall, SpectralBall
from fastmix.projection.solution import Goal, Solution, repeat
from fastmix.projection.tuning import MAX_RESTARTS, PAPER_LBFGS_MEMORY
from fastmix.theory.dependency import edge_dependencies, to_matrix
from fastmix.theory.norms import Norm, matrix_norm

__all__ = ["Dual", "PaperDual", "Point", "solve_paper"]


@dataclass(frozen=True)
class PaperDual:
    """Settings of the Euclidean projection of Liu and Domke (2014) by their smoothed dual.

    Parameters
    ----------
    alpha : float
        Weight of ``||Z - Y||_F^2``, positive, whatever the scale of the model. On an edge of an Ising model the two
        terms are ``4 (|J| - z)^2`` and ``2 alpha (z - y)^2``: of equal weight at alpha = 2, where a step halves the
        distance to the projection. A smaller alpha takes fewer, harder steps.
    exact : bool
        True repeats the smoothed step with ``Y <- Z`` until the projection without the smoothing term is reached;
        False takes one smoothed step, the operator that the paper uses within projected gradient descent.
    inner_tol : float
        With ``exact``: accuracy of the first smoothed step, as the largest violation of ``Z >= R`` relative to the
        norm bound. Later steps are solved more accurately as the iteration closes in.
    max_inner, max_outer : int
        The largest number of L-BFGS-B iterations in one smoothed step, and of smoothed steps.

    Notes
    -----
    The dual is for the infinity and the spectral norm, and under the dependency bound ``range`` for variables of two
    states only. With L states an edge has L^2 (L - 1) contrasts, each with two multipliers. An evaluation costs
    O(m L^3), plus, for the infinity norm, sorting the rows of Z, O(m log d), and for the spectral norm, which has
    another n (n + 1) / 2 - m multipliers, an eigenvalue decomposition, O(n^3).

    Examples
    --------
    >>> import fastmix
    >>> model = MarkovRandomField.ising([(0, 1), (1, 2)], coupling=[2.0, 1.0])
    >>> result = fastmix.project(model, norm_bound=1.0, solver=PaperDual(), tol=1e-9)
    >>> (result.model.log_pairwise.round(3) + 0.0).tolist()
    [1.0, -1.0, -1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    """

    alpha: float = 2.0
    exact: bool = True
    inner_tol: float = 1e-2
    max_inner: int = 1000
    max_outer: int = 200

    def __post_init__(self) -> None:
        for name in ("alpha", "inner_tol"):
            keep_checked(self, **{name: check_positive(name, getattr(self, name))})
        keep_checked(self, exact=check_flag("exact", self.exact))
        for name in ("max_inner", "max_outer"):
            keep_checked(self, **{name: check_count(name, getattr(self, name), least=1)})


def solve_paper(
    model: MarkovRandomField, norm: Norm, dependency: Bound, settings: PaperDual, goal: Goal
) -> tuple[Solution, FloatArray]:
    """A solution and the flat tables nearest to those of a model, feasible whether it converged or not.

    Tables shrink toward their means where the iteration leaves them over the bound. ``multipliers`` of the solution
    are sigma, phi, Gamma (infinity norm) or Delta (spectral norm), and Z, which is the Y of the next step; ``facts``
    are the iterations of L-BFGS-B and the evaluations of the dual. A start of another shape counts as none.
    """
    check_finite(model)
    _check_states(model, dependency)
    norm = "inf" if norm == "1" else norm  # Z is symmetric
    _check_memory(model, norm)
    dual = Dual(model, goal.cap, norm, dependency, settings.alpha)
    if goal.start is not None and goal.start.shape == (dual.size + model.num_edges,):
        x, y = np.split(goal.start, [dual.size])
    else:
        x = np.zeros(dual.size)
        y = dual.dependencies(model.log_pairwise)
        y *= min(1.0, dual.limit / max(dual.norm_of(y), 1e-300))
    goal = replace(goal, max_iter=min(settings.max_outer, goal.max_iter))
    if settings.exact:
        return _ProximalPoint(dual, x, y, settings, goal).solve()
    return _smoothed_step(dual, x, y, settings, goal)


def _check_states(model: MarkovRandomField, dependency: Bound) -> None:
    """Refuse edges between variables of more than two states under ``range``."""
    counts = model.num_states[model.edges]
    unfit = np.flatnonzero((counts.min(axis=1) > 1) & (counts.max(axis=1) > 2))
    if dependency != "range" or not unfit.size:
        return
    i, j = model.edges[int(unfit[0])].tolist()
    raise UnfitMethodError(
        "the dual of Liu and Domke is written for the bound 'linf', which is the bound 'range' for two states "
        f"only; edge ({i}, {j}) joins {model.num_states[i]} and {model.num_states[j]} states: "
        "use dependency='linf' or another method"
    )


def _check_memory(model: MarkovRandomField, norm: str) -> None:
    """Refuse a dual whose multipliers, or the matrices of the spectral norm, do not fit."""
    n = model.num_variables
    m = model.num_edges
    rows, cols = model.num_states[model.edges].T
    num_contrasts = int(np.maximum(rows * cols * (cols - 1) // 2, 1).sum())
    num_contrasts += int(np.maximum(rows * cols * (rows - 1) // 2, 1).sum())
    size = 2 * num_contrasts + (m if norm == "inf" else n * (n + 1) // 2 - m)
    # Vectors of multipliers in L-BFGS-B, twice the memory and 5, and ten around it; contrasts in sparse form.
    numbers = (2 * PAPER_LBFGS_MEMORY + 15) * size + 12 * num_contrasts
    decompositions = 80.0 * n * n if norm == "spectral" else 0.0  # a few matrices
    way_out = "use solver='fast', which has no multiplier per contrast"
    check_memory(8.0 * numbers + decompositions, f"the dual of Liu and Domke with {size:.3g} multipliers", way_out)


class _ProximalPoint:
    """Smoothed steps with Y <- Z, from multipliers x and a first Y, until the gap is closed."""

    def __init__(self, dual: Dual, x: FloatArray, y: FloatArray, settings: PaperDual, goal: Goal) -> None:
        self.dual = dual
        self.x = x
        self.y = y
        self.settings = settings
        self.goal = goal
        self.tables, objective = dual.repaired(dual.psi)
        small = objective <= goal.tol * (1.0 + objective)
        self.solution = Solution(y, x, objective, 0.0, converged=small)
        self.accuracy = settings.inner_tol * dual.limit
        self.num_inner = 0
        self.num_stalled = 0

    def solve(self) -> tuple[Solution, FloatArray]:
        """The solution, and the best feasible tables."""
        if not self.solution.converged:
            repeat(self.step, self.solution, self.goal)
        return _finished(self.solution, self.dual, self.x, self.y, self.num_inner), self.tables

    def step(self) -> bool:
        """Make one smoothed step; returns whether the gap is small enough, or three steps in turn changed nothing."""
        solution = self.solution
        self.x, used = _maximize(self.dual, self.x, self.y, self.accuracy, self.settings.max_inner, self.goal.clock)
        self.num_inner += used
        point = self.dual.evaluate(self.x, self.y)
        tables, objective = self.dual.repaired(point.theta)
        if objective < solution.primal:
            self.tables = tables
        old_gap = solution.primal - solution.dual
        solution.iterations += 1
        done = solution.update(objective, self.dual.lower_bound(point), point.by_edge, self.goal.tol)

        # An inner error well below the size of the step keeps the rate of the exact iteration.
        self.accuracy = min(self.accuracy, 0.1 * float(np.abs(point.by_edge - self.y).max()))
        self.y = point.by_edge
        if used == 0 and solution.primal - solution.dual >= old_gap:
            self.num_stalled += 1
        else:
            self.num_stalled = 0
        return done or self.num_stalled == 3


def _smoothed_step(
    dual: Dual, x: FloatArray, y: FloatArray, settings: PaperDual, goal: Goal
) -> tuple[Solution, FloatArray]:
    """The result of one smoothed projection, until every constraint ``Z >= R`` holds to ``tol`` times the norm bound.

    L-BFGS-B is restarted where the rounding of the dual function stops it early.
    """
    accuracy = goal.tol * dual.limit
    num_inner = 0
    for _ in range(MAX_RESTARTS):
        x, used = _maximize(dual, x, y, accuracy, settings.max_inner - num_inner, goal.clock)
        num_inner += used
        point = dual.evaluate(x, y)
        residual = float(np.abs(np.maximum(point.gradient, dual.lowest - x)).max())
        if residual <= accuracy or used == 0 or num_inner >= settings.max_inner or goal.clock.past():
            break
    tables, objective = dual.repaired(point.theta)
    solution = Solution(point.by_edge, x, iterations=1)
    solution.update(objective, max(0.0, dual.lower_bound(point)), point.by_edge, goal.tol)
    solution.converged = residual <= accuracy
    solution.late = not solution.converged and goal.clock.past()
    return _finished(solution, dual, x, point.by_edge, num_inner), tables


def _finished(solution: Solution, dual: Dual, x: FloatArray, z: FloatArray, num_inner: int) -> Solution:
    """The solution with the point and the multipliers at its end, and what it took."""
    solution.z = z
    solution.multipliers = np.concatenate([x, z])
    solution.facts = {"num_inner_iterations": num_inner, "num_evaluations": dual.evaluations}
    return solution


def _maximize(
    dual: Dual, x: FloatArray, y: FloatArray, accuracy: float, max_iterations: int, clock: Clock
) -> tuple[FloatArray, int]:
    """Multipliers that maximize the smoothed dual for one Y, and the iterations of L-BFGS-B."""
    from scipy.optimize import Bounds, minimize

    base = dual.evaluate(x, y)

    def loss(candidate: FloatArray) -> tuple[float, FloatArray]:
        if np.array_equal(candidate, base.x):
            return 0.0, -base.gradient
        point = dual.evaluate(candidate, y)
        return -dual.change(point, base), -point.gradient

    def stop_in_time(_: FloatArray) -> None:
        if clock.past():
            raise StopIteration

    options = {
        "maxcor": PAPER_LBFGS_MEMORY,
        "maxiter": max_iterations,
        "maxfun": 20 * max_iterations + 20,
        "maxls": 40,
        "ftol": 0.0,
        "gtol": accuracy,
    }
    bounds = Bounds(dual.lowest, np.full(dual.size, np.inf))
    answer = minimize(loss, x, jac=True, method="L-BFGS-B", bounds=bounds, options=options, callback=stop_in_time)
    return np.maximum(answer.x, dual.lowest), int(answer.nit)


# -- the dual -------------------------------------------------------------------------------------------------------


class Point(NamedTuple):
    """The dual at one set of multipliers ``x``.

    ``force`` is w, ``theta`` the tables, ``price`` Lambda, ``entries`` the matrix Z as the ball keeps it and ``z`` the
    same by slot, ``normal`` is 2 alpha (A - Z), and ``found`` what the projection onto the ball found beside Z.
    """

    x: FloatArray
    force: FloatArray
    theta: FloatArray
    price: FloatArray
    entries: FloatArray
    normal: FloatArray
    found: Any
    z: FloatArray
    gradient: FloatArray

    @property
    def by_edge(self) -> FloatArray:
        """Z of every edge (m,), the mean of both directions."""
        return 0.5 * (self.z[0::2] + self.z[1::2])


class Dual:
    """The smoothed dual function; multipliers are one vector of sigma, phi and Gamma or Delta.

    ``psi`` is the part of the tables that the bound sees, flat, and ``effects`` the rest, which is added back at the
    end: zero for ``linf``. ``contrasts`` (K, P) maps tables to (theta_p - theta_q) / 2; contrast k belongs to slot
    ``slots[k]``, which is 2e for R_ij and 2e + 1 for R_ji of edge e = (i, j).
    """

    def __init__(self, model: MarkovRandomField, limit: float, norm: Norm, dependency: Bound, alpha: float) -> None:
        from scipy import sparse

        self.model = model
        self.limit = limit
        self.norm = norm
        self.dependency = dependency
        self.psi = self.interaction(model.log_pairwise)
        self.effects = model.log_pairwise - self.psi
        #: The edge of every entry of the tables.
        self.table = np.repeat(np.arange(model.num_edges), np.diff(model.pairwise_offsets))
        self.ball: Ball = InfBall(model, limit, alpha) if norm == "inf" else SpectralBall(model, limit, alpha)

        entries, self.slots = _contrast_entries(model)
        k = len(entries)
        self.num_contrasts = k
        matrix = (np.tile([0.5, -0.5], k), entries.reshape(-1), 2 * np.arange(k + 1))
        self.contrasts = sparse.csr_matrix(matrix, shape=(k, len(self.psi)))
        self.transposed = self.contrasts.T.tocsr()

        self.size = 2 * k + self.ball.num_extra
        self.lowest = np.concatenate([np.zeros(2 * k), np.full(self.ball.num_extra, -np.inf)])
        self.evaluations = 0

    def interaction(self, tables: FloatArray) -> FloatArray:
        """Tables without effects that do not count: for ``range``, all rows and columns get mean zero."""
        if self.dependency == "linf":
            return tables
        return interactions(self.model, tables, self.dependency)

    def dependencies(self, tables: FloatArray) -> FloatArray:
        """The bound on R of every edge, the larger of both directions."""
        model = self.model.replace(log_pairwise=tables)
        return edge_dependencies(model, dependency=self.dependency).max(axis=1, initial=0.0)

    def norm_of(self, z: FloatArray) -> float:
        """The norm of the symmetric non-negative matrix with z on the edges."""
        return matrix_norm(to_matrix(self.model, z), self.norm)

    def repaired(self, theta: FloatArray) -> tuple[FloatArray, float]:
        """Tables near theta that meet the bound, effects added, and their squared distance from the given ones.

        Tables shrink toward their means, ``mean + s (theta - mean)``, which multiplies every contrast by s. For the
        infinity norm only the tables at rows that are over the bound shrink.
        """
        theta = self.interaction(theta)
        mean = (np.bincount(self.table, theta) / np.bincount(self.table))[self.table]
        r = self.dependencies(self.effects + theta)
        if self.norm == "inf":
            sums = np.asarray(to_matrix(self.model, r).sum(axis=1))
            factors = (self.limit / np.maximum(sums, self.limit))[self.model.edges].min(axis=1)
        else:
            factors = np.full(len(r), self.limit / max(self.norm_of(r), self.limit))
        tables = self.effects + (mean + (theta - mean) * factors[self.table])
        return tables, float(np.sum((tables - self.model.log_pairwise) ** 2))

    def evaluate(self, x: FloatArray, y: FloatArray) -> Point:
        """The minimizers theta and Z at multipliers x for one Y, and the gradient of the dual."""
        self.evaluations += 1
        sigma, phi, extra = np.split(x, [self.num_contrasts, 2 * self.num_contrasts])

        # The tables.
        force = self.transposed @ (sigma - phi)
        theta = self.psi - 0.5 * force

        # The matrix Z: the point of the ball next to Y + Lambda / (2 alpha).
        ball = self.ball
        sums = np.bincount(self.slots, sigma + phi, 2 * self.model.num_edges).astype(np.float64, copy=False)
        price = ball.spread(sums, extra)
        shifted = ball.target(y) + price / (2.0 * ball.alpha)
        entries, found = ball.project(shifted)
        normal = 2.0 * ball.alpha * (shifted - entries)
        z, extra_gradient = ball.gather(entries)

        contrast = self.contrasts @ theta
        of_contrast = z[self.slots]
        gradient = np.concatenate([contrast - of_contrast, -contrast - of_contrast, extra_gradient])
        return Point(x.copy(), force, theta, price, entries, normal, found, z, gradient)

    def change(self, point: Point, base: Point) -> float:
        """The dual function minus its value at a base point for the same Y, to far more digits than a subtraction.

        L-BFGS-B compares values; near the top these agree in all digits long before the multipliers are accurate. From
        ``-<Lambda, Z> + alpha ||Z - Y||^2`` the difference to the base is
        ``-<dLambda, Z_0> - <dLambda, dZ> + alpha ||dZ||^2 + <2 alpha (Z_0 - Y) - Lambda_0, dZ>``.
        """
        ball = self.ball
        dx = point.x - base.x
        dz = point.entries - base.entries
        dprice = point.price - base.price
        dsigma, dphi, _ = np.split(dx, [self.num_contrasts, 2 * self.num_contrasts])
        force = self.transposed @ (dsigma - dphi)
        tables = float(base.gradient @ dx - 0.25 * force @ force)
        matrix = float(np.sum(ball.weights * dz * (ball.alpha * dz - dprice)))
        return tables + matrix + ball.descent(point, base)

    def lower_bound(self, point: Point) -> float:
        """A lower bound on the squared distance of every model within the bound, derived at the top of the module."""
        m = self.model.num_edges
        prices, cost = self.ball.prices(point)
        sigma, phi, _ = np.split(point.x, [self.num_contrasts, 2 * self.num_contrasts])
        held = np.bincount(self.slots // 2, sigma + phi, m)

        # The best multiple of the multipliers of every edge, within its price.
        slope = np.bincount(self.table, point.force * self.psi, m)
        curvature = np.bincount(self.table, 0.25 * point.force**2, m)
        best = np.divide(slope, 2.0 * curvature, out=np.zeros(m), where=curvature > 0.0)
        largest = np.divide(prices, held, out=np.zeros(m), where=held > 0.0)
        scale = np.clip(best, 0.0, largest)
        return float(np.sum(scale * (slope - scale * curvature))) - cost


def _contrast_entries(model: MarkovRandomField) -> tuple[IntArray, IntArray]:
    """The two entries (K, 2) of every contrast in the flat tables, and the slot of every contrast."""
    entries = []
    slots = []
    for edges, (num_rows, num_cols), positions in groups(model, "linf"):
        pairs = contrasts(num_rows, num_cols, "linf")[0][:, :2]
        num_along_rows = num_rows * num_cols * (num_cols - 1) // 2
        for direction, of_slot in enumerate((pairs[:num_along_rows], pairs[num_along_rows:])):
            # A table of one column has no contrasts; an entry against itself still says that Z is not negative.
            chosen = of_slot if len(of_slot) else np.zeros((1, 2), dtype=np.int64)
            entries.append(positions[:, chosen].reshape(-1, 2))
            slots.append(np.repeat(2 * edges + direction, len(chosen)))
    return np.concatenate(entries), np.concatenate(slots)
