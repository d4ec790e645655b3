"""``Dataset``: rows of states with their weights, as all of learning takes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix._memory import check_memory
from fastmix.errors import ModelError
from fastmix.learning.tuning import BYTES_PER_HIDDEN_VARIABLE
from fastmix.model import MarkovRandomField

__all__ = ["MISSING", "Dataset", "RowError", "blank_model", "check_observed", "column_label", "num_hidden"]


#: The number of a missing value.
MISSING = -1
#: What the names of hidden variables begin with, before a number.
HIDDEN_NAME = "hidden "


class RowError(ModelError):
    """Something is wrong in one row, the number of which is ``row``."""

    def __init__(self, message: str, row: Any) -> None:
        super().__init__(message)
        self.row = int(row)


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Rows of states with their weights.

    Attributes
    ----------
    states : int array (rows, n)
        State numbers, -1 where a value is missing.
    weights : float array (rows,)
        With the sum 1: means over the data are sums with these weights. Positive, but for data of a model.
    num_states : int array (n,)
    num_rows : int
        Rows as given; :meth:`merged` rows stand for several of them.
    variable_names, state_names
        Those of frames and of columns of text, else None.
    num_hidden : int
        Columns at the end that stand for hidden variables, all missing.
    """

    states: NDArray[Any]
    weights: FloatArray
    num_states: IntArray
    num_rows: int
    variable_names: tuple[str, ...] | None = None
    state_names: tuple[tuple[str, ...], ...] | None = None
    num_hidden: int = 0

    def __repr__(self) -> str:
        missing = ", with missing values" if self.has_missing else ""
        return f"Dataset({self.num_rows:,} rows of {len(self.num_states)} variables{missing})"

    @cached_property
    def has_missing(self) -> bool:
        """Whether some values are missing."""
        return bool(self.states.size) and int(self.states.min()) == MISSING

    def merged(self) -> tuple[Dataset, IntArray]:
        """The data with equal rows joined, their weights added up, and the new row (rows,) of every row.

        Examples
        --------
        >>> from fastmix.learning import read_data
        >>> data, where = read_data([[0, 1], [1, 1], [0, 1], [0, 1]]).merged()
        >>> data.states.tolist(), data.weights.tolist(), where.tolist()
        ([[0, 1], [1, 1]], [0.75, 0.25], [0, 1, 0, 0])
        """
        return self._merged

    @cached_property
    def _merged(self) -> tuple[Dataset, IntArray]:
        """What :meth:`merged` gives, which most parts of a fit ask for."""
        rows = np.ascontiguousarray(self.states)
        keys = rows.view(f"V{rows.itemsize * rows.shape[1]}")[:, 0]  # rows as single values, which sort much faster
        _, first, where = np.unique(keys, return_index=True, return_inverse=True)
        weights = np.bincount(where, self.weights, len(first)).astype(np.float64)
        merged = replace(self, states=self.states[first], weights=weights)
        vars(merged)["_merged"] = merged, np.arange(len(first))  # whose rows are different already
        return merged, where

    def with_hidden(self, count: int) -> Dataset:
        """The data with columns of hidden binary variables, all missing; their names tell them from the others."""
        if not count:
            return self
        num_rows = len(self.states)
        required = (BYTES_PER_HIDDEN_VARIABLE + 2.0 * self.states.itemsize * num_rows) * count
        check_memory(required, f"hidden {count:,} beside {num_rows:,} rows", "take fewer hidden variables")
        gaps = np.full((num_rows, count), MISSING, dtype=self.states.dtype)
        names = self.variable_names or tuple(str(i) for i in range(len(self.num_states)))
        labels = self.state_names
        if labels is not None:
            labels = (*labels, *(("0", "1"),) * count)
        return replace(
            self,
            states=np.hstack([self.states, gaps]),
            num_states=np.concatenate([self.num_states, np.full(count, 2)]),
            variable_names=(*names, *(f"{HIDDEN_NAME}{k}" for k in range(count))),
            state_names=labels,
            num_hidden=self.num_hidden + count,
        )

    @property
    def note_on_hidden(self) -> str:
        """The number of hidden variables as a part of messages about sizes; nothing where there are none."""
        return f", hidden {self.num_hidden:,} among them," if self.num_hidden else ""

    def column(self, word: Any) -> int:
        """The number of a column, by that or by its name; a :class:`ModelError` if there is none."""
        names = self.variable_names or ()
        if word in names:
            return names.index(word)
        if str(word).isdecimal() and len(str(word)) < 19 and int(word) < len(self.num_states):
            return int(word)
        raise ModelError(f"there is no column {word!r} in the data")

    def edge_numbers(self, edges: Any) -> Any:
        """Edges with numbers of columns where they have names; anything else, words among it, as it is."""
        if isinstance(edges, np.ndarray) and edges.dtype.kind in "UO":
            edges = edges.tolist()
        if isinstance(edges, list | tuple):
            edges = [pair.tolist() if isinstance(pair, np.ndarray) else pair for pair in edges]
        listed = isinstance(edges, list | tuple)
        pairs = [list(pair) for pair in edges if isinstance(pair, list | tuple)] if listed else []
        if not any(isinstance(end, str) for pair in pairs for end in pair):
            return edges
        return [[self.column(end) for end in pair] for pair in pairs]

    def blank_model(self, edges: IntArray | None = None) -> MarkovRandomField:
        """The uniform model of these variables, with tables of zeros on the edges."""
        return blank_model(self.num_states, self.variable_names, self.state_names, edges)


def num_hidden(model: MarkovRandomField) -> int:
    """How many of a model's last variables are hidden, by their names: data for it need no columns for them."""
    names = model.variable_names or ()
    count = 0
    while count < len(names) and names[-1 - count].startswith(HIDDEN_NAME):
        count += 1
    expected = tuple(f"{HIDDEN_NAME}{k}" for k in range(count))
    return count if names[len(names) - count :] == expected else 0


def blank_model(
    num_states: IntArray, variable_names: Any = None, state_names: Any = None, edges: IntArray | None = None
) -> MarkovRandomField:
    """The uniform model of variables with these state counts and names, with tables of zeros on the edges."""
    if edges is None:
        edges = np.zeros((0, 2), dtype=np.int64)
    num_entries = int(np.prod(num_states[edges], axis=1).sum()) if len(edges) else 0
    unary = np.zeros(int(num_states.sum()))
    return MarkovRandomField(num_states, unary, edges, np.zeros(num_entries), 0.0, variable_names, state_names)


def check_observed(data: Dataset, name: str = "data") -> None:
    """A :class:`ModelError` if a column has no value at all."""
    empty = np.flatnonzero((data.states == MISSING).all(axis=0))
    if empty.size:
        label = column_label(data.variable_names, empty[0])
        raise ModelError(f"{name} must have a value in every column, got only missing ones in {label}")


def column_label(names: Sequence[str] | None, i: Any) -> str:
    """How messages name a column."""
    return f"column {int(i)}" if names is None else f"column {names[int(i)]!r}"
