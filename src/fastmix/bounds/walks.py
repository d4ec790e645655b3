"""Bounds on the marginals of binary variables from the self-avoiding walks that begin there.

The marginal of a variable of a binary pairwise model is that of the root of the tree of its self-avoiding walks, where
a walk that would close a loop ends in a copy whose state is fixed: by whether the edge that closes comes after the one
that the walk left by, in any order of the edges around a variable (Weitz 2006). Cut short, the ends of the tree can be
in any state, and an interval of log-odds goes up to the root, as messages are monotone in it (the boxes of Mooij and
Kappen 2008). A walk is followed as long as the product of tanh|J| along it, which bounds what its end can do to the
root, is above a threshold; thresholds fall while there is time.

Terms other than pairs of binary variables, and those with -inf, count as what they can do at most: whatever their other
members are, the field on a variable lies in an interval. A marginal is a mean over the configurations of those members,
for each of which the bound holds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import Clock
from fastmix._jit import njit
from fastmix.bounds.terms import Terms, outwards
from fastmix.model.build import offsets_of

__all__ = ["Walks", "follow_walks", "walk_bounds"]


_EPS = float(np.finfo(np.float64).eps)
_CHUNK = 200_000  # nodes between looks at the clock, at most
_NODES_PER_SECOND = 5e6
_DEEPEST = 200  # steps of a walk
_FALL = 0.5  # of the threshold, from round to round
_NARROW = 1e-9  # brackets that are not worth another round
_LEAST_GAIN = 0.01  # of a bracket by a round, relative


class Walks(NamedTuple):
    """Bounds on marginals, laid out as the tables of single variables, and the nodes of all trees."""

    lower: FloatArray
    upper: FloatArray
    num_nodes: int


class _Fields(NamedTuple):
    """An Ising model with fields in intervals: neighbors in CSR form with couplings, and the fields' ends."""

    indptr: IntArray
    indices: IntArray
    couplings: FloatArray
    low: FloatArray
    high: FloatArray


def walk_bounds(terms: Terms, clock: Clock) -> Walks | None:
    """Bounds on the marginals of all binary variables, from longer and longer walks; None if no pair is binary."""
    fields = _fields(terms)
    if fields is None:
        return None
    n = terms.num_variables
    first = np.array(terms.offsets[:n], dtype=np.int64)
    bounds = np.full(n, -np.inf), np.full(n, np.inf)  # of half the log-odds of state 1
    left = np.flatnonzero((np.diff(fields.indptr) > 0) & np.isfinite(fields.low) & np.isfinite(fields.high))
    inverse = _mirror(fields)
    reach = np.zeros(n)  # how far the other terms and all neighbors together can move the field
    np.add.at(reach, np.repeat(np.arange(n), np.diff(fields.indptr)), np.abs(fields.couplings))
    size = 1.0 + float(np.abs(np.concatenate([fields.low[left], fields.high[left]])).max(initial=0.0)) + reach.max()
    threshold, num_nodes, spent = 0.5, 0, 0.0
    path = np.full(n, -1, dtype=np.int64)
    while len(left) and not clock.past():
        began, before = clock.used(), _width(bounds[0][left], bounds[1][left])
        done = 0
        most = max(100, min(_CHUNK, int(0.5 * clock.left() * _NODES_PER_SECOND / len(left))))
        chunk = min(256, max(1, _CHUNK // most))
        for k in range(0, len(left), chunk):
            roots = left[k : k + chunk]
            low, high, nodes = np.empty(len(roots)), np.empty(len(roots)), np.empty(len(roots), dtype=np.int64)
            follow_walks(*fields, inverse, reach, roots, threshold, most, path, low, high, nodes)
            error = 32.0 * _EPS * size * (nodes + 8.0)
            bounds[0][roots] = np.maximum(bounds[0][roots], low - error)
            bounds[1][roots] = np.minimum(bounds[1][roots], high + error)
            num_nodes += int(nodes.sum())
            done = k + len(roots)
            if clock.past():
                break
        clock.report(num_nodes, None, "walks")
        spent = clock.used() - began
        after = _width(bounds[0][left], bounds[1][left])
        more = (after > _NARROW) & ((after < (1.0 - _LEAST_GAIN) * before) | (threshold > 0.02))
        more[done:] = False
        left = left[more]
        threshold *= _FALL
        if threshold < 1e-12 or spent > 0.5 * clock.left():
            break
    lower, upper = np.zeros(terms.num_unary), np.ones(terms.num_unary)
    known = np.flatnonzero(np.isfinite(bounds[0]) & np.isfinite(bounds[1]))
    for state, low, high in ((1, bounds[0], bounds[1]), (0, -bounds[1], -bounds[0])):
        place = first[known] + state
        lower[place], upper[place] = outwards(_probability(low[known]), _probability(high[known]), 4.0 * _EPS)
    return Walks(lower, upper, num_nodes)


def _probability(half_odds: FloatArray) -> FloatArray:
    with np.errstate(over="ignore"):
        return np.asarray(1.0 / (1.0 + np.exp(-2.0 * half_odds)))


def _width(low: FloatArray, high: FloatArray) -> FloatArray:
    return _probability(high) - _probability(low)


def _fields(terms: Terms) -> _Fields | None:
    """Pairs of binary variables as couplings, everything else as intervals of fields."""
    n, states = terms.num_variables, np.array(terms.num_states, dtype=np.int64)
    low, high = np.zeros(n), np.zeros(n)
    pairs: list[IntArray] = []
    couplings: list[FloatArray] = []
    for shape, (scopes, places) in terms.groups.items():
        stack = terms.values[places]
        if shape == (2, 2):
            soft = np.isfinite(stack).all(axis=(1, 2))
            own, ends = stack[soft], scopes[soft]
            pairs.append(ends)
            couplings.append(0.25 * ((own[:, 0, 0] - own[:, 0, 1]) - (own[:, 1, 0] - own[:, 1, 1])))
            for axis, sign in ((0, 1.0), (1, -1.0)):
                effect = 0.25 * ((own[:, 1, 1] - own[:, 0, 0]) + sign * (own[:, 1, 0] - own[:, 0, 1]))
                np.add.at(low, ends[:, axis], effect)
                np.add.at(high, ends[:, axis], effect)
            stack, scopes = stack[~soft], scopes[~soft]
        for axis, count in enumerate(shape):
            if count != 2 or not len(stack):
                continue
            moved = np.moveaxis(stack, axis + 1, 1).reshape(len(stack), 2, -1)
            with np.errstate(invalid="ignore"):
                odds = 0.5 * (moved[:, 1] - moved[:, 0])
            soft = np.isfinite(moved).all(axis=1)
            np.add.at(low, scopes[:, axis], np.where(soft, odds, -np.inf).min(axis=1))
            np.add.at(high, scopes[:, axis], np.where(soft, odds, np.inf).max(axis=1))
    if not pairs or not sum(len(p) for p in pairs):
        return None
    ends, values = np.concatenate(pairs), np.concatenate(couplings)
    rows, cols = np.concatenate([ends[:, 0], ends[:, 1]]), np.concatenate([ends[:, 1], ends[:, 0]])
    order = np.lexsort((cols, rows))
    indptr = offsets_of(np.bincount(rows, minlength=n).astype(np.int64))
    low, high = np.where(states == 2, low, -np.inf), np.where(states == 2, high, np.inf)
    return _Fields(indptr, cols[order], np.concatenate([values, values])[order], low, high)


def _mirror(fields: _Fields) -> IntArray:
    """For every entry (i, j) of the neighbors where (j, i) is: the k-th by (column, row) mirrors entry k."""
    rows = np.repeat(np.arange(len(fields.low)), np.diff(fields.indptr))
    return np.asarray(np.lexsort((rows, fields.indices)), dtype=np.int64)


@njit(cache=True, error_model="numpy")
def _log_cosh(x):  # type: ignore[no-untyped-def]
    x = abs(x)
    return x + np.log1p(np.exp(-2.0 * x))


@njit(cache=True, error_model="numpy")
def _message(coupling, field):  # type: ignore[no-untyped-def]
    """``atanh(tanh J tanh h)``; infinite fields give +-J."""
    if abs(field) > 1e3 + abs(coupling):
        return coupling if field > 0.0 else -coupling
    return 0.5 * (_log_cosh(field + coupling) - _log_cosh(field - coupling))


@njit(cache=True, error_model="numpy")
def follow_walks(  # type: ignore[no-untyped-def]
    indptr, indices, couplings, low, high, mirror, reach, roots, threshold, most, path, out_low, out_high, out_nodes
):
    """Ends of the interval of half the log-odds of every root, and the nodes of its tree; ``path`` is -1 everywhere."""
    depth_limit = min(len(low), _DEEPEST)
    node = np.empty(depth_limit + 1, dtype=np.int64)
    entry = np.empty(depth_limit + 1, dtype=np.int64)  # the next neighbor to look at
    taken = np.empty(depth_limit + 1, dtype=np.int64)  # the entry of the edge that the walk left by
    least = np.empty(depth_limit + 1)
    most_field = np.empty(depth_limit + 1)
    weight = np.empty(depth_limit + 1)
    for r in range(len(roots)):
        depth, count = 0, 1
        node[0], entry[0], weight[0] = roots[r], indptr[roots[r]], 1.0
        least[0], most_field[0] = low[roots[r]], high[roots[r]]
        path[roots[r]] = 0
        while True:
            v = node[depth]
            if entry[depth] == indptr[v + 1]:
                path[v] = -1
                if depth == 0:
                    break
                depth -= 1
                coupling = couplings[taken[depth]]
                one, two = _message(coupling, least[depth + 1]), _message(coupling, most_field[depth + 1])
                least[depth] += min(one, two)
                most_field[depth] += max(one, two)
                continue
            e = entry[depth]
            entry[depth] += 1
            w, coupling = indices[e], couplings[e]
            if depth > 0 and w == node[depth - 1]:
                continue
            count += 1
            if path[w] >= 0:
                # The copy that closes the loop: + if this edge comes after the one that the walk left w by.
                state = 1.0 if mirror[e] > taken[path[w]] else -1.0
                least[depth] += state * coupling
                most_field[depth] += state * coupling
                continue
            influence = weight[depth] * np.tanh(abs(coupling))
            if influence < threshold or count > most or depth + 1 > depth_limit - 1:
                around = reach[w] - abs(coupling)
                one, two = _message(coupling, low[w] - around), _message(coupling, high[w] + around)
                least[depth] += min(one, two)
                most_field[depth] += max(one, two)
                continue
            taken[depth] = e
            depth += 1
            node[depth], entry[depth], weight[depth] = w, indptr[w], influence
            least[depth], most_field[depth] = low[w], high[w]
            path[w] = depth
        out_low[r], out_high[r], out_nodes[r] = least[0], most_field[0], count
