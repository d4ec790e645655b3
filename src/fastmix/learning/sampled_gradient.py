"""The gradient of a likelihood by chains: moments of the model, and of the data where too much is missing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray
from fastmix._clock import Clock
from fastmix.learning.clamped import ClampedChains
from fastmix.learning.data_moments import DataTerm
from fastmix.learning.dataset import Dataset
from fastmix.learning.newton import energy_axis
from fastmix.learning.penalty import Penalty
from fastmix.learning.persistent import MakeChains, PersistentChains, autocorrelations, correlation, start_chains
from fastmix.learning.scaling import Scaling
from fastmix.learning.tuning import (
    BURN_IN_GROWTH,
    FIRST_BURN_IN,
    FIRST_SWEEPS,
    LAGS,
    LARGE_MODEL_CONTRASTS,
    LARGE_MODEL_SWEEPS,
    MANY_CHAINS,
    MAX_BURN_IN,
    MAX_HESSIAN_NUMBERS,
    MAX_HESSIAN_ROWS,
    NOT_MIXED,
    ROWS_PER_PARAMETER,
    STALE_REJECTION,
)
from fastmix.model import MarkovRandomField
from fastmix.theory.bias import bias_after

__all__ = ["Measurement", "SampledGradient", "SampledProblem"]


@dataclass(frozen=True, eq=False)
class SampledProblem:
    """A likelihood whose moments have to be sampled, with its penalties.

    ``certified`` models stay in a set in which chains provably mix fast, so that the bias of all moments is bounded.
    """

    template: MarkovRandomField
    data: Dataset
    data_term: DataTerm
    scaling: Scaling
    penalty: Penalty
    certified: bool = False


@dataclass(frozen=True, eq=False)
class Measurement:
    """What one round of sweeps tells at a point: the gradient from either half, and configurations for the Hessian."""

    halves: list[FloatArray]
    difference: FloatArray  # moments of the model less those of the data
    snapshots: list[NDArray[Any]]

    @property
    def gradient(self) -> FloatArray:
        """The gradient, from both halves."""
        return 0.5 * (self.halves[0] + self.halves[1])

    @property
    def half_difference(self) -> FloatArray:
        """Half of what the halves differ by: the noise in the gradient."""
        return 0.5 * (self.halves[0] - self.halves[1])


class SampledGradient:
    """Chains that follow the parameters, and the gradients that they give.

    Attributes
    ----------
    length : int
        Sweeps of a round.
    confirmed : bool
        Whether the last round promised as little as is asked for; gradients are then compared between chains.
    mixed, lost : bool, int
        Whether the chains followed the parameters in the last round, and rounds in a row in which they did not.
    slow : float
        Correlation from one end of the round to the other, in the slowest direction.
    bias : float or None
        Bound on the bias of every moment, of certified models.
    correlations : dict
        Of the energies with what they were some sweeps before the round.
    """

    _carried = ("burn_in", "mixed", "bias", "correlations", "lost", "slow", "length", "confirmed")

    def __init__(
        self, problem: SampledProblem, make: MakeChains, num_chains: int, rng: np.random.Generator, clock: Clock
    ) -> None:
        self.problem = problem
        self.clock = clock
        self.coordinates = problem.scaling.coordinates
        self.chains = PersistentChains(problem.template, problem.data, make, num_chains, clock)
        self.clamped: ClampedChains | None = None
        rows = problem.data_term.beyond
        if len(rows):
            data = problem.data
            self.clamped = ClampedChains(self.coordinates, data.states[rows], data.weights[rows], rng)
            self.clamped.clock = clock
        self._rng = rng
        is_large = self.coordinates.num_contrasts > LARGE_MODEL_CONTRASTS and num_chains <= MANY_CHAINS
        self.length = LARGE_MODEL_SWEEPS if is_large else FIRST_SWEEPS
        self.burn_in = FIRST_BURN_IN
        self.confirmed = False
        self.mixed = True
        self.lost = 0
        self.slow = 0.0
        self.bias: float | None = None
        self.correlations: dict[int, float] = {}
        self._order = problem.template.structure.visit_order[0].astype(np.int64)

    def start(self) -> None:
        """Put the chains at rows of the data."""
        start_chains(self.chains.chains, self.problem.data, self.problem.template.num_states, self._rng)

    def pack(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """All that :meth:`restore` needs: arrays and plain data."""
        arrays, facts = self.chains.pack()
        facts |= {name: getattr(self, name) for name in self._carried}
        if self.clamped is not None:
            arrays["clamped states"] = self.clamped.get_states()
            arrays["clamped streams"] = self.clamped.get_random_state()
        return arrays, facts

    def restore(self, arrays: dict[str, NDArray[Any]], facts: dict[str, Any]) -> None:
        """Go on from what :meth:`pack` gave."""
        self.chains.restore(arrays, facts)
        for name in self._carried:
            setattr(self, name, facts[name])
        if self.clamped is not None:
            self.clamped.set_states(arrays["clamped states"])
            self.clamped.set_random_state(arrays["clamped streams"])

    @property
    def is_unclear(self) -> bool:
        """Whether a round was too short to tell if chains go from mode to mode."""
        return not self.problem.certified and self.slow > NOT_MIXED and self.length < LAGS[-1]

    # -- a round ------------------------------------------------------------------------------------------------------

    def measure(self, z: FloatArray, axis: FloatArray) -> Measurement:
        """Gradients at z from either half of the sweeps of a round.

        Where the last round promised little enough they are from either half of the chains: those that stay in a mode
        for a whole round do not show it by how its halves differ. ``axis`` is the direction in which configurations
        differ most: two modes far apart can have the same energies.
        """
        v = self.problem.scaling.to_v(z)
        theta = self.coordinates.to_parameters(v)
        slow_direction = self.coordinates.to_parameters(energy_axis(axis, self.coordinates.size))
        self.chains.load(theta)
        if self.problem.certified:
            self._bound_bias(theta)
            self.chains.sweep(self.burn_in)
        else:
            self._follow()
        observed, slowness_of_data = self._observe(v)
        before = self.chains.energies(slow_direction)
        begun = self.chains.num_sweeps
        sums, snapshots = self._sweep_round()
        if not self.problem.certified:
            self.slow = max(slowness_of_data, correlation(before, self.chains.energies(slow_direction)))
            if self.chains.num_sweeps - begun >= LAGS[-1] and self.slow > NOT_MIXED:
                self.mixed = False
            self.lost = 0 if self.mixed else self.lost + 1
        moments = [self.coordinates.from_gradient(total / self.length) for total in sums]
        differences = [half - given for half, given in zip(moments, observed, strict=True)]
        ridge = self.problem.penalty.ridge
        halves = [self.problem.scaling.pull(difference + ridge * v) for difference in differences]
        return Measurement(halves, 0.5 * (differences[0] + differences[1]), snapshots)

    def _sweep_round(self) -> tuple[FloatArray, list[NDArray[Any]]]:
        """Sums (2, P) of the moments after every sweep, and configurations from between them."""
        num_sweeps = self.length
        sums = np.zeros((2, self.problem.template.num_parameters))
        affordable = max(1, MAX_HESSIAN_NUMBERS // max(1, self.coordinates.num_contrasts))
        wanted = min(MAX_HESSIAN_ROWS, ROWS_PER_PARAMETER * self.coordinates.size, affordable)
        between = min(num_sweeps, max(1, num_sweeps * self.chains.num_chains // wanted))
        snapshots = []
        for k in range(num_sweeps):
            self.chains.sweep(1)
            if k % between == between - 1:
                snapshots.append(self.chains.chains.get_top_states().astype(np.int16))
            if self.confirmed:
                sums += self.chains.moments_of_halves()
            else:
                sums[2 * k // num_sweeps] += 2.0 * self.chains.moments()
            self.clock.check()
        return sums, snapshots

    def _observe(self, v: FloatArray) -> tuple[list[FloatArray], float]:
        """Moments of the data for either half of the sweeps, and how much chains given the data know afterwards."""
        exact = self.problem.data_term.evaluate(v)[1]
        if self.clamped is None:
            return [exact, exact], 0.0
        self.clamped.load_contrasts(v)
        self.clamped.sweep(self.burn_in if self.problem.certified else max([self.burn_in, *self.correlations]))
        # No more of them than it takes for as little noise, but enough to see whether they forget.
        equal = self.length * self.chains.num_chains / self.clamped.effective_size
        wanted = max(min(self.length, LAGS[-1]), equal)
        halves, slowness = self.clamped.measure(min(self.length, 2 * math.ceil(wanted / 2)))
        return [exact + half for half in halves], slowness

    def _follow(self) -> None:
        """Sweep until the energies are nearly independent of what they were before the parameters changed."""
        self.correlations, self.mixed = autocorrelations(self.chains.sweep, self.chains.energies, self.clock.check)
        if self.chains.is_tempered and self.chains.chains.exchanges().rejection.max() > STALE_REJECTION:
            self.chains.respace()

    def _bound_bias(self, theta: FloatArray) -> None:
        """Find a burn-in after which the bias of the gradient is below its Monte Carlo error, from any start.

        It is that of every moment, and where chains stand in for data, in which no variable depends more on the others,
        as much again.
        """
        model = self.problem.template.with_parameters(theta)
        i, j = model.edges.T
        error = 0.5 / math.sqrt(self.chains.num_chains * self.length)
        while True:
            bias = bias_after(model, self.burn_in, order=self._order)
            of_pairs = np.minimum(1.0, bias[i] + bias[j])
            self.bias = float(max(bias.max(initial=0.0), of_pairs.max(initial=0.0)))
            self.bias *= 1.0 if self.clamped is None else 1.0 + self.clamped.weight_share
            if self.bias <= error or self.burn_in >= MAX_BURN_IN:
                return
            self.burn_in = 1 + int(BURN_IN_GROWTH * self.burn_in)
