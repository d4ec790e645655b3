"""Bounds that hold with a stated confidence: weights of draws from the mixture of covers, which are bounded."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import Clock
from fastmix.bounds.terms import rounding, spread
from fastmix.bounds.upper import Upper

__all__ = ["Sampled", "draw_configurations", "sampled_bounds"]


_BATCH = 1000


class Sampled(NamedTuple):
    """Bounds on log Z and on the log-weights of all states, that hold together with the confidence asked for."""

    log_z: tuple[float, float]
    states_lower: FloatArray
    states_upper: FloatArray
    num_draws: int


def draw_configurations(upper: Upper, num_draws: int, rng: np.random.Generator, clock: Clock) -> IntArray:
    """Independent configurations (num_draws, n) from the mixture of the covers, by their shares."""
    shares = upper.shares / upper.shares.sum()
    counts = np.bincount(rng.choice(len(shares), size=num_draws, p=shares), minlength=len(shares))
    parts = []
    for k, tree in enumerate(upper.trees):
        if counts[k]:
            parts.append(tree.draw(int(counts[k]), rng, clock, values=upper.parts[k]))
    return np.concatenate(parts)


def sampled_bounds(
    upper: Upper, confidence: float, num_draws: int, rng: np.random.Generator, clock: Clock
) -> tuple[Sampled | None, IntArray]:
    """Bounds by the empirical Bernstein inequality of Maurer and Pontil (2009), and the last batch of draws.

    A weight ``f(x) / (exp(U) q(x))`` lies between 0 and 1. With probability at least ``1 - d`` its mean is within
    ``sqrt(2 V log(2/d) / n) + 7 log(2/d) / (3 (n - 1))`` of the average of n, V being their sample variance; d is
    shared out among both sides of log Z and of every state. The number of draws depends on time, never on the weights.
    """
    terms = upper.terms
    n, num_entries = terms.num_variables, terms.num_unary
    tables = []
    for part, p in zip(upper.parts, upper.positions, strict=True):
        full = np.zeros(len(terms.values))
        full[p] = part
        tables.append(full)
    log_shares = np.log(upper.shares / upper.shares.sum())
    first, second = np.zeros(num_entries + 1), np.zeros(num_entries + 1)
    done = 0
    states = np.zeros((0, n), dtype=np.int64)
    while done < num_draws and not (done and clock.past()):
        states = draw_configurations(upper, min(_BATCH, num_draws - done), rng, clock)
        logs = np.stack(
            [s + terms.log_weights(states, t) - z for s, t, z in zip(log_shares, tables, upper.log_parts, strict=True)]
        )
        weights = np.exp(np.minimum(terms.log_weights(states) - np.logaddexp.reduce(logs, axis=0) - upper.log_z, 0.0))
        index = (terms.offsets[:n] + states).reshape(-1)
        for power, sums in ((1, first), (2, second)):
            sums[:-1] += np.bincount(index, np.repeat(weights**power, n), minlength=num_entries)
            sums[-1] += float((weights**power).sum())
        done += len(states)
        clock.report(done, num_draws, "draws")
    if done < 2:
        return None, states
    mean = first / done
    variance = np.maximum(0.0, (second - done * mean**2) / (done - 1)) * (1.0 + 1e-9) + 1e-11 * mean**2
    log_d = math.log(2.0 / ((1.0 - confidence) / (2.0 * (num_entries + 1))))
    width = np.sqrt(2.0 * variance * log_d / done) + 7.0 * log_d / (3.0 * (done - 1))
    size = spread(terms.values, terms.offsets) + sum(spread(t, terms.offsets) for t in tables)
    error = rounding(len(tables) * len(terms.scopes) + done, size + abs(terms.log_constant))
    with np.errstate(divide="ignore"):
        low = np.log(np.maximum(mean - width, 0.0)) + upper.log_z - error
        high = np.minimum(0.0, np.log(mean + width)) + upper.log_z + error
    return Sampled((float(low[-1]), float(high[-1])), low[:-1], high[:-1], done), states
