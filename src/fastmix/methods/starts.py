"""Where chains begin: at random, and at configurations of large weight that random starts would hardly lead to."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix.errors import UnfitMethodError
from fastmix.methods.preparation import find_allowed
from fastmix.model import MarkovRandomField
from fastmix.results import best_states

__all__ = [
    "check_starts", "dispersed_states", "find_modes", "finite_arrays", "random_states",
    "remembered_sweeps", "starts_matter",
]  # fmt: skip

_MOST_MODES = 16
_MOST_CONSTANT = 32  # states that all variables are started in together
_MOST_SWEEPS = 100  # of a descent, which mostly ends after ten
_LEAST_OVERLAP = 0.5  # variables in which a mode must differ from the answer, for its chains to show anything
_WORK = 3e8  # table entries that all descents together may look at, if each made ten sweeps: about a second


def starts_matter(model: MarkovRandomField) -> bool:
    """Whether chains must start where nothing is forbidden.

    One sweep leads to where no pair is, but factors over more variables may forbid all that an update can choose from.
    """
    return bool(model.num_factors) and model.has_forbidden


def check_starts(model: MarkovRandomField) -> None:
    """Refuse a model for whose chains no start is found, as an :class:`UnfitMethodError`."""
    if starts_matter(model):
        random_states(model, 1, np.random.default_rng(0))


def random_states(model: MarkovRandomField, count: int, rng: np.random.Generator, clock: Clock = NO_LIMIT) -> IntArray:
    """Configurations (count, n) at random among those that the unaries allow.

    Uniformly, but where starts matter those that are forbidden are replaced by allowed ones near them, after the limit
    of the clock by those found so far. An :class:`fastmix.errors.ImpossibleModelError` where the search shows that
    there are none.
    """
    states = _uniform_states(model, count, rng)
    if starts_matter(model):
        allowed = np.atleast_1d(model.log_weight(states)) > -np.inf
        for k in np.flatnonzero(~allowed):
            if clock.past() and allowed[:k].any():
                states[k] = states[rng.choice(np.flatnonzero(allowed[:k]))]
                continue
            scores = rng.random(len(model.log_unary))
            scores[model.unary_offsets[:-1] + states[k]] += 1.0
            found = find_allowed(model, scores)
            if found is None:
                raise UnfitMethodError(
                    "chains cannot start: the search for a configuration of positive probability was given up; use "
                    "exact inference or loopy belief propagation"
                )
            states[k], allowed[k] = found, True
    return states


def _uniform_states(model: MarkovRandomField, count: int, rng: np.random.Generator) -> IntArray:
    starts = model.unary_offsets[:-1]
    allowed = np.flatnonzero(model.log_unary > -np.inf)
    first = np.searchsorted(allowed, starts)
    choices = np.diff(np.append(first, len(allowed)))
    drawn = np.floor(rng.random((count, model.num_variables)) * choices).astype(np.int64)
    return np.asarray(allowed[first + drawn] - starts)


def find_modes(model: MarkovRandomField, *, seed: int, count: int = _MOST_MODES, clock: Clock = NO_LIMIT) -> IntArray:
    """Local maxima of the weight, (at most count, n): the largest first, then each far from those before.

    Single variables are set to their best states, given the others, until nothing changes. That begins at the
    *hopeful* configuration, in which every variable, in breadth-first order, takes the state that is best beside those
    of the neighbors before it, if all others agree with it; at the best states of the unaries; at all variables in the
    same state; and at random configurations. From the best of what these lead to it begins again at the hopeful
    configuration without the states taken so far, which is where the opposite of an ordered phase is found.

    All are different and of positive weight; there may be none if pairs are forbidden, and fewer than ``count`` when
    descents meet, would take more than a second, or when the limit of the clock is past.
    """
    n = model.num_variables
    work = 10.0 * (len(model.log_unary) + 2.0 * len(model.log_pairwise) + 3.0 * len(model.log_factors))
    most = int(min(2 * count + _MOST_CONSTANT, _WORK / max(1.0, work)))
    if not n or not model.num_edges or most < 1 or count < 1 or clock.past():
        return np.zeros((0, n), dtype=np.int64)
    from fastmix.methods.mode_kernels import descend, hopeful

    arrays, free = finite_arrays(model), np.ones(len(model.log_unary), dtype=np.bool_)

    def hope() -> IntArray:
        states = np.zeros(n, dtype=np.int64)
        hopeful(states, free, *arrays)
        return states

    def extend(found: IntArray, states: IntArray) -> tuple[IntArray, FloatArray]:
        """What was found and what descents from some states lead to, all different, with their log-weights."""
        for k in range(len(states)):
            descend(states[k : k + 1], *arrays, _MOST_SWEEPS)
            if clock.past():
                states = states[: k + 1]
                break
        # As np.unique with an axis, which takes seconds for a million variables: bytes sort as the numbers do.
        rows = {row.astype(">u4").tobytes(): row for row in (*found, *states)}
        found = np.array([rows[key] for key in sorted(rows)])
        weights = np.atleast_1d(model.log_weight(found))
        return found[weights > -np.inf], weights[weights > -np.inf]

    starts = [hope(), best_states(model, model.log_unary)]
    constants = range(min(int(model.num_states.max()), _MOST_CONSTANT, most // 2))
    starts += [np.minimum(k, model.num_states - 1) for k in constants]
    random = _uniform_states(model, max(0, min(count, most - len(starts))), np.random.default_rng([seed, 4]))
    found, weights = extend(np.zeros((0, n), dtype=np.int64), np.array([*starts[:most], *random]))
    for _ in range(min(3, int(model.num_states.max()) - 1, most)):
        if not len(found) or clock.past():
            break
        taken = model.unary_offsets[:-1] + found[weights.argmax()]
        free[taken] = np.add.reduceat(free, model.unary_offsets[:-1], dtype=np.int64) == 1  # one must be left
        found, weights = extend(found, hope()[None])
    # The largest, then each time the one that differs most from all that were taken, the larger of equals.
    found = found[np.argsort(-weights, kind="stable")]
    distance = np.full(len(found), n + 1)
    chosen: list[int] = []
    while len(chosen) < min(count, len(found)):
        chosen.append(int(distance.argmax()))
        distance = np.minimum(distance, (found != found[chosen[-1]]).sum(axis=1))
    return found[chosen]


def dispersed_states(
    model: MarkovRandomField, count: int, modes: IntArray, rng: np.random.Generator, clock: Clock = NO_LIMIT
) -> tuple[IntArray, IntArray]:
    """Configurations (count, n) to start chains from, at random but up to half at the first modes, and which are."""
    states = random_states(model, count, rng, clock)
    modes = modes[: count // 2]
    places = ((2 * np.arange(len(modes)) + 1) * count) // (2 * max(1, len(modes)))
    states[places] = modes
    return states, places


def remembered_sweeps(
    model: MarkovRandomField, modes: IntArray, burned: FloatArray, num_sweeps: int, mean: FloatArray
) -> float:
    """Sweeps for which chains that burnt in from modes (K, n) remembered these, the largest of all.

    The overlap of a chain with its mode is the number of variables in its states, beyond what the answer (``mean``)
    has. If it decays exponentially with time t, its average over the w sweeps of the burn-in (``burned``) is
    ``f = t / w (1 - exp(-w / t))`` of what it was, and ``t = w f (1 - f + f^2 / 2) / (1 - f)`` to 4 %.
    """
    longest = 0.0
    for k, mode in enumerate(modes):
        entries = model.unary_offsets[:-1] + mode
        largest = float((1.0 - mean[entries]).sum())
        if largest > _LEAST_OVERLAP:
            overlap = float((burned[entries, k] - mean[entries]).sum())
            longest = max(longest, overlap / largest)
    share = round(min(longest, 1.0), 6)  # the same to the last bit whenever the sums were taken
    return num_sweeps * share * (1.0 - share + 0.5 * share * share) / (1.0 - share) if share < 1.0 else math.inf


def finite_arrays(model: MarkovRandomField) -> tuple[Any, ...]:
    """The arrays of a search, with a large penalty for -inf: a descent must tell bad from worse."""
    from fastmix.chains.layout import directed_arrays

    *rest, tables, unary_starts, unary, num_states = directed_arrays(model)
    if model.has_forbidden:
        penalty = -1e3 * (1.0 + max(np.abs(a[a > -np.inf]).max(initial=0.0) for a in (tables, unary)))
        tables, unary = np.maximum(tables, penalty), np.maximum(unary, penalty)
    return (*rest, tables, unary_starts, unary, num_states, model.structure.incident)
