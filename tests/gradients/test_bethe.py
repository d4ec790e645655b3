"""Log Z of belief propagation and its derivatives: exact on trees, by finite differences on graphs with loops."""

from __future__ import annotations

import numpy as np
import pytest

import fastmix
import oracle.gradients
from fastmix.gradients import BethePartition
from fastmix.model import MarkovRandomField, Structure


def draw_graph(rng: np.random.Generator, *, tree: bool) -> Structure:
    """A connected graph with different numbers of states."""
    n = int(rng.integers(2, 6))
    edges = {(int(rng.integers(0, j)), j) for j in range(1, n)}
    if not tree:
        edges |= {(i, j) for i in range(n) for j in range(i + 1, n) if rng.random() < 0.4}
    return Structure.of(rng.integers(1, 4, size=n), sorted(edges))


def draw_rows(rng: np.random.Generator, structure: Structure, scale: float) -> np.ndarray:
    return rng.normal(size=(3, int(structure.unary_offsets[-1] + structure.pairwise_offsets[-1]))) * scale


@pytest.mark.parametrize("seed", range(10))
def test_trees_are_exact(seed: int) -> None:
    rng = np.random.default_rng(seed)
    structure = draw_graph(rng, tree=True)
    thetas = draw_rows(rng, structure, 2.0)
    directions = rng.normal(size=thetas.shape)
    found = BethePartition(structure).hessian_products(thetas, directions)
    for k, theta in enumerate(thetas):
        expected = oracle.gradients.slopes(structure, theta)
        assert expected is not None
        np.testing.assert_allclose(found.log_z[k], expected.log_z, rtol=1e-10)
        np.testing.assert_allclose(found.gradient[k], expected.mean, atol=1e-10)
        np.testing.assert_allclose(found.product[k], expected.covariance @ directions[k], atol=1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_loops_by_finite_differences(seed: int) -> None:
    """The gradient of the Bethe approximation is the beliefs, and their derivative is a symmetric matrix."""
    rng = np.random.default_rng(seed)
    structure = draw_graph(rng, tree=False)
    bethe = BethePartition(structure)
    theta = draw_rows(rng, structure, 0.5)
    directions = rng.normal(size=theta.shape)
    found = bethe.hessian_products(theta, directions)
    step = 1e-5
    ahead = bethe.gradients(theta + step * directions)
    behind = bethe.gradients(theta - step * directions)
    slope = (ahead.log_z - behind.log_z) / (2 * step)
    np.testing.assert_allclose((found.gradient * directions).sum(axis=1), slope, atol=1e-8)
    np.testing.assert_allclose(found.product, (ahead.gradient - behind.gradient) / (2 * step), atol=1e-7)
    other = rng.normal(size=theta.shape)
    product = bethe.hessian_products(theta, other).product
    np.testing.assert_allclose((found.product * other).sum(axis=1), (product * directions).sum(axis=1), atol=1e-8)


def test_beliefs_are_those_of_loopy_bp() -> None:
    model = fastmix.instances.potts_grid(3, 3, num_states=3, coupling_max=0.5, seed=0)
    expected = fastmix.loopy_bp(model, tol=1e-10)
    found = BethePartition(model.structure).gradients(model.parameters)
    np.testing.assert_allclose(found.log_z, expected.log_z, atol=1e-7)
    np.testing.assert_allclose(found.gradient[: len(model.log_unary)], expected.node_marginals, atol=1e-7)


def test_what_has_no_derivative_is_refused() -> None:
    model = fastmix.instances.ising_grid(3, 3, coupling_max=6.0, seed=1)
    with pytest.raises(fastmix.NotConvergedError):
        BethePartition(model.structure, max_iter=3).gradients(model.parameters)
    with pytest.raises(fastmix.ModelError):
        BethePartition(model.structure).values(np.full(model.num_parameters, -np.inf))
    factors = MarkovRandomField.from_factors([2, 2, 2], [((0, 1, 2), np.zeros((2, 2, 2)))])
    with pytest.raises(fastmix.UnfitMethodError):
        BethePartition(factors.structure)
    with pytest.raises(ValueError, match="damping"):
        BethePartition(model.structure, damping=2.0)


def test_graphs_without_edges() -> None:
    found = BethePartition(Structure.of([2, 3], [])).hessian_products(np.arange(5.0), np.ones(5))
    expected = oracle.gradients.slopes(Structure.of([2, 3], []), np.arange(5.0))
    assert expected is not None
    np.testing.assert_allclose(found.log_z, expected.log_z)
    np.testing.assert_allclose(found.product, np.zeros(5), atol=1e-15)
