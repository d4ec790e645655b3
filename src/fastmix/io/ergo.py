r"""The Ergo format (``.erg``) of the UAI 2006 evaluation: Bayesian networks as text.

A file is a list of numbers, with comments ``/* .. */``, three of which begin the sections: the number of variables, the
number of states of each, for each variable its parents (how many, then which); after ``/* Probabilities */`` for each
variable its table (how many entries, then the entries, the state of the variable changing fastest and that of its first
parent slowest); after ``/* Names */`` the names of the variables, and after ``/* Labels */`` those of the states of
each. The last two may be missing. Rows are checked and normalized as in ``BAYES`` files (:mod:`fastmix.io.uai`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from fastmix._memory import check_memory
from fastmix.errors import FormatError
from fastmix.io.files import decode_text, shown
from fastmix.io.tokens import NumberText, blank_blocks
from fastmix.io.tuning import ERGO_CHARACTER_BYTES
from fastmix.io.uai import read_tables
from fastmix.model.network import BayesianNetwork

__all__ = ["is_ergo", "read"]

_SECTIONS = [b"probabilities", b"names", b"labels"]  # in the order of the file
_START = re.compile(rb"(?:\xef\xbb\xbf)?(?:\s|/\*[\s\S]*?\*/)*+[0-9]")
_SECTION = re.compile(rb"/\*\s*(probabilities|names|labels)\s*\*/", re.IGNORECASE)


def is_ergo(data: bytes) -> bool:
    """Whether a file begins with a number and has a section of the format."""
    return _START.match(data) is not None and _SECTION.search(data) is not None


def read(data: bytes, name: str, _max_bytes: float | None = None) -> BayesianNetwork:
    """Bayesian network in a text in Ergo format; ``name`` is the name of the file, for messages."""
    text = decode_text(data, name)
    data = text.replace("\r\n", "\n").replace("\r", "\n").encode()
    # 1. Find the comments that begin sections.
    headings = list(_SECTION.finditer(data))
    order = [heading[1].lower() for heading in headings]
    if order != _SECTIONS[: len(order)]:
        found = ", ".join(word.decode() for word in order)
        raise FormatError(f"{name}:1: expected the sections Probabilities, Names and Labels, got {shown(found)}")
    sections = dict(zip(order, headings, strict=True))
    end_of_numbers = sections[b"names"].start() if b"names" in sections else len(data)
    end_of_names = sections[b"labels"].start() if b"labels" in sections else len(data)
    # 2. Read the numbers: state counts, parents and tables.
    numbers = NumberText(blank_blocks(data[:end_of_numbers], name), name)
    n, num_states = numbers.state_counts(0)
    words, num_parents, first_table = numbers.blocks(n + 1, n, "the parents of variable {}", whole=True)
    child = np.repeat(np.arange(n), num_parents)
    parents_before = np.cumsum(num_parents) - num_parents
    places = np.arange(len(child)) + np.repeat(words + 1 - parents_before, num_parents)
    network_of = read_tables(numbers, num_states, child, places, num_parents, first_table)
    # 3. Read the names, as far as there are any.
    if b"names" not in sections:
        return network_of(None, None)
    names = _names(data, sections[b"names"].end(), end_of_names, name, n)
    states = None
    if b"labels" in sections:
        states = _labels(data, sections[b"labels"].end(), name, num_states.tolist())
    return network_of(names, states)


def _names(data: bytes, start: int, stop: int, name: str, count: int) -> list[str]:
    """Names of the variables in a section: one on each line, or separated by white space."""
    text = _text(data, start, stop, name)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    words = lines if len(lines) == count else text.split()
    if len(words) != count:
        raise FormatError(f"{name}:{_line(data, start)}: expected {count} names of variables, got {len(words)}")
    if len(set(words)) < count:
        raise FormatError(f"{name}:{_line(data, start)}: the names of variables must all be different")
    return words


def _labels(data: bytes, start: int, name: str, counts: Sequence[int]) -> list[list[str]]:
    """Names of the states of each variable, in the section that begins at ``start`` and ends with the file."""
    words = _text(data, start, len(data), name).split()
    if len(words) != sum(counts):
        message = f"expected {sum(counts)} names of states, as many as all variables have, got {len(words)}"
        raise FormatError(f"{name}:{_line(data, start)}: {message}")
    states = []
    begin = 0
    for i, count in enumerate(counts):
        labels = words[begin : begin + count]
        if len(set(labels)) < len(labels):
            raise FormatError(f"{name}:{_line(data, start)}: the names of the states of variable {i} must be different")
        states.append(labels)
        begin += count
    return states


def _text(data: bytes, start: int, stop: int, name: str) -> str:
    """Text of a section, in which blanks replace the comments."""
    check_memory(ERGO_CHARACTER_BYTES * (stop - start), f"{name}: reading names", "use a smaller file")
    return blank_blocks(data[start:stop], name, _line(data, start)).decode()


def _line(data: bytes, place: int) -> int:
    """Number of the line that a byte is in, counted from 1."""
    return data.count(b"\n", 0, place) + 1
