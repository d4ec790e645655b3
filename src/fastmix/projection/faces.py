"""Projections onto a bounded infinity norm as a function of the tables, with their derivative.

The projection onto a polyhedron is piecewise linear. Where it is differentiable its Jacobian is the orthogonal
projection onto the tangent space of the face that the projected tables lie on (the constraints that are active): a
symmetric matrix, whose product with a vector is a sparse least-squares problem.

The face of a projection onto ``sum of R at node i <= c`` is: the nodes whose multiplier is positive, the edges of these
whose tables are free of interactions, and for every other edge of these the contrasts that are as large as its R
allows. With the change dz_e of the bounds of these edges, the least change of a table costs
``alpha_e (dz_e - w_e)^2``, so that what is left is a problem in one number per edge, under ``sum of dz at node i = 0``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fastmix._arrays import BoolArray, FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix.errors import NotConvergedError
from fastmix.model import MarkovRandomField, check_pairwise
from fastmix.projection.contrasts import contrast_scale, contrasts
from fastmix.projection.edges import EdgeCosts, edge_costs
from fastmix.projection.euclidean import solve_inf
from fastmix.projection.solution import Goal
from fastmix.projection.tuning import FACE_ROUNDS, FACE_TOL, FACE_ZERO, ROUNDING_MARGIN

__all__ = ["Face", "nearest_with_face"]


class _FreeEdges(NamedTuple):
    """Edges whose bound is that of an active node, and positive: quadratic costs around the present bounds.

    ``curvatures`` and ``targets`` are alpha and y of the cost ``alpha (z - y)^2 + const`` of every edge.
    """

    numbers: IntArray
    curvatures: FloatArray
    targets: FloatArray


class _Tight(NamedTuple):
    """The active contrasts of one free edge: where its table is, how the table answers to them, and to its bound.

    ``onto`` (entries, entries) takes the part that the contrasts see away from a change of the table; ``gain``
    (entries,) is the change of the table per change of the bound, ``weights`` (entries,) gives w_e of a change.
    """

    place: slice
    onto: FloatArray
    gain: FloatArray
    weights: FloatArray


@dataclass(frozen=True, eq=False)
class Face:
    """The face that projected tables lie on; :meth:`product` is the Jacobian of the projection times a vector.

    Attributes
    ----------
    num_entries : int
        Entries of all tables.
    tight : list
        The active contrasts of the free edges.
    curvatures : float array
        alpha of the free edges.
    matrix : scipy.sparse.csr_array
        Active nodes by free edges.
    still : list of (slice, array)
        Tables without interactions, and what takes the interactions out of a change.
    """

    num_entries: int
    tight: list[_Tight]
    curvatures: FloatArray
    matrix: Any
    still: list[tuple[slice, FloatArray]]

    def product(self, direction: FloatArray) -> FloatArray:
        """The Jacobian, which is symmetric, times a change of the tables."""
        result = direction.copy()
        for place, onto in self.still:
            result[place] = onto @ direction[place]
        if not self.tight:
            return result
        wanted = np.array([edge.weights @ direction[edge.place] for edge in self.tight])
        change = _nearest_on_face(self.matrix, self.curvatures, wanted, 0.0)
        for edge, dz in zip(self.tight, change.tolist(), strict=True):
            result[edge.place] = edge.onto @ direction[edge.place] + dz * edge.gain
        return result


def nearest_with_face(
    model: MarkovRandomField, log_pairwise: FloatArray, norm_bound: float, clock: Clock = NO_LIMIT
) -> tuple[FloatArray, Face | None]:
    """The nearest flat tables whose R under ``range`` has infinity norm at most ``norm_bound``, and their face.

    The face is None where the tables meet the bound as they are, so that the Jacobian is the identity.

    1. Multipliers of the nodes by coordinate ascent.
    2. On the face that they tell, the bounds of the free edges solve a least-squares problem; where they leave the
       face it is told anew, some times.
    3. The tables follow from their bounds.

    Parameters
    ----------
    model : MarkovRandomField
        The graph; pairs only. Its own parameters do not matter.
    log_pairwise : float array
        Finite tables, one after another.

    Raises
    ------
    NotConvergedError
        If the face is not found.
    """
    check_pairwise(model, "a projection that is differentiated")
    costs = edge_costs(model, "range", clock, log_pairwise=log_pairwise)
    limit = norm_bound * (1.0 - 2.0 * ROUNDING_MARGIN)
    ends = model.edges
    if not len(ends) or _row_sums(model, costs.rho).max() <= limit:
        return log_pairwise.copy(), None
    # Step 1.
    solution = solve_inf(costs, Goal(limit, FACE_TOL, 100_000, clock=clock))
    loads = solution.multipliers[ends].sum(axis=1)
    size = max(float(costs.rho.max()), 1e-300)
    # Step 2.
    z = solution.z
    active = solution.multipliers > FACE_ZERO * float(loads.max())
    for _ in range(FACE_ROUNDS):
        free, matrix = _free_edges(costs, active, z, FACE_ZERO * size)
        found = z.copy()
        found[free.numbers] = _nearest_on_face(matrix, free.curvatures, free.targets, limit)
        again, _ = _free_edges(costs, active, found, FACE_ZERO * size)
        is_settled = np.array_equal(again.numbers, free.numbers) and np.allclose(again.targets, free.targets)
        z = np.clip(found, 0.0, costs.rho)
        exceeds = (_row_sums(model, z) > limit * (1.0 + FACE_ZERO)) & ~active
        if exceeds.any():
            active |= exceeds
            is_settled = False
        if is_settled:
            break
    else:
        raise NotConvergedError("the face of a projection was not found: move the parameters a little")
    # Step 3.
    is_loaded: BoolArray = np.asarray(active[ends].any(axis=1))
    is_zero = is_loaded.copy()
    is_zero[free.numbers] = False
    z[~is_loaded] = costs.rho[~is_loaded]
    z[is_zero] = 0.0
    z *= min(1.0, limit / float(_row_sums(model, z).max()))  # on the safe side of rounding
    tables = costs.tables(z)
    return tables, _face_of(model, tables, z, free, matrix, np.flatnonzero(is_zero))


def _row_sums(model: MarkovRandomField, z: FloatArray) -> FloatArray:
    """Sums of R at every node."""
    first, second = model.edges.T
    n = model.num_variables
    return np.asarray(np.bincount(first, z, n) + np.bincount(second, z, n))


def _free_edges(costs: EdgeCosts, active: BoolArray, z: FloatArray, least: float) -> tuple[_FreeEdges, Any]:
    """The free edges of active nodes, whose bounds are above ``least``; and the active nodes by these edges."""
    from scipy.sparse import csr_array

    ends = costs.model.edges
    numbers = np.flatnonzero(active[ends].any(axis=1) & (z > least))
    curvatures = np.empty(len(numbers))
    targets = np.empty(len(numbers))
    for k, e in enumerate(numbers.tolist()):
        knots = slice(int(costs.start[e]), int(costs.start[e + 1]))
        own_z = costs.z[knots]
        own_mu = costs.mu[knots]
        # Knots descend in z: the piece is that between the last knot above and the next.
        piece = int(np.clip(np.searchsorted(-own_z, -z[e], side="right") - 1, 0, len(own_z) - 2))
        curvature = 0.5 * (own_mu[piece + 1] - own_mu[piece]) / (own_z[piece] - own_z[piece + 1])
        curvatures[k] = curvature
        targets[k] = own_z[piece] + 0.5 * own_mu[piece] / curvature
    row_of = np.cumsum(active) - 1
    rows = ends[numbers].reshape(-1)
    cols = np.repeat(np.arange(len(numbers)), 2)
    used = active[rows]
    shape = (int(active.sum()), len(numbers))
    matrix = csr_array((np.ones(int(used.sum())), (row_of[rows[used]], cols[used])), shape=shape)
    return _FreeEdges(numbers, curvatures, targets), matrix


def _nearest_on_face(matrix: Any, curvatures: FloatArray, targets: FloatArray, total: float) -> FloatArray:
    """The minimum of ``sum of alpha (z - y)^2`` where the sum of z at every active node is ``total``."""
    from scipy.sparse.linalg import lsmr

    if not len(curvatures):
        return targets
    roots = np.sqrt(curvatures)
    scaled = matrix.multiply(1.0 / roots).tocsr()
    start = roots * targets
    residual = total - scaled @ start
    change = lsmr(scaled, residual, atol=1e-15, btol=1e-15, conlim=0.0, maxiter=20 * max(scaled.shape) + 100)[0]
    return np.asarray((start + change) / roots)


def _face_of(
    model: MarkovRandomField, tables: FloatArray, z: FloatArray, free: _FreeEdges, matrix: Any, zero: IntArray
) -> Face:
    """The face that tables with bounds z lie on; ``zero`` are the edges without interactions."""
    offsets = model.pairwise_offsets
    states = model.num_states
    still = []
    for e in zero.tolist():
        num_rows, num_cols = states[model.edges[e]].tolist()
        rows = np.eye(num_rows) - 1.0 / num_rows
        cols = np.eye(num_cols) - 1.0 / num_cols
        still.append((slice(int(offsets[e]), int(offsets[e + 1])), np.eye(num_rows * num_cols) - np.kron(rows, cols)))
    tight = []
    curvatures = []
    for e in free.numbers.tolist():
        num_rows, num_cols = states[model.edges[e]].tolist()
        place = slice(int(offsets[e]), int(offsets[e + 1]))
        edge, curvature = _tight_contrasts(tables[place], int(num_rows), int(num_cols), float(z[e]), place)
        tight.append(edge)
        curvatures.append(curvature)
    return Face(len(tables), tight, np.array(curvatures), matrix, still)


def _tight_contrasts(table: FloatArray, num_rows: int, num_cols: int, z: float, place: slice) -> tuple[_Tight, float]:
    """The contrasts of a table that are as large as its bound z allows, and alpha of its cost."""
    positions, signs = contrasts(num_rows, num_cols, "range")
    values = (table[positions] * signs).sum(axis=1)
    bound = contrast_scale("range") * z
    numbers = np.flatnonzero(np.abs(values) >= bound * (1.0 - FACE_ZERO) - FACE_ZERO * np.abs(table).max())
    design = np.zeros((len(numbers), len(table)))
    np.add.at(design, (np.arange(len(numbers))[:, None], positions[numbers]), signs[numbers])
    # A change dT of the table and dz of the bound stay on the face where design @ dT = steps * dz.
    steps = np.sign(values[numbers]) * contrast_scale("range")
    inverse = np.linalg.pinv(design, rcond=1e-9)
    gain = inverse @ steps
    curvature = float(gain @ gain)
    onto = np.eye(len(table)) - inverse @ design
    return _Tight(place, onto, gain, gain / curvature), curvature
