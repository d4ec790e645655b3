"""What the CUDA updates read: the structure in the order of a sweep and log-odds, as flat arrays on the host."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix.chains.layout import Layout, log_odds
from fastmix.model.build import offsets_of
from fastmix.model.structure import Structure

__all__ = ["field_tables", "find_codes", "pack_states", "packed_field_tables", "unpack_states"]

Arrays = dict[str, NDArray[Any]]

_MOST_CODES = 1 << 16  # different surroundings of a site that 16 bits number
_CHUNK_ENTRIES = 1 << 24  # states that are packed at once


# -- log-odds of binary variables -------------------------------------------------------------------------------------


def _by_place(layout: Layout, parameters: FloatArray) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
    """Adjacency by place: row starts, neighbors, and log-odds of state 1: offsets, and weights of the neighbors."""
    structure, (indptr, slots) = layout.structure, layout.by_place
    unary, odds = log_odds(structure, parameters[: layout.split], parameters[layout.split :])
    odds, places = odds[slots], np.repeat(np.arange(len(layout.order)), np.diff(indptr))
    offsets = unary[layout.order] + np.bincount(places, odds[:, 0], minlength=len(unary))
    return indptr, layout.places[structure.adjacency.neighbors[slots]], offsets, odds[:, 1] - odds[:, 0]


def packed_field_tables(layout: Layout, parameters: FloatArray, *, stride: int) -> Arrays:
    """Arrays for :func:`fastmix.chains.cuda.field_kernels.packed_field_update`."""
    indptr, neighbors, offsets, weights = _by_place(layout, parameters)
    n, degree = len(offsets), np.diff(indptr)
    groups = np.maximum(1, -(-degree // 4))
    chunks = offsets_of(groups)
    around = np.full(4 * int(chunks[-1]), n, dtype=np.int64)
    four = np.zeros(len(around))
    # Neighbour k of a site is slot k of its groups; the last group is padded in front.
    slots = np.arange(len(weights)) - np.repeat(indptr[:-1], degree)
    padding = np.repeat(4 * groups - degree, degree)
    full = np.repeat(4 * (groups - 1), degree)
    target = np.repeat(4 * chunks[:-1], degree) + slots + np.where(slots >= full, padding, 0)
    around[target], four[target] = neighbors, weights
    patterns = (np.arange(16)[:, None] >> np.array([3, 2, 1, 0])) & 1
    partial = four.reshape(-1, 4) @ patterns.T.astype(np.float64)
    partial[chunks[:-1]] += offsets[:, None]
    largest = np.abs(partial).max(axis=1, initial=0.0)
    size = np.add.reduceat(largest, chunks[:-1]) if n else np.zeros(0)
    return {
        "around": (around * stride).astype(np.uint32), "chunks": chunks, "partial": partial.astype(np.float32),
        "margins": (2.0**-20 + (groups + 2) * size * 2.0**-25).astype(np.float32),
        "indptr": indptr, "rows": (neighbors * stride).astype(np.uint32),
        "weights": weights, "offsets": offsets,
    }  # fmt: skip


def field_tables(layout: Layout, parameters: FloatArray) -> tuple[Arrays, int]:
    """Arrays for :func:`fastmix.chains.cuda.field_kernels.field_update`, and the degree they are padded to."""
    _, _, offsets, weights = _by_place(layout, parameters)
    coded = find_codes(layout.structure)
    assert coded is not None
    codes, steps, places = coded
    padded = np.zeros(steps.shape[1] * len(offsets))
    padded[places] = weights
    arrays: Arrays = {"codes": codes, "steps": steps}
    for name, values in (("weight", padded), ("offset", offsets)):
        rounded = values.astype(np.float32)
        arrays |= {name + "s": rounded, name + "_rests": (values - rounded).astype(np.float32)}
    return arrays, steps.shape[1]


@lru_cache(maxsize=1)  # the choice of a kernel needs it as well
def find_codes(structure: Structure) -> tuple[NDArray[np.uint16], NDArray[np.int32], IntArray] | None:
    """A code for the distances to the neighbours of every site, the distances of every code, and where weights go.

    Missing neighbours have distance 0, the site itself, and weight 0. None if there are too many codes.
    """
    layout = Layout(structure)
    indptr, slots = layout.by_place
    n, degrees = structure.num_variables, np.diff(indptr)
    degree = max(1, int(degrees.max(initial=0)))
    owner = np.repeat(np.arange(n), degrees)
    slot = np.arange(len(owner)) - np.repeat(indptr[:-1], degrees)
    distances = layout.places[structure.adjacency.neighbors[slots]] - owner
    # Rows are told apart by a random linear function; equal keys are then checked to be equal rows.
    factors = np.random.default_rng(0).integers(1, 2**63, size=degree, dtype=np.uint64)
    key = np.zeros(n, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for k in range(degree):
            longer = degrees > k
            key[longer] += distances[indptr[:-1][longer] + k].astype(np.uint64) * factors[k]
    kinds, some, codes = np.unique(key, return_index=True, return_inverse=True)
    if len(kinds) > _MOST_CODES:
        return None
    steps = np.zeros((len(kinds), degree), dtype=np.int32)
    for k, site in enumerate(some.tolist()):
        steps[k, : degrees[site]] = distances[indptr[site] : indptr[site + 1]]
    if (steps[codes[owner], slot] != distances).any() or (degrees[some][codes] != degrees).any():
        return None
    return codes.astype(np.uint16), steps, slot * n + owner


# -- states -----------------------------------------------------------------------------------------------------------


def pack_states(states: NDArray[Any], layout: Layout, stride: int, dtype: Any, *, packed: bool) -> NDArray[Any]:
    """Configurations (count, n) as rows (n + 1, stride) by place, the last of them 0.

    Packed, configuration 32 w + b is bit b of word w; otherwise it is an element of its own.

    Examples
    --------
    >>> from fastmix.instances import ising_grid
    >>> layout = Layout(ising_grid(1, 2, coupling_max=1.0, seed=0).structure)
    >>> pack_states(np.array([[0, 1], [1, 1], [0, 0]]), layout, 1, np.uint32, packed=True).tolist()
    [[2], [3], [0]]
    """
    count, n = states.shape
    rows = np.zeros((n + 1, stride), dtype=dtype)
    for part in _chunks(n, 32 * stride if packed else stride):
        block = states[:, layout.order[part]].T
        if packed:
            bits = np.zeros((len(block), 32 * stride), dtype=np.uint8)
            bits[:, :count] = block
            rows[part] = np.packbits(bits, axis=1, bitorder="little").view(np.uint32)
        else:
            rows[part, :count] = block
    return rows


def unpack_states(rows: NDArray[Any], layout: Layout, count: int, *, packed: bool) -> IntArray:
    """The configurations (count, n) that :func:`pack_states` was given."""
    n = len(rows) - 1
    result = np.empty((count, n), dtype=np.int64)
    for part in _chunks(n, rows.shape[1] * (32 if packed else 1)):
        block = np.ascontiguousarray(rows[part])
        if packed:
            block = np.unpackbits(block.view(np.uint8), axis=1, bitorder="little")
        result[:, layout.order[part]] = block[:, :count].T
    return result


def _chunks(n: int, width: int) -> Iterator[slice]:
    step = max(1, _CHUNK_ENTRIES // max(1, width))
    return (slice(a, min(a + step, n)) for a in range(0, n, step))
