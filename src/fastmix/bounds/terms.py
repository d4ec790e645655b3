"""What brackets are computed from: the terms of a model in one vector, the allowance for rounding, bounds on marginals.

The last come from bounds on the weights of states, and from the neighbors of a variable alone.
"""

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

__all__ = ["Terms", "blanket_bounds", "combine", "find_terms", "rounding", "spread", "tighten"]

_EPS = float(np.finfo(np.float64).eps)
_SLACK = 1e-13  # relative, for the few operations from logs to probabilities
_MOST_STATES = 64  # of a variable whose pairs of states are all compared


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


# -- marginals ------------------------------------------------------------------------------------------------------


def tighten(
    log_z: tuple[float, float], lower: FloatArray, upper: FloatArray, terms: Terms
) -> tuple[tuple[float, float], FloatArray, FloatArray]:
    """Bounds on log Z, by what the states of any one variable add up to, and on marginals.

    From bounds L <= log Z <= U, and on the log-weights of all states, laid out as the tables of single variables. With
    the weight of the other states within ``[L_rest, U_rest]``, ``p(x_i = a)`` lies between
    ``1 / (1 + exp(U_rest - L_a))`` and ``1 / (1 + exp(L_rest - U_a))``. Each of the four is also bounded by what the
    others leave of Z: ``exp(L_rest) >= exp(L) - exp(U_a)``, and so on.
    """
    n = terms.num_variables
    if not n:
        return log_z, lower, upper
    starts, counts = terms.offsets[:n], terms.num_states
    low_z = max(log_z[0], float(np.logaddexp.reduceat(lower, starts).max()) - _SLACK)
    high_z = min(log_z[1], float(np.logaddexp.reduceat(upper, starts).min()) + _SLACK)
    upper = np.minimum(upper, high_z)
    rest_lower, rest_upper = _rest(lower, starts, counts), _rest(upper, starts, counts)
    rest_lower = np.maximum(rest_lower, _minus(low_z, upper))
    rest_upper = np.minimum(rest_upper, _minus(high_z, lower))
    own_lower = np.maximum(lower, _minus(low_z, rest_upper))
    own_upper = np.minimum(upper, _minus(high_z, rest_lower))
    with np.errstate(over="ignore", invalid="ignore"):
        low = 1.0 / (1.0 + np.exp(rest_upper - own_lower))
        high = 1.0 / (1.0 + np.exp(rest_lower - own_upper))
    low = np.where(np.isfinite(own_lower) & np.isfinite(rest_upper), low, 0.0)
    high = np.where(np.isfinite(rest_lower) & np.isfinite(own_upper), high, 1.0)
    slack = _SLACK * (1.0 + abs(high_z) + abs(low_z if math.isfinite(low_z) else 0.0))
    return (low_z, high_z), np.maximum(low * (1.0 - slack), 0.0), np.minimum(high * (1.0 + slack), 1.0)


def _rest(values: FloatArray, starts: IntArray, counts: list[int]) -> FloatArray:
    """For every state the log of the summed weights of the other states of its variable."""
    result = np.full(len(values), -np.inf)
    sizes = np.array(counts)
    for count in np.unique(sizes).tolist():
        index = starts[sizes == count][:, None] + np.arange(count)
        block = values[index]
        out = np.empty_like(block)
        for a in range(count):
            others = np.delete(block, a, axis=1)
            out[:, a] = np.logaddexp.reduce(others, axis=1)
        result[index] = out
    return result


def _minus(total: float, part: FloatArray) -> FloatArray:
    """``log(exp(total) - exp(part))``, -inf where that is not positive."""
    if not math.isfinite(total):
        return np.full(len(part), total)
    with np.errstate(divide="ignore", invalid="ignore"):
        left = -np.expm1(np.minimum(part - total, 0.0))
        return total + np.log(left)


def blanket_bounds(terms: Terms) -> tuple[FloatArray, FloatArray]:
    """Bounds on marginals from the terms of each variable alone, whatever its neighbors are.

    A marginal is a mean of conditional probabilities given the neighbors, so it lies between the smallest and the
    largest that differences of log-odds allow, term by term.
    """
    n = terms.num_variables
    most = max(terms.num_states, default=1)
    if most > _MOST_STATES or n * most * most > 1 << 26:
        return np.zeros(terms.num_unary), np.ones(terms.num_unary)
    low, high = np.zeros((n, most, most)), np.zeros((n, most, most))  # of the log-odds of a against b
    for shape, (scopes, places) in terms.groups.items():
        for axis, count in enumerate(shape):
            moved = np.moveaxis(terms.values[places], axis + 1, 1).reshape(len(scopes), count, -1)
            for a in range(count):
                for b in range(count):
                    if a == b:
                        continue
                    with np.errstate(invalid="ignore"):
                        odds = moved[:, a] - moved[:, b]
                    free = np.isfinite(moved[:, a]) & np.isfinite(moved[:, b])
                    np.add.at(low[:, a, b], scopes[:, axis], np.where(free, odds, -np.inf).min(axis=1))
                    np.add.at(high[:, a, b], scopes[:, axis], np.where(free, odds, np.inf).max(axis=1))
    lower, upper = np.zeros(terms.num_unary), np.ones(terms.num_unary)
    sizes = np.array(terms.num_states, dtype=np.int64)
    for count in np.unique(sizes).tolist():
        chosen = np.flatnonzero(sizes == count)
        index = terms.offsets[chosen][:, None] + np.arange(count)
        with np.errstate(over="ignore"):
            lower[index] = 1.0 / np.exp(-low[chosen][:, :count, :count]).sum(axis=2)
            upper[index] = 1.0 / np.exp(-high[chosen][:, :count, :count]).sum(axis=2)
    slack = _SLACK * (1.0 + np.abs(terms.values[terms.values > -np.inf]).max(initial=0.0) * len(terms.groups))
    return lower * (1.0 - slack), np.minimum(upper * (1.0 + slack), 1.0)


def combine(bounds: list[tuple[FloatArray, FloatArray]], terms: Terms) -> tuple[FloatArray, FloatArray]:
    """The best of several bounds on marginals, and what is left by the other states of each variable."""
    lower = np.maximum.reduce([low for low, _ in bounds])
    upper = np.minimum.reduce([high for _, high in bounds])
    if terms.num_variables:
        starts = terms.offsets[: terms.num_variables]
        sums = [np.repeat(np.add.reduceat(x, starts), terms.num_states) for x in (lower, upper)]
        lower, upper = (
            np.maximum(lower, 1.0 - (sums[1] - upper) - 1e-12),
            np.minimum(upper, 1.0 - (sums[0] - lower) + 1e-12),
        )
    return lower, np.maximum(upper, lower)
