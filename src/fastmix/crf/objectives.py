"""What a conditional random field minimizes over its weights: minus a log-likelihood, and its derivatives."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from fastmix._arrays import FloatArray, IntArray, read_only
from fastmix._clock import Clock
from fastmix.crf import node_kernels
from fastmix.crf.design import Design
from fastmix.crf.examples import UNKNOWN, Examples
from fastmix.crf.forest import Forest, clamped
from fastmix.errors import ResourceError
from fastmix.exact import plan_exact
from fastmix.model import MarkovRandomField

__all__ = ["ExactLikelihood", "Objective", "PseudoLikelihood", "TreeLikelihood", "add_labels"]


class Objective(ABC):
    """Minus the log-likelihood of the labels of some examples, as a function of their log-potentials."""

    @abstractmethod
    def evaluate(
        self, unary: FloatArray, tables: FloatArray, table_of: IntArray, clock: Clock
    ) -> tuple[float, FloatArray, FloatArray]:
        """The value at log-potentials (N, K) and tables (T, K, K), and the derivatives by them."""


def add_labels(
    examples: Examples, codes: IntArray, table_of: IntArray, for_unary: FloatArray, for_tables: FloatArray
) -> None:
    """Subtract 1 from the derivative of every log-potential that the known labels of nodes, and of pairs, add up."""
    known = np.flatnonzero(codes != UNKNOWN)
    for_unary[known, codes[known]] -= 1.0
    i, j = examples.edges.T
    both = (codes[i] != UNKNOWN) & (codes[j] != UNKNOWN)
    k = for_unary.shape[1]
    places = (table_of[both] * k + codes[i[both]]) * k + codes[j[both]]
    for_tables -= np.bincount(places, minlength=for_tables.size).reshape(for_tables.shape)


class TreeLikelihood(Objective):
    """Minus the log-likelihood of examples whose graphs are trees, summed exactly.

    Labels that are missing are summed over: ``log p(known) = log Z(known) - log Z``.
    """

    def __init__(self, examples: Examples, codes: IntArray) -> None:
        self.examples = examples
        self.codes = codes
        self.forest = Forest(examples)
        self._known = codes != UNKNOWN

    def evaluate(
        self,
        unary: FloatArray,
        tables: FloatArray,
        table_of: IntArray,
        clock: Clock,  # noqa: ARG002 (fast)
    ) -> tuple[float, FloatArray, FloatArray]:
        """The value and its derivatives: marginals of the model less those given the known labels."""
        free = self.forest.sums(unary, tables, table_of)
        value = float(free.log_z.sum())
        for_unary = free.marginals
        for_tables = free.pairs
        assert for_tables is not None
        if self._known.all():
            value -= self._score(unary, tables, table_of)
            add_labels(self.examples, self.codes, table_of, for_unary, for_tables)
            return value, for_unary, for_tables
        given = self.forest.sums(clamped(unary, self.codes, self._known), tables, table_of)
        assert given.pairs is not None
        return value - float(given.log_z.sum()), for_unary - given.marginals, for_tables - given.pairs

    def _score(self, unary: FloatArray, tables: FloatArray, table_of: IntArray) -> float:
        """The log-weight of the labels of all examples."""
        i, j = self.examples.edges.T
        of_nodes = unary[np.arange(len(unary)), self.codes].sum()
        return float(of_nodes + tables[table_of, self.codes[i], self.codes[j]].sum())


class PseudoLikelihood(Objective):
    """Minus the sum over nodes of the log-probability of their label given the labels of their neighbors.

    A node counts where its label, and those of all its neighbors, are known.
    """

    def __init__(self, examples: Examples, codes: IntArray) -> None:
        graph = examples.adjacency
        unknown = codes == UNKNOWN
        i, j = examples.edges.T
        skipped = unknown.copy()
        skipped[i[unknown[j]]] = True
        skipped[j[unknown[i]]] = True
        self.num_counted = int((~skipped).sum())
        nodes = np.flatnonzero(~skipped)
        first = np.ascontiguousarray(i)
        self._graph = tuple(map(read_only, (nodes, graph.indptr, graph.neighbors, graph.edge_ids, first)))
        self._codes = read_only(codes)

    def evaluate(
        self,
        unary: FloatArray,
        tables: FloatArray,
        table_of: IntArray,
        clock: Clock,  # noqa: ARG002 (fast)
    ) -> tuple[float, FloatArray, FloatArray]:
        """The value and its derivatives: conditional probabilities less what the labels say."""
        for_unary = np.zeros_like(unary)
        for_tables = np.zeros_like(tables)
        arrays = (read_only(unary), read_only(tables), read_only(table_of))
        value = node_kernels.add_conditionals(*self._graph, *arrays, self._codes, for_unary, for_tables)
        return value, for_unary, for_tables


class ExactLikelihood(Objective):
    """Minus the log-likelihood of examples with cycles, by exact inference in each of them.

    A :class:`ResourceError` where the tables of one do not fit.
    """

    def __init__(self, design: Design, codes: IntArray) -> None:
        self.design = design
        self.codes = codes
        examples = design.examples
        k = design.layout.num_states
        self._parts = []
        for number in range(len(examples)):
            part = examples.take(np.array([number]))
            n = part.num_nodes
            blank = MarkovRandomField(
                num_states=np.full(n, k), log_unary=np.zeros(n * k), edges=part.edges,
                log_pairwise=np.zeros(len(part.edges) * k * k),
            )  # fmt: skip
            own = codes[examples.node_starts[number] : examples.node_starts[number + 1]]
            evidence = {int(v): int(own[v]) for v in np.flatnonzero(own != UNKNOWN)}
            self._parts.append((blank, evidence))

    def seconds(self) -> float:
        """Estimate of the time that one evaluation takes; a :class:`ResourceError` where tables do not fit."""
        return sum(plan_exact(model).seconds for model, _ in self._parts)

    def evaluate(
        self, unary: FloatArray, tables: FloatArray, table_of: IntArray, clock: Clock
    ) -> tuple[float, FloatArray, FloatArray]:
        """The value and its derivatives: marginals of the models less those given the known labels."""
        examples = self.design.examples
        value = 0.0
        for_unary = np.empty_like(unary)
        for_edges = np.empty((len(examples.edges), *tables.shape[1:]))
        for number, (blank, evidence) in enumerate(self._parts):
            clock.check()
            nodes = slice(*examples.node_starts[number : number + 2])
            edges = slice(*examples.edge_starts[number : number + 2])
            model = blank.with_parameters(
                np.concatenate([unary[nodes].reshape(-1), tables[table_of[edges]].reshape(-1)])
            )
            free = plan_exact(model).run()
            assert free.log_z is not None
            assert free.edge_marginals is not None
            value += free.log_z
            for_unary[nodes] = free.node_marginals.reshape(-1, unary.shape[1])
            for_edges[edges] = free.edge_marginals.reshape(-1, *tables.shape[1:])
            if len(evidence) < model.num_variables:
                given = plan_exact(model, evidence=evidence).run()
                assert given.log_z is not None
                assert given.edge_marginals is not None
                value -= given.log_z
                for_unary[nodes] -= given.node_marginals.reshape(-1, unary.shape[1])
                for_edges[edges] -= given.edge_marginals.reshape(-1, *tables.shape[1:])
            else:
                own = np.array([evidence[v] for v in range(model.num_variables)], dtype=np.int64)
                value -= model.log_weight(own)
                i, j = examples.edges[edges].T - examples.node_starts[number]
                for_unary[np.arange(nodes.start, nodes.stop), own] -= 1.0
                for_edges[np.arange(edges.start, edges.stop), own[i], own[j]] -= 1.0
        for_tables = np.zeros_like(tables)
        np.add.at(for_tables, table_of, for_edges)
        return value, for_unary, for_tables


def fits_exactly(objective: ExactLikelihood, limit_seconds: float) -> bool:
    """Whether one evaluation fits into the memory, and into some seconds."""
    try:
        return objective.seconds() <= limit_seconds
    except ResourceError:
        return False
