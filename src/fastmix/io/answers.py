"""Files beside a model: evidence, and answers by suffix: MAR marginals, PR log Z, MPE states, and json, csv, npz.

Evidence has two layouts: ``k v1 s1 .. vk sk``, and the same after the number of samples, ``1 k v1 s1 .. vk sk``. They
cannot be confused, because the first has an odd number of words and the second an even one. An empty file, ``0`` and
``1 0`` mean that nothing is observed. More than one sample is refused.

An answer starts with the name of the task. Solvers that improve their answer may append further ones, each after a line
``-BEGIN-``; the last one counts. Some layouts put the number of samples, ``1``, before the answer; the number of words
tells which layout a file has.
"""

from __future__ import annotations

import csv
import json
import math
import operator
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix._arrays import FloatArray
from fastmix._checks import (
    as_array,
    as_float_array,
    as_list,
    as_path,
    as_state_counts,
    check_choice,
    describe,
    show_path,
)
from fastmix.errors import FormatError, ModelError
from fastmix.io.files import PathLike, atomic_write, display_name, read_bytes, shown
from fastmix.io.tokens import NumberText, blank_blocks, cut_header, strip_comments
from fastmix.model import MarkovRandomField
from fastmix.model.reduce import check_evidence

__all__ = [
    "answer_suffix", "csv_cell", "evidence_in", "json_text", "missing_answer", "number_observations",
    "parse_observations",
    "parse_observations_json", "read_evidence", "read_mar", "read_mpe", "read_pr", "register_answer", "write_answer",
    "write_evidence", "write_mar", "write_mpe", "write_pr",
]  # fmt: skip

_BEGIN = re.compile(rb"(?<![^\s])-BEGIN-(?![^\s])")
# Of observations as people type them. No expression can match the same text in two ways: reading is linear.
_BLANKS = re.compile(r"\s*")
_QUOTED = re.compile(r'"[^"]*(?:""[^"]*)*"')
_PLAIN = re.compile(r'[^",=]+')
_MOST_DIGITS = 18  # of the number of a variable or a state: more are those of none
_SIGNED = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")  # a number, which is what it is
_FORMULA = re.compile("'*[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")  # what a spreadsheet calculates, or would once more
_LARGEST_NUMBER = 2**53  # of a variable or a state: larger numbers are none of any model
_SLACK = 1e-6  # printed probabilities may exceed 1 by rounding


def read_mar(path: PathLike) -> list[FloatArray]:
    """The marginal distribution of each variable, a list of float arrays, from a MAR file.

    The content is ``MAR``, the number of variables, and for each its number of states and their probabilities, which
    sum to 1 up to rounding (this is not checked). A :class:`FormatError` if the file is not in the format or holds a
    number that is no probability.

    Examples
    --------
    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "two.MAR")
    ...     write_mar([[0.25, 0.75], [0.5, 0.5, 0.0]], path)
    ...     [vector.tolist() for vector in read_mar(path)]
    [[0.25, 0.75], [0.5, 0.5, 0.0]]
    """
    numbers = _read_answer(path, "MAR")
    total, values = len(numbers), numbers.values
    # One variable of L states is 1 L p1 .. pL; with a number of samples, 1 is followed by more than so many words.
    single = total > 2 and values[1] == total - 2
    start = 1 if total > 1 and values[0] == 1 and not single else 0
    numbers.require_whole(0, start, "the number of samples")
    n = numbers.count(start, "the number of variables")
    words, sizes, end = numbers.blocks(start + 1, n, "the marginal of variable {}")
    if (empty := np.flatnonzero(sizes == 0)).size:
        i = int(empty[0])
        numbers.fail(int(words[i]), f"the marginal of variable {i} must have at least one state")
    is_probability = np.ones(end - start - 1, dtype=bool)
    is_probability[words - start - 1] = False
    region = values[start + 1 : end]
    if (wrong := np.flatnonzero(is_probability & ~((region >= 0) & (region <= 1 + _SLACK)))).size:
        numbers.fail(start + 1 + int(wrong[0]), "probabilities must be from 0 to 1")
    if end < total:
        numbers.fail(end, "the file must end after the last marginal")
    return [values[a : a + size].copy() for a, size in zip((words + 1).tolist(), sizes.tolist(), strict=True)]


def write_mar(marginals: Sequence[ArrayLike], path: PathLike) -> None:
    """Write one probability vector per variable as a MAR file, every digit kept.

    A ValueError if a vector is empty or holds a number that is not finite or is negative.

    Examples
    --------
    >>> write_mar([[0.25, 0.75], [1.0, 0.0]], "-")
    MAR
    2 2 0.25 0.75 2 1.0 0.0
    """
    vectors = as_list("marginals", marginals, "a list with a vector of probabilities for each variable")
    words = [str(len(vectors))]
    for i, vector in enumerate(vectors):
        array = as_float_array(f"marginals[{i}]", vector)
        if array.ndim != 1 or array.size == 0:
            raise ValueError(f"marginals[{i}] must be a vector with one entry per state, got shape {array.shape}")
        entries = (array + 0.0).tolist()
        if not all(0 <= p < math.inf for p in entries):
            raise ValueError(f"marginals[{i}] must hold probabilities, got {describe(entries)}")
        words.append(str(len(entries)))
        words.extend(map(repr, entries))
    with atomic_write(path) as stream:
        stream.write("MAR\n" + " ".join(words) + "\n")


def read_pr(path: PathLike) -> float:
    """The logarithm to base 10 of Z, as it stands in a PR file; multiply by ``math.log(10)`` for the natural one.

    A :class:`FormatError` if the file is not in the format.

    Examples
    --------
    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "two.PR")
    ...     write_pr(math.log(100.0), path)
    ...     read_pr(path)
    2.0
    """
    numbers = _read_answer(path, "PR")
    if len(numbers) == 0:
        numbers.fail_at_end("the logarithm of Z")
    start = 1 if len(numbers) == 2 and numbers.word(0) == b"1" else 0
    if len(numbers) > start + 1:
        numbers.fail(start + 1, "the file must end after the logarithm of Z")
    value = float(numbers.values[start])
    if not math.isfinite(value):
        numbers.fail(start, "the logarithm of Z must be finite")
    return value


def write_pr(natural_log_z: float, path: PathLike) -> None:
    """Write a PR file, which holds log10 Z, from the natural logarithm of Z that this library computes everywhere.

    A ValueError if the logarithm is not finite.

    Examples
    --------
    >>> write_pr(math.log(100.0), "-")
    PR
    2.0
    """
    natural_log_z = _as_logarithm(natural_log_z)
    with atomic_write(path) as stream:
        stream.write(f"PR\n{float(natural_log_z) / math.log(10.0)!r}\n")


def _as_logarithm(value: Any) -> float:
    """A finite number as a float."""
    array = as_float_array("natural_log_z", value)
    if array.ndim or not np.isfinite(array):
        raise ValueError(f"natural_log_z must be finite, a number, got {describe(value)}")
    return float(array)


def read_mpe(path: PathLike) -> NDArray[np.int64]:
    """The state of every variable, from an MPE file; a :class:`FormatError` if the file is not in the format.

    Examples
    --------
    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "three.MPE")
    ...     write_mpe([1, 0, 2], path)
    ...     read_mpe(path).tolist()
    [1, 0, 2]
    """
    numbers = _read_answer(path, "MPE")
    total = len(numbers)
    if total:
        numbers.require_whole(0, total, "states")
    # With a number of samples there is one word more than 1 + n; a count that fits without one is taken as it is.
    start = 1 if total > 2 and numbers.values[0] == 1 and total == numbers.values[1] + 2 else 0
    n = numbers.count(start, "the number of variables")
    if total < start + 1 + n:
        numbers.fail_at_end(f"the states of {n} variables")
    if total > start + 1 + n:
        numbers.fail(start + 1 + n, "the file must end after the last state")
    # Doubles hold no larger whole numbers, and no variable of a model has so many states.
    if (beyond := np.flatnonzero(numbers.values[start + 1 :] >= _LARGEST_NUMBER)).size:
        numbers.fail(start + 1 + int(beyond[0]), f"states must be below {_LARGEST_NUMBER}")
    return numbers.values[start + 1 :].astype(np.int64)


def write_mpe(states: ArrayLike, path: PathLike) -> None:
    """Write the state of every variable, observed ones too, as an MPE file.

    A ValueError if a state is not a whole number from 0.

    Examples
    --------
    >>> write_mpe([1, 0, 2], "-")
    MPE
    3 1 0 2
    """
    values = as_array("states", states, "be a vector of whole numbers")
    if values.ndim != 1 or (values.size and (values.dtype.kind not in "iu" or values.min() < 0)):
        raise ValueError(f"states must be a vector of whole numbers from 0, got {describe(values)}")
    with atomic_write(path) as stream:
        stream.write("MPE\n" + " ".join(map(str, [len(values), *values.tolist()])) + "\n")


def _read_answer(path: PathLike, task: str) -> NumberText:
    name = display_name(path)
    _, data = cut_header(strip_comments(read_bytes(path), name), name, (task,))
    last = 0
    for match in _BEGIN.finditer(data):
        last = match.end()
    # Lines stay, so that messages count them right; words of earlier answers go.
    return NumberText(re.sub(rb"[^\n]", b" ", data[:last]) + data[last:], name)


# -- any answer, by the name of its file ------------------------------------------------------------------------------


def answer_suffix(path: PathLike, allowed: Sequence[str] | None = None, *, name: str = "path") -> str:
    """The suffix that says what to write, in lower case and before any ``.gz``, ``.xz`` or ``.bz2``.

    A ValueError, which calls the path ``name``, unless it is among those allowed, by default all that are registered.
    """
    end = as_path("path", path).lower()
    for packed in (".gz", ".xz", ".bz2"):
        end = end.removesuffix(packed)
    known = tuple(_WRITERS) if allowed is None else tuple(allowed)
    for suffix in known:
        if end.endswith(suffix):
            return suffix
    *most, last = (suffix.upper() if suffix in _COMPETITION else suffix for suffix in known)
    raise ValueError(f"{name} must name a {', '.join(most)} or {last} file, got {show_path(os.fspath(path))}")


def register_answer(suffix: str, write: Callable[[Any, PathLike], None]) -> None:
    """Make a suffix, such as ``.csv``, known to :func:`write_answer` and the command line's ``-o``."""
    if not isinstance(suffix, str) or not suffix.startswith(".") or suffix in _WRITERS:
        raise ValueError(f"suffix must be a new one that begins with a dot, got {describe(suffix)}")
    _WRITERS[suffix] = write


def write_answer(result: Any, path: PathLike, plain: str = ".mar") -> None:
    """Write what the suffix of the file's name says of a result, or for ``-`` what ``plain`` says.

    ``.MAR`` marginals, ``.PR`` log10 Z, ``.MPE`` states, ``.json`` everything but draws, ``.csv`` a table with a row
    for every state, ``.npz`` marginals, standard errors and draws as arrays.
    """
    check_choice("plain", plain, tuple(_WRITERS))
    path = as_path("path", path)
    suffix = plain if path == "-" else answer_suffix(path)
    needed = _NEEDED.get(suffix)
    if needed is not None and not hasattr(result, needed):
        raise TypeError(
            f"result must have {needed} for a file {suffix}, as results of infer do, got {describe(result)}"
        )
    if (missing := missing_answer(result, suffix)) is not None:
        raise ValueError(f"{display_name(path)} cannot be written: {missing}")
    _WRITERS[suffix](result, path)


def missing_answer(result: Any, suffix: str) -> str | None:
    """Why a result has nothing to write to a file with a suffix such as ``.pr``, in a sentence; None where it has."""
    if getattr(result, "log_z_kind", None) == "zero" and suffix != ".json":
        return "Z = 0 is proven, so that there are no marginals and no finite log Z"
    if suffix == ".pr" and result.log_z is None:
        return f"{result.method} ({result.status}) has no log Z that means anything"
    return None


def _answer_json(result: Any, path: PathLike) -> None:
    with atomic_write(path) as stream:
        stream.write(json_text(result.to_dict()))


def _answer_csv(result: Any, path: PathLike) -> None:
    columns = result.columns()
    cells = [[csv_cell(value) for value in np.asarray(values).tolist()] for values in columns.values()]
    # Before Python 3.13 the writer takes a carriage return for an ordinary character, and readers take it for an end.
    returns = any(isinstance(value, str) and "\r" in value for column in cells for value in column)
    with atomic_write(path) as stream:
        table = csv.writer(stream, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC if returns else csv.QUOTE_MINIMAL)
        table.writerow(columns)
        table.writerows(zip(*cells, strict=True))


def csv_cell(value: Any) -> Any:
    r"""A value as it stands in a csv answer: text that a spreadsheet would take for a formula has an apostrophe first.

    That is text which begins with one of ``= + - @``, a tab or an end of line and is no number; the apostrophe is how
    spreadsheets mark text. Text that begins so after apostrophes gets one more: whoever takes away the first apostrophe
    of all cells in which only apostrophes stand before one of these signs has the names again.

    Examples
    --------
    >>> [csv_cell(name) for name in ("=1+1", "-1", "-x", "x=1", "'=1")]
    ["'=1+1", '-1', "'-x", 'x=1', "''=1"]
    """
    if not isinstance(value, str) or not _FORMULA.match(value):
        return value
    return value if _SIGNED.fullmatch(value) else f"'{value}"


def _answer_npz(result: Any, path: PathLike) -> None:
    arrays = {name: value for name, value in result.arrays().items() if value is not None}
    with atomic_write(path, binary=True) as stream:
        np.savez(stream, **arrays, provenance=np.array(json_text(dict(result.provenance))))


def json_text(data: Mapping[str, Any]) -> str:
    """One JSON object on a line; numbers that are not finite are null."""
    from fastmix.results import jsonable

    return json.dumps(jsonable(data), allow_nan=False) + "\n"


_WRITERS: dict[str, Callable[[Any, PathLike], None]] = {
    ".mar": lambda result, path: write_mar(result.marginals, path),
    ".pr": lambda result, path: write_pr(result.log_z, path),
    ".mpe": lambda result, path: write_mpe(result.states, path),
    ".json": _answer_json,
    ".csv": _answer_csv,
    ".npz": _answer_npz,
}
_COMPETITION = (".mar", ".pr", ".mpe")
# What a result must have for each of these.
_NEEDED = {
    ".mar": "marginals",
    ".pr": "log_z",
    ".mpe": "states",
    ".json": "to_dict",
    ".csv": "columns",
    ".npz": "arrays",
}

# -- evidence ---------------------------------------------------------------------------------------------------------


def read_evidence(path: PathLike, num_states: ArrayLike | None = None) -> dict[int, int]:
    """The observed state of each observed variable, from an evidence file.

    Parameters
    ----------
    path : str or path-like
        Plain text, gzip or xz; ``-`` is the standard input.
    num_states : int array (n,), optional
        State counts of the model, ``model.num_states``; when given, variables and states are checked against them.

    Raises
    ------
    FormatError
        If the file is not in the format, holds several samples, observes a variable in two states, or names a variable
        or state that the model does not have; the message starts with ``path:line``.
    OSError
        If the file cannot be read.

    Examples
    --------
    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "two.uai.evid")
    ...     write_evidence({3: 1, 0: 2}, path)
    ...     read_evidence(path)
    {0: 2, 3: 1}
    """
    return evidence_in(read_bytes(path), display_name(path), num_states)


def evidence_in(data: bytes, name: str, num_states: ArrayLike | None = None) -> dict[int, int]:
    r"""The observed states in the content of a file; ``name`` is for messages."""
    numbers = NumberText(strip_comments(blank_blocks(data, name), name), name)
    if len(numbers) == 0:
        return {}
    numbers.require_whole(0, len(numbers), "evidence")
    total, values = len(numbers), numbers.values
    first = 1 if total % 2 else 2  # where the pairs begin, after their number and, before it, that of the samples
    if total != first + 2 * values[first - 1] or (first == 2 and values[0] != 1):
        rule = "the number of observed variables, and a variable and a state for each"
        numbers.fail(0, f"evidence must hold a single sample: {rule}; the first of {total} words")
    counts = None if num_states is None else as_state_counts(num_states)
    evidence: dict[int, int] = {}
    for k in range(first, total, 2):
        limit = _LARGEST_NUMBER if counts is None else len(counts)
        if values[k] >= limit:
            numbers.fail(k, f"observed variables must be below their number, {limit}")
        variable = int(values[k])
        limit = _LARGEST_NUMBER if counts is None else int(counts[variable])
        if values[k + 1] >= limit:
            numbers.fail(k + 1, f"the state of variable {variable} must be from 0 to {limit - 1}")
        state = int(values[k + 1])
        if evidence.setdefault(variable, state) != state:
            numbers.fail(k + 1, f"variable {variable} must be observed in one state, {evidence[variable]}")
    return evidence


def write_evidence(evidence: Mapping[int, int], path: PathLike) -> None:
    """Write observed states as one line, ``k v1 s1 .. vk sk``, in the order of the variables.

    A :class:`ModelError` if a variable or state is not a whole number from 0.

    Examples
    --------
    >>> write_evidence({5: 0, 1: 1}, "-")
    2 1 1 5 0
    """
    check_evidence(evidence)
    pairs = []
    for variable, state in evidence.items():
        try:
            pair = operator.index(variable), operator.index(state)
        except Exception:  # of whatever objects there are
            came = f"{describe(variable)}: {describe(state)}"
            raise ModelError(f"evidence must map variables to states by number, got {came}") from None
        if min(pair) < 0:
            raise ModelError(f"evidence must have variables and states from 0, got {variable!r}: {state!r}")
        pairs.append(pair)
    with atomic_write(path) as stream:
        stream.write(" ".join([str(len(pairs)), *(f"{v} {s}" for v, s in sorted(pairs))]) + "\n")


# -- evidence by names, as people type it: SAO2=LOW,BP=HIGH, or a JSON object ------------------------------------------


def parse_observations(text: str, model: MarkovRandomField) -> dict[int, int]:
    """Observed states by variable, as numbers, from pairs such as ``SAO2=LOW, 3=1``.

    Variables and states are names or numbers; a name that holds a comma or an equals sign stands in double quotes
    (two of them for a quote inside).
    """
    return number_observations(_pairs(text), model)


def parse_observations_json(text: str, name: str = "<string>") -> list[tuple[str, Any]]:
    """Variables and states as they stand in a JSON object, ``{"SAO2": "LOW", "3": 1}``, repeated ones included."""
    what = "evidence must be a JSON object of variables and states"
    try:
        pairs = json.loads(text, object_pairs_hook=list, parse_int=_whole)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{name}:{getattr(error, 'lineno', 1)}: {what}: {error}") from None
    if not isinstance(pairs, list) or not all(isinstance(pair, tuple) for pair in pairs):
        raise FormatError(f"{name}:1: {what}")
    return pairs


def _whole(digits: str) -> int:
    """A whole number in JSON; Python's own complaint about thousands of digits is about Python."""
    if len(digits) > 300:
        raise ValueError(f"a whole number of {len(digits):,} digits is none of a variable, a state or a likelihood")
    return int(digits)


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    """Names of variables and of states, pair by pair, in time linear in the text."""
    place, more = 0, True
    while more:
        start = place
        name, place = _word(text, start)
        equals = text[place : place + 1] == "="
        state, place = _word(text, place + 1)
        more = text[place : place + 1] == ","
        if not (name and equals and state and (more or place == len(text))):
            raise ValueError(f"evidence must be pairs such as A=x,B=y, got {shown(text[start:].strip())}")
        yield _unquoted(name), _unquoted(state)
        place += 1


def _word(text: str, place: int) -> tuple[str, int]:
    """A word, in quotes or up to the next separator, and where it ends with the blanks after it; or empty."""
    begin = cast("re.Match[str]", _BLANKS.match(text, place)).end()
    word = _QUOTED.match(text, begin) or _PLAIN.match(text, begin)
    if word is None:
        return "", begin
    return word[0], cast("re.Match[str]", _BLANKS.match(text, word.end())).end()


def _unquoted(text: str) -> str:
    return text[1:-1].replace('""', '"') if text.startswith('"') else text.strip()


def number_observations(pairs: Iterable[tuple[str, Any]], model: MarkovRandomField) -> dict[int, Any]:
    """Observed states by variable, as numbers, from names or numbers; errors as for :func:`parse_observations`.

    A list of numbers, likelihoods by state, stays as it is (soft evidence).
    """
    observed: dict[int, Any] = {}
    known = frozenset(model.variable_names or ())
    for name, state in pairs:
        given = _number_in(name, known)
        try:
            variable = model.variable_index(given)
            if not (isinstance(state, list) and state and all(type(number) in (int, float) for number in state)):
                names = () if model.state_names is None else model.state_names[variable]
                state = model.state_index(given, _number_in(state, names))
        except ModelError as error:
            raise ValueError(f"evidence: {error}") from None
        if variable in observed:
            raise ValueError(f"evidence must name each variable once, got {name!r} twice")
        observed[variable] = state
    return observed


def _number_in(given: Any, names: Collection[str]) -> Any:
    """A number that is given as text, unless that is a name, or longer than the number of anything can be."""
    if not isinstance(given, str) or given in names or not (given.isascii() and given.isdigit()):
        return given
    digits = given.lstrip("0") or "0"
    return int(digits) if len(digits) <= _MOST_DIGITS else given
