"""Minimizers of a loss: L-BFGS where all is smooth, accelerated proximal steps for an l1 term or a set to stay in."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fastmix._arrays import FloatArray
from fastmix._clock import Clock, Ending
from fastmix.learning.objective import Loss
from fastmix.learning.penalty import Penalty
from fastmix.learning.scaling import Scaling
from fastmix.learning.tuning import (
    LBFGS_MEMORY,
    LIPSCHITZ_DECAY,
    LIPSCHITZ_GROWTH,
    MAX_CURVATURE,
    ROUNDING_TOLERANCE,
    VALUE_ROUNDING,
)

__all__ = ["Report", "Search", "minimize"]


#: Called with an entry of the history, and the v that it is about.
Report = Callable[[dict[str, Any], FloatArray], None]


class Search:
    """The best point of a search for the least value, and what ended the search.

    Attributes
    ----------
    v : float array (size,)
    value, gradient_norm : float
        At v, penalties included.
    moment_error : float or None
        At v, of losses that compare moments.
    stopped_by : str
        ``done``, ``max_iter``, ``time_limit`` or ``interrupt``.
    num_iterations : int
    """

    def __init__(self, loss: Loss, scaling: Scaling, penalty: Penalty, clock: Clock, report: Report | None) -> None:
        self.loss = loss
        self.scaling = scaling
        self.penalty = penalty
        self.clock = clock
        self.report = report
        self.v = np.zeros(loss.coordinates.size)
        self.value = math.inf
        self.gradient_norm = math.inf
        self.moment_error: float | None = None
        self.stopped_by = "max_iter"
        self.num_iterations = 0
        self._calls = 0
        self._error_here: float | None = None

    def smooth(self, z: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """The value of the smooth part at z, its derivative with respect to z, and the v of z."""
        if self._calls:
            self.clock.check()
        self._calls += 1
        v = self.scaling.to_v(z)
        value, gradient = self.loss.evaluate(v)
        if self.loss.compares_moments:
            self._error_here = self.loss.coordinates.moment_error(gradient)
        ridge = self.penalty.ridge
        return value + 0.5 * ridge * float(v @ v), self.scaling.pull(gradient + ridge * v), v

    def note(self, v: FloatArray, value: float, norm: float, *, last: bool = False) -> None:
        """Keep a point if it is the best, or the last."""
        if value <= self.value or last:
            self.v = v
            self.value = value
            self.gradient_norm = norm
            self.moment_error = self._error_here

    def tell(self, norm: float, step: float) -> None:
        """Report an iteration with the size of its gradient and the length of its step."""
        self.num_iterations += 1
        if self.report is not None:
            entry = {
                "iteration": self.num_iterations,
                "value": self.value,
                "gradient_norm": norm,
                "moment_error": self.moment_error,
                "step": step,
            }
            self.report(entry, self.v)


def minimize(
    loss: Loss,
    v: FloatArray,
    scaling: Scaling,
    penalty: Penalty,
    *,
    tol: float,
    max_iter: int,
    clock: Clock,
    report: Report | None = None,
) -> Search:
    """The search for the least value of a loss with a penalty, from v on.

    It ends when the derivative in the scaled coordinates (the length of a proximal step, with an l1 term or a set) has
    no entry above ``tol``. Ctrl-C and the end of the time return the best point so far.
    """
    search = Search(loss, scaling, penalty, clock, report)
    with Ending() as ending:
        if penalty.is_smooth:
            _lbfgs(search, v, tol, max_iter)
        else:
            _accelerated(search, v, tol, max_iter)
    if ending.by != "done":
        search.stopped_by = ending.by
    return search


def _lbfgs(search: Search, v: FloatArray, tol: float, max_iter: int) -> None:
    """Go down by L-BFGS, from v on."""
    from scipy.optimize import minimize

    last = search.scaling.from_v(v)

    def evaluate(z: FloatArray) -> tuple[float, FloatArray]:
        """Value and derivative at z, which is noted."""
        value, gradient, at = search.smooth(z)
        search.note(at, value, float(np.abs(gradient).max(initial=0.0)))
        return value, gradient

    def step(z: FloatArray) -> None:
        """Report an iteration that ended at z."""
        nonlocal last
        search.tell(search.gradient_norm, float(np.linalg.norm(z - last)))
        last = z.copy()

    options = {"maxiter": max_iter, "maxfun": 2 * max_iter + 20, "maxcor": LBFGS_MEMORY, "ftol": 0.0, "gtol": tol}
    answer = minimize(evaluate, last, jac=True, method="L-BFGS-B", callback=step, options=options)
    # A line search that finds no decrease any more has reached what rounding allows; status 1 is the end of max_iter.
    rounded = answer.status != 1 and search.gradient_norm <= ROUNDING_TOLERANCE * tol
    if search.gradient_norm <= tol or rounded:
        search.stopped_by = "done"


def _accelerated(search: Search, v: FloatArray, tol: float, max_iter: int) -> None:
    """Go down by accelerated proximal gradient steps with backtracking, from v on.

    They begin anew whenever the momentum points uphill.
    """
    scaling = search.scaling
    penalty = search.penalty
    steepest = MAX_CURVATURE * max(1.0, penalty.ridge)
    z = scaling.from_v(penalty.into_set(v))
    value, gradient, at = search.smooth(z)
    search.note(at, value + penalty.table_cost(scaling.coordinates, at), math.inf)
    ahead = z
    ahead_value = value
    ahead_gradient = gradient
    t = 1.0
    lipschitz = 1.0
    for _ in range(max_iter):
        # Shorten the step until a parabola through its beginning is above the objective at its end.
        while True:
            new = penalty.backward(scaling, ahead - ahead_gradient / lipschitz, lipschitz)
            move = new - ahead
            new_value, new_gradient, new_at = search.smooth(new)
            bound = ahead_value + float(ahead_gradient @ move) + 0.5 * lipschitz * float(move @ move)
            if new_value <= bound + VALUE_ROUNDING * (1.0 + abs(bound)) or lipschitz > steepest:
                break
            lipschitz *= LIPSCHITZ_GROWTH
        norm = lipschitz * float(np.abs(move).max(initial=0.0))
        search.note(new_at, new_value + penalty.table_cost(scaling.coordinates, new_at), norm, last=norm <= tol)
        search.tell(norm, float(np.linalg.norm(new - z)))
        if norm <= tol:
            search.stopped_by = "done"
            return

        # Momentum, forgotten where it points uphill (the gradient scheme of O'Donoghue and Candes).
        if float(move @ (new - z)) < 0.0 or float((ahead - new) @ (new - z)) > 0.0:
            t = 1.0
        later = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * t * t))
        ahead = new + (t - 1.0) / later * (new - z)
        if t > 1.0:
            ahead_value, ahead_gradient, _ = search.smooth(ahead)
        else:
            ahead = new
            ahead_value = new_value
            ahead_gradient = new_gradient
        z = new
        t = later
        lipschitz *= LIPSCHITZ_DECAY
