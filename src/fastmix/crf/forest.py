"""``Forest``: exact sums, draws and modes of examples whose graphs are trees, all of them in one call."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastmix._arrays import BoolArray, FloatArray, IntArray, read_only
from fastmix.crf import tree_kernels
from fastmix.crf.examples import Examples

__all__ = ["Forest", "TreeSums"]


@dataclass(frozen=True)
class TreeSums:
    """Exact sums over the configurations of trees.

    Attributes
    ----------
    log_z : float array (trees,)
    marginals : float array (N, K)
    pairs : float array (T, K, K) or None
        Joint distributions of neighbors, added up over the edges of every table.
    """

    log_z: FloatArray
    marginals: FloatArray
    pairs: FloatArray | None


class Forest:
    """The order in which the trees of examples are summed.

    Attributes
    ----------
    starts, order : int arrays (trees + 1,), (N,)
        Nodes of every tree, from its root on.
    tree_of : int array (N,)
    """

    def __init__(self, examples: Examples) -> None:
        graph = examples.adjacency
        num_nodes = examples.num_nodes
        count, component = examples.components
        self.tree_of = component
        self.starts = read_only(np.concatenate([[0], np.cumsum(np.bincount(component, minlength=count))]))
        order = np.empty(num_nodes, dtype=np.int64)
        parent = np.full(num_nodes, -1, dtype=np.int64)
        edge = np.full(num_nodes, -1, dtype=np.int64)
        # Components are numbered by their smallest nodes, so these are the roots in order.
        roots = np.unique(component, return_index=True)[1]
        arrays = map(read_only, (graph.indptr, graph.neighbors, graph.edge_ids, roots))
        tree_kernels.order_trees(*arrays, order, parent, edge)
        first = np.zeros(num_nodes, dtype=bool)
        inner = edge >= 0
        first[inner] = examples.edges[edge[inner], 0] == parent[inner]
        self._shape = tuple(map(read_only, (self.starts, order, parent, edge, first)))

    @property
    def num_trees(self) -> int:
        """Number of trees."""
        return len(self.starts) - 1

    def sums(self, unary: FloatArray, tables: FloatArray, table_of: IntArray, *, pairs: bool = True) -> TreeSums:
        """Log Z, marginals and joint distributions for log-potentials (N, K) and tables (T, K, K).

        Entries of the unaries may be -inf.
        """
        shape = self._shape
        table_of = read_only(table_of)
        tops = np.empty(len(unary))
        weights = np.empty_like(unary)
        tree_kernels.take_tops(read_only(unary), tops, weights)
        np.exp(weights, out=weights)
        table_tops = tables.max(axis=(1, 2), initial=-np.inf)
        scaled = np.exp(tables - table_tops[:, None, None])
        inside, message, cavity, outside = (np.empty_like(unary) for _ in range(4))
        total = np.empty(len(unary))
        log_z = np.empty(self.num_trees)
        arrays = (read_only(weights), read_only(scaled), table_of)
        tree_kernels.sum_trees(*shape, *arrays, inside, message, cavity, outside, total, log_z)
        joints: FloatArray | None = None
        if pairs:
            joints = np.zeros_like(tables)
            starts, order, _, edge, first = shape
            tree_kernels.add_pairs(starts, order, edge, first, table_of, inside, cavity, total, log_z, joints)
            joints *= scaled
        bad = np.flatnonzero(np.isnan(log_z))
        log_z += np.bincount(self.tree_of, tops, self.num_trees)
        log_z += self._sum_over_edges(table_tops[table_of])
        if len(bad):
            unused = np.zeros_like(tables) if joints is None else joints
            own = self._in_logs(bad, unary, tables, table_of, log_z)
            tree_kernels.add_pairs_in_logs(
                bad, *shape, read_only(unary), read_only(tables), table_of, *own, outside, unused
            )
        return TreeSums(log_z, outside, joints)

    def draw(
        self, unary: FloatArray, tables: FloatArray, table_of: IntArray, num_draws: int, rng: np.random.Generator
    ) -> IntArray:
        """Independent exact configurations (num_draws, N)."""
        table_of = read_only(table_of)
        log_z = np.empty(self.num_trees)
        inside, _ = self._in_logs(np.arange(self.num_trees), unary, tables, table_of, log_z)
        states = np.zeros((num_draws, len(unary)), dtype=np.int64)
        for row in states:
            uniforms = rng.random(len(unary))
            tree_kernels.draw_states(*self._shape, read_only(tables), table_of, inside, read_only(uniforms), row)
        return states

    def modes(self, unary: FloatArray, tables: FloatArray, table_of: IntArray) -> IntArray:
        """The most probable configuration (N,)."""
        states = np.zeros(len(unary), dtype=np.int64)
        arrays = (read_only(unary), read_only(tables), read_only(table_of))
        tree_kernels.find_modes(*self._shape, *arrays, np.empty_like(unary), states)
        return states

    def _in_logs(
        self, trees: IntArray, unary: FloatArray, tables: FloatArray, table_of: IntArray, log_z: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Log-weights of subtrees and log-messages of some trees, whose log Z are put into place."""
        inside = np.empty_like(unary)
        message = np.empty_like(unary)
        tree_kernels.collect_in_logs(
            trees, *self._shape, read_only(unary), read_only(tables), table_of, inside, message, log_z
        )
        return inside, message

    def _sum_over_edges(self, values: FloatArray) -> FloatArray:
        """Sums over the edges of every tree."""
        edge = self._shape[3]
        inner = edge >= 0
        return np.asarray(np.bincount(self.tree_of[inner], values[edge[inner]], self.num_trees), dtype=np.float64)


def clamped(unary: FloatArray, codes: IntArray, known: BoolArray) -> FloatArray:
    """Log-potentials that forbid all states but those that are known."""
    result = unary.copy()
    result[known] = -np.inf
    result[known, codes[known]] = unary[known, codes[known]]
    return result
