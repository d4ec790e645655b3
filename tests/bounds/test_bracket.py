"""`bracket` against enumeration, its result, and what ends it."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from bounds_models import assert_holds, assert_inside, random_small, truth

import fastmix
from fastmix import MarkovRandomField, instances
from fastmix.marginals import InferenceResult
from fastmix.results import Status
from strategies import seeds

Tell = Callable[[str, str, str], None]


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


def test_keys_of_the_answer() -> None:
    data = fastmix.bracket(random_small(1), seed=3).to_dict()
    keys = {
        "log_z_lower", "log_z_upper", "log_z_kind", "marginals_lower", "marginals_upper", "confidence", "methods",
        "exact", "status", "advice", "seconds", "seed", "evidence", "stats", "provenance", "type", "variable_names",
        "state_names",
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


def test_infer_adds_it() -> None:
    model = random_small(0, forbidden=False)
    result = fastmix.infer(model, bracket=True)
    assert result.bracket.exact
    assert result.status == "ok"
    assert "bracket" in result.to_dict()
    assert "bracket" not in fastmix.infer(model).to_dict()


def test_an_answer_outside_is_not_mixed(monkeypatch: pytest.MonkeyPatch) -> None:
    from fastmix.inference import infer as inference

    table = 0.1 * np.array([[1, -1], [-1, 1]])
    names = {"variable_names": ["rain", "wet"], "state_names": [["no", "yes"]] * 2}
    model = MarkovRandomField.from_tables(np.zeros((2, 2)), [(0, 1)], [table], **names)
    right = fastmix.infer(model, method="gibbs", seed=0, time_limit=0.5, bracket=True)
    assert right.status == "ok"
    wrong = replace(right, node_marginals=np.array([0.9, 0.1, 0.5, 0.5]), bracket=None)
    monkeypatch.setattr(inference, "answer", lambda *_: wrong)
    judged = fastmix.infer(model, method="gibbs", bracket=True)
    assert judged.status == Status.NOT_MIXED
    assert "the probability 0.9 of state no of variable rain is outside its bracket" in judged.stats["note"]


def test_answers_without_errors_are_told_only() -> None:
    model = MarkovRandomField.ising([(0, 1)], 0.1)
    found = fastmix.bracket(model)
    halves = np.array([0.5, 0.5, 0.5, 0.5])
    answer = InferenceResult(model=model, method="x", node_marginals=halves, log_z=1.0, log_z_kind="estimate")
    missed = found.misses(answer)
    assert missed is not None
    assert "log Z" in missed


# -- where no configuration is possible -----------------------------------------------------------------------------


def four_neighbors_and_three_colors() -> MarkovRandomField:
    """Four variables that must all differ, with three states: only a search finds that none is possible."""
    differ = np.where(np.eye(3) > 0, -np.inf, 0.0)
    pairs = list(itertools.combinations(range(4), 2))
    return MarkovRandomField.from_tables([np.zeros(3)] * 4, pairs, [differ] * len(pairs))


def test_a_proof_that_nothing_is_possible_is_an_answer() -> None:
    model = four_neighbors_and_three_colors()
    result = fastmix.bracket(model, seed=0)
    assert (result.log_z_kind, result.log_z_lower, result.log_z_upper) == ("zero", -math.inf, -math.inf)
    assert (result.gap, result.exact, result.confidence) == (0.0, True, None)
    assert (result.node_lower, result.marginals_lower, result.marginals_upper) == (None, None, None)
    assert "Z = 0" in repr(result)
    assert "Z = 0" not in repr(fastmix.bracket(random_small(1)))
    assert result.facts() == {"log Z": "-inf, proven"}
    assert result.shown_rows()[1] == []
    assert "proven" in result.summary()
    assert result.to_dict()["marginals_lower"] is None
    for call in (result.columns, result.plot, lambda: result.marginal(0)):
        with pytest.raises(fastmix.ImpossibleModelError):
            call()
    with pytest.raises(fastmix.ImpossibleEvidenceError):
        fastmix.bracket(model, evidence={0: 0}, seed=0)


def test_an_answer_beside_a_proof_that_nothing_is_possible() -> None:
    none = fastmix.bracket(four_neighbors_and_three_colors(), seed=0)
    zero = fastmix.infer(four_neighbors_and_three_colors(), method="exact")
    assert zero.log_z_kind == "zero"
    assert none.misses(zero) is None
    possible = MarkovRandomField.from_tables([np.zeros(3)] * 4, [], [])
    assert "Z = 0" in str(none.misses(fastmix.infer(possible, method="exact")))
    assert fastmix.bracket(possible, seed=0).misses(zero) is None


# -- the result -----------------------------------------------------------------------------------------------------


def test_answers_of_other_kinds_and_models_are_refused() -> None:
    result = fastmix.bracket(MarkovRandomField.ising([(0, 1)], 0.1))
    with pytest.raises(TypeError, match=r"^result .*got 0\.5$"):
        result.misses(0.5)
    other = fastmix.infer(MarkovRandomField.ising([(0, 1), (1, 2)], 0.1))
    with pytest.raises(ValueError, match=r"^result .*MarkovRandomField"):
        result.misses(other)
    with pytest.raises(ValueError, match=r"^num_errors .*-1$"):
        result.misses(fastmix.infer(MarkovRandomField.ising([(0, 1)], 0.1)), num_errors=-1)


def test_what_is_allowed_to_draws() -> None:
    """Independent draws have an error of their number; an answer without errors has next to none."""
    model = MarkovRandomField.ising([(0, 1)], 0.05, [0.2, -0.1])
    result = fastmix.bracket(model)
    drawn = fastmix.perfect_sample(model, num_draws=500, seed=0)
    assert result.misses(drawn) is None
    assert result.misses(drawn, num_errors=0) is not None
    empty = MarkovRandomField.from_tables([], [], [])
    assert fastmix.bracket(empty).misses(fastmix.infer(empty)) is None


def test_rows_and_pictures() -> None:
    names = {"variable_names": ["rain", "wet"], "state_names": [["no", "yes"], ["no", "some", "much"]]}
    table = np.random.default_rng(0).normal(size=(2, 3))
    model = MarkovRandomField.from_tables([np.zeros(2), np.zeros(3)], [(0, 1)], [table], **names)
    result = fastmix.bracket(model, memory_limit=64, time_limit=0.05, seed=0)
    columns = result.columns()
    assert columns["variable"] == ["rain", "rain", "wet", "wet", "wet"]
    assert columns["state"] == ["no", "yes", "no", "some", "much"]
    np.testing.assert_array_equal(columns["lower"], result.node_lower)
    np.testing.assert_array_equal(columns["upper"], result.node_upper)
    rain, wet = result.marginals_lower
    np.testing.assert_array_equal(rain, result.marginal("rain")[0])
    np.testing.assert_array_equal(wet, result.marginal(1)[0])
    assert result.title() == "bracket"
    assert replace(result, confidence=0.95).title() == "bracket (confidence 0.95)"
    assert set(result.facts()) == {"log Z", "lower", "upper", "marginals"}
    pytest.importorskip("matplotlib")
    axes = result.plot()
    lines = [line for line in axes.get_lines() if len(line.get_ydata()) > 0]
    assert lines or axes.collections
