r"""The BIF format: Bayesian networks with names, as text.

A file has a block ``network NAME { }``, a block ``variable NAME { type discrete [ 2 ] { no, yes }; }`` for each
variable and a block ``probability ( CHILD | PARENT, PARENT ) { .. }`` for each table, in any order. A table holds

- rows ``(yes, no) 0.9, 0.1;`` in any order, the states of the parents and then the probabilities of the child's;
- ``default 0.5, 0.5;`` for all rows that are not given;
- or ``table 0.1, 0.9;`` with everything, the child's state changing slowest and that of the last parent fastest.

What this reader takes and refuses:

- Comments are ``// ..`` to the end of the line and ``/* .. */``. They and ``property ..;`` are passed over.
- A name is a word without white space and without any of ``{ } ( ) [ ] , ; | "``, or anything on one line in double
  quotes. Commas are white space, and the bar after the child may be left out.
- Probabilities are decimal numbers, not negative; one below the range of doubles is 0. Rows that sum to 1 within 1e-4
  are normalized, others are refused.
- Names that repeat or are not known, a table or row that is missing or given twice, and cycles are refused.
"""

from __future__ import annotations

import itertools
import logging
import math
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._memory import check_memory
from fastmix.errors import FormatError, ModelError
from fastmix.io.files import PathLike, atomic_write, check_content_size, decode_text, shown
from fastmix.io.tuning import BIF_CHARACTER_BYTES, BIF_ENTRY_BYTES
from fastmix.model.network import MOST_PARENTS, BayesianNetwork, normalize_rows

__all__ = ["NetworkDraft", "bif_chunks", "is_bif", "parse_bif", "write_bif"]

_logger = logging.getLogger(__name__)

# No alternative can fail after a long match (what is not ended runs to the end of the line or text and is refused
# later), and the last one gives nothing back: time is linear in the text whatever it holds. Commas are white space.
_TOKEN = re.compile(
    r"""
    "[^"\n]*"?
    | //[^\n]*
    | /\*(?:[\s\S]*?\*/|[\s\S]*)
    | property(?=[\s"])[^;]*;?
    | [{}()\[\];|]
    | (?:[^\s{}()\[\],;|"/]++|/(?![/*]))++
    """,
    re.VERBOSE,
)
# Comments and properties. A word holds no white space and no quotes, only the token of a whole property does.
_IGNORED = re.compile(r'//|/\*|property[\s"]')
_FIRST_BLOCK = re.compile(
    rb"(?:\xef\xbb\xbf)?(?:\s|//[^\r\n]*[\r\n]|/\*[\s\S]*?\*/)*+(?:network|variable|probability)[\s(\"{]"
)
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_PUNCTUATION = frozenset("{}()[];|")
_BRACE = re.compile(r"[{}]")
_QUOTED = re.compile(r'"[^"\n]*"')
_COUNT = re.compile(r"[0-9]{1,9}")

_KEYWORDS = frozenset(["network", "variable", "probability", "property", "type", "discrete", "default", "table"])
_BARE_NAME = re.compile(r"""(?!.*/[/*])[^\s{}()\[\],;|"]+""")
_NO_NAME = re.compile('["\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]')

# What stands for "all other rows" and for "all rows" beside the numbers of rows.
_DEFAULT = -1
_TABLE = -2


def parse_bif(text: str | bytes, name: str = "<string>", max_bytes: float | None = None) -> BayesianNetwork:
    """The Bayesian network in a text in BIF; ``name`` is the name of the file, for messages.

    A :class:`fastmix.ResourceError` is raised if tables that ``default`` makes of a few words need more than
    ``max_bytes``.
    """
    content = decode_text(text, name) if isinstance(text, bytes) else text.removeprefix("\ufeff")
    return _Parser(content.replace("\r\n", "\n").replace("\r", "\n"), name, max_bytes).network()


def is_bif(data: bytes) -> bool:
    r"""Whether the first word of a file, after comments, begins a BIF block."""
    return _FIRST_BLOCK.match(data) is not None


class NetworkDraft:
    """A network while it is read, here and from XMLBIF: it checks names and tables, and says where they are wrong.

    Parameters
    ----------
    error : callable ``(place, message) -> FormatError``
        Makes the error for a place in the file, a number that it alone understands, and a message.
    source : str
        Name of the file, for the refusal of a table that is too large.
    """

    def __init__(self, error: Callable[[int, str], FormatError], source: str) -> None:
        self._error = error
        self._source = source
        self.names: list[str] = []
        self.states: list[dict[str, int]] = []  # number by name
        self._places: list[int] = []
        self._indices: dict[str, int] = {}
        self._parents: dict[int, list[int]] = {}
        self._definitions: dict[int, int] = {}  # places of the tables
        self._tables: dict[int, FloatArray] = {}
        self._num_entries = 0

    def add_variable(self, name: str, place: int, states: Sequence[str], places: Sequence[int]) -> None:
        """Add a variable with its states; ``places`` are the places of the states."""
        if name in self._indices:
            raise self._error(place, f"each variable must be declared once, got {shown(name)} again")
        if not states:
            raise self._error(place, f"variable {shown(name)} must have at least one state, got none")
        numbers: dict[str, int] = {}
        for state, where in zip(states, places, strict=True):
            if state in numbers:
                raise self._error(where, f"the states of {shown(name)} must all be different, got {shown(state)} again")
            numbers[state] = len(numbers)
        self._indices[name] = len(self.names)
        self.names.append(name)
        self.states.append(numbers)
        self._places.append(place)

    def define(self, names: Sequence[str], places: Sequence[int]) -> tuple[int, list[int], tuple[int, int]]:
        """The numbers of a child and of its parents, and the shape (rows, columns) of the table that is to be set.

        ``names`` are the child and then its parents; all variables have been added by now. A
        :class:`fastmix.ResourceError` is raised if all tables so far need too much memory.
        """
        scope: list[int] = []
        for name, place in zip(names, places, strict=True):
            index = self._indices.get(name)
            if index is None:
                raise self._error(place, f"expected the name of a declared variable, got {shown(name)}")
            if index in scope:
                message = f"the table of {shown(names[0])} must name each variable once, got {shown(name)}"
                raise self._error(place, message)
            scope.append(index)
        child = scope[0]
        parents = scope[1:]
        if len(parents) > MOST_PARENTS:
            message = f"{shown(names[0])} must have at most {MOST_PARENTS} parents, got {len(parents)}"
            raise self._error(places[0], message)
        if child in self._parents:
            raise self._error(places[0], f"each variable must have one table, got a second for {shown(names[0])}")
        self._parents[child] = parents
        self._definitions[child] = places[0]
        rows = math.prod(len(self.states[parent]) for parent in parents)
        columns = len(self.states[child])
        self._num_entries += rows * columns
        what = f"{self._source}: the table of {shown(names[0])}, {rows} rows of {columns} probabilities,"
        check_memory(self.required_bytes, what, "use fewer parents or states")
        return child, parents, (rows, columns)

    @property
    def required_bytes(self) -> float:
        """Bytes of memory that all tables so far need at the peak."""
        return BIF_ENTRY_BYTES * self._num_entries

    def row_name(self, child: int, row: int) -> str:
        """The states of the parents in a row of the table of a child, for messages."""
        states: list[str] = []
        for parent in reversed(self._parents[child]):
            row, state = divmod(row, len(self.states[parent]))
            states.insert(0, list(self.states[parent])[state])
        return f"({', '.join(states)})"

    def set_table(self, child: int, words: Sequence[str], order: IntArray, place_of: Callable[[int], int]) -> None:
        """Set the table of a child: ``order`` (rows, states of the child) says which of the words each entry is."""
        name = shown(self.names[child])
        values = np.array([float(word) if _NUMBER.fullmatch(word) else -1.0 for word in words])
        wrong = np.flatnonzero(~((values >= 0.0) & (values < np.inf)))
        if wrong.size:
            k = int(wrong[0])
            message = f"a probability of {name} must be a finite number of at least 0, got {shown(words[k])}"
            raise self._error(place_of(k), message)
        table, bad = normalize_rows(values[order])
        if bad is not None:
            where = f" for {self.row_name(child, bad)}" if self._parents[child] else ""
            message = f"the probabilities of {name}{where} must sum to 1 within 1e-4"
            raise self._error(place_of(int(order[bad, 0])), f"{message}, got {values[order[bad]].sum():.10g}")
        shape = [len(self.states[parent]) for parent in self._parents[child]]
        self._tables[child] = table.reshape([*shape, -1])

    def network(self, name: str) -> BayesianNetwork:
        """The finished network; a :class:`FormatError` is raised if a table is missing or there is a cycle."""
        every = range(len(self.names))
        for i in every:
            if i not in self._tables:
                message = f"expected a table for each variable, got none for {shown(self.names[i])}"
                raise self._error(self._places[i], message)
        try:
            TopologicalSorter({i: self._parents[i] for i in every}).prepare()
        except CycleError as error:
            cycle = " -> ".join(self.names[i] for i in error.args[1])
            message = f"parents must not form a cycle, got {shown(cycle)}"
            raise self._error(self._definitions[error.args[1][0]], message) from None
        return BayesianNetwork(
            tuple(self.names),
            tuple(tuple(states) for states in self.states),
            tuple(tuple(self._parents[i]) for i in every),
            tuple(self._tables[i] for i in every),
            name,
        )


def _has_ended(token: str) -> bool:
    """Whether a comment or property ends where it should, so that it hides nothing that was meant."""
    if token.startswith("//"):
        return True
    if token.startswith("/*"):
        return token.endswith("*/", 2)
    plain = _QUOTED.sub("", token)
    depth = 0
    for brace in _BRACE.findall(plain):
        depth += 1 if brace == "{" else -1
        if depth < 0:
            return False
    return plain.endswith(";") and depth == 0


class _Definition(NamedTuple):
    """Places of a block ``probability``: after its opening bracket, of its closing bracket, and of its last brace."""

    opened: int
    closed: int
    end: int


class _Parser:
    """Reads blocks out of tokens. A place is the number of a token; its line is looked up only for a message."""

    def __init__(self, text: str, name: str, max_bytes: float | None) -> None:
        check_memory(BIF_CHARACTER_BYTES * len(text), f"{name}: reading {len(text)} characters", "use a smaller file")
        self._text = text
        self._name = name
        self._max_bytes = max_bytes
        self._tokens: list[str] = []
        for token in _TOKEN.findall(text):
            if not _IGNORED.match(token):
                self._tokens.append(token)
            elif not _has_ended(token):
                places = (match for match in _TOKEN.finditer(text) if match[0] == token)
                line = text.count("\n", 0, next(places).start()) + 1
                what, end = ("a comment", "*/") if token.startswith("/*") else ("a property", ";")
                raise FormatError(f"{name}:{line}: {what} must end in {end!r}, got {shown(token)}")
        self._next = 0

    def network(self) -> BayesianNetwork:
        """The network in the file: all variables are read first, and then the tables, which may come before them."""
        if not self._tokens:
            raise FormatError(f"{self._name}:1: the file is empty, expected a network")
        draft = NetworkDraft(self._error, self._name)
        title = None
        definitions: list[_Definition] = []
        while self._next < len(self._tokens):
            start = self._next
            word = self._take("'network', 'variable' or 'probability'")
            if word == "network":
                if title is not None:
                    raise self._error(start, "a file must hold one network, got a second")
                title = "unknown" if self._next_is("{") else self._name_of("the network")
                self._expect("{", "}")
            elif word == "variable":
                self._variable(draft)
            elif word == "probability":
                definitions.append(self._definition())
            else:
                raise self._error(start, f"expected 'network', 'variable' or 'probability', got {shown(word)}")
        for definition in definitions:
            self._table(draft, definition)
        return draft.network(title or "unknown")

    # -- blocks -----------------------------------------------------------------------------------------------------

    def _variable(self, draft: NetworkDraft) -> None:
        """Read the rest of a block ``variable`` and add the variable to the draft."""
        place = self._next
        name = self._name_of("a variable")
        self._expect("{", "type", "discrete", "[")
        count_place = self._next
        count = self._take("the number of states")
        self._expect("]", "{")
        places = range(self._next, self._find("}", len(self._tokens), "of the states"))
        states = [self._name_at(k, f"a state of {shown(name)}") for k in places]
        if not _COUNT.fullmatch(count) or len(states) != int(count):
            message = f"variable {shown(name)} must have as many states as it lists, {len(states)}, got {shown(count)}"
            raise self._error(count_place, message)
        self._next = places.stop + 1
        if self._next_is(";"):
            self._next += 1
        self._expect("}")
        draft.add_variable(name, place, states, places)

    def _definition(self) -> _Definition:
        """Pass over the rest of a block ``probability``; its places are kept."""
        self._expect("(")
        opened = self._next
        closed = self._find(")", len(self._tokens), "of the names")
        self._next = closed + 1
        self._expect("{")
        end = self._find("}", len(self._tokens), "of the block")
        self._next = end + 1
        return _Definition(opened, closed, end)

    def _table(self, draft: NetworkDraft, definition: _Definition) -> None:
        """Hand the table of a block ``probability`` to the draft.

        1. Read the names of the child and its parents.
        2. Read the rows, the default or the whole table: all words, and where each piece begins.
        3. Say which word every entry of the table is.
        """
        opened, closed, end = definition
        # 1. Without a bar after it the first name is the child all the same.
        places = list(range(opened, closed))
        if self._tokens[opened + 1] == "|":
            del places[1:2]
        if not places:
            raise self._error(closed, "expected the name of a variable, got ')'")
        names = [self._name_at(k, "the name of a variable") for k in places]
        child, parents, shape = draft.define(names, places)
        # 2.
        words: list[str] = []
        firsts: dict[int, int] = {}  # the first probability of every row that is given, in the order of the words
        self._next = closed + 2
        while self._next < end:
            row, first, last = self._piece(draft, names, parents, shape, firsts.keys(), end)
            firsts[row] = first
            words += self._tokens[first:last]
            self._next = last + 1
        # 3.
        order = self._order(draft, names[0], child, shape, list(firsts), len(words), opened)
        starts = list(firsts.values())
        width = len(words) // len(firsts)
        draft.set_table(child, words, order, lambda k: starts[k // width] + k % width)

    def _piece(
        self,
        draft: NetworkDraft,
        names: Sequence[str],
        parents: Sequence[int],
        shape: tuple[int, int],
        known: Collection[int],
        end: int,
    ) -> tuple[int, int, int]:
        """The row that the next piece of a table gives, and the places of its first and past its last probability.

        A piece is a row, a default or a whole table, up to its semicolon. ``known`` are the rows given before it.
        """
        num_rows, num_states = shape
        name = shown(names[0])
        start = self._next
        word = self._tokens[start]
        if word == "(":
            self._next = self._find(")", end, "of the row")
            row = self._row(start, self._next, [draft.states[parent] for parent in parents], names)
        elif word == "table":
            row = _TABLE
        elif word == "default":
            row = _DEFAULT
        else:
            raise self._error(start, f"expected 'table', 'default' or a row such as '(', got {shown(word)}")
        if row in known or _TABLE in known or (known and row == _TABLE):
            given = " ".join(self._tokens[start : self._next + 1])
            message = f"{name} must have one table, or each row once and one default, got {shown(given)} too"
            raise self._error(start, message)
        first = self._next + 1
        last = self._find(";", end, "of the probabilities")
        expected = num_rows * num_states if row == _TABLE else num_states
        if last - first != expected:
            raise self._error(start, f"expected {expected} probabilities of {name}, got {last - first}")
        return row, first, last

    def _order(
        self,
        draft: NetworkDraft,
        name: str,
        child: int,
        shape: tuple[int, int],
        given: Sequence[int],
        num_words: int,
        place: int,
    ) -> IntArray:
        """The number of the word that every entry of a table is, (rows, states of the child).

        ``given`` are the rows in the order of their words, _DEFAULT and _TABLE among them.
        """
        num_rows, num_states = shape
        pieces = {row: k for k, row in enumerate(given)}
        if _TABLE in pieces:  # the child's state changes slowest
            return np.arange(num_rows * num_states).reshape(num_states, num_rows).T
        if _DEFAULT not in pieces and len(pieces) < num_rows:
            missing = draft.row_name(child, next(row for row in range(num_rows) if row not in pieces))
            raise self._error(place, f"expected all {num_rows} rows of {shown(name)}, got none for {missing}")
        if num_words < num_rows * num_states:  # a few words stand for many numbers, as in a compressed file
            check_content_size(self._name, draft.required_bytes, self._max_bytes)
        piece_of_row = np.full(num_rows, pieces.pop(_DEFAULT, 0))
        piece_of_row[list(pieces)] = list(pieces.values())
        return np.asarray(piece_of_row[:, None] * num_states + np.arange(num_states))

    def _row(self, start: int, stop: int, numbers_of: Sequence[dict[str, int]], names: Sequence[str]) -> int:
        """The number of a row, from the states between two brackets; the last parent's state changes fastest.

        ``numbers_of`` has the numbers of states by name for each parent.
        """
        if stop - start - 1 != len(numbers_of):
            message = f"a row of {shown(names[0])} must name the states of {len(numbers_of)} parents"
            raise self._error(start, f"{message}, got {stop - start - 1}")
        row = 0
        for place, numbers, parent in zip(range(start + 1, stop), numbers_of, names[1:], strict=True):
            state = self._name_at(place, f"a state of {shown(parent)}")
            if state not in numbers:
                raise self._error(place, f"expected a state of {shown(parent)}, got {shown(state)}")
            row = row * len(numbers) + numbers[state]
        return row

    # -- tokens -----------------------------------------------------------------------------------------------------

    def _next_is(self, word: str) -> bool:
        """Whether the next token is this word."""
        return self._tokens[self._next : self._next + 1] == [word]

    def _take(self, expected: str) -> str:
        """The next token, which is passed over; ``expected`` says in the error at the end of the file what it is."""
        if self._next == len(self._tokens):
            raise self._error(self._next, f"the file ends where {expected} was expected")
        self._next += 1
        return self._tokens[self._next - 1]

    def _expect(self, *words: str) -> None:
        """Pass over these words, which must come next."""
        for word in words:
            found = self._take(repr(word))
            if found != word:
                raise self._error(self._next - 1, f"expected {word!r}, got {shown(found)}")

    def _find(self, word: str, end: int, what: str) -> int:
        """The place of the next token that is ``word``, before ``end``."""
        try:
            return self._tokens.index(word, self._next, end)
        except ValueError:
            raise self._error(self._next, f"expected {word!r} at the end {what} that begin here, got none") from None

    def _name_of(self, what: str) -> str:
        """The next token, which must be the name of something and is passed over."""
        self._take(f"the name of {what}")
        return self._name_at(self._next - 1, f"the name of {what}")

    def _name_at(self, place: int, what: str) -> str:
        """The name that a token is, without its quotes."""
        word = self._tokens[place]
        name = word
        if word.startswith('"'):
            if len(word) < 2 or not word.endswith('"'):
                raise self._error(place, f"{what} in quotes must end on its line, got {shown(word)}")
            name = word[1:-1]
        if not name or word in _PUNCTUATION or _NO_NAME.search(name):
            raise self._error(place, f"expected {what}, got {shown(word)}")
        return name

    def _error(self, place: int, message: str) -> FormatError:
        """The error at a place; its line is found by reading the text again."""
        matches = (match for match in _TOKEN.finditer(self._text) if not _IGNORED.match(match[0]))
        match = next(itertools.islice(matches, min(place, len(self._tokens) - 1), None))
        line = self._text.count("\n", 0, match.start()) + 1
        return FormatError(f"{self._name}:{line}: {message}")


# -- writing --------------------------------------------------------------------------------------------------------


def write_bif(network: BayesianNetwork, path: PathLike) -> list[str]:
    """Write a Bayesian network as a BIF file; return notes on what other programs may not read from it.

    Probabilities are written to the last digit, so that reading gives an equal network. ``.gz`` and ``.xz`` compress,
    ``-`` is the standard output.

    Returns
    -------
    list of str
        A note, also logged as a warning, if names hold white space or punctuation of the format, or are words of it:
        they are written in quotes.

    Raises
    ------
    ModelError
        If a name is empty or holds quotes or control characters, which the format cannot write.
    """
    names = [network.name, *network.variable_names, *itertools.chain(*network.state_names)]
    for name in names:
        if not name or _NO_NAME.search(name):
            message = "a name in a BIF file must not be empty or hold quotes or control characters"
            raise ModelError(f"{message}, got {name!r}")
    quoted = [name for name in dict.fromkeys(names) if _written(name) != name]
    notes = [f"some programs read no names in quotes: {len(quoted)}, such as {quoted[0]!r}"] if quoted else []
    for note in notes:
        _logger.warning("%s", note)
    network = network.dense()
    with atomic_write(path) as stream:
        for chunk in bif_chunks(network):
            stream.write(chunk)
    return notes


def bif_chunks(network: BayesianNetwork) -> Iterator[str]:
    """The text of a BIF file, piece by piece."""
    names = [_written(name) for name in network.variable_names]
    states = [[_written(name) for name in own] for own in network.state_names]
    yield f"network {_written(network.name)} {{\n}}\n"
    for name, own in zip(names, states, strict=True):
        yield f"variable {name} {{\n  type discrete [ {len(own)} ] {{ {', '.join(own)} }};\n}}\n"
    for i, name in enumerate(names):
        parents = network.parents[i]
        given = f" | {', '.join(names[parent] for parent in parents)}" if parents else ""
        yield f"probability ( {name}{given} ) {{\n"
        rows = network.tables[i].reshape(-1, len(states[i]))
        for key, row in zip(itertools.product(*(states[parent] for parent in parents)), rows, strict=True):
            numbers = ", ".join(map(repr, row.tolist()))  # the shortest text of a double that gives it back
            yield f"  ({', '.join(key)}) {numbers};\n" if parents else f"  table {numbers};\n"
        yield "}\n"


def _written(name: str) -> str:
    """A name as it stands in a file: in quotes, unless it is a plain word."""
    return name if _BARE_NAME.fullmatch(name) and name not in _KEYWORDS else f'"{name}"'
