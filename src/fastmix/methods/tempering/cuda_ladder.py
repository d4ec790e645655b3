"""Ladders of replicas on an NVIDIA GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix.chains.base import Exchanges as Counts
from fastmix.chains.cuda.device import CudaKernel, Launch, require_cuda, start_kernel
from fastmix.chains.cuda.gibbs import CudaGibbs, choose_cuda_kernel
from fastmix.chains.generator import make_streams
from fastmix.errors import UnfitMethodError
from fastmix.methods.tempering.ladder import Ladder, derive_seed
from fastmix.methods.tempering.path import TemperingPath

__all__ = ["CudaLadder", "ladders_together"]

FloatArray = NDArray[np.float64]

_KEY_STREAM = 1 << 42  # the stream whose first words key the exchanges, another than that of the sweeps
_MOST_ENTRIES = 4e6  # of the tables of one rung: with a hundred rungs they take 1.6 GB
_ENERGY_BLOCK = 32, 8  # threads of a block over chains, and over parts of the sums of each
_THREADS = 128  # of a block otherwise
_MOST_BLOCKS = 4096
# Threads of a block of the sweeps, over words of chains and over sites: fixed, because every other shape would be
# compiled anew when the number of rungs changes.
_BLOCK = {"packed": (4, 128), "table": (32, 16)}


def ladders_together(path: TemperingPath) -> int:
    """Ladders that share words on the device, whose number must be a multiple of this.

    Raises
    ------
    UnfitMethodError
        If no kernel can hold the tables of several models of this path.
    """
    return 32 if _kernel(path) == "packed" else 4


def _kernel(path: TemperingPath) -> CudaKernel:
    if choose_cuda_kernel(path.model, 1 << 10) == "packed":
        return "packed"
    entries = path.model.structure.pattern_entries
    if entries > _MOST_ENTRIES:
        raise UnfitMethodError(
            "backend must be cpu for tempering this model, got cuda: the GPU needs tables of all patterns of "
            f"neighbours, which would have {entries:.2g} entries for every rung, more than {_MOST_ENTRIES:.2g}"
        )
    return "table"


class CudaLadder(Ladder):
    """The same rounds as :class:`fastmix.methods.tempering.ladder.Ladder`, on the device, with other random numbers.

    Sweeps are those of :class:`fastmix.chains.cuda.gibbs.CudaGibbs`, with a model for every rung. Configurations,
    energies, decisions and their counts stay on the device. There are no cluster moves.

    Parameters
    ----------
    path : TemperingPath
    seed : int
    launch : Launch, optional
        Of the sweeps.
    energy_block : (int, int)
        Threads that add up energies, over chains and over parts of the sums.
    threads : int
        Of other kernels, a multiple of 32. All three are for tests: the simulator is slow with many threads.

    Raises
    ------
    UnfitMethodError
        Without a usable device, or if no kernel can hold the tables of all rungs.
    """

    device = "cuda"

    def __init__(
        self,
        path: TemperingPath,
        *,
        seed: int,
        launch: Launch | None = None,
        energy_block: tuple[int, int] = _ENERGY_BLOCK,
        threads: int = _THREADS,
    ) -> None:
        super().__init__(path, seed=seed, num_threads=1)
        self._launch, self._energy_block, self._threads = launch, energy_block, threads
        self._cuda = require_cuda()
        self._kernel = _kernel(path)
        self._together = ladders_together(path)
        model = path.model
        tables = np.concatenate(path.tables) if path.tables else np.zeros(0)
        columns = model.num_states[model.edges[:, 1]] if model.num_edges else np.zeros(0, dtype=np.int64)
        unary, pairwise = model.unary_offsets[:-1].copy(), model.pairwise_offsets[:-1].copy()
        self._terms = unary, model.log_unary, model.edges, pairwise, columns, tables
        self._on_device: tuple[Any, ...] = ()
        self._engine: CudaGibbs | None = None

    @property
    def _gibbs(self) -> CudaGibbs:
        assert self._engine is not None, "no rungs have been set"
        return self._engine

    def set_rungs(self, positions: ArrayLike, states: NDArray[np.integer[Any]]) -> None:
        """New rungs: positions (K,) from 0 to 1 and configurations (K, C, n). Counts start anew."""
        self.positions = np.asarray(positions, dtype=np.float64)
        num_rungs, num_ladders, n = states.shape
        if num_ladders % self._together:
            raise ValueError(f"the number of ladders must be a multiple of {self._together}, got {num_ladders}")
        self.num_ladders = num_ladders
        self._phase += 1
        seed = derive_seed(self.seed, self._phase)
        models = [self.path.model_at(float(s)) for s in self.positions]
        largest = int(np.diff(self.path.model.structure.visit_order[1]).max(initial=1))
        wide, high = _BLOCK[self._kernel]
        high = min(high, 1 << int(np.ceil(np.log2(max(1, largest)))))
        self._engine = CudaGibbs(
            models[0], num_chains=num_rungs * num_ladders, seed=seed, group_size=self._together,
            kernel=self._kernel, launch=self._launch or Launch(1, wide, high),
        )  # fmt: skip
        self._engine.set_models(models, np.repeat(np.arange(num_rungs), num_ladders))
        self._engine.set_states(states.reshape(num_rungs * num_ladders, n).astype(np.int64))
        key = make_streams(seed, _KEY_STREAM, 1)[:, 0]
        self._key = key[0], key[1]
        self._round = 0
        send = self._cuda.to_device
        gaps = np.diff(self.path.coefficients(self.positions), axis=0)
        words = num_ladders // self._together
        self._device_gaps = send(np.ascontiguousarray(gaps).reshape(-1))
        self._energies = send(np.zeros(gaps.shape[1] * num_rungs * num_ladders))
        self._masks = send(np.zeros(num_rungs * words, dtype=np.uint32))
        self._sums = send(np.zeros(6 * (num_rungs - 1) * num_ladders))
        self._carrier = send(np.repeat(np.arange(num_rungs, dtype=np.int64), num_ladders))
        self._heading = send(np.zeros(num_rungs * num_ladders, dtype=np.uint8))
        self._trips = send(np.zeros(num_ladders, dtype=np.int64))
        self.shifts = np.zeros(num_rungs - 1)
        places = self._engine.places
        unary_starts, unary, edges, pair_starts, columns, tables = self._terms
        arrays = places, unary_starts, unary, places[edges].reshape(-1), pair_starts, columns, tables
        self._on_device = tuple(send(a if a.size else np.zeros(1, dtype=a.dtype)) for a in arrays)
        if not pair_starts.size:  # an array of one element would be taken for an edge
            self._on_device = (*self._on_device[:4], self._on_device[4][:0], *self._on_device[5:])

    @property
    def shifts(self) -> FloatArray:
        """Guesses of ``log Z_{k+1} / Z_k`` for the acceptance ratio estimator (K - 1,)."""
        return self._shifts

    @shifts.setter
    def shifts(self, values: FloatArray) -> None:
        self._shifts = np.asarray(values, dtype=np.float64)
        self._device_shifts = self._cuda.to_device(self._shifts)

    def get_states(self) -> NDArray[np.uint8]:
        """Current configurations (K, num_ladders, n)."""
        return self._gibbs.draw_states().astype(np.uint8).reshape(self.num_rungs, self.num_ladders, -1)

    def get_top_states(self) -> NDArray[np.uint8]:
        """Current configurations (num_ladders, n) at the highest rung, those of the target."""
        return self.get_states()[-1]

    def advance(self, num_rounds: int, *, collect: bool) -> None:
        """Run rounds; ``collect`` adds up what the sweeps give."""
        from fastmix.methods.tempering import cuda_ladder_kernels as kernels

        device: Any = kernels
        engine = self._gibbs
        x, row, width = engine.words()
        per_word, bits = np.uint32(32 // width), np.uint32(width)
        num_chains, count = self.num_rungs * self.num_ladders, len(self.path.tables) + 1
        words, n = self.num_ladders // self._together, self.path.model.num_variables
        add = device.energy_kernel(count, *self._energy_block)
        add_shape = -(-num_chains // self._energy_block[0]), self._energy_block
        threads = self._threads
        decide_shape = -(-self.num_ladders // threads), threads
        size = np.uint64(len(self.path.tables[0]))
        for r in range(self._round, self._round + num_rounds):
            engine.advance(1, collect=collect, wait=False)
            start_kernel(
                add, add_shape, x, np.uint64(row), per_word, bits, *self._on_device, size, np.uint32(num_chains),
                self._energies,
            )  # fmt: skip
            start_kernel(
                device.decide, decide_shape, self._energies, self._device_gaps, self._device_shifts, np.uint32(count),
                np.uint32(self.num_rungs), np.uint32(self.num_ladders), np.uint64(r), *self._key, per_word, bits,
                self._masks, self._sums, self._carrier, self._heading, self._trips,
            )  # fmt: skip
            pairs = (self.num_rungs - r % 2) // 2
            blocks = min(_MOST_BLOCKS, max(1, -(-pairs * words * n // threads)))
            start_kernel(
                device.exchange_words, (blocks, threads), x, np.uint64(row), self._masks, np.uint32(self.num_rungs),
                np.uint32(words), np.uint32(r % 2), np.uint32(n),
            )  # fmt: skip
        self._cuda.synchronize()
        self._round += num_rounds

    # -- what was counted -------------------------------------------------------------------------------------------

    def counts(self) -> Counts:
        """What exchanges have added up since the rungs were set, or since :meth:`clear`."""
        shape = 6, self.num_rungs - 1, self.num_ladders
        return Counts(self._sums.copy_to_host().reshape(shape), self._trips.copy_to_host())

    def clear(self) -> None:
        """Forget counts and sums."""
        self._sums.copy_to_device(np.zeros(self._sums.size))
        self._trips.copy_to_device(np.zeros(self._trips.size, dtype=np.int64))
        self._gibbs.take_sums()

    def limit_pairs(self) -> int:
        """0: no rung exchanges clusters between ladders on a GPU."""
        return 0

    def take_sums(self) -> FloatArray:
        """Sums over the states at the highest rung since the last call, (entries of log_unary, num_ladders).

        Ladders that share words are added up together: each gets the mean of them.
        """
        words = self.num_ladders // self._together
        means = self._gibbs.take_sums()[:, -words:] / self._together
        return np.repeat(means, self._together, axis=1)
