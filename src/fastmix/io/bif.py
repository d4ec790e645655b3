r"""The BIF format: Bayesian networks with names, as text.

A file has a block ``network NAME { }``, a block ``variable NAME { type discrete [ 2 ] { no, yes }; }`` for each
variable and a block ``probability ( CHILD | PARENT, PARENT ) { .. }`` for each table, in any order. A table holds

- rows ``(yes, no) 0.9, 0.1;`` in any order, the states of the parents and then the probabilities of the child's;
- ``default 0.5, 0.5;`` for all rows that are not given;
- or ``table 0.1, 0.9;`` with everything, the child's state changing slowest and that of the last parent fastest.

What this reader takes and refuses:

- Comments are ``// ..`` to the end of the line and ``/* .. */``. ``property ..;`` is kept as it stands.
- A name is a word without white space and without any of ``{ } ( ) [ ] , ; | "``, or anything on one line in double
  quotes. Commas between names or numbers may be left out (all of a list), and so may the bar after the child.
- Probabilities are decimal numbers, not negative; one below the range of doubles is 0. Rows that sum to 1 within 1e-4
  are normalised, others are refused.
- Names that repeat or are not known, a table or row that is missing or given twice, and cycles are refused.
"""

from __future__ import annotations

import itertools
import logging
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from fastmix._memory import check_memory
from fastmix.errors import FormatError, ModelError
from fastmix.io.draft import NetworkDraft
from fastmix.io.files import PathLike, atomic_write, decode_text, shown
from fastmix.io.formats import Format
from fastmix.model.network import BayesianNetwork

__all__ = ["FORMAT", "is_bif", "parse_bif", "write_bif"]

_logger = logging.getLogger(__name__)

# No alternative can fail after a long match (what is not ended runs to the end of the line or text and is refused
# later), and the last one gives nothing back: time is linear in the text whatever it holds.
_TOKEN = re.compile(
    r"""
    "[^"\n]*"?
    | //[^\n]*
    | /\*(?:[\s\S]*?\*/|[\s\S]*)
    | property(?=[\s"])[^;]*;?
    | [{}()\[\],;|]
    | (?:[^\s{}()\[\],;|"/]++|/(?![/*]))++
    """,
    re.VERBOSE,
)
_FIRST_BLOCK = re.compile(
    rb"(?:\xef\xbb\xbf)?(?:\s|//[^\r\n]*[\r\n]|/\*[\s\S]*?\*/)*+(?:network|variable|probability)[\s(\"{]"
)
_COMMENTS = ("//", "/*")
_PUNCTUATION = frozenset("{}()[],;|")
_BRACE = re.compile(r"[{}]")
_QUOTED = re.compile(r'"[^"\n]*"')
_COUNT = re.compile(r"[0-9]{1,9}")
_CHARACTER_BYTES = 40.0  # of memory at the peak for each character, if each second one is a word

_KEYWORDS = frozenset(["network", "variable", "probability", "property", "type", "discrete", "default", "table"])
_COMMON_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_BARE_NAME = re.compile(r"""(?!.*/[/*])[^\s{}()\[\],;|"]+""")
_NO_NAME = re.compile('["\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]')


def parse_bif(text: str | bytes, name: str = "<string>") -> BayesianNetwork:
    """The Bayesian network in a text in BIF; ``name`` is that of the file, for messages."""
    content = decode_text(text, name) if isinstance(text, bytes) else text.removeprefix("\ufeff")
    return _Parser(content.replace("\r\n", "\n").replace("\r", "\n"), name).network()


def is_bif(data: bytes) -> bool:
    r"""Whether the first word of a file, after comments, is that of a BIF block."""
    return _FIRST_BLOCK.match(data) is not None


def _is_property(token: str) -> bool:
    # A word holds no white space and no quotes, only the token of a whole property does.
    return token.startswith("property") and (token[8:9].isspace() or token[8:9] == '"')


def _is_balanced(text: str) -> bool:
    """Whether the braces outside quotes come in pairs: else the semicolon of a property is missing."""
    depth = 0
    for brace in _BRACE.findall(_QUOTED.sub("", text)):
        depth += 1 if brace == "{" else -1
        if depth < 0:
            return False
    return depth == 0


@dataclass
class _Body:
    """The block of a table: a whole table, or rows and a default."""

    words: list[str] = field(default_factory=list)  # the numbers of all entries, one after another
    entries: list[tuple[int, int]] = field(default_factory=list)  # the first token of each and the step between them
    rows: dict[int, int] = field(default_factory=dict)  # which entry a row is
    default: int | None = None
    is_table: bool = False
    properties: list[str] = field(default_factory=list)


class _Parser:
    """Blocks out of tokens. A place is the number of a token; its line is looked up only for a message."""

    def __init__(self, text: str, name: str) -> None:
        check_memory(_CHARACTER_BYTES * len(text), f"{name}: reading {len(text)} characters", "use a smaller file")
        self._text, self._name = text, name
        tokens: list[str] = _TOKEN.findall(text)
        if "//" in text or "/*" in text:
            if tokens[-1].startswith("/*") and (len(tokens[-1]) < 4 or not tokens[-1].endswith("*/")):
                line = text.count("\n", 0, len(text.rstrip()) - len(tokens[-1].rstrip())) + 1
                raise FormatError(f"{name}:{line}: a comment must end in '*/', got {shown(tokens[-1])}")
            tokens = [token for token in tokens if not token.startswith(_COMMENTS)]
        self._tokens, self._next = tokens, 0

    def network(self) -> BayesianNetwork:
        if not self._tokens:
            raise FormatError(f"{self._name}:1: the file is empty, expected a network")
        draft = NetworkDraft(self._error, self._name)
        name, properties, seen = "unknown", [], False
        definitions: list[tuple[int, int, int]] = []
        while self._next < len(self._tokens):
            start = self._next
            word = self._take("'network', 'variable' or 'probability'")
            if word == "network":
                if seen:
                    raise self._error(start, "a file must hold one network, got a second")
                if self._peek() != "{":
                    name = self._name_at(self._next, "the name of the network")
                    self._next += 1
                self._expect("{")
                properties, seen = self._properties(), True
                self._expect("}")
            elif word == "variable":
                self._variable(draft)
            elif word == "probability":
                self._expect("(")
                opened, closed = self._next, self._find(")", len(self._tokens), "of the names")
                self._next = closed + 1
                self._expect("{")
                self._next = self._find("}", len(self._tokens), "of the block") + 1
                definitions.append((opened, closed, self._next - 1))
            else:
                raise self._error(start, f"expected 'network', 'variable' or 'probability', got {shown(word)}")
        for opened, closed, end in definitions:
            self._table(draft, opened, closed, end)
        return draft.network(name, properties)

    # -- blocks -----------------------------------------------------------------------------------------------------

    def _variable(self, draft: NetworkDraft) -> None:
        place = self._next
        name = self._name_at(place, "the name of a variable")
        self._next += 1
        self._expect("{")
        properties = self._properties()
        self._expect("type")
        self._expect("discrete")
        self._expect("[")
        count_place = self._next
        count = self._take("the number of states")
        if not _COUNT.fullmatch(count):
            raise self._error(
                count_place, f"the number of states of {shown(name)} must be a whole number, got {shown(count)}"
            )
        self._expect("]")
        self._expect("{")
        start = self._next
        end = self._find("}", len(self._tokens), "of the states")
        words, step = self._items(start, end, f"the states of {shown(name)}")
        places = range(start, start + step * len(words), step)
        states = [self._name_at(k, f"a state of {shown(name)}") for k in places]
        if len(states) != int(count):
            raise self._error(
                count_place, f"variable {shown(name)} must have as many states as it lists, {len(states)}, got {count}"
            )
        self._next = end + 1
        if self._peek() == ";":
            self._next += 1
        properties += self._properties()
        self._expect("}")
        draft.add_variable(name, place, states, places, properties)

    def _table(self, draft: NetworkDraft, opened: int, closed: int, end: int) -> None:
        """Hand a table to the draft: its names lie between two tokens, its body between the second and ``end``."""
        names, places = self._scope(opened, closed)
        child, parents = draft.define(names, places)
        num_rows, num_states = draft.shape(child)
        self._next = closed + 2
        body = self._body(names, [draft.states[parent] for parent in parents], num_states, end)
        entries, rows, default = body.entries, body.rows, body.default
        if not body.is_table and default is None and len(rows) < num_rows:
            missing = draft.row_name(child, next(row for row in range(num_rows) if row not in rows))
            raise self._error(opened, f"expected all {num_rows} rows of {shown(names[0])}, got none for {missing}")
        draft.reserve(child)
        width = len(body.words) // len(entries)

        def place_of(k: int) -> int:
            first, step = entries[k // width]
            return first + step * (k % width)

        values = draft.numbers(child, body.words, place_of)
        if body.is_table:
            values, row_place = np.ascontiguousarray(values.reshape(num_states, num_rows).T), place_of
        else:
            values, row_place = values.reshape(-1, num_states), lambda k: entries[k][0]

        def row_of(entry: int) -> str:
            if body.is_table:
                return f"{draft.row_name(child, entry)} (in a table the child's state changes slowest)"
            row = next((row for row, k in rows.items() if k == entry), None)
            return "the default" if row is None else draft.row_name(child, row)

        given = draft.distributions(child, values, row_place, row_of)
        if not body.is_table:
            chosen = np.full(num_rows, -1 if default is None else default)
            chosen[list(rows)] = list(rows.values())
            given = given[chosen]
        draft.set_table(child, given, body.properties)

    def _body(self, names: list[str], numbers_of: list[dict[str, int]], num_states: int, end: int) -> _Body:
        """What stands in the block of a table up to ``end``, with the right number of words in each entry."""
        body, name = _Body(), shown(names[0])
        while self._next < end:
            start = self._next
            word = self._tokens[start]
            if _is_property(word):
                body.properties += self._properties()
                continue
            if body.is_table:
                raise self._error(start, f"the table of {name} has all rows, got {shown(word)} after it")
            first, expected, shape = start + 1, num_states, ""
            if word == "(":
                stop = self._find(")", end, "of the row")
                row = self._row(start, stop, numbers_of, names)
                if row in body.rows:
                    given = " ".join(self._tokens[start : stop + 1])
                    raise self._error(start, f"each row of {name} must be given once, got {shown(given)} again")
                body.rows[row] = len(body.entries)
                first = stop + 1
            elif word == "default" and body.default is None:
                body.default = len(body.entries)
            elif word == "table" and not body.entries:
                num_rows = math.prod(map(len, numbers_of))
                body.is_table, expected = True, num_rows * num_states
                shape = f" = {num_rows} x {num_states}" if numbers_of else ""
            elif word in ("default", "table"):
                message = f"{name} must have one table, or rows and one default, got {shown(word)} too"
                raise self._error(start, message)
            else:
                raise self._error(start, f"expected 'table', 'default' or a row such as '(', got {shown(word)}")
            last = self._find(";", end, "of the probabilities")
            items, step = self._items(first, last, f"the probabilities of {name}")
            if len(items) != expected:
                raise self._error(start, f"expected {expected}{shape} probabilities of {name}, got {len(items)}")
            body.words += items
            body.entries.append((first, step))
            self._next = last + 1
        if not body.entries:
            raise self._error(end, f"expected the probabilities of {name}, got '}}'")
        return body

    def _scope(self, opened: int, closed: int) -> tuple[list[str], list[int]]:
        """The names of a child and of its parents and the tokens that they are."""
        tokens = self._tokens
        if closed == opened:
            raise self._error(closed, "expected the name of a variable, got ')'")
        bar = closed > opened + 1 and tokens[opened + 1] == "|"
        # Without a bar the first name is the child all the same.
        start = opened + 2 if bar else opened
        words, step = self._items(start, closed, "the parents" if bar else "the names")
        places = [*([opened] if bar else []), *range(start, start + step * len(words), step)]
        return [self._name_at(k, "the name of a variable") for k in places], places

    def _row(self, start: int, stop: int, numbers_of: list[dict[str, int]], names: list[str]) -> int:
        """The number of a row, from the states between two brackets; the last parent's state changes fastest."""
        states, step = self._items(start + 1, stop, "the states of a row")
        if len(states) != len(numbers_of):
            message = f"a row of {shown(names[0])} must name the states of {len(numbers_of)} parents, got {len(states)}"
            raise self._error(start, message)
        row = 0
        for k, (state, numbers) in enumerate(zip(states, numbers_of, strict=True)):
            number = numbers.get(state)
            if number is None:
                place = start + 1 + step * k
                name = self._name_at(place, f"a state of {shown(names[k + 1])}")
                number = numbers.get(name)
                if number is None:
                    raise self._error(place, f"expected a state of {shown(names[k + 1])}, got {shown(name)}")
            row = row * len(numbers) + number
        return row

    def _properties(self) -> list[str]:
        """The texts of the properties that come next."""
        result = []
        while _is_property(word := self._peek()):
            text = word[len("property") : -1]
            if word[-1] != ";" or not _is_balanced(text):
                raise self._error(self._next, f"a property must end in ';', got {shown(word)}")
            result.append(text.strip())
            self._next += 1
        return result

    # -- tokens -----------------------------------------------------------------------------------------------------

    def _peek(self) -> str:
        return self._tokens[self._next] if self._next < len(self._tokens) else ""

    def _take(self, expected: str) -> str:
        if self._next == len(self._tokens):
            raise self._error(self._next, f"the file ends where {expected} was expected")
        self._next += 1
        return self._tokens[self._next - 1]

    def _expect(self, word: str) -> None:
        if (found := self._take(repr(word))) != word:
            raise self._error(self._next - 1, f"expected {word!r}, got {shown(found)}")

    def _find(self, word: str, end: int, what: str) -> int:
        """The next token that is ``word``, before ``end``."""
        try:
            return self._tokens.index(word, self._next, end)
        except ValueError:
            raise self._error(self._next, f"expected {word!r} at the end {what} that begin here, got none") from None

    def _items(self, start: int, stop: int, what: str) -> tuple[list[str], int]:
        """The words of a list, all of them or none separated by commas, and the step from one to the next."""
        part = self._tokens[start:stop]
        if "," not in part:
            return part, 1
        words = part[::2]
        if len(part) % 2 and "," not in words and part[1::2].count(",") == len(part) // 2:
            return words, 2
        wrong = next((k for k, word in enumerate(part) if (word == ",") != bool(k % 2)), len(part) - 1)
        raise self._error(
            start + wrong, f"{what} must be separated by commas, got {shown(part[wrong])} at the wrong place"
        )

    def _name_at(self, place: int, what: str) -> str:
        """The name that a token is."""
        word = self._tokens[place] if place < len(self._tokens) else ""
        name = word[1:-1] if word.startswith('"') else word
        if word.startswith('"') and (len(word) < 2 or not word.endswith('"')):
            raise self._error(place, f"{what} in quotes must end on its line, got {shown(word)}")
        if not name or word in _PUNCTUATION or _is_property(word) or _NO_NAME.search(name):
            raise self._error(place, f"expected {what}, got {shown(word) if word else 'the end of the file'}")
        return name

    def _error(self, place: int, message: str) -> FormatError:
        matches = (match for match in _TOKEN.finditer(self._text) if not match[0].startswith(_COMMENTS))
        match = next(itertools.islice(matches, min(place, len(self._tokens) - 1), None))
        return FormatError(f"{self._name}:{self._text.count(chr(10), 0, match.start()) + 1}: {message}")


# -- writing --------------------------------------------------------------------------------------------------------


def write_bif(network: BayesianNetwork, path: PathLike) -> list[str]:
    """Write a Bayesian network as a BIF file; what other programs may not read from it comes back as a list of notes.

    Probabilities are written to the last digit, so that reading gives an equal network.

    Parameters
    ----------
    network : BayesianNetwork
    path : str or path-like
        ``.gz`` and ``.xz`` compress, ``-`` is the standard output. The file appears whole or not at all.

    Returns
    -------
    list of str
        One line each, also logged as a warning, for names that are no plain words of letters, digits, ``_`` and ``-``
        (they are written as they are if they hold no white space or punctuation of the format, and in quotes
        otherwise), and for properties that the format cannot hold, which are left out.
    """
    notes = _check_names(network)
    with atomic_write(path) as stream:
        for chunk in _chunks(network):
            stream.write(chunk)
    return notes


def _check_names(network: BayesianNetwork) -> list[str]:
    uncommon: dict[str, None] = {}
    for name in itertools.chain([network.name], network.variable_names, *network.state_names):
        if not name or _NO_NAME.search(name):
            raise ModelError(
                f"a name in a BIF file must not be empty or hold quotes or control characters, got {name!r}"
            )
        if not _COMMON_NAME.fullmatch(name) or name in _KEYWORDS:
            uncommon[name] = None
    notes = []
    if uncommon:
        verb = "is" if len(uncommon) == 1 else "are"
        notes.append(
            "some programs read only names of letters, digits, '_' and '-' that begin with a letter: "
            f"{len(uncommon)} {verb} not, such as {next(iter(uncommon))!r}"
        )
    every = [network.properties, *(network.variable_properties or ()), *(network.table_properties or ())]
    lost = [text for text in itertools.chain(*every) if not _is_writable(text)]
    if lost:
        notes.append(f"properties with ';' or a brace alone are not written: {len(lost)}, such as {shown(lost[0])}")
    for note in notes:
        _logger.warning("%s", note)
    return notes


def _is_writable(text: str) -> bool:
    return not re.search(r"[;\r\0\ud800-\udfff]", text) and _is_balanced(text)


def _written(name: str) -> str:
    return name if _BARE_NAME.fullmatch(name) and name not in _KEYWORDS else f'"{name}"'


def _chunks(network: BayesianNetwork) -> Iterator[str]:
    def remarks(texts: Sequence[str]) -> str:
        return "".join(f"  property {text.strip()};\n" for text in texts if _is_writable(text))

    none = ((),) * network.num_variables
    variable_properties = network.variable_properties or none
    table_properties = network.table_properties or none
    names = [_written(name) for name in network.variable_names]
    states = [[_written(name) for name in own] for own in network.state_names]
    yield f"network {_written(network.name)} {{\n{remarks(network.properties)}}}\n"
    for i, name in enumerate(names):
        yield f"variable {name} {{\n  type discrete [ {len(states[i])} ] {{ {', '.join(states[i])} }};\n"
        yield f"{remarks(variable_properties[i])}}}\n"
    for i, name in enumerate(names):
        parents = network.parents[i]
        given = f" | {', '.join(names[p] for p in parents)}" if parents else ""
        yield f"probability ( {name}{given} ) {{\n{remarks(table_properties[i])}"
        # The shortest text of a double that gives it back.
        rows = (", ".join(map(repr, row.tolist())) for row in network.tables[i].reshape(-1, len(states[i])))
        if not parents:
            yield f"  table {next(rows)};\n"
        else:
            for own, row in zip(itertools.product(*(states[p] for p in parents)), rows, strict=True):
                yield f"  ({', '.join(own)}) {row};\n"
        yield "}\n"


FORMAT = Format("BIF", (".bif",), lambda data, name, *_: parse_bif(data, name).to_model(), None, is_bif, parse_bif)
