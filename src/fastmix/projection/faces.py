"""Projections onto a bounded infinity norm as functions of the tables, with their derivatives, many rows at once.

The projection onto a polyhedron is piecewise linear. Where it is differentiable its Jacobian is the orthogonal
projection onto the tangent space of the face that the projected tables lie on (the constraints that are active): a
symmetric matrix, whose product with a vector is a sparse least-squares problem.

The face of a projection onto ``sum of R at node i <= c`` is: the nodes whose multiplier is positive, the edges of these
whose tables are free of interactions, and for every other edge of these the contrasts that are as large as its R
allows. With the change dz_e of the bounds of these edges, the least change of a table costs
``alpha_e (dz_e - w_e)^2``, so that what is left is a problem in one number per edge, under ``sum of dz at node i = 0``.

Rows of tables lie side by side: they are the tables of one model that has a copy of the graph for every row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fastmix._arrays import BoolArray, FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix._memory import check_memory
from fastmix.errors import NotConvergedError
from fastmix.model import MarkovRandomField, check_pairwise
from fastmix.projection.contrasts import contrast_scale, contrasts, count_contrasts, groups
from fastmix.projection.edges import EdgeCosts, edge_costs
from fastmix.projection.euclidean_kernels import ascend_rows
from fastmix.projection.node_sums import NodeSums
from fastmix.projection.tuning import (
    FACE_PASSES,
    FACE_ROUNDS,
    FACE_TOL,
    FACE_ZERO,
    INF_RELAXATION,
    PASSES_PER_CHECK,
    ROUNDING_MARGIN,
)

__all__ = ["Face", "nearest_with_face"]

# The name under which the model with a copy of a graph for every row is kept with its structure.
_KEPT = "copies_of_rows"


class _FreeEdges(NamedTuple):
    """Edges whose bound is that of an active node, and positive: quadratic costs around the present bounds.

    ``pieces`` are the knots above the bounds; ``curvatures`` and ``targets`` are alpha and y of the cost
    ``alpha (z - y)^2 + const`` of every edge.
    """

    numbers: IntArray
    pieces: IntArray
    curvatures: FloatArray
    targets: FloatArray


class _Tight(NamedTuple):
    """The active contrasts of free edges (g,) of one shape: how their tables answer to them, and to their bounds.

    ``numbers`` (g,) are places among the free edges, ``positions`` (g, entries) those of the tables. ``corners`` and
    ``signs`` (g, K, 4) are the contrasts, of which ``inverse`` (g, entries, K) is the pseudo-inverse: it takes what
    they see of a change away from it. ``gain`` (g, entries) is the change of a table per change of its bound, and
    ``weights`` (g, entries) gives w_e of a change.
    """

    numbers: IntArray
    positions: IntArray
    corners: IntArray
    signs: FloatArray
    inverse: FloatArray
    gain: FloatArray
    weights: FloatArray


@dataclass(frozen=True, eq=False)
class Face:
    """The faces that rows of projected tables lie on; :meth:`product` is the Jacobian times a change.

    Attributes
    ----------
    tight : list
        The active contrasts of the free edges, by shapes of tables.
    sums : NodeSums
        The active nodes, and the free edges with alpha.
    still : list of (array (g, entries), array (entries, entries))
        Positions of tables without interactions, and what takes the interactions out of a change of one.
    """

    tight: list[_Tight]
    sums: NodeSums
    still: list[tuple[IntArray, FloatArray]]

    def product(self, directions: FloatArray) -> FloatArray:
        """The Jacobians, which are symmetric, times changes (N, entries) of the tables, row by row."""
        changes = directions.reshape(-1)
        result = changes.copy()
        for positions, onto in self.still:
            result[positions] = changes[positions] @ onto
        wanted = np.zeros(len(self.sums.ends))
        for group in self.tight:
            wanted[group.numbers] = (group.weights * changes[group.positions]).sum(axis=1)
        bounds = self.sums.nearest(wanted, 0.0)
        for group in self.tight:
            seen = (changes[group.corners] * group.signs).sum(axis=2)
            unseen = changes[group.positions] - np.matmul(group.inverse, seen[:, :, None])[:, :, 0]
            result[group.positions] = unseen + bounds[group.numbers][:, None] * group.gain
        return result.reshape(directions.shape)


def nearest_with_face(
    model: MarkovRandomField, log_pairwise: FloatArray, norm_bound: float, clock: Clock = NO_LIMIT
) -> tuple[FloatArray, Face | None]:
    """The nearest rows (N, entries) of flat tables whose R under ``range`` has infinity norm at most ``norm_bound``.

    The second is the face that they lie on; None where all rows meet the bound as they are, so that the Jacobian is the
    identity.

    1. Multipliers of the nodes by coordinate ascent, row by row.
    2. On the face that they tell, the bounds of the free edges solve a least-squares problem; where they leave the
       face it is told anew, some times.
    3. The tables follow from their bounds.

    Parameters
    ----------
    model : MarkovRandomField
        The graph; pairs only. Its own parameters do not matter.
    log_pairwise : float array (N, entries)
        Finite tables, one after another.

    Raises
    ------
    NotConvergedError
        If the face of a row is not found.
    """
    check_pairwise(model, "a projection that is differentiated")
    limit = norm_bound * (1.0 - 2.0 * ROUNDING_MARGIN)
    if not model.num_edges or not len(log_pairwise):
        return log_pairwise.copy(), None
    costs = edge_costs(_copies(model, len(log_pairwise)), "range", clock, log_pairwise=log_pairwise.reshape(-1))
    graph = _Rows(costs, len(log_pairwise), limit)
    if graph.sums(costs.rho).max() <= limit:
        return log_pairwise.copy(), None
    # Step 1.
    multipliers, z = _ascend(model, costs, len(log_pairwise), limit)
    # Step 2.
    active, z = graph.settle(multipliers, z)
    free = graph.free_edges(active, z)
    # Step 3.
    is_loaded: BoolArray = np.asarray(active[graph.ends].any(axis=1))
    is_zero = is_loaded.copy()
    is_zero[free.numbers] = False
    z[~is_loaded] = costs.rho[~is_loaded]
    z[is_zero] = 0.0
    largest = graph.sums(z).reshape(graph.num_rows, -1).max(axis=1)
    shares = np.minimum(1.0, limit / np.maximum(largest, limit))  # on the safe side of rounding
    z *= np.repeat(shares, model.num_edges)
    tables = costs.tables(z)
    return tables.reshape(log_pairwise.shape), _face_of(costs, tables, z, free, active, is_zero)


def _copies(model: MarkovRandomField, num_rows: int) -> MarkovRandomField:
    """The model that has a copy of a graph for every row, the last of which is kept with its structure."""
    structure = model.structure
    kept: MarkovRandomField | None = structure.__dict__.get(_KEPT)
    if kept is None or kept.num_edges != num_rows * structure.num_edges:
        shifts = structure.num_variables * np.arange(num_rows)
        unary = np.zeros(num_rows * int(structure.unary_offsets[-1]))
        tables = np.zeros(num_rows * int(structure.pairwise_offsets[-1]))
        edges = (structure.edges + shifts[:, None, None]).reshape(-1, 2)
        kept = MarkovRandomField(np.tile(structure.num_states, num_rows), unary, edges, tables)
        structure.__dict__[_KEPT] = kept
    return kept


def _ascend(model: MarkovRandomField, costs: EdgeCosts, num_rows: int, limit: float) -> tuple[FloatArray, FloatArray]:
    """Multipliers (N n,) of the nodes and bounds (N m,) of the edges, each row to a small gap of its own."""
    graph = model.adjacency
    m = model.num_edges
    multipliers = np.zeros((num_rows, model.num_variables))
    z = np.empty((num_rows, m))
    steepest = np.empty((num_rows, 0))
    if costs.curvature:
        steepest = 2.0 * costs.curvature * costs.rho.reshape(num_rows, m)[:, graph.edge_ids]
    items = (costs.start[:-1].reshape(num_rows, m), costs.start[1:].reshape(num_rows, m))
    goal = (limit, limit * (1.0 - ROUNDING_MARGIN), FACE_TOL, 2.0 * costs.curvature)
    effort = (PASSES_PER_CHECK, FACE_PASSES // PASSES_PER_CHECK, INF_RELAXATION)
    ascend_rows(
        (graph.indptr, graph.neighbors), (graph.edge_ids, np.ones(len(graph.edge_ids))), items,
        (costs.mu, costs.z, costs.f), steepest, multipliers, z, goal, effort,
    )  # fmt: skip
    return multipliers.reshape(-1), z.reshape(-1)


class _Rows:
    """Graphs side by side, one for every row: sums at their nodes, and the faces that bounds of their edges tell."""

    def __init__(self, costs: EdgeCosts, num_rows: int, limit: float) -> None:
        model = costs.model
        self.costs = costs
        self.num_rows = num_rows
        self.limit = limit
        self.num_nodes = model.num_variables
        self.ends = model.edges
        #: Bounds below which an edge of a row is taken to be without interactions.
        self.least = np.repeat(FACE_ZERO * self._largest(costs.rho), model.num_edges // num_rows)

    def sums(self, z: FloatArray) -> FloatArray:
        """Sums of R at every node."""
        first, second = self.ends.T
        return np.asarray(np.bincount(first, z, self.num_nodes) + np.bincount(second, z, self.num_nodes))

    def settle(self, multipliers: FloatArray, z: FloatArray) -> tuple[BoolArray, FloatArray]:
        """The active nodes, and the bounds that solve the problem on the face of every row."""
        n = self.num_nodes // self.num_rows
        m = len(self.ends) // self.num_rows
        loads = multipliers[self.ends].sum(axis=1)
        active = multipliers > np.repeat(FACE_ZERO * self._largest(loads), n)
        is_open = np.ones(self.num_rows, dtype=bool)
        for _ in range(FACE_ROUNDS):
            chosen = active & np.repeat(is_open, n)
            free = self.free_edges(chosen, z)
            found = z.copy()
            found[free.numbers] = NodeSums(chosen, self.ends[free.numbers], free.curvatures).nearest(
                free.targets, self.limit
            )
            again = self.free_edges(chosen, found)
            z = np.clip(found, 0.0, self.costs.rho)
            exceeds = (self.sums(z) > self.limit * (1.0 + FACE_ZERO)) & ~active & np.repeat(is_open, n)
            active |= exceeds
            # A row is settled where its free edges are the same, on the same pieces, and no node joins.
            pieces = np.full((2, len(z)), -1)
            pieces[0, free.numbers] = free.pieces
            pieces[1, again.numbers] = again.pieces
            moved = (pieces[0] != pieces[1]).reshape(self.num_rows, m).any(axis=1)
            is_open &= moved | exceeds.reshape(self.num_rows, n).any(axis=1)
            if not is_open.any():
                return active, z
        row = int(np.flatnonzero(is_open)[0])
        raise NotConvergedError(f"the face of the projection of row {row} was not found: move the parameters a little")

    def free_edges(self, active: BoolArray, z: FloatArray) -> _FreeEdges:
        """The free edges of active nodes, and the pieces of their costs that their bounds lie on."""
        costs = self.costs
        numbers = np.flatnonzero(active[self.ends].any(axis=1) & (z > self.least))
        # Knots descend in z: the piece is that between the last knot above and the next.
        counts = np.diff(costs.start)
        is_above = costs.z >= np.repeat(z, counts)
        last_above = np.add.reduceat(is_above, costs.start[:-1], dtype=np.int64) - 1
        place = np.clip(last_above[numbers], 0, np.maximum(counts[numbers] - 2, 0))
        knots = costs.start[numbers] + place
        following = knots + 1
        curvatures = 0.5 * (costs.mu[following] - costs.mu[knots]) / (costs.z[knots] - costs.z[following])
        targets = costs.z[knots] + 0.5 * costs.mu[knots] / curvatures
        return _FreeEdges(numbers, place, curvatures, targets)

    def _largest(self, values: FloatArray) -> FloatArray:
        """The largest of the values of every row, by edge, and at least a number that can be divided by."""
        return np.maximum(values.reshape(self.num_rows, -1).max(axis=1), 1e-300)


def _face_of(
    costs: EdgeCosts, tables: FloatArray, z: FloatArray, free: _FreeEdges, active: BoolArray, is_zero: BoolArray
) -> Face:
    """The face that tables with bounds z lie on, some of them without interactions."""
    model = costs.model
    still = []
    for num_rows, num_cols, members in model.structure.table_shapes:
        edges = members[is_zero[members]]
        rows = np.eye(num_rows) - 1.0 / num_rows
        cols = np.eye(num_cols) - 1.0 / num_cols
        positions = model.pairwise_offsets[edges][:, None] + np.arange(num_rows * num_cols)
        still.append((positions, np.eye(num_rows * num_cols) - np.kron(rows, cols)))
    is_free = np.zeros(len(z), dtype=bool)
    is_free[free.numbers] = True
    places = np.cumsum(is_free) - 1
    curvatures = np.empty(len(free.numbers))
    tight = []
    for group in groups(model, "range", is_free):
        found = _tight_contrasts(tables[group.positions], group.shape, z[group.edges], group.positions)
        curvatures[places[group.edges]] = (found.gain**2).sum(axis=1)
        tight.append(found._replace(numbers=places[group.edges]))
    return Face(tight, NodeSums(active, model.edges[free.numbers], curvatures), still)


def _tight_contrasts(tables: FloatArray, shape: tuple[int, int], z: FloatArray, positions: IntArray) -> _Tight:
    """The contrasts of tables (g, entries) of one shape that are as large as their bounds z allow."""
    corners, signs = contrasts(*shape, "range")
    values = (tables[:, corners] * signs).sum(axis=2)
    bounds = contrast_scale("range") * z
    slack = FACE_ZERO * (bounds + np.abs(tables).max(axis=1))
    is_tight = np.abs(values) >= (bounds - slack)[:, None]
    # The tight ones of every table, and others with the sign 0 where it has fewer of them.
    most = int(is_tight.sum(axis=1).max())
    chosen = np.argsort(~is_tight, axis=1, kind="stable")[:, :most]
    used = np.take_along_axis(is_tight, chosen, axis=1)
    num_entries = tables.shape[1]
    check_memory(8.0 * tables.size * most, f"num_states {shape}", "project fewer rows at a time")
    own_signs = signs[chosen] * used[:, :, None]
    design = np.zeros((len(tables), most, num_entries))
    np.put_along_axis(design, corners[chosen], own_signs, axis=2)
    # A change dT of a table and dz of its bound stay on the face where design @ dT = steps * dz.
    steps = np.sign(np.take_along_axis(values, chosen, axis=1)) * used * contrast_scale("range")
    inverse: FloatArray = design.swapaxes(1, 2) / 4.0
    if count_contrasts(*shape, "range") > 1:
        inverse = np.asarray(np.linalg.pinv(design, rcond=1e-9), dtype=np.float64)
    gain = np.matmul(inverse, steps[:, :, None])[:, :, 0]
    weights = gain / (gain**2).sum(axis=1, keepdims=True)
    in_all = positions[:, 0][:, None, None] + corners[chosen]
    return _Tight(np.zeros(0, dtype=np.int64), positions, in_all, own_signs, inverse, gain, weights)
