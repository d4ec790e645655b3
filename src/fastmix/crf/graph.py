"""``Graph``: one example of a conditional random field, its nodes and edges with what is known of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastmix._arrays import FloatArray, IntArray
from fastmix._checks import as_array, as_float_array, as_whole_numbers, describe
from fastmix.errors import ModelError
from fastmix.graphs import grid_edges

__all__ = ["Graph", "as_features"]


@dataclass(frozen=True, eq=False)
class Graph:
    """One example: the features of its nodes, its edges, and what is known of these.

    Parameters
    ----------
    features : float array or scipy.sparse matrix (n, F)
        A row for every node.
    edges : int array (m, 2)
        Pairs (from, to) of nodes, each pair once: (0, 1) and (1, 0) are the same edge in two directions.
    edge_features : float array (m, G), optional
        A row for every edge.
    edge_kinds : int array (m,), optional
        Edges of one kind, a number from 0, have tables made by the same weights; all are of kind 0 by default.
    shape : tuple of int, optional
        Of the labels: (H, W) of a picture. By default (n,).

    Raises
    ------
    ModelError
        If arrays do not fit together, an edge is given twice or joins a node to itself, or a number is not finite.

    Examples
    --------
    >>> Graph.chain(np.zeros((4, 2))).edges.tolist()
    [[0, 1], [1, 2], [2, 3]]
    >>> Graph(np.zeros((3, 2)), edges=[(0, 1), (2, 0)])
    Graph(3 nodes with 2 features, 2 edges)
    """

    features: Any
    edges: Any = ()
    edge_features: Any = None
    edge_kinds: Any = None
    shape: tuple[int, ...] | None = None
    num_nodes: int = field(init=False)

    def __post_init__(self) -> None:
        features = as_features("features", self.features)
        edges = _as_pairs(self.edges, features.shape[0])
        kinds = np.zeros(len(edges), dtype=np.int64)
        if self.edge_kinds is not None:
            kinds = as_whole_numbers("edge_kinds", self.edge_kinds)
        if len(kinds) != len(edges) or (len(kinds) and kinds.min() < 0):
            raise ModelError(f"edge_kinds must have a number from 0 for each of {len(edges)} edges, got {kinds[:5]}")
        of_edges: FloatArray | None = None
        if self.edge_features is not None:
            of_edges = _as_table("edge_features", self.edge_features)
            if len(of_edges) != len(edges):
                raise ModelError(f"edge_features must have a row for each of {len(edges)} edges, got {len(of_edges)}")
        for name, value in (
            ("features", features), ("edges", edges), ("edge_kinds", kinds), ("edge_features", of_edges),
            ("shape", _as_shape(self.shape, features.shape[0])), ("num_nodes", int(features.shape[0])),
        ):  # fmt: skip
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"Graph({self.num_nodes} nodes with {self.features.shape[1]} features, {len(self.edges)} edges)"

    @classmethod
    def chain(cls, features: Any, *, edge_features: Any = None) -> Graph:
        """A chain: an edge from every node to the next, such as words of a sentence or letters of a word.

        Parameters
        ----------
        features : float array or scipy.sparse matrix (n, F)
        edge_features : float array (n - 1, G), optional

        Examples
        --------
        >>> Graph.chain([[0.5], [1.5]])
        Graph(2 nodes with 1 features, 1 edges)
        """
        table = as_features("features", features)
        places = np.arange(table.shape[0], dtype=np.int64)
        return cls(table, np.stack([places[:-1], places[1:]], axis=1), edge_features)

    @classmethod
    def grid(cls, features: Any, *, edge_features: Any = None) -> Graph:
        """A picture: every pixel has an edge of kind 0 to its right and one of kind 1 to the pixel below.

        Parameters
        ----------
        features : float array (H, W, F)
        edge_features : float array (m, G), optional
            For the edges as :func:`fastmix.graphs.grid_edges` lists them: by their first pixel, first to the right.

        Examples
        --------
        >>> picture = Graph.grid(np.zeros((2, 2, 3)))
        >>> picture.edges.tolist(), picture.edge_kinds.tolist()
        ([[0, 1], [0, 2], [1, 3], [2, 3]], [0, 1, 1, 0])
        """
        array = as_float_array("features", features)
        if array.ndim != 3 or 0 in array.shape[:2]:
            raise ModelError(f"features of a grid must have shape (H, W, F), got {array.shape}")
        height, width, count = array.shape
        edges = grid_edges(height, width)
        kinds = np.where(edges[:, 1] - edges[:, 0] == 1, 0, 1)
        if width == 1:
            kinds = np.ones(len(edges), dtype=np.int64)  # the pixel below is the next one
        return cls(array.reshape(-1, count), edges, edge_features, kinds, (height, width))


def as_features(name: str, values: Any) -> Any:
    """Features as a checked float array (n, F), or as a matrix of scipy in compressed rows."""
    if type(values).__module__.startswith("scipy.sparse"):
        if getattr(values, "ndim", 0) != 2 or np.dtype(values.dtype).kind not in "biuf":
            raise ModelError(f"{name} must be a table of numbers, got {describe(values)}")
        rows = values.tocsr().astype(np.float64)
        if not np.isfinite(rows.data).all():
            raise ModelError(f"{name} must be finite, got NaN or infinite ones")
        return rows
    return _as_table(name, values)


def _as_table(name: str, values: Any) -> FloatArray:
    """A table of finite numbers."""
    array = as_float_array(name, values)
    if array.ndim != 2:
        raise ModelError(f"{name} must have two dimensions, a row for each node or edge, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ModelError(f"{name} must be finite, got NaN or infinite ones")
    if array.size and np.abs(array).max() > MAX_FEATURE:
        raise ModelError(f"{name} must be at most {MAX_FEATURE:g} in size, got {np.abs(array).max():g}: scale them")
    return array


#: Features beyond this would make sums overflow.
MAX_FEATURE = 1e50


def _as_pairs(edges: ArrayLike, num_nodes: int) -> IntArray:
    """Pairs (m, 2) of different nodes, no pair twice in either direction."""
    array = as_array("edges", edges, "be an array of pairs of nodes")
    if array.size == 0:
        return np.zeros((0, 2), dtype=np.int64)
    if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "iu":
        raise ModelError(f"edges must be whole numbers of shape (m, 2), got shape {array.shape}, {array.dtype}")
    if array.min() < 0 or array.max() >= num_nodes:
        raise ModelError(f"edges must name nodes from 0 to {num_nodes - 1}, got {array.min()} to {array.max()}")
    pairs = array.astype(np.int64)
    ordered = np.sort(pairs, axis=1)
    if (ordered[:, 0] == ordered[:, 1]).any():
        raise ModelError("edges must join different nodes, got one that joins a node to itself")
    if len(np.unique(ordered @ [num_nodes, 1])) < len(pairs):
        raise ModelError("edges must be given once, in one direction, got one twice")
    return pairs


def _as_shape(shape: object, num_nodes: int) -> tuple[int, ...]:
    """The shape of the labels of an example."""
    if shape is None:
        return (num_nodes,)
    try:
        sizes = tuple(int(size) for size in shape)  # type: ignore[attr-defined]  # refused below if it fails
        fits = min(sizes, default=0) >= 0 and int(np.prod(sizes, dtype=object)) == num_nodes
    except Exception:  # objects may raise anything
        fits = False
    if not fits:
        raise ModelError(f"shape must be a tuple of whole numbers with the product {num_nodes}, got {describe(shape)}")
    return sizes
