"""Compiled pseudo-likelihood: the conditional distribution of every node given the labels of its neighbors."""

from __future__ import annotations

import math

import numpy as np

from fastmix._jit import outer

__all__ = ["add_conditionals"]


@outer
def add_conditionals(
    nodes, start, neighbors, edge_ids, edge_first, unary, tables, table_of, labels, for_unary, for_tables
):
    """Minus the sum of the log-conditionals of the labels of some nodes; the derivatives are added.

    Neighbors, edges to them and the first ends of these are in compressed rows. ``for_unary`` (N, K) and ``for_tables``
    (T, K, K) get the derivatives with respect to the log-potentials.
    """
    num_states = unary.shape[1]
    scores = np.empty(num_states)
    value = 0.0
    for node in nodes:
        for a in range(num_states):
            scores[a] = unary[node, a]
        for k in range(start[node], start[node + 1]):
            e = edge_ids[k]
            table = tables[table_of[e]]
            other = labels[neighbors[k]]
            for a in range(num_states):
                scores[a] += table[a, other] if edge_first[e] == node else table[other, a]
        largest = -math.inf
        for a in range(num_states):
            largest = max(largest, scores[a])
        total = 0.0
        label = labels[node]
        observed = scores[label]
        for a in range(num_states):
            scores[a] = math.exp(scores[a] - largest)
            total += scores[a]
        value += largest + math.log(total) - observed
        for a in range(num_states):
            scores[a] /= total
        scores[label] -= 1.0
        for a in range(num_states):
            for_unary[node, a] += scores[a]
        for k in range(start[node], start[node + 1]):
            e = edge_ids[k]
            out = for_tables[table_of[e]]
            other = labels[neighbors[k]]
            for a in range(num_states):
                if edge_first[e] == node:
                    out[a, other] += scores[a]
                else:
                    out[other, a] += scores[a]
    return value
