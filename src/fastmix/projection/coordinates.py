"""Coordinates of a descent: which direction is the steepest, and how long a change of the parameters is.

A step of steepest descent depends on the coordinates. Three are offered:

- ``indicator``: every entry of every unary and table is a coordinate, as in Liu and Domke (2014).
- ``centered``: the log-weight ``sum_i u_i(x_i) + sum_ij T_ij(x_i, x_j)`` is written with unaries that have mean zero
  and tables whose rows and columns have mean zero, which is unique (the ANOVA decomposition), and the length of a
  change is its standard deviation over all configurations, ``sum_i mean(u_i^2) + sum_ij mean(T_ij^2)``. This is the
  Fisher metric of the uniform distribution. For Ising models it is the step in field and coupling (h, J).
- ``fisher``: the centered coordinates, each unary and each table scaled by the mean variance that it has under the
  model at hand instead of the uniform distribution: by ``1 - L_i ||P p_i||^2 / (L_i - 1)`` with the marginal p_i, and
  by ``1 - L_i L_j ||P p_ij P||^2 / ((L_i - 1)(L_j - 1))`` with the joint marginal p_ij: for Ising models the
  variances of spins, ``1 - m_i^2``, and of their products. Steps grow as gradients vanish. These coordinates need a
  divergence that knows the marginals of theta.

With the gradient g by indicator entries, L states per variable and P the projection that takes the mean away, the
steepest directions are g itself, or ``L_i P g_i`` for unaries and ``L_i L_j P g_ij P`` for tables. A step and the
projection after it must measure length alike, so the projection weighs the tables by ``1 / (L_i L_j)`` in centered
coordinates, which matters only where state counts differ, and by the variance over ``L_i L_j`` in ``fisher``.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix.model import MarkovRandomField
from fastmix.model.flat import table_positions
from fastmix.projection.contrasts import interactions
from fastmix.projection.tuning import LEAST_VARIANCE

__all__ = ["COORDINATES", "Coordinates", "Metric"]

Coordinates = Literal["indicator", "centered", "fisher"]
COORDINATES: tuple[str, ...] = get_args(Coordinates)


class _TableEnd(NamedTuple):
    """One end of every table entry: the position of its state in the unaries, and the states of the other end."""

    position: IntArray
    other_states: IntArray


class Metric:
    """Steepest directions and lengths for the models on one graph.

    Attributes
    ----------
    edge_weights : float array (m,) or None
        The weight of the squared Frobenius norm of every table in a length, 1 at most; None when all weigh the same.
    """

    def __init__(self, model: MarkovRandomField, coordinates: Coordinates) -> None:
        self.model = model
        self.coordinates = coordinates
        self.edge_weights: FloatArray | None = None
        self._variances = np.ones(model.num_variables)
        self._table_variances = np.ones(model.num_edges)
        if coordinates == "indicator":
            return

        states = model.num_states
        first, second = model.edges.T
        sizes = states[first] * states[second]
        if len(sizes) and sizes.min() < sizes.max():
            self.edge_weights = sizes.min() / sizes

        # The variable of every entry of the unaries, and the edge of every entry of the tables with its size.
        self._owner = np.repeat(np.arange(model.num_variables), states)
        self._table, row, col = table_positions(states, model.edges)
        self._sizes = sizes[self._table].astype(np.float64)
        self._ends = (
            _TableEnd(model.unary_offsets[first][self._table] + row, states[second][self._table]),
            _TableEnd(model.unary_offsets[second][self._table] + col, states[first][self._table]),
        )

    def adapt(self, moments: FloatArray | None) -> None:
        """Take over the variances of the model that has these moments (all its marginals, as ``parameters``).

        Only ``fisher`` coordinates depend on them.
        """
        if self.coordinates != "fisher":
            return
        if moments is None:
            raise ValueError("coordinates='fisher' needs a divergence that knows the marginals; use 'centered'")
        states = self.model.num_states
        first, second = self.model.edges.T
        unary, tables = self._center(moments)

        # A variable of one state has no variance and no step, so that any number serves.
        unary_squares = np.bincount(self._owner, unary**2, self.model.num_variables)
        variances = 1.0 - unary_squares * states / np.maximum(states - 1, 1)
        self._variances = np.maximum(variances, LEAST_VARIANCE)

        sizes = states[first] * states[second]
        table_squares = np.bincount(self._table, tables**2, self.model.num_edges)
        variances = 1.0 - table_squares * sizes / np.maximum((states[first] - 1) * (states[second] - 1), 1)
        self._table_variances = np.maximum(variances, LEAST_VARIANCE)
        self.edge_weights = self._table_variances * (sizes.min(initial=1) / sizes)

    def steepest(self, gradient: FloatArray) -> FloatArray:
        """The direction of steepest ascent, aligned with ``model.parameters``, from the gradient by all entries."""
        if self.coordinates == "indicator":
            return gradient
        unary, tables = self._center(gradient)
        unary *= (self.model.num_states / self._variances)[self._owner]
        return np.concatenate([unary, tables * self._sizes / self._table_variances[self._table]])

    def squared_norm(self, change: FloatArray) -> float:
        """Squared length of a change of the parameters."""
        if self.coordinates == "indicator":
            return float(change @ change)
        # The parts of tables that depend on a single variable count as part of its unary.
        change = change.copy()
        num_unary = len(self.model.log_unary)
        for end in self._ends:
            change[:num_unary] += np.bincount(end.position, change[num_unary:] / end.other_states, num_unary)
        unary, tables = self._center(change)
        unary_lengths = unary**2 * (self._variances / self.model.num_states)[self._owner]
        table_lengths = tables**2 * (self._table_variances[self._table] / self._sizes)
        return float(unary_lengths.sum() + np.sum(table_lengths))

    def _center(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Unaries with mean zero, and tables with rows and columns of mean zero, of values for all parameters."""
        unary, tables = np.split(values, [len(self.model.log_unary)])
        means = np.bincount(self._owner, unary, self.model.num_variables) / self.model.num_states
        return unary - means[self._owner], interactions(self.model, tables, "range")
