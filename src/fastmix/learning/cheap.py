"""The cheap models of data, the independent one and the best tree, which what is learnt must not be worse than."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Ending, OutOfTimeError
from fastmix.errors import ModelError, NotConvergedError, ResourceError, UnfitMethodError
from fastmix.learning.chow_liu import best_tree
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.dataset import Dataset
from fastmix.learning.fit import independent_fit, model_norms, validate
from fastmix.learning.graph_search import learn_graph
from fastmix.learning.masses import log_masses
from fastmix.learning.penalty_search import quality
from fastmix.learning.problem import Problem
from fastmix.learning.pseudo_likelihood import PseudoLikelihood
from fastmix.learning.result import LearnResult
from fastmix.learning.resume import Ledger
from fastmix.learning.tuning import (
    HELD_OUT_SHARE,
    MAX_GUARDED_VARIABLES,
    MIN_GUARDED_ROWS,
    MIN_ROWS_PER_PARAMETER,
    SCORE_CAUTION,
    TREE_SMOOTHING,
)
from fastmix.model import MarkovRandomField
from fastmix.projection import project
from fastmix.results import Status

__all__ = ["CheapModels", "lower_score"]


def lower_score(result: LearnResult) -> float:
    """What the validation score of a result is at least, up to two standard errors; -inf where it is unknown."""
    error = result.stats.get("validation_std_error") or 0.0
    return quality(result) - SCORE_CAUTION * error


@dataclass(eq=False)
class CheapModels:
    """The independent model and the best tree of a problem, with their scores, to be compared with what was learnt.

    1. With validation data, the best of all by a lower bound on its score there comes back.
    2. Without any, an optimum of at least as many rows as parameters stays as it is. Where rows are fewer, all are
       learnt again from nine tenths of them, and a cheap model that is better on the last tenth by more than a standard
       error of the difference is the answer.
    3. Where the time ended the fit, or chains were lost, a cheap model that is better on the rows themselves is.
    """

    problem: Problem
    edges: str | IntArray
    models: list[LearnResult] | None = None

    @property
    def _is_asked(self) -> bool:
        """Whether there is a choice: a tree that was asked for, and objectives of users, are what they are."""
        is_tree = isinstance(self.edges, str) and self.edges == "chow-liu"
        problem = self.problem
        return (problem.is_likelihood or isinstance(problem.objective, PseudoLikelihood)) and not is_tree

    def prepare(self) -> None:
        """Find the cheap models first where they may be all that there is time for."""
        if self._is_asked and self.problem.context.clock.limit is not None:
            self.models = _cheap_results(self.problem, self.edges)

    def best(self, result: LearnResult) -> LearnResult:
        """The result itself, or a cheap model that is better; its ``stats`` say what was compared."""
        if not self._is_asked:
            return result
        chosen = result
        compared: list[dict[str, Any]] = []
        with Ending() as ending:
            if self.problem.validation is not None:
                chosen, compared = self._by_scores(result, self.problem)
            elif result.status is Status.OK and not self._is_loose(result):
                return result
            elif result.status is Status.OK:
                chosen, compared = self._by_held_out_rows(result)
            elif self.problem.is_likelihood and _is_lost(result):
                chosen, compared = self._by_own_rows(result)
        if ending.interrupted:
            stopped = replace(result, status=Status.INTERRUPTED, stats={**result.stats, "stopped_by": "interrupt"})
            return _instead(stopped if chosen is result else chosen, stopped, compared)
        return _instead(chosen, result, compared)

    # -- three ways to compare ----------------------------------------------------------------------------------------

    def _by_scores(self, result: LearnResult, problem: Problem) -> tuple[LearnResult, list[dict[str, Any]]]:
        """The result with the best score on validation data, and all scores."""
        if self.models is None:
            self.models = _cheap_results(problem, self.edges)
        all_results = [result, *self.models]
        # Of equal ones the first, which is what was asked for.
        return max(all_results, key=lower_score), _scores(all_results)

    def _is_loose(self, result: LearnResult) -> bool:
        """Whether there are few rows for every parameter, so that an optimum may be worse than what is cheap."""
        data = self.problem.data
        if not isinstance(self.edges, str) or self.problem.hidden:
            return False
        contrasts = data.num_states - 1.0
        pairs = contrasts[result.model.edges]
        enough = MIN_ROWS_PER_PARAMETER * float(contrasts.sum() + pairs.prod(axis=1).sum())
        is_even = float(np.ptp(data.weights)) == 0.0  # else there may be many more rows behind these
        return is_even and MIN_GUARDED_ROWS <= data.num_rows < enough

    def _by_held_out_rows(self, result: LearnResult) -> tuple[LearnResult, list[dict[str, Any]]]:
        """The result, or the cheap model that is better by more than chance on a tenth that neither has seen."""
        problem = self.problem
        if not problem.is_likelihood:
            return result, []
        most, rest = _split(problem.data, problem.context.rng("held out"))
        part = replace(problem, data=most, validation=rest, rough=True, ledger=Ledger(None), found=[])
        try:
            again = learn_graph(part, self.edges, result.ridge, result.l1)
        except (ModelError, ResourceError, OutOfTimeError):  # fewer rows are not enough, or take too long to judge
            return result, []
        if again.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        if math.isinf(quality(again)):
            return result, []
        cheap = _cheap_results(part, self.edges)
        best = max(cheap, key=quality)
        chosen = result
        if _gain(best, again, rest) > 0.0:
            chosen = {name_of(own): own for own in _cheap_results(problem, self.edges)}[name_of(best)]
        return chosen, _scores([again, *cheap])

    def _by_own_rows(self, result: LearnResult) -> tuple[LearnResult, list[dict[str, Any]]]:
        """The best on the rows it was learnt from: where chains were lost, models are worse there already."""
        problem = self.problem
        context = problem.context.within("guard")
        part = replace(problem, validation=problem.data.with_hidden(problem.hidden), rough=True, context=context)
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
        best = max([scored, *cheap], key=lower_score)
        found = result if best is scored else replace(best, validation_log_likelihood=None)
        return found, _scores([scored, *cheap])


def _is_lost(result: LearnResult) -> bool:
    """Whether the time ended a fit, or its chains did not follow; one that ``max_iter`` ends is what was asked for."""
    return result.status is Status.NOT_MIXED or result.stats.get("stopped_by") == "time_limit"


def name_of(result: LearnResult) -> str:
    """How lists of what was compared call a result."""
    return {"none": "independent", "closed form": "chow-liu"}.get(
        result.moments if "cheap" in result.stats else "", "fit"
    )


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
    tree = best_tree(data, TREE_SMOOTHING, problem.context.clock, allowed)
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


def _split(data: Dataset, rng: np.random.Generator) -> tuple[Dataset, Dataset]:
    """Nine tenths of the rows, and the others, drawn at random."""
    order = rng.permutation(len(data.states))
    count = max(1, round(HELD_OUT_SHARE * len(order)))
    return _rows(data, order[count:]), _rows(data, order[:count])


def _rows(data: Dataset, chosen: IntArray) -> Dataset:
    """Some of the rows, with weights that add up to 1."""
    weights = data.weights[chosen]
    num_rows = max(1, round(data.num_rows * len(chosen) / len(data.states)))
    return replace(data, states=data.states[chosen], weights=weights / weights.sum(), num_rows=num_rows)


def _gain(other: LearnResult, result: LearnResult, rows: Dataset) -> float:
    """By how much a result is better than another on rows, less a standard error of the difference."""
    own = log_masses(other.model, rows)
    base = log_masses(result.model, rows)
    mean = quality(other) - quality(result)
    if not math.isfinite(mean):
        return mean
    spread = own - base
    variance = float(rows.weights @ (spread - rows.weights @ spread) ** 2)
    return mean - math.sqrt(variance * float((rows.weights**2).sum()))


def _instead(chosen: LearnResult, result: LearnResult, compared: list[dict[str, Any]]) -> LearnResult:
    """What was chosen, with the verdict on the fit that was asked for, and with what was compared."""
    more = {"compared": compared} if compared else {}
    if chosen is result:
        return replace(result, stats={**result.stats, **more})
    kept = ("validation_std_error", "log_z_method")
    scores = {name: chosen.stats[name] for name in kept if name in chosen.stats}
    stats = {name: value for name, value in result.stats.items() if name not in kept}
    return replace(chosen, status=result.status, history=result.history, stats={**stats, **scores, **more})
