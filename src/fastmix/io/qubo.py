r"""The QUBO format (``.qubo``): quadratic unconstrained binary optimization problems as text.

Lines that begin with ``c`` are comments. One line ``p qubo 0 maxNodes nNodes nCouplers`` tells how many variables,
diagonal entries and other entries there are; each line after it is an entry ``i j value`` of the matrix Q, where
``i = j`` is a diagonal entry and ``i < j`` another one; variables count from 0. The problem is to minimize
``sum_i Q_ii x_i + sum_ij Q_ij x_i x_j`` over bits x: the model has that with the opposite sign as its log-weight.

The writer takes every model of binary variables and pairs whose entries are finite. The constant of its log-weight,
which the format cannot hold, stands in a comment and is named in a note.
"""

from __future__ import annotations

import re
from typing import BinaryIO

import numpy as np

from fastmix._arrays import FloatArray
from fastmix._memory import check_memory
from fastmix.errors import FormatError, ModelError
from fastmix.io.files import shown
from fastmix.io.tokens import NumberText, strip_comments
from fastmix.io.tuning import QUBO_ENTRY_BYTES, QUBO_VARIABLE_BYTES
from fastmix.model import MarkovRandomField, check_model

__all__ = ["is_qubo", "read", "write"]

_START = re.compile(rb"(?:\xef\xbb\xbf)?(?:[ \t]*(?:[c#][^\r\n]*)?\r?\n)*+[ \t]*p[ \t]+qubo\b")
_PROBLEM = re.compile(rb"^[ \t]*p[ \t]+qubo\b([^\n]*)$", re.MULTILINE)


def is_qubo(data: bytes) -> bool:
    """Whether the first line of a file that is no comment begins with ``p qubo``."""
    return _START.match(data) is not None


def read(data: bytes, name: str, _max_bytes: float | None = None) -> MarkovRandomField:
    """Model whose log-weight is minus the energy, from a text; ``name`` is the name of the file, for messages."""
    text = strip_comments(data, name)
    n, num_diagonal, num_others, text = _cut_problem(text, name)
    check_memory(QUBO_VARIABLE_BYTES * n, f"{name}: a problem of {n} variables", "use a smaller problem")
    numbers = NumberText(text, name)
    count = num_diagonal + num_others
    if len(numbers) != 3 * count:
        line = text.count(b"\n") + 1
        raise FormatError(
            f"{name}:{line}: expected {num_diagonal} diagonal and {num_others} other entries of three numbers each, "
            f"got {len(numbers)} numbers"
        )
    check_memory(QUBO_ENTRY_BYTES * count, f"{name}: a problem of {count} entries", "use a smaller problem")
    rows = numbers.values.reshape(count, 3)
    # 1. Check places and values.
    places = rows[:, :2]
    wrong = ~numbers.whole.reshape(count, 3)[:, :2] | ~(places < n)
    if wrong.any():
        entry, side = np.argwhere(wrong)[0]
        numbers.fail(3 * int(entry) + int(side), f"a variable must be a whole number from 0 to {n - 1}")
    outside = np.flatnonzero(~(np.abs(rows[:, 2]) <= 1e100))
    if outside.size:
        numbers.fail(3 * int(outside[0]) + 2, "an entry must be a number from -1e100 to 1e100")
    is_diagonal = places[:, 0] == places[:, 1]
    if int(is_diagonal.sum()) != num_diagonal:
        raise FormatError(f"{name}:1: expected {num_diagonal} diagonal entries, got {int(is_diagonal.sum())}")
    # 2. A bit that is 1 adds its diagonal entry, a pair of them that of the pair; repeated entries add up.
    unary = np.zeros((n, 2))
    on_diagonal = places[is_diagonal, 0].astype(np.int64)
    np.subtract.at(unary, (on_diagonal, 1), rows[is_diagonal, 2])
    both = np.array([[0.0, 0.0], [0.0, 1.0]])
    tables = -rows[~is_diagonal, 2][:, None, None] * both
    try:
        return MarkovRandomField.from_tables(unary + 0.0, places[~is_diagonal].astype(np.int64), tables + 0.0)
    except ModelError as error:  # repeated entries that add up to more than the largest one
        raise FormatError(f"{name}:1: {error}") from None


def _cut_problem(text: bytes, name: str) -> tuple[int, int, int, bytes]:
    """Numbers of variables, diagonal and other entries of the problem line, and the text with blanks in its place."""
    lines = list(_PROBLEM.finditer(text))
    if not lines:
        raise FormatError(f"{name}:1: expected a line 'p qubo 0 maxNodes nNodes nCouplers'")
    first = lines[0]
    line = text.count(b"\n", 0, first.start()) + 1
    if len(lines) > 1:
        again = text.count(b"\n", 0, lines[1].start()) + 1
        raise FormatError(f"{name}:{again}: expected one line 'p qubo', got another one after line {line}")
    words = first[1].split()
    if len(words) != 4 or not all(word.isdigit() and len(word) < 19 for word in words[1:]):
        raise FormatError(
            f"{name}:{line}: expected 'p qubo 0 maxNodes nNodes nCouplers', got {shown(first[0].strip())}"
        )
    n, num_diagonal, num_others = (int(word) for word in words[1:])
    blanks = b" " * (first.end() - first.start())
    return n, num_diagonal, num_others, text[: first.start()] + blanks + text[first.end() :]


def write(model: MarkovRandomField, stream: BinaryIO) -> list[str]:
    """Write a model of binary variables and pairs as a problem; return a note on the constant that the file loses."""
    check_model(model)
    if model.num_factors or (model.num_states != 2).any():
        raise ModelError("a QUBO file holds binary variables and pairs of them; the model has others")
    if model.has_forbidden:
        raise ModelError("a QUBO file holds finite entries only; the model forbids some states or pairs")
    diagonal, others, constant = _polynomial(model)
    edges = model.edges
    kept = np.flatnonzero(others)
    lines = [f"c minimize; the log-weight is {constant!r} minus the energy"]
    lines.append(f"p qubo 0 {model.num_variables} {model.num_variables} {len(kept)}")
    lines += [f"{i} {i} {value!r}" for i, value in enumerate((-diagonal + 0.0).tolist())]
    for (i, j), value in zip(edges[kept].tolist(), (-others[kept]).tolist(), strict=True):
        lines.append(f"{i} {j} {value!r}")
    stream.write("\n".join(lines).encode() + b"\n")
    return [f"the constant {constant!r} of the log-weight is not part of a QUBO file"] if constant else []


def _polynomial(model: MarkovRandomField) -> tuple[FloatArray, FloatArray, float]:
    """Coefficients of the log-weight as a polynomial in bits: of single bits, of the edges, and the constant."""
    unary = model.log_unary.reshape(-1, 2)
    tables = model.log_pairwise.reshape(-1, 2, 2)
    i, j = model.edges.T
    single = unary[:, 1] - unary[:, 0]
    np.add.at(single, i, tables[:, 1, 0] - tables[:, 0, 0])
    np.add.at(single, j, tables[:, 0, 1] - tables[:, 0, 0])
    pair = (tables[:, 1, 1] - tables[:, 1, 0]) - (tables[:, 0, 1] - tables[:, 0, 0])
    constant = model.log_constant + float(unary[:, 0].sum() + tables[:, 0, 0].sum())
    return single, pair, constant
