"""Standard errors and R-hat of chains whose answers are known."""

from __future__ import annotations

import math
import warnings
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import strategies
from error_families import biased_run
from fastmix import UnfitMethodError, sample
from fastmix.exact.enumeration import enumerate_model
from fastmix.model import MarkovRandomField
from fastmix.model.reduce import certain_entries
from fastmix.results import Status
from fastmix.sampling.diagnostics import BatchStatistics, assess_mixing, summarize
from oracle.diagnostics import (
    INF,
    NORMAL_QUANTILE,
    RESOLUTION,
    assert_sound,
    collect,
    even,
    free_model,
    indicators,
    markov,
    with_complement,
)

FloatArray = NDArray[np.float64]


# -- chains with known autocorrelation ------------------------------------------------------------------------------


CHANCES = [(0.5, 0.0), (0.3, 0.5), (0.2, 0.8), (0.6, -0.4)]
MORE_CHAINS = [pytest.param(*case, marks=pytest.mark.slow) for case in product(CHANCES, (4, 8))]


@pytest.mark.parametrize(("chance", "num_chains"), strategies.each(CHANCES, [1, 2]) + MORE_CHAINS)
def test_standard_errors_and_their_coverage(chance: tuple[float, float], num_chains: int) -> None:
    p, lag = chance
    # Every variable is one replication.
    num_variables, num_sweeps, num_batches = 600, 4000, 40
    rng = np.random.default_rng(round(100 * (p + lag)) + num_chains)
    ones = markov(rng, (num_variables, num_chains), num_sweeps, p, lag)
    model = free_model([2] * num_variables)
    # Nothing is left unseen by variables without neighbors.
    summary = summarize(
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
    summary = summarize(collect(with_complement(ones), even(num_sweeps, 20)), free_model([2] * 50))
    powers = 2 * sum((1 - k / num_sweeps) * lag**k for k in range(1, num_sweeps))
    true_error = math.sqrt(p * (1 - p) * (1 + powers) / (num_chains * num_sweeps))
    np.testing.assert_allclose(summary.std_error[1::2], true_error, rtol=5 * math.sqrt(0.5 / num_chains))
    assert_covers(summary.mean[1::2], summary.std_error[1::2], p)


def test_independent_draws() -> None:
    rng = np.random.default_rng(3)
    model = free_model([2, 3, 5] * 20)
    num_chains, num_sweeps = 4, 5000
    draws = np.floor(rng.random((num_chains, num_sweeps, 60)) * model.num_states).astype(np.int64)
    summary = summarize(collect(indicators(draws, model), even(num_sweeps, 100)), model)
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
    summary = summarize(collect(values, even(100, 10)), free_model([2]))
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
    summary = summarize(collect(values, even(2000, 50)), free_model([2]))
    # W = 0.09, V / n = 0.16 * 16 / 15.
    assert abs(summary.r_hat[0] - math.sqrt(1 + 0.16 * 16 / 15 / 0.09)) < 0.1
    # The error of the 4 chains, not of the 16 parts or the 200 batches, and what so few may have missed.
    error, ess = 0.4 / math.sqrt(3), 0.25 * 3 / 0.4**2
    assert abs(summary.std_error[0] - math.hypot(error, 1.5 / (1.5 + ess))) < 0.01
    assert abs(summary.ess[0] - ess) < 2
    assert assess_mixing(summary)[0] is Status.NOT_MIXED


@pytest.mark.parametrize("num_chains", [1, 2, 4, 16, *(pytest.param(k, marks=pytest.mark.slow) for k in (3, 8))])
def test_chains_that_seldom_change_are_not_mixed(num_chains: int) -> None:
    # One change in 2000 sweeps between two modes, 1000 sweeps: whatever the number of chains, under 1 % may agree.
    # Not counted are those that all sit in one place, which only other starts could tell from chains that belong there.
    runs = [x for x in markov(np.random.default_rng(num_chains), (300, num_chains), 1000, 0.5, 0.999) if x.std() > 0.0]
    assert len(runs) > 100
    verdicts = [
        assess_mixing(summarize(collect(with_complement(x[None]), even(1000, 20)), free_model([2]))) for x in runs
    ]
    assert sum(status is Status.OK for status, _ in verdicts) < 0.01 * len(runs)


def test_a_single_chain_that_jumps_once() -> None:
    x = np.concatenate([np.zeros(500), np.ones(500)])[None, None, :]
    summary = summarize(collect(with_complement(x), even(1000, 20)), free_model([2]))
    assert summary.r_hat.tolist() == [INF]
    slow = markov(np.random.default_rng(1), (100, 1), 1000, 0.5, 0.99)
    assert np.median(summarize(collect(with_complement(slow), even(1000, 20)), free_model([2] * 100)).r_hat) > 1.02
    fast = markov(np.random.default_rng(1), (100, 1), 4000, 0.5, 0.2)
    assert summarize(collect(with_complement(fast), even(4000, 50)), free_model([2] * 100)).r_hat.max() < 1.01


def test_states_that_never_change() -> None:
    model = free_model([3, 2])
    values = np.zeros((5, 2, 50))
    values[1], values[3, :, ::2], values[4, :, 1::2] = 1.0, 1.0, 1.0  # variable 0 always in state 1
    summary = summarize(collect(values, even(50, 5)), model)
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
    never = summarize(collect(values, even(1000, 40)), free_model([2]))
    values[:, 0, 0] = [0.0, 1.0]
    once = summarize(collect(values, even(1000, 40)), free_model([2]))
    np.testing.assert_allclose(never.std_error, 1.5 / 4000, rtol=0.01)
    np.testing.assert_allclose(once.std_error, math.hypot(1.0875, 1.5 * 1.0875**2) / 4000, rtol=0.01)


def test_known_states_have_no_error() -> None:
    model = MarkovRandomField.from_tables([np.zeros(1), [0.0, -INF], [0.0, 0.0, -INF]], [], [])
    assert certain_entries(model).tolist() == [True, True, True, False, False, True]
    values = np.zeros((6, 3, 40))
    values[0] = values[1] = 1.0
    values[3] = np.random.default_rng(0).random((3, 40)) < 0.5
    values[4] = 1.0 - values[3]
    summary = summarize(collect(values, even(40, 4)), model)
    assert (summary.std_error == 0.0).tolist() == [True, True, True, False, False, True]
    assert summary.ess[:2].tolist() == [120.0, 120.0]
    assert summary.r_hat[:2].tolist() == [1.0, 1.0]
    assert_sound(summary, model)


def test_one_batch() -> None:
    model = MarkovRandomField.from_tables([[0.0, 0.0, -INF], np.zeros(1)], [], [])
    statistics = BatchStatistics(4, 1, 10)
    statistics.add([[4], [6], [0], [10]], 10)
    summary = summarize(statistics, model)
    assert summary.mean.tolist() == [0.4, 0.6, 0.0, 1.0]
    assert summary.std_error.tolist() == [INF, INF, 0.0, 0.0]
    assert summary.ess.tolist() == [0.0, 10.0]
    assert summary.r_hat.tolist() == [INF, 1.0]
    assert_sound(summary, model)
    assert assess_mixing(summary)[0] is Status.NOT_MIXED


def test_a_single_sweep_of_many_chains() -> None:
    # Independent draws, one a chain: the error is known, R-hat is not.
    ones = (np.random.default_rng(2).random((1, 5000, 1)) < 0.3).astype(float)
    summary = summarize(collect(with_complement(ones), [1]), free_model([2]))
    np.testing.assert_allclose(summary.std_error, math.sqrt(0.21 / 5000), rtol=0.05)
    np.testing.assert_allclose(summary.ess, 5000, rtol=0.001)
    assert summary.r_hat.tolist() == [INF]


def test_no_variables() -> None:
    statistics = BatchStatistics(0, 3, 10)
    statistics.add(np.zeros((0, 3)), 10)
    summary = summarize(statistics, free_model([]))
    assert summary.mean.shape == summary.ess.shape == (0,)
    assert summary.r_hat.size == summary.ess.size == 0
    assert assess_mixing(summary) == (Status.OK, "There are no variables to mix.")


# -- sums of conditional probabilities ------------------------------------------------------------------------------


def test_conditional_probabilities() -> None:
    # x alternates quickly between two conditionals, 0.15 and 0.45: their average is 0.3 with a small error.
    rng = np.random.default_rng(8)
    hidden = markov(rng, (300, 3), 2000, 0.5, 0.5)
    ones = 0.15 + 0.3 * hidden
    summary = summarize(collect(with_complement(ones), even(2000, 40)), free_model([2] * 300))
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
    # What never varies, up to rounding, has the error of neighborhoods never met, or of rounding if there are none.
    model = free_model([2])
    third = np.full((2, 4, 1000), [[[1 / 3]], [[2 / 3]]])
    statistics = collect(third, [7, 93, 400, 500])
    for swing, error in [(None, 1.5 / 4001.5), (0.0, RESOLUTION), (INF, 1.5 / 4001.5)]:
        summary = summarize(statistics, model, swings=None if swing is None else np.array([swing]))
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
    summary = summarize(statistics, free_model([2]), swings=np.zeros(1))
    assert summary.std_error.tolist() == [RESOLUTION] * 2  # smaller than what the kernels resolve
    tiny = np.exp(-30 + rng.standard_normal((1, 4, 1000)))
    assert_sound(summarize(collect(with_complement(tiny), even(1000, 100)), free_model([2])), free_model([2]))


@given(
    seed=st.integers(0, 2**32 - 1),
    num_chains=st.integers(1, 3),
    lengths=st.lists(st.integers(1, 3), min_size=1, max_size=4),
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
    summary = summarize(collect(with_complement(ones), lengths), model, swings=swings, memory=memory)
    assert_sound(summary, model)
    status, sentence = assess_mixing(summary)
    assert status in (Status.OK, Status.NOT_MIXED)
    assert "nan" not in sentence


# -- R-hat elsewhere ------------------------------------------------------------------------------------------------


def import_arviz() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("arviz")


@pytest.mark.slow  # to load the package takes most of the time
@pytest.mark.parametrize("lag", [0.0, 0.7, 0.97])
@pytest.mark.parametrize("num_chains", [8, 11])
def test_r_hat_is_the_rank_normalized_one_of_arviz(lag: float, num_chains: int) -> None:
    import_arviz()
    from arviz import rhat

    # From 8 chains on the parts are halves.
    ones = markov(np.random.default_rng(int(100 * lag)), (8, num_chains), 600, 0.3, lag)
    summary = summarize(collect(with_complement(ones), even(600, 20)), free_model([2] * 8))
    # ArviZ takes the larger of the rank-normalized and the folded R-hat, which are one number for an indicator whose
    # median is not halfway.
    assert (np.abs(ones.mean(axis=(1, 2)) - 0.5) > 0.01).all()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = [float(rhat(x, method="rank")) for x in ones]
        plain = [float(rhat(x, method="split")) for x in ones]
    np.testing.assert_allclose(summary.r_hat, expected, rtol=1e-6)
    np.testing.assert_allclose(summary.r_hat, plain, rtol=1e-9)


def test_the_bias_that_an_accuracy_allows_is_stated_beside_the_standard_error():
    by_chance = beyond = 0
    for seed in range(60):
        model, accuracy, start = biased_run(seed)
        options = {} if start is None else {"start": start}
        try:
            result = sample(model, accuracy=accuracy, seed=seed, num_threads=1, **options)
        except UnfitMethodError:
            continue
        assert result.bias_bound.max() <= accuracy
        error = np.abs(result.node_marginals - enumerate_model(model).node_marginals)
        by_chance += bool((error > 5.0 * result.std_error + 1e-12).any())
        beyond += bool((error > 5.0 * np.hypot(result.std_error, result.bias_bound) + 1e-12).any())
    assert beyond == 0
    assert by_chance > 3


def test_the_bias_stands_in_all_that_is_written(tmp_path):
    model = MarkovRandomField.ising([(0, 1), (1, 2)], coupling=0.2, field=[0.5, 0.0, -0.3])
    result = sample(model, accuracy=0.05, evidence={2: 1}, seed=1)
    assert result.bias_bound.shape == result.std_error.shape
    assert result.bias_bound[:4].max() > 0.0
    assert result.bias_bound[4:].tolist() == [0.0, 0.0]  # observed
    assert result.to_dict()["bias_bound"][0] == result.bias_bound[:2].tolist()
    assert result.columns()["bias_bound"] is result.bias_bound
    assert "bias" in result.summary()
    plain = sample(model, num_sweeps=100, seed=1)
    assert plain.bias_bound is None
    assert plain.to_dict()["bias_bound"] is None
    assert "bias_bound" not in plain.columns()
