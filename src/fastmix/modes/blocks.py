"""A search that moves blocks of variables at once, each to its best states given the others."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fastmix._arrays import BoolArray, FloatArray, IntArray, read_only
from fastmix._clock import Clock
from fastmix.errors import ResourceError
from fastmix.exact.elimination import model_factors
from fastmix.exact.planner import Factors, strides
from fastmix.exact.search import find_order
from fastmix.model import MarkovRandomField
from fastmix.model.flat import offsets_of
from fastmix.modes.allowed import penalty
from fastmix.modes.mode_run import ModeRun
from fastmix.modes.tuning import (
    BLOCK_BITS_LADDER,
    BLOCK_MOVES,
    CLIMBS_PER_START,
    FEW_BLOCK_MOVES,
    LEAST_BLOCK_BITS,
    MAX_BAG_ENTRIES,
    MAX_BLOCK_ENTRIES,
    MAX_REGION_SHARE,
    MOST_BLOCK_BITS,
)

__all__ = ["BlockMoves", "BlockSearch"]


class BlockMoves:
    """Moves of blocks in one model: most of the variables at once, as long as their tables fit a limit.

    Parameters
    ----------
    model : MarkovRandomField
    clock : Clock
        An :class:`fastmix._clock.OutOfTimeError` where there is no time for an order of elimination, and a
        :class:`fastmix.ResourceError` where its cliques are too many.
    """

    def __init__(self, model: MarkovRandomField, clock: Clock) -> None:
        factors = model_factors(model)
        self.states = np.asarray(model.num_states, dtype=np.int64)
        self.log_states = np.log(self.states.astype(np.float64))
        order = find_order(factors.num_states, factors.scopes, clock=clock, effort=0.1)
        self.order = np.asarray(order.order, dtype=np.int64)
        self.place = np.empty(len(self.order), dtype=np.int64)
        self.place[self.order] = np.arange(len(self.order))
        self.bag_starts, self.bags = _bags(factors, self.order.tolist(), clock)
        self.tables = _tables(factors, -penalty(model))
        n = len(self.states)
        self._room = (np.empty(n), np.empty(n))

    def value(self, states: IntArray) -> float:
        """The log-weight of a configuration, a penalty in place of what is forbidden, but for a constant."""
        begins, members, steps = self.tables.scopes
        if not len(self.tables.starts):
            return 0.0
        places = self.tables.starts + np.add.reduceat(states[members] * steps, begins[:-1])
        return float(self.tables.values[places].sum())

    def move(
        self, states: IntArray, log_limit: float, rng: np.random.Generator, *, fixed: BoolArray | None = None
    ) -> bool:
        """Set a random block of a configuration, in place, to its best states; whether that is all variables.

        ``log_limit`` is the log of the number of entries that a table has at most; it is lowered where all tables
        together would have too many. Variables that are ``fixed`` stay in any case.
        """
        from fastmix.modes.block_kernels import choose_fixed, move_block

        n = len(self.states)
        while True:
            stays = np.zeros(n, dtype=np.bool_) if fixed is None else fixed.copy()
            choose_fixed(
                self.bag_starts, self.bags, self.log_states, log_limit, rng.permutation(n), rng.random(n),
                *self._room, stays,
            )  # fmt: skip
            limits = self._limits(stays)
            if limits is not None or stays.all():
                break
            log_limit -= math.log(2.0)
        if limits is None:
            return False
        move_block(
            states, stays, self.order, self.place, self.states, self.tables.scopes, self.tables.starts,
            self.tables.values, rng.random(n), limits,
        )  # fmt: skip
        return not stays.any()

    def _limits(self, fixed: BoolArray) -> IntArray | None:
        """Entries of a clique, of all messages, and variables of a clique, at most; None where that is too much."""
        free = ~fixed[self.bags]
        logs = np.add.reduceat(np.where(free, self.log_states[self.bags], 0.0), self.bag_starts[:-1])[~fixed]
        if not len(logs) or np.logaddexp.reduce(logs) > math.log(MAX_BLOCK_ENTRIES):
            return None
        widest = int(np.add.reduceat(free, self.bag_starts[:-1], dtype=np.int64)[~fixed].max())
        entries = math.ceil(1.000001 * float(np.exp(logs.max())))
        messages = math.ceil(1.000001 * float(np.exp(logs - self.log_states[~fixed]).sum())) + len(logs)
        return np.array([entries, messages, widest + 1], dtype=np.int64)


class _Tables(NamedTuple):
    """The tables of a model that are not zero everywhere: their scopes, with strides, where they begin, and values."""

    scopes: tuple[IntArray, IntArray, IntArray]
    starts: IntArray
    values: FloatArray


def _tables(factors: Factors, least: float) -> _Tables:
    """The tables of a model as :func:`fastmix.modes.block_kernels.move_block` reads them, a penalty for -inf."""
    values = factors.values
    sizes = [math.prod([factors.num_states[v] for v in scope]) for scope in factors.scopes]
    starts = offsets_of(np.array(sizes, dtype=np.int64))
    used = [f for f, (a, b) in enumerate(pairwise(starts)) if values[a:b].any()]
    members: list[int] = []
    steps: list[int] = []
    begins = [0]
    for f in used:
        for v, step in strides(factors.num_states, factors.scopes[f]).items():
            members.append(v)
            steps.append(step)
        begins.append(len(members))
    values = np.where(values > -math.inf, values, least)
    scopes = tuple(read_only(np.array(part, dtype=np.int64)) for part in (begins, members, steps))
    begin_values = starts[:-1][used] if used else np.zeros(0, dtype=np.int64)
    return _Tables(scopes, read_only(np.ascontiguousarray(begin_values)), read_only(values))  # type: ignore[arg-type]


def _bags(factors: Factors, order: list[int], clock: Clock) -> tuple[IntArray, IntArray]:
    """The cliques of an order: of each variable, itself first, all that are in its table when it is eliminated."""
    place = [0] * len(order)
    for p, v in enumerate(order):
        place[v] = p
    later: list[set[int]] = [set() for _ in order]
    for scope in factors.scopes:
        if len(scope) > 1:
            first = min(scope, key=place.__getitem__)
            later[first].update(scope)
    total = 0
    for v in order:
        clock.check()
        later[v].discard(v)
        total += 1 + len(later[v])
        if total > MAX_BAG_ENTRIES:
            raise ResourceError("cliques are too large for moves of blocks")
        if later[v]:
            parent = min(later[v], key=place.__getitem__)
            later[parent].update(later[v])
    bags = [[v, *sorted(own)] for v, own in enumerate(later)]
    starts = offsets_of(np.array([len(bag) for bag in bags], dtype=np.int64))
    return starts, np.array([u for bag in bags for u in bag], dtype=np.int64)


class BlockSearch:
    """Climbs by moves of blocks from one configuration after another, and what they have led to, for one run.

    What is forbidden has a penalty here, so that a configuration that is not allowed can become one.

    1. A climb moves blocks of small tables until several moves in a row gain nothing, then of larger ones.
    2. Where its end differs from the best configuration, the variables that do are moved together, all others fixed:
       what is best of both comes into one.
    3. Further climbs begin at the best configuration with a connected region drawn anew.

    Parameters
    ----------
    run : ModeRun
    clock : Clock
        An :class:`fastmix._clock.OutOfTimeError` where there is no time to begin.
    """

    def __init__(self, run: ModeRun, clock: Clock) -> None:
        self.run = run
        self.moves = BlockMoves(run.model, clock)
        self.rng = run.context.rng("blocks")
        self.best: IntArray | None = None if run.states is None else run.states.copy()
        self.value = -math.inf if self.best is None else self.moves.value(self.best)
        least = max(LEAST_BLOCK_BITS, 2.0 * math.log2(float(self.moves.states.max(initial=2))))
        bits = [min(least + more, MOST_BLOCK_BITS) for more in BLOCK_BITS_LADDER]
        self.ladder = [value * math.log(2.0) for value in sorted(set(bits))]
        self.largest = MOST_BLOCK_BITS * math.log(2.0)
        self.num_climbs = 0

    def go_on(self, states: IntArray) -> None:
        """Climb from a configuration, and then from some regions of the best one that are drawn anew."""
        self._climb_and_join(states)
        for _ in range(CLIMBS_PER_START):
            if self.run.is_over or self.best is None:
                return
            self._climb_and_join(self._with_new_region(self.best))
        if not self.run.is_over and self.best is not None:
            self._offer(self._climb(self.best, [self.largest], FEW_BLOCK_MOVES))

    def _climb_and_join(self, states: IntArray) -> None:
        """Climb from a configuration, and join what comes out with the best one."""
        found = self._climb(states, self.ladder, BLOCK_MOVES)
        before = self.best
        self._offer(found)
        self.num_climbs += 1
        self.run.count("climbs of blocks")
        if before is None or self.best is None:
            return
        agree = found == before
        if agree.all():
            return
        joined = self.best.copy()
        for _ in range(2):
            self._move(joined, self.largest, agree)
        self._offer(joined)

    def _climb(self, states: IntArray, log_limits: list[float], patience: int) -> IntArray:
        """Move blocks until some moves in a row gain nothing, for one limit of table entries after another."""
        current = states.copy()
        value = self.moves.value(current)
        for log_limit in log_limits:
            idle = 0
            while idle < patience and not self.run.clock.past():
                tried = current.copy()
                self._move(tried, log_limit)
                reached = self.moves.value(tried)
                idle = 0 if reached > value + self.run.rounding else idle + 1
                if reached >= value:  # among equals, so that plateaus are walked on
                    current = tried
                    value = reached
        return current

    def _move(self, states: IntArray, log_limit: float, fixed: BoolArray | None = None) -> None:
        """Move a random block of a configuration in place; what the whole block is best in is the answer."""
        is_whole = self.moves.move(states, log_limit, self.rng, fixed=fixed)
        if is_whole and float(self.run.model.log_weight(states)) > -math.inf:
            self.run.settle(states)

    def _with_new_region(self, states: IntArray) -> IntArray:
        """A configuration with a connected region of random size drawn anew."""
        rng = self.rng
        graph = self.run.model.adjacency
        n = len(states)
        size = max(2, int(MAX_REGION_SHARE * n * rng.random()))
        region = [int(rng.integers(n))]
        inside = set(region)
        for v in region:
            if len(region) >= size:
                break
            around = graph.neighbors[graph.indptr[v] : graph.indptr[v + 1]]
            for u in rng.permutation(around).tolist():
                if u not in inside and len(region) < size:
                    inside.add(u)
                    region.append(u)
        drawn = states.copy()
        drawn[region] = rng.integers(0, self.moves.states[region])
        return drawn

    def _offer(self, states: IntArray) -> None:
        """Keep a configuration if it is better than the best one, penalties included."""
        value = self.moves.value(states)
        if self.best is None or value > self.value:
            self.best = states.copy()
            self.value = value
        self.run.offer(states)
