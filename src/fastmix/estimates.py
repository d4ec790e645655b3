"""Expectations estimated from draws: means, variances and joint frequencies, each with its standard error.

Draws of one chain depend on each other. The standard errors therefore come from the spread between groups of draws:
whole chains, or long stretches of chains where there are few of them. An estimate keeps what it would be without each
of these groups, so that functions of estimates from one run have the standard errors of correlated quantities.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray
from fastmix._checks import as_float_array, describe
from fastmix._memory import check_memory
from fastmix._student import student_factor

__all__ = ["Estimate", "estimate_of", "jackknife", "joint_frequencies", "mean_of", "values_of", "variance_of"]

#: Groups whose spread gives the standard error; chains are cut into stretches if there are fewer chains
#: (tests/test_estimates.py measures how often the error bars hold).
MIN_GROUPS = 16
#: Groups at most: neighboring chains are put together if there are more. Their spread tells the error to 4 %.
MAX_GROUPS = 256
#: States that are passed to the function of a user at once (not measured: 128 MiB of 64-bit numbers).
CHUNK_ENTRIES = 1 << 24
_DOUBLE_DIGITS = 15  # significant digits that a double has


@dataclass(frozen=True, eq=False)
class _Variation:
    """How an estimate varies with the groups of one source of randomness: a run, or an error that a user gave.

    Attributes
    ----------
    values : float array (groups, ...)
        What the estimate would be without each group in turn (the jackknife), or with the error added and taken off.
    factor : float
        The variance of the estimate is this times the sum of the squared deviations of ``values`` from their mean.
    """

    values: FloatArray
    factor: float

    def variance(self) -> FloatArray:
        """The part of the variance of the estimate that comes from this source."""
        deviations = self.values - self.values.mean(axis=0)
        return np.asarray(self.factor * (deviations**2).sum(axis=0))


@dataclass(frozen=True, eq=False)
class Estimate:
    """A number, or an array of numbers, with its standard error, which is zero where the value is exact.

    Estimates are calculated with like arrays: ``+ - * / **``, functions of NumPy, indexing and comparisons, which
    compare the values. Estimates from the same run are correlated, and what is calculated from them has the right
    standard error: that of the jackknife over the groups of draws of the run (Efron, 1982). Estimates from
    different runs, and entries of an array whose errors were given without groups, count as independent.

    Parameters
    ----------
    value, std_error : float or float array
        Arrays have the same shape.

    Examples
    --------
    >>> energy = Estimate(-20.0, 0.5)
    >>> -energy / 10
    Estimate(2 ± 0.05)
    >>> print(energy - energy, np.exp(energy / 20))
    0 0.368(9)
    >>> f"{energy:.2f}"
    '-20.00 ± 0.50'
    """

    value: Any
    std_error: Any
    #: By source of randomness; None until it is first asked for, where only an error is known.
    _variations: Mapping[str, _Variation] | None = field(default=None, repr=False)

    @classmethod
    def from_groups(cls, groups: Any, *, run: str | None = None) -> Estimate:
        """The mean of independent groups, with the standard error that their spread tells.

        The standard error is widened for their number by Student's law, so that 1.96 of them cover 95 %. It is NaN for
        one group.

        Parameters
        ----------
        groups : float array (groups, ...)
            Means of groups of equal size, such as chains, or stretches of a chain that are longer than its memory.
        run : str, optional
            The name of the run. Estimates of one name must have the same groups in the same order: they vary together.
        """
        groups = as_float_array("groups", groups)
        if groups.ndim == 0 or not len(groups) or np.isnan(groups).any():
            raise ValueError(f"groups must be one or more numbers, or arrays of them, got {describe(groups)}")
        if run is not None and not isinstance(run, str):
            raise TypeError(f"run must be a name, got {describe(run)}")
        total = groups.sum(axis=0)
        left_out = (total - groups) / max(1, len(groups) - 1)
        return _from_left_out(total / len(groups), left_out, run)

    # -- What it varies with.

    def _sources(self) -> Mapping[str, _Variation]:
        """How the estimate varies with every source of its randomness."""
        if self._variations is None:
            object.__setattr__(self, "_variations", _given_error(self.value, self.std_error))
        assert self._variations is not None
        return self._variations

    def __getstate__(self) -> dict[str, Any]:
        """The fields, with sources that have names: a copy varies with the original."""
        self._sources()
        return dict(self.__dict__)

    # -- Calculation.

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """A function of NumPy that acts on every entry, or its reduction."""
        return NotImplemented if "out" in options else _calculate(getattr(ufunc, method), inputs, options)

    def __array_function__(self, function: Callable[..., Any], _: Any, inputs: Any, options: Any) -> Any:
        """Any other function of NumPy."""
        return _calculate(function, inputs, options)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """The values, without their errors."""
        return np.array(self.value, dtype=dtype, copy=copy)

    def __add__(self, other: Any) -> Estimate:
        return _binary(np.add, self, other)

    def __radd__(self, other: Any) -> Estimate:
        return _binary(np.add, other, self)

    def __sub__(self, other: Any) -> Estimate:
        return _binary(np.subtract, self, other)

    def __rsub__(self, other: Any) -> Estimate:
        return _binary(np.subtract, other, self)

    def __mul__(self, other: Any) -> Estimate:
        return _binary(np.multiply, self, other)

    def __rmul__(self, other: Any) -> Estimate:
        return _binary(np.multiply, other, self)

    def __truediv__(self, other: Any) -> Estimate:
        return _binary(np.divide, self, other)

    def __rtruediv__(self, other: Any) -> Estimate:
        return _binary(np.divide, other, self)

    def __pow__(self, other: Any) -> Estimate:
        return _binary(np.power, self, other)

    def __rpow__(self, other: Any) -> Estimate:
        return _binary(np.power, other, self)

    def __neg__(self) -> Estimate:
        return _binary(np.multiply, self, -1.0)

    def __pos__(self) -> Estimate:
        return self

    def __abs__(self) -> Estimate:
        negative = np.asarray(self.value) < 0  # by sign, or the error of |x| near 0 would be that of a fold
        return _binary(np.multiply, self, np.where(negative, -1.0, 1.0))

    # -- Comparison of the values.

    def __eq__(self, other: object) -> Any:
        return _compare(operator.eq, self, other)

    def __ne__(self, other: object) -> Any:
        return _compare(operator.ne, self, other)

    def __lt__(self, other: Any) -> Any:
        return _compare(operator.lt, self, other)

    def __le__(self, other: Any) -> Any:
        return _compare(operator.le, self, other)

    def __gt__(self, other: Any) -> Any:
        return _compare(operator.gt, self, other)

    def __ge__(self, other: Any) -> Any:
        return _compare(operator.ge, self, other)

    __hash__ = None  # type: ignore[assignment]  # equality is that of arrays, entry by entry

    # -- An array of numbers.

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the value; empty for a number."""
        return np.shape(self.value)

    @property
    def ndim(self) -> int:
        """The number of axes; 0 for a number."""
        return np.ndim(self.value)

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Iterator[Estimate]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key: Any) -> Estimate:
        found: Estimate = _calculate(lambda array: np.asarray(array)[key], (self,), {})
        return found

    def __float__(self) -> float:
        return float(self.value)

    # -- Text.

    def __repr__(self) -> str:
        if self.ndim:
            largest = np.max(self.std_error) if np.size(self.std_error) else 0.0
            return f"Estimate(array of shape {self.shape}, std_error up to {largest:.3g})"
        digits = 6
        if self.std_error > 0:
            # As many digits of the value as the standard error has, two of them uncertain.
            value_size, error_size = np.floor(np.log10([max(abs(self.value), 1e-300), self.std_error]))
            digits = max(1, 2 + int(value_size - error_size))
        return f"Estimate({self.value:.{min(digits, _DOUBLE_DIGITS)}g} ± {self.std_error:.2g})"

    def __str__(self) -> str:
        """The value with its uncertain last digits in parentheses, as 1.4239(7) for 1.4239 ± 0.0007."""
        if not self.ndim:
            return _short(float(self.value), float(self.std_error))
        values = np.asarray(self.value)
        texts = np.array(
            [_short(*pair) for pair in zip(values.flat, np.ravel(self.std_error), strict=True)], dtype=object
        )
        return np.array2string(texts.reshape(values.shape), formatter={"object": str})

    def __format__(self, spec: str) -> str:
        """The value and its error, both by a format for numbers; the short text without a format."""
        if not spec:
            return str(self)
        if self.ndim:
            raise TypeError(f"a format needs a single number, got an estimate of shape {self.shape}")
        return f"{self.value:{spec}} ± {self.std_error:{spec}}"


def mean_of(function: Callable[[NDArray[Any]], Any], draws: NDArray[Any], run: str | None = None) -> Estimate:
    """The expectation of a function of the configuration, estimated from draws (chains, draws, n) of a run."""
    check_function(function)
    return Estimate.from_groups(_groups(values_of(function, draws)).mean(axis=1), run=run)


def variance_of(function: Callable[[NDArray[Any]], Any], draws: NDArray[Any], run: str | None = None) -> Estimate:
    """The variance of a function of the configuration, estimated from draws (chains, draws, n) of a run.

    The jackknife over groups of draws removes the bias of order 1 / groups and gives the standard error.
    """
    check_function(function)
    values = values_of(function, draws)
    values = values - values.mean(axis=(0, 1))  # the difference of two large squares would lose digits
    first = _groups(values).mean(axis=1)
    second = _groups(values**2).mean(axis=1)
    num = len(first)
    if num < 2:
        left_out = second - first**2
        return _from_left_out(left_out[0], left_out, run)
    whole = second.mean(axis=0) - first.mean(axis=0) ** 2
    first_without = (first.sum(axis=0) - first) / (num - 1)
    second_without = (second.sum(axis=0) - second) / (num - 1)
    left_out = second_without - first_without**2  # the variance without each group in turn
    return _from_left_out(num * whole - (num - 1) * left_out.mean(axis=0), left_out, run)


def estimate_of(
    function: Callable[[Any], Any],
    observables: Mapping[str, Callable[[NDArray[Any]], Any]],
    draws: NDArray[Any],
    run: str | None = None,
) -> Estimate:
    """A function of the means of observables over draws (chains, draws, n), less the jackknife's estimate of its bias.

    The function takes a mapping from the names of the observables to their means.
    """
    check_function(function)
    if not isinstance(observables, Mapping) or not observables:
        raise TypeError(f"observables must be a dictionary of functions by name, got {describe(observables)}")
    groups = {}
    for name, observable in observables.items():
        check_function(observable, f"observables[{name!r}]")
        groups[name] = _groups(values_of(observable, draws)).mean(axis=1)
    num = len(next(iter(groups.values())))
    whole = {name: _plain(means.mean(axis=0)) for name, means in groups.items()}
    if num < 2:
        left_out = {name: means.mean(axis=0)[None] for name, means in groups.items()}
    else:
        left_out = {name: (means.sum(axis=0) - means) / (num - 1) for name, means in groups.items()}
    return jackknife(function, whole, left_out, run)


def jackknife(
    function: Callable[[Any], Any], whole: Mapping[str, Any], left_out: Mapping[str, FloatArray], run: str | None = None
) -> Estimate:
    """A function of means, with its standard error, less the jackknife's estimate of the bias of its curvature.

    Parameters
    ----------
    function : callable
        Takes a mapping from the names of the means to their values, and gives a number or an array.
    whole : mapping
        The means over all groups of draws.
    left_out : mapping of float arrays (groups, ...)
        The means without each group in turn.
    run : str, optional
        The name of the run, as for :meth:`Estimate.from_groups`.
    """

    def at(means: Mapping[str, Any]) -> FloatArray:
        value = np.asarray(function(means))
        if not np.issubdtype(value.dtype, np.number):
            raise TypeError(f"function must give numbers, got {describe(value)}")
        return value.astype(np.float64)

    value = at(whole)
    num = len(next(iter(left_out.values())))
    values = np.stack([at({name: _plain(means[g]) for name, means in left_out.items()}) for g in range(num)])
    if num < 2:
        return _from_left_out(value, values, run)
    return _from_left_out(num * value - (num - 1) * values.mean(axis=0), values, run)


def joint_frequencies(
    draws: NDArray[Any], variables: list[int], num_states: list[int], run: str | None = None
) -> Estimate:
    """Relative frequencies of the joint states of some variables in draws (chains, draws, n), one axis per variable."""
    num_joint = int(np.prod(num_states))
    columns = tuple(draws[..., variable].astype(np.int64) for variable in variables)
    numbers = np.ravel_multi_index(columns, num_states)
    groups = np.stack([np.bincount(group, minlength=num_joint) / group.size for group in _groups(numbers)])
    return Estimate.from_groups(groups.reshape(len(groups), *num_states), run=run)


def check_function(function: Any, name: str = "function") -> None:
    """Raise a TypeError if the argument cannot be called."""
    if not callable(function):
        raise TypeError(f"{name} must be a function of configurations, got {describe(function)}")


def values_of(function: Callable[[NDArray[Any]], Any], draws: NDArray[Any]) -> FloatArray:
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
    """Values (chains, draws, ...) as nearly independent groups of equal size (groups, size, ...).

    What is left over by groups of equal size is left out, which is less than one group.
    """
    chains, num = values.shape[:2]
    if chains > MAX_GROUPS:
        together = -(-chains // MAX_GROUPS)
        groups = chains // together
        return values[: groups * together].reshape(groups, together * num, *values.shape[2:])
    stretches = max(1, min(num, -(-MIN_GROUPS // chains)))  # per chain
    size = num // stretches
    return values[:, : stretches * size].reshape(chains * stretches, size, *values.shape[2:])


def _from_left_out(value: Any, left_out: FloatArray, run: str | None) -> Estimate:
    """An estimate by what it would be without each group of a run in turn; its error is NaN for one group."""
    num = len(left_out)
    widened = student_factor(num - 1) if num > 1 else math.nan
    variation = _Variation(left_out, (num - 1) / num * widened**2)
    return _estimate(value, {_new_name() if run is None else run: variation})


def _estimate(value: Any, variations: Mapping[str, _Variation]) -> Estimate:
    """An estimate with the standard error of its sources; plain numbers where the value is one."""
    variance = np.zeros(np.shape(value))
    for variation in variations.values():
        variance = variance + variation.variance()
    return Estimate(_plain(value), _plain(np.sqrt(variance)), variations)


def _given_error(value: Any, std_error: Any) -> Mapping[str, _Variation]:
    """The source of an error that was given as a number: entries of an array have a source each."""
    value = np.asarray(value, dtype=np.float64)
    std_error = np.broadcast_to(np.asarray(std_error, dtype=np.float64), value.shape)
    uncertain = np.flatnonzero(std_error)
    if not len(uncertain):
        return {}
    check_memory(16.0 * len(uncertain) * value.size, f"an array of {value.size:,} estimates", "calculate with a part")
    # Each entry once with its error added and once with it taken off: the variances then add up to the given ones.
    values = np.repeat(value.reshape(1, -1), 2 * len(uncertain), axis=0)
    rows = np.arange(len(uncertain))
    values[rows, uncertain] += std_error.flat[uncertain]
    values[rows + len(uncertain), uncertain] -= std_error.flat[uncertain]
    return {_new_name(): _Variation(values.reshape(-1, *value.shape), 0.5)}


def _calculate(function: Callable[..., Any], inputs: Any, options: Mapping[str, Any]) -> Any:
    """A function of arrays at the values of estimates, and at what they would be without each group of each source.

    Answers that are no numbers, such as those of comparisons, are given for the values alone.
    """
    estimates = list(_estimates_in(inputs))
    value = function(*_put(inputs, lambda estimate: estimate.value), **options)
    if not isinstance(value, (np.ndarray, np.generic, float, int)):
        raise TypeError(f"{function} of an estimate gives {describe(value)}, which can have no standard error")
    if not np.issubdtype(np.asarray(value).dtype, np.floating):
        return value
    variations = {}
    for source in dict.fromkeys(name for estimate in estimates for name in estimate._sources()):
        known = [estimate._sources().get(source) for estimate in estimates]
        sizes = {(len(variation.values), variation.factor) for variation in known if variation is not None}
        if len(sizes) > 1:
            raise ValueError(f"run {source!r} has different groups in two of the estimates")
        num, factor = sizes.pop()
        values = [function(*_put(inputs, partial(_without, source, group)), **options) for group in range(num)]
        variations[source] = _Variation(np.stack(values), factor)
    return _estimate(value, variations)


def _without(source: str, group: int, estimate: Estimate) -> Any:
    """What an estimate would be without one group of a source of randomness."""
    variation = estimate._sources().get(source)
    return estimate.value if variation is None else variation.values[group]


def _estimates_in(inputs: Any) -> Iterator[Estimate]:
    """All estimates among arguments, and in the lists and tuples of them."""
    for one in inputs:
        if isinstance(one, Estimate):
            yield one
        elif isinstance(one, (list, tuple)):
            yield from _estimates_in(one)


def _put(inputs: Any, what: Callable[[Estimate], Any]) -> Any:
    """Arguments with something else in the place of each estimate."""
    placed = []
    for one in inputs:
        if isinstance(one, Estimate):
            placed.append(what(one))
        elif isinstance(one, (list, tuple)):
            placed.append(_put(one, what))
        else:
            placed.append(one)
    return placed


def _binary(ufunc: np.ufunc, left: Any, right: Any) -> Estimate:
    """A sum, difference, product, quotient or power; NotImplemented for what is no number."""
    for side in (left, right):
        if not isinstance(side, (Estimate, np.ndarray, np.generic, float, int, list, tuple)):
            return NotImplemented
    found: Estimate = _calculate(ufunc, (left, right), {})
    return found


def _compare(relation: Callable[[Any, Any], Any], left: Estimate, right: Any) -> Any:
    """Whether a relation holds between the values."""
    other = right.value if isinstance(right, Estimate) else right
    if not isinstance(other, (np.ndarray, np.generic, float, int, list, tuple)):
        return NotImplemented
    return relation(left.value, other)


def _plain(value: Any) -> Any:
    """A float where there is one number, and the array otherwise."""
    return float(value) if np.ndim(value) == 0 else np.asarray(value)


def _new_name() -> str:
    """A name for a source of randomness that nothing else has, in this process or another."""
    import secrets

    return secrets.token_hex(8)


def _short(value: float, error: float) -> str:
    """A value with its uncertain last digits in parentheses: one of them, two where they would be 10 to 19."""
    if not error > 0.0 or not math.isfinite(error) or not math.isfinite(value):
        return f"{value:.6g}" if error == 0.0 else f"{value:.6g}({error:.2g})"
    places = -math.floor(math.log10(error))
    uncertain = round(error * 10.0**places)
    if uncertain == 1:
        places += 1
        uncertain = round(error * 10.0**places)
    if uncertain >= 10 and error * 10.0 ** (places - 1) >= 1.95:  # 0.096 to 0.0999: rounded up to the next digit
        places -= 1
        uncertain = round(error * 10.0**places)
    size = math.floor(math.log10(max(abs(value), error)))
    if size < -4 or places < -3:
        return f"{_short(value / 10.0**size, error / 10.0**size)}e{size}"
    if places <= 0:
        return f"{round(value, places):.0f}({round(error, places):.0f})"
    return f"{value:.{places}f}({uncertain})"
