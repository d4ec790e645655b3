"""Maximum likelihood with moments from persistent chains (Younes 1989; in a set that mixes fast, Domke 2015).

The chains go on while the parameters change, in rounds. In a round the parameters stay as they are: moments are means
over chains and sweeps, so the gradient has no bias from moving while it is measured. A (proximal) Newton step follows,
with the covariance of the features over the data as the Hessian, which it is at the optimum. The quadratic model also
says how much likelihood is left to gain; two halves of the round tell how much of that is noise, and rounds get longer
when most of it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import Clock
from fastmix.chains.base import Chains
from fastmix.learning.clamped import ClampedRows
from fastmix.learning.data import MISSING, Dataset
from fastmix.learning.log_z import independent_parameters
from fastmix.learning.objectives import DataTerm, Quadratic
from fastmix.learning.optimise import Ball, Report, Scaling, backward, table_cost
from fastmix.learning.resume import Rounds
from fastmix.methods.tempering.rungs import respace
from fastmix.model import MarkovRandomField
from fastmix.theory.bias import bias_after

__all__ = ["Sampled", "autocorrelations", "sampled_likelihood", "start_chains"]


_FIRST_SWEEPS = 8  # of the first round, 32 for larger models, whose steps take longer; more are an even number too
_LARGE, _MANY = 64, 4096  # contrasts, and chains beyond which rounds can be short
_CAUTION = 4.0  # times a promise by the quadratic model: little data make objectives that are far from quadratic
_MOST_SWEEPS, _CONFIRMING_SWEEPS = 1 << 16, 1 << 10  # of a round, and where as little is promised as is asked for
_ROWS = 8192  # of the data, for the Hessian
_ROWS_EACH, _MOST_ROWS = 8, 1 << 16  # configurations for the Hessian: so many for each parameter, and in all
_MOST_CONTRASTS = 1 << 28  # of all rows of the Hessian: 1 GiB
_LAGS = (1, 2, 4, 8, 16, 32, 64, 128)  # sweeps at which correlations of the energies are measured
_CORRELATED = 0.2  # of energies, below which chains have reached changed parameters
_NOT_MIXED = 0.3  # correlation after the longest lag from which on chains do not follow
_LEAST_SHARE = 0.05  # of a step, below which it is not made shorter
_LARGEST_GAIN = 1.0  # that a step may promise, in nats; it is made shorter beyond
# What a run carries from round to round: plain data, and arrays.
_CARRIED = (
    "burn_in", "num_sweeps", "mixed", "bias", "correlations", "_largest", "positions", "lost", "slow", "promised",
    "share", "most", "length", "confirmed",
)  # fmt: skip
_ARRAYS = ("z", "kept", "direction", "_top", "_axis")
_PATIENCE = 3  # rounds in which chains do not follow, after which replica exchange takes over
_RUNGS, _PILOT, _STALE = 16, 64, 0.8  # of its first ladder, its rounds, and the rejection that asks for other rungs
_LADDERS = 256  # at least
_SOLVER_STEPS, _FINAL_STEPS = 60, 240  # of conjugate gradients, and in the end; twice as many proximal ones


@dataclass
class Sampled:
    """What the chains gave."""

    v: FloatArray
    gap: float = math.inf
    noise: float = math.inf
    moment_error: float | None = None
    num_rounds: int = 0
    num_sweeps: int = 0
    num_chains: int = 0
    stopped_by: str = "max_iter"
    mixed: bool = True
    bias_bound: float | None = None
    correlations: dict[int, float] = field(default_factory=dict)
    correlation: float = 0.0  # from one end of the last round to the other, in the slowest direction
    num_rungs: int = 1


def sampled_likelihood(
    template: MarkovRandomField,
    make: Callable[[int, int], Chains],
    data: Dataset,
    data_term: DataTerm,
    v: FloatArray,
    scaling: Scaling,
    *,
    num_chains: int,
    ridge: float,
    l1: float,
    ball: Ball | None,
    certified: bool,
    tempered: bool,
    tol: float,
    max_iter: int,
    rng: np.random.Generator,
    clock: Clock,
    report: Report | None,
    saved: tuple[dict[str, NDArray[Any]], dict[str, Any]] | None = None,
    keep: Callable[..., None] | None = None,
) -> Sampled:
    """The maximum of the (penalised) likelihood by persistent chains, from v on, in at most ``max_iter`` rounds.

    It ends once two rounds running promise a gain, noise included, of less than ``tol`` in the mean log-likelihood; the
    answer is where the second was measured. ``make``
    gives chains, by their number and that of the sets: replica exchange takes over where single chains do not follow
    three rounds running, or at once if they are to be ``tempered``. After every round ``keep`` gets all that is needed
    to go on from there, which ``saved`` gives back.
    """
    run = _Run(template, make, num_chains, data, data_term, v, scaling, ridge, l1, ball, certified, rng, clock)
    result = Sampled(scaling.to_v(run.z))
    with Rounds(result, keep, report) as rounds:
        if saved is not None:
            run.restore(saved, result)
        else:
            start_chains(run.chains, data, template.num_states, rng)
        while result.num_rounds < max_iter and result.stopped_by != "done":
            if not run.positions and not certified and (tempered or run.lost >= _PATIENCE):
                run.temper()
                run.kept, result.gap = None, math.inf  # what chains that do not follow have promised is no measure
            gradients, difference = run.measure()
            mean_gradient = 0.5 * (gradients[0] + gradients[1])
            direction, gap = run.solve(mean_gradient)
            measured = run.z
            noise = run.noise(0.5 * (gradients[0] - gradients[1]))
            slowness = run.slowness(gap, noise)
            result.num_rounds += 1
            worse = run.kept is not None and gap > max(1.5 * run.promised, 4.0 * noise)
            stuck = run.kept is not None and gap > 0.7 * run.promised
            error = run.coordinates.moment_error(difference)
            if worse and run.kept is not None and run.share > _LEAST_SHARE:
                run.most = 0.6 * run.share  # for a while
                run.share *= 0.4
                run.z = run.towards(run.kept, run.direction)
            elif worse and run.kept is not None:  # no step helps: the last good point is measured once more
                run.z, run.kept = run.kept, None
            else:
                if gap <= result.gap:
                    result.v, result.gap, result.noise, result.moment_error = scaling.to_v(run.z), gap, noise, error
                run.kept, run.direction, run.promised = run.z, direction, gap
                if stuck and gap >= 3.0 * noise:  # steps a little too long
                    run.most = max(0.2, 0.7 * min(run.share, run.most))
                run.share = min(2.0 * run.share, run.most, math.sqrt(_LARGEST_GAIN / max(gap, 1e-300)))
                run.most = min(1.0, 1.1 * run.most)
                run.z = run.towards(run.z, direction)
            result.bias_bound, result.correlations, result.num_sweeps = run.bias, run.correlations, run.num_sweeps
            result.num_chains, result.num_rungs = run.chains.num_chains, max(1, len(run.positions))
            entry: dict[str, Any] = {"iteration": result.num_rounds, "gap": gap, "noise": noise, "step": run.share}
            entry |= {"moment_error": error, "num_sweeps": run.length, "bias_bound": run.bias}
            lost = not run.mixed and not run.positions  # ladders are still to come
            near = gap <= tol and not lost and not run.is_unclear()
            sure = near and run.confirmed and noise <= tol
            if sure and _CAUTION * slowness * run.remaining(mean_gradient) <= tol:
                result.stopped_by, result.gap, result.noise, result.moment_error = "done", gap, noise, error
                result.v = scaling.to_v(measured)
            elif gap < 3.0 * noise or (stuck and not worse and gap < 10.0 * noise) or run.is_unclear():
                most = _CONFIRMING_SWEEPS if max(gap, noise) <= tol else _MOST_SWEEPS
                run.length = max(run.length, min(2 * run.length, most))
            run.confirmed = near
            rounds.end(entry, result.v, partial(run.pack, result))
        if result.stopped_by != "done" and ball is None and run.kept is not None and run.promised <= result.gap:
            result.v = scaling.to_v(run.z)
    if ball is not None:
        result.v = ball(result.v)  # steps stay inside but for rounding
    result.mixed, result.correlation = run.mixed, run.slow
    return result


class _Run:
    """Chains, penalties and the quadratic model of the objective."""

    def __init__(
        self, template: MarkovRandomField, make: Callable[[int, int], Chains], num_chains: int, data: Dataset,
        data_term: DataTerm, v: FloatArray, scaling: Scaling, ridge: float, l1: float, ball: Ball | None,
        certified: bool, rng: np.random.Generator, clock: Clock,
    ) -> None:  # fmt: skip
        self.template, self.make, self.data, self.data_term = template, make, data, data_term
        self.chains, rows = make(num_chains, 1), data_term.beyond
        self.clamped: ClampedRows | None = None  # chains given the data
        if len(rows):
            self.clamped = ClampedRows(scaling.coordinates, data.states[rows], data.weights[rows], rng)
        self.positions: list[float] = []  # of the rungs of replica exchange, from the independent model to the present
        self.lost = 0  # rounds in a row in which the chains did not follow
        self.scaling, self.coordinates = scaling, scaling.coordinates
        self.ridge, self.l1, self.ball, self.certified, self.clock = ridge, l1, ball, certified, clock
        self.z = scaling.from_v(v if ball is None else ball(v))
        self.kept: FloatArray | None = None  # the last good point, with the step from it, and what that promised
        self.direction, self.promised = np.zeros(len(v)), math.inf
        self.share = self.most = 1.0  # of steps that are made
        large = self.coordinates.num_contrasts > _LARGE and num_chains <= _MANY
        self.length = 4 * _FIRST_SWEEPS if large else _FIRST_SWEEPS  # of a round, in sweeps
        self.burn_in, self.num_sweeps, self.mixed = 4, 0, True
        self.confirmed = False  # whether the last round promised as little as is asked for
        self.bias: float | None = None
        self.correlations: dict[int, float] = {}
        self.order = template.structure.visit_order[0].astype(np.int64)
        self._snapshots: list[NDArray[Any]] = []
        self._quadratic = Quadratic
        if self.chains.device != "cpu":
            from fastmix.learning.products_cuda import CudaQuadratic  # importing Numba takes half a second

            self._quadratic = CudaQuadratic
        self._top, self._largest = np.random.default_rng(0).standard_normal(self.coordinates.size), 1.0
        self._axis, self.slow = np.full(self.coordinates.num_contrasts, 1.0), 0.0

    # -- going on later -----------------------------------------------------------------------------------------------

    def pack(self, result: Sampled) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """All that :meth:`restore` needs, arrays and plain data."""
        facts = {name: value for name, value in vars(result).items() if name != "v"}
        own = {name: getattr(self, name) for name in _CARRIED}
        arrays = {name: getattr(self, name) for name in _ARRAYS if getattr(self, name) is not None}
        arrays |= {"v": result.v, "states": self.chains.get_states(), "streams": self.chains.get_random_state()}
        if self.clamped is not None:
            arrays["clamped"], own["generator"] = self.clamped.get_states(), self.clamped.rng.bit_generator.state
        if self.ball is not None and self.ball.memory is not None:
            arrays["ball"] = self.ball.memory
        return arrays, {"result": facts, "run": own}

    def restore(self, saved: tuple[dict[str, NDArray[Any]], dict[str, Any]], result: Sampled) -> None:
        """Go on from what :meth:`pack` gave; the result so far is filled in."""
        arrays, facts = saved
        for name, value in [*facts["result"].items(), ("v", arrays["v"])]:
            setattr(result, name, value)
        for name in _CARRIED:
            setattr(self, name, facts["run"][name])
        for name in _ARRAYS:
            setattr(self, name, arrays.get(name))
        if self.positions:
            self.chains = self.make(result.num_chains, len(self.positions))
        self.chains.set_states(arrays["states"])
        self.chains.set_random_state(arrays["streams"])
        if self.clamped is not None:
            self.clamped.set_states(arrays["clamped"])
            self.clamped.rng.bit_generator.state = facts["run"]["generator"]
        if self.ball is not None:
            self.ball.memory = arrays.get("ball")

    # -- replica exchange ---------------------------------------------------------------------------------------------

    def temper(self) -> None:
        """Go on with ladders from the independent model of the data to the present one, from where the chains are."""
        count = max(_LADDERS, self.chains.num_chains // _RUNGS)
        states = np.tile(np.resize(self.chains.get_states(), (count, self.template.num_variables)), (_RUNGS, 1))
        self.chains, self.positions = self.make(count, _RUNGS), np.linspace(0.0, 1.0, _RUNGS).tolist()
        self.chains.set_states(states)
        self._load(self.coordinates.to_parameters(self.scaling.to_v(self.z)))
        for _ in range(2):
            self._sweep(_PILOT)
            self._respace()

    def _respace(self) -> None:
        """As many rungs as are needed, where exchanges are rejected equally often."""
        rejection = self.chains.exchanges().rejection
        new, source = respace(np.array(self.positions), rejection, None)
        if len(new) != len(self.positions):
            count, n = self.chains.num_chains, self.template.num_variables
            states = self.chains.get_states().reshape(len(self.positions), count, n)[source]
            self.chains = self.make(count, len(new))
            self.chains.set_states(states.reshape(-1, n))
        self.positions = new.tolist()
        self._load(self._theta)

    # -- the gradient -------------------------------------------------------------------------------------------------

    def measure(self) -> tuple[list[FloatArray], FloatArray]:
        """Gradients at z from either half of the sweeps, and moments of the model less those of the data.

        Where the last round promised little enough they are from either half of the chains: those that stay in a mode
        for a whole round do not show it by how its halves differ.
        """
        v, num_sweeps = self.scaling.to_v(self.z), self.length
        theta = self.coordinates.to_parameters(v)
        self._load(theta)
        if self.certified:
            self._bound(theta, num_sweeps)
            self._sweep(self.burn_in)
        else:
            self._follow()
        observed, slow = self._observe(v, num_sweeps)
        before, swept = self._slow_scores(), self.num_sweeps
        sums = np.zeros((2, self.template.num_parameters))
        affordable = max(1, _MOST_CONTRASTS // max(1, self.coordinates.num_contrasts))
        wanted = min(_MOST_ROWS, _ROWS_EACH * self.coordinates.size, affordable)
        between = min(num_sweeps, max(1, num_sweeps * self.chains.num_chains // wanted))
        self._snapshots = []
        for k in range(num_sweeps):
            self._sweep(1)
            if k % between == between - 1:
                self._snapshots.append(self.chains.get_top_states().astype(np.int16))
            if self.confirmed:
                sums += [self.chains.moments(weights) for weights in self._halves_of_chains()]
            else:
                sums[2 * k // num_sweeps] += 2.0 * self.chains.moments(self._of_the_last)
            self.clock.check()
        if not self.certified:
            # Two modes far apart can have the same energies: the direction in which configurations differ most tells.
            self.slow = max(slow, _correlation(before, self._slow_scores()))
            if self.num_sweeps - swept >= _LAGS[-1] and self.slow > _NOT_MIXED:
                self.mixed = False
            self.lost = 0 if self.mixed else self.lost + 1
        halves = [self.coordinates.from_gradient(total / num_sweeps) for total in sums]
        differences = [half - given for half, given in zip(halves, observed, strict=True)]
        gradients = [self.scaling.pull(difference + self.ridge * v) for difference in differences]
        return gradients, 0.5 * (differences[0] + differences[1])

    def _observe(self, v: FloatArray, num_sweeps: int) -> tuple[list[FloatArray], float]:
        """Moments of the data for either half of the sweeps, and how much chains given the data know afterwards."""
        exact = self.data_term.evaluate(v)[1]
        if self.clamped is None:
            return [exact, exact], 0.0
        self.clamped.load(v)
        burn_in = self.burn_in if self.certified else max([self.burn_in, *self.correlations])
        self.clamped.sweep(burn_in, self.clock.check)
        # No more of them than it takes for as little noise, but enough to see whether they forget.
        wanted = max(min(num_sweeps, _LAGS[-1]), num_sweeps * self.chains.num_chains / self.clamped.size)
        halves, slow = self.clamped.measure(min(num_sweeps, 2 * math.ceil(wanted / 2)), self.clock.check)
        return [exact + half for half in halves], slow

    def _load(self, theta: FloatArray) -> None:
        self._theta, self._of_the_last = theta, None
        self.chains.clock = self.clock
        if not self.positions:
            self.chains.load(theta)
            return
        self.chains.clear()
        s, count = np.array(self.positions), self.chains.num_chains
        base = independent_parameters(self.template, self.data)
        self.chains.load(np.stack([base, theta]), np.stack([1.0 - s, s], axis=1))
        self._of_the_last = np.zeros(len(s) * count)
        self._of_the_last[-count:] = len(s)

    def _halves_of_chains(self) -> FloatArray:
        """Weights of all configurations for means over either half of the chains at the last set."""
        count = self.chains.num_chains
        weights = np.zeros((2, self.chains.num_sets, count))
        weights[0, -1, : count // 2] = self.chains.num_sets * count / (count // 2)
        weights[1, -1, count // 2 :] = self.chains.num_sets * count / (count - count // 2)
        return weights.reshape(2, -1)

    def is_unclear(self) -> bool:
        """Whether a round was too short to tell if chains go from mode to mode."""
        return not self.certified and self.slow > _NOT_MIXED and self.length < _LAGS[-1]

    def _sweep(self, count: int) -> None:
        if self.positions:
            # Pairs of rungs take turns: after an even number of rounds the next turn is known.
            self.chains.exchange_rounds(count + count % 2)
        else:
            self.chains.sweep(count)
        self.num_sweeps += count

    def _slow_scores(self) -> FloatArray:
        """Where every chain is in the direction of the largest variance."""
        return self._energies(self.coordinates.to_parameters(self._linear(self._axis)))

    def _linear(self, c: FloatArray) -> FloatArray:
        """The v of a function that is linear in the contrasts."""
        return np.concatenate([c, np.zeros(self.coordinates.size - len(c))])

    def _energies(self, theta: FloatArray | None = None) -> FloatArray:
        return np.asarray(self.chains.energies(theta)[-1, -self.chains.num_chains :])

    def _follow(self) -> None:
        """Sweeps until the energies are nearly independent of what they were before the parameters changed."""
        self.correlations, self.mixed = autocorrelations(self._sweep, self._energies, self.clock.check)
        if self.positions and self.chains.exchanges().rejection.max() > _STALE:
            self._respace()

    def _bound(self, theta: FloatArray, num_sweeps: int) -> None:
        """Sweeps after which the bias of the gradient is below its Monte Carlo error, from any start.

        It is that of every moment, and where chains stand in for data, in which no variable depends more on the others,
        as much again.
        """
        model = self.template.with_parameters(theta)
        i, j = model.edges.T
        error = 0.5 / math.sqrt(self.chains.num_chains * num_sweeps)
        while True:
            delta = bias_after(model, self.burn_in, order=self.order)
            self.bias = float(max(delta.max(initial=0.0), np.minimum(1.0, delta[i] + delta[j]).max(initial=0.0)))
            self.bias *= 1.0 if self.clamped is None else 1.0 + self.clamped.share
            if self.bias <= error or self.burn_in >= 100_000:
                return
            self.burn_in = 1 + int(1.25 * self.burn_in)

    # -- the step -----------------------------------------------------------------------------------------------------

    def _model_here(self) -> None:
        """The rows of the quadratic model: configurations of the last round, and the data, which are alike at the end.

        Data with hidden or missing values are left out.
        """
        rows = self._snapshots
        weights = np.full(sum(map(len, rows)), 1.0)
        if self.data_term.fixed:
            step = max(1, len(self.data.states) // _ROWS)
            of_data = self.data.weights[::step]
            rows = [*rows, self.data.states[::step]]
            weights = np.concatenate([weights, of_data * (len(of_data) / of_data.sum())])
        weights /= weights.sum()
        self._hessian = self._quadratic(self.coordinates, rows, weights)
        # A covariance of few rows has eigenvalues that are much too small: something is added to its diagonal.
        self._rows_each = 1.0 / (self.coordinates.size * float((weights**2).sum()))
        self._shrink = min(1.0, 1.5 / self._rows_each**2)
        for _ in range(3):
            self.clock.check()
            self._axis = self._hessian.apply(self._linear(self._axis))[: len(self._axis)]
            self._axis /= max(1e-300, float(np.linalg.norm(self._axis)))
        if self.ball is None and not self.l1:
            return
        for _ in range(30):
            before, self._largest = self._largest, float(np.linalg.norm(self._top))
            if abs(self._largest - before) < 0.01 * before:
                break
            self._top = self._apply(self._top / self._largest)
        self._largest *= 1.1

    def _apply(self, direction: FloatArray) -> FloatArray:
        """The Hessian times a direction, in scaled coordinates."""
        self.clock.check()
        v = self.scaling.to_v(direction)
        return self.scaling.pull(self._hessian.apply(v) + self.ridge * v) + self._shrink * direction

    def solve(self, gradient: FloatArray) -> tuple[FloatArray, float]:
        """The step to the least value of the quadratic model, and what it gains there."""
        self._model_here()
        return self._step(gradient)

    def _step(self, gradient: FloatArray, num_steps: int = _SOLVER_STEPS) -> tuple[FloatArray, float]:
        if self.ball is None and not self.l1:
            step = -self._conjugate(gradient, num_steps)
            return step, -0.5 * float(gradient @ step)
        return self._proximal(self.z, gradient)

    def remaining(self, gradient: FloatArray) -> float:
        """What is left to gain by the quadratic model as it is, where its rows are many enough for it.

        What is added to its diagonal makes steps shorter, and hides what flat directions promise.
        """
        added, self._shrink = self._shrink, 0.0 if self._rows_each >= _ROWS_EACH / 2.0 else self._shrink
        gap = self._step(gradient, _FINAL_STEPS)[1]
        self._shrink = added
        return gap

    def slowness(self, gap: float, noise: float) -> float:
        """By how much more there is to gain than a round promises, as the last step has shown, 1 at least.

        A step with the share s of one to the optimum leaves ``(1 - s)^2`` of the gain. Where it leaves more, and noise
        does not tell why, such steps go only a part of the way: the objective is far from a quadratic one.
        """
        if self.kept is None or gap < 3.0 * noise or not 0.0 < self.promised < math.inf:
            return 1.0
        part = (1.0 - math.sqrt(min(1.0, gap / self.promised))) / self.share
        return 1.0 / min(1.0, max(part, 1e-3))

    def towards(self, z: FloatArray, direction: FloatArray) -> FloatArray:
        """A part of a step; tables that a whole one makes 0 are 0 at once."""
        new = z + self.share * direction
        if self.l1:
            d = self.coordinates.num_contrasts
            new[d:][np.abs(z[d:] + direction[d:]) <= 1e-12] = 0.0
        return new

    def noise(self, half_difference: FloatArray) -> float:
        """What noise alone would promise."""
        if self.ball is None and not self.l1:
            return 0.5 * float(half_difference @ self._conjugate(half_difference, _SOLVER_STEPS // 4))
        return 0.5 * float(half_difference @ half_difference) / (1.0 + self._shrink)

    def _conjugate(self, gradient: FloatArray, num_steps: int = _SOLVER_STEPS) -> FloatArray:
        """The inverse of the Hessian times a gradient, by conjugate gradients."""
        from scipy.sparse.linalg import LinearOperator, cg

        hessian = LinearOperator((len(gradient),) * 2, matvec=self._apply, dtype=np.float64)
        options = {"rtol": math.sqrt(1e-3), "maxiter": num_steps, "callback": lambda _: self.clock.check()}
        return np.asarray(cg(hessian, gradient, **options)[0])

    def _proximal(self, z: FloatArray, gradient: FloatArray) -> tuple[FloatArray, float]:
        """The same with an l1 term or a set, by accelerated proximal steps on the quadratic model."""
        at, ahead, t = z, z, 1.0
        of_at = of_ahead = np.zeros(len(z))  # the Hessian times what they are away from z
        for _ in range(2 * _SOLVER_STEPS):
            while True:
                self.clock.check()
                step = (gradient + of_ahead) / self._largest
                new = backward(self.scaling, ahead - step, self.l1, self.ball, self._largest)
                of_new, moved = self._apply(new - z), new - ahead
                rounding = 1e-4 * float(np.linalg.norm(moved) * np.linalg.norm(of_new))
                if float(moved @ (of_new - of_ahead)) <= self._largest * float(moved @ moved) + rounding:
                    break
                self._largest *= 2.0  # a direction that had been missed: longer steps would diverge
            if float((ahead - new) @ (new - at)) > 0.0:
                t = 1.0
            later = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * t * t))
            momentum, moved = (t - 1.0) / later, new - at
            ahead, of_ahead = new + momentum * moved, of_new + momentum * (of_new - of_at)
            at, of_at, t = new, of_new, later
            if float(moved @ moved) <= 1e-6 * float((at - z) @ (at - z)):
                break
        step = at - z
        before, after = (table_cost(self.coordinates, self.l1, self.scaling.to_v(some)) for some in (z, at))
        gain = -float(gradient @ step) - 0.5 * float(step @ of_at) - after + before
        return step, max(gain, 0.0)


def start_chains(chains: Chains, data: Dataset, num_states: IntArray, rng: np.random.Generator) -> None:
    """Chains at rows of the data; what is missing there is drawn evenly."""
    chosen = rng.choice(len(data.states), size=chains.num_chains, p=data.weights)
    states = data.states[chosen].astype(np.int64)
    chains.set_states(np.where(states == MISSING, rng.integers(num_states, size=states.shape), states))


def autocorrelations(
    sweep: Callable[[int], None], energies: Callable[[], FloatArray], check: Callable[[], None]
) -> tuple[dict[int, float], bool]:
    """Correlations of the energies of chains with what they were some sweeps before, and whether they become small.

    Sweeps are made until a correlation is below 0.2, and 128 at most.
    """
    first, done, found = energies(), 0, {}
    for lag in _LAGS:
        sweep(lag - done)
        done = lag
        check()
        found[lag] = _correlation(first, energies())
        if found[lag] < _CORRELATED:
            break
    return found, found[done] < _NOT_MIXED


def _correlation(a: FloatArray, b: FloatArray) -> float:
    spread = float(a.std() * b.std())
    return 0.0 if spread == 0.0 else float(np.mean((a - a.mean()) * (b - b.mean()))) / spread
