"""The best tree for a mixture: a maximum spanning tree of the mutual informations given the component."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import Clock
from fastmix.graphs.trees import heaviest_tree
from fastmix.learning.tree_mixture import MixtureRows, TreeMixture
from fastmix.learning.tuning import MAX_ONE_HOT_ENTRIES, PAIR_SMOOTHING, SPARSE_SHARE
from fastmix.model.flat import offsets_of

__all__ = ["best_parents", "rooted"]


def best_parents(
    mixture: TreeMixture, rows: MixtureRows, num_rows: float, clock: Clock, allowed: IntArray | None = None
) -> IntArray:
    """Parents (n,) of the tree that is most probable for complete rows, whose components a mixture knows.

    It maximizes ``sum_k p(k) sum_edges I_k``, where the mutual informations of component k are those of the rows
    weighed by its probabilities given them (Meila and Jordan 2000), each smoothed by one row. Cost: the products of all
    states that are not the first of their variables, for each row and component; where these are few, no others.
    """
    information = _information(mixture, rows, num_rows, clock)
    return rooted(heaviest_tree(information, allowed), len(mixture.num_states))


def rooted(edges: IntArray, num_variables: int) -> IntArray:
    """Parents (n,) of the variables of a forest of edges (m, 2), -1 for the first variable of every tree."""
    neighbors: list[list[int]] = [[] for _ in range(num_variables)]
    for i, j in edges.tolist():
        neighbors[i].append(j)
        neighbors[j].append(i)
    parents = np.full(num_variables, -2, dtype=np.int64)
    for root in range(num_variables):
        if parents[root] != -2:
            continue
        parents[root] = -1
        reached = [root]
        for i in reached:  # which grows
            for j in neighbors[i]:
                if parents[j] == -2:
                    parents[j] = i
                    reached.append(j)
    return parents


def _information(mixture: TreeMixture, rows: MixtureRows, num_rows: float, clock: Clock) -> FloatArray:
    """Mutual informations (n, n) of the variables given the component, for as many components at a time as fit."""
    contrasts = _Indicators(mixture.num_states, rows.states)
    size = contrasts.size
    together = max(1, MAX_ONE_HOT_ENTRIES // size**2)
    information = np.zeros((len(mixture.num_states),) * 2)
    for first in range(0, mixture.num_components, together):
        chosen = slice(first, first + together)
        sums = np.zeros((len(range(mixture.num_components)[chosen]), size, size))
        for part in rows.parts(max(mixture.num_components, size), clock):
            shares = mixture.posteriors(rows, part)[1][:, chosen] * rows.weights[part, None]
            contrasts.add_products(rows.states[part], shares, sums)
        for own in sums:
            clock.check()
            information += own[0, 0] * contrasts.information(own, num_rows)
    return information


class _Indicators:
    """A constant and, of every variable, indicators of all states but the first, as columns.

    Columns are sparse where few values are not the first state.
    """

    def __init__(self, num_states: IntArray, states: NDArray[np.int32]) -> None:
        from scipy.sparse import csr_array

        self.num_states = num_states
        self.columns = 1 + offsets_of(num_states - 1)  # where those of a variable begin
        self.size = int(self.columns[-1])
        self.is_sparse = bool(np.count_nonzero(states) < SPARSE_SHARE * len(states) * self.size)

        # Of the indicators of all states, those of the first are the constant less the others of the variable.
        offsets = offsets_of(num_states)
        total = int(offsets[-1])
        is_first = np.zeros(total, dtype=np.bool_)
        is_first[offsets[:-1]] = True
        others = np.flatnonzero(~is_first)
        variable = np.repeat(np.arange(len(num_states)), num_states)
        places = np.arange(1, self.size)
        n = len(num_states)
        at = np.concatenate([offsets[:-1], others, offsets[:-1][variable[others]]])
        of = np.concatenate([np.zeros(n, dtype=np.int64), places, places])
        signs = np.concatenate([np.ones(n), np.ones(len(others)), -np.ones(len(others))])
        self._all_states = csr_array((signs, (at, of)), shape=(total, self.size))
        self._offsets = offsets

    def add_products(self, states: NDArray[np.int32], shares: FloatArray, sums: FloatArray) -> None:
        """Add the products of all pairs of columns over rows with shares (R, K) to ``sums`` (K, size, size)."""
        columns = self._encode(states)
        for k in range(len(sums)):
            if self.is_sparse:
                weighted = columns.multiply(shares[:, k, None]).tocsr()
                sums[k] += (columns.T @ weighted).toarray()
            else:
                sums[k] += columns.T @ (shares[:, k, None].astype(np.float32) * columns)

    def _encode(self, states: NDArray[np.int32]) -> Any:
        """The columns (R, size) of some rows."""
        from scipy.sparse import csr_array

        row, variable = np.nonzero(states)
        column = self.columns[variable] + states[row, variable] - 1
        if not self.is_sparse:
            result = np.zeros((len(states), self.size), dtype=np.float32)
            result[:, 0] = 1.0
            result[row, column] = 1.0
            return result
        rows = np.concatenate([np.arange(len(states)), row])
        columns = np.concatenate([np.zeros(len(states), dtype=np.int64), column])
        return csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(states), self.size))

    def information(self, sums: FloatArray, num_rows: float) -> FloatArray:
        """Mutual informations (n, n) of the variables in one component, from products of its columns."""
        half = self._all_states @ sums
        joint = num_rows * np.maximum((self._all_states @ half.T).T, 0.0)
        counts = self.num_states.astype(np.float64)
        uniform = np.repeat(1.0 / counts, self.num_states)
        total = num_rows * sums[0, 0] + PAIR_SMOOTHING
        joint += PAIR_SMOOTHING * np.outer(uniform, uniform)
        joint /= total
        single = (num_rows * np.maximum(self._all_states @ sums[:, 0], 0.0) + PAIR_SMOOTHING * uniform) / total
        terms = joint * np.log(joint / np.outer(single, single))
        starts = self._offsets[:-1]
        return np.asarray(np.add.reduceat(np.add.reduceat(terms, starts, axis=0), starts, axis=1))
