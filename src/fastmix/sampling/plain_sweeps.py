"""Gibbs sweeps in NumPy alone, for runs with less time than compiling takes.

The same updates in the same order from the same random numbers as in :mod:`fastmix.sampling.gibbs_kernels`, a hundredth
as fast.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix.sampling.generator import thresholds

__all__ = ["logit_sweeps", "table_sweeps"]

UIntArray = NDArray[np.uint32]


def table_sweeps(
    x: NDArray[Any],
    order: NDArray[Any],
    indptr: NDArray[Any],
    neighbors: NDArray[Any],
    strides: UIntArray,
    cuts: UIntArray,
    starts: NDArray[Any],
    table: UIntArray,
    sum_starts: NDArray[Any],
    streams: UIntArray,
    sums: UIntArray,
    num_sweeps: int,
    mode: int,
) -> None:
    """Sweeps over chains side by side from pattern tables, arguments as in ``gibbs_kernels.table_many``."""
    begin, count = indptr.tolist(), cuts.tolist()
    for _ in range(num_sweeps):
        for i in order.tolist():
            around = slice(begin[i], begin[i + 1])
            pattern = strides[around].astype(np.int64) @ x[neighbors[around]]
            places = starts[i] + pattern * count[i] + np.arange(count[i])[:, None]
            _update(x, i, table[places], sum_starts[i], streams, sums, mode)


def logit_sweeps(
    x: NDArray[Any],
    order: NDArray[Any],
    indptr: NDArray[Any],
    neighbors: NDArray[Any],
    table_starts: NDArray[Any],
    row_steps: NDArray[Any],
    col_steps: NDArray[Any],
    tables: NDArray[np.float64],
    unary_starts: NDArray[Any],
    unary: NDArray[np.float64],
    states: NDArray[Any],
    sum_starts: NDArray[Any],
    streams: UIntArray,
    sums: UIntArray,
    num_sweeps: int,
    mode: int,
) -> None:
    """The same with conditional distributions computed at every update, arguments as in ``gibbs_kernels.logit_one``."""
    begin, count = indptr.tolist(), states.tolist()
    for _ in range(num_sweeps):
        for i in order.tolist():
            around, own = slice(begin[i], begin[i + 1]), np.arange(count[i])
            columns = table_starts[around, None] + x[neighbors[around]] * col_steps[around, None]
            places = columns[:, None] + (row_steps[around, None] * own)[:, :, None]
            logits = unary[unary_starts[i] + own][:, None] + tables[places].sum(axis=0)
            weights = np.exp(logits - logits.max(axis=0)).cumsum(axis=0)
            _update(x, i, thresholds(weights[:-1] / weights[-1]), sum_starts[i], streams, sums, mode)


def _update(
    x: NDArray[Any], i: int, limits: UIntArray, first: int, streams: UIntArray, sums: UIntArray, mode: int
) -> None:
    """New states of a variable from its thresholds (cuts, chains), and what they add to the sums."""
    x[i] = (_draw(streams) >= limits).sum(axis=0)
    rows = sums[first : first + len(limits)]
    if mode == 1:
        rows += (limits >> np.uint32(8)) + ((limits >> np.uint32(7)) & np.uint32(1))
    elif mode == 2:
        rows += (x[i] <= np.arange(len(limits))[:, None]).astype(np.uint32) << np.uint32(24)


def _draw(streams: UIntArray) -> UIntArray:
    """A number of every stream; xoshiro128++ as in :mod:`fastmix.sampling.generator`."""
    a, b, d, e = streams
    value = _rotate(a + e, 7) + a
    shifted = b << np.uint32(9)
    d ^= a
    e ^= b
    b ^= d
    a ^= e
    d ^= shifted
    e[...] = _rotate(e, 11)
    return value - (value >> np.uint32(31))


def _rotate(values: UIntArray, bits: int) -> UIntArray:
    return (values << np.uint32(bits)) | (values >> np.uint32(32 - bits))
