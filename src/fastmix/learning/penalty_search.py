"""The choice of penalties on validation data: which to try, in which order, and when to stop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fastmix._arrays import IntArray
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.dataset import MISSING, Dataset
from fastmix.learning.fit import fit
from fastmix.learning.gaps import without_gaps
from fastmix.learning.independent import moments_of_contrasts
from fastmix.learning.penalty import table_norms
from fastmix.learning.problem import Problem
from fastmix.learning.pseudo_likelihood import PseudoLikelihood
from fastmix.learning.result import LearnResult
from fastmix.learning.tuning import L1_HALVINGS, MAX_RIDGE_BESIDE_L1, PSEUDO_PENALTY_SCALE, RIDGES
from fastmix.model import MarkovRandomField
from fastmix.results import Status

__all__ = ["best_found", "fit_with_penalties", "interrupted", "late", "quality"]


def quality(result: LearnResult) -> float:
    """What fits are compared by: their score on the validation data, -inf where that is unknown."""
    value = result.validation_log_likelihood
    return -math.inf if value is None or math.isnan(value) else value


def interrupted(best: LearnResult) -> LearnResult:
    """The best fit so far, of a search that Ctrl-C ended."""
    return replace(best, status=Status.INTERRUPTED, stats={**best.stats, "stopped_by": "interrupt"})


def late(best: LearnResult) -> LearnResult:
    """The best fit so far, of a search that had no time for the rest."""
    return replace(best, status=Status.NOT_CONVERGED, stats={**best.stats, "stopped_by": "time_limit"})


def best_found(found: Sequence[LearnResult]) -> LearnResult:
    """The best of the fits that have the objective of the last one; of equal ones the last."""
    alike = [result for result in found if result.objective == found[-1].objective]
    return max(reversed(alike), key=quality)


def fit_with_penalties(problem: Problem, graph: IntArray, ridge: float | str, l1: float | str) -> LearnResult:
    """The fit with penalties as given, or the best on the validation data of those that ``auto`` tries.

    1. With ``l1="auto"``, fits with l1 terms that get weaker.
    2. With ``ridge="auto"``, fits with ridges that get weaker, and the l1 term of the first.
    3. One more fit with the penalties that were the best, as fits of a search are rough.
    """
    if isinstance(ridge, str) or isinstance(l1, str):
        return _Search(problem, graph).run(ridge, l1)
    start = None
    if problem.hidden and l1:
        start = fit(replace(problem, rough=True), graph, ridge, 0.0).model
    return fit(problem, graph, ridge, l1, start)


class _Search:
    """The fits that were tried in a search for penalties on one graph, and the model to begin the next one at."""

    def __init__(self, problem: Problem, graph: IntArray) -> None:
        self.problem = problem
        self.graph = graph
        self.tried: list[LearnResult] = []
        self.start: MarkovRandomField | None = None
        # Where their tables are 0 hidden variables have no gradient, so the weakest penalties come first: from there on
        # a penalty can make tables 0 that the data do not need.
        self._order = -1 if problem.hidden else 1

    def run(self, ridge: float | str, l1: float | str) -> LearnResult:
        """The fit with the best penalties, and what was tried in its ``stats``."""
        if isinstance(l1, str):
            is_last = not self.problem.is_likelihood and not isinstance(ridge, str)
            best = self._try_l1(ridge, is_last=is_last)
            if best.status is Status.INTERRUPTED:
                return best
            if is_last:
                return self._with_tried(best)
            l1 = best.l1
            # Without an l1 term there can be modes that the data do not have.
            self.start = best.model if best.l1 else None
        if isinstance(ridge, str):
            best = self._try_ridges(l1)
            if best.status is Status.INTERRUPTED:
                return best
            if best.moments not in ("sampled", "tempered"):
                return self._with_tried(best)
            ridge = best.ridge
            self.start = best.model
        if self.problem.hidden and l1 and self.start is None:
            self.start = fit(replace(self.problem, rough=True), self.graph, ridge, 0.0).model
        found = fit(self.problem, self.graph, ridge, l1, self.start)
        if found.status is Status.INTERRUPTED and not found.history:
            found = interrupted(best)
        unjudged = any(math.isinf(quality(result)) for result in self.tried)
        if found.status is Status.OK and unjudged:  # no time was left for them
            found = replace(found, status=Status.NOT_CONVERGED)
        return self._with_tried(found)

    def _try_l1(self, ridge: float | str, *, is_last: bool) -> LearnResult:
        """The best fit with an l1 term, by fits that are quick."""
        problem = self.problem
        if problem.is_likelihood and not problem.hidden:
            # Fits of the pseudo-likelihood, which is quick, are judged by the likelihood.
            quick = PseudoLikelihood()
            scale = PSEUDO_PENALTY_SCALE
            data = without_gaps(problem).data
            problem = replace(problem, data=data, objective=quick, judge=problem.objective, penalty_scale=scale)
        weight = min(RIDGES) if isinstance(ridge, str) else ridge
        path = l1_path(self.problem.merged(), self.graph)[:: self._order]
        penalties = [(weight, value) for value in path]
        return self._try(problem, penalties, 0 if is_last else len(path) // 2)

    def _try_ridges(self, l1: float) -> LearnResult:
        """The best fit with a ridge, beside a given l1 term."""
        ridges = [ridge for ridge in RIDGES if not l1 or ridge <= MAX_RIDGE_BESIDE_L1][:: self._order]
        return self._try(self.problem, [(ridge, l1) for ridge in ridges], 2)

    def _try(self, problem: Problem, penalties: Sequence[tuple[float, float]], rest: int) -> LearnResult:
        """The best of fits with penalties (ridge, l1), each begun at the model before; interrupted if one of them was.

        All have the same share of the time, and ``rest`` such shares are left. They end when they have got worse twice,
        or with one that cannot be judged in its share: those after it would take longer.
        """
        fits: list[LearnResult] = []
        start = self.start
        for k, (ridge, l1) in enumerate(penalties):
            share = 1.0 / (len(penalties) - k + rest)
            clock = problem.context.clock.part(share, f"learn with ridge {ridge:g}, l1 {l1:g}")
            part = replace(problem, rough=True, context=replace(problem.context, clock=clock))
            result = fit(part, self.graph, ridge, l1, start)
            fits.append(result)
            start = result.model
            worse = len(fits) > 2 and quality(fits[-1]) < quality(fits[-2]) < quality(fits[-3])
            if worse or result.status is Status.INTERRUPTED or math.isinf(quality(result)):
                break
        self.tried += fits
        best = max(fits, key=quality)
        return interrupted(best) if fits[-1].status is Status.INTERRUPTED else best

    def _with_tried(self, result: LearnResult) -> LearnResult:
        """A result that says what was tried."""
        tried = [
            {
                "ridge": other.ridge,
                "l1": other.l1,
                "num_edges": other.model.num_edges,
                "validation_log_likelihood": quality(other),
            }
            for other in self.tried
        ]
        return replace(result, stats={**result.stats, "tried": tried})


def l1_path(data: Dataset, graph: IntArray) -> list[float]:
    """L1 terms to try: halves, quarters, .. of the least one that leaves the independent model as it is; 0 last.

    The gradient of the likelihood there, in the table of an edge, is the covariance of its contrasts over the data.
    """
    coordinates = Coordinates(data.blank_model(graph).structure)
    means, _ = moments_of_contrasts(coordinates, data)
    seen = np.repeat(data.states != MISSING, np.diff(coordinates.starts), axis=1)
    centered = np.where(seen, coordinates.encode(data.states) - means, 0.0)
    products = centered.T @ (data.weights[:, None] * centered)
    largest = float(table_norms(coordinates, coordinates.gather(means, products)).max(initial=0.0))
    if largest == 0.0:
        largest = 0.5  # no covariance of two contrasts is larger
    return [*(largest * 2.0**-k for k in L1_HALVINGS), 0.0]
