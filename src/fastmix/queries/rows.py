"""Rows of evidence: what users have, as arrays of states, and tables of the same kind with the holes filled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import IntArray
from fastmix._checks import describe
from fastmix.errors import ModelError
from fastmix.io.files import PathLike
from fastmix.learning.data import read_data
from fastmix.learning.dataset import num_hidden
from fastmix.learning.files import read_table
from fastmix.model import MarkovRandomField

__all__ = ["fill_rows", "read_rows", "read_rows_file"]


def read_rows(model: MarkovRandomField, rows: Any) -> IntArray:
    """Numbers of observed states by row and variable (N, n), -1 where a row leaves a variable open.

    Parameters
    ----------
    model : MarkovRandomField
    rows : frame, array_like (N, n), or sequence of mappings
        A pandas or polars frame has a column for each of some variables, in any order. An array has a column for every
        variable. A mapping has the observed states of its row by variable. Open are -1 in arrays of whole numbers, and
        NaN, None and NA everywhere.

    Raises
    ------
    ModelError
        If a column is no variable, or a value no state of its variable.
    """
    if hasattr(rows, "columns") and hasattr(rows, "shape"):
        return _from_frame(model, rows)
    if isinstance(rows, Mapping):
        raise ModelError(
            f"rows must be a frame, an array or a list of rows, got {describe(rows)}; "
            "for one row of evidence there is infer(evidence=)"
        )
    if isinstance(rows, Sequence) and not isinstance(rows, str) and any(isinstance(row, Mapping) for row in rows):
        return _from_mappings(model, rows)
    if isinstance(rows, np.ndarray | list | tuple) and _is_empty(rows):
        return np.zeros((0, model.num_variables), dtype=np.int64)
    return _states(model, rows, missing=-1)


def read_rows_file(path: PathLike, *, model: MarkovRandomField) -> IntArray:
    """Rows of evidence from a text file, with a column for each of some variables.

    The first line has their names; where the variables of the model have none, there is a column for each of them, in
    their order. Gaps are as for :func:`fastmix.learning.read_table`: empty cells, ``?``, ``NA`` and, among numbers, -1.
    """
    marker = None if model.state_names is not None else -1
    named = model.variable_names is not None
    table = read_table(path, header=named or None, model=model, missing=marker, some_columns=named)
    return np.asarray(table.states, dtype=np.int64)


def _is_empty(rows: NDArray[Any] | list[Any] | tuple[Any, ...]) -> bool:
    """Whether there is not a single row."""
    if isinstance(rows, np.ndarray) and rows.ndim == 0:
        return False
    return len(rows) == 0


def _states(model: MarkovRandomField, table: Any, missing: int | None) -> IntArray:
    """The states of a table with a column for every variable."""
    read = read_data(table, model=model, name="rows", missing=missing)
    return np.asarray(read.states, dtype=np.int64)


def _from_frame(model: MarkovRandomField, frame: Any) -> IntArray:
    """The states of a frame; variables without a column are open in all rows."""
    names = model.names_of_variables()
    columns = [str(name) for name in frame.columns]
    unknown = sorted(set(columns) - set(names))
    if unknown:
        raise ModelError(f"rows must have columns that are variables of the model, got {unknown[0]!r}")
    found = np.full((len(frame), len(names)), -1, dtype=np.int64)
    if not columns or not len(frame):
        return found
    present = [names.index(name) for name in columns]
    part = _part_of(model, present)
    found[:, present] = _states(part, frame, missing=None)
    return found


def _from_mappings(model: MarkovRandomField, rows: Sequence[Any]) -> IntArray:
    """The states of evidence that is given as for :func:`fastmix.infer`, row by row."""
    found = np.full((len(rows), model.num_variables), -1, dtype=np.int64)
    for k, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise ModelError(f"rows must all be mappings where one is, got {describe(row)} as row {k}")
        for variable, state in row.items():
            if state is not None:
                found[k, model.variable_index(variable)] = model.state_index(variable, state)
    return found


def _part_of(model: MarkovRandomField, variables: list[int]) -> MarkovRandomField:
    """A model of some variables that knows their names and states, and nothing else."""
    counts = model.num_states[variables]
    names = model.names_of_variables()
    states = model.state_names
    return MarkovRandomField.from_tables(
        [np.zeros(int(count)) for count in counts],
        [],
        [],
        variable_names=[names[v] for v in variables],
        state_names=None if states is None else [states[v] for v in variables],
    )


def fill_rows(model: MarkovRandomField, rows: Any, states: IntArray, *, with_hidden: bool = True) -> Any:
    """A table of states (N, n) of the kind that the rows are: a frame with all variables by name, else an array.

    Hidden variables can be left out; an array keeps them where the rows have them.
    """
    names = model.names_of_variables()
    hidden = 0 if with_hidden else num_hidden(model)
    if not hasattr(rows, "columns"):
        is_wide = len(rows) and not hasattr(rows[0], "keys") and len(rows[0]) == len(names)
        return states if is_wide else states[:, : len(names) - hidden]
    names = names[: len(names) - hidden]
    labels = model.names_of_states()
    columns: dict[str, NDArray[Any]] = {}
    for v, name in enumerate(names):
        known = np.array([*labels[v], None], dtype=object)  # -1 finds None: no completion is possible
        columns[name] = known[states[:, v]] if model.state_names is not None else states[:, v]
    filled = type(rows)(columns)
    if hasattr(rows, "index") and hasattr(filled, "set_index"):
        filled.index = rows.index
    return filled
