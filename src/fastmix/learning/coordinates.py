"""Coordinates for learning: states as orthonormal contrasts, so that no direction of the parameters is idle.

The indicators of all states add up to 1, so adding a constant to a vector u_i or to a row of a table T_ij changes
nothing but other parameters. Learning uses what is left: ``u_i = Q_i c_i`` and ``T_ij = Q_i C_ij Q_j'``, where the
columns of Q_i (L_i, L_i - 1) are orthonormal and add up to 0. Vectors and tables then add up to 0 over every index,
their Euclidean norms are those of c and C, and for a configuration with the rows ``y_i = Q_i[x_i]``

    log p(x) = sum_i c_i . y_i + sum_ij y_i' C_ij y_j - log Z.

For binary variables ``y = -1/sqrt(2), 1/sqrt(2)``, and an Ising model has ``c = sqrt(2) h`` and ``C = 2 J``.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix._memory import check_memory
from fastmix.model.flat import offsets_of, table_positions
from fastmix.model.forms import contrast_basis, double_center
from fastmix.model.structure import Structure

__all__ = ["Coordinates"]


class Coordinates:
    """The vector ``v = (c, C)`` of a structure: contrasts of the variables, then of the edges, one after another.

    Attributes
    ----------
    starts : int array (n + 1,)
        Where the contrasts of every variable begin: ``v[starts[i]:starts[i + 1]]`` is c_i.
    num_contrasts, size : int
        Contrasts of all variables, D, and the length of v.
    pair_starts : int array (m + 1,)
        Where those of every edge begin: ``v[D + pair_starts[e]:D + pair_starts[e + 1]]``, row by row.
    edge_of, rows, cols : int array (K,)
        The edge of every entry of the tables, and the contrasts of its two variables.
    binary : bool
        Whether every variable has two states.
    """

    def __init__(self, structure: Structure) -> None:
        self.structure = structure
        widths = structure.num_states - 1
        edges = structure.edges
        self.starts = offsets_of(widths)
        self.pair_starts = offsets_of(widths[edges].prod(axis=1))
        self.num_contrasts = int(self.starts[-1])
        self.size = self.num_contrasts + int(self.pair_starts[-1])
        self.edge_of, row, col = table_positions(widths, edges)
        i, j = edges[self.edge_of].T
        self.rows = self.starts[i] + row
        self.cols = self.starts[j] + col
        self.binary = bool((widths == 1).all())

    @cached_property
    def tables(self) -> list[FloatArray]:
        """Q of every variable."""
        made = {int(count): contrast_basis(int(count)) for count in np.unique(self.structure.num_states)}
        return [made[int(count)] for count in self.structure.num_states]

    @cached_property
    def flat_tables(self) -> tuple[FloatArray, IntArray]:
        """Q of all variables one after the other, row by row, and where each begins (n,)."""
        starts = offsets_of(np.array([q.size for q in self.tables], dtype=np.int64))[:-1]
        return np.concatenate([np.zeros(0), *(q.reshape(-1) for q in self.tables)]), starts

    def encode(self, states: NDArray[Any]) -> FloatArray:
        """The rows y (rows, D) of configurations (rows, n); zeros where a state is missing (-1)."""
        if self.binary:
            y = states * np.sqrt(2.0) - np.sqrt(0.5)
            return np.asarray(np.where(states < 0, 0.0, y) if states.size and states.min() < 0 else y)
        y = np.empty((len(states), self.num_contrasts))
        for i, q in enumerate(self.tables):
            padded = np.concatenate([q, np.zeros((1, q.shape[1]))])  # the last row is that of -1
            y[:, self.starts[i] : self.starts[i + 1]] = padded[states[:, i]]
        return y

    def matrix(self, v: FloatArray) -> FloatArray:
        """C as a symmetric matrix (D, D), zero where no edge is."""
        d = self.num_contrasts
        check_memory(8.0 * d * d, f"a matrix of {d:,} contrasts", "use fewer variables or states")
        full = np.zeros((d, d))
        values = v[self.num_contrasts :]
        full[self.rows, self.cols] = values
        full[self.cols, self.rows] = values
        return full

    def gather(self, means: FloatArray, products: FloatArray) -> FloatArray:
        """The vector of means (D,) and of the entries of a matrix (D, D) on the edges."""
        return np.concatenate([means, products[self.rows, self.cols]])

    # -- parameters -------------------------------------------------------------------------------------------------

    @cached_property
    def _variable_groups(self) -> list[tuple[FloatArray, IntArray, IntArray]]:
        """For every state count: Q, and where the vectors (count, L) and their contrasts (count, L - 1) are."""
        groups = []
        for count in np.unique(self.structure.num_states):
            chosen = np.flatnonzero(self.structure.num_states == count)
            unary = self.structure.unary_offsets[chosen][:, None] + np.arange(count)
            groups.append((contrast_basis(int(count)), unary, self.starts[chosen][:, None] + np.arange(count - 1)))
        return groups

    @cached_property
    def _edge_groups(self) -> list[tuple[FloatArray, FloatArray, IntArray, IntArray, IntArray]]:
        """For every pair of state counts: both Q, the edges, and where tables and their contrasts are."""
        structure = self.structure
        groups = []
        for a, b, chosen in structure.table_shapes:
            table = structure.pairwise_offsets[chosen][:, None] + np.arange(a * b)
            pairs = self.pair_starts[chosen][:, None] + np.arange((a - 1) * (b - 1))
            groups.append((contrast_basis(a), contrast_basis(b), chosen, table, pairs))
        return groups

    def to_parameters(self, v: FloatArray) -> FloatArray:
        """Unaries and tables, as ``model.parameters``."""
        structure = self.structure
        d = self.num_contrasts
        split = int(structure.unary_offsets[-1])
        theta = np.empty(split + int(structure.pairwise_offsets[-1]))
        for q, unary, places in self._variable_groups:
            theta[unary] = v[places] @ q.T
        for qa, qb, chosen, table, pairs in self._edge_groups:
            c = v[d + pairs].reshape(len(chosen), qa.shape[1], qb.shape[1])
            theta[split + table] = (qa @ c @ qb.T).reshape(table.shape)
        return theta

    def from_gradient(self, gradient: FloatArray) -> FloatArray:
        """The derivative with respect to v of what has this one with respect to the parameters."""
        structure = self.structure
        d = self.num_contrasts
        split = int(structure.unary_offsets[-1])
        g = np.empty(self.size)
        for q, unary, places in self._variable_groups:
            g[places] = gradient[unary] @ q
        for qa, qb, chosen, table, pairs in self._edge_groups:
            tables = gradient[split + table].reshape(len(chosen), len(qa), len(qb))
            g[d + pairs] = (qa.T @ tables @ qb).reshape(pairs.shape)
        return g

    def to_probabilities(self, difference: FloatArray) -> FloatArray:
        """A difference of moments of contrasts as one of probabilities of states and pairs, as ``model.parameters``."""
        structure = self.structure
        split = int(structure.unary_offsets[-1])
        result = self.to_parameters(difference)
        i, j = structure.edges.T
        for qa, qb, chosen, table, _ in self._edge_groups:
            rows = result[structure.unary_offsets[i[chosen]][:, None] + np.arange(len(qa))]
            cols = result[structure.unary_offsets[j[chosen]][:, None] + np.arange(len(qb))]
            result[split + table] += (rows[:, :, None] / len(qb) + cols[:, None, :] / len(qa)).reshape(table.shape)
        return result

    def moment_error(self, difference: FloatArray) -> float:
        """The largest of these probabilities."""
        return float(np.abs(self.to_probabilities(difference)).max(initial=0.0))

    def from_fields(self, unary: FloatArray) -> FloatArray:
        """The v of vectors alone, as ``model.log_unary``; all tables are 0."""
        v = np.zeros(self.size)
        for q, entries, places in self._variable_groups:
            v[places] = unary[entries] @ q
        return v

    def from_parameters(self, theta: FloatArray) -> tuple[FloatArray, float]:
        """The v of any finite parameters, and the constant by which their log-weights are larger."""
        structure = self.structure
        split = int(structure.unary_offsets[-1])
        unary = theta[:split].copy()
        constant = 0.0
        for qa, qb, chosen, table, _ in self._edge_groups:
            parts = double_center(theta[split + table].T.reshape(len(qa), len(qb), -1))
            constant += float(parts.mean.sum())
            for end, effects in ((0, parts.by_row), (1, parts.by_col)):
                starts = structure.unary_offsets[structure.edges[chosen, end]]
                entries = np.arange(len(effects))[:, None] + starts
                unary += np.bincount(entries.reshape(-1), effects.reshape(-1), split)
        for _, places, _ in self._variable_groups:
            constant += float(unary[places].mean(axis=1).sum())
        v = self.from_gradient(np.concatenate([unary, theta[split:]]))
        return v, constant
