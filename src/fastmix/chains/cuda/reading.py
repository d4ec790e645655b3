"""What is read from configurations on an NVIDIA GPU, and the arrays that are kept there."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix.chains.base import Chains
from fastmix.chains.cuda.device import Launch, start_kernel
from fastmix.chains.cuda.tables import pack_states, unpack_states
from fastmix.chains.layout import Layout, rows_of
from fastmix.chains.patches import Patch, whole_patch

__all__ = ["BATCH_NUMBERS", "MOST_THREADS", "CudaReading"]

BATCH_NUMBERS = 1 << 25  # energies of all patches of a batch and all chains: 256 MiB
MOST_THREADS = 1 << 20  # that share the terms of a batch, about
_BLOCKS, _THREADS = 1024, 128  # of kernels beside the sweeps, at most
_MOST_BLOCKS = 1 << 15  # along any axis, a block for every term or patch; the device takes 2^16 - 1 along y
_LEAST_TERMS = 64  # that a thread adds up


class CudaReading(Chains):
    """What is read from configurations on a device: those of all sets, as rows ``_x`` by the places of variables.

    Rows have ``_stride`` elements, words of 32 chains if ``_packed``; a row of zeros follows the last place.
    """

    layout: Layout
    _cuda: Any
    _x: Any
    _stride: int
    _packed: bool
    _launch: Launch
    _values: Any = None
    _batches: tuple[object, list[_Batch]] = None, []

    @cached_property
    def _rooms(self) -> dict[str, Any]:
        return {}

    @property
    def _n(self) -> int:
        return self.structure.num_variables

    @property
    def _total(self) -> int:
        """Configurations of all sets."""
        return self.num_sets * self.num_chains

    @property
    def _factors(self) -> bool:
        return self.structure.num_factors > 0

    # -- arrays -----------------------------------------------------------------------------------------------------

    def _zeros(self, size: int, dtype: Any) -> Any:
        return self._cuda.to_device(np.zeros(max(1, size), dtype=dtype))

    def _put(self, name: str, values: NDArray[Any]) -> Any:
        """An array on the device, flat, in the place that an array of this name and size has already."""
        flat = np.ascontiguousarray(values).reshape(-1)
        flat = flat if flat.size else np.zeros(1, dtype=flat.dtype)
        held = self._rooms.get(name)
        if held is None or held.size != flat.size or held.dtype != flat.dtype:
            self._rooms[name] = self._cuda.to_device(flat)
        else:
            held.copy_to_device(flat)
        return self._rooms[name]

    def _room(self, name: str, size: int, dtype: Any = np.float64) -> Any:
        """Room for so many numbers, which is kept: allocating takes longer than many a kernel."""
        if name not in self._rooms or self._rooms[name].size < size:
            self._rooms[name] = self._cuda.device_array(max(1, size), dtype)
        return self._rooms[name]

    def _start(self, kernel: Any, count: int, *arguments: Any) -> None:
        """Launch a kernel whose threads share so many things along x."""
        start_kernel(kernel, self._shape(count), *arguments)

    def _shape(self, count: int) -> tuple[int, int]:
        threads = min(_THREADS, self._launch.block_x * self._launch.block_y)
        return min(_BLOCKS, max(1, -(-count // threads))), threads

    def _rows(self, variables: NDArray[Any]) -> NDArray[np.uint32]:
        """Where the rows of some variables begin."""
        return (self.layout.places[variables] * self._stride).astype(np.uint32)

    @cached_property
    def _links(self) -> tuple[Any, ...]:
        """The graph as kernels read it that compute conditional distributions, see ``weigh_states``.

        Factors over more variables follow, if there are any.
        """
        structure, layout, split = self.structure, self.layout, self.structure.unary_offsets[-1]
        (indptr, slots), order, (_, starts, own_steps, other_steps) = layout.by_place, layout.order, structure.directed
        arrays: tuple[NDArray[Any], ...] = (
            indptr, self._rows(structure.adjacency.neighbors[slots]), split + starts[slots], own_steps[slots],
            other_steps[slots], structure.unary_offsets[:-1][order], layout.cuts[order],
        )  # fmt: skip
        if self._factors:
            around = structure.incident
            indptr, entries, member_starts, picked = layout.factor_places
            arrays = (
                *arrays, indptr, split + around.starts[entries], around.own_steps[entries], member_starts,
                self._rows(around.members[picked]), around.steps[picked],
            )  # fmt: skip
        return tuple(self._put(f"link {k}", a) for k, a in enumerate(arrays))

    def _load_values(self) -> Any:
        """The parameters of all sets on the device, (sets, P)."""
        if self._values is None:
            self._values = self._put("values", np.stack([self.sets.theta(k) for k in range(self.num_sets)]))
        return self._values

    @cached_property
    def _term_offsets(self) -> IntArray:
        """Where the parameters of every variable, edge and factor begin, and their end."""
        structure = self.structure
        tables = np.append(
            structure.pairwise_offsets[1:], structure.pairwise_offsets[-1] + structure.factor_offsets[1:]
        )
        return np.append(structure.unary_offsets, structure.unary_offsets[-1] + tables)

    def _describe(self, terms: IntArray) -> tuple[NDArray[Any], ...]:
        """Rows, steps and offsets of some terms: variables, then edges, then factors; see ``find_entry``.

        A variable is an edge to the row of zeros. With factors steps are those of all members, and where those of each
        term begin is the last array.
        """
        structure, n = self.structure, self._n
        pairs = np.concatenate([np.stack([np.arange(n), np.full(n, n)], axis=1), structure.edges])
        columns = np.append(np.ones(n, dtype=np.int64), structure.num_states[structure.edges[:, 1]])
        offsets = self._term_offsets[:-1][terms].astype(np.uint64)
        places = np.append(self.layout.places, n) * self._stride
        if not self._factors:
            return places[pairs[terms]].astype(np.uint32).reshape(-1), columns[terms].astype(np.uint32), offsets
        members = np.append(pairs.reshape(-1), structure.scope_variables)
        steps = np.append(np.stack([columns, np.ones_like(columns)], axis=1), structure.factor_strides)
        starts, picked = rows_of(np.append(2 * np.arange(len(pairs)), 2 * len(pairs) + structure.scope_starts), terms)
        rows = places[members[picked]].astype(np.uint32)
        return rows, steps[picked].astype(np.uint32), offsets, starts.astype(np.uint32)

    # -- configurations ---------------------------------------------------------------------------------------------

    def get_states(self) -> IntArray:
        """Current configurations (K * C, n)."""
        return self._unpack(0)

    def get_top_states(self) -> IntArray:
        """Configurations (C, n) at the last set, that of the target."""
        return self._unpack(self.num_sets - 1)

    def _unpack(self, first_set: int) -> IntArray:
        if not self._n:
            return np.zeros((self._total - first_set * self.num_chains, 0), dtype=np.int64)
        first = first_set * self.num_chains
        rows = self._x.copy_to_host().reshape(self._n + 1, -1)[:, first // (32 if self._packed else 1) :]
        return unpack_states(rows, self.layout, self._total - first, packed=self._packed)

    def set_states(self, states: NDArray[Any]) -> None:
        """Go on from these configurations (K * C, n)."""
        if self._n:
            rows = pack_states(np.asarray(states), self.layout, self._stride, self._x.dtype, packed=self._packed)
            self._x.copy_to_device(rows.reshape(-1))

    def take(self, chosen: IntArray) -> None:
        """Let configuration i be that of ``chosen[i]`` (K * C,)."""
        sources = np.arange(32 * self._stride if self._packed else self._stride, dtype=np.uint32)
        sources[: len(chosen)] = chosen
        spare = self._room("spare", self._x.size, self._x.dtype)
        self._start(
            _kernels().gather_kernel(self._packed), self._x.size, self._x, self._put("sources", sources),
            np.uint64(self._stride), np.uint64(self._n + 1), spare,
        )  # fmt: skip
        self._x.copy_to_device(spare)

    def save(self) -> Any:
        """A copy of the configurations on the device."""
        saved = self._cuda.device_array(self._x.shape, self._x.dtype)
        saved.copy_to_device(self._x)
        return saved

    def restore(self, saved: Any) -> None:
        """Go back to the configurations of :meth:`save`."""
        self._x.copy_to_device(saved)

    # -- energies, counts, pairs ------------------------------------------------------------------------------------

    def energies(self, thetas: ArrayLike | None = None) -> FloatArray:
        """``thetas[d] @ f(x)`` of every configuration, (D, K * C); of those that are loaded by default."""
        given = self.sets.thetas if thetas is None else np.atleast_2d(np.asarray(thetas, dtype=np.float64))
        result = np.zeros((len(given), self._total))
        for d, theta in enumerate(given if self._n else ()):
            rows = self._room("rows", self._total)
            self._add_up(self._whole, self._put("theta", theta), rows)
            result[d] = rows.copy_to_host()[: self._total]
        return result

    def moments(self, weights: FloatArray | None = None) -> FloatArray:
        """Mean over the configurations of ``weight * f(x)``, (P,); plain means without weights (K * C,)."""
        weights = np.ones(self._total) if weights is None else np.asarray(weights, dtype=np.float64)
        if not self._n:
            return np.zeros(0)
        self._count(self._whole, self._put("weights", weights))
        return self._take_results() / self._total

    def covariances(self, theta: FloatArray, patches: Sequence[Patch]) -> FloatArray:
        """Covariance over the configurations of every indicator with ``theta @ f(x)``, of its patch only, (P,)."""
        if self._batches[0] is not patches:  # a descent has the same patches all along
            room = max(1, BATCH_NUMBERS // self._total)
            batches = [_Batch(self, patches[k : k + room]) for k in range(0, len(patches), room)]
            self._batches = patches, batches
        values = self._put("theta", theta)
        for batch in self._batches[1]:
            energies = self._room("energies", batch.num_patches * self._total)
            self._add_up(batch, values, energies)
            shape = min(batch.num_patches, _MOST_BLOCKS), self._shape(self._total)[1]
            rows = np.uint64(batch.num_patches), np.uint64(self._total)
            start_kernel(_kernels().centre_rows, shape, energies, *rows)
            self._count(batch, energies)
        return self._take_results() / (self._total - 1)  # unbiased: the mean is estimated too

    def add_pairs(self, out: FloatArray, *, average: bool) -> None:
        """Add the pairs of states on every edge, over the chains at the last set, to ``out``; see ``Chains``."""
        structure, kernels = self.structure, _kernels()
        if not structure.num_edges:
            return
        if not average:
            top, split = np.arange(self._total) >= self._total - self.num_chains, self.layout.split
            self._count(self._whole, self._put("weights", top.astype(np.float64)))
            out += self._take_results()[split : split + len(out)]
            return
        counts = self._put("pairs", np.zeros(len(out), dtype=np.uint64))
        ends = self._put("ends", self.layout.places[structure.edges])
        at = np.int64((self.num_sets - 1) * self.num_parameters)
        chains = np.uint64(self._total - self.num_chains), np.uint64(self._total)
        shape = min(structure.num_edges, _MOST_BLOCKS), self._shape(self.num_chains)[1]
        start_kernel(
            kernels.pair_kernel(self._packed, self._factors), shape, self._x, ends,
            self._put("tables", structure.pairwise_offsets[:-1]), self._links, self._load_values(), at, *chains,
            np.uint64(self._stride), counts,
        )  # fmt: skip
        out += counts.copy_to_host() / (2.0 * kernels.PAIR_UNIT)

    def _add_up(self, batch: _Batch, values: Any, out: Any) -> None:
        """Energies (patches, configurations) of the terms of a batch."""
        kernels, chains = _kernels(), np.uint64(self._total)
        parts = self._room("parts", batch.num_pieces * self._total)
        threads = self._shape(self._total)[1]
        shape = (-(-self._total // threads), min(batch.num_pieces, _MOST_BLOCKS)), threads
        run = kernels.energy_kernel(self._packed, self._factors)
        start_kernel(run, shape, self._x, batch.terms, values, batch.pieces, chains, parts)
        self._start(kernels.sum_pieces, batch.num_patches * self._total, parts, batch.starts, chains, out)

    def _count(self, batch: _Batch, weights: Any) -> None:
        """The sums of weights (patches, configurations) in every state of the terms in the cores of a batch."""
        shape = min(batch.num_core, _MOST_BLOCKS), self._shape(self._total)[1]
        results = self._room("results", self.num_parameters)
        run = _kernels().count_kernel(self._packed, self._factors)
        start_kernel(run, shape, self._x, *batch.core, weights, np.uint64(self._total), results)

    def _take_results(self) -> FloatArray:
        return np.asarray(self._rooms["results"].copy_to_host())

    @cached_property
    def _whole(self) -> _Batch:
        return _Batch(self, [whole_patch(self.structure)])


class _Batch:
    """Patches whose energies are computed together, as arrays on the device.

    ``terms`` are rows, steps and offsets of the terms of all patches; ``pieces`` says where pieces of this list begin,
    which a thread adds up, and ``starts`` where the pieces of a patch begin; ``core`` are rows, steps, offsets and
    sizes of the terms in the cores, and the number of their patch.
    """

    def __init__(self, chains: CudaReading, patches: Sequence[Patch]) -> None:
        n, put = chains._n, chains._cuda.to_device
        m = n + chains.structure.num_edges
        lists = [np.concatenate([p.variables, n + p.edges, m + p.factors]).astype(np.int64) for p in patches]
        cores = [
            np.concatenate([p.core_variables, n + p.core_edges, m + p.core_factors]).astype(np.int64) for p in patches
        ]
        terms, core = np.concatenate(lists), np.concatenate(cores)
        size = max(_LEAST_TERMS, len(terms) * chains._total // MOST_THREADS)
        pieces, starts, first = [0], [0], 0
        for part in lists:
            number = max(1, -(-len(part) // size))  # of pieces of about equal length
            pieces.extend(first + len(part) * (k + 1) // number for k in range(number))
            starts.append(len(pieces) - 1)
            first += len(part)
        sizes = np.diff(chains._term_offsets)[core].astype(np.uint64)
        owners = np.repeat(np.arange(len(cores)), [len(c) for c in cores]).astype(np.int64)
        self.terms = tuple(put(a) for a in chains._describe(terms))
        self.pieces, self.starts = put(np.array(pieces, dtype=np.int64)), put(np.array(starts, dtype=np.int64))
        self.core = tuple(put(a) for a in chains._describe(core)), put(sizes), put(owners)
        self.num_patches, self.num_pieces, self.num_core = len(patches), len(pieces) - 1, len(core)


def _kernels() -> Any:
    """Kernels, imported when first needed: importing Numba takes half a second."""
    from fastmix.chains.cuda import reading_kernels

    return reading_kernels
