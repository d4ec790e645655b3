"""Evidence files of the UAI competitions: observed variables and their states.

Two layouts are in use: ``k v1 s1 .. vk sk``, and the same after the number of samples, ``1 k v1 s1 .. vk sk``. They
cannot be confused, because the first has an odd number of words and the second an even one. An empty file, ``0`` and
``1 0`` mean that nothing is observed. More than one sample is refused.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from fastmix.errors import ModelError
from fastmix.io.files import PathLike, atomic_write, display_name, read_bytes
from fastmix.io.tokens import NumberText, strip_comments

__all__ = ["evidence_in", "read_evidence", "write_evidence"]


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
    r"""The observed states in the content of a file; ``name`` is for messages.

    Examples
    --------
    >>> evidence_in(b"2  0 1  5 0", "a"), evidence_in(b"1\n2  0 1  5 0", "a"), evidence_in(b"0", "a")
    ({0: 1, 5: 0}, {0: 1, 5: 0}, {})
    >>> evidence_in(b"1  7 1", "a.evid", num_states=[2, 2])
    Traceback (most recent call last):
        ...
    fastmix.errors.FormatError: a.evid:1: observed variables must be from 0 to 1, got '7'
    """
    numbers = NumberText(strip_comments(data, name), name)
    if len(numbers) == 0:
        return {}
    numbers.require_whole(0, len(numbers), "evidence")
    first = _first_pair(numbers)
    counts = None if num_states is None else np.asarray(num_states)
    evidence: dict[int, int] = {}
    for k in range(first, len(numbers), 2):
        # A number too large to be a double's integer is no variable or state of any model.
        if numbers.values[k] >= 2**53 or (counts is not None and numbers.values[k] >= len(counts)):
            limit = "" if counts is None else f" from 0 to {len(counts) - 1}" if len(counts) else " none"
            numbers.fail(k, f"observed variables must be{limit or ' below 2^53'}")
        variable = int(numbers.values[k])
        state_limit = 2**53 if counts is None else int(counts[variable])
        if numbers.values[k + 1] >= state_limit:
            numbers.fail(k + 1, f"the state of variable {variable} must be from 0 to {state_limit - 1}")
        state = int(numbers.values[k + 1])
        if evidence.setdefault(variable, state) != state:
            numbers.fail(k + 1, f"variable {variable} must be observed in one state, {evidence[variable]}")
    return evidence


def _first_pair(numbers: NumberText) -> int:
    """Where the pairs start, after a check that the counts before them fit the number of words."""
    total, values = len(numbers), numbers.values
    if total == 1 + 2 * values[0]:
        return 1
    if values[0] == 1 and total > 1 and total == 2 + 2 * values[1]:
        return 2
    if values[0] > 1 and _holds_samples(numbers):
        numbers.fail(0, "evidence must hold a single sample, give each one a file of its own; the number of samples")
    if values[0] == 1 and total % 2 == 0:
        pairs = total / 2 - 1
        numbers.fail(1, f"the number of observed variables must be {pairs:.0f} to fit the {total} words of the file")
    pairs = (total - 1) / 2
    wanted = f"must be {pairs:.0f}" if total % 2 else "must be half the number of words after it"
    return numbers.fail(0, f"the number of observed variables {wanted} to fit the {total} words of the file")


def _holds_samples(numbers: NumberText) -> bool:
    total, values = len(numbers), numbers.values
    if values[0] >= total:
        return False
    position = 1
    for _ in range(int(values[0])):
        if position >= total or values[position] >= total:
            return False
        position += 1 + 2 * int(values[position])
    return position == total


def write_evidence(evidence: Mapping[int, int], path: PathLike) -> None:
    """Write observed states as one line, ``k v1 s1 .. vk sk``, in the order of the variables.

    Raises
    ------
    ModelError
        If a variable or state is not a whole number from 0.
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> write_evidence({5: 0, 1: 1}, "-")
    2 1 1 5 0
    """
    pairs = []
    for variable, state in evidence.items():
        try:
            pair = operator.index(variable), operator.index(state)
        except TypeError:
            raise ModelError(f"evidence must map variables to states by number, got {variable!r}: {state!r}") from None
        if min(pair) < 0:
            raise ModelError(f"evidence must have variables and states from 0, got {variable!r}: {state!r}")
        pairs.append(pair)
    with atomic_write(path) as stream:
        stream.write(" ".join([str(len(pairs)), *(f"{v} {s}" for v, s in sorted(pairs))]) + "\n")
