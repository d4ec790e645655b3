"""Compiled rounds of belief propagation on vectors of logs. Import it inside functions only: it needs Numba."""

from __future__ import annotations

import numpy as np

from fastmix._jit import outer
from fastmix.variational.message_kernels import copy_messages, distance, mix, node_total, renew, renew_factor

__all__ = ["table_rounds"]


@outer
def table_rounds(
    receivers, pairs, factors, starts, messages, spare, totals, cavity, work, table, damping, tol, num_rounds, first,
    stop,
):  # fmt: skip
    """Rounds made in which all messages are renewed at once, the last change, and whether it is within tol.

    The first round begins with factor ``first``, after those before it were done by calls before, and there is none
    where ``stop`` is not the number of all factors: these calls do a part of one.

    ``receivers``, ``pairs`` and ``factors`` are those of :mod:`fastmix.variational.messages`. ``spare`` is a second set
    of messages; ``totals`` is as long as the unaries, ``cavity`` and ``work`` as the largest state count, ``table`` as
    the largest table of a factor. The change that decides on convergence is that of the logs, before damping.
    """
    unary, unary_starts, indptr, incoming = receivers
    edges, pair_starts, pair_tables, weights, tame = pairs
    scope_starts, members, factor_starts, factor_tables = factors
    m = len(edges)
    now = messages
    then = spare
    num_made = 0
    largest = np.inf
    while num_made < num_rounds and largest > tol:
        if first == 0:
            for i in range(len(unary_starts) - 1):
                node_total(i, unary, unary_starts, indptr, incoming, starts, now, totals)
        for a in range(first, stop):
            d = 2 * m + scope_starts[a + 1]
            renew_factor(
                a, d, scope_starts, members, factor_starts, factor_tables, unary_starts, totals, starts, now, table,
                cavity, work, then,
            )  # fmt: skip
        if stop < len(scope_starts) - 1:
            return 0, np.inf, False
        first = 0
        largest = 0.0
        for d in range(len(starts) - 1):
            if d < 2 * m:
                renew(
                    d, edges, pair_starts, pair_tables, weights, tame, unary_starts, totals, starts, now, cavity, work,
                    then,
                )  # fmt: skip
            count = starts[d + 1] - starts[d]
            largest = max(largest, distance(then, now, starts[d], count))
            if damping > 0.0:
                mix(then, now, damping, starts[d], count)
        now, then = then, now
        num_made += 1
    if num_made % 2:
        copy_messages(messages, now)
    return num_made, largest, largest <= tol
