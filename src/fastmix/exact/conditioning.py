"""Exact inference by cases: some variables are set to each of their states in turn, so that the tables of the rest fit.

A clique table that is a few times too large for the memory is cut by fixing some of its variables (cutset conditioning:
Pearl 1986, Dechter 1990). The cases share one plan; log Z is the sum of theirs, and marginals are weighted by it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np

from fastmix._arrays import IntArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix.errors import ImpossibleModelError, ModelError, ResourceError
from fastmix.exact.elimination import FactorElimination, model_factors, plan_elimination
from fastmix.exact.planner import Factors
from fastmix.exact.program import Calibration
from fastmix.exact.search import EliminationOrder, find_order, order_cost
from fastmix.exact.tuning import (
    CUTSET_CANDIDATES,
    LEAST_CONDITIONED_BYTES,
    MAX_CASES,
)
from fastmix.model import MarkovRandomField

__all__ = ["ConditionedElimination", "plan_conditioned"]


@dataclass(frozen=True, eq=False)
class ConditionedElimination:
    """The elimination of all variables but some, for every case of these.

    Attributes
    ----------
    model : MarkovRandomField
    elimination : FactorElimination
        Of one case: variables of the cutset have a single state.
    cutset : tuple of int
        The variables that are fixed.
    positions : int array
        Of every entry of the tables of a case, that in the parameters of the model where the cutset is in state 0.
    steps : int array (len(cutset), number of entries)
        How far it moves with each state of a variable of the cutset.
    """

    model: MarkovRandomField
    elimination: FactorElimination
    cutset: tuple[int, ...]
    positions: IntArray
    steps: IntArray

    @property
    def num_cases(self) -> int:
        """Joint states of the cutset."""
        return math.prod(int(self.model.num_states[v]) for v in self.cutset)

    @property
    def treewidth(self) -> int:
        """Largest clique of a case minus one, and the variables that are fixed: an upper bound on the treewidth."""
        return self.elimination.treewidth + len(self.cutset)

    @property
    def total_entries(self) -> float:
        """Entries of all cliques, of all cases."""
        return self.num_cases * self.elimination.order.total_entries

    @property
    def required_bytes(self) -> int:
        """Peak memory of :meth:`calibrate`."""
        entries = len(self.positions) * (3 + len(self.cutset)) + 3 * len(self.model.parameters)
        return self.elimination.required_bytes + 8 * entries

    @property
    def seconds(self) -> float:
        """Estimate of the time that :meth:`calibrate` takes."""
        return self.num_cases * self.elimination.seconds

    def calibrate(self, clock: Clock = NO_LIMIT, *, edge_marginals: bool = True) -> Calibration:
        """Log Z, node and edge marginals aligned with the arrays of the model, as of
        :meth:`fastmix.exact.elimination.ModelElimination.calibrate`.
        """
        model = self.model
        n = model.num_variables
        num_unary = len(model.log_unary)
        wanted: bool | range = range(n, n + model.num_edges) if edge_marginals and model.num_edges else False
        sums = np.zeros(num_unary + len(model.log_pairwise))
        log_z = -math.inf
        arithmetic = "linear"
        for number, case in enumerate(self._cases()):
            clock.check()
            clock.report(number, self.num_cases, "cases")
            places = self._places(case)
            try:
                found = self.elimination.marginals(model.parameters[places], of_factors=wanted, clock=clock)
            except ModelError:  # a case of probability zero
                continue
            arithmetic = found.arithmetic
            together = float(np.logaddexp(log_z, found.log_z))
            shares = found.marginals if wanted is False else np.concatenate([found.marginals, found.factor_marginals])
            sums *= math.exp(log_z - together)
            sums[places[: len(shares)]] += math.exp(found.log_z - together) * shares
            log_z = together
        if log_z == -math.inf:
            raise ImpossibleModelError("no configuration has positive probability")
        nodes = sums[:num_unary]
        nodes /= np.repeat(np.add.reduceat(nodes, model.unary_offsets[:-1]), model.num_states)
        return Calibration(log_z + model.log_constant, nodes, sums[num_unary:], arithmetic)

    def draw(self, num_draws: int, rng: np.random.Generator, clock: Clock = NO_LIMIT) -> IntArray:
        """Independent exact configurations (num_draws, n): a case first, by its share of Z, and then the rest given it.

        A ModelError where no configuration has positive probability.
        """
        log_zs = np.full(self.num_cases, -math.inf)
        for number, case in enumerate(self._cases()):
            clock.check()
            values = self.model.parameters[self._places(case)]
            with contextlib.suppress(ModelError):
                log_zs[number] = self.elimination.marginals(values, clock=clock).log_z
        if log_zs.max() == -math.inf:
            raise ImpossibleModelError("no configuration has positive probability")
        shares = np.exp(log_zs - log_zs.max())
        counts = rng.multinomial(num_draws, shares / shares.sum())
        states = np.zeros((num_draws, self.model.num_variables), dtype=np.int64)
        stop = 0
        for case, count in zip(self._cases(), counts.tolist(), strict=True):
            if count:
                rows = slice(stop, stop + count)
                values = self.model.parameters[self._places(case)]
                states[rows] = self.elimination.draw(count, rng, clock, values=values)
                states[rows, list(self.cutset)] = case
                stop += count
        return np.asarray(states[rng.permutation(num_draws)])

    def _cases(self) -> Iterator[tuple[int, ...]]:
        """The joint states of the cutset."""
        return product(*(range(int(self.model.num_states[v])) for v in self.cutset))

    def _places(self, case: tuple[int, ...]) -> IntArray:
        """Where the entries of the tables of a case stand in the parameters of the model."""
        return np.asarray(self.positions + np.array(case, dtype=np.int64) @ self.steps)


def plan_conditioned(
    model: MarkovRandomField, *, memory_limit: float, clock: Clock = NO_LIMIT
) -> ConditionedElimination:
    """The elimination by cases that fits a limit in bytes, with as few cases as are found.

    1. Find an order of all variables.
    2. Fix, one after another, the variable that saves most entries of its tables for the cases that it costs.
    3. Order what is left anew, and plan one case; where that does not fit yet, fix another variable.

    Raises
    ------
    ResourceError
        If there would be more than 1,024 cases, or the limit is so small that it is not worth it.
    """
    if memory_limit < LEAST_CONDITIONED_BYTES:
        raise ResourceError("the memory limit is too small for inference by cases")
    factors = model_factors(model)
    states = list(factors.num_states)
    # 1. The order.
    order = find_order(states, factors.scopes, clock=clock, max_entries=memory_limit / 8)
    cutset: list[int] = []
    num_cases = 1
    while True:
        # 2. Another variable.
        clock.check()
        variable = _best_variable(states, factors.scopes, order, cutset, clock)
        num_cases *= states[variable]
        cutset.append(variable)
        if num_cases > MAX_CASES:
            raise ResourceError(f"exact inference by cases would take more than {MAX_CASES:,} of them")
        fixed = [1 if v in cutset else count for v, count in enumerate(states)]
        scopes = [_scope_of_case(scope, cutset) for scope in factors.scopes]
        order = order_cost(fixed, scopes, order.order)
        if 8.0 * order.max_entries > memory_limit:
            continue
        # 3. The plan of a case.
        anew = find_order(fixed, scopes, clock=clock, max_entries=memory_limit / 8)
        best = min(order, anew, key=lambda found: found.total_entries)
        try:
            tables = Factors(fixed, scopes, np.zeros(0))
            elimination = plan_elimination(tables, memory_limit=memory_limit, order=best, clock=clock)
        except ResourceError:
            order = best
            continue
        return ConditionedElimination(model, elimination.run_often(), tuple(cutset), *_positions(factors, cutset))


def _scope_of_case(scope: tuple[int, ...], cutset: Sequence[int]) -> tuple[int, ...]:
    """The variables of a table that are left, one that is fixed where there are none."""
    return tuple(v for v in scope if v not in cutset) or scope[:1]


def _best_variable(
    states: list[int], scopes: Sequence[tuple[int, ...]], order: EliminationOrder, cutset: list[int], clock: Clock
) -> int:
    """The variable that saves most: the log of all entries before over after, by the log of its states.

    Those that are looked at are in most of the largest cliques.
    """
    fixed = [1 if v in cutset else count for v, count in enumerate(states)]
    left = [_scope_of_case(scope, cutset) for scope in scopes]
    best = -1
    largest = -math.inf
    for variable in _candidates(fixed, left, order.order):
        clock.check()
        without = [_scope_of_case(scope, [variable]) for scope in left]
        counts = [1 if v == variable else count for v, count in enumerate(fixed)]
        after = order_cost(counts, without, order.order).total_entries
        gain = math.log(order.total_entries / after) / math.log(states[variable])
        if gain > largest:
            best = variable
            largest = gain
    if best < 0:
        raise ResourceError("there is no variable left to make cases of")
    return best


def _candidates(states: list[int], scopes: Sequence[tuple[int, ...]], order: IntArray) -> list[int]:
    """Variables of at least two states that are in most entries of clique tables."""
    place = np.empty(len(states), dtype=np.int64)
    place[order] = np.arange(len(states))
    neighbors: list[set[int]] = [set() for _ in states]
    for scope in scopes:
        for v in scope:
            neighbors[v].update(scope)
    weights = np.zeros(len(states))
    for v in order.tolist():
        around = [u for u in neighbors[v] if place[u] > place[v]]
        entries = states[v] * math.prod(float(states[u]) for u in around)
        weights[[v, *around]] += entries
        for u in around:
            neighbors[u].update(around)
    several = np.flatnonzero(np.array(states) > 1)
    found: list[int] = several[np.argsort(-weights[several], kind="stable")[:CUTSET_CANDIDATES]].tolist()
    return found


def _positions(factors: Factors, cutset: Sequence[int]) -> tuple[IntArray, IntArray]:
    """Where the entries of a case stand in all tables, and how far these places move with each state that is fixed."""
    places: list[IntArray] = []
    steps: list[IntArray] = []
    sizes = [math.prod([factors.num_states[v] for v in scope]) for scope in factors.scopes]
    starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).tolist()
    for scope, (begin, end) in zip(factors.scopes, pairwise(starts), strict=True):
        shape = [factors.num_states[v] for v in scope]
        entries = np.arange(begin, end).reshape(shape)
        zero = tuple(0 if v in cutset else slice(None) for v in scope)
        kept = np.asarray(entries[zero]).reshape(-1)
        strides = dict(zip(scope, [math.prod(shape[k + 1 :]) for k in range(len(shape))], strict=True))
        places.append(kept)
        moves = np.array([strides.get(v, 0) for v in cutset], dtype=np.int64)
        steps.append(np.repeat(moves[:, None], len(kept), axis=1))
    return np.concatenate(places), np.concatenate(steps, axis=1)
