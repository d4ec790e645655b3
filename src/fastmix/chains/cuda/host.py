"""States and sums on their way between the host and the device: packing, unpacking, and the order of the entries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix.chains.cuda.tables import Order
from fastmix.model import MarkovRandomField
from fastmix.model.build import offsets_of

__all__ = ["pack_states", "sums_by_entry", "unpack_states"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_CHUNK_ENTRIES = 1 << 24  # states that are worked on at once
_FULL = float(1 << 24)  # the sums' unit: one sweep


def pack_states(states: NDArray[Any], order: Order, stride: int, dtype: Any, *, packed: bool) -> NDArray[Any]:
    """Configurations (num_chains, n) as rows (n + 1, stride) by place, the last of them 0.

    Packed, chain 32 w + b is bit b of word w; otherwise it is an element of its own.

    Examples
    --------
    >>> from fastmix.instances import ising_grid
    >>> from fastmix.chains.cuda.tables import find_order
    >>> order = find_order(ising_grid(1, 2, coupling_max=1.0, seed=0))
    >>> pack_states(np.array([[0, 1], [1, 1], [0, 0]]), order, 1, np.uint32, packed=True).tolist()
    [[2], [3], [0]]
    """
    chains, n = states.shape
    rows = np.zeros((n + 1, stride), dtype=dtype)
    for part in _chunks(n, 32 * stride if packed else stride):
        block = states[:, order.sites[part]].T
        if packed:
            bits = np.zeros((len(block), 32 * stride), dtype=np.uint8)
            bits[:, :chains] = block
            rows[part] = np.packbits(bits, axis=1, bitorder="little").view(np.uint32)
        else:
            rows[part, :chains] = block
    return rows


def unpack_states(rows: NDArray[Any], order: Order, num_chains: int, *, packed: bool) -> NDArray[Any]:
    """The configurations (num_chains, n) that :func:`pack_states` was given, in one or two bytes a state."""
    n = len(rows) - 1
    result = np.empty((num_chains, n), dtype=np.uint8 if packed else rows.dtype)
    for part in _chunks(n, rows.shape[1] * (32 if packed else 1)):
        block = np.ascontiguousarray(rows[part])
        if packed:
            block = np.unpackbits(block.view(np.uint8), axis=1, bitorder="little")
        result[:, order.sites[part]] = block[:, :num_chains].T
    return result


def _chunks(n: int, width: int) -> Iterator[slice]:
    step = max(1, _CHUNK_ENTRIES // max(1, width))
    return (slice(a, min(a + step, n)) for a in range(0, n, step))


def sums_by_entry(model: MarkovRandomField, order: Order, totals: NDArray[np.uint64], sweeps: float) -> FloatArray:
    """Sums of every state (entries of log_unary, columns) from those of the kernels.

    These have a row for every state but the last, by place, are cumulative over the states, and count 2^24 a sweep.
    """
    cuts = model.num_states[order.sites] - 1
    result = np.empty((len(model.log_unary), totals.shape[1]))
    entries = np.repeat(model.unary_offsets[:-1][order.sites] - offsets_of(cuts)[:-1], cuts) + np.arange(len(totals))
    result[entries] = totals / _FULL
    result[model.unary_offsets[1:] - 1] = sweeps
    later = np.ones(len(result), dtype=bool)
    later[model.unary_offsets[:-1]] = False
    result[later] -= result[np.flatnonzero(later) - 1].copy()
    return result
