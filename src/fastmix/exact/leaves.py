"""Trees that hang on the graph of a model, summed out in one compiled pass.

A variable with at most one neighbor left is summed out into the unary of that neighbor, ``log sum_a exp(u(a) +
t(a, b))``, again and again. On forests nothing is left; what is left has marginals that do not change, and the
variables summed out are found from them in reverse, each given its neighbor. All in logarithms: no range to leave. A
microsecond or so per variable where a sequence of tables takes fifty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fastmix._arrays import FloatArray, IntArray, read_only, read_only_fields
from fastmix._clock import NO_LIMIT, Clock
from fastmix._jit import njit
from fastmix.errors import ImpossibleModelError
from fastmix.exact.elimination import ModelElimination, model_factors, plan_elimination
from fastmix.exact.program import Calibration
from fastmix.exact.tuning import (
    SECONDS_PER_LEAF,
    UNIFORMS_AT_ONCE,
)
from fastmix.model import MarkovRandomField

__all__ = ["Leaves", "PrunedElimination", "sum_down", "sum_up"]


class Leaves(NamedTuple):
    """Variables in the order in which they are summed out, and the tables of the edges to their neighbors.

    ``starts`` are the places of these tables in ``log_pairwise``, ``own`` and ``other`` the steps in them by a state
    of the variable and of its neighbor; the neighbor is -1 where none is left.
    """

    variables: IntArray
    neighbors: IntArray
    starts: IntArray
    own: IntArray
    other: IntArray
    counts: IntArray
    offsets: IntArray

    @classmethod
    def of(cls, model: MarkovRandomField, removed: IntArray, neighbors: IntArray) -> Leaves:
        """The leaves of a model, from what :func:`fastmix.graphs.trees.strip_leaves` gives."""
        low = np.minimum(removed, neighbors)
        high = np.maximum(removed, neighbors)
        n = model.num_variables
        edges = np.searchsorted(model.edges[:, 0] * n + model.edges[:, 1], low * n + high)
        edges[neighbors < 0] = 0
        starts = model.pairwise_offsets[edges]
        states = model.num_states
        first = removed < neighbors
        own = np.where(first, states[neighbors], 1)
        other = np.where(first, 1, states[removed])
        return read_only_fields(cls(removed, neighbors, starts, own, other, states, model.unary_offsets))


@dataclass(frozen=True, eq=False)
class PrunedElimination(ModelElimination):
    """The elimination of a model whose hanging trees are summed out first; ``elimination`` is for what is left."""

    core: MarkovRandomField  # the variables that are left, their edges and all factors
    leaves: Leaves
    variables: IntArray  # numbers of those left
    unary_positions: IntArray  # of their entries, and of those of their edges
    pairwise_positions: IntArray

    @classmethod
    def plan(
        cls, model: MarkovRandomField, removed: IntArray, neighbors: IntArray, memory_limit: float, clock: Clock
    ) -> PrunedElimination:
        """The plan for a model, from what :func:`fastmix.graphs.trees.strip_leaves` gives."""
        left = np.ones(model.num_variables, dtype=bool)
        left[removed] = False
        number = np.cumsum(left) - 1
        kept = left[model.edges].all(axis=1)
        unary = np.flatnonzero(np.repeat(left, model.num_states))
        pairs = np.flatnonzero(np.repeat(kept, np.diff(model.pairwise_offsets)))
        core = MarkovRandomField(
            model.num_states[left],
            model.log_unary[unary],
            number[model.edges[kept]],
            model.log_pairwise[pairs],
            scope_starts=model.structure.scope_starts,
            scope_variables=number[model.structure.scope_variables],
            log_factors=model.log_factors,
        )
        elimination = plan_elimination(model_factors(core), memory_limit=memory_limit, clock=clock)
        leaves = Leaves.of(model, removed, neighbors)
        return cls(model, elimination, core, leaves, np.flatnonzero(left), unary, pairs)

    @property
    def treewidth(self) -> int:
        """Largest clique minus one: that of what is left, and at least 1 where a leaf has a neighbor."""
        return max(super().treewidth, int((self.leaves.neighbors >= 0).any()))

    @property
    def total_entries(self) -> float:
        """Entries of all cliques."""
        counts = self.model.num_states.astype(float)
        neighbors = self.leaves.neighbors
        beside = np.where(neighbors >= 0, counts[neighbors], 1.0)
        return super().total_entries + float(counts[self.leaves.variables] @ beside)

    @property
    def required_bytes(self) -> int:
        """Peak memory of :meth:`calibrate`."""
        return super().required_bytes + 16 * (len(self.model.log_unary) + len(self.model.log_pairwise))

    @property
    def seconds(self) -> float:
        """Estimate of the time that :meth:`calibrate` takes."""
        return super().seconds + SECONDS_PER_LEAF * len(self.leaves.variables)

    def calibrate(self, clock: Clock = NO_LIMIT, *, edge_marginals: bool = True) -> Calibration:
        """Log Z, node and edge marginals: those of what is left first, and from them those of the leaves."""
        model = self.model
        unary, core = self._sum_leaves()
        found = core.calibrate(clock, edge_marginals=edge_marginals)
        nodes = np.zeros(len(model.log_unary))
        nodes[self.unary_positions] = found.marginals
        pairs = np.zeros(len(model.log_pairwise))
        pairs[self.pairwise_positions] = found.factor_marginals
        sum_down(self.leaves, unary, read_only(model.log_pairwise), nodes, pairs, np.empty(int(model.num_states.max())))
        return found._replace(marginals=nodes, factor_marginals=pairs)

    def draw(self, num_draws: int, rng: np.random.Generator, clock: Clock = NO_LIMIT) -> IntArray:
        """Independent exact configurations (num_draws, n): what is left first, then leaves given their neighbors."""
        model = self.model
        unary, core = self._sum_leaves()
        states = np.zeros((num_draws, model.num_variables), dtype=np.int64)
        states[:, self.variables] = core.draw(num_draws, rng, clock)
        weights = np.empty(int(model.num_states.max()))
        stop = len(self.leaves.variables)
        rows = max(1, UNIFORMS_AT_ONCE // max(1, num_draws))
        while stop:
            clock.check()
            uniforms = rng.random((min(rows, stop), num_draws))
            _draw_down(self.leaves, unary, model.log_pairwise, states, uniforms, stop, weights)
            stop -= len(uniforms)
        return states

    def _sum_leaves(self) -> tuple[FloatArray, ModelElimination]:
        """Unaries with the hanging trees summed into them, and the elimination of what is left."""
        model = self.model
        unary = model.log_unary.copy()
        sums = np.empty((2, int(model.num_states.max())))
        scales = np.empty(len(self.leaves.variables))
        log_scale = float(sum_up(self.leaves, unary, read_only(model.log_pairwise), sums, scales))
        if log_scale == -np.inf:
            raise ImpossibleModelError(
                "no configuration has positive probability: hard constraints contradict each other"
            )
        core = self.core._sibling(
            unary[self.unary_positions],
            model.log_pairwise[self.pairwise_positions],
            model.log_factors,
            model.log_constant + log_scale,
        )
        return unary, ModelElimination(core, self.elimination)


@njit(cache=True)
def _weigh(unary, first, count, tables, start, step, weights):  # type: ignore[no-untyped-def]
    """The log of the largest weight of the states of a leaf, given a state of its neighbor, and the sum over it.

    ``weights`` receives the weights, the largest as 1. The entries of the table for the state of the neighbor begin at
    ``start``; below 0 there is no neighbor.
    """
    high = -np.inf
    total = 0.0
    for a in range(count):
        weights[a] = unary[first + a] if start < 0 else unary[first + a] + tables[start + a * step]
        high = max(high, weights[a])
    for a in range(count):
        weights[a] = np.exp(weights[a] - high) if high > -np.inf else 0.0
        total += weights[a]
    return high, total


@njit(cache=True, nogil=True)
def sum_up(leaves, unary, tables, scratch, scales):  # type: ignore[no-untyped-def]
    """The log of the scales taken out while leaves are summed into ``unary``, in place; -inf if nothing is possible.

    ``scales`` (one per leaf) receives the terms of that log; ``scratch`` is (2, most states).
    """
    sums = scratch[0]
    weights = scratch[1]
    result = 0.0
    carry = 0.0  # compensated: a million terms
    for k in range(len(leaves.variables)):
        v = leaves.variables[k]
        w = leaves.neighbors[k]
        a0 = leaves.offsets[v]
        count = leaves.counts[v]
        step = leaves.own[k]
        width = 1 if w < 0 else leaves.counts[w]
        top = -np.inf
        for b in range(width):
            start = -1 if w < 0 else leaves.starts[k] + b * leaves.other[k]
            high, total = _weigh(unary, a0, count, tables, start, step, weights)
            sums[b] = high + np.log(total) if total > 0.0 else high
            top = max(top, sums[b])
        if top == -np.inf:
            return top
        if w >= 0:
            for b in range(width):
                unary[leaves.offsets[w] + b] += sums[b] - top
        scales[k] = top
        term = top - carry
        new = result + term
        carry = (new - result) - term
        result = new
    return result


@njit(cache=True, nogil=True)
def sum_down(leaves, unary, tables, nodes, edges, weights):  # type: ignore[no-untyped-def]
    """Fill in the marginals of the leaves and of their edges, from those of the variables that are left."""
    for k in range(len(leaves.variables) - 1, -1, -1):
        v = leaves.variables[k]
        w = leaves.neighbors[k]
        a0 = leaves.offsets[v]
        count = leaves.counts[v]
        step = leaves.own[k]
        for a in range(count):
            nodes[a0 + a] = 0.0
        for b in range(1 if w < 0 else leaves.counts[w]):
            start = -1 if w < 0 else leaves.starts[k] + b * leaves.other[k]
            _, total = _weigh(unary, a0, count, tables, start, step, weights)
            above = 1.0 if w < 0 else nodes[leaves.offsets[w] + b]
            share = above / total if total > 0.0 else 0.0
            for a in range(count):
                joint = weights[a] * share
                nodes[a0 + a] += joint
                if w >= 0:
                    edges[start + a * step] = joint


@njit(cache=True, nogil=True)
def _draw_down(leaves, unary, tables, states, uniforms, stop, weights):  # type: ignore[no-untyped-def]
    """Fill in draws of the leaves given their neighbors, in reverse order of summation, by uniforms (leaves, draws)."""
    for row in range(len(uniforms)):
        k = stop - 1 - row
        v = leaves.variables[k]
        w = leaves.neighbors[k]
        a0 = leaves.offsets[v]
        count = leaves.counts[v]
        step = leaves.own[k]
        for d in range(uniforms.shape[1]):
            start = -1 if w < 0 else leaves.starts[k] + states[d, w] * leaves.other[k]
            _, total = _weigh(unary, a0, count, tables, start, step, weights)
            for a in range(count):
                weights[a] /= total
            state = 0
            left = uniforms[row, d] - weights[0]
            while left >= 0.0 and state < count - 1:
                state += 1
                left -= weights[state]
            while weights[state] == 0.0:  # rounding must not choose what is impossible
                state -= 1
            states[d, v] = state
