"""Paths of models from one that is known exactly to the one asked about, and their parameters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix._arrays import FloatArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix.errors import Interrupted
from fastmix.model import MarkovRandomField, check_pairwise

__all__ = ["TemperingPath", "independent_log_z", "make_path", "split_tables"]

_UNARY_POWER = 1.5


@dataclass(frozen=True, eq=False)
class TemperingPath:
    """Models ``p_s(x) ~ exp(a_0(s) U(x) + a_1(s) V_1(x) + ..)`` for s from 0 to 1, the last one the target.

    U is the sum of the unaries, and every V the sum of one set of tables.
    """

    model: MarkovRandomField  # the target with its tables split (``split_tables``): U are its unaries, V_1 its tables
    tables: tuple[FloatArray, ...]  # as ``log_pairwise`` and ``log_factors``; 0 where the target forbids a pair
    forbidden: NDArray[np.bool_] | None  # entries of the tables that are -inf in all models of the path
    kind: str  # "uniform", "independent" or "projected"
    log_z: float | None  # that of the model at s = 0; None if forbidden pairs leave it unknown

    def coefficients(self, positions: ArrayLike) -> FloatArray:
        """The numbers a_0(s), a_1(s), .. at positions (K,) as an array (K, 1 + number of sets of tables).

        ===========  ==========================================================================================
        uniform      ``s^1.5, s``
        independent  ``1, s``
        projected    ``t^1.5, 0, t`` with t = 2 s for s up to 1/2, then ``1, t, 1 - t`` with t = 2 s - 1
        ===========  ==========================================================================================
        """
        s = np.asarray(positions, dtype=np.float64)
        if self.kind == "uniform":
            return np.stack([s**_UNARY_POWER, s], axis=-1)
        if self.kind == "independent":
            return np.stack([np.ones_like(s), s], axis=-1)
        rise, blend = np.minimum(2.0 * s, 1.0), np.maximum(2.0 * s - 1.0, 0.0)
        return np.stack([rise**_UNARY_POWER, blend, rise - blend], axis=-1)

    @cached_property
    def thetas(self) -> FloatArray:
        """Parameters (1 + sets of tables, P) whose mixtures by :meth:`coefficients` are the models of the path."""
        split = len(self.model.log_unary)
        thetas = np.zeros((1 + len(self.tables), self.model.num_parameters))
        thetas[0, :split] = self.model.log_unary
        for d, tables in enumerate(self.tables):
            thetas[d + 1, split:] = tables if self.forbidden is None else np.where(self.forbidden, -np.inf, tables)
        return thetas

    def model_at(self, position: float) -> MarkovRandomField:
        """One model of the path."""
        unary, *weights = self.coefficients([position])[0].tolist()
        tables = sum((w * t for w, t in zip(weights, self.tables, strict=True)), np.zeros(len(self.tables[0])))
        if self.forbidden is not None:
            tables[self.forbidden] = -np.inf
        return self.model.with_parameters(np.concatenate([unary * self.model.log_unary, tables]))


def make_path(model: MarkovRandomField, *, norm_bound: float | None = None, clock: Clock = NO_LIMIT) -> TemperingPath:
    """The path to a model, without states that a unary forbids, from a start that is known exactly.

    Without ``norm_bound`` it starts from the uniform distribution: unaries and tables grow together, the unaries more
    slowly. 0 starts from independent variables with the unaries of the model. A positive number starts from the uniform
    distribution, too, and goes by way of the projection of the model onto that bound of the dependency norm
    (:func:`fastmix.project`), which takes no forbidden pairs and no factors over more variables, and at most a fifth of
    the time that is left.
    """
    split = split_tables(model)
    tables, forbidden = split.parameters[len(split.log_unary) :], None
    if tables.size and tables.min() == -np.inf:
        forbidden = tables == -np.inf
        tables = np.where(forbidden, 0.0, tables)
    sets = [tables]
    kind = "uniform"
    if norm_bound is not None and norm_bound > 0.0:
        from fastmix.projection import project

        check_pairwise(model, "a path by way of a projection (norm_bound above 0)")
        kind = "projected"
        try:
            closest = project(split, norm_bound=norm_bound, time_limit=clock.rest(0.2), progress=None)
        except Interrupted:  # whose result is none of this call
            raise KeyboardInterrupt from None
        sets.append(closest.model.log_pairwise)
    elif norm_bound is not None:
        kind = "independent"
    log_z = None
    if forbidden is None:
        uniform = split.log_constant + float(np.log(split.num_states).sum())
        log_z = independent_log_z(split) if kind == "independent" else uniform
    return TemperingPath(split, tuple(sets), forbidden, kind, log_z)


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
    for rows, cols, members in model.structure.table_shapes:
        places = np.arange(rows * cols)[:, None] + model.pairwise_offsets[members]
        tables = pairwise[places].reshape(rows, cols, -1)  # edges last, where NumPy is fast
        by_row, by_col = tables.mean(axis=1), tables.mean(axis=0)
        mean = by_row.mean(axis=0)
        by_row -= mean
        by_col -= mean
        pairwise[places] = (tables - by_row[:, None] - by_col - mean).reshape(rows * cols, -1)
        constant += float(mean.sum())
        for end, part in ((0, by_row), (1, by_col)):
            starts = model.unary_offsets[model.edges[members, end]]
            for state, values in enumerate(part):
                unary += np.bincount(starts + state, values, minlength=len(unary))
    if model.num_variables:
        means = np.add.reduceat(unary, model.unary_offsets[:-1]) / model.num_states
        unary -= np.repeat(means, model.num_states)
        constant += float(means.sum())
    return model.replace(log_unary=unary, log_pairwise=pairwise, log_factors=factors, log_constant=constant)


def independent_log_z(model: MarkovRandomField) -> float:
    """Log Z of the unaries alone."""
    if not model.num_variables:
        return model.log_constant
    top = np.maximum.reduceat(model.log_unary, model.unary_offsets[:-1])
    weights = np.exp(model.log_unary - np.repeat(top, model.num_states))
    return model.log_constant + math.fsum(top + np.log(np.add.reduceat(weights, model.unary_offsets[:-1])))
