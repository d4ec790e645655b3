"""Chains of a sampler: made on the CPU or on a GPU, and shared among the workers of a pool."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from fastmix._context import Context
from fastmix.chains.base import Chains
from fastmix.chains.cpu import CpuChains
from fastmix.chains.host import HostChains
from fastmix.chains.place import GPU_REFUSALS, place_after_refusal, place_on_gpu
from fastmix.errors import UnfitMethodError
from fastmix.model import MarkovRandomField
from fastmix.sampling.tuning import SHARED_CHAINS

__all__ = ["ChainMaker", "cpu_chains"]


@dataclass(frozen=True)
class ChainMaker:
    """Makes the chains of a run, which may need several kinds of them one after another.

    Attributes
    ----------
    model : MarkovRandomField
    num_chains : int
    moves_clusters : bool
        Whether sweeps are those of Swendsen-Wang, which run on the CPU alone.
    estimator : {"rao-blackwell", "counts"}
        What the sums of single-variable updates add up.
    context : Context
        Has the number of threads, and the pool of workers that chains are shared among.
    """

    model: MarkovRandomField
    num_chains: int
    moves_clusters: bool
    estimator: Literal["rao-blackwell", "counts"]
    context: Context

    def make(self, seed: int, *, backend: str, schedule: str) -> tuple[Chains, str]:
        """Chains whose updates are in the order of a schedule, and what they run on in words."""
        place = "cpu"
        if backend != "cpu" and not self.moves_clusters:
            try:
                on_gpu = self._cuda_chains(seed, schedule)
            except GPU_REFUSALS as refusal:
                place = place_after_refusal(backend, refusal)
            else:
                return on_gpu, place_on_gpu(on_gpu.device)
        options: dict[str, Any] = {"estimator": self.estimator, "schedule": schedule}
        chains = cpu_chains(self.model, self.moves_clusters, self.num_chains, seed, self.context.num_threads, **options)
        if self.context.pool is not None and isinstance(chains, HostChains):
            self._share(chains, options)
        return chains, place

    def _share(self, chains: HostChains, options: dict[str, Any]) -> None:
        """Let the workers of the pool make the sweeps of chains on the CPU."""
        from fastmix.chains.sharing import Sharing

        assert self.context.pool is not None
        kernel = chains.kernel if isinstance(chains, CpuChains) else None
        make_some = partial(cpu_chains, self.model, self.moves_clusters, kernel=kernel, **options)
        least = SHARED_CHAINS if kernel in ("table", "field", "layers") else 1
        chains.share(Sharing(self.context.pool, make_some, self.num_chains, least=least, clock=self.context.clock))

    def _cuda_chains(self, seed: int, schedule: str) -> Chains:
        """Chains on a GPU; an :class:`UnfitMethodError` for an order of updates that it does not have."""
        from fastmix.chains.cuda.chains import CudaChains
        from fastmix.chains.cuda.device import choose_group_size

        if schedule != "systematic":
            raise UnfitMethodError(
                "schedule must be systematic on the GPU, which makes no random updates; use backend='cpu'"
            )
        model = self.model
        group_size = choose_group_size(model.structure, self.num_chains, forbidden=model.has_forbidden)
        chains = CudaChains(
            model.structure,
            num_chains=self.num_chains,
            seed=seed,
            estimator=self.estimator,
            group_size=group_size,
            forbidden=model.has_forbidden,
        )
        chains.load(model.parameters)
        return chains


def cpu_chains(
    model: MarkovRandomField,
    moves_clusters: bool,
    num_chains: int,
    seed: int = 0,
    num_threads: int = 1,
    **options: Any,
) -> Chains:
    """Chains of single-variable updates, or of Swendsen-Wang sweeps; workers call it for some of the chains of a run.

    The options are those of :class:`fastmix.chains.cpu.CpuChains`; Swendsen-Wang sweeps have none.
    """
    if moves_clusters:
        from fastmix.sampling.clusters import ClusterChains

        return ClusterChains(model, num_chains=num_chains, seed=seed, num_threads=num_threads)
    chains = CpuChains(
        model.structure,
        num_chains=num_chains,
        seed=seed,
        num_threads=num_threads,
        forbidden=model.has_forbidden,
        **options,
    )
    chains.load_model(model)
    return chains
