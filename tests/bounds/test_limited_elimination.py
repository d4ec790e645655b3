"""Greedy elimination below a limit: what is left in fits it, and nothing is left out without need."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fastmix._clock import NO_LIMIT, Clock, OutOfTimeError
from fastmix.bounds.limited_elimination import LimitedElimination
from fastmix.exact.search import order_cost


def random_scopes(seed: int) -> tuple[list[int], list[tuple[int, ...]], list[float]]:
    """State counts, scopes of one to three variables, and weights."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 15))
    counts = rng.integers(2, 4, n).tolist()
    sizes = rng.integers(1, min(n, 3) + 1, 2 * n).tolist()
    scopes = sorted({tuple(sorted(rng.permutation(n)[:size].tolist())) for size in sizes})
    return counts, scopes, rng.random(len(scopes)).tolist()


def elimination_of(
    counts: list[int], scopes: list[tuple[int, ...]], weights: list[float], limit: float, *, isolates: bool = False
) -> LimitedElimination:
    log_counts = np.log(counts).tolist()
    return LimitedElimination(log_counts, scopes, weights, math.log(limit), NO_LIMIT, isolates=isolates)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("limit", [4, 27, 100])
def test_factors_that_are_kept_fit_the_limit(seed: int, limit: int) -> None:
    counts, scopes, weights = random_scopes(seed)
    single = [math.prod([counts[v] for v in scope]) for scope in scopes]
    limit = max(limit, *single)  # a single factor is never too large
    elimination = elimination_of(counts, scopes, weights, limit)
    order = elimination.smallest_first([0.0] * len(counts))
    assert sorted(order) == list(range(len(counts)))
    kept = [scope for scope, is_kept in zip(scopes, elimination.kept, strict=True) if is_kept]
    assert order_cost(counts, kept, np.array(order)).max_entries <= limit + 1e-9


@pytest.mark.parametrize("seed", range(30))
def test_variables_that_stand_alone_leave_the_others_a_fit(seed: int) -> None:
    counts, scopes, weights = random_scopes(seed)
    elimination = elimination_of(counts, scopes, weights, 9, isolates=True)
    order = elimination.smallest_first([0.0] * len(counts))
    assert sorted([*order, *elimination.alone]) == list(range(len(counts)))
    assert all(elimination.kept)
    left = [tuple(v for v in scope if v not in elimination.alone) for scope in scopes]
    whole_order = np.array([*order, *elimination.alone])
    assert order_cost(counts, [scope for scope in left if scope], whole_order).max_entries <= 9 + 1e-9


@pytest.mark.parametrize("isolates", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_left_out_where_all_fits(seed: int, isolates: bool) -> None:
    counts, scopes, weights = random_scopes(seed)
    elimination = elimination_of(counts, scopes, weights, 1e12, isolates=isolates)
    elimination.smallest_first([0.0] * len(counts))
    assert all(elimination.kept)
    assert not elimination.alone


@pytest.mark.parametrize("cheapest", range(3))
def test_the_cheapest_edge_of_a_triangle_is_left_out(cheapest: int) -> None:
    weights = [5.0, 5.0, 5.0]
    weights[cheapest] = 0.1
    elimination = elimination_of([2, 2, 2], [(0, 1), (0, 2), (1, 2)], weights, 4.0)
    elimination.smallest_first([0.0, 0.1, 0.2])
    # The last edge closes the triangle only after a variable is gone: one of the two edges of the first is left out.
    assert elimination.kept == [factor != min(cheapest, 1) for factor in range(3)] or sum(elimination.kept) == 2
    if cheapest < 2:
        assert not elimination.kept[cheapest]


def test_the_variable_with_the_weakest_ties_stands_alone() -> None:
    scopes = [(0, 1), (0, 2), (1, 2)]
    elimination = elimination_of([2, 2, 2], scopes, [9.0, 0.1, 0.2], 4.0, isolates=True)
    elimination.smallest_first([0.0, 0.1, 0.2])
    assert elimination.alone == [2]


def test_variables_can_be_excluded_beforehand() -> None:
    elimination = elimination_of([2, 2, 2], [(0, 1)], [1.0], 4.0, isolates=True)
    elimination.done[2] = True
    assert sorted(elimination.smallest_first([0.0] * 3)) == [0, 1]


def test_the_clock_ends_it() -> None:
    log_counts = [math.log(2.0)] * 3
    elimination = LimitedElimination(log_counts, [(0, 1), (1, 2)], [1.0, 1.0], 10.0, Clock(1e-9))
    with pytest.raises(OutOfTimeError):
        elimination.smallest_first([0.0] * 3)
