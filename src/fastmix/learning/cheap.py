"""The cheap models of data, the independent one and the best tree, which what is learnt must not be worse than."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Ending, OutOfTimeError
from fastmix.errors import ModelError, NotConvergedError, ResourceError, UnfitMethodError
from fastmix.learning.chow_liu import best_tree
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.dataset import Dataset
from fastmix.learning.fit import independent_fit, model_norms, validate
from fastmix.learning.growth import can_grow, is_sparse
from fastmix.learning.masses import least_log_masses
from fastmix.learning.penalty_search import quality
from fastmix.learning.problem import FitSize, Problem
from fastmix.learning.pseudo_likelihood import PseudoLikelihood
from fastmix.learning.result import LearnResult
from fastmix.learning.resume import Ledger
from fastmix.learning.tuning import (
    HELD_OUT_SHARE,
    MAX_GUARDED_VARIABLES,
    MIN_GUARDED_ROWS,
    MIN_ROWS_PER_PARAMETER,
    NUM_TRIALS,
    ROUGH_VALIDATION_ERROR,
    SCORE_CAUTION,
    TREE_SMOOTHING,
    TREE_TIME_SHARE,
    TRIAL_SHARE,
    TRIAL_TIME_SHARE,
    USUAL_RIDGE,
)
from fastmix.model import MarkovRandomField
from fastmix.projection import project
from fastmix.results import Status

__all__ = ["CheapModels", "lower_score", "with_held_out_rows"]

#: Names of models in lists of what was compared.
FIT = "fit"
TREE = "chow-liu"
#: What makes a fit for a problem.
Learn = Callable[[Problem], LearnResult]


def lower_score(result: LearnResult) -> float:
    """What the validation score of a result is at least, up to two standard errors; -inf where it is unknown."""
    error = result.stats.get("validation_std_error") or 0.0
    return quality(result) - SCORE_CAUTION * error


@dataclass(frozen=True, eq=False)
class _Trial:
    """What was learnt from most of the rows, and the log-likelihoods (by name of the model) of the others."""

    results: list[LearnResult]
    logs: dict[str, FloatArray]


@dataclass(eq=False)
class CheapModels:
    """The independent model and the best tree of a problem, with their scores, to be compared with what was learnt.

    1. With validation data, the best of all by a lower bound on its score there comes back; in doubt 2. decides.
    2. Without any, all are compared on the rows themselves, less what they have gained there by chance, by the number
       of parameters (Akaike's criterion; Hurvich and Tsai 1989). A fit that is better by two standard errors of the
       difference stays, one that is worse by one gives way.
    3. Where the fit is not clearly better, and rows are few, all are learnt again without a fifth of the rows, and
       compared on it; up to three fifths, until one is better by two standard errors. In doubt 2. says which it is.
    4. Where a time limit may end the fit, and rows are few, the first fifth is held out before: a fit to the others
       that was seen to be better than what is cheap comes back if the one to all of them does not end.
    """

    problem: Problem
    edges: str | IntArray
    models: list[LearnResult] | None = None
    trials: list[_Trial] = field(default_factory=list)

    @property
    def _is_asked(self) -> bool:
        """Whether there is a choice: a tree that was asked for, and objectives of users, are what they are."""
        is_tree = isinstance(self.edges, str) and self.edges == "chow-liu"
        problem = self.problem
        return (problem.is_likelihood or isinstance(problem.objective, PseudoLikelihood)) and not is_tree

    @property
    def _is_free(self) -> bool:
        """Whether a cheap model may take the place of an optimum that is no worse than it should be."""
        data = self.problem.data
        is_even = float(np.ptp(data.weights)) == 0.0  # else there may be many more rows behind these
        is_searched = isinstance(self.edges, str) and not self.problem.hidden
        return self.problem.is_likelihood and is_searched and is_even and data.num_rows >= MIN_GUARDED_ROWS

    def prepare(self, learn: Learn) -> None:
        """Find the cheap models first where they may be all that there is time for, and try the fit on some rows."""
        if not self._is_asked or self.problem.context.clock.limit is None:
            return
        self.models = _cheap_results(self.problem, self.edges)
        is_late = self.problem.context.clock.past(1.0 - TRIAL_TIME_SHARE)
        if self.problem.validation is None and self._is_free and self._has_few_rows() and not is_late:
            self._try(learn, TRIAL_TIME_SHARE)

    def best(self, result: LearnResult, learn: Learn) -> LearnResult:
        """The result itself, or a cheap model that is better; its ``stats`` say what was compared.

        ``learn`` makes the same fit to other rows.
        """
        if not self._is_asked or (result.status is Status.INTERRUPTED and self.problem.validation is None):
            return result
        chosen = result
        compared: list[dict[str, Any]] = []
        with Ending() as ending:
            if self.problem.validation is not None:
                chosen, compared = self._by_scores(result, self.problem)
            elif result.status is not Status.OK and self.trials:
                chosen, compared = self._by_trials(self.trials[0].results[0])
            elif self.problem.is_likelihood and (result.status is not Status.OK or (self._is_free and not result.l1)):
                chosen, compared = self._by_own_rows(result, learn)
        if ending.interrupted:
            stopped = replace(result, status=Status.INTERRUPTED, stats={**result.stats, "stopped_by": "interrupt"})
            return _instead(stopped if chosen is result else chosen, stopped, compared)
        return _instead(chosen, result, compared)

    def _by_scores(self, result: LearnResult, problem: Problem) -> tuple[LearnResult, list[dict[str, Any]]]:
        """The result with the best score on validation data, and all scores.

        A fit whose score is better by less than two standard errors must be better on its own rows too, less what
        chance has made there.
        """
        if self.models is None:
            self.models = _cheap_results(problem, self.edges)
        all_results = [result, *self.models]
        # Of equal ones the first, which is what was asked for.
        best = max(all_results, key=lower_score)
        rival = max(self.models, key=quality)
        if best is result and self._is_free and self._is_luck(result, rival):
            best = rival
        return best, _scores(all_results)

    def _is_luck(self, result: LearnResult, rival: LearnResult) -> bool:
        """Whether a model may be better than another on the validation data by chance alone."""
        rows = self.problem.validation
        if rows is None or not math.isfinite(quality(rival)):
            return False
        spread = self._spread(result, rival, rows)
        gain = lower_score(result) - quality(rival)
        if spread is None or gain > SCORE_CAUTION * _std_error(rows, spread):
            return False
        data = self.problem.data
        own = self._spread(result, rival, data)
        if own is None:
            return False
        log_z = float(rows.weights @ spread) - gain
        return float(data.weights @ own) - log_z < self._optimism(result) - self._optimism(rival)

    def _spread(self, result: LearnResult, rival: LearnResult, rows: Dataset) -> FloatArray | None:
        """Differences of the log-weights of all rows; None where they cannot be had."""
        try:
            return least_log_masses(result.model, rows)[0] - least_log_masses(rival.model, rows)[0]
        except ResourceError:
            return None

    # -- without validation data --------------------------------------------------------------------------------------

    def _by_own_rows(self, result: LearnResult, learn: Learn) -> tuple[LearnResult, list[dict[str, Any]]]:
        """The best on the rows it was learnt from, less what chance makes there, or by some rows that are held out."""
        problem = self.problem
        is_there = result.status is Status.OK
        is_sampled = result.moments in ("sampled", "tempered")
        most_lost = 0.5 * _num_effective(result) / problem.data.num_rows
        if is_there and is_sampled and most_lost <= ROUGH_VALIDATION_ERROR:  # its score is no more certain than that
            return result, []
        context = problem.context.within("guard")
        rows = problem.data.with_hidden(problem.hidden)
        part = replace(problem, validation=rows, rough=True, context=context)
        known = _cheap_results(part, self.edges) if self.models is None else self.models
        cheap = [_as_cheap(part, model) for model in known]
        stats = dict(result.stats)
        value = None
        try:
            value = validate(part, result.model, problem.merged(), stats)
        except OutOfTimeError:  # what nothing is known of gives way
            pass
        except ResourceError:  # no time would be enough
            return result, []
        scored = replace(result, validation_log_likelihood=value, stats=stats)
        best = max(cheap, key=self._corrected)
        gain = self._corrected(best) - self._corrected(scored)
        error = math.inf
        if math.isfinite(gain):
            spread = self._spread(best, scored, rows)
            assert spread is not None  # both have scores
            error = _std_error(rows, spread) + (stats.get("validation_std_error") or 0.0)
        is_held_back = result.ridge > USUAL_RIDGE and quality(scored) < quality(best)
        if is_there and is_held_back:  # by a penalty that was asked for, not by chance
            return result, []
        if not is_there:
            is_better = gain > 0.0
        elif gain < -SCORE_CAUTION * error:
            return result, []
        elif self._has_few_rows() and self._try_until_decided(learn):
            return self._by_trials(result, in_doubt=gain > 0.0)
        else:
            is_better = gain > error
        found = replace(best, validation_log_likelihood=None) if is_better else result
        return found, _scores([scored, *cheap])

    def _corrected(self, result: LearnResult) -> float:
        """The score of a result on its own rows, less what chance has made of it."""
        return quality(result) - self._optimism(result)

    def _optimism(self, result: LearnResult) -> float:
        """What chance makes of the score of a result on its own rows, for p parameters and N of these.

        That is p / N for cheap models, whose parameters are those of single conditional distributions, and p / (N - p)
        for others, whose parameters all depend on each other.
        """
        num_rows = self.problem.data.num_rows
        p = _num_effective(result)
        return p / num_rows if "cheap" in result.stats else p / max(num_rows - p, 0.1)

    def _has_few_rows(self) -> bool:
        """Whether the rows are too few for the number of parameters to tell what chance makes of them."""
        size = FitSize.of_complete(self.problem.data.num_states, 0)
        return self.problem.data.num_rows < MIN_ROWS_PER_PARAMETER * (size.num_contrasts + size.num_pairs)

    def _try_until_decided(self, learn: Learn) -> bool:
        """Learn again from most of the rows, some times; whether that gave a trial."""
        while len(self.trials) < NUM_TRIALS and (not self.trials or not self._is_decided()):
            if not self._try(learn):
                break
        return bool(self.trials)

    def _by_trials(
        self, result: LearnResult, *, in_doubt: bool | None = None
    ) -> tuple[LearnResult, list[dict[str, Any]]]:
        """The result, or the cheap model that was better on the rows held out so far."""
        compared = _scores(self.trials[0].results)
        best, mean, _ = self._gain()
        is_better = mean > 0.0 if in_doubt is None or self._is_decided() else in_doubt
        if not is_better:
            return replace(result, validation_log_likelihood=None), compared
        if self.models is None:
            self.models = _cheap_results(self.problem, self.edges)
        models = {name_of(own): own for own in self.models}
        return models.get(best, result), compared

    def _is_decided(self) -> bool:
        """Whether the difference between the fit and the best cheap model is more than two standard errors."""
        _, mean, error = self._gain()
        return abs(mean) > SCORE_CAUTION * error

    def _gain(self) -> tuple[str, float, float]:
        """The best cheap model, by how much it is better than the fit on rows held out, and the error of that."""
        logs = {
            name: np.concatenate([t.logs[name] for t in self.trials if name in t.logs]) for name in self.trials[0].logs
        }
        names = [name for name in logs if name != FIT and len(logs[name]) == len(logs[FIT])]
        best = max(names, key=lambda name: float(logs[name].mean()))
        if TREE in names and best != TREE:  # unless it is better by more than chance
            mean, error = _mean(logs[best] - logs[TREE])
            best = best if mean > SCORE_CAUTION * error else TREE
        return best, *_mean(logs[best] - logs[FIT])

    def _try(self, learn: Learn, share: float = 1.0) -> bool:
        """Learn again from most of the rows, in a share of the time; whether that gave a trial."""
        problem = self.problem
        most, rest = _split(problem.data, problem.context.rng("held out"), len(self.trials))
        context = problem.context.within(f"trial {len(self.trials)}", problem.context.clock.part(share))
        part = replace(
            problem, data=most, validation=rest, rough=True, ledger=Ledger(None), found=[], context=context
        )  # fmt: skip
        try:
            again = learn(part)
        except (ModelError, ResourceError, OutOfTimeError):  # fewer rows are not enough, or take too long to judge
            return False
        if again.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        cheap = _cheap_results(part, self.edges)
        if self.models is not None and len(cheap) < len(self.models):  # no time for the tree
            return False
        results = [again, *cheap]
        logs = {name_of(own): _row_scores(own, rest) for own in results}
        self.trials.append(_Trial(results, logs))
        return True


def name_of(result: LearnResult) -> str:
    """How lists of what was compared call a result."""
    return {"none": "independent", "closed form": TREE}.get(result.moments if "cheap" in result.stats else "", FIT)


def _scores(results: list[LearnResult]) -> list[dict[str, Any]]:
    """What was compared, for the ``stats`` of the answer."""
    return [
        {
            "model": name_of(result),
            "status": str(result.status),
            "num_edges": result.model.num_edges,
            "validation_log_likelihood": quality(result),
            "std_error": result.stats.get("validation_std_error"),
        }
        for result in results
    ]


# -- the cheap models -------------------------------------------------------------------------------------------------


def _cheap_results(problem: Problem, edges: str | IntArray) -> list[LearnResult]:
    """The independent model, and the best tree where it can be had, with their scores."""
    found = [_as_cheap(problem, independent_fit(problem, 0.0, 0.0))]
    with contextlib.suppress(OutOfTimeError, ResourceError, UnfitMethodError):
        tree = _tree(problem, edges)
        if tree is not None:
            found.append(_as_cheap(problem, tree))
    return found


def _as_cheap(problem: Problem, result: LearnResult) -> LearnResult:
    """A result with its validation score, marked as cheap; it takes no time to speak of, so there always is one."""
    problem = replace(problem, context=problem.context.within("cheap", NO_LIMIT))
    stats: dict[str, Any] = {"stopped_by": "done", "num_iterations": 0, "cheap": True}
    value = None
    with contextlib.suppress(OutOfTimeError, ResourceError, UnfitMethodError):
        value = validate(problem, result.model, problem.merged(), stats)
    return replace(result, validation_log_likelihood=value, status=Status.OK, stats=stats)


def _tree(problem: Problem, edges: str | IntArray) -> LearnResult | None:
    """The best tree whose edges are allowed, within the set that was asked for; None of very many variables."""
    data = problem.data.merged()[0]
    allowed = None
    if not isinstance(edges, str):
        if len(data.num_states) > MAX_GUARDED_VARIABLES:
            return None
        n = len(data.num_states)
        allowed = edges[(edges < n).all(axis=1)]  # hidden variables are in none
    clock = problem.context.clock
    if data.has_missing:  # expectation maximization ends where its time does
        clock = clock.part(TREE_TIME_SHARE)
    tree = best_tree(data, TREE_SMOOTHING, clock, allowed)
    own = Coordinates(tree.structure)
    v, _ = own.from_parameters(tree.parameters)
    if problem.within is not None:
        tree = _within(problem, tree.with_parameters(own.to_parameters(v)).replace(log_constant=0.0))
        v, _ = own.from_parameters(tree.parameters)
    graph = tree.edges if allowed is None else problem.graph(edges)
    whole = problem.data.with_hidden(problem.hidden)
    template = whole.blank_model(graph)
    model = template.with_parameters(_widened(own, v, template))
    return replace(
        independent_fit(problem, 0.0, 0.0),
        model=model,
        moments="closed form",
        norms=model_norms(model, problem.context.clock),
    )


def _widened(own: Coordinates, v: FloatArray, template: MarkovRandomField) -> FloatArray:
    """Parameters of a model with more variables and edges, at the end, whose tables are 0 there."""
    wide = Coordinates(template.structure)
    d = own.num_contrasts
    fields = np.zeros(wide.num_contrasts)
    fields[:d] = v[:d]
    products = np.zeros((wide.num_contrasts, wide.num_contrasts))
    products[:d, :d] = own.matrix(v)
    return wide.to_parameters(wide.gather(fields, products))


def _within(problem: Problem, tree: MarkovRandomField) -> MarkovRandomField:
    """The closest model to a tree in the set that was asked for."""
    within = problem.within
    assert within is not None
    try:
        return project(tree, norm_bound=within.bound, norm=within.norm, progress=None).model
    except NotConvergedError as error:
        return error.result.model


# -- comparing --------------------------------------------------------------------------------------------------------


def with_held_out_rows(problem: Problem) -> Problem:
    """The problem with a tenth of its rows to validate by, where a sparse graph can then be grown; else as it was."""
    data = problem.data
    is_even = float(np.ptp(data.weights)) == 0.0
    if problem.validation is not None or not is_even or data.num_rows < MIN_GUARDED_ROWS / HELD_OUT_SHARE:
        return problem
    most, rest = _split(data, problem.context.rng("held out"), 0, HELD_OUT_SHARE)
    part = replace(problem, data=most, validation=rest)
    return part if can_grow(part) and is_sparse(part) else problem


def _split(data: Dataset, rng: np.random.Generator, number: int, share: float = TRIAL_SHARE) -> tuple[Dataset, Dataset]:
    """The rows without the part of this number, and these, in an order that is drawn."""
    order = rng.permutation(len(data.states))
    parts = np.array_split(order, round(1.0 / share))
    return _rows(data, np.setdiff1d(order, parts[number])), _rows(data, parts[number])


def _rows(data: Dataset, chosen: IntArray) -> Dataset:
    """Some of the rows, with weights that add up to 1."""
    weights = data.weights[chosen]
    num_rows = max(1, round(data.num_rows * len(chosen) / len(data.states)))
    return replace(data, states=data.states[chosen], weights=weights / weights.sum(), num_rows=num_rows)


def _mean(gains: FloatArray) -> tuple[float, float]:
    """The mean of some numbers and its standard error; infinite where a number is."""
    if not np.isfinite(gains).all():
        return math.inf, 0.0
    return float(gains.mean()), float(gains.std()) / math.sqrt(max(1, len(gains) - 1))


def _row_scores(result: LearnResult, rows: Dataset) -> FloatArray:
    """The log-likelihood of every row, -inf where log Z is unknown."""
    value = lower_score(result)
    if not math.isfinite(value):
        return np.full(len(rows.states), -math.inf)
    masses = least_log_masses(result.model, rows)[0]
    return masses - float(rows.weights @ masses) + value


def _std_error(rows: Dataset, values: FloatArray) -> float:
    """The standard error of the mean over the rows of a value for each."""
    variance = float(rows.weights @ (values - rows.weights @ values) ** 2)
    return math.sqrt(variance * float((rows.weights**2).sum()))


def _num_effective(result: LearnResult) -> float:
    """How many parameters a model has, those that a ridge holds back only in part.

    Of one with the variance v a ridge r leaves v / (v + r). That of a contrast of q states is at most 1/q on average,
    that of a product of two contrasts the product of both.
    """
    share = 1.0 / result.model.num_states
    pairs = share[result.model.edges].prod(axis=1)
    contrasts = result.model.num_states - 1.0
    of_pairs = contrasts[result.model.edges].prod(axis=1) * pairs / (pairs + result.ridge)
    return float((contrasts * share / (share + result.ridge)).sum() + of_pairs.sum())


def _instead(chosen: LearnResult, result: LearnResult, compared: list[dict[str, Any]]) -> LearnResult:
    """What was chosen, with the verdict on the fit that was asked for, and with what was compared."""
    more = {"compared": compared} if compared else {}
    if chosen is result:
        return replace(result, stats={**result.stats, **more})
    kept = ("validation_std_error", "log_z_method")
    scores = {name: chosen.stats[name] for name in kept if name in chosen.stats}
    stats = {name: value for name, value in result.stats.items() if name not in kept}
    return replace(chosen, status=result.status, history=result.history, stats={**stats, **scores, **more})
