"""A pool of chains on an NVIDIA GPU that follows a changing model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix.chains.chain_pool import ChainPool
from fastmix.chains.cuda.chains import CudaChains
from fastmix.chains.cuda.device import Launch
from fastmix.chains.patches import Patch
from fastmix.model import MarkovRandomField

__all__ = ["CudaPool"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class CudaPool(ChainPool):
    """What :class:`fastmix.chains.pool.Pool` is, with the configurations on the device."""

    def __init__(self, model: MarkovRandomField, *, num_chains: int, seed: int, launch: Launch | None = None) -> None:
        super().__init__(model, num_chains=num_chains, seed=seed)
        self.chains = CudaChains(model.structure, num_chains=num_chains, seed=seed, estimator=None, launch=launch)
        self.device = self.chains.device

    def get_states(self) -> IntArray:
        """Current configurations (num_chains, n)."""
        return self.chains.get_states()

    def set_states(self, states: NDArray[Any]) -> None:
        """Go on from these configurations (num_chains, n)."""
        self.chains.set_states(states)

    def save(self) -> Any:
        """A copy of the configurations for :meth:`restore`, on the device."""
        return self.chains.save()

    def restore(self, saved: Any) -> None:
        """Go back to the configurations that :meth:`save` returned."""
        self.chains.restore(saved)

    def _take(self, chosen: IntArray) -> None:
        self.chains.take(chosen)

    def start(self, parameters: FloatArray) -> None:
        """Forget the states and draw every variable of every chain from its unary alone.

        A sweep does that on a model without tables, whatever the states before.
        """
        alone = parameters.copy()
        alone[len(self.graph.log_unary) :] = 0.0
        self.sweep(alone)

    def sweep(self, parameters: FloatArray, num_sweeps: int = 1) -> None:
        """Gibbs sweeps of all chains on the model with these parameters."""
        self.chains.load(parameters.copy())  # another array every time: callers change theirs
        self.chains.sweep(num_sweeps)

    def energies(self, parameters: FloatArray, patch: Patch | None = None) -> FloatArray:
        """``parameters . f(x)`` of every chain, where f are the indicators of all states and pairs of states."""
        assert patch is None
        return self.chains.energies(parameters)[0]

    def _sums(self, weights: FloatArray) -> FloatArray:
        return self.chains.moments(weights) * self.num_chains

    def _products(self, parameters: FloatArray, patches: Sequence[Patch]) -> FloatArray:
        return self.chains.covariances(parameters, patches) * (self.num_chains - 1)
