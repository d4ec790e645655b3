"""Compiled passes of sequential tree-reweighted message passing, which bound the largest weight from above."""

from __future__ import annotations

import numpy as np

from fastmix._jit import njit

__all__ = ["dual_pass"]


@njit(cache=True, nogil=True)
def dual_pass(  # type: ignore[no-untyped-def]
    forward, indptr, neighbors, table_starts, row_steps, col_steps, tables, unary_starts, unary, states,
    reverse, message_starts, messages, x, belief,
):  # fmt: skip
    """Pass messages from every variable to its neighbors on one side; the upper bound on the log-weight comes back.

    ``messages[message_starts[k] + s]`` is that of the k-th neighbor to state s, ``reverse[k]`` its place on the way
    back. A forward pass writes to x (n,) the states that are best beside those of the variables before.
    """
    n, bound = len(states), 0.0
    for step in range(n):
        i = step if forward else n - 1 - step
        before, first, last = 0, indptr[i], indptr[i + 1]
        chosen, most, top = 0, -np.inf, -np.inf
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
                chosen, most = s, decoded
        if forward:
            x[i] = chosen
        for k in range(first, last):
            before += neighbors[k] < i
        share = 1.0 / max(before, last - first - before, 1)
        bound += top
        for s in range(states[i]):
            belief[s] = share * (belief[s] - top)
        for k in range(first, last):
            if (neighbors[k] > i) != forward:
                continue
            target, best = message_starts[reverse[k]], -np.inf
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
