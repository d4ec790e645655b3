"""Exact inference against the oracle: both arithmetics, both engines, twins, evidence, draws and refusals."""

from __future__ import annotations

import itertools
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_exact_draws import chi_square_p

import oracle
import strategies
from fastmix import MarkovRandomField, ModelError, ResourceError, Status, draw_exact, infer
from fastmix._clock import Clock, OutOfTimeError
from fastmix.errors import ImpossibleEvidenceError, ImpossibleModelError
from fastmix.exact import elimination, enumerate_model, infer_exact, plan_model_elimination, planner, program
from fastmix.exact.solver import plan_exact
from fastmix.exact.twins import count_twins
from fastmix.graphs import complete_bipartite_edges, complete_edges, grid_edges
from fastmix.instances import ising_grid, potts_grid, random_tables
from fastmix.testing import assert_conforms, assert_distributions, assert_marginals_close


def run_tree(model, arithmetic):
    """Calibrate in one given arithmetic, with nothing folded away before."""
    tree = plan_model_elimination(model, memory_limit=1e9)
    with mock.patch.object(program, "MAX_LOG_RANGE", -1.0 if arithmetic == "log" else program.MAX_LOG_RANGE):
        answer = tree.calibrate()
    assert answer.arithmetic == arithmetic or not tree.elimination.plan.steps
    return answer[:3]


def assert_matches_oracle(model, log_z, nodes, edges, atol=1e-9):
    flat_nodes = np.concatenate([*oracle.node_marginals(model), np.zeros(0)])
    flat_edges = np.concatenate([*(np.ravel(t) for t in oracle.edge_marginals(model)), np.zeros(0)])
    assert log_z == pytest.approx(oracle.log_z(model), rel=1e-11, abs=1e-9)
    np.testing.assert_allclose(nodes, flat_nodes, rtol=0, atol=atol)
    np.testing.assert_allclose(edges, flat_edges, rtol=0, atol=atol)


@given(strategies.models())
def test_infer_equals_the_oracle(model):
    result = infer(model, method="exact")
    assert result.status == Status.OK
    assert_matches_oracle(model, result.log_z, result.node_marginals, result.edge_marginals)


@given(strategies.models())
def test_enumeration_equals_the_oracle(model):
    answer = enumerate_model(model)
    assert_matches_oracle(model, answer.log_z, answer.node_marginals, answer.edge_marginals)
    np.testing.assert_allclose(answer.probabilities, oracle.joint(model).ravel(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("arithmetic", ["linear", "log"])
@pytest.mark.parametrize("seed", strategies.seeds(40, quick=6))
def test_every_engine_and_arithmetic(seed, arithmetic, compiled, monkeypatch):
    monkeypatch.setattr(elimination, "compiler_is_loaded", lambda: compiled)
    rng = np.random.default_rng(seed)
    model = oracle.random_model(
        rng, num_variables=6, max_states=4, edge_probability=0.6, scale=2.0, forbidden_probability=0.1 * (seed % 2)
    )
    assert_matches_oracle(model, *run_tree(model, arithmetic))


@pytest.mark.parametrize("arithmetic", ["linear", "log"])
@pytest.mark.parametrize(
    "model",
    [
        ising_grid(13, 13, coupling_max=2.0, seed=3),
        potts_grid(7, 9, num_states=3, coupling_max=1.0, seed=3),
        random_tables(grid_edges(8, 8), ([2, 3, 5, 4, 3] * 13)[:64], scale=1.0, seed=4),
        random_tables(complete_edges(8), [5, 2, 3, 4, 2, 3, 4, 5], scale=0.5, seed=4),
        random_tables(complete_edges(14), 2, scale=0.5, seed=5),
    ],
    ids=["ising", "potts", "mixed", "dense mixed", "dense"],
)
def test_layouts_of_large_tables_change_nothing(model, arithmetic, monkeypatch):
    large = run_tree(model, arithmetic)
    assert plan_model_elimination(model, memory_limit=1e9).elimination.order.max_entries > 1 << 13
    monkeypatch.setattr(planner, "MIN_LAYOUT_ENTRIES", 1 << 60)
    plain = run_tree(model, arithmetic)
    for a, b in zip(large, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("seed", strategies.seeds(60, quick=8))
def test_hanging_trees_summed_out_before(seed, monkeypatch):
    monkeypatch.setattr(elimination, "MIN_COMPILED_LEAVES", 0)
    rng = np.random.default_rng(seed)
    model = oracle.random_model(
        rng, num_variables=7, max_states=3, edge_probability=(0.15, 0.25, 0.4)[seed % 3], scale=2.0,
        forbidden_probability=0.1 * (seed % 2),
    )  # fmt: skip
    tree = plan_model_elimination(model, memory_limit=1e9)
    assert_matches_oracle(model, *tree.calibrate()[:3])
    assert tree.total_entries >= tree.elimination.order.total_entries
    draws = tree.draw(2000, np.random.default_rng(seed))
    assert np.isfinite(model.log_weight(draws)).all()
    for v, p in enumerate(oracle.node_marginals(model)):
        seen = np.bincount(draws[:, v], minlength=len(p)) / 2000
        assert np.abs(seen - p).max() < 6 * 0.5 / np.sqrt(2000)  # six standard errors: 2e-9


def test_draws_of_trees_have_the_joint_distribution(monkeypatch):
    monkeypatch.setattr(elimination, "MIN_COMPILED_LEAVES", 0)
    rng = np.random.default_rng(2)
    tables = [rng.normal(size=(2, 3)), rng.normal(size=(3, 4))]
    tables[1][0, 2] = -np.inf
    model = MarkovRandomField.from_tables([rng.normal(size=L) for L in (2, 3, 4)], [(0, 1), (1, 2)], tables)
    draws = draw_exact(model, num_draws=20_000, seed=3)
    assert chi_square_p(model, draws) > 1e-6
    wrong = model.replace(log_unary=model.log_unary + np.eye(len(model.log_unary))[1] * 0.3)
    assert chi_square_p(wrong, draws) < 1e-6


def test_large_forests_and_stars():
    star = MarkovRandomField.ising([(0, v) for v in range(1, 50_001)], 0.01, 0.001)
    result = infer(star, method="exact")
    # Given the center all others are independent: log Z = log sum_s exp(f s) (2 cosh(c s + f))^n.
    logs = [0.001 * s + 50_000 * np.log(2 * np.cosh(0.01 * s + 0.001)) for s in (-1, 1)]
    assert result.log_z == pytest.approx(np.logaddexp(*logs), rel=1e-13)
    assert result.marginal(0)[1] == pytest.approx(1 / (1 + np.exp(logs[0] - logs[1])), rel=1e-8)
    assert result.stats["treewidth"] == 1
    alone = infer(MarkovRandomField.ising(np.zeros((0, 2), dtype=int), 0.0, np.full(30_000, 0.3)), method="exact")
    assert alone.log_z == pytest.approx(30_000 * np.log(2 * np.cosh(0.3)), rel=1e-13)


def test_contradictions_in_trees_are_refused(monkeypatch):
    monkeypatch.setattr(elimination, "MIN_COMPILED_LEAVES", 0)
    never = np.full((2, 2), -np.inf)
    never[0, 0] = 0.0
    model = MarkovRandomField.from_tables(np.zeros((3, 2)), [(0, 1), (1, 2)], [never, np.roll(never, 3).reshape(2, 2)])
    with pytest.raises(ImpossibleModelError):
        plan_model_elimination(model, memory_limit=1e9).calibrate()


def test_conformance():
    assert_conforms(infer_exact, atol=1e-9)


def test_conformance_can_fail():
    def wrong(model):
        result = infer_exact(model)
        flipped = MarkovRandomField(
            model.num_states, -model.log_unary if np.isfinite(model.log_unary).all() else model.log_unary,
            model.edges, model.log_pairwise, model.log_constant,
        )  # fmt: skip
        return result if model.num_variables == 0 else infer_exact(flipped)

    with pytest.raises(AssertionError, match="one variable"):
        assert_conforms(wrong, atol=1e-9)
    model = ising_grid(2, 2, coupling_max=1.0, seed=0)
    result = infer_exact(model)
    with pytest.raises(AssertionError, match="disagrees"):
        assert_distributions(model, result.node_marginals, np.full(len(model.log_pairwise), 0.25))
    with pytest.raises(AssertionError, match="log Z"):
        assert_marginals_close(result, model.replace(log_constant=1.0), atol=1e-9)


@pytest.mark.parametrize("coupling", [1e3, -1e3])
def test_strong_couplings_need_logs_and_stay_finite(coupling):
    model = MarkovRandomField.ising(grid_edges(4, 4), coupling, np.linspace(-1, 1, 16))
    result = infer(model)
    assert result.stats["arithmetic"] == "log"
    assert_marginals_close(result, model, atol=1e-9)
    big = infer(MarkovRandomField.ising(grid_edges(12, 12), coupling, np.linspace(-0.1, 0.1, 144)))
    assert_distributions(big.model, big.node_marginals, big.edge_marginals)
    assert np.isfinite(big.log_z)


def test_fallback_gives_what_logs_give():
    """Tables that do underflow in ordinary arithmetic: the range check must notice, not the user."""
    rng = np.random.default_rng(5)
    model = MarkovRandomField.ising(grid_edges(12, 12), rng.uniform(-60, 60, 264), rng.uniform(-100, 100, 144))
    result = infer(model)
    assert result.stats["arithmetic"] == "log"
    log_z, nodes, _ = run_tree(model, "log")
    assert result.log_z == pytest.approx(log_z)
    np.testing.assert_allclose(result.node_marginals, nodes, atol=1e-9)


def test_ordinary_arithmetic_near_its_limit_equals_logs():
    model = ising_grid(12, 12, coupling_max=6.0, field_max=4.0, seed=1)
    linear, log = run_tree(model, "linear"), run_tree(model, "log")
    assert linear[0] == pytest.approx(log[0], rel=1e-12)
    np.testing.assert_allclose(linear[1], log[1], atol=1e-10)
    np.testing.assert_allclose(linear[2], log[2], atol=1e-10)


def test_large_log_z():
    model = MarkovRandomField.ising(grid_edges(4, 4), 400.0)
    result = infer(model)
    assert result.log_z == pytest.approx(24 * 400 + np.log(2), rel=1e-14)
    np.testing.assert_allclose(result.node_marginals, 0.5, atol=1e-12)


@given(strategies.models(max_variables=4), st.data())
def test_evidence_lists_every_variable(model, data):
    x = data.draw(strategies.allowed_configurations(model))
    evidence = data.draw(st.dictionaries(st.sampled_from(range(len(x))), st.none())) if x else {}
    evidence = {i: int(x[i]) for i in evidence}
    result = infer(model, evidence=evidence)
    assert result.log_z == pytest.approx(oracle.log_evidence(model, evidence), rel=1e-10, abs=1e-9)
    assert_distributions(model, result.node_marginals, result.edge_marginals)
    joint = np.exp(np.array(oracle.log_weights(model)) - oracle.log_z(model))
    agree = [oracle.agrees(y, evidence) for y in oracle.all_configurations(model)]
    joint = np.where(agree, joint, 0.0).reshape(model.num_states)
    if joint.sum() > 1e-200:  # the plain sum of the oracle cannot see rarer evidence
        joint /= joint.sum()
        for i in range(model.num_variables):
            expected = joint.sum(axis=tuple(j for j in range(model.num_variables) if j != i))
            np.testing.assert_allclose(result.marginal(i), expected, atol=1e-9)
        for i, j in model.edges.tolist():
            expected = joint.sum(axis=tuple(k for k in range(model.num_variables) if k not in (i, j)))
            np.testing.assert_allclose(result.edge_marginal(i, j), expected, atol=1e-9)


def test_evidence_by_name():
    model = MarkovRandomField.from_tables(
        [[0, 0], [0, 1.0]], [(0, 1)], [np.eye(2)], variable_names=["rain", "wet"], state_names=[["no", "yes"]] * 2
    )
    assert infer(model, evidence={"rain": "yes"}).marginal("rain").tolist() == [0.0, 1.0]
    with pytest.raises(ModelError, match="'snow'"):
        infer(model, evidence={"snow": "yes"})


def test_impossible_models_are_refused_in_words():
    hard = np.array([[-np.inf, 0.0], [0.0, -np.inf]])
    odd_cycle = MarkovRandomField.from_tables(np.zeros((3, 2)), [(0, 1), (1, 2), (0, 2)], [hard] * 3)
    with pytest.raises(ImpossibleModelError):
        infer_exact(odd_cycle)
    with pytest.raises(ImpossibleEvidenceError):
        infer(MarkovRandomField.from_tables(np.zeros((2, 2)), [(0, 1)], [hard]), evidence={0: 0, 1: 0})


def test_memory_limit_is_kept_before_allocation():
    model = ising_grid(30, 30, coupling_max=1.0, seed=0)
    with pytest.raises(ResourceError, match=r"treewidth 3\d") as info:
        infer(model, method="exact", memory_limit=2**30)
    assert info.value.treewidth >= 30
    assert info.value.required_bytes > info.value.limit_bytes == 2**30
    with pytest.raises(ValueError, match="memory_limit"):
        infer(model, method="exact", memory_limit=0)


def test_dense_graphs_are_refused_at_once():
    model = random_tables(complete_edges(300), 2, scale=0.1, seed=0)
    with pytest.raises(ResourceError) as info:
        infer(model, method="exact")
    assert info.value.treewidth == 299
    with pytest.raises(ResourceError) as info:
        infer(MarkovRandomField.potts(complete_edges(700), coupling=0.1, num_states=3), method="exact")
    assert info.value.treewidth == 699


def test_required_bytes_bounds_the_messages():
    model = ising_grid(14, 14, coupling_max=1.0, seed=0)
    tree = plan_model_elimination(model, memory_limit=1e9)
    stored = 8 * sum(tree.elimination.plan.sizes)
    assert stored <= tree.required_bytes <= 3 * stored


@pytest.mark.parametrize("seed", range(20))
def test_twins_equal_enumeration(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    states = [int(rng.integers(2, 4)), int(rng.integers(2, 4))]
    left, right = int(rng.integers(2, 5)), int(rng.integers(2, 4))
    table = rng.normal(size=states)
    if seed % 3 == 0:
        table[0, 0] = -np.inf
    unary = [rng.normal(size=states[0])] * left + [rng.normal(size=states[1])] * right + [rng.normal(size=2)]
    edges = [*complete_bipartite_edges(left, right).tolist(), (0, left + right)]  # variable 0 is nobody's twin
    model = MarkovRandomField.from_tables(unary, edges, [table] * (len(edges) - 1) + [rng.normal(size=(states[0], 2))])
    twins = count_twins(model)
    assert twins is not None
    assert twins.model.num_variables < model.num_variables

    original = elimination.plan_model_elimination

    def refuse_once(candidate, **kwargs):
        if candidate.num_variables == model.num_variables:
            raise ResourceError("pretended")
        return original(candidate, **kwargs)

    monkeypatch.setattr("fastmix.exact.solver.plan_model_elimination", refuse_once)
    monkeypatch.setattr("fastmix.exact.solver.kept_elimination", lambda *_: None)
    result = infer(model)
    assert result.stats["num_counting_variables"] >= 1
    assert_marginals_close(result, model, atol=1e-10)
    draws = draw_exact(model, num_draws=2000, seed=seed)
    assert np.isfinite(model.log_weight(draws)).all()
    counts = np.bincount(draws[:, 1], minlength=model.num_states[1]) / 2000
    assert np.abs(counts - result.marginal(1)).max() < 5 * 0.5 / np.sqrt(2000)  # five standard errors: 6e-7


@pytest.mark.parametrize("seed", range(20))
def test_twins_in_factors_equal_enumeration(seed):
    """Two groups of twins in factors of three, in mixed order, some entries forbidden; and one variable beside."""
    rng = np.random.default_rng(seed)
    left, right, states = int(rng.integers(2, 4)), int(rng.integers(1, 4)), rng.integers(2, 4, 4).tolist()
    n = left + right + 2
    number = rng.permutation(n).tolist()
    groups = [number[:left], number[left : left + right], [number[-2]], [number[-1]]]
    counts = np.empty(n, dtype=int)
    unary = [rng.normal(size=s) for s in states]
    for members, s in zip(groups, states, strict=True):
        counts[members] = s
    triple, single = rng.normal(size=states[:3]), rng.normal(size=states[2:])
    if seed % 3 == 0:
        triple[0, 0, 0] = -np.inf
    factors = [((v,), unary[g]) for g, members in enumerate(groups) for v in members]
    factors += [((v, w, number[-2]), triple) for v in groups[0] for w in groups[1]]
    factors.append(((number[-2], number[-1]), single))
    model = MarkovRandomField.from_factors(counts, [(s, t) for s, t in factors])
    twins = count_twins(model)
    assert twins is not None
    assert sorted(map(len, twins.groups)) == sorted(map(len, groups))
    answer = plan_model_elimination(twins.model, memory_limit=1e9).calibrate()
    nodes, edges = twins.expand_marginals(answer.marginals, answer.factor_marginals)
    every = np.array(list(itertools.product(*map(range, counts))))
    weights = model.log_weight(every)
    assert answer.log_z == pytest.approx(np.logaddexp.reduce(weights), abs=1e-10)
    p = np.exp(weights - answer.log_z)
    expected = [np.bincount(every[:, v], p, counts[v]) for v in range(n)]
    np.testing.assert_allclose(nodes, np.concatenate(expected), atol=1e-10)
    pairs = [np.bincount(every[:, i] * counts[j] + every[:, j], p, counts[i] * counts[j]) for i, j in model.edges]
    np.testing.assert_allclose(edges, np.concatenate(pairs), atol=1e-10)
    draws = twins.expand_draws(plan_model_elimination(twins.model, memory_limit=1e9).draw(500, rng), rng)
    assert np.isfinite(model.log_weight(draws)).all()
    # One table that differs, and the two groups fall apart.
    factors[-2] = (factors[-2][0], triple + rng.normal(size=triple.shape))
    other = count_twins(MarkovRandomField.from_factors(counts, factors))
    assert other is None or len(other.groups) > len(twins.groups)


def test_twins_without_neighbors_are_not_counted_together():
    edges = complete_bipartite_edges(2, 3)
    with_others = count_twins(MarkovRandomField.ising(edges, 0.5, np.zeros(9)))
    assert with_others is not None
    assert sorted(map(len, with_others.groups)) == [1, 1, 1, 1, 2, 3]
    assert count_twins(MarkovRandomField.ising([], 0.0, np.zeros(9))) is None


def test_twins_for_which_there_is_no_time_are_not_counted():
    model = MarkovRandomField.ising(complete_bipartite_edges(60, 60), 0.1, np.zeros(120))
    assert count_twins(model, Clock(60.0)) is not None
    with pytest.raises(OutOfTimeError):
        count_twins(model, Clock(0.1))


def test_no_twins_is_said():
    assert count_twins(ising_grid(3, 3, coupling_max=1.0, seed=0)) is None


def test_enumeration_refuses_large_models():
    with pytest.raises(ResourceError, match="max_configurations"):
        enumerate_model(ising_grid(5, 5, coupling_max=1.0, seed=0))


def plain_results() -> list:
    results = []
    model = random_tables(grid_edges(3, 3), [2, 3, 2] * 3, scale=1.0, seed=0)
    for other in (model, model.replace(log_unary=model.log_unary * 2000)):
        answer = infer_exact(other)
        assert_marginals_close(answer, other, atol=1e-9)
        results.append([answer.stats["arithmetic"], answer.node_marginals.tolist()])
    assert [arithmetic for arithmetic, _ in results] == ["linear", "log"]
    kept = plan_model_elimination(model, memory_limit=1e9)
    first, _, second = kept.calibrate(), kept.calibrate(), kept.calibrate()
    assert kept.elimination.plan.program is not None
    np.testing.assert_allclose(first.factor_marginals, second.factor_marginals, atol=1e-12)
    results.append([second.log_z, second.marginals.tolist(), second.factor_marginals.tolist()])
    with mock.patch.object(elimination, "MIN_COMPILED_LEAVES", 0):
        tree = random_tables([(0, 1), (1, 2), (1, 3)], [2, 3, 2, 4], scale=1.0, seed=0)
        answer = infer_exact(tree)
        assert_marginals_close(answer, tree, atol=1e-9)
        draws = draw_exact(tree, num_draws=50, seed=0)
        results.append([answer.log_z, answer.node_marginals.tolist(), draws.states.tolist()])
    return results


# -- plans that are kept ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", strategies.seeds(20, quick=8))
def test_calls_on_one_model_agree_with_the_oracle(seed):
    """The first calls go step by step, later ones by one compiled function, whatever the evidence."""
    rng = np.random.default_rng(seed)
    model = oracle.random_model(
        rng, num_variables=6, max_states=4, edge_probability=0.6, scale=2.0, forbidden_probability=0.1 * (seed % 2)
    )
    first = infer(model, method="exact")
    for _ in range(3):
        result = infer(model, method="exact")
        assert_matches_oracle(model, result.log_z, result.node_marginals, result.edge_marginals)
        variable = int(rng.integers(model.num_variables))
        state = int(rng.choice(np.flatnonzero(first.marginal(variable) > 0.0)))
        observed = infer(model, method="exact", evidence={variable: state})
        new = infer(model.replace(), method="exact", evidence={variable: state})
        plain = infer_exact(model, evidence={variable: state})
        for answer in (observed, new):
            assert answer.log_z == pytest.approx(plain.log_z, abs=1e-10)
            assert answer.marginal(variable)[state] == 1.0
            np.testing.assert_allclose(answer.node_marginals, plain.node_marginals, atol=1e-11)
            np.testing.assert_allclose(answer.edge_marginals, plain.edge_marginals, atol=1e-11)
    assert model.structure.__dict__["exact_elimination"].plan.program is not None


def test_impossible_evidence_at_every_call():
    model = MarkovRandomField.from_tables(
        np.zeros((3, 2)), [(0, 1), (1, 2)], [np.where(np.eye(2) > 0, 0.0, -np.inf)] * 2
    )
    for _ in range(3):
        assert infer(model, method="exact").log_z == pytest.approx(np.log(2.0))
        with pytest.raises(ImpossibleEvidenceError):
            infer(model, method="exact", evidence={0: 0, 2: 1})


class ShortClock(Clock):
    """A clock on which little is left, for ever."""

    def left(self) -> float:
        return 0.3

    def past(self, share: float = 1.0) -> bool:
        return False


@pytest.mark.parametrize("seed", range(3))
def test_little_time_is_no_reason_against_some_thousand_variables(seed):
    """What `bracket` has for a plan within 2 s: such models take 0.2 s, and a constant per variable refused them."""
    rng = np.random.default_rng(seed)
    rows, cols = int(rng.integers(2, 5)), int(rng.integers(1000, 1400))
    model = ising_grid(rows, cols + 1700 // rows, coupling_max=1.0, seed=seed)
    plan = plan_exact(model, clock=ShortClock())
    assert model.num_variables > 3000
    assert plan.seconds < 1.0
