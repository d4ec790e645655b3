"""Bounds on the bias of chains: how far they can still be from equilibrium after sweeps from any start.

All bounds rest on a bound on the dependency matrix R (:mod:`fastmix.theory.dependency`). Two chains run with the same
schedule, one from any start and one in equilibrium, coupled as well as possible at each update. Let ``delta_i`` bound
the probability that they differ at variable i. An update of i turns ``delta_i`` into at most
``min(1, sum_j R_ij delta_j)``, so that iterating this from ``delta = 1`` bounds the bias of a sampler of the model
(Dobrushin 1970; Hayes 2006; Dyer, Goldberg and Jerrum 2009, "Matrix norms and rapid mixing for spin systems").
"""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from fastmix._arrays import FloatArray, IntArray
from fastmix._checks import as_array, check_choice, check_count
from fastmix._clock import NO_LIMIT, Clock
from fastmix._loops import run_loop
from fastmix.model import MarkovRandomField
from fastmix.theory import norms
from fastmix.theory.conditionals import undefined_conditional
from fastmix.theory.dependency import (
    DEPENDENCIES,
    Dependency,
    edge_dependencies,
    rounding_margins,
    to_matrix,
)
from fastmix.theory.tuning import (
    VISITS_PER_CLOCK_CHECK,
)

__all__ = [
    "BiasGoal",
    "BiasIteration",
    "GeometricDecay",
    "Schedule",
    "bias_after",
    "check_schedule",
    "safe_matrix",
    "sweep_in_place",
]

Schedule = Literal["systematic", "random"]

_EPS = float(np.finfo(np.float64).eps)
SMALLEST_ENTRY = 1e-50  # positive entries of R are raised to this, so that products with delta do not vanish
LARGEST_ENTRY = 1e300  # infinite ones are cut to this: any positive delta times it is still above 1
SMALLEST_BIAS = 1e-250  # positive biases never fall below this: rounded up, and never subnormal, which would be slow


def bias_after(
    model_or_R: Any,
    num_sweeps: int,
    *,
    schedule: Schedule = "systematic",
    order: ArrayLike | None = None,
    dependency: Dependency = "sigmoid",
) -> FloatArray:
    """Bounds (n,) on the bias of every variable's marginal after a number of Gibbs sweeps from any start, from 0 to 1.

    The iteration starts from ``delta = 1``. A systematic sweep sets ``delta_i <- min(1, sum_j R_ij delta_j)`` in place,
    one variable after another in the given order. A random update replaces delta by ``(1 - 1/n) delta + R delta / n``,
    and n of them, a random sweep, by ``sum_k w_k R^k delta`` with binomial weights w, cut at 1. The sum of the result
    bounds the total variation distance of the joint distribution.

    Parameters
    ----------
    model_or_R : MarkovRandomField or matrix (n, n)
        A model, or a non-negative matrix that bounds its dependencies.
    num_sweeps : int
    schedule : {"systematic", "random"}
    order : int array (n,), optional
        Order of a systematic sweep, by default 0, 1, .., n - 1.
    dependency : {"exact", "field", "sigmoid", "range", "l1", "linf"}
        Bound on R where a model is given, see :func:`fastmix.theory.dependency.edge_dependencies`.

    Returns
    -------
    ndarray of float64, shape (n,)

    Raises
    ------
    ValueError
        If an argument is out of its range, or R is not a square matrix of non-negative numbers.

    Notes
    -----
    A sweep takes one visit of each entry of R, about 2 ns; a random sweep about 20 times that.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1)], coupling=0.1)
    >>> [float(f"{bias:.3g}") for bias in bias_after(model, 2)]
    [0.00099, 9.87e-05]
    """
    if isinstance(model_or_R, MarkovRandomField):
        check_choice("dependency", dependency, DEPENDENCIES)
        matrix = safe_matrix(model_or_R, dependency)
    else:
        matrix = _inflate(norms.as_nonnegative(model_or_R, "model_or_R")[0])
    run = BiasIteration(matrix, schedule, check_schedule(schedule, order, matrix.shape[0]), math.inf)
    run.advance(check_count("num_sweeps", num_sweeps, least=0), None)
    return run.delta


def check_schedule(schedule: object, order: ArrayLike | None, n: int) -> IntArray:
    """A checked order of all variables for a systematic sweep: the order of their numbers if none is given."""
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
    """A sparse matrix (n, n) that bounds R with all rounding on the safe side.

    The rounding of the sums ``R delta`` to come is included. Where a conditional is undefined, so is the chain, and
    nothing is known about it: ones on the diagonal keep every bias at 1.
    """
    values = edge_dependencies(model, dependency=dependency, clock=clock)
    values += rounding_margins(model, dependency=dependency)
    if dependency in ("exact", "field"):
        # The margin of these two is the wider one, so that weak dependencies may be known better from the formula.
        formula = edge_dependencies(model, dependency="sigmoid", clock=clock)
        formula += rounding_margins(model, dependency="sigmoid")
        np.minimum(values, formula, out=values)
    matrix = to_matrix(model, values)
    if undefined_conditional(model) is not None:
        from scipy.sparse import csr_array, eye

        matrix = csr_array(matrix + eye(model.num_variables))
    return _inflate(matrix)


def _inflate(matrix: Any) -> Any:
    """A copy of R in which all entries are a little larger, so that sums of its products are bounds as computed."""
    # A sum of d products is short by at most d eps; tanh, quotients and this product are within another 8.
    result = matrix.copy()
    result.data *= 1.0 + (int(np.diff(matrix.indptr).max(initial=0)) + 8) * _EPS
    positive = result.data > 0.0
    result.data[positive] = np.maximum(result.data[positive], SMALLEST_ENTRY)
    return result


# -- the iteration --------------------------------------------------------------------------------------------------


class BiasGoal:
    """The limits on the biases delta that an accuracy asks for.

    ``accuracy`` bounds the sum of all biases, or every single one with ``per_variable``.
    """

    def __init__(self, n: int, accuracy: float, per_variable: bool) -> None:
        self.accuracy = accuracy
        self.per_variable = per_variable
        # Sums of n terms may be short by n eps; the limit is for the sum as computed.
        self._margin = 1.0 + (n + 4) * _EPS
        self.largest_total = math.inf if per_variable else accuracy / self._margin * (1.0 - 2.0 * _EPS)
        self.largest_entry = accuracy if per_variable else math.inf

    def total(self, delta: FloatArray) -> float:
        """The sum of the biases, rounded up."""
        return float(delta.sum()) * self._margin


class BiasIteration:
    """The iteration of the biases ``delta``, from 1, by sweeps of a schedule.

    ``max_visits`` limits the entries of R that all sweeps visit.
    """

    def __init__(self, matrix: Any, schedule: str, order: IntArray, max_visits: float, clock: Clock = NO_LIMIT) -> None:
        n = matrix.shape[0]
        self.clock = clock
        self.delta = np.ones(n)
        self.num_sweeps = 0
        matrix = matrix.copy()
        np.minimum(matrix.data, LARGEST_ENTRY, out=matrix.data)  # without effect on ``min(1, R delta)``
        self._arrays = matrix.indptr.astype(np.int64), matrix.indices.astype(np.uint32), matrix.data, order
        self._random = _RandomSweep(matrix) if schedule == "random" else None
        self._visits_left = max_visits
        self._visits_per_sweep = self._random.visits if self._random else float(matrix.nnz + n)

    @property
    def exhausted(self) -> bool:
        """Whether another sweep would cost more visits than are left, or the time is up."""
        return self._visits_left < self._visits_per_sweep or self.clock.past()

    def advance(self, max_sweeps: int, goal: BiasGoal | None) -> bool:
        """Sweep until the goal is reached, at most ``max_sweeps`` times; returns whether it is.

        Without a goal all sweeps are made, unless the limit of visits or of the clock is over before.
        """
        if not len(self.delta):
            self.num_sweeps += max_sweeps
            return True

        last = self.num_sweeps + max_sweeps
        reached = False
        sweeps_at_once = 1 if self._random is not None else max(1, int(VISITS_PER_CLOCK_CHECK / self._visits_per_sweep))
        largest_total = -1.0 if goal is None else goal.largest_total
        largest_entry = -1.0 if goal is None else goal.largest_entry
        while self.num_sweeps < last and not reached and not self.exhausted:
            made = int(min(sweeps_at_once, last - self.num_sweeps, self._visits_left / self._visits_per_sweep))
            before = self.delta.copy()
            if self._random is not None:
                self.delta = self._random(self.delta)
                reached = float(self.delta.sum()) <= largest_total and float(self.delta.max()) <= largest_entry
            else:
                inputs = (*self._arrays, largest_total, largest_entry, made)
                made, reached = run_loop(sweep_in_place, inputs, (self.delta,), compiled=True)
            self.num_sweeps += made
            self._visits_left -= made * self._visits_per_sweep
            if goal is None and np.array_equal(self.delta, before):
                # A fixed point: no later sweep changes it.
                self.num_sweeps = last
        return reached


def sweep_in_place(
    indptr: Any,
    indices: Any,
    data: Any,
    order: Any,
    largest_total: float,
    largest_entry: float,
    max_sweeps: int,
    delta: Any,
) -> tuple[int, bool]:
    """The number of sweeps made, and whether the last one reached both limits.

    A sweep sets ``delta_i <- min(1, sum_j R_ij delta_j)`` in place, for all i in the given order. The sweeps end once
    the sum and the largest entry are small enough. R is given by the three arrays of a csr matrix.
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
            elif 0.0 < value < SMALLEST_BIAS:
                value = SMALLEST_BIAS
            delta[i] = value
            total += value
            top = max(top, value)
        if total <= largest_total and top <= largest_entry:
            return sweep + 1, True
    return max_sweeps, False


class _RandomSweep:
    """A sweep of n random updates: ``delta <- min(1, sum_k w_k R^k delta)`` with the rest of the series bounded.

    The weights of m updates are binomial, ``w_k = C(m, k) n^-k (1 - 1/n)^(m - k)``. With row sums of R at most c, the
    terms beyond K fall by the factor ``q = c (m - K) / ((K + 1) (n - 1))`` or faster, and sum up to at most
    ``w_K max(R^K delta) q / (1 - q)``. For large c the sweep is split into parts of fewer updates. ``visits`` are the
    entries of R that one sweep visits.
    """

    def __init__(self, matrix: Any) -> None:
        self._matrix = matrix
        self._n = matrix.shape[0]
        row_sum = norms.matrix_norm(matrix, "inf")
        # Four times the growth of one part: series of at most 40 terms.
        num_parts = int(min(max(1.0, math.ceil(row_sum / 4.0)), max(1, self._n)))
        small, extra = divmod(self._n, num_parts)
        self._parts = [(num_parts - extra, *self._weights(small, row_sum))]
        if extra:
            self._parts.append((extra, *self._weights(small + 1, row_sum)))
        products = sum(count * len(weights) for count, weights, _ in self._parts)
        self.visits = float(products) * (matrix.nnz + 2 * self._n)

    def _weights(self, num_updates: int, row_sum: float) -> tuple[list[float], float]:
        """Weights w_0 .. w_K from above, and the factor of the largest ``R^K delta`` that bounds the rest."""
        n = self._n
        m = num_updates
        if n < 2:
            return [0.0, 1.0], 0.0
        first = math.exp(m * math.log1p(-1.0 / n))
        weights = [first]
        term = first  # w_k c^k
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
        """Bounds after one more sweep."""
        # Covers products that underflow; without entries of R there are none.
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
                # Cutting at the bounds before, which are at most 1, loses nothing: the exact iteration never rises.
                delta = np.minimum(total, delta)
        return delta


class GeometricDecay:
    """The decay of the biases that a norm r < 1 of R alone promises.

    They fall at least by the factor r per systematic sweep, and by ``exp(r - 1)`` per random sweep.
    """

    def __init__(self, norm: str, value: float, schedule: str) -> None:
        self._norm = norm
        # A little slower than the norm says, for the rounding of the logarithms and powers to come.
        rate = math.log(value) if value > 0.0 else -math.inf
        self._log_rate = (rate if schedule == "systematic" else value - 1.0) * (1.0 - 1e-12)

    def sweeps(self, delta: FloatArray, goal: BiasGoal) -> int:
        """Number of sweeps after which the biases, now delta, reach a goal."""
        # The vector norm that falls at the rate of the norm of R bounds the largest entry, and times a factor the sum.
        n = len(delta)
        if self._norm == "inf":
            size = float(delta.max())
            factor = float(n)
        elif self._norm == "1":
            size = float(delta.sum())
            factor = 1.0
        else:
            size = float(np.sqrt(delta @ delta))
            factor = math.sqrt(n)
        start = size * (1.0 if goal.per_variable else factor) * (1.0 + (n + 8) * _EPS)
        log_ratio = math.log(start / goal.accuracy) * (1.0 + 1e-12) + 1e-12
        return max(1, math.ceil(log_ratio / -self._log_rate))
