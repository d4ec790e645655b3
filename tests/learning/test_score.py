from __future__ import annotations

import importlib
import json
from typing import Any

import numpy as np
import pytest
from mode_models import draw_modes
from scipy.special import comb

import fastmix
from fastmix import Interrupted, MarkovRandomField, ModelError, Status, score
from fastmix._clock import Clock, OutOfTimeError
from fastmix.exact import draw_exact
from fastmix.graphs import complete_edges
from fastmix.learning import annealed_log_z, masses, pseudo_likelihood, read_data
from fastmix.learning.annealed_log_z import Annealer, bennett, combine, turned
from fastmix.learning.pseudo_likelihood import pseudo_log_likelihoods
from oracle import learning as naive


def small(seed: int = 0) -> MarkovRandomField:
    return naive.random_model([2, 3, 1, 2, 4], complete_edges(5), seed)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_exact_scores(missing: float) -> None:
    model, rng = small().replace(log_constant=0.7), np.random.default_rng(1)
    rows = np.stack([rng.integers(0, model.num_states) for _ in range(20)])
    rows = np.where(rng.random(rows.shape) < missing, -1, rows)
    rows[0] = 0
    weights = rng.random(20)
    result = score(model, rows, weights=weights)
    expected = naive.log_likelihood(model, rows)
    np.testing.assert_allclose(result.per_row, expected)
    assert result.log_likelihood == pytest.approx(weights @ expected / weights.sum())
    assert (result.std_error, result.log_z_method, result.status) == (0.0, "enumeration", Status.OK)
    assert result.log_z_kind == "exact"
    assert result.log_z == pytest.approx(fastmix.infer(model, method="exact").log_z)
    if missing:
        assert result.pseudo_log_likelihood is None
    else:
        pseudo = [naive.pseudo_log_likelihood(model, row) for row in rows]
        assert result.pseudo_log_likelihood == pytest.approx(weights @ pseudo / weights.sum())


def test_conditional_likelihood_of_chosen_variables() -> None:
    model, rng = small(1), np.random.default_rng(2)
    rows = np.stack([rng.integers(0, model.num_states) for _ in range(10)])
    hidden = rows.copy()
    hidden[:, [1, 3]] = -1
    expected = np.mean([naive.log_mass(model, x) - naive.log_mass(model, y) for x, y in zip(rows, hidden, strict=True)])
    assert score(model, rows, target=[1, 3]).conditional_log_likelihood == pytest.approx(expected)


def test_conditional_likelihood_where_values_are_missing() -> None:
    model, rng = small(1), np.random.default_rng(2)
    rows = np.stack([rng.integers(0, model.num_states) for _ in range(10)])
    rows[rng.random(rows.shape) < 0.3] = -1
    others = rows.copy()
    others[:, [1, 3]] = -1
    expected = np.mean([naive.log_mass(model, x) - naive.log_mass(model, y) for x, y in zip(rows, others, strict=True)])
    assert score(model, rows, target=[1, 3]).conditional_log_likelihood == pytest.approx(expected)
    machine = fastmix.learn(rng.integers(0, 2, size=(50, 3)), hidden=1, seed=0).model
    each = score(machine, [[0, 1, 1], [1, 1, 1]], target=["0"])
    assert each.conditional_log_likelihood is not None
    both = score(machine, [[0, 1, 1], [1, 1, 1]]).per_row
    assert each.conditional_log_likelihood == pytest.approx(np.mean(both) - np.logaddexp(*both))


def test_missing_values_of_any_model_are_summed_over() -> None:
    rng = np.random.default_rng(0)
    table = rng.standard_normal((2, 3, 2))
    table[0, 2, 1] = -np.inf
    model = MarkovRandomField.from_factors([2, 3, 2, 2], [((0, 1, 2), table), ((2, 3), [[0.0, -np.inf], [1.0, 0.5]])])
    rows = np.array([[0, 1, 1, 1], [0, -1, 1, -1], [-1, -1, -1, -1], [1, 2, -1, 0]])
    result = score(model, rows, target=[3])
    np.testing.assert_allclose(result.per_row, naive.log_likelihood(model, rows), atol=1e-12)
    others = np.where([0, 0, 0, 1], -1, rows)
    assert result.conditional_log_likelihood == pytest.approx(
        np.mean(naive.log_likelihood(model, rows) - naive.log_likelihood(model, others))
    )
    impossible = MarkovRandomField.from_tables([[0, -np.inf], [0, 0]], [], [])
    assert score(impossible, [[1, 0]], target=[1]).conditional_log_likelihood == -np.inf
    dense = [((i, j), rng.standard_normal((2, 2))) for i, j in complete_edges(28)]
    many = MarkovRandomField.from_factors([2] * 28, [((0, 1, 2), rng.standard_normal((2, 2, 2))), *dense])
    with pytest.raises(fastmix.ResourceError, match=r"65,536 .*factors, got 1.342e\+08"):
        score(many, np.r_[0, np.full(27, -1)][None])


def test_rows_without_weight_have_a_score() -> None:
    model = MarkovRandomField.from_tables([[0, 1], [0, 0]], [(0, 1)], [[[0, -np.inf], [0, 0]]])
    result = score(model, [[0, 0], [0, 1], [1, 1]], weights=[1, 0, 2], target=[0])
    whole = score(model, [[0, 0], [1, 1], [1, 1]], target=[0])
    assert (len(result.per_row), result.per_row[1]) == (3, -np.inf)
    for name in ("log_likelihood", "pseudo_log_likelihood", "conditional_log_likelihood"):
        assert getattr(result, name) == pytest.approx(getattr(whole, name))
    assert np.isfinite(result.std_error_data)


def test_annealing_agrees_with_the_exact_log_z() -> None:
    apart = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        n = 12
        model = MarkovRandomField.ising(complete_edges(n), 0.25 * rng.standard_normal(66), rng.standard_normal(n))
        rows = draw_exact(model, num_draws=300, seed=seed)
        exact, annealed = score(model, rows), score(model, rows, method="annealing", seed=seed)
        assert (annealed.status, annealed.log_z_method) == (Status.OK, "annealing")
        assert 0.0 < annealed.std_error <= 0.01
        apart.append((annealed.log_z - exact.log_z) / annealed.std_error)
        low, high = annealed.log_z_both_ways or (np.nan, np.nan)
        assert low - 0.05 < exact.log_z < high + 0.05
        np.testing.assert_allclose(annealed.per_row - exact.per_row, exact.log_z - annealed.log_z)
    assert max(np.abs(apart)) < 5.5  # three normal deviates beyond 5.5: 1e-7


def test_results_tell_what_ended_the_annealing() -> None:
    model = MarkovRandomField.ising(complete_edges(10), 0.1)
    rows = draw_exact(model, num_draws=50, seed=0)
    ends = {}
    for name, options in (
        ("exact", {"method": "exact"}), ("tol", {"tol": 0.05}), ("time", {"tol": 1e-9, "time_limit": 3.0})
    ):  # fmt: skip
        ends[name] = score(model, rows, seed=0, **{"method": "annealing", **options}).stats["stopped_by"]
    assert ends == {"exact": "done", "tol": "accuracy", "time": "time_limit"}


def test_annealing_of_several_states() -> None:
    model = naive.random_model([3] * 6, complete_edges(6), 3, scale=0.4)
    rows = draw_exact(model, num_draws=200, seed=0)
    exact, annealed = score(model, rows), score(model, rows, method="annealing", seed=0)
    assert abs(exact.log_z - annealed.log_z) < 5.5 * annealed.std_error


def test_directions_that_disagree_are_not_ok() -> None:
    rng = np.random.default_rng(0)
    forward, backward = rng.normal(3.0, 0.1, 1024), rng.normal(-3.0, 0.1, 1024)
    good = combine(-np.r_[forward, -backward][None], 10, "cpu")
    bad = combine(-np.r_[forward, 1.0 - backward][None], 10, "cpu")
    assert (good.status, bad.status) == (Status.OK, Status.NOT_MIXED)


def test_bennetts_estimate() -> None:
    # Normal log-weights of both directions whose ratio is known: means m + s^2/2 apart, as Crooks' relation demands.
    rng, log_ratio, spread = np.random.default_rng(0), 1.3, 1.5
    forward = rng.normal(log_ratio - spread**2 / 2, spread, 200_000)
    backward = rng.normal(-log_ratio - spread**2 / 2, spread, 200_000)
    assert bennett(forward, backward) == pytest.approx(log_ratio, abs=0.02)


def test_forbidden_states_have_probability_0() -> None:
    model = MarkovRandomField.from_tables([[0, 0], [0, 0]], [(0, 1)], [[[0, -np.inf], [0, 0]]])
    result = score(model, [[0, 0], [0, 1]])
    assert result.per_row.tolist() == pytest.approx([-np.log(3), -np.inf])
    assert result.to_dict()["log_likelihood"] is None
    with pytest.raises(fastmix.ResourceError, match=r"log Z .*forbidden"):
        score(model, [[0, 0]], method="annealing")


def test_results_can_be_written() -> None:
    result = score(small(), [[0, 0, 0, 0, 0]], seed=3, target=(1, 2), time_limit=60.0)
    options = result.provenance["options"]
    assert (options["target"], options["time_limit"]) == ([1, 2], 60.0)
    facts = json.loads(json.dumps(result.to_dict()))
    for key in (
        "log_likelihood", "std_error", "std_error_data", "log_z", "log_z_std_error", "log_z_method",
        "pseudo_log_likelihood", "num_rows", "status",
    ):  # fmt: skip
        assert key in facts
    assert "ScoreResult(log_likelihood=" in repr(result)


@pytest.mark.parametrize(
    ("data", "options", "error", "message"),
    [
        ([[0, 0]], {}, ModelError, r"\b5 variables, got 2$"),
        ([[0, 5, 0, 0, 0]], {}, ModelError, "below 3 in column 1, got 5 in row 0"),
        ([[0, 0, 0, 0, 0]], {"method": "x"}, ValueError, "^method must"),
        ([[0, 0, 0, 0, 0]], {"tol": 0}, ValueError, "^tol must"),
        ([[0, 0, 0, 0, 0]], {"target": [9]}, ModelError, r"^variable must .*0 to 4"),
        ([[0, 0, 0, 0, 0]], {"target": 1}, ValueError, r"^target must .*got 1$"),
        ([[0, 0, 0, 0, 0]], {"target": "ab"}, ValueError, r"^target must .*got 'ab'$"),
        ([[0, 0, 0, 0, 0]], {"target": []}, ValueError, "^target must"),
        ([[0, 0, 0, 0, 0]], {"target": [1, 1]}, ValueError, "^target must"),
        ([[0, 0, 0, 0, 0]], {"target": {0: 1}}, ValueError, "^target must"),
        ([[0, 0, 0, 0, 0]], {"backend": "gpu"}, ValueError, r"^backend must .*'gpu'"),
    ],
)
def test_bad_arguments(data: Any, options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        score(small(), data, **options)


@pytest.mark.parametrize("kind", ["finite", "strong", "forbidden"])
def test_pseudo_likelihoods_of_large_sparse_models(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, rng = small(), np.random.default_rng(1)
    rows = np.stack([rng.integers(0, model.num_states) for _ in range(20)])
    if kind == "strong":
        model = model.with_parameters(30.0 * model.parameters)
    if kind == "forbidden":
        tables = model.log_pairwise.copy()
        tables[rng.permutation(len(tables))[:3]] = -np.inf
        model = model.replace(log_pairwise=tables)
    monkeypatch.setattr(pseudo_likelihood, "MAX_DENSE_VARIABLES", 0)
    monkeypatch.setattr(pseudo_likelihood, "MIN_DENSITY", 2.0)
    monkeypatch.setattr(pseudo_likelihood, "CHUNK_NUMBERS", 40)
    found = pseudo_log_likelihoods(model, read_data(rows, model=model))
    possible = model.log_weight(rows) > -np.inf
    assert possible.any()
    expected = [naive.pseudo_log_likelihood(model, row) for row in rows[possible]]
    np.testing.assert_allclose(found[possible], expected, atol=1e-12)
    assert (found[~possible] == -np.inf).all()


def test_without_time_there_is_no_pseudo_likelihood(monkeypatch: pytest.MonkeyPatch) -> None:
    path = MarkovRandomField.ising(np.column_stack([np.arange(2999), np.arange(1, 3000)]), 0.2)
    rows = np.random.default_rng(0).integers(0, 2, (5, 3000))
    assert score(path, rows).pseudo_log_likelihood is not None
    with pytest.raises(OutOfTimeError):
        pseudo_log_likelihoods(path, read_data(rows, model=path), Clock(1e-9))
    module = importlib.import_module("fastmix.learning.score")  # as an attribute it is the function
    monkeypatch.setattr(module, "PSEUDO_TIME_SHARE", 1e-12)
    assert score(path, rows, time_limit=100).pseudo_log_likelihood is None


def test_an_interrupted_annealing_has_a_result_once_log_z_is_known() -> None:
    model = naive.random_model([2] * 8, complete_edges(8), 0)

    def stop(progress: fastmix.Progress) -> None:
        if progress.unit == "rounds":
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match=r"^score ") as stopped:
        score(model, np.zeros((3, 8), dtype=int), method="annealing", tol=1e-9, num_chains=64, seed=0, progress=stop)
    result = stopped.value.result
    assert (result.status, result.stats["stopped_by"]) == (Status.INTERRUPTED, "interrupt")
    assert result.log_z == pytest.approx(fastmix.infer(model, method="exact").log_z, abs=0.5)


def test_machines_are_scored_on_what_is_visible() -> None:
    weights, rows = np.array([[1.0, -2.0], [0.5, 0.0], [0.3, 1.0]]), np.array([[0, 1, 1], [1, 0, 0]])
    model = fastmix.MarkovRandomField.rbm(weights, b=[0.1, 0.2, -0.3], c=[0.4, -0.5])
    free = rows @ [0.1, 0.2, -0.3] + np.logaddexp(0.0, rows @ weights + [0.4, -0.5]).sum(axis=1)
    expected = free - fastmix.infer(model, method="exact").log_z
    np.testing.assert_allclose(fastmix.score(model, rows).per_row, expected, atol=1e-12)


def test_rows_of_one_mode_do_not_hide_the_other() -> None:
    n = 40
    model = fastmix.MarkovRandomField.ising(complete_edges(n), 4.0 / n)
    ups = np.arange(n + 1)
    sums = 2.0 * ups - n
    log_z = np.logaddexp.reduce(np.log(comb(n, ups)) + 2.0 / n * (sums**2 - n))
    found = fastmix.score(model, np.ones((20, n), dtype=int), method="annealing", tol=0.02, num_chains=512, seed=0)
    assert found.status is Status.OK
    assert abs(found.log_z - log_z) < 5 * found.log_z_std_error < 0.2


@pytest.mark.parametrize("seed", range(6))
def test_annealing_finds_modes_that_the_data_are_not_in(seed: int) -> None:
    case = draw_modes(seed, most_variables=20)
    rows = case.rows[seed % len(case.rows)]
    found = fastmix.score(case.model, rows, method="annealing", seed=seed)
    assert (found.status, found.log_z_kind) == (Status.OK, "estimate")
    assert abs(found.log_z - case.log_z) < 5.0 * found.log_z_std_error < 0.2


@pytest.mark.parametrize("rows", [0, 1])
def test_a_mode_of_little_mass_counts(rows: int) -> None:
    n = 12
    field = np.log(4.0) / 24.0
    model = fastmix.MarkovRandomField.ising(complete_edges(n), 0.5, field)
    ups = np.arange(n + 1)
    sums = 2.0 * ups - n
    log_z = np.logaddexp.reduce(np.log(comb(n, ups)) + 0.25 * (sums**2 - n) + field * sums)
    found = fastmix.score(model, np.full((50, n), rows), method="annealing", seed=0)
    assert found.status is Status.OK
    assert abs(found.log_z - log_z) < 5 * found.log_z_std_error < 0.1


@pytest.mark.parametrize("n", [30, 400])
def test_models_without_couplings_are_exact_at_once(n: int) -> None:
    rng = np.random.default_rng(n)
    edges = complete_edges(n)
    fields = rng.normal(size=(n, 2))
    tables = np.repeat(rng.normal(size=len(edges)), 4)
    model = MarkovRandomField(np.full(n, 2), fields.reshape(-1), edges, tables)
    found = score(model, rng.integers(0, 2, (5, n)), method="auto")
    assert (found.status, found.log_z_kind) == (Status.OK, "exact")
    assert found.log_z == pytest.approx(np.logaddexp(*fields.T).sum() + tables[::4].sum())


@pytest.mark.parametrize("seed", range(5))
def test_out_of_time_there_is_a_lower_bound(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = naive.random_model([2, 3, 2, 4, 2], complete_edges(5), seed).replace(log_constant=2.0)
    rows = np.stack([np.random.default_rng(seed).integers(0, model.num_states) for _ in range(20)])

    def late(self: Any) -> None:
        raise OutOfTimeError

    monkeypatch.setattr(Annealer, "pilot", late)
    found = score(model, rows, method="annealing", seed=0, time_limit=100.0)
    facts = found.to_dict()
    assert (found.log_z_kind, found.status, found.std_error) == ("bound", Status.TIME_LIMIT, np.inf)
    assert (facts["log_z_kind"], facts["std_error"], facts["log_z"]) == ("bound", None, found.log_z)
    exact = fastmix.infer(model, method="exact").log_z
    assert exact is not None
    assert exact - 20.0 < found.log_z <= exact


@pytest.mark.parametrize("seed", range(6))
def test_log_z_is_between_its_bounds(seed: int) -> None:
    counts = np.random.default_rng(seed).integers(1, 4, 6)
    model = naive.random_model(counts.tolist(), complete_edges(6), seed).replace(log_constant=1.0)
    rows = np.zeros((3, 6), dtype=int)
    exact = score(model, rows)
    assert exact.log_z_bounds == (exact.log_z, exact.log_z)
    for options in ({}, {"time_limit": 1.0}):
        found = score(model, rows, method="annealing", num_chains=64, tol=0.5, seed=0, **options)
        low, high = found.log_z_bounds
        assert low <= exact.log_z + 1e-9
        assert exact.log_z - 1e-9 <= high
        assert np.isfinite([low, high]).all()
        assert found.to_dict()["log_z_bounds"] == [low, high]


def test_a_large_model_has_both_bounds_in_time() -> None:
    rng = np.random.default_rng(0)
    edges = np.unique(np.sort(rng.integers(0, 2000, (4000, 2)), axis=1), axis=0)
    edges = edges[edges[:, 0] != edges[:, 1]]
    model = MarkovRandomField.ising(edges, rng.normal(0.0, 0.5, len(edges)), rng.normal(-1.0, 0.5, 2000))
    rows = rng.integers(0, 2, (20, 2000))
    for limit in (1e-3, 2.0):
        found = score(model, rows, time_limit=limit, seed=0)
        low, high = found.log_z_bounds
        assert -np.inf < low < high < np.inf
        assert low - 1e-9 <= found.log_z <= high + 1e-9


@pytest.mark.parametrize("seed", range(3))
def test_without_time_to_begin_there_is_a_bound(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    edges = np.array([(i, j) for i in range(8) for j in range(i + 1, 8)])
    model = MarkovRandomField.ising(edges, rng.normal(size=len(edges)), rng.normal(size=8))
    monkeypatch.setattr(annealed_log_z, "SECONDS_PER_ENTRY_TO_MAKE", 1e9)
    found = score(model, rng.integers(0, 2, size=(20, 8)), method="annealing", seed=0, time_limit=100.0)
    assert (found.log_z_kind, found.status, found.std_error) == ("bound", Status.TIME_LIMIT, np.inf)
    exact = fastmix.infer(model, method="exact").log_z
    assert exact is not None
    assert found.log_z <= exact
    without = score(model, [[0] * 8], method="annealing", seed=0, tol=0.5)  # no limit, no guess
    assert without.log_z_kind == "estimate"


def test_sweeps_back_are_those_ahead_in_the_opposite_order() -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        pairs = np.array([(i, j) for i in range(9) for j in range(i + 1, 9) if rng.random() < 0.4] or [(0, 1)])
        structure = MarkovRandomField.ising(pairs, 0.1, np.zeros(9)).structure
        order, starts = structure.visit_order
        back, back_starts = turned(structure).visit_order
        np.testing.assert_array_equal(back, order[::-1])
        np.testing.assert_array_equal(np.diff(back_starts), np.diff(starts)[::-1])
        np.testing.assert_array_equal(structure.visit_order[0], order)


def test_rows_that_were_not_reached_in_time_have_no_score(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small()
    module = importlib.import_module("fastmix.learning.score")
    monkeypatch.setattr(module, "MASS_TIME_SHARE", 1e-12)
    monkeypatch.setattr(masses, "CHUNK_NUMBERS", 20)
    found = score(model, np.zeros((20, 5), dtype=int) + (np.arange(20) % 2)[:, None] * [1, 1, 0, 1, 1], time_limit=99)
    assert found.status is Status.TIME_LIMIT
    assert found.to_dict()["log_likelihood"] is None
    assert np.isnan(found.per_row).any()


def test_masses_of_many_rows_through_a_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small()
    rng = np.random.default_rng(1)
    rows = np.stack([rng.integers(0, model.num_states) for _ in range(20)])
    expected = score(model, rows).per_row
    monkeypatch.setattr(masses, "MIN_DENSE_TERMS", 0)
    np.testing.assert_allclose(score(model, rows).per_row, expected, rtol=1e-12)


@pytest.mark.parametrize("n", [100, 150])
def test_advice_says_which_side_a_bound_is_on(n):
    """Whoever reads a log-likelihood without a standard error must learn that it can only be smaller."""
    rng = np.random.default_rng(n)
    edges = complete_edges(n)
    model = MarkovRandomField.ising(edges, rng.normal(size=len(edges)) / n, rng.normal(size=n))
    result = score(model, rng.integers(2, size=(3, n)), method="annealing", time_limit=1e-6, seed=0)
    assert result.log_z_kind == "bound"
    assert "at least" in result.advice
    assert result.advice != result.status.advice


def test_many_missing_values_are_summed_over_by_elimination() -> None:
    from fastmix.learning.tuning import MAX_COMPLETIONS

    rng = np.random.default_rng(0)
    n = 30
    tables = rng.normal(0, 0.5, (n - 1, 2, 2))
    chain = MarkovRandomField.from_tables(rng.normal(0, 0.3, (n, 2)), [(i, i + 1) for i in range(n - 1)], tables)
    pairs = [((i, i + 1), table) for i, table in enumerate(tables)]
    factor = MarkovRandomField.from_factors([2] * n, [*pairs, ((0, 1, 2), rng.normal(size=(2, 2, 2)))])
    for model in (chain, factor):
        rows = np.full((3, n), -1)
        rows[1, 4] = 1
        rows[2, ::7] = 0
        assert 2.0**n > MAX_COMPLETIONS
        result = score(model, rows)
        answers = fastmix.prepare(model).ask(rows, marginals=False)
        assert answers.log_evidence is not None
        np.testing.assert_allclose(result.per_row, answers.log_evidence, atol=1e-10)
        assert result.per_row[0] == pytest.approx(0.0, abs=1e-10)
