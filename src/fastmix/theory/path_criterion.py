"""The criterion ``path``, for sparse binary models: ``C = exp(w * integral of K)`` for entropies.

Scale all couplings of a binary model by s from 0 to 1. With K(s) at least the largest eigenvalue of the covariance
matrix of the spins at s, whatever the fields, and w the width of the couplings, ``C = exp(w * integral of K)`` (Chen
and Eldan 2022, "Localization schemes"). K comes from sums over walks that do not turn back, and reaches the uniqueness
threshold of trees.
"""

from __future__ import annotations

import heapq
import math
from typing import Any, ClassVar

import numpy as np

from fastmix._arrays import FloatArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix._loops import run_loop
from fastmix.model import MarkovRandomField
from fastmix.theory import norms
from fastmix.theory.criterion import CriterionConstant
from fastmix.theory.tuning import MAX_PATH_POINTS, MAX_PATH_VISITS, MAX_REFRESH_VISITS, PATH_TOLERANCE
from fastmix.theory.width_criterion import unfit_for_width

__all__ = ["PathCriterion", "walk_bound"]

_EPS = float(np.finfo(np.float64).eps)


class PathCriterion:
    """The criterion that follows the couplings of a binary model from 0 to their full strength."""

    name: ClassVar[str] = "path"

    def unfit(self, model: MarkovRandomField) -> str | None:
        """The reason why a model is not binary or has no width; None if there is none."""
        most_states = int(model.num_states.max(initial=0))
        if most_states > 2 and not model.num_factors:
            name = model.names_of_variables()[int(model.num_states.argmax())]
            return f"the path is for binary variables, and variable {name} has {most_states} states"
        return unfit_for_width(model)

    def find(self, model: MarkovRandomField, *, clock: Clock = NO_LIMIT) -> CriterionConstant:
        """The constant by the path, infinite where the sums over walks are."""
        from fastmix.theory.width import coupling_matrix, model_width

        width = model_width(model, clock=clock.part(0.5)).value
        matrix, error = coupling_matrix(model)
        matrix.data = np.abs(matrix.data) + error
        log_constant, last = _path_constant(matrix, width, clock)
        reason = f"the largest eigenvalue of the covariance is at most {last:.4g}, the width {width:.4g}"
        if log_constant == math.inf:
            reason = "walks that do not turn back have an infinite sum: the couplings are beyond the tree's threshold"
        return CriterionConstant(log_constant, "entropy", width, reason)


def _path_constant(matrix: Any, width: float, clock: Clock) -> tuple[float, float]:
    """The logarithm of the constant, and K(1); both may be infinite.

    ``matrix`` csr (n, n) are the absolute couplings, and ``width`` is theirs. K increases, so that its value at the
    right end of an interval bounds it there; the intervals are halved where that loses most.
    """
    bound = _CovarianceBound(matrix, width)
    last = bound(1.0)
    if not math.isfinite(last):
        return math.inf, last

    # A heap of intervals (-loss, left, right, K(left), K(right)), where (K(right) - K(left)) * length is the most that
    # the interval may lose.
    loss = last - 1.0
    intervals = [(-loss, 0.0, 1.0, 1.0, last)]
    points = 1
    limit = int(min(MAX_PATH_POINTS, max(24, MAX_PATH_VISITS / (bound.visits + 1.0))))
    while loss * width > PATH_TOLERANCE and points < limit and not clock.past():
        _, left, right, low, high = heapq.heappop(intervals)
        middle = 0.5 * (left + right)
        value = min(bound(middle), high)  # K increases
        points += 1
        for begin, end, first, second in ((left, middle, low, value), (middle, right, value, high)):
            heapq.heappush(intervals, (-max(0.0, second - first) * (end - begin), begin, end, first, second))
        loss = -math.fsum(interval[0] for interval in intervals)

    integral = math.fsum((end - begin) * high for _, begin, end, _, high in intervals) * (1.0 + 8.0 * _EPS)
    return width * integral * (1.0 + 8.0 * _EPS), last


class _CovarianceBound:
    """Upper bounds K(s) on the largest eigenvalue of the covariance, for one matrix of absolute couplings.

    A vector found at one s is used at others, too. ``visits`` are the entries that one bound visits, about.
    """

    def __init__(self, couplings: Any, width: float) -> None:
        n = couplings.shape[0]
        self._couplings = couplings
        self._width = width
        self._rows = (couplings.indptr.astype(np.int64), couplings.indices.astype(np.uint32), couplings.data)
        self._refresh = couplings.nnz <= MAX_REFRESH_VISITS / 40.0
        self._vectors = [np.ones(n)]
        self._rounding = float(int(np.diff(couplings.indptr).max(initial=0)) + 16) * _EPS
        self.visits = (60.0 if self._refresh else 6.0) * (couplings.nnz + 4.0 * n)

    def __call__(self, s: float) -> float:
        """The bound K(s), infinite where nothing is proved."""
        if not self._couplings.nnz:
            return 1.0
        # Var(u . x) <= C sum_i u_i^2 with the constant of the width at s.
        best = 1.0 - s * self._width * (1.0 + 4.0 * _EPS)
        for vector in self._vectors:
            best = max(best, self._by_walks(s, vector))
        if self._refresh or len(self._vectors) == 1:
            own = self._perron_vector(s)
            if own is not None:
                best = max(best, self._by_walks(s, own))
                if len(self._vectors) == 1:
                    self._vectors.append(own)
        return math.inf if best <= 0.0 else 1.0 / best * (1.0 + 4.0 * _EPS)

    def _by_walks(self, s: float, vector: FloatArray) -> float:
        """A lower bound on the inverse of the largest eigenvalue, proved by a positive vector."""
        return float(run_loop(walk_bound, (*self._rows, s, vector, self._rounding), (), compiled=True))

    def _perron_vector(self, s: float) -> FloatArray | None:
        """A vector v > 0 for which ``H v`` is large: near that of the smallest eigenvalue of H, see walk_bound."""
        from scipy.sparse import csr_array, diags_array

        scaled = s * self._couplings
        if scaled.data.max() > 20.0:
            return None
        back = scaled.sinh().power(2).sum(axis=1)
        # The negative of H, up to a multiple of the identity, which is chosen so that no entry is 0.
        shifted = csr_array(0.5 * (2.0 * scaled).sinh() + diags_array(back.max() + 1e-3 - back))
        if self._refresh:
            return norms.spectral_vector(shifted)
        vector = np.ones(len(back))
        for _ in range(40):  # power steps from the middle of the spectrum on; any positive vector is valid
            vector = shifted @ vector
            vector /= vector.max()
        return np.maximum(vector, 1e-6)


def walk_bound(indptr: Any, indices: Any, couplings: Any, s: float, v: Any, rounding: float) -> float:
    """A lower bound on the smallest eigenvalue of H, or of ``I - tanh(s |J|)``, from v > 0; -1 where v shows nothing.

    With t = tanh(s |J|), ``H = I + diag_i(sum_j t^2 / (1 - t^2)) - t / (1 - t^2)`` is the inverse of the sum over walks
    that do not turn back of the products of t, if that is finite. For v > 0 let ``m_ij = (v_i - t v_j) / (1 - t^2)``.
    Then ``(H v)_i = v_i - sum_j t_ij m_ji`` and ``m_ij = (H v)_i + sum_{k != j} t_ik m_ki``: with m > 0 and H v > 0 the
    sums converge, and their norm is at most ``1 / min_i (H v)_i / v_i``. |J| is given by the three arrays of a csr
    matrix.
    """
    turning = np.inf  # the bound by H
    plain = np.inf  # the bound by I - tanh(s |J|)
    for i in range(len(indptr) - 1):
        total = 0.0
        straight = 0.0
        scale = 1.0
        for p in range(indptr[i], indptr[i + 1]):
            ratio = v[indices[p]] / v[i]
            x = s * couplings[p]
            t = np.tanh(x)
            straight += t * ratio
            if x > 20.0 or not t * ratio < 1.0 - 8.0 * rounding:  # m_ji is that of the neighbor: both are asked
                turning = -1.0
            else:
                e = np.exp(2.0 * x)
                forth = 0.25 * (e - 1.0 / e) * ratio
                back = 0.25 * (e + 1.0 / e) - 0.5
                total += forth - back
                scale += forth + back + 0.5 * ratio + 1.0
        turning = min(turning, 1.0 - total - rounding * scale)
        plain = min(plain, 1.0 - straight * (1.0 + rounding) - rounding)
    return max(turning, plain)
