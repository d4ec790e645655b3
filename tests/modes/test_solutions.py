"""Several most probable configurations, against enumeration."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fastmix
from fastmix import BayesianNetwork, MarkovRandomField, most_probable
from fastmix.errors import ImpossibleModelError, ModelError, ResourceError
from fastmix.exact.elimination import model_factors, plan_elimination
from fastmix.instances import ising_grid, ising_random, potts_grid
from fastmix.modes.apart import Apart
from fastmix.modes.mode_run import ModeRun

needs_toulbar2 = pytest.mark.extras("pytoulbar2")


def some_model(seed: int) -> MarkovRandomField:
    """Up to six variables of up to three states, tables over one to four of them, with zeros in every third model."""
    rng = np.random.default_rng([seed, 38])
    while True:
        counts = rng.integers(1, 4, rng.integers(1, 7)).tolist()
        factors = []
        for _ in range(rng.integers(1, 8)):
            scope = rng.permutation(len(counts))[: rng.integers(1, 5)].tolist()
            table = 2.0 * rng.normal(size=[counts[v] for v in scope])
            if seed % 3 == 0:
                table[rng.random(table.shape) < (len(scope) > 1) / 6] = -np.inf
            factors.append((scope, table))
        try:
            return MarkovRandomField.from_factors(counts, factors)
        except ModelError:
            continue


def every_weight(model: MarkovRandomField) -> tuple[Any, Any]:
    """All configurations of positive weight, the best first."""
    states = np.array(list(np.ndindex(*model.num_states.tolist())))
    weights = np.atleast_1d(model.log_weight(states))
    order = [k for k in np.argsort(-weights, kind="stable") if weights[k] > -np.inf]
    return states[order], weights[order]


def check(model: MarkovRandomField, result: Any, num_solutions: int, distance: int, tol: float = 1e-9) -> None:
    """What must hold of any answer; bounds beside the best that there is after the solutions before."""
    states, weights = every_weight(model)
    found = result.solutions
    assert np.array_equal(result.states, found[0])
    assert result.log_weight == result.log_weights[0]
    assert (np.diff(result.log_weights) <= tol).all()
    np.testing.assert_allclose(result.log_weights, model.log_weight(found), atol=1e-9)
    allowed = np.ones(len(states), dtype=bool)
    for number, own in enumerate(found):
        best = weights[allowed].max()
        assert result.upper_bounds[number] >= best - tol
        assert allowed[(states == own).all(axis=1)].any()
        if result.proven[number]:
            assert result.log_weights[number] == pytest.approx(best, abs=tol)
        allowed &= (states != own).sum(axis=1) >= distance
    if result.status == "ok" and len(found) < num_solutions:
        assert not allowed.any()


@pytest.mark.parametrize("seed", range(200))
def test_exact_solutions_are_those_of_enumeration(seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = some_model(seed)
    if not len(every_weight(model)[0]):
        with pytest.raises(ImpossibleModelError):
            most_probable(model, num_solutions=2)
        return
    num_solutions = int(rng.integers(2, 12))
    distance = int(rng.integers(1, 4)) if seed % 2 else 1
    result = most_probable(model, num_solutions=num_solutions, min_distance=distance, method="exact")
    assert result.status == "ok"
    assert result.proven.all()
    check(model, result, num_solutions, distance)
    if distance == 1:
        weights = every_weight(model)[1][:num_solutions]
        np.testing.assert_allclose(result.log_weights, weights, atol=1e-9)
        assert len({tuple(states) for states in result.solutions.tolist()}) == len(weights)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("method", ["search", "auto"])
def test_bounds_of_a_search_hold(seed: int, method: str) -> None:
    model = some_model(seed)
    if not len(every_weight(model)[0]):
        return
    distance = 1 + seed % 3
    memory = 1.0 if method == "auto" else None  # so that the junction tree does not fit
    options = {"num_solutions": 4, "min_distance": distance, "memory_limit": memory, "time_limit": 0.3, "seed": seed}
    check(model, most_probable(model, method=method, **options), 4, distance)


@pytest.mark.parametrize("distance", [1, 3])
def test_a_search_finds_the_best_ones_of_small_grids(distance: int) -> None:
    for seed in range(4):
        model = ising_grid(3, 3, coupling_max=1.0, seed=seed)
        found = most_probable(model, num_solutions=3, min_distance=distance, method="search", time_limit=0.5, seed=0)
        truth = most_probable(model, num_solutions=3, min_distance=distance, method="exact")
        assert len(found.solutions) == 3
        assert (found.log_weights <= truth.log_weights[0] + 1e-9).all()
        assert found.log_weights[0] == pytest.approx(truth.log_weights[0])
        assert (found.gaps >= 0.0).all()


def test_cuts_and_expansion_moves_serve_prices() -> None:
    rng = np.random.default_rng(3)
    picture = MarkovRandomField.image(rng.normal(size=(30, 30, 2)), 0.5)
    found = most_probable(picture, num_solutions=3, min_distance=20, method="cut", time_limit=5.0, seed=0)
    assert found.method == "cut"
    assert found.proven[0]
    assert [int((found.solutions[i] != found.solutions[j]).sum()) >= 20 for i, j in ((0, 1), (0, 2), (1, 2))] == [
        True
    ] * 3
    assert (found.gaps < 2.0).all()
    labels = potts_grid(5, 5, coupling_max=0.5, attractive=True, seed=0)
    many = most_probable(labels, num_solutions=2, min_distance=4, method="expansion", time_limit=2.0, seed=0)
    best = most_probable(labels, num_solutions=2, min_distance=4, method="exact")
    assert (many.upper_bounds >= best.log_weights - 1e-9).all()


def test_evidence_names_and_columns() -> None:
    network = BayesianNetwork(
        ["a", "b", "c"],
        [["x", "y"]] * 3,
        [[], [0], [1]],
        [[0.4, 0.6], [[0.7, 0.3], [0.2, 0.8]], [[0.9, 0.1], [0.5, 0.5]]],
    )
    result = most_probable(network.to_model(), evidence={"a": "y"}, num_solutions=3)
    assert result.named_solutions == [["y", "y", "x"], ["y", "y", "y"], ["y", "x", "x"]]
    np.testing.assert_allclose(np.exp(result.log_weights), [0.24, 0.24, 0.108])
    columns = result.columns()
    assert list(columns) == ["solution", "log_weight", "variable", "state", "number"]
    assert columns["solution"].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    data = result.to_dict()
    assert data["solutions"] == result.solutions.tolist()
    assert data["proven"] == [True] * 3
    assert data["provenance"]["options"]["num_solutions"] == 3
    assert "3 solutions" in repr(result)
    assert "solutions: 3, 3 proven" in result.summary()


def test_fewer_where_there_are_no_more() -> None:
    model = MarkovRandomField.from_tables([[0, 0], [0, 0]], [(0, 1)], [[[0, -np.inf], [-np.inf, 1]]])
    result = most_probable(model, num_solutions=5)
    assert result.solutions.tolist() == [[1, 1], [0, 0]]
    assert result.status == "ok"
    apart = most_probable(model, num_solutions=5, min_distance=3)
    assert apart.solutions.tolist() == [[1, 1]]
    assert apart.status == "ok"
    assert most_probable(MarkovRandomField.from_factors([], []), num_solutions=2).solutions.shape == (1, 0)


def test_differences_count_in_the_variables_of_a_network_alone() -> None:
    """The hidden variables of a law follow from the others."""
    law = fastmix.Logical("or")
    network = BayesianNetwork(
        [f"p{k}" for k in range(5)] + ["any"],
        [["no", "yes"]] * 6,
        [[]] * 5 + [[0, 1, 2, 3, 4]],
        [[0.7, 0.3], [0.8, 0.2], [0.6, 0.4], [0.9, 0.1], [0.55, 0.45], law],
    )
    result = most_probable(network.to_model(), num_solutions=6, min_distance=2)
    shown = result.solutions[:, :6]
    assert result.proven.all()
    for i in range(6):
        assert all((shown[i] != shown[j]).sum() >= 2 for j in range(i))


def test_refused() -> None:
    model = ising_grid(2, 2, coupling_max=1.0, seed=0)
    for bad in (0, -1, 1.5, "two", None):
        with pytest.raises((ValueError, TypeError), match="num_solutions"):
            most_probable(model, num_solutions=bad)
        with pytest.raises((ValueError, TypeError), match="min_distance"):
            most_probable(model, min_distance=bad)
    with pytest.raises(ValueError, match="num_solutions must be 1"):
        most_probable(model, variables=[0], num_solutions=2)
    wide = ising_random(40, edge_probability=0.9, coupling_max=1.0, seed=0)
    for distance in (1, 2):
        with pytest.raises(ResourceError):
            most_probable(wide, num_solutions=2, min_distance=distance, method="exact", memory_limit=1e4)


@needs_toulbar2
@pytest.mark.parametrize("seed", range(20))
def test_toulbar2_proves_each_solution(seed: int) -> None:
    model = some_model(seed)
    if not len(every_weight(model)[0]):
        return
    distance = 1 + seed % 3
    result = most_probable(model, num_solutions=3, min_distance=distance, method="toulbar2", time_limit=20.0, seed=0)
    assert result.status == "ok"
    check(model, result, 3, distance, tol=1e-5)


def test_changes_of_single_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    from contexts import context_of

    for seed in range(20):
        model = some_model(3 * seed + 1)  # without zeros
        rng = np.random.default_rng(seed)
        states = rng.integers(0, model.num_states)
        changes = ModeRun(model, context_of()).changes(states)
        for v in range(model.num_variables):
            for s in range(int(model.num_states[v])):
                other = states.copy()
                other[v] = s
                expected = model.log_weight(other) - model.log_weight(states)
                assert changes[model.unary_offsets[v] + s] == pytest.approx(expected, abs=1e-9)


def test_max_marginals_against_enumeration() -> None:
    for seed in range(60):
        model = some_model(seed)
        states, weights = every_weight(model)
        if not len(states):
            continue
        tree = plan_elimination(model_factors(model))
        largest, best, found = tree.max_marginals(values=model.parameters)
        assert largest + model.log_constant == pytest.approx(weights[0])
        assert model.log_weight(best) == pytest.approx(weights[0])
        for v in range(model.num_variables):
            for s in range(int(model.num_states[v])):
                expected = weights[states[:, v] == s].max(initial=-np.inf)
                own = found[model.unary_offsets[v] + s] + model.log_constant
                assert own == pytest.approx(expected, abs=1e-9)


def test_shortfalls_count_what_is_lacking_after_a_change() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        n = int(rng.integers(1, 6))
        counted = np.flatnonzero(rng.random(n) < 0.8)
        apart = Apart(rng.integers(0, 3, (3, n)), counted, int(rng.integers(1, 4)))
        states = rng.integers(0, 3, n)
        owner, state_of = np.divmod(np.arange(3 * n), 3)
        left = apart.shortfalls(states, owner, state_of)
        for e in range(3 * n):
            other = states.copy()
            other[owner[e]] = state_of[e]
            assert left[e] == apart.shortfall(other)
