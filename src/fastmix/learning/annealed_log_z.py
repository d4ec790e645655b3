"""Log Z by annealing: chains go from models with known log Z to the model, and back, which gives an error as well.

Weights of both directions are combined by Bennett's acceptance ratio [1]_, over several ways at once.

References
----------
.. [1] C. H. Bennett, "Efficient estimation of free energy differences from Monte Carlo data", Journal of Computational
   Physics 22, 1976.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import Clock, Ending
from fastmix._context import Context
from fastmix._memory import check_memory
from fastmix.chains.annealing import Annealing, make_pool, systematic
from fastmix.chains.base import Chains
from fastmix.learning.dataset import Dataset
from fastmix.learning.exact_log_z import LogZ, lower_bound
from fastmix.learning.independent import independent_parameters, uniform_parameters
from fastmix.learning.tuning import (
    ANNEALED_SITES_PER_SECOND,
    ANNEALED_TIME_SHARE,
    BYTES_PER_ANNEALED_SITE,
    FIRST_MODELS,
    FIRST_PASSES,
    FIRST_TIME_SHARE,
    HOPELESS_GAP,
    MAX_DISAGREEMENT,
    MAX_MODELS,
    MAX_STD_ERROR,
    NUM_GROUPS,
    PAIRS_PER_SECOND,
    PILOT_MODELS,
    SECONDS_PER_ENTRY_TO_MAKE,
)
from fastmix.model import MarkovRandomField
from fastmix.model.structure import Structure
from fastmix.results import Status

__all__ = ["Annealer", "annealed_log_z", "bennett", "combine", "turned"]


def annealed_log_z(model: MarkovRandomField, data: Dataset, tol: float, num_chains: int, context: Context) -> LogZ:
    """Log Z by annealing, to a standard error of ``tol``; a lower bound where the time ends before the first round."""
    clock = context.clock
    required = BYTES_PER_ANNEALED_SITE * num_chains * model.num_variables
    check_memory(required, f"num_chains {num_chains} of {model.num_variables:,} variables", "take fewer chains")
    num_chains = _affordable_chains(model, num_chains, clock)
    if _is_hopeless(model, num_chains, clock, context.backend):
        return lower_bound(model, data)
    rounds = AnnealingRounds(tol)
    with Ending() as ending:
        rounds.run(Annealer(model, data, num_chains, context), num_chains, clock)
    result = rounds.result
    if result is None:
        if ending.interrupted:
            context.raise_nothing(ending.by)
        return lower_bound(model, data)
    if ending.interrupted:
        result = replace(result, status=Status.INTERRUPTED)
    elif ending.by == "time_limit" and result.status is Status.OK:
        result = replace(result, status=Status.TIME_LIMIT)
    low, high = result.bracket or (math.nan, math.nan)
    k = model.log_constant
    stats = {"stopped_by": rounds.stopped_by if ending.by == "done" else ending.by, **result.stats}
    return replace(result, log_z=result.log_z + k, bracket=(low + k, high + k), stats=stats)


def turned(structure: Structure) -> Structure:
    """The same structure with sweeps in the opposite order, which undo those of the structure in equilibrium."""
    turned = Structure(structure.num_states, structure.edges, structure.scope_starts, structure.scope_variables)
    order, starts = structure.visit_order
    known = vars(structure)  # with all that has been computed once, which does not depend on the order
    reverse = (np.ascontiguousarray(order[::-1]), np.ascontiguousarray(starts[-1] - starts[::-1]))
    vars(turned).update({**known, "visit_order": reverse})
    return turned


@dataclass
class Way:
    """A line of models from one with log Z = 0 to the target."""

    thetas: FloatArray  # (2, P), of both ends
    steps: FloatArray = field(default_factory=lambda: np.linspace(0.0, 1.0, PILOT_MODELS + 1))  # where the models stand
    spreads: FloatArray = field(default_factory=lambda: np.ones(PILOT_MODELS))  # of the log-odds of chains between them
    log_weights: FloatArray = field(default_factory=lambda: np.zeros(0))  # of the chains that came to its end

    def space(self, count: int) -> None:
        """Put so many models on the way, closer together where the log-weights of the chains differ more."""
        spreads = np.maximum(self.spreads, max(1e-3 * self.spreads.max(), 1e-12))
        lengths = np.concatenate([[0.0], np.cumsum(spreads * np.diff(self.steps))])
        self.steps = np.interp(np.linspace(0.0, lengths[-1], count + 1), lengths, self.steps)


class Annealer:
    """Chains that go along several ways to one model, and back, as draws from a mixture of what ends the ways.

    A model can have modes that one way finds and another does not. Let a chain have come along way a to the
    configuration x with the weight w_a, and let further chains from x go back along all other ways, with the weights
    1 / w_b. With the shares s of the chains on the ways, ``W = 1 / sum_b s_b / w_b`` has the mean Z: it is the weight
    of x and of all these paths together under the mixture of the ways, which finds what any of them does. Back from
    draws of the model ``1 / W`` has the mean 1 / Z. Sweeps back are made in the opposite order, so that both are exact.
    """

    def __init__(self, model: MarkovRandomField, data: Dataset, num_chains: int, context: Context) -> None:
        self.rng = context.rng("resampling")
        self.ways = [
            Way(np.stack([first, model.parameters]))
            for first in (uniform_parameters(model), independent_parameters(model, data))
        ]
        self._make = partial(make_pool, model, context.backend)
        self._num_chains = num_chains
        self._context = context
        self._clock = context.clock
        self._seconds_of_a_step = 0.0  # of one chain from one model to the next, as the pilot found it
        self._structure = model.structure
        self._state_type = np.min_scalar_type(int(model.num_states.max(initial=1)))
        self._prepare()

    def _prepare(self) -> None:
        """Make the chains, as many for every way."""
        each = self._num_chains // len(self.ways)
        self.ahead, self.place = self._make(num_chains=each, seed=self._context.seed_of("ahead", len(self.ways)))
        seed_back = self._context.seed_of("back", len(self.ways))
        self.back, _ = self._make(num_chains=each, seed=seed_back, structure=turned(self._structure))
        self.ahead.clock = self._clock
        self.back.clock = self._clock

    def go_ahead(self, way: Way) -> None:
        """Chains go along one way, from draws of its first model, which a sweep makes of anything."""
        way.log_weights, way.spreads = _move(self.ahead, way.thetas, way.steps)

    def pilot(self) -> None:
        """Look at all ways, and leave those out that are much worse than another."""
        begun = self._clock.used()
        for way in self.ways:
            self.go_ahead(way)
        passes = self.ahead.num_chains * len(self.ways) * PILOT_MODELS
        self._seconds_of_a_step = (self._clock.used() - begun) / passes
        means = [_log_mean(way.log_weights) for way in self.ways]
        kept = [way for way, mean in zip(self.ways, means, strict=True) if mean > max(means) - HOPELESS_GAP]
        if len(kept) < len(self.ways):
            self.ways = kept
            self._prepare()

    def count_in(self, seconds: float) -> int:
        """How many models on every way a round of :meth:`round` passes in so many seconds, by the time of the pilot."""
        num_ways = len(self.ways)
        # Ahead and back along the other ways for all chains of a way, and back along all ways for as many draws.
        passes = 2 * self.ahead.num_chains * num_ways**2
        return int(min(MAX_MODELS, seconds / max(1e-12, passes * self._seconds_of_a_step)))

    def round(self) -> FloatArray:
        """Negative log-weights (ways, 2 C): of chains that came to the model, first those of the first way, and draws.

        What came along one way went back along the others, what was drawn along all of them.
        """
        ahead = []
        states = []
        for way in self.ways:
            self.go_ahead(way)
            states.append(self.ahead.get_states().astype(self._state_type))
            back = [
                -way.log_weights if other is way else self._go_back(other, states[-1]) for other in self.ways
            ]  # fmt: skip
            ahead.append(np.stack(back))
        forward = np.hstack(ahead)
        return np.hstack([forward, self._from_draws(_mix(forward), np.concatenate(states))])

    def _from_draws(self, log_weights: FloatArray, states: IntArray) -> FloatArray:
        """Negative log-weights (ways, C) of chains back from draws of the model: states with weights, swept."""
        each = self.ahead.num_chains
        # Draws stay in the groups of what they come from: errors are those of independent groups.
        order = np.argsort(_groups(len(states), each), kind="stable")
        chosen = np.empty_like(order)
        chosen[order] = order[systematic(log_weights[order][None], self.rng)[0].reshape(-1)]
        found = []
        self.ahead.load(self.ways[0].thetas, np.array([[0.0, 1.0]]))
        for part in np.split(chosen, len(self.ways)):
            self.ahead.set_states(states[part])
            self.ahead.sweep(max(20, len(self.ways[0].steps) // 4))
            draws = self.ahead.get_states()
            found.append(np.stack([self._go_back(way, draws) for way in self.ways]))
        return np.hstack(found)

    def _go_back(self, way: Way, states: IntArray) -> FloatArray:
        """Log-weights of chains that go back along a way from these states."""
        self.back.set_states(states)
        return _move(self.back, way.thetas, way.steps[::-1])[0]


class AnnealingRounds:
    """Rounds of annealing, each slower than the one before, and the answer of the latest."""

    def __init__(self, tol: float) -> None:
        self.tol = tol
        self.result: LogZ | None = None
        self.stopped_by = "done"

    def run(self, annealer: Annealer, num_chains: int, clock: Clock) -> None:
        """Rounds until the standard error of log Z is small enough, or the time is nearly over."""
        count = self._first_count(annealer, num_chains, clock)
        num_rounds = 0
        while True:
            begun = clock.used()
            for way in annealer.ways:
                way.space(count)
            result = combine(annealer.round(), count, annealer.place)
            self.result = result
            num_rounds += 1
            clock.report(num_rounds, None, "rounds", details={"log_z": result.log_z, "std_error": result.std_error})
            good = result.std_error <= self.tol and result.status is Status.OK
            more = 4 if result.std_error > 2 * self.tol else 2
            # A round that the limit cuts off is lost, and the verdict of the one before with it.
            late = clock.past(ANNEALED_TIME_SHARE) or more * (clock.used() - begun) > clock.left()
            if good:
                self.stopped_by = "accuracy"
            elif late:
                self.stopped_by = "time_limit"
            if good or late or count > MAX_MODELS:
                return
            count *= more

    def _first_count(self, annealer: Annealer, num_chains: int, clock: Clock) -> int:
        """How many models on every way the first round passes, by what a pilot run tells."""
        annealer.pilot()
        # Log-weights differ by one over the square root of the models on the way: as many as they should.
        best = max(annealer.ways, key=lambda way: _log_mean(way.log_weights))
        ratio = float(np.std(best.log_weights)) / min(1.0, self.tol * math.sqrt(num_chains))
        count = int(
            np.clip(PILOT_MODELS * ratio**2, min(FIRST_MODELS, max(PILOT_MODELS, 3.0 / self.tol)), FIRST_MODELS)
        )
        # A first round that does not end in time would leave a bound; a shorter one has an error, if a larger one.
        return min(count, max(PILOT_MODELS, annealer.count_in(FIRST_TIME_SHARE * clock.left())))


def _affordable_chains(model: MarkovRandomField, num_chains: int, clock: Clock) -> int:
    """As many chains as were asked for, or fewer, so that half of a limit is enough for a first round."""
    if clock.limit is None:
        return num_chains
    sites = FIRST_PASSES * (model.num_variables + 2.0 * model.num_edges)
    affordable = 0.5 * clock.limit * ANNEALED_SITES_PER_SECOND / sites
    return min(num_chains, max(2 * NUM_GROUPS, int(min(affordable, num_chains))))


def _is_hopeless(model: MarkovRandomField, num_chains: int, clock: Clock, backend: str) -> bool:
    """Whether not even the first, short run can end in time, nor, with few chains, what has to be made for it."""
    if clock.limit is None:
        return False
    entries = len(model.log_pairwise)
    seconds = SECONDS_PER_ENTRY_TO_MAKE * entries
    if backend == "cpu":
        seconds += PILOT_MODELS * num_chains * model.num_edges / (PAIRS_PER_SECOND * (os.cpu_count() or 1))
    return seconds > clock.left()


def _move(chains: Chains, thetas: FloatArray, path: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Log-weights (C,) of chains that go along a path, and spreads of the log-odds on it."""
    run = Annealing(chains, thetas, [1.0 - path[0], path[0]])
    chains.sweep(1)
    spreads = np.empty(len(path) - 1)
    for k, share in enumerate(path[1:]):
        before = run.log_weights.copy()
        run.move([1.0 - share, share])
        spreads[k] = np.std(run.log_weights - before) / max(1e-12, abs(path[k + 1] - path[k]))
    return run.log_weights, spreads


def _groups(count: int, each: int) -> IntArray:
    """The group (count,) of every chain: all have some of every way, of which there are ``each`` chains."""
    return (np.arange(count) % each) * NUM_GROUPS // each


def _mix(inverse: FloatArray) -> FloatArray:
    """Log-weights (C,) under the mixture of all ways from the negative ones (ways, C) of each."""
    return np.asarray(math.log(len(inverse)) - np.logaddexp.reduce(inverse, axis=0))


def _log_mean(log_weights: FloatArray) -> float:
    """The logarithm of the mean of weights that are given by their logarithms."""
    return float(np.logaddexp.reduce(log_weights)) - math.log(len(log_weights))


def bennett(forward: FloatArray, backward: FloatArray) -> float:
    """Log Z_1 / Z_0 from log-weights of both directions: the root of Bennett's equation."""

    def excess(guess: float) -> float:
        """The difference of the two sides of the equation, which falls with the guess."""
        up = np.exp(-np.logaddexp(0.0, guess - forward)).mean()  # f(w - guess), from the first model
        return float(up - np.exp(-np.logaddexp(0.0, -guess - backward)).mean())

    return _root(excess, *sorted((_log_mean(forward), -_log_mean(backward))))


def _root(excess: Callable[[float], float], low: float, high: float) -> float:
    """Where a falling function is 0, near two values."""
    from scipy.optimize import brentq

    low -= 5.0
    high += 5.0
    while excess(low) < 0.0:
        low -= high - low
    while excess(high) > 0.0:
        high += high - low
    return float(brentq(excess, low, high, xtol=1e-10))


class _Pooled:
    """The estimating equation of log Z from chains of all ways and as many draws, put together.

    All of them are draws of the mixture g of the ways, with the densities f_a, and of the model t / Z, under which
    ``(t / Z) / g`` has the mean 1: Bennett's equation. So has ``f_a / g`` of every way: such means tell how the chance
    in the sample of modes has changed the first, which the regression on them takes out (Owen and Zhou, "Safe and
    effective importance sampling", Journal of the American Statistical Association 95, 2000).
    """

    def __init__(self, inverse: FloatArray) -> None:
        count = inverse.shape[1] // 2
        self.inverse = inverse
        self.forward = _mix(inverse[:, :count])
        self.backward = -_mix(inverse[:, count:])
        groups = _groups(count, count // len(inverse))
        self.groups = np.concatenate([groups, groups])
        self._of_mixture = -_mix(inverse)
        self.start = bennett(self.forward, self.backward)
        target, controls = self._ratios(self.start)
        means = np.stack([self._means(values) for values in (target, *controls)])
        centered = means - means.mean(axis=1, keepdims=True)
        self._slopes = np.linalg.lstsq(centered[1:].T, centered[0], rcond=1e-6)[0]

    def _means(self, values: FloatArray) -> FloatArray:
        """The mean of every group."""
        return np.asarray(np.bincount(self.groups, values) / np.bincount(self.groups))

    def _ratios(self, log_z: float) -> tuple[FloatArray, FloatArray]:
        """``(t / Z) / g`` (2 C,), and the differences of ``f_a / g`` of every further way and the first."""
        both = np.logaddexp(self._of_mixture, -log_z) - math.log(2.0)
        shares = np.exp(self.inverse - both)
        return np.exp(-log_z - both), shares[1:] - shares[0]

    def solve(self, without: int | None = None) -> float:
        """Log Z, from all groups or without one of them."""
        kept = slice(None) if without is None else self.groups != without

        def excess(guess: float) -> float:
            """By how much the mean ratio is above 1, which falls with the guess."""
            target, controls = self._ratios(guess)
            return float(target[kept].mean() - 1.0 - self._slopes @ controls[:, kept].mean(axis=1))

        return _root(excess, self.start, self.start)


def combine(inverse: FloatArray, num_models: int, place: str) -> LogZ:
    """Log Z from what :meth:`Annealer.round` gives."""
    pooled = _Pooled(inverse)
    forward = pooled.forward
    backward = pooled.backward
    groups = pooled.groups[: len(forward)]
    left_out = []  # the jackknife over groups of chains
    for group in range(NUM_GROUPS):
        others = groups != group
        left_out.append((pooled.solve(group), _log_mean(forward[others]), -_log_mean(backward[others])))
    errors = np.sqrt((NUM_GROUPS - 1) * np.var(left_out, axis=0))
    lower = _log_mean(forward)
    upper = -_log_mean(backward)
    apart = abs(upper - lower) / max(1e-12, math.hypot(errors[1], errors[2]))
    sure = errors[0] <= MAX_STD_ERROR and (apart <= MAX_DISAGREEMENT or abs(upper - lower) < 1e-3)
    effective = float(np.exp(2 * _log_mean(forward) - _log_mean(2 * forward)))
    stats: dict[str, Any] = {
        "num_models": num_models,
        "num_chains": len(forward),
        "num_ways": len(inverse),
        "effective_share": effective,
        "std_errors_of_both_directions": [float(errors[1]), float(errors[2])],
    }
    status = Status.OK if sure else Status.NOT_MIXED
    return LogZ(pooled.solve(), "estimate", float(errors[0]), "annealing", (lower, upper), status, place, stats)
