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
    check_grads(lambda t: fastmix.jax.log_z(LOOP, t), (theta,), order=2, modes=["rev"])
    unary = draw(5, 4, 3)
    table = draw(1, 3, 3, seed=1)
    check_grads(lambda u, t: fastmix.jax.log_z(LOOP, u, t), (unary, table), order=2, modes=["rev"])
    check_grads(lambda u, t: fastmix.jax.marginals(LOOP, u, t), (unary, table), order=1, modes=["rev"])
    bethe = BethePartition(LOOP)
    check_grads(lambda t: fastmix.jax.log_z(bethe, t), (0.5 * theta,), order=2, modes=["rev"])


def test_compiled_and_mapped() -> None:
    import jax

    theta = draw(3, 48)
    expected = fastmix.log_z(LOOP, np.asarray(theta)).gradient()
    gradient = jax.grad(lambda t: fastmix.jax.log_z(LOOP, t))
    np.testing.assert_allclose(jax.vmap(gradient)(theta), expected, atol=1e-13)
    np.testing.assert_allclose(jax.jit(gradient)(theta[0]), expected[0], atol=1e-13)
    hessian = jax.jacrev(gradient)(theta[0])
    np.testing.assert_allclose(hessian, hessian.T, atol=1e-13)


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
