"""Sizes of factors over three or more variables: how much each can add to the bounds on R of its pairs.

The size of a pair (p, q) of a factor is the largest range, or norm, of the difference of two columns of its tables over
(p, q), over all states of the other variables (:func:`fastmix.theory.dependency.edge_dependencies` has the formulas).
The loop over pairs and columns is in :mod:`fastmix.theory.factor_kernels`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix._loops import run_loop
from fastmix.model import MarkovRandomField
from fastmix.model.flat import reduce_tables
from fastmix.theory.factor_kernels import MAX_NORM, RANGE, SUM_NORM, measure_pairs
from fastmix.theory.tuning import ENTRIES_PER_CLOCK_CHECK, MAX_PYTHON_COMPARISONS

__all__ = ["factor_sizes", "of_pairs"]

_KINDS = {"range": RANGE, "sigmoid": RANGE, "l1": SUM_NORM, "linf": MAX_NORM}


def of_pairs(model: MarkovRandomField, of_factor: NDArray[Any]) -> NDArray[Any]:
    """The number of every factor repeated for each of its pairs, aligned with ``model.structure.scope_pairs``."""
    sizes = np.diff(model.structure.scope_starts)
    return np.concatenate([np.repeat(of_factor[sizes == s], s * (s - 1) // 2) for s in np.unique(sizes).tolist()])


def factor_sizes(model: MarkovRandomField, kind: str, clock: Clock = NO_LIMIT) -> FloatArray:
    """Sizes (pairs, 2) of all pairs of all factors in both directions, aligned with ``model.structure.scope_pairs``.

    A size is the largest range, or norm, of a difference of two columns. Pairs that the clock leaves no time for get a
    larger one, from the range of all entries of their factor.
    """
    structure = model.structure
    result = np.empty(2 * len(structure.scope_pairs))
    if not model.num_factors:
        return result.reshape(-1, 2)
    counts = model.num_states[structure.scope_variables]
    first_pairs = structure.first_pairs
    hard = reduce_tables(np.minimum, model.log_factors, structure.factor_offsets) == -np.inf
    num_comparisons = _count_comparisons(counts, structure.scope_starts, np.diff(structure.factor_offsets))
    inputs = (
        ENTRIES_PER_CLOCK_CHECK,
        _KINDS[kind],
        structure.scope_starts,
        counts,
        structure.factor_offsets,
        model.log_factors,
        first_pairs,
        hard,
    )
    place = np.zeros(2, dtype=np.int64)  # the factor and the number of its pair that come next
    while place[0] < model.num_factors and not clock.past():
        run_loop(measure_pairs, inputs, (place, result), compiled=num_comparisons > MAX_PYTHON_COMPARISONS)
    sizes = result.reshape(-1, 2)
    if place[0] < model.num_factors:
        _fill_from_extremes(model, kind, first_pairs, place, sizes)
    return sizes


def _count_comparisons(counts: IntArray, scope_starts: IntArray, num_entries: IntArray) -> float:
    """An upper bound on the number of entries that are compared for all pairs of all factors."""
    most = np.maximum.reduceat(counts, scope_starts[:-1]).astype(np.float64)
    members = np.diff(scope_starts)
    return float((num_entries * most * members * members).sum()) / 2.0


def _fill_from_extremes(
    model: MarkovRandomField, kind: str, first_pairs: IntArray, place: IntArray, sizes: FloatArray
) -> None:
    """Give all pairs from some place on a size that is large enough, by the range of all entries of their factor."""
    structure = model.structure
    from_here = int(place[0])
    offsets = structure.factor_offsets[from_here:] - structure.factor_offsets[from_here]
    entries = model.log_factors[structure.factor_offsets[from_here] :]
    low = reduce_tables(np.minimum, entries, offsets)
    size = reduce_tables(np.maximum, entries, offsets) - low
    size[low == -np.inf] = np.inf
    scopes = np.diff(structure.scope_starts)
    for members in np.unique(scopes[from_here:]).tolist():
        numbers = from_here + np.flatnonzero(scopes[from_here:] == members)
        first, second = np.triu_indices(members, 1)
        pairs = first_pairs[numbers][:, None] + np.arange(len(first))
        left = np.ones(pairs.shape, dtype=bool)
        if from_here in numbers.tolist():  # some of its pairs may have been measured
            left[0, : int(place[1])] = False
        for end, variables in enumerate((first, second)):
            # An l1 norm adds up as many entries as the variable has states; a range of differences is two ranges.
            terms: Any = 2.0
            if kind == "linf":
                terms = 1.0
            elif kind == "l1":
                terms = model.num_states[
                    structure.scope_variables[structure.scope_starts[numbers][:, None] + variables]
                ]
            wide = np.broadcast_to(size[numbers - from_here][:, None] * terms, pairs.shape)
            sizes[pairs[left], end] = wide[left]
