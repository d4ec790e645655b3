"""Paths of patterns that edges share: one path serves every edge that uses the pattern, whatever its weight.

With ``f_P(z) = min ||S - P||^2`` subject to ``R(S) <= z`` and its minimizer ``S_P(z)``, the table ``w P`` costs
``w^2 f_P(z / |w|)``, and its nearest table is ``w S_P(z / |w|)``: R grows in proportion to a table. Between two
breakpoints of the path S_P is linear, so that a nearest table is a mixture of two neighboring breakpoints. The
projected model holds the breakpoints and two weights per edge, and is as small as the model itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import Clock
from fastmix.errors import ResourceError
from fastmix.model.flat import offsets_of
from fastmix.model.shared import SharedTables, TableUse
from fastmix.projection.contrasts import Bound, contrast_scale, contrasts, count_contrasts, count_knots
from fastmix.projection.edge_kernels import table_path
from fastmix.projection.tuning import RECORDED_ENTRIES, RESTART_NOISE, SAME_CURVATURE

__all__ = ["SharedPaths", "follow_patterns"]


@dataclass(frozen=True, eq=False)
class SharedPaths:
    """The paths of all patterns of some shared tables.

    Attributes
    ----------
    tables : SharedTables
        The tables that the paths begin at.
    start : int array (p + 1,)
        The first knot of every pattern.
    mu, z, f : float arrays (knots,)
        Slope, bound and cost at the knots of the patterns.
    breakpoints : float array (entries of all knots,)
        The nearest table at every knot, one after another; that at the first knot of a pattern is the pattern.
    """

    tables: SharedTables
    start: IntArray
    mu: FloatArray
    z: FloatArray
    f: FloatArray
    breakpoints: FloatArray

    @property
    def scales(self) -> FloatArray:
        """The absolute weight of every edge."""
        return np.abs(self.tables.weights)

    @property
    def rho(self) -> FloatArray:
        """The dependency of every edge (m,) before the projection."""
        return self.scales * self.z[self.start[:-1]][self.tables.use.of_edge]

    @property
    def curvature(self) -> float:
        """The number k for which every edge costs ``k (rho - z)^2``; 0 where there is none.

        It is the same for all weights. Potts tables, and all tables of two states, have one.
        """
        first = self.start[:-1]
        last = self.start[1:] - 1
        if not len(first) or (last - first > 1).any():
            return 0.0
        limited = self.z[first] > 0.0
        curvatures = self.f[last[limited]] / self.z[first[limited]] ** 2
        if not len(curvatures) or np.ptp(curvatures) > SAME_CURVATURE * curvatures.max():
            return 0.0
        return float(curvatures.max())

    def nearest(self, z: FloatArray) -> SharedTables:
        """The nearest tables with ``R_e <= z[e]``; those that meet their bound come back bit by bit."""
        use = self.tables.use
        weights = self.tables.weights
        number = self.start[:-1][use.of_edge]  # of the breakpoint, beside the one after it
        share = np.zeros(use.num_edges)
        moved = np.flatnonzero(z < self.rho)
        moved = moved[np.argsort(use.of_edge[moved], kind="stable")]
        patterns, begins = np.unique(use.of_edge[moved], return_index=True)
        for k, edges in zip(patterns.tolist(), np.split(moved, begins[1:]), strict=False):
            bounds = z[edges] / np.abs(weights[edges])
            first, end = self.start[k : k + 2]
            knots = self.z[first:end]
            if len(knots) == 1:
                continue
            # Knots descend; the last piece goes on to whatever is below its end.
            piece = np.clip(np.searchsorted(-knots, -bounds, side="right") - 1, 0, len(knots) - 2)
            number[edges] = first + piece
            share[edges] = np.clip((knots[piece] - bounds) / (knots[piece] - knots[piece + 1]), 0.0, 1.0)
        shapes = np.repeat(use.shapes, np.diff(self.start), axis=0)
        new_use = TableUse(shapes, number.astype(np.int32), use.turned)
        return SharedTables(new_use, self.breakpoints, weights * (1.0 - share) + 0.0, weights * share + 0.0)


def follow_patterns(tables: SharedTables, dependency: Bound, clock: Clock) -> SharedPaths:
    """The paths of all patterns, in both directions of the dependency; an OutOfTimeError where there is no time."""
    scale = contrast_scale(dependency)
    counts = []
    slopes = [np.zeros(0)]
    bounds = [np.zeros(0)]
    costs = [np.zeros(0)]
    breakpoints = [np.zeros(0)]
    for k in range(tables.use.num_patterns):
        clock.check()
        knot_t, knot_weight, knot_tables = _follow(tables.pattern(k), dependency, k)
        mu = 2.0 * scale * knot_weight
        z = knot_t / scale
        if len(z) == 1:  # a path of one knot ends at 0, but for rounding
            z[:] = 0.0
        # The slope is linear between knots, so the trapezium rule is exact.
        pieces = 0.5 * (mu[1:] + mu[:-1]) * (z[:-1] - z[1:])
        counts.append(len(z))
        slopes.append(mu)
        bounds.append(z)
        costs.append(np.append(0.0, np.cumsum(pieces)))
        breakpoints.append(knot_tables.reshape(-1))
    return SharedPaths(
        tables,
        offsets_of(np.array(counts, dtype=np.int64)),
        np.concatenate(slopes),
        np.concatenate(bounds),
        np.concatenate(costs),
        np.concatenate(breakpoints) + 0.0,
    )


def _follow(pattern: FloatArray, dependency: Bound, number: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Bounds t, sums of weights and tables at the knots of the path of a pattern, down to t = 0.

    Ties are broken as for tables of single edges, by a table that differs by a few roundings.
    """
    num_rows, num_cols = pattern.shape
    if count_contrasts(num_rows, num_cols, dependency) == 0:  # a variable with one state depends on nothing
        return np.zeros(1), np.zeros(1), pattern.reshape(1, -1)
    position, sign = contrasts(num_rows, num_cols, dependency)
    values = np.ascontiguousarray(pattern).reshape(-1)
    most = count_knots(len(values), len(position))
    knot_t = np.empty(most)
    knot_weight = np.empty(most)
    table = np.empty(len(values))
    noise = np.random.default_rng(1).uniform(-1.0, 1.0, len(values)) * np.abs(values).max()
    for share in (0.0, *RESTART_NOISE):
        for num_recorded in sorted({min(most, max(2, RECORDED_ENTRIES // len(values))), most}):
            knot_tables = np.empty((num_recorded, len(values)))
            moved = values + share * noise
            count = table_path(moved, position, sign, 0.0, knot_t, knot_weight, table, knot_tables)
            if count >= 0:
                knot_tables[0] = values
                return knot_t[:count].copy(), knot_weight[:count].copy(), knot_tables[:count].copy()
    raise ResourceError(f"the path of pattern {number} could not be followed; use the paper's dual")
