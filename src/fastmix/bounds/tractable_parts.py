"""Parts of a model that exact inference can do: covers (factors left out) and clusters (variables held apart).

A cover is a subset of the factors whose elimination stays below a number of entries in every table. Several of them,
so that every factor is in at least one, are what an upper bound on log Z is split into. Clusters are disjoint sets of
variables; the factors within one can be eliminated below the limit, and the product of distributions over the clusters
is what a lower bound is built on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components, dijkstra

from fastmix._arrays import BoolArray, FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix.bounds.limited_elimination import LimitedElimination
from fastmix.bounds.tuning import (
    FIRST_COVER_NOISE,
    LATTICE_LOSS_RATIO,
    LEAST_VARIABLES_FOR_BANDS,
    MAX_VARIABLES_FOR_ELIMINATION,
    OTHER_COVER_NOISE,
    SECONDS_PER_VARIABLE,
    UNCOVERED_WORTH,
)
from fastmix.exact.search import EliminationOrder, order_cost

__all__ = ["Clusters", "Cover", "TractableParts", "inside_bands", "split_scope"]


class Cover(NamedTuple):
    """Numbers of the factors that are kept, in rising order, and an order of elimination for them."""

    members: IntArray
    order: EliminationOrder


class Clusters(NamedTuple):
    """The number of the cluster of every variable, and an order of elimination of all of them."""

    number: IntArray
    order: list[int]


class _Bands(NamedTuple):
    """Bands of variables, the widest that fit, and what they keep.

    The number of the band of every variable; which factors lie inside one, and inside one of the bands shifted by half
    of their width; an order of elimination; and the weight of the factors between the bands.
    """

    number: IntArray
    inside: BoolArray
    inside_shifted: BoolArray
    order: list[int]
    lost: float


class TractableParts:
    """Covers and clusters of some factors, with tables that stay below a limit; a single factor may have more.

    All methods raise an :class:`fastmix._clock.OutOfTimeError` where their clock runs out.

    Parameters
    ----------
    num_states : sequence of int
        State counts.
    scopes : sequence of tuples
        The variables of every factor.
    weights : float array (factors,)
        What leaving out each factor costs.
    max_entries : float
        Entries that a table may have.
    """

    def __init__(
        self,
        num_states: Sequence[int],
        scopes: Sequence[tuple[int, ...]],
        weights: FloatArray,
        *,
        max_entries: float,
    ) -> None:
        self.num_states = num_states
        self.scopes = scopes
        self.weights = weights
        self.max_entries = max_entries
        self._log_counts: list[float] = np.log(np.asarray(num_states, dtype=float)).tolist()
        self._bands: dict[bool, _Bands | None] = {}

    # -- covers -------------------------------------------------------------------------------------------------------

    def covers(self, *, rng: np.random.Generator, clock: Clock = NO_LIMIT) -> list[Cover]:
        """Covers that together have every factor, and each as much of the weight as a greedy choice can keep.

        Ties are broken at random.
        """
        n = len(self._log_counts)
        num_factors = len(self.scopes)
        if not self.scopes:
            return [self._cover(np.zeros(0, dtype=bool), np.arange(n).tolist())]
        counted = np.zeros(num_factors)  # covers that have each factor
        covers: list[Cover] = []
        bands = self._find_bands(clock)
        while True:
            # Factors that no cover has are worth most, those that many have least.
            worth_of_new = UNCOVERED_WORTH if covers else 1.0
            worth = self.weights * np.where(counted == 0, worth_of_new, 1.0 / (1.0 + counted)) + 1e-12
            if len(covers) < 2 and bands is not None and self._is_in_haste(clock):
                kept = bands.inside_shifted if covers else bands.inside
                order = bands.order
            else:
                noise = ((OTHER_COVER_NOISE if covers else FIRST_COVER_NOISE) * rng.random(n)).tolist()
                kept, order = self._eliminate(np.arange(num_factors), worth, noise, clock)
                if not covers and bands is not None and bands.lost < float(self.weights[~kept].sum()):
                    # Bands lose less than the greedy choice: they and the shifted ones are the first two covers.
                    for cover_inside, cover_order in self._lattice_covers(bands, clock):
                        covers.append(self._cover(cover_inside, cover_order))
                        counted += cover_inside
                    kept = bands.inside_shifted
                    order = bands.order
            if covers and not (kept & (counted == 0)).any() and not counted.all():
                # This cover has nothing new: take one of the factors that no cover has, which gains at least one.
                kept, order = self._eliminate(np.flatnonzero(counted == 0), worth, [0.0] * n, clock)
            covers.append(self._cover(kept, order))
            counted += kept
            if kept.all() or (counted.all() and len(covers) >= 2):
                return covers

    def _lattice_covers(self, bands: _Bands, clock: Clock) -> list[tuple[BoolArray, list[int]]]:
        """Factors and order of the first bands and, where they show a lattice, of both bands across them."""
        found = [(bands.inside, bands.order)]
        across = self._find_bands(clock, turned=True)
        if across is not None and across.lost < LATTICE_LOSS_RATIO * bands.lost:
            found += [(across.inside, across.order), (across.inside_shifted, across.order)]
        return found

    def _cover(self, kept: BoolArray, order: list[int]) -> Cover:
        """The cover of the factors that are kept, with the cost of its order."""
        members = np.flatnonzero(kept)
        chosen = [self.scopes[factor] for factor in members.tolist()]
        return Cover(members, order_cost(self.num_states, chosen, np.array(order, dtype=np.int64)))

    def _eliminate(
        self, members: IntArray, worth: FloatArray, noise: list[float], clock: Clock
    ) -> tuple[BoolArray, list[int]]:
        """The factors that a greedy elimination keeps of those given, and its order."""
        scopes = [self.scopes[factor] for factor in members.tolist()]
        log_limit = math.log(self.max_entries)
        elimination = LimitedElimination(self._log_counts, scopes, worth[members].tolist(), log_limit, clock)
        order = elimination.smallest_first(noise)
        kept = np.zeros(len(self.scopes), dtype=bool)
        kept[members[np.array(elimination.kept)]] = True
        return kept, order

    # -- clusters -----------------------------------------------------------------------------------------------------

    def clusters(self, *, clock: Clock = NO_LIMIT) -> Clusters:
        """Clusters of variables; factors, cut to a cluster, can be eliminated below the limit."""
        bands = self._find_bands(clock) if self.scopes else None
        if bands is not None and self._is_in_haste(clock):
            return Clusters(bands.number, bands.order)
        found = self._greedy_clusters(clock)
        if bands is not None:
            lost = float(self.weights[~inside_bands(self.scopes, found.number)].sum())
            if bands.lost < lost:
                return Clusters(bands.number, bands.order)
        return found

    def _greedy_clusters(self, clock: Clock) -> Clusters:
        """Clusters by rounds of elimination; each round starts with the variables that the last one set apart."""
        n = len(self._log_counts)
        number = np.full(n, -1, dtype=np.int64)
        open_variables = set(range(n))
        round_number = 0
        order: list[int] = []
        while open_variables:
            scopes: list[tuple[int, ...]] = []
            weights: list[float] = []
            for scope, weight in zip(self.scopes, self.weights.tolist(), strict=True):
                part = tuple([variable for variable in scope if variable in open_variables])
                if part:
                    scopes.append(part)
                    weights.append(weight)
            log_limit = math.log(self.max_entries)
            elimination = LimitedElimination(self._log_counts, scopes, weights, log_limit, clock, isolates=True)
            for variable in range(n):
                elimination.done[variable] = variable not in open_variables
            order += elimination.smallest_first([0.0] * n)
            alone = set(elimination.alone)
            number[list(open_variables - alone)] = round_number
            open_variables = alone
            round_number += 1
        return Clusters(number, order)

    # -- bands --------------------------------------------------------------------------------------------------------

    def _is_in_haste(self, clock: Clock) -> bool:
        """Whether so little time is left that only bands, the cheapest parts, are looked for."""
        n = len(self._log_counts)
        return n > MAX_VARIABLES_FOR_ELIMINATION or clock.left() < SECONDS_PER_VARIABLE * n

    def _find_bands(self, clock: Clock, *, turned: bool = False) -> _Bands | None:
        """Bands of levels whose factors, cut to the band, fit the limit; None where there are too few levels.

        ``turned``: in the other direction of a lattice, from the side that meets the first one in the corner.
        """
        if turned not in self._bands:
            self._bands[turned] = self._widest_bands(turned, clock)
        return self._bands[turned]

    def _widest_bands(self, turned: bool, clock: Clock) -> _Bands | None:
        """The widest bands that fit in one direction, found by trying every width."""
        n = len(self._log_counts)
        if n < LEAST_VARIABLES_FOR_BANDS:
            return None
        side, corner = _levels(n, self.scopes)
        level = corner - side if turned else side
        clock.check()
        order = np.lexsort((level, corner))
        log_typical_count = math.log(max(2.0, float(np.median(self.num_states))))
        widest = min(int(level.max()), int(math.log(self.max_entries) / log_typical_count))
        for width in range(widest, 1, -1):
            clock.check()
            number = level // width
            shifted = (level + width // 2) // width
            if self._fit(number, order) and self._fit(shifted, order):
                inside = inside_bands(self.scopes, number)
                lost = float(self.weights[~inside].sum())
                return _Bands(number, inside, inside_bands(self.scopes, shifted), order.tolist(), lost)
        return None

    def _fit(self, bands: IntArray, order: IntArray) -> bool:
        """Whether the factors, cut to bands, can be eliminated below the limit in an order."""
        parts = {part for scope in self.scopes for part in split_scope(scope, bands)}
        cost = order_cost(self.num_states, list(parts), order, most=self.max_entries)
        return cost.max_entries <= self.max_entries


def split_scope(scope: tuple[int, ...], group: Sequence[int] | IntArray) -> list[tuple[int, ...]]:
    """The parts of a scope that lie in the same group, in the order of the scope."""
    parts: dict[int, list[int]] = {}
    for variable in scope:
        parts.setdefault(int(group[variable]), []).append(variable)
    return [tuple(part) for part in parts.values()]


def inside_bands(scopes: Sequence[tuple[int, ...]], bands: IntArray) -> BoolArray:
    """Whether each factor lies within one band."""
    variables = np.array([variable for scope in scopes for variable in scope], dtype=np.int64)
    starts = np.cumsum([0, *(len(scope) for scope in scopes)])[:-1]
    return np.maximum.reduceat(bands[variables], starts) == np.minimum.reduceat(bands[variables], starts)


def _levels(n: int, scopes: Sequence[tuple[int, ...]]) -> tuple[IntArray, IntArray]:
    """Distances of all variables from one side of a graph, and from a corner of that side, for bands of variables.

    The graph joins the variables of every scope to its first. The corner is as far from some variable as can be; the
    side runs from it to a variable that is far from both. On a lattice these are a corner and a side indeed, and bands
    of levels are strips.
    """
    pairs = [(scope[0], variable) for scope in scopes for variable in scope[1:]] or [(0, 0)]
    ends = np.array(pairs, dtype=np.int64)
    both_ways = np.concatenate([ends, ends[:, ::-1]])
    graph = coo_array((np.ones(2 * len(ends)), both_ways.T), shape=(n, n)).tocsr()
    degree = np.diff(graph.indptr)
    sides = np.zeros(n, dtype=np.int64)
    corners = np.zeros(n, dtype=np.int64)
    _, labels = connected_components(graph, directed=False)
    members = np.argsort(labels, kind="stable")
    for part in np.split(members, np.flatnonzero(np.diff(labels[members])) + 1):
        if len(part) < 4:
            continue  # no sides to speak of
        inside = graph[part][:, part] if len(part) < n else graph
        away = _distances(inside, [0])
        first = _distances(inside, [_farthest(away, degree[part])])
        opposite = _distances(inside, [_farthest(first, degree[part])])
        other = _distances(inside, [_farthest(np.minimum(first, opposite), degree[part])])
        side = np.flatnonzero(first + other == (first + other).min())
        corners[part] = first
        sides[part] = _distances(inside, side.tolist())
    return sides, corners


def _distances(graph: Any, sources: list[int]) -> IntArray:
    """Steps from the nearest source to every variable of a connected graph."""
    return np.asarray(dijkstra(graph, indices=sources, unweighted=True, min_only=True), dtype=np.int64)


def _farthest(distance: IntArray, degree: IntArray) -> int:
    """Of the variables farthest away, one with the fewest neighbors."""
    return int(np.lexsort((degree, -distance))[0])
