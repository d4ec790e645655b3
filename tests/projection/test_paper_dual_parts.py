"""The dual function of the paper: its gradient, its bounds, and the balls that it is taken over."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from test_paper_dual import NORMS, dual_value, make_dual, project_paper, random_multipliers

import oracle
import strategies
from fastmix.projection.paper_balls import clip_eigenvalues, shrink_rows
from oracle import convex

FloatArray = NDArray[np.float64]
seeds = st.integers(0, 2**32 - 1)


# -- the dual function ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("counts", [[2, 2, 2, 2], [3, 2, 4, 1], [1, 1, 3, 2]])
def test_gradient_by_finite_differences(norm: str, counts: list[int]) -> None:
    rng = np.random.default_rng(len(counts) + counts[0])
    model = oracle.random_entries(rng, counts, [(0, 1), (0, 2), (1, 2), (2, 3)])
    dual = make_dual(model, 0.9, norm)
    y = rng.uniform(0.0, 0.4, model.num_edges)
    blocks = {
        "sigma": slice(0, dual.num_contrasts),
        "phi": slice(dual.num_contrasts, 2 * dual.num_contrasts),
        "gamma or delta": slice(2 * dual.num_contrasts, dual.size),
    }
    for _ in range(3):
        x = random_multipliers(dual, rng)
        gradient = dual.evaluate(x, y).gradient
        for name, block in blocks.items():
            for k in range(dual.size)[block]:
                step = np.zeros(dual.size)
                step[k] = 1e-6
                high = dual_value(dual, dual.evaluate(x + step, y), y)
                low = dual_value(dual, dual.evaluate(x - step, y), y)
                # Values of size 10 to 100 carry errors of 1e-14; over 2e-6 that is 1e-8, and the kinks of the second
                # derivative add about the step itself.
                assert gradient[k] == pytest.approx((high - low) / 2e-6, abs=2e-6), (name, k)


@given(seeds, st.sampled_from(NORMS), st.sampled_from([1e-9, 1e-3, 1.0]))
def test_change_is_the_difference_of_values(seed: int, norm: str, size: float) -> None:
    rng = np.random.default_rng(seed)
    model = oracle.random_entries(rng, [2, 3, 2, 1], [(0, 1), (0, 2), (1, 2), (2, 3)])
    dual = make_dual(model, 0.8, norm)
    y = rng.uniform(0.0, 0.4, model.num_edges)
    base = dual.evaluate(random_multipliers(dual, rng), y)
    point = dual.evaluate(np.maximum(base.x + size * rng.standard_normal(dual.size), dual.lowest), y)
    expected = dual_value(dual, point, y) - dual_value(dual, base, y)
    assert dual.change(point, base) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    # Concave: no point lies above the tangent.
    assert dual.change(point, base) <= base.gradient @ (point.x - base.x) + 1e-14


@pytest.mark.parametrize("norm", NORMS)
def test_change_keeps_its_digits_near_the_top(norm: str) -> None:
    """Steps far too small to see in the values themselves still change them by gradient times step."""
    rng = np.random.default_rng(3)
    model = oracle.random_entries(rng, [2, 3, 2, 3], [(0, 1), (0, 2), (1, 2), (2, 3)], 5.0)
    dual = make_dual(model, 0.8, norm)
    y = rng.uniform(0.0, 0.4, model.num_edges)
    base = dual.evaluate(random_multipliers(dual, rng, 5.0), y)
    step = np.where(base.x != 0.0, 1e-13 * rng.standard_normal(dual.size), 0.0)
    point = dual.evaluate(base.x + step, y)
    assert dual.change(point, base) == pytest.approx(base.gradient @ (point.x - base.x), rel=1e-9)
    assert abs(dual.change(point, base)) < 1e-13 * abs(dual_value(dual, base, y))


def test_gamma_is_best_where_lambda_is_symmetric() -> None:
    """For the spectral norm an antisymmetric part of Lambda on the edges, which Gamma would add, lowers the dual."""
    rng = np.random.default_rng(5)
    n, alpha, c = 5, 0.7, 1.2
    target, price, gamma = rng.uniform(0.0, 0.4, (n, n)), rng.standard_normal((n, n)), rng.standard_normal((n, n))
    target, price, gamma = target + target.T, price + price.T, gamma - gamma.T

    def value(lam: FloatArray) -> float:
        left, singular, right = np.linalg.svd(target + lam / (2 * alpha))
        z = left * np.minimum(singular, c) @ right
        return float(-np.sum(lam * z) + alpha * np.sum((z - target) ** 2))

    for size in (1e-3, 0.1, 1.0, 10.0):
        assert value(price + size * gamma) <= value(price) + 1e-12


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("seed", strategies.seeds(4, quick=1))
def test_any_multipliers_bound_the_objective_from_below(norm: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = oracle.random_entries(rng, [2, 3, 2, 2], [(0, 1), (0, 2), (1, 2), (2, 3)], 2.0)
    expected, _ = convex.solve(model, 0.8, norm, "linf")
    answer = project_paper(model, norm_bound=0.8, norm=norm, tol=1e-8)
    dual = make_dual(model, 0.8, norm)
    for _ in range(200):
        noise = random_multipliers(dual, rng) * rng.choice([1e-3, 0.1, 1.0, 10.0], dual.size)
        x = np.maximum(
            rng.choice([0.0, 1.0]) * answer.multipliers[: dual.size] + rng.choice([-1.0, 1.0]) * noise, dual.lowest
        )
        y = rng.choice([0.0, 1.0]) * answer.z + rng.uniform(0.0, 1.0) * rng.random(model.num_edges)
        assert dual.lower_bound(dual.evaluate(x, y)) <= expected * (1.0 + 1e-7)


@given(seeds, st.sampled_from(NORMS))
def test_prices_bound_every_matrix_of_the_ball(seed: int, norm: str) -> None:
    rng = np.random.default_rng(seed)
    model = oracle.random_entries(rng, [2, 3, 2, 2], [(0, 1), (0, 2), (1, 2), (2, 3)])
    dual = make_dual(model, 0.8, norm)
    x = random_multipliers(dual, rng, float(rng.choice([0.3, 3.0])))
    x[2 * dual.num_contrasts :] *= rng.choice([1.0, 30.0])
    prices, most = dual.ball.prices(dual.evaluate(x, rng.random(model.num_edges)))
    assert (prices >= 0.0).all()
    for _ in range(20):
        z = rng.exponential(size=model.num_edges) ** 2
        z *= 0.8 / convex.norm_of(4, model.edges.tolist(), z, norm)
        assert prices @ z <= most * (1.0 + 1e-12)


# -- the balls --------------------------------------------------------------------------------------------------------

radii = st.sampled_from([0.0, 1e-3, 0.5, 1.0, 7.5, 1e4])


def shrink_row(vector: Any, radius: float) -> FloatArray:
    return shrink_rows(np.array([0, len(vector)]), np.asarray(vector, dtype=float), radius)[0]


def bisected_l1_ball(vector: FloatArray, radius: float) -> FloatArray:
    """The projection with its threshold found by halving an interval."""
    magnitudes = np.abs(vector)
    if magnitudes.sum() <= radius:
        return vector
    low, high = 0.0, float(magnitudes.max())
    for _ in range(200):
        middle = 0.5 * (low + high)
        if np.maximum(magnitudes - middle, 0.0).sum() > radius:
            low = middle
        else:
            high = middle
    return np.sign(vector) * np.maximum(magnitudes - high, 0.0)


@given(st.lists(st.floats(-1e3, 1e3, allow_subnormal=False), max_size=12).map(np.array), radii)
def test_rows_agree_with_bisection(vector: FloatArray, radius: float) -> None:
    answer = shrink_row(vector, radius)
    atol = 1e-12 * (1.0 + np.abs(vector).max(initial=0.0))
    np.testing.assert_allclose(answer, bisected_l1_ball(vector, radius), rtol=0.0, atol=atol)
    # To rounding relative to the radius, not to the entries.
    assert np.abs(answer).sum() <= radius * (1.0 + 1e-14)
    np.testing.assert_allclose(shrink_row(answer, radius), answer, rtol=1e-14, atol=1e-14 * radius)


def test_edge_cases_of_rows() -> None:
    assert shrink_row([], 1.0).shape == (0,)
    assert shrink_row([3.0, -4.0], 0.0).tolist() == [0.0, 0.0]
    assert shrink_row([0.0, 0.0], 0.0).tolist() == [0.0, 0.0]
    assert shrink_row([-5.0], 2.0).tolist() == [-2.0]
    assert shrink_row([2.0, 2.0, -2.0, 2.0], 2.0).tolist() == [0.5, 0.5, -0.5, 0.5]
    # Digits are counted from the radius even where the entries are astronomically larger.
    assert shrink_row([1e300, -1e300, 1e10], 1.0).tolist() == [0.5, -0.5, 0.0]
    values, thresholds = shrink_rows(np.array([0, 2, 2, 3, 4]), np.array([3.0, -2.0, 1.0, 5.0]), 2.0)
    assert values.tolist() == [1.5, -0.5, 1.0, 2.0]
    assert thresholds.tolist() == [1.5, 0.0, 0.0, 3.0]


@given(seeds, radii)
def test_rows_of_all_lengths_are_projected_each_by_itself(seed: int, radius: float) -> None:
    rng = np.random.default_rng(seed)
    starts = np.concatenate([[0], np.cumsum(rng.integers(0, 5, rng.integers(1, 9)))])
    data = 2.0 * rng.standard_normal(starts[-1])
    before = data.copy()
    answer, _ = shrink_rows(starts, data, radius)
    np.testing.assert_array_equal(data, before)
    expected = [shrink_row(data[a:b], radius) for a, b in pairwise(starts)]
    np.testing.assert_allclose(answer, np.concatenate(expected), rtol=1e-14, atol=0.0)


@given(seeds, radii)
def test_clipped_eigenvalues_agree_with_singular_values(seed: int, radius: float) -> None:
    rng = np.random.default_rng(seed)
    n = rng.integers(1, 7)
    matrix = rng.standard_normal((n, n)) * rng.choice([0.1, 1.0, 10.0])
    matrix = matrix + matrix.T
    before = matrix.copy()
    answer = clip_eigenvalues(matrix, radius)[0]
    np.testing.assert_array_equal(answer, answer.T)
    np.testing.assert_array_equal(matrix, before)
    left, singular, right = np.linalg.svd(matrix)
    expected = left @ np.diag(np.minimum(singular, radius)) @ right
    np.testing.assert_allclose(answer, expected, rtol=0.0, atol=1e-12 * (1.0 + np.abs(matrix).max()))
    inside = clip_eigenvalues(matrix, 1e6)[0]
    np.testing.assert_array_equal(inside, matrix)
    assert inside is not matrix
