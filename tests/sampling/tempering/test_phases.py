"""Phases: bounds that hold everywhere on a path, replicas started in them, and estimates that are doubted."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastmix import sample, temper
from fastmix.exact.enumeration import enumerate_model
from fastmix.results import Status
from fastmix.sampling.tempering import run as run_module
from fastmix.sampling.tempering.ladder import make_path
from fastmix.sampling.tempering.phases import Phase, enter_phases, find_phases, lower_bounds, outweighing, spread_phases
from oracle import first_order_model, random_model
from oracle.ladder import model_at


@given(st.integers(0, 10_000))
def test_bounds_hold_at_every_position(seed):
    model = random_model(np.random.default_rng(seed), scale=2.0)
    path = make_path(model)
    positions = np.array([0.0, 0.3, 0.5, 0.8, 1.0])
    phases = find_phases(path, rng=np.random.default_rng(seed))
    bounds = lower_bounds(path, phases, positions)
    for k, s in enumerate(positions.tolist()):
        assert (bounds[:, k] <= enumerate_model(model_at(path, s)).log_z + 1e-9).all()
    for phase in phases:
        np.testing.assert_allclose(np.add.reduceat(phase.marginals, model.unary_offsets[:-1]), 1.0)
        assert phase.log_weight == pytest.approx(float(path.model.log_weight(phase.mode)))
        # At the end of the path, which is the model: the bound is no worse than the mode alone.
        assert lower_bounds(path, [phase], np.ones(1))[0, 0] >= phase.log_weight - 1e-9


def test_phases_are_different_and_sorted():
    path = make_path(first_order_model(10, 4)[0])
    phases = find_phases(path, rng=np.random.default_rng(0))
    heights = lower_bounds(path, phases, np.ones(1))[:, 0]
    assert (np.diff(heights) < -1e-6).all()
    assert (phases[0].mode == 0).all()


def test_replicas_start_in_a_phase_where_it_outweighs_the_rest():
    model, _, _ = first_order_model(12, 6)
    path = make_path(model)
    phases = find_phases(path, rng=np.random.default_rng(0))
    positions = np.linspace(0.0, 1.0, 5)
    low = lower_bounds(path, phases[:1], positions)[0]
    states = np.full((5, 200, 12), 5, dtype=np.uint8)
    log_z = low + np.array([50.0, 50.0, 0.0, -1.0, -50.0])  # the phase has odds exp(-50), exp(-50), 1, e, exp(50)
    enter_phases(states, path, positions, log_z, phases[:1], np.random.default_rng(1))
    share = (states != 5).any(axis=2).mean(axis=1)
    assert share[:2].tolist() == [0.0, 0.0]
    assert share[2] == pytest.approx(0.5, abs=0.01)
    assert share[3] == pytest.approx(np.e / (1 + np.e), abs=0.01)
    assert (states[4] == 0).mean() > 0.98
    # Where the phase has not been missed, nothing changes.
    states = np.full((5, 200, 12), 5, dtype=np.uint8)
    enter_phases(states, path, positions, low - 0.9, phases[:1], np.random.default_rng(1))
    assert (states == 5).all()
    # At the start one ladder in four is there, at the highest rung only.
    spread_phases(states, path, phases[:1], np.random.default_rng(1))
    assert (states[:-1] == 5).all()
    assert (states[-1] != 5).any(axis=1).sum() == 50


def test_an_estimate_below_a_bound_is_doubted():
    path = make_path(first_order_model(8, 4)[0])
    phases = find_phases(path, rng=np.random.default_rng(0))
    top = lower_bounds(path, phases, np.ones(1)).max()
    assert outweighing(path, phases, top - 0.1, 0.2) is None
    found = outweighing(path, phases, top - 0.3, 0.2)
    assert found is not None
    assert isinstance(found[0], Phase)
    assert found[1] == pytest.approx(top)
    assert outweighing(path, [], -1e9, 0.0) is None


def test_a_first_order_transition_is_not_missed():
    """The model of 24 variables with 16 states: nearly all of the mass is in one phase that annealing does not find."""
    model, share, _ = first_order_model(24, 16)
    answer = temper(model, num_sweeps=100, seed=2)
    assert abs(answer.marginal(0)[0] - share) < 0.15
    assert answer.status == Status.NOT_MIXED or abs(answer.marginal(0)[0] - share) < 0.1
    for num_chains in (3, 64):
        assert sample(model, num_chains=num_chains, num_sweeps=200, seed=2).status == Status.NOT_MIXED


def test_what_starts_no_replica_is_still_doubted(monkeypatch):
    """Replicas that never see the phase agree with each other: only the bound tells."""
    model, share, log_z = first_order_model(20, 12)
    for name in ("spread_phases", "enter_phases"):
        monkeypatch.setattr(run_module, name, lambda *_: None)
    answer = temper(model, num_sweeps=50, seed=0)
    assert abs(answer.marginal(0)[0] - share) > 0.5
    assert (answer.log_z, answer.log_z_kind) == (None, "bound")
    assert log_z - 3.0 < answer.log_z_lower < log_z  # what the phase proves
    assert answer.status == Status.NOT_MIXED
    assert "configurations around 0 0 0" in answer.stats["note"]
    # Sabotaged: without phases nothing is noticed.
    monkeypatch.setattr(run_module, "find_phases", lambda *_, **__: [])
    assert temper(model, num_sweeps=50, seed=0).status == Status.OK


def test_forbidden_pairs_have_phases_without_bounds():
    model, _, _ = first_order_model(6, 3)
    tables = model.log_pairwise.copy()
    tables[1] = -np.inf
    path = make_path(model.replace(log_pairwise=tables))
    phases = find_phases(path, rng=np.random.default_rng(0))
    assert phases
    for phase in phases:
        assert np.isfinite(phase.log_weight)
        assert sorted(set(phase.marginals.tolist())) == [0.0, 1.0]
    for one, other in itertools.pairwise(phases):
        assert (one.mode != other.mode).any()
