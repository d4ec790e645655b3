"""Nearest numbers on edges with given sums at nodes: what dense least squares finds."""

from __future__ import annotations

import numpy as np
import pytest

from fastmix.projection.node_sums import NodeSums


@pytest.mark.parametrize("seed", range(60))
def test_nearest_numbers_are_those_of_dense_algebra(seed: int) -> None:
    """Graphs of several parts, with and without two colors and edges that lead out of the chosen nodes."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 9))
    pairs = np.array([(i, j) for i in range(n) for j in range(i + 1, n)], dtype=np.int64).reshape(-1, 2)
    chosen = rng.random(n) < 0.8
    ends = pairs[rng.random(len(pairs)) < 0.4]
    ends = ends[chosen[ends].any(axis=1)]
    weights = np.exp(2.0 * rng.normal(size=len(ends)))
    incidence = np.zeros((n, len(ends)))
    incidence[ends[:, 0], np.arange(len(ends))] = 1.0
    incidence[ends[:, 1], np.arange(len(ends))] = 1.0
    incidence = incidence[chosen]
    targets = rng.normal(size=len(ends))
    roots = np.sqrt(weights)
    residual = -incidence @ targets  # sums of zero can always be reached
    expected = targets + np.linalg.pinv(incidence / roots) @ residual / roots
    found = NodeSums(chosen, ends, weights).nearest(targets, 0.0)
    np.testing.assert_allclose(found, expected, atol=1e-10)
    np.testing.assert_allclose(incidence @ found, 0.0, atol=1e-10)


def test_sums_that_are_not_zero() -> None:
    """A ring of four, whose sums depend on each other, and a path whose last node is free."""
    ring = np.array([(0, 1), (0, 3), (1, 2), (2, 3)])
    found = NodeSums(np.ones(4, dtype=bool), ring, np.ones(4)).nearest(np.array([1.0, 2.0, 3.0, 4.0]), 1.0)
    np.testing.assert_allclose(found, [0.5, 0.5, 0.5, 0.5], atol=1e-12)
    path = np.array([(0, 1), (1, 2)])
    found = NodeSums(np.array([True, True, False]), path, np.ones(2)).nearest(np.zeros(2), 1.0)
    np.testing.assert_allclose(found, [1.0, 0.0], atol=1e-12)
