"""The passes through a sequence of sums of products: forward, backward for all marginals, and draws."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import Clock
from fastmix.errors import ModelError
from fastmix.exact.planner import Step

if TYPE_CHECKING:
    from fastmix.exact.tree import Tree

__all__ = ["Run", "UnderflowError", "limits"]


# A sequence whose tables and operations are below these is done with NumPy, and needs no compiler.
_NUMPY_ENTRIES = 1 << 13
_NUMPY_TOTAL = 1 << 18
_PIECE = 1 << 26  # entries worked off between two looks at the clock
# Tables are scaled when their largest entry leaves this range. A product of tables whose positive entries range over
# less than exp(_LOG_RANGE) cannot underflow: the smallest normal double is exp(-708).
_SCALES = 1e-15, 1e15
_LOG_RANGE = 600.0
_SMALLEST_TOTAL = 1e-200  # of what derivatives times tables must add up to


class UnderflowError(Exception):
    """A product of tables in ordinary arithmetic could underflow: use logs."""


def limits() -> tuple[float, float, float, float]:
    """Range in which tables are not scaled, largest log of a ratio of entries, least sum of a marginal."""
    return (*_SCALES, _LOG_RANGE, _SMALLEST_TOTAL)


class Run:
    """The tables of one run through the steps of a tree."""

    def __init__(self, tree: Tree, arithmetic: str, clock: Clock) -> None:
        self.factors, self.sequence, self.order = tree.factors, tree.sequence, tree.order
        self.arithmetic, self.clock = arithmetic, clock
        self.is_log = arithmetic != "linear"
        self.tables: list[FloatArray] = []
        self.log_z = sum([float(t[0]) for s, t in zip(*self.factors[1:], strict=True) if not s and t is not None])
        if arithmetic != "max":
            free = [s for s, items in zip(self.factors.num_states, self.sequence.last, strict=True) if not items]
            self.log_z += sum([math.log(s) for s in free])
        self.ranges: list[float] = [0.0] * len(self.sequence.scopes)
        self.one = np.zeros(1) if self.is_log else np.ones(1)
        self.contract: Callable[..., None] = _numpy_contract
        self.extremes: Callable[[FloatArray], tuple[float, float]] = _numpy_extremes
        small = max(self.sequence.sizes, default=0) <= _NUMPY_ENTRIES and self.order.total_entries <= _NUMPY_TOTAL
        if not small:
            from fastmix.exact.loops import extremes

            self.contract, self.extremes = _compiled_contract, extremes

    def _leaf(self, t: int, members: list[int]) -> FloatArray:
        """The logs of factors joined, flat."""
        states, scope = self.factors.num_states, self.sequence.scopes[t]
        total = np.zeros([states[v] for v in scope])
        for f in members:
            table, own = self.factors.tables[f], self.factors.scopes[f]
            if table is not None:
                table = table.reshape([states[v] for v in own])
                table = table.transpose(sorted(range(len(own)), key=lambda a: scope.index(own[a])))
                total += table.reshape([states[v] if v in own else 1 for v in scope])
        return total.reshape(-1)

    def _fill_leaves(self) -> None:
        """The tables of joined factors, with the largest entry of each taken out to log Z."""
        leaves = self.sequence.leaves
        if not leaves:
            return
        flat = np.concatenate([self._leaf(t, members) for t, members in leaves.items()])
        sizes = [self.sequence.sizes[t] for t in leaves]
        stops = np.cumsum(sizes)
        starts = np.append(0, stops[:-1])
        tops = np.maximum.reduceat(flat, starts)
        if tops.min() == -np.inf:
            raise ModelError("no configuration has positive probability: the factors of a variable forbid all")
        self.log_z += float(tops.sum())
        flat -= np.repeat(tops, sizes)
        if not self.is_log:
            lows = np.minimum.reduceat(np.where(flat == -np.inf, 0.0, flat), starts)
            for t, low in zip(leaves, lows.tolist(), strict=True):
                self.ranges[t] = -low
            np.exp(flat, out=flat)
        for t, start, stop in zip(leaves, starts.tolist(), stops.tolist(), strict=True):
            self.tables[t] = flat[start:stop]

    def collect(self) -> None:
        """Forward: all tables and log Z."""
        tree = self.sequence
        arena = np.empty(sum(tree.sizes))
        ends = np.cumsum(tree.sizes).tolist()
        self.tables = [arena[b - size : b] for size, b in zip(tree.sizes, ends, strict=True)]
        self._fill_leaves()
        spare = np.empty(max([tree.sizes[t] for t in tree.moves], default=0))
        for step in tree.steps:
            self.clock.check()
            a, o = self.tables[step.first], self.tables[step.out]
            b = self.tables[step.second] if step.second >= 0 else self.one
            log_range = self.ranges[step.first] + (self.ranges[step.second] if step.second >= 0 else 0.0)
            if not self.is_log and log_range > _LOG_RANGE:
                raise UnderflowError
            if step.out == step.first:
                self.contract(a, b, o, step, 1, 2, 3, "log scale" if self.is_log else "scale", self.clock)
            elif step.out in tree.moves:
                table = spare[: len(o)]
                self.contract(a, b, table, step, 1, 2, 3, self.arithmetic, self.clock)
                self._copy(table, o, tree.moves[step.out], 1, 3)
            else:
                self.contract(a, b, o, step, 1, 2, 3, self.arithmetic, self.clock)
            self._normalise(step.out, o)

    def _copy(self, source: FloatArray, target: FloatArray, move: Step, ca: int, co: int) -> None:
        """Bring a table to another layout."""
        self.contract(source, self.one, target, move, ca, 2, co, "copy", self.clock)

    def _normalise(self, t: int, table: FloatArray) -> None:
        if self.is_log:
            high = float(table.max())
            if high > -np.inf:
                table -= high
                self.log_z += high
        else:
            high, low = self.extremes(table)
            if high > 0.0:
                self.ranges[t] = math.log(high / low) if low > 1e-290 else math.log(high) - math.log(low)
                if not _SCALES[0] < high < _SCALES[1] or len(table) == 1:
                    table /= high
                    self.log_z += math.log(high)
                return
        if high <= (-np.inf if self.is_log else 0.0):
            raise ModelError("no configuration has positive probability: hard constraints contradict each other")

    def beliefs(self) -> dict[int, FloatArray]:
        """Backward: the marginal of every leaf."""
        tree, log = self.sequence, self.is_log
        slopes: dict[int, FloatArray] = {}
        beliefs: dict[int, FloatArray] = {}
        spare = _Spare()
        pending: dict[int, list[Step]] = {}
        for step in reversed(tree.steps):
            self.clock.check()
            slope = slopes.pop(step.out, None)
            if slope is None:  # a root
                slope = self.one
            a = self.tables[step.first]
            b = self.tables[step.second] if step.second >= 0 else self.one
            if step.out == step.first:
                belief = np.empty(len(b))
                self.contract(a, slope, belief, step, 1, 3, 2, self.arithmetic, self.clock)
                beliefs[step.second] = self._probabilities(belief)
                slopes[step.out] = slope
                pending.setdefault(step.out, []).append(step)
                continue
            # What was multiplied in place is in the table for good, so it comes to the derivative at the end.
            for scaling in pending.pop(step.out, ()):
                factor = self.tables[scaling.second]
                self.contract(slope, factor, slope, scaling, 1, 2, 3, "log scale" if log else "scale", self.clock)
            if step.out in tree.moves:
                moved = spare.take(len(slope))
                self._copy(slope, moved, tree.moves[step.out], 3, 1)
                spare.give(slope)
                slope = moved
            for t, other, co, ci in ((step.second, a, 2, 1), (step.first, b, 1, 2)):
                if t < 0:
                    continue
                table = spare.take(tree.sizes[t])
                self.contract(other, slope, table, step, ci, 3, co, self.arithmetic, self.clock)
                if t in tree.leaves:
                    product = table + self.tables[t] if log else table * self.tables[t]
                    beliefs[t] = self._probabilities(product)
                    spare.give(table)
                    continue
                high = float(table.max()) if log else self.extremes(table)[0]
                if log:
                    table -= high
                elif not high > 0.0:
                    raise UnderflowError
                elif not _SCALES[0] < high < _SCALES[1]:
                    table /= high
                slopes[t] = table
            spare.give(slope)
        return beliefs

    def _probabilities(self, table: FloatArray) -> FloatArray:
        if self.is_log:
            table = np.exp(table - table.max())
        total = table.sum()
        if not total > _SMALLEST_TOTAL:
            raise UnderflowError
        return np.asarray(table / total)

    @np.errstate(divide="ignore")
    def trace(self, num_draws: int, rng: np.random.Generator | None) -> IntArray:
        """Configurations drawn backwards through the order, or the most probable without a generator."""
        tree, counts = self.sequence, self.factors.num_states
        states = np.zeros((num_draws, len(tree.last)), dtype=np.int64)
        for v in reversed(self.order.order.tolist()):
            self.clock.check()
            count = int(counts[v])
            logits = np.zeros((num_draws, count))
            for t in tree.last[v]:
                index = np.zeros(num_draws, dtype=np.int64)
                stride, own = 1, 1
                for u in reversed(tree.scopes[t]):
                    if u == v:
                        own = stride
                    else:
                        index += stride * states[:, u]
                    stride *= int(counts[u])
                values = self.tables[t][index[:, None] + own * np.arange(count)]
                logits += values if self.is_log else np.log(values)
            if rng is None:
                states[:, v] = logits.argmax(axis=1)
                continue
            cumulative = np.cumsum(np.exp(logits - logits.max(axis=1, keepdims=True)), axis=1)
            # random() is at most 1 - 2**-53, so the product is below the total also after rounding.
            threshold = rng.random(num_draws) * cumulative[:, -1]
            states[:, v] = (cumulative <= threshold[:, None]).sum(axis=1)
        return states


class _Spare:
    """Arrays that are used again: memory touched for the first time costs as much as a sum over it."""

    def __init__(self) -> None:
        self.free: list[FloatArray] = []

    def take(self, size: int) -> FloatArray:
        fits = [k for k, buffer in enumerate(self.free) if size <= len(buffer) <= 2 * size]
        if size < 4096 or not fits:
            return np.empty(size)
        return self.free.pop(min(fits, key=lambda k: len(self.free[k])))[:size]

    def give(self, table: FloatArray) -> None:
        if len(table) >= 4096:
            self.free.append(table if table.base is None else table.base)


def _numpy_extremes(table: FloatArray) -> tuple[float, float]:
    """Largest entry and the smallest positive one."""
    high, low = float(table.max()), float(table.min())
    if low == 0.0 < high:
        low = float(table[table > 0.0].min())
    return high, low


def _numpy_contract(
    a: FloatArray, b: FloatArray, o: FloatArray, step: Step, ca: int, cb: int, co: int, mode: str, _: Clock
) -> None:
    """Fill o with the sum of a times b over the groups, whose strides are in the columns given."""
    groups = step.groups.tolist()
    shape, every, left = (
        [row[0] for row in groups],
        list(range(len(groups))),
        [k for k, row in enumerate(groups) if row[co]],
    )
    x, y = [np.ndarray(shape, np.float64, t, 0, [8 * row[c] for row in groups]) for t, c in ((a, ca), (b, cb))]
    z = np.ndarray([shape[k] for k in left], np.float64, o, 0, [8 * groups[k][co] for k in left])
    if mode == "copy":
        z[...] = x
    elif mode == "scale":
        z *= y.reshape(z.shape)
    elif mode == "log scale":
        z += y.reshape(z.shape)
    elif mode == "linear":
        np.einsum(x, every, y, every, left, out=z)
    else:
        total = x + y
        summed = tuple([k for k in every if k not in left])
        top = np.asarray(total.max(axis=summed)) if summed else total
        if mode == "log" and summed:
            safe = np.where(top == -np.inf, 0.0, top)
            sums = np.exp(total - np.expand_dims(safe, summed)).sum(axis=summed)
            with np.errstate(divide="ignore"):
                top = np.log(sums) + safe
        z[...] = top


def _compiled_contract(
    a: FloatArray, b: FloatArray, o: FloatArray, step: Step, ca: int, cb: int, co: int, mode: str, clock: Clock
) -> None:
    from fastmix.exact import loops

    if step.gemm is not None and mode == "linear":
        count, m, k, n = step.gemm
        shapes = {1: (count, m, k), 2: (count, k, n), 3: (count, m, n)}
        x, y, z = a.reshape(shapes[ca]), b.reshape(shapes[cb]), o.reshape(shapes[co])
        if co == 3:
            np.matmul(x, y, out=z)
        elif co == 1:
            np.matmul(y, x.transpose(0, 2, 1), out=z)
        else:
            np.matmul(x.transpose(0, 2, 1), y, out=z)
        return
    passes = {
        "linear": [loops.SUM], "max": [loops.MAX], "log": [loops.MAX, loops.SUM_EXP],
        "scale": [loops.SCALE], "log scale": [loops.SCALE_LOG], "copy": [loops.COPY],
    }[mode]  # fmt: skip
    if mode in ("linear", "max", "log"):
        o.fill(0.0 if mode == "linear" else -np.inf)
    top, target = o, o
    for which in passes:
        if which == loops.SUM_EXP:
            target = np.zeros(len(o))
        cuts = [0, -1]  # all at once
        if step.entries > _PIECE:
            steps = loops.contract(a, b, target, step.groups, ca, cb, co, which, top, 0, 0)
            pieces = min(steps, int(step.entries // _PIECE) + 1)
            cuts = [steps * k // pieces for k in range(pieces + 1)]
        for start, stop in pairwise(cuts):
            clock.check()
            loops.contract(a, b, target, step.groups, ca, cb, co, which, top, start, stop)
    if target is not o:
        with np.errstate(divide="ignore"):
            o += np.log(target)
