"""Descents: gradient steps toward the minimum of a divergence within the feasible set, and when they end.

Algorithm 1 of Liu and Domke (2014) for their Eq. 7, with further coordinates, rules of steps and stopping rules: every
step is followed by the Euclidean projection. A rule of your own derives from :class:`StepRule`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fastmix._arrays import FloatArray
from fastmix._checks import check_choice, check_count, check_positive, keep_checked
from fastmix._clock import NO_LIMIT, Clock, Ending
from fastmix.model import MarkovRandomField
from fastmix.projection.coordinates import COORDINATES, Coordinates
from fastmix.projection.feasible import FeasibleSet
from fastmix.projection.tuning import (
    ACCEPTED_SHARE_OF_SLOPE,
    FACTOR_OF_STALLED_STEP,
    LARGEST_STEP,
    MAX_HALVINGS,
    SMALLEST_STEP,
)

if TYPE_CHECKING:  # divergences name the rule that suits them
    from fastmix.projection.divergence import Objective

__all__ = ["PAPER_STEP", "DecreasingStep", "FixedStep", "LineSearch", "StepRule", "Trace", "descend"]


@dataclass
class Trace:
    """Record of a descent: the values so far, the latest feasible model, and the rule that ended it.

    Attributes
    ----------
    clock : Clock
        The clock that limits the descent and is told of every step.
    num_steps : int or None
        Number of steps that are planned, where it is known.
    values : list of float
        The divergence at the start and after every step.
    theta : MarkovRandomField or None
        The model at which the latest value was taken.
    stopping_rule : str
        ``num_steps`` (all steps were taken), ``tol``, ``stationary``, ``time_limit`` or ``interrupt``.
    """

    clock: Clock = NO_LIMIT
    num_steps: int | None = None
    values: list[float] = field(default_factory=list)
    theta: MarkovRandomField | None = None
    stopping_rule: str = "num_steps"

    def record(self, value: float, theta: MarkovRandomField) -> bool:
        """Take in the value at a feasible model; returns False when the time is up."""
        if not math.isfinite(value):
            raise ValueError(f"the divergence must be finite at every feasible model, got {value}")
        self.values.append(float(value))
        self.theta = theta
        self.clock.report(len(self.values) - 1, self.num_steps, "iterations")
        return not self.out_of_time()

    def out_of_time(self) -> bool:
        """Whether the time limit has passed; it is then noted as the stopping rule."""
        if not self.clock.past():
            return False
        self.stopping_rule = "time_limit"
        return True


class StepRule(ABC):
    """A way from a feasible model to one with a smaller divergence, through feasible models."""

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
    coordinates : {"indicator", "centered", "fisher"}
        Coordinates in which the gradient is taken, see :mod:`fastmix.projection.coordinates`.
    tol : float
        The descent stops when no parameter changes by more than this in a step. With 0, all steps are taken.

    Examples
    --------
    >>> PAPER_STEP
    FixedStep(size=0.1, num_steps=60, coordinates='indicator', tol=0.0)
    """

    size: float = 0.1
    num_steps: int = 60
    coordinates: Coordinates = "centered"
    tol: float = 0.0

    def __post_init__(self) -> None:
        _check_common(self, "size", "tol")

    def descend(
        self, objective: Objective, theta: MarkovRandomField, feasible: FeasibleSet, trace: Trace
    ) -> MarkovRandomField:
        """The model after steps of equal size, ended by their number, the tolerance or the clock."""
        for _ in range(self.num_steps):
            value, gradient = objective.evaluate(theta)
            if not trace.record(value, theta):
                return theta
            before = theta
            theta = feasible.step(before, gradient, self.size, self.coordinates, objective.moments)
            change = float(np.abs(theta.parameters - before.parameters).max(initial=0.0))
            if change <= self.tol:
                trace.stopping_rule = "tol"
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
    coordinates: Coordinates = "centered"
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
        """The mean of the models after the steps of full size, ended by the number of steps or the clock."""
        num_held = math.ceil(self.hold * self.num_steps)
        parameter_sum = np.zeros(theta.num_parameters)
        num_summed = 0
        for k in range(self.num_steps):
            value, gradient = objective.evaluate(theta)
            if not trace.record(value, theta):
                break
            size = self.size if k < num_held else self.size * max(num_held, 1) / (k + 1)
            theta = feasible.step(theta, gradient, size, self.coordinates, objective.moments)
            if k >= num_held:
                parameter_sum += theta.parameters
                num_summed += 1
        if num_summed == 0:
            return theta
        return theta.with_parameters(parameter_sum / num_summed)


class _Evaluated(NamedTuple):
    """A feasible model with the value and the gradient of the divergence there."""

    theta: MarkovRandomField
    value: float
    gradient: FloatArray


@dataclass(frozen=True)
class LineSearch(StepRule):
    """Projected gradient steps that never go up: Barzilai-Borwein lengths with Armijo's condition.

    From theta the direction is ``d = P(theta - a g) - theta`` with the projection P, the steepest direction g of the
    coordinates and the length ``a = ||s||^2 / <s, y>`` from the last changes s of theta and y of the gradient. The
    fraction of the direction that is taken shrinks until the value falls by 1e-4 of what the slope promises. The rule
    needs exact values.

    Parameters
    ----------
    num_steps : int
        The largest number of steps.
    coordinates : {"indicator", "centered", "fisher"}
        As for :class:`FixedStep`.
    tol : float
        The descent stops when a step promises less than this, relative to one plus the value.
    first_size : float
        Length of the first step.

    References
    ----------
    E. G. Birgin, J. M. Martínez and M. Raydan, "Nonmonotone spectral projected gradient methods on convex sets",
    SIAM Journal on Optimization 10, 2000 (here in its monotone form).
    """

    num_steps: int = 60
    coordinates: Coordinates = "centered"
    tol: float = 1e-6
    first_size: float = 1.0

    def __post_init__(self) -> None:
        _check_common(self, "first_size", "tol")

    def descend(
        self, objective: Objective, theta: MarkovRandomField, feasible: FeasibleSet, trace: Trace
    ) -> MarkovRandomField:
        """The model after steps that go down, ended by their number, the tolerance, the clock, or where none does."""
        if not objective.exact:
            raise ValueError("LineSearch compares values, and this divergence is estimated: use FixedStep instead")
        length = self.first_size
        here = _Evaluated(theta, *objective.evaluate(theta))
        for _ in range(self.num_steps):
            if not trace.record(here.value, here.theta):
                break

            target = feasible.step(here.theta, here.gradient, length, self.coordinates, objective.moments)
            direction = target.parameters - here.theta.parameters
            slope = float(here.gradient @ direction)
            if -slope <= self.tol * (1.0 + abs(here.value)):
                trace.stopping_rule = "tol"
                break

            lower = self._lower_point(objective, here, target, direction, slope)
            if lower is None:
                trace.stopping_rule = "stationary"
                break
            length = self._next_length(feasible, here, lower, length)
            here = lower
        return here.theta

    def _lower_point(
        self,
        objective: Objective,
        here: _Evaluated,
        target: MarkovRandomField,
        direction: FloatArray,
        slope: float,
    ) -> _Evaluated | None:
        """The first point between a model and the target of a step that is low enough; None if no point is."""
        fraction = 1.0
        candidate = target
        for _ in range(MAX_HALVINGS):
            if fraction < 1.0:
                candidate = here.theta.with_parameters(here.theta.parameters + fraction * direction)
            value, gradient = objective.evaluate(candidate)
            if value <= here.value + ACCEPTED_SHARE_OF_SLOPE * fraction * slope:
                return _Evaluated(candidate, value, gradient)
            # The minimum of the parabola through both values with this slope, but not too close to either.
            lowest = -0.5 * slope * fraction**2 / (value - here.value - slope * fraction)
            fraction = min(max(lowest, 0.1 * fraction), 0.5 * fraction)
        return None

    def _next_length(self, feasible: FeasibleSet, here: _Evaluated, lower: _Evaluated, length: float) -> float:
        """The length of the next step by Barzilai and Borwein, from the step between two points."""
        change = lower.theta.parameters - here.theta.parameters
        curvature = float(change @ (lower.gradient - here.gradient))
        squared_length = feasible.metric(self.coordinates).squared_norm(change)
        if curvature > 1e-12 * squared_length:
            return min(max(squared_length / curvature, SMALLEST_STEP), LARGEST_STEP)
        return min(FACTOR_OF_STALLED_STEP * length, LARGEST_STEP)


def _check_common(rule: Any, size: str, tol: str | None = None) -> None:
    """Check the options that rules have in common, under their names in this rule, and keep the checked values."""
    keep_checked(rule, **{size: check_positive(size, getattr(rule, size))})
    keep_checked(rule, num_steps=check_count("num_steps", rule.num_steps, least=1))
    check_choice("coordinates", rule.coordinates, COORDINATES)
    if tol is not None:
        keep_checked(rule, **{tol: check_positive(tol, getattr(rule, tol), or_zero=True)})


#: The rule of Liu and Domke (2014).
PAPER_STEP = FixedStep(size=0.1, num_steps=60, coordinates="indicator")


def descend(
    objective: Objective,
    theta: MarkovRandomField,
    feasible: FeasibleSet,
    step: StepRule,
    trace: Trace,
    *,
    search_start: bool,
) -> tuple[MarkovRandomField, float]:
    """The model that a descent from theta reaches, and its value less the constant of the objective.

    ``search_start`` says whether starts other than theta may be tried. When the time limit or Ctrl-C ends the descent,
    which ``trace.stopping_rule`` then says, the model is the latest one that has a value.
    """
    trace.theta = theta
    with Ending() as ending:
        if search_start:
            theta = objective.begin(theta, feasible, trace)
        theta = step.descend(objective, theta, feasible, trace)
        # Out of time, an estimate along the way serves as the value.
        if objective.exact or not trace.values or trace.stopping_rule != "time_limit":
            trace.values.append(objective.value(theta))
        return theta, trace.values[-1]
    trace.stopping_rule = ending.by
    last_value = trace.values[-1] if trace.values else math.nan
    return trace.theta, last_value
