"""Compiled messages between variables of any state counts. Import it inside functions only: it needs Numba.

An edge e = (i, j) of m carries two messages: number e goes to j, number m + e goes to i. A message is a vector of logs,
the largest entry 0; tables may have forbidden pairs, as long as every state has an allowed partner. The change that
decides on convergence is that of the logs, before damping.

Functions take whole arrays and where their part begins: a slice costs more than the few numbers in it.
"""

from __future__ import annotations

import numpy as np

from fastmix._jit import njit
from fastmix.methods.support_kernels import order_heap, settle

__all__ = ["start_residual", "table_beliefs", "table_residual", "table_rounds"]

# Functions called only from compiled code need no entry points from Python, which saves compilation time.
# Division follows IEEE rules, without a check for zero.
_inner = njit(cache=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
_entry = njit(cache=True, nogil=True, error_model="numpy")


# -- one message ----------------------------------------------------------------------------------------------------


@_inner
def _move_top_to_zero(message, start, count):  # type: ignore[no-untyped-def]
    top = message[start]
    for b in range(start + 1, start + count):
        top = max(top, message[b])
    for b in range(start, start + count):
        message[b] -= top


@_inner
def _new_message(cavity, num_in, table, weights, first, tame, forward, work, out, start, num_out):  # type: ignore[no-untyped-def]
    """``out[b] = log sum_a exp(cavity[a] + table[a, b])`` with the largest entry moved to 0.

    The table begins at ``first`` and lies by rows; forward messages sum over rows, the others over columns. A tame
    table has exponentials (``weights``) of which none vanishes: the sum is a product of a matrix and a vector. Entries
    of the cavity that underflow there are too small to matter: no weight is below exp(-300), no double below exp(-745).
    """
    top = cavity[0]
    for a in range(1, num_in):
        top = max(top, cavity[a])
    if not tame:
        step_in, step_out = (num_out, 1) if forward else (1, num_in)
        for b in range(num_out):
            best = -np.inf
            for a in range(num_in):
                best = max(best, cavity[a] + table[first + a * step_in + b * step_out])
            total = 0.0
            for a in range(num_in):
                total += np.exp(cavity[a] + table[first + a * step_in + b * step_out] - best)
            out[start + b] = best + np.log(total)
        _move_top_to_zero(out, start, num_out)
        return
    for a in range(num_in):
        work[a] = np.exp(cavity[a] - top)
    if forward:
        for b in range(num_out):
            out[start + b] = 0.0
        for a in range(num_in):
            factor, row = work[a], first + a * num_out
            for b in range(num_out):
                out[start + b] += factor * weights[row + b]
    else:
        for b in range(num_out):
            total, row = 0.0, first + b * num_in
            for a in range(num_in):
                total += work[a] * weights[row + a]
            out[start + b] = total
    for b in range(start, start + num_out):
        out[b] = np.log(out[b])
    _move_top_to_zero(out, start, num_out)


@_inner
def _distance(x, y, start, count):  # type: ignore[no-untyped-def]
    largest = 0.0
    for b in range(start, start + count):
        largest = max(largest, abs(x[b] - y[b]))
    return largest


@_inner
def _mix(target, other, weight, start, count):  # type: ignore[no-untyped-def]
    """Move the logs of a message towards another one by a fraction of the way."""
    for b in range(start, start + count):
        target[b] += weight * (other[b] - target[b])
    _move_top_to_zero(target, start, count)


@_inner
def _node_total(i, unary, unary_offsets, indptr, incoming, starts, messages, totals):  # type: ignore[no-untyped-def]
    """Log-belief of one variable, not normalised: its unary and all incoming messages."""
    base, count = unary_offsets[i], unary_offsets[i + 1] - unary_offsets[i]
    for k in range(base, base + count):
        totals[k] = unary[k]
    for p in range(indptr[i], indptr[i + 1]):
        begin = starts[incoming[p]]
        for k in range(count):
            totals[base + k] += messages[begin + k]


@_inner
def _renew(  # type: ignore[no-untyped-def]
    d, edges, offsets, table, weights, tame, totals, unary_offsets, starts, messages, cavity, work, out
):
    """The new message number d, from the totals of its sender."""
    m = len(edges)
    forward = d < m
    e = d if forward else d - m
    back = d + m if forward else e
    base = unary_offsets[edges[e, 0] if forward else edges[e, 1]]
    begin, num_in = starts[back], starts[back + 1] - starts[back]
    for k in range(num_in):
        cavity[k] = totals[base + k] - messages[begin + k]
    num_out = starts[d + 1] - starts[d]
    _new_message(cavity, num_in, table, weights, offsets[e], tame[e], forward, work, out, starts[d], num_out)


# -- all at once ----------------------------------------------------------------------------------------------------


@_entry
def table_rounds(  # type: ignore[no-untyped-def]
    unary, unary_offsets, indptr, incoming, edges, offsets, table, weights, tame, starts, messages, spare, totals,
    cavity, work, damping, tol, num_rounds,
):  # fmt: skip
    """Rounds in which all messages are renewed at once.

    Parameters
    ----------
    unary, unary_offsets, edges, offsets, table
        Arrays of the model.
    indptr, incoming : int arrays (n + 1,), (2 m,)
        The messages that each variable receives.
    weights, tame : float array, bool array (m,)
        Exponentials of the tables, and where they may be used.
    starts : int array (2 m + 1,)
        Where each message begins.
    messages, spare : float array
        Messages, changed; and a second set.
    totals, cavity, work : float arrays
        Working space: as long as ``unary``, and twice the largest state count.
    damping : float
        Weight of the old message in the mean of the logs.

    Returns
    -------
    rounds made, largest change of a log in the last one, whether it is within tol
    """
    x, y = messages, spare
    done, largest = 0, np.inf
    while done < num_rounds and largest > tol:
        for i in range(len(unary_offsets) - 1):
            _node_total(i, unary, unary_offsets, indptr, incoming, starts, x, totals)
        largest = 0.0
        for d in range(len(starts) - 1):
            _renew(d, edges, offsets, table, weights, tame, totals, unary_offsets, starts, x, cavity, work, y)
            count = starts[d + 1] - starts[d]
            largest = max(largest, _distance(y, x, starts[d], count))
            if damping > 0.0:
                _mix(y, x, damping, starts[d], count)
        x, y = y, x
        done += 1
    if done % 2:
        for k in range(len(x)):
            messages[k] = x[k]
    return done, largest, largest <= tol


# -- the most changed first -----------------------------------------------------------------------------------------


@_entry
def start_residual(  # type: ignore[no-untyped-def]
    unary, unary_offsets, indptr, incoming, edges, offsets, table, weights, tame, starts, messages, pending, totals,
    cavity, work, heap, place, keys,
):  # fmt: skip
    """Fill the pending messages, the totals of the variables, and the heap of messages by their residual."""
    for i in range(len(unary_offsets) - 1):
        _node_total(i, unary, unary_offsets, indptr, incoming, starts, messages, totals)
    for d in range(len(heap)):
        _renew(d, edges, offsets, table, weights, tame, totals, unary_offsets, starts, messages, cavity, work, pending)
        keys[d] = _distance(pending, messages, starts[d], starts[d + 1] - starts[d])
        heap[d] = d
    order_heap(heap, place, keys)


@_entry
def table_residual(  # type: ignore[no-untyped-def]
    unary, unary_offsets, indptr, incoming, edges, offsets, table, weights, tame, starts, messages, pending, totals,
    cavity, work, heap, place, keys, damping, tol, num_updates,
):  # fmt: skip
    """Updates of one message at a time, that with the largest change first; the state is that of start_residual.

    Returns
    -------
    updates made, largest change of a log still pending, whether it is within tol
    """
    m = len(edges)
    for done in range(num_updates):
        d = heap[0]
        if keys[d] <= tol:
            return done, keys[d], True
        count = starts[d + 1] - starts[d]
        _mix(messages, pending, 1.0 - damping, starts[d], count)
        keys[d] = _distance(pending, messages, starts[d], count) if damping > 0.0 else 0.0
        settle(heap, place, keys, d)
        j = edges[d, 1] if d < m else edges[d - m, 0]
        # Summed afresh: differences added up over millions of updates would drift.
        _node_total(j, unary, unary_offsets, indptr, incoming, starts, messages, totals)
        for p in range(indptr[j], indptr[j + 1]):
            if incoming[p] == d:
                continue  # what goes back to the sender does not depend on its message
            k = incoming[p] + m if incoming[p] < m else incoming[p] - m
            _renew(
                k, edges, offsets, table, weights, tame, totals, unary_offsets, starts, messages, cavity, work, pending
            )
            keys[k] = _distance(pending, messages, starts[k], starts[k + 1] - starts[k])
            settle(heap, place, keys, k)
    return num_updates, keys[heap[0]], keys[heap[0]] <= tol


# -- beliefs --------------------------------------------------------------------------------------------------------


@_inner
def _normalise(values, start, stop):  # type: ignore[no-untyped-def]
    """Turn logs into probabilities in place; the log of their sum is returned."""
    top = -np.inf
    for k in range(start, stop):
        top = max(top, values[k])
    total = 0.0
    for k in range(start, stop):
        values[k] = np.exp(values[k] - top)
        total += values[k]
    for k in range(start, stop):
        values[k] /= total
    return top + np.log(total)


@_entry
def table_beliefs(unary, unary_offsets, indptr, incoming, edges, offsets, table, starts, messages, nodes, pairs):  # type: ignore[no-untyped-def]
    """Beliefs of variables and edges from messages, and the Bethe estimate of log Z without the model's constant.

    Parameters
    ----------
    nodes : float array, aligned with ``unary``
        Written.
    pairs : float array, aligned with ``table``
        Written.

    Returns
    -------
    float
        ``sum_ij log Z_ij + sum_i (1 - d_i) log Z_i``, with the normalisers of the beliefs as the messages stand: it
        does not depend on how the messages are scaled.
    """
    m = len(edges)
    log_z = 0.0
    for i in range(len(unary_offsets) - 1):
        _node_total(i, unary, unary_offsets, indptr, incoming, starts, messages, nodes)
    for e in range(m):
        first, second = unary_offsets[edges[e, 0]], unary_offsets[edges[e, 1]]
        rows, columns = starts[m + e + 1] - starts[m + e], starts[e + 1] - starts[e]
        for a in range(rows):
            for b in range(columns):
                k = offsets[e] + a * columns + b
                cavities = (nodes[first + a] - messages[starts[m + e] + a]) + (
                    nodes[second + b] - messages[starts[e] + b]
                )
                pairs[k] = table[k] + cavities
        log_z += _normalise(pairs, offsets[e], offsets[e + 1])
    for i in range(len(unary_offsets) - 1):
        degree = indptr[i + 1] - indptr[i]
        log_z += (1.0 - degree) * _normalise(nodes, unary_offsets[i], unary_offsets[i + 1])
    return log_z
