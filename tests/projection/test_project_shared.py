"""Projections of models that share tables are those of the same tables in full, and stay small."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strategies
from fastmix import certify, project
from fastmix.chains.cpu import CpuChains
from fastmix.errors import UnfitMethodError
from fastmix.model import MarkovRandomField
from fastmix.model.inputs import image_edges
from fastmix.projection.edges import edge_costs
from oracle import convex
from strategies import Shared

LABELS = 6
DISTANCE = -np.minimum(np.abs(np.subtract.outer(np.arange(LABELS), np.arange(LABELS))), 2.0)
UNEVEN = np.random.default_rng(1).normal(size=(LABELS, LABELS))


def picture(pattern: Any, side: int = 20) -> MarkovRandomField:
    """A picture with different weights on all edges, some of them 0 or below."""
    rng = np.random.default_rng(0)
    edges, _ = image_edges((side, side), 4, None, None)
    weights = rng.uniform(-0.5, 1.5, len(edges))
    weights[::7] = 0.0
    return MarkovRandomField.image(rng.normal(size=(side, side, LABELS)), pattern, weights=weights)


def in_full(model: MarkovRandomField) -> MarkovRandomField:
    """The same model with its tables in full."""
    return model.replace(log_pairwise=model.log_pairwise)


@pytest.mark.parametrize("dependency", ["range", "linf"])
@given(
    twins=strategies.shared_models(min_variables=2, allow_forbidden=False, allow_mixtures=False),
    share=st.floats(0.0, 1.0),
)
def test_costs_and_nearest_tables(dependency: Any, twins: Shared, share: float) -> None:
    """One path per pattern gives the costs, slopes and nearest tables that a path per edge gives."""
    ours = edge_costs(twins.shared, dependency)
    theirs = edge_costs(twins.full, dependency)
    np.testing.assert_allclose(ours.rho, theirs.rho, rtol=1e-12, atol=1e-13)
    z = share * np.random.default_rng(0).random(twins.full.num_edges) * theirs.rho
    assert ours.cost(z) == pytest.approx(theirs.cost(z), rel=1e-9, abs=1e-10)
    nearest = ours.nearest(z)
    assert nearest.shared_tables is not None
    np.testing.assert_allclose(nearest.log_pairwise, theirs.nearest(z).log_pairwise, rtol=1e-8, atol=1e-8)
    untouched = ours.nearest(ours.rho)
    np.testing.assert_array_equal(untouched.log_pairwise, twins.full.log_pairwise)


@pytest.mark.parametrize("norm", ["inf", "spectral", "frobenius"])
@given(twins=strategies.shared_models(min_variables=2, max_states=3, allow_forbidden=False, scales=(1.0,)))
def test_projections(norm: Any, twins: Shared) -> None:
    ours = project(twins.shared, norm_bound=0.7, norm=norm, tol=1e-7, max_iter=100_000)
    theirs = project(twins.full, norm_bound=0.7, norm=norm, tol=1e-7, max_iter=100_000)
    assert ours.norm_after <= 0.7
    assert ours.squared_distance == pytest.approx(theirs.squared_distance, rel=1e-6, abs=1e-6)
    np.testing.assert_allclose(ours.model.log_pairwise, theirs.model.log_pairwise, atol=2e-3)
    np.testing.assert_array_equal(ours.model.log_unary, theirs.model.log_unary)


@pytest.mark.parametrize("dependency", ["range", "linf"])
@pytest.mark.parametrize("norm", ["inf", "spectral"])
@pytest.mark.parametrize("seed", strategies.seeds(12, quick=3))
def test_projections_are_those_of_a_convex_solver(norm: Any, dependency: Any, seed: int) -> None:
    """Two patterns, turned on some edges, with weights of their own on all edges, of either sign."""
    rng = np.random.default_rng([seed, 35])
    n, edges = convex.GRAPHS[str(rng.choice(sorted(convex.GRAPHS)))]
    count = int(rng.integers(2, 5))
    states = np.arange(count)
    distance = -np.minimum(np.abs(np.subtract.outer(states, states)), 2.0)
    patterns = [np.eye(count), distance, rng.normal(size=(count, count))]
    chosen = rng.choice(len(patterns), 2, replace=False)
    turned = rng.random(len(edges)) < 0.5
    weights = rng.normal(scale=1.5, size=len(edges))
    model = MarkovRandomField.from_patterns(
        rng.normal(size=(n, count)),
        [edge[::-1] if turn else edge for edge, turn in zip(edges, turned, strict=True)],
        [patterns[k] for k in chosen],
        rng.integers(0, 2, len(edges)),
        weights,
    )
    assert model.shared_tables is not None
    found = project(model, norm_bound=0.7, norm=norm, dependency=dependency, tol=1e-7, max_iter=100_000)
    assert "log_pairwise" not in vars(found.model)
    expected, tables = convex.solve(in_full(model), 0.7, norm, dependency)
    assert found.squared_distance == pytest.approx(expected, rel=1e-5, abs=1e-5)
    np.testing.assert_allclose(found.model.log_pairwise, tables, rtol=0, atol=5e-3)
    assert convex.norm_of_model(model, found.model.log_pairwise, norm, dependency) <= 0.7 + 1e-9


@pytest.mark.parametrize("pattern", [1.0, DISTANCE, UNEVEN], ids=["potts", "truncated", "uneven"])
@pytest.mark.parametrize("norm_bound", [0.95, 2.5])
def test_a_projected_picture_stays_small(pattern: Any, norm_bound: float) -> None:
    model = picture(pattern)
    result = project(model, norm_bound=norm_bound)
    assert result.norm_after <= norm_bound
    assert "log_pairwise" not in vars(model)
    assert "log_pairwise" not in vars(result.model)
    shared = result.model.shared_tables
    assert shared is not None
    assert model.shared_tables is not None
    assert shared.num_bytes < 2 * model.shared_tables.num_bytes + 8 * LABELS**2 * 200
    expected = project(in_full(model), norm_bound=norm_bound)
    assert result.squared_distance == pytest.approx(expected.squared_distance, rel=1e-5)
    assert result.relative_gap <= 1e-6
    again = project(result.model, norm_bound=norm_bound)
    assert again.model is result.model
    if norm_bound < 1.0:
        assert certify(result.model).certified


def test_potts_patterns_shrink_straight() -> None:
    """The cost of every edge is one parabola, with the curvature of the pattern, whatever the weight."""
    model = picture(1.0)
    costs = edge_costs(model, "range")
    assert costs.curvature == pytest.approx(4.0 * (LABELS - 1))
    z = 0.4 * costs.rho
    change = costs.rho - z
    assert costs.cost(z) == pytest.approx(costs.curvature * float(change @ change))
    centered = np.eye(LABELS) - 1.0 / LABELS
    shared = model.shared_tables
    assert shared is not None
    e = int(np.abs(shared.weights).argmax())
    i, j = model.edges[e].tolist()
    expected = shared.weights[e] * (np.eye(LABELS) - 0.6 * centered)
    np.testing.assert_allclose(costs.nearest(z).table(i, j), expected, atol=1e-12)


@pytest.mark.parametrize("pattern", [1.0, DISTANCE, UNEVEN], ids=["potts", "truncated", "uneven"])
def test_a_projected_picture_is_sampled_as_its_full_tables_are(pattern: Any) -> None:
    projected = project(picture(pattern), norm_bound=0.95).model
    ours = CpuChains(projected.structure, num_chains=1, seed=0, kernel="product")
    theirs = CpuChains(projected.structure, num_chains=1, seed=0, kernel="product")
    ours.load_model(projected)
    theirs.load(projected.parameters)
    for chains in (ours, theirs):
        chains.sweep(5)
    np.testing.assert_array_equal(ours.get_states(), theirs.get_states())


def test_other_divergences_take_shared_tables_in_full() -> None:
    model = MarkovRandomField.from_patterns(np.zeros((3, 3)), [(0, 1), (1, 2)], [np.eye(3)], 0, [2.0, 3.0])
    result = project(model, norm_bound=0.8, divergence="reversed-kl", seed=0, time_limit=5.0)
    assert result.norm_after <= 0.8


def test_dropped_states_come_back() -> None:
    unary = np.zeros((3, 4))
    unary[1, 2] = -np.inf
    model = MarkovRandomField.from_patterns(unary, [(0, 1), (1, 2)], [np.eye(4)], 0, [2.0, 3.0])
    ours = project(model, norm_bound=0.8)
    theirs = project(in_full(model), norm_bound=0.8)
    np.testing.assert_allclose(ours.model.log_pairwise, theirs.model.log_pairwise, atol=1e-6)


def test_forbidden_pairs_are_refused() -> None:
    hard = np.where(np.eye(3, dtype=bool), -np.inf, 0.0)
    model = MarkovRandomField.from_patterns(np.zeros((3, 3)), [(0, 1), (1, 2)], [hard])
    with pytest.raises(UnfitMethodError, match="edge"):
        project(model, norm_bound=0.5)


@pytest.mark.nojit
@pytest.mark.parametrize("norm", ["inf", "spectral", "frobenius"])
def test_a_tiny_model(norm: Any) -> None:
    """Small enough for the kernels without the compiler."""
    pattern = [[0.0, -1.0, -2.0], [-1.0, 0.5, -1.0], [-2.0, -1.0, 1.0]]
    model = MarkovRandomField.from_patterns(np.zeros((3, 3)), [(0, 1), (1, 2)], [pattern], 0, [2.0, 0.5])
    ours = project(model, norm_bound=0.3, norm=norm)
    theirs = project(in_full(model), norm_bound=0.3, norm=norm)
    assert ours.norm_after <= 0.3
    assert ours.squared_distance == pytest.approx(theirs.squared_distance, rel=1e-5)
