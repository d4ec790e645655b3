"""The UAI model format: Markov and Bayesian networks as text.

A file is a list of words: ``MARKOV`` or ``BAYES`` (in any case), the number of variables, the number of states of each,
the number of factors, for each factor its scope (how many variables, then which), and for each factor its table (how
many entries, then the entries, the last variable of the scope changing fastest). In a ``BAYES`` file the tables are
conditional probabilities and the last variable of a scope is the child; they multiply like any other factors.

What this reader takes and refuses:

- Words are separated by any white space. Comments are stripped, see :mod:`fastmix.io.tokens`.
- Counts, variables and scope sizes are digits only: ``2.0`` and ``1e5`` are refused.
- Entries are decimal numbers, not negative. ``0`` is a log-potential of -inf. An entry outside the range of doubles,
  such as ``1e-400``, keeps its logarithm instead of turning into 0 or inf. ``inf`` and ``nan`` are refused.
- A table without any positive entry is refused, and so is a variable whose factors forbid all its states.
- Factors over no, one or two variables are multiplied together. A factor over more is accepted when evidence leaves at
  most two of its variables free; a variable with a single state is never free.
"""

from __future__ import annotations

import decimal
import math
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastmix.errors import FormatError, ModelError, UnfitMethodError
from fastmix.io.files import PathLike, display_name, read_bytes
from fastmix.io.tokens import NumberText, cut_header, strip_comments
from fastmix.io.uai_writer import format_uai, write_uai
from fastmix.model import MarkovRandomField
from fastmix.model.build import merge_pairs, offsets_of

__all__ = ["format_uai", "parse_uai", "read_uai", "write_uai"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

# A variable in a factor has at least one table entry a state, but one in no factor costs a single word whatever its
# number of states. The states in all are limited to this many, plus so many a word, to keep memory in proportion.
_FREE_STATES = 1 << 20
_STATES_PER_WORD = 64
_SMALLEST_NORMAL = float(np.finfo(np.float64).tiny)
_SHORTEST_EXTREME = len("2e308")  # no shorter word is outside the range of normal doubles and yet not zero
_NONZERO_MANTISSA = re.compile(rb"[^eE]*[1-9]")


def read_uai(
    path: PathLike, evidence: Mapping[int, int] | None = None, *, max_bytes: float | None = None
) -> MarkovRandomField:
    """The model in a UAI file.

    Parameters
    ----------
    path : str or path-like
        Plain text, gzip or xz; ``-`` is the standard input.
    evidence : mapping, optional
        Observed state by variable, used only to make factors over more than two variables pairwise.
    max_bytes : float, optional
        As for :func:`fastmix.io.read_model`.

    Returns
    -------
    MarkovRandomField
        Over all variables of the file, also the observed ones. If a factor over more than two variables was sliced by
        the evidence, the model is right only together with that evidence: condition it on the same mapping. Of a
        model from :func:`write_uai`, the largest entry of each table is 0 and the constant holds the rest.

    Raises
    ------
    FormatError
        If the file is not in the format; the message starts with ``path:line`` and holds the word that is wrong.
    ModelError
        If the evidence names a variable or state that the model does not have, or is impossible.
    UnfitMethodError
        If the file is right, but has factors over more than two variables that the evidence leaves free.
    ResourceError
        If it holds more than ``max_bytes``, or more numbers than there is memory for.
    OSError
        If the file cannot be read.

    Notes
    -----
    About a microsecond and 100 bytes of memory at the peak for each number in the file.

    Examples
    --------
    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "two.uai.xz")
    ...     notes = write_uai(MarkovRandomField.ising([(0, 1)], coupling=0.5), path)
    ...     read_uai(path)
    MarkovRandomField(2 variables of 2 states, 1 edge, log_constant=0.5)
    """
    return parse_uai(read_bytes(path, max_bytes), display_name(path), evidence)


def parse_uai(
    text: str | bytes, name: str = "<string>", evidence: Mapping[int, int] | None = None
) -> MarkovRandomField:
    r"""The model in a text in UAI format; as :func:`read_uai`, with ``name`` in the place of the path in messages.

    Examples
    --------
    >>> model = parse_uai("MARKOV 2  2 2  1  2 0 1  4  1 0.5 0.5 1")
    >>> model.table(0, 1).round(3).tolist()
    [[0.0, -0.693], [-0.693, 0.0]]
    >>> parse_uai("MARKOV 2\n2 two\n", "bad.uai")
    Traceback (most recent call last):
        ...
    fastmix.errors.FormatError: bad.uai:2: expected a number, got 'two'
    """
    _, data = cut_header(strip_comments(text, name), name, ("MARKOV", "BAYES"))
    numbers = NumberText(data, name)
    preamble = _read_preamble(numbers)
    fixed = _observed_states(preamble.num_states, evidence)
    table_starts, sizes = _locate_tables(numbers, preamble)
    entries, entry_starts = _log_entries(numbers, preamble, table_starts, sizes)
    slices = _slices(numbers, preamble, fixed)
    return _build_model(numbers, preamble, slices, table_starts, sizes, entries, entry_starts)


@dataclass(frozen=True)
class _Preamble:
    """What stands before the tables: state counts and the scope of each factor, by word positions."""

    num_states: IntArray  # (n,)
    scope_words: IntArray  # (F,) the word with the size of each scope; its variables follow
    scope_sizes: IntArray  # (F,)
    end: int  # the first word of the tables

    def scope(self, numbers: NumberText, k: int) -> list[int]:
        start = int(self.scope_words[k]) + 1
        return [int(v) for v in numbers.values[start : start + int(self.scope_sizes[k])]]


@dataclass(frozen=True)
class _Slice:
    """A factor over more than two variables as one over the free ones: which entries of its table are left."""

    factor: int
    free: list[int]
    entries: IntArray


# -- preamble -------------------------------------------------------------------------------------------------------


def _read_preamble(numbers: NumberText) -> _Preamble:
    n = numbers.count(0, "the number of variables")
    num_states = _read_state_counts(numbers, n)
    num_factors = numbers.count(n + 1, "the number of factors")
    words, sizes, end = numbers.blocks(n + 2, num_factors, "the scope of factor {}", whole=True)
    preamble = _Preamble(num_states, words, sizes, end)
    _check_scopes(numbers, preamble, n + 2)
    return preamble


def _read_state_counts(numbers: NumberText, n: int) -> IntArray:
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


def _check_scopes(numbers: NumberText, preamble: _Preamble, start: int) -> None:
    n = len(preamble.num_states)
    region = numbers.values[start : preamble.end]
    is_variable = np.ones(len(region), dtype=bool)
    is_variable[preamble.scope_words - start] = False
    if (bad := np.flatnonzero(is_variable & (region >= n))).size:
        word = start + int(bad[0])
        k = int(np.searchsorted(preamble.scope_words, word, side="right")) - 1
        known = f"a variable from 0 to {n - 1}" if n else "no variable, because the file has none"
        numbers.fail(word, f"factor {k} must name {known}")
    pairs = np.flatnonzero(preamble.scope_sizes == 2)
    words = preamble.scope_words[pairs]
    repeated = pairs[numbers.values[words + 1] == numbers.values[words + 2]].tolist()
    for k in np.flatnonzero(preamble.scope_sizes > 2).tolist():
        scope = preamble.scope(numbers, k)
        if len(set(scope)) < len(scope):
            repeated.append(k)
    if repeated:
        k = min(repeated)
        first: dict[int, int] = {}
        for position, variable in enumerate(preamble.scope(numbers, k), int(preamble.scope_words[k]) + 1):
            if first.setdefault(variable, position) != position:
                numbers.fail(position, f"factor {k} must name each variable once")


# -- factors over more than two variables ---------------------------------------------------------------------------


def _observed_states(num_states: IntArray, evidence: Mapping[int, int] | None) -> IntArray:
    """The observed state of each variable, the only one of a variable with a single state, -1 for free variables."""
    fixed = np.where(num_states == 1, 0, -1)
    for variable, state in (evidence or {}).items():
        try:
            v, s = operator.index(variable), operator.index(state)
        except TypeError:
            raise ModelError(f"evidence must map variables to states by number, got {variable!r}: {state!r}") from None
        if not 0 <= v < len(num_states):
            raise ModelError(f"evidence must name variables below {len(num_states)}, got {v}")
        if not 0 <= s < num_states[v]:
            raise ModelError(f"evidence on variable {v} must be a state from 0 to {num_states[v] - 1}, got {s}")
        fixed[v] = s
    return fixed


def _slices(numbers: NumberText, preamble: _Preamble, fixed: IntArray) -> list[_Slice]:
    """What the evidence leaves of the factors over more than two variables; an UnfitMethodError if it is too much."""
    large = np.flatnonzero(preamble.scope_sizes > 2).tolist()
    scopes = [preamble.scope(numbers, k) for k in large]
    num_free = [sum(bool(fixed[v] < 0) for v in scope) for scope in scopes]
    if large and max(num_free) > 2:
        worst = int(np.argmax(num_free))
        k, scope = large[worst], scopes[worst]
        line = numbers.line(int(preamble.scope_words[k]))
        listed = " ".join(str(v) for v in scope[:12]) + (" ..." if len(scope) > 12 else "")
        raise UnfitMethodError(
            f"{numbers.name}:{line}: {sum(f > 2 for f in num_free)} of {len(preamble.scope_sizes)} factors join more "
            f"than two free variables, the largest is factor {k} with {num_free[worst]} (scope {listed}); supported "
            "are pairwise models, and larger factors that evidence reduces to at most two free variables"
        )
    result = []
    for k, scope in zip(large, scopes, strict=True):
        stride, base, axes = 1, 0, []
        for v in reversed(scope):
            if fixed[v] < 0:
                axes.append((v, stride))
            else:
                base += int(fixed[v]) * stride
            stride *= int(preamble.num_states[v])
        entries = np.array([base], dtype=np.int64)
        for v, step in reversed(axes):
            entries = (entries[:, None] + step * np.arange(preamble.num_states[v])).reshape(-1)
        result.append(_Slice(k, [v for v, _ in reversed(axes)], entries))
    return result


# -- tables ---------------------------------------------------------------------------------------------------------


def _locate_tables(numbers: NumberText, preamble: _Preamble) -> tuple[IntArray, IntArray]:
    """The word with the entry count of each table, and the counts, all of them checked against the file."""
    total, words = len(numbers), preamble.scope_words
    counts = preamble.num_states.astype(np.float64)
    exact = np.ones(len(words))  # as doubles, because the product of a long scope may exceed 64 bits
    for k in np.flatnonzero(preamble.scope_sizes > 2).tolist():
        with np.errstate(over="ignore"):
            exact[k] = np.prod(counts[preamble.scope(numbers, k)])
    for position in (1, 2):
        member = (preamble.scope_sizes >= position) & (preamble.scope_sizes <= 2)
        exact[member] *= counts[numbers.values[words[member] + position].astype(np.int64)]
    sizes = np.minimum(exact, total + 1).astype(np.int64)
    table_starts = preamble.end + offsets_of(1 + sizes)
    inside = np.flatnonzero(table_starts[:-1] < total)
    given = table_starts[inside]
    wrong = np.flatnonzero((numbers.values[given] != exact[inside]) | ~numbers.are_whole(given))
    if wrong.size:
        k = int(inside[wrong[0]])
        numbers.fail(int(table_starts[k]), f"the table of factor {k} must have {_shape(numbers, preamble, k)} entries")
    end = int(table_starts[-1])
    if end > total:
        k = int(np.searchsorted(table_starts, total, side="right")) - 1
        if table_starts[k] == total:
            numbers.fail_at_end(f"the table of factor {k}")
        found = total - int(table_starts[k]) - 1
        shape = _shape(numbers, preamble, k)
        numbers.fail_at_end(f"entry {found + 1} of the {shape} in the table of factor {k}")
    if end < total:
        numbers.fail(end, "the file must end after the last table")
    return table_starts[:-1], sizes


def _shape(numbers: NumberText, preamble: _Preamble, k: int) -> str:
    """Number of entries of a table, with the state counts it comes from."""
    counts = [int(preamble.num_states[v]) for v in preamble.scope(numbers, k)[:12]]
    more = int(preamble.scope_sizes[k]) > len(counts)
    product = " x ".join(map(str, counts)) + (" x ..." if more else "")
    return product if more else f"{math.prod(counts)} = {product}" if len(counts) > 1 else f"{math.prod(counts)}"


def _log_entries(
    numbers: NumberText, preamble: _Preamble, table_starts: IntArray, sizes: IntArray
) -> tuple[FloatArray, IntArray]:
    """Logarithms of all table entries one after another, and where each table starts among them."""
    region = numbers.values[preamble.end :]
    is_entry = np.ones(len(region), dtype=bool)
    is_entry[table_starts - preamble.end] = False
    if (negative := np.flatnonzero(region < 0)).size:
        numbers.fail(preamble.end + int(negative[0]), "table entries must not be negative")
    with np.errstate(divide="ignore"):
        logs = np.log(region)
    suspects = preamble.end + np.flatnonzero(is_entry & ((region < _SMALLEST_NORMAL) | (region == np.inf)))
    for index in suspects[numbers.widths(suspects) >= _SHORTEST_EXTREME].tolist():
        if _NONZERO_MANTISSA.match(numbers.word(index)):
            logs[index - preamble.end] = _log_of_extreme(numbers, index)
    entries, starts = logs[is_entry], offsets_of(sizes)[:-1]
    if len(sizes):
        best = np.maximum.reduceat(entries, starts)
        if (dead := np.flatnonzero(best == -np.inf)).size:
            k = int(dead[0])
            line = numbers.line(int(table_starts[k]) + 1)
            raise FormatError(
                f"{numbers.name}:{line}: the table of factor {k} must have a positive entry, got {sizes[k]} times 0"
            )
    return entries, starts


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


# -- model ----------------------------------------------------------------------------------------------------------


def _build_model(
    numbers: NumberText,
    preamble: _Preamble,
    slices: list[_Slice],
    table_starts: IntArray,
    sizes: IntArray,
    entries: FloatArray,
    entry_starts: IntArray,
) -> MarkovRandomField:
    num_states, words, kinds = preamble.num_states, preamble.scope_words, preamble.scope_sizes
    kind_of_entry = np.repeat(np.minimum(kinds, 3).astype(np.int8), sizes)
    variables = numbers.values[words[kinds == 1] + 1].astype(np.int64)
    pair_words = words[kinds == 2]
    pairs = np.stack([numbers.values[pair_words + 1], numbers.values[pair_words + 2]], axis=1).astype(np.int64)
    unary_values, pair_values = [entries[kind_of_entry == 1]], [entries[kind_of_entry == 2]]
    unary_variables, all_pairs = [variables], [pairs]
    unary_factors = [np.flatnonzero(kinds == 1)]
    constant = math.fsum(entries[kind_of_entry == 0].tolist())
    for part in slices:
        values = entries[entry_starts[part.factor] + part.entries]
        if values.max() == -np.inf:
            line = numbers.line(int(table_starts[part.factor]))
            raise ModelError(
                f"{numbers.name}:{line}: evidence must have positive probability, but factor {part.factor} forbids it"
            )
        if len(part.free) == 0:
            constant += float(values[0])
        elif len(part.free) == 1:
            unary_variables.append(np.array(part.free))
            unary_values.append(values)
            unary_factors.append(np.array([part.factor]))
        else:
            all_pairs.append(np.array([part.free]))
            pair_values.append(values)
    log_unary = _add_unaries(num_states, np.concatenate(unary_variables), np.concatenate(unary_values))
    if len(num_states):
        best = np.maximum.reduceat(log_unary, offsets_of(num_states)[:-1])
        if (dead := np.flatnonzero(best == -np.inf)).size:
            v = int(dead[0])
            k = int(np.concatenate(unary_factors)[np.concatenate(unary_variables) == v].max())
            line = numbers.line(int(table_starts[k]))
            raise FormatError(
                f"{numbers.name}:{line}: the factors must allow variable {v} a state, but with factor {k} none is left"
            )
    edges, log_pairwise = merge_pairs(num_states, np.concatenate(all_pairs), np.concatenate(pair_values))
    return MarkovRandomField(num_states, log_unary, edges, log_pairwise, constant)


def _add_unaries(num_states: IntArray, variables: IntArray, values: FloatArray) -> FloatArray:
    offsets = offsets_of(num_states)
    sizes = num_states[variables]
    # Position of each value: where its variable starts plus its number within its factor.
    position = np.arange(len(values)) + np.repeat(offsets[variables] - offsets_of(sizes)[:-1], sizes)
    return np.asarray(np.bincount(position, weights=values, minlength=int(offsets[-1])), dtype=np.float64)
