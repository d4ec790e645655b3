"""Bounds on the marginals of binary variables from the self-avoiding walks that begin there.

The marginal of a variable of a binary pairwise model is that of the root of the tree of its self-avoiding walks, where
a walk that would close a loop ends in a copy whose state is fixed: by whether the edge that closes comes after the one
that the walk left by, in any order of the edges around a variable (Weitz 2006). Cut short, the ends of the tree can be
in any state, and an interval of log-odds goes up to the root, as messages are monotone in it (the boxes of Mooij and
Kappen 2008). A walk is followed as long as the product of tanh|J| along it, which bounds what its end can do to the
root, is above a threshold; thresholds fall while there is time.

Tables other than those of pairs of binary variables, and those with -inf, count as what they can do at most: whatever
the states of their other variables are, the field on a variable lies in an interval. A marginal is a mean over the
configurations of those variables, for each of which the bound holds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import Clock
from fastmix.bounds.marginal_bounds import outwards
from fastmix.bounds.reduced_tables import ReducedTables
from fastmix.bounds.tuning import (
    MAX_NODES_PER_CALL,
    MAX_ROOTS_PER_CALL,
    NARROW_INTERVAL,
    NODES_PER_SECOND,
    SMALLEST_THRESHOLD,
    THRESHOLD_FACTOR,
    WALK_FREE_THRESHOLD,
    WALK_GAIN,
    WALK_START_THRESHOLD,
)
from fastmix.model.flat import offsets_of
from fastmix.model.forms import spin_tables

__all__ = ["IntervalFields", "WalkBounds", "interval_fields", "mirror_entries", "walk_bounds"]

_EPS = float(np.finfo(np.float64).eps)


class WalkBounds(NamedTuple):
    """Bounds on marginals, laid out as the tables of single variables, and the number of nodes of all trees."""

    lower: FloatArray
    upper: FloatArray
    num_nodes: int


class IntervalFields(NamedTuple):
    """An Ising model whose fields lie in intervals: neighbors in CSR form with couplings, and the ends of fields."""

    indptr: IntArray
    indices: IntArray
    couplings: FloatArray
    low: FloatArray
    high: FloatArray


def walk_bounds(tables: ReducedTables, clock: Clock) -> WalkBounds | None:
    """Bounds on the marginals of all binary variables, from longer and longer walks; None if no pair is binary."""
    fields = interval_fields(tables)
    if fields is None:
        return None
    walks = _Walks(fields)
    threshold = WALK_START_THRESHOLD
    while len(walks.roots) and not clock.past():
        began = clock.used()
        walks.extend(threshold, clock)
        spent = clock.used() - began
        threshold *= THRESHOLD_FACTOR
        # The next round takes longer than this one.
        if threshold < SMALLEST_THRESHOLD or spent > 0.5 * clock.left():
            break
    lower = np.zeros(tables.num_unary)
    upper = np.ones(tables.num_unary)
    known = np.flatnonzero(np.isfinite(walks.low) & np.isfinite(walks.high))
    first = tables.unary_starts[known]
    for state, low, high in ((1, walks.low[known], walks.high[known]), (0, -walks.high[known], -walks.low[known])):
        bounds = outwards(_probability(low), _probability(high), 4.0 * _EPS)
        lower[first + state] = bounds[0]
        upper[first + state] = bounds[1]
    return WalkBounds(lower, upper, walks.num_nodes)


class _Walks:
    """The intervals of half the log-odds of state 1 so far, and the variables whose walks are still worth extending."""

    def __init__(self, fields: IntervalFields) -> None:
        self.fields = fields
        n = len(fields.low)
        degree = np.diff(fields.indptr)
        self.low = np.full(n, -np.inf)
        self.high = np.full(n, np.inf)
        self.roots = np.flatnonzero((degree > 0) & np.isfinite(fields.low) & np.isfinite(fields.high))
        self.num_nodes = 0
        self._mirror = mirror_entries(fields)
        self._reach = np.zeros(n)  # how far all neighbors together can move the field
        np.add.at(self._reach, np.repeat(np.arange(n), degree), np.abs(fields.couplings))
        ends = np.concatenate([fields.low[self.roots], fields.high[self.roots]])
        self._size = 1.0 + float(np.abs(ends).max(initial=0.0)) + self._reach.max()
        self._path = np.full(n, -1, dtype=np.int64)

    def extend(self, threshold: float, clock: Clock) -> None:
        """Follow the walks of all roots down to a threshold, as far as there is time, and drop those that are done."""
        before = self._widths()
        done = 0
        share_of_time = 0.5 * clock.left() * NODES_PER_SECOND / len(self.roots)
        max_nodes = max(100, int(min(MAX_NODES_PER_CALL, share_of_time)))  # of each tree
        num_roots = min(MAX_ROOTS_PER_CALL, max(1, MAX_NODES_PER_CALL // max_nodes))
        for start in range(0, len(self.roots), num_roots):
            roots = self.roots[start : start + num_roots]
            self._follow(roots, threshold, max_nodes)
            done = start + len(roots)
            if clock.past():
                break
        clock.report(self.num_nodes, None, "walks")
        after = self._widths()
        gains = (after < (1.0 - WALK_GAIN) * before) | (threshold > WALK_FREE_THRESHOLD)
        worthwhile = (after > NARROW_INTERVAL) & gains
        worthwhile[done:] = False
        self.roots = self.roots[worthwhile]

    def _follow(self, roots: IntArray, threshold: float, max_nodes: int) -> None:
        """Follow the walks of some roots, and keep what is tighter."""
        from fastmix.bounds.walk_kernels import follow_walks

        low = np.empty(len(roots))
        high = np.empty(len(roots))
        nodes = np.empty(len(roots), dtype=np.int64)
        follow_walks(*self.fields, self._mirror, self._reach, roots, threshold, max_nodes, self._path, low, high, nodes)
        error = 32.0 * _EPS * self._size * (nodes + 8.0)
        self.low[roots] = np.maximum(self.low[roots], low - error)
        self.high[roots] = np.minimum(self.high[roots], high + error)
        self.num_nodes += int(nodes.sum())

    def _widths(self) -> FloatArray:
        """The widths of the intervals of probabilities of all roots."""
        return _probability(self.high[self.roots]) - _probability(self.low[self.roots])


def _probability(half_odds: FloatArray) -> FloatArray:
    """The probability of state 1, from half its log-odds."""
    with np.errstate(over="ignore"):
        return np.asarray(1.0 / (1.0 + np.exp(-2.0 * half_odds)))


def interval_fields(tables: ReducedTables) -> IntervalFields | None:
    """Pairs of binary variables as couplings, and all other tables as intervals of fields; None without such pairs."""
    n = tables.num_variables
    low = np.zeros(n)
    high = np.zeros(n)
    pairs: list[IntArray] = []
    couplings: list[FloatArray] = []
    for shape, group in tables.groups.items():
        stack = tables.values[group.positions]
        scopes = group.scopes
        if shape == (2, 2):
            soft = np.isfinite(stack).all(axis=(1, 2))
            ends = scopes[soft]
            parts = spin_tables(stack[soft])
            pairs.append(ends)
            couplings.append(parts.coupling)
            for axis, effect in ((0, parts.first), (1, parts.second)):
                np.add.at(low, ends[:, axis], effect)
                np.add.at(high, ends[:, axis], effect)
            stack = stack[~soft]
            scopes = scopes[~soft]
        if len(stack):
            _add_intervals(shape, scopes, stack, low, high)
    if not pairs or not sum(len(ends) for ends in pairs):
        return None
    ends = np.concatenate(pairs)
    values = np.concatenate(couplings)
    rows = np.concatenate([ends[:, 0], ends[:, 1]])
    cols = np.concatenate([ends[:, 1], ends[:, 0]])
    order = np.lexsort((cols, rows))
    indptr = offsets_of(np.bincount(rows, minlength=n).astype(np.int64))
    is_binary = np.array(tables.num_states, dtype=np.int64) == 2
    low = np.where(is_binary, low, -np.inf)
    high = np.where(is_binary, high, np.inf)
    return IntervalFields(indptr, cols[order], np.concatenate([values, values])[order], low, high)


def _add_intervals(
    shape: tuple[int, ...], scopes: IntArray, stack: FloatArray, low: FloatArray, high: FloatArray
) -> None:
    """Add to the ends of fields the least and the largest that tables of one shape can do to their binary variables."""
    for axis, count in enumerate(shape):
        if count != 2:
            continue
        moved = np.moveaxis(stack, axis + 1, 1).reshape(len(stack), 2, -1)
        with np.errstate(invalid="ignore"):
            odds = 0.5 * (moved[:, 1] - moved[:, 0])
        soft = np.isfinite(moved).all(axis=1)
        np.add.at(low, scopes[:, axis], np.where(soft, odds, -np.inf).min(axis=1))
        np.add.at(high, scopes[:, axis], np.where(soft, odds, np.inf).max(axis=1))


def mirror_entries(fields: IntervalFields) -> IntArray:
    """For every entry (i, j) of the neighbors where (j, i) is: the k-th by (column, row) mirrors entry k."""
    rows = np.repeat(np.arange(len(fields.low)), np.diff(fields.indptr))
    return np.asarray(np.lexsort((rows, fields.indices)), dtype=np.int64)
