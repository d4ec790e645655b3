"""How far chains can still be from equilibrium: the bias of every variable after sweeps from any start.

Everything rests on a bound on the dependency matrix R (:mod:`fastmix.theory.dependency`). Let two chains be run with
the same schedule, one from any start and one in equilibrium, coupled as well as possible at each update, and let
``delta_i`` bound the probability that they differ at variable i. An update of i turns ``delta_i`` into at most
``min(1, sum_j R_ij delta_j)``, so iterating this from ``delta = 1`` bounds the bias of a sampler for the model at
hand (Dobrushin 1970; Hayes 2006; Dyer, Goldberg and Jerrum 2009, "Matrix norms and rapid mixing for spin systems").
"""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from fastmix._arrays import FloatArray, IntArray
from fastmix._checks import as_array, check_choice, check_count
from fastmix._clock import NO_LIMIT, Clock
from fastmix.graphs.basics import run_loop
from fastmix.model import MarkovRandomField
from fastmix.theory import norms
from fastmix.theory.dependency import (
    DEPENDENCIES,
    Dependency,
    edge_dependencies,
    rounding_margins,
    to_matrix,
    undefined_conditional,
)

__all__ = ["Decay", "Iteration", "Schedule", "Target", "bias_after", "check_schedule", "safe_matrix", "sweep_in_place"]

Schedule = Literal["systematic", "random"]

_EPS = float(np.finfo(np.float64).eps)
_VISITS_AT_ONCE = 5e7  # entries of R, a tenth of a second: the clock is read between
_SMALLEST_ENTRY = 1e-50  # positive entries of R are raised to this, so that products with delta do not vanish
_LARGEST_ENTRY = 1e300  # infinite ones are cut to this: any positive delta times it is still above 1
_SMALLEST = 1e-250  # positive biases are kept from falling below: rounded up, and never subnormal, which would be slow


def bias_after(
    model_or_R: Any,
    num_sweeps: int,
    *,
    schedule: Schedule = "systematic",
    order: ArrayLike | None = None,
    dependency: Dependency = "sigmoid",
) -> FloatArray:
    """Bounds (n,) on the bias of every variable's marginal after a number of Gibbs sweeps from any start, from 0 to 1.

    From ``delta = 1``, a systematic sweep sets ``delta_i <- min(1, sum_j R_ij delta_j)`` in place, one variable after
    another in the given order; a random update replaces delta by ``(1 - 1/n) delta + R delta / n``, and n of them, a
    random sweep, by ``sum_k w_k R^k delta`` with binomial weights w, cut at 1. The sum of the result bounds the total
    variation distance of the joint distribution. R is given, or bounded by the dependency of a model.
    """
    if isinstance(model_or_R, MarkovRandomField):
        check_choice("dependency", dependency, DEPENDENCIES)
        matrix = safe_matrix(model_or_R, dependency)
    else:
        matrix = _inflate(norms._as_nonnegative(model_or_R, "model_or_R")[0])
    run = Iteration(matrix, schedule, check_schedule(schedule, order, matrix.shape[0]), math.inf)
    run.advance(check_count("num_sweeps", num_sweeps, least=0), None)
    return run.delta


def check_schedule(schedule: object, order: ArrayLike | None, n: int) -> IntArray:
    """The order of a systematic sweep, all variables once; as they are numbered if none is given."""
    check_choice("schedule", schedule, get_args(Schedule))
    if order is None:
        return np.arange(n)
    if schedule != "systematic":
        raise ValueError(f"order must be left out for schedule={schedule!r}: it is the order of a systematic sweep")
    array = as_array("order", order, f"hold {n} variable numbers")
    if array.shape != (n,) or (n and array.dtype.kind not in "iu"):
        raise ValueError(f"order must hold {n} variable numbers, got shape {array.shape} of {array.dtype}")
    array = array.astype(np.int64)
    if not np.array_equal(np.sort(array), np.arange(n)):
        raise ValueError(f"order must hold every variable from 0 to {n - 1} once")
    return array


# -- the matrix, from above -----------------------------------------------------------------------------------------


def safe_matrix(model: MarkovRandomField, dependency: Dependency, clock: Clock = NO_LIMIT) -> Any:
    """The bound on R with all rounding on the safe side, that of the sums ``R delta`` to come included.

    Where a conditional is undefined, so is the chain, and nothing is known about it: ones on the diagonal keep every
    bias at 1.
    """
    values = edge_dependencies(model, dependency=dependency, clock=clock)
    values += rounding_margins(model, dependency=dependency)
    if dependency in ("exact", "field"):
        # Their margin is the wider one, so that weak dependencies may be known better from the formula.
        formula = edge_dependencies(model, dependency="sigmoid", clock=clock)
        formula += rounding_margins(model, dependency="sigmoid")
        np.minimum(values, formula, out=values)
    matrix = to_matrix(model, values)
    if undefined_conditional(model) is not None:
        from scipy.sparse import csr_array, eye

        matrix = csr_array(matrix + eye(model.num_variables))
    return _inflate(matrix)


def _inflate(matrix: Any) -> Any:
    # A sum of d products is short by at most d eps; tanh, quotients and this product are within another 8.
    result = matrix.copy()
    result.data *= 1.0 + (int(np.diff(matrix.indptr).max(initial=0)) + 8) * _EPS
    positive = result.data > 0.0
    result.data[positive] = np.maximum(result.data[positive], _SMALLEST_ENTRY)
    return result


# -- the iteration --------------------------------------------------------------------------------------------------


class Target:
    """When delta is small enough."""

    def __init__(self, n: int, accuracy: float, per_variable: bool) -> None:
        self.accuracy, self.per_variable = accuracy, per_variable
        # Sums of n terms may be short by n eps; the limit is for the sum as computed.
        self._margin = 1.0 + (n + 4) * _EPS
        self.largest_total = math.inf if per_variable else accuracy / self._margin * (1.0 - 2.0 * _EPS)
        self.largest_entry = accuracy if per_variable else math.inf

    def total(self, delta: FloatArray) -> float:
        """The sum, from above."""
        return float(delta.sum()) * self._margin


class Iteration:
    """The vector delta under sweeps of a schedule."""

    def __init__(self, matrix: Any, schedule: str, order: IntArray, max_visits: float, clock: Clock = NO_LIMIT) -> None:
        n = matrix.shape[0]
        self.clock, self.delta, self.num_sweeps = clock, np.ones(n), 0
        matrix = matrix.copy()
        np.minimum(matrix.data, _LARGEST_ENTRY, out=matrix.data)  # without effect on ``min(1, R delta)``
        self._arrays = matrix.indptr.astype(np.int64), matrix.indices.astype(np.uint32), matrix.data, order
        self._random = _RandomSweep(matrix) if schedule == "random" else None
        self._visits_left, self._cost = max_visits, self._random.cost if self._random else float(matrix.nnz + n)

    @property
    def exhausted(self) -> bool:
        """Whether another sweep would cost more visits than are left, or the time is up."""
        return self._visits_left < self._cost or self.clock.past()

    def advance(self, max_sweeps: int, target: Target | None) -> bool:
        """Sweep until the target holds, at most so often; whether it does."""
        if not len(self.delta):
            self.num_sweeps += max_sweeps
            return True
        last, reached = self.num_sweeps + max_sweeps, False
        at_once = 1 if self._random is not None else max(1, int(_VISITS_AT_ONCE / self._cost))
        total, entry = (target.largest_total, target.largest_entry) if target else (-1.0, -1.0)
        while self.num_sweeps < last and not reached and not self.exhausted:
            made = int(min(at_once, last - self.num_sweeps, self._visits_left / self._cost))
            before = self.delta.copy()
            if self._random is not None:
                self.delta = self._random(self.delta)
                reached = float(self.delta.sum()) <= total and float(self.delta.max()) <= entry
            else:
                inputs = *self._arrays, total, entry, made
                made, reached = run_loop(sweep_in_place, inputs, (self.delta,), compiled=True)
            self.num_sweeps += made
            self._visits_left -= made * self._cost
            if target is None and np.array_equal(self.delta, before):  # and so it stays, however many are to come
                self.num_sweeps = last
        return reached


def sweep_in_place(indptr, indices, data, order, largest_total, largest_entry, max_sweeps, delta):  # type: ignore[no-untyped-def]
    """Sweeps of ``delta_i <- min(1, sum_j R_ij delta_j)`` until the sum and the largest entry are small enough.

    Returns the number of sweeps made, and whether the last one reached both limits.
    """
    # Unsigned numbers: signed ones are checked for counting from the end, which costs a fifth of the time.
    one = np.uint64(1)
    for sweep in range(max_sweeps):
        total = 0.0
        top = 0.0
        for k in range(len(order)):
            i = np.uint64(order[k])
            value = 0.0
            for p in range(np.uint64(indptr[i]), np.uint64(indptr[i + one])):
                value += data[p] * delta[indices[p]]
            if value > 1.0:
                value = 1.0
            elif 0.0 < value < _SMALLEST:
                value = _SMALLEST
            delta[i] = value
            total += value
            top = max(top, value)
        if total <= largest_total and top <= largest_entry:
            return sweep + 1, True
    return max_sweeps, False


class _RandomSweep:
    """One sweep of n random updates, ``delta <- min(1, sum_k w_k R^k delta)`` with the rest of the series bounded.

    The weights of m updates are binomial, ``w_k = C(m, k) n^-k (1 - 1/n)^(m - k)``. With row sums of R at most c, the
    terms beyond K fall by the factor ``q = c (m - K) / ((K + 1) (n - 1))`` or faster, and
    sum up to at most ``w_K max(R^K delta) q / (1 - q)``. For large c the sweep is split into parts of fewer updates.
    """

    def __init__(self, matrix: Any) -> None:
        self._matrix, self._n = matrix, matrix.shape[0]
        row_sum = norms.matrix_norm(matrix, "inf")
        # Four times the growth of one part: series of at most 40 terms.
        num_parts = int(min(max(1.0, math.ceil(row_sum / 4.0)), max(1, self._n)))
        small, extra = divmod(self._n, num_parts)
        self._parts = [(num_parts - extra, *self._weights(small, row_sum))]
        if extra:
            self._parts.append((extra, *self._weights(small + 1, row_sum)))
        products = sum(count * len(weights) for count, weights, _ in self._parts)
        self.cost = float(products) * (matrix.nnz + 2 * self._n)

    def _weights(self, num_updates: int, row_sum: float) -> tuple[list[float], float]:
        """Weights w_0 .. w_K from above, and the factor of the largest ``R^K delta`` that bounds the rest."""
        n, m = self._n, num_updates
        if n < 2:
            return [0.0, 1.0], 0.0
        weights = [math.exp(m * math.log1p(-1.0 / n))]
        term = first = weights[0]  # w_k c^k, and w_0
        for k in range(m):
            ratio = (m - k) / ((k + 1.0) * (n - 1.0))
            q = row_sum * ratio
            if q <= 0.5 and term * q <= 1e-17 * first:
                break
            weights.append(weights[-1] * ratio)
            term *= q
        else:
            q = 0.0  # no term is left out
        # exp and log1p are off by 4 eps, each step of the recurrence by 2 eps.
        return [w * (1.0 + (8 + 4 * j) * _EPS) for j, w in enumerate(weights)], weights[-1] * 2.1 * q

    def __call__(self, delta: FloatArray) -> FloatArray:
        # For products too small for a number; without entries of R there are none.
        smallest = 1e-300 if self._matrix.nnz else 0.0
        for count, weights, rest in self._parts:
            for _ in range(count):
                power = delta
                total = weights[0] * power
                for weight in weights[1:]:
                    power = self._matrix @ power
                    total += weight * power
                total *= 1.0 + (len(weights) + 8) * _EPS
                total += rest * float(power.max()) + smallest
                # Cutting at 1 and at the bound of before loses nothing: the exact iteration falls from 1.
                delta = np.minimum(total, delta)
        return delta


class Decay:
    """What a norm r < 1 of R alone promises: the bias falls by r a systematic, by exp(r - 1) a random sweep."""

    def __init__(self, norm: str, value: float, schedule: str) -> None:
        self._norm = norm
        # A hair above, for the logarithms and powers to come.
        rate = math.log(value) if value > 0.0 else -math.inf
        self._log_rate = (rate if schedule == "systematic" else value - 1.0) * (1.0 - 1e-12)

    def sweeps(self, delta: FloatArray, target: Target) -> int:
        """Sweeps that bring delta to the target."""
        # A bound on the largest entry, or on the sum, that falls at the rate of the norm.
        n = len(delta)
        size, factor = float(np.sqrt(delta @ delta)), math.sqrt(n)
        if self._norm == "inf":
            size, factor = float(delta.max()), float(n)
        if self._norm == "1":
            size, factor = float(delta.sum()), 1.0
        start = size * (1.0 if target.per_variable else factor) * (1.0 + (n + 8) * _EPS)
        log_ratio = math.log(start / target.accuracy) * (1.0 + 1e-12) + 1e-12
        return max(1, math.ceil(log_ratio / -self._log_rate))
