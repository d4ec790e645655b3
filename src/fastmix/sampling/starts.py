"""Where chains begin: at random, and at configurations of large weight that random starts would hardly lead to."""

from __future__ import annotations

import math

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix.errors import UnfitMethodError
from fastmix.model import MarkovRandomField
from fastmix.modes.allowed import allowed_search
from fastmix.modes.descents import uniform_states
from fastmix.sampling.tuning import MIN_MODE_OVERLAP

__all__ = [
    "check_starts", "dispersed_states", "random_states", "remembered_sweeps", "starts_matter",
]  # fmt: skip


def starts_matter(model: MarkovRandomField) -> bool:
    """Whether chains must start at a configuration that is allowed, and not just anywhere.

    One sweep leads to where no pair is, but factors over more variables may forbid all that an update can choose from.
    """
    return bool(model.num_factors) and model.has_forbidden


def check_starts(model: MarkovRandomField) -> None:
    """Refuse a model for whose chains no start is found, as an :class:`UnfitMethodError`."""
    if starts_matter(model):
        random_states(model, 1, np.random.default_rng(0))


def random_states(model: MarkovRandomField, count: int, rng: np.random.Generator, clock: Clock = NO_LIMIT) -> IntArray:
    """Configurations (count, n) at random among those that the unaries allow.

    They are drawn uniformly, but where starts matter those that are forbidden are replaced by allowed ones near them,
    after the limit of the clock by those found so far. An :class:`fastmix.errors.ImpossibleModelError` where the search
    shows that there are none.
    """
    states = uniform_states(model, count, rng)
    if starts_matter(model):
        allowed = np.atleast_1d(model.log_weight(states)) > -np.inf
        search = None if allowed.all() else allowed_search(model)
        for k in np.flatnonzero(~allowed):
            if clock.past() and allowed[:k].any():
                states[k] = states[rng.choice(np.flatnonzero(allowed[:k]))]
                continue
            scores = rng.random(len(model.log_unary))
            scores[model.unary_offsets[:-1] + states[k]] += 1.0
            found = None if search is None else search(scores)
            if found is None:
                raise UnfitMethodError(
                    "chains cannot start: the search for a configuration of positive probability was given up; use "
                    "exact inference or loopy belief propagation"
                )
            states[k] = found
            allowed[k] = True
    return states


def dispersed_states(
    model: MarkovRandomField, count: int, modes: IntArray, rng: np.random.Generator, clock: Clock = NO_LIMIT
) -> tuple[IntArray, IntArray]:
    """Configurations (count, n) to start chains from, and which of them are modes: half of them at most."""
    states = random_states(model, count, rng, clock)
    modes = modes[: count // 2]
    places = ((2 * np.arange(len(modes)) + 1) * count) // (2 * max(1, len(modes)))
    states[places] = modes
    return states, places


def remembered_sweeps(
    model: MarkovRandomField, modes: IntArray, burned: FloatArray, num_sweeps: int, mean: FloatArray
) -> float:
    """Sweeps for which chains that burned in from modes (K, n) remembered these, the largest of all.

    The overlap of a chain with its mode is the number of variables in its states, beyond what the answer (``mean``)
    has. If it decays exponentially with time t, its average over the w sweeps of the burn-in (``burned``) is
    ``f = t / w (1 - exp(-w / t))`` of what it was, and ``t = w f (1 - f + f^2 / 2) / (1 - f)`` to 4 %.
    """
    longest = 0.0
    for k, mode in enumerate(modes):
        entries = model.unary_offsets[:-1] + mode
        largest = float((1.0 - mean[entries]).sum())
        if largest > MIN_MODE_OVERLAP:
            overlap = float((burned[entries, k] - mean[entries]).sum())
            longest = max(longest, overlap / largest)
    share = round(min(longest, 1.0), 6)  # the same to the last bit whenever the sums were taken
    return num_sweeps * share * (1.0 - share + 0.5 * share * share) / (1.0 - share) if share < 1.0 else math.inf
