"""``ProjectionResult``: the projected model, how close it is to the original, and what was proved on the way."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastmix import _show
from fastmix._arrays import FloatArray
from fastmix.model import MarkovRandomField
from fastmix.projection.divergence import Divergence, Euclidean
from fastmix.results import Result
from fastmix.theory.dependency import edge_dependencies

__all__ = ["ProjectionResult", "same_graph"]

# What ``to_dict()`` and ``--json`` hold, beside the divergence and the scales of factors.
_PLAIN_FIELDS = (
    "norm",
    "dependency",
    "norm_before",
    "norm_after",
    "norm_bound",
    "squared_distance",
    "duality_gap",
    "relative_gap",
    "certified",
    "divergence_value",
)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ProjectionResult(Result):
    """The closest model within a norm bound, and how close it is.

    Attributes
    ----------
    model : MarkovRandomField
        The projected model; always within the bound.
    status : Status
        ``time_limit`` when the clock ended the call; the model is within the bound all the same.
    norm, dependency : str, str or None
        The norm that was bounded, and the bound on the dependencies that it was taken of; None for the width.
    norm_before, norm_after, norm_bound : float
        Safe upper bounds on the norm of the dependency matrix (the larger of both directions on every edge), or on the
        width, before and after the projection; and the bound that was asked for.
    squared_distance : float
        Sum over edges and factors of the squared Frobenius distance between the tables before and after. What can be
        moved from factors into tables is moved there first; unaries are not counted.
    duality_gap : float
        ``squared_distance`` minus a proven lower bound on it; infinite for other divergences, unless the model met the
        bound already.
    divergence, divergence_value : Divergence, float
        The divergence that was minimized, and its value at the model returned, estimated where it is sampled.
    multipliers : float array
        Multipliers at which the solver ended, for a warm start of a later call on the same graph.
    dependencies : float array (m,)
        The bound z of every edge.
    factor_scales : float array (f,)
        The number from 0 to 1 that every factor over three or more variables was multiplied by, after its parts that
        depend on one or two variables had been moved into the unaries and tables. Empty for models of pairs.
    history : sequence of mappings
        For every ``iteration`` of the solver, or step of the descent: the ``value`` of the divergence there, and the
        best proven ``lower_bound`` on the least value by then; -inf where nothing is proven, as in all descents.
    stats, provenance : mapping
        As for every :class:`fastmix.results.Result`. ``stats["stopping_rule"]`` names the rule that ended the solver or
        the descent: ``tol``, ``num_steps`` (all steps were taken), ``stationary`` (no step went down any more),
        ``max_iter``, ``time_limit`` or ``interrupt``.
    original : MarkovRandomField
        The model that was projected.
    """

    norm: str
    dependency: str | None
    norm_before: float
    norm_after: float
    norm_bound: float
    squared_distance: float
    duality_gap: float
    multipliers: FloatArray
    dependencies: FloatArray
    factor_scales: FloatArray = field(default_factory=lambda: np.zeros(0))
    divergence: Divergence = field(default_factory=Euclidean)
    divergence_value: float = math.nan
    original: MarkovRandomField | None = None

    def __repr__(self) -> str:
        if isinstance(self.divergence, Euclidean):
            closeness = f"squared_distance={self.squared_distance:.6g}, duality_gap={self.duality_gap:.3g}"
        else:
            closeness = f"divergence={self.divergence}, divergence_value={self.divergence_value:.6g}"
        scales = self.factor_scales
        if len(scales):
            closeness += f", factors scaled by {scales.min():.4g} to {scales.max():.4g}"
        return (
            f"ProjectionResult(status={str(self.status)!r}, norm_before={self.norm_before:.6g}, "
            f"norm_after={self.norm_after:.6g}, {closeness}, {self.model})"
        )

    @property
    def certified(self) -> bool:
        """Whether the norm is below 1, so that Gibbs sampling provably mixes fast (see :func:`fastmix.certify`).

        A width below 1 proves it for updates in random order.
        """
        return self.norm_after < 1.0

    @property
    def relative_gap(self) -> float:
        """The gap that ``tol`` is compared with: ``duality_gap / (1 + squared_distance)``."""
        return self.duality_gap / (1.0 + self.squared_distance)

    def columns(self) -> dict[str, Any]:
        """Columns of :meth:`to_frame` by name, with a row for every edge: its size before and after.

        The size is the ``range`` bound on the dependency (:func:`fastmix.theory.dependency.edge_dependencies`), which
        is the absolute value of an Ising coupling.
        """
        before, after = self._edge_sizes()
        names = self.model.names_of_variables()
        return {
            "first": [names[i] for i in self.model.edges[:, 0]],
            "second": [names[j] for j in self.model.edges[:, 1]],
            "before": before,
            "after": after,
        }

    def title(self) -> str:
        """The heading of what is shown: the divergence."""
        return f"projection ({self.divergence})"

    def facts(self) -> dict[str, str]:
        """Rows of the table that is shown: the norms, the distance and the divergence."""
        bounded = self.norm if self.dependency is None else f"{self.norm}, {self.dependency}"
        return {
            f"norm ({bounded})": f"{self.norm_after:.6g}",
            "norm before": f"{self.norm_before:.6g}",
            "bound": f"{self.norm_bound:.6g}",
            "squared distance": f"{self.squared_distance:.6g}",
            "divergence": f"{self.divergence_value:.6g}",
        }

    def contents(self) -> dict[str, Any]:
        """Norms, distance, gap, divergence and the scales of factors; the model is left out."""
        found = {name: getattr(self, name) for name in _PLAIN_FIELDS}
        found["divergence"] = repr(self.divergence)
        found["factor_scales"] = self.factor_scales if len(self.factor_scales) else None
        return found

    def plot(self, axes: Any = None) -> Any:
        """Matplotlib axes with the size of every edge after the projection against that before it (extra ``plot``)."""
        axes = super().plot(axes)
        before, after = self._edge_sizes()
        axes.set_title(f"norm {self.norm_before:.4g} to {self.norm_after:.4g}")
        return _show.scatter(axes, before, after, xlabel="size of an edge before", ylabel="after")

    def _edge_sizes(self) -> tuple[FloatArray, FloatArray]:
        """The size of every edge (m,) before and after the projection."""
        if self.original is None or not same_graph(self.original, self.model):
            raise ValueError("the result has no original model with the same edges to compare with")
        return _sizes_of_edges(self.original), _sizes_of_edges(self.model)


def same_graph(one: MarkovRandomField, other: MarkovRandomField) -> bool:
    """Whether two models have the same edges and numbers of states."""
    return np.array_equal(one.num_states, other.num_states) and np.array_equal(one.edges, other.edges)


def _sizes_of_edges(model: MarkovRandomField) -> FloatArray:
    """The ``range`` bound on the dependency of every edge (m,), the larger of both directions."""
    both_directions = edge_dependencies(model, dependency="range").reshape(model.num_edges, -1)
    larger: FloatArray = both_directions.max(axis=1, initial=0.0)
    return larger
