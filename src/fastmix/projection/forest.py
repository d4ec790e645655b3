"""Exact inference on many small pieces of a model at once, each of which is a tree of nodes.

A piece keeps the unaries and tables of some edges. Its nodes are variables, or groups of variables merged into one (for
neighboring lines of a grid), so that the nodes form trees. All potentials of all pieces are one linear function of the
model's parameters, and moments are taken back to the parameters by its transpose.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fastmix._arrays import FloatArray, IntArray, read_only, read_only_fields
from fastmix._clock import NO_LIMIT, Clock
from fastmix._memory import check_memory
from fastmix.errors import UnfitMethodError
from fastmix.exact import leaves
from fastmix.graphs import grid_edges
from fastmix.graphs.trees import strip_leaves
from fastmix.model import MarkovRandomField
from fastmix.model.flat import offsets_of
from fastmix.projection.tuning import BYTES_PER_POTENTIAL

__all__ = [
    "Forest", "PieceNodes", "grid_shape", "grid_strips", "merge_lines", "merged_bytes", "split_trees", "strips_of",
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class PieceNodes:
    """Which variables and edges the nodes of pieces hold.

    Attributes
    ----------
    piece_of : int array (nodes,)
        The piece of every node. Nodes are numbered children before parents, piece by piece.
    parent : int array (nodes,)
        The parent of every node, -1 for roots.
    variable, node, stride : int arrays (k,)
        Occurrences of variables in pieces: the variable, the node that it is in, and the distance of its states among
        the states of the node.
    edges : int array (l,)
        Occurrences of edges in pieces.
    ends : int array (l, 2)
        Both ends of these edges, as positions among the occurrences of variables.
    """

    piece_of: IntArray
    parent: IntArray
    variable: IntArray
    node: IntArray
    stride: IntArray
    edges: IntArray
    ends: IntArray


class _PotentialRows(NamedTuple):
    """The places of unaries, or of tables, among the potentials; one entry for every occurrence in a piece.

    ``begin`` and ``size`` are those of the node or link that holds it. ``step`` is the distance of the states of its
    first variable there, and ``num_states`` their number; ``second_step`` and ``second_num_states`` are those of its
    second variable (one state where there is none). ``parameter`` is the position of its first entry among the
    parameters.
    """

    begin: IntArray
    size: IntArray
    step: IntArray
    num_states: IntArray
    second_step: IntArray
    second_num_states: IntArray
    parameter: IntArray


class Forest:
    """Pieces whose nodes, of one or several variables each, form trees.

    Potentials are the entries of all nodes, then the tables of all links to a parent, (own states, states of the
    parent). All of them are ``matrix @ parameters``; ``entry_piece`` is the piece of each.
    """

    def __init__(self, model: MarkovRandomField, nodes: PieceNodes) -> None:
        from scipy.sparse import csr_array

        self.model = model
        self.nodes = nodes
        num_nodes = len(nodes.parent)
        has_parent = nodes.parent >= 0

        # Where the entries of every node, and of the link to its parent, begin.
        self._states = np.ones(num_nodes, dtype=np.int64)
        np.multiply.at(self._states, nodes.node, model.num_states[nodes.variable])
        self._link_sizes = np.where(has_parent, self._states * self._states[nodes.parent], 0)
        starts = offsets_of(np.concatenate([self._states, self._link_sizes]))
        self._node_starts = starts[:num_nodes]
        self._link_starts = starts[num_nodes:-1]

        self.num_pieces = int(nodes.piece_of.max(initial=-1)) + 1
        self.num_node_entries = int(self._states.sum())
        self.entry_piece = np.repeat(np.tile(nodes.piece_of, 2), np.diff(starts))
        self._most_states = int(self._states.max(initial=1))
        of_nodes = leaves.Leaves(
            variables=np.arange(num_nodes),
            neighbors=nodes.parent,
            starts=self._link_starts,
            own=np.where(has_parent, self._states[nodes.parent], 1),
            other=np.ones_like(nodes.parent),
            counts=self._states,
            offsets=self._node_starts,
        )
        self._leaves = read_only_fields(of_nodes)

        potentials, parameters = self._coordinates()
        shape = (int(starts[-1]), model.num_parameters)
        self.matrix = csr_array((np.ones(len(potentials)), (potentials, parameters)), shape=shape)
        self.transposed = self.matrix.T.tocsr()

    def _coordinates(self) -> tuple[IntArray, IntArray]:
        """Every potential with every parameter that counts in it, as two arrays of positions."""
        pairs = zip(self._rows_of_unaries(), self._rows_of_tables(), strict=True)
        rows = _PotentialRows(*(np.concatenate(both) for both in pairs))
        row = np.repeat(np.arange(len(rows.size)), rows.size)
        place = np.arange(len(row)) - offsets_of(rows.size)[row]
        # The states of both variables are digits of the place.
        state = place // rows.step[row] % rows.num_states[row]
        second_state = place // rows.second_step[row] % rows.second_num_states[row]
        parameter = rows.parameter[row] + state * rows.second_num_states[row] + second_state
        return rows.begin[row] + place, parameter

    def _rows_of_unaries(self) -> _PotentialRows:
        """Rows of all occurrences of variables, in their nodes."""
        nodes = self.nodes
        one = np.ones_like(nodes.variable)
        return _PotentialRows(
            begin=self._node_starts[nodes.node],
            size=self._states[nodes.node],
            step=nodes.stride,
            num_states=self.model.num_states[nodes.variable],
            second_step=one,
            second_num_states=one,
            parameter=self.model.unary_offsets[nodes.variable],
        )

    def _rows_of_tables(self) -> _PotentialRows:
        """Rows of all occurrences of edges: in a node that has both ends, or in the link between two nodes."""
        nodes = self.nodes
        counts = self.model.num_states[nodes.variable]
        first, second = nodes.ends.T
        within = nodes.node[first] == nodes.node[second]
        upward = nodes.parent[nodes.node[first]] == nodes.node[second]
        child = np.where(upward, nodes.node[first], nodes.node[second])
        # In a link the states of the parent are next to each other: the states of the child are so many apart.
        parent_states = np.where(within, 1, self._states[nodes.parent[child]])
        return _PotentialRows(
            begin=np.where(within, self._node_starts[child], self._link_starts[child]),
            size=np.where(within, self._states[child], self._link_sizes[child]),
            step=nodes.stride[first] * np.where(upward, parent_states, 1),
            num_states=counts[first],
            second_step=nodes.stride[second] * np.where(upward, 1, parent_states),
            second_num_states=counts[second],
            parameter=len(self.model.log_unary) + self.model.pairwise_offsets[nodes.edges],
        )

    @cached_property
    def psi(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Potentials of the model, log Z of every piece, and marginals of every potential."""
        potentials = self.matrix @ self.model.parameters
        log_z, unary = self.sum_up(potentials)
        return potentials, log_z, self.sum_down(potentials, unary)

    def values(self, parameters: FloatArray) -> FloatArray:
        """KL(psi_S || theta_S) of every piece, for the parameters of theta."""
        psi, psi_log_z, psi_marginals = self.psi
        self._potentials = self.matrix @ parameters
        log_z, self._unary = self.sum_up(self._potentials)
        change = (self._potentials - psi) * psi_marginals
        return log_z - psi_log_z - np.bincount(self.entry_piece, change, minlength=self.num_pieces)

    def gradient(self, weights: FloatArray) -> FloatArray:
        """The weighted sum of the gradients of the pieces at the parameters given last."""
        marginals = self.sum_down(self._potentials, self._unary)
        return np.asarray(self.transposed @ ((marginals - self.psi[2]) * weights[self.entry_piece]))

    def sum_up(self, potentials: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Log Z (pieces,), and the entries of all nodes with the trees below summed into them."""
        unary = potentials[: self.num_node_entries].copy()
        scales = np.empty(len(self.nodes.parent))
        leaves.sum_up(self._leaves, unary, read_only(potentials), np.empty((2, self._most_states)), scales)
        log_z = np.bincount(self.nodes.piece_of, scales, self.num_pieces)
        return np.asarray(log_z, dtype=np.float64), unary

    def sum_down(self, potentials: FloatArray, unary: FloatArray) -> FloatArray:
        """Marginals of every potential."""
        marginals = np.zeros(len(potentials))
        leaves.sum_down(self._leaves, unary, read_only(potentials), marginals, marginals, np.empty(self._most_states))
        return marginals


def split_trees(model: MarkovRandomField, pieces: list[IntArray], clock: Clock = NO_LIMIT) -> Forest:
    """The forest of pieces given by their edges, which must have no cycles; every variable is a node."""
    n = model.num_variables
    piece_of_edge = np.repeat(np.arange(len(pieces)), [len(piece) for piece in pieces])
    edges = np.concatenate([np.zeros(0, dtype=np.int64), *pieces]).astype(np.int64)

    # Occurrences of variables are numbered by piece and variable.
    keys, local = np.unique(piece_of_edge[:, None] * n + model.edges[edges], return_inverse=True)
    ends = local.reshape(-1, 2)
    clock.check()
    removed, above = strip_leaves(len(keys), ends)
    if len(removed) < len(keys):
        k = int(np.delete(keys, removed)[0]) // n
        raise UnfitMethodError(f"pieces must be trees, and piece {k} has a cycle; leave out an edge of it")
    clock.check()

    # Leaves are removed before their parents; nodes are numbered in that order, piece by piece.
    by_piece = np.argsort(keys[removed] // n, kind="stable")
    in_order = removed[by_piece]
    node = np.empty(len(keys), dtype=np.int64)
    node[in_order] = np.arange(len(keys))
    above = above[by_piece]
    nodes = PieceNodes(
        piece_of=keys[in_order] // n,
        parent=np.where(above >= 0, node[above], -1),
        variable=keys % n,
        node=node,
        stride=np.ones_like(node),
        edges=edges,
        ends=ends,
    )
    return Forest(model, nodes)


def merge_lines(model: MarkovRandomField, strips: list[IntArray]) -> Forest:
    """The forest of strips of a grid, (h, k) variables each: h neighboring lines, the variables across merged into one.

    All edges along the lines and across them must be edges of the model.
    """
    lengths = np.array([strip.shape[1] for strip in strips])
    lines = np.concatenate(strips, axis=1)
    columns = np.arange(lines.shape[1])
    piece_of = np.repeat(np.arange(len(strips)), lengths)
    is_last = columns == offsets_of(lengths)[1:][piece_of] - 1

    # Edges across the lines, then along them, by the positions of their ends in ``lines``.
    position = np.arange(lines.size).reshape(lines.shape)
    along = position[:, ~is_last]
    across_ends = np.stack([position[:-1], position[1:]], axis=-1).reshape(-1, 2)
    along_ends = np.stack([along, along + 1], axis=-1).reshape(-1, 2)
    ends = np.concatenate([across_ends, along_ends])
    variable = lines.reshape(-1)
    low, high = variable[ends].T
    n = model.num_variables
    edges = np.searchsorted(model.edges[:, 0] * n + model.edges[:, 1], low * n + high)

    # The states of the last line are next to each other.
    stride = np.ones_like(lines)
    for k in range(len(lines) - 1, 0, -1):
        stride[k - 1] = stride[k] * model.num_states[lines[k]]
    nodes = PieceNodes(
        piece_of=piece_of,
        parent=np.where(is_last, -1, columns + 1),
        variable=variable,
        node=np.tile(columns, len(lines)),
        stride=stride.reshape(-1),
        edges=edges,
        ends=ends,
    )
    return Forest(model, nodes)


# -- lines of grids ---------------------------------------------------------------------------------------------------


def grid_shape(model: MarkovRandomField) -> tuple[int, int] | None:
    """Rows and columns, if the graph is a four-neighbor grid whose variables are numbered row by row; else None."""
    n = model.num_variables
    if not model.num_edges:
        return None
    # One row, or the second neighbor of the first variable is the first of the next row; one column comes last.
    for cols in (n, *model.adjacency.neighbors_of(0)[::-1].tolist()):
        if n % cols == 0 and np.array_equal(model.edges, grid_edges(n // cols, cols)):
            return n // cols, cols
    return None


def grid_strips(model: MarkovRandomField, name: str) -> list[IntArray]:
    """The variables (h, k) of every line of a grid, h = 1, or of every two neighboring lines, rows before columns."""
    shape = grid_shape(model)
    if shape is None:
        raise UnfitMethodError(
            f"pieces={name!r} needs a four-neighbor grid numbered row by row, and this graph with "
            f"{model.num_variables} variables and {model.num_edges} edges is none; use pieces='spanning-trees', or "
            "give the edges of every piece"
        )
    if name == "rows-and-columns":
        return strips_of(shape, 1)
    if min(shape) < 2:
        raise UnfitMethodError(f"pieces={name!r} needs two lines at least, and the grid is {shape[0]}x{shape[1]}: one")
    strips = strips_of(shape, 2)
    check_memory(merged_bytes(model, strips), f"pieces={name!r} with merged tables", "use pieces='rows-and-columns'")
    return strips


def strips_of(shape: tuple[int, int], height: int) -> list[IntArray]:
    """The variables (height, k) of all strips of neighboring lines, rows and then columns, with an edge along them."""
    rows = np.arange(shape[0] * shape[1]).reshape(shape)
    strips = []
    for lines in (rows, rows.T):
        for first in range(len(lines) - height + 1):
            strip = lines[first : first + height]
            if strip.shape[1] > 1:
                strips.append(strip)
    return strips


def merged_bytes(model: MarkovRandomField, strips: list[IntArray]) -> float:
    """Memory for the merged tables of strips: one entry for all states of two neighboring nodes, link by link."""
    num_entries = 0.0
    for strip in strips:
        states = model.num_states[strip].astype(np.float64).prod(axis=0)
        num_entries += float(states[:-1] @ states[1:])
    return BYTES_PER_POTENTIAL * num_entries
