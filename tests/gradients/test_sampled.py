"""Derivatives of log Z from persistent chains, against exact ones."""

from __future__ import annotations

import numpy as np
import pytest

import fastmix
from fastmix.gradients import SampledPartition
from fastmix.model import MarkovRandomField


def test_gradients_and_products_are_within_their_errors() -> None:
    """40,000 chains: the largest of 38 deviations in units of its error is above 6 once in 1e7 runs."""
    rng = np.random.default_rng(0)
    model = MarkovRandomField.from_tables(
        [np.array([0.3, -0.2]), np.array([0.0, 0.4, 0.1]), np.zeros(2)],
        [(0, 1), (1, 2)], [rng.normal(size=(2, 3)), rng.normal(size=(3, 2))],
    )  # fmt: skip
    theta = np.stack([model.parameters, 0.5 * model.parameters])
    sampled = SampledPartition(model.structure, num_chains=40_000, seed=1)
    exact = fastmix.log_z(model.structure, theta)
    found = sampled.gradients(theta)
    assert (np.abs(found.gradient - exact.gradient()) <= 6 * sampled.std_error).all()
    np.testing.assert_allclose(found.log_z, (theta * found.gradient).sum(axis=1))
    direction = rng.normal(size=model.num_parameters)
    product = sampled.hessian_products(theta, direction).product
    # Products of two bounded variables over 40,000 chains: a standard error of at most 3 |direction|_1 / 200.
    np.testing.assert_allclose(product, exact.hessian_product(direction), atol=0.1)


def test_chains_persist_and_seeds_repeat() -> None:
    model = fastmix.instances.ising_grid(3, 3, coupling_max=0.5, seed=0)
    one = SampledPartition(model, num_chains=8, seed=3)
    two = SampledPartition(model, num_chains=8, seed=3)
    first = one.gradients(model.parameters).gradient
    np.testing.assert_array_equal(first, two.gradients(model.parameters, num_threads=2).gradient)
    second = one.gradients(model.parameters).gradient
    assert (first != second).any()
    assert len(one.chains) == 1
    np.testing.assert_array_equal(one.hessian_products(model.parameters, np.ones(66)).gradient, second)


def test_what_cannot_be_sampled_is_refused() -> None:
    model = fastmix.instances.ising_grid(3, 3, coupling_max=0.5, seed=0)
    sampled = SampledPartition(model, num_chains=8, seed=3)
    with pytest.raises(fastmix.ModelError, match="std_error"):
        _ = sampled.std_error
    with pytest.raises(fastmix.ModelError, match="finite"):
        sampled.values(np.full(66, -np.inf))
    with pytest.raises(ValueError, match="num_chains"):
        SampledPartition(model, num_chains=1)
