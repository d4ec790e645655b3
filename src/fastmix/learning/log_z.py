"""Log Z of a model for data: exact where that is feasible, otherwise by annealing there and back, with an error."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fastmix._arrays import FloatArray
from fastmix._clock import NO_LIMIT, Clock, OutOfTimeError
from fastmix.chains.annealing import Annealing, make_pool, systematic
from fastmix.chains.base import Chains
from fastmix.errors import ResourceError
from fastmix.exact.solver import plan_exact
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.data import MISSING, Dataset
from fastmix.learning.objectives import Enumerated
from fastmix.model import MarkovRandomField
from fastmix.results import Status

__all__ = ["NUM_GROUPS", "LogZ", "independent_parameters", "log_normaliser", "obstacle"]

NUM_GROUPS = 32  # of chains, for standard errors
_MOST_CONFIGURATIONS = 1 << 22
_EXACT_SECONDS = 20.0  # that exact log Z may take where nothing was asked for
# Models on the way of the first, short run, which finds where to put those of the next, and at most how many these are.
_PILOT, _FIRST = 60, 300
_ANNEALED_SHARE = 0.3  # of a time limit, after which no longer run is begun
_BETTER = 0.3  # by which log Z from the uniform model must be larger for the way to begin there
_DISAGREE = 4.0  # standard errors between the two directions from which on they do not agree
_RELIABLE = 0.1  # standard error of log Z above which a status cannot be ok


@dataclass(frozen=True)
class LogZ:
    """Log Z, its standard error, and how it was found."""

    log_z: float
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
    """Log Z of a model, exact where that is feasible, else by annealing from an independent model."""
    if method != "annealing":
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
        plan = plan_exact(model, clock=clock)
        if not asked and plan.seconds > min(_EXACT_SECONDS, 0.3 * clock.left()):
            return None
        return LogZ(float(plan.run(clock).log_z or 0.0), method="junction tree")
    except ResourceError:
        if asked:
            raise
        return None


def independent_parameters(model: MarkovRandomField, data: Dataset) -> FloatArray:
    """Parameters of the independent model with the (smoothed) marginals of the data; its log Z is 0."""
    theta = np.zeros(model.num_parameters)
    for i, count in enumerate(model.num_states.tolist()):
        seen = data.states[:, i] != MISSING
        counts = np.bincount(data.states[seen, i], data.weights[seen], minlength=count)
        shares = counts / counts.sum() if counts.any() else np.full(count, 1.0 / count)
        theta[model.unary_offsets[i] : model.unary_offsets[i + 1]] = np.log(0.99 * shares + 0.01 / count)
    return theta


def _annealed(
    model: MarkovRandomField, data: Dataset, tol: float, num_chains: int, seed: int, clock: Clock, backend: str
) -> LogZ:
    chains, place = make_pool(model, backend, num_chains=num_chains, seed=seed)
    chains.clock = clock
    rng = np.random.default_rng([seed, 1])
    steps = np.linspace(0.0, 1.0, _PILOT + 1)
    result: LogZ | None = None
    rounds = 0
    try:
        thetas, forward, spreads = _pilot(chains, model, data, steps)
        while True:
            if rounds:
                forward, spreads = _move(chains, thetas, steps, back=False)
                chosen, _ = systematic(forward[None], rng)
                chains.take(chosen.reshape(-1))
                chains.load(thetas, np.array([[0.0, 1.0]]))
                chains.sweep(max(20, len(steps) // 4))
                backward, _ = _move(chains, thetas, steps, back=True)
                result = _combine(forward, backward, len(steps) - 1, place)
                clock.report(rounds, None, "rounds", details={"log_z": result.log_z, "std_error": result.std_error})
                good = result.std_error <= tol and result.status is Status.OK
                late = clock.past(_ANNEALED_SHARE)
                if good or late or len(steps) > 10_000:
                    stopped_by = "accuracy" if good else "time_limit" if late else "done"
                    break
            rounds += 1
            # The next models are closer together where the log-weights of the chains differ more.
            lengths = np.concatenate([[0.0], np.cumsum(np.maximum(spreads, 1e-3 * spreads.max()) * np.diff(steps))])
            count = 2 * (len(steps) - 1)
            if result is None:
                # Log-weights differ by one over the square root of the models on the way: as many as they should.
                ratio = float(np.std(forward)) / min(1.0, tol * math.sqrt(num_chains))
                count = int(np.clip(_PILOT * ratio**2, min(_FIRST, max(_PILOT, 3.0 / tol)), _FIRST))
            elif result.std_error > 2 * tol:
                count *= 2
            steps = np.interp(np.linspace(0.0, lengths[-1], count + 1), lengths, steps)
    except OutOfTimeError:
        if result is None:
            raise ResourceError("the time limit ended the annealing before log Z was known: allow more time") from None
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


def _pilot(
    chains: Chains, model: MarkovRandomField, data: Dataset, steps: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Both ends of the way, the first being the better of two, and what chains that go there find.

    The independent model of the data is close to a model of these data; where they are all of one mode, the uniform one
    reaches the others. Means of weights fall short of Z more often than not: the larger one is the better.
    """
    uniform = np.zeros(model.num_parameters)
    uniform[: len(model.log_unary)] = np.repeat(-np.log(model.num_states), model.num_states)
    found = []
    for first in (uniform, independent_parameters(model, data)):
        thetas = np.stack([first, model.parameters])
        found.append((thetas, *_move(chains, thetas, steps, back=False)))
    return found[0] if _log_mean(found[0][1]) > _log_mean(found[1][1]) + _BETTER else found[1]


def _move(chains: Chains, thetas: FloatArray, steps: FloatArray, *, back: bool) -> tuple[FloatArray, FloatArray]:
    """Log-weights (C,) of chains that go from one end to the other, and spreads of the log-odds on the way."""
    path = steps[::-1] if back else steps
    run = Annealing(chains, thetas, [1.0 - path[0], path[0]])
    if not back:
        chains.sweep(1)  # draws from the independent model, from any start
    spreads = np.empty(len(path) - 1)
    for k, share in enumerate(path[1:]):
        before = run.log_weights.copy()
        run.move([1.0 - share, share])
        spreads[k] = np.std(run.log_weights - before) / max(1e-12, abs(path[k + 1] - path[k]))
    return run.log_weights, spreads


def _log_mean(log_weights: FloatArray) -> float:
    return float(np.logaddexp.reduce(log_weights)) - math.log(len(log_weights))


def _bennett(forward: FloatArray, backward: FloatArray) -> float:
    """Log Z_1 / Z_0 from log-weights of both directions: the root of Bennett's equation."""
    from scipy.optimize import brentq

    def excess(guess: float) -> float:
        up = np.exp(-np.logaddexp(0.0, guess - forward)).mean()  # f(w - guess), from the first model
        return float(up - np.exp(-np.logaddexp(0.0, -guess - backward)).mean())

    low, high = sorted((_log_mean(forward), -_log_mean(backward)))
    low, high = low - 5.0, high + 5.0
    while excess(low) < 0.0:
        low -= high - low
    while excess(high) > 0.0:
        high += high - low
    return float(brentq(excess, low, high, xtol=1e-10))


def _combine(forward: FloatArray, backward: FloatArray, num_models: int, place: str) -> LogZ:
    value = _bennett(forward, backward)
    groups = np.arange(len(forward)) * NUM_GROUPS // len(forward)
    left_out = []
    for g in range(NUM_GROUPS):
        f, b = forward[groups != g], backward[groups != g]
        left_out.append((_bennett(f, b), _log_mean(f), -_log_mean(b)))
    errors = np.sqrt((NUM_GROUPS - 1) * np.var(left_out, axis=0))
    lower, upper = _log_mean(forward), -_log_mean(backward)
    apart = abs(upper - lower) / max(1e-12, math.hypot(errors[1], errors[2]))
    sure = errors[0] <= _RELIABLE and (apart <= _DISAGREE or abs(upper - lower) < 1e-3)
    effective = float(np.exp(2 * _log_mean(forward) - _log_mean(2 * forward)))
    stats: dict[str, Any] = {"num_models": num_models, "num_chains": len(forward), "effective_share": effective}
    stats["std_errors_of_both_directions"] = [float(errors[1]), float(errors[2])]
    status = Status.OK if sure else Status.NOT_MIXED
    return LogZ(value, float(errors[0]), "annealing", (lower, upper), status, place, stats)


def obstacle(model: MarkovRandomField) -> str | None:
    """What a model has that learnt ones have not."""
    if model.num_factors:
        return "larger factors"
    return "forbidden states or pairs" if model.has_forbidden else None
