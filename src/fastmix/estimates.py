"""Expectations estimated from draws: means, variances and joint frequencies, each with its standard error.

Draws of one chain depend on each other. The standard errors therefore come from the spread between groups of draws:
whole chains, or long stretches of chains where there are few of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray
from fastmix._checks import describe

__all__ = ["Estimate", "joint_frequencies", "mean_of", "variance_of"]

#: Groups whose spread gives the standard error; chains are cut into stretches if there are fewer chains
#: (tests/test_estimates.py measures how often the error bars hold).
MIN_GROUPS = 16
#: States that are passed to the function of a user at once (not measured: 128 MiB of 64-bit numbers).
CHUNK_ENTRIES = 1 << 24
_DOUBLE_DIGITS = 15  # significant digits that a double has


@dataclass(frozen=True, eq=False)
class Estimate:
    """A number, or an array of numbers, with its standard error, which is zero where the value is exact.

    It can be multiplied by a number, divided by one and negated; the standard error follows.

    Examples
    --------
    >>> energy = Estimate(-20.0, 0.5)
    >>> -energy / 10
    Estimate(2 ± 0.05)
    """

    value: Any
    std_error: Any

    def __mul__(self, factor: float) -> Estimate:
        return replace(self, value=self.value * factor, std_error=self.std_error * abs(factor))

    __rmul__ = __mul__

    def __truediv__(self, number: float) -> Estimate:
        return self * (1.0 / number)

    def __neg__(self) -> Estimate:
        return self * -1.0

    def __float__(self) -> float:
        return float(self.value)

    def __repr__(self) -> str:
        if np.ndim(self.value):
            return f"Estimate(array of shape {np.shape(self.value)}, std_error up to {np.max(self.std_error):.3g})"
        digits = 6
        if self.std_error > 0:
            # As many digits of the value as the standard error has, two of them uncertain.
            value_size, error_size = np.floor(np.log10([max(abs(self.value), 1e-300), self.std_error]))
            digits = max(1, 2 + int(value_size - error_size))
        return f"Estimate({self.value:.{min(digits, _DOUBLE_DIGITS)}g} ± {self.std_error:.2g})"


def mean_of(function: Callable[[NDArray[Any]], Any], draws: NDArray[Any]) -> Estimate:
    """The expectation of a function of the configuration, estimated from draws (chains, draws, n)."""
    check_function(function)
    group_means = _groups(_values(function, draws)).mean(axis=1)
    return _estimate(group_means.mean(axis=0), _spread(group_means))


def variance_of(function: Callable[[NDArray[Any]], Any], draws: NDArray[Any]) -> Estimate:
    """The variance of a function of the configuration, estimated from draws (chains, draws, n).

    The jackknife over groups of draws removes the bias of order 1 / groups and gives the standard error.
    """
    check_function(function)
    values = _values(function, draws)
    values = values - values.mean(axis=(0, 1))  # the difference of two large squares would lose digits
    first = _groups(values).mean(axis=1)
    second = _groups(values**2).mean(axis=1)
    num = len(first)
    if num < 2:
        return _estimate(second[0] - first[0] ** 2, np.full(first.shape[1:], np.nan))
    whole = second.mean(axis=0) - first.mean(axis=0) ** 2
    first_without = (first.sum(axis=0) - first) / (num - 1)
    second_without = (second.sum(axis=0) - second) / (num - 1)
    left_out = second_without - first_without**2  # the variance without each group in turn
    error = np.sqrt((num - 1) * ((left_out - left_out.mean(axis=0)) ** 2).mean(axis=0))
    return _estimate(num * whole - (num - 1) * left_out.mean(axis=0), error)


def joint_frequencies(draws: NDArray[Any], variables: list[int], num_states: list[int]) -> Estimate:
    """Relative frequencies of the joint states of some variables in draws (chains, draws, n), one axis per variable."""
    num_joint = int(np.prod(num_states))
    columns = tuple(draws[..., variable].astype(np.int64) for variable in variables)
    numbers = np.ravel_multi_index(columns, num_states)
    groups = np.stack([np.bincount(group, minlength=num_joint) / group.size for group in _groups(numbers)])
    mean = groups.mean(axis=0)
    error = _spread(groups)
    return Estimate(mean.reshape(num_states), error.reshape(num_states))


def _values(function: Callable[[NDArray[Any]], Any], draws: NDArray[Any]) -> FloatArray:
    """Values (chains, draws, ...) of a function of the configuration on draws (chains, draws, n)."""
    chains, num, n = draws.shape
    flat = draws.reshape(-1, n)
    rows = max(1, CHUNK_ENTRIES // max(1, n))
    parts = []
    for start in range(0, len(flat), rows):
        part = flat[start : start + rows].astype(np.int64)
        values = np.asarray(function(part), dtype=np.float64)
        if values.ndim == 0 or len(values) != len(part):
            raise ValueError(
                f"the function must take configurations (rows, {n}) and give one value per row, got shape "
                f"{values.shape} for {len(part)} rows; reduce over axis=-1"
            )
        parts.append(values)
    values = np.concatenate(parts)
    return values.reshape(chains, num, *values.shape[1:])


def _groups(values: NDArray[Any]) -> NDArray[Any]:
    """Values (chains, draws, ...) as nearly independent groups of equal size (groups, size, ...)."""
    chains, num = values.shape[:2]
    stretches = max(1, min(num, -(-MIN_GROUPS // chains)))  # per chain
    size = num // stretches
    return values[:, : stretches * size].reshape(chains * stretches, size, *values.shape[2:])


def _spread(groups: FloatArray) -> FloatArray:
    """The standard error of the mean over groups; NaN if there is only one group."""
    if len(groups) < 2:
        return np.full(groups.shape[1:], np.nan)
    return np.asarray(groups.std(axis=0, ddof=1) / np.sqrt(len(groups)))


def _estimate(value: Any, error: Any) -> Estimate:
    """An estimate that holds plain numbers where value and error are scalars, and arrays otherwise."""
    return Estimate(float(value), float(error)) if np.ndim(value) == 0 else Estimate(value, error)


def check_function(function: Any) -> None:
    """Raise a TypeError if the argument cannot be called."""
    if not callable(function):
        raise TypeError(f"function must be a function of configurations, got {describe(function)}")
