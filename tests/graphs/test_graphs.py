from __future__ import annotations

import itertools
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from fastmix import graphs
from fastmix._loops import run_loop
from fastmix.errors import ModelError
from fastmix.graphs import canonical_edges
from fastmix.graphs.components import label_components, two_sides
from fastmix.graphs.edges import build_adjacency
from fastmix.graphs.tuning import MAX_NUMPY_EDGES

Pairs = list[tuple[int, int]]


# Naive versions


def naive_neighbors(n: int, edges: Pairs) -> list[list[int]]:
    return [sorted({j for i, j in edges if i == v} | {i for i, j in edges if j == v}) for v in range(n)]


def naive_labels(n: int, edges: Pairs) -> list[int]:
    """Smallest variable of the component of each variable."""
    labels = list(range(n))
    for _ in range(n):
        for i, j in edges:
            labels[i] = labels[j] = min(labels[i], labels[j])
    return labels


def naive_is_bipartite(n: int, edges: Pairs) -> bool:
    return any(all(c[i] != c[j] for i, j in edges) for c in itertools.product((0, 1), repeat=n))


def naive_degeneracy(n: int, edges: Pairs) -> int:
    around = {v: set(u) for v, u in enumerate(naive_neighbors(n, edges))}
    worst = 0
    while around:
        v = min(around, key=lambda v: len(around[v]))
        worst = max(worst, len(around[v]))
        for u in around.pop(v):
            around[u].discard(v)
    return worst


def as_pairs(edges: np.ndarray) -> Pairs:
    return [(i, j) for i, j in edges.tolist()]


def assert_canonical(n: int, edges: np.ndarray) -> None:
    assert edges.dtype == np.int64
    assert edges.ndim == 2
    assert edges.shape[1] == 2
    pairs = as_pairs(edges)
    assert pairs == sorted(set(pairs))
    assert all(0 <= i < j < n for i, j in pairs)


@st.composite
def small_graphs(draw: st.DrawFn, max_variables: int = 7) -> tuple[int, Pairs]:
    n = draw(st.integers(0, max_variables))
    pairs = list(itertools.combinations(range(n), 2))
    return n, sorted(draw(st.sets(st.sampled_from(pairs)))) if pairs else []


# Adjacency and validation


@given(small_graphs())
def test_adjacency_equals_naive(graph: tuple[int, Pairs]) -> None:
    n, edges = graph
    result = graphs.adjacency(n, edges)
    assert (result.num_variables, result.num_edges) == (n, len(edges))
    expected = naive_neighbors(n, edges)
    assert [result.neighbors_of(v).tolist() for v in range(n)] == expected
    assert result.degree.tolist() == [len(u) for u in expected]
    assert result.max_degree == max(map(len, expected), default=0)
    for v in range(n):
        for place in range(result.indptr[v], result.indptr[v + 1]):
            assert edges[result.edge_ids[place]] == tuple(sorted((v, int(result.neighbors[place]))))


@given(small_graphs(), st.randoms(use_true_random=False))
def test_canonical_edges_undoes_any_disorder(graph: tuple[int, Pairs], rnd) -> None:
    n, edges = graph
    messy = [(j, i) if rnd.random() < 0.5 else (i, j) for i, j in edges + edges[:2]]
    rnd.shuffle(messy)
    result = graphs.canonical_edges(n, messy)
    assert_canonical(n, result)
    assert as_pairs(result) == edges


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: graphs.adjacency(-1, []), r"^num_variables .*got -1"),
        (lambda: graphs.adjacency(2.0, []), r"^num_variables .*got 2.0"),
        (lambda: graphs.adjacency(True, []), r"^num_variables .*got True"),
        (
            lambda: graphs.adjacency(2, [(0, 2)]),
            r"^edges .*edge 0 .*\(0, 2\)",
        ),
        (
            lambda: graphs.adjacency(2, [(-1, 1)]),
            r"^edges .*edge 0 .*\(-1, 1\)",
        ),
        (lambda: graphs.adjacency(2, [(1, 1)]), r"^edges .*edge 0 .*\(1, 1\)"),
        (
            lambda: graphs.adjacency(2, [(1, 0)]),
            r"^edges .*got \[1, 0\]; use canonical_edges",
        ),
        (lambda: graphs.adjacency(3, [(0, 2), (0, 1)]), r"^edges .*\[0, 1\] .*\[0, 2\]"),
        (lambda: graphs.adjacency(3, [(0, 1), (0, 1)]), "sorted and unique"),
        (lambda: graphs.adjacency(3, [0, 1]), r"^edges .*got shape \(2,\)"),
        (lambda: graphs.adjacency(3, [(0.5, 1.0)]), r"^edges .*integers"),
        (lambda: graphs.grid_edges(-1, 2), r"^rows .*whole number"),
        (lambda: graphs.erdos_renyi_edges(3, 1.5, 0), r"^probability .*got 1.5"),
        (lambda: graphs.erdos_renyi_edges(3, float("nan"), 0), r"^probability .*got nan"),
        (lambda: graphs.erdos_renyi_edges(3, 0.5, -1), r"^seed .*got -1"),
        (lambda: graphs.random_tree_edges(3, None), r"^seed .*got None"),
        (lambda: graphs.random_regular_edges(5, 3, 0), r"^num_variables \* degree .*got 5 \* 3"),
        (lambda: graphs.random_regular_edges(4, 4, 0), r"^degree .*got 4"),
        (lambda: graphs.check_coloring([(0, 1)], [1, 1]), r"^colors .*edge \[0, 1\]"),
        (lambda: graphs.check_coloring([(0, 2)], [0, 1]), r"^edges .*below .*2"),
        (lambda: graphs.check_coloring([(0, 1)], [0.0, 1.0]), r"^colors .*vector"),
        (lambda: graphs.check_coloring([(0, 1)], [0, -1]), r"^colors .*got -1"),
    ],
)
def test_errors_name_the_argument(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_import_is_light() -> None:
    code = "import sys; import fastmix.exact.search; print(*{m.split('.')[0] for m in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert "numpy" in loaded
    assert not {"scipy", "numba"} & set(loaded)


# Families


@given(st.integers(0, 5), st.integers(0, 5), st.booleans())
def test_grid_equals_naive(rows: int, cols: int, torus: bool) -> None:
    expected = set()
    for r, c in itertools.product(range(rows), range(cols)):
        for dr, dc in ((0, 1), (1, 0)):
            r2, c2 = r + dr, c + dc
            if torus:
                r2, c2 = r2 % rows, c2 % cols
            if r2 < rows and c2 < cols and (r, c) != (r2, c2):
                expected.add(tuple(sorted((r * cols + c, r2 * cols + c2))))
    edges = graphs.grid_edges(rows, cols, torus)
    assert_canonical(rows * cols, edges)
    assert as_pairs(edges) == sorted(expected)


@pytest.mark.parametrize("n", range(6))
def test_simple_families(n: int) -> None:
    assert as_pairs(graphs.complete_edges(n)) == list(itertools.combinations(range(n), 2))
    assert as_pairs(graphs.path_edges(n)) == [(v, v + 1) for v in range(n - 1)]
    cycle = {tuple(sorted((v, (v + 1) % n))) for v in range(n) if n > 1}
    assert as_pairs(graphs.cycle_edges(n)) == sorted(cycle)
    for right in range(4):
        edges = graphs.complete_bipartite_edges(n, right)
        assert as_pairs(edges) == [(i, n + j) for i in range(n) for j in range(right)]


@given(st.integers(0, 40), st.floats(0, 1), st.integers(0, 1000))
def test_erdos_renyi_is_canonical_and_deterministic(n: int, p: float, seed: int) -> None:
    edges = graphs.erdos_renyi_edges(n, p, seed)
    assert_canonical(n, edges)
    assert np.array_equal(edges, graphs.erdos_renyi_edges(n, p, seed))


def chi_square(counts: np.ndarray, expected: np.ndarray) -> float:
    return float(((counts - expected) ** 2 / expected).sum())


def test_erdos_renyi_has_the_right_law() -> None:
    # All 2^6 graphs on four variables; the rarest is expected 0.4^6 * 4,000 = 16 times.
    draws, p = 4_000, 0.4
    places = {pair: k for k, pair in enumerate(itertools.combinations(range(4), 2))}
    counts = np.zeros(64)
    for seed in range(draws):
        counts[sum(1 << places[pair] for pair in as_pairs(graphs.erdos_renyi_edges(4, p, seed)))] += 1
    size = np.array([k.bit_count() for k in range(64)])
    assert chi_square(counts, draws * p**size * (1 - p) ** (6 - size)) < chi2.isf(1e-6, 63)


def test_erdos_renyi_large_and_sparse() -> None:
    n = 200_000
    edges = graphs.erdos_renyi_edges(n, 2e-5, seed=3)
    graphs.adjacency(n, edges)  # canonical
    mean = 2e-5 * n * (n - 1) / 2
    assert abs(len(edges) - mean) < 5 * mean**0.5  # false alarm below 1e-6
    assert abs(edges[:, 0].mean() - n / 3) < 5 * n / 4.2 / len(edges) ** 0.5  # i has mean n/3 and deviation n/sqrt(18)
    assert len(graphs.erdos_renyi_edges(n, 1e-300, seed=0)) == 0


@given(st.integers(0, 60), st.integers(0, 100))
def test_random_tree_is_a_tree(n: int, seed: int) -> None:
    edges = graphs.random_tree_edges(n, seed)
    assert_canonical(n, edges)
    assert len(edges) == max(n - 1, 0)
    assert graphs.connected_components(n, edges)[0] == min(n, 1)
    assert np.array_equal(edges, graphs.random_tree_edges(n, seed))


def test_random_tree_is_uniform() -> None:
    draws = 1_600
    counts = Counter(tuple(as_pairs(graphs.random_tree_edges(4, seed))) for seed in range(draws))
    assert len(counts) == 16
    assert chi_square(np.array(list(counts.values())), np.full(16, draws / 16)) < chi2.isf(1e-6, 15)


@given(st.integers(1, 24), st.data(), st.integers(0, 100))
def test_random_regular(n: int, data: st.DataObject, seed: int) -> None:
    d = data.draw(st.integers(0, n - 1).filter(lambda d: n * d % 2 == 0))
    edges = graphs.random_regular_edges(n, d, seed)
    assert_canonical(n, edges)
    assert (graphs.adjacency(n, edges).degree == d).all()
    assert np.array_equal(edges, graphs.random_regular_edges(n, d, seed))


@pytest.mark.parametrize(("n", "d"), [(1000, 8), (20_000, 3), (300, 149), (300, 250)])
def test_random_regular_larger(n: int, d: int) -> None:
    assert (graphs.adjacency(n, graphs.random_regular_edges(n, d, 1)).degree == d).all()


def test_random_regular_reaches_every_graph() -> None:
    # 70 labeled 3-regular graphs on 6 variables: 60 prisms and 10 of K(3,3).
    seen = {tuple(as_pairs(graphs.random_regular_edges(6, 3, seed))) for seed in range(1500)}
    assert len(seen) == 70


# Components, cores, colorings


@given(small_graphs())
def test_connected_components_equal_naive(graph: tuple[int, Pairs]) -> None:
    n, edges = graph
    count, labels = graphs.connected_components(n, edges)
    naive = naive_labels(n, edges)
    assert count == len(set(naive))
    assert labels.dtype == np.int64
    assert [sorted(set(naive)).index(label) for label in naive] == labels.tolist()


def test_components_of_stars_and_paths_are_found_at_once() -> None:
    """Where hanging trees onto any smaller neighbor instead of the smallest would take a round for every variable."""
    n = 200_000
    others = np.arange(n - 1)
    star = np.stack([others, np.full(n - 1, n - 1)], axis=1)
    path = np.stack([others, others + 1], axis=1)
    for edges in (star, path, star[::2]):
        count, labels = graphs.connected_components(n, edges)
        assert count == n - len(edges)
        assert len(np.unique(labels)) == count
        assert (labels[edges] == 0).all()


def naive_sides(n: int, edges: Pairs, apart: list[bool]) -> list[int]:
    """Sides by a walk through every component from its smallest variable."""
    around: list[list[tuple[int, int]]] = [[] for _ in range(n)]
    for (i, j), other in zip(edges, apart, strict=True):
        around[i].append((j, int(other)))
        around[j].append((i, int(other)))
    sides = [-1] * n
    for first in range(n):
        if sides[first] >= 0:
            continue
        sides[first], component, fits = 0, [first], True
        for v in component:
            for u, other in around[v]:
                if sides[u] < 0:
                    sides[u] = sides[v] ^ other
                    component.append(u)
                fits = fits and sides[u] == sides[v] ^ other
        for v in component:
            sides[v] = sides[v] if fits else 2
    return sides


def in_python(loop: Callable[..., Any], inputs: Any, changed: Any, *, compiled: bool) -> Any:
    """What a compiled loop does, without the compiler."""
    assert compiled
    return run_loop(loop, inputs, changed, compiled=False)


@pytest.mark.parametrize("how", ["numpy", "compiled", "python"])
@given(graph=small_graphs(), data=st.data())
def test_neighbors_components_and_sides_in_every_way(how: str, graph: tuple[int, Pairs], data: st.DataObject) -> None:
    n, pairs = graph
    edges = canonical_edges(n, pairs)
    apart = data.draw(st.lists(st.booleans(), min_size=len(edges), max_size=len(edges)))
    with pytest.MonkeyPatch.context() as patch:
        for module in ("edges", "components"):
            patch.setattr(f"fastmix.graphs.{module}.MAX_NUMPY_EDGES", 1000 if how == "numpy" else 0)
            if how == "python":
                patch.setattr(f"fastmix.graphs.{module}.run_loop", in_python)
        rows = build_adjacency(n, edges)
        count, labels = label_components(n, edges)
        sides = two_sides(n, edges, np.array(apart, dtype=bool))
    neighbors = naive_neighbors(n, as_pairs(edges))
    for v in range(n):
        own = slice(rows.indptr[v], rows.indptr[v + 1])
        assert rows.neighbors[own].tolist() == sorted(neighbors[v])
        assert [set(edges[e].tolist()) for e in rows.edge_ids[own]] == [{v, u} for u in sorted(neighbors[v])]
    smallest = naive_labels(n, as_pairs(edges))
    assert labels.tolist() == [sorted(set(smallest)).index(v) for v in smallest]
    assert count == len(set(smallest))
    assert sides.tolist() == naive_sides(n, as_pairs(edges), apart)


def test_large_graphs_are_joined_as_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    n = 50_000
    pairs = rng.integers(n, size=(60_000, 2))
    edges = canonical_edges(n, pairs[pairs[:, 0] != pairs[:, 1]])
    apart = rng.random(len(edges)) < 0.5
    assert len(edges) > MAX_NUMPY_EDGES
    compiled = build_adjacency(n, edges), *label_components(n, edges), two_sides(n, edges, apart)
    for module in ("edges", "components"):
        monkeypatch.setattr(f"fastmix.graphs.{module}.MAX_NUMPY_EDGES", 10**9)
    plain = build_adjacency(n, edges), *label_components(n, edges), two_sides(n, edges, apart)
    for name in ("indptr", "neighbors", "edge_ids"):
        assert (getattr(compiled[0], name) == getattr(plain[0], name)).all()
    assert compiled[1] == plain[1]
    assert (compiled[2] == plain[2]).all()
    assert (compiled[3] == plain[3]).all()
    assert set(np.unique(plain[3]).tolist()) == {0, 1, 2}


@given(small_graphs(max_variables=9))
def test_degeneracy_equals_naive(graph: tuple[int, Pairs]) -> None:
    assert graphs.degeneracy(*graph) == naive_degeneracy(*graph)


@given(small_graphs(max_variables=9))
def test_coloring_is_proper_and_small(graph: tuple[int, Pairs]) -> None:
    n, edges = graph
    colors = graphs.coloring(n, edges)
    assert colors.dtype == np.int64
    assert all(colors[i] != colors[j] for i, j in edges)
    used = set(colors.tolist())
    assert used == set(range(len(used)))
    assert (len(used) <= 2) == naive_is_bipartite(n, edges)
    assert len(used) <= naive_degeneracy(n, edges) + 1


@given(small_graphs(), st.data())
def test_check_coloring_equals_naive(graph: tuple[int, Pairs], data: st.DataObject) -> None:
    n, edges = graph
    colors = data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
    if all(colors[i] != colors[j] for i, j in edges):
        graphs.check_coloring(edges, colors)
    else:
        with pytest.raises(ModelError, match="colors must differ"):
            graphs.check_coloring(edges, colors)


def test_bipartite_parts_keep_two_colors_beside_odd_ones() -> None:
    # A path on 0, 2, 4 and a K4 on the others.
    edges = graphs.canonical_edges(7, [(0, 2), (2, 4), *itertools.combinations((1, 3, 5, 6), 2)])
    colors = graphs.coloring(7, edges)
    assert colors[[0, 2, 4]].tolist() == [0, 1, 0]
    assert sorted(colors[[1, 3, 5, 6]].tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize("side", [300, pytest.param(1000, marks=pytest.mark.slow)])
def test_large_grids(side: int) -> None:
    n, edges = side**2, graphs.grid_edges(side, side)
    graph = graphs.adjacency(n, edges)
    assert np.bincount(graph.degree).tolist() == [0, 0, 4, 4 * (side - 2), (side - 2) ** 2]
    assert graph.neighbors_of(side + 1).tolist() == [1, side, side + 2, 2 * side + 1]
    row, col = np.divmod(np.arange(n), side)
    assert np.array_equal(graphs.coloring(n, edges), (row + col) % 2)
    assert graphs.degeneracy(n, edges) == 2
    assert graphs.connected_components(n, edges)[0] == 1


def test_long_paths_are_no_trouble() -> None:
    n = 300_000
    assert graphs.degeneracy(n, graphs.path_edges(n)) == 1
    assert graphs.coloring(n, graphs.path_edges(n))[:3].tolist() == [0, 1, 0]
    assert graphs.coloring(n + 1, graphs.cycle_edges(n + 1)).max() == 2


# Spanning trees


@given(small_graphs(), st.integers(0, 100))
def test_covering_spanning_trees_cover(graph: tuple[int, Pairs], seed: int) -> None:
    n, edges = graph
    trees = graphs.covering_spanning_trees(n, edges, seed)
    labels = naive_labels(n, edges)
    for tree in trees:
        assert len(tree) == n - len(set(labels))
        assert naive_labels(n, [edges[e] for e in tree]) == labels
    assert set(np.concatenate(trees).tolist()) == set(range(len(edges)))
    again = graphs.covering_spanning_trees(n, edges, seed)
    assert [t.tolist() for t in trees] == [t.tolist() for t in again]


def test_covering_spanning_trees_of_a_grid_are_few() -> None:
    assert len(graphs.covering_spanning_trees(10_000, graphs.grid_edges(100, 100), 0)) <= 4
    assert len(graphs.covering_spanning_trees(60, graphs.complete_edges(60), 0)) <= 45  # 30 at least


def test_seeds_matter() -> None:
    edges = graphs.grid_edges(6, 6)
    for make in (
        lambda seed: graphs.erdos_renyi_edges(30, 0.3, seed),
        lambda seed: graphs.random_tree_edges(30, seed),
        lambda seed: graphs.random_regular_edges(30, 4, seed),
        lambda seed: graphs.covering_spanning_trees(36, edges, seed)[0],
    ):
        assert make(0).tolist() != make(1).tolist()
