"""Standard errors from every draw, kept: the naive twin of what batches and long parts of chains say."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

import oracle
from fastmix._student import student_factor
from fastmix.model import MarkovRandomField
from fastmix.model.reduce import certain_entries
from fastmix.sampling.diagnostics import BatchStatistics, Summary

FloatArray = NDArray[np.float64]


INF = math.inf

# Under 1e-6 false alarms: the normal distribution has less than that beyond 4.9 standard deviations.
NORMAL_QUANTILE = 4.9
RESOLUTION = 2.0**-24


def free_model(num_states: Sequence[int]) -> MarkovRandomField:
    """Variables without edges: only their state counts matter here."""
    return MarkovRandomField.from_tables([np.zeros(count) for count in num_states], [], [])


def indicators(draws: NDArray[np.int64], model: MarkovRandomField) -> FloatArray:
    """States (C, S, n) as indicators (E, C, S)."""
    rows = [draws[:, :, i] == a for i, count in enumerate(model.num_states.tolist()) for a in range(count)]
    return np.array(rows, dtype=np.float64).reshape(len(rows), *draws.shape[:2])


def collect(values: FloatArray, lengths: Sequence[int], expected: int | None = None) -> BatchStatistics:
    """Statistics of values (E, C, S) in batches of these lengths."""
    total = sum(lengths)
    statistics = BatchStatistics(values.shape[0], values.shape[1], total if expected is None else expected)
    ends = [0, *itertools.accumulate(lengths)]
    for start, stop in itertools.pairwise(ends):
        statistics.add(values[:, :, start:stop].sum(axis=2), stop - start)
    return statistics


def even(num_sweeps: int, num_batches: int) -> list[int]:
    return [num_sweeps // num_batches] * num_batches


def markov(rng: np.random.Generator, shape: tuple[int, ...], num_sweeps: int, p: float, lag: float) -> FloatArray:
    """Stationary chains of 0 and 1 (*shape, S) with mean p and autocorrelation ``lag ** k``."""
    up, down = (1.0 - lag) * p, (1.0 - lag) * (1.0 - p)
    x = rng.random(shape) < p
    result = np.empty((num_sweeps, *shape), dtype=np.int8)
    for t in range(num_sweeps):
        result[t] = x
        x = rng.random(shape, dtype=np.float32) < np.where(x, 1.0 - down, up)
    return np.moveaxis(result, 0, -1).astype(np.float64)


def with_complement(ones: FloatArray) -> FloatArray:
    """Entries (2 n, C, S) of n binary variables from their values (n, C, S)."""
    return np.stack([1.0 - ones, ones], axis=1).reshape(2 * len(ones), *ones.shape[1:])


def naive_batches(lengths: Sequence[int]) -> Pieces:
    return list(itertools.pairwise([0, *itertools.accumulate(lengths)]))


def naive_parts(lengths: Sequence[int], num_chains: int, expected: int) -> Pieces:
    """Sweeps of every part: 2 for each chain, at least 16 in all, and a batch belongs to the part of its middle."""
    per_chain = max(2, math.ceil(16 / num_chains))
    parts: dict[int, list[int]] = {}
    for start, stop in naive_batches(lengths):
        number = 0
        while number < per_chain - 1 and Fraction(start + stop, 2) > Fraction((number + 1) * expected, per_chain):
            number += 1
        parts.setdefault(number, [start, stop])[1] = stop
    return [(start, stop) for start, stop in parts.values()]


def naive_variance(x: FloatArray, pieces: Pieces) -> float:
    """Square of the standard error of the mean of values (C, S) from the means of pieces of every chain."""
    mean = math.fsum(x.ravel().tolist()) / x.size
    terms = [(b - a) * (math.fsum(row[a:b].tolist()) / (b - a) - mean) ** 2 for row in x for a, b in pieces]
    return math.fsum(terms) / (len(terms) - 1) / x.size if len(terms) > 1 else 0.0


def naive_r_hat(groups: list[FloatArray]) -> float:
    """Split R-hat of the indicator whose (conditional) probabilities these are."""
    if len(groups) < 2 or sum(map(len, groups)) == len(groups):
        return INF
    n = sum(map(len, groups)) / len(groups)
    mean = float(np.mean(np.concatenate(groups)))
    inner = sum(len(g) * float(g.mean()) * (1 - float(g.mean())) for g in groups) / sum(len(g) - 1 for g in groups)
    outer = sum(len(g) * (float(g.mean()) - mean) ** 2 for g in groups) / (len(groups) - 1)
    if inner == 0.0:
        return INF if outer > 1e-20 else 1.0
    return math.sqrt((n - 1) / n + outer / (n * inner))


def naive_span(mean: float, swing: float) -> float:
    """Width of the range of probabilities whose log-odds are within the swing of those of the mean."""
    if swing == 0.0:
        return 0.0
    if mean in (0.0, 1.0):
        return 1.0
    low, high = naive_range(mean, swing)
    return high - low


def naive_range(mean: float, swing: float) -> tuple[float, float]:
    """The smallest and largest probability whose log-odds are within the swing of those of the mean."""
    if swing == INF:
        return 0.0, 1.0
    odds = math.log(mean) - math.log1p(-mean)
    low, high = (0.5 * (1.0 + math.tanh(0.5 * (odds + change))) for change in (-swing, swing))
    return low, high


def naive_summary(
    values: FloatArray,
    model: MarkovRandomField,
    lengths: Sequence[int],
    *,
    expected: int | None = None,
    swings: Sequence[float] | None = None,
    memory: float = 1.0,
) -> dict[str, list[float]]:
    """What :func:`summarize` returns, from all values (E, C, S)."""
    num_chains, num_sweeps = values.shape[1:]
    total = num_chains * num_sweeps
    batches = naive_batches(lengths)
    parts = naive_parts(lengths, num_chains, num_sweeps if expected is None else expected)
    unary, edges = oracle.unary_vectors(model), model.edges.tolist()
    states = [(i, a) for i, vector in enumerate(unary) for a in range(len(vector))]

    means, errors, r_hats = [], [], []
    ess = [INF] * len(unary)
    for e, (i, a) in enumerate(states):
        x = values[e]
        mean = math.fsum(x.ravel().tolist()) / total
        known = unary[i][a] == -INF or sum(value > -INF for value in unary[i]) == 1
        own = [math.fsum(row[start:stop].tolist()) / (stop - start) for row in x for start, stop in batches]
        same = max(own) - min(own) < 1e-10
        error = math.sqrt(naive_variance(x, batches))
        if num_chains * len(parts) > 1:
            factor = student_factor(num_chains * len(parts) - 1)  # which has a test of its own
            long = naive_variance(x, parts)
            error = max(error, factor * math.sqrt(long))
            if naive_r_hat([row[start:stop] for row in x for start, stop in parts]) > 1.01:
                error = max(error, math.sqrt(naive_variance(x, [(0, num_sweeps)])))
        if num_chains * len(batches) < 2:
            error, looks = INF, 0.0
        elif same:
            error, looks = 0.0, float(total)
        else:
            looks = min(mean * (1.0 - mean) / error**2, total * max(1.0, math.log10(total)))
        means.append(mean)
        errors.append(error)
        ess[i] = min(ess[i], total if known else looks)
        r_hats.append(1.0 if known else naive_r_hat([row[start:stop] for row in x for start, stop in parts]))

    for e, (i, a) in enumerate(states):
        around = [ess[i], *(ess[j] for j, k in edges if k == i), *(ess[k] for j, k in edges if j == i)]
        looks = min(*around, total / max(1.0, memory))
        span = 1.0 if swings is None else naive_span(means[e], swings[i])
        errors[e] = max(RESOLUTION, math.sqrt(errors[e] ** 2 + (1.5 * span / (1.5 + looks)) ** 2))
        if unary[i][a] == -INF or sum(value > -INF for value in unary[i]) == 1:
            errors[e] = 0.0
    largest = [max(r for r, (k, _) in zip(r_hats, states, strict=True) if k == i) for i in range(len(unary))]
    return {"mean": means, "std_error": errors, "ess": ess, "r_hat": largest}


Pieces = list[tuple[int, int]]  # sweeps from .. to


def assert_sound(summary: Summary, model: MarkovRandomField) -> None:
    """What every summary fulfils."""
    assert summary.mean.shape == summary.std_error.shape == model.log_unary.shape
    assert summary.ess.shape == summary.r_hat.shape == (model.num_variables,)
    for array in (summary.mean, summary.std_error, summary.ess, summary.r_hat):
        assert not np.isnan(array).any()
        assert (array >= 0.0).all()
    assert np.isfinite(summary.mean).all()
    assert np.isfinite(summary.ess).all()
    known = certain_entries(model)
    assert (summary.std_error[~known] >= RESOLUTION).all()
    assert (summary.std_error[known] == 0.0).all()
    for a, b in itertools.pairwise(model.unary_offsets.tolist()):
        assert abs(summary.mean[a:b].sum() - 1.0) < 1e-14
