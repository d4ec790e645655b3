"""A sequence of sums of products as arrays of integers, and its runs: forward, backward for all marginals, draws."""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Sequence as Items
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix.errors import ImpossibleModelError
from fastmix.exact import program_kernels as kernels
from fastmix.exact.planner import Factors, Row, Sequence, merge, strides
from fastmix.model.build import offsets_of

__all__ = ["Answer", "Program", "Run", "UnderflowError"]


_PIECE = 1 << 22  # entries worked off between two looks at the clock
_CHECK = 1024  # steps written down between two looks at the clock
# Tables are scaled when their largest entry leaves this range. A product of tables whose positive entries range over
# less than exp(_LOG_RANGE) cannot underflow: the smallest normal double is exp(-708).
_SCALES = 1e-15, 1e15
_LOG_RANGE = 600.0
_SMALLEST_TOTAL = 1e-200  # of what derivatives times tables must add up to
_GOING_BACK = -1, -1, -1  # numbers of tables that matter going forward


class UnderflowError(Exception):
    """A product of tables in ordinary arithmetic could underflow: use logs."""


class Answer(NamedTuple):
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
    """What :func:`fastmix.exact.program_kernels.run_steps` takes, made once for a sequence.

    In the array of a run lie all tables, leaves first; a one, and what stands for it in the arithmetic; the values of
    the factors; room for a table in another layout and for a table of sums; the derivatives by leaves, in their order,
    and by other tables; the marginals of all variables, and of all factors.
    """

    def __init__(self, factors: Factors, sequence: Sequence, clock: Clock = NO_LIMIT) -> None:
        states, scopes, sizes, leaves = factors.num_states, factors.scopes, sequence.sizes, sequence.leaves
        self.states, self.sequence = states, sequence
        placed = [*leaves, *[t for t in range(len(sizes)) if t not in leaves]]
        places = dict(zip(placed, _offsets([sizes[t] for t in placed]), strict=False))
        self.places = [places[t] for t in range(len(sizes))]
        self.leaf_sizes = np.array([sizes[t] for t in leaves], dtype=np.int64)
        self.leaf_starts = offsets_of(self.leaf_sizes)[:-1]
        self.leaf_end = int(self.leaf_sizes.sum())
        self.offsets = _offsets([math.prod([states[v] for v in scope]) for scope in scopes])
        nodes = _offsets(states)
        self.one = sum(sizes)
        self.values = self.one + 2
        self.spare = self.values + self.offsets[-1]
        self.scratch = self.spare + max([sizes[t] for t in sequence.moves], default=0)
        self.back = self.scratch + max(sizes, default=0)
        self.slopes = self.back + self.leaf_end
        self.nodes = self.slopes + sequence.num_slopes
        self.joint = self.nodes + nodes[-1]
        self.end = self.joint + self.offsets[-1]
        self.scalars = np.array([self.offsets[f] for f, scope in enumerate(scopes) if not scope], dtype=np.int64)
        free = [v for v, items in enumerate(sequence.last) if not items]
        self.log_free = sum([math.log(states[v]) for v in free])
        self.free = [(nodes[v], nodes[v + 1]) for v in free]
        in_place = [step.second for step in sequence.steps if step.out == step.first]
        self.changed = np.repeat(~np.isin(list(leaves), in_place), self.leaf_sizes)  # entries of other leaves
        self.products: dict[int, tuple[_Matrices, _Matrices, _Matrices]] = {}
        self.cuts: list[int] = []  # steps before which to look at the clock, or to multiply matrices
        self._steps: list[tuple[int, ...]] = []
        self._groups: list[Row] = []
        self._entries = 0.0
        self._clock = clock
        for t, own in leaves.items():
            for f in own:  # leaves are products of factors, in logs
                rows = merge(
                    states, sequence.scopes[t], {}, *[strides(states, c) for c in (scopes[f], sequence.scopes[t])]
                )
                numbers = (t, t, t) if f == own[-1] else None
                self._add(rows, 0, self.values + self.offsets[f], self.places[t], sizes[t], kernels.SCALE, numbers)
        self.forward = len(self._steps)
        self._go_forward()
        self.backward = len(self._steps)
        self._go_back()
        self.reading = len(self._steps)
        seen: set[int] = set()
        for t in leaves:
            for v in sequence.scopes[t]:
                if v not in seen:
                    seen.add(v)
                    self._read(t, (v,), self.nodes + nodes[v])
        members = sorted([(f, t) for t, own in leaves.items() for f in own])
        is_member = np.zeros(len(scopes), dtype=np.int64)
        is_member[[f for f, _ in members]] = 1
        self.joints = (len(self._steps) + offsets_of(is_member)).tolist()  # by factor, the number of its step
        for f, t in members:
            self._read(t, scopes[f], self.joint + self.offsets[f])
        self.depth = max([step[4] - step[3] for step in self._steps], default=0)
        self.steps = np.array(self._steps, dtype=np.int64).reshape(-1, 11)
        self.groups = np.array(self._groups, dtype=np.int64).reshape(-1, 4)
        del self._steps, self._groups, self._clock

    def _go_forward(self) -> None:
        sequence = self.sequence
        for step in sequence.steps:
            a, b, o = step.first, step.second, step.out
            numbers = a, b if b >= 0 else len(sequence.sizes), o
            target = self.spare if o in sequence.moves and o != a else self._place(o)
            kind = kernels.SCALE if o == a else kernels.SUM
            if step.gemm:
                self._multiply(step.gemm, (self._place(a), self._place(b), target), 2)
                kind = kernels.PRODUCT
            self._add(step.rows, self._place(a), self._place(b), target, sequence.sizes[o], kind, numbers)
            if target == self.spare:
                self._add(sequence.moves[o], target, self.one + 1, self._place(o), sequence.sizes[o])

    def _go_back(self) -> None:
        sequence = self.sequence
        pending: dict[int, list[tuple[list[Row], int]]] = {}
        for step in reversed(sequence.steps):
            a, b, o = step.first, step.second, step.out
            slope, kind = self._slope(o), kernels.PRODUCT if step.gemm else kernels.SUM
            to_second = [(n, x, z, y) for n, x, y, z in step.rows]
            if o == a:  # the table has b in it already, so this is the marginal of b
                self._add(to_second, self._place(a), slope, self._slope(b), sequence.sizes[b])
                pending.setdefault(o, []).append((step.rows, self._place(b)))
                continue
            # What was multiplied in place is in the table for good, so it comes to the derivative at the end.
            for rows, place in pending.pop(o, ()):
                self._add(rows, slope, place, slope, 0, kernels.SCALE)
            if o in sequence.moves:
                moved = self.slopes + sequence.moved_slopes[o]
                rows = [(n, z, y, x) for n, x, y, z in sequence.moves[o]]
                self._add(rows, slope, self.one + 1, moved, sequence.sizes[o])
                slope = moved
            for t, which in ((b, 1), (a, 0)):
                if t < 0:
                    continue
                rows = to_second if which else [(n, y, z, x) for n, x, y, z in step.rows]
                other = self._place(b if t == a else a)
                if step.gemm:
                    own = (other, self._slope(t), slope) if which else (self._slope(t), other, slope)
                    self._multiply(step.gemm, own, which)
                self._add(rows, other, slope, self._slope(t), sequence.sizes[t], kind, _GOING_BACK)

    def _place(self, t: int) -> int:
        return self.places[t] if t >= 0 else self.one + 1

    def _slope(self, t: int) -> int:
        """Where the derivative by a table is; that by a result is one."""
        if t in self.sequence.leaves:
            return self.back + self.places[t]
        return self.slopes + self.sequence.slopes[t] if t in self.sequence.slopes else self.one + 1

    def _read(self, t: int, scope: tuple[int, ...], target: int) -> None:
        """A step that sums the marginal of a leaf to some of its variables."""
        own = self.sequence.scopes[t]
        rows = merge(self.states, own, strides(self.states, own), {}, strides(self.states, scope))
        self._add(rows, self.back + self.places[t], self.one, target, 0)

    def _multiply(self, shape: tuple[int, int, int, int], places: tuple[int, int, int], which: int) -> None:
        """Matrix products in place of the sum in the next step: of the first two to the third, or its derivatives."""
        count, m, k, n = shape
        shapes = (count, m, k), (count, k, n), (count, m, n)
        a, b, o = [_Matrices(place, own) for place, own in zip(places, shapes, strict=True)]
        orders = {0: (o, b._replace(flip=True), a), 1: (a._replace(flip=True), o, b), 2: (a, b, o)}
        self.products[len(self._steps)] = orders[which]
        self.cuts.append(len(self._steps))

    def _add(
        self, rows: list[Row], a: int, b: int, o: int, size: int, kind: int = kernels.SUM,
        numbers: tuple[int, int, int] | None = None,
    ) -> None:  # fmt: skip
        """A step; with the numbers of its tables, its result is scaled."""
        if len(self._steps) % _CHECK == 0:
            self._clock.check()
        self._entries += math.prod([row[0] for row in rows])
        if self._entries > _PIECE:
            self.cuts.append(len(self._steps))
            self._entries = 0.0
        if kind != kernels.SCALE and rows[-1][1] == 0:  # so that the innermost run is that of a
            a, b, rows = b, a, [(n, y, x, z) for n, x, y, z in rows]
        first = len(self._groups)
        self._groups += rows
        scaled = numbers is not None
        self._steps.append((a, b, o, first, len(self._groups), kind, size, scaled, *(numbers or _GOING_BACK)))


class Run:
    """The tables of one run through a program, forward, and ``backward`` where marginals are wanted, and log Z.

    The same bits with and without the compiler. An :class:`ImpossibleModelError` if no configuration has positive
    probability, an :class:`UnderflowError` if ordinary arithmetic would not do.
    """

    def __init__(
        self, program: Program, values: FloatArray, arithmetic: str, clock: Clock, *, backward: bool, compiled: bool
    ) -> None:
        self.program, self.arithmetic, self.clock = program, arithmetic, clock
        self.mode = {"linear": kernels.LINEAR, "log": kernels.LOG, "max": kernels.MAX}[arithmetic]
        self.w = np.zeros(program.end)
        self.w[program.one] = 1.0
        self.w[program.one + 1] = 1.0 if self.mode == kernels.LINEAR else 0.0
        self.w[program.values : program.spare] = values
        scale = np.zeros(1)
        self.kernel: Callable[..., int] = _compiled() if compiled else kernels.run_steps
        self.inputs: tuple[Any, Any] = program.steps, program.groups
        self.changed: list[Any] = [
            self.w, np.zeros(len(program.places) + 1), scale, np.zeros(program.depth, dtype=np.int64)
        ]  # fmt: skip
        if not compiled:
            self.inputs = program.steps.tolist(), program.groups.tolist()
            self.changed = [memoryview(array) for array in self.changed]
        self._go(0, program.forward, kernels.MAX)
        if self.mode == kernels.LINEAR:
            leaves = self.w[: program.leaf_end]
            np.exp(leaves, out=leaves)
        self._go(program.forward, program.reading if backward else program.backward, self.mode)
        self.log_z = float(scale[0])
        if len(program.scalars):
            self.log_z += float(values[program.scalars].sum())
        if arithmetic != "max":
            self.log_z += program.log_free

    def _go(self, first: int, last: int, mode: int) -> None:
        """Do some steps."""
        program = self.program
        limits = (*_SCALES, _LOG_RANGE)
        for start, stop in pairwise([first, *[cut for cut in program.cuts if first < cut < last], last]):
            self.clock.check()
            if mode == kernels.LINEAR and start in program.products:
                left, right, out = [part.view(self.w) for part in program.products[start]]
                np.matmul(left, right, out=out)
            verdict = self.kernel(*self.inputs, mode, limits, start, stop, program.scratch, *self.changed)
            if verdict == kernels.IMPOSSIBLE:
                raise ImpossibleModelError(
                    "no configuration has positive probability: hard constraints contradict each other"
                )
            if verdict == kernels.UNDERFLOW:
                raise UnderflowError

    def marginals(self, wanted: range) -> Answer:
        """Marginals of all variables and of some factors."""
        program, w = self.program, self.w
        if program.leaf_end:
            beliefs, tables = w[program.back : program.slopes], w[: program.leaf_end]
            if self.mode == kernels.LINEAR:
                np.multiply(beliefs, tables, out=beliefs, where=program.changed)
            else:
                np.add(beliefs, tables, out=beliefs, where=program.changed)
                beliefs -= np.maximum.reduceat(beliefs, program.leaf_starts).repeat(program.leaf_sizes)
                np.exp(beliefs, out=beliefs)
            totals = np.add.reduceat(beliefs, program.leaf_starts)
            if not totals.min() > _SMALLEST_TOTAL:
                raise UnderflowError
            beliefs /= totals.repeat(program.leaf_sizes)
        self._go(program.reading, program.joints[wanted.stop if wanted else 0], kernels.LINEAR)
        nodes, joint = w[program.nodes : program.joint].copy(), np.zeros(0)
        for start, stop in program.free:
            nodes[start:stop] = 1.0 / (stop - start)
        if wanted:
            w[program.joint + program.scalars] = 1.0
            joint = w[program.joint :][program.offsets[wanted.start] : program.offsets[wanted.stop]].copy()
        return Answer(self.log_z, nodes, joint, self.arithmetic)

    def trace(self, order: IntArray, num_draws: int, rng: np.random.Generator | None) -> IntArray:
        """Configurations drawn backwards through the order, or the most probable without a generator."""
        program, sequence, counts = self.program, self.program.sequence, self.program.states
        states = np.zeros((num_draws, len(sequence.last)), dtype=np.int64)
        for v in reversed(order.tolist()):
            self.clock.check()
            count = counts[v]
            logits = np.zeros((num_draws, count))
            for t in sequence.last[v]:
                steps = strides(counts, sequence.scopes[t])
                index = np.full(num_draws, program.places[t])
                for u, step in steps.items():
                    if u != v:
                        index += step * states[:, u]
                values = self.w[index[:, None] + steps[v] * np.arange(count)]
                if self.mode == kernels.LINEAR:
                    with np.errstate(divide="ignore"):
                        values = np.log(values)
                logits += values
            if rng is None:
                states[:, v] = logits.argmax(axis=1)
                continue
            cumulative = np.cumsum(np.exp(logits - logits.max(axis=1, keepdims=True)), axis=1)
            # random() is at most 1 - 2**-53, so the product is below the total also after rounding.
            threshold = rng.random(num_draws) * cumulative[:, -1]
            states[:, v] = (cumulative <= threshold[:, None]).sum(axis=1)
        return states


@cache
def _compiled() -> Callable[..., int]:
    from fastmix._jit import njit

    # Largest and smallest entries are found several at a time where NaN has no meaning; sums keep their order.
    options = {"cache": True, "nogil": True, "error_model": "numpy", "fastmath": {"nnan", "nsz"}}
    compiled: Callable[..., int] = njit(**options)(kernels.run_steps)
    return compiled


def _offsets(sizes: Items[int]) -> list[int]:
    """Where blocks of these sizes begin, and the end."""
    return offsets_of(np.array(sizes, dtype=np.int64)).tolist()
