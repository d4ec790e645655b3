"""What a projection returns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix.model import MarkovRandomField
from fastmix.projection.divergence import Divergence, Euclidean
from fastmix.results import Status, jsonable

__all__ = ["ProjectionResult"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class ProjectionResult:
    """The closest model within a norm bound, and how close it is.

    Attributes
    ----------
    model : MarkovRandomField
        The projected model; always within the bound (but for ``PaperDual(both_directions=False)``, which bounds the
        one direction that the paper prints, and says in ``norm_after`` what both together have).
    status : Status
        ``time_limit`` when a descent was stopped by the clock; its model is within the bound all the same.
    norm, dependency : str
        Which norm of which dependency bound.
    norm_before, norm_after, norm_bound : float
        Safe upper bounds on the norm of the dependency matrix (the larger of both directions on every edge), and
        what was asked for.
    squared_distance : float
        Sum over edges of the squared Frobenius distance between the tables. Unaries change in other divergences than
        the Euclidean one, and are not counted.
    duality_gap : float
        ``squared_distance`` minus a proven lower bound on it: how far from the closest model this one can be. For
        other divergences nothing is proven, and it is infinite, unless the model met the bound already.
    divergence : Divergence
        What was minimised.
    divergence_value : float
        Its value at the model returned, estimated where the divergence is sampled.
    seed : int or None
        Of the descent; None for the Euclidean projection, which draws nothing.
    multipliers : float array
        For a warm start of a later call on the same graph: one per variable (inf, 1), the factor (n, rank) of the
        matrix multiplier (spectral), one number (frobenius), or those of the paper's dual.
    dependencies : float array (m,)
        The bound z of every edge.
    history : list of (iteration, cost of the best feasible point, lower bound)
        For other divergences (step, value of the divergence there, -inf), from the start of the descent on.
    solver_state : object
        What the paper's dual needs for a warm start beyond the multipliers.
    stats, provenance : mapping
    """

    model: MarkovRandomField
    status: Status
    norm: str
    dependency: str
    norm_before: float
    norm_after: float
    norm_bound: float
    squared_distance: float
    duality_gap: float
    multipliers: FloatArray
    dependencies: FloatArray
    divergence: Divergence = field(default_factory=Euclidean)
    divergence_value: float = math.nan
    seed: int | None = None
    history: list[tuple[int, float, float]] = field(default_factory=list)
    stats: Mapping[str, Any] = field(default_factory=dict)
    solver_state: Any = field(default=None, repr=False)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        close = f"squared_distance={self.squared_distance:.6g}, duality_gap={self.duality_gap:.3g}"
        if not isinstance(self.divergence, Euclidean):
            close = f"divergence={self.divergence}, divergence_value={self.divergence_value:.6g}"
        return (
            f"ProjectionResult(status={str(self.status)!r}, norm_before={self.norm_before:.6g}, "
            f"norm_after={self.norm_after:.6g}, {close}, {self.model})"
        )

    @property
    def certified(self) -> bool:
        """Whether the norm is below 1, so that Gibbs sampling provably mixes fast (see :func:`fastmix.certify`)."""
        return self.norm_after < 1.0

    @property
    def relative_gap(self) -> float:
        """The gap that ``tol`` is compared with: ``duality_gap / (1 + squared_distance)``."""
        return self.duality_gap / (1.0 + self.squared_distance)

    def to_dict(self) -> dict[str, Any]:
        """The result without the model as plain data, the shape of the command line's JSON."""
        names = ("norm", "dependency", "norm_before", "norm_after", "norm_bound", "squared_distance", "duality_gap")
        facts = {name: jsonable(getattr(self, name)) for name in names}
        facts["relative_gap"] = jsonable(self.relative_gap)
        facts |= {"certified": self.certified, "divergence": repr(self.divergence)}
        facts |= {"divergence_value": jsonable(self.divergence_value), "seed": self.seed}
        return {
            "status": str(self.status),
            **facts,
            "seconds": self.stats.get("seconds"),
            "stats": jsonable(dict(self.stats)),
            "provenance": jsonable(dict(self.provenance)),
        }
