"""Contrasts: the linear functions of a table that a bound on the dependency limits, and what they see of a table.

R of an edge is at most z when all contrasts ``|c_k . T|`` of its table are at most a multiple of z. Under ``range`` a
contrast is a difference of differences of four entries, ``T[r, a] - T[r, b] - T[s, a] + T[s, b]``; under ``linf`` it is
a difference of two entries in one row or in one column.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from fastmix._arrays import BoolArray, FloatArray, IntArray
from fastmix.errors import ResourceError
from fastmix.model import MarkovRandomField, forms
from fastmix.model.shared import SharedTables
from fastmix.projection.tuning import KNOTS_PER_CALL, MAX_CONTRASTS

__all__ = [
    "ISING_CONTRAST", "Bound", "TableGroup", "contrast_scale", "contrasts", "count_contrasts", "count_knots", "groups",
    "interactions", "shrunk_patterns",
]  # fmt: skip

#: A bound on R that a projection can meet, see :func:`fastmix.theory.dependency.edge_dependencies`.
Bound = Literal["range", "linf"]

#: The only contrast of a table of two by two states under ``range``.
ISING_CONTRAST = np.array([1.0, -1.0, -1.0, 1.0])


@lru_cache(maxsize=64)
def contrasts(num_rows: int, num_cols: int, dependency: Bound) -> tuple[IntArray, FloatArray]:
    """Positions and signs (M, 4) of the contrasts that a bound limits in a table; unused places have sign 0.

    ``range``: T[r, a] - T[r, b] - T[s, a] + T[s, b]; ``linf``: T[r, a] - T[r, b], then T[r, a] - T[s, a].
    """
    number = count_contrasts(num_rows, num_cols, dependency)
    if number > MAX_CONTRASTS:
        raise ResourceError(
            f"a table of {num_rows} x {num_cols} states has {number:,} contrasts under {dependency}, more than the "
            f"{MAX_CONTRASTS:,} that a projection follows; use dependency='linf', or merge states"
        )
    r, s = np.triu_indices(num_rows, 1)
    a, b = np.triu_indices(num_cols, 1)
    entry = np.arange(num_rows * num_cols).reshape(num_rows, num_cols)

    if dependency == "range":
        upper = entry[r]
        lower = entry[s]
        corners = [upper[:, a], upper[:, b], lower[:, a], lower[:, b]]
        return np.stack(corners, axis=-1).reshape(-1, 4), np.tile(ISING_CONTRAST, (number, 1))

    along_rows = np.stack([entry[:, a], entry[:, b]], axis=-1).reshape(-1, 2)
    along_cols = np.stack([entry.T[:, r], entry.T[:, s]], axis=-1).reshape(-1, 2)
    position = np.zeros((number, 4), dtype=np.int64)
    position[:, :2] = np.concatenate([along_rows, along_cols])
    return position, np.tile([1.0, -1.0, 0.0, 0.0], (number, 1))


def count_contrasts(num_rows: int, num_cols: int, dependency: Bound) -> int:
    """The number of contrasts of a table."""
    row_pairs = num_rows * (num_rows - 1) // 2
    col_pairs = num_cols * (num_cols - 1) // 2
    if dependency == "range":
        return row_pairs * col_pairs
    return num_rows * col_pairs + num_cols * row_pairs


def contrast_scale(dependency: Bound) -> float:
    """The factor s such that R is at most z when every contrast is at most s z."""
    return 4.0 if dependency == "range" else 2.0


def count_knots(num_entries: int, num_contrasts: int) -> int:
    """The largest number of knots that the path of one table may have."""
    return 8 * num_entries + 4 * num_contrasts + 50


class TableGroup(NamedTuple):
    """Some edges (g,) whose tables have one shape, and the positions (g, entries) of these tables in the model."""

    edges: IntArray
    shape: tuple[int, int]
    positions: IntArray


def groups(model: MarkovRandomField, dependency: Bound, chosen: BoolArray | None = None) -> Iterator[TableGroup]:
    """All edges, or those ``chosen`` (m,), in groups of one table shape, as large as one compiled call may take."""
    for num_rows, num_cols, members in model.structure.table_shapes:
        num_entries = num_rows * num_cols
        kept = members if chosen is None else members[chosen[members]]
        knots_per_table = count_knots(num_entries, count_contrasts(num_rows, num_cols, dependency))
        group_size = max(1, KNOTS_PER_CALL // knots_per_table)
        for begin in range(0, len(kept), group_size):
            edges = kept[begin : begin + group_size]
            positions = model.pairwise_offsets[edges][:, None] + np.arange(num_entries)
            yield TableGroup(edges, (num_rows, num_cols), positions)


def interactions(model: MarkovRandomField, tables: FloatArray, dependency: Bound) -> FloatArray:
    """The part of all flat tables that a bound limits: R of an edge grows in proportion to it."""
    shapes = model.structure.table_shapes
    if len(shapes) == 1:
        num_rows, num_cols, _ = shapes[0]
        return _interaction(tables, num_rows, num_cols, dependency)
    result = np.empty_like(tables)
    for num_rows, num_cols, edges in shapes:
        positions = model.pairwise_offsets[edges][:, None] + np.arange(num_rows * num_cols)
        result[positions] = _interaction(tables[positions], num_rows, num_cols, dependency)
    return result


def shrunk_patterns(tables: SharedTables, factor: float, dependency: Bound) -> SharedTables:
    """Shared tables with the part of every pattern that a bound limits multiplied by a factor."""
    patterns = tables.patterns.copy()
    for k in range(tables.use.num_patterns):
        num_rows, num_cols = tables.use.shapes[k].tolist()
        own = slice(tables.use.starts[k], tables.use.starts[k + 1])
        patterns[own] -= (1.0 - factor) * _interaction(patterns[own], num_rows, num_cols, dependency)
    return SharedTables(tables.use, patterns, tables.weights, tables.next_weights)


def _interaction(tables: FloatArray, num_rows: int, num_cols: int, dependency: Bound) -> FloatArray:
    """The part of flat tables of one shape that a bound limits.

    ``range`` does not see terms of one variable, and ``linf`` does not see the mean.
    """
    if dependency == "range":
        return forms.interactions(tables, num_rows, num_cols)
    flat = tables.reshape(-1, num_rows * num_cols)
    return (flat - flat.mean(axis=1, keepdims=True)).reshape(tables.shape)
