"""Where the rungs of a ladder are (Syed, Bouchard-Côté, Deligiannidis and Doucet, 2022), and log Z from them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix.chains.annealing import Annealing
from fastmix.chains.cpu import CpuChains
from fastmix.methods.starts import random_states
from fastmix.methods.tempering.ladder import TemperingPath

__all__ = [
    "MOST_RUNGS", "REJECTION", "annealed_weights", "bridge", "first_ladder", "guess_steps", "lower_bound",
    "next_position", "respace", "start_population",
]  # fmt: skip

MOST_RUNGS = 10_000
# The best rate when the replicas of a ladder run one after another, K = 2 Lambda + 1 rungs: non-reversible exchange
# makes a round trip in 2 + 2 K r / (1 - r) rounds for a rate r = Lambda / K, and a round costs K.
REJECTION = 0.5
# When D, the difference of the log-weights, is normal with variance v at both ends, exchanges are rejected at the rate
# erf(sqrt(v) / 2), and the weights exp(D) have the relative effective sample size E[w]^2 / E[w^2] = exp(-v).
_LEAST_EFFECTIVE = 0.4026  # exp(-v) at a rate of 1/2
_LEAST_RATE = 1e-3  # of two rungs that always exchange: keeps the barrier strictly increasing
_SHARES = (0.125, 0.25, 0.5, 0.75, 0.875)  # of the weights, those above which the bound on log Z looks at
_HARD_SWEEPS = 20  # at the start of a path with forbidden pairs


def start_population(path: TemperingPath, size: int, *, seed: int) -> Annealing:
    """Chains at the start of a path: exact draws, but with forbidden pairs what some sweeps make of random states."""
    structure, forbidden = path.model.structure, path.forbidden
    chains = CpuChains(structure, num_chains=size, seed=seed, num_threads=1, forbidden=forbidden, steady=False)
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
    """Positions along the path about as far apart as exchanges allow, and configurations (N, n) that annealing leaves.

    After ``most`` positions it goes to the end at once; with a single sweep there when ``stop()`` says so.
    """
    chains = population.chains
    positions, states = [0.0], [chains.get_states().astype(np.uint8)]
    while positions[-1] < 1.0:
        position = 1.0
        late = stop()
        if len(positions) < most - 1 and not late:
            position = next_position(path, positions[-1], chains.energies())
        population.move(path.coefficients([position])[0], 1 if late else num_sweeps)
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

    Of the ascending positions those that the clock leaves no time for are skipped, which costs tightness, not validity.
    """
    coefficients, k = path.coefficients(positions), 0
    last = len(coefficients) - 1
    while k < last:
        # A limit that nobody asked for sets no pace: the same seed gives the same weights while it is not passed.
        passed = float(clock.past())
        if clock.asked:  # 0 where the time was over before
            passed = clock.used() / clock.asked
        elif clock.asked is not None:
            passed = 1.0
        k = min(last, max(k + 1, int(passed * last)))
        population.move(coefficients[k])
    return population.log_weights


def respace(positions: FloatArray, rejection: FloatArray, num_rungs: int | None) -> tuple[FloatArray, IntArray]:
    """Positions at which all exchanges would be rejected equally often, and the old rung closest to each.

    The cumulative rejection rate hardly depends on the ladder it was measured on, and rungs go to equal steps of it; as
    many as it takes for the rate 1/2 if their number is None.
    """
    barrier = np.concatenate([[0.0], np.cumsum(np.maximum(rejection, _LEAST_RATE))])
    count = min(MOST_RUNGS, max(2, math.ceil(barrier[-1] / REJECTION - 1e-9) + 1)) if num_rungs is None else num_rungs
    levels = np.linspace(0.0, barrier[-1], count)
    new = np.interp(levels, barrier, positions)
    new[0], new[-1] = positions[0], positions[-1]
    source = np.abs(barrier[None, :] - levels[:, None]).argmin(axis=1)
    return new, source


def bridge(sums: FloatArray, shifts: FloatArray) -> tuple[float, float]:
    """Log of ``Z_K / Z_1`` by Bennett's acceptance ratio between successive rungs, and its error by the jackknife.

    ``Z_{k+1} / Z_k = exp(s) E_k[f(D - s)] / E_{k+1}[f(s - D)]`` for any number s of ``shifts`` (K - 1,), with the least
    variance where s is the answer itself; ``sums`` (6, K - 1, E) over E independent ensembles, D and f are those of
    :class:`fastmix.chains.base.Exchanges`.
    """
    count = sums.shape[2]
    whole = sums.sum(axis=2)
    value = float((shifts + _log_ratio(whole[4], whole[5])).sum())
    std_error = math.inf
    if count > 1:
        with np.errstate(invalid="ignore"):
            parts = whole[:, :, None] - sums  # without one ensemble each
            left_out = (shifts[:, None] + _log_ratio(parts[4], parts[5])).sum(axis=0)
            spread = float(np.sum((left_out - left_out.mean()) ** 2))
        std_error = math.sqrt((count - 1) / count * spread) if math.isfinite(spread) else math.inf
    return value, std_error


def guess_steps(sums: FloatArray, shifts: FloatArray) -> FloatArray:
    """Log-ratios between successive rungs (K - 1,) that are safe to aim at, however bad the shifts were so far.

    Far off, the acceptance ratio is 0 or 1 and its logarithm useless; the averages of D at both ends bracket the truth.
    """
    whole = sums.sum(axis=2)
    below, above = whole[2:4] / np.maximum(whole[0], 1.0)
    steps = np.nan_to_num(shifts + _log_ratio(whole[4], whole[5]), nan=np.inf)
    return np.clip(steps, np.minimum(below, above), np.maximum(below, above))


def lower_bound(log_weights: FloatArray, confidence: float) -> float:
    """A number that is at most log Z with the given confidence, from independent weights with ``E[w] = Z``.

    By Markov's inequality ``P(w >= Z / a) <= a`` for each weight: if a is such that m or more out of N happen with
    probability d, then ``log Z >= log w_(m) + log a`` with probability at least 1 - d for the m-th largest weight, and
    ``log Z >= log mean(w) + log d``. The best of several m and the mean is taken, which share the error probability.
    """
    from scipy.special import betaincinv

    count = len(log_weights)
    top = float(log_weights.max())
    each = (1.0 - confidence) / (1 + len(_SHARES))
    best = top + math.log(np.mean(np.exp(log_weights - top))) + math.log(each)
    descending = np.sort(log_weights)[::-1]
    for share in _SHARES:
        m = max(1, math.ceil(share * count))
        best = max(best, float(descending[m - 1]) + math.log(float(betaincinv(m, count - m + 1, each))))
    return best


def _log_ratio(up: FloatArray, down: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(up) - np.log(down)
