"""Populations of chains on the way from independent variables to a model."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

import numpy as np

from fastmix._arrays import FloatArray
from fastmix._clock import Ending
from fastmix._context import Context
from fastmix._student import student_factor
from fastmix.chains.annealing import Annealing
from fastmix.chains.base import Chains
from fastmix.chains.cpu import CpuChains
from fastmix.model import MarkovRandomField
from fastmix.model.attractive import is_attractive
from fastmix.sampling.clusters import ClusterChains
from fastmix.sampling.starts import random_states
from fastmix.sampling.tuning import (
    ANNEAL_BATCH_UPDATES,
    ANNEAL_END_SWEEPS,
    ANNEALING_SHARE,
    COLLECTING_SHARE,
    ENERGY_LOOK_SHARE,
    ENERGY_LOOKS,
    FORBIDDEN_START_SWEEPS,
    LARGEST_STEP,
    MAX_ANNEALING_STEPS,
    UNSEEN,
)

__all__ = ["Populations"]


class Populations:
    """Populations of chains whose couplings are scaled: by 0 for independent variables, by 1 for the model.

    Attributes
    ----------
    engine : Chains
        The chains of all populations, population by population: Swendsen-Wang sweeps of an attractive model, Gibbs
        sweeps of any other.
    annealing : Annealing
        Moves the chains from one scale to the next and keeps the weights of the populations.
    scale : float
        What the couplings are multiplied by at present.
    steps, sweeps : int
        Steps of annealing so far, and sweeps of every chain.
    updates : int
        Updates of single variables that a sweep of all chains makes.
    variance : float
        Variance of the energy of the couplings within a population, averaged over the latest looks at it.
    """

    def __init__(self, model: MarkovRandomField, num_populations: int, num_chains: int, context: Context) -> None:
        self.model = model
        self.shape = (num_populations, num_chains)
        self.clock = context.clock
        self.rng = context.rng("resampling")
        self.scale = 0.0 if _couples(model) else 1.0
        self.steps = 0
        self.sweeps = 0
        all_chains = num_populations * num_chains
        self.updates = all_chains * model.num_variables
        self.engine = _make_chains(model, all_chains, context)
        split = len(model.log_unary)
        tables = model.shared_tables
        parameters = model.parameters if tables is None else model.weight_parameters
        thetas = np.zeros((2, len(parameters)))  # unaries, which stay as they are, and couplings
        thetas[0, :split] = parameters[:split]
        thetas[1, split:] = parameters[split:]
        self.annealing = Annealing(self.engine, thetas, [1.0, self.scale], populations=num_populations, tables=tables)
        self._paces: deque[float] = deque(maxlen=5)  # seconds per sweep, lately
        self._find_starts(context)
        self.variance = 0.0
        self._look_at_energies()

    def _find_starts(self, context: Context) -> None:
        """Start chains that are not there yet: from allowed states, and where pairs are forbidden from sweeps of them.

        Without forbidden pairs the next sweep, of independent variables, makes exact draws of anything.
        """
        if isinstance(self.engine, ClusterChains) or not self.model.num_variables:
            return
        self.engine.set_states(random_states(self.model, self.engine.num_chains, context.rng("starts"), self.clock))
        for _ in range(FORBIDDEN_START_SWEEPS if self.model.has_forbidden else 0):
            if self.clock.past(ENERGY_LOOK_SHARE):
                break
            self._time(lambda: self.engine.sweep(1))

    def _look_at_energies(self) -> None:
        """Find the variance of the energy before the first step, from independent draws.

        The length of a step follows from configurations that came before those that it weighs: otherwise those that
        weigh more would have shorter steps, and count less. So a last sweep comes after the last look.
        """
        looks = 0
        while _couples(self.model) and looks < ENERGY_LOOKS:
            if looks and self.clock.past(ENERGY_LOOK_SHARE):
                break
            self._time(lambda: self.engine.sweep(1))
            looks += 1
            self.variance += (self._energy_variance() - self.variance) / looks
        self._time(lambda: self.engine.sweep(1))

    def _energy_variance(self) -> float:
        """Variance of the energy of the couplings within a population, averaged over the populations."""
        energies = self.engine.energies()[1].reshape(self.shape)
        return float(energies.var(axis=1, ddof=1).mean())

    def _time(self, sweep: Callable[[], None], num_sweeps: int = 1) -> None:
        """Make sweeps, and note the seconds that each of them took."""
        begin = self.clock.used()
        sweep()
        self._paces.append((self.clock.used() - begin) / num_sweeps)

    def pace(self) -> float:
        """Seconds per sweep: the lower median of the latest, so that one stalled sweep does not change the result."""
        return sorted(self._paces)[(len(self._paces) - 1) // 2]

    @property
    def knows_start(self) -> bool:
        """Whether the normalizer of the first model is known: unless pairs are forbidden, which no scale changes."""
        return isinstance(self.engine, ClusterChains) or not self.model.has_forbidden

    def log_z(self) -> tuple[float, float]:
        """Estimate of log Z of the model, and its standard error from the differences between the populations."""
        ratio = self.annealing.log_ratio
        count = self.shape[0]
        variance = float(self.annealing.log_variance.mean())
        error = max(variance / count, student_factor(count - 1) ** 2 * float(ratio.var(ddof=1)) / count)
        error += (0.5 * variance) ** 2  # by which logarithms of means of few chains fall short
        if _couples(self.model):  # what all chains together may have missed: each is one look at the model
            error += (UNSEEN / (count * self.shape[1] + UNSEEN)) ** 2
        mean = float(np.logaddexp.reduce(ratio)) - math.log(count)
        unary = np.logaddexp.reduceat(self.model.log_unary, self.model.unary_offsets[:-1])
        return self.model.log_constant + float(unary.sum()) + mean, math.sqrt(error)

    def log_weights(self) -> FloatArray:
        """Log-weights of the configurations of all chains in the model itself."""
        return np.asarray(self.engine.energies().sum(axis=0) + self.model.log_constant)

    def strengthen(self, step: float, num_sweeps: int, *, resample: bool) -> bool:
        """Move to stronger couplings, resample the chains of every population by their weights, and sweep.

        ``step`` is the standard deviation that the logarithms of the weights are to have. Returns whether the time
        asked for fewer sweeps or a larger step: averages need chains at the model itself.
        """
        spread = math.sqrt(self.variance)
        remaining = 1.0 - self.scale
        wanted = max(step / spread, 1.0 / MAX_ANNEALING_STEPS) if spread > 0 else math.inf
        move = min(LARGEST_STEP, remaining, wanted)
        steps = remaining / move
        limit = self.clock.limit
        is_late = False
        if limit is not None:
            end = min(ANNEALING_SHARE * limit, limit - ANNEAL_END_SWEEPS * self.pace())
            affordable = max(0.0, end - self.clock.used()) / max(self.pace(), 1e-9)
            is_late = affordable < steps * num_sweeps
            if is_late:
                num_sweeps = max(1, int(affordable / steps))
                move = min(remaining, max(move, remaining / max(1.0, affordable)))
        self.scale = 1.0 if remaining - move < 1e-9 else self.scale + move
        self.steps += 1
        self.variance += (self._energy_variance() - self.variance) / ENERGY_LOOKS
        rng = self.rng if resample else None
        self._time(lambda: self.annealing.move([1.0, self.scale], num_sweeps, rng=rng), num_sweeps)
        self.sweeps += num_sweeps
        return is_late

    def collect(self, num_sweeps: int) -> tuple[FloatArray, int, str]:
        """Sums of the probabilities over sweeps at the model itself, how many there were, and what ended them."""
        batch = max(1, min(num_sweeps // 20, int(ANNEAL_BATCH_UPDATES / max(1, self.updates))))
        total = self.sweeps + num_sweeps
        sums = np.zeros(0)
        done = 0
        with Ending() as ending:
            while done < num_sweeps:
                count = min(batch, num_sweeps - done)
                self.engine.sweep(count, collect=True)
                latest = self.engine.take_sums()
                sums = latest + sums if done else latest
                done += count
                self.sweeps += count
                speed = self.sweeps * self.updates / max(self.clock.used(), 1e-9)
                self.clock.report(self.sweeps, total, "sweeps", per_second=speed)
                if self.clock.past(COLLECTING_SHARE) or self.clock.left() < ANNEAL_END_SWEEPS * self.pace():
                    break
        if ending.interrupted:
            return sums, done, "interrupt"
        return sums, done, "done" if done == num_sweeps else "time_limit"


def _couples(model: MarkovRandomField) -> bool:
    """Whether the model has tables over several variables."""
    return bool(model.num_edges or model.num_factors)


def _make_chains(model: MarkovRandomField, num_chains: int, context: Context) -> Chains:
    """Cluster chains of an attractive model, and chains of single updates of any other."""
    seed = context.seed_of("chains")
    if is_attractive(model):
        return ClusterChains(model, num_chains=num_chains, seed=seed, num_threads=context.num_threads)
    return CpuChains(
        model.structure,
        num_chains=num_chains,
        seed=seed,
        num_threads=context.num_threads,
        forbidden=model.has_forbidden,
        steady=False,
    )
