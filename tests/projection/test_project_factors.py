"""Projection of models with factors over three or more variables, against a general convex solver."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
import strategies
from fastmix import KL, MarkovRandomField, PaperDual, UnfitMethodError, certify, infer, project
from fastmix.model.factor_forms import center_factors
from fastmix.projection import edges as edges_module
from fastmix.theory.comparison import comparison_bounds
from fastmix.theory.dependency import edge_dependencies, to_matrix
from fastmix.theory.norms import matrix_norm
from oracle import convex


def random_factors(seed: int, n: int = 5, scale: float = 1.0, max_states: int = 3) -> MarkovRandomField:
    rng = np.random.default_rng(seed)
    counts = rng.integers(2, max_states + 1, n)
    scopes = {tuple(sorted(rng.choice(n, size, replace=False).tolist())) for size in (3, 3, 4, 2, 2)}
    factors = [(scope, scale * rng.normal(size=counts[list(scope)])) for scope in sorted(scopes)]
    return MarkovRandomField.from_factors(counts, [*factors, *(((i,), rng.normal(size=counts[i])) for i in range(n))])


def ring(n: int, scale: float, seed: int = 0) -> MarkovRandomField:
    rng = np.random.default_rng(seed)
    factors = [((k, (k + 1) % n, (k + 2) % n), scale * rng.normal(size=(2, 2, 2))) for k in range(n)]
    return MarkovRandomField.from_factors([2] * n, factors)


@pytest.mark.parametrize("norm", ["inf", "spectral", "frobenius"])
@pytest.mark.parametrize("dependency", ["range", "linf"])
@pytest.mark.parametrize("seed", strategies.seeds(12, quick=1))
def test_as_near_as_a_general_convex_solver_gets(seed, dependency, norm):
    model = random_factors(seed, scale=(0.3, 1.0, 3.0)[seed % 3])
    bound = (0.9, 0.4, 2.5)[seed % 3]
    result = project(model, norm_bound=bound, norm=norm, dependency=dependency, tol=1e-9, max_iter=100_000)
    distance, tables, scales = convex.solve_with_factors(center_factors(model), bound, norm, dependency)
    assert result.squared_distance == pytest.approx(distance, rel=2e-6, abs=2e-7)
    np.testing.assert_allclose(result.factor_scales, scales, atol=2e-3)
    np.testing.assert_allclose(result.model.log_pairwise, tables, atol=5e-3)
    z = edge_dependencies(result.model, dependency=dependency).max(axis=1)
    assert matrix_norm(to_matrix(result.model, z), norm) <= bound
    assert result.relative_gap <= 1e-9


@given(
    model=strategies.factor_models(allow_forbidden=False, scales=(0.0, 0.3, 1.0, 5.0)),
    norm_bound=st.sampled_from([0.2, 0.95, 2.5]),
    norm=st.sampled_from(["inf", "spectral"]),
)
def test_within_the_bound_and_only_scaled(model, norm_bound, norm):
    result = project(model, norm_bound=norm_bound, norm=norm)
    z = edge_dependencies(result.model, dependency="range").max(axis=1, initial=0.0)
    assert matrix_norm(to_matrix(result.model, z), norm) <= norm_bound
    scales = result.factor_scales
    assert scales.shape == (model.num_factors,)
    assert (scales >= 0.0).all()
    assert (scales <= 1.0 + 1e-12).all()
    if result.norm_before <= norm_bound:
        assert result.model is model
        assert (scales == 1.0).all()
        return
    centered = center_factors(model)
    for (_, before), (_, after), scale in zip(centered.factors, result.model.factors, scales, strict=True):
        np.testing.assert_allclose(after, scale * before, atol=1e-9 * (1 + np.abs(before).max()))
    again = project(result.model, norm_bound=norm_bound, norm=norm)
    assert again.squared_distance == 0.0
    distance = np.abs(oracle.joint(model) - oracle.joint(result.model)).sum() / 2
    assert distance <= comparison_bounds(result.model, model).bounds.sum() + 1e-9


def test_weak_factors_of_higher_order_stay_whole():
    # All that is wrong is a pair inside a factor: its table is projected, and the other factor stays as it is.
    strong = np.zeros((2, 2, 2)) + np.array([[3.0, -3.0], [-3.0, 3.0]])[:, :, None]
    weak = 0.1 * np.random.default_rng(0).normal(size=(2, 2, 2))
    model = MarkovRandomField.from_factors([2] * 6, [((0, 1, 2), strong), ((3, 4, 5), weak)])
    result = project(model, norm_bound=0.9)
    assert result.factor_scales.tolist() == [1.0, 1.0]
    assert result.squared_distance == pytest.approx(4 * 2.1**2, rel=1e-6)
    assert "factors scaled by 1 to 1" in repr(result)
    assert result.certified
    assert json.loads(json.dumps(result.to_dict()))["factor_scales"] == result.factor_scales.tolist()
    assert project(MarkovRandomField.ising([(0, 1)], 2.0), norm_bound=0.9).to_dict()["factor_scales"] is None


@pytest.mark.parametrize("norm", ["inf", "spectral"])
def test_larger_models_and_their_certificates(norm):
    result = project(ring(200, 1.0), norm_bound=0.95, norm=norm)
    assert result.relative_gap <= 1e-6
    assert certify(result.model, accuracy=0.01).certified
    warm = project(ring(200, 1.0), norm_bound=0.95, norm=norm, warm_start=result)
    assert warm.stats["num_iterations"] <= result.stats["num_iterations"]


def test_forbidden_states_stay_and_come_back():
    rng = np.random.default_rng(0)
    factors = [
        ((0, 1, 2), rng.normal(size=(3, 2, 3))),
        ((0,), [0.0, -math.inf, 0.0]),
        ((3, 0), rng.normal(size=(2, 3))),
    ]
    model = MarkovRandomField.from_factors([3, 2, 3, 2], factors)
    result = project(model, norm_bound=0.3)
    assert result.model.unary(0)[1] == -math.inf
    assert result.norm_after <= 0.3
    small, large = project(model.drop_forbidden_states(), norm_bound=0.3), oracle.joint(result.model)
    np.testing.assert_allclose(large[[0, 2]], oracle.joint(small.model), atol=1e-9)
    assert oracle.log_z(result.model) == pytest.approx(oracle.log_z(small.model), abs=1e-9)
    given = project(model, norm_bound=0.3, evidence={1: 0})
    assert given.model.num_variables == 3


def test_out_of_time_it_is_within_the_bound():
    rng = np.random.default_rng(1)
    model = MarkovRandomField.from_factors(
        [6] * 4, [((0, 1, 2), rng.normal(size=(6, 6, 6))), ((2, 3), rng.normal(size=(6, 6)))]
    )
    result = project(model, norm_bound=0.5, time_limit=1e-9)
    assert result.status == "time_limit"
    assert result.norm_after <= 0.5


def test_what_is_refused():
    model = random_factors(0)
    holes = model.log_factors.copy()
    holes[0] = -math.inf
    with pytest.raises(UnfitMethodError, match=r"variables \(.*\) forbids"):
        project(model.replace(log_factors=holes), norm_bound=0.5)
    with pytest.raises(UnfitMethodError, match=r"KL.*factors"):
        project(model, norm_bound=0.5, divergence=KL())
    with pytest.raises(UnfitMethodError, match=r"dual .*factors"):
        project(model, norm_bound=0.5, solver=PaperDual(), dependency="linf")


def test_a_forgotten_factor_would_break_the_bound(monkeypatch):
    true = edges_module.factor_dependencies
    model = ring(6, 1.0)
    monkeypatch.setattr(edges_module, "factor_dependencies", lambda *arguments: 0.5 * true(*arguments))
    costs = edges_module.edge_costs(center_factors(model), "range")
    z = np.concatenate([np.zeros(model.num_edges), np.ones(model.num_factors)])
    moved = center_factors(model).replace(log_pairwise=costs.tables(z), log_factors=costs.factors(z))
    assert (edge_dependencies(moved, dependency="range").max(axis=1) > costs.dependencies(z) + 1e-6).any()


def test_projected_sampling_of_factors():
    model = random_factors(3, scale=0.7)
    result: Any = infer(model, method="projected", norm_bound=0.9, num_chains=64, num_sweeps=3000, seed=0)
    assert result.projection.factor_scales.shape == (model.num_factors,)
    assert result.certificate.certified
    exact = oracle.node_marginals(result.projection.model)
    np.testing.assert_allclose(result.node_marginals, np.concatenate(exact), atol=0.01)
    with pytest.raises(UnfitMethodError, match=r"divergence .*euclidean"):
        infer(model, method="projected", divergence="reversed-kl")


def test_projected_sampling_given_evidence_is_that_of_the_expanded_model():
    rng = np.random.default_rng(5)
    counts, scopes = [2, 3, 2, 2, 2], [(0, 1, 2), (1, 2, 3, 4), (1, 2, 4), (0, 2)]
    factors = [(scope, rng.normal(size=[counts[v] for v in scope])) for scope in scopes]
    model = MarkovRandomField.from_factors(counts, [*factors, ((1,), [0.0, -math.inf, 0.0])])
    result: Any = infer(
        model, method="projected", evidence={3: 1}, norm_bound=0.5, num_chains=64, num_sweeps=2000, seed=0
    )
    expanded = result.sampled.model
    assert expanded.structure.num_factors == model.num_factors
    given = oracle.condition(expanded, {3: 1})
    small = oracle.joint(result.projection.model)
    np.testing.assert_allclose(given[:, [0, 2]], small, atol=1e-9)
