"""Tables of edges in groups of equal shape, so that one array operation serves many of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fastmix._arrays import FloatArray
from fastmix.model import MarkovRandomField
from fastmix.theory.tuning import CHUNK_ENTRIES

__all__ = ["table_groups"]


def table_groups(model: MarkovRandomField) -> Iterator[tuple[Any, FloatArray]]:
    """Pieces of edges of equal shape: their places among the edges, and their tables (rows, cols, k), edges LAST.

    The places are an array of numbers, or a slice where all edges have one shape. A piece has about 2 MiB of entries.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1), (1, 2)], coupling=0.5)
    >>> [(places, tables.shape) for places, tables in table_groups(model)]
    [(slice(0, 2, None), (2, 2, 2))]
    """
    shapes = model.structure.table_shapes
    for rows, cols, members in shapes:
        chunk = max(1, CHUNK_ENTRIES // (rows * cols))
        for start in range(0, len(members), chunk):
            places: Any = members[start : start + chunk]
            if len(shapes) == 1:
                places = slice(start, start + len(places))
            flat = model.edge_tables(places, rows, cols)
            yield places, np.ascontiguousarray(flat.T).reshape(rows, cols, len(flat))
