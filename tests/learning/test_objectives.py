from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit

from fastmix import ResourceError, UnfitMethodError
from fastmix._clock import Clock
from fastmix.graphs import complete_edges
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.covariance import FeatureCovariance
from fastmix.learning.data import read_data
from fastmix.learning.data_moments import DataTerm
from fastmix.learning.dataset import Dataset
from fastmix.learning.likelihood import ExactLikelihood
from fastmix.learning.minimize import minimize
from fastmix.learning.model_moments import Enumerated, TreeSums
from fastmix.learning.penalty import Penalty, shrink_tables, table_norms
from fastmix.learning.pseudo_likelihood import PseudoLikelihoodLoss
from fastmix.learning.residual_kernels import binary_residuals
from fastmix.learning.scaling import Scaling
from fastmix.model import MarkovRandomField
from fastmix.model.forms import contrast_basis
from oracle import learning as naive

COUNTS = [2, 3, 1, 4, 2, 2]
GRAPHS = {
    "complete": complete_edges(6),
    "sparse": np.array([(0, 1), (1, 3), (3, 4), (4, 5)]),
    "empty": np.zeros((0, 2), dtype=np.int64),
}


def case(graph: str, seed: int, *, missing: float = 0.0, binary: bool = False) -> tuple[MarkovRandomField, Dataset]:
    counts = [2] * 6 if binary else COUNTS
    rng = np.random.default_rng(seed)
    rows = np.stack([rng.integers(0, counts) for _ in range(12)])
    rows = np.where(rng.random(rows.shape) < missing, -1, rows)
    rows[0] = 0
    model = naive.random_model(counts, GRAPHS[graph], seed)
    return model, read_data(rows, num_states=counts, weights=rng.random(12))


def check_gradient(evaluate: Any, v: NDArray[np.float64]) -> None:
    rng = np.random.default_rng(0)
    _, gradient = evaluate(v)
    for _ in range(8):
        u, h = rng.standard_normal(len(v)), 1e-5
        slope = (evaluate(v + h * u)[0] - evaluate(v - h * u)[0]) / (2 * h)
        assert slope == pytest.approx(gradient @ u, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("graph", GRAPHS)
def test_hessian_is_the_covariance_of_the_features(graph: str) -> None:
    model, data = case(graph, 4)
    coordinates, rng = Coordinates(model.structure), np.random.default_rng(5)
    rows, v = np.concatenate([data.states] * 2), rng.standard_normal(coordinates.size)
    weights = rng.random(len(rows))
    weights /= weights.sum()
    y = coordinates.encode(rows)
    features = np.concatenate([y, y[:, coordinates.rows] * y[:, coordinates.cols]], axis=1)
    expected = np.cov(features.T, aweights=weights, ddof=0) @ v
    found = FeatureCovariance(coordinates, [rows[:5], rows[5:]], weights).apply(v)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("graph", GRAPHS)
def test_coordinates(graph: str) -> None:
    model, data = case(graph, 1)
    coordinates = Coordinates(model.structure)
    v, constant = coordinates.from_parameters(model.parameters)
    theta = coordinates.to_parameters(v)
    assert np.linalg.norm(theta) == pytest.approx(np.linalg.norm(v))
    same = model.with_parameters(theta)
    np.testing.assert_allclose(same.log_weight(data.states) + constant, model.log_weight(data.states))
    np.testing.assert_allclose(coordinates.from_parameters(theta)[0], v, atol=1e-12)
    y, d = coordinates.encode(data.states), coordinates.num_contrasts
    weights = y @ v[:d] + 0.5 * ((y @ coordinates.matrix(v)) * y).sum(axis=1)
    np.testing.assert_allclose(weights, same.log_weight(data.states), atol=1e-12)
    rng = np.random.default_rng(0)
    p, q = rng.random(12), rng.random(12)
    p, q = p / p.sum(), q / q.sum()
    f = model.sufficient_statistics(data.states)
    difference = (p - q) @ f
    np.testing.assert_allclose(
        coordinates.to_probabilities(coordinates.from_gradient(difference)), difference, atol=1e-12
    )


@pytest.mark.parametrize("count", [1, 2, 5])
def test_contrasts_are_orthonormal_and_add_up_to_0(count: int) -> None:
    q = contrast_basis(count)
    np.testing.assert_allclose(q.T @ q, np.eye(count - 1), atol=1e-12)
    np.testing.assert_allclose(q.sum(axis=0), 0.0, atol=1e-12)


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("graph", GRAPHS)
def test_pseudo_likelihood(graph: str, binary: bool) -> None:
    model, data = case(graph, 2, binary=binary)
    coordinates = Coordinates(model.structure)
    v, _ = coordinates.from_parameters(model.parameters)
    goal = PseudoLikelihoodLoss(coordinates, data)
    expected = [naive.pseudo_log_likelihood(model, row.astype(int)) for row in data.states]
    np.testing.assert_allclose(goal.rows(v)[0], expected, rtol=1e-10)
    assert goal.evaluate(v)[0] == pytest.approx(-data.weights @ expected)
    check_gradient(goal.evaluate, v)


def test_pseudo_likelihood_of_strong_fields_is_finite() -> None:
    model, data = case("complete", 3)
    coordinates = Coordinates(model.structure)
    v, _ = coordinates.from_parameters(1e4 * model.parameters)
    value, gradient = PseudoLikelihoodLoss(coordinates, data).evaluate(v)
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()


def test_residuals_of_many_binary_variables() -> None:
    """By the formulas, over more variables than one product of norms has, and with fields of any size."""
    rng, shape = np.random.default_rng(0), (3, 700)
    x = rng.integers(0, 2, size=shape)
    y, fields = np.sqrt(0.5) * (2 * x - 1), rng.standard_normal(shape) * 10.0 ** rng.integers(-9, 5, size=shape)
    t = 2.0 * y * fields
    residuals, logs = fields.copy(), np.empty(3)
    binary_residuals(residuals, y, logs)
    np.testing.assert_allclose(logs, -np.logaddexp(0.0, -t).sum(axis=1), rtol=1e-14)
    np.testing.assert_allclose(residuals, -2.0 * y * expit(-t), rtol=1e-14, atol=1e-300)


def test_pseudo_likelihood_refuses_missing_values() -> None:
    model, data = case("complete", 3, missing=0.3)
    with pytest.raises(UnfitMethodError, match="objective='likelihood'"):
        PseudoLikelihoodLoss(Coordinates(model.structure), data)


@pytest.mark.parametrize("missing", [0.0, 0.4])
@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("graph", GRAPHS)
def test_likelihood(graph: str, binary: bool, missing: float) -> None:
    model, data = case(graph, 4, binary=binary, missing=missing)
    coordinates = Coordinates(model.structure)
    v, _ = coordinates.from_parameters(model.parameters)
    expected = -data.weights @ naive.log_likelihood(model, data.states.astype(int))
    for term in (Enumerated(coordinates), TreeSums(coordinates)):
        goal = ExactLikelihood(term, DataTerm(coordinates, data))
        assert goal.evaluate(v)[0] == pytest.approx(expected)
        check_gradient(goal.evaluate, v)
    # A sign in the residuals would go unnoticed if the check of gradients could not fail.
    with pytest.raises(AssertionError):
        check_gradient(lambda u: (goal.evaluate(u)[0], -goal.evaluate(u)[1]), v)


def test_too_many_joint_states_of_missing_values_are_refused() -> None:
    n = 20
    coordinates = Coordinates(naive.random_model([2] * n, complete_edges(n), 0).structure)
    rows = np.zeros((2, n), dtype=int)
    rows[1, 2:] = -1
    with pytest.raises(ResourceError, match=r"65,536 .*18 variables"):
        DataTerm(coordinates, read_data(rows))


@pytest.mark.parametrize("alike", ["entries", "edges", "all"])
def test_scaling(alike: str) -> None:
    model, data = case("complete", 5)
    coordinates = Coordinates(model.structure)
    y = coordinates.encode(data.states)
    scaling = Scaling.of(coordinates, data.weights @ y, y.var(axis=0), alike)
    v, _ = coordinates.from_parameters(model.parameters)
    np.testing.assert_allclose(scaling.to_v(scaling.from_v(v)), v, atol=1e-12)
    goal = PseudoLikelihoodLoss(coordinates, data)

    def evaluate(z: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        value, gradient = goal.evaluate(scaling.to_v(z))
        return value, scaling.pull(gradient)

    check_gradient(evaluate, scaling.from_v(v))


@pytest.mark.parametrize("l1", [0.0, 0.02])
def test_the_optimum_meets_its_conditions(l1: float) -> None:
    model, data = case("complete", 6)
    coordinates = Coordinates(model.structure)
    y = coordinates.encode(data.states)
    scaling = Scaling.of(coordinates, data.weights @ y, y.var(axis=0), "edges")
    goal = ExactLikelihood(Enumerated(coordinates), DataTerm(coordinates, data))
    start = np.zeros(coordinates.size)
    found = minimize(goal, start, scaling, Penalty(0.1, l1), tol=1e-8, max_iter=5000, clock=Clock())
    assert found.stopped_by == "done"
    _, gradient = goal.evaluate(found.v)
    gradient += 0.1 * found.v
    d, norms = coordinates.num_contrasts, table_norms(coordinates, found.v)
    np.testing.assert_allclose(gradient[:d], 0.0, atol=1e-6)
    slopes = table_norms(coordinates, gradient)
    if l1:
        assert (norms == 0.0).any()
        assert (norms > 0.0).any()
        assert (slopes[norms == 0.0] <= l1 + 1e-6).all()
    np.testing.assert_allclose(slopes[norms > 0.0], l1, atol=1e-6)


def test_tables_shrink_as_a_whole() -> None:
    model, _ = case("complete", 7)
    coordinates = Coordinates(model.structure)
    v, _ = coordinates.from_parameters(model.parameters)
    before, after = table_norms(coordinates, v), table_norms(coordinates, shrink_tables(coordinates, v, 1.5))
    np.testing.assert_allclose(after, np.maximum(0.0, before - 1.5), atol=1e-12)
