"""Tighter bounds by cases: variables are fixed one after the other, where most is between the bounds.

Z is the sum over the states of a variable of what it is with the variable fixed, so bounds on the cases add up, for
log Z and for the weight of every state of the others. A case keeps the covers, the clusters and the junction trees of
the whole model: only the entries of other states become -inf. Its optimization goes on from the split of tables of the
case that it was taken from, which gives a bound for it too; fixing a variable breaks the loops through it, so that a
few steps gain much (Weller and Domke 2015, "Clamping improves TRW and mean field approximations").
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, field

import numpy as np

from fastmix._arrays import FloatArray
from fastmix._clock import Clock
from fastmix.bounds.lower_bound import LowerBound
from fastmix.bounds.tuning import CASE_ITERATIONS, CASE_SWEEPS, LEAST_NUM_CASES, MAX_NUM_CASES, TIGHT_LOG_Z
from fastmix.bounds.upper_bound import UpperBound
from fastmix.errors import ModelError
from fastmix.model.rounding import rounding

__all__ = ["CaseBounds"]


@dataclass(eq=False)
class _Case:
    """The model with some variables fixed: bounds on its log Z and on the log-weights of all states within it.

    Attributes
    ----------
    fixed : dict
        The states of the variables that are fixed.
    lower, upper : float
        Bounds on log Z.
    states_lower, states_upper : float arrays (num_unary,)
        Bounds on the log-weights of states.
    point, beliefs : float arrays
        Where the optimization of the upper bound goes on, and its guess at the marginals.
    gap : float
        The logarithm of the weight between the bounds on Z.
    """

    fixed: dict[int, int]
    lower: float
    upper: float
    states_lower: FloatArray
    states_upper: FloatArray
    point: FloatArray
    beliefs: FloatArray
    gap: float = field(init=False)

    def __post_init__(self) -> None:
        self.lower = min(self.lower, self.upper)
        if self.upper == -np.inf:
            self.gap = -np.inf
        else:
            with np.errstate(divide="ignore"):
                self.gap = self.upper + float(np.log(-np.expm1(self.lower - self.upper)))


class CaseBounds:
    """Bounds that are sums over cases, of which the one with the widest bounds is split again and again.

    Parameters
    ----------
    upper : UpperBound
        The upper bound of the whole model, improved as far as it is worth it.
    lower : LowerBound or None
        The lower bound of the whole model, if there is one.
    log_z : (float, float)
        Bounds on log Z.
    log_weights : (float array, float array)
        Bounds on the log-weights of all states.
    memory_limit : float
        Bytes for the cases that are kept.

    Attributes
    ----------
    log_z, log_weights
        The best bounds so far, as the arguments.
    num_cases : int
        Cases that the model is split into.
    """

    def __init__(
        self,
        upper: UpperBound,
        lower: LowerBound | None,
        log_z: tuple[float, float],
        log_weights: tuple[FloatArray, FloatArray],
        *,
        memory_limit: float = math.inf,
    ) -> None:
        self._upper = upper
        self._lower = lower
        self._tables = upper.tables
        self.log_z = log_z
        self.log_weights = log_weights
        self.num_cases = 1
        whole = _Case({}, log_z[0], log_z[1], log_weights[0], log_weights[1], upper.point, upper.beliefs)
        self._cases = [whole]
        bytes_per_case = 8.0 * (len(upper.point) + 3.0 * self._tables.num_unary)
        self._max_cases = min(max(LEAST_NUM_CASES, memory_limit / bytes_per_case), MAX_NUM_CASES)
        # Sums of the bounds of cases that are not kept, since they can hardly be narrower: log Z first, then states.
        self._closed_lower = np.full(1 + self._tables.num_unary, -np.inf)
        self._closed_upper = np.full(1 + self._tables.num_unary, -np.inf)
        self._ties = np.zeros(self._tables.num_variables)  # how strongly each variable is tied to others
        for scope, strength in zip(self._tables.factor_scopes, self._tables.tie_strengths, strict=True):
            self._ties[list(scope)] += strength

    def split(self, clock: Clock) -> bool:
        """Split the case with the widest bounds; whether there was one worth it.

        An :class:`fastmix._clock.OutOfTimeError` leaves the bounds as they were before.
        """
        if not self._cases:
            return False
        widest = max(range(len(self._cases)), key=lambda number: self._cases[number].gap)
        case = self._cases[widest]
        if case.gap < self.log_z[1] + math.log(TIGHT_LOG_Z):
            return False
        variable = self._choose_variable(case)
        if variable is None:
            self._close(widest)
            return True
        clock.check()  # a bound from above that has no time for a step is no error, and there may be none from below
        found = [self._fix(case, variable, state, clock) for state in range(self._tables.num_states[variable])]
        possible = [one for one in found if one is not None]
        self._cases[widest : widest + 1] = possible
        self.num_cases += len(possible) - 1
        while len(self._cases) > self._max_cases:
            self._close(min(range(len(self._cases)), key=lambda number: self._cases[number].gap))
        self._add_up()
        return True

    def _close(self, number: int) -> None:
        """Add the bounds of a case to those of the cases that are not split any further."""
        lower, upper = _sums([self._cases.pop(number)])
        np.logaddexp(self._closed_lower, lower, out=self._closed_lower)
        np.logaddexp(self._closed_upper, upper, out=self._closed_upper)

    def _choose_variable(self, case: _Case) -> int | None:
        """The variable of the largest entropy times ties to others; None if none is uncertain and tied."""
        beliefs = case.beliefs
        terms = np.where(beliefs > 0.0, beliefs * np.log(np.maximum(beliefs, 1e-300)), 0.0)
        score = -np.add.reduceat(terms, self._tables.unary_starts) * self._ties
        score[list(case.fixed)] = -1.0
        best = int(np.argmax(score))
        return best if score[best] > 0.0 else None

    def _fix(self, case: _Case, variable: int, state: int, clock: Clock) -> _Case | None:
        """The case with one more variable fixed; None where it has no weight."""
        position = int(self._tables.offsets[variable]) + state
        if case.states_upper[position] == -np.inf:
            return None
        fixed = {**case.fixed, variable: state}
        tables = self._tables.with_fixed(fixed)
        forbidden = tables.unary == -np.inf

        # From above: from the point of the case before, and never above its bound on this state.
        upper = self._upper.with_tables(tables, case.point)
        try:
            upper.improve(clock, CASE_ITERATIONS)
        except ModelError:
            return None
        if not upper.num_evaluations:
            upper.beliefs = case.beliefs
        beliefs = np.where(forbidden, 0.0, upper.beliefs)
        sums = np.maximum(np.add.reduceat(beliefs, tables.unary_starts), 1e-300)
        beliefs = beliefs / np.repeat(sums, tables.num_states)
        high = min(upper.log_z, float(case.states_upper[position]))
        states_high = np.where(forbidden, -np.inf, np.minimum(upper.log_weights, case.states_upper))

        # From below: from the marginals found above, and never below the bound on this state of the case before.
        low = float(case.states_lower[position])
        states_low = np.full(tables.num_unary, -np.inf)
        if self._lower is not None:
            lower = self._lower.with_tables(tables)
            with contextlib.suppress(ModelError):  # forbidden pairs across clusters leave nothing
                lower.start(beliefs)
                lower.improve(clock, CASE_SWEEPS)
            low = max(low, lower.log_z)
            states_low = lower.log_weights
        own = tables.offsets[list(fixed)] + list(fixed.values())
        states_low[own] = np.maximum(states_low[own], low)
        return _Case(fixed, low, high, states_low, states_high, upper.point, beliefs)

    def _add_up(self) -> None:
        """Tighten the bounds of the whole model by the sums of the bounds of its cases."""
        slack = rounding(2.0 * self.num_cases, 0.0)
        lower_sums, upper_sums = _sums(self._cases)
        lower = np.logaddexp(self._closed_lower, lower_sums)
        upper = np.logaddexp(self._closed_upper, upper_sums)
        self.log_z = (max(self.log_z[0], float(lower[0]) - slack), min(self.log_z[1], float(upper[0]) + slack))
        states_lower = np.maximum(self.log_weights[0], lower[1:] - slack)
        states_upper = np.minimum(self.log_weights[1], upper[1:] + slack)
        self.log_weights = (states_lower, states_upper)


def _sums(cases: list[_Case]) -> tuple[FloatArray, FloatArray]:
    """Lower and upper bounds of cases, added up: log Z first, then all states."""
    lower = [np.append(case.lower, case.states_lower) for case in cases]
    upper = [np.append(case.upper, case.states_upper) for case in cases]
    return np.logaddexp.reduce(lower, axis=0), np.logaddexp.reduce(upper, axis=0)
