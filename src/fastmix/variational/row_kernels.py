"""Compiled belief propagation for rows of evidence side by side; see :mod:`fastmix.variational.row_messages`.

Every message has one more axis, the innermost: the row. So the loops over rows are vectorized, and what it takes to
find the place of an entry is paid once for all of them. Import this module inside functions only: it needs Numba.
"""

from __future__ import annotations

import math

import numpy as np

from fastmix._jit import njit

__all__ = ["pass_messages", "read_beliefs"]

_OPTIONS = {"cache": True, "nogil": True, "error_model": "numpy"}
_FAST = {**_OPTIONS, "fastmath": {"nnan", "nsz", "contract"}}


@njit(**_FAST)
def _scale(out, by):
    """Multiply ``out`` by as many numbers."""
    for c in range(len(out)):
        out[c] *= by[c]


@njit(**_FAST)
def _copy(out, x):
    """Write a run of numbers to another; an assignment of slices takes a second more to compile."""
    for c in range(len(out)):
        out[c] = x[c]


@njit(**_FAST)
def _largest(x):
    """The largest of some numbers that are not negative."""
    found = 0.0
    for c in range(len(x)):
        found = x[c] if x[c] > found else found
    return found


@njit(**_FAST)
def _multiply(out, x, y):
    """Write the products of two runs of numbers to a third."""
    for c in range(len(out)):
        out[c] = x[c] * y[c]


@njit(**_FAST)
def _add_multiple(out, x, factor):
    """Add a multiple of a run of numbers to another."""
    for c in range(len(out)):
        out[c] += x[c] * factor


@njit(**_FAST)
def _keep_larger(out, x):
    """Let ``out`` be at least as large as ``x``."""
    for c in range(len(out)):
        out[c] = x[c] if x[c] > out[c] else out[c]


@njit(**_FAST)
def _blend(message, new, by, damping, change):
    """Turn a message into the mean of itself and the new one, times ``by``; ``change`` is at least the difference."""
    for c in range(len(message)):
        value = new[c] * by[c]
        step = abs(value - message[c])
        change[c] = step if step > change[c] else change[c]
        message[c] = value + damping * (message[c] - value)


@njit(**_OPTIONS)
def _invert(high, is_lost):
    """Replace largest entries by their inverses; rows in which they are zero are marked as lost."""
    for c in range(len(high)):
        if high[c] > 0.0:
            high[c] = 1.0 / high[c]
        else:
            is_lost[c] = True
            high[c] = 1.0


@njit(**_OPTIONS)
def _divide_by_largest(block, high, is_lost, logs):
    """Divide entries (L, W) by the largest of every row; the logs of what they are divided by are added to ``logs``."""
    high[:] = 0.0
    for a in range(len(block)):
        _keep_larger(high, block[a])
    _invert(high, is_lost)
    for a in range(len(block)):
        _scale(block[a], high)
    for c in range(len(high)):
        logs[c] -= math.log(high[c])


@njit(**_OPTIONS)
def _fill_products(i, graph, unary, messages, products, is_wide, high, is_lost, logs):
    """Write the products of the unaries of a variable and of its first messages, one more each time; their number.

    ``logs`` are added to by what products are divided by, where their logs may be out of range.
    """
    node_starts, indptr, _, back, starts, _, _, _ = graph
    first = node_starts[i]
    size = node_starts[i + 1] - first
    degree = indptr[i + 1] - indptr[i]
    for a in range(size):
        _copy(products[0, a], unary[first + a])
    for t in range(degree):
        incoming = starts[back[indptr[i] + t]]
        for a in range(size):
            _multiply(products[t + 1, a], products[t, a], messages[incoming + a])
        if is_wide[i]:
            _divide_by_largest(products[t + 1, :size], high, is_lost, logs)
    return degree


@njit(**_OPTIONS)
def _send(k, size, graph, tables, cavity, new, high):
    """Write the message of a direction from the products of all others; the largest entries, too; its length."""
    _, _, _, _, starts, table_starts, own_steps, other_steps = graph
    length = starts[k + 1] - starts[k]
    high[:] = 0.0
    for b in range(length):
        new[b, :] = 0.0
        for a in range(size):
            _add_multiple(new[b], cavity[a], tables[table_starts[k] + a * own_steps[k] + b * other_steps[k]])
        _keep_larger(high, new[b])
    return length


@njit(**_OPTIONS)
def pass_messages(order, graph, tables, unary, is_wide, messages, products, damping, tol, max_passes, is_lost, change):
    """Passes over the variables, forward and back in turn, until no row changes by more than ``tol``; their number.

    1. For every variable the products of its unaries and of the first messages that come in.
    2. From the last neighbor to the first: the products of all messages but one are those of the first, and of the
       last ones, which are multiplied up on the way. The message that they make has its largest entry at 1.

    Parameters
    ----------
    order : int array
        Variables in the order of the passes.
    graph : tuple of int arrays
        Starts of the states of the variables; of their directions; unused; the direction back; starts of the messages;
        of the tables, and the steps of both states in them.
    tables : float array
        Exponentials of the tables.
    unary, messages : float arrays (entries, W)
        Exponentials of the unaries, zero where evidence forbids a state; messages, which are renewed.
    is_wide : bool array (n,)
        Variables at which products of messages may be out of range.
    products : float array (most neighbors + 4, most states, W)
        Room.
    is_lost : bool array (W,)
        Rows in which all products are zero get marked.
    change : float array (W,)
        The largest changes of the last pass.
    """
    node_starts, indptr, _, back, starts, _, _, _ = graph
    width = len(change)
    high = np.empty(width)
    logs = np.empty(width)
    after = products[-1]
    cavity = products[-2]
    new = products[-3]
    for made in range(max_passes):
        change[:] = 0.0
        for place in range(len(order)):
            i = order[place] if made % 2 == 0 else order[len(order) - 1 - place]
            size = node_starts[i + 1] - node_starts[i]
            # Step 1.
            degree = _fill_products(i, graph, unary, messages, products, is_wide, high, is_lost, logs)
            # Step 2.
            after[:size] = 1.0
            for t in range(degree - 1, -1, -1):
                k = indptr[i] + t
                for a in range(size):
                    _multiply(cavity[a], products[t, a], after[a])
                if is_wide[i]:
                    _divide_by_largest(cavity[:size], high, is_lost, logs)
                incoming = starts[back[k]]
                for a in range(size):
                    _scale(after[a], messages[incoming + a])
                if is_wide[i]:
                    _divide_by_largest(after[:size], high, is_lost, logs)
                length = _send(k, size, graph, tables, cavity, new, high)
                _invert(high, is_lost)
                for b in range(length):
                    _blend(messages[starts[k] + b], new[b], high, damping, change)
        if _largest(change) <= tol:
            return made + 1
    return max_passes


@njit(**_OPTIONS)
def read_beliefs(graph, tables, unary, is_wide, messages, products, is_lost, beliefs, log_z):
    """Write the beliefs of all variables, and the Bethe estimate of log Z.

    With the largest entry c of the message that the products h of all others make, and their product z with the
    message that comes back, an edge counts ``log c - log z`` in one of its directions; it does not matter what h is
    divided by. A variable counts the log of the sum of the products of all.
    """
    node_starts, indptr, neighbors, back, starts, _, _, _ = graph
    width = len(log_z)
    high = np.empty(width)
    total = np.empty(width)
    unused = np.empty(width)
    after = products[-1]
    cavity = products[-2]
    new = products[-3]
    for i in range(len(node_starts) - 1):
        first = node_starts[i]
        size = node_starts[i + 1] - first
        degree = _fill_products(i, graph, unary, messages, products, is_wide, high, is_lost, log_z)
        total[:] = 0.0
        for a in range(size):
            _add_multiple(total, products[degree, a], 1.0)
        _invert(total, is_lost)
        for a in range(size):
            _multiply(beliefs[first + a], products[degree, a], total)
        for c in range(width):
            log_z[c] -= math.log(total[c])
        after[:size] = 1.0
        for t in range(degree - 1, -1, -1):
            k = indptr[i] + t
            incoming = starts[back[k]]
            if i < neighbors[k]:
                for a in range(size):
                    _multiply(cavity[a], products[t, a], after[a])
                if is_wide[i]:
                    _divide_by_largest(cavity[:size], high, is_lost, unused)
                _send(k, size, graph, tables, cavity, new, high)
                _invert(high, is_lost)
                total[:] = 0.0
                for a in range(size):
                    for c in range(width):
                        total[c] += cavity[a, c] * messages[incoming + a, c]
                _invert(total, is_lost)
                for c in range(width):
                    log_z[c] += math.log(total[c]) - math.log(high[c])
            for a in range(size):
                _scale(after[a], messages[incoming + a])
            if is_wide[i]:
                _divide_by_largest(after[:size], high, is_lost, unused)
