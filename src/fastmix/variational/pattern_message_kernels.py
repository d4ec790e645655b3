"""Compiled rounds of belief propagation over tables that edges share. Import it inside functions only: it needs Numba.

The two messages of edge e lie side by side: that to its second variable from ``starts[e]`` on, that to its first
variable after it. Both are renewed together, from log-beliefs of variables that were added up before, so that one set
of messages is enough for rounds in which all are renewed at once.

Messages and beliefs are kept as they are, the largest entry of a message 1, or as logs (``as_logs``), the largest entry
0. Exponentials and logs of every entry take three quarters of a round (``benchmarks/shared_tables.py``). Places are
unsigned, so that no check for negative ones keeps loops from being vectorized.
"""

from __future__ import annotations

import numpy as np
from numba import uint64

from fastmix._jit import fused, inner, njit, outer
from fastmix.model.pattern_forms import LINEAR, POTTS

__all__ = ["pattern_beliefs", "pattern_rounds"]

_ONE_BITS = 1023 << 52  # of 1.0
_LOG2_E = 1.4426950408889634
_NEAREST = 6755399441055744.0  # 1.5 * 2^52: adding it leaves the nearest whole number in the low bits
_LN2_HIGH = 0.6931471803691238  # ln(2) in two parts, the first with zeros at its end
_LN2_LOW = 1.9082149292705877e-10

# Without NaN and signed zeros, a maximum can be found in several lanes at once, and sums too.
_in_lanes = njit(
    cache=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True, fastmath={"nnan", "nsz", "reassoc"}
)


# -- vectors --------------------------------------------------------------------------------------------------------


@_in_lanes
def _top(values, at, count):
    """The largest of some entries."""
    largest = values[at]
    for s in range(uint64(1), count):
        value = values[at + s]
        largest = value if value > largest else largest
    return largest


@_in_lanes
def _total(values, at, count):
    """The sum of some entries."""
    total = 0.0
    for s in range(count):
        total += values[at + s]
    return total


@_in_lanes
def _product(values, table, at, count):
    """The scalar product of a vector and a row of a table."""
    total = 0.0
    for s in range(count):
        total += values[s] * table[at + s]
    return total


@fused
def _exponentiate(patterns, start, count, weight, following, next_weight, top, table):
    """Fill in ``exp(weight * pattern + next_weight * following - top)``, for exponents from -700 to 0.

    The exponent is split into a multiple of ln(2) and a rest of at most 0.35, whose exponential is the Taylor series:
    the first term left out is below 1e-17.
    """
    for k in range(count):
        f = weight * patterns[start + k] - top
        if next_weight != 0.0:
            f += next_weight * patterns[following + k]
        f = max(f, -700.0)
        shifted = np.float64(f * _LOG2_E + _NEAREST)
        power = np.int64((shifted.view(np.int64) << 52) + _ONE_BITS).view(np.float64)
        times = shifted - _NEAREST
        r = (f - times * _LN2_HIGH) - times * _LN2_LOW
        p = 1.0 / 6227020800.0
        p = p * r + 1.0 / 479001600.0
        p = p * r + 1.0 / 39916800.0
        p = p * r + 1.0 / 3628800.0
        p = p * r + 1.0 / 362880.0
        p = p * r + 1.0 / 40320.0
        p = p * r + 1.0 / 5040.0
        p = p * r + 1.0 / 720.0
        p = p * r + 1.0 / 120.0
        p = p * r + 1.0 / 24.0
        p = p * r + 1.0 / 6.0
        p = p * r + 0.5
        p = p * r + 1.0
        p = p * r + 1.0
        table[k] = p * power


# -- messages through tables ------------------------------------------------------------------------------------------


@inner
def _through_potts(weights, count, step, factor, out):
    """Write ``sum_s weights[s] exp(step [s = t])`` for every t, with ``factor = exp(step)``, without cancellation."""
    total = _total(weights, uint64(0), count)
    if step >= 0.0:
        more = factor - 1.0
        for t in range(count):
            out[t] = total + more * weights[t]
        return
    # What is left beside the largest entry may be much less than that entry: it is added up by itself.
    largest = uint64(0)
    for t in range(count):
        if weights[t] > weights[largest]:
            largest = uint64(t)
        out[t] = (total - weights[t]) + factor * weights[t]
    rest = _total(weights, uint64(0), largest)
    rest += _total(weights, largest + uint64(1), count - largest - uint64(1))
    out[largest] = rest + factor * weights[largest]


@inner
def _add_window(weights, count, factor, length, upward, ends, out):
    """Add ``sum_(d < length) factor^d weights[t - d]`` for every t, or the same of ``t + d``, to ``out``.

    States are counted from the end that the sums come from, in blocks as long as the window. A window ends in the block
    of t and begins there or in the block before: so it is a sum from the beginning of a block and one up to the end of
    a block (``ends``), and nothing is subtracted (van Herk 1992).
    """
    for begin in range(uint64(0), count, length):
        end = min(begin + length, count)
        total = 0.0
        power = 1.0
        for k in range(begin, end):
            place = k if upward else count - uint64(1) - k
            total = factor * total + weights[place]
            power *= factor
            out[place] += total
            if begin > uint64(0) and k + uint64(1) < begin + length:
                out[place] += power * ends[k + uint64(1) - length]
        total = 0.0
        power = 1.0
        for back in range(end - begin):
            k = end - uint64(1) - back
            total += power * weights[k if upward else count - uint64(1) - k]
            power *= factor
            ends[k] = total


@inner
def _through_linear(weights, count, step, factor, reach, ends, out):
    """Write ``sum_s weights[s] exp(step min(|s - t|, reach))`` for every t, with ``factor = exp(step)``.

    1. The states up to ``reach`` below t and above it, t itself counted twice.
    2. Those further away have one factor.
    """
    for t in range(count):
        out[t] = -weights[t]
    length = count
    if reach < np.float64(count) - 1.0:
        length = uint64(reach) + uint64(1)
    _add_window(weights, count, factor, length, True, ends, out)  # 1.
    _add_window(weights, count, factor, length, False, ends, out)
    if length >= count:
        return
    least = np.exp(step * reach)
    below = 0.0  # 2.
    above = 0.0
    for t in range(length, count):
        back = count - uint64(1) - t
        below += weights[t - length]
        above += weights[back + length]
        out[t] += least * below
        out[back] += least * above


@inner
def _through_rows(weights, count, table, num_out, out):
    """Write the same for any exponentiated table whose rows are the states of the sender."""
    for t in range(num_out):
        out[t] = 0.0
    for s in range(count):
        row = s * num_out
        weight = weights[s]
        for t in range(num_out):
            out[t] += weight * table[row + t]


@inner
def _through_columns(weights, count, table, num_out, out):
    """The same, where the columns are the states of the sender."""
    for t in range(num_out):
        out[t] = _product(weights, table, t * count, count)


@inner
def _send(weights, count, kind, step, factor, reach, table, by_rows, num_out, ends, out):
    """Write the message that weights of the sender's states give, not normalized, through a table of any kind."""
    if kind == POTTS:
        _through_potts(weights, count, step, factor, out)
    elif kind == LINEAR:
        _through_linear(weights, count, step, factor, reach, ends, out)
    elif by_rows:
        _through_rows(weights, count, table, num_out, out)
    else:
        _through_columns(weights, count, table, num_out, out)


# -- beliefs and cavities -------------------------------------------------------------------------------------------


@inner
def _add_up(receivers, messages, totals, as_logs):
    """Write the beliefs of all variables, not normalized: unaries times, or plus, all incoming messages."""
    unary, unary_starts, indptr, places = receivers
    for i in range(len(unary_starts) - 1):
        base = uint64(unary_starts[i])
        count = uint64(unary_starts[i + 1]) - base
        for s in range(count):
            totals[base + s] = unary[base + s]
        for p in range(indptr[i], indptr[i + 1]):
            at = uint64(places[p])
            if as_logs:
                for s in range(count):
                    totals[base + s] += messages[at + s]
            else:
                for s in range(count):
                    totals[base + s] *= messages[at + s]


@inner
def _take_out(totals, base, messages, at, count, as_logs, cavity):
    """Write the weights of a sender's states without one message; the log that was taken out of them comes back."""
    if not as_logs:
        for s in range(count):
            cavity[s] = totals[base + s] / messages[at + s]
        return 0.0
    for s in range(count):
        cavity[s] = totals[base + s] - messages[at + s]
    top = _top(cavity, uint64(0), count)
    for s in range(count):
        cavity[s] = np.exp(cavity[s] - top)
    return top


@_in_lanes
def _largest_ratio(new, messages, at, count):
    """The largest of ``|new - old| / min(new, old)``: the largest ratio of both, less 1."""
    largest = 0.0
    for t in range(count):
        old = messages[at + t]
        value = new[t]
        less = value if value < old else old
        change = abs(value - old) / less
        largest = change if change > largest else largest
    return largest


@inner
def _replace(new, messages, at, count, damping, as_logs):
    """Put a message, its largest entry taken out, in the place of the old one; the change that this makes comes back.

    That is the largest difference of logs, or the largest ratio less 1, before damping.
    """
    top = _top(new, uint64(0), count)
    if as_logs:
        change = 0.0
        log_top = np.log(top)
        for t in range(count):
            new[t] = np.log(new[t]) - log_top
            change = max(change, abs(new[t] - messages[at + t]))
        if damping > 0.0:
            for t in range(count):
                new[t] += damping * (messages[at + t] - new[t])
            top = _top(new, uint64(0), count)
            for t in range(count):
                new[t] -= top
    else:
        scale = 1.0 / top
        for t in range(count):
            new[t] *= scale
        change = _largest_ratio(new, messages, at, count)
        if damping > 0.0:
            for t in range(count):
                new[t] *= (messages[at + t] / new[t]) ** damping
            scale = 1.0 / _top(new, uint64(0), count)
            for t in range(count):
                new[t] *= scale
    for t in range(count):
        messages[at + t] = new[t]
    return change


# -- rounds -----------------------------------------------------------------------------------------------------------


@outer
def pattern_rounds(
    receivers, edges, order, tables, forms, factors, tops, starts, messages, totals, room, as_logs, damping, tol,
    num_rounds,
):  # fmt: skip
    """Rounds made in which all messages are renewed at once, the last change, and whether it is within tol.

    ``receivers``, ``tables`` and ``forms`` are those of :mod:`fastmix.variational.pattern_messages`; ``factors`` are
    the exponentials of ``forms.step``, ``tops`` the largest entries of tables. ``order`` has edges of one pattern and
    weight one after another, where these are few: their exponentials are taken once.
    """
    _, unary_starts, _, _ = receivers
    patterns, pattern_starts, of_edge, turned, weights, next_weights = tables
    kinds, _, steps, reaches = forms
    first_cavity, second_cavity, out, ends, table = room
    is_mixed = len(next_weights) > 0
    num_made = 0
    largest = np.inf
    while num_made < num_rounds and largest > tol:
        _add_up(receivers, messages, totals, as_logs)
        largest = 0.0
        last = np.int64(-1)  # the edge whose table is exponentiated
        for k in range(len(order)):
            e = order[k]
            first = uint64(unary_starts[edges[e, 0]])
            second = uint64(unary_starts[edges[e, 1]])
            num_rows = uint64(unary_starts[edges[e, 0] + 1]) - first
            num_cols = uint64(unary_starts[edges[e, 1] + 1]) - second
            to_second = uint64(starts[e])
            to_first = to_second + num_cols
            kind = kinds[e]
            if kind != POTTS and kind != LINEAR:
                following = next_weights[e] if is_mixed else 0.0
                same = last >= 0 and of_edge[last] == of_edge[e] and weights[last] == weights[e]
                if not (same and (not is_mixed or next_weights[last] == following)):
                    size = num_rows * num_cols
                    start = uint64(pattern_starts[of_edge[e]])
                    _exponentiate(patterns, start, size, weights[e], start + size, following, tops[e], table)
                    last = np.int64(e)
            _take_out(totals, first, messages, to_first, num_rows, as_logs, first_cavity)
            _take_out(totals, second, messages, to_second, num_cols, as_logs, second_cavity)
            by_rows = not turned[e]
            _send(
                first_cavity, num_rows, kind, steps[e], factors[e], reaches[e], table, by_rows, num_cols, ends, out
            )  # fmt: skip
            largest = max(largest, _replace(out, messages, to_second, num_cols, damping, as_logs))
            _send(
                second_cavity, num_cols, kind, steps[e], factors[e], reaches[e], table, not by_rows, num_rows, ends, out
            )  # fmt: skip
            largest = max(largest, _replace(out, messages, to_first, num_rows, damping, as_logs))
        if not as_logs:
            largest = np.log1p(largest)
        num_made += 1
    return num_made, largest, largest <= tol


@outer
def pattern_beliefs(receivers, edges, tables, forms, factors, tops, starts, messages, totals, room, as_logs, pairs):
    """The Bethe estimate of log Z, without constants; the beliefs of variables are written to ``totals``.

    As in :func:`fastmix.variational.belief_kernels.table_beliefs`; without ``pairs`` edges do not count. The normalizer
    of the belief of an edge is the product of one variable's cavity and the message that the other's gives.
    """
    _, unary_starts, indptr, _ = receivers
    patterns, pattern_starts, of_edge, turned, weights, next_weights = tables
    kinds, levels, steps, reaches = forms
    first_cavity, second_cavity, out, ends, table = room
    is_mixed = len(next_weights) > 0
    log_z = 0.0
    _add_up(receivers, messages, totals, as_logs)
    for e in range(len(edges) if pairs else 0):
        first = uint64(unary_starts[edges[e, 0]])
        second = uint64(unary_starts[edges[e, 1]])
        num_rows = uint64(unary_starts[edges[e, 0] + 1]) - first
        num_cols = uint64(unary_starts[edges[e, 1] + 1]) - second
        to_second = uint64(starts[e])
        to_first = to_second + num_cols
        kind = kinds[e]
        level = levels[e]
        if kind != POTTS and kind != LINEAR:
            following = next_weights[e] if is_mixed else 0.0
            size = num_rows * num_cols
            start = uint64(pattern_starts[of_edge[e]])
            _exponentiate(patterns, start, size, weights[e], start + size, following, tops[e], table)
            level = tops[e]
        log_z += level + _take_out(totals, first, messages, to_first, num_rows, as_logs, first_cavity)
        log_z += _take_out(totals, second, messages, to_second, num_cols, as_logs, second_cavity)
        _send(
            first_cavity, num_rows, kind, steps[e], factors[e], reaches[e], table, not turned[e], num_cols, ends, out
        )  # fmt: skip
        log_z += np.log(_product(second_cavity, out, uint64(0), num_cols))
    for i in range(len(unary_starts) - 1):
        base = uint64(unary_starts[i])
        count = uint64(unary_starts[i + 1]) - base
        top = 0.0
        if as_logs:
            top = _top(totals, base, count)
            for s in range(count):
                totals[base + s] = np.exp(totals[base + s] - top)
        total = _total(totals, base, count)
        for s in range(count):
            totals[base + s] /= total
        log_z += (1.0 - (indptr[i + 1] - indptr[i])) * (top + np.log(total))
    return log_z
