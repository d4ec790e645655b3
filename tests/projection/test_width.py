"""Projection onto the models of bounded width against a general convex solver, and what it promises."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest

import strategies
from fastmix import instances
from fastmix._clock import Clock
from fastmix.errors import NotConvergedError, UnfitMethodError
from fastmix.model import MarkovRandomField
from fastmix.projection import PaperDual, project, width, width_solvers
from fastmix.projection.width_kernels import dual_value
from fastmix.theory import width as widths
from fastmix.theory.certify import certify
from fastmix.theory.width import _KNOWN, add_couplings, coupling_matrix, couplings, model_width
from oracle import convex


def random_model(seed: int) -> MarkovRandomField:
    rng = np.random.default_rng(seed)
    n, edges = convex.GRAPHS[sorted(convex.GRAPHS)[seed % 5]]
    counts = [2] * n if seed % 2 else rng.integers(1 if seed % 4 else 2, 4, size=n).tolist()
    tables = [rng.normal(scale=1.5, size=(counts[i], counts[j])) for i, j in edges]
    return MarkovRandomField.from_tables([rng.normal(size=count) for count in counts], edges, tables)


def dense_model(n: int = 30, scale: float = 0.5, seed: int = 0) -> MarkovRandomField:
    edges = list(itertools.combinations(range(n), 2))
    rng = np.random.default_rng(seed)
    return MarkovRandomField.ising(edges, scale * rng.normal(size=len(edges)) / math.sqrt(n), rng.normal(size=n))


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("seed", strategies.seeds(60, quick=4))
def test_agrees_with_a_general_convex_solver(seed: int, dense: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(width, "WIDTH_LEAST_DENSITY", 0.0 if dense else 2.0)
    monkeypatch.setattr(width, "WIDTH_SPARSE_TOL", 0.0)
    model, bound = random_model(seed), (0.95, 0.3, 2.0)[seed % 3]
    result = project(model, norm="width", norm_bound=bound, tol=1e-5, progress=None)
    distance, tables = convex.solve_width(model, bound)
    assert result.norm_after <= bound
    assert result.squared_distance == pytest.approx(distance, abs=2e-5 * (1.0 + distance))
    assert result.squared_distance - result.duality_gap <= distance * (1.0 + 1e-7) + 1e-9
    np.testing.assert_allclose(result.model.log_pairwise, tables, atol=2e-2)
    np.testing.assert_array_equal(result.model.log_unary, model.log_unary)


def test_couplings_are_added_where_they_are_read() -> None:
    rng = np.random.default_rng(3)
    for seed in range(12):
        model = random_model(seed)
        matrix = coupling_matrix(model)[0]
        rows, cols, _, _ = couplings(model)
        change = rng.normal(size=len(rows))
        changed = add_couplings(model, change)
        difference = (coupling_matrix(changed)[0] - matrix).toarray()
        np.testing.assert_allclose(difference[rows, cols], change, atol=1e-12)
        moved = changed.log_pairwise - model.log_pairwise
        assert float(moved @ moved) == pytest.approx(4.0 * float(change @ change), abs=1e-12)


def test_the_gradient_of_the_low_rank_dual() -> None:
    rng = np.random.default_rng(0)
    rows, cols, b = np.array([0, 0, 1]), np.array([1, 2, 2]), rng.normal(size=3)
    x, gradient = rng.normal(size=(3, 16)), np.empty((3, 16))
    dual_value(rows, cols, b, x, 0.4, gradient)
    direction, step = rng.normal(size=x.shape), 1e-6
    ends = [dual_value(rows, cols, b, x + s * direction, 0.4, np.empty_like(x)) for s in (step, -step)]
    assert float((gradient * direction).sum()) == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-6)


@pytest.mark.parametrize("bound", [0.95, 0.5])
def test_dense_models_meet_the_bound_and_are_certified(bound: float) -> None:
    model = dense_model()
    result = project(model, norm="width", norm_bound=bound, progress=None)
    assert result.norm_before > bound >= result.norm_after > 0.999 * bound
    assert result.relative_gap <= 1e-6
    certificate = certify(result.model, accuracy=0.01, criterion="width")
    assert certificate.certified
    assert certificate.width == result.norm_after
    again = project(result.model, norm="width", norm_bound=bound, progress=None)
    assert again.model is result.model
    # A model that is read from a file is certified too, by the diagonal that the certificate finds itself.
    _KNOWN.clear()
    assert bound * 0.99 <= model_width(result.model).value <= 1.02 * bound


def test_it_moves_less_than_the_norms_of_r_for_dense_mixed_signs() -> None:
    model = dense_model(60)
    moved = [project(model, norm=norm, norm_bound=0.95).squared_distance for norm in ("width", "spectral", "inf")]
    assert moved[0] < 0.5 * moved[1] < 0.5 * moved[2]


def test_restricted_boltzmann_machines_are_cut_at_the_singular_values() -> None:
    """Ising couplings W on a complete bipartite graph: the width is twice the largest singular value of W."""
    rng = np.random.default_rng(1)
    weights = rng.normal(size=(8, 12)) * 0.3
    edges = [(i, 8 + j) for i in range(8) for j in range(12)]
    model = MarkovRandomField.ising(edges, weights.ravel())
    left, values, right = np.linalg.svd(weights, full_matrices=False)
    assert model_width(model).value == pytest.approx(2.0 * values[0], rel=1e-6)
    result = project(model, norm="width", norm_bound=0.9, tol=1e-9)
    nearest = (left * np.minimum(values, 0.45)) @ right
    expected = 4.0 * float(((nearest - weights) ** 2).sum())
    assert result.squared_distance == pytest.approx(expected, rel=1e-6)
    couplings = coupling_matrix(result.model)[0].toarray()[:8, 8:]
    np.testing.assert_allclose(couplings, nearest, atol=1e-5)


def test_warm_starts_evidence_and_forbidden_states() -> None:
    model = dense_model()
    first = project(model, norm="width", norm_bound=0.9, tol=1e-9)
    again = project(model, norm="width", norm_bound=0.9, tol=1e-9, warm_start=first)
    assert again.stats["num_iterations"] < first.stats["num_iterations"]
    given = project(model, norm="width", norm_bound=0.9, evidence={3: 1, 7: 0})
    alone = project(model.condition({3: 1, 7: 0}), norm="width", norm_bound=0.9)
    np.testing.assert_allclose(given.model.log_pairwise, alone.model.log_pairwise)
    unary = model.log_unary.copy()
    unary[0] = -np.inf
    forbidden = project(model.replace(log_unary=unary), norm="width", norm_bound=0.9)
    assert certify(forbidden.model, accuracy=0.01, criterion="width").certified
    assert json.dumps(forbidden.to_dict())
    assert forbidden.dependency is None


def test_large_sparse_models_have_a_gap_of_a_hundredth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(width, "WIDTH_MAX_DENSE", 100)
    model = instances.ising_grid(12, 12, coupling_max=1.0, seed=0)
    result = project(model, norm="width", norm_bound=0.95)
    assert result.norm_after <= 0.95
    assert 0.0 <= result.relative_gap <= 0.01
    assert certify(result.model, accuracy=0.01, criterion="width").certified


def test_out_of_time_or_iterations_the_model_is_within_the_bound() -> None:
    for model in (dense_model(), instances.ising_grid(8, 8, coupling_max=2.0, seed=0)):
        late = project(model, norm="width", norm_bound=0.5, time_limit=1e-9)
        assert late.status == "time_limit"
        assert late.norm_after <= 0.5
        with pytest.raises(NotConvergedError) as error:
            project(model, norm="width", norm_bound=0.5, tol=1e-14, max_iter=1)
        assert error.value.result.norm_after <= 0.5


def test_what_is_refused() -> None:
    model = dense_model(5)
    with pytest.raises(UnfitMethodError, match="Euclidean"):
        project(model, norm="width", norm_bound=0.9, divergence="kl")
    with pytest.raises(ValueError, match="dependency"):
        project(model, norm="width", norm_bound=0.9, dependency="linf")
    with pytest.raises(ValueError, match=r"norm .*'width'"):
        project(model, norm="width", norm_bound=0.9, solver=PaperDual())
    tables = [np.array([[0.0, -np.inf], [0.0, 0.0]])]
    with pytest.raises(UnfitMethodError, match=r"edge \(0, 1\)"):
        project(MarkovRandomField.from_tables([[0, 0], [0, 0]], [(0, 1)], tables), norm="width", norm_bound=0.9)
    three = MarkovRandomField.from_factors([2, 2, 2], [((0, 1, 2), np.arange(8.0).reshape(2, 2, 2))])
    with pytest.raises(UnfitMethodError, match=r"norm='width' .*factors"):
        project(three, norm="width", norm_bound=0.9)


@pytest.mark.parametrize("scale", [0.0, 1e-9, 1e3])
def test_no_edges_and_extreme_couplings(scale: float) -> None:
    assert project(MarkovRandomField.from_tables([[0, 1]], [], []), norm="width", norm_bound=0.9).norm_after == 0.0
    result = project(dense_model(8, scale), norm="width", norm_bound=0.9)
    assert result.norm_after <= 0.9


def test_steps_do_not_wander_off() -> None:
    # Combinations of earlier steps (Anderson) did so here: 10,000 of them left a gap of 0.012, plain steps take 30.
    edges = [(0, 2), (0, 3), (1, 2), (2, 5), (3, 5), (4, 5)]
    model = MarkovRandomField.ising(edges, [0.76157374, 1.16504196, 1.52121196, 2.999565, 0.28645253, 1.47463054])
    assert project(model, norm="width", norm_bound=0.3, tol=1e-4).stats["num_iterations"] < 1000


@pytest.mark.parametrize("affordable", ["nothing", "the set-up", "everything"])
def test_what_does_not_fit_in_time_is_left_out_and_the_model_is_within_the_bound(
    affordable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = {"nothing": 1e9, "the set-up": 1e9, "everything": 0.0}[affordable]
    for module in (width, width_solvers):
        monkeypatch.setattr(module, "eigenvalue_seconds", lambda _: 1e9 if affordable == "nothing" else 0.0)
    monkeypatch.setattr(width_solvers, "eigenvector_seconds", lambda _: seconds)
    monkeypatch.setattr(widths, "eigenvalue_seconds", lambda _: 1e9 if affordable == "nothing" else 0.0)
    model = dense_model(40, scale=1.0, seed=5)
    result = project(model, norm="width", norm_bound=0.8, time_limit=100.0, progress=None)
    assert result.status == ("ok" if affordable == "everything" else "time_limit")
    assert (result.stats["num_iterations"] > 0) == (affordable == "everything")
    assert 0.7 < result.norm_after <= 0.8
    proved = _KNOWN[result.model]
    values = np.linalg.eigvalsh(coupling_matrix(result.model)[0].toarray() + np.diag(proved.diagonal))
    assert 2.0 * float(np.abs(values).max()) <= proved.value == result.norm_after


def test_a_step_is_proved_without_another_decomposition(monkeypatch: pytest.MonkeyPatch) -> None:
    model = dense_model(40, scale=1.0, seed=6)
    expected = project(model, norm="width", norm_bound=0.8, progress=None)
    for module in (width, width_solvers):
        monkeypatch.setattr(module, "eigenvalue_seconds", lambda _: 1e9)  # those of the steps come with their vectors
    result = project(model, norm="width", norm_bound=0.8, time_limit=100.0, progress=None)
    assert result.status == "ok"
    assert result.norm_after <= 0.8
    assert result.squared_distance == pytest.approx(expected.squared_distance, rel=1e-5)
    np.testing.assert_allclose(result.model.log_pairwise, expected.model.log_pairwise, atol=1e-4)


@pytest.mark.parametrize("seed", range(12))
def test_without_time_for_the_matrix_row_sums_prove_the_width(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for estimate in ("width_seconds", "matrix_seconds"):
        monkeypatch.setattr(width, estimate, lambda _: 1e9)
    monkeypatch.setattr(width, "WIDTH_MAX_DENSE", 1)
    monkeypatch.setattr(width_solvers, "symmetric_matrix", lambda *_: pytest.fail("a matrix was made"))
    monkeypatch.setattr(width, "symmetric_matrix", lambda *_: pytest.fail("a matrix was made"))
    monkeypatch.setattr(width_solvers, "WIDTH_STEP_SHARE", 0.0)  # no step is begun
    model = random_model(seed)
    result = project(model, norm="width", norm_bound=0.5, time_limit=100.0, progress=None)
    assert result.norm_after <= 0.5
    matrix = coupling_matrix(result.model)[0].toarray()
    diagonal = _KNOWN[result.model].diagonal if result.model in _KNOWN else np.zeros(len(matrix))
    values = np.linalg.eigvalsh(matrix + np.diag(diagonal))
    assert 2.0 * float(np.abs(values).max(initial=0.0)) <= result.norm_after
    if result.norm_before > 0.5:
        assert result.norm_after > 0.49


@pytest.mark.parametrize("seed", range(12))
def test_a_proof_that_time_cuts_short_is_a_bound(seed: int) -> None:
    matrix = coupling_matrix(instances.ising_grid(6, 7, coupling_max=2.0, seed=seed))[0]
    diagonal = np.random.default_rng(seed).normal(size=matrix.shape[0])
    norm = float(np.abs(np.linalg.eigvalsh(matrix.toarray() + np.diag(diagonal))).max())
    estimate = widths.NormEstimate(0.99 * norm, complete=False)
    whole, _ = widths.norm_from_above(matrix, diagonal, estimate)
    short, _ = widths.norm_from_above(matrix, diagonal, estimate, clock=Clock(1e-9))
    row_sum = float((abs(matrix).sum(axis=1) + np.abs(diagonal)).max())
    assert norm <= whole <= 1.01 * norm
    assert norm <= short <= row_sum * (1.0 + 1e-9)
