"""Colorings, in which neighbors differ, and the degeneracy that bounds their number of colors."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fastmix._arrays import IntArray
from fastmix._checks import as_edges
from fastmix.errors import ModelError
from fastmix.graphs.basics import Adjacency, adjacency, build_adjacency, check_graph, run_loop

__all__ = ["check_coloring", "coloring", "degeneracy", "peel"]


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


def peel(graph: Adjacency) -> tuple[int, IntArray]:
    """Degeneracy, and an order in which each variable has at most that many neighbors after it."""
    n = graph.num_variables
    order, left = np.zeros(n, dtype=np.int64), np.arange(n)
    k = run_loop(_peel, (graph.indptr, graph.neighbors), (graph.degree, order, left))
    return int(k), order


def _peel(start: Any, neighbors: Any, degree: Any, order: Any, left: Any) -> Any:
    """Batagelj and Zaversnik's cores without buckets, in O(n + m).

    Variables of degree at most ``k`` are queued as they appear, and ``k`` grows only when the queue runs dry. A
    variable is rescanned no more often than its core number, which is at most its degree.
    """
    queued, count, k = 0, len(left), -1
    while True:
        kept = 0
        for p in range(count):
            if degree[left[p]] > k:
                left[kept] = left[p]
                kept += 1
        if kept == 0:
            return max(k, 0)
        count, k = kept, degree[left[0]]
        for p in range(count):
            k = min(k, degree[left[p]])
        done = queued
        for p in range(count):
            if degree[left[p]] == k:
                order[queued] = left[p]
                queued += 1
        while done < queued:
            v = order[done]
            done += 1
            for p in range(start[v], start[v + 1]):
                u = neighbors[p]
                if degree[u] > k:  # others are queued or gone
                    degree[u] -= 1
                    if degree[u] == k:
                        order[queued] = u
                        queued += 1


def coloring(num_variables: int, edges: npt.ArrayLike) -> IntArray:
    """Colors ``0, 1, ...`` such that neighbors differ, few of them.

    A bipartite component gets at most two colors; any other is colored greedily in smallest-last order, with at most
    ``degeneracy + 1`` colors.

    Returns
    -------
    ndarray of int64, shape (n,)

    Notes
    -----
    ``O(n + m)``; compiled for large graphs.

    Examples
    --------
    >>> from fastmix.graphs import cycle_edges
    >>> coloring(4, cycle_edges(4)).tolist(), sorted(coloring(3, cycle_edges(3)).tolist())
    ([0, 1, 0, 1], [0, 1, 2])
    """
    n, edges = check_graph(num_variables, edges)
    graph = build_adjacency(n, edges)
    colors, marks, queue = np.full(n, -1), np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    run_loop(_two_colors, (graph.indptr, graph.neighbors), (colors, marks, queue))
    if (odd := marks > 0).any():
        several, taken = np.full(n, -1), np.full(graph.max_degree + 2, -1)
        run_loop(_greedy, (graph.indptr, graph.neighbors, peel(graph)[1]), (several, taken))
        colors[odd] = several[odd]
    check_coloring(edges, colors)
    return colors


def _two_colors(start: Any, neighbors: Any, colors: Any, odd: Any, queue: Any) -> None:
    """Two colors by breadth-first search, the smallest variable of a component first, and who has an odd cycle."""
    for root in range(len(colors)):
        if colors[root] >= 0:
            continue
        colors[root], queue[0] = 0, root
        done, count, is_odd = 0, 1, 0
        while done < count:
            v = queue[done]
            done += 1
            other = 1 - colors[v]
            for p in range(start[v], start[v + 1]):
                u = neighbors[p]
                if colors[u] < 0:
                    colors[u] = other
                    queue[count] = u
                    count += 1
                elif colors[u] != other:
                    is_odd = 1
        for p in range(count):
            odd[queue[p]] = is_odd


def _greedy(start: Any, neighbors: Any, order: Any, colors: Any, taken: Any) -> None:
    """The first color that no neighbor has, from the last of an order to the first."""
    for p in range(len(order) - 1, -1, -1):
        v = order[p]
        for q in range(start[v], start[v + 1]):
            if colors[neighbors[q]] >= 0:
                taken[colors[neighbors[q]]] = v
        c = 0
        while taken[c] == v:
            c += 1
        colors[v] = c


def check_coloring(edges: npt.ArrayLike, colors: npt.ArrayLike) -> None:
    """Raise unless no edge joins two variables of the same color.

    Raises
    ------
    ModelError
        If the colors are not a vector of non-negative integers, one for each variable, or two neighbors share one.

    Examples
    --------
    >>> check_coloring([(0, 1)], [0, 1])
    >>> check_coloring([(0, 1)], [2, 2])
    Traceback (most recent call last):
    fastmix.errors.ModelError: colors must differ along every edge, got 2 at both ends of edge [0, 1]
    """
    values = np.asarray(colors)
    if values.ndim != 1 or (values.size and not np.issubdtype(values.dtype, np.integer)):
        raise ModelError(f"colors must be a vector of integers, got dtype {values.dtype} and shape {values.shape}")
    if values.size and values.min() < 0:
        raise ModelError(f"colors must be non-negative, got {values.min()}")
    pairs = as_edges(edges, len(values))
    clash = np.flatnonzero(values[pairs[:, 0]] == values[pairs[:, 1]]) if len(pairs) else pairs
    if clash.size:
        i, j = pairs[clash[0]].tolist()
        raise ModelError(f"colors must differ along every edge, got {values[i]} at both ends of edge [{i}, {j}]")
