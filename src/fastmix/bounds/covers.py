"""Parts of a model that fit into a limit: covers (factors left out) and clusters (variables apart from each other).

A cover is a subset of the factors whose elimination stays below a number of entries in every table. Several of them,
so that every factor is in at least one, are what an upper bound on log Z is split into. Clusters are disjoint sets of
variables; the factors within one can be eliminated below the limit, and the product of distributions over the clusters
is what a lower bound is built on.
"""

from __future__ import annotations

import copy
import heapq
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from fastmix._arrays import BoolArray, FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix.exact.search import Order, order_cost

__all__ = ["Clusters", "Cover", "find_clusters", "find_covers", "split_scope"]


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


class _Levels:
    """Distances from one side of a graph and from a corner of that side, for bands of variables.

    The corner is as far from some variable as can be; the side runs from it to a variable that is far from both. On a
    lattice these are a corner and a side indeed, and bands of levels are strips.
    """

    def __init__(self, n: int, scopes: Sequence[tuple[int, ...]]) -> None:
        pairs = [(s[0], v) for s in scopes for v in s[1:]] or [(0, 0)]
        ends = np.array(pairs, dtype=np.int64)
        graph = coo_array((np.ones(2 * len(ends)), np.concatenate([ends, ends[:, ::-1]]).T), shape=(n, n)).tocsr()
        degree = np.diff(graph.indptr)
        self.side, self.corner = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
        _, labels = connected_components(graph, directed=False)
        members = np.argsort(labels, kind="stable")
        for part in np.split(members, np.flatnonzero(np.diff(labels[members])) + 1):
            if len(part) < 4:
                continue
            inside = graph[part][:, part] if len(part) < n else graph
            away = _distances(inside, [0])
            corner = _farthest(away, degree[part])
            first = _distances(inside, [corner])
            opposite = _distances(inside, [_farthest(first, degree[part])])
            other = _distances(inside, [_farthest(np.minimum(first, opposite), degree[part])])
            side = np.flatnonzero(first + other == (first + other).min())
            self.corner[part], self.side[part] = first, _distances(inside, side.tolist())

    def turned(self) -> _Levels:
        """The other direction of a lattice: distances from the side that meets this one in the corner."""
        other = copy.copy(self)
        other.side = self.corner - self.side
        return other

    def bands(self, width: int, shift: int) -> IntArray:
        """The number of the band of every variable."""
        return (self.side + shift) // width

    @property
    def order(self) -> list[int]:
        """Along the bands."""
        return np.lexsort((self.side, self.corner)).tolist()


def _distances(graph: Any, sources: list[int]) -> IntArray:
    """Steps from the nearest source, of every variable of a connected graph."""
    distance = np.full(graph.shape[0], -1, dtype=np.int64)
    distance[sources] = 0
    front = np.array(sources, dtype=np.int64)
    step = 0
    while len(front):
        step += 1
        counts = graph.indptr[front + 1] - graph.indptr[front]
        first = np.repeat(graph.indptr[front] - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
        around = np.unique(graph.indices[first + np.arange(len(first))])
        front = around[distance[around] < 0]
        distance[front] = step
    return distance


def _farthest(distance: IntArray, degree: IntArray) -> int:
    """Of the variables farthest away, one with the fewest neighbors."""
    return int(np.lexsort((degree, -distance))[0])


def _in_bands(scopes: Sequence[tuple[int, ...]], bands: IntArray) -> BoolArray:
    """Which factors lie within one band."""
    flat = np.array([v for s in scopes for v in s], dtype=np.int64)
    starts = np.cumsum([0, *(len(s) for s in scopes)])[:-1]
    return np.maximum.reduceat(bands[flat], starts) == np.minimum.reduceat(bands[flat], starts)


def find_covers(
    num_states: Sequence[int],
    scopes: Sequence[tuple[int, ...]],
    weights: FloatArray,
    *,
    max_entries: float,
    seed: int = 0,
    clock: Clock = NO_LIMIT,
) -> list[Cover]:
    """Covers that together have every factor, and each as much of the weight as a greedy choice can keep.

    Parameters
    ----------
    num_states, scopes
        Of the variables and of the factors.
    weights : float array (number of factors,)
        What leaving a factor out costs.
    max_entries : float
        Of every table; a single factor may have more.
    seed : int
        Of the ties.
    clock : Clock
        An :class:`fastmix._clock.OutOfTimeError` where it runs out before every factor is covered.

    Examples
    --------
    >>> ring = [(0, 1), (1, 2), (2, 3), (0, 3)]
    >>> [c.members.tolist() for c in find_covers([2] * 4, ring, np.ones(4), max_entries=4)]
    [[0, 1, 2], [0, 1, 3]]
    """
    if not scopes:
        return [Cover(np.zeros(0, dtype=np.int64), order_cost(num_states, [], np.arange(len(num_states))))]
    rng = np.random.default_rng(seed)
    logs = np.log(np.asarray(num_states, dtype=float)).tolist()
    counted = np.zeros(len(scopes))
    covers: list[Cover] = []
    strips = _strips(num_states, scopes, weights, max_entries, clock)
    while True:
        worth = weights * np.where(counted == 0, _NEW if covers else 1.0, 1.0 / (1.0 + counted)) + 1e-12
        if len(covers) < 2 and strips is not None and _in_haste(len(logs), clock):
            kept, order = strips.inside[len(covers)], strips.order
        else:
            work = _Elimination(logs, scopes, worth.tolist(), math.log(max_entries), clock)
            order = work.by_size(((0.5 if covers else 0.05) * rng.random(len(logs))).tolist())
            kept = np.array(work.live)
            if not covers and strips is not None and strips.lost < float(weights[~kept].sum()):
                kept, order = strips.inside[0], strips.order
                covers.append(_cover(num_states, scopes, kept, order))
                counted += kept
                kept = strips.inside[1]
                other = _strips(num_states, scopes, weights, max_entries, clock, turned=True)
                if other is not None and other.lost < 2.0 * strips.lost:  # a lattice
                    covers += [_cover(num_states, scopes, inside, other.order) for inside in other.inside]
                    counted += other.inside[0].astype(float) + other.inside[1]
        if covers and not (kept & (counted == 0)).any() and not counted.all():
            kept, order = _alone(logs, scopes, worth, counted == 0, max_entries, clock)
        covers.append(_cover(num_states, scopes, kept, order))
        counted += kept
        if kept.all() or (counted.all() and len(covers) >= 2):
            break
    return covers


def _in_haste(n: int, clock: Clock) -> bool:
    """Whether bands have to do."""
    return n > _LARGE or clock.left() < _SECONDS_PER_VARIABLE * n


def _alone(
    logs: list[float],
    scopes: Sequence[tuple[int, ...]],
    worth: FloatArray,
    wanted: BoolArray,
    max_entries: float,
    clock: Clock,
) -> tuple[BoolArray, list[int]]:
    """A cover of the factors that no other has: one of them at least."""
    members = np.flatnonzero(wanted)
    work = _Elimination(
        logs, [scopes[f] for f in members.tolist()], worth[members].tolist(), math.log(max_entries), clock
    )
    order = work.by_size([0.0] * len(logs))
    kept = np.zeros(len(scopes), dtype=bool)
    kept[members[np.array(work.live)]] = True
    return kept, order


def _cover(num_states: Sequence[int], scopes: Sequence[tuple[int, ...]], kept: BoolArray, order: list[int]) -> Cover:
    members = np.flatnonzero(kept)
    chosen = [scopes[f] for f in members.tolist()]
    return Cover(members, order_cost(num_states, chosen, np.array(order, dtype=np.int64)))


class _Strips(NamedTuple):
    """Bands of the widest kind that fits, and which factors lie inside them, or inside bands shifted by half."""

    bands: IntArray
    inside: tuple[BoolArray, BoolArray]
    order: list[int]
    lost: float


def _strips(
    num_states: Sequence[int],
    scopes: Sequence[tuple[int, ...]],
    weights: FloatArray,
    max_entries: float,
    clock: Clock,
    *,
    turned: bool = False,
) -> _Strips | None:
    """Bands of levels whose factors, cut to the band, fit the limit; None where there are too few levels."""
    n = len(num_states)
    if n < 9:
        return None
    levels = _Levels(n, scopes)
    if turned:
        levels = levels.turned()
    clock.check()
    if levels.side.max() < 2:
        return None
    order = levels.order
    typical = math.log(max(2.0, float(np.median(num_states))))
    for width in range(min(int(levels.side.max()), int(math.log(max_entries) / typical)), 1, -1):
        clock.check()
        bands, shifted = levels.bands(width, 0), levels.bands(width, width // 2)
        fits = True
        for number in (bands, shifted):
            parts = {part for scope in scopes for part in split_scope(scope, number)}
            cost = order_cost(num_states, list(parts), np.array(order, dtype=np.int64), most=max_entries)
            if cost.max_entries > max_entries:
                fits = False
                break
        if fits:
            inside = _in_bands(scopes, bands), _in_bands(scopes, shifted)
            return _Strips(bands, inside, order, float(weights[~inside[0]].sum()))
    return None


def split_scope(scope: tuple[int, ...], group: Sequence[int] | IntArray) -> list[tuple[int, ...]]:
    """The parts of a scope that lie in the same group, in the order of the scope.

    Examples
    --------
    >>> split_scope((4, 0, 2), [7, 7, 8, 8, 8])
    [(4, 2), (0,)]
    """
    parts: dict[int, list[int]] = {}
    for v in scope:
        parts.setdefault(int(group[v]), []).append(v)
    return [tuple(part) for part in parts.values()]


def find_clusters(
    num_states: Sequence[int],
    scopes: Sequence[tuple[int, ...]],
    weights: FloatArray,
    *,
    max_entries: float,
    clock: Clock = NO_LIMIT,
) -> Clusters:
    """Clusters of variables; factors, cut to a cluster, can be eliminated below a limit.

    Parameters and errors as for :func:`find_covers`.

    Examples
    --------
    >>> ring = [(0, 1), (1, 2), (2, 3), (0, 3)]
    >>> find_clusters([2] * 4, ring, np.ones(4), max_entries=4).number.tolist()
    [0, 1, 0, 0]
    """
    n = len(num_states)
    logs = np.log(np.asarray(num_states, dtype=float)).tolist()
    clusters = np.full(n, -1, dtype=np.int64)
    strips = _strips(num_states, scopes, weights, max_entries, clock) if scopes else None
    if strips is not None and _in_haste(n, clock):
        return Clusters(strips.bands, strips.order)
    open_now, round_number = set(range(n)), 0
    order: list[int] = []
    while open_now:
        inner = [part for part in (tuple([v for v in s if v in open_now]) for s in scopes) if part]
        own = [w for s, w in zip(scopes, weights.tolist(), strict=True) if any(v in open_now for v in s)]
        work = _Elimination(logs, inner, own, math.log(max_entries), clock, whole=True)
        for v in range(n):
            work.done[v] = v not in open_now
        order += work.by_size([0.0] * n)
        alone = set(work.alone)
        clusters[list(open_now - alone)] = round_number
        open_now, round_number = alone, round_number + 1
    if strips is not None and strips.lost < float(weights[~_in_bands(scopes, clusters)].sum()):
        return Clusters(strips.bands, strips.order)
    return Clusters(clusters, order)
