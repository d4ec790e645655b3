"""A plan of sums of products as arrays of integers, and its runs: forward, backward for all marginals, draws."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix.errors import ImpossibleModelError
from fastmix.exact import program_kernels as kernels
from fastmix.exact.planner import AxisRow, EliminationPlan, Factors, merge, strides
from fastmix.exact.tuning import (
    MAX_LOG_RANGE,
    PIECE_ENTRIES,
    SCALED_RANGE,
    SMALLEST_TOTAL,
    STEPS_PER_CLOCK_CHECK,
)
from fastmix.model.flat import offsets_of

__all__ = ["Calibration", "Program", "ProgramRun", "UnderflowError"]


# Numbers of tables, which matter going forward, of a step going back.
_GOING_BACK = (-1, -1, -1)
# Numbers in a row of the array of steps.
_STEP_LENGTH = 11

_MODES = {"linear": kernels.LINEAR, "log": kernels.LOG, "max": kernels.MAX}


class UnderflowError(Exception):
    """A product of tables in ordinary arithmetic could underflow: use logs."""


class Calibration(NamedTuple):
    """Log Z, the marginals of all variables, and those of the factors asked for, one after another."""

    log_z: float
    marginals: FloatArray
    factor_marginals: FloatArray
    arithmetic: str


class _Matrices(NamedTuple):
    """A table seen as matrices (count, rows, columns), transposed or not."""

    place: int
    shape: tuple[int, int, int]
    flip: bool = False

    def view(self, w: FloatArray) -> FloatArray:
        """The matrices in the array of a run."""
        found = w[self.place : self.place + math.prod(self.shape)].reshape(self.shape)
        return found.transpose(0, 2, 1) if self.flip else found


class Program:
    """What :func:`fastmix.exact.program_kernels.run_steps` takes, made once for a plan.

    In the array of a run lie all tables, leaves first; a one, and what stands for it in the arithmetic; the values of
    the factors; room for a table in another layout and for a table of sums; the derivatives by leaves, in their order,
    and by other tables; the marginals of all variables, and of all factors.

    The steps come in four parts:

    1. Leaves are filled with the products of their factors, in logs.
    2. Going forward, tables are computed as the plan says.
    3. Going back, derivatives of log Z by all tables.
    4. Marginals of variables, then of factors, are read off the leaves.
    """

    def __init__(self, factors: Factors, plan: EliminationPlan, clock: Clock = NO_LIMIT) -> None:
        self.states = factors.num_states
        self.plan = plan
        self.scopes = factors.scopes
        nodes = _offsets(self.states)
        self._place_arrays(nodes)
        scalars = [self.offsets[f] for f, scope in enumerate(self.scopes) if not scope]
        self.scalars = np.array(scalars, dtype=np.int64)
        free = [v for v, items in enumerate(plan.last) if not items]
        self.log_free = sum([math.log(self.states[v]) for v in free])
        self.free = [(nodes[v], nodes[v + 1]) for v in free]
        in_place = [step.second for step in plan.steps if step.out == step.first]
        self.changed = np.repeat(~np.isin(list(plan.leaves), in_place), self.leaf_sizes)  # entries of other leaves
        self.products: dict[int, tuple[_Matrices, _Matrices, _Matrices]] = {}
        self.cuts: list[int] = []  # steps before which to look at the clock, or to multiply matrices
        self._steps: list[tuple[int, ...]] = []
        self._groups: list[AxisRow] = []
        self._entries = 0.0
        self._clock = clock
        self._fill_leaves()
        self.forward = len(self._steps)
        self._go_forward()
        self.backward = len(self._steps)
        self._go_back()
        self.reading = len(self._steps)
        self._read_variables(nodes)
        self.joints = self._read_factors()
        self.depth = max([step[4] - step[3] for step in self._steps], default=0)
        self.steps = np.array(self._steps, dtype=np.int64).reshape(-1, _STEP_LENGTH)
        self.groups = np.array(self._groups, dtype=np.int64).reshape(-1, 4)
        del self._steps, self._groups, self._clock

    def _place_arrays(self, nodes: list[int]) -> None:
        """Set where the parts of the array of a run begin; ``nodes`` are those of the variables in the marginals."""
        plan = self.plan
        sizes = plan.sizes
        leaves = plan.leaves
        placed = [*leaves, *[t for t in range(len(sizes)) if t not in leaves]]
        places = dict(zip(placed, _offsets([sizes[t] for t in placed]), strict=False))
        self.places = [places[t] for t in range(len(sizes))]
        self.leaf_sizes = np.array([sizes[t] for t in leaves], dtype=np.int64)
        self.leaf_starts = offsets_of(self.leaf_sizes)[:-1]
        self.leaf_end = int(self.leaf_sizes.sum())
        self.offsets = _offsets([math.prod([self.states[v] for v in scope]) for scope in self.scopes])
        self.one = sum(sizes)
        self.values = self.one + 2
        self.spare = self.values + self.offsets[-1]
        self.scratch = self.spare + max([sizes[t] for t in plan.moves], default=0)
        self.back = self.scratch + max(sizes, default=0)
        self.slopes = self.back + self.leaf_end
        self.nodes = self.slopes + plan.num_slopes
        self.joint = self.nodes + nodes[-1]
        self.end = self.joint + self.offsets[-1]

    def _fill_leaves(self) -> None:
        """Steps that add up the logs of the factors of every leaf."""
        plan = self.plan
        for t, own in plan.leaves.items():
            leaf = plan.scopes[t]
            for f in own:
                rows = merge(self.states, leaf, {}, strides(self.states, self.scopes[f]), strides(self.states, leaf))
                numbers = (t, t, t) if f == own[-1] else None
                self._add(rows, 0, self.values + self.offsets[f], self.places[t], plan.sizes[t], kernels.SCALE, numbers)

    def _go_forward(self) -> None:
        """Steps that compute all tables of the plan."""
        plan = self.plan
        for step in plan.steps:
            a = step.first
            b = step.second
            o = step.out
            numbers = (a, b if b >= 0 else len(plan.sizes), o)
            target = self.spare if o in plan.moves and o != a else self._place(o)
            kind = kernels.SCALE if o == a else kernels.SUM
            if step.gemm:
                self._multiply(step.gemm, (self._place(a), self._place(b), target), 2)
                kind = kernels.PRODUCT
            self._add(step.rows, self._place(a), self._place(b), target, plan.sizes[o], kind, numbers)
            if target == self.spare:
                self._add(plan.moves[o], target, self.one + 1, self._place(o), plan.sizes[o])

    def _go_back(self) -> None:
        """Steps that compute the derivatives by all tables, from the last product to the leaves."""
        plan = self.plan
        pending: dict[int, list[tuple[list[AxisRow], int]]] = {}
        for step in reversed(plan.steps):
            a = step.first
            b = step.second
            o = step.out
            slope = self._slope(o)
            kind = kernels.PRODUCT if step.gemm else kernels.SUM
            to_second = [(n, x, z, y) for n, x, y, z in step.rows]
            if o == a:  # the table has b in it already, so this is the marginal of b
                self._add(to_second, self._place(a), slope, self._slope(b), plan.sizes[b])
                pending.setdefault(o, []).append((step.rows, self._place(b)))
                continue
            # What was multiplied in place is in the table for good, so it comes to the derivative at the end.
            for rows, place in pending.pop(o, ()):
                self._add(rows, slope, place, slope, 0, kernels.SCALE)
            if o in plan.moves:
                moved = self.slopes + plan.moved_slopes[o]
                rows = [(n, z, y, x) for n, x, y, z in plan.moves[o]]
                self._add(rows, slope, self.one + 1, moved, plan.sizes[o])
                slope = moved
            for t, which in ((b, 1), (a, 0)):
                if t < 0:
                    continue
                rows = to_second if which else [(n, y, z, x) for n, x, y, z in step.rows]
                other = self._place(b if t == a else a)
                if step.gemm:
                    own = (other, self._slope(t), slope) if which else (self._slope(t), other, slope)
                    self._multiply(step.gemm, own, which)
                self._add(rows, other, slope, self._slope(t), plan.sizes[t], kind, _GOING_BACK)

    def _read_variables(self, nodes: list[int]) -> None:
        """Steps that read the marginal of every variable off the first leaf that has it."""
        seen: set[int] = set()
        for t in self.plan.leaves:
            for v in self.plan.scopes[t]:
                if v not in seen:
                    seen.add(v)
                    self._read(t, (v,), self.nodes + nodes[v])

    def _read_factors(self) -> list[int]:
        """Add the steps that read the marginals of factors; the number of the first step of each, and the end."""
        members = sorted([(f, t) for t, own in self.plan.leaves.items() for f in own])
        is_member = np.zeros(len(self.scopes), dtype=np.int64)
        is_member[[f for f, _ in members]] = 1
        joints: list[int] = (len(self._steps) + offsets_of(is_member)).tolist()
        for f, t in members:
            self._read(t, self.scopes[f], self.joint + self.offsets[f])
        return joints

    def _place(self, t: int) -> int:
        """Position of a table in the array of a run; where there is no table, that of the number one."""
        return self.places[t] if t >= 0 else self.one + 1

    def _slope(self, t: int) -> int:
        """Position of the derivative by a table in the array of a run; for a result, that of the number one."""
        if t in self.plan.leaves:
            return self.back + self.places[t]
        return self.slopes + self.plan.slopes[t] if t in self.plan.slopes else self.one + 1

    def _read(self, t: int, scope: tuple[int, ...], target: int) -> None:
        """Add a step that sums the marginal of a leaf to some of its variables."""
        own = self.plan.scopes[t]
        rows = merge(self.states, own, strides(self.states, own), {}, strides(self.states, scope))
        self._add(rows, self.back + self.places[t], self.one, target, 0)

    def _multiply(self, shape: tuple[int, int, int, int], places: tuple[int, int, int], which: int) -> None:
        """Note that the next step is done by products of matrices instead of a loop.

        ``which`` is 2 for the product of the first two tables, and 0 or 1 for the derivative by one of them.
        """
        count, m, k, n = shape
        shapes = ((count, m, k), (count, k, n), (count, m, n))
        a, b, o = [_Matrices(place, own) for place, own in zip(places, shapes, strict=True)]
        orders = {0: (o, b._replace(flip=True), a), 1: (a._replace(flip=True), o, b), 2: (a, b, o)}
        self.products[len(self._steps)] = orders[which]
        self.cuts.append(len(self._steps))

    def _add(
        self, rows: list[AxisRow], a: int, b: int, o: int, size: int, kind: int = kernels.SUM,
        numbers: tuple[int, int, int] | None = None,
    ) -> None:  # fmt: skip
        """Add a step; where the numbers of its tables are given, its result is scaled, too."""
        if len(self._steps) % STEPS_PER_CLOCK_CHECK == 0:
            self._clock.check()
        self._entries += math.prod([row[0] for row in rows])
        if self._entries > PIECE_ENTRIES:
            self.cuts.append(len(self._steps))
            self._entries = 0.0
        if kind != kernels.SCALE and rows[-1][1] == 0:  # so that the innermost run is that of a
            a, b = b, a
            rows = [(n, y, x, z) for n, x, y, z in rows]
        first = len(self._groups)
        self._groups += rows
        scaled = numbers is not None
        self._steps.append((a, b, o, first, len(self._groups), kind, size, scaled, *(numbers or _GOING_BACK)))


class ProgramRun:
    """One run through a program: all tables and log Z, and with ``backward`` the derivatives that marginals come from.

    The same bits with and without the compiler. An :class:`ImpossibleModelError` if no configuration has positive
    probability, an :class:`UnderflowError` if ordinary arithmetic would not do.
    """

    def __init__(
        self, program: Program, values: FloatArray, arithmetic: str, clock: Clock, *, backward: bool, compiled: bool
    ) -> None:
        self.program = program
        self.arithmetic = arithmetic
        self.clock = clock
        self.mode = _MODES[arithmetic]
        self.w = np.zeros(program.end)
        self.w[program.one] = 1.0
        self.w[program.one + 1] = 1.0 if self.mode == kernels.LINEAR else 0.0
        self.w[program.values : program.spare] = values
        ranges = np.zeros(len(program.places) + 1)
        self.scale = np.zeros(1)
        digits = np.zeros(program.depth, dtype=np.int64)
        self.changed: list[Any] = [self.w, ranges, self.scale, digits]
        self._choose_kernel(compiled)
        self._go(0, program.forward, kernels.MAX)
        if self.mode == kernels.LINEAR:
            self._exponentiate_leaves()
        self._go(program.forward, program.backward, self.mode)
        self.log_z = float(self.scale[0])
        if len(program.scalars):
            self.log_z += float(values[program.scalars].sum())
        if arithmetic != "max":
            self.log_z += program.log_free
        if backward:
            self.go_back()

    def _choose_kernel(self, compiled: bool) -> None:
        """Set the loop over the steps, and the kinds of its arguments."""
        program = self.program
        self.kernel: Callable[..., int] = kernels.run_steps
        self.inputs: tuple[Any, Any] = (program.steps, program.groups)
        if compiled:
            self.kernel = _compiled()
        else:
            self.inputs = (program.steps.tolist(), program.groups.tolist())
            self.changed = [memoryview(array) for array in self.changed]

    def _exponentiate_leaves(self) -> None:
        """Turn the leaves from logs into ordinary arithmetic."""
        leaves = self.w[: self.program.leaf_end]
        np.exp(leaves, out=leaves)

    def go_back(self) -> None:
        """Compute the derivatives that marginals come from, where that has not been done."""
        self._go(self.program.backward, self.program.reading, self.mode)

    def _multiply(self, start: int) -> None:
        """Do the step that is a product of matrices."""
        left, right, out = [part.view(self.w) for part in self.program.products[start]]
        np.matmul(left, right, out=out)

    def _go(self, first: int, last: int, mode: int) -> None:
        """Do the steps from ``first`` to before ``last``, looking at the clock and multiplying matrices in between."""
        program = self.program
        limits = (*SCALED_RANGE, MAX_LOG_RANGE)
        for start, stop in pairwise([first, *[cut for cut in program.cuts if first < cut < last], last]):
            self.clock.check()
            if mode == kernels.LINEAR and start in program.products:
                self._multiply(start)
            verdict = self.kernel(*self.inputs, mode, limits, start, stop, program.scratch, *self.changed)
            if verdict == kernels.IMPOSSIBLE:
                raise ImpossibleModelError(
                    "no configuration has positive probability: hard constraints contradict each other"
                )
            if verdict == kernels.UNDERFLOW:
                raise UnderflowError

    def marginals(self, wanted: range) -> Calibration:
        """Log Z, and marginals of all variables and of some factors."""
        program = self.program
        w = self.w
        if program.leaf_end:
            self._normalize_leaves()
        self._go(program.reading, program.joints[wanted.stop if wanted else 0], kernels.LINEAR)
        nodes = w[program.nodes : program.joint].copy()
        for start, stop in program.free:
            nodes[start:stop] = 1.0 / (stop - start)
        joint = np.zeros(0)
        if wanted:
            w[program.joint + program.scalars] = 1.0
            joint = w[program.joint :][program.offsets[wanted.start] : program.offsets[wanted.stop]].copy()
        return Calibration(self.log_z, nodes, joint, self.arithmetic)

    def max_marginals(self) -> FloatArray:
        """The largest log-weight of a configuration with each state of each variable; -inf where there is none.

        For a run of maxima: derivatives are maxima then, too. Those by a leaf, with its entries added, are the largest
        log-weights up to a constant.
        """
        program = self.program
        w = self.w
        if program.leaf_end:
            beliefs = w[program.back : program.slopes]
            np.add(beliefs, w[: program.leaf_end], out=beliefs, where=program.changed)
            beliefs -= np.maximum.reduceat(beliefs, program.leaf_starts).repeat(program.leaf_sizes)
        w[program.one] = 0.0  # which the steps add here
        w[program.nodes : program.joint] = -math.inf
        self._go(program.reading, program.joints[0], kernels.MAX)
        found = w[program.nodes : program.joint] + self.log_z
        for start, stop in program.free:
            found[start:stop] = self.log_z
        return found

    def factor_marginals(self) -> FloatArray:
        """Marginals of all factors, one after another."""
        program = self.program
        if program.leaf_end:
            self._normalize_leaves()
        self._go(program.joints[0], program.joints[-1], kernels.LINEAR)
        self.w[program.joint + program.scalars] = 1.0
        return self.w[program.joint :].copy()

    def _normalize_leaves(self) -> FloatArray:
        """Turn the derivatives by leaves, in place, into the marginals of their scopes: times the leaves, over Z.

        What every entry was divided by comes back.
        """
        program = self.program
        beliefs = self.w[program.back : program.slopes]
        tables = self.w[: program.leaf_end]
        if self.mode == kernels.LINEAR:
            np.multiply(beliefs, tables, out=beliefs, where=program.changed)
        else:
            np.add(beliefs, tables, out=beliefs, where=program.changed)
            beliefs -= np.maximum.reduceat(beliefs, program.leaf_starts).repeat(program.leaf_sizes)
            np.exp(beliefs, out=beliefs)
        totals = np.add.reduceat(beliefs, program.leaf_starts)
        if not totals.min() > SMALLEST_TOTAL:
            raise UnderflowError
        divisors = totals.repeat(program.leaf_sizes)
        beliefs /= divisors
        return divisors

    def trace(self, order: IntArray, num_draws: int, rng: np.random.Generator | None) -> IntArray:
        """Configurations drawn backwards through the order, or the most probable without a generator."""
        last = self.program.plan.last
        states = np.zeros((num_draws, len(last)), dtype=np.int64)
        for v in reversed(order.tolist()):
            self.clock.check()
            logits = np.zeros((num_draws, self.program.states[v]))
            for t in last[v]:
                logits += self._log_table(t, v, states)
            if rng is None:
                states[:, v] = logits.argmax(axis=1)
                continue
            cumulative = np.cumsum(np.exp(logits - logits.max(axis=1, keepdims=True)), axis=1)
            # random() is at most 1 - 2**-53, so the product is below the total also after rounding.
            threshold = rng.random(num_draws) * cumulative[:, -1]
            states[:, v] = (cumulative <= threshold[:, None]).sum(axis=1)
        return states

    def _log_table(self, t: int, v: int, states: IntArray) -> FloatArray:
        """Logs of the entries of a table by the states of v (draws, L), given the states (draws, n) of the others."""
        counts = self.program.states
        steps = strides(counts, self.program.plan.scopes[t])
        index = np.full(len(states), self.program.places[t])
        for u, step in steps.items():
            if u != v:
                index += step * states[:, u]
        values: FloatArray = self.w[index[:, None] + steps[v] * np.arange(counts[v])]
        if self.mode != kernels.LINEAR:
            return values
        with np.errstate(divide="ignore"):
            return np.log(values)


@cache
def _compiled() -> Callable[..., int]:
    """The compiled loop over the steps."""
    from fastmix._jit import njit

    # Largest and smallest entries are found several at a time where NaN has no meaning; sums keep their order.
    options = {"cache": True, "nogil": True, "error_model": "numpy", "fastmath": {"nnan", "nsz"}}
    compiled: Callable[..., int] = njit(**options)(kernels.run_steps)
    return compiled


def _offsets(sizes: Sequence[int]) -> list[int]:
    """Where blocks of these sizes begin, and the end."""
    return offsets_of(np.array(sizes, dtype=np.int64)).tolist()
