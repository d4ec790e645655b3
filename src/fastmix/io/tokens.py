r"""Numbers read from text together with their places, for the formats that are words separated by white space.

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
from fastmix.io.tuning import FREE_STATES, NUMBER_BYTES, NUMBERS_PER_CHUNK, STATES_PER_WORD

__all__ = ["LARGEST_INDEX", "NumberText", "blank_blocks", "cut_header", "strip_comments"]

#: Beyond every number of a variable or a state: doubles hold no larger whole numbers, and no model has so many.
LARGEST_INDEX = 2**53

# Classes of bytes, in ascending order: the largest one in a text tells whether any byte is illegal.
_WHITE = 0
_DIGIT = 1
_SYMBOL = 2
_ILLEGAL = 3


def _class_of(byte: int) -> int:
    """Class of a byte: white space, digit, another character of decimal numbers, or none of these."""
    if byte in b" \t\n\r\v\f":
        return _WHITE
    if byte in b"0123456789":
        return _DIGIT
    if byte in b"+-.eE":
        return _SYMBOL
    return _ILLEGAL


_CLASSES = bytes(_class_of(byte) for byte in range(256))  # a table for bytes.translate
_WORD = re.compile(rb"[^ \t\n\r\v\f]+")
_HASH_COMMENT = re.compile(rb"#[^\n]*")
_C_COMMENT = re.compile(rb"^[ \t\v\f]*c(?:[ \t\v\f][^\n]*)?$", re.MULTILINE)
_BLOCK_COMMENT = re.compile(rb"/\*(?:[\s\S]*?\*/|[\s\S]*)")
_NOT_LINE_END = re.compile(rb"[^\n]")


def strip_comments(data: bytes, name: str) -> bytes:
    r"""Text without comments, as bytes whose lines end in ``\n``; the number of lines stays as it was.

    Raises
    ------
    FormatError
        If the data are not UTF-8 text.
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
    """Data in which blanks replace the comments ``/* .. */``, which files of the UAI 2006 evaluation have.

    ``first_line`` is the number of the first line in the file, for messages.

    Raises
    ------
    FormatError
        If a comment does not end.
    """
    if b"/*" not in data:
        return data
    for match in _BLOCK_COMMENT.finditer(data):
        if not match[0].endswith(b"*/", 4):
            line = first_line + data.count(b"\n", 0, match.start())
            raise FormatError(f"{name}:{line}: a comment must end in '*/', got {shown(match[0])}")

    def blanks_for(match: re.Match[bytes]) -> bytes:
        """Blanks in place of a comment; its line ends stay, so that later words keep their line numbers."""
        return _NOT_LINE_END.sub(b" ", match[0])

    return _BLOCK_COMMENT.sub(blanks_for, data)


def cut_header(data: bytes, name: str, allowed: tuple[str, ...]) -> tuple[str, bytes]:
    """First word of a file in upper case, and the data with blanks in its place.

    Raises
    ------
    FormatError
        If the file is empty, or the word is none of those ``allowed``.
    """
    expected = " or ".join(allowed)
    match = _WORD.search(data)
    if match is None:
        raise FormatError(f"{name}:1: the file is empty, expected {expected}")
    word = match.group().upper().decode("utf-8", "replace")
    if word not in allowed:
        line = data.count(b"\n", 0, match.start()) + 1
        raise FormatError(f"{name}:{line}: expected {expected}, got {shown(match.group())}")
    blanks = b" " * len(match.group())
    return word, data[: match.start()] + blanks + data[match.end() :]


class NumberText:
    """Words of a text as numbers, with their places in the text.

    Parameters
    ----------
    data : bytes
        The text, without comments.
    name : str
        Name of the file, for messages.

    Attributes
    ----------
    values : ndarray of float64, shape (T,)
        The numbers. A word too large for a double is inf, a word too small for one is 0.
    whole : ndarray of bool, shape (T,)
        Whether a word consists of digits only.
    starts : ndarray of int64, shape (T,)
        Where each word starts in the text, in bytes.

    Raises
    ------
    FormatError
        If a word is not a decimal number; ``inf`` and ``nan`` are none.
    ResourceError
        If there is not enough memory for so many numbers.

    Notes
    -----
    Words are found by operations on all bytes at once; turning them into numbers takes about a quarter of a microsecond
    each. Memory: 17 bytes per word, and temporarily three bytes per byte of text.
    """

    def __init__(self, data: bytes, name: str) -> None:
        self.data = data
        self.name = name
        # 1. Find where words start, and check that there is memory for them.
        classes = np.frombuffer(data.translate(_CLASSES), dtype=np.uint8)
        inside = classes != _WHITE
        first = np.zeros(int(len(data) > 0 and inside[0]), dtype=np.int64)
        begins = inside[1:] & ~inside[:-1]
        count = len(first) + int(np.count_nonzero(begins))
        check_memory(NUMBER_BYTES * count, f"{name}: reading {count} numbers", "use npz, or a smaller file")
        later = np.flatnonzero(begins) + 1
        self._bounds: IntArray = np.concatenate([first, later, np.array([len(data)], dtype=np.int64)])
        self.starts: IntArray = self._bounds[:-1]
        del inside, begins, later
        # 2. Refuse the first byte that no number contains.
        if len(data) and classes.max() == _ILLEGAL:
            where = int(np.argmax(classes == _ILLEGAL))
            index = int(np.searchsorted(self.starts, where, side="right")) - 1
            self.fail(index, "expected a number")
        # 3. Note which words are digits only, and turn all words into numbers.
        self.whole: NDArray[np.bool_] = np.ones(0, dtype=bool)
        if count:
            self.whole = ~np.logical_or.reduceat(classes == _SYMBOL, self.starts)
        del classes
        self.values: FloatArray = np.empty(len(self.starts))
        for start in range(0, len(self), NUMBERS_PER_CHUNK):
            self._convert(start, min(start + NUMBERS_PER_CHUNK, len(self)))

    def _convert(self, start: int, stop: int) -> None:
        """Fill the values of the words from ``start`` to before ``stop``; a word that is no number is refused."""
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
        """Word at an index, as it stands in the text."""
        return self.data[self.starts[index] : self._bounds[index + 1]].rstrip()

    def line(self, index: int) -> int:
        """Number of the line that a word is in, counted from 1."""
        return self.data.count(b"\n", 0, int(self.starts[index])) + 1

    def widths(self, indices: IntArray) -> IntArray:
        """Number of bytes from the start of each word to the start of the next word or the end of the text."""
        return self._bounds[indices + 1] - self.starts[indices]

    def fail(self, index: int, message: str) -> NoReturn:
        """Raise a :class:`FormatError` that names the file, the line and the word at an index."""
        raise FormatError(f"{self.name}:{self.line(index)}: {message}, got {shown(self.word(index))}")

    def fail_at_end(self, expected: str) -> NoReturn:
        """Raise a :class:`FormatError` because the text ends too early."""
        line = self.line(len(self) - 1) if len(self) else 1
        raise FormatError(f"{self.name}:{line}: the file ends where {expected} was expected")

    def require_whole(self, start: int, stop: int, what: str) -> None:
        """Raise a :class:`FormatError` if a word from ``start`` to before ``stop`` is not digits only."""
        wrong = np.flatnonzero(~self.whole[start:stop])
        if wrong.size:
            self.fail(start + int(wrong[0]), f"{what} must be whole numbers")

    def count(self, index: int, what: str) -> int:
        """The count that stands at an index, of things that take at least one word each.

        It cannot exceed the number of words that follow. ``what`` names the count in messages.
        """
        if index >= len(self):
            self.fail_at_end(what)
        if not self.whole[index]:
            self.fail(index, f"{what} must be a whole number")
        left = len(self) - index - 1
        if not self.values[index] <= left:
            self.fail(index, f"{what} must be at most {left}, the count of numbers left in the file")
        return int(self.values[index])

    def state_counts(self, index: int) -> tuple[int, IntArray]:
        """Number of variables, which stands at an index, and the number of states of each, which follow it."""
        n = self.count(index, "the number of variables")
        self.require_whole(index + 1, index + n + 1, "the numbers of states")
        counts = self.values[index + 1 : index + n + 1]
        if len(counts) < n:
            self.fail_at_end("the numbers of states")
        if n and counts.min() < 1:
            i = int(counts.argmin())
            self.fail(index + i + 1, f"the number of states of variable {i} must be at least 1")
        limit = FREE_STATES + STATES_PER_WORD * len(self)
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
        """Places and sizes of consecutive blocks ``k w1 .. wk``, and the index of the word after the last block.

        The place of a block is the index of the word with its size. ``what``, filled with the number of a block, names
        it in messages. The sizes must be digits only, and with ``whole`` so must the words in the blocks.
        """
        # One step per block, because the start of a block is known only once the block before is read. A view hands
        # out Python numbers several times faster than an array does.
        values = self.values.data
        total = len(self)
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
        wrong = checked[~self.whole[checked]]
        if wrong.size:
            k = int(np.searchsorted(words, wrong[0], side="right")) - 1
            self.fail(int(wrong[0]), f"{what.format(k)} must be given in whole numbers")
        num_read = len(sizes)
        if num_read < num_blocks:
            missing = what.format(num_read)
            if position >= total:
                self.fail_at_end(missing)
            self.count(position, f"the size of {missing}")
        return words, block_sizes, position
