from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import oracle
import oracle_theory
import strategies
from fastmix import graphs
from fastmix.errors import ModelError
from fastmix.instances import ising_grid, potts_grid
from fastmix.mixing import bias_after
from fastmix.model import PairwiseMRF
from fastmix.projection import project
from fastmix.sampling import intervals as module
from fastmix.sampling.intervals import (
    Comparison,
    Intervals,
    bernstein_half_width,
    comparison_bounds,
    hoeffding_interval,
    original_intervals,
    rigorous_intervals,
)

FloatArray = NDArray[np.float64]
INF = math.inf
ROUNDING = 1e-12  # of marginals by enumeration

# Under 1e-6 false alarms: the normal distribution has less than that beyond 4.9 standard deviations.
NORMAL_QUANTILE = 4.9


def one_variable(num_states: int = 2) -> PairwiseMRF:
    return PairwiseMRF.from_tables([np.zeros(num_states)], [], [])


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
    model = PairwiseMRF.from_tables([np.zeros(2), np.zeros(3)], [], [])
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
    same = rigorous_intervals(
        model, mean, num_chains=400, bias=0.0, confidence=0.9, variances=variances, inequality="hoeffding"
    )
    np.testing.assert_array_equal(same.upper, alone.upper)
    bernstein = rigorous_intervals(
        model, mean, num_chains=400, bias=0.0, confidence=0.9, variances=variances, inequality="bernstein"
    )
    expected = np.minimum(mean + bernstein_half_width(variances, 400, failure=0.1), 1)
    np.testing.assert_allclose(bernstein.upper, expected, atol=1e-11)


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
    model = PairwiseMRF.from_tables([np.array(u) for u in unary], [], [])
    mean = np.concatenate([np.where(np.array(u) > -INF, 1 / np.isfinite(u).sum(), 0) for u in unary])
    together = rigorous_intervals(model, mean, num_chains=50, bias=0.0, simultaneous=True)
    each = rigorous_intervals(model, mean, num_chains=50, bias=0.0, confidence=1 - 0.05 / max(1, num_questions))
    np.testing.assert_allclose(together.lower, each.lower, atol=1e-12)
    np.testing.assert_allclose(together.upper, each.upper, atol=1e-12)
    assert together.simultaneous


def test_known_states() -> None:
    model = PairwiseMRF.from_tables([[0.0, -INF], [0.0, 0.0, -INF]], [], [])
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
    found = rigorous_intervals(PairwiseMRF.from_tables([], [], []), [], num_chains=3, bias=[], simultaneous=True)
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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mean": [0.5]}, r"mean must have shape \(2,\), got \(1,\)"),
        ({"mean": [0.5, 1.5]}, "mean must be from 0 to 1, got 0.5 to 1.5"),
        ({"mean": [0.5, math.nan]}, "mean must be from 0 to 1"),
        ({"num_chains": 0}, "num_chains must be a whole number of at least 1, got 0"),
        ({"bias": [0.1, 0.2]}, r"bias must be a number or have shape \(1,\), got \(2,\)"),
        ({"bias": 1.1}, "bias must be from 0 to 1"),
        ({"confidence": 1.0}, "confidence must be a number above 0 and below 1, got 1.0"),
        ({"confidence": "0.9"}, "confidence must be a number above 0 and below 1, got '0.9'"),
        ({"variances": [0.1]}, r"variances must have shape \(2,\), got \(1,\)"),
        ({"variances": [0.1, 0.6]}, "variances must be from 0 to 0.5"),
        ({"inequality": "chebyshev"}, "inequality must be one of both, hoeffding, bernstein, got 'chebyshev'"),
        ({"inequality": "bernstein"}, "inequality='bernstein' needs variances"),
        (
            {"inequality": "bernstein", "num_chains": 1, "variances": [0.0, 0.0]},
            "inequality='bernstein' needs at least 2 chains",
        ),
    ],
)
def test_bad_arguments(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"mean": [0.5, 0.5], "num_chains": 10, "bias": 0.0} | change
    with pytest.raises(ValueError, match=message):
        rigorous_intervals(one_variable(), arguments.pop("mean"), **arguments)


def test_bad_arguments_of_the_inequalities() -> None:
    with pytest.raises(ValueError, match="failure must be above 0 and below 1, got 0"):
        hoeffding_interval([0.5], 10, failure=0)
    with pytest.raises(ValueError, match="num_chains must be a whole number of at least 2, got 1"):
        bernstein_half_width([0.5], 1, failure=0.1)


# -- coverage -------------------------------------------------------------------------------------------------------


def assert_holds(held: NDArray[np.bool_], confidence: float) -> None:
    """The rate at which intervals hold is not below the confidence by more than chance."""
    slack = NORMAL_QUANTILE * math.sqrt(confidence * (1 - confidence) / len(held))
    assert held.mean() >= confidence - slack, f"held in {held.mean():.4f} of the runs"


def simulate(
    model: PairwiseMRF, num_runs: int, num_chains: int, burn_in: int, num_sweeps: int, seed: int
) -> tuple[FloatArray, FloatArray]:
    """Means and variances (runs, E) of chains that start in the worst configuration, through the exact kernel."""
    chain = oracle_theory.Chain(model)
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


@pytest.mark.parametrize("num_sweeps", [1, 20])
@pytest.mark.parametrize("burn_in", [0, 3])
def test_intervals_of_simulated_chains_hold(num_sweeps: int, burn_in: int) -> None:
    model = PairwiseMRF.ising(graphs.path_edges(3), [0.5, -0.6], [0.4, 0.0, -1.0])
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
    model = PairwiseMRF.ising([(0, 1)], 1.0, [0.0, 0.0])
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
    model = PairwiseMRF.from_tables(np.zeros((num_runs, 2)), [], [])
    entries = np.stack([1 - mean, mean], axis=1).ravel()
    for inequality in ("both", "hoeffding", "bernstein"):
        found = rigorous_intervals(
            model,
            entries,
            num_chains=num_chains,
            bias=0.1,
            variances=np.repeat(variance, 2),
            confidence=0.8,
            inequality=inequality,  # type: ignore[arg-type]
        )
        assert_holds((found.lower[1::2] <= 0.3) & (found.upper[1::2] >= 0.3), 0.8)
        np.testing.assert_allclose(found.lower[::2], 1 - found.upper[1::2], atol=1e-11)


# -- comparison of a projected model with its original --------------------------------------------------------------


def distances(left: PairwiseMRF, right: PairwiseMRF) -> FloatArray:
    """Exact total variation distances of the marginals."""
    pairs = zip(oracle.node_marginals(left), oracle.node_marginals(right), strict=True)
    return np.array([oracle_theory.total_variation(p, q) for p, q in pairs])


def naive_conditional_bounds(projected: PairwiseMRF, original: PairwiseMRF) -> FloatArray:
    """The formula for b by loops, for tables without -inf."""
    sizes = []
    left, right = oracle.unary_vectors(projected), oracle.unary_vectors(original)
    for u, v in zip(left, right, strict=True):
        difference = np.subtract(u, v)
        sizes.append(float(difference.max() - difference.min()))
    other = oracle.edge_tables(original)
    for (i, j), table in oracle.edge_tables(projected).items():
        difference = np.subtract(table, other[i, j])
        sizes[i] += max(float(c.max() - c.min()) for c in difference.T)
        sizes[j] += max(float(r.max() - r.min()) for r in difference)
    return np.array([math.tanh(size / 4) for size in sizes])


def exact_conditional_distances(projected: PairwiseMRF, original: PairwiseMRF) -> FloatArray:
    """The largest distance of the conditionals over all configurations possible in the original."""
    result = np.zeros(original.num_variables)
    joint = oracle.joint(original)
    for x in oracle.all_configurations(original):
        if joint[x] > 0:
            for i in range(original.num_variables):
                p, q = oracle.conditional(projected, i, x), oracle.conditional(original, i, x)
                assert q is not None
                result[i] = max(result[i], 1.0 if p is None else oracle_theory.total_variation(p, q))
    return result


def assert_within(projected: PairwiseMRF, original: PairwiseMRF, bounds: FloatArray) -> None:
    for i, (distance, bound) in enumerate(zip(distances(projected, original), bounds, strict=True)):
        assert distance <= bound + ROUNDING, f"variable {i} is {distance} away, promised {bound}"


def assert_sound(comparison: Comparison, n: int) -> None:
    assert comparison.bounds.shape == comparison.conditional_bounds.shape == comparison.vacuous.shape == (n,)
    assert (comparison.bounds >= 0.0).all()
    assert (comparison.bounds <= 1.0).all()
    np.testing.assert_array_equal(comparison.vacuous, comparison.bounds >= 1.0)
    oracle.assert_read_only(comparison.bounds, comparison.conditional_bounds, comparison.vacuous)
    assert comparison.advice.endswith(".")
    assert "nan" not in comparison.advice


def dense_bounds(projected: PairwiseMRF, original: PairwiseMRF, bound: str) -> FloatArray | None:
    """``(I - R)^-1 b`` cut at 1, or None where the spectral radius is not below 1."""
    R = oracle_theory.dependency_matrix(projected, bound)
    if len(R) and np.abs(np.linalg.eigvals(R)).max() >= 1 - 1e-9:
        return None
    return np.minimum(np.linalg.solve(np.eye(len(R)) - R, naive_conditional_bounds(projected, original)), 1.0)


@settings(max_examples=120)
@given(
    model=strategies.models(min_variables=1, max_variables=5, max_states=3, allow_forbidden=False, scales=(0.3, 1.0)),
    norm_bound=st.sampled_from([0.3, 0.7, 0.95]),
    norm=st.sampled_from(["inf", "spectral"]),
    bound=st.sampled_from(["sigmoid", "range", "exact"]),
)
def test_originals_of_projected_models(model: PairwiseMRF, norm_bound: float, norm: Any, bound: Any) -> None:
    projected = project(model, norm_bound=norm_bound, norm=norm).model
    comparison = comparison_bounds(projected, model, bound=bound)
    assert_sound(comparison, model.num_variables)
    assert_within(projected, model, comparison.bounds)
    # Never above the formula, by more than what rounding and the solver are given.
    formula = dense_bounds(projected, model, bound)
    assert formula is not None
    assert (comparison.bounds <= formula * (1 + 1e-4) + 1e-9).all()
    np.testing.assert_allclose(comparison.conditional_bounds, naive_conditional_bounds(projected, model), atol=1e-12)


@settings(max_examples=120)
@given(data=st.data())
def test_any_two_models_on_a_graph(data: st.DataObject) -> None:
    # Also with forbidden entries, strong couplings, and unaries that differ.
    left = data.draw(strategies.models(min_variables=1, max_variables=4, max_states=3, scales=(0.1, 0.5, 2.0)))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    scale = data.draw(st.sampled_from([0.0, 0.05, 1.0]))
    right = left.replace(parameters=left.parameters + scale * rng.normal(size=left.num_parameters))
    if data.draw(st.booleans()):  # other forbidden entries
        holes = np.where(rng.random(left.num_parameters) < 0.1, -INF, right.parameters)
        try:
            right = right.replace(parameters=holes)
            oracle.joint(right)
        except (ModelError, ValueError, ZeroDivisionError):
            assume(False)
    assume(np.isfinite(oracle.log_z(right)) and np.isfinite(oracle.log_z(left)))
    comparison = comparison_bounds(left, right)
    assert_sound(comparison, left.num_variables)
    assert_within(left, right, comparison.bounds)
    assert (exact_conditional_distances(left, right) <= comparison.conditional_bounds + ROUNDING).all()


def sabotages() -> list[tuple[str, Callable[[pytest.MonkeyPatch], None]]]:
    """Twins of the comparison that are wrong, each in one place."""

    def halve_b(patch: pytest.MonkeyPatch) -> None:
        true = module._conditional_distances
        patch.setattr(module, "_conditional_distances", lambda *models: 0.5 * true(*models))

    def forget_neighbours(patch: pytest.MonkeyPatch) -> None:
        true = module.safe_matrix
        patch.setattr(module, "safe_matrix", lambda *arguments: 0.0 * true(*arguments))

    return [("half of b", halve_b), ("no dependencies", forget_neighbours)]


@pytest.mark.parametrize("sabotage", [f for _, f in sabotages()], ids=[name for name, _ in sabotages()])
def test_a_sabotaged_comparison_fails(sabotage: Callable[[pytest.MonkeyPatch], None]) -> None:
    # A chain whose first field changes: the comparison is tight to first order at the first variable.
    projected = PairwiseMRF.ising(graphs.path_edges(3), 0.3)
    original = PairwiseMRF.ising(graphs.path_edges(3), 0.3, [0.2, 0.0, 0.0])
    assert_within(projected, original, comparison_bounds(projected, original).bounds)
    with pytest.MonkeyPatch.context() as patch:
        sabotage(patch)
        wrong = comparison_bounds(projected, original).bounds
    with pytest.raises(AssertionError, match="promised"):
        assert_within(projected, original, wrong)


def test_columns_and_rows_of_a_difference() -> None:
    # The difference depends on x_1 only within a column: x_0 is not moved by it, x_1 is.
    left = PairwiseMRF.from_tables([[0, 0], [0, 0, 0]], [(0, 1)], [np.zeros((2, 3))])
    right = PairwiseMRF.from_tables([[0, 0], [0, 0, 0]], [(0, 1)], [[[0.0, 0.4, 1.0], [0.0, 0.4, 1.0]]])
    b = comparison_bounds(left, right).conditional_bounds
    np.testing.assert_allclose(b, [0.0, math.tanh(0.25)], atol=1e-14)


def test_equal_models() -> None:
    weak, strong = (ising_grid(4, 4, coupling_max=top, seed=0) for top in (0.2, 5.0))
    for model in (weak, strong):  # however strong the couplings
        comparison = comparison_bounds(model, model)
        assert (comparison.bounds == 0.0).all()
        assert "at most 0 apart" in comparison.advice
    shifted = weak.replace(log_unary=weak.log_unary + 1.0, log_pairwise=weak.log_pairwise - 1.0, log_constant=3.0)
    assert comparison_bounds(weak, shifted).bounds.max() < 1e-13


def test_only_one_of_two_parts_differs() -> None:
    edges, couplings = [(0, 1), (2, 3), (4, 5)], np.array([0.4, 3.0, 3.0])
    left = PairwiseMRF.ising(edges, couplings)
    right = PairwiseMRF.ising(edges, couplings, [0.1, 0.0, 0.0, 0.0, 0.2, 0.0])
    comparison = comparison_bounds(left, right)
    # A weak part that differs, a strong part that does not, and one that does.
    np.testing.assert_allclose(
        comparison.bounds[:2], np.linalg.solve([[1, -math.tanh(0.4)], [-math.tanh(0.4), 1]], [math.tanh(0.05), 0])
    )
    assert comparison.bounds[2:4].tolist() == [0.0, 0.0]
    assert comparison.bounds[4:].max() <= 1.0
    assert comparison.bounds[4:].min() > 0.9
    assert_within(left, right, comparison.bounds)


def test_equal_conditionals_are_not_enough_with_forbidden_pairs() -> None:
    # Both conditionals are certain, yet the weights of the two configurations differ.
    left = PairwiseMRF.from_tables([[0, 0], [0, 0]], [(0, 1)], [[[0.0, -INF], [-INF, 0.0]]])
    right = PairwiseMRF.from_tables([[0, 0], [0, 0]], [(0, 1)], [[[0.0, -INF], [-INF, 5.0]]])
    comparison = comparison_bounds(left, right)
    assert comparison.conditional_bounds.max() < 1e-14
    assert comparison.bounds.tolist() == [1.0, 1.0]
    assert_within(left, right, comparison.bounds)


def test_entries_forbidden_in_one_model_only() -> None:
    soft = PairwiseMRF.from_tables(np.zeros((3, 2)), [(0, 1), (1, 2)], [np.zeros((2, 2)), np.zeros((2, 2))])
    hard = PairwiseMRF.from_tables(
        np.zeros((3, 2)), [(0, 1), (1, 2)], [np.array([[0.0, -INF], [0.0, 0.0]]), np.zeros((2, 2))]
    )
    for left, right in ((soft, hard), (hard, soft)):
        comparison = comparison_bounds(left, right)
        assert comparison.conditional_bounds.tolist() == [1.0, 1.0, 0.0]
        assert_within(left, right, comparison.bounds)
    # A state forbidden by one of the unaries concerns the variable and its neighbours.
    closed = soft.replace(log_unary=[0.0, -INF, 0, 0, 0, 0])
    for left, right in ((soft, closed), (closed, soft)):
        comparison = comparison_bounds(left, right)
        assert comparison.conditional_bounds.tolist() == [1.0, 1.0, 0.0]
        assert_within(left, right, comparison.bounds)
    # Forbidden in both, it concerns nobody, whatever the tables have there.
    other = closed.replace(log_pairwise=[0.0, 0.0, 5.0, -3.0, 0, 0, 0, 0])
    assert comparison_bounds(closed, other).bounds.tolist() == [0.0, 0.0, 0.0]


def test_strong_projected_models_are_vacuous_with_a_reason() -> None:
    model = ising_grid(4, 4, coupling_max=3.0, seed=1)
    other = model.replace(log_unary=model.log_unary * 1.5)
    comparison = comparison_bounds(model, other)
    assert comparison.vacuous.all()
    assert "Nothing is known about every variable" in comparison.advice
    assert "norm" in comparison.advice
    far = project(model, norm_bound=0.5).model
    comparison = comparison_bounds(far, model)
    assert comparison.vacuous.any()
    assert "differ too much" in comparison.advice


def test_huge_differences() -> None:
    left = PairwiseMRF.ising([(0, 1)], 0.1)
    right = PairwiseMRF.ising([(0, 1)], 1e308)
    assert comparison_bounds(left, right).bounds.tolist() == [1.0, 1.0]
    assert_sound(comparison_bounds(right, left), 2)


def test_super_solutions_are_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    # Whatever the solver returns, the answer is an upper bound.
    projected = PairwiseMRF.ising(graphs.cycle_edges(6), 0.3, 0.1)
    original = PairwiseMRF.ising(graphs.cycle_edges(6), 0.33, 0.15)
    formula = dense_bounds(projected, original, "sigmoid")
    assert formula is not None
    rng = np.random.default_rng(0)
    true = module._solve
    noises: list[Callable[[FloatArray], FloatArray]] = [
        lambda x: x * 0.9,
        lambda x: x + 0.3 * rng.random(len(x)),
        lambda x: np.zeros(len(x)),
        lambda x: np.full(len(x), np.nan),
        lambda x: -x,
    ]
    for noise in noises:
        monkeypatch.setattr(module, "_solve", lambda *arguments, noise=noise: noise(true(*arguments)))
        found = comparison_bounds(projected, original).bounds
        assert (found >= formula * (1 - 1e-12)).all()
        assert (found <= 1.0).all()


def test_mixed_state_counts_and_every_bound() -> None:
    model = oracle.random_entries(np.random.default_rng(4), [2, 3, 4, 2], [(0, 1), (0, 3), (1, 2), (2, 3)], 0.5, 0.0)
    projected = project(model, norm_bound=0.8).model
    found = {
        bound: comparison_bounds(projected, model, bound=bound).bounds  # type: ignore[arg-type]
        for bound in ("exact", "sigmoid", "range", "l1", "linf")
    }
    for tight, loose in (("exact", "sigmoid"), ("sigmoid", "range"), ("range", "l1"), ("range", "linf")):
        assert (found[tight] <= found[loose] * (1 + 1e-5)).all()
    assert_within(projected, model, found["exact"])


def test_comparison_without_variables() -> None:
    empty = PairwiseMRF.from_tables([], [], [])
    comparison = comparison_bounds(empty, empty)
    assert_sound(comparison, 0)
    isolated = PairwiseMRF.from_tables([[0.0, 1.0]], [], [])
    other = PairwiseMRF.from_tables([[0.0, 0.5]], [], [])
    np.testing.assert_allclose(comparison_bounds(isolated, other).bounds, math.tanh(0.125), rtol=1e-12)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (PairwiseMRF.ising([(0, 1), (1, 2)], 0.1, num_variables=4), "must have the state counts"),
        (PairwiseMRF.potts([(0, 1), (1, 2)], 0.1, 3), "must have the state counts"),
        (PairwiseMRF.ising([(0, 1), (0, 2)], 0.1), "must have the edges"),
    ],
)
def test_models_that_cannot_be_compared(other: PairwiseMRF, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        comparison_bounds(PairwiseMRF.ising([(0, 1), (1, 2)], 0.1), other)
    with pytest.raises(ValueError, match="bound must be one of"):
        comparison_bounds(other, other, bound="tight")  # type: ignore[arg-type]


def test_large_models() -> None:
    # 90,000 variables in under a second; a loop over edges would take minutes.
    original = ising_grid(300, 300, coupling_max=0.3, seed=0)
    projected = project(original, norm_bound=0.9).model
    comparison = comparison_bounds(projected, original)
    assert_sound(comparison, 90_000)
    assert not comparison.vacuous.any()
    assert comparison.bounds.mean() < 0.05
    potts = potts_grid(60, 60, num_states=3, coupling_max=0.4, seed=0)
    nearby = project(potts, norm_bound=0.7).model
    assert_sound(comparison_bounds(nearby, potts), 3600)


# -- intervals for the original -------------------------------------------------------------------------------------


def test_original_intervals() -> None:
    original = PairwiseMRF.ising(graphs.cycle_edges(4), 0.55, [0.3, -0.2, 0.0, 0.1])
    projected = project(original, norm_bound=0.9).model
    exact = np.concatenate(oracle.node_marginals(projected))
    narrow = rigorous_intervals(projected, exact, num_chains=10**6, bias=0.0, confidence=0.99, simultaneous=True)
    comparison = comparison_bounds(projected, original)
    wide = original_intervals(original, narrow, comparison)
    shift = np.repeat(comparison.bounds, 2)
    np.testing.assert_allclose(wide.lower, np.maximum(narrow.lower - shift, 0))
    np.testing.assert_allclose(wide.upper, np.minimum(narrow.upper + shift, 1))
    truth = np.concatenate(oracle.node_marginals(original))
    assert ((wide.lower <= truth) & (truth <= wide.upper)).all()
    assert (wide.confidence, wide.simultaneous) == (0.99, True)
    # The narrow ones hold the wrong model's marginals.
    assert not ((narrow.lower <= truth) & (truth <= narrow.upper)).all()


def test_original_intervals_that_say_nothing() -> None:
    model = PairwiseMRF.from_tables([[0.0, 0.0], [0.0, -INF]], [], [])
    narrow = rigorous_intervals(model, [0.5, 0.5, 1.0, 0.0], num_chains=1000, bias=0.0)
    nothing = Comparison(np.ones(2), np.ones(2), np.ones(2, dtype=bool), "Nothing is known.")
    wide = original_intervals(model, narrow, nothing)
    assert wide.vacuous.tolist() == [True, True, False, False]
    assert wide.lower.tolist() == [0.0, 0.0, 1.0, 0.0]
    assert wide.upper.tolist() == [1.0, 1.0, 1.0, 0.0]


def test_original_intervals_of_another_model() -> None:
    model = one_variable()
    narrow = rigorous_intervals(model, [0.5, 0.5], num_chains=10, bias=0.0)
    comparison = comparison_bounds(model, model)
    with pytest.raises(ValueError, match="intervals must be for 3 states"):
        original_intervals(one_variable(3), narrow, comparison)
    two = Intervals(np.zeros(4), np.ones(4), np.ones(4, dtype=bool), 0.95, False)
    with pytest.raises(ValueError, match="comparison must be of 2 variables"):
        original_intervals(PairwiseMRF.from_tables(np.zeros((2, 2)), [], []), two, comparison)
