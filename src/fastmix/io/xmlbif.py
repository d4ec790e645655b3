"""The XMLBIF format, version 0.3: Bayesian networks with names, as XML.

A file has one ``NETWORK`` with a ``VARIABLE`` (a ``NAME`` and ``OUTCOME`` elements) for each variable and a
``DEFINITION`` for each table: ``FOR`` the child, ``GIVEN`` the parents in their order, ``TABLE`` the numbers, with the
child's state changing fastest and that of the first parent slowest. ``PROPERTY`` elements are passed over. Rows are
checked and normalised as in :mod:`fastmix.io.bif`.

A document type declaration may hold elements and attributes, as that of the format does. One that declares an entity
is refused, and nothing outside the file is ever opened. Elements that the format does not have are refused.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING
from xml.parsers import expat

import numpy as np

from fastmix._memory import check_memory
from fastmix.errors import FormatError
from fastmix.io.bif import NetworkDraft
from fastmix.io.files import shown
from fastmix.model.network import BayesianNetwork

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

__all__ = ["is_xmlbif", "parse_xmlbif"]

_CHILDREN = {
    "BIF": ("NETWORK",),
    "NETWORK": ("NAME", "PROPERTY", "VARIABLE", "DEFINITION"),
    "VARIABLE": ("NAME", "OUTCOME", "PROPERTY"),
    "DEFINITION": ("FOR", "GIVEN", "TABLE", "PROPERTY"),
}
_NO_NAME = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_WORD = re.compile(r"\S+")
_CHARACTER_BYTES = 100.0  # of memory at the peak for each byte of the file


def parse_xmlbif(text: str | bytes, name: str = "<string>", _max_bytes: float | None = None) -> BayesianNetwork:
    """The Bayesian network in a text in XMLBIF; ``name`` is that of the file, for messages."""
    return _Reader(name).network(text)


def is_xmlbif(data: bytes) -> bool:
    """Whether a file looks like XML with an element ``BIF``."""
    return data.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"<" and b"<BIF" in data


class _Reader:
    """Places are lines."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lines: dict[Element, int] = {}

    def network(self, text: str | bytes) -> BayesianNetwork:
        root = self._tree(text)
        if root.tag != "BIF":
            raise self._error(1, f"expected BIF, got element {shown(root.tag)}")
        network, draft = self._one(root, "NETWORK"), NetworkDraft(self._error, self._name)
        self._check(root)
        for element in network.findall("VARIABLE"):
            name, outcomes = self._one(element, "NAME"), element.findall("OUTCOME")
            if (kind := element.get("TYPE", "nature")) != "nature":
                raise self._error(self._lines[element], f"expected a variable of TYPE 'nature', got {shown(kind)}")
            states, places = [self._name_in(outcome) for outcome in outcomes], [self._lines[o] for o in outcomes]
            draft.add_variable(self._name_in(name), self._lines[name], states, places)
        for element in network.findall("DEFINITION"):
            self._table(element, draft)
        title = None if network.find("NAME") is None else self._one(network, "NAME").text
        return draft.network((title or "").strip() or "unknown")

    def _tree(self, text: str | bytes) -> Element:
        from xml.etree.ElementTree import TreeBuilder

        data = text.removeprefix("\ufeff").encode("utf-8", "replace") if isinstance(text, str) else text
        what = f"{self._name}: reading {len(data)} bytes"
        check_memory(_CHARACTER_BYTES * len(data), what, "use a smaller file")
        if not data.strip():
            raise self._error(1, "the file is empty, expected a network")
        builder, parser = TreeBuilder(), expat.ParserCreate("utf-8" if isinstance(text, str) else None)

        around = [""]

        def start(tag: str, attributes: dict[str, str]) -> None:
            self._lines[builder.start(tag, attributes)] = parser.CurrentLineNumber
            around.append(tag)

        def end(tag: str) -> None:
            builder.end(tag)
            around.pop()

        def read(text: str) -> None:
            if around[-1] in _CHILDREN and text.strip():
                raise self._error(parser.CurrentLineNumber, f"expected an element, got {shown(text.strip())}")
            builder.data(text)

        def refuse_entity(name: str, *_: object) -> None:
            raise self._error(parser.CurrentLineNumber, f"entities are not allowed, got {shown(name)}")

        parser.specified_attributes = True  # a declaration with defaults would repeat them in every element
        parser.EntityDeclHandler = parser.SkippedEntityHandler = refuse_entity
        parser.StartElementHandler, parser.EndElementHandler = start, end
        parser.CharacterDataHandler = read
        parser.CommentHandler = lambda comment: builder.data("\n" * comment.count("\n"))  # which counts lines
        try:
            parser.Parse(data, True)
            return builder.close()
        except expat.ExpatError as error:
            raise self._error(error.lineno, f"expected XML, got {expat.ErrorString(error.code)}") from None
        except FormatError:
            raise
        except (LookupError, ValueError) as error:  # of an encoding that Python does not know
            raise self._error(1, f"expected text in UTF-8 or another known encoding ({error})") from None

    def _check(self, element: Element) -> None:
        allowed = _CHILDREN.get(element.tag, ())
        for child in element:
            if child.tag not in allowed:
                expected = " or ".join(allowed) or "text"
                raise self._error(self._lines[child], f"expected {expected}, got element {shown(child.tag)}")
            self._check(child)

    def _table(self, element: Element, draft: NetworkDraft) -> None:
        scope = [self._one(element, "FOR"), *element.findall("GIVEN")]
        names, places = [self._name_in(name) for name in scope], [self._lines[name] for name in scope]
        child, _, (num_rows, num_states) = draft.define(names, places)
        table = self._one(element, "TABLE")
        text, count, line = table.text or "", num_rows * num_states, self._lines[table]
        words = text.split()
        if len(words) != count:
            message = f"expected {count} = {num_rows} x {num_states} probabilities of {shown(names[0])}"
            raise self._error(line, f"{message}, got {len(words)}")

        def line_of(word: int) -> int:
            match = next(itertools.islice(_WORD.finditer(text), word, None))
            return line + text.count("\n", 0, match.start())

        draft.set_table(child, words, np.arange(count).reshape(num_rows, num_states), line_of)

    def _one(self, element: Element, tag: str) -> Element:
        found = element.findall(tag)
        if len(found) != 1:
            message = f"expected one {tag} element in {element.tag}, got {len(found)}"
            raise self._error(self._lines[found[1] if found else element], message)
        return found[0]

    def _name_in(self, element: Element) -> str:
        name = (element.text or "").strip()
        if not name or _NO_NAME.search(name):
            raise self._error(self._lines[element], f"expected a name, got {shown(name)}")
        return name

    def _error(self, line: int, message: str) -> FormatError:
        return FormatError(f"{self._name}:{line}: {message}")
