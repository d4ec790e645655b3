"""Gibbs sampling, replica exchange and ancestral sampling of models with factors over three or more variables."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from sampler_checks import choose_method

import fastmix
import oracle
import strategies
from contexts import context_of
from fastmix import MarkovRandomField, UnfitMethodError, ancestral_sample, infer, sample, temper
from fastmix.io import read_model, read_network
from fastmix.model.network import BayesianNetwork
from fastmix.sampling.diagnostics import log_odds_swings
from fastmix.sampling.sample import Gibbs
from fastmix.sampling.tempering.ladder import make_path
from fastmix.sampling.tempering.temper import Tempered
from fastmix.testing import assert_conforms
from oracle.ladder import model_at

SIGMAS = 6.0


def grid_of_triangles(side: int, scale: float, seed: int = 0) -> MarkovRandomField:
    rng = np.random.default_rng(seed)
    at = np.arange(side * side).reshape(side, side)
    scopes = np.stack([at[:-1, :-1], at[:-1, 1:], at[1:, :-1]], axis=-1).reshape(-1, 3).tolist()
    return MarkovRandomField.from_factors([2] * side**2, [(s, scale * rng.normal(size=(2, 2, 2))) for s in scopes])


def rain() -> BayesianNetwork:
    tables = [[0.8, 0.2], [0.6, 0.4], [[[0.99, 0.01], [0.1, 0.9]], [[0.2, 0.8], [0.0, 1.0]]]]
    return BayesianNetwork(["rain", "sprinkler", "wet"], [["no", "yes"]] * 3, [[], [], [0, 1]], tables)


@pytest.mark.parametrize("method", ["gibbs", "tempered"])
@pytest.mark.parametrize("seed", strategies.seeds(3, quick=1))
def test_marginals_are_within_their_errors(method, seed):
    model = oracle.random_factors(np.random.default_rng(seed), 6, 3, 4, 0.8)
    result: Any = infer(model, method=method, seed=seed, num_sweeps=2000, edge_marginals=True, evidence={0: 0})
    exact = infer(model, method="exact", evidence={0: 0}, edge_marginals=True)
    assert result.status == "ok"
    difference = np.abs(result.node_marginals - exact.node_marginals)
    assert (difference <= SIGMAS * result.std_error + 1e-6).all()
    assert np.abs(result.edge_marginals - exact.edge_marginals).max() < 0.03
    if method == "tempered":
        assert abs(result.log_z - exact.log_z) < SIGMAS * result.log_z_std_error + 1e-6


def test_a_checkpoint_goes_on_to_the_same_bits(tmp_path):
    model = grid_of_triangles(4, 0.5)
    options = {"num_sweeps": 400, "num_chains": 4, "seed": 3}
    whole = sample(model, **options)
    path = str(tmp_path / "run.npz")
    sample(model, checkpoint=path, **options)
    again = sample(model, checkpoint=path, **options)
    np.testing.assert_array_equal(whole.node_marginals, again.node_marginals)


def test_starts_that_a_factor_forbids_are_refused():
    table = np.zeros((2, 2, 2))
    table[1, 1, 1] = -np.inf
    model = MarkovRandomField.from_factors([2, 2, 2], [((0, 1, 2), table)])
    with pytest.raises(ValueError, match=r"^start .*factor"):
        sample(model, start=np.ones((4, 3), dtype=int), num_chains=4, num_sweeps=10)
    result = sample(model, num_sweeps=2000, seed=0)
    np.testing.assert_allclose(result.marginals[0], [4 / 7, 3 / 7], atol=0.02)


def test_relations_that_no_update_crosses_are_refused():
    parity = np.where(np.indices((2, 2, 2)).sum(axis=0) % 2, -np.inf, 0.0)
    model = MarkovRandomField.from_factors([2] * 4, [((0, 1, 2), parity), ((1, 2, 3), np.zeros((2, 2, 2)))])
    for call in (sample, temper):
        with pytest.raises(UnfitMethodError, match="every configuration"):
            call(model, seed=0)
    # Evidence can make it fit.
    assert sample(model, evidence={0: 1, 1: 0}, num_sweeps=500, seed=0).status == "ok"


def test_other_samplers_refuse_in_a_sentence():
    with pytest.raises(UnfitMethodError, match="factors over"):
        infer(grid_of_triangles(3, 0.5), method="swendsen-wang")


def test_perfect_samples_of_factors(monkeypatch):
    """The draws are exact; which models are certified is for the theory to say."""
    rng = np.random.default_rng(2)
    scopes = [(0, 1, 2), (1, 2, 3), (0, 3, 4)]
    shapes = [2, 3, 2, 2, 3]
    tables = [(s, 0.4 * rng.normal(size=[shapes[v] for v in s])) for s in scopes]
    model = MarkovRandomField.from_factors(shapes, [*tables, ((4,), [0.0, 0.5, 1.0])])
    binary = grid_of_triangles(3, 0.4)
    monkeypatch.setattr("fastmix.sampling.perfect_sample.certified_reason", lambda model, clock: "said so")
    for each in (model, binary):
        exact = infer(each, method="exact")
        result = fastmix.perfect_sample(each, num_draws=4000, seed=3)
        assert np.abs(result.node_marginals - exact.node_marginals).max() < SIGMAS * result.std_error.max()
        # Another model does not pass.
        other = infer(each.replace(log_factors=-each.log_factors), method="exact")
        assert np.abs(result.node_marginals - other.node_marginals).max() > SIGMAS * result.std_error.max()


def test_perfect_samples_where_states_are_forbidden_are_refused():
    table = np.zeros((2, 2, 2))
    table[1, 1, 1] = -np.inf
    with pytest.raises(UnfitMethodError, match="forbid nothing"):
        fastmix.perfect_sample(MarkovRandomField.from_factors([2, 2, 2], [((0, 1, 2), table)]))


def test_swings_are_those_of_all_patterns():
    for seed in range(10):
        model = oracle.random_factors(np.random.default_rng(seed), 5, 3, 3)
        swings = log_odds_swings(model)
        for i, count in enumerate(model.num_states.tolist()):
            logs = [np.log(oracle.conditional(model, i, x)) for x in oracle.all_configurations(model)]
            for a, b in itertools.combinations(range(count), 2):
                odds = [v[a] - v[b] for v in logs]
                assert max(odds) - min(odds) <= swings[i] + 1e-9
    one = MarkovRandomField.from_factors([2] * 3, [((0, 1, 2), np.arange(8.0).reshape(2, 2, 2) ** 2)])
    assert log_odds_swings(one).tolist() == [24.0, 20.0, 12.0]


def test_paths_lead_to_the_model():
    model = oracle.random_factors(np.random.default_rng(4), 5, 3, 3)
    split = make_path(model).model
    for x in oracle.all_configurations(model)[::7]:
        assert abs(oracle.log_weight(split, x) - oracle.log_weight(model, x)) < 1e-9
    for scope, table in split.factors:
        for axis in range(len(scope)):
            assert np.abs(table.mean(axis=tuple(a for a in range(table.ndim) if a != axis))).max() < 1e-12
    path = make_path(model)
    assert abs(oracle.log_z(model_at(path, 0.0)) - path.log_z) < 1e-9
    assert abs(oracle.log_z(model_at(path, 1.0)) - oracle.log_z(model)) < 1e-9


def test_auto_takes_a_sampler_where_exact_inference_does_not_fit():
    weak, strong = grid_of_triangles(20, 0.1), grid_of_triangles(20, 2.0)
    assert choose_method(weak, memory_limit=1e3).chosen.name == "gibbs"
    assert choose_method(strong, memory_limit=1e3).chosen.name == "tempered"
    assert choose_method(strong, memory_limit=1e3, log_z=True).chosen.name == "tempered"
    parity = np.where(np.indices((2, 2, 2)).sum(axis=0) % 2, -np.inf, 0.0)
    scopes = [scope.tolist() for scope, _ in weak.factors]
    frozen = MarkovRandomField.from_factors([2] * 400, [(scope, parity) for scope in scopes[:150]])
    choice = choose_method(frozen, memory_limit=1e3)
    assert choice.chosen.name == "loopy-bp"
    assert "cannot reach every configuration" in choice.reason


# -- ancestral sampling -----------------------------------------------------------------------------------------------


def test_ancestral_draws_follow_the_network(tmp_path):
    network = rain()
    result = ancestral_sample(network, num_draws=20_000, seed=1)
    exact = infer(network.to_model(), method="exact")
    assert (result.method, str(result.status), len(result)) == ("ancestral", "ok", 20_000)
    assert np.abs(result.node_marginals - exact.node_marginals).max() < SIGMAS * result.std_error.max()
    np.testing.assert_array_equal(result.states, network.sample(20_000, seed=context_of(1).seed_of("draws")))
    assert result.to_dict()["variable_names"] == ["rain", "sprinkler", "wet"]
    fastmix.io.bif.write_bif(network, tmp_path / "rain.bif")
    assert read_network(tmp_path / "rain.bif") == network
    fastmix.io.write_model(network.to_model(), tmp_path / "rain.uai")
    with pytest.raises(fastmix.FormatError, match="expected a Bayesian network"):
        read_network(tmp_path / "rain.uai")
    with pytest.raises(TypeError, match=r"^network .*BayesianNetwork"):
        ancestral_sample(network.to_model())


@pytest.mark.parametrize("evidence", [None, {"SAO2": "LOW", "BP": "HIGH"}])
def test_alarm(evidence, shared_data):
    model = read_model(shared_data / "bif" / "alarm.bif.gz")
    exact = infer(model, method="exact", evidence=evidence)
    result = sample(model, evidence=evidence, num_sweeps=20_000, seed=1)
    difference = np.abs(result.node_marginals - exact.node_marginals)
    assert (difference <= SIGMAS * result.std_error + 1e-6).all()
    assert result.status != "ok" or difference.max() < 0.02


def test_samplers_conform_on_alarm(shared_data):
    alarm = [("alarm", read_model(shared_data / "bif" / "alarm.bif.gz"))]
    assert_conforms(Gibbs(num_sweeps=100_000), atol=0.03, models=alarm)
    assert_conforms(Tempered(num_sweeps=4000), atol=0.015, models=alarm)
    with pytest.raises(AssertionError, match=r"'alarm': node marginals "):
        assert_conforms(Gibbs(num_sweeps=50, burn_in=0), atol=1e-4, models=alarm)
