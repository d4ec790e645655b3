"""Intervals that hold with a stated probability: for sampled marginals, and for the model before its projection.

A sampled marginal is off for two reasons. The chains have not forgotten their start: the bias, which
:func:`fastmix.mixing.bias_after` bounds. And there are finitely many of them: a deviation, which inequalities for
averages of independent numbers bound. If the chains ran on a projected model, the distance of its marginals
from those of the original comes on top (:func:`comparison_bounds`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix import dependency, norms
from fastmix.construction import table_positions
from fastmix.dependency import Bound
from fastmix.errors import ModelError
from fastmix.graphs import connected_components
from fastmix.mixing import safe_matrix
from fastmix.model import PairwiseMRF
from fastmix.sampling.diagnostics import certain_entries
from fastmix.validation import check_choice, check_count

__all__ = [
    "Comparison",
    "Inequality",
    "Intervals",
    "bernstein_half_width",
    "comparison_bounds",
    "hoeffding_interval",
    "original_intervals",
    "rigorous_intervals",
]

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

Inequality = Literal["both", "hoeffding", "bernstein"]

_EPS = float(np.finfo(np.float64).eps)
_ROUNDING = 1e-12  # of averages over sweeps and chains
_NEWTON_STEPS = 40  # quadratic convergence takes about six
_PLAIN_STEPS = 50  # of the comparison, before each linear solve
_MAX_ROUNDS = 4  # of linear solves, each with fewer variables than the one before
_MAX_SOLVER_STEPS = 1000
_SOLVER_RTOL = 1e-6  # of the average right-hand side; what is left is covered, so this decides about tightness only


@dataclass(frozen=True, eq=False)
class Intervals:
    """Bounds on the probability of every state of every variable.

    Attributes
    ----------
    lower, upper : float array (E,)
        Aligned with ``model.log_unary``, between 0 and 1.
    vacuous : bool array (E,)
        Where the interval is [0, 1] and says nothing.
    confidence : float
        Probability, over the randomness of the chains, with which an interval holds.
    simultaneous : bool
        Whether it is the probability that all of them hold at once.
    """

    lower: FloatArray
    upper: FloatArray
    vacuous: BoolArray
    confidence: float
    simultaneous: bool


@dataclass(frozen=True, eq=False)
class Comparison:
    """How far the marginals of two models can be apart.

    Attributes
    ----------
    bounds : float array (n,)
        Bounds on the total variation distance of the two marginals of every variable, at most 1.
    conditional_bounds : float array (n,)
        Bounds b on the distance of the two conditionals of every variable, the largest over all neighbour states.
    vacuous : bool array (n,)
        Where the bound is 1 and says nothing.
    advice : str
        What was found, or why nothing was.
    """

    bounds: FloatArray
    conditional_bounds: FloatArray
    vacuous: BoolArray
    advice: str


# -- sampled marginals ----------------------------------------------------------------------------------------------


def rigorous_intervals(
    model: PairwiseMRF,
    mean: ArrayLike,
    *,
    num_chains: int,
    bias: ArrayLike,
    variances: ArrayLike | None = None,
    confidence: float = 0.95,
    simultaneous: bool = False,
    inequality: Inequality = "both",
) -> Intervals:
    """Intervals that hold the marginals of a model with a stated confidence, from independent chains of any length.

    Each chain contributes one number from 0 to 1 for every state: its average, over the sweeps used, of the indicator
    of the state or of its conditional probability. These numbers are independent between the chains, whatever the
    dependence within a chain, and their expectations are within the bias of the marginal. An inequality for averages
    of independent numbers in [0, 1] gives an interval for the expectation, and the bias is added on both sides.

    Parameters
    ----------
    model : PairwiseMRF
    mean : float array (E,)
        Average over the chains, aligned with ``model.log_unary``.
    num_chains : int
        Number C of independent chains, each started without knowledge of the others.
    bias : float or float array (n,)
        Bound on the total variation distance of a chain's marginal at the FIRST sweep used; it falls from there. With
        ``burn_in`` sweeps left out this is ``bias_after(model, burn_in + 1)`` for the schedule of the chains.
    variances : float array (E,), optional
        Sample variances of the chains' numbers with the divisor C - 1, for Bernstein's inequality; without them, or
        with a single chain, only Hoeffding's is used.
    confidence : float
        Above 0 and below 1.
    simultaneous : bool
        Whether all intervals shall hold at once with this confidence, rather than each.
    inequality : {"both", "hoeffding", "bernstein"}
        ``both`` gives each of the two half of the probability of failure, so that both intervals may be used and the
        narrower one is no choice after the fact.

    Returns
    -------
    Intervals
        States that the unary forbids, and the only one it allows, are known: [0, 0] and [1, 1].

    Raises
    ------
    ValueError
        If an argument is out of its range, or Bernstein's inequality was asked for without what it needs.

    Notes
    -----
    See :func:`hoeffding_interval` and :func:`bernstein_half_width` for the inequalities. ``simultaneous`` divides the
    probability of failure by the number of states, where the two states of a binary variable count once: each
    inequality treats a state and its complement alike.

    The number of sweeps has to be fixed beforehand, or by a clock: stopping when the chains look good
    makes their numbers dependent. Few chains give wide intervals however long they are; the smallest
    half width is about ``ln(4 / failure) / C``.

    Examples
    --------
    >>> model = PairwiseMRF.ising([(0, 1)], coupling=0.3, field=[0.5, 0.0])
    >>> mean = [0.28, 0.72, 0.44, 0.56]
    >>> intervals = rigorous_intervals(model, mean, num_chains=1000, bias=0.001, variances=[1e-4] * 4)
    >>> intervals.lower.round(3).tolist(), intervals.upper.round(3).tolist()
    ([0.267, 0.707, 0.427, 0.547], [0.293, 0.733, 0.453, 0.573])
    >>> rigorous_intervals(model, mean, num_chains=1, bias=0.001).vacuous.tolist()
    [False, False, True, True]
    """
    size = len(model.log_unary)
    center = _as_unit_interval("mean", mean, (size,), slack=1e-6)
    count = check_count("num_chains", num_chains, least=1)
    shift = _as_unit_interval("bias", bias, (model.num_variables,), scalar=True)
    check_choice("inequality", inequality, get_args(Inequality))
    failure = _failure(confidence) / (max(1, _num_questions(model)) if simultaneous else 1)
    spread = None if variances is None else _as_variances(variances, size)
    if inequality == "bernstein" and (spread is None or count < 2):
        missing = "variances" if spread is None else "at least 2 chains"
        raise ValueError(f"inequality='bernstein' needs {missing}; inequality='hoeffding' does not")
    use_both = inequality == "both" and spread is not None and count > 1
    share = failure / 2.0 if use_both else failure
    lower, upper = np.zeros(size), np.ones(size)
    if inequality in ("hoeffding", "both"):
        lower, upper = hoeffding_interval(center, count, failure=share)
    if inequality == "bernstein" or use_both:
        assert spread is not None
        half = bernstein_half_width(spread, count, failure=share)
        lower, upper = np.maximum(lower, center - half), np.minimum(upper, center + half)
    wide = np.repeat(shift, model.num_states) + _ROUNDING
    return _finish(model, lower - wide, upper + wide, float(confidence), bool(simultaneous))


def hoeffding_interval(mean: ArrayLike, num_chains: int, *, failure: float) -> tuple[FloatArray, FloatArray]:
    """Lower and upper ends of Hoeffding's interval, in its sharp form, for expectations of averages.

    The average m of C independent numbers in [0, 1] with average expectation q satisfies
    ``P(m >= x) <= exp(-C kl(x, q))`` for ``x >= q``, and likewise below, with
    ``kl(x, q) = x ln(x / q) + (1 - x) ln((1 - x) / (1 - q))`` [1]_. So all q with
    ``kl(m, q) <= ln(2 / failure) / C`` form an interval that misses the expectation with at most the probability
    ``failure``. It is never wider than the usual ``m +- sqrt(ln(2 / failure) / (2 C))``, which follows from
    ``kl(x, q) >= 2 (x - q)^2``, and far narrower for m near 0 or 1.

    Parameters
    ----------
    mean : float array
        From 0 to 1.
    num_chains : int
        Number C of independent numbers.
    failure : float
        Above 0 and below 1.

    Returns
    -------
    lower, upper : float array
        Of the shape of ``mean``, rounded outwards.

    Notes
    -----
    Newton's method in ``t = -ln(1 - q)``, in which kl is convex, from a point outside: every step stays outside.

    References
    ----------
    .. [1] W. Hoeffding, "Probability inequalities for sums of bounded random variables", JASA 58, 1963, Theorem 1.

    Examples
    --------
    >>> lower, upper = hoeffding_interval([0.0, 0.5], 100, failure=0.05)
    >>> lower.round(4).tolist(), upper.round(4).tolist()
    ([0.0, 0.3667], [0.0362, 0.6333])
    """
    count = check_count("num_chains", num_chains, least=1)
    level = math.log(2.0 / _as_failure(failure)) / count
    values = np.asarray(mean, dtype=np.float64)
    return 1.0 - _upper_end(1.0 - values, level), _upper_end(values, level)


def bernstein_half_width(variances: ArrayLike, num_chains: int, *, failure: float) -> FloatArray:
    """Half widths of the empirical Bernstein interval around averages of C independent numbers in [0, 1].

    ``sqrt(2 v ln(3 / failure) / C) + 7 ln(3 / failure) / (3 (C - 1))`` with the sample variance v [1]_. The
    logarithm is that of three events, each of a third of the probability: the average is too high, too low, the sample
    variance too low. (The one-sided theorem has two events and ``ln(2 / failure)``.)

    Parameters
    ----------
    variances : float array
        Sample variances with the divisor C - 1.
    num_chains : int
        Number C of independent numbers, at least 2.
    failure : float
        Above 0 and below 1.

    Returns
    -------
    float array
        Of the shape of ``variances``.

    References
    ----------
    .. [1] A. Maurer and M. Pontil, "Empirical Bernstein bounds and sample-variance penalization", COLT 2009,
       Theorem 11 (for independent numbers that need not have the same distribution).

    Examples
    --------
    >>> bernstein_half_width([0.0, 0.01], 1000, failure=0.05).round(4).tolist()
    [0.0096, 0.0186]
    """
    count = check_count("num_chains", num_chains, least=2)
    log = math.log(3.0 / _as_failure(failure))
    values = np.asarray(variances, dtype=np.float64)
    return np.sqrt(2.0 * log / count * values) + 7.0 * log / (3.0 * (count - 1))


def _upper_end(p: FloatArray, level: float) -> FloatArray:
    """The q above p with ``kl(p, q) = level``, from above."""
    # kl is a sum of two terms, each off by a few eps of its size.
    target = level * (1.0 + 16.0 * _EPS) + 16.0 * _EPS
    rest = 1.0 - p
    with np.errstate(divide="ignore", invalid="ignore"):
        negative_entropy = np.where(p > 0.0, p * np.log(p), 0.0) + np.where(rest > 0.0, rest * np.log(rest), 0.0)
        # Both starts are at or above the end: kl >= 2 (q - p)^2, and kl >= -entropy - (1 - p) ln(1 - q).
        pinsker = p + math.sqrt(target / 2.0)
        t = np.where(pinsker < 1.0, -np.log1p(-np.minimum(pinsker, 1.0)), np.inf)
        t = np.minimum(t, (target - negative_entropy) / rest)
        for _ in range(_NEWTON_STEPS):
            q = -np.expm1(-t)
            value = negative_entropy - np.where(p > 0.0, p * np.log(q), 0.0) + rest * t
            step = np.maximum(value - target, 0.0) * q / (q - p)
            step = np.where(np.isfinite(step), step, 0.0)
            t = t - step
            if not (step > 1e-14 * t).any():
                break
    q = np.maximum(-np.expm1(-t), p)
    return np.where(rest > 0.0, np.minimum(q * (1.0 + 4.0 * _EPS), 1.0), 1.0)


def _finish(
    model: PairwiseMRF, lower: FloatArray, upper: FloatArray, confidence: float, simultaneous: bool
) -> Intervals:
    """Cut at 0 and 1, and what the unaries alone say put in."""
    lower, upper = np.clip(lower, 0.0, 1.0), np.clip(upper, 0.0, 1.0)
    certain = certain_entries(model)
    known = np.where(model.log_unary[certain] > -np.inf, 1.0, 0.0)
    lower[certain], upper[certain] = known, known
    vacuous = (lower <= 0.0) & (upper >= 1.0)
    for array in (lower, upper, vacuous):
        array.setflags(write=False)
    return Intervals(lower, upper, vacuous, confidence, simultaneous)


def _num_questions(model: PairwiseMRF) -> int:
    """Intervals that can fail by themselves: two states of a variable fail together, known ones never."""
    if not model.num_variables:
        return 0
    open_states = np.add.reduceat((~certain_entries(model)).astype(np.int64), model.unary_offsets[:-1])
    return int(np.where(open_states == 2, 1, open_states).sum())


# -- the original of a projected model ------------------------------------------------------------------------------


def comparison_bounds(projected: PairwiseMRF, original: PairwiseMRF, *, bound: Bound = "sigmoid") -> Comparison:
    """Bounds on the distance of the marginals of two models on the same graph (Dobrushin's comparison).

    Let R bound the dependencies of the projected model, and let ``b_j`` bound the total variation distance of the two
    conditionals of x_j under the same neighbours. Run Gibbs sampling of both models, each in equilibrium, coupled as
    well as possible, and let ``d_i`` bound the probability that they differ at i. An update of i turns it into at most
    ``min(1, b_i + sum_j R_ij d_j)``, so that from ``d = 1`` every step of this iteration bounds the distance of
    the marginals. If the spectral radius of R is below 1, its limit is at most ``(I - R)^-1 b`` [1]_.

    With ``range(v) = max v - min v``, u and T the differences of the unaries and of the tables,
    ``b_j = tanh((range(u_j) + sum_k max_a range(T_jk[:, a])) / 4)``.

    Parameters
    ----------
    projected, original : PairwiseMRF
        With the same state counts and edges.
    bound : {"exact", "sigmoid", "range", "l1", "linf"}
        Bound on R of the projected model.

    Returns
    -------
    Comparison
        Often loose: where the projection changed much, the bounds are 1, and ``advice`` says why.

    Raises
    ------
    ModelError
        If the models differ in state counts or edges.
    ValueError
        If the bound is not known.
    ResourceError
        If ``bound="exact"`` is too large to enumerate.

    Notes
    -----
    A pair of states that is forbidden (-inf) in both models does not count; one that is forbidden in one of them only
    gives ``b = 1`` at both its ends. Without forbidden pairs, models with equal conditionals are equal, also where R
    is large: the bound is 0 for connected parts of the graph with b = 0.

    The answer is rounded upwards. A vector v obtained from a linear solver is used only if, with all rounding
    counted, ``v >= b + R v`` and a positive vector z with ``R z < z`` proves that the spectral radius is below 1.
    Where the radius is not, the iteration can still leave bounds below 1 in weakly coupled parts. Time
    is a few hundred products with R, half a second for 100,000 variables.

    References
    ----------
    .. [1] H. Föllmer, "A covariance estimate for Gibbs measures", Journal of Functional Analysis 46, 1982; H.-O.
       Georgii, "Gibbs measures and phase transitions", 1988, Theorem 8.20.

    Examples
    --------
    >>> original = PairwiseMRF.ising([(0, 1), (1, 2)], coupling=[0.55, 0.3], field=0.2)
    >>> projected = PairwiseMRF.ising([(0, 1), (1, 2)], coupling=[0.5, 0.3], field=0.2)
    >>> comparison_bounds(projected, original).bounds.round(3).tolist()
    [0.049, 0.052, 0.015]
    """
    check_choice("bound", bound, dependency.BOUNDS)
    if not np.array_equal(projected.num_states, original.num_states):
        raise ModelError(f"original must have the state counts of projected, got {original!r} and {projected!r}")
    if not np.array_equal(projected.edges, original.edges):
        raise ModelError(f"original must have the edges of projected, got {original!r} and {projected!r}")
    b = _conditional_distances(projected, original)
    matrix = safe_matrix(projected, bound)
    # No dependency is above 1; the factor is the one that safe_matrix put in for sums of products.
    terms = int(np.diff(matrix.indptr).max(initial=0))
    np.minimum(matrix.data, 1.0 + (terms + 8) * _EPS, out=matrix.data)
    equal = _equal_parts(projected, b)
    bounds, contracting = _fixed_point(matrix, b, equal)
    vacuous = bounds >= 1.0
    for array in (bounds, b, vacuous):
        array.setflags(write=False)
    return Comparison(bounds, b, vacuous, _advice(matrix, bounds, vacuous, contracting, bound))


def original_intervals(original: PairwiseMRF, intervals: Intervals, comparison: Comparison) -> Intervals:
    """Intervals for the marginals of the original model, from those of its projection.

    The marginals of the two models are at most ``comparison.bounds`` apart, so the intervals become wider by this
    much on both sides, at the same confidence.

    Parameters
    ----------
    original : PairwiseMRF
    intervals : Intervals
        For the projected model, see :func:`rigorous_intervals`.
    comparison : Comparison
        See :func:`comparison_bounds`.

    Raises
    ------
    ValueError
        If the intervals or the comparison are of models with other variables or states.

    Examples
    --------
    >>> original = PairwiseMRF.ising([(0, 1), (1, 2)], coupling=[0.55, 0.3], field=0.2)
    >>> projected = PairwiseMRF.ising([(0, 1), (1, 2)], coupling=[0.5, 0.3], field=0.2)
    >>> narrow = rigorous_intervals(projected, [0.33, 0.67] * 3, num_chains=10_000, bias=0.0)
    >>> wide = original_intervals(original, narrow, comparison_bounds(projected, original))
    >>> narrow.upper[1::2].round(3).tolist(), wide.upper[1::2].round(3).tolist()
    ([0.683, 0.683, 0.683], [0.732, 0.735, 0.698])
    """
    if intervals.lower.shape != original.log_unary.shape:
        raise ValueError(f"intervals must be for {len(original.log_unary)} states, got {intervals.lower.shape}")
    if comparison.bounds.shape != (original.num_variables,):
        raise ValueError(f"comparison must be of {original.num_variables} variables, got {comparison.bounds.shape}")
    shift = np.repeat(comparison.bounds, original.num_states) * (1.0 + 2.0 * _EPS)
    lower = np.where(shift < 1.0, intervals.lower - shift - _EPS, 0.0)
    upper = np.where(shift < 1.0, intervals.upper + shift + _EPS, 1.0)
    return _finish(original, lower, upper, intervals.confidence, intervals.simultaneous)


def _conditional_distances(projected: PairwiseMRF, original: PairwiseMRF) -> FloatArray:
    """The vector b (n,), from above."""
    n = projected.num_variables
    if not n:
        return np.zeros(0)
    starts = projected.unary_offsets[:-1]
    with np.errstate(invalid="ignore", over="ignore"):
        total = _ranges_of_stretches(projected.log_unary, original.log_unary, starts)
        pieces = zip(
            dependency._table_groups(_without_forbidden(projected)),
            dependency._table_groups(_without_forbidden(original)),
            strict=True,
        )
        ranges = np.empty((projected.num_edges, 2))
        for (places, left), (_, right) in pieces:
            ranges[places] = _ranges_of_tables(left, right)
    for end in (0, 1):
        total += np.bincount(projected.edges[:, end], ranges[:, end], minlength=n)
    # As many roundings as terms, and those of tanh and the products.
    total *= 1.0 + (projected.adjacency.degree + 8) * _EPS
    return np.minimum(np.tanh(total / 4.0) * (1.0 + 8.0 * _EPS), 1.0)


def _without_forbidden(model: PairwiseMRF) -> PairwiseMRF:
    """The model with -inf in its tables, too, for states that the unary forbids."""
    forbidden = model.log_unary == -np.inf
    if not forbidden.any() or not model.num_edges:
        return model
    owner, row, col = table_positions(model.num_states, model.edges)
    i, j = model.edges[owner].T
    closed = forbidden[model.unary_offsets[i] + row] | forbidden[model.unary_offsets[j] + col]
    return model.replace(log_pairwise=np.where(closed, -np.inf, model.log_pairwise))


def _ranges_of_stretches(left: FloatArray, right: FloatArray, starts: NDArray[np.int64]) -> FloatArray:
    """Range of the difference of each stretch, infinite where one side alone is -inf."""
    difference, both, one = _difference(left, right)
    high = np.maximum.reduceat(np.where(both, difference, -np.inf), starts)
    low = np.minimum.reduceat(np.where(both, difference, np.inf), starts)
    result = _range(high, low)
    result[np.logical_or.reduceat(one, starts)] = np.inf
    return result


def _ranges_of_tables(left: FloatArray, right: FloatArray) -> FloatArray:
    """For tables (rows, cols, k) the largest range of a column, and of a row, of the difference, (k, 2)."""
    difference, both, one = _difference(left, right)
    top, bottom = np.where(both, difference, -np.inf), np.where(both, difference, np.inf)
    result = np.empty((left.shape[2], 2))
    for axis in (0, 1):
        result[:, axis] = _range(top.max(axis=axis), bottom.min(axis=axis)).max(axis=0)
    result[one.any(axis=(0, 1))] = np.inf
    return result


def _difference(left: FloatArray, right: FloatArray) -> tuple[FloatArray, BoolArray, BoolArray]:
    """The difference, where both sides are finite, and where one alone is."""
    left_finite, right_finite = left > -np.inf, right > -np.inf
    return left - right, left_finite & right_finite, left_finite != right_finite


def _range(high: FloatArray, low: FloatArray) -> FloatArray:
    """``high - low`` from above; 0 where no state was left (then high is -inf)."""
    # A difference of two numbers is off by eps/2 of itself, and so is the difference of two of these.
    margin = 2.0 * _EPS * (np.abs(high) + np.abs(low))
    result = np.where(high == -np.inf, 0.0, (high - low) + margin)
    return np.where(np.isnan(result), np.inf, result)  # beyond the largest number


def _equal_parts(model: PairwiseMRF, b: FloatArray) -> BoolArray:
    """Variables in connected parts of the graph where b = 0 and no table forbids a pair of allowed states."""
    n = model.num_variables
    differs = b > 0.0
    if differs.all():
        return np.zeros(n, dtype=bool)
    if model.log_pairwise.size and model.log_pairwise.min() == -np.inf:
        hard = np.minimum.reduceat(model.log_pairwise, model.pairwise_offsets[:-1]) == -np.inf
        differs[model.edges[hard].ravel()] = True
    count, part = connected_components(n, model.edges)
    touched = np.zeros(count, dtype=bool)
    touched[part[differs]] = True
    return ~touched[part]


def _fixed_point(matrix: Any, b: FloatArray, equal: BoolArray) -> tuple[FloatArray, bool]:
    """A vector d from above of the largest fixed point of ``d = min(1, b + R d)``; whether R alone contracts."""
    bounds = np.where(equal, 0.0, 1.0)
    contracting = False
    for round_number in range(_MAX_ROUNDS):
        before = bounds
        # In the first round all variables: there, R itself is put to the test.
        active = np.flatnonzero(~equal) if round_number == 0 else np.flatnonzero((bounds < 1.0) & ~equal)
        if not active.size:
            break
        part = matrix if len(active) == len(b) else matrix[active][:, active]
        outside = bounds.copy()
        outside[active] = 0.0
        constant = (b[active] + (matrix @ outside)[active]) * (1.0 + 2.0 * _EPS)
        solved = _super_solution(part, constant)
        if solved is not None:
            contracting |= round_number == 0
            bounds = bounds.copy()
            bounds[active] = np.minimum(bounds[active], solved)
        for _ in range(_PLAIN_STEPS):
            following = np.minimum(bounds, (b + matrix @ bounds) * (1.0 + 2.0 * _EPS))
            settled = bool((following > 0.999 * bounds).all())
            bounds = following
            if settled:
                break
        if round_number and not (bounds < 0.99 * before).any():
            break
    return bounds, contracting or not matrix.nnz


def _super_solution(matrix: Any, constant: FloatArray) -> FloatArray | None:
    """A vector v with ``v >= constant + R v``, close to the solution, if R is proved to contract; else None."""
    z = _solve(matrix, np.ones(len(constant)), 0.25)
    if not (z > 0.0).all():  # NaN included
        return None
    slack = z - matrix @ z - 4.0 * _EPS * z
    if not (slack > 0.25).all():
        return None
    v = np.maximum(_solve(matrix, constant, _SOLVER_RTOL * float(constant.mean())), 0.0)
    if not np.isfinite(v).all():
        return None
    image = (constant + matrix @ v) * (1.0 + 4.0 * _EPS)
    excess = image - v + 4.0 * _EPS * v
    # For v + t z the inequality gains t (z - R z) = t slack.
    t = max(0.0, float((excess / slack).max())) * (1.0 + 8.0 * _EPS)
    return (v + t * z) * (1.0 + 4.0 * _EPS) if t > 0.0 else v


def _solve(matrix: Any, right: FloatArray, tol: float) -> FloatArray:
    """An approximate solution of ``(I - R) x = right``, residuals up to tol, by BiCGSTAB; whoever uses it checks it."""
    x = np.zeros(len(right))
    residual = right.copy()
    shadow, direction = right, right.copy()
    rho = _dot(shadow, residual)
    with np.errstate(all="ignore"):
        for _ in range(_MAX_SOLVER_STEPS):
            if not float(np.abs(residual).max()) > tol:
                break
            image = direction - matrix @ direction
            weight = rho / (_dot(shadow, image) or np.nan)
            half = residual - weight * image
            half_image = half - matrix @ half
            omega = _dot(half_image, half) / (_dot(half_image, half_image) or np.nan)
            if not math.isfinite(omega):  # half is zero: done, or a breakdown
                x += weight * direction
                break
            x += weight * direction
            x += omega * half
            residual = half - omega * half_image
            following = _dot(shadow, residual)
            direction -= omega * image
            direction *= (following / (rho or np.nan)) * (weight / (omega or np.nan))
            direction += residual
            rho = following
    return x


def _dot(left: FloatArray, right: FloatArray) -> float:
    return float(
        np.einsum("i,i", left, right)
    )  # in one thread: the same bits everywhere, and no waiting for busy cores


def _advice(matrix: Any, bounds: FloatArray, vacuous: BoolArray, contracting: bool, bound: str) -> str:
    if not vacuous.any():
        return (
            f"The marginals of the two models are at most {bounds.max(initial=0.0):.3g} apart in total variation, "
            f"{bounds.mean() if len(bounds) else 0.0:.3g} on average over the variables."
        )
    what = "every variable" if vacuous.all() else f"{int(vacuous.sum())} of {len(vacuous)} variables"
    if contracting:
        why = "the conditionals of the two models differ too much"
    else:
        name, value = norms.smallest_norm(matrix)
        why = (
            f"the bound {bound!r} on the dependencies of the projected model is not small enough ({name} norm "
            f"{value:.4g}; it must be below 1)"
        )
    return f"Nothing is known about {what}: {why}."


# -- arguments ------------------------------------------------------------------------------------------------------


def _as_unit_interval(
    name: str, values: ArrayLike, shape: tuple[int, ...], *, scalar: bool = False, slack: float = 0.0
) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if scalar and array.ndim == 0:
        array = np.broadcast_to(array, shape)
    if array.shape != shape:
        either = "be a number or " if scalar else ""
        raise ValueError(f"{name} must {either}have shape {shape}, got {array.shape}")
    if not ((array >= -slack) & (array <= 1.0 + slack)).all():
        raise ValueError(f"{name} must be from 0 to 1, got {array.min():g} to {array.max():g}")
    return np.clip(array, 0.0, 1.0)


def _as_variances(variances: ArrayLike, size: int) -> FloatArray:
    array = np.asarray(variances, dtype=np.float64)
    if array.shape != (size,):
        raise ValueError(f"variances must have shape {(size,)}, got {array.shape}")
    # Of two numbers 0 and 1 it is 1/2, the largest there is.
    if not ((array >= 0.0) & (array <= 0.5 + _ROUNDING)).all():
        raise ValueError(f"variances must be from 0 to 0.5, got {array.min():g} to {array.max():g}")
    return array


def _failure(confidence: Any) -> float:
    if isinstance(confidence, bool | str) or not 0.0 < float(confidence) < 1.0:
        raise ValueError(f"confidence must be a number above 0 and below 1, got {confidence!r}")
    return 1.0 - float(confidence)


def _as_failure(failure: float) -> float:
    if not 0.0 < failure < 1.0:
        raise ValueError(f"failure must be above 0 and below 1, got {failure!r}")
    return float(failure)
