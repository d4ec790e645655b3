"""Covers and clusters: they fit the limit, and are strips on a lattice."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fastmix import instances
from fastmix.bounds.tractable_parts import TractableParts, inside_bands, split_scope
from fastmix.exact.search import order_cost


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("max_entries", [4, 16, 64])
def test_covers_and_clusters_fit(seed: int, max_entries: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 40))
    states = rng.integers(2, 4, n).tolist()
    sizes = rng.integers(2, 4, 3 * n)
    scopes = list({tuple(sorted(rng.permutation(n)[: min(n, k)].tolist())) for k in sizes.tolist()})
    limit = max(max_entries, max(math.prod([states[v] for v in s]) for s in scopes))
    weights = rng.random(len(scopes))
    parts_of = TractableParts(states, scopes, weights, max_entries=limit)
    covers = parts_of.covers(rng=np.random.default_rng(seed))
    assert set().union(*[c.members.tolist() for c in covers]) == set(range(len(scopes)))
    for cover in covers:
        cost = order_cost(states, [scopes[f] for f in cover.members], cover.order.order)
        assert cost.max_entries <= limit * (1.0 + 1e-9)
    clusters = parts_of.clusters()
    assert (clusters.number >= 0).all()
    assert sorted(clusters.order) == list(range(n))
    parts = [part for scope in scopes for part in split_scope(scope, clusters.number)]
    assert order_cost(states, parts, np.array(clusters.order)).max_entries <= limit * (1.0 + 1e-9)


def test_bands_on_a_lattice_are_strips() -> None:
    model = instances.ising_grid(20, 20, coupling_max=1.0, seed=0)
    scopes = [tuple(e) for e in model.edges.tolist()]
    weights = np.ones(len(scopes))
    parts_of = TractableParts([2] * 400, scopes, weights, max_entries=2.0**8)
    covers = parts_of.covers(rng=np.random.default_rng(0))
    assert len(covers) == 4  # two in either direction
    assert all(len(c.members) > 0.88 * len(scopes) for c in covers)
    assert inside_bands(scopes, parts_of.clusters().number).mean() > 0.9
