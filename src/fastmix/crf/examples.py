"""``Examples``: the graphs of many examples side by side in flat arrays, with their labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import BoolArray, FloatArray, IntArray
from fastmix._checks import as_list, describe
from fastmix.crf.graph import Graph
from fastmix.errors import ModelError
from fastmix.graphs import Adjacency
from fastmix.graphs.components import label_components
from fastmix.graphs.edges import build_adjacency

__all__ = ["UNKNOWN", "Examples", "code_labels", "read_examples", "read_labels"]

UNKNOWN = -1  # the code of a label that is missing


@dataclass(frozen=True, eq=False)
class Examples:
    """Nodes and edges of all examples, one example after the other.

    Attributes
    ----------
    features : float array or compressed rows (N, F)
    edge_features : float array (M, G) or None
    node_starts, edge_starts : int arrays (E + 1,)
        Where the nodes and edges of every example begin.
    edges : int array (M, 2)
        Pairs of nodes, the smaller number first, in lexicographic order.
    kinds : int array (M,)
    turned : bool array (M,)
        Whether an edge was given from the larger number to the smaller one.
    order_of_edges : int array (M,)
        Where each edge stood among those that were given.
    shapes : sequence of tuples
        Of the labels of every example.
    """

    features: Any
    edge_features: FloatArray | None
    node_starts: IntArray
    edge_starts: IntArray
    edges: IntArray
    kinds: IntArray
    turned: BoolArray
    shapes: Sequence[tuple[int, ...]]

    def __len__(self) -> int:
        return len(self.node_starts) - 1

    @property
    def num_nodes(self) -> int:
        """Number of nodes N."""
        return int(self.node_starts[-1])

    @cached_property
    def adjacency(self) -> Adjacency:
        """Neighbors of every node in compressed rows."""
        return build_adjacency(self.num_nodes, self.edges)

    @cached_property
    def components(self) -> tuple[int, IntArray]:
        """Number of connected components, and the component of each node."""
        return label_components(self.num_nodes, self.edges)

    @cached_property
    def is_tree(self) -> BoolArray:
        """Whether all of an example's components are trees, by example."""
        count, component = self.components
        excess = np.bincount(component[self.edges[:, 0]], minlength=count) - np.bincount(component, minlength=count) + 1
        has_cycle = np.zeros(len(self), dtype=bool)
        example_of = np.repeat(np.arange(len(self)), np.diff(self.node_starts))
        has_cycle[example_of[excess[component] > 0]] = True
        return ~has_cycle

    def take(self, chosen: IntArray) -> Examples:
        """Some of the examples, in the order of their numbers."""
        if len(chosen) == len(self):
            return self
        nodes = self.places(self.node_starts, chosen)
        edges = self.places(self.edge_starts, chosen)
        new_number = np.full(self.num_nodes, -1, dtype=np.int64)
        new_number[nodes] = np.arange(len(nodes))
        return Examples(
            features=self.features[nodes],
            edge_features=None if self.edge_features is None else self.edge_features[edges],
            node_starts=_starts(np.diff(self.node_starts)[chosen]),
            edge_starts=_starts(np.diff(self.edge_starts)[chosen]),
            edges=new_number[self.edges[edges]],
            kinds=self.kinds[edges],
            turned=self.turned[edges],
            shapes=[self.shapes[k] for k in chosen.tolist()],
        )

    @staticmethod
    def places(starts: IntArray, chosen: IntArray) -> IntArray:
        """Numbers of the nodes, or edges, of some examples."""
        parts = [np.arange(starts[k], starts[k + 1]) for k in chosen.tolist()]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)

    def by_example(self, values: NDArray[Any], *, shaped: bool = True) -> list[NDArray[Any]]:
        """Values (N, ..) of all nodes as a list with an array for every example, in the shape of its labels."""
        parts = np.split(values, self.node_starts[1:-1])
        if not shaped:
            return parts
        return [part.reshape(*shape, *part.shape[1:]) for part, shape in zip(parts, self.shapes, strict=True)]


def read_examples(X: Any, *, like: tuple[int, int, int] | None = None) -> Examples:
    """Examples from what users have: graphs, or tables of features, which are chains.

    ``like`` are the numbers of features, features of edges and kinds that a model was fitted with.
    """
    graphs = [_as_graph(given, k) for k, given in enumerate(as_list("X", X, "a list of examples"))]
    if not graphs:
        raise ModelError("X must hold at least one example, got none")
    counts = (graphs[0].features.shape[1], _num_edge_features(graphs), 1 + max(map(_largest_kind, graphs)))
    if like is not None:
        if counts[0] != like[0] or counts[2] > like[2] or counts[1] not in (like[1], -1):
            raise ModelError(
                f"X must have {like[0]} features, {like[1]} of edges and kinds of edges below {like[2]}, as those that "
                f"were fitted, got {counts[0]}, {max(counts[1], 0)} and {counts[2]}"
            )
        counts = like
    for k, graph in enumerate(graphs):
        if graph.features.shape[1] != counts[0]:
            raise ModelError(f"X[{k}] must have {counts[0]} features as the first, got {graph.features.shape[1]}")
    return _joined(graphs, max(counts[1], 0))


def _as_graph(given: Any, k: int) -> Graph:
    """One example as a graph; a table of features is a chain."""
    if isinstance(given, Graph):
        return given
    try:
        return Graph.chain(given)
    except ModelError as error:
        raise ModelError(f"X[{k}] must be a Graph, or the features of a chain: {error}") from None


def _largest_kind(graph: Graph) -> int:
    """The largest number of a kind of edges; 0 without edges."""
    return int(np.asarray(graph.edge_kinds).max(initial=0))


def _num_edge_features(graphs: Sequence[Graph]) -> int:
    """The number of features of edges, equal in all examples that have edges; -1 where none has."""
    counts = {0 if g.edge_features is None else g.edge_features.shape[1] for g in graphs if len(np.asarray(g.edges))}
    if len(counts) > 1:
        raise ModelError(f"X must have equally many features for all edges, got {min(counts)} and {max(counts)}")
    return counts.pop() if counts else -1


def _starts(counts: IntArray) -> IntArray:
    """Running sums of counts, from 0."""
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _joined(graphs: Sequence[Graph], num_edge_features: int) -> Examples:
    """All graphs side by side, their edges in the order that models have."""
    node_starts = _starts(np.array([g.num_nodes for g in graphs]))
    given = [np.asarray(g.edges).reshape(-1, 2) for g in graphs]
    edge_starts = _starts(np.array([len(edges) for edges in given]))
    pairs = np.concatenate([edges + first for edges, first in zip(given, node_starts, strict=False)])
    turned = pairs[:, 0] > pairs[:, 1]
    edges = np.sort(pairs, axis=1)
    order = np.lexsort((edges[:, 1], edges[:, 0]))
    of_edges: FloatArray | None = None
    if num_edge_features:
        parts = [np.zeros((0, num_edge_features)) if g.edge_features is None else g.edge_features for g in graphs]
        of_edges = np.concatenate(parts)[order]
    if any(not isinstance(g.features, np.ndarray) for g in graphs):
        from scipy.sparse import csr_array, vstack

        features: Any = csr_array(vstack([csr_array(g.features) for g in graphs], format="csr"))
    else:
        features = np.concatenate([g.features for g in graphs])
    return Examples(
        features=features,
        edge_features=of_edges,
        node_starts=node_starts,
        edge_starts=edge_starts,
        edges=edges[order],
        kinds=np.concatenate([np.asarray(g.edge_kinds) for g in graphs])[order],
        turned=turned[order],
        shapes=[g.shape or (g.num_nodes,) for g in graphs],
    )


# -- labels -----------------------------------------------------------------------------------------------------------


def read_labels(y: Any, examples: Examples) -> NDArray[Any]:
    """Labels (N,) of all nodes as users name them; None, NaN and -1 are missing.

    Labels of one example have its shape, or are a list of as many.
    """
    rows = as_list("y", y, "a list with the labels of every example")
    if len(rows) != len(examples):
        raise ModelError(f"y must have labels for each of {len(examples)} examples, got {len(rows)}")
    parts = []
    for k, (row, first, end) in enumerate(
        zip(rows, examples.node_starts[:-1].tolist(), examples.node_starts[1:].tolist(), strict=True)
    ):
        try:
            part = np.asarray(row)
        except Exception:  # objects may raise anything
            raise ModelError(f"y[{k}] must be the labels of an example, got {describe(row)}") from None
        if part.dtype.kind not in "biufUSO" or part.size != end - first:
            raise ModelError(f"y[{k}] must have {end - first} labels, one for each node, got {describe(row)}")
        parts.append(part.reshape(-1))
    kinds = {part.dtype.kind for part in parts if part.size}
    if kinds <= set("biu") or kinds <= {"U"}:
        return np.concatenate(parts)
    return np.concatenate([part.astype(object) for part in parts])


def code_labels(labels: NDArray[Any], classes: NDArray[Any] | None, name: str = "y") -> tuple[IntArray, NDArray[Any]]:
    """Codes (N,) of labels, :data:`UNKNOWN` where they are missing, and the classes, sorted.

    Without ``classes`` they are those that occur; with them, another label is an error.
    """
    gone = _is_missing(labels)
    known = labels[~gone]
    if known.dtype.kind == "O" and len(known) and all(_is_whole(value) for value in known.tolist()):
        known = known.astype(np.int64)
    try:
        found = np.unique(known)
    except Exception:  # labels of several types have no order of their own, and objects may raise anything
        raise ModelError(f"{name} must hold labels of one type, such as numbers or text, got several") from None
    if found.dtype.kind == "O" and not all(isinstance(value, str) for value in found.tolist()):
        raise ModelError(f"{name} must hold labels that are whole numbers or text, got {describe(found.tolist()[0])}")
    if classes is None:
        classes = found
    codes = np.full(len(labels), UNKNOWN, dtype=np.int64)
    places = np.searchsorted(classes, known) if len(known) else np.zeros(0, dtype=np.int64)
    places = np.minimum(places, max(len(classes) - 1, 0))
    unseen = np.flatnonzero(classes[places] != known) if len(known) else places
    if len(unseen):
        raise ModelError(f"{name} must hold labels that were seen in the fit, got {describe(known[unseen[0]])}")
    codes[~gone] = places
    return codes, classes


def _is_missing(labels: NDArray[Any]) -> BoolArray:
    """Whether labels are -1, NaN or None."""
    if labels.dtype.kind in "iu":
        return np.asarray(labels == UNKNOWN)
    if labels.dtype.kind != "O":
        return np.zeros(len(labels), dtype=bool)
    found = []
    for value in labels.tolist():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        found.append(value is None or (is_number and (value != value or value == UNKNOWN)))
    return np.array(found, dtype=bool)


def _is_whole(value: Any) -> bool:
    """Whether a value is a whole number."""
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, float) and value.is_integer() and abs(value) < 2**53)
