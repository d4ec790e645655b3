"""Answers in files: what is written of a result, by the suffix of the file's name.

``.MAR``, ``.PR`` and ``.MPE`` are the formats of the UAI competitions (:mod:`fastmix.io.competition`); ``.json``,
``.csv`` and ``.npz`` hold more. :func:`register_answer` makes another suffix known.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fastmix._checks import as_path, check_choice, describe, show_path
from fastmix.io.competition import write_mar, write_mpe, write_pr
from fastmix.io.files import PathLike, atomic_write, display_name

__all__ = [
    "WRITERS", "AnswerWriter", "answer_suffix", "csv_cell", "json_text", "missing_answer", "register_answer",
    "write_answer",
]  # fmt: skip

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_FORMULA = re.compile("'*[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")  # what a spreadsheet calculates, or would once more
_COMPETITION = (".mar", ".pr", ".mpe")  # written in capitals in messages
_COMPRESSED = (".gz", ".xz", ".bz2")


class AnswerWriter(NamedTuple):
    """A way to write results: the function that does it, and the attribute that a result must have for it."""

    write: Callable[[Any, PathLike], None]
    needed: str | None = None


def write_answer(result: Any, path: PathLike, plain: str = ".mar") -> None:
    """Write what the suffix of the file's name says of a result, or for ``-`` what ``plain`` says.

    Parameters
    ----------
    result : Result
    path : str or path-like
        ``.MAR`` marginals, ``.PR`` log10 Z, ``.MPE`` states, ``.json`` everything but draws, ``.csv`` a table with a
        row for every state, ``.npz`` marginals, standard errors and draws as arrays; or a suffix that
        :func:`register_answer` has made known. ``.gz`` and ``.xz`` after it compress, ``-`` is the standard output.
    plain : str
        The suffix for the standard output.

    Raises
    ------
    TypeError
        If the result is not of a kind that has such an answer.
    ValueError
        If the suffix is not known, or the result has nothing to write, such as a log Z that means anything.
    """
    check_choice("plain", plain, tuple(WRITERS))
    path = as_path("path", path)
    suffix = plain if path == "-" else answer_suffix(path)
    writer = WRITERS[suffix]
    if writer.needed is not None and not hasattr(result, writer.needed):
        raise TypeError(
            f"result must have {writer.needed} for a file {suffix}, as results of infer do, got {describe(result)}"
        )
    missing = missing_answer(result, suffix)
    if missing is not None:
        raise ValueError(f"{display_name(path)} cannot be written: {missing}")
    writer.write(result, path)


def register_answer(suffix: str, write: Callable[[Any, PathLike], None]) -> None:
    """Make a suffix, such as ``.csv``, known to :func:`write_answer` and the command line's ``-o``.

    Parameters
    ----------
    suffix : str
        A new suffix in lower case, with its dot.
    write : callable ``(result, path) -> None``
    """
    if not isinstance(suffix, str) or not suffix.startswith(".") or suffix in WRITERS:
        raise ValueError(f"suffix must be a new one that begins with a dot, got {describe(suffix)}")
    WRITERS[suffix] = AnswerWriter(write)


def answer_suffix(path: PathLike, allowed: Sequence[str] | None = None, *, name: str = "path") -> str:
    """The suffix that says what to write, in lower case and before any ``.gz``, ``.xz`` or ``.bz2``.

    A ValueError, which calls the path ``name``, is raised for a suffix that is not among those allowed, by default all
    that are registered.
    """
    end = as_path("path", path).lower()
    for packed in _COMPRESSED:
        end = end.removesuffix(packed)
    known = tuple(WRITERS) if allowed is None else tuple(allowed)
    for suffix in known:
        if end.endswith(suffix):
            return suffix
    *most, last = (suffix.upper() if suffix in _COMPETITION else suffix for suffix in known)
    raise ValueError(f"{name} must name a {', '.join(most)} or {last} file, got {show_path(os.fspath(path))}")


def missing_answer(result: Any, suffix: str) -> str | None:
    """Why a result has nothing to write to a file with a suffix such as ``.pr``, in a sentence; None if it has."""
    if getattr(result, "log_z_kind", None) == "zero" and suffix != ".json":
        return "Z = 0 is proven, so that there are no marginals and no finite log Z"
    if suffix == ".mpe" and getattr(result, "variables", None) is not None:
        return "there are states of some variables only: a .csv or .json file has them"
    if suffix == ".pr" and result.log_z is None:
        return f"{result.method} ({result.status}) has no log Z that means anything"
    return None


# -- json, csv and npz ------------------------------------------------------------------------------------------------


def json_text(data: Mapping[str, Any]) -> str:
    """One JSON object on a line; numbers that are not finite are null."""
    from fastmix.results import jsonable

    return json.dumps(jsonable(data), allow_nan=False) + "\n"


def csv_cell(value: Any) -> Any:
    r"""A value as it stands in a csv answer: text that a spreadsheet would take for a formula has an apostrophe first.

    Such text begins with one of ``= + - @``, a tab or an end of line and is no number; the apostrophe is how
    spreadsheets mark text. Text that begins so after apostrophes gets one more: whoever takes away the first apostrophe
    of all cells in which only apostrophes stand before one of these signs has the names again.

    Examples
    --------
    >>> [csv_cell(name) for name in ("=1+1", "-1", "-x", "x=1", "'=1")]
    ["'=1+1", '-1', "'-x", 'x=1', "''=1"]
    """
    if not isinstance(value, str) or not _FORMULA.match(value):
        return value
    return value if _NUMBER.fullmatch(value) else f"'{value}"


def _write_json(result: Any, path: PathLike) -> None:
    """Write everything but draws as a JSON object."""
    with atomic_write(path) as stream:
        stream.write(json_text(result.to_dict()))


def _write_csv(result: Any, path: PathLike) -> None:
    """Write the columns of a result as a table with a row for every state."""
    columns = getattr(result, "state_columns", result.columns)()
    cells = [[csv_cell(value) for value in np.asarray(values).tolist()] for values in columns.values()]
    # Before Python 3.13 the writer takes a carriage return for an ordinary character, and readers take it for an end.
    has_returns = any(isinstance(value, str) and "\r" in value for column in cells for value in column)
    quoting: Any = csv.QUOTE_NONNUMERIC if has_returns else csv.QUOTE_MINIMAL
    with atomic_write(path) as stream:
        table = csv.writer(stream, lineterminator="\n", quoting=quoting)
        table.writerow(columns)
        table.writerows(zip(*cells, strict=True))


def _write_npz(result: Any, path: PathLike) -> None:
    """Write the arrays of a result, and its provenance as JSON text."""
    arrays = {name: value for name, value in result.arrays().items() if value is not None}
    with atomic_write(path, binary=True) as stream:
        np.savez(stream, **arrays, provenance=np.array(json_text(dict(result.provenance))))


#: The writers of answers by suffix.
WRITERS: dict[str, AnswerWriter] = {
    ".mar": AnswerWriter(lambda result, path: write_mar(result.marginals, path), "marginals"),
    ".pr": AnswerWriter(lambda result, path: write_pr(result.log_z, path), "log_z"),
    ".mpe": AnswerWriter(lambda result, path: write_mpe(result.states, path), "states"),
    ".json": AnswerWriter(_write_json, "to_dict"),
    ".csv": AnswerWriter(_write_csv, "columns"),
    ".npz": AnswerWriter(_write_npz, "arrays"),
}
