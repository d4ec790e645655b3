"""A sequence of small sums of products as arrays of integers, which a few functions run, compiled or not."""

from __future__ import annotations

import math
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix.errors import ModelError
from fastmix.exact import program_kernels as kernels
from fastmix.exact.passes import limits
from fastmix.exact.planner import Factors, Sequence, strides
from fastmix.exact.search import Order
from fastmix.graphs.basics import run_loop
from fastmix.model.build import offsets_of

__all__ = ["Answer", "Program"]


# Of a table, and of all cliques. Up to there it takes less time than a call for each step, half of it at the limits.
_ENTRIES = 1 << 13
_TOTAL = 1 << 20


class Answer(NamedTuple):
    """Log Z, the marginals of all variables, and those of the factors asked for, one after another."""

    log_z: float
    marginals: FloatArray
    factor_marginals: FloatArray
    arithmetic: str


class Program:
    """What the functions of :mod:`fastmix.exact.program_kernels` take, made once for a sequence.

    Attributes
    ----------
    offsets : list of int
        Where the tables of the factors begin when they lie one after another, with the end.
    """

    @staticmethod
    def fits(sequence: Sequence, order: Order) -> bool:
        """Whether the tables are so small that it is faster than step by step, and lie as they are computed."""
        return order.total_entries <= _TOTAL and max(sequence.sizes, default=0) <= _ENTRIES and not sequence.moves

    def __init__(self, factors: Factors, sequence: Sequence) -> None:
        states, scopes = [int(s) for s in factors.num_states], factors.scopes
        sizes, end = sequence.sizes, sum(sequence.sizes)
        placed = [*sequence.leaves, *[t for t in range(len(sizes)) if t not in sequence.leaves]]  # leaves come first
        at = dict(zip(placed, _offsets([sizes[t] for t in placed]), strict=False))
        starts = [at[t] for t in range(len(sizes))]
        self.offsets = _offsets([math.prod([states[v] for v in scope]) for scope in scopes])
        self.scalars = np.array([self.offsets[f] for f, scope in enumerate(scopes) if not scope], dtype=np.int64)
        free = [v for v, items in enumerate(sequence.last) if not items]
        self.log_constant = sum([math.log(states[v]) for v in free])
        nodes = _offsets(states)
        self.nodes = np.zeros(nodes[-1])
        for v in free:
            self.nodes[nodes[v] : nodes[v + 1]] = 1.0 / states[v]
        in_place = {step.second for step in sequence.steps if step.out == step.first}
        patterns: dict[tuple[tuple[int, int], ...], IntArray] = {}
        leaves: list[tuple[int, ...]] = []
        members: list[tuple[int, int]] = []
        readings: list[tuple[int, int, int]] = []
        positions: list[IntArray] = []
        targets: list[IntArray] = []
        seen: set[int] = set()
        num_positions = num_targets = 0
        for t, factors_of in sequence.leaves.items():
            scope, size = sequence.scopes[t], sizes[t]
            leaves.append((t, starts[t], size, len(members), len(members) + len(factors_of), t in in_place))
            for f in factors_of:
                members.append((f, num_positions))
                positions.append(_pattern(states, scope, scopes[f], patterns) + self.offsets[f])
                num_positions += size
            for v in scope:
                if v not in seen:
                    seen.add(v)
                    readings.append((starts[t], size, num_targets))
                    targets.append(_pattern(states, scope, (v,), patterns) + nodes[v])
                    num_targets += size
        groups = [step.groups for step in sequence.steps]
        steps, ones = _schedule(sequence, starts, end)
        self.ones = np.array(ones, dtype=np.int64)
        self.leaves = _table(leaves, 6), _table(members, 2), _joined(positions)
        self.leaf_end = sum([sizes[t] for t in sequence.leaves])
        self.steps = _table(steps, 13), np.concatenate(groups) if groups else np.zeros((0, 4), dtype=np.int64)
        self.readings = _table(readings, 3), _joined(targets)
        self.shape = len(sizes), end, max([len(g) for g in groups], default=0)

    def run(self, values: FloatArray, wanted: range, *, compiled: bool = True) -> Answer | None:
        """Log Z and marginals for the tables of all factors, one after another; None where they underflow.

        The same bits with and without the compiler. A :class:`ModelError` if no configuration has positive probability.
        """
        num_tables, end, depth = self.shape
        w, ranges, scales = np.zeros(2 * end + 1), np.zeros(num_tables + 1), np.ones(len(self.steps[0]))
        w[self.ones] = 1.0
        log_z = run_loop(kernels.fill_leaves, (*self.leaves, values), (w, ranges), compiled=compiled)
        np.exp(w[: self.leaf_end], out=w[: self.leaf_end])
        verdict = kernels.IMPOSSIBLE
        if log_z > -math.inf:
            changed = w, ranges, scales, np.zeros(depth, dtype=np.int64)
            verdict = run_loop(kernels.run_steps, (*self.steps, limits()), changed, compiled=compiled)
        if verdict == kernels.IMPOSSIBLE:
            raise ModelError("no configuration has positive probability: hard constraints contradict each other")
        nodes, joint = self.nodes.copy(), np.zeros(len(values) if wanted else 0)
        inputs = *self.leaves, *self.readings, end + 1, limits()[3], (wanted.start, wanted.stop)
        if verdict == kernels.UNDERFLOW or not run_loop(
            kernels.read_marginals, inputs, (w, nodes, joint), compiled=compiled
        ):
            return None
        log_z += float(np.log(scales).sum())
        if len(self.scalars):
            log_z += float(values[self.scalars].sum())
            if wanted:
                joint[self.scalars] = 1.0
        joint = joint[self.offsets[wanted.start] : self.offsets[wanted.stop]] if wanted else joint
        return Answer(log_z + self.log_constant, nodes, joint, "linear")


def _schedule(sequence: Sequence, starts: list[int], end: int) -> tuple[list[tuple[int, ...]], list[int]]:
    """All contractions, forward and backward, and where there are ones."""
    sizes, back = [*sequence.sizes, 1], end + 1  # back leads from a table to its derivative
    places = [*starts, end]
    rows, row = [], 0
    for step in sequence.steps:
        rows.append((row, row + len(step.groups)))
        row += len(step.groups)
    used = {t for step in sequence.steps if step.out != step.first for t in (step.first, step.second)}
    result: list[tuple[int, ...]] = []
    ones = [end]
    for step, groups in zip(sequence.steps, rows, strict=True):
        a, b, o = step.first, step.second, step.out  # -1, for no second, is the last place and size
        numbers = (a, b % len(sizes), o)
        result.append((places[a], places[b], places[o], 1, 2, 3, *groups, o == a, sizes[o], *numbers))
        if o not in used:
            ones.append(back + places[o])
    going_back = (-1, -1, -1)
    pending: dict[int, list[tuple[int, tuple[int, int]]]] = {}
    for step, groups in zip(reversed(sequence.steps), reversed(rows), strict=True):
        a, b, o = step.first, step.second, step.out
        slope = back + places[o]
        if o == a:  # the table has b in it already, so this is the marginal of b
            result.append((places[a], slope, back + places[b], 1, 3, 2, *groups, 0, 0, *going_back))
            pending.setdefault(o, []).append((places[b], groups))
            continue
        # What was multiplied in place is in the table for good, so it comes to the derivative at the end.
        for place, scaling in pending.pop(o, ()):
            result.append((slope, place, slope, 1, 2, 3, *scaling, 1, 0, *going_back))
        if b >= 0:
            result.append((places[a], slope, back + places[b], 1, 3, 2, *groups, 0, sizes[b], *going_back))
        result.append((places[b], slope, back + places[a], 2, 3, 1, *groups, 0, sizes[a], *going_back))
    return result, ones


def _offsets(sizes: list[int]) -> list[int]:
    """Where blocks of these sizes begin, and the end."""
    return offsets_of(np.array(sizes, dtype=np.int64)).tolist()


def _pattern(
    states: list[int], scope: tuple[int, ...], part: tuple[int, ...], made: dict[tuple[tuple[int, int], ...], IntArray]
) -> IntArray:
    """By entry of a table, that of a table over some of its variables; equal ones are made once."""
    steps = strides(states, part)
    key = tuple([(states[v], steps.get(v, 0)) for v in scope])
    if key not in made:
        found = np.zeros(1, dtype=np.int64)
        for count, step in key:
            found = (found[:, None] + step * np.arange(count)).reshape(-1)
        made[key] = found
    return made[key]


def _table(rows: list[Any], columns: int) -> IntArray:
    return np.array(list(chain.from_iterable(rows)), dtype=np.int64).reshape(-1, columns)


def _joined(arrays: list[IntArray]) -> IntArray:
    return np.concatenate([np.zeros(0, dtype=np.int64), *arrays])
