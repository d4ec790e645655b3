"""The UAI model format: Markov and Bayesian networks as text.

A file is a list of words: ``MARKOV`` or ``BAYES`` (in any case), the number of variables, the number of states of each,
the number of factors, for each factor its scope (how many variables, then which), and for each factor its table (how
many entries, then the entries, the last variable of the scope changing fastest). In a ``BAYES`` file the tables are
conditional probabilities and the last variable of a scope is the child: it is a Bayesian network.

What the reader takes and refuses:

- Words are separated by any white space. Comments are stripped, see :mod:`fastmix.io.tokens`.
- Counts, variables and scope sizes are digits only: ``2.0`` and ``1e5`` are refused.
- Entries are decimal numbers, not negative. ``0`` is a log-potential of -inf. An entry outside the range of doubles,
  such as ``1e-400``, keeps its logarithm instead of turning into 0 or inf. ``inf`` and ``nan`` are refused.
- A table without any positive entry is refused, and so is a variable whose factors forbid all its states.
- Factors over the same variables are multiplied together; variables with a single state do not count.
- In a ``BAYES`` file every variable is the child of one table, rows sum to 1, and no variable is before itself. Rows
  that were printed with two digits or more are divided by their sums.

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
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO

import numpy as np

from fastmix._arrays import BoolArray, FloatArray, IntArray
from fastmix.errors import FormatError, ModelError
from fastmix.io.tokens import NumberText, cut_header, strip_comments
from fastmix.model import MarkovRandomField, check_model
from fastmix.model.build import join_factors, offsets_of
from fastmix.model.network import MOST_PARENTS, ROW_TOLERANCE, BayesianNetwork

__all__ = ["read", "read_tables", "write"]

_logger = logging.getLogger(__name__)

# How far the sum of a row of a network may be from 1: two digits for each entry, but no more than a few percent.
_ROUNDED = 0.005
_MOST_OFF = 0.05
_MARKOV = "a file of factors that are no conditional probabilities begins with MARKOV"
_SMALLEST_NORMAL = float(np.finfo(np.float64).tiny)
_SHORTEST_EXTREME = len("2e308")  # no shorter word is outside the range of normal doubles and yet not zero
_NONZERO_MANTISSA = re.compile(rb"[^eE]*[1-9]")

_LOW, _HIGH = -708.39, 709.78  # logarithms of the smallest and largest normal double, rounded inwards
_PIECE = 700.0  # size of the pieces of a constant that one double cannot hold
_MOST_PIECES = 10_000
_LOWEST = -1e15  # beyond this a logarithm keeps no decimals, and its power of ten no digits worth writing
_CHUNK_TABLES = 1 << 15


# -- reading ----------------------------------------------------------------------------------------------------------


def read(data: bytes, name: str, _max_bytes: float | None = None) -> MarkovRandomField | BayesianNetwork:
    """The model in a text in UAI format: of a written one, the constant holds the largest entries of all tables.

    A ``BAYES`` file gives a network, whose variables and states have numbers for names.
    """
    kind, data = cut_header(strip_comments(data, name), name, ("MARKOV", "BAYES"))
    numbers = NumberText(data, name)
    n, num_states = numbers.state_counts(0)
    num_factors = numbers.count(n + 1, "the number of factors")
    # The word with the size of each scope, whose variables follow; the sizes; the first word of the tables.
    words, kinds, end = numbers.blocks(n + 2, num_factors, "the scope of factor {}", whole=True)
    owner = np.repeat(np.arange(num_factors), kinds)
    places = np.arange(len(owner)) + np.repeat(words + 1 - offsets_of(kinds)[:-1], kinds)
    if kind == "BAYES":
        children = _children(numbers, n, words, kinds)
        parents = np.ones(len(places), dtype=bool)
        parents[offsets_of(kinds)[1:] - 1] = False
        return read_tables(numbers, num_states, owner[parents], places[parents], kinds - 1, end, children)(None, None)
    variables = _variables(numbers, n, places, owner)
    exact = _sizes(num_factors, owner, num_states[variables])
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


def _sizes(num_factors: int, owner: IntArray, counts: IntArray) -> FloatArray:
    """The entries of the table of each factor, as doubles, because the product of a long scope may exceed 64 bits.

    ``counts`` are the numbers of states of the variables in all scopes, and ``owner`` the factor of each.
    """
    exact = np.ones(num_factors)
    with np.errstate(over="ignore"):
        np.multiply.at(exact, owner, counts.astype(np.float64))
    return exact


def _variables(numbers: NumberText, n: int, places: IntArray, owner: IntArray) -> IntArray:
    """The variables of all scopes, whose words are given, checked; ``owner`` is the factor of each."""
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


# -- Bayesian networks ------------------------------------------------------------------------------------------------


def _children(numbers: NumberText, n: int, words: IntArray, kinds: IntArray) -> IntArray:
    """The last variable of each scope, checked: every variable has one table."""
    if (empty := np.flatnonzero(kinds == 0)).size:
        numbers.fail(int(words[empty[0]]), f"factor {empty[0]} must name the variable whose table it is; {_MARKOV}")
    last = words + kinds
    given = numbers.values[last]
    if (bad := np.flatnonzero(given >= n)).size:
        numbers.fail(int(last[bad[0]]), f"factor {bad[0]} must name a variable from 0 to {n - 1}")
    children = given.astype(np.int64)
    first = np.full(n, -1)
    first[children[::-1]] = np.arange(len(children))[::-1]
    if (again := np.flatnonzero(first[children] != np.arange(len(children)))).size:
        k = int(again[0])
        numbers.fail(int(last[k]), f"each variable must be the last of one factor, but two end in it; {_MARKOV}")
    if len(children) < n:
        message = f"each variable must be the last of one factor, but variable {int((first < 0).argmax())} is of none"
        raise FormatError(f"{numbers.name}:{numbers.line(n + 1)}: {message}; {_MARKOV}")
    return children


NetworkMaker = Callable[[Sequence[str] | None, Sequence[Sequence[str]] | None], BayesianNetwork]


def read_tables(
    numbers: NumberText,
    num_states: IntArray,
    owner: IntArray,
    places: IntArray,
    kinds: IntArray,
    end: int,
    children: IntArray | None = None,
) -> NetworkMaker:
    """The network whose tables begin at the word ``end``, as a function of the names of variables and of states.

    ``places`` are the words of the parents in all tables, ``owner`` (a table for each of them) and ``kinds`` (n,) say
    which and how many belong to which table. Table k is that of variable ``children[k]``, k itself by default.
    """
    n, name = len(num_states), numbers.name
    own = np.arange(n) if children is None else children
    at = offsets_of(kinds)
    # The variables of all scopes, and their words: parents and then the child, which has been checked.
    scope_owner = np.repeat(np.arange(n), kinds + 1)
    is_child = np.zeros(len(scope_owner), dtype=bool)
    is_child[at[1:] + np.arange(n)] = True
    given = np.empty(len(scope_owner), dtype=np.int64)
    given[~is_child] = _variables(numbers, n, places, owner)
    given[is_child] = own
    itself = np.flatnonzero(given[~is_child] == own[owner])
    if itself.size:
        k = int(itself[0])
        numbers.fail(int(places[k]), f"variable {own[owner[k]]} must not be its own parent")
    if (many := np.flatnonzero(kinds > MOST_PARENTS)).size:
        k = int(many[0])
        word = int(places[at[k]])
        message = f"{name}:{numbers.line(word)}: variable {own[k]} must have at most {MOST_PARENTS} parents"
        raise FormatError(f"{message}, got {kinds[k]}; {_MARKOV}")
    tables, sizes = _locate_tables(numbers, end, _sizes(n, scope_owner, num_states[given]))
    _log_entries(numbers, end, tables, sizes)
    values = _normalized(numbers, num_states, own, tables, sizes)
    scopes = [given[a:b].tolist() for a, b in itertools.pairwise(at + np.arange(n + 1))]
    order = np.argsort(own)
    starts = offsets_of(sizes)

    def make(names: Sequence[str] | None, states: Sequence[Sequence[str]] | None) -> BayesianNetwork:
        try:
            return BayesianNetwork(
                tuple(names or map(str, range(n))),
                tuple(map(tuple, states or (map(str, range(count)) for count in num_states.tolist()))),
                tuple(tuple(scopes[k][:-1]) for k in order),
                tuple(values[starts[k] : starts[k + 1]].reshape(num_states[scopes[k]]) for k in order),
                numbered=names is None,
            )
        except ModelError as error:  # of a cycle
            raise FormatError(f"{name}:{numbers.line(n + 1)}: {error}") from None

    return make


def _normalized(
    numbers: NumberText, num_states: IntArray, own: IntArray, tables: IntArray, sizes: IntArray
) -> FloatArray:
    """The entries of all tables, rows that were printed with few digits divided by their sums; others are refused."""
    name = numbers.name
    places = np.arange(int(sizes.sum())) + np.repeat(tables + 1 - offsets_of(sizes)[:-1], sizes)
    values = numbers.values[places]
    widths = np.repeat(num_states[own], sizes // num_states[own])  # of the rows
    rows = offsets_of(widths)
    if not len(widths):
        return values
    with np.errstate(over="ignore", invalid="ignore"):
        sums = np.add.reduceat(values, rows[:-1])
        off = np.abs(sums - 1.0)
    bad = np.flatnonzero(~(off <= ROW_TOLERANCE + np.minimum(_MOST_OFF, _ROUNDED * widths)))
    if bad.size:
        row = int(bad[0])
        k = int(np.searchsorted(offsets_of(sizes), rows[row], side="right")) - 1
        which = (int(rows[row]) - int(offsets_of(sizes)[k])) // int(num_states[own[k]])
        line = numbers.line(int(places[rows[row]]))
        message = (
            f"the probabilities of variable {own[k]} must sum to 1 in each row, got {sums[row]:.6g} in row {which}"
        )
        raise FormatError(f"{name}:{line}: {message}; {_MARKOV}")
    if (coarse := off > ROW_TOLERANCE).any():
        _logger.warning(
            "%s: rows of probabilities that were rounded and do not sum to 1 (%d, by up to %.2g) are normalized",
            name, np.count_nonzero(coarse), off.max(),
        )  # fmt: skip
        values /= np.repeat(np.where(coarse, sums, 1.0), widths)
    return values


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
