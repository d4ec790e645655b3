"""Rows of parameters side by side, with tangents, against sums over all configurations."""

from __future__ import annotations

import numpy as np
import pytest
from test_batch import draw_model

import oracle.gradients
from fastmix import ModelError, ResourceError
from fastmix.exact import batch_kernels, parameter_rows
from fastmix.exact.parameter_rows import ParameterRows, plan_parameter_rows
from fastmix.exact.tangents import run_tangents
from fastmix.model import MarkovRandomField, Structure

SEEDS = range(25)


def draw_rows(rng: np.random.Generator) -> tuple[Structure, np.ndarray, np.ndarray]:
    """A graph, parameters from weak to far beyond ordinary arithmetic, and directions."""
    while True:
        try:
            structure = draw_model(rng, int(rng.integers(1, 6))).structure
            break
        except ModelError:  # a variable without an allowed state
            continue
    count = int(rng.integers(1, 40))
    scale = rng.choice([0.3, 2.0, 30.0, 300.0, 3000.0])
    num_parameters = plan_parameter_rows(structure).num_parameters
    thetas = rng.normal(size=(count, num_parameters)) * scale
    if rng.random() < 0.4:
        thetas[rng.random(thetas.shape) < 0.15] = -np.inf
    return structure, thetas, rng.normal(size=thetas.shape)


def compare(structure: Structure, theta: np.ndarray, direction: np.ndarray, found: tuple) -> None:
    """A row of answers against the oracle."""
    log_z, gradient, product = found
    expected = oracle.gradients.slopes(structure, theta)
    if expected is None:
        assert log_z == -np.inf
        assert np.isnan(gradient).all()
        assert np.isnan(product).all()
        return
    np.testing.assert_allclose(log_z, expected.log_z, rtol=1e-11, atol=1e-10)
    np.testing.assert_allclose(gradient, expected.mean, atol=1e-10)
    np.testing.assert_allclose(product, expected.covariance @ direction, atol=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_agree_with_all_configurations(seed: int) -> None:
    rng = np.random.default_rng(seed)
    structure, thetas, directions = draw_rows(rng)
    plan = plan_parameter_rows(structure)
    found = plan.answer(thetas, directions=directions)
    alone = plan.answer(thetas)
    np.testing.assert_allclose(plan.answer(thetas, gradients=False).log_z, found.log_z, rtol=1e-13, atol=1e-12)
    np.testing.assert_allclose(alone.gradients, found.gradients, atol=1e-13)
    for k in rng.choice(len(thetas), size=min(len(thetas), 4), replace=False).tolist():
        compare(structure, thetas[k], directions[k], (found.log_z[k], found.gradients[k], found.products[k]))
        one = plan.answer(thetas[[k]], directions=directions[[k]])
        compare(structure, thetas[k], directions[k], (one.log_z[0], one.gradients[0], one.products[0]))


def test_products_of_matrices_and_many_states() -> None:
    """Cliques so large that tables are copied into other layouts and multiplied as matrices."""
    rng = np.random.default_rng(5)
    model = MarkovRandomField.from_tables(
        [np.zeros(6)] * 7, [(i, j) for i in range(7) for j in range(i)],
        [rng.normal(size=(6, 6)) for _ in range(21)],
    )  # fmt: skip
    plan = plan_parameter_rows(model.structure)
    assert plan.program.products
    direction = rng.normal(size=model.num_parameters)
    found = run_tangents(plan.elimination, model.parameters, direction)
    step = 1e-5
    ends = plan.answer(np.stack([model.parameters + step * direction, model.parameters - step * direction]))
    np.testing.assert_allclose(found.tangents, (ends.gradients[0] - ends.gradients[1]) / (2 * step), atol=1e-8)
    np.testing.assert_allclose(found.marginals @ direction, (ends.log_z[0] - ends.log_z[1]) / (2 * step), atol=1e-8)


def test_threads_and_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    structure = Structure.of([3] * 8, [(i, i + 1) for i in range(7)])
    plan = plan_parameter_rows(structure)
    thetas = rng.normal(size=(300, plan.num_parameters))
    one = plan.answer(thetas, directions=thetas)
    many = plan.answer(thetas, directions=thetas, num_threads=4)
    for a, b in zip(one, many, strict=True):
        np.testing.assert_array_equal(a, b)
    monkeypatch.setattr(parameter_rows, "MAX_PARAMETER_ROWS", 8)
    short = plan_parameter_rows(structure).answer(thetas, directions=thetas)
    np.testing.assert_allclose(short.products, one.products, atol=1e-13)


def test_tables_too_large_for_blocks_are_answered_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    structure = Structure.of([2, 2, 2], [(0, 1), (1, 2)])
    thetas = np.random.default_rng(0).normal(size=(20, 14))
    expected = plan_parameter_rows(structure).answer(thetas)
    monkeypatch.setattr(parameter_rows, "PARAMETER_BYTES", 1)
    found = plan_parameter_rows(structure).answer(thetas)
    assert (expected.num_single, found.num_single) == (0, 20)
    np.testing.assert_allclose(found.gradients, expected.gradients, atol=1e-14)


def test_a_tangent_that_is_left_out_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sabotaged twin: leaves without tangents give other products."""
    structure = Structure.of([2, 2, 2], [(0, 1), (1, 2)])
    rng = np.random.default_rng(1)
    thetas = rng.normal(size=(10, 14))
    expected = plan_parameter_rows(structure).answer(thetas, directions=thetas)
    fill = batch_kernels.fill_leaves_by_parameters

    def forgetful(members, entries, values, directions, *others):
        directions[:] = 0.0
        fill(members, entries, values, directions, *others)

    monkeypatch.setattr(batch_kernels, "fill_leaves_by_parameters", forgetful)
    found = plan_parameter_rows(structure).answer(thetas, directions=thetas)
    assert np.abs(found.products - expected.products).max() > 0.1


def test_no_rows_no_variables_and_no_memory() -> None:
    plan = plan_parameter_rows(Structure.of([2, 3], [(0, 1)]))
    assert isinstance(plan, ParameterRows)
    assert plan.answer(np.zeros((0, 11))).gradients.shape == (0, 11)
    empty = plan_parameter_rows(Structure.of([], []))
    np.testing.assert_array_equal(empty.answer(np.zeros((9, 0)), directions=np.zeros((9, 0))).log_z, np.zeros(9))
    complete = Structure.of([2] * 9, [(i, j) for i in range(9) for j in range(i + 1, 9)])
    with pytest.raises(ResourceError):
        plan_parameter_rows(complete, memory_limit=100.0)
