"""What physicists measure along a ladder of temperatures, as estimates over the same blocks of draws."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix import _show
from fastmix._arrays import FloatArray
from fastmix._checks import as_float_array, as_list, check_count, describe
from fastmix.errors import UnfitMethodError
from fastmix.estimates import Estimate, check_function, jackknife, values_of
from fastmix.model import MarkovRandomField
from fastmix.sampling.tempering.reweighting import Reweighting
from fastmix.sampling.tempering.rung_draws import RungDraws
from fastmix.sampling.tuning import LEAST_EFFECTIVE_SHARE, LEAST_RUNG_OVERLAP, MAX_LADDERS_IN_PAIRS

__all__ = ["Observables"]

_CURVES = (
    "energy", "specific_heat", "entropy", "magnetization", "susceptibility", "binder", "overlap", "link_overlap",
)  # fmt: skip


class Observables:
    """Curves over temperatures from one run of replica exchange (:meth:`fastmix.TemperedResult.observables`).

    Every curve is an :class:`fastmix.Estimate` with an entry for each of ``temperatures``, to be calculated with: all
    come from the same blocks of draws, and what is calculated has the right standard error. Energies, and what follows
    from them, are per variable; that of a configuration is minus its log-weight in the model of temperature 1.

    Magnetizations are those of spins, -1 for state 0 and +1 for state 1. With q states they are the q-1-dimensional
    order parameter, whose square is ``m^2 = q / (q - 1) sum_k (rho_k - 1/q)^2`` for shares rho_k of the states. The
    overlap of two configurations is ``(q a - 1) / (q - 1)`` for the share a of variables that are in the same state in
    both, the mean product of their spins for q = 2. All variables must have the same number of states for these.

    Attributes
    ----------
    temperatures : float array (T,)
    effective_draws : float array (T,)
        Draws behind each entry; with reweighting, those that would be worth as much.
    """

    def __init__(
        self, model: MarkovRandomField, draws: RungDraws, run: str, temperatures: ArrayLike | None = None
    ) -> None:
        self._model = model
        self._draws = draws
        self._run = run
        self._blocks = draws.blocks
        self._reweighting: Reweighting | None = None
        if temperatures is None:
            self.temperatures = draws.temperatures
            used = self._blocks.count * self._blocks.length * draws.states.shape[1] // draws.num_ensembles
            self.effective_draws = np.full(len(self.temperatures), float(used))
        else:
            self.temperatures = _checked_temperatures(temperatures, draws.temperatures)
            self._reweighting = self._reweighted(-draws.energies, draws.log_z)
            self.effective_draws = self._reweighting.effective_draws
            self._check_overlaps(self._reweighting)

    def __repr__(self) -> str:
        how = "" if self._reweighting is None else ", reweighted"
        return f"Observables({len(self.temperatures)} temperatures{how}, {self._model})"

    # -- averages ---------------------------------------------------------------------------------------------------

    @cached_property
    def _inverse_temperatures(self) -> FloatArray:
        """One over the temperatures, (T,)."""
        return 1.0 / self.temperatures

    @property
    def _num_variables(self) -> int:
        """Number of variables, at least 1."""
        return max(1, self._model.num_variables)

    def _reweighted(self, log_weights: FloatArray, log_z: FloatArray) -> Reweighting:
        """The draws of all rungs as weighted draws at the temperatures, by log-weights (R, lanes, draws)."""
        by_block = self._blocks.split(log_weights)
        return Reweighting(by_block, 1.0 / self._draws.temperatures, self._inverse_temperatures, log_z)

    def _check_overlaps(self, reweighting: Reweighting) -> None:
        """Refuse temperatures that lie between rungs whose draws have too little in common."""
        known = self._draws.temperatures
        order = np.argsort(known)
        ascending = known[order]
        per_rung = reweighting.num_blocks * reweighting.length
        for temperature, effective in zip(self.temperatures, self.effective_draws, strict=True):
            above = int(np.searchsorted(ascending, temperature))
            is_rung = ascending[above] == temperature
            shared = 1.0 if is_rung else reweighting.overlaps[order[above - 1], order[above]]
            if shared < LEAST_RUNG_OVERLAP or effective < LEAST_EFFECTIVE_SHARE * per_rung:
                raise ValueError(
                    f"temperatures must lie between rungs whose draws overlap, got {temperature:g}, where all draws "
                    f"are worth {effective:.3g}; temper with more temperatures around it"
                )

    def _means(self, values: FloatArray, pairs: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
        """Means (T, Q) of values (R, lanes, draws, Q), and without each block, (G, T, Q).

        Values of pairs of ladders come with the sums of the log-weights of the two, (R, lanes, draws).
        """
        by_block = self._blocks.split(values)
        if self._reweighting is not None:
            weighting = self._reweighting if pairs is None else self._weighting_of_pairs
            return weighting.means(by_block)
        of_blocks = by_block.mean(axis=2)  # (R, G, Q)
        count = of_blocks.shape[1]
        total = of_blocks.sum(axis=1)
        left_out = (total[:, None] - of_blocks) / (count - 1)
        return total / count, np.moveaxis(left_out, 1, 0)

    def _estimate(
        self, function: Callable[[Mapping[str, Any]], Any], pairs: FloatArray | None = None, **values: FloatArray
    ) -> Estimate:
        """A function of the means of values (R, lanes, draws), each an array (T,)."""
        names = list(values)
        whole, left_out = self._means(np.stack([values[name] for name in names], axis=-1), pairs)
        with np.errstate(divide="ignore", invalid="ignore"):
            return jackknife(
                function,
                {name: whole[:, k] for k, name in enumerate(names)},
                {name: left_out[:, :, k] for k, name in enumerate(names)},
                self._run,
            )

    def _values(self, function: Callable[[NDArray[Any]], Any]) -> FloatArray:
        """Values (R, ladders, draws, ...) of a function of configurations on all draws."""
        return np.stack([values_of(function, states) for states in self._draws.states])

    def mean(self, function: Callable[[NDArray[np.int64]], Any]) -> Estimate:
        """The expectation of a function of the configuration at every temperature: (T,), or (T, ...) of arrays.

        Parameters
        ----------
        function : callable
            Takes configurations, an int array (rows, n), and gives one value, or one array, per row.
        """
        check_function(function)
        values = self._values(function)
        shape = values.shape[3:]
        whole, left_out = self._means(values.reshape(*values.shape[:3], -1))
        return jackknife(
            lambda means: means["values"],
            {"values": whole.reshape(-1, *shape)},
            {"values": left_out.reshape(len(left_out), -1, *shape)},
            self._run,
        )

    # -- energies ---------------------------------------------------------------------------------------------------

    @cached_property
    def _energies(self) -> tuple[FloatArray, float]:
        """Energies per variable (R, ladders, draws) less their mean, which large squares would lose digits by."""
        energies = self._draws.energies / self._num_variables
        mean = float(energies.mean())
        return energies - mean, mean

    @cached_property
    def energy(self) -> Estimate:
        """Mean energy per variable."""
        energies, shift = self._energies
        return self._estimate(lambda means: means["e"] + shift, e=energies)

    @cached_property
    def specific_heat(self) -> Estimate:
        """Derivative of the energy per variable by the temperature, ``n (<e^2> - <e>^2) / T^2``."""
        energies, _ = self._energies
        factor = self._num_variables * self._inverse_temperatures**2
        return self._estimate(lambda means: factor * (means["e2"] - means["e"] ** 2), e=energies, e2=energies**2)

    @cached_property
    def log_z(self) -> Estimate:
        """Log Z at every temperature, by acceptance ratios along the whole ladder; NaN where pairs are forbidden."""
        draws = self._draws
        whole, left_out = draws.log_z, draws.log_z_left_out
        if self._reweighting is not None:
            ratios, ratios_left_out = self._reweighting.log_ratios()
            whole = draws.log_z[0] + ratios
            left_out = draws.log_z_left_out[:, :1] + ratios_left_out
        with np.errstate(invalid="ignore"):
            return jackknife(lambda means: means["log_z"], {"log_z": whole}, {"log_z": left_out}, self._run)

    @property
    def free_energy(self) -> Estimate:
        """Free energy per variable, ``-T log Z / n``; not finite at infinite temperature."""
        with np.errstate(invalid="ignore"):
            found: Estimate = self.log_z * (-self.temperatures / self._num_variables)
            return found

    @property
    def entropy(self) -> Estimate:
        """Entropy per variable in nats, ``log Z / n + <e> / T``."""
        return self.log_z / self._num_variables + self.energy * self._inverse_temperatures

    # -- magnetizations ---------------------------------------------------------------------------------------------

    @cached_property
    def _num_states(self) -> int:
        """The number of states q of all variables; an UnfitMethodError where they have different numbers."""
        counts = np.unique(self._model.num_states)
        if len(counts) != 1 or counts[0] < 2:
            raise UnfitMethodError(
                "the model must have two or more states, as many for every variable, for magnetizations and overlaps; "
                f"it has {counts.tolist()}; use mean(function) with one of your own"
            )
        return int(counts[0])

    def _components(self, states: NDArray[np.int64]) -> FloatArray:
        """Spins of configurations (rows, n) as vectors whose squares are 1: (rows, components, n)."""
        q = self._num_states
        if q == 2:
            return np.asarray(2.0 * states[:, None] - 1.0, dtype=np.float64)
        is_state = states[:, None] == np.arange(q)[:, None]
        return np.asarray(math.sqrt(q / (q - 1.0)) * (is_state - 1.0 / q), dtype=np.float64)

    @cached_property
    def _squared_magnetization(self) -> FloatArray:
        """Squares (R, ladders, draws) of the magnetization per variable."""
        q = self._num_states

        def squared(states: NDArray[np.int64]) -> FloatArray:
            """Of configurations (rows, n)."""
            shares = np.stack([(states == k).mean(axis=1) for k in range(q)], axis=1)
            return np.asarray(q / (q - 1.0) * ((shares - 1.0 / q) ** 2).sum(axis=1))

        return self._values(squared)

    @cached_property
    def magnetization(self) -> Estimate:
        """Mean size of the magnetization per variable, ``<|m|>``."""
        return self._estimate(lambda means: means["m"], m=np.sqrt(self._squared_magnetization))

    @cached_property
    def susceptibility(self) -> Estimate:
        """Susceptibility per variable, ``n (<m^2> - <|m|>^2) / T``."""
        squared = self._squared_magnetization
        factor = self._num_variables * self._inverse_temperatures
        return self._estimate(lambda means: factor * (means["m2"] - means["m"] ** 2), m=np.sqrt(squared), m2=squared)

    @cached_property
    def binder(self) -> Estimate:
        """Binder's cumulant of the magnetization, ``1 - <m^4> / (3 <m^2>^2)``."""
        squared = self._squared_magnetization
        return self._estimate(lambda means: 1.0 - means["m4"] / (3.0 * means["m2"] ** 2), m2=squared, m4=squared**2)

    def correlation_length(self, shape: Sequence[int] | None = None) -> Estimate:
        """Correlation length by the second moment, ``sqrt(S(0) / S(k) - 1) / (2 sin(|k| / 2))``, on a periodic lattice.

        S is the structure factor, the mean square of the Fourier transform of the spins, and k the smallest wave
        vectors, along the longest axes. The length is 0 where S does not fall.

        Parameters
        ----------
        shape : sequence of int, optional
            Sides of the lattice, whose nodes are numbered row by row; those of an image model by default.
        """
        waves, side = self._waves(shape)

        def factors(states: NDArray[np.int64]) -> FloatArray:
            """Structure factors (rows, 2) at 0 and, averaged over the axes, at k."""
            transformed = self._components(states) @ waves
            squares = (np.abs(transformed) ** 2).sum(axis=1) / self._num_variables
            return np.stack([squares[:, 0], squares[:, 1:].mean(axis=1)], axis=1)

        values = self._values(factors)
        return self._length(values[..., 0], values[..., 1], side)

    def _length(self, zero: FloatArray, first: FloatArray, side: int, pairs: FloatArray | None = None) -> Estimate:
        """The correlation length by structure factors (R, lanes, draws) at 0 and at the smallest wave vector."""
        step = 2.0 * math.sin(math.pi / side)
        return self._estimate(
            lambda means: np.sqrt(np.maximum(means["s0"] / means["s1"] - 1.0, 0.0)) / step, pairs, s0=zero, s1=first
        )

    def correlations(self, shape: Sequence[int] | None = None) -> Estimate:
        """Correlations ``<s_i s_j>`` of spins r steps apart along an axis of a periodic lattice, (T, L // 2 + 1).

        They are averaged over all places and axes; L is the shortest side. ``shape`` as for
        :meth:`correlation_length`.
        """
        sides = self._lattice(shape)
        distances = range(min(sides) // 2 + 1)

        def correlated(states: NDArray[np.int64]) -> FloatArray:
            """Averages (rows, distances) of products of spins."""
            spins = self._components(states).reshape(len(states), -1, *sides)
            axes = tuple(range(2, spins.ndim))
            found = np.empty((len(states), len(distances)))
            for r in distances:
                products = [(spins * np.roll(spins, r, axis)).mean(axis=axes).sum(axis=1) for axis in axes]
                found[:, r] = np.mean(products, axis=0)
            return found

        return self.mean(correlated)

    def _lattice(self, shape: Sequence[int] | None) -> tuple[int, ...]:
        """The sides of the lattice; a ValueError where they do not hold all variables."""
        sides = self._model.shape if shape is None else shape
        if sides is None:
            raise ValueError("shape must be the sides of the lattice, as the model has none of its own")
        checked = tuple(
            check_count("shape", side, least=1) for side in as_list("shape", sides, "a list of whole numbers")
        )
        if math.prod(checked) != self._model.num_variables or max(checked, default=0) < 2:
            raise ValueError(
                f"shape must hold all {self._model.num_variables} variables and have a side of 2 or more, got {checked}"
            )
        return checked

    def _waves(self, shape: Sequence[int] | None) -> tuple[NDArray[np.complex128], int]:
        """Waves (n, 1 + axes): that of wave vector 0, and the longest ones along the longest axes; and their length."""
        sides = self._lattice(shape)
        side = max(sides)
        places = np.indices(sides).reshape(len(sides), -1)
        longest = [np.exp(2j * np.pi * places[axis] / side) for axis in range(len(sides)) if sides[axis] == side]
        return np.stack([np.ones(self._model.num_variables, dtype=np.complex128), *longest], axis=1), side

    # -- overlaps ---------------------------------------------------------------------------------------------------

    @cached_property
    def _ladder_pairs(self) -> list[tuple[int, int]]:
        """Pairs of ladders of an ensemble: all of them, or neighbors where an ensemble has many ladders."""
        together = self._draws.states.shape[1] // self._draws.num_ensembles
        if together <= MAX_LADDERS_IN_PAIRS:
            return list(combinations(range(together), 2))
        return [(k, k + 1) for k in range(0, together - 1, 2)]

    @cached_property
    def _weights_of_pairs(self) -> FloatArray:
        """Sums of the log-weights of two ladders, (R, ensembles * pairs, draws)."""
        ensembles = self._draws.num_ensembles
        num_rungs, ladders, draws = self._draws.energies.shape
        weights = -self._draws.energies.reshape(num_rungs, ensembles, ladders // ensembles, draws)
        pairs = np.stack([weights[:, :, a] + weights[:, :, b] for a, b in self._ladder_pairs], axis=2)
        return pairs.reshape(num_rungs, -1, draws)

    @cached_property
    def _weighting_of_pairs(self) -> Reweighting:
        """Pairs of configurations of all rungs as weighted pairs at the temperatures."""
        return self._reweighted(self._weights_of_pairs, 2.0 * self._draws.log_z)

    def _pair_values(self, function: Callable[[FloatArray], Any]) -> FloatArray:
        """Values (R, ensembles * pairs, draws, ...) of a function of the overlaps (rows, n) of spins of two ladders."""
        draws = self._draws
        q = self._num_states
        num_rungs, ladders, num, n = draws.states.shape
        states = draws.states.reshape(num_rungs, draws.num_ensembles, ladders // draws.num_ensembles, num, n)
        found = []
        for of_rung in states:
            lanes = [
                function((q * (of_rung[k, a] == of_rung[k, b]) - 1.0) / (q - 1.0))
                for k in range(draws.num_ensembles)
                for a, b in self._ladder_pairs
            ]
            found.append(np.stack(lanes))
        return np.stack(found)

    @cached_property
    def _overlaps(self) -> FloatArray:
        """Overlaps (R, ensembles * pairs, draws) of two ladders."""
        return self._pair_values(lambda products: products.mean(axis=1))

    @cached_property
    def overlap(self) -> Estimate:
        """Mean size of the overlap of two independent configurations, ``<|q|>``."""
        return self._estimate(lambda means: means["q"], self._weights_of_pairs, q=np.abs(self._overlaps))

    @cached_property
    def spin_glass_susceptibility(self) -> Estimate:
        """Spin-glass susceptibility, ``n <q^2>`` of the overlap."""
        count = self._num_variables
        return self._estimate(lambda means: count * means["q2"], self._weights_of_pairs, q2=self._overlaps**2)

    @cached_property
    def overlap_binder(self) -> Estimate:
        """Binder's cumulant of the overlap, ``1 - <q^4> / (3 <q^2>^2)``."""
        squared = self._overlaps**2
        return self._estimate(
            lambda means: 1.0 - means["q4"] / (3.0 * means["q2"] ** 2),
            self._weights_of_pairs,
            q2=squared,
            q4=squared**2,
        )

    @cached_property
    def link_overlap(self) -> Estimate:
        """Mean link overlap: the product of the spins at both ends of an edge in two configurations, over all edges."""
        if self._num_states != 2:
            raise UnfitMethodError(f"link overlaps need two states, the model has {self._num_states}")
        i, j = self._model.edges.T
        values = self._pair_values(lambda products: (products[:, i] * products[:, j]).sum(axis=1))
        count = max(1, self._model.num_edges)
        return self._estimate(lambda means: means["q"] / count, self._weights_of_pairs, q=values)

    def overlap_correlation_length(self, shape: Sequence[int] | None = None) -> Estimate:
        """Correlation length of the overlap by the second moment, as :meth:`correlation_length` of the spins."""
        waves, side = self._waves(shape)

        def factors(products: FloatArray) -> FloatArray:
            """Structure factors (rows, 2) at 0 and, averaged over the axes, at the smallest wave vectors."""
            squares = np.abs(products @ waves) ** 2 / self._num_variables
            return np.stack([squares[:, 0], squares[:, 1:].mean(axis=1)], axis=1)

        values = self._pair_values(factors)
        return self._length(values[..., 0], values[..., 1], side, self._weights_of_pairs)

    def overlap_distribution(self, num_bins: int = 41) -> tuple[FloatArray, Estimate]:
        """The distribution P(q) of the overlap: the middles of bins (B,), and densities (T, B).

        Parameters
        ----------
        num_bins : int
            Odd, at least 3: the outer ones are centered at -1 and 1, and the one in the middle at 0.
        """
        num_bins = check_count("num_bins", num_bins, least=3)
        if num_bins % 2 == 0:
            raise ValueError(f"num_bins must be odd, got {num_bins}")
        half = num_bins // 2
        bins = np.rint(self._overlaps * half).astype(np.int64) + half
        one_hot = (bins[..., None] == np.arange(num_bins)).astype(np.float64)
        whole, left_out = self._means(one_hot, self._weights_of_pairs)
        density = jackknife(lambda means: half * means["p"], {"p": whole}, {"p": left_out}, self._run)
        return np.linspace(-1.0, 1.0, num_bins), density

    # -- tables and pictures ----------------------------------------------------------------------------------------

    def _curves(self) -> dict[str, Estimate]:
        """The curves that the model has, by name."""
        found: dict[str, Estimate] = {"log_z": self.log_z}
        for name in _CURVES:
            try:
                found[name] = getattr(self, name)
            except UnfitMethodError:  # variables with different numbers of states have no magnetization
                continue
        return found

    def columns(self) -> dict[str, Any]:
        """Columns of :meth:`to_frame` by name: the temperature, and every curve with its standard error."""
        columns: dict[str, Any] = {"temperature": self.temperatures}
        for name, curve in self._curves().items():
            columns[name] = np.asarray(curve.value)
            columns[f"{name}_error"] = np.asarray(curve.std_error)
        return columns

    def to_frame(self, library: str = "pandas") -> Any:
        """The :meth:`columns` as a DataFrame of pandas or polars (extra ``interop``)."""
        return _show.frame(self.columns(), library)

    def plot(self, name: str = "energy", axes: Any = None, *, label: str | None = None) -> Any:
        """A curve over the temperature with its error bars (Matplotlib, extra ``plot``); the axes come back.

        Parameters
        ----------
        name : str
            Of a curve: ``energy``, ``binder``, ..
        axes : matplotlib Axes, optional
            Of a new figure by default.
        label : str, optional
            For a legend.
        """
        curve = getattr(self, name, None) if isinstance(name, str) and not name.startswith("_") else None
        if not isinstance(curve, Estimate):
            raise ValueError(f"name must be one of {', '.join(['log_z', *_CURVES])}, got {describe(name)}")
        if label is not None and not isinstance(label, str):
            raise TypeError(f"label must be text, got {describe(label)}")
        axes = _show.new_axes(axes)
        order = np.argsort(self.temperatures)
        axes.errorbar(self.temperatures[order], curve.value[order], curve.std_error[order], marker=".", label=label)
        axes.set(xlabel="temperature", ylabel=name.replace("_", " "))
        return axes


def _checked_temperatures(given: ArrayLike, known: FloatArray) -> FloatArray:
    """Temperatures as an array, all from the lowest to the highest that is known."""
    temperatures = np.atleast_1d(as_float_array("temperatures", given))
    lowest, highest = float(known.min()), float(known.max())
    margin = 1e-12 * lowest  # what a computed grid may be off by
    inside = (temperatures >= lowest - margin) & (temperatures <= highest + margin)
    if temperatures.ndim != 1 or not len(temperatures) or not inside.all():
        span = f"{lowest:g} to {highest:g}"
        raise ValueError(f"temperatures must be from {span}, those of the run, got {describe(given)}")
    return np.clip(temperatures, lowest, highest)
