"""The set of models within a norm bound, and the Euclidean projection onto it, warm-started from step to step."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fastmix._clock import NO_LIMIT, Clock
from fastmix.errors import NotConvergedError
from fastmix.model import MarkovRandomField
from fastmix.projection.coordinates import Coordinates, Metric
from fastmix.projection.edges import edge_costs
from fastmix.projection.euclidean import MARGIN, project_euclidean
from fastmix.projection.euclidean_solvers import SOLVERS, Target, symmetric
from fastmix.projection.paper_dual import PaperDual
from fastmix.projection.result import ProjectionResult
from fastmix.theory.dependency import edge_dependencies
from fastmix.theory.norms import Norm, matrix_norm

__all__ = ["FeasibleSet"]

FloatArray = NDArray[np.float64]


class FeasibleSet:
    """Models on one graph whose dependency norm is bounded, and steps within them.

    Parameters
    ----------
    model : MarkovRandomField
        Gives graph and state counts; finite entries only.
    norm_bound, norm, dependency, solver, tol, max_iter
        As for :func:`fastmix.project`.
    nearest : ProjectionResult
        The Euclidean projection of the model: its multipliers start the next projection.
    clock : Clock
        After whose limit projections must be fast rather than exact.
    """

    def __init__(
        self,
        model: MarkovRandomField,
        *,
        norm_bound: float,
        norm: Norm,
        dependency: Literal["range", "linf"],
        solver: Literal["fast"] | PaperDual,
        tol: float,
        max_iter: int,
        nearest: ProjectionResult,
        clock: Clock = NO_LIMIT,
    ) -> None:
        self.model = model
        self.norm_bound, self.norm, self.dependency = norm_bound, norm, dependency
        self.solver, self.tol, self.max_iter = solver, tol, max_iter
        self.num_projections = 0
        self.num_inexact = 0
        self._warm = nearest
        self._clock = clock
        self._metrics: dict[Coordinates, Metric] = {}
        self._multipliers: dict[Coordinates, FloatArray | None] = {}

    def metric(self, coordinates: Coordinates) -> Metric:
        """The metric of some coordinates, made once."""
        if coordinates not in self._metrics:
            self._metrics[coordinates] = metric = Metric(self.model, coordinates)
            even = metric.edge_weights is None
            self._multipliers[coordinates] = self._warm.multipliers if even else None
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
        """The closest model of the set in the metric of some coordinates; the unaries stay as they are."""
        self.num_projections += 1
        metric = self.metric(coordinates)
        model = self.model.with_parameters(parameters)
        if self.solver != "fast":
            return self._project_paper(model)
        # For the infinity norm the solver sees at once that there is nothing to do.
        if self.norm != "inf" and self._norm_of(model) <= self.norm_bound:
            return model
        costs = edge_costs(model, self.dependency, self._clock)
        weighted = costs
        if metric.edge_weights is not None:
            of_knot = np.repeat(metric.edge_weights, np.diff(costs.start))
            weighted = replace(costs, mu=costs.mu * of_knot, f=costs.f * of_knot, quadratic=False)
        cap = self.norm_bound * (1.0 - MARGIN)
        start = self._multipliers[coordinates]
        target = Target(self.norm_bound, cap, self.tol, self.max_iter, start, self._clock)
        solution = SOLVERS[self.norm](weighted, target)
        if solution.interrupted:
            raise KeyboardInterrupt
        self.num_inexact += costs.scaled is not None or not solution.converged
        self._multipliers[coordinates] = solution.multipliers
        return model.replace(log_pairwise=costs.tables(solution.z))

    def _project_paper(self, model: MarkovRandomField) -> MarkovRandomField:
        """The operator of the paper, with the matrix Z of the last step carried along."""
        assert isinstance(self.solver, PaperDual)
        try:
            self._warm = project_euclidean(
                model, norm_bound=self.norm_bound, norm=self.norm, dependency=self.dependency, solver=self.solver,
                tol=self.tol, max_iter=self.max_iter, warm_start=self._warm,
            )  # fmt: skip
        except NotConvergedError as error:
            self.num_inexact += 1
            self._warm = error.result
        return self._warm.model

    def settle(self, theta: MarkovRandomField) -> MarkovRandomField:
        """A model that lies in the set but for rounding, moved into it from the safe side."""
        factor = 1.0
        for _ in range(60):
            size = self._norm_of(theta)
            if size <= self.norm_bound:
                return theta
            # Scaling a table scales its dependency; a hair's breadth is enough.
            factor = min(factor, self.norm_bound / size) * (1.0 - 4.0 * MARGIN)
            theta = theta.replace(log_pairwise=theta.log_pairwise * factor)
        raise AssertionError("scaling the tables must scale their norm")

    def _norm_of(self, model: MarkovRandomField) -> float:
        z = edge_dependencies(model, dependency=self.dependency).max(axis=1, initial=0.0)
        return matrix_norm(symmetric(model.edges, z, model.num_variables), self.norm)
