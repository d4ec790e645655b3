"""The pseudo-likelihood: the log-probabilities of every variable given all others, added up.

It needs no moments of the model, is convex in all parameters together, and is a little worse than the likelihood.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fastmix._arrays import FloatArray
from fastmix._clock import NO_LIMIT, Clock, OutOfTimeError
from fastmix._context import Context
from fastmix._memory import check_memory
from fastmix.chains.cuda.device import cuda_available
from fastmix.errors import ModelError, UnfitMethodError
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.dataset import Dataset
from fastmix.learning.objective import LearningObjective, Loss, Validation, register_objective
from fastmix.learning.tuning import CHUNK_NUMBERS, MAX_DENSE_VARIABLES, MIN_DENSITY, SECONDS_PER_DENSE_ENTRY
from fastmix.model import MarkovRandomField
from fastmix.model.flat import table_positions

__all__ = ["PseudoLikelihood", "PseudoLikelihoodLoss", "is_dense", "pseudo_log_likelihoods"]


@register_objective
@dataclass(frozen=True)
class PseudoLikelihood(LearningObjective):
    """Minus the mean over the rows of ``sum_i log p(x_i | x_others)``."""

    name: ClassVar[str] = "pseudo-likelihood"

    def start(self, coordinates: Coordinates, data: Dataset, context: Context) -> Loss:
        """The loss for these data, on the device if there is one and it was asked for."""
        if context.backend != "cpu" and cuda_available()[0]:
            from fastmix.learning.cuda import pseudo_likelihood as device  # importing Numba takes half a second

            if device.PseudoLikelihoodLoss.fits(coordinates):
                return device.PseudoLikelihoodLoss(coordinates, data)
        return PseudoLikelihoodLoss(coordinates, data)

    def check_validation(self, coordinates: Coordinates, validation: Dataset) -> None:
        """A :class:`ModelError`: rows with missing values have no pseudo-likelihood."""
        del coordinates
        if validation.has_missing:
            raise ModelError("validation must have every value for the pseudo-likelihood, and some are missing")

    def validate(
        self, model: MarkovRandomField, data: Dataset, validation: Dataset, context: Context, *, rough: bool
    ) -> Validation:
        """The mean log-pseudo-likelihood of the validation data."""
        del data, context, rough
        return Validation(float(validation.weights @ pseudo_log_likelihoods(model, validation)))


class PseudoLikelihoodLoss(Loss):
    """Minus the mean log-pseudo-likelihood of data.

    An evaluation takes two products of matrices, (rows, D) by (D, D), and a pass over the rows.
    """

    def __init__(self, coordinates: Coordinates, data: Dataset) -> None:
        if data.num_hidden:
            raise UnfitMethodError(
                "the pseudo-likelihood needs every value: hidden variables need objective='likelihood'"
            )
        if data.has_missing:
            raise UnfitMethodError(
                "the pseudo-likelihood needs every value, and some are missing: objective='likelihood' sums over them"
            )
        d = coordinates.num_contrasts
        check_memory(40.0 * len(data.states) * d + 32.0 * d * d, "the pseudo-likelihood", "learn from fewer rows")
        self.coordinates = coordinates
        self._states = np.ascontiguousarray(data.states)
        self._weights = data.weights
        self._y = coordinates.encode(data.states)
        self._weighted = data.weights[:, None] * self._y

    def rows(self, v: FloatArray) -> tuple[FloatArray, FloatArray]:
        """``sum_i log p(x_i | x_others)`` of every row, and the residuals (rows, D)."""
        from fastmix.learning.residual_kernels import binary_residuals, conditional_residuals

        coordinates = self.coordinates
        fields = self._y @ coordinates.matrix(v)
        fields += v[: coordinates.num_contrasts]
        logs = np.empty(len(fields))
        if coordinates.binary:
            binary_residuals(fields, self._y, logs)
            return logs, fields
        num_states = coordinates.structure.num_states
        conditional_residuals(fields, self._states, num_states, coordinates.starts, *coordinates.flat_tables, logs)
        return logs, fields

    def evaluate(self, v: FloatArray) -> tuple[float, FloatArray]:
        """The value at v and its derivative."""
        logs, residuals = self.rows(v)
        products = residuals.T @ self._weighted
        gradient = self.coordinates.gather(self._weights @ residuals, products + products.T)
        return -float(self._weights @ logs), gradient


# -- the pseudo-likelihood of a model as it is ------------------------------------------------------------------------


def is_dense(model: MarkovRandomField) -> bool:
    """Whether products with a matrix of all couplings are quicker than looking at every edge."""
    n = model.num_variables
    return not model.has_forbidden and 2.0 * model.num_edges >= MIN_DENSITY * n * n


def pseudo_log_likelihoods(model: MarkovRandomField, data: Dataset, clock: Clock = NO_LIMIT) -> FloatArray:
    """``sum_i log p(x_i | x_others)`` of every row, -inf where the row has no weight.

    Through a dense matrix of couplings, or, of large models with few edges and of those that forbid something, through
    a sparse one.

    Raises
    ------
    OutOfTimeError
        If the clock has too little time left.
    """
    if clock.left() < SECONDS_PER_DENSE_ENTRY * len(model.log_pairwise):
        raise OutOfTimeError
    if is_dense(model) or (model.num_variables <= MAX_DENSE_VARIABLES and not model.has_forbidden):
        return _by_dense_matrix(model, data, clock)
    return _by_sparse_matrix(model, data, clock)


def _by_dense_matrix(model: MarkovRandomField, data: Dataset, clock: Clock) -> FloatArray:
    """The log-pseudo-likelihoods of all rows by the loss of learning, some rows at a time."""
    coordinates = Coordinates(model.structure)
    v, _ = coordinates.from_parameters(model.parameters)
    result = np.empty(len(data.states))
    step = max(1, CHUNK_NUMBERS // max(1, coordinates.num_contrasts))
    for first in range(0, len(result), step):
        clock.check()
        rows = slice(first, first + step)
        part = replace(data, states=data.states[rows], weights=data.weights[rows])
        result[rows] = PseudoLikelihoodLoss(coordinates, part).rows(v)[0]
    return result


def _by_sparse_matrix(model: MarkovRandomField, data: Dataset, clock: Clock) -> FloatArray:
    """The log-pseudo-likelihoods of all rows by a sparse matrix of all tables; entries may be -inf."""
    from scipy.sparse import coo_array, csr_array

    # Tables as a symmetric matrix over all states of all variables.
    num_entries = len(model.log_unary)
    edge, row, col = table_positions(model.num_states, model.edges)
    starts = model.unary_offsets[:-1]
    first_ends = starts[model.edges[edge, 0]] + row
    second_ends = starts[model.edges[edge, 1]] + col
    places = (np.concatenate([first_ends, second_ends]), np.concatenate([second_ends, first_ends]))
    tables = csr_array(coo_array((np.tile(model.log_pairwise, 2), places), shape=(num_entries, num_entries)))

    result = np.empty(len(data.states))
    step = max(1, CHUNK_NUMBERS // max(1, num_entries))
    for first in range(0, len(result), step):
        clock.check()
        present = starts + data.states[first : first + step]
        ends_of_rows = np.arange(0, present.size + 1, model.num_variables)
        chosen = csr_array((np.ones(present.size), present.ravel(), ends_of_rows), shape=(len(present), num_entries))
        logits = (chosen @ tables).toarray() + model.log_unary
        own = np.take_along_axis(logits, present, axis=1)
        top = np.maximum.reduceat(logits, starts, axis=1)
        possible = (own > -np.inf).all(axis=1)
        top[~possible] = 0.0
        weights = np.exp(logits - np.repeat(top, model.num_states, axis=1))
        with np.errstate(divide="ignore", invalid="ignore"):
            log_shares = own - top - np.log(np.add.reduceat(weights, starts, axis=1))
        result[first : first + step] = np.where(possible, log_shares.sum(axis=1), -np.inf)
    return result
