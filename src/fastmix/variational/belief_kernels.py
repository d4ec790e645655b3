"""Compiled beliefs of variables, edges and factors from messages. Import it inside functions only: it needs Numba."""

from __future__ import annotations

import numpy as np

from fastmix._jit import inner, outer
from fastmix.variational.message_kernels import node_total, spread

__all__ = ["node_beliefs", "table_beliefs"]


@inner
def _normalize(values, start, stop):
    """The log of the sum of exponentials of a part of an array, in which the logs are turned into probabilities."""
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


@outer
def node_beliefs(receivers, starts, messages, nodes):
    """Write the beliefs of variables alone, the same as :func:`table_beliefs` does."""
    unary, unary_starts, indptr, incoming = receivers
    for i in range(len(unary_starts) - 1):
        node_total(i, unary, unary_starts, indptr, incoming, starts, messages, nodes)
        _normalize(nodes, unary_starts[i], unary_starts[i + 1])


@outer
def table_beliefs(receivers, pairs, factors, starts, messages, nodes, edges, of_factors):
    """The Bethe estimate of log Z, without the model's constant; beliefs of variables, edges and factors are written.

    It is ``sum_a log Z_a + sum_i (1 - d_i) log Z_i`` over edges and factors a and variables i in d_i of them (Yedidia,
    Freeman and Weiss, 2005), with the normalizers of the beliefs as the messages stand: how these are scaled does not
    matter.
    """
    unary, unary_starts, indptr, incoming = receivers
    ends, pair_starts, pair_tables, _, _ = pairs
    scope_starts, members, factor_starts, factor_tables = factors
    m = len(ends)
    log_z = 0.0
    for i in range(len(unary_starts) - 1):
        node_total(i, unary, unary_starts, indptr, incoming, starts, messages, nodes)
    for e in range(m):
        # Message e comes to the second variable of the edge, m + e to the first.
        first = unary_starts[ends[e, 0]]
        second = unary_starts[ends[e, 1]]
        to_first = starts[m + e]
        to_second = starts[e]
        num_rows = starts[m + e + 1] - to_first
        num_columns = starts[e + 1] - to_second
        for a in range(num_rows):
            for b in range(num_columns):
                k = pair_starts[e] + a * num_columns + b
                cavities = (nodes[first + a] - messages[to_first + a]) + (nodes[second + b] - messages[to_second + b])
                edges[k] = pair_tables[k] + cavities
        log_z += _normalize(edges, pair_starts[e], pair_starts[e] + num_rows * num_columns)
    for a in range(len(scope_starts) - 1):
        begin = factor_starts[a]
        d = 2 * m + scope_starts[a + 1]
        spread(
            a, d, scope_starts, members, factor_starts, factor_tables, unary_starts, nodes, starts, messages,
            of_factors, begin,
        )  # fmt: skip
        log_z += _normalize(of_factors, begin, factor_starts[a + 1])
    for i in range(len(unary_starts) - 1):
        degree = indptr[i + 1] - indptr[i]
        log_z += (1.0 - degree) * _normalize(nodes, unary_starts[i], unary_starts[i + 1])
    return log_z
