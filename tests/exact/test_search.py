"""Elimination orders over scopes: their cost, and that the search finds good ones."""

from __future__ import annotations

import itertools
import math
import time
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastmix
from fastmix import graphs
from fastmix._clock import Clock
from fastmix.exact import greedy_kernels
from fastmix.exact.elimination import model_factors
from fastmix.exact.search import _sweep_estimate, find_order, order_cost, treewidth_bounds
from fastmix.graphs import complete_edges, cycle_edges, grid_edges, path_edges
from fastmix.model.reduce import reduce_model


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


Pairs = list[tuple[int, int]]


def naive_treewidth(n: int, edges: Pairs) -> int:
    """Over all orders, by what is eliminated already: neighbors of v then are those reached through it."""
    around = [{j for i, j in edges if i == v} | {i for i, j in edges if j == v} for v in range(n)]

    def num_reached(gone: frozenset[int], v: int) -> int:
        seen, stack = {v}, [v]
        while stack:
            for u in around[stack.pop()] - seen:
                seen.add(u)
                if u in gone:
                    stack.append(u)
        return len(seen - gone - {v})

    @cache
    def best(gone: frozenset[int]) -> int:
        return min((max(num_reached(gone, v), best(gone | {v})) for v in set(range(n)) - gone), default=0)

    return best(frozenset())


@st.composite
def small_graphs(draw: st.DrawFn, max_variables: int = 7) -> tuple[int, Pairs]:
    n = draw(st.integers(0, max_variables))
    pairs = list(itertools.combinations(range(n), 2))
    return n, sorted(draw(st.sets(st.sampled_from(pairs)))) if pairs else []


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
        monkeypatch.setattr("fastmix.exact.search.CHEAP_ENTRIES", 0)
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
        (100_000, [], 0),
        (50_001, [(0, v) for v in range(1, 50_001)], 1),
        (45_000, pairs(path_edges(45_000)), 1),
    ],
)
def test_large_sparse_graphs_take_seconds(n, scopes, width):
    start = time.process_time()
    assert find_order([2] * n, scopes).width == width
    assert time.process_time() - start < 5.0


def test_a_large_grid_is_judged_too_large():
    start = time.process_time()
    order = find_order([2] * 102_400, pairs(grid_edges(320, 320)))
    assert time.process_time() - start < 10.0
    assert not order.is_exact
    assert order.width in range(319, 360)


@given(small_graphs())
def test_treewidth_bounds_hold(graph: tuple[int, Pairs]) -> None:
    n, edges = graph
    exact = naive_treewidth(n, edges)
    lower, upper = treewidth_bounds(n, edges)
    assert lower <= exact <= upper
    assert find_order([2] * n, edges).width >= exact


@given(small_graphs())
def test_frontiers_bound_every_separator(graph: tuple[int, Pairs]) -> None:
    n, edges = graph
    if edges:
        bound = _sweep_estimate(n, np.array(edges), np.full(n, math.log(3.0)))
        exact = order_cost([3] * n, edges, bound.order)
        assert not bound.is_exact
        assert bound.width >= exact.width
        assert bound.total_entries >= exact.total_entries * (1 - 1e-12)


@pytest.mark.parametrize(
    ("n", "edges", "treewidth"),
    [
        (0, np.zeros((0, 2), dtype=np.int64), 0),
        (3, np.zeros((0, 2), dtype=np.int64), 0),
        (20, graphs.random_tree_edges(20, 0), 1),
        (20, graphs.cycle_edges(20), 2),
        (9, graphs.complete_edges(9), 8),
        (12, graphs.complete_bipartite_edges(4, 8), 4),
        (12, graphs.grid_edges(3, 4), 3),
        (300, graphs.grid_edges(3, 100), 3),
    ],
)
def test_known_treewidths(n: int, edges: np.ndarray, treewidth: int) -> None:
    lower, upper = treewidth_bounds(n, edges)
    assert lower <= treewidth <= upper <= treewidth + 1
    assert treewidth <= find_order([2] * n, pairs(edges)).width <= treewidth + 2


def test_hopeless_searches_end() -> None:
    # Dense and sparse graphs on which full greedy runs would take minutes.
    for n, p in ((600, 0.5), (2200, 0.004)):
        edges = graphs.erdos_renyi_edges(n, p, 0)
        start = time.process_time()
        result = find_order([2] * n, pairs(edges))
        assert time.process_time() - start < 10.0
        assert sorted(result.order.tolist()) == list(range(n))
        assert result.width > 50
        assert treewidth_bounds(n, edges)[1] > 50


@pytest.mark.slow
def test_a_million_node_grid() -> None:
    assert treewidth_bounds(1_000_000, graphs.grid_edges(1000, 1000)) == (2, 1000)


def test_a_large_tree_and_a_long_strip() -> None:
    assert treewidth_bounds(15_000, graphs.random_tree_edges(15_000, 7)) == (1, 1)
    result = find_order([2] * 12_000, pairs(graphs.grid_edges(6, 2000)))
    assert result.is_exact
    assert result.width <= 7


def test_edges_are_checked() -> None:
    with pytest.raises(ValueError, match="edges"):
        treewidth_bounds(1, [(0, 1)])


def test_no_search_where_no_order_can_be_good_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """A complete graph without a perfect matching has width 28 at least: the first run is as good as any."""
    runs, original = [], greedy_kernels.eliminate

    def eliminate(*arguments: Any) -> Any:
        runs.append(1)
        return original(*arguments)

    monkeypatch.setattr(greedy_kernels, "eliminate", eliminate)
    pairs = [(i, j) for i in range(30) for j in range(i + 1, 30) if j != i + 15]
    assert find_order([2] * 30, pairs, max_entries=1e8).width >= 28
    assert len(runs) == 1


@pytest.mark.parametrize("seed", range(3))
def test_one_run_of_the_search_ends_with_its_time(seed):
    """On random graphs of some thousand variables a single greedy run would take many times the limit."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(5000, 8000))
    pairs = np.sort(rng.integers(n, size=(n * int(rng.integers(5, 10)), 2)), axis=1)
    scopes = [tuple(pair) for pair in np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0).tolist()]
    clock = Clock(0.5)
    began = time.process_time()
    found = find_order([2] * n, scopes, clock=clock, max_entries=1e8)
    used = time.process_time() - began - clock.compile_seconds()
    assert found.width > 100
    assert used < 4.0  # coarse: 5 to 15 s without an end to the run


def test_the_search_is_patient_without_a_limit():
    rows = np.array([[6], [5], [3]], dtype=np.uint64)
    order = np.empty(3, dtype=np.int64)
    arguments = rows, np.zeros(3), np.zeros(3), np.array([0.0, 1.0, 0.0, 0.0]), 1e9, order
    assert greedy_kernels.eliminate(*arguments) == 3.0
    assert greedy_kernels.eliminate(*arguments, 2.0) == np.inf


def test_a_search_far_from_its_limit_goes_on_while_it_gains(shared_data):
    path = shared_data / "uai-hard" / "linkage_20.uai"
    model = fastmix.io.read_model(f"{path}.gz")
    evidence = fastmix.io.read_evidence(f"{path}.evid", model.num_states)
    factors = model_factors(reduce_model(model, evidence, fold_single=True).model)
    found = find_order(factors.num_states, factors.scopes, max_entries=2.0**30)
    assert found.total_entries <= 2.0**30
