"""Sparse graphs grown from the tree, and the chains that go through all activities."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import sparse

import fastmix
from fastmix import MarkovRandomField, learn
from fastmix.graphs import complete_edges
from fastmix.learning.activity import ActivityChains, pair_features
from fastmix.results import Status


def small_model(seed: int, n: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Edges, and log-odds and couplings, of a random model."""
    rng = np.random.default_rng(seed)
    edges = complete_edges(n)
    edges = edges[rng.random(len(edges)) < 0.7]
    return edges, np.concatenate([rng.normal(-1.0, 0.7, n), rng.normal(0.0, 0.8, len(edges))])


def probabilities(edges: np.ndarray, parameters: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All configurations, and their probabilities with the bias, one by one."""
    n = len(bias) - 2
    states = np.array(list(product((0, 1), repeat=n)))
    logs = np.zeros(len(states))
    for k, x in enumerate(states):
        logs[k] = x @ parameters[:n] + bias[x.sum()]
        for e, (i, j) in enumerate(edges):
            logs[k] += parameters[n + e] * x[i] * x[j]
    weights = np.exp(logs - logs.max())
    return states, weights / weights.sum()


def chains_at(edges: np.ndarray, parameters: np.ndarray, states: np.ndarray, seed: int) -> ActivityChains:
    """Chains at these states."""
    rng = np.random.default_rng(seed)
    return ActivityChains(edges, parameters, states.astype(np.int8), states.shape[1], rng)


@pytest.mark.parametrize("seed", range(4))
def test_sweeps_leave_the_biased_model_as_it_is(seed: int) -> None:
    rng = np.random.default_rng(seed)
    edges, parameters = small_model(seed)
    bias = np.concatenate([rng.normal(0.0, 1.0, 6), [0.0]])
    states, p = probabilities(edges, parameters, bias)
    count = 40_000
    chains = chains_at(edges, parameters, states[rng.choice(len(p), count, p=p)], seed)
    chains.bias = bias
    chains.sweep(3)
    numbers = chains.states.astype(np.int64) @ 2 ** np.arange(4, -1, -1)
    found = np.bincount(numbers, minlength=32)
    chi_square = float(((found - count * p) ** 2 / (count * p)).sum())
    assert chi_square < 31 + 5.0 * np.sqrt(62) + 25  # beyond it in less than one of a million
    np.testing.assert_array_equal(chains.activity, chains.states.sum(axis=1))
    other = chains_at(edges, parameters, chains.states, seed)
    np.testing.assert_allclose(chains._fields, other._fields, atol=1e-9)  # kept up to date
    # Sabotaged: with the bias turned around it is another model.
    wrong = probabilities(edges, parameters, -bias)[1]
    assert float(((found - count * wrong) ** 2 / (count * wrong)).sum()) > 200.0


@pytest.mark.parametrize("seed", range(20))
def test_ways_to_zero_have_the_mean_probability_of_zero(seed: int) -> None:
    edges, parameters = small_model(seed)
    states, p = probabilities(edges, parameters, np.zeros(7))
    chains = chains_at(edges, parameters, states, seed)
    assert float(p @ np.exp(chains.log_zero())) == pytest.approx(p[0], rel=1e-10)


def test_moves_keep_every_activity_and_its_weight() -> None:
    edges, parameters = small_model(3)
    rng = np.random.default_rng(0)
    states = (rng.random((20_000, 5)) < 0.3).astype(np.int8)
    chains = chains_at(edges, np.concatenate([np.full(5, np.log(0.3 / 0.7)), np.zeros(len(edges))]), states, 0)
    chains.move(parameters)
    for _ in range(30):
        chains.sweep(2)
        chains.adapt()
    everything, p = probabilities(edges, parameters, np.zeros(7))
    expected = np.bincount(everything.sum(axis=1), p)
    found = np.bincount(chains.activity, chains.shares(), 6)
    np.testing.assert_allclose(found, expected, atol=0.02)
    assert np.bincount(chains.activity, minlength=6).min() > 500  # the rarest too


def test_features_are_ones_and_pairs_of_ones() -> None:
    rows = np.random.default_rng(0).integers(0, 2, size=(30, 6)).astype(float)
    edges = complete_edges(6)
    features = pair_features(sparse.csr_array(rows), edges).toarray()
    np.testing.assert_array_equal(features[:, :6], rows)
    np.testing.assert_array_equal(features[:, 6:], rows[:, edges[:, 0]] * rows[:, edges[:, 1]])


def sparse_rows(seed: int) -> tuple[np.ndarray, MarkovRandomField]:
    """Rows of a sparse model of 30 variables, some turned around, with rare rows of many ones; and the model."""
    rng = np.random.default_rng(seed)
    n = 30
    edges = complete_edges(n)
    edges = edges[rng.random(len(edges)) < 0.08]
    unary = np.zeros((n, 2))
    unary[:, 1] = -3.2
    tables = np.zeros((len(edges), 2, 2))
    tables[:, 1, 1] = rng.uniform(1.0, 2.4, len(edges))
    turned = rng.random(n) < 0.2
    unary[turned] = unary[turned, ::-1]
    tables[turned[edges[:, 0]]] = tables[turned[edges[:, 0]], ::-1]
    tables[turned[edges[:, 1]]] = tables[turned[edges[:, 1]]][:, :, ::-1]
    model = MarkovRandomField.from_tables(unary, edges, tables)
    return fastmix.draw_exact(model, num_draws=9000, seed=seed).states, model


@pytest.mark.parametrize("seed", range(2))
def test_grown_graphs_are_better_than_trees(seed: int) -> None:
    rows, model = sparse_rows(seed)
    train, valid, test = rows[:5000], rows[5000:7000], rows[7000:]
    result = learn(train, validation=valid, edges="grow", ridge="auto", num_states=2, seed=seed)
    best, tree, found = (
        fastmix.score(m, test).log_likelihood
        for m in (model, learn(train, edges="chow-liu", num_states=2).model, result.model)
    )
    assert result.status is Status.OK
    assert tree < found
    assert best - found < 0.6 * (best - tree)
    path = result.stats["path"]
    assert all(entry["num_edges"] >= 29 for entry in path)
    # What the chains say of the score is what it is.
    chosen = next(entry for entry in path if entry["num_edges"] == result.model.num_edges)
    assert chosen["validation_log_likelihood"] == pytest.approx(result.validation_log_likelihood, abs=0.1)


def test_a_time_limit_gives_what_there_is() -> None:
    rows, _ = sparse_rows(0)
    result = learn(rows[:500], validation=rows[500:700], edges="grow", time_limit=0.3, num_states=2, seed=0)
    assert result.validation_log_likelihood is not None
    tree = learn(rows[:500], edges="chow-liu", validation=rows[500:700], num_states=2)
    assert tree.validation_log_likelihood is not None
    assert result.validation_log_likelihood >= tree.validation_log_likelihood - 1e-9


def test_sparse_rows_without_validation_data_are_grown_by_a_tenth_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(7)
    topics = rng.random((3, 26)) < 0.2
    rows = (rng.random((1500, 26)) < np.where(topics[rng.integers(3, size=1500)], 0.15, 0.02)).astype(int)
    monkeypatch.setattr("fastmix.learning.growth.UMBRELLA_ROUNDS", 30)
    result = learn(rows, num_states=2, seed=0)
    assert result.num_rows == 1350
    assert [entry["model"] for entry in result.stats["compared"]] == ["fit", "independent", "chow-liu"]
    assert result.model.num_edges < 325
    whole = learn(rows, edges=[(0, 1)], num_states=2, seed=0)
    assert whole.num_rows == 1500
