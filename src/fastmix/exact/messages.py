"""The two passes of messages over an elimination tree, in ordinary or in log arithmetic.

A table over a set of variables is flat, with the variable eliminated last as its outermost axis. Tables are scaled to a
largest entry of one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmix._clock import NO_LIMIT, Clock
from fastmix.errors import ModelError

if TYPE_CHECKING:
    from fastmix.exact.junction_tree import JunctionTree

__all__ = ["LocalFactor", "Messages", "UnderflowError"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

# Trees whose clique tables all have at most this many entries are done with NumPy, on whole tables. At that size it is
# fast enough, and Numba need not be imported, let alone compile anything.
_NUMPY_ENTRIES = 1 << 13
# A product whose operands' smallest positive entries multiply to more than exp(-_LOG_RANGE) cannot underflow (the
# smallest normal double is exp(-708)), which leaves room for sums and counts.
_LOG_RANGE = 650.0
# Going up, an entry that underflows could matter later, so the range of every product is bounded beforehand. Going
# down, a clique table is the distribution of its variables but for a constant: an entry that underflows belongs to a
# configuration of negligible probability, below 1e-308 / 1e-200, and separators hand down the same probabilities.
_SMALLEST_TOTAL = 1e-200
_SLICES = 1 << 13  # visited between two looks at the clock: half a second or so


class UnderflowError(Exception):
    """A product of tables in ordinary arithmetic could underflow: use logs."""


class LocalFactor(NamedTuple):
    """Factors that a variable is the first eliminated of, joined: a flat table over ``scope``, the variable last.

    The largest entry is 0 after ``log_scale`` was taken out; ``log_range`` is minus the smallest finite entry;
    ``members`` are the numbers of the factors.
    """

    log_table: FloatArray
    scope: tuple[int, ...]
    members: tuple[int, ...]
    log_scale: float
    log_range: float


class Messages:
    """The messages of one run: upward after :meth:`collect`, turned around by :meth:`distribute`."""

    def __init__(self, tree: JunctionTree, arithmetic: str, clock: Clock = NO_LIMIT) -> None:
        self.tree, self.clock = tree, clock
        self.arithmetic = _Log() if arithmetic == "log" else _Linear()
        self.order: list[int] = tree.order.order.tolist()
        self.states = tree.factors.num_states
        self.separators: list[list[int]] = [s[::-1].tolist() for s in tree.separators]
        self.tables: list[FloatArray] = [np.empty(0)] * len(self.order)
        self.ranges: list[float] = [0.0] * len(self.order)
        self.visitor: _Visitor | None = None
        if tree.order.max_entries > _NUMPY_ENTRIES:
            self.visitor = _Visitor(arithmetic == "log", tree.work_entries, clock)
        self.log_z = tree.factors.log_constant + sum(f.log_scale for group in tree.locals for f in group)

    def collect(self) -> None:
        """Leaves to roots: fill the messages and log Z."""
        for v in self.order:
            self.clock.check()
            operands, log_range = self._operands(v)
            if log_range >= self.arithmetic.log_range:
                raise UnderflowError
            (message,) = self._visit(v, operands, [self.separators[v]])
            message = message.copy()
            log_scale, self.ranges[v] = self.arithmetic.normalise(message)
            if log_scale == -np.inf:
                raise ModelError("no configuration has positive probability: hard constraints contradict each other")
            self.log_z += log_scale
            self.tables[v] = message

    def distribute(self) -> FloatArray:
        """Roots to leaves: the marginals of all factors, flat, aligned with their values."""
        factors = self.tree.factors
        marginals = np.zeros(len(factors.values))
        for v in reversed(self.order):
            self.clock.check()
            operands, _ = self._operands(v)
            if self.separators[v]:
                operands.append((self.tables[v], self.separators[v]))
            groups, children = self.tree.locals[v], self.tree.children[v]
            scopes = [list(f.scope) for f in groups] + [self.separators[c] for c in children]
            tables = self._visit(v, operands, scopes)
            if self.arithmetic.one == 1.0 and tables[0].sum() < _SMALLEST_TOTAL:
                raise UnderflowError
            for group, table in zip(groups, tables, strict=False):
                joint = self.arithmetic.probabilities(table).reshape([self.states[u] for u in group.scope])
                for f in group.members:
                    wanted = factors.scopes[f]
                    part = joint.sum(axis=tuple(a for a, u in enumerate(group.scope) if u not in wanted))
                    axes = [u for u in group.scope if u in wanted]
                    if axes != list(wanted):
                        part = part.transpose([axes.index(u) for u in wanted])
                    marginals[factors.starts[f] : factors.starts[f + 1]] = part.reshape(-1)
            for c, message in zip(children, tables[len(groups) :], strict=True):
                self.arithmetic.divide(message, self.tables[c])
                self.arithmetic.normalise(self.tables[c])
        return marginals

    def draw(self, num_draws: int, rng: np.random.Generator) -> IntArray:
        """Configurations drawn from roots to leaves; needs the messages of :meth:`collect`."""
        states = np.zeros((num_draws, len(self.order)), dtype=np.int64)
        for v in reversed(self.order):
            logits = np.zeros((num_draws, self.states[v]))
            for table, scope in self._operands(v)[0]:  # v is the innermost axis of each
                index = np.zeros(num_draws, dtype=np.int64)
                for u in scope[:-1]:
                    index = index * self.states[u] + states[:, u]
                logits += self.arithmetic.logs(table.reshape(-1, self.states[v])[index])
            weights = np.exp(logits - logits.max(axis=1, keepdims=True))
            cumulative = np.cumsum(weights, axis=1)
            # random() is at most 1 - 2**-53, so the product is below the total also after rounding.
            threshold = rng.random(num_draws) * cumulative[:, -1]
            states[:, v] = (cumulative <= threshold[:, None]).sum(axis=1)
        return states

    def _operands(self, v: int) -> tuple[list[tuple[FloatArray, list[int]]], float]:
        """The factors of v and the messages of its children with their scopes, and the sum of their log ranges."""
        children, factors = self.tree.children[v], self.tree.locals[v]
        operands = [(self.tables[c], self.separators[c]) for c in children]
        operands += [(self.arithmetic.encode(f.log_table), list(f.scope)) for f in factors]
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
            shape, there = _groups(sizes, present)
            view = big.reshape(shape)
            self.arithmetic.multiply(view, table.reshape([n if p else 1 for n, p in zip(shape, there, strict=True)]))
        results = []
        for present in here[len(operands) :]:
            shape, there = _groups(sizes, present)
            absent = tuple(g for g, p in enumerate(there) if not p)
            results.append(self.arithmetic.sum_out(big.reshape(shape), absent).reshape(-1))
        return results


def _groups(sizes: Sequence[int], present: Sequence[bool]) -> tuple[list[int], list[bool]]:
    """Neighboring axes of a big table that are both in a small one, or both not, merged: their sizes, and which are.

    Examples
    --------
    >>> _groups([2, 2, 3, 4], [True, True, False, True])
    ([4, 3, 4], [True, False, True])
    """
    shape: list[int] = []
    there: list[bool] = []
    for size, here in zip(sizes, present, strict=True):
        if there and there[-1] == here:
            shape[-1] *= size
        else:
            shape.append(size)
            there.append(here)
    return shape, there


# -- arithmetic -------------------------------------------------------------------------------------------------------


class _Linear:
    """Plain positive numbers: fast, with a limited range."""

    one, log_range = 1.0, _LOG_RANGE

    def encode(self, log_table: FloatArray) -> FloatArray:
        return np.exp(log_table)

    def logs(self, table: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore"):
            return np.log(table)

    def multiply(self, big: FloatArray, small: FloatArray) -> None:
        big *= small

    def sum_out(self, big: FloatArray, axes: tuple[int, ...]) -> FloatArray:
        return np.asarray(big.sum(axis=axes))

    def divide(self, numerator: FloatArray, denominator: FloatArray) -> None:
        """The denominator becomes numerator / denominator; it stays zero where it is zero."""
        np.divide(numerator, denominator, out=denominator, where=denominator > 0)

    def normalise(self, table: FloatArray) -> tuple[float, float]:
        """Scale the largest entry to one in place; log of the scale (-inf if all are zero), and range of the logs."""
        top = float(table.max())
        if not top > 0:
            return -np.inf, 0.0
        table /= top
        low = float(table.min())
        if low == 0:
            low = float(table[table > 0].min())
        return float(np.log(top)), -float(np.log(low))

    def probabilities(self, table: FloatArray) -> FloatArray:
        return table / table.sum()


class _Log(_Linear):
    """Logarithms: many times slower, any range."""

    one, log_range = 0.0, np.inf

    def encode(self, log_table: FloatArray) -> FloatArray:
        return log_table.copy()

    def logs(self, table: FloatArray) -> FloatArray:
        return table

    def multiply(self, big: FloatArray, small: FloatArray) -> None:
        big += small

    def sum_out(self, big: FloatArray, axes: tuple[int, ...]) -> FloatArray:
        top = big.max(axis=axes, keepdims=True)
        top[top == -np.inf] = 0.0
        total = np.exp(big - top).sum(axis=axes)
        result = np.full(total.shape, -np.inf)
        np.log(total, out=result, where=total > 0)
        return result + top.reshape(total.shape)

    def divide(self, numerator: FloatArray, denominator: FloatArray) -> None:
        np.subtract(numerator, denominator, out=denominator, where=denominator > -np.inf)

    def normalise(self, table: FloatArray) -> tuple[float, float]:
        top = float(table.max())
        if top > -np.inf:
            table -= top
        return top, 0.0

    def probabilities(self, table: FloatArray) -> FloatArray:
        weights = np.exp(table - table.max())
        return weights / weights.sum()


class _Visitor:
    """Visits clique tables slice by slice, without ever storing them.

    It keeps its work space, of ``capacity`` entries and some slices, because fresh memory costs as much as the sums.
    """

    def __init__(self, log: bool, capacity: int, clock: Clock) -> None:
        from fastmix.exact import kernels

        self.kernels, self.log, self.clock = kernels, log, clock
        self.pool = np.empty(capacity + 3 * kernels.SLICE)

    def visit(
        self, sizes: list[int], inputs: list[FloatArray], output_sizes: list[int], here: list[list[bool]]
    ) -> list[FloatArray]:
        """Sums of a product of tables over the axes that each output lacks: views of the work space.

        ``sizes`` are those of the axes of the clique, outermost first; ``here`` says which axes each input, and then
        each output, has.
        """
        program, strides, outer, length = self.kernels.write_program(np.array(sizes), np.array(here), len(inputs))
        offsets = np.zeros(len(strides) + 1, dtype=np.int64)
        np.cumsum([t.size for t in inputs] + output_sizes + [length] * 3, out=offsets[1:])
        if len(self.pool) < offsets[-1]:  # a variable with more states than a slice has entries
            self.pool = np.empty(int(offsets[-1]))
        ends = offsets.tolist()
        for k, table in enumerate(inputs):
            self.pool[ends[k] : ends[k + 1]] = table
        first, last = len(inputs), len(inputs) + len(output_sizes)
        self.pool[ends[first] : ends[last]] = -np.inf if self.log else 0.0
        base, digits, left = offsets[:-1].copy(), np.zeros(len(outer), dtype=np.int64), math.prod(outer.tolist())
        while left > 0:
            self.kernels.run(self.pool, base, strides, outer, digits, program, min(left, _SLICES), self.log)
            left -= _SLICES
            self.clock.check()
        return [self.pool[ends[k] : ends[k + 1]] for k in range(first, last)]
