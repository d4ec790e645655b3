"""Models as text in the UAI format; :mod:`fastmix.io.uai` describes the format and re-exports what is public here."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from fastmix.errors import ModelError
from fastmix.io.files import PathLike, atomic_write
from fastmix.model import MarkovRandomField, check_model

__all__ = ["format_uai", "write_uai"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_logger = logging.getLogger(__name__)

# Logarithms of the smallest and largest normal double, 2.23e-308 and 1.80e308, rounded inwards.
_LOW, _HIGH = -708.39, 709.78
# Size of the pieces of a constant that one double cannot hold.
_PIECE = 700.0
_MOST_PIECES = 10_000
# Beyond this a logarithm keeps no decimals, and its power of ten no digits worth writing.
_LOWEST = -1e15
_CHUNK_TABLES = 1 << 15


def write_uai(model: MarkovRandomField, path: PathLike) -> list[str]:
    """Write a model as a UAI file; what other programs will not read from it comes back as a list of notes.

    Each table is written as its exponentials, to the last digit, divided by the largest so that this becomes 1. The
    scales, together with ``log_constant``, are one factor over no variables, left out when it is 1 and split into
    several when no double can hold it, so that log Z survives. Variables whose unary is zero get no unary factor.

    Parameters
    ----------
    model : MarkovRandomField
    path : str or path-like
        ``.gz`` and ``.xz`` compress, ``-`` is the standard output. The file appears whole or not at all.

    Returns
    -------
    list of str
        One line each, also logged as a warning, for names, which are lost; for a constant outside the range of doubles,
        which is split; for entries so small beside others of their table that other programs read them as 0 (this
        reader does not). Empty when there is nothing to say.

    Raises
    ------
    ModelError
        If a table forbids every pair of states: no such file can be read again.
    OSError
        If the file cannot be written.

    Notes
    -----
    About a microsecond an entry; memory of a few times the parameters.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1)], coupling=0.0, variable_names=["left", "right"])
    >>> write_uai(model, "-")
    MARKOV
    2
    2 2
    1
    2 0 1
    <BLANKLINE>
    4
     1.0 1.0 1.0 1.0
    ['names are not written, because UAI files have none; npz files keep them']
    """
    chunks, notes = _uai_chunks(model)
    with atomic_write(path) as stream:
        for chunk in chunks:
            stream.write(chunk)
    return notes


def format_uai(model: MarkovRandomField) -> str:
    """A model as text in UAI format, see :func:`write_uai`, whose notes are logged as warnings.

    Examples
    --------
    The largest entry of a table becomes 1, and the constant makes up for it:

    >>> print(format_uai(MarkovRandomField([2], np.log([1.0, 2.0]), [], [])))
    MARKOV
    1
    2
    2
    1 0
    0
    <BLANKLINE>
    2
     0.5 1.0
    1
     2.0
    <BLANKLINE>
    >>> print(format_uai(MarkovRandomField.from_factors([2, 2], [((0,), [0.0, -np.inf]), ((1, 0), np.zeros((2, 2)))])))
    MARKOV
    2
    2 2
    2
    1 0
    2 0 1
    <BLANKLINE>
    2
     1.0 0.0
    4
     1.0 1.0 1.0 1.0
    <BLANKLINE>
    """
    return "".join(_uai_chunks(model)[0])


def _uai_chunks(model: MarkovRandomField) -> tuple[Iterator[str], list[str]]:
    check_model(model)
    variables, unary_source, unary_sizes = _written_unaries(model)
    unary, unary_shift = _scaled(unary_source, unary_sizes)
    pairwise_sizes = np.diff(model.pairwise_offsets)
    if (dead := _dead_tables(model.log_pairwise, pairwise_sizes)).size:
        i, j = model.edges[dead[0]].tolist()
        raise ModelError(f"log_pairwise must allow a pair of states on each edge, but edge ({i}, {j}) has only -inf")
    pairwise, pairwise_shift = _scaled(model.log_pairwise, pairwise_sizes)
    constant = _total((model.log_constant, unary_shift, pairwise_shift))
    factors = _constant_words(constant)
    notes = _notes(model, constant, len(factors))
    notes += _entry_notes([(unary_source, unary), (model.log_pairwise, pairwise)])
    for note in notes:
        _logger.warning("UAI: %s", note)

    def chunks() -> Iterator[str]:
        counts = " ".join(map(str, model.num_states.tolist()))
        num_factors = len(variables) + model.num_edges + len(factors)
        yield f"MARKOV\n{model.num_variables}\n{counts}\n{num_factors}\n"
        for start in range(0, len(variables), _CHUNK_TABLES):
            yield "".join([f"1 {i}\n" for i in variables[start : start + _CHUNK_TABLES].tolist()])
        for start in range(0, model.num_edges, _CHUNK_TABLES):
            yield "".join([f"2 {i} {j}\n" for i, j in model.edges[start : start + _CHUNK_TABLES].tolist()])
        yield "0\n" * len(factors) + "\n"
        yield from _table_chunks(unary, unary_sizes)
        yield from _table_chunks(pairwise, pairwise_sizes)
        yield "".join([f"1\n {word}\n" for word in factors])

    return chunks(), notes


def _written_unaries(model: MarkovRandomField) -> tuple[IntArray, FloatArray, IntArray]:
    """The variables whose unary is not zero, their entries and how many each has."""
    if not model.num_variables:
        return np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0, dtype=np.int64)
    wanted = np.logical_or.reduceat(model.log_unary != 0, model.unary_offsets[:-1])
    variables = np.flatnonzero(wanted)
    return variables, model.log_unary[np.repeat(wanted, model.num_states)], model.num_states[variables]


def _dead_tables(values: FloatArray, sizes: IntArray) -> IntArray:
    if not len(values) or values.min() > -np.inf:
        return np.zeros(0, dtype=np.int64)
    return np.flatnonzero(np.maximum.reduceat(values, _starts(sizes)) == -np.inf)


def _scaled(values: FloatArray, sizes: IntArray) -> tuple[FloatArray, float]:
    """Log-tables with a largest entry of 0, and the sum of what was taken off."""
    if not len(values):
        return values, 0.0
    shift = np.maximum.reduceat(values, _starts(sizes))
    return values - np.repeat(shift, sizes), _total(shift.tolist())


def _constant_words(constant: float) -> list[str]:
    """A constant as numbers to write: one, several equal ones, or, beyond all use, one with a large power of ten."""
    if constant == 0 or not math.isfinite(constant):
        return []
    if _LOW <= constant <= _HIGH:
        return [repr(math.exp(constant))]
    count = math.ceil(abs(constant) / _PIECE)
    return [repr(math.exp(constant / count))] * count if count <= _MOST_PIECES else [_power_of_ten(constant)]


def _notes(model: MarkovRandomField, constant: float, num_factors: int) -> list[str]:
    notes = []
    if model.variable_names is not None or model.state_names is not None:
        notes.append("names are not written, because UAI files have none; npz files keep them")
    if not math.isfinite(constant):
        notes.append("the constant is outside the range of any number and is not written: log Z is lost; npz keeps it")
    elif num_factors == 1 and not _LOW <= constant <= _HIGH:
        notes.append(
            f"the constant exp({constant:.6g}) is outside the range of doubles: fastmix reads such numbers, but other "
            "programs refuse them; npz files keep it"
        )
    elif num_factors > 1:
        notes.append(
            f"the constant exp({constant:.6g}) is outside the range of doubles, and written as {num_factors} factors: "
            "programs that do not add logarithms overflow; npz files keep it as one number"
        )
    return notes


def _entry_notes(tables: list[tuple[FloatArray, FloatArray]]) -> list[str]:
    """Notes on entries that are finite in the model but too small for a double in the file."""
    tiny = lost = 0
    for source, written in tables:
        below = (written < _LOW) & (source > -np.inf)
        count = int(np.count_nonzero(below & (written < _LOWEST)))
        lost, tiny = lost + count, tiny + int(np.count_nonzero(below)) - count
    notes = []
    if tiny:
        notes.append(
            f"{tiny} {_entries(tiny)} below 2.2e-308, where doubles underflow to zero: fastmix reads such numbers, but "
            "other programs take them as 0, which forbids these states, or refuse them; npz files keep everything"
        )
    if lost:
        notes.append(
            f"{lost} {_entries(lost)} below exp({_LOWEST:.0e}) and written as 0, so that the file forbids these "
            "states; npz files keep everything"
        )
    return notes


def _entries(count: int) -> str:
    return "table entry is" if count == 1 else "table entries are"


def _table_chunks(values: FloatArray, sizes: IntArray) -> Iterator[str]:
    offsets = np.append(_starts(sizes), len(values))
    for first in range(0, len(sizes), _CHUNK_TABLES):
        cuts = offsets[first : first + _CHUNK_TABLES + 1].tolist()
        words = _entry_words(values[cuts[0] : cuts[-1]])
        base = cuts[0]
        yield "".join([f"{b - a}\n {' '.join(words[a - base : b - base])}\n" for a, b in itertools.pairwise(cuts)])


def _entry_words(values: FloatArray) -> list[str]:
    """Exponentials as text that gives the same double when read, whatever their size."""
    with np.errstate(under="ignore"):
        words = list(map(repr, np.exp(values).tolist()))
    for k in np.flatnonzero((values < _LOW) & (values > -np.inf)).tolist():
        words[k] = _tiny_word(float(values[k]))
    return words


def _tiny_word(value: float) -> str:
    """``exp(value)`` for values below the logarithm of the smallest double, from the power of ten."""
    return "0.0" if value < _LOWEST else _power_of_ten(value)


def _power_of_ten(value: float) -> str:
    """``exp(value)`` as a decimal of any size."""
    power = value / math.log(10.0)
    exponent = math.floor(power)
    return f"{10.0 ** (power - exponent):.16f}e{exponent}"


def _total(values: Iterable[float]) -> float:
    """The sum, correctly rounded; infinite when no double can hold it."""
    try:
        return math.fsum(values)
    except OverflowError:
        return math.inf


def _starts(sizes: IntArray) -> IntArray:
    return np.cumsum(sizes) - sizes
