"""The estimator: fits that find what made the labels, answers as naive ones, and refusals that name the argument."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from crf_models import random_problem

import fastmix
from fastmix import Interrupted, ModelError, NormBall, ResourceError, Status, UnfitMethodError
from fastmix.crf import ConditionalRandomField, Graph, objectives, posterior
from oracle import crf as naive

Rows = list[Any]


def sequences(count: int = 60, seed: int = 0) -> tuple[Rows, Rows]:
    """Chains of three labels that stay for a while, and noisy signs of them."""
    rng = np.random.default_rng(seed)
    labels = [np.cumsum(rng.random(int(rng.integers(1, 9))) < 0.3) % 3 for _ in range(count)]
    return [np.eye(3)[y] + rng.normal(size=(len(y), 3)) for y in labels], labels


def fitted(**options: Any) -> ConditionalRandomField:
    return ConditionalRandomField(random_state=0, progress=None, **options).fit(*sequences())


def test_chains_are_fitted_and_predicted() -> None:
    field = fitted()
    test = sequences(200, seed=1)
    alone = float(np.mean(np.concatenate(test[1]) == np.concatenate([x.argmax(axis=1) for x in test[0]])))
    assert field.result_.status is Status.OK
    assert field.score(*test) > alone + 0.05
    assert field.score(*test) > 0.7
    assert field.classes_.tolist() == [0, 1, 2]
    assert field.node_weights_.shape == (4, 3)
    assert field.edge_weights_.shape == (1, 1, 3, 3)
    assert field.result_.history[-1]["gradient_norm"] <= 1e-2


def test_answers_are_those_of_all_labelings() -> None:
    """On trees, and on graphs with cycles, by the weights that were fitted."""
    graphs, examples, _, codes, _ = random_problem(4, num_edge_features=1, cycles=True)
    labels = np.split(codes, examples.node_starts[1:-1])
    field = ConditionalRandomField(ridge=0.1, random_state=0).fit(graphs, labels)
    nodes, tables = field.node_weights_, field.edge_weights_
    likelihoods = field.log_likelihood(graphs, labels)
    probabilities = field.predict_proba(graphs)
    for graph, own, found, likelihood in zip(graphs, labels, probabilities, likelihoods, strict=True):
        np.testing.assert_allclose(found, naive.marginals(graph, nodes, tables), atol=1e-9)
        np.testing.assert_allclose(likelihood, naive.log_likelihood(graph, nodes, tables, own), atol=1e-9)
        model = field.model(graph)
        np.testing.assert_allclose(fastmix.infer(model).marginal(0), found[0], atol=1e-9)
    field.set_params(decode="most_probable")
    for graph, mode in zip(graphs, field.predict(graphs), strict=True):
        best = naive.labelings(graph, nodes, tables)[1].max()
        np.testing.assert_allclose(naive.log_weight(graph, nodes, tables, mode), best, atol=1e-9)


def test_draws_have_the_marginals() -> None:
    """Of a chain and of a ring, both by exact draws: within 6 standard errors."""
    field = fitted()
    ring = Graph(np.eye(3), edges=[(0, 1), (1, 2), (2, 0)])
    examples = [sequences()[0][0], ring]
    draws = field.sample(examples, 4000, random_state=1)
    for own, expected in zip(draws, field.predict_proba(examples), strict=True):
        shares = (own[:, :, None] == field.classes_).mean(axis=0)
        np.testing.assert_allclose(shares, expected, atol=6.0 * 0.5 / np.sqrt(4000))
    again = field.sample(examples, 4000, random_state=1)
    assert all(np.array_equal(a, b) for a, b in zip(draws, again, strict=True))


def test_text_labels_grids_and_sparse_features() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    rng = np.random.default_rng(0)
    pictures = [rng.normal(size=(3, 4, 2)) for _ in range(10)]
    labels = [np.where(picture[:, :, 0] > 0, "sky", "sea") for picture in pictures]
    labels[0] = labels[0].astype(object)
    labels[0][0, 0] = None
    graphs = [Graph.grid(picture) for picture in pictures]
    field = ConditionalRandomField(objective="pseudo-likelihood", random_state=0).fit(graphs, labels)
    assert field.classes_.tolist() == ["sea", "sky"]
    assert field.predict(graphs)[0].shape == (3, 4)
    assert field.predict_proba(graphs)[0].shape == (3, 4, 2)
    assert field.sample(graphs, 2)[0].shape == (2, 3, 4)
    assert field.score(graphs, labels) > 0.9
    thin = [Graph(sparse.csr_matrix(g.features), g.edges, edge_kinds=g.edge_kinds, shape=g.shape) for g in graphs]
    same = ConditionalRandomField(objective="pseudo-likelihood", random_state=0).fit(thin, labels)
    np.testing.assert_allclose(same.node_weights_, field.node_weights_, atol=1e-8)
    assert field.model(graphs[0]).state_names[0] == ("sea", "sky")


def test_missing_labels_are_summed_over() -> None:
    """Half of the labels are as good as half of the examples, and better than nothing."""
    X, y = sequences(200)
    rng = np.random.default_rng(0)
    partly = [np.where(rng.random(len(labels)) < 0.5, -1, labels) for labels in y]
    test = sequences(200, seed=1)
    field = ConditionalRandomField(random_state=0).fit(X, partly)
    assert field.result_.num_labels == sum(int((labels >= 0).sum()) for labels in partly)
    assert field.score(*test) > ConditionalRandomField(random_state=0).fit(X, y).score(*test) - 0.03


def test_a_sampled_fit_is_near_the_exact_one() -> None:
    exact = fitted(ridge=0.05)
    sampled = fitted(ridge=0.05, moments="sampled", max_iter=150)
    assert sampled.result_.moments == "sampled"
    assert sampled.result_.status is Status.OK
    np.testing.assert_allclose(sampled.edge_weights_, exact.edge_weights_, atol=0.15)
    assert sampled.result_.value is None


def test_models_within_a_set_are_certified_and_cost_something() -> None:
    X, y = sequences()
    free = fitted()
    field = fitted(within=NormBall("inf", 0.4))
    assert not fastmix.certify(free.model(X[0])).certified or len(X[0]) == 1
    for x in X[:5]:
        certificate = fastmix.certify(field.model(x))
        assert certificate.certified
    assert field.result_.price is not None
    assert field.result_.price > 0.0
    assert field.log_likelihood(X, y).mean() < free.log_likelihood(X, y).mean()
    projected = [fastmix.project(free.model(x), norm_bound=0.4).model for x in X]
    weights = [
        (model.log_weight(labels) if len(labels) else 0.0) - (fastmix.infer(model, log_z=True).log_z or 0.0)
        for model, labels in zip(projected, y, strict=True)
    ]
    assert field.log_likelihood(X, y).mean() > np.mean(weights)  # better than what is projected only afterwards


def test_the_time_limit_and_ctrl_c_leave_the_best_weights() -> None:
    field = fitted(time_limit=1e-9)
    assert field.result_.status is Status.NOT_CONVERGED
    assert field.result_.stats["stopped_by"] == "time_limit"

    def press(progress: fastmix.Progress) -> None:
        if progress.done == 3:
            raise KeyboardInterrupt

    field = ConditionalRandomField(progress=press)
    with pytest.raises(Interrupted) as stopped:
        field.fit(*sequences())
    assert stopped.value.result.status is Status.INTERRUPTED
    assert len(field.result_.history) == 3
    assert field.score(*sequences()) > 0.5


# -- scikit-learn -----------------------------------------------------------------------------------------------------


def test_parameters_are_those_of_the_constructor() -> None:
    field = ConditionalRandomField(ridge=0.1)
    assert field.get_params()["ridge"] == 0.1
    assert field.set_params(ridge=0.2, decode="most_probable").ridge == 0.2
    assert repr(field) == "ConditionalRandomField(ridge=0.2, decode='most_probable')"
    with pytest.raises(ValueError, match=r"params .* got 'rigde'"):
        field.set_params(rigde=0.1)


def test_the_tools_of_scikit_learn_take_it() -> None:
    base = pytest.importorskip("sklearn.base")
    selection = pytest.importorskip("sklearn.model_selection")
    X, y = sequences(40)
    field = ConditionalRandomField(random_state=0, progress=None)
    assert base.clone(field).get_params() == field.get_params()
    assert base.is_classifier(field)
    assert selection.cross_val_score(field, X, y, cv=2).shape == (2,)
    search = selection.GridSearchCV(field, {"ridge": [1e-3, 10.0]}, cv=2).fit(X, y)
    assert search.best_params_ == {"ridge": 1e-3}


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"objective": "entropy"}, ValueError, "^objective"),
        ({"moments": "guessed"}, ValueError, "^moments"),
        ({"decode": "both"}, ValueError, "^decode"),
        ({"ridge": -1.0}, ValueError, "^ridge"),
        ({"within": 0.9}, ValueError, "^within"),
        ({"within": NormBall("frobenius", 0.9)}, UnfitMethodError, "^within"),
        ({"symmetric": [1]}, ValueError, "^symmetric .*1, got 1"),
        ({"num_chains": 1}, ValueError, "^num_chains"),
        ({"random_state": -3}, ValueError, "^random_state"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        ConditionalRandomField(**options).fit(*sequences(3))


@pytest.mark.parametrize(
    ("X", "y", "text"),
    [
        ([], [], "^X"),
        ([[[0.0]], [[0.0, 1.0]]], [[0], [0]], r"^X\[1\] .*1"),
        ([[0.0]], [[0]], r"^X\[0\]"),
        ([[[np.nan]]], [[0]], "finite"),
        ([[[0.0]]], [[0, 1]], r"^y\[0\] .*1"),
        ([[[0.0]]], [[0], [1]], "^y .*1"),
        ([[[0.0]]], [[-1]], "^y"),
        ([[[0.0]], [[1.0]]], [[0], ["a"]], "^y"),
        ([[[0.0]]], [[0.5]], "^y"),
    ],
)
def test_bad_examples_are_named(X: Rows, y: Rows, text: str) -> None:
    with pytest.raises(ModelError, match=text):
        ConditionalRandomField().fit(X, y)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"edges": [(0, 0)]}, "^edges"),
        ({"edges": [(0, 1), (1, 0)]}, "^edges"),
        ({"edges": [(0, 3)]}, "^edges .*0 .*2"),
        ({"edges": [(0, 1)], "edge_kinds": [-1]}, "^edge_kinds"),
        ({"edges": [(0, 1)], "edge_features": [[0.0], [1.0]]}, "^edge_features .*1"),
        ({"shape": (2, 2)}, "^shape .*3"),
    ],
)
def test_bad_graphs_are_named(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ModelError, match=text):
        Graph(np.zeros((3, 1)), **arguments)


def test_examples_must_fit_those_of_the_fit() -> None:
    with pytest.raises(ValueError, match="fitted before"):
        ConditionalRandomField().predict([[[0.0]]])
    field = fitted()
    with pytest.raises(ModelError, match=r"^X .*3"):
        field.predict([[[0.0]]])
    with pytest.raises(ModelError, match=r"^y"):
        field.log_likelihood(sequences()[0][:1], [np.full(len(sequences()[1][0]), 7)])
    skipped = [Graph(np.zeros((2, 1)), [(0, 1)])]
    with pytest.raises(UnfitMethodError, match="pseudo-likelihood"):
        ConditionalRandomField(objective="pseudo-likelihood").fit(skipped, [[0, -1]])


# -- graphs with cycles that are not summed exactly -------------------------------------------------------------------


def pictures() -> tuple[Rows, Rows]:
    """Small grids whose labels are signs of what is seen."""
    rng = np.random.default_rng(3)
    seen = [rng.normal(size=(3, 3, 1)) for _ in range(12)]
    return [Graph.grid(picture) for picture in seen], [(picture[:, :, 0] > 0).astype(int) for picture in seen]


def test_other_methods_answer_for_grids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Belief propagation, a sampler and Gibbs draws are near the exact answers of weak couplings."""
    graphs, labels = pictures()
    field = ConditionalRandomField(ridge=0.1, random_state=0).fit(graphs, labels)
    exact = np.concatenate([part.ravel() for part in field.predict_proba(graphs)])
    monkeypatch.setattr(posterior, "EXACT_SECONDS", 0.0)
    for options, atol in (({"inference": "auto"}, 0.01), ({"inference": fastmix.Gibbs(num_sweeps=4000)}, 0.05)):
        field.set_params(**options)
        found = np.concatenate([part.ravel() for part in field.predict_proba(graphs)])
        np.testing.assert_allclose(found, exact, atol=atol)
    field.set_params(inference="auto")
    draws = field.sample(graphs, 2000)
    shares = np.concatenate([(part[..., None] == field.classes_).mean(axis=0).ravel() for part in draws])
    np.testing.assert_allclose(shares, exact, atol=6.0 * 0.5 / np.sqrt(2000))


def test_answers_that_are_not_to_be_relied_on_are_told() -> None:
    graphs, labels = pictures()
    field = ConditionalRandomField(ridge=0.1, random_state=0).fit(graphs, labels)
    field.set_params(inference=fastmix.LoopyBP(max_iter=1, tol=1e-12))
    with pytest.warns(UserWarning, match="marginals .*not_converged"):
        field.predict_proba(graphs)


def test_exact_moments_that_do_not_fit_are_sampled_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs, labels = pictures()
    monkeypatch.setattr(objectives, "available_memory", lambda: 200)
    with pytest.raises(ResourceError):
        ConditionalRandomField(moments="exact").fit(graphs, labels)
    chain = [np.zeros((2, 1))]
    field = ConditionalRandomField(max_iter=3, random_state=0).fit([*graphs, *chain], [*labels, [0, -1]])
    assert field.result_.moments == "exact and sampled"
    assert field.result_.stats["num_chains"] == 32


def test_a_sampled_fit_within_a_set_and_its_time_limit() -> None:
    graphs, labels = pictures()
    options: dict[str, Any] = {"moments": "sampled", "max_iter": 5, "num_chains": 4, "random_state": 0}
    field = ConditionalRandomField(within=NormBall("inf", 0.5), **options).fit(graphs, labels)
    assert field.result_.price is None
    assert field.result_.stats["projection_seconds"] > 0.0
    assert fastmix.certify(field.model(graphs[0])).certified
    held = ConditionalRandomField(time_limit=1e-9, **options).fit(graphs, labels)
    assert held.result_.status is Status.NOT_CONVERGED
