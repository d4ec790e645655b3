"""Exact inference by cases, against enumeration and against the junction tree."""

from __future__ import annotations

import numpy as np
import pytest

import fastmix
from fastmix import MarkovRandomField
from fastmix._clock import Clock, OutOfTimeError
from fastmix.errors import ImpossibleModelError, ResourceError
from fastmix.exact import conditioning, plan_exact
from fastmix.exact.conditioning import ConditionedElimination, plan_conditioned
from fastmix.instances import ising_grid
from formula_models import some_model, weights_of


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cases also where planning takes as much memory as the tables."""
    monkeypatch.setattr(conditioning, "LEAST_CONDITIONED_BYTES", 0.0)


@pytest.mark.parametrize("seed", range(80))
def test_against_enumeration(seed: int) -> None:
    model = some_model(seed)
    states, weights = weights_of(model)
    try:
        plan = plan_conditioned(model, memory_limit=1e6)
    except ResourceError:
        pytest.skip("a variable of each model is fixed; this one has none of two states")
    if not weights.sum():
        with pytest.raises(ImpossibleModelError):
            plan.calibrate()
        return
    found = plan.calibrate()
    assert found.log_z == pytest.approx(np.log(weights.sum()), abs=1e-9)
    places = [(v, s) for v, count in enumerate(model.num_states) for s in range(count)]
    expected = [weights[states[:, v] == s].sum() / weights.sum() for v, s in places]
    assert found.marginals == pytest.approx(expected, abs=1e-12)
    pairs = [
        weights[(states[:, i] == s) & (states[:, j] == t)].sum() / weights.sum()
        for i, j in model.edges.tolist()
        for s, t in np.ndindex(int(model.num_states[i]), int(model.num_states[j]))
    ]
    assert found.factor_marginals == pytest.approx(pairs, abs=1e-12)


@pytest.mark.parametrize(("side", "share"), [(11, 4), (11, 16), (14, 64)])
def test_a_limit_that_is_missed_is_met_by_cases(side: int, share: int) -> None:
    model = ising_grid(side, side, coupling_max=1.0, seed=share)
    whole = fastmix.infer(model, method="exact", edge_marginals=True)
    limit = whole.stats["required_bytes"] / share
    plan = plan_exact(model, memory_limit=limit)
    assert isinstance(plan.elimination, ConditionedElimination)
    assert plan.elimination.elimination.required_bytes <= limit
    assert plan.seconds == pytest.approx(plan.elimination.num_cases * plan.elimination.elimination.seconds)
    result = plan.run()
    assert result.stats["num_cases"] == plan.elimination.num_cases > 1
    assert result.log_z == pytest.approx(whole.log_z)
    assert result.node_marginals == pytest.approx(whole.node_marginals, abs=1e-9)
    assert result.edge_marginals == pytest.approx(whole.edge_marginals, abs=1e-9)


def test_what_is_out_of_reach_is_refused() -> None:
    with pytest.raises(ResourceError, match="exact inference needs"):
        plan_exact(ising_grid(12, 12, coupling_max=1.0, seed=0), memory_limit=100.0)


def test_a_small_limit_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditioning, "LEAST_CONDITIONED_BYTES", 2.0**26)
    with pytest.raises(ResourceError):
        plan_exact(ising_grid(11, 11, coupling_max=1.0, seed=0), memory_limit=5e4)


def test_the_clock_is_asked_between_cases() -> None:
    plan = plan_conditioned(ising_grid(6, 6, coupling_max=1.0, seed=0), memory_limit=1e7)
    clock = Clock(1.0)
    clock.limit = 0.0
    with pytest.raises(OutOfTimeError):
        plan.calibrate(clock)


def test_cases_that_are_impossible_count_for_nothing() -> None:
    table = np.array([[0.0, -np.inf], [-np.inf, -np.inf]])
    model = MarkovRandomField.from_tables(np.zeros((3, 2)), [(0, 1), (1, 2)], [table, np.ones((2, 2))])
    found = plan_conditioned(model, memory_limit=1e6).calibrate()
    assert np.isfinite(found.marginals).all()
    assert found.log_z == pytest.approx(1.0 + np.log(2.0))


def test_draws_follow_the_model() -> None:
    model = fastmix.instances.ising_grid(2, 3, coupling_max=1.0, seed=1)
    states, weights = weights_of(model)
    draws = plan_conditioned(model, memory_limit=1e6).draw(20_000, np.random.default_rng(0))
    for row, weight in zip(states, weights / weights.sum(), strict=True):
        share = float((draws == row).all(axis=1).mean())
        assert abs(share - weight) <= 5.5 * np.sqrt(weight * (1.0 - weight) / 20_000) + 1e-9
    half = (draws[:10_000, 0] == 1).mean() - (draws[10_000:, 0] == 1).mean()
    assert abs(half) < 5.5 * np.sqrt(0.5 / 10_000)  # cases do not come one after another
