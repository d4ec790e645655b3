"""Compiled searches for configurations of large weight, and passes of messages that bound the largest from above.

In all of them ``tables[table_starts[k] + s * row_steps[k] + t * col_steps[k]]`` is the log-potential of state s of a
site and t of its k-th neighbor; ``incident`` are the factors over more variables around every site
(:class:`fastmix.model.structure.Incident`). The arrays are those of :class:`fastmix.modes.descents.SearchArrays`.
"""

from __future__ import annotations

import numpy as np

from fastmix._jit import njit
from fastmix.chains.product_kernels import next_row

__all__ = ["descend", "dual_pass", "hopeful"]


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


@njit(cache=True, nogil=True)
def dual_pass(
    forward, indptr, neighbors, table_starts, row_steps, col_steps, tables, unary_starts, unary, states,
    reverse, message_starts, messages, x, belief,
):  # fmt: skip
    """The upper bound on the log-weight after messages from every variable to its neighbors on one side.

    One half of an iteration of sequential tree-reweighted message passing (Kolmogorov 2006).

    ``messages[message_starts[k] + s]`` is that of the k-th neighbor to state s, ``reverse[k]`` its place on the way
    back. A forward pass writes to x (n,) the states that are best beside those of the variables before.
    """
    n = len(states)
    bound = 0.0
    for step in range(n):
        i = step if forward else n - 1 - step
        first = indptr[i]
        last = indptr[i + 1]
        chosen = 0
        most = -np.inf
        top = -np.inf
        for s in range(states[i]):
            total = unary[unary_starts[i] + s]
            decoded = total
            for k in range(first, last):
                message = messages[message_starts[k] + s]
                total += message
                if forward and neighbors[k] < i:
                    decoded += tables[table_starts[k] + s * row_steps[k] + x[neighbors[k]] * col_steps[k]]
                else:
                    decoded += message
            belief[s] = total
            top = max(top, total)
            if decoded > most or s == 0:
                chosen = s
                most = decoded
        if forward:
            x[i] = chosen
        # What the variable knows is shared among the chains through it, of which the larger side has as many.
        before = 0
        for k in range(first, last):
            before += neighbors[k] < i
        share = 1.0 / max(before, last - first - before, 1)
        bound += top
        for s in range(states[i]):
            belief[s] = share * (belief[s] - top)
        for k in range(first, last):
            if (neighbors[k] > i) != forward:
                continue
            target = message_starts[reverse[k]]
            best = -np.inf
            count = states[neighbors[k]]
            for t in range(count):
                value = -np.inf
                for s in range(states[i]):
                    entry = tables[table_starts[k] + s * row_steps[k] + t * col_steps[k]]
                    value = max(value, belief[s] - messages[message_starts[k] + s] + entry)
                messages[target + t] = value
                best = max(best, value)
            bound += best
            for t in range(count):
                messages[target + t] -= best
    return bound
