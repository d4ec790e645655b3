"""Mixtures of trees by enumeration: every configuration of what is missing, every component."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix.learning.tree_mixture import TreeMixture


def joint_probability(mixture: TreeMixture, row: Any, k: int) -> float:
    """``p(x, k)`` of a complete row, table by table."""
    result = float(mixture.shares[k])
    for i, parent in enumerate(mixture.parents):
        above = row[parent] if parent >= 0 else 0
        result *= mixture.tables[mixture.starts[i] + above * mixture.num_states[i] + row[i], k]
    return result


def completions(mixture: TreeMixture, row: Any) -> list[tuple[int, ...]]:
    """All complete rows that agree with a row where it is not -1."""
    choices = [range(count) if s < 0 else [s] for s, count in zip(row, mixture.num_states, strict=True)]
    return list(itertools.product(*choices))


def expected_counts(
    mixture: TreeMixture, rows: Any, weights: Any
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """Mean log-probability, expected shares of components and expected counts of all entries of the tables."""
    value = 0.0
    totals = np.zeros(mixture.num_components)
    counts = np.zeros_like(mixture.tables)
    for row, weight in zip(rows, weights, strict=True):
        listed = [(x, k) for x in completions(mixture, row) for k in range(mixture.num_components)]
        masses = np.array([joint_probability(mixture, x, k) for x, k in listed])
        value += weight * np.log(masses.sum())
        for (x, k), share in zip(listed, weight * masses / masses.sum(), strict=True):
            totals[k] += share
            for i, parent in enumerate(mixture.parents):
                above = x[parent] if parent >= 0 else 0
                counts[mixture.starts[i] + above * mixture.num_states[i] + x[i], k] += share
    return value, totals, counts


def information(mixture: TreeMixture, rows: Any, weights: Any, num_rows: float) -> NDArray[np.float64]:
    """Mutual informations of all pairs given the component, for complete rows; a row smooths every component."""
    n = len(mixture.num_states)
    result = np.zeros((n, n))
    masses = np.array([[joint_probability(mixture, row, k) for k in range(mixture.num_components)] for row in rows])
    shares = masses / masses.sum(axis=1, keepdims=True) * np.asarray(weights)[:, None]
    for k in range(mixture.num_components):
        for i, j in itertools.product(range(n), repeat=2):
            joint = np.zeros((mixture.num_states[i], mixture.num_states[j]))
            for row, share in zip(rows, shares[:, k], strict=True):
                joint[row[i], row[j]] += num_rows * share
            joint += 1.0 / joint.size
            joint /= joint.sum()
            product = np.outer(joint.sum(axis=1), joint.sum(axis=0))
            if i != j:
                result[i, j] += shares[:, k].sum() * float((joint * np.log(joint / product)).sum())
    return result
