"""``log_z``: values, gradients and Hessian-vector products of one row of parameters and of many."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import fastmix
import oracle.gradients
from fastmix import MarkovRandomField, ModelError, ResourceError, infer, log_z
from fastmix.gradients import LogPartition
from fastmix.instances import ising_grid, potts_grid
from fastmix.model import Structure


def factor_model() -> MarkovRandomField:
    """A factor over three variables beside pairs, and a variable of its own."""
    rng = np.random.default_rng(2)
    factors = [((0, 1, 2), rng.normal(size=(2, 3, 2))), ((2, 3), rng.normal(size=(2, 2))), ((4,), rng.normal(size=3))]
    return MarkovRandomField.from_factors([2, 3, 2, 2, 3], factors)


@pytest.mark.parametrize("model", [ising_grid(2, 3, coupling_max=1.0, seed=0), factor_model()])
def test_gradient_is_the_marginals_in_the_layout_of_parameters(model: MarkovRandomField) -> None:
    found = log_z(model)
    expected = oracle.gradients.slopes(model.structure, model.parameters)
    assert expected is not None
    result = infer(model, method="exact", edge_marginals=True)
    np.testing.assert_allclose(found.log_z, expected.log_z + model.log_constant, rtol=1e-13)
    np.testing.assert_allclose(found.log_z, result.log_z, rtol=1e-13)
    np.testing.assert_allclose(found.gradient(), expected.mean, atol=1e-13)
    num_unary = len(model.log_unary)
    np.testing.assert_allclose(found.gradient()[:num_unary], result.node_marginals, atol=1e-13)
    edges = found.gradient()[num_unary : num_unary + len(model.log_pairwise)]
    np.testing.assert_allclose(edges, result.edge_marginals, atol=1e-13)
    direction = np.random.default_rng(0).normal(size=model.num_parameters)
    np.testing.assert_allclose(found.hessian_product(direction), expected.covariance @ direction, atol=1e-12)


def test_batches_have_any_axes() -> None:
    model = potts_grid(2, 3, num_states=3, coupling_max=1.0, seed=0)
    rng = np.random.default_rng(1)
    theta = rng.normal(size=(2, 5, model.num_parameters))
    found = log_z(model.structure, theta)
    assert found.log_z.shape == (2, 5)
    direction = rng.normal(size=model.num_parameters)
    product = found.hessian_product(direction)
    for place in ((0, 0), (1, 4)):
        one = log_z(model.structure, theta[place])
        assert isinstance(one.log_z, float)
        np.testing.assert_allclose(found.log_z[place], one.log_z, rtol=1e-13)
        np.testing.assert_allclose(found.gradient()[place], one.gradient(), atol=1e-13)
        np.testing.assert_allclose(product[place], one.hessian_product(direction), atol=1e-13)
    assert not found.gradient().flags.writeable


def test_the_constant_and_the_names_of_a_model_count() -> None:
    model = MarkovRandomField.ising([(0, 1)], coupling=0.5, variable_names=["a", "b"]).replace(log_constant=2.0)
    found = log_z(model, np.zeros(8))
    assert found.log_z == pytest.approx(2.0 + 2 * np.log(2.0))
    assert found.to_dict()["variable_names"] == ["a", "b"]
    assert log_z(model.structure, np.zeros(8)).log_z == pytest.approx(2 * np.log(2.0))


def test_rows_in_which_nothing_is_possible() -> None:
    model = MarkovRandomField.ising([(0, 1)], coupling=0.5)
    theta = np.zeros((2, 8))
    theta[1, :2] = -np.inf
    found = log_z(model.structure, theta)
    assert found.log_z.tolist()[1] == -np.inf
    assert np.isnan(found.gradient()[1]).all()
    assert np.isfinite(found.gradient()[0]).all()
    assert found.to_dict()["log_z"][1] is None
    assert found.facts()["rows"] == "2"
    assert log_z(model.structure, theta[1]).log_z == -np.inf


def test_shared_tables_have_their_parameters_in_full() -> None:
    model = MarkovRandomField.from_patterns(np.zeros((3, 4)), [(0, 1), (1, 2)], [np.eye(4)], 0, [0.5, 1.0])
    found = log_z(model)
    expected = oracle.gradients.slopes(model.structure, model.parameters)
    assert expected is not None
    np.testing.assert_allclose(found.gradient(), expected.mean, atol=1e-13)


def test_plans_are_kept_with_the_structure_and_not_pickled() -> None:
    model = ising_grid(3, 3, coupling_max=1.0, seed=0)
    first = LogPartition.of(model.structure)
    assert LogPartition.of(model.structure).rows is first.rows
    again = pickle.loads(pickle.dumps(log_z(model)))
    np.testing.assert_array_equal(again.gradient(), log_z(model).gradient())


def test_what_does_not_fit_is_refused() -> None:
    model = ising_grid(3, 3, coupling_max=1.0, seed=0)
    with pytest.raises(ModelError, match="theta"):
        log_z(model.structure)
    with pytest.raises(ModelError, match=r"theta.*\(\.\., 66\)"):
        log_z(model, np.zeros(5))
    with pytest.raises(ModelError, match="theta"):
        log_z(model, np.full(66, np.nan))
    with pytest.raises(TypeError, match="structure"):
        log_z(np.zeros(5), np.zeros(5))
    with pytest.raises(ModelError, match="direction"):
        log_z(model).hessian_product(np.zeros(5))
    with pytest.raises(ModelError, match="direction"):
        log_z(model).hessian_product(np.full(66, np.inf))
    log_z(model)
    with pytest.raises(ResourceError):
        log_z(model, memory_limit=10)
    with pytest.raises(ResourceError):
        log_z(ising_grid(18, 18, coupling_max=1.0, seed=0), time_limit=1e-6)


def test_log_z_shows_itself() -> None:
    found = log_z(MarkovRandomField.ising([(0, 1)], coupling=0.5))
    assert "log z" in found.summary()
    assert found.status is fastmix.Status.OK
    assert repr(found).startswith("LogZResult(1.5")
    assert found.columns()["log_z"].shape == (1,)


def test_rows_beside_shared_tables() -> None:
    model = potts_grid(2, 3, num_states=3, coupling_max=1.0, seed=0)
    rng = np.random.default_rng(1)
    partition = LogPartition.of(model.structure)
    unary = rng.normal(size=(2, 5, 18))
    weights = rng.normal(size=(2, 5))
    theta = np.concatenate([unary, np.broadcast_to(model.log_pairwise, (2, 5, 63))], axis=-1)
    expected = partition.gradients(theta)
    found = partition.shared_gradients(unary, model.log_pairwise, weights)
    np.testing.assert_allclose(partition.shared_values(unary, model.log_pairwise), expected.log_z, rtol=1e-13)
    np.testing.assert_allclose(found.own, expected.gradient[..., :18], atol=1e-13)
    sums = (weights[..., None] * expected.gradient[..., 18:]).sum(axis=(0, 1))
    np.testing.assert_allclose(found.shared, sums, atol=1e-12)
    with pytest.raises(fastmix.UnfitMethodError):
        LogPartition.of(factor_model().structure).shared_values(np.zeros((1, 12)), np.zeros(1))


@pytest.mark.parametrize("seed", range(6))
def test_rows_of_chains_beside_shared_tables(seed: int) -> None:
    """Chains and trees, whose tables are summed up as products of matrices: rows that forbid, that cannot be, huge."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 5, size=5)
    edges = [(i, i + 1) for i in range(4)] if seed % 2 else [(0, 1), (0, 2), (2, 3), (2, 4)]
    structure = Structure.of(counts, edges)
    unary = rng.normal(size=(40, int(counts.sum())))
    tables = rng.normal(size=int(structure.pairwise_offsets[-1]))
    if seed >= 2:
        unary[rng.random(unary.shape) < 0.1] = -np.inf
    if seed >= 4:
        unary[:, :] *= np.where(rng.random((40, 1)) < 0.2, 300.0, 1.0)
        tables[rng.random(len(tables)) < 0.1] = -np.inf
    weights = rng.normal(size=40)
    partition = LogPartition.of(structure)
    expected = partition.gradients(np.concatenate([unary, np.broadcast_to(tables, (40, len(tables)))], axis=1))
    found = partition.shared_gradients(unary, tables, weights)
    np.testing.assert_allclose(found.log_z, expected.log_z, rtol=1e-12)
    np.testing.assert_allclose(found.own, expected.gradient[:, : unary.shape[1]], atol=1e-12)
    possible = np.isfinite(expected.log_z)
    slopes = expected.gradient[possible, unary.shape[1] :]
    np.testing.assert_allclose(found.shared, weights[possible] @ slopes, atol=1e-11)
    answer = partition.shared_answer(unary, tables)
    assert answer is not None
    np.testing.assert_array_equal(answer.own, found.own)
    np.testing.assert_array_equal(answer.by_tables(weights), found.shared)
