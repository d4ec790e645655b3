"""Restricted Boltzmann machines by persistent chains."""

from __future__ import annotations

import numpy as np
import pytest

from fastmix import MarkovRandomField, learn, score
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.data import read_data
from fastmix.learning.machines import _Machine, is_machine
from fastmix.learning.objectives import DataTerm
from fastmix.learning.score import make_pool


def rows_of(visible: int, rows: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    weights = 1.5 * rng.standard_normal((visible, 3))
    hidden = rng.random((rows, 3)) < 0.5
    return (rng.random((rows, visible)) < 1.0 / (1.0 + np.exp(-(hidden - 0.5) @ weights.T))).astype(np.int8)


def test_which_graphs_are_machines() -> None:
    model = MarkovRandomField.rbm(np.ones((5, 3)))
    assert is_machine(model.structure, 3)
    assert not is_machine(model.structure, 2)  # edges between visible variables
    assert not is_machine(model.structure, 0)


@pytest.mark.parametrize("hidden", [2, 112, 130])
def test_gradient(hidden: int) -> None:
    """Conditional moments of the data by lookups, against those of the objective in double precision."""
    data = rows_of(9, 50, 0)
    table = read_data(data).with_hidden(hidden)
    rng = np.random.default_rng(1)
    model = MarkovRandomField.rbm(
        0.5 * rng.standard_normal((9, hidden)), rng.standard_normal(9), rng.standard_normal(hidden)
    )
    coordinates = Coordinates(model.structure)
    v = coordinates.from_parameters(model.parameters)[0]
    chains, _ = make_pool(model, "cpu", num_chains=64, seed=0)
    machine = _Machine(chains, table, coordinates, v, hidden, 0.0)
    np.testing.assert_allclose(machine.coordinates_of(), v, atol=1e-5)
    c = machine.gamma - machine.mu @ machine.W
    products, means, of_visible = machine.conditional_moments(
        data[:30].astype(np.uint8), np.ascontiguousarray(data[30:].T.astype(np.uint8)), table.weights, c
    )
    expected = DataTerm(coordinates, table).evaluate(v)[1]
    d = coordinates.num_contrasts
    spins = np.sqrt(2.0) * (means[:hidden] - 0.5)
    np.testing.assert_allclose(spins, expected[9:d], atol=1e-5)
    of_data = table.weights @ data
    np.testing.assert_allclose(of_visible, of_data, atol=1e-6)
    pairs = products[:, :hidden] - 0.5 * means[:hidden] - 0.5 * of_data[:, None] + 0.25
    np.testing.assert_allclose(2.0 * pairs.reshape(-1), expected[d:], atol=1e-5)


def test_learning_beats_the_independent_model() -> None:
    data = rows_of(10, 2000, 3)
    result = learn(data, hidden=3, moments="sampled", ridge=1e-3, max_iter=15, seed=0)
    assert result.model.num_edges == 30
    assert result.moments == "sampled"
    assert len(result.history) == 15
    padded = np.hstack([data, np.full((len(data), 3), -1)])
    found = score(result.model, padded).log_likelihood
    p = data.mean(axis=0)
    independent = float(np.mean(data * np.log(p) + (1 - data) * np.log(1 - p)) * 10)
    exact = learn(data, hidden=3, moments="exact", ridge=1e-3, seed=0)
    best = score(exact.model, padded).log_likelihood
    assert found > independent + 0.7 * (best - independent)
    again = learn(data, hidden=3, moments="sampled", ridge=1e-3, max_iter=15, seed=0)
    np.testing.assert_array_equal(again.model.parameters, result.model.parameters)


def test_a_time_limit_and_ctrl_c_keep_the_model() -> None:
    data = rows_of(12, 2000, 3)
    limited = learn(data, hidden=4, moments="sampled", max_iter=10_000, time_limit=0.5, seed=0)
    assert str(limited.status) == "not_converged"
    assert limited.stats["stopped_by"] == "time_limit"

    def stop(_: object) -> None:
        raise KeyboardInterrupt

    stopped = learn(data, hidden=4, moments="sampled", seed=0, progress=stop)
    assert str(stopped.status) == "interrupted"
    assert np.isfinite(stopped.model.parameters).all()
