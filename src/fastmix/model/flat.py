"""Tables one after another in flat arrays: where each begins, a number for each, and the place of every entry."""

from __future__ import annotations

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix.errors import ModelError
from fastmix.model.tuning import MAX_COLUMN_BLOCK, MAX_EQUAL_RUNS

__all__ = ["largest_entries", "offsets_of", "reduce_tables", "table_positions"]

_MOST_ENTRIES = 2.0**62  # positions are 64-bit numbers


def offsets_of(sizes: IntArray) -> IntArray:
    """Start of each block when blocks of the given sizes lie one after another, with the total at the end."""
    total = sizes.sum(dtype=np.float64)
    if total > _MOST_ENTRIES:
        raise ModelError(f"the states and the table entries of a model must be fewer than 2^62 each, got {total:.3g}")
    offsets = np.zeros(len(sizes) + 1, dtype=np.int64)
    sizes.cumsum(out=offsets[1:])
    return offsets


def reduce_tables(operation: np.ufunc, values: FloatArray, offsets: IntArray) -> FloatArray:
    """One number per table: an operation such as ``np.maximum`` over all of its entries.

    The tables lie one after another, begin at ``offsets`` and have an entry at least. The result is that of
    ``operation.reduceat``, found column by column where many tables of one small size follow each other: several times
    as fast.
    """
    sizes = np.diff(offsets)
    if not len(sizes):
        return np.zeros(0)
    ends_of_runs = np.append(np.flatnonzero(sizes[1:] != sizes[:-1]) + 1, len(sizes))
    if len(ends_of_runs) > MAX_EQUAL_RUNS:
        return np.asarray(operation.reduceat(values, offsets[:-1]))
    parts: list[FloatArray] = []
    begin = 0
    for end in ends_of_runs.tolist():
        block = values[offsets[begin] : offsets[end]].reshape(end - begin, -1)
        parts.append(_reduce_rows(operation, block))
        begin = end
    return np.concatenate(parts)


def _reduce_rows(operation: np.ufunc, block: FloatArray) -> FloatArray:
    """One number per row of a matrix, found column by column where there are few columns."""
    num_columns = block.shape[1]
    if num_columns == 1 or num_columns > MAX_COLUMN_BLOCK:
        return np.asarray(operation.reduce(block, axis=1))
    part: FloatArray = operation(block[:, 0], block[:, 1])
    for column in block.T[2:]:
        part = operation(part, column)
    return part


def largest_entries(values: FloatArray, offsets: IntArray) -> FloatArray:
    """The largest finite absolute entry of every table, 0 where there is none."""
    largest = reduce_tables(np.maximum, np.abs(values), offsets)
    if largest.max(initial=0.0) == np.inf:
        largest = reduce_tables(np.maximum, np.where(values > -np.inf, np.abs(values), 0.0), offsets)
    return np.asarray(largest)


def table_positions(num_states: IntArray, pairs: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """The pair, the row and the column of every entry of the tables of ``pairs``, one after another."""
    cols = num_states[pairs[:, 1]]
    sizes = num_states[pairs[:, 0]] * cols
    owner = np.repeat(np.arange(len(pairs)), sizes)
    local = np.arange(len(owner)) - offsets_of(sizes)[owner]
    row = local // cols[owner]
    return owner, row, local - row * cols[owner]
