"""Configurations that differ from given ones in enough variables: what is asked of all but the best solution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fastmix._arrays import BoolArray, FloatArray, IntArray
from fastmix.exact.planner import Factors

__all__ = ["Apart", "apart_factors"]


class Apart(NamedTuple):
    """Configurations, and in how many variables another one must differ from each of them.

    Attributes
    ----------
    states : int array (k, n)
    counted : int array
        Numbers of the variables in which a difference counts, in rising order.
    distance : int
        Differences at least.
    """

    states: IntArray
    counted: IntArray
    distance: int

    def distances(self, states: IntArray) -> IntArray:
        """In how many of the variables that count a configuration (n,) differs from each of those given, (k,)."""
        found: IntArray = (self.states[:, self.counted] != states[self.counted]).sum(axis=1)
        return found

    def allows(self, states: IntArray) -> bool:
        """Whether a configuration (n,) differs enough from all."""
        return bool((self.distances(states) >= self.distance).all())

    def shortfall(self, states: IntArray) -> int:
        """How many differences a configuration (n,) lacks, all those given together."""
        return int(np.maximum(self.distance - self.distances(states), 0).sum())

    def shortfalls(self, states: IntArray, owner: IntArray, state_of: IntArray) -> IntArray:
        """How many differences are lacking once one variable has changed.

        Entry e is for the change of variable ``owner[e]`` to the state ``state_of[e]``.
        """
        is_counted = np.zeros(len(states), dtype=np.bool_)
        is_counted[self.counted] = True
        distances = self.distances(states)
        total = np.zeros(len(owner), dtype=np.int64)
        for row, distance in zip(self.states, distances.tolist(), strict=True):
            more = (row[owner] != state_of).astype(np.int64) - (row[owner] != states[owner])
            total += np.maximum(self.distance - distance - np.where(is_counted[owner], more, 0), 0)
        return total


def apart_factors(factors: Factors, order: Sequence[int], apart: Apart) -> Factors | None:
    """The factors of a model and more, over counters, which allow only what differs enough; None where nothing can.

    Every given configuration has counters of its own, cut off at the distance that is asked for. They are added up
    along the elimination tree of an order: the counter of a variable has the differences among all that are eliminated
    before it and hang on it. So a table of the model gets a few counters, whatever the number of variables.

    Parameters
    ----------
    factors : Factors
    order : sequence of int
        In which variables are eliminated.
    apart : Apart

    Returns
    -------
    Factors or None
        The variables of the model come first.
    """
    counters = _Counters(factors, apart.distance)
    parents = _elimination_tree(factors.scopes, order)
    is_counted = np.zeros(len(factors.num_states), dtype=np.bool_)
    is_counted[apart.counted] = True
    for row in apart.states.tolist():
        if not counters.add(row, order, parents, is_counted):
            return None
    return counters.factors()


class _Counters:
    """Counters of differences as further variables of some factors, and the tables that make them count."""

    def __init__(self, factors: Factors, distance: int) -> None:
        self.distance = distance
        self.num_states = list(factors.num_states)
        self.scopes = list(factors.scopes)
        self.values = [factors.values]

    def factors(self) -> Factors:
        """The factors of the model and those of the counters."""
        return Factors(self.num_states, self.scopes, np.concatenate(self.values))

    def add(self, states: list[int], order: Sequence[int], parents: list[int], is_counted: BoolArray) -> bool:
        """Count the differences from a configuration; whether there can be enough of them."""
        waiting: list[list[int]] = [[] for _ in states]
        at_roots: list[int] = []
        for v in order:
            total: int | None = None
            for part in waiting[v]:
                total = part if total is None else self._sum(total, part)
            if is_counted[v] and self.num_states[v] > 1:
                differs = (np.arange(self.num_states[v]) != states[v]).astype(np.int64)
                total = self._count(v, differs, total)
            if total is not None:
                (waiting[parents[v]] if parents[v] >= 0 else at_roots).append(total)
        if not at_roots:
            return False
        total = at_roots[0]
        for part in at_roots[1:]:
            total = self._sum(total, part)
        if self.num_states[total] <= self.distance:
            return False
        self._table((total,), np.where(np.arange(self.num_states[total]) < self.distance, -np.inf, 0.0))
        return True

    def _count(self, v: int, differs: IntArray, before: int | None) -> int:
        """A counter that adds the difference in one variable to another counter."""
        if before is None:
            return self._sum_of([v], [differs])
        return self._sum_of([v, before], [differs, np.arange(self.num_states[before])])

    def _sum(self, first: int, second: int) -> int:
        """A counter that adds up two others."""
        return self._sum_of([first, second], [np.arange(self.num_states[v]) for v in (first, second)])

    def _sum_of(self, variables: list[int], counts: list[IntArray]) -> int:
        """A counter for the sum of what the states of one or two variables count as."""
        total = counts[0] if len(counts) == 1 else np.add.outer(counts[0], counts[1])
        total = np.minimum(total, self.distance)
        number = len(self.num_states)
        self.num_states.append(int(total.max()) + 1)
        fits = total[..., None] == np.arange(self.num_states[number])
        self._table((*variables, number), np.where(fits, 0.0, -np.inf))
        return number

    def _table(self, scope: tuple[int, ...], values: FloatArray) -> None:
        """Add a table."""
        self.scopes.append(scope)
        self.values.append(values.reshape(-1))


def _elimination_tree(scopes: Sequence[Sequence[int]], order: Sequence[int]) -> list[int]:
    """For each variable the first one that is eliminated after it among those in its table; -1 where there is none."""
    place = np.empty(len(order), dtype=np.int64)
    place[list(order)] = np.arange(len(order))
    around: list[set[int]] = [set() for _ in order]
    for scope in scopes:
        for v in scope:
            around[v].update(scope)
    parents = [-1] * len(order)
    for v in order:
        later = [u for u in around[v] if place[u] > place[v]]
        if later:
            parents[v] = min(later, key=lambda u: int(place[u]))
            around[parents[v]].update(later)
    return parents
