"""Where the rungs of a ladder are (Syed, Bouchard-Côté, Deligiannidis and Doucet, 2022), and log Z from them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix._context import Context
from fastmix.chains.annealing import Annealing
from fastmix.chains.cpu import CpuChains
from fastmix.sampling.starts import random_states
from fastmix.sampling.tempering.ladder import TemperingPath
from fastmix.sampling.tuning import FORBIDDEN_START_SWEEPS, LEAST_REJECTION, MAX_RUNGS, REJECTION, WEIGHT_SHARES

__all__ = [
    "annealed_rungs", "annealed_weights", "bridge", "guess_steps", "log_ratios", "lower_bound", "next_position", "pin",
    "respace", "start_population",
]  # fmt: skip

# When D, the difference of the log-weights, is normal with variance v at both ends, exchanges are rejected at the rate
# erf(sqrt(v) / 2), and the weights exp(D) have the relative effective sample size E[w]^2 / E[w^2] = exp(-v).
_LEAST_EFFECTIVE = 0.4026  # exp(-v) at a rate of 1/2
_PINNED_SHARE = 0.25  # of a step: the steps beside it then grow to 1.25 at most


def start_population(path: TemperingPath, size: int, context: Context, *, clock: Clock = NO_LIMIT) -> Annealing:
    """Chains at the start of a path, to be annealed along it.

    They are exact draws, but with forbidden pairs what some sweeps make of random states. These sweeps end with the
    limit of the clock; the context is that of this population alone.
    """
    chains = CpuChains(
        path.model.structure,
        num_chains=size,
        seed=context.seed_of("population"),
        num_threads=1,
        forbidden=path.forbidden,
        steady=False,
        layout=path.layout,
    )
    population = Annealing(chains, path.thetas, path.coefficients([0.0])[0], tables=path.tables)
    # Without unaries and tables all configurations are alike, and random states are exact draws.
    chains.set_states(random_states(path.model, chains.num_chains, context.rng("starts"), clock))
    for _ in range(FORBIDDEN_START_SWEEPS if path.forbidden else 0):
        if clock.past():
            break
        chains.sweep(1)
    return population


def annealed_rungs(
    path: TemperingPath,
    population: Annealing,
    *,
    num_sweeps: int,
    max_rungs: int,
    stop: Callable[[int], bool] = lambda num_moves: False,  # noqa: ARG005
) -> tuple[FloatArray, list[NDArray[np.uint8]]]:
    """Positions along the path as far apart as exchanges allow, and the configurations (N, n) of annealing at each.

    The last but one of ``max_rungs`` positions is followed by the end of the path at once; so is any position at which
    ``stop``, which is asked with the number of moves so far, says so, and then with a single sweep there.
    """
    chains = population.chains
    positions = [0.0]
    states = [chains.get_states().astype(np.uint8)]
    while positions[-1] < 1.0:
        position = 1.0
        late = stop(len(positions) - 1)
        if len(positions) < max_rungs - 1 and not late:
            position = next_position(path, positions[-1], chains.energies())
        population.move(path.coefficients([position])[0], 1 if late else num_sweeps)
        positions.append(position)
        states.append(chains.get_states().astype(np.uint8))
    return np.array(positions), states


def next_position(path: TemperingPath, position: float, energies: FloatArray) -> float:
    """The furthest position to which exchanges from here would be rejected at a rate of about 1/2."""
    here = path.coefficients([position])[0]

    def effective(s: float) -> float:
        """Relative effective sample size of the configurations here for the model at s."""
        difference = (path.coefficients([s])[0] - here) @ energies
        weights = np.exp(difference - difference.max())
        return float(weights.mean() ** 2 / np.mean(weights * weights))

    if effective(1.0) >= _LEAST_EFFECTIVE:
        return 1.0
    low = position
    high = 1.0
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
    coefficients = path.coefficients(positions)
    last = len(coefficients) - 1
    k = 0
    while k < last:
        # A limit that nobody asked for sets no pace: the same seed gives the same weights while it is not passed.
        if clock.asked is None:
            passed = float(clock.past())
        elif clock.asked > 0.0:
            passed = clock.used() / clock.asked
        else:  # the time was over before
            passed = 1.0
        k = min(last, max(k + 1, int(passed * last)))
        population.move(coefficients[k])
    return population.log_weights


def respace(positions: FloatArray, rejection: FloatArray, num_rungs: int | None) -> tuple[FloatArray, IntArray]:
    """New positions at which all exchanges would be rejected equally often, and the old rung closest to each.

    The cumulative rejection rate hardly depends on the ladder it was measured on, and rungs go to equal steps of it; as
    many as it takes for the rate 1/2 if their number is None.
    """
    barrier = np.concatenate([[0.0], np.cumsum(np.maximum(rejection, LEAST_REJECTION))])
    if num_rungs is None:
        num_rungs = min(MAX_RUNGS, max(2, math.ceil(barrier[-1] / REJECTION - 1e-9) + 1))
    levels = np.linspace(0.0, barrier[-1], num_rungs)
    new = np.interp(levels, barrier, positions)
    new[0] = positions[0]
    new[-1] = positions[-1]
    source = np.abs(barrier[None, :] - levels[:, None]).argmin(axis=1)
    return new, source


def pin(positions: FloatArray, source: IntArray, pinned: FloatArray, old: FloatArray) -> tuple[FloatArray, IntArray]:
    """Positions with others added that must be among them, and the old rung that each starts from.

    A rung that is within a quarter of a step of one that is added makes room for it, the two ends excepted.
    """
    wanted = np.setdiff1d(pinned, positions)
    last = len(positions) - 1
    places = np.interp(wanted, positions, np.arange(last + 1.0))
    nearest = np.rint(places).astype(np.int64)
    makes_room = (nearest > 0) & (nearest < last) & (np.abs(places - nearest) <= _PINNED_SHARE)
    makes_room &= ~np.isin(positions[nearest], pinned)
    kept = np.ones(last + 1, dtype=bool)
    kept[nearest[makes_room]] = False
    closest = np.abs(old[None, :] - wanted[:, None]).argmin(axis=1)
    merged = np.concatenate([positions[kept], wanted])
    order = np.argsort(merged)
    return merged[order], np.concatenate([source[kept], closest])[order]


def bridge(sums: FloatArray, shifts: FloatArray) -> tuple[float, float]:
    """Log of ``Z_K / Z_1`` by Bennett's acceptance ratio between successive rungs, and its error by the jackknife.

    ``Z_{k+1} / Z_k = exp(s) E_k[f(D - s)] / E_{k+1}[f(s - D)]`` for any number s of ``shifts`` (K - 1,), with the least
    variance where s is the answer itself; ``sums`` (6, K - 1, E) over E independent ensembles, D and f are those of
    :class:`fastmix.chains.base.Exchanges`.
    """
    count = sums.shape[2]
    whole = sums.sum(axis=2)
    value = float((shifts + log_ratios(whole[4], whole[5])).sum())
    std_error = math.inf
    if count > 1:
        with np.errstate(invalid="ignore"):
            parts = whole[:, :, None] - sums  # without one ensemble each
            left_out = (shifts[:, None] + log_ratios(parts[4], parts[5])).sum(axis=0)
            spread = float(np.sum((left_out - left_out.mean()) ** 2))
        std_error = math.sqrt((count - 1) / count * spread) if math.isfinite(spread) else math.inf
    return value, std_error


def guess_steps(sums: FloatArray, shifts: FloatArray) -> FloatArray:
    """Log-ratios between successive rungs (K - 1,) that are safe to aim at, however bad the shifts were so far.

    Far off, the acceptance ratio is 0 or 1 and its logarithm useless; the averages of D at both ends bracket the truth.
    """
    whole = sums.sum(axis=2)
    below, above = whole[2:4] / np.maximum(whole[0], 1.0)
    steps = np.nan_to_num(shifts + log_ratios(whole[4], whole[5]), nan=np.inf)
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
    each = (1.0 - confidence) / (1 + len(WEIGHT_SHARES))
    best = top + math.log(np.mean(np.exp(log_weights - top))) + math.log(each)
    descending = np.sort(log_weights)[::-1]
    for share in WEIGHT_SHARES:
        m = max(1, math.ceil(share * count))
        best = max(best, float(descending[m - 1]) + math.log(float(betaincinv(m, count - m + 1, each))))
    return best


def log_ratios(up: FloatArray, down: FloatArray) -> FloatArray:
    """Logarithms of the ratios of two averages, by which Bennett's estimate differs from the shifts."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(up) - np.log(down)
