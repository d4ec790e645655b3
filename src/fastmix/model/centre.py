"""The same distribution in better numbers: without large constants in its tables, and without low order in factors."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix.errors import ModelError
from fastmix.model.build import reduce_tables
from fastmix.model.mrf import MarkovRandomField

__all__ = ["centre_factors", "centre_pairs", "move_constants", "take_offsets"]

# A constant costs digits where others are added to its table: an entry of size c is known to c times 1e-16. What the
# entries differ by costs as much, whatever is done, so that a constant of a few times that is left alone, and so is
# one whose rounding nobody sees: ordinary models keep every bit.
_UNSEEN = 64.0  # nats: of the size of an entry, whose rounding is 1e-14
_OF_SPREAD = 8.0  # at least 2, so that subtracting is exact


def take_offsets(
    values: FloatArray, offsets: IntArray, *, unseen: float = _UNSEEN, of_spread: float = _OF_SPREAD
) -> tuple[FloatArray, FloatArray]:
    """Tables without their constants, which are given beside them, one for each (0 where it stays).

    ``values`` has the tables one after another, which begin at ``offsets``, (tables + 1,). The constant of a table is
    its largest entry; it goes where it is larger than ``unseen`` and than ``of_spread`` times what the finite entries
    differ by. All of them are then within a factor of two of each other, so that every difference is exact (Sterbenz
    1974). Where nothing goes ``values`` is the very array that was given.
    """
    nothing = np.zeros(len(offsets) - 1)
    if not values.size:
        return values, nothing
    lowest = float(values.min())
    if max(float(values.max()), -lowest) <= unseen:
        return values, nothing
    largest = reduce_tables(np.maximum, values, offsets)
    least = reduce_tables(np.minimum, values, offsets)
    if lowest == -np.inf:
        least = reduce_tables(np.minimum, np.where(values > -np.inf, values, np.inf), offsets)
        possible = largest > -np.inf
        largest = np.where(possible, largest, 0.0)
        least = np.where(possible, least, 0.0)
    size = np.maximum(np.abs(largest), np.abs(least))
    goes = (size > unseen) & (size > of_spread * (largest - least))
    if not goes.any():
        return values, nothing
    taken = np.where(goes, largest, 0.0)
    return values - np.repeat(taken, np.diff(offsets)), taken


def move_constants(
    model: MarkovRandomField, *, unseen: float = _UNSEEN, of_spread: float = _OF_SPREAD
) -> MarkovRandomField:
    """The same distribution with the large constants of unaries, edge tables and factors in ``log_constant``.

    Tables change by exact differences (:func:`take_offsets`), and the constants are added up exactly and rounded once,
    so that log Z changes by half a unit in the last place of ``log_constant`` at most. A model without large constants
    is returned as it is.

    Examples
    --------
    >>> model = MarkovRandomField.from_tables([[1e9, 1e9 + 1.0], [0.0, 2.0]], [(0, 1)], [[[-1e9, -1e9], [-1e9, -1e9]]])
    >>> moved = move_constants(model)
    >>> moved.log_unary.tolist(), moved.log_pairwise.tolist(), moved.log_constant
    ([-1.0, 0.0, 0.0, 2.0], [0.0, 0.0, 0.0, 0.0], 1.0)
    """
    arrays = [
        (model.log_unary, model.unary_offsets),
        (model.log_pairwise, model.pairwise_offsets),
        (model.log_factors, model.factor_offsets),
    ]
    found = [take_offsets(values, offsets, unseen=unseen, of_spread=of_spread) for values, offsets in arrays]
    if all(values is before for (values, _), (before, _) in zip(found, arrays, strict=True)):
        return model
    constant = math.fsum([model.log_constant, *(c for _, taken in found for c in taken[taken != 0.0].tolist())])
    unary, pairwise, factors = [values for values, _ in found]
    return model._sibling(unary, pairwise, factors, constant)


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


def centre_pairs(model: MarkovRandomField, *, means_only: bool = False) -> MarkovRandomField:
    """The same distribution, up to rounding, with everything of its edge tables that unaries can hold moved there.

    What is left of every table has rows and columns of mean zero; with ``means_only`` the means of whole tables go to
    the constant, and nothing else. A :class:`ModelError` if sums are too large for
    unaries. Tables must be finite.

    Examples
    --------
    >>> model = MarkovRandomField.from_tables([[0.0, 0.0]] * 2, [(0, 1)], [[[1.0, 0.0], [0.0, 0.0]]])
    >>> centred = centre_pairs(model)
    >>> centred.table(0, 1).tolist(), centred.unary(0).tolist(), centred.log_constant
    ([[0.25, -0.25], [-0.25, 0.25]], [0.25, -0.25], 0.25)
    """
    unary, pairwise = model.log_unary.copy(), model.log_pairwise.copy()
    constant = model.log_constant
    for rows, cols, edges in model.structure.table_shapes:
        places = model.pairwise_offsets[edges][:, None] + np.arange(rows * cols)
        tables = pairwise[places].reshape(-1, rows, cols)
        mean = tables.mean(axis=(1, 2), keepdims=True)
        constant += float(mean.sum())
        tables -= mean
        for end, axis in () if means_only else ((0, 2), (1, 1)):
            part = tables.mean(axis=axis, keepdims=True)
            tables -= part
            flat = part.reshape(len(tables), -1)
            variables = model.edges[edges, end]
            np.add.at(unary, model.unary_offsets[variables][:, None] + np.arange(flat.shape[1]), flat)
        pairwise[places] = tables.reshape(len(tables), -1)
    return model.replace(log_unary=unary, log_pairwise=pairwise, log_constant=constant)
