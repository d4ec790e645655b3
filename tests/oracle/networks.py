"""Bayesian networks by looking at every configuration: joint distributions, EM, trees, marginal MAP."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Rows = Sequence[Sequence[int]]


def joint_of(network: Any) -> np.ndarray:
    """The whole table of a small network, an axis for each variable."""
    joint = np.zeros(network.num_states)
    for x in itertools.product(*map(range, network.num_states)):
        weight = 1.0
        for i, of_child in enumerate(network.parents):
            weight *= float(network.tables[i][(*(x[p] for p in of_child), x[i])])
        joint[x] = weight
    return joint


def given_row(joint: np.ndarray, row: Sequence[int]) -> np.ndarray:
    """The joint table with zeros wherever it disagrees with what a row observes (-1: nothing)."""
    kept = np.zeros_like(joint)
    where = tuple(slice(None) if state < 0 else slice(state, state + 1) for state in row)
    kept[where] = joint[where]
    return kept


def expected_counts(network: Any, rows: Rows) -> tuple[list[np.ndarray], float]:
    """Counts of all families, with each row spread over the configurations that agree with it, and log-likelihood."""
    joint = joint_of(network)
    counts = [np.zeros(table.shape) for table in network.tables]
    total = 0.0
    for row in rows:
        kept = given_row(joint, row)
        total += float(np.log(kept.sum()))
        kept = kept / kept.sum()
        for x in itertools.product(*map(range, network.num_states)):
            for i, of_child in enumerate(network.parents):
                counts[i][(*(x[p] for p in of_child), x[i])] += kept[x]
    return counts, total


def next_tables(counts: Sequence[np.ndarray], pseudo_count: float) -> list[np.ndarray]:
    """Rows of counts plus a constant, over their sums."""
    tables = []
    for seen in counts:
        rows = seen + pseudo_count
        sums = rows.sum(axis=-1, keepdims=True)
        tables.append(np.where(sums > 0, rows / np.where(sums > 0, sums, 1.0), 1.0 / rows.shape[-1]))
    return tables


def information(rows: Rows, i: int, j: int, given: int | None = None) -> float:
    """Mutual information of two columns, given another one or nothing, from complete rows."""
    total = 0.0
    for a, b, c in {(row[i], row[j], 0 if given is None else row[given]) for row in rows}:
        of_class = [row for row in rows if given is None or row[given] == c]
        both = sum(row[i] == a and row[j] == b for row in of_class) / len(of_class)
        first = sum(row[i] == a for row in of_class) / len(of_class)
        second = sum(row[j] == b for row in of_class) / len(of_class)
        total += len(of_class) / len(rows) * both * float(np.log(both / (first * second)))
    return total


def largest_tree(nodes: Sequence[int], weights: Mapping[tuple[int, int], float]) -> float:
    """The largest sum of weights of a spanning tree, by trying all sets of edges."""
    best = -np.inf
    for edges in itertools.combinations(weights, len(nodes) - 1):
        reached = {nodes[0]}
        for _ in nodes:
            reached |= {v for edge in edges if set(edge) & reached for v in edge}
        if len(reached) == len(nodes):
            best = max(best, sum(weights[edge] for edge in edges))
    return best


def marginal_map(joint: np.ndarray, variables: Sequence[int], row: Sequence[int]) -> np.ndarray:
    """The table of some variables given a row of evidence, everything else summed out; unnormalized."""
    others = tuple(v for v in range(joint.ndim) if v not in variables)
    table = given_row(joint, row).sum(axis=others)
    rank = np.argsort(np.argsort(variables))
    return np.transpose(table, rank)
