"""Maximum likelihood with moments from persistent chains (Younes 1989; in a set that mixes fast, Domke 2015).

The chains go on while the parameters change, in rounds. In a round the parameters stay as they are: moments are means
over chains and sweeps, so the gradient has no bias from moving while it is measured. A (proximal) Newton step follows,
with the covariance of the features over the data as the Hessian, which it is at the optimum. The quadratic model also
says how much likelihood is left to gain; two halves of the round tell how much of that is noise, and rounds get longer
when most of it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray
from fastmix._clock import Clock
from fastmix.learning.newton import NewtonModel
from fastmix.learning.penalty import Penalty
from fastmix.learning.persistent import MakeChains
from fastmix.learning.resume import Rounds
from fastmix.learning.sampled_gradient import SampledGradient, SampledProblem
from fastmix.learning.scaling import Scaling
from fastmix.learning.tuning import (
    CAUTION,
    MAX_CONFIRMING_SWEEPS,
    MAX_GAIN,
    MAX_SWEEPS,
    MIN_STEP_SHARE,
    PATIENCE,
)

__all__ = ["Sampled", "SampledPlan", "StepControl", "sampled_likelihood"]


@dataclass
class Sampled:
    """What the chains gave: the parameters v, and what is known about them."""

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
    num_confirming: int = 0  # rounds that promised little enough, and were not sure of it

    def take(self, v: FloatArray, outcome: _Outcome) -> None:
        """Let v be the answer, by what a round told there."""
        self.v = v
        self.gap = outcome.gap
        self.noise = outcome.noise
        self.moment_error = outcome.moment_error

    def stats(self) -> dict[str, Any]:
        """What results say about the way there."""
        return {
            "num_iterations": self.num_rounds,
            "gap": self.gap,
            "noise": self.noise,
            "num_chains": self.num_chains,
            "num_rungs": self.num_rungs,
            "num_sweeps": self.num_sweeps,
            "correlations": {str(lag): value for lag, value in self.correlations.items()},
            "correlation_of_modes": self.correlation,
        }

    def facts(self) -> dict[str, Any]:
        """All but v, as plain data."""
        return {name: value for name, value in vars(self).items() if name != "v"}


@dataclass(frozen=True)
class SampledPlan:
    """How long to sample a likelihood: until ``tol`` is left to gain, and at most so many rounds.

    Chains are ladders of replica exchange from the beginning if they are to be ``tempered``.
    """

    tol: float
    max_iter: int
    num_chains: int
    tempered: bool = False


@dataclass(frozen=True, eq=False)
class _Outcome:
    """What a round tells about the point where it was measured.

    ``gap`` is what is left to gain, ``noise`` what noise alone would seem to gain, ``direction`` the step to the
    optimum, all by the quadratic model. The gap is ``worse`` than a step has promised, or the step was ``stuck``: it
    left most of what there was. ``slowness`` says by how much more there is to gain than the round promises.
    """

    gap: float
    noise: float
    direction: FloatArray
    moment_error: float
    worse: bool
    stuck: bool
    slowness: float


class StepControl:
    """The present point, and how far to go from it: shorter steps where promises are not kept.

    Attributes
    ----------
    z : float array
        The present point, in scaled coordinates.
    kept : float array or None
        The last good point; ``direction`` is the step from there, ``promised`` what it should gain.
    share : float
        Share of a step that is made, at most ``most``.
    """

    _carried = ("promised", "share", "most")

    def __init__(self, z: FloatArray, scaling: Scaling, penalty: Penalty) -> None:
        self.z = z
        self.scaling = scaling
        self.penalty = penalty
        self.kept: FloatArray | None = None
        self.direction = np.zeros(len(z))
        self.promised = math.inf
        self.share = 1.0
        self.most = 1.0

    def pack(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """All that :meth:`restore` needs: arrays and plain data."""
        arrays = {"z": self.z, "direction": self.direction}
        if self.kept is not None:
            arrays["kept"] = self.kept
        return arrays, {name: getattr(self, name) for name in self._carried}

    def restore(self, arrays: dict[str, NDArray[Any]], facts: dict[str, Any]) -> None:
        """Go on from what :meth:`pack` gave."""
        self.z = arrays["z"]
        self.direction = arrays["direction"]
        self.kept = arrays.get("kept")
        for name in self._carried:
            setattr(self, name, facts[name])

    def judge(self, gap: float, noise: float, direction: FloatArray, moment_error: float) -> _Outcome:
        """What a round at the present point tells, beside what the last step has promised."""
        known = self.kept is not None
        return _Outcome(
            gap,
            noise,
            direction,
            moment_error,
            worse=known and gap > max(1.5 * self.promised, 4.0 * noise),
            stuck=known and gap > 0.7 * self.promised,
            slowness=self._slowness(gap, noise),
        )

    def _slowness(self, gap: float, noise: float) -> float:
        """By how much more there is to gain than a round promises, as the last step has shown, 1 at least.

        A step with the share s of one to the optimum leaves ``(1 - s)^2`` of the gain. Where it leaves more, and noise
        does not tell why, such steps go only a part of the way: the objective is far from a quadratic one.
        """
        if self.kept is None or gap < 3.0 * noise or not 0.0 < self.promised < math.inf:
            return 1.0
        part = (1.0 - math.sqrt(min(1.0, gap / self.promised))) / self.share
        return 1.0 / min(1.0, max(part, 1e-3))

    def move(self, outcome: _Outcome) -> None:
        """Go on from the present point, or back to the last good one and a shorter way from there."""
        if not outcome.worse or self.kept is None:
            self._advance(outcome)
        elif self.share > MIN_STEP_SHARE:
            self.most = 0.6 * self.share  # for a while
            self.share *= 0.4
            self.z = self._toward(self.kept, self.direction)
        else:  # no step helps: the last good point is measured once more
            self.z = self.kept
            self.kept = None

    def _advance(self, outcome: _Outcome) -> None:
        """Keep the present point, and make a step from it that promises no more than one nat."""
        self.kept = self.z
        self.direction = outcome.direction
        self.promised = outcome.gap
        if outcome.stuck and outcome.gap >= 3.0 * outcome.noise:  # steps a little too long
            self.most = max(0.2, 0.7 * min(self.share, self.most))
        self.share = min(2.0 * self.share, self.most, math.sqrt(MAX_GAIN / max(outcome.gap, 1e-300)))
        self.most = min(1.0, 1.1 * self.most)
        self.z = self._toward(self.z, outcome.direction)

    def _toward(self, z: FloatArray, direction: FloatArray) -> FloatArray:
        """Where a part of a step leads; tables that a whole one makes 0 are 0 at once."""
        new = z + self.share * direction
        if self.penalty.l1:
            d = self.scaling.coordinates.num_contrasts
            new[d:][np.abs(z[d:] + direction[d:]) <= 1e-12] = 0.0
        return new


def sampled_likelihood(
    problem: SampledProblem,
    plan: SampledPlan,
    v: FloatArray,
    make: MakeChains,
    rounds: Rounds,
    *,
    rng: np.random.Generator,
    clock: Clock,
) -> Sampled:
    """The maximum of the (penalized) likelihood by persistent chains, from v on.

    It ends once two rounds running promise a gain, noise included, of less than the tolerance of the plan in the mean
    log-likelihood; the answer is where the second was measured. ``make`` gives chains, by their number and that of the
    sets: replica exchange takes over where single chains do not follow three rounds running.
    """
    run = _Run(problem, plan, v, make, rng=rng, clock=clock)
    with rounds.around(run.result):
        if rounds.saved is not None:
            run.restore(*rounds.saved)
        else:
            run.gradient.start()
        while run.result.num_rounds < plan.max_iter and run.result.stopped_by != "done":
            entry = run.round()
            rounds.end(entry, run.result.v, run.pack)
        run.prefer_last_point()
    return run.finish()


class _Run:
    """The rounds of one sampled likelihood."""

    def __init__(
        self, problem: SampledProblem, plan: SampledPlan, v: FloatArray, make: MakeChains, *,
        rng: np.random.Generator, clock: Clock,
    ) -> None:  # fmt: skip
        self.problem = problem
        self.plan = plan
        self.scaling = problem.scaling
        self.gradient = SampledGradient(problem, make, plan.num_chains, rng, clock)
        z = self.scaling.from_v(problem.penalty.into_set(v))
        self.steps = StepControl(z, self.scaling, problem.penalty)
        self.newton = NewtonModel(self.scaling, problem.penalty, clock, device=self.gradient.chains.chains.device)
        self.result = Sampled(self.scaling.to_v(z))

    # -- going on later -----------------------------------------------------------------------------------------------

    def pack(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """All that :meth:`restore` needs: arrays and plain data."""
        arrays: dict[str, NDArray[Any]] = {"v": self.result.v}
        facts: dict[str, Any] = {"result": self.result.facts()}
        for name, part in self._parts().items():
            more, facts[name] = part.pack()
            arrays |= more
        ball = self.problem.penalty.ball
        if ball is not None and ball.memory is not None:
            arrays["ball"] = ball.memory
        return arrays, facts

    def restore(self, arrays: dict[str, NDArray[Any]], facts: dict[str, Any]) -> None:
        """Go on from what :meth:`pack` gave."""
        self.result.v = arrays["v"]
        for name, value in facts["result"].items():
            setattr(self.result, name, value)
        for name, part in self._parts().items():
            part.restore(arrays, facts[name])
        if self.problem.penalty.ball is not None:
            self.problem.penalty.ball.memory = arrays.get("ball")

    def _parts(self) -> dict[str, SampledGradient | StepControl | NewtonModel]:
        """What has a state that rounds change."""
        return {"gradient": self.gradient, "steps": self.steps, "newton": self.newton}

    # -- rounds -------------------------------------------------------------------------------------------------------

    def round(self) -> dict[str, Any]:
        """Measure the gradient at the present point, judge it, and move on; an entry of the history."""
        if self._needs_ladders():
            self.gradient.chains.temper(self.scaling.coordinates.to_parameters(self.scaling.to_v(self.steps.z)))
            # What chains that do not follow have promised is no measure.
            self.steps.kept = None
            self.result.gap = math.inf
        z = self.steps.z
        measured = self.gradient.measure(z, self.newton.axis)
        self.newton.build(measured.snapshots, self.problem.data if self.problem.data_term.fixed else None)
        direction, gap = self.newton.step(z, measured.gradient)
        noise = self.newton.noise(measured.half_difference)
        error = self.scaling.coordinates.moment_error(measured.difference)
        outcome = self.steps.judge(gap, noise, direction, error)

        self.result.num_rounds += 1
        if not outcome.worse and gap <= self.result.gap:
            self.result.take(self.scaling.to_v(z), outcome)
        self.steps.move(outcome)
        self.result.bias_bound = self.gradient.bias
        self.result.correlations = self.gradient.correlations
        self.result.num_sweeps = self.gradient.chains.num_sweeps
        self.result.num_chains = self.gradient.chains.num_chains
        self.result.num_rungs = max(1, len(self.gradient.chains.positions))
        entry = {
            "iteration": self.result.num_rounds,
            "gap": gap,
            "noise": noise,
            "step": self.steps.share,
            "moment_error": error,
            "num_sweeps": self.gradient.length,
            "bias_bound": self.gradient.bias,
        }
        self._end_or_lengthen(outcome, z, measured.gradient)
        return entry

    def _needs_ladders(self) -> bool:
        """Whether single chains are to be replaced by ladders now."""
        if self.gradient.chains.is_tempered or self.problem.certified:
            return False
        return self.plan.tempered or self.gradient.lost >= PATIENCE

    def _end_or_lengthen(self, outcome: _Outcome, z: FloatArray, gradient: FloatArray) -> None:
        """End where a second round at z has promised as little as is asked for; else have longer rounds if noise rules.

        ``gradient`` is the one that was measured at z.
        """
        tol = self.plan.tol
        gap = outcome.gap
        noise = outcome.noise
        unclear = self.gradient.is_unclear
        lost = not self.gradient.mixed and not self.gradient.chains.is_tempered  # ladders are still to come
        near = gap <= tol and not lost and not unclear
        sure = near and self.gradient.confirmed and noise <= tol
        if sure and CAUTION * outcome.slowness * self.newton.remaining(self.steps.z, gradient) <= tol:
            self.result.stopped_by = "done"
            self.result.take(self.scaling.to_v(z), outcome)
        elif gap < 3.0 * noise or (outcome.stuck and not outcome.worse and gap < 10.0 * noise) or unclear:
            most = MAX_SWEEPS
            if max(gap, noise) <= tol:  # as little is promised as is asked for; longer ones where that does not end it
                self.result.num_confirming += 1
                most = min(MAX_SWEEPS, MAX_CONFIRMING_SWEEPS << (self.result.num_confirming // (2 * PATIENCE)))
            self.gradient.length = max(self.gradient.length, min(2 * self.gradient.length, most))
        self.gradient.confirmed = near

    def prefer_last_point(self) -> None:
        """Let the answer be where the last step led, if rounds have ended before the chains were sure of another."""
        if self.result.stopped_by == "done" or self.problem.penalty.ball is not None:
            return
        if self.steps.kept is not None and self.steps.promised <= self.result.gap:
            self.result.v = self.scaling.to_v(self.steps.z)

    def finish(self) -> Sampled:
        """The answer, in the set if there is one: steps stay inside but for rounding."""
        if self.problem.penalty.ball is not None:
            self.result.v = self.problem.penalty.ball(self.result.v)
        self.result.mixed = self.gradient.mixed
        self.result.correlation = self.gradient.slow
        return self.result
