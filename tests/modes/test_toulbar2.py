"""The route by toulbar2: its costs, and its answers against enumeration."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import fastmix
from fastmix import MarkovRandomField, most_probable
from fastmix._clock import NO_LIMIT
from fastmix._engine import Engine
from fastmix.errors import ImpossibleModelError, ResourceError, UnfitMethodError
from fastmix.exact.elimination import model_factors
from fastmix.instances import ising_grid, ising_random
from fastmix.modes import toulbar2_route
from fastmix.modes.toulbar2_route import CostScale
from fastmix.modes.toulbar2_worker import Network, Outcome

needs_toulbar2 = pytest.mark.extras("pytoulbar2")


def some_model(seed: int) -> MarkovRandomField:
    """Up to six variables, tables over one to four of them, a sixth of the entries forbidden in every third model."""
    rng = np.random.default_rng([seed, 71])
    counts = rng.integers(1, 4, rng.integers(1, 7)).tolist()
    factors = []
    for _ in range(rng.integers(1, 8)):
        scope = rng.permutation(len(counts))[: rng.integers(1, 5)].tolist()
        table = rng.choice([0.1, 1.0, 30.0]) * rng.normal(size=[counts[v] for v in scope])
        if seed % 3 == 0:
            table[rng.random(table.shape) < (len(scope) > 1) / 6] = -np.inf
        factors.append((scope, table))
    return MarkovRandomField.from_factors(counts, factors)


def every_weight(model: MarkovRandomField) -> tuple[Any, Any]:
    states = np.array(list(np.ndindex(*model.num_states.tolist())))
    return states, np.atleast_1d(model.log_weight(states))


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("tol", [0.0, 0.5])
def test_costs_bound_every_log_weight(seed: int, tol: float) -> None:
    model = some_model(seed)
    factors = model_factors(model)
    costs = CostScale.of(factors, model.log_constant, tol)
    assert costs.rounding <= max(1e-6, tol) * 1.001
    functions = costs.functions(factors)
    for states, weight in zip(*every_weight(model), strict=True):
        total = sum(
            table.reshape([factors.num_states[v] for v in scope])[tuple(states[list(scope)])]
            for scope, table in functions
        )
        assert math.isfinite(total) == math.isfinite(weight)
        if math.isfinite(weight):
            assert total == costs.of_states(factors, states)
            assert total == int(total) <= 2**53
            above = costs.largest_weight(total) - weight
            assert -costs.rounding <= above <= costs.rounding


def test_large_log_potentials_have_a_rounding_that_says_so() -> None:
    model = MarkovRandomField.ising([(0, 1)], coupling=1e12, field=[3.0, 0.1])
    costs = CostScale.of(model_factors(model), model.log_constant)
    assert costs.rounding > 1e-4


def test_without_the_library_nothing_changes_but_the_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toulbar2_route, "engine_version", lambda *_: None)
    model = ising_random(40, edge_probability=0.4, coupling_max=1.0, seed=0)
    with pytest.raises(UnfitMethodError, match=r"pytoulbar2.*\[map\]"):
        most_probable(model, method="toulbar2")
    result = most_probable(model, time_limit=1.0, memory_limit=1e4, seed=0)
    assert "toulbar2" not in result.provenance["options"]
    if not result.exact:
        assert "toulbar2" in result.advice


def test_tables_that_are_too_large_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toulbar2_route, "engine_version", lambda *_: "1")
    monkeypatch.setattr(toulbar2_route, "MAX_COST_ENTRIES", 10)
    with pytest.raises(ResourceError, match="table entries"):
        most_probable(ising_grid(3, 3, coupling_max=1.0, seed=0), method="toulbar2")


class Silent:
    """An engine that says what it is told to."""

    outcome: Outcome | None = None

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, *_: object) -> None: ...

    def hurry(self) -> None: ...

    def receive(self, _: Any) -> Outcome | None:
        return self.outcome


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> type[Silent]:
    monkeypatch.setattr(toulbar2_route, "engine_version", lambda *_: "0")
    monkeypatch.setattr(toulbar2_route, "Engine", Silent)
    monkeypatch.setattr(Silent, "outcome", None)
    return Silent


def test_what_an_engine_says_is_judged_here(engine: type[Silent]) -> None:
    model = MarkovRandomField.ising([(0, 1), (1, 2), (0, 2)], coupling=-1.0, field=[0.3, 0.0, 0.0])
    truth = float(every_weight(model)[1].max())
    silent = most_probable(model, method="toulbar2")
    assert not silent.exact
    engine.outcome = Outcome(None, is_complete=True, lower_bound=0.0, num_nodes=3)  # no better one than the descent's
    proven = most_probable(model, method="toulbar2")
    assert proven.exact
    assert proven.stats["moves"]["nodes of toulbar2"] == 3
    assert proven.provenance["options"]["toulbar2"] == "0"
    engine.outcome = Outcome([0, 0, 0], is_complete=False, lower_bound=0.0, num_nodes=3)
    found = most_probable(model, method="toulbar2")
    assert not found.exact
    assert found.upper_bound >= truth
    assert found.log_weight == pytest.approx(model.log_weight(found.states))


def test_rounding_that_is_too_large_is_part_of_the_gap(engine: type[Silent]) -> None:
    model = MarkovRandomField.ising([(0, 1), (1, 2), (0, 2)], coupling=-1e12, field=[0.3, 0.0, 0.0])
    engine.outcome = Outcome(None, is_complete=True, lower_bound=0.0, num_nodes=3)
    result = most_probable(model, method="toulbar2")
    assert result.exact or result.gap > 1e-4


# -- with the library -------------------------------------------------------------------------------------------------


@needs_toulbar2
def test_the_engine_against_enumeration() -> None:
    """500 small models in one process, those that are possible: after a contradiction toulbar2 has to start afresh."""
    tasks = []
    for seed in range(500):
        model = some_model(seed)
        truth = every_weight(model)[1].max()
        if truth > -np.inf:
            factors = model_factors(model)
            costs = CostScale.of(factors, model.log_constant)
            network = Network(list(factors.num_states), costs.functions(factors), None, 1)
            tasks.append((network, model, truth, costs.rounding))
    assert len(tasks) > 450
    with Engine("engine_tasks:minimize_all", [network for network, *_ in tasks]) as engine:
        outcomes = [engine.receive(NO_LIMIT) for _ in tasks]
    for outcome, (_, model, truth, rounding) in zip(outcomes, tasks, strict=True):
        assert outcome.is_complete
        assert model.log_weight(np.array(outcome.states)) == pytest.approx(truth, abs=rounding)


@needs_toulbar2
@pytest.mark.parametrize("upper_bound", [None, 5])
def test_contradictions_are_complete(upper_bound: int | None) -> None:
    forbidding = [((0, 1), np.array([np.inf, 3.0, 3.0, np.inf])), ((0, 1), np.array([3.0, np.inf, np.inf, 3.0]))]
    costly = [((0,), np.array([7.0, 9.0]))]
    network = Network([2, 2], costly if upper_bound else forbidding, upper_bound, 1)
    with Engine("fastmix.modes.toulbar2_worker:solve", network) as engine:
        outcome = engine.receive(NO_LIMIT)
    assert outcome.is_complete
    # A problem that preprocessing solves comes back solved, whatever the upper bound is.
    assert outcome.states == ([0, 0] if upper_bound else None)


@needs_toulbar2
@pytest.mark.parametrize("seed", range(6))
def test_answers(seed: int) -> None:
    model = some_model(seed)
    weights = every_weight(model)[1]
    if weights.max() == -np.inf:
        with pytest.raises(ImpossibleModelError):
            most_probable(model, method="toulbar2")
        return
    result = most_probable(model, method="toulbar2", time_limit=20.0)
    assert result.exact
    assert result.status == "ok"
    assert result.log_weight == pytest.approx(weights.max(), abs=2e-6)
    assert result.stats["rounding"] <= 1e-6


@needs_toulbar2
def test_auto_takes_it_where_nothing_else_proves() -> None:
    model = ising_random(40, edge_probability=0.4, coupling_max=1.0, seed=0)
    result = most_probable(model, memory_limit=1e4, time_limit=20.0, seed=0)
    assert (result.exact, result.method) == (True, "toulbar2")
    assert result.provenance["options"]["toulbar2"]
    assert result.log_weight == pytest.approx(most_probable(model, method="exact").log_weight)
    easy = most_probable(ising_grid(4, 4, coupling_max=1.0, seed=0))
    assert "toulbar2" not in easy.provenance["options"]


@needs_toulbar2
def test_a_time_limit_leaves_a_bound() -> None:
    model = ising_random(120, edge_probability=0.5, coupling_max=1.0, seed=0)
    result = most_probable(model, method="toulbar2", time_limit=2.0)
    assert not result.exact
    assert result.gap < np.inf
    assert result.stats["seconds"] < 20.0


@needs_toulbar2
def test_an_interrupt_leaves_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Engine, "receive", interrupt)
    with pytest.raises(fastmix.Interrupted) as stop:
        most_probable(ising_random(30, edge_probability=0.4, coupling_max=1.0, seed=0), method="toulbar2")
    assert stop.value.result.log_weight > -np.inf
