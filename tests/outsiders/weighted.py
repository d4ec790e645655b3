"""A divergence: the squared distance of all parameters, weighted by their size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import fastmix
from fastmix.projection import Objective


class WeightedDistance(Objective):
    """The weighted squared distance from one model."""

    def __init__(self, model: fastmix.MarkovRandomField, power: float) -> None:
        self.parameters = model.parameters
        self.weights = (1.0 + abs(self.parameters)) ** power

    def evaluate(self, theta: fastmix.MarkovRandomField) -> tuple[float, Any]:
        """The distance of a model, and its gradient by the parameters."""
        change = theta.parameters - self.parameters
        return float(self.weights @ change**2), 2.0 * self.weights * change


@fastmix.register_divergence
@dataclass(frozen=True)
class Weighted(fastmix.Divergence):
    """The squared distance of all parameters, unaries included, where large ones count more."""

    name: ClassVar[str] = "weighted"
    power: float = 1.0

    def start(self, model: fastmix.MarkovRandomField, *, seed: int) -> WeightedDistance:
        """The distance from a model; nothing about it is random."""
        del seed
        return WeightedDistance(model, self.power)
