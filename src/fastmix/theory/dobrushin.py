"""Dobrushin's criterion: certificates for sweeps in any order, by the iteration of :mod:`fastmix.theory.bias`.

It needs only a bound on the dependency matrix R, so that it takes factors over three or more variables, and holds for
sweeps in a fixed order as well as for random updates. The criteria for random updates alone are in
:mod:`fastmix.theory.criteria`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from fastmix._clock import Clock
from fastmix.model import MarkovRandomField
from fastmix.results import Status
from fastmix.theory import norms
from fastmix.theory.bias import BiasGoal, BiasIteration, GeometricDecay, check_schedule, safe_matrix
from fastmix.theory.certificate import Certificate, CertificateRequest
from fastmix.theory.criteria import largest_factor, scale_couplings
from fastmix.theory.tuning import (
    MATRIX_TIME_SHARE,
    MAX_CERTIFICATE_VISITS,
    MAX_MARGIN_VISITS,
    MAX_OFFENDING,
    STALLED_RATIO,
    SWEEPS_PER_STALL_CHECK,
)

__all__ = ["DobrushinCriterion"]

_EXACT_WAY_OUT = "The way out is exact inference or loopy belief propagation: fastmix.infer or `fastmix infer` chooses."


class _Sweeps(NamedTuple):
    """A number of sweeps, and whether the iteration itself reached the goal with it."""

    number: int
    reached: bool


@dataclass(frozen=True)
class DobrushinCriterion:
    """Dobrushin's criterion for one request.

    ``undefined`` is a variable that some states of its neighbors leave without a state, and that in words, or None: see
    :func:`fastmix.theory.conditionals.undefined_conditional`.
    """

    request: CertificateRequest
    undefined: tuple[int, str] | None

    def certify(self, model: MarkovRandomField, clock: Clock, max_visits: float | None = None) -> Certificate:
        """The certificate by the iteration and a norm, for a model without forbidden states.

        1. Bound R, and find a norm of it.
        2. Iterate the biases until they reach the goal, or follow the decay that the norm promises.
        3. Take the biases that are known at the end.
        4. State what follows.
        """
        request = self.request
        n = model.num_variables
        # 1. The matrix and its norm.
        matrix = safe_matrix(model, request.dependency, clock.part(MATRIX_TIME_SHARE))
        name, value = self._norm_of(matrix, clock)
        # 2. The sweeps.
        order = check_schedule(request.sweep_schedule, request.order, n)
        visits = MAX_CERTIFICATE_VISITS if max_visits is None else max_visits
        run = BiasIteration(matrix, request.sweep_schedule, order, visits, clock)
        goal = BiasGoal(n, request.accuracy, request.per_variable)
        decay = GeometricDecay(name, value, request.sweep_schedule) if value < 1.0 else None
        sweeps = self._iterate(run, goal, decay, possible=value < math.inf)
        certified = sweeps.reached or decay is not None
        too_many = certified and self._updates_exceed_limit(sweeps, n)
        promised = certified and not too_many
        # 3. The biases.
        bias = run.delta
        total = goal.total(bias)
        if decay is not None and not sweeps.reached:
            bias = np.minimum(bias, request.accuracy)  # as was promised; an entry is never above the sum
            total = min(goal.total(bias), math.inf if request.per_variable else request.accuracy)
        bias.setflags(write=False)
        # 4. The certificate.
        method = None
        if certified:
            method = "iteration" if sweeps.reached else "geometric"
        certificate = Certificate(
            model=model,
            status=Status.OK if promised else Status.NOT_CONVERGED,
            certified=promised,
            accuracy=request.accuracy,
            per_variable=request.per_variable,
            schedule=request.sweep_schedule,
            num_sweeps=sweeps.number if promised else None,
            num_updates=None if decay is None else _updates_of_theorem(n, request.accuracy, value),
            dependency=request.dependency,
            norm=name,
            norm_value=value,
            bias=bias,
            max_bias=float(bias.max(initial=0.0)),
            total_bias=min(1.0, total),
            offending=_offending(matrix) if self.undefined is None else ((self.undefined[0], math.inf),),
            statement="",
            stats={"method": method, "num_iterated": run.num_sweeps, "num_entries": int(matrix.nnz)},
            valid_for=request.sweep_schedule,
        )
        if self.undefined is not None:
            statement = f"Not certified: {self.undefined[1]}, so Gibbs sampling is undefined. {_EXACT_WAY_OUT}"
        elif too_many:
            updates = float(sweeps.number) * n
            statement = f"Not certified: {updates:.3g} updates are more than max_updates, {request.max_updates:.3g}."
        else:
            limit_reached = run.exhausted or run.num_sweeps == request.max_sweeps
            statement = _statement(certificate, limit_reached=limit_reached)
        return replace(certificate, statement=statement)

    def margin(self, model: MarkovRandomField, certified: bool, clock: Clock) -> float:
        """The largest factor found by which all couplings could grow with the model still certified."""

        def certifies(factor: float) -> bool:
            if factor == 1.0:
                return certified
            scaled = scale_couplings(model, factor)
            if self.request.max_updates is None:
                _, value = self._norm_of(safe_matrix(scaled, self.request.dependency, clock), clock)
                if value < 1.0:
                    return True
            return self.certify(scaled, clock, MAX_MARGIN_VISITS).certified

        return largest_factor(certifies, clock)

    def _updates_exceed_limit(self, sweeps: _Sweeps, num_variables: int) -> bool:
        """Whether the sweeps take more updates than were asked for at most."""
        limit = self.request.max_updates
        return limit is not None and float(sweeps.number) * num_variables > limit

    def _norm_of(self, matrix: Any, clock: Clock) -> tuple[str, float]:
        """Name and value of the norm asked for, or of the smallest; infinite where R is undefined."""
        if self.request.norm is None:
            name, value = norms.smallest_norm(matrix, clock=clock)
        else:
            name = self.request.norm
            value = norms.matrix_norm(matrix, self.request.norm, clock=clock)
        return name, value if self.undefined is None else math.inf

    def _iterate(self, run: BiasIteration, goal: BiasGoal, decay: GeometricDecay | None, *, possible: bool) -> _Sweeps:
        """The number of sweeps that reaches the goal, by the iteration or from where it stopped by the decay.

        Without a decay the iteration goes on only as long as the biases fall. It is not begun where no number is
        ``possible``.
        """
        limit = self.request.max_sweeps
        n = len(run.delta)
        reached = n == 0
        if decay is not None and not reached:
            # The theorem's number is valid too: the iteration could pass it by rounding only.
            cap = decay.sweeps(np.ones(n), goal)
            reached = run.advance(min(limit, cap), goal)
            if reached:
                return _Sweeps(run.num_sweeps, reached=True)
            return _Sweeps(min(run.num_sweeps + decay.sweeps(run.delta, goal), cap), reached=False)
        while possible and not reached and run.num_sweeps < limit and not run.exhausted:
            before = float(run.delta.sum())
            reached = run.advance(min(SWEEPS_PER_STALL_CHECK, limit - run.num_sweeps), goal)
            if float(run.delta.sum()) > STALLED_RATIO * before:
                break
        return _Sweeps(run.num_sweeps, reached)


def _updates_of_theorem(n: int, accuracy: float, norm: float) -> int:
    """Random updates that Theorem 4 of Liu and Domke (2014) promises for a norm below 1, rounded up."""
    if not n:
        return 0
    return math.ceil(n * math.log(n / accuracy) / (1.0 - norm) * (1.0 + 1e-12))


def _offending(matrix: Any) -> tuple[tuple[int, float], ...]:
    """Variables whose row of R sums up to 1 or more, each with the sum, the largest first."""
    sums = np.asarray(matrix.sum(axis=1)).ravel()
    largest = np.argsort(-sums, kind="stable")[:MAX_OFFENDING]
    return tuple((int(i), float(sums[i])) for i in largest if sums[i] >= 1.0)


def _statement(certificate: Certificate, *, limit_reached: bool) -> str:
    """The promise of a certificate in words, or why nothing can be promised and the way out."""
    c = certificate
    if c.certified:
        what = "every marginal" if c.per_variable else "the joint distribution"
        return (
            f"After {c.num_sweeps} {c.schedule} sweeps from any start, {what} is within {c.accuracy:g} of the model's "
            "in total variation."
        )

    if c.norm_value == math.inf:
        why = f"a table forbids pairs of states (-inf), so the bound {c.dependency!r} on R is infinite"
    else:
        end = "was not small enough within the limit of" if limit_reached else "stopped falling after"
        why = (
            f"the {c.norm} norm of the bound {c.dependency!r} on R is {c.norm_value:.4g}, not below 1, and the bias "
            f"{end} {c.stats['num_iterated']} sweeps"
        )
    where = f" The strongest dependencies are those of variable {c.strongest[0][0]}." if c.offending else ""
    hint = ""
    if c.dependency == "sigmoid":
        hint = " dependency='exact' is tighter, for small degrees."
    elif c.dependency in ("range", "l1", "linf"):
        hint = " dependency='sigmoid' is tighter at no cost."
    return (
        f"Not certified: {why}.{where}{hint} The way out is a nearby model that can be certified: "
        "fastmix.project(model, norm_bound=...) or `fastmix project`, with a norm_bound below 1."
    )
