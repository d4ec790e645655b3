"""Belief propagation on factors of any size: exact on trees of factors, honest elsewhere."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fastmix import MarkovRandomField, UnfitMethodError, infer, loopy_bp


def tree_of_factors(seed: int) -> MarkovRandomField:
    """Each factor shares one variable with those before it."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(2, 4, size=9)
    scopes = [(0, 1, 2), (2, 3), (3, 4, 5, 6), (7, 5, 8)]
    factors = [(scope, rng.normal(scale=1.5, size=counts[list(scope)])) for scope in scopes]
    factors[0][1][0, 0, :] = -np.inf
    factors += [((i,), rng.normal(size=counts[i])) for i in (1, 4)]
    return MarkovRandomField.from_factors(counts, factors)


@pytest.mark.parametrize("seed", range(6))
def test_exact_on_trees(seed: int) -> None:
    model = tree_of_factors(seed)
    found, exact = loopy_bp(model, edge_marginals=True), infer(model, method="exact")
    assert found.status == "ok"
    assert found.log_z == pytest.approx(exact.log_z, abs=1e-9)
    np.testing.assert_allclose(found.node_marginals, exact.node_marginals, atol=1e-9)
    np.testing.assert_allclose(found.edge_marginals, exact.edge_marginals, atol=1e-9)


def test_with_evidence_and_cycles() -> None:
    rng = np.random.default_rng(1)
    scopes = [*itertools.combinations(range(5), 3)]
    model = MarkovRandomField.from_factors([2] * 5, [(s, rng.normal(scale=0.2, size=(2, 2, 2))) for s in scopes])
    found, exact = (infer(model, method=name, evidence={0: 1}) for name in ("loopy-bp", "exact"))
    assert found.status == "ok"
    difference = np.abs(found.node_marginals - exact.node_marginals).max()
    assert 1e-9 < difference < 0.02


def test_the_residual_order_is_refused() -> None:
    with pytest.raises(UnfitMethodError, match="message_order must be parallel"):
        loopy_bp(tree_of_factors(0), message_order="residual")
