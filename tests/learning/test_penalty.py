"""Learning within balls of norms and under ridge and l1 penalties."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from learning_models import draws, mixed_model

import fastmix
import strategies
from fastmix import MarkovRandomField, ModelError, NormBall, ResourceError, Status, WidthBall, learn
from fastmix.graphs import complete_edges
from fastmix.learning import edge_gains, likelihood, read_data, stability
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.newton import NewtonModel
from fastmix.theory.bias import bias_after
from fastmix.theory.dependency import dependency_matrix
from fastmix.theory.norms import matrix_norm
from fastmix.theory.width import model_width

# Of many chains, rounds are few: half of the time that the default takes.
SAMPLED: dict[str, Any] = {"moments": "sampled", "num_chains": 4096}
OBJECTIVES: list[dict[str, Any]] = [{}, {"objective": "pseudo-likelihood"}, SAMPLED]
_FREE: dict[str, fastmix.LearnResult] = {}


def learn_freely(rows: np.ndarray, options: dict[str, Any]) -> fastmix.LearnResult:
    """The model of these rows, the same for all tests, without a set that it must stay in."""
    if repr(options) not in _FREE:
        _FREE[repr(options)] = learn(rows, seed=0, **options)
    return _FREE[repr(options)]


# -- sets and penalties ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("norm", "options"),
    strategies.each(["spectral", "inf"], OBJECTIVES),
)
def test_models_stay_within_the_ball(sample: np.ndarray, norm: Any, options: dict[str, Any]) -> None:
    rows = sample[:1000]
    result = learn(rows, within=NormBall(norm, 0.4), seed=0, **options)
    matrix = dependency_matrix(result.model, dependency="range")
    assert matrix_norm(matrix, norm) <= 0.4 + 1e-9
    assert result.norms[norm] <= 0.4
    assert result.status is Status.OK
    free = learn_freely(rows, options)
    assert free.norms[norm] > 0.4
    scores = [fastmix.score(r.model, rows).log_likelihood for r in (free, result)]
    assert scores[0] > scores[1]
    if options.get("moments") == "sampled":
        assert result.bias_bound is not None
        assert result.bias_bound < 0.01


@pytest.mark.parametrize("options", OBJECTIVES)
def test_models_stay_within_the_width(sample: np.ndarray, options: dict[str, Any]) -> None:
    result = learn(sample[:1000], within=WidthBall(0.4), seed=0, **options)
    assert model_width(result.model).value <= 0.4 * (1.0 + 1e-2)
    assert result.status is Status.OK
    assert fastmix.certify(result.model, accuracy=0.01, criterion="width").certified
    assert model_width(learn_freely(sample[:1000], options).model).value > 0.5
    assert result.bias_bound is None  # which is Dobrushin's


def test_the_constrained_optimum_is_one() -> None:
    # Against small moves that stay inside, by projection, of the exact objective.
    rows = draws(mixed_model(scale=1.0), 500)
    ball = NormBall("inf", 0.5)
    result = learn(rows, within=ball, ridge=0.01)
    best, rng = _penalized(result.model, rows), np.random.default_rng(0)
    for _ in range(20):
        moved = result.model.with_parameters(
            result.model.parameters + 0.02 * rng.standard_normal(result.model.num_parameters)
        )
        inside = fastmix.project(moved, norm_bound=0.5, norm="inf").model
        coordinates = Coordinates(inside.structure)
        v, _ = coordinates.from_parameters(inside.parameters)
        assert _penalized(inside.with_parameters(coordinates.to_parameters(v)), rows) >= best - 1e-7


def _penalized(model: MarkovRandomField, rows: np.ndarray) -> float:
    return -fastmix.score(model, rows).log_likelihood + 0.005 * float(model.parameters @ model.parameters)


def _worst_biases(model: MarkovRandomField, sweeps: list[int]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Largest biases over all starts of the probabilities of states (n,) and of pairs on edges (m,), exactly.

    One pair of them after each of these numbers of sweeps.

    Functions of a configuration are averaged over the updates of a sweep, the last one first.
    """
    counts = model.num_states.tolist()
    configurations = np.indices(counts).reshape(len(counts), -1).T
    weights = np.exp(model.log_weight(configurations))
    functions, owners = [], []
    for i, count in enumerate(counts):
        for s in range(count):
            functions.append(configurations[:, i] == s)
            owners.append(i)
    for e, (i, j) in enumerate(model.edges.tolist()):
        for s, t in np.ndindex(counts[i], counts[j]):
            functions.append((configurations[:, i] == s) & (configurations[:, j] == t))
            owners.append(len(counts) + e)
    values = np.array(functions, dtype=float)
    target = values @ weights / weights.sum()
    shaped, w = values.reshape(-1, *counts), weights.reshape(counts)
    found = []
    for sweep in range(1, max(sweeps) + 1):
        for i in model.structure.visit_order[0][::-1].tolist():
            p = w / w.sum(axis=i, keepdims=True)
            shaped = np.broadcast_to((shaped * p).sum(axis=i + 1, keepdims=True), shaped.shape)
        if sweep in sweeps:
            biases = np.abs(shaped.reshape(len(target), -1) - target[:, None]).max(axis=1)
            worst = np.zeros(len(counts) + model.num_edges)
            np.maximum.at(worst, owners, biases)
            found.append((worst[: len(counts)], worst[len(counts) :]))
    return found


def _check_biases(seeds: range) -> float:
    """Assert that the bound holds for random models; the largest share of it that a bias reaches."""
    reached = 0.0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 13))
        counts = rng.integers(2, 4, size=n).tolist() if n <= 7 else [2] * n
        edges = complete_edges(n)[rng.random(n * (n - 1) // 2) < min(1.0, 3.0 / n)]
        scale = rng.uniform(0.1, 1.0)
        tables = [scale * rng.standard_normal((counts[i], counts[j])) for i, j in edges]
        model = MarkovRandomField.from_tables([rng.standard_normal(k) for k in counts], edges, tables)
        model = fastmix.project(model, norm_bound=float(rng.uniform(0.2, 0.99)), norm="spectral").model
        order = model.structure.visit_order[0].astype(int)
        numbers = [1, 2, 5]
        for sweeps, (single, pairs) in zip(numbers, _worst_biases(model, numbers), strict=True):
            delta = bias_after(model, sweeps, order=order)
            bound = np.minimum(1.0, delta[model.edges[:, 0]] + delta[model.edges[:, 1]])
            assert (single <= delta + 1e-12).all(), seed
            assert (pairs <= bound + 1e-12).all(), seed
            reached = max(reached, float((single / np.maximum(delta, 1e-9)).max()))
    return reached


def test_the_bound_on_the_bias_of_a_moment_holds() -> None:
    # From the worst start, exactly, for states and for pairs; and a bound of a third would be beaten.
    assert _check_biases(range(12)) > 0.34


@pytest.mark.slow
def test_the_bound_on_the_bias_holds_for_200_models() -> None:
    assert _check_biases(range(200)) > 0.34


def test_the_history_tells_of_every_step(sample: np.ndarray) -> None:
    result = learn(sample[:1000], within=NormBall("spectral", 0.5), seed=0, **SAMPLED)
    assert len(result.history) == result.stats["num_iterations"] > 1
    for entry in result.history:
        k = entry["iteration"]
        assert (entry["norms"] is not None) == (k in (1, 4, 16, 64, 256))
        if entry["norms"] is not None:
            assert entry["norms"]["spectral"] <= 0.5 + 1e-9  # steps stay inside
        # The bias is below the Monte Carlo error of a probability.
        assert 0.0 < entry["bias_bound"] <= 0.5 / np.sqrt(4096 * entry["num_sweeps"])
        assert entry["moment_error"] > 0.0
        assert entry["step"] > 0.0
    assert result.bias_bound == result.history[-1]["bias_bound"]
    exact = learn(sample[:1000], within=NormBall("spectral", 0.5))
    for entry in exact.history:
        assert entry["moment_error"] > 0.0
        assert (entry["norms"] is None) == (entry["iteration"] not in (1, 4, 16, 64, 256))
        assert entry["norms"] is None or entry["norms"]["spectral"] <= 0.5 + 1e-9
    assert exact.bias_bound is None  # nothing is sampled
    assert exact.history[-1]["moment_error"] == pytest.approx(exact.moment_error)


def test_replica_exchange_finds_modes_that_chains_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    model = MarkovRandomField.ising(complete_edges(12), 0.22, 0.02)  # nearly all up, or nearly all down
    rows = draws(model, 3000)
    best = fastmix.score(learn(rows).model, rows).log_likelihood
    tempered = learn(rows, moments="tempered", num_chains=256, seed=0)
    assert (tempered.status, tempered.moments) == (Status.OK, "tempered")
    assert tempered.stats["num_rungs"] > 2
    assert best - fastmix.score(tempered.model, rows).log_likelihood < 3e-3
    # Plain chains do not go from one to the other. They say so, unless replica exchange takes over.
    free = learn(rows, moments="sampled", num_chains=256, seed=0, max_iter=12)
    assert free.moments == "tempered"
    monkeypatch.setattr("fastmix.learning.sampled.PATIENCE", 10**9)
    stuck = learn(rows, moments="sampled", num_chains=256, seed=0, max_iter=12)
    assert (stuck.status, stuck.moments) == (Status.NOT_MIXED, "sampled")


@pytest.mark.parametrize("penalty", [{"l1": 0.02}, {"within": NormBall("spectral", 0.9)}])
def test_steps_are_no_longer_than_the_curvature_allows(
    sample: np.ndarray, monkeypatch: pytest.MonkeyPatch, penalty: dict[str, Any]
) -> None:
    # The power method can miss the largest curvature. Steps then grew without bounds, and the status was ok.
    options: dict[str, Any] = {"seed": 0, **SAMPLED, **penalty}
    expected = learn(sample[:1000], **options)
    build = NewtonModel.build

    def miss(self: Any, *arguments: Any) -> None:
        build(self, *arguments)
        self.largest_eigenvalue /= 20.0

    monkeypatch.setattr(NewtonModel, "build", miss)
    result = learn(sample[:1000], **options)
    assert result.status is Status.OK
    assert np.abs(result.model.parameters).max() < 1.1 * np.abs(expected.model.parameters).max()
    assert result.moment_error == pytest.approx(expected.moment_error, abs=0.01)


def test_l1_removes_edges() -> None:
    n = 8
    model = MarkovRandomField.ising([(i, i + 1) for i in range(n - 1)], 0.5)
    rows = draws(model, 2000)
    for options in OBJECTIVES:
        result = learn(rows, l1=0.05, seed=0, **options)
        assert set(map(tuple, model.edges.tolist())) <= set(map(tuple, result.model.edges.tolist()))
        assert result.model.num_edges < 12  # of 28
        assert result.l1 == 0.05
    graph = learn(rows, edges="l1", l1=0.05)
    assert set(map(tuple, model.edges.tolist())) <= set(map(tuple, graph.model.edges.tolist()))
    assert graph.model.num_edges < 12
    assert abs(graph.model.table(0, 1)[0, 0] - 0.5) < 0.1
    with pytest.raises(ValueError, match=r"edges='l1' .*l1="):
        learn(rows, edges="l1")
    with pytest.raises(ValueError, match=r"^l1 must"):
        learn(rows, l1=0.1, within=NormBall())


@pytest.mark.parametrize("penalties", [{"l1": 0.03}, {"l1": "auto"}, {"l1": "auto", "ridge": "auto"}])
def test_l1_terms_leave_hidden_variables_their_edges(penalties: dict[str, Any]) -> None:
    # From small tables on, every l1 term made all of them 0, and they stayed there.
    rng = np.random.default_rng(0)
    cause = rng.random((1500, 1)) < 0.5
    rows = np.hstack([cause ^ (rng.random((1500, 5)) < 0.1), rng.random((1500, 1)) < 0.3]).astype(int)
    free = learn(rows[:1000], hidden=1, validation=rows[1000:], seed=0)
    result = learn(rows[:1000], hidden=1, validation=rows[1000:], seed=0, **penalties)
    assert result.status is Status.OK
    assert {tuple(edge) for edge in result.model.edges.tolist()} >= {(i, 6) for i in range(5)}
    assert result.validation_log_likelihood > free.validation_log_likelihood - 0.05
    if penalties == {"l1": 0.03}:
        assert result.model.num_edges == 5  # the last variable stands alone


def test_penalties_that_could_not_be_judged_are_not_ok(sample: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"ridge": "auto", "validation": sample[2000:2500], "moments": "sampled", "tol": 1e-2}
    assert learn(sample[:2000], seed=0, **options).status is Status.OK

    def late(*_: Any, **__: Any) -> None:
        raise ResourceError("no time is left")

    monkeypatch.setattr(likelihood, "log_normalizer", late)
    result = learn(sample[:2000], seed=0, **options)
    assert result.validation_log_likelihood is None
    assert result.status is Status.NOT_CONVERGED


def test_penalties_are_chosen_on_validation_data(sample: np.ndarray) -> None:
    few, valid = sample[:150], sample[10_000:]
    result = learn(few, ridge="auto", validation=valid, num_states=[2, 3, 2, 4])
    tried = result.stats["tried"]
    assert result.validation_log_likelihood == max(t["validation_log_likelihood"] for t in tried)
    assert result.ridge in [t["ridge"] for t in tried]
    sparse = learn(few, objective="pseudo-likelihood", l1="auto", validation=valid, num_states=[2, 3, 2, 4])
    assert sparse.l1 in [t["l1"] for t in sparse.stats["tried"]]
    # Penalties for the likelihood are judged by it, though graphs come from the pseudo-likelihood.
    likely = learn(few, l1="auto", ridge=1e-3, validation=valid, num_states=[2, 3, 2, 4])
    first = likely.stats["tried"][0]
    twice = {"l1": 2.0 * first["l1"], "ridge": 2e-3}  # a table is in two conditionals
    sparse = learn(few, objective="pseudo-likelihood", num_states=[2, 3, 2, 4], **twice)
    expected = fastmix.score(sparse.model, valid).log_likelihood
    assert first["validation_log_likelihood"] == pytest.approx(expected, abs=1e-4)
    assert likely.l1 == max(likely.stats["tried"], key=lambda t: t["validation_log_likelihood"])["l1"]
    with pytest.raises(ValueError, match=r"^ridge='auto' .*validation="):
        learn(few, ridge="auto")


@pytest.mark.parametrize("penalty", ["ridge", "l1"])
@pytest.mark.parametrize("value", [2.0**63, 1e308, "9" * 5000])
def test_penalties_beyond_all_use_are_refused(penalty: str, value: Any) -> None:
    data = np.random.default_rng(0).integers(0, 2, size=(20, 3))
    with pytest.raises(ValueError, match=f"^{penalty} must be .{{1,120}}$"):
        learn(data, **{penalty: value})


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("ridge", [1e6, 1e12])
def test_large_penalties_leave_nothing(seed: int, ridge: float) -> None:
    rng = np.random.default_rng(seed)
    data = rng.integers(0, 2, size=(20, 3))
    for l1 in (0.0, 10.0 ** rng.uniform(-3.0, 12.0)):
        result = learn(data, objective="pseudo-likelihood", ridge=ridge, l1=l1)
        assert result.status == "ok" or ridge > 1e6  # where rounding is all that is left to descend
        assert np.abs(result.model.log_pairwise).max(initial=0.0) < 1.0 / ridge
        assert np.abs(result.model.log_unary).max() < 1.0 / ridge


def test_subsamples_without_end_are_refused() -> None:
    data = np.random.default_rng(0).integers(0, 2, size=(20, 3))
    with pytest.raises(ValueError, match="num_subsamples must"):
        stability(data, l1=0.1, num_subsamples=2**31)


def test_gains_are_for_data_of_the_model() -> None:
    model = MarkovRandomField.ising([(0, 1)], coupling=0.3)
    with pytest.raises(ModelError, match="data must"):
        edge_gains(model, read_data([[0, 1, 1], [1, 0, 0]]))
