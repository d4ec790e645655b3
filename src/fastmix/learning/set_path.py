"""Sets that mix fast as the regularizer: a path of norm balls that widen, each fit begun at the one before.

The price of certainty is what the validation data lose in a set whose chains provably mix (a bound below 1).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from fastmix._arrays import IntArray
from fastmix._clock import OutOfTimeError
from fastmix.learning.chow_liu import best_tree
from fastmix.learning.fit import fit
from fastmix.learning.graph_search import learn_graph
from fastmix.learning.growth import can_grow, is_sparse
from fastmix.learning.penalty_search import best_found, interrupted, quality
from fastmix.learning.problem import Problem
from fastmix.learning.result import LearnResult, NormBall
from fastmix.learning.tuning import INACTIVE_SHARE, PATH_RIDGE, SET_BOUNDS, TREE_SMOOTHING
from fastmix.model import MarkovRandomField
from fastmix.results import Status
from fastmix.theory import norms
from fastmix.theory.dependency import dependency_matrix

__all__ = ["learn_along_sets"]


def learn_along_sets(problem: Problem, edges: str | IntArray, ridge: float | str) -> LearnResult:
    """The best fit on a path of spectral balls from a small one outwards; its ``stats`` have the whole path.

    It ends when the validation data have got worse twice, with chains that do not mix, or where a bound no longer holds
    anything back.
    """
    weight = PATH_RIDGE if isinstance(ridge, str) else ridge
    graph = _graph(problem, edges, ridge)
    path: list[dict[str, Any]] = []
    fits: list[LearnResult] = []
    start: MarkovRandomField | None = None
    for k, bound in enumerate(SET_BOUNDS):
        clock = problem.context.clock.part(1.0 / (len(SET_BOUNDS) - k), f"learn within spectral {bound:g}")
        context = replace(problem.context, clock=clock)
        part = replace(problem, within=NormBall("spectral", bound), context=context, rough=True)
        try:
            result = fit(part, graph, weight, 0.0, start)
        except OutOfTimeError:
            if not fits:
                raise
            break
        path.append(_entry(result, bound))
        if result.status is Status.NOT_MIXED and fits:  # a step back: the models before did mix
            break
        fits.append(result)
        start = result.model
        worse = len(fits) > 2 and quality(fits[-1]) < quality(fits[-2]) < quality(fits[-3])
        if worse or result.status is Status.INTERRUPTED or math.isinf(quality(result)) or _is_free(result, bound):
            break
    best = best_found(fits)
    if fits[-1].status is Status.INTERRUPTED:
        best = interrupted(best)
    return replace(best, stats={**best.stats, "path": path})


def _graph(problem: Problem, edges: str | IntArray, ridge: float | str) -> IntArray:
    """The edges of all models on the path: as asked for, or those that grow in sparse data."""
    if not isinstance(edges, str):
        return problem.graph(edges)
    if edges == "chow-liu":
        return best_tree(problem.data.merged()[0], TREE_SMOOTHING, problem.context.clock).edges
    if edges == "grow" or (edges == "auto" and can_grow(problem) and is_sparse(problem)):
        clock = problem.context.clock.part(0.5)
        part = replace(problem, context=replace(problem.context, clock=clock))
        return learn_graph(part, "grow", ridge, 0.0).model.edges
    return problem.graph("complete")


def _is_free(result: LearnResult, bound: float) -> bool:
    """Whether a model is well within its set, which then holds nothing back."""
    matrix = dependency_matrix(result.model, dependency="range")
    return result.status is Status.OK and norms.matrix_norm(matrix, "spectral") < INACTIVE_SHARE * bound


def _entry(result: LearnResult, bound: float) -> dict[str, Any]:
    """What results say of one set."""
    return {
        "bound": bound,
        "status": str(result.status),
        "num_edges": result.model.num_edges,
        "validation_log_likelihood": quality(result),
        "std_error": result.stats.get("validation_std_error"),
    }
