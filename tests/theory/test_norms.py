from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from fastmix import graphs, instances
from fastmix._clock import Clock
from fastmix.model import MarkovRandomField
from fastmix.theory import norms
from fastmix.theory.dependency import dependency_matrix
from fastmix.theory.norms import NORMS, matrix_norm, smallest_norm

SLACK = 1e-10  # promised for the spectral norm of small matrices, relative


@st.composite
def matrices(draw: st.DrawFn, *, symmetric: bool | None = None, max_size: int = 12) -> np.ndarray:
    """Non-negative matrices of every kind: dense to empty, equal to wildly different entries, any scale."""
    n = draw(st.integers(1, max_size))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    density = draw(st.sampled_from([0.1, 0.3, 1.0]))
    spread = draw(st.sampled_from([0.0, 1.0, 10.0]))
    scale = 10.0 ** draw(st.sampled_from([-200, -3, 0, 3, 150]))
    values = scale * np.exp(spread * rng.normal(size=(n, n))) * (rng.random((n, n)) < density)
    if symmetric is None:
        symmetric = draw(st.booleans())
    return np.triu(values) + np.triu(values, 1).T if symmetric else values


def true_norm(matrix: np.ndarray, norm: str) -> float:
    """By the dense routines of NumPy, accurate to about n eps."""
    largest = matrix.max(initial=0.0)
    if largest == 0.0:
        return 0.0
    order = {"spectral": 2, "inf": np.inf, "1": 1, "frobenius": "fro"}[norm]
    return float(largest * np.linalg.norm(matrix / largest, order))


def assert_just_above(value: float, true: float, slack: float) -> None:
    rounding = 1e-13  # of the dense routines
    assert value >= true * (1.0 - rounding), f"{value} is below {true}"
    assert value <= true * (1.0 + slack + rounding), f"{value} is far above {true}: {value / true - 1.0}"


def assert_proved(matrix: np.ndarray, value: float, vector: np.ndarray) -> None:
    """``R v <= c v``, or ``R^T R v <= c^2 v`` where R is not symmetric, in exact arithmetic."""
    v = [Fraction(x) for x in vector.tolist()]
    assert min(v) > 0
    rows = [[Fraction(x) for x in row] for row in matrix.tolist()]
    bound = Fraction(value)
    image = [sum((a * b for a, b in zip(row, v, strict=True)), Fraction(0)) for row in rows]
    if not (matrix == matrix.T).all():
        image = [sum((rows[k][i] * image[k] for k in range(len(v))), Fraction(0)) for i in range(len(v))]
        bound = bound**2
    assert all(y <= bound * x for x, y in zip(v, image, strict=True))


@given(matrix=matrices())
def test_every_norm_is_just_above_the_dense_one(matrix: np.ndarray) -> None:
    for norm in NORMS:
        slack = SLACK if norm == "spectral" else 1e-13
        for given_matrix in (matrix, scipy.sparse.csr_array(matrix), scipy.sparse.coo_matrix(matrix)):
            assert_just_above(matrix_norm(given_matrix, norm), true_norm(matrix, norm), slack)


@given(matrix=matrices(max_size=8))
def test_the_vector_proves_the_spectral_norm_in_exact_arithmetic(matrix: np.ndarray) -> None:
    if matrix.any():
        value, vector = norms._spectral(*norms.as_nonnegative(matrix))
        assert value == matrix_norm(matrix, "spectral")
        assert vector.max() == 1.0
        assert_proved(matrix, value, vector)


def test_the_proof_can_fail() -> None:
    matrix = np.array([[0.0, 0.5], [0.5, 0.0]])
    with pytest.raises(AssertionError):
        assert_proved(matrix, 0.5 * (1 - 1e-15), np.ones(2))


@given(matrix=matrices(max_size=8))
def test_sums_are_from_above_in_exact_arithmetic(matrix: np.ndarray) -> None:
    rows = [[Fraction(x) for x in row] for row in matrix.tolist()]
    assert Fraction(matrix_norm(matrix, "inf")) >= max(sum(row) for row in rows)
    assert Fraction(matrix_norm(matrix, "1")) >= max(sum(column) for column in zip(*rows, strict=True))
    assert Fraction(matrix_norm(matrix, "frobenius")) ** 2 >= sum(x * x for row in rows for x in row)


@given(matrix=matrices(symmetric=True))
def test_for_symmetric_matrices_the_spectral_norm_is_the_smallest(matrix: np.ndarray) -> None:
    spectral = matrix_norm(matrix, "spectral")
    for norm in NORMS:
        assert spectral <= matrix_norm(matrix, norm) * (1 + SLACK)


@given(matrix=matrices())
def test_the_smallest_norm_is_one_of_them(matrix: np.ndarray) -> None:
    name, value = smallest_norm(matrix)
    values = {norm: matrix_norm(matrix, norm) for norm in NORMS}
    assert value == min(values.values()) == values[name]


@pytest.mark.parametrize("degree", [1, 3, 4])
def test_regular_graphs_have_one_norm(degree: int) -> None:
    edges = graphs.random_regular_edges(50, degree, seed=0)
    matrix = dependency_matrix(MarkovRandomField.ising(edges, 0.25, num_variables=50), dependency="range")
    for norm in ("spectral", "inf", "1"):
        value = matrix_norm(matrix, norm)
        assert 0.25 * degree <= value <= 0.25 * degree * (1 + 1e-14)


def test_column_sums_can_be_the_smallest() -> None:
    assert smallest_norm([[0.0, 1.0, 1.0], [0.2, 0.0, 0.0], [0.2, 0.0, 0.0]])[0] == "1"
    assert smallest_norm([[0.0, 0.2, 0.2], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])[0] == "inf"


# -- shapes of graphs -----------------------------------------------------------------------------------------------


def grid_with_one_strong_edge() -> np.ndarray:
    edges = graphs.grid_edges(25, 25)
    couplings = np.full(len(edges), 0.01)
    couplings[600] = 1.0
    return dependency_matrix(MarkovRandomField.ising(edges, couplings), dependency="range")


def random_pairs(extra: float) -> np.ndarray:
    rng = np.random.default_rng(0)
    blocks = [np.array([[0.0, x], [x + extra, 0.0]]) for x in rng.random(80)]
    return scipy.sparse.block_diag([*blocks, np.zeros((5, 5))], format="csr")


GRAPHS = {
    "grid": lambda: dependency_matrix(instances.ising_grid(16, 16, coupling_max=1.0, seed=0)),
    "grid, not symmetric": lambda: dependency_matrix(
        instances.potts_grid(12, 12, coupling_max=1.0, seed=0), dependency="exact"
    ),
    "uniform grid": lambda: dependency_matrix(MarkovRandomField.ising(graphs.grid_edges(20, 20), 0.3)),
    "one strong edge": grid_with_one_strong_edge,
    "path": lambda: dependency_matrix(MarkovRandomField.ising(graphs.path_edges(400), 0.4)),
    "star": lambda: dependency_matrix(MarkovRandomField.ising([(0, k) for k in range(1, 400)], 0.4)),
    "random": lambda: dependency_matrix(instances.ising_random(300, edge_probability=0.02, coupling_max=1.0, seed=0)),
    "bipartite": lambda: dependency_matrix(instances.ising_bipartite(20, 70, coupling_max=1.0, seed=0)),
    "disconnected, isolated": lambda: dependency_matrix(
        instances.ising_random(400, edge_probability=0.002, coupling_max=1.0, seed=0)
    ),
    "pairs": lambda: random_pairs(0.0),
    "pairs, not symmetric": lambda: random_pairs(0.3),
    "nilpotent": lambda: scipy.sparse.csr_array(np.triu(np.full((30, 30), 0.5), 1)),
}


@pytest.mark.parametrize("name", list(GRAPHS))
def test_graphs_of_every_shape(name: str) -> None:
    matrix = GRAPHS[name]()
    assert_just_above(matrix_norm(matrix, "spectral"), true_norm(matrix.toarray(), "spectral"), SLACK)


@pytest.mark.parametrize("name", ["grid", "path", "one strong edge", "grid, not symmetric"])
def test_vectors_that_are_not_kept_are_computed_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = GRAPHS[name]()
    kept = norms._spectral(*norms.as_nonnegative(matrix))
    monkeypatch.setattr(norms, "MAX_STORED_LANCZOS_BYTES", 0)
    again = norms._spectral(*norms.as_nonnegative(matrix))
    assert again[0] == kept[0]
    assert (again[1] == kept[1]).all()


def test_a_small_budget_loosens_the_bound_and_keeps_it_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = dependency_matrix(MarkovRandomField.ising(graphs.path_edges(1000), 0.4))
    true = math.tanh(0.4) * 2 * math.cos(math.pi / 1001)
    rough = []
    for visits in (2e4, 2e5, 1e6):
        monkeypatch.setattr(norms, "MAX_NORM_VISITS", visits)
        rough.append(matrix_norm(matrix, "spectral"))
        assert_just_above(rough[-1], true, 1e-5)
    assert rough == sorted(rough, reverse=True)
    star = dependency_matrix(MarkovRandomField.ising([(0, k) for k in range(1, 400)], 0.4))
    monkeypatch.setattr(norms, "MAX_NORM_VISITS", 0.0)
    # After a single step all that is known is the row sums.
    assert matrix_norm(star, "spectral") >= true_norm(star.toarray(), "spectral")


def test_a_grid_of_ten_thousand_is_known_to_ten_digits() -> None:
    matrix = dependency_matrix(MarkovRandomField.ising(graphs.grid_edges(100, 100), 0.2), dependency="range")
    assert_just_above(matrix_norm(matrix, "spectral"), 0.2 * 4 * math.cos(math.pi / 101), SLACK)


# -- edges of the domain --------------------------------------------------------------------------------------------


def test_tiny_matrices() -> None:
    for norm in NORMS:
        assert matrix_norm(np.zeros((0, 0)), norm) == 0.0
        assert matrix_norm(np.zeros((3, 3)), norm) == 0.0
        assert matrix_norm(scipy.sparse.csr_array((4, 4)), norm) == 0.0
        assert 0.7 <= matrix_norm([[0.7]], norm) <= 0.7 * (1 + 1e-14)
        assert matrix_norm([[0.0, math.inf], [0.1, 0.0]], norm) == math.inf
    assert smallest_norm(np.zeros((0, 0))) == ("spectral", 0.0)
    assert smallest_norm([[0.0, math.inf], [0.0, 0.0]])[1] == math.inf


def test_numbers_at_the_ends_of_the_range() -> None:
    for scale in (5e-324, 1e-310, 1e-200, 1e200, 8e307):
        matrix = scale * np.array([[0.0, 1.0], [1.0, 0.0]])
        for norm in ("spectral", "inf", "1"):
            assert matrix_norm(matrix, norm) >= scale
        assert matrix_norm(matrix, "frobenius") >= scale
    assert matrix_norm(np.full((3, 3), 1.7e308), "inf") == math.inf


def test_the_argument_is_not_changed() -> None:
    matrix = scipy.sparse.csr_array(([0.5, 0.25, 0.25, 0.0], [1, 0, 0, 1], [0, 1, 4]), shape=(2, 2))
    before = (matrix.data.copy(), matrix.indices.copy(), matrix.indptr.copy())
    for norm in NORMS:
        assert matrix_norm(matrix, norm) == pytest.approx(0.5 * (math.sqrt(2) if norm == "frobenius" else 1))
    assert all((a == b).all() for a, b in zip(before, (matrix.data, matrix.indices, matrix.indptr), strict=True))


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ([[0.0, -0.5], [0.5, 0.0]], r"^R .*got -0\.5"),
        ([[0.0, math.nan], [0.5, 0.0]], r"^R .*got nan"),
        ([[0.0, 1.0]], r"^R .*got shape \(1, 2\)"),
    ],
)
def test_other_matrices_are_refused(matrix: list[list[float]], message: str) -> None:
    for call in (lambda: matrix_norm(matrix, "inf"), lambda: smallest_norm(matrix)):
        with pytest.raises(ValueError, match=message):
            call()


def test_an_unknown_norm_is_named_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"^norm .*got 2$") as caught:
        matrix_norm([[0.0]], 2)
    assert all(name in str(caught.value) for name in ("spectral", "inf", "1", "frobenius"))


@pytest.mark.parametrize("n", [1, 2, 5, 60, 400])
def test_the_norm_of_signed_matrices_is_estimated_from_below(n: int) -> None:
    rng = np.random.default_rng(n)
    matrix = rng.normal(size=(n, n))
    matrix += matrix.T
    exact = float(np.abs(np.linalg.eigvalsh(matrix)).max())
    for start in (np.ones(n), rng.normal(size=n)):
        assert 0.99 * exact <= norms.lanczos_norm(lambda v: matrix @ v, start) <= exact * (1.0 + 1e-12)
    assert norms.lanczos_norm(np.zeros_like, np.ones(n)) == 0.0
    calls = []
    late = Clock(1e-9)
    norms.lanczos_norm(lambda v: calls.append(1) or matrix @ v, np.ones(n), late)
    assert len(calls) <= norms.MIN_LANCZOS_STEPS // 2
