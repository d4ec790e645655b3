"""What the CUDA kernels read: the layout of the structure in the order of a sweep, log-odds and states, on the host."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix.chains.layout import Layout, log_odds
from fastmix.model.build import offsets_of

__all__ = ["DeviceLayout", "pack_states", "unpack_states"]

Arrays = dict[str, NDArray[Any]]

_MOST_CODES = 1 << 16  # different surroundings of a site for which a 16-bit code pays
_CHUNK_ENTRIES = 1 << 24  # states that are packed at once


class DeviceLayout(Layout):
    """The layout by place in a sweep: variable ``order[p]`` is at place p, colors begin at ``class_starts``."""

    @cached_property
    def neighbors(self) -> NDArray[np.int32]:
        """Places of the neighbors of every place, one place after the other, see ``by_place``."""
        return self.places[self.structure.adjacency.neighbors[self.by_place[1]]].astype(np.int32)

    @cached_property
    def place_cuts(self) -> IntArray:
        """States but the last of the variable at every place (n,)."""
        return self.cuts[self.order]

    @cached_property
    def place_patterns(self) -> tuple[IntArray, IntArray]:
        """``patterns`` by place: those of every place, and the steps along :attr:`neighbors`."""
        patterns, steps = self.patterns
        return patterns[self.order], steps[self.by_place[1]]

    @cached_property
    def groups(self) -> tuple[IntArray, IntArray]:
        """Where the groups of four neighbors of every place begin (n + 1,), and the places in them, n for none.

        A place without neighbors has a group too; the last group of a place is filled up with n in front.
        """
        indptr, n = self.by_place[0], len(self.order)
        degree = np.diff(indptr)
        groups = np.maximum(1, -(-degree // 4))
        chunks = offsets_of(groups)
        around = np.full(4 * int(chunks[-1]), n, dtype=np.int64)
        slots = np.arange(len(self.neighbors)) - np.repeat(indptr[:-1], degree)
        padding = np.where(slots >= np.repeat(4 * (groups - 1), degree), np.repeat(4 * groups - degree, degree), 0)
        around[np.repeat(4 * chunks[:-1], degree) + slots + padding] = self.neighbors
        return chunks, around

    def field_tables(self, theta: FloatArray) -> tuple[Arrays, int]:
        """Arrays for :func:`fastmix.chains.cuda.field_kernels.field_update`, and the degree they are padded to.

        The degree is 0 where the surroundings are too different for codes, and the arrays are those of the adjacency.
        """
        (indptr, slots), n = self.by_place, len(self.order)
        unary, odds = log_odds(self.structure, theta[: self.split], theta[self.split :])
        odds = odds[slots]
        owner = np.repeat(np.arange(n), np.diff(indptr))
        offsets = unary[self.order] + np.bincount(owner, odds[:, 0], minlength=n)
        weights, degree = odds[:, 1] - odds[:, 0], 0
        empty = np.zeros(1, dtype=np.int32)
        arrays: Arrays = {"codes": empty.astype(np.uint16), "steps": empty, "indptr": empty.astype(np.int64)}
        arrays |= {"neighbors": empty}
        if self._codes is None:
            arrays |= {"indptr": indptr, "neighbors": self.neighbors}
        else:
            arrays["codes"], arrays["steps"], places = self._codes
            degree = arrays["steps"].shape[1]
            padded = np.zeros(degree * n)
            padded[places] = weights
            weights = padded
        for name, values in (("weight", weights), ("offset", offsets)):
            rounded = values.astype(np.float32)
            arrays |= {name + "s": rounded, name + "_rests": (values - rounded).astype(np.float32)}
        return arrays, degree

    @cached_property
    def _codes(self) -> tuple[NDArray[np.uint16], NDArray[np.int32], IntArray] | None:
        """A code for the distances to the neighbors of every site, the distances of every code, and where weights go.

        Missing neighbors have distance 0, the site itself, and weight 0. None if the codes or the padding do not pay.
        """
        indptr, neighbors, n = self.by_place[0], self.neighbors, len(self.order)
        degrees = np.diff(indptr)
        degree = max(1, int(degrees.max(initial=0)))
        if n == 0 or degree * n > 2 * len(neighbors) + 4 * n:
            return None
        owner = np.repeat(np.arange(n), degrees)
        slot = np.arange(len(owner)) - np.repeat(indptr[:-1], degrees)
        distances = neighbors - owner
        # Rows are told apart by a random linear function; equal keys are then checked to be equal rows.
        factors = np.random.default_rng(0).integers(1, 2**63, size=degree, dtype=np.uint64)
        key = np.zeros(n, dtype=np.uint64)
        with np.errstate(over="ignore"):
            for k in range(degree):
                longer = degrees > k
                key[longer] += distances[indptr[:-1][longer] + k].astype(np.uint64) * factors[k]
        kinds, some, codes = np.unique(key, return_index=True, return_inverse=True)
        if len(kinds) > min(_MOST_CODES, max(1, n // 8)):
            return None
        steps = np.zeros((len(kinds), degree), dtype=np.int32)
        for k, site in enumerate(some.tolist()):
            steps[k, : degrees[site]] = distances[indptr[site] : indptr[site + 1]]
        if (steps[codes[owner], slot] != distances).any() or (degrees[some][codes] != degrees).any():
            return None
        return codes.astype(np.uint16), steps, slot * n + owner


# -- states -----------------------------------------------------------------------------------------------------------


def pack_states(states: NDArray[Any], sites: NDArray[Any], stride: int, dtype: Any, *, packed: bool) -> NDArray[Any]:
    """Configurations (count, n) as rows (n + 1, stride) by the place of their sites, the last of them 0.

    Packed, configuration 32 w + b is bit b of word w; otherwise it is an element of its own.

    Examples
    --------
    >>> from fastmix.instances import ising_grid
    >>> sites = ising_grid(1, 2, coupling_max=1.0, seed=0).structure.visit_order[0]
    >>> pack_states(np.array([[0, 1], [1, 1], [0, 0]]), sites, 1, np.uint32, packed=True).tolist()
    [[2], [3], [0]]
    """
    count, n = states.shape
    rows = np.zeros((n + 1, stride), dtype=dtype)
    for part in _chunks(n, 32 * stride if packed else stride):
        block = states[:, sites[part]].T
        if packed:
            bits = np.zeros((len(block), 32 * stride), dtype=np.uint8)
            bits[:, :count] = block
            rows[part] = np.packbits(bits, axis=1, bitorder="little").view(np.uint32)
        else:
            rows[part, :count] = block
    return rows


def unpack_states(rows: NDArray[Any], sites: NDArray[Any], count: int, *, packed: bool) -> IntArray:
    """The configurations (count, n) that :func:`pack_states` was given."""
    n = len(rows) - 1
    result = np.empty((count, n), dtype=np.int64)
    for part in _chunks(n, rows.shape[1] * (32 if packed else 1)):
        block = np.ascontiguousarray(rows[part])
        if packed:
            block = np.unpackbits(block.view(np.uint8), axis=1, bitorder="little")
        result[:, sites[part]] = block[:, :count].T
    return result


def _chunks(n: int, width: int) -> Iterator[slice]:
    step = max(1, _CHUNK_ENTRIES // max(1, width))
    return (slice(a, min(a + step, n)) for a in range(0, n, step))
