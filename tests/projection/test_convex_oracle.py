"""The oracle itself, against closed forms."""

from __future__ import annotations

import numpy as np
import pytest

from fastmix.model import MarkovRandomField
from oracle import convex


@pytest.mark.parametrize("norm", ["inf", "spectral"])
@pytest.mark.parametrize("bound", ["range", "linf"])
@pytest.mark.parametrize(("coupling", "norm_bound"), [(2.0, 0.5), (-3.0, 0.95), (0.3, 0.95)])
def test_one_ising_edge(norm: str, bound: str, coupling: float, norm_bound: float) -> None:
    model = MarkovRandomField.ising([(0, 1)], coupling)
    objective, tables = convex.solve(model, norm_bound, norm, bound)
    excess = max(abs(coupling) - norm_bound, 0.0)
    assert objective == pytest.approx(4.0 * excess**2, abs=1e-8)
    left = np.sign(coupling) * min(abs(coupling), norm_bound)
    np.testing.assert_allclose(tables, left * np.array([1.0, -1.0, -1.0, 1.0]), atol=1e-6)


def test_one_row_of_contrasts() -> None:
    """A table of one row: every row is clipped to a width of 2c around its own best interval."""
    model = MarkovRandomField.from_tables([[0.0], [0.0, 0.0]], [(0, 1)], [[[3.0, -1.0]]])
    objective, tables = convex.solve(model, 1.0, "inf", "linf")
    assert objective == pytest.approx(2.0, abs=1e-8)
    np.testing.assert_allclose(tables, [2.0, 0.0], atol=1e-6)
    # A table of one row says nothing about its variable: the range bound is zero already.
    assert convex.solve(model, 1.0, "inf", "range")[0] == pytest.approx(0.0, abs=1e-10)


@pytest.mark.parametrize("kind", ["ising", "binary", "states", "mixed"])
def test_answers_are_feasible_and_near(kind: str) -> None:
    rng = np.random.default_rng(0)
    for norm in ("inf", "spectral"):
        for bound in ("range", "linf"):
            model = convex.random_instance(rng, kind)
            objective, tables = convex.solve(model, 0.95, norm, bound)
            assert convex.norm_of_model(model, tables, norm, bound) <= 0.95 + 1e-7
            distance = np.sum((tables - model.log_pairwise) ** 2)
            assert objective == pytest.approx(distance, rel=1e-6, abs=1e-8)
            # Shrinking every table to its mean is feasible too.
            sizes = np.diff(model.pairwise_offsets)
            means = np.repeat(np.add.reduceat(model.log_pairwise, model.pairwise_offsets[:-1]) / sizes, sizes)
            assert objective <= np.sum((means - model.log_pairwise) ** 2) + 1e-7


def test_smoothing_alone_projects_y() -> None:
    """Without tables to speak of, the smoothed problem is the projection of Y onto the ball."""
    model = MarkovRandomField.ising([(0, 1), (1, 2)], 0.0)
    objective, _, z = convex.solve_smoothed(model, 1.0, "inf", 0.5, np.array([2.0, 1.5]))
    np.testing.assert_allclose(z, [0.75, 0.25], atol=1e-6)
    assert objective == pytest.approx(0.5 * 2.0 * 2 * 1.25**2, rel=1e-6)


def test_dependency_of_a_known_table() -> None:
    table = np.array([1.0, 4.0, 0.0, 0.0, 2.0, 2.0])  # rows (1, 4, 0) and (0, 2, 2)
    states, edges = [2, 3], [(0, 1)]
    assert convex.dependency(states, edges, table, "linf").tolist() == [2.0]
    # Columns differ by (-3, -2), (1, -2), (4, 0): the widest is 4 - 0.
    assert convex.dependency(states, edges, table, "range").tolist() == [1.0]
