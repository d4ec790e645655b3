"""A Bayesian network as it is read from a file: what the readers of BIF and XMLBIF have in common."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from graphlib import CycleError, TopologicalSorter

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._memory import check_memory
from fastmix.errors import FormatError
from fastmix.io.files import shown
from fastmix.model.network import MOST_PARENTS, BayesianNetwork, normalise_rows

__all__ = ["NetworkDraft"]

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_ENTRY_BYTES = 64.0  # for each entry of a table, with the working arrays of its check


class NetworkDraft:
    """A network as it is read: checks names and tables, and says at which place of the file they are wrong.

    ``error`` makes the :class:`FormatError` for a place, a number that it alone understands, and a message.
    """

    def __init__(self, error: Callable[[int, str], FormatError], source: str) -> None:
        self._error, self._source = error, source
        self.names: list[str] = []
        self.states: list[dict[str, int]] = []  # number by name
        self._places: list[int] = []
        self._indices: dict[str, int] = {}
        self._parents: dict[int, list[int]] = {}
        self._definitions: dict[int, int] = {}  # places of the tables
        self._tables: dict[int, FloatArray] = {}
        self._num_entries = 0

    def add_variable(self, name: str, place: int, states: Sequence[str], places: Sequence[int]) -> None:
        """Another variable; ``places`` are those of its states."""
        if name in self._indices:
            raise self._error(place, f"each variable must be declared once, got {shown(name)} again")
        if not states:
            raise self._error(place, f"variable {shown(name)} must have at least one state, got none")
        numbers: dict[str, int] = {}
        for state, where in zip(states, places, strict=True):
            if state in numbers:
                raise self._error(where, f"the states of {shown(name)} must all be different, got {shown(state)} again")
            numbers[state] = len(numbers)
        self._indices[name] = len(self.names)
        self.names.append(name)
        self.states.append(numbers)
        self._places.append(place)

    def define(self, names: Sequence[str], places: Sequence[int]) -> tuple[int, list[int], tuple[int, int]]:
        """The numbers of a child and of its parents, and the rows and columns of the table that it now has to get.

        All variables are known by now. A :class:`fastmix.ResourceError` if all tables so far need too much memory.
        """
        scope: list[int] = []
        for name, place in zip(names, places, strict=True):
            index = self._indices.get(name)
            if index is None:
                raise self._error(place, f"expected the name of a declared variable, got {shown(name)}")
            if index in scope:
                message = f"the table of {shown(names[0])} must name each variable once, got {shown(name)}"
                raise self._error(place, message)
            scope.append(index)
        child, parents = scope[0], scope[1:]
        if len(parents) > MOST_PARENTS:
            message = f"{shown(names[0])} must have at most {MOST_PARENTS} parents, got {len(parents)}"
            raise self._error(places[0], message)
        if child in self._parents:
            raise self._error(places[0], f"each variable must have one table, got a second for {shown(names[0])}")
        self._parents[child], self._definitions[child] = parents, places[0]
        rows, columns = math.prod(len(self.states[p]) for p in parents), len(self.states[child])
        self._num_entries += rows * columns
        what = f"{self._source}: the table of {shown(names[0])}, {rows} rows of {columns} probabilities,"
        check_memory(_ENTRY_BYTES * self._num_entries, what, "use fewer parents or states")
        return child, parents, (rows, columns)

    def row_name(self, child: int, row: int) -> str:
        """The states of the parents in a row, for messages."""
        result = []
        for parent in reversed(self._parents[child]):
            row, state = divmod(row, len(self.states[parent]))
            result.append(list(self.states[parent])[state])
        return f"({', '.join(reversed(result))})"

    def set_table(self, child: int, words: Sequence[str], order: IntArray, place_of: Callable[[int], int]) -> None:
        """The table of a child: ``order`` (rows, states of the child) says which of the words each entry is."""
        name = shown(self.names[child])
        values = np.array([float(word) if _NUMBER.fullmatch(word) else -1.0 for word in words])
        wrong = np.flatnonzero(~((values >= 0.0) & (values < np.inf)))
        if wrong.size:
            k = int(wrong[0])
            message = f"a probability of {name} must be a finite number of at least 0, got {shown(words[k])}"
            raise self._error(place_of(k), message)
        table, bad = normalise_rows(values[order])
        if bad is not None:
            where = f" for {self.row_name(child, bad)}" if self._parents[child] else ""
            message = f"the probabilities of {name}{where} must sum to 1 within 1e-4"
            raise self._error(place_of(int(order[bad, 0])), f"{message}, got {values[order[bad]].sum():.10g}")
        self._tables[child] = table.reshape([*(len(self.states[p]) for p in self._parents[child]), -1])

    def network(self, name: str) -> BayesianNetwork:
        """The finished network, if all tables are there and parents come before children in some order."""
        every = range(len(self.names))
        for i in every:
            if i not in self._tables:
                message = f"expected a table for each variable, got none for {shown(self.names[i])}"
                raise self._error(self._places[i], message)
        try:
            TopologicalSorter({i: self._parents[i] for i in every}).prepare()
        except CycleError as error:
            cycle = " -> ".join(self.names[i] for i in error.args[1])
            message = f"parents must not form a cycle, got {shown(cycle)}"
            raise self._error(self._definitions[error.args[1][0]], message) from None
        return BayesianNetwork(
            tuple(self.names),
            tuple(tuple(states) for states in self.states),
            tuple(tuple(self._parents[i]) for i in every),
            tuple(self._tables[i] for i in every),
            name,
        )
