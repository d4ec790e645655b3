"""Divergences: what "closest" means in a projection, and what a descent is told about it.

Eq. 7 of Liu and Domke (2014) minimizes a divergence over the models within a norm bound. A divergence of your own
derives from :class:`Divergence`; the steps toward its minimum are in :mod:`fastmix.projection.descent`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from fastmix._arrays import FloatArray
from fastmix._checks import describe
from fastmix._clock import NO_LIMIT, Clock
from fastmix._registry import Registry
from fastmix.model import MarkovRandomField
from fastmix.projection.descent import LineSearch, StepRule, Trace
from fastmix.projection.feasible import FeasibleSet

__all__ = ["DIVERGENCES", "Divergence", "Euclidean", "Objective", "divergence_by_name", "register_divergence"]

D = TypeVar("D", bound="type[Divergence]")


class Objective(ABC):
    """The divergence between one model psi and any model theta on the same graph, ready to be evaluated.

    Attributes
    ----------
    exact : bool
        Whether values and gradients are exact. Estimates cannot be used by rules that compare values, such as
        :class:`fastmix.projection.LineSearch`.
    constant : float
        Number that is added to all values when the descent is over, for divergences that are known only up to a
        constant until then.
    moments : float array or None
        All marginals of the model evaluated last, aligned with its parameters, where the divergence knows them.
    """

    exact: bool = True
    constant: float = 0.0
    moments: FloatArray | None = None
    clock: Clock = NO_LIMIT

    @abstractmethod
    def evaluate(self, theta: MarkovRandomField) -> tuple[float, FloatArray]:
        """The value at theta, less ``constant``, and its gradient.

        The gradient is aligned with ``theta.parameters``: the derivative by every entry of the unaries and of the
        tables (indicator coordinates).
        """

    def value(self, theta: MarkovRandomField) -> float:
        """The value alone; where it is an estimate, a more careful one than that of :meth:`evaluate`."""
        return self.evaluate(theta)[0]

    def facts(self) -> Mapping[str, Any]:
        """Further entries for the ``stats`` of the result, about the model evaluated last."""
        return {}

    def watch(self, clock: Clock) -> None:
        """Take the clock of the call: ``self.clock.check()`` within a long evaluation ends the descent in time."""
        self.clock = clock

    def begin(self, theta: MarkovRandomField, feasible: FeasibleSet, trace: Trace) -> MarkovRandomField:
        """The model at which the descent begins; ``theta`` is the Euclidean projection.

        ``trace.clock`` limits the time of a search for a better start.
        """
        del feasible, trace
        return theta


class Divergence(ABC):
    """A measure of how far a model theta is from a model psi: at least 0, and 0 where theta is psi.

    A divergence of your own derives from this class, best as a frozen dataclass of its settings, and returns an
    :class:`Objective` for the model that is projected. That model has finite entries only: states that a unary forbids
    are left out. With :func:`register_divergence`, users can ask for it by name, in Python and on the command line.

    Examples
    --------
    The distance of all parameters, unaries included, weighted by the strength of the tables:

    >>> from dataclasses import dataclass
    >>> import fastmix
    >>> from fastmix.projection import Divergence, LineSearch, Objective
    >>> class WeightedDistance(Objective):
    ...     def __init__(self, model, power):
    ...         self.psi = model.parameters
    ...         self.weights = (1.0 + abs(self.psi)) ** power
    ...     def evaluate(self, theta):
    ...         change = theta.parameters - self.psi
    ...         return float(self.weights @ change**2), 2.0 * self.weights * change
    >>> @fastmix.register_divergence
    ... @dataclass(frozen=True)
    ... class Weighted(Divergence):
    ...     name = "weighted"
    ...     power: float = 1.0
    ...     def start(self, model, *, seed):
    ...         return WeightedDistance(model, self.power)
    >>> model = fastmix.instances.ising_grid(4, 4, coupling_max=2.0, seed=0)
    >>> result = fastmix.project(model, norm_bound=0.9, divergence=Weighted(), step=LineSearch(), seed=1)
    >>> result.norm_after <= 0.9, result.history[-1]["value"] < result.history[0]["value"]
    (True, True)
    >>> fastmix.project(model, norm_bound=0.9, divergence="weighted").divergence
    Weighted(power=1.0)
    """

    name: ClassVar[str] = ""  #: by which users call it, once it is registered

    @abstractmethod
    def start(self, model: MarkovRandomField, *, seed: int) -> Objective:
        """The divergence from one model, ready to be evaluated; all its randomness comes from the seed."""

    def least_seconds(self, model: MarkovRandomField) -> float:
        """A guess at the seconds that one value takes; with less time left the descent is not begun."""
        del model
        return 0.0

    @property
    def default_step(self) -> StepRule:
        """The rule of steps that a descent follows when the user gives none."""
        return LineSearch()


#: Classes of divergences by name.
DIVERGENCES: Registry[type[Divergence]] = Registry("divergence", "fastmix.divergences")


def register_divergence(divergence: D) -> D:
    """Add a divergence to those that can be asked for by name; usable as a decorator of its class.

    Called by its name it has its default settings.

    Raises
    ------
    TypeError
        If it is no subclass of :class:`Divergence` with a name.
    ValueError
        If another divergence has the name.
    """
    if not isinstance(divergence, type) or not issubclass(divergence, Divergence):
        raise TypeError(f"divergence must be a subclass of Divergence with a name, got {describe(divergence)}")
    DIVERGENCES.add(divergence)
    return divergence


@register_divergence
@dataclass(frozen=True)
class Euclidean(Divergence):
    """The squared distance of the tables, ``sum over edges ||T_e - psi_e||_F^2`` (Eq. 3); unaries do not change.

    :func:`fastmix.project` solves it directly, without a descent.
    """

    name: ClassVar[str] = "euclidean"

    def start(self, model: MarkovRandomField, *, seed: int) -> Objective:
        """No objective: a NotImplementedError, because there is no descent."""
        raise NotImplementedError("the Euclidean projection is solved without a descent")


def divergence_by_name(name: str) -> Divergence:
    """The divergence with this name and its default settings; a ValueError if there is none."""
    found = DIVERGENCES.find(name)
    if found is None:
        raise ValueError(f"divergence must be one of {', '.join(sorted(DIVERGENCES))}, got {describe(name)}")
    return found()
