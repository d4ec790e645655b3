"""A pool of chains that follows a changing model: sweeps, energies, moments and estimates of log Z."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fastmix.construction import offsets_of
from fastmix.model import PairwiseMRF
from fastmix.projection.patches import Patch, whole_patch
from fastmix.sampling.gibbs import Gibbs
from fastmix.sampling.pattern_tables import pattern_entries, visit_order

__all__ = ["Pool"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_TABLE_ENTRIES = 1 << 22  # thresholds that are filled anew for every step; beyond, the sampling engine takes over
_BLOCK_NUMBERS = 1 << 22  # random numbers drawn at once: 16 MiB


class Pool:
    """Chains side by side on models that share a graph; the model can change between sweeps.

    Parameters
    ----------
    model : PairwiseMRF
        Gives the graph and the state counts. Finite entries only.
    num_chains, seed : int

    Notes
    -----
    A sweep visits the variables colour by colour, as :func:`fastmix.sample` does. On a 16x16 grid 500 chains take about
    0.4 ms a sweep, of which 0.1 ms are the conditional distributions of the new model. Where those would not fit into
    tables (variables with very many neighbours), a :class:`fastmix.sampling.gibbs.Gibbs` engine is set up for every
    sweep.

    Examples
    --------
    >>> model = PairwiseMRF.ising([(0, 1)], coupling=0.5, field=[0.3, 0.0])
    >>> pool = Pool(model, num_chains=1000, seed=0)
    >>> pool.start(model.parameters)
    >>> pool.sweep(model.parameters, 20)
    >>> bool(abs(pool.moments()[1] - 0.632) < 0.05)
    True
    """

    def __init__(self, model: PairwiseMRF, *, num_chains: int, seed: int) -> None:
        self.graph = model
        self.num_chains = num_chains
        self._whole = whole_patch(model)
        self._numbers = np.random.SFC64([seed, 0])
        self._rng = np.random.default_rng([seed, 1])
        most = int(model.num_states.max(initial=1))
        self.x = np.zeros((model.num_variables, num_chains), dtype=np.uint8 if most <= 256 else np.uint16)
        self.order, _ = visit_order(model)
        self._tabulated = pattern_entries(model) <= _TABLE_ENTRIES
        self._seed = seed
        self._streams: NDArray[np.uint64] | None = None
        if not self._tabulated:
            return
        adjacency, states = model.adjacency, model.num_states
        owner = np.repeat(np.arange(model.num_variables), adjacency.degree)
        first, theirs = owner < adjacency.neighbors, states[adjacency.neighbors]
        self._links = (
            states, adjacency.indptr, adjacency.neighbors, model.pairwise_offsets[adjacency.edge_ids],
            np.where(first, theirs, 1), np.where(first, 1, states[owner]), model.unary_offsets,
        )  # fmt: skip
        sizes, self._strides = np.zeros(model.num_variables, dtype=np.int64), np.ones(len(theirs), dtype=np.int64)
        indptr, counts = adjacency.indptr.tolist(), theirs.tolist()
        for i in range(model.num_variables):
            stride = 1
            for k in range(indptr[i + 1] - 1, indptr[i] - 1, -1):
                self._strides[k] = stride
                stride *= counts[k]
            sizes[i] = stride * (int(states[i]) - 1)
        self._starts = offsets_of(sizes)
        self._table = np.empty(int(self._starts[-1]) + 1, dtype=np.uint32)

    # -- moving -----------------------------------------------------------------------------------------------------

    def start(self, parameters: FloatArray) -> None:
        """Forget the states and draw every variable of every chain from its unary alone."""
        offsets = self.graph.unary_offsets.tolist()
        for i in range(self.graph.num_variables):
            unary = parameters[offsets[i] : offsets[i + 1]]
            cumulative = np.cumsum(np.exp(unary - unary.max()))
            draws = self._rng.random(self.num_chains) * cumulative[-1]
            self.x[i] = np.minimum(np.searchsorted(cumulative, draws, side="right"), len(unary) - 1)

    def sweep(self, parameters: FloatArray, num_sweeps: int = 1) -> None:
        """Gibbs sweeps of all chains on the model with these parameters."""
        if not self._tabulated:
            self._sweep_engine(parameters, num_sweeps)
            return
        from fastmix.projection import pool_kernels as kernels

        split = len(self.graph.log_unary)
        kernels.fill_thresholds(*self._links, parameters[:split], parameters[split:], self._starts, self._table)
        states, indptr, neighbors = self._links[:3]
        block = max(1, _BLOCK_NUMBERS // max(1, self.num_chains))
        for _ in range(num_sweeps):
            for first in range(0, len(self.order), block):
                order = self.order[first : first + block]
                kernels.sweep(
                    self.x, order, states, indptr, neighbors, self._strides, self._starts, self._table,
                    self._draw_numbers(len(order)),
                )  # fmt: skip

    def _draw_numbers(self, rows: int) -> NDArray[np.uint32]:
        count = rows * self.num_chains
        raw = self._numbers.random_raw((count + 1) // 2)
        return np.asarray(raw).view(np.uint32)[:count].reshape(rows, self.num_chains)

    def _sweep_engine(self, parameters: FloatArray, num_sweeps: int) -> None:
        engine = Gibbs(
            self.graph.replace(parameters=parameters), num_chains=self.num_chains, seed=self._seed, num_threads=1
        )
        engine.set_states(self.x.T.astype(np.int64))
        if self._streams is not None:
            engine.set_random_state(self._streams)
        engine.advance(num_sweeps, collect=False)
        self.x[...] = engine.get_states().T
        self._streams = engine.get_random_state()

    def _resample(self, log_weights: FloatArray) -> float:
        """Replace the chains by copies of themselves in proportion to weights; the log of the mean weight.

        Systematic resampling: the number of copies is the expected number, rounded up or down.
        """
        top = float(log_weights.max())
        weights = np.exp(log_weights - top)
        total = float(weights.sum())
        cumulative = np.cumsum(weights / total)
        places = (self._rng.random() + np.arange(self.num_chains)) / self.num_chains
        chosen = np.minimum(np.searchsorted(cumulative, places, side="right"), self.num_chains - 1)
        self.x = np.ascontiguousarray(self.x[:, chosen])
        return top + math.log(total / self.num_chains)

    # -- reading ----------------------------------------------------------------------------------------------------

    def energies(self, parameters: FloatArray, patch: Patch | None = None) -> FloatArray:
        """``parameters . f(x)`` of every chain, where f are the indicators of all states and pairs of states.

        With a patch, only the terms of its variables and edges are added up.
        """
        from fastmix.projection import pool_kernels as kernels

        graph, result, part = self.graph, np.zeros(self.num_chains), patch or self._whole
        split = len(graph.log_unary)
        kernels.add_energies(
            self.x, graph.num_states, graph.edges, graph.unary_offsets, parameters[:split], graph.pairwise_offsets,
            parameters[split:], part.variables, part.edges, result,
        )  # fmt: skip
        return result

    def moments(self, weights: FloatArray | None = None) -> FloatArray:
        """Mean over the chains of ``weight * f(x)``, aligned with ``model.parameters``; plain means without weights."""
        result, split = np.empty(self.graph.num_parameters), len(self.graph.log_unary)
        self._count(
            self._whole, np.ones(self.num_chains) if weights is None else weights, result[:split], result[split:]
        )
        result /= self.num_chains
        return result

    def covariances(self, parameters: FloatArray, patches: Sequence[Patch]) -> FloatArray:
        """Covariance over the chains of every indicator with ``parameters . f(x)``.

        For the indicators in the core of a patch the energy is that of the patch only.
        """
        split, offsets = len(self.graph.log_unary), self.graph.unary_offsets
        result, sums = np.empty(self.graph.num_parameters), np.empty(split)
        for patch in patches:
            energies = self.energies(parameters, patch)
            energies -= energies.mean()
            self._count(patch, energies, sums, result[split:])
            core = patch.core_variables
            counts = self.graph.num_states[core]
            entries = np.repeat(offsets[core] - offsets_of(counts)[:-1], counts) + np.arange(counts.sum())
            result[entries] = sums[entries]
        result /= self.num_chains - 1  # unbiased: the mean is estimated too
        return result

    def _count(self, patch: Patch, weights: FloatArray, unary: FloatArray, pairwise: FloatArray) -> None:
        from fastmix.projection import pool_kernels as kernels

        graph = self.graph
        kernels.weighted_counts(
            self.x, graph.num_states, graph.edges, graph.unary_offsets, graph.pairwise_offsets, patch.ends,
            patch.core_edges, weights, unary, pairwise,
        )  # fmt: skip

    # -- log Z ------------------------------------------------------------------------------------------------------

    def anneal(self, parameters: FloatArray, num_sweeps: int) -> float:
        """Bring fresh chains to a model, its tables growing with every sweep; an estimate of its log Z.

        Annealed importance sampling: from exact draws of the model without tables, whose log Z is a sum over
        variables, through ``num_sweeps`` models on the way. The estimate of Z is unbiased, so that of log Z is too
        small in the mean, by about half the variance of the log-weights over the number of chains. The constant of the
        model is left out.

        References
        ----------
        R. M. Neal, "Annealed importance sampling", Statistics and Computing 11, 2001.
        """
        self.start(parameters)
        split, starts = len(self.graph.log_unary), self.graph.unary_offsets[:-1]
        tables, partial = parameters.copy(), parameters.copy()
        tables[:split] = 0.0
        log_weights = np.zeros(self.num_chains)
        for k in range(1, num_sweeps + 1):
            log_weights += self.energies(tables) / num_sweeps
            partial[split:] = parameters[split:] * (k / num_sweeps)
            self.sweep(partial)
        alone = np.logaddexp.reduceat(parameters[:split], starts).sum() if len(starts) else 0.0
        return float(alone + np.logaddexp.reduce(log_weights)) - math.log(self.num_chains)

    def anneal_population(self, parameters: FloatArray, num_sweeps: int) -> float:
        """Bring fresh chains to a model that may mix slowly, as far as that goes; an estimate of its log Z.

        Population annealing: all parameters grow from 0 with every sweep, and the chains are resampled by the weights
        of the change, so that those in unlikely valleys die out. As for :meth:`anneal` the estimate of Z is unbiased.

        References
        ----------
        K. Hukushima and Y. Iba, "Population annealing and its application to a spin glass", AIP Conference
        Proceedings 690, 2003.
        """
        self.start(np.zeros(len(parameters)))
        log_z = float(np.log(self.graph.num_states).sum())
        for k in range(1, num_sweeps + 1):
            log_z += self._resample(self.energies(parameters) / num_sweeps)
            self.sweep(parameters * (k / num_sweeps))
        return log_z
