"""A density estimator with the interface of scikit-learn (extra ``sklearn``)."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix._checks import check_count, choose_seed, require
from fastmix._context import open_context
from fastmix.errors import ResourceError
from fastmix.exact import draw_exact
from fastmix.learning.data import read_data
from fastmix.learning.dataset import num_hidden
from fastmix.learning.learn import learn
from fastmix.learning.log_z import log_normalizer
from fastmix.learning.masses import log_masses
from fastmix.learning.mixture import Mixture
from fastmix.results import Status
from fastmix.sampling.sample import sample

_base, _utils, _validation, _exceptions = (
    require(f"sklearn.{part}", extra="sklearn", purpose="estimators", library="scikit-learn")
    for part in ("base", "utils", "utils.validation", "exceptions")
)

__all__ = ["MarkovRandomFieldEstimator"]


class MarkovRandomFieldEstimator(_base.DensityMixin, _base.BaseEstimator):  # type: ignore[misc, name-defined]
    """A Markov random field fitted to rows of states, by :func:`fastmix.learn`.

    Parameters
    ----------
    edges, objective, moments, within, ridge, l1, hidden, num_states, missing, num_chains, tol, max_iter,
    time_limit, backend
        As for :func:`fastmix.learn`. Penalties are numbers: a grid search chooses them.
    random_state : int or RandomState, optional
        The seed, or what draws one.

    Attributes
    ----------
    result_ : LearnResult
    model_ : MarkovRandomField
    n_features_in_ : int
        Hidden variables, which are the last of the model, are no features.

    Notes
    -----
    A fit whose status is not ``ok`` comes with a ``ConvergenceWarning``, as does a log Z that could not be relied on.

    Cross-validation fits to some of the rows and scores others: a state that only those have is unknown to the model,
    and the score is NaN. Say beforehand which states there are: with pandas, ``frame.astype("category")`` before the
    rows are split; ``num_states`` for whole numbers.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> estimator = MarkovRandomFieldEstimator(ridge=1e-3, num_states=2).fit(rng.integers(0, 2, size=(100, 4)))
    >>> estimator.sample(5, random_state=0).shape
    (5, 4)
    """

    def __init__(
        self,
        *,
        edges: Any = "auto",
        objective: Any = "likelihood",
        moments: Any = "auto",
        within: Any = None,
        ridge: float = 1e-3,
        l1: float = 0.0,
        hidden: int | Mixture = 0,
        num_states: Any = None,
        missing: Any = "auto",
        num_chains: int | None = None,
        tol: float | None = None,
        max_iter: int | None = None,
        time_limit: float | None = None,
        backend: str = "cpu",
        random_state: int | None = None,
    ) -> None:
        self.edges = edges
        self.objective = objective
        self.moments = moments
        self.within = within
        self.ridge = ridge
        self.l1 = l1
        self.hidden = hidden
        self.num_states = num_states
        self.missing = missing
        self.num_chains = num_chains
        self.tol = tol
        self.max_iter = max_iter
        self.time_limit = time_limit
        self.backend = backend
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> MarkovRandomFieldEstimator:  # noqa: ARG002
        """The estimator, fitted to rows (cases, variables) of states; y is ignored."""
        options = {name: value for name, value in self.get_params(deep=False).items() if name != "random_state"}
        self.result_ = learn(X, weights=sample_weight, seed=_seed(self.random_state), **options)
        self.model_ = self.result_.model
        self.n_features_in_ = self.model_.num_variables - num_hidden(self.model_)
        if hasattr(X, "columns"):
            self.feature_names_in_ = np.array(self.model_.names_of_variables()[: self.n_features_in_], dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        _warn("the fit", self.result_.status, self.result_.advice)
        # The independent model that annealing begins at needs marginals: those of the training data.
        self._log_z: float | None = None
        self._marginals = read_data(X, weights=sample_weight, model=self.model_, missing=self.missing).merged()[0]
        return self

    def score_samples(self, X: Any) -> NDArray[np.float64]:
        """Log-likelihood of every row, missing values summed over."""
        _validation.check_is_fitted(self)
        if self._log_z is None:
            with open_context("score", seed=self.result_.seed, backend=self.backend, progress=None) as context:
                answer = log_normalizer(self.model_, self._marginals, context)
            _warn("log Z", answer.status, answer.status.advice)
            self._log_z = answer.log_z
        table, where = read_data(X, model=self.model_, name="X", missing=self.missing).merged()
        return np.asarray((log_masses(self.model_, table) - self._log_z)[where])

    def score(self, X: Any, y: Any = None) -> float:  # noqa: ARG002
        """Mean log-likelihood of the rows."""
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1, random_state: Any = None) -> NDArray[np.int64]:
        """Configurations (n_samples, features) as state numbers: exact draws where feasible, else from chains."""
        _validation.check_is_fitted(self)
        n_samples = check_count("n_samples", n_samples, least=1)
        seed = choose_seed(_seed(random_state))
        try:
            draws = np.asarray(draw_exact(self.model_, num_draws=n_samples, seed=seed))
        except ResourceError:
            chains = min(n_samples, 256)
            each = -(-n_samples // chains)
            run = sample(self.model_, num_chains=chains, num_sweeps=50 * each, num_draws=each, seed=seed)
            assert run.draws is not None
            draws = run.draws.reshape(-1, self.model_.num_variables)[:n_samples].astype(np.int64)
        return draws[:, : self.n_features_in_]

    def __sklearn_tags__(self) -> Any:
        """Tags of the data that are taken: categories, also as text, with gaps, or a sparse matrix."""
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags


def _seed(random_state: Any) -> Any:
    """A seed as others take it, also from a generator of random numbers."""
    if not isinstance(random_state, np.random.RandomState):
        return random_state
    return int(_utils.check_random_state(random_state).randint(2**31 - 1))


def _warn(what: str, status: Status, advice: str) -> None:
    """Say that something is not to be relied on, as estimators do."""
    if status is not Status.OK:
        warnings.warn(f"the status of {what} is {status}: {advice}", _exceptions.ConvergenceWarning, stacklevel=3)
