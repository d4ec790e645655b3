"""Exact answers for many rows of evidence on one model: one plan, and many rows side by side in every step of it.

A plan is made once, for the variables that are not observed in every row. The others cut the graph: tables that have
them are sliced by the states of each row. A variable that some rows observe stays in the plan, and its excluded states
get probability zero in the rows that observe it. Rows are answered in blocks: every table of the plan has an entry for
each row of a block, so that the loops over rows are vectorized (:mod:`fastmix.exact.batch_kernels`).

All is done in ordinary arithmetic. Rows for which that might underflow are answered one by one, in logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix.errors import ImpossibleModelError
from fastmix.exact.elimination import FactorElimination, model_factors, plan_elimination
from fastmix.exact.planner import EliminationPlan, Factors, strides
from fastmix.exact.program import Program
from fastmix.exact.tuning import (
    BATCH_BYTES,
    MAX_BATCH_ROWS,
    MAX_LOG_RANGE,
    MIN_BATCH_ROWS,
    SCALED_RANGE,
    SMALLEST_TOTAL,
)
from fastmix.model import MarkovRandomField
from fastmix.model.flat import offsets_of

__all__ = ["BatchAnswer", "BatchElimination", "may_underflow", "plan_batch"]


class BatchAnswer(NamedTuple):
    """What was found for rows of evidence.

    Attributes
    ----------
    log_z : float array (N,)
        Log of the sum of all weights that agree with the row (of the largest weight, where configurations were asked
        for); -inf where none does.
    marginals : float array (N, states of all variables) or None
        NaN in rows of which nothing is possible.
    joints : list of float arrays (N, entries)
        Joint distributions of the sets that were planned for.
    states : int array (N, draws, n) or None
        Configurations: drawn, or most probable.
    num_single : int
        Rows that were answered one by one, in logarithms.
    """

    log_z: FloatArray
    marginals: FloatArray | None
    joints: list[FloatArray]
    states: NDArray[np.int64] | None
    num_single: int


class LeafFilling(NamedTuple):
    """What :func:`fastmix.exact.batch_kernels.fill_leaves` takes beside the rows."""

    base: FloatArray
    gathers: IntArray
    entries: IntArray
    values: FloatArray
    terms: IntArray
    holders: IntArray
    digits: IntArray


class LeafTables(NamedTuple):
    """How leaves are filled, for all rows.

    ``ranges`` are the logs of the ratios of the largest and smallest positive entries that tables can have, by number
    of the table, as far as they are known: zero for tables that are computed. ``log_constant`` is what tables were
    divided by. ``watched`` says that products might underflow for some evidence.
    """

    filling: LeafFilling
    ranges: FloatArray
    log_constant: float
    watched: bool


class _Table(NamedTuple):
    """A factor of the model: where its entries begin, how far apart states are, and what of its scope is not given."""

    start: int
    steps: dict[int, int]
    scope: tuple[int, ...]  # the variables that are planned for, by their numbers in the plan
    given: tuple[int, ...]  # variables of the model that every row observes


@dataclass(frozen=True, eq=False)
class BatchElimination:
    """The elimination of the variables of a model that not every row observes, ready for rows.

    Attributes
    ----------
    model : MarkovRandomField
    given : int array
        Variables that every row observes.
    free : int array
        All others, by their number in the plan.
    elimination : FactorElimination
        Its factors are those of the model without the variables that are given, and then a factor for every set of
        variables whose joint distribution is wanted.
    sets : list of tuple of int
        These sets.
    """

    model: MarkovRandomField
    given: IntArray
    free: IntArray
    elimination: FactorElimination
    sets: list[tuple[int, ...]]
    tables: list[_Table]
    values: FloatArray  # logs of the entries of all factors of the model, zeros for the sets

    @property
    def seconds_per_row(self) -> float:
        """Estimate of the time that a row takes."""
        return self.elimination.seconds

    @property
    def required_bytes(self) -> int:
        """Memory that a block of rows takes in every thread."""
        return self.elimination.required_bytes * self.width

    def with_model(self, model: MarkovRandomField) -> BatchElimination:
        """The same for other parameters on the same structure."""
        values = self.values.copy()
        own = model.parameters
        values[: len(own)] = own
        return replace(self, model=model, values=values)

    def answer(
        self,
        rows: IntArray,
        *,
        marginals: bool = True,
        most_probable: bool = False,
        num_draws: int = 0,
        rng: np.random.Generator | None = None,
        num_threads: int = 1,
        clock: Clock = NO_LIMIT,
    ) -> BatchAnswer:
        """Exact answers for rows of evidence, in the order of the rows.

        Parameters
        ----------
        rows : int array (N, n)
            Numbers of observed states, negative where a variable is not observed.
        marginals : bool
            Marginals of all variables, and the joint distributions that were planned for.
        most_probable : bool
            The most probable configuration of every row, instead of sums.
        num_draws : int
            Configurations to draw for every row, by ``rng``.
        """
        work = _BatchRun(self, rows, marginals, most_probable, num_draws, rng)
        starts = range(0, len(rows), work.width)
        if num_threads > 1 and len(starts) > 1 and not num_draws:
            with ThreadPoolExecutor(num_threads) as pool:
                list(pool.map(lambda first: work.run_block(first, clock), starts))
        else:
            for first in starts:
                work.run_block(first, clock)
        return work.finish(clock)

    @property
    def width(self) -> int:
        """Rows in a block: as many as keep the tables of all of them in the cache, a power of two."""
        fitting = BATCH_BYTES / max(1, self.elimination.required_bytes)
        return int(2 ** math.floor(math.log2(min(max(fitting, 1.0), MAX_BATCH_ROWS))))

    @cached_property
    def leaves(self) -> LeafTables:
        """What fills the leaves of a block of rows."""
        return _prepare_leaves(self, self.elimination.plan)

    def row_values(self, row: IntArray) -> FloatArray:
        """Logs of the tables of the plan's factors for one row, one after another."""
        parts = []
        states = self.model.num_states
        for table in self.tables:
            shift = table.start + sum(int(row[v]) * table.steps[v] for v in table.given)
            places = np.zeros(1, dtype=np.int64)
            for v in table.scope:
                number = int(self.free[v])
                places = (places[:, None] + table.steps[number] * np.arange(states[number])).reshape(-1)
            part = self.values[shift + places]
            if len(table.scope) == 1 and row[self.free[table.scope[0]]] >= 0:
                excluded = np.arange(len(part)) != row[self.free[table.scope[0]]]
                part = np.where(excluded, -np.inf, part)
            parts.append(part)
        return np.concatenate(parts) if parts else np.zeros(0)


class _BatchRun:
    """One pass over rows: what all blocks share, the arrays of answers, and the work of a block."""

    def __init__(
        self,
        batch: BatchElimination,
        rows: IntArray,
        marginals: bool,
        most_probable: bool,
        num_draws: int,
        rng: np.random.Generator | None,
    ) -> None:
        from fastmix.exact import batch_kernels as kernels

        self.kernels = kernels
        self.batch = batch
        self.rows = np.ascontiguousarray(rows, dtype=np.int64)
        self.wants_marginals = marginals and not most_probable
        self.most_probable = most_probable
        self.num_draws = num_draws
        self.rng = rng
        plan = batch.elimination.plan
        if plan.program is None:
            plan.program = Program(batch.elimination.factors, plan)
        self.program = plan.program
        self.leaves = batch.leaves
        self.width = batch.width
        count = len(rows)
        self.num_nodes = int(sum(batch.elimination.factors.num_states))
        self.state = np.zeros(count, dtype=np.int64)
        self.log_z = np.zeros(count)
        self.nodes = np.zeros((count if self.wants_marginals else 0, self.num_nodes))
        self.joints = [np.zeros((count, size)) for size in self._joint_sizes()] if self.wants_marginals else []
        wanted = 1 if most_probable else num_draws
        self.states = np.zeros((count, wanted, batch.model.num_variables), dtype=np.int64) if wanted else None
        # Not even the tables can be stored in ordinary arithmetic, or so few rows fit that side by side is no gain.
        if max(self.leaves.ranges, default=0.0) > MAX_LOG_RANGE or self.width < MIN_BATCH_ROWS:
            self.state[:] = kernels.UNDERFLOW

    def run_block(self, first: int, clock: Clock) -> None:
        """Answer the rows from ``first`` on that fit into a block."""
        clock.check()
        kernels = self.kernels
        program = self.program
        width = self.width
        if self.state[first] == kernels.UNDERFLOW:
            return
        w = np.empty(program.end * width)
        tangents = np.zeros(0)
        w[program.one * width : (program.one + 2) * width] = 1.0
        log_scale = np.zeros(width)
        state = np.zeros(width, dtype=np.int64)
        high = np.zeros(width)
        low = np.zeros(width)
        digits = np.zeros(max(program.depth, 1), dtype=np.int64)
        ranges = np.repeat(self.leaves.ranges, width)
        limits = (*SCALED_RANGE, MAX_LOG_RANGE)
        alike = np.zeros((0, 2), dtype=bool)

        def go(begin: int, end: int) -> None:
            kernels.run_batch_steps(
                program.steps, program.groups, self.most_probable, limits, self.leaves.watched, begin, end, width,
                alike, w, tangents, ranges, log_scale, state, high, low, digits,
            )  # fmt: skip

        kernels.fill_leaves(*self.leaves.filling, self.rows, first, width, w, log_scale)
        go(program.forward, program.backward)
        last = min(first + width, len(self.rows))
        own = slice(0, last - first)
        self.log_z[first:last] = log_scale[own]
        if self.states is not None:
            self.states[first:last] = self._trace(w, first, last)
        if self.wants_marginals:
            go(program.backward, program.reading)
            starts = program.leaf_starts
            changed = program.changed[starts] if len(starts) else np.zeros(0, dtype=bool)
            kernels.normalize_leaves(
                starts, program.leaf_sizes, changed, program.back, width, w, tangents, state, SMALLEST_TOTAL, high, low
            )
            w[program.nodes * width :] = 0.0
            go(program.reading, program.joints[0])
            self.nodes[first:last] = w[program.nodes * width : program.joint * width].reshape(-1, width).T[own]
            self._read_joints(w, first, last, go)
        self.state[first:last] = state[own]

    def finish(self, clock: Clock) -> BatchAnswer:
        """All answers, after the rows that the blocks left out have been answered one by one."""
        batch = self.batch
        kernels = self.kernels
        self.log_z += self.leaves.log_constant + _given_scalars(batch, self.rows)
        late = np.flatnonzero(self.state == kernels.UNDERFLOW)
        for row in late.tolist():
            clock.check()
            self._answer_alone(row, clock)
        self.state[self.log_z == -np.inf] = kernels.IMPOSSIBLE
        impossible = np.flatnonzero(self.state == kernels.IMPOSSIBLE)
        self.log_z[impossible] = -np.inf
        marginals = None
        if self.wants_marginals:
            self._normalize_nodes()
            self.nodes[impossible] = np.nan
            for joint in self.joints:
                joint[impossible] = np.nan
            marginals = self._all_marginals()
        if self.states is not None:
            self.states[impossible] = -1
        return BatchAnswer(self.log_z, marginals, self.joints, self.states, len(late))

    def _normalize_nodes(self) -> None:
        """Let marginals add up to one, so that an observed state, or the only one allowed, has exactly one."""
        counts = np.array(self.program.states, dtype=np.int64)
        if not len(counts):
            return
        totals = np.add.reduceat(self.nodes, offsets_of(counts)[:-1], axis=1)
        totals[totals == 0.0] = 1.0  # of impossible rows
        self.nodes /= np.repeat(totals, counts, axis=1)

    def _answer_alone(self, row: int, clock: Clock) -> None:
        """Answer one row by the engine for single models, which goes over to logarithms."""
        batch = self.batch
        elimination = batch.elimination
        values = batch.row_values(self.rows[row])
        constant = batch.model.log_constant
        try:
            if self.states is not None:
                self.states[row] = self._configurations_alone(row, values, clock)
            if self.most_probable:
                self.log_z[row] = constant + elimination.most_probable(clock, values=values)[0]
                self.state[row] = self.kernels.ANSWERED
                return
            num_sets = len(batch.sets)
            last = len(batch.tables)
            found = elimination.marginals(values, of_factors=range(last - num_sets, last), clock=clock)
        except ImpossibleModelError:
            self.state[row] = self.kernels.IMPOSSIBLE
            return
        self.state[row] = self.kernels.ANSWERED
        self.log_z[row] = constant + found.log_z
        if self.wants_marginals:
            self.nodes[row] = found.marginals
            begin = 0
            for joint in self.joints:
                end = begin + joint.shape[1]
                joint[row] = found.factor_marginals[begin:end]
                begin = end

    def _configurations_alone(self, row: int, values: FloatArray, clock: Clock) -> IntArray:
        """Configurations (draws, n) of one row."""
        elimination = self.batch.elimination
        if self.most_probable:
            drawn = elimination.most_probable(clock, values=values)[1][None, :]
        else:
            assert self.rng is not None
            drawn = elimination.draw(self.num_draws, self.rng, clock, values=values)
        return self._complete(drawn[None], self.rows[[row]])[0]

    def _complete(self, drawn: IntArray, rows: IntArray) -> IntArray:
        """Configurations (rows, draws, n) of the model from those of the variables of the plan."""
        batch = self.batch
        states = np.zeros((*drawn.shape[:2], batch.model.num_variables), dtype=np.int64)
        states[:, :, batch.free] = drawn
        states[:, :, batch.given] = rows[:, None, batch.given]
        return states

    def _trace(self, w: FloatArray, first: int, last: int) -> IntArray:
        """Configurations of a block of rows, variable by variable, backwards through the order."""
        plan = self.batch.elimination.plan
        counts = self.program.states
        tables = w.reshape(-1, self.width)
        repeats = 1 if self.most_probable else self.num_draws
        column = np.repeat(np.arange(last - first), repeats)
        found = np.zeros((len(column), len(counts)), dtype=np.int64)
        for v in reversed(self.batch.elimination.order.order.tolist()):
            weights = np.ones((len(column), counts[v]))
            for t in plan.last[v]:
                steps = strides(counts, plan.scopes[t])
                index = np.full(len(column), self.program.places[t])
                for u, step in steps.items():
                    if u != v:
                        index += step * found[:, u]
                weights *= tables[index[:, None] + steps[v] * np.arange(counts[v]), column[:, None]]
            if self.rng is None:
                found[:, v] = weights.argmax(axis=1)
                continue
            cumulative = np.cumsum(weights, axis=1)
            threshold = self.rng.random(len(column)) * cumulative[:, -1]
            found[:, v] = np.minimum((cumulative <= threshold[:, None]).sum(axis=1), counts[v] - 1)
        return self._complete(found.reshape(last - first, repeats, -1), self.rows[first:last])

    def _read_joints(self, w: FloatArray, first: int, last: int, go: Callable[[int, int], None]) -> None:
        """Copy the joint distributions of the wanted sets from the array of a block."""
        program = self.program
        width = self.width
        num_tables = len(self.batch.tables)
        for k, joint in enumerate(self.joints):
            f = num_tables - len(self.joints) + k
            go(program.joints[f], program.joints[f + 1])
            begin = program.joint + program.offsets[f]
            end = program.joint + program.offsets[f + 1]
            joint[first:last] = w[begin * width : end * width].reshape(-1, width).T[: last - first]

    def _joint_sizes(self) -> list[int]:
        """Entries of the joint distributions of the sets, of what is free of them."""
        states = self.batch.elimination.factors.num_states
        tables = self.batch.tables
        return [math.prod(states[v] for v in table.scope) for table in tables[len(tables) - len(self.batch.sets) :]]

    def _all_marginals(self) -> FloatArray:
        """Marginals of all variables of the model: those of the plan, and point masses for those that are given."""
        batch = self.batch
        model = batch.model
        offsets = model.unary_offsets
        if not len(batch.given):
            return self.nodes
        found = np.zeros((len(self.rows), int(offsets[-1])))
        places = offsets_of(model.num_states[batch.free])
        for k, v in enumerate(batch.free.tolist()):
            found[:, offsets[v] : offsets[v + 1]] = self.nodes[:, places[k] : places[k + 1]]
        impossible = self.state == self.kernels.IMPOSSIBLE
        for v in batch.given.tolist():
            found[np.arange(len(found)), offsets[v] + self.rows[:, v]] = 1.0
            found[impossible, offsets[v] : offsets[v + 1]] = np.nan
        return found


def plan_batch(
    model: MarkovRandomField,
    *,
    given: Sequence[int] = (),
    sets: Sequence[tuple[int, ...]] = (),
    memory_limit: float = math.inf,
    clock: Clock = NO_LIMIT,
) -> BatchElimination:
    """The elimination for rows that all observe the variables ``given``, within a memory limit for one row.

    ``sets`` are sets of other variables whose joint distributions are wanted. A :class:`fastmix.ResourceError` where
    the tables do not fit.
    """
    factors = model_factors(model)
    is_given = np.zeros(model.num_variables, dtype=bool)
    is_given[list(given)] = True
    free = np.flatnonzero(~is_given)
    number = np.cumsum(~is_given) - 1
    states = model.num_states
    tables = []
    start = 0
    scopes = [*factors.scopes, *sets]
    for k, scope in enumerate(scopes):
        inner = tuple([int(number[v]) for v in scope if not is_given[v]])
        outer = tuple([v for v in scope if is_given[v]])
        tables.append(_Table(start, strides(states.tolist(), tuple(scope)), inner, outer))
        start += math.prod([int(states[v]) for v in scope])
        if k == len(factors.scopes) - 1:
            num_values = start
    values = np.zeros(start)
    if factors.scopes:
        values[:num_values] = factors.values
    planned = Factors(states[free].tolist(), [table.scope for table in tables], np.zeros(0))
    elimination = plan_elimination(planned, memory_limit=memory_limit, clock=clock).run_often()
    return BatchElimination(model, np.flatnonzero(is_given), free, elimination, list(sets), tables, values)


def _prepare_leaves(batch: BatchElimination, plan: EliminationPlan) -> LeafTables:
    """How leaves are filled, for all rows.

    Tables are divided by their largest entry, so that they can be stored in ordinary arithmetic.
    """
    builder = _LeafBuilder(batch)
    ranges = np.zeros(len(plan.sizes) + 1)
    for t, members in plan.leaves.items():
        scope = plan.scopes[t]
        size = plan.sizes[t]
        states = np.unravel_index(np.arange(size), [plan.states[v] for v in scope])
        ranges[t] = builder.add_leaf(size, members, dict(zip(scope, states, strict=True)))
    return LeafTables(builder.filling(), ranges, builder.log_constant, may_underflow(plan, ranges))


class _LeafBuilder:
    """Collects what fills the leaves of a plan, leaf by leaf."""

    def __init__(self, batch: BatchElimination) -> None:
        self.batch = batch
        self.log_constant = batch.model.log_constant
        self.values = np.zeros(len(batch.values))
        self.base: list[FloatArray] = []
        self.gathers: list[tuple[int, int, int, int, int]] = []
        self.entries: list[IntArray] = []
        self.terms: list[tuple[int, int]] = []
        self.holders: list[tuple[int, int, int, int]] = []
        self.digits: list[IntArray] = []
        self.held: set[int] = set()  # variables whose evidence some leaf knows of
        self.end = 0  # of the leaves so far

    def add_leaf(self, size: int, members: list[int], state_of: dict[int, IntArray]) -> float:
        """The log of the range of a leaf: of its factors, by number, and the states of its entries by variable."""
        batch = self.batch
        log_range = 0.0
        product = np.ones(size)
        for f in members:
            table = batch.tables[f]
            log_range += self._add_values(table)
            places = np.full(size, table.start, dtype=np.int64)
            for v in table.scope:
                places += table.steps[int(batch.free[v])] * state_of[v]
            if table.given:
                first_term = len(self.terms)
                self.terms += [(v, table.steps[v]) for v in table.given]
                num_entries = sum(map(len, self.entries))
                self.gathers.append((self.end, size, num_entries, first_term, len(self.terms)))
                self.entries.append(places)
            else:
                product *= self.values[places]
        for v, states in state_of.items():
            if v not in self.held:
                self.held.add(v)
                self.holders.append((int(batch.free[v]), self.end, size, sum(map(len, self.digits))))
                self.digits.append(states.astype(np.int64))
        self.base.append(product)
        self.end += size
        return log_range

    def _add_values(self, table: _Table) -> float:
        """The log of the range of a factor's positive entries, which are put among the values, the largest as one."""
        stop = table.start + _table_size(self.batch, table)
        logs = self.batch.values[table.start : stop]
        finite = logs[logs > -np.inf]
        largest = float(finite.max(initial=-np.inf)) if len(finite) else 0.0
        self.log_constant += largest
        self.values[table.start : stop] = np.exp(logs - largest)
        return largest - float(finite.min()) if len(finite) else 0.0

    def filling(self) -> LeafFilling:
        """All that was collected, as arrays."""
        empty = np.zeros(0, dtype=np.int64)
        return LeafFilling(
            base=np.concatenate([np.zeros(0), *self.base]),
            gathers=np.array(self.gathers, dtype=np.int64).reshape(-1, 5),
            entries=np.concatenate([empty, *self.entries]),
            values=self.values,
            terms=np.array(self.terms, dtype=np.int64).reshape(-1, 2),
            holders=np.array(self.holders, dtype=np.int64).reshape(-1, 4),
            digits=np.concatenate([empty, *self.digits]),
        )


def _table_size(batch: BatchElimination, table: _Table) -> int:
    """Entries of a factor of the model."""
    return math.prod([int(batch.model.num_states[v]) for v in table.steps])


def _given_scalars(batch: BatchElimination, rows: IntArray) -> FloatArray:
    """By row, the sum of the logs of the factors all of whose variables are given."""
    total = np.zeros(len(rows))
    for table in batch.tables:
        if not table.scope:
            places = np.full(len(rows), table.start)
            for v in table.given:
                places += table.steps[v] * rows[:, v]
            total += batch.values[places]
    return total


def may_underflow(plan: EliminationPlan, ranges: FloatArray) -> bool:
    """Whether products of tables might underflow for some evidence, as far as can be said before there are rows.

    ``ranges`` are bounds on the logs of the ratios of positive entries of leaves, zero for tables that are computed.
    The ratio of the positive entries of a product is at most the product of the ratios, and a sum of n of them can be
    larger by n. Evidence only takes entries away.
    """
    bounds = ranges.copy()
    for step in plan.steps:
        second = step.second if step.second >= 0 else len(plan.sizes)
        both = bounds[step.first] + bounds[second]
        if both > MAX_LOG_RANGE:
            return True
        summed = step.entries / max(1, plan.sizes[step.out])
        bounds[step.out] = both + math.log(max(1.0, summed))
    return False
