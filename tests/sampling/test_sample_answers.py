"""What a sample is of: evidence, names, dropped states, edges, draws and traces."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sampler_checks import CUT, SIGMAS, WEAK, assert_close_to_exact, chains_of, given_exact, lopsided

import fastmix
import oracle
import strategies
from contexts import context_of
from fastmix import (
    MarkovRandomField,
    ModelError,
    ResourceError,
    UnfitMethodError,
    _memory,
    certify,
)
from fastmix.exact.enumeration import enumerate_model
from fastmix.results import Status
from fastmix.sampling.sample import sample

# -- evidence, names, dropped states, edges ---------------------------------------------------------------------------


def test_evidence_names_and_dropped_states():
    model, evidence = lopsided(), {"b": "s1", 3: 0}
    result = sample(model, evidence=evidence, num_sweeps=3000, seed=2, edge_marginals=True, num_draws=5)
    exact = given_exact(model, evidence)
    assert_close_to_exact(result, exact)
    assert result.marginal("b").tolist() == [0.0, 1.0, 0.0]
    assert result.marginal("d").tolist() == [1.0, 0.0]
    assert result.marginal("c")[1] == 0.0
    known = np.isclose(exact, np.round(exact), rtol=0, atol=1e-12)
    assert (result.std_error[known] == 0).all()
    assert (result.std_error[~known] > 0).all()
    assert result.r_hat[[1, 3]].tolist() == [1.0, 1.0]
    assert np.isinf(result.ess[[1, 3]]).all()
    assert (result.states[:, [1, 3]] == [1, 0]).all()
    assert (result.draws[:, :, [1, 3]] == [1, 0]).all()
    assert (result.states[:, 2] != 1).all()
    # Edges with an observed end are products with a point mass.
    np.testing.assert_allclose(result.edge_marginal("a", "b")[:, 1], result.marginal("a"))
    assert result.edge_marginal("b", "d").tolist() == [[0, 0], [1, 0], [0, 0]]
    assert result.provenance["options"]["evidence"] == {"b": "s1", "3": 0}


def test_everything_observed():
    model = lopsided()
    x = {0: 0, 1: 1, 2: 0, 3: 1, 4: 1}
    result = sample(model, evidence=x, num_sweeps=10, num_chains=2, seed=0)
    assert result.states.tolist() == [[0, 1, 0, 1, 1]] * 2
    assert result.status == Status.OK


def test_impossible_evidence_and_undefined_conditionals_are_refused():
    with pytest.raises(ModelError, match="impossible"):
        sample(lopsided(), evidence={"c": 1}, num_sweeps=10)
    equal = np.where(np.eye(2, dtype=bool), -np.inf, 0.0)
    path = MarkovRandomField.from_tables(np.zeros((3, 2)), [(0, 1), (1, 2)], [equal] * 2)
    with pytest.raises(UnfitMethodError, match="every configuration"):
        sample(path, num_sweeps=10)
    first, second = np.array([[0.0, 0.0], [-np.inf, 0.0]]), np.array([[0.0, 0.0], [0.0, -np.inf]])
    path = MarkovRandomField.from_tables(np.zeros((3, 2)), [(0, 1), (1, 2)], [first, second])
    with pytest.raises(UnfitMethodError, match="no allowed state"):
        sample(path, num_sweeps=10)


def naive_pairs(model: MarkovRandomField, states: np.ndarray) -> np.ndarray:
    """For every edge, half of either end's conditional probabilities beside the state of the other end."""
    out = []
    for i, j in model.edges:
        table = np.zeros((model.num_states[i], model.num_states[j]))
        for x in states:
            table[:, x[j]] += np.array(oracle.conditional(model, i, tuple(x))) / 2
            table[x[i], :] += np.array(oracle.conditional(model, j, tuple(x))) / 2
        out.append(table.ravel() / len(states))
    return np.concatenate(out)


@given(model=strategies.models(max_variables=5, max_states=4), seed=st.integers(0, 99))
def test_averaged_pairs_match_the_naive_ones(model, seed):
    if not model.num_edges:
        return
    try:
        result = sample(model, num_chains=3, num_sweeps=4, num_draws=4, burn_in=0, seed=seed, edge_marginals=True)
    except (ModelError, UnfitMethodError):
        return  # nothing to sample
    draws = result.draws.reshape(-1, model.num_variables)
    np.testing.assert_allclose(result.edge_marginals, naive_pairs(model, draws), atol=1e-12)


@pytest.mark.parametrize("estimator", ["rao-blackwell", "counts"])
def test_edge_marginals_of_spaced_configurations(estimator):
    model = lopsided_soft()
    # Configurations are counted every 20 sweeps. The bias bound of 20 sweeps is below 1e-4, so what is counted is
    # independent but for that: 64,000 configurations, and 6 standard errors are at most 6 sqrt(1/4 / 64000) = 0.012.
    assert certify(model, accuracy=1e-4).num_sweeps <= 20
    result = sample(model, num_sweeps=20_000, seed=3, edge_marginals=True, estimator=estimator)
    named = "conditional averages" if estimator == "rao-blackwell" else "counts of pairs"
    assert result.stats["edge_marginals"] == named
    assert "edge_marginals" not in sample(model, num_sweeps=10, seed=3).stats
    exact = enumerate_model(model).edge_marginals
    error = np.abs(result.edge_marginals - exact)
    assert (error <= SIGMAS * np.sqrt(exact * (1 - exact) / 64_000) + 1e-4).all()
    for e in range(model.num_edges):
        part = result.edge_marginals[model.pairwise_offsets[e] : model.pairwise_offsets[e + 1]]
        assert part.sum() == pytest.approx(1.0, abs=1e-12)
    with pytest.raises(ValueError, match="edge marginals"):
        sample(model, num_sweeps=10, seed=3).edge_marginal(0, 1)


def lopsided_soft() -> MarkovRandomField:
    rng = np.random.default_rng(5)
    counts = [2, 3, 2, 4]
    pairs = [(0, 1), (1, 2), (2, 3)]
    tables = [0.5 * rng.normal(size=(counts[i], counts[j])) for i, j in pairs]
    return MarkovRandomField.from_tables([rng.normal(size=k) for k in counts], pairs, tables)


# -- draws and traces -------------------------------------------------------------------------------------------------


def test_draws_are_evenly_spaced_states_of_the_chains():
    start = np.zeros((4, 9), dtype=int)
    result = sample(WEAK, num_chains=4, num_sweeps=11, burn_in=3, num_draws=5, start=start, seed=7)
    assert result.draws.shape == (4, 5, 9)
    engine = chains_of(WEAK, num_chains=4, seed=context_of(7).seed_of("chains"))
    engine.set_states(start)
    engine.sweep(3)
    for k in range(5):
        engine.sweep(2)
        np.testing.assert_array_equal(result.draws[:, k], engine.get_states())
    engine.sweep(1)
    np.testing.assert_array_equal(result.states, engine.get_states())
    assert sample(WEAK, num_chains=2, num_sweeps=10, seed=0).draws is None
    assert sample(WEAK, num_chains=2, num_sweeps=6, num_draws=6, seed=0).draws.shape == (2, 6, 9)


def test_draws_beyond_memory_are_refused(monkeypatch):
    monkeypatch.setattr(_memory, "available_memory", lambda: 2**25)
    with pytest.raises(ResourceError, match=r"^num_draws 1000 .*64 chains .*16 MiB") as caught:
        sample(WEAK, num_sweeps=1000, num_draws=1000)
    assert caught.value.required_bytes >= 1000 * 64 * 9
    assert caught.value.limit_bytes == 2**24
    sample(WEAK, num_sweeps=10, num_chains=2)


def test_traces_are_the_running_marginals():
    options = {"num_chains": 5, "burn_in": 4, "seed": 3}
    full = sample(lopsided(), num_sweeps=300, history_at=[300, 50, 7, 50], **options)
    assert [entry["sweep"] for entry in full.history] == [7, 50, 300]
    for entry in full.history:
        shorter = sample(lopsided(), num_sweeps=entry["sweep"], **options)
        np.testing.assert_allclose(entry["marginals"], shorter.node_marginals, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(full.history[-1]["marginals"], full.node_marginals)


# -- what comes back --------------------------------------------------------------------------------------------------


def test_results_as_plain_data():
    result = sample(lopsided(), num_chains=4, num_sweeps=100, seed=1, evidence={"a": "s0"}, history_at=[10])
    data = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert data["method"] == "gibbs"
    assert [len(m) for m in data["marginals"]] == [len(m) for m in data["std_error"]] == [2, 3, 4, 2, 2]
    assert data["provenance"]["seed"] == 1
    assert data["provenance"]["options"]["num_sweeps"] == 100
    assert data["provenance"]["options"]["schedule"] == "systematic"
    assert data["stats"]["num_updates"] == 110 * 4 * 4
    assert data["log_z"] is None


def test_conditionals_are_those_of_the_oracle():
    # One sweep of one chain from a given start: the mean is the conditional at each update, in the order of the sweep.
    model = lopsided().drop_forbidden_states()
    start = [[1, 0, 1, 0, 1]]
    result = sample(model, num_chains=1, num_sweeps=1, burn_in=0, start=start, seed=9)
    x = list(start[0])
    for i in model.structure.visit_order[0].tolist():
        np.testing.assert_allclose(result.marginal(i), oracle.conditional(model, i, x), rtol=0, atol=CUT)
        x[i] = int(result.states[0, i])


def test_intervals_of_the_original_refuse_evidence():
    model = fastmix.MarkovRandomField.ising([(0, 1), (1, 2)], coupling=0.2)
    result = fastmix.sample(model, num_chains=8, num_sweeps=40, evidence={0: 1}, seed=0)
    with pytest.raises(UnfitMethodError, match="condition both models"):
        result.intervals(original=model)
    assert result.intervals().upper.max() == 1.0


def test_certain_states_have_probability_one_exactly():
    """24-bit sums must not round a certainty down."""
    model = fastmix.MarkovRandomField.ising([(0, 1)], coupling=0.1, field=[-50.0, 0.2])
    result = fastmix.sample(model, num_chains=4, num_sweeps=400, seed=0)
    assert result.marginal(0).tolist() == [1.0, 0.0]


def test_to_arviz_needs_draws():
    model = fastmix.MarkovRandomField.ising([(0, 1)], coupling=0.2)
    with pytest.raises(ValueError, match="num_draws"):
        fastmix.sample(model, num_chains=2, num_sweeps=20, seed=0).to_arviz()
