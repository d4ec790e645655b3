"""Maximum likelihood with moments from persistent chains (Younes 1989; in a set that mixes fast, Domke 2015).

Chains go on from step to step while the parameters change. Steps are those of accelerated (projected, proximal)
gradient descent in scaled coordinates with a fixed step: one over the largest curvature, which is measured. They come
in phases of growing length; the mean of the iterates of a phase is where the next one begins, and the mean of the
gradients, far less noisy than one of them, says how good it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._clock import Clock, OutOfTimeError
from fastmix.chains.base import Chains
from fastmix.errors import ResourceError
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.data import MISSING, Dataset
from fastmix.learning.objectives import DataTerm
from fastmix.learning.optimise import Ball, Scaling, shrink_tables
from fastmix.model import MarkovRandomField
from fastmix.theory.certificates import bias_after

__all__ = ["Sampled", "largest_curvature", "sampled_likelihood"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_MOMENTUM = 0.9
_FIRST_PHASE = 50  # steps
_GROWTH = 1.6
_ROWS = 4096  # of the data, for the curvature
_LAGS = (1, 2, 4, 8, 16, 32, 64, 128)  # sweeps at which correlations of the energies are measured
_CORRELATED = 0.5  # of energies a step apart, from which on steps get longer
_MOST_SWEEPS = 64  # per step
_NOT_MIXED = 0.3  # correlation after the longest lag from which on chains do not follow


@dataclass
class Sampled:
    """What the chains gave."""

    v: FloatArray
    residual: float
    moment_error: float
    num_steps: int
    stopped_by: str
    mixed: bool
    bias_bound: float | None
    sweeps_per_step: int
    correlations: dict[int, float]
    states: IntArray
    history: list[dict[str, Any]] = field(default_factory=list)


def largest_curvature(coordinates: Coordinates, scaling: Scaling, data: Dataset, ridge: float) -> float:
    """The largest eigenvalue of the Hessian in scaled coordinates, at a model with the moments of the data."""
    step = max(1, len(data.states) // _ROWS)
    y, weights = coordinates.encode(data.states[::step]), data.weights[::step]
    weights = weights / weights.sum()
    d = coordinates.num_contrasts
    direction = np.random.default_rng(0).standard_normal(coordinates.size)
    value = 1.0
    for _ in range(30):
        direction /= np.linalg.norm(direction)
        v = scaling.to_v(direction)
        energies = y @ v[:d] + 0.5 * np.einsum("rk,rk->r", y @ coordinates.matrix(v), y)
        energies = weights * (energies - weights @ energies)
        image = coordinates.gather(energies @ y, y.T @ (energies[:, None] * y))
        direction = scaling.pull(image + ridge * v)
        before, value = value, float(np.linalg.norm(direction))
        if abs(value - before) < 0.01 * value:
            break
    return 1.1 * value


def sampled_likelihood(
    template: MarkovRandomField,
    chains: Chains,
    data: Dataset,
    data_term: DataTerm,
    v: FloatArray,
    scaling: Scaling,
    *,
    ridge: float,
    l1: float,
    ball: Ball | None,
    certified: bool,
    tol: float,
    max_iter: int,
    rng: np.random.Generator,
    clock: Clock,
    report: Callable[[dict[str, Any]], None] | None,
) -> Sampled:
    """The maximum of the (penalised) likelihood by persistent chains, from v on.

    It ends once the largest entry of the gradient in moments, averaged over a phase, is below ``tol``.
    """
    run = _Run(template, chains, data, data_term, scaling, ridge, l1, ball, certified, clock)
    run.start(rng)
    result = Sampled(v, math.inf, math.inf, 0, "max_iter", False, None, 1, {}, chains.get_states())
    z = scaling.from_v(v if ball is None else ball(v))
    length = _FIRST_PHASE
    try:
        while result.num_steps < max_iter:
            steps = min(length, max_iter - result.num_steps)
            z, gradient, moments, done = run.phase(z, steps)
            result.num_steps += done
            z, residual = run.finish(z, gradient)
            run.note_mixing(scaling.to_v(z))
            _take(result, run, scaling.to_v(z), residual, moments)
            result.history.append(
                {
                    "iteration": result.num_steps, "gradient_norm": residual, "moment_error": result.moment_error,
                    "step": run.step, "sweeps_per_step": run.sweeps, "bias_bound": run.bias,
                    "seconds": clock.seconds(),
                }  # fmt: skip
            )
            if report is not None:
                report(result.history[-1])
            if run.stopped:
                result.stopped_by = run.stopped
                break
            if residual <= tol and result.num_steps > _FIRST_PHASE:
                result.stopped_by = "done"
                break
            length = int(_GROWTH * length)
    except OutOfTimeError:
        result.stopped_by = "time_limit"
    except KeyboardInterrupt:
        result.stopped_by = "interrupt"
    if not math.isfinite(result.residual):
        raise ResourceError("the time limit ended learning before the first steps were made: allow more time")
    return result


def _take(result: Sampled, run: _Run, v: FloatArray, residual: float, moments: FloatArray) -> None:
    result.v, result.residual = v, residual
    observed = run.data_term.evaluate(v)[1]
    result.moment_error = float(np.abs(run.to_moments(moments - observed)).max(initial=0.0))
    result.mixed, result.bias_bound, result.sweeps_per_step = run.mixed, run.bias, run.sweeps
    result.correlations, result.states = run.correlations, run.chains.get_states()


class _Run:
    """Chains, parameters and step of a run."""

    def __init__(
        self, template: MarkovRandomField, chains: Chains, data: Dataset, data_term: DataTerm, scaling: Scaling,
        ridge: float, l1: float, ball: Ball | None, certified: bool, clock: Clock,
    ) -> None:  # fmt: skip
        self.template, self.chains, self.data, self.data_term = template, chains, data, data_term
        self.scaling, self.coordinates = scaling, scaling.coordinates
        self.ridge, self.l1, self.ball, self.certified, self.clock = ridge, l1, ball, certified, clock
        self.step = 1.0 / max(1e-12, largest_curvature(self.coordinates, scaling, data, ridge))
        self.sweeps, self.bias, self.mixed, self.stopped = 1, None, True, ""
        self.bias: float | None
        self.correlations: dict[int, float] = {}
        self.order = template.structure.visit_order[0].astype(np.int64)
        # A sampled moment has at most this standard error; a bias below it does no harm.
        self.noise = 0.5 / math.sqrt(chains.num_chains)

    def start(self, rng: np.random.Generator) -> None:
        """Chains at rows of the data; what is missing there is drawn evenly."""
        counts = self.template.num_states
        chosen = rng.choice(len(self.data.states), size=self.chains.num_chains, p=self.data.weights)
        states = self.data.states[chosen].astype(np.int64)
        fill = np.floor(rng.random(states.shape) * counts).astype(np.int64)
        self.chains.set_states(np.where(states == MISSING, np.minimum(fill, counts - 1), states))

    def phase(self, z: FloatArray, steps: int) -> tuple[FloatArray, FloatArray, FloatArray, int]:
        """Steps from z on: means of the iterates, of the gradients and of the model's moments, and the steps made."""
        size = len(z)
        total_z, total_gradient, total_moments = np.zeros(size), np.zeros(size), np.zeros(size)
        ahead, done = z, 0
        try:
            for k in range(steps):
                v = self.scaling.to_v(ahead)
                moments = self.moments(v)
                gradient = self.scaling.pull(moments - self.data_term.evaluate(v)[1] + self.ridge * v)
                new = self.backward(ahead - self.step * gradient)
                # Iterates of the first fifth remember the last phase.
                if k >= steps // 5:
                    total_z += ahead
                    total_gradient += gradient
                    total_moments += moments
                    done += 1
                ahead = new + _MOMENTUM * (new - z)
                z = new
                self.clock.check()
        except OutOfTimeError:
            self.stopped = "time_limit"
        except KeyboardInterrupt:
            self.stopped = "interrupt"
        if not done:
            raise OutOfTimeError if self.stopped == "time_limit" else KeyboardInterrupt
        return total_z / done, total_gradient / done, total_moments / done, steps if not self.stopped else done

    def moments(self, v: FloatArray) -> FloatArray:
        """Moments of the model at v from the chains, moved there."""
        theta = self.coordinates.to_parameters(v)
        if self.certified:
            self.bound(theta)
        self.chains.load(theta)
        self.chains.sweep(self.sweeps)
        return self.coordinates.from_gradient(self.chains.moments())

    def bound(self, theta: FloatArray) -> None:
        """The bound on the bias of every moment after the sweeps of a step, from any start; more sweeps if needed."""
        model = self.template.with_parameters(theta)
        while True:
            delta = bias_after(model, self.sweeps, order=self.order)
            i, j = model.edges.T
            self.bias = float(max(delta.max(initial=0.0), np.minimum(1.0, delta[i] + delta[j]).max(initial=0.0)))
            if self.bias <= self.noise or self.sweeps >= 100_000:
                return
            self.sweeps = max(self.sweeps + 1, int(1.25 * self.sweeps))

    def backward(self, z: FloatArray) -> FloatArray:
        """The proximal part of a step."""
        if self.ball is not None:
            return self.scaling.from_v(self.ball(self.scaling.to_v(z)))
        if self.l1:
            d = self.coordinates.num_contrasts
            return shrink_tables(self.coordinates, z, self.l1 * self.step * self.scaling.scales[d:])
        return z

    def finish(self, z: FloatArray, gradient: FloatArray) -> tuple[FloatArray, float]:
        """A step with the mean gradient (its noise is small), and the largest entry of the gradient in moments."""
        new = self.backward(z - self.step * gradient)
        if self.ball is None and not self.l1:
            moved = gradient
        else:
            moved = (z - new) / self.step
        # Back to the units of moments: the inverse of pull, for centred features.
        return new, float(np.abs(self.to_moments(moved / self.scaling.scales)).max(initial=0.0))

    def to_moments(self, gradient: FloatArray) -> FloatArray:
        """A difference of moments in contrasts as one of probabilities of states and pairs."""
        return self.coordinates.to_probabilities(gradient)

    def note_mixing(self, v: FloatArray) -> None:
        """Correlations of the energies of the chains some sweeps apart, and what follows for the sweeps per step."""
        self.chains.load(self.coordinates.to_parameters(v))
        self.chains.sweep(1)
        first = self.chains.energies()[0]
        done, self.correlations = 0, {}
        for lag in _LAGS:
            self.chains.sweep(lag - done)
            done = lag
            self.correlations[lag] = _correlation(first, self.chains.energies()[0])
            if self.correlations[lag] < 0.1:
                break
        self.mixed = self.certified or self.correlations[done] < _NOT_MIXED
        if not self.certified:
            short = [lag for lag, value in self.correlations.items() if value < _CORRELATED]
            self.sweeps = min(_MOST_SWEEPS, max(self.sweeps // 2, short[0] if short else 2 * self.sweeps))


def _correlation(a: FloatArray, b: FloatArray) -> float:
    spread = float(a.std() * b.std())
    return 0.0 if spread == 0.0 else float(np.mean((a - a.mean()) * (b - b.mean()))) / spread
