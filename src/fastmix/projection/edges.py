"""What each edge costs: the squared distance to the nearest table with a given bound on the dependency.

For edge e with table psi, ``f_e(z) = min ||T - psi||^2`` over tables with ``R_e(T) <= z`` is convex, piecewise
quadratic and zero from ``rho_e = R_e(psi)`` on. Its slope ``mu = -f_e'(z)`` is piecewise linear, so a few knots
(mu, z, f) describe it completely; they are found once per edge. For binary tables under ``range`` there is one piece:
``f(z) = 4 (rho - z)^2``.

Tables of many states take seconds each. Where there is no time for that, the interaction of a table is only scaled: R
shrinks in proportion, the cost is ``(1 - z / rho)^2 ||interaction||^2``, and what comes out is within the bound, if not
the closest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fastmix._clock import NO_LIMIT, Clock
from fastmix.errors import ResourceError, UnfitMethodError
from fastmix.model import MarkovRandomField
from fastmix.model.build import offsets_of
from fastmix.theory.dependency import edge_dependencies

__all__ = ["EdgeCosts", "edge_costs"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

# Contrasts of one table beyond which its path is not attempted: 25 x 25 states have 90,000 under range.
_MAX_CONTRASTS = 100_000

_ISING = np.array([1.0, -1.0, -1.0, 1.0])


@dataclass(frozen=True, eq=False)
class EdgeCosts:
    """The functions f_e of all edges, in knots with ascending mu and descending z.

    Attributes
    ----------
    model : MarkovRandomField
    bound : str
    rho : float array (m,)
        Dependency of every edge before projection, the larger of both directions.
    start : int array (m + 1,)
        Knots of edge e are ``start[e]:start[e + 1]``; the first has mu = 0 and z = rho, the last z = 0.
    mu, z, f : float array
        Slope, bound and cost at the knots.
    quadratic : bool
        Whether every edge is ``4 (rho - z)^2``.
    scaled : bool array (m,), or None
        Edges whose tables are only scaled; None if there are none.
    clock : Clock
        After whose limit paths are no longer followed.
    """

    model: MarkovRandomField
    bound: str
    rho: FloatArray
    start: IntArray
    mu: FloatArray
    z: FloatArray
    f: FloatArray
    quadratic: bool
    scaled: NDArray[np.bool_] | None = None
    clock: Clock = NO_LIMIT

    def cost(self, z: FloatArray) -> float:
        """Total squared distance when edge e is held to ``z[e]``."""
        if self.quadratic:
            return float(np.sum(4.0 * np.maximum(self.rho - z, 0.0) ** 2))
        from fastmix.projection import kernels

        return float(kernels.total_cost(self.start, self.mu, self.z, self.f, z))

    def tables(self, z: FloatArray) -> FloatArray:
        """Flat nearest tables with ``R_e <= z[e]``; tables that meet their bound come back bit by bit."""
        model = self.model
        result = model.log_pairwise.copy()
        if self.quadratic:
            tables = result.reshape(-1, 4)
            contrast = tables @ _ISING
            change = np.copysign(np.maximum(self.rho - z, 0.0), contrast)
            tables -= np.multiply.outer(change, _ISING)
            return result
        scale = _scale(self.bound)
        for e in np.flatnonzero(z < self.rho).tolist():
            i, j = model.edges[e].tolist()
            position, sign = contrasts(int(model.num_states[i]), int(model.num_states[j]), self.bound)
            part = slice(model.pairwise_offsets[e], model.pairwise_offsets[e + 1])
            if (self.scaled is not None and self.scaled[e]) or self.clock.past():
                result[part] -= (1.0 - z[e] / self.rho[e]) * _interaction(model, e, self.bound)
                continue
            followed = _follow(model.log_pairwise[part].copy(), position, sign, scale * z[e])
            if followed is None:
                raise ResourceError(_lost(i, j))
            result[part] = followed[2]
        return result


def edge_costs(model: MarkovRandomField, bound: Literal["range", "linf"], clock: Clock = NO_LIMIT) -> EdgeCosts:
    """The cost functions of all edges of a model under ``range`` or ``linf``, both directions bounded.

    After half of the time that is left the tables that are left are only scaled; the other half is for following the
    paths once more, to the bounds that a projection finds.

    Raises
    ------
    UnfitMethodError
        If a table has -inf entries, which no finite change can bound.
    ResourceError
        If a table has too many states for its path to be followed.

    Notes
    -----
    Microseconds per edge up to 5 states, about 10 ms for 11 x 11 tables, seconds for 21 x 21.
    """
    check_finite(model)
    m = model.num_edges
    if bound == "range" and m and (model.num_states[model.edges] == 2).all():
        rho = np.abs(model.log_pairwise.reshape(-1, 4) @ _ISING) / 4.0
        knots = np.zeros((3, m, 2))
        knots[0, :, 1], knots[1, :, 0], knots[2, :, 1] = 8.0 * rho, rho, 4.0 * rho**2
        mu, z, f = knots.reshape(3, -1)
        return EdgeCosts(model, bound, rho, 2 * np.arange(m + 1), mu, z, f, quadratic=True)
    scale = _scale(bound)
    mus, zs = [], []
    counts = np.zeros(m, dtype=np.int64)
    scaled = np.zeros(m, dtype=bool)
    rho_of: list[float] | None = None
    first_half = clock.part(0.5)
    for e, (i, j) in enumerate(model.edges.tolist()):
        if first_half.past():
            if rho_of is None:
                rho_of = edge_dependencies(model, bound=bound).max(axis=1).tolist()
            scaled[e] = True
            knot_mu, knot_z = _scaled_knots(model, e, bound, rho_of[e])
            mus.append(knot_mu)
            zs.append(knot_z)
            counts[e] = len(knot_z)
            continue
        position, sign = contrasts(int(model.num_states[i]), int(model.num_states[j]), bound)
        values = model.log_pairwise[model.pairwise_offsets[e] : model.pairwise_offsets[e + 1]].copy()
        if not len(position):  # a variable with one state depends on nothing
            mus.append(np.zeros(1))
            zs.append(np.zeros(1))
            counts[e] = 1
            continue
        followed = _follow(values, position, sign, 0.0)
        if followed is None:
            raise ResourceError(_lost(i, j))
        knot_t, knot_weight, _ = followed
        count = len(knot_t)
        knot_t[count - 1] = 0.0 if count > 1 else knot_t[count - 1]
        mus.append(2.0 * scale * knot_weight[:count])
        zs.append(knot_t[:count] / scale)
        counts[e] = count
    start = offsets_of(counts)
    mu, z = (np.concatenate(parts) if parts else np.zeros(0) for parts in (mus, zs))
    # The slope is linear between knots, so the trapezium rule is exact.
    pieces = np.zeros(len(mu))
    pieces[1:] = 0.5 * (mu[1:] + mu[:-1]) * (z[:-1] - z[1:])
    pieces[start[:-1]] = 0.0
    total = np.cumsum(pieces)
    f = total - np.repeat(total[start[:-1]] if m else np.zeros(0), counts)
    return EdgeCosts(
        model, bound, z[start[:-1]] if m else np.zeros(0), start, mu, z, f, quadratic=False,
        scaled=scaled if scaled.any() else None, clock=clock,
    )  # fmt: skip


def _interaction(model: MarkovRandomField, e: int, bound: str) -> FloatArray:
    """What a bound limits of a table, flat: all but terms of one variable under ``range``, all but the mean else."""
    i, j = model.edges[e].tolist()
    part = slice(model.pairwise_offsets[e], model.pairwise_offsets[e + 1])
    table = model.log_pairwise[part].reshape(model.num_states[i], model.num_states[j])
    rest = table - table.mean()
    if bound == "range":
        rest -= rest.mean(axis=0)
        rest -= rest.mean(axis=1, keepdims=True)
    return rest.reshape(-1)


def _scaled_knots(model: MarkovRandomField, e: int, bound: str, rho: float) -> tuple[FloatArray, FloatArray]:
    """Slopes and bounds at both ends of ``(1 - z / rho)^2 ||interaction||^2``; one knot if there is nothing to do."""
    if not rho > 0.0:
        return np.zeros(1), np.zeros(1)
    rest = _interaction(model, e, bound)
    return np.array([0.0, 2.0 * float(rest @ rest) / rho]), np.array([rho, 0.0])


def _follow(
    values: FloatArray, position: IntArray, sign: FloatArray, t_stop: float
) -> tuple[FloatArray, FloatArray, FloatArray] | None:
    """Knots, weights and the table at ``t_stop`` of the path of one table; None if it was lost.

    Rounding can make contrasts that are nearly tied enter and leave in turn for ever. The path is then followed for a
    table that differs by as little as breaks the ties: by at most 1e-7 of its largest entry, and as a rule by 1e-11.
    """
    from fastmix.projection import edge_kernels

    room = 8 * len(values) + 4 * len(position) + 50
    knot_t, knot_weight, table = np.empty(room), np.empty(room), np.empty(len(values))
    for size in (0.0, 1e-11, 1e-10, 1e-9, 1e-8, 1e-7):
        noise = np.random.default_rng(1).uniform(-1.0, 1.0, len(values)) if size else 0.0
        moved = values + size * np.abs(values).max(initial=0.0) * noise
        count = edge_kernels.table_path(moved, position, sign, t_stop, knot_t, knot_weight, table)
        if count >= 0:
            return knot_t[:count], knot_weight[:count], table
    return None


def _lost(i: int, j: int) -> str:
    return f"the path of the table of edge ({i}, {j}) could not be followed; use the paper's dual"


def _scale(bound: str) -> float:
    """R is at most z when every contrast is at most this times z."""
    return 4.0 if bound == "range" else 2.0


@lru_cache(maxsize=64)
def contrasts(num_rows: int, num_cols: int, bound: str) -> tuple[IntArray, FloatArray]:
    """Positions and signs (M, 4) of the contrasts that a bound limits in a table; unused places have sign 0.

    ``range``: T[r, a] - T[r, b] - T[s, a] + T[s, b]; ``linf``: T[r, a] - T[r, b] and T[r, a] - T[s, a].
    """
    row_pairs, col_pairs = list(combinations(range(num_rows), 2)), list(combinations(range(num_cols), 2))
    number = (
        len(row_pairs) * len(col_pairs) if bound == "range" else num_rows * len(col_pairs) + num_cols * len(row_pairs)
    )
    if number > _MAX_CONTRASTS:
        raise ResourceError(
            f"a table of {num_rows} x {num_cols} states has {number:,} contrasts under {bound}, more than the "
            f"{_MAX_CONTRASTS:,} that a projection follows; use bound='linf', or merge states"
        )
    position: list[tuple[int, int, int, int]] = []
    if bound == "range":
        position += [
            (r * num_cols + a, r * num_cols + b, s * num_cols + a, s * num_cols + b)
            for r, s in row_pairs
            for a, b in col_pairs
        ]
        sign = np.tile([1.0, -1.0, -1.0, 1.0], (len(position), 1))
    else:
        position += [(r * num_cols + a, r * num_cols + b, 0, 0) for r in range(num_rows) for a, b in col_pairs]
        position += [(r * num_cols + a, s * num_cols + a, 0, 0) for a in range(num_cols) for r, s in row_pairs]
        sign = np.tile([1.0, -1.0, 0.0, 0.0], (len(position), 1))
    return np.array(position, dtype=np.int64).reshape(-1, 4), sign.reshape(-1, 4)


def check_finite(model: MarkovRandomField) -> None:
    """Refuse a model with a table that forbids a pair of states, naming the edge."""
    if model.log_pairwise.size and model.log_pairwise.min() == -np.inf:
        entry = int(np.flatnonzero(model.log_pairwise == -np.inf)[0])
        e = int(np.searchsorted(model.pairwise_offsets, entry, side="right")) - 1
        i, j = model.edges[e].tolist()
        raise UnfitMethodError(
            f"projection needs finite tables, but edge ({i}, {j}) forbids a pair of states (-inf): no finite change "
            "bounds its dependency; soften the table, or certify the model with bound='sigmoid'"
        )
