from __future__ import annotations

import importlib
import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from learning_models import draws, mixed_model
from sampled_fits import fit_few_rows
from scipy import sparse

import fastmix
import strategies
from fastmix import Interrupted, MarkovRandomField, ModelError, NormBall, ResourceError, Status, UnfitMethodError, learn
from fastmix.learning import graph_search, newton, sampled_gradient
from fastmix.learning.chow_liu import chow_liu
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.data import read_data
from fastmix.learning.edge_gains import edge_gains
from fastmix.learning.independent import moments_of_contrasts
from fastmix.learning.penalty_search import late
from fastmix.learning.stability import stability

DEBD = Path(__file__).resolve().parents[3] / "shared" / "data" / "debd"  # beside the repository


def debd(name: str, part: str) -> np.ndarray:
    path = DEBD / f"{name}.{part}.csv.xz"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    with lzma.open(path, "rt") as file:
        return np.loadtxt(file, delimiter=",", dtype=np.int8)


# -- objectives -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"objective": "pseudo-likelihood"}, {"moments": "sampled"}])
def test_parameters_are_recovered(sample: np.ndarray, options: dict[str, Any]) -> None:
    model = mixed_model()
    result = learn(sample, ridge=1e-6, seed=1, **options)
    assert result.status is Status.OK
    assert result.model.num_states.tolist() == [2, 3, 2, 4]
    coordinates = Coordinates(model.structure)
    true, _ = coordinates.from_parameters(model.parameters)
    found, _ = coordinates.from_parameters(result.model.parameters)
    assert np.abs(true - found).max() < 0.35  # rare states: five standard errors of the largest
    gap = fastmix.score(result.model, sample).log_likelihood - fastmix.score(model, sample).log_likelihood
    assert gap > -1e-4


def test_exact_moments_are_those_of_the_data(sample: np.ndarray) -> None:
    result = learn(sample, ridge=0.0)
    assert result.moment_error is not None
    assert result.moment_error < 1e-5
    answer = fastmix.infer(result.model, method="exact")
    np.testing.assert_allclose(answer.marginal(1), np.bincount(sample[:, 1]) / len(sample), atol=1e-5)


def test_few_rows_for_the_hessian_change_the_way_and_not_the_end(
    sample: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[int] = []
    make = newton.FeatureCovariance

    def counted(coordinates: Coordinates, parts: Any, weights: np.ndarray) -> Any:
        rows.append(sum(map(len, parts)))
        return make(coordinates, parts, weights)

    monkeypatch.setattr(newton, "FeatureCovariance", counted)
    monkeypatch.setattr(newton, "ROWS_PER_PARAMETER", 200)
    monkeypatch.setattr(sampled_gradient, "ROWS_PER_PARAMETER", 200)
    exact = learn(sample)
    many = learn(sample, moments="sampled", max_iter=5, seed=3)
    most = max(rows)
    rows.clear()
    monkeypatch.setattr(sampled_gradient, "MAX_HESSIAN_NUMBERS", 1)
    few = learn(sample, moments="sampled", max_iter=5, seed=3)
    assert max(rows) < most
    for found in (many, few):
        gap = fastmix.score(exact.model, sample).log_likelihood - fastmix.score(found.model, sample).log_likelihood
        assert gap < 1e-3


def test_sampled_likelihood_comes_close_to_the_exact_one(sample: np.ndarray) -> None:
    exact, sampled = learn(sample), learn(sample, moments="sampled", seed=3)
    assert (exact.moments, sampled.moments) == ("enumeration", "sampled")
    assert sampled.value is None
    scores = [fastmix.score(r.model, sample).log_likelihood for r in (exact, sampled)]
    assert scores[0] - scores[1] < 1e-3
    assert sampled.history[-1]["gap"] <= 2e-3
    assert sampled.stats["num_sweeps"] > 0


def test_a_tree_uses_the_junction_tree() -> None:
    n = 30
    model = MarkovRandomField.ising([(i, i + 1) for i in range(n - 1)], 0.6, 0.1)
    result = learn(draws(model, 5000), edges=model.edges, ridge=1e-6)
    assert (result.moments, result.status) == ("junction tree", Status.OK)
    couplings = [result.model.table(i, i + 1)[0, 0] for i in range(n - 1)]
    np.testing.assert_allclose(couplings, 0.6, atol=0.09)


def test_the_same_seed_gives_the_same_bits(sample: np.ndarray) -> None:
    first, second = (learn(sample[:500], moments="sampled", seed=5) for _ in range(2))
    assert first.model == second.model
    assert first.model != learn(sample[:500], moments="sampled", seed=6).model


def test_weights_count_as_repeated_rows(sample: np.ndarray) -> None:
    rows, counts = np.unique(sample, axis=0, return_counts=True)
    whole, weighted = learn(sample, ridge=0.01, tol=1e-8), learn(rows, weights=counts, ridge=0.01, tol=1e-8)
    np.testing.assert_allclose(whole.model.parameters, weighted.model.parameters, atol=1e-5)


# -- structure ------------------------------------------------------------------------------------------------------


def test_chow_liu() -> None:
    n = 10
    edges = [(0, 3), (1, 3), (2, 5), (3, 5), (4, 6), (5, 6), (6, 7), (7, 8), (1, 9)]
    model = MarkovRandomField.ising(edges, 0.7, 0.2)
    rows = draws(model, 3000)
    result = learn(rows, edges="chow-liu", validation=rows)
    assert result.model.edges.tolist() == model.edges.tolist()
    assert (result.moments, result.status, result.model.num_variables) == ("closed form", Status.OK, n)
    iterated = learn(rows, edges=edges, ridge=0.0)
    gap = [fastmix.score(r.model, rows).log_likelihood for r in (result, iterated)]
    assert gap[0] == pytest.approx(gap[1], abs=1e-5)
    assert result.validation_log_likelihood == pytest.approx(gap[0])
    assert fastmix.infer(chow_liu(read_data(rows)), method="exact").log_z == pytest.approx(0.0, abs=1e-9)


def test_graphs_grow_by_what_edges_gain() -> None:
    n = 8
    edges = [(i, (i + 1) % n) for i in range(n)] + [(0, 4)]
    model = MarkovRandomField.ising(edges, 0.5)
    rows = draws(model, 6000)
    tree = learn(rows[:4000], edges="chow-liu")
    pairs, gains = edge_gains(tree.model, read_data(rows[:4000]))
    missing = set(map(tuple, model.edges.tolist())) - set(map(tuple, tree.model.edges.tolist()))
    assert set(map(tuple, pairs[: len(missing)].tolist())) == missing
    # The score test against what a fit with the edge gains.
    plain = learn(rows[:4000], edges=tree.model.edges, objective="pseudo-likelihood", ridge=1e-6)
    pairs, gains = edge_gains(plain.model, read_data(rows[:4000]))
    wider = learn(
        rows[:4000], edges=np.concatenate([tree.model.edges, pairs[:1]]), objective="pseudo-likelihood", ridge=1e-6
    )
    assert plain.value is not None
    assert wider.value is not None
    assert 0.3 < gains[0] / (plain.value - wider.value) < 3.0
    grown = learn(rows[:4000], edges="grow", validation=rows[4000:])
    assert set(map(tuple, model.edges.tolist())) <= set(map(tuple, grown.model.edges.tolist()))
    assert grown.model.num_edges < 20
    with pytest.raises(ValueError, match=r"edges='grow' .*validation="):
        learn(rows, edges="grow")


def test_stability() -> None:
    model = MarkovRandomField.ising([(i, i + 1) for i in range(5)], 0.5)
    found = stability(draws(model, 2000), l1=0.05, num_subsamples=6, seed=0)
    assert (found == found.T).all()
    assert all(found[i, i + 1] == 1.0 for i in range(5))
    assert found[0, 4] < 0.5


# -- missing and hidden -----------------------------------------------------------------------------------------------


def test_missing_values_are_summed_over(sample: np.ndarray) -> None:
    rng = np.random.default_rng(0)
    rows = np.where(rng.random(sample.shape) < 0.15, -1, sample)
    whole, holes = learn(sample, ridge=1e-4), learn(rows, ridge=1e-4)
    assert holes.status is Status.OK
    gap = [fastmix.score(r.model, sample).log_likelihood for r in (whole, holes)]
    assert 0.0 <= gap[0] - gap[1] < 2e-3
    sampled = learn(rows, ridge=1e-4, moments="sampled", seed=0)
    assert gap[1] - fastmix.score(sampled.model, sample).log_likelihood < 2e-3
    with pytest.raises(UnfitMethodError, match=r"pseudo-likelihood .*hidden"):
        learn(rows, objective="pseudo-likelihood", hidden=1)


def test_hidden_variables_add_likelihood() -> None:
    rng = np.random.default_rng(0)
    z = rng.integers(0, 2, 3000)
    rows = (rng.random((3000, 6)) < np.where(z, 0.85, 0.2)[:, None]).astype(int)
    alone = learn(rows, edges=np.zeros((0, 2)), ridge=1e-4)
    machine = learn(rows, hidden=1, ridge=1e-4, seed=0)
    assert machine.model.num_variables == 7
    assert machine.model.num_edges == 6
    columns = np.hstack([rows, np.full((3000, 1), -1)])
    gain = fastmix.score(machine.model, columns).log_likelihood - fastmix.score(alone.model, rows).log_likelihood
    assert gain > 0.3
    with pytest.raises(UnfitMethodError, match=r"pseudo-likelihood .*hidden"):
        learn(rows, hidden=1, objective="pseudo-likelihood")


# -- frames, results, bad input ---------------------------------------------------------------------------------------


def test_frames_give_named_models() -> None:
    frame = pd.DataFrame({"rain": ["yes", "no", "no", "yes"] * 50, "wet": ["yes", "no", "yes", "yes"] * 50})
    result = learn(frame)
    assert result.model.variable_names == ("rain", "wet")
    assert result.model.state_names == (("no", "yes"), ("no", "yes"))
    assert fastmix.score(result.model, frame).num_rows == 200
    assert fastmix.infer(result.model, evidence={"rain": "yes"}).marginal("wet")[1] > 0.9
    with pytest.raises(ModelError, match=r"^validation .*column 'rain': 'maybe'"):
        learn(frame, validation=frame.replace("yes", "maybe"))


def test_polars_frames() -> None:
    polars = pytest.importorskip("polars")
    columns = {"rain": ["yes", "no", None, "yes"] * 25, "wet": [2, 0, 1, 2] * 25}
    size = polars.Series("size", ["m", "s", "l", "m"] * 25, dtype=polars.Enum(["s", "m", "l", "xl"]))
    frame = polars.DataFrame(columns).with_columns(size)
    result, same = (
        learn(frame),
        learn(pd.DataFrame(columns).assign(size=pd.Categorical(size.to_list(), ["s", "m", "l", "xl"]))),
    )
    assert result.model.variable_names == ("rain", "wet", "size")
    assert result.model.state_names == (("no", "yes"), ("0", "1", "2"), ("s", "m", "l", "xl"))
    np.testing.assert_allclose(result.model.parameters, same.model.parameters, atol=1e-8)
    assert fastmix.score(result.model, frame).num_rows == 100


def test_sparse_matrices_and_dense_ones_give_the_same_model() -> None:
    rows = draws(MarkovRandomField.ising([(0, 1), (1, 2)], 0.6, -0.5), 300)
    for pack in (sparse.csr_array, sparse.csc_matrix, sparse.coo_array):
        assert learn(pack(rows)).model == learn(rows).model
    with pytest.raises(ModelError, match=r"^data must .*sparse"):
        learn(sparse.csr_array(2 * rows))


def test_names_go_into_files_and_come_back(tmp_path: Path) -> None:
    frame = pd.DataFrame({"rain": ["yes", "no", "no", None] * 50, "wet": ["very", "not", "a bit", "very"] * 50})
    result = learn(frame, hidden=1, max_iter=5)
    fastmix.io.write_model(result.model, tmp_path / "model.npz")
    model = fastmix.io.read_model(tmp_path / "model.npz")
    assert model == result.model
    assert model.variable_names == ("rain", "wet", "hidden 0")
    assert fastmix.score(model, frame[["wet", "rain"]]).num_rows == 200
    with pytest.raises(ModelError, match="'rain': 'maybe'"):
        fastmix.score(model, frame.replace("yes", "maybe"))


def test_larger_factors_are_scored_exactly() -> None:
    model = MarkovRandomField.from_factors([2, 2, 2], [((0, 1, 2), np.arange(8.0).reshape(2, 2, 2) / 4)])
    result = fastmix.score(model, [[0, 0, 0], [1, 1, 1]])
    weights = np.arange(8.0) / 4
    expected = np.mean([0.0, 1.75]) - np.log(np.exp(weights).sum())
    assert result.log_likelihood == pytest.approx(expected)
    assert result.pseudo_log_likelihood is None


def test_results_can_be_written(sample: np.ndarray) -> None:
    seen: list[Any] = []
    result = learn(sample[:300], validation=sample[:50], seed=4, within=NormBall("inf", 0.9), progress=seen.append)
    facts = json.loads(json.dumps(result.to_dict()))
    for key in (
        "status", "objective", "num_rows", "num_variables", "num_edges", "ridge", "l1", "within", "norms",
        "moment_error", "bias_bound", "validation_log_likelihood", "seed", "seconds", "provenance",
    ):  # fmt: skip
        assert key in facts
    assert (facts["seed"], facts["num_rows"], facts["within"]) == (4, 300, {"norm": "inf", "bound": 0.9})
    assert facts["provenance"]["options"]["within"] == ["inf", 0.9]
    assert len(seen) == len(result.history) > 0
    assert "LearnResult(likelihood, status='ok'" in repr(result)


POOR = {
    "fewer rows than variables": np.eye(3, 12, dtype=int),
    "constant columns": np.zeros((5, 3), dtype=int),
    "one row": np.ones((1, 2), dtype=int),
    "one column": np.array([[0], [1], [1]]),
    "perfect separation": np.repeat([[0, 0, 1], [1, 1, 0]], 20, axis=0),
    "a state decides others": np.array([[0, 0], [1, 1], [2, 1], [2, 1], [0, 0]] * 8),
    "one class": np.hstack([np.ones((30, 1), dtype=int), np.arange(60).reshape(30, 2) % 3]),
    "rare states": np.array([[0, 0, 0]] * 500 + [[1, 6, 1]]),
}


@pytest.mark.parametrize(
    ("name", "options"),
    strategies.each(POOR, [{}, {"objective": "pseudo-likelihood"}, {"moments": "sampled", "num_chains": 256}]),
)
def test_poor_data_give_finite_models(name: str, options: dict[str, Any]) -> None:
    rows = POOR[name]
    result = learn(rows, seed=0, **options)
    assert np.isfinite(result.model.parameters).all()
    assert np.abs(result.model.parameters).max() < 40.0
    assert result.status is Status.OK
    assert np.isfinite(fastmix.score(result.model, rows).log_likelihood)
    for more in ({"edges": "chow-liu"}, {"l1": 0.1}, {"within": NormBall("inf", 0.9)}):
        again = learn(rows, seed=0, **{**options, **more})
        assert np.isfinite(again.model.parameters).all()


@pytest.mark.parametrize("moments", ["exact", "sampled"])
def test_separation_without_a_penalty_is_never_ok(moments: Any) -> None:
    # Every pair occurs, but three columns together leave no doubt: the optimum is at infinity.
    rows = np.array([[a, b, a & b, a | b] for a in (0, 1) for b in (0, 1)] * 10)
    edges = [(0, 1), (0, 2), (1, 2)]
    with pytest.raises(ModelError, match=r"^state .* and state"):
        learn(rows, edges=edges, ridge=0.0, moments=moments, seed=0)
    result = learn(rows, edges=edges, ridge=1e-4, moments=moments, seed=0)
    assert np.isfinite(result.model.parameters).all()


def test_rounding_ends_a_search() -> None:
    # The gradient is 1.1e-5, the tolerance 1e-5, and no step makes the value less: it is at its least.
    rows = [[int(bit) for bit in row] for row in ("10011101", "11010011", "10001010")]
    assert learn(rows, objective="pseudo-likelihood", ridge=1e3).status is Status.OK
    assert learn(rows, objective="pseudo-likelihood", max_iter=2).status is Status.NOT_CONVERGED


def test_validation_rows_with_too_many_missing_values_are_scored_by_a_bound() -> None:
    rows = np.random.default_rng(0).integers(0, 2, size=(50, 20))
    gaps = np.where(np.arange(20) < 17, -1, rows)
    result = learn(rows, validation=gaps, max_iter=1)
    assert result.validation_log_likelihood is not None
    assert result.stats["compared"][0]["validation_log_likelihood"] > -np.inf


def test_infinite_optima_are_not_ok() -> None:
    with pytest.raises(ModelError, match=r"^state 1 .*column 0 "):
        learn(np.zeros((5, 2), dtype=int), ridge=0.0)
    twins = np.repeat([[0, 0], [1, 1]], 10, axis=0)
    with pytest.raises(ModelError, match=r"^state 0 .*column 0 .*state 1 "):
        learn(twins, ridge=0.0)
    assert learn(twins).status is Status.OK


def test_results_show_themselves() -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"<a>": rng.choice(["x", "y"], 50), "b": rng.integers(0, 3, 50), "c": rng.integers(0, 2, 50)})
    result = learn(frame, edges=[(0, 1), (0, 2), (1, 2)], validation=frame)
    table = result.to_frame()
    assert table[["first", "second"]].to_numpy().tolist() == [["<a>", "b"], ["<a>", "c"], ["b", "c"]]
    np.testing.assert_allclose(table["size"], [np.linalg.norm(result.model.table(i, j)) for i, j in result.model.edges])
    sizes = np.asarray(result.plot().images[0].get_array())
    assert sizes[0, 1] == sizes[1, 0] == pytest.approx(table["size"][0])
    assert "<td>&lt;a&gt;</td><td>b</td>" in result._repr_html_()
    assert "validation log likelihood <b>-" in result._repr_html_()
    errors = result.plot(kind="history").lines[0].get_ydata()
    assert errors.tolist() == [entry["moment_error"] for entry in result.history]
    with pytest.raises(ValueError, match=r"^kind must"):
        result.plot(kind="x")
    for other in (learn(frame, objective="pseudo-likelihood"), learn(frame[["b"]]), learn(frame, edges="chow-liu")):
        assert other._repr_html_().startswith("<div>")
        assert len(other.to_frame("polars")) == other.model.num_edges
        assert other.plot() is not other.plot(kind="history")
    score = fastmix.score(result.model, frame)
    assert score.to_frame()["log_likelihood"].tolist() == score.per_row.tolist()
    assert "log z method <b>enumeration</b>" in score._repr_html_()
    assert sum(bar.get_height() for bar in score.plot().patches) == 50
    pyplot.close("all")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"ridge": -1}, ValueError, "^ridge must"),
        ({"l1": "much"}, ValueError, "^l1 must"),
        ({"objective": "x"}, ValueError, "^objective must"),
        ({"moments": "x"}, ValueError, "^moments must"),
        ({"edges": "x"}, ValueError, "^edges must"),
        ({"edges": [(0, 9)]}, ModelError, "number of variables"),
        ({"within": 2.5}, TypeError, "within must be a NormBall"),
        ({"hidden": -1}, ValueError, "hidden must be"),
        ({"num_chains": 2}, ValueError, "num_chains must be"),
        ({"time_limit": 0}, ValueError, "time_limit must be"),
        ({"backend": "tpu"}, ValueError, r"^backend must .*'tpu'"),
    ],
)
def test_bad_arguments(sample: np.ndarray, options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        learn(sample[:50], **options)


def test_balls_check_themselves() -> None:
    with pytest.raises(ValueError, match=r"^norm must"):
        NormBall("2", 1.0)
    with pytest.raises(ValueError, match=r"^bound must"):
        NormBall("inf", 0.0)
    assert not NormBall().certified


def test_exact_moments_of_a_large_graph_are_refused() -> None:
    rows = np.random.default_rng(0).integers(0, 2, size=(50, 80))
    with pytest.raises(ResourceError, match=r"^exact inference"):
        learn(rows, moments="exact")


def test_time_limit_and_interrupt_give_the_best_so_far(sample: np.ndarray) -> None:
    def interrupt(_: Any) -> None:
        raise KeyboardInterrupt

    for options in ({}, {"moments": "sampled"}, {"l1": 0.01}):
        with pytest.raises(Interrupted, match="learn was interrupted") as stopped:
            learn(sample[:500], seed=0, progress=interrupt, **options)
        result = stopped.value.result
        assert (result.status, result.stats["stopped_by"]) == (Status.INTERRUPTED, "interrupt")
        assert result.provenance["seed"] == 0
        assert np.isfinite(result.model.parameters).all()
    result = learn(sample, time_limit=1e-9)
    assert result.status is Status.NOT_CONVERGED
    assert result.stats["stopped_by"] == "time_limit"


@pytest.mark.parametrize("seed", range(8))
def test_without_time_for_a_graph_there_is_the_independent_model(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, states = int(rng.integers(30, 60)), int(rng.integers(2, 6))
    rows = rng.integers(0, states, size=(int(rng.integers(5, 200)), n))
    kind = ("complete", "chow-liu", "l1", "grow")[seed % 4]
    objective = ("likelihood", "pseudo-likelihood")[seed // 4]
    options: dict[str, Any] = {"l1": 0.01} if kind == "l1" else {}
    if kind == "grow":
        options["validation"] = rows[:5]
    if kind == "complete":
        options["moments"] = ("auto", "exact")[seed // 4]
    result = learn(rows, edges=kind, objective=objective, num_states=states, time_limit=1e-6, seed=0, **options)
    assert (result.status, result.stats["stopped_by"]) == (Status.NOT_CONVERGED, "time_limit")
    assert result.model.num_edges == 0
    answer = fastmix.infer(result.model, method="exact")
    shares = np.bincount(rows[:, 0], minlength=states) / len(rows)
    np.testing.assert_allclose(answer.marginal(0), 0.99 * shares + 0.01 / states, atol=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_a_graph_of_a_fit_that_had_no_time_is_not_ok(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    search = graph_search.fit_with_penalties
    calls = 0

    def first_late(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        found = search(*arguments)
        return found if calls > 1 else late(found)

    monkeypatch.setattr(graph_search, "fit_with_penalties", first_late)
    rows = np.random.default_rng(seed).integers(0, 2, size=(100, 5))
    result = learn(rows, edges="l1", l1=0.01, seed=0)
    assert (calls, result.status) == (2, Status.NOT_CONVERGED)


@pytest.mark.parametrize(
    ("num_columns", "options"),
    [
        (3000, {"num_states": 200}), (3000, {"num_states": 200, "objective": "pseudo-likelihood"}),
        (3000, {"num_states": 2, "hidden": 100_000}), (200_000, {"edges": "chow-liu"}), (5001, {}),
        (200, {"num_states": 900, "edges": np.column_stack([np.zeros(199, dtype=int), np.arange(1, 200)])}),
    ],
)  # fmt: skip
def test_what_memory_cannot_hold_is_refused_with_the_number(num_columns: int, options: dict[str, Any]) -> None:
    rows = np.random.default_rng(0).integers(0, 2, size=(3, num_columns))
    with pytest.raises(ResourceError):
        learn(rows, seed=0, **options)


@pytest.mark.parametrize(("edges", "limit"), [("complete", None), ("complete", 1e-3), ([(0, 1_000_009)], None)])
def test_a_million_hidden_variables_are_refused_by_their_number(
    monkeypatch: pytest.MonkeyPatch, edges: Any, limit: float | None
) -> None:
    monkeypatch.setattr("fastmix._memory.available_memory", lambda: 2**32)
    with pytest.raises(ResourceError, match="hidden 1,000,000") as refused:
        learn(np.eye(10, dtype=int), hidden=1_000_000, edges=edges, seed=0, time_limit=limit)
    assert refused.value.required_bytes is not None
    assert refused.value.required_bytes > 2**31


def test_trees_found_part_by_part_are_those_found_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("fastmix.learning.chow_liu")  # as an attribute it is the function
    for seed in range(10):
        rng = np.random.default_rng(seed)
        counts = rng.integers(2, 5, size=12)
        data = read_data((rng.random((60, 12)) * counts).astype(int), num_states=counts, weights=rng.random(60) + 0.1)
        whole = chow_liu(data)
        with monkeypatch.context() as patch:
            patch.setattr(module, "MAX_ONE_HOT_ENTRIES", 100)
            parts = chow_liu(data)
        np.testing.assert_array_equal(parts.edges, whole.edges)
        np.testing.assert_allclose(parts.parameters, whole.parameters, atol=1e-12)


def test_moments_of_contrasts_are_those_of_their_rows() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        counts = rng.integers(1, 5, size=6)
        states = np.where(rng.random((30, 6)) < 0.2, -1, (rng.random((30, 6)) * counts).astype(int)).astype(float)
        states[0] = 0.0
        data = read_data(states, num_states=counts)
        coordinates = Coordinates(data.blank_model().structure)
        means, variances = moments_of_contrasts(coordinates, data)
        for i, q in enumerate(coordinates.tables):
            y = q[data.states[data.states[:, i] >= 0, i]]
            own = slice(coordinates.starts[i], coordinates.starts[i + 1])
            np.testing.assert_allclose(means[own], y.mean(axis=0), atol=1e-12)
            np.testing.assert_allclose(variances[own], y.var(axis=0), atol=1e-12)


def test_a_model_comes_back_though_no_time_is_left_to_validate_it() -> None:
    rows = np.random.default_rng(0).integers(0, 2, size=(2000, 30))
    result = learn(rows, validation=rows[:100], ridge="auto", time_limit=0.4, seed=0)
    # The whole graph where there was time for its score, else the tree, whose score is known.
    assert result.model.num_edges in (435, 29)
    assert result.validation_log_likelihood is not None
    assert result.stats["seconds"] < 20.0  # looking for a way to exact moments took minutes once


# -- the figures of the issue -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "least"),
    [
        ({"objective": "pseudo-likelihood"}, -6.0345),
        ({}, -6.0304),
        ({"moments": "sampled"}, -6.0304),
        ({"edges": "chow-liu"}, -6.7595),
        ({"within": NormBall("spectral", 0.95)}, -6.73),
    ],
)
def test_nltcs(options: dict[str, Any], least: float) -> None:
    result = learn(debd("nltcs", "train"), seed=0, **options)
    assert result.status is Status.OK
    score = fastmix.score(result.model, debd("nltcs", "test"))
    assert least < score.log_likelihood < -6.02


@pytest.mark.parametrize("objective", ["likelihood", "pseudo-likelihood"])
def test_without_penalties_what_decides_a_variable_is_not_converged(objective: str) -> None:
    rows = np.random.default_rng(0).integers(0, 2, (300, 6))
    assert learn(rows, ridge=0.0, objective=objective).status is Status.OK
    rows[:, 5] = rows[:, [0, 2, 4]].sum(axis=1) >= 2  # by three others, and no two of them
    assert learn(rows, ridge=0.0, objective=objective).status is Status.NOT_CONVERGED
    assert learn(rows, objective=objective).status is Status.OK


def test_a_missing_value_hides_no_equal_columns() -> None:
    rows = np.random.default_rng(0).integers(0, 2, (300, 4)).astype(float)
    rows[:, 1], rows[5, 2] = rows[:, 0], np.nan
    assert learn(rows, ridge=0.0).status is Status.NOT_CONVERGED


def test_fewer_rows_than_variables() -> None:
    """The tolerance is that of as many parameters as rows at most, and a stopped fit gives its best point."""
    rows = np.random.default_rng(0).integers(0, 2, (8, 12))
    results = [learn(rows, moments=moments, seed=0) for moments in ("exact", "sampled")]
    assert [result.status for result in results] == [Status.OK, Status.OK]
    best, found = (
        fastmix.score(r.model, rows, method="exact").log_likelihood - 0.5e-3 * _squares(r.model) for r in results
    )
    assert found > best - 0.1
    stopped = learn(rows, moments="sampled", seed=0, max_iter=3)
    assert stopped.stats["gap"] == min(entry["gap"] for entry in stopped.history)


def _squares(model: MarkovRandomField) -> float:
    coordinates = Coordinates(model.structure)
    v = coordinates.from_parameters(model.parameters)[0]
    return float(v @ v)


@pytest.mark.parametrize("seed", [3, 4, 5, 8])
def test_sampled_fits_to_few_rows_are_as_good_as_they_say(seed: int) -> None:
    found = fit_few_rows(seed, max_iter=25)
    assert found.status is not Status.OK or found.gap <= found.tol
