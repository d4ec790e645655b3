"""Energies, moments, covariances and pairs of states of configurations in the memory of the host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix.chains.base import Chains
from fastmix.chains.layout import Layout, pattern_places, rows_of
from fastmix.chains.patches import Patch, whole_patch
from fastmix.chains.threads import Threads
from fastmix.chains.tuning import MIN_DENSE_VARIABLES, MIN_TIMED_PAIRS
from fastmix.model.shared import SharedTables
from fastmix.model.structure import Structure

if TYPE_CHECKING:
    from fastmix.chains.sharing import Sharing

__all__ = ["HostChains", "lane_energies"]

_EXACT = 1 << 24  # whole numbers below it are exact in single precision


class HostChains(Chains):
    """Chains whose configurations are in the memory of the host: the part that reads them.

    Classes derived from it move the chains, and give their configurations by ``_lanes`` and ``_put``.
    """

    layout: Layout
    threads: Threads
    sharing: Sharing | None = None

    def share(self, sharing: Sharing) -> None:
        """Let workers make the sweeps from now on; parameters must not change any more."""
        self.sharing = sharing
        self.updates_per_step = sharing.updates_per_step
        self.step_seconds = sharing.step_seconds

    def _lanes(self) -> NDArray[Any]:
        """Configurations (n, K * C), not to be changed."""
        raise NotImplementedError

    def _put(self, lanes: NDArray[Any]) -> None:
        """Continue from configurations (n, K * C)."""
        raise NotImplementedError

    def get_states(self) -> IntArray:
        """The current configurations (K * C, n)."""
        return self._lanes().T.astype(np.int64)

    def set_states(self, states: NDArray[Any]) -> None:
        """Continue from these configurations (K * C, n)."""
        self._put(np.asarray(states).T)

    def get_top_states(self) -> IntArray:
        """The configurations (C, n) at the last set, that of the target."""
        return self._lanes()[:, -self.num_chains :].T.astype(np.int64)

    def get_states_of(self, sets: IntArray) -> NDArray[Any]:
        """The current configurations (len(sets), C, n) at some of the sets."""
        lanes = self._lanes()
        return lanes.reshape(len(lanes), self.num_sets, self.num_chains)[:, sets].transpose(1, 2, 0)

    def save(self) -> NDArray[Any]:
        """A copy of the configurations for :meth:`restore`."""
        return self._lanes().copy()

    def restore(self, saved: NDArray[Any]) -> None:
        """Go back to the configurations that :meth:`save` returned."""
        self._put(saved)

    def take(self, chosen: IntArray) -> None:
        """Replace configuration i by configuration ``chosen[i]`` (K * C,)."""
        self._put(self._lanes()[:, chosen])

    # -- energies ---------------------------------------------------------------------------------------------------

    def energies(self, thetas: ArrayLike | None = None) -> FloatArray:
        """``thetas[d] @ f(x)`` of every configuration, (D, K * C).

        The loaded thetas are the default; their energies of binary models are partly added up in single precision.
        """
        lanes = self._lanes()
        if thetas is None:
            return self._loaded_energies(lanes)
        return self._energies(lanes, np.atleast_2d(np.asarray(thetas, dtype=np.float64)), self._whole)

    def _energies(self, lanes: NDArray[Any], thetas: FloatArray, patch: Patch) -> FloatArray:
        """Energies (D, lanes) of the variables, edges and factors of a patch, in double precision."""
        return lane_energies(self.structure, lanes, thetas, patch)

    def _loaded_energies(self, lanes: NDArray[Any]) -> FloatArray:
        """Energies (D, lanes) under the loaded thetas."""
        if self.sets.tables is not None:
            return self._shared_energies(lanes, self.sets.thetas, self.sets.tables)
        if not self._quadratic:
            return self._energies(lanes, self.sets.thetas, self._whole)
        from fastmix.chains.reading_kernels import binary_energies

        out = np.empty((len(self.sets.thetas), lanes.shape[1]))
        binary_energies(lanes, *self._binary_terms, np.empty(out.shape, dtype=np.float32), out)
        return out

    def _shared_energies(self, lanes: NDArray[Any], thetas: FloatArray, tables: SharedTables) -> FloatArray:
        """Energies (D, lanes) of unaries and weights of shared tables; forbidden pairs count as 0."""
        from fastmix.chains.reading_kernels import add_shared_energies

        structure = self.structure
        split = self.layout.split
        patterns = np.where(tables.patterns > -np.inf, tables.patterns, 0.0)
        result = np.empty((len(thetas), lanes.shape[1]))
        starts = structure.unary_offsets[:-1]
        for theta, out in zip(thetas, result, strict=True):
            for c in range(lanes.shape[1]):
                out[c] = theta[starts + lanes[:, c]].sum()
            for places, weights in self._shared_terms(tables, theta[split:]):
                add_shared_energies(lanes, structure.edges, places, patterns, weights, out)
        return result

    def _shared_terms(
        self, tables: SharedTables, weights: FloatArray
    ) -> Iterator[tuple[tuple[IntArray, IntArray, IntArray], FloatArray]]:
        """Places of the patterns of all edges with their weights; then the same of the following patterns, if any."""
        starts, first_steps, second_steps = pattern_places(tables)
        num_edges = tables.use.num_edges
        yield (starts, first_steps, second_steps), np.ascontiguousarray(weights[:num_edges])
        if tables.next_weights is not None:
            sizes = np.diff(tables.use.starts)[tables.use.of_edge]
            # No pattern follows the last one; its edges have no weight for it.
            following = np.where(starts + 2 * sizes <= tables.use.starts[-1], starts + sizes, starts)
            yield (following, first_steps, second_steps), np.ascontiguousarray(weights[num_edges:])

    @cached_property
    def _quadratic(self) -> bool:
        """Whether energies are quadratic functions of binary states."""
        return bool((self.structure.num_states == 2).all()) and not self.structure.num_factors

    @property
    def _binary_terms(self) -> tuple[Any, ...]:
        """The loaded thetas of a binary model as quadratic functions of states, kept while they are loaded."""
        if self._terms is not None and self._terms[0] is self.sets.thetas:
            return self._terms[1]
        edges = self.structure.edges
        linear, weights, constants = self.layout.binary_terms(self.sets.thetas)
        terms = (
            linear.astype(np.float32),
            weights.any(axis=1),
            np.searchsorted(edges[:, 0], np.arange(self.structure.num_variables + 1)),
            edges[:, 1].astype(np.int32),
            np.ascontiguousarray(weights, dtype=np.float32),
            constants,
        )
        self._terms = self.sets.thetas, terms
        return terms

    #: The latest thetas, and the arrays of ``_binary_terms`` that were made of them.
    _terms: tuple[FloatArray, tuple[Any, ...]] | None = None

    # -- moments ----------------------------------------------------------------------------------------------------

    @cached_property
    def _whole(self) -> Patch:
        """The whole graph as one patch."""
        return whole_patch(self.structure)

    @cached_property
    def _scopes(self) -> tuple[IntArray, ...]:
        """Starts of the scopes of factors, their variables and strides, and starts of tables, after the edges'."""
        return _scopes_of(self.structure)

    def moments(self, weights: FloatArray | None = None) -> FloatArray:
        """Means over the configurations of ``weight * f(x)``, (P,); plain means without weights (K * C,)."""
        lanes = self._lanes()
        count = lanes.shape[1]
        if self.sets.tables is not None:
            return self._shared_moments(lanes, self.sets.tables, np.ones(count) if weights is None else weights)
        if weights is None and self._dense and count < _EXACT:
            return self._dense_moments(lanes)
        if weights is None:
            weights = np.ones(count)
        else:
            # Most weights are 0 where the configurations of one set are counted.
            used = np.flatnonzero(weights)
            lanes = np.take(lanes, used, axis=1)  # by rows, as kernels read them
            weights = weights[used]
            if self._dense and 0 < len(used) < _EXACT and (weights == weights[0]).all():
                return self._dense_moments(lanes) * (float(weights[0]) * len(used) / count)
        result = np.empty(self.num_parameters)
        split = int(self.structure.unary_offsets[-1])
        self._count(lanes, self._whole, weights, result[:split], result[split:])
        result /= count
        return result

    def _shared_moments(self, lanes: NDArray[Any], tables: SharedTables, weights: FloatArray) -> FloatArray:
        """Means of ``weight`` times the derivatives of the log-weight by unaries and by weights of shared tables."""
        from fastmix.chains.reading_kernels import shared_statistics

        structure = self.structure
        split = self.layout.split
        result = np.zeros(self.sets.thetas.shape[1])
        positions = structure.unary_offsets[:-1]
        for c in range(lanes.shape[1]):
            result[positions + lanes[:, c]] += weights[c]
        patterns = np.where(tables.patterns > -np.inf, tables.patterns, 0.0)
        begin = split
        for places, own in self._shared_terms(tables, result[split:]):
            sums = result[begin : begin + len(own)]
            shared_statistics(lanes, structure.edges, places, patterns, weights, sums)
            begin += len(own)
        result /= lanes.shape[1]
        return result

    def pattern_moments(self, weights: FloatArray | None = None) -> FloatArray:
        """Derivatives of the mean log-weight by the entries of all patterns, flat; see :class:`Chains`."""
        from fastmix.chains.reading_kernels import count_in_patterns

        tables = self.sets.tables
        if tables is None:
            raise ValueError("tables must be loaded for pattern_moments, as Chains.load_model does")
        lanes = self._lanes()
        of_chains = np.ones(lanes.shape[1]) if weights is None else weights
        result = np.zeros(len(tables.patterns))
        loaded = self.sets.theta(self.num_sets - 1)[self.layout.split :]
        for places, own in self._shared_terms(tables, loaded):
            count_in_patterns(lanes, self.structure.edges, places, own, of_chains, result)
        return result / lanes.shape[1]

    @cached_property
    def _dense(self) -> bool:
        """Whether a product of matrices counts pairs faster than a pass over every edge."""
        structure = self.structure
        n = structure.num_variables
        return n >= MIN_DENSE_VARIABLES and self._quadratic and 8 * structure.num_edges >= n * n

    def _dense_moments(self, lanes: NDArray[Any]) -> FloatArray:
        """Plain means for binary variables: a product of matrices counts all pairs, exactly in single precision."""
        count = lanes.shape[1]
        x = lanes.astype(np.float32)
        products = x @ x.T
        i, j = self.structure.edges.T
        both = products[i, j].astype(np.float64)
        ones = np.diagonal(products).astype(np.float64)

        split = 2 * len(lanes)
        result = np.empty(split + 4 * len(i))
        result[1:split:2] = ones
        result[:split:2] = count - ones
        tables = result[split:].reshape(-1, 4)
        tables[:, 3] = both
        tables[:, 2] = ones[i] - both
        tables[:, 1] = ones[j] - both
        tables[:, 0] = count - ones[i] - tables[:, 1]
        result /= count
        return result

    def covariances(self, theta: FloatArray, patches: Sequence[Patch]) -> FloatArray:
        """Covariances over the configurations of every indicator with ``theta @ f(x)``, (P,); see :class:`Chains`."""
        structure = self.structure
        lanes = self._lanes()
        split = int(structure.unary_offsets[-1])
        result = np.empty(len(theta))
        sums = np.empty(split)
        for patch in patches:
            self.clock.check()
            [energies] = self._energies(lanes, theta[None], patch)
            energies -= energies.mean()
            self._count(lanes, patch, energies, sums, result[split:])
            _, entries = rows_of(structure.unary_offsets, patch.core_variables)
            result[entries] = sums[entries]
        result /= lanes.shape[1] - 1  # unbiased: the mean is estimated too
        return result

    def _count(
        self, lanes: NDArray[Any], patch: Patch, weights: FloatArray, unary: FloatArray, tables: FloatArray
    ) -> None:
        """Fill in the sums of the weights of the lanes in every state of the core of a patch."""
        from fastmix.chains.reading_kernels import weighted_counts

        structure = self.structure
        weighted_counts(
            lanes,
            structure.num_states,
            structure.edges,
            structure.unary_offsets,
            structure.pairwise_offsets,
            patch.ends,
            patch.core_edges,
            self._scopes,
            patch.core_factors,
            weights,
            unary,
            tables,
        )

    def add_pairs(self, out: FloatArray, *, average: bool, clock: Clock = NO_LIMIT) -> None:
        """Add conditional probabilities of the pairs on every edge, or counts of the present pairs, to ``out``.

        Where the clock leaves no time for all chains, only some of them, evenly spaced, add their units.
        """
        top = self._lanes()[:, -self.num_chains :]
        if clock.limit is None or float(len(out)) * self.num_chains < MIN_TIMED_PAIRS:
            self._add_pairs(top, out, average=average)
            return

        # The first chain shows how long one takes, and so how many others the time is enough for.
        start = clock.used()
        self._add_pairs(top[:, :1], out, average=average)
        affordable = int(clock.left() / max(clock.used() - start, 1e-9))
        every = max(1, -(-(self.num_chains - 1) // max(1, affordable)))
        if affordable:
            self._add_pairs(top[:, every::every], out, average=average)

    def _add_pairs(self, lanes: NDArray[Any], out: FloatArray, *, average: bool) -> None:
        """Add the pairs of the chains in the columns of ``lanes`` to ``out``."""
        from fastmix.chains.reading_kernels import average_pairs

        top = np.ascontiguousarray(lanes)
        if not top.shape[1]:
            return
        if average:
            rows = np.ascontiguousarray(top.T)
            places = self.structure.directed[1:]
            average_pairs(rows, self.layout.log_arrays(self.sets), self.num_sets - 1, places, out)
            return
        split = self.layout.split
        counts = np.empty(self.num_parameters)
        self._count(top, self._whole, np.ones(top.shape[1]), counts[:split], counts[split:])
        out += counts[split : split + len(out)]


def lane_energies(structure: Structure, lanes: NDArray[Any], thetas: FloatArray, patch: Patch) -> FloatArray:
    """Energies ``theta @ f(x)`` (D, lanes) of configurations (n, lanes), over a patch, in double precision."""
    from fastmix.chains.reading_kernels import add_energies

    split = int(structure.unary_offsets[-1])
    result = np.zeros((len(thetas), lanes.shape[1]))
    for theta, out in zip(thetas, result, strict=True):
        add_energies(
            lanes,
            structure.num_states,
            structure.edges,
            structure.unary_offsets,
            theta[:split],
            structure.pairwise_offsets,
            theta[split:],
            patch.variables,
            patch.edges,
            _scopes_of(structure),
            patch.factors,
            out,
        )
    return result


def _scopes_of(structure: Structure) -> tuple[IntArray, ...]:
    """Starts of the scopes of factors, their variables and strides, and starts of tables, after the edges'."""
    tables_at = structure.pairwise_offsets[-1] + structure.factor_offsets
    return structure.scope_starts, structure.scope_variables, structure.factor_strides, tables_at
