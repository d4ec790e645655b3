"""A learning objective: squared residuals of all conditional distributions, for binary variables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

import fastmix
from fastmix.learning import Loss


class SquaredResiduals(Loss):
    """Half of the mean over the rows of the squared residuals of all contrasts."""

    def __init__(self, coordinates: Any, data: Any) -> None:
        self.coordinates = coordinates
        self.y = coordinates.encode(data.states)
        self.weights = data.weights

    def evaluate(self, v: Any) -> tuple[float, Any]:
        """The value at v, and its derivative."""
        fields = self.y @ self.coordinates.matrix(v) + v[: self.coordinates.num_contrasts]
        means = np.tanh(np.sqrt(0.5) * fields) / np.sqrt(2.0)
        slopes = (means - self.y) * (0.5 - means**2)
        products = slopes.T @ (self.weights[:, None] * self.y)
        value = 0.5 * float(self.weights @ ((means - self.y) ** 2).sum(axis=1))
        return value, self.coordinates.gather(self.weights @ slopes, products + products.T)


@fastmix.register_objective
@dataclass(frozen=True)
class Squares(fastmix.LearningObjective):
    """Squared residuals in place of the log-probabilities of the pseudo-likelihood."""

    name: ClassVar[str] = "squares"

    def start(self, coordinates: Any, data: Any, context: Any) -> SquaredResiduals:
        """The residuals of these rows; nothing about them is random."""
        del context
        return SquaredResiduals(coordinates, data)
