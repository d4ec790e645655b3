r"""The format of graphs with weights that ``rudy`` writes, in which max-cut graphs such as the G-set are kept.

A file is the number of vertices and the number of edges, and then each edge: its two vertices, counted from 1, and its
weight. The weights may be missing in the whole file, and are 1 then. The model has a binary variable per vertex, and
the log-weight of a configuration is the weight of the cut: the sum over the edges whose ends have different states. So
``fastmix map`` of such a file looks for the largest cut.
"""

from __future__ import annotations

import re

import numpy as np

from fastmix._memory import check_memory
from fastmix.errors import FormatError, ModelError
from fastmix.io.tokens import NumberText, strip_comments
from fastmix.io.tuning import RUDY_EDGE_BYTES, RUDY_VERTEX_BYTES
from fastmix.model import MarkovRandomField

__all__ = ["is_rudy", "read"]

#: Two whole numbers alone on the first line, and on the next one two with a weight or without.
_START = re.compile(
    rb"(?:\xef\xbb\xbf)?(?:[ \t]*(?:[#c][^\r\n]*)?\r?\n)*+[ \t]*[0-9]+[ \t]+[0-9]+[ \t]*\r?\n"
    rb"\s*(?:[0-9]+[ \t]+[0-9]+(?:[ \t]+[-+.0-9eE]+)?[ \t]*(?:\r?\n|$)|$)"
)


def is_rudy(data: bytes) -> bool:
    """Whether a file begins with a line of two whole numbers and, if there is another, a line of an edge."""
    return _START.match(data) is not None


def read(data: bytes, name: str, _max_bytes: float | None = None) -> MarkovRandomField:
    """Model whose log-weight is the weight of the cut, from a text; ``name`` is the name of the file, for messages."""
    numbers = NumberText(strip_comments(data, name), name)
    if len(numbers) < 2:
        numbers.fail_at_end("the numbers of vertices and of edges")
    numbers.require_whole(0, 2, "the numbers of vertices and of edges")
    n = int(min(numbers.values[0], 2.0**62))
    check_memory(RUDY_VERTEX_BYTES * n, f"{name}: a graph of {n} vertices", "use a smaller graph")
    num_edges = numbers.values[1]
    words_left = len(numbers) - 2
    if num_edges * 2 == words_left and num_edges * 3 != words_left:
        width = 2
    elif num_edges * 3 == words_left:
        width = 3
    else:
        numbers.fail(1, f"the number of edges must fit the {words_left} numbers that follow, two or three per edge")
    count = int(num_edges)
    check_memory(RUDY_EDGE_BYTES * count, f"{name}: a graph of {count} edges", "use a smaller graph")
    rows = numbers.values[2:].reshape(count, width)
    # The vertices of each edge, counted from 1.
    whole = numbers.whole[2:].reshape(count, width)[:, :2]
    ends = rows[:, :2]
    wrong = ~whole | ~(ends >= 1) | ~(ends <= n)
    if wrong.any():
        edge, side = np.argwhere(wrong)[0]
        numbers.fail(2 + width * int(edge) + int(side), f"a vertex must be a whole number from 1 to {n}")
    loops = np.flatnonzero(ends[:, 0] == ends[:, 1])
    if loops.size:
        numbers.fail(3 + width * int(loops[0]), "an edge must join two different vertices")
    weights = rows[:, 2] if width == 3 else np.ones(count)
    outside = np.flatnonzero(~(np.abs(weights) <= 1e100))
    if outside.size:
        numbers.fail(4 + width * int(outside[0]), "a weight must be a number from -1e100 to 1e100")
    # A cut edge adds its weight.
    differ = np.array([[0.0, 1.0], [1.0, 0.0]])
    tables = weights[:, None, None] * differ
    try:
        return MarkovRandomField.from_tables(np.zeros((n, 2)), ends.astype(np.int64) - 1, tables)
    except ModelError as error:  # repeated edges that add up to more than the largest weight
        raise FormatError(f"{name}:1: {error}") from None
