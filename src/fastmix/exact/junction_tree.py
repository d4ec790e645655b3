"""Exact marginals, log Z and independent draws of a model, planned before anything is allocated.

Unaries, edges and factors are tables over one, two or more variables, and one engine takes them all
(:mod:`fastmix.exact.tree`). On large models the trees that hang on the graph are summed out before
(:mod:`fastmix.exact.leaves`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock, OutOfTimeError
from fastmix.errors import ModelError
from fastmix.exact.planner import Factors
from fastmix.exact.program import Answer
from fastmix.exact.search import CHEAP, find_order
from fastmix.exact.tree import Tree, plan_tree, refuse
from fastmix.graphs import degeneracy
from fastmix.graphs.basics import strip_leaves
from fastmix.model import MarkovRandomField, check_model

if TYPE_CHECKING:
    from fastmix.exact.leaves import Leaves

__all__ = ["JunctionTree", "check_size", "kept_tree", "model_factors", "plan_junction_tree"]


_KEPT = 1000  # variables of a graph whose plan is kept if it is small
_LEAVES = 2000  # variables of hanging trees from which on they are summed out by themselves, compiled
_SMALL = 64  # variables of a graph that needs no bound before an order is looked for
_SECONDS_PER_LEAF = 2e-6
_SECONDS_PER_VARIABLE = 1e-4  # of planning and of two passes, however small the tables are
_DRAWN = 1 << 20  # random numbers at a time


class _Core(NamedTuple):
    """What is left of a graph without its hanging trees: variables, edges, and those that are gone."""

    variables: IntArray
    edges: IntArray
    leaves: Leaves


@dataclass(frozen=True, eq=False)
class JunctionTree:
    """The elimination of all variables of a model, its cost known before anything is allocated."""

    model: MarkovRandomField  # another one on the same graph may take its place by ``dataclasses.replace``
    tree: Tree  # for the variables that are left without hanging trees
    core: _Core | None  # none where all variables are

    @property
    def treewidth(self) -> int:
        """Largest clique minus one: an upper bound on the treewidth of the graph."""
        return max(self.tree.treewidth, int(self.core is not None and (self.core.leaves.neighbors >= 0).any()))

    @property
    def total_entries(self) -> float:
        """Entries of all cliques."""
        entries = self.tree.order.total_entries
        if self.core is not None:
            counts, leaves = self.model.num_states.astype(float), self.core.leaves
            beside = np.where(leaves.neighbors >= 0, counts[leaves.neighbors], 1.0)
            entries += float(counts[leaves.variables] @ beside)
        return entries

    @property
    def required_bytes(self) -> int:
        """Peak memory of :meth:`calibrate`."""
        parameters = len(self.model.log_unary) + len(self.model.log_pairwise)
        return self.tree.required_bytes + 8 * (3 if self.core is None else 5) * parameters

    @property
    def seconds(self) -> float:
        """Estimate of the time that :meth:`calibrate` takes."""
        return self.tree.seconds + (0.0 if self.core is None else _SECONDS_PER_LEAF * len(self.core.leaves.variables))

    def calibrate(self, clock: Clock = NO_LIMIT, *, edge_marginals: bool = True) -> Answer:
        """Log Z, node and edge marginals aligned with the arrays of the model.

        Without ``edge_marginals`` these are zeros. An :class:`fastmix._clock.OutOfTimeError` where the time does not
        do.
        """
        model, core = self.model, self.core
        unary, log_scale = self._sum_leaves()
        clock.check()
        num_edges = model.num_edges if core is None else len(core.edges)
        first = len(self.tree.factors.num_states)
        wanted = range(first, first + num_edges) if edge_marginals and num_edges else False
        answer = self.tree.marginals(_values(model, unary, core), of_factors=wanted, clock=clock)
        nodes, pairs = answer.marginals, answer.factor_marginals if wanted else np.zeros(len(model.log_pairwise))
        log_z = answer.log_z + log_scale + model.log_constant
        if core is None:
            if len(nodes):  # so that the only state of a variable that is allowed has exactly one
                nodes /= np.repeat(np.add.reduceat(nodes, model.unary_offsets[:-1]), model.num_states)
            return Answer(log_z, nodes, pairs, answer.arithmetic)
        from fastmix.exact.leaves import sum_down

        all_nodes, all_pairs = np.zeros(len(model.log_unary)), np.zeros(len(model.log_pairwise))
        all_nodes[_entries(model.unary_offsets, core.variables)] = nodes
        if wanted:
            all_pairs[_entries(model.pairwise_offsets, core.edges)] = pairs
        sum_down(core.leaves, unary, model.log_pairwise, all_nodes, all_pairs, np.empty(int(model.num_states.max())))
        return Answer(log_z, all_nodes, all_pairs, answer.arithmetic)

    def draw(self, num_draws: int, rng: np.random.Generator, clock: Clock = NO_LIMIT) -> IntArray:
        """Independent exact configurations (num_draws, n): variables drawn in reverse order of elimination."""
        model, core = self.model, self.core
        unary, _ = self._sum_leaves()
        drawn = self.tree.draw(num_draws, rng, clock, values=_values(model, unary, core))
        if core is None or not num_draws:
            return drawn if core is None else np.zeros((0, model.num_variables), dtype=np.int64)
        from fastmix.exact.leaves import draw_down

        states = np.zeros((num_draws, model.num_variables), dtype=np.int64)
        states[:, core.variables] = drawn
        leaves, weights = core.leaves, np.empty(int(model.num_states.max()))
        stop, rows = len(leaves.variables), max(1, _DRAWN // num_draws)
        while stop:
            clock.check()
            uniforms = rng.random((min(rows, stop), num_draws))
            draw_down(leaves, unary, model.log_pairwise, states, uniforms, stop, weights)
            stop -= len(uniforms)
        return states

    def _sum_leaves(self) -> tuple[FloatArray, float]:
        """Unaries with the hanging trees summed into them, and the log of the scale taken out."""
        model, core = self.model, self.core
        if core is None:
            return model.log_unary, 0.0
        from fastmix.exact.leaves import sum_up

        unary = model.log_unary.copy()
        sums, scales = np.empty((2, int(model.num_states.max()))), np.empty(len(core.leaves.variables))
        log_scale = float(sum_up(core.leaves, unary, model.log_pairwise, sums, scales))
        if log_scale == -np.inf:
            raise ModelError("no configuration has positive probability: hard constraints contradict each other")
        return unary, log_scale


def plan_junction_tree(model: MarkovRandomField, *, memory_limit: float, clock: Clock = NO_LIMIT) -> JunctionTree:
    """The elimination of all variables that fits a limit in bytes, found before any table is allocated.

    Variables should have at least two states (:func:`fastmix.model.reduce.reduce_model` folds single ones). An
    :class:`fastmix._clock.OutOfTimeError` ends planning that takes too long.
    """
    check_model(model)
    n = model.num_variables
    core = None
    if n > _LEAVES:
        removed, neighbors = strip_leaves(n, model.edges)
        if len(removed) > _LEAVES:
            from fastmix.exact.leaves import Leaves

            left = np.ones(n, dtype=bool)
            left[removed] = False
            leaves = Leaves.of(model, removed, neighbors)
            core = _Core(np.flatnonzero(left), np.flatnonzero(left[model.edges].all(axis=1)), leaves)
    check_size(model, memory_limit, clock, n if core is None else len(core.variables))
    tree = plan_tree(model_factors(model, core), memory_limit=memory_limit, clock=clock)
    return JunctionTree(model, tree, core)


def check_size(model: MarkovRandomField, memory_limit: float, clock: Clock, num_eliminated: int) -> None:
    """Refuse a model whose tables cannot fit, or that cannot be planned in time, before there is a plan."""
    n = model.num_variables
    if _SECONDS_PER_VARIABLE * num_eliminated > clock.left():
        raise OutOfTimeError
    least = int(model.num_states.min()) if n else 1
    if least > 1 and n > _SMALL and model.num_edges > n:
        lower = degeneracy(n, model.edges)
        if lower * math.log2(least) + 3 > math.log2(memory_limit):
            required = 8.0 * float(least) ** lower if lower * math.log2(least) < 1000 else 1e300
            refuse(f"at least {lower}", lower, required, memory_limit, "at least ")


def kept_tree(model: MarkovRandomField, memory_limit: float | None = None) -> JunctionTree | None:
    """The elimination of a small graph, kept with its structure for the next parameters or evidence.

    None where the tables of the first order found are not small, or over the limit. Orders that are small are not
    improved by a search, so it is the one that :func:`plan_junction_tree` finds.
    """
    kept = model.structure.__dict__
    if "exact_tree" not in kept:
        tree = None
        if model.num_variables <= _KEPT and model.num_edges <= 10 * _KEPT:
            factors = model_factors(model)
            order = find_order(factors.num_states, factors.scopes, effort=0.0)
            if order.total_entries <= CHEAP:
                tree = plan_tree(factors._replace(values=np.zeros(0)), order=order)
        kept["exact_tree"] = tree
    tree = kept["exact_tree"]
    found = None if tree is None else JunctionTree(model, tree, None)
    return None if found is None or (memory_limit is not None and found.required_bytes > memory_limit) else found


def model_factors(model: MarkovRandomField, core: _Core | None = None) -> Factors:
    """The terms of a model or of a part: variables, edges (zero tables too: their marginals are wanted), factors."""
    edges, counts = model.edges, model.num_states
    number = np.arange(model.num_variables)
    if core is not None:
        number[core.variables] = np.arange(len(core.variables))
        edges, counts = number[edges[core.edges]], counts[core.variables]
    scopes: list[tuple[int, ...]] = [(i,) for i in range(len(counts))]
    scopes += list(zip(*edges.T.tolist(), strict=True)) if len(edges) else []
    flat, starts = number[model.structure.scope_variables].tolist(), model.structure.scope_starts.tolist()
    scopes += [tuple(flat[a:b]) for a, b in pairwise(starts)]
    return Factors(counts.tolist(), scopes, _values(model, model.log_unary, core))


def _values(model: MarkovRandomField, unary: FloatArray, core: _Core | None) -> FloatArray:
    """The tables of :func:`model_factors`, one after another."""
    pairs = model.log_pairwise
    if core is not None:
        unary = unary[_entries(model.unary_offsets, core.variables)]
        pairs = pairs[_entries(model.pairwise_offsets, core.edges)]
    return np.concatenate([unary, pairs, model.log_factors])


def _entries(offsets: IntArray, chosen: IntArray) -> IntArray:
    """Positions of all entries of some tables."""
    sizes = offsets[chosen + 1] - offsets[chosen]
    return np.arange(int(sizes.sum())) + np.repeat(offsets[chosen] - np.cumsum(sizes) + sizes, sizes)
