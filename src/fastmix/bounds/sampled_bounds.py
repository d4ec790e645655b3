"""Bounds that hold with a stated confidence, from draws of the mixture of the covers of an upper bound.

With an upper bound U by covers C of shares r_C, the weight of a configuration is
``f(x) = exp(U) prod_C p_C(x)^r_C <= exp(U) sum_C r_C p_C(x)``: for draws x from the mixture of the covers, the ratio of
f to exp(U) times the density of the mixture lies between 0 and 1 (Liu, Fisher and Ihler 2015, for mini-buckets).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import Clock
from fastmix.bounds.tuning import DRAWS_PER_BATCH
from fastmix.bounds.upper_bound import UpperBound
from fastmix.model.rounding import rounding, spread
from fastmix.theory.intervals import bernstein_half_width

__all__ = ["SampledBounds", "draw_configurations", "sampled_bounds"]


class SampledBounds(NamedTuple):
    """Bounds on log Z and on the log-weights of all states, which hold together with the confidence asked for."""

    log_z: tuple[float, float]
    lower: FloatArray
    upper: FloatArray
    num_draws: int


def draw_configurations(upper: UpperBound, num_draws: int, rng: np.random.Generator, clock: Clock) -> IntArray:
    """Independent configurations (num_draws, n) from the mixture of the covers, by their shares."""
    shares = upper.shares / upper.shares.sum()
    counts = np.bincount(rng.choice(len(shares), size=num_draws, p=shares), minlength=len(shares))
    parts = []
    for k, tree in enumerate(upper.trees):
        if counts[k]:
            parts.append(tree.draw(int(counts[k]), rng, clock, values=upper.scaled_tables[k]))
    return np.concatenate(parts)


def sampled_bounds(
    upper: UpperBound, confidence: float, num_draws: int, rng: np.random.Generator, clock: Clock
) -> tuple[SampledBounds | None, IntArray]:
    """Bounds by the empirical Bernstein inequality of Maurer and Pontil (2009), and the last batch of draws.

    :func:`fastmix.theory.intervals.bernstein_half_width` bounds how far the mean of the ratios is from the average of
    those drawn; the probability of failure is shared out among log Z and all states. The number of draws depends on
    the time, never on the ratios. There are no bounds where the time ends before the second draw.

    Parameters
    ----------
    upper : UpperBound
        Evaluated at least once.
    confidence : float
        The probability that all bounds hold together.
    num_draws : int
        Draws at most.
    rng : numpy.random.Generator
    clock : Clock
    """
    mixture = _Mixture(upper)
    tables = upper.tables
    first_moments = np.zeros(tables.num_unary + 1)  # of the ratio by state, then of the ratio itself
    second_moments = np.zeros(tables.num_unary + 1)
    done = 0
    states = np.zeros((0, tables.num_variables), dtype=np.int64)
    while done < num_draws and not (done and clock.past()):
        states = draw_configurations(upper, min(DRAWS_PER_BATCH, num_draws - done), rng, clock)
        ratios = mixture.ratios(states)
        index = (tables.unary_starts + states).reshape(-1)
        for power, sums in ((1, first_moments), (2, second_moments)):
            raised = ratios**power
            sums[:-1] += np.bincount(index, np.repeat(raised, tables.num_variables), minlength=tables.num_unary)
            sums[-1] += float(raised.sum())
        done += len(states)
        clock.report(done, num_draws, "draws")
    if done < 2:
        return None, states
    mean = first_moments / done
    variance = np.maximum(0.0, (second_moments - done * mean**2) / (done - 1))
    variance = variance * (1.0 + 1e-9) + 1e-11 * mean**2  # by rounding of the moments
    width = bernstein_half_width(variance, done, failure=(1.0 - confidence) / (tables.num_unary + 1))
    error = mixture.rounding_error(done)
    with np.errstate(divide="ignore"):
        low = np.log(np.maximum(mean - width, 0.0)) + upper.log_z - error
        high = np.minimum(0.0, np.log(mean + width)) + upper.log_z + error
    return SampledBounds((float(low[-1]), float(high[-1])), low[:-1], high[:-1], done), states


class _Mixture:
    """The mixture of the covers, by their shares, as a density."""

    def __init__(self, upper: UpperBound) -> None:
        self.upper = upper
        self.log_shares = np.log(upper.shares / upper.shares.sum())
        self.values = []  # by cover, its tables in the place of those of the model
        for part, positions in zip(upper.scaled_tables, upper.positions, strict=True):
            full = np.zeros(len(upper.tables.values))
            full[positions] = part
            self.values.append(full)

    def ratios(self, states: IntArray) -> FloatArray:
        """The weight of each configuration (draws, n), over exp(U) times the density of the mixture."""
        tables = self.upper.tables
        logs = []
        for log_share, values, log_z in zip(self.log_shares, self.values, self.upper.log_parts, strict=True):
            logs.append(log_share + tables.log_weights(states, values) - log_z)
        log_density = np.logaddexp.reduce(np.stack(logs), axis=0)
        return np.asarray(np.exp(np.minimum(tables.log_weights(states) - log_density - self.upper.log_z, 0.0)))

    def rounding_error(self, num_draws: int) -> float:
        """The largest rounding error of the log of a mean of ratios."""
        tables = self.upper.tables
        size = tables.size + sum(spread(values, tables.offsets) for values in self.values)
        return rounding(len(self.values) * tables.num_tables + num_draws, size)
