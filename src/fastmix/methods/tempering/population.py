"""Independent configurations that move along a path together: the first ladder, and annealed importance sampling."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray
from fastmix.chains.annealing import Annealing
from fastmix.chains.base import Chains
from fastmix.methods.starts import random_states, starts_matter
from fastmix.methods.tempering.path import TemperingPath

__all__ = ["annealed_weights", "first_ladder", "next_position", "start_population"]

_HARD_SWEEPS = 20  # at the start of a path with forbidden pairs


def start_population(path: TemperingPath, chains: Chains, *, seed: int) -> Annealing:
    """Chains at the start of a path: exact draws.

    With forbidden pairs, configurations after some sweeps: the start of such a path is not known exactly.
    """
    population = Annealing(chains, path.thetas, path.coefficients([0.0])[0])
    if path.forbidden is None:
        # Without tables every update is a draw from the unary alone, so that one sweep leaves exact draws.
        chains.sweep(1)
        return population
    model, rng = path.model, np.random.default_rng([seed, 2])
    if starts_matter(model):
        chains.set_states(random_states(model, chains.num_chains, rng))
    else:
        chains.set_states(np.floor(rng.random((chains.num_chains, model.num_variables)) * model.num_states))
    chains.sweep(_HARD_SWEEPS)
    return population


def first_ladder(
    path: TemperingPath,
    population: Annealing,
    *,
    rejection: float,
    num_sweeps: int,
    most: int,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[FloatArray, list[NDArray[np.uint8]]]:
    """Positions along the path about as far apart as exchanges allow, and configurations (N, n) at each.

    Goes from the start of the path to its end, as far each time as exchanges would be rejected at the given rate, and
    makes ``num_sweeps`` sweeps there: a first ladder, whose replicas are roughly where they belong. Gives up after
    ``most`` positions, or when ``stop()`` says so, and goes to the end at once.
    """
    chains = population.chains
    positions, states = [0.0], [chains.get_states().astype(np.uint8)]
    while positions[-1] < 1.0:
        position = 1.0
        if len(positions) < most - 1 and not stop():
            position = next_position(path, positions[-1], chains.energies(), rejection=rejection)
        population.move(path.coefficients([position])[0], num_sweeps)
        positions.append(position)
        states.append(chains.get_states().astype(np.uint8))
    return np.array(positions), states


def next_position(path: TemperingPath, position: float, energies: FloatArray, *, rejection: float) -> float:
    """The furthest position to which exchanges from here would be rejected at about a given rate.

    When D, the difference of the log-weights, is normal with variance v at both ends, exchanges are rejected at the
    rate erf(sqrt(v) / 2), and the weights exp(D) have the relative effective sample size ``E[w]^2 / E[w^2] = exp(-v)``,
    which can be estimated from configurations at one end.
    """
    from scipy.special import erfinv

    least = math.exp(-((2.0 * float(erfinv(rejection))) ** 2))
    here = path.coefficients([position])[0]

    def effective(s: float) -> float:
        d = (path.coefficients([s])[0] - here) @ energies
        w = np.exp(d - d.max())
        return float(w.mean() ** 2 / np.mean(w * w))

    if effective(1.0) >= least:
        return 1.0
    low, high = position, 1.0
    # Strong models have their first rungs close to 0: halve until the step is known to a hundredth of itself.
    while high - low > 1e-2 * (high - position):
        middle = 0.5 * (low + high)
        if effective(middle) >= least:
            low = middle
        else:
            high = middle
    return high


def annealed_weights(
    path: TemperingPath, population: Annealing, positions: FloatArray, *, stop: Callable[[], bool] = lambda: False
) -> FloatArray:
    """Log-weights (N,) of annealed importance sampling (Neal, 2001): the mean of their exponentials is Z_1 / Z_0.

    A fresh population of exact draws makes a sweep at each of the ascending positions. Once ``stop()`` is true the rest
    is skipped in one step, which costs tightness but no validity.
    """
    coefficients = path.coefficients(positions)
    for there in coefficients[1:]:
        if stop():
            population.move(coefficients[-1])
            break
        population.move(there)
    return population.log_weights
