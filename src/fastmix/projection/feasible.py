"""``FeasibleSet``: the models within a norm bound, the nearest model of the set, and gradient steps in it.

The set is that of Eq. 7 of Liu and Domke (2014).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Literal

import numpy as np

from fastmix._arrays import FloatArray
from fastmix._checks import as_flat
from fastmix._clock import NO_LIMIT, Clock, OutOfTimeError
from fastmix.errors import UnfitMethodError
from fastmix.model import MarkovRandomField
from fastmix.model.forms import center_pairs
from fastmix.projection.contrasts import Bound, interactions, shrunk_patterns
from fastmix.projection.coordinates import Coordinates, Metric
from fastmix.projection.edges import EdgeCosts, edge_costs
from fastmix.projection.euclidean import solve_frobenius, solve_inf
from fastmix.projection.paper_dual import PaperDual, solve_paper
from fastmix.projection.solution import Goal, Solution
from fastmix.projection.spectral import solve_spectral
from fastmix.projection.tuning import (
    LEAST_SETTLE_SHARE,
    MAX_SHRINKS,
    NOTICED_EXCESS,
    ROUNDING_MARGIN,
    SETTLE_SHARE,
    SHRINKS_BEFORE_CENTERING,
)
from fastmix.theory.dependency import edge_dependencies, to_matrix
from fastmix.theory.norms import Norm, matrix_norm

__all__ = ["SOLVERS", "FeasibleSet"]

SOLVERS: dict[str, Callable[[EdgeCosts, Goal], Solution]] = {
    "inf": solve_inf,
    "1": solve_inf,  # Z is symmetric
    "spectral": solve_spectral,
    "frobenius": solve_frobenius,
}


@dataclass(eq=False)
class FeasibleSet:
    """Models on one graph, with finite entries, whose dependency norm is bounded, and steps within them.

    The bound and the options are those of :func:`fastmix.project`. After the limit of the clock, projections are fast
    rather than exact.

    Attributes
    ----------
    num_projections, num_inexact : int
        Projections of a descent so far, and how many of them ended before the gap was small enough.
    cut_short : bool
        Whether the result was shrunk by more than rounding asks for, because the time was over.
    """

    model: MarkovRandomField
    _: KW_ONLY
    norm_bound: float
    norm: Norm = "inf"
    dependency: Bound = "range"
    solver: Literal["fast"] | PaperDual = "fast"
    tol: float = 1e-6
    max_iter: int = 10_000
    clock: Clock = NO_LIMIT
    num_projections: int = field(default=0, init=False)
    num_inexact: int = field(default=0, init=False)
    cut_short: bool = field(default=False, init=False)
    _multipliers: FloatArray | None = field(default=None, init=False)  # of the last projection
    _metrics: dict[Coordinates, Metric] = field(default_factory=dict, init=False)

    # -- measuring ----------------------------------------------------------------------------------------------------

    def measure(self, model: MarkovRandomField, clock: Clock | None = None) -> tuple[FloatArray, float]:
        """The dependency of every edge (m,), the larger of both directions, and a safe upper bound on its norm."""
        clock = self.clock if clock is None else clock
        z = edge_dependencies(model, dependency=self.dependency, clock=clock).max(axis=1, initial=0.0)
        return z, matrix_norm(to_matrix(model, z), self.norm, clock=clock)

    def size(self, model: MarkovRandomField, clock: Clock | None = None) -> float:
        """A safe upper bound on the norm."""
        return self.measure(model, clock)[1]

    # -- the nearest model --------------------------------------------------------------------------------------------

    def nearest(
        self,
        model: MarkovRandomField,
        *,
        start: FloatArray | None = None,
        weights: FloatArray | None = None,
        clock: Clock | None = None,
    ) -> tuple[MarkovRandomField, Solution]:
        """The model of the set with the closest tables, but for rounding, and how it was found.

        Unaries stay as they are. Factors over three or more variables are scaled, each as a whole. ``start`` are
        multipliers of an earlier solution, ``weights`` (m,) what the squared distance of every table counts; the
        paper's dual counts all alike.
        """
        goal = self._goal(start, clock)
        if isinstance(self.solver, PaperDual):
            solution, tables = solve_paper(model, self.norm, self.dependency, self.solver, goal)
            theta = model.replace(log_pairwise=tables)
        else:
            try:
                costs = edge_costs(model, self.dependency, goal.clock)
                solution = self._solve(costs, weights, goal)
                theta = costs.nearest(solution.z)
            except OutOfTimeError:
                theta, solution = self._scaled(model, goal.clock)
        self._multipliers = solution.multipliers
        return theta, solution

    def _goal(self, start: FloatArray | None, clock: Clock | None) -> Goal:
        """The goal of a solver that begins at some multipliers; by default it has the clock of the set."""
        return Goal(self.norm_bound, self.tol, self.max_iter, start, self.clock if clock is None else clock)

    def _solve(self, costs: EdgeCosts, weights: FloatArray | None, goal: Goal) -> Solution:
        """The solution of the fast solver, with the squared distance of every table weighted if weights are given."""
        if weights is not None:
            assert costs.shared is None  # tables are in full wherever the metric is another one
            of_knot = np.repeat(weights, np.diff(costs.start))
            costs = replace(costs, mu=costs.mu * of_knot, f=costs.f * of_knot, curvature=0.0)
        return SOLVERS[self.norm](costs, goal)

    def _scaled(self, model: MarkovRandomField, clock: Clock) -> tuple[MarkovRandomField, Solution]:
        """A model within the bound, if not the closest, where there is no time to look for that one."""
        size = self.size(model, clock)
        factor = min(1.0, self.norm_bound / max(size, 1e-300))
        return self.shrunk(model, factor), Solution(np.zeros(0), np.zeros(0), late=True)

    # -- steps of a descent -------------------------------------------------------------------------------------------

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
        """The model after a step of the given size against the gradient (by indicator entries), and back into the set.

        ``moments`` are the marginals of theta, which ``fisher`` coordinates need.
        """
        metric = self.metric(coordinates)
        metric.adapt(moments)
        return self.project(theta.parameters - size * metric.steepest(gradient), coordinates)

    def project(self, parameters: FloatArray, coordinates: Coordinates) -> MarkovRandomField:
        """The closest model of the set, but for rounding, in the metric of some coordinates."""
        self.num_projections += 1
        weights = self.metric(coordinates).edge_weights
        if self._sees_at_once_what_is_feasible:
            theta, solution = self._nearest_of_parameters(parameters, weights)
        else:
            model = self.model.with_parameters(parameters)
            if self.size(model) <= self.norm_bound:
                return model
            theta, solution = self.nearest(model, start=self._multipliers, weights=weights)
        if solution.interrupted:
            raise KeyboardInterrupt
        self.num_inexact += solution.late or not solution.converged
        return theta

    @property
    def _sees_at_once_what_is_feasible(self) -> bool:
        """Whether the solver returns a feasible model of pairs as it is, so that it need not be measured before."""
        return self.norm == "inf" and self.solver == "fast" and not self.model.num_factors

    def _nearest_of_parameters(
        self, parameters: FloatArray, weights: FloatArray | None
    ) -> tuple[MarkovRandomField, Solution]:
        """The nearest model to parameters of a model of pairs, as :meth:`nearest` gives it.

        A descent projects after every step: only the model that it arrives at is made, not the one before it.
        """
        moved = as_flat("parameters", parameters, self.model.num_parameters, "the model")
        num_unary = len(self.model.log_unary)
        goal = self._goal(self._multipliers, None)
        try:
            costs = edge_costs(self.model, self.dependency, goal.clock, log_pairwise=moved[num_unary:])
            solution = self._solve(costs, weights, goal)
            moved[num_unary:] = costs.tables(solution.z)
            theta = self.model.with_parameters(moved)
        except OutOfTimeError:
            theta, solution = self._scaled(self.model.with_parameters(parameters), goal.clock)
        self._multipliers = solution.multipliers
        return theta, solution

    # -- the result ---------------------------------------------------------------------------------------------------

    def settle(self, theta: MarkovRandomField) -> tuple[MarkovRandomField, FloatArray, float]:
        """A model moved into the set from the safe side, its dependencies (m,) and a safe upper bound on their norm.

        The model given lies in the set but for rounding.
        """
        # A hair's breadth is enough, unless entries are so large that their rounding is more.
        slack = 4.0 * ROUNDING_MARGIN
        for count in range(1, MAX_SHRINKS + 1):
            z, size = self.measure(theta, self.clock.part(SETTLE_SHARE, least=LEAST_SETTLE_SHARE))
            if size <= self.norm_bound:
                return theta, z, size
            self.cut_short |= self.clock.past() and size > NOTICED_EXCESS * self.norm_bound
            theta = self.shrunk(theta, self.norm_bound / size * (1.0 - slack))
            slack = min(2.0 * slack, 0.5)
            # Parts of one variable, which nothing bounds, may be larger than the rest, and their rounding too.
            if count % SHRINKS_BEFORE_CENTERING == 0:
                theta = center_pairs(theta, means_only=self.dependency != "range")
        raise UnfitMethodError(
            f"norm_bound={self.norm_bound:g} is below what the entries of this model, up to "
            f"{np.abs(theta.parameters).max(initial=0.0):.3g}, are rounded to: give a model with smaller ones"
        )

    def shrunk(self, theta: MarkovRandomField, factor: float) -> MarkovRandomField:
        """The model with everything that the bound limits multiplied by a factor."""
        if theta.shared_tables is not None:
            return theta.replace(shared_tables=shrunk_patterns(theta.shared_tables, factor, self.dependency))
        bounded = interactions(theta, theta.log_pairwise, self.dependency)
        return theta.replace(
            log_pairwise=theta.log_pairwise - (1.0 - factor) * bounded, log_factors=factor * theta.log_factors
        )

    def remember(self, model: MarkovRandomField) -> None:
        """Keep what was proved of the model that was settled, with all its variables; nothing for norms."""
