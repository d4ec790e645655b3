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

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix._jit import njit
from fastmix.errors import ImpossibleModelError
from fastmix.exact.junction_tree import JunctionTree, model_factors, plan_tree
from fastmix.exact.program import Answer
from fastmix.model import MarkovRandomField

__all__ = ["Leaves", "PrunedTree", "sum_down", "sum_up"]

_SECONDS_PER_LEAF = 4e-7
_DRAWN = 1 << 20  # random numbers at a time


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
        """From what :func:`fastmix.graphs.basics.strip_leaves` gives."""
        low, high = np.minimum(removed, neighbors), np.maximum(removed, neighbors)
        n = model.num_variables
        edges = np.searchsorted(model.edges[:, 0] * n + model.edges[:, 1], low * n + high)
        edges[neighbors < 0] = 0
        starts = model.pairwise_offsets[edges]
        states, first = model.num_states, removed < neighbors
        own = np.where(first, states[neighbors], 1)
        other = np.where(first, 1, states[removed])
        return cls(removed, neighbors, starts, own, other, states, model.unary_offsets)


@dataclass(frozen=True, eq=False)
class PrunedTree(JunctionTree):
    """The elimination of a model whose hanging trees are summed out first; ``tree`` is for what is left."""

    core: MarkovRandomField  # the variables that are left, their edges and all factors
    leaves: Leaves
    variables: IntArray  # numbers of those left
    unary_positions: IntArray  # of their entries, and of those of their edges
    pairwise_positions: IntArray

    @classmethod
    def plan(
        cls, model: MarkovRandomField, removed: IntArray, neighbors: IntArray, memory_limit: float, clock: Clock
    ) -> PrunedTree:
        """From what :func:`fastmix.graphs.basics.strip_leaves` gives."""
        left = np.ones(model.num_variables, dtype=bool)
        left[removed] = False
        number, kept = np.cumsum(left) - 1, left[model.edges].all(axis=1)
        unary = np.flatnonzero(np.repeat(left, model.num_states))
        pairs = np.flatnonzero(np.repeat(kept, np.diff(model.pairwise_offsets)))
        core = MarkovRandomField(
            model.num_states[left], model.log_unary[unary], number[model.edges[kept]], model.log_pairwise[pairs],
            scope_starts=model.structure.scope_starts, scope_variables=number[model.structure.scope_variables],
            log_factors=model.log_factors,
        )  # fmt: skip
        tree = plan_tree(model_factors(core), memory_limit=memory_limit, clock=clock)
        leaves = Leaves.of(model, removed, neighbors)
        return cls(model, tree, core, leaves, np.flatnonzero(left), unary, pairs)

    @property
    def treewidth(self) -> int:
        """As without leaves, but that these have width 1."""
        return max(super().treewidth, int((self.leaves.neighbors >= 0).any()))

    @property
    def total_entries(self) -> float:
        """Entries of all cliques."""
        counts, neighbors = self.model.num_states.astype(float), self.leaves.neighbors
        beside = np.where(neighbors >= 0, counts[neighbors], 1.0)
        return super().total_entries + float(counts[self.leaves.variables] @ beside)

    @property
    def required_bytes(self) -> int:
        """Peak memory of :meth:`calibrate`."""
        return super().required_bytes + 16 * (len(self.model.log_unary) + len(self.model.log_pairwise))

    @property
    def seconds(self) -> float:
        """Estimate of the time that :meth:`calibrate` takes."""
        return super().seconds + _SECONDS_PER_LEAF * len(self.leaves.variables)

    def calibrate(self, clock: Clock = NO_LIMIT, *, edge_marginals: bool = True) -> Answer:
        """The answer for what is left, and from it that for the leaves."""
        model, (unary, core) = self.model, self._sum_leaves()
        answer = core.calibrate(clock, edge_marginals=edge_marginals)
        nodes, pairs = np.zeros(len(model.log_unary)), np.zeros(len(model.log_pairwise))
        nodes[self.unary_positions], pairs[self.pairwise_positions] = answer.marginals, answer.factor_marginals
        sum_down(self.leaves, unary, model.log_pairwise, nodes, pairs, np.empty(int(model.num_states.max())))
        return answer._replace(marginals=nodes, factor_marginals=pairs)

    def draw(self, num_draws: int, rng: np.random.Generator, clock: Clock = NO_LIMIT) -> IntArray:
        """What is left is drawn first, and leaves given their neighbors."""
        model, (unary, core) = self.model, self._sum_leaves()
        states = np.zeros((num_draws, model.num_variables), dtype=np.int64)
        states[:, self.variables] = core.draw(num_draws, rng, clock)
        weights = np.empty(int(model.num_states.max()))
        stop, rows = len(self.leaves.variables), max(1, _DRAWN // max(1, num_draws))
        while stop:
            clock.check()
            uniforms = rng.random((min(rows, stop), num_draws))
            _draw_down(self.leaves, unary, model.log_pairwise, states, uniforms, stop, weights)
            stop -= len(uniforms)
        return states

    def _sum_leaves(self) -> tuple[FloatArray, JunctionTree]:
        """Unaries with the hanging trees summed into them, and the tree of what is left."""
        model, leaves = self.model, self.leaves
        unary = model.log_unary.copy()
        sums, scales = np.empty((2, int(model.num_states.max()))), np.empty(len(leaves.variables))
        log_scale = float(sum_up(leaves, unary, model.log_pairwise, sums, scales))
        if log_scale == -np.inf:
            raise ImpossibleModelError(
                "no configuration has positive probability: hard constraints contradict each other"
            )
        tables = unary[self.unary_positions], model.log_pairwise[self.pairwise_positions], model.log_factors
        return unary, JunctionTree(self.core._sibling(*tables, model.log_constant + log_scale), self.tree)


@njit(cache=True)
def _weigh(unary, first, count, tables, start, step, weights):  # type: ignore[no-untyped-def]
    """Weights of the states of a leaf, the largest 1, given a state of its neighbor; the log of that scale, their sum.

    The entries of the table for that state begin at ``start``; below 0 there is no neighbor.
    """
    high, total = -np.inf, 0.0
    for a in range(count):
        weights[a] = unary[first + a] if start < 0 else unary[first + a] + tables[start + a * step]
        high = max(high, weights[a])
    for a in range(count):
        weights[a] = np.exp(weights[a] - high) if high > -np.inf else 0.0
        total += weights[a]
    return high, total


@njit(cache=True, nogil=True)
def sum_up(leaves, unary, tables, scratch, scales):  # type: ignore[no-untyped-def]
    """Sum the leaves out into ``unary``, in place; the log of the scales taken out, -inf where nothing is possible.

    ``scales`` (one per leaf) receives the terms of that log; ``scratch`` is (2, most states).
    """
    sums, weights = scratch[0], scratch[1]
    result, carry = 0.0, 0.0  # compensated: a million terms
    for k in range(len(leaves.variables)):
        v, w = leaves.variables[k], leaves.neighbors[k]
        a0, count, step = leaves.offsets[v], leaves.counts[v], leaves.own[k]
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
        v, w = leaves.variables[k], leaves.neighbors[k]
        a0, count, step = leaves.offsets[v], leaves.counts[v], leaves.own[k]
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
    """Draw leaves given what is drawn already, the last of ``stop`` first; uniforms (leaves, draws)."""
    for row in range(len(uniforms)):
        k = stop - 1 - row
        v, w = leaves.variables[k], leaves.neighbors[k]
        a0, count, step = leaves.offsets[v], leaves.counts[v], leaves.own[k]
        for d in range(uniforms.shape[1]):
            start = -1 if w < 0 else leaves.starts[k] + states[d, w] * leaves.other[k]
            _, total = _weigh(unary, a0, count, tables, start, step, weights)
            for a in range(count):
                weights[a] /= total
            state, left = 0, uniforms[row, d] - weights[0]
            while left >= 0.0 and state < count - 1:
                state += 1
                left -= weights[state]
            while weights[state] == 0.0:  # rounding must not choose what is impossible
                state -= 1
            states[d, v] = state
