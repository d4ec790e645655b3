from __future__ import annotations

import itertools
import math
import tracemalloc
import warnings
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import oracle
import strategies
from fastmix.methods import diagnostics
from fastmix.methods.diagnostics import (
    BatchStatistics,
    Summary,
    assess_mixing,
    log_odds_swings,
    summarise,
)
from fastmix.model import MarkovRandomField
from fastmix.model.reduce import certain_entries
from fastmix.results import Status

FloatArray = NDArray[np.float64]
INF = math.inf

# Under 1e-6 false alarms: the normal distribution has less than that beyond 4.9 standard deviations.
NORMAL_QUANTILE = 4.9
RESOLUTION = 2.0**-24


def free_model(num_states: Sequence[int]) -> MarkovRandomField:
    """Variables without edges: only their state counts matter here."""
    return MarkovRandomField.from_tables([np.zeros(count) for count in num_states], [], [])


def indicators(draws: NDArray[np.int64], model: MarkovRandomField) -> FloatArray:
    """States (C, S, n) as indicators (E, C, S)."""
    rows = [draws[:, :, i] == a for i, count in enumerate(model.num_states.tolist()) for a in range(count)]
    return np.array(rows, dtype=np.float64).reshape(len(rows), *draws.shape[:2])


def collect(values: FloatArray, lengths: Sequence[int], expected: int | None = None) -> BatchStatistics:
    """Statistics of values (E, C, S) in batches of these lengths."""
    total = sum(lengths)
    statistics = BatchStatistics(values.shape[0], values.shape[1], total if expected is None else expected)
    ends = [0, *itertools.accumulate(lengths)]
    for start, stop in itertools.pairwise(ends):
        statistics.add(values[:, :, start:stop].sum(axis=2), stop - start)
    return statistics


def even(num_sweeps: int, num_batches: int) -> list[int]:
    return [num_sweeps // num_batches] * num_batches


def markov(rng: np.random.Generator, shape: tuple[int, ...], num_sweeps: int, p: float, lag: float) -> FloatArray:
    """Stationary chains of 0 and 1 (*shape, S) with mean p and autocorrelation ``lag ** k``."""
    up, down = (1.0 - lag) * p, (1.0 - lag) * (1.0 - p)
    x = rng.random(shape) < p
    result = np.empty((num_sweeps, *shape), dtype=np.int8)
    for t in range(num_sweeps):
        result[t] = x
        x = rng.random(shape, dtype=np.float32) < np.where(x, 1.0 - down, up)
    return np.moveaxis(result, 0, -1).astype(np.float64)


def with_complement(ones: FloatArray) -> FloatArray:
    """Entries (2 n, C, S) of n binary variables from their values (n, C, S)."""
    return np.stack([1.0 - ones, ones], axis=1).reshape(2 * len(ones), *ones.shape[1:])


# -- the naive twin, which keeps every draw -------------------------------------------------------------------------


Pieces = list[tuple[int, int]]  # sweeps from .. to


def naive_batches(lengths: Sequence[int]) -> Pieces:
    return list(itertools.pairwise([0, *itertools.accumulate(lengths)]))


def naive_parts(lengths: Sequence[int], num_chains: int, expected: int) -> Pieces:
    """Sweeps of every part: 2 for each chain, at least 16 in all, and a batch belongs to the part of its middle."""
    per_chain = max(2, math.ceil(16 / num_chains))
    parts: dict[int, list[int]] = {}
    for start, stop in naive_batches(lengths):
        number = 0
        while number < per_chain - 1 and Fraction(start + stop, 2) > Fraction((number + 1) * expected, per_chain):
            number += 1
        parts.setdefault(number, [start, stop])[1] = stop
    return [(start, stop) for start, stop in parts.values()]


def naive_variance(x: FloatArray, pieces: Pieces) -> float:
    """Square of the standard error of the mean of values (C, S) from the means of pieces of every chain."""
    mean = math.fsum(x.ravel().tolist()) / x.size
    terms = [(b - a) * (math.fsum(row[a:b].tolist()) / (b - a) - mean) ** 2 for row in x for a, b in pieces]
    return math.fsum(terms) / (len(terms) - 1) / x.size if len(terms) > 1 else 0.0


def naive_r_hat(groups: list[FloatArray]) -> float:
    """Split R-hat of the indicator whose (conditional) probabilities these are."""
    if len(groups) < 2 or sum(map(len, groups)) == len(groups):
        return INF
    n = sum(map(len, groups)) / len(groups)
    mean = float(np.mean(np.concatenate(groups)))
    inner = sum(len(g) * float(g.mean()) * (1 - float(g.mean())) for g in groups) / sum(len(g) - 1 for g in groups)
    outer = sum(len(g) * (float(g.mean()) - mean) ** 2 for g in groups) / (len(groups) - 1)
    if inner == 0.0:
        return INF if outer > 1e-20 else 1.0
    return math.sqrt((n - 1) / n + outer / (n * inner))


def naive_span(mean: float, swing: float) -> float:
    """Width of the range of probabilities whose log-odds are within the swing of those of the mean."""
    if swing == 0.0:
        return 0.0
    if mean in (0.0, 1.0):
        return 1.0
    low, high = naive_range(mean, swing)
    return high - low


def naive_range(mean: float, swing: float) -> tuple[float, float]:
    """The smallest and largest probability whose log-odds are within the swing of those of the mean."""
    if swing == INF:
        return 0.0, 1.0
    odds = math.log(mean) - math.log1p(-mean)
    low, high = (0.5 * (1.0 + math.tanh(0.5 * (odds + change))) for change in (-swing, swing))
    return low, high


def naive_summary(
    values: FloatArray,
    model: MarkovRandomField,
    lengths: Sequence[int],
    *,
    expected: int | None = None,
    swings: Sequence[float] | None = None,
    memory: float = 1.0,
) -> dict[str, list[float]]:
    """What :func:`summarise` returns, from all values (E, C, S)."""
    num_chains, num_sweeps = values.shape[1:]
    total = num_chains * num_sweeps
    batches = naive_batches(lengths)
    parts = naive_parts(lengths, num_chains, num_sweeps if expected is None else expected)
    unary, edges = oracle.unary_vectors(model), model.edges.tolist()
    states = [(i, a) for i, vector in enumerate(unary) for a in range(len(vector))]

    means, errors, r_hats = [], [], []
    ess = [INF] * len(unary)
    for e, (i, a) in enumerate(states):
        x = values[e]
        mean = math.fsum(x.ravel().tolist()) / total
        known = unary[i][a] == -INF or sum(value > -INF for value in unary[i]) == 1
        own = [math.fsum(row[start:stop].tolist()) / (stop - start) for row in x for start, stop in batches]
        same = max(own) - min(own) < 1e-10
        error = math.sqrt(naive_variance(x, batches))
        if num_chains * len(parts) > 1:
            factor = diagnostics.student_factor(num_chains * len(parts) - 1)  # which has a test of its own
            long = naive_variance(x, parts)
            error = max(error, factor * math.sqrt(long))
            if naive_r_hat([row[start:stop] for row in x for start, stop in parts]) > 1.01:
                error = max(error, math.sqrt(naive_variance(x, [(0, num_sweeps)])))
        if num_chains * len(batches) < 2:
            error, looks = INF, 0.0
        elif same:
            error, looks = 0.0, float(total)
        else:
            looks = min(mean * (1.0 - mean) / error**2, total * max(1.0, math.log10(total)))
        means.append(mean)
        errors.append(error)
        ess[i] = min(ess[i], total if known else looks)
        r_hats.append(1.0 if known else naive_r_hat([row[start:stop] for row in x for start, stop in parts]))

    for e, (i, a) in enumerate(states):
        around = [ess[i], *(ess[j] for j, k in edges if k == i), *(ess[k] for j, k in edges if j == i)]
        looks = min(*around, total / max(1.0, memory))
        span = 1.0 if swings is None else naive_span(means[e], swings[i])
        errors[e] = max(RESOLUTION, math.sqrt(errors[e] ** 2 + (1.5 * span / (1.5 + looks)) ** 2))
        if unary[i][a] == -INF or sum(value > -INF for value in unary[i]) == 1:
            errors[e] = 0.0
    largest = [max(r for r, (k, _) in zip(r_hats, states, strict=True) if k == i) for i in range(len(unary))]
    return {"mean": means, "std_error": errors, "ess": ess, "r_hat": largest}


def some_draws(
    rng: np.random.Generator, model: MarkovRandomField, shape: tuple[int, int], stay: float
) -> NDArray[np.int64]:
    """Allowed states (*shape, n) of chains that keep those of a variable with some probability; with 1, all stuck."""
    draws = np.zeros((*shape, model.num_variables), dtype=np.int64)
    for i, vector in enumerate(oracle.unary_vectors(model)):
        draws[:, :, i] = rng.choice([a for a, value in enumerate(vector) if value > -INF], size=shape)
    for t in range(1, shape[1]):
        kept = rng.random((shape[0], model.num_variables)) < stay
        draws[:, t] = np.where(kept, draws[:, t - 1], draws[:, t])
    return draws


@given(
    seed=st.integers(0, 2**32 - 1),
    model=strategies.models(min_variables=1, max_variables=4, scales=(0.3, 2.0)),
    num_chains=st.sampled_from([1, 2, 3, 4, 5, 7, 8, 9]),
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=9),
    stretch=st.sampled_from([1.0, 1.0, 2.0, 0.6]),
    stay=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    smooth=st.booleans(),
    change=st.sampled_from(["anything", "nothing", "model"]),
    memory=st.sampled_from([0.0, 1.0, 7.5, 1e9, INF]),
)
def test_same_as_keeping_every_draw(
    seed: int,
    model: MarkovRandomField,
    num_chains: int,
    lengths: list[int],
    stretch: float,
    stay: float,
    smooth: bool,
    change: str,
    memory: float,
) -> None:
    num_sweeps = sum(lengths)
    values = indicators(some_draws(np.random.default_rng(seed), model, (num_chains, num_sweeps), stay), model)
    if smooth:  # conditional probabilities, between these and uniform ones
        allowed = [np.array(vector) > -INF for vector in oracle.unary_vectors(model)]
        uniform = np.concatenate([row / row.sum() for row in allowed])
        values = 0.7 * values + 0.3 * uniform[:, None, None]
    swings = {"anything": None, "nothing": np.zeros(model.num_variables), "model": log_odds_swings(model)}[change]
    expected = math.ceil(stretch * num_sweeps)
    summary = summarise(collect(values, lengths, expected), model, swings=swings, memory=memory)
    naive = naive_summary(
        values, model, lengths, expected=expected, swings=None if swings is None else swings.tolist(), memory=memory
    )
    for name, value in naive.items():
        np.testing.assert_allclose(getattr(summary, name), value, rtol=1e-9, atol=1e-12, err_msg=name)
    assert (summary.memory, summary.num_chains, summary.num_sweeps) == (memory, num_chains, num_sweeps)
    assert_sound(summary, model)


def test_the_naive_twin_can_fail() -> None:
    # With other parts, or with a neighbour forgotten, it would differ.
    model = MarkovRandomField.ising([(0, 1)], 0.5, num_variables=3)
    draws = some_draws(np.random.default_rng(0), model, (3, 60), 0.8)
    draws[:, :, 1] = np.arange(60) >= 30  # the slow one
    values, lengths = indicators(draws, model), even(60, 20)
    errors = summarise(collect(values, lengths), model).std_error
    longer = naive_summary(values, model, lengths, expected=120)["std_error"]
    alone = naive_summary(values, free_model([2] * 3), lengths)["std_error"]
    assert np.abs(errors - longer).max() > 1e-3
    assert abs(errors[0] - alone[0]) > 1e-3
    np.testing.assert_allclose(errors[2:], alone[2:], rtol=1e-9)


def assert_sound(summary: Summary, model: MarkovRandomField) -> None:
    """What every summary fulfils."""
    assert summary.mean.shape == summary.std_error.shape == model.log_unary.shape
    assert summary.ess.shape == summary.r_hat.shape == (model.num_variables,)
    oracle.assert_read_only(summary.mean, summary.std_error, summary.ess, summary.r_hat)
    for array in (summary.mean, summary.std_error, summary.ess, summary.r_hat):
        assert not np.isnan(array).any()
        assert (array >= 0.0).all()
    assert np.isfinite(summary.mean).all()
    assert np.isfinite(summary.ess).all()
    known = certain_entries(model)
    assert (summary.std_error[~known] >= RESOLUTION).all()
    assert (summary.std_error[known] == 0.0).all()
    for a, b in itertools.pairwise(model.unary_offsets.tolist()):
        assert abs(summary.mean[a:b].sum() - 1.0) < 1e-14


# -- chains with known autocorrelation ------------------------------------------------------------------------------


@pytest.mark.parametrize(("p", "lag"), [(0.5, 0.0), (0.3, 0.5), (0.2, 0.8), (0.6, -0.4)])
@pytest.mark.parametrize("num_chains", [1, 2, 4, pytest.param(8, marks=pytest.mark.slow)])
def test_standard_errors_and_their_coverage(p: float, lag: float, num_chains: int) -> None:
    # Every variable is one replication.
    num_variables, num_sweeps, num_batches = 600, 4000, 40
    rng = np.random.default_rng(round(100 * (p + lag)) + num_chains)
    ones = markov(rng, (num_variables, num_chains), num_sweeps, p, lag)
    model = free_model([2] * num_variables)
    # Nothing is left unseen by variables without neighbours.
    summary = summarise(
        collect(with_complement(ones), even(num_sweeps, num_batches)), model, swings=np.zeros(num_variables)
    )
    # The asymptotic variance p (1 - p) (1 + lag) / (1 - lag); the finite length changes it by less than 1 %.
    true_error = math.sqrt(p * (1 - p) * (1 + lag) / (1 - lag) / (num_chains * num_sweeps))
    error = summary.std_error[1::2]
    np.testing.assert_allclose(error, summary.std_error[::2], rtol=1e-9)
    # The larger of a value with 39 degrees of freedom or more and of one with 15, which is enlarged by 1.0875: 1.12 on
    # average, with a noise of 1.5 % and up to 4 % that the batches of 100 lose.
    assert abs(math.sqrt(np.mean(error**2)) / true_error - 1.12) < 0.07
    # Single ones: below 1 only by the noise of the batches, 11 % for one chain; above also by that of the parts, 20 %.
    low = 1 - 3.2 * math.sqrt(0.5 / (num_chains * num_batches - 1))
    assert (error / true_error > low).mean() > 0.99
    # (Where R-hat is above 1.01 those of the chains count, which may be two.)
    mixed = (summary.r_hat <= 1.01) | (num_chains == 1)
    assert mixed.mean() > 0.7
    assert (error[mixed] / true_error < 1.0875 * (1 + 3 * math.sqrt(0.5 / 15))).mean() > 0.98
    total = num_chains * num_sweeps
    ess = np.minimum(summary.mean[1::2] * summary.mean[::2] / error**2, total * math.log10(total))
    np.testing.assert_allclose(summary.ess, ess, rtol=1e-9)
    assert 0.78 < np.median(summary.ess) / (num_chains * num_sweeps * (1 - lag) / (1 + lag)) < 0.95

    assert_covers(summary.mean[1::2], error, p)
    if lag == 0.8:  # the error of independent draws would be three times too small
        naive = np.sqrt(summary.mean[1::2] * summary.mean[::2] / (num_chains * num_sweeps))
        with pytest.raises(AssertionError, match="covered"):
            assert_covers(summary.mean[1::2], naive, p)


def assert_covers(mean: FloatArray, error: FloatArray, truth: float) -> None:
    """1.96 standard errors hold the truth in at least 95 % of the replications, up to chance."""
    held = float((np.abs(mean - truth) <= 1.96 * error).mean())
    slack = NORMAL_QUANTILE * math.sqrt(0.95 * 0.05 / len(mean))
    assert held >= 0.95 - slack, f"covered {held}"


def test_many_short_chains_know_their_error_from_each_other() -> None:
    # Batches shorter than the autocorrelation time: the batches alone would claim a third of the error.
    rng = np.random.default_rng(5)
    p, lag, num_chains, num_sweeps = 0.4, 0.98, 200, 200
    ones = markov(rng, (50, num_chains), num_sweeps, p, lag)
    summary = summarise(collect(with_complement(ones), even(num_sweeps, 20)), free_model([2] * 50))
    powers = 2 * sum((1 - k / num_sweeps) * lag**k for k in range(1, num_sweeps))
    true_error = math.sqrt(p * (1 - p) * (1 + powers) / (num_chains * num_sweeps))
    np.testing.assert_allclose(summary.std_error[1::2], true_error, rtol=5 * math.sqrt(0.5 / num_chains))
    assert_covers(summary.mean[1::2], summary.std_error[1::2], p)


def test_independent_draws() -> None:
    rng = np.random.default_rng(3)
    model = free_model([2, 3, 5] * 20)
    num_chains, num_sweeps = 4, 5000
    draws = np.floor(rng.random((num_chains, num_sweeps, 60)) * model.num_states).astype(np.int64)
    summary = summarise(collect(indicators(draws, model), even(num_sweeps, 100)), model)
    total = num_chains * num_sweeps
    # r_hat^2 - 1 is (V / W - 1) / n with V / W a chi-square of 7 degrees over 7, and the largest of states.
    assert np.abs(summary.r_hat - 1.0).max() < 0.001
    # The smallest over the states lies below N: 399 degrees of freedom give 7 % for each, and the 15 of the parts give
    # 36 % for what is already 1.0875^2 times too small.
    assert summary.ess.max() < 1.3 * total
    assert summary.ess.min() > 0.3 * total
    assert 0.6 < np.mean(summary.ess) / total < 0.9
    status, sentence = assess_mixing(summary)
    assert status is Status.OK
    assert "agree" in sentence


# -- chains that do not mix -----------------------------------------------------------------------------------------


def test_stuck_chains() -> None:
    # Three chains never leave 0, one never leaves 1.
    values = with_complement(np.repeat([[[0.0], [0.0], [0.0], [1.0]]], 100, axis=2))
    summary = summarise(collect(values, even(100, 10)), free_model([2]))
    assert summary.r_hat.tolist() == [INF]
    # As many draws as chains; and what so few may have missed.
    variance = 0.75 * 0.25 / 3
    np.testing.assert_allclose(summary.ess, 0.75 * 0.25 / variance, rtol=1e-4)
    np.testing.assert_allclose(summary.std_error, math.hypot(math.sqrt(variance), 1.5 / (1.5 + 3)), rtol=1e-4)
    assert summary.r_hat.max() == INF
    status, sentence = assess_mixing(summary)
    assert status is Status.NOT_MIXED
    assert "R-hat is inf for variable 0" in sentence


def test_chains_in_two_modes() -> None:
    rng = np.random.default_rng(0)
    level = np.array([0.9, 0.9, 0.1, 0.1])[None, :, None]
    values = with_complement((rng.random((1, 4, 2000)) < level).astype(float))
    summary = summarise(collect(values, even(2000, 50)), free_model([2]))
    # W = 0.09, V / n = 0.16 * 16 / 15.
    assert abs(summary.r_hat[0] - math.sqrt(1 + 0.16 * 16 / 15 / 0.09)) < 0.1
    # The error of the 4 chains, not of the 16 parts or the 200 batches, and what so few may have missed.
    error, ess = 0.4 / math.sqrt(3), 0.25 * 3 / 0.4**2
    assert abs(summary.std_error[0] - math.hypot(error, 1.5 / (1.5 + ess))) < 0.01
    assert abs(summary.ess[0] - ess) < 2
    assert assess_mixing(summary)[0] is Status.NOT_MIXED


@pytest.mark.parametrize("num_chains", [1, 2, 3, 4, 8, 16])
def test_chains_that_seldom_change_are_not_mixed(num_chains: int) -> None:
    # One change in 2000 sweeps between two modes, 1000 sweeps: whatever the number of chains, under 1 % may agree.
    # Not counted are those that all sit in one place, which only other starts could tell from chains that belong there.
    runs = [x for x in markov(np.random.default_rng(num_chains), (300, num_chains), 1000, 0.5, 0.999) if x.std() > 0.0]
    assert len(runs) > 100
    verdicts = [
        assess_mixing(summarise(collect(with_complement(x[None]), even(1000, 20)), free_model([2]))) for x in runs
    ]
    assert sum(status is Status.OK for status, _ in verdicts) < 0.01 * len(runs)


def test_a_single_chain_that_jumps_once() -> None:
    x = np.concatenate([np.zeros(500), np.ones(500)])[None, None, :]
    summary = summarise(collect(with_complement(x), even(1000, 20)), free_model([2]))
    assert summary.r_hat.tolist() == [INF]
    slow = markov(np.random.default_rng(1), (100, 1), 1000, 0.5, 0.99)
    assert np.median(summarise(collect(with_complement(slow), even(1000, 20)), free_model([2] * 100)).r_hat) > 1.02
    fast = markov(np.random.default_rng(1), (100, 1), 4000, 0.5, 0.2)
    assert summarise(collect(with_complement(fast), even(4000, 50)), free_model([2] * 100)).r_hat.max() < 1.01


def test_states_that_never_change() -> None:
    model = free_model([3, 2])
    values = np.zeros((5, 2, 50))
    values[1], values[3, :, ::2], values[4, :, 1::2] = 1.0, 1.0, 1.0  # variable 0 always in state 1
    summary = summarise(collect(values, even(50, 5)), model)
    np.testing.assert_allclose(summary.std_error[:3], 1.5 / 101.5)  # 1.5 visits among 100 draws
    assert summary.mean.tolist() == [0.0, 1.0, 0.0, 0.5, 0.5]
    assert summary.ess[0] == 100.0
    assert summary.r_hat[0] == 1.0
    assert_sound(summary, model)


def test_one_visit_is_continuous_with_none() -> None:
    # The standard error of a state never seen is 1.5 / N, and that of a state seen once is close to it: the error of
    # what was seen, 1.0875 / N, beside 1.5 visits in a number of draws that is 1.0875^2 times smaller.
    values = np.zeros((2, 4, 1000))
    values[0] = 1.0
    never = summarise(collect(values, even(1000, 40)), free_model([2]))
    values[:, 0, 0] = [0.0, 1.0]
    once = summarise(collect(values, even(1000, 40)), free_model([2]))
    np.testing.assert_allclose(never.std_error, 1.5 / 4000, rtol=0.01)
    np.testing.assert_allclose(once.std_error, math.hypot(1.0875, 1.5 * 1.0875**2) / 4000, rtol=0.01)


def test_known_states_have_no_error() -> None:
    model = MarkovRandomField.from_tables([np.zeros(1), [0.0, -INF], [0.0, 0.0, -INF]], [], [])
    assert certain_entries(model).tolist() == [True, True, True, False, False, True]
    values = np.zeros((6, 3, 40))
    values[0] = values[1] = 1.0
    values[3] = np.random.default_rng(0).random((3, 40)) < 0.5
    values[4] = 1.0 - values[3]
    summary = summarise(collect(values, even(40, 4)), model)
    assert (summary.std_error == 0.0).tolist() == [True, True, True, False, False, True]
    assert summary.ess[:2].tolist() == [120.0, 120.0]
    assert summary.r_hat[:2].tolist() == [1.0, 1.0]
    assert_sound(summary, model)


@pytest.mark.parametrize("num_batches", [0, 1])
def test_too_few_batches(num_batches: int) -> None:
    model = MarkovRandomField.from_tables([[0.0, 0.0, -INF], np.zeros(1)], [], [])
    statistics = BatchStatistics(4, 1, 10)
    if num_batches:
        statistics.add([[4], [6], [0], [10]], 10)
    summary = summarise(statistics, model)
    assert summary.mean.tolist() == ([0.4, 0.6, 0.0, 1.0] if num_batches else [0.5, 0.5, 0.0, 1.0])
    assert summary.std_error.tolist() == [INF, INF, 0.0, 0.0]
    assert summary.ess.tolist() == [0.0, 10.0 * num_batches]
    assert summary.r_hat.tolist() == [INF, 1.0]
    assert_sound(summary, model)
    assert assess_mixing(summary)[0] is Status.NOT_MIXED


def test_a_single_sweep_of_many_chains() -> None:
    # Independent draws, one a chain: the error is known, R-hat is not.
    ones = (np.random.default_rng(2).random((1, 5000, 1)) < 0.3).astype(float)
    summary = summarise(collect(with_complement(ones), [1]), free_model([2]))
    np.testing.assert_allclose(summary.std_error, math.sqrt(0.21 / 5000), rtol=0.05)
    np.testing.assert_allclose(summary.ess, 5000, rtol=0.001)
    assert summary.r_hat.tolist() == [INF]


def test_no_variables() -> None:
    statistics = BatchStatistics(0, 3, 10)
    statistics.add(np.zeros((0, 3)), 10)
    summary = summarise(statistics, free_model([]))
    assert summary.mean.shape == summary.ess.shape == (0,)
    assert summary.r_hat.size == summary.ess.size == 0
    assert assess_mixing(summary) == (Status.OK, "There are no variables to mix.")


# -- sums of conditional probabilities ------------------------------------------------------------------------------


def test_conditional_probabilities() -> None:
    # x alternates quickly between two conditionals, 0.15 and 0.45: their average is 0.3 with a small error.
    rng = np.random.default_rng(8)
    hidden = markov(rng, (300, 3), 2000, 0.5, 0.5)
    ones = 0.15 + 0.3 * hidden
    summary = summarise(collect(with_complement(ones), even(2000, 40)), free_model([2] * 300))
    true_error = 0.3 * math.sqrt(0.25 * 3 / 6000)
    assert abs(math.sqrt(np.mean(summary.std_error**2)) / true_error - 1.12) < 0.05
    assert_covers(summary.mean[1::2], summary.std_error[1::2], 0.3)
    # Worth more than the number of sweeps, but not beyond N log10 N.
    ess = 0.21 / true_error**2
    assert ess > 6000
    assert 0.78 < np.median(summary.ess) / ess < 0.95
    assert (summary.ess <= 6000 * math.log10(6000)).all()
    # Smaller than 1, because V is small beside W: sqrt(1 - 1 / n) with n = 333 at the least.
    assert (np.abs(summary.r_hat - 1) < 0.002).all()


def test_constant_conditional_probabilities() -> None:
    # What never varies, up to rounding, has the error of neighbourhoods never met, or of rounding if there are none.
    model = free_model([2])
    third = np.full((2, 4, 1000), [[[1 / 3]], [[2 / 3]]])
    statistics = collect(third, [7, 93, 400, 500])
    for swing, error in [(None, 1.5 / 4001.5), (0.0, RESOLUTION), (INF, 1.5 / 4001.5)]:
        summary = summarise(statistics, model, swings=None if swing is None else np.array([swing]))
        np.testing.assert_allclose(summary.mean, [1 / 3, 2 / 3], rtol=1e-12)
        np.testing.assert_allclose(summary.std_error, error, rtol=1e-9)
        assert summary.ess.tolist() == [4000.0]
        assert abs(summary.r_hat[0] - 1) < 0.002


def test_small_probabilities_do_not_cancel() -> None:
    # Deviations of 1e-9 from 0.9 survive: squares are taken about the first batch, not about 0.
    rng = np.random.default_rng(0)
    ones = 0.9 + 1e-9 * rng.standard_normal((1, 4, 1000))
    statistics = collect(with_complement(ones), even(1000, 100))
    for squares, length, stop in [(statistics.squares, 10, 1000), (statistics.part_squares, 250, 750)]:
        means = ones[0, :, :stop].reshape(-1, length).mean(axis=1)
        expected = length * math.fsum(((means - ones[0, :, :10].mean()) ** 2).tolist())
        np.testing.assert_allclose(squares, expected, rtol=1e-5)
    summary = summarise(statistics, free_model([2]), swings=np.zeros(1))
    assert summary.std_error.tolist() == [RESOLUTION] * 2  # smaller than what the kernels resolve
    tiny = np.exp(-30 + rng.standard_normal((1, 4, 1000)))
    assert_sound(summarise(collect(with_complement(tiny), even(1000, 100)), free_model([2])), free_model([2]))


@given(
    seed=st.integers(0, 2**32 - 1),
    num_chains=st.integers(1, 3),
    lengths=st.lists(st.integers(1, 3), min_size=0, max_size=4),
    kind=st.sampled_from(["zero", "tiny", "one", "mixed", "jump"]),
    swing=st.sampled_from([None, 0.0, 1e-300, 1.0, 1e3, INF]),
    memory=st.sampled_from([0.0, 1.0, 1e300, INF]),
)
def test_never_nan(
    seed: int, num_chains: int, lengths: list[int], kind: str, swing: float | None, memory: float
) -> None:
    rng = np.random.default_rng(seed)
    shape = (2, num_chains, sum(lengths))
    if kind == "mixed":
        ones = rng.random(shape)
    elif kind == "jump":
        ones = np.floor(2 * rng.random(shape))
    else:
        ones = np.full(shape, {"zero": 0.0, "tiny": 1e-300, "one": 1.0}[kind]) * rng.random(shape[:2])[:, :, None]
    model = MarkovRandomField.ising([(0, 1)], 1.0)
    swings = None if swing is None else np.full(2, swing)
    summary = summarise(collect(with_complement(ones), lengths), model, swings=swings, memory=memory)
    assert_sound(summary, model)
    status, sentence = assess_mixing(summary)
    assert status in (Status.OK, Status.NOT_MIXED)
    assert "nan" not in sentence


# -- neighbourhoods that were never met -----------------------------------------------------------------------------


def rare_neighbor() -> tuple[MarkovRandomField, float]:
    """Two variables, of which the second is seldom in its state 1, which moves the first; P(x0 = 1)."""
    model = MarkovRandomField.from_tables([[0.0, 0.0], [0.0, -12.0]], [(0, 1)], [[[0.0, 0.0], [0.0, 6.0]]])
    return model, float(oracle.node_marginals(model)[0][1])


@pytest.mark.parametrize("memory", [1.0, 25.0])
def test_what_was_never_met_is_in_the_standard_error(memory: float) -> None:
    # Independent draws of the neighbour, 1000 each: 0.3 of them never meet its state 1, and know one conditional only.
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
        summary = summarise(collect(values, even(250, 25)), model, swings=swings, memory=memory)
        held += abs(summary.mean[1] - truth) <= 1.96 * summary.std_error[1]
        if not met.any():
            silent += 1
            # All draws count, and the log-odds can go from 0 to plus or minus 6.
            span = math.tanh(3.0)
            np.testing.assert_allclose(summary.std_error[:2], 1.5 * span / (1.5 + 1000 / memory), rtol=1e-9)
    assert 60 < silent < 120
    assert held == 300


def test_slow_neighbors_count() -> None:
    # The neighbour of a variable without variation hardly moves: it has met few neighbourhoods.
    slow = markov(np.random.default_rng(0), (1, 8), 2000, 0.5, 0.98)
    values = with_complement(np.concatenate([np.full_like(slow, 0.5), slow, np.full_like(slow, 0.5)]))
    model = MarkovRandomField.ising([(0, 1)], 1.0, num_variables=3)
    summary = summarise(collect(values, even(2000, 40)), model, swings=np.full(3, 4.0))
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
        around = sorted({(*x[:i], 0, *x[i + 1 :]) for x in allowed})  # all neighbourhoods, at least one
        odds = np.array([naive_log_odds(model, i, x) for x in around])
        for column in odds.T[np.isfinite(odds).all(axis=0)]:
            assert np.ptp(column) <= swings[i] * (1.0 + 1e-9) + 1e-9
        if model.num_states[i] == 2 and not model.has_forbidden:  # then one state of every neighbour is the extreme
            np.testing.assert_allclose(np.ptp(odds[:, 0]), swings[i], rtol=1e-9, atol=1e-9)
        rows = np.array([oracle.conditional(model, i, x) for x in around])
        weights = rng.exponential(size=len(rows)) ** 4  # often of one neighbourhood alone, nearly
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
    factors = [diagnostics.student_factor(k) for k in freedoms]
    np.testing.assert_allclose(factors, expected, rtol=1e-4)
    assert np.all(np.diff(factors) < 0.0)
    assert 1.0 < diagnostics.student_factor(10**9) < 1.0 + 1e-8


# -- R-hat elsewhere ------------------------------------------------------------------------------------------------


def import_arviz() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("arviz")


@pytest.mark.parametrize("lag", [0.0, 0.7, 0.97])
@pytest.mark.parametrize("num_chains", [8, 11])
def test_r_hat_is_the_rank_normalised_one_of_arviz(lag: float, num_chains: int) -> None:
    import_arviz()
    from arviz import rhat

    # From 8 chains on the parts are halves.
    ones = markov(np.random.default_rng(int(100 * lag)), (8, num_chains), 600, 0.3, lag)
    summary = summarise(collect(with_complement(ones), even(600, 20)), free_model([2] * 8))
    # ArviZ takes the larger of the rank-normalised and the folded R-hat, which are one number for an indicator whose
    # median is not halfway.
    assert (np.abs(ones.mean(axis=(1, 2)) - 0.5) > 0.01).all()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = [float(rhat(x, method="rank")) for x in ones]
        plain = [float(rhat(x, method="split")) for x in ones]
    np.testing.assert_allclose(summary.r_hat, expected, rtol=1e-6)
    np.testing.assert_allclose(summary.r_hat, plain, rtol=1e-9)


# -- the verdict ----------------------------------------------------------------------------------------------------


def summary_of(r_hat: list[float], ess: list[float], *, memory: float = 1.0, num_chains: int = 4) -> Summary:
    n = len(r_hat)
    return Summary(
        mean=np.zeros(2 * n),
        std_error=np.zeros(2 * n),
        ess=np.array(ess),
        r_hat=np.array(r_hat),
        memory=memory,
        num_chains=num_chains,
        num_sweeps=1000,
        num_batches=50,
    )


@pytest.mark.parametrize(
    ("r_hat", "ess", "status", "words"),
    [
        ([1.0, 1.009], [500.0, 800.0], Status.OK, "at most 1.009 (variable 1), the effective sample size at least 500"),
        ([1.0, 1.2, 1.011], [500.0] * 3, Status.NOT_MIXED, "R-hat is 1.2 for variable 1, above 1.01 (2 of 3 variables"),
        ([1.0, 1.0], [500.0, 399.0], Status.NOT_MIXED, "size is 399 for variable 1, below 400 (1 of 2 variables is)"),
        ([INF], [0.0], Status.NOT_MIXED, "R-hat is inf"),
    ],
)
def test_verdict(r_hat: list[float], ess: list[float], status: Status, words: str) -> None:
    found, sentence = assess_mixing(summary_of(r_hat, ess))
    assert found is status
    assert words in sentence
    assert sentence.endswith(".")


@pytest.mark.parametrize("num_chains", [1, 2, 3, 4, 64])
def test_one_or_two_chains_need_a_certificate(num_chains: int) -> None:
    summary = summary_of([1.0], [500.0], num_chains=num_chains)
    status, sentence = assess_mixing(summary)
    assert assess_mixing(summary, certified=True)[0] is Status.OK
    if num_chains > 2:
        assert status is Status.OK
    else:
        assert status is Status.NOT_MIXED
        words = "1 chain cannot" if num_chains == 1 else "2 chains cannot"
        assert sentence.startswith(
            f"Not known to be mixed: {words} show that others agree, and there is no certificate"
        )
        assert "run at least 3" in sentence
    # A certificate is no excuse for chains that disagree.
    assert assess_mixing(summary_of([1.2], [500.0], num_chains=num_chains), certified=True)[0] is Status.NOT_MIXED


@pytest.mark.parametrize(
    ("memory", "words"),
    [(0.0, None), (39.9, None), (40.1, "for 40.1 sweeps, of which all chains together made 99.8"), (INF, "inf")],
)
def test_what_is_remembered_must_fit_a_hundred_times(memory: float, words: str | None) -> None:
    # 4 chains of 1000 sweeps.
    status, sentence = assess_mixing(summary_of([1.0], [500.0], memory=memory))
    assert status is (Status.OK if words is None else Status.NOT_MIXED)
    assert words is None or words in sentence
    assert "nan" not in sentence


# -- the accumulator ------------------------------------------------------------------------------------------------


def random_statistics(seed: int, num_batches: int = 7) -> tuple[BatchStatistics, list[tuple[FloatArray, int]]]:
    rng = np.random.default_rng(seed)
    batches = []
    for _ in range(num_batches):
        length = int(rng.integers(1, 30))
        ones = rng.random((3, 4)) * length
        batches.append((np.stack([length - ones, ones], axis=1).reshape(6, 4), length))
    statistics = BatchStatistics(6, 4, sum(length for _, length in batches))
    for sums, length in batches:
        statistics.add(sums, length)
    return statistics, batches


def test_checkpoint_round_trip_is_exact() -> None:
    whole, batches = random_statistics(1)
    part = BatchStatistics(6, 4, whole.expected_sweeps)
    for k, (sums, length) in enumerate(batches):
        part.add(sums, length)
        arrays = part.to_arrays()
        part.sums[:] = part.part_sums[:] = np.nan  # the checkpoint has copies
        assert all(isinstance(value, np.ndarray) for value in arrays.values())
        part = BatchStatistics.from_arrays({**arrays, "other": np.zeros(3)})
        assert part.num_batches == k + 1
    for name, value in whole.to_arrays().items():
        np.testing.assert_array_equal(part.to_arrays()[name], value, err_msg=name)
    left, right = summarise(part, free_model([2] * 3)), summarise(whole, free_model([2] * 3))
    for name in ("mean", "std_error", "ess", "r_hat"):
        np.testing.assert_array_equal(getattr(left, name), getattr(right, name))


def test_empty_checkpoint_round_trip() -> None:
    part = BatchStatistics.from_arrays(BatchStatistics(2, 3, 5).to_arrays())
    part.add(np.full((2, 3), 2.5), 5)
    assert (part.num_sweeps, part.num_parts, part.num_part_sweeps) == (5, 0, 5)


@pytest.mark.parametrize(
    "change",
    [{"squares": None}, {"squares": np.zeros(5)}, {"sums": np.zeros((6, 3))}, {"part": None}, {"num_batches": [1, 2]}],
)
def test_broken_checkpoints(change: dict[str, Any]) -> None:
    arrays: dict[str, Any] = {**random_statistics(0)[0].to_arrays(), **change}
    with pytest.raises((LookupError, TypeError, ValueError)):  # which the sampler takes for a damaged file
        BatchStatistics.from_arrays({name: value for name, value in arrays.items() if value is not None})


def test_order_of_chains() -> None:
    model = free_model([2] * 3)
    statistics, batches = random_statistics(2, num_batches=8)
    summary = summarise(statistics, model)
    shuffled = BatchStatistics(6, 4, statistics.expected_sweeps)
    for sums, length in batches:
        shuffled.add(sums[:, [2, 0, 3, 1]], length)
    for name in ("mean", "std_error", "ess", "r_hat"):
        np.testing.assert_allclose(getattr(summarise(shuffled, model), name), getattr(summary, name), rtol=1e-10)


def test_order_of_batches_within_a_part() -> None:
    # The first batch gives the reference of the squares, which changes nothing but rounding.
    ones = markov(np.random.default_rng(4), (3, 8), 400, 0.3, 0.5)
    order = [3, 0, 2, 1, 6, 7, 5, 4]
    turned = ones.reshape(3, 8, 8, 50)[:, :, order].reshape(ones.shape)
    left, right = (summarise(collect(with_complement(x), even(400, 8)), free_model([2] * 3)) for x in (ones, turned))
    for name in ("mean", "std_error", "ess", "r_hat"):
        np.testing.assert_allclose(getattr(left, name), getattr(right, name), rtol=1e-9)
    # Across the parts, here halves, it matters.
    other = ones.reshape(3, 8, 8, 50)[:, :, [0, 4, 1, 5, 2, 6, 3, 7]].reshape(ones.shape)
    assert not np.allclose(
        summarise(collect(with_complement(other), even(400, 8)), free_model([2] * 3)).r_hat, left.r_hat
    )


def test_number_of_parts() -> None:
    per_chain = [BatchStatistics(2, c, 100).parts_per_chain for c in range(1, 20)]
    assert per_chain == [16, 8, 6, 4, 4, 3, 3] + [2] * 12


@pytest.mark.parametrize(
    ("num_chains", "expected", "lengths", "parts"),
    [
        (8, 100, [25] * 4, [50, 50]),
        (8, 100, [20] * 5, [60, 40]),  # the middle batch counts to the first part
        (8, 100, [40, 40, 20], [40, 60]),  # the middle of the second is at 60
        (8, 100, [90, 10], [90, 10]),
        (8, 100, [10, 90], [10, 90]),
        (8, 100, [30], [30]),  # ended early
        (8, 100, [30, 30], [60]),
        (8, 10, [8, 20, 20], [8, 40]),  # ran over
        (8, 10, [20, 20], [40]),
        (8, 0, [5, 5], [10]),
        (3, 120, [10] * 12, [20] * 6),
        (3, 120, [50, 10, 60], [50, 10, 60]),  # middles at 25, 55 and 90, in parts 1, 2 and 4 of 20 sweeps
        (3, 100, [10] * 10, [20, 10, 20, 20, 10, 20]),  # parts of 16 2/3
        (1, 160, [5] * 32, [10] * 16),
        (1, 160, [40] * 4, [40] * 4),  # fewer batches than parts
    ],
)
def test_parts(num_chains: int, expected: int, lengths: list[int], parts: list[int]) -> None:
    values = with_complement(markov(np.random.default_rng(0), (1, num_chains), sum(lengths), 0.5, 0.0))
    statistics = collect(values, lengths, expected)
    pieces = naive_batches(parts)
    assert naive_parts(lengths, num_chains, expected) == pieces
    assert (statistics.num_parts, statistics.num_part_sweeps) == (len(parts) - 1, parts[-1])
    np.testing.assert_array_equal(statistics.sums, values.sum(axis=2))
    np.testing.assert_array_equal(statistics.part_sums, values[:, :, pieces[-1][0] :].sum(axis=2))
    means = [(b - a, values[:, :, a:b].mean(axis=2)) for a, b in pieces[:-1]]
    squares = sum((n * ((m - statistics.reference[:, None]) ** 2).sum(axis=1) for n, m in means), np.zeros(2))
    np.testing.assert_allclose(statistics.part_squares, squares, atol=1e-12)
    groups = [row[a:b] for row in values[0] for a, b in pieces]
    np.testing.assert_allclose(summarise(statistics, free_model([2])).r_hat, naive_r_hat(groups), rtol=1e-9)


@pytest.mark.parametrize("num_chains", [4, 8])
def test_a_short_last_part_does_not_raise_r_hat(num_chains: int) -> None:
    ones = markov(np.random.default_rng(0), (200, num_chains), 1050, 0.5, 0.0)
    statistics = collect(with_complement(ones), [50] * 21, expected=2000)
    assert statistics.num_part_sweeps == 50
    assert summarise(statistics, free_model([2] * 200)).r_hat.max() < 1.01


def test_chain_means_and_variances() -> None:
    statistics, batches = random_statistics(4)
    means = sum(sums for sums, _ in batches) / sum(length for _, length in batches)
    np.testing.assert_allclose(statistics.chain_means(), means)
    np.testing.assert_allclose(statistics.chain_variances(), means.var(axis=1, ddof=1))


@pytest.mark.parametrize(
    ("sums", "num_sweeps", "message"),
    [
        (np.full((2, 3), 6.0), 5, "sums of 5 sweeps must be from 0 to 5, got 6 to 6"),
        (np.full((2, 3), -1.0), 5, "got -1 to -1"),
        (np.full((2, 3), np.nan), 5, "got nan to nan"),
    ],
)
def test_bad_batches(sums: FloatArray, num_sweeps: int, message: str) -> None:
    statistics = BatchStatistics(2, 3, 10)
    with pytest.raises(ValueError, match=message):
        statistics.add(sums, num_sweeps)
    assert statistics.num_batches == 0
    assert not statistics.sums.any()
    assert not statistics.part_sums.any()


def test_statistics_of_another_model() -> None:
    statistics = BatchStatistics(4, 1, 10)
    statistics.add([[5], [5], [5], [5]], 10)
    with pytest.raises(ValueError, match=r"those of variable 0 add up to 1\.5 times that"):
        summarise(statistics, free_model([3, 1]))


def test_memory_stays_at_two_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnostics, "_CHUNK_ENTRIES", 1 << 14)
    num_entries, num_chains = 20_000, 32
    sums = np.full((num_entries, num_chains), 5.0)
    model = free_model([2] * (num_entries // 2))
    tracemalloc.start()
    try:
        statistics = BatchStatistics(num_entries, num_chains, 100)
        for _ in range(10):
            statistics.add(sums, 10)
        summarise(statistics, model)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Two arrays, and twenty of one number an entry.
    assert peak < 8 * num_entries * (2 * num_chains + 20) + 2_000_000
