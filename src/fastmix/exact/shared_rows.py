"""Log Z and its gradient for rows of unaries beside tables that are the same in all rows.

That is a conditional model whose couplings do not depend on the example. The loops are those of
:mod:`fastmix.exact.parameter_rows`, but tables of edges have no axis for the row: messages of a block of rows are
multiplied by single numbers, and the gradient by the tables is added up over the rows before it leaves the block.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fastmix._arrays import BoolArray, FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix.errors import ImpossibleModelError
from fastmix.exact.batch import may_underflow
from fastmix.exact.elimination import plan_elimination
from fastmix.exact.parameter_rows import ParameterRows, put_side_by_side, structure_factors
from fastmix.exact.tuning import MAX_LOG_RANGE, SCALED_RANGE, SMALLEST_TOTAL
from fastmix.model import Structure

__all__ = ["SharedGradients", "SharedRows", "plan_shared_rows"]


class SharedGradients(NamedTuple):
    """Log Z (N,), marginals of the variables (N, U), and the weighted sums over all rows of those of the edges (S,)."""

    log_z: FloatArray
    own: FloatArray | None
    shared: FloatArray | None


class _Leaves(NamedTuple):
    """The leaves of the unaries, as ``fill_leaves_by_parameters`` takes them, and those that all rows share.

    ``shared`` has for every such leaf its table, its place, its size and where its entries are among all parameters;
    ``alike`` tells, by step of the program, whether its two tables are of this kind, ``leaf_alike`` which leaves are.
    """

    members: IntArray
    entries: IntArray
    shared: list[tuple[int, int, int, IntArray]]
    alike: BoolArray
    leaf_alike: BoolArray


@dataclass(frozen=True, eq=False)
class SharedRows(ParameterRows):
    """The elimination of all variables of a graph of pairs, ready for rows of unaries beside one set of tables."""

    num_own: int  # entries of the unaries

    @cached_property
    def leaves(self) -> _Leaves:
        """Which leaves are filled from the rows, and which are the same in all."""
        program = self.program
        plan = self.elimination.plan
        num_variables = len(plan.states)
        filling = self.filling
        factor_of = np.array([f for own in plan.leaves.values() for f in own], dtype=np.int64)
        is_own = factor_of < num_variables
        is_alike = np.zeros(program.leaf_end, dtype=bool)
        shared = []
        tables = [t for t, own in plan.leaves.items() for _ in own]
        for t, own, member in zip(tables, is_own.tolist(), filling.members.tolist(), strict=True):
            if not own:
                place, size, begin, _ = member
                is_alike[place : place + size] = True
                shared.append((t, place, size, filling.entries[begin : begin + size]))
        places = program.steps[:, :2]
        inside = places < program.leaf_end
        alike = inside & is_alike[np.minimum(places, max(program.leaf_end - 1, 0))]
        return _Leaves(filling.members[is_own], filling.entries, shared, alike, is_alike[program.leaf_starts])

    def values(self, own: FloatArray, tables: FloatArray, clock: Clock = NO_LIMIT) -> FloatArray:
        """Log Z (N,) for rows of unaries (N, U) and tables (S,)."""
        return _SharedRun(self, own, tables, None).run(clock).log_z

    def gradients(
        self, own: FloatArray, tables: FloatArray, weights: FloatArray, clock: Clock = NO_LIMIT
    ) -> SharedGradients:
        """Log Z, and gradients, those of the tables added up over the rows with ``weights`` (N,)."""
        return _SharedRun(self, own, tables, weights).run(clock)


class _SharedRun:
    """One pass over rows of unaries."""

    def __init__(self, plan: SharedRows, own: FloatArray, tables: FloatArray, weights: FloatArray | None) -> None:
        self.plan = plan
        self.own = own
        self.tables = tables
        self.weights = weights
        count = len(own)
        self.log_z = np.zeros(count)
        self.marginals = None if weights is None else np.zeros(own.shape)
        self.sums = None if weights is None else np.zeros(plan.num_parameters)
        self.is_late = np.zeros(count, dtype=bool)
        # The tables, divided by their largest entries, and what the logs of their ranges are.
        program = plan.program
        starts = np.array(program.offsets[len(program.states) : -1]) - plan.num_own
        self.log_constant = 0.0
        self.factors = np.zeros(0)
        self.table_ranges: dict[int, float] = {}
        if len(starts):
            largest = np.maximum.reduceat(tables, starts)
            largest[largest == -np.inf] = 0.0
            finite = np.where(tables > -np.inf, tables, np.inf)
            smallest = np.minimum(np.minimum.reduceat(finite, starts), largest)
            sizes = np.diff(np.append(starts, len(tables)))
            self.factors = np.exp(tables - np.repeat(largest, sizes))
            self.log_constant = float(largest.sum())
            leaf_of = plan.filling.leaf_of[len(program.states) :]
            self.table_ranges = dict(zip(leaf_of.tolist(), (largest - smallest).tolist(), strict=True))

    def run(self, clock: Clock) -> SharedGradients:
        """All blocks, then one by one the rows for which ordinary arithmetic might underflow."""
        width = self.plan.width
        for first in range(0, len(self.own), width):
            clock.check()
            self._run_block(first, width)
        for row in np.flatnonzero(self.is_late).tolist():
            clock.check()
            self._answer_alone(row, clock)
        shared = None if self.sums is None else self.sums[self.plan.num_own :]
        if self.marginals is not None:
            self.marginals[self.log_z == -np.inf] = np.nan
        return SharedGradients(self.log_z, self.marginals, shared)

    def _run_block(self, first: int, width: int) -> None:
        """Answer the rows from ``first`` on that fit into a block."""
        from fastmix.exact import batch_kernels as kernels

        program = self.plan.program
        leaves = self.plan.leaves
        last = min(first + width, len(self.own))
        count = last - first
        w = np.empty(program.end * width)
        tangents = np.zeros(0)
        log_scale = np.full(width, self.log_constant)
        state = np.zeros(width, dtype=np.int64)
        high = np.zeros(width)
        low = np.zeros(width)
        digits = np.zeros(max(program.depth, 1), dtype=np.int64)
        w[program.one * width : (program.one + 2) * width] = 1.0
        ranges = self._fill(first, width, w, log_scale, high, low)
        state[ranges.reshape(-1, width).max(axis=0, initial=0.0) > MAX_LOG_RANGE] = kernels.UNDERFLOW
        watched = may_underflow(self.plan.elimination.plan, ranges.reshape(-1, width).max(axis=1))
        if (state == kernels.UNDERFLOW).all():
            self.is_late[first:last] = True
            return
        limits = (*SCALED_RANGE, MAX_LOG_RANGE)

        def go(begin: int, end: int) -> None:
            kernels.run_batch_steps(
                program.steps, program.groups, False, limits, watched, begin, end, width, leaves.alike, w, tangents,
                ranges, log_scale, state, high, low, digits,
            )  # fmt: skip

        go(program.forward, program.backward)
        self.log_z[first:last] = np.where(state == kernels.IMPOSSIBLE, -np.inf, log_scale)[:count]
        if self.marginals is not None:
            go(program.backward, program.reading)
            is_own = ~leaves.leaf_alike
            starts = program.leaf_starts[is_own]
            kernels.normalize_leaves(
                starts, program.leaf_sizes[is_own], program.changed[starts], program.back, width, w, tangents, state,
                SMALLEST_TOTAL, high, low,
            )  # fmt: skip
            num_own = self.plan.num_own
            own = slice(program.joint * width, (program.joint + num_own) * width)
            w[own] = 0.0
            go(program.joints[0], program.joints[len(program.states)])
            self.marginals[first:last] = w[own].reshape(-1, width).T[:count]
            self._add_up(first, width, w, state, high)
        self.is_late[first:last] = (state == kernels.UNDERFLOW)[:count]

    def _add_up(self, first: int, width: int, w: FloatArray, state: IntArray, total: FloatArray) -> None:
        """Add the marginals of the shared tables to their sums, unless a row has to be answered alone after all."""
        from fastmix.exact import batch_kernels as kernels

        assert self.weights is not None
        assert self.sums is not None
        program = self.plan.program
        weights = np.zeros(width)
        own = self.weights[first : first + width]
        weights[: len(own)] = own
        sums = np.zeros(len(self.sums))
        before = state.copy()
        for _, place, size, entries in self.plan.leaves.shared:
            kernels.add_up_leaf(
                place, size, entries, bool(program.changed[place]), program.back, width, w, weights, state,
                SMALLEST_TOTAL, total, sums,
            )  # fmt: skip
        if (state != before).any():  # some tables have rows that others lack: all of the block once more
            state[:] = kernels.UNDERFLOW
            return
        self.sums += sums

    def _fill(
        self, first: int, width: int, w: FloatArray, log_scale: FloatArray, high: FloatArray, low: FloatArray
    ) -> FloatArray:
        """Fill the leaves of a block; the ranges of its tables come back."""
        from fastmix.exact import batch_kernels as kernels

        program = self.plan.program
        filling = self.plan.filling
        leaves = self.plan.leaves
        n = len(program.states)
        num_own = self.plan.num_own
        values = w[program.values * width : (program.values + num_own) * width]
        ranges = np.zeros((len(program.places) + 1) * width)
        put_side_by_side(self.own, first, width, values)
        starts = filling.starts[: n + 1]
        kernels.center_parameters(starts, filling.leaf_of[:n], values, width, ranges, log_scale, high, low)
        np.exp(values, out=values)
        none = np.zeros(0)
        kernels.fill_leaves_by_parameters(leaves.members, leaves.entries, values, none, width, w, none)
        rows = w.reshape(-1, width)
        for t, place, size, entries in leaves.shared:
            rows[place : place + size, 0] = self.factors[entries - num_own]
            ranges[t * width : (t + 1) * width] = self.table_ranges[t]
        return ranges

    def _answer_alone(self, row: int, clock: Clock) -> None:
        """Answer one row by the engine for single sets of parameters, which goes over to logarithms."""
        elimination = self.plan.elimination
        theta = np.concatenate([self.own[row], self.tables])
        try:
            if self.marginals is None or self.weights is None or self.sums is None:
                self.log_z[row] = elimination.log_z(theta, clock)
                return
            self.log_z[row], found = elimination.gradient(theta, clock)
        except ImpossibleModelError:
            self.log_z[row] = -np.inf
            return
        self.marginals[row] = found[: self.plan.num_own]
        self.sums += self.weights[row] * found


def plan_shared_rows(structure: Structure, *, memory_limit: float = math.inf, clock: Clock = NO_LIMIT) -> SharedRows:
    """The elimination of all variables of a graph of pairs, whose tables are not joined with anything beforehand."""
    factors = structure_factors(structure)
    tables = frozenset(range(structure.num_variables, len(factors.scopes)))
    elimination = plan_elimination(factors, memory_limit=memory_limit, alone=tables, clock=clock).run_often()
    return SharedRows(elimination, int(structure.unary_offsets[-1]))
