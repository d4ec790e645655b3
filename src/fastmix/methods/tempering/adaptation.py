"""Ladders with equal rejection rates (Syed, Bouchard-Côté, Deligiannidis and Doucet, 2022)."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from fastmix._arrays import FloatArray, IntArray

__all__ = ["num_rungs_for", "phases", "respace"]

REJECTION = 0.5  # the best rate when the replicas of a ladder run one after another: K = 2 Lambda + 1 rungs
_LEAST_RATE = 1e-3  # of two rungs that always exchange: keeps the barrier strictly increasing
_FIRST_PHASE = 16


def num_rungs_for(barrier: float) -> int:
    """Rungs of a ladder with a communication barrier, so that exchanges are rejected at the rate 1/2.

    Non-reversible exchange makes a round trip in ``2 + 2 K r / (1 - r)`` rounds for a rate r = Lambda / K, and a round
    costs K: the product is least at r = 1/2.
    """
    return max(2, math.ceil(barrier / REJECTION - 1e-9) + 1)


def respace(positions: FloatArray, rejection: FloatArray, num_rungs: int | None) -> tuple[FloatArray, IntArray, float]:
    """Positions at which all exchanges would be rejected equally often, the old rung closest to each, and Lambda.

    The cumulative rejection rate is a function Lambda of the position, hardly depending on the ladder it was measured
    on, and rungs go to equal steps of it; as many as :func:`num_rungs_for` says if their number is None.
    """
    barrier = np.concatenate([[0.0], np.cumsum(np.maximum(rejection, _LEAST_RATE))])
    count = num_rungs_for(float(barrier[-1])) if num_rungs is None else num_rungs
    levels = np.linspace(0.0, barrier[-1], count)
    new = np.interp(levels, barrier, positions)
    new[0], new[-1] = positions[0], positions[-1]
    source = np.abs(barrier[None, :] - levels[:, None]).argmin(axis=1)
    return new, source, float(np.sum(rejection))


def phases(burn_in: int) -> list[int]:
    """Rounds of the phases of a burn-in: the ladder is adapted after all but the last.

    They double in length, and the last one has at least half of the rounds.

    Examples
    --------
    >>> phases(1000)
    [16, 32, 64, 128, 256, 504]
    >>> phases(20)
    [20]
    """
    bounds = [0]
    length = _FIRST_PHASE
    while bounds[-1] + length <= burn_in // 2:
        bounds.append(bounds[-1] + length)
        length *= 2
    bounds.append(burn_in)
    return [b - a for a, b in pairwise(bounds)]
