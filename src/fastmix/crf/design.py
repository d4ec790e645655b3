"""``Layout`` and ``Design``: how the weights of a conditional random field make the log-potentials of examples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._memory import check_memory
from fastmix.crf.examples import Examples
from fastmix.model import MarkovRandomField

__all__ = ["Design", "Layout"]


@dataclass(frozen=True)
class Layout:
    """The sizes of the weights: W (F + 1, K) of the nodes, then P (kinds, G + 1, K, K) of the edges.

    The last row of W and the last tables of P belong to a feature that is always 1. Tables of symmetric kinds stay
    equal to their transpose, because their derivatives are made so.
    """

    num_states: int
    num_features: int
    num_edge_features: int
    num_kinds: int
    symmetric: tuple[bool, ...]

    @property
    def num_node_weights(self) -> int:
        """Entries of W."""
        return (self.num_features + 1) * self.num_states

    @property
    def size(self) -> int:
        """Number of all weights."""
        return self.num_node_weights + self.num_kinds * (self.num_edge_features + 1) * self.num_states**2

    def split(self, w: FloatArray) -> tuple[FloatArray, FloatArray]:
        """W (F + 1, K) and P (kinds, G + 1, K, K), views of the weights."""
        k = self.num_states
        nodes = w[: self.num_node_weights].reshape(self.num_features + 1, k)
        return nodes, w[self.num_node_weights :].reshape(self.num_kinds, self.num_edge_features + 1, k, k)

    def joined(self, nodes: FloatArray, tables: FloatArray) -> FloatArray:
        """Derivatives (size,) from those of W and P; those of symmetric kinds are made symmetric."""
        for kind in np.flatnonzero(self.symmetric):
            tables[kind] = 0.5 * (tables[kind] + tables[kind].swapaxes(1, 2))
        return np.concatenate([nodes.reshape(-1), tables.reshape(-1)])

    def scales(self, examples: Examples) -> FloatArray:
        """Roots of about how much the objective curves in every weight (size,), per example; 1 for weights without."""
        k = self.num_states
        squares = examples.features**2 if isinstance(examples.features, np.ndarray) else examples.features.power(2)
        of_nodes = np.concatenate([np.asarray(squares.sum(axis=0)).reshape(-1), [examples.num_nodes]])
        nodes = np.repeat(of_nodes[:, None] / k, k, axis=1)
        tables = np.zeros((self.num_kinds, self.num_edge_features + 1, k, k))
        for kind in range(self.num_kinds):
            members = examples.kinds == kind
            tables[kind, -1] = members.sum() / k**2
            if examples.edge_features is not None:
                tables[kind, :-1] = (examples.edge_features[members] ** 2).sum(axis=0)[:, None, None] / k**2
        both = np.concatenate([nodes.reshape(-1), tables.reshape(-1)]) / len(examples)
        return np.where(both > 0.0, np.sqrt(both), 1.0)


class Design:
    """From weights to the log-potentials of some examples, and from derivatives by these to those by the weights.

    Attributes
    ----------
    table_of : int array (M,)
        The table of every edge: one for each kind and direction, or one for each edge where edges have features.
    """

    def __init__(self, examples: Examples, layout: Layout) -> None:
        self.examples = examples
        self.layout = layout
        self.has_edge_features = examples.edge_features is not None
        num_edges = len(examples.edges)
        if not self.has_edge_features:
            self.table_of: IntArray = 2 * examples.kinds + examples.turned
            self._members: list[tuple[IntArray, FloatArray]] = []
            return
        assert examples.edge_features is not None
        required = 32.0 * num_edges * layout.num_states**2
        check_memory(required, f"tables of {num_edges:,} edges", "give fewer examples at a time")
        self.table_of = np.arange(num_edges)
        with_constant = np.column_stack([examples.edge_features, np.ones(num_edges)])
        kinds = [np.flatnonzero(examples.kinds == kind) for kind in range(layout.num_kinds)]
        self._members = [(members, with_constant[members]) for members in kinds]

    @property
    def num_tables(self) -> int:
        """Number T of tables."""
        return len(self.table_of) if self.has_edge_features else 2 * self.layout.num_kinds

    def potentials(self, w: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Log-potentials of nodes (N, K) and tables (T, K, K), rows for the node with the smaller number."""
        nodes, weights = self.layout.split(w)
        unary = np.asarray(self.examples.features @ nodes[:-1]) + nodes[-1]
        k = self.layout.num_states
        if not self.has_edge_features:
            both = np.stack([weights[:, 0], weights[:, 0].swapaxes(1, 2)], axis=1)
            return unary, both.reshape(-1, k, k)
        tables = np.empty((len(self.examples.edges), k, k))
        for (members, features), of_kind in zip(self._members, weights, strict=True):
            tables[members] = (features @ of_kind.reshape(len(of_kind), -1)).reshape(-1, k, k)
        turned = self.examples.turned
        tables[turned] = tables[turned].swapaxes(1, 2)
        return unary, tables

    def pull(self, for_unary: FloatArray, for_tables: FloatArray) -> FloatArray:
        """Derivatives (size,) by the weights, from those by the log-potentials, as :meth:`potentials` gives them."""
        layout = self.layout
        k = layout.num_states
        nodes = np.empty((layout.num_features + 1, k))
        nodes[:-1] = self.examples.features.T @ for_unary
        nodes[-1] = for_unary.sum(axis=0)
        tables = np.zeros((layout.num_kinds, layout.num_edge_features + 1, k, k))
        if not self.has_edge_features:
            both = for_tables.reshape(-1, 2, k, k)
            tables[:, 0] = both[:, 0] + both[:, 1].swapaxes(1, 2)
            return layout.joined(nodes, tables)
        turned = self.examples.turned
        given = for_tables.copy()
        given[turned] = given[turned].swapaxes(1, 2)
        for (members, features), out in zip(self._members, tables, strict=True):
            out[:] = (features.T @ given[members].reshape(len(members), -1)).reshape(out.shape)
        return layout.joined(nodes, tables)

    @staticmethod
    def model_of(
        examples: Examples, unary: FloatArray, tables: FloatArray, state_names: tuple[str, ...] | None = None
    ) -> MarkovRandomField:
        """The model of all examples side by side, from unaries (N, K) and a table for every edge (M, K, K)."""
        n = len(unary)
        return MarkovRandomField(
            num_states=np.full(n, unary.shape[1]),
            log_unary=unary.reshape(-1),
            edges=examples.edges,
            log_pairwise=tables.reshape(-1),
            state_names=None if state_names is None else (state_names,) * n,
        )
