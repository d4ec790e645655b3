"""The constant of the path from independent variables to a binary model, for sparse graphs.

Scale all couplings of a binary model by s from 0 to 1. With w the width and K(s) at least the largest eigenvalue of
the covariance matrix of the spins at s, whatever the fields, the entropy of every function is at most
``exp(w * integral of K)`` times the sum of its conditional entropies (Chen and Eldan 2022, "Localization schemes"; see
docs/theory.md). K comes from sums over walks that do not turn back, and reaches the uniqueness threshold of trees.
"""

from __future__ import annotations

import heapq
import math
from functools import cached_property
from typing import Any

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix._jit import njit
from fastmix.theory import norms

__all__ = ["path_constant"]

_EPS = float(np.finfo(np.float64).eps)
_TOLERANCE = 0.05  # wanted excess of the exponent: five per cent of the constant
_MAX_POINTS = 500
_MAX_VISITS = 1.2e9  # entries that the bounds may visit, a few seconds
_REFRESH_VISITS = 2e6  # matrices up to this many entries get a vector of their own at every point


def path_constant(matrix: Any, width: float, *, clock: Clock = NO_LIMIT) -> tuple[float, float]:
    """Logarithm of the constant, and K(1), for a symmetric matrix of couplings J, csr (n, n), and its width.

    Both are infinite where the bound on the covariance is.
    K increases, so that its value at the right end of an interval bounds it there; the intervals are halved where that
    loses most.
    """
    bound = _Bounds(abs(matrix), width)
    last = bound(1.0)
    if not math.isfinite(last):
        return math.inf, last
    # Intervals by the most that they may lose, (K(right) - K(left)) * length.
    loss = last - 1.0
    intervals = [(-loss, 0.0, 1.0, 1.0, last)]
    points = 1
    limit = int(min(_MAX_POINTS, max(24, _MAX_VISITS / (bound.cost + 1.0))))
    while loss * width > _TOLERANCE and points < limit and not clock.past():
        _, left, right, low, high = heapq.heappop(intervals)
        middle = 0.5 * (left + right)
        value = min(bound(middle), high)  # K increases
        points += 1
        for begin, end, first, second in ((left, middle, low, value), (middle, right, value, high)):
            heapq.heappush(intervals, (-max(0.0, second - first) * (end - begin), begin, end, first, second))
        loss = -math.fsum(interval[0] for interval in intervals)
    integral = math.fsum((end - begin) * high for _, begin, end, _, high in intervals) * (1.0 + 8.0 * _EPS)
    return width * integral * (1.0 + 8.0 * _EPS), last


class _Bounds:
    """K(s) for one matrix of absolute couplings; vectors found at one s are used at others, too."""

    def __init__(self, size: Any, width: float) -> None:
        self._size, self._width = size, width
        self._n = size.shape[0]
        self._rows = (size.indptr.astype(np.int64), size.indices.astype(np.uint32), size.data)
        self._own = size.nnz <= _REFRESH_VISITS / 40.0
        self._vectors = [np.ones(self._n)]
        self._rounding = float(int(np.diff(size.indptr).max(initial=0)) + 16) * _EPS
        self.cost = (60.0 if self._own else 6.0) * (size.nnz + 4.0 * self._n)

    def __call__(self, s: float) -> float:
        if not self._size.nnz:
            return 1.0
        # Var(u . x) <= C sum_i u_i^2 with the constant of the width at s.
        best = 1.0 - s * self._width * (1.0 + 4.0 * _EPS)
        for vector in self._vectors:
            best = max(best, walks(*self._rows, s, vector, self._rounding))
        if self._own or len(self._vectors) == 1:
            own = self._perron(s)
            if own is not None:
                best = max(best, walks(*self._rows, s, own, self._rounding))
                if len(self._vectors) == 1:
                    self._vectors.append(own)
        return math.inf if best <= 0.0 else 1.0 / best * (1.0 + 4.0 * _EPS)

    @cached_property
    def _pattern(self) -> tuple[IntArray, ...]:
        """Rows of the entries; of a matrix with a diagonal as well, places among all of them, columns and rows."""
        from scipy.sparse import csr_array, diags_array

        size, count = self._size, self._size.nnz
        numbers = np.arange(1.0, count + self._n + 1.0)
        entries = csr_array((numbers[:count], size.indices, size.indptr), shape=size.shape)
        both = csr_array(entries + diags_array(numbers[count:]))
        rows = np.repeat(np.arange(self._n), np.diff(size.indptr))
        return rows, both.data.astype(np.int64) - 1, both.indices, both.indptr

    def _perron(self, s: float) -> FloatArray | None:
        """A vector v > 0 for which ``H v`` is large: that of the smallest eigenvalue of H."""
        from scipy.sparse import csr_array

        twice = 2.0 * s * self._size.data
        if twice.max() > 40.0:
            return None
        rows, places, *pattern = self._pattern
        back = np.bincount(rows, np.sinh(0.5 * twice) ** 2, minlength=self._n)
        # Less any number on the diagonal; by that no entry is 0.
        values = np.concatenate([0.5 * np.sinh(twice), back.max() + 1e-3 - back])
        shifted = csr_array((values[places], *pattern), shape=self._size.shape)
        if self._own:
            return norms.spectral_vector(shifted)
        vector = np.ones(self._n)
        for _ in range(40):  # power steps from the middle of the spectrum on; any positive vector is valid
            vector = shifted @ vector
            vector /= vector.max()
        return np.maximum(vector, 1e-6)


@njit(cache=True, error_model="numpy")
def walks(indptr, indices, size, s, v, rounding):  # type: ignore[no-untyped-def]
    """A lower bound on the smallest eigenvalue of H, or of ``I - tanh(s |J|)``, from v > 0; -1 where v shows nothing.

    With t = tanh(s |J|), ``H = I + diag_i(sum_j t^2 / (1 - t^2)) - t / (1 - t^2)`` is the inverse of the sum over
    walks that do not turn back of the products of t, if that is finite. For v > 0 let ``m_ij = (v_i - t v_j) / (1 -
    t^2)``. Then ``(H v)_i = v_i - sum_j t_ij m_ji`` and ``m_ij = (H v)_i + sum_{k != j} t_ik m_ki``: with m > 0 and
    H v > 0 the sums converge, and their norm is at most ``1 / min_i (H v)_i / v_i``.
    """
    turning, plain = np.inf, np.inf
    for i in range(len(indptr) - 1):
        total, straight, scale = 0.0, 0.0, 1.0
        for p in range(indptr[i], indptr[i + 1]):
            ratio = v[indices[p]] / v[i]
            x = s * size[p]
            t = np.tanh(x)
            straight += t * ratio
            if x > 20.0 or not t * ratio < 1.0 - 8.0 * rounding:  # m_ji is that of the neighbor: both are asked
                turning = -1.0
            else:
                e = np.exp(2.0 * x)
                forth, back = 0.25 * (e - 1.0 / e) * ratio, 0.25 * (e + 1.0 / e) - 0.5
                total += forth - back
                scale += forth + back + 0.5 * ratio + 1.0
        turning = min(turning, 1.0 - total - rounding * scale)
        plain = min(plain, 1.0 - straight * (1.0 + rounding) - rounding)
    return max(turning, plain)
