r"""Numbers out of text with their places, for the formats that are words separated by white space.

White space is any mix of blanks, tabs, vertical tabs, form feeds and line ends (``\n``, ``\r\n`` or ``\r``).
Comments are not part of the formats but are found in files: ``#`` starts one that runs to the end of the line, and a
line whose first word is the single letter ``c`` is one. No number contains either sign, so neither can hide data.
"""

from __future__ import annotations

import re
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix._memory import check_memory
from fastmix.errors import FormatError
from fastmix.io.files import decode_text, shown

__all__ = ["NumberText", "blank_blocks", "cut_header", "strip_comments"]

_WHITE, _DIGIT, _SYMBOL, _ILLEGAL = range(4)
_CLASSES = bytes(
    _WHITE if byte in b" \t\n\r\v\f" else _DIGIT if byte in b"0123456789" else _SYMBOL if byte in b"+-.eE" else _ILLEGAL
    for byte in range(256)
)
_HASH_COMMENT = re.compile(rb"#[^\n]*")
_C_COMMENT = re.compile(rb"^[ \t\v\f]*c(?:[ \t\v\f][^\n]*)?$", re.MULTILINE)
_BLOCK_COMMENT = re.compile(rb"/\*(?:[\s\S]*?\*/|[\s\S]*)")
_NOT_LINE_END = re.compile(rb"[^\n]")
# A variable in a table has at least one entry per state, but one in no table costs a single word whatever its number of
# states. The states in all are limited to this many, plus so many per word, to keep memory in proportion.
_FREE_STATES = 1 << 20
_STATES_PER_WORD = 64
_WORD = re.compile(rb"[^ \t\n\r\v\f]+")
_TOKEN_BYTES = 100.0  # of memory at the peak, in reading and using a number
_CHUNK_TOKENS = 1 << 17  # words turned into Python objects at a time: about 10 MiB


def strip_comments(data: bytes, name: str) -> bytes:
    r"""The text as bytes, lines ended by ``\n``, comments taken out; as many lines as before.

    A :class:`FormatError` if the data are not UTF-8 text.
    """
    if not data.isascii() or b"\0" in data:
        data = decode_text(data, name).encode()
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if b"#" in data:
        data = _HASH_COMMENT.sub(b"", data)
    if b"c" in data:
        data = _C_COMMENT.sub(b"", data)
    return data


def blank_blocks(data: bytes, name: str, first_line: int = 1) -> bytes:
    """The data with blanks in the place of comments ``/* .. */``, as files of the UAI 2006 evaluation have them.

    A :class:`FormatError` if one does not end; ``first_line`` is the number of the first line.
    """
    if b"/*" not in data:
        return data
    for match in _BLOCK_COMMENT.finditer(data):
        if not match[0].endswith(b"*/", 4):
            line = first_line + data.count(b"\n", 0, match.start())
            raise FormatError(f"{name}:{line}: a comment must end in '*/', got {shown(match[0])}")
    return _BLOCK_COMMENT.sub(lambda match: _NOT_LINE_END.sub(b" ", match[0]), data)


def cut_header(data: bytes, name: str, allowed: tuple[str, ...]) -> tuple[str, bytes]:
    """The first word in upper case, which must be one of ``allowed``, and the data with blanks in its place."""
    expected = " or ".join(allowed)
    match = _WORD.search(data)
    if match is None:
        raise FormatError(f"{name}:1: the file is empty, expected {expected}")
    word = match.group().upper().decode("utf-8", "replace")
    if word not in allowed:
        line = data.count(b"\n", 0, match.start()) + 1
        raise FormatError(f"{name}:{line}: expected {expected}, got {shown(match.group())}")
    return word, data[: match.start()] + b" " * len(match.group()) + data[match.end() :]


class NumberText:
    """The words of a text without comments as numbers (T,): values, whether they are digits only, where they start.

    A :class:`FormatError` if a word is not a decimal number; ``inf`` and ``nan`` are none. A word too large for a
    double is inf, one too small is 0. Finding the words is vectorised over bytes; turning them into numbers takes about
    a quarter of a microsecond each. Memory: 17 bytes per word, and three bytes per byte of text for a while.
    """

    def __init__(self, data: bytes, name: str) -> None:
        self.data = data
        self.name = name
        classes = np.frombuffer(data.translate(_CLASSES), dtype=np.uint8)
        inside = classes != _WHITE
        first = np.zeros(int(len(data) > 0 and inside[0]), dtype=np.int64)
        begins = inside[1:] & ~inside[:-1]
        count = len(first) + int(np.count_nonzero(begins))
        check_memory(_TOKEN_BYTES * count, f"{name}: reading {count} numbers", "use npz, or a smaller file")
        later = np.flatnonzero(begins) + 1
        self._bounds: IntArray = np.concatenate([first, later, np.array([len(data)], dtype=np.int64)])
        self.starts: IntArray = self._bounds[:-1]
        del inside, begins, later
        if len(data) and classes.max() == _ILLEGAL:
            where = int(np.argmax(classes == _ILLEGAL))
            self.fail(int(np.searchsorted(self.starts, where, side="right")) - 1, "expected a number")
        self.whole: NDArray[np.bool_] = np.ones(0, dtype=bool)
        if count:
            self.whole = ~np.logical_or.reduceat(classes == _SYMBOL, self.starts)
        del classes
        self.values: FloatArray = np.empty(len(self.starts))
        for start in range(0, len(self), _CHUNK_TOKENS):
            self._convert(start, min(start + _CHUNK_TOKENS, len(self)))

    def _convert(self, start: int, stop: int) -> None:
        words = self.data[self.starts[start] : self._bounds[stop]].split()
        try:
            self.values[start:stop] = np.fromiter(map(float, words), np.float64, stop - start)
        except ValueError:
            for index, word in enumerate(words, start):
                try:
                    float(word)
                except ValueError:
                    self.fail(index, "expected a number")
            raise

    def __len__(self) -> int:
        return len(self.starts)

    def word(self, index: int) -> bytes:
        """One word as it stands in the text."""
        return self.data[self.starts[index] : self._bounds[index + 1]].rstrip()

    def line(self, index: int) -> int:
        """Line of a word, counted from 1."""
        return self.data.count(b"\n", 0, int(self.starts[index])) + 1

    def widths(self, indices: IntArray) -> IntArray:
        """Bytes from the start of each word to the start of the next or the end of the text."""
        return self._bounds[indices + 1] - self.starts[indices]

    def fail(self, index: int, message: str) -> NoReturn:
        """Raise a :class:`FormatError` about one word."""
        raise FormatError(f"{self.name}:{self.line(index)}: {message}, got {shown(self.word(index))}")

    def fail_at_end(self, expected: str) -> NoReturn:
        """Raise a :class:`FormatError` because the text ends too early."""
        line = self.line(len(self) - 1) if len(self) else 1
        raise FormatError(f"{self.name}:{line}: the file ends where {expected} was expected")

    def require_whole(self, start: int, stop: int, what: str) -> None:
        """A :class:`FormatError` at the first word from ``start`` to before ``stop`` that is not digits only."""
        if (wrong := np.flatnonzero(~self.whole[start:stop])).size:
            self.fail(start + int(wrong[0]), f"{what} must be whole numbers")

    def count(self, index: int, what: str) -> int:
        """A count of things that take at least one word each, so that it cannot exceed the words that follow it."""
        if index >= len(self):
            self.fail_at_end(what)
        if not self.whole[index]:
            self.fail(index, f"{what} must be a whole number")
        left = len(self) - index - 1
        if not self.values[index] <= left:
            self.fail(index, f"{what} must be at most {left}, the count of numbers left in the file")
        return int(self.values[index])

    def state_counts(self, index: int) -> tuple[int, IntArray]:
        """A number of variables and the number of states of each, which stand from one word on."""
        n = self.count(index, "the number of variables")
        self.require_whole(index + 1, index + n + 1, "the numbers of states")
        counts = self.values[index + 1 : index + n + 1]
        if len(counts) < n:
            self.fail_at_end("the numbers of states")
        if n and counts.min() < 1:
            i = int(counts.argmin())
            self.fail(index + i + 1, f"the number of states of variable {i} must be at least 1")
        limit = _FREE_STATES + _STATES_PER_WORD * len(self)
        with np.errstate(over="ignore"):
            total = counts.sum()
        if not total <= limit:
            i = int(counts.argmax())
            self.fail(
                index + i + 1,
                f"the variables must have at most {limit} states in all in a file of {len(self)} numbers; "
                f"variable {i} has the most",
            )
        return n, counts.astype(np.int64)

    def blocks(self, start: int, num_blocks: int, what: str, *, whole: bool = False) -> tuple[IntArray, IntArray, int]:
        """The word with the size of each of several blocks ``k w1 .. wk`` one after another, the sizes, and the end.

        ``what``, filled with the number of a block, names it in messages. The sizes must be digits only, and with
        ``whole`` so must the words in the blocks.
        """
        # One step per block, because where one starts is known only once the one before is read. A view hands out
        # Python numbers several times faster than an array does.
        values, total = self.values.data, len(self)
        position = start
        sizes: list[int] = []
        for _ in range(num_blocks):
            if position >= total or not 0 <= values[position] <= total - position - 1:
                break
            size = int(values[position])
            sizes.append(size)
            position += 1 + size
        block_sizes = np.array(sizes, dtype=np.int64)
        words = start + np.cumsum(1 + block_sizes) - (1 + block_sizes)
        checked = np.arange(start, position) if whole else words
        if (wrong := checked[~self.whole[checked]]).size:
            k = int(np.searchsorted(words, wrong[0], side="right")) - 1
            self.fail(int(wrong[0]), f"{what.format(k)} must be given in whole numbers")
        if (k := len(sizes)) < num_blocks:
            if position >= total:
                self.fail_at_end(what.format(k))
            self.count(position, f"the size of {what.format(k)}")
        return words, block_sizes, position
