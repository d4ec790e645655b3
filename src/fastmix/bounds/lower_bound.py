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
from fastmix.bounds.reduced_tables import ReducedTables
from fastmix.bounds.tractable_parts import Clusters, split_scope
from fastmix.exact.elimination import FactorElimination, plan_elimination
from fastmix.exact.planner import Factors
from fastmix.exact.search import order_cost
from fastmix.graphs.components import label_components
from fastmix.model.flat import offsets_of
from fastmix.model.rounding import rounding, spread

__all__ = ["LowerBound", "configurations_lower"]


class _Share(NamedTuple):
    """What a table has in one layer of clusters: its number, and the axes whose variables are in the layer."""

    table: int
    axes: tuple[int, ...]


class _Owner(NamedTuple):
    """Where a share of a table is: the number of its layer, and the place among the shares of that layer."""

    layer: int
    place: int


class _Layer:
    """Clusters that no table joins, so that one junction tree does all of them, and their distribution.

    Attributes
    ----------
    variables : list of int
        The variables of all its clusters, in rising order.
    shares : list of _Share
        What tables have in the layer.
    offsets : int array
        Where the entries of each share begin, and the end.
    inside : bool array
        Which of these entries are those of tables that lie within one cluster.
    tree : FactorElimination
        The junction tree over all shares.
    marginals : list of float arrays
        The distribution over the variables of every share.
    free_energy : float
        The entropy of the layer plus the mean of the tables that lie inside it.
    error : float
        What rounding can have made of that.
    """

    def __init__(
        self,
        tables: ReducedTables,
        variables: list[int],
        order: list[int],
        shares: list[_Share],
        is_whole: list[bool],
        memory_limit: float,
    ) -> None:
        self.variables = variables
        self.shares = shares
        local = {variable: place for place, variable in enumerate(variables)}
        states = [tables.num_states[variable] for variable in variables]
        scopes = [tuple([local[tables.scopes[share.table][axis]] for axis in share.axes]) for share in shares]
        sizes = [math.prod([states[variable] for variable in scope]) for scope in scopes]
        self.offsets = offsets_of(np.array(sizes, dtype=np.int64))
        self.inside = np.repeat(np.array(is_whole, dtype=bool), np.diff(self.offsets))
        local_order = np.array([local[variable] for variable in order if variable in local], dtype=np.int64)
        self.tree: FactorElimination = plan_elimination(
            Factors(states, scopes, np.zeros(0)),
            memory_limit=memory_limit,
            order=order_cost(states, scopes, local_order),
        ).run_often()
        self.free_energy = 0.0
        self.error = 0.0
        self.marginals: list[FloatArray] = []


class LowerBound:
    """The bound of a product over clusters, improved layer by layer.

    Parameters
    ----------
    tables : ReducedTables
        The model.
    clusters : Clusters
        Which variables are kept together.
    memory_limit : float
        Bytes for the junction tree of a layer; a :class:`fastmix.ResourceError` where that is not enough.

    Attributes
    ----------
    log_z : float
        The best bound so far on log Z, -inf at first.
    log_weights : float array (num_unary,)
        The best bounds so far on the log-weights of all states.
    num_sweeps : int
        Sweeps over all layers so far.
    done : bool
        Whether another sweep would gain nothing.
    """

    def __init__(self, tables: ReducedTables, clusters: Clusters, *, memory_limit: float = math.inf) -> None:
        self.tables = tables
        self.log_z = -math.inf
        self.log_weights = np.full(tables.num_unary, -np.inf)
        self.num_sweeps = 0
        self.done = False
        self._shapes = [tuple([tables.num_states[v] for v in scope]) for scope in tables.scopes]
        flat = tables.split(tables.values, range(tables.num_tables))
        self._arrays = [values.reshape(shape) for values, shape in zip(flat, self._shapes, strict=True)]
        layer_of = _layer_numbers(tables, clusters.number)
        shares: dict[int, list[_Share]] = {}
        self._owners: list[list[_Owner]] = []  # by table
        for table, scope in enumerate(tables.scopes):
            owners = []
            for part in split_scope(scope, clusters.number):
                layer = int(layer_of[part[0]])
                others = shares.setdefault(layer, [])
                owners.append(_Owner(layer, len(others)))
                others.append(_Share(table, tuple([scope.index(v) for v in part])))
            self._owners.append(owners)
        self._crossing = [table for table, owners in enumerate(self._owners) if len(owners) > 1]
        self._layers = []
        for layer in range(int(layer_of.max(initial=-1)) + 1):
            variables = np.flatnonzero(layer_of == layer).tolist()
            is_whole = [len(self._owners[share.table]) == 1 for share in shares[layer]]
            self._layers.append(_Layer(tables, variables, clusters.order, shares[layer], is_whole, memory_limit))

    def with_tables(self, tables: ReducedTables) -> LowerBound:
        """A copy for a model whose tables of single variables differ; call :meth:`start` before using it.

        Junction trees and distributions are shared with the original, so only one of the two can be improved at a time.
        """
        other = copy.copy(self)
        other.tables = tables
        vectors = tables.split(tables.values, range(tables.num_variables))
        other._arrays = [*vectors, *self._arrays[tables.num_variables :]]
        other.log_z = -math.inf
        other.log_weights = np.full(tables.num_unary, -np.inf)
        other.num_sweeps = 0
        return other

    def start(self, marginals: FloatArray) -> None:
        """Set the distribution to a product of marginals (num_unary,) of single variables, normalized before."""
        tables = self.tables
        vectors = tables.split(_normalized(tables, marginals), range(tables.num_variables))
        for layer in self._layers:
            layer.marginals = []
            for share in layer.shares:
                joint = np.ones(())
                for axis in share.axes:
                    joint = np.multiply.outer(joint, vectors[tables.scopes[share.table][axis]])
                layer.marginals.append(joint.reshape(-1))
            whole = [share.table for share in layer.shares if len(self._owners[share.table]) == 1]
            values = np.concatenate([np.zeros(0), *[self._arrays[table].reshape(-1) for table in whole]])
            joint = np.concatenate([np.zeros(0), *layer.marginals])
            layer.free_energy = _mean(joint[layer.inside], values)
            for v in layer.variables:
                layer.free_energy -= _mean(vectors[v], np.log(np.maximum(vectors[v], 1e-300)))
        self.done = False

    def improve(self, clock: Clock, max_sweeps: int = 10**6) -> None:
        """Sweep over all layers until nothing is gained; an OutOfTimeError when the clock runs out.

        Raises a :class:`fastmix.ModelError` where forbidden entries across clusters leave a layer no configuration.
        """
        last = -math.inf
        for _ in range(max_sweeps):
            if self.done:
                return
            bound = -math.inf
            for number in range(len(self._layers)):
                clock.check()
                bound = self._update(number, clock)
            self.num_sweeps += 1
            self.done = not bound > last + 1e-9 * (1.0 + abs(bound))
            last = bound

    def _update(self, number: int, clock: Clock) -> float:
        """Set one layer to its best distribution given the others; the bound after it."""
        tables = self.tables
        layer = self._layers[number]
        values = self._averaged_tables(number)
        answer = layer.tree.marginals(values, of_factors=True, clock=clock)
        joint = answer.factor_marginals
        layer.marginals = np.split(joint, layer.offsets[1:-1]) if len(layer.offsets) > 1 else []
        layer.free_energy = answer.log_z - _mean(joint[~layer.inside], values[~layer.inside])
        num_operations = 3 * layer.tree.num_tables + sum(tables.num_states) + len(joint)
        layer.error = rounding(num_operations, spread(values, layer.offsets))
        bound = self._bound(number, answer.log_z)
        if math.isfinite(bound):
            self.log_z = max(self.log_z, bound)
            positions = tables.positions(np.array(layer.variables, dtype=np.int64))
            with np.errstate(divide="ignore"):
                self.log_weights[positions] = np.maximum(self.log_weights[positions], bound + np.log(answer.marginals))
        return bound

    def _averaged_tables(self, number: int) -> FloatArray:
        """The tables of a layer: its own, and those shared with other layers, averaged over their variables."""
        tables = []
        for place, share in enumerate(self._layers[number].shares):
            if len(self._owners[share.table]) == 1:
                tables.append(self._arrays[share.table].reshape(-1))
            else:
                tables.append(self._average(share.table, share.axes, _Owner(number, place)))
        return np.concatenate([np.zeros(0), *tables])

    def _average(self, table: int, axes: tuple[int, ...], kept: _Owner | None) -> FloatArray:
        """A table averaged over the variables of all its shares but one, as a function of the axes of that one."""
        shape = self._shapes[table]
        weight = np.ones(())
        averaged: list[int] = []
        for owner in self._owners[table]:
            if owner == kept:
                continue
            layer = self._layers[owner.layer]
            share = layer.shares[owner.place]
            weight = np.multiply.outer(weight, layer.marginals[owner.place].reshape([shape[a] for a in share.axes]))
            averaged.extend(share.axes)
        moved = self._arrays[table].transpose([*axes, *averaged]).reshape(math.prod([shape[a] for a in axes]), -1)
        flat = weight.reshape(-1)
        possible = flat > 0.0  # -inf times zero counts as zero
        return np.asarray(moved[:, possible] @ flat[possible])

    def _bound(self, number: int, layer_log_z: float) -> float:
        """The bound on log Z, with an allowance for rounding, once a layer has its best distribution.

        Then the entropy of the layer and the mean of its tables are together the log Z of these tables.
        """
        tables = self.tables
        updated = self._layers[number]
        bound = tables.log_constant + layer_log_z
        error = updated.error + rounding(len(tables.values), tables.size)
        for layer in self._layers:
            if layer is not updated:
                bound += layer.free_energy
                error += layer.error
        for table in self._crossing:
            if all(owner.layer != number for owner in self._owners[table]):
                bound += float(self._average(table, (), None)[0])
        return bound - error


def _normalized(tables: ReducedTables, marginals: FloatArray) -> FloatArray:
    """Marginals of single variables that add up to one; uniform over the allowed states where all are 0.

    What does not add up to one is no distribution, and proves nothing.
    """
    starts = tables.unary_starts
    if not len(starts):
        return marginals
    empty = ~(np.add.reduceat(marginals, starts) > 0.0)
    if empty.any():
        allowed = (tables.unary > -np.inf).astype(float)
        marginals = np.where(np.repeat(empty, tables.num_states), allowed, marginals)
    return marginals / np.repeat(np.add.reduceat(marginals, starts), tables.num_states)


def _mean(weights: FloatArray, values: FloatArray) -> float:
    """The weighted sum of values, in which those of weight zero do not count even if they are infinite."""
    positive = weights > 0.0
    return float(weights[positive] @ values[positive])


def _layer_numbers(tables: ReducedTables, clusters: IntArray) -> IntArray:
    """The number of the layer of every variable; layers are chosen so that no table joins two clusters of one layer.

    Clusters that fall apart into pieces that no table joins are taken as these pieces. Layers are a greedy coloring of
    the pieces.
    """
    n = tables.num_variables
    if not n:
        return np.zeros(0, dtype=np.int64)
    factor_scopes = tables.factor_scopes
    joined = [(part[0], v) for scope in factor_scopes for part in split_scope(scope, clusters) for v in part[1:]]
    pieces = label_components(n, np.array(joined, dtype=np.int64).reshape(-1, 2))[1]
    neighbors: list[set[int]] = [set() for _ in range(int(pieces.max(initial=-1)) + 1)]
    for scope in factor_scopes:
        touched = {int(pieces[v]) for v in scope}
        if len(touched) > 1:
            for piece in touched:
                neighbors[piece] |= touched
    layer = [-1] * len(neighbors)
    for piece, others in enumerate(neighbors):
        taken = {layer[other] for other in others if other != piece}
        layer[piece] = next(number for number in range(len(taken) + 1) if number not in taken)
    return np.array(layer, dtype=np.int64)[pieces]


def configurations_lower(tables: ReducedTables, states: IntArray) -> tuple[float, FloatArray]:
    """Lower bounds on log Z and on the log-weight of every state: the weights of distinct configurations, added up.

    ``states`` (configurations, n) may hold repeated rows.
    """
    distinct = {row.tobytes(): number for number, row in enumerate(states)}
    states = states[list(distinct.values())]
    scores = tables.log_weights(states)
    scores -= rounding(tables.num_tables, tables.size)
    by_state = np.full(tables.num_unary, -np.inf)
    index = tables.unary_starts + states
    np.logaddexp.at(by_state, index.reshape(-1), np.repeat(scores, tables.num_variables))
    slack = rounding(len(scores), 0.0)
    total = float(np.logaddexp.reduce(scores)) if len(scores) else -math.inf
    return total - slack, by_state - slack
