"""The problem behind the projection of Liu and Domke, and its dual function.

:mod:`fastmix.projection.paper_dual` explains the notation and climbs it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmix.model import MarkovRandomField
from fastmix.model.build import offsets_of, table_positions
from fastmix.projection.balls import RowGroups, clip_eigenvalues

__all__ = ["Dual", "Norm", "Point", "Problem", "contrast_positions"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Norm = Literal["inf", "spectral"]


# -- the problem without multipliers ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """Tables and the norm: what can be said without multipliers.

    ``table``, ``row`` and ``col`` number the table, the row and the column of every entry, over all tables.
    ``effects`` are the parts of the given tables that do not count (zero for ``linf``), ``psi`` is the rest.
    """

    model: MarkovRandomField
    limit: float
    norm: Norm
    centred: bool
    both_directions: bool
    table: IntArray
    row: IntArray
    col: IntArray

    @classmethod
    def of(cls, model: MarkovRandomField, limit: float, norm: Norm, dependency: str, both_directions: bool) -> Problem:
        """The problem for a model, a limit on a norm of a bound, in one direction or both."""
        table, row, col = table_positions(model.num_states, model.edges)
        rows, cols = model.num_states[model.edges].T
        row, col = offsets_of(rows)[table] + row, offsets_of(cols)[table] + col
        return cls(model, limit, norm, dependency == "range", both_directions, table, row, col)

    @cached_property
    def psi(self) -> FloatArray:
        """The part of the tables that the bound sees, flat."""
        return self.interaction(self.model.log_pairwise)

    @cached_property
    def effects(self) -> FloatArray:
        """The rest of the tables, which is added back at the end."""
        return self.model.log_pairwise - self.psi

    def interaction(self, tables: FloatArray) -> FloatArray:
        """Tables without effects that do not count: for ``range``, all rows and columns get mean zero."""
        if not self.centred:
            return tables
        result = tables.copy()
        for group in (self.row, self.col):
            result -= (np.bincount(group, result) / np.bincount(group))[group]
        return result

    def dependency(self, tables: FloatArray) -> FloatArray:
        """The bound on R of every edge, the larger of the directions in use."""
        values = self.interaction(tables)
        r = np.zeros(self.model.num_edges)
        for group in (self.row, self.col)[: 1 + self.both_directions]:
            high, low = np.full(len(values), -np.inf), np.full(len(values), np.inf)
            np.maximum.at(high, group, values)
            np.minimum.at(low, group, values)
            np.maximum.at(r, self.table, 0.5 * (high[group] - low[group]))
        return r

    def row_sums(self, z: FloatArray) -> FloatArray:
        """Sums of z over the edges at every variable."""
        i, j = self.model.edges.T
        n = self.model.num_variables
        sums = np.bincount(i, z, n) + np.bincount(j, z, n)
        return sums.astype(np.float64, copy=False)

    def norm_of(self, z: FloatArray) -> float:
        """Norm of the symmetric non-negative matrix with z on the edges."""
        if self.norm == "inf":
            return float(self.row_sums(z).max())
        matrix = np.zeros((self.model.num_variables, self.model.num_variables))
        i, j = self.model.edges.T
        matrix[j, i] = z  # the lower triangle, which is the one eigvalsh reads
        return float(np.abs(np.linalg.eigvalsh(matrix)).max())

    def scaled(self, z: FloatArray) -> FloatArray:
        """z, multiplied into the ball if it lies outside."""
        size = self.norm_of(z)
        return z * (self.limit / size) if size > self.limit else z

    def repaired(self, theta: FloatArray) -> tuple[FloatArray, float]:
        """Tables near theta that meet the bound, effects added, and their squared distance from the given ones.

        Tables shrink towards their means, ``mean + s (theta - mean)``, which multiplies every contrast by s. For the
        infinity norm only the tables at rows that are over the bound shrink.
        """
        theta = self.interaction(theta)
        mean = (np.bincount(self.table, theta) / np.bincount(self.table))[self.table]
        spread = theta - mean
        slack = 4.0 * np.finfo(np.float64).eps
        for _ in range(20):
            tables = self.effects + (mean + spread)
            r = self.dependency(tables)
            if self.norm_of(r) <= self.limit:
                break
            spread = spread * (self._factors(r) * (1.0 - slack))[self.table]
            slack *= 4.0  # rounding can leave the norm an ulp over the bound: give way a little more each time
        return tables, float(np.sum((tables - self.model.log_pairwise) ** 2))

    def _factors(self, r: FloatArray) -> FloatArray:
        if self.norm == "spectral":
            return np.full(len(r), self.limit / max(self.norm_of(r), self.limit))
        of_row = self.limit / np.maximum(self.row_sums(r), self.limit)
        return of_row[self.model.edges].min(axis=1)


def contrast_positions(model: MarkovRandomField, both_directions: bool) -> tuple[IntArray, IntArray, IntArray]:
    """For every contrast the positions p and q of its entries in the flat tables, and its slot."""
    rows, cols = model.num_states[model.edges].T
    # Edges with tables of one shape have the same contrasts, shifted to where their tables start.
    shapes, member = np.unique(np.stack([rows, cols], axis=1), axis=0, return_inverse=True)
    parts: list[list[IntArray]] = [[], [], []]
    for k, (num_rows, num_cols) in enumerate(shapes.tolist()):
        edges = np.flatnonzero(member.reshape(-1) == k)
        positions = np.arange(num_rows * num_cols).reshape(num_rows, num_cols)
        for direction, table in enumerate((positions, positions.T)[: 1 + both_directions]):
            a, b = np.triu_indices(table.shape[1], 1)
            # A table of one column has no contrasts; an entry against itself still says that Z is not negative.
            p, q = (table[:, a].reshape(-1), table[:, b].reshape(-1)) if len(a) else (table[:1, 0], table[:1, 0])
            start = model.pairwise_offsets[edges][:, None]
            parts[0].append((start + p).reshape(-1))
            parts[1].append((start + q).reshape(-1))
            parts[2].append(np.repeat(2 * edges + direction, len(p)))
    empty = np.zeros(0, dtype=np.int64)
    first, second, slots = (np.concatenate([empty, *part]) for part in parts)
    return first, second, slots


# -- the dual ---------------------------------------------------------------------------------------------------------


class _Ball(ABC):
    """The part of the dual that belongs to Z: ``min_Z -<Lambda, Z> + alpha ||Z - Y||^2`` over ``||Z|| <= c``.

    Matrices are vectors of their free entries, with ``weights`` that make inner products those of the full matrices.
    """

    num_extra: int
    weights: FloatArray

    def __init__(self, problem: Problem, alpha: float) -> None:
        self.problem = problem
        self.alpha = alpha

    @abstractmethod
    def spread(self, sums: FloatArray, extra: FloatArray) -> FloatArray:
        """Lambda, from the sums of sigma + phi by slot and the other multipliers."""

    @abstractmethod
    def target(self, y: FloatArray) -> FloatArray:
        """Y as a vector of entries."""

    @abstractmethod
    def project(self, entries: FloatArray) -> tuple[FloatArray, Any]:
        """The nearest point of the ball and what else the projection found."""

    @abstractmethod
    def gather(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Z by slot, and the gradient by the other multipliers."""

    @abstractmethod
    def descent(self, point: Point, base: Point) -> float:
        """``<N_0, Z_0 - Z>`` >= 0 for the normal ``N_0 = 2 alpha (A_0 - Z_0)`` of the base point."""

    @abstractmethod
    def prices(self, point: Point) -> tuple[FloatArray, float]:
        """Prices u (m,) and K with ``sum_e u_e z_e <= K`` for every Z >= 0 of the ball."""

    def value(self, point: Point, y: FloatArray) -> float:
        shift = point.entries - self.target(y)
        return float(np.sum(self.weights * (self.alpha * shift**2 - point.price * point.entries)))

    def change(self, point: Point, base: Point) -> float:
        """Value at a point minus value at the base, without the part that is linear in the multipliers.

        From ``-<Lambda, Z> + alpha ||Z - Y||^2`` the difference to the base is
        ``-<dLambda, Z_0> - <dLambda, dZ> + alpha ||dZ||^2 + <2 alpha (Z_0 - Y) - Lambda_0, dZ>``.
        """
        dz = point.entries - base.entries
        dprice = point.price - base.price
        return float(np.sum(self.weights * dz * (self.alpha * dz - dprice))) + self.descent(point, base)


class _InfBall(_Ball):
    """Rows with an l1 norm of at most c: entries 2e for (i, j) and 2e + 1 for (j, i); the extra multiplier is Gamma."""

    def __init__(self, problem: Problem, alpha: float) -> None:
        super().__init__(problem, alpha)
        row = problem.model.edges.reshape(-1)
        self.num_extra = problem.model.num_edges
        self.weights = np.ones(len(row))
        self.order = np.argsort(row, kind="stable")
        self.row = row
        self.groups = RowGroups.of(offsets_of(np.bincount(row, minlength=problem.model.num_variables)))

    def spread(self, sums: FloatArray, extra: FloatArray) -> FloatArray:
        price = sums.copy()
        price[0::2] += extra
        price[1::2] -= extra
        return price

    def target(self, y: FloatArray) -> FloatArray:
        return np.repeat(y, 2)

    def project(self, entries: FloatArray) -> tuple[FloatArray, Any]:
        z = np.empty_like(entries)
        z[self.order], thresholds = self.groups.project(entries[self.order], self.problem.limit)
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
            sums = np.bincount(self.row, np.abs(point.entries), self.problem.model.num_variables)
            total += float(np.sum(threshold * (self.problem.limit - sums), where=inside))
        return total

    def prices(self, point: Point) -> tuple[FloatArray, float]:
        of_row = 2.0 * self.alpha * point.found
        return of_row[self.problem.model.edges].sum(axis=1), self.problem.limit * float(of_row.sum())


class _SpectralBall(_Ball):
    """Symmetric matrices with eigenvalues in [-c, c]: entries of the edges, of the other pairs, of the diagonal.

    The extra multiplier is Delta, for all entries but the edges.
    """

    def __init__(self, problem: Problem, alpha: float) -> None:
        super().__init__(problem, alpha)
        n, m = problem.model.num_variables, problem.model.num_edges
        free = np.triu(np.ones((n, n), dtype=bool), 1)
        first, second = problem.model.edges.T
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
        clipped, values, vectors = clip_eigenvalues(self.matrix(entries), self.problem.limit)
        return clipped[self.rows, self.cols], (values, vectors)

    def matrix(self, entries: FloatArray) -> FloatArray:
        n = self.problem.model.num_variables
        result = np.empty((n, n))
        result[self.rows, self.cols] = entries
        result[self.cols, self.rows] = entries
        return result

    def gather(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        m = self.problem.model.num_edges
        return np.repeat(z[:m], 2), -self.weights[m:] * z[m:]

    def descent(self, point: Point, base: Point) -> float:
        # With N_0 = sum_k s_k |excess_k| v_k v_k^T, s_k = +-1, it is sum_k |excess_k| v_k^T (c I - s_k Z) v_k. Z has
        # the eigenvectors of A and its clipped eigenvalues: that leaves a sum of terms that are all non-negative.
        c = self.problem.limit
        values, vectors = base.found
        over = np.abs(values) > c
        overlap = (point.found[1].T @ vectors[:, over]) ** 2
        clipped = np.clip(point.found[0], -c, c)
        room = c - np.sign(values[over]) * clipped[:, None]
        return float(np.sum((np.abs(values[over]) - c) * room * overlap)) * 2.0 * self.alpha

    def prices(self, point: Point) -> tuple[FloatArray, float]:
        m = self.problem.model.num_edges
        normal = point.normal.copy()
        normal[:m] = np.maximum(normal[:m], 0.0)
        nuclear = float(np.abs(np.linalg.eigvalsh(self.matrix(normal))).sum())
        return 2.0 * normal[:m], self.problem.limit * nuclear


class Point(NamedTuple):
    """The dual at one set of multipliers: ``force`` is w, ``price`` Lambda, ``normal`` is 2 alpha (A - Z)."""

    x: FloatArray
    difference: FloatArray
    sums: FloatArray
    force: FloatArray
    theta: FloatArray
    price: FloatArray
    entries: FloatArray
    normal: FloatArray
    found: Any
    z: FloatArray
    gradient: FloatArray


class Dual:
    """The smoothed dual function; multipliers are one vector of sigma, phi and Gamma or Delta.

    ``contrasts`` (K, P) maps tables to (theta_p - theta_q) / 2; contrast k belongs to slot ``slots[k]``, which is 2e
    for R_ij and 2e + 1 for R_ji of edge e = (i, j).
    """

    def __init__(self, problem: Problem, alpha: float) -> None:
        from scipy import sparse

        self.problem = problem
        self.ball = (_InfBall if problem.norm == "inf" else _SpectralBall)(problem, alpha)
        first, second, self.slots = contrast_positions(problem.model, problem.both_directions)
        k = len(first)
        entries = np.stack([first, second], axis=1).reshape(-1)
        values, starts = np.tile([0.5, -0.5], k), 2 * np.arange(k + 1)
        self.contrasts = sparse.csr_matrix((values, entries, starts), shape=(k, len(problem.psi)))
        self.transposed = self.contrasts.T.tocsr()
        self.num_contrasts = k
        self.size = 2 * k + self.ball.num_extra
        self.lowest = np.concatenate([np.zeros(2 * k), np.full(self.ball.num_extra, -np.inf)])
        self.evaluations = 0

    def evaluate(self, x: FloatArray, y: FloatArray) -> Point:
        """The minimisers theta and Z, and the gradient."""
        self.evaluations += 1
        ball, k = self.ball, self.num_contrasts
        sigma, phi = x[:k], x[k : 2 * k]
        difference = sigma - phi
        force = self.transposed @ difference
        theta = self.problem.psi - 0.5 * force
        sums = np.bincount(self.slots, sigma + phi, 2 * self.problem.model.num_edges).astype(np.float64, copy=False)
        price = ball.spread(sums, x[2 * k :])
        shifted = ball.target(y) + price / (2.0 * ball.alpha)
        entries, found = ball.project(shifted)
        z, extra_gradient = ball.gather(entries)
        contrast = self.contrasts @ theta
        of_contrast = z[self.slots]
        gradient = np.concatenate([contrast - of_contrast, -contrast - of_contrast, extra_gradient])
        normal = 2.0 * ball.alpha * (shifted - entries)
        return Point(x.copy(), difference, sums, force, theta, price, entries, normal, found, z, gradient)

    def value(self, point: Point, y: FloatArray) -> float:
        """The dual function."""
        tables = float(point.force @ self.problem.psi - 0.25 * point.force @ point.force)
        return tables + self.ball.value(point, y)

    def change(self, point: Point, base: Point) -> float:
        """The dual function minus its value at a base point for the same Y, to far more digits than a subtraction.

        L-BFGS-B compares values; near the top these agree in all digits long before the multipliers are accurate.
        """
        force = self.transposed @ (point.difference - base.difference)
        return float(base.gradient @ (point.x - base.x) - 0.25 * force @ force) + self.ball.change(point, base)

    def lower_bound(self, point: Point) -> float:
        """A lower bound on the squared distance of every model that meets the bound, see :func:`project_paper`."""
        m = self.problem.model.num_edges
        prices, cost = self.ball.prices(point)
        held = point.sums[0::2] + point.sums[1::2]
        slope = np.bincount(self.problem.table, point.force * self.problem.psi, m)
        curvature = np.bincount(self.problem.table, 0.25 * point.force**2, m)
        best = np.divide(slope, 2.0 * curvature, out=np.zeros(m), where=curvature > 0.0)
        most = np.divide(prices, held, out=np.zeros(m), where=held > 0.0)
        scale = np.clip(best, 0.0, most)
        return float(np.sum(scale * (slope - scale * curvature))) - cost
