"""A pool of chains on the CPU that follows a changing model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix.chains.chain_pool import ChainPool
from fastmix.chains.gibbs import Gibbs
from fastmix.chains.links import find_links
from fastmix.chains.patches import Patch, whole_patch
from fastmix.model import MarkovRandomField
from fastmix.model.build import offsets_of

__all__ = ["Pool"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_TABLE_ENTRIES = 1 << 22  # thresholds that are filled anew for every step; beyond, the sampling engine takes over
_BLOCK_NUMBERS = 1 << 22  # random numbers drawn at once: 16 MiB


class Pool(ChainPool):
    """Chains side by side on models that share a graph; the model can change between sweeps.

    Parameters
    ----------
    model : MarkovRandomField
        Gives the graph and the state counts. Finite entries only.
    num_chains, seed : int

    Notes
    -----
    A sweep visits the variables colour by colour, as :func:`fastmix.sample` does. On a 16x16 grid 500 chains take about
    0.4 ms a sweep, of which 0.1 ms are the conditional distributions of the new model. Where those would not fit into
    tables (variables with very many neighbours), a :class:`fastmix.chains.gibbs.Gibbs` engine is set up for every
    sweep.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1)], coupling=0.5, field=[0.3, 0.0])
    >>> pool = Pool(model, num_chains=1000, seed=0)
    >>> pool.start(model.parameters)
    >>> pool.sweep(model.parameters, 20)
    >>> bool(abs(pool.moments()[1] - 0.632) < 0.05)
    True
    """

    def __init__(self, model: MarkovRandomField, *, num_chains: int, seed: int) -> None:
        super().__init__(model, num_chains=num_chains, seed=seed)
        self._whole = whole_patch(model)
        self._numbers = np.random.SFC64([seed, 0])
        most = int(model.num_states.max(initial=1))
        self.x = np.zeros((model.num_variables, num_chains), dtype=np.uint8 if most <= 256 else np.uint16)
        self.order, _ = model.structure.visit_order
        self._tabulated = model.structure.pattern_entries <= _TABLE_ENTRIES
        self._seed = seed
        self._streams: NDArray[np.uint64] | None = None
        if not self._tabulated:
            return
        self._links = find_links(model)
        self._table = np.empty(int(self._links.starts[-1]) + 1, dtype=np.uint32)

    # -- configurations ---------------------------------------------------------------------------------------------

    def get_states(self) -> IntArray:
        """Current configurations (num_chains, n)."""
        return self.x.T.astype(np.int64)

    def set_states(self, states: NDArray[Any]) -> None:
        """Go on from these configurations (num_chains, n)."""
        self.x[...] = np.asarray(states).T

    def save(self) -> NDArray[Any]:
        """A copy of the configurations for :meth:`restore`."""
        return self.x.copy()

    def restore(self, saved: NDArray[Any]) -> None:
        """Go back to the configurations that :meth:`save` returned."""
        self.x[...] = saved

    def _take(self, chosen: IntArray) -> None:
        self.x = np.ascontiguousarray(self.x[:, chosen])

    # -- moving -----------------------------------------------------------------------------------------------------

    def start(self, parameters: FloatArray) -> None:
        """Forget the states and draw every variable of every chain from its unary alone."""
        states, offsets = self.graph.num_states, self.graph.unary_offsets
        most = int(states.max(initial=1))
        rows = max(1, _BLOCK_NUMBERS // max(most, self.num_chains))
        for first in range(0, len(states), rows):
            self.clock.check()
            counts = states[first : first + rows]
            unary = np.full((len(counts), most), -np.inf)
            inside = np.arange(most) < counts[:, None]
            unary[inside] = parameters[offsets[first] : offsets[first + len(counts)]]
            cumulative = np.cumsum(np.exp(unary - unary.max(axis=1, keepdims=True)), axis=1)
            draws = self._rng.random((len(counts), self.num_chains)) * cumulative[:, -1:]
            x = self.x[first : first + rows]
            x[...] = 0
            for s in range(most - 1):
                x += (draws >= cumulative[:, s : s + 1]) & (s + 1 < counts)[:, None]

    def sweep(self, parameters: FloatArray, num_sweeps: int = 1) -> None:
        """Gibbs sweeps of all chains on the model with these parameters."""
        if not self._tabulated:
            self._sweep_engine(parameters, num_sweeps)
            return
        from fastmix.chains import pool_kernels as kernels

        split = len(self.graph.log_unary)
        links = self._links
        kernels.fill_thresholds(
            links.states, links.indptr, links.neighbors, links.tables_at, links.own_steps, links.their_steps,
            links.unary_at, parameters[:split], parameters[split:], links.starts, self._table,
        )  # fmt: skip
        block = max(1, _BLOCK_NUMBERS // max(1, self.num_chains))
        for _ in range(num_sweeps):
            for first in range(0, len(self.order), block):
                self.clock.check()
                order = self.order[first : first + block]
                kernels.sweep(
                    self.x, order, links.states, links.indptr, links.neighbors, links.strides, links.starts,
                    self._table, self._draw_numbers(len(order)),
                )  # fmt: skip

    def _draw_numbers(self, rows: int) -> NDArray[np.uint32]:
        count = rows * self.num_chains
        raw = self._numbers.random_raw((count + 1) // 2)
        return np.asarray(raw).view(np.uint32)[:count].reshape(rows, self.num_chains)

    def _sweep_engine(self, parameters: FloatArray, num_sweeps: int) -> None:
        engine = Gibbs(
            self.graph.with_parameters(parameters), num_chains=self.num_chains, seed=self._seed, num_threads=1
        )
        engine.set_states(self.x.T.astype(np.int64))
        if self._streams is not None:
            engine.set_random_state(self._streams)
        engine.advance(num_sweeps, collect=False)
        self.x[...] = engine.get_states().T
        self._streams = engine.get_random_state()

    # -- reading ----------------------------------------------------------------------------------------------------

    def energies(self, parameters: FloatArray, patch: Patch | None = None) -> FloatArray:
        """``parameters . f(x)`` of every chain, where f are the indicators of all states and pairs of states.

        With a patch, only the terms of its variables and edges are added up.
        """
        from fastmix.chains import pool_kernels as kernels

        graph, result, part = self.graph, np.zeros(self.num_chains), patch or self._whole
        split = len(graph.log_unary)
        kernels.add_energies(
            self.x, graph.num_states, graph.edges, graph.unary_offsets, parameters[:split], graph.pairwise_offsets,
            parameters[split:], part.variables, part.edges, result,
        )  # fmt: skip
        return result

    def _sums(self, weights: FloatArray) -> FloatArray:
        result, split = np.empty(self.graph.num_parameters), len(self.graph.log_unary)
        self._count(self._whole, weights, result[:split], result[split:])
        return result

    def _products(self, parameters: FloatArray, patches: Sequence[Patch]) -> FloatArray:
        split, offsets = len(self.graph.log_unary), self.graph.unary_offsets
        result, sums = np.empty(self.graph.num_parameters), np.empty(split)
        for patch in patches:
            self.clock.check()
            energies = self.energies(parameters, patch)
            energies -= energies.mean()
            self._count(patch, energies, sums, result[split:])
            core = patch.core_variables
            counts = self.graph.num_states[core]
            entries = np.repeat(offsets[core] - offsets_of(counts)[:-1], counts) + np.arange(counts.sum())
            result[entries] = sums[entries]
        return result

    def _count(self, patch: Patch, weights: FloatArray, unary: FloatArray, pairwise: FloatArray) -> None:
        from fastmix.chains import pool_kernels as kernels

        graph = self.graph
        kernels.weighted_counts(
            self.x, graph.num_states, graph.edges, graph.unary_offsets, graph.pairwise_offsets, patch.ends,
            patch.core_edges, weights, unary, pairwise,
        )  # fmt: skip
