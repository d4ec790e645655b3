"""Minimisers: L-BFGS for smooth objectives, accelerated proximal steps for an l1 term or a set to stay in."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from fastmix._arrays import FloatArray
from fastmix._clock import Clock, OutOfTimeError
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.objectives import ExactLikelihood, Objective

__all__ = ["Ball", "Scaling", "Search", "backward", "minimise", "shrink_tables", "table_cost", "table_norms"]


Report = Callable[[dict[str, Any], FloatArray], None]  # an entry of the history, and the v that it is about

_LEAST_VARIANCE = 1e-2  # of a contrast, for its scale: constant columns would have infinite scales


class Ball(Protocol):
    """From v to the closest v within a set of tables; the rest stays."""

    memory: FloatArray | None  # what the next projection begins with

    def __call__(self, v: FloatArray) -> FloatArray: ...  # noqa: D102


@dataclass(frozen=True, eq=False)
class Scaling:
    """Better conditioned coordinates z of v: contrasts are centred at their means, and have unit variances.

    With ``c = b - C m`` the log-weight is ``b . y + (y - m)' C (y - m) / 2`` plus a constant: features of edges are
    then nearly uncorrelated with those of variables. b and C are scaled by the standard deviations of their features
    under the independent model with the same means.
    """

    coordinates: Coordinates
    means: FloatArray
    scales: FloatArray

    @classmethod
    def of(cls, coordinates: Coordinates, means: FloatArray, variances: FloatArray, alike: str) -> Scaling:
        """The scaling for means and variances (D,) of the contrasts.

        ``alike`` says whether "entries" of tables have scales of their own, "edges" have one each (as groups of the l1
        term), or "all" have the same (a projection is Euclidean in C).
        """
        spread = np.sqrt(np.maximum(variances, _LEAST_VARIANCE))
        pairs = spread[coordinates.rows] * spread[coordinates.cols]
        if alike == "edges" and len(pairs):
            edge = coordinates.edge_of
            squares = np.bincount(edge, pairs**2, coordinates.structure.num_edges)
            pairs = np.sqrt(squares / np.maximum(1, np.diff(coordinates.pair_starts)))[edge]
        elif alike == "all" and len(pairs):
            pairs = np.full(len(pairs), float(np.sqrt(np.mean(pairs**2))))
        return cls(coordinates, means, 1.0 / np.concatenate([spread, pairs]))

    def to_v(self, z: FloatArray) -> FloatArray:
        """The v of scaled coordinates."""
        v = self.scales * z
        v[: len(self.means)] -= self._products(v, self.means)
        return v

    def from_v(self, v: FloatArray) -> FloatArray:
        """The scaled coordinates of v."""
        centred = v.copy()
        centred[: len(self.means)] += self._products(v, self.means)
        return centred / self.scales

    def pull(self, gradient: FloatArray) -> FloatArray:
        """The derivative with respect to z of what has this one with respect to v."""
        d, rows, cols = len(self.means), self.coordinates.rows, self.coordinates.cols
        g = gradient.copy()
        g[d:] -= gradient[rows] * self.means[cols] + gradient[cols] * self.means[rows]
        return g * self.scales

    def _products(self, v: FloatArray, m: FloatArray) -> FloatArray:
        """C m, by contrasts."""
        d, rows, cols = len(m), self.coordinates.rows, self.coordinates.cols
        values = v[d:]
        return np.asarray(np.bincount(rows, values * m[cols], d) + np.bincount(cols, values * m[rows], d))


class Search:
    """The best point found, the penalised value there, and what ended the search, which is for the objective in z."""

    def __init__(
        self, objective: Objective, scaling: Scaling, ridge: float, clock: Clock, report: Report | None
    ) -> None:
        self.objective, self.scaling, self.ridge, self.clock, self.report = objective, scaling, ridge, clock, report
        self.v, self.value, self.gradient_norm = np.zeros(objective.coordinates.size), math.inf, math.inf
        self.moment_error: float | None = None  # of likelihoods
        self.stopped_by = "max_iter"  # or done, time_limit, interrupt
        self.num_iterations = self._calls = 0
        self._error_here: float | None = None

    def smooth(self, z: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Value, derivative and v."""
        if self._calls:
            self.clock.check()
        self._calls += 1
        v = self.scaling.to_v(z)
        value, gradient = self.objective.evaluate(v)
        if isinstance(self.objective, ExactLikelihood):
            self._error_here = self.objective.coordinates.moment_error(gradient)
        return value + 0.5 * self.ridge * float(v @ v), self.scaling.pull(gradient + self.ridge * v), v

    def note(self, v: FloatArray, value: float, norm: float, *, last: bool = False) -> None:
        """Keep a point if it is the best, or the last."""
        if value <= self.value or last:
            self.v, self.value, self.gradient_norm, self.moment_error = v, value, norm, self._error_here

    def tell(self, norm: float, step: float) -> None:
        """Report an iteration."""
        self.num_iterations += 1
        if self.report is not None:
            entry = {"iteration": self.num_iterations, "value": self.value, "gradient_norm": norm}
            self.report({**entry, "moment_error": self.moment_error, "step": step}, self.v)


def minimise(
    objective: Objective,
    v: FloatArray,
    scaling: Scaling,
    *,
    ridge: float,
    l1: float = 0.0,
    ball: Ball | None = None,
    tol: float,
    max_iter: int,
    clock: Clock,
    report: Report | None = None,
) -> Search:
    """The least value of ``objective + ridge/2 |v|^2 + l1 sum_e |C_e|`` within a set; from v on.

    The search ends when the derivative in the scaled coordinates (the length of a proximal step, with an l1 term or a
    set) has no entry above ``tol``. Ctrl-C and the end of the time return the best point so far.
    """
    best = Search(objective, scaling, ridge, clock, report)
    try:
        if l1 or ball is not None:
            _proximal(best, v, l1, ball, tol, max_iter)
        else:
            _lbfgs(best, v, tol, max_iter)
    except OutOfTimeError:
        best.stopped_by = "time_limit"
    except KeyboardInterrupt:
        best.stopped_by = "interrupt"
    return best


def _lbfgs(best: Search, v: FloatArray, tol: float, max_iter: int) -> None:
    from scipy.optimize import minimize

    last = best.scaling.from_v(v)

    def evaluate(z: FloatArray) -> tuple[float, FloatArray]:
        value, gradient, at = best.smooth(z)
        best.note(at, value, float(np.abs(gradient).max(initial=0.0)))
        return value, gradient

    def step(z: FloatArray) -> None:
        nonlocal last
        best.tell(best.gradient_norm, float(np.linalg.norm(z - last)))
        last = z.copy()

    options = {"maxiter": max_iter, "maxfun": 2 * max_iter + 20, "maxcor": 20, "ftol": 0.0, "gtol": tol}
    answer = minimize(evaluate, last, jac=True, method="L-BFGS-B", callback=step, options=options)
    # A line search that finds no decrease any more has reached what rounding allows; status 1 is the end of max_iter.
    if best.gradient_norm <= tol or (answer.status != 1 and best.gradient_norm <= 1e3 * tol):
        best.stopped_by = "done"


def _proximal(best: Search, v: FloatArray, l1: float, ball: Ball | None, tol: float, max_iter: int) -> None:
    """Accelerated proximal gradient steps with backtracking, begun anew whenever the momentum points uphill."""
    scaling, cost = best.scaling, partial(table_cost, best.scaling.coordinates, l1)
    steepest = 1e12 * max(1.0, best.ridge)  # curvature that no rounding explains
    z = scaling.from_v(v if ball is None else ball(v))
    value, gradient, at = best.smooth(z)
    best.note(at, value + cost(at), math.inf)
    ahead, ahead_value, ahead_gradient, t, lipschitz = z, value, gradient, 1.0, 1.0
    for _ in range(max_iter):
        while True:
            new = backward(scaling, ahead - ahead_gradient / lipschitz, l1, ball, lipschitz)
            move = new - ahead
            new_value, new_gradient, new_at = best.smooth(new)
            bound = ahead_value + float(ahead_gradient @ move) + 0.5 * lipschitz * float(move @ move)
            if new_value <= bound + 1e-13 * (1.0 + abs(bound)) or lipschitz > steepest:
                break
            lipschitz *= 2.0
        norm = lipschitz * float(np.abs(move).max(initial=0.0))
        best.note(new_at, new_value + cost(new_at), norm, last=norm <= tol)
        best.tell(norm, float(np.linalg.norm(new - z)))
        if norm <= tol:
            best.stopped_by = "done"
            return
        if float(move @ (new - z)) < 0.0 or float((ahead - new) @ (new - z)) > 0.0:
            t = 1.0  # the gradient scheme of O'Donoghue and Candes
        later = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * t * t))
        ahead = new + (t - 1.0) / later * (new - z)
        if t > 1.0:
            ahead_value, ahead_gradient, _ = best.smooth(ahead)
        else:
            ahead, ahead_value, ahead_gradient = new, new_value, new_gradient
        z, t = new, later
        lipschitz *= 0.9


def table_norms(coordinates: Coordinates, v: FloatArray) -> FloatArray:
    """Frobenius norm of every table, (m,); ``2 |J|`` for an Ising coupling."""
    squares = v[coordinates.num_contrasts :] ** 2
    return np.sqrt(np.bincount(coordinates.edge_of, squares, coordinates.structure.num_edges))


def table_cost(coordinates: Coordinates, l1: float, v: FloatArray) -> float:
    """The l1 term."""
    return l1 * float(table_norms(coordinates, v).sum()) if l1 else 0.0


def backward(scaling: Scaling, z: FloatArray, l1: float, ball: Ball | None, lipschitz: float) -> FloatArray:
    """The proximal step for the l1 term, or for a set, from z."""
    if ball is not None:
        return scaling.from_v(ball(scaling.to_v(z)))
    by = l1 * scaling.scales[scaling.coordinates.num_contrasts :] / lipschitz
    return shrink_tables(scaling.coordinates, z, by)


def shrink_tables(coordinates: Coordinates, v: FloatArray, by: FloatArray | float) -> FloatArray:
    """V with the norms of all tables reduced, to 0 at least, by a number or by one for each entry, equal in a table."""
    norms = table_norms(coordinates, v)[coordinates.edge_of]
    result = v.copy()
    # No quotient where the table vanishes: a small norm would make it overflow.
    shares = np.divide(by, norms, out=np.ones_like(norms), where=norms > by)
    result[coordinates.num_contrasts :] *= 1.0 - shares
    return result
