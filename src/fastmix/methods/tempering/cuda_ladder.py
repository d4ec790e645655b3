"""Ladders of replicas on an NVIDIA GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix.chains.cuda.chains import CudaChains
from fastmix.chains.cuda.device import Launch, choose_cuda_kernel, require_cuda
from fastmix.methods.tempering.ladder import Counts, Ladder, derive_seed
from fastmix.methods.tempering.path import TemperingPath

__all__ = ["CudaLadder", "ladders_together"]

FloatArray = NDArray[np.float64]


def ladders_together(path: TemperingPath) -> int:
    """Ladders that share words on the device, whose number must be a multiple of this.

    Raises
    ------
    UnfitMethodError
        If no kernel can hold the tables of several models of this path.
    """
    return 32 if choose_cuda_kernel(path.model.structure, 1 << 10, num_sets=2) == "packed" else 4


class CudaLadder(Ladder):
    """The same rounds as :class:`fastmix.methods.tempering.ladder.Ladder`, on the device, with other random numbers.

    They are those of :class:`fastmix.chains.cuda.chains.CudaChains`, with a set of parameters for every rung; only
    counts come back. There are no cluster moves. ``launch`` is for tests.
    """

    device = "cuda"

    def __init__(self, path: TemperingPath, *, seed: int, launch: Launch | None = None) -> None:
        super().__init__(path, seed=seed, num_threads=1)
        require_cuda()
        self._launch, self._together = launch, ladders_together(path)
        unary = np.concatenate([path.model.log_unary, np.zeros(len(path.model.log_pairwise))])
        tables = [np.concatenate([np.zeros(len(path.model.log_unary)), table]) for table in path.tables]
        self._thetas = np.array([unary, *tables])
        if path.forbidden is not None:
            self._thetas[:, len(path.model.log_unary) :][:, path.forbidden] = -np.inf
        self._chains: CudaChains | None = None

    @property
    def chains(self) -> CudaChains:
        """The replicas, once rungs have been set."""
        assert self._chains is not None, "no rungs have been set"
        return self._chains

    def set_rungs(self, positions: ArrayLike, states: NDArray[np.integer[Any]]) -> None:
        """New rungs: positions (K,) from 0 to 1 and configurations (K, C, n). Counts start anew."""
        self.positions = np.asarray(positions, dtype=np.float64)
        num_rungs, self.num_ladders, n = states.shape
        self._phase += 1
        self._chains = CudaChains(
            self.path.model.structure, num_chains=self.num_ladders, num_sets=num_rungs,
            seed=derive_seed(self.seed, self._phase), group_size=self._together, launch=self._launch,
        )  # fmt: skip
        self._chains.load(self._thetas, self.path.coefficients(self.positions))
        self._chains.set_states(states.reshape(-1, n))
        self._shifts = np.zeros(num_rungs - 1)

    @property
    def shifts(self) -> FloatArray:
        """Guesses of ``log Z_{k+1} / Z_k`` for the acceptance ratio estimator (K - 1,)."""
        return self._shifts

    @shifts.setter
    def shifts(self, values: FloatArray) -> None:
        self._shifts = np.asarray(values, dtype=np.float64)
        self.chains.set_shifts(self._shifts)

    def get_states(self) -> NDArray[np.uint8]:
        """Current configurations (K, num_ladders, n)."""
        return self.chains.get_states().astype(np.uint8).reshape(self.num_rungs, self.num_ladders, -1)

    def get_top_states(self) -> NDArray[np.uint8]:
        """Current configurations (num_ladders, n) at the highest rung, those of the target."""
        return self.chains.get_top_states().astype(np.uint8)

    def advance(self, num_rounds: int, *, collect: bool) -> None:
        """Run rounds; ``collect`` adds up what the sweeps give."""
        self.chains.exchange_rounds(num_rounds, collect=collect)

    def counts(self) -> Counts:
        """What exchanges have added up since the rungs were set, or since :meth:`clear`."""
        found = self.chains.exchanges()
        return Counts(found.sums, found.trips)

    def clear(self) -> None:
        """Forget counts and sums."""
        self.chains.clear()

    def limit_pairs(self) -> int:
        """0: no rung exchanges clusters between ladders on a GPU."""
        return 0

    def take_sums(self) -> FloatArray:
        """Sums over the states at the highest rung since the last call, (entries of log_unary, num_ladders).

        Ladders that share words are added up together: each gets the mean of them.
        """
        return np.repeat(self.chains.take_sums() / self._together, self._together, axis=1)
