"""The path of models from the uniform distribution to the one asked about, and their parameters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from fastmix._arrays import FloatArray
from fastmix.chains.base import ParameterSets
from fastmix.methods.swendsen_wang import centred_tables
from fastmix.model import MarkovRandomField

__all__ = ["TemperingPath", "make_path", "split_tables"]


@dataclass(frozen=True, eq=False)
class TemperingPath:
    """Models ``p_s(x) ~ exp(s^1.5 U(x) + s V(x))`` for s from 0 to 1, the last one the target.

    U is the sum of the unaries, which grow more slowly at first, and V the sum of all tables.
    """

    model: MarkovRandomField  # the target with its tables split (``split_tables``), and without forbidden states

    @property
    def forbidden(self) -> bool:
        """Whether there are entries of the tables that are -inf in all models of the path."""
        return self.model.has_forbidden

    @property
    def log_z(self) -> float | None:
        """That of the model at s = 0; None if forbidden pairs leave it unknown."""
        return None if self.forbidden else self.model.log_constant + float(np.log(self.model.num_states).sum())

    def coefficients(self, positions: ArrayLike) -> FloatArray:
        """The factors of U and V at positions (K,) as an array (K, 2)."""
        s = np.asarray(positions, dtype=np.float64)
        return np.stack([s**1.5, s], axis=-1)

    @cached_property
    def thetas(self) -> FloatArray:
        """Parameters (2, P) whose mixtures by :meth:`coefficients` are the models of the path."""
        split = len(self.model.log_unary)
        thetas = np.zeros((2, self.model.num_parameters))
        thetas[0, :split], thetas[1, split:] = self.model.log_unary, self.model.parameters[split:]
        return thetas

    def model_at(self, position: float) -> MarkovRandomField:
        """One model of the path."""
        return self.model.with_parameters(ParameterSets.of(self.thetas, self.coefficients([position])).theta(0))


def make_path(model: MarkovRandomField) -> TemperingPath:
    """The path to a model without states that a unary forbids."""
    return TemperingPath(split_tables(model))


def split_tables(model: MarkovRandomField) -> MarkovRandomField:
    """The same distribution with tables whose rows and columns sum to zero, the rest moved to unaries and constant.

    A path that treats unaries and tables differently would otherwise depend on how the model happens to be written.
    Unaries sum to zero, too, and what depends on one variable of a larger factor is moved. Models with forbidden pairs
    come back as they are.
    """
    if any(tables.size and tables.min() == -np.inf for tables in (model.log_pairwise, model.log_factors)):
        return model
    unary, pairwise, constant = model.log_unary.copy(), model.log_pairwise.copy(), model.log_constant
    factors = model.log_factors.copy()
    for k, (scope, table) in enumerate(model.factors):
        mean = float(table.mean())
        rest = table - mean
        constant += mean
        for axis, v in enumerate(scope.tolist()):
            part = table.mean(axis=tuple(a for a in range(table.ndim) if a != axis)) - mean
            unary[model.unary_offsets[v] : model.unary_offsets[v + 1]] += part
            rest = rest - part.reshape([-1 if a == axis else 1 for a in range(table.ndim)])
        factors[model.factor_offsets[k] : model.factor_offsets[k + 1]] = rest.reshape(-1)
    for edges, tables, means in centred_tables(model, unary):
        places = np.arange(tables[:, :, 0].size)[:, None] + model.pairwise_offsets[edges]
        pairwise[places] = tables.reshape(len(places), -1)
        constant += float(means.sum())
    if model.num_variables:
        means = np.add.reduceat(unary, model.unary_offsets[:-1]) / model.num_states
        unary -= np.repeat(means, model.num_states)
        constant += float(means.sum())
    return model.replace(log_unary=unary, log_pairwise=pairwise, log_factors=factors, log_constant=constant)
