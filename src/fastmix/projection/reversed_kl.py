"""The reversed KL-divergence, from the projection to the model, estimated over a pool of chains."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastmix.construction import table_positions
from fastmix.model import PairwiseMRF
from fastmix.projection.divergence import Divergence, Objective
from fastmix.projection.feasible import FeasibleSet
from fastmix.projection.pool import Pool
from fastmix.projection.steps import DecreasingStep, StepRule, Trace
from fastmix.validation import check_count

__all__ = ["ReversedKL"]

FloatArray = NDArray[np.float64]

_START_SIZE = 0.1


@dataclass(frozen=True)
class ReversedKL(Divergence):
    """``KL(theta || psi)``, by sampling from theta, which mixes fast."""

    pool_size: int = 500
    sweeps_per_step: int = 1
    num_starts: int = 4
    start_steps: int = 20
    annealing_sweeps: int = 40
    population: int = 500
    pop_sweeps: int = 40

    def __post_init__(self) -> None:
        check_count("pool_size", self.pool_size, least=2)
        check_count("sweeps_per_step", self.sweeps_per_step, least=1)
        check_count("annealing_sweeps", self.annealing_sweeps, least=1)

    def start(self, model: PairwiseMRF, *, seed: int) -> Objective:
        """Estimates for one model, with chains of their own."""
        return PoolObjective(model, self, seed)

    @property
    def default_step(self) -> StepRule:
        """Decreasing steps."""
        return DecreasingStep(coordinates="fisher")


class PoolObjective(Objective):
    """Free energy and gradient estimated over chains that follow theta."""

    exact = False

    def __init__(self, model: PairwiseMRF, settings: ReversedKL, seed: int) -> None:
        self.psi = model
        self.seed = seed
        self.settings = settings
        self.pool = Pool(model, num_chains=settings.pool_size, seed=seed)
        self.target = model.parameters
        self._log_z = math.nan
        self._theta: FloatArray | None = None
        self.constant = -math.inf

    def first(self, theta: PairwiseMRF, feasible: FeasibleSet, trace: Trace) -> PairwiseMRF:
        best, lowest, chains = theta, math.inf, None
        for k in range(self.settings.num_starts):
            if k:
                big = Pool(self.psi, num_chains=self.settings.population, seed=self.seed + k)
                self.constant = max(self.constant, big.anneal_population(self.psi, self.settings.pop_sweeps))
                candidate = _match_marginals(theta, big.moments())
                self.pool.x[...] = big.x[:, np.random.default_rng(self.seed + k).permutation(self.settings.population)[:self.settings.pool_size]]
            else:
                candidate = theta
                self.pool.start(theta)
                self.pool.sweep(theta,10)
            for _ in range(self.settings.start_steps):
                self.pool.sweep(candidate)
                gradient = self._gradient(candidate)[1]
                candidate = feasible.step(candidate, gradient, _START_SIZE, "fisher", self.pool.moments())
            free_energy = self.value(candidate)
            if free_energy < lowest:
                best, lowest, chains = candidate, free_energy, (self.pool.x.copy(), self._theta, self._log_z, self.moments)
        if chains is not None:
            self.pool.x, self._theta, self._log_z, self.moments = chains
        return best

    def _gradient(self, theta):
        energies = self.pool.energies(theta.parameters - self.target)
        mean = float(energies.mean())
        gradient = self.pool.moments(energies - mean) * (len(energies) / (len(energies) - 1))
        return energies, gradient

    def evaluate(self, theta: PairwiseMRF) -> tuple[float, FloatArray]:
        """Estimates of the free energy and of the gradient ``Cov(f, (theta - psi) . f)``, after a sweep of the pool."""
        parameters = theta.parameters
        if self._theta is None:
            self._log_z = self.pool.anneal(theta, self.settings.annealing_sweeps)
        else:
            self.pool.sweep(theta, self.settings.sweeps_per_step)
        moments = self.pool.moments()
        if self._theta is not None:
            # d log Z = mu . d theta, by the trapezium rule.
            self._log_z += 0.5 * float((parameters - self._theta) @ (moments + self.moments))
        self._theta, self.moments = parameters, moments
        energies, gradient = self._gradient(theta)
        self.constant = max(self.constant, self._log_z + float(np.logaddexp.reduce(-energies)) - math.log(len(energies)))
        return float(energies.mean()) - self._log_z, gradient

    def value(self, theta: PairwiseMRF) -> float:
        """The free energy again, over fresh chains."""
        self._theta = None
        return self.evaluate(theta)[0]


def _match_marginals(theta: PairwiseMRF, moments: FloatArray, least: float = 0.01) -> PairwiseMRF:
    """The model with other unaries, which mean-field theory expects to have the given marginals."""
    split = len(theta.log_unary)
    marginals = np.maximum(moments[:split], least)
    table, row, col = table_positions(theta.num_states, theta.edges)
    first = theta.unary_offsets[theta.edges[table, 0]] + row
    second = theta.unary_offsets[theta.edges[table, 1]] + col
    fields = np.bincount(first, theta.log_pairwise * moments[second], split)
    fields += np.bincount(second, theta.log_pairwise * moments[first], split)
    return theta.replace(log_unary=np.log(marginals) - fields)
