"""The set of models within a norm bound: the nearest model of it, and gradient steps in it.

The set is that of Eq. 7 of Liu and Domke (2014).

A step of steepest descent depends on the coordinates. Three are offered:

- ``indicator``: every entry of every unary and table is a coordinate, as in the paper.
- ``centred``: the log-weight ``sum_i u_i(x_i) + sum_ij T_ij(x_i, x_j)`` is written with unaries that have mean zero and
  tables whose rows and columns have mean zero, which is unique (the ANOVA decomposition), and the length of a change is
  its standard deviation over all configurations, ``sum_i mean(u_i^2) + sum_ij mean(T_ij^2)``. This is the Fisher metric
  of the uniform distribution. For Ising models it is the step in field and coupling (h, J).
- ``fisher``: the centred coordinates, each unary and each table scaled by the mean variance that it has under the model
  at hand instead of the uniform distribution: by ``1 - L_i ||P p_i||^2 / (L_i - 1)`` with the marginal p_i, and by
  ``1 - L_i L_j ||P p_ij P||^2 / ((L_i - 1)(L_j - 1))`` with the joint marginal p_ij: for Ising models the variances of
  spins, ``1 - m_i^2``, and of their products. Steps grow as gradients vanish. Needs a divergence that knows the
  marginals of theta.

With the gradient g by indicator entries, L states a variable and P the projection that takes the mean away, the
steepest directions are g itself, or ``L_i P g_i`` for unaries and ``L_i L_j P g_ij P`` for tables. A step and the
projection after it must measure length alike, so the projection weighs the tables by ``1 / (L_i L_j)`` in centred
coordinates, which matters only where state counts differ, and by the variance over ``L_i L_j`` in the last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Literal, get_args

import numpy as np

from fastmix._arrays import FloatArray
from fastmix._clock import NO_LIMIT, Clock, OutOfTimeError
from fastmix.errors import UnfitMethodError
from fastmix.model import MarkovRandomField
from fastmix.model.build import table_positions
from fastmix.model.centre import centre_pairs
from fastmix.projection.edges import EdgeCosts, edge_costs, interactions
from fastmix.projection.euclidean import MARGIN, Solution, Target, solve_frobenius, solve_inf
from fastmix.projection.paper_dual import PaperDual, solve_paper
from fastmix.projection.spectral import solve_spectral
from fastmix.theory.dependency import Dependency, edge_dependencies, to_matrix
from fastmix.theory.norms import Norm, matrix_norm

__all__ = ["COORDINATES", "SOLVERS", "Coordinates", "FeasibleSet", "Metric"]

_MOST_SHRINKS = 100  # each of which takes at least half of what is left above the bound, or 16 digits
_SETTLE_SHARE = 0.05  # of a time limit, for a measure of the result when it is over
_NOTICED = 1.001  # times the bound: more is not due to rounding
_RECENTRE = 20  # shrinks without success after which parts of one variable leave the tables
_LEAST_VARIANCE = 0.05  # relative to the uniform distribution: a limit to how much longer steps get

Coordinates = Literal["indicator", "centred", "fisher"]
COORDINATES: tuple[str, ...] = get_args(Coordinates)

SOLVERS: dict[str, Callable[[EdgeCosts, Target], Solution]] = {
    "inf": solve_inf,
    "1": solve_inf,  # Z is symmetric
    "spectral": solve_spectral,
    "frobenius": solve_frobenius,
}


@dataclass(eq=False)
class FeasibleSet:
    """Models on one graph, with finite entries, whose dependency norm is bounded, and steps within them.

    The bound and the options are those of :func:`fastmix.project`; after the limit of the clock projections must be
    fast rather than exact.
    """

    model: MarkovRandomField
    _: KW_ONLY
    norm_bound: float
    norm: Norm = "inf"
    dependency: Dependency = "range"
    solver: Literal["fast"] | PaperDual = "fast"
    tol: float = 1e-6
    max_iter: int = 10_000
    clock: Clock = NO_LIMIT
    num_projections: int = field(default=0, init=False)
    num_inexact: int = field(default=0, init=False)
    cut_short: bool = field(default=False, init=False)  # for want of time shrunk by more than rounding asks for
    _multipliers: FloatArray | None = field(default=None, init=False)  # of the last projection
    _metrics: dict[Coordinates, Metric] = field(default_factory=dict, init=False)

    def measure(self, model: MarkovRandomField, clock: Clock | None = None) -> tuple[FloatArray, float]:
        """The dependency of every edge (m,), the larger of both directions, and its norm from above."""
        clock = self.clock if clock is None else clock
        z = edge_dependencies(model, dependency=self.dependency, clock=clock).max(axis=1, initial=0.0)
        return z, matrix_norm(to_matrix(model, z), self.norm, clock=clock)

    def nearest(
        self,
        model: MarkovRandomField,
        *,
        start: FloatArray | None = None,
        weights: FloatArray | None = None,
        clock: Clock | None = None,
    ) -> tuple[MarkovRandomField, Solution]:
        """The model with the closest tables, but for rounding, and how it was found; the unaries stay as they are.

        Factors over three or more variables are scaled, each as a whole. ``start`` are multipliers of an earlier
        solution, ``weights`` (m,) what the squared distance of every table counts; the paper's dual counts all alike.
        """
        clock = self.clock if clock is None else clock
        target = Target(self.norm_bound, self.tol, self.max_iter, start, clock)
        if isinstance(self.solver, PaperDual):
            solution, tables = solve_paper(model, self.norm, self.dependency, self.solver, target)
            self._multipliers = solution.multipliers
            return model.replace(log_pairwise=tables), solution
        try:
            costs = weighted = edge_costs(model, self.dependency, clock)
            if weights is not None:
                of_knot = np.repeat(weights, np.diff(costs.start))
                weighted = replace(costs, mu=costs.mu * of_knot, f=costs.f * of_knot, quadratic=False)
            solution = SOLVERS[self.norm](weighted, target)
            theta = model.replace(log_pairwise=costs.tables(solution.z), log_factors=costs.factors(solution.z))
        except OutOfTimeError:  # within the bound, if not the closest
            size = self.measure(model, clock)[1]
            theta = self.shrunk(model, min(1.0, self.norm_bound / max(size, 1e-300)))
            solution = Solution(np.zeros(0), np.zeros(0), late=True)
        self._multipliers = solution.multipliers
        return theta, solution

    def metric(self, coordinates: Coordinates) -> Metric:
        """The metric of some coordinates, made once."""
        if coordinates not in self._metrics:
            self._metrics[coordinates] = Metric(self.model, coordinates)
        return self._metrics[coordinates]

    def step(
        self,
        theta: MarkovRandomField,
        gradient: FloatArray,
        size: float,
        coordinates: Coordinates,
        moments: FloatArray | None = None,
    ) -> MarkovRandomField:
        """A step of the given size against the gradient (by indicator entries), and back into the set.

        ``moments`` are the marginals of theta, which ``fisher`` coordinates need.
        """
        metric = self.metric(coordinates)
        metric.adapt(moments)
        return self.project(theta.parameters - size * metric.steepest(gradient), coordinates)

    def project(self, parameters: FloatArray, coordinates: Coordinates) -> MarkovRandomField:
        """The closest model of the set, but for rounding, in the metric of some coordinates."""
        self.num_projections += 1
        weights = self.metric(coordinates).edge_weights
        model = self.model.with_parameters(parameters)
        # For the infinity norm the fast solver sees at once that there is nothing to do.
        if (self.norm != "inf" or self.solver != "fast") and self.measure(model)[1] <= self.norm_bound:
            return model
        theta, solution = self.nearest(model, start=self._multipliers, weights=weights)
        if solution.interrupted:
            raise KeyboardInterrupt
        self.num_inexact += solution.late or not solution.converged
        return theta

    def settle(self, theta: MarkovRandomField) -> tuple[MarkovRandomField, FloatArray, float]:
        """A model that lies in the set but for rounding, moved into it from the safe side; with what measures it."""
        slack = 4.0 * MARGIN  # a hair's breadth is enough, unless entries are so large that their rounding is more
        for count in range(_MOST_SHRINKS):
            z, size = self.measure(theta, self.clock.part(0.3, least=_SETTLE_SHARE))
            if size <= self.norm_bound:
                return theta, z, size
            self.cut_short |= self.clock.past() and size > _NOTICED * self.norm_bound
            theta = self.shrunk(theta, self.norm_bound / size * (1.0 - slack))
            slack = min(2.0 * slack, 0.5)
            if count % _RECENTRE == _RECENTRE - 1:  # what nothing bounds is larger than the rest, and its rounding too
                theta = centre_pairs(theta, means_only=self.dependency != "range")
        raise UnfitMethodError(
            f"norm_bound={self.norm_bound:g} is below what the entries of this model, up to "
            f"{np.abs(theta.parameters).max(initial=0.0):.3g}, are rounded to: give a model with smaller ones"
        )

    def shrunk(self, theta: MarkovRandomField, factor: float) -> MarkovRandomField:
        """The model with everything that the bound limits multiplied by a factor."""
        rest = interactions(theta, theta.log_pairwise, self.dependency)
        return theta.replace(
            log_pairwise=theta.log_pairwise - (1.0 - factor) * rest, log_factors=factor * theta.log_factors
        )

    def remember(self, model: MarkovRandomField) -> None:
        """Keep what was proved of the model that was settled, with all its variables; nothing for norms."""


class Metric:
    """Steepest directions and lengths for the models on one graph.

    ``edge_weights`` (m,) are what the squared Frobenius norm of every table counts in a length, 1 at most; None when
    all count the same.
    """

    def __init__(self, model: MarkovRandomField, coordinates: Coordinates) -> None:
        self.model = model
        self.coordinates = coordinates
        self.edge_weights: FloatArray | None = None
        self._variances, self._table_variances = np.ones(model.num_variables), np.ones(model.num_edges)
        if coordinates == "indicator":
            return
        states, (first, second) = model.num_states, model.edges.T
        sizes = states[first] * states[second]
        if len(sizes) and sizes.min() < sizes.max():
            self.edge_weights = sizes.min() / sizes
        self._owner = np.repeat(np.arange(model.num_variables), states)
        self._table, row, col = table_positions(states, model.edges)
        self._sizes = sizes[self._table].astype(np.float64)
        # For both ends of every entry of a table: the place of its state, and the number of states of the other end.
        self._ends = (
            (model.unary_offsets[first][self._table] + row, states[second][self._table]),
            (model.unary_offsets[second][self._table] + col, states[first][self._table]),
        )

    def adapt(self, moments: FloatArray | None) -> None:
        """Take the variances of the model whose moments (all its marginals, as ``parameters``) are given.

        Only ``fisher`` coordinates depend on them.
        """
        if self.coordinates != "fisher":
            return
        if moments is None:
            raise ValueError("coordinates='fisher' needs a divergence that knows the marginals; use 'centred'")
        states, (first, second) = self.model.num_states, self.model.edges.T
        unary, tables = self._centre(moments)
        squares = np.bincount(self._owner, unary**2, self.model.num_variables)
        # A variable of one state has no variance and no step: any number does.
        variance = 1.0 - squares * states / np.maximum(states - 1, 1)
        self._variances = np.maximum(variance, _LEAST_VARIANCE)
        sizes = states[first] * states[second]
        squares = np.bincount(self._table, tables**2, self.model.num_edges)
        variance = 1.0 - squares * sizes / np.maximum((states[first] - 1) * (states[second] - 1), 1)
        self._table_variances = np.maximum(variance, _LEAST_VARIANCE)
        self.edge_weights = self._table_variances * (sizes.min(initial=1) / sizes)

    def steepest(self, gradient: FloatArray) -> FloatArray:
        """The direction of steepest ascent, aligned with ``model.parameters``, from the gradient by all entries."""
        if self.coordinates == "indicator":
            return gradient
        unary, tables = self._centre(gradient)
        unary *= (self.model.num_states / self._variances)[self._owner]
        return np.concatenate([unary, tables * self._sizes / self._table_variances[self._table]])

    def squared_norm(self, change: FloatArray) -> float:
        """Squared length of a change of the parameters."""
        if self.coordinates == "indicator":
            return float(change @ change)
        change, split = change.copy(), len(self.model.log_unary)
        for place, others in self._ends:  # what the tables say about single variables counts as part of their unaries
            change[:split] += np.bincount(place, change[split:] / others, split)
        unary, tables = self._centre(change)
        lengths = unary**2 * (self._variances / self.model.num_states)[self._owner]
        return float(lengths.sum() + np.sum(tables**2 * (self._table_variances[self._table] / self._sizes)))

    def _centre(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Unaries with mean zero, and tables with rows and columns of mean zero."""
        unary, tables = np.split(values, [len(self.model.log_unary)])
        means = np.bincount(self._owner, unary, self.model.num_variables) / self.model.num_states
        return unary - means[self._owner], interactions(self.model, tables, "range")
