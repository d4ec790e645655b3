"""A reader of BIF that is slow and obvious, to compare the fast one with."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import numpy as np

from fastmix.io import bif
from oracle import RefusedError

PUNCTUATION = "{}()[];|"


def format_bif(network: Any) -> str:
    """A network as it is written."""
    return "".join(bif.bif_chunks(network))


def need(condition: object) -> None:
    if not condition:
        raise RefusedError


def braces_pair(text: str) -> bool:
    """Whether braces outside quotes on one line open and close, none before it opens."""
    depth = 0
    i = 0
    while i < len(text):
        end = i
        if text[i] == '"':
            end = i + 1
            while end < len(text) and text[end] not in '"\n':
                end += 1
            end = end if end < len(text) and text[end] == '"' else i
        if end == i:
            depth += (text[i] == "{") - (text[i] == "}")
        if depth < 0:
            return False
        i = end + 1
    return depth == 0


def tokens_of(text: str) -> list[tuple[str, str]]:
    """Pairs of a kind (word, quoted, or a sign itself) and a text."""
    result = []
    i = 0
    while i < len(text):
        if text[i].isspace() or text[i] == ",":
            i += 1
        elif text.startswith("//", i):
            while i < len(text) and text[i] != "\n":
                i += 1
        elif text.startswith("/*", i):
            end = text.find("*/", i + 2)
            need(end >= 0)
            i = end + 2
        elif text[i] == '"':
            end = i + 1
            while end < len(text) and text[end] not in '"\n':
                end += 1
            need(end < len(text) and text[end] == '"')
            result.append(("quoted", text[i + 1 : end]))
            i = end + 1
        elif text.startswith("property", i) and (text[i + 8 : i + 9].isspace() or text[i + 8 : i + 9] == '"'):
            end = text.find(";", i)
            need(end >= 0 and braces_pair(text[i:end]))
            i = end + 1
        elif text[i] in PUNCTUATION:
            result.append((text[i], text[i]))
            i += 1
        else:
            end = i
            while end < len(text) and not (
                text[end].isspace() or text[end] in PUNCTUATION + ',"' or text[end : end + 2] in ("//", "/*")
            ):
                end += 1
            result.append(("word", text[i:end]))
            i = end
    return result


class Reader:
    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self.tokens = [*tokens, ("end", "")]
        self.i = 0

    def kind(self) -> str:
        return self.tokens[self.i][0]

    def take(self, *kinds: str) -> str:
        kind, text = self.tokens[self.i]
        need(kind in kinds)
        self.i += 1
        return text

    def keyword(self, word: str) -> None:
        need(self.take("word") == word)

    def name(self) -> str:
        name = self.take("word", "quoted")
        need(name and not re.search("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]", name))
        return name

    def listed(self, take: Any, end: str) -> list[Any]:
        """Items up to a closing sign."""
        result: list[Any] = []
        while self.kind() != end:
            result.append(take())
        self.take(end)
        return result

    def number(self) -> float:
        word = self.take("word")
        need(re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", word))
        value = float(word)
        need(0 <= value < math.inf)
        return value


def distribution(values: list[float]) -> list[float]:
    total = math.fsum(values)
    need(abs(total - 1) <= 1e-4 + 1e-9)
    return [value / total for value in values]


def read_naive(data: bytes) -> dict[str, Any]:
    """Names, states, parents, and tables as dictionaries of rows by states of the parents."""
    need(b"\0" not in data and not data.startswith((b"\xff\xfe", b"\xfe\xff")))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise RefusedError from None
    reader = Reader(tokens_of(text.replace("\r\n", "\n").replace("\r", "\n")))
    network = None
    states: dict[str, list[str]] = {}
    blocks = []
    need(reader.kind() != "end")
    while reader.kind() != "end":
        block = reader.take("word")
        if block == "network":
            need(network is None)
            network = "unknown" if reader.kind() == "{" else reader.name()
            reader.take("{")
            reader.take("}")
        elif block == "variable":
            name = reader.name()
            need(name not in states)
            reader.take("{")
            reader.keyword("type")
            reader.keyword("discrete")
            reader.take("[")
            count = reader.take("word")
            need(re.fullmatch("[0-9]{1,9}", count))
            reader.take("]")
            reader.take("{")
            states[name] = reader.listed(reader.name, "}")
            need(len(states[name]) == int(count) == len(set(states[name])) > 0)
            if reader.kind() == ";":
                reader.take(";")
            reader.take("}")
        else:
            need(block == "probability")
            reader.take("(")
            if reader.tokens[min(reader.i + 1, len(reader.tokens) - 1)][0] == "|":
                child = reader.name()
                reader.take("|")
                scope = [child, *reader.listed(reader.name, ")")]
            else:
                scope = reader.listed(reader.name, ")")
            need(scope)
            reader.take("{")
            entries: list[tuple[str, tuple[str, ...], list[float]]] = []
            while reader.kind() != "}":
                if reader.kind() == "(":
                    reader.take("(")
                    row = tuple(reader.listed(reader.name, ")"))
                    entries.append(("row", row, reader.listed(reader.number, ";")))
                else:
                    word = reader.take("word")
                    need(word in ("table", "default"))
                    entries.append((word, (), reader.listed(reader.number, ";")))
            reader.take("}")
            blocks.append((scope, entries))
    parents: dict[str, list[str]] = {}
    tables: dict[str, dict[tuple[str, ...], list[float]]] = {}
    for scope, entries in blocks:
        child, own = scope[0], scope[1:]
        need(all(name in states for name in scope) and len(set(scope)) == len(scope) <= 32 and child not in tables)
        every = list(itertools.islice(itertools.product(*(states[p] for p in own)), 10**5))
        table: dict[tuple[str, ...], list[float]] = {}
        kinds = [kind for kind, _, _ in entries]
        need(entries and kinds.count("default") <= 1 and ("table" not in kinds or len(kinds) == 1))
        for kind, row, values in entries:
            if kind == "table":
                need(len(values) == len(every) * len(states[child]))
                for k, key in enumerate(every):
                    table[key] = distribution(values[k :: len(every)])
            else:
                need(len(values) == len(states[child]))
                values = distribution(values)
            if kind == "row":
                need(row in every and row not in table)
                table[row] = values
        for kind, _, values in entries:
            if kind == "default":
                for key in every:
                    table.setdefault(key, distribution(values))
        need(len(table) == len(every))
        parents[child], tables[child] = own, table
    need(set(tables) == set(states))
    done: set[str] = set()
    while len(done) < len(states):
        ready = [name for name in states if name not in done and set(parents[name]) <= done]
        need(ready)
        done.update(ready)
    return {
        "name": network or "unknown",
        "states": states,
        "parents": parents,
        "tables": tables,
    }


def assert_same(naive: dict[str, Any], network: Any) -> None:
    names = list(network.variable_names)
    assert names == list(naive["states"])
    assert network.name == naive["name"]
    for i, name in enumerate(names):
        assert list(network.state_names[i]) == naive["states"][name]
        assert [names[p] for p in network.parents[i]] == naive["parents"][name]
        for key, row in naive["tables"][name].items():
            index = tuple(network.state_names[p].index(state) for p, state in zip(network.parents[i], key, strict=True))
            np.testing.assert_allclose(network.tables[i][index], row, rtol=1e-14, atol=0)
