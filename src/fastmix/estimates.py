"""Expectations from configurations: means, variances and joint frequencies with their standard errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray
from fastmix._checks import describe

__all__ = ["Estimate", "joint_frequencies", "mean_of", "variance_of"]

_LEAST_GROUPS = 16  # parts whose spread gives the standard error; long chains are cut where there are fewer chains
_CHUNK_ENTRIES = 1 << 24  # states given to a function at once


@dataclass(frozen=True, eq=False)
class Estimate:
    """A number, or an array of them, with its standard error; zero where it is exact.

    Multiplying it by a number, dividing it by one and changing its sign work as expected.

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
            sizes = np.floor(np.log10([max(abs(self.value), 1e-300), self.std_error]))
            digits = max(1, 2 + int(sizes[0] - sizes[1]))
        return f"Estimate({self.value:.{min(digits, 15)}g} ± {self.std_error:.2g})"


def mean_of(function: Callable[[NDArray[Any]], Any], draws: NDArray[Any]) -> Estimate:
    """The expectation of a function of a configuration over draws (chains, draws, n)."""
    check_function(function)
    groups = _groups(_values(function, draws)).mean(axis=1)
    return _estimate(groups.mean(axis=0), _spread(groups))


def variance_of(function: Callable[[NDArray[Any]], Any], draws: NDArray[Any]) -> Estimate:
    """The variance of a function of a configuration over draws (chains, draws, n), by the jackknife over groups."""
    check_function(function)
    values = _values(function, draws)
    values = values - values.mean(axis=(0, 1))  # the difference of two large squares would lose digits
    first, second = (_groups(part).mean(axis=1) for part in (values, values**2))
    num = len(first)
    if num < 2:
        return _estimate(second[0] - first[0] ** 2, np.full(first.shape[1:], np.nan))
    whole = second.mean(axis=0) - first.mean(axis=0) ** 2
    without = [(part.sum(axis=0) - part) / (num - 1) for part in (first, second)]
    left_out = without[1] - without[0] ** 2
    error = np.sqrt((num - 1) * ((left_out - left_out.mean(axis=0)) ** 2).mean(axis=0))
    return _estimate(num * whole - (num - 1) * left_out.mean(axis=0), error)


def joint_frequencies(draws: NDArray[Any], variables: list[int], num_states: list[int]) -> Estimate:
    """Relative frequencies of the states of some variables together, an axis for each, in draws (chains, draws, n)."""
    size = int(np.prod(num_states))
    numbers = np.ravel_multi_index(tuple(draws[..., v].astype(np.int64) for v in variables), num_states)
    groups = np.stack([np.bincount(part, minlength=size) / part.size for part in _groups(numbers)])
    mean, error = groups.mean(axis=0), _spread(groups)
    return Estimate(mean.reshape(num_states), error.reshape(num_states))


def _values(function: Callable[[NDArray[Any]], Any], draws: NDArray[Any]) -> FloatArray:
    """What a function gives for draws (chains, draws, n): (chains, draws, ...)."""
    chains, num, n = draws.shape
    flat = draws.reshape(-1, n)
    rows = max(1, _CHUNK_ENTRIES // max(1, n))
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
    """Parts of equal size (parts, size, ...) of values (chains, draws, ...) that are next to independent."""
    chains, num = values.shape[:2]
    cuts = max(1, min(num, -(-_LEAST_GROUPS // chains)))
    size = num // cuts
    return values[:, : cuts * size].reshape(chains * cuts, size, *values.shape[2:])


def _spread(groups: FloatArray) -> FloatArray:
    """The standard error of the mean of groups; NaN where there is only one."""
    if len(groups) < 2:
        return np.full(groups.shape[1:], np.nan)
    return np.asarray(groups.std(axis=0, ddof=1) / np.sqrt(len(groups)))


def _estimate(value: Any, error: Any) -> Estimate:
    """Plain numbers where there is one only."""
    return Estimate(float(value), float(error)) if np.ndim(value) == 0 else Estimate(value, error)


def check_function(function: Any) -> None:
    """A TypeError for what cannot be called."""
    if not callable(function):
        raise TypeError(f"function must be a function of configurations, got {describe(function)}")
