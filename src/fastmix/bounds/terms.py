"""What brackets are computed from: the terms of a model in one vector, the allowance for rounding, bounds on marginals.

The last come from bounds on the weights of states, and from the neighbors of a variable alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, pairwise

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix.model import Evidence, MarkovRandomField
from fastmix.model.build import offsets_of, reduce_tables
from fastmix.model.centre import take_offsets
from fastmix.model.reduce import Reduction, observed_unary, reduce_model

__all__ = [
    "Terms", "blanket_bounds", "combine", "find_terms", "folding_error", "log_size", "outwards", "rounding", "spread",
    "tighten",
]  # fmt: skip

_EPS = float(np.finfo(np.float64).eps)
_SLACK = 1e-13  # relative, for the few operations from logs to probabilities
_FAINT = 1e-290  # probabilities below it are 0 as lower bounds, and as upper bounds are at least as much: underflow
_SECONDS_PER_ODDS = 5e-9  # of an entry, by the states of its variables, for bounds from neighbors
_APART = 64.0  # nats between all lower and all upper bounds: what they say of marginals is nothing
_MOST_STATES = 64  # of a variable whose pairs of states are all compared


@dataclass(frozen=True, eq=False)
class Terms:
    """A model as a product of tables, first one for every variable, then those over two and more."""

    num_states: list[int]  # two at least for every variable
    scope_starts: IntArray  # (terms + 1,): where the variables of each term begin
    scope_variables: IntArray
    values: FloatArray  # all tables, flat, the last variable of a scope fastest
    log_constant: float
    reduction: Reduction  # the way back to the model of the user

    @property
    def num_variables(self) -> int:
        """Variables that are left."""
        return len(self.num_states)

    @property
    def num_terms(self) -> int:
        """Tables, those of single variables among them."""
        return len(self.scope_starts) - 1

    @cached_property
    def scopes(self) -> list[tuple[int, ...]]:
        """The variables of every term, for loops in Python: large models have no time for it."""
        flat = self.scope_variables.tolist()
        return [tuple(flat[a:b]) for a, b in pairwise(self.scope_starts.tolist())]

    @cached_property
    def offsets(self) -> IntArray:
        """Where each table begins in ``values``, and the end."""
        if not self.num_terms:
            return np.zeros(1, dtype=np.int64)
        counts = np.array(self.num_states, dtype=np.int64)[self.scope_variables]
        return offsets_of(np.multiply.reduceat(counts, self.scope_starts[:-1]))

    @property
    def num_unary(self) -> int:
        """Entries of the tables of single variables, which come first."""
        return int(self.offsets[self.num_variables])

    @property
    def is_product(self) -> bool:
        """Whether no table has more than one variable."""
        return self.num_terms == self.num_variables

    @cached_property
    def largest(self) -> FloatArray:
        """The largest finite absolute entry of every table."""
        return largest_entries(self.values, self.offsets)

    @cached_property
    def size(self) -> float:
        """The sum over tables of the largest finite absolute entry, and that of the constant."""
        return float(self.largest.sum()) + abs(self.log_constant)

    @cached_property
    def best_alone(self) -> IntArray:
        """The first of the states of the largest entry of every variable's own table, (n,)."""
        starts = self.offsets[: self.num_variables]
        unary = self.values[: self.num_unary]
        if not len(starts):
            return np.zeros(0, dtype=np.int64)
        places = np.flatnonzero(unary == np.repeat(np.maximum.reduceat(unary, starts), self.num_states))
        owners = np.searchsorted(starts, places, side="right") - 1
        first = places[np.append(True, owners[1:] != owners[:-1])]
        return np.asarray(first - starts, dtype=np.int64)

    def with_values(self, values: FloatArray, *, log_constant: float | None = None) -> Terms:
        """The same scopes with other tables, and with another constant where one is given."""
        terms = replace(self, values=values, log_constant=self.log_constant if log_constant is None else log_constant)
        terms.__dict__.update({k: v for k, v in self.__dict__.items() if k in ("scopes", "offsets", "groups")})
        return terms

    def cut(self, values: FloatArray, members: Sequence[int] | IntArray) -> list[FloatArray]:
        """The tables of some factors."""
        offsets = self.offsets
        return [values[offsets[f] : offsets[f + 1]] for f in members]

    def only(self, members: IntArray) -> Terms:
        """Some of the terms, given by their numbers in rising order; those of single variables are among them."""
        widths = np.diff(self.scope_starts)
        kept = np.zeros(self.num_terms, dtype=bool)
        kept[members] = True
        variables = self.scope_variables[np.repeat(kept, widths)]
        values = self.values[self.positions(members)]
        return replace(self, scope_starts=offsets_of(widths[members]), scope_variables=variables, values=values)

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
        ends = np.append(starts, len(inner))
        high = reduce_tables(np.maximum, inner, ends)
        low = reduce_tables(np.minimum, np.where(inner > -np.inf, inner, np.inf), ends)
        hard = reduce_tables(np.minimum, inner, ends) == -np.inf
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
        counts, widths = np.array(self.num_states, dtype=np.int64), np.diff(self.scope_starts)
        result = {}
        for width in np.unique(widths).tolist():
            members = np.flatnonzero(widths == width)
            scopes = self.scope_variables[self.scope_starts[members][:, None] + np.arange(width)]
            for shape, some in _by_shape(counts[scopes]):
                places = self.offsets[:-1][members[some]][:, None] + np.arange(math.prod(shape))
                result[shape] = scopes[some], places.reshape(-1, *shape)
        return result


def _by_shape(shapes: IntArray) -> list[tuple[tuple[int, ...], IntArray]]:
    """The distinct rows of shapes (terms, axes), and the numbers of the terms that have each."""
    if (shapes == shapes[0]).all():
        return [(tuple(shapes[0].tolist()), np.arange(len(shapes)))]
    distinct, number = np.unique(shapes, axis=0, return_inverse=True)
    order = np.argsort(number.ravel(), kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(number.ravel()))[:-1])
    return [(tuple(shape), part) for shape, part in zip(distinct.tolist(), parts, strict=True)]


def find_terms(model: MarkovRandomField, evidence: Evidence | None = None, clock: Clock = NO_LIMIT) -> Terms:
    """The terms of a model given evidence, without states that nothing supports, and without constants of tables."""
    reduction = reduce_model(model, evidence, fold_single=True, clock=clock)
    small = reduction.model
    n, num_edges = small.num_variables, small.num_edges
    ends = n + 2 * np.arange(1, num_edges + 1)
    starts = np.concatenate([np.arange(n + 1), ends, n + 2 * num_edges + small.structure.scope_starts[1:]])
    variables = np.concatenate([np.arange(n), small.edges.reshape(-1), small.structure.scope_variables])
    terms = Terms(small.num_states.tolist(), starts, variables, small.parameters, small.log_constant, reduction)
    if small is not model:  # else they were taken before
        values, taken = take_offsets(terms.values, terms.offsets, unseen=0.0, of_spread=2.0)
        constant = math.fsum([terms.log_constant, *taken[taken != 0.0].tolist()])
        terms = terms.with_values(values, log_constant=constant)
    # Pairs that are edges only because a larger factor has both have no table.
    used = reduce_tables(np.logical_or, terms.values != 0.0, terms.offsets).astype(bool)
    used[:n] = True
    return terms if used.all() else terms.only(np.flatnonzero(used))


def largest_entries(values: FloatArray, offsets: IntArray) -> FloatArray:
    """The largest finite absolute entry of every table, 0 where there is none."""
    largest = reduce_tables(np.maximum, np.abs(values), offsets)
    if largest.max(initial=0.0) == np.inf:
        largest = reduce_tables(np.maximum, np.where(values > -np.inf, np.abs(values), 0.0), offsets)
    return np.asarray(largest)


def spread(values: FloatArray, offsets: IntArray) -> float:
    """The sum over tables of the largest finite absolute entry."""
    return float(largest_entries(values, offsets).sum())


def log_size(model: MarkovRandomField) -> float:
    """The sum over the terms of a model, its constant among them, of the largest finite absolute entry."""
    arrays = (
        (model.log_unary, model.unary_offsets),
        (model.log_pairwise, model.pairwise_offsets),
        (model.log_factors, model.factor_offsets),
    )
    return sum([spread(values, offsets) for values, offsets in arrays]) + abs(model.log_constant)


def folding_error(model: MarkovRandomField, evidence: Evidence | None, reduction: Reduction) -> float:
    """What rounding can make of the score of a configuration where evidence, or a single state, is folded into others.

    Every entry is a sum of what was folded into it, of as many numbers as its variable has terms.
    """
    if not (reduction.fixed >= 0).any() and not evidence:
        return 0.0
    variables = np.concatenate([model.edges.reshape(-1), model.structure.scope_variables])
    most = int(np.bincount(variables, minlength=1).max())
    size = log_size(model)
    if evidence:
        size += spread(observed_unary(model, evidence)[0], model.unary_offsets)
    return rounding(most, size)


def rounding(num_operations: float, size: float) -> float:
    """What rounding can make of a log Z or another sum of so many numbers of that total size.

    Every operation is off by a factor of at most ``1 + eps``, so that a product of m tables, summed, is off by at most
    ``m eps`` in its logarithm, and adding m logarithms whose absolute values sum to S by at most ``m eps S``. Four
    times the sum of both is allowed.
    """
    return 4.0 * _EPS * (num_operations + 16.0) * (1.0 + size)


# -- marginals ------------------------------------------------------------------------------------------------------


def outwards(lower: FloatArray, upper: FloatArray, error: FloatArray | float) -> tuple[FloatArray, FloatArray]:
    """Bounds on probabilities whose logarithms were off by at most an error: apart by that, and beyond underflow."""
    lower = lower * np.exp(-np.asarray(error))
    with np.errstate(over="ignore"):
        upper = np.minimum(upper, 1.0) * np.exp(np.asarray(error))
    return np.where(lower < _FAINT, 0.0, lower), np.minimum(np.maximum(upper, _FAINT), 1.0)


def tighten(
    log_z: tuple[float, float], lower: FloatArray, upper: FloatArray, terms: Terms
) -> tuple[tuple[float, float], FloatArray, FloatArray]:
    """Bounds on log Z, by what the states of any one variable add up to, and on marginals.

    From bounds L <= log Z <= U, and on the log-weights of all states, laid out as the tables of single variables. With
    the weight of the other states within ``[L_rest, U_rest]``, ``p(x_i = a)`` lies between
    ``1 / (1 + exp(U_rest - L_a))`` and ``1 / (1 + exp(L_rest - U_a))``. Each of the four is also bounded by what the
    others leave of Z: ``exp(L_rest) >= exp(L) - exp(U_a)``, and so on. All of it is relative to exp(U), so that what
    counts is near 0, where rounding is small.
    """
    n = terms.num_variables
    if not n:
        return log_z, lower, upper
    starts, counts = terms.offsets[:n], terms.num_states
    if float(lower.max()) < float(upper.min()) - _APART:
        return log_z, np.zeros(len(lower)), np.ones(len(upper))
    slack = _SLACK * (1.0 + max(counts) / 16.0)
    unit = log_z[1] if math.isfinite(log_z[1]) else 0.0
    lower, upper = (x - unit + s * _rounding_of_difference(x, unit) for x, s in ((lower, -1.0), (upper, 1.0)))
    low_z = log_z[0] - unit - (4.0 * _EPS * (abs(unit) + abs(log_z[0])) if math.isfinite(log_z[0]) else 0.0)
    high_z = log_z[1] - unit
    low_sum = float(np.logaddexp.reduceat(lower, starts).max())
    high_sum = float(np.logaddexp.reduceat(upper, starts).min())
    low_z = max(low_z, low_sum - slack * (1.0 + abs(low_sum)) if math.isfinite(low_sum) else low_sum)
    high_z = min(high_z, high_sum + slack * (1.0 + abs(high_sum)))
    upper = np.minimum(upper, high_z)
    rest_lower, rest_upper = _rest(lower, starts, counts), _rest(upper, starts, counts)
    rest_lower = np.maximum(rest_lower, _minus(low_z, upper, 1.0))
    rest_upper = np.minimum(rest_upper, _minus(high_z, lower, -1.0))
    own_lower = np.maximum(lower, _minus(low_z, rest_upper, 1.0))
    own_upper = np.minimum(upper, _minus(high_z, rest_lower, -1.0))
    low, high = _ratio(own_lower, rest_upper, -slack), _ratio(own_upper, rest_lower, slack)
    low = np.where(np.isfinite(own_lower) & np.isfinite(rest_upper), low, 0.0)
    high = np.where(np.isfinite(rest_lower) & np.isfinite(own_upper), high, 1.0)
    low, high = outwards(low, high, slack)
    tightest = (
        max(log_z[0], low_z + unit - 4.0 * _EPS * (abs(unit) + abs(low_z)) if math.isfinite(low_z) else low_z),
        min(log_z[1], high_z + unit + 4.0 * _EPS * (abs(unit) + abs(high_z))),
    )
    return tightest, low, high


def _rounding_of_difference(values: FloatArray, unit: float) -> FloatArray:
    """What rounding can make of ``values - unit``; 0 where that is not finite."""
    return np.where(np.isfinite(values), 2.0 * _EPS * (np.abs(values) + abs(unit)), 0.0)


def _ratio(own: FloatArray, rest: FloatArray, slack: float) -> FloatArray:
    """``exp(own) / (exp(own) + exp(rest))``, with a relative slack of the numbers themselves."""
    with np.errstate(over="ignore", invalid="ignore"):
        moved = slack * (np.abs(own) + np.abs(rest))
        return np.asarray(1.0 / (1.0 + np.exp(rest - own - moved)))


def _rest(values: FloatArray, starts: IntArray, counts: list[int]) -> FloatArray:
    """For every state the log of the summed weights of the other states of its variable."""
    result = np.full(len(values), -np.inf)
    sizes = np.array(counts)
    for count in np.unique(sizes).tolist():
        index = starts[sizes == count][:, None] + np.arange(count)
        block = values[index]
        out = np.full_like(block, -np.inf)
        # What comes before every state, and what comes after it: linear in the states.
        before = np.logaddexp.accumulate(block, axis=1)
        after = np.logaddexp.accumulate(block[:, ::-1], axis=1)[:, ::-1]
        out[:, 1:] = before[:, :-1]
        out[:, :-1] = np.logaddexp(out[:, :-1], after[:, 1:])
        result[index] = out
    return result


def _minus(total: float, part: FloatArray, side: float) -> FloatArray:
    """``log(exp(total) - exp(part))``, -inf where that is not positive; a lower (1) or an upper bound (-1) on it.

    Where both are nearly equal their own rounding is most of what is left.
    """
    if not math.isfinite(total):
        return np.full(len(part), total)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.where(np.isfinite(part), 8.0 * _EPS * (1.0 + abs(total) + np.abs(part)), 0.0)
        left = -np.expm1(np.minimum(part - total + side * error, 0.0))
        return np.asarray(total + np.log(left) - side * error)


def blanket_bounds(terms: Terms, clock: Clock = NO_LIMIT) -> tuple[FloatArray, FloatArray]:
    """Bounds on marginals from the terms of each variable alone, whatever its neighbors are.

    A marginal is a mean of conditional probabilities given the neighbors, so it lies between the smallest and the
    largest that differences of log-odds allow, term by term. Nothing is said where there is no time.
    """
    n = terms.num_variables
    most = max(terms.num_states, default=1)
    nothing = np.zeros(terms.num_unary), np.ones(terms.num_unary)
    work = sum([places.size * sum(shape) for shape, (_, places) in terms.groups.items()])
    if most > _MOST_STATES or n * most * most > 1 << 26 or work * _SECONDS_PER_ODDS > clock.left():
        return nothing
    low, high = np.zeros((n, most, most)), np.zeros((n, most, most))  # of the log-odds of a against b
    for shape, (scopes, places) in terms.groups.items():
        stack = terms.values[places]
        for axis, count in enumerate(shape):
            moved = np.moveaxis(stack, axis + 1, 1).reshape(len(scopes), count, -1)
            if clock.past():
                return nothing
            for a, b in combinations(range(count), 2):
                least, largest = _extremes(moved[:, a], moved[:, b])
                low[:, a, b] += np.bincount(scopes[:, axis], least, minlength=n)
                high[:, a, b] += np.bincount(scopes[:, axis], largest, minlength=n)
                low[:, b, a] = -high[:, a, b]
                high[:, b, a] = -low[:, a, b]
    lower, upper = nothing
    sizes = np.array(terms.num_states, dtype=np.int64)
    for count in np.unique(sizes).tolist():
        chosen = np.flatnonzero(sizes == count)
        index = terms.offsets[chosen][:, None] + np.arange(count)
        with np.errstate(over="ignore"):
            lower[index] = 1.0 / np.exp(-low[chosen][:, :count, :count]).sum(axis=2)
            upper[index] = 1.0 / np.exp(-high[chosen][:, :count, :count]).sum(axis=2)
    return outwards(lower, upper, np.repeat(_rounding_of_odds(terms), terms.num_states))


def _extremes(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The least and the largest of every row of ``first - second``; infinite where an entry of a row is."""
    with np.errstate(invalid="ignore"):
        odds = first - second
    flat, ends = odds.reshape(-1), np.arange(len(odds) + 1) * odds.shape[1]
    least, largest = reduce_tables(np.minimum, flat, ends), reduce_tables(np.maximum, flat, ends)
    hard = ~np.isfinite(least) | ~np.isfinite(largest)
    return np.where(hard, -np.inf, least), np.where(hard, np.inf, largest)


def _rounding_of_odds(terms: Terms) -> FloatArray:
    """By variable, what rounding can make of the sum of its terms."""
    n = terms.num_variables
    each = 2.0 * np.repeat(terms.largest, np.diff(terms.scope_starts))
    size = np.bincount(terms.scope_variables, each, minlength=n)
    count = np.bincount(terms.scope_variables, minlength=n)
    return 4.0 * _EPS * (count + 16.0 + max(terms.num_states, default=0)) * (1.0 + size)


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
