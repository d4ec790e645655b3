"""Log Z of a model for data: exact where that is feasible, otherwise by annealing there and back, with an error."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock, OutOfTimeError
from fastmix._memory import check_memory
from fastmix.chains.annealing import Annealing, make_pool, systematic
from fastmix.chains.base import Chains
from fastmix.errors import ResourceError
from fastmix.exact.solver import plan_exact
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.data import MISSING, Dataset
from fastmix.learning.objectives import Enumerated
from fastmix.model import MarkovRandomField
from fastmix.model.build import offsets_of
from fastmix.model.structure import Structure
from fastmix.results import Status

__all__ = [
    "NUM_GROUPS", "LogZ", "independent_parameters", "log_normaliser", "lower_bound", "observed_shares", "obstacle",
]  # fmt: skip

NUM_GROUPS = 32  # of chains, for standard errors
_MOST_CONFIGURATIONS = 1 << 22
# Seconds that exact log Z may take where nothing was asked for, and the share of a limit that planning and, as it is
# estimated, running may take; twice as much if the estimate is wrong.
_COUNTED = 1 << 22  # states of data counted at a time
# Seconds that it takes to make chains, for every entry of a table; and edges of chains that a core is through with in a
# second at most.
_MAKE_SECONDS, _PAIRS_PER_SECOND = 2e-7, 2e9
_EXACT_SECONDS, _EXACT_SHARE = 20.0, 0.3
# Models on the way of the first, short run, which finds where to put those of the next, and at most how many these are.
_PILOT, _FIRST = 60, 300
_ANNEALED_SHARE = 0.3  # of a time limit, after which no longer run is begun
_FIRST_SHARE = 0.5  # of the time left that the first round may take, by the time of the pilot
_MOST_MODELS = 10_000  # beyond which there is no further round
_CHAIN_BYTES = 24.0  # of a chain for every variable, with all copies that are made of its states
_HOPELESS = 20.0  # by which log Z of a way is smaller than that of another for it to be left out
_DISAGREE = 4.0  # standard errors between the two directions from which on they do not agree
_RELIABLE = 0.1  # standard error of log Z above which a status cannot be ok


@dataclass(frozen=True)
class LogZ:
    """Log Z, what is known of it (as in results), its standard error, and how it was found."""

    log_z: float
    kind: str = "exact"
    std_error: float = 0.0
    method: str = "enumeration"
    bracket: tuple[float, float] | None = None
    status: Status = Status.OK
    place: str = "cpu"  # where chains ran
    stats: Mapping[str, Any] = field(default_factory=dict)


def log_normaliser(
    model: MarkovRandomField,
    data: Dataset,
    *,
    method: str = "auto",
    tol: float = 0.01,
    num_chains: int = 1024,
    seed: int = 0,
    clock: Clock = NO_LIMIT,
    backend: str = "cpu",
) -> LogZ:
    """Log Z of a model: exact where that is feasible, else by annealing, or a lower bound if the time ends before."""
    model = without_idle_tables(model)
    if method != "annealing" or not model.num_edges:
        exact = _exact(model, clock, asked=method == "exact")
        if exact is not None:
            return exact
    if what := obstacle(model):
        why = "" if method == "annealing" else ", which is too large"
        raise ResourceError(f"log Z of a model with {what} needs exact inference{why}")
    return _annealed(model, data, tol, num_chains, seed, clock, backend)


def _exact(model: MarkovRandomField, clock: Clock, *, asked: bool) -> LogZ | None:
    few = float(np.log2(model.num_states).sum()) <= math.log2(_MOST_CONFIGURATIONS) + 1e-9
    if few and not obstacle(model):
        coordinates = Coordinates(model.structure)
        v, constant = coordinates.from_parameters(model.parameters)
        return LogZ(Enumerated(coordinates).evaluate(v)[0] + constant + model.log_constant)
    try:
        plan = plan_exact(model, clock=clock if asked else clock.part(_EXACT_SHARE))
        if not asked and plan.seconds > min(_EXACT_SECONDS, _EXACT_SHARE * clock.left()):
            return None
        log_z = plan.run(clock if asked else clock.part(2.0 * _EXACT_SHARE), edge_marginals=False).log_z
        log_z = -math.inf if log_z is None else float(log_z)
        return LogZ(log_z, "exact" if log_z > -math.inf else "zero", method="junction tree")
    except ResourceError:
        if asked:
            raise
        return None


def without_idle_tables(model: MarkovRandomField) -> MarkovRandomField:
    """The same model without the tables that have the same number everywhere, which is added to the constant."""
    if model.num_factors or not model.num_edges:
        return model
    starts = model.pairwise_offsets[:-1]
    first = model.log_pairwise[starts]
    idle = (np.maximum.reduceat(model.log_pairwise, starts) == first) & np.isfinite(first)
    idle &= np.minimum.reduceat(model.log_pairwise, starts) == first
    if not idle.any():
        return model
    entries = np.repeat(~idle, np.diff(model.pairwise_offsets))
    constant = model.log_constant + math.fsum(first[idle].tolist())
    return MarkovRandomField(
        model.num_states, model.log_unary, model.edges[~idle], model.log_pairwise[entries], constant
    )


def lower_bound(model: MarkovRandomField, data: Dataset) -> LogZ:
    """A number that log Z is not below, by Gibbs and Bogoliubov: mean log-weight plus entropy of independent models.

    These are the uniform one and that of the data, in the time that it takes to read the parameters once.
    """
    found = []
    for theta in (uniform_parameters(model), independent_parameters(model, data)):
        logs = theta[: len(model.log_unary)]
        p = np.exp(logs)
        value = float(p @ (model.log_unary - logs))
        for rows, cols, edges in model.structure.table_shapes:
            i, j = (model.unary_offsets[model.edges[edges, side]][:, None] for side in (0, 1))
            tables = model.log_pairwise[model.pairwise_offsets[edges][:, None] + np.arange(rows * cols)]
            tables = tables.reshape(-1, rows, cols)
            value += float(np.einsum("eab,ea,eb->", tables, p[i + np.arange(rows)], p[j + np.arange(cols)]))
        found.append(value + model.log_constant)
    return LogZ(
        max(found), "bound", math.inf, "lower bound", status=Status.TIME_LIMIT, stats={"stopped_by": "time_limit"}
    )


def uniform_parameters(model: MarkovRandomField) -> FloatArray:
    """Parameters of the model of equally probable configurations; its log Z is 0."""
    theta = np.zeros(model.num_parameters)
    theta[: len(model.log_unary)] = np.repeat(-np.log(model.num_states), model.num_states)
    return theta


def independent_parameters(model: MarkovRandomField, data: Dataset) -> FloatArray:
    """Parameters of the independent model with the (smoothed) marginals of the data; its log Z is 0."""
    theta = np.zeros(model.num_parameters)
    shares, seen = observed_shares(data)
    uniform = 1.0 / np.repeat(model.num_states, model.num_states)
    shares = np.where(np.repeat(seen > 0.0, model.num_states), shares, uniform)
    theta[: len(shares)] = np.log(0.99 * shares + 0.01 * uniform)
    return theta


def observed_shares(data: Dataset) -> tuple[FloatArray, FloatArray]:
    """Shares (S,) of the states of every variable in turn among observed values, and the weight (n,) of these."""
    offsets = offsets_of(data.num_states)
    starts, num_entries = offsets[:-1], int(offsets[-1])
    if not num_entries:
        return np.zeros(0), np.zeros(0)
    counts = np.zeros(num_entries)
    most = max(1, _COUNTED // len(starts))
    for first in range(0, len(data.states), most):
        rows = data.states[first : first + most]
        seen = rows != MISSING
        entries = (rows + starts)[seen]
        weights = np.broadcast_to(data.weights[first : first + most, None], rows.shape)[seen]
        counts += np.bincount(entries, weights, minlength=num_entries)
    seen_weights = np.add.reduceat(counts, starts)
    totals = seen_weights.repeat(data.num_states)
    return np.divide(counts, totals, out=np.zeros(num_entries), where=totals > 0.0), seen_weights


def _turned(structure: Structure) -> Structure:
    """The same structure with sweeps in the opposite order, which undo those of the structure in equilibrium."""
    turned = Structure(structure.num_states, structure.edges, structure.scope_starts, structure.scope_variables)
    order, starts = structure.visit_order
    known = vars(structure)  # with all that has been computed once, which does not depend on the order
    reverse = np.ascontiguousarray(order[::-1]), np.ascontiguousarray(starts[-1] - starts[::-1])
    vars(turned).update({**known, "visit_order": reverse})
    return turned


@dataclass
class _Way:
    """A line of models from one with log Z = 0 to the target."""

    thetas: FloatArray  # (2, P), of both ends
    steps: FloatArray = field(default_factory=lambda: np.linspace(0.0, 1.0, _PILOT + 1))  # where the models stand
    spreads: FloatArray = field(default_factory=lambda: np.ones(_PILOT))  # of the log-odds of chains between them
    log_weights: FloatArray = field(default_factory=lambda: np.zeros(0))  # of the chains that came to its end

    def space(self, count: int) -> None:
        """Put so many models on the way, closer together where the log-weights of the chains differ more."""
        spreads = np.maximum(self.spreads, max(1e-3 * self.spreads.max(), 1e-12))
        lengths = np.concatenate([[0.0], np.cumsum(spreads * np.diff(self.steps))])
        self.steps = np.interp(np.linspace(0.0, lengths[-1], count + 1), lengths, self.steps)


class _Annealer:
    """Chains that go along several ways to one model, and back, as draws from a mixture of what ends the ways.

    A model can have modes that one way finds and another does not. Let a chain have come along way a to the
    configuration x with the weight w_a, and let further chains from x go back along all other ways, with the weights
    1 / w_b. With the shares s of the chains on the ways, ``W = 1 / sum_b s_b / w_b`` has the mean Z: it is the weight
    of x and of all these paths together under the mixture of the ways, which finds what any of them does. Back from
    draws of the model ``1 / W`` has the mean 1 / Z. Sweeps back are made in the opposite order, so that both are exact.
    """

    def __init__(
        self, model: MarkovRandomField, data: Dataset, backend: str, num_chains: int, seed: int, clock: Clock
    ) -> None:  # fmt: skip
        self.rng = np.random.default_rng([seed, 1])
        self.ways = [
            _Way(np.stack([first, model.parameters]))
            for first in (uniform_parameters(model), independent_parameters(model, data))
        ]
        self._make = partial(make_pool, model, backend)
        self._num_chains, self._seed, self._clock = num_chains, seed, clock
        self._seconds_of_a_step = 0.0  # of one chain from one model to the next, as the pilot found it
        self._structure = model.structure
        self._state_type = np.min_scalar_type(int(model.num_states.max(initial=1)))
        self._prepare()

    def _prepare(self) -> None:
        """Make the chains, as many for every way."""
        each = self._num_chains // len(self.ways)
        self.ahead, self.place = self._make(num_chains=each, seed=self._seed)
        self.back, _ = self._make(num_chains=each, seed=self._seed + 1, structure=_turned(self._structure))
        self.ahead.clock = self.back.clock = self._clock

    def go_ahead(self, way: _Way) -> None:
        """Chains go along one way, from draws of its first model, which a sweep makes of anything."""
        way.log_weights, way.spreads = _move(self.ahead, way.thetas, way.steps)

    def pilot(self) -> None:
        """Look at all ways, and leave those out that are much worse than another."""
        begun = self._clock.used()
        for way in self.ways:
            self.go_ahead(way)
        passes = self.ahead.num_chains * len(self.ways) * _PILOT
        self._seconds_of_a_step = (self._clock.used() - begun) / passes
        means = [_log_mean(way.log_weights) for way in self.ways]
        kept = [way for way, mean in zip(self.ways, means, strict=True) if mean > max(means) - _HOPELESS]
        if len(kept) < len(self.ways):
            self.ways = kept
            self._prepare()

    def count_in(self, seconds: float) -> int:
        """How many models on every way a round of :meth:`round` passes in so many seconds, by the time of the pilot."""
        num_ways = len(self.ways)
        # Ahead and back along the other ways for all chains of a way, and back along all ways for as many draws.
        passes = 2 * self.ahead.num_chains * num_ways**2
        return int(min(_MOST_MODELS, seconds / max(1e-12, passes * self._seconds_of_a_step)))

    def round(self) -> FloatArray:
        """Negative log-weights (ways, 2 C): of chains that came to the model, first those of the first way, and draws.

        What came along one way went back along the others, what was drawn along all of them.
        """
        ahead, states = [], []
        for way in self.ways:
            self.go_ahead(way)
            states.append(self.ahead.get_states().astype(self._state_type))
            back = [-way.log_weights if w is way else self._go_back(w, states[-1]) for w in self.ways]
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

    def _go_back(self, way: _Way, states: IntArray) -> FloatArray:
        """Log-weights of chains that go back along a way from these states."""
        self.back.set_states(states)
        return _move(self.back, way.thetas, way.steps[::-1])[0]


def _annealed(
    model: MarkovRandomField, data: Dataset, tol: float, num_chains: int, seed: int, clock: Clock, backend: str
) -> LogZ:
    result: LogZ | None = None
    rounds = 0
    required = _CHAIN_BYTES * num_chains * model.num_variables
    check_memory(required, f"num_chains {num_chains} of {model.num_variables:,} variables", "take fewer chains")
    if _is_hopeless(model, num_chains, clock, backend):
        return lower_bound(model, data)
    try:
        run = _Annealer(model, data, backend, num_chains, seed, clock)
        run.pilot()
        # Log-weights differ by one over the square root of the models on the way: as many as they should.
        best = max(run.ways, key=lambda way: _log_mean(way.log_weights))
        ratio = float(np.std(best.log_weights)) / min(1.0, tol * math.sqrt(num_chains))
        count = int(np.clip(_PILOT * ratio**2, min(_FIRST, max(_PILOT, 3.0 / tol)), _FIRST))
        # A first round that does not end in time would leave a bound; a shorter one has an error, if a larger one.
        count = min(count, max(_PILOT, run.count_in(_FIRST_SHARE * clock.left())))
        while True:
            begun = clock.used()
            for way in run.ways:
                way.space(count)
            result = _combine(run.round(), count, run.place)
            rounds += 1
            clock.report(rounds, None, "rounds", details={"log_z": result.log_z, "std_error": result.std_error})
            good = result.std_error <= tol and result.status is Status.OK
            more = 4 if result.std_error > 2 * tol else 2
            # A round that the limit cuts off is lost, and the verdict of the one before with it.
            late = clock.past(_ANNEALED_SHARE) or more * (clock.used() - begun) > clock.left()
            if good or late or count > _MOST_MODELS:
                stopped_by = "accuracy" if good else "time_limit" if late else "done"
                break
            count *= more
    except OutOfTimeError:
        if result is None:
            return lower_bound(model, data)
        result = replace(result, status=Status.TIME_LIMIT if result.status is Status.OK else result.status)
        stopped_by = "time_limit"
    except KeyboardInterrupt:
        if result is None:
            raise
        result, stopped_by = replace(result, status=Status.INTERRUPTED), "interrupt"
    low, high = result.bracket or (math.nan, math.nan)
    k = model.log_constant
    stats = {"stopped_by": stopped_by, **result.stats}
    return replace(result, log_z=result.log_z + k, bracket=(low + k, high + k), stats=stats)


def _is_hopeless(model: MarkovRandomField, num_chains: int, clock: Clock, backend: str) -> bool:
    """Whether not even the first, short run can end in time, nor, with few chains, what has to be made for it."""
    if clock.limit is None:
        return False
    entries = len(model.log_pairwise)
    seconds = _MAKE_SECONDS * entries
    if backend == "cpu":
        seconds += _PILOT * num_chains * model.num_edges / (_PAIRS_PER_SECOND * (os.cpu_count() or 1))
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
    return float(np.logaddexp.reduce(log_weights)) - math.log(len(log_weights))


def _bennett(forward: FloatArray, backward: FloatArray) -> float:
    """Log Z_1 / Z_0 from log-weights of both directions: the root of Bennett's equation."""

    def excess(guess: float) -> float:
        up = np.exp(-np.logaddexp(0.0, guess - forward)).mean()  # f(w - guess), from the first model
        return float(up - np.exp(-np.logaddexp(0.0, -guess - backward)).mean())

    return _root(excess, *sorted((_log_mean(forward), -_log_mean(backward))))


def _root(excess: Callable[[float], float], low: float, high: float) -> float:
    """Where a falling function is 0, near two values."""
    from scipy.optimize import brentq

    low, high = low - 5.0, high + 5.0
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
        self.inverse, count = inverse, inverse.shape[1] // 2
        self.forward, self.backward = _mix(inverse[:, :count]), -_mix(inverse[:, count:])
        groups = _groups(count, count // len(inverse))
        self.groups = np.concatenate([groups, groups])
        self._of_mixture = -_mix(inverse)
        self.start = _bennett(self.forward, self.backward)
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
            target, controls = self._ratios(guess)
            return float(target[kept].mean() - 1.0 - self._slopes @ controls[:, kept].mean(axis=1))

        return _root(excess, self.start, self.start)


def _combine(inverse: FloatArray, num_models: int, place: str) -> LogZ:
    """Log Z from what :meth:`_Annealer.round` gives."""
    pooled = _Pooled(inverse)
    forward, backward = pooled.forward, pooled.backward
    groups = pooled.groups[: len(forward)]
    left_out = []
    for g in range(NUM_GROUPS):
        f, b = forward[groups != g], backward[groups != g]
        left_out.append((pooled.solve(g), _log_mean(f), -_log_mean(b)))
    errors = np.sqrt((NUM_GROUPS - 1) * np.var(left_out, axis=0))
    lower, upper = _log_mean(forward), -_log_mean(backward)
    apart = abs(upper - lower) / max(1e-12, math.hypot(errors[1], errors[2]))
    sure = errors[0] <= _RELIABLE and (apart <= _DISAGREE or abs(upper - lower) < 1e-3)
    effective = float(np.exp(2 * _log_mean(forward) - _log_mean(2 * forward)))
    stats: dict[str, Any] = {
        "num_models": num_models, "num_chains": len(forward), "num_ways": len(inverse), "effective_share": effective
    }  # fmt: skip
    stats["std_errors_of_both_directions"] = [float(errors[1]), float(errors[2])]
    status = Status.OK if sure else Status.NOT_MIXED
    return LogZ(pooled.solve(), "estimate", float(errors[0]), "annealing", (lower, upper), status, place, stats)


def obstacle(model: MarkovRandomField) -> str | None:
    """What a model has that learnt ones have not."""
    if model.num_factors:
        return "larger factors"
    return "forbidden states or pairs" if model.has_forbidden else None
