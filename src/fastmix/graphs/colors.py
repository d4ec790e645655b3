"""Colors, in which neighbors differ, and the degeneracy that bounds their number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from fastmix._arrays import IntArray
from fastmix._checks import as_array, as_edges
from fastmix._loops import run_loop
from fastmix.errors import ModelError
from fastmix.graphs.components import two_sides
from fastmix.graphs.edges import Adjacency, adjacency, build_adjacency, check_graph

__all__ = ["check_coloring", "color_graph", "coloring", "degeneracy", "peel"]


def degeneracy(num_variables: int, edges: npt.ArrayLike) -> int:
    """Largest minimum degree of a subgraph, a lower bound on the treewidth.

    Parameters
    ----------
    num_variables : int
    edges : int array (m, 2)
        Canonical edges.

    Raises
    ------
    ModelError
        If the edges are out of range or not canonical.

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
    order = np.zeros(n, dtype=np.int64)
    left = np.arange(n)
    k = run_loop(_peel, (graph.indptr, graph.neighbors), (graph.degree, order, left))
    return int(k), order


def _peel(start: Any, neighbors: Any, degree: Any, order: Any, left: Any) -> Any:
    """The degeneracy, by the cores of Batagelj and Zaversnik without buckets, in O(n + m).

    Variables of degree at most ``k`` are queued as they appear, and ``k`` grows only when the queue runs dry. A
    variable is rescanned no more often than its core number, which is at most its degree. ``order`` receives the
    variables as they are queued; ``degree`` and ``left`` are used up.

    1. Keep the variables that are not queued yet; end when there are none.
    2. Let ``k`` be their smallest degree, and queue those that have it.
    3. Take all queued variables out, and queue neighbors whose degree falls to ``k``.
    """
    queued = 0
    count = len(left)
    k = -1
    while True:
        # 1. What is left.
        kept = 0
        for p in range(count):
            if degree[left[p]] > k:
                left[kept] = left[p]
                kept += 1
        if kept == 0:
            return max(k, 0)
        # 2. The next core.
        count = kept
        k = degree[left[0]]
        for p in range(count):
            k = min(k, degree[left[p]])
        done = queued
        for p in range(count):
            if degree[left[p]] == k:
                order[queued] = left[p]
                queued += 1
        # 3. The queue.
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
    """Few colors ``0, 1, ...`` such that neighbors differ.

    A bipartite component gets at most two colors; any other is colored greedily in smallest-last order, with at most
    ``degeneracy + 1`` colors.

    Parameters
    ----------
    num_variables : int
    edges : int array (m, 2)
        Canonical edges.

    Returns
    -------
    ndarray of int64, shape (n,)

    Raises
    ------
    ModelError
        If the edges are out of range or not canonical.

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
    colors = color_graph(n, edges, lambda: build_adjacency(n, edges))
    check_coloring(edges, colors)
    return colors


def color_graph(n: int, edges: IntArray, neighbors: Callable[[], Adjacency]) -> IntArray:
    """Colors (n,) such that neighbors differ, as :func:`coloring` gives them, for edges that were checked.

    ``neighbors`` makes the adjacency; it is called only where a component is not bipartite. The colors are for the
    caller to check.
    """
    colors = two_sides(n, edges, np.ones(len(edges), dtype=bool))
    odd = colors == 2
    if odd.any():
        graph = neighbors()
        greedy = np.full(n, -1)
        taken = np.full(graph.max_degree + 2, -1)
        run_loop(_color_greedily, (graph.indptr, graph.neighbors, peel(graph)[1]), (greedy, taken))
        colors[odd] = greedy[odd]
    return colors


def _color_greedily(start: Any, neighbors: Any, order: Any, colors: Any, taken: Any) -> None:
    """Give every variable the first color that no neighbor has yet, from the last one of an order to the first."""
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
    """Raise an error if an edge joins two variables of the same color.

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
    values = as_array("colors", colors, "be a vector of integers")
    if values.ndim != 1 or (values.size and not np.issubdtype(values.dtype, np.integer)):
        raise ModelError(f"colors must be a vector of integers, got dtype {values.dtype} and shape {values.shape}")
    if values.size and values.min() < 0:
        raise ModelError(f"colors must be non-negative, got {values.min()}")
    pairs = as_edges(edges, len(values))
    clash = np.flatnonzero(values[pairs[:, 0]] == values[pairs[:, 1]]) if len(pairs) else pairs
    if clash.size:
        i, j = pairs[clash[0]].tolist()
        raise ModelError(f"colors must differ along every edge, got {values[i]} at both ends of edge [{i}, {j}]")
