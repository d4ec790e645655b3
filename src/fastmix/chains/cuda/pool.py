"""A pool of chains on an NVIDIA GPU that follows a changing model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix.chains.chain_pool import ChainPool
from fastmix.chains.cuda.device import Launch, cuda_available
from fastmix.chains.cuda.pool_engine import Batch, PoolEngine
from fastmix.chains.patches import Patch, whole_patch
from fastmix.model import MarkovRandomField

__all__ = ["CudaPool"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class CudaPool(ChainPool):
    """What :class:`fastmix.chains.pool.Pool` is, with the configurations on the device.

    Parameters go there, and energies of chains and sums over them come back; the tables of a new model, where the
    kernel has such, are filled on the device. The random numbers are others than on the CPU, those of
    :class:`fastmix.chains.cuda.gibbs.CudaGibbs`, so that results for a seed differ between the two; on one kind of
    device they are the same bits every time.

    Parameters
    ----------
    model : MarkovRandomField
        Gives the graph and the state counts. At least one variable, finite entries only.
    num_chains, seed : int
    launch : Launch, optional
        How sweeps are spread over the device; for tests.

    Attributes
    ----------
    device : str
        Its name.

    Raises
    ------
    UnfitMethodError
        Without a usable device.
    ResourceError
        If the device has too little free memory.

    Notes
    -----
    Memory: three to four times the states (one bit a chain for binary models, else a byte), 8 bytes for every pair of a
    chain and a patch (up to 256 MiB at a time), and up to 400 bytes for every variable and
    edge.
    """

    def __init__(self, model: MarkovRandomField, *, num_chains: int, seed: int, launch: Launch | None = None) -> None:
        super().__init__(model, num_chains=num_chains, seed=seed)
        self._engine = PoolEngine(model, num_chains=num_chains, seed=seed, launch=launch)
        self.device = cuda_available()[1]
        self._whole = self._engine.make_batches([whole_patch(model)])
        self._prepared: tuple[Sequence[Patch], list[Batch]] = [], []

    # -- configurations ---------------------------------------------------------------------------------------------

    def get_states(self) -> IntArray:
        """Current configurations (num_chains, n)."""
        return self._engine.get_states()[: self.num_chains]

    def set_states(self, states: NDArray[Any]) -> None:
        """Go on from these configurations (num_chains, n)."""
        padded = np.zeros((self._engine.num_chains, self.graph.num_variables), dtype=np.int64)
        padded[: self.num_chains] = states
        self._engine.set_states(padded)

    def save(self) -> Any:
        """A copy of the configurations for :meth:`restore`, on the device."""
        return self._engine.save()

    def restore(self, saved: Any) -> None:
        """Go back to the configurations that :meth:`save` returned."""
        self._engine.restore(saved)

    def _take(self, chosen: IntArray) -> None:
        self._engine.take_chains(chosen)

    # -- moving -----------------------------------------------------------------------------------------------------

    def start(self, parameters: FloatArray) -> None:
        """Forget the states and draw every variable of every chain from its unary alone.

        A sweep does that on a model without tables, whatever the states before.
        """
        alone = parameters.copy()
        alone[len(self.graph.log_unary) :] = 0.0
        self.sweep(alone)

    def sweep(self, parameters: FloatArray, num_sweeps: int = 1) -> None:
        """Gibbs sweeps of all chains on the model with these parameters."""
        self._engine.set_parameters(parameters)
        self._engine.advance(num_sweeps, collect=False)

    # -- reading ----------------------------------------------------------------------------------------------------

    def energies(self, parameters: FloatArray, patch: Patch | None = None) -> FloatArray:
        """``parameters . f(x)`` of every chain, where f are the indicators of all states and pairs of states.

        With a patch, only the terms of its variables and edges are added up.
        """
        [batch] = self._whole if patch is None else self._engine.make_batches([patch])
        return self._engine.energies(parameters, batch)

    def _sums(self, weights: FloatArray) -> FloatArray:
        return self._engine.sums(weights, self._whole[0])

    def _products(self, parameters: FloatArray, patches: Sequence[Patch]) -> FloatArray:
        if self._prepared[0] is not patches:  # a descent has the same patches all along
            self._prepared = patches, self._engine.make_batches(patches)
        return self._engine.products(parameters, self._prepared[1])
