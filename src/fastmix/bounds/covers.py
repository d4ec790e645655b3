"""Parts of a model that fit into a limit: covers (factors left out) and clusters (variables apart from each other).

A cover is a subset of the factors whose elimination stays below a number of entries in every table. Several of them,
so that every factor is in at least one, are what an upper bound on log Z is split into. Clusters are disjoint sets of
variables; the factors within one can be eliminated below the limit, and the product of distributions over the clusters
is what a lower bound is built on.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components, dijkstra

from fastmix._arrays import BoolArray, FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix.exact.search import Order, order_cost

__all__ = ["Clusters", "Cover", "Parts", "split_scope"]


_NEW = 20.0  # how much more a factor counts that no cover has yet
_LARGE = 20_000  # variables beyond which bands alone are tried
_SECONDS_PER_VARIABLE = 1e-3  # with less time than that for all of them, too


class Cover(NamedTuple):
    """Numbers of the factors that are kept, in rising order, and an order of elimination for them."""

    members: IntArray
    order: Order


class Clusters(NamedTuple):
    """The number of the cluster of every variable, and an order of elimination of all of them."""

    number: IntArray
    order: list[int]


class _Elimination:
    """Greedy elimination in which something is left out where a table would be over the limit.

    A table is a dict of its factors by each variable that is not eliminated yet. In an elimination of factors, a factor
    is left out as a whole; in one of variables (``whole``), a variable leaves all its tables and stands alone.
    """

    def __init__(
        self,
        logs: list[float],
        scopes: Sequence[tuple[int, ...]],
        weights: list[float],
        log_limit: float,
        clock: Clock,
        *,
        whole: bool = False,
    ) -> None:
        self.logs, self.scopes, self.weights, self.clock = logs, scopes, weights, clock
        self.log_limit, self.whole = log_limit + 1e-9, whole
        self.live = [True] * len(scopes)
        self.alone: list[int] = []
        self.done = [False] * len(logs)
        self.at: list[set[int]] = [set() for _ in logs]  # by variable, the numbers of the tables that have it
        self.tables: list[dict[int, list[int]]] = []
        for f, scope in enumerate(scopes):
            self._add({v: [f] for v in scope})

    def _add(self, table: dict[int, list[int]]) -> None:
        for v in table:
            self.at[v].add(len(self.tables))
        self.tables.append(table)

    def _around(self, v: int) -> set[int]:
        return set().union(*[self.tables[t] for t in self.at[v]])

    def _size(self, members: Iterable[int]) -> float:
        return sum([self.logs[u] for u in members])

    def by_size(self, noise: list[float]) -> list[int]:
        """Eliminate the variable of the smallest table first; the order."""
        score = [self._size(self._around(v)) + noise[v] for v in range(len(self.logs))]
        heap = [(s, v) for v, s in enumerate(score)]
        heapq.heapify(heap)
        order: list[int] = []
        while heap:
            s, v = heapq.heappop(heap)
            if self.done[v] or s != score[v]:
                continue
            order.append(v)
            for u in self._eliminate(v):
                if not self.done[u]:
                    new = self._size(self._around(u)) + noise[u]
                    if new != score[u]:
                        score[u] = new
                        heapq.heappush(heap, (new, u))
        return order

    def _eliminate(self, v: int) -> set[int]:
        self.clock.check()
        self.done[v] = True
        touched = self._around(v)
        if self._size(touched) > self.log_limit:
            if self.whole:
                touched |= self._isolate(v, set(touched))
            elif len(self.at[v]) > 1:
                self._cut(v, list(self.at[v]))
        merged: dict[int, list[int]] = {}
        for t in list(self.at[v]):
            for u, factors in self.tables[t].items():
                other = merged.get(u)
                merged[u] = factors if other is None else other + factors
                self.at[u].discard(t)
            self.tables[t] = {}
        merged.pop(v, None)
        if merged:
            self._add(merged)
        return touched

    def _loss(self, t: int, u: int) -> float:
        return sum([self.weights[f] for f in self.tables[t].get(u, ()) if self.live[f]])

    def _isolate(self, v: int, around: set[int]) -> set[int]:
        """Let variables stand alone until the tables of v fit; what their tables touch."""
        loss = {u: sum([self._loss(t, u) for t in self.at[u]]) / self.logs[u] for u in around}
        touched: set[int] = set()
        for u in sorted(around - {v}, key=loss.__getitem__):
            if self._size(around) <= self.log_limit:
                break
            around.discard(u)
            touched |= self._around(u)
            self.alone.append(u)
            self.done[u] = True
            for t in self.at[u]:
                del self.tables[t][u]
            self.at[u] = set()
        return touched

    def _cut(self, v: int, numbers: list[int]) -> None:
        """Leave factors out until the tables of v fit together."""
        value = {t: self._loss(t, v) for t in numbers}
        numbers.sort(key=lambda t: (-value[t], len(self.tables[t]), t))
        union = set(self.tables[numbers[0]])
        room = self.log_limit - self._size(union)
        for t in numbers[1:]:
            table = self.tables[t]
            need = self._size(set(table) - union) - room
            if need > 0.0:
                chosen, lost = [], 0.0
                for loss, u in sorted([(self._loss(t, u), u) for u in table if u not in union]):
                    if need <= 0.0:
                        break
                    chosen.append(u)
                    lost, need = lost + loss, need - self.logs[u]
                for u in chosen if lost < value[t] else [v]:
                    self._leave_out(t, u)
            if v in table:
                room -= self._size(set(table) - union)
                union |= set(table)

    def _leave_out(self, t: int, u: int) -> None:
        """Leave out the factors of a table that have u."""
        table = self.tables[t]
        for f in table.get(u, ()):
            self.live[f] = False
        for w in list(table):
            table[w] = [f for f in table[w] if self.live[f]]
            if not table[w]:
                del table[w]
                self.at[w].discard(t)


def _levels(n: int, scopes: Sequence[tuple[int, ...]]) -> tuple[IntArray, IntArray]:
    """Distances from one side of a graph and from a corner of that side, for bands of variables.

    The graph joins the variables of every scope to its first. The corner is as far from some variable as can be; the
    side runs from it to a variable that is far from both. On a lattice these are a corner and a side indeed, and bands
    of levels are strips.
    """
    pairs = [(s[0], v) for s in scopes for v in s[1:]] or [(0, 0)]
    ends = np.array(pairs, dtype=np.int64)
    graph = coo_array((np.ones(2 * len(ends)), np.concatenate([ends, ends[:, ::-1]]).T), shape=(n, n)).tocsr()
    degree = np.diff(graph.indptr)
    sides, corners = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    _, labels = connected_components(graph, directed=False)
    members = np.argsort(labels, kind="stable")
    for part in np.split(members, np.flatnonzero(np.diff(labels[members])) + 1):
        if len(part) < 4:
            continue
        inside = graph[part][:, part] if len(part) < n else graph
        away = _distances(inside, [0])
        first = _distances(inside, [_farthest(away, degree[part])])
        opposite = _distances(inside, [_farthest(first, degree[part])])
        other = _distances(inside, [_farthest(np.minimum(first, opposite), degree[part])])
        side = np.flatnonzero(first + other == (first + other).min())
        corners[part], sides[part] = first, _distances(inside, side.tolist())
    return sides, corners


def _distances(graph: Any, sources: list[int]) -> IntArray:
    """Steps from the nearest source, of every variable of a connected graph."""
    return np.asarray(dijkstra(graph, indices=sources, unweighted=True, min_only=True), dtype=np.int64)


def _farthest(distance: IntArray, degree: IntArray) -> int:
    """Of the variables farthest away, one with the fewest neighbors."""
    return int(np.lexsort((degree, -distance))[0])


def _in_bands(scopes: Sequence[tuple[int, ...]], bands: IntArray) -> BoolArray:
    """Which factors lie within one band."""
    flat = np.array([v for s in scopes for v in s], dtype=np.int64)
    starts = np.cumsum([0, *(len(s) for s in scopes)])[:-1]
    return np.maximum.reduceat(bands[flat], starts) == np.minimum.reduceat(bands[flat], starts)


class _Strips(NamedTuple):
    """Bands of the widest kind that fits, and which factors lie inside them, or inside bands shifted by half."""

    bands: IntArray
    inside: tuple[BoolArray, BoolArray]
    order: list[int]
    lost: float


class Parts:
    """Covers and clusters of some factors, with tables that stay below ``max_entries``; a single factor may have more.

    The ``weights`` are what leaving a factor out costs. All methods raise an
    :class:`fastmix._clock.OutOfTimeError` where their clock runs out.
    """

    def __init__(
        self,
        num_states: Sequence[int],
        scopes: Sequence[tuple[int, ...]],
        weights: FloatArray,
        *,
        max_entries: float,
    ) -> None:
        self.num_states, self.scopes, self.weights, self.max_entries = num_states, scopes, weights, max_entries
        self.logs: list[float] = np.log(np.asarray(num_states, dtype=float)).tolist()
        self._strips: dict[bool, _Strips | None] = {}

    def covers(self, *, seed: int = 0, clock: Clock = NO_LIMIT) -> list[Cover]:
        """Covers that together have every factor, and each as much of the weight as a greedy choice can keep.

        The seed is that of the ties.
        """
        n, scopes, weights = len(self.logs), self.scopes, self.weights
        if not scopes:
            return [self._cover(np.zeros(0, dtype=bool), np.arange(n).tolist())]
        rng = np.random.default_rng(seed)
        counted = np.zeros(len(scopes))
        covers: list[Cover] = []
        strips = self.strips(clock)
        while True:
            worth = weights * np.where(counted == 0, _NEW if covers else 1.0, 1.0 / (1.0 + counted)) + 1e-12
            if len(covers) < 2 and strips is not None and self._in_haste(clock):
                kept, order = strips.inside[len(covers)], strips.order
            else:
                noise = ((0.5 if covers else 0.05) * rng.random(n)).tolist()
                kept, order = self._eliminate(np.arange(len(scopes)), worth, noise, clock)
                if not covers and strips is not None and strips.lost < float(weights[~kept].sum()):
                    order = strips.order
                    covers.append(self._cover(strips.inside[0], order))
                    counted += strips.inside[0]
                    kept = strips.inside[1]
                    other = self.strips(clock, turned=True)
                    if other is not None and other.lost < 2.0 * strips.lost:  # a lattice
                        covers += [self._cover(inside, other.order) for inside in other.inside]
                        counted += other.inside[0].astype(float) + other.inside[1]
            if covers and not (kept & (counted == 0)).any() and not counted.all():
                # Of the factors that no cover has, one at least.
                kept, order = self._eliminate(np.flatnonzero(counted == 0), worth, [0.0] * n, clock)
            covers.append(self._cover(kept, order))
            counted += kept
            if kept.all() or (counted.all() and len(covers) >= 2):
                return covers

    def clusters(self, *, clock: Clock = NO_LIMIT) -> Clusters:
        """Clusters of variables; factors, cut to a cluster, can be eliminated below the limit."""
        n, scopes, weights = len(self.logs), self.scopes, self.weights
        strips = self.strips(clock) if scopes else None
        if strips is not None and self._in_haste(clock):
            return Clusters(strips.bands, strips.order)
        number = np.full(n, -1, dtype=np.int64)
        open_now, round_number = set(range(n)), 0
        order: list[int] = []
        while open_now:
            inner = [part for part in (tuple([v for v in s if v in open_now]) for s in scopes) if part]
            own = [w for s, w in zip(scopes, weights.tolist(), strict=True) if any(v in open_now for v in s)]
            work = _Elimination(self.logs, inner, own, math.log(self.max_entries), clock, whole=True)
            for v in range(n):
                work.done[v] = v not in open_now
            order += work.by_size([0.0] * n)
            alone = set(work.alone)
            number[list(open_now - alone)] = round_number
            open_now, round_number = alone, round_number + 1
        if strips is not None and strips.lost < float(weights[~_in_bands(scopes, number)].sum()):
            return Clusters(strips.bands, strips.order)
        return Clusters(number, order)

    def strips(self, clock: Clock, *, turned: bool = False) -> _Strips | None:
        """Bands of levels whose factors, cut to the band, fit the limit; None where there are too few levels.

        ``turned``: in the other direction of a lattice, from the side that meets the first one in the corner.
        """
        if turned not in self._strips:
            self._strips[turned] = self._find_strips(turned, clock)
        return self._strips[turned]

    def _find_strips(self, turned: bool, clock: Clock) -> _Strips | None:
        n, scopes, most = len(self.logs), self.scopes, self.max_entries
        if n < 9:
            return None
        side, corner = _levels(n, scopes)
        side = corner - side if turned else side
        clock.check()
        order = np.lexsort((side, corner))
        typical = math.log(max(2.0, float(np.median(self.num_states))))
        for width in range(min(int(side.max()), int(math.log(most) / typical)), 1, -1):
            clock.check()
            both = side // width, (side + width // 2) // width
            for bands in both:
                parts = {part for scope in scopes for part in split_scope(scope, bands)}
                if order_cost(self.num_states, list(parts), order, most=most).max_entries > most:
                    break
            else:
                inside = _in_bands(scopes, both[0]), _in_bands(scopes, both[1])
                return _Strips(both[0], inside, order.tolist(), float(self.weights[~inside[0]].sum()))
        return None

    def _in_haste(self, clock: Clock) -> bool:
        """Whether bands have to do."""
        n = len(self.logs)
        return n > _LARGE or clock.left() < _SECONDS_PER_VARIABLE * n

    def _eliminate(
        self, members: IntArray, worth: FloatArray, noise: list[float], clock: Clock
    ) -> tuple[BoolArray, list[int]]:
        """Which of some factors a greedy elimination keeps, and its order."""
        scopes = [self.scopes[f] for f in members.tolist()]
        work = _Elimination(self.logs, scopes, worth[members].tolist(), math.log(self.max_entries), clock)
        order = work.by_size(noise)
        kept = np.zeros(len(self.scopes), dtype=bool)
        kept[members[np.array(work.live)]] = True
        return kept, order

    def _cover(self, kept: BoolArray, order: list[int]) -> Cover:
        members = np.flatnonzero(kept)
        chosen = [self.scopes[f] for f in members.tolist()]
        return Cover(members, order_cost(self.num_states, chosen, np.array(order, dtype=np.int64)))


def split_scope(scope: tuple[int, ...], group: Sequence[int] | IntArray) -> list[tuple[int, ...]]:
    """The parts of a scope that lie in the same group, in the order of the scope."""
    parts: dict[int, list[int]] = {}
    for v in scope:
        parts.setdefault(int(group[v]), []).append(v)
    return [tuple(part) for part in parts.values()]
