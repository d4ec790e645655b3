"""Elimination orders over scopes: their cost, and that the search finds good ones."""

from __future__ import annotations

import itertools
import math
import time

import numpy as np
import pytest

from fastmix._clock import Clock
from fastmix.exact.search import find_order, order_cost
from fastmix.graphs import complete_edges, cycle_edges, grid_edges, path_edges


def naive_cost(states, scopes, order):
    """Entries of all cliques, of the largest, and the width, eliminating on sets."""
    around = {v: set() for v in range(len(states))}
    for scope in scopes:
        for v in scope:
            around[v] |= set(scope) - {v}
    total, largest, width = 0, 0, 0
    for v in order:
        entries = math.prod(states[u] for u in around[v]) * states[v]
        total, largest, width = total + entries, max(largest, entries), max(width, len(around[v]))
        for u in around[v]:
            around[u] |= around[v]
            around[u] -= {u, v}
        del around[v]
    return total, largest, width


def random_scopes(rng, n, count, size=4):
    return [tuple(rng.permutation(n)[: rng.integers(1, min(n, size) + 1)].tolist()) for _ in range(count)]


def pairs(edges):
    return [tuple(e) for e in edges.tolist()]


def test_cost_is_that_of_naive_elimination():
    rng = np.random.default_rng(0)
    for _ in range(100):
        n = int(rng.integers(1, 10))
        states, scopes = rng.integers(1, 5, n).tolist(), random_scopes(rng, n, int(rng.integers(0, 9)))
        order = rng.permutation(n)
        cost = order_cost(states, scopes, order)
        assert (cost.total_entries, round(cost.max_entries), cost.width) == naive_cost(states, scopes, order.tolist())


@pytest.mark.parametrize("cheap", [True, False])
def test_found_orders_are_permutations_and_near_the_best(cheap, monkeypatch):
    if not cheap:
        monkeypatch.setattr("fastmix.exact.search._CHEAP", 0)
    rng = np.random.default_rng(1)
    for _ in range(25):
        n = int(rng.integers(1, 7))
        states, scopes = rng.integers(2, 5, n).tolist(), random_scopes(rng, n, int(rng.integers(0, 7)), 3)
        found = find_order(states, scopes)
        assert sorted(found.order.tolist()) == list(range(n))
        assert (found.total_entries, found.width) == naive_cost(states, scopes, found.order.tolist())[::2]
        best = min(naive_cost(states, scopes, order)[0] for order in itertools.permutations(range(n)))
        assert found.total_entries <= 1.6 * best


def test_known_widths():
    for n, edges, width in ((9, path_edges(9), 1), (9, cycle_edges(9), 2), (7, complete_edges(7), 6)):
        assert find_order([2] * n, pairs(edges)).width == width
    assert find_order([2] * 100, pairs(grid_edges(10, 10))).total_entries < 1e5
    assert find_order([2] * 256, pairs(grid_edges(16, 16))).total_entries < 8e6


def test_sizes_count_where_states_are_unequal():
    # A cycle of large and small variables in turn: eliminating the small ones would join the large ones.
    n = 80
    states = [50 if v % 2 else 2 for v in range(n)]
    scopes = [(v, (v + 1) % n, (v + 2) % n) for v in range(0, n, 2)] + [(v, (v + 17) % n) for v in range(0, n, 8)]
    fill_first = order_cost(states, scopes, np.arange(n))
    assert find_order(states, scopes).total_entries < fill_first.total_entries / 10


def test_the_same_seed_gives_the_same_order():
    scopes = random_scopes(np.random.default_rng(5), 120, 200, 3)
    first, second = (find_order([2] * 120, scopes, seed=3, max_entries=1e9) for _ in range(2))
    np.testing.assert_array_equal(first.order, second.order)


def test_a_clock_bounds_the_search():
    scopes = random_scopes(np.random.default_rng(5), 300, 900, 3)
    find_order([2] * 100, scopes[:1] + pairs(grid_edges(10, 10)))  # compiles
    start = time.process_time()
    order = find_order([2] * 300, scopes, clock=Clock(0.3), max_entries=1.0)
    assert time.process_time() - start < 2.0
    assert order.total_entries > 1e13


@pytest.mark.parametrize(
    ("n", "scopes", "width"),
    [
        (200_000, [], 0),
        (100_001, [(0, v) for v in range(1, 100_001)], 1),
        (90_000, pairs(path_edges(90_000)), 1),
    ],
)
def test_large_sparse_graphs_take_seconds(n, scopes, width):
    start = time.process_time()
    assert find_order([2] * n, scopes).width == width
    assert time.process_time() - start < 10.0


def test_a_large_grid_is_judged_too_large():
    start = time.process_time()
    order = find_order([2] * 160_000, pairs(grid_edges(400, 400)))
    assert time.process_time() - start < 10.0
    assert not order.is_exact
    assert order.width in range(399, 450)
    assert str(order).startswith("treewidth about 4")
