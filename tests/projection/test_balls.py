from __future__ import annotations

import time
from itertools import pairwise

import cvxpy as cp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fastmix.projection.balls import RowGroups, clip_eigenvalues

FloatArray = NDArray[np.float64]

entries = st.floats(-1e3, 1e3, allow_subnormal=False)
vectors = st.lists(entries, max_size=12).map(np.array)
radii = st.sampled_from([0.0, 1e-3, 0.5, 1.0, 7.5, 1e4])
seeds = st.integers(0, 2**32 - 1)


def project_row(vector: FloatArray, radius: float) -> FloatArray:
    return RowGroups.of(np.array([0, len(vector)])).project(np.asarray(vector, dtype=float), radius)[0]


def clip(matrix: FloatArray, radius: float) -> FloatArray:
    return clip_eigenvalues(matrix, radius)[0]


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


def random_symmetric(seed: int) -> FloatArray:
    rng = np.random.default_rng(seed)
    n = rng.integers(1, 7)
    matrix = rng.standard_normal((n, n)) * rng.choice([0.1, 1.0, 10.0])
    return matrix + matrix.T


def assert_projection(project, norm, point: FloatArray, radius: float, others) -> None:
    """Feasible, a no-op inside the ball and when repeated, and optimal: <point - w, u - w> <= 0 for u in the ball."""
    w = project(point, radius)
    rounding = 1e-14 * (np.abs(point).max(initial=0.0) + radius)
    assert w.shape == point.shape
    assert norm(w) <= radius + 4 * point.size * rounding
    if norm(point) <= radius:
        np.testing.assert_array_equal(w, point)
    np.testing.assert_allclose(project(w, radius), w, rtol=0.0, atol=10 * point.size * rounding)
    for u in others:
        u = u * (radius + np.finfo(float).tiny) / norm(u)
        assert np.vdot(point - w, u - w) <= 1e-12 * (1.0 + np.abs(point).sum()) * (1.0 + radius) * point.size


# -- rows -------------------------------------------------------------------------------------------------------------


@given(vectors, radii)
def test_rows_agree_with_bisection(vector: FloatArray, radius: float) -> None:
    answer = project_row(vector, radius)
    atol = 1e-12 * (1.0 + np.abs(vector).max(initial=0.0))
    np.testing.assert_allclose(answer, bisected_l1_ball(vector, radius), rtol=0.0, atol=atol)
    # To rounding relative to the radius, not to the entries.
    assert np.abs(answer).sum() <= radius * (1.0 + 1e-14)


@given(vectors.filter(len), radii, seeds)
def test_rows_are_projected(vector: FloatArray, radius: float, seed: int) -> None:
    others = np.random.default_rng(seed).standard_normal((5, len(vector)))
    assert_projection(project_row, lambda v: np.abs(v).sum(), vector, radius, others)


@given(seeds, radii)
def test_rows_do_not_expand(seed: int, radius: float) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((2, 6)) * 3.0
    moved = np.linalg.norm(project_row(a, radius) - project_row(b, radius))
    assert moved <= np.linalg.norm(a - b) * (1.0 + 1e-14)


def test_rows_agree_with_convex_solver() -> None:
    rng = np.random.default_rng(0)
    for radius in (0.5, 3.0):
        vector = 2.0 * rng.standard_normal(7)
        w = cp.Variable(7)
        cp.Problem(cp.Minimize(cp.sum_squares(w - vector)), [cp.norm1(w) <= radius]).solve(solver=cp.CLARABEL)
        np.testing.assert_allclose(project_row(vector, radius), w.value, atol=1e-6)


def test_edge_cases_of_rows() -> None:
    assert project_row([], 1.0).shape == (0,)
    assert project_row([3.0, -4.0], 0.0).tolist() == [0.0, 0.0]
    assert project_row([0.0, 0.0], 0.0).tolist() == [0.0, 0.0]
    assert project_row([-5.0], 2.0).tolist() == [-2.0]
    assert project_row([2.0, 2.0, -2.0, 2.0], 2.0).tolist() == [0.5, 0.5, -0.5, 0.5]
    # Digits are counted from the radius even where the entries are astronomically larger.
    assert project_row([1e300, -1e300, 1e10], 1.0).tolist() == [0.5, -0.5, 0.0]


@given(seeds, radii)
def test_rows_of_all_lengths_are_projected_each_by_itself(seed: int, radius: float) -> None:
    rng = np.random.default_rng(seed)
    starts = np.concatenate([[0], np.cumsum(rng.integers(0, 5, rng.integers(1, 9)))])
    data = 2.0 * rng.standard_normal(starts[-1])
    before = data.copy()
    answer, _ = RowGroups.of(starts).project(data, radius)
    np.testing.assert_array_equal(data, before)
    expected = [project_row(data[a:b], radius) for a, b in pairwise(starts)]
    np.testing.assert_allclose(answer, np.concatenate(expected), rtol=1e-14, atol=0.0)


def test_thresholds_are_what_rows_shrank_by() -> None:
    data = np.array([3.0, -2.0, 1.0, 5.0])
    values, thresholds = RowGroups.of(np.array([0, 2, 2, 3, 4])).project(data, 2.0)
    assert values.tolist() == [1.5, -0.5, 1.0, 2.0]
    assert thresholds.tolist() == [1.5, 0.0, 0.0, 3.0]


def test_many_rows_without_a_loop() -> None:
    n = 200_000
    rng = np.random.default_rng(0)
    starts = np.concatenate([[0], np.cumsum(rng.integers(0, 9, n))])
    data = rng.standard_normal(starts[-1])
    begin = time.process_time()
    answer, _ = RowGroups.of(starts).project(data, 2.0)
    # About 0.2 s; a Python loop over the rows would take several seconds.
    assert time.process_time() - begin < 3.0
    for row in rng.integers(0, n, 50):
        stored = slice(starts[row], starts[row + 1])
        assert np.abs(answer[stored]).sum() <= 2.0 + 1e-13
        np.testing.assert_allclose(answer[stored], project_row(data[stored], 2.0), rtol=1e-14, atol=0.0)


# -- eigenvalues ------------------------------------------------------------------------------------------------------


def spectral_norm(matrix: FloatArray) -> float:
    return float(np.linalg.norm(matrix, 2))


@given(seeds, radii)
def test_clipping_eigenvalues_is_a_projection(seed: int, radius: float) -> None:
    matrix = random_symmetric(seed)
    if abs(spectral_norm(matrix) - radius) > 1e-9:
        others = np.random.default_rng(seed).standard_normal((5, *matrix.shape))
        assert_projection(clip, spectral_norm, matrix, radius, others)


@given(seeds, radii)
def test_eigenvalues_agree_with_singular_values(seed: int, radius: float) -> None:
    matrix = random_symmetric(seed)
    before = matrix.copy()
    answer = clip(matrix, radius)
    np.testing.assert_array_equal(answer, answer.T)
    np.testing.assert_array_equal(matrix, before)
    left, singular, right = np.linalg.svd(matrix)
    expected = left @ np.diag(np.minimum(singular, radius)) @ right
    np.testing.assert_allclose(answer, expected, rtol=0.0, atol=1e-12 * (1.0 + np.abs(matrix).max()))


def test_clipping_eigenvalues_does_not_expand() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        a, b = rng.standard_normal((2, 4, 4))
        a, b = a + a.T, b + b.T
        assert np.linalg.norm(clip(a, 1.5) - clip(b, 1.5)) <= np.linalg.norm(a - b) * (1.0 + 1e-14)


def test_clipping_eigenvalues_agrees_with_convex_solver() -> None:
    matrix = np.random.default_rng(2).standard_normal((3, 3))
    matrix = matrix + matrix.T
    w = cp.Variable(matrix.shape)
    cp.Problem(cp.Minimize(cp.sum_squares(w - matrix)), [cp.sigma_max(w) <= 1.5]).solve(solver=cp.CLARABEL)
    np.testing.assert_allclose(clip(matrix, 1.5), w.value, atol=2e-5)  # of the solver


def test_edge_cases_of_clipping() -> None:
    np.testing.assert_allclose(clip(np.array([[3.0, 1.0], [1.0, 3.0]]), 0.0), np.zeros((2, 2)), atol=1e-14)
    inside = np.diag([3.0, -2.0])
    answer = clip(inside, 10.0)
    answer[0, 0] = 7.0
    assert inside.tolist() == [[3.0, 0.0], [0.0, -2.0]]
