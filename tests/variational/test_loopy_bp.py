"""Loopy belief propagation against plain message passing, exact answers on trees, and its own fixed points."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
import strategies
from fastmix import Interrupted, MarkovRandomField, ModelError, Status
from fastmix.exact import enumerate_model, infer_exact
from fastmix.graphs import cycle_edges, grid_edges, path_edges, random_tree_edges
from fastmix.instances import ising_grid, potts_grid, random_tables
from fastmix.io import read_evidence, read_mar, read_model, read_pr
from fastmix.marginals import InferenceResult
from fastmix.model.forms import ising_form
from fastmix.testing import assert_conforms, assert_distributions, conformance_models
from fastmix.variational import loopy_bp as module
from fastmix.variational import residual_messages, table_messages
from fastmix.variational.loopy_bp import LoopyBPResult, loopy_bp
from fastmix.variational.odds_messages import OddsMessages
from oracle.variational import NaiveBP

TINY = 1e-300  # a tolerance that only messages that stand still meet
ORDERS = ["parallel", "residual"]
DIFFERENT = np.where(np.eye(2, dtype=bool), -np.inf, 0.0)


def flat(vectors):
    return np.concatenate([*(np.ravel(v) for v in vectors), np.zeros(0)])


def assert_equals_naive(result, naive, atol=1e-9):
    model = result.model
    nodes = flat([naive.node(i) for i in range(model.num_variables)])
    pairs = flat([naive.pair(i, j) for i, j in model.edges.tolist()])
    np.testing.assert_allclose(result.node_marginals, nodes, rtol=0, atol=atol)
    np.testing.assert_allclose(result.edge_marginals, pairs, rtol=0, atol=atol)
    if result.status == Status.OK:
        assert result.log_z == pytest.approx(naive.bethe_of_messages(), rel=1e-10, abs=1e-9)


def assert_log_z_means_something(result):
    """A number where the messages have converged, and none where they have not."""
    if result.status == Status.OK:
        assert result.log_z_kind in ("exact", "estimate")
        assert math.isfinite(result.log_z)
    else:
        assert (result.log_z, result.log_z_kind) == (None, "unknown")


# -- exact on trees -------------------------------------------------------------------------------------------------


@st.composite
def trees(draw, **options):
    n = draw(st.integers(1, 6))
    edges = random_tree_edges(n, seed=draw(st.integers(0, 10**6))).tolist()
    if n > 2 and draw(st.booleans()):
        edges.pop(draw(st.integers(0, n - 2)))  # a forest
    counts = draw(st.lists(st.integers(1, 4), min_size=n, max_size=n))
    scale = draw(st.sampled_from(strategies.SCALES))
    forbidden = draw(st.sampled_from([0.0, 0.3, 0.6]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return oracle.random_entries(rng, counts, [tuple(e) for e in edges], scale, forbidden)


@given(trees(), st.sampled_from(ORDERS), st.data())
def test_exact_on_trees(model, message_order, data):
    evidence = data.draw(strategies.evidences(model))
    result = loopy_bp(model, evidence=evidence, message_order=message_order, edge_marginals=True)
    exact = infer_exact(model, evidence=evidence)
    assert result.status == Status.OK
    assert result.stats["damping"] == 0.0
    np.testing.assert_allclose(result.node_marginals, exact.node_marginals, rtol=0, atol=1e-9)
    np.testing.assert_allclose(result.edge_marginals, exact.edge_marginals, rtol=0, atol=1e-9)
    assert result.log_z == pytest.approx(exact.log_z, rel=1e-11, abs=1e-9)


@pytest.mark.parametrize("message_order", ORDERS)
def test_long_chain_needs_as_many_iterations_as_it_is_long(message_order):
    """Couplings so strong that changes travel undiminished: lack of progress, which must not lead to damping."""
    n = 400
    model = MarkovRandomField.ising(path_edges(n), 6.0, [2.0, *np.zeros(n - 1)])
    result = loopy_bp(model, message_order=message_order, edge_marginals=True)
    assert (result.status, result.stats["damping"]) == (Status.OK, 0.0)
    exact = infer_exact(model)
    np.testing.assert_allclose(result.node_marginals, exact.node_marginals, rtol=0, atol=1e-9)
    assert result.log_z == pytest.approx(exact.log_z)
    if message_order == "parallel":
        assert n - 10 <= result.stats["num_iterations"] <= n + 1
        assert loopy_bp(model, max_iter=n // 2).status == Status.NOT_CONVERGED


# -- fixed points ---------------------------------------------------------------------------------------------------


@given(strategies.models(max_variables=5), st.sampled_from(ORDERS))
def test_fixed_points(model, message_order):
    """Where it says that it has converged: edges agree with nodes, plain updates and both Bethe formulas with it."""
    result = loopy_bp(model, message_order=message_order, tol=1e-12, edge_marginals=True)
    assert np.isfinite(result.node_marginals).all()
    assert_log_z_means_something(result)
    if result.status != Status.OK:
        assert result.largest_change > 1e-12
        return
    assert_distributions(model, result.node_marginals, result.edge_marginals)
    # The naive messages of this fixed point: b_ij(x_i, x_j) / b_i(x_i) summed gives back b_j for all of them.
    naive = NaiveBP(model)
    if (np.abs(model.log_pairwise[np.isfinite(model.log_pairwise)]) > 50).any():
        return  # at a thousand the naive iteration may settle elsewhere
    naive.parallel(400, 0.5)
    if max((naive.residual(*d) for d in naive.messages), default=0.0) < 1e-12:
        assert naive.bethe_of_beliefs() == pytest.approx(naive.bethe_of_messages(), rel=1e-9, abs=1e-8)
        if model.num_variables <= 3:  # one loop: the fixed point is unique
            assert_equals_naive(result, naive, atol=1e-8)


@pytest.mark.parametrize("seed", range(5))
def test_all_kernels_find_the_same_fixed_point(seed, monkeypatch):
    model = ising_grid(5, 5, coupling_max=0.9, seed=seed)
    results = {
        "odds": loopy_bp(model, tol=1e-13, edge_marginals=True),
        "residual": loopy_bp(model, message_order="residual", tol=1e-13, edge_marginals=True),
    }
    monkeypatch.setattr(module, "ising_form", lambda model: None)
    results["tables"] = loopy_bp(model, tol=1e-13, edge_marginals=True)
    monkeypatch.setattr(table_messages, "TAME_LOG_RANGE", -1.0)
    wild = loopy_bp(model, tol=1e-13, edge_marginals=True)
    monkeypatch.undo()
    damped = [loopy_bp(model, damping=damping, tol=1e-13, edge_marginals=True) for damping in (0.2, 0.5, 0.6)]
    assert {name: result.stats["kernel"] for name, result in results.items()} == {name: name for name in results}
    for result in [*results.values(), wild, *damped]:
        assert result.converged
        np.testing.assert_allclose(result.node_marginals, wild.node_marginals, rtol=0, atol=1e-11)
        np.testing.assert_allclose(result.edge_marginals, wild.edge_marginals, rtol=0, atol=1e-11)
        assert result.log_z == pytest.approx(wild.log_z, abs=1e-10)


def test_a_sabotaged_message_is_noticed():
    """The comparison above can fail: a coupling flipped in one direction only."""
    model = ising_grid(3, 3, coupling_max=1.0, seed=0)
    state: Any = module.make_messages(model, message_order="parallel")
    weights = state._arguments[3]
    weights[0] = 1.0 / weights[0]
    state.advance(200, 0.0, 1e-12)
    naive = NaiveBP(model)
    naive.parallel(200)
    nodes = flat([naive.node(i) for i in range(9)])
    assert np.abs(state.beliefs()[0] - nodes).max() > 1e-3


# -- forbidden pairs, strong couplings ------------------------------------------------------------------------------


@given(strategies.models(max_variables=5), st.sampled_from(ORDERS), st.data())
def test_never_nan(model, message_order, data):
    evidence = data.draw(strategies.evidences(model))
    result = loopy_bp(model, evidence=evidence, message_order=message_order, max_iter=50, edge_marginals=True)
    assert np.isfinite(result.node_marginals).all()
    assert np.isfinite(result.edge_marginals).all()
    assert (result.node_marginals >= 0).all()
    assert_log_z_means_something(result)
    for i, vector in enumerate(result.marginals):
        assert vector.sum() == pytest.approx(1.0, abs=1e-12)
        if i in evidence:
            assert vector[evidence[i]] == 1.0
    forbidden = np.concatenate([model.log_unary, model.log_pairwise]) == -np.inf
    assert (np.concatenate([result.node_marginals, result.edge_marginals])[forbidden] == 0.0).all()


@pytest.mark.parametrize("coupling", [1e3, -1e3])
@pytest.mark.parametrize("message_order", ORDERS)
@pytest.mark.parametrize("damping", [None, 0.0, 0.5, 0.3])
def test_couplings_of_a_thousand(coupling, message_order, damping):
    rng = np.random.default_rng(3)
    models = [
        MarkovRandomField.ising(grid_edges(4, 4), coupling, rng.uniform(-1, 1, 16)),
        MarkovRandomField.ising(grid_edges(4, 4), coupling * rng.choice([-1, 1], 24), rng.uniform(-1e3, 1e3, 16)),
        MarkovRandomField.potts(grid_edges(3, 3), coupling, 3, rng.uniform(-1, 1, (9, 3))),
    ]
    for model in models:
        result = loopy_bp(model, message_order=message_order, damping=damping, max_iter=300, edge_marginals=True)
        assert np.isfinite(result.node_marginals).all()
        assert np.isfinite(result.edge_marginals).all()
        assert_log_z_means_something(result)
        np.testing.assert_allclose([v.sum() for v in result.marginals], 1.0, atol=1e-12)


def test_contradictions_are_found():
    odd = MarkovRandomField.from_tables(np.zeros((3, 2)), cycle_edges(3), [DIFFERENT] * 3)
    for message_order in ORDERS:
        assert loopy_bp(odd, message_order=message_order).log_z_kind == "zero"
    # A chain of consequences: each step is visible at one edge, the end is not.
    forced = np.array([[0.0, -np.inf], [-np.inf, -np.inf]])
    same = DIFFERENT[::-1]
    model = MarkovRandomField.from_tables(
        np.zeros((4, 2)), [(0, 1), (1, 2), (2, 3), (0, 3)], [forced, same, same, DIFFERENT]
    )
    assert loopy_bp(model).log_z_kind == "zero"
    chain = MarkovRandomField.from_tables(np.zeros((3, 2)), path_edges(3), [DIFFERENT] * 2)
    with pytest.raises(ModelError, match="evidence"):
        loopy_bp(chain, evidence={0: 0, 2: 1})
    assert loopy_bp(chain, evidence={0: 0}).node_marginals.tolist() == [1, 0, 0, 1, 1, 0]


def test_zeros_are_those_of_the_supports():
    """A state without partners has probability zero, also where no unary forbids it."""
    table = np.array([[0.0, 1.0, -np.inf], [2.0, 0.0, -np.inf]])
    model = MarkovRandomField.from_tables([[0, 0], [0, 0, 9]], [(0, 1)], [table])
    result = loopy_bp(model, edge_marginals=True)
    assert result.marginal(1)[2] == 0.0
    exact = enumerate_model(model)
    np.testing.assert_allclose(result.node_marginals, exact.node_marginals, atol=1e-12)
    assert result.log_z == pytest.approx(exact.log_z)


# -- conformance ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("message_order", ORDERS)
def test_conformance(message_order):
    """All models: distributions that agree with each other. Without cycles: the exact answer."""
    assert_conforms(
        lambda model: loopy_bp(model, message_order=message_order, tol=1e-11, edge_marginals=True), atol=1.0
    )
    trees = 0
    for name, model in conformance_models():
        if model.num_edges < max(1, model.num_variables):
            result = loopy_bp(model, message_order=message_order, edge_marginals=True)
            exact = enumerate_model(model)
            np.testing.assert_allclose(result.node_marginals, exact.node_marginals, atol=1e-10, err_msg=name)
            assert result.log_z == pytest.approx(exact.log_z, abs=1e-10), name
            trees += 1
    assert trees == 7


@pytest.mark.parametrize("seed", range(6))
def test_relabeling_and_constants_change_nothing(seed):
    rng = np.random.default_rng(seed)
    model = oracle.random_model(rng, num_variables=6, max_states=3, scale=0.7, forbidden_probability=0.1 * (seed % 2))
    order = rng.permutation(6).tolist()
    one = loopy_bp(model, tol=1e-12)
    two = loopy_bp(strategies.relabel(model, order), tol=1e-12)
    shifted = loopy_bp(model.replace(log_constant=7.0), tol=1e-12)
    assert one.converged
    for k, i in enumerate(order):
        np.testing.assert_allclose(two.marginal(k), one.marginal(i), atol=1e-10)
    assert two.log_z == pytest.approx(one.log_z, abs=1e-10)
    assert shifted.log_z == pytest.approx(one.log_z - model.log_constant + 7.0, abs=1e-10)


# -- convergence ----------------------------------------------------------------------------------------------------


def test_automatic_damping_ends_oscillation():
    model = ising_grid(16, 16, coupling_max=2.0, attractive=True, seed=4)
    plain = loopy_bp(model, damping=0.0)
    assert (plain.status, plain.converged) == (Status.NOT_CONVERGED, False)
    assert plain.largest_change > 1e-3
    assert plain.stats["num_iterations"] == 1000
    result = loopy_bp(model)
    assert result.status == Status.OK
    assert result.stats["damping"] == 0.5
    assert result.largest_change <= 1e-9
    counts = [entry["iteration"] for entry in result.history]
    assert counts == sorted(counts)
    assert counts[-1] == result.stats["num_iterations"]


def test_residual_schedule_converges_where_parallel_does_not():
    model = ising_grid(16, 16, coupling_max=2.0, seed=0)
    parallel, residual = loopy_bp(model, max_iter=300), loopy_bp(model, message_order="residual", max_iter=300)
    assert parallel.status == Status.NOT_CONVERGED
    assert residual.status == Status.OK


def test_residual_updates_in_small_portions_are_the_same(monkeypatch):
    """Between portions the clock is read; iterations are counted across them."""
    model = potts_grid(4, 4, coupling_max=0.5, seed=0)
    whole = loopy_bp(model, message_order="residual", max_iter=7, tol=1e-300)
    monkeypatch.setattr(residual_messages, "RENEWED_PER_CALL", 5)
    parts = loopy_bp(model, message_order="residual", max_iter=7, tol=1e-300)
    assert parts.stats["num_iterations"] == whole.stats["num_iterations"] == 7
    assert np.array_equal(parts.node_marginals, whole.node_marginals)


def test_limits_are_statuses():
    model = ising_grid(16, 16, coupling_max=4.0, seed=0)
    result = loopy_bp(model, max_iter=3)
    assert (result.status, result.stats["num_iterations"]) == (Status.NOT_CONVERGED, 3)
    for message_order in ORDERS:
        result = loopy_bp(model, message_order=message_order, max_iter=10**6, time_limit=0.05)
        assert (result.status, result.stats["stopped_by"]) == (Status.NOT_CONVERGED, "time_limit")
        assert 0 < result.stats["num_iterations"] < 10**6
        assert np.isfinite(result.node_marginals).all()


def test_interrupt_returns_what_there_is(monkeypatch):
    calls = []

    def advance(self, *arguments):
        if calls:
            raise KeyboardInterrupt
        calls.append(arguments)
        return original(self, *arguments)

    original = OddsMessages.advance
    monkeypatch.setattr(OddsMessages, "advance", advance)
    with pytest.raises(Interrupted) as stopped:
        loopy_bp(ising_grid(16, 16, coupling_max=4.0, seed=0))
    result = stopped.value.result
    assert result.status == Status.INTERRUPTED
    assert result.stats["num_iterations"] == 25
    assert np.isfinite(result.node_marginals).all()


# -- how long it goes on ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_it_goes_on_while_there_is_progress(seed):
    """Close to the point where phases appear messages take thousands of iterations to settle, and are right then."""
    rng = np.random.default_rng(seed)
    width = int(rng.integers(4, 7))
    torus = [(i, i // width * width + (i + 1) % width) for i in range(width**2)]
    torus += [(i, (i + width) % width**2) for i in range(width**2)]
    coupling = math.atanh(1.0 / 3.0) * (1.0 - rng.uniform(0.0005, 0.002))
    model = MarkovRandomField.ising(torus, coupling=coupling, field=rng.uniform(1e-5, 1e-4))
    short = loopy_bp(model, damping=0.0, max_iter=1000)
    assert short.status == Status.NOT_CONVERGED
    result = loopy_bp(model, time_limit=20.0)
    assert result.status == Status.OK
    assert result.stats["num_iterations"] > 1000
    assert len(result.history) < 1000


@pytest.mark.parametrize("seed", range(4))
def test_messages_that_cycle_end_it(seed):
    """Without any limit on the iterations; and what they say of log Z is not told."""
    model = ising_grid(12 + seed, 12, coupling_max=4.0, seed=seed)
    result = loopy_bp(model, time_limit=50.0)
    assert result.status == Status.NOT_CONVERGED
    assert result.stats["stopped_by"] == "done"
    assert (result.log_z, result.log_z_kind) == (None, "unknown")
    assert result.to_dict()["log_z"] is None


def test_factors_of_many_members_in_parts(monkeypatch):
    """The same answer whether an iteration is made at once or in parts, and an end within an iteration."""
    rng = np.random.default_rng(3)
    scopes = [tuple(int(v) for v in rng.choice(14, size, replace=False)) for size in (3, 6, 8, 5, 4, 7)]
    factors = [((i,), rng.normal(size=3)) for i in range(14)]
    factors += [(scope, rng.normal(scale=0.3, size=(3,) * len(scope))) for scope in scopes]
    factors.append(((0, 1, 2), np.where(rng.random((3, 3, 3)) < 0.2, -np.inf, 400.0 * rng.normal(size=(3, 3, 3)))))
    model = MarkovRandomField.from_factors([3] * 14, factors)
    whole = loopy_bp(model, edge_marginals=True, max_iter=40, tol=1e-12)
    monkeypatch.setattr(table_messages, "ENTRIES_PER_CALL", 5000.0)
    monkeypatch.setattr(module, "ENTRIES_PER_CALL", 5000.0)
    parts = loopy_bp(model, edge_marginals=True, max_iter=40, tol=1e-12)
    assert parts.stats["num_iterations"] == whole.stats["num_iterations"]
    assert parts.node_marginals.tolist() == whole.node_marginals.tolist()
    assert parts.edge_marginals.tolist() == whole.edge_marginals.tolist()
    late = loopy_bp(model, time_limit=1e-9)
    assert late.stats["stopped_by"] == "time_limit"
    assert np.isfinite(late.node_marginals).all()


# -- interface ------------------------------------------------------------------------------------------------------


def test_result():
    model = strategies.with_names(ising_grid(2, 2, coupling_max=1.0, seed=0))
    assert loopy_bp(model).log_z_kind == "estimate"
    result = loopy_bp(model, evidence={"v1": "a"})  # what is left is a path
    assert isinstance(result, LoopyBPResult)
    assert isinstance(result, InferenceResult)
    assert (result.method, result.log_z_kind) == ("loopy-bp", "exact")
    assert result.edge_marginals is None
    assert result.marginal("v1").tolist() == [1.0, 0.0]
    data = json.loads(json.dumps(result.to_dict()))
    assert data["log_z_kind"] == "exact"
    assert data["largest_change"] <= 1e-9
    assert data["provenance"]["options"]["evidence"] == {"v1": "a"}
    assert data["provenance"]["model_hash"] == model.content_hash
    assert "loopy-bp" in repr(result)
    exact = infer_exact(model, evidence={"v1": "a"})
    assert result.log_z == pytest.approx(exact.log_z)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"message_order": "random"}, "message_order"),
        ({"damping": 1.0}, "damping"),
        ({"damping": -0.1}, "damping"),
        ({"damping": "much"}, "damping"),
        ({"max_iter": 0}, "max_iter"),
        ({"tol": 0.0}, "tol"),
        ({"tol": math.nan}, "tol"),
        ({"time_limit": -1}, "time_limit"),
        ({"evidence": {9: 0}}, "variable"),
    ],
)
def test_bad_arguments(options, name):
    with pytest.raises(ValueError, match=name):
        loopy_bp(ising_grid(2, 2, coupling_max=1.0, seed=0), **options)


def test_model_must_be_one():
    with pytest.raises(TypeError, match="model"):
        loopy_bp(3)


def test_kernels_are_chosen_by_range():
    assert module.make_messages(ising_grid(3, 3, coupling_max=1.0, seed=0), message_order="parallel").kernel == "odds"
    strong = MarkovRandomField.ising([(0, 1), (1, 2)], 80.0)  # 2 * 80 on every edge
    assert module.make_messages(strong, message_order="parallel").kernel == "tables"
    assert ising_form(strong) is not None
    mixed = random_tables(path_edges(3), [2, 3, 2], scale=1.0, seed=0)
    assert module.make_messages(mixed, message_order="parallel").kernel == "tables"


@pytest.mark.parametrize("seed", strategies.seeds(6, quick=2))
@pytest.mark.parametrize("order", ORDERS)
def test_one_table_for_all_edges_is_as_good_as_many(seed, order, monkeypatch):
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(3, 3))
    edges = grid_edges(4, 5)
    tables = np.tile(table, (len(edges), 1, 1))
    model = MarkovRandomField.from_tables(rng.normal(size=(20, 3)), edges, tables)
    options = {"message_order": order, "edge_marginals": True, "max_iter": 30}
    once = loopy_bp(model, **options)
    assert table_messages.is_one_table(model)
    monkeypatch.setattr(table_messages, "is_one_table", lambda model: False)
    many = loopy_bp(model, **options)
    assert_equals(once, many)
    tables[-1, 0, 0] += 1e-9
    other = MarkovRandomField.from_tables(model.log_unary.reshape(20, 3), edges, tables)
    monkeypatch.undo()
    assert not table_messages.is_one_table(other)
    assert not table_messages.is_one_table(random_tables(path_edges(4), [2, 3, 2, 3], scale=1.0, seed=0))


def assert_equals(first, second):
    assert (first.status, first.log_z) == (second.status, second.log_z)
    np.testing.assert_array_equal(first.node_marginals, second.node_marginals)
    np.testing.assert_array_equal(first.edge_marginals, second.edge_marginals)


@pytest.mark.parametrize("coupling", [1.0, 80.0])  # odds, tables
def test_marginals_do_not_depend_on_whether_pairs_are_wanted(coupling):
    model = MarkovRandomField.ising(grid_edges(3, 4), coupling * np.linspace(-1.0, 1.0, 17), np.linspace(-1.0, 1.0, 12))
    for max_iter in (2, 2000):  # messages that move, and others that perhaps do not
        alone = loopy_bp(model, max_iter=max_iter)
        beside = loopy_bp(model, max_iter=max_iter, edge_marginals=True)
        assert (alone.status, alone.log_z) == (beside.status, beside.log_z)
        np.testing.assert_array_equal(alone.node_marginals, beside.node_marginals)
        assert alone.edge_marginals is None


@pytest.mark.parametrize("seed", strategies.seeds(6, quick=2))
def test_hubs_have_more_odds_than_doubles(seed):
    """Stars whose centers see log-odds of thousands, of one sign or of both, beside edges as strong as odds allow."""
    rng = np.random.default_rng(seed)
    n = 600
    couplings = rng.normal(size=n) * (1.0, 20.0)[seed % 2]
    couplings[: n // 2] = np.abs(couplings[: n // 2]) if seed < 4 else couplings[: n // 2]
    fields = np.concatenate([[0.3], rng.normal(size=n) * (1.0, 300.0, 0.0)[seed % 3]])
    edges = np.stack([np.zeros(n, dtype=int), np.arange(1, n + 1)], axis=1)
    model = MarkovRandomField.ising(edges, np.clip(couplings, -50.0, 50.0), fields)
    result, exact = loopy_bp(model, edge_marginals=True), infer_exact(model)
    assert (result.status, result.stats["kernel"]) == (Status.OK, "odds")
    np.testing.assert_allclose(result.node_marginals, exact.node_marginals, rtol=0, atol=1e-9)
    np.testing.assert_allclose(result.edge_marginals, exact.edge_marginals, rtol=0, atol=1e-9)
    assert result.log_z == pytest.approx(exact.log_z, rel=1e-12)


def plain_results() -> list:
    hard = np.array([[0.0, -np.inf], [0.5, 1.0]])
    models = [
        ising_grid(2, 3, coupling_max=0.6, seed=0),
        random_tables([(0, 1), (1, 2), (0, 2)], [2, 3, 2], scale=0.5, seed=0),
        MarkovRandomField.from_tables(np.zeros((4, 2)), cycle_edges(4), [hard] * 4),
    ]
    results = []
    for model in models:
        for options in ({}, {"damping": 0.5}, {"damping": 0.3}, {"message_order": "residual"}):
            answer = loopy_bp(model, edge_marginals=True, **options)
            assert answer.status == Status.OK
            results.append([answer.stats["kernel"], answer.node_marginals.tolist(), answer.log_z])
    assert {kernel for kernel, _, _ in results} == {"odds", "tables", "residual"}
    return results


# -- competition instances ------------------------------------------------------------------------------------------


def test_shared_instances(competition):
    for path in sorted(competition.glob("*.uai")):
        model = read_model(path)
        evidence = read_evidence(f"{path}.evid", model.num_states)
        result = loopy_bp(model, evidence=evidence, edge_marginals=True, max_iter=200)
        assert np.isfinite(result.node_marginals).all(), path.stem
        assert np.isfinite(result.edge_marginals).all(), path.stem
        assert_log_z_means_something(result)
        if path.stem.startswith("ObjectDetection"):
            assert result.converged
            answers = np.concatenate(read_mar(f"{path}.MAR"))
            assert np.abs(result.node_marginals - answers).mean() < 0.01
            assert result.log_z == pytest.approx(read_pr(f"{path}.PR") * math.log(10), abs=0.5)
