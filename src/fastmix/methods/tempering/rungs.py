"""Where the rungs of a ladder are: a first ladder by annealing, rates of rejection made equal, and annealed weights.

Ladders with equal rejection rates are those of Syed, Bouchard-Côté, Deligiannidis and Doucet (2022).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix.chains.annealing import Annealing
from fastmix.chains.base import Chains
from fastmix.methods.starts import random_states
from fastmix.methods.tempering.path import TemperingPath

__all__ = [
    "MOST_RUNGS", "REJECTION", "annealed_weights", "first_ladder", "next_position", "respace",
    "start_population",
]  # fmt: skip

MOST_RUNGS = 10_000
# The best rate when the replicas of a ladder run one after another, K = 2 Lambda + 1 rungs: non-reversible exchange
# makes a round trip in 2 + 2 K r / (1 - r) rounds for a rate r = Lambda / K, and a round costs K.
REJECTION = 0.5
# When D, the difference of the log-weights, is normal with variance v at both ends, exchanges are rejected at the rate
# erf(sqrt(v) / 2), and the weights exp(D) have the relative effective sample size E[w]^2 / E[w^2] = exp(-v).
_LEAST_EFFECTIVE = 0.4026  # exp(-v) at a rate of 1/2
_LEAST_RATE = 1e-3  # of two rungs that always exchange: keeps the barrier strictly increasing
_HARD_SWEEPS = 20  # at the start of a path with forbidden pairs


def start_population(path: TemperingPath, chains: Chains, *, seed: int) -> Annealing:
    """Chains at the start of a path: exact draws.

    With forbidden pairs, configurations after some sweeps: the start of such a path is not known exactly.
    """
    population = Annealing(chains, path.thetas, path.coefficients([0.0])[0])
    if not path.forbidden:
        # Without tables every update is a draw from the unary alone, so that one sweep leaves exact draws.
        chains.sweep(1)
        return population
    chains.set_states(random_states(path.model, chains.num_chains, np.random.default_rng([seed, 2])))
    chains.sweep(_HARD_SWEEPS)
    return population


def first_ladder(
    path: TemperingPath,
    population: Annealing,
    *,
    num_sweeps: int,
    most: int,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[FloatArray, list[NDArray[np.uint8]]]:
    """Positions along the path about as far apart as exchanges allow, and configurations (N, n) at each.

    Goes from the start of the path to its end, as far each time as exchanges would be rejected half of the time, and
    makes ``num_sweeps`` sweeps there: a first ladder, whose replicas are roughly where they belong. Gives up after
    ``most`` positions, or when ``stop()`` says so, and goes to the end at once.
    """
    chains = population.chains
    positions, states = [0.0], [chains.get_states().astype(np.uint8)]
    while positions[-1] < 1.0:
        position = 1.0
        if len(positions) < most - 1 and not stop():
            position = next_position(path, positions[-1], chains.energies())
        population.move(path.coefficients([position])[0], num_sweeps)
        positions.append(position)
        states.append(chains.get_states().astype(np.uint8))
    return np.array(positions), states


def next_position(path: TemperingPath, position: float, energies: FloatArray) -> float:
    """The furthest position to which exchanges from here would be rejected at a rate of about 1/2."""
    here = path.coefficients([position])[0]

    def effective(s: float) -> float:
        d = (path.coefficients([s])[0] - here) @ energies
        w = np.exp(d - d.max())
        return float(w.mean() ** 2 / np.mean(w * w))

    if effective(1.0) >= _LEAST_EFFECTIVE:
        return 1.0
    low, high = position, 1.0
    # Strong models have their first rungs close to 0: halve until the step is known to a hundredth of itself.
    while high - low > 1e-2 * (high - position):
        middle = 0.5 * (low + high)
        if effective(middle) >= _LEAST_EFFECTIVE:
            low = middle
        else:
            high = middle
    return high


def annealed_weights(
    path: TemperingPath, population: Annealing, positions: FloatArray, *, clock: Clock = NO_LIMIT
) -> FloatArray:
    """Log-weights (N,) of annealed importance sampling (Neal, 2001): the mean of their exponentials is Z_1 / Z_0.

    A fresh population of exact draws makes a sweep at each of the ascending positions. Those that the clock leaves no
    time for are skipped, which costs tightness but no validity.
    """
    coefficients, k = path.coefficients(positions), 0
    last = len(coefficients) - 1
    while k < last:
        passed = clock.used() / clock.limit if clock.limit is not None else 0.0
        k = min(last, max(k + 1, int(passed * last)))
        population.move(coefficients[k])
    return population.log_weights


def respace(positions: FloatArray, rejection: FloatArray, num_rungs: int | None) -> tuple[FloatArray, IntArray]:
    """Positions at which all exchanges would be rejected equally often, and the old rung closest to each.

    The cumulative rejection rate is a function Lambda of the position, hardly depending on the ladder it was measured
    on, and rungs go to equal steps of it; as many as it takes for the rate 1/2 if their number is None.
    """
    barrier = np.concatenate([[0.0], np.cumsum(np.maximum(rejection, _LEAST_RATE))])
    count = min(MOST_RUNGS, max(2, math.ceil(barrier[-1] / REJECTION - 1e-9) + 1)) if num_rungs is None else num_rungs
    levels = np.linspace(0.0, barrier[-1], count)
    new = np.interp(levels, barrier, positions)
    new[0], new[-1] = positions[0], positions[-1]
    source = np.abs(barrier[None, :] - levels[:, None]).argmin(axis=1)
    return new, source
