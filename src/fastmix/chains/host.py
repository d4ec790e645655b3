"""What is read from configurations in the memory of the host: energies, moments, covariances, pairs of states."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix.chains.base import Chains
from fastmix.chains.layout import Layout, rows_of
from fastmix.chains.patches import Patch, whole_patch
from fastmix.chains.threads import Threads

if TYPE_CHECKING:
    from fastmix.chains.sharing import Sharing

__all__ = ["HostChains"]

_EXACT = 1 << 24  # numbers below it are exact in single precision
_LEAST_DENSE = 16  # variables
_MANY_PAIRS = 1e7  # entries of tables, of all chains: a twentieth of a second, below which no clock is read


class HostChains(Chains):
    """What is read from configurations in the memory of the host, wherever they come from."""

    layout: Layout
    threads: Threads
    sharing: Sharing | None = None

    def share(self, sharing: Sharing) -> None:
        """Have sweeps made by workers; parameters must not change any more."""
        self.sharing, self.updates_per_step, self.step_seconds = sharing, sharing.updates_per_step, sharing.step_seconds

    def _lanes(self) -> NDArray[Any]:
        """Configurations (n, K * C), not to be changed."""
        raise NotImplementedError

    def _put(self, lanes: NDArray[Any]) -> None:
        """Go on from configurations (n, K * C)."""
        raise NotImplementedError

    def get_states(self) -> IntArray:
        """Current configurations (K * C, n)."""
        return self._lanes().T.astype(np.int64)

    def set_states(self, states: NDArray[Any]) -> None:
        """Go on from these configurations (K * C, n)."""
        self._put(np.asarray(states).T)

    def get_top_states(self) -> IntArray:
        """Configurations (C, n) at the last set, that of the target."""
        return self._lanes()[:, -self.num_chains :].T.astype(np.int64)

    def save(self) -> NDArray[Any]:
        """A copy of the configurations for :meth:`restore`."""
        return self._lanes().copy()

    def restore(self, saved: NDArray[Any]) -> None:
        """Go back to the configurations that :meth:`save` returned."""
        self._put(saved)

    def take(self, chosen: IntArray) -> None:
        """Let configuration i be that of ``chosen[i]`` (K * C,)."""
        self._put(self._lanes()[:, chosen])

    # -- energies ---------------------------------------------------------------------------------------------------

    def energies(self, thetas: ArrayLike | None = None) -> FloatArray:
        """``thetas[d] @ f(x)`` of every configuration, (D, K * C); those loaded by default, in single precision."""
        lanes = self._lanes()
        if thetas is None:
            return self._loaded_energies(lanes)
        return self._energies(lanes, np.atleast_2d(np.asarray(thetas, dtype=np.float64)), self._whole)

    def _energies(self, lanes: NDArray[Any], thetas: FloatArray, patch: Patch) -> FloatArray:
        from fastmix.chains.reading_kernels import add_energies

        structure, result = self.structure, np.zeros((len(thetas), lanes.shape[1]))
        split = int(structure.unary_offsets[-1])
        for theta, out in zip(thetas, result, strict=True):
            add_energies(
                lanes, structure.num_states, structure.edges, structure.unary_offsets, theta[:split],
                structure.pairwise_offsets, theta[split:], patch.variables, patch.edges, self._scopes, patch.factors,
                out,
            )  # fmt: skip
        return result

    def _loaded_energies(self, lanes: NDArray[Any]) -> FloatArray:
        if not self._quadratic:
            return self._energies(lanes, self.sets.thetas, self._whole)
        from fastmix.chains.reading_kernels import binary_energies

        out = np.empty((len(self.sets.thetas), lanes.shape[1]))
        binary_energies(lanes, *self._binary_terms, np.empty(out.shape, dtype=np.float32), out)
        return out

    @cached_property
    def _quadratic(self) -> bool:
        """Whether energies are quadratic functions of binary states."""
        return bool((self.structure.num_states == 2).all()) and not self.structure.num_factors

    @property
    def _binary_terms(self) -> tuple[Any, ...]:
        """The loaded thetas of a binary model as quadratic functions of states, kept while they are loaded."""
        if self._terms is not None and self._terms[0] is self.sets.thetas:
            return self._terms[1]
        edges, thetas = self.structure.edges, self.sets.thetas
        linear, weights, constants = self.layout.binary_terms(thetas)
        starts = np.searchsorted(edges[:, 0], np.arange(self.structure.num_variables + 1))
        terms = (
            linear.astype(np.float32), weights.any(axis=1), starts, edges[:, 1].astype(np.int32),
            np.ascontiguousarray(weights, dtype=np.float32), constants,
        )  # fmt: skip
        self._terms = thetas, terms
        return terms

    _terms: tuple[FloatArray, tuple[Any, ...]] | None = None

    # -- moments ----------------------------------------------------------------------------------------------------

    @cached_property
    def _whole(self) -> Patch:
        return whole_patch(self.structure)

    @cached_property
    def _scopes(self) -> tuple[IntArray, ...]:
        """Where scopes begin, their variables and strides, and where their tables begin among those of all terms."""
        structure = self.structure
        tables_at = structure.pairwise_offsets[-1] + structure.factor_offsets
        return structure.scope_starts, structure.scope_variables, structure.factor_strides, tables_at

    def moments(self, weights: FloatArray | None = None) -> FloatArray:
        """Mean over the configurations of ``weight * f(x)``, (P,); plain means without weights (K * C,)."""
        lanes, split = self._lanes(), int(self.structure.unary_offsets[-1])
        if weights is None and self._dense and lanes.shape[1] < _EXACT:
            return self._dense_moments(lanes)
        result = np.empty(self.num_parameters)
        count = lanes.shape[1]
        if weights is None:
            weights = np.ones(count)
        else:  # most are 0 where those of one set are counted
            used = np.flatnonzero(weights)
            lanes, weights = lanes[:, used], weights[used]
        self._count(lanes, self._whole, weights, result[:split], result[split:])
        result /= count
        return result

    @cached_property
    def _dense(self) -> bool:
        """Whether a product of matrices counts pairs faster than a pass over every edge."""
        structure = self.structure
        n = structure.num_variables
        return n >= _LEAST_DENSE and self._quadratic and 8 * structure.num_edges >= n * n

    def _dense_moments(self, lanes: NDArray[Any]) -> FloatArray:
        """The same for binary variables and most pairs: counts by a product of matrices, exact in single precision."""
        structure, count, split = self.structure, lanes.shape[1], 2 * len(lanes)
        x = lanes.astype(np.float32)
        products = x @ x.T
        i, j = structure.edges.T
        both, ones = products[i, j].astype(np.float64), np.diagonal(products).astype(np.float64)
        result = np.empty(split + 4 * len(i))
        result[1:split:2], result[:split:2] = ones, count - ones
        tables = result[split:].reshape(-1, 4)
        tables[:, 3], tables[:, 2], tables[:, 1] = both, ones[i] - both, ones[j] - both
        tables[:, 0] = count - ones[i] - tables[:, 1]
        result /= count
        return result

    def covariances(self, theta: FloatArray, patches: Sequence[Patch]) -> FloatArray:
        """Covariance over the configurations of every indicator with ``theta @ f(x)``, (P,)."""
        structure, lanes, split = self.structure, self._lanes(), int(self.structure.unary_offsets[-1])
        result, sums = np.empty(len(theta)), np.empty(split)
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
        from fastmix.chains.reading_kernels import weighted_counts

        structure = self.structure
        weighted_counts(
            lanes, structure.num_states, structure.edges, structure.unary_offsets, structure.pairwise_offsets,
            patch.ends, patch.core_edges, self._scopes, patch.core_factors, weights, unary, tables,
        )  # fmt: skip

    def add_pairs(self, out: FloatArray, *, average: bool, clock: Clock = NO_LIMIT) -> None:
        """Add conditional probabilities of the pairs on every edge, or the present pairs, to ``out``.

        Where the clock leaves no time for all chains, only some of them, evenly spaced, add their units.
        """
        top = self._lanes()[:, -self.num_chains :]
        if clock.limit is None or float(len(out)) * self.num_chains < _MANY_PAIRS:
            self._add_pairs(top, out, average=average)
            return
        start = clock.used()
        self._add_pairs(top[:, :1], out, average=average)
        affordable = int(clock.left() / max(clock.used() - start, 1e-9))
        every = max(1, -(-(self.num_chains - 1) // max(1, affordable)))
        if affordable:
            self._add_pairs(top[:, every::every], out, average=average)

    def _add_pairs(self, lanes: NDArray[Any], out: FloatArray, *, average: bool) -> None:
        """The same for some chains, those of the columns of ``lanes``."""
        from fastmix.chains.reading_kernels import average_pairs

        top = np.ascontiguousarray(lanes)
        if not top.shape[1]:
            return
        if average:
            rows, logs = np.ascontiguousarray(top.T), self.layout.log_arrays(self.sets)
            average_pairs(rows, logs, self.num_sets - 1, out)
            return
        split, counts = self.layout.split, np.empty(self.num_parameters)
        self._count(top, self._whole, np.ones(top.shape[1]), counts[:split], counts[split:])
        out += counts[split : split + len(out)]
