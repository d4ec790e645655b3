from __future__ import annotations

import hashlib
import io
import itertools
import json
import math
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastmix
import oracle
import oracle_theory
import strategies
from fastmix import (
    FormatError,
    MarkovRandomField,
    ModelError,
    ResourceError,
    UnfitMethodError,
    _memory,
    certify,
)
from fastmix.chains.cpu import CpuChains
from fastmix.exact.enumeration import enumerate_model
from fastmix.instances import ising_grid
from fastmix.methods import sampler, sampling_run
from fastmix.methods.sample_result import SampleResult
from fastmix.methods.sampler import sample
from fastmix.results import Status
from fastmix.testing import assert_distributions, conformance_models
from fastmix.theory.bias import bias_after

# Errors are compared with 6 standard errors: a false alarm of 2e-9 an entry, 1e-6 for the 500 entries of this file.
# Sums of conditional probabilities are cut to 24 bits, which moves a probability by at most 2^-23.
SIGMAS, CUT = 6.0, 2.0**-23

WEAK = ising_grid(3, 3, coupling_max=0.5, seed=0)
EDGES = [(0, 1), (1, 2), (2, 3), (0, 3), (1, 3)]


def chains_of(model: MarkovRandomField, *, num_chains: int, seed: int) -> CpuChains:
    chains = CpuChains(model.structure, num_chains=num_chains, seed=seed, forbidden=model.has_forbidden)
    chains.load(model.parameters)
    return chains


def lopsided(seed: int = 3) -> MarkovRandomField:
    """Names, mixed state counts, a state forbidden by its unary, a forbidden pair."""
    rng = np.random.default_rng(seed)
    counts = [2, 3, 4, 2, 2]
    unary = [rng.normal(size=k) for k in counts]
    unary[2][1] = -np.inf
    tables = [rng.normal(size=(counts[i], counts[j])) for i, j in EDGES]
    tables[0][1, 2] = -np.inf
    return MarkovRandomField.from_tables(
        unary, EDGES, tables, variable_names=list("abcde"), state_names=[[f"s{k}" for k in range(n)] for n in counts]
    )


def given_exact(model: MarkovRandomField, evidence: dict[int | str, int | str]) -> np.ndarray:
    """Flat marginals given evidence, from all configurations that agree with it."""
    observed = {model.variable_index(i): model.state_index(i, state) for i, state in evidence.items()}
    joint = oracle.joint(model)
    for i, state in observed.items():
        joint = joint * (np.arange(model.num_states[i]) == state).reshape([-1] + [1] * (joint.ndim - i - 1))
    axes = range(joint.ndim)
    marginals = [joint.sum(axis=tuple(a for a in axes if a != i)) for i in axes]
    return np.concatenate(marginals) / joint.sum()


def assert_close_to_exact(result: SampleResult, exact: np.ndarray) -> None:
    error = np.abs(result.node_marginals - exact)
    assert (error <= SIGMAS * result.std_error + CUT).all(), f"off by {(error / (result.std_error + CUT)).max():.1f}"


def assert_same(a: SampleResult, b: SampleResult) -> None:
    """Bit by bit the same answer."""
    for name in ("node_marginals", "std_error", "states", "ess", "r_hat"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)
    for name in ("edge_marginals", "draws"):
        x, y = getattr(a, name), getattr(b, name)
        assert (x is None) == (y is None)
        if x is not None:
            np.testing.assert_array_equal(x, y, err_msg=name)
    assert [t for t, _ in a.history] == [t for t, _ in b.history]
    for (_, x), (_, y) in zip(a.history, b.history, strict=True):
        np.testing.assert_array_equal(x, y)
    assert a.status == b.status
    assert a.stats["num_sweeps"] == b.stats["num_sweeps"]


# -- marginals --------------------------------------------------------------------------------------------------------

MODELS = dict(conformance_models())
STUCK = {"graph colouring", "couplings of a thousand", "opposed fields of a thousand"}
HOW = {
    "systematic": {},
    "counts": {"estimator": "counts"},
    "random": {"schedule": "random"},
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", [name for name in MODELS if name not in STUCK])
def test_marginals_are_within_their_errors(name, how):
    model = MODELS[name]
    result = sample(model, num_sweeps=2000, seed=17, **HOW[how])
    assert_distributions(model, result.node_marginals, None)
    assert_close_to_exact(result, enumerate_model(model).node_marginals)
    assert result.status == Status.OK, result.stats["note"]
    assert result.std_error.max(initial=0.0) < 0.02
    assert (model.log_weight(result.states) > -np.inf).all()


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", sorted(STUCK))
def test_hard_models_give_no_nan(name, how):
    model = MODELS[name]
    result = sample(model, num_sweeps=300, seed=17, **HOW[how])
    assert_distributions(model, result.node_marginals, None)
    assert np.isfinite(result.std_error).all()
    assert not np.isnan(result.ess).any()
    assert not np.isnan(result.r_hat).any()
    assert result.status in (Status.OK, Status.NOT_MIXED)
    assert (model.log_weight(result.states) > -np.inf).all()


def test_no_variables():
    result = sample(MarkovRandomField.from_factors([], [((), 2.5)]), num_chains=3, num_sweeps=10, seed=0)
    assert result.status == Status.OK
    assert result.node_marginals.shape == (0,)
    assert result.states.shape == (3, 0)
    assert result.to_dict()["ess_min"] is None


def test_many_and_few_chains_and_large_degrees():
    # Few chains, and a variable with 30 neighbours, whose conditionals are not tabulated.
    star = MarkovRandomField.ising([(0, i) for i in range(1, 31)], 0.1, 0.2)
    exact = MarkovRandomField.ising([(0, 1)], 0.1, 0.2)
    leaf = sample(star, num_chains=10, num_sweeps=3000, seed=1)
    # By symmetry all leaves have the same marginal: log-odds of the centre are 2 (0.2 + 30 * atanh(tanh 0.1 tanh 0.2)).
    effective = math.atanh(math.tanh(0.1) * math.tanh(0.2))
    p = 1 / (1 + math.exp(-2 * (0.2 + 30 * effective)))
    assert abs(leaf.marginal(0)[1] - p) < SIGMAS * leaf.std_error[1] + CUT
    assert_close_to_exact(sample(exact, num_chains=1, num_sweeps=20_000, seed=2), enumerate_model(exact).node_marginals)
    assert sample(exact, num_chains=1000, num_sweeps=100, seed=2).status == Status.OK


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
    with pytest.raises(UnfitMethodError, match="cannot reach every configuration"):
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
            table[:, x[j]] += model.conditional(i, x) / 2
            table[x[i], :] += model.conditional(j, x) / 2
        out.append(table.ravel() / len(states))
    return np.concatenate(out)


@settings(max_examples=40, deadline=None)
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
    with pytest.raises(ValueError, match="not asked for edge marginals"):
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
    engine = chains_of(WEAK, num_chains=4, seed=7)
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
    with pytest.raises(ResourceError, match=r"num_draws 1000 of 64 chains needs .* over the limit of 16 MiB") as caught:
        sample(WEAK, num_sweeps=1000, num_draws=1000)
    assert caught.value.required_bytes >= 1000 * 64 * 9
    assert caught.value.limit_bytes == 2**24
    sample(WEAK, num_sweeps=10, num_chains=2)


def test_traces_are_the_running_marginals():
    options = {"num_chains": 5, "burn_in": 4, "seed": 3}
    full = sample(lopsided(), num_sweeps=300, history_at=[300, 50, 7, 50], **options)
    assert [t for t, _ in full.history] == [7, 50, 300]
    for t, marginals in full.history:
        shorter = sample(lopsided(), num_sweeps=t, **options)
        np.testing.assert_allclose(marginals, shorter.node_marginals, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(full.history[-1][1], full.node_marginals)


# -- starting and going on --------------------------------------------------------------------------------------------


def test_start_from_given_configurations():
    model, start = lopsided(), np.tile([0, 1, 3, 1, 0], (3, 1))
    result = sample(model, num_chains=3, num_sweeps=20, burn_in=0, start=start, seed=4)
    small = model.drop_forbidden_states()
    engine = chains_of(small, num_chains=3, seed=4)
    engine.set_states(np.tile([0, 1, 2, 1, 0], (3, 1)))  # state 3 of c is number 2 of those allowed
    engine.sweep(20, collect=True)
    states = engine.get_states()
    states[:, 2] = np.array([0, 2, 3])[states[:, 2]]
    np.testing.assert_array_equal(result.states, states)


def test_going_on_from_a_result(monkeypatch):
    first = sample(WEAK, num_chains=6, num_sweeps=500, seed=1)
    started = []
    original = CpuChains.set_states
    monkeypatch.setattr(CpuChains, "set_states", lambda self, states: (started.append(states), original(self, states)))
    second = sample(WEAK, num_sweeps=500, start=first, seed=1)
    np.testing.assert_array_equal(started[0], first.states)
    assert second.stats["burn_in"] == 0
    assert second.stats["num_chains"] == 6
    assert second.states.shape == (6, 9)
    # The same seed again, and still other numbers: otherwise the second run would soon repeat the first. Of the 54
    # states about half agree by chance; none differing has a chance below 0.9^54.
    assert (second.states != first.states).mean() > 0.1
    assert_same(second, sample(WEAK, num_sweeps=500, start=first, seed=1))
    third = sample(WEAK, num_sweeps=500, start=second, seed=2)
    np.testing.assert_array_equal(started[2], second.states)
    exact = enumerate_model(WEAK).node_marginals
    mean = np.mean([r.node_marginals for r in (first, second, third)], axis=0)
    errors = np.sqrt(sum(r.std_error**2 for r in (first, second, third))) / 3
    assert (np.abs(mean - exact) <= SIGMAS * errors + CUT).all()


def test_frozen_chains_stay_where_they_were():
    model = MarkovRandomField.ising([(0, 1), (1, 2)], 1e3, 0.0)
    start = np.array([[0, 0, 0], [1, 1, 1], [1, 1, 1]])
    first = sample(model, num_chains=3, num_sweeps=50, start=start, seed=1)
    second = sample(model, num_sweeps=50, start=first, seed=2)
    assert second.states.tolist() == start.tolist()
    assert second.status == Status.NOT_MIXED
    np.testing.assert_allclose(second.node_marginals, np.tile([1 / 3, 2 / 3], 3), atol=1e-6)


@pytest.mark.parametrize("num_threads", [2, 3])
def test_threads_do_not_matter(num_threads):
    options = {"num_chains": 5, "num_sweeps": 200, "seed": 6, "num_draws": 3, "edge_marginals": True}
    assert_same(sample(lopsided(), num_threads=1, **options), sample(lopsided(), num_threads=num_threads, **options))


def test_seeds_are_drawn_returned_and_repeatable():
    first = sample(WEAK, num_chains=4, num_sweeps=50)
    seed = first.provenance["seed"]
    assert isinstance(seed, int)
    assert_same(first, sample(WEAK, num_chains=4, num_sweeps=50, seed=seed))
    other = sample(WEAK, num_chains=4, num_sweeps=50)
    assert other.provenance["seed"] != seed
    assert (other.node_marginals != first.node_marginals).any()


# -- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_chains": 0}, "num_chains must be a whole number of at least 1, got 0"),
        ({"num_sweeps": -3}, "num_sweeps must be a whole number of at least 1, got -3"),
        ({"num_sweeps": 2.5}, "num_sweeps must be a whole number of at least 1, got 2.5"),
        ({"burn_in": -1}, "burn_in must be a whole number of at least 0, got -1"),
        ({"num_draws": -1}, "num_draws must be a whole number of at least 0, got -1"),
        ({"num_draws": 51}, "num_draws must be at most num_sweeps, 50, got 51"),
        ({"method": "metropolis"}, "method must be one of gibbs, swendsen-wang, perfect, got 'metropolis'"),
        ({"schedule": "backwards"}, "schedule must be one of systematic, random, random-burn-in, got 'backwards'"),
        ({"estimator": "median"}, "estimator must be rao-blackwell or counts, got 'median'"),
        ({"accuracy": 0.1}, "accuracy must come without num_chains, num_sweeps and burn_in"),
        ({"accuracy": 1.5, "num_sweeps": None}, "accuracy must be a number above 0 and below 1, got 1.5"),
        ({"accuracy": -0.1, "num_sweeps": None}, "accuracy must be a number above 0 and below 1, got -0.1"),
        (
            {"accuracy": 0.1, "num_sweeps": None, "method": "swendsen-wang"},
            "accuracy must come with method='gibbs', .* got 'swendsen-wang'",
        ),
        ({"start": np.zeros((3, 9), dtype=int)}, r"start must have shape \(64, 9\), got \(3, 9\)"),
        ({"start": "zeros"}, "start must be dispersed, random, configurations or a SampleResult, got 'zeros'"),
        ({"num_chains": 1, "start": np.full((1, 9), 2)}, "states of variable 0 must be from 0 to 1, got 2"),
        ({"num_chains": 1, "start": np.full((1, 9), -1)}, "states of variable 0 must be from 0 to 1, got -1"),
        ({"num_chains": 1, "start": np.full((1, 9), 0.5)}, "states must hold whole numbers"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        sample(WEAK, **({"num_sweeps": 50} | options))


def test_forbidden_starts_are_refused():
    with pytest.raises(ValueError, match="start must not hold states that are forbidden"):
        sample(lopsided(), num_chains=1, num_sweeps=10, start=[[0, 0, 1, 0, 0]])


# -- accuracy and mixing ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", ["systematic", "random"])
def test_accuracy_is_met(schedule):
    model = ising_grid(3, 3, coupling_max=0.3, field_max=1.0, seed=2)
    exact = enumerate_model(model).node_marginals
    order = model.structure.visit_order[0] if schedule == "systematic" else None
    certificate = certify(model, accuracy=0.05, schedule=schedule, per_variable=True, order=order)
    for seed in range(10):
        result = sample(model, accuracy=0.1, schedule=schedule, seed=seed)
        assert result.status == Status.OK
        assert np.abs(result.node_marginals - exact).max() < 0.1
    # 2 exp(-2 C 0.05^2) <= 0.05 first for C = 738; half of the accuracy is left for the bias.
    assert result.stats["num_chains"] == 738
    assert result.stats["burn_in"] + result.stats["num_sweeps"] == certificate.num_sweeps
    assert result.stats["bias"] <= 0.05
    assert result.provenance["options"]["accuracy"] == 0.1


@pytest.mark.parametrize("schedule", ["systematic", "random"])
@pytest.mark.parametrize("estimator", ["rao-blackwell", "counts"])
def test_the_first_sweep_averaged_comes_after_the_burn_in(schedule, estimator):
    # Intervals and ``bias`` rest on it: the law of what is averaged is that after burn_in + 1 sweeps.
    model = MarkovRandomField.from_tables(
        [[0.0, 1.0], [0.5, 0.0, -0.5]], [(0, 1)], [[[1.5, 0.0, -1.0], [0.0, 0.0, 1.5]]]
    )
    chain = oracle_theory.Chain(model)
    order = None if schedule == "random" else model.structure.visit_order[0].tolist()
    kernel = chain.sweep(schedule, order)
    num_chains = 40_000
    at = {x: k for k, x in enumerate(chain.configurations)}
    for burn_in, first in ((0, (0, 0)), (1, (1, 2)), (2, (0, 2))):
        start = np.tile(first, (num_chains, 1))
        result = sample(
            model, num_chains=num_chains, num_sweeps=1, burn_in=burn_in, schedule=schedule, estimator=estimator,
            start=start, seed=burn_in,
        )  # fmt: skip
        before, after = (
            marginals_of(chain, np.linalg.matrix_power(kernel, t)[at[first]]) for t in (burn_in, burn_in + 1)
        )
        slack = SIGMAS * 0.5 / math.sqrt(num_chains)
        assert np.abs(result.node_marginals - after).max() < slack
        if burn_in == 0:
            assert np.abs(result.node_marginals - before).max() > 5 * slack  # the test would see a sweep more or less
        bias = bias_after(model, burn_in + 1, schedule=schedule, order=order, dependency="exact")
        assert (np.abs(after - marginals_of(chain, chain.target)) <= np.repeat(bias, [2, 3])).all()


def marginals_of(chain: oracle_theory.Chain, law: np.ndarray) -> np.ndarray:
    """Flat node marginals of a distribution over the configurations of a chain."""
    states, counts = np.array(chain.configurations), chain.model.num_states.tolist()
    return np.concatenate([np.bincount(states[:, i], law, minlength=k) for i, k in enumerate(counts)])


def test_accuracy_without_a_certificate_is_refused():
    with pytest.raises(UnfitMethodError, match="accuracy needs a certified model"):
        sample(ising_grid(4, 4, coupling_max=3.0, attractive=True, seed=0), accuracy=0.1)


def test_strong_attraction_is_not_mixed():
    grid = [(r * 6 + c, s) for r in range(6) for c in range(6) for s in neighbors(r, c)]
    result = sample(MarkovRandomField.ising(grid, 1.0), num_sweeps=500, seed=1)
    assert result.status == Status.NOT_MIXED
    assert "Not mixed" in result.stats["note"]
    assert result.r_hat.max() > 1.1
    # The chains sit on both sides: the errors say so, and cover the marginal of one half.
    assert (np.abs(result.node_marginals - 0.5) <= SIGMAS * result.std_error).all()


def neighbors(r: int, c: int) -> list[int]:
    return [(r + 1) * 6 + c] * (r < 5) + [r * 6 + c + 1] * (c < 5)


def test_intervals_hold():
    model = ising_grid(3, 3, coupling_max=0.3, field_max=1.0, seed=2)
    exact = enumerate_model(model).node_marginals
    result = sample(model, num_chains=500, num_sweeps=20, burn_in=30, seed=4)
    intervals = result.intervals(confidence=0.99, simultaneous=True)
    assert ((intervals.lower <= exact + 1e-12) & (exact <= intervals.upper + 1e-12)).all()
    assert (intervals.upper - intervals.lower < 0.2).all()
    evidence = {0: 1, 4: 0}
    given = sample(model, num_chains=500, num_sweeps=20, burn_in=30, seed=4, evidence=evidence)
    exact, intervals = given_exact(model, evidence), given.intervals(simultaneous=True)
    assert ((intervals.lower <= exact + 1e-12) & (exact <= intervals.upper + 1e-12)).all()
    strong = sample(MarkovRandomField.ising(EDGES, 2.0), num_chains=16, num_sweeps=50, seed=0)
    assert strong.intervals().vacuous.all()


@pytest.mark.parametrize("num_chains", [1, 2])
def test_one_or_two_chains_are_believed_with_a_certificate_only(num_chains):
    weak, strong = (ising_grid(3, 3, coupling_max=c, seed=0) for c in (0.2, 1.0))
    needed = certify(weak, accuracy=0.01, per_variable=True, order=weak.structure.visit_order[0]).num_sweeps
    assert not certify(strong, accuracy=0.01, criterion="dobrushin").certified
    options = {"num_chains": num_chains, "num_sweeps": 3000, "seed": 1}
    assert sample(weak, burn_in=needed, **options).status == Status.OK
    for model, burn_in in ((weak, needed - 1), (strong, 300)):
        result = sample(model, burn_in=burn_in, **options)
        assert result.status == Status.NOT_MIXED
        assert "there is no certificate" in result.stats["note"]
    assert sample(strong, **(options | {"num_chains": 3})).status == Status.OK


# -- stopping early ---------------------------------------------------------------------------------------------------


def stop_after(monkeypatch, calls: int, *, torn: bool = False) -> None:
    """Ctrl-C in one of the calls of ``sweep``; if torn, after half of its sweeps."""
    original, number = CpuChains.sweep, itertools.count(1)
    monkeypatch.setattr(sampler, "_SCOUTED", 0)  # whose calls would count

    def sweep(self, num_sweeps, *, collect):
        if next(number) == calls:
            if torn:
                original(self, (num_sweeps + 1) // 2, collect=collect)
            raise KeyboardInterrupt
        original(self, num_sweeps, collect=collect)

    monkeypatch.setattr(CpuChains, "sweep", sweep)


def test_an_interrupt_returns_what_was_collected(monkeypatch):
    options = {"num_chains": 4, "num_sweeps": 640, "burn_in": 10, "seed": 3}
    stop_after(monkeypatch, 34, torn=True)  # one call for the burn-in, then batches of 10 sweeps
    with pytest.raises(KeyboardInterrupt) as stopped:
        sample(WEAK, **options)
    result = stopped.value.result
    assert result.status == Status.INTERRUPTED
    assert result.stats["num_sweeps"] == 320
    monkeypatch.undo()
    trace = sample(WEAK, history_at=[320], **options).history
    np.testing.assert_allclose(result.node_marginals, trace[0][1], rtol=0, atol=1e-12)
    assert np.isfinite(result.std_error).all()
    assert "interrupted" in result.status.advice


def test_an_interrupt_before_the_first_batch_has_nothing_to_report(monkeypatch):
    stop_after(monkeypatch, 2)
    with pytest.raises(fastmix.Interrupted, match=r"stopped \(interrupt\) before the first batch") as stopped:
        sample(WEAK, num_chains=4, num_sweeps=640, seed=3)
    assert stopped.value.result is None


def test_time_limit(monkeypatch):
    monkeypatch.setattr(sampling_run.Chains, "updates_per_step", 4 * 9 * 50)
    result = sample(WEAK, num_chains=4, num_sweeps=10_000_000, burn_in=0, time_limit=0.2, seed=1)
    assert (result.status, result.stats["stopped_by"]) == (Status.OK, "time_limit")
    # A batch would be 156,250 sweeps: what has been collected of the first one counts.
    assert 0 < result.stats["num_sweeps"] < 10_000_000
    assert "R-hat" in result.stats["note"]
    assert_distributions(WEAK, result.node_marginals, None)
    assert result.stats["seconds"] < 30
    finished = sample(WEAK, num_chains=4, num_sweeps=50, burn_in=0, time_limit=1e-9, seed=1)
    assert finished.stats["num_sweeps"] < 50
    # A burn-in is cut short, and said to be as long as it was, so that something is left to report.
    cut = sample(WEAK, num_chains=4, num_sweeps=1000, burn_in=1000, time_limit=1e-9, seed=1)
    assert (cut.status, cut.stats["stopped_by"]) == (Status.NOT_MIXED, "time_limit")
    assert cut.stats["burn_in"] == 1  # the first step is small, whatever the speed turns out to be
    monkeypatch.setattr(sampling_run, "_FIRST_STEP", 1)
    assert sample(WEAK, num_chains=4, num_sweeps=1000, burn_in=1000, time_limit=1e-9, seed=1).stats["burn_in"] == 50
    assert cut.stats["num_sweeps"] > 0
    assert sample(WEAK, num_chains=4, num_sweeps=50, time_limit=1e9, seed=1).stats["stopped_by"] == "done"


def test_progress_is_told(monkeypatch):
    monkeypatch.setattr(sampling_run.Chains, "updates_per_step", 4 * 9 * 50)
    told = []
    sample(WEAK, num_chains=4, num_sweeps=640, burn_in=120, seed=1, progress=told.append)
    done = [report.done for report in told]
    assert done == sorted(set(done))
    assert done[:3] == [50, 100, 120]
    assert done[-1] == 760
    assert {(report.total, report.unit, report.what) for report in told} == {(760, "sweeps", "gibbs")}
    assert all(report.per_second >= 0 for report in told)


# -- checkpoints ------------------------------------------------------------------------------------------------------

RUN = {"num_chains": 8, "num_sweeps": 640, "burn_in": 60, "seed": 5, "edge_marginals": True, "num_draws": 7,
       "history_at": [100, 333]}  # fmt: skip

CHILD = """
import itertools, os, signal, sys
sys.path[:0] = {paths!r}
import test_sampler
from fastmix.methods import sampler
from fastmix.methods.sampler import sample

sampler.Chains.updates_per_step = {step}
number = itertools.count(1)

def progress(report):
    if next(number) == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)

sample(test_sampler.lopsided(), checkpoint=sys.argv[1], checkpoint_seconds=0.0, progress=progress, **test_sampler.RUN)
"""


def test_killed_runs_go_on_to_the_same_bits(tmp_path):
    expected = sample(lopsided(), **RUN)
    path = tmp_path / "run.npz"
    here = os.path.dirname(__file__)
    script = CHILD.format(paths=[here, os.path.dirname(here)], step=8 * 5 * 7)  # 7 sweeps between two looks
    digests = []
    for stop in (4, 150, 300):  # while burning in, and twice while collecting
        command = [sys.executable, "-W", "error", "-c", script, str(path), str(stop)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == -signal.SIGKILL, done.stderr
        digests.append(hashlib.sha256(path.read_bytes()).hexdigest())
        assert os.listdir(tmp_path) == ["run.npz"]
    assert len(set(digests)) == 3
    assert np.load(io.BytesIO(path.read_bytes().partition(b"\n")[2]))["done"][0] > 100
    told = []
    result = sample(lopsided(), checkpoint=str(path), progress=lambda report: told.append(report.done), **RUN)
    assert told[0] > 160  # it went on, it did not start anew
    assert_same(result, expected)


@pytest.mark.parametrize("kind", ["plain", "counts", "everything"])
@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("calls", [2, 30, 69])
def test_interrupted_runs_go_on_to_the_same_bits(calls, torn, kind, tmp_path, monkeypatch):
    options = {"num_chains": 3, "num_sweeps": 640, "burn_in": 60, "seed": 5}
    if kind == "counts":
        options["estimator"] = "counts"
    if kind == "everything":  # edges are counted after every sweep, so that the interrupt comes between two batches
        options |= {"edge_marginals": True, "num_draws": 40, "history_at": [3, 25]}
    expected = sample(lopsided(), **options)
    monkeypatch.setattr(sampling_run.Chains, "updates_per_step", 3 * 5 * 10)
    path = tmp_path / "run.npz"
    stop_after(monkeypatch, calls, torn=torn)
    with pytest.raises(KeyboardInterrupt) as stopped:
        sample(lopsided(), checkpoint=path, checkpoint_seconds=1e9, **options)
    assert (stopped.value.result is None) == (calls == 2)
    assert path.exists()
    monkeypatch.undo()
    assert_same(sample(lopsided(), checkpoint=str(path), **options), expected)


def test_a_finished_run_stays_until_its_file_is_removed(tmp_path):
    path = tmp_path / "run.npz"
    expected = sample(lopsided(), checkpoint=str(path), **RUN)  # too short for a save before the last
    assert path.exists()
    told = []
    assert_same(sample(lopsided(), checkpoint=str(path), progress=told.append, **RUN), expected)
    assert told == []  # nothing was left to do
    assert path.exists()


def test_runs_over_their_time_go_on_to_the_same_bits(tmp_path, monkeypatch):
    options = {"num_chains": 3, "num_sweeps": 640, "burn_in": 0, "seed": 5}
    expected = sample(lopsided(), **options)
    monkeypatch.setattr(sampling_run.Chains, "updates_per_step", 3 * 5 * 10)
    monkeypatch.setattr(sampling_run, "_FIRST_STEP", 1)  # a whole batch: what a checkpoint can keep
    path = str(tmp_path / "run.npz.gz")  # compressed, for its name
    for _ in range(3):
        limited = sample(lopsided(), checkpoint=path, time_limit=1e-9, **options)
        assert limited.stats["stopped_by"] == "time_limit"
    assert limited.stats["num_sweeps"] == 30
    assert_same(sample(lopsided(), checkpoint=path, **options), expected)


def test_checkpoints_of_other_runs_are_refused(tmp_path, monkeypatch):
    path = str(tmp_path / "run.npz")
    options = {"num_chains": 3, "num_sweeps": 64, "burn_in": 0, "seed": 5}
    sample(WEAK, checkpoint=path, checkpoint_seconds=0.0, time_limit=1e-9, **options)
    others = [
        {"num_sweeps": 65},
        {"num_chains": 4},
        {"burn_in": 1},
        {"schedule": "random"},
        {"estimator": "counts"},
        {"num_draws": 1},
        {"edge_marginals": True},
        {"history_at": [5]},
        {"start": np.zeros((3, 9), dtype=int)},
        {"evidence": {0: 1}},
    ]
    for other in others:
        with pytest.raises(FormatError, match="belongs to a run with another model or other options"):
            sample(WEAK, checkpoint=path, **(options | other))
    with pytest.raises(FormatError, match="another model"):
        sample(ising_grid(3, 3, coupling_max=0.5, seed=1), checkpoint=path, **options)
    assert sample(WEAK, checkpoint=path, **options).stats["num_sweeps"] == 64


def test_the_seed_of_a_checkpoint_is_taken(tmp_path):
    path = str(tmp_path / "run.npz")
    options = {"num_chains": 3, "num_sweeps": 64, "burn_in": 0}
    begun = sample(WEAK, checkpoint=path, checkpoint_seconds=0.0, time_limit=1e-9, **options)
    seed = begun.provenance["seed"]
    with pytest.raises(FormatError, match=rf"a run with seed {seed}, got seed {seed + 1}; leave the seed out to go on"):
        sample(WEAK, checkpoint=path, seed=seed + 1, **options)
    result = sample(WEAK, checkpoint=path, **options)
    assert result.provenance["seed"] == seed
    assert_same(result, sample(WEAK, seed=seed, **options))


def test_projected_runs_take_the_seed_of_their_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "run.npz"
    options = {"divergence": fastmix.Euclidean(), "num_chains": 3, "num_sweeps": 640, "burn_in": 0}
    monkeypatch.setattr(sampling_run.Chains, "updates_per_step", 3 * 9 * 10)
    stop_after(monkeypatch, 30, torn=False)
    with pytest.raises(KeyboardInterrupt) as stopped:
        fastmix.infer(WEAK, method="projected", checkpoint=str(path), **options)
    begun = stopped.value.result
    monkeypatch.undo()
    assert path.exists()
    result = fastmix.infer(WEAK, method="projected", checkpoint=str(path), **options)
    assert result.provenance["seed"] == begun.provenance["seed"]
    again = fastmix.infer(WEAK, method="projected", seed=begun.provenance["seed"], **options)
    assert_same(result.sampled, again.sampled)


@pytest.mark.parametrize("suffix", [".npz", ".npz.gz", ".npz.xz"])
def test_damaged_checkpoints_are_refused(tmp_path, suffix):
    path = tmp_path / f"run{suffix}"
    options = {"num_chains": 3, "num_sweeps": 64, "burn_in": 0, "seed": 5}
    sample(WEAK, checkpoint=str(path), checkpoint_seconds=0.0, time_limit=1e-9, **options)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    expected = sample(WEAK, **options)
    refused = 0
    for place in rng.integers(0, len(whole), size=100).tolist():
        path.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << rng.integers(8))]) + whole[place + 1 :])
        try:
            # Some bytes of gzip's header carry nothing.
            assert_same(sample(WEAK, checkpoint=str(path), **options), expected)
        except FormatError:
            refused += 1
    assert refused == 100 if suffix == ".npz" else refused > 90
    for length in [0, *rng.integers(1, len(whole), size=30).tolist(), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(FormatError, match=r"run\.npz.*(damaged|not a checkpoint of fastmix)"):
            sample(WEAK, checkpoint=str(path), **options)
    for other in (np.save, np.savez):
        with path.open("wb") as file:
            other(file, np.zeros(3))
        with pytest.raises(FormatError, match="not a checkpoint of fastmix"):
            sample(WEAK, checkpoint=str(path), **options)


def test_altered_checkpoints_are_refused(tmp_path):
    path = tmp_path / "run.npz"
    options = {"num_chains": 3, "num_sweeps": 64, "burn_in": 0, "seed": 5}
    sample(WEAK, checkpoint=str(path), checkpoint_seconds=0.0, time_limit=1e-9, **options)
    head, _, content = path.read_bytes().partition(b"\n")
    arrays = dict(np.load(io.BytesIO(content)))
    for name, array in arrays.items():  # whole archives, each with one array that is not what was saved
        altered = io.BytesIO()
        np.savez(altered, **(arrays | {name: np.append(array, array.dtype.type(1)) if array.ndim else np.array("7")}))
        path.write_bytes(head + b"\n" + altered.getvalue())
        with pytest.raises(FormatError, match="the checkpoint is damaged; remove the file to begin anew"):
            sample(WEAK, checkpoint=str(path), **options)
    bomb, lacking = io.BytesIO(), io.BytesIO()
    np.savez_compressed(bomb, **arrays, zeros=np.zeros(1 << 20))
    np.savez(lacking, **{name: array for name, array in arrays.items() if name != "states"})
    for crafted in (b"", b"PK", bomb.getvalue(), lacking.getvalue()):  # with a sum that is right
        path.write_bytes(b"fastmix checkpoint 2 %s\n" % hashlib.sha256(crafted).hexdigest().encode() + crafted)
        with pytest.raises(FormatError, match="the checkpoint is damaged"):
            sample(WEAK, checkpoint=str(path), **options)


def test_checkpoints_of_other_versions_are_named(tmp_path):
    path = tmp_path / "run.npz"
    path.write_bytes(b"fastmix checkpoint 3 0123\nwhatever it holds")
    with pytest.raises(FormatError, match=r"run\.npz: a checkpoint of version 3, this fastmix reads version 2; remove"):
        sample(WEAK, checkpoint=str(path))


# -- what comes back --------------------------------------------------------------------------------------------------


def test_results_as_plain_data():
    result = sample(lopsided(), num_chains=4, num_sweeps=100, seed=1, evidence={"a": "s0"}, history_at=[10])
    data = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert data["method"] == "gibbs"
    assert [len(m) for m in data["marginals"]] == [len(m) for m in data["std_error"]] == [2, 3, 4, 2, 2]
    assert data["provenance"]["seed"] == 1
    assert data["provenance"]["options"]["num_sweeps"] == 100
    assert data["provenance"]["options"]["schedule"] == "systematic"
    assert data["stats"]["updates"] == 110 * 4 * 4
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
    with pytest.raises(UnfitMethodError, match="condition both models first"):
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


# -- where it runs --------------------------------------------------------------------------------------------------


def test_backends_without_a_gpu():
    from fastmix.chains.cuda.device import cuda_available

    usable, reason = cuda_available()
    if usable:
        pytest.skip(f"there is a GPU: {reason}")
    with pytest.raises(UnfitMethodError, match="backend must be cpu here, got cuda"):
        sample(WEAK, backend="cuda", num_sweeps=10, seed=1)
    result = sample(WEAK, backend="auto", num_sweeps=100, seed=1)
    assert result.stats["backend"].startswith("cpu (")
    assert result.provenance["device"] == "cpu"
    same = sample(WEAK, num_sweeps=100, seed=1)
    assert np.array_equal(result.node_marginals, same.node_marginals)
    assert same.stats["backend"] == "cpu"
    with pytest.raises(ValueError, match="backend must be cpu, cuda or auto"):
        sample(WEAK, backend="tpu", num_sweeps=10)
    attractive = ising_grid(3, 3, coupling_max=0.5, attractive=True, seed=0)
    with pytest.raises(UnfitMethodError, match="backend must be cpu for Swendsen-Wang"):
        sample(attractive, method="swendsen-wang", backend="cuda", num_sweeps=10)


def test_groups_of_chains_count_as_chains(monkeypatch):
    """An engine that adds up its chains in groups gives the same means, and error bars of the same size."""
    plain = sample(WEAK, num_chains=64, num_sweeps=2000, seed=4)
    taken = CpuChains.take_sums

    def grouped(self):
        sums = taken(self)
        return sums.reshape(len(sums), -1, 8).sum(axis=2)

    monkeypatch.setattr(CpuChains, "group_size", 8)
    monkeypatch.setattr(CpuChains, "take_sums", grouped)
    result = sample(WEAK, num_chains=64, num_sweeps=2000, seed=4)
    np.testing.assert_allclose(result.node_marginals, plain.node_marginals, atol=1e-12)
    ratio = result.std_error[plain.std_error > 0] / plain.std_error[plain.std_error > 0]
    assert 0.7 < np.median(ratio) < 1.4
    assert result.chain_variances is None
    assert (result.intervals().upper >= result.node_marginals).all()
