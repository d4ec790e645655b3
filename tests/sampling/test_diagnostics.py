from __future__ import annotations

import itertools
import math
import sys
import tracemalloc
import types
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import oracle
from fastmix.errors import ModelError
from fastmix.model import PairwiseMRF
from fastmix.results import Status
from fastmix.sampling import diagnostics
from fastmix.sampling.diagnostics import (
    BatchStatistics,
    Summary,
    assess_mixing,
    certain_entries,
    summarise,
    to_arviz,
)

FloatArray = NDArray[np.float64]
INF = math.inf

# Under 1e-6 false alarms: the normal distribution has less than that beyond 4.9 standard deviations.
NORMAL_QUANTILE = 4.9


def free_model(num_states: Sequence[int]) -> PairwiseMRF:
    """Variables without edges: only their state counts matter here."""
    return PairwiseMRF.from_tables([np.zeros(count) for count in num_states], [], [])


def indicators(draws: NDArray[np.int64], model: PairwiseMRF) -> FloatArray:
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


def naive_entry(x: FloatArray, lengths: Sequence[int], level: float) -> tuple[float, float, float, float]:
    """Mean, standard error, effective sample size and R-hat of one entry from all its values (C, S)."""
    from scipy.stats import f

    num_chains, num_sweeps = x.shape
    total = num_chains * num_sweeps
    ends = [0, *itertools.accumulate(lengths)]
    batches = [list(itertools.pairwise(ends))] * num_chains
    mean = math.fsum(x.ravel().tolist()) / total
    terms = [(b - a, float(np.mean(x[c, a:b])), float(np.mean(x[c]))) for c in range(num_chains) for a, b in batches[c]]
    about_mean = math.fsum(w * (m - mean) ** 2 for w, m, _ in terms)
    about_chain = math.fsum(w * (m - own) ** 2 for w, m, own in terms)
    spread = math.fsum((float(np.mean(row)) - mean) ** 2 for row in x)
    if len(terms) < 2:
        variance = INF
    elif about_mean < 1e-20:
        q = (total * mean + 1) / (total + 2)
        variance = q * (1 - q) / total
    else:
        variance = about_mean / (len(terms) - 1) / total
        if num_chains > 1 and len(lengths) > 1:
            inner = num_chains * (len(lengths) - 1)
            limit = f.isf(level, num_chains - 1, inner)
            between = spread / num_chains / (num_chains - 1)
            if between > limit * about_chain / inner / total:
                variance = between
    ess = float(total) if about_mean < 1e-20 and variance < INF else mean * (1 - mean) / variance
    ess = min(ess, total * max(1.0, math.log10(total)))

    # The half of a batch is that of its middle.
    first = sum(b - a for k, (a, b) in enumerate(batches[0]) if k == 0 or (a + b) / 2 <= num_sweeps / 2)
    groups = [g for row in x for g in (row[:first], row[first:]) if len(g)]
    return mean, math.sqrt(variance), ess, naive_r_hat(groups)


def naive_r_hat(groups: list[FloatArray]) -> float:
    if len(groups) < 2 or sum(map(len, groups)) == len(groups):
        return INF
    n = sum(map(len, groups)) / len(groups)
    mean = float(np.mean(np.concatenate(groups)))
    inner = sum(float(((g - g.mean()) ** 2).sum()) for g in groups) / sum(len(g) - 1 for g in groups)
    outer = sum(len(g) * (float(g.mean()) - mean) ** 2 for g in groups) / (len(groups) - 1)
    if inner == 0.0:
        return INF if outer > 1e-20 else 1.0
    return math.sqrt(((n - 1) * inner + outer) / n / inner)


def naive_summary(values: FloatArray, model: PairwiseMRF, lengths: Sequence[int]) -> dict[str, list[float]]:
    level = 0.01 / len(values)
    rows = [naive_entry(x, lengths, level) for x in values]
    result: dict[str, list[float]] = {"mean": [r[0] for r in rows], "std_error": [r[1] for r in rows]}
    pieces = list(itertools.pairwise(model.unary_offsets.tolist()))
    result["ess"] = [min(r[2] for r in rows[a:b]) for a, b in pieces]
    result["r_hat"] = [max(r[3] for r in rows[a:b]) for a, b in pieces]
    return result


@settings(max_examples=150)
@given(
    seed=st.integers(0, 2**32 - 1),
    num_states=st.lists(st.integers(2, 4), min_size=1, max_size=4),
    num_chains=st.integers(1, 5),
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=9),
    stay=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
)
def test_same_as_keeping_every_draw(
    seed: int, num_states: list[int], num_chains: int, lengths: list[int], stay: float
) -> None:
    rng = np.random.default_rng(seed)
    model, num_sweeps = free_model(num_states), sum(lengths)
    draws = np.floor(rng.random((num_chains, num_sweeps, len(num_states))) * num_states).astype(np.int64)
    for t in range(1, num_sweeps):  # chains that stay where they are with some probability; with 1, all stuck
        kept = rng.random((num_chains, len(num_states))) < stay
        draws[:, t] = np.where(kept, draws[:, t - 1], draws[:, t])
    values = indicators(draws, model)
    summary = summarise(collect(values, lengths), model)
    expected = naive_summary(values, model, lengths)
    for name, value in expected.items():
        np.testing.assert_allclose(getattr(summary, name), value, rtol=1e-9, atol=1e-12, err_msg=name)
    assert_sound(summary, model)


def assert_sound(summary: Summary, model: PairwiseMRF) -> None:
    """What every summary fulfils."""
    assert summary.mean.shape == summary.std_error.shape == model.log_unary.shape
    assert summary.ess.shape == summary.r_hat.shape == (model.num_variables,)
    oracle.assert_read_only(summary.mean, summary.std_error, summary.ess, summary.r_hat)
    for array in (summary.mean, summary.std_error, summary.ess, summary.r_hat):
        assert not np.isnan(array).any()
        assert (array >= 0.0).all()
    assert np.isfinite(summary.mean).all()
    assert np.isfinite(summary.ess).all()
    assert (summary.std_error[~certain_entries(model)] > 0.0).all()
    for a, b in itertools.pairwise(model.unary_offsets.tolist()):
        assert abs(summary.mean[a:b].sum() - 1.0) < 1e-14


# -- chains with known autocorrelation ------------------------------------------------------------------------------


@pytest.mark.parametrize(("p", "lag"), [(0.5, 0.0), (0.3, 0.5), (0.2, 0.8), (0.6, -0.4)])
@pytest.mark.parametrize("num_chains", [1, 4])
def test_standard_errors_and_their_coverage(p: float, lag: float, num_chains: int) -> None:
    # Every variable is one replication.
    num_variables, num_sweeps, num_batches = 600, 4000, 40
    rng = np.random.default_rng(round(100 * (p + lag)) + num_chains)
    ones = markov(rng, (num_variables, num_chains), num_sweeps, p, lag)
    model = free_model([2] * num_variables)
    summary = summarise(collect(with_complement(ones), even(num_sweeps, num_batches)), model)
    # The asymptotic variance p (1 - p) (1 + lag) / (1 - lag); the finite length changes it by less than 1 %.
    true_error = math.sqrt(p * (1 - p) * (1 + lag) / (1 - lag) / (num_chains * num_sweeps))
    error = summary.std_error[1::2]
    np.testing.assert_allclose(error, summary.std_error[::2], rtol=1e-9)
    # The average over the replications: the noise is 1 % at most, the batches of 100 lose up to 4 %.
    assert abs(math.sqrt(np.mean(error**2)) / true_error - 1) < 0.08
    # Single ones: 39 degrees of freedom give a deviation of 11 %, four chains half of that.
    within = np.abs(error / true_error - 1) < (0.2 if num_chains == 4 else 0.4)
    assert within.mean() > 0.98
    total = num_chains * num_sweeps
    ess = np.minimum(summary.mean[1::2] * summary.mean[::2] / error**2, total * math.log10(total))
    np.testing.assert_allclose(summary.ess, ess, rtol=1e-9)
    assert 0.9 < np.median(summary.ess) / (num_chains * num_sweeps * (1 - lag) / (1 + lag)) < 1.15

    assert_covers(summary.mean[1::2], error, p, num_chains * num_batches - 1)
    if lag == 0.8:  # the error of independent draws would be three times too small
        naive = np.sqrt(summary.mean[1::2] * summary.mean[::2] / (num_chains * num_sweeps))
        with pytest.raises(AssertionError, match="covered"):
            assert_covers(summary.mean[1::2], naive, p, num_chains * num_batches - 1)


def assert_covers(mean: FloatArray, error: FloatArray, truth: float, degrees: int) -> None:
    """95 % intervals hold the truth in 95 % of the replications, up to chance and 1 % for the batches' dependence."""
    from scipy.stats import t

    held = float((np.abs(mean - truth) <= t.isf(0.025, degrees) * error).mean())
    slack = NORMAL_QUANTILE * math.sqrt(0.95 * 0.05 / len(mean)) + 0.01
    assert abs(held - 0.95) <= slack, f"covered {held}"


def test_many_short_chains_know_their_error_from_each_other() -> None:
    # Batches shorter than the autocorrelation time: the batches alone would claim a third of the error.
    rng = np.random.default_rng(5)
    p, lag, num_chains, num_sweeps = 0.4, 0.98, 200, 200
    ones = markov(rng, (50, num_chains), num_sweeps, p, lag)
    summary = summarise(collect(with_complement(ones), even(num_sweeps, 20)), free_model([2] * 50))
    powers = 2 * sum((1 - k / num_sweeps) * lag**k for k in range(1, num_sweeps))
    true_error = math.sqrt(p * (1 - p) * (1 + powers) / (num_chains * num_sweeps))
    np.testing.assert_allclose(summary.std_error[1::2], true_error, rtol=5 * math.sqrt(0.5 / num_chains))
    assert_covers(summary.mean[1::2], summary.std_error[1::2], p, num_chains - 1)


def test_independent_draws() -> None:
    rng = np.random.default_rng(3)
    model = free_model([2, 3, 5] * 20)
    num_chains, num_sweeps = 4, 5000
    draws = np.floor(rng.random((num_chains, num_sweeps, 60)) * model.num_states).astype(np.int64)
    summary = summarise(collect(indicators(draws, model), even(num_sweeps, 100)), model)
    total = num_chains * num_sweeps
    # r_hat^2 - 1 is (V / W - 1) / n with V / W a chi-square of 7 degrees over 7, and the largest of states.
    assert np.abs(summary.r_hat - 1.0).max() < 0.001
    # The smallest over the states lies below N; 399 degrees of freedom give 7 % for each.
    assert summary.ess.max() < 1.3 * total
    assert summary.ess.min() > 0.7 * total
    assert 0.9 < np.mean(summary.ess) / total < 1.02
    status, sentence = assess_mixing(summary)
    assert status is Status.OK
    assert "agree" in sentence


# -- chains that do not mix -----------------------------------------------------------------------------------------


def test_stuck_chains() -> None:
    # Three chains never leave 0, one never leaves 1.
    values = with_complement(np.repeat([[[0.0], [0.0], [0.0], [1.0]]], 100, axis=2))
    summary = summarise(collect(values, even(100, 10)), free_model([2]))
    assert summary.r_hat.tolist() == [INF]
    # Four draws: variance 0.25 (sample), of their mean 0.0625.
    np.testing.assert_allclose(summary.std_error, 0.25)
    np.testing.assert_allclose(summary.ess, 0.75 * 0.25 / 0.0625)
    assert summary.max_r_hat == INF
    status, sentence = assess_mixing(summary)
    assert status is Status.NOT_MIXED
    assert "R-hat is inf for variable 0" in sentence


def test_chains_in_two_modes() -> None:
    rng = np.random.default_rng(0)
    level = np.array([0.9, 0.9, 0.1, 0.1])[None, :, None]
    values = with_complement((rng.random((1, 4, 2000)) < level).astype(float))
    summary = summarise(collect(values, even(2000, 50)), free_model([2]))
    # W = 0.09, V / n = 0.16 * 8 / 7.
    assert abs(summary.r_hat[0] - math.sqrt(1 + 0.16 * 8 / 7 / 0.09)) < 0.1
    # The error of the chains, 0.4 sqrt(4 / 3) / 2, not of their batches.
    assert abs(summary.std_error[0] - 0.4 * math.sqrt(4 / 3) / 2) < 0.02
    assert summary.ess[0] < 10


def test_a_single_chain_that_jumps_once() -> None:
    x = np.concatenate([np.zeros(500), np.ones(500)])[None, None, :]
    summary = summarise(collect(with_complement(x), even(1000, 20)), free_model([2]))
    assert summary.r_hat.tolist() == [INF]
    slow = markov(np.random.default_rng(1), (100, 1), 1000, 0.5, 0.99)
    assert np.median(summarise(collect(with_complement(slow), even(1000, 20)), free_model([2] * 100)).r_hat) > 1.02
    fast = markov(np.random.default_rng(1), (100, 1), 4000, 0.5, 0.2)
    assert summarise(collect(with_complement(fast), even(4000, 50)), free_model([2] * 100)).max_r_hat < 1.01


def test_states_that_never_change() -> None:
    model = free_model([3, 2])
    values = np.zeros((5, 2, 50))
    values[1], values[3, :, ::2], values[4, :, 1::2] = 1.0, 1.0, 1.0  # variable 0 always in state 1
    summary = summarise(collect(values, even(50, 5)), model)
    q = 1 / 102
    np.testing.assert_allclose(summary.std_error[:3], math.sqrt(q * (1 - q) / 100))
    assert summary.mean.tolist() == [0.0, 1.0, 0.0, 0.5, 0.5]
    assert summary.ess[0] == 100.0
    assert summary.r_hat[0] == 1.0
    assert_sound(summary, model)


def test_one_visit_is_continuous_with_none() -> None:
    # The standard error of a state seen once is close to the one of a state never seen, 1 / N.
    values = np.zeros((2, 4, 1000))
    values[0] = 1.0
    never = summarise(collect(values, even(1000, 50)), free_model([2]))
    values[:, 0, 0] = [0.0, 1.0]
    once = summarise(collect(values, even(1000, 50)), free_model([2]))
    np.testing.assert_allclose(never.std_error, 1 / 4000, rtol=0.01)
    np.testing.assert_allclose(once.std_error, 1 / 4000, rtol=0.01)


def test_known_states_have_no_error() -> None:
    model = PairwiseMRF.from_tables([np.zeros(1), [0.0, -INF], [0.0, 0.0, -INF]], [], [])
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
    model = PairwiseMRF.from_tables([[0.0, 0.0, -INF], np.zeros(1)], [], [])
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


def test_min_batches() -> None:
    statistics = collect(with_complement(markov(np.random.default_rng(0), (1, 2), 40, 0.5, 0.0)), even(40, 4))
    assert np.isfinite(summarise(statistics, free_model([2]), min_batches=8).std_error).all()
    summary = summarise(statistics, free_model([2]), min_batches=9)
    assert summary.std_error.tolist() == [INF, INF]
    assert summary.ess.tolist() == [0.0]
    assert np.isfinite(summary.r_hat).all()
    with pytest.raises(ValueError, match="min_batches must be a whole number of at least 2, got 1"):
        summarise(statistics, free_model([2]), min_batches=1)


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
    assert (summary.max_r_hat, summary.min_ess) == (1.0, INF)
    assert assess_mixing(summary) == (Status.OK, "There are no variables to mix.")


# -- sums of conditional probabilities ------------------------------------------------------------------------------


def test_conditional_probabilities() -> None:
    # x alternates quickly between two conditionals, 0.15 and 0.45: their average is 0.3 with a small error.
    rng = np.random.default_rng(8)
    hidden = markov(rng, (300, 3), 2000, 0.5, 0.5)
    ones = 0.15 + 0.3 * hidden
    summary = summarise(collect(with_complement(ones), even(2000, 40)), free_model([2] * 300))
    true_error = 0.3 * math.sqrt(0.25 * 3 / 6000)
    assert abs(math.sqrt(np.mean(summary.std_error**2)) / true_error - 1) < 0.05
    assert_covers(summary.mean[1::2], summary.std_error[1::2], 0.3, 119)
    # Worth more than the number of sweeps, but not beyond N log10 N.
    ess = 0.21 / true_error**2
    assert ess > 6000
    assert 0.9 < np.median(summary.ess) / ess < 1.15
    assert (summary.ess <= 6000 * math.log10(6000)).all()
    assert (np.abs(summary.r_hat - 1) < 0.001).all()


def test_constant_conditional_probabilities() -> None:
    # What never varies, up to rounding, has the error of independent draws.
    model = free_model([2])
    third = np.full((2, 4, 1000), [[[1 / 3]], [[2 / 3]]])
    summary = summarise(collect(third, [7, 93, 400, 500]), model)
    np.testing.assert_allclose(summary.mean, [1 / 3, 2 / 3], rtol=1e-12)
    np.testing.assert_allclose(summary.std_error, math.sqrt(2 / 9 / 4000), rtol=0.001)
    assert summary.ess.tolist() == [4000.0]
    assert abs(summary.r_hat[0] - 1) < 0.002


def test_small_probabilities_do_not_cancel() -> None:
    # Deviations of 1e-9 from 0.9 survive: squares are taken about the first batch, not about 0.
    rng = np.random.default_rng(0)
    ones = 0.9 + 1e-9 * rng.standard_normal((1, 4, 1000))
    summary = summarise(collect(with_complement(ones), even(1000, 100)), free_model([2]))
    np.testing.assert_allclose(summary.std_error, 1e-9 / math.sqrt(4000), rtol=0.2)
    tiny = np.exp(-30 + rng.standard_normal((1, 4, 1000)))
    assert_sound(summarise(collect(with_complement(tiny), even(1000, 100)), free_model([2])), free_model([2]))


@settings(max_examples=100)
@given(
    seed=st.integers(0, 2**32 - 1),
    num_chains=st.integers(1, 3),
    lengths=st.lists(st.integers(1, 3), min_size=0, max_size=4),
    kind=st.sampled_from(["zero", "tiny", "one", "mixed", "jump"]),
)
def test_never_nan(seed: int, num_chains: int, lengths: list[int], kind: str) -> None:
    rng = np.random.default_rng(seed)
    shape = (2, num_chains, sum(lengths))
    if kind == "mixed":
        ones = rng.random(shape)
    elif kind == "jump":
        ones = np.floor(2 * rng.random(shape))
    else:
        ones = np.full(shape, {"zero": 0.0, "tiny": 1e-300, "one": 1.0}[kind]) * rng.random(shape[:2])[:, :, None]
    model = free_model([2, 2])
    summary = summarise(collect(with_complement(ones), lengths), model)
    assert_sound(summary, model)
    status, sentence = assess_mixing(summary)
    assert status in (Status.OK, Status.NOT_MIXED)
    assert "nan" not in sentence


# -- R-hat elsewhere ------------------------------------------------------------------------------------------------


def import_arviz() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("arviz")


@pytest.mark.parametrize("lag", [0.0, 0.7, 0.97])
@pytest.mark.parametrize("num_chains", [2, 4])
def test_r_hat_is_the_rank_normalised_one_of_arviz(lag: float, num_chains: int) -> None:
    import_arviz()
    from arviz import rhat

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


def test_to_arviz() -> None:
    import_arviz()
    model = PairwiseMRF.ising([(0, 1), (1, 2)], 0.3, variable_names=["a", "b", "c"])
    draws = np.random.default_rng(0).integers(0, 2, (4, 50, 3))
    data = to_arviz(draws, model)
    x = data["posterior"]["x"]
    assert x.dims == ("chain", "draw", "variable")
    np.testing.assert_array_equal(x.values, draws)
    assert x.coords["variable"].values.tolist() == ["a", "b", "c"]
    unnamed = PairwiseMRF.ising([(0, 1), (1, 2)], 0.3)
    assert to_arviz(draws, unnamed)["posterior"]["x"].coords["variable"].values.tolist() == [0, 1, 2]


def test_to_arviz_from_version_one_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}

    def from_dict(data: dict[str, Any], *, coords: Any = None, dims: Any = None) -> str:
        seen.update(data=data, coords=coords, dims=dims)
        return "tree"

    monkeypatch.setitem(sys.modules, "arviz", types.SimpleNamespace(from_dict=from_dict))
    assert to_arviz(np.zeros((2, 5, 1)), free_model([2])) == "tree"
    assert seen["data"]["posterior"]["x"].shape == (2, 5, 1)
    assert (seen["coords"], seen["dims"]) == ({"variable": [0]}, {"x": ["variable"]})


def test_to_arviz_refuses() -> None:
    with pytest.raises(ModelError, match=r"draws must have shape \(chains, sweeps, 2\), got shape \(5, 2\)"):
        to_arviz(np.zeros((5, 2)), free_model([2, 2]))
    with pytest.raises(ModelError, match="states of variable 1 must be from 0 to 1, got 2"):
        to_arviz(np.full((1, 1, 2), [0, 2]), free_model([2, 2]))


def test_to_arviz_without_arviz(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match=r"to_arviz needs ArviZ, which pip install 'fastmix\[interop\]' brings"):
        to_arviz(np.zeros((1, 1, 1)), free_model([2]))


# -- the verdict ----------------------------------------------------------------------------------------------------


def summary_of(r_hat: list[float], ess: list[float]) -> Summary:
    n = len(r_hat)
    return Summary(np.zeros(2 * n), np.zeros(2 * n), np.array(ess), np.array(r_hat), 4, 1000, 50)


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


def test_verdict_at_other_thresholds() -> None:
    summary = summary_of([1.05], [100.0])
    assert assess_mixing(summary, max_r_hat=1.1, min_ess=50)[0] is Status.OK
    assert assess_mixing(summary, max_r_hat=1.1)[0] is Status.NOT_MIXED
    for arguments in ({"max_r_hat": -1.0}, {"min_ess": math.nan}, {"min_ess": "many"}):
        with pytest.raises(ValueError, match="must be a number of at least 0, got"):
            assess_mixing(summary, **arguments)  # type: ignore[arg-type]


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
        part.first_sums[:] = np.nan  # the checkpoint has copies
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
    assert part.num_first_sweeps == 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"squares": None}, "squares is missing"),
        ({"squares": np.zeros(5)}, r"squares must have shape \(6,\), got \(5,\)"),
        ({"first_sums": np.zeros((6, 3))}, r"first_sums must have shape \(6, 4\)"),
        ({"num_sweeps": np.array(-1)}, "num_sweeps must be a whole number of at least 0"),
        ({"num_batches": np.array([1, 2])}, "num_batches must be a whole number"),
    ],
)
def test_broken_checkpoints(change: dict[str, Any], message: str) -> None:
    arrays: dict[str, Any] = {**random_statistics(0)[0].to_arrays(), **change}
    with pytest.raises(ValueError, match=message):
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


def test_order_of_batches_within_a_half() -> None:
    # The first batch gives the reference of the squares, which changes nothing but rounding.
    ones = markov(np.random.default_rng(4), (3, 4), 400, 0.3, 0.5)
    order = [3, 0, 2, 1, 6, 7, 5, 4]
    turned = ones.reshape(3, 4, 8, 50)[:, :, order].reshape(ones.shape)
    left, right = (summarise(collect(with_complement(x), even(400, 8)), free_model([2] * 3)) for x in (ones, turned))
    for name in ("mean", "std_error", "ess", "r_hat"):
        np.testing.assert_allclose(getattr(left, name), getattr(right, name), rtol=1e-9)
    # Across the halves it matters.
    other = ones.reshape(3, 4, 8, 50)[:, :, [0, 4, 1, 5, 2, 6, 3, 7]].reshape(ones.shape)
    assert not np.allclose(
        summarise(collect(with_complement(other), even(400, 8)), free_model([2] * 3)).r_hat, left.r_hat
    )


@pytest.mark.parametrize(
    ("expected", "lengths", "num_first"),
    [
        (100, [25] * 4, 50),
        (100, [20] * 5, 60),  # the middle batch counts to the first half
        (100, [40, 40, 20], 40),  # the middle of the second is at 60
        (100, [90, 10], 90),
        (100, [10, 90], 10),
        (100, [30], 30),  # ended early
        (100, [30, 30], 60),
        (10, [20, 20], 20),  # ran over: the first batch still opens the first half
        (0, [5, 5], 5),
    ],
)
def test_halves(expected: int, lengths: list[int], num_first: int) -> None:
    values = with_complement(markov(np.random.default_rng(0), (1, 3), sum(lengths), 0.5, 0.0))
    statistics = collect(values, lengths, expected)
    assert statistics.num_first_sweeps == num_first
    np.testing.assert_array_equal(statistics.first_sums, values[:, :, :num_first].sum(axis=2))
    np.testing.assert_array_equal(statistics.second_sums, values[:, :, num_first:].sum(axis=2))
    groups = [g for row in values[0] for g in (row[:num_first], row[num_first:]) if len(g)]
    np.testing.assert_allclose(summarise(statistics, free_model([2])).r_hat, naive_r_hat(groups), rtol=1e-9)


def test_a_short_second_half_does_not_raise_r_hat() -> None:
    ones = markov(np.random.default_rng(0), (200, 4), 1050, 0.5, 0.0)
    statistics = collect(with_complement(ones), [50] * 21, expected=2000)
    assert statistics.num_first_sweeps == 1000
    assert summarise(statistics, free_model([2] * 200)).max_r_hat < 1.01


def test_chain_means_and_variances() -> None:
    statistics, batches = random_statistics(4)
    means = sum(sums for sums, _ in batches) / sum(length for _, length in batches)
    np.testing.assert_allclose(statistics.chain_means(), means)
    np.testing.assert_allclose(statistics.chain_variances(), means.var(axis=1, ddof=1))
    with pytest.raises(ValueError, match="no batch yet"):
        BatchStatistics(2, 2, 2).chain_means()
    alone = BatchStatistics(2, 1, 2)
    alone.add([[1], [1]], 2)
    with pytest.raises(ValueError, match="at least 2 chains"):
        alone.chain_variances()


@pytest.mark.parametrize(
    ("sums", "num_sweeps", "message"),
    [
        (np.zeros((2, 2)), 5, r"sums must have shape \(2, 3\), got \(2, 2\)"),
        (np.full((2, 3), 6.0), 5, "sums of 5 sweeps must be from 0 to 5, got 6 to 6"),
        (np.full((2, 3), -1.0), 5, "got -1 to -1"),
        (np.full((2, 3), np.nan), 5, "got nan to nan"),
        (np.zeros((2, 3)), 0, "num_sweeps must be a whole number of at least 1, got 0"),
    ],
)
def test_bad_batches(sums: FloatArray, num_sweeps: int, message: str) -> None:
    statistics = BatchStatistics(2, 3, 10)
    with pytest.raises(ValueError, match=message):
        statistics.add(sums, num_sweeps)
    assert statistics.num_batches == 0
    assert not statistics.first_sums.any()


@pytest.mark.parametrize("arguments", [(-1, 1, 1), (1, 0, 1), (1, 1, -1), (1.5, 1, 1), (1, True, 1)])
def test_bad_sizes(arguments: tuple[Any, Any, Any]) -> None:
    with pytest.raises(ValueError, match="must be a whole number of at least"):
        BatchStatistics(*arguments)


def test_statistics_of_another_model() -> None:
    statistics = BatchStatistics(4, 1, 10)
    with pytest.raises(ValueError, match="statistics must have 3 entries, got 4"):
        summarise(statistics, free_model([3]))
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


@pytest.mark.parametrize("above", [1, 20, 200, 999, 5000])
@pytest.mark.parametrize("below", [40, 200, 24_000, 10**6])
@pytest.mark.parametrize("level", [1e-2, 1e-5, 1e-8])
def test_ratios_of_variances_have_the_quantiles_of_snedecor(above, below, level):
    from scipy.special import fdtri

    assert diagnostics._variance_ratio(above, below, level) == pytest.approx(fdtri(above, below, 1.0 - level), rel=0.01)
