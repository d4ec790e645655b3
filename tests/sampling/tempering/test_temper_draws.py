"""Configurations that replica exchange keeps: how many, their law, and expectations from them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from test_temper_saved import Stop

import fastmix
from fastmix import MarkovRandomField, ResourceError, temper
from fastmix.instances import ising_grid


@pytest.mark.parametrize(("num_sweeps", "num_draws"), [(2000, 100), (70, 70), (101, 30), (50, 1)])
def test_as_many_draws_as_asked_for(num_sweeps, num_draws):
    model = ising_grid(3, 3, coupling_max=1.0, seed=0)
    result = temper(model, num_sweeps=num_sweeps, num_draws=num_draws, num_ensembles=3, seed=1)
    assert result.draws.shape == (result.stats["num_ladders"], num_draws, 9)
    assert set(np.unique(result.draws)) <= {0, 1}
    assert temper(model, num_sweeps=60, seed=1).draws is None


def test_draws_do_not_change_the_answer():
    model = ising_grid(3, 3, coupling_max=1.0, seed=0)
    plain = temper(model, num_sweeps=500, num_ensembles=3, seed=1)
    kept = temper(model, num_sweeps=500, num_ensembles=3, num_draws=50, seed=1)
    assert np.array_equal(plain.node_marginals, kept.node_marginals)
    assert plain.log_z == kept.log_z


@pytest.mark.parametrize("seed", range(3))
def test_expectations_are_those_of_exact_inference(seed):
    """Bimodal models: every estimate within five standard errors, at a false alarm rate far below 1e-4."""
    model = ising_grid(4, 4, coupling_max=2.0, attractive=True, seed=seed)
    run = temper(model, num_sweeps=4000, num_draws=400, seed=seed)

    def magnetization(x):
        return 2.0 * x.mean(axis=-1) - 1.0

    exact = fastmix.infer(model, method="exact")
    for observable in (model.log_weight, magnetization, lambda x: magnetization(x) ** 2):
        estimate = run.expect(observable)
        truth = exact.expect(observable)
        error = np.hypot(estimate.std_error, truth.std_error)
        assert abs(float(estimate.value) - float(truth.value)) < 5.0 * error + 1e-9
        assert estimate.std_error > 0.0


def test_evidence_and_forbidden_states_are_expanded():
    model = MarkovRandomField.from_tables(
        [[0.0, 0.3, -np.inf], [0.0, 0.1, 0.2], [0.0, 0.5, 0.0]], [(0, 1), (1, 2)], [np.eye(3), np.eye(3)]
    )
    run = temper(model, evidence={2: 1}, num_sweeps=200, num_draws=20, seed=0)
    assert run.draws.shape[1:] == (20, 3)
    assert (run.draws[..., 2] == 1).all()
    assert run.draws[..., 0].max() == 1


def test_what_is_refused():
    model = ising_grid(3, 3, coupling_max=1.0, seed=0)
    with pytest.raises(ValueError, match="num_draws"):
        temper(model, num_sweeps=10, num_draws=11)
    with pytest.raises(ResourceError, match="num_draws"):
        temper(model, num_draws=10**15)
    with pytest.raises(ValueError, match="num_draws"):
        temper(model, num_sweeps=100, seed=0).expect(model.log_weight)


def test_draws_survive_a_checkpoint(tmp_path: Path) -> None:
    model = ising_grid(4, 4, coupling_max=1.0, seed=0)
    options = {"num_sweeps": 3000, "num_draws": 300, "num_ensembles": 3, "num_threads": 1, "seed": 4}
    expected = temper(model, checkpoint=str(tmp_path / "whole"), **options)
    path = str(tmp_path / "parts")
    for after in (1000, 2500):
        with pytest.raises(KeyboardInterrupt):
            temper(model, checkpoint=path, checkpoint_seconds=0.0, progress=Stop(after), **options)
    assert np.array_equal(temper(model, checkpoint=path, **options).draws, expected.draws)


def test_a_time_limit_keeps_what_there_is():
    run = temper(ising_grid(8, 8, coupling_max=0.5, seed=0), num_draws=50, time_limit=1.0, seed=0)
    assert 0 < run.draws.shape[1] <= 50
