"""Functions of JAX: their derivatives by finite differences, within compiled and mapped functions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastmix
from fastmix.gradients import BethePartition
from fastmix.gradients.log_z import plain_model
from fastmix.model import Structure

pytestmark = pytest.mark.extras("jax")

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "train.md"
LOOP = Structure.of([3] * 4, [(0, 1), (0, 3), (1, 2), (2, 3)])


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    """Finite differences need it."""
    import jax

    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


def draw(*shape: int, seed: int = 0) -> Any:
    import jax

    return jax.numpy.array(np.random.default_rng(seed).normal(size=shape))


def test_log_z_is_differentiable_twice() -> None:
    from jax.test_util import check_grads

    theta = draw(3, 48)
    expected = fastmix.log_z(LOOP, np.asarray(theta))
    np.testing.assert_allclose(fastmix.jax.log_z(LOOP, theta), expected.log_z)
    check_grads(lambda t: fastmix.jax.log_z(LOOP, t), (theta,), order=2, modes=["fwd", "rev"])
    unary = draw(5, 4, 3)
    table = draw(1, 3, 3, seed=1)
    check_grads(lambda u, t: fastmix.jax.log_z(LOOP, u, t), (unary, table), order=2, modes=["fwd", "rev"])
    check_grads(lambda u, t: fastmix.jax.marginals(LOOP, u, t), (unary, table), order=1, modes=["fwd", "rev"])
    bethe = BethePartition(LOOP)
    check_grads(lambda t: fastmix.jax.log_z(bethe, t), (0.5 * theta,), order=2, modes=["fwd", "rev"])


def test_compiled_and_mapped() -> None:
    import jax

    theta = draw(3, 48)
    expected = fastmix.log_z(LOOP, np.asarray(theta)).gradient()
    gradient = jax.grad(lambda t: fastmix.jax.log_z(LOOP, t))
    np.testing.assert_allclose(jax.vmap(gradient)(theta), expected, atol=1e-13)
    np.testing.assert_allclose(jax.jit(gradient)(theta[0]), expected[0], atol=1e-13)
    hessian = jax.jacrev(gradient)(theta[0])
    np.testing.assert_allclose(hessian, hessian.T, atol=1e-13)


def test_forward_derivatives_are_those_in_reverse() -> None:
    """Forward, forward over reverse and reverse over forward, compiled and mapped."""
    import jax

    theta = draw(3, 48)
    direction = draw(3, 48, seed=1)

    def log_z(row: Any) -> Any:
        return fastmix.jax.log_z(LOOP, row)

    gradient = jax.vmap(jax.grad(log_z))(theta)
    _, slopes = jax.jvp(log_z, (theta,), (direction,))
    np.testing.assert_allclose(slopes, (gradient * direction).sum(axis=-1), atol=1e-12)
    np.testing.assert_allclose(jax.vmap(jax.jacfwd(log_z))(theta), gradient, atol=1e-12)
    hessian = jax.jit(jax.hessian(log_z))(theta[0])
    for way in (jax.jacfwd(jax.jacfwd(log_z)), jax.jacrev(jax.jacfwd(log_z)), jax.jacrev(jax.jacrev(log_z))):
        np.testing.assert_allclose(way(theta[0]), hessian, atol=1e-12)
    expected = fastmix.log_z(LOOP, np.asarray(theta[0])).hessian_product(np.asarray(direction[0]))
    np.testing.assert_allclose(hessian @ direction[0], expected, atol=1e-12)
    with pytest.raises(NotImplementedError, match="twice"):
        jax.jacfwd(jax.hessian(log_z))(theta[0])


@pytest.mark.parametrize("seed", range(3))
def test_projections_are_those_of_project(seed: int) -> None:
    """Points of ``project``, derivatives of both kinds by finite differences, batches within compiled functions."""
    import jax
    from jax.test_util import check_grads

    structure = Structure.of([2, 3, 1, 4], [(0, 1), (0, 3), (1, 2), (1, 3)])
    num_parameters = int(structure.unary_offsets[-1] + structure.pairwise_offsets[-1])
    theta = draw(3, num_parameters, seed=seed)

    def close(rows: Any) -> Any:
        return fastmix.jax.project(structure, rows, norm_bound=0.6)

    check_grads(close, (theta,), order=2, modes=["fwd", "rev"])
    for row, found in zip(theta, jax.jit(close)(theta), strict=True):
        model = plain_model(structure).with_parameters(np.asarray(row))
        expected = fastmix.project(model, norm_bound=0.6, tol=1e-10).model.parameters
        np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_allclose(jax.vmap(close)(theta), close(theta), atol=1e-12)
    jacobian = jax.jacfwd(close)(theta[0])
    np.testing.assert_allclose(jacobian, jacobian.T, atol=1e-10)
    np.testing.assert_allclose(jax.jacrev(close)(theta[0]), jacobian, atol=1e-10)
    broken = theta.at[1, -1].set(np.inf)
    assert np.isnan(close(broken)).all(axis=1).tolist() == [False, True, False]
    slopes = jax.grad(lambda rows: close(rows).sum())(broken)
    assert np.isnan(slopes).all(axis=1).tolist() == [False, True, False]
    with pytest.raises(ValueError, match="norm_bound"):
        fastmix.jax.project(structure, theta, norm_bound=-1.0)


def test_log_weight_is_normalized_by_log_z() -> None:
    theta = draw(48)
    states = np.array(list(np.ndindex(3, 3, 3, 3)))
    log_p = fastmix.jax.log_weight(LOOP, states, theta) - fastmix.jax.log_z(LOOP, theta)
    assert float(np.exp(log_p).sum()) == pytest.approx(1.0)


def test_what_is_refused() -> None:
    with pytest.raises(fastmix.ModelError, match="parameters"):
        fastmix.jax.log_z(LOOP, np.zeros(7))
    with pytest.raises(TypeError, match="floating"):
        fastmix.jax.log_z(LOOP, np.zeros(48, dtype=int))
    with pytest.raises(TypeError, match="structure"):
        fastmix.jax.log_z("chain", np.zeros(48))


def test_the_page_runs() -> None:
    blocks = [block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "jax" in block]
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block, names)  # the page's own code
    assert blocks
