"""Neighborhoods that no chain has met: how far a conditional probability can swing, in standard errors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
import strategies
from fastmix._student import student_factor
from fastmix.model import MarkovRandomField
from fastmix.sampling import diagnostics
from fastmix.sampling.diagnostics import log_odds_swings, summarize
from oracle.diagnostics import (
    INF,
    collect,
    even,
    markov,
    naive_range,
    naive_span,
    with_complement,
)

# -- neighborhoods that were never met -----------------------------------------------------------------------------


def rare_neighbor() -> tuple[MarkovRandomField, float]:
    """Two variables, of which the second is seldom in its state 1, which moves the first; P(x0 = 1)."""
    model = MarkovRandomField.from_tables([[0.0, 0.0], [0.0, -12.0]], [(0, 1)], [[[0.0, 0.0], [0.0, 6.0]]])
    return model, float(oracle.node_marginals(model)[0][1])


@pytest.mark.parametrize("memory", [1.0, 25.0])
def test_what_was_never_met_is_in_the_standard_error(memory: float) -> None:
    # Independent draws of the neighbor, 1000 each: 0.3 of them never meet its state 1, and know one conditional only.
    model, truth = rare_neighbor()
    rare = float(oracle.node_marginals(model)[1][1])
    rng = np.random.default_rng(0)
    swings = log_odds_swings(model)
    held, silent = 0, 0
    for _ in range(300):
        met = rng.random((4, 250)) < rare
        own = rng.random((4, 250)) < 0.5
        first = np.where(met, oracle.conditional(model, 0, [0, 1])[1], oracle.conditional(model, 0, [0, 0])[1])
        second = np.where(own, oracle.conditional(model, 1, [1, 0])[1], oracle.conditional(model, 1, [0, 0])[1])
        values = with_complement(np.array([first, second]))
        summary = summarize(collect(values, even(250, 25)), model, swings=swings, memory=memory)
        held += abs(summary.mean[1] - truth) <= 1.96 * summary.std_error[1]
        if not met.any():
            silent += 1
            # All draws count, and the log-odds can go from 0 to plus or minus 6.
            span = math.tanh(3.0)
            np.testing.assert_allclose(summary.std_error[:2], 1.5 * span / (1.5 + 1000 / memory), rtol=1e-9)
    assert 60 < silent < 120
    assert held == 300


def test_slow_neighbors_count() -> None:
    # The neighbor of a variable without variation hardly moves: it has met few neighborhoods.
    slow = markov(np.random.default_rng(0), (1, 8), 2000, 0.5, 0.98)
    values = with_complement(np.concatenate([np.full_like(slow, 0.5), slow, np.full_like(slow, 0.5)]))
    model = MarkovRandomField.ising([(0, 1)], 1.0, num_variables=3)
    summary = summarize(collect(values, even(2000, 40)), model, swings=np.full(3, 4.0))
    ess, span = float(summary.ess[1]), math.tanh(2.0)
    assert ess < 300
    np.testing.assert_allclose(summary.std_error[:2], 1.5 * span / (1.5 + ess), rtol=1e-9)
    np.testing.assert_allclose(summary.std_error[4:], 1.5 * span / (1.5 + 16_000), rtol=1e-9)


def naive_log_odds(model: MarkovRandomField, i: int, x: Sequence[int]) -> list[float]:
    """Log-odds of every state of variable i given the others at x; infinite for impossible or certain ones."""
    weights = [oracle.log_weight(model, [*x[:i], state, *x[i + 1 :]]) for state in range(int(model.num_states[i]))]
    others = [oracle.log_sum_exp(weights[:state] + weights[state + 1 :]) for state in range(len(weights))]
    return [INF if o == -INF else w - o for w, o in zip(weights, others, strict=True)]


@given(
    model=strategies.models(min_variables=1, max_variables=4, max_states=3),
    seed=st.integers(0, 2**32 - 1),
)
def test_swings_and_spans_hold_all_conditionals(model: MarkovRandomField, seed: int) -> None:
    rng = np.random.default_rng(seed)
    swings = log_odds_swings(model)
    assert swings.shape == (model.num_variables,)
    assert (swings >= 0.0).all()
    allowed = [x for x, w in zip(oracle.all_configurations(model), oracle.log_weights(model), strict=True) if w > -INF]
    means = []
    conditionals = []
    for i in range(model.num_variables):
        around = sorted({(*x[:i], 0, *x[i + 1 :]) for x in allowed})  # all neighborhoods, at least one
        odds = np.array([naive_log_odds(model, i, x) for x in around])
        for column in odds.T[np.isfinite(odds).all(axis=0)]:
            assert np.ptp(column) <= swings[i] * (1.0 + 1e-9) + 1e-9
        if model.num_states[i] == 2 and not model.has_forbidden:  # then one state of every neighbor is the extreme
            np.testing.assert_allclose(np.ptp(odds[:, 0]), swings[i], rtol=1e-9, atol=1e-9)
        rows = np.array([oracle.conditional(model, i, x) for x in around])
        weights = rng.exponential(size=len(rows)) ** 4  # often of one neighborhood alone, nearly
        means.append(weights @ rows / weights.sum())
        conditionals.append(rows)
    mean = np.minimum(np.concatenate(means), 1.0)
    spans = diagnostics._spans(model, mean, swings)
    for e, (row, swing) in enumerate(
        (row, swing) for rows, swing in zip(conditionals, swings.tolist(), strict=True) for row in rows.T
    ):
        np.testing.assert_allclose(spans[e], naive_span(float(mean[e]), swing), rtol=1e-9, atol=1e-12)
        if 0.0 < mean[e] < 1.0:
            low, high = naive_range(float(mean[e]), swing)
            assert row.min() >= low - 1e-12
            assert row.max() <= high + 1e-12
        assert np.ptp(row) <= spans[e] + 1e-12
    assert (diagnostics._spans(model, mean, None) == 1.0).all()


def test_swings_do_not_depend_on_what_changes_no_conditional() -> None:
    rng = np.random.default_rng(0)
    model = oracle.random_entries(rng, [2, 3, 4], [(0, 1), (1, 2)])
    swings = log_odds_swings(model)
    other = model.replace(log_unary=rng.normal(size=9), log_constant=3.0)
    np.testing.assert_array_equal(log_odds_swings(other), swings)
    order = [2, 0, 1]
    np.testing.assert_allclose(log_odds_swings(strategies.relabel(model, order)), swings[order])
    np.testing.assert_allclose(log_odds_swings(model.replace(log_pairwise=-2.0 * model.log_pairwise)), 2.0 * swings)
    forbidden = model.log_pairwise.copy()
    forbidden[0] = -INF
    assert np.isinf(log_odds_swings(model.replace(log_pairwise=forbidden))).tolist() == [True, True, False]


def test_the_factor_is_the_one_of_student() -> None:
    from scipy.stats import norm, t

    freedoms = range(1, 1001)
    expected = t.isf(0.025, list(freedoms)) / norm.isf(0.025)
    factors = [student_factor(k) for k in freedoms]
    np.testing.assert_allclose(factors, expected, rtol=1e-4)
    assert np.all(np.diff(factors) < 0.0)
    assert 1.0 < student_factor(10**9) < 1.0 + 1e-8
