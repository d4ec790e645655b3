"""``predict`` and ``impute``: the answers of exact inference, by chains to their accuracy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import fastmix
from fastmix import (
    ImpossibleEvidenceError,
    MarkovRandomField,
    ModelError,
    impute,
    instances,
    loopy_bp,
    predict,
    prepare,
)
from fastmix.queries import api


def dense_model(seed: int, num_states: list[int]) -> MarkovRandomField:
    rng = np.random.default_rng(seed)
    edges = list(itertools.combinations(range(len(num_states)), 2))
    tables = [0.5 * rng.standard_normal((num_states[i], num_states[j])) for i, j in edges]
    return MarkovRandomField.from_tables([rng.standard_normal(k) for k in num_states], edges, tables)


def rows_with_holes(model: MarkovRandomField, count: int, share: float, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, model.num_states, size=(count, model.num_variables))
    return np.where(rng.random(rows.shape) < share, -1, rows)


@pytest.mark.parametrize("seed", range(4))
def test_chains_have_the_marginals_of_exact_inference(seed: int) -> None:
    model = dense_model(seed, [2, 3, 2, 4, 2])
    rows = rows_with_holes(model, 40, 0.5, seed)
    exact = predict(model, rows, method="exact")
    chains = predict(model, rows, method="chains", seed=1)
    assert exact.node_marginals is not None
    assert chains.node_marginals is not None
    ok = chains.row_status == "ok"
    assert ok.mean() > 0.9
    difference = np.abs(exact.node_marginals - chains.node_marginals)[ok]
    assert difference.max() < 0.2  # five standard errors of a row that is only just ok
    assert difference.mean() < 0.02
    assert np.array_equal(predict(model, rows).best_states, exact.best_states)


@pytest.mark.parametrize("seed", range(4))
def test_chains_find_the_most_probable_completions(seed: int) -> None:
    model = dense_model(seed, [2, 3, 2, 2, 2, 3])
    rows = rows_with_holes(model, 30, 0.6, seed)
    best = impute(model, rows, method="exact")
    found = impute(model, rows, method="chains", seed=0)
    assert (rows[rows >= 0] == found[rows >= 0]).all()
    share = np.mean(model.log_weight(found) > model.log_weight(best) - 1e-9)
    assert share > 0.9


def test_draws_have_the_spread_of_the_model() -> None:
    model = dense_model(0, [2, 3, 2])
    rows = np.full((3000, 3), -1)
    rows[:, 0] = 1
    expected = predict(model, rows[:1], method="exact").marginal(1)[0]
    for method in ("exact", "chains"):
        drawn = impute(model, rows, by="draw", method=method, seed=0)
        shares = np.bincount(drawn[:, 1], minlength=3) / len(drawn)
        assert np.abs(shares - expected).max() < 5.0 * np.sqrt(0.25 / len(drawn))


def test_auto_takes_chains_where_nothing_else_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    model = dense_model(0, [2] * 6)
    rows = rows_with_holes(model, 20, 0.5)
    assert predict(model, rows).stats["num_plans"] == 1
    monkeypatch.setattr(api, "PATTERN_SECONDS", 0.0)
    assert predict(model, rows, seed=0).stats["num_plans"] == 0
    factor = MarkovRandomField.from_factors([2] * 3, [((0, 1, 2), np.zeros((2, 2, 2)))])
    assert str(predict(factor, [[0, -1, -1]]).status) == "ok"
    with pytest.raises(ValueError, match="method"):
        predict(factor, [[0, -1, -1]], method="chains")


def test_frames_are_filled_without_hidden_variables() -> None:
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 2, size=(500, 1))
    states = (rng.random((500, 5)) < np.array([0.1, 0.9])[kind]).astype(int)
    frame = pandas.DataFrame(np.array(["no", "yes"], dtype=object)[states], columns=list("abcde"))
    mixture = fastmix.learn(frame, hidden=fastmix.Mixture(num_components=2, tree=False), seed=0)
    holes = frame.mask(pandas.DataFrame(rng.random(frame.shape) < 0.3, columns=frame.columns))
    filled = impute(mixture.model, holes)
    assert list(filled.columns) == list("abcde")
    assert filled.notna().all().all()
    gaps = holes.isna().to_numpy()
    assert (filled.to_numpy() == frame.to_numpy())[gaps].mean() > 0.8
    answers = predict(mixture.model, holes)
    assert answers.marginal("hidden 0").shape == (500, 2)
    array = np.where(gaps, -1, states)
    assert np.array_equal(impute(mixture.model, array), np.where(filled.to_numpy() == "yes", 1, 0))


def test_the_same_seed_gives_the_same_answers() -> None:
    model = dense_model(3, [2, 2, 3])
    rows = rows_with_holes(model, 10, 0.5)
    first, again = (predict(model, rows, method="chains", seed=5) for _ in range(2))
    np.testing.assert_array_equal(first.node_marginals, again.node_marginals)
    np.testing.assert_array_equal(
        impute(model, rows, by="draw", seed=5), impute(model, rows, by="draw", seed=5)
    )  # fmt: skip


def test_the_end_of_the_time_is_marked() -> None:
    model = dense_model(0, [2] * 30)
    rows = rows_with_holes(model, 5000, 0.5)
    answers = predict(model, rows, method="chains", time_limit=0.05, seed=0)
    assert str(answers.status) == "time_limit"
    assert answers.node_marginals is not None
    left = answers.row_status == "time_limit"
    assert np.isnan(answers.node_marginals[left]).all()


def test_wrong_rows_are_refused() -> None:
    with pytest.raises(ModelError):
        predict(dense_model(0, [2, 2]), [[0, 5]])
    with pytest.raises(ValueError, match="by"):
        impute(dense_model(0, [2, 2]), [[0, -1]], by="hope")


def test_best_states_need_marginals() -> None:
    answers = prepare(dense_model(0, [2, 2])).ask([[0, -1]], marginals=False)
    with pytest.raises(ValueError, match="marginals"):
        _ = answers.best_states


# -- belief propagation for all rows ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_messages_side_by_side_are_those_of_single_calls(seed: int) -> None:
    """Beliefs and Bethe estimates of log Z of ``loopy_bp``, with forbidden pairs and several numbers of states."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 4, size=7)
    edges = [(i, j) for i in range(7) for j in range(i + 1, 7) if rng.random() < 0.4]
    tables = [0.5 * rng.normal(size=(counts[i], counts[j])) for i, j in edges]
    if seed >= 2:
        tables[0][0, 0] = -np.inf
    model = MarkovRandomField.from_tables([rng.normal(size=count) for count in counts], edges, tables)
    rows = rows_with_holes(model, 20, 0.7)
    answers = predict(model, rows, method="loopy-bp", seed=0)
    assert answers.node_marginals is not None
    for k, row in enumerate(rows):
        evidence: dict[int | str, int | str] = {int(v): int(row[v]) for v in np.flatnonzero(row >= 0)}
        try:
            one = loopy_bp(model, evidence=evidence)
        except ImpossibleEvidenceError:
            assert (answers.row_log_z[k], answers.row_status[k]) == (-np.inf, "ok")
            continue
        assert one.converged
        assert answers.row_status[k] in ("ok", "unverified")
        np.testing.assert_allclose(answers.node_marginals[k], one.node_marginals, atol=1e-7)
        assert answers.row_log_z[k] == pytest.approx(one.log_z, abs=1e-7)


def test_messages_of_trees_are_exact() -> None:
    """However large the couplings and the products of messages at a hub are: then rows are ``ok``."""
    rng = np.random.default_rng(0)
    edges = [(0, i) for i in range(1, 40)] + [(1, 40), (40, 41)]
    model = MarkovRandomField.ising(edges, 30.0 * rng.normal(size=41), rng.normal(size=42))
    rows = rows_with_holes(model, 30, 0.6)
    answers = predict(model, rows, method="loopy-bp")
    exact = predict(model, rows, method="exact")
    assert set(answers.row_status) == {"ok"}
    np.testing.assert_allclose(answers.node_marginals, exact.node_marginals, atol=1e-8)
    np.testing.assert_allclose(answers.row_log_z, exact.row_log_z, rtol=1e-10)


def test_rows_that_do_not_settle_are_marked_and_do_not_matter_to_others() -> None:
    """Strong mixed couplings: some rows have no verdict; the others are what they are alone, on any threads."""
    model = instances.ising_grid(8, 8, coupling_max=3.0, seed=1)
    rows = rows_with_holes(model, 60, 0.95)
    rows[::3, ::2] = 1
    answers = predict(model, rows, method="loopy-bp", num_threads=2)
    assert set(answers.row_status) == {"unverified", "not_converged"}
    settled = answers.row_status == "unverified"
    assert settled[::3].all()
    assert (np.isfinite(answers.row_log_z) == settled).all()
    assert str(answers.status) != "ok"
    one = predict(model, rows[settled][:1], method="loopy-bp", num_threads=1)
    np.testing.assert_allclose(one.node_marginals[0], answers.node_marginals[settled][0], atol=1e-6)
    again = predict(model, rows, method="loopy-bp", num_threads=1)
    np.testing.assert_array_equal(again.node_marginals, answers.node_marginals)


def test_what_belief_propagation_cannot_answer() -> None:
    factor = MarkovRandomField.from_factors([2] * 3, [((0, 1, 2), np.zeros((2, 2, 2)))])
    with pytest.raises(ValueError, match="method"):
        predict(factor, [[0, -1, -1]], method="loopy-bp")
    with pytest.raises(ValueError, match="otherwise"):
        prepare(factor).ask([[0, -1, -1]], otherwise="loopy-bp")
    with pytest.raises(ValueError, match="otherwise"):
        prepare(factor).ask([[0, -1, -1]], otherwise="chains")
    pair = dense_model(0, [2, 2])
    with pytest.raises(ValueError, match="num_draws"):
        prepare(pair).ask([[0, -1]], otherwise="loopy-bp", num_draws=2)
    with pytest.raises(ValueError, match="method"):
        impute(pair, [[0, -1]], method="loopy-bp")
    late = predict(instances.ising_grid(30, 30, coupling_max=1.0, seed=0), [[-1] * 900] * 50, method="loopy-bp",
                   time_limit=1e-6)  # fmt: skip
    assert set(late.row_status) == {"time_limit"}
