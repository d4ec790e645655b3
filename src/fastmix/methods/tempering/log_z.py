"""Log Z from a ladder: bridges between successive rungs, and a stochastic lower bound."""

from __future__ import annotations

import math

import numpy as np

from fastmix._arrays import FloatArray

__all__ = ["bridge", "guess_steps", "lower_bound"]

_SHARES = (0.125, 0.25, 0.5, 0.75, 0.875)  # of the weights, those above which the bound looks at


def bridge(sums: FloatArray, shifts: FloatArray) -> tuple[float, float]:
    """Log of ``Z_K / Z_1`` by Bennett's acceptance ratio between successive rungs, and its error by the jackknife.

    For ``D = w_{k+1} - w_k``, the difference of the log-weights, any number s, and ``f(z) = 1 / (1 + exp(-z))``,

        Z_{k+1} / Z_k = exp(s) E_k[f(D - s)] / E_{k+1}[f(s - D)],

    with the least variance (for independent draws) where s is the answer itself (C. H. Bennett, J. Comput. Phys. 22,
    1976). ``sums`` (6, K - 1, E) are what exchanges of E independent ensembles added up
    (:class:`fastmix.chains.base.Exchanges`), with the numbers s of ``shifts`` (K - 1,).
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

    By Markov's inequality ``P(w >= Z / a) <= a`` for each weight, so that the number of weights that large is at most
    binomial: if a is chosen such that m or more out of N happen with probability d, then
    ``log Z >= log w_(m) + log a`` with probability at least 1 - d for the m-th largest weight. The same inequality for
    the mean gives ``log Z >= log mean(w) + log d``. The best of several m and the mean is taken, with the error
    probability shared between them.
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
