"""``ConditionalFit``: the result of a fit of a conditional random field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fastmix import _show
from fastmix.learning import NormBall
from fastmix.results import Result, Status

__all__ = ["ConditionalFit"]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ConditionalFit(Result):
    """What a fit of :class:`ConditionalRandomField` found.

    Attributes
    ----------
    model : MarkovRandomField
        That of the labels of the first example, by the weights that were found.
    objective : str
        ``likelihood`` or ``pseudo-likelihood``.
    moments : str
        How moments were found: ``exact``, ``sampled``, ``exact and sampled``, or ``none``.
    status : Status
        ``not_converged`` if the optimum was not reached, ``not_mixed`` if the chains did not follow the models.
    value : float or None
        The objective per example, ridge included; None where it was sampled.
    ridge : float
    within : NormBall or None
        The set that the model of every example is projected onto.
    price : float or None
        What the set costs: by how much the objective per label is larger than its least value without the set. None
        without a set, and where the objective was sampled.
    num_examples, num_labels, num_weights : int
        Examples, known labels, and weights.
    history : sequence of mappings
        An entry for every ``iteration``: ``value`` and ``gradient_norm``. Empty where moments were sampled.
    """

    advice_by_status: ClassVar[Mapping[Status, str]] = {
        Status.NOT_CONVERGED: "The optimum was not reached: allow more time_limit or max_iter, or a larger ridge or "
        "tol.",
        Status.NOT_MIXED: "The chains did not follow the models: take the pseudo-likelihood, a larger ridge or a set "
        "to stay in.",
    }

    objective: str
    moments: str
    value: float | None
    ridge: float
    within: NormBall | None
    price: float | None
    num_examples: int
    num_labels: int
    num_weights: int

    def __repr__(self) -> str:
        return (
            f"ConditionalFit({self.objective}, status={str(self.status)!r}, {self.num_examples:,} examples, "
            f"{self.num_weights:,} weights)"
        )

    def title(self) -> str:
        """The objective."""
        return f"conditional {self.objective}"

    def facts(self) -> dict[str, str]:
        """Counts, and how well the fit did."""
        found = {
            "examples": f"{self.num_examples:,}",
            "known labels": f"{self.num_labels:,}",
            "weights": f"{self.num_weights:,}",
            "ridge": f"{self.ridge:g}",
        }
        if self.value is not None:
            found["value"] = f"{self.value:.6g}"
        if self.within is not None:
            found["within"] = str(self.within)
        if self.price is not None:
            found["price per label"] = f"{self.price:.4g}"
        return found

    def contents(self) -> dict[str, Any]:
        """All that is known of the fit; the model is left out."""
        names = ("objective", "moments", "value", "ridge", "price", "num_examples", "num_labels", "num_weights")
        within = None if self.within is None else {"norm": self.within.norm, "bound": self.within.bound}
        return {**{name: getattr(self, name) for name in names}, "within": within}

    def plot(self, axes: Any = None) -> Any:
        """The objective at every iteration (Matplotlib, extra ``plot``); the axes come back."""
        axes = super().plot(axes)
        values = [float(entry["value"]) for entry in self.history]
        return _show.curve(axes, values, xlabel="iteration", ylabel="objective per example")
