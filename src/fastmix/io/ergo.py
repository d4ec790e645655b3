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
from fastmix.io.uai import read_tables
from fastmix.model.network import BayesianNetwork

__all__ = ["is_ergo", "read"]

_START = re.compile(rb"(?:\xef\xbb\xbf)?(?:\s|/\*[\s\S]*?\*/)*+[0-9]")
_SECTION = re.compile(rb"/\*\s*(probabilities|names|labels)\s*\*/", re.IGNORECASE)
_CHARACTER_BYTES = 40.0  # of memory at the peak for each character of names, if each second one is a word


def is_ergo(data: bytes) -> bool:
    """Whether a file begins with a number and has a section of the format."""
    return _START.match(data) is not None and _SECTION.search(data) is not None


def read(data: bytes, name: str, _max_bytes: float | None = None) -> BayesianNetwork:
    """The Bayesian network in a text in Ergo format."""
    data = decode_text(data, name).replace("\r\n", "\n").replace("\r", "\n").encode()
    sections = {match[1].lower(): match for match in _SECTION.finditer(data)}
    order = [match[1].lower() for match in _SECTION.finditer(data)]
    if order != [b"probabilities", b"names", b"labels"][: len(order)]:
        found = ", ".join(word.decode() for word in order)
        raise FormatError(f"{name}:1: expected the sections Probabilities, Names and Labels, got {shown(found)}")
    ends = [sections[word].start() if word in sections else len(data) for word in (b"names", b"labels")]
    numbers = NumberText(blank_blocks(data[: min(ends)], name), name)
    n, num_states = numbers.state_counts(0)
    words, kinds, end = numbers.blocks(n + 1, n, "the parents of variable {}", whole=True)
    # Scopes as in other files: the parents, and then the variable.
    own = np.repeat(np.arange(n), kinds)
    places = np.arange(len(own)) + np.repeat(words + 1 - (np.cumsum(kinds) - kinds), kinds)
    network_of = read_tables(numbers, num_states, own, places, kinds, end)
    if b"names" not in sections:
        return network_of(None, None)
    names = _names(data, sections[b"names"].end(), ends[1], name, n)
    states = None
    if b"labels" in sections:
        states = _labels(data, sections[b"labels"].end(), name, num_states.tolist())
    return network_of(names, states)


def _names(data: bytes, start: int, stop: int, name: str, count: int) -> list[str]:
    """The names of variables: one on each line, or as many words."""
    text = _text(data, start, stop, name)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    words = lines if len(lines) == count else text.split()
    if len(words) != count:
        raise FormatError(f"{name}:{_line(data, start)}: expected {count} names of variables, got {len(words)}")
    if len(set(words)) < count:
        raise FormatError(f"{name}:{_line(data, start)}: the names of variables must all be different")
    return words


def _labels(data: bytes, start: int, name: str, counts: Sequence[int]) -> list[list[str]]:
    """The names of states, variable by variable."""
    words = _text(data, start, len(data), name).split()
    if len(words) != sum(counts):
        message = f"expected {sum(counts)} names of states, as many as all variables have, got {len(words)}"
        raise FormatError(f"{name}:{_line(data, start)}: {message}")
    rest = iter(words)
    states = [[next(rest) for _ in range(count)] for count in counts]
    for i, own in enumerate(states):
        if len(set(own)) < len(own):
            raise FormatError(f"{name}:{_line(data, start)}: the names of the states of variable {i} must be different")
    return states


def _text(data: bytes, start: int, stop: int, name: str) -> str:
    """The words of a section, without comments."""
    check_memory(_CHARACTER_BYTES * (stop - start), f"{name}: reading names", "use a smaller file")
    return blank_blocks(data[start:stop], name, _line(data, start)).decode()


def _line(data: bytes, place: int) -> int:
    return data.count(b"\n", 0, place) + 1
