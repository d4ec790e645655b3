"""Better conditioned coordinates, in which objectives are minimized."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fastmix._arrays import FloatArray
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.tuning import MIN_VARIANCE

__all__ = ["Scaling"]


@dataclass(frozen=True, eq=False)
class Scaling:
    """Better conditioned coordinates z of v: contrasts are centered at their means, and have unit variances.

    With ``c = b - C m`` the log-weight is ``b . y + (y - m)' C (y - m) / 2`` plus a constant: features of edges are
    then nearly uncorrelated with those of variables. b and C are scaled by the standard deviations of their features
    under the independent model with the same means.
    """

    coordinates: Coordinates
    means: FloatArray
    scales: FloatArray

    @classmethod
    def of(
        cls,
        coordinates: Coordinates,
        means: FloatArray,
        variances: FloatArray,
        alike: Literal["entries", "edges", "all"],
    ) -> Scaling:
        """The scaling for means and variances (D,) of the contrasts.

        ``alike`` says whether "entries" of tables have scales of their own, "edges" have one each (as groups of the l1
        term), or "all" have the same (a projection is Euclidean in C).
        """
        spread = np.sqrt(np.maximum(variances, MIN_VARIANCE))
        pairs = spread[coordinates.rows] * spread[coordinates.cols]
        if alike == "edges" and len(pairs):
            edge = coordinates.edge_of
            squares = np.bincount(edge, pairs**2, coordinates.structure.num_edges)
            pairs = np.sqrt(squares / np.maximum(1, np.diff(coordinates.pair_starts)))[edge]
        elif alike == "all" and len(pairs):
            pairs = np.full(len(pairs), float(np.sqrt(np.mean(pairs**2))))
        return cls(coordinates, means, 1.0 / np.concatenate([spread, pairs]))

    def to_v(self, z: FloatArray) -> FloatArray:
        """The v of scaled coordinates."""
        v = self.scales * z
        v[: len(self.means)] -= self._products(v, self.means)
        return v

    def from_v(self, v: FloatArray) -> FloatArray:
        """The scaled coordinates of v."""
        centered = v.copy()
        centered[: len(self.means)] += self._products(v, self.means)
        return centered / self.scales

    def pull(self, gradient: FloatArray) -> FloatArray:
        """The derivative with respect to z of what has this one with respect to v."""
        rows = self.coordinates.rows
        cols = self.coordinates.cols
        result = gradient.copy()
        result[len(self.means) :] -= gradient[rows] * self.means[cols] + gradient[cols] * self.means[rows]
        return result * self.scales

    def _products(self, v: FloatArray, m: FloatArray) -> FloatArray:
        """C m, by contrasts."""
        d = len(m)
        rows = self.coordinates.rows
        cols = self.coordinates.cols
        values = v[d:]
        return np.asarray(np.bincount(rows, values * m[cols], d) + np.bincount(cols, values * m[rows], d))
