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
from typing import BinaryIO, NamedTuple

import numpy as np

from fastmix._arrays import BoolArray, FloatArray, IntArray
from fastmix.errors import FormatError, ModelError
from fastmix.io.tokens import NumberText, cut_header, strip_comments
from fastmix.io.tuning import (
    CONSTANT_PIECE,
    MAX_CONSTANT_PIECES,
    MAX_ROW_ERROR,
    ROW_ERROR_PER_ENTRY,
    TABLES_PER_CHUNK,
)
from fastmix.model import MarkovRandomField, check_model
from fastmix.model.flat import offsets_of
from fastmix.model.merging import join_factors
from fastmix.model.network import MOST_PARENTS, ROW_TOLERANCE, BayesianNetwork

__all__ = ["read", "read_tables", "write"]

_logger = logging.getLogger(__name__)

_MARKOV = "a file of factors that are no conditional probabilities begins with MARKOV"
_SMALLEST_NORMAL = float(np.finfo(np.float64).tiny)
_SHORTEST_EXTREME = len("2e308")  # no shorter word is outside the range of normal doubles and yet not zero
_NONZERO_MANTISSA = re.compile(rb"[^eE]*[1-9]")

# Logarithms of the smallest and the largest normal double, rounded inwards.
_LOW = -708.39
_HIGH = 709.78
_LOWEST = -1e15  # beyond this a logarithm keeps no decimals, and its power of ten no digits worth writing


# -- reading ----------------------------------------------------------------------------------------------------------


def read(data: bytes, name: str, _max_bytes: float | None = None) -> MarkovRandomField | BayesianNetwork:
    """The model in a text in UAI format, or the network in a ``BAYES`` file, with numbers for names.

    In a model that this module wrote the constant holds the largest entries of all tables.
    """
    kind, data = cut_header(strip_comments(data, name), name, ("MARKOV", "BAYES"))
    numbers = NumberText(data, name)
    n, num_states = numbers.state_counts(0)
    num_factors = numbers.count(n + 1, "the number of factors")
    # Of each scope the word with its size, and the size; the first word of the tables.
    sizes_at, widths, end = numbers.blocks(n + 2, num_factors, "the scope of factor {}", whole=True)
    starts = offsets_of(widths)
    owner = np.repeat(np.arange(num_factors), widths)
    places = np.arange(len(owner)) + np.repeat(sizes_at + 1 - starts[:-1], widths)
    if kind == "BAYES":
        children = _children(numbers, n, sizes_at, widths)
        is_parent = np.ones(len(places), dtype=bool)
        is_parent[starts[1:] - 1] = False
        make_network = read_tables(numbers, num_states, owner[is_parent], places[is_parent], widths - 1, end, children)
        return make_network(None, None)
    variables = _variables(numbers, n, places, owner)
    tables_at, sizes = _locate_tables(numbers, end, _sizes(num_factors, owner, num_states[variables]))
    entries = _log_entries(numbers, end, tables_at, sizes)
    # Variables with a single state leave larger factors.
    kept = (num_states[variables] > 1) | (widths <= 2)[owner]
    variables = variables[kept]
    widths = np.bincount(owner[kept], minlength=num_factors)
    parts = join_factors(num_states, widths, variables, sizes, entries)
    dead = _dead_tables(parts["log_unary"], num_states)
    if dead.size:
        factors_of_one = np.flatnonzero(widths == 1)
        k = factors_of_one[variables[offsets_of(widths)[factors_of_one]] == dead[0]].max()
        reason = f"the factors must allow variable {dead[0]} a state, but with factor {k} none is left"
        raise FormatError(f"{name}:{numbers.line(int(tables_at[k]))}: {reason}")
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
    """The variables at the given words of all scopes, checked; ``owner`` is the factor of each."""
    given = numbers.values[places]
    unknown = np.flatnonzero(given >= n)
    if unknown.size:
        known = f"a variable from 0 to {n - 1}" if n else "no variable, because the file has none"
        numbers.fail(int(places[unknown[0]]), f"factor {owner[unknown[0]]} must name {known}")
    variables = given.astype(np.int64)
    keys = owner * n + variables
    order = np.argsort(keys, kind="stable")
    repeated = order[1:][np.diff(keys[order]) == 0]
    if repeated.size:
        k = repeated.min()
        numbers.fail(int(places[k]), f"factor {owner[k]} must name each variable once")
    return variables


def _locate_tables(numbers: NumberText, end: int, exact: FloatArray) -> tuple[IntArray, IntArray]:
    """The word with the entry count of each table, and the counts, all of them checked against the file.

    ``end`` is the word that the tables begin at, and ``exact`` the counts that the scopes ask for.
    """
    num_words = len(numbers)
    sizes = np.minimum(exact, num_words + 1).astype(np.int64)
    starts = end + offsets_of(1 + sizes)
    inside = np.flatnonzero(starts[:-1] < num_words)
    given = starts[inside]
    wrong = np.flatnonzero((numbers.values[given] != exact[inside]) | ~numbers.whole[given])
    if wrong.size:
        k = int(inside[wrong[0]])
        numbers.fail(int(starts[k]), f"the table of factor {k} must have {_count_text(exact[k])} entries")
    last = int(starts[-1])
    if last > num_words:
        k = int(np.searchsorted(starts, num_words, side="right")) - 1
        if starts[k] == num_words:
            numbers.fail_at_end(f"the table of factor {k}")
        entry = num_words - int(starts[k])
        numbers.fail_at_end(f"entry {entry} of the {_count_text(exact[k])} in the table of factor {k}")
    if last < num_words:
        numbers.fail(last, "the file must end after the last table")
    return starts[:-1], sizes


def _count_text(count: float) -> str:
    """A count of entries as it stands in a message, even one of hundreds of digits."""
    return f"{count:.0f}" if count < 1e15 else f"{count:.3g}"


def _log_entries(numbers: NumberText, end: int, tables_at: IntArray, sizes: IntArray) -> FloatArray:
    """Logarithms of all table entries one after another; the tables begin at the word ``end``."""
    region = numbers.values[end:]
    is_entry = np.ones(len(region), dtype=bool)
    is_entry[tables_at - end] = False
    negative = np.flatnonzero(region < 0)
    if negative.size:
        numbers.fail(end + int(negative[0]), "table entries must not be negative")
    with np.errstate(divide="ignore"):
        logs = np.log(region)
    # Doubles have no number for some words, which keep their logarithms all the same.
    is_extreme = is_entry & ((region < _SMALLEST_NORMAL) | (region == np.inf))
    extremes = end + np.flatnonzero(is_extreme)
    for index in extremes[numbers.widths(extremes) >= _SHORTEST_EXTREME].tolist():
        if _NONZERO_MANTISSA.match(numbers.word(index)):
            logs[index - end] = _log_of_extreme(numbers, index)
    entries: FloatArray = logs[is_entry]
    dead = _dead_tables(entries, sizes)
    if dead.size:
        k = int(dead[0])
        reason = f"the table of factor {k} must have a positive entry, got {sizes[k]} times 0"
        raise FormatError(f"{numbers.name}:{numbers.line(int(tables_at[k]) + 1)}: {reason}")
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
    """Numbers of the tables all of whose entries are -inf."""
    if not len(values) or values.min() > -np.inf:
        return np.zeros(0, dtype=np.int64)
    return np.flatnonzero(np.maximum.reduceat(values, offsets_of(sizes)[:-1]) == -np.inf)


# -- Bayesian networks ------------------------------------------------------------------------------------------------


def _children(numbers: NumberText, n: int, sizes_at: IntArray, widths: IntArray) -> IntArray:
    """The last variable of each scope, checked: every variable has one table."""
    empty = np.flatnonzero(widths == 0)
    if empty.size:
        numbers.fail(int(sizes_at[empty[0]]), f"factor {empty[0]} must name the variable whose table it is; {_MARKOV}")
    last = sizes_at + widths
    given = numbers.values[last]
    unknown = np.flatnonzero(given >= n)
    if unknown.size:
        numbers.fail(int(last[unknown[0]]), f"factor {unknown[0]} must name a variable from 0 to {n - 1}")
    children = given.astype(np.int64)
    first_factor = np.full(n, -1)
    first_factor[children[::-1]] = np.arange(len(children))[::-1]
    repeated = np.flatnonzero(first_factor[children] != np.arange(len(children)))
    if repeated.size:
        message = f"each variable must be the last of one factor, but two end in it; {_MARKOV}"
        numbers.fail(int(last[repeated[0]]), message)
    if len(children) < n:
        missing = int((first_factor < 0).argmax())
        message = f"each variable must be the last of one factor, but variable {missing} is of none"
        raise FormatError(f"{numbers.name}:{numbers.line(n + 1)}: {message}; {_MARKOV}")
    return children


NetworkMaker = Callable[[Sequence[str] | None, Sequence[Sequence[str]] | None], BayesianNetwork]


def read_tables(
    numbers: NumberText,
    num_states: IntArray,
    owner: IntArray,
    places: IntArray,
    num_parents: IntArray,
    end: int,
    children: IntArray | None = None,
) -> NetworkMaker:
    """The network whose tables begin at the word ``end``, as a function of the names of variables and of states.

    Parameters
    ----------
    numbers : NumberText
        The words of the file.
    num_states : int array (n,)
    owner : int array (k,)
        The table that each parent belongs to, for the parents of all tables.
    places : int array (k,)
        The words of the parents.
    num_parents : int array (n,)
        The number of parents of every table.
    end : int
    children : int array (n,), optional
        The variable of every table; by default table k is that of variable k.
    """
    n = len(num_states)
    own = np.arange(n) if children is None else children
    variables = _variables(numbers, n, places, owner)
    itself = np.flatnonzero(variables == own[owner])
    if itself.size:
        k = int(itself[0])
        numbers.fail(int(places[k]), f"variable {own[owner[k]]} must not be its own parent")
    starts_of_parents = offsets_of(num_parents)
    too_many = np.flatnonzero(num_parents > MOST_PARENTS)
    if too_many.size:
        k = int(too_many[0])
        line = numbers.line(int(places[starts_of_parents[k]]))
        message = f"variable {own[k]} must have at most {MOST_PARENTS} parents, got {num_parents[k]}"
        raise FormatError(f"{numbers.name}:{line}: {message}; {_MARKOV}")
    # Scopes are the parents and then the child, one scope after another.
    starts_of_scopes = starts_of_parents + np.arange(n + 1)
    is_child = np.zeros(len(variables) + n, dtype=bool)
    is_child[starts_of_scopes[1:] - 1] = True
    members = np.empty(len(is_child), dtype=np.int64)
    members[~is_child] = variables
    members[is_child] = own
    table_of_member = np.repeat(np.arange(n), num_parents + 1)
    tables_at, sizes = _locate_tables(numbers, end, _sizes(n, table_of_member, num_states[members]))
    _log_entries(numbers, end, tables_at, sizes)
    values = _normalized(numbers, num_states, own, tables_at, sizes)
    starts = offsets_of(sizes)
    parents: list[tuple[int, ...]] = []
    tables: list[FloatArray] = []
    for k in np.argsort(own):
        scope = members[starts_of_scopes[k] : starts_of_scopes[k + 1]].tolist()
        parents.append(tuple(scope[:-1]))
        tables.append(values[starts[k] : starts[k + 1]].reshape(num_states[scope]))

    def make(names: Sequence[str] | None, states: Sequence[Sequence[str]] | None) -> BayesianNetwork:
        if states is None:
            states = [[str(state) for state in range(count)] for count in num_states.tolist()]
        try:
            return BayesianNetwork(
                tuple(names or map(str, range(n))),
                tuple(tuple(labels) for labels in states),
                tuple(parents),
                tuple(tables),
                numbered=names is None,
            )
        except ModelError as error:  # of a cycle
            raise FormatError(f"{numbers.name}:{numbers.line(n + 1)}: {error}") from None

    return make


def _normalized(
    numbers: NumberText, num_states: IntArray, own: IntArray, tables_at: IntArray, sizes: IntArray
) -> FloatArray:
    """The entries of all tables; rows that were printed with few digits are divided by their sums.

    Other rows that do not sum to 1 are refused. ``own`` is the variable of every table, whose states make a row.
    """
    starts = offsets_of(sizes)
    places = np.arange(int(starts[-1])) + np.repeat(tables_at + 1 - starts[:-1], sizes)
    values = numbers.values[places]
    row_lengths = np.repeat(num_states[own], sizes // num_states[own])
    if not len(row_lengths):
        return values
    rows = offsets_of(row_lengths)
    with np.errstate(over="ignore", invalid="ignore"):
        sums = np.add.reduceat(values, rows[:-1])
        off = np.abs(sums - 1.0)
    allowed = ROW_TOLERANCE + np.minimum(MAX_ROW_ERROR, ROW_ERROR_PER_ENTRY * row_lengths)
    bad = np.flatnonzero(~(off <= allowed))
    if bad.size:
        row = int(bad[0])
        k = int(np.searchsorted(starts, rows[row], side="right")) - 1
        row_of_table = (int(rows[row]) - int(starts[k])) // int(num_states[own[k]])
        line = numbers.line(int(places[rows[row]]))
        message = f"the probabilities of variable {own[k]} must sum to 1 in each row"
        raise FormatError(f"{numbers.name}:{line}: {message}, got {sums[row]:.6g} in row {row_of_table}; {_MARKOV}")
    is_coarse = off > ROW_TOLERANCE
    if is_coarse.any():
        _logger.warning(
            "%s: rows of probabilities that were rounded and do not sum to 1 (%d, by up to %.2g) are normalized",
            numbers.name,
            np.count_nonzero(is_coarse),
            off.max(),
        )
        values /= np.repeat(np.where(is_coarse, sums, 1.0), row_lengths)
    return values


# -- writing ----------------------------------------------------------------------------------------------------------


def write(model: MarkovRandomField, stream: BinaryIO) -> list[str]:
    """Write a model as UAI text; see :func:`fastmix.io.write_model` for the notes."""
    check_model(model)
    _check_tables(model)
    # Unaries of zeros are left out, and so are edges of zeros within a factor, which come back with it.
    kept_unaries = _used(model.log_unary, model.unary_offsets)
    kept_edges = np.ones(model.num_edges, dtype=bool)
    kept_edges[model.structure.scope_pairs] = False
    kept_edges |= _used(model.log_pairwise, model.pairwise_offsets)
    kept_factors = np.ones(model.num_factors, dtype=bool)
    # Tables have a largest entry of 0: what is taken off goes into the constant.
    groups = [
        _scaled_tables(model.log_unary, model.unary_offsets, kept_unaries),
        _scaled_tables(model.log_pairwise, model.pairwise_offsets, kept_edges),
        _scaled_tables(model.log_factors, model.factor_offsets, kept_factors),
    ]
    constant = math.fsum([model.log_constant, *(group.taken for group in groups)])
    constant_words = _constant_words(constant)
    notes = _notes(model, constant, [group.values for group in groups])
    for note in notes:
        _logger.warning("UAI: %s", note)

    def put(text: str) -> None:
        stream.write(text.encode("ascii"))

    num_factors = sum(len(group.sizes) for group in groups) + len(constant_words)
    counts = " ".join(map(str, model.num_states.tolist()))
    put(f"MARKOV\n{model.num_variables}\n{counts}\n{num_factors}\n")
    for scopes in (np.flatnonzero(kept_unaries)[:, None], model.edges[kept_edges]):
        for start in range(0, len(scopes), TABLES_PER_CHUNK):
            put("".join(map(_scope_line, scopes[start : start + TABLES_PER_CHUNK].tolist())))
    put("".join(_scope_line(scope.tolist()) for scope in model.structure.scopes))
    put("0\n" * len(constant_words) + "\n")
    for group in groups:
        for chunk in _table_chunks(group.values, group.sizes):
            put(chunk)
    put("".join([f"1\n {word}\n" for word in constant_words]))
    return notes


def _check_tables(model: MarkovRandomField) -> None:
    """Raise a :class:`ModelError` for a table that forbids everything, which no UAI file can hold."""
    dead = _dead_tables(model.log_pairwise, np.diff(model.pairwise_offsets))
    if dead.size:
        i, j = model.edges[dead[0]].tolist()
        raise ModelError(f"log_pairwise must allow a pair of states on each edge, but edge ({i}, {j}) has only -inf")
    dead = _dead_tables(model.log_factors, np.diff(model.factor_offsets))
    if dead.size:
        raise ModelError(f"log_factors must allow a configuration of each factor, but factor {dead[0]} has only -inf")


def _scope_line(variables: list[int]) -> str:
    """The line of a scope: its size, and its variables."""
    return f"{len(variables)} {' '.join(map(str, variables))}\n"


class _ScaledTables(NamedTuple):
    """Log-tables with a largest entry of 0."""

    values: FloatArray
    sizes: IntArray
    taken: float  # the sum of what was taken off


def _used(values: FloatArray, offsets: IntArray) -> BoolArray:
    """Which tables have an entry that is not 0."""
    if not len(values):
        return np.zeros(0, dtype=bool)
    return np.logical_or.reduceat(values != 0, offsets[:-1])


def _scaled_tables(values: FloatArray, offsets: IntArray, kept: BoolArray) -> _ScaledTables:
    """The tables from ``offsets`` on that are kept, scaled."""
    sizes = np.diff(offsets)
    if not kept.all():
        values = values[np.repeat(kept, sizes)]
        sizes = sizes[kept]
    scaled, taken = _scaled(values, sizes)
    return _ScaledTables(scaled, sizes, taken)


def _scaled(values: FloatArray, sizes: IntArray) -> tuple[FloatArray, float]:
    """Log-tables with a largest entry of 0, and the sum of what was taken off."""
    if not len(values):
        return values, 0.0
    largest = np.maximum.reduceat(values, offsets_of(sizes)[:-1])
    return values - np.repeat(largest, sizes), math.fsum(largest.tolist())


def _constant_words(constant: float) -> list[str]:
    """The numbers that stand for a constant: one, several equal ones, or, beyond all use, one large power of ten."""
    if constant == 0:
        return []
    if _LOW <= constant <= _HIGH:
        return [repr(math.exp(constant))]
    num_pieces = math.ceil(abs(constant) / CONSTANT_PIECE)
    if num_pieces > MAX_CONSTANT_PIECES:
        return [_power_of_ten(constant)]
    return [repr(math.exp(constant / num_pieces))] * num_pieces


def _notes(model: MarkovRandomField, constant: float, tables: list[FloatArray]) -> list[str]:
    """Notes on what other programs will not read: names, constants, and entries too small for a double."""
    notes = []
    if model.variable_names is not None or model.state_names is not None:
        notes.append("names are not written, because UAI files have none; npz files keep them")
    if not _LOW <= constant <= _HIGH:
        notes.append(
            f"the constant exp({constant:.6g}) is outside the range of doubles: programs that do not add logarithms "
            "overflow; npz files keep it as one number"
        )
    num_tiny = sum(int(np.count_nonzero((table < _LOW) & (table > -np.inf))) for table in tables)
    if num_tiny:
        notes.append(
            f"table entries below 2.2e-308, where doubles underflow to zero: {num_tiny}; other programs take them as "
            f"0, which forbids these states, as fastmix does below exp({_LOWEST:.0e}), or refuse them; npz files keep "
            "them"
        )
    return notes


def _table_chunks(values: FloatArray, sizes: IntArray) -> Iterator[str]:
    """Exponentials as text that gives the same doubles when read, whatever their size."""
    offsets = offsets_of(sizes)
    for first in range(0, len(sizes), TABLES_PER_CHUNK):
        cuts = offsets[first : first + TABLES_PER_CHUNK + 1]
        part = values[cuts[0] : cuts[-1]]
        with np.errstate(under="ignore"):
            words = list(map(repr, np.exp(part).tolist()))
        for k in np.flatnonzero((part < _LOW) & (part > -np.inf)).tolist():
            words[k] = "0.0" if part[k] < _LOWEST else _power_of_ten(float(part[k]))
        places = (cuts - cuts[0]).tolist()
        yield "".join([f"{b - a}\n {' '.join(words[a:b])}\n" for a, b in itertools.pairwise(places)])


def _power_of_ten(value: float) -> str:
    """``exp(value)`` as a decimal of any size."""
    power = value / math.log(10.0)
    exponent = math.floor(power)
    return f"{10.0 ** (power - exponent):.16f}e{exponent}"
