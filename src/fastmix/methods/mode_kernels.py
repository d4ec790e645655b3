"""Compiled searches for configurations of large weight.

In all of them ``tables[table_starts[k] + s * row_steps[k] + t * col_steps[k]]`` is the log-potential of state s of a
site and t of its k-th neighbor.
"""

from __future__ import annotations

import numpy as np

from fastmix._jit import njit

__all__ = ["descend", "hopeful"]


@njit(cache=True, nogil=True)
def descend(  # type: ignore[no-untyped-def]
    x, indptr, neighbors, table_starts, row_steps, col_steps, tables, unary_starts, unary, states, max_sweeps
):
    """Set single variables of configurations x (any number, n) to their best states until nothing changes.

    Ties keep the present state; all log-potentials must be finite.
    """
    for c in range(x.shape[0]):
        row = x[c]
        for _ in range(max_sweeps):
            changed = False
            for i in range(len(states)):
                best, most = row[i], 0.0
                for turn in range(states[i]):
                    # The present state first, which the others must exceed.
                    s = row[i] if turn == 0 else turn - 1 if turn <= row[i] else turn
                    value = unary[unary_starts[i] + s]
                    for k in range(indptr[i], indptr[i + 1]):
                        value += tables[table_starts[k] + s * row_steps[k] + row[neighbors[k]] * col_steps[k]]
                    if turn == 0 or value > most:
                        best, most = s, value
                if best != row[i]:
                    row[i] = best
                    changed = True
            if not changed:
                break


@njit(cache=True, nogil=True)
def hopeful(  # type: ignore[no-untyped-def]
    x, free, indptr, neighbors, table_starts, row_steps, col_steps, tables, unary_starts, unary, states
):
    """Write to x (n,) the free states that are best beside those of neighbors set before, and hoped for of the others.

    Variables are set in breadth-first order; a neighbor that is not set yet is hoped to take its best free state.
    ``free`` is laid out as ``unary``, with at least one free state for every variable.
    """
    n = len(states)
    queue = np.empty(n, dtype=np.int64)
    reached, done = np.zeros(n, dtype=np.uint8), np.zeros(n, dtype=np.uint8)
    first, last = 0, 0
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
                if value > most or most == -np.inf:
                    x[i], most = s, value
            done[i] = 1
            for k in range(indptr[i], indptr[i + 1]):
                j = neighbors[k]
                if not reached[j]:
                    queue[last] = j
                    reached[j] = 1
                    last += 1
