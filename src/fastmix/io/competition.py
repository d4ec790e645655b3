"""The answer files of the UAI competitions: MAR (marginals), PR (log10 Z) and MPE (a most probable configuration).

An answer starts with the name of the task. Solvers that improve their answer may append further ones, each after a line
``-BEGIN-``; the last one counts. Some layouts put the number of samples, ``1``, before the answer; the number of words
tells which layout a file has.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix._arrays import FloatArray
from fastmix._checks import as_array, as_float_array, as_list, describe
from fastmix.io.files import PathLike, atomic_write, display_name, read_bytes
from fastmix.io.tokens import LARGEST_INDEX, NumberText, cut_header, strip_comments
from fastmix.io.tuning import PROBABILITY_SLACK

__all__ = ["read_mar", "read_mpe", "read_pr", "write_mar", "write_mpe", "write_pr"]

_BEGIN = re.compile(rb"(?<![^\s])-BEGIN-(?![^\s])")


def read_mar(path: PathLike) -> list[FloatArray]:
    """The marginal distribution of each variable, a list of float arrays, from a MAR file.

    The content is ``MAR``, the number of variables, and for each its number of states and their probabilities, which
    sum to 1 up to rounding (this is not checked). A :class:`FormatError` is raised if the file is not in the format or
    holds a number that is no probability.

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
    num_words = len(numbers)
    values = numbers.values
    # One variable of L states is 1 L p1 .. pL; with a number of samples, 1 is followed by more than so many words.
    is_single_variable = num_words > 2 and values[1] == num_words - 2
    start = 1 if num_words > 1 and values[0] == 1 and not is_single_variable else 0
    numbers.require_whole(0, start, "the number of samples")
    num_variables = numbers.count(start, "the number of variables")
    first = start + 1
    sizes_at, sizes, end = numbers.blocks(first, num_variables, "the marginal of variable {}")
    empty = np.flatnonzero(sizes == 0)
    if empty.size:
        i = int(empty[0])
        numbers.fail(int(sizes_at[i]), f"the marginal of variable {i} must have at least one state")
    is_probability = np.ones(end - first, dtype=bool)
    is_probability[sizes_at - first] = False
    region = values[first:end]
    is_wrong = is_probability & ~((region >= 0) & (region <= 1 + PROBABILITY_SLACK))
    if is_wrong.any():
        numbers.fail(first + int(is_wrong.argmax()), "probabilities must be from 0 to 1")
    if end < num_words:
        numbers.fail(end, "the file must end after the last marginal")
    return [values[a + 1 : a + 1 + size].copy() for a, size in zip(sizes_at.tolist(), sizes.tolist(), strict=True)]


def write_mar(marginals: Sequence[ArrayLike], path: PathLike) -> None:
    """Write one probability vector per variable as a MAR file, every digit kept.

    A ValueError is raised if a vector is empty or holds a number that is not finite or is negative.

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
    """The logarithm of Z to base 10, as it stands in a PR file; multiply by ``math.log(10)`` for the natural one.

    A :class:`FormatError` is raised if the file is not in the format.

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

    A ValueError is raised if the logarithm is not finite.

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
    num_words = len(numbers)
    if num_words:
        numbers.require_whole(0, num_words, "states")
    # With a number of samples there is one word more than 1 + n; a count that fits without one is taken as it is.
    has_samples = num_words > 2 and numbers.values[0] == 1 and num_words == numbers.values[1] + 2
    start = 1 if has_samples else 0
    num_variables = numbers.count(start, "the number of variables")
    first = start + 1
    if num_words < first + num_variables:
        numbers.fail_at_end(f"the states of {num_variables} variables")
    if num_words > first + num_variables:
        numbers.fail(first + num_variables, "the file must end after the last state")
    states = numbers.values[first:]
    beyond = np.flatnonzero(states >= LARGEST_INDEX)
    if beyond.size:
        numbers.fail(first + int(beyond[0]), f"states must be below {LARGEST_INDEX}")
    return states.astype(np.int64)


def write_mpe(states: ArrayLike, path: PathLike) -> None:
    """Write the state of every variable, observed ones too, as an MPE file.

    A ValueError is raised if a state is not a whole number from 0.

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
    """The words of the last answer in a file that begins with the name of the task."""
    name = display_name(path)
    _, data = cut_header(strip_comments(read_bytes(path), name), name, (task,))
    begin = 0
    for match in _BEGIN.finditer(data):
        begin = match.end()
    # Lines stay, so that messages count them right; words of earlier answers go.
    return NumberText(re.sub(rb"[^\n]", b" ", data[:begin]) + data[begin:], name)
