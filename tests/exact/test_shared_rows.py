"""Rows of unaries beside tables that they share, against rows of all parameters."""

from __future__ import annotations

import numpy as np
import pytest

from fastmix.exact.parameter_rows import plan_parameter_rows
from fastmix.exact.shared_rows import plan_shared_rows
from fastmix.model import Structure


@pytest.mark.parametrize("seed", range(40))
def test_shared_tables_are_those_of_every_row(seed: int) -> None:
    """From weak to far beyond ordinary arithmetic, with forbidden entries and rows in which nothing is possible."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 7))
    edges = [(i, j) for i in range(n) for j in range(i + 1, n) if rng.random() < 0.5]
    structure = Structure.of(rng.integers(1, 4, size=n), edges)
    num_own = int(structure.unary_offsets[-1])
    scale = rng.choice([0.3, 3.0, 100.0, 1000.0])
    own = rng.normal(size=(int(rng.integers(1, 200)), num_own)) * scale
    tables = rng.normal(size=int(structure.pairwise_offsets[-1])) * scale
    if rng.random() < 0.3:
        own[rng.random(own.shape) < 0.1] = -np.inf
    if rng.random() < 0.3:
        tables[rng.random(tables.shape) < 0.1] = -np.inf
    weights = rng.normal(size=len(own))
    plan = plan_shared_rows(structure)
    found = plan.gradients(own, tables, weights)
    thetas = np.concatenate([own, np.tile(tables, (len(own), 1))], axis=1)
    expected = plan_parameter_rows(structure).answer(thetas)
    np.testing.assert_allclose(found.log_z, expected.log_z, rtol=1e-11, atol=1e-10)
    np.testing.assert_allclose(plan.values(own, tables), expected.log_z, rtol=1e-11, atol=1e-10)
    np.testing.assert_allclose(found.own, expected.gradients[:, :num_own], atol=1e-10)
    possible = expected.log_z > -np.inf
    sums = weights[possible] @ expected.gradients[possible, num_own:]
    np.testing.assert_allclose(found.shared, sums, atol=1e-9)


def test_no_rows_and_no_edges() -> None:
    plan = plan_shared_rows(Structure.of([2, 3], []))
    assert plan.values(np.zeros((0, 5)), np.zeros(0)).shape == (0,)
    found = plan.gradients(np.zeros((3, 5)), np.zeros(0), np.ones(3))
    np.testing.assert_allclose(found.log_z, np.log([6.0] * 3))
    assert found.shared.shape == (0,)
