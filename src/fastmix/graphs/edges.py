"""Checked edges, and the adjacency of a graph.

Edges are canonical: an int64 array (m, 2) whose rows ``(i, j)`` have ``i < j``, are sorted lexicographically and appear
once. Public functions check that; functions for edges that were checked take them as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastmix._arrays import IntArray
from fastmix._checks import as_edges, as_index, check_count
from fastmix._loops import run_loop
from fastmix._memory import check_memory
from fastmix.errors import ModelError
from fastmix.graphs.tuning import MAX_NUMPY_EDGES

__all__ = [
    "Adjacency",
    "adjacency",
    "build_adjacency",
    "canonical_edges",
    "check_graph",
    "check_graph_memory",
    "check_size",
    "edge_ends",
]

# Keys i * n + j must fit in int64, and indices of the double cover (2 n nodes) in the int32 of scipy.sparse.csgraph.
_MAX_VARIABLES = 2**30 - 1
# Sizes up to here get an estimate of their memory; beyond, the product of three sides would be an infinity.
_MAX_ESTIMATED_VARIABLES = 2**100


def check_size(name: str, value: object) -> int:
    """The number of variables or rows of a graph, checked; ``name`` is the argument's, for the message.

    Where a number is larger than any allowed, but also too large for the memory, the message is about the memory.
    """
    if isinstance(value, int) and _MAX_VARIABLES < value < _MAX_ESTIMATED_VARIABLES:
        check_graph_memory(value, 0)
    return check_count(name, value, least=0, most=_MAX_VARIABLES, error=ModelError)


def check_graph_memory(num_variables: int, num_edges: float) -> None:
    """Raise a :class:`fastmix.ResourceError` if the memory is too small for a graph: 64 bytes per variable and edge."""
    check_memory(
        64.0 * (num_variables + num_edges),
        f"a graph of {num_variables} variables and {num_edges:.0f} edges",
        "build a smaller one",
    )


def check_graph(num_variables: object, edges: npt.ArrayLike) -> tuple[int, IntArray]:
    """The number of variables and the edges, checked.

    Raises
    ------
    ModelError
        If an edge has a variable that does not exist, or the edges are not canonical.
    ResourceError
        If the memory is too small for the graph.
    """
    n = check_size("num_variables", num_variables)
    pairs = as_edges(edges, n)
    check_graph_memory(n, len(pairs))
    bad = np.flatnonzero(pairs[:, 0] > pairs[:, 1])
    if bad.size:
        raise ModelError(
            f"edges must have i < j in each row, got {pairs[bad[0]].tolist()}; use canonical_edges(...) first"
        )
    keys = pairs[:, 0] * n + pairs[:, 1]
    bad = np.flatnonzero(keys[1:] <= keys[:-1])
    if bad.size:
        first = pairs[bad[0]].tolist()
        second = pairs[bad[0] + 1].tolist()
        raise ModelError(
            f"edges must be sorted and unique, got {second} right after {first}; use canonical_edges(...) first"
        )
    return n, pairs


def canonical_edges(num_variables: int, pairs: npt.ArrayLike) -> IntArray:
    """Edges with ``i < j``, sorted and unique, from pairs in any order, direction and multiplicity.

    Parameters
    ----------
    num_variables : int
    pairs : int array (k, 2)

    Returns
    -------
    ndarray of int64, shape (m, 2)

    Raises
    ------
    ModelError
        If a pair is out of range or joins a variable to itself.

    Examples
    --------
    >>> canonical_edges(3, [(2, 0), (0, 1), (0, 2)]).tolist()
    [[0, 1], [0, 2]]
    """
    n = check_size("num_variables", num_variables)
    ends = as_edges(pairs, n)
    keys = np.sort(np.minimum(ends[:, 0], ends[:, 1]) * n + np.maximum(ends[:, 0], ends[:, 1]))
    keys = keys[np.diff(keys, prepend=-1) > 0]  # several times faster than np.unique
    return np.stack([keys // max(n, 1), keys % max(n, 1)], axis=1)


@dataclass(frozen=True, eq=False)
class Adjacency:
    """Neighbors of every variable in compressed rows.

    The neighbors of ``v``, ascending, are ``neighbors[indptr[v]:indptr[v + 1]]``. At the same places ``edge_ids`` has
    the row of ``edges`` that each neighbor comes from. In that row ``v`` is the first endpoint where ``v < neighbor``.

    Attributes
    ----------
    indptr : ndarray of int64, shape (n + 1,)
    neighbors, edge_ids : ndarray of int64, shape (2 m,)

    Examples
    --------
    >>> graph = adjacency(3, [(0, 1), (1, 2)])
    >>> graph.neighbors_of(1).tolist(), graph.degree.tolist()
    ([0, 2], [1, 2, 1])
    """

    indptr: IntArray
    neighbors: IntArray
    edge_ids: IntArray

    @property
    def num_variables(self) -> int:
        """Number of variables ``n``."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Number of edges ``m``."""
        return len(self.neighbors) // 2

    @property
    def degree(self) -> IntArray:
        """Number of neighbors of each variable, shape ``(n,)``."""
        return np.diff(self.indptr)

    @property
    def max_degree(self) -> int:
        """Largest number of neighbors; 0 without variables."""
        return int(self.degree.max(initial=0))

    def neighbors_of(self, variable: int) -> IntArray:
        """Neighbors of one variable, ascending (a view)."""
        variable = as_index("variable", variable, {}, self.num_variables)
        return self.neighbors[self.indptr[variable] : self.indptr[variable + 1]]


def adjacency(num_variables: int, edges: npt.ArrayLike) -> Adjacency:
    """Compressed adjacency of a graph.

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
    ``O(n + m log m)`` time, ``O(n + m)`` memory.

    Examples
    --------
    >>> graph = adjacency(3, [(0, 1), (0, 2)])
    >>> graph.indptr.tolist(), graph.neighbors.tolist(), graph.edge_ids.tolist()
    ([0, 2, 3, 4], [1, 2, 0, 0], [0, 1, 0, 1])
    """
    return build_adjacency(*check_graph(num_variables, edges))


def build_adjacency(n: int, edges: IntArray) -> Adjacency:
    """Compressed adjacency of a graph of n variables, for edges that were checked."""
    low, high = edge_ends(edges)
    indptr = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(edges.reshape(-1), minlength=n), out=indptr[1:])
    if len(edges) > MAX_NUMPY_EDGES:
        neighbors = np.empty(2 * len(edges), dtype=np.int64)
        edge_ids = np.empty(2 * len(edges), dtype=np.int64)
        run_loop(_fill_rows, (low, high), (indptr[:-1].copy(), neighbors, edge_ids), compiled=True)
        return Adjacency(indptr, neighbors, edge_ids)
    # Edges are sorted: among the smaller neighbors of a variable, and among the larger ones, which come after them, the
    # order is right already, and a stable sort by the variable keeps it.
    order = np.argsort(np.concatenate([high, low]), kind="stable")
    return Adjacency(indptr, np.concatenate([low, high])[order], order % max(len(edges), 1))


def _fill_rows(low: Any, high: Any, place: Any, neighbors: Any, edge_ids: Any) -> None:
    """Fill in the rows of an adjacency, which begin at ``place``: smaller neighbors first, then larger ones."""
    for e in range(len(low)):
        p = place[high[e]]
        neighbors[p] = low[e]
        edge_ids[p] = e
        place[high[e]] += 1
    for e in range(len(low)):
        p = place[low[e]]
        neighbors[p] = high[e]
        edge_ids[p] = e
        place[low[e]] += 1


def edge_ends(edges: IntArray) -> tuple[IntArray, IntArray]:
    """First and second ends of edges, read-only as in models, so that one signature is compiled, not two."""
    locked = edges.view()
    locked.setflags(write=False)
    return locked[:, 0], locked[:, 1]
