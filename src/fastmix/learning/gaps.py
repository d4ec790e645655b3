"""Missing values for what needs every value: trees by expected counts, and rows completed by chains.

The tree of Chow and Liu is that of a mixture with one component, by expectation maximization: its tables are exact
expected counts, and it is looked for in rows whose missing values were drawn given the others.

The pseudo-likelihood has no sum over missing values. Its rows are completed by chains of a model that is fitted to the
completed rows, and again some times, beginning at independent variables (stochastic expectation maximization; Celeux
and Diebolt 1985). Fits are then of several completions. Tables of many columns are completed by the tree.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import Clock, OutOfTimeError
from fastmix._context import Context
from fastmix.graphs import complete_edges
from fastmix.learning.clamped import ClampedChains
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.dataset import MISSING, Dataset
from fastmix.learning.independent import independent_parameters, moments_of_contrasts, observed_shares
from fastmix.learning.minimize import minimize
from fastmix.learning.mixture_trees import best_parents
from fastmix.learning.penalty import Penalty
from fastmix.learning.scaling import Scaling
from fastmix.learning.tree_mixture import MixtureRows, TreeMixture, tables_of
from fastmix.learning.tuning import (
    COMPLETION_ITERATIONS,
    COMPLETION_RIDGE,
    COMPLETION_ROUNDS,
    COMPLETION_SWEEPS,
    MAX_COMPLETED_CONTRASTS,
    MIN_EM_GAIN,
    NUM_COMPLETIONS,
    TREE_ITERATIONS,
    TREES_OF_GAPS,
)

if TYPE_CHECKING:
    from fastmix.learning.problem import Problem

__all__ = ["gap_tree", "without_gaps"]


def gap_tree(
    data: Dataset, smoothing: float, clock: Clock, allowed: IntArray | None = None, seed: int = 0
) -> TreeMixture:
    """The most probable tree for rows with missing values, as a mixture of one component.

    With ``allowed`` edges (m, 2) it has no others. ``seed`` is that of the draws in which the tree is looked for.
    Iterations end where they gain nothing after the last look. Once the time is over the tree so far is the answer, if
    there is one.
    """
    rows = MixtureRows.of(data)
    num_states = data.num_states
    uniform = 1.0 / np.repeat(num_states, num_states)
    weight = smoothing / (smoothing + data.num_rows)
    single = (1.0 - weight) * observed_shares(data)[0] + weight * uniform
    parents = np.full(len(num_states), -1, dtype=np.int64)
    tree = TreeMixture(num_states, parents, np.ones(1), single[:, None])
    before = -np.inf
    for iteration in range(TREE_ITERATIONS):
        if iteration and clock.past():
            break
        some = rows
        wanted = None
        try:
            if iteration in TREES_OF_GAPS and len(num_states) > 1:
                some = tree.completed(rows, np.random.default_rng((seed, iteration)), clock)
                wanted = best_parents(tree, some, data.num_rows, clock, allowed)
            value, _, counts = tree.expected_counts(some, clock, wanted)
        except OutOfTimeError:
            if not iteration:
                raise
            break
        if iteration > TREES_OF_GAPS[-1] + 1 and value - before < MIN_EM_GAIN * abs(value):
            break
        before = value
        parents = tree.parents if wanted is None else wanted
        tables = tables_of(counts * data.num_rows, num_states, parents, smoothing)
        tree = TreeMixture(num_states, parents, np.ones(1), tables)
    return tree


def without_gaps(problem: Problem) -> Problem:
    """The problem with the missing values of its data, and of its validation data, completed several times.

    Problems without missing values, and those with hidden variables, are as they were.
    """
    validation = problem.validation
    is_judged = validation is not None and validation.has_missing
    if problem.hidden or not (problem.data.has_missing or is_judged):
        return problem
    context = problem.context.within("completions")
    data = _Completion(problem.data, context)
    judges = validation
    if validation is not None and is_judged:
        judges = data.of(validation, context.rng("validation"))
    return replace(problem, data=data.of(problem.data, context.rng("data")), validation=judges)


class _Completion:
    """What missing values of rows are drawn by: a pairwise model fitted to completed rows, or, of many columns, a tree.

    Attributes
    ----------
    tree : TreeMixture
    coordinates : Coordinates or None
        Of the pairwise model; None where there are too many columns for it.
    v : float array
        Its parameters.
    """

    def __init__(self, data: Dataset, context: Context) -> None:
        self.context = context
        self.coordinates: Coordinates | None = None
        n = len(data.num_states)
        if n < 2 or int((data.num_states - 1).sum()) > MAX_COMPLETED_CONTRASTS:
            self.tree = gap_tree(data, 1.0, context.clock, seed=context.seed_of("tree"))
            return
        self.coordinates = Coordinates(data.blank_model(complete_edges(n)).structure)
        means, variances = moments_of_contrasts(self.coordinates, data)
        scaling = Scaling.of(self.coordinates, means, variances, "entries")
        self.v = self.coordinates.from_fields(independent_parameters(data.blank_model(complete_edges(n)), data))
        rng = context.rng("rows of rounds")
        for _ in range(COMPLETION_ROUNDS if data.has_missing else 1):
            completed = self.of(data, rng)
            self.v = self._fit(completed, scaling)

    def _fit(self, completed: Dataset, scaling: Scaling) -> FloatArray:
        """The parameters after some steps of the pseudo-likelihood of completed rows."""
        from fastmix.learning.pseudo_likelihood import PseudoLikelihoodLoss

        assert self.coordinates is not None
        search = minimize(
            PseudoLikelihoodLoss(self.coordinates, completed.merged()[0]),
            self.v,
            scaling,
            Penalty(COMPLETION_RIDGE),
            tol=0.0,
            max_iter=COMPLETION_ITERATIONS,
            clock=self.context.clock,
            report=None,
        )
        return search.v

    def of(self, data: Dataset, rng: np.random.Generator) -> Dataset:
        """Rows of the data as they are where they are whole, the others several times with other draws."""
        if self.coordinates is None:
            return self._from_tree(data, rng)
        gaps = np.flatnonzero((data.states == MISSING).any(axis=1))
        if not len(gaps):
            return data
        chains = ClampedChains(self.coordinates, data.states[gaps], data.weights[gaps], rng)
        chains.clock = self.context.clock
        chains.load_contrasts(self.v)
        draws: list[IntArray] = []
        while len(draws) * chains.num_chains < NUM_COMPLETIONS * len(gaps):
            chains.sweep(COMPLETION_SWEEPS)
            draws.append(chains.get_states())
        return _stacked(data, gaps, np.concatenate(draws))

    def _from_tree(self, data: Dataset, rng: np.random.Generator) -> Dataset:
        """The same by draws of the tree."""
        gaps = np.flatnonzero((data.states == MISSING).any(axis=1))
        states = np.ascontiguousarray(data.states[gaps], dtype=np.int32)
        rows = MixtureRows(states, data.weights[gaps], np.ones(len(gaps), dtype=np.bool_))
        draws = [self.tree.completed(rows, rng, self.context.clock).states for _ in range(NUM_COMPLETIONS)]
        return _stacked(data, gaps, np.concatenate(draws))


def _stacked(data: Dataset, gaps: IntArray, draws: NDArray[Any]) -> Dataset:
    """The rows without gaps, then draws (copies of rows with gaps) that share the weights of theirs."""
    whole = np.delete(np.arange(len(data.states)), gaps)
    copies = len(draws) // max(1, len(gaps))
    states = np.concatenate([data.states[whole], draws.astype(data.states.dtype)])
    weights = np.concatenate([data.weights[whole], np.tile(data.weights[gaps] / max(1, copies), copies)])
    return replace(data, states=states, weights=weights)
