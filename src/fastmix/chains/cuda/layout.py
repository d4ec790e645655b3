"""What the CUDA kernels read: the layout of the structure in the order of a sweep, log-odds and states, on the host."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix.chains.layout import Layout

__all__ = ["DeviceLayout", "pack_states", "unpack_states"]

Arrays = dict[str, NDArray[Any]]

_MOST_CODES = 1 << 16  # different surroundings of a site: codes have 16 bits


class DeviceLayout(Layout):
    """The layout by place in a sweep: variable ``order[p]`` is at place p, colors begin at ``class_starts``."""

    @cached_property
    def place_cuts(self) -> IntArray:
        """States but the last of the variable at every place (n,)."""
        return self.cuts[self.order]

    def field_tables(self, theta: FloatArray) -> tuple[Arrays, int]:
        """Arrays for :func:`fastmix.chains.cuda.field_kernels.field_update`, and the degree they are padded to."""
        assert self.codes is not None
        codes, steps, places = self.codes
        [linear], [joint], _ = self.binary_terms(theta[None])
        weights = np.zeros(steps.shape[1] * len(codes))
        weights[places] = joint[self.structure.adjacency.edge_ids[self.by_place[1]]]
        arrays: Arrays = {"codes": codes, "steps": steps}
        for name, values in (("weight", weights), ("offset", linear[self.order])):
            rounded = values.astype(np.float32)
            arrays |= {name + "s": rounded, name + "_rests": (values - rounded).astype(np.float32)}
        return arrays, steps.shape[1]

    @cached_property
    def codes(self) -> tuple[NDArray[np.uint16], NDArray[np.int32], IntArray] | None:
        """A code for the distances to the neighbors of every place, the distances of every code, where weights go.

        Missing neighbors have distance 0, the place itself, and weight 0. None if 16 bits or the padding do not pay.
        """
        indptr, n = self.by_place[0], len(self.order)
        degrees = np.diff(indptr)
        degree = max(1, int(degrees.max(initial=0)))
        if n == 0 or degree * n > 2 * len(self.neighbors) + 4 * n:
            return None
        owner = np.repeat(np.arange(n), degrees)
        slot = np.arange(len(owner)) - np.repeat(indptr[:-1], degrees)
        distances = np.zeros((n, degree), dtype=np.int32)
        distances[owner, slot] = self.neighbors - owner
        # Rows are told apart by a random linear function; equal keys are then checked to be equal rows.
        factors = np.random.default_rng(0).integers(1, 2**63, size=degree, dtype=np.uint64)
        key = np.zeros(n, dtype=np.uint64)
        with np.errstate(over="ignore"):
            for column, factor in zip(distances.T, factors, strict=True):
                key += column.astype(np.uint64) * factor
        kinds, some, codes = np.unique(key, return_index=True, return_inverse=True)
        if len(kinds) > _MOST_CODES or (distances[some][codes] != distances).any():
            return None
        return codes.astype(np.uint16), distances[some], slot * n + owner


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
    rows = np.zeros((n + 1, 32 * stride if packed else stride), dtype=np.uint8 if packed else dtype)
    rows[:-1, :count] = states.astype(rows.dtype).T[sites]
    return np.packbits(rows, axis=1, bitorder="little").view(np.uint32) if packed else rows


def unpack_states(rows: NDArray[Any], sites: NDArray[Any], count: int, *, packed: bool) -> IntArray:
    """The configurations (count, n) that :func:`pack_states` was given."""
    states = np.ascontiguousarray(rows[:-1])
    if packed:
        states = np.unpackbits(states.view(np.uint8), axis=1, bitorder="little")
    result = np.empty((count, len(states)), dtype=np.int64)
    result[:, sites] = states[:, :count].T
    return result
