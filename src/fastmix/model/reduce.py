"""Smaller models with the same answers: evidence folded in, forbidden states dropped, and the way back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import ArrayLike

from fastmix._arrays import BoolArray, FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix.errors import ImpossibleEvidenceError, ImpossibleModelError, ModelError
from fastmix.model import Evidence, MarkovRandomField, check_model
from fastmix.model.evidence import observations_of, weighted_unary
from fastmix.model.flat import offsets_of, table_positions
from fastmix.model.forms import move_constants, take_offsets
from fastmix.model.shared import SharedTables
from fastmix.model.sharing import cut_tables, paste_tables
from fastmix.model.supports import Factors, drop_unsupported
from fastmix.model.tuning import LARGE_ENTRY

__all__ = ["KeptParts", "Reduction", "certain_entries", "forbid_others", "impossible", "reduce_model"]

# Models that a reduction which dropped forbidden states has given, by identity: there is nothing left to do on them.
# The key says whether variables with a single state were folded, too.
_REDUCED: dict[bool, WeakValueDictionary[int, MarkovRandomField]] = {
    False: WeakValueDictionary(),
    True: WeakValueDictionary(),
}


# -- the way back -----------------------------------------------------------------------------------------------------


class KeptParts(NamedTuple):
    """The parts of a model that a reduction keeps, by their numbers in the original model."""

    variables: IntArray
    edges: BoolArray
    states: BoolArray
    unary_positions: IntArray
    fixed: IntArray


@dataclass(frozen=True, eq=False)
class Reduction:
    """A model, a smaller one with the same distribution over what is left, and the maps between them.

    ``kept`` is None where everything stays. The maps are then made when they are first asked for: they take as long as
    a sweep of a large model, and most calls never read them.
    """

    original: MarkovRandomField
    model: MarkovRandomField
    kept: KeptParts | None = None

    @classmethod
    def none(cls, original: MarkovRandomField, model: MarkovRandomField | None = None) -> Reduction:
        """The reduction that keeps everything, from a model to itself or to another one on its graph."""
        return cls(original, original if model is None else model)

    @cached_property
    def variables(self) -> IntArray:
        """Original numbers of the variables of ``model``."""
        return np.arange(self.original.num_variables) if self.kept is None else self.kept.variables

    @cached_property
    def unary_positions(self) -> IntArray:
        """Original positions of the unary entries of ``model``."""
        return np.arange(len(self.original.log_unary)) if self.kept is None else self.kept.unary_positions

    @cached_property
    def pairwise_positions(self) -> IntArray:
        """Original positions of the table entries of ``model``."""
        if self.kept is None:
            return np.arange(int(self.original.pairwise_offsets[-1]))
        return _kept_entries(self.original, self.kept.edges, self.kept.states)

    @cached_property
    def fixed(self) -> IntArray:
        """The state of each original variable that was removed, -1 for those that were kept, (n,)."""
        return np.full(self.original.num_variables, -1) if self.kept is None else self.kept.fixed

    def expand_tables(self, tables: SharedTables) -> SharedTables | None:
        """Shared tables of all edges, of which those that are kept have become ``tables``.

        None where the original model shares none, or where states of its kept variables were dropped.
        """
        shared = self.original.shared_tables
        if shared is None or self.kept is None:
            return None if shared is None else tables
        if len(self.unary_positions) != int(self.original.num_states[self.variables].sum()):
            return None
        return paste_tables(shared, self.kept.edges, tables)

    def expand_node_marginals(self, marginals: FloatArray) -> FloatArray:
        """Flat node marginals of the original model: point masses for removed variables, zero for dropped states."""
        if self.model is self.original:
            return marginals
        result = np.zeros(len(self.original.log_unary))
        result[self.unary_positions] = marginals
        removed = np.flatnonzero(self.fixed >= 0)
        result[self.original.unary_offsets[removed] + self.fixed[removed]] = 1.0
        return result

    def expand_edge_marginals(self, node_marginals: FloatArray, edge_marginals: FloatArray) -> FloatArray:
        """Flat edge marginals of the original model; an edge with a removed end is a product with a point mass."""
        model = self.original
        if self.model is self.original:
            return edge_marginals
        nodes = self.expand_node_marginals(node_marginals)
        result = np.zeros(int(model.pairwise_offsets[-1]))
        result[self.pairwise_positions] = edge_marginals
        touched = self.fixed[model.edges].max(axis=1) >= 0
        rows, cols = _entry_ends(model, touched)
        result[np.repeat(touched, np.diff(model.pairwise_offsets))] = nodes[rows] * nodes[cols]
        return result

    def expand_states(self, states: ArrayLike) -> IntArray:
        """Configurations (..., n) of the original model from configurations of the reduced one."""
        x, shape = self.model._as_states(states)
        if self.model is self.original:
            return x.reshape((*shape, self.original.num_variables))
        result = np.repeat(self.fixed[None, :], len(x), axis=0)
        flat = self.unary_positions[self.model.unary_offsets[:-1] + x]
        result[:, self.variables] = flat - self.original.unary_offsets[self.variables]
        return result.reshape((*shape, self.original.num_variables))


# -- reducing ---------------------------------------------------------------------------------------------------------


class _Folded(NamedTuple):
    """The terms of a model with all that is fixed folded into terms over fewer variables."""

    unary: FloatArray
    constant: float
    tables: FloatArray | SharedTables
    factors: Factors


class _Left(NamedTuple):
    """The folded terms, and the states that are left, flags aligned with ``log_unary``."""

    folded: _Folded
    open_states: BoolArray  # the observed state of a fixed variable, all states of the others
    allowed: BoolArray  # open states that nothing forbids


def reduce_model(
    model: MarkovRandomField,
    evidence: Evidence | None = None,
    *,
    drop_forbidden: bool = True,
    fold_single: bool = False,
    clock: Clock = NO_LIMIT,
) -> Reduction:
    """The model given evidence, as a :class:`Reduction` that can map answers back.

    Observed variables leave the model. A list of likelihoods, one per state, is soft evidence: the variable stays, and
    its states are weighted by them. Time and memory are linear in the number of entries.

    Parameters
    ----------
    model : MarkovRandomField
    evidence : mapping, optional
        Observed states, or likelihoods, by variable.
    drop_forbidden : bool
        States whose unary is -inf after folding are dropped. Where there are larger factors or ``fold_single``, so are
        states that the states left of other variables do not allow (:func:`fastmix.model.supports.drop_unsupported`).
    fold_single : bool
        Variables that have a single state left are folded, as if it had been observed.
    clock : Clock
        After its limit a reduction of several passes ends with an :class:`fastmix._clock.OutOfTimeError`.

    Returns
    -------
    Reduction
        When there is nothing to do, its ``model`` is the very object that was given. What an earlier reduction gave is
        recognized at once.

    Raises
    ------
    ModelError
        If the evidence, or the model itself, has probability zero for a reason visible in a single variable or edge.
    """
    check_model(model)
    if evidence is None and drop_forbidden and _REDUCED[fold_single].get(id(model)) is model:
        return Reduction.none(model)
    original = model
    # Constants leave the tables before anything is added to these: what is added to a large constant is lost.
    model = move_constants(model)
    fixed, likelihoods = observations_of(model, evidence)
    if likelihoods:
        model = model.replace(log_unary=weighted_unary(model, likelihoods))
    if _nothing_to_do(model, fixed, drop_forbidden, fold_single):
        return Reduction.none(original, model)
    left = _fold_fixed(model, fixed, drop_forbidden, fold_single, clock, given=bool(evidence))
    if left.allowed.all() and (fixed < 0).all():
        return Reduction.none(original, model)
    reduced, kept = _cut(model, left, fixed, drop_forbidden)
    # A constant can be in what is left of a table although the table had none.
    reduced = move_constants(reduced)
    if drop_forbidden:
        _REDUCED[False][id(reduced)] = reduced
        if fold_single:
            _REDUCED[True][id(reduced)] = reduced
    return Reduction(original, reduced, kept)


def forbid_others(model: MarkovRandomField, evidence: Evidence | None) -> Reduction | None:
    """The model with all states but the observed ones forbidden, on the same structure; None where that is impossible.

    Cheaper than :func:`reduce_model` where the graph is so small that nothing is gained by cutting it. None is also
    returned where entries are so large that the rows of tables at observed states may have constants to take out.
    """
    original = model
    model = move_constants(model)
    if evidence is None or (isinstance(evidence, Mapping) and not evidence):
        return Reduction.none(original, model)
    if _largest_entry(model) > LARGE_ENTRY:
        return None
    fixed, likelihoods = observations_of(model, evidence)
    unary = weighted_unary(model, likelihoods)
    offsets = model.unary_offsets
    for v in np.flatnonzero(fixed >= 0).tolist():
        own_entries = unary[offsets[v] : offsets[v + 1]]
        observed_entry = own_entries[fixed[v]]
        if observed_entry == -np.inf:
            return None
        own_entries.fill(-np.inf)
        own_entries[fixed[v]] = observed_entry
    for v in likelihoods:
        if unary[offsets[v] : offsets[v + 1]].max() == -np.inf:
            return None
    given = model._sibling(unary, model.tables, model.log_factors, model.log_constant)
    return Reduction.none(original, given)


def certain_entries(model: MarkovRandomField) -> BoolArray:
    """Which entries of ``log_unary`` have a probability of 0 or 1 by the unaries alone, (E,).

    These are states that the unary forbids, and the one state of a variable that it allows.
    """
    allowed = model.log_unary > -np.inf
    if not len(allowed):
        return allowed
    num_allowed = np.add.reduceat(allowed.astype(np.int64), model.unary_offsets[:-1])
    return ~allowed | np.repeat(num_allowed == 1, model.num_states)


def impossible(given: bool, why: str = "") -> ModelError:
    """The error for a model, or for evidence (``given``), without a configuration of positive probability."""
    reason = f": {why}" if why else ""
    if given:
        return ImpossibleEvidenceError(f"evidence must have positive probability, but it is impossible{reason}")
    return ImpossibleModelError(f"the model has no configuration of positive probability{reason}")


def _largest_entry(model: MarkovRandomField) -> float:
    """The largest finite absolute value of all entries."""
    arrays = (model.log_unary, model.log_factors)
    largest = [float(np.abs(array[array > -np.inf]).max(initial=0.0)) for array in arrays]
    return max(*largest, float(model.sizes_of_tables().max(initial=0.0)))


def _nothing_to_do(model: MarkovRandomField, fixed: IntArray, drop_forbidden: bool, fold_single: bool) -> bool:
    """Whether the model stays as it is: the common case, worth no arrays of the size of the tables."""
    if (fixed >= 0).any():
        return False
    if fold_single and (model.num_states == 1).any():
        return False
    if not (drop_forbidden or fold_single):
        return True
    # Every variable of a model has a state, and only with forbidden ones can a larger variable have just one. Edge
    # tables matter only when a variable with one state left forces another one.
    if fold_single and model.tables_forbid:
        return False
    return not any(array.size and array.min() == -np.inf for array in (model.log_unary, model.log_factors))


def _states_of(model: MarkovRandomField) -> tuple[IntArray, IntArray]:
    """The variable and the state of every unary entry."""
    variable_of = np.repeat(np.arange(model.num_variables), model.num_states)
    state_of = np.arange(len(variable_of)) - model.unary_offsets[variable_of]
    return variable_of, state_of


def _fold_fixed(
    model: MarkovRandomField, fixed: IntArray, drop_forbidden: bool, fold_single: bool, clock: Clock, *, given: bool
) -> _Left:
    """The terms and states that are left of a model, in passes until no more variables become fixed.

    ``fixed`` is changed in place: with ``fold_single`` a variable with a single state left is fixed, and the next pass
    folds it. ``given`` says whether evidence or the model is to blame for a contradiction.
    """
    variable_of, state_of = _states_of(model)
    unsupported = np.zeros(len(variable_of), dtype=bool)
    while True:
        folded = _fold(model, fixed)
        open_states = (fixed[variable_of] < 0) | (fixed[variable_of] == state_of)
        allowed = open_states & (folded.unary > -np.inf) & ~unsupported
        is_first_search = fold_single and not unsupported.any()
        if drop_forbidden and (folded.factors or is_first_search):  # one search is enough for pairs
            before = allowed.copy()
            if folded.factors or model.tables_forbid:
                tables = model.log_pairwise if isinstance(folded.tables, SharedTables) else folded.tables
                drop_unsupported(model, tables, folded.factors, fixed, allowed, clock)
            unsupported |= before & ~allowed
        num_left = np.bincount(variable_of[allowed], minlength=model.num_variables)
        if folded.constant == -np.inf or (num_left == 0).any():
            raise _contradiction(model, fixed, num_left, given=given)
        is_single = (num_left == 1) & (fixed < 0)
        if not fold_single or not is_single.any():
            return _Left(folded, open_states, allowed)
        chosen = allowed & is_single[variable_of]
        fixed[variable_of[chosen]] = state_of[chosen]


def _contradiction(model: MarkovRandomField, fixed: IntArray, num_left: IntArray, *, given: bool) -> ModelError:
    """The error for a model that allows nothing, with the variable or the edge that shows it."""
    names = model.names_of_variables()
    states = model.names_of_states()
    dead = np.flatnonzero(num_left == 0)
    if dead.size:
        return impossible(given, f"variable {names[dead[0]]} has no state left")
    edges, values = _entries_between_fixed(model, fixed)
    broken = edges[values == -np.inf]
    if broken.size:
        i, j = model.edges[broken[0]].tolist()
        left = f"states {states[i][fixed[i]]} and {states[j][fixed[j]]}, the only ones left of its ends"
        return impossible(given, f"edge ({names[i]}, {names[j]}) forbids {left}")
    return impossible(given)


# -- folding ----------------------------------------------------------------------------------------------------------


def _fold(model: MarkovRandomField, fixed: IntArray) -> _Folded:
    """The terms of a model with all that is fixed folded into terms over fewer variables.

    What is folded has its large constants taken out before it is added, and all constants are added up at once.
    """
    removed = np.flatnonzero(fixed >= 0)
    unary = model.log_unary.copy()
    tables = model.tables
    factors: Factors = {}
    constants = [model.log_constant]
    if removed.size:
        constants += _fold_edges(model, fixed, unary)
    if model.num_factors:
        tables = model.log_pairwise.copy()
        constants += _fold_factors(model, fixed, unary, tables, factors)
    constants += unary[model.unary_offsets[:-1][removed] + fixed[removed]].tolist()
    constants += _entries_between_fixed(model, fixed)[1].tolist()
    return _Folded(unary, math.fsum(constants), tables, factors)


def _fold_edges(model: MarkovRandomField, fixed: IntArray, unary: FloatArray) -> list[float]:
    """Add to ``unary``, in place, the rows of edge tables that fixed ends leave; the constants taken out of them."""
    directed = model.structure.directed
    neighbors = model.adjacency.neighbors
    # One row for every edge from a fixed variable to a free neighbor, with an entry for each state of the neighbor.
    slots = np.flatnonzero((fixed[directed.owner] >= 0) & (fixed[neighbors] < 0))
    sizes = model.num_states[neighbors[slots]]
    offsets = offsets_of(sizes)
    slots = np.repeat(slots, sizes)
    states = np.arange(len(slots)) - np.repeat(offsets[:-1], sizes)
    own_states = fixed[directed.owner[slots]]
    is_first = directed.owner[slots] < neighbors[slots]
    row_states = np.where(is_first, own_states, states)
    col_states = np.where(is_first, states, own_states)
    rows = model.table_entries(model.adjacency.edge_ids[slots], row_states, col_states)
    values, taken = take_offsets(rows, offsets)
    unary += np.bincount(model.unary_offsets[neighbors[slots]] + states, values, minlength=len(unary))
    constants: list[float] = taken[taken != 0.0].tolist()
    return constants


def _fold_factors(
    model: MarkovRandomField, fixed: IntArray, unary: FloatArray, tables: FloatArray, factors: Factors
) -> list[float]:
    """Add, in place, what fixed variables leave of larger factors to terms of that size; the constants taken out."""
    constants: list[float] = []
    for scope, table in model.factors:
        free = scope[fixed[scope] < 0]
        part = table[tuple(slice(None) if state < 0 else state for state in fixed[scope])]
        if len(free) == 0:
            constants.append(float(part))
            continue
        if len(free) < len(scope):
            flat, taken = take_offsets(part.reshape(-1), np.array([0, part.size]))
            part = flat.reshape(part.shape)
            constants.append(float(taken[0]))
        if len(free) == 1:
            unary[model.unary_offsets[free[0]] : model.unary_offsets[free[0] + 1]] += part
        elif len(free) == 2:
            e = model.edge_index(int(free[0]), int(free[1]))
            tables[model.pairwise_offsets[e] : model.pairwise_offsets[e + 1]] += part.reshape(-1)
        else:
            key = tuple(free.tolist())
            factors[key] = factors[key] + part if key in factors else part
    return constants


def _entries_between_fixed(model: MarkovRandomField, fixed: IntArray) -> tuple[IntArray, FloatArray]:
    """The edges with both ends fixed, and the one entry of each table that is used."""
    edges = np.flatnonzero((fixed[model.edges] >= 0).all(axis=1))
    i, j = model.edges[edges].T
    return edges, model.table_entries(edges, fixed[i], fixed[j])


# -- cutting ----------------------------------------------------------------------------------------------------------


def _cut(
    model: MarkovRandomField, left: _Left, fixed: IntArray, drop_forbidden: bool
) -> tuple[MarkovRandomField, KeptParts]:
    """The model of the variables and states that are left, and their places in the whole model."""
    variable_of, state_of = _states_of(model)
    is_free = fixed < 0
    kept_states = (left.allowed if drop_forbidden else left.open_states) & is_free[variable_of]
    kept_edges = is_free[model.edges[:, 0]] & is_free[model.edges[:, 1]]
    variables = np.flatnonzero(is_free)
    unary_positions = np.flatnonzero(kept_states)
    num_states = np.bincount(variable_of[kept_states], minlength=model.num_variables)[variables]
    variable_names = None
    if model.variable_names is not None:
        variable_names = tuple(model.variable_names[i] for i in variables)
    state_names = None
    if model.state_names is not None:
        names = [model.state_names[variable_of[k]][state_of[k]] for k in unary_positions]
        state_names = tuple(tuple(names[a:b]) for a, b in pairwise(offsets_of(num_states)))
    new_numbers = np.cumsum(is_free) - 1
    tables = left.folded.tables
    shared = None
    full = np.zeros(0)
    if isinstance(tables, SharedTables):
        shared = cut_tables(model, tables, kept_edges, kept_states)
    if shared is None:
        values = model.log_pairwise if isinstance(tables, SharedTables) else tables
        full = values[_kept_entries(model, kept_edges, kept_states)]
    reduced = MarkovRandomField(
        num_states,
        left.folded.unary[unary_positions],
        new_numbers[model.edges[kept_edges]],
        full,
        left.folded.constant,
        variable_names,
        state_names,
        *_kept_factors(model, left.folded.factors, new_numbers, kept_states),
        shared_tables=shared,
    )
    return reduced, KeptParts(variables, kept_edges, kept_states, unary_positions, fixed)


def _kept_factors(
    model: MarkovRandomField, factors: Factors, new_numbers: IntArray, kept_states: BoolArray
) -> tuple[IntArray, IntArray, FloatArray]:
    """Scope starts, scope variables and tables of the factors between kept states, for the constructor."""
    scopes = sorted(factors)
    tables = [np.zeros(0)]
    for scope in scopes:
        kept = [kept_states[model.unary_offsets[v] : model.unary_offsets[v + 1]] for v in scope]
        tables.append(factors[scope][np.ix_(*kept)].reshape(-1))
    widths = np.array([len(scope) for scope in scopes], dtype=np.int64)
    members = np.array([v for scope in scopes for v in scope], dtype=np.int64)
    return offsets_of(widths), new_numbers[members], np.concatenate(tables)


def _kept_entries(model: MarkovRandomField, kept_edges: BoolArray, kept_states: BoolArray) -> IntArray:
    """Positions of the table entries between kept states."""
    sizes = np.diff(model.pairwise_offsets)
    kept = np.repeat(kept_edges, sizes)
    if not len(kept_states):
        return np.flatnonzero(kept)
    # Only the tables of variables that lose some states are looked at entry by entry.
    is_whole = np.logical_and.reduceat(kept_states, model.unary_offsets[:-1])
    is_cut = kept_edges & ~is_whole[model.edges].all(axis=1)
    rows, cols = _entry_ends(model, is_cut)
    kept[np.repeat(is_cut, sizes)] = kept_states[rows] & kept_states[cols]
    return np.flatnonzero(kept)


def _entry_ends(model: MarkovRandomField, chosen: BoolArray) -> tuple[IntArray, IntArray]:
    """Positions among the unary entries of the two states of every entry of the tables of chosen edges."""
    owner, row, col = table_positions(model.num_states, model.edges[chosen])
    i, j = model.unary_offsets[model.edges[chosen][owner]].T
    return i + row, j + col
