"""The method ``multicanonical``: chains that walk through all energies, for models with two phases apart in energy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar

import numpy as np

from fastmix import _show
from fastmix._arrays import FloatArray, IntArray
from fastmix._checks import check_count
from fastmix._clock import Clock, Ending
from fastmix._memory import check_memory
from fastmix._student import student_factor
from fastmix.errors import UnfitMethodError
from fastmix.marginals import ChainResult, DrawResult
from fastmix.method import Context, Method
from fastmix.model import MarkovRandomField
from fastmix.model.reduce import certain_entries
from fastmix.results import Status
from fastmix.sampling.energy_phases import EnergyPhase, EnergySeries, EnergyTransition
from fastmix.sampling.energy_walks import (
    Collected,
    EnergyWeights,
    Walkers,
    first_weights,
    independent_states,
    learn_weights,
)
from fastmix.sampling.tempering.ladder import TemperingPath, make_path
from fastmix.sampling.tempering.phases import find_phases, outweighing, proven_bound
from fastmix.sampling.tuning import (
    ENERGY_LEARNING_SHARE,
    ENERGY_SERIES,
    ENERGY_SWEEPS,
    ENERGY_WALKERS,
    LOG_Z_SIGMAS,
    MAX_LADDER_R_HAT,
    MIN_TRIPS,
    MODES_SHARE_OF_ANNEALING,
)

__all__ = ["Multicanonical", "MulticanonicalResult"]

_MAX_STRETCHES = 8  # of sweeps of a run, whose sums are kept apart


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class MulticanonicalResult(ChainResult):
    """Marginals and log Z from chains that walk through all energies, with what these tell at other scales.

    Attributes
    ----------
    std_error : float array, aligned with ``model.log_unary``
        Standard error of every probability: the jackknife over the halves of all walkers, and one over the number of
        round trips.
    states : int array (walkers, n)
        One configuration of every walker, drawn by how much more probable the model makes it.
    series : EnergySeries
        The energies of the walkers, from which averages at any scale of the tables follow.
    """

    series: EnergySeries
    round_trips: IntArray  #: (walkers,), between the energy of independent variables and that of the model

    advice_by_status: ClassVar[Mapping[Status, str]] = {
        Status.NOT_MIXED: (
            "The walkers have not traveled between all energies often enough, or disagree: run longer, or with fewer "
            "walkers."
        )
    }

    def phases(self, scale: float = 1.0) -> list[EnergyPhase]:
        """The phases of the model with its tables scaled, that of lower energy first, with their masses and energies.

        There are two where the density of the energy has two peaks; see :meth:`EnergySeries.phases`.
        """
        return self.series.phases(scale)

    def transition(self) -> EnergyTransition | None:
        """The scale of the tables at which two phases are equally probable, with its latent heat; None without any."""
        return self.series.transition()

    def drawings(self) -> dict[str, Callable[[Any], Any]]:
        """The drawings of every result of chains, with ``density``: the log-density of the energy."""
        return {**super().drawings(), "density": self._draw_density}

    def _draw_density(self, axes: Any) -> Any:
        """Draw the log-density of the energy in the model."""
        centers, logs = self.series.log_density()
        return _show.profile(axes, centers, logs - logs.max(), xlabel="energy", ylabel="log-density")

    def contents(self) -> dict[str, Any]:
        """The contents of every result of chains, with the round trips of every walker."""
        return {**super().contents(), "round_trips": self.round_trips}


@dataclass(frozen=True, kw_only=True)
class Multicanonical(Method):
    """Chains weighted by their energy such that all energies are equally frequent, for first-order transitions.

    Replica exchange needs rungs whose energies overlap. Where two phases of a model are apart in energy, as in the
    Potts model of ten states, the energies between them are improbable at every scale of the tables, and no ladder
    connects them. Here chains are weighted by ``exp(sum_i u_i(x_i) + G(E(x)))`` with a function G of the energy of the
    tables (Berg and Neuhaus, Phys. Rev. Lett. 68, 1992), which is learnt first (Wang and Landau, Phys. Rev. Lett. 86,
    2001) such that all energies between independent variables and the model are equally frequent. Averages over the
    model, and over the models with all tables scaled, follow by reweighting.

    For pairwise models without forbidden pairs. The status is ``not_mixed`` where walkers made fewer than 10 round
    trips on average, or disagree, or where a known phase shows that log Z is larger. An update costs the neighbors of a
    variable times its states; sweeps of a round trip grow at least in proportion to the number of variables, and
    exponentially with the surface between phases. Half of a time limit is for learning at most.

    Parameters
    ----------
    num_walkers : int
        Chains side by side, at least 2, whose spread gives the error bars; 8 by default. Each must travel between all
        energies: where that takes long, fewer walkers make more trips each.
    num_sweeps : int, optional
        Sweeps of every walker that are averaged, after the weights have been learnt; 100,000 by default.

    Examples
    --------
    >>> import fastmix
    >>> edges = fastmix.graphs.grid_edges(3, 3)
    >>> model = fastmix.MarkovRandomField.ising(edges, coupling=0.8)
    >>> result = fastmix.infer(model, method="multicanonical", num_sweeps=4000, seed=1)
    >>> exact = fastmix.infer(model, method="exact")
    >>> str(result.status), bool(abs(result.log_z - exact.log_z) < 4 * result.log_z_std_error)
    ('ok', True)

    One run tells about all scales of the tables:

    >>> half = fastmix.MarkovRandomField.ising(edges, coupling=0.4)
    >>> bool(abs(result.series.log_z(0.5) - fastmix.infer(half, method="exact").log_z) < 0.1)
    True
    """

    name: ClassVar[str] = "multicanonical"
    guarantee: ClassVar[str] = "exact in the limit of many sweeps; the standard errors are estimates"
    gives_log_z: ClassVar[bool] = True

    num_walkers: int = ENERGY_WALKERS
    num_sweeps: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_walkers", check_count("num_walkers", self.num_walkers, least=2))
        if self.num_sweeps is not None:
            object.__setattr__(self, "num_sweeps", check_count("num_sweeps", self.num_sweeps, least=2))

    def check(self, model: MarkovRandomField) -> None:
        """No pair may be forbidden: the energy must be finite."""
        if model.has_forbidden:
            raise UnfitMethodError("multicanonical needs finite tables, and the model has forbidden pairs of states")

    def run(self, model: MarkovRandomField, context: Context) -> MulticanonicalResult:
        """Marginals, log Z and energies, with the verdict on them.

        1. Find configurations of large weight, and first weights from canonical chains.
        2. Learn the weights.
        3. Walk by fixed weights, and collect.
        4. Estimate and judge.
        """
        clock = context.clock
        path = make_path(model)
        required = 8.0 * self.num_walkers * (3 * model.num_variables + len(model.log_unary)) + 8.0 * ENERGY_SERIES
        check_memory(required, f"num_walkers, {self.num_walkers},", "run fewer walkers")

        # 1.
        phases = find_phases(path, rng=context.rng("modes"), clock=clock.part(MODES_SHARE_OF_ANNEALING))
        starts = independent_states(path.model, self.num_walkers, context.rng("starts"))
        walkers = Walkers(path.model, starts, context.seed_of("walkers"), context.num_threads)
        modes = np.array([phase.mode for phase in phases], dtype=np.int64).reshape(len(phases), model.num_variables)
        learnt = False
        is_done = False
        run: _Run | None = None
        with Ending() as ending:
            weights = first_weights(walkers, modes, context)

            # 2.
            learnt = learn_weights(walkers, weights, clock.part(ENERGY_LEARNING_SHARE))

            # 3.
            run = _Run(walkers, weights, context.rng("kept"))
            is_done = run.go(self.num_sweeps or ENERGY_SWEEPS, clock)
        if run is None or run.num_blocks < 2:
            context.raise_nothing(ending.by)
        stopped_by = ending.by if ending.by != "done" or is_done else "time_limit"

        # 4.
        return _judge(path, run, phases, learnt=learnt, stopped_by=stopped_by, context=context)


class _Run:
    """Walkers by fixed weights, and what they have met.

    Sums are kept for stretches of sweeps one after another, at most :data:`_MAX_STRETCHES`: where there would be more,
    two and two become one. So both halves of a run are known, whenever it ends.
    """

    def __init__(self, walkers: Walkers, weights: EnergyWeights, rng: np.random.Generator) -> None:
        self.walkers = walkers
        self.weights = weights
        self.num_sweeps = 0
        self.trips = np.zeros(len(walkers), dtype=np.int64)
        self._rng = rng
        self._stretches: list[list[Collected]] = []
        self._blocks_of_stretch = 1
        self._was_high = np.zeros(len(walkers), dtype=bool)
        self._was_low = np.zeros(len(walkers), dtype=bool)
        self._energies: list[FloatArray] = []

    def go(self, num_sweeps: int, clock: Clock) -> bool:
        """Walk so many sweeps; False where the time was over before."""
        every = max(1, math.ceil(num_sweeps * len(self.walkers) / ENERGY_SERIES))
        block = self.walkers.block_of(max(1, num_sweeps // _MAX_STRETCHES))
        number = 0
        while self.num_sweeps < num_sweeps:
            if clock.past() and number >= 2:
                return False
            if number % self._blocks_of_stretch == 0:
                self._begin_stretch()
            size = min(block, num_sweeps - self.num_sweeps)
            energies = self.walkers.collect(self.weights, size, self._stretches[-1])
            self._energies.append(energies[:, ::every])
            self._count_trips(energies)
            self.num_sweeps += size
            number += 1
            speed = self.walkers.updates / max(clock.used(), 1e-9)
            clock.report(self.num_sweeps, num_sweeps, "sweeps", per_second=speed)
        return True

    def _begin_stretch(self) -> None:
        """Begin a stretch of sweeps, after two and two have become one where there are as many as there may be."""
        if len(self._stretches) == _MAX_STRETCHES:
            pairs = zip(self._stretches[::2], self._stretches[1::2], strict=True)
            self._stretches = [self._joined(first, second) for first, second in pairs]
            self._blocks_of_stretch *= 2
        self._stretches.append([Collected.of(self.walkers.model) for _ in range(len(self.walkers))])

    def _joined(self, first: list[Collected], second: list[Collected]) -> list[Collected]:
        """The sums of two stretches as those of one."""
        return [one.joined(other, self._rng.random()) for one, other in zip(first, second, strict=True)]

    def _count_trips(self, energies: FloatArray) -> None:
        """Count the ways from the lowest knot to the highest and back."""
        for walker, series in enumerate(energies):
            marks = np.where(series >= self.weights.high, 1, np.where(series <= self.weights.low, -1, 0))
            marks = marks[marks != 0]
            if not len(marks):
                continue
            turns = marks[np.concatenate([[True], marks[1:] != marks[:-1]])]
            for mark in turns.tolist():
                if mark > 0:
                    self._was_high[walker] = self._was_low[walker]
                else:
                    self.trips[walker] += self._was_high[walker]
                    self._was_high[walker] = False
                    self._was_low[walker] = True

    @property
    def is_level(self) -> bool:
        """Whether there is no way to go: all configurations that canonical chains met have one energy."""
        return len(self.weights.heights) == 1

    @property
    def num_blocks(self) -> int:
        """The number of blocks of sweeps that were made."""
        return len(self._energies)

    @property
    def halves(self) -> list[list[Collected]]:
        """The sums of every walker over the first half of its stretches, and over the second."""
        middle = (len(self._stretches) + 1) // 2
        return [reduce(self._joined, part) for part in (self._stretches[:middle], self._stretches[middle:])]

    @property
    def energies(self) -> FloatArray:
        """The energies (2 walkers, sweeps) of the first halves of all walkers, and then of the second ones."""
        whole = np.concatenate(self._energies, axis=1)
        size = whole.shape[1] // 2
        return np.concatenate([whole[:, :size], whole[:, size : 2 * size]])


def _judge(
    path: TemperingPath, run: _Run, phases: list[Any], *, learnt: bool, stopped_by: str, context: Context
) -> MulticanonicalResult:
    """The result about the reduced model, with the verdict on it."""
    model = path.model
    n = model.num_variables
    walkers = run.walkers
    trips = run.trips
    overlooked = 0.0 if run.is_level else 1.0 / (float(trips.sum()) + 1.0)
    halves = run.halves
    both = [*halves[0], *halves[1]]
    mean, error, r_hat = _marginals(
        model, np.array([half.sums for half in both]), np.array([half.total for half in both])
    )
    error = np.hypot(error, overlooked)
    error[certain_entries(model)] = 0.0
    name = f"multicanonical {walkers.seed}"
    series = EnergySeries(run.energies, run.weights, _log_z_of_unaries(model), name)
    log_z = series.log_z()
    estimate = float(log_z.value)
    log_z_error = math.hypot(float(log_z.std_error), overlooked)
    status, note = _verdict(path, run, phases, r_hat, estimate, log_z_error, learnt=learnt)
    believed = status == Status.OK
    lower = proven_bound(path, phases)
    if stopped_by == "interrupt":
        status = Status.INTERRUPTED
    with np.errstate(divide="ignore", invalid="ignore"):
        ess = np.where(error > 0.0, mean * (1.0 - mean) / error**2, np.inf)
    joined = [first.joined(second, 0.5) for first, second in zip(*halves, strict=True)]
    states = np.array([collected.kept for collected in joined], dtype=np.int64).reshape(len(walkers), n)
    return MulticanonicalResult(
        model=model,
        method=Multicanonical.name,
        status=status,
        node_marginals=mean,
        edge_marginals=DrawResult.pair_frequencies(model, states) if context.edge_marginals else None,
        log_z=estimate if believed else None,
        log_z_kind="estimate" if believed else "unknown" if lower is None else "bound",
        log_z_std_error=log_z_error if believed else None,
        log_z_lower=lower,
        stats={
            "num_walkers": len(walkers),
            "num_sweeps": run.num_sweeps,
            "burn_in": walkers.updates // max(1, n * len(walkers)) - run.num_sweeps,
            "num_updates": walkers.updates,
            "updates_per_second": walkers.updates / max(context.clock.used(), 1e-9),
            "num_round_trips": int(trips.sum()),
            "num_knots": len(run.weights.heights),
            "stopped_by": stopped_by,
            "note": note,
        },
        std_error=error,
        ess=np.minimum.reduceat(ess, model.unary_offsets[:-1]) if n else np.zeros(0),
        r_hat=r_hat,
        states=states,
        series=series,
        round_trips=trips,
    )


def _log_z_of_unaries(model: MarkovRandomField) -> float:
    """Log Z of the model without its tables."""
    if not model.num_variables:
        return model.log_constant
    starts = model.unary_offsets[:-1]
    largest = np.maximum.reduceat(model.log_unary, starts)
    sums = np.add.reduceat(np.exp(model.log_unary - np.repeat(largest, model.num_states)), starts)
    return model.log_constant + float((largest + np.log(sums)).sum())


def _marginals(
    model: MarkovRandomField, sums: FloatArray, totals: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Probabilities, their standard errors, and R-hat of every variable, from the halves of all walkers.

    The jackknife leaves out one half of one walker. R-hat compares the spread of the halves' own averages with the
    variance of a state in the model. Where no walker met anything that counts in the model, nothing is known.
    """
    count = len(totals)
    if not totals.any():
        return (
            1.0 / np.repeat(model.num_states, model.num_states),
            np.ones(sums.shape[1]),
            np.full(model.num_variables, np.inf),
        )
    whole = sums.sum(axis=0) / totals.sum()
    with np.errstate(invalid="ignore", divide="ignore"):
        left_out = (sums.sum(axis=0) - sums) / (totals.sum() - totals)[:, None]
        averages = sums / totals[:, None]
        spread = (count - 1) / count * ((left_out - left_out.mean(axis=0)) ** 2).sum(axis=0)
    error = np.where(np.isfinite(spread), np.sqrt(spread) * student_factor(count - 1), 1.0)
    n = model.num_variables
    if not n:
        return whole, error, np.zeros(0)
    starts = model.unary_offsets[:-1]
    between = ((averages - whole) ** 2).sum(axis=0) / (count - 1)
    between = np.add.reduceat(np.where(np.isfinite(between), between, np.inf), starts)
    within = np.add.reduceat(whole * (1.0 - whole), starts)
    ratio = np.divide(between, within, out=np.zeros(n), where=within > 0.0)
    return whole, error, np.sqrt(1.0 + ratio)


def _verdict(
    path: TemperingPath,
    run: _Run,
    phases: list[Any],
    r_hat: FloatArray,
    log_z: float,
    log_z_error: float,
    *,
    learnt: bool,
) -> tuple[Status, str]:
    """Whether there were enough round trips and nothing speaks against the answer, and why."""
    mean_trips = float(run.trips.mean())
    made = f"{mean_trips:.3g} round trips a walker on average"
    if mean_trips < MIN_TRIPS and not run.is_level:
        unlearnt = "" if learnt else "; the time did not suffice to learn the weights"
        return Status.NOT_MIXED, f"Not mixed: {made}, fewer than {MIN_TRIPS:g}{unlearnt}."
    worst = float(r_hat.max(initial=1.0))
    if worst > MAX_LADDER_R_HAT:
        return Status.NOT_MIXED, f"Not mixed: R-hat over the walkers is {worst:.4g}, in spite of {made}."
    found = outweighing(path, phases, log_z, LOG_Z_SIGMAS * log_z_error)
    if found is not None:
        return (
            Status.NOT_MIXED,
            f"Not mixed: log Z is estimated at {log_z:.6g}, but a phase shows at least {found[1]:.6g}.",
        )
    return Status.OK, f"{made}; the walkers agree."
