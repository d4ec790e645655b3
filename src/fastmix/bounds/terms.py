"""What brackets are computed from: the terms of a model in one vector, and the allowance for rounding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix.exact.junction_tree import model_factors
from fastmix.model import Evidence, MarkovRandomField
from fastmix.model.build import offsets_of
from fastmix.model.reduce import Reduction, reduce_model

__all__ = ["Terms", "find_terms", "rounding", "spread"]


_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class Terms:
    """A model as a product of tables, first one for every variable, then those over two and more."""

    num_states: list[int]  # two at least for every variable
    scopes: list[tuple[int, ...]]
    values: FloatArray  # all tables, flat, the last variable of a scope fastest
    log_constant: float
    reduction: Reduction  # the way back to the model of the user

    @property
    def num_variables(self) -> int:
        """Variables that are left."""
        return len(self.num_states)

    @cached_property
    def offsets(self) -> IntArray:
        """Where each table begins in ``values``, and the end."""
        return offsets_of(np.array([math.prod([self.num_states[v] for v in s]) for s in self.scopes], dtype=np.int64))

    @property
    def num_unary(self) -> int:
        """Entries of the tables of single variables, which come first."""
        return int(self.offsets[self.num_variables])

    @cached_property
    def kept(self) -> IntArray:
        """The places of the states that are left among those of the user's model."""
        return np.flatnonzero(self.reduction.expand_node_marginals(np.full(self.num_unary, 2.0)) > 1.5)

    def with_values(self, values: FloatArray) -> Terms:
        """The same scopes with other tables."""
        terms = replace(self, values=values)
        terms.__dict__.update({k: v for k, v in self.__dict__.items() if k in ("offsets", "groups")})
        return terms

    def cut(self, values: FloatArray, members: Sequence[int] | IntArray) -> list[FloatArray]:
        """The tables of some factors."""
        offsets = self.offsets
        return [values[offsets[f] : offsets[f + 1]] for f in members]

    def positions(self, members: IntArray) -> IntArray:
        """Where the entries of some factors are."""
        sizes = np.diff(self.offsets)[members]
        return np.arange(int(sizes.sum())) + np.repeat(self.offsets[:-1][members] - offsets_of(sizes)[:-1], sizes)

    @cached_property
    def weights(self) -> FloatArray:
        """How much each factor over two and more variables ties them: its range, 30 at most where it forbids."""
        inner = self.values[self.num_unary :]
        starts = self.offsets[self.num_variables : -1] - self.num_unary
        if not len(starts):
            return np.zeros(0)
        high = np.maximum.reduceat(inner, starts)
        low = np.minimum.reduceat(np.where(inner > -np.inf, inner, np.inf), starts)
        hard = np.minimum.reduceat(inner, starts) == -np.inf
        return np.where(hard, 30.0, np.minimum(high - low, 30.0)) + 1e-3

    def log_weights(self, states: IntArray, values: FloatArray | None = None) -> FloatArray:
        """The score of each configuration (draws, n) of the variables left; with other tables, without the constant."""
        total = np.full(len(states), self.log_constant if values is None else 0.0)
        values = self.values if values is None else values
        for shape, (scopes, places) in self.groups.items():
            index = np.zeros((len(states), len(scopes)), dtype=np.int64)
            for axis, size in enumerate(shape):
                index = index * size + states[:, scopes[:, axis]]
            total += values[places.reshape(len(places), -1)[:, 0] + index].sum(axis=1)
        return total

    @cached_property
    def groups(self) -> dict[tuple[int, ...], tuple[IntArray, IntArray]]:
        """By the shape of their tables the scopes of factors (g, axes), and the places of their entries (g, ...)."""
        found: dict[tuple[int, ...], list[int]] = {}
        for f, scope in enumerate(self.scopes):
            found.setdefault(tuple([self.num_states[v] for v in scope]), []).append(f)
        result = {}
        for shape, members in found.items():
            scopes = np.array([self.scopes[f] for f in members], dtype=np.int64)
            places = self.offsets[:-1][members][:, None] + np.arange(math.prod(shape))
            result[shape] = scopes, places.reshape(-1, *shape)
        return result


def find_terms(model: MarkovRandomField, evidence: Evidence | None = None) -> Terms:
    """The terms of a model given evidence, without states that nothing supports."""
    reduction = reduce_model(model, evidence, fold_single=True)
    states, scopes, values = model_factors(reduction.model)
    terms = Terms(list(states), list(scopes), values, reduction.model.log_constant, reduction)
    # Pairs that are edges only because a larger factor has both have no table.
    used = np.ones(len(scopes), dtype=bool)
    if len(scopes):
        used = np.logical_or.reduceat(values != 0.0, terms.offsets[:-1])
    used[: len(states)] = True
    members = np.flatnonzero(used)
    return replace(terms, scopes=[scopes[f] for f in members.tolist()], values=values[terms.positions(members)])


def spread(values: FloatArray, offsets: IntArray) -> float:
    """The sum over tables of the largest finite absolute entry."""
    if len(offsets) < 2:
        return 0.0
    return float(np.maximum.reduceat(np.where(values > -np.inf, np.abs(values), 0.0), offsets[:-1]).sum())


def rounding(num_operations: float, size: float) -> float:
    """What rounding can make of a log Z or another sum of so many numbers of that total size.

    Every operation is off by a factor of at most ``1 + eps``, so that a product of m tables, summed, is off by at most
    ``m eps`` in its logarithm, and adding m logarithms whose absolute values sum to S by at most ``m eps S``. Four
    times the sum of both is allowed.
    """
    return 4.0 * _EPS * (num_operations + 16.0) * (1.0 + size)
