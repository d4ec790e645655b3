"""Gibbs sampling of one model on NVIDIA GPUs."""

from __future__ import annotations

from typing import Any, Literal

from fastmix.chains.cuda.chains import CudaChains
from fastmix.chains.cuda.device import choose_cuda_kernel, choose_group_size, cuda_available
from fastmix.chains.engine import Engine
from fastmix.errors import UnfitMethodError
from fastmix.model import MarkovRandomField

__all__ = ["CudaGibbs", "choose_cuda_kernel", "choose_group_size", "cuda_available"]


class CudaGibbs(CudaChains, Engine):
    """Chains of one model on the device, as :func:`fastmix.sample` takes them.

    A random schedule is refused: chains that touch different variables cannot share a word or a table.
    """

    def __init__(
        self,
        model: MarkovRandomField,
        *,
        num_chains: int,
        seed: int,
        schedule: Literal["systematic", "random"] = "systematic",
        **options: Any,
    ) -> None:
        if schedule != "systematic":
            raise UnfitMethodError(f"schedule must be systematic on the GPU, got {schedule!r}; use backend='cpu'")
        super().__init__(model.structure, num_chains=num_chains, seed=seed, forbidden=model.has_forbidden, **options)
        self.model = model
        self.load(model.parameters)

    def advance(self, num_sweeps: int, *, collect: bool) -> None:
        """Run sweeps; with ``collect`` add what every sweep gives to the sums."""
        self.sweep(num_sweeps, collect=collect)
