"""Log Z and its gradient for rows of unaries beside tables that are the same in all rows.

That is a conditional model whose couplings do not depend on the example. The loops are those of
:mod:`fastmix.exact.parameter_rows`, but tables of edges have no axis for the row: messages of a block of rows are
multiplied by single numbers, and the gradient by the tables is added up over the rows before it leaves the block.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fastmix._arrays import BoolArray, FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix.errors import ImpossibleModelError
from fastmix.exact import program_kernels as kernels
from fastmix.exact.batch import may_underflow
from fastmix.exact.elimination import plan_elimination
from fastmix.exact.parameter_rows import ParameterRows, put_side_by_side, structure_factors
from fastmix.exact.tuning import MAX_LOG_RANGE, SCALED_RANGE, SMALLEST_TOTAL
from fastmix.model import Structure

__all__ = ["SharedAnswer", "SharedGradients", "SharedRows", "plan_shared_rows"]


class SharedGradients(NamedTuple):
    """Log Z (N,), marginals of the variables (N, U), and the weighted sums over all rows of those of the edges (S,)."""

    log_z: FloatArray
    own: FloatArray
    shared: FloatArray


class _SharedLeaf(NamedTuple):
    """A leaf that all rows share: its table, its place, its size, and where its entries are among all parameters."""

    table: int
    place: int
    size: int
    entries: IntArray


class _Outer(NamedTuple):
    """A step whose result, the derivative by a shared leaf, is the outer product of two tables, row by row.

    Its sum over the rows is a product of matrices: the step itself is left out. ``first`` and ``second`` are where the
    entries of the tables begin and how many they are, ``entries`` (of the first, of the second) where those of the leaf
    are among all parameters.
    """

    step: int
    first: slice
    second: slice
    entries: IntArray


class _Leaves(NamedTuple):
    """The leaves of the unaries, as ``fill_leaves_by_parameters`` takes them, and those that all rows share.

    ``alike`` tells, by step of the program, whether its two tables are of the latter kind, ``leaf_alike`` which leaves
    are. Derivatives are ``outer`` products where all of them are; otherwise those by all, the ``others``, are computed
    in full.
    """

    members: IntArray
    entries: IntArray
    shared: list[_SharedLeaf]
    alike: BoolArray
    leaf_alike: BoolArray
    outer: list[_Outer]
    others: list[_SharedLeaf]


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
                shared.append(_SharedLeaf(t, place, size, filling.entries[begin : begin + size]))
        places = program.steps[:, :2]
        inside = places < program.leaf_end
        alike = inside & is_alike[np.minimum(places, max(program.leaf_end - 1, 0))]
        leaf_alike = is_alike[program.leaf_starts]
        found = [self._find_outer(leaf, alike) for leaf in shared]
        # Sums of both kinds would not go together: which rows are to be left out is known at different times.
        outer: list[_Outer] = []
        others = shared
        if None not in found:
            outer = sorted([step for step in found if step is not None])
            others = []
        return _Leaves(filling.members[is_own], filling.entries, shared, alike, leaf_alike, outer, others)

    def _find_outer(self, leaf: _SharedLeaf, alike: BoolArray) -> _Outer | None:
        """The step going back that computes the derivative by a leaf, if it is an outer product of runs of entries."""
        program = self.program
        backward = program.steps[program.backward : program.reading]
        writers = np.flatnonzero(backward[:, 2] == program.back + leaf.place)
        if len(writers) != 1 or not program.changed[leaf.place]:
            return None
        step = program.backward + int(writers[0])
        first, second, _, begin, end, kind = program.steps[step, :6].tolist()
        if kind != kernels.SUM or alike[step].any():
            return None
        loops = [loop for loop in program.groups[begin:end].tolist() if loop[0] > 1]
        by_first = [loop for loop in loops if loop[1:3] == [1, 0] and loop[3]]
        by_second = [loop for loop in loops if loop[1:3] == [0, 1] and loop[3]]
        if len(by_first) > 1 or len(by_second) > 1 or len(by_first) + len(by_second) < len(loops):
            return None
        num_first, _, _, first_step = by_first[0] if by_first else (1, 0, 0, 0)
        num_second, _, _, second_step = by_second[0] if by_second else (1, 0, 0, 0)
        places = np.add.outer(np.arange(num_first) * first_step, np.arange(num_second) * second_step)
        return _Outer(step, slice(first, first + num_first), slice(second, second + num_second), leaf.entries[places])

    def values(self, own: FloatArray, tables: FloatArray, clock: Clock = NO_LIMIT) -> FloatArray:
        """Log Z (N,) for rows of unaries (N, U) and tables (S,)."""
        run = _SharedRun(self, own, tables, wants_slopes=False)
        run.go(clock)
        return run.log_z

    def gradients(
        self, own: FloatArray, tables: FloatArray, weights: FloatArray, clock: Clock = NO_LIMIT
    ) -> SharedGradients:
        """Log Z, and gradients, those of the tables added up over the rows with ``weights`` (N,)."""
        run = _SharedRun(self, own, tables, weights=weights)
        run.go(clock)
        return SharedGradients(run.log_z, run.marginals, run.by_tables(weights))

    @property
    def can_wait(self) -> bool:
        """Whether rows can be answered before their weights are known."""
        return not self.leaves.others

    def unweighted(self, own: FloatArray, tables: FloatArray, clock: Clock = NO_LIMIT) -> SharedAnswer:
        """Log Z and gradients by the unaries, and what gives those by the tables once weights are known."""
        assert self.can_wait
        run = _SharedRun(self, own, tables)
        run.go(clock)
        return SharedAnswer(run.log_z, run.marginals, run.by_tables)


class SharedAnswer(NamedTuple):
    """Log Z (N,), marginals of the variables (N, U), and the sums (S,) of those of the edges as a function of weights.

    The function holds the messages to both ends of every edge, for all rows.
    """

    log_z: FloatArray
    own: FloatArray
    by_tables: Callable[[FloatArray], FloatArray]


class _SharedRun:
    """One pass over rows of unaries.

    Marginals of shared tables are sums over rows of outer products, times the table: the factors are kept for all rows,
    so that the sums can be made at once, when all is known. What has another form is added up block by block.
    """

    def __init__(
        self, plan: SharedRows, own: FloatArray, tables: FloatArray, *, weights: FloatArray | None = None,
        wants_slopes: bool = True,
    ) -> None:  # fmt: skip
        self.plan = plan
        self.own = own
        self.tables = tables
        self.weights = weights
        self.wants_slopes = wants_slopes
        count = len(own)
        self.log_z = np.zeros(count)
        self.marginals = np.zeros(own.shape if wants_slopes else (0, 0))
        self.sums = np.zeros(plan.num_parameters if wants_slopes else 0)
        self.outer: list[tuple[FloatArray, FloatArray]] = []
        if wants_slopes:
            for outer in plan.leaves.outer:
                num_first, num_second = outer.entries.shape
                self.outer.append((np.empty((num_first, count)), np.empty((num_second, count))))
        self.is_late = np.zeros(count, dtype=bool)
        self.late: list[tuple[int, FloatArray]] = []  # rows that were answered alone, and their gradients
        self.w = np.empty(plan.program.end * plan.width)
        self._read_tables()

    def _read_tables(self) -> None:
        """Divide the tables by their largest entries, note the logs of their ranges, and fill their leaves."""
        program = self.plan.program
        num_own = self.plan.num_own
        tables = self.tables
        starts = np.array(program.offsets[len(program.states) : -1]) - num_own
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
            leaf_of = self.plan.filling.leaf_of[len(program.states) :]
            self.table_ranges = dict(zip(leaf_of.tolist(), (largest - smallest).tolist(), strict=True))
        rows = self.w.reshape(-1, self.plan.width)
        for leaf in self.plan.leaves.shared:
            rows[leaf.place : leaf.place + leaf.size, 0] = self.factors[leaf.entries - num_own]

    def go(self, clock: Clock) -> None:
        """All blocks, then one by one the rows for which ordinary arithmetic might underflow."""
        width = self.plan.width
        for first in range(0, len(self.own), width):
            clock.check()
            self._run_block(first, width)
        if self.wants_slopes:
            self._normalize_outer()
        for row in np.flatnonzero(self.is_late).tolist():
            clock.check()
            self._answer_alone(row, clock)
        if self.wants_slopes:
            self.marginals[self.log_z == -np.inf] = np.nan
        self.w = np.zeros(0)  # which answers that wait for their weights need not hold

    def by_tables(self, weights: FloatArray) -> FloatArray:
        """Marginals of the tables (S,), added up over the rows with weights (N,).

        These must be the weights of the run, if it had any.
        """
        num_own = self.plan.num_own
        found = self.sums.copy()
        for outer, (first, second) in zip(self.plan.leaves.outer, self.outer, strict=True):
            found[outer.entries] += self.factors[outer.entries - num_own] * ((first * weights) @ second.T)
        for row, slopes in self.late:
            found += weights[row] * slopes
        return found[num_own:]

    def _run_block(self, first: int, width: int) -> None:
        """Answer the rows from ``first`` on that fit into a block."""
        from fastmix.exact import batch_kernels as kernels

        program = self.plan.program
        last = min(first + width, len(self.own))
        count = last - first
        w = self.w
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
                program.steps, program.groups, False, limits, watched, begin, end, width, self.plan.leaves.alike, w,
                np.zeros(0), ranges, log_scale, state, high, low, digits,
            )  # fmt: skip

        go(program.forward, program.backward)
        self.log_z[first:last] = np.where(state == kernels.IMPOSSIBLE, -np.inf, log_scale)[:count]
        if self.wants_slopes:
            self._go_back(first, state, (high, low), go)
        self.is_late[first:last] = (state == kernels.UNDERFLOW)[:count]

    def _go_back(
        self, first: int, state: IntArray, room: tuple[FloatArray, FloatArray], go: Callable[[int, int], None]
    ) -> None:
        """Find the marginals of a block: of the variables, and what those of the tables are made of."""
        from fastmix.exact import batch_kernels as kernels

        program = self.plan.program
        leaves = self.plan.leaves
        width = len(state)
        count = min(width, len(self.own) - first)
        before = state.copy()
        rows = self.w.reshape(-1, width)
        begin = program.backward
        for outer, factors in zip(leaves.outer, self.outer, strict=True):
            go(begin, outer.step)
            for kept, table in zip(factors, (outer.first, outer.second), strict=True):
                kept[:, first : first + count] = rows[table, :count]
            begin = outer.step + 1
        go(begin, program.reading)
        is_own = ~leaves.leaf_alike
        starts = program.leaf_starts[is_own]
        kernels.normalize_leaves(
            starts, program.leaf_sizes[is_own], program.changed[starts], program.back, width, self.w, np.zeros(0),
            state, SMALLEST_TOTAL, *room,
        )  # fmt: skip
        own = slice(program.joint * width, (program.joint + self.plan.num_own) * width)
        self.w[own] = 0.0
        go(program.joints[0], program.joints[len(program.states)])
        self.marginals[first : first + count] = self.w[own].reshape(-1, width).T[:count]
        if leaves.others:
            self._add_up(first, state, before, room[0])

    def _normalize_outer(self) -> None:
        """Divide outer products, so that marginals add up to one; rows where that cannot be done are late."""
        num_own = self.plan.num_own
        is_known = ~self.is_late & (self.log_z > -np.inf)
        for outer, (first, second) in zip(self.plan.leaves.outer, self.outer, strict=True):
            with np.errstate(all="ignore"):  # rows that are not answered have anything in them
                total = (first * (self.factors[outer.entries - num_own] @ second)).sum(axis=0)
                second /= total
            is_known &= total > SMALLEST_TOTAL
        self.is_late |= ~is_known & (self.log_z > -np.inf)
        if not is_known.all():
            for first, second in self.outer:
                first[:, ~is_known] = 0.0
                second[:, ~is_known] = 0.0

    def _add_up(self, first: int, state: IntArray, before: IntArray, room: FloatArray) -> None:
        """Add the marginals of other shared tables to their sums, unless some rows have to be answered alone after all.

        Then all rows of the block are: their sums cannot be told apart.
        """
        from fastmix.exact import batch_kernels as kernels

        assert self.weights is not None
        program = self.plan.program
        weights = np.zeros(len(state))
        own = self.weights[first : first + len(state)]
        weights[: len(own)] = own
        sums = np.zeros(len(self.sums))
        for leaf in self.plan.leaves.others:
            kernels.add_up_leaf(
                leaf.place, leaf.size, leaf.entries, bool(program.changed[leaf.place]), program.back, len(state),
                self.w, weights, state, SMALLEST_TOTAL, room, sums,
            )  # fmt: skip
        if (state != before).any():
            state[:] = kernels.UNDERFLOW
            return
        self.sums += sums

    def _fill(
        self, first: int, width: int, w: FloatArray, log_scale: FloatArray, high: FloatArray, low: FloatArray
    ) -> FloatArray:
        """Fill the leaves of a block but for the shared ones; the ranges of its tables come back."""
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
        for leaf in leaves.shared:
            ranges[leaf.table * width : (leaf.table + 1) * width] = self.table_ranges[leaf.table]
        return ranges

    def _answer_alone(self, row: int, clock: Clock) -> None:
        """Answer one row by the engine for single sets of parameters, which goes over to logarithms."""
        elimination = self.plan.elimination
        theta = np.concatenate([self.own[row], self.tables])
        try:
            if not self.wants_slopes:
                self.log_z[row] = elimination.log_z(theta, clock)
                return
            self.log_z[row], found = elimination.gradient(theta, clock)
        except ImpossibleModelError:
            self.log_z[row] = -np.inf
            return
        self.marginals[row] = found[: self.plan.num_own]
        self.late.append((row, found))


def plan_shared_rows(structure: Structure, *, memory_limit: float = math.inf, clock: Clock = NO_LIMIT) -> SharedRows:
    """The elimination of all variables of a graph of pairs, whose tables are not joined with anything beforehand."""
    factors = structure_factors(structure)
    tables = frozenset(range(structure.num_variables, len(factors.scopes)))
    elimination = plan_elimination(factors, memory_limit=memory_limit, alone=tables, clock=clock).run_often()
    return SharedRows(elimination, int(structure.unary_offsets[-1]))
