"""Answer files of the UAI competitions: MAR for marginals, PR for the partition function.

A file starts with the name of the task. Solvers that improve their answer may append further ones, each after a line
``-BEGIN-``; the last one counts. Some layouts put the number of samples, ``1``, before the answer; the number of words
tells which layout a file has.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix._checks import describe
from fastmix.io.files import PathLike, atomic_write, display_name, read_bytes
from fastmix.io.tokens import NumberText, cut_header, strip_comments

__all__ = ["read_mar", "read_pr", "write_mar", "write_pr"]

FloatArray = NDArray[np.float64]

_BEGIN = re.compile(rb"(?<![^\s])-BEGIN-(?![^\s])")
_SLACK = 1e-6  # printed probabilities may exceed 1 by rounding


def read_mar(path: PathLike) -> list[FloatArray]:
    """The marginal distribution of each variable, from a MAR file.

    Parameters
    ----------
    path : str or path-like
        Plain text, gzip or xz; ``-`` is the standard input. The content is ``MAR``, the number of variables, and for
        each its number of states and their probabilities.

    Returns
    -------
    list of float arrays
        The numbers as they stand in the file: probabilities, summing to 1 up to its rounding (which is not checked).

    Raises
    ------
    FormatError
        If the file is not in the format or holds a number that is no probability.
    OSError
        If the file cannot be read.

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
    """Write one probability vector a variable as a MAR file, every digit kept.

    Raises
    ------
    ValueError
        If a vector is empty or holds a number that is not finite or is negative.
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> write_mar([[0.25, 0.75], [1.0, 0.0]], "-")
    MAR
    2 2 0.25 0.75 2 1.0 0.0
    """
    words = [str(len(marginals))]
    for i, vector in enumerate(marginals):
        array = np.asarray(vector, dtype=np.float64)
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

    Raises
    ------
    FormatError
        If the file is not in the format.
    OSError
        If the file cannot be read.

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

    Raises
    ------
    ValueError
        If the logarithm is not finite.
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> write_pr(math.log(100.0), "-")
    PR
    2.0
    """
    if not math.isfinite(natural_log_z):
        raise ValueError(f"natural_log_z must be finite, got {natural_log_z}")
    with atomic_write(path) as stream:
        stream.write(f"PR\n{float(natural_log_z) / math.log(10.0)!r}\n")


def _read_answer(path: PathLike, task: str) -> NumberText:
    name = display_name(path)
    _, data = cut_header(strip_comments(read_bytes(path), name), name, (task,))
    last = 0
    for match in _BEGIN.finditer(data):
        last = match.end()
    # Lines stay, so that messages count them right; words of earlier answers go.
    return NumberText(re.sub(rb"[^\n]", b" ", data[:last]) + data[last:], name)
