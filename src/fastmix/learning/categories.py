"""Columns of categories: frames, and tables of text, whose values become states with names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastmix._arrays import BoolArray, IntArray
from fastmix._checks import describe
from fastmix.errors import ModelError
from fastmix.learning.dataset import MISSING, RowError
from fastmix.learning.tuning import MAX_CATEGORIES
from fastmix.model import MarkovRandomField

__all__ = ["check_names", "code_column", "frame_columns", "is_missing"]

#: Unseen states and columns that an error lists.
NUM_SHOWN = 5
#: Types whose values have the same name wherever they are equal: 1 and 1.0 have, 1 and True have not.
_TEXT_TYPES = frozenset([str, np.str_, type(None)])
_PLAIN_TYPES = frozenset([int, float, *_TEXT_TYPES])


def frame_columns(data: Any, name: str) -> dict[str, Any] | None:
    """Columns of a pandas or polars frame by name; None for anything else."""
    package = type(data).__module__.split(".")[0]
    if package not in ("pandas", "polars"):
        return None
    if type(data).__name__ != "DataFrame":
        hint = ": collect() makes a frame of it" if type(data).__name__ == "LazyFrame" else ""
        raise ModelError(f"{name} must be a frame with a column for every variable, got {describe(type(data))}{hint}")
    return {str(label): data[label] for label in data.columns}


def check_names(names: Sequence[str], wanted: Sequence[str], name: str) -> None:
    """A :class:`ModelError` if columns are not a model's variables."""
    missing = [variable for variable in wanted if variable not in set(names)]
    extra = [variable for variable in names if variable not in set(wanted)]
    parts = []
    if missing:
        parts.append(f"no column for {_some(missing)}")
    if extra:
        parts.append(f"columns that the model does not have: {_some(extra)}")
    if parts:
        raise ModelError(f"{name} must have the model's variables as columns, got {' and '.join(parts)}")


def _some(items: Sequence[Any]) -> str:
    """The first of some items as a text, and how many more there are."""
    text = ", ".join(repr(item) for item in items[:NUM_SHOWN])
    return text + (f" and {len(items) - NUM_SHOWN} more" if len(items) > NUM_SHOWN else "")


def code_column(
    column: Any, label: Any, model: MarkovRandomField | None, i: int, name: str, missing: int | str | None
) -> tuple[IntArray, tuple[str, ...]]:
    """Codes of one column of categories, -1 where a value is missing, and the names of its states.

    With a model these are the names of its variable i.
    """
    number = missing if isinstance(missing, int) else None
    values, inverse = _distinct(column)
    gaps = np.fromiter((is_missing(value, number) for value in values), dtype=bool, count=len(values))
    if model is None and not _is_listed(column):
        _check_whole(values, gaps, inverse, label, name)
    texts = [None if gone else _text(value) for value, gone in zip(values, gaps, strict=True)]
    present = {text: value for text, value in zip(texts, values, strict=True) if text is not None}
    where = f"column {label!r}"
    if model is not None and model.num_variables > i:
        known = _names_of_states(model, i)
    else:
        known = _categories(column, present)
        if len(known) > MAX_CATEGORIES:
            raise ModelError(
                f"{name} must have at most {MAX_CATEGORIES} categories in a column, got {len(known):,} in {where}; "
                "put a measured quantity into bins first"
            )
    codes = {text: k for k, text in enumerate(known)}
    unseen = [text for text in present if text not in codes]
    if unseen:
        first = next(k for k, text in enumerate(texts) if text is not None and text not in codes)
        row = int(np.flatnonzero(inverse == first)[0])
        raise RowError(f"{name} has states that the model does not know in {where}: {_some(unseen)}", row)
    of_values = np.array([MISSING if text is None else codes[text] for text in texts], dtype=np.int64)
    return of_values[inverse], known


def _distinct(column: Any) -> tuple[list[Any], IntArray]:
    """The different values of a column, in the order in which they first occur, and the number of that in each row.

    Values that are equal but have different names, such as True and 1, stay apart: then every row has its own.
    """
    kind = getattr(getattr(column, "dtype", None), "kind", "O")
    if hasattr(column, "factorize") and kind != "O":  # of pandas, all values of one type
        return _factorized(column)
    values = list(column)
    types = set(map(type, values))
    if not (types <= _PLAIN_TYPES or types <= {bool, *_TEXT_TYPES}):
        return values, np.arange(len(values))
    if hasattr(column, "factorize"):
        return _factorized(column)
    places = {value: k for k, value in enumerate(dict.fromkeys(values))}
    inverse = np.fromiter(map(places.__getitem__, values), dtype=np.int64, count=len(values))
    return list(places), inverse


def _factorized(column: Any) -> tuple[list[Any], IntArray]:
    """The different values of a column of pandas, None after them where some are missing, and which each row has."""
    codes, different = column.factorize()
    inverse = np.asarray(codes, dtype=np.int64)
    gone = inverse < 0
    if not gone.any():
        return list(different), inverse
    return [*different, None], np.where(gone, len(different), inverse)


def _names_of_states(model: MarkovRandomField, i: int) -> tuple[str, ...]:
    """Names of the states of a variable; numbers where it has none."""
    names = None if model.state_names is None else model.state_names[i]
    return names or tuple(str(state) for state in range(int(model.num_states[i])))


def _is_listed(column: Any) -> bool:
    """Whether a column says itself which categories there are."""
    return getattr(getattr(column, "dtype", None), "categories", None) is not None


def _check_whole(values: Sequence[Any], gaps: BoolArray, inverse: IntArray, label: Any, name: str) -> None:
    """A :class:`RowError` where a column has numbers that are not whole: these are measured, and no categories."""
    for k, (value, gone) in enumerate(zip(values, gaps.tolist(), strict=True)):
        if not gone and isinstance(value, float | np.floating) and not float(value).is_integer():
            row = int(np.flatnonzero(inverse == k)[0])
            rule = f"{name} must hold whole numbers or categories, got {value} in row {row}, column {label!r}"
            raise RowError(f"{rule}; put a measured quantity into bins first", row)


def is_missing(value: Any, number: int | None = None) -> bool:
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
