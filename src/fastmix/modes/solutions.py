"""Several configurations of large weight for one call of :func:`fastmix.most_probable`, one after another."""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import dataclass

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import Clock, OutOfTimeError
from fastmix._context import Context
from fastmix._memory import available_memory
from fastmix.errors import ImpossibleModelError, ModelError, ResourceError, UnfitMethodError
from fastmix.exact.elimination import FactorElimination, check_size, model_factors, plan_elimination
from fastmix.model import MarkovRandomField
from fastmix.model.reduce import impossible
from fastmix.modes.apart import Apart, apart_factors
from fastmix.modes.mode_run import ModeRun
from fastmix.modes.routes import find_by_route
from fastmix.modes.toulbar2_route import Toulbar2Route
from fastmix.modes.tuning import (
    MAX_POLISHES,
    MAX_PRICE_ROUNDS,
    OVERRUN,
    SHARE_OF_FIRST_SOLUTION,
    SHARE_OF_PLAN,
    SHARE_OF_PRICED_SEARCH,
)

__all__ = ["Solution", "SolutionRun"]


@dataclass(frozen=True)
class Solution:
    """A configuration, and a bound on all that differ enough from the solutions before it.

    ``rounding`` is the gap that is no more than the rounding of sums.
    """

    states: IntArray
    log_weight: float
    upper_bound: float
    rounding: float

    @property
    def is_exact(self) -> bool:
        """Whether nothing that differs enough from those before weighs more, up to rounding."""
        return self.upper_bound - self.log_weight <= self.rounding


class SolutionRun:
    """The best configurations of a model, each as probable as can be beside those before it.

    1. Where all that differ count, the junction tree gives them one by one: the set of all configurations is split in
       two at the state in which the next best differs (Nilsson 1998, in the binary form of Yanover and Weiss 2004).
    2. Otherwise the best is found as for one solution. Each further one is the best of those that differ enough from
       all before, by the junction tree with counters of differences (:mod:`fastmix.modes.apart`) where that fits, and
       by toulbar2 with as many linear constraints.
    3. Elsewhere agreement with those before gets a price (Batra et al. 2012). The best configuration at a price bounds
       all that differ enough, and leads to some that do.

    Parameters
    ----------
    model : MarkovRandomField
        What evidence has been taken out of.
    counted : int array
        Numbers of the variables in which solutions must differ.
    num_solutions, min_distance : int
        Solutions at most, and in how many variables any two of them differ at least.

    Attributes
    ----------
    found : list of Solution
        In the order found.
    is_complete : bool
        Whether it is proven that there are no more.
    moves, stats, engines : dict
        As of :class:`fastmix.modes.mode_run.ModeRun`.
    """

    def __init__(
        self,
        model: MarkovRandomField,
        counted: IntArray,
        context: Context,
        *,
        tol: float,
        memory_limit: float | None,
        num_solutions: int,
        min_distance: int,
    ) -> None:
        self.model = model
        self.counted = counted
        self.context = context
        self.clock = context.clock
        self.tol = tol
        self.memory_limit = available_memory() / 2 if memory_limit is None else memory_limit
        self.num_solutions = num_solutions
        self.min_distance = min_distance
        self.found: list[Solution] = []
        self.is_complete = False
        self.moves: dict[str, int] = {}
        self.stats: dict[str, float] = {}
        self.engines: dict[str, str] = {}

    def run(self, method: str) -> str:
        """Find what there is time for; the name of the route that gave the best one."""
        if not self.model.num_variables:
            self._settle(np.zeros(0, dtype=np.int64))
            self.is_complete = True
            return "exact"
        if self.min_distance == 1 and method in ("auto", "exact"):
            try:
                self._enumerate(is_alone=method == "exact")
                return "exact"
            except (ResourceError, OutOfTimeError):
                if method == "exact" or self.found:
                    raise
        first = self._new_run(0, SHARE_OF_FIRST_SOLUTION)
        try:
            used = find_by_route(method, first)
        finally:
            self._keep(first)
        while self.found and len(self.found) < self.num_solutions and not self.is_complete:
            self.clock.check()
            self._find_next(method)
        return used

    def ranked(self) -> list[Solution]:
        """The solutions, that of the largest weight first; bounds are raised where that changes which come before.

        The i-th largest weight of all is at most the bound found for the i-th. Where solutions must differ in several
        variables this does not hold once their order has changed, and the bound on all configurations takes its place.
        """
        order = sorted(range(len(self.found)), key=lambda k: (-self.found[k].log_weight, k))
        result = []
        for place, number in enumerate(order):
            one = self.found[number]
            bound = self.found[place].upper_bound
            if set(order[:place]) != set(range(place)) and self.min_distance > 1:
                bound = self.found[0].upper_bound
            bound = max(bound, one.log_weight)
            rounding = max(one.rounding, self.found[place].rounding)
            result.append(Solution(one.states, one.log_weight, bound, rounding))
        return result

    # -- the best ones in their order ---------------------------------------------------------------------------------

    def _plan(self, *, is_alone: bool) -> FactorElimination:
        """The elimination of all variables; a ResourceError where it takes too much memory or time."""
        clock = self.clock
        check_size(self.model, self.memory_limit, clock.part(SHARE_OF_PLAN), self.model.num_variables)
        factors = model_factors(self.model)
        tree = plan_elimination(factors, memory_limit=self.memory_limit, clock=clock.part(SHARE_OF_PLAN))
        seconds = 2.0 * self.num_solutions * tree.seconds
        if not is_alone and seconds > OVERRUN * clock.left():
            raise ResourceError(f"exact inference of all solutions takes about {seconds:.2g} s, over the time limit")
        return tree

    def _enumerate(self, *, is_alone: bool) -> None:
        """Find the solutions one by one, each proven, by the largest log-weights with every state."""
        tree = self._plan(is_alone=is_alone).run_often()
        self.stats["treewidth"] = tree.treewidth
        parts: list[tuple[float, int, _Part]] = []
        tie = itertools.count()
        try:
            first = _Part.solve(tree, self.model, self.model.parameters, self.clock)
        except ModelError as error:
            raise impossible(self.context.given) from error
        self._count("eliminations")
        self._settle(first.states)
        heapq.heappush(parts, (-first.second, next(tie), first))
        while len(self.found) < self.num_solutions:
            negative, _, part = heapq.heappop(parts)
            if negative == math.inf:
                self.is_complete = True
                return
            for piece in part.split(tree, self.clock):
                self._count("eliminations")
                heapq.heappush(parts, (-piece.second, next(tie), piece))
            self._settle(piece.states)  # the second of the two pieces has what is new

    def _settle(self, states: IntArray) -> None:
        """Keep a solution that is proven."""
        log_weight = float(self.model.log_weight(states))
        self.found.append(Solution(states, log_weight, log_weight, 0.0))

    # -- one after another --------------------------------------------------------------------------------------------

    def _new_run(self, number: int, share: float, apart: Apart | None = None) -> ModeRun:
        """The run of one solution, in a share of the time that is left."""
        context = self.context.within(f"solution {number}", self.clock.part(share))
        run = ModeRun(self.model, context, tol=self.tol, memory_limit=self.memory_limit, apart=apart)
        if self.found:  # whatever differs enough from all of them differed enough from all but the last
            run.lower_bound(self.found[-1].upper_bound, self.found[-1].rounding / 2.0)
        return run

    def _keep(self, run: ModeRun) -> None:
        """Take over what a run has found, and its counts."""
        for move, number in run.moves.items():
            self._count(move, number)
        self.stats |= run.stats
        self.engines |= run.engines
        if run.states is not None:
            bound = run.log_weight if run.is_exact else run.upper_bound
            self.found.append(Solution(run.states, run.log_weight, bound, run.rounding))

    def _find_next(self, method: str) -> None:
        """Find one more solution, or that there is none; an OutOfTimeError where neither succeeds."""
        apart = Apart(np.array([one.states for one in self.found]), self.counted, self.min_distance)
        number = len(self.found)
        run = self._new_run(number, 1.0 / (self.num_solutions - number), apart)
        try:
            self._solve_apart(run, method)
        except ModelError:  # nothing differs enough
            self.is_complete = True
            return
        finally:
            self._keep(run)
        if run.states is None:
            raise OutOfTimeError

    def _solve_apart(self, run: ModeRun, method: str) -> None:
        """Offer what differs enough, by whatever proves it first; an ImpossibleModelError where nothing does."""
        if method in ("auto", "exact"):
            try:
                _count_differences(run, is_alone=method == "exact")
                return
            except (ResourceError, OutOfTimeError):
                if method == "exact":
                    raise
        prices = _Prices(run)
        prices.offer_nearby()
        if method in ("auto", "toulbar2") and not run.is_over:
            run.is_alone = method == "toulbar2"
            try:
                Toulbar2Route().find(run)
            except (ResourceError, UnfitMethodError):
                if method == "toulbar2":
                    raise
        if method != "toulbar2" and not run.is_over:
            prices.search(method)

    def _count(self, move: str, number: int = 1) -> None:
        """Remember that moves of a kind were made."""
        self.moves[move] = self.moves.get(move, 0) + number


class _Part:
    """The configurations that some states are forbidden to, the best of them, and the second best by what it changes.

    Attributes
    ----------
    values : float array
        The tables of the model, -inf for the states that are not in this part.
    states : int array (n,)
        The best configuration of this part.
    second : float
        The log-weight of the second best, -inf where there is none; it has the state ``state`` of ``variable``.
    """

    def __init__(
        self, model: MarkovRandomField, values: FloatArray, states: IntArray, max_marginals: FloatArray
    ) -> None:
        self.model = model
        self.values = values
        self.states = states
        others = max_marginals.copy()
        others[model.unary_offsets[:-1] + states] = -math.inf
        place = int(others.argmax()) if len(others) else 0
        self.second = float(others[place]) if len(others) else -math.inf
        self.variable = int(np.searchsorted(model.unary_offsets, place, side="right")) - 1
        self.state = place - int(model.unary_offsets[max(self.variable, 0)])

    @classmethod
    def solve(cls, tree: FactorElimination, model: MarkovRandomField, values: FloatArray, clock: Clock) -> _Part:
        """The part of these tables."""
        _, states, max_marginals = tree.max_marginals(clock, values=values)
        return cls(model, values, np.asarray(states), max_marginals)

    def split(self, tree: FactorElimination, clock: Clock) -> tuple[_Part, _Part]:
        """The part without the state in which the second best differs, and the part with no other state there."""
        begin, end = self.model.unary_offsets[self.variable : self.variable + 2].tolist()
        without = self.values.copy()
        without[begin + self.state] = -math.inf
        only = self.values.copy()
        only[begin:end] = -math.inf
        only[begin + self.state] = self.values[begin + self.state]
        _, _, max_marginals = tree.max_marginals(clock, values=without)
        rest = _Part(self.model, without, self.states, max_marginals)
        return rest, _Part.solve(tree, self.model, only, clock)


def _count_differences(run: ModeRun, *, is_alone: bool) -> None:
    """Settle a run by the junction tree with counters of differences.

    A ResourceError where that takes too much memory or time; an ImpossibleModelError where nothing differs enough.
    """
    assert run.apart is not None
    clock = run.clock
    model = run.model
    check_size(model, run.memory_limit, clock.part(SHARE_OF_PLAN), model.num_variables)
    factors = model_factors(model)
    plain = plan_elimination(factors, memory_limit=run.memory_limit, clock=clock.part(SHARE_OF_PLAN))
    with_counters = apart_factors(factors, plain.order.order.tolist(), run.apart)
    if with_counters is None:
        raise ImpossibleModelError("nothing differs enough from the solutions before")
    tree = plan_elimination(with_counters, memory_limit=run.memory_limit, clock=clock.part(SHARE_OF_PLAN))
    if not is_alone and tree.seconds > OVERRUN * clock.left():
        raise ResourceError(f"exact inference takes about {tree.seconds:.2g} s, over the time limit")
    _, states = tree.most_probable(clock)
    run.settle(np.asarray(states[: model.num_variables]))
    run.count("eliminations")


class _Prices:
    """Prices on agreement with the solutions before, for the run of the next one.

    A configuration that differs enough agrees with each of k solutions in at most a = (number that counts) - distance
    variables. So the largest value of ``w(x) + sum_k price_k (a - agreement_k(x))`` bounds its log-weight from above.
    """

    def __init__(self, run: ModeRun) -> None:
        assert run.apart is not None
        self.run = run
        self.apart = run.apart
        self.most = len(self.apart.counted) - self.apart.distance  # agreements
        model = run.model
        self.owner = np.repeat(np.arange(model.num_variables), model.num_states)
        self.state_of = np.arange(len(self.owner)) - model.unary_offsets[self.owner]

    def offer_nearby(self) -> None:
        """Offer configurations that differ from one of the solutions before in what costs the least."""
        for states in self.apart.states[::-1]:
            self._offer_repaired(states)
            if self.run.clock.past():
                return

    def search(self, method: str) -> None:
        """Find the best configurations at prices between too low and too high, and bounds from them."""
        low = np.zeros(len(self.apart.states))
        high = np.full(len(low), math.inf)
        prices = self._first_prices()
        for number in range(MAX_PRICE_ROUNDS):
            if self.run.is_over:
                return
            states = self._solve(prices, method, number)
            if states is None:
                return
            is_near = self.apart.distances(states) < self.apart.distance
            low = np.where(is_near, np.maximum(low, prices), low)
            high = np.where(is_near, high, np.minimum(high, prices))
            low = np.minimum(low, high)
            known = np.isfinite(high)
            prices = np.where(known, 0.5 * (low + np.where(known, high, 0.0)), 2.0 * prices + 1e-3)

    def _first_prices(self) -> FloatArray:
        """The price at which the cheapest changes of single variables, as many as there must be, pay off."""
        found = []
        for states in self.apart.states:
            losses = np.full(len(states), math.inf)
            changes = np.where(self.state_of == states[self.owner], -math.inf, self.run.changes(states))
            np.minimum.at(losses, self.owner, -changes)
            ordered = np.sort(losses[self.apart.counted])
            finite = ordered[: self.apart.distance]
            found.append(float(finite[np.isfinite(finite)].max(initial=0.0)))
        return np.maximum(np.array(found), 0.0)

    def _solve(self, prices: FloatArray, method: str, number: int) -> IntArray | None:
        """The best configuration found at some prices; its bound lowers that of the run."""
        run = self.run
        model = run.model
        unary = model.log_unary.copy()
        for price, states in zip(prices.tolist(), self.apart.states, strict=True):
            unary[model.unary_offsets[self.apart.counted] + states[self.apart.counted]] -= price
        context = run.context.within(f"prices {number}", run.clock.part(SHARE_OF_PRICED_SEARCH))
        inner = ModeRun(model.replace(log_unary=unary), context, tol=run.tol, memory_limit=run.memory_limit)
        try:
            find_by_route(method, inner, without=("toulbar2",))
        except (OutOfTimeError, ResourceError, UnfitMethodError):
            if inner.states is None:
                return None
        for move, times in inner.moves.items():
            run.count(move, times)
        constant = self.most * float(prices.sum())
        bound = inner.log_weight if inner.is_exact else inner.upper_bound
        run.lower_bound(bound + constant, inner.rounding + 1e-12 * abs(constant))
        if inner.states is not None:
            self._offer_repaired(inner.states)
        return inner.states

    def _offer_repaired(self, states: IntArray) -> None:
        """Change single variables of a configuration until it differs enough, then as long as that helps."""
        run = self.run
        states = states.copy()
        num_changes = 0
        while not run.clock.past():
            lacking = self.apart.shortfall(states)
            left = self.apart.shortfalls(states, self.owner, self.state_of)
            changes = run.changes(states)
            allowed = left < lacking if lacking else (left == 0) & (changes > run.rounding)
            allowed &= self.state_of != states[self.owner]
            if not allowed.any() or num_changes > MAX_POLISHES + self.apart.distance * len(self.apart.states):
                break
            best = int(np.where(allowed, changes, -math.inf).argmax())
            if not allowed[best]:
                break
            states[self.owner[best]] = self.state_of[best]
            num_changes += 1
        run.offer(states)
