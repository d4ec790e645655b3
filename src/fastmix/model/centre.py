"""Factors without the parts of them that depend on one or two variables only."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from fastmix.errors import ModelError
from fastmix.model.mrf import MarkovRandomField

__all__ = ["centre_factors"]


def centre_factors(model: MarkovRandomField) -> MarkovRandomField:
    """The same distribution with everything of its factors that unaries and edge tables can hold moved there.

    Of every factor over three or more variables its mean goes to the constant, the mean effect of each variable to the
    unaries, and that of each pair to the edge tables: the terms of low order of the analysis of variance. What is left
    has mean zero over all but any two of its variables, and nothing nearer to zero gives the same distribution. A
    :class:`ModelError` if a factor has -inf entries, which have no mean.

    Examples
    --------
    >>> table = [[[1.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]]
    >>> model = MarkovRandomField.from_factors([2, 2, 2], [((0, 1, 2), table)])
    >>> centred = centre_factors(model)
    >>> centred.factor(0)[1].ravel().tolist()
    [0.125, -0.125, -0.125, 0.125, -0.125, 0.125, 0.125, -0.125]
    >>> centred.table(0, 1).tolist(), round(centred.log_weight([0, 0, 0]), 12)
    ([[0.125, -0.125], [-0.125, 0.125]], 1.0)
    """
    if not model.num_factors:
        return model
    if model.log_factors.min() == -np.inf:
        raise ModelError("centre_factors needs factors without -inf, which have no mean")
    structure, constant = model.structure, model.log_constant
    unary, pairwise, factors = model.log_unary.copy(), model.log_pairwise.copy(), model.log_factors.copy()
    for group in structure.factor_groups():
        tables = factors[group.places]
        size = group.scopes.shape[1]

        def take(*axes: int, tables: np.ndarray = tables, size: int = size) -> np.ndarray:
            """The mean over all other axes, taken away from the tables."""
            part = tables.mean(axis=tuple(a + 1 for a in range(size) if a not in axes), keepdims=True)
            tables -= part
            return part.reshape(len(tables), -1)

        constant += float(take().sum())
        for axis, variables in enumerate(group.scopes.T):
            part = take(axis)
            np.add.at(unary, model.unary_offsets[variables][:, None] + np.arange(part.shape[1]), part)
        for t, (p, q) in enumerate(combinations(range(size), 2)):
            part = take(p, q)
            edges = structure.scope_pairs[group.first_pairs + t]
            np.add.at(pairwise, model.pairwise_offsets[edges][:, None] + np.arange(part.shape[1]), part)
        factors[group.places] = tables
    return model.replace(log_unary=unary, log_pairwise=pairwise, log_factors=factors, log_constant=constant)
