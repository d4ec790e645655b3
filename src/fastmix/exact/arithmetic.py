"""Tables in ordinary or in log arithmetic: the operations that a junction tree needs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["LINEAR", "LOG", "Arithmetic", "Layout", "layout"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

# Tables are scaled to a largest entry of 1. A product whose operands' smallest positive entries multiply to more than
# exp(-_LOG_RANGE) cannot underflow (the smallest normal double is exp(-708)), which leaves room for sums and counts.
_LOG_RANGE = 650.0


class Layout(NamedTuple):
    """How a small table sits in a big one: alternating groups of axes, outermost first ."""

    sizes: IntArray
    strides: IntArray


def layout(sizes: Sequence[int], present: Sequence[bool]) -> Layout:
    """Merge neighbouring axes of a big table that are both in the small one, or both not.

    Examples
    --------
    >>> layout([2, 2, 3, 4], [True, True, False, True])
    Layout(sizes=array([4, 3, 4]), strides=array([4, 0, 1]))
    """
    groups: list[list[int]] = []
    inside = [False]
    for size, here in zip(sizes, present, strict=True):
        if groups and inside[-1] == here:
            groups[-1][0] *= size
        else:
            groups.append([size, 0])
            inside.append(here)
    stride = 1
    for group, here in zip(reversed(groups), reversed(inside[1:]), strict=True):
        if here:
            group[1] = stride
            stride *= group[0]
    while len(groups) < 2:  # an absent group beside a present one and the other way round, of size 1
        groups.insert(0, [1, 0 if not groups or groups[0][1] else 1])
    merged = np.array(groups, dtype=np.int64)
    return Layout(merged[:, 0].copy(), merged[:, 1].copy())


class Arithmetic(ABC):
    """One way of storing positive numbers in tables; every table is scaled to a largest entry of one."""

    one: float

    @abstractmethod
    def encode(self, log_table: FloatArray) -> FloatArray:
        """A table of logs in this arithmetic."""

    @abstractmethod
    def multiply(self, big: FloatArray, small: FloatArray, where: Layout) -> None:
        """Big is multiplied by small, repeated."""

    @abstractmethod
    def marginalise(self, big: FloatArray, where: Layout) -> FloatArray:
        """Sum of big over the groups that small lacks."""

    @abstractmethod
    def divide(self, numerator: FloatArray, denominator: FloatArray) -> None:
        """The denominator becomes numerator / denominator; it stays zero where it is zero."""

    @abstractmethod
    def normalise(self, table: FloatArray) -> tuple[float, float]:
        """Scale the largest entry to one in place; log of the scale, and log range of the positive entries.

        The log of the scale is -inf when every entry is zero.
        """

    @abstractmethod
    def probabilities(self, table: FloatArray) -> FloatArray:
        """The table as probabilities that sum to one."""

    @abstractmethod
    def in_range(self, log_range: float) -> bool:
        """Whether a product of tables whose log ranges add up to this keeps full precision."""


class _Linear(Arithmetic):
    """Plain positive numbers: fast, with a range of about 650 in the log."""

    one = 1.0

    def encode(self, log_table: FloatArray) -> FloatArray:
        return np.exp(log_table)

    def multiply(self, big: FloatArray, small: FloatArray, where: Layout) -> None:
        view = big.reshape(where.sizes)
        np.multiply(view, small.reshape(_broadcast(where)), out=view)

    def marginalise(self, big: FloatArray, where: Layout) -> FloatArray:
        return np.asarray(big.reshape(where.sizes).sum(axis=_absent(where))).reshape(-1)

    def divide(self, numerator: FloatArray, denominator: FloatArray) -> None:
        np.divide(numerator, denominator, out=denominator, where=denominator > 0)

    def normalise(self, table: FloatArray) -> tuple[float, float]:
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

    def in_range(self, log_range: float) -> bool:
        return log_range < _LOG_RANGE


class _Log(Arithmetic):
    """Logarithms: many times slower, any range."""

    one = 0.0

    def encode(self, log_table: FloatArray) -> FloatArray:
        return log_table.copy()

    def multiply(self, big: FloatArray, small: FloatArray, where: Layout) -> None:
        view = big.reshape(where.sizes)
        np.add(view, small.reshape(_broadcast(where)), out=view)

    def marginalise(self, big: FloatArray, where: Layout) -> FloatArray:
        return _log_sum_exp(big.reshape(where.sizes), _absent(where)).reshape(-1)

    def divide(self, numerator: FloatArray, denominator: FloatArray) -> None:
        np.subtract(numerator, denominator, out=denominator, where=denominator > -np.inf)

    def normalise(self, table: FloatArray) -> tuple[float, float]:
        top = float(table.max())
        if top == -np.inf:
            return -np.inf, 0.0
        table -= top
        return top, 0.0

    def probabilities(self, table: FloatArray) -> FloatArray:
        weights = np.exp(table - table.max())
        return weights / weights.sum()

    def in_range(self, log_range: float) -> bool:  # noqa: ARG002 every range fits
        return True


def _broadcast(where: Layout) -> list[int]:
    return [int(n) if s else 1 for n, s in zip(*where, strict=True)]


def _absent(where: Layout) -> tuple[int, ...]:
    return tuple(int(g) for g in np.flatnonzero(where.strides == 0))


def _log_sum_exp(values: FloatArray, axes: tuple[int, ...]) -> FloatArray:
    top = values.max(axis=axes, keepdims=True)
    top[top == -np.inf] = 0.0
    total = np.exp(values - top).sum(axis=axes)
    result = np.full(total.shape, -np.inf)
    np.log(total, out=result, where=total > 0)
    return result + top.reshape(total.shape)


LINEAR: Arithmetic = _Linear()
LOG: Arithmetic = _Log()
