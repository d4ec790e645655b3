"""Mean field against plain coordinate ascent and the definition of its bound."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
import strategies
from fastmix import Interrupted, MarkovRandomField, ModelError, Status
from fastmix.exact import enumerate_model, infer_exact
from fastmix.graphs import cycle_edges, grid_edges, path_edges
from fastmix.instances import ising_grid, potts_grid, random_tables
from fastmix.io import read_evidence, read_model, read_pr
from fastmix.marginals import InferenceResult
from fastmix.testing import assert_conforms, conformance_models
from fastmix.variational import ascent
from fastmix.variational.mean_field import MeanFieldResult, mean_field
from oracle import variational as naive

TINY = 1e-300  # a tolerance that only probabilities that stand still meet
DIFFERENT = np.where(np.eye(2, dtype=bool), -np.inf, 0.0)


def flat(vectors):
    return np.concatenate([*vectors, np.zeros(0)])


def close_to_log_z(bound, log_z):
    return bound <= log_z + 1e-9 * max(1.0, abs(log_z))


def bounds_of_starts(result):
    """The bound after every sweep of every start, a list for each."""
    found = [[] for _ in result.start_bounds]
    for entry in result.history:
        found[entry["start"]].append(entry["log_z_lower"])
    return found


# -- every sweep ----------------------------------------------------------------------------------------------------


@given(strategies.models(allow_forbidden=False), st.integers(1, 6))
def test_sweeps_equal_plain_coordinate_ascent(model, num_sweeps):
    """From the uniform start; single-state variables are folded away, which changes nothing."""
    result = mean_field(model, num_starts=1, max_iter=num_sweeps, tol=TINY, edge_marginals=True)
    made = result.stats["num_iterations"]
    q = naive.sweeps(model, naive.uniform(model), made)
    # At couplings of a thousand, where two sides balance, rounding is enlarged as much in every sweep.
    scale = max(1.0, np.abs(model.log_pairwise).max(initial=0.0))
    np.testing.assert_allclose(result.node_marginals, flat(q), rtol=0, atol=1e-11 * scale)
    own = [vector.tolist() for vector in result.marginals]
    assert result.log_z_lower == pytest.approx(naive.bound(model, own), rel=1e-11, abs=1e-9)
    for e, (i, j) in enumerate(model.edges.tolist()):
        table = result.edge_marginals[model.pairwise_offsets[e] : model.pairwise_offsets[e + 1]]
        np.testing.assert_allclose(table, np.outer(own[i], own[j]).ravel(), rtol=0, atol=1e-15)


@given(strategies.ising_models(max_coupling=4.0), st.integers(1, 40))
def test_spin_sweeps_equal_plain_coordinate_ascent(model, num_sweeps):
    result = mean_field(model, num_starts=1, max_iter=num_sweeps, tol=TINY)
    q = naive.sweeps(model, naive.uniform(model), result.stats["num_iterations"])
    np.testing.assert_allclose(result.node_marginals, flat(q), rtol=0, atol=1e-9)


@given(strategies.factor_models(allow_forbidden=False, scales=(0.3, 1.0, 5.0)), st.integers(1, 6))
def test_sweeps_over_factors_equal_plain_coordinate_ascent(model, num_sweeps):
    result = mean_field(model, num_starts=1, max_iter=num_sweeps, tol=TINY, edge_marginals=True)
    q = naive.sweeps(model, naive.uniform(model), result.stats["num_iterations"])
    np.testing.assert_allclose(result.node_marginals, flat(q), rtol=0, atol=1e-9)
    own = [vector.tolist() for vector in result.marginals]
    assert result.log_z_lower == pytest.approx(naive.bound(model, own), rel=1e-11, abs=1e-9)


@given(strategies.factor_models(), st.data())
def test_the_bound_of_factors_is_below_log_z_and_never_falls(model, data):
    evidence = data.draw(strategies.evidences(model))
    result = mean_field(model, evidence=evidence, num_starts=3, max_iter=50, seed=1)
    log_z = oracle.log_evidence(model, evidence)
    assert math.isfinite(result.log_z_lower)
    assert np.isfinite(result.node_marginals).all()
    scale = max(1.0, abs(log_z), np.abs(np.nan_to_num(model.parameters, neginf=0.0)).max(initial=0.0))
    for history in bounds_of_starts(result):
        assert all(close_to_log_z(bound, log_z) for bound in history)
        assert (np.diff(history) >= -1e-11 * scale).all()
    reached = naive.bound(model, [vector.tolist() for vector in result.marginals])
    assert reached == pytest.approx(result.log_z_lower, rel=1e-9, abs=1e-9 * scale)


# -- the bound ------------------------------------------------------------------------------------------------------


@given(strategies.models(), st.data())
def test_bound_is_below_log_z_and_never_falls(model, data):
    evidence = data.draw(strategies.evidences(model))
    result = mean_field(model, evidence=evidence, num_starts=4, max_iter=100, seed=1)
    log_z = oracle.log_evidence(model, evidence)
    assert result.log_z is None
    assert math.isfinite(result.log_z_lower)
    assert np.isfinite(result.node_marginals).all()
    assert (result.node_marginals[model.log_unary == -np.inf] == 0.0).all()
    rounding = 1e-11 * max(1.0, abs(log_z), np.abs(np.nan_to_num(model.log_pairwise, neginf=0.0)).max(initial=0.0))
    for history, reached in zip(bounds_of_starts(result), result.start_bounds, strict=True):
        assert all(close_to_log_z(bound, log_z) for bound in history)
        assert (np.diff(history) >= -rounding).all()
        assert history[-1] == reached
    best = max(result.start_bounds)  # less what rounding can have made of it
    assert result.log_z_lower < best
    assert result.log_z_lower == pytest.approx(best, rel=1e-10, abs=1e-8)
    # The bound is that of the marginals handed out.
    q = [vector.tolist() for vector in result.marginals]
    assert result.log_z_lower == pytest.approx(naive.bound(model, q), rel=1e-10, abs=1e-8)
    for i, state in evidence.items():
        assert result.marginal(i)[state] == 1.0


def test_the_check_of_the_bound_can_fail():
    model = ising_grid(2, 2, coupling_max=1.0, seed=0)
    result = mean_field(model, seed=0)
    log_z = oracle.log_z(model)
    assert close_to_log_z(result.log_z_lower, log_z)
    assert not close_to_log_z(result.log_z_lower + (log_z - result.log_z_lower) * 1.01, log_z)


@given(strategies.models(scales=(0.3, 1.0, 5.0)))
def test_stationary(model):
    """Where it has converged, no variable alone can do better."""
    result = mean_field(model, num_starts=2, max_iter=3000, tol=1e-12, seed=3)
    assert result.status == Status.OK
    q = [vector.tolist() for vector in result.marginals]
    for i in range(model.num_variables):
        np.testing.assert_allclose(naive.coordinate(model, q, i), q[i], rtol=0, atol=1e-9)


def test_exact_without_edges():
    model = MarkovRandomField.from_tables([[0.3, 1.0], [0.0, -1.0, 2.0]], [], [], log_constant=4.0)
    result = mean_field(model, seed=0)
    exact = enumerate_model(model)
    np.testing.assert_allclose(result.node_marginals, exact.node_marginals, atol=1e-15)
    assert result.log_z_lower == pytest.approx(exact.log_z, rel=1e-14)


def test_starts_break_symmetry():
    """Without fields the uniform distribution stands still, and is the worst there is."""
    model = MarkovRandomField.ising(grid_edges(3, 3), 1.0)
    result = mean_field(model, seed=0)
    assert result.start_bounds[0] == pytest.approx(9 * math.log(2))
    assert result.log_z_lower > result.start_bounds[0] + 3
    assert result.stats["best_start"] > 0
    assert abs(result.marginal(4)[0] - 0.5) > 0.4
    assert mean_field(model, num_starts=1).marginal(4).tolist() == [0.5, 0.5]


# -- randomness -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [ising_grid, potts_grid])
def test_seeds(make):
    model = make(5, 5, coupling_max=3.0, seed=0)
    one, two = mean_field(model, seed=5), mean_field(model, seed=5)
    assert one.node_marginals.tobytes() == two.node_marginals.tobytes()
    assert one.start_bounds.tobytes() == two.start_bounds.tobytes()
    assert mean_field(model, seed=6).start_bounds.tolist() != one.start_bounds.tolist()
    fewer = mean_field(model, seed=5, num_starts=4)
    assert fewer.start_bounds.tobytes() == one.start_bounds[:4].tobytes()
    drawn = mean_field(model)
    again = mean_field(model, seed=drawn.provenance["seed"])
    assert drawn.start_bounds.tobytes() == again.start_bounds.tobytes()


# -- forbidden pairs, strong couplings ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", strategies.seeds(40, quick=10))
def test_forbidden_pairs(seed):
    """A product without forbidden pairs is found, and its support holds only allowed configurations."""
    rng = np.random.default_rng(seed)
    model = oracle.random_model(
        rng, num_variables=6, max_states=4, scale=float(rng.choice([0.3, 5.0])), forbidden_probability=0.5
    )
    result = mean_field(model, num_starts=3, seed=0)
    assert result.status == Status.OK
    assert close_to_log_z(result.log_z_lower, oracle.log_z(model))
    for x, weight in zip(oracle.all_configurations(model), oracle.log_weights(model), strict=True):
        if weight == -math.inf:
            assert math.prod(result.marginal(i)[a] for i, a in enumerate(x)) == 0.0


def test_coloring_a_grid():
    equal = np.where(np.eye(3, dtype=bool), -np.inf, 0.0)
    edges = grid_edges(12, 12)
    model = MarkovRandomField.from_tables(np.zeros((144, 3)), edges, [equal] * len(edges))
    result = mean_field(model, num_starts=3, seed=0)
    assert result.status == Status.OK
    assert 0.0 <= result.log_z_lower <= 144 * math.log(3)
    assert result.stats["note"] == ""


def test_giving_up_is_a_status(monkeypatch):
    """When no allowed configuration is found the bound is void, and said to be."""
    monkeypatch.setattr(ascent, "find_allowed", lambda *_, **__: None)
    equal = np.where(np.eye(3, dtype=bool), -np.inf, 0.0)
    model = MarkovRandomField.from_tables(np.zeros((4, 3)), cycle_edges(4), [equal] * 4)
    result = mean_field(model, seed=0, edge_marginals=True)
    assert result.status == Status.NOT_CONVERGED
    assert result.log_z_lower == -math.inf
    assert "no start led to an allowed configuration" in result.stats["note"]
    assert np.isfinite(result.node_marginals).all()
    assert json.loads(json.dumps(result.to_dict()))["log_z_lower"] is None


def test_contradictions_are_found():
    odd = MarkovRandomField.from_tables(np.zeros((3, 2)), cycle_edges(3), [DIFFERENT] * 3)
    assert mean_field(odd).log_z_kind == "zero"
    chain = MarkovRandomField.from_tables(np.zeros((3, 2)), path_edges(3), [DIFFERENT] * 2)
    with pytest.raises(ModelError, match="evidence"):
        mean_field(chain, evidence={0: 0, 2: 1})


@pytest.mark.parametrize("coupling", [1e3, -1e3])
def test_couplings_of_a_thousand(coupling):
    rng = np.random.default_rng(1)
    model = MarkovRandomField.ising(grid_edges(4, 4), coupling * rng.choice([-1, 1], 24), rng.uniform(-1e3, 1e3, 16))
    result = mean_field(model, seed=0, edge_marginals=True)
    assert result.status == Status.OK
    assert np.isfinite(result.edge_marginals).all()
    assert close_to_log_z(result.log_z_lower, infer_exact(model).log_z)


def test_conformance():
    """Distributions that agree with each other on every model, exact where there is no edge left."""
    assert_conforms(lambda model: mean_field(model, seed=0, edge_marginals=True), atol=1.0, factors=True)
    for name, model in conformance_models(factors=True):
        result = mean_field(model, seed=0)
        exact = enumerate_model(model)
        assert close_to_log_z(result.log_z_lower, exact.log_z), name
        if not model.num_edges:
            np.testing.assert_allclose(result.node_marginals, exact.node_marginals, atol=1e-12, err_msg=name)


# -- limits and interface -------------------------------------------------------------------------------------------


def test_limits_are_statuses():
    model = ising_grid(16, 16, coupling_max=1.0, attractive=True, seed=0)
    result = mean_field(model, max_iter=2, num_starts=3, seed=0)
    assert (result.status, result.stats["num_iterations"]) == (Status.NOT_CONVERGED, 6)
    assert [len(history) for history in bounds_of_starts(result)] == [2, 2, 2]
    large = ising_grid(100, 100, coupling_max=1.0, attractive=True, seed=0)
    result = mean_field(large, num_starts=1000, time_limit=0.05, seed=0)
    assert result.stats["stopped_by"] == "time_limit"
    assert 1 <= result.stats["num_starts"] < 1000
    assert math.isfinite(result.log_z_lower)


def test_time_limit_under_the_penalty_gives_no_false_bound():
    """The bound of the penalized model may be above log Z: it must not be handed out when time runs out there."""
    equal = np.where(np.eye(3, dtype=bool), -np.inf, 0.0)
    edges = grid_edges(12, 12)
    model = MarkovRandomField.from_tables(np.zeros((144, 3)), edges, [equal] * len(edges))
    result = mean_field(model, time_limit=1e-9, seed=0)
    assert (result.status, result.stats["stopped_by"]) == (Status.NOT_CONVERGED, "time_limit")
    assert result.log_z_lower == -math.inf
    assert np.isfinite(result.node_marginals).all()


def test_interrupt_returns_what_there_is():
    def press_at(num_starts):
        def press(progress):
            if progress.done == num_starts:
                raise KeyboardInterrupt

        return press

    with pytest.raises(Interrupted) as stopped:
        mean_field(ising_grid(3, 3, coupling_max=1.0, seed=0), seed=0, progress=press_at(2))
    result = stopped.value.result
    assert (result.status, result.stats["num_starts"]) == (Status.INTERRUPTED, 2)
    # Before the first sweep there is nothing but the uniform start.
    with pytest.raises(KeyboardInterrupt) as stopped:
        mean_field(ising_grid(3, 3, coupling_max=1.0, seed=0), seed=0, progress=press_at(0))
    result = stopped.value.result
    assert result.status == Status.INTERRUPTED
    assert result.marginal(0).tolist() == [0.5, 0.5]


def test_result():
    model = strategies.with_names(ising_grid(2, 2, coupling_max=1.0, seed=0))
    result = mean_field(model, evidence={"v1": "a"}, seed=9)
    assert isinstance(result, MeanFieldResult)
    assert isinstance(result, InferenceResult)
    assert (result.method, result.log_z) == ("mean-field", None)
    assert result.edge_marginals is None
    assert result.marginal("v1").tolist() == [1.0, 0.0]
    data = json.loads(json.dumps(result.to_dict()))
    assert data["log_z"] is None
    assert data["log_z_lower"] == result.log_z_lower
    assert data["provenance"]["seed"] == 9
    assert len(data["start_bounds"]) == 10
    assert [entry["start"] for entry in result.history if entry["iteration"] == 1] == list(range(10))
    assert f"log_z_lower={result.log_z_lower:.6g}" in repr(result)


@pytest.mark.parametrize(
    "options",
    [
        {"num_starts": 0},
        {"max_iter": 1.5},
        {"tol": -1.0},
        {"seed": -1},
        {"time_limit": "soon"},
        {"evidence": [1]},
    ],
)
def test_bad_arguments(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        mean_field(ising_grid(2, 2, coupling_max=1.0, seed=0), **options)


def plain_results() -> list:
    equal = np.where(np.eye(3, dtype=bool), -np.inf, 0.0)
    models = [
        ising_grid(2, 3, coupling_max=2.0, seed=0),
        random_tables([(0, 1), (1, 2), (0, 2)], [2, 3, 2], scale=1.0, seed=0),
        MarkovRandomField.from_tables(np.zeros((4, 3)), cycle_edges(4), [equal] * 4),
    ]
    results = []
    for model in models:
        answer = mean_field(model, num_starts=3, seed=2)
        assert answer.status == Status.OK
        results.append([answer.node_marginals.tolist(), answer.start_bounds.tolist()])
    return results


def test_shared_instances(competition):
    for path in sorted(competition.glob("*.uai")):
        model = read_model(path)
        evidence = read_evidence(f"{path}.evid", model.num_states)
        result = mean_field(model, evidence=evidence, num_starts=2, max_iter=100, seed=0)
        assert np.isfinite(result.node_marginals).all(), path.stem
        log_z = read_pr(f"{path}.PR") * math.log(10)
        assert result.log_z_lower <= log_z + 1e-5 * abs(log_z), path.stem
