"""Data for learning: tables of states with weights, from arrays, frames of categories and sparse matrices."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix._checks import as_array, as_float_array, as_list, as_names, as_state_counts, as_text, describe
from fastmix._memory import check_memory
from fastmix.errors import ModelError
from fastmix.model import MarkovRandomField, check_model

__all__ = [
    "MISSING", "Dataset", "RowError", "check_missing", "check_names", "check_observed", "column_label", "num_hidden",
    "read_data", "without_missing",
]  # fmt: skip


MISSING = -1
_MOST_CATEGORIES = 1000  # different values of a column; with more it is most likely a measured quantity
_HIDDEN = "hidden "  # and a number: the name of a hidden variable
_CELL_BYTES = 16.0  # of a value, while a table of numbers is read
_STATE_BYTES = 64.0  # of a state of a variable, in parameters and their copies
_HIDDEN_BYTES = 256.0  # of a hidden variable, in its name and states beside the rows
_MOST_DIGITS = 20  # of the number of a column: Python refuses to read thousands of them
_LARGEST_NUMBER = 2**63 - 1  # that stands for a missing value: tables hold none beyond it
_SHOWN = 5  # unseen states and columns that an error lists


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
    """

    states: NDArray[Any]
    weights: FloatArray
    num_states: IntArray
    num_rows: int
    variable_names: tuple[str, ...] | None = None
    state_names: tuple[tuple[str, ...], ...] | None = None

    def __repr__(self) -> str:
        missing = ", with missing values" if self.has_missing else ""
        return f"Dataset({self.num_rows:,} rows of {len(self.num_states)} variables{missing})"

    @property
    def has_missing(self) -> bool:
        """Whether some values are missing."""
        return bool(self.states.size) and int(self.states.min()) == MISSING

    def merged(self) -> tuple[Dataset, IntArray]:
        """The data with equal rows joined, their weights added up, and the new row (rows,) of every row.

        Examples
        --------
        >>> data, where = read_data([[0, 1], [1, 1], [0, 1], [0, 1]]).merged()
        >>> data.states.tolist(), data.weights.tolist(), where.tolist()
        ([[0, 1], [1, 1]], [0.75, 0.25], [0, 1, 0, 0])
        """
        rows = np.ascontiguousarray(self.states)
        keys = rows.view(f"V{rows.itemsize * rows.shape[1]}")[:, 0]  # rows as single values, which sort much faster
        _, first, where = np.unique(keys, return_index=True, return_inverse=True)
        weights = np.bincount(where, self.weights, len(first)).astype(np.float64)
        return replace(self, states=self.states[first], weights=weights), where

    def with_hidden(self, count: int) -> Dataset:
        """The data with columns of hidden binary variables, all missing; their names tell them from the others."""
        if not count:
            return self
        required = (_HIDDEN_BYTES + 2.0 * self.states.itemsize * len(self.states)) * count
        check_memory(required, f"hidden {count:,} beside {len(self.states):,} rows", "take fewer hidden variables")
        names = self.variable_names or tuple(str(i) for i in range(len(self.num_states)))
        return replace(
            self,
            states=np.hstack([self.states, np.full((len(self.states), count), MISSING, dtype=self.states.dtype)]),
            num_states=np.concatenate([self.num_states, np.full(count, 2)]),
            variable_names=(*names, *(f"{_HIDDEN}{k}" for k in range(count))),
            state_names=self.state_names and (*self.state_names, *(("0", "1"),) * count),
        )

    def column(self, word: Any) -> int:
        """The number of a column, by that or by its name; a :class:`ModelError` if there is none."""
        names = self.variable_names or ()
        if word in names:
            return names.index(word)
        if str(word).isdecimal() and len(str(word)) < 19 and int(word) < len(self.num_states):
            return int(word)
        raise ModelError(f"there is no column {word!r} in the data")

    def edge_numbers(self, edges: Any) -> Any:
        """Edges with numbers of columns where they have names, and anything else as it is."""
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
        return _blank(self.num_states, self.variable_names, self.state_names, edges)


def num_hidden(model: MarkovRandomField) -> int:
    """How many of a model's last variables are hidden, by their names: data for it need no columns for them."""
    names, count = model.variable_names or (), 0
    while count < len(names) and names[-1 - count].startswith(_HIDDEN):
        count += 1
    return count if names[len(names) - count :] == tuple(f"{_HIDDEN}{k}" for k in range(count)) else 0


def _blank(counts: IntArray, names: Any, labels: Any, edges: IntArray | None = None) -> MarkovRandomField:
    edges = np.zeros((0, 2), dtype=np.int64) if edges is None else edges
    size = int(np.prod(counts[edges], axis=1).sum()) if len(edges) else 0
    return MarkovRandomField(counts, np.zeros(int(counts.sum())), edges, np.zeros(size), 0.0, names, labels)


def read_data(
    data: Any,
    *,
    weights: ArrayLike | None = None,
    num_states: ArrayLike | None = None,
    model: MarkovRandomField | None = None,
    names: Sequence[str] | None = None,
    name: str = "data",
    missing: int | Literal["auto"] | None = "auto",
) -> Dataset:
    """A :class:`Dataset` from what users have.

    Parameters
    ----------
    data : array_like (rows, n), pandas or polars frame, scipy.sparse matrix, or Dataset
        Whole numbers from 0 are states; NaN, None, NA, masked entries and, in arrays, -1 are missing. Values of a
        frame, and text, are categories: ordered as a categorical column says, else sorted. Sparse matrices hold 0
        and 1. Numbers that are not whole are refused: they are no states.
    weights : array_like (rows,), optional
        Finite, none negative, some positive; without a model, rows of weight 0 are dropped.
    num_states : int or int array (n,), optional
        State counts of whole numbers; one more than the largest number of each column by default, and 2 at least.
    model : MarkovRandomField, optional
        The model that the data are for: columns of a frame are found by its variable names, categories by its state
        names, and an unseen state is an error.
    names : sequence of str, optional
        Of the columns of an array, in their order.
    name : str
        Of the argument, for messages.
    missing : int, "auto" or None
        The number that stands for a missing value. ``auto`` is -1 in arrays, and none in frames; an array with -1 but
        without any 0 is refused, as it may hold spins. With None no number is missing: those of an array with -1 are
        categories then.

    Raises
    ------
    ModelError
        If the data are ragged, not states, or do not fit the model.

    Examples
    --------
    >>> read_data([[0, 1, 2], [1, 0, float("nan")]]).states.tolist()
    [[0, 1, 2], [1, 0, -1]]
    >>> read_data([["yes", "red"], ["no", None]]).state_names
    (('no', 'yes'), ('red',))
    """
    name = as_text("name", name)
    marker = check_missing(missing)
    if model is not None:
        check_model(model)
    if names is not None:
        names = as_list("names", names, "a list of names of columns")
    if isinstance(data, Dataset):
        result = data
        if num_states is not None:
            raise ModelError(f"num_states must be left out for {name} that have their own")
        if model is not None and not np.array_equal(data.num_states, model.num_states):
            raise ModelError(f"{name} must have the state counts of the model, got others")
        for kind in ("variable_names", "state_names") if model is not None else ():
            own, wanted = getattr(data, kind), getattr(model, kind)
            if own is not None and wanted is not None and own != wanted:
                own, wanted = next((a, b) for a, b in zip(own, wanted, strict=True) if a != b)
                what = kind.replace("_", " ")
                raise ModelError(f"{name} must have the {what} of the model, {wanted!r}, got {own!r}: read them for it")
    else:
        hidden = 0 if model is None else num_hidden(model)
        if model is not None and hidden and _num_columns(data) == model.num_variables - hidden:
            n = model.num_variables - hidden
            own, labels = model.variable_names or (), model.state_names
            visible = _blank(model.num_states[:n], own[:n], None if labels is None else labels[:n])
            result = _read(data, num_states, visible, names, name, marker).with_hidden(hidden)
        else:
            result = _read(data, num_states, model, names, name, marker)
    rows = len(result.states)
    if weights is not None:
        array = as_float_array("weights", weights)
        if array.shape != (rows,):
            raise ModelError(f"weights must have shape ({rows},), one for each row of {name}, got shape {array.shape}")
        if not (np.isfinite(array).all() and (array >= 0).all() and array.any()):
            raise ModelError("weights must be finite, none negative and some positive")
        array = array / array.max()  # so that the sum is finite
        result = replace(result, weights=array / array.sum())
    if model is None:
        kept = np.flatnonzero(result.weights)
        if len(kept) < rows:
            result = replace(result, states=result.states[kept], weights=result.weights[kept])
        check_observed(result, name)
    return result


def check_missing(missing: Any) -> int | str | None:
    """The argument ``missing``: a whole number, ``auto`` or None."""
    if missing is None or (isinstance(missing, str) and missing == "auto"):
        return missing
    try:
        if isinstance(missing, bool | np.bool_):
            raise TypeError
        number = operator.index(missing)
        if not -_LARGEST_NUMBER <= number <= _LARGEST_NUMBER:
            raise OverflowError
    except Exception:  # of whatever objects there are
        raise ValueError(
            f"missing must be a whole number of 64 bits, 'auto' or None, got {describe(missing)}"
        ) from None
    return number


def without_missing(array: NDArray[Any], missing: int | str | None, name: str) -> NDArray[Any]:
    """Numbers with NaN where they stand for a missing value; text where negative numbers are categories."""
    if missing is None:
        if array.size and array.dtype.kind in "if" and array.min(initial=0, where=~np.isnan(array)) < 0:
            return _as_categories(array)
        return array
    number = MISSING if isinstance(missing, str) else missing
    gone = array == number
    if not gone.any():
        return array
    if missing == "auto" and not (array == 0).any():
        raise ModelError(
            f"{name} must tell what -1 is, got it in a table without any 0: number the states of spins from 0, as in "
            "(data + 1) // 2, or say missing=-1 (--missing -1) if these values are missing, or missing=None (--missing "
            "none) to learn -1 as a state"
        )
    return np.where(gone, np.nan, array.astype(np.float64))


def _as_categories(array: NDArray[Any]) -> NDArray[Any]:
    """Numbers as objects, None where one is missing."""
    result = array.astype(object)
    result[np.isnan(array)] = None
    return result


def _read(
    data: Any, num_states: ArrayLike | None, model: MarkovRandomField | None, names: Sequence[str] | None, name: str,
    missing: int | str | None,
) -> Dataset:  # fmt: skip
    columns = _frame_columns(data, name)
    if columns is not None:
        names = tuple(columns)
        if len(names) < len(data.columns):
            raise ModelError(f"{name} must have columns with different names")
        if model is not None and (model.variable_names is not None or len(names) != model.num_variables):
            wanted = model.variable_names or tuple(str(i) for i in range(model.num_variables))
            check_names(names, wanted, name)
            names = wanted  # where a model has no names columns are taken by position
        coded = [_code_column(columns[label], label, model, i, name, missing) for i, label in enumerate(names)]
    else:
        array = _as_table(data, name)
        _check_shape(array.shape[0], array.shape[1], model, name)
        if names is not None:
            names = as_names("names", names, array.shape[1], "column")
        elif model is not None:
            names = model.variable_names
        if array.dtype.kind in "iubf":
            array = without_missing(array, missing, name)
        if array.dtype.kind in "iubf":
            return _from_numbers(array, num_states, model, names, name)
        labels_of = range(array.shape[1]) if names is None else names
        coded = [_code_column(list(c), labels_of[i], model, i, name, missing) for i, c in enumerate(array.T)]
    if num_states is not None:
        raise ModelError(f"num_states must be left out for {name} of categories, whose states are their values")
    rows = _check_shape(len(coded[0][0]) if coded else 0, len(coded), model, name)
    states = np.empty((rows, len(coded)), dtype=np.int16)
    for i, (codes, _) in enumerate(coded):
        states[:, i] = codes
    labels = tuple(categories for _, categories in coded)
    # A column without any value is refused by the caller.
    return _finish(states, np.array([max(1, len(categories)) for categories in labels]), names, labels, model)


def _num_columns(data: Any) -> int:
    """Columns of a table, -1 where that is not clear."""
    shape = getattr(data, "shape", None)
    if shape is not None:
        return int(shape[1]) if len(shape) == 2 else -1
    return len(data[0]) if isinstance(data, Sequence) and len(data) and isinstance(data[0], Sequence) else -1


def _finish(
    states: NDArray[Any], counts: IntArray, names: Any, labels: Any, model: MarkovRandomField | None
) -> Dataset:
    """Rows of equal weight; counts and names are those of the model if there is one."""
    if model is not None:
        counts, names, labels = model.num_states, model.variable_names, model.state_names
    rows = len(states)
    return Dataset(states, np.full(rows, 1.0 / rows), counts, rows, None if names is None else tuple(names), labels)


def check_observed(data: Dataset, name: str = "data") -> None:
    """A :class:`ModelError` if a column has no value at all."""
    if (empty := np.flatnonzero((data.states == MISSING).all(axis=0))).size:
        label = column_label(data.variable_names, empty[0])
        raise ModelError(f"{name} must have a value in every column, got only missing ones in {label}")


def column_label(names: Sequence[str] | None, i: Any) -> str:
    """How messages name a column."""
    return f"column {int(i)}" if names is None else f"column {names[int(i)]!r}"


# -- frames ---------------------------------------------------------------------------------------------------------


def _frame_columns(data: Any, name: str) -> dict[str, Any] | None:
    """Columns of a pandas or polars frame by name; None for anything else."""
    root = type(data).__module__.split(".")[0]
    if root not in ("pandas", "polars"):
        return None
    if type(data).__name__ != "DataFrame":
        hint = ": collect() makes a frame of it" if type(data).__name__ == "LazyFrame" else ""
        raise ModelError(f"{name} must be a frame with a column for every variable, got {describe(type(data))}{hint}")
    return {str(label): data[label] for label in data.columns}


def check_names(names: Sequence[str], wanted: Sequence[str], name: str) -> None:
    """A :class:`ModelError` if columns are not a model's variables."""
    missing, extra = [v for v in wanted if v not in set(names)], [v for v in names if v not in set(wanted)]
    if missing or extra:
        parts = [f"no column for {_some(missing)}"] if missing else []
        parts += [f"columns that the model does not have: {_some(extra)}"] if extra else []
        raise ModelError(f"{name} must have the model's variables as columns, got {' and '.join(parts)}")


def _some(items: Sequence[Any]) -> str:
    text = ", ".join(repr(item) for item in items[:_SHOWN])
    return text + (f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else "")


def _code_column(
    column: Any, label: Any, model: MarkovRandomField | None, i: int, name: str, missing: int | str | None
) -> tuple[IntArray, tuple[str, ...]]:
    """Codes of one column of categories, -1 where a value is missing, and the names of its states."""
    values = list(column)
    number = missing if isinstance(missing, int) else None
    gaps = np.fromiter((_is_missing(value, number) for value in values), dtype=bool, count=len(values))
    if model is None and not _is_listed(column):
        _check_whole(values, gaps, label, name)
    texts = [None if gone else _text(value) for value, gone in zip(values, gaps, strict=True)]
    present = {text: value for text, value in zip(texts, values, strict=True) if text is not None}
    where = f"column {label!r}"
    if model is not None and model.num_variables > i:
        names = None if model.state_names is None else model.state_names[i]
        known = names or tuple(str(s) for s in range(int(model.num_states[i])))
    else:
        known = _categories(column, present)
        if len(known) > _MOST_CATEGORIES:
            raise ModelError(
                f"{name} must have at most {_MOST_CATEGORIES} categories in a column, got {len(known):,} in {where}; "
                "put a measured quantity into bins first"
            )
    codes = {text: k for k, text in enumerate(known)}
    if unseen := [text for text in present if text not in codes]:
        row = next(k for k, text in enumerate(texts) if text is not None and text not in codes)
        raise RowError(f"{name} has states that the model does not know in {where}: {_some(unseen)}", row)
    return np.array([MISSING if text is None else codes[text] for text in texts], dtype=np.int64), known


def _is_listed(column: Any) -> bool:
    """Whether a column says itself which categories there are."""
    return getattr(getattr(column, "dtype", None), "categories", None) is not None


def _check_whole(values: Sequence[Any], gaps: NDArray[np.bool_], label: Any, name: str) -> None:
    """A :class:`RowError` where a column has numbers that are not whole: these are measured, and no categories."""
    for row, (value, gone) in enumerate(zip(values, gaps.tolist(), strict=True)):
        if not gone and isinstance(value, float | np.floating) and not float(value).is_integer():
            rule = f"{name} must hold whole numbers or categories, got {value} in row {row}, column {label!r}"
            raise RowError(f"{rule}; put a measured quantity into bins first", row)


def _is_missing(value: Any, number: int | None = None) -> bool:
    """Whether a value is None, NaN, NaT or NA, or the number that stands for a missing one."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if number is not None and isinstance(value, int | float | np.number) and not isinstance(value, bool):
        return bool(value == number or np.isnan(value))
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def _text(value: Any) -> str:
    """The name of a state: whole numbers look the same whether or not a missing value made them floats."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _categories(column: Any, present: dict[str, Any]) -> tuple[str, ...]:
    """Categories that a categorical column lists itself, in its order, or those that are present, sorted."""
    dtype = getattr(column, "dtype", None)
    categories = getattr(dtype, "categories", None)
    if categories is not None and type(dtype).__name__ != "Categorical":  # of polars: those of all columns ever made
        return tuple(_text(value) for value in categories)
    try:
        return tuple(sorted(present, key=present.__getitem__))
    except TypeError:  # values of several types have no order of their own
        return tuple(sorted(present))


# -- arrays ---------------------------------------------------------------------------------------------------------


def _as_table(data: Any, name: str) -> NDArray[Any]:
    """An array (rows, n) of numbers or objects, NaN where a number is missing."""
    rule = "be a table of states with a row for every case and a column for every variable"
    if type(data).__module__.startswith("scipy.sparse"):
        if data.ndim != 2:
            raise ModelError(f"{name} must {rule}, got shape {data.shape}")
        data = data.tocsr()  # entries that are given twice are added up
        values = data.data
        if not np.isin(values, (0, 1)).all():
            raise ModelError(f"{name} must hold 0 and 1 as a sparse matrix, got {values[~np.isin(values, (0, 1))][0]}")
        check_memory(float(np.prod(data.shape, dtype=float)), f"the table of {name}", "learn from fewer rows")
        return np.asarray(data.astype(bool).toarray())
    if isinstance(data, np.ma.MaskedArray):
        kind = np.float64 if data.dtype.kind in "iubf" else object
        data = np.where(np.ma.getmaskarray(data), np.nan, np.ma.getdata(data).astype(kind))
    if isinstance(data, str | PathLike):
        raise ModelError(f"{name} must be a table, got a path: fastmix.learning.read_table reads files")
    array = as_array(name, data, rule)
    if array.ndim != 2:
        raise ModelError(f"{name} must {rule}, got shape {array.shape}")
    if array.dtype.kind in "mMcV":
        raise ModelError(f"{name} must hold states, got {array.dtype}")
    check_memory(_CELL_BYTES * array.size, f"the {array.size:,} values of {name}", "learn from fewer rows or columns")
    if array.dtype.kind == "O" or (array.dtype.kind in "US" and not isinstance(data, np.ndarray)):
        # Lists with None, or with text beside numbers, which NumPy makes text all over.
        array = np.array([list(row) for row in data], dtype=object).reshape(array.shape)
        missing = np.frompyfunc(_is_missing, 1, 1)(array).astype(bool) if array.size else np.zeros(array.shape, bool)
        rest = array[~missing]
        if all(isinstance(value, bool | int | float | np.number | np.bool_) for value in rest):
            numbers = np.full(array.shape, np.nan)
            numbers[~missing] = rest.astype(np.float64)
            return numbers
    return array


def _from_numbers(
    array: NDArray[Any],
    num_states: ArrayLike | None,
    model: MarkovRandomField | None,
    names: Sequence[str] | None,
    name: str,
) -> Dataset:
    n = array.shape[1]
    if array.dtype == np.float16:
        array = array.astype(np.float32)  # which can be compared with large numbers
    present = ~np.isnan(array) if array.dtype.kind == "f" else np.ones(array.shape, dtype=bool)
    whole = (array == np.floor(array)) & (array < 2.0**31) if array.dtype.kind == "f" else True
    if (bad := present & ~(whole & (array >= 0))).any():
        row, i = np.argwhere(bad)[0]
        raise RowError(
            f"{name} must hold whole numbers from 0, or NaN for a missing value, got {array[row, i]} in row "
            f"{row}, {column_label(names, i)}; put a measured quantity into bins first",
            row,
        )
    highest = np.where(present, array, 0).max(axis=0, initial=0).astype(np.int64)
    if model is not None:
        counts = model.num_states
    elif num_states is not None:
        given = as_array("num_states", num_states, "be a whole number, or one for each column")
        if given.ndim > 0 and given.shape != (n,):
            raise ModelError(f"num_states must be one number or {n}, one for each column, got shape {given.shape}")
        counts = as_state_counts(np.broadcast_to(given, (n,)))
        required = _STATE_BYTES * float(counts.sum(dtype=np.float64))
        check_memory(required, f"num_states of up to {counts.max():,}", "number the states that occur from 0")
    else:
        counts = np.maximum(2, highest + 1)
        if counts.max(initial=0) > _MOST_CATEGORIES:
            i = int(counts.argmax())
            raise ModelError(
                f"{name} must have states below {_MOST_CATEGORIES}, got {highest[i]} in {column_label(names, i)}; "
                "number the values from 0, or put a measured quantity into bins first"
            )
    if (over := np.flatnonzero(highest >= counts)).size:
        i = int(over[0])
        row = int(np.flatnonzero(present[:, i] & (array[:, i] >= counts[i]))[0])
        rule = f"{name} must hold states below {counts[i]} in {column_label(names, i)}"
        raise RowError(f"{rule}, got {array[row, i]:g} in row {row}", row)
    states = np.where(present, array, MISSING).astype(np.int16 if counts.max(initial=0) < 2**15 else np.int32)
    return _finish(states, counts, names, None, model)


def _check_shape(rows: int, n: int, model: MarkovRandomField | None, name: str) -> int:
    if not n or not rows:
        raise ModelError(f"{name} must have at least one row and one column, got shape ({rows}, {n})")
    if model is not None and n != model.num_variables:
        raise ModelError(f"{name} must have a column for each of the {model.num_variables} variables, got {n}")
    return rows
