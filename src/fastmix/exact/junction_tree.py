"""Exact inference before anything is allocated: log Z, marginals, draws and the most probable configuration.

Unaries, edges and factors are tables over one, two or more variables, and one engine takes them all. Eliminating the
variables one by one, in an order of :mod:`fastmix.exact.search`, multiplies the tables that have the variable and sums
it out. The tables of one variable are joined in pairs, the smallest first, and the last product is summed on the way,
so that no clique table is stored. The result is one sequence of sums of products of two tables.

Its derivatives, in reverse, give every marginal without a division: the marginal of a factor is its table times the
derivative of Z with respect to it. Tables are kept in ordinary arithmetic, scaled, as long as the smallest positive
entries rule out underflow; if they do not, all is done again in logarithms. Draws and the most probable configuration
go back through the same sequence, variable by variable.

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
from fastmix.exact.planner import Factors, Sequence
from fastmix.exact.program import Answer, Program, Run, UnderflowError
from fastmix.exact.search import CHEAP, Order, find_order
from fastmix.graphs import degeneracy
from fastmix.graphs.basics import strip_leaves
from fastmix.model import MarkovRandomField, check_model

__all__ = [
    "JunctionTree", "Tree", "check_size", "kept_tree", "model_factors", "plan_junction_tree", "plan_tree", "refuse",
]  # fmt: skip

_KEPT = 1000  # variables of a graph whose plan is kept if it is small
_LEAVES = 2000  # variables of hanging trees from which on they are summed out by themselves, compiled
_SMALL = 64  # variables of a graph that needs no bound before an order is looked for
# The least that planning takes, by variable and by edge. Where more is needed the clock ends it.
_PLANNING_PER_VARIABLE, _PLANNING_PER_EDGE = 2e-5, 3e-6  # seconds
_BYTES_PER_STEP = 1800  # by table and by factor, of the program of a run while it is made
# What a run takes, of CPU seconds on 200 random models of benchmarks/limits.py.
_SECONDS_PER_ENTRY = 6e-9  # of a clique visited three times
_SECONDS_PER_LOG_ENTRY = 3e-8  # the same in logarithms
_SECONDS_PER_PRODUCT = 1.5e-9  # of a clique visited three times by matrix products
_SECONDS_PER_LEAF_ENTRY = 3e-9  # each time that one is visited
_SECONDS_PER_BYTE = 8e-10  # of memory touched for the first time
_SECONDS_PER_STEP = 5e-6
_SECONDS_PER_FACTOR = 1.5e-5
_PLAIN_RUNS, _PLAIN_ENTRIES = 2, 1 << 16  # of a sequence, up to which it is not worth loading a compiler


@dataclass(frozen=True, eq=False)
class Tree:
    """The sequence of sums and products for one set of factors, its cost known before anything is allocated."""

    factors: Factors
    order: Order
    sequence: Sequence

    @property
    def required_bytes(self) -> int:
        """Peak memory of :meth:`marginals`."""
        return self.sequence.required_bytes

    @property
    def treewidth(self) -> int:
        """Largest clique minus one: an upper bound on the treewidth of the graph."""
        return self.order.width

    @property
    def seconds(self) -> float:
        """Estimate of the time that :meth:`marginals` takes, touching its memory included."""
        steps = self.sequence.steps
        work = sum([(_SECONDS_PER_PRODUCT if s.gemm else _SECONDS_PER_ENTRY) * s.entries for s in steps])
        work += _SECONDS_PER_LEAF_ENTRY * self.sequence.leaf_entries
        work += _SECONDS_PER_STEP * len(steps) + _SECONDS_PER_FACTOR * len(self.factors.scopes)
        return work + _SECONDS_PER_BYTE * self.required_bytes

    @property
    def log_seconds(self) -> float:
        """Estimate of the time that sums of products take in logarithms, where ordinary arithmetic would underflow."""
        return _SECONDS_PER_LOG_ENTRY * sum([step.entries for step in self.sequence.steps])

    def run_often(self) -> Tree:
        """The tree itself, told that it is going to be run many times: it compiles at once."""
        self.sequence.num_runs = max(self.sequence.num_runs, _PLAIN_RUNS)
        return self

    def marginals(
        self, values: FloatArray | None = None, *, of_factors: bool | range = False, clock: Clock = NO_LIMIT
    ) -> Answer:
        """Log Z and all marginals, also for other tables, which lie one after another.

        ``of_factors`` asks for the marginal of every factor's scope too, or has the numbers of those to give. A factor
        of zeros asks for the marginal of any other scope. The first two runs of a short sequence are not worth loading
        the compiler; they give the same bits without.
        """
        every = range(len(self.factors.scopes) if of_factors else 0)
        wanted = of_factors if isinstance(of_factors, range) else every
        try:
            return self._run(values, "linear", clock, backward=True).marginals(wanted)
        except UnderflowError:
            self._check_time_for_logs(clock)
            return self._run(values, "log", clock, backward=True).marginals(wanted)

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

    def most_probable(self, clock: Clock = NO_LIMIT) -> tuple[float, IntArray]:
        """The largest log-weight of a configuration, and one that has it."""
        run = self._run(None, "max", clock)
        return run.log_z, run.trace(self.order.order, 1, None)[0]

    def _check_time_for_logs(self, clock: Clock) -> None:
        """An OutOfTimeError where all would have to be done again in logarithms, and there is no time for it."""
        if self.log_seconds > 2.0 * clock.left():  # the estimate is on the safe side
            raise OutOfTimeError

    def _run(self, values: FloatArray | None, arithmetic: str, clock: Clock, *, backward: bool = False) -> Run:
        sequence = self.sequence
        clock.check()
        sequence.num_runs += 1
        if sequence.program is None:
            sequence.program = Program(self.factors, sequence, clock)
        short = sequence.num_runs <= _PLAIN_RUNS and self.order.total_entries <= _PLAIN_ENTRIES
        compiled = not short or _compiler_is_loaded()
        given = self.factors.values if values is None else values
        return Run(sequence.program, given, arithmetic, clock, backward=backward, compiled=compiled)


def _compiler_is_loaded() -> bool:
    return "numba" in sys.modules


def plan_tree(
    factors: Factors,
    *,
    memory_limit: float = math.inf,
    order: Order | None = None,
    clock: Clock = NO_LIMIT,
) -> Tree:
    """The sequence for some factors, reduced by evidence, within a memory limit, before any table is allocated.

    The order of elimination is searched for unless it is given.
    """
    if order is None:
        states = [int(s) for s in factors.num_states]
        order = find_order(states, factors.scopes, clock=clock, max_entries=memory_limit / 8)
    # A message is a clique without its first variable.
    width = f"{'' if order.is_exact else 'about '}{order.width}"
    most = float(max(factors.num_states, default=1))
    if 8.0 * order.total_entries / most > memory_limit:
        refuse(width, order.width, 8.0 * order.total_entries / most, memory_limit, "at least ")
    clock.check()
    tree = Tree(factors, order, Sequence(factors, order, clock))
    if tree.required_bytes > memory_limit:
        refuse(width, order.width, tree.required_bytes, memory_limit)
    clock.check()
    return tree


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
class JunctionTree:
    """The elimination of all variables of a model, its cost known before anything is allocated."""

    model: MarkovRandomField  # another one on the same graph may take its place by ``dataclasses.replace``
    tree: Tree

    @property
    def treewidth(self) -> int:
        """Largest clique minus one: an upper bound on the treewidth of the graph."""
        return self.tree.treewidth

    @property
    def total_entries(self) -> float:
        """Entries of all cliques."""
        return self.tree.order.total_entries

    @property
    def required_bytes(self) -> int:
        """Peak memory of :meth:`calibrate`."""
        model, sequence = self.model, self.tree.sequence
        arrays = 24 * (len(model.log_unary) + len(model.log_pairwise)) + 8 * len(model.log_factors)
        steps = _BYTES_PER_STEP * (len(sequence.sizes) + len(sequence.factors.scopes))
        return self.tree.required_bytes + arrays + steps

    @property
    def seconds(self) -> float:
        """Estimate of the time that :meth:`calibrate` takes."""
        return self.tree.seconds

    def calibrate(self, clock: Clock = NO_LIMIT, *, edge_marginals: bool = True) -> Answer:
        """Log Z, node and edge marginals aligned with the arrays of the model.

        Without ``edge_marginals`` these are zeros. An :class:`fastmix._clock.OutOfTimeError` where the time does not
        do.
        """
        model, n = self.model, self.model.num_variables
        wanted = range(n, n + model.num_edges) if edge_marginals and model.num_edges else False
        answer = self.tree.marginals(model.parameters, of_factors=wanted, clock=clock)
        nodes, pairs = answer.marginals, answer.factor_marginals if wanted else np.zeros(len(model.log_pairwise))
        if len(nodes):  # so that the only state of a variable that is allowed has exactly one
            nodes /= np.repeat(np.add.reduceat(nodes, model.unary_offsets[:-1]), model.num_states)
        return Answer(answer.log_z + model.log_constant, nodes, pairs, answer.arithmetic)

    def draw(self, num_draws: int, rng: np.random.Generator, clock: Clock = NO_LIMIT) -> IntArray:
        """Independent exact configurations (num_draws, n): variables drawn in reverse order of elimination."""
        return self.tree.draw(num_draws, rng, clock, values=self.model.parameters)


def plan_junction_tree(model: MarkovRandomField, *, memory_limit: float, clock: Clock = NO_LIMIT) -> JunctionTree:
    """The elimination of all variables that fits a limit in bytes, found before any table is allocated.

    Variables should have at least two states (:func:`fastmix.model.reduce.reduce_model` folds single ones). An
    :class:`fastmix._clock.OutOfTimeError` ends planning that takes too long.
    """
    check_model(model)
    n = model.num_variables
    # Beside trees there is at least one edge for each by which the graph has more edges than variables.
    if _PLANNING_PER_EDGE * (model.num_edges - n) > clock.left():
        raise OutOfTimeError
    if n > _LEAVES:
        removed, neighbors = strip_leaves(n, model.edges)
        if len(removed) > _LEAVES:
            from fastmix.exact.leaves import PrunedTree

            check_size(model, memory_limit, clock, n - len(removed))
            return PrunedTree.plan(model, removed, neighbors, memory_limit, clock)
    check_size(model, memory_limit, clock, n)
    return JunctionTree(model, plan_tree(model_factors(model), memory_limit=memory_limit, clock=clock))


def check_size(model: MarkovRandomField, memory_limit: float, clock: Clock, num_eliminated: int) -> None:
    """Refuse a model whose tables cannot fit, or that cannot be planned in time, before there is a plan."""
    n = model.num_variables
    num_edges = model.num_edges - (n - num_eliminated)  # at least
    if _PLANNING_PER_VARIABLE * num_eliminated + _PLANNING_PER_EDGE * num_edges > clock.left():
        raise OutOfTimeError
    least = int(model.num_states.min()) if n else 1
    if least > 1 and n > _SMALL and model.num_edges > n:
        lower = degeneracy(n, model.edges)
        if lower * math.log2(least) + 3 > math.log2(memory_limit):
            required = 8.0 * float(least) ** lower if lower * math.log2(least) < 1000 else 1e300
            refuse(f"at least {lower}", lower, required, memory_limit, "at least ")


def kept_tree(model: MarkovRandomField, memory_limit: float | None = None) -> JunctionTree | None:
    """The elimination of a small graph, kept with its structure for the next parameters or evidence.

    None where the tables of the first order found are not small, or over the limit. Orders that are small are not
    improved by a search, so it is the one that :func:`plan_junction_tree` finds.
    """
    kept = model.structure.__dict__
    if "exact_tree" not in kept:
        tree = None
        if model.num_variables <= _KEPT and model.num_edges <= 10 * _KEPT:
            factors = model_factors(model)
            order = find_order(factors.num_states, factors.scopes, effort=0.0)
            if order.total_entries <= CHEAP:
                tree = plan_tree(factors._replace(values=np.zeros(0)), order=order)
        kept["exact_tree"] = tree
    tree = kept["exact_tree"]
    found = None if tree is None else JunctionTree(model, tree)
    return None if found is None or (memory_limit is not None and found.required_bytes > memory_limit) else found


def model_factors(model: MarkovRandomField) -> Factors:
    """The terms of a model: variables, edges (those of zeros, too: their marginals are wanted), factors."""
    scopes: list[tuple[int, ...]] = [(i,) for i in range(model.num_variables)]
    scopes += list(map(tuple, model.edges.tolist()))
    flat, starts = model.structure.scope_variables.tolist(), model.structure.scope_starts.tolist()
    scopes += [tuple(flat[a:b]) for a, b in pairwise(starts)]
    return Factors(model.num_states.tolist(), scopes, model.parameters)
