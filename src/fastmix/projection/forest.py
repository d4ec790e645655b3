"""Exact inference on many tree-shaped pieces of one model at once.

A piece keeps the unaries and tables of some edges. Its nodes are variables, or pairs of variables merged into one (for
two neighbouring lines of a grid), so that the nodes form trees. All potentials of all pieces are one linear function of
the model's parameters, and moments are taken back to the parameters by its transpose.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix.exact.orders import elimination_order
from fastmix.graphs import canonical_edges
from fastmix.model import MarkovRandomField
from fastmix.model.build import offsets_of, table_positions

__all__ = ["Forest", "merge_lines", "split_trees"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Forest:
    """Pieces made of trees, in flat arrays for :mod:`fastmix.projection.forest_kernels`.

    Attributes
    ----------
    num_pieces, num_parameters : int
    states, parent, piece_of : int array (nodes,)
        States of every node, its parent (-1 for roots) and its piece. Children come before parents, pieces in turn.
    entry : int array (k,)
    parameter : int array (k,)
        Potential ``entry[q]`` gets parameter ``parameter[q]`` added. Node entries come first, then link tables.
    """

    num_pieces: int
    num_parameters: int
    states: IntArray
    parent: IntArray
    piece_of: IntArray
    entry: IntArray
    parameter: IntArray

    @cached_property
    def node_at(self) -> IntArray:
        """Where the entries of every node begin."""
        return offsets_of(self.states)[:-1].copy()

    @cached_property
    def link_at(self) -> IntArray:
        """Where the table to the parent begins; meaningless for roots."""
        return int(self.states.sum()) + offsets_of(self._link_sizes)[:-1]

    @cached_property
    def _link_sizes(self) -> IntArray:
        return np.where(self.parent >= 0, self.states * self.states[self.parent], 0)

    @cached_property
    def num_entries(self) -> int:
        """Length of the potentials."""
        return int(self.states.sum() + self._link_sizes.sum())

    @cached_property
    def entry_piece(self) -> IntArray:
        """The piece of every potential."""
        return np.concatenate([np.repeat(self.piece_of, self.states), np.repeat(self.piece_of, self._link_sizes)])

    @cached_property
    def piece_starts(self) -> IntArray:
        """Where the nodes of every piece begin, (pieces + 1,)."""
        return offsets_of(np.bincount(self.piece_of, minlength=self.num_pieces))

    @cached_property
    def _matrices(self) -> tuple[Any, Any]:
        from scipy.sparse import csr_array

        shape = (self.num_entries, self.num_parameters)
        matrix = csr_array((np.ones(len(self.entry)), (self.entry, self.parameter)), shape=shape)
        return matrix, matrix.T.tocsr()

    def potentials(self, parameters: FloatArray) -> FloatArray:
        """All node entries and link tables."""
        return np.asarray(self._matrices[0] @ parameters)

    def gather(self, entries: FloatArray) -> FloatArray:
        """What numbers per potential, such as moments, mean for every parameter: the transpose of the above."""
        return np.asarray(self._matrices[1] @ entries)

    def solve_up(self, potentials: FloatArray) -> tuple[FloatArray, tuple[FloatArray, FloatArray]]:
        """Log Z (pieces,), and what the way down needs. Time linear in the potentials."""
        from fastmix.projection import forest_kernels as kernels

        beliefs, messages = np.empty(int(self.states.sum())), np.empty(len(potentials))
        log_z = np.empty(self.num_pieces)
        kernels.pass_up(
            potentials, self.states, self.node_at, self.parent, self.link_at, self.piece_of, beliefs,
            messages, log_z,
        )  # fmt: skip
        return log_z, (beliefs, messages)

    def solve_down(
        self, potentials: FloatArray, passed: tuple[FloatArray, FloatArray], piece: int | None = None
    ) -> FloatArray:
        """Marginals of every potential, of one piece (0 elsewhere) or of all."""
        from fastmix.projection import forest_kernels as kernels

        first, last = (0, len(self.states)) if piece is None else self.piece_starts[piece : piece + 2].tolist()
        marginals = np.zeros(len(potentials))
        kernels.pass_down(
            potentials, self.states, self.node_at, self.parent, self.link_at, first, last, *passed,
            marginals,
        )  # fmt: skip
        return marginals


def split_trees(model: MarkovRandomField, pieces: list[IntArray]) -> Forest | None:
    """The forest of pieces given by their edges; None if some piece has a cycle.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1), (0, 2), (1, 2)], coupling=1.0)
    >>> forest = split_trees(model, [np.array([0, 1]), np.array([2])])
    >>> forest.num_pieces, len(forest.states)
    (2, 5)
    >>> split_trees(model, [np.array([0, 1, 2])]) is None
    True
    """
    n = model.num_variables
    piece = np.repeat(np.arange(len(pieces)), [len(p) for p in pieces])
    edge = np.concatenate([np.zeros(0, dtype=np.int64), *pieces]).astype(np.int64)
    keys, local = np.unique(piece[:, None] * n + model.edges[edge], return_inverse=True)
    local = local.reshape(-1, 2)
    variable, piece_of = keys % n, keys // n
    found = elimination_order(len(keys), canonical_edges(len(keys), local), model.num_states[variable])
    if found.width > 1:
        return None
    order = found.order[np.argsort(piece_of[found.order], kind="stable")]
    place = np.empty(len(keys), dtype=np.int64)
    place[order] = np.arange(len(keys))
    ends = place[local]
    child, above = ends.min(axis=1), ends.max(axis=1)
    parent, link = np.full(len(keys), -1, dtype=np.int64), np.full(len(keys), -1, dtype=np.int64)
    parent[child], link[child] = above, edge
    variable, piece_of = variable[order], piece_of[order]
    states = model.num_states[variable]
    # Node entries are the unaries; link tables the edge tables, transposed where the child is the second end.
    owner = np.repeat(np.arange(len(keys)), states)
    first = model.unary_offsets[variable][owner] + np.arange(len(owner)) - offsets_of(states)[owner]
    linked = np.flatnonzero(parent >= 0)
    pairs = np.stack([variable[linked], variable[parent[linked]]], axis=1)
    table, row, col = table_positions(model.num_states, pairs)
    i, j = pairs[table].T
    local_place = np.where(i < j, row * model.num_states[j] + col, col * model.num_states[i] + row)
    second = len(model.log_unary) + model.pairwise_offsets[link[linked][table]] + local_place
    parameter = np.concatenate([first, second])
    return Forest(len(pieces), model.num_parameters, states, parent, piece_of, np.arange(len(parameter)), parameter)


def merge_lines(model: MarkovRandomField, ladders: list[IntArray]) -> Forest:
    """The forest of ladders: two neighbouring lines of a grid, (2, k) variables each, every rung merged into one node.

    All edges along the lines and on the rungs must be edges of the model.

    Examples
    --------
    >>> from fastmix.instances import potts_grid
    >>> model = potts_grid(2, 4, num_states=3, coupling_max=1.0, seed=0)
    >>> forest = merge_lines(model, [np.arange(8).reshape(2, 4)])
    >>> forest.states.tolist(), forest.parent.tolist()
    ([9, 9, 9, 9], [1, 2, 3, -1])
    """
    lengths = np.array([ladder.shape[1] for ladder in ladders])
    one, two = np.concatenate(ladders, axis=1)
    piece_of = np.repeat(np.arange(len(ladders)), lengths)
    nodes = np.arange(len(one))
    is_last = nodes == offsets_of(lengths)[1:][piece_of] - 1
    parent = np.where(is_last, -1, nodes + 1)
    count_one, count_two = model.num_states[one], model.num_states[two]
    states = count_one * count_two
    split = len(model.log_unary)

    # A state of a rung is the pair (s, t); its potential is u(s) + u(t) + T(s, t).
    owner = np.repeat(nodes, states)
    s, t = np.divmod(np.arange(len(owner)) - offsets_of(states)[owner], count_two[owner])
    rung = _edge_ids(model, one, two)[owner]
    node_parameters = np.stack([
        model.unary_offsets[one[owner]] + s,
        model.unary_offsets[two[owner]] + t,
        split + model.pairwise_offsets[rung] + s * count_two[owner] + t,
    ])  # fmt: skip
    # A link adds the tables along both lines.
    below = nodes[~is_last]
    table, row, col = table_positions(states, np.stack([below, below + 1], axis=1))
    k = below[table]
    (s, t), (s_next, t_next) = np.divmod(row, count_two[k]), np.divmod(col, count_two[k + 1])
    along_one, along_two = _edge_ids(model, one[below], one[below + 1]), _edge_ids(model, two[below], two[below + 1])
    link_parameters = np.stack([
        split + model.pairwise_offsets[along_one[table]] + s * count_one[k + 1] + s_next,
        split + model.pairwise_offsets[along_two[table]] + t * count_two[k + 1] + t_next,
    ])  # fmt: skip
    entries = [np.tile(np.arange(len(owner)), 3), np.tile(len(owner) + np.arange(len(table)), 2)]
    return Forest(
        len(ladders), model.num_parameters, states, parent, piece_of, np.concatenate(entries),
        np.concatenate([node_parameters.reshape(-1), link_parameters.reshape(-1)]),
    )  # fmt: skip


def _edge_ids(model: MarkovRandomField, low: IntArray, high: IntArray) -> IntArray:
    """Rows of ``model.edges`` that are (low, high), with low < high."""
    n = model.num_variables
    keys = model.edges[:, 0] * n + model.edges[:, 1]
    return np.searchsorted(keys, low * n + high)
