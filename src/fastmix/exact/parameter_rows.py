"""Log Z, its gradient and products with its Hessian for many sets of parameters on one graph, side by side.

The loops are those of :mod:`fastmix.exact.batch`, which has rows of evidence in place of rows of parameters: every
table of the plan has an entry for each row of a block, and where a direction of the parameters is given, the tangent of
that entry. Rows for which ordinary arithmetic might underflow are answered one by one, in logarithms; so are rows of
plans whose tables are so large that few rows fit into a block.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix.errors import ImpossibleModelError
from fastmix.exact.batch import may_underflow
from fastmix.exact.elimination import FactorElimination, plan_elimination
from fastmix.exact.planner import Factors, strides
from fastmix.exact.program import Program
from fastmix.exact.tangents import run_tangents
from fastmix.exact.tuning import (
    MAX_LOG_RANGE,
    MAX_PARAMETER_ROWS,
    MIN_BATCH_ROWS,
    PARAMETER_BYTES,
    SCALED_RANGE,
    SMALLEST_TOTAL,
)
from fastmix.model import Structure

__all__ = ["ParameterRows", "RowGradients", "plan_parameter_rows", "put_side_by_side", "structure_factors"]


class RowGradients(NamedTuple):
    """What was found for rows of parameters.

    Attributes
    ----------
    log_z : float array (N,)
        -inf where no configuration is possible.
    gradients : float array (N, P) or None
        Marginals of variables, edges and factors, in the order of the parameters; NaN where nothing is possible.
    products : float array (N, P) or None
        Covariances of the statistics times the direction of each row.
    num_single : int
        Rows that were answered one by one.
    """

    log_z: FloatArray
    gradients: FloatArray | None
    products: FloatArray | None
    num_single: int


class _Filling(NamedTuple):
    """What :func:`fastmix.exact.batch_kernels.fill_leaves_by_parameters` and ``center_parameters`` take."""

    starts: IntArray
    leaf_of: IntArray
    members: IntArray
    entries: IntArray


@dataclass(frozen=True, eq=False)
class ParameterRows:
    """The elimination of all variables of a graph, ready for rows of parameters."""

    elimination: FactorElimination

    @property
    def num_parameters(self) -> int:
        """Entries of a row."""
        return self.program.offsets[-1]

    @property
    def seconds_per_row(self) -> float:
        """Estimate of the time that a row takes."""
        return self.elimination.seconds

    @cached_property
    def program(self) -> Program:
        """The steps of the plan."""
        plan = self.elimination.plan
        if plan.program is None:
            plan.program = Program(self.elimination.factors, plan)
        return plan.program

    @property
    def width(self) -> int:
        """Rows in a block: as many as keep the tables of all of them in the cache, a power of two."""
        fitting = PARAMETER_BYTES / max(1, self.elimination.required_bytes)
        return int(2 ** math.floor(math.log2(min(max(fitting, 1.0), MAX_PARAMETER_ROWS))))

    @cached_property
    def filling(self) -> _Filling:
        """How leaves are filled from parameters."""
        plan = self.elimination.plan
        program = self.program
        leaf_of = np.zeros(len(program.scopes), dtype=np.int64)
        members = []
        entries = []
        end = 0
        for t, own in plan.leaves.items():
            scope = plan.scopes[t]
            size = plan.sizes[t]
            states = np.unravel_index(np.arange(size), [plan.states[v] for v in scope])
            state_of = dict(zip(scope, states, strict=True))
            for f in own:
                places = np.full(size, program.offsets[f], dtype=np.int64)
                for v, step in strides(plan.states, program.scopes[f]).items():
                    places += step * state_of[v]
                leaf_of[f] = t
                members.append((program.places[t], size, end, int(f == own[0])))
                entries.append(places)
                end += size
        return _Filling(
            starts=np.array(program.offsets, dtype=np.int64),
            leaf_of=leaf_of,
            members=np.array(members, dtype=np.int64).reshape(-1, 4),
            entries=np.concatenate([np.zeros(0, dtype=np.int64), *entries]),
        )

    def answer(
        self,
        thetas: FloatArray,
        *,
        directions: FloatArray | None = None,
        gradients: bool = True,
        num_threads: int = 1,
        clock: Clock = NO_LIMIT,
    ) -> RowGradients:
        """Exact answers for rows of parameters (N, P), in their order.

        With ``directions`` (N, P) come the products of the Hessians with them, and gradients.
        """
        work = _RowRun(self, thetas, directions, gradients or directions is not None)
        starts = range(0, len(thetas), work.width)
        if num_threads > 1 and len(starts) > 1:
            with ThreadPoolExecutor(num_threads) as pool:
                list(pool.map(lambda first: work.run_block(first, clock), starts))
        else:
            for first in starts:
                work.run_block(first, clock)
        return work.finish(clock)


class _RowRun:
    """One pass over rows of parameters: the arrays of answers, and the work of a block."""

    def __init__(self, plan: ParameterRows, thetas: FloatArray, directions: FloatArray | None, gradients: bool) -> None:
        self.plan = plan
        self.program = plan.program
        self.thetas = thetas
        self.directions = directions
        count = len(thetas)
        self.width = plan.width
        self.log_z = np.zeros(count)
        self.gradients = np.zeros(thetas.shape) if gradients else None
        self.products = None if directions is None else np.zeros(thetas.shape)
        # Few rows, or rows of which few fit side by side, are faster alone.
        self.is_late = np.full(count, min(self.width, count) < MIN_BATCH_ROWS)

    def run_block(self, first: int, clock: Clock) -> None:
        """Answer the rows from ``first`` on that fit into a block.

        1. Parameters are centered and exponentiated, and the leaves filled with their products.
        2. Forward through the program for log Z, and where gradients are wanted, back for marginals of the leaves.
        3. Marginals of all factors are read off the leaves.
        """
        clock.check()
        if self.is_late[first]:
            return
        from fastmix.exact import batch_kernels as kernels

        program = self.program
        width = self.width
        last = min(first + width, len(self.thetas))
        own = slice(0, last - first)
        w = np.empty(program.end * width)
        tangents = np.zeros(0 if self.directions is None else len(w))
        log_scale = np.zeros(width)
        state = np.zeros(width, dtype=np.int64)
        high = np.zeros(width)
        low = np.zeros(width)
        digits = np.zeros(max(program.depth, 1), dtype=np.int64)
        # Step 1.
        w[program.one * width : (program.one + 2) * width] = 1.0
        ranges, watched = self._fill(first, w, tangents, log_scale, high, low)
        if ranges.size:
            state[ranges.reshape(-1, width).max(axis=0) > MAX_LOG_RANGE] = kernels.UNDERFLOW
        if (state == kernels.UNDERFLOW).all():
            self.is_late[first:last] = True
            return
        limits = (*SCALED_RANGE, MAX_LOG_RANGE)
        alike = np.zeros((0, 2), dtype=bool)

        def go(begin: int, end: int) -> None:
            kernels.run_batch_steps(
                program.steps, program.groups, False, limits, watched, begin, end, width, alike, w, tangents, ranges,
                log_scale, state, high, low, digits,
            )  # fmt: skip

        # Step 2.
        go(program.forward, program.backward)
        self.log_z[first:last] = np.where(state == kernels.IMPOSSIBLE, -np.inf, log_scale)[own]
        if self.gradients is not None:
            go(program.backward, program.reading)
            starts = program.leaf_starts
            changed = program.changed[starts] if len(starts) else np.zeros(0, dtype=bool)
            kernels.normalize_leaves(
                starts, program.leaf_sizes, changed, program.back, width, w, tangents, state, SMALLEST_TOTAL, high, low
            )
            # Step 3.
            w[program.joint * width :] = 0.0
            go(program.joints[0], program.joints[-1])
            self.gradients[first:last] = w[program.joint * width :].reshape(-1, width).T[own]
            if self.products is not None:
                self.products[first:last] = tangents[program.joint * width :].reshape(-1, width).T[own]
        self.is_late[first:last] = (state == kernels.UNDERFLOW)[own]

    def _fill(
        self, first: int, w: FloatArray, tangents: FloatArray, log_scale: FloatArray, high: FloatArray, low: FloatArray
    ) -> tuple[FloatArray, bool]:
        """Fill the leaves of a block; the ranges of its tables come back, and whether they have to be watched."""
        from fastmix.exact import batch_kernels as kernels

        program = self.program
        width = self.width
        filling = self.plan.filling
        own = slice(program.values * width, program.spare * width)
        values = w[own]
        ranges = np.zeros((len(program.places) + 1) * width)
        put_side_by_side(self.thetas, first, width, values)
        kernels.center_parameters(filling.starts, filling.leaf_of, values, width, ranges, log_scale, high, low)
        np.exp(values, out=values)
        directions = tangents[own] if len(tangents) else tangents
        if self.directions is not None:
            put_side_by_side(self.directions, first, width, directions)
        kernels.fill_leaves_by_parameters(filling.members, filling.entries, values, directions, width, w, tangents)
        watched = may_underflow(self.plan.elimination.plan, ranges.reshape(-1, width).max(axis=1))
        return ranges, watched

    def finish(self, clock: Clock) -> RowGradients:
        """All answers, after the rows that the blocks left out have been answered one by one."""
        late = np.flatnonzero(self.is_late)
        for row in late.tolist():
            clock.check()
            try:
                self._answer_alone(row, clock)
            except ImpossibleModelError:
                self.log_z[row] = -np.inf
        impossible = self.log_z == -np.inf
        for found in (self.gradients, self.products):
            if found is not None:
                found[impossible] = np.nan
        return RowGradients(self.log_z, self.gradients, self.products, len(late))

    def _answer_alone(self, row: int, clock: Clock) -> None:
        """Answer one row by the engine for single sets of parameters, which goes over to logarithms."""
        elimination = self.plan.elimination
        theta = self.thetas[row]
        if self.gradients is None:
            self.log_z[row] = elimination.log_z(theta, clock)
            return
        if self.directions is None or self.products is None:
            self.log_z[row], self.gradients[row] = elimination.gradient(theta, clock)
            return
        self.log_z[row], self.gradients[row], self.products[row] = run_tangents(
            elimination, theta, self.directions[row], clock
        )


def put_side_by_side(rows: FloatArray, first: int, width: int, out: FloatArray) -> None:
    """Copy the rows of a block into ``out`` (parameters * width,); places beyond the last row repeat that."""
    block = rows[first : first + width]
    target = out.reshape(-1, width)
    target[:, : len(block)] = block.T
    target[:, len(block) :] = block[-1][:, None]


def plan_parameter_rows(
    structure: Structure, *, memory_limit: float = math.inf, clock: Clock = NO_LIMIT
) -> ParameterRows:
    """The elimination of all variables of a graph, within a memory limit for one row.

    Its factors are the terms of models on the structure: variables, edges, factors. A :class:`fastmix.ResourceError`
    where the tables do not fit.
    """
    elimination = plan_elimination(structure_factors(structure), memory_limit=memory_limit, clock=clock)
    return ParameterRows(elimination.run_often())


def structure_factors(structure: Structure) -> Factors:
    """The terms of models on a structure, without their values: variables, edges, factors."""
    scopes: list[tuple[int, ...]] = [(i,) for i in range(structure.num_variables)]
    scopes += list(map(tuple, structure.edges.tolist()))
    scopes += [tuple(scope.tolist()) for scope in structure.scopes]
    return Factors(structure.num_states.tolist(), scopes, np.zeros(0))
