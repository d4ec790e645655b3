"""The most probable states of some variables, everything else summed out (marginal MAP)."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._checks import as_list, describe
from fastmix._clock import Clock, OutOfTimeError
from fastmix._context import Context
from fastmix._memory import available_memory
from fastmix.errors import ModelError, ResourceError
from fastmix.exact.batch import BatchElimination, plan_batch
from fastmix.exact.buckets import Table, bucket_order, bucket_sizes, eliminate
from fastmix.exact.elimination import model_factors, plan_elimination
from fastmix.exact.planner import Factors
from fastmix.exact.search import find_order
from fastmix.model import MarkovRandomField
from fastmix.model.laws import Logical
from fastmix.model.reduce import impossible
from fastmix.modes.tuning import (
    BUCKET_BYTES_PER_ENTRY,
    BUCKET_SECONDS_PER_ENTRY,
    MAX_OPEN_CASES,
    SHARE_OF_CLIMBS,
    SHARE_OF_ELIMINATION_OF_SOME,
    SUM_ROUNDING,
)

__all__ = ["MarginalRun", "as_variables", "has_noise"]


def as_variables(model: MarkovRandomField, variables: Any) -> tuple[int, ...]:
    """The numbers of variables that were asked for, in their order."""
    listed = as_list("variables", variables, "a list of variables")
    numbers = tuple([model.variable_index(variable) for variable in listed])
    if len(set(numbers)) < len(numbers):
        raise ModelError(f"variables must name each variable once, got {describe(variables)}")
    return numbers


def has_noise(model: MarkovRandomField) -> bool:
    """Whether a model has hidden variables that the others do not determine: the best states must sum them out."""
    if model.network is None:
        return False
    return any(not isinstance(model.network.tables[i], Logical) for i in model.network.laws)


class MarginalRun:
    """The best states of some variables so far and the smallest upper bound, for one call.

    1. Sum the other variables out first, and maximize what is left: exact where these tables fit.
    2. Elsewhere bound from above by taking maxima early, in an order whose tables are small, split if need be.
    3. Climb: each state of each variable is tried, for all of them at once, with the others summed out exactly.
    4. Branch on the states of one variable after another, the case of the largest bound first, until none is left
       that could be better.

    Parameters
    ----------
    model : MarkovRandomField
        What evidence has been taken out of.
    wanted : sequence of int
        The variables that are maximized.
    """

    def __init__(
        self, model: MarkovRandomField, wanted: Iterable[int], context: Context, tol: float, memory_limit: float | None
    ) -> None:
        self.model = model
        self.wanted = list(wanted)
        self.context = context
        self.clock = context.clock
        self.tol = tol
        self.memory_limit = available_memory() / 2 if memory_limit is None else memory_limit
        self.counts = model.num_states.tolist()
        self.tables = [Table(tuple(scope), values) for scope, values in model.terms()]
        self.maximized = frozenset(self.wanted)
        self.states: IntArray | None = None  # of the wanted variables
        self.log_weight = -math.inf
        self.upper_bound = math.inf
        self.is_exact = False
        self.moves: dict[str, int] = {}

    @property
    def gap(self) -> float:
        """How much the bound leaves open."""
        return 0.0 if self.is_exact else self.upper_bound - self.log_weight

    def run(self, method: str) -> str:
        """Find what there is time for; the name of the way that gave the answer."""
        if method != "search":
            is_alone = method == "exact"
            try:
                self._eliminate(self.clock if is_alone else self.clock.part(SHARE_OF_ELIMINATION_OF_SOME))
                return "exact"
            except (ResourceError, OutOfTimeError):
                if is_alone:
                    raise
        self._search()
        return "search"

    # -- exact -------------------------------------------------------------------------------------------------------

    def _eliminate(self, clock: Clock) -> None:
        """Sum out, then maximize; a ResourceError where that takes too much memory or time."""
        scopes = [table.scope for table in self.tables]
        others = [v for v in range(self.model.num_variables) if v not in self.maximized]
        order = bucket_order(scopes, self.counts, others, clock)
        entries, left_scopes = bucket_sizes(scopes, self.counts, order)
        self._check_size(entries, clock)
        number = {v: k for k, v in enumerate(self.wanted)}
        inner = [tuple(number[v] for v in scope) for scope in left_scopes]
        counts = [self.counts[v] for v in self.wanted]
        factors = Factors(counts, inner, np.zeros(0))
        tree = plan_elimination(factors, memory_limit=self.memory_limit, clock=clock)
        if tree.seconds > clock.left():
            raise ResourceError(f"the exact answer takes about {tree.seconds:.2g} s, over the time limit")
        left, constant, _ = eliminate(self.tables, order, self.maximized, num_states=self.counts, clock=clock)
        scopes_left = [tuple(number[v] for v in table.scope) for table in left]
        largest = 0.0
        states = np.zeros(0, dtype=np.int64)
        if left:
            values = np.concatenate([table.values.reshape(-1) for table in left])
            largest, states = self._largest(plan_elimination(Factors(counts, scopes_left, values), clock=clock), clock)
        total = constant + largest + self.model.log_constant
        if not total > -math.inf:
            raise impossible(self.context.given)
        self._settle(np.asarray(states), total)
        self._count("eliminations")

    def _largest(self, tree: Any, clock: Clock) -> tuple[float, IntArray]:
        """The largest weight of the wanted variables, and the states that have it."""
        try:
            found: tuple[float, IntArray] = tree.most_probable(clock)
        except ModelError as error:
            raise impossible(self.context.given) from error
        return found

    def _check_size(self, entries: float, clock: Clock) -> None:
        """A ResourceError where tables of so many entries take too much memory or time."""
        if BUCKET_BYTES_PER_ENTRY * entries > self.memory_limit:
            raise ResourceError(
                f"the exact answer visits {entries:.3g} entries of tables, over the memory limit: raise memory_limit, "
                "or take method='search'"
            )
        if BUCKET_SECONDS_PER_ENTRY * entries > clock.left():
            raise ResourceError(f"the exact answer visits {entries:.3g} entries of tables, over the time limit")

    # -- search ------------------------------------------------------------------------------------------------------

    def _search(self) -> None:
        """Bound, climb and branch until the gap is closed or the time is over."""
        self.order = self._bound_order()
        self.limit = max(64.0, min(self.memory_limit / BUCKET_BYTES_PER_ENTRY, self._entries_in_time()))
        self.upper_bound = self._bound({})
        if self.upper_bound == -math.inf:
            raise impossible(self.context.given)
        plan = self._value_plan()
        if not self.wanted:
            nothing = np.zeros(0, dtype=np.int64)
            self._settle(nothing, float(self._values(plan, nothing[None])[0]))
            return
        rng = self.context.rng("starts")
        deadline = self.clock.part(SHARE_OF_CLIMBS)
        self._climb(plan, np.array([int(np.argmax(self.model.unary(v))) for v in self.wanted], dtype=np.int64))
        if not self._is_over():
            self._climb(plan, self._bounded_states(deadline))
        for _ in range(3 * len(self.wanted)):
            if deadline.past() or self._is_over():
                break
            self._climb(plan, self._random_states(rng))
        self._branch(plan)
        if self.log_weight == -math.inf:
            self.states = None
            raise OutOfTimeError

    def _bound_order(self) -> list[int]:
        """An order of all variables in which tables are small, wanted ones where they come."""
        factors = model_factors(self.model)
        return [int(v) for v in find_order(self.counts, factors.scopes, clock=self.clock.part(0.2), effort=0.2).order]

    def _entries_in_time(self) -> float:
        """Entries of a table such that a bound takes a hundredth of the time that is left."""
        left = self.clock.left()
        return math.inf if math.isinf(left) else left / 100.0 / BUCKET_SECONDS_PER_ENTRY / max(1, len(self.order))

    def _bound(self, given: dict[int, int]) -> float:
        """An upper bound on the weight of all states of the wanted variables that agree with those given."""
        tables = self.tables
        if given:
            tables = [*tables, *[Table((v,), _point(self.counts[v], state)) for v, state in given.items()]]
        _, constant, _ = eliminate(
            tables, self.order, self.maximized, num_states=self.counts, limit=self.limit, clock=self.clock
        )
        self._count("bounds")
        return constant + self.model.log_constant

    def _value_plan(self) -> BatchElimination:
        """The plan that sums out everything else, for rows of states of the wanted variables."""
        try:
            return plan_batch(self.model, given=self.wanted, memory_limit=self.memory_limit, clock=self.clock)
        except ResourceError as error:
            raise ResourceError(
                f"not even the weight of given states of the variables can be summed: {error}"
            ) from error

    def _values(self, plan: BatchElimination, states: IntArray) -> FloatArray:
        """The log-weights of rows (N, wanted) of states."""
        rows = np.full((len(states), self.model.num_variables), -1, dtype=np.int64)
        rows[:, self.wanted] = states
        found = plan.answer(rows, marginals=False, clock=self.clock)
        return np.asarray(found.log_z)

    def _bounded_states(self, deadline: Clock) -> IntArray:
        """The best states of the wanted variables one after another, each by the bound given those before.

        Those that there is no time for stay as they are in the best states so far.
        """
        assert self.states is not None
        given: dict[int, int] = {}
        for v in self.wanted:
            if deadline.past():
                break
            bounds = [self._bound({**given, v: state}) for state in range(self.counts[v])]
            given[v] = int(np.argmax(bounds))
        return np.array([given.get(v, state) for v, state in zip(self.wanted, self.states.tolist(), strict=True)])

    def _random_states(self, rng: np.random.Generator) -> IntArray:
        """The best states so far, a quarter of them drawn anew."""
        drawn = np.array([rng.integers(self.counts[v]) for v in self.wanted], dtype=np.int64)
        assert self.states is not None
        return np.where(rng.random(len(drawn)) < 0.25, drawn, self.states)

    def _climb(self, plan: BatchElimination, states: IntArray) -> None:
        """Change single variables to what is best, as long as that helps, and keep the best states."""
        numbers = np.repeat(np.arange(len(self.wanted)), [self.counts[v] for v in self.wanted])
        values = np.concatenate([np.arange(self.counts[v]) for v in self.wanted])
        current = float(self._values(plan, states[None])[0])
        self._offer(states, current)
        while not self._is_over():
            rows = np.repeat(states[None], len(numbers), axis=0)
            rows[np.arange(len(numbers)), numbers] = values
            found = self._values(plan, rows)
            best = int(np.argmax(found))
            self._count("climbs")
            if not found[best] > current + self._rounding(current):
                return
            states = rows[best]
            current = float(found[best])
            self._offer(states, current)

    def _branch(self, plan: BatchElimination) -> None:
        """Split the case of the largest bound by the states of its next variable, until no case is left."""
        tie = itertools.count()
        heap: list[tuple[float, int, tuple[int, ...]]] = [(-self.upper_bound, next(tie), ())]
        while heap and not self._is_over() and len(heap) < MAX_OPEN_CASES:
            negative, _, case = heapq.heappop(heap)
            largest = -negative
            self.upper_bound = min(self.upper_bound, max(largest, self.log_weight))
            if largest <= self.log_weight + self._rounding(self.log_weight):
                heap.clear()
                break
            v = self.wanted[len(case)]
            for state in range(self.counts[v]):
                longer = (*case, state)
                if len(longer) == len(self.wanted):
                    states = np.array(longer, dtype=np.int64)
                    self._offer(states, float(self._values(plan, states[None])[0]))
                    continue
                own = min(largest, self._bound(dict(zip(self.wanted, longer, strict=False))))
                if own > self.log_weight + self._rounding(self.log_weight):
                    heapq.heappush(heap, (-own, next(tie), longer))
        if not heap and self.states is not None:
            self._settle(self.states, self.log_weight)

    def _is_over(self) -> bool:
        """Whether the gap is small enough, or the time is over."""
        if self.states is not None and self.gap <= max(self.tol, self._rounding(self.log_weight)):
            return True
        return self.clock.past()

    def _offer(self, states: IntArray, log_weight: float) -> None:
        """Keep states if they are better than what there is."""
        if log_weight > self.log_weight or self.states is None:
            self.states = states.copy()
            self.log_weight = log_weight
            self.is_exact = self.upper_bound - log_weight <= self._rounding(log_weight)

    def _settle(self, states: IntArray, log_weight: float) -> None:
        """Take states as most probable ones."""
        self.states = states
        self.log_weight = log_weight
        self.upper_bound = log_weight
        self.is_exact = True

    def _rounding(self, log_weight: float) -> float:
        """How exactly sums are known; 0 where there is none yet."""
        if log_weight == -math.inf:
            return 0.0
        return SUM_ROUNDING * max(1.0, abs(log_weight)) * max(1, len(self.tables))

    def _count(self, move: str) -> None:
        """Remember that a move was made."""
        self.moves[move] = self.moves.get(move, 0) + 1


def _point(count: int, state: int) -> FloatArray:
    """Logs of a point mass."""
    values = np.full(count, -np.inf)
    values[state] = 0.0
    return values
