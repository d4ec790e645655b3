"""The way from the model that is projected, without evidence and forbidden states, back to the model of the user."""

from __future__ import annotations

import numpy as np

from fastmix._arrays import BoolArray, FloatArray, IntArray
from fastmix._loops import run_loop
from fastmix.model import MarkovRandomField
from fastmix.model.reduce import Reduction

__all__ = ["expand", "factor_scales", "kept_positions"]


def expand(reduction: Reduction, theta: MarkovRandomField) -> MarkovRandomField:
    """The model of all variables and states that has the parameters of the reduced model ``theta``."""
    original = reduction.original
    if theta is reduction.model:
        return original
    if theta.num_states is original.num_states and theta.edges is original.edges:  # nothing was dropped
        return theta
    shared = None if theta.shared_tables is None else reduction.expand_tables(theta.shared_tables)
    if shared is not None:
        unary = original.log_unary.copy()
        unary[reduction.unary_positions] = theta.log_unary
        return original.replace(log_unary=unary, shared_tables=shared, log_constant=theta.log_constant)
    parameters = original.parameters.copy()
    parameters[kept_positions(reduction)] = theta.parameters
    return original.with_parameters(parameters).replace(log_constant=theta.log_constant)


def kept_positions(reduction: Reduction) -> IntArray:
    """Positions of the reduced model's parameters in the vector of all parameters."""
    original = reduction.original
    num_unary = len(original.log_unary)
    positions = [reduction.unary_positions, num_unary + reduction.pairwise_positions]
    if original.num_factors:
        kept_states = np.zeros(num_unary, dtype=bool)
        kept_states[reduction.unary_positions] = True
        first_factor_entry = num_unary + int(original.pairwise_offsets[-1])
        positions.append(first_factor_entry + np.flatnonzero(_kept_factor_entries(original, kept_states)))
    return np.concatenate(positions)


def _kept_factor_entries(model: MarkovRandomField, kept_states: BoolArray) -> BoolArray:
    """Whether every entry of the factors is kept, given which states (entries of the unaries) are."""
    inputs = (
        model.structure.scope_starts,
        model.structure.scope_variables,
        model.num_states,
        model.factor_offsets,
        model.unary_offsets,
        kept_states,
    )
    kept_entries = np.zeros(len(model.log_factors), dtype=bool)
    run_loop(_mark_kept_entries, inputs, (kept_entries,))
    return kept_entries


def _mark_kept_entries(
    scope_starts: IntArray,
    scope_variables: IntArray,
    num_states: IntArray,
    table_starts: IntArray,
    unary_starts: IntArray,
    kept_states: BoolArray,
    kept_entries: BoolArray,
) -> None:
    """Mark the entries of all factors whose states are all kept."""
    for factor in range(len(scope_starts) - 1):
        for entry in range(table_starts[factor], table_starts[factor + 1]):
            # The states of an entry are the digits of its place in the table, the last variable first.
            rest = entry - table_starts[factor]
            all_kept = True
            for place in range(scope_starts[factor + 1] - 1, scope_starts[factor] - 1, -1):
                variable = scope_variables[place]
                count = num_states[variable]
                all_kept = all_kept and kept_states[unary_starts[variable] + rest % count]
                rest //= count
            kept_entries[entry] = all_kept


def factor_scales(before: MarkovRandomField, after: MarkovRandomField) -> FloatArray:
    """The number that every factor was multiplied by (f,); 1 for factors of zeros."""
    if not before.num_factors:
        return np.zeros(0)
    starts = before.factor_offsets[:-1]
    squares = np.add.reduceat(before.log_factors**2, starts)
    products = np.add.reduceat(before.log_factors * after.log_factors, starts)
    return np.divide(products, squares, out=np.ones(len(starts)), where=squares > 0.0)
