"""Rows of evidence through ``prepare``: the same answers as single calls, in every form that rows can have."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import fastmix
from fastmix import Interrupted, MarkovRandomField, ModelError, ResourceError, infer, most_probable, prepare
from fastmix.exact import infer_exact
from fastmix.queries import asking

NAMES = ["cloudy", "rain", "wet"]
STATES = [["no", "yes"], ["no", "light", "heavy"], ["no", "yes"]]


def weather() -> MarkovRandomField:
    """Three variables with names of variables and states."""
    rng = np.random.default_rng(1)
    unary = [rng.normal(size=len(states)) for states in STATES]
    tables = [rng.normal(size=(2, 3)), rng.normal(size=(3, 2))]
    return MarkovRandomField.from_tables(
        unary, [(0, 1), (1, 2)], tables, variable_names=NAMES, state_names=STATES
    )  # fmt: skip


def grid(size: int = 4) -> MarkovRandomField:
    return fastmix.instances.ising_grid(size, size, coupling_max=0.7, seed=2)


def random_rows(model: MarkovRandomField, count: int, share: float, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    full = rng.integers(0, model.num_states, size=(count, model.num_variables))
    return np.where(rng.random(full.shape) < share, full, -1)


def evidence_of(row: np.ndarray) -> dict[int | str, int]:
    return {int(v): int(row[v]) for v in np.flatnonzero(row >= 0)}


# -- the answers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern_seconds", [1.0, 0.0])  # one plan for all rows, or one for every set of observed ones
@pytest.mark.parametrize("given", [(), (5, 10)])
def test_answers_are_those_of_single_calls(
    monkeypatch: pytest.MonkeyPatch, pattern_seconds: float, given: tuple[int, ...]
) -> None:
    monkeypatch.setattr(asking, "PATTERN_SECONDS", pattern_seconds)
    model = grid()
    rows = random_rows(model, 40, 0.3)
    rows[:, given] = 1
    rows[3] = rows[4]
    answers = prepare(model, evidence_variables=given, queries=[(0, 3)]).ask(rows, most_probable=True)
    assert answers.status == "ok"
    total = infer(model).log_z
    assert answers.log_evidence is not None
    assert answers.completions is not None
    for k in range(0, 40, 3):
        one = infer_exact(model, evidence=evidence_of(rows[k]))
        np.testing.assert_allclose(answers.row_log_z[k], one.log_z, rtol=1e-12)
        np.testing.assert_allclose(answers.log_evidence[k], one.log_z - total, atol=1e-10)
        for v in (0, 7, 15):
            np.testing.assert_allclose(answers.marginal(v)[k], one.marginal(v), atol=1e-12)
        best = most_probable(model, evidence=evidence_of(rows[k]))
        np.testing.assert_allclose(model.log_weight(answers.completions[k]), model.log_weight(best.states), atol=1e-10)
    if pattern_seconds:
        k = int(np.flatnonzero((rows[:, [0, 3]] < 0).all(axis=1))[0])
        one = infer_exact(model, evidence=evidence_of(rows[k]))
        np.testing.assert_allclose(answers.joint(3, 0)[k], np.asarray(one.joint(3, 0).value), atol=1e-12)


@pytest.mark.parametrize("pattern_seconds", [asking.PATTERN_SECONDS, 0.0])
def test_joints_of_sets_of_which_rows_observe_a_part(monkeypatch: pytest.MonkeyPatch, pattern_seconds: float) -> None:
    """None, one, two or all three of the variables of a set are observed; the plan may take them as given or not."""
    monkeypatch.setattr(asking, "PATTERN_SECONDS", pattern_seconds)
    rng = np.random.default_rng(0)
    sizes = [2, 3, 2, 4, 2]
    edges = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]
    tables = [rng.normal(size=(sizes[i], sizes[j])) for i, j in edges]
    model = MarkovRandomField.from_tables([rng.normal(size=size) for size in sizes], edges, tables)
    rows = np.array([[rng.integers(size) if rng.random() < 0.4 else -1 for size in sizes] for _ in range(40)])
    queries = [(3, 0, 1), (1, 2), (0, 3)]
    answers = prepare(model, queries=queries).ask(rows)
    weights = np.exp(np.array([model.log_weight(np.array(x)) for x in np.ndindex(*sizes)])).reshape(sizes)
    for k, row in enumerate(rows):
        agrees = np.ones(sizes, dtype=bool)
        for variable in np.flatnonzero(row >= 0):
            shape = [1] * 5
            shape[variable] = sizes[variable]
            agrees = agrees & (np.arange(sizes[variable]) == row[variable]).reshape(shape)
        law = np.where(agrees, weights, 0.0)
        law /= law.sum()
        for query in queries:
            others = tuple(v for v in range(5) if v not in query)
            expected = law.sum(axis=others).transpose(np.argsort(np.argsort(query)))
            np.testing.assert_allclose(answers.joint(*query)[k], expected, atol=1e-12)


def test_impossible_rows_are_answers() -> None:
    model = MarkovRandomField.from_tables(
        [np.zeros(2)] * 3, [(0, 1)], [np.array([[0.0, -np.inf], [0.0, 0.0]])]
    )  # fmt: skip
    answers = prepare(model).ask([[0, 1, -1], [1, -1, -1]], most_probable=True, num_draws=2, seed=0)
    assert answers.impossible.tolist() == [True, False]
    assert answers.status == "ok"
    assert answers.facts()["impossible rows"] == "1"
    assert np.isnan(answers.marginal(2)[0]).all()
    assert answers.completions is not None
    assert answers.completions[0].tolist() == [-1, -1, -1]
    assert answers.to_dict()["marginals"][0] is None


def test_draws_have_the_evidence_and_repeat() -> None:
    prepared = prepare(grid())
    rows = random_rows(grid(), 5, 0.5)
    one, again = (prepared.ask(rows, marginals=False, num_draws=3, seed=4) for _ in range(2))
    assert one.draws is not None
    assert again.draws is not None
    np.testing.assert_array_equal(one.draws, again.draws)
    observed = rows >= 0
    for k in range(3):
        assert (one.draws[:, k][observed] == rows[observed]).all()


def test_rows_that_do_not_fit_are_inferred_one_by_one() -> None:
    model = grid(6)
    rows = random_rows(model, 3, 0.2)
    rows[2, ::2] = 0  # so much is observed that exact inference fits
    prepared = prepare(model, memory_limit=10_000)
    answers = prepared.ask(rows, seed=0, time_limit=6)
    assert answers.stats["num_exact_rows"] == 1
    exact = infer_exact(model, evidence=evidence_of(rows[2]))
    np.testing.assert_allclose(answers.marginal(1)[2], exact.marginal(1), atol=1e-12)
    rough = infer_exact(model, evidence=evidence_of(rows[0]))
    np.testing.assert_allclose(answers.marginal(3)[0], rough.marginal(3), atol=0.1)
    assert set(answers.row_status[:2]) <= {str(status) for status in fastmix.Status}


def test_many_rows_that_do_not_fit_are_answered_by_chains_at_once() -> None:
    """With marginals near the exact ones, completions and draws that keep the evidence, and a verdict on every row."""
    model = grid(6)
    rows = random_rows(model, 30, 0.2)
    rows[4, ::2] = 0  # so much is observed that exact inference fits
    prepared = prepare(model, memory_limit=10_000)
    answers = prepared.ask(rows, most_probable=True, num_draws=2, seed=0)
    assert 0 < answers.stats["num_exact_rows"] < 20
    assert answers.row_status[4] == "ok"
    assert set(answers.row_status) <= {"ok", "unverified", "not_mixed"}
    for k in (0, 4, 29):
        exact = infer_exact(model, evidence=evidence_of(rows[k]))
        np.testing.assert_allclose(answers.node_marginals[k], exact.node_marginals, atol=0.2)
    observed = rows >= 0
    assert (answers.completions[observed] == rows[observed]).all()
    assert (answers.draws[:, 1][observed] == rows[observed]).all()
    again = prepared.ask(rows, most_probable=True, num_draws=2, seed=0, num_threads=2)
    np.testing.assert_array_equal(answers.draws, again.draws)
    one = prepared.ask(rows[:1], num_draws=1, seed=0)
    assert (one.draws[0, 0][observed[0]] == rows[0][observed[0]]).all()


def test_many_rows_that_do_not_fit_are_answered_by_belief_propagation() -> None:
    """Where it is asked for, and by itself where states are forbidden; completions are found row by row."""
    model = grid(6)
    tables = model.log_pairwise.copy()
    tables[1] = -np.inf
    rows = random_rows(model, 20, 0.2)
    rows[4, ::2] = 0  # so much is observed that exact inference fits
    for own, otherwise in ((model, "loopy-bp"), (model.replace(log_pairwise=tables), "auto")):
        prepared = prepare(own, memory_limit=10_000)
        answers = prepared.ask(rows, otherwise=otherwise, most_probable=True, seed=0)
        assert 0 < answers.stats["num_exact_rows"] < 20
        assert set(answers.row_status) <= {"ok", "unverified"}
        assert answers.node_marginals is not None
        assert answers.completions is not None
        for k in (0, 4, 19):
            exact = infer_exact(own, evidence=evidence_of(rows[k]))
            np.testing.assert_allclose(answers.node_marginals[k], exact.node_marginals, atol=0.1)
            assert answers.row_log_z[k] == pytest.approx(exact.log_z, abs=0.2)
        best = most_probable(own, evidence=evidence_of(rows[0]))
        assert own.log_weight(answers.completions[0]) == pytest.approx(own.log_weight(best.states))


def test_what_chains_cannot_answer_is_refused() -> None:
    model = grid(6)
    tables = model.log_pairwise.copy()
    tables[1] = -np.inf
    hard = prepare(model.replace(log_pairwise=tables), memory_limit=10_000)
    rows = random_rows(model, 1, 0.2)
    with pytest.raises(ResourceError, match="num_draws"):
        hard.ask(rows, num_draws=1)
    with pytest.raises(ResourceError, match="queries"):
        prepare(model, queries=[(0, 35)], memory_limit=10_000).ask(np.full((1, 36), -1), seed=0)


def test_new_parameters_keep_the_plans() -> None:
    model = grid()
    prepared = prepare(model)
    rows = random_rows(model, 6, 0.3)
    prepared.ask(rows)
    other = model.with_parameters(0.5 * model.parameters)
    updated = prepared.update(other)
    assert updated.plans._found.keys() == prepared.plans._found.keys()
    np.testing.assert_allclose(updated.ask(rows).row_log_z, prepare(other).ask(rows).row_log_z, rtol=1e-13)
    with pytest.raises(ModelError, match="model"):
        prepared.update(grid(3))


# -- the forms of rows ----------------------------------------------------------------------------------------------


def test_frames_mappings_and_arrays_say_the_same() -> None:
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    model = weather()
    prepared = prepare(model)
    table = {"wet": ["yes", None, None], "cloudy": [None, "no", None]}
    expected = prepared.ask([[-1, -1, 1], [0, -1, -1], [-1, -1, -1]])
    forms: list[Any] = [
        pandas.DataFrame(table),
        polars.DataFrame(table),
        [{"wet": "yes"}, {"cloudy": 0}, {}],
        np.array([[np.nan, np.nan, 1.0], [0.0, np.nan, np.nan], [np.nan] * 3]),
        np.array([[None, None, "yes"], ["no", None, None], [None] * 3], dtype=object),
    ]
    for form in forms:
        np.testing.assert_array_equal(prepared.ask(form).rows, expected.rows)
    frame = pandas.DataFrame(table, index=[7, 8, 9])
    predicted = prepared.predict(frame)
    assert list(predicted.columns) == NAMES
    assert list(predicted.index) == [7, 8, 9]
    assert predicted.loc[7, "wet"] == "yes"
    assert predicted.loc[8, "rain"] == STATES[1][int(expected.marginal("rain")[1].argmax())]
    imputed = prepared.impute(polars.DataFrame(table))
    best = most_probable(model, evidence={"wet": "yes"})
    assert imputed.row(0) == tuple(STATES[v][int(s)] for v, s in enumerate(best.states))
    drawn = prepared.impute(frame, by="draw", seed=0)
    assert drawn.notna().all().all()


@pytest.mark.parametrize(
    ("rows", "name"),
    [
        ([[0, 1]], "rows"),
        ([[0, 1, 5]], "rows"),
        ({"wet": 1}, "rows"),
        ([{"wet": 1}, [0, 0, 0]], "rows"),
        ([{"snow": 1}], "snow"),
    ],
)
def test_bad_rows_are_refused(rows: Any, name: str) -> None:
    with pytest.raises(ModelError, match=name):
        prepare(weather()).ask(rows)


def test_bad_frames_are_refused() -> None:
    pandas = pytest.importorskip("pandas")
    prepared = prepare(weather(), evidence_variables=["cloudy"])
    with pytest.raises(ModelError, match="snow"):
        prepared.ask(pandas.DataFrame({"snow": ["no"]}))
    with pytest.raises(ModelError, match="hail"):
        prepared.ask(pandas.DataFrame({"rain": ["hail"]}))
    with pytest.raises(ModelError, match=r"cloudy.*evidence_variables"):
        prepared.ask(pandas.DataFrame({"rain": ["light"]}))


def test_bad_sets_are_refused() -> None:
    model = weather()
    with pytest.raises(ModelError, match="queries"):
        prepare(model, queries=["rain"])
    with pytest.raises(ModelError, match="evidence_variables"):
        prepare(model, queries=[("rain", "wet")], evidence_variables=["wet"])
    with pytest.raises(ModelError, match="queries"):
        prepare(model, queries=[("rain", 1)])
    with pytest.raises(ModelError, match="evidence_variables"):
        prepare(model, evidence_variables="rain")
    with pytest.raises(ValueError, match="queries"):
        prepare(model).ask([[0, 0, -1]]).joint("rain", "wet")
    with pytest.raises(ValueError, match="marginals"):
        prepare(model).ask([[0, 0, -1]], marginals=False).marginal(0)


def test_no_rows() -> None:
    answers = prepare(weather()).ask(np.zeros((0, 3), dtype=int))
    assert len(answers) == 0
    assert answers.to_frame().shape[0] == 0


# -- one model, many users ------------------------------------------------------------------------------------------


def test_threads_share_a_prepared_model() -> None:
    prepared = prepare(grid())
    rows = [random_rows(grid(), 50, 0.4, seed) for seed in range(8)]
    expected = [prepare(grid()).ask(part).row_log_z for part in rows]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda part: prepared.ask(part).row_log_z, rows))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13)


def test_prepared_models_can_be_pickled() -> None:
    prepared = prepare(weather(), queries=[("cloudy", "wet")])
    prepared.ask([[0, -1, -1]])
    again = pickle.loads(pickle.dumps(prepared))
    np.testing.assert_allclose(again.ask([[0, -1, 1]]).row_log_z, prepared.ask([[0, -1, 1]]).row_log_z)
    assert again.queries == prepared.queries


def test_an_interrupt_keeps_the_rows_that_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "ROWS_PER_REPORT", 4)

    def stop(progress: fastmix.Progress) -> None:
        assert progress.unit == "rows"
        raise KeyboardInterrupt

    with pytest.raises(Interrupted) as caught:
        prepare(grid()).ask(random_rows(grid(), 10, 0.3), progress=stop)
    result = caught.value.result
    assert result.row_status.tolist() == ["ok"] * 4 + ["time_limit"] * 6
    assert np.isfinite(result.row_log_z[:4]).all()
    assert np.isnan(result.row_log_z[4:]).all()


def test_answers_show_themselves() -> None:
    answers = prepare(weather()).ask([[0, -1, -1], [-1, 1, -1]], most_probable=True)
    assert "2 rows" in repr(answers)
    assert "answers for 2 rows" in answers.summary()
    assert "log evidence" in answers._repr_html_()
    frame = answers.to_frame()
    assert {"row", "status", "log_evidence", "cloudy", "rain=heavy"} <= set(frame.columns)
    pytest.importorskip("matplotlib")
    assert answers.plot().get_xlabel() == "log-probability of a row"
