"""Hessians and pseudo-likelihoods on the device are those of the CPU, in the simulator or on a device.

``test_cuda_simulator.py`` starts the simulator.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fastmix.chains.cuda.device import cuda_available
from fastmix.instances import random_tables
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.covariance import FeatureCovariance
from fastmix.learning.data import read_data
from fastmix.learning.pseudo_likelihood import PseudoLikelihoodLoss

USABLE, REASON = cuda_available()
pytestmark = pytest.mark.skipif(not USABLE, reason=f"run in the simulator by test_cuda_simulator.py; here {REASON}")

EDGES = {"complete": [(i, j) for i in range(6) for j in range(i)], "sparse": [(0, 1), (1, 3), (3, 4)], "empty": []}


def case(graph: str, counts: list[int], seed: int) -> tuple[Coordinates, np.ndarray, Any]:
    """Coordinates with some point, and weighted rows."""
    rng = np.random.default_rng(seed)
    data = read_data(
        np.stack([np.zeros(6, dtype=np.int64), *(rng.integers(0, counts) for _ in range(11))]), num_states=counts,
        weights=rng.random(12),
    )  # fmt: skip
    coordinates = Coordinates(random_tables(EDGES[graph], counts, scale=1.0, seed=seed).structure)
    return coordinates, rng.standard_normal(coordinates.size), data


@pytest.mark.parametrize("graph", EDGES)
def test_hessian_is_that_of_the_cpu(graph: str) -> None:
    from fastmix.learning.cuda import covariance

    coordinates, v, data = case(graph, [2, 3, 1, 4, 2, 2], 4)
    rows, weights = [data.states[:5], data.states[5:]], data.weights / data.weights.sum()
    expected = FeatureCovariance(coordinates, rows, weights).apply(v)
    found = covariance.FeatureCovariance(coordinates, rows, weights)
    np.testing.assert_allclose(found.apply(v), expected, rtol=0, atol=1e-6 * np.abs(expected).max())
    assert np.abs(found.apply(v[::-1].copy()) - expected).max() > 1e-3 * np.abs(expected).max()


@pytest.mark.parametrize("counts", [[2, 3, 1, 4, 2, 2], [2] * 6])
@pytest.mark.parametrize("graph", EDGES)
def test_pseudo_likelihood_is_that_of_the_cpu(graph: str, counts: list[int]) -> None:
    from fastmix.learning.cuda import pseudo_likelihood

    coordinates, v, data = case(graph, counts, 2)
    goal = pseudo_likelihood.PseudoLikelihoodLoss(coordinates, data)
    for scale in (1.0, 1e4):  # of which the second leaves no doubt about any state
        value, gradient = goal.evaluate(scale * v)
        expected, slopes = PseudoLikelihoodLoss(coordinates, data).evaluate(scale * v)
        assert value == pytest.approx(expected, rel=1e-10)
        np.testing.assert_allclose(gradient, slopes, rtol=0, atol=1e-10)
