from __future__ import annotations

import dataclasses
import inspect
import json
import math
import pickle
from typing import Any

import numpy as np
import pytest

import fastmix
from fastmix import DrawResult, InferenceResult, MarkovRandomField, Status, _show, draw_exact, infer
from fastmix.exact import enumerate_model
from fastmix.results import jsonable, provenance


@pytest.fixture
def model() -> MarkovRandomField:
    """Variables of 2, 3 and 1 states and one more without edges; one edge is given backwards."""
    rng = np.random.default_rng(4)
    return MarkovRandomField.from_tables(
        [rng.normal(size=n) for n in (2, 3, 1, 2)],
        [(1, 0), (1, 2)],
        [rng.normal(size=(3, 2)), rng.normal(size=(3, 1))],
        variable_names=["a", "b", "c", "d"],
    )


@pytest.fixture
def result(model: MarkovRandomField) -> InferenceResult:
    return infer(model)


# -- Status ---------------------------------------------------------------------------------------------------------


def test_statuses() -> None:
    assert [str(s) for s in Status] == ["ok", "unverified", "not_converged", "not_mixed", "interrupted", "time_limit"]
    assert Status.OK == "ok"
    assert Status("not_mixed") is Status.NOT_MIXED
    assert json.dumps(Status.OK) == '"ok"'


@pytest.mark.parametrize("status", Status)
def test_every_status_has_one_sentence_of_advice(status: Status) -> None:
    assert status.advice.endswith(".")
    assert status.advice.count(".") == 1


# -- InferenceResult ------------------------------------------------------------------------------------------------


def test_marginals_are_views_by_variable(result: InferenceResult) -> None:
    assert [len(vector) for vector in result.marginals] == [2, 3, 1, 2]
    np.testing.assert_array_equal(np.concatenate(result.marginals), result.node_marginals)
    for i, name in enumerate("abcd"):
        np.testing.assert_array_equal(result.marginal(i), result.marginals[i])
        np.testing.assert_array_equal(result.marginal(name), result.marginals[i])


def test_edge_marginal_in_both_directions(result: InferenceResult, model: MarkovRandomField) -> None:
    exact = enumerate_model(model)
    for i, j in ((0, 1), (1, 2)):
        expected = np.zeros((model.num_states[i], model.num_states[j]))
        np.add.at(expected, (exact.configurations[:, i], exact.configurations[:, j]), exact.probabilities)
        np.testing.assert_allclose(result.edge_marginal(i, j), expected, atol=1e-12)
        np.testing.assert_allclose(result.edge_marginal(j, i), expected.T, atol=1e-12)
        np.testing.assert_allclose(result.edge_marginal("abcd"[j], "abcd"[i]), expected.T, atol=1e-12)
        np.testing.assert_allclose(result.edge_marginal(i, j).sum(axis=1), result.marginal(i), atol=1e-12)


def test_unknown_variables_and_edges(result: InferenceResult) -> None:
    for variable in (4, -5, "e"):
        with pytest.raises((ValueError, KeyError, IndexError), match=str(variable)):
            result.marginal(variable)
    with pytest.raises((ValueError, KeyError)):
        result.edge_marginal(0, 3)


def test_edge_marginals_that_were_not_asked_for(result: InferenceResult) -> None:
    without = dataclasses.replace(result, edge_marginals=None)
    with pytest.raises(ValueError, match=r"'exact' .*edge marginals"):
        without.edge_marginal(0, 1)


def test_no_variables() -> None:
    result = infer(MarkovRandomField.from_factors([], [((), 2.5)]))
    assert result.marginals == []
    assert result.to_dict()["marginals"] == []
    assert result.log_z == pytest.approx(2.5)


def test_result_is_frozen_and_compares_by_identity(result: InferenceResult, model: MarkovRandomField) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.log_z = 0.0
    assert result == result
    assert result != infer(model)
    assert len({result, result}) == 1


def test_result_survives_a_pickle(result: InferenceResult) -> None:
    again = pickle.loads(pickle.dumps(result))
    assert again.model == result.model
    assert again.to_dict() == result.to_dict()


def test_to_dict(result: InferenceResult, model: MarkovRandomField) -> None:
    answer = result.to_dict()
    assert answer.keys() >= {"method", "status", "log_z", "marginals", "seconds", "provenance"}
    assert json.loads(json.dumps(answer, allow_nan=False)) == answer
    assert answer["method"] == "exact"
    assert answer["status"] == "ok"
    assert answer["log_z"] == result.log_z
    assert answer["marginals"] == [vector.tolist() for vector in result.marginals]
    assert answer["seconds"] == result.stats["seconds"]
    assert answer["provenance"]["model_hash"] == model.content_hash


@pytest.mark.parametrize("log_z", [None, -math.inf, math.nan])
def test_no_log_z_is_null(result: InferenceResult, log_z: float | None) -> None:
    assert dataclasses.replace(result, log_z=log_z).to_dict()["log_z"] is None


def test_evidence_by_name_is_in_the_provenance(model: MarkovRandomField) -> None:
    result = infer(model, evidence={"b": np.int64(2)})
    assert result.marginal("b").tolist() == [0.0, 0.0, 1.0]
    options = json.loads(json.dumps(result.to_dict()))["provenance"]["options"]
    assert options.pop("method") == "auto"
    assert options == {"evidence": {"b": 2}, "memory_limit": None, "time_limit": None, "backend": "cpu"}


# -- provenance and JSON --------------------------------------------------------------------------------------------


def test_provenance(model: MarkovRandomField) -> None:
    facts = provenance(model, seed=7, device="gpu", tol=1e-6)
    assert facts["version"] == fastmix.__version__
    assert facts["seed"] == 7
    assert facts["device"] == "gpu"
    assert facts["options"] == {"tol": 1e-6}
    assert facts["model_hash"] == model.content_hash
    assert provenance(model)["seed"] is None


def test_the_hash_of_a_model_is_computed_when_it_is_read() -> None:
    model = MarkovRandomField.ising([(0, 1)], 0.5)
    result = infer(model)
    assert "content_hash" not in vars(model)
    assert list(result.provenance)[:4] == ["version", "seed", "options", "model_hash"]
    sent = pickle.loads(pickle.dumps(result.provenance))
    assert sent == result.provenance
    assert sent["model_hash"] == model.content_hash
    assert repr(sent) == repr(result.provenance)


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (None, None),
        (True, True),
        (3, 3),
        (0.5, 0.5),
        ("text", "text"),
        (math.nan, None),
        (math.inf, None),
        (-math.inf, None),
        (np.float64(0.25), 0.25),
        (np.float32(0.25), 0.25),
        (np.float64(math.nan), None),
        (np.int32(4), 4),
        (np.bool_(True), True),
        (np.array([1.0, -math.inf]), [1.0, None]),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (np.array(2.5), 2.5),
        (np.array(math.inf), None),
        ((1, [math.nan]), [1, [None]]),
        ({1: np.array([True]), "b": {"c": math.inf}}, {"1": [True], "b": {"c": None}}),
        (Status.OK, "ok"),
    ],
)
def test_jsonable(value: Any, plain: Any) -> None:
    result = jsonable(value)
    assert result == plain
    assert type(result) is type(plain) or isinstance(value, Status)
    json.dumps(result, allow_nan=False)


def test_frequencies_of_draws():
    model = MarkovRandomField.from_tables(
        [np.zeros(2), np.zeros(3), np.zeros(2)], [(0, 1), (1, 2)], [np.zeros((2, 3)), np.zeros((3, 2))]
    )
    states = np.random.default_rng(0).integers([2, 3, 2], size=(500, 3))
    mean, error = DrawResult.frequencies(model, states)
    naive = np.concatenate([[(states[:, i] == s).mean() for s in range(k)] for i, k in enumerate((2, 3, 2))])
    np.testing.assert_allclose(mean, naive)
    shrunk = (500 * naive + 1) / 502  # a state that was never drawn has an error, too
    np.testing.assert_allclose(error, np.sqrt(shrunk * (1 - shrunk) / 500))
    pairs = [
        ((states[:, i] == a) & (states[:, j] == b)).mean()
        for i, j in ((0, 1), (1, 2))
        for a in range((2, 3)[i])
        for b in range((0, 3, 2)[j])
    ]
    np.testing.assert_allclose(DrawResult.pair_frequencies(model, states), pairs)


def test_draws_are_a_result_and_a_sequence_of_draws():
    model = MarkovRandomField.ising([(0, 1)], coupling=0.5)
    result = draw_exact(model, num_draws=7)
    again = draw_exact(model, num_draws=7, seed=result.provenance["seed"])
    assert np.array_equal(result, again.states)
    assert (len(result), result.states.shape, result[0].shape, np.asarray(result).shape) == (7, (7, 2), (2,), (7, 2))
    assert not hasattr(result, "mean")  # no half of an array: that is ``states``
    assert result.to_dict()["provenance"]["options"]["num_draws"] == 7
    assert repr(result).startswith("DrawResult(7 draws")


ROWS = np.random.default_rng(0).integers(0, 2, (30, 2))
ASKED: dict[str, dict[str, Any]] = {
    "project": {"norm_bound": 0.1},
    "certify": {"accuracy": 0.01},
    "bracket": {},
    "most_probable": {},
    "draw_exact": {"num_draws": 2},
    "compare": {"methods": ["mean-field"]},
    "learn": {"data": ROWS},
    "score": {"data": ROWS},
}
# What is in the model or the seed of the provenance, is data, or does not change the answer.
ELSEWHERE = {"model", "seed", "data", "weights", "validation", "num_states", "reference_name", "progress",
             "num_threads", "checkpoint", "checkpoint_seconds"}  # fmt: skip


@pytest.mark.parametrize("name", ASKED)
def test_the_provenance_has_every_option_and_the_statistics_say_what_ended_the_call(name: str) -> None:
    function, pair = getattr(fastmix, name), MarkovRandomField.ising([(0, 1)], coupling=0.3)
    given = ASKED[name] if name == "learn" else {"model": pair, **ASKED[name]}
    result = function(**given)
    assert set(inspect.signature(function).parameters) - ELSEWHERE <= set(result.provenance["options"])
    assert result.stats["stopped_by"] == "done"
    assert {"seconds", "compile_seconds"} <= set(result.stats)


def test_what_infer_was_asked_for_is_in_the_provenance() -> None:
    pair = MarkovRandomField.ising([(0, 1)], coupling=0.3)
    options = infer(pair, bracket=True, log_z=True, edge_marginals=True, time_limit=8).provenance["options"]
    assert {name: options[name] for name in ("bracket", "log_z", "edge_marginals", "time_limit")} == {
        "bracket": True, "log_z": True, "edge_marginals": True, "time_limit": 8
    }  # fmt: skip
    result = infer(pair, bracket=True, time_limit=8)
    assert result.stats["time_limit"] == 8
    assert result.bracket.stats["time_limit"] == 4


@pytest.mark.parametrize("backend", ["cpu", "auto"])
def test_learning_says_where_it_ran_as_inference_does(backend: str) -> None:
    pair = MarkovRandomField.ising([(0, 1)], coupling=0.3)
    options: dict[str, Any] = {"backend": backend, "num_chains": 64, "seed": 0}
    sampled = fastmix.learn(ROWS, moments="sampled", max_iter=1, **options)
    annealed = fastmix.score(pair, ROWS, method="annealing", tol=1.0, **options)
    for result in (sampled, annealed):
        place, device = result.stats["backend"], result.provenance["device"]
        assert place.partition(" ")[0] in ("cpu", "cuda")
        assert device == "cpu" if place.startswith("cpu") else place == f"cuda ({device})"
    for call in (lambda: fastmix.learn(ROWS, backend="gpu"), lambda: fastmix.score(pair, ROWS, backend="gpu")):
        with pytest.raises(ValueError, match=r"^backend .*'gpu'$"):
            call()


def test_the_legend_of_bars_has_the_names_of_states() -> None:
    same, other = ("no", "yes"), ("dry", "damp", "wet")
    assert [_show.legend_of_states([same, same], state) for state in (0, 1)] == ["no", "yes"]
    assert [_show.legend_of_states([same, other], state) for state in range(3)] == ["no, dry", "yes, damp", "wet"]
    assert _show.legend_of_states(None, 1) == "state 1"
    assert _show.legend_of_states([(f"state of {k}",) for k in range(4)], 0) == "state 0"
