"""Projection in a divergence: what "closest" can mean, the gradient steps towards it, and when they end.

Algorithm 1 of Liu and Domke (2014) for their Eq. 7, with other coordinates, rules of steps and ends beside theirs:
every step is followed by the Euclidean projection. A divergence of your own derives from :class:`Divergence`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from fastmix._arrays import FloatArray
from fastmix._checks import check_choice, check_count, check_positive, keep_checked
from fastmix._clock import NO_LIMIT, Clock, OutOfTimeError
from fastmix.model import MarkovRandomField
from fastmix.projection.feasible import COORDINATES, Coordinates, FeasibleSet

__all__ = [
    "DIVERGENCES", "PAPER_STEP", "DecreasingStep", "Divergence", "Euclidean", "FixedStep", "LineSearch", "Objective",
    "StepRule", "Trace", "descend", "divergence_by_name",
]  # fmt: skip

DIVERGENCES: dict[str, type[Divergence]] = {}  # by name, in the order of their definition


# -- divergences ----------------------------------------------------------------------------------------------------


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
        """The value alone, with more care than :meth:`evaluate` takes where it is an estimate."""
        return self.evaluate(theta)[0]

    def facts(self) -> Mapping[str, Any]:
        """What else is worth telling about the model evaluated last; it goes into ``stats`` of the result."""
        return {}

    def watch(self, clock: Clock) -> None:
        """Take a clock to look at where an evaluation takes long: ``self.clock.check()`` ends the descent in time."""
        self.clock = clock

    def begin(self, theta: MarkovRandomField, feasible: FeasibleSet, trace: Trace) -> MarkovRandomField:
        """Where the descent begins, given the Euclidean projection; the clock is that of the trace."""
        del feasible, trace
        return theta


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
    check_choice("divergence", name, sorted(DIVERGENCES))
    return DIVERGENCES[name]()


# -- steps ----------------------------------------------------------------------------------------------------------


@dataclass
class Trace:
    """What a descent has seen: values, the latest feasible model, and why it ended."""

    clock: Clock = NO_LIMIT
    num_steps: int | None = None  # that are planned, where that is known
    values: list[float] = field(default_factory=list)  # of the divergence at the start and after every step
    theta: MarkovRandomField | None = None  # where the latest value was taken
    reason: str = "num_steps"  # or ``tol``, ``stationary``, ``time_limit`` or ``interrupted``

    def record(self, value: float, theta: MarkovRandomField) -> bool:
        """Take in a value; False when the time is up."""
        if not math.isfinite(value):
            raise ValueError(f"the divergence must be finite at every feasible model, got {value}")
        self.values.append(float(value))
        self.theta = theta
        self.clock.report(len(self.values) - 1, self.num_steps, "iterations")
        return not self.out_of_time()

    def out_of_time(self) -> bool:
        """Whether the limit has passed, which is then the reason to stop."""
        if not self.clock.past():
            return False
        self.reason = "time_limit"
        return True


class StepRule(ABC):
    """A way down: from a feasible model to one with a smaller divergence, feasible all along."""

    @abstractmethod
    def descend(
        self, objective: Objective, theta: MarkovRandomField, feasible: FeasibleSet, trace: Trace
    ) -> MarkovRandomField:
        """The model reached from ``theta``; every value goes through ``trace.record``, which says when to stop."""


@dataclass(frozen=True)
class FixedStep(StepRule):
    """Gradient steps of one size, each followed by the projection (Liu and Domke, 2014, Algorithm 1).

    Parameters
    ----------
    size : float
        Factor of the gradient.
    num_steps : int
    coordinates : {"indicator", "centred"}
        In which the gradient is taken, see :mod:`fastmix.projection.feasible`.
    tol : float
        Stop when no parameter changes by more than this in a step. With 0, all steps are taken.

    Examples
    --------
    >>> PAPER_STEP
    FixedStep(size=0.1, num_steps=60, coordinates='indicator', tol=0.0)
    """

    size: float = 0.1
    num_steps: int = 60
    coordinates: Coordinates = "centred"
    tol: float = 0.0

    def __post_init__(self) -> None:
        _check_common(self, "size", "tol")

    def descend(
        self, objective: Objective, theta: MarkovRandomField, feasible: FeasibleSet, trace: Trace
    ) -> MarkovRandomField:
        """Steps until the number, the tolerance or the clock ends them."""
        for _ in range(self.num_steps):
            value, gradient = objective.evaluate(theta)
            if not trace.record(value, theta):
                return theta
            new = feasible.step(theta, gradient, self.size, self.coordinates, objective.moments)
            change = float(np.abs(new.parameters - theta.parameters).max(initial=0.0))
            theta = new
            if change <= self.tol:
                trace.reason = "tol"
                break
        return theta


@dataclass(frozen=True)
class DecreasingStep(StepRule):
    """Gradient steps that shrink after a while, and the mean of the last models: for gradients that are estimates.

    Step k has the given size up to ``hold * num_steps``, and falls in proportion to ``1 / k`` from there on. The answer
    is the mean of the models after that point, which lies in the feasible set because the set is convex (Polyak and
    Juditsky, 1992).

    Parameters
    ----------
    size, num_steps, coordinates
        As for :class:`FixedStep`.
    hold : float
        Fraction of the steps that have the full size, from 0 to 1.
    """

    size: float = 0.1
    num_steps: int = 60
    coordinates: Coordinates = "centred"
    hold: float = 0.5

    def __post_init__(self) -> None:
        _check_common(self, "size")
        hold = check_positive("hold", self.hold, or_zero=True)
        if hold > 1.0:
            raise ValueError(f"hold must be from 0 to 1, got {self.hold!r}")
        keep_checked(self, hold=hold)

    def descend(
        self, objective: Objective, theta: MarkovRandomField, feasible: FeasibleSet, trace: Trace
    ) -> MarkovRandomField:
        """Steps until the number or the clock ends them."""
        held = math.ceil(self.hold * self.num_steps)
        total, count = np.zeros(theta.num_parameters), 0
        for k in range(self.num_steps):
            value, gradient = objective.evaluate(theta)
            if not trace.record(value, theta):
                break
            size = self.size if k < held else self.size * max(held, 1) / (k + 1)
            theta = feasible.step(theta, gradient, size, self.coordinates, objective.moments)
            if k >= held:
                total += theta.parameters
                count += 1
        return theta.with_parameters(total / count) if count else theta


@dataclass(frozen=True)
class LineSearch(StepRule):
    """Projected gradient steps that never go up: Barzilai-Borwein lengths with Armijo's condition.

    From theta the direction is ``d = P(theta - a g) - theta`` with the projection P, the steepest direction g of the
    coordinates and the length ``a = ||s||^2 / <s, y>`` from the last changes s of theta and y of the gradient; the
    fraction of it is halved until the value falls by 1e-4 of what the slope promises. Needs exact values.

    Parameters
    ----------
    num_steps : int
        The most steps.
    coordinates : {"indicator", "centred"}
    tol : float
        Stop when a step promises less than this, relative to one plus the value.
    first_size : float
        Length of the first step.

    References
    ----------
    E. G. Birgin, J. M. Martínez and M. Raydan, "Nonmonotone spectral projected gradient methods on convex sets",
    SIAM Journal on Optimization 10, 2000 (here in its monotone form).
    """

    num_steps: int = 60
    coordinates: Coordinates = "centred"
    tol: float = 1e-6
    first_size: float = 1.0

    def __post_init__(self) -> None:
        _check_common(self, "first_size", "tol")

    def descend(
        self, objective: Objective, theta: MarkovRandomField, feasible: FeasibleSet, trace: Trace
    ) -> MarkovRandomField:
        """Steps until the number, the tolerance or the clock ends them, or no step goes down any more."""
        if not objective.exact:
            raise ValueError("LineSearch compares values, and this divergence is estimated: use FixedStep instead")
        metric = feasible.metric(self.coordinates)
        size = self.first_size
        value, gradient = objective.evaluate(theta)
        for _ in range(self.num_steps):
            if not trace.record(value, theta):
                return theta
            target = feasible.step(theta, gradient, size, self.coordinates, objective.moments)
            direction = target.parameters - theta.parameters
            slope = float(gradient @ direction)
            if -slope <= self.tol * (1.0 + abs(value)):
                trace.reason = "tol"
                return theta
            fraction, new, new_value = 1.0, target, math.inf
            for _ in range(30):
                if fraction < 1.0:
                    new = theta.with_parameters(theta.parameters + fraction * direction)
                new_value, new_gradient = objective.evaluate(new)
                if new_value <= value + 1e-4 * fraction * slope:
                    break
                # The minimum of the parabola through both values with this slope, but not too close to either.
                best = -0.5 * slope * fraction**2 / (new_value - value - slope * fraction)
                fraction = min(max(best, 0.1 * fraction), 0.5 * fraction)
            else:
                trace.reason = "stationary"
                return theta
            change, turn = new.parameters - theta.parameters, new_gradient - gradient
            curvature = float(change @ turn)
            length = metric.squared_norm(change)
            size = min(max(length / curvature, 1e-6), 1e6) if curvature > 1e-12 * length else min(4.0 * size, 1e6)
            theta, value, gradient = new, new_value, new_gradient
        return theta


def _check_common(rule: Any, size: str, tol: str | None = None) -> None:
    """Check the options that rules have in common, under the names that they have in this one, and keep the results."""
    keep_checked(rule, **{size: check_positive(size, getattr(rule, size))})
    keep_checked(rule, num_steps=check_count("num_steps", rule.num_steps, least=1))
    check_choice("coordinates", rule.coordinates, COORDINATES)
    if tol is not None:
        keep_checked(rule, **{tol: check_positive(tol, getattr(rule, tol), or_zero=True)})


PAPER_STEP = FixedStep(size=0.1, num_steps=60, coordinates="indicator")


def descend(
    objective: Objective,
    theta: MarkovRandomField,
    feasible: FeasibleSet,
    step: StepRule,
    trace: Trace,
    *,
    several: bool,
) -> tuple[MarkovRandomField, float]:
    """The model that a descent from theta reaches, and its value less the constant of the objective.

    ``several`` says whether other starts than theta may be tried. Out of time, or interrupted, which ``trace.reason``
    then says, it is the latest model with a value.
    """
    trace.theta = theta
    try:
        if several:
            theta = objective.begin(theta, feasible, trace)
        theta = step.descend(objective, theta, feasible, trace)
        if objective.exact or not trace.values or trace.reason != "time_limit":
            trace.values.append(objective.value(theta))
        return theta, trace.values[-1]  # out of time, an estimate along the way
    except OutOfTimeError:
        trace.reason = "time_limit"
    except KeyboardInterrupt:
        trace.reason = "interrupted"
    return trace.theta, trace.values[-1] if trace.values else math.nan
