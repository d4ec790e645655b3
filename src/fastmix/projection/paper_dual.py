"""The Euclidean projection of Liu and Domke (2014): a smoothed dual, climbed by L-BFGS-B.

The tables of a model psi move as little as possible until a norm of the dependency bound R is at most c. A symmetric
matrix Z of upper bounds on R, zero outside the edges, is drawn to a given matrix Y, which makes the dual smooth
(Eq. 4):

    minimise    ||theta - psi||^2 + alpha ||Z - Y||_F^2
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
from fastmix._jit import njit
from fastmix._memory import check_memory
from fastmix.errors import UnfitMethodError
from fastmix.model import MarkovRandomField
from fastmix.model.build import offsets_of
from fastmix.projection.edges import check_finite, contrasts, groups, interactions
from fastmix.projection.euclidean import Solution, Target, repeat
from fastmix.theory.dependency import Dependency, edge_dependencies, to_matrix
from fastmix.theory.norms import Norm, matrix_norm

__all__ = ["Dual", "PaperDual", "Point", "clip_eigenvalues", "shrink_rows", "solve_paper"]

_MEMORY = 20  # pairs of vectors that L-BFGS-B keeps
_MAX_RESTARTS = 10  # of one smoothed step, each with the values measured from a nearer point


@dataclass(frozen=True)
class PaperDual:
    """How to run the projection of Liu and Domke.

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
        Most L-BFGS-B iterations in one smoothed step, and most smoothed steps.

    Notes
    -----
    For the infinity and the spectral norm, and models with two states under the dependency bound ``range``. With L
    states an edge has L^2 (L - 1) contrasts, each with two multipliers; an evaluation costs O(m L^3), plus, for the
    infinity norm, sorting the rows of Z, O(m log d), and for the spectral norm, which has another n (n + 1) / 2 - m
    multipliers, an eigenvalue decomposition, O(n^3).

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
            object.__setattr__(self, name, check_positive(name, getattr(self, name)))
        keep_checked(self, exact=check_flag("exact", self.exact))
        for name in ("max_inner", "max_outer"):
            object.__setattr__(self, name, check_count(name, getattr(self, name), least=1))


def solve_paper(
    model: MarkovRandomField, norm: Norm, dependency: Dependency, settings: PaperDual, target: Target
) -> tuple[Solution, FloatArray]:
    """A solution and the flat tables nearest to those of a model, feasible whether it converged or not.

    What the iteration leaves over is taken off by shrinking tables towards their means. ``multipliers`` of the solution
    are sigma, phi, Gamma (infinity norm) or Delta (spectral norm), and Z, which is the Y of the next step; ``facts``
    are the iterations of L-BFGS-B and the evaluations of the dual. A start of another shape counts as none.
    """
    check_finite(model)
    counts = model.num_states[model.edges]
    if dependency == "range" and (unfit := (counts.min(axis=1) > 1) & (counts.max(axis=1) > 2)).any():
        i, j = model.edges[int(np.flatnonzero(unfit)[0])].tolist()
        raise UnfitMethodError(
            "the dual of Liu and Domke is written for the bound 'linf', which is the bound 'range' for two states "
            f"only; edge ({i}, {j}) joins {model.num_states[i]} and {model.num_states[j]} states: "
            "use dependency='linf' or another method"
        )
    norm = "inf" if norm == "1" else norm
    _check_memory(model, norm)
    dual = Dual(model, target.cap, norm, dependency, settings.alpha)
    x, y = np.zeros(dual.size), dual.dependencies(model.log_pairwise)
    y *= min(1.0, dual.limit / max(dual.norm_of(y), 1e-300))
    if target.start is not None and target.start.shape == (dual.size + model.num_edges,):
        x, y = np.split(target.start, [dual.size])
    target = replace(target, max_iter=min(settings.max_outer, target.max_iter))
    return (_proximal_point if settings.exact else _smoothed_step)(dual, x, y, settings, target)


def _proximal_point(
    dual: Dual, x: FloatArray, y: FloatArray, settings: PaperDual, target: Target
) -> tuple[Solution, FloatArray]:
    """Smoothed steps with Y <- Z until the gap is closed."""
    tables, objective = dual.repaired(dual.psi)
    solution = Solution(y, x, objective, 0.0, converged=objective <= target.tol * (1.0 + objective))
    accuracy, inner, stalled = settings.inner_tol * dual.limit, 0, 0

    def step() -> bool:
        nonlocal x, y, tables, accuracy, inner, stalled
        x, used = _maximise(dual, x, y, accuracy, settings.max_inner, target.clock)
        inner += used
        point = dual.evaluate(x, y)
        found, value = dual.repaired(point.theta)
        tables = found if value < solution.primal else tables
        gap = solution.primal - solution.dual
        solution.iterations += 1
        done = solution.update(value, dual.lower_bound(point), point.by_edge, target.tol)
        # An inner error well below the size of the step keeps the rate of the exact iteration.
        accuracy = min(accuracy, 0.1 * float(np.abs(point.by_edge - y).max()))
        y = point.by_edge
        stalled = stalled + 1 if used == 0 and solution.primal - solution.dual >= gap else 0
        return done or stalled == 3

    if not solution.converged:
        repeat(step, solution, target)
    return _finished(solution, dual, x, y, inner), tables


def _smoothed_step(
    dual: Dual, x: FloatArray, y: FloatArray, settings: PaperDual, target: Target
) -> tuple[Solution, FloatArray]:
    """One smoothed projection, until every constraint ``Z >= R`` holds to ``tol`` times the norm bound.

    L-BFGS-B is restarted where the rounding of the dual function stops it early.
    """
    accuracy = target.tol * dual.limit
    inner = 0
    for _ in range(_MAX_RESTARTS):
        x, used = _maximise(dual, x, y, accuracy, settings.max_inner - inner, target.clock)
        inner += used
        point = dual.evaluate(x, y)
        residual = float(np.abs(np.maximum(point.gradient, dual.lowest - x)).max())
        if residual <= accuracy or used == 0 or inner >= settings.max_inner or target.clock.past():
            break
    tables, objective = dual.repaired(point.theta)
    solution = Solution(point.by_edge, x, iterations=1)
    solution.update(objective, max(0.0, dual.lower_bound(point)), point.by_edge, target.tol)
    solution.converged = residual <= accuracy
    solution.late = not solution.converged and target.clock.past()
    return _finished(solution, dual, x, point.by_edge, inner), tables


def _finished(solution: Solution, dual: Dual, x: FloatArray, z: FloatArray, inner: int) -> Solution:
    solution.z, solution.multipliers = z, np.concatenate([x, z])
    solution.facts = {"inner_iterations": inner, "evaluations": dual.evaluations}
    return solution


def _maximise(
    dual: Dual, x: FloatArray, y: FloatArray, accuracy: float, max_iterations: int, clock: Clock
) -> tuple[FloatArray, int]:
    """Multipliers that maximise the smoothed dual for one Y, and the iterations of L-BFGS-B."""
    from scipy.optimize import Bounds, minimize

    base = dual.evaluate(x, y)

    def loss(candidate: FloatArray) -> tuple[float, FloatArray]:
        if np.array_equal(candidate, base.x):
            return 0.0, -base.gradient
        point = dual.evaluate(candidate, y)
        return -dual.change(point, base), -point.gradient

    def stop(_: FloatArray) -> None:
        if clock.past():
            raise StopIteration

    options: dict[str, float] = {"maxcor": _MEMORY, "maxiter": max_iterations, "maxfun": 20 * max_iterations + 20}
    options |= {"maxls": 40, "ftol": 0.0, "gtol": accuracy}
    bounds = Bounds(dual.lowest, np.full(dual.size, np.inf))
    answer = minimize(loss, x, jac=True, method="L-BFGS-B", bounds=bounds, options=options, callback=stop)
    return np.maximum(answer.x, dual.lowest), int(answer.nit)


def _check_memory(model: MarkovRandomField, norm: str) -> None:
    """Refuse a dual whose multipliers, or the matrices of the spectral norm, do not fit."""
    n, m = model.num_variables, model.num_edges
    rows, cols = model.num_states[model.edges].T
    num_contrasts = int(np.maximum(rows * cols * (cols - 1) // 2, 1).sum())
    num_contrasts += int(np.maximum(rows * cols * (rows - 1) // 2, 1).sum())
    size = 2 * num_contrasts + (m if norm == "inf" else n * (n + 1) // 2 - m)
    # A few matrices for decompositions; 2 _MEMORY + 5 vectors in L-BFGS-B and ten around it; contrasts in sparse form.
    required = 8.0 * ((2 * _MEMORY + 15) * size + 12 * num_contrasts) + (80.0 * n * n if norm == "spectral" else 0.0)
    way_out = "use solver='fast', which has no multiplier per contrast"
    check_memory(required, f"the dual of Liu and Domke with {size:.3g} multipliers", way_out)


# -- the dual -------------------------------------------------------------------------------------------------------


class Point(NamedTuple):
    """The dual at one set of multipliers: ``force`` is w, ``price`` Lambda, ``normal`` is 2 alpha (A - Z)."""

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
        """Z of every edge."""
        return 0.5 * (self.z[0::2] + self.z[1::2])


class Dual:
    """The smoothed dual function; multipliers are one vector of sigma, phi and Gamma or Delta.

    ``psi`` is the part of the tables that the bound sees, flat, and ``effects`` the rest, which is added back at the
    end: zero for ``linf``. ``contrasts`` (K, P) maps tables to (theta_p - theta_q) / 2; contrast k belongs to slot
    ``slots[k]``, which is 2e for R_ij and 2e + 1 for R_ji of edge e = (i, j).
    """

    def __init__(
        self, model: MarkovRandomField, limit: float, norm: Norm, dependency: Dependency, alpha: float
    ) -> None:
        from scipy import sparse

        self.model, self.limit, self.norm, self.dependency = model, limit, norm, dependency
        self.psi = self.interaction(model.log_pairwise)
        self.effects = model.log_pairwise - self.psi
        self.table = np.repeat(np.arange(model.num_edges), np.diff(model.pairwise_offsets))  # the edge of every entry
        self.ball = (_InfBall if norm == "inf" else _SpectralBall)(model, limit, alpha)
        entries, self.slots = _contrast_entries(model)
        self.num_contrasts = k = len(entries)
        values, starts = np.tile([0.5, -0.5], k), 2 * np.arange(k + 1)
        self.contrasts = sparse.csr_matrix((values, entries.reshape(-1), starts), shape=(k, len(self.psi)))
        self.transposed = self.contrasts.T.tocsr()
        self.size = 2 * k + self.ball.num_extra
        self.lowest = np.concatenate([np.zeros(2 * k), np.full(self.ball.num_extra, -np.inf)])
        self.evaluations = 0

    def interaction(self, tables: FloatArray) -> FloatArray:
        """Tables without effects that do not count: for ``range``, all rows and columns get mean zero."""
        return tables if self.dependency == "linf" else interactions(self.model, tables, self.dependency)

    def dependencies(self, tables: FloatArray) -> FloatArray:
        """The bound on R of every edge, the larger of both directions."""
        model = self.model.replace(log_pairwise=tables)
        return edge_dependencies(model, dependency=self.dependency).max(axis=1, initial=0.0)

    def norm_of(self, z: FloatArray) -> float:
        """Norm of the symmetric non-negative matrix with z on the edges."""
        return matrix_norm(to_matrix(self.model, z), self.norm)

    def repaired(self, theta: FloatArray) -> tuple[FloatArray, float]:
        """Tables near theta that meet the bound, effects added, and their squared distance from the given ones.

        Tables shrink towards their means, ``mean + s (theta - mean)``, which multiplies every contrast by s. For the
        infinity norm only the tables at rows that are over the bound shrink.
        """
        theta = self.interaction(theta)
        mean = (np.bincount(self.table, theta) / np.bincount(self.table))[self.table]
        r = self.dependencies(self.effects + theta)
        factors = np.full(len(r), self.limit / max(self.norm_of(r), self.limit))
        if self.norm == "inf":
            sums = np.asarray(to_matrix(self.model, r).sum(axis=1))
            factors = (self.limit / np.maximum(sums, self.limit))[self.model.edges].min(axis=1)
        tables = self.effects + (mean + (theta - mean) * factors[self.table])
        return tables, float(np.sum((tables - self.model.log_pairwise) ** 2))

    def evaluate(self, x: FloatArray, y: FloatArray) -> Point:
        """The minimisers theta and Z, and the gradient."""
        self.evaluations += 1
        ball, k = self.ball, self.num_contrasts
        sigma, phi = x[:k], x[k : 2 * k]
        force = self.transposed @ (sigma - phi)
        theta = self.psi - 0.5 * force
        sums = np.bincount(self.slots, sigma + phi, 2 * self.model.num_edges).astype(np.float64, copy=False)
        price = ball.spread(sums, x[2 * k :])
        shifted = ball.target(y) + price / (2.0 * ball.alpha)
        entries, found = ball.project(shifted)
        z, extra_gradient = ball.gather(entries)
        contrast = self.contrasts @ theta
        of_contrast = z[self.slots]
        gradient = np.concatenate([contrast - of_contrast, -contrast - of_contrast, extra_gradient])
        normal = 2.0 * ball.alpha * (shifted - entries)
        return Point(x.copy(), force, theta, price, entries, normal, found, z, gradient)

    def change(self, point: Point, base: Point) -> float:
        """The dual function minus its value at a base point for the same Y, to far more digits than a subtraction.

        L-BFGS-B compares values; near the top these agree in all digits long before the multipliers are accurate. From
        ``-<Lambda, Z> + alpha ||Z - Y||^2`` the difference to the base is
        ``-<dLambda, Z_0> - <dLambda, dZ> + alpha ||dZ||^2 + <2 alpha (Z_0 - Y) - Lambda_0, dZ>``.
        """
        ball, k, dx = self.ball, self.num_contrasts, point.x - base.x
        force = self.transposed @ (dx[:k] - dx[k : 2 * k])
        tables = float(base.gradient @ dx - 0.25 * force @ force)
        dz, dprice = point.entries - base.entries, point.price - base.price
        return tables + float(np.sum(ball.weights * dz * (ball.alpha * dz - dprice))) + ball.descent(point, base)

    def lower_bound(self, point: Point) -> float:
        """A lower bound on the squared distance of every model that meets the bound, see the module."""
        m, table = self.model.num_edges, self.table
        prices, cost = self.ball.prices(point)
        k = self.num_contrasts
        held = np.bincount(self.slots // 2, point.x[:k] + point.x[k : 2 * k], m)
        slope = np.bincount(table, point.force * self.psi, m)
        curvature = np.bincount(table, 0.25 * point.force**2, m)
        best = np.divide(slope, 2.0 * curvature, out=np.zeros(m), where=curvature > 0.0)
        most = np.divide(prices, held, out=np.zeros(m), where=held > 0.0)
        scale = np.clip(best, 0.0, most)
        return float(np.sum(scale * (slope - scale * curvature))) - cost


def _contrast_entries(model: MarkovRandomField) -> tuple[IntArray, IntArray]:
    """For every contrast its two entries (K, 2) in the flat tables, and its slot."""
    parts, slots = [], []
    for edges, (rows, cols), places in groups(model, "linf"):
        pairs, along_rows = contrasts(rows, cols, "linf")[0][:, :2], rows * cols * (cols - 1) // 2
        for direction, chosen in enumerate((pairs[:along_rows], pairs[along_rows:])):
            # A table of one column has no contrasts; an entry against itself still says that Z is not negative.
            chosen = chosen if len(chosen) else np.zeros((1, 2), dtype=np.int64)
            parts.append(places[:, chosen].reshape(-1, 2))
            slots.append(np.repeat(2 * edges + direction, len(chosen)))
    return np.concatenate(parts), np.concatenate(slots)


class _InfBall:
    """Rows with an l1 norm of at most c: entries 2e for (i, j) and 2e + 1 for (j, i); the extra multiplier is Gamma.

    Section 5.3. A ball is the part of the dual that belongs to Z: ``min_Z -<Lambda, Z> + alpha ||Z - Y||^2`` over
    ``||Z|| <= c``. Matrices are vectors of their free entries, with ``weights`` that make inner products those of the
    full matrices. ``spread`` gives Lambda from the sums of sigma + phi by slot and the other multipliers, ``target`` Y
    as entries, ``project`` the nearest point of the ball and what else was found, ``gather`` Z by slot and the gradient
    by the other multipliers, ``descent`` is ``<N_0, Z_0 - Z>`` >= 0 for the normal ``N_0 = 2 alpha (A_0 - Z_0)`` of a
    base point, and ``prices`` are u (m,) and K with ``sum_e u_e z_e <= K`` for every Z >= 0 of the ball.
    """

    def __init__(self, model: MarkovRandomField, limit: float, alpha: float) -> None:
        self.model, self.limit, self.alpha = model, limit, alpha
        self.row = model.edges.reshape(-1)
        self.num_extra = model.num_edges
        self.weights = np.ones(len(self.row))
        self.order = np.argsort(self.row, kind="stable")
        self.starts = offsets_of(np.bincount(self.row, minlength=model.num_variables))

    def spread(self, sums: FloatArray, extra: FloatArray) -> FloatArray:
        price = sums.copy()
        price[0::2] += extra
        price[1::2] -= extra
        return price

    def target(self, y: FloatArray) -> FloatArray:
        return np.repeat(y, 2)

    def project(self, entries: FloatArray) -> tuple[FloatArray, Any]:
        z = np.empty_like(entries)
        z[self.order], thresholds = shrink_rows(self.starts, entries[self.order], self.limit)
        return z, thresholds

    def gather(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        return z, z[1::2] - z[0::2]

    def descent(self, point: Point, base: Point) -> float:
        # N_0 is the threshold, with a sign, where Z_0 is not zero. Written without differences of nearly equal numbers
        # the sum is exactly zero while the supports stay the same; the precision of L-BFGS-B hangs on it.
        threshold = 2.0 * self.alpha * base.found
        of_entry = threshold[self.row]
        normal = np.where(base.entries != 0.0, np.copysign(of_entry, base.entries), base.normal)
        total = float(np.sum(of_entry * np.abs(point.entries) - normal * point.entries, where=of_entry > 0.0))
        # Rows that have left the boundary of the ball since.
        if (inside := (threshold > 0.0) & (point.found == 0.0)).any():
            sums = np.bincount(self.row, np.abs(point.entries), self.model.num_variables)
            total += float(np.sum(threshold * (self.limit - sums), where=inside))
        return total

    def prices(self, point: Point) -> tuple[FloatArray, float]:
        of_row = 2.0 * self.alpha * point.found
        return of_row[self.model.edges].sum(axis=1), self.limit * float(of_row.sum())


class _SpectralBall:
    """Symmetric matrices with eigenvalues in [-c, c]: entries of the edges, of the other pairs, of the diagonal.

    The extra multiplier is Delta, for all entries but the edges (section 5.2).
    """

    def __init__(self, model: MarkovRandomField, limit: float, alpha: float) -> None:
        self.model, self.limit, self.alpha = model, limit, alpha
        n, m = model.num_variables, model.num_edges
        free = np.triu(np.ones((n, n), dtype=bool), 1)
        first, second = model.edges.T
        free[first, second] = False
        i, j = np.nonzero(free)
        self.num_extra = len(i) + n
        self.rows = np.concatenate([first, i, np.arange(n)])
        self.cols = np.concatenate([second, j, np.arange(n)])
        self.weights = np.concatenate([np.full(m + len(i), 2.0), np.ones(n)])

    def spread(self, sums: FloatArray, extra: FloatArray) -> FloatArray:
        # Gamma at its best makes Lambda symmetric: both entries of an edge get the mean of their sums.
        return np.concatenate([0.5 * (sums[0::2] + sums[1::2]), extra])

    def target(self, y: FloatArray) -> FloatArray:
        return np.concatenate([y, np.zeros(self.num_extra)])

    def project(self, entries: FloatArray) -> tuple[FloatArray, Any]:
        clipped, values, vectors = clip_eigenvalues(self.matrix(entries), self.limit)
        return clipped[self.rows, self.cols], (values, vectors)

    def matrix(self, entries: FloatArray) -> FloatArray:
        n = self.model.num_variables
        result = np.empty((n, n))
        result[self.rows, self.cols] = entries
        result[self.cols, self.rows] = entries
        return result

    def gather(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        m = self.model.num_edges
        return np.repeat(z[:m], 2), -self.weights[m:] * z[m:]

    def descent(self, point: Point, base: Point) -> float:
        # With N_0 = sum_k s_k |excess_k| v_k v_k^T, s_k = +-1, it is sum_k |excess_k| v_k^T (c I - s_k Z) v_k. Z has
        # the eigenvectors of A and its clipped eigenvalues: that leaves a sum of terms that are all non-negative.
        c = self.limit
        values, vectors = base.found
        over = np.abs(values) > c
        overlap = (point.found[1].T @ vectors[:, over]) ** 2
        clipped = np.clip(point.found[0], -c, c)
        room = c - np.sign(values[over]) * clipped[:, None]
        return float(np.sum((np.abs(values[over]) - c) * room * overlap)) * 2.0 * self.alpha

    def prices(self, point: Point) -> tuple[FloatArray, float]:
        m = self.model.num_edges
        normal = point.normal.copy()
        normal[:m] = np.maximum(normal[:m], 0.0)
        nuclear = float(np.abs(np.linalg.eigvalsh(self.matrix(normal))).sum())
        return 2.0 * normal[:m], self.limit * nuclear


def clip_eigenvalues(matrix: FloatArray, radius: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """A symmetric matrix with its eigenvalues clipped to ``[-radius, radius]``; eigenvalues and vectors before that.

    It is the matrix of spectral norm at most ``radius`` nearest to the given one in Frobenius norm, symmetric again.
    """
    values, vectors = np.linalg.eigh(matrix)
    over = np.abs(values) > radius
    if not over.any():
        return matrix.copy(), values, vectors
    excess = values[over] - np.copysign(radius, values[over])
    result = matrix - (vectors[:, over] * excess) @ vectors[:, over].T
    return 0.5 * (result + result.T), values, vectors


@njit(cache=True)
def shrink_rows(starts, values, radius):  # type: ignore[no-untyped-def]
    """Entries of a sparse matrix, rows ``starts[i]:starts[i + 1]``, projected onto the l1 ball row by row; thresholds.

    Every entry v of a row moves towards zero by the same threshold ``tau`` (0 for rows in the ball) and stops there,
    ``w = sign(v) max(|v| - tau, 0)``, where ``tau`` makes the sum of ``|w|`` equal to the radius. With the magnitudes
    in descending order and ``S_k`` the sum of the first k, ``tau = max_k (S_k - radius) / k`` (Duchi, Shalev-Shwartz,
    Singer and Chandra, 2008).
    """
    result, thresholds = values.copy(), np.zeros(len(starts) - 1)
    for i in range(len(thresholds)):
        row = values[starts[i] : starts[i + 1]]
        size = np.abs(row)
        if size.sum() <= radius:
            continue
        # Seen from its largest entry a row keeps all digits of the answer, even where that entry dwarfs the radius.
        # Entries more than a radius below it become zero in any case, and are raised to keep the sums small.
        top = size.max()
        size = np.maximum(size - top, -radius)
        tau, total = -np.inf, 0.0
        for count, value in enumerate(np.sort(size)[::-1]):
            total += value
            tau = max(tau, (total - radius) / (count + 1))
        for k in range(len(row)):
            result[starts[i] + k] = np.copysign(max(size[k] - tau, 0.0), row[k]) + 0.0
        thresholds[i] = tau + top
    return result, thresholds
