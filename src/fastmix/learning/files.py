"""Tables of states in text files (CSV), also compressed with gzip or xz."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix._checks import check_count, check_flag, describe
from fastmix._memory import check_memory
from fastmix.errors import FormatError, ModelError
from fastmix.io.files import PathLike, decode_text, display_name, read_bytes
from fastmix.learning.categories import check_names
from fastmix.learning.data import check_missing, read_data, without_missing
from fastmix.learning.dataset import Dataset, RowError, column_label, num_hidden
from fastmix.learning.tuning import BYTES_PER_TEXT_CELL
from fastmix.model import MarkovRandomField, check_model

__all__ = ["is_data", "read_edges", "read_table"]

#: Cells that stand for missing values, in any case.
GAPS = ("", "?", "na", "nan", "none", "null")
#: All characters that a file of whole numbers needs.
PLAIN_CHARACTERS = b"0123456789-,;\t \r\n"


def read_table(
    path: PathLike,
    *,
    header: bool | None = None,
    weights: str | int | None = None,
    num_states: ArrayLike | None = None,
    model: MarkovRandomField | None = None,
    max_bytes: float | None = None,
    missing: int | Literal["auto"] | None = "auto",
    some_columns: bool = False,
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
    some_columns : bool
        Variables of the model may be without a column: they are missing in all rows.

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
    marker = check_missing(missing)
    table = _TextTable(name, read_bytes(path, max_bytes), header, model)
    heaviness = None if weights is None else table.take_weights(weights)
    if model is not None and (model.variable_names is not None or some_columns):
        table.take_variables(model, model.names_of_variables(), some=check_flag("some_columns", some_columns))
    try:
        cells = table.values(marker)
        return read_data(
            cells, weights=heaviness, num_states=num_states, model=model, names=table.names, name="the table",
            missing=missing,
        )  # fmt: skip
    except RowError as error:
        text = re.sub(r" in row \d+(, )?", lambda found: " in " if found[1] else "", str(error), count=1)
        raise FormatError(f"{table.where(error.row)}: {text}{table.hint(error.row)}") from None
    except ModelError as error:
        if str(error).startswith("num_states"):  # which is not in the file
            raise ValueError(str(error)) from None
        raise FormatError(f"{table.where(0)}: {error}") from None


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


class _TextTable:
    """The cells of a text file, the names of its columns, if there are any, and where every row is in the file.

    ``cells`` are numbers where the file has nothing but whole ones, else text.
    """

    def __init__(self, name: str, content: bytes, header: bool | None, model: MarkovRandomField | None) -> None:
        self.name = name
        self.model = model
        self.names: list[str] | None = None
        self._content = content
        self._lines: list[int] | None = None
        self._header = header
        numbers = None if header else _whole_numbers(content)
        if numbers is not None:
            self.cells = numbers
        else:
            self.names, self.cells, self._lines = _cells(decode_text(content, name), header, model, name)
        self._is_named = self.names is not None
        self._all_cells = self.cells

    def where(self, row: int) -> str:
        """The file and the line of a row."""
        lines = _line_numbers(self._content) if self._lines is None else self._lines
        return f"{self.name}:{lines[row]}"

    def hint(self, row: int) -> str:
        """What to do where the first row may have been names, of which none is a value of the table."""
        cells = self._all_cells
        if row or self._header is not None or self._is_named or self._lines is None or any(map(is_data, cells[0])):
            return ""
        again = (cells[1:] == cells[0]).any()
        return "" if again else "; if that row has the names of the columns, say so: --header (header=True)"

    def take_weights(self, weights: str) -> NDArray[np.float64]:
        """Take the column of weights, by its name or number, out of the table."""
        column = _column(weights, self.names, self.cells.shape[1], f"{self.name}:1")
        for row, cell in enumerate(self.cells[:, column]):
            if not _is_number(str(cell)) or not 0.0 <= float(cell) < np.inf:
                raise FormatError(f"{self.where(row)}: a weight must be a number of at least 0, got {str(cell)!r}")
        taken: NDArray[np.float64] = self.cells[:, column].astype(np.float64)
        if self.cells.shape[1] == 1:
            raise FormatError(f"{self.name}:1: there must be a column beside that of the weights, got it alone")
        self.cells = np.delete(self.cells, column, axis=1)
        if self.names is not None:
            self.names = self.names[:column] + self.names[column + 1 :]
        return taken

    def take_variables(self, model: MarkovRandomField, wanted: Sequence[str], *, some: bool = False) -> None:
        """Keep the columns of a model's variables, in its order; hidden ones may be left out of the file.

        With ``some`` all may be: empty columns take their places.
        """
        if self.names is None:
            return
        if some:
            absent = [variable for variable in wanted if variable not in self.names]
            gaps = np.full((len(self.cells), len(absent)), "", dtype=object)
            self.cells = np.hstack([self.cells.astype(object), gaps])
            self.names = [*self.names, *absent]
        hidden = num_hidden(model)
        if hidden and not set(wanted[-hidden:]) & set(self.names):
            wanted = wanted[:-hidden]
        try:
            check_names(self.names, wanted, "the table")
        except ModelError as error:
            raise FormatError(f"{self.name}:1: {error}") from None
        self.cells = self.cells[:, [self.names.index(variable) for variable in wanted]]
        self.names = list(wanted)

    def values(self, missing: int | str | None) -> NDArray[Any]:
        """The cells as numbers, or as text where columns hold text or the model has names for its states."""
        by_name = self.model is not None and self.model.state_names is not None
        cells = self.cells
        if cells.dtype == object:
            cells = self._to_numbers(cells, categories=by_name)
        if cells.dtype == object or not by_name:
            return cells
        numbers = without_missing(cells, missing, "the table")
        texts: NDArray[Any] = cells.astype(str).astype(object)
        texts[numbers != cells] = None
        return texts

    def _to_numbers(self, cells: NDArray[Any], *, categories: bool) -> NDArray[Any]:
        """Cells as numbers, NaN where a value is missing; as text if columns hold text."""
        gaps = np.array([[cell.lower() in GAPS for cell in row] for row in cells])
        if not categories:
            try:
                values = np.full(cells.shape, np.nan)
                values[~gaps] = cells[~gaps].astype(np.float64)
                return values
            except ValueError:
                self._check_mixed(cells, gaps)
        cells = cells.copy()
        cells[gaps] = None
        return cells

    def _check_mixed(self, cells: NDArray[Any], gaps: NDArray[np.bool_]) -> None:
        """A :class:`FormatError` where text stands among numbers.

        That is a mistake, unless there is so much of it that it looks like a column of categories.
        """
        text = np.array([[not _is_number(cell) for cell in row] for row in cells]) & ~gaps
        mixed = text.any(axis=0) & (2 * text.sum(axis=0) <= (~gaps).sum(axis=0))
        if mixed.any():
            row, k = np.argwhere(text & mixed)[0]
            rule = f"{cells[row, k]!r} stands in {column_label(self.names, k)}, which has numbers"
            raise FormatError(f"{self.where(row)}: {rule}{self.hint(row)}")


def _whole_numbers(content: bytes) -> NDArray[Any] | None:
    """A file of nothing but whole numbers, the quick way; None for any other, and for one with mistakes."""
    if content.translate(None, PLAIN_CHARACTERS) or not content.strip():
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
    """Numbers of the lines that are not empty."""
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
        names = rows[0]
        rows = rows[1:]
        lines = lines[1:]
        if len(set(names)) < len(names):
            raise FormatError(f"{name}:1: names of columns must all be different")
    if not rows:
        raise FormatError(f"{name}: there are no rows of data")
    return names, np.array(rows, dtype=object).reshape(len(rows), width), lines


def _split(text: str, name: str) -> tuple[list[list[str]], list[int]]:
    """Cells of all lines that are not empty, and the numbers of these lines."""
    lines = [(k, line) for k, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if not lines:
        raise FormatError(f"{name}: the file is empty")
    mark = max(",;\t", key=lines[0][1].count)
    cells = len(lines) * (1 + lines[0][1].count(mark))
    check_memory(
        BYTES_PER_TEXT_CELL * cells, f"the {cells:,} cells of {name}", "number the states from 0, or leave out rows"
    )
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
    """Whether a cell can be read as a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def is_data(cell: str) -> bool:
    """Whether a cell is a number or a gap, which no column is called."""
    return _is_number(cell) or cell.lower() in GAPS


def _has_names(rows: list[list[str]], model: MarkovRandomField | None) -> bool:
    """Whether the first row has the names of the columns: those of the model, or the only text of the file."""
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
    """The number of the column of weights, by its name or number."""
    if names is not None and weights in names:
        return names.index(weights)
    if weights.isdecimal() and len(weights) < 19 and int(weights) < width:
        return int(weights)
    known = f"the numbers below {width}" if names is None else ", ".join(names[:5])
    raise FormatError(f"{where}: there is no column {describe(weights)} with weights; columns are {known}")
