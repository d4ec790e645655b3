"""Colourings, in which neighbours differ, and the degeneracy that bounds their number of colours."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fastmix.errors import ModelError
from fastmix.graphs.basics import (
    Adjacency,
    IntArray,
    adjacency,
    as_pairs,
    build_adjacency,
    check_graph,
    label_components,
)

__all__ = ["check_colouring", "colouring", "degeneracy", "peel"]

# Variables and edges up to which a graph is searched in Python: faster than importing a sparse-matrix library.
_SEARCHED = 50_000


def degeneracy(num_variables: int, edges: npt.ArrayLike) -> int:
    """Largest minimum degree of a subgraph, a lower bound on the treewidth.

    Notes
    -----
    ``O(n + m)`` time and memory.

    Examples
    --------
    >>> from fastmix.graphs import complete_edges, grid_edges
    >>> degeneracy(9, grid_edges(3, 3)), degeneracy(5, complete_edges(5))
    (2, 4)
    """
    return peel(adjacency(num_variables, edges))[0]


def peel(graph: Adjacency) -> tuple[int, list[int]]:
    """Degeneracy, and an order in which each variable has at most that many neighbours after it.

    Batagelj and Zaversnik's cores without buckets: variables of degree at most ``k`` are queued as they appear, and
    ``k`` grows only when the queue runs dry. A variable is rescanned no more often than its core number, which is at
    most its degree, so O(n + m).
    """
    start, neighbors, degree = graph.indptr.tolist(), graph.neighbors.tolist(), graph.degree.tolist()
    order: list[int] = []
    left = list(range(graph.num_variables))
    k = -1
    while left:
        left = [v for v in left if degree[v] > k]
        if not left:
            break
        k = min([degree[v] for v in left])
        done = len(order)
        order += [v for v in left if degree[v] == k]
        while done < len(order):
            v = order[done]
            done += 1
            for u in neighbors[start[v] : start[v + 1]]:
                d = degree[u]
                if d > k:  # others are queued or gone
                    degree[u] = d - 1
                    if d - 1 == k:
                        order.append(u)
    return max(k, 0), order


def colouring(num_variables: int, edges: npt.ArrayLike) -> IntArray:
    """Colours ``0, 1, ...`` such that neighbours differ, few of them.

    A bipartite component gets at most two colours; any other is coloured greedily in smallest-last order, with at
    most ``degeneracy + 1`` colours.

    Returns
    -------
    ndarray of int64, shape (n,)

    Notes
    -----
    ``O(n + m)``; vectorised where the graph is bipartite.

    Examples
    --------
    >>> from fastmix.graphs import cycle_edges
    >>> colouring(4, cycle_edges(4)).tolist(), sorted(colouring(3, cycle_edges(3)).tolist())
    ([0, 1, 0, 1], [0, 1, 2])
    """
    n, edges = check_graph(num_variables, edges)
    if n == 0:
        return np.zeros(0, dtype=np.int64)
    graph = build_adjacency(n, edges)
    colours, odd = _search_two_colours(graph) if n + len(edges) <= _SEARCHED else _cover_two_colours(graph)
    if odd.any():
        local = np.cumsum(odd) - 1
        if not odd.all():
            graph = build_adjacency(int(odd.sum()), local[edges[odd[edges[:, 0]]]])
        colours[odd] = _greedy_colours(graph, peel(graph)[1][::-1])
    check_colouring(edges, colours)
    return colours


def _search_two_colours(graph: Adjacency) -> tuple[IntArray, npt.NDArray[np.bool_]]:
    """Two colours by breadth-first search, the smallest variable of a component first, and who has an odd cycle."""
    start, neighbors = graph.indptr.tolist(), graph.neighbors.tolist()
    colours = [-1] * graph.num_variables
    odd = np.zeros(graph.num_variables, dtype=bool)
    for root in range(graph.num_variables):
        if colours[root] >= 0:
            continue
        colours[root] = 0
        component, is_odd = [root], False
        for v in component:
            other = 1 - colours[v]
            for u in neighbors[start[v] : start[v + 1]]:
                if colours[u] < 0:
                    colours[u] = other
                    component.append(u)
                elif colours[u] != other:
                    is_odd = True
        if is_odd:
            odd[component] = True
    return np.array(colours, dtype=np.int64), odd


def _cover_two_colours(graph: Adjacency) -> tuple[IntArray, npt.NDArray[np.bool_]]:
    """The same for large graphs, vectorised.

    Double cover: nodes v and v + n, edges (i, j + n) and (j, i + n). A bipartite component falls into two parts that
    separate its colour classes; any other stays connected.
    """
    n = graph.num_variables
    owner = np.repeat(np.arange(n), graph.degree)
    _, labels = label_components(2 * n, np.stack([owner, graph.neighbors + n], axis=1))
    # Labels are numbered by smallest node, so the part with the smallest variable v itself comes first: colour 0.
    return (labels[:n] > labels[n:]).astype(np.int64), labels[:n] == labels[n:]


def _greedy_colours(graph: Adjacency, order: list[int]) -> list[int]:
    start, neighbors = graph.indptr.tolist(), graph.neighbors.tolist()
    colours = [-1] * graph.num_variables
    for v in order:
        taken = {colours[u] for u in neighbors[start[v] : start[v + 1]]}
        c = 0
        while c in taken:
            c += 1
        colours[v] = c
    return colours


def check_colouring(edges: npt.ArrayLike, colours: npt.ArrayLike) -> None:
    """Raise unless no edge joins two variables of the same colour.

    Raises
    ------
    ModelError
        If the colours are not a vector of non-negative integers, one for each variable, or two neighbours share one.

    Examples
    --------
    >>> check_colouring([(0, 1)], [0, 1])
    >>> check_colouring([(0, 1)], [2, 2])
    Traceback (most recent call last):
    fastmix.errors.ModelError: colours must differ along every edge, got 2 at both ends of edge [0, 1]
    """
    values = np.asarray(colours)
    if values.ndim != 1 or (values.size and not np.issubdtype(values.dtype, np.integer)):
        raise ModelError(f"colours must be a vector of integers, got dtype {values.dtype} and shape {values.shape}")
    if values.size and values.min() < 0:
        raise ModelError(f"colours must be non-negative, got {values.min()}")
    pairs = as_pairs(len(values), edges)
    if not len(pairs):
        return
    clash = np.flatnonzero(values[pairs[:, 0]] == values[pairs[:, 1]])
    if clash.size:
        i, j = pairs[clash[0]].tolist()
        raise ModelError(f"colours must differ along every edge, got {values[i]} at both ends of edge [{i}, {j}]")
