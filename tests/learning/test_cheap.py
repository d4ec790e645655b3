"""What is learnt is never worse than the independent model and the best tree."""

from __future__ import annotations

import importlib
import itertools
from typing import Any

import numpy as np
import pytest

import fastmix
import oracle.learning
from fastmix import NormBall, learn
from fastmix._clock import OutOfTimeError
from fastmix.errors import ResourceError
from fastmix.learning import chow_liu, graph_search, masses, read_data
from fastmix.results import Status


def rows_of(seed: int) -> tuple[np.ndarray, int]:
    """Rows of one of several kinds, and how many of them to learn from."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 9))
    count = int(rng.integers(12, 300))
    kind = seed % 5
    if kind == 0:  # sparse
        rows = rng.random((2 * count, n)) < 0.1
    elif kind == 1:  # two modes
        rows = rng.random((2 * count, n)) < np.where(rng.random((2 * count, 1)) < 0.5, 0.05, 0.95)
    elif kind == 2:  # a chain
        steps = rng.random((2 * count, n)) < 0.15
        rows = np.cumsum(steps, axis=1) % 2
    elif kind == 3:  # no dependence at all
        rows = rng.random((2 * count, n)) < 0.5
    else:  # constant and equal columns
        rows = np.repeat(rng.random((2 * count, 1)) < 0.4, n, axis=1)
        rows[:, 0] = True
    return rows.astype(int), count


def least_score(train: np.ndarray, valid: np.ndarray) -> float:
    """The better one of the scores of the tree and of the independent model."""
    tree = chow_liu(read_data(train, num_states=2))
    shares = 0.99 * train.mean(axis=0) + 0.005
    independent = np.where(valid == 1, np.log(shares), np.log(1.0 - shares)).sum(axis=1).mean()
    return max(independent, fastmix.score(tree, valid).log_likelihood)


@pytest.mark.parametrize("seed", range(25))
def test_no_score_is_below_those_of_cheap_models(seed: int) -> None:
    rows, count = rows_of(seed)
    options: dict[str, Any] = ({}, {"ridge": "auto"}, {"ridge": 1e-6}, {"moments": "sampled", "num_chains": 64})[
        seed % 4
    ]
    result = learn(rows[:count], validation=rows[count:], num_states=2, seed=seed, max_iter=20, **options)
    score = fastmix.score(result.model, rows[count:]).log_likelihood
    assert score >= least_score(rows[:count], rows[count:]) - 1e-9
    assert result.validation_log_likelihood == pytest.approx(score, abs=0.05)
    names = [entry["model"] for entry in result.stats["compared"]]
    assert names == ["fit", "independent", "chow-liu"]


def test_a_fit_whose_chains_were_lost_gives_way_to_the_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, count = rows_of(2)
    lost = learn(1 - rows, ridge=1e-6, num_states=2)
    lost = fastmix.LearnResult(**{**vars(lost), "status": Status.NOT_MIXED})
    monkeypatch.setattr(graph_search, "fit_with_penalties", lambda *_: lost)
    for options in ({}, {"validation": rows[count:]}):
        result = learn(rows[:count], num_states=2, seed=0, **options)
        assert (result.status, result.moments) == (Status.NOT_MIXED, "closed form")
        np.testing.assert_allclose(
            fastmix.score(result.model, rows).log_likelihood,
            fastmix.score(chow_liu(read_data(rows[:count], num_states=2)), rows).log_likelihood,
        )


@pytest.mark.parametrize("seed", range(15))
def test_without_validation_data_fresh_rows_are_no_worse_by_the_answer(seed: int) -> None:
    rows, count = rows_of(seed)
    fresh = rows[count:]
    result = learn(rows[:count], num_states=2, seed=seed)
    own = fastmix.score(result.model, fresh).per_row
    for cheap in (chow_liu(read_data(rows[:count], num_states=2)), independent_of(rows[:count])):
        gains = own - fastmix.score(cheap, fresh).per_row
        assert gains.mean() >= -4.0 * gains.std() / np.sqrt(len(fresh)) - 1e-3


def independent_of(rows: np.ndarray) -> fastmix.MarkovRandomField:
    """The independent model of binary rows."""
    shares = 0.99 * rows.mean(axis=0) + 0.005
    unaries = [np.log([1.0 - p, p]) for p in shares]
    return fastmix.MarkovRandomField.from_tables(unaries, [], [])


def test_a_complete_graph_of_rows_from_a_tree_gives_way_to_it() -> None:
    rng = np.random.default_rng(5)
    rows = (np.cumsum(rng.random((500, 14)) < 0.15, axis=1) % 2).astype(int)
    result = learn(rows, num_states=2, seed=0)
    assert (result.status, result.moments, result.model.num_edges) == (Status.OK, "closed form", 13)
    assert [entry["model"] for entry in result.stats["compared"]] == ["fit", "independent", "chow-liu"]
    assert result.validation_log_likelihood is None


def test_a_fit_that_max_iter_ends_is_compared() -> None:
    rows, _ = rows_of(2)
    result = learn(rows, num_states=2, seed=0, max_iter=1)
    assert result.status is Status.NOT_CONVERGED
    assert result.stats["compared"]
    tree = fastmix.score(chow_liu(read_data(rows, num_states=2)), rows).log_likelihood
    assert fastmix.score(result.model, rows).log_likelihood >= tree - 1e-9


def test_a_limit_leaves_a_model_that_was_seen_to_be_better(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    rows = (rng.random((80, 10)) < np.where(rng.random((80, 1)) < 0.5, 0.1, 0.9)).astype(int)
    whole = graph_search.fit_with_penalties

    def late(problem: Any, *options: Any) -> Any:
        """The fit, but for the one to all rows, which has no time."""
        if problem.data.num_rows == len(rows):
            raise OutOfTimeError
        return whole(problem, *options)

    monkeypatch.setattr(graph_search, "fit_with_penalties", late)
    result = learn(rows, num_states=2, ridge=0.1, seed=0, time_limit=60.0)
    assert (result.status, result.num_rows) == (Status.NOT_CONVERGED, 64)
    assert result.model.num_edges == 45


def test_validation_rows_with_many_missing_values_are_scored_by_a_bound() -> None:
    rng = np.random.default_rng(3)
    rows = (rng.random((60, 26)) < np.where(rng.random((60, 1)) < 0.5, 0.2, 0.8)).astype(int)
    judges = np.where(rng.random(rows.shape) < 0.8, -1, rows)
    edges = [(i, j) for i in range(26) for j in range(i)]
    result = learn(rows, edges=edges, validation=judges, num_states=2, max_iter=2, num_chains=64, seed=0)
    assert result.stats["compared"][0]["validation_log_likelihood"] > -np.inf


@pytest.mark.parametrize("states", [[2] * 7, [2, 3, 4, 2]])
def test_bounds_on_rows_with_gaps_are_below_sums(monkeypatch: pytest.MonkeyPatch, states: list[int]) -> None:
    rng = np.random.default_rng(len(states))
    edges = list(itertools.combinations(range(len(states)), 2))
    model = oracle.learning.random_model(states, edges, seed=4, scale=0.3)
    rows = rng.integers(0, states, size=(40, len(states)))
    data = read_data(np.where(rng.random(rows.shape) < 0.5, -1, rows), num_states=states)
    exact = np.array([oracle.learning.log_mass(model, row) for row in data.states])
    np.testing.assert_allclose(masses.least_log_masses(model, data)[0], exact, rtol=0.0, atol=1e-9)
    monkeypatch.setattr(masses, "MAX_COMPLETIONS", 2)
    monkeypatch.setattr(masses, "log_masses", refuse_many(masses.log_masses))
    found, is_bound = masses.least_log_masses(model, data)
    assert is_bound
    assert (found <= exact + 1e-9).all()
    assert float((exact - found).mean()) < 0.1
    monkeypatch.setattr(masses, "MEAN_FIELD_STEPS", 1)
    assert masses.least_log_masses(model, data)[0].sum() < found.sum()


def refuse_many(sums: Any) -> Any:
    """The sums over missing values, but for rows with more than one of them."""

    def found(model: Any, data: Any, clock: Any) -> Any:
        """The same."""
        if ((data.states == -1).sum(axis=1) > 1).any():
            raise ResourceError("missing values must have fewer states")
        return sums(model, data, clock)

    return found


def test_few_rows_are_compared_on_parts_of_them() -> None:
    rows = np.random.default_rng(0).integers(0, 2, size=(60, 12))
    result = learn(rows, ridge=1e-6, num_states=2, seed=0)
    assert result.status is Status.OK
    assert result.moments in ("none", "closed form")
    assert result.validation_log_likelihood is None or result.stats["compared"]
    many = learn(np.tile(rows, (100, 1)), seed=0)
    assert many.moments == "enumeration"
    assert "compared" not in many.stats


def test_cheap_models_stay_in_the_set_and_on_the_graph() -> None:
    rows, count = rows_of(2)
    inside = learn(rows[:count], validation=rows[count:], within=NormBall("inf", 0.2), seed=0)
    assert inside.norms["inf"] <= 0.2 + 1e-9
    graph = [(0, 2), (1, 2)]
    given = learn(rows[:count], edges=graph, validation=rows[count:], seed=0)
    assert given.model.edges.tolist() == [[0, 2], [1, 2]]


@pytest.mark.parametrize("states", [[2] * 9, [2, 3, 4, 2, 5]])
def test_pairs_of_sparse_rows_are_counted_by_their_ones(monkeypatch: pytest.MonkeyPatch, states: list[int]) -> None:
    rng = np.random.default_rng(len(states))
    rows = np.where(rng.random((300, len(states))) < 0.03, rng.integers(0, states, (300, len(states))), 0)
    data = read_data(rows, num_states=states)
    module = importlib.import_module("fastmix.learning.chow_liu")
    sparse = chow_liu(data)
    counted = []
    whole = module._sparse_pair_probabilities
    monkeypatch.setattr(module, "_sparse_pair_probabilities", lambda *given: counted.append(1) or whole(*given))
    assert np.array_equal(chow_liu(data).edges, sparse.edges)
    assert counted
    monkeypatch.setattr(module, "SPARSE_SHARE", 0.0)
    dense = chow_liu(data)
    ours = fastmix.score(sparse, rows).log_likelihood
    assert ours == pytest.approx(fastmix.score(dense, rows).log_likelihood, abs=1e-9)
