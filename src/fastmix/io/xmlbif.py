"""The XMLBIF format, version 0.3: Bayesian networks with names, as XML.

A file has one ``NETWORK`` with a ``VARIABLE`` (a ``NAME`` and ``OUTCOME`` elements) for each variable and a
``DEFINITION`` for each table: ``FOR`` the child, ``GIVEN`` the parents in their order, ``TABLE`` the numbers, with the
child's state changing fastest and that of the first parent slowest. ``PROPERTY`` elements are kept. Rows are checked
and normalised as in :mod:`fastmix.io.bif`.

A document type declaration may hold elements and attributes, as that of the format does. One that declares an entity
is refused, and nothing outside the file is ever opened. Elements that the format does not have are refused.
"""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat

from fastmix._memory import check_memory
from fastmix.errors import FormatError
from fastmix.io.draft import NetworkDraft
from fastmix.io.files import shown
from fastmix.io.formats import Format
from fastmix.model.network import BayesianNetwork

__all__ = ["FORMAT", "is_xmlbif", "parse_xmlbif"]

_CHILDREN = {
    "": ("BIF",),
    "BIF": ("NETWORK",),
    "NETWORK": ("NAME", "PROPERTY", "VARIABLE", "DEFINITION"),
    "VARIABLE": ("NAME", "OUTCOME", "PROPERTY"),
    "DEFINITION": ("FOR", "GIVEN", "TABLE", "PROPERTY"),
}
_ONCE = ("BIF", "NETWORK", "NAME", "FOR", "TABLE")  # at most, within the element around
_NO_NAME = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_WORD = re.compile(r"\S+")
_CHARACTER_BYTES = 100.0  # of memory at the peak for each byte of the file
# Defaults of attributes are repeated in every element: a few short ones are all that the format declares.
_MOST_ATTRIBUTES = 50
_LONGEST_DEFAULT = 100


def parse_xmlbif(text: str | bytes, name: str = "<string>") -> BayesianNetwork:
    """The Bayesian network in a text in XMLBIF; ``name`` is that of the file, for messages."""
    return _Reader(name).read(text)


def is_xmlbif(data: bytes) -> bool:
    """Whether a file looks like XML with an element ``BIF``."""
    return data.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"<" and b"<BIF" in data


@dataclass
class _Text:
    """The text of an element in pieces, each with its line."""

    line: int
    pieces: list[tuple[int, str]] = field(default_factory=list)

    def joined(self) -> str:
        return "".join(piece for _, piece in self.pieces)

    def line_of_word(self, index: int) -> int:
        matches = _WORD.finditer(self.joined())
        position = next(match.start() for k, match in enumerate(matches) if k == index)
        ends, total = [], 0
        for _, piece in self.pieces:
            total += len(piece)
            ends.append(total)
        return self.pieces[bisect.bisect_right(ends, position)][0]


@dataclass
class _Element:
    """An element that holds others: its line and the texts of those that hold none, by name."""

    tag: str
    line: int
    texts: dict[str, list[_Text]] = field(default_factory=dict)

    def get(self, tag: str) -> list[_Text]:
        return self.texts.get(tag, [])


class _Reader:
    """The events of the XML parser turned into a network. Places are lines."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._draft = NetworkDraft(self._error, name)
        self._definitions: list[_Element] = []
        self._network: _Element | None = None
        self._open: list[_Element] = [_Element("", 1)]  # never more than four: what else is opened is refused
        self._text: _Text | None = None  # of the element being read that holds no others
        self._num_attributes = 0

    def read(self, text: str | bytes) -> BayesianNetwork:
        data = text.removeprefix("\ufeff").encode("utf-8", "replace") if isinstance(text, str) else text
        what = f"{self._name}: reading {len(data)} bytes"
        check_memory(_CHARACTER_BYTES * len(data), what, "use a smaller file")
        if not data.strip():
            raise self._error(1, "the file is empty, expected a network")
        parser = self._parser = expat.ParserCreate("utf-8" if isinstance(text, str) else None)
        parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
        parser.EntityDeclHandler = self._refuse_entity
        parser.UnparsedEntityDeclHandler = self._refuse_entity
        parser.SkippedEntityHandler = self._refuse_entity
        parser.ExternalEntityRefHandler = self._refuse_entity
        parser.AttlistDeclHandler = self._declare_attribute
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        try:
            parser.Parse(data, True)
        except expat.ExpatError as error:
            raise self._error(error.lineno, f"expected XML, got {expat.ErrorString(error.code)}") from None
        except FormatError:
            raise
        except (LookupError, ValueError) as error:  # of an encoding that Python does not know
            raise self._error(1, f"expected text in UTF-8 or another known encoding ({error})") from None
        for element in self._definitions:
            self._table(element)
        if self._network is None:
            raise self._error(parser.CurrentLineNumber, "expected a NETWORK element, got none")
        names = self._network.get("NAME")
        title = self._name_in(names[0]) if names and names[0].joined().strip() else "unknown"
        return self._draft.network(title, self._properties(self._network))

    # -- events -----------------------------------------------------------------------------------------------------

    def _refuse_entity(self, *declaration: object) -> int:
        line = self._parser.CurrentLineNumber
        raise self._error(line, f"entities are not allowed, got {shown(str(declaration[0]))}")

    def _declare_attribute(self, *declaration: Any) -> None:
        _, attribute, _, default, _ = declaration
        self._num_attributes += 1
        if self._num_attributes > _MOST_ATTRIBUTES or len(default or "") > _LONGEST_DEFAULT:
            raise self._error(
                self._parser.CurrentLineNumber,
                f"at most {_MOST_ATTRIBUTES} attributes with defaults of at most {_LONGEST_DEFAULT} characters may be "
                f"declared, got {shown(str(attribute))}",
            )

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        line, around = self._parser.CurrentLineNumber, self._open[-1]
        allowed = () if self._text is not None else _CHILDREN[around.tag]
        if tag not in allowed:
            expected = " or ".join(allowed) if allowed else "text"
            raise self._error(line, f"expected {expected}, got element {shown(tag)}")
        if tag in _ONCE and tag in around.texts:
            raise self._error(line, f"expected one {tag} element in {around.tag or 'the file'}, got a second")
        text = _Text(line)
        around.texts.setdefault(tag, []).append(text)
        if tag not in _CHILDREN:
            self._text = text
            return
        kind = attributes.get("TYPE", "nature")
        if tag == "VARIABLE" and kind != "nature":
            raise self._error(line, f"expected a variable of TYPE 'nature', got {shown(kind)}")
        self._open.append(_Element(tag, line))

    def _end(self, tag: str) -> None:
        if self._text is not None:
            self._text = None
            return
        element = self._open.pop()
        if tag == "VARIABLE":
            names, outcomes = element.get("NAME"), element.get("OUTCOME")
            if not names:
                raise self._error(element.line, "a VARIABLE must have a NAME, got none")
            states = [self._name_in(outcome) for outcome in outcomes]
            places = [outcome.line for outcome in outcomes]
            self._draft.add_variable(self._name_in(names[0]), names[0].line, states, places, self._properties(element))
        elif tag == "DEFINITION":
            self._definitions.append(element)
        elif tag == "NETWORK":
            self._network = element

    def _characters(self, text: str) -> None:
        line = self._parser.CurrentLineNumber
        if self._text is not None:
            self._text.pieces.append((line, text))
        elif text.strip():
            raise self._error(line, f"expected an element, got {shown(text.strip())}")

    # -- meaning ----------------------------------------------------------------------------------------------------

    def _table(self, element: _Element) -> None:
        for tag in ("FOR", "TABLE"):
            if not element.get(tag):
                raise self._error(element.line, f"a DEFINITION must have a {tag} element, got none")
        scope = [*element.get("FOR"), *element.get("GIVEN")]
        child, _ = self._draft.define([self._name_in(text) for text in scope], [text.line for text in scope])
        num_rows, num_states = self._draft.shape(child)
        table = element.get("TABLE")[0]
        words = table.joined().split()
        name = shown(self._draft.names[child])
        if len(words) != num_rows * num_states:
            what = f"{num_rows * num_states} = {num_rows} x {num_states}"
            raise self._error(table.line, f"expected {what} probabilities of {name}, got {len(words)}")
        self._draft.reserve(child)
        values = self._draft.numbers(child, words, table.line_of_word)
        rows = self._draft.distributions(
            child,
            values.reshape(num_rows, num_states),
            lambda row: table.line_of_word(row * num_states),
            lambda row: self._draft.row_name(child, row),
        )
        self._draft.set_table(child, rows, self._properties(element))

    def _properties(self, element: _Element) -> list[str]:
        return [text.joined().strip() for text in element.get("PROPERTY")]

    def _name_in(self, text: _Text) -> str:
        name = text.joined().strip()
        if not name or _NO_NAME.search(name):
            raise self._error(text.line, f"expected a name, got {shown(name)}")
        return name

    def _error(self, line: int, message: str) -> FormatError:
        return FormatError(f"{self._name}:{line}: {message}")


FORMAT = Format(
    "XMLBIF", (".bifxml", ".xmlbif"), lambda data, name, *_: parse_xmlbif(data, name).to_model(), None, is_xmlbif,
    parse_xmlbif,
)  # fmt: skip
