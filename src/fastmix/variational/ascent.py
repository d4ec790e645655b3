"""Coordinate ascent of product distributions: sweeps of mean field from given starts."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from fastmix._arrays import FloatArray, read_only_fields
from fastmix._clock import NO_LIMIT, Clock, Ending, OutOfTimeError
from fastmix.model import MarkovRandomField
from fastmix.model.flat import table_positions
from fastmix.model.forms import IsingForm, ising_form
from fastmix.model.pattern_forms import EdgeForms, edge_forms
from fastmix.model.tuning import GATHERED_TABLE_ENTRIES
from fastmix.modes.allowed import find_allowed, penalty
from fastmix.modes.pattern_arrays import pattern_tables, variables_of
from fastmix.variational.tuning import ENTRIES_PER_CALL

__all__ = ["AscentStart", "ProductAscent", "ascend", "expected_tables", "pair_products"]

# Sweeps q in place: (q, tol, sweeps at most, bounds to write) -> sweeps made, largest change.
_Sweeps = Callable[[FloatArray, float, int, FloatArray], tuple[int, float]]


def ascend(
    model: MarkovRandomField, q: FloatArray, *, max_iter: int, tol: float = 1e-8, clock: Clock = NO_LIMIT
) -> FloatArray:
    """The product distribution that sweeps of mean field lead to from q; for models without forbidden pairs."""
    start = AscentStart(q.copy())
    with contextlib.suppress(OutOfTimeError):
        ProductAscent(model, max_iter, tol, clock).follow(start)
    return start.q


def expected_tables(model: MarkovRandomField, q: FloatArray) -> float:
    """The mean of the sum of the tables under the product distribution q; for models without forbidden pairs."""
    total = 0.0
    for num_rows, num_cols, members in model.structure.table_shapes:
        chunk = max(1, GATHERED_TABLE_ENTRIES // (num_rows * num_cols))
        for begin in range(0, len(members), chunk):
            some = members[begin : begin + chunk]
            first, second = model.unary_offsets[model.edges[some]].T
            of_first = q[first[:, None] + np.arange(num_rows)]
            of_second = q[second[:, None] + np.arange(num_cols)]
            tables = model.edge_tables(some, num_rows, num_cols).reshape(-1, num_rows, num_cols)
            total += float(np.einsum("ea,eab,eb->", of_first, tables, of_second))
    return total


def pair_products(model: MarkovRandomField, q: FloatArray) -> FloatArray:
    """Product of the marginals q of both ends for every table entry of every edge."""
    shapes = model.structure.table_shapes
    if len(shapes) == 1 and len(np.unique(model.num_states)) == 1:  # a tenth of the time of what follows
        by_variable = q.reshape(model.num_variables, -1)
        first, second = model.edges.T
        return (by_variable[first][:, :, None] * by_variable[second][:, None, :]).reshape(-1)
    owner, row, col = table_positions(model.num_states, model.edges)
    i, j = model.edges[owner].T
    return q[model.unary_offsets[i] + row] * q[model.unary_offsets[j] + col]


@dataclass
class AscentStart:
    """One start of the ascent: where it is, and how it got there."""

    q: FloatArray  #: marginals, laid out as the unaries
    bounds: list[float] = field(default_factory=list)  #: the lower bound on log Z after every sweep
    num_sweeps: int = 0
    largest_change: float = math.inf  #: of a probability in the last sweep
    has_converged: bool = False
    penalized_bound: float = -math.inf  #: that of the model with a penalty for what is forbidden

    @property
    def bound(self) -> float:
        """The lower bound on log Z after the last sweep; -inf where there is none."""
        return self.bounds[-1] if self.bounds else -math.inf

    @property
    def rank(self) -> tuple[float, float]:
        """How good it is: the larger, the better."""
        return self.bound, self.penalized_bound


def _uniform_start(model: MarkovRandomField) -> FloatArray:
    """Marginals that are uniform for every variable."""
    return np.repeat(1.0 / model.num_states, model.num_states)


def _random_start(model: MarkovRandomField, rng: np.random.Generator) -> FloatArray:
    """Marginals drawn uniformly from the simplex of every variable: exponential numbers over their sum."""
    draws = rng.standard_exponential(len(model.log_unary))
    sums = np.add.reduceat(draws, model.unary_offsets[:-1]) if model.num_variables else draws
    return draws / np.repeat(sums, model.num_states)


class ProductAscent:
    """The ascent of starts of one model: sweeps of the model and, where it forbids something, under a penalty before.

    Parameters
    ----------
    model : MarkovRandomField
    max_iter : int
        Sweeps of every start at most; under the penalty as many again.
    tol : float
        Largest change of a probability in the last sweep.
    clock : Clock
    given : bool
        Whether the model is one given evidence, for the message where nothing is allowed.
    """

    def __init__(self, model: MarkovRandomField, max_iter: int, tol: float, clock: Clock, given: bool = False) -> None:
        self.model = model
        self.max_iter = max_iter
        self.tol = tol
        self.clock = clock
        self.given = given
        factor_entries = len(model.log_factors) * model.structure.max_scope
        entries_per_sweep = 1 + len(model.log_unary) + int(model.pairwise_offsets[-1]) + factor_entries
        self._sweeps_per_call = int(max(1.0, ENTRIES_PER_CALL / entries_per_sweep))
        form = ising_form(model)
        if form is not None:
            self._sweeps = _spin_sweeps(model, form)
        elif model.shared_tables is not None and not model.has_forbidden:
            self._sweeps = _pattern_sweeps(model)
        else:
            self._sweeps = _table_sweeps(model, model.log_pairwise, model.log_factors)
        self._penalized_sweeps: _Sweeps | None = None
        if model.has_forbidden:
            least = -penalty(model)
            tables = np.where(model.log_pairwise > -np.inf, model.log_pairwise, least)
            factors = np.where(model.log_factors > -np.inf, model.log_factors, least)
            self._penalized_sweeps = _table_sweeps(model, tables, factors)

    def run(self, num_starts: int, rng: np.random.Generator) -> tuple[str, list[AscentStart]]:
        """What stopped the ascents of so many starts, the first of them uniform, and how far they came."""
        model = self.model
        starts: list[AscentStart] = []
        best = 0
        with Ending() as ending:
            for k in range(num_starts):
                self.clock.report(k, num_starts, "starts")
                starts.append(AscentStart(_uniform_start(model) if k == 0 else _random_start(model, rng)))
                self.follow(starts[-1])
                worse = k
                if starts[k].rank > starts[best].rank:
                    worse, best = best, k
                if k:
                    starts[worse].q = np.zeros(0)  # nobody asks for it any more
        if ending.interrupted:
            begun = [start for start in starts if start.num_sweeps]
            return ending.by, begun or [AscentStart(_uniform_start(model))]
        is_finished = len(starts) == num_starts and starts[-1].has_converged
        return "done" if is_finished else ending.by, starts

    def follow(self, start: AscentStart) -> None:
        """Ascend from a start; with a penalty first, if need be, then from an allowed configuration near by."""
        if self._penalized_sweeps is not None:
            relaxed = AscentStart(start.q)  # apart, because its bound is one on another model
            try:
                self._sweep(relaxed, self._penalized_sweeps)
            finally:
                start.num_sweeps = relaxed.num_sweeps
                start.largest_change = relaxed.largest_change
                start.penalized_bound = relaxed.bound
            states = find_allowed(self.model, start.q, self.given, self.clock)
            if states is None:
                return
            start.q[:] = 0.0
            start.q[self.model.unary_offsets[:-1] + states] = 1.0
        self._sweep(start, self._sweeps)

    def _sweep(self, start: AscentStart, sweeps: _Sweeps) -> None:
        """Sweep until nothing changes any more, or a limit is met."""
        limit = start.num_sweeps + self.max_iter
        while start.num_sweeps < limit and not start.has_converged:
            bounds = np.empty(min(self._sweeps_per_call, limit - start.num_sweeps))
            num_made, start.largest_change = sweeps(start.q, self.tol, len(bounds), bounds)
            start.num_sweeps += num_made
            start.bounds.extend(bounds[:num_made].tolist())
            start.has_converged = start.largest_change <= self.tol
            self.clock.check()


def _spin_sweeps(model: MarkovRandomField, form: IsingForm) -> _Sweeps:
    """Sweeps of a binary model in its Ising form, by the means of the spins."""
    from fastmix.variational.mean_field_kernels import spin_sweeps

    graph = model.adjacency
    # Numbers without a sign: kernels would check others for counting from the end.
    indptr = graph.indptr.astype(np.uint64)
    neighbors = graph.neighbors.astype(np.uint64)
    couplings = form.coupling[graph.edge_ids]
    half_log_odds = np.empty(model.num_variables)

    def sweeps(q: FloatArray, tol: float, num_sweeps: int, bounds: FloatArray) -> tuple[int, float]:
        means = q[1::2] - q[0::2]
        num_made, change = spin_sweeps(
            form.field, indptr, neighbors, couplings, means, half_log_odds, tol, num_sweeps, bounds
        )
        bounds[:num_made] += form.constant
        small = np.exp(-2.0 * np.abs(half_log_odds))
        q[0::2] = np.where(half_log_odds >= 0.0, small, 1.0) / (1.0 + small)
        q[1::2] = np.where(half_log_odds >= 0.0, 1.0, small) / (1.0 + small)
        return int(num_made), float(change)

    return sweeps


def _pattern_sweeps(model: MarkovRandomField) -> _Sweeps:
    """Sweeps of a model whose edges share tables, without forbidden entries."""
    from fastmix.variational.pattern_ascent_kernels import pattern_ascent

    variables = variables_of(model)
    arrays, shared = pattern_tables(model)
    forms: EdgeForms = read_only_fields(edge_forms(shared))

    def sweeps(q: FloatArray, tol: float, num_sweeps: int, bounds: FloatArray) -> tuple[int, float]:
        num_made, change = pattern_ascent(variables, arrays, forms, q, tol, num_sweeps, bounds)
        bounds[:num_made] += model.log_constant
        return int(num_made), float(change)

    return sweeps


def _table_sweeps(model: MarkovRandomField, tables: FloatArray, factors: FloatArray) -> _Sweeps:
    """Sweeps of any model, with these tables of edges and of factors over three or more variables."""
    from fastmix.variational.mean_field_kernels import MeanFieldTerms, table_sweeps

    graph = model.adjacency
    structure = model.structure
    of_model = MeanFieldTerms(
        unary=model.log_unary,
        unary_starts=model.unary_offsets,
        indptr=graph.indptr,
        neighbors=graph.neighbors,
        edge_ids=graph.edge_ids,
        edges=model.edges,
        table_starts=model.pairwise_offsets,
        tables=tables,
        factor_indptr=structure.incident.indptr,
        factors_around=structure.incident.factors,
        scope_starts=structure.scope_starts,
        scopes=structure.scope_variables,
        factor_starts=structure.factor_offsets,
        factors=factors,
    )
    terms = read_only_fields(of_model)

    def sweeps(q: FloatArray, tol: float, num_sweeps: int, bounds: FloatArray) -> tuple[int, float]:
        num_made, change = table_sweeps(terms, q, tol, num_sweeps, bounds)
        bounds[:num_made] += model.log_constant
        return int(num_made), float(change)

    return sweeps
