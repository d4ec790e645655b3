"""A search that moves blocks of variables at once, each to its best states given the others."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fastmix._arrays import FloatArray, IntArray, read_only
from fastmix.exact.elimination import model_factors
from fastmix.exact.planner import Factors, strides
from fastmix.model import MarkovRandomField
from fastmix.model.flat import offsets_of
from fastmix.modes.allowed import penalty
from fastmix.modes.mode_run import ModeRun
from fastmix.modes.tuning import (
    BLOCK_BITS_LADDER,
    BLOCK_MOVES,
    BLOCK_NOISE,
    CLIMBS_WITHOUT_GAIN,
    FEW_BLOCK_MOVES,
    LEAST_BLOCK_BITS,
    MAX_BLOCK_CANDIDATES,
    MAX_BLOCK_ENTRIES,
    MAX_REGION_SHARE,
    MOST_BLOCK_BITS,
    SHARE_OF_WHOLE_MOVES,
)

__all__ = ["BlockMoves", "BlockSearch"]


class BlockMoves:
    """Moves of blocks in one model: as many variables at once as tables within a limit allow.

    Parameters
    ----------
    model : MarkovRandomField
    """

    def __init__(self, model: MarkovRandomField) -> None:
        self.states = np.asarray(model.num_states, dtype=np.int64)
        self.log_states = np.log(self.states.astype(np.float64))
        self.graph = model.adjacency
        self.tables = _tables(model_factors(model), -penalty(model))

    def value(self, states: IntArray) -> float:
        """The log-weight of a configuration, a penalty in place of what is forbidden, but for a constant."""
        begins, members, steps = self.tables.scopes
        if not len(self.tables.starts):
            return 0.0
        places = self.tables.starts + np.add.reduceat(states[members] * steps, begins[:-1])
        return float(self.tables.values[places].sum())

    def move(self, states: IntArray, inside: IntArray, log_limit: float, rng: np.random.Generator) -> bool:
        """Set a random block of a configuration, in place, to its best states; whether that is all variables.

        The block is among the variables ``inside``. ``log_limit`` is the log of the number of entries that a table has
        at most.
        """
        from fastmix.modes.block_kernels import choose_block, move_block

        n = len(self.states)
        fixed = np.ones(n, dtype=np.bool_)
        order = np.zeros(n, dtype=np.int64)
        noise = BLOCK_NOISE * rng.random(len(inside))
        count, widest, largest, messages = choose_block(
            inside, self.graph.indptr, self.graph.neighbors, self.log_states, log_limit, math.log(MAX_BLOCK_ENTRIES),
            noise, rng.random(1024), fixed, order,
        )  # fmt: skip
        order = order[:count]
        place = np.zeros(n, dtype=np.int64)
        place[order] = np.arange(count)
        room = [math.ceil(1.000001 * largest) + 1, math.ceil(1.000001 * messages) + count, widest + 1]
        move_block(
            states, fixed, order, place, self.states, self.tables.scopes, self.tables.starts, self.tables.values,
            rng.random(n), np.array(room, dtype=np.int64),
        )  # fmt: skip
        return bool(count == n)

    def region(self, size: int, rng: np.random.Generator) -> IntArray:
        """As many variables around one that is drawn as asked for.

        They come in the order in which a search in breadth meets them; where its component has no more, the search
        begins anew at another variable.
        """
        from fastmix.modes.block_kernels import fill_region

        n = len(self.states)
        found = np.empty(min(size, n), dtype=np.int64)
        met = np.zeros(n, dtype=np.bool_)
        fill_region(self.graph.indptr, self.graph.neighbors, rng.permutation(n), rng.random(64), met, found)
        return found


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
    """

    def __init__(self, run: ModeRun) -> None:
        self.run = run
        self.moves = BlockMoves(run.model)
        self.rng = run.context.rng("blocks")
        self.best: IntArray | None = None if run.states is None else run.states.copy()
        self.value = -math.inf if self.best is None else self.moves.value(self.best)
        least = max(LEAST_BLOCK_BITS, 2.0 * math.log2(float(self.moves.states.max(initial=2))))
        bits = [min(least + more, MOST_BLOCK_BITS) for more in BLOCK_BITS_LADDER]
        self.ladder = [value * math.log(2.0) for value in sorted(set(bits))]
        self.largest = MOST_BLOCK_BITS * math.log(2.0)
        self.num_climbs = 0

    def go_on(self, states: IntArray) -> None:
        """Climb from a configuration, and then with regions of the best one drawn anew, until several gain nothing."""
        self._climb_and_join(states)
        idle = 0
        while idle < CLIMBS_WITHOUT_GAIN and not self.run.is_over and self.best is not None:
            before = self.value
            self._climb_and_join(self._with_new_region(self.best))
            idle = 0 if self.value > before + self.run.rounding else idle + 1
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
        differing = np.flatnonzero(found != before)[:MAX_BLOCK_CANDIDATES]
        if len(differing):
            joined = self.best.copy()
            for _ in range(2):
                self._move(joined, self.largest, differing)
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

    def _move(self, states: IntArray, log_limit: float, inside: IntArray | None = None) -> None:
        """Move a random block of a configuration in place; what the whole model is best in is the answer."""
        if inside is None:
            n = len(states)
            size = n if self.rng.random() < SHARE_OF_WHOLE_MOVES else max(2, math.ceil(n * self.rng.random() ** 2))
            size = min(size, MAX_BLOCK_CANDIDATES)
            inside = np.arange(n) if size == n else self.moves.region(size, self.rng)
        is_whole = self.moves.move(states, inside, log_limit, self.rng)
        if is_whole and float(self.run.model.log_weight(states)) > -math.inf:
            self.run.settle(states)

    def _with_new_region(self, states: IntArray) -> IntArray:
        """A configuration with a connected region of random size drawn anew."""
        size = max(2, math.ceil(max(2.0, MAX_REGION_SHARE * len(states)) ** self.rng.random()))
        region = self.moves.region(size, self.rng)
        drawn = states.copy()
        drawn[region] = self.rng.integers(0, self.moves.states[region])
        return drawn

    def _offer(self, states: IntArray) -> None:
        """Keep a configuration if it is better than the best one, penalties included."""
        value = self.moves.value(states)
        if self.best is None or value > self.value:
            self.best = states.copy()
            self.value = value
        self.run.offer(states)
