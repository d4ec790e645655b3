"""The graph of a learnt model: given, complete, the best tree, what an l1 term leaves, or grown from the tree."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import numpy as np

from fastmix._arrays import IntArray
from fastmix._clock import OutOfTimeError
from fastmix.errors import ResourceError
from fastmix.graphs.edges import canonical_edges
from fastmix.learning.chow_liu import best_tree
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.data_moments import DataTerm
from fastmix.learning.edge_gains import edge_gains
from fastmix.learning.fit import fit, model_norms, validate
from fastmix.learning.gaps import without_gaps
from fastmix.learning.growth import can_grow, grow, is_sparse
from fastmix.learning.likelihood import ExactLikelihood
from fastmix.learning.masses import log_masses
from fastmix.learning.model_moments import exact_model_term
from fastmix.learning.penalty_search import fit_with_penalties, interrupted, late, quality
from fastmix.learning.problem import FitSize, Problem
from fastmix.learning.pseudo_likelihood import PseudoLikelihood
from fastmix.learning.result import LearnResult
from fastmix.learning.tuning import GROWING_RIDGE, GROWTH_PART, TREE_SMOOTHING
from fastmix.model import MarkovRandomField
from fastmix.results import Status

__all__ = ["learn_graph"]


def learn_graph(problem: Problem, edges: str | IntArray, ridge: float | str, l1: float | str) -> LearnResult:
    """The fit on the graph that was asked for, by its edges or by a word for how to find it."""
    kind = edges if isinstance(edges, str) else "given"
    if kind == "chow-liu":
        _check_no_hidden(problem)
        tree = best_tree(problem.data.merged()[0], TREE_SMOOTHING, problem.context.clock)
        if problem.is_likelihood and problem.within is None:
            return _closed_form(problem, tree)
        return fit_with_penalties(problem, problem.graph(tree.edges), ridge, l1)
    if can_grow(problem) and (kind == "grow" or (kind == "auto" and is_sparse(problem))):
        grown = grow(problem, ridge)
        if grown is not None:
            return grown
    if kind == "grow":
        grown = _grow(problem, ridge)
        if grown.status is Status.INTERRUPTED:
            return grown
        return fit_with_penalties(problem, problem.graph(grown.model.edges), ridge, l1)
    graph = problem.graph(edges)
    if kind == "l1":
        return _by_l1(problem, graph, ridge, l1)
    return fit_with_penalties(problem, graph, ridge, l1)


def _check_no_hidden(problem: Problem) -> None:
    """Refuse hidden variables, which no way of finding a graph knows how to join to others."""
    if problem.hidden:
        raise ValueError("hidden variables need edges='complete' or a list of edges")


def _by_l1(problem: Problem, graph: IntArray, ridge: float | str, l1: float | str) -> LearnResult:
    """The fit, without the l1 term, on the edges that the pseudo-likelihood with it leaves of a graph."""
    if l1 == 0.0:
        raise ValueError("edges='l1' needs a positive l1, or l1='auto' with validation data")
    found = fit_with_penalties(
        replace(without_gaps(problem), objective=PseudoLikelihood(), within=None), graph, ridge, l1
    )
    if found.status is Status.INTERRUPTED:
        return found
    kept = fit_with_penalties(problem, found.model.edges, ridge, 0.0)
    if found.stats["stopped_by"] == "time_limit" and kept.status is Status.OK:
        kept = late(kept)  # the graph is that of an unfinished fit
    return replace(kept, l1=found.l1)


def _grow(problem: Problem, ridge: float | str) -> LearnResult:
    """The best tree with edges added, a tenth of what is there at a time, while the validation data gain by it."""
    if problem.validation is None:
        raise ValueError("edges='grow' stops by validation data: give validation=")
    _check_no_hidden(problem)
    quick = replace(without_gaps(problem), objective=PseudoLikelihood(), within=None, rough=True)
    weight = GROWING_RIDGE if isinstance(ridge, str) else ridge
    data = quick.data.merged()[0]
    best = fit(quick, best_tree(data, TREE_SMOOTHING, problem.context.clock).edges, weight, 0.0)
    while best.status is not Status.INTERRUPTED:
        model = best.model
        FitSize.of_complete(data.num_states, 0).check(problem)  # as many pairs are looked at
        pairs, gains = edge_gains(model, data)
        promising = pairs[gains > 0.0][: max(1, model.num_edges // GROWTH_PART)]
        if not len(promising):
            break
        edges = canonical_edges(model.num_variables, np.concatenate([model.edges, promising]))
        wider = fit(quick, edges, weight, 0.0, model)
        if wider.status is Status.INTERRUPTED:
            return interrupted(best)
        if quality(wider) <= quality(best):
            break
        best = wider
    return best


def _closed_form(problem: Problem, tree: MarkovRandomField) -> LearnResult:
    """The result for a tree, which has the most probable parameters already."""
    coordinates = Coordinates(tree.structure)
    v, _ = coordinates.from_parameters(tree.parameters)
    model = tree.with_parameters(coordinates.to_parameters(v)).replace(log_constant=0.0)
    data = problem.data.merged()[0]
    value = None
    error = None
    with contextlib.suppress(OutOfTimeError):  # the tree is there
        term = exact_model_term(coordinates, asked=True)
        try:
            loss = ExactLikelihood(term, DataTerm(coordinates, data, clock=problem.context.clock))
            value, gradient = loss.evaluate(v)
            error = coordinates.moment_error(gradient)
        except ResourceError:  # missing values of a row have too many states to list, but not for elimination
            masses = log_masses(model, data, problem.context.clock)
            known = float(data.weights @ masses)
            value = None if np.isnan(known) else term.evaluate(v)[0] - known
    stats: dict[str, Any] = {}
    is_cut = data.has_missing and problem.context.clock.past()  # expectation maximization goes on until then
    score = validate(problem, model, data, stats)
    result = LearnResult(
        model=model,
        objective="likelihood",
        moments="closed form",
        status=Status.OK,
        value=value,
        ridge=0.0,
        l1=0.0,
        within=None,
        norms=model_norms(model, problem.context.clock),
        moment_error=error,
        bias_bound=None,
        validation_log_likelihood=score,
        num_rows=problem.data.num_rows,
        stats={"stopped_by": "done", "num_iterations": 0},
    )
    return late(result) if is_cut else result
