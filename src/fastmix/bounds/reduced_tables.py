"""The model that bounds are computed from, reduced by evidence and forbidden states: all its tables in one vector."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix.bounds.tuning import HARD_TIE_STRENGTH
from fastmix.model import Evidence, MarkovRandomField
from fastmix.model.evidence import observed_unary
from fastmix.model.flat import largest_entries, offsets_of, reduce_tables
from fastmix.model.forms import take_offsets
from fastmix.model.reduce import Reduction, reduce_model
from fastmix.model.rounding import log_size, rounding, spread

__all__ = ["ReducedTables", "TableGroup", "folding_error", "reduce_to_tables"]


class TableGroup(NamedTuple):
    """The tables of one shape: their scopes (tables, axes), and the positions of their entries (tables, ...)."""

    scopes: IntArray
    positions: IntArray


@dataclass(frozen=True, eq=False)
class ReducedTables:
    """A model as a product of tables: first one for every variable, then those of its factors.

    A factor is here any table over two or more variables, those of edges included. Tables are numbered from 0; the
    first ``num_variables`` numbers are those of single variables.

    Attributes
    ----------
    num_states : list of int
        State counts, two at least for every variable.
    scope_starts : int array (tables + 1,)
        Where the variables of each table begin in ``scope_variables``.
    scope_variables : int array
        The variables of all tables.
    values : float array
        The entries of all tables, flat, the last variable of a scope fastest.
    log_constant : float
        What is added to the score of every configuration.
    reduction : Reduction
        The way back to the model of the user.
    """

    num_states: list[int]
    scope_starts: IntArray
    scope_variables: IntArray
    values: FloatArray
    log_constant: float
    reduction: Reduction

    @property
    def num_variables(self) -> int:
        """Number of variables that are left."""
        return len(self.num_states)

    @property
    def num_tables(self) -> int:
        """Number of tables, those of single variables included."""
        return len(self.scope_starts) - 1

    @cached_property
    def scopes(self) -> list[tuple[int, ...]]:
        """The variables of every table, for loops in Python; large models have no time for it."""
        flat = self.scope_variables.tolist()
        return [tuple(flat[start:stop]) for start, stop in pairwise(self.scope_starts.tolist())]

    @property
    def factor_scopes(self) -> list[tuple[int, ...]]:
        """The variables of every factor."""
        return self.scopes[self.num_variables :]

    @cached_property
    def offsets(self) -> IntArray:
        """Where each table begins in ``values``, and the end."""
        if not self.num_tables:
            return np.zeros(1, dtype=np.int64)
        counts = np.array(self.num_states, dtype=np.int64)[self.scope_variables]
        return offsets_of(np.multiply.reduceat(counts, self.scope_starts[:-1]))

    @property
    def unary_starts(self) -> IntArray:
        """Where the table of every single variable begins, (n,)."""
        return self.offsets[: self.num_variables]

    @property
    def num_unary(self) -> int:
        """Number of entries of the tables of single variables, which come first."""
        return int(self.offsets[self.num_variables])

    @property
    def unary(self) -> FloatArray:
        """The entries of the tables of single variables."""
        return self.values[: self.num_unary]

    @property
    def is_product(self) -> bool:
        """Whether there are no factors, so that all variables are independent."""
        return self.num_tables == self.num_variables

    @cached_property
    def largest(self) -> FloatArray:
        """The largest finite absolute entry of every table."""
        return largest_entries(self.values, self.offsets)

    @cached_property
    def size(self) -> float:
        """The sum over tables of the largest finite absolute entry, plus that of the constant, for rounding errors."""
        return float(self.largest.sum()) + abs(self.log_constant)

    @cached_property
    def best_unary_states(self) -> IntArray:
        """The state of the largest entry of every variable's own table (n,), the first one of equals."""
        starts = self.unary_starts
        if not len(starts):
            return np.zeros(0, dtype=np.int64)
        unary = self.unary
        largest = np.repeat(np.maximum.reduceat(unary, starts), self.num_states)
        positions = np.flatnonzero(unary == largest)
        owners = np.searchsorted(starts, positions, side="right") - 1
        first = positions[np.append(True, owners[1:] != owners[:-1])]
        return np.asarray(first - starts, dtype=np.int64)

    @cached_property
    def tie_strengths(self) -> FloatArray:
        """How strongly each factor ties its variables: the range of its entries, capped, and that cap if it forbids."""
        inner = self.values[self.num_unary :]
        starts = self.offsets[self.num_variables : -1] - self.num_unary
        if not len(starts):
            return np.zeros(0)
        ends = np.append(starts, len(inner))
        high = reduce_tables(np.maximum, inner, ends)
        low = reduce_tables(np.minimum, np.where(inner > -np.inf, inner, np.inf), ends)
        forbids = reduce_tables(np.minimum, inner, ends) == -np.inf
        # The small constant lets a factor of equal entries count, too: every cover must have it in the end.
        return np.where(forbids, HARD_TIE_STRENGTH, np.minimum(high - low, HARD_TIE_STRENGTH)) + 1e-3

    @cached_property
    def groups(self) -> dict[tuple[int, ...], TableGroup]:
        """The tables by their shape, for computations on whole arrays."""
        counts = np.array(self.num_states, dtype=np.int64)
        widths = np.diff(self.scope_starts)
        result = {}
        for width in np.unique(widths).tolist():
            members = np.flatnonzero(widths == width)
            scopes = self.scope_variables[self.scope_starts[members][:, None] + np.arange(width)]
            for shape, rows in _rows_by_shape(counts[scopes]):
                positions = self.offsets[:-1][members[rows]][:, None] + np.arange(math.prod(shape))
                result[shape] = TableGroup(scopes[rows], positions.reshape(-1, *shape))
        return result

    def with_values(self, values: FloatArray, *, log_constant: float | None = None) -> ReducedTables:
        """A model with the same scopes and other entries, and with another constant if one is given."""
        constant = self.log_constant if log_constant is None else log_constant
        other = replace(self, values=values, log_constant=constant)
        # What depends on scopes alone, and has been computed, is shared.
        for name in ("scopes", "offsets", "groups"):
            if name in self.__dict__:
                other.__dict__[name] = self.__dict__[name]
        return other

    def with_fixed(self, fixed: dict[int, int]) -> ReducedTables:
        """A model with some variables fixed to a state: the entries of their other states are -inf."""
        values = self.values.copy()
        for variable, state in fixed.items():
            start = int(self.offsets[variable])
            kept = values[start + state]
            values[start : start + self.num_states[variable]] = -np.inf
            values[start + state] = kept
        return self.with_values(values)

    def split(self, values: FloatArray, tables: Sequence[int] | IntArray) -> list[FloatArray]:
        """The parts of a vector, laid out as ``values``, that belong to some tables."""
        offsets = self.offsets
        return [values[offsets[table] : offsets[table + 1]] for table in tables]

    def keep(self, tables: IntArray) -> ReducedTables:
        """A model of some of the tables, given by their numbers in rising order; single variables must be included."""
        widths = np.diff(self.scope_starts)
        kept = np.zeros(self.num_tables, dtype=bool)
        kept[tables] = True
        variables = self.scope_variables[np.repeat(kept, widths)]
        values = self.values[self.positions(tables)]
        return replace(self, scope_starts=offsets_of(widths[tables]), scope_variables=variables, values=values)

    def positions(self, tables: IntArray) -> IntArray:
        """The positions in ``values`` of all entries of some tables, one table after the other."""
        sizes = np.diff(self.offsets)[tables]
        shifts = self.offsets[:-1][tables] - offsets_of(sizes)[:-1]
        return np.arange(int(sizes.sum())) + np.repeat(shifts, sizes)

    def log_weights(self, states: IntArray, values: FloatArray | None = None) -> FloatArray:
        """The log-weight of each configuration (configurations, n); with other ``values``, without the constant."""
        total = np.full(len(states), self.log_constant if values is None else 0.0)
        entries = self.values if values is None else values
        for shape, (scopes, positions) in self.groups.items():
            index = np.zeros((len(states), len(scopes)), dtype=np.int64)
            for axis, count in enumerate(shape):
                index = index * count + states[:, scopes[:, axis]]
            total += entries[positions.reshape(len(positions), -1)[:, 0] + index].sum(axis=1)
        return total


def _rows_by_shape(shapes: IntArray) -> list[tuple[tuple[int, ...], IntArray]]:
    """The distinct rows of shapes (tables, axes), and the numbers of the rows that are equal to each."""
    if (shapes == shapes[0]).all():
        return [(tuple(shapes[0].tolist()), np.arange(len(shapes)))]
    distinct, number = np.unique(shapes, axis=0, return_inverse=True)
    order = np.argsort(number.ravel(), kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(number.ravel()))[:-1])
    return [(tuple(shape), part) for shape, part in zip(distinct.tolist(), parts, strict=True)]


def reduce_to_tables(
    model: MarkovRandomField, evidence: Evidence | None = None, clock: Clock = NO_LIMIT
) -> ReducedTables:
    """The tables of a model given evidence, without unsupported states and with constants of tables moved out."""
    reduction = reduce_model(model, evidence, fold_single=True, clock=clock)
    small = reduction.model
    n = small.num_variables
    # Variables of single tables, of edges, and of larger factors, one after the other.
    edge_ends = n + 2 * np.arange(1, small.num_edges + 1)
    factor_ends = n + 2 * small.num_edges + small.structure.scope_starts[1:]
    starts = np.concatenate([np.arange(n + 1), edge_ends, factor_ends])
    variables = np.concatenate([np.arange(n), small.edges.reshape(-1), small.structure.scope_variables])
    tables = ReducedTables(
        num_states=small.num_states.tolist(),
        scope_starts=starts,
        scope_variables=variables,
        values=small.parameters,
        log_constant=small.log_constant,
        reduction=reduction,
    )
    if small is not model:  # else the caller has moved the constants out before
        values, taken = take_offsets(tables.values, tables.offsets, unseen=0.0, of_spread=2.0)
        constant = math.fsum([tables.log_constant, *taken[taken != 0.0].tolist()])
        tables = tables.with_values(values, log_constant=constant)
    # Pairs that are edges only because a larger factor has both have a table of zeros.
    used = reduce_tables(np.logical_or, tables.values != 0.0, tables.offsets).astype(bool)
    used[:n] = True
    return tables if used.all() else tables.keep(np.flatnonzero(used))


def folding_error(model: MarkovRandomField, evidence: Evidence | None, reduction: Reduction) -> float:
    """The largest rounding error of a log-weight where evidence, or a single state, is folded into other tables.

    Every entry is a sum of what was folded into it, of as many numbers as its variable has tables.
    """
    if not (reduction.fixed >= 0).any() and not evidence:
        return 0.0
    variables = np.concatenate([model.edges.reshape(-1), model.structure.scope_variables])
    most_tables = int(np.bincount(variables, minlength=1).max())
    size = log_size(model)
    if evidence:
        size += spread(observed_unary(model, evidence)[0], model.unary_offsets)
    return rounding(most_tables, size)
