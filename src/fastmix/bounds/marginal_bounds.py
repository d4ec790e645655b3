"""Bounds on marginals: from bounds on the weights of states, and from the neighbors of a variable alone."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix.bounds.reduced_tables import ReducedTables
from fastmix.bounds.tuning import (
    LOG_WEIGHT_GAP,
    MAX_PAIR_STATES,
    MAX_PAIRS_OF_STATES,
    ODDS_SECONDS_PER_ENTRY,
    RELATIVE_SLACK,
    SUM_SLACK,
    UNDERFLOW,
)
from fastmix.model.flat import reduce_tables

__all__ = ["blanket_bounds", "combine", "outwards", "tighten"]

_EPS = float(np.finfo(np.float64).eps)


def outwards(lower: FloatArray, upper: FloatArray, error: FloatArray | float) -> tuple[FloatArray, FloatArray]:
    """Bounds on probabilities, moved apart by an error of their logarithms and by what may have underflown."""
    lower = lower * np.exp(-np.asarray(error))
    with np.errstate(over="ignore"):
        upper = np.minimum(upper, 1.0) * np.exp(np.asarray(error))
    return np.where(lower < UNDERFLOW, 0.0, lower), np.minimum(np.maximum(upper, UNDERFLOW), 1.0)


def combine(bounds: list[tuple[FloatArray, FloatArray]], tables: ReducedTables) -> tuple[FloatArray, FloatArray]:
    """The tightest of several bounds on marginals; those of the other states of a variable count for a state, too."""
    lower = np.maximum.reduce([low for low, _ in bounds])
    upper = np.minimum.reduce([high for _, high in bounds])
    if tables.num_variables:
        starts = tables.unary_starts
        lower_sums = np.repeat(np.add.reduceat(lower, starts), tables.num_states)
        upper_sums = np.repeat(np.add.reduceat(upper, starts), tables.num_states)
        # The states of a variable have the sum 1; rounding of the sums is far below the slack.
        least_left = 1.0 - (upper_sums - upper) - SUM_SLACK
        most_left = 1.0 - (lower_sums - lower) + SUM_SLACK
        lower = np.maximum(lower, least_left)
        upper = np.minimum(upper, most_left)
    return lower, np.maximum(upper, lower)


# -- from bounds on the weights of states -----------------------------------------------------------------------------


def tighten(
    log_z: tuple[float, float], lower: FloatArray, upper: FloatArray, tables: ReducedTables
) -> tuple[tuple[float, float], FloatArray, FloatArray]:
    """Bounds on log Z, tightened by the sums over the states of any variable, and bounds on marginals.

    1. All numbers are taken relative to the upper bound U on log Z, so that those that count are near 0, where
       rounding is small.
    2. The states of any one variable add up to Z: sums of their bounds bound log Z.
    3. The other states of a variable weigh what their bounds add up to, and at least ``exp(L) - exp(U_a)`` and at most
       ``exp(U) - exp(L_a)``.
    4. The state itself weighs what the others leave of Z.
    5. With the weight of the others within ``[L_rest, U_rest]``, ``p(x_i = a)`` lies between
       ``1 / (1 + exp(U_rest - L_a))`` and ``1 / (1 + exp(L_rest - U_a))``.

    Parameters
    ----------
    log_z : (float, float)
        Bounds ``L <= log Z <= U``.
    lower, upper : float arrays (num_unary,)
        Bounds on the log-weights of all states, laid out as the tables of single variables.
    tables : ReducedTables

    Returns
    -------
    log_z : (float, float)
    lower, upper : float arrays (num_unary,)
        Bounds on marginals.
    """
    if not tables.num_variables:
        return log_z, lower, upper
    if float(lower.max()) < float(upper.min()) - LOG_WEIGHT_GAP:
        return log_z, np.zeros(len(lower)), np.ones(len(upper))
    starts = tables.unary_starts
    counts = tables.num_states
    slack = RELATIVE_SLACK * (1.0 + max(counts) / 16.0)

    # 1. Relative to U.
    unit = log_z[1] if math.isfinite(log_z[1]) else 0.0
    lower = lower - unit - _rounding_of_difference(lower, unit)
    upper = upper - unit + _rounding_of_difference(upper, unit)
    low_error = 4.0 * _EPS * (abs(unit) + abs(log_z[0])) if math.isfinite(log_z[0]) else 0.0
    low_z = log_z[0] - unit - low_error
    high_z = log_z[1] - unit

    # 2. Sums over the states of one variable.
    low_sum = float(np.logaddexp.reduceat(lower, starts).max())
    high_sum = float(np.logaddexp.reduceat(upper, starts).min())
    low_z = max(low_z, low_sum - slack * (1.0 + abs(low_sum)) if math.isfinite(low_sum) else low_sum)
    high_z = min(high_z, high_sum + slack * (1.0 + abs(high_sum)))
    upper = np.minimum(upper, high_z)

    # 3. The weight of the other states.
    rest_lower = np.maximum(_others(lower, starts, counts), _minus(low_z, upper, 1.0))
    rest_upper = np.minimum(_others(upper, starts, counts), _minus(high_z, lower, -1.0))

    # 4. The weight of the state itself.
    own_lower = np.maximum(lower, _minus(low_z, rest_upper, 1.0))
    own_upper = np.minimum(upper, _minus(high_z, rest_lower, -1.0))

    # 5. Marginals.
    low = np.where(np.isfinite(own_lower) & np.isfinite(rest_upper), _share_of(own_lower, rest_upper, -slack), 0.0)
    high = np.where(np.isfinite(rest_lower) & np.isfinite(own_upper), _share_of(own_upper, rest_lower, slack), 1.0)
    low, high = outwards(low, high, slack)
    least = low_z + unit - 4.0 * _EPS * (abs(unit) + abs(low_z)) if math.isfinite(low_z) else low_z
    most = high_z + unit + 4.0 * _EPS * (abs(unit) + abs(high_z))
    return (max(log_z[0], least), min(log_z[1], most)), low, high


def _rounding_of_difference(values: FloatArray, unit: float) -> FloatArray:
    """The largest rounding error of ``values - unit``; 0 where that is not finite."""
    return np.where(np.isfinite(values), 2.0 * _EPS * (np.abs(values) + abs(unit)), 0.0)


def _share_of(own: FloatArray, rest: FloatArray, slack: float) -> FloatArray:
    """``exp(own) / (exp(own) + exp(rest))``, with a relative slack of the numbers themselves."""
    with np.errstate(over="ignore", invalid="ignore"):
        moved = slack * (np.abs(own) + np.abs(rest))
        return np.asarray(1.0 / (1.0 + np.exp(rest - own - moved)))


def _others(values: FloatArray, starts: IntArray, counts: list[int]) -> FloatArray:
    """For every state the log of the summed weights of the other states of its variable."""
    result = np.full(len(values), -np.inf)
    sizes = np.array(counts)
    for count in np.unique(sizes).tolist():
        index = starts[sizes == count][:, None] + np.arange(count)
        block = values[index]
        others = np.full_like(block, -np.inf)
        # What comes before every state, and what comes after it: linear in the states.
        before = np.logaddexp.accumulate(block, axis=1)
        after = np.logaddexp.accumulate(block[:, ::-1], axis=1)[:, ::-1]
        others[:, 1:] = before[:, :-1]
        others[:, :-1] = np.logaddexp(others[:, :-1], after[:, 1:])
        result[index] = others
    return result


def _minus(total: float, part: FloatArray, side: float) -> FloatArray:
    """A lower (side 1) or an upper bound (side -1) on ``log(exp(total) - exp(part))``; -inf if that is not positive.

    Where both are nearly equal their own rounding is most of what is left.
    """
    if not math.isfinite(total):
        return np.full(len(part), total)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.where(np.isfinite(part), 8.0 * _EPS * (1.0 + abs(total) + np.abs(part)), 0.0)
        left = -np.expm1(np.minimum(part - total + side * error, 0.0))
        return np.asarray(total + np.log(left) - side * error)


# -- from the neighbors of a variable ---------------------------------------------------------------------------------


def blanket_bounds(tables: ReducedTables, clock: Clock = NO_LIMIT) -> tuple[FloatArray, FloatArray]:
    """Bounds on marginals from the tables of each variable alone, whatever the states of its neighbors are.

    A marginal is a mean of conditional probabilities given the neighbors, so it lies between the smallest and the
    largest that differences of log-odds allow, table by table. Where there is no time the bounds are 0 and 1.
    """
    lower = np.zeros(tables.num_unary)
    upper = np.ones(tables.num_unary)
    odds = _interval_of_log_odds(tables, clock)
    if odds is None:
        return lower, upper
    low, high = odds
    sizes = np.array(tables.num_states, dtype=np.int64)
    for count in np.unique(sizes).tolist():
        chosen = np.flatnonzero(sizes == count)
        index = tables.offsets[chosen][:, None] + np.arange(count)
        with np.errstate(over="ignore"):
            lower[index] = 1.0 / np.exp(-low[chosen][:, :count, :count]).sum(axis=2)
            upper[index] = 1.0 / np.exp(-high[chosen][:, :count, :count]).sum(axis=2)
    return outwards(lower, upper, np.repeat(_rounding_of_odds(tables), tables.num_states))


def _interval_of_log_odds(tables: ReducedTables, clock: Clock) -> tuple[FloatArray, FloatArray] | None:
    """Lower and upper ends of the log-odds of state a against b, both (n, states, states); None without the time."""
    n = tables.num_variables
    most_states = max(tables.num_states, default=1)
    work = sum([group.positions.size * sum(shape) for shape, group in tables.groups.items()])
    too_large = most_states > MAX_PAIR_STATES or n * most_states * most_states > MAX_PAIRS_OF_STATES
    if too_large or work * ODDS_SECONDS_PER_ENTRY > clock.left():
        return None
    low = np.zeros((n, most_states, most_states))
    high = np.zeros((n, most_states, most_states))
    for shape, (scopes, positions) in tables.groups.items():
        stack = tables.values[positions]
        for axis, count in enumerate(shape):
            moved = np.moveaxis(stack, axis + 1, 1).reshape(len(scopes), count, -1)
            if clock.past():
                return None
            for a, b in combinations(range(count), 2):
                least, largest = _extremes(moved[:, a], moved[:, b])
                low[:, a, b] += np.bincount(scopes[:, axis], least, minlength=n)
                high[:, a, b] += np.bincount(scopes[:, axis], largest, minlength=n)
                low[:, b, a] = -high[:, a, b]
                high[:, b, a] = -low[:, a, b]
    return low, high


def _extremes(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The least and the largest of every row of ``first - second``; infinite where an entry of a row is."""
    with np.errstate(invalid="ignore"):
        odds = first - second
    flat = odds.reshape(-1)
    ends = np.arange(len(odds) + 1) * odds.shape[1]
    least = reduce_tables(np.minimum, flat, ends)
    largest = reduce_tables(np.maximum, flat, ends)
    hard = ~np.isfinite(least) | ~np.isfinite(largest)
    return np.where(hard, -np.inf, least), np.where(hard, np.inf, largest)


def _rounding_of_odds(tables: ReducedTables) -> FloatArray:
    """The largest rounding error of the sum of the tables of every variable, (n,)."""
    n = tables.num_variables
    each = 2.0 * np.repeat(tables.largest, np.diff(tables.scope_starts))
    size = np.bincount(tables.scope_variables, each, minlength=n)
    count = np.bincount(tables.scope_variables, minlength=n)
    return 4.0 * _EPS * (count + 16.0 + max(tables.num_states, default=0)) * (1.0 + size)
