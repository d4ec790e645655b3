from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import oracle
import strategies
from fastmix import graphs
from fastmix.model import MarkovRandomField
from fastmix.theory.bias import bias_after
from fastmix.theory.intervals import (
    bernstein_half_width,
    hoeffding_interval,
    rigorous_intervals,
)
from oracle import theory

FloatArray = NDArray[np.float64]
INF = math.inf
ROUNDING = 1e-12  # of marginals by enumeration

# Under 1e-6 false alarms: the normal distribution has less than that beyond 4.9 standard deviations.
NORMAL_QUANTILE = 4.9


def one_variable(num_states: int = 2) -> MarkovRandomField:
    return MarkovRandomField.from_tables([np.zeros(num_states)], [], [])


# -- the two inequalities -------------------------------------------------------------------------------------------


def kl(p: float, q: float) -> float:
    return (p * math.log(p / q) if p else 0.0) + ((1 - p) * math.log((1 - p) / (1 - q)) if p < 1 else 0.0)


@pytest.mark.parametrize("num_chains", [1, 2, 10, 64, 1000, 10**6])
@pytest.mark.parametrize("failure", [0.5, 0.05, 1e-4, 1e-9])
def test_hoeffding_by_bisection(num_chains: int, failure: float) -> None:
    level = math.log(2 / failure) / num_chains
    for p in (0.0, 1e-300, 1e-9, 0.01, 0.3, 0.5, 0.77, 0.999, 1 - 1e-12, 1.0):
        low, high = p, 1.0
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (middle, high) if middle < 1 and kl(p, middle) <= level else (low, middle)
        lower, upper = hoeffding_interval([p], num_chains, failure=failure)
        # From above, and close: the margin is that of rounding errors in kl, over its slope.
        assert upper[0] >= high - 1e-15
        assert upper[0] <= high + 1e-9
        assert lower[0] <= p <= upper[0]
        np.testing.assert_allclose(1 - hoeffding_interval([1 - p], num_chains, failure=failure)[1], lower, atol=1e-15)
        # Never wider than the usual form.
        usual = math.sqrt(level / 2)
        assert upper[0] <= p + usual + 1e-12
        assert lower[0] >= p - usual - 1e-12


def test_hoeffding_against_known_numbers() -> None:
    # kl(0, q) = -ln(1 - q), so the end is 1 - (failure / 2) ** (1 / C); by symmetry for 1.
    lower, upper = hoeffding_interval([0.0, 1.0], 50, failure=0.02)
    np.testing.assert_allclose(upper, [1 - 0.01 ** (1 / 50), 1.0], rtol=1e-12)
    np.testing.assert_allclose(lower, [0.0, 0.01 ** (1 / 50)], rtol=1e-12)
    # kl(1/2, q) = -ln(4 q (1 - q)) / 2.
    level = math.log(2 / 0.05) / 100
    lower, upper = hoeffding_interval([0.5], 100, failure=0.05)
    np.testing.assert_allclose(upper, 0.5 + 0.5 * math.sqrt(1 - math.exp(-2 * level)), rtol=1e-12)


def test_bernstein_against_known_numbers() -> None:
    log = math.log(3 / 0.05)
    expected = [7 * log / 297, math.sqrt(2 * 0.09 * log / 100) + 7 * log / 297]
    np.testing.assert_allclose(bernstein_half_width([0.0, 0.09], 100, failure=0.05), expected, rtol=1e-14)


def test_inequalities_hold_for_single_draws() -> None:
    # One draw a chain, where Hoeffding's inequality has least to spare: exact failure probabilities, by the binomial.
    from scipy.stats import binom

    for p, num_chains, failure in itertools.product((0.001, 0.03, 0.3, 0.5), (5, 40, 300), (0.2, 0.05, 0.001)):
        counts = np.arange(num_chains + 1)
        mean = counts / num_chains
        weights = binom.pmf(counts, num_chains, p)
        lower, upper = hoeffding_interval(mean, num_chains, failure=failure)
        missed = float(weights[(p < lower) | (p > upper)].sum())
        assert missed <= failure, (p, num_chains, failure, missed)
        half = bernstein_half_width(mean * (1 - mean) * num_chains / (num_chains - 1), num_chains, failure=failure)
        missed = float(weights[np.abs(mean - p) > half].sum())
        assert missed <= failure, (p, num_chains, failure, missed)
        both = rigorous_intervals(
            one_variable(num_chains + 1),  # as many entries as outcomes
            mean,
            num_chains=num_chains,
            bias=0.0,
            variances=mean * (1 - mean) * num_chains / (num_chains - 1),
            confidence=1 - failure,
        )
        missed = float(weights[(p < both.lower) | (p > both.upper)].sum())
        assert missed <= failure, (p, num_chains, failure, missed)


def test_a_third_of_the_logarithm_would_fail() -> None:
    # The sabotaged twin: a third of the logarithm misses more often than it may.
    from scipy.stats import binom

    num_chains, failure, p = 40, 0.05, 0.5
    counts = np.arange(num_chains + 1)
    lower, upper = hoeffding_interval(counts / num_chains, num_chains, failure=2 * (failure / 2) ** (1 / 3))
    assert binom.pmf(counts, num_chains, p)[(p < lower) | (p > upper)].sum() > failure


# -- rigorous intervals ---------------------------------------------------------------------------------------------


def test_both_inequalities_share_the_failure() -> None:
    model = MarkovRandomField.from_tables([np.zeros(2), np.zeros(3)], [], [])
    mean = np.array([0.3, 0.7, 0.0, 0.5, 0.5])
    variances = np.array([1e-4, 1e-4, 0.0, 0.2, 0.2])
    found = rigorous_intervals(model, mean, num_chains=400, bias=[0.01, 0.02], variances=variances, confidence=0.9)
    low, high = hoeffding_interval(mean, 400, failure=0.05)
    half = bernstein_half_width(variances, 400, failure=0.05)
    bias = np.array([0.01, 0.01, 0.02, 0.02, 0.02])
    np.testing.assert_allclose(found.upper, np.minimum(high, mean + half) + bias, atol=1e-11)
    np.testing.assert_allclose(found.lower, np.maximum(np.maximum(low, mean - half) - bias, 0), atol=1e-11)
    # Each is the narrower one somewhere.
    assert mean[0] + half[0] < high[0]
    assert mean[3] + half[3] > high[3]
    assert (found.confidence, found.simultaneous) == (0.9, False)
    oracle.assert_read_only(found.lower, found.upper, found.vacuous)

    alone = rigorous_intervals(model, mean, num_chains=400, bias=0.0, confidence=0.9)
    np.testing.assert_allclose(alone.upper, hoeffding_interval(mean, 400, failure=0.1)[1], atol=1e-11)


@pytest.mark.parametrize(
    ("unary", "num_questions"),
    [
        ([[0, 0]], 1),  # a state and its complement are one question
        ([[0, 0, 0]], 3),
        ([[0.0], [0, 0], [0, 0, 0, 0]], 5),
        ([[0.0, -INF], [0, 0, -INF]], 1),  # known states are none
        ([[0.0]], 0),
    ],
)
def test_simultaneous_intervals(unary: list[list[float]], num_questions: int) -> None:
    model = MarkovRandomField.from_tables([np.array(u) for u in unary], [], [])
    mean = np.concatenate([np.where(np.array(u) > -INF, 1 / np.isfinite(u).sum(), 0) for u in unary])
    together = rigorous_intervals(model, mean, num_chains=50, bias=0.0, simultaneous=True)
    each = rigorous_intervals(model, mean, num_chains=50, bias=0.0, confidence=1 - 0.05 / max(1, num_questions))
    np.testing.assert_allclose(together.lower, each.lower, atol=1e-12)
    np.testing.assert_allclose(together.upper, each.upper, atol=1e-12)
    assert together.simultaneous


def test_known_states() -> None:
    model = MarkovRandomField.from_tables([[0.0, -INF], [0.0, 0.0, -INF]], [], [])
    found = rigorous_intervals(model, [1.0, 0.0, 0.4, 0.6, 0.0], num_chains=10, bias=0.1)
    assert found.lower[[0, 1, 4]].tolist() == [1.0, 0.0, 0.0]
    assert found.upper[[0, 1, 4]].tolist() == [1.0, 0.0, 0.0]
    assert not found.vacuous.any()


def test_vacuous_intervals() -> None:
    model = one_variable()
    few = rigorous_intervals(model, [0.5, 0.5], num_chains=1, bias=0.001)
    assert few.vacuous.all()
    assert (few.upper - few.lower == 1.0).all()
    many = rigorous_intervals(model, [0.5, 0.5], num_chains=100, bias=0.0)
    assert not many.vacuous.any()
    assert rigorous_intervals(model, [0.5, 0.5], num_chains=100, bias=1.0).vacuous.all()
    assert rigorous_intervals(model, [0.5, 0.5], num_chains=100, bias=[0.45]).vacuous.all()
    # One end is known: not vacuous.
    assert not rigorous_intervals(model, [0.0, 1.0], num_chains=100, bias=0.5).vacuous.any()


def test_intervals_without_variables() -> None:
    found = rigorous_intervals(MarkovRandomField.from_tables([], [], []), [], num_chains=3, bias=[], simultaneous=True)
    assert found.lower.shape == found.upper.shape == found.vacuous.shape == (0,)


def test_more_confidence_chains_or_bias() -> None:
    model = one_variable()

    def width(**changes: Any) -> float:
        arguments: dict[str, Any] = {"num_chains": 200, "bias": 0.01, "variances": [0.01, 0.01]}
        found = rigorous_intervals(model, [0.4, 0.6], **(arguments | changes))
        return float(found.upper[0] - found.lower[0])

    assert width(confidence=0.99) > width() > width(confidence=0.9)
    assert width(num_chains=100) > width() > width(num_chains=400)
    np.testing.assert_allclose(width(bias=0.02) - width(), 0.02, rtol=1e-6)
    assert width(variances=[0.1, 0.1]) > width() > width(variances=[0.0, 0.0])


# -- coverage -------------------------------------------------------------------------------------------------------


def assert_holds(held: NDArray[np.bool_], confidence: float) -> None:
    """The rate at which intervals hold is not below the confidence by more than chance."""
    slack = NORMAL_QUANTILE * math.sqrt(confidence * (1 - confidence) / len(held))
    assert held.mean() >= confidence - slack, f"held in {held.mean():.4f} of the runs"


def simulate(
    model: MarkovRandomField, num_runs: int, num_chains: int, burn_in: int, num_sweeps: int, seed: int
) -> tuple[FloatArray, FloatArray]:
    """Means and variances (runs, E) of chains that start in the worst configuration, through the exact kernel."""
    chain = theory.Chain(model)
    kernel = chain.sweep("systematic")
    worst = int(np.argmax(np.abs(kernel - chain.target).sum(axis=1)))
    steps = np.cumsum(kernel, axis=1)
    rng = np.random.default_rng(seed)
    state = np.full((num_runs, num_chains), worst)
    features = np.array(
        [[x[i] == a for i, count in enumerate(model.num_states) for a in range(count)] for x in chain.configurations],
        dtype=float,
    )
    sums = np.zeros((num_runs, num_chains, features.shape[1]))
    for t in range(burn_in + num_sweeps):
        state = np.minimum((rng.random(state.shape)[..., None] > steps[state]).sum(axis=-1), len(kernel) - 1)
        if t >= burn_in:
            sums += features[state]
    means = sums / num_sweeps
    return means.mean(axis=1), means.var(axis=1, ddof=1)


@pytest.mark.parametrize(("num_sweeps", "burn_in"), strategies.each([1, 20], [0, 3]))
def test_intervals_of_simulated_chains_hold(num_sweeps: int, burn_in: int) -> None:
    model = MarkovRandomField.ising(graphs.path_edges(3), [0.5, -0.6], [0.4, 0.0, -1.0])
    exact = np.concatenate(oracle.node_marginals(model))
    bias = bias_after(model, burn_in + 1)
    means, variances = simulate(model, 300, 30, burn_in, num_sweeps, seed=num_sweeps + burn_in)
    for simultaneous in (False, True):
        found = [
            rigorous_intervals(
                model, m, num_chains=30, bias=bias, variances=v, confidence=0.9, simultaneous=simultaneous
            )
            for m, v in zip(means, variances, strict=True)
        ]
        held = np.array([(f.lower <= exact) & (exact <= f.upper) for f in found])
        if simultaneous:
            assert_holds(held.all(axis=1), 0.9)
        else:
            for column in held.T:
                assert_holds(column, 0.9)
    if burn_in:  # not because they are all of [0, 1]
        assert not np.all([f.vacuous for f in found])


def test_intervals_that_ignore_the_bias_miss() -> None:
    # The sabotaged twin: many chains after one sweep from the worst start, so that the bias dominates.
    model = MarkovRandomField.ising([(0, 1)], 1.0, [0.0, 0.0])
    means, variances = simulate(model, 100, 500, 0, 1, seed=0)
    exact = np.concatenate(oracle.node_marginals(model))

    def held(bias: Any) -> NDArray[np.bool_]:
        found = [
            rigorous_intervals(model, m, num_chains=500, bias=bias, variances=v)
            for m, v in zip(means, variances, strict=True)
        ]
        return np.array([((f.lower <= exact) & (exact <= f.upper)).all() for f in found])

    assert_holds(held(bias_after(model, 1)), 0.95)
    with pytest.raises(AssertionError, match="held in"):
        assert_holds(held(0.0), 0.95)


def test_independent_draws_with_a_known_bias() -> None:
    # Draws of probability 0.3 + 0.1 for a state of probability 0.3: the bias is spent entirely on one side.
    rng = np.random.default_rng(1)
    num_chains, num_runs, num_sweeps = 100, 2000, 5
    y = rng.binomial(num_sweeps, 0.4, (num_runs, num_chains)) / num_sweeps
    mean, variance = y.mean(axis=1), y.var(axis=1, ddof=1)
    model = MarkovRandomField.from_tables(np.zeros((num_runs, 2)), [], [])
    entries = np.stack([1 - mean, mean], axis=1).ravel()
    for known in (None, np.repeat(variance, 2)):
        found = rigorous_intervals(model, entries, num_chains=num_chains, bias=0.1, variances=known, confidence=0.8)
        assert_holds((found.lower[1::2] <= 0.3) & (found.upper[1::2] >= 0.3), 0.8)
        np.testing.assert_allclose(found.lower[::2], 1 - found.upper[1::2], atol=1e-11)


@pytest.mark.parametrize("confidence", [1.0, 0.0, "0.9"])
def test_bad_confidence(confidence: Any) -> None:
    with pytest.raises(ValueError, match=f"^confidence .*got {confidence!r}$"):
        rigorous_intervals(one_variable(), [0.5, 0.5], num_chains=10, bias=0.0, confidence=confidence)
