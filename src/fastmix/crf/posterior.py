"""``Posterior``: the distribution of the labels of some examples, given weights: marginals, modes, draws, log Z."""

from __future__ import annotations

import warnings

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._context import Context
from fastmix.crf.design import Design
from fastmix.crf.examples import UNKNOWN, Examples
from fastmix.crf.forest import Forest, clamped
from fastmix.crf.tuning import EXACT_SECONDS, PREDICTION_SWEEPS
from fastmix.errors import NotConvergedError, ResourceError
from fastmix.exact import ExactPlan, draw_exact, plan_exact
from fastmix.inference.infer import infer
from fastmix.learning import NormBall
from fastmix.method import Method
from fastmix.model import MarkovRandomField
from fastmix.modes.most_probable import most_probable
from fastmix.projection import project
from fastmix.results import Status
from fastmix.sampling.sample import sample

__all__ = ["Posterior"]


class Posterior:
    """The labels of examples given their features, by log-potentials that are fixed.

    Examples whose graphs are trees are summed exactly, all at once. Others are answered by exact inference one by one
    where ``method`` is ``auto`` and it takes less than a second, else by a method of :func:`fastmix.infer` for all of
    them side by side: loopy belief propagation where ``method`` is ``auto``.

    Attributes
    ----------
    unary : float array (N, K)
    tables : float array (T, K, K)
    table_of : int array (M,)
    """

    def __init__(
        self, design: Design, w: FloatArray, within: NormBall | None, method: str | Method, context: Context
    ) -> None:
        self.examples = design.examples
        self.method = method
        self.context = context
        self.unary, self.tables = design.potentials(w)
        self.table_of = design.table_of
        if within is not None and len(self.examples.edges):
            model = Design.model_of(self.examples, self.unary, self.tables[self.table_of])
            self.tables = projected(model, within).log_pairwise.reshape(-1, *self.tables.shape[1:])
            self.table_of = np.arange(len(self.tables))
        is_tree = self.examples.is_tree
        self._trees = np.flatnonzero(is_tree)
        self._others = np.flatnonzero(~is_tree)

    def marginals(self) -> FloatArray:
        """Probabilities of the states of all nodes (N, K)."""
        found = np.empty_like(self.unary)
        for nodes, forest, values in self._forests():
            found[nodes] = forest.sums(*values, pairs=False).marginals
        exact, rest = self._with_cycles()
        for nodes, _, plan in exact:
            self.context.clock.check()
            found[nodes] = plan.run(edge_marginals=False).node_marginals.reshape(-1, self.unary.shape[1])
        for nodes, model in rest:
            method = "loopy-bp" if self.method == "auto" else self.method
            result = infer(
                model, method=method, seed=self.context.seed_of("inference"), progress=None,
                time_limit=self.context.clock.rest(), num_threads=self.context.num_threads,
            )  # fmt: skip
            found[nodes] = result.node_marginals.reshape(-1, self.unary.shape[1])
            _warn("marginals", result.status, result.advice)
        return found

    def modes(self) -> IntArray:
        """The most probable labels of every example together, (N,)."""
        found = np.empty(len(self.unary), dtype=np.int64)
        for nodes, forest, values in self._forests():
            found[nodes] = forest.modes(*values)
        for number in self._others.tolist():
            nodes, model = self._model(np.array([number]))
            result = most_probable(
                model, seed=self.context.seed_of("modes", number), progress=None,
                time_limit=self.context.clock.rest(1.0 / max(1, len(self._others))),
            )  # fmt: skip
            found[nodes] = result.states
            if result.status is not Status.OK:
                _warn(f"the most probable labels of example {number}", result.status, result.advice)
        return found

    def draws(self, num_draws: int) -> IntArray:
        """Configurations (num_draws, N): exact draws where feasible, else the ends of Gibbs chains."""
        found = np.empty((num_draws, len(self.unary)), dtype=np.int64)
        rng = self.context.rng("draws")
        for nodes, forest, values in self._forests():
            found[:, nodes] = forest.draw(*values, num_draws, rng)
        exact, rest = self._with_cycles()
        for nodes, model, _ in exact:
            self.context.clock.check()
            seed = int(rng.integers(2**62))
            found[:, nodes] = draw_exact(model, num_draws=num_draws, seed=seed).states
        for nodes, model in rest:
            run = sample(
                model, num_chains=num_draws, num_sweeps=PREDICTION_SWEEPS, num_draws=1, progress=None,
                seed=int(rng.integers(2**62)), burn_in=PREDICTION_SWEEPS,
            )  # fmt: skip
            assert run.draws is not None
            found[:, nodes] = run.draws.reshape(num_draws, -1)
            _warn("draws", run.status, run.advice)
        return found

    def log_likelihood(self, codes: IntArray) -> FloatArray:
        """The log-probability of the known labels, by example; a :class:`ResourceError` where it is out of reach."""
        found = np.zeros(len(self.examples))
        known = codes != UNKNOWN
        starts = self.examples.node_starts
        for nodes, forest, (unary, tables, table_of) in self._forests():
            free = forest.sums(unary, tables, table_of, pairs=False).log_z
            given = forest.sums(clamped(unary, codes[nodes], known[nodes]), tables, table_of, pairs=False).log_z
            example_of = np.repeat(self._trees, np.diff(starts)[self._trees])
            of_tree = np.zeros(forest.num_trees, dtype=np.int64)
            of_tree[forest.tree_of] = example_of
            found += np.bincount(of_tree, given - free, len(found))
        for number in self._others.tolist():
            self.context.clock.check()
            nodes, model = self._model(np.array([number]))
            own = codes[nodes]
            evidence = {int(v): int(own[v]) for v in np.flatnonzero(own != UNKNOWN)}
            free_log_z = plan_exact(model, clock=self.context.clock).run(edge_marginals=False).log_z
            assert free_log_z is not None
            given_log_z = plan_exact(model, evidence=evidence).run(edge_marginals=False).log_z
            assert given_log_z is not None
            found[number] = given_log_z - free_log_z
        return found

    def model(self, state_names: tuple[str, ...]) -> MarkovRandomField:
        """The model of all examples side by side."""
        return Design.model_of(self.examples, self.unary, self.tables[self.table_of], state_names)

    # -- parts ----------------------------------------------------------------------------------------------------

    def _forests(self) -> list[tuple[IntArray, Forest, tuple[FloatArray, FloatArray, IntArray]]]:
        """The examples that are trees, with their log-potentials; none or one entry."""
        if not len(self._trees):
            return []
        some = self.examples.take(self._trees)
        nodes = Examples.places(self.examples.node_starts, self._trees)
        edges = Examples.places(self.examples.edge_starts, self._trees)
        return [(nodes, Forest(some), (self.unary[nodes], self.tables, self.table_of[edges]))]

    def _model(self, chosen: IntArray) -> tuple[IntArray, MarkovRandomField]:
        """The nodes and the model of some examples."""
        nodes = Examples.places(self.examples.node_starts, chosen)
        edges = Examples.places(self.examples.edge_starts, chosen)
        some = self.examples.take(chosen)
        return nodes, Design.model_of(some, self.unary[nodes], self.tables[self.table_of[edges]])

    def _with_cycles(
        self,
    ) -> tuple[list[tuple[IntArray, MarkovRandomField, ExactPlan]], list[tuple[IntArray, MarkovRandomField]]]:
        """The examples with cycles that exact inference answers, and the others side by side: none or one entry."""
        exact = []
        left = []
        for number in self._others.tolist():
            plan = None
            if self.method == "auto":
                nodes, model = self._model(np.array([number]))
                plan = _quick_plan(model)
            if plan is None:
                left.append(number)
            else:
                exact.append((nodes, model, plan))
        return exact, [self._model(np.array(left))] if left else []


def _quick_plan(model: MarkovRandomField) -> ExactPlan | None:
    """What exact inference would do, where it fits into the memory and a second; else None."""
    try:
        plan = plan_exact(model)
    except ResourceError:
        return None
    return plan if plan.seconds <= EXACT_SECONDS else None


def projected(model: MarkovRandomField, within: NormBall) -> MarkovRandomField:
    """The closest model within a set."""
    try:
        return project(model, norm_bound=within.bound, norm=within.norm, progress=None).model
    except NotConvergedError as error:
        found: MarkovRandomField = error.result.model  # inside, but not quite the closest
        return found


def _warn(what: str, status: Status, advice: str) -> None:
    """Say that an answer is not to be relied on."""
    if status not in (Status.OK, Status.UNVERIFIED):
        warnings.warn(f"the status of {what} is {status}: {advice}", UserWarning, stacklevel=4)
