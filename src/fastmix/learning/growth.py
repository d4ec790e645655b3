"""Sparse graphs grown from the best tree, with chains that go through all activities (:mod:`.activity`).

Steps of the likelihood, at every size of the graph, are those of stochastic approximation with a Newton direction: as
they get shorter the noise of all measurements averages out. The probability that all variables are in their usual state
gives log Z at every step, so that the score on the validation data says when to stop.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import sparse

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import Clock, Ending
from fastmix._memory import check_memory
from fastmix.graphs import complete_edges
from fastmix.graphs.edges import canonical_edges
from fastmix.learning.activity import ActivityChains, pair_features
from fastmix.learning.chow_liu import best_tree
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.dataset import Dataset
from fastmix.learning.fit import model_norms, validate
from fastmix.learning.model_moments import is_enumerable
from fastmix.learning.problem import Problem
from fastmix.learning.result import LearnResult
from fastmix.learning.tuning import (
    CHUNK_NUMBERS,
    EDGE_GROWTH,
    FIRST_SHARE_STEPS,
    GROWING_CAUTION,
    GROWING_CHAINS,
    GROWING_DAMPING,
    GROWING_SNAPSHOTS,
    GROWING_STEPS,
    MAX_GROWING_GAIN,
    MAX_GROWING_VARIABLES,
    MAX_SCORE_DIFFERENCE,
    MIN_EDGE_GAIN,
    PRIOR_VARIANCE,
    SCORE_CAUTION,
    SMALLEST_GROWTH,
    SPARSE_ACTIVITY,
    TREE_SMOOTHING,
    UMBRELLA_ROUNDS,
)
from fastmix.model import MarkovRandomField
from fastmix.results import Status

__all__ = ["can_grow", "grow", "is_sparse"]


def can_grow(problem: Problem) -> bool:
    """Whether growing is prepared for a problem: binary variables, complete rows, validation data, and no set."""
    data = problem.data
    if problem.validation is None or problem.within is not None or problem.hidden or not problem.is_likelihood:
        return False
    n = len(data.num_states)
    has_all = not data.has_missing and not problem.validation.has_missing
    is_binary = bool((data.num_states == 2).all())
    return is_binary and has_all and 2 < n <= MAX_GROWING_VARIABLES and not is_enumerable(data.num_states)


def is_sparse(problem: Problem) -> bool:
    """Whether few variables of a row are not in their usual states."""
    data = problem.data
    shares = data.weights @ (data.states != 0)
    return float(np.minimum(shares, 1.0 - shares).mean()) < SPARSE_ACTIVITY


@dataclass(eq=False)
class _Rows:
    """Rows as ones where a variable is not in its usual state, with their weights."""

    ones: sparse.csr_array
    weights: FloatArray

    def means(self, edges: IntArray) -> tuple[sparse.csr_array, FloatArray]:
        """Features of the rows on a graph, and their means."""
        features = pair_features(self.ones, edges)
        return features, np.asarray(features.T @ self.weights)


@dataclass(eq=False)
class _Stage:
    """A graph that was tried: its parameters, and its score on the validation data with the noise in it."""

    edges: IntArray
    parameters: FloatArray
    score: float
    noise: float
    gap: float
    moment_error: float


@dataclass(eq=False)
class _Growth:
    """The stages so far, and the chains that go on from one to the next."""

    problem: Problem
    clock: Clock
    ridge: float
    stages: list[_Stage] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        data = self.problem.data.merged()[0]
        rows = self.problem.validation
        assert rows is not None
        validation = rows.merged()[0]
        n = len(data.num_states)
        check_memory(80.0 * n * n, f"numbers for all pairs of {n:,} variables", "give the edges")
        self.usual = (data.weights @ data.states > 0.5).astype(np.int8)
        self.train = self._rows_of(data)
        self.valid = self._rows_of(validation)
        self.means = np.asarray(self.train.ones.T @ self.train.weights)
        self.rng = self.problem.context.rng("growth")
        tree = best_tree(data, TREE_SMOOTHING, self.clock)
        self.tree_edges = tree.edges
        self.tree_parameters = self._corner(tree)
        most = np.maximum(self.train.ones.sum(axis=1).max(), 1.0)
        top = int(min(n, 1.2 * float(most) + 2.0))
        states = (self.rng.random((GROWING_CHAINS, n)) < self.means).astype(np.int8)
        fields = np.log(np.maximum(self.means, 1e-6) / (1.0 - self.means))
        start = np.concatenate([fields, np.zeros(len(tree.edges))])
        self.chains = ActivityChains(tree.edges, start, states, top, self.rng)

    def _rows_of(self, data: Dataset) -> _Rows:
        """The rows of a dataset by what is unusual in them."""
        ones = sparse.csr_array((data.states != self.usual).astype(np.float64))
        return _Rows(ones, data.weights)

    # -- parameters ---------------------------------------------------------------------------------------------------

    def _corner(self, model: MarkovRandomField) -> FloatArray:
        """Log-odds where the others are usual, and couplings, of a binary model."""
        unary = model.log_unary.reshape(-1, 2)
        tables = model.log_pairwise.reshape(-1, 2, 2)
        for variable in np.flatnonzero(self.usual):
            unary = unary.copy()
            unary[variable] = unary[variable, ::-1]
        i, j = model.edges.T
        tables = np.where(self.usual[i][:, None, None] == 1, tables[:, ::-1], tables)
        tables = np.where(self.usual[j][:, None, None] == 1, tables[:, :, ::-1], tables)
        couplings = tables[:, 1, 1] - tables[:, 1, 0] - tables[:, 0, 1] + tables[:, 0, 0]
        fields = unary[:, 1] - unary[:, 0]
        np.add.at(fields, i, tables[:, 1, 0] - tables[:, 0, 0])
        np.add.at(fields, j, tables[:, 0, 1] - tables[:, 0, 0])
        return np.concatenate([fields, couplings])

    def model_of(self, stage: _Stage) -> MarkovRandomField:
        """The model of a stage, in the form of all that is learnt."""
        n = len(self.usual)
        unary = np.zeros((n, 2))
        unary[np.arange(n), 1 - self.usual] = stage.parameters[:n]
        tables = np.zeros((len(stage.edges), 2, 2))
        i, j = stage.edges.T
        tables[np.arange(len(i)), 1 - self.usual[i], 1 - self.usual[j]] = stage.parameters[n:]
        template = self.problem.data.blank_model(stage.edges)
        coordinates = Coordinates(template.structure)
        theta = np.concatenate([unary.ravel(), tables.ravel()])
        return template.with_parameters(coordinates.to_parameters(coordinates.from_parameters(theta)[0]))

    # -- the graph ----------------------------------------------------------------------------------------------------

    def next_edges(self, stage: _Stage, growth: float) -> IntArray:
        """The edges of a stage, and ``growth`` times as many that promise most, by the score test."""
        n = len(self.usual)
        gains = self._gains(stage)
        i, j = complete_edges(n).T
        gains = gains[i, j]
        count = max(8, int(growth * max(len(stage.edges), n)))
        best = np.argsort(-gains, kind="stable")[:count]
        best = best[gains[best] > MIN_EDGE_GAIN / self.problem.data.num_rows]
        return canonical_edges(n, np.concatenate([stage.edges, np.stack([i[best], j[best]], axis=1)]))

    def _gains(self, stage: _Stage) -> FloatArray:
        """What a coupling between two variables promises, (n, n), 0 where there is one."""
        n = len(self.usual)
        i, j = stage.edges.T
        both = (np.concatenate([i, j]), np.concatenate([j, i]))
        matrix = sparse.csr_array(sparse.coo_array((np.tile(stage.parameters[n:], 2), both), shape=(n, n)))
        products = np.zeros((n, n))
        residual = np.zeros(n)
        curvature = np.zeros(n)
        ones = self.train.ones
        step = max(1, CHUNK_NUMBERS // n)
        for first in range(0, ones.shape[0], step):
            self.clock.check()
            part = ones[first : first + step]
            weights = self.train.weights[first : first + step]
            odds = (part @ matrix).toarray()
            odds += stage.parameters[:n]
            shares = 1.0 / (1.0 + np.exp(-odds))
            left = (part.toarray() - shares) * weights[:, None]
            products += part.T @ left
            residual += left.sum(axis=0)
            curvature += weights @ (shares * (1.0 - shares))
        centered = products - np.outer(self.means, residual)
        slopes = centered + centered.T
        variances = self.means * (1.0 - self.means)
        curvatures = np.outer(variances, curvature)
        gains = 0.25 * slopes**2 / np.maximum(curvatures + curvatures.T, 1e-12)
        gains[i, j] = 0.0
        return np.asarray(gains)

    # -- a stage ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Take the chains to the tree, and spread them over all activities."""
        self.chains.move(self.tree_parameters)
        for k in range(UMBRELLA_ROUNDS):
            self.chains.sweep(4)
            self.chains.adapt(0.5 if 3 * k < 2 * UMBRELLA_ROUNDS else 0.2)
            self.clock.check()

    def fit(self, edges: IntArray) -> _Stage:
        """The parameters on a graph, from where the chains are, by steps that get shorter."""
        n = len(self.usual)
        self._widen(edges)
        features, wanted = self.train.means(edges)
        validated = self.valid.means(edges)[1]
        penalty = np.concatenate([np.full(n, 1e-6), np.full(len(edges), 0.25 * self.ridge)])
        scores = []
        gap = math.inf
        error = math.inf
        for k in range(GROWING_STEPS):
            self.clock.check()
            moments, log_z, sample = self._measure()
            parameters = self.chains.parameters
            scores.append(float(validated @ parameters) - log_z)
            gradient = moments - wanted + penalty * parameters
            direction = self._direction(gradient, features, sample, wanted, penalty)
            gap = -0.5 * float(gradient @ direction)
            error = float(np.abs(moments - wanted).max())
            share = 1.0 / max(1, k + 2 - FIRST_SHARE_STEPS)
            share = min(share, math.sqrt(MAX_GROWING_GAIN / max(gap, 1e-300)))
            self._note(gap, share, error, len(edges))
            self.chains.move(parameters + share * direction)
            for _ in range(2):
                self.chains.sweep(2)
                self.chains.adapt()
        last = np.array(scores[GROWING_STEPS // 2 :])
        return _Stage(
            edges,
            self.chains.parameters.copy(),
            float(last.mean()),
            float(last.std() / math.sqrt(len(last))),
            gap,
            error,
        )

    def _widen(self, edges: IntArray) -> None:
        """Let the chains have more edges, with couplings of 0."""
        n = len(self.usual)
        old = self.chains.edges
        parameters = np.zeros(n + len(edges))
        parameters[:n] = self.chains.parameters[:n]
        places = np.searchsorted(edges[:, 0] * n + edges[:, 1], old[:, 0] * n + old[:, 1])
        parameters[n + places] = self.chains.parameters[n:]
        self.chains.load(edges, parameters)

    def _measure(self) -> tuple[FloatArray, float, tuple[sparse.csr_array, FloatArray]]:
        """Moments of the model, log Z, and the last features of the chains with their weights."""
        n = len(self.usual)
        total = 0.0
        moments = np.zeros(n + len(self.chains.edges))
        zeros = 0.0
        for _ in range(GROWING_SNAPSHOTS):
            self.chains.sweep(2)
            weights = np.exp(-self.chains.bias[self.chains.activity])
            features = self.chains.features()
            moments += features.T @ weights
            zeros += float(weights @ np.exp(self.chains.log_zero()))
            total += float(weights.sum())
        return moments / total, math.log(total) - math.log(max(zeros, 1e-300)), (features, weights / weights.sum())

    def _direction(
        self, gradient: FloatArray, features: sparse.csr_array, sample: tuple[sparse.csr_array, FloatArray],
        wanted: FloatArray, penalty: FloatArray,
    ) -> FloatArray:  # fmt: skip
        """The Newton step, with covariances of the features over chains and data, by conjugate gradients."""
        from scipy.sparse.linalg import LinearOperator, cg

        drawn, shares = sample
        means = np.asarray(drawn.T @ shares)
        # Rare features are hardly seen by the chains: what noise makes of them is no step.
        noise = GROWING_CAUTION * float(shares @ shares) / GROWING_SNAPSHOTS
        diagonal = 0.5 * (means * (1.0 - means) + wanted * (1.0 - wanted)) + penalty + noise
        size = len(gradient)
        weights = self.train.weights

        def times(x: FloatArray) -> FloatArray:
            """The Hessian times a direction."""
            of_chains = drawn @ x
            of_rows = features @ x
            image = drawn.T @ (shares * (of_chains - shares @ of_chains))
            image = image + features.T @ (weights * (of_rows - weights @ of_rows))
            return np.asarray(0.5 * image + (penalty + noise + GROWING_DAMPING * diagonal) * x)

        hessian = LinearOperator((size, size), matvec=times, dtype=np.float64)
        nearly = LinearOperator(
            (size, size), matvec=lambda x: x / ((1.0 + GROWING_DAMPING) * diagonal), dtype=np.float64
        )
        return np.asarray(cg(hessian, -gradient, rtol=0.03, maxiter=60, M=nearly)[0])

    def _note(self, gap: float, share: float, error: float, num_edges: int) -> None:
        """An entry of the history, and a report of progress."""
        number = len(self.history) + 1
        self.history.append({
            "iteration": number,
            "gap": gap,
            "noise": None,
            "step": share,
            "moment_error": error,
            "num_sweeps": self.chains.num_sweeps,
            "num_edges": num_edges,
            "bias_bound": None,
            "norms": None,
            "seconds": self.problem.context.clock.seconds(),
        })  # fmt: skip
        details = {"gap": gap, "moment_error": error, "edges": float(num_edges)}
        self.problem.context.clock.report(number, None, "rounds", details=details)

    # -- all stages ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Grow the graph while the validation data gain, from the tree on."""
        self.start()
        n = len(self.usual)
        best = _Stage(self.tree_edges, self.tree_parameters, -math.inf, 0.0, 0.0, 0.0)
        growth = EDGE_GROWTH - 1.0
        while growth > SMALLEST_GROWTH:
            edges = self.next_edges(best, growth)
            if len(edges) == len(best.edges):
                break
            place = self.chains.pack()
            stage = self.fit(edges)
            self.stages.append(stage)
            if stage.score > best.score:
                best = stage
            else:  # back, and on by shorter steps
                self.chains.restore(place)
                growth *= 0.4
            if len(best.edges) == n * (n - 1) // 2:
                break


def grow(problem: Problem, ridge: float | str, share: float = 1.0) -> LearnResult | None:
    """The best model on a graph grown from the tree, in a share of the time; None where there was none by then.

    What the chains say of its score is compared with annealing. Where that says something else, there is a phase that
    the chains have missed: smaller graphs are judged too, and the best by annealing is the answer.
    """
    # The ridge counts an eighth of the square of a coupling, a Gaussian prior its half over the variance and the rows.
    weight = 4.0 / (PRIOR_VARIANCE * problem.data.num_rows) if isinstance(ridge, str) else ridge
    clock = problem.context.clock.part(share)
    growth: _Growth | None = None
    with Ending() as ending:
        growth = _Growth(problem, clock.part(0.8), weight)
        growth.run()
    if growth is None or not growth.stages:
        if ending.interrupted:
            raise KeyboardInterrupt
        return None
    ordered = sorted(growth.stages, key=lambda stage: -stage.score)
    best = ordered[0]
    smaller = [stage for stage in ordered if len(stage.edges) < len(best.edges)]
    judged: list[LearnResult] = []
    for stage in [best, *smaller[:2]]:
        judged.append(_judged(problem, growth, stage, weight, ending.by))
        if judged[-1].status is not Status.NOT_MIXED:
            break
    return max(judged, key=_least_score)


def _least_score(result: LearnResult) -> float:
    """The score of a result less two standard errors; -inf where it is unknown."""
    value = result.validation_log_likelihood
    error = result.stats.get("validation_std_error") or 0.0
    return -math.inf if value is None else value - SCORE_CAUTION * error


def _judged(problem: Problem, growth: _Growth, stage: _Stage, ridge: float, ended_by: str) -> LearnResult:
    """The result of a stage, with its score by annealing."""
    model = growth.model_of(stage)
    stats: dict[str, Any] = {
        "stopped_by": ended_by,
        "num_iterations": len(growth.history),
        "gap": stage.gap,
        "num_chains": GROWING_CHAINS,
        "num_sweeps": growth.chains.num_sweeps,
        "backend": "cpu",
        "path": [
            {"num_edges": len(other.edges), "validation_log_likelihood": other.score, "std_error": other.noise}
            for other in growth.stages
        ],
    }
    status = Status.INTERRUPTED if ended_by == "interrupt" else Status.OK
    value = None
    if status is Status.OK:
        value = validate(problem, model, problem.data.merged()[0], stats)
        error = stats.get("validation_std_error") or 0.0
        away = MAX_SCORE_DIFFERENCE + 4.0 * math.hypot(error, stage.noise)
        if value is None or abs(value - stage.score) > away:
            status = Status.NOT_MIXED
        elif ended_by != "done":
            status = Status.NOT_CONVERGED
    result = LearnResult(
        model=model,
        objective="likelihood",
        moments="sampled",
        status=status,
        value=None,
        ridge=ridge,
        l1=0.0,
        within=None,
        norms=model_norms(model, problem.context.clock),
        moment_error=stage.moment_error,
        bias_bound=None,
        validation_log_likelihood=value,
        num_rows=problem.data.num_rows,
        history=growth.history,
        stats=stats,
    )
    problem.found.append(result)
    return replace(result)
