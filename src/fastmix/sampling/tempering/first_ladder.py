"""The first ladder of a run of replica exchange: where its rungs are, and what its replicas start from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray
from fastmix._context import Context
from fastmix.sampling.starts import random_states
from fastmix.sampling.tempering import rungs
from fastmix.sampling.tempering.capacity import Capacity
from fastmix.sampling.tuning import FIRST_LADDER_SWEEPS, LADDER_SHARE, MIN_ENSEMBLES, REJECTION

__all__ = ["FirstLadder", "place_first_ladder"]


@dataclass(frozen=True, eq=False)
class FirstLadder:
    """Rungs to begin with."""

    positions: FloatArray  # (K,), from 0 to 1
    states: NDArray[np.uint8]  # (K, ladders, n), configurations of the replicas
    num_ensembles: int
    sweep_seconds: float  # of one configuration, as annealing measured it; 0 where nothing was annealed


def place_first_ladder(capacity: Capacity, context: Context) -> FirstLadder:
    """Rungs where annealing finds that exchanges are rejected half of the time, and the configurations that it leaves.

    Where there is no time to anneal they are the two ends of the path, with random configurations.
    """
    ladder = capacity.ladder
    plan = capacity.plan
    size = capacity.first_configurations()
    sweep_seconds = 0.0
    if capacity.has_time_to_anneal(size):
        positions, states, sweep_seconds = _annealed(capacity, size, context)
    else:
        size = max(MIN_ENSEMBLES, plan.num_ensembles or 0) * ladder.per_ensemble
        positions, states = _ends_only(capacity, size, context)
    num_ensembles = capacity.ensembles_of(len(positions), size, sweep_seconds)
    stacked = np.stack([configurations[: num_ensembles * ladder.per_ensemble] for configurations in states])
    if plan.num_replicas is not None and plan.num_replicas != len(positions):
        equal = np.full(len(positions) - 1, REJECTION)
        positions, source = rungs.respace(positions, equal, plan.num_replicas)
        stacked = stacked[source]
    return FirstLadder(positions, stacked, num_ensembles, sweep_seconds)


def _annealed(capacity: Capacity, size: int, context: Context) -> tuple[FloatArray, list[NDArray[np.uint8]], float]:
    """Positions, as many as there is time for, the configurations (size, n) that annealing leaves at each, and seconds.

    The seconds are those of a sweep of one configuration.
    """
    path = capacity.ladder.path
    clock = capacity.clock
    population = rungs.start_population(path, size, context.within("first ladder"), clock=clock.part(LADDER_SHARE))
    begin = clock.used()
    is_late = False

    def stop(num_moves: int) -> bool:
        nonlocal is_late
        seconds_each = (clock.used() - begin) / (size * FIRST_LADDER_SWEEPS * max(1, num_moves))
        is_late = clock.past(LADDER_SHARE) or num_moves + 2 >= capacity.rungs_in_time(seconds_each)
        return is_late

    positions, states = rungs.annealed_rungs(
        path, population, num_sweeps=FIRST_LADDER_SWEEPS, max_rungs=capacity.max_rungs, stop=stop
    )
    last_sweeps = 1 if is_late else FIRST_LADDER_SWEEPS
    num_sweeps = FIRST_LADDER_SWEEPS * (len(positions) - 2) + last_sweeps
    return positions, states, (clock.used() - begin) / (size * num_sweeps)


def _ends_only(capacity: Capacity, size: int, context: Context) -> tuple[FloatArray, list[NDArray[np.uint8]]]:
    """The two ends of the path, with random configurations (size, n) at each."""
    limited = capacity.clock.part(0.1)
    states = random_states(capacity.ladder.path.model, 2 * size, context.rng("starts"), limited).astype(np.uint8)
    return np.array([0.0, 1.0]), [states[:size], states[size:]]
