"""What a run over all energies tells: averages at any scale of the tables, phases, and the transition between them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray
from fastmix._checks import as_number
from fastmix.estimates import Estimate
from fastmix.sampling.energy_walks import EnergyWeights
from fastmix.sampling.tuning import LEAST_BARRIER

__all__ = ["EnergyPhase", "EnergySeries", "EnergyTransition"]

_BISECTIONS = 60  # of a scale, down to rounding
_SCALES = 50  # at which a barrier is looked for


@dataclass(frozen=True)
class EnergyPhase:
    """One of the peaks of the density of energies at some scale of the tables."""

    mass: Estimate  #: the probability of being in it
    energy: Estimate  #: the mean energy in it


@dataclass(frozen=True)
class EnergyTransition:
    """The scale of the tables at which two phases, apart in energy, are equally probable."""

    scale: Estimate  #: 1 is the model itself
    latent_heat: Estimate  #: the difference of the mean energies of the phases
    energies: tuple[Estimate, Estimate]  #: of the phase of lower weight, and of the other one
    barrier: float  #: nats by which the density of energies sinks between the phases, there


@dataclass(frozen=True, eq=False)
class EnergySeries:
    """Energies of walkers, sweep by sweep, and the weights by which they were sampled.

    The energy is the sum of the table entries of a configuration, each table less what depends on one variable alone:
    larger is more probable. ``p_s(x) ~ exp(sum_i u_i(x_i) + s E(x))`` is the model at scale s, so that s stands for the
    inverse temperature where there are no fields. Estimates have standard errors by the jackknife over the walkers.
    """

    energies: FloatArray  # (walkers, sweeps)
    weights: EnergyWeights
    log_z_start: float  # log Z of independent variables, at scale 0
    run: str  # the name by which estimates of one run know each other

    @cached_property
    def _logs(self) -> FloatArray:
        """G at the energies."""
        return self.weights.at(self.energies)

    # -- averages at a scale -------------------------------------------------------------------------------------------

    def log_z(self, scale: float = 1.0) -> Estimate:
        """Log Z at a scale of the energy; what tables say of one variable alone, or of none, is not scaled."""
        start = self._sums(0.0)
        end = self._sums(scale)
        return self._jackknife(lambda kept: self.log_z_start + _log_total(end, kept) - _log_total(start, kept))

    def mean(self, function: Callable[[FloatArray], FloatArray], scale: float = 1.0) -> Estimate:
        """The mean of a function of the energy at a scale of the tables."""
        return self._ratio(np.ones_like(self.energies), function(self.energies), scale)

    def energy(self, scale: float = 1.0) -> Estimate:
        """The mean energy at a scale of the tables."""
        return self.mean(lambda energies: energies, scale)

    def variance(self, scale: float = 1.0) -> Estimate:
        """The variance of the energy at a scale of the tables: the specific heat, but for factors."""
        middle = self.energy(scale)
        center = float(middle.value)
        square = self.mean(lambda energies: (energies - center) ** 2, scale)
        return square - (middle - center) ** 2

    def _sums(self, scale: float, values: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
        """For each walker a logarithm, and the sum of ``exp(s E - G)`` times the values over the exponential of it."""
        logs = as_number("scale", scale) * self.energies - self._logs
        largest = logs.max(axis=1)
        weights = np.exp(logs - largest[:, None])
        return largest, (weights if values is None else weights * values).sum(axis=1)

    def _ratio(self, members: FloatArray, values: FloatArray, scale: float) -> Estimate:
        """The mean of values over the sweeps that count as members, at a scale of the tables."""
        shifts, totals = self._sums(scale, members)
        _, sums = self._sums(scale, members * values)

        def ratio(kept: NDArray[np.bool_]) -> float:
            shares = np.exp(shifts[kept] - shifts[kept].max())
            total = float(shares @ totals[kept])
            return float(shares @ sums[kept]) / total if total > 0.0 else np.nan

        return self._jackknife(ratio)

    def _jackknife(self, function: Callable[[NDArray[np.bool_]], float]) -> Estimate:
        """An estimate from a function of the walkers that are kept; its error is NaN where one of them has all."""
        count = len(self.energies)
        whole = function(np.ones(count, dtype=bool))
        left_out = np.array([function(np.arange(count) != walker) for walker in range(count)])
        if not np.isfinite(left_out).all():
            return Estimate(whole, np.nan)
        # Groups whose mean is the value, and of whom each is missing from one of the values without it.
        return Estimate.from_groups(whole + (count - 1) * (left_out.mean() - left_out), run=self.run)

    # -- phases --------------------------------------------------------------------------------------------------------

    def log_density(self, scale: float = 1.0) -> tuple[FloatArray, FloatArray]:
        """Equally spaced energies, and the log-density of the energy there at a scale, up to a constant.

        The density is smoothed by a normal kernel as wide as knots are apart, which is the standard deviation of the
        energy of independent variables, or as the largest gap between energies that occur, so that these do not look
        like phases.
        """
        bins, logs = self._bins
        width = self._smoothing
        count = 1 + math.ceil((bins[-1] - bins[0]) / (0.5 * width))
        places = np.linspace(bins[0], bins[-1], count)
        distances = (places[:, None] - bins) / width
        terms = logs + as_number("scale", scale) * bins - 0.5 * distances**2
        return places, np.logaddexp.reduce(terms, axis=1)

    @cached_property
    def _smoothing(self) -> float:
        """The standard deviation of the kernel that densities are smoothed with."""
        return max(self.weights.width, float(np.diff(self._bins[0]).max(initial=0.0)))

    @cached_property
    def _bins(self) -> tuple[FloatArray, FloatArray]:
        """The mean energy of each bin that was met, a quarter as wide as knots are apart, and log-sums of exp(-G)."""
        energies = self.energies.reshape(-1)
        logs = self._logs.reshape(-1)
        numbers = np.floor((energies - energies.min()) / (0.25 * self.weights.width))
        distinct, place, counts = np.unique(numbers, return_inverse=True, return_counts=True)
        # Relative to the least of each bin, so that no exponential is out of range.
        least = np.full(len(distinct), np.inf)
        np.minimum.at(least, place, logs)
        sums = np.bincount(place, np.exp(least[place] - logs))
        return np.bincount(place, energies) / counts, np.log(sums) - least

    def _barrier(self, scale: float) -> tuple[float, float]:
        """Nats by which the density sinks between its two peaks at a scale, and the energy where it is lowest."""
        centers, logs = self.log_density(scale)
        before = np.maximum.accumulate(logs)
        after = np.maximum.accumulate(logs[::-1])[::-1]
        depths = np.minimum(before, after) - logs
        deepest = int(depths.argmax())
        return float(depths[deepest]), float(centers[deepest])

    def phases(self, scale: float = 1.0) -> list[EnergyPhase]:
        """The phases at a scale, that of lower energy first: two where the density has two peaks, otherwise one."""
        depth, split = self._barrier(as_number("scale", scale))
        everywhere = np.ones_like(self.energies)
        if depth < LEAST_BARRIER:
            return [EnergyPhase(self.mean(np.ones_like, scale), self.energy(scale))]
        found = []
        for members in (self.energies < split, self.energies >= split):
            inside = members.astype(np.float64)
            mass = self._ratio(everywhere, inside, scale)
            found.append(EnergyPhase(mass, self._ratio(inside, self.energies, scale)))
        return found

    def transition(self) -> EnergyTransition | None:
        """The transition between two phases at a scale from 0 to 1; None where no density has two peaks.

        1. Find the scale at which the density sinks most between two peaks, and the energy where it is lowest.
        2. Find the scale at which both sides of this energy are equally probable, for all walkers and without each.
        """
        # 1.
        scales = np.linspace(0.0, 1.0, _SCALES + 1)
        depths = [self._barrier(scale) for scale in scales.tolist()]
        depth, split = max(depths)
        if depth < LEAST_BARRIER:
            return None
        is_above = self.energies >= split

        # 2.
        whole = self._balanced_scale(is_above, np.ones(len(self.energies), dtype=bool))
        if not 0.0 <= whole <= 1.0:
            return None
        scale = self._jackknife(lambda kept: self._balanced_scale(is_above, kept))
        below = self._jackknife(lambda kept: self._energy_beside(~is_above, is_above, kept))
        above = self._jackknife(lambda kept: self._energy_beside(is_above, is_above, kept))
        return EnergyTransition(scale, above - below, (below, above), self._barrier(whole)[0])

    def _energy_beside(self, side: NDArray[np.bool_], is_above: NDArray[np.bool_], kept: NDArray[np.bool_]) -> float:
        """The mean energy on one side, at the scale at which both sides are equally probable for some walkers."""
        logs = self._balanced_scale(is_above, kept) * self.energies[kept] - self._logs[kept]
        chosen = side[kept]
        if not chosen.any():
            return np.nan
        shares = np.exp(logs[chosen] - logs[chosen].max())
        return float(shares @ self.energies[kept][chosen] / shares.sum())

    def _balanced_scale(self, is_above: NDArray[np.bool_], kept: NDArray[np.bool_]) -> float:
        """The scale from -1 to 2 at which energies above and below are equally probable, by bisection."""
        energies = self.energies[kept]
        logs = self._logs[kept]
        is_above = is_above[kept]
        least = -1.0
        most = 2.0
        for _ in range(_BISECTIONS):
            middle = 0.5 * (least + most)
            tilted = middle * energies - logs
            shares = np.exp(tilted - tilted.max())
            if shares[is_above].sum() > shares[~is_above].sum():
                most = middle
            else:
                least = middle
        return 0.5 * (least + most)


def _log_total(sums: tuple[FloatArray, FloatArray], kept: NDArray[np.bool_]) -> float:
    """The logarithm of the sum over the walkers that are kept."""
    shifts, totals = sums
    top = float(shifts[kept].max())
    return top + float(np.log((np.exp(shifts[kept] - top) * totals[kept]).sum()))
