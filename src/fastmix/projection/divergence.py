"""What "closest" can mean: the divergences that a projection minimises, by name, and how to add another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from fastmix._arrays import FloatArray
from fastmix.model import MarkovRandomField

if TYPE_CHECKING:
    from fastmix._clock import Clock
    from fastmix.projection.descent import StepRule

__all__ = ["DIVERGENCES", "Divergence", "Euclidean", "Objective", "divergence_by_name"]

DIVERGENCES: dict[str, type[Divergence]] = {}  # by name, in the order of their definition


class Objective(ABC):
    """The divergence between one model psi and any model theta on the same graph, ready to be evaluated.

    Attributes
    ----------
    exact : bool
        Whether values and gradients are exact. Estimates cannot be used by rules that compare values, such as
        :class:`fastmix.projection.LineSearch`.
    constant : float
        Added to all values when the descent is over, for divergences that are known only up to a constant until then.
    moments : float array or None
        All marginals of the model evaluated last, aligned with its parameters, where the divergence knows them.
    trial : StepRule or None
        Steps from each of several :meth:`starts`, after which their values are compared; None for one start.
    """

    exact: bool = True
    constant: float = 0.0
    moments: FloatArray | None = None
    trial: StepRule | None = None

    @abstractmethod
    def evaluate(self, theta: MarkovRandomField) -> tuple[float, FloatArray]:
        """The value at theta, less ``constant``, and its gradient.

        The gradient is aligned with ``theta.parameters``: the derivative by every entry of the unaries and of the
        tables (indicator coordinates).
        """

    def value(self, theta: MarkovRandomField) -> float:
        """The value alone, with more care than :meth:`evaluate` takes where it is an estimate."""
        return self.evaluate(theta)[0]

    def facts(self) -> Mapping[str, Any]:
        """What else is worth telling about the model evaluated last; it goes into ``stats`` of the result."""
        return {}

    def watch(self, clock: Clock) -> None:
        """Look at this clock where an evaluation takes long: ``clock.check()`` ends it, and the descent, in time."""
        del clock

    def starts(self, theta: MarkovRandomField) -> Iterator[MarkovRandomField]:
        """Where descents can begin, given the Euclidean projection: models on the graph, in the set or not."""
        yield theta

    def save(self) -> Any:
        """What :meth:`restore` needs to go on at the model evaluated last."""
        return None

    def restore(self, saved: Any) -> None:
        """Go back to where :meth:`save` was called."""
        del saved


class Divergence(ABC):
    """A measure of how far a model theta is from a model psi: at least 0, and 0 where theta is psi.

    A divergence of your own derives from this class, best as a frozen dataclass of its settings, and returns an
    :class:`Objective` for the model that is projected. That model has finite entries only: states that a unary forbids
    are left out. With ``name=`` in the list of bases it can be asked for by name, here and on the command line.

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
    >>> @dataclass(frozen=True)
    ... class Weighted(Divergence, name="weighted"):
    ...     power: float = 1.0
    ...     def start(self, model, *, seed):
    ...         return WeightedDistance(model, self.power)
    >>> model = fastmix.instances.ising_grid(4, 4, coupling_max=2.0, seed=0)
    >>> result = fastmix.project(model, norm_bound=0.9, divergence=Weighted(), step=LineSearch(), seed=1)
    >>> result.norm_after <= 0.9, result.history[-1][1] < result.history[0][1]
    (True, True)
    >>> fastmix.project(model, norm_bound=0.9, divergence="weighted").divergence
    Weighted(power=1.0)
    """

    name: ClassVar[str] = ""

    def __init_subclass__(cls, *, name: str = "") -> None:
        super().__init_subclass__()
        cls.name = name
        if name in DIVERGENCES and DIVERGENCES[name].__qualname__ != cls.__qualname__:
            raise ValueError(f"name must be one that no other divergence has, got {name!r}")
        if name:
            DIVERGENCES[name] = cls

    @abstractmethod
    def start(self, model: MarkovRandomField, *, seed: int) -> Objective:
        """The objective for one model; all its randomness comes from the seed."""

    def least_seconds(self, model: MarkovRandomField) -> float:
        """A guess at what one value takes; with less time left than that the descent is not begun."""
        del model
        return 0.0

    @property
    def default_step(self) -> StepRule:
        """The rule of a descent that was given none."""
        from fastmix.projection.descent import LineSearch

        return LineSearch()


@dataclass(frozen=True)
class Euclidean(Divergence, name="euclidean"):
    """The squared distance of the tables, ``sum over edges ||T_e - psi_e||_F^2`` (Eq. 3); unaries do not change.

    :func:`fastmix.project` solves it directly, without a descent.
    """

    def start(self, model: MarkovRandomField, *, seed: int) -> Objective:
        """Nothing: there is no descent."""
        raise NotImplementedError("the Euclidean projection is solved without a descent")


def divergence_by_name(name: str) -> Divergence:
    """The divergence with this name and its default settings; a ValueError if there is none."""
    if name not in DIVERGENCES:
        raise ValueError(f"divergence must be one of {', '.join(sorted(DIVERGENCES))}, got {name!r}")
    return DIVERGENCES[name]()
