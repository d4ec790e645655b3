"""What all solvers of the Euclidean projection share: the goal, the solution so far, and the loops around a step.

Every solver takes the limit c and scales what it returns to a cap a little below it, which leaves room for rounding;
lower bounds are for the limit itself. It keeps the best feasible z it has met and the best lower bound, so their
difference is an honest gap.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastmix._arrays import FloatArray
from fastmix._clock import NO_LIMIT, Clock, Ending
from fastmix.projection.tuning import LBFGS_MEMORY, ROUNDING_MARGIN

__all__ = ["Goal", "Solution", "descend_dual", "repeat"]


@dataclass(frozen=True, eq=False)
class Goal:
    """The task of a solver: the bound on the norm, the relative gap to reach, where to start, and when to stop.

    Attributes
    ----------
    limit : float
        The bound on the norm.
    tol : float
        The relative gap at which the solver ends: gap / (1 + squared distance).
    max_iter : int
        The largest number of iterations.
    start : float array or None
        Multipliers of an earlier solution to begin with; each solver has its own shape, and ignores any other.
    clock : Clock
        The clock that limits the solver and is told of its iterations.
    """

    limit: float
    tol: float
    max_iter: int
    start: FloatArray | None = None
    clock: Clock = NO_LIMIT

    @property
    def cap(self) -> float:
        """The norm that answers are scaled to, a little below the limit."""
        return self.limit * (1.0 - ROUNDING_MARGIN)


@dataclass
class Solution:
    """State of a solver: the best feasible point, the best lower bound, and multipliers for a warm start.

    Attributes
    ----------
    z : float array
        The best feasible point, a number for every item.
    multipliers : float array
        The multipliers that a later call may begin with.
    primal, dual : float
        The squared distance at the best feasible point, and the best lower bound on the least squared distance.
    iterations : int
        The number of iterations so far.
    converged, interrupted, late : bool
        Whether the gap is small enough; whether Ctrl-C, or the time limit, ended the solver.
    history : list of (int, float, float)
        Iteration, ``primal`` and ``dual`` after every update.
    facts : dict
        Further entries for ``stats`` of the result.
    """

    z: FloatArray
    multipliers: FloatArray
    primal: float = np.inf
    dual: float = -np.inf
    iterations: int = 0
    converged: bool = False
    interrupted: bool = False
    late: bool = False
    history: list[tuple[int, float, float]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def update(self, primal: float, dual: float, z: FloatArray, tol: float) -> bool:
        """Take in a feasible point and a lower bound; returns True when the relative gap is small enough."""
        if primal < self.primal:
            self.primal = primal
            self.z = z.copy()
        self.dual = max(self.dual, dual)
        self.history.append((self.iterations, self.primal, self.dual))
        self.converged = self.primal - self.dual <= tol * (1.0 + self.primal)
        return self.converged


def repeat(step: Callable[[], bool], solution: Solution, goal: Goal) -> None:
    """Repeat a step until it returns True, or iterations, time or Ctrl-C end it; the solution keeps the best point."""
    with Ending() as ending:
        while solution.iterations < goal.max_iter and not step():
            goal.clock.report(solution.iterations, None, "iterations")
            if goal.clock.past():
                solution.late = True
                break
    solution.interrupted |= ending.interrupted


def descend_dual(
    value: Callable[[FloatArray], tuple[float, FloatArray]],
    solution: Solution,
    after_step: Callable[[FloatArray], None],
    max_steps: int,
    lower_bound: float = -np.inf,
) -> None:
    """Minimize a function by L-BFGS-B from the multipliers of a solution, until ``after_step`` raises StopIteration.

    ``value`` returns the function and its gradient, or ends the search by an :class:`OutOfTimeError`: a step may take
    many of them. Every multiplier stays at least ``lower_bound``.
    """
    from scipy.optimize import Bounds, minimize

    start = solution.multipliers.ravel()
    options = {"maxiter": max_steps, "maxfun": 40 * max_steps, "ftol": 0.0, "gtol": 0.0, "maxcor": LBFGS_MEMORY}
    bounds = None
    if lower_bound > -np.inf:
        bounds = Bounds(np.full(len(start), lower_bound), np.full(len(start), np.inf))
    with Ending() as ending:
        minimize(value, start, jac=True, method="L-BFGS-B", bounds=bounds, callback=after_step, options=options)
    solution.interrupted |= ending.interrupted
    solution.late |= ending.by == "time_limit"
