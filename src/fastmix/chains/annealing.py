"""Chains that move along a path of models: annealed importance sampling, and population annealing."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fastmix._arrays import FloatArray, IntArray
from fastmix._checks import check_backend
from fastmix.chains.base import Chains
from fastmix.chains.cpu import CpuChains
from fastmix.chains.place import GPU_REFUSALS, place_after_refusal, place_on_gpu
from fastmix.model import MarkovRandomField
from fastmix.model.shared import SharedTables
from fastmix.model.structure import Structure

__all__ = ["Annealing", "make_pool", "systematic"]


class Annealing:
    """Chains that go from one mixture ``coefficients @ thetas`` of parameters to the next, with their weights.

    With shared ``tables`` the thetas are unaries and weights of their patterns (:meth:`Chains.load_shared`).

    Without resampling the mean of ``exp(log_weights)`` (C,) is an unbiased estimate of the ratio of the normalizers at
    the present and at the first model, if the chains are exact draws from the first: annealed importance sampling
    (Neal 2001, Statistics and Computing 11). With resampling (population annealing, Hukushima and Iba 2003, AIP
    Conference Proceedings 690) chains are replaced by copies of themselves in proportion to their weights at every
    move, so that those in unlikely valleys die out, and ``log_ratio`` (populations,) has the estimate: the logarithms
    of the products of the mean weights before each resampling (``log_variance`` are their variances, if chains were
    independent then). Chains fall into ``populations`` groups, one after another, that are resampled on their own.
    """

    def __init__(
        self,
        chains: Chains,
        thetas: FloatArray,
        coefficients: ArrayLike,
        *,
        populations: int = 1,
        tables: SharedTables | None = None,
    ) -> None:
        self.chains = chains
        self.thetas = thetas
        self.tables = tables
        self.here = np.asarray(coefficients, dtype=np.float64)
        self.log_weights = np.zeros(chains.num_chains)
        self.log_ratio = np.zeros(populations)
        self.log_variance = np.zeros(populations)
        chains.load_sets(thetas, tables, self.here[None])

    def move(self, there: ArrayLike, num_sweeps: int = 1, *, rng: np.random.Generator | None = None) -> None:
        """Move the chains to other coefficients and sweep there; with a generator, resample them first."""
        target = np.asarray(there, dtype=np.float64)
        self.log_weights += (target - self.here) @ self.chains.energies()
        if rng is not None:
            log_weights = self.log_weights.reshape(len(self.log_ratio), -1)
            chosen, log_means = systematic(log_weights, rng)
            self.log_variance += np.exp(log_weights - log_means[:, None]).var(axis=1) / log_weights.shape[1]
            self.chains.take(chosen.reshape(-1))
            self.log_ratio += log_means
            self.log_weights[...] = 0.0
        self.here = target
        self.chains.load_sets(self.thetas, self.tables, target[None])
        for _ in range(num_sweeps):
            self.chains.clock.check()
            self.chains.sweep(1)


def make_pool(
    model: MarkovRandomField,
    backend: str,
    *,
    num_chains: int,
    seed: int,
    num_sets: int = 1,
    num_threads: int | None = None,
    structure: Structure | None = None,
) -> tuple[Chains, str]:
    """Chains on the graph of a model whose parameters will change, and a text that says where they run.

    A ``structure`` that differs in the order of its sweeps may stand in for that of the model.
    """
    if structure is None:
        structure = model.structure

    check_backend(backend)
    place = "cpu"
    if backend != "cpu" and model.num_variables:
        from fastmix.chains.cuda.chains import CudaChains

        try:
            pool = CudaChains(structure, num_chains=num_chains, num_sets=num_sets, seed=seed, estimator=None)
        except GPU_REFUSALS as refusal:
            place = place_after_refusal(backend, refusal)
        else:
            return pool, place_on_gpu(pool.device)
    chains = CpuChains(
        structure, num_chains=num_chains, num_sets=num_sets, seed=seed, num_threads=num_threads, steady=False
    )
    return chains, place


def systematic(log_weights: FloatArray, rng: np.random.Generator) -> tuple[IntArray, FloatArray]:
    """The chains that survive systematic resampling (P, N), and the logarithms of the mean weights (P,).

    Every population of N chains keeps its size and takes one uniform number: a chain with the share w of the weights is
    taken floor(w N) or ceil(w N) times. Chains are numbered through all populations.

    Examples
    --------
    >>> chosen, log_means = systematic(np.log([[1.0, 3.0, 4.0, 8.0]]), np.random.default_rng(0))
    >>> chosen.tolist(), float(log_means[0].round(6))
    ([[1, 2, 3, 3]], 1.386294)
    """
    populations, count = log_weights.shape
    top = log_weights.max(axis=1, keepdims=True)
    weights = np.exp(log_weights - top)
    total = weights.sum(axis=1, keepdims=True)
    chosen = np.empty((populations, count), dtype=np.int64)
    for p, cumulative in enumerate(np.cumsum(weights / total, axis=1)):
        places = (rng.random() + np.arange(count)) / count
        chosen[p] = p * count + np.minimum(np.searchsorted(cumulative, places, side="right"), count - 1)
    return chosen, top[:, 0] + np.log(total[:, 0] / count)
