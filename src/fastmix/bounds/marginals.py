"""Bounds on marginals: from bounds on the weights of states, and from the neighbors alone."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray
from fastmix.bounds.terms import Terms

__all__ = ["blanket_bounds", "combine", "tighten"]


_SLACK = 1e-13  # relative, for the few operations from logs to probabilities
_MOST_STATES = 64  # of a variable whose pairs of states are all compared


def tighten(
    log_z: tuple[float, float], lower: FloatArray, upper: FloatArray, terms: Terms
) -> tuple[tuple[float, float], FloatArray, FloatArray]:
    """Bounds on log Z, by what the states of any one variable add up to, and on marginals.

    From bounds L <= log Z <= U, and on the log-weights of all states, laid out as the tables of single variables. With
    the weight of the other states within ``[L_rest, U_rest]``, ``p(x_i = a)`` lies between
    ``1 / (1 + exp(U_rest - L_a))`` and ``1 / (1 + exp(L_rest - U_a))``. Each of the four is also bounded by what the
    others leave of Z: ``exp(L_rest) >= exp(L) - exp(U_a)``, and so on.
    """
    n = terms.num_variables
    if not n:
        return log_z, lower, upper
    starts, counts = terms.offsets[:n], terms.num_states
    low_z = max(log_z[0], float(np.logaddexp.reduceat(lower, starts).max()) - _SLACK)
    high_z = min(log_z[1], float(np.logaddexp.reduceat(upper, starts).min()) + _SLACK)
    upper = np.minimum(upper, high_z)
    rest_lower, rest_upper = _rest(lower, starts, counts), _rest(upper, starts, counts)
    rest_lower = np.maximum(rest_lower, _minus(low_z, upper))
    rest_upper = np.minimum(rest_upper, _minus(high_z, lower))
    own_lower = np.maximum(lower, _minus(low_z, rest_upper))
    own_upper = np.minimum(upper, _minus(high_z, rest_lower))
    with np.errstate(over="ignore", invalid="ignore"):
        low = 1.0 / (1.0 + np.exp(rest_upper - own_lower))
        high = 1.0 / (1.0 + np.exp(rest_lower - own_upper))
    low = np.where(np.isfinite(own_lower) & np.isfinite(rest_upper), low, 0.0)
    high = np.where(np.isfinite(rest_lower) & np.isfinite(own_upper), high, 1.0)
    slack = _SLACK * (1.0 + abs(high_z) + abs(low_z if math.isfinite(low_z) else 0.0))
    return (low_z, high_z), np.maximum(low * (1.0 - slack), 0.0), np.minimum(high * (1.0 + slack), 1.0)


def _rest(values: FloatArray, starts: NDArray[np.int64], counts: list[int]) -> FloatArray:
    """For every state the log of the summed weights of the other states of its variable."""
    result = np.full(len(values), -np.inf)
    sizes = np.array(counts)
    for count in np.unique(sizes).tolist():
        index = starts[sizes == count][:, None] + np.arange(count)
        block = values[index]
        out = np.empty_like(block)
        for a in range(count):
            others = np.delete(block, a, axis=1)
            out[:, a] = np.logaddexp.reduce(others, axis=1)
        result[index] = out
    return result


def _minus(total: float, part: FloatArray) -> FloatArray:
    """``log(exp(total) - exp(part))``, -inf where that is not positive."""
    if not math.isfinite(total):
        return np.full(len(part), total)
    with np.errstate(divide="ignore", invalid="ignore"):
        left = -np.expm1(np.minimum(part - total, 0.0))
        return total + np.log(left)


def blanket_bounds(terms: Terms) -> tuple[FloatArray, FloatArray]:
    """Bounds on marginals from the terms of each variable alone, whatever its neighbors are.

    A marginal is a mean of conditional probabilities given the neighbors, so it lies between the smallest and the
    largest that differences of log-odds allow, term by term.
    """
    n = terms.num_variables
    most = max(terms.num_states, default=1)
    if most > _MOST_STATES or n * most * most > 1 << 26:
        return np.zeros(terms.num_unary), np.ones(terms.num_unary)
    low, high = np.zeros((n, most, most)), np.zeros((n, most, most))  # of the log-odds of a against b
    for shape, (scopes, places) in terms.groups.items():
        for axis, count in enumerate(shape):
            moved = np.moveaxis(terms.values[places], axis + 1, 1).reshape(len(scopes), count, -1)
            for a in range(count):
                for b in range(count):
                    if a == b:
                        continue
                    with np.errstate(invalid="ignore"):
                        odds = moved[:, a] - moved[:, b]
                    free = np.isfinite(moved[:, a]) & np.isfinite(moved[:, b])
                    np.add.at(low[:, a, b], scopes[:, axis], np.where(free, odds, -np.inf).min(axis=1))
                    np.add.at(high[:, a, b], scopes[:, axis], np.where(free, odds, np.inf).max(axis=1))
    lower, upper = np.zeros(terms.num_unary), np.ones(terms.num_unary)
    sizes = np.array(terms.num_states, dtype=np.int64)
    for count in np.unique(sizes).tolist():
        chosen = np.flatnonzero(sizes == count)
        index = terms.offsets[chosen][:, None] + np.arange(count)
        with np.errstate(over="ignore"):
            lower[index] = 1.0 / np.exp(-low[chosen][:, :count, :count]).sum(axis=2)
            upper[index] = 1.0 / np.exp(-high[chosen][:, :count, :count]).sum(axis=2)
    slack = _SLACK * (1.0 + np.abs(terms.values[terms.values > -np.inf]).max(initial=0.0) * len(terms.groups))
    return lower * (1.0 - slack), np.minimum(upper * (1.0 + slack), 1.0)


def combine(bounds: list[tuple[FloatArray, FloatArray]], terms: Terms) -> tuple[FloatArray, FloatArray]:
    """The best of several bounds on marginals, and what is left by the other states of each variable."""
    lower = np.maximum.reduce([low for low, _ in bounds])
    upper = np.minimum.reduce([high for _, high in bounds])
    if terms.num_variables:
        starts = terms.offsets[: terms.num_variables]
        sums = [np.repeat(np.add.reduceat(x, starts), terms.num_states) for x in (lower, upper)]
        lower, upper = (
            np.maximum(lower, 1.0 - (sums[1] - upper) - 1e-12),
            np.minimum(upper, 1.0 - (sums[0] - lower) + 1e-12),
        )
    return lower, np.maximum(upper, lower)
