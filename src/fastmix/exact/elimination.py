"""Exact inference whose cost is known beforehand: log Z, marginals, draws and the most probable configuration.

Unaries, edges and factors are tables over one, two or more variables, and one engine takes them all. Eliminating the
variables one by one, in an order of :mod:`fastmix.exact.search`, multiplies the tables that have the variable and sums
it out. The tables of one variable are joined in pairs, the smallest first, and the last product is summed on the way,
so that no clique table is stored. The result is one plan of sums of products of two tables.

Its derivatives, in reverse, give every marginal without a division: the marginal of a factor is its table times the
derivative of Z with respect to it. Tables are kept in ordinary arithmetic, scaled, as long as the smallest positive
entries rule out underflow; if they do not, all is done again in logarithms. Draws and the most probable configuration
go back through the same plan, variable by variable.

On large models the trees that hang on the graph are summed out before (:mod:`fastmix.exact.leaves`).
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from itertools import pairwise
from typing import NoReturn

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock, OutOfTimeError
from fastmix._memory import format_bytes
from fastmix.errors import ResourceError
from fastmix.exact.planner import EliminationPlan, Factors
from fastmix.exact.program import Calibration, Program, ProgramRun, UnderflowError
from fastmix.exact.search import EliminationOrder, find_order
from fastmix.exact.tuning import (
    CHEAP_ENTRIES,
    MAX_KEPT_VARIABLES,
    MAX_UNBOUNDED_VARIABLES,
    MIN_COMPILED_LEAVES,
    PLAIN_PYTHON_ENTRIES,
    PLAIN_PYTHON_RUNS,
    PLANNING_SECONDS_PER_EDGE,
    PLANNING_SECONDS_PER_VARIABLE,
    PROGRAM_BYTES_PER_STEP,
    SECONDS_PER_BYTE,
    SECONDS_PER_ENTRY,
    SECONDS_PER_FACTOR,
    SECONDS_PER_INPUT_ENTRY,
    SECONDS_PER_LOG_ENTRY,
    SECONDS_PER_MATRIX_ENTRY,
    SECONDS_PER_STEP,
)
from fastmix.graphs import degeneracy
from fastmix.graphs.trees import strip_leaves
from fastmix.model import MarkovRandomField, check_model

__all__ = [
    "FactorElimination",
    "ModelElimination",
    "check_size",
    "kept_elimination",
    "model_factors",
    "plan_elimination",
    "plan_model_elimination",
    "refuse",
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class FactorElimination:
    """The elimination of all variables of some factors, its cost known before anything is allocated."""

    factors: Factors
    order: EliminationOrder
    plan: EliminationPlan

    @property
    def required_bytes(self) -> int:
        """Peak memory of :meth:`marginals`."""
        return self.plan.required_bytes

    @property
    def num_tables(self) -> int:
        """Number of tables that are multiplied: those of the factors, joined, and all results."""
        return len(self.plan.sizes)

    @property
    def treewidth(self) -> int:
        """Largest clique minus one: an upper bound on the treewidth of the graph."""
        return self.order.width

    @property
    def seconds(self) -> float:
        """Estimate of the time that :meth:`marginals` takes, touching its memory included."""
        steps = self.plan.steps
        work = sum([(SECONDS_PER_MATRIX_ENTRY if s.gemm else SECONDS_PER_ENTRY) * s.entries for s in steps])
        work += SECONDS_PER_INPUT_ENTRY * self.plan.leaf_entries
        work += SECONDS_PER_STEP * len(steps) + SECONDS_PER_FACTOR * len(self.factors.scopes)
        return work + SECONDS_PER_BYTE * self.required_bytes

    @property
    def log_seconds(self) -> float:
        """Estimate of the time that sums of products take in logarithms, where ordinary arithmetic would underflow."""
        return SECONDS_PER_LOG_ENTRY * sum([step.entries for step in self.plan.steps])

    def run_often(self) -> FactorElimination:
        """The same object, marked as one that is going to be run many times, so that it compiles at once."""
        self.plan.num_runs = max(self.plan.num_runs, PLAIN_PYTHON_RUNS)
        return self

    def marginals(
        self, values: FloatArray | None = None, *, of_factors: bool | range = False, clock: Clock = NO_LIMIT
    ) -> Calibration:
        """Log Z and all marginals, also for other tables, which lie one after another.

        ``of_factors`` asks for the marginal of every factor's scope too, or has the numbers of those to give. A factor
        of zeros asks for the marginal of any other scope. The first two runs of a short plan are not worth loading the
        compiler; they give the same bits without.
        """
        every = range(len(self.factors.scopes) if of_factors else 0)
        wanted = of_factors if isinstance(of_factors, range) else every
        try:
            return self._run(values, "linear", clock, backward=True).marginals(wanted)
        except UnderflowError:
            self._check_time_for_logs(clock)
            return self._run(values, "log", clock, backward=True).marginals(wanted)

    def log_z(self, values: FloatArray | None = None, clock: Clock = NO_LIMIT) -> float:
        """Log Z alone, also for other tables; a third of the time that :meth:`marginals` takes."""
        try:
            return self._run(values, "linear", clock).log_z
        except UnderflowError:
            self._check_time_for_logs(clock)
            return self._run(values, "log", clock).log_z

    def gradient(self, values: FloatArray | None = None, clock: Clock = NO_LIMIT) -> tuple[float, FloatArray]:
        """Log Z and the marginals of all factors, one after another: its derivatives by the logs of their tables."""
        try:
            run = self._run(values, "linear", clock, backward=True)
            return run.log_z, run.factor_marginals()
        except UnderflowError:
            self._check_time_for_logs(clock)
            run = self._run(values, "log", clock, backward=True)
            return run.log_z, run.factor_marginals()

    def draw(
        self, num_draws: int, rng: np.random.Generator, clock: Clock = NO_LIMIT, *, values: FloatArray | None = None
    ) -> IntArray:
        """Independent exact configurations (num_draws, n)."""
        try:
            run = self._run(values, "linear", clock)
        except UnderflowError:
            self._check_time_for_logs(clock)
            run = self._run(values, "log", clock)
        return run.trace(self.order.order, num_draws, rng)

    def most_probable(self, clock: Clock = NO_LIMIT, *, values: FloatArray | None = None) -> tuple[float, IntArray]:
        """The largest log-weight of a configuration, and one that has it; also for other tables."""
        run = self._run(values, "max", clock)
        return run.log_z, run.trace(self.order.order, 1, None)[0]

    def max_marginals(
        self, clock: Clock = NO_LIMIT, *, values: FloatArray | None = None
    ) -> tuple[float, IntArray, FloatArray]:
        """The largest log-weight, a configuration that has it, and the largest log-weights by state of each variable.

        The last are one after another, -inf where no configuration has the state.
        """
        run = self._run(values, "max", clock, backward=True)
        states = run.trace(self.order.order, 1, None)[0]
        return run.log_z, states, run.max_marginals()

    def _check_time_for_logs(self, clock: Clock) -> None:
        """Raise an OutOfTimeError where there is no time to do all again in logarithms."""
        if self.log_seconds > 2.0 * clock.left():  # the estimate is on the safe side
            raise OutOfTimeError

    def _run(self, values: FloatArray | None, arithmetic: str, clock: Clock, *, backward: bool = False) -> ProgramRun:
        """One run through the plan, compiled unless it is short and new; its program is made for the first."""
        plan = self.plan
        clock.check()
        plan.num_runs += 1
        if plan.program is None:
            plan.program = Program(self.factors, plan, clock)
        short = plan.num_runs <= PLAIN_PYTHON_RUNS and self.order.total_entries <= PLAIN_PYTHON_ENTRIES
        compiled = not short or compiler_is_loaded()
        given = self.factors.values if values is None else values
        return ProgramRun(plan.program, given, arithmetic, clock, backward=backward, compiled=compiled)


def compiler_is_loaded() -> bool:
    """Whether Numba is loaded already, so that compiled code can be used at no cost."""
    return "numba" in sys.modules


def plan_elimination(
    factors: Factors,
    *,
    memory_limit: float = math.inf,
    order: EliminationOrder | None = None,
    alone: frozenset[int] = frozenset(),
    clock: Clock = NO_LIMIT,
) -> FactorElimination:
    """The elimination of all variables of some factors within a memory limit, planned before any table is allocated.

    The order of elimination is searched for unless it is given. Factors that are ``alone`` stay tables of their own.
    """
    if order is None:
        states = [int(s) for s in factors.num_states]
        order = find_order(states, factors.scopes, clock=clock, max_entries=memory_limit / 8)
    width = f"{'' if order.is_exact else 'about '}{order.width}"
    # A message is a clique without its first variable.
    most_states = float(max(factors.num_states, default=1))
    message_bytes = 8.0 * order.total_entries / most_states
    if message_bytes > memory_limit:
        refuse(width, order.width, message_bytes, memory_limit, "at least ")
    clock.check()
    elimination = FactorElimination(factors, order, EliminationPlan(factors, order, clock, alone))
    if elimination.required_bytes > memory_limit:
        refuse(width, order.width, elimination.required_bytes, memory_limit)
    clock.check()
    return elimination


def refuse(width: str, treewidth: int, required: float, limit: float, qualifier: str = "") -> NoReturn:
    """Raise the error for tables that do not fit."""
    raise ResourceError(
        f"exact inference needs {qualifier}{format_bytes(required)} (treewidth {width}), "
        f"over the limit of {format_bytes(limit)}; "
        "raise memory_limit, give evidence that cuts the graph, or use an approximate method",
        required_bytes=int(min(required, 2.0**62)),
        limit_bytes=int(min(limit, 2.0**62)),
        treewidth=treewidth,
    )


@dataclass(frozen=True, eq=False)
class ModelElimination:
    """The elimination of all variables of a model, its cost known before anything is allocated."""

    model: MarkovRandomField  # another one on the same graph may take its place by ``dataclasses.replace``
    elimination: FactorElimination

    @property
    def treewidth(self) -> int:
        """Largest clique minus one: an upper bound on the treewidth of the graph."""
        return self.elimination.treewidth

    @property
    def total_entries(self) -> float:
        """Entries of all cliques."""
        return self.elimination.order.total_entries

    @property
    def required_bytes(self) -> int:
        """Peak memory of :meth:`calibrate`."""
        model = self.model
        arrays = 24 * (len(model.log_unary) + len(model.log_pairwise)) + 8 * len(model.log_factors)
        steps = PROGRAM_BYTES_PER_STEP * (self.elimination.num_tables + len(self.elimination.factors.scopes))
        return self.elimination.required_bytes + arrays + steps

    @property
    def seconds(self) -> float:
        """Estimate of the time that :meth:`calibrate` takes."""
        return self.elimination.seconds

    def calibrate(self, clock: Clock = NO_LIMIT, *, edge_marginals: bool = True) -> Calibration:
        """Log Z, node and edge marginals aligned with the arrays of the model.

        Without ``edge_marginals`` these are zeros. An :class:`fastmix._clock.OutOfTimeError` where the time does not
        do.
        """
        model = self.model
        n = model.num_variables
        if edge_marginals and model.num_edges:
            found = self.elimination.marginals(model.parameters, of_factors=range(n, n + model.num_edges), clock=clock)
            pairs = found.factor_marginals
        else:
            found = self.elimination.marginals(model.parameters, clock=clock)
            pairs = np.zeros(len(model.log_pairwise))
        nodes = found.marginals
        if len(nodes):  # so that the only state of a variable that is allowed has exactly one
            nodes /= np.repeat(np.add.reduceat(nodes, model.unary_offsets[:-1]), model.num_states)
        return Calibration(found.log_z + model.log_constant, nodes, pairs, found.arithmetic)

    def draw(self, num_draws: int, rng: np.random.Generator, clock: Clock = NO_LIMIT) -> IntArray:
        """Independent exact configurations (num_draws, n): variables drawn in reverse order of elimination."""
        return self.elimination.draw(num_draws, rng, clock, values=self.model.parameters)


def plan_model_elimination(
    model: MarkovRandomField, *, memory_limit: float, clock: Clock = NO_LIMIT
) -> ModelElimination:
    """The elimination of all variables that fits a limit in bytes, found before any table is allocated.

    Variables should have at least two states (:func:`fastmix.model.reduce.reduce_model` folds single ones). An
    :class:`fastmix._clock.OutOfTimeError` ends planning that takes too long.
    """
    check_model(model)
    n = model.num_variables
    # Beside trees there is at least one edge for each by which the graph has more edges than variables.
    if PLANNING_SECONDS_PER_EDGE * (model.num_edges - n) > clock.left():
        raise OutOfTimeError
    if n > MIN_COMPILED_LEAVES:
        removed, neighbors = strip_leaves(n, model.edges)
        if len(removed) > MIN_COMPILED_LEAVES:
            from fastmix.exact.leaves import PrunedElimination

            check_size(model, memory_limit, clock, n - len(removed))
            return PrunedElimination.plan(model, removed, neighbors, memory_limit, clock)
    check_size(model, memory_limit, clock, n)
    return ModelElimination(model, plan_elimination(model_factors(model), memory_limit=memory_limit, clock=clock))


def _picture_width(model: MarkovRandomField) -> int:
    """The treewidth of a grid with the sides of a picture, 0 unless the model has all edges between its neighbors."""
    if model.shape is None or len(model.shape) != 2:
        return 0
    num_rows, num_cols = model.shape
    first, second = model.edges.T
    across = np.count_nonzero((second - first == 1) & (second % num_cols != 0))
    down = np.count_nonzero(second - first == num_cols)
    is_whole = across >= num_rows * (num_cols - 1) and (down >= (num_rows - 1) * num_cols)
    return min(num_rows, num_cols) if is_whole and num_cols > 1 else 0


def check_size(model: MarkovRandomField, memory_limit: float, clock: Clock, num_eliminated: int) -> None:
    """Refuse a model whose tables cannot fit, or that cannot be planned in time, before there is a plan."""
    n = model.num_variables
    num_edges = model.num_edges - (n - num_eliminated)  # at least
    if PLANNING_SECONDS_PER_VARIABLE * num_eliminated + PLANNING_SECONDS_PER_EDGE * num_edges > clock.left():
        raise OutOfTimeError
    least = int(model.num_states.min()) if n else 1
    if least > 1 and n > MAX_UNBOUNDED_VARIABLES and model.num_edges > n:
        lower = max(degeneracy(n, model.edges), _picture_width(model))
        if lower * math.log2(least) + 3 > math.log2(memory_limit):
            required = 8.0 * float(least) ** lower if lower * math.log2(least) < 1000 else 1e300
            refuse(f"at least {lower}", lower, required, memory_limit, "at least ")


def kept_elimination(model: MarkovRandomField, memory_limit: float | None = None) -> ModelElimination | None:
    """The elimination of a small graph, kept with its structure for the next parameters or evidence.

    None where the tables of the first order found are not small, or over the limit. Orders that are small are not
    improved by a search, so it is the one that :func:`plan_model_elimination` finds.
    """
    kept = model.structure.__dict__
    if "exact_elimination" not in kept:
        elimination = None
        if model.num_variables <= MAX_KEPT_VARIABLES and model.num_edges <= 10 * MAX_KEPT_VARIABLES:
            factors = model_factors(model)
            order = find_order(factors.num_states, factors.scopes, effort=0.0)
            if order.total_entries <= CHEAP_ENTRIES:
                elimination = plan_elimination(factors._replace(values=np.zeros(0)), order=order)
        kept["exact_elimination"] = elimination
    elimination = kept["exact_elimination"]
    if elimination is None:
        return None
    found = ModelElimination(model, elimination)
    if memory_limit is not None and found.required_bytes > memory_limit:
        return None
    return found


def model_factors(model: MarkovRandomField) -> Factors:
    """The terms of a model: variables, edges (those of zeros, too: their marginals are wanted), factors."""
    scopes: list[tuple[int, ...]] = [(i,) for i in range(model.num_variables)]
    scopes += list(map(tuple, model.edges.tolist()))
    flat = model.structure.scope_variables.tolist()
    starts = model.structure.scope_starts.tolist()
    scopes += [tuple(flat[a:b]) for a, b in pairwise(starts)]
    return Factors(model.num_states.tolist(), scopes, model.parameters)
