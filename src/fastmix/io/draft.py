"""A Bayesian network as it is read from a file: what the readers of BIF and XMLBIF have in common."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

import numpy as np

from fastmix._arrays import FloatArray
from fastmix._memory import check_memory
from fastmix.errors import FormatError
from fastmix.io.files import shown
from fastmix.model.network import MOST_PARENTS, BayesianNetwork, normalise_rows, order_parents_first

__all__ = ["NetworkDraft"]

_NUMERIC = re.compile(r"[0-9eE+\-. ]*")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_ENTRY_BYTES = 48.0  # for each entry of a table, with the working arrays of its check


class NetworkDraft:
    """A network as it is read: checks names and tables, and says at which place of the file they are wrong.

    ``error`` makes the :class:`FormatError` for a place, a number that it alone understands, and a message.
    """

    def __init__(self, error: Callable[[int, str], FormatError], source: str) -> None:
        self._error, self._source = error, source
        self.names: list[str] = []
        self.states: list[dict[str, int]] = []  # number by name
        self._variable_places: list[int] = []
        self._variable_properties: list[Sequence[str]] = []
        self._indices: dict[str, int] = {}
        self._definitions: dict[int, int] = {}  # place by child
        self._parents: dict[int, list[int]] = {}
        self._tables: dict[int, FloatArray] = {}
        self._table_properties: dict[int, Sequence[str]] = {}
        self._num_entries = 0

    def add_variable(
        self, name: str, place: int, states: Sequence[str], places: Sequence[int], properties: Sequence[str]
    ) -> None:
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
        self._variable_places.append(place)
        self._variable_properties.append(properties)

    def define(self, names: Sequence[str], places: Sequence[int]) -> tuple[int, list[int]]:
        """The numbers of a child and of its parents, which now have to get a table; all variables are known by now."""
        scope: list[int] = []
        for name, place in zip(names, places, strict=True):
            index = self._indices.get(name)
            if index is None:
                raise self._error(place, f"expected the name of a declared variable, got {shown(name)}")
            scope.append(index)
        child, parents = scope[0], scope[1:]
        if len(set(scope)) < len(scope):
            k = next(k for k in range(1, len(scope)) if scope[k] in scope[:k])
            raise self._error(
                places[k], f"the table of {shown(names[0])} must name each variable once, got {shown(names[k])}"
            )
        if len(parents) > MOST_PARENTS:
            message = f"{shown(names[0])} must have at most {MOST_PARENTS} parents, got {len(parents)}"
            raise self._error(places[MOST_PARENTS + 1], message)
        if child in self._definitions:
            raise self._error(places[0], f"each variable must have one table, got a second for {shown(names[0])}")
        self._definitions[child], self._parents[child] = places[0], parents
        return child, parents

    def shape(self, child: int) -> tuple[int, int]:
        """Number of rows of a table and number of states of the child, in Python's numbers, which do not wrap."""
        return math.prod(len(self.states[p]) for p in self._parents[child]), len(self.states[child])

    def reserve(self, child: int) -> None:
        """A :class:`ResourceError` if the table of ``child``, together with those before, needs too much memory."""
        rows, columns = self.shape(child)
        self._num_entries += rows * columns
        what = f"{self._source}: the table of {shown(self.names[child])}, {rows} rows of {columns} probabilities,"
        check_memory(_ENTRY_BYTES * self._num_entries, what, "use fewer parents or states")

    def row_name(self, child: int, row: int) -> str:
        """The states of the parents in a row, for messages."""
        result = []
        for parent in reversed(self._parents[child]):
            row, state = divmod(row, len(self.states[parent]))
            result.append(list(self.states[parent])[state])
        return f"({', '.join(reversed(result))})"

    def numbers(self, child: int, words: list[str], place_of: Callable[[int], int]) -> FloatArray:
        """Words as probabilities; ``place_of`` gives the place of one of them."""
        try:
            if not _NUMERIC.fullmatch(" ".join(words)):
                raise ValueError
            values = np.fromiter(map(float, words), np.float64, len(words))
        except ValueError:
            bad = next(k for k, word in enumerate(words) if not _NUMBER.fullmatch(word))
            rule = "a number"
        else:
            wrong = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
            if not wrong.size:
                return values
            bad = int(wrong[0])
            rule = "finite" if values[bad] > 0 else "at least 0"
        message = f"a probability of {shown(self.names[child])} must be {rule}, got {shown(words[bad])}"
        raise self._error(place_of(bad), message)

    def distributions(
        self, child: int, rows: FloatArray, place_of: Callable[[int], int], row_of: Callable[[int], str]
    ) -> FloatArray:
        """The rows normalised; ``place_of`` and ``row_of`` give the place and the name of one that is wrong."""
        result, bad = normalise_rows(rows)
        if bad is not None:
            where = f" for {row_of(bad)}" if self._parents[child] else ""
            message = f"the probabilities of {shown(self.names[child])}{where} must sum to 1 within 1e-4"
            raise self._error(place_of(bad), f"{message}, got {float(rows[bad].sum()):.10g}")
        return result

    def set_table(self, child: int, rows: FloatArray, properties: Sequence[str]) -> None:
        """The table of a child, an array (rows, states of the child) of distributions."""
        counts = [len(self.states[parent]) for parent in self._parents[child]]
        self._tables[child] = rows.reshape(*counts, rows.shape[1])
        self._table_properties[child] = properties

    def network(self, name: str, properties: Sequence[str]) -> BayesianNetwork:
        """The finished network, if all tables are there and parents come before children in some order."""
        every = range(len(self.names))
        for i in every:
            if i not in self._tables:
                raise self._error(
                    self._variable_places[i], f"expected a table for each variable, got none for {shown(self.names[i])}"
                )
        parents = [self._parents[i] for i in every]
        _, cycle = order_parents_first(parents)
        if cycle:
            listed = " -> ".join(self.names[i] for i in [*cycle[:8], *(cycle[:1] if len(cycle) <= 8 else [])])
            more = "" if len(cycle) <= 8 else " -> ..."
            raise self._error(self._definitions[cycle[0]], f"parents must not form a cycle, got {listed!r}{more}")
        return BayesianNetwork(
            tuple(self.names),
            tuple(tuple(states) for states in self.states),
            tuple(map(tuple, parents)),
            tuple(self._tables[i] for i in every),
            name,
            tuple(properties),
            tuple(map(tuple, self._variable_properties)),
            tuple(tuple(self._table_properties[i]) for i in every),
        )
