"""Brackets against enumeration, at the end of the way and on it, and what they are made of."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fastmix
from fastmix import MarkovRandomField, instances
from fastmix._clock import NO_LIMIT, Clock
from fastmix.bounds.branch import Cases
from fastmix.bounds.covers import Clusters, Parts, _in_bands, split_scope
from fastmix.bounds.lower import Lower
from fastmix.bounds.terms import Terms, blanket_bounds, combine, find_terms, tighten
from fastmix.bounds.upper import Upper, crude_upper, sampled_bounds
from fastmix.bounds.walks import _fields, _mirror, follow_walks, walk_bounds
from fastmix.bounds.work import Work
from fastmix.exact.search import order_cost
from fastmix.results import InferenceResult, Status
from strategies import seeds

Tell = Callable[[str, str, str], None]

FloatArray = NDArray[np.float64]


def random_small(seed: int, forbidden: bool | None = None) -> MarkovRandomField:
    """Binary or 3 to 4 states or mixed, dense or sparse, mixed sign or not, lopsided fields, pairs and factors."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 7))
    counts = rng.choice([[2] * n, rng.integers(3, 5, n).tolist(), rng.integers(1, 5, n).tolist()][seed % 3], n)
    scale = float(rng.choice([0.2, 1.0, 3.0, 20.0]))
    sign = rng.choice([0.0, -1.0])
    factors: list[tuple[tuple[int, ...], Any]] = [
        ((i,), rng.normal(size=counts[i]) * rng.choice([0.0, 0.5, 3.0])) for i in range(n)
    ]
    keep = rng.choice([0.3, 0.7, 1.0])
    pairs = [pair for pair in itertools.combinations(range(n), 2) if rng.random() < keep]
    factors += [(pair, scale * rng.uniform(sign, 1.0, counts[list(pair)])) for pair in pairs]
    for _ in range(int(rng.integers(0, 3)) if n > 3 else 0):
        scope = tuple(rng.permutation(n)[: int(rng.integers(3, 5))].tolist())
        factors.append((scope, scale * rng.normal(size=counts[list(scope)])))
    if rng.random() < 0.3 if forbidden is None else forbidden:
        allowed = [int(rng.integers(c)) for c in counts]  # one configuration stays possible
        for k, (scope, table) in enumerate(factors):
            if len(scope) > 1:
                bare = np.where(rng.random(table.shape) < 0.4, -np.inf, table)
                bare[tuple(allowed[v] for v in scope)] = 0.0
                factors[k] = scope, bare
    return MarkovRandomField.from_factors(counts, [*factors, ((), float(rng.normal()))])


def truth(model: MarkovRandomField) -> tuple[float, FloatArray]:
    """Log Z and the log-weight of every state, by enumeration."""
    states = np.array(list(itertools.product(*[range(s) for s in model.num_states])), dtype=np.int64)
    scores = model.log_weight(states) if len(states) else np.zeros(0)
    by_state = np.full(len(model.log_unary), -np.inf)
    for i, first in enumerate(model.unary_offsets[:-1]):
        np.logaddexp.at(by_state, first + states[:, i], scores)
    return float(np.logaddexp.reduce(scores)), by_state


def left_of(terms: Terms, values: FloatArray) -> FloatArray:
    """Numbers of the states of the user's model that are left in the terms."""
    marks = terms.reduction.expand_node_marginals(10.0 + np.arange(terms.num_unary))
    return values[np.flatnonzero(marks >= 10.0)]


def assert_holds(result: fastmix.BracketResult, slack: float = 1e-12) -> None:
    log_z, by_state = truth(result.model)
    assert result.log_z_lower <= log_z <= result.log_z_upper
    p = np.exp(by_state - log_z)
    assert (result.node_lower <= p + slack).all()
    assert (p <= result.node_upper + slack).all()


def check_small(seed: int) -> None:
    model = random_small(seed)
    rough = fastmix.bracket(model, memory_limit=64, time_limit=0.05, seed=seed)
    assert_holds(rough)
    exact = fastmix.bracket(model, seed=seed)
    assert exact.exact
    assert exact.gap < 1e-6
    assert_holds(exact)


@pytest.mark.parametrize("seed", seeds(40, quick=10))
def test_no_bracket_misses_the_truth(seed: int) -> None:
    check_small(seed)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_no_bracket_misses_the_truth_two_thousand(block: int, tell: Tell) -> None:
    violated = []
    for seed in range(1000 + 100 * block, 1100 + 100 * block):
        try:
            check_small(seed)
        except AssertionError as error:
            violated.append((seed, str(error)))
    tell("brackets", "lower and upper bounds, random small models", f"violated {len(violated)} of 100")
    assert not violated


def test_the_check_can_fail() -> None:
    model = random_small(3, forbidden=False)
    good = fastmix.bracket(model, memory_limit=64, time_limit=0.2, seed=0)
    assert not good.exact
    log_z, by_state = truth(model)
    for change in (
        {"log_z_upper": log_z - 1e-9},
        {"log_z_lower": log_z + 1e-9},
        {"node_upper": np.exp(by_state - log_z) - 1e-6},
        {"node_lower": np.exp(by_state - log_z) + 1e-6},
    ):
        with pytest.raises(AssertionError):
            assert_holds(replace(good, **change))


# -- every point of the way is a bound ------------------------------------------------------------------------------


def rough_covers(model: MarkovRandomField, max_entries: float = 4.0) -> tuple[Any, Upper]:
    terms = find_terms(model)
    scopes = terms.scopes[terms.num_variables :]
    return terms, Upper(terms, Parts(terms.num_states, scopes, terms.weights, max_entries=max_entries).covers())


@pytest.mark.parametrize("seed", seeds(200, quick=12))
def test_any_point_bounds_every_state(seed: int) -> None:
    model = random_small(seed)
    terms, upper = rough_covers(model)
    log_z, by_state = truth(model)
    rng = np.random.default_rng(seed)
    for scale in (0.0, 0.5, 3.0):
        upper.log_z, upper.states = math.inf, np.full(terms.num_unary, np.inf)
        upper._evaluate(scale * rng.normal(size=len(upper.point)), NO_LIMIT)
        assert upper.log_z >= log_z
        assert (upper.states >= left_of(terms, by_state)).all()
    crude, states = crude_upper(terms)
    assert crude >= log_z
    assert (states >= left_of(terms, by_state)).all()


@pytest.mark.parametrize("seed", seeds(200, quick=12))
def test_any_start_bounds_from_below(seed: int) -> None:
    model = random_small(seed)
    terms = find_terms(model)
    log_z, by_state = truth(model)
    rng = np.random.default_rng(seed)
    scopes = terms.scopes[terms.num_variables :]
    lower = Lower(terms, Parts(terms.num_states, scopes, terms.weights, max_entries=4.0).clusters())
    for _ in range(3):
        draws = rng.standard_exponential(terms.num_unary)
        starts = terms.offsets[: terms.num_variables]
        sums = np.add.reduceat(draws, starts) if len(starts) else draws
        lower.start(draws / np.repeat(sums, terms.num_states))
        try:
            lower.improve(NO_LIMIT, 3)
        except fastmix.ModelError:
            assert model.has_forbidden
        assert lower.log_z <= log_z
        assert (lower.states <= left_of(terms, by_state)).all()


def test_slopes_are_those_of_the_bound() -> None:
    for seed in (0, 4, 7):
        _, upper = rough_covers(random_small(seed))
        rng = np.random.default_rng(seed)
        x, step = 0.3 * rng.normal(size=len(upper.point)), 1e-5
        _, slope = upper._evaluate(x, NO_LIMIT)
        for _ in range(4):
            d = rng.normal(size=len(x))
            high, low = (upper._evaluate(x + s * step * d, NO_LIMIT)[0] for s in (1.0, -1.0))
            assert slope @ d == pytest.approx((high - low) / (2.0 * step), rel=1e-4, abs=1e-6)


def test_clusters_of_all_variables_are_exact() -> None:
    model = random_small(9, forbidden=False)
    terms = find_terms(model)
    lower = Lower(terms, Clusters(np.zeros(terms.num_variables, dtype=np.int64), list(range(terms.num_variables))))
    lower.start(np.concatenate([np.full(s, 1.0 / s) for s in terms.num_states]))
    lower.improve(NO_LIMIT)
    assert lower.log_z == pytest.approx(truth(model)[0], abs=1e-9)


def test_single_clusters_are_naive_mean_field() -> None:
    model = instances.ising_grid(3, 3, coupling_max=0.3, seed=0)
    terms = find_terms(model)
    lower = Lower(terms, Clusters(np.arange(9), list(range(9))))
    lower.start(np.full(18, 0.5))
    lower.improve(NO_LIMIT)
    assert lower.log_z == pytest.approx(fastmix.mean_field(model, seed=0).log_z_lower, abs=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_blankets(seed: int) -> None:
    model = random_small(seed)
    terms = find_terms(model)
    log_z, by_state = truth(model)
    low, high = (terms.reduction.expand_node_marginals(x) for x in blanket_bounds(terms))
    p = np.exp(by_state - log_z)
    assert (low <= p + 1e-12).all()
    assert (p <= high + 1e-12).all()


@pytest.mark.parametrize("seed", range(30))
def test_bounds_on_weights_make_bounds_on_marginals(seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = random_small(seed, forbidden=False)
    terms = find_terms(model)
    log_z, by_state = truth(model)
    by_state = left_of(terms, by_state)
    for width in (0.0, 0.1, 3.0):
        lower, upper = (by_state + s * width * rng.random(len(by_state)) for s in (-1.0, 1.0))
        bounds = log_z - width * rng.random(), log_z + width * rng.random()
        (least, most), low, high = tighten(bounds, lower - 1e-12, upper + 1e-12, terms)
        assert bounds[0] <= least <= log_z + 1e-9
        assert log_z - 1e-9 <= most <= bounds[1]
        low, high = combine([(low, high)], terms)
        p = np.exp(by_state - log_z)
        assert (low <= p + 1e-9).all()
        assert (p <= high + 1e-9).all()


# -- draws ----------------------------------------------------------------------------------------------------------


def test_weights_of_draws_are_bounded_and_right_on_average() -> None:
    model = random_small(6, forbidden=False)
    _, upper = rough_covers(model)
    upper.improve(NO_LIMIT, 5)
    log_z, by_state = truth(model)
    found, _ = sampled_bounds(upper, 1.0 - 1e-6, 50_000, np.random.default_rng(0), Clock())
    assert found is not None
    assert found.log_z[0] <= log_z <= found.log_z[1]
    assert found.log_z[1] - found.log_z[0] < 0.3
    terms = upper.terms
    by_state = left_of(terms, by_state)
    assert (found.states_lower <= by_state).all()
    assert (by_state <= found.states_upper).all()


@pytest.mark.slow
def test_confidence_is_kept(tell: Tell) -> None:
    missed = 0
    for seed in range(100):
        model = random_small(seed, forbidden=False)
        result = fastmix.bracket(model, memory_limit=64, time_limit=0.3, confidence=0.9, num_draws=2000, seed=seed)
        try:
            assert_holds(result)
        except AssertionError:
            missed += 1
    tell("brackets", "with a confidence of 0.9", f"missed {missed} of 100")
    assert missed <= 25  # 1e-6 is the chance of more where 10 in a hundred miss


def test_confidence_only_where_draws_tighten() -> None:
    model = instances.ising_grid(5, 5, coupling_max=1.0, seed=0)
    proven = fastmix.bracket(model, memory_limit=1000, time_limit=0.2, seed=0)
    assert proven.confidence is None
    tighter = fastmix.bracket(model, memory_limit=1000, time_limit=0.5, confidence=0.95, num_draws=500, seed=0)
    assert tighter.confidence == 0.95
    assert tighter.gap < proven.gap
    assert_inside(tighter, model)
    assert fastmix.bracket(model, confidence=0.95).confidence is None  # exact


def assert_inside(result: fastmix.BracketResult, model: MarkovRandomField) -> None:
    answer = fastmix.infer(model, method="exact")
    assert answer.log_z is not None
    assert result.log_z_lower <= answer.log_z <= result.log_z_upper
    assert result.misses(answer) is None


# -- covers and clusters --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("max_entries", [4, 16, 64])
def test_covers_and_clusters_fit(seed: int, max_entries: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 40))
    states = rng.integers(2, 4, n).tolist()
    sizes = rng.integers(2, 4, 3 * n)
    scopes = list({tuple(sorted(rng.permutation(n)[: min(n, k)].tolist())) for k in sizes.tolist()})
    limit = max(max_entries, max(math.prod([states[v] for v in s]) for s in scopes))
    weights = rng.random(len(scopes))
    parts_of = Parts(states, scopes, weights, max_entries=limit)
    covers = parts_of.covers(seed=seed)
    assert set().union(*[c.members.tolist() for c in covers]) == set(range(len(scopes)))
    for cover in covers:
        cost = order_cost(states, [scopes[f] for f in cover.members], cover.order.order)
        assert cost.max_entries <= limit * (1.0 + 1e-9)
    clusters = parts_of.clusters()
    assert (clusters.number >= 0).all()
    assert sorted(clusters.order) == list(range(n))
    parts = [part for scope in scopes for part in split_scope(scope, clusters.number)]
    assert order_cost(states, parts, np.array(clusters.order)).max_entries <= limit * (1.0 + 1e-9)


def test_bands_on_a_lattice_are_strips() -> None:
    model = instances.ising_grid(20, 20, coupling_max=1.0, seed=0)
    scopes = [tuple(e) for e in model.edges.tolist()]
    weights = np.ones(len(scopes))
    parts_of = Parts([2] * 400, scopes, weights, max_entries=2.0**8)
    covers = parts_of.covers()
    assert len(covers) == 4  # two in either direction
    assert all(len(c.members) > 0.88 * len(scopes) for c in covers)
    assert _in_bands(scopes, parts_of.clusters().number).mean() > 0.9


# -- the call -------------------------------------------------------------------------------------------------------


def test_keys_of_the_answer() -> None:
    data = fastmix.bracket(random_small(1), seed=3).to_dict()
    keys = {
        "log_z_lower", "log_z_upper", "log_z_kind", "marginals_lower", "marginals_upper", "confidence", "methods",
        "exact", "status", "seconds", "stats", "provenance",
    }  # fmt: skip
    assert set(data) == keys
    assert data["exact"] is True
    assert data["confidence"] is None
    assert data["provenance"]["seed"] == 3
    result = replace(fastmix.bracket(random_small(1)), log_z_lower=-math.inf)
    assert result.to_dict()["log_z_lower"] is None
    assert "log Z" in repr(result)


def test_shapes_that_are_odd() -> None:
    empty = MarkovRandomField.from_tables([], [], [])
    assert fastmix.bracket(empty).log_z_upper == pytest.approx(0.0, abs=1e-12)
    assert fastmix.bracket(empty, memory_limit=1).log_z_upper == pytest.approx(0.0, abs=1e-12)
    alone = MarkovRandomField.from_tables([[0.0], [1.0, 2.0]], [], [], log_constant=5.0)
    for memory in (1, None):
        result = fastmix.bracket(alone, memory_limit=memory, time_limit=1)
        assert_holds(result)
        assert result.gap < 1e-9
    strong = MarkovRandomField.ising([(0, 1), (1, 2), (2, 3), (0, 3), (0, 2)], [1e3, -1e3, 1e3, 1e3, -1e3])
    assert_holds(fastmix.bracket(strong, memory_limit=64, time_limit=0.2, seed=0), 1e-9)


def test_evidence_and_forbidden_states() -> None:
    model = random_small(5, forbidden=False)
    for memory in (64, None):
        result = fastmix.bracket(model, evidence={0: 0}, memory_limit=memory, time_limit=0.3, seed=0)
        states = np.array(list(itertools.product(*[range(s) for s in model.num_states])), dtype=np.int64)
        scores = np.array([model.log_weight(x) for x in states[states[:, 0] == 0]])
        assert result.log_z_lower <= np.logaddexp.reduce(scores) <= result.log_z_upper
        low, high = result.marginal(0)
        assert low[0] == high[0] == 1.0
        assert low[1] == high[1] == 0.0
    never = MarkovRandomField.from_tables([[0, -np.inf], [0, 0]], [(0, 1)], [[[-np.inf, 0], [0, 0]]])
    with pytest.raises(fastmix.ModelError, match="possib"):
        fastmix.bracket(never, evidence={1: 0})


def test_bad_arguments_are_named() -> None:
    model = random_small(2)
    for given in ({"confidence": 1.5}, {"confidence": 0.0}, {"num_draws": 1}, {"memory_limit": -1}, {"time_limit": 0}):
        with pytest.raises(ValueError, match=next(iter(given))):
            fastmix.bracket(model, **given)


@pytest.mark.parametrize("seed", range(6))
def test_bounds_are_never_looser_than_before(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each bound that is found on the way holds, and none undoes an earlier one."""
    model = random_small(seed, forbidden=False)
    log_z, by_state = truth(model)
    found: list[tuple[float, float]] = []
    plain = Work._take

    def take(work: Work, *given: Any) -> None:
        plain(work, *given)
        found.append(work.log_z)
        assert work.terms is not None
        slack = 1e-12 * (1.0 + abs(log_z))
        assert (work.states[0] <= left_of(work.terms, by_state) - work.constant + slack).all()
        assert (work.states[1] >= left_of(work.terms, by_state) - work.constant - slack).all()

    monkeypatch.setattr(Work, "_take", take)
    result = fastmix.bracket(model, memory_limit=64, time_limit=0.3, seed=seed)
    assert [low for low, _ in found] == sorted(low for low, _ in found)
    assert [high for _, high in found] == sorted((high for _, high in found), reverse=True)
    if found and not result.exact:
        assert result.gap <= (found[-1][1] - found[-1][0]) * (1.0 + 1e-9) + 1e-9


@pytest.mark.parametrize("family", ["isolated", "grid", "complete", "large tables"])
def test_a_limit_ends_large_models(family: str) -> None:
    """A coarse guard: first bounds of large models come from whole arrays, and what takes longer is not begun."""
    rng = np.random.default_rng(0)
    if family == "isolated":
        n = 200_000
        model = MarkovRandomField(np.full(n, 2), rng.normal(size=2 * n), np.zeros((0, 2), dtype=np.int64), np.zeros(0))
    elif family == "grid":
        model = instances.ising_grid(200, 200, coupling_max=1.0, seed=0)
    elif family == "complete":
        pairs = list(itertools.combinations(range(400), 2))
        model = MarkovRandomField.ising(pairs, 0.05 * rng.normal(size=len(pairs)), rng.normal(size=400))
    else:
        edges = np.array(sorted(fastmix.graphs.grid_edges(8, 8).tolist()))
        model = MarkovRandomField(np.full(64, 80), rng.normal(size=64 * 80), edges, rng.normal(size=len(edges) * 6400))
    began = time.process_time()
    result = fastmix.bracket(model, time_limit=0.2, seed=0)
    assert time.process_time() - began - result.stats["compile_seconds"] < 10.0
    assert result.log_z_lower <= result.log_z_upper
    assert result.exact == (family == "isolated")


def test_interrupting_keeps_the_best() -> None:
    model = instances.ising_grid(6, 6, coupling_max=1.0, seed=0)

    def stop(progress: fastmix.Progress) -> None:
        if progress.unit == "iterations":
            raise KeyboardInterrupt

    with pytest.raises(fastmix.Interrupted) as caught:
        fastmix.bracket(model, memory_limit=2000, time_limit=20, seed=0, progress=stop)
    result = caught.value.result
    assert result.status == "interrupted"
    assert result.methods["upper"] == "covers"
    assert_inside(result, model)


@pytest.mark.parametrize("time_limit", [0.001, 0.5])
def test_large_models_are_answered(time_limit: float) -> None:
    """Also where the time does for the first bounds alone: largest entries and mean field."""
    model = instances.ising_grid(60, 60, coupling_max=1.0, seed=0)
    result = fastmix.bracket(model, time_limit=time_limit, seed=0)
    assert result.log_z_lower < result.log_z_upper < result.log_z_lower + 6000.0
    assert (result.node_lower <= result.node_upper).all()


# -- beside an answer -----------------------------------------------------------------------------------------------


def test_infer_adds_it() -> None:
    model = random_small(0, forbidden=False)
    result = fastmix.infer(model, bracket=True)
    assert result.bracket.exact
    assert result.status == "ok"
    assert "bracket" in result.to_dict()
    assert "bracket" not in fastmix.infer(model).to_dict()


def test_an_answer_outside_is_not_mixed(monkeypatch: pytest.MonkeyPatch) -> None:
    from fastmix.methods import inference

    table = 0.1 * np.array([[1, -1], [-1, 1]])
    names = {"variable_names": ["rain", "wet"], "state_names": [["no", "yes"]] * 2}
    model = MarkovRandomField.from_tables(np.zeros((2, 2)), [(0, 1)], [table], **names)
    right = fastmix.infer(model, method="gibbs", seed=0, time_limit=0.5, bracket=True)
    assert right.status == "ok"
    wrong = replace(right, node_marginals=np.array([0.9, 0.1, 0.5, 0.5]), bracket=None)
    monkeypatch.setattr(inference, "run_method", lambda *_, **__: wrong)
    judged = fastmix.infer(model, method="gibbs", bracket=True)
    assert judged.status == Status.NOT_MIXED
    assert "the probability 0.9 of state no of variable rain is outside its bracket" in judged.stats["note"]


def test_answers_without_errors_are_told_only() -> None:
    model = MarkovRandomField.ising([(0, 1)], 0.1)
    found = fastmix.bracket(model)
    answer = InferenceResult(model, "x", Status.OK, np.array([0.5, 0.5, 0.5, 0.5]), None, 1.0, log_z_kind="estimate")
    missed = found.misses(answer)
    assert missed is not None
    assert "log Z" in missed


# -- walks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds(200, quick=20))
def test_walks_bound_marginals(seed: int) -> None:
    model = random_small(3 * seed if seed % 2 else seed)  # every second one has binary variables alone
    terms = find_terms(model)
    log_z, by_state = truth(model)
    p = np.exp(left_of(terms, by_state) - log_z)
    for seconds in (1e-6, 1.0):
        found = walk_bounds(terms, Clock(seconds))
        if found is None:
            return
        assert (found.lower <= p + 1e-12).all()
        assert (p <= found.upper + 1e-12).all()


@pytest.mark.parametrize("seed", range(12))
def test_whole_trees_of_walks_are_exact(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 6))
    pairs = [pair for pair in itertools.combinations(range(n), 2) if rng.random() < 0.8] or [(0, 1)]
    model = MarkovRandomField.ising(pairs, 2.0 * rng.normal(size=len(pairs)), rng.normal(size=n))
    by_state = truth(model)[1]
    fields = _fields(find_terms(model))
    assert fields is not None
    roots, low, high = np.arange(n), np.empty(n), np.empty(n)
    nodes, path = np.empty(n, dtype=np.int64), np.full(n, -1, dtype=np.int64)
    for kernel in (follow_walks, getattr(follow_walks, "py_func", follow_walks)):
        kernel(*fields, _mirror(fields), np.zeros(n), roots, 0.0, 10**9, path, low, high, nodes)
        np.testing.assert_array_equal(low, high)
        np.testing.assert_allclose(low, 0.5 * (by_state[1::2] - by_state[::2]), atol=1e-9)


def test_walks_with_the_wrong_state_at_a_loop_fail() -> None:
    model = MarkovRandomField.ising([(0, 1), (1, 2), (2, 0)], [1.0, -0.7, 0.4], [0.3, -0.2, 0.5])
    fields = _fields(find_terms(model))
    assert fields is not None
    low, high = np.empty(3), np.empty(3)
    path, nodes = np.full(3, -1, dtype=np.int64), np.empty(3, dtype=np.int64)
    mirror = np.full(6, -1)  # the edge that closes always comes first
    follow_walks(*fields, mirror, np.zeros(3), np.arange(3), 0.0, 10**9, path, low, high, nodes)
    by_state = truth(model)[1]
    assert np.abs(low - 0.5 * (by_state[1::2] - by_state[::2])).max() > 1e-2


def test_walks_shorten_brackets_of_weak_lattices() -> None:
    model = instances.ising_grid(6, 6, coupling_max=0.3, field_max=0.1, seed=0)
    terms = find_terms(model)
    found = walk_bounds(terms, Clock(0.3))
    assert found is not None
    low, high = blanket_bounds(terms)
    assert float((found.upper - found.lower).mean()) < 0.1 * float((high - low).mean())


# -- cases ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seed", "num_splits"),
    [*((seed, 4) for seed in range(4)), *(pytest.param(seed, 30, marks=pytest.mark.slow) for seed in range(200))],
)
def test_cases_hold_after_every_split(seed: int, num_splits: int) -> None:
    model = random_small(seed)
    terms, upper = rough_covers(model)
    if not terms.num_variables:
        return
    log_z, by_state = truth(model)
    by_state = left_of(terms, by_state)
    slack = 1e-12 * (1.0 + abs(log_z))  # of the enumeration
    scopes = terms.scopes[terms.num_variables :]
    lower = Lower(terms, Parts(terms.num_states, scopes, terms.weights, max_entries=4.0).clusters())
    upper.improve(NO_LIMIT, 3)
    start = np.full(terms.num_unary, -np.inf), upper.states
    cases = Cases(upper, lower, (-math.inf, upper.log_z), start)
    widths = [upper.log_z - log_z]
    for _ in range(num_splits):
        if not cases.split(NO_LIMIT):
            break
        assert cases.log_z[0] <= log_z <= cases.log_z[1]
        assert (cases.states[0] <= np.where(np.isfinite(by_state), by_state + slack, by_state)).all()
        assert (by_state <= cases.states[1] + slack).all()
        widths.append(cases.log_z[1] - log_z)
    assert widths[-1] <= widths[0]


def test_all_cases_are_exact() -> None:
    model = random_small(9, forbidden=False)
    _, upper = rough_covers(model)
    upper.improve(NO_LIMIT, 3)
    cases = Cases(upper, None, (-math.inf, upper.log_z), (np.full(len(upper.states), -np.inf), upper.states))
    while cases.split(NO_LIMIT):
        pass
    assert cases.log_z[1] == pytest.approx(truth(model)[0], abs=1e-8)


def test_a_lower_bound_where_entries_are_forbidden() -> None:
    rng = np.random.default_rng(0)
    factors = []
    for i in range(60):
        scope = tuple(int(v) for v in rng.choice(40, 3, replace=False))
        table = np.where(rng.random((2, 2, 2)) < 0.3, -np.inf, rng.normal(size=(2, 2, 2)))
        table[i % 2, 0, 0] = table[0, 0, 0] = 0.0
        factors.append((scope, table))
    model = MarkovRandomField.from_factors([2] * 40, factors)
    result = fastmix.bracket(model, memory_limit=2e4, time_limit=0.3, seed=0)
    assert not result.exact
    exact = fastmix.infer(model, method="exact").log_z
    assert exact is not None
    assert -math.inf < result.log_z_lower <= exact <= result.log_z_upper
