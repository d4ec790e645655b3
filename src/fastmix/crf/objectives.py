"""What a conditional random field minimizes over its weights: minus a log-likelihood, and its derivatives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from fastmix._arrays import FloatArray, IntArray, read_only
from fastmix._clock import Clock
from fastmix._memory import available_memory
from fastmix.crf import node_kernels
from fastmix.crf.examples import UNKNOWN, Examples
from fastmix.crf.forest import Forest, clamped
from fastmix.crf.tuning import GRADIENT_COST
from fastmix.gradients import LogPartition
from fastmix.model import Structure

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


@dataclass(frozen=True, eq=False)
class _AlikeGraphs:
    """Examples whose graphs have the same nodes and edges: places of their nodes and edges, a row for each."""

    nodes: IntArray  # (examples, n)
    edges: IntArray  # (examples, m)
    partition: LogPartition


class ExactLikelihood(Objective):
    """Minus the log-likelihood of examples with cycles, by exact inference in each of them.

    Examples with the same graph share a plan, and are answered side by side. A :class:`ResourceError` where the tables
    of one do not fit.
    """

    def __init__(self, examples: Examples, codes: IntArray, num_states: int) -> None:
        self.examples = examples
        self.codes = codes
        self._known = codes != UNKNOWN
        members: dict[tuple[int, bytes], list[int]] = {}
        for number in range(len(examples)):
            own = self._edges(number)
            members.setdefault((self._size(number), own.tobytes()), []).append(number)
        limit = available_memory() / 2
        self._groups = []
        for (n, _), numbers in members.items():
            own = self._edges(numbers[0])
            structure = Structure.of(np.full(n, num_states), own)
            nodes = examples.node_starts[numbers][:, None] + np.arange(n)
            edges = examples.edge_starts[numbers][:, None] + np.arange(len(own))
            self._groups.append(_AlikeGraphs(nodes, edges, LogPartition.of(structure, limit)))

    def _size(self, number: int) -> int:
        """Number of nodes of an example."""
        return int(self.examples.node_starts[number + 1] - self.examples.node_starts[number])

    def _edges(self, number: int) -> IntArray:
        """Edges of an example, by the numbers of its own nodes."""
        first, end = self.examples.edge_starts[number : number + 2]
        own: IntArray = self.examples.edges[first:end] - self.examples.node_starts[number]
        return own

    def seconds(self) -> float:
        """Estimate of the time that one evaluation takes."""
        return sum(GRADIENT_COST * len(group.nodes) * group.partition.rows.seconds_per_row for group in self._groups)

    def evaluate(
        self, unary: FloatArray, tables: FloatArray, table_of: IntArray, clock: Clock
    ) -> tuple[float, FloatArray, FloatArray]:
        """The value and its derivatives: marginals of the models less those given the known labels."""
        held = clamped(unary, self.codes, self._known)
        value = 0.0
        for_unary = np.zeros_like(unary)
        for_edges = np.zeros((len(table_of), *tables.shape[1:]))
        for group in self._groups:
            own = tables[table_of[group.edges]].reshape(len(group.nodes), -1)
            for sign, potentials in ((1.0, unary), (-1.0, held)):
                clock.check()
                rows = np.hstack([potentials[group.nodes].reshape(len(own), -1), own])
                found = group.partition.gradients(rows, clock=clock)
                num_unary = group.nodes[0].size * unary.shape[1]
                value += sign * float(found.log_z.sum())
                for_unary[group.nodes] += sign * found.gradient[:, :num_unary].reshape(*group.nodes.shape, -1)
                pairs = found.gradient[:, num_unary:].reshape(*group.edges.shape, *tables.shape[1:])
                for_edges[group.edges] += sign * pairs
        for_tables = np.zeros_like(tables)
        np.add.at(for_tables, table_of, for_edges)
        return value, for_unary, for_tables
