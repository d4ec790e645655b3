"""Tighter bounds by cases: variables are fixed one after the other where most is between the bounds.

Z is the sum over the states of a variable of what it is with the variable fixed, so bounds on the parts add up, for
log Z and for the weight of every state of the others. A part keeps the covers, the clusters and the trees of the whole
model: only the entries of other states become -inf. Its optimisation goes on from the split of tables of the part that
it was taken from, which is a bound for it too; fixing a variable breaks the loops through it, so that a few steps gain
much (Weller and Domke 2015, "Clamping improves TRW and mean field approximations").
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, field

import numpy as np

from fastmix._arrays import FloatArray
from fastmix._clock import Clock
from fastmix.bounds.lower import Lower
from fastmix.bounds.terms import Terms, rounding
from fastmix.bounds.upper import Upper
from fastmix.errors import ModelError

__all__ = ["Cases"]


_STEPS = 10  # of the optimiser for every part
_SWEEPS = 10  # of the lower bound
_LEAST_PARTS, _MOST_PARTS = 8, 256  # kept at a time, whatever the memory
_TIGHT = 1e-10  # of log Z: nothing is gained by going on


@dataclass(eq=False)
class _Case:
    """A part: the states that are fixed, bounds on its log Z and on the log-weights of all states within it."""

    fixed: dict[int, int]
    upper: float
    states_upper: FloatArray
    lower: float
    states_lower: FloatArray
    point: FloatArray
    beliefs: FloatArray
    gap: float = field(init=False)  # log of what is between the bounds

    def __post_init__(self) -> None:
        self.lower = min(self.lower, self.upper)
        with np.errstate(divide="ignore"):
            self.gap = (
                self.upper + float(np.log(-np.expm1(self.lower - self.upper))) if self.upper > -np.inf else -np.inf
            )


class Cases:
    """Bounds that are sums over parts of the model, of which the one with the widest bounds is split again and again.

    ``upper`` is improved as far as it is worth it; ``log_z`` and ``states`` are the best bounds so far, on log Z and on
    the log-weights of all states; ``memory_limit`` is in bytes, for the parts.
    """

    def __init__(
        self,
        upper: Upper,
        lower: Lower | None,
        log_z: tuple[float, float],
        states: tuple[FloatArray, FloatArray],
        *,
        memory_limit: float = math.inf,
    ) -> None:
        self.upper, self.lower, self.terms = upper, lower, upper.terms
        self.log_z, self.states = log_z, states
        self.parts = [_Case({}, log_z[1], states[1], log_z[0], states[0], upper.point, upper.beliefs)]
        room = memory_limit / (8.0 * (len(upper.point) + 3.0 * self.terms.num_unary))
        self.most = min(max(_LEAST_PARTS, room), _MOST_PARTS)
        self.num_parts = 1
        # Sums over the parts that are not kept, since they can hardly be narrower: log Z first, then all states.
        self.closed = tuple(np.full(1 + self.terms.num_unary, -np.inf) for _ in range(2))
        self.ties = np.zeros(self.terms.num_variables)
        for scope, weight in zip(self.terms.scopes[self.terms.num_variables :], self.terms.weights, strict=True):
            self.ties[list(scope)] += weight

    def split(self, clock: Clock) -> bool:
        """Whether a part was split; its bounds, and those of the whole, are then replaced by sums."""
        if not self.parts:
            return False
        widest = max(range(len(self.parts)), key=lambda k: self.parts[k].gap)
        part = self.parts[widest]
        if part.gap < self.log_z[1] + math.log(_TIGHT):
            return False
        variable = self._choose(part)
        if variable is None:
            self._close(widest)
            return True
        new = [self._fix(part, variable, a, clock) for a in range(self.terms.num_states[variable])]
        self.parts[widest : widest + 1] = [case for case in new if case is not None]
        self.num_parts += sum(case is not None for case in new) - 1
        while len(self.parts) > self.most:
            self._close(min(range(len(self.parts)), key=lambda k: self.parts[k].gap))
        self._add_up()
        return True

    def _close(self, number: int) -> None:
        """Count a part as it is, without keeping it."""
        for total, own in zip(self.closed, _bounds([self.parts.pop(number)]), strict=True):
            np.logaddexp(total, own, out=total)

    def _choose(self, part: _Case) -> int | None:
        """A variable that is tied to others and uncertain; None if there is none."""
        b, starts = part.beliefs, self.terms.offsets[: self.terms.num_variables]
        score = -np.add.reduceat(np.where(b > 0.0, b * np.log(np.maximum(b, 1e-300)), 0.0), starts) * self.ties
        score[list(part.fixed)] = -1.0
        best = int(np.argmax(score))
        return best if score[best] > 0.0 else None

    def _fix(self, part: _Case, variable: int, state: int, clock: Clock) -> _Case | None:
        """The part with one more variable fixed; None where it has no weight."""
        place = int(self.terms.offsets[variable]) + state
        if part.states_upper[place] == -np.inf:
            return None
        terms, fixed = self.terms, {**part.fixed, variable: state}
        inside = clamped(terms, fixed)
        forbidden = inside.values[: terms.num_unary] == -np.inf
        upper = self.upper.on(inside, part.point)
        try:
            upper.improve(clock, _STEPS)
        except ModelError:
            return None
        if not upper.num_evaluations:
            upper.log_z, upper.states, upper.beliefs = math.inf, np.full(terms.num_unary, np.inf), part.beliefs
        beliefs = np.where(forbidden, 0.0, upper.beliefs)
        starts = terms.offsets[: terms.num_variables]
        beliefs = beliefs / np.repeat(np.maximum(np.add.reduceat(beliefs, starts), 1e-300), terms.num_states)
        high, low = min(upper.log_z, float(part.states_upper[place])), float(part.states_lower[place])
        states_high = np.where(forbidden, -np.inf, np.minimum(upper.states, part.states_upper))
        states_low = np.full(terms.num_unary, -np.inf)
        if self.lower is not None:
            lower = self.lower.on(inside)
            with contextlib.suppress(ModelError):  # forbidden pairs across clusters leave nothing
                lower.start(beliefs)
                lower.improve(clock, _SWEEPS)
            low, states_low = max(low, lower.log_z), lower.states
        own = terms.offsets[list(fixed)] + list(fixed.values())
        states_low[own] = np.maximum(states_low[own], low)
        return _Case(fixed, high, states_high, low, states_low, upper.point, beliefs)

    def _add_up(self) -> None:
        slack = rounding(2.0 * self.num_parts, 0.0)
        low, high = (np.logaddexp(t, own) for t, own in zip(self.closed, _bounds(self.parts), strict=True))
        self.log_z = max(self.log_z[0], float(low[0]) - slack), min(self.log_z[1], float(high[0]) + slack)
        self.states = np.maximum(self.states[0], low[1:] - slack), np.minimum(self.states[1], high[1:] + slack)


def _bounds(parts: list[_Case]) -> tuple[FloatArray, FloatArray]:
    """Lower and upper bounds of parts, added up: log Z, then all states."""
    low = [np.append(part.lower, part.states_lower) for part in parts]
    high = [np.append(part.upper, part.states_upper) for part in parts]
    return np.logaddexp.reduce(low, axis=0), np.logaddexp.reduce(high, axis=0)


def clamped(terms: Terms, fixed: dict[int, int]) -> Terms:
    """The terms with some variables fixed: the entries of their other states are -inf."""
    values = terms.values.copy()
    for v, a in fixed.items():
        start = int(terms.offsets[v])
        kept = values[start + a]
        values[start : start + terms.num_states[v]] = -np.inf
        values[start + a] = kept
    return terms.with_values(values)
