"""Derivatives of projections: the point is that of ``project``, the Jacobian that of finite differences."""

from __future__ import annotations

import numpy as np
import pytest

import fastmix
from fastmix import MarkovRandomField, project
from fastmix.instances import ising_grid
from fastmix.projection.faces import nearest_with_face
from fastmix.theory.dependency import edge_dependencies, to_matrix
from fastmix.theory.norms import matrix_norm


def draw_model(rng: np.random.Generator, most_states: int) -> MarkovRandomField:
    """Tables of all sizes on a graph with about half of all edges."""
    n = int(rng.integers(2, 9))
    states = rng.integers(2, most_states + 1, size=n).tolist()
    edges = [(i, j) for i in range(n) for j in range(i + 1, n) if rng.random() < 0.6] or [(0, 1)]
    scale = rng.choice([0.3, 1.0, 3.0])
    tables = [rng.normal(size=(states[i], states[j])) * scale for i, j in edges]
    return MarkovRandomField.from_tables([np.zeros(count) for count in states], edges, tables)


@pytest.mark.parametrize("seed", range(30))
def test_point_and_jacobian(seed: int) -> None:
    """The Jacobian is symmetric, a projection itself, and what finite differences say away from kinks."""
    rng = np.random.default_rng(seed)
    model = draw_model(rng, 2 if seed % 2 else 4)
    psi = model.log_pairwise
    bound = float(rng.choice([0.2, 0.5, 0.9]))
    (tables,), face = nearest_with_face(model, psi[None], bound)
    close = model.replace(log_pairwise=tables)
    z = edge_dependencies(close, dependency="range").max(axis=1)
    assert matrix_norm(to_matrix(close, z), "inf") <= bound
    expected = project(model, norm_bound=bound, tol=1e-10).model.log_pairwise
    np.testing.assert_allclose(tables, expected, atol=1e-5)
    if face is None:
        np.testing.assert_array_equal(tables, psi)
        return
    first, second = rng.normal(size=(2, len(psi)))
    (product,) = face.product(first[None])
    step = 1e-6
    ahead, behind = nearest_with_face(model, psi + np.array([[step], [-step]]) * first, bound)[0]
    np.testing.assert_allclose(product, (ahead - behind) / (2 * step), atol=1e-7)
    np.testing.assert_allclose(face.product(product[None])[0], product, atol=1e-10)
    assert second @ product == pytest.approx(first @ face.product(second[None])[0], abs=1e-10)


@pytest.mark.parametrize("seed", range(12))
def test_rows_side_by_side_are_projected_each_by_itself(seed: int) -> None:
    """Rows of all sizes, some of them within the bound: points and products of one row after another."""
    rng = np.random.default_rng(seed)
    model = draw_model(rng, 2 if seed % 2 else 4)
    sizes = np.array([1e-4, 0.1, 1.0, 1.0, 30.0, 1.0, 1e-4])
    rows = rng.normal(size=(7, len(model.log_pairwise))) * sizes[:, None]
    directions = rng.normal(size=rows.shape)
    tables, face = nearest_with_face(model, rows, 0.6)
    assert face is not None
    products = face.product(directions)
    np.testing.assert_array_equal(tables[[0, 6]], rows[[0, 6]])
    np.testing.assert_array_equal(products[[0, 6]], directions[[0, 6]])
    for k in range(1, 6):
        own, face = nearest_with_face(model, rows[k : k + 1], 0.6)
        np.testing.assert_allclose(tables[k], own[0], atol=1e-9)
        expected = directions[k] if face is None else face.product(directions[k : k + 1])[0]
        np.testing.assert_allclose(products[k], expected, atol=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_tables_with_ties_are_projected(seed: int) -> None:
    """Small whole numbers, where multipliers are not unique and several faces meet: the point is that of project."""
    rng = np.random.default_rng(seed)
    drawn = draw_model(rng, 2 if seed % 2 else 3)
    psi = rng.integers(-2, 3, size=len(drawn.log_pairwise)).astype(float)
    model = drawn.replace(log_pairwise=psi)
    (tables,), _ = nearest_with_face(model, psi[None], 0.5)
    expected = project(model, norm_bound=0.5, tol=1e-11).model.log_pairwise
    np.testing.assert_allclose(tables, expected, atol=1e-5)


def test_a_face_of_another_model_has_another_jacobian() -> None:
    """The sabotaged twin: what finite differences are compared with can be wrong."""
    rng = np.random.default_rng(0)
    model = ising_grid(3, 3, coupling_max=1.0, seed=0)
    psi = model.log_pairwise
    _, face = nearest_with_face(model, psi[None], 0.5)
    _, other = nearest_with_face(model, psi[None, ::-1].copy(), 0.5)
    assert face is not None
    assert other is not None
    direction = rng.normal(size=(1, len(psi)))
    assert np.abs(face.product(direction) - other.product(direction)).max() > 0.1


def test_a_grid_whose_nodes_are_all_at_the_bound() -> None:
    """Redundant constraints: the sums of one color add up to those of the other."""
    model = fastmix.MarkovRandomField.ising([(0, 1), (0, 3), (1, 2), (2, 3)], coupling=[1.0, 2.0, 3.0, 4.0])
    (tables,), face = nearest_with_face(model, model.log_pairwise[None], 0.5)
    assert face is not None
    np.testing.assert_allclose(tables, project(model, norm_bound=0.5, tol=1e-12).model.log_pairwise, atol=1e-5)


def test_edges_without_and_with_one_state() -> None:
    alone = MarkovRandomField.from_tables([[0.0, 0.0]] * 2, [], [])
    assert nearest_with_face(alone, alone.log_pairwise[None], 0.5)[1] is None
    empty, face = nearest_with_face(alone, np.zeros((0, 0)), 0.5)
    assert empty.shape == (0, 0)
    assert face is None
    single = MarkovRandomField.from_tables(
        [[0.0], [0.0, 0.0], [0.0, 0.0]], [(0, 1), (1, 2)], [[[3.0, 1.0]], [[2.0, 0.0], [0.0, 2.0]]]
    )
    (tables,), face = nearest_with_face(single, single.log_pairwise[None], 0.5)
    assert face is not None
    np.testing.assert_array_equal(tables[:2], [3.0, 1.0])
    factors = MarkovRandomField.from_factors([2, 2, 2], [((0, 1, 2), np.ones((2, 2, 2)))])
    with pytest.raises(fastmix.UnfitMethodError):
        nearest_with_face(factors, factors.log_pairwise[None], 0.5)
