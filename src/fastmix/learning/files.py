"""Tables of states in text files (CSV), also compressed with gzip or xz."""

from __future__ import annotations

import csv
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix.errors import FormatError, ModelError
from fastmix.io.files import PathLike, decode_text, display_name, read_bytes
from fastmix.learning.data import MISSING, Dataset, read_data
from fastmix.model import MarkovRandomField

__all__ = ["read_table"]

_GAPS = ("", "?", "na", "nan", "none", "null")  # missing values, in any case


def read_table(
    path: PathLike,
    *,
    header: bool | None = None,
    model: MarkovRandomField | None = None,
    max_bytes: float | None = None,
) -> Dataset:
    """Data from a text file with a row for every case; columns separated by commas, semicolons, tabs or spaces.

    Parameters
    ----------
    path : path
        ``-`` is the standard input.
    header : bool, optional
        Whether the first row has the names of the columns. Without it, it has if it is the only one with text and has
        nothing but text, or if it holds the names of the model's variables; in doubt it is data.
    model : MarkovRandomField, optional
        As for :func:`fastmix.score`: columns are found by name where the file has names.
    max_bytes : float, optional
        Limit on the size of the content; as for model files.

    Raises
    ------
    FormatError
        If a row has another length than the first, or text stands in a file of numbers; with ``path:line``.
    """
    name = display_name(path)
    text = decode_text(read_bytes(path, max_bytes), name)
    rows, lines = _split(text, name)
    width = len(rows[0])
    for row, line in zip(rows, lines, strict=True):
        if len(row) != width:
            raise FormatError(f"{name}:{line}: every row must have {width} columns, as the first, got {len(row)}")
    names = None
    if header or (header is None and _has_names(rows, model)):
        names, rows, lines = rows[0], rows[1:], lines[1:]
        if len(set(names)) < len(names):
            raise FormatError(f"{name}:1: names of columns must all be different")
    if not rows:
        raise FormatError(f"{name}: there are no rows of data")
    if names is not None and model is not None and model.variable_names is not None:
        if sorted(names) != sorted(model.variable_names):
            odd = sorted(set(names) ^ set(model.variable_names))
            raise FormatError(f"{name}:1: columns must be the model's variables, got others: {', '.join(odd[:5])}")
        order = [names.index(variable) for variable in model.variable_names]
        rows = [[row[k] for k in order] for row in rows]
        names = list(model.variable_names)
    table = _numbers(rows, lines, name, categories=model is not None and model.state_names is not None)
    try:
        data = read_data(table, model=model, name=name)
    except ModelError as error:
        raise FormatError(str(error)) from None
    if names is not None and model is None:
        return Dataset(data.states, data.weights, data.num_states, data.num_rows, tuple(names), data.state_names)
    return data


def _split(text: str, name: str) -> tuple[list[list[str]], list[int]]:
    lines = [(k, line) for k, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if not lines:
        raise FormatError(f"{name}: the file is empty")
    mark = max(",;\t", key=lines[0][1].count)
    if mark not in lines[0][1]:
        rows = [line.split() for _, line in lines]
    else:
        rows = [[cell.strip() for cell in row] for row in csv.reader((line for _, line in lines), delimiter=mark)]
    if len(rows) != len(lines):
        raise FormatError(f"{name}: a quoted cell goes over several lines")
    return rows, [k for k, _ in lines]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _has_names(rows: list[list[str]], model: MarkovRandomField | None) -> bool:
    first = rows[0]
    if model is not None and model.variable_names is not None and sorted(first) == sorted(model.variable_names):
        return True
    if any(_is_number(cell) or cell.lower() in _GAPS for cell in first):
        return False
    return len(rows) > 1 and all(_is_number(cell) or cell.lower() in _GAPS for row in rows[1:] for cell in row)


def _numbers(rows: list[list[str]], lines: list[int], name: str, *, categories: bool) -> NDArray[Any]:
    """Rows as numbers, NaN where a value is missing; as text if columns hold text."""
    gaps = np.array([[cell.lower() in _GAPS for cell in row] for row in rows])
    cells = np.array(rows, dtype=object)
    if not categories:
        try:
            values = np.full(cells.shape, np.nan)
            values[~gaps] = cells[~gaps].astype(np.float64)
            return np.where(values == MISSING, np.nan, values)
        except ValueError:
            pass
        text = np.array([[not _is_number(cell) for cell in row] for row in rows]) & ~gaps
        shares = text.sum(axis=0) / np.maximum(1, (~gaps).sum(axis=0))
        # A column of numbers with a few words in it is a mistake, not a column of categories.
        if (odd := np.flatnonzero((shares > 0.0) & (shares < 0.1))).size:
            k = int(odd[0])
            row = int(np.flatnonzero(text[:, k])[0])
            raise FormatError(f"{name}:{lines[row]}: {cells[row, k]!r} stands in column {k}, which has numbers")
    cells[gaps] = None
    return cells
