"""States, energies, moments, covariances and pairs of states of configurations on an NVIDIA GPU.

Kernels are imported when first needed, because importing Numba takes half a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix.chains.base import Chains
from fastmix.chains.cuda.device import Launch, cuda_available, require_cuda, start_kernel
from fastmix.chains.layout import Layout, rows_of
from fastmix.chains.patches import Patch, whole_patch
from fastmix.chains.tuning import (
    MAX_BATCH_ENERGIES,
    MAX_BATCH_THREADS,
    MAX_GRID,
    MAX_READING_BLOCKS,
    MIN_PIECE_TERMS,
    READING_THREADS,
    TERM_BYTES,
)
from fastmix.model.structure import Structure

__all__ = ["DeviceChains", "pack_states", "unpack_states"]


class DeviceChains(Chains):
    """Chains whose configurations are in the memory of a GPU: the part that reads them.

    The states ``_x`` lie in rows by the place of their variable in a sweep, see ``reading_kernels.py``.
    """

    _x: Any
    _packed: bool
    _stride: int  # elements of a row of states
    _capacity: int  # number of configurations that a row has room for
    _launch: Launch

    def __init__(self, structure: Structure, num_chains: int, num_sets: int) -> None:
        self._cuda = require_cuda()
        self.device = cuda_available()[1]
        self.structure = structure
        self.num_chains = num_chains
        self.num_sets = num_sets
        self._n = structure.num_variables
        self._total = num_sets * num_chains
        self._layout = Layout(structure)
        self._factors = structure.num_factors > 0
        self._rooms: dict[str, Any] = {}  # arrays on the device, by name
        self._batches: tuple[object, list[_Batch]] = None, []  # patches, and batches made of them
        self._values: Any = None  # the parameters of all sets on the device
        self._held: FloatArray | None = None  # the thetas that are on the device

    # -- configurations -----------------------------------------------------------------------------------------------

    def get_states(self) -> IntArray:
        """The current configurations (K * C, n)."""
        return self._unpack(0)

    def get_top_states(self) -> IntArray:
        """The configurations (C, n) at the last set, that of the target."""
        return self._unpack(self.num_sets - 1)

    def _unpack(self, first_set: int) -> IntArray:
        """The configurations at the sets from ``first_set`` on."""
        if not self._n:
            return np.zeros((self._total - first_set * self.num_chains, 0), dtype=np.int64)
        first = first_set * self.num_chains
        rows = self._x.copy_to_host().reshape(self._n + 1, -1)[:, first // (32 if self._packed else 1) :]
        return unpack_states(rows, self._layout.order, self._total - first, packed=self._packed)

    def set_states(self, states: NDArray[Any]) -> None:
        """Continue from these configurations (K * C, n)."""
        if self._n:
            rows = pack_states(np.asarray(states), self._layout.order, self._stride, self._x.dtype, packed=self._packed)
            self._x.copy_to_device(rows.reshape(-1))

    def take(self, chosen: IntArray) -> None:
        """Replace configuration i by configuration ``chosen[i]`` (K * C,)."""
        from fastmix.chains.cuda.reading_kernels import gather_kernel

        sources = np.arange(self._capacity, dtype=np.uint32)
        sources[: len(chosen)] = chosen
        spare = self._room("spare", self._x.size, self._x.dtype)
        self._start(
            gather_kernel(self._packed),
            self._x.size,
            self._x,
            self._put("sources", sources),
            np.uint64(self._stride),
            np.uint64(self._n + 1),
            spare,
        )
        self._x.copy_to_device(spare)

    def save(self) -> Any:
        """A copy of the configurations on the device."""
        saved = self._cuda.device_array(self._x.shape, self._x.dtype)
        saved.copy_to_device(self._x)
        return saved

    def restore(self, saved: Any) -> None:
        """Go back to the configurations that :meth:`save` returned."""
        self._x.copy_to_device(saved)

    # -- reading ------------------------------------------------------------------------------------------------------

    def energies(self, thetas: ArrayLike | None = None) -> FloatArray:
        """``thetas[d] @ f(x)`` of every configuration, (D, K * C); the loaded thetas are the default."""
        given = self.sets.thetas if thetas is None else np.atleast_2d(np.asarray(thetas, dtype=np.float64))
        result = np.zeros((len(given), self._total))
        size = self.num_parameters
        if self._n:
            if thetas is None and self._held is not given:
                self._held = given
                self._put("thetas", given)
            values = self._rooms["thetas"] if thetas is None else self._put("other thetas", given)
            rows = self._room("rows", self._total)
            for d, row in enumerate(result):
                self._add_up(self._whole, values[d * size : (d + 1) * size], rows)
                row[:] = rows.copy_to_host()[: self._total]
        return result

    def moments(self, weights: FloatArray | None = None) -> FloatArray:
        """Means over the configurations of ``weight * f(x)``, (P,); plain means without weights (K * C,)."""
        if weights is None:
            weights = np.ones(self._total)
        if not self._n:
            return np.zeros(0)
        self._count(self._whole, self._put("weights", np.asarray(weights, dtype=np.float64)))
        return np.asarray(self._rooms["results"].copy_to_host()) / self._total

    def covariances(self, theta: FloatArray, patches: Sequence[Patch]) -> FloatArray:
        """Covariances over the configurations of every indicator with ``theta @ f(x)``, (P,); see :class:`Chains`."""
        from fastmix.chains.cuda.reading_kernels import center_rows

        # A descent has the same patches at every step.
        if self._batches[0] is not patches:
            room = max(1, MAX_BATCH_ENERGIES // self._total)
            batches = [_Batch(self, patches[k : k + room]) for k in range(0, len(patches), room)]
            self._batches = patches, batches
        values = self._put("theta", theta)
        for batch in self._batches[1]:
            energies = self._room("energies", batch.num_patches * self._total)
            self._add_up(batch, values, energies)
            shape = min(batch.num_patches, MAX_GRID), self._shape(self._total)[1]
            rows = np.uint64(batch.num_patches), np.uint64(self._total)
            start_kernel(center_rows, shape, energies, *rows)
            self._count(batch, energies)
        # Unbiased: the mean is estimated too.
        return np.asarray(self._rooms["results"].copy_to_host()) / (self._total - 1)

    def add_pairs(self, out: FloatArray, *, average: bool, clock: Clock = NO_LIMIT) -> None:  # noqa: ARG002 (fast enough)
        """Add the edge marginals that the chains at the last set give to ``out``; see :class:`Chains`."""
        from fastmix.chains.cuda.reading_kernels import PAIR_UNIT, pair_kernel

        structure = self.structure
        if not structure.num_edges:
            return
        if not average:
            top = np.repeat([0.0, 1.0], [self._total - self.num_chains, self.num_chains])
            out += self._total * self.moments(top)[self._layout.split :][: len(out)]
            return
        counts = self._put("pairs", np.zeros(len(out), dtype=np.uint64))
        ends = self._put("ends", self._layout.places[structure.edges])
        at = np.int64((self.num_sets - 1) * self.num_parameters)
        chains = np.uint64(self._total - self.num_chains), np.uint64(self._total)
        shape = min(structure.num_edges, MAX_GRID), self._shape(self.num_chains)[1]
        start_kernel(
            pair_kernel(self._packed),
            shape,
            self._x,
            ends,
            self._put("tables", structure.pairwise_offsets[:-1]),
            self._links,
            self._load_values(),
            at,
            *chains,
            np.uint64(self._stride),
            counts,
        )
        out += counts.copy_to_host() / (2.0 * PAIR_UNIT)

    def _add_up(self, batch: _Batch, values: Any, out: Any) -> None:
        """Fill in the energies (patches, configurations) of the terms of a batch."""
        from fastmix.chains.cuda.reading_kernels import energy_kernel, sum_pieces

        chains = np.uint64(self._total)
        parts = self._room("parts", batch.num_pieces * self._total)
        threads = self._shape(self._total)[1]
        shape = (-(-self._total // threads), min(batch.num_pieces, MAX_GRID)), threads
        run = energy_kernel(self._packed, self._factors)
        start_kernel(run, shape, self._x, batch.terms, values, batch.pieces, chains, parts)
        self._start(sum_pieces, batch.num_patches * self._total, parts, batch.starts, chains, out)

    def _count(self, batch: _Batch, weights: Any) -> None:
        """Add up the weights (patches, configurations) in every state of the terms in the cores of a batch."""
        from fastmix.chains.cuda.reading_kernels import count_kernel

        shape = min(batch.num_core, MAX_GRID), self._shape(self._total)[1]
        results = self._room("results", self.num_parameters)
        run = count_kernel(self._packed, self._factors)
        start_kernel(run, shape, self._x, *batch.core, weights, np.uint64(self._total), results)

    @cached_property
    def _whole(self) -> _Batch:
        """The whole graph as one batch of one patch."""
        return _Batch(self, [whole_patch(self.structure)])

    @cached_property
    def _term_offsets(self) -> IntArray:
        """Starts of the parameters of every variable, edge and factor, and their end."""
        structure = self.structure
        pairs = structure.unary_offsets[-1] + structure.pairwise_offsets
        return np.concatenate([structure.unary_offsets, pairs[1:], pairs[-1] + structure.factor_offsets[1:]])

    def _describe(self, terms: IntArray) -> tuple[NDArray[Any], ...]:
        """Rows, steps and offsets of some terms: variables, then edges, then factors; see ``entry_finder``."""
        rows, steps, offsets, starts = self._describe_members(terms)
        if self._factors:
            return rows, steps, offsets, starts
        first = starts[:-1]
        pairs = np.diff(starts) == 2
        both = np.full((len(terms), 2), self._n * self._stride, dtype=np.uint32)
        both[:, 0] = rows[first]
        both[pairs, 1] = rows[first[pairs] + 1]
        return both.reshape(-1), steps[first], offsets

    def _describe_members(self, terms: IntArray) -> tuple[NDArray[Any], ...]:
        """Rows and steps of all members of some terms, one term after the other; offsets; starts of the members."""
        structure = self.structure
        offsets = self._term_offsets[:-1][terms].astype(np.uint64)
        own = np.arange(self._n)
        theirs = structure.num_states[structure.edges[:, 1]]
        members = np.concatenate([own, structure.edges.reshape(-1), structure.scope_variables])
        pair_steps = np.stack([theirs, np.ones_like(theirs)], axis=1).reshape(-1)
        steps = np.concatenate([np.ones_like(own), pair_steps, structure.factor_strides]).astype(np.uint32)
        ends = np.concatenate([own, self._n + 2 * np.arange(structure.num_edges)])
        starts, picked = rows_of(np.append(ends, self._n + 2 * structure.num_edges + structure.scope_starts), terms)
        return self._rows(self._layout.places[members[picked]]), steps[picked], offsets, starts.astype(np.uint32)

    # -- parameters on the device -------------------------------------------------------------------------------------

    def _load_values(self) -> Any:
        """The parameters of all sets on the device, (sets, P)."""
        if self._values is None:
            self._values = self._put("values", np.stack([self.sets.theta(k) for k in range(self.num_sets)]))
        return self._values

    @cached_property
    def _links(self) -> tuple[Any, ...]:
        """The graph and the factors around every place, for kernels that compute conditional distributions.

        ``fill_thresholds`` describes these arrays, and ``pair_kernel`` those of the factors.
        """
        structure = self.structure
        layout = self._layout
        around = structure.incident
        _, starts, own_steps, other_steps = structure.directed
        indptr, slots = layout.by_place
        factors, entries, member_starts, picked = layout.factor_places
        arrays: tuple[NDArray[Any], ...] = (
            indptr,
            self._rows(layout.neighbors),
            layout.split + starts[slots],
            own_steps[slots],
            other_steps[slots],
            structure.unary_offsets[:-1][layout.order],
            layout.place_cuts,
            factors,
            layout.split + around.starts[entries],
            around.own_steps[entries],
            member_starts,
            self._rows(layout.places[around.members[picked]]),
            around.steps[picked],
        )
        return tuple(self._put(f"link {k}", a) for k, a in enumerate(arrays))

    def _rows(self, places: NDArray[Any]) -> NDArray[np.uint32]:
        """Starts of the rows of some places among the states."""
        return (places.astype(np.int64) * self._stride).astype(np.uint32)

    # -- memory -------------------------------------------------------------------------------------------------------

    @property
    def _reading_bytes(self) -> float:
        """Bytes of the energies with their pieces, and of the lists of terms."""
        numbers = min(MAX_BATCH_ENERGIES, self._n * self._total) + MAX_BATCH_THREADS
        terms = self._n + self.structure.num_edges + len(self.structure.scope_variables)
        return 16.0 * numbers + TERM_BYTES * terms

    def _zeros(self, size: int, dtype: Any) -> Any:
        """Zeros on the device, at least one."""
        return self._cuda.to_device(np.zeros(max(1, size), dtype=dtype))

    def _put(self, name: str, values: NDArray[Any]) -> Any:
        """An array on the device, flat; it takes the place of an array of this name if that has the same size."""
        flat = np.ascontiguousarray(values).reshape(-1)
        flat = flat if flat.size else np.zeros(1, dtype=flat.dtype)
        held = self._rooms.get(name)
        if held is None or held.size != flat.size or held.dtype != flat.dtype:
            self._rooms[name] = self._cuda.to_device(flat)
        else:
            held.copy_to_device(flat)
        return self._rooms[name]

    def _room(self, name: str, size: int, dtype: Any = np.float64) -> Any:
        """Room for ``size`` numbers on the device, which is kept: allocating takes longer than many kernels."""
        if name not in self._rooms or self._rooms[name].size < size:
            self._rooms[name] = self._cuda.device_array(max(1, size), dtype)
        return self._rooms[name]

    def _start(self, kernel: Any, count: int, *arguments: Any) -> None:
        """Launch a kernel whose threads share ``count`` things along x."""
        start_kernel(kernel, self._shape(count), *arguments)

    def _shape(self, count: int) -> tuple[int, int]:
        """Blocks and threads of a launch over ``count`` things."""
        threads = min(READING_THREADS, self._launch.block_x * self._launch.block_y)
        return min(MAX_READING_BLOCKS, max(1, -(-count // threads))), threads


class _Batch:
    """Patches whose energies are computed together, as arrays on the device.

    ``terms`` are rows, steps and offsets of the terms of all patches. A thread adds up a piece of this list: ``pieces``
    are the starts of the pieces, and ``starts`` the first piece of every patch. ``core`` are rows, steps, offsets and
    sizes of the terms in the cores, and the numbers of their patches.
    """

    def __init__(self, chains: DeviceChains, patches: Sequence[Patch]) -> None:
        n = chains._n
        put = chains._cuda.to_device
        m = n + chains.structure.num_edges
        lists = [np.concatenate([p.variables, n + p.edges, m + p.factors]).astype(np.int64) for p in patches]
        cores = [
            np.concatenate([p.core_variables, n + p.core_edges, m + p.core_factors]).astype(np.int64) for p in patches
        ]
        terms = np.concatenate(lists)
        core = np.concatenate(cores)
        size = max(MIN_PIECE_TERMS, len(terms) * chains._total // MAX_BATCH_THREADS)

        # Pieces of about equal length, of each patch by itself.
        pieces = [0]
        starts = [0]
        first = 0
        for part in lists:
            number = max(1, -(-len(part) // size))
            pieces.extend(first + len(part) * (k + 1) // number for k in range(number))
            starts.append(len(pieces) - 1)
            first += len(part)
        sizes = np.diff(chains._term_offsets)[core].astype(np.uint64)
        owners = np.repeat(np.arange(len(cores)), [len(c) for c in cores]).astype(np.int64)
        self.terms = tuple(put(a) for a in chains._describe(terms))
        self.pieces = put(np.array(pieces, dtype=np.int64))
        self.starts = put(np.array(starts, dtype=np.int64))
        self.core = tuple(put(a) for a in chains._describe(core)), put(sizes), put(owners)
        self.num_patches = len(patches)
        self.num_pieces = len(pieces) - 1
        self.num_core = len(core)


def pack_states(states: NDArray[Any], sites: NDArray[Any], stride: int, dtype: Any, *, packed: bool) -> NDArray[Any]:
    """Rows (n + 1, stride) of the states of configurations (count, n), by the place of their sites; the last row is 0.

    Packed, configuration 32 w + b is bit b of word w; otherwise it is an element of its own.
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
