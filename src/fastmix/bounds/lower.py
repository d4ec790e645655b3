"""A lower bound on log Z, and on the log-weight of every state, from a product of distributions over clusters.

For any distribution q, ``log Z >= E_q[score] + entropy(q)``. Here q is a product over clusters of variables, each of
which exact inference can do (Saul and Jordan 1996); clusters of single variables are naive mean field. Given the
others, the best distribution over a cluster has as tables the model's, averaged over what lies outside the cluster; the
bound never falls. Keeping x_i = a changes the cluster of i alone: ``log Z(x_i = a) >= bound + log q(x_i = a)``.
"""

from __future__ import annotations

import copy
import math
from typing import NamedTuple

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import Clock
from fastmix.bounds.covers import Clusters, split_scope
from fastmix.bounds.terms import Terms, rounding, spread
from fastmix.exact.junction_tree import Tree, plan_tree
from fastmix.exact.planner import Factors
from fastmix.exact.search import order_cost
from fastmix.graphs.basics import label_components
from fastmix.model.build import offsets_of

__all__ = ["Lower", "configurations_lower"]


class _Part(NamedTuple):
    """What a factor has in one class of clusters: its number, and the axes of its table that are there."""

    factor: int
    axes: tuple[int, ...]


class _Class:
    """Clusters that no factor joins: one tree for all of them."""

    def __init__(
        self, terms: Terms, variables: list[int], order: list[int], parts: list[_Part], memory_limit: float
    ) -> None:
        self.variables, self.parts = variables, parts
        self.local = {v: k for k, v in enumerate(variables)}
        states = [terms.num_states[v] for v in variables]
        scopes = [tuple([self.local[terms.scopes[p.factor][a]] for a in p.axes]) for p in parts]
        self.offsets = offsets_of(np.array([math.prod([states[v] for v in s]) for s in scopes], dtype=np.int64))
        places = np.array([self.local[v] for v in order if v in self.local], dtype=np.int64)
        self.tree: Tree = plan_tree(
            Factors(states, scopes, np.zeros(0)), memory_limit=memory_limit, order=order_cost(states, scopes, places)
        ).run_often()
        self.inside = np.zeros(0, dtype=bool)  # entries of factors that lie within one cluster
        self.free_energy = self.error = 0.0  # entropy and mean of those factors
        self.marginals: list[FloatArray] = []


class Lower:
    """The bound of a product over clusters, improved class by class.

    ``log_z`` is the best bound so far, -inf at first, and ``states`` are those on the log-weights of all states.
    """

    def __init__(self, terms: Terms, clusters: Clusters, *, memory_limit: float = math.inf) -> None:
        self.terms = terms
        self.log_z, self.states = -math.inf, np.full(terms.num_unary, -np.inf)
        self.shapes = [tuple([terms.num_states[v] for v in scope]) for scope in terms.scopes]
        self.tables = [
            t.reshape(s) for t, s in zip(terms.cut(terms.values, range(len(terms.scopes))), self.shapes, strict=True)
        ]
        color = _color(terms, clusters.number)
        parts: dict[int, list[_Part]] = {}
        self.owners: list[list[tuple[int, int]]] = []  # by factor, its classes and the number of its part in each
        for f, scope in enumerate(terms.scopes):
            owners = []
            for part in split_scope(scope, clusters.number):
                c = int(color[part[0]])
                owners.append((c, len(parts.setdefault(c, []))))
                parts[c].append(_Part(f, tuple([scope.index(v) for v in part])))
            self.owners.append(owners)
        self.classes = []
        for c in range(int(color.max(initial=-1)) + 1):
            variables = np.flatnonzero(color == c).tolist()
            group = _Class(terms, variables, clusters.order, parts[c], memory_limit)
            whole = np.array([len(self.owners[p.factor]) == 1 for p in group.parts])
            group.inside = np.repeat(whole, np.diff(group.offsets))
            self.classes.append(group)
        self.crossing = [f for f, owners in enumerate(self.owners) if len(owners) > 1]
        self.num_sweeps = 0
        self.done = False

    def on(self, terms: Terms) -> Lower:
        """The same clusters for other tables of single variables, to be started; what is in work is shared."""
        other = copy.copy(self)
        other.terms = terms
        vectors = terms.cut(terms.values, range(terms.num_variables))
        other.tables = [*vectors, *self.tables[terms.num_variables :]]
        other.log_z, other.states, other.num_sweeps = -math.inf, np.full(terms.num_unary, -np.inf), 0
        return other

    @property
    def seconds(self) -> float:
        """Estimate of the time of one sweep."""
        return sum(c.tree.seconds for c in self.classes)

    def start(self, marginals: FloatArray) -> None:
        """Go on from a product of marginals of single variables, laid out as their tables, once they are normalized."""
        terms = self.terms
        vectors = terms.cut(_normalized(terms, marginals), range(terms.num_variables))
        for group in self.classes:
            group.marginals = []
            for part in group.parts:
                joint = np.ones(())
                for a in part.axes:
                    joint = np.multiply.outer(joint, vectors[terms.scopes[part.factor][a]])
                group.marginals.append(joint.reshape(-1))
            whole = [p.factor for p in group.parts if len(self.owners[p.factor]) == 1]
            values = np.concatenate([np.zeros(0), *[self.tables[f].reshape(-1) for f in whole]])
            joint = np.concatenate([np.zeros(0), *group.marginals])
            group.free_energy = _mean(joint[group.inside], values)
            for v in group.variables:
                group.free_energy -= _mean(vectors[v], np.log(np.maximum(vectors[v], 1e-300)))
        self.done = False

    def improve(self, clock: Clock, max_sweeps: int = 10**6) -> None:
        """Sweeps over all classes until time is over or nothing is gained."""
        last = -math.inf
        for _ in range(max_sweeps):
            if self.done:
                return
            value = -math.inf
            for c in range(len(self.classes)):
                clock.check()
                value = self._update(c, clock)
            self.num_sweeps += 1
            self.done = not value > last + 1e-9 * (1.0 + abs(value))
            last = value

    def _average(self, f: int, axes: tuple[int, ...], keep: tuple[int, int] | None) -> FloatArray:
        """The table of a factor over some axes, averaged over the other parts of it."""
        table = self.tables[f]
        others = [(c, k) for c, k in self.owners[f] if (c, k) != keep]
        weight = np.ones(())
        order: list[int] = []
        for c, k in others:
            part = self.classes[c].parts[k]
            weight = np.multiply.outer(
                weight, self.classes[c].marginals[k].reshape([self.shapes[f][a] for a in part.axes])
            )
            order.extend(part.axes)
        moved = table.transpose([*axes, *order]).reshape(math.prod([self.shapes[f][a] for a in axes]), -1)
        flat = weight.reshape(-1)
        possible = flat > 0.0
        return np.asarray(moved[:, possible] @ flat[possible])

    def _update(self, c: int, clock: Clock) -> float:
        terms, group = self.terms, self.classes[c]
        tables = []
        for k, part in enumerate(group.parts):
            f = part.factor
            tables.append(
                self.tables[f].reshape(-1) if len(self.owners[f]) == 1 else self._average(f, part.axes, (c, k))
            )
        values = np.concatenate([np.zeros(0), *tables])
        answer = group.tree.marginals(values, of_factors=True, clock=clock)
        joint = answer.factor_marginals
        group.marginals = np.split(joint, group.offsets[1:-1]) if len(group.offsets) > 1 else []
        group.free_energy = answer.log_z - _mean(joint[~group.inside], values[~group.inside])
        group.error = rounding(
            3 * len(group.tree.sequence.sizes) + sum(terms.num_states) + len(joint), spread(values, group.offsets)
        )
        # With the best distribution over this class, entropy and mean of its own tables are its log Z.
        bound = terms.log_constant + answer.log_z
        error = group.error + rounding(len(terms.values), terms.size)
        for other in self.classes:
            if other is not group:
                bound += other.free_energy
                error += other.error
        for f in self.crossing:
            if all(other != c for other, _ in self.owners[f]):
                bound += float(self._average(f, (), None)[0])
        bound -= error
        if math.isfinite(bound):
            self.log_z = max(self.log_z, bound)
            place = terms.positions(np.array(group.variables, dtype=np.int64))
            with np.errstate(divide="ignore"):
                self.states[place] = np.maximum(self.states[place], bound + np.log(answer.marginals))
        return bound


def _normalized(terms: Terms, marginals: FloatArray) -> FloatArray:
    """Marginals of single variables that add up to one; uniform over the allowed states where all are 0.

    What does not add up to one is no distribution, and proves nothing.
    """
    starts = terms.offsets[: terms.num_variables]
    if not len(starts):
        return marginals
    empty = ~(np.add.reduceat(marginals, starts) > 0.0)
    if empty.any():
        allowed = (terms.values[: terms.num_unary] > -np.inf).astype(float)
        marginals = np.where(np.repeat(empty, terms.num_states), allowed, marginals)
    return marginals / np.repeat(np.add.reduceat(marginals, starts), terms.num_states)


def _mean(weights: FloatArray, values: FloatArray) -> float:
    """The sum of values by weights, where those of weight zero do not count."""
    positive = weights > 0.0
    return float(weights[positive] @ values[positive])


def _color(terms: Terms, clusters: IntArray) -> IntArray:
    """The class of every variable, so that no factor joins two clusters of one class."""
    n = terms.num_variables
    joined = [(part[0], v) for scope in terms.scopes[n:] for part in split_scope(scope, clusters) for v in part[1:]]
    pieces = label_components(n, np.array(joined, dtype=np.int64).reshape(-1, 2))[1]
    around: list[set[int]] = [set() for _ in range(int(pieces.max(initial=-1)) + 1)]
    for scope in terms.scopes[n:]:
        touched = {int(pieces[v]) for v in scope}
        if len(touched) > 1:
            for a in touched:
                around[a] |= touched
    color = [-1] * len(around)
    for a, others in enumerate(around):
        taken = {color[b] for b in others if b != a}
        color[a] = next(k for k in range(len(taken) + 1) if k not in taken)
    return np.array(color, dtype=np.int64)[pieces] if n else np.zeros(0, dtype=np.int64)


def configurations_lower(terms: Terms, states: IntArray) -> tuple[float, FloatArray]:
    """The log of the summed weights of distinct configurations (draws, n), and by state."""
    states = states[list({row.tobytes(): k for k, row in enumerate(states)}.values())]
    scores = terms.log_weights(states)
    scores -= rounding(terms.num_terms, terms.size)
    by_state = np.full(terms.num_unary, -np.inf)
    index = terms.offsets[: terms.num_variables] + states
    np.logaddexp.at(by_state, index.reshape(-1), np.repeat(scores, terms.num_variables))
    slack = rounding(len(scores), 0.0)
    total = float(np.logaddexp.reduce(scores)) if len(scores) else -math.inf
    return total - slack, by_state - slack
