"""``ConditionalRandomField``: labels of the nodes of graphs, from features of nodes and edges."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray
from fastmix._checks import as_list, check_choice, check_count, check_positive, describe
from fastmix._clock import Report
from fastmix._context import open_context
from fastmix._memory import check_memory
from fastmix.crf.design import Design, Layout
from fastmix.crf.examples import UNKNOWN, Examples, code_labels, read_examples, read_labels
from fastmix.crf.fit import FitSettings, fit_weights
from fastmix.crf.posterior import Posterior
from fastmix.crf.result import ConditionalFit
from fastmix.errors import ModelError, UnfitMethodError
from fastmix.learning import NormBall
from fastmix.method import Method
from fastmix.model import MarkovRandomField

__all__ = ["ConditionalRandomField"]

#: Larger penalties leave no weight that counts, and overflow.
MAX_RIDGE = 1e12
DECODERS = ("marginal", "most_probable")


class ConditionalRandomField:
    """An estimator of the labels of all nodes of a graph together, in the shape of scikit-learn's.

    ``p(y | x) = exp(sum_i u_i(y_i) + sum_ij T_ij(y_i, y_j)) / Z(x)`` with ``u_i = W' (f_i, 1)`` for the features f_i of
    node i, and ``T_ij = sum_g (f_ij, 1)_g P_kg`` for the features f_ij of an edge of kind k. Minimizes ``-(mean over
    the examples of log p(y | x)) + ridge/2 (|W|^2 + |P|^2)``, which is convex.

    Parameters
    ----------
    objective : {"likelihood", "pseudo-likelihood"}
        The pseudo-likelihood (the sum over nodes of the log-probability of their label given those of their neighbors)
        needs no moments: it is quick on every graph, and a little worse.
    moments : {"auto", "exact", "sampled"}
        How to find moments for the likelihood: exact for trees, such as chains, and where the tables fit, else sampled
        by persistent Gibbs chains.
    within : NormBall, optional
        The model of every example is projected onto this set, in the fit and in predictions. With a bound below 1 all
        of them mix fast, whatever the features. Norms ``inf``, ``1`` and ``spectral``. The objective is not convex
        then; ``result_.price`` says what the set costs.
    ridge : float, optional
        Weight of the penalty; by default 1 / (number of examples), which is a standard normal prior of every weight.
    symmetric : sequence of int
        Kinds of edges without a direction: their tables are equal to their transpose.
    inference : str or Method
        How to answer for graphs with cycles: ``auto`` is exact inference where it takes less than a second, else loopy
        belief propagation, for which nothing vouches; others as for :func:`fastmix.infer`. An answer that did not
        converge, or did not mix, comes with a warning.
    decode : {"marginal", "most_probable"}
        Whether predictions are the most probable label of every node, or the most probable labels together.
    num_chains : int, optional
        Persistent chains of a sampled likelihood; 32 by default.
    tol : float, optional
        Largest entry of the gradient, in scaled coordinates, at which to stop, 1e-2 (2e-2 within a set); sampled, the
        nats per example that may be left to gain, 0.02.
    max_iter : int, optional
        Iterations (1,000), or, sampled, rounds of sweeps (300).
    time_limit : float, optional
        Seconds for a fit, compiling not included; the best weights by then stay.
    random_state : int, optional
        The seed of what is drawn, a whole number from 0.
    progress : "auto", None or callable
        As for :func:`fastmix.learn`.

    Attributes
    ----------
    classes_ : array (K,)
        The labels, sorted.
    node_weights_ : float array (F + 1, K)
        W; the last row belongs to a feature that is always 1.
    edge_weights_ : float array (kinds, G + 1, K, K)
        P, rows for the first node of an edge; the last tables belong to a feature that is always 1.
    result_ : ConditionalFit
        The verdict on the fit, and what is known of it.

    Notes
    -----
    An example is a :class:`Graph`, or a table of features (n, F): a chain. Labels of an example are a sequence of whole
    numbers or of text, or an array of the shape of a grid; None, NaN and -1 are missing. The likelihood sums over
    missing labels, and is not convex then; the pseudo-likelihood leaves out nodes that miss a label, or have a neighbor
    that does.

    A chain of n labels with K states takes O(n K^2) for an evaluation; 50,000 letters of 26 states about 60 ms.

    References
    ----------
    Lafferty, McCallum and Pereira, "Conditional random fields" (2001); Besag, "Statistical analysis of non-lattice
    data" (1975), for the pseudo-likelihood.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = [np.cumsum(rng.random(8) < 0.3) % 2 for _ in range(100)]
    >>> X = [labels[:, None] + rng.normal(size=(8, 1)) for labels in y]
    >>> field = ConditionalRandomField().fit(X[:80], y[:80])
    >>> field.result_.status, bool(field.score(X[80:], y[80:]) > 0.7)
    (<Status.OK: 'ok'>, True)
    """

    def __init__(
        self,
        *,
        objective: Literal["likelihood", "pseudo-likelihood"] = "likelihood",
        moments: Literal["auto", "exact", "sampled"] = "auto",
        within: NormBall | None = None,
        ridge: float | None = None,
        symmetric: Sequence[int] = (),
        inference: str | Method = "auto",
        decode: Literal["marginal", "most_probable"] = "marginal",
        num_chains: int | None = None,
        tol: float | None = None,
        max_iter: int | None = None,
        time_limit: float | None = None,
        random_state: int | None = None,
        progress: Report = "auto",
    ) -> None:
        self.objective = objective
        self.moments = moments
        self.within = within
        self.ridge = ridge
        self.symmetric = symmetric
        self.inference = inference
        self.decode = decode
        self.num_chains = num_chains
        self.tol = tol
        self.max_iter = max_iter
        self.time_limit = time_limit
        self.random_state = random_state
        self.progress = progress

    # -- parameters, as scikit-learn asks for them --------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002 (no parameter has some of its own)
        """The parameters of the constructor by name."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> ConditionalRandomField:
        """The estimator, with some parameters replaced; they are checked by the next fit."""
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise ValueError(f"params must be among {', '.join(known)}, got {name!r}")
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn asks of an estimator: a classifier of objects that are no vectors."""
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier", target_tags=TargetTags(required=True), classifier_tags=ClassifierTags(),
            input_tags=InputTags(two_d_array=False),
        )  # fmt: skip

    def __repr__(self) -> str:
        plain = ConditionalRandomField().get_params()
        own = {name: value for name, value in self.get_params().items() if value is not plain[name]}
        changed = {name: value for name, value in own.items() if describe(value) != describe(plain[name])}
        return f"ConditionalRandomField({', '.join(f'{name}={describe(value)}' for name, value in changed.items())})"

    # -- fit ----------------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any) -> ConditionalRandomField:
        """The estimator, fitted to the labels of examples.

        Parameters
        ----------
        X : sequence of Graph or of float arrays (n, F)
        y : sequence of sequences of labels

        Raises
        ------
        ModelError
            If examples or labels do not fit together, or no label is known.
        UnfitMethodError
            If the set has another norm than ``inf``, ``1`` and ``spectral``.
        ResourceError
            If exact moments are asked for, and the tables do not fit.
        Interrupted
            On Ctrl-C: a KeyboardInterrupt whose ``result`` is about the weights so far, which stay.
        """
        examples = read_examples(X)
        settings, symmetric = self._settings(len(examples))
        seed = _as_seed(self.random_state)
        codes, classes = code_labels(read_labels(y, examples), None)
        if not len(classes):
            raise ModelError("y must hold some labels that are known, got none")
        num_kinds = 1 + int(examples.kinds.max(initial=0))
        if any(kind >= num_kinds for kind in symmetric):
            raise ValueError(f"symmetric must hold kinds of edges below {num_kinds}, got {max(symmetric)}")
        of_edges = 0 if examples.edge_features is None else examples.edge_features.shape[1]
        layout = Layout(
            num_states=len(classes),
            num_features=examples.features.shape[1],
            num_edge_features=of_edges,
            num_kinds=num_kinds,
            symmetric=tuple(kind in symmetric for kind in range(num_kinds)),
        )
        _check_size(examples, layout)
        options = {name: _noted(value) for name, value in self.get_params().items() if name != "progress"}
        with open_context(
            "fit", seed=seed, time_limit=self.time_limit, progress=self.progress, options=options
        ) as context:
            fitted = fit_weights(examples, codes, layout, settings, context)
            self.classes_ = classes
            self._layout = layout
            self._w = fitted.w
            self.node_weights_, self.edge_weights_ = layout.split(fitted.w)
            design = Design(examples.take(np.zeros(1, dtype=np.int64)), layout)
            model = Posterior(design, fitted.w, settings.within, "auto", context).model(self._state_names())
            self.result_ = context.complete(
                ConditionalFit(
                    model=model, status=fitted.status, objective=settings.objective, moments=fitted.moments,
                    value=fitted.value, ridge=settings.ridge, within=settings.within, price=fitted.price,
                    num_examples=len(examples), num_labels=int((codes != UNKNOWN).sum()), num_weights=layout.size,
                    history=fitted.history, stats={"stopped_by": fitted.stopped_by, **fitted.stats},
                )
            )  # fmt: skip
            context.finish(self.result_)
        return self

    def _settings(self, num_examples: int) -> tuple[FitSettings, tuple[int, ...]]:
        """The parameters of a fit, checked, and the symmetric kinds."""
        check_choice("objective", self.objective, ("likelihood", "pseudo-likelihood"))
        check_choice("moments", self.moments, ("auto", "exact", "sampled"))
        check_choice("decode", self.decode, DECODERS)
        if self.within is not None and not isinstance(self.within, NormBall):
            raise ValueError(f"within must be a NormBall such as NormBall('inf', 0.9), got {describe(self.within)}")
        if self.within is not None and self.within.norm not in ("inf", "1", "spectral"):
            raise UnfitMethodError(
                f"within must bound the norm inf, 1 or spectral, those by which examples are apart, got {self.within}"
            )
        kinds = as_list("symmetric", self.symmetric, "a list of kinds of edges")
        checked = tuple(check_count("symmetric", kind, least=0) for kind in kinds)
        settings = FitSettings(
            objective=self.objective,
            moments=self.moments,
            within=self.within,
            ridge=1.0 / num_examples
            if self.ridge is None
            else check_positive("ridge", self.ridge, "number", or_zero=True, most=MAX_RIDGE),
            num_chains=None if self.num_chains is None else check_count("num_chains", self.num_chains, least=2),
            tol=None if self.tol is None else check_positive("tol", self.tol),
            max_iter=None if self.max_iter is None else check_count("max_iter", self.max_iter, least=1),
        )
        return settings, checked

    # -- answers ------------------------------------------------------------------------------------------------------

    def predict(self, X: Any) -> list[NDArray[Any]]:
        """Labels of all nodes of every example, in the shape of the example."""
        check_choice("decode", self.decode, DECODERS)
        with self._asked(X) as answers:
            codes = answers.modes() if self.decode == "most_probable" else answers.marginals().argmax(axis=1)
            return answers.examples.by_example(self.classes_[codes])

    def predict_proba(self, X: Any) -> list[FloatArray]:
        """Probabilities (n, K) of the classes at every node of every example, (H, W, K) for a grid."""
        with self._asked(X) as answers:
            return answers.examples.by_example(answers.marginals())

    def score(self, X: Any, y: Any) -> float:
        """The share of the known labels that are predicted."""
        given = read_labels(y, self._read(X))
        codes, _ = code_labels(given, None)
        known = codes != UNKNOWN
        if not known.any():
            raise ModelError("y must hold some labels that are known, got none")
        predicted = np.concatenate([part.reshape(-1) for part in self.predict(X)])
        pairs = zip(predicted[known].tolist(), given[known].tolist(), strict=True)
        return float(np.mean([mine == theirs for mine, theirs in pairs]))

    def log_likelihood(self, X: Any, y: Any) -> FloatArray:
        """The log-probability of the known labels of every example; a ResourceError where exact sums do not fit.

        Labels that were not seen in the fit are refused.
        """
        with self._asked(X) as answers:
            codes, _ = code_labels(read_labels(y, answers.examples), self.classes_)
            return answers.log_likelihood(codes)

    def sample(self, X: Any, n_samples: int = 1, random_state: int | None = None) -> list[NDArray[Any]]:
        """Labels drawn for every example, (n_samples, n): exactly where feasible, else by Gibbs chains."""
        count = check_count("n_samples", n_samples, least=1)
        with self._asked(X, random_state) as answers:
            check_memory(16.0 * count * answers.examples.num_nodes, f"{count:,} draws", "ask for fewer")
            draws = answers.draws(count)
            parts = answers.examples.by_example(np.ascontiguousarray(draws.T), shaped=False)
            shapes = answers.examples.shapes
            return [self.classes_[part.T].reshape(count, *shape) for part, shape in zip(parts, shapes, strict=True)]

    def model(self, x: Any) -> MarkovRandomField:
        """The model of the labels of one example, for all else that fastmix does with models.

        The states have the names of the classes; with ``within`` it is the projected one.
        """
        with self._asked([x]) as answers:
            return answers.model(self._state_names())

    @contextmanager
    def _asked(self, X: Any, seed: int | None = None) -> Iterator[Posterior]:
        """The distribution of the labels of examples, within the context of a call."""
        examples = self._read(X)
        _check_size(examples, self._layout)
        chosen = _as_seed(self.random_state if seed is None else seed)
        with open_context("predict", seed=chosen, progress=None) as context:
            yield Posterior(Design(examples, self._layout), self._w, self.result_.within, self.inference, context)

    def _read(self, X: Any) -> Examples:
        """Examples that fit to those of the fit."""
        if not hasattr(self, "result_"):
            raise ValueError("the field must be fitted before it is asked: call fit(X, y)")
        layout = self._layout
        return read_examples(X, like=(layout.num_features, layout.num_edge_features, layout.num_kinds))

    def _state_names(self) -> tuple[str, ...]:
        """Names of the classes."""
        return tuple(str(label) for label in self.classes_.tolist())


def _as_seed(random_state: Any) -> int | None:
    """The seed that a random state is."""
    return None if random_state is None else check_count("random_state", random_state, least=0)


def _noted(value: Any) -> Any:
    """A parameter as the provenance shows it."""
    return value if value is None or isinstance(value, int | float | str) else describe(value)


def _check_size(examples: Examples, layout: Layout) -> None:
    """Refuse examples whose log-potentials, or weights, take more memory than there is."""
    nodes = 48.0 * examples.num_nodes * layout.num_states
    check_memory(nodes + 64.0 * layout.size, "the weights and log-potentials", "give fewer examples or labels")
