"""The part of the paper's dual that belongs to the matrix Z: balls of the infinity and of the spectral norm.

A ball solves ``min_Z -<Lambda, Z> + alpha ||Z - Y||^2`` over ``||Z|| <= c`` for the smoothed dual of
:mod:`fastmix.projection.paper_dual`. Matrices are vectors of their free entries, with ``weights`` that make inner
products those of the full matrices.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._jit import outer
from fastmix.model import MarkovRandomField
from fastmix.model.flat import offsets_of

if TYPE_CHECKING:
    from fastmix.projection.paper_dual import Point

__all__ = ["Ball", "InfBall", "SpectralBall", "clip_eigenvalues", "shrink_rows"]


class Ball(ABC):
    """Matrices of norm at most c, by their free entries.

    ``found`` is what a projection onto the ball finds beside the nearest point; each ball has its own.

    Attributes
    ----------
    num_extra : int
        The number of multipliers beside sigma and phi.
    weights : float array
        What the square of every free entry counts in a Frobenius norm.
    """

    num_extra: int
    weights: FloatArray

    def __init__(self, model: MarkovRandomField, limit: float, alpha: float) -> None:
        self.model = model
        self.limit = limit
        self.alpha = alpha

    @abstractmethod
    def spread(self, sums: FloatArray, extra: FloatArray) -> FloatArray:
        """Lambda as entries, from the sums of sigma + phi by slot and the other multipliers."""

    @abstractmethod
    def target(self, y: FloatArray) -> FloatArray:
        """Y as entries, from a value for every edge."""

    @abstractmethod
    def project(self, entries: FloatArray) -> tuple[FloatArray, Any]:
        """The nearest point of the ball, and what else was found."""

    @abstractmethod
    def gather(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Z by slot, from its entries, and the gradient by the other multipliers."""

    @abstractmethod
    def descent(self, point: Point, base: Point) -> float:
        """The product ``<N_0, Z_0 - Z>`` >= 0 at a point Z, with the normal ``N_0 = 2 alpha (A_0 - Z_0)`` of a base."""

    @abstractmethod
    def prices(self, point: Point) -> tuple[FloatArray, float]:
        """Prices u (m,) and a number K with ``sum_e u_e z_e <= K`` for every Z >= 0 of the ball."""


class InfBall(Ball):
    """Matrices whose rows have an l1 norm of at most c: entries 2e for (i, j) and 2e + 1 for (j, i) of every edge e.

    The extra multiplier is Gamma, and ``found`` are the thresholds of the rows (section 5.3 of the paper).
    """

    def __init__(self, model: MarkovRandomField, limit: float, alpha: float) -> None:
        super().__init__(model, limit, alpha)
        self.row = model.edges.reshape(-1)
        self.num_extra = model.num_edges
        self.weights = np.ones(len(self.row))
        self.order = np.argsort(self.row, kind="stable")
        self.starts = offsets_of(np.bincount(self.row, minlength=model.num_variables))

    def spread(self, sums: FloatArray, extra: FloatArray) -> FloatArray:
        """Lambda as entries; Gamma is added in one direction and subtracted in the other."""
        price = sums.copy()
        price[0::2] += extra
        price[1::2] -= extra
        return price

    def target(self, y: FloatArray) -> FloatArray:
        """Y as entries, equal in both directions."""
        return np.repeat(y, 2)

    def project(self, entries: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The nearest point of the ball, and the threshold of every row."""
        z = np.empty_like(entries)
        z[self.order], thresholds = shrink_rows(self.starts, entries[self.order], self.limit)
        return z, thresholds

    def gather(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Z by slot, which is how its entries are kept, and the gradient by Gamma."""
        return z, z[1::2] - z[0::2]

    def descent(self, point: Point, base: Point) -> float:
        """The product of the base's normal with ``Z_0 - Z``, written without differences of nearly equal numbers.

        N_0 is the threshold, with a sign, where Z_0 is not zero: the sum is exactly zero while the supports stay the
        same. The precision of L-BFGS-B hangs on it.
        """
        threshold = 2.0 * self.alpha * base.found
        of_entry = threshold[self.row]
        normal = np.where(base.entries != 0.0, np.copysign(of_entry, base.entries), base.normal)
        total = float(np.sum(of_entry * np.abs(point.entries) - normal * point.entries, where=of_entry > 0.0))
        # Rows that have left the boundary of the ball since.
        inside = (threshold > 0.0) & (point.found == 0.0)
        if inside.any():
            sums = np.bincount(self.row, np.abs(point.entries), self.model.num_variables)
            total += float(np.sum(threshold * (self.limit - sums), where=inside))
        return total

    def prices(self, point: Point) -> tuple[FloatArray, float]:
        """Prices from the thresholds of the rows of both ends."""
        of_row = 2.0 * self.alpha * point.found
        return of_row[self.model.edges].sum(axis=1), self.limit * float(of_row.sum())


class SpectralBall(Ball):
    """Symmetric matrices with eigenvalues in [-c, c]: entries of the edges, of the other pairs, of the diagonal.

    The extra multiplier is Delta, for all entries but the edges, and ``found`` are eigenvalues and eigenvectors
    before they are clipped (section 5.2 of the paper).
    """

    def __init__(self, model: MarkovRandomField, limit: float, alpha: float) -> None:
        super().__init__(model, limit, alpha)
        n = model.num_variables
        first, second = model.edges.T
        free = np.triu(np.ones((n, n), dtype=bool), 1)
        free[first, second] = False
        i, j = np.nonzero(free)
        self.num_extra = len(i) + n
        self.rows = np.concatenate([first, i, np.arange(n)])
        self.cols = np.concatenate([second, j, np.arange(n)])
        self.weights = np.concatenate([np.full(model.num_edges + len(i), 2.0), np.ones(n)])

    def spread(self, sums: FloatArray, extra: FloatArray) -> FloatArray:
        """Lambda as entries: Gamma at its best makes it symmetric, so that an edge gets the mean of both sums."""
        return np.concatenate([0.5 * (sums[0::2] + sums[1::2]), extra])

    def target(self, y: FloatArray) -> FloatArray:
        """Y as entries, zero outside the edges."""
        return np.concatenate([y, np.zeros(self.num_extra)])

    def project(self, entries: FloatArray) -> tuple[FloatArray, tuple[FloatArray, FloatArray]]:
        """The nearest point of the ball, and eigenvalues and eigenvectors of the matrix given."""
        clipped, values, vectors = clip_eigenvalues(self.matrix(entries), self.limit)
        return clipped[self.rows, self.cols], (values, vectors)

    def matrix(self, entries: FloatArray) -> FloatArray:
        """The full symmetric matrix (n, n) of some entries."""
        n = self.model.num_variables
        result = np.empty((n, n))
        result[self.rows, self.cols] = entries
        result[self.cols, self.rows] = entries
        return result

    def gather(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Z by slot, equal in both directions, and the gradient by Delta."""
        m = self.model.num_edges
        return np.repeat(z[:m], 2), -self.weights[m:] * z[m:]

    def descent(self, point: Point, base: Point) -> float:
        """The product of the base's normal with ``Z_0 - Z``, as a sum of terms that are all non-negative.

        With N_0 = sum_k s_k |excess_k| v_k v_k^T, s_k = +-1, it is sum_k |excess_k| v_k^T (c I - s_k Z) v_k, and Z has
        the eigenvectors of A and its clipped eigenvalues.
        """
        values, vectors = point.found
        base_values, base_vectors = base.found
        c = self.limit
        over = np.abs(base_values) > c
        overlap = (vectors.T @ base_vectors[:, over]) ** 2
        clipped = np.clip(values, -c, c)
        room = c - np.sign(base_values[over]) * clipped[:, None]
        return float(np.sum((np.abs(base_values[over]) - c) * room * overlap)) * 2.0 * self.alpha

    def prices(self, point: Point) -> tuple[FloatArray, float]:
        """Prices from the entries of the normal on edges, where they are positive, and its nuclear norm."""
        m = self.model.num_edges
        corrected = point.normal.copy()
        corrected[:m] = np.maximum(corrected[:m], 0.0)
        nuclear = float(np.abs(np.linalg.eigvalsh(self.matrix(corrected))).sum())
        return 2.0 * corrected[:m], self.limit * nuclear


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


def shrink_rows(starts: IntArray, values: FloatArray, radius: float) -> tuple[FloatArray, FloatArray]:
    """Entries of a sparse matrix, rows ``starts[i]:starts[i + 1]``, projected onto the l1 ball row by row; thresholds.

    Every entry v of a row moves toward zero by the same threshold ``tau`` (0 for rows in the ball) and stops there,
    ``w = sign(v) max(|v| - tau, 0)``, where ``tau`` makes the sum of ``|w|`` equal to the radius. With the magnitudes
    in descending order and ``S_k`` the sum of the first k, ``tau = max_k (S_k - radius) / k`` (Duchi, Shalev-Shwartz,
    Singer and Chandra, 2008).
    """
    sizes = np.abs(values)
    rows = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    descending = np.lexsort((-sizes, rows))
    result = values.copy()
    thresholds = np.zeros(len(starts) - 1)
    _shrink(starts, descending, sizes, radius, result, thresholds)
    return result, thresholds


@outer
def _shrink(starts, descending, sizes, radius, result, thresholds):  # type: ignore[no-untyped-def]
    """Project rows as :func:`shrink_rows` does; ``descending`` are their places by magnitude, the largest first."""
    for i in range(len(thresholds)):
        first = starts[i]
        end = starts[i + 1]
        whole = 0.0
        for k in range(first, end):
            whole += sizes[k]
        if whole <= radius:
            continue
        # Seen from its largest entry a row keeps all digits of the answer, even where that entry dwarfs the radius.
        # Entries more than a radius below it become zero in any case, and are raised to keep the sums small.
        top = sizes[descending[first]]
        tau = -np.inf
        total = 0.0
        for place in range(first, end):
            total += max(sizes[descending[place]] - top, -radius)
            tau = max(tau, (total - radius) / (place - first + 1))
        for k in range(first, end):
            left = max(max(sizes[k] - top, -radius) - tau, 0.0)
            result[k] = -left if result[k] < 0.0 and left > 0.0 else left
        thresholds[i] = tau + top
