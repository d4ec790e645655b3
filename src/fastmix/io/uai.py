"""The UAI model format: Markov and Bayesian networks as text.

A file is a list of words: ``MARKOV`` or ``BAYES`` (in any case), the number of variables, the number of states of each,
the number of factors, for each factor its scope (how many variables, then which), and for each factor its table (how
many entries, then the entries, the last variable of the scope changing fastest). In a ``BAYES`` file the tables are
conditional probabilities and the last variable of a scope is the child; they multiply like any other factors.

What the reader takes and refuses:

- Words are separated by any white space. Comments are stripped, see :mod:`fastmix.io.tokens`.
- Counts, variables and scope sizes are digits only: ``2.0`` and ``1e5`` are refused.
- Entries are decimal numbers, not negative. ``0`` is a log-potential of -inf. An entry outside the range of doubles,
  such as ``1e-400``, keeps its logarithm instead of turning into 0 or inf. ``inf`` and ``nan`` are refused.
- A table without any positive entry is refused, and so is a variable whose factors forbid all its states.
- Factors over the same variables are multiplied together; variables with a single state do not count.

The writer writes each table as its exponentials, to the last digit, divided by the largest so that this becomes 1. The
scales, together with ``log_constant``, are one factor over no variables, left out when it is 1 and split into several
when no double can hold it, so that log Z survives. Variables whose unary is zero get no unary factor.
"""

from __future__ import annotations

import decimal
import itertools
import logging
import math
import re
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

from fastmix._arrays import BoolArray, FloatArray, IntArray
from fastmix.errors import FormatError, ModelError
from fastmix.io.tokens import NumberText, cut_header, strip_comments
from fastmix.model import MarkovRandomField, check_model
from fastmix.model.build import join_factors, offsets_of

__all__ = ["read", "write"]

_logger = logging.getLogger(__name__)

# A variable in a factor has at least one table entry per state, but one in no factor costs a single word whatever its
# number of states. The states in all are limited to this many, plus so many per word, to keep memory in proportion.
_FREE_STATES = 1 << 20
_STATES_PER_WORD = 64
_SMALLEST_NORMAL = float(np.finfo(np.float64).tiny)
_SHORTEST_EXTREME = len("2e308")  # no shorter word is outside the range of normal doubles and yet not zero
_NONZERO_MANTISSA = re.compile(rb"[^eE]*[1-9]")

_LOW, _HIGH = -708.39, 709.78  # logarithms of the smallest and largest normal double, rounded inwards
_PIECE = 700.0  # size of the pieces of a constant that one double cannot hold
_MOST_PIECES = 10_000
_LOWEST = -1e15  # beyond this a logarithm keeps no decimals, and its power of ten no digits worth writing
_CHUNK_TABLES = 1 << 15


# -- reading ----------------------------------------------------------------------------------------------------------


def read(data: bytes, name: str, _max_bytes: float | None = None) -> MarkovRandomField:
    """The model in a text in UAI format: of a written one, the constant holds the largest entries of all tables."""
    _, data = cut_header(strip_comments(data, name), name, ("MARKOV", "BAYES"))
    numbers = NumberText(data, name)
    n = numbers.count(0, "the number of variables")
    num_states = _state_counts(numbers, n)
    num_factors = numbers.count(n + 1, "the number of factors")
    # The word with the size of each scope, whose variables follow; the sizes; the first word of the tables.
    words, kinds, end = numbers.blocks(n + 2, num_factors, "the scope of factor {}", whole=True)
    owner = np.repeat(np.arange(num_factors), kinds)
    variables = _variables(numbers, n, words, kinds, owner)
    exact = np.ones(num_factors)  # as doubles, because the product of a long scope may exceed 64 bits
    with np.errstate(over="ignore"):
        np.multiply.at(exact, owner, num_states[variables].astype(np.float64))
    tables, sizes = _locate_tables(numbers, end, exact)
    entries = _log_entries(numbers, end, tables, sizes)
    kept = (num_states[variables] > 1) | (kinds <= 2)[owner]  # larger factors without variables of a single state
    kinds, variables = np.bincount(owner[kept], minlength=num_factors), variables[kept]
    parts = join_factors(num_states, kinds, variables, sizes, entries)
    if (dead := _dead_tables(parts["log_unary"], num_states)).size:
        of_one = np.flatnonzero(kinds == 1)
        k = of_one[variables[offsets_of(kinds)[of_one]] == dead[0]].max()
        reason = f"the factors must allow variable {dead[0]} a state, but with factor {k} none is left"
        raise FormatError(f"{name}:{numbers.line(int(tables[k]))}: {reason}")
    return MarkovRandomField(num_states, **parts)


def _state_counts(numbers: NumberText, n: int) -> IntArray:
    numbers.require_whole(1, n + 1, "the numbers of states")
    counts = numbers.values[1 : n + 1]
    if n and counts.min() < 1:
        i = int(counts.argmin())
        numbers.fail(i + 1, f"the number of states of variable {i} must be at least 1")
    limit = _FREE_STATES + _STATES_PER_WORD * len(numbers)
    with np.errstate(over="ignore"):
        total = counts.sum()
    if not total <= limit:
        i = int(counts.argmax())
        numbers.fail(
            i + 1,
            f"the variables must have at most {limit} states in all in a file of {len(numbers)} numbers; "
            f"variable {i} has the most",
        )
    return counts.astype(np.int64)


def _variables(numbers: NumberText, n: int, words: IntArray, kinds: IntArray, owner: IntArray) -> IntArray:
    """The variables of all scopes one after another, checked; ``owner`` is the factor of each."""
    places = np.arange(len(owner)) + np.repeat(words + 1 - offsets_of(kinds)[:-1], kinds)
    given = numbers.values[places]
    if (bad := np.flatnonzero(given >= n)).size:
        known = f"a variable from 0 to {n - 1}" if n else "no variable, because the file has none"
        numbers.fail(int(places[bad[0]]), f"factor {owner[bad[0]]} must name {known}")
    variables = given.astype(np.int64)
    keys = owner * n + variables
    order = np.argsort(keys, kind="stable")
    if (twice := order[1:][np.diff(keys[order]) == 0]).size:
        numbers.fail(int(places[twice.min()]), f"factor {owner[twice.min()]} must name each variable once")
    return variables


def _locate_tables(numbers: NumberText, end: int, exact: FloatArray) -> tuple[IntArray, IntArray]:
    """The word with the entry count of each table, and the counts, all of them checked against the file."""
    total = len(numbers)
    sizes = np.minimum(exact, total + 1).astype(np.int64)
    starts = end + offsets_of(1 + sizes)
    inside = np.flatnonzero(starts[:-1] < total)
    given = starts[inside]
    wrong = np.flatnonzero((numbers.values[given] != exact[inside]) | ~numbers.whole[given])
    if wrong.size:
        k = int(inside[wrong[0]])
        numbers.fail(int(starts[k]), f"the table of factor {k} must have {_count_text(exact[k])} entries")
    if (last := int(starts[-1])) > total:
        k = int(np.searchsorted(starts, total, side="right")) - 1
        if starts[k] == total:
            numbers.fail_at_end(f"the table of factor {k}")
        numbers.fail_at_end(f"entry {total - int(starts[k])} of the {_count_text(exact[k])} in the table of factor {k}")
    if last < total:
        numbers.fail(last, "the file must end after the last table")
    return starts[:-1], sizes


def _count_text(count: float) -> str:
    """A count of entries in a message, also one of hundreds of digits."""
    return f"{count:.0f}" if count < 1e15 else f"{count:.3g}"


def _log_entries(numbers: NumberText, end: int, tables: IntArray, sizes: IntArray) -> FloatArray:
    """Logarithms of all table entries one after another."""
    region = numbers.values[end:]
    is_entry = np.ones(len(region), dtype=bool)
    is_entry[tables - end] = False
    if (negative := np.flatnonzero(region < 0)).size:
        numbers.fail(end + int(negative[0]), "table entries must not be negative")
    with np.errstate(divide="ignore"):
        logs = np.log(region)
    suspects = end + np.flatnonzero(is_entry & ((region < _SMALLEST_NORMAL) | (region == np.inf)))
    for index in suspects[numbers.widths(suspects) >= _SHORTEST_EXTREME].tolist():
        if _NONZERO_MANTISSA.match(numbers.word(index)):
            logs[index - end] = _log_of_extreme(numbers, index)
    entries: FloatArray = logs[is_entry]
    if (dead := _dead_tables(entries, sizes)).size:
        k = int(dead[0])
        reason = f"the table of factor {k} must have a positive entry, got {sizes[k]} times 0"
        raise FormatError(f"{numbers.name}:{numbers.line(int(tables[k]) + 1)}: {reason}")
    return entries


def _log_of_extreme(numbers: NumberText, index: int) -> float:
    """Logarithm of a positive number outside the range of normal doubles."""
    try:
        number = decimal.Decimal(numbers.word(index).decode())
    except decimal.InvalidOperation:
        numbers.fail(index, "table entries must have an exponent of less than 19 digits")
    if number.is_signed():
        numbers.fail(index, "table entries must not be negative")
    digits = "".join(map(str, number.as_tuple().digits[:20]))
    return math.log(float(f"{digits[0]}.{digits[1:]}")) + number.adjusted() * math.log(10.0)


def _dead_tables(values: FloatArray, sizes: IntArray) -> IntArray:
    """Tables all of whose entries are -inf."""
    if not len(values) or values.min() > -np.inf:
        return np.zeros(0, dtype=np.int64)
    return np.flatnonzero(np.maximum.reduceat(values, offsets_of(sizes)[:-1]) == -np.inf)


# -- writing ----------------------------------------------------------------------------------------------------------


def write(model: MarkovRandomField, stream: BinaryIO) -> list[str]:
    """Write a model as UAI text; see :func:`fastmix.io.write_model` for the notes."""
    check_model(model)
    if (dead := _dead_tables(model.log_pairwise, np.diff(model.pairwise_offsets))).size:
        i, j = model.edges[dead[0]].tolist()
        raise ModelError(f"log_pairwise must allow a pair of states on each edge, but edge ({i}, {j}) has only -inf")
    if (dead := _dead_tables(model.log_factors, np.diff(model.factor_offsets))).size:
        raise ModelError(f"log_factors must allow a configuration of each factor, but factor {dead[0]} has only -inf")
    kept = _used(model.log_unary, model.unary_offsets)
    # Edges of zeros between the variables of a factor come back with the factor.
    kept_pairs = np.ones(model.num_edges, dtype=bool)
    kept_pairs[model.structure.scope_pairs] = False
    kept_pairs |= _used(model.log_pairwise, model.pairwise_offsets)
    # Unaries, edge tables and larger ones, with a largest entry of 0: what is taken off goes into the constant.
    sizes, tables, shifts = [], [], [model.log_constant]
    for values, offsets, keep in (
        (model.log_unary, model.unary_offsets, kept),
        (model.log_pairwise, model.pairwise_offsets, kept_pairs),
        (model.log_factors, model.factor_offsets, np.ones(model.num_factors, dtype=bool)),
    ):
        own = np.diff(offsets)
        table, shift = _scaled(values if keep.all() else values[np.repeat(keep, own)], own[keep])
        sizes.append(own[keep])
        tables.append(table)
        shifts.append(shift)
    constant = math.fsum(shifts)
    factors = _constant_words(constant)
    notes = _notes(model, constant, tables)
    for note in notes:
        _logger.warning("UAI: %s", note)

    def put(text: str) -> None:
        stream.write(text.encode("ascii"))

    counts = " ".join(map(str, model.num_states.tolist()))
    put(f"MARKOV\n{model.num_variables}\n{counts}\n{sum(map(len, sizes)) + len(factors)}\n")
    for scopes in (np.flatnonzero(kept)[:, None], model.edges[kept_pairs]):
        for start in range(0, len(scopes), _CHUNK_TABLES):
            rows = scopes[start : start + _CHUNK_TABLES].tolist()
            put("".join([f"{len(row)} {' '.join(map(str, row))}\n" for row in rows]))
    put("".join([f"{len(scope)} {' '.join(map(str, scope.tolist()))}\n" for scope in model.structure.scopes]))
    put("0\n" * len(factors) + "\n")
    for values, own in zip(tables, sizes, strict=True):
        for chunk in _table_chunks(values, own):
            put(chunk)
    put("".join([f"1\n {word}\n" for word in factors]))
    return notes


def _used(values: FloatArray, offsets: IntArray) -> BoolArray:
    """Which tables have an entry that is not 0."""
    return np.logical_or.reduceat(values != 0, offsets[:-1]) if len(values) else np.zeros(0, dtype=bool)


def _scaled(values: FloatArray, sizes: IntArray) -> tuple[FloatArray, float]:
    """Log-tables with a largest entry of 0, and the sum of what was taken off."""
    if not len(values):
        return values, 0.0
    shift = np.maximum.reduceat(values, offsets_of(sizes)[:-1])
    return values - np.repeat(shift, sizes), math.fsum(shift.tolist())


def _constant_words(constant: float) -> list[str]:
    """A constant as numbers to write: one, several equal ones, or, beyond all use, one with a large power of ten."""
    if constant == 0:
        return []
    if _LOW <= constant <= _HIGH:
        return [repr(math.exp(constant))]
    count = math.ceil(abs(constant) / _PIECE)
    return [repr(math.exp(constant / count))] * count if count <= _MOST_PIECES else [_power_of_ten(constant)]


def _notes(model: MarkovRandomField, constant: float, tables: list[FloatArray]) -> list[str]:
    """What others will not read: names, constants, and entries too small for a double."""
    notes = []
    if model.variable_names is not None or model.state_names is not None:
        notes.append("names are not written, because UAI files have none; npz files keep them")
    if not _LOW <= constant <= _HIGH:
        notes.append(
            f"the constant exp({constant:.6g}) is outside the range of doubles: programs that do not add logarithms "
            "overflow; npz files keep it as one number"
        )
    if tiny := sum(int(np.count_nonzero((table < _LOW) & (table > -np.inf))) for table in tables):
        notes.append(
            f"table entries below 2.2e-308, where doubles underflow to zero: {tiny}; other programs take them as 0, "
            f"which forbids these states, as fastmix does below exp({_LOWEST:.0e}), or refuse them; npz files keep them"
        )
    return notes


def _table_chunks(values: FloatArray, sizes: IntArray) -> Iterator[str]:
    """Exponentials as text that gives the same doubles when read, whatever their size."""
    offsets = offsets_of(sizes)
    for first in range(0, len(sizes), _CHUNK_TABLES):
        cuts = offsets[first : first + _CHUNK_TABLES + 1].tolist()
        part, base = values[cuts[0] : cuts[-1]], cuts[0]
        with np.errstate(under="ignore"):
            words = list(map(repr, np.exp(part).tolist()))
        for k in np.flatnonzero((part < _LOW) & (part > -np.inf)).tolist():
            words[k] = "0.0" if part[k] < _LOWEST else _power_of_ten(float(part[k]))
        yield "".join([f"{b - a}\n {' '.join(words[a - base : b - base])}\n" for a, b in itertools.pairwise(cuts)])


def _power_of_ten(value: float) -> str:
    """``exp(value)`` as a decimal of any size."""
    power = value / math.log(10.0)
    exponent = math.floor(power)
    return f"{10.0 ** (power - exponent):.16f}e{exponent}"
