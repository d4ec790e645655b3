"""Smaller models with the same answers: evidence folded in, forbidden states dropped, and the way back."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix.construction import offsets_of, table_positions
from fastmix.errors import ModelError
from fastmix.model import Evidence, PairwiseMRF

__all__ = ["Reduction", "reduce_model"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Reduction:
    """A model, a smaller one with the same distribution over what is left, and the maps between them.

    Attributes
    ----------
    original, model : PairwiseMRF
        Before and after.
    variables : int array
        Original number of each variable of ``model``.
    unary_positions, pairwise_positions : int array
        Original position of each entry of ``model.log_unary`` and ``model.log_pairwise``.
    fixed : int array (n,)
        State of each original variable that was removed, -1 for those kept.
    """

    original: PairwiseMRF
    model: PairwiseMRF
    variables: IntArray
    unary_positions: IntArray
    pairwise_positions: IntArray
    fixed: IntArray

    def expand_node_marginals(self, marginals: FloatArray) -> FloatArray:
        """Flat node marginals of the original model: point masses for removed variables, zero for dropped states."""
        result = np.zeros(len(self.original.log_unary))
        result[self.unary_positions] = marginals
        removed = np.flatnonzero(self.fixed >= 0)
        result[self.original.unary_offsets[removed] + self.fixed[removed]] = 1.0
        return result

    def expand_edge_marginals(self, node_marginals: FloatArray, edge_marginals: FloatArray) -> FloatArray:
        """Flat edge marginals of the original model; an edge with a removed end is a product with a point mass."""
        model = self.original
        nodes = self.expand_node_marginals(node_marginals)
        result = np.zeros(len(model.log_pairwise))
        result[self.pairwise_positions] = edge_marginals
        touched = np.flatnonzero((self.fixed[model.edges] >= 0).any(axis=1))
        if touched.size:
            owner, row, col = table_positions(model.num_states, model.edges[touched])
            e = touched[owner]
            i, j = model.edges[e].T
            local = row * model.num_states[j] + col
            values = nodes[model.unary_offsets[i] + row] * nodes[model.unary_offsets[j] + col]
            result[model.pairwise_offsets[e] + local] = values
        return result

    def expand_states(self, states: ArrayLike) -> IntArray:
        """Configurations (..., n) of the original model from configurations of the reduced one."""
        x, shape = self.model._as_states(states)
        result = np.repeat(self.fixed[None, :], len(x), axis=0)
        flat = self.unary_positions[self.model.unary_offsets[:-1] + x]
        result[:, self.variables] = flat - self.original.unary_offsets[self.variables]
        return result.reshape((*shape, self.original.num_variables))


def reduce_model(
    model: PairwiseMRF,
    evidence: Evidence | None = None,
    *,
    drop_forbidden: bool = True,
    fold_single: bool = False,
) -> Reduction:
    """The model given evidence, as a :class:`Reduction` that can map answers back.

    Parameters
    ----------
    model : PairwiseMRF
    evidence : mapping, optional
        Observed state (number or name) by variable (number or name). Observed variables leave the model.
    drop_forbidden : bool
        Drop states whose unary, after folding, is -inf.
    fold_single : bool
        Also remove variables that have a single state left, as if it had been observed.

    Raises
    ------
    ModelError
        If the evidence names unknown variables or states, or has probability zero for a reason visible in a single
        variable or edge.

    Notes
    -----
    Time and memory are linear in the number of entries.

    Examples
    --------
    >>> model = PairwiseMRF.ising([(0, 1), (1, 2)], coupling=1.0)
    >>> reduction = reduce_model(model, {1: 0})
    >>> reduction.model
    PairwiseMRF(2 variables of 2 states, 0 edges)
    >>> reduction.expand_states([0, 1]).tolist()
    [0, 0, 1]
    """
    n = model.num_variables
    starts, counts = model.unary_offsets[:-1], model.num_states
    fixed = np.full(n, -1, dtype=np.int64)
    for variable, state in (evidence or {}).items():
        i, observed = model.variable_index(variable), model.state_index(variable, state)
        if fixed[i] not in (-1, observed):
            raise ModelError(
                f"evidence must give each variable one state, got {fixed[i]} and {observed} for variable {i}"
            )
        fixed[i] = observed

    owner, row, col = table_positions(counts, model.edges)
    left, right = model.edges[owner, 0], model.edges[owner, 1]
    row_position, col_position = starts[left] + row, starts[right] + col
    variable_of = np.repeat(np.arange(n), counts)
    state_of = np.arange(len(variable_of)) - starts[variable_of]

    while True:
        # States still open: the observed one of a fixed variable, all of the others unless forbidden.
        open_state = (fixed[variable_of] < 0) | (fixed[variable_of] == state_of)
        used = open_state[row_position] & open_state[col_position]
        left_fixed, right_fixed = fixed[left] >= 0, fixed[right] >= 0
        into_right, into_left = used & left_fixed & ~right_fixed, used & right_fixed & ~left_fixed
        unary = model.log_unary.copy()
        for entries, position in ((into_right, col_position), (into_left, row_position)):
            if entries.any():
                unary += np.bincount(position[entries], model.log_pairwise[entries], minlength=len(unary))
        removed = np.flatnonzero(fixed >= 0)
        constant = model.log_constant + float(unary[starts[removed] + fixed[removed]].sum())
        constant += float(model.log_pairwise[used & left_fixed & right_fixed].sum())
        allowed = open_state & (unary > -np.inf)
        per_variable = np.bincount(variable_of[allowed], minlength=n)
        if constant == -np.inf or (per_variable == 0).any():
            dead = np.flatnonzero(per_variable == 0)
            where = f": variable {dead[0]} has no state left" if dead.size else ""
            raise ModelError(f"evidence must have positive probability, but it is impossible{where}")
        single = np.flatnonzero((per_variable == 1) & (fixed < 0))
        if not fold_single or not single.size:
            break
        first_allowed = np.full(n, -1, dtype=np.int64)
        first_allowed[variable_of[allowed]] = state_of[allowed]
        fixed[single] = first_allowed[single]

    kept_state = (allowed if drop_forbidden else open_state) & (fixed[variable_of] < 0)
    variables = np.flatnonzero(fixed < 0)
    kept_entry = ~left_fixed & ~right_fixed & kept_state[row_position] & kept_state[col_position]
    kept_edge = (fixed[model.edges] < 0).all(axis=1)
    new_number = np.cumsum(fixed < 0) - 1
    unary_positions, pairwise_positions = np.flatnonzero(kept_state), np.flatnonzero(kept_entry)
    names = model.variable_names
    state_names = None
    if model.state_names is not None:
        left_names = [model.state_names[variable_of[p]][state_of[p]] for p in unary_positions]
        cuts = offsets_of(np.bincount(variable_of[unary_positions], minlength=n)[variables])
        state_names = [left_names[a:b] for a, b in pairwise(cuts)]
    reduced = PairwiseMRF(
        np.bincount(variable_of[kept_state], minlength=n)[variables],
        unary[unary_positions],
        new_number[model.edges[kept_edge]],
        model.log_pairwise[pairwise_positions],
        constant,
        None if names is None else tuple(names[i] for i in variables),
        state_names,  # type: ignore[arg-type]
    )
    return Reduction(model, reduced, variables, unary_positions, pairwise_positions, fixed)
