"""Ladders of replicas on an NVIDIA GPU."""

from __future__ import annotations

from fastmix.chains.base import Chains
from fastmix.chains.cuda.chains import CudaChains
from fastmix.chains.cuda.device import Launch, choose_cuda_kernel, require_cuda
from fastmix.methods.tempering.ladder import Ladder
from fastmix.methods.tempering.path import TemperingPath

__all__ = ["CudaLadder", "ladders_together"]


def ladders_together(path: TemperingPath) -> int:
    """Ladders that share words on the device, whose number must be a multiple of this."""
    kernel = choose_cuda_kernel(path.model.structure, 1 << 10, num_sets=2, forbidden=path.forbidden is not None)
    return 32 if kernel.startswith("packed") else 4


class CudaLadder(Ladder):
    """The same rounds on the device, with other random numbers, and without cluster moves. ``launch`` is for tests."""

    device = "cuda"

    def __init__(self, path: TemperingPath, *, seed: int, launch: Launch | None = None) -> None:
        super().__init__(path, seed=seed, num_threads=1)
        require_cuda()
        self._launch, self._together = launch, ladders_together(path)

    def _make_chains(self, num_rungs: int, num_ladders: int, seed: int) -> Chains:
        return CudaChains(
            self.path.model.structure, num_chains=num_ladders, num_sets=num_rungs, seed=seed,
            group_size=self._together, forbidden=self.path.forbidden is not None, launch=self._launch,
        )  # fmt: skip
