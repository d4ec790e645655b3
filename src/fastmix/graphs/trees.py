"""Spanning forests, and the trees that hang on a graph."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fastmix._checks import check_seed
from fastmix._clock import NO_LIMIT, Clock
from fastmix.graphs.basics import (
    IntArray,
    build_adjacency,
    check_graph,
    label_components,
    sparse_matrix,
)

__all__ = ["covering_spanning_trees", "random_spanning_tree_edges", "strip_leaves"]


def random_spanning_tree_edges(num_variables: int, edges: npt.ArrayLike, seed: int, uniform: bool = True) -> IntArray:
    """Places in ``edges`` of a random spanning forest: a spanning tree of every connected component.

    Parameters
    ----------
    num_variables : int
        Number of variables ``n``.
    edges : array_like of int, shape (m, 2)
        Canonical edges.
    seed : int
        Seed of the generator.
    uniform : bool
        If true, every spanning forest has the same probability (Wilson's algorithm); if false, the minimum spanning
        forest of random weights, which is not uniform but takes ``O(m log m)`` on any graph.

    Returns
    -------
    ndarray of int64, ascending
        ``n`` less the number of components of them.

    Notes
    -----
    Wilson's algorithm takes a number of random steps like a mean hitting time: about ``n log n`` on grids and random
    graphs, but ``n^2`` on a long cycle. Trees hanging on the graph are taken beforehand and cost nothing.

    Examples
    --------
    >>> from fastmix.graphs import grid_edges
    >>> len(random_spanning_tree_edges(9, grid_edges(3, 3), seed=0))
    8
    """
    n, edges = check_graph(num_variables, edges)
    rng = np.random.default_rng(check_seed(seed))
    if not uniform:
        return _kruskal(n, edges, rng.permutation(len(edges)))
    removed, _, forced = strip_leaves(n, edges)
    forced = forced[forced >= 0]
    if len(removed) == n:
        return np.sort(forced)
    return np.sort(np.concatenate([forced, _wilson(n, edges, removed, rng)]))


def _wilson(n: int, edges: IntArray, removed: IntArray, rng: np.random.Generator) -> IntArray:
    """Edges of a uniform spanning forest of what is left without the removed variables."""
    alive = np.ones(n, dtype=bool)
    alive[removed] = False
    core_ids = np.flatnonzero(alive[edges].all(axis=1))
    local = np.cumsum(alive) - 1
    graph = build_adjacency(int(alive.sum()), local[edges[core_ids]])
    size = graph.num_variables
    _, labels = label_components(size, local[edges[core_ids]])
    in_tree = np.zeros(size, dtype=bool)
    in_tree[np.unique(labels, return_index=True)[1]] = True  # one root in each component; any will do
    done, start, degree = in_tree.tolist(), graph.indptr.tolist(), graph.degree.tolist()
    neighbors = graph.neighbors.tolist()
    exit_place = [-1] * size  # last step of the walk out of each node; overwriting it erases loops
    chosen: list[int] = []
    draws: list[float] = []
    for root in range(size):
        v = root
        while not done[v]:
            if not draws:
                draws = rng.random(65536 if size > 4096 else 16 * size).tolist()
            place = start[v] + int(draws.pop() * degree[v])
            exit_place[v] = place
            v = neighbors[place]
        v = root
        while not done[v]:
            done[v] = True
            place = exit_place[v]
            chosen.append(place)
            v = neighbors[place]
    return core_ids[graph.edge_ids[np.array(chosen, dtype=np.int64)]]


def _kruskal(n: int, edges: IntArray, ranking: IntArray) -> IntArray:
    """Places of the spanning forest that prefers edges early in the ranking (a permutation of the places)."""
    if not len(edges):
        return np.zeros(0, dtype=np.int64)
    from scipy.sparse.csgraph import minimum_spanning_tree

    weight = np.empty(len(edges))
    weight[ranking] = np.arange(1, len(edges) + 1)  # a weight of 0 would be no edge
    forest = minimum_spanning_tree(sparse_matrix(n, edges, weight))
    return np.sort(ranking[forest.data.astype(np.int64) - 1])


def covering_spanning_trees(
    num_variables: int, edges: npt.ArrayLike, seed: int, *, clock: Clock = NO_LIMIT
) -> list[IntArray]:
    """Random spanning forests that together contain every edge, each as places in ``edges``.

    Each prefers the edges not yet covered, in random order, so that at least one more is covered each time; the
    number of forests is close to the largest ratio of edges to nodes among subgraphs. At least one is returned.

    Returns
    -------
    list of ndarray of int64, each ascending

    Examples
    --------
    >>> from fastmix.graphs import complete_edges
    >>> trees = covering_spanning_trees(4, complete_edges(4), seed=0)
    >>> sorted(set(np.concatenate(trees).tolist()))
    [0, 1, 2, 3, 4, 5]
    """
    n, edges = check_graph(num_variables, edges)
    rng = np.random.default_rng(check_seed(seed))
    covered = np.zeros(len(edges), dtype=bool)
    trees: list[IntArray] = []
    while not trees or not covered.all():
        clock.check()
        shuffled = rng.permutation(len(edges))
        tree = _kruskal(n, edges, np.concatenate([shuffled[~covered[shuffled]], shuffled[covered[shuffled]]]))
        covered[tree] = True
        trees.append(tree)
    return trees


def strip_leaves(n: int, edges: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Variables of degree 0 or 1, removed until none is left: themselves, then neighbour and edge (or -1) of each."""
    degree_array = np.bincount(edges.ravel(), minlength=n)
    queue = np.flatnonzero(degree_array <= 1).tolist()
    if not queue:
        none = np.zeros(0, dtype=np.int64)
        return none, none, none
    # The exclusive-or of the neighbours that are left is, for a leaf, its one neighbour.
    pairs, ids = np.zeros((2, n), dtype=np.int64), np.arange(len(edges))
    for a, b in ((0, 1), (1, 0)):
        np.bitwise_xor.at(pairs[0], edges[:, a], edges[:, b])
        np.bitwise_xor.at(pairs[1], edges[:, a], ids)
    degree, neighbor, edge = degree_array.tolist(), pairs[0].tolist(), pairs[1].tolist()
    for v in queue:  # grows while it is read
        if degree[v]:
            u = neighbor[v]
            neighbor[u] ^= v
            edge[u] ^= edge[v]
            degree[u] -= 1
            if degree[u] == 1:
                queue.append(u)
        else:
            neighbor[v] = edge[v] = -1
    removed = np.array(queue, dtype=np.int64)
    return removed, np.array(neighbor, dtype=np.int64)[removed], np.array(edge, dtype=np.int64)[removed]
