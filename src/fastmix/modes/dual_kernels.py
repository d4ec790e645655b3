"""Compiled passes of messages that bound the largest log-weight. Import it inside functions only: it needs Numba.

An edge has room for one message: the latest, in whichever direction that went. It lies from ``message_starts[e]`` on,
its largest entry 0. Loops take whole arrays and unsigned places in them: slices are counted references, and checks for
negative places keep loops from being vectorized.
"""

from __future__ import annotations

import numpy as np
from numba import uint64

from fastmix._jit import inner, njit, outer
from fastmix.model.pattern_forms import LINEAR, POTTS
from fastmix.modes.descent_kernels import add_row

__all__ = ["dual_pass"]

# Without NaN and signed zeros, a maximum can be found in several lanes at once.
_ordered = njit(
    cache=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True, fastmath={"nnan", "nsz"}
)


# -- vectors --------------------------------------------------------------------------------------------------------


@_ordered
def _top(values, at, count):
    """The largest of some entries."""
    largest = values[at]
    for s in range(uint64(1), count):
        value = values[at + s]
        largest = value if value > largest else largest
    return largest


@_ordered
def _best_sum(values, table, at, weight, count):
    """The largest sum of an entry and a weighted one of a row of a table."""
    largest = -np.inf
    for s in range(count):
        value = values[s] + weight * table[at + s]
        largest = value if value > largest else largest
    return largest


@_ordered
def _best_mixed_sum(values, table, at, weight, after, next_weight, count):
    """The same, where the table lies between two patterns."""
    largest = -np.inf
    for s in range(count):
        value = values[s] + (weight * table[at + s] + next_weight * table[after + s])
        largest = value if value > largest else largest
    return largest


@inner
def _first_of_largest(values, count):
    """The place of the largest entry, the first of equals."""
    chosen = uint64(0)
    for s in range(uint64(1), count):
        if values[s] > values[chosen]:
            chosen = uint64(s)
    return chosen


# -- messages -------------------------------------------------------------------------------------------------------


@inner
def _send_potts(cavity, count, step, messages, at):
    """Write a message through a Potts table, largest entry 0; that entry comes back."""
    top = _top(cavity, uint64(0), count)
    if step >= 0.0:
        for t in range(count):
            value = cavity[t] - top
            messages[at + t] = value if value > -step else -step
        return top + step
    # Equal states cost something: all but the best state of the sender leave that one to it.
    chosen = _first_of_largest(cavity, count)
    second = -np.inf
    for t in range(count):
        if t != chosen:
            second = max(second, cavity[t])
        messages[at + t] = 0.0
    messages[at + chosen] = max(top + step, second) - top
    return top


@inner
def _send_linear(cavity, count, step, reach, messages, at):
    """Write a message through a truncated linear table, as above; the step is at most 0.

    The largest ``cavity[s] + step |s - t|`` for all t takes one pass upward and one downward (Felzenszwalb and
    Huttenlocher, 2006).
    """
    top = _top(cavity, uint64(0), count)
    least = step * reach
    value = -np.inf
    for t in range(count):
        value = max(value + step, cavity[t] - top)
        messages[at + t] = value
    for k in range(count):
        t = count - uint64(1) - k
        value = max(value + step, messages[at + t])
        messages[at + t] = max(value, least)
    return top


@inner
def _settle(messages, at, count):
    """Take the largest entry out of a message; it comes back."""
    best = _top(messages, at, count)
    for t in range(count):
        messages[at + t] -= best
    return best


@inner
def _send_rows(cavity, count, table, start, weight, num_out, messages, at):
    """Write a message through any table whose rows are the states of the sender."""
    for t in range(num_out):
        messages[at + t] = -np.inf
    for s in range(count):
        row = start + s * num_out
        own = cavity[s]
        for t in range(num_out):
            value = own + weight * table[row + t]
            messages[at + t] = value if value > messages[at + t] else messages[at + t]
    return _settle(messages, at, num_out)


@inner
def _send_columns(cavity, count, table, start, weight, num_out, messages, at):
    """The same, where the columns are the states of the sender."""
    for t in range(num_out):
        messages[at + t] = _best_sum(cavity, table, start + t * count, weight, count)
    return _settle(messages, at, num_out)


@inner
def _send_mixed(cavity, count, table, start, weight, next_weight, by_rows, num_out, messages, at):
    """The same, where the table lies between two patterns."""
    after = start + count * num_out
    if not by_rows:
        for t in range(num_out):
            row = t * count
            messages[at + t] = _best_mixed_sum(cavity, table, start + row, weight, after + row, next_weight, count)
        return _settle(messages, at, num_out)
    for t in range(num_out):
        messages[at + t] = -np.inf
    for s in range(count):
        row = s * num_out
        for t in range(num_out):
            value = cavity[s] + (weight * table[start + row + t] + next_weight * table[after + row + t])
            messages[at + t] = value if value > messages[at + t] else messages[at + t]
    return _settle(messages, at, num_out)


# -- a pass ---------------------------------------------------------------------------------------------------------


@outer
def dual_pass(forward, begin, end, variables, tables, forms, message_starts, messages, states, room):
    """The bound and the log-weight, without constants, that a pass over variables ``begin`` to ``end`` adds.

    Half an iteration of sequential tree-reweighted message passing (Kolmogorov 2006), forward or backward through the
    variables, which are counted from where the pass begins. Of each variable, in turn:

    1. its belief is the sum of its unary and of the latest messages on all its edges. What it has beside the states
       chosen for the variables before it, in place of their messages, decides its own state;
    2. the largest entry of the belief goes to the bound; the rest is shared evenly among the chains through the
       variable, of which the side with more neighbors has as many;
    3. every neighbor that is still to come gets a message, in the room of the one that came from there, and its largest
       entry goes to the bound.

    Whatever the messages are at the start, the sum over a whole pass is an upper bound.
    """
    unary, unary_starts, indptr, neighbors, edge_ids = variables
    patterns, starts, of_edge, turned, weights, next_weights = tables
    kinds, _, steps, reaches = forms
    belief, decoded, cavity = room
    n = len(unary_starts) - 1
    is_mixed = len(next_weights) > 0
    bound = 0.0
    rest = 0.0  # of the bound, lost in rounding so far
    log_weight = 0.0
    for number in range(begin, end):
        i = number if forward else n - 1 - number
        base = uint64(unary_starts[i])
        count = uint64(unary_starts[i + 1]) - base
        first = indptr[i]
        last = indptr[i + 1]
        # 1.
        for s in range(count):
            belief[s] = unary[base + s]
            decoded[s] = unary[base + s]
        num_before = 0
        for k in range(first, last):
            e = edge_ids[k]
            j = neighbors[k]
            at = uint64(message_starts[e])
            if (j < i) != forward:
                for s in range(count):
                    belief[s] += messages[at + s]
                    decoded[s] += messages[at + s]
                continue
            num_before += 1
            for s in range(count):
                belief[s] += messages[at + s]
            state = uint64(states[j])
            step = steps[e]
            if kinds[e] == POTTS:
                decoded[state] += step
            elif kinds[e] == LINEAR:
                for s in range(count):
                    decoded[s] += step * min(abs(np.float64(s) - np.float64(state)), reaches[e])
            else:
                by_rows = (j < i) != turned[e]
                start = uint64(starts[of_edge[e]])
                num_other = uint64(unary_starts[j + 1] - unary_starts[j])
                add_row(decoded, count, patterns, start, weights[e], state, by_rows, num_other)
                if is_mixed and next_weights[e] != 0.0:
                    start += count * num_other
                    add_row(decoded, count, patterns, start, next_weights[e], state, by_rows, num_other)
        chosen = _first_of_largest(decoded, count)
        states[i] = chosen
        log_weight += decoded[chosen]
        # 2.
        top = _top(belief, uint64(0), count)
        gain = top
        share = 1.0 / max(num_before, last - first - num_before, 1)
        for s in range(count):
            belief[s] = share * (belief[s] - top)
        # 3.
        for k in range(first, last):
            j = neighbors[k]
            if (j < i) == forward:
                continue
            e = edge_ids[k]
            at = uint64(message_starts[e])
            log_weight -= messages[at + chosen]
            for s in range(count):
                cavity[s] = belief[s] - messages[at + s]
            step = steps[e]
            if kinds[e] == POTTS:
                gain += _send_potts(cavity, count, step, messages, at)
                continue
            if kinds[e] == LINEAR:
                gain += _send_linear(cavity, count, step, reaches[e], messages, at)
                continue
            num_out = uint64(unary_starts[j + 1] - unary_starts[j])
            start = uint64(starts[of_edge[e]])
            by_rows = (i < j) != turned[e]
            if is_mixed and next_weights[e] != 0.0:
                gain += _send_mixed(
                    cavity, count, patterns, start, weights[e], next_weights[e], by_rows, num_out, messages, at
                )
            elif by_rows:
                gain += _send_rows(cavity, count, patterns, start, weights[e], num_out, messages, at)
            else:
                gain += _send_columns(cavity, count, patterns, start, weights[e], num_out, messages, at)
        # A compensated sum: what rounding takes from it would hide a small gap.
        gain += rest
        total = bound + gain
        rest = gain - (total - bound)
        bound = total
    return bound, log_weight
