"""Mean field over shared tables against plain coordinate ascent, and against tables in full."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strategies
from fastmix import MarkovRandomField, mean_field
from fastmix.variational.ascent import expected_tables, pair_products
from oracle import variational as naive
from strategies import Shared

TINY = 1e-300  # a tolerance that only probabilities that stand still meet


def check_sweeps(twins: Shared, num_sweeps: int) -> None:
    """So many sweeps from the uniform start give what plain ascent gives, and lay no tables out."""
    model = twins.shared
    result = mean_field(model, num_starts=1, max_iter=num_sweeps, tol=TINY)
    if model.num_states.max(initial=0) > 2 and not model.has_forbidden:  # couplings are read from tables in full
        assert "log_pairwise" not in vars(model)
    q = naive.sweeps(twins.full, naive.uniform(twins.full), result.stats["num_iterations"])
    scale = max(1.0, float(model.sizes_of_tables().max(initial=0.0)))
    np.testing.assert_allclose(result.node_marginals, np.concatenate([*q, []]), rtol=0, atol=1e-11 * scale)
    own = [vector.tolist() for vector in result.marginals]
    assert result.log_z_lower == pytest.approx(naive.bound(twins.full, own), rel=1e-11, abs=1e-9)


@pytest.mark.parametrize("seed", range(60))
def test_sweeps_of_pictures(seed: int) -> None:
    check_sweeps(strategies.picture_twins(seed, scale=[0.3, 1.0, 5.0][seed % 3]), 1 + seed % 5)


@given(strategies.shared_models(allow_forbidden=False), st.integers(1, 4))
def test_sweeps_of_any_shapes(twins: Shared, num_sweeps: int) -> None:
    check_sweeps(twins, num_sweeps)


@pytest.mark.parametrize("seed", range(12))
def test_all_starts_agree_with_tables_in_full(seed: int) -> None:
    twins = strategies.picture_twins(seed, scale=0.5)
    options = {"num_starts": 4, "seed": seed, "edge_marginals": True, "tol": 1e-13, "max_iter": 5000}
    shared = mean_field(twins.shared, **options)
    full = mean_field(twins.full, **options)
    np.testing.assert_allclose(shared.start_bounds, full.start_bounds, rtol=1e-11)
    np.testing.assert_allclose(shared.node_marginals, full.node_marginals, rtol=0, atol=1e-9)
    np.testing.assert_allclose(shared.edge_marginals, full.edge_marginals, rtol=0, atol=1e-9)


def test_forbidden_pairs_take_tables_in_full() -> None:
    differ = np.where(np.eye(3) > 0, -np.inf, 0.0)
    unary = np.arange(9.0).reshape(3, 3) / 9.0
    edges = [(0, 1), (1, 2)]
    shared = mean_field(MarkovRandomField.from_patterns(unary, edges, [differ]), seed=1)
    full = mean_field(MarkovRandomField.from_tables(unary, edges, [differ] * 2), seed=1)
    np.testing.assert_array_equal(shared.node_marginals, full.node_marginals)
    assert shared.log_z_lower == full.log_z_lower


@pytest.mark.parametrize("seed", range(6))
def test_means_of_tables(seed: int) -> None:
    twins = strategies.picture_twins(seed)
    q = np.random.default_rng(seed).dirichlet(np.ones(int(twins.full.num_states[0])), 5).reshape(-1)
    mean = float(pair_products(twins.full, q) @ twins.full.log_pairwise)
    assert expected_tables(twins.shared, q) == pytest.approx(mean, rel=1e-12)
    assert expected_tables(twins.full, q) == pytest.approx(mean, rel=1e-12)
