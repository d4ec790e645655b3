from __future__ import annotations

import time

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse

from fastmix.projection.balls import RowGroups, project_inf_norm_ball, project_l1_ball, project_spectral_norm_ball

FloatArray = NDArray[np.float64]

entries = st.floats(-1e3, 1e3, allow_subnormal=False)
vectors = st.lists(entries, max_size=12).map(np.array)
radii = st.sampled_from([0.0, 1e-3, 0.5, 1.0, 7.5, 1e4])
seeds = st.integers(0, 2**32 - 1)


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


def random_matrix(seed: int, *, symmetric: bool) -> FloatArray:
    rng = np.random.default_rng(seed)
    rows, cols = rng.integers(1, 7, 2)
    matrix = rng.standard_normal((rows, rows if symmetric else cols)) * rng.choice([0.1, 1.0, 10.0])
    return matrix + matrix.T if symmetric else matrix


def assert_projection(project, norm, point: FloatArray, radius: float, rng: np.random.Generator) -> None:
    """Feasible, a no-op inside the ball and when repeated, and optimal: <point - w, u - w> <= 0 for u in the ball."""
    w = project(point, radius)
    scale = radius + np.finfo(float).tiny
    rounding = 1e-14 * (np.abs(point).max(initial=0.0) + radius)
    assert w.shape == point.shape
    assert norm(w) <= radius + 4 * point.size * rounding
    if norm(point) <= radius:
        np.testing.assert_array_equal(w, point)
    np.testing.assert_allclose(project(w, radius), w, rtol=0.0, atol=10 * point.size * rounding)
    for _ in range(5):
        u = rng.standard_normal(point.shape)
        u *= rng.uniform(0.0, 1.0) ** 0.2 * scale / norm(u)
        assert np.vdot(point - w, u - w) <= 1e-12 * (1.0 + np.abs(point).sum()) * (1.0 + radius) * point.size


# -- vectors ----------------------------------------------------------------------------------------------------------


@given(vectors, radii)
def test_l1_ball_agrees_with_bisection(vector: FloatArray, radius: float) -> None:
    answer = project_l1_ball(vector, radius)
    atol = 1e-12 * (1.0 + np.abs(vector).max(initial=0.0))
    np.testing.assert_allclose(answer, bisected_l1_ball(vector, radius), rtol=0.0, atol=atol)
    # To rounding relative to the radius, not to the entries.
    assert np.abs(answer).sum() <= radius * (1.0 + 1e-14)


@given(vectors.filter(len), radii, seeds)
def test_l1_ball_is_a_projection(vector: FloatArray, radius: float, seed: int) -> None:
    assert_projection(project_l1_ball, lambda v: np.abs(v).sum(), vector, radius, np.random.default_rng(seed))


@given(seeds, radii)
def test_l1_ball_does_not_expand(seed: int, radius: float) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((2, 6)) * 3.0
    moved = np.linalg.norm(project_l1_ball(a, radius) - project_l1_ball(b, radius))
    assert moved <= np.linalg.norm(a - b) * (1.0 + 1e-14)


def test_l1_ball_agrees_with_convex_solver() -> None:
    rng = np.random.default_rng(0)
    for radius in (0.5, 3.0):
        vector = 2.0 * rng.standard_normal(7)
        w = cp.Variable(7)
        cp.Problem(cp.Minimize(cp.sum_squares(w - vector)), [cp.norm1(w) <= radius]).solve(solver=cp.CLARABEL)
        np.testing.assert_allclose(project_l1_ball(vector, radius), w.value, atol=1e-6)


def test_l1_ball_edge_cases() -> None:
    assert project_l1_ball([], 1.0).shape == (0,)
    assert project_l1_ball([3.0, -4.0], 0.0).tolist() == [0.0, 0.0]
    assert project_l1_ball([0.0, 0.0], 0.0).tolist() == [0.0, 0.0]
    assert project_l1_ball([-5.0], 2.0).tolist() == [-2.0]
    assert project_l1_ball([2.0, 2.0, -2.0, 2.0], 2.0).tolist() == [0.5, 0.5, -0.5, 0.5]
    # Digits are counted from the radius even where the entries are astronomically larger.
    assert project_l1_ball([1e300, -1e300, 1e10], 1.0).tolist() == [0.5, -0.5, 0.0]


def test_inputs_are_left_alone() -> None:
    vector = np.array([3.0, -2.0])
    inside = project_l1_ball(vector, 10.0)
    inside[0] = 7.0
    project_l1_ball(vector, 1.0)
    matrix = np.array([[3.0, -2.0], [0.0, 9.0]])
    for project in (project_inf_norm_ball, project_spectral_norm_ball):
        project(matrix, 100.0)[0, 0] = 7.0
        project(matrix, 1.0)
    stored = sparse.csr_array(matrix)
    project_inf_norm_ball(stored, 1.0)
    assert vector.tolist() == [3.0, -2.0]
    assert matrix.tolist() == stored.toarray().tolist() == [[3.0, -2.0], [0.0, 9.0]]


# -- infinity norm ----------------------------------------------------------------------------------------------------


@given(seeds, radii)
def test_inf_norm_ball_projects_each_row(seed: int, radius: float) -> None:
    matrix = random_matrix(seed, symmetric=False)
    expected = np.array([project_l1_ball(row, radius) for row in matrix])
    np.testing.assert_allclose(project_inf_norm_ball(matrix, radius), expected, rtol=1e-14, atol=0.0)


@given(seeds, radii)
def test_inf_norm_ball_is_a_projection(seed: int, radius: float) -> None:
    matrix = random_matrix(seed, symmetric=False)
    rng = np.random.default_rng(seed)
    assert_projection(project_inf_norm_ball, lambda a: np.abs(a).sum(axis=1).max(), matrix, radius, rng)


@given(seeds, radii, st.sampled_from([sparse.csr_array, sparse.csr_matrix]))
def test_sparse_agrees_with_dense_and_keeps_its_pattern(seed: int, radius: float, kind: type) -> None:
    rng = np.random.default_rng(seed)
    n, m = rng.integers(1, 9, 2)
    matrix = kind(sparse.random(n, m, density=rng.uniform(0.0, 1.0), rng=rng, data_rvs=rng.standard_normal))
    answer = project_inf_norm_ball(matrix, radius)
    assert isinstance(answer, kind)
    np.testing.assert_array_equal(answer.indptr, matrix.indptr)
    np.testing.assert_array_equal(answer.indices, matrix.indices)
    expected = project_inf_norm_ball(matrix.toarray(), radius)
    np.testing.assert_allclose(answer.toarray(), expected, rtol=1e-13, atol=1e-15)


def test_sparse_input_of_other_kinds() -> None:
    repeated = sparse.coo_array(([2.0, 1.0, 5.0], ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    assert project_inf_norm_ball(repeated, 2.0).toarray().tolist() == [[0.0, 2.0], [2.0, 0.0]]
    empty = project_inf_norm_ball(sparse.csr_array((3, 4)), 1.0)
    assert (empty.shape, empty.nnz) == ((3, 4), 0)
    assert project_inf_norm_ball(np.zeros((0, 3)), 1.0).shape == (0, 3)
    assert project_inf_norm_ball(np.zeros((3, 0)), 1.0).shape == (3, 0)


def test_thresholds_are_what_rows_shrank_by() -> None:
    data = np.array([3.0, -2.0, 1.0, 5.0])
    values, thresholds = RowGroups.of(np.array([0, 2, 2, 3, 4])).project(data, 2.0)
    assert values.tolist() == [1.5, -0.5, 1.0, 2.0]
    assert thresholds.tolist() == [1.5, 0.0, 0.0, 3.0]


def test_many_rows_without_a_loop() -> None:
    n = 200_000
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 9, n)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    data = rng.standard_normal(indptr[-1])
    matrix = sparse.csr_array((data, rng.integers(0, n, indptr[-1]), indptr), shape=(n, n))
    matrix.sum_duplicates()
    begin = time.process_time()
    answer = project_inf_norm_ball(matrix, 2.0)
    # About 0.2 s; a Python loop over the rows would take several seconds.
    assert time.process_time() - begin < 3.0
    assert abs(answer).sum(axis=1).max() <= 2.0 + 1e-13
    for row in rng.integers(0, n, 50):
        stored = slice(matrix.indptr[row], matrix.indptr[row + 1])
        expected = project_l1_ball(matrix.data[stored], 2.0)
        np.testing.assert_allclose(answer.data[stored], expected, rtol=1e-14, atol=0.0)


# -- spectral norm ----------------------------------------------------------------------------------------------------


def spectral_norm(matrix: FloatArray) -> float:
    return float(np.linalg.norm(matrix, 2))


@given(seeds, radii, st.booleans())
def test_spectral_norm_ball_is_a_projection(seed: int, radius: float, symmetric: bool) -> None:
    matrix = random_matrix(seed, symmetric=symmetric)
    if abs(spectral_norm(matrix) - radius) > 1e-9:
        rng = np.random.default_rng(seed)
        assert_projection(project_spectral_norm_ball, spectral_norm, matrix, radius, rng)


@given(seeds, radii)
def test_symmetric_agrees_with_singular_values(seed: int, radius: float) -> None:
    matrix = random_matrix(seed, symmetric=True)
    answer = project_spectral_norm_ball(matrix, radius)
    np.testing.assert_array_equal(answer, answer.T)
    left, singular, right = np.linalg.svd(matrix)
    expected = left @ np.diag(np.minimum(singular, radius)) @ right
    np.testing.assert_allclose(answer, expected, rtol=0.0, atol=1e-12 * (1.0 + np.abs(matrix).max()))


@pytest.mark.parametrize("project", [project_inf_norm_ball, project_spectral_norm_ball])
def test_matrix_balls_do_not_expand(project) -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        a, b = rng.standard_normal((2, 4, 5))
        assert np.linalg.norm(project(a, 1.5) - project(b, 1.5)) <= np.linalg.norm(a - b) * (1.0 + 1e-14)


def test_spectral_norm_ball_agrees_with_convex_solver() -> None:
    matrix = 2.0 * np.random.default_rng(2).standard_normal((3, 4))
    w = cp.Variable((3, 4))
    cp.Problem(cp.Minimize(cp.sum_squares(w - matrix)), [cp.sigma_max(w) <= 1.5]).solve(solver=cp.CLARABEL)
    np.testing.assert_allclose(project_spectral_norm_ball(matrix, 1.5), w.value, atol=2e-5)  # of the solver


def test_spectral_norm_ball_edge_cases() -> None:
    assert project_spectral_norm_ball(np.zeros((0, 0)), 1.0).shape == (0, 0)
    assert project_spectral_norm_ball(np.zeros((2, 0)), 1.0).shape == (2, 0)
    np.testing.assert_allclose(project_spectral_norm_ball([[3.0, 1.0], [1.0, 3.0]], 0.0), np.zeros((2, 2)), atol=1e-14)
    np.testing.assert_allclose(project_spectral_norm_ball([[-3.0, 0.0], [0.0, 1.0]], 2.0), [[-2.0, 0.0], [0.0, 1.0]])


# -- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("project", [project_l1_ball, project_inf_norm_ball, project_spectral_norm_ball])
@pytest.mark.parametrize("radius", [-1.0, np.nan, np.inf, "one", None])
def test_bad_radius(project, radius) -> None:
    point = [1.0] if project is project_l1_ball else [[1.0]]
    with pytest.raises(ValueError, match="radius must be"):
        project(point, radius)


@pytest.mark.parametrize("bad", [[np.nan], [np.inf], [[1.0]], 1.0, ["a"], [1j], np.array([1j])])
def test_bad_vector(bad) -> None:
    with pytest.raises(ValueError, match="vector must"):
        project_l1_ball(bad, 1.0)


@pytest.mark.parametrize("project", [project_inf_norm_ball, project_spectral_norm_ball])
@pytest.mark.parametrize("bad", [[[np.nan]], [[-np.inf]], [1.0], [[1.0], [1.0, 2.0]]])
def test_bad_matrix(project, bad) -> None:
    with pytest.raises(ValueError, match="matrix must"):
        project(bad, 1.0)


def test_bad_sparse_matrix() -> None:
    with pytest.raises(ValueError, match="matrix must be finite"):
        project_inf_norm_ball(sparse.csr_array([[0.0, np.nan]]), 1.0)
    with pytest.raises(ValueError, match="matrix must have 2 dimensions"):
        project_inf_norm_ball(sparse.coo_array([1.0, 2.0]), 1.0)
