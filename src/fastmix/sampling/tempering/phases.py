"""Phases of a model: product distributions around configurations of large weight.

Replicas can miss a phase which a first-order transition separates from the others, and round trips do not tell. What is
known of it is a lower bound on log Z, at every position: replicas are started in it, and lower estimates are doubted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix.modes.descents import find_modes
from fastmix.sampling.tempering.ladder import TemperingPath
from fastmix.sampling.tuning import (
    MAX_PHASES,
    MEAN_FIELD_SWEEPS,
    MISSED_PHASE_MARGIN,
    PHASE_LADDERS,
    PHASE_ROUNDING,
    SAME_PHASE,
)
from fastmix.variational.ascent import ascend, expected_tables

__all__ = [
    "Phase", "enter_phases", "find_phases", "lower_bounds", "outweighing", "proven_bound", "spread_phases",
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class Phase:
    """A product distribution q."""

    mode: IntArray  # the configuration (n,) that q was found from
    log_weight: float  # of the mode, in the target of the path
    marginals: FloatArray  # of q, aligned with ``log_unary``
    energies: FloatArray  # the means of U and V under q
    entropy: float


def find_phases(path: TemperingPath, *, rng: np.random.Generator, clock: Clock = NO_LIMIT) -> list[Phase]:
    """The phases around the modes of the target, at most 8: mean field from each, the largest bound first.

    Where pairs are forbidden, or factors have more variables, the phases are the modes alone.
    """
    target = path.model
    phases: list[Phase] = []
    for mode in find_modes(target, rng=rng, count=MAX_PHASES, clock=clock.part(0.5)):
        if clock.past():
            break
        q = np.zeros(len(target.log_unary))
        q[target.unary_offsets[:-1] + mode] = 1.0
        log_weight = float(target.log_weight(mode))
        tables = float(log_weight - target.log_constant - q @ target.log_unary)
        if not path.forbidden and not target.num_factors:
            q = ascend(target, q, max_iter=MEAN_FIELD_SWEEPS, clock=clock)
            tables = expected_tables(target, q)
        positive = q[q > 0.0]
        energies = np.array([q @ target.log_unary, tables])
        phase = Phase(mode, log_weight, q, energies, float(-(positive @ np.log(positive))))
        if not any(abs(_height(path, phase) - _height(path, other)) < SAME_PHASE for other in phases):
            phases.append(phase)
    return sorted(phases, key=lambda phase: -_height(path, phase))


def _height(path: TemperingPath, phase: Phase) -> float:
    """The lower bound on log Z of the target that a phase gives."""
    return float(lower_bounds(path, [phase], np.ones(1))[0, 0])


def lower_bounds(path: TemperingPath, phases: list[Phase], positions: FloatArray) -> FloatArray:
    """``E_q[log-weight] + entropy(q)`` of every phase at every position, (phases, K): at most log Z there."""
    coefficients = path.coefficients(positions)
    bounds = [coefficients @ phase.energies + phase.entropy for phase in phases]
    return path.model.log_constant + np.array(bounds).reshape(len(phases), len(positions))


def proven_bound(path: TemperingPath, phases: list[Phase]) -> float | None:
    """The largest number that the phases prove log Z of the target to be at least; None without phases.

    That is the bound of one of them, or the log-weight of its mode, less what rounding may have added.
    """
    bounds = lower_bounds(path, phases, np.ones(1))[:, 0]
    proven = []
    for phase, bound in zip(phases, bounds.tolist(), strict=True):
        size = abs(path.model.log_constant) + float(np.abs(phase.energies).sum()) + phase.entropy
        proven.append(max(bound, phase.log_weight) - PHASE_ROUNDING * (1.0 + size))
    return max(proven, default=None)


def spread_phases(
    states: NDArray[np.uint8], path: TemperingPath, phases: list[Phase], rng: np.random.Generator
) -> None:
    """Start the highest rung of one ladder in four (K, C, n) in a phase, in place: they disagree if it stays."""
    if not phases:
        return
    for number, ladder in enumerate(range(0, states.shape[1] - PHASE_LADDERS + 1, PHASE_LADDERS)):
        states[-1, ladder] = _draw(path, phases[number % len(phases)], rng)


def enter_phases(
    states: NDArray[np.uint8],
    path: TemperingPath,
    positions: FloatArray,
    log_z: FloatArray,
    phases: list[Phase],
    rng: np.random.Generator,
) -> None:
    """Put replicas (K, C, n) of C ladders into phases that they have missed, in place.

    That is if the bound of one exceeds the estimate of log Z at the end of the path by more than 1. Ladders are then in
    a phase at the rungs where it outweighs the rest: with the probability that its bound has beside the estimate.
    """
    bounds = lower_bounds(path, phases, positions)
    if not phases or bounds[:, -1].max() <= log_z[-1] + MISSED_PHASE_MARGIN:
        return
    odds = np.exp(np.minimum(bounds - log_z, 700.0))
    below = np.cumsum(odds / (1.0 + odds.sum(axis=0)), axis=0)  # (phases, K)
    num_ladders = states.shape[1]
    levels = (rng.permutation(num_ladders) + rng.random()) / num_ladders  # evenly spread over the ladders
    for ladder, level in enumerate(levels):
        for rung in np.flatnonzero(below[-1] > level):
            phase = phases[int(np.searchsorted(below[:, rung], level, side="right"))]
            states[rung, ladder] = _draw(path, phase, rng)


def _draw(path: TemperingPath, phase: Phase, rng: np.random.Generator) -> IntArray:
    """A configuration (n,) from q."""
    model = path.model
    total = np.cumsum(phase.marginals)
    starts = model.unary_offsets[:-1]
    level = np.repeat(rng.random(model.num_variables) + np.concatenate([[0.0], total])[starts], model.num_states)
    passed = (total <= level) & (phase.marginals >= 0.0)
    drawn = np.add.reduceat(passed.astype(np.int64), starts)
    return np.minimum(drawn, model.num_states - 1)


def outweighing(path: TemperingPath, phases: list[Phase], log_z: float, margin: float) -> tuple[Phase, float] | None:
    """The phase of the largest bound on log Z, with its bound, if that exceeds an estimate by more than a margin."""
    if not phases:
        return None
    bounds = np.maximum(lower_bounds(path, phases, np.ones(1))[:, 0], [phase.log_weight for phase in phases])
    best = int(bounds.argmax())
    exceeds = math.isfinite(log_z) and bounds[best] > log_z + margin
    return (phases[best], float(bounds[best])) if exceeds else None
