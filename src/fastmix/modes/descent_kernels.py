"""Compiled searches for configurations of large weight.

In all of them ``tables[table_starts[k] + s * row_steps[k] + t * col_steps[k]]`` is the log-potential of state s of a
site and t of its k-th neighbor; ``incident`` are the factors over more variables around every site
(:class:`fastmix.model.structure.Incident`). The arrays are those of :class:`fastmix.modes.descents.SearchArrays`.
"""

from __future__ import annotations

import numpy as np
from numba import uint64

from fastmix._jit import inner, njit
from fastmix.chains.product_kernels import next_row

__all__ = ["add_row", "descend", "descend_shared", "fill_changes", "hopeful", "hopeful_shared"]


@njit(cache=True, nogil=True)
def descend(
    x, indptr, neighbors, table_starts, row_steps, col_steps, tables, unary_starts, unary, states, incident, max_sweeps
):
    """Set single variables of configurations x (any number, n) to their best states until nothing changes.

    Ties keep the present state; all log-potentials must be finite.
    """
    around, _, factor_starts, own_steps, member_starts, members, steps, _ = incident
    for c in range(x.shape[0]):
        row = x[c]
        for _ in range(max_sweeps):
            changed = False
            for i in range(len(states)):
                best = row[i]
                most = 0.0
                for turn in range(states[i]):
                    # The present state first, which the others must exceed.
                    s = row[i] if turn == 0 else turn - 1 if turn <= row[i] else turn
                    value = unary[unary_starts[i] + s]
                    for k in range(indptr[i], indptr[i + 1]):
                        value += tables[table_starts[k] + s * row_steps[k] + row[neighbors[k]] * col_steps[k]]
                    for f in range(around[i], around[i + 1]):
                        at = factor_starts[f] + s * own_steps[f]
                        for m in range(member_starts[f], member_starts[f + 1]):
                            at += row[members[m]] * steps[m]
                        value += tables[at]
                    if turn == 0 or value > most:
                        best = s
                        most = value
                if best != row[i]:
                    row[i] = best
                    changed = True
            if not changed:
                break


@njit(cache=True, nogil=True)
def fill_changes(
    out, x, indptr, neighbors, table_starts, row_steps, col_steps, tables, unary_starts, unary, states, incident
):
    """Write by how much the log-weight of x (n,) changes with each state of each variable, the others as they are.

    ``out`` is laid out as ``unary``; all log-potentials must be finite.
    """
    around, _, factor_starts, own_steps, member_starts, members, steps, _ = incident
    for i in range(len(states)):
        base = unary_starts[i]
        for s in range(states[i]):
            value = unary[base + s]
            for k in range(indptr[i], indptr[i + 1]):
                value += tables[table_starts[k] + s * row_steps[k] + x[neighbors[k]] * col_steps[k]]
            for f in range(around[i], around[i + 1]):
                at = factor_starts[f] + s * own_steps[f]
                for m in range(member_starts[f], member_starts[f + 1]):
                    at += x[members[m]] * steps[m]
                value += tables[at]
            out[base + s] = value
        present = out[base + x[i]]
        for s in range(states[i]):
            out[base + s] -= present


@njit(cache=True, nogil=True)
def hopeful(
    x, free, indptr, neighbors, table_starts, row_steps, col_steps, tables, unary_starts, unary, states, incident
):
    """Write to x (n,) the free states that are best beside those of neighbors set before, and hoped for of the others.

    Variables are set in breadth-first order; a neighbor that is not set yet is hoped to take its best free state.
    ``free`` is laid out as ``unary``, with at least one free state for every variable.
    """
    around, _, factor_starts, own_steps, member_starts, members, steps, _ = incident
    n = len(states)
    digits = np.zeros(n, dtype=np.int64)
    queue = np.empty(n, dtype=np.int64)
    reached = np.zeros(n, dtype=np.uint8)
    done = np.zeros(n, dtype=np.uint8)
    first = 0
    last = 0
    for root in range(n):
        if reached[root]:
            continue
        queue[last] = root
        reached[root] = 1
        last += 1
        while first < last:
            i = queue[first]
            first += 1
            most = -np.inf
            for s in range(states[i]):
                if not free[unary_starts[i] + s]:
                    continue
                value = unary[unary_starts[i] + s]
                for k in range(indptr[i], indptr[i + 1]):
                    j = neighbors[k]
                    base = table_starts[k] + s * row_steps[k]
                    if done[j]:
                        value += tables[base + x[j] * col_steps[k]]
                        continue
                    best = -np.inf
                    for t in range(states[j]):
                        if free[unary_starts[j] + t]:
                            best = max(best, tables[base + t * col_steps[k]])
                    value += best
                for f in range(around[i], around[i + 1]):
                    begin = member_starts[f]
                    end = member_starts[f + 1]
                    at = factor_starts[f] + s * own_steps[f]
                    best = -np.inf
                    digits[: end - begin] = 0
                    while at >= 0:  # through all states of the others
                        hoped = True
                        for m in range(begin, end):
                            j = members[m]
                            t = digits[m - begin]
                            hoped = hoped and (x[j] == t if done[j] else free[unary_starts[j] + t])
                        if hoped:
                            best = max(best, tables[at])
                        at = next_row(at, digits, begin, end, states, members, steps)
                    value += best
                if value > most or most == -np.inf:
                    x[i] = s
                    most = value
            done[i] = 1
            for k in range(indptr[i], indptr[i + 1]):
                j = neighbors[k]
                if not reached[j]:
                    queue[last] = j
                    reached[j] = 1
                    last += 1


@inner
def add_row(target, count, table, start, weight, state, by_rows, num_other):
    """Add what a table, times a weight, has beside a state of the neighbor, whose states may be the rows."""
    if by_rows:
        row = start + state * count
        for s in range(count):
            target[s] += weight * table[row + s]
    else:
        for s in range(count):
            target[s] += weight * table[start + s * num_other + state]


@njit(cache=True, nogil=True)
def descend_shared(x, variables, tables, max_sweeps):
    """As :func:`descend`, for one configuration x (n,) of a model of pairs that shares tables.

    The arrays are those of :mod:`fastmix.modes.pattern_arrays`. A variable none of whose neighbors has changed since it
    was looked at last is left alone.
    """
    unary, unary_starts, indptr, neighbors, edge_ids = variables
    patterns, starts, of_edge, turned, weights, next_weights = tables
    n = len(unary_starts) - 1
    widest = 0
    for i in range(n):
        widest = max(widest, unary_starts[i + 1] - unary_starts[i])
    logits = np.empty(widest)
    is_open = np.ones(n, dtype=np.bool_)
    for _ in range(max_sweeps):
        changed = False
        for i in range(n):
            if not is_open[i]:
                continue
            is_open[i] = False
            base = uint64(unary_starts[i])
            count = uint64(unary_starts[i + 1]) - base
            for s in range(count):
                logits[s] = unary[base + s]
            for k in range(indptr[i], indptr[i + 1]):
                e = edge_ids[k]
                j = neighbors[k]
                by_rows = (j < i) != turned[e]
                start = uint64(starts[of_edge[e]])
                state = uint64(x[j])
                num_other = uint64(unary_starts[j + 1] - unary_starts[j])
                add_row(logits, count, patterns, start, weights[e], state, by_rows, num_other)
                if len(next_weights) > 0 and next_weights[e] != 0.0:
                    start += count * num_other
                    add_row(logits, count, patterns, start, next_weights[e], state, by_rows, num_other)
            best = uint64(x[i])
            for s in range(count):
                if logits[s] > logits[best]:
                    best = s
            if best != uint64(x[i]):
                x[i] = best
                changed = True
                for k in range(indptr[i], indptr[i + 1]):
                    is_open[neighbors[k]] = True
        if not changed:
            break


@inner
def _add_best(target, count, table, start, weight, free, by_rows, num_other):
    """Add the best that a table, times a weight, has beside any free state of the neighbor."""
    own_step = uint64(1) if by_rows else num_other
    other_step = count if by_rows else uint64(1)
    for s in range(count):
        most = -np.inf
        for t in range(num_other):
            if free[t]:
                most = max(most, weight * table[start + s * own_step + t * other_step])
        target[s] += most


@inner
def _add_best_of_two(target, count, table, start, weights, free, by_rows, num_other):
    """As :func:`_add_best`, for a table mixed of a pattern and the following one."""
    own_step = uint64(1) if by_rows else num_other
    other_step = count if by_rows else uint64(1)
    size = count * num_other
    for s in range(count):
        most = -np.inf
        for t in range(num_other):
            if free[t]:
                at = start + s * own_step + t * other_step
                most = max(most, weights[0] * table[at] + weights[1] * table[at + size])
        target[s] += most


@njit(cache=True, nogil=True)
def hopeful_shared(x, free, variables, tables):
    """As :func:`hopeful`, for a model of pairs that shares tables; the arrays are those of :func:`descend_shared`."""
    unary, unary_starts, indptr, neighbors, edge_ids = variables
    patterns, starts, of_edge, turned, weights, next_weights = tables
    n = len(unary_starts) - 1
    widest = 0
    for i in range(n):
        widest = max(widest, unary_starts[i + 1] - unary_starts[i])
    logits = np.empty(widest)
    queue = np.empty(n, dtype=np.int64)
    reached = np.zeros(n, dtype=np.bool_)
    done = np.zeros(n, dtype=np.bool_)
    first = 0
    last = 0
    for root in range(n):
        if reached[root]:
            continue
        queue[last] = root
        reached[root] = True
        last += 1
        while first < last:
            i = queue[first]
            first += 1
            base = uint64(unary_starts[i])
            count = uint64(unary_starts[i + 1]) - base
            for s in range(count):
                logits[s] = unary[base + s]
            for k in range(indptr[i], indptr[i + 1]):
                e = edge_ids[k]
                j = neighbors[k]
                by_rows = (j < i) != turned[e]
                start = uint64(starts[of_edge[e]])
                num_other = uint64(unary_starts[j + 1] - unary_starts[j])
                is_mixed = len(next_weights) > 0 and next_weights[e] != 0.0
                if done[j]:
                    state = uint64(x[j])
                    add_row(logits, count, patterns, start, weights[e], state, by_rows, num_other)
                    if is_mixed:
                        following = start + count * num_other
                        add_row(logits, count, patterns, following, next_weights[e], state, by_rows, num_other)
                    continue
                others = free[unary_starts[j] : unary_starts[j + 1]]
                if is_mixed:
                    pair = (weights[e], next_weights[e])
                    _add_best_of_two(logits, count, patterns, start, pair, others, by_rows, num_other)
                else:
                    _add_best(logits, count, patterns, start, weights[e], others, by_rows, num_other)
            most = -np.inf
            for s in range(count):
                if free[base + s] and (logits[s] > most or most == -np.inf):
                    x[i] = s
                    most = logits[s]
            done[i] = True
            for k in range(indptr[i], indptr[i + 1]):
                j = neighbors[k]
                if not reached[j]:
                    queue[last] = j
                    reached[j] = True
                    last += 1
