"""Restricted Boltzmann machines on an NVIDIA GPU: data, chains, weights and gradients stay there."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray
from fastmix.chains.cuda.device import check_memory, is_simulated, require_cuda, start_kernel
from fastmix.chains.generator import make_streams
from fastmix.learning import rbm
from fastmix.learning.cuda.rbm_kernels import steps_kernel
from fastmix.learning.tuning import DEVICE_RBM_PRODUCTS_PER_CALL

__all__ = ["Machine"]


#: Rows and columns of a tile, and terms of its sums that are read at a time.
TILE_SIZES = (16, 64)
#: The same in the simulator, where every thread is one of the host's.
SIMULATED_SIZES = (2, 8)
#: Number of the stream that keys are taken from, which no chain of its own has.
KEY_STREAM = (1 << 40) + 1


class Machine(rbm.Machine):
    """Parameters, running means and chains on the device; the arrays of the host are copies.

    They are up to date after :meth:`fetch`.
    """

    products_per_call = DEVICE_RBM_PRODUCTS_PER_CALL

    def _prepare(self) -> None:
        """Copy everything to the device."""
        self._cuda = require_cuda()
        simulated = is_simulated(self._cuda)
        self._tile, depth = SIMULATED_SIZES if simulated else TILE_SIZES
        self._kernel = steps_kernel(self._tile, depth)
        self._max_blocks = int(simulated)  # found with the first launch on a device
        lanes = self.batch + self.num_chains + 1
        check_memory(
            self._cuda, self.bits.size + 24.0 * self.W.size + 6.0 * lanes * self.W.shape[1] + 12.0 * len(self.bits)
        )
        put = self._cuda.to_device
        self._key = make_streams(self.seed, KEY_STREAM, 1)[:2, 0].copy()
        self._data = put(self.bits.reshape(-1))
        self._row_weights = put(self.row_weights.astype(np.float32))
        mask = np.broadcast_to(self.mask, self.W.shape)
        self._fixed = tuple(put(part.reshape(-1)) for part in (self.mu, mask, *self.scales))
        self._states = (
            put(np.zeros(2 * self.num_chains * self.visible, dtype=np.uint8)),
            put(np.zeros(self.num_chains * self.hidden, dtype=np.uint8)),
            put(np.zeros(lanes * self.hidden, dtype=np.float32)),
        )
        self._push()

    def _push(self) -> None:
        """Copy parameters and running means to the device; W and beta to both of their places."""
        put = self._cuda.to_device
        self._parameters = (put(np.tile(self.W.reshape(-1), 2)), put(np.tile(self.beta, 2)), put(self.gamma))
        self._means = tuple(put(part.reshape(-1)) for part in self.means)
        self._squares = tuple(put(part.reshape(-1)) for part in self.squares)
        self._sums = tuple(put(part.reshape(-1)) for part in self.sums)

    def start(self, visible: NDArray[Any]) -> None:
        """Let the chains go on from visible states (chains, visible)."""
        self._states[0].copy_to_device(np.tile(np.ascontiguousarray(visible, dtype=np.uint8).reshape(-1), 2))

    def states(self) -> NDArray[Any]:
        """Configurations of the chains, (chains, variables)."""
        bits = self._states[0].copy_to_host().reshape(2, self.num_chains, self.visible)[self.steps % 2]
        return np.hstack([bits, self._states[1].copy_to_host().reshape(self.num_chains, self.hidden)])

    def _more(self) -> dict[str, NDArray[Any]]:
        """What a run carries on beside parameters and chains."""
        return {"streams": self._key}

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Go on from what :meth:`pack` gave."""
        super().restore(arrays)
        self._push()

    def clear(self) -> None:
        """Begin the mean of the gradient anew."""
        super().clear()
        for total, part in zip(self._sums, self.sums, strict=True):
            total.copy_to_device(part.reshape(-1))

    def advance(self, rows: NDArray[np.int64], sizes: FloatArray) -> None:
        """Make steps of these sizes along gradients over so many batches of rows, and of the chains: one sweep each."""
        tile = self._tile
        numbers = (
            self.visible,
            self.hidden,
            self.W.shape[1],
            self.batch,
            self.num_chains,
            len(rows),
            len(sizes),
            self.steps,
        )
        arguments = (
            self._data,
            self._cuda.to_device(rows.astype(np.int64)),
            self._row_weights,
            self._states,
            self._parameters,
            self._means,
            self._squares,
            self._sums,
            self._fixed,
            self._cuda.to_device(self.constants(sizes).reshape(-1)),
            tuple(np.int64(number) for number in numbers),
            *self._key,
        )
        if self._max_blocks == 0:
            self._kernel = self._kernel.specialize(*arguments)
            compiled = next(iter(self._kernel.overloads.values()))
            self._max_blocks = compiled.max_cooperative_grid_blocks((tile, tile))
        tiles_of_chains, tiles_of_visible, tiles_of_hidden = (
            -(-count // tile) for count in (self.num_chains, self.visible, self.hidden)
        )
        blocks = min((tiles_of_chains + tiles_of_hidden) * tiles_of_visible, self._max_blocks)
        start_kernel(self._kernel, (blocks, (tile, tile)), *arguments)
        self._cuda.synchronize()
        self.steps += len(sizes)
        self.collected += len(sizes)

    def fetch(self) -> None:
        """Have parameters, running means and sums in the arrays of the host."""
        here = (*self.means, *self.squares, *self.sums, self.gamma)
        there = (*self._means, *self._squares, *self._sums, self._parameters[2])
        for part, held in zip(here, there, strict=True):
            part[...] = held.copy_to_host().reshape(part.shape)
        for part, held in ((self.W, self._parameters[0]), (self.beta, self._parameters[1])):
            part[...] = held.copy_to_host().reshape(2, *part.shape)[self.steps % 2]
