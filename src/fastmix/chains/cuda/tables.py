"""What the CUDA updates read: the structure in the order of a sweep and log-odds, as flat arrays on the host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix.model.build import offsets_of
from fastmix.model.structure import Structure

__all__ = [
    "Order", "field_groups", "field_tables", "find_order", "pack_states", "pattern_strides", "unpack_states",
]  # fmt: skip

Arrays = dict[str, NDArray[Any]]

_MOST_CODES = 1 << 16  # different surroundings of a site for which a 16-bit code pays
_CHUNK_ENTRIES = 1 << 24  # states that are packed at once


@dataclass(frozen=True, eq=False)
class Order:
    """Places of the variables in a sweep: variable ``sites[p]`` is at place p, colours begin at ``starts``.

    ``indptr`` and ``neighbors`` are the adjacency by place, and ``entries`` the places of these neighbours in the
    adjacency of the structure.
    """

    sites: IntArray
    places: IntArray
    starts: IntArray
    indptr: IntArray
    neighbors: NDArray[np.int32]
    entries: IntArray


def find_order(structure: Structure) -> Order:
    """The order of a systematic sweep, which is that of the other samplers."""
    adjacency = structure.adjacency
    order, starts = structure.visit_order
    sites = order.astype(np.int64)
    places = np.empty_like(sites)
    places[sites] = np.arange(len(sites))
    degree = adjacency.degree[sites]
    indptr = offsets_of(degree)
    entries = np.repeat(adjacency.indptr[sites] - indptr[:-1], degree) + np.arange(indptr[-1])
    return Order(sites, places, starts, indptr, places[adjacency.neighbors[entries]].astype(np.int32), entries)


def pattern_strides(structure: Structure, order: Order) -> tuple[IntArray, IntArray]:
    """Weights of the neighbours' states in the number of a pattern, by place, and the patterns of every place.

    The first neighbour counts most.
    """
    theirs = structure.num_states[order.sites][order.neighbors]
    strides, patterns = np.ones(len(theirs), dtype=np.int64), np.ones(len(order.sites), dtype=np.int64)
    degree = np.diff(order.indptr)
    for k in range(int(degree.max(initial=0)) - 1, -1, -1):
        longer = np.flatnonzero(degree > k)
        at = order.indptr[longer] + k
        strides[at] = patterns[longer]
        patterns[longer] *= theirs[at]
    return strides, patterns


# -- log-odds of binary variables -------------------------------------------------------------------------------------


def _log_odds(structure: Structure, parameters: FloatArray, order: Order) -> tuple[FloatArray, FloatArray]:
    """Offsets by place, and weights along ``order.neighbors``: log-odds of state 1 are linear in binary states."""
    split = 2 * structure.num_variables
    unary, tables = parameters[:split], parameters[split:]
    _, starts, own_steps, other_steps = structure.directed
    zero = (starts[:, None] + other_steps[:, None] * np.arange(2))[order.entries]
    odds = tables[zero + own_steps[order.entries, None]] - tables[zero]
    offsets = (unary[1::2] - unary[::2])[order.sites]
    places = np.repeat(np.arange(len(order.sites)), np.diff(order.indptr))
    return offsets + np.bincount(places, odds[:, 0], minlength=len(offsets)), odds[:, 1] - odds[:, 0]


def field_groups(order: Order) -> tuple[IntArray, IntArray]:
    """Where the groups of four neighbours of every place begin (n + 1,), and the places in them, n for none.

    A place without neighbours has a group too; the last group of a place is filled up with n in front.
    """
    n, degree = len(order.sites), np.diff(order.indptr)
    groups = np.maximum(1, -(-degree // 4))
    chunks = offsets_of(groups)
    around = np.full(4 * int(chunks[-1]), n, dtype=np.int64)
    slots = np.arange(len(order.neighbors)) - np.repeat(order.indptr[:-1], degree)
    padding = np.where(slots >= np.repeat(4 * (groups - 1), degree), np.repeat(4 * groups - degree, degree), 0)
    around[np.repeat(4 * chunks[:-1], degree) + slots + padding] = order.neighbors
    return chunks, around


def field_tables(structure: Structure, parameters: FloatArray, order: Order) -> tuple[Arrays, int]:
    """Arrays for :func:`fastmix.chains.cuda.field_kernels.field_update`, and the degree they are padded to.

    The degree is 0 where the surroundings are too different for codes, and the arrays are those of the adjacency.
    """
    offsets, weights = _log_odds(structure, parameters, order)
    coded, degree = _codes(order), 0
    empty = np.zeros(1, dtype=np.int32)
    arrays: Arrays = {"codes": empty.astype(np.uint16), "steps": empty, "indptr": empty.astype(np.int64)}
    arrays |= {"neighbors": empty}
    if coded is None:
        arrays |= {"indptr": order.indptr, "neighbors": order.neighbors}
    else:
        arrays["codes"], arrays["steps"], places = coded
        degree = coded[1].shape[1]
        padded = np.zeros(degree * len(order.sites))
        padded[places] = weights
        weights = padded
    for name, values in (("weight", weights), ("offset", offsets)):
        rounded = values.astype(np.float32)
        arrays |= {name + "s": rounded, name + "_rests": (values - rounded).astype(np.float32)}
    return arrays, degree


def _codes(order: Order) -> tuple[NDArray[np.uint16], NDArray[np.int32], IntArray] | None:
    """A code for the distances to the neighbours of every site, the distances of every code, and where weights go.

    Missing neighbours have distance 0, the site itself, and weight 0. None if the codes or the padding do not pay.
    """
    n, degrees = len(order.sites), np.diff(order.indptr)
    degree = max(1, int(degrees.max(initial=0)))
    if n == 0 or degree * n > 2 * len(order.neighbors) + 4 * n:
        return None
    owner = np.repeat(np.arange(n), degrees)
    slot = np.arange(len(owner)) - np.repeat(order.indptr[:-1], degrees)
    distances = order.neighbors - owner
    # Rows are told apart by a random linear function; equal keys are then checked to be equal rows.
    factors = np.random.default_rng(0).integers(1, 2**63, size=degree, dtype=np.uint64)
    key = np.zeros(n, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for k in range(degree):
            longer = degrees > k
            key[longer] += distances[order.indptr[:-1][longer] + k].astype(np.uint64) * factors[k]
    kinds, some, codes = np.unique(key, return_index=True, return_inverse=True)
    if len(kinds) > min(_MOST_CODES, max(1, n // 8)):
        return None
    steps = np.zeros((len(kinds), degree), dtype=np.int32)
    for k, site in enumerate(some.tolist()):
        steps[k, : degrees[site]] = distances[order.indptr[site] : order.indptr[site + 1]]
    if (steps[codes[owner], slot] != distances).any() or (degrees[some][codes] != degrees).any():
        return None
    return codes.astype(np.uint16), steps, slot * n + owner


# -- states -----------------------------------------------------------------------------------------------------------


def pack_states(states: NDArray[Any], order: Order, stride: int, dtype: Any, *, packed: bool) -> NDArray[Any]:
    """Configurations (count, n) as rows (n + 1, stride) by place, the last of them 0.

    Packed, configuration 32 w + b is bit b of word w; otherwise it is an element of its own.

    Examples
    --------
    >>> from fastmix.instances import ising_grid
    >>> order = find_order(ising_grid(1, 2, coupling_max=1.0, seed=0).structure)
    >>> pack_states(np.array([[0, 1], [1, 1], [0, 0]]), order, 1, np.uint32, packed=True).tolist()
    [[2], [3], [0]]
    """
    count, n = states.shape
    rows = np.zeros((n + 1, stride), dtype=dtype)
    for part in _chunks(n, 32 * stride if packed else stride):
        block = states[:, order.sites[part]].T
        if packed:
            bits = np.zeros((len(block), 32 * stride), dtype=np.uint8)
            bits[:, :count] = block
            rows[part] = np.packbits(bits, axis=1, bitorder="little").view(np.uint32)
        else:
            rows[part, :count] = block
    return rows


def unpack_states(rows: NDArray[Any], order: Order, count: int, *, packed: bool) -> IntArray:
    """The configurations (count, n) that :func:`pack_states` was given."""
    n = len(rows) - 1
    result = np.empty((count, n), dtype=np.int64)
    for part in _chunks(n, rows.shape[1] * (32 if packed else 1)):
        block = np.ascontiguousarray(rows[part])
        if packed:
            block = np.unpackbits(block.view(np.uint8), axis=1, bitorder="little")
        result[:, order.sites[part]] = block[:, :count].T
    return result


def _chunks(n: int, width: int) -> Iterator[slice]:
    step = max(1, _CHUNK_ENTRIES // max(1, width))
    return (slice(a, min(a + step, n)) for a in range(0, n, step))
