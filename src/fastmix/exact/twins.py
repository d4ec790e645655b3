"""Interchangeable variables counted together.

Variables that have the same unary and the same tables with the same other variables, over any scopes, and are in no
scope together, are interchangeable: the weight of a configuration depends only on how many of them are in each state.
A group of k such twins with L states is replaced by one variable whose states are the C(k + L - 1, L - 1) possible
counts, with the multinomial coefficient as its weight. A complete bipartite graph with equal tables, whose treewidth is
its size, becomes two variables and one edge. This is the counting step of lifted inference (de Salvo Braz, Amir and
Roth, 2005; Milch et al., 2008).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock, OutOfTimeError
from fastmix.exact.tuning import (
    MAX_COUNTS,
    SECONDS_PER_TWIN_TERM,
    TERMS_PER_CLOCK_CHECK,
)
from fastmix.model import MarkovRandomField

__all__ = ["TwinReduction", "count_twins"]


@dataclass(frozen=True)
class TwinReduction:
    """A model, the model of its counts, and the maps back.

    ``groups`` are the original variables behind each variable of ``model``; ``counts`` (states of the group, L) say how
    many of them are in each original state, for each state of the group's variable.
    """

    original: MarkovRandomField
    model: MarkovRandomField
    groups: list[IntArray]
    counts: list[IntArray]

    def expand_marginals(self, nodes: FloatArray, edges: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Flat node and edge marginals of the original model from those of the counts.

        For twins i of a group of size k, ``P(x_i = a) = E[count_a] / k``; for an edge between two groups of sizes k
        and l, ``P(x_i = a, x_j = b) = E[count_a count_b] / (k l)``.
        """
        original = self.original
        model = self.model
        node_result = np.empty(len(original.log_unary))
        edge_result = np.empty(len(original.log_pairwise))
        share = [c / len(g) for c, g in zip(self.counts, self.groups, strict=True)]
        for g, members in enumerate(self.groups):
            values = nodes[model.unary_offsets[g] : model.unary_offsets[g + 1]] @ share[g]
            for i in members:
                node_result[original.unary_offsets[i] : original.unary_offsets[i + 1]] = values
        group_of = _owners(self.groups, original.num_variables)
        tables = {}
        for e, (a, b) in enumerate(model.edges.tolist()):
            values = edges[model.pairwise_offsets[e] : model.pairwise_offsets[e + 1]]
            tables[a, b] = share[a].T @ values.reshape(len(share[a]), len(share[b])) @ share[b]
            tables[b, a] = tables[a, b].T
        for e, (i, j) in enumerate(original.edges.tolist()):
            table = tables[group_of[i], group_of[j]]
            edge_result[original.pairwise_offsets[e] : original.pairwise_offsets[e + 1]] = table.reshape(-1)
        return node_result, edge_result

    def expand_draws(self, draws: IntArray, rng: np.random.Generator) -> IntArray:
        """Configurations of the original model: the members of a group share out its counts at random."""
        result = np.empty((len(draws), self.original.num_variables), dtype=np.int64)
        for g, members in enumerate(self.groups):
            counts = self.counts[g][draws[:, g]]
            ordered = np.repeat(np.tile(np.arange(counts.shape[1]), len(draws)), counts.reshape(-1))
            result[:, members] = rng.permuted(ordered.reshape(len(draws), len(members)), axis=1)
        return result


def _owners(groups: list[IntArray], num_variables: int) -> list[int]:
    """The group of each variable."""
    result = np.empty(num_variables, dtype=np.int64)
    for g, members in enumerate(groups):
        result[members] = g
    return result.tolist()


def count_twins(model: MarkovRandomField, clock: Clock = NO_LIMIT) -> TwinReduction | None:
    """The model with every group of twins replaced by its counts; None when there are no twins to join.

    Cost: linear in the entries of the model, plus the tables between groups. An
    :class:`fastmix._clock.OutOfTimeError` where the time on the clock does not do.
    """
    groups = _find_groups(model, clock)
    if len(groups) == model.num_variables:
        return None
    if SECONDS_PER_TWIN_TERM * (len(groups) + model.num_edges + model.num_factors) > clock.left():
        raise OutOfTimeError
    counts = [_compositions(len(g), int(model.num_states[g[0]])) for g in groups]
    terms: list[tuple[tuple[int, ...], FloatArray]] = [((), np.array(model.log_constant))]
    for g, (members, count) in enumerate(zip(groups, counts, strict=True)):
        vector = model.unary(int(members[0]))
        used = np.where(count > 0, count * np.where(count > 0, vector, 0.0), 0.0)  # 0 times -inf is 0 here
        terms.append(((g,), _log_multinomial(count) + used.sum(axis=1)))
    group_of = _owners(groups, model.num_variables)
    pairs = np.sort(np.array(group_of)[model.edges], axis=1)
    distinct, first = np.unique(pairs, axis=0, return_index=True)
    for (a, b), e in zip(distinct.tolist(), first.tolist(), strict=True):
        i, j = model.edges[e].tolist()
        table = model.table(i, j) if group_of[i] == a else model.table(j, i)
        terms.append(((a, b), _count_energy([counts[a], counts[b]], table)))
    factors: dict[tuple[int, ...], FloatArray] = {}
    for scope, table in model.factors:  # all factors over the same groups have the same table
        owners = [group_of[v] for v in scope]
        key = tuple(sorted(owners))
        if key not in factors:
            factors[key] = _count_energy([counts[g] for g in key], table.transpose(np.argsort(owners)))
    reduced = MarkovRandomField.from_factors([len(c) for c in counts], [*terms, *factors.items()])
    return TwinReduction(model, reduced, groups, counts)


def _find_groups(model: MarkovRandomField, clock: Clock) -> list[IntArray]:
    """The variables in groups of twins, most of them alone.

    A variable is known by its unary, its neighbors, the numbers of its tables toward them, and those of its factors.
    """
    suspects = _suspects(model)
    if not suspects.any():
        return [np.array([v], dtype=np.int64) for v in range(model.num_variables)]
    toward = _table_numbers(model, suspects, clock)
    adjacency = model.adjacency
    within = _factor_kinds(model, suspects, clock)
    classes: dict[tuple[bytes, bytes, bytes, frozenset[tuple[bytes, int]]], list[int]] = defaultdict(list)
    for k, v in enumerate(np.flatnonzero(suspects).tolist()):
        if k % TERMS_PER_CLOCK_CHECK == 0:
            clock.check()
        around = slice(adjacency.indptr[v], adjacency.indptr[v + 1])
        neighbors = adjacency.neighbors[around]
        kinds = toward[adjacency.edge_ids[around], (neighbors < v).astype(np.int64)]
        key = (model.unary(v).tobytes(), neighbors.tobytes(), kinds.tobytes(), frozenset(within[v]))
        classes[key].append(v)
    groups = [np.array([v], dtype=np.int64) for v in np.flatnonzero(~suspects)]
    for members in classes.values():
        states = int(model.num_states[members[0]])
        if len(members) > 1 and comb(len(members) + states - 1, states - 1) <= MAX_COUNTS:
            groups.append(np.array(members, dtype=np.int64))
        else:
            groups += [np.array([v], dtype=np.int64) for v in members]
    return groups


def _table_numbers(model: MarkovRandomField, suspects: NDArray[np.bool_], clock: Clock) -> IntArray:
    """Numbers (m, 2) of the tables of the edges at suspects, as seen from each end: equal ones for equal tables."""
    numbers: dict[tuple[int, int, bytes], int] = {}
    result = np.full((model.num_edges, 2), -1, dtype=np.int64)
    starts = model.pairwise_offsets.tolist()
    counts = model.num_states.tolist()
    for e in np.flatnonzero(suspects[model.edges].any(axis=1)).tolist():
        if e % TERMS_PER_CLOCK_CHECK == 0:
            clock.check()
        i, j = model.edges[e].tolist()
        table = model.log_pairwise[starts[e] : starts[e + 1]].reshape(counts[i], counts[j])
        for side, oriented in ((0, table), (1, table.T)):
            result[e, side] = numbers.setdefault((*oriented.shape, oriented.tobytes()), len(numbers))
    return result


def _factor_kinds(
    model: MarkovRandomField, suspects: NDArray[np.bool_], clock: Clock
) -> dict[int, list[tuple[bytes, int]]]:
    """For each variable the others of its factors, and numbers of their tables with its own axis first."""
    numbers: dict[tuple[tuple[int, ...], bytes], int] = {}
    result: dict[int, list[tuple[bytes, int]]] = defaultdict(list)
    for f, (scope, table) in enumerate(model.factors):
        if f % TERMS_PER_CLOCK_CHECK == 0:
            clock.check()
        for axis in np.flatnonzero(suspects[scope]).tolist():
            oriented = np.moveaxis(table, axis, 0)
            number = numbers.setdefault((oriented.shape, oriented.tobytes()), len(numbers))
            result[int(scope[axis])].append((np.delete(scope, axis).tobytes(), number))
    return result


def _suspects(model: MarkovRandomField) -> NDArray[np.bool_]:
    """Variables whose set of neighbors looks like that of another one: the sums of random tags are equal.

    Those without neighbors are apart from the rest, and there is nothing to gain by counting them together.
    """
    tags = np.random.default_rng(0).integers(0, 1 << 63, model.num_variables, dtype=np.uint64)
    adjacency = model.adjacency
    sums = np.append(np.zeros(1, dtype=np.uint64), np.cumsum(tags[adjacency.neighbors], dtype=np.uint64))
    looks = sums[adjacency.indptr[1:]] - sums[adjacency.indptr[:-1]]  # modulo 2^64, which equality survives
    _, which, times = np.unique(looks, return_inverse=True, return_counts=True)
    return np.asarray((times[which] > 1) & (adjacency.degree > 0))


def _compositions(total: int, parts: int) -> IntArray:
    """All vectors of ``parts`` non-negative counts that sum to ``total``; unit vectors in order for 1."""
    if total == 1:
        return np.eye(parts, dtype=np.int64)
    rows = []
    for bars in combinations(range(total + parts - 1), parts - 1):
        cuts = (-1, *bars, total + parts - 1)
        rows.append([cuts[k + 1] - cuts[k] - 1 for k in range(parts)])
    return np.array(rows, dtype=np.int64)


def _log_multinomial(counts: IntArray) -> FloatArray:
    """Logs of the multinomial coefficients of vectors of counts (N, L): arrangements with these counts."""
    from scipy.special import gammaln

    return np.asarray(gammaln(counts.sum(axis=1) + 1.0) - gammaln(counts + 1.0).sum(axis=1))


def _count_energy(counts: list[IntArray], table: FloatArray) -> FloatArray:
    """``sum_ab.. l_a r_b .. table_ab..`` for all tuples of count vectors; a forbidden entry counts only if used."""
    forbidden = table == -np.inf
    energy = np.where(forbidden, 0.0, table)
    used = forbidden.astype(np.float64)
    for count in counts:  # the axis summed goes last, so that all come round
        weights = count.astype(np.float64)
        energy = np.tensordot(energy, weights, axes=(0, 1))
        used = np.tensordot(used, weights, axes=(0, 1))
    return np.where(used > 0, -np.inf, energy)
