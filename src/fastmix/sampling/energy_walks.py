"""Chains that walk through all energies between independent variables and the model, by weights that are learnt first.

At a first-order transition the energies between two phases are so improbable, at every scale of the tables, that
neither single chains nor replicas of any ladder cross them. Multicanonical chains (Berg and Neuhaus, Phys. Rev. Lett.
68, 1992) sample these energies as often as all others: their weights depend on the energy by a function G whose heights
are adapted until every energy is visited (Wang and Landau, Phys. Rev. Lett. 86, 2001, with the steps of Belardinelli
and Pereyra, Phys. Rev. E 75, 2007), and are then left alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import Clock
from fastmix._context import Context
from fastmix.chains.generator import make_streams
from fastmix.chains.layout import directed_arrays
from fastmix.chains.threads import Threads
from fastmix.model import MarkovRandomField
from fastmix.sampling.energy_kernels import sweep_energies
from fastmix.sampling.tuning import (
    ENERGY_ANNEALING_STEPS,
    ENERGY_ANNEALING_SWEEPS,
    ENERGY_BLOCK_UPDATES,
    ENERGY_FIRST_STEP,
    ENERGY_KNOTS_PER_DEVIATION,
    ENERGY_LAST_STEP,
    ENERGY_LEAST_BLOCK,
    ENERGY_LEAST_VISITS,
    MAX_ENERGY_KNOTS,
)

__all__ = ["Collected", "EnergyWeights", "Walkers", "first_weights", "independent_states", "learn_weights"]


@dataclass(frozen=True, eq=False)
class EnergyWeights:
    """The function G of the energy by which chains are weighted, given at equally spaced knots.

    It is linear between the heights, constant below the first knot and of slope 1 above the last, plus the correction
    of the nearest knot.
    """

    low: float  # the energy of the first knot
    width: float  # the distance of two knots
    heights: FloatArray  # (knots,)
    corrections: FloatArray  # (knots,)

    @property
    def shape(self) -> tuple[float, float, FloatArray, FloatArray]:
        """What kernels read."""
        return self.low, self.width, self.heights, self.corrections

    @property
    def high(self) -> float:
        """The energy of the last knot."""
        return self.low + self.width * (len(self.heights) - 1)

    def at(self, energies: FloatArray) -> FloatArray:
        """G at some energies."""
        places = (np.asarray(energies) - self.low) / self.width
        last = len(self.heights) - 1
        nearest = np.clip(np.ceil(places - 0.5), 0, last).astype(np.int64)
        heights = np.interp(places, np.arange(last + 1), self.heights)
        return np.asarray(heights + self.corrections[nearest] + np.maximum(energies - self.high, 0.0))

    @property
    def top(self) -> float:
        """A number that ``E - G(E)`` does not exceed: it is largest at a knot, or half way to the next one."""
        halves = np.array([-0.5, 0.0, 0.5])
        places = np.arange(len(self.heights))[:, None] + halves
        energies = self.low + self.width * places
        heights = np.interp(places, np.arange(len(self.heights)), self.heights)
        return float((energies - heights - self.corrections[:, None]).max())

    @classmethod
    def linear(cls, low: float, width: float, heights: FloatArray) -> EnergyWeights:
        """Weights without corrections."""
        return cls(low, width, heights, np.zeros(len(heights)))

    @classmethod
    def straight(cls, scale: float, reach: float) -> EnergyWeights:
        """The weights of one scale of the tables, at all energies up to ``reach`` in size."""
        return cls.linear(-reach, 2.0 * reach, np.array([-reach * scale, reach * scale]))


@dataclass(eq=False)
class Walkers:
    """Chains side by side, each with its own random numbers."""

    model: MarkovRandomField
    states: IntArray  # (walkers, n)
    seed: int
    num_threads: int
    streams: np.ndarray = field(init=False)  # (walkers, 4)

    def __post_init__(self) -> None:
        self.streams = np.ascontiguousarray(make_streams(self.seed, 0, len(self.states)).T)
        self._graph = directed_arrays(self.model)
        self._threads = Threads(self.num_threads)
        self.updates = 0
        #: The largest energy that a configuration can have, in size, and 1 more.
        self.reach = 1.0 + float(np.maximum(-self.model.least_of_tables(), self.model.largest_of_tables()).sum())

    def __len__(self) -> int:
        return len(self.states)

    def block_of(self, wanted: int) -> int:
        """The number of sweeps, at most as many as wanted, that are made between two looks at the clock."""
        size = max(1, self.model.num_variables) * len(self)
        return max(1, min(wanted, int(ENERGY_BLOCK_UPDATES / size)))

    def walk(self, weights: EnergyWeights, num_sweeps: int, clock: Clock) -> FloatArray:
        """The energies (walkers, sweeps) after each of some sweeps by fixed weights.

        Raises :class:`fastmix._clock.OutOfTimeError` where the time is over before.
        """
        parts = []
        made = 0
        while made < num_sweeps:
            clock.check()
            size = self.block_of(num_sweeps - made)
            parts.append(self.collect(weights, size, [Collected.nothing() for _ in self.states]))
            made += size
        return np.concatenate(parts, axis=1)

    def collect(self, weights: EnergyWeights, num_sweeps: int, collected: Sequence[Collected]) -> FloatArray:
        """The energies (walkers, sweeps) of sweeps by fixed weights; what walkers meet is added to ``collected``."""
        energies = np.empty((len(self), num_sweeps))
        top = weights.top
        tasks = [partial(self._walk_one, w, weights, energies[w], collected[w], top) for w in range(len(self))]
        updates = num_sweeps * self.model.num_variables * len(self)
        self._threads.run(tasks, updates)
        self.updates += updates
        return energies

    def _walk_one(
        self, walker: int, weights: EnergyWeights, energies: FloatArray, collected: Collected, top: float
    ) -> None:
        """Let one walker go as many sweeps as there is place for energies."""
        collected.total = sweep_energies(
            self.states[walker], self._graph, weights.shape, 0.0,
            np.zeros(len(weights.heights), dtype=np.int64), self.streams[walker], energies, collected.sums,
            collected.kept, collected.total, top,
        )  # fmt: skip

    def adapt(self, weights: EnergyWeights, num_sweeps: int, step: float, visits: IntArray) -> None:
        """Sweep, one walker after another, and lower the weights of the energies that they visit, in place."""
        nothing = Collected.nothing()
        energies = np.empty(num_sweeps)
        for walker in range(len(self)):
            sweep_energies(
                self.states[walker], self._graph, weights.shape, step, visits,
                self.streams[walker], energies, nothing.sums, nothing.kept, 0.0, 0.0,
            )  # fmt: skip
        self.updates += num_sweeps * self.model.num_variables * len(self)


@dataclass(eq=False)
class Collected:
    """Sums over the configurations that a walker met, each by how much more probable the model makes it."""

    sums: FloatArray  # (entries of log_unary,), of the states; empty where nothing is collected
    kept: IntArray  # (n,), one of the configurations, drawn by these weights
    total: float = 0.0

    @classmethod
    def nothing(cls) -> Collected:
        """Sums of no states."""
        return cls(np.zeros(0), np.zeros(0, dtype=np.int64))

    @classmethod
    def of(cls, model: MarkovRandomField) -> Collected:
        """Sums of the states of a model that are still empty."""
        return cls(np.zeros(len(model.log_unary)), np.zeros(model.num_variables, dtype=np.int64))

    def joined(self, other: Collected, uniform: float) -> Collected:
        """The sums of both, and one of their configurations, chosen by a uniform number as their weights say."""
        total = self.total + other.total
        kept = self.kept if uniform * total < self.total else other.kept
        return Collected(self.sums + other.sums, kept, total)


def independent_states(model: MarkovRandomField, count: int, rng: np.random.Generator) -> IntArray:
    """Configurations (count, n) of independent variables, which follow the unaries alone."""
    states = np.zeros((count, model.num_variables), dtype=np.int64)
    for num_states in np.unique(model.num_states).tolist():
        members = np.flatnonzero(model.num_states == num_states)
        logs = model.log_unary[model.unary_offsets[members][:, None] + np.arange(num_states)]
        noise = rng.gumbel(size=(count, *logs.shape))
        states[:, members] = (logs + noise).argmax(axis=-1)
    return states


def first_weights(walkers: Walkers, modes: IntArray, context: Context) -> EnergyWeights:
    """Weights from what canonical chains meet at scales from 0 to 1 and back.

    Raises :class:`fastmix._clock.OutOfTimeError` where the time is over before.

    1. The walkers start from independent variables; their tables grow from nothing to those of the model.
    2. Chains from known configurations of large weight go the same way back.
    3. The scale at an energy is the mean of the scales at which the two met it: between two phases it is constant.
    """
    clock = context.clock
    model = walkers.model
    walkers.states[:] = independent_states(model, len(walkers), context.rng("independent"))
    energies = walkers.walk(EnergyWeights.straight(0.0, walkers.reach), ENERGY_ANNEALING_SWEEPS, clock)
    low = float(energies.mean())
    deviation = float(energies.std())
    scales = np.linspace(0.0, 1.0, ENERGY_ANNEALING_STEPS + 1)

    # 1.
    upward = _mean_energies(walkers, scales, clock)
    ended = walkers.states.copy()
    # 2.
    downward = upward
    if len(modes):
        walkers.states[:] = modes[np.arange(len(walkers)) % len(modes)]
        downward = _mean_energies(walkers, scales[::-1], clock)[::-1]
    # Half of the walkers go on from either end.
    walkers.states[::2] = ended[::2]

    # 3.
    high = float(max(upward[-1], downward[-1]))
    if high - low <= 1e-9 * (1.0 + abs(low)) or deviation == 0.0:
        return EnergyWeights.linear(low, 1.0, np.zeros(1))
    num_knots = 1 + int(np.clip(ENERGY_KNOTS_PER_DEVIATION * (high - low) / deviation, 1, MAX_ENERGY_KNOTS))
    knots = np.linspace(low, high, num_knots)
    slopes = 0.5 * (_scale_at(knots, upward, scales) + _scale_at(knots, downward, scales))
    width = knots[1] - knots[0]
    heights = np.concatenate([[0.0], np.cumsum(0.5 * (slopes[1:] + slopes[:-1]) * width)])
    return EnergyWeights.linear(low, float(width), heights)


def _mean_energies(walkers: Walkers, scales: FloatArray, clock: Clock) -> FloatArray:
    """The mean energy at each scale, one after another, over the second half of a few sweeps."""
    means = np.zeros(len(scales))
    for number, scale in enumerate(scales.tolist()):
        clock.report(number, len(scales), "scales")
        energies = walkers.walk(EnergyWeights.straight(scale, walkers.reach), ENERGY_ANNEALING_SWEEPS, clock)
        means[number] = energies[:, ENERGY_ANNEALING_SWEEPS // 2 :].mean()
    return means


def _scale_at(energies: FloatArray, means: FloatArray, scales: FloatArray) -> FloatArray:
    """The scales at which a run of canonical chains met these energies."""
    rising = np.maximum.accumulate(means)
    distinct = np.concatenate([[True], np.diff(rising) > 0.0])
    return np.interp(energies, rising[distinct], scales[distinct])


def learn_weights(walkers: Walkers, weights: EnergyWeights, clock: Clock) -> bool:
    """Adapt the corrections until all energies are visited alike; returns whether that was reached in time.

    The corrections of the energies that walkers visit sink by a step. It is halved whenever all knots that were ever
    met, among them one of the first and one of the last two, have been visited, and then falls in proportion to the
    time, which lets them converge. Energies near a knot may not exist.
    """
    num_knots = len(weights.heights)
    if num_knots == 1:
        return True
    step = ENERGY_FIRST_STEP
    per_walker = -(-4 * num_knots // len(walkers))
    block = walkers.block_of(max(per_walker, ENERGY_LEAST_BLOCK // walkers.model.num_variables))
    visits = np.zeros(num_knots, dtype=np.int64)
    before = visits.copy()  # when the step was last halved
    while step > ENERGY_LAST_STEP and not clock.past():
        walkers.adapt(weights, block, step, visits)
        met = visits > 0
        weights.corrections[met] -= weights.corrections[met].max()
        since = (visits - before)[met]
        both_ends = met[:2].any() and met[-2:].any()
        if both_ends and since.min() >= max(1.0, ENERGY_LEAST_VISITS * since.mean()):
            step *= 0.5
            before = visits.copy()
        slowest = num_knots / int(visits.sum())
        if step < slowest:
            step = min(slowest, ENERGY_FIRST_STEP)
        done = math.log(ENERGY_FIRST_STEP / step) / math.log(ENERGY_FIRST_STEP / ENERGY_LAST_STEP)
        clock.report(min(100, int(100.0 * done)), 100, "percent of learning")
    known = np.flatnonzero(visits)
    if len(known):
        weights.corrections[:] = np.interp(np.arange(num_knots), known, weights.corrections[known])
    return step <= ENERGY_LAST_STEP
