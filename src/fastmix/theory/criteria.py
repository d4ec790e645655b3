"""Criteria past Dobrushin's: constants C by which random updates contract entropy or variance.

A criterion finds a constant C with ``Ent(f) <= C sum_i E Ent_i(f)`` for every positive function f of the model (form
``entropy``), or the same with variances only (form ``variance``). One update of a variable chosen at random then
contracts the relative entropy, or the variance of the density, by ``1 - 1 / (C n)`` from any start. The criteria are
small objects in a registry, :data:`CRITERIA`; :func:`register_criterion` adds another. See docs/theory.md.

- ``width``: by the width w of the couplings (:mod:`fastmix.theory.width`), ``C = 1 / (1 - w)``.
- ``path``, for sparse graphs: scale all couplings of a binary model by s from 0 to 1. With K(s) at least the largest
  eigenvalue of the covariance matrix of the spins at s, whatever the fields, ``C = exp(w * integral of K)`` (Chen and
  Eldan 2022, "Localization schemes"). K comes from sums over walks that do not turn back, and reaches the uniqueness
  threshold of trees.
- ``split``: if a share theta_e of the table of every edge has the width w and the rest the dependency matrix R of the
  bound ``sigmoid``, ``C = 1 / (1 - w - ||R||)`` for variances. Steps along the slopes of the
  sum seek the best shares; whatever comes out is proved.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fastmix._arrays import FloatArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix.graphs.basics import run_loop
from fastmix.model import MarkovRandomField
from fastmix.theory import norms
from fastmix.theory.dependency import edge_dependencies, rounding_margins, to_matrix

__all__ = [
    "CRITERIA", "Criterion", "Finding", "bias_after_updates", "largest_factor", "num_random_updates",
    "register_criterion", "scale_couplings", "split_model",
]  # fmt: skip

_EPS = float(np.finfo(np.float64).eps)
_MARGIN_STEPS = 14  # of a bisection between powers of two

_MOST_STATES = 3000  # of a variable: its orthonormal basis has as many numbers as the square, 72 MB

# Of the path.
_TOLERANCE = 0.05  # wanted excess of the exponent: five per cent of the constant
_MAX_POINTS = 500
_MAX_VISITS = 1.2e9  # entries that the bounds may visit, a few seconds
_REFRESH_VISITS = 2e6  # matrices up to this many entries get a vector of their own at every point

# Of the split.
_STEPS = 40
_PASSES = 4  # of the ascent behind the width, for every step
_MAX_WORK = 5e8  # numbers visited by all passes; larger models are not split
_CUT = 0.7  # quantile of the dependencies that the first split leaves to the width


@dataclass(frozen=True)
class Finding:
    """What a criterion found."""

    log_constant: float  # logarithm of C, infinite if there is none
    form: str = "entropy"  # or "variance"
    width: float | None = None  # the width behind it, if there is one
    reason: str = ""  # the finding in words, or what failed


class Criterion(Protocol):
    """A way to find a constant for random updates."""

    @property
    def name(self) -> str:
        """The word by which ``certify(criterion=...)`` knows it."""

    def unfit(self, model: MarkovRandomField) -> str | None:
        """Why the criterion does not apply to a model; None if it does."""

    def find(self, model: MarkovRandomField, *, clock: Clock = NO_LIMIT) -> Finding:
        """The constant of a model to which it applies, without states that a unary forbids."""


def num_random_updates(model: MarkovRandomField, finding: Finding, accuracy: float) -> float:
    """Random updates after which the joint distribution is within the accuracy from any start; may be infinite.

    With ``H >= ln(1 / p_min)``: ``C n ln(H / (2 eps^2))`` by Pinsker's inequality for the form ``entropy``, ``C n (H
    / 2 + ln(1 / (2 eps)))`` for both forms. H adds up ``ln L_i + range(u_i)`` and the ranges of all tables.
    """
    n, largest = model.num_variables, _log_least(model)
    factor = 0.5 * largest + math.log(1.0 / (2.0 * accuracy))
    if finding.form == "entropy":
        factor = min(factor, math.log(largest / (2.0 * accuracy**2)) if largest > 0.0 else 0.0)
    if finding.log_constant > 600.0:
        return math.inf
    return float(math.ceil(max(0.0, math.exp(finding.log_constant) * n * factor * (1.0 + 1e-12 + 1e-15 * n))))


def bias_after_updates(model: MarkovRandomField, num_updates: float, *, clock: Clock = NO_LIMIT) -> float:
    """How far the joint distribution can still be from a model's after random updates from any start, at most 1.

    The smallest of the distances by all criteria that apply: what :func:`num_random_updates` says, solved for the
    accuracy. States that a unary forbids must have been dropped.
    """
    n, largest = model.num_variables, _log_least(model)
    if not n or largest == 0.0:
        return 0.0
    best = 1.0
    for criterion in CRITERIA.values():
        if criterion.unfit(model) is not None:
            continue
        finding = criterion.find(model, clock=clock)
        if finding.log_constant > 600.0:
            continue
        rate = num_updates / (math.exp(finding.log_constant) * n * (1.0 + 1e-12 + 1e-15 * n))
        logs = [0.5 * largest - rate - math.log(2.0)]
        if finding.form == "entropy":
            logs.append(0.5 * (math.log(0.5 * largest) - rate))
        best = min(best, math.exp(min(0.0, *logs)) * (1.0 + 1e-12))
    return min(1.0, best)


def _log_least(model: MarkovRandomField) -> float:
    """``ln(1 / p_min)`` of what no unary forbids, from above."""
    allowed = model.log_unary > -np.inf  # chains start from states that no unary forbids
    high = np.where(allowed, model.log_unary, -np.inf)
    low = np.where(allowed, model.log_unary, np.inf)
    starts = model.unary_offsets[:-1]
    largest = float(np.log(model.num_states).sum())
    if model.num_variables:
        largest += float((np.maximum.reduceat(high, starts) - np.minimum.reduceat(low, starts)).sum())
    terms = (model.log_pairwise, model.pairwise_offsets), (model.log_factors, model.factor_offsets)
    for tables, starts in ((values, offsets[:-1]) for values, offsets in terms if len(values)):
        largest += float((np.maximum.reduceat(tables, starts) - np.minimum.reduceat(tables, starts)).sum())
    return largest


# -- the registry ---------------------------------------------------------------------------------------------------


CRITERIA: dict[str, Criterion] = {}


def register_criterion(criterion: Criterion) -> None:
    """Add a criterion under its name: :func:`fastmix.certify` and the command line know it from now on.

    Raises
    ------
    ValueError
        If the name is taken.
    """
    if criterion.name in (*CRITERIA, "auto", "dobrushin"):
        raise ValueError(f"criterion {criterion.name!r} is there already; the names are {', '.join(CRITERIA)}")
    CRITERIA[criterion.name] = criterion


class _Width:
    name = "width"

    def unfit(self, model: MarkovRandomField) -> str | None:
        if model.num_factors:
            return f"the model has factors over three or more variables ({model.num_factors} of them)"
        if model.log_pairwise.size and model.log_pairwise.min() == -np.inf:
            return "a table forbids pairs of states (-inf)"
        if (most := int(model.num_states.max(initial=0))) > _MOST_STATES:
            return f"a variable has {most:,} states, more than the {_MOST_STATES:,} whose width is computed"
        return None

    def find(self, model: MarkovRandomField, *, clock: Clock = NO_LIMIT) -> Finding:
        from fastmix.theory.width import model_width

        width = model_width(model, clock=clock)
        if width.value < 1.0:
            reason = f"the width is {width.value:.4g} (proved by {width.proof})"
            return Finding(-math.log1p(-width.value) + 1e-14, width=width.value, reason=reason)
        return Finding(math.inf, width=width.value, reason=f"the width is {width.value:.4g}, not below 1")


class _Path(_Width):
    name = "path"

    def unfit(self, model: MarkovRandomField) -> str | None:
        most = int(model.num_states.max(initial=0))
        if most > 2 and not model.num_factors:
            name = model.names_of_variables()[int(model.num_states.argmax())]
            return f"the path is for binary variables, and variable {name} has {most} states"
        return super().unfit(model)

    def find(self, model: MarkovRandomField, *, clock: Clock = NO_LIMIT) -> Finding:
        from fastmix.theory.width import coupling_matrix, model_width

        width = model_width(model, clock=clock.part(0.5)).value
        matrix, error = coupling_matrix(model)
        matrix.data = np.abs(matrix.data) + error
        log_constant, last = _path_constant(matrix, width, clock)
        reason = f"the largest eigenvalue of the covariance is at most {last:.4g}, the width {width:.4g}"
        if log_constant == math.inf:
            reason = "walks that do not turn back have an infinite sum: the couplings are beyond the tree's threshold"
        return Finding(log_constant, "entropy", width, reason)


class _Split(_Width):
    name = "split"

    def find(self, model: MarkovRandomField, *, clock: Clock = NO_LIMIT) -> Finding:
        width, norm = split_model(model, clock=clock)
        total = (width + norm) * (1.0 + 1e-15)
        words = f"the width {width:.4g} of one part and the norm {norm:.4g} of the other"
        if total < 1.0:
            return Finding(-math.log1p(-total) + 1e-14, "variance", width, words)
        return Finding(math.inf, "variance", width, f"{words} add up to {total:.4g}, not below 1")


# -- how far the couplings could grow -------------------------------------------------------------------------------


def scale_couplings(model: MarkovRandomField, factor: float) -> MarkovRandomField:
    """The model with all tables multiplied by a factor."""
    return model.replace(log_pairwise=factor * model.log_pairwise, log_factors=factor * model.log_factors)


def largest_factor(certifies: Callable[[float], bool], clock: Clock = NO_LIMIT) -> float:
    """The largest factor found for which ``certifies`` is true, to a few parts in ten thousand; 0 if none is found."""
    low, high = 0.0, math.inf
    factor = 1.0
    while 2.0**-20 < factor < 2.0**20 and not clock.past():
        if certifies(factor):
            low, factor = factor, 2.0 * factor
        else:
            high, factor = factor, 0.5 * factor
        if low and high < math.inf:
            break
    if not low or high == math.inf:
        return low if high < math.inf or clock.past() else math.inf
    for _ in range(_MARGIN_STEPS):
        if clock.past():
            break
        middle = 0.5 * (low + high)
        low, high = (middle, high) if certifies(middle) else (low, middle)
    return low


# -- the path -------------------------------------------------------------------------------------------------------


def _path_constant(matrix: Any, width: float, clock: Clock) -> tuple[float, float]:
    """Logarithm of the constant, and K(1), both may be infinite, for absolute couplings, csr (n, n), and their width.

    K increases, so that its value at the right end of an interval bounds it there; the intervals are halved where that
    loses most.
    """
    bound = _Bounds(matrix, width)
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
        self._size, self._width, n = size, width, size.shape[0]
        self._rows = (size.indptr.astype(np.int64), size.indices.astype(np.uint32), size.data)
        self._own = size.nnz <= _REFRESH_VISITS / 40.0
        self._vectors = [np.ones(n)]
        self._rounding = float(int(np.diff(size.indptr).max(initial=0)) + 16) * _EPS
        self.cost = (60.0 if self._own else 6.0) * (size.nnz + 4.0 * n)

    def __call__(self, s: float) -> float:
        if not self._size.nnz:
            return 1.0
        # Var(u . x) <= C sum_i u_i^2 with the constant of the width at s.
        best = 1.0 - s * self._width * (1.0 + 4.0 * _EPS)
        for vector in self._vectors:
            best = max(best, self._walks(s, vector))
        if (self._own or len(self._vectors) == 1) and (own := self._perron(s)) is not None:
            best = max(best, self._walks(s, own))
            if len(self._vectors) == 1:
                self._vectors.append(own)
        return math.inf if best <= 0.0 else 1.0 / best * (1.0 + 4.0 * _EPS)

    def _walks(self, s: float, vector: FloatArray) -> float:
        return float(run_loop(walks, (*self._rows, s, vector, self._rounding), (), compiled=True))

    def _perron(self, s: float) -> FloatArray | None:
        """A vector v > 0 for which ``H v`` is large: that of the smallest eigenvalue of H."""
        from scipy.sparse import csr_array, diags_array

        scaled = s * self._size
        if scaled.data.max() > 20.0:
            return None
        back = scaled.sinh().power(2).sum(axis=1)
        # Less any number on the diagonal; by that no entry is 0.
        shifted = csr_array(0.5 * (2.0 * scaled).sinh() + diags_array(back.max() + 1e-3 - back))
        if self._own:
            return norms.spectral_vector(shifted)
        vector = np.ones(len(back))
        for _ in range(40):  # power steps from the middle of the spectrum on; any positive vector is valid
            vector = shifted @ vector
            vector /= vector.max()
        return np.maximum(vector, 1e-6)


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


# -- the split ------------------------------------------------------------------------------------------------------


def split_model(model: MarkovRandomField, *, clock: Clock = NO_LIMIT) -> tuple[float, float]:
    """Width of one part and norm of the other, both proved, of the split found that has the smallest sum.

    All to the width, and nothing, are among those tried.
    """
    from fastmix.theory.width import model_width

    problem, m = _Shares(model, clock), model.num_edges
    found = [(model_width(model, clock=clock).value, 0.0), problem.prove(np.zeros(m))]
    if m and not clock.past() and np.isfinite(problem.ranges).all() and min(map(sum, found)) < 4.0:
        shares = problem.descend()
        if shares is not None:
            found.append(problem.prove(shares))
    return min(found, key=sum)


class _Shares:
    """``w(theta) + r(theta)`` over shares theta of the edges, with slopes."""

    def __init__(self, model: MarkovRandomField, clock: Clock) -> None:
        from fastmix.theory.width import coupling_matrix

        self._model, self._clock = model, clock
        self._matrix, self._error = matrix, _ = coupling_matrix(model)
        ranges = edge_dependencies(model, dependency="range", clock=clock).max(axis=1, initial=0.0)
        self.ranges = ranges + rounding_margins(model, dependency="range").max(axis=1, initial=0.0)
        n = model.num_variables
        owner = np.repeat(np.arange(n), model.num_states - 1)
        self._rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        self._cols = matrix.indices.astype(np.int64)
        first, second = owner[self._rows], owner[self._cols]
        keys = model.edges[:, 0] * n + model.edges[:, 1]
        self._edge = np.searchsorted(keys, np.minimum(first, second) * n + np.maximum(first, second))
        self._upper = first < second

    def _rest(self, shares: FloatArray) -> FloatArray:
        return np.tanh((1.0 - shares) * self.ranges * (1.0 + 1e-14))

    def prove(self, shares: FloatArray) -> tuple[float, float]:
        """Width and norm of both parts, proved."""
        from fastmix.theory.width import matrix_width

        part = self._matrix.copy()
        part.data *= shares[self._edge]
        width = matrix_width(part, clock=self._clock).value if shares.any() else 0.0
        rest = to_matrix(self._model, self._rest(shares) * (1.0 + 1e-14))
        return width + 2.0 * self._error, norms.matrix_norm(rest, "spectral", clock=self._clock)

    def descend(self) -> FloatArray | None:
        """Shares by projected steps along the slopes."""
        from fastmix.theory.width import Ascent

        matrix, m = self._matrix, self._model.num_edges
        steps = int(min(_STEPS, _MAX_WORK / (_PASSES * 16.0 * max(1.0, matrix.nnz + 4.0 * matrix.shape[0]))))
        if steps < 15 or not matrix.shape[0]:
            return None
        # Strong couplings are cut off for a start.
        cut = np.quantile(self.ranges, _CUT)
        shares = np.minimum(1.0, cut / np.maximum(self.ranges, 1e-300))
        best, best_shares = np.inf, shares
        ascent = Ascent(matrix)
        ascent.run(16, data=matrix.data * shares[self._edge])
        weights = matrix.data[self._upper]
        rows, cols, edge = self._rows[self._upper], self._cols[self._upper], self._edge[self._upper]
        for k in range(steps):
            ascent.run(_PASSES, data=matrix.data * shares[self._edge])
            norm, vector = self._norm(shares)
            value = ascent.value + norm
            if value < best:
                best, best_shares = value, shares
            i, j = self._model.edges.T
            down = 2.0 * vector[i] * vector[j] * (1.0 - self._rest(shares) ** 2) * self.ranges
            slope = np.bincount(edge, weights * ascent.slopes(rows, cols), minlength=m) - down
            size = float(np.sqrt((slope**2).sum()))
            if size == 0.0 or self._clock.past(0.5):
                break
            # Polyak's step towards a tenth less, shorter and shorter.
            step = 0.1 * value / size**2 / np.sqrt(1.0 + 0.5 * k)
            shares = np.clip(shares - step * slope, 0.0, 1.0)
        return best_shares

    def _norm(self, shares: FloatArray) -> tuple[float, FloatArray]:
        """An estimate of r, and the vector behind it."""
        rest = norms.dense_if_small(to_matrix(self._model, self._rest(shares)))
        vector = np.ones(rest.shape[0])
        for _ in range(30):
            vector = rest @ vector + 0.1 * vector
            vector /= max(math.sqrt(float(vector @ vector)), 1e-300)
        return float(vector @ (rest @ vector)), vector


for _criterion in (_Width(), _Path(), _Split()):
    register_criterion(_criterion)
