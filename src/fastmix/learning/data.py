"""``read_data``: a :class:`Dataset` from arrays, frames of categories, sparse matrices and lists."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix._arrays import BoolArray, FloatArray, IntArray
from fastmix._checks import as_array, as_float_array, as_list, as_names, as_state_counts, as_text, describe
from fastmix._memory import check_memory
from fastmix.errors import ModelError
from fastmix.learning.categories import check_names, code_column, frame_columns, is_missing
from fastmix.learning.dataset import MISSING, Dataset, RowError, blank_model, check_observed, column_label, num_hidden
from fastmix.learning.tuning import BYTES_PER_CELL, BYTES_PER_STATE, MAX_CATEGORIES
from fastmix.model import MarkovRandomField, check_model

__all__ = ["check_missing", "read_data", "without_missing"]


#: The largest number that can stand for a missing value: tables hold none beyond it.
LARGEST_NUMBER = 2**63 - 1


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
        if num_states is not None:
            raise ModelError(f"num_states must be left out for {name} that have their own")
        result = _with_hidden_of(data, model)
        _check_fits(result, model, name)
    else:
        reader = _Reader(name, model, names, marker)
        result = reader.read(data, num_states)
    if weights is not None:
        result = replace(result, weights=_shares_of(weights, len(result.states), name))
    if model is None:
        kept = np.flatnonzero(result.weights)
        if len(kept) < len(result.states):
            result = replace(result, states=result.states[kept], weights=result.weights[kept])
        check_observed(result, name)
    return result


def _with_hidden_of(data: Dataset, model: MarkovRandomField | None) -> Dataset:
    """The data with columns for the hidden variables of a model, all missing, if they have none yet."""
    hidden = 0 if model is None else num_hidden(model)
    if model is None or not hidden or data.num_hidden or len(data.num_states) != model.num_variables - hidden:
        return data
    wider = data.with_hidden(hidden)
    counts = np.concatenate([data.num_states, model.num_states[-hidden:]])  # hidden variables may have many states
    labels = None if data.state_names is None or model.state_names is None else model.state_names[-hidden:]
    if labels is not None and data.state_names is not None:
        labels = (*data.state_names, *labels)
    return replace(wider, num_states=counts, state_names=labels)


def _check_fits(data: Dataset, model: MarkovRandomField | None, name: str) -> None:
    """A :class:`ModelError` if a dataset has other state counts or names than a model."""
    if model is None:
        return
    if not np.array_equal(data.num_states, model.num_states):
        raise ModelError(f"{name} must have the state counts of the model, got others")
    for kind in ("variable_names", "state_names"):
        own = getattr(data, kind)
        wanted = getattr(model, kind)
        if own is not None and wanted is not None and own != wanted:
            found, expected = next((a, b) for a, b in zip(own, wanted, strict=True) if a != b)
            what = kind.replace("_", " ")
            raise ModelError(f"{name} must have the {what} of the model, {expected!r}, got {found!r}: read them for it")


def _shares_of(weights: ArrayLike, num_rows: int, name: str) -> FloatArray:
    """Weights of rows that add up to 1, from those of a user."""
    array = as_float_array("weights", weights)
    if array.shape != (num_rows,):
        raise ModelError(f"weights must have shape ({num_rows},), one for each row of {name}, got shape {array.shape}")
    if not (np.isfinite(array).all() and (array >= 0).all() and array.any()):
        raise ModelError("weights must be finite, none negative and some positive")
    array = array / array.max()  # so that the sum is finite
    shares: FloatArray = array / array.sum()
    return shares


# -- missing values ---------------------------------------------------------------------------------------------------


def check_missing(missing: Any) -> int | str | None:
    """The argument ``missing``: a whole number, ``auto`` or None."""
    if missing is None or (isinstance(missing, str) and missing == "auto"):
        return missing
    try:
        if isinstance(missing, bool | np.bool_):
            raise TypeError
        number = operator.index(missing)
        if not -LARGEST_NUMBER <= number <= LARGEST_NUMBER:
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


# -- tables -----------------------------------------------------------------------------------------------------------


class _Reader:
    """What is known about a table that is read: the name of the argument, the model that it is for, names of columns.

    ``missing`` is the number that stands for a missing value, ``auto`` or None.
    """

    def __init__(
        self, name: str, model: MarkovRandomField | None, names: Sequence[str] | None, missing: int | str | None
    ) -> None:
        self.name = name
        self.model = model
        self.names = names
        self.missing = missing

    def read(self, data: Any, num_states: ArrayLike | None) -> Dataset:
        """The rows of a table, whose hidden variables may be left out."""
        model = self.model
        hidden = 0 if model is None else num_hidden(model)
        if model is None or not hidden or _num_columns(data) != model.num_variables - hidden:
            return self._read(data, num_states)
        n = model.num_variables - hidden
        labels = None if model.state_names is None else model.state_names[:n]
        visible = blank_model(model.num_states[:n], (model.variable_names or ())[:n], labels)
        return _with_hidden_of(_Reader(self.name, visible, self.names, self.missing)._read(data, num_states), model)

    def _read(self, data: Any, num_states: ArrayLike | None) -> Dataset:
        """The rows of a table with a column for every variable."""
        columns = frame_columns(data, self.name)
        if columns is not None:
            coded = self._code_frame(columns, len(data.columns))
        else:
            array = _as_table(data, self.name)
            self._check_shape(*array.shape)
            if self.names is not None:
                self.names = as_names("names", self.names, array.shape[1], "column")
            elif self.model is not None:
                self.names = self.model.variable_names
            if array.dtype.kind in "iubf":
                array = without_missing(array, self.missing, self.name)
            if array.dtype.kind in "iubf":
                return self._from_numbers(array, num_states)
            labels = range(array.shape[1]) if self.names is None else self.names
            coded = [
                code_column(list(column), labels[i], self.model, i, self.name, self.missing)
                for i, column in enumerate(array.T)
            ]
        if num_states is not None:
            raise ModelError(
                f"num_states must be left out for {self.name} of categories, whose states are their values"
            )
        return self._from_codes(coded)

    def _code_frame(self, columns: dict[str, Any], num_columns: int) -> list[tuple[IntArray, tuple[str, ...]]]:
        """Codes and names of states of the columns of a frame, in the order of the model if there is one."""
        names: Sequence[str] = tuple(columns)
        model = self.model
        if len(names) < num_columns:
            raise ModelError(f"{self.name} must have columns with different names")
        if model is not None and (model.variable_names is not None or len(names) != model.num_variables):
            wanted = model.variable_names or tuple(str(i) for i in range(model.num_variables))
            check_names(names, wanted, self.name)
            names = wanted  # where a model has no names columns are taken by position
        self.names = names
        return [code_column(columns[label], label, model, i, self.name, self.missing) for i, label in enumerate(names)]

    def _from_codes(self, coded: Sequence[tuple[IntArray, tuple[str, ...]]]) -> Dataset:
        """The rows of columns of categories."""
        rows = len(coded[0][0]) if coded else 0
        self._check_shape(rows, len(coded))
        states = np.empty((rows, len(coded)), dtype=np.int16)
        for i, (codes, _) in enumerate(coded):
            states[:, i] = codes
        labels = tuple(categories for _, categories in coded)
        # A column without any value is refused by the caller.
        return self._finish(states, np.array([max(1, len(categories)) for categories in labels]), labels)

    def _from_numbers(self, array: NDArray[Any], num_states: ArrayLike | None) -> Dataset:
        """The rows of a table of numbers, NaN where one is missing."""
        if array.dtype == np.float16:
            array = array.astype(np.float32)  # which can be compared with large numbers
        present = self._check_whole(array)
        highest = np.where(present, array, 0).max(axis=0, initial=0).astype(np.int64)
        counts = self._state_counts(highest, num_states)
        over = np.flatnonzero(highest >= counts)
        if over.size:
            i = int(over[0])
            row = int(np.flatnonzero(present[:, i] & (array[:, i] >= counts[i]))[0])
            rule = f"{self.name} must hold states below {counts[i]} in {column_label(self.names, i)}"
            raise RowError(f"{rule}, got {array[row, i]:g} in row {row}", row)
        kind = np.int16 if counts.max(initial=0) < 2**15 else np.int32
        return self._finish(np.where(present, array, MISSING).astype(kind), counts, None)

    def _check_whole(self, array: NDArray[Any]) -> BoolArray:
        """Where a table has values, all of which must be whole numbers from 0."""
        if array.dtype.kind == "f":
            present = ~np.isnan(array)
            good = (array == np.floor(array)) & (array < 2.0**31) & (array >= 0)
        else:
            present = np.ones(array.shape, dtype=bool)
            good = array >= 0
        bad = present & ~good
        if bad.any():
            row, i = np.argwhere(bad)[0]
            raise RowError(
                f"{self.name} must hold whole numbers from 0, or NaN for a missing value, got {array[row, i]} in row "
                f"{row}, {column_label(self.names, i)}; put a measured quantity into bins first",
                row,
            )
        return present

    def _state_counts(self, highest: IntArray, num_states: ArrayLike | None) -> IntArray:
        """State counts of the columns: those of the model, as given, or by the highest states (n,)."""
        n = len(highest)
        if self.model is not None:
            return self.model.num_states
        if num_states is not None:
            given = as_array("num_states", num_states, "be a whole number, or one for each column")
            if given.ndim > 0 and given.shape != (n,):
                raise ModelError(f"num_states must be one number or {n}, one for each column, got shape {given.shape}")
            counts = as_state_counts(np.broadcast_to(given, (n,)))
            required = BYTES_PER_STATE * float(counts.sum(dtype=np.float64))
            check_memory(required, f"num_states of up to {counts.max():,}", "number the states that occur from 0")
            return counts
        counts = np.maximum(2, highest + 1)
        if counts.max(initial=0) > MAX_CATEGORIES:
            i = int(counts.argmax())
            raise ModelError(
                f"{self.name} must have states below {MAX_CATEGORIES}, got {highest[i]} in "
                f"{column_label(self.names, i)}; number the values from 0, or put a measured quantity into bins first"
            )
        return counts

    def _check_shape(self, rows: int, n: int) -> None:
        """A :class:`ModelError` if a table is empty, or has not a column for every variable of the model."""
        if not n or not rows:
            raise ModelError(f"{self.name} must have at least one row and one column, got shape ({rows}, {n})")
        if self.model is not None and n != self.model.num_variables:
            wanted = self.model.num_variables
            raise ModelError(f"{self.name} must have a column for each of the {wanted} variables, got {n}")

    def _finish(self, states: NDArray[Any], counts: IntArray, labels: Any) -> Dataset:
        """Rows of equal weight; counts and names are those of the model if there is one."""
        names = self.names
        if self.model is not None:
            counts = self.model.num_states
            names = self.model.variable_names
            labels = self.model.state_names
        rows = len(states)
        return Dataset(states, np.full(rows, 1.0 / rows), counts, rows, None if names is None else tuple(names), labels)


def _num_columns(data: Any) -> int:
    """Columns of a table, -1 where that is not clear."""
    shape = getattr(data, "shape", None)
    if shape is not None:
        return int(shape[1]) if len(shape) == 2 else -1
    return len(data[0]) if isinstance(data, Sequence) and len(data) and isinstance(data[0], Sequence) else -1


def _as_table(data: Any, name: str) -> NDArray[Any]:
    """An array (rows, n) of numbers or objects, NaN where a number is missing."""
    rule = "be a table of states with a row for every case and a column for every variable"
    if type(data).__module__.startswith("scipy.sparse"):
        return _as_dense(data, name, rule)
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
    check_memory(
        BYTES_PER_CELL * array.size, f"the {array.size:,} values of {name}", "learn from fewer rows or columns"
    )
    if array.dtype.kind == "O" or (array.dtype.kind in "US" and not isinstance(data, np.ndarray)):
        # Lists with None, or with text beside numbers, which NumPy makes text all over.
        return _numbers_or_objects(np.array([list(row) for row in data], dtype=object).reshape(array.shape))
    return array


def _as_dense(data: Any, name: str, rule: str) -> NDArray[np.bool_]:
    """The table of a sparse matrix of 0 and 1."""
    if data.ndim != 2:
        raise ModelError(f"{name} must {rule}, got shape {data.shape}")
    data = data.tocsr()  # entries that are given twice are added up
    values = data.data
    if not np.isin(values, (0, 1)).all():
        raise ModelError(f"{name} must hold 0 and 1 as a sparse matrix, got {values[~np.isin(values, (0, 1))][0]}")
    check_memory(float(np.prod(data.shape, dtype=float)), f"the table of {name}", "learn from fewer rows")
    return np.asarray(data.astype(bool).toarray())


def _numbers_or_objects(array: NDArray[Any]) -> NDArray[Any]:
    """A table of objects as numbers, NaN where one is missing, if it has nothing else; else as it is."""
    missing = np.zeros(array.shape, dtype=bool)
    if array.size:
        missing = np.frompyfunc(is_missing, 1, 1)(array).astype(bool)
    rest = array[~missing]
    if not all(isinstance(value, bool | int | float | np.number | np.bool_) for value in rest):
        return array
    numbers = np.full(array.shape, np.nan)
    try:
        numbers[~missing] = rest.astype(np.float64)
    except OverflowError:  # a whole number that no double holds: a label like any other
        return array
    return numbers
