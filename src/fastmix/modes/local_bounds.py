"""Tighter upper bounds: where messages leave a gap, small parts of the graph are solved exactly.

A pass of messages writes the log-weight as its bound plus terms of variables and edges that are nowhere above 0. What a
configuration falls short of the bound by is what its terms add up to, and mostly comes from a few places where
relaxations of frustrated cycles are not tight. The largest sum of all terms within a part of the graph is at most 0, is
found by elimination, and may be added to the bound for parts that share no variable: all other terms stay at most 0.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fastmix._arrays import BoolArray, FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock, OutOfTimeError
from fastmix.errors import ResourceError
from fastmix.exact.elimination import model_factors, plan_elimination
from fastmix.graphs.components import label_components
from fastmix.model import MarkovRandomField
from fastmix.modes.dual_messages import DualMessages
from fastmix.modes.mode_run import ModeRun
from fastmix.modes.tuning import (
    EDGES_AT_ONCE,
    LEAST_SLACK_SHARE,
    MAX_PART_BYTES,
    MAX_PART_VARIABLES,
    PART_GROWTHS,
    SECONDS_PER_SPLIT_ENTRY,
    SHARE_OF_PARTS,
)

__all__ = ["PassTerms", "tighten_parts"]


def tighten_parts(run: ModeRun, *, share: float = SHARE_OF_PARTS) -> None:
    """Lower the bound of a run, and offer better configurations, by parts around where messages leave a gap.

    1. Write the log-weight as the bound of a pass and terms that are at most 0.
    2. Parts are the variables around terms that the best configuration has below 0, as far as some edges away.
    3. Every part is solved exactly; the sum of the terms lowers the bound, the states may be better ones. Of a part
       that takes too much, the smaller ones within it count that were solved before.
    4. Larger parts come next, as long as a gap is left and some parts can be solved: what is around a part can hold it
       back.

    Nothing is done for models with different numbers of states, forbidden entries or larger factors, and where there is
    no time.
    """
    model = run.model
    states = run.states
    if states is None or model.num_factors or not model.num_edges or model.has_forbidden:
        return
    if (model.num_states != model.num_states[0]).any() or model.num_states[0] < 2:
        return
    seconds = SECONDS_PER_SPLIT_ENTRY * len(model.log_unary) * (1 + 2 * model.num_edges / model.num_variables)
    if run.is_over or seconds > run.clock.left():
        return
    # 1.
    clock = run.clock.part(share)
    terms = PassTerms(run.dual_messages, model, clock)
    if not terms.bound < np.inf:
        return
    slack = run.dual_messages.rounding
    known: list[tuple[IntArray, float]] = []  # parts that share no variable, and their largest sums
    for growth in PART_GROWTHS:
        best = run.states
        assert best is not None
        candidate = best.copy()
        before = known
        known = []
        num_solved = 0
        # 2.
        for part in terms.parts(best, growth, LEAST_SLACK_SHARE * max(run.gap, 0.0)):
            # 3.
            solved = None if clock.past() else terms.solve(part, best, clock)
            if solved is None:
                known += [(small, value) for small, value in before if np.isin(small, part).all()]
            else:
                known.append((part, solved[0]))
                candidate[part] = solved[1]
                num_solved += 1
        run.count("parts", num_solved)
        run.lower_bound(terms.bound + sum(value for _, value in known), 2.0 * slack)
        run.cross(candidate)
        # 4.
        if run.is_over or clock.past() or not num_solved:
            return


class PassTerms:
    """The terms of variables and edges, all at most 0, that a forward pass of messages leaves beside its bound.

    With the belief B_i of a variable less its largest entry, the old message M_ji and the new message M_ij of every
    edge to a variable that is still to come, the share s_i of the belief that each of these gets and their number d_i,

        ``log-weight = bound + sum_i (1 - s_i d_i) B_i(x_i) + sum_ij b_ij(x_i, x_j)``,
        ``b_ij = s_i B_i(x_i) - M_ji(x_i) + T_ij(x_i, x_j) - M_ij(x_j)`` less its largest entry.

    Attributes
    ----------
    bound : float
        That of the pass; inf where the time was over.
    """

    def __init__(self, messages: DualMessages, model: MarkovRandomField, clock: Clock = NO_LIMIT) -> None:
        self.model = model
        self._levels = messages.levels
        self._num_states = int(model.num_states[0])
        shape = (model.num_edges, self._num_states)
        if messages.went_forward:
            messages.make_pass(forward=False, clock=clock)
        self._old = messages.values.reshape(shape).copy()
        self.bound = messages.make_pass(forward=True, clock=clock)
        self._new = messages.values.reshape(shape)
        first, second = model.edges.T
        n = model.num_variables
        beliefs = model.log_unary.reshape(n, -1).copy()
        for ends, sent in ((first, self._old), (second, self._new)):
            for edges in _edges_by_rank(ends):
                beliefs[ends[edges]] += sent[edges]
        beliefs -= beliefs.max(axis=1, keepdims=True)
        to_come = np.bincount(first, minlength=n)
        self._shares = 1.0 / np.maximum(np.maximum(to_come, np.bincount(second, minlength=n)), 1)
        self._rests = 1.0 - self._shares * to_come
        self._beliefs = beliefs

    def _cavities(self, edges: IntArray) -> FloatArray:
        """What the first variable of some edges says to the second beside the table, (k, states)."""
        first = self.model.edges[edges, 0]
        return np.asarray(self._shares[first, None] * self._beliefs[first] - self._old[edges])

    def values(self, states: IntArray) -> tuple[FloatArray, FloatArray]:
        """The terms of all variables (n,) and edges (m,) in a configuration."""
        model = self.model
        of_variables = self._rests * self._beliefs[np.arange(model.num_variables), states]
        of_edges = np.empty(model.num_edges)
        own = np.arange(self._num_states)
        for begin in range(0, model.num_edges, EDGES_AT_ONCE):
            edges = np.arange(begin, min(begin + EDGES_AT_ONCE, model.num_edges))
            first, second = model.edges[edges].T
            sums = self._cavities(edges)
            sums += model.table_entries(edges[:, None], own[None, :], states[second][:, None])
            of_edges[edges] = sums[np.arange(len(edges)), states[first]] - sums.max(axis=1)
        return of_variables, of_edges

    def parts(self, states: IntArray, growth: int, least: float) -> list[IntArray]:
        """Variables, in order, of every part around terms below ``-least``: as many edges away as ``growth`` says."""
        model = self.model
        of_variables, of_edges = self.values(states)
        is_near: BoolArray = of_variables < -least
        is_near[model.edges[of_edges < -least]] = True
        for _ in range(growth):
            touches = is_near[model.edges].any(axis=1)
            is_near[model.edges[touches]] = True
        inside = is_near[model.edges].all(axis=1)
        _, label = label_components(model.num_variables, model.edges[inside])
        chosen = np.flatnonzero(is_near)
        order = chosen[np.argsort(label[chosen], kind="stable")]
        if not len(order):
            return []
        breaks = np.flatnonzero(np.diff(label[order])) + 1
        return np.split(order, breaks)

    def solve(self, part: IntArray, states: IntArray, clock: Clock) -> tuple[float, IntArray] | None:
        """The largest sum of the terms within a part, at most 0, and states that have it; None where it takes too much.

        States that cannot be part of a sum as large as that of the given configuration are left out.
        """
        if len(part) > MAX_PART_VARIABLES:
            return None
        edges, ends = self._edges_within(part)
        of_variables = self._rests[part, None] * self._beliefs[part]
        tables = self._tables(edges)
        given = states[part]
        known = float(of_variables[np.arange(len(part)), given].sum())
        known += float(tables[np.arange(len(edges)), given[ends[:, 0]], given[ends[:, 1]]].sum())
        most = of_variables.copy()
        np.add.at(most, ends[:, 0], tables.max(axis=2))
        np.add.at(most, ends[:, 1], tables.max(axis=1))
        kept = most >= known - 1e-9 * (1.0 - known)
        kept[np.arange(len(part)), given] = True
        flat = [tables[e][np.ix_(kept[i], kept[j])].ravel() for e, (i, j) in enumerate(ends.tolist())]
        small = MarkovRandomField(kept.sum(axis=1), of_variables[kept], ends, np.concatenate([np.zeros(0), *flat]))
        try:
            tree = plan_elimination(model_factors(small), memory_limit=MAX_PART_BYTES, clock=clock)
            largest, chosen = tree.most_probable(clock)
        except (ResourceError, OutOfTimeError):
            return None
        found = [np.flatnonzero(of_one)[s] for of_one, s in zip(kept, chosen, strict=True)]
        return min(0.0, float(largest)), np.array(found, dtype=np.int64)

    def _edges_within(self, part: IntArray) -> tuple[IntArray, IntArray]:
        """The edges within a part, and their ends numbered in the part (k, 2)."""
        graph = self.model.adjacency
        around = np.concatenate([graph.edge_ids[graph.indptr[i] : graph.indptr[i + 1]] for i in part])
        edges, counts = np.unique(around, return_counts=True)
        edges = edges[counts == 2]
        return edges, np.searchsorted(part, self.model.edges[edges])

    def _tables(self, edges: IntArray) -> FloatArray:
        """The terms of some edges in all pairs of states (k, states, states)."""
        size = self._num_states
        tables = self.model.edge_tables(edges, size, size).reshape(-1, size, size) - self._levels[edges, None, None]
        tables = tables + self._cavities(edges)[:, :, None] - self._new[edges][:, None, :]
        tables -= tables.max(axis=(1, 2), keepdims=True, initial=-np.inf)
        return np.asarray(tables)


def _edges_by_rank(ends: IntArray) -> Iterator[IntArray]:
    """Edges in groups, of some thousands at most, in which no variable is the end of two of them."""
    order = np.argsort(ends, kind="stable")
    ordered = ends[order]
    begins = np.flatnonzero(np.append(True, np.diff(ordered) > 0))
    rank = np.arange(len(ends)) - np.repeat(begins, np.diff(np.append(begins, len(ends))))
    for k in range(int(rank.max(initial=-1)) + 1):
        edges = order[rank == k]
        for begin in range(0, len(edges), EDGES_AT_ONCE):
            yield edges[begin : begin + EDGES_AT_ONCE]
