"""The XMLBIF format, version 0.3: Bayesian networks with names, as XML.

A file has one ``NETWORK`` with a ``VARIABLE`` (a ``NAME`` and ``OUTCOME`` elements) for each variable and a
``DEFINITION`` for each table: ``FOR`` the child, ``GIVEN`` the parents in their order, ``TABLE`` the numbers, with the
child's state changing fastest and that of the first parent slowest. ``PROPERTY`` elements are passed over. Rows are
checked and normalized as in :mod:`fastmix.io.bif`.

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
from fastmix.io.tuning import XMLBIF_BYTE_BYTES
from fastmix.model.network import BayesianNetwork

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element, TreeBuilder
    from xml.parsers.expat import XMLParserType

__all__ = ["is_xmlbif", "parse_xmlbif"]

# The elements that each element may hold; all others hold text.
_CHILDREN = {
    "BIF": ("NETWORK",),
    "NETWORK": ("NAME", "PROPERTY", "VARIABLE", "DEFINITION"),
    "VARIABLE": ("NAME", "OUTCOME", "PROPERTY"),
    "DEFINITION": ("FOR", "GIVEN", "TABLE", "PROPERTY"),
}
_NO_NAME = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_WORD = re.compile(r"\S+")


def parse_xmlbif(text: str | bytes, name: str = "<string>", _max_bytes: float | None = None) -> BayesianNetwork:
    """The Bayesian network in a text in XMLBIF; ``name`` is the name of the file, for messages."""
    return _Reader(name).network(text)


def is_xmlbif(data: bytes) -> bool:
    """Whether a file looks like XML with an element ``BIF``."""
    return data.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"<" and b"<BIF" in data


class _Reader:
    """Reads a network out of elements. Places are lines."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lines: dict[Element, int] = {}

    def network(self, text: str | bytes) -> BayesianNetwork:
        """The network in a text: its variables are read first, and then its tables."""
        root = self._tree(text)
        if root.tag != "BIF":
            raise self._error(1, f"expected BIF, got element {shown(root.tag)}")
        network = self._one(root, "NETWORK")
        self._check(root)
        draft = NetworkDraft(self._error, self._name)
        for element in network.findall("VARIABLE"):
            self._variable(element, draft)
        for element in network.findall("DEFINITION"):
            self._table(element, draft)
        title = None if network.find("NAME") is None else self._one(network, "NAME").text
        return draft.network((title or "").strip() or "unknown")

    def _tree(self, text: str | bytes) -> Element:
        """The root of the tree of elements; the lines of all elements are kept."""
        if isinstance(text, str):
            data = text.removeprefix("\ufeff").encode("utf-8", "replace")
            encoding = "utf-8"
        else:
            data = text
            encoding = None  # as the file says
        what = f"{self._name}: reading {len(data)} bytes"
        check_memory(XMLBIF_BYTE_BYTES * len(data), what, "use a smaller file")
        if not data.strip():
            raise self._error(1, "the file is empty, expected a network")
        parser = expat.ParserCreate(encoding)
        builder = self._connect(parser)
        try:
            parser.Parse(data, True)
            return builder.close()
        except expat.ExpatError as error:
            raise self._error(error.lineno, f"expected XML, got {expat.ErrorString(error.code)}") from None
        except FormatError:
            raise
        except (LookupError, ValueError) as error:  # of an encoding that Python does not know
            raise self._error(1, f"expected text in UTF-8 or another known encoding ({error})") from None

    def _connect(self, parser: XMLParserType) -> TreeBuilder:
        """A builder of the tree that is fed by the parser, and refuses what the format does not have."""
        from xml.etree.ElementTree import TreeBuilder

        builder = TreeBuilder()
        open_tags = [""]

        def start(tag: str, attributes: dict[str, str]) -> None:
            self._lines[builder.start(tag, attributes)] = parser.CurrentLineNumber
            open_tags.append(tag)

        def end(tag: str) -> None:
            builder.end(tag)
            open_tags.pop()

        def read(text: str) -> None:
            if open_tags[-1] in _CHILDREN and text.strip():
                raise self._error(parser.CurrentLineNumber, f"expected an element, got {shown(text.strip())}")
            builder.data(text)

        def skip(comment: str) -> None:
            builder.data("\n" * comment.count("\n"))  # which counts lines

        def refuse_entity(name: str, *_: object) -> None:
            raise self._error(parser.CurrentLineNumber, f"entities are not allowed, got {shown(name)}")

        parser.specified_attributes = True  # a declaration with defaults would repeat them in every element
        parser.EntityDeclHandler = refuse_entity
        parser.SkippedEntityHandler = refuse_entity
        parser.StartElementHandler = start
        parser.EndElementHandler = end
        parser.CharacterDataHandler = read
        parser.CommentHandler = skip
        return builder

    def _check(self, element: Element) -> None:
        """Refuse elements that the format does not have."""
        allowed = _CHILDREN.get(element.tag, ())
        for child in element:
            if child.tag not in allowed:
                expected = " or ".join(allowed) or "text"
                raise self._error(self._lines[child], f"expected {expected}, got element {shown(child.tag)}")
            self._check(child)

    def _variable(self, element: Element, draft: NetworkDraft) -> None:
        """Add the variable of a ``VARIABLE`` to the draft."""
        name = self._one(element, "NAME")
        outcomes = element.findall("OUTCOME")
        kind = element.get("TYPE", "nature")
        if kind != "nature":
            raise self._error(self._lines[element], f"expected a variable of TYPE 'nature', got {shown(kind)}")
        states = [self._name_in(outcome) for outcome in outcomes]
        places = [self._lines[outcome] for outcome in outcomes]
        draft.add_variable(self._name_in(name), self._lines[name], states, places)

    def _table(self, element: Element, draft: NetworkDraft) -> None:
        """Hand the table of a ``DEFINITION`` to the draft."""
        scope = [self._one(element, "FOR"), *element.findall("GIVEN")]
        names = [self._name_in(name) for name in scope]
        child, _, (num_rows, num_states) = draft.define(names, [self._lines[name] for name in scope])
        table = self._one(element, "TABLE")
        first_line = self._lines[table]
        text = table.text or ""
        words = text.split()
        count = num_rows * num_states
        if len(words) != count:
            message = f"expected {count} = {num_rows} x {num_states} probabilities of {shown(names[0])}"
            raise self._error(first_line, f"{message}, got {len(words)}")

        def line_of(word: int) -> int:
            match = next(itertools.islice(_WORD.finditer(text), word, None))
            return first_line + text.count("\n", 0, match.start())

        draft.set_table(child, words, np.arange(count).reshape(num_rows, num_states), line_of)

    def _one(self, element: Element, tag: str) -> Element:
        """The only child of an element with this tag."""
        found = element.findall(tag)
        if len(found) != 1:
            message = f"expected one {tag} element in {element.tag}, got {len(found)}"
            raise self._error(self._lines[found[1] if found else element], message)
        return found[0]

    def _name_in(self, element: Element) -> str:
        """The name that is the text of an element."""
        name = (element.text or "").strip()
        if not name or _NO_NAME.search(name):
            raise self._error(self._lines[element], f"expected a name, got {shown(name)}")
        return name

    def _error(self, line: int, message: str) -> FormatError:
        """The error at a line of the file."""
        return FormatError(f"{self._name}:{line}: {message}")
