"""Objectives of learning: what makes a model fit its data.

:func:`fastmix.learn` minimizes a :class:`Loss` (plus penalties, or within a set), which a :class:`LearningObjective`
makes for the data at hand. An objective of your own derives from the second and returns the first; how the minimum is
found (:mod:`fastmix.learning.minimize`), how penalties are chosen, and what a result says, are the same for all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from fastmix._arrays import FloatArray
from fastmix._checks import describe
from fastmix._context import Context
from fastmix._registry import Registry
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.dataset import Dataset
from fastmix.model import MarkovRandomField

__all__ = ["LEARNING_OBJECTIVES", "LearningObjective", "Loss", "Validation", "objective_of", "register_objective"]

L = TypeVar("L", bound="type[LearningObjective]")


class Loss(ABC):
    """A smooth function of the parameters of all models on one structure, whose least value is looked for.

    Attributes
    ----------
    coordinates : Coordinates
        What the entries of the vector v of parameters mean (:mod:`fastmix.learning.coordinates`).
    method : str
        How moments of the model are found, as results say it; ``none`` if none are needed.
    compares_moments : bool
        Whether the derivative is the moments of the model less those of the data, so that its size is the moment error
        of a result.
    """

    coordinates: Coordinates
    method: str = "none"
    compares_moments: bool = False

    @abstractmethod
    def evaluate(self, v: FloatArray) -> tuple[float, FloatArray]:
        """The value at v (size,), and the derivative (size,)."""


@dataclass(frozen=True)
class Validation:
    """What an objective says about validation data: larger values are better, None is unknown."""

    value: float | None = None
    stats: Mapping[str, Any] = field(default_factory=dict)  # further entries for those of the result
    interrupted: bool = False  # whether Ctrl-C ended it, with a rougher value than was asked for


class LearningObjective(ABC):
    """What a model should have the least of, beside penalties: minus a measure of how well it fits the data.

    An objective of your own derives from this class, best as a frozen dataclass of its settings. With
    :func:`register_objective`, users can ask for it by name, in Python and on the command line.

    Examples
    --------
    Squared residuals of all conditional distributions in place of their log-probabilities, for binary variables:

    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> import fastmix
    >>> from fastmix.learning import LearningObjective, Loss
    >>> class SquaredResiduals(Loss):
    ...     def __init__(self, coordinates, data):
    ...         self.coordinates = coordinates
    ...         self.y = coordinates.encode(data.states)
    ...         self.weights = data.weights
    ...     def evaluate(self, v):
    ...         fields = self.y @ self.coordinates.matrix(v) + v[: self.coordinates.num_contrasts]
    ...         means = np.tanh(np.sqrt(0.5) * fields) / np.sqrt(2.0)
    ...         slopes = (means - self.y) * (0.5 - means**2)
    ...         products = slopes.T @ (self.weights[:, None] * self.y)
    ...         gradient = self.coordinates.gather(self.weights @ slopes, products + products.T)
    ...         return 0.5 * float(self.weights @ ((means - self.y) ** 2).sum(axis=1)), gradient
    >>> @fastmix.register_objective
    ... @dataclass(frozen=True)
    ... class Squares(LearningObjective):
    ...     name = "squares"
    ...     def start(self, coordinates, data, context):
    ...         return SquaredResiduals(coordinates, data)
    >>> data = [[0, 0, 1], [1, 1, 1], [1, 1, 0], [0, 1, 0], [0, 0, 0]]
    >>> result = fastmix.learn(data, objective=Squares(), ridge=0.1)
    >>> result.objective, str(result.status)
    ('squares', 'ok')
    >>> fastmix.learn(data, objective="squares", ridge=0.1).value == result.value
    True
    """

    name: ClassVar[str] = ""  #: by which users call it, once it is registered

    def __str__(self) -> str:
        """Its name, that of its class where it has none."""
        return self.name or type(self).__name__

    @abstractmethod
    def start(self, coordinates: Coordinates, data: Dataset, context: Context) -> Loss | None:
        """The loss of models on one structure for these data, ready to be evaluated.

        Equal rows of the data are joined, and their weights add up to 1; hidden variables are columns of missing
        values. None where moments of the model have to be sampled, which only the likelihood is prepared for.

        Raises
        ------
        UnfitMethodError
            If the objective cannot handle such data.
        """

    def check_validation(self, coordinates: Coordinates, validation: Dataset) -> None:
        """Refuse validation data with missing values that :meth:`validate` could not handle, before a long fit."""
        del coordinates, validation

    def validate(
        self, model: MarkovRandomField, data: Dataset, validation: Dataset, context: Context, *, rough: bool
    ) -> Validation:
        """How well a model that was learnt from ``data`` fits other rows: minus their loss, without penalties.

        A ``rough`` value is enough where it only serves to choose between penalties.
        """
        del data, rough
        coordinates = Coordinates(model.structure)
        loss = self.start(coordinates, validation, context)
        if loss is None:
            return Validation()
        v, _ = coordinates.from_parameters(model.parameters)
        return Validation(-loss.evaluate(v)[0])


#: Classes of objectives by name.
LEARNING_OBJECTIVES: Registry[type[LearningObjective]] = Registry("objective", "fastmix.objectives")


def register_objective(objective: L) -> L:
    """Add a learning objective to those that can be asked for by name; usable as a decorator of its class.

    Called by its name it has its default settings.

    Raises
    ------
    TypeError
        If it is no subclass of :class:`LearningObjective` with a name.
    ValueError
        If another objective has the name.
    """
    if not isinstance(objective, type) or not issubclass(objective, LearningObjective):
        raise TypeError(f"objective must be a subclass of LearningObjective with a name, got {describe(objective)}")
    LEARNING_OBJECTIVES.add(objective)
    return objective


def objective_of(objective: LearningObjective | str) -> LearningObjective:
    """The objective that was asked for, by itself or by its name, which has default settings then.

    Raises
    ------
    ValueError
        If no objective has that name.
    TypeError
        If it is neither.
    """
    if isinstance(objective, LearningObjective):
        return objective
    if not isinstance(objective, str):
        raise TypeError(f"objective must be a name or a LearningObjective, got {describe(objective)}")
    found = LEARNING_OBJECTIVES.find(objective)
    if found is None:
        raise ValueError(
            f"objective must be one of {', '.join(sorted(LEARNING_OBJECTIVES))}, got {describe(objective)}"
        )
    return found()
