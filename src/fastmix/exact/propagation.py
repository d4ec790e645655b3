"""The two passes of messages over an elimination tree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmix._clock import NO_LIMIT, Clock
from fastmix.errors import ModelError
from fastmix.exact.arithmetic import LINEAR, LOG, layout
from fastmix.exact.slices import Visitor

if TYPE_CHECKING:
    from fastmix.exact.junction_tree import JunctionTree

__all__ = ["LocalFactor", "Messages", "UnderflowError"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

# Trees whose clique tables all have at most this many entries are done with NumPy, on whole tables. At that size it is
# fast enough, and Numba need not be imported, let alone compile anything.
_NUMPY_ENTRIES = 1 << 13

# Going up, an entry that underflows could matter later, so the range of every product is bounded beforehand. Going
# down, a clique table is the distribution of its variables but for a constant: an entry that underflows belongs to a
# configuration of negligible probability, below 1e-308 / 1e-200, and separators hand down the same probabilities.
_SMALLEST_TOTAL = 1e-200


class UnderflowError(Exception):
    """A product of tables in ordinary arithmetic could underflow: use logs."""


class LocalFactor(NamedTuple):
    """Factors of one variable v with variables eliminated later, joined: axes (scope..., v), scope latest first.

    The table is flat and its largest entry 0 after ``log_scale`` was taken out; ``log_range`` is minus its smallest
    finite entry; ``edges`` are those of the scope in its order.
    """

    log_table: FloatArray
    scope: tuple[int, ...]
    edges: tuple[int, ...]
    log_scale: float
    log_range: float


class Messages:
    """The messages of one run: upward after :meth:`collect`, turned around by :meth:`distribute`.

    A table over a set of variables is flat, with the variable eliminated last as its outermost axis.
    """

    def __init__(self, tree: JunctionTree, arithmetic: str, clock: Clock = NO_LIMIT) -> None:
        self.tree, self.clock = tree, clock
        self.is_log = arithmetic == "log"
        self.arithmetic = LOG if self.is_log else LINEAR
        self.order: list[int] = tree.order.order.tolist()
        self.states: list[int] = tree.model.num_states.tolist()
        self.separators: list[list[int]] = [s[::-1].tolist() for s in tree.separators]
        self.tables: list[FloatArray] = [np.empty(0)] * len(self.order)
        self.ranges: list[float] = [0.0] * len(self.order)
        self.visitor: Visitor | None = None
        if tree.order.max_entries > _NUMPY_ENTRIES:
            self.visitor = Visitor(log=self.is_log, capacity=tree.work_entries)
        self.log_z = tree.model.log_constant + sum(f.log_scale for group in tree.locals for f in group)

    def collect(self) -> None:
        """Leaves to roots: fill the messages and log Z."""
        for v in self.order:
            self.clock.check()
            operands, log_range = self._operands(v)
            if not self.arithmetic.in_range(log_range):
                raise UnderflowError
            (message,) = self._visit(v, operands, [self.separators[v]])
            message = message.copy()
            log_scale, self.ranges[v] = self.arithmetic.normalise(message)
            if log_scale == -np.inf:
                raise ModelError("no configuration has positive probability: hard constraints contradict each other")
            self.log_z += log_scale
            self.tables[v] = message

    def distribute(self) -> tuple[FloatArray, FloatArray]:
        """Roots to leaves: flat node and edge marginals."""
        model = self.tree.model
        nodes, edges = np.zeros(len(model.log_unary)), np.zeros(len(model.log_pairwise))
        for v in reversed(self.order):
            self.clock.check()
            operands, _ = self._operands(v)
            if self.separators[v]:
                operands.append((self.tables[v], self.separators[v]))
            factors, children = self.tree.locals[v], self.tree.children[v]
            scopes = [[*f.scope, v] for f in factors] + [self.separators[c] for c in children]
            tables = self._visit(v, operands, scopes)
            if not self.is_log and tables[0].sum() < _SMALLEST_TOTAL:
                raise UnderflowError
            for factor, table in zip(factors, tables, strict=False):
                self._read_marginals(v, factor, table, nodes, edges)
            for c, message in zip(children, tables[len(factors) :], strict=True):
                self.arithmetic.divide(message, self.tables[c])
                self.arithmetic.normalise(self.tables[c])
        return nodes, edges

    def _operands(self, v: int) -> tuple[list[tuple[FloatArray, list[int]]], float]:
        """The factors of v and the messages of its children with their scopes, and the sum of their log ranges."""
        children, factors = self.tree.children[v], self.tree.locals[v]
        operands = [(self.tables[c], self.separators[c]) for c in children]
        operands += [(self.arithmetic.encode(f.log_table), [*f.scope, v]) for f in factors]
        return operands, sum(self.ranges[c] for c in children) + sum(f.log_range for f in factors)

    def _visit(
        self, v: int, operands: Sequence[tuple[FloatArray, list[int]]], scopes: Sequence[list[int]]
    ) -> list[FloatArray]:
        """Product of the operands over the clique of v, summed down to each of the scopes; good until the next call."""
        axes = [*self.separators[v], v]
        sizes = [self.states[u] for u in axes]
        here = [[u in scope for u in axes] for _, scope in operands] + [[u in scope for u in axes] for scope in scopes]
        if self.visitor is not None:
            lengths = [math.prod([self.states[u] for u in scope]) for scope in scopes]
            return self.visitor.visit(sizes, [table for table, _ in operands], lengths, here)
        big = np.full(math.prod(sizes), self.arithmetic.one)
        for (table, _), present in zip(operands, here, strict=False):
            self.arithmetic.multiply(big, table, layout(sizes, present))
        return [self.arithmetic.marginalise(big, layout(sizes, present)) for present in here[len(operands) :]]

    def draw(self, num_draws: int, rng: np.random.Generator) -> IntArray:
        """Configurations drawn from roots to leaves; needs the messages of :meth:`collect`."""
        states = np.zeros((num_draws, len(self.order)), dtype=np.int64)
        for v in reversed(self.order):
            logits = np.zeros((num_draws, self.states[v]))
            operands, _ = self._operands(v)
            for table, scope in operands:  # v is the innermost axis of each
                index = np.zeros(num_draws, dtype=np.int64)
                for u in scope[:-1]:
                    index = index * self.states[u] + states[:, u]
                values = table.reshape(-1, self.states[v])[index]
                if not self.is_log:
                    with np.errstate(divide="ignore"):
                        values = np.log(values)
                logits += values
            weights = np.exp(logits - logits.max(axis=1, keepdims=True))
            cumulative = np.cumsum(weights, axis=1)
            # random() is at most 1 - 2**-53, so the product is below the total also after rounding.
            threshold = rng.random(num_draws) * cumulative[:, -1]
            states[:, v] = (cumulative <= threshold[:, None]).sum(axis=1)
        return states

    def _read_marginals(
        self, v: int, factor: LocalFactor, table: FloatArray, nodes: FloatArray, edges: FloatArray
    ) -> None:
        """Node and edge marginals from the joint table (scope..., v) of a factor."""
        model = self.tree.model
        joint = self.arithmetic.probabilities(table).reshape([self.states[u] for u in (*factor.scope, v)])
        last = joint.ndim - 1
        start = model.unary_offsets[v]
        nodes[start : start + self.states[v]] = joint.sum(axis=tuple(range(last)))
        for axis, (u, e) in enumerate(zip(factor.scope, factor.edges, strict=True)):
            pair = joint.sum(axis=tuple(a for a in range(last) if a != axis))
            start = model.pairwise_offsets[e]
            edges[start : start + pair.size] = (pair if u < v else pair.T).reshape(-1)
