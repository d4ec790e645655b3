"""Greedy elimination of variables in which something is left out wherever a table would be too large."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from fastmix._clock import Clock

__all__ = ["LimitedElimination"]

# A table of an elimination: by each variable that is not eliminated yet, the numbers of the factors that hold it.
_Table = dict[int, list[int]]


class LimitedElimination:
    """Greedy elimination with a limit on tables: instead of larger ones, factors are left out or variables set apart.

    In an elimination of factors, a factor is left out as a whole; in one of variables (``isolates``), a variable
    leaves all its tables and stands alone.

    Parameters
    ----------
    log_counts : list of float
        Logarithms of the state counts.
    scopes : sequence of tuples
        The variables of every factor.
    weights : list of float
        What leaving out each factor costs.
    log_limit : float
        Logarithm of the number of entries that a table may have.
    clock : Clock
        Ends the elimination by an :class:`fastmix._clock.OutOfTimeError`.
    isolates : bool
        Whether variables are left out instead of factors.

    Attributes
    ----------
    kept : list of bool
        Whether each factor is left in.
    alone : list of int
        The variables that stand alone, in the order in which they were left out.
    done : list of bool
        Whether each variable is eliminated or stands alone. Callers may exclude variables beforehand.
    """

    def __init__(
        self,
        log_counts: list[float],
        scopes: Sequence[tuple[int, ...]],
        weights: list[float],
        log_limit: float,
        clock: Clock,
        *,
        isolates: bool = False,
    ) -> None:
        self.log_counts = log_counts
        self.weights = weights
        self.clock = clock
        self.log_limit = log_limit + 1e-9  # by rounding of logarithms
        self.isolates = isolates
        self.kept = [True] * len(scopes)
        self.alone: list[int] = []
        self.done = [False] * len(log_counts)
        self._tables_of: list[set[int]] = [set() for _ in log_counts]  # by variable, the numbers of its tables
        self._tables: list[_Table] = []
        for factor, scope in enumerate(scopes):
            self._add({variable: [factor] for variable in scope})

    def smallest_first(self, noise: list[float]) -> list[int]:
        """Eliminate the variable of the smallest table first; the order comes back.

        The ``noise`` of each variable is added to the logarithm of the size of its table.
        """
        score = [self._log_size(self._neighborhood(v)) + noise[v] for v in range(len(self.log_counts))]
        heap = [(size, variable) for variable, size in enumerate(score)]
        heapq.heapify(heap)
        order: list[int] = []
        while heap:
            size, variable = heapq.heappop(heap)
            if self.done[variable] or size != score[variable]:
                continue  # an outdated entry of the heap
            order.append(variable)
            for neighbor in self._eliminate(variable):
                if self.done[neighbor]:
                    continue
                new = self._log_size(self._neighborhood(neighbor)) + noise[neighbor]
                if new != score[neighbor]:
                    score[neighbor] = new
                    heapq.heappush(heap, (new, neighbor))
        return order

    def _add(self, table: _Table) -> None:
        """Add a table to those of all its variables."""
        for variable in table:
            self._tables_of[variable].add(len(self._tables))
        self._tables.append(table)

    def _neighborhood(self, variable: int) -> set[int]:
        """All variables that a variable shares a table with, itself included."""
        return set().union(*[self._tables[number] for number in self._tables_of[variable]])

    def _log_size(self, variables: Iterable[int]) -> float:
        """Logarithm of the number of entries of a table over some variables."""
        return sum([self.log_counts[variable] for variable in variables])

    def _loss(self, number: int, variable: int) -> float:
        """What leaving out the factors of a table that hold a variable costs."""
        return sum([self.weights[factor] for factor in self._tables[number].get(variable, ()) if self.kept[factor]])

    def _eliminate(self, variable: int) -> set[int]:
        """Join the tables of a variable into one without it; the variables whose tables have changed come back."""
        self.clock.check()
        self.done[variable] = True
        touched = self._neighborhood(variable)
        if self._log_size(touched) > self.log_limit:
            if self.isolates:
                touched |= self._isolate(variable, set(touched))
            elif len(self._tables_of[variable]) > 1:
                self._leave_out_factors(variable)
        joined: _Table = {}
        for number in list(self._tables_of[variable]):
            for other, factors in self._tables[number].items():
                found = joined.get(other)
                joined[other] = factors if found is None else found + factors
                self._tables_of[other].discard(number)
            self._tables[number] = {}
        joined.pop(variable, None)
        if joined:
            self._add(joined)
        return touched

    def _isolate(self, variable: int, neighborhood: set[int]) -> set[int]:
        """The variables touched when the cheapest neighbors leave all tables, until those of a variable fit."""
        loss = {
            other: sum([self._loss(number, other) for number in self._tables_of[other]]) / self.log_counts[other]
            for other in neighborhood
        }
        touched: set[int] = set()
        for other in sorted(neighborhood - {variable}, key=loss.__getitem__):
            if self._log_size(neighborhood) <= self.log_limit:
                break
            neighborhood.discard(other)
            touched |= self._neighborhood(other)
            self.alone.append(other)
            self.done[other] = True
            for number in self._tables_of[other]:
                del self._tables[number][other]
            self._tables_of[other] = set()
        return touched

    def _leave_out_factors(self, variable: int) -> None:
        """Leave factors out until the tables of a variable fit together.

        The most valuable table stays whole. Of every other one either the cheapest factors with variables that do not
        fit are left out, or, where that costs more, all factors that hold the variable.
        """
        numbers = list(self._tables_of[variable])
        value = {number: self._loss(number, variable) for number in numbers}
        numbers.sort(key=lambda number: (-value[number], len(self._tables[number]), number))
        union = set(self._tables[numbers[0]])
        room = self.log_limit - self._log_size(union)
        for number in numbers[1:]:
            table = self._tables[number]
            excess = self._log_size(set(table) - union) - room
            if excess > 0.0:
                chosen: list[int] = []
                lost = 0.0
                candidates = [(self._loss(number, other), other) for other in table if other not in union]
                for loss, other in sorted(candidates):
                    if excess <= 0.0:
                        break
                    chosen.append(other)
                    lost += loss
                    excess -= self.log_counts[other]
                for other in chosen if lost < value[number] else [variable]:
                    self._leave_out(number, other)
            if variable in table:
                room -= self._log_size(set(table) - union)
                union |= set(table)

    def _leave_out(self, number: int, variable: int) -> None:
        """Leave out the factors of a table that hold a variable."""
        table = self._tables[number]
        for factor in table.get(variable, ()):
            self.kept[factor] = False
        for other in list(table):
            table[other] = [factor for factor in table[other] if self.kept[factor]]
            if not table[other]:
                del table[other]
                self._tables_of[other].discard(number)
