"""Bounds by walks around each variable: exact on whole trees, and better than neighbors alone."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from bounds_models import left_of, random_small, truth

from fastmix import MarkovRandomField, instances
from fastmix._clock import Clock
from fastmix.bounds.marginal_bounds import blanket_bounds
from fastmix.bounds.reduced_tables import reduce_to_tables
from fastmix.bounds.walk_bounds import interval_fields, mirror_entries, walk_bounds
from fastmix.bounds.walk_kernels import follow_walks
from strategies import seeds


@pytest.mark.parametrize("seed", seeds(200, quick=20))
def test_walks_bound_marginals(seed: int) -> None:
    model = random_small(3 * seed if seed % 2 else seed)  # every second one has binary variables alone
    terms = reduce_to_tables(model)
    log_z, by_state = truth(model)
    p = np.exp(left_of(terms, by_state) - log_z)
    for seconds in (1e-6, 1.0):
        found = walk_bounds(terms, Clock(seconds))
        if found is None:
            return
        assert (found.lower <= p + 1e-12).all()
        assert (p <= found.upper + 1e-12).all()


@pytest.mark.parametrize("seed", range(12))
def test_whole_trees_of_walks_are_exact(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 6))
    pairs = [pair for pair in itertools.combinations(range(n), 2) if rng.random() < 0.8] or [(0, 1)]
    model = MarkovRandomField.ising(pairs, 2.0 * rng.normal(size=len(pairs)), rng.normal(size=n))
    by_state = truth(model)[1]
    fields = interval_fields(reduce_to_tables(model))
    assert fields is not None
    roots, low, high = np.arange(n), np.empty(n), np.empty(n)
    nodes, path = np.empty(n, dtype=np.int64), np.full(n, -1, dtype=np.int64)
    for kernel in (follow_walks, getattr(follow_walks, "py_func", follow_walks)):
        kernel(*fields, mirror_entries(fields), np.zeros(n), roots, 0.0, 10**9, path, low, high, nodes)
        np.testing.assert_array_equal(low, high)
        np.testing.assert_allclose(low, 0.5 * (by_state[1::2] - by_state[::2]), atol=1e-9)


def test_walks_with_the_wrong_state_at_a_loop_fail() -> None:
    model = MarkovRandomField.ising([(0, 1), (1, 2), (2, 0)], [1.0, -0.7, 0.4], [0.3, -0.2, 0.5])
    fields = interval_fields(reduce_to_tables(model))
    assert fields is not None
    low, high = np.empty(3), np.empty(3)
    path, nodes = np.full(3, -1, dtype=np.int64), np.empty(3, dtype=np.int64)
    mirror = np.full(6, -1)  # the edge that closes always comes first
    follow_walks(*fields, mirror, np.zeros(3), np.arange(3), 0.0, 10**9, path, low, high, nodes)
    by_state = truth(model)[1]
    assert np.abs(low - 0.5 * (by_state[1::2] - by_state[::2])).max() > 1e-2


def test_walks_shorten_brackets_of_weak_lattices() -> None:
    model = instances.ising_grid(6, 6, coupling_max=0.3, field_max=0.1, seed=0)
    terms = reduce_to_tables(model)
    found = walk_bounds(terms, Clock(0.3))
    assert found is not None
    low, high = blanket_bounds(terms)
    assert float((found.upper - found.lower).mean()) < 0.1 * float((high - low).mean())
