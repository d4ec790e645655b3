from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fastmix
from fastmix import MarkovRandomField

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer

from fastmix.sklearn import MarkovRandomFieldEstimator


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    model = MarkovRandomField.ising([(0, 1), (1, 2), (2, 3)], 0.6, 0.2)
    return np.asarray(fastmix.draw_exact(model, num_draws=1000, seed=0))


def test_scores_are_those_of_the_library(rows: np.ndarray) -> None:
    estimator = MarkovRandomFieldEstimator(ridge=1e-2, random_state=0).fit(rows)
    expected = fastmix.score(estimator.model_, rows)
    np.testing.assert_allclose(estimator.score_samples(rows), expected.per_row)
    assert estimator.score(rows) == pytest.approx(expected.log_likelihood)
    assert estimator.n_features_in_ == 4
    weighted = MarkovRandomFieldEstimator().fit(rows, sample_weight=np.ones(len(rows)))
    assert weighted.score(rows) == pytest.approx(MarkovRandomFieldEstimator().fit(rows).score(rows))


def test_an_estimator_that_is_not_fitted_says_so(rows: np.ndarray) -> None:
    for call in (lambda: MarkovRandomFieldEstimator().score(rows), lambda: MarkovRandomFieldEstimator().sample()):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            call()


def test_samples_have_the_marginals(rows: np.ndarray) -> None:
    estimator = MarkovRandomFieldEstimator().fit(rows)
    draws = estimator.sample(20_000, random_state=1)
    assert draws.shape == (20_000, 4)
    np.testing.assert_allclose(draws.mean(axis=0), rows.mean(axis=0), atol=0.03)
    assert (draws == estimator.sample(20_000, random_state=1)).all()


def test_grid_search_and_pipelines(rows: np.ndarray) -> None:
    search = GridSearchCV(MarkovRandomFieldEstimator(num_states=2), {"ridge": [1e-3, 10.0]}, cv=2)
    search.fit(rows)
    assert search.best_params_["ridge"] < 10.0
    assert clone(search.best_estimator_).get_params()["ridge"] == search.best_params_["ridge"]
    numbers = rows + 0.1 * np.random.default_rng(0).standard_normal(rows.shape)
    bins = KBinsDiscretizer(n_bins=2, encode="ordinal", strategy="uniform")
    pipeline = make_pipeline(bins, MarkovRandomFieldEstimator()).fit(numbers)
    assert pipeline.score(numbers) == pytest.approx(MarkovRandomFieldEstimator().fit(rows).score(rows), abs=0.05)


def test_frames_keep_names(rows: np.ndarray) -> None:
    frame = pd.DataFrame(np.where(rows, "yes", "no"), columns=list("abcd"))
    estimator = MarkovRandomFieldEstimator().fit(frame)
    assert estimator.feature_names_in_.tolist() == list("abcd")
    assert estimator.score(frame[list("dcba")]) == pytest.approx(estimator.score(frame))


def test_a_second_fit_forgets_the_names_of_the_first(rows: np.ndarray) -> None:
    estimator = MarkovRandomFieldEstimator().fit(pd.DataFrame(rows, columns=list("abcd")))
    assert not hasattr(estimator.fit(rows), "feature_names_in_")


def test_generators_of_random_numbers_give_seeds(rows: np.ndarray) -> None:
    first, again = (MarkovRandomFieldEstimator(random_state=np.random.RandomState(3)).fit(rows) for _ in range(2))
    assert first.result_.seed == again.result_.seed
    draws = [first.sample(50, random_state=np.random.RandomState(1)) for _ in range(2)]
    assert np.array_equal(*draws)


def test_fits_that_are_not_ok_come_with_a_warning(rows: np.ndarray) -> None:
    with pytest.warns(ConvergenceWarning, match="status .*not_converged"):
        MarkovRandomFieldEstimator(max_iter=1).fit(rows)


def test_hidden_variables_are_no_features(rows: np.ndarray) -> None:
    estimator = MarkovRandomFieldEstimator(hidden=2, random_state=0).fit(rows)
    assert (estimator.n_features_in_, estimator.model_.num_variables) == (4, 6)
    assert not hasattr(estimator, "feature_names_in_")
    expected = fastmix.score(estimator.model_, rows).log_likelihood
    assert estimator.score(rows) == pytest.approx(expected)
    draws = estimator.sample(20_000, random_state=0)
    np.testing.assert_allclose(draws.mean(axis=0), rows.mean(axis=0), atol=0.03)


def test_tags_say_what_data_may_be(rows: np.ndarray) -> None:
    tags = MarkovRandomFieldEstimator().__sklearn_tags__().input_tags
    assert tags.categorical
    assert tags.string
    assert tags.sparse
    assert tags.allow_nan
    gaps = np.where(np.random.default_rng(0).random(rows.shape) < 0.1, np.nan, rows)
    assert np.isfinite(MarkovRandomFieldEstimator().fit(gaps).score(gaps))


def test_states_that_are_in_one_fold_only(rows: np.ndarray) -> None:
    numbers = rows[:90].copy()
    numbers[3, 0] = 2

    def scores(data: object, **options: object) -> np.ndarray:
        search = GridSearchCV(
            MarkovRandomFieldEstimator(random_state=0, **options), {"ridge": [1e-3, 1e-1]}, cv=3, refit=False
        )
        return search.fit(data).cv_results_["mean_test_score"]

    words = pd.DataFrame(numbers.astype(str), columns=list("abcd"))
    for bad in (numbers, words):
        with pytest.warns(UserWarning, match="failed|non-finite"):
            assert np.isnan(scores(bad)).all()
    expected = scores(numbers, num_states=[3, 2, 2, 2])
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(scores(words.astype("category")), expected)
