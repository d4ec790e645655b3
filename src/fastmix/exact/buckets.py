"""Elimination of chosen variables from tables, by sums or by maxima, in any order; with a limit, an upper bound.

A table per step in plain NumPy, in logarithms: for questions that mix sums and maxima, which the planned programs of
:mod:`fastmix.exact.program` do not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from fastmix._arrays import FloatArray
from fastmix._clock import NO_LIMIT, Clock

__all__ = ["Table", "bucket_order", "bucket_sizes", "eliminate"]


class Table(NamedTuple):
    """The logs of a function of some variables, an axis for each, in rising order."""

    scope: tuple[int, ...]
    values: FloatArray


def bucket_order(
    scopes: Iterable[Sequence[int]], num_states: Sequence[int], chosen: Iterable[int], clock: Clock = NO_LIMIT
) -> list[int]:
    """An order in which to eliminate the chosen variables: always the one whose table is the smallest."""
    around: dict[int, set[int]] = {}
    for scope in scopes:
        for v in scope:
            around.setdefault(v, set()).update(scope)
    waiting = set(chosen)
    logs = [math.log(count) for count in num_states]
    size = {v: sum(logs[u] for u in around.get(v, ())) for v in waiting}
    order = []
    while waiting:
        clock.check()
        best = min(waiting, key=lambda v: (size[v], v))
        waiting.discard(best)
        order.append(best)
        others = around.pop(best, set()) - {best}
        for u in others:
            around[u] |= others
            around[u].discard(best)
            if u in waiting:
                size[u] = sum(logs[w] for w in around[u])
    return order


def bucket_sizes(
    scopes: Iterable[Sequence[int]], num_states: Sequence[int], order: Iterable[int]
) -> tuple[float, list[tuple[int, ...]]]:
    """The entries of all tables that eliminating variables in an order visits, and the scopes that are left."""
    left = [frozenset(scope) for scope in scopes]
    total = 0.0
    for v in order:
        bucket = [scope for scope in left if v in scope]
        joined = frozenset().union(*bucket, {v})
        total += math.prod(float(num_states[u]) for u in joined)
        left = [scope for scope in left if v not in scope]
        left.append(joined - {v})
    return total, [tuple(sorted(scope)) for scope in left if scope]


def eliminate(
    tables: Iterable[Table],
    order: Sequence[int],
    maximized: frozenset[int],
    *,
    num_states: Sequence[int],
    limit: float = math.inf,
    clock: Clock = NO_LIMIT,
) -> tuple[list[Table], float, bool]:
    """The tables that are left, the sum of those without variables, and whether no product had to be split.

    Variables of ``maximized`` are maximized out, all others are summed out. A product of more than ``limit`` entries is
    split into groups, each of which is eliminated by itself: one by the sum and all others by the maximum, which gives
    an upper bound (mini-buckets, Dechter and Rish 2003). Maxima that are taken before a sum, in the order, give an
    upper bound, too: the other way round is what the marginal question asks.
    """
    left = list(tables)
    constant = 0.0
    whole = True
    for v in order:
        clock.check()
        bucket = [table for table in left if v in table.scope]
        left = [table for table in left if v not in table.scope]
        if not bucket:
            constant += 0.0 if v in maximized else math.log(num_states[v])
            continue
        groups = _groups(bucket, num_states, limit)
        whole = whole and len(groups) == 1
        for k, group in enumerate(groups):
            product = _product(group)
            axis = product.scope.index(v)
            is_max = v in maximized or k > 0
            values = product.values.max(axis=axis) if is_max else _log_sum(product.values, axis)
            scope = tuple([u for u in product.scope if u != v])
            if scope:
                left.append(Table(scope, values))
            else:
                constant += float(values)
    return left, constant, whole


def _groups(bucket: list[Table], num_states: Sequence[int], limit: float) -> list[list[Table]]:
    """The tables of a bucket in groups whose products have at most ``limit`` entries, the largest tables first."""
    groups: list[tuple[set[int], list[Table]]] = []
    for table in sorted(bucket, key=lambda table: -table.values.size):
        for scope, members in groups:
            joined = scope | set(table.scope)
            if math.prod(float(num_states[u]) for u in joined) <= limit:
                scope |= joined
                members.append(table)
                break
        else:
            groups.append((set(table.scope), [table]))
    return [members for _, members in groups]


def _product(tables: list[Table]) -> Table:
    """The product of tables: the sum of their logs, over all of their variables."""
    scope = tuple(sorted({v for table in tables for v in table.scope}))
    total: FloatArray | None = None
    for table in tables:
        shape = [1] * len(scope)
        for v, count in zip(table.scope, table.values.shape, strict=True):
            shape[scope.index(v)] = count
        values = table.values.reshape(shape)
        total = values if total is None else total + values
    assert total is not None
    return Table(scope, total)


def _log_sum(values: FloatArray, axis: int) -> FloatArray:
    """Logs of the sums of exponentials along an axis; -inf where there is nothing to add up."""
    largest = values.max(axis=axis, keepdims=True)
    shift = np.where(largest > -np.inf, largest, 0.0)
    with np.errstate(divide="ignore"):
        sums = np.log(np.exp(values - shift).sum(axis=axis))
    return np.asarray(sums + np.squeeze(shift, axis=axis))
