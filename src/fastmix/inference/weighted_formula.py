"""A model as a formula whose weighted count is Z: the encoding of Chavira and Darwiche.

A variable of two states is a variable of the formula; one of more states is a literal per state, exactly one of which
holds. Forbidden entries of a table are clauses. Of the other entries those of the weight that most have cost nothing,
because tables are divided by it; every other weight of a table is one more literal, which holds where an entry of that
weight does. Equal entries of a table share that literal, and clauses that differ in one variable are merged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np

from fastmix._arrays import BoolArray, FloatArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix.inference.tuning import MAX_CUBE_ENTRIES
from fastmix.model import MarkovRandomField

__all__ = ["ANY", "WeightedFormula", "cover", "encode", "model_tables"]

#: In a cube: a variable whose state does not matter.
ANY = -1

Cube = tuple[int, ...]


class WeightedFormula(NamedTuple):
    """Clauses over numbered variables from 1, and weights of literals.

    Attributes
    ----------
    num_variables : int
    clauses : list of lists of int
        A negative number is a literal that is negated.
    log_weights : dict
        Of a literal and of its negation; 0 where a literal is not in it.
    log_constant : float
        Z is the weighted count times the exponential of this.
    log_range : pair of float
        Logs that a weighted count which is not zero lies between.
    literals : list of lists of int
        Of every variable of the model, the literal that each of its states is.
    """

    num_variables: int
    clauses: list[list[int]]
    log_weights: dict[int, float]
    log_constant: float
    log_range: tuple[float, float]
    literals: list[list[int]]


def encode(model: MarkovRandomField, clock: Clock = NO_LIMIT) -> WeightedFormula:
    """The formula of a model, in time and memory that grow with the number of entries of its tables."""
    encoder = _Encoder(model)
    for scope, table in model_tables(model):
        clock.check()
        encoder.add_table(scope, table)
    return WeightedFormula(
        encoder.num_variables, encoder.clauses, encoder.log_weights, encoder.log_constant,
        (encoder.log_least, encoder.log_most), encoder.literals,
    )  # fmt: skip


def model_tables(model: MarkovRandomField) -> list[tuple[Sequence[int], FloatArray]]:
    """The scope and the log-potentials of every edge and factor of a model."""
    tables: list[tuple[Sequence[int], FloatArray]] = []
    for edge, (i, j) in enumerate(model.edges.tolist()):
        tables.append(((i, j), model.table_of_edge(edge)))
    starts = model.structure.scope_starts.tolist()
    flat = model.structure.scope_variables.tolist()
    for (first, last), (begin, end) in zip(pairwise(starts), pairwise(model.factor_offsets.tolist()), strict=True):
        scope = flat[first:last]
        tables.append((scope, model.log_factors[begin:end].reshape(model.num_states[scope])))
    return tables


class _Encoder:
    """The formula of a model while it is made, from the unaries on."""

    def __init__(self, model: MarkovRandomField) -> None:
        self.num_variables = 0
        self.clauses: list[list[int]] = []
        self.log_weights: dict[int, float] = {}
        self.log_constant = model.log_constant
        self.log_least = 0.0
        self.log_most = 0.0
        self.literals: list[list[int]] = []
        for begin, end in pairwise(model.unary_offsets.tolist()):
            self._add_variable(model.log_unary[begin:end])

    def _new(self) -> int:
        """The number of a new variable."""
        self.num_variables += 1
        return self.num_variables

    def _add_variable(self, log_unary: FloatArray) -> None:
        """Literals for the states of a variable of the model, weighted by its unary."""
        largest = float(log_unary.max())
        weights = [float(value) - largest for value in log_unary]
        self.log_constant += largest
        if len(weights) == 2:
            number = self._new()
            states = [-number, number]
        else:
            states = [self._new() for _ in weights]
            self.clauses.append(list(states))
            self.clauses += [[-one, -other] for one, other in combinations(states, 2)]
        self.literals.append(states)
        for literal, weight in zip(states, weights, strict=True):
            if weight == -math.inf:
                self.clauses.append([-literal])
            elif weight != 0.0:
                self.log_weights[literal] = weight
                self.log_weights.setdefault(-literal, 0.0)
        self.log_least += min(weight for weight in weights if weight > -math.inf)
        self.log_most += math.log(sum(math.exp(weight) for weight in weights))

    def add_table(self, scope: Sequence[int], table: FloatArray) -> None:
        """Clauses for what a table forbids, and a weighted literal for every weight but one of the others."""
        forbidden = table == -np.inf
        for cube in cover(forbidden, np.zeros_like(forbidden)):
            self.clauses.append(self._negated(scope, cube))
        weights, counts = np.unique(table[~forbidden], return_counts=True)
        if not len(weights):
            return
        usual = float(weights[len(counts) - 1 - counts[::-1].argmax()])  # the largest of those that most entries have
        self.log_constant += usual
        self.log_least += float(weights[0]) - usual
        self.log_most += float(weights[-1]) - usual
        for weight in weights.tolist():
            if weight != usual:
                self._add_weight(scope, table == weight, forbidden, weight - usual)

    def _add_weight(self, scope: Sequence[int], has_weight: BoolArray, forbidden: BoolArray, weight: float) -> None:
        """A literal of a weight that holds where one of some entries does, and nowhere else."""
        literal = self._new()
        self.log_weights[literal] = weight
        self.log_weights[-literal] = 0.0
        cubes = cover(has_weight, forbidden)
        for cube in cubes:
            self.clauses.append([literal, *self._negated(scope, cube)])
        if len(cubes) == 1:
            self.clauses += [[-literal, -other] for other in self._negated(scope, cubes[0])]
            return
        for cube in cover(~has_weight & ~forbidden, forbidden):
            self.clauses.append([-literal, *self._negated(scope, cube)])

    def _negated(self, scope: Sequence[int], cube: Cube) -> list[int]:
        """The clause that a cube does not hold."""
        return [-self.literals[v][state] for v, state in zip(scope, cube, strict=True) if state != ANY]


def cover(wanted: BoolArray, free: BoolArray) -> list[Cube]:
    """Cubes that hold all entries wanted, some free ones, and no others: the largest ones first that are needed.

    A cube has a state of every variable, or :data:`ANY`. Tables that are too large for all cubes to be looked at have
    one cube per entry.
    """
    if not wanted.any():
        return []
    if math.prod(count + 1 for count in wanted.shape) > MAX_CUBE_ENTRIES:
        return [tuple(entry) for entry in np.argwhere(wanted).tolist()]
    # Along every axis one more place than states: that of ANY, where a cube is allowed if it is in all states.
    allowed = wanted | free
    holds = wanted
    for axis in range(wanted.ndim):
        allowed = np.concatenate([allowed, allowed.all(axis=axis, keepdims=True)], axis=axis)
        holds = np.concatenate([holds, holds.any(axis=axis, keepdims=True)], axis=axis)
    prime = allowed & holds
    for axis in range(wanted.ndim):
        wider = np.take(allowed, [-1], axis=axis)
        states = np.delete(np.ones(allowed.shape[axis], dtype=bool), -1)
        is_state = np.append(states, False).reshape([-1 if a == axis else 1 for a in range(wanted.ndim)])
        prime &= ~(is_state & wider)
    cubes = np.argwhere(prime)
    open_axes = (cubes == np.array(wanted.shape)).sum(axis=1)
    left = wanted.copy()
    chosen: list[Cube] = []
    for cube in cubes[np.argsort(-open_axes, kind="stable")].tolist():
        places = tuple(slice(None) if at == size else at for at, size in zip(cube, wanted.shape, strict=True))
        if np.any(left[places]):
            left[places] = False
            chosen.append(tuple(ANY if at == size else at for at, size in zip(cube, wanted.shape, strict=True)))
    return chosen
