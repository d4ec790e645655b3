"""What a pool of chains does on an NVIDIA GPU: tables of new models, energies, weighted counts, resampling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix.chains.cuda.device import Launch, check_memory, start_kernel
from fastmix.chains.cuda.gibbs import CudaGibbs
from fastmix.chains.links import find_links
from fastmix.chains.patches import Patch
from fastmix.model import MarkovRandomField

__all__ = ["Batch", "PoolEngine"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_WORD = 32  # the number of chains is a multiple, so that sums, which nobody reads, take a number a word
_LEAST_TERMS = 64  # of a piece
_MOST_THREADS = 1 << 20  # that share the terms of a batch, about
_BATCH_NUMBERS = 1 << 25  # energies of all patches of a batch and all chains: 256 MiB
_TERM_BYTES = 400.0  # of a term in the lists of patches, which are up to 16 times as long as the model
_MOST_BLOCKS = 1 << 15  # along any axis; the device takes 2^16 - 1 along y


@dataclass(frozen=True, eq=False)
class Batch:
    """Patches whose energies are computed together, as arrays on the device.

    Attributes
    ----------
    terms : tuple of device arrays
        Rows, steps and offsets of the terms of all patches, see :mod:`fastmix.chains.cuda.pool_kernels`.
    pieces : device array
        Where pieces of this list begin, and its end. A thread adds up a piece.
    starts : device array
        Where the pieces of a patch begin, and their end.
    core : tuple of device arrays
        Rows, steps, offsets and sizes of the terms in the cores, and the number of their patch in the batch.
    num_patches, num_pieces, num_core : int
    """

    terms: tuple[Any, ...]
    pieces: Any
    starts: Any
    core: tuple[Any, ...]
    num_patches: int
    num_pieces: int
    num_core: int


class PoolEngine(CudaGibbs):
    """Chains on the device with what a descent reads from them, and with parameters that change for every sweep.

    Sums over sweeps, as :meth:`take_sums` returns them, are not kept.

    Parameters
    ----------
    model : MarkovRandomField
        Gives the graph and the state counts; at least one variable, finite entries only.
    num_chains, seed : int
        Chains beyond ``num_chains`` fill the last word; nobody reads them.
    launch : Launch, optional
        For tests.
    """

    def __init__(self, model: MarkovRandomField, *, num_chains: int, seed: int, launch: Launch | None = None) -> None:
        padded = -(-num_chains // _WORD) * _WORD
        super().__init__(model, num_chains=padded, seed=seed, group_size=padded, launch=launch)
        self.used = num_chains
        # The spare states, two copies that a descent keeps, energies with their pieces, and the lists of terms.
        numbers = min(_BATCH_NUMBERS, model.num_variables * num_chains) + _MOST_THREADS
        terms = model.num_variables + model.num_edges
        check_memory(self._cuda, 3.0 * self._x.nbytes + 16.0 * numbers + _TERM_BYTES * terms)
        split, n = len(model.log_unary), model.num_variables
        places = np.concatenate(
            [np.stack([self._order.places, np.full(n, n)], axis=1), self._order.places[model.edges].reshape(-1, 2)]
        )
        self._term_rows = (places * self._stride).astype(np.uint32)
        self._term_steps = np.concatenate([np.ones(n), model.num_states[model.edges[:, 1]]]).astype(np.uint32)
        self._term_offsets = np.concatenate([model.unary_offsets, split + model.pairwise_offsets[1:]]).astype(np.uint64)
        self._values = self._zeros(model.num_parameters, np.float64)
        self._results = self._zeros(model.num_parameters, np.float64)
        self._row_values = self._zeros(num_chains, np.float64)
        self._spare = self._zeros(self._x.size, self._x.dtype)
        self._numbers: dict[str, Any] = {}
        self._links: tuple[Any, ...] | None = None
        if self.kernel in ("packed", "table"):
            links = find_links(model)
            starts = self._order.places * 16 if self.kernel == "packed" else links.starts[:-1]
            arrays = (
                links.states, links.unary_at, links.indptr, links.states[links.neighbors], split + links.tables_at,
                links.own_steps, links.their_steps, links.strides, starts,
            )  # fmt: skip
            self._links = tuple(self._upload(a.astype(np.int64)) for a in arrays)

    # -- moving -----------------------------------------------------------------------------------------------------

    def set_parameters(self, parameters: FloatArray) -> None:
        """Go on with other parameters; where the kernel has tables of thresholds, these are filled on the device."""
        if self._links is None:
            self.set_model(self.model.with_parameters(parameters))
            return
        kernels = _kernels()
        self._load(parameters)
        table = self._tables["table"]
        start_kernel(kernels.fill_thresholds, self._shape(16 * self._n), self._values, *self._links, table)
        if self.kernel == "packed":
            steps = (128, 1) if self._launch.block_x >= 32 else (1, self._n)
            numbers = tuple(np.uint64(k) for k in (self._n, *steps))
            start_kernel(kernels.fill_masks, self._shape(64 * self._n), table, *numbers, self._tables["masks"])

    def take_chains(self, chosen: IntArray) -> None:
        """Let chain k have the configuration of chain ``chosen[k]``."""
        kernels = _kernels()
        sources = np.arange(_WORD * self._stride if self._packed else self._stride, dtype=np.uint32)
        sources[: len(chosen)] = chosen
        run = kernels.gather_packed if self._packed else kernels.gather_states
        sizes = np.uint64(self._stride), np.uint64(self._n)
        start_kernel(run, self._shape(self._n * self._stride), self._x, self._upload(sources), *sizes, self._spare)
        self._x.copy_to_device(self._spare)

    def save(self) -> Any:
        """A copy of the configurations on the device."""
        saved = self._cuda.device_array(self._x.shape, self._x.dtype)
        saved.copy_to_device(self._x)
        return saved

    def restore(self, saved: Any) -> None:
        """Go back to the configurations of :meth:`save`."""
        self._x.copy_to_device(saved)

    # -- reading ----------------------------------------------------------------------------------------------------

    def make_batches(self, patches: Sequence[Patch]) -> list[Batch]:
        """The lists of terms of patches on the device, in batches whose energies fit into memory."""
        room = max(1, _BATCH_NUMBERS // self.used)
        return [self._make_batch(patches[k : k + room]) for k in range(0, len(patches), room)]

    def energies(self, parameters: FloatArray, batch: Batch) -> FloatArray:
        """``parameters . f(x)`` over the terms of a batch of one patch, (chains,)."""
        self._load(parameters)
        self._add_up(batch, self._row_values)
        return np.asarray(self._row_values.copy_to_host()[: self.used])

    def sums(self, weights: FloatArray, batch: Batch) -> FloatArray:
        """Sums over the chains of ``weight * f(x)``, of the terms in the core of a batch of one patch."""
        self._row_values.copy_to_device(np.ascontiguousarray(weights, dtype=np.float64))
        self._count(batch, self._row_values)
        return self._take_results()

    def products(self, parameters: FloatArray, batches: Sequence[Batch]) -> FloatArray:
        """Sums over the chains of ``f(x)`` times the energy, less its mean, of the patch that f is in the core of."""
        self._load(parameters)
        for batch in batches:
            energies = self._buffer("energies", batch.num_patches * self.used)
            self._add_up(batch, energies)
            shape = min(batch.num_patches, _MOST_BLOCKS), self._shape(self.used)[1]
            rows, chains = np.uint64(batch.num_patches), np.uint64(self.used)
            start_kernel(_kernels().centre_rows, shape, energies, rows, chains)
            self._count(batch, energies)
        return self._take_results()

    def _add_up(self, batch: Batch, out: Any) -> None:
        """Energies (patches, chains) of the terms of a batch for the parameters that were loaded last."""
        kernels, chains = _kernels(), np.uint64(self.used)
        parts = self._buffer("parts", batch.num_pieces * self.used)
        threads = self._shape(self.used)[1]
        shape = (-(-self.used // threads), min(batch.num_pieces, _MOST_BLOCKS)), threads
        run = kernels.energy_kernel(self._packed)
        start_kernel(run, shape, self._x, *batch.terms, self._values, batch.pieces, chains, parts)
        start_kernel(kernels.sum_pieces, self._shape(batch.num_patches * self.used), parts, batch.starts, chains, out)

    def _count(self, batch: Batch, weights: Any) -> None:
        shape = min(batch.num_core, _MOST_BLOCKS), self._shape(self.used)[1]
        run = _kernels().count_kernel(self._packed)
        start_kernel(run, shape, self._x, *batch.core, weights, np.uint64(self.used), self._results)

    # -- arrays -----------------------------------------------------------------------------------------------------

    def _make_batch(self, patches: Sequence[Patch]) -> Batch:
        n = self._n
        lists = [np.concatenate([p.variables, n + p.edges]) for p in patches]
        cores = [np.concatenate([p.core_variables, n + p.core_edges]) for p in patches]
        terms, core = np.concatenate(lists).astype(np.int64), np.concatenate(cores).astype(np.int64)
        size = max(_LEAST_TERMS, len(terms) * self.used // _MOST_THREADS)
        pieces, starts, first = [0], [0], 0
        for part in lists:
            pieces.extend(first + k for k in _ends(len(part), size))
            starts.append(len(pieces) - 1)
            first += len(part)
        sizes = np.diff(self._term_offsets.astype(np.int64))[core].astype(np.uint64)
        owners = np.repeat(np.arange(len(cores)), [len(c) for c in cores])
        return Batch(
            terms=tuple(self._upload(a) for a in self._describe(terms)),
            pieces=self._upload(np.array(pieces, dtype=np.int64)),
            starts=self._upload(np.array(starts, dtype=np.int64)),
            core=tuple(self._upload(a) for a in (*self._describe(core), sizes, owners.astype(np.int64))),
            num_patches=len(patches),
            num_pieces=len(pieces) - 1,
            num_core=len(core),
        )

    def _describe(self, terms: IntArray) -> tuple[NDArray[Any], ...]:
        """Rows, steps and offsets of some terms."""
        return self._term_rows[terms].reshape(-1), self._term_steps[terms], self._term_offsets[terms]

    def _upload(self, values: NDArray[Any]) -> Any:
        return self._cuda.to_device(np.ascontiguousarray(values) if values.size else np.zeros(1, dtype=values.dtype))

    def _load(self, parameters: FloatArray) -> None:
        self._values.copy_to_device(np.ascontiguousarray(parameters, dtype=np.float64))

    def _take_results(self) -> FloatArray:
        return np.asarray(self._results.copy_to_host())

    def _buffer(self, name: str, size: int) -> Any:
        """Room for so many numbers, which is kept: allocating takes longer than many a kernel."""
        if name not in self._numbers or self._numbers[name].size < size:
            self._numbers[name] = self._cuda.device_array(max(1, size), np.float64)
        return self._numbers[name]

    def _shape(self, count: int) -> tuple[int, int]:
        return self._support_shape(count)


def _ends(length: int, size: int) -> Iterator[int]:
    """Where pieces of about equal length, at most ``size``, end."""
    number = max(1, -(-length // size))
    return (length * (k + 1) // number for k in range(number))


def _kernels() -> Any:
    """The kernels of pools, imported when first needed: importing Numba takes half a second."""
    from fastmix.chains.cuda import pool_kernels as cuda_pool_kernels

    return cuda_pool_kernels
