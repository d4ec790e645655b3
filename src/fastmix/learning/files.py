"""Tables of states in text files (CSV), also compressed with gzip or xz."""

from __future__ import annotations

import csv
import io
import re
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix._checks import check_count, check_flag, describe
from fastmix._memory import check_memory
from fastmix.errors import FormatError, ModelError
from fastmix.io.files import PathLike, decode_text, display_name, read_bytes
from fastmix.learning.data import (
    Dataset,
    RowError,
    check_missing,
    check_names,
    column_label,
    num_hidden,
    read_data,
    without_missing,
)
from fastmix.model import MarkovRandomField, check_model

__all__ = ["is_data", "read_edges", "read_table"]

_GAPS = ("", "?", "na", "nan", "none", "null")  # missing values, in any case
_PLAIN = b"0123456789-,;\t \r\n"  # all that a file of whole numbers needs
_CELL_BYTES = 80.0  # of a cell as a text in a list


def read_table(
    path: PathLike,
    *,
    header: bool | None = None,
    weights: str | int | None = None,
    num_states: ArrayLike | None = None,
    model: MarkovRandomField | None = None,
    max_bytes: float | None = None,
    missing: int | Literal["auto"] | None = "auto",
) -> Dataset:
    r"""Data from a text file with a row for every case; columns separated by commas, semicolons, tabs or spaces.

    A column that holds nothing but whole numbers from 0 (and gaps) has these states, unless another column has text:
    then all values are categories. Empty cells, ``?``, ``NA``, ``NaN``, ``None``, ``null`` and, among numbers, -1 are
    missing values.

    Parameters
    ----------
    path : path
        ``-`` is the standard input.
    header : bool, optional
        Whether the first row has the names of the columns. Without it, it has if it is the only one with text and has
        nothing but text, or if it holds the names of the model's variables; in doubt it is data.
    weights : str or int, optional
        The column with the weights of the rows, by its name or its number from 0; it is no variable.
    num_states : int or int array (n,), optional
        As for :func:`fastmix.learn`.
    model : MarkovRandomField, optional
        As for :func:`fastmix.score`: columns are found by name where the file has names.
    max_bytes : float, optional
        Limit on the size of the content; as for model files.
    missing : int, "auto" or None
        The number that stands for a missing value. ``auto`` is -1; a table of numbers with -1 but without any 0 is
        refused then, as it may hold spins. With None those of a table with -1 are categories.

    Raises
    ------
    FormatError
        If a row has another length than the first, text stands in a column of numbers, or the columns are not the
        model's; with ``path:line``.

    Examples
    --------
    >>> import tempfile, os
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "survey.csv")
    ...     with open(path, "w") as file:
    ...         _ = file.write("rain,wet\n1,1\n0,?\n")
    ...     data = read_table(path)
    >>> data.variable_names, data.states.tolist()
    (('rain', 'wet'), [[1, 1], [0, -1]])
    """
    name = display_name(path)
    header = None if header is None else check_flag("header", header)
    if weights is not None and not isinstance(weights, str):
        weights = str(check_count("weights", weights, least=0))
    if model is not None:
        check_model(model)
    check_missing(missing)
    content = read_bytes(path, max_bytes)
    table: NDArray[Any] | None = None if header else _whole_numbers(content)
    if table is not None:
        names, lines = None, None
    else:
        names, table, lines = _cells(decode_text(content, name), header, model, name)

    def where(row: int) -> str:
        at = _line_numbers(content)[row] if lines is None else lines[row]
        return f"{name}:{at}"

    cells, named = table, names is not None

    def hint(row: int) -> str:
        """What to do where the first row may have been names, of which none is a value of the table."""
        if row or header is not None or named or lines is None or any(map(is_data, cells[0])):
            return ""
        again = (cells[1:] == cells[0]).any()
        return "" if again else "; if that row has the names of the columns, say so: --header (header=True)"

    heaviness = None
    if weights is not None:
        column = _column(weights, names, table.shape[1], f"{name}:1")
        for row, cell in enumerate(table[:, column]):
            if not _is_number(str(cell)) or not 0.0 <= float(cell) < np.inf:
                raise FormatError(f"{where(row)}: a weight must be a number of at least 0, got {str(cell)!r}")
        heaviness = table[:, column].astype(np.float64)
        if table.shape[1] == 1:
            raise FormatError(f"{name}:1: there must be a column beside that of the weights, got it alone")
        table = np.delete(table, column, axis=1)
        names = names if names is None else names[:column] + names[column + 1 :]
    if names is not None and model is not None and model.variable_names is not None:
        wanted, hidden = model.variable_names, num_hidden(model)
        if hidden and not set(wanted[-hidden:]) & set(names):
            wanted = wanted[:-hidden]
        try:
            check_names(names, wanted, "the table")
        except ModelError as error:
            raise FormatError(f"{name}:1: {error}") from None
        table, names = table[:, [names.index(variable) for variable in wanted]], list(wanted)
    if table.dtype == object:
        table = _numbers(table, where, hint, names, categories=model is not None and model.state_names is not None)
    try:
        if table.dtype != object and model is not None and model.state_names is not None:
            numbers = without_missing(table, check_missing(missing), "the table")
            texts = table.astype(str).astype(object)
            texts[numbers != table] = None
            table = texts
        return read_data(
            table, weights=heaviness, num_states=num_states, model=model, names=names, name="the table", missing=missing
        )
    except RowError as error:
        text = re.sub(r" in row \d+(, )?", lambda found: " in " if found[1] else "", str(error), count=1)
        raise FormatError(f"{where(error.row)}: {text}{hint(error.row)}") from None
    except ModelError as error:
        if str(error).startswith("num_states"):  # which is not in the file
            raise ValueError(str(error)) from None
        raise FormatError(f"{where(0)}: {error}") from None


def read_edges(path: PathLike, *, table: Dataset) -> NDArray[np.int64]:
    """Pairs (m, 2) of columns of a table from a text file with a pair per line, by name or by number from 0.

    Raises
    ------
    FormatError
        If a line has not two columns, or one that the table does not have; with ``path:line``.
    """
    name = display_name(path)
    rows, lines = _split(decode_text(read_bytes(path), name), name)
    pairs = np.empty((len(rows), 2), dtype=np.int64)
    for k, (row, line) in enumerate(zip(rows, lines, strict=True)):
        if len(row) != 2:
            raise FormatError(f"{name}:{line}: an edge must have two columns, got {len(row)}")
        try:
            pairs[k] = [table.column(word) for word in row]
        except ModelError as error:
            raise FormatError(f"{name}:{line}: {error}") from None
        if pairs[k, 0] == pairs[k, 1]:
            raise FormatError(f"{name}:{line}: an edge must join two columns, got {row[0]!r} twice")
    return pairs


def _whole_numbers(content: bytes) -> NDArray[Any] | None:
    """A file of nothing but whole numbers, the quick way; None for any other, and for one with mistakes."""
    if content.translate(None, _PLAIN) or not content.strip():
        return None
    start = content.lstrip()
    mark = max(",;\t", key=start[: start.find(b"\n") if b"\n" in start else None].decode().count)
    try:
        table = np.loadtxt(
            io.BytesIO(content), dtype=np.int32, delimiter=mark if mark.encode() in start else None, ndmin=2
        )
    except (ValueError, UserWarning):
        return None
    return table if table.size else None


def _line_numbers(content: bytes) -> list[int]:
    return [k for k, line in enumerate(content.splitlines(), start=1) if line.strip()]


def _cells(
    text: str, header: bool | None, model: MarkovRandomField | None, name: str
) -> tuple[list[str] | None, NDArray[Any], list[int]]:
    """Names of the columns, if there are any, the rows as text, and the line of every row."""
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
    return names, np.array(rows, dtype=object).reshape(len(rows), width), lines


def _split(text: str, name: str) -> tuple[list[list[str]], list[int]]:
    lines = [(k, line) for k, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if not lines:
        raise FormatError(f"{name}: the file is empty")
    mark = max(",;\t", key=lines[0][1].count)
    cells = len(lines) * (1 + lines[0][1].count(mark))
    check_memory(_CELL_BYTES * cells, f"the {cells:,} cells of {name}", "number the states from 0, or leave out rows")
    if mark in lines[0][1] or '"' in text:
        mark = mark if mark in lines[0][1] else " "
        reader = csv.reader((line.strip(" ") for _, line in lines), delimiter=mark, skipinitialspace=True)
        try:
            rows = [[cell.strip() for cell in row] for row in reader]
        except csv.Error as error:  # a cell that is far too long, or a quote that is never closed
            raise FormatError(f"{name}:{lines[min(reader.line_num, len(lines)) - 1][0]}: {error}") from None
    else:
        rows = [line.split() for _, line in lines]
    if len(rows) != len(lines):
        raise FormatError(f"{name}: a quoted cell goes over several lines")
    return rows, [k for k, _ in lines]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def is_data(cell: str) -> bool:
    """Whether a cell is a number or a gap, which no column is called."""
    return _is_number(cell) or cell.lower() in _GAPS


def _has_names(rows: list[list[str]], model: MarkovRandomField | None) -> bool:
    first = rows[0]
    if model is not None and model.variable_names is not None and not all(map(_is_number, first)):
        visible = model.variable_names[: model.num_variables - num_hidden(model)]
        if set(first) >= set(visible):
            return True
    if any(map(is_data, first)):
        return False
    numbers = any(_is_number(cell) for row in rows[1:] for cell in row)  # gaps alone could be below a row of data
    return numbers and all(is_data(cell) for row in rows[1:] for cell in row)


def _column(weights: str, names: list[str] | None, width: int, where: str) -> int:
    if names is not None and weights in names:
        return names.index(weights)
    if weights.isdecimal() and len(weights) < 19 and int(weights) < width:
        return int(weights)
    known = f"the numbers below {width}" if names is None else ", ".join(names[:5])
    raise FormatError(f"{where}: there is no column {describe(weights)} with weights; columns are {known}")


def _numbers(cells: NDArray[Any], where: Any, hint: Any, names: list[str] | None, *, categories: bool) -> NDArray[Any]:
    """Cells as numbers, NaN where a value is missing; as text if columns hold text."""
    gaps = np.array([[cell.lower() in _GAPS for cell in row] for row in cells])
    if not categories:
        try:
            values = np.full(cells.shape, np.nan)
            values[~gaps] = cells[~gaps].astype(np.float64)
            return values
        except ValueError:
            pass
        text = np.array([[not _is_number(cell) for cell in row] for row in cells]) & ~gaps
        # Text among numbers is a mistake, unless there is so much of it that it looks like a column of categories.
        mixed = text.any(axis=0) & (2 * text.sum(axis=0) <= (~gaps).sum(axis=0))
        if mixed.any():
            row, k = np.argwhere(text & mixed)[0]
            rule = f"{cells[row, k]!r} stands in {column_label(names, k)}, which has numbers"
            raise FormatError(f"{where(row)}: {rule}{hint(row)}")
    cells = cells.copy()
    cells[gaps] = None
    return cells
