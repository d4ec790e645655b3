"""Naive mean field: the best product distribution by coordinate ascent, and its lower bound on log Z."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from fastmix._arrays import FloatArray
from fastmix._checks import check_count, check_positive, keep_checked
from fastmix._clock import NO_LIMIT, Clock, OutOfTimeError, Report
from fastmix._memory import check_memory
from fastmix.methods.base import Context, Method, option, run_method
from fastmix.methods.preparation import find_allowed, ising_form, reduce_to_supported
from fastmix.model import Evidence, MarkovRandomField
from fastmix.model.build import table_positions
from fastmix.model.reduce import Reduction
from fastmix.results import InferenceResult, Status, jsonable
from fastmix.theory.dependency import largest_entries

__all__ = ["MeanField", "MeanFieldResult", "ascend", "expected_tables", "mean_field", "penalty"]

_CHUNK_WORK = 2e7  # table entries between two looks at the clock and the keyboard: a fraction of a second
_NO_PRODUCT = "no start led to an allowed configuration: the marginals break forbidden pairs, and the bound is void"


@dataclass(frozen=True, eq=False, repr=False)
class MeanFieldResult(InferenceResult):
    """The best product distribution found; ``log_z`` is None, because what is known is a lower bound on it.

    Attributes
    ----------
    log_z_lower : float
        ``E_q[log-weight] + entropy(q)``, at most log Z; -inf where every start ended with forbidden pairs.
    start_bounds : float array (number of starts made,)
        The bound that each start reached.
    """

    log_z_lower: float = -math.inf
    start_bounds: FloatArray = field(default_factory=lambda: np.zeros(0))

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, log_z_lower={self.log_z_lower:.6g})"

    @property
    def history(self) -> list[list[float]]:
        """The bound after every sweep of every start."""
        return list(self.stats["history"])

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data; adds ``log_z_lower`` (also as ``log_z_bound``) and ``start_bounds``."""
        bound = jsonable(self.log_z_lower)
        extra = {"log_z_lower": bound, "log_z_bound": bound, "start_bounds": jsonable(self.start_bounds)}
        return {**super().to_dict(), **extra}


@dataclass(frozen=True)
class MeanField(Method):
    """Naive mean field; the options are those of :func:`fastmix.mean_field`."""

    name: ClassVar[str] = "mean-field"
    guarantee: ClassVar[str] = "none about the marginals; the bound on log Z is proven"
    threaded: ClassVar[bool] = False
    takes_factors: ClassVar[bool] = True
    answers_zero: ClassVar[bool] = True
    needs_support: ClassVar[bool] = True

    num_starts: int = option(10, help="Starts, of which the best bound is kept.")
    max_iter: int = option(1000, help="Sweeps of every start at most.")
    tol: float = option(1e-8, help="Largest change of a probability at the end.")

    def __post_init__(self) -> None:
        keep_checked(self, num_starts=check_count("num_starts", self.num_starts, least=1))
        keep_checked(self, max_iter=check_count("max_iter", self.max_iter, least=1))
        keep_checked(self, tol=check_positive("tol", self.tol))

    def reduce(self, model: MarkovRandomField, evidence: Evidence | None, clock: Clock = NO_LIMIT) -> Reduction:
        """Without states that no allowed pair has room for."""
        return reduce_to_supported(model, evidence, clock)

    def run(self, model: MarkovRandomField, context: Context) -> MeanFieldResult:
        """The product distribution of the best start."""
        required = self.num_starts * (8.0 * len(model.log_unary) + 1000.0)
        check_memory(required, f"num_starts {self.num_starts}", "make fewer starts")
        ascent = _Ascent(model, self.max_iter, self.tol, context.clock, context.given)
        stopped_by, runs = ascent.run(self.num_starts, np.random.default_rng(context.seed))
        best = max(range(len(runs)), key=lambda k: (runs[k].bound, runs[k].penalised))
        converged = runs[best].converged and runs[best].bound > -math.inf
        status = Status.OK if converged else Status.NOT_CONVERGED
        if stopped_by == "interrupt":
            status = Status.INTERRUPTED
        nodes = runs[best].q
        return MeanFieldResult(
            model=model,
            method=self.name,
            status=status,
            node_marginals=nodes,
            edge_marginals=_products(model, nodes) if context.edge_marginals else None,
            log_z=None,
            log_z_kind="bound" if runs[best].bound > -math.inf else "unknown",
            stats={
                "num_starts": len(runs), "best_start": best, "iterations": sum(run.sweeps for run in runs),
                "updates": sum(run.sweeps for run in runs) * model.num_variables,
                "converged_starts": sum(run.converged for run in runs), "largest_change": runs[best].change,
                "history": [run.history for run in runs],
                "note": _NO_PRODUCT if runs[best].bound == -math.inf else "", "stopped_by": stopped_by,
            },
            log_z_lower=_rounded_down(model, runs[best].bound),
            start_bounds=np.array([run.bound for run in runs]),
        )  # fmt: skip


def _rounded_down(model: MarkovRandomField, bound: float) -> float:
    """A lower bound on log Z less what rounding can have made of it, the rounding of a large constant included."""
    from fastmix.bounds.terms import log_size, rounding

    if bound == -math.inf:
        return bound
    terms = rounding(3.0 * model.num_parameters, log_size(model.replace(log_constant=0.0)))
    error = terms + 4.0 * math.ulp(max(abs(bound), abs(model.log_constant)))
    return math.nextafter(bound - error, -math.inf)


def mean_field(
    model: MarkovRandomField,
    *,
    evidence: Evidence | None = None,
    num_starts: int = 10,
    max_iter: int = 1000,
    tol: float = 1e-8,
    seed: int | None = None,
    edge_marginals: bool = False,
    time_limit: float | None = None,
    progress: Report = "auto",
) -> MeanFieldResult:
    """Marginals by naive mean field, with a lower bound on log Z.

    Maximises ``E_q[log-weight] + entropy(q) = log Z - KL(q || p)`` over products ``q(x) = prod_i q_i(x_i)``. A sweep
    sets each variable in turn to the best given the others, ``q_i(a) ~ exp(u_i(a) + sum_j sum_b q_j(b) T_ij(a, b))``
    and the same with the means of factors over three or more variables; the bound never falls.

    Parameters
    ----------
    model : MarkovRandomField
        Any state counts, any strength, factors of any size.
    num_starts : int
        The first start is uniform, the others are uniform over all product distributions; the best bound is kept.
    max_iter : int
        Sweeps of every start at most; with forbidden pairs as many again under the penalty, see Notes.
    tol : float
        A start has converged when a sweep changes no probability by more.
    seed : int, optional
        Drawn and returned when not given. More starts with the same seed begin with the same ones.
    evidence, edge_marginals, time_limit, progress
        As for :func:`fastmix.infer`; after 60 seconds by default the best so far is returned. What edges get are the
        products of the marginals.

    Returns
    -------
    MeanFieldResult
        ``status`` is ``not_converged`` when the best start still moved after ``max_iter`` sweeps. ``stats`` holds the
        sweeps of all starts, the number of the best one, the history of the bound of every start, and the seconds.

    Raises
    ------
    ImpossibleEvidenceError
        If the evidence is impossible, as far as a search can show. Where that shows that the model itself has no
        configuration, a :class:`fastmix.results.ZeroResult` comes back.

    Notes
    -----
    A sweep costs ``O(sum over edges of L_i L_j)`` time, and for every factor its entries times its variables.

    With forbidden pairs a product distribution has a finite bound only if its states are all allowed beside each other.
    Each start first ascends with a large finite penalty in place of minus infinity; a search finds an allowed
    configuration that prefers its probable states, from where the start ascends in the model itself. When the search
    gives up at every start the status is ``not_converged``, the bound -inf, and ``stats["note"]`` says so.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1), (1, 2)], coupling=0.3, field=[0.3, 0.0, 0.0])
    >>> result = mean_field(model, seed=0)
    >>> str(result.status), round(result.log_z_lower, 4), result.marginal(2).round(4).tolist()
    ('ok', 2.1284, [0.4843, 0.5157])
    """
    return run_method(
        MeanField(num_starts, max_iter, tol), model, evidence=evidence, edge_marginals=edge_marginals, seed=seed,
        time_limit=time_limit, progress=progress,
    )  # fmt: skip


def ascend(
    model: MarkovRandomField, q: FloatArray, *, max_iter: int, tol: float = 1e-8, clock: Clock = NO_LIMIT
) -> FloatArray:
    """The product distribution that sweeps of mean field lead to from q; for models without forbidden pairs."""
    start = _Start(q.copy())
    with contextlib.suppress(OutOfTimeError):
        _Ascent(model, max_iter, tol, clock).follow(start)
    return start.q


def expected_tables(model: MarkovRandomField, q: FloatArray) -> float:
    """The mean of the sum of the tables under the product distribution q; for models without forbidden pairs."""
    return float(_products(model, q) @ model.log_pairwise)


@dataclass
class _Start:
    """One start: where it is, and how it got there."""

    q: FloatArray
    history: list[float] = field(default_factory=list)
    sweeps: int = 0
    change: float = math.inf
    converged: bool = False
    penalised: float = -math.inf

    @property
    def bound(self) -> float:
        return self.history[-1] if self.history else -math.inf


def _uniform_start(model: MarkovRandomField) -> FloatArray:
    return np.repeat(1.0 / model.num_states, model.num_states)


def _random_start(model: MarkovRandomField, rng: np.random.Generator) -> FloatArray:
    """Uniform on the simplex of every variable: exponential numbers over their sum."""
    draws = rng.standard_exponential(len(model.log_unary))
    sums = np.add.reduceat(draws, model.unary_offsets[:-1]) if model.num_variables else draws
    return draws / np.repeat(sums, model.num_states)


def _products(model: MarkovRandomField, q: FloatArray) -> FloatArray:
    """Product of the marginals for every table entry."""
    owner, row, col = table_positions(model.num_states, model.edges)
    i, j = model.edges[owner].T
    return q[model.unary_offsets[i] + row] * q[model.unary_offsets[j] + col]


# -- ascent of one start --------------------------------------------------------------------------------------------

# Sweeps q in place: (q, tol, sweeps at most, bounds to write) -> sweeps made, largest change.
_Sweep = Callable[[FloatArray, float, int, FloatArray], tuple[int, float]]


class _Ascent:
    """How starts of a model ascend: sweeps of the model and, where it forbids something, under a penalty before."""

    def __init__(self, model: MarkovRandomField, max_iter: int, tol: float, clock: Clock, given: bool = False) -> None:
        self.model, self.max_iter, self.tol, self.clock, self.given = model, max_iter, tol, clock, given
        factors = len(model.log_factors) * model.structure.max_scope
        work = 1 + len(model.log_unary) + len(model.log_pairwise) + factors
        self.chunk = int(max(1.0, _CHUNK_WORK / work))  # sweeps between two looks at the clock
        self.hard = _spin_sweep(model) or _table_sweep(model, model.log_pairwise, model.log_factors)
        self.soft: _Sweep | None = None
        if model.has_forbidden:
            least = -penalty(model)
            finite = (np.where(t > -np.inf, t, least) for t in (model.log_pairwise, model.log_factors))
            self.soft = _table_sweep(model, *finite)

    def run(self, num_starts: int, rng: np.random.Generator) -> tuple[str, list[_Start]]:
        """What stopped the ascents, and how far they came."""
        model, runs = self.model, list[_Start]()
        try:
            for k in range(num_starts):
                self.clock.report(k, num_starts, "starts")
                runs.append(_Start(_uniform_start(model) if k == 0 else _random_start(model, rng)))
                self.follow(runs[-1])
        except OutOfTimeError:
            return ("done" if len(runs) == num_starts and runs[-1].converged else "time_limit"), runs
        except KeyboardInterrupt:
            return "interrupt", [run for run in runs if run.sweeps] or [_Start(_uniform_start(model))]
        return "done", runs

    def follow(self, start: _Start) -> None:
        """Ascend; with a penalty first, go to an allowed configuration near by, and ascend from there in the model."""
        if self.soft is not None:
            relaxed = _Start(start.q)  # apart, because its bound is one on another model
            try:
                self.sweep(relaxed, self.soft)
            finally:
                start.sweeps, start.change, start.penalised = relaxed.sweeps, relaxed.change, relaxed.bound
            states = find_allowed(self.model, start.q, self.given, self.clock)
            if states is None:
                return
            start.q[:] = 0.0
            start.q[self.model.unary_offsets[:-1] + states] = 1.0
        self.sweep(start, self.hard)

    def sweep(self, start: _Start, sweeps: _Sweep) -> None:
        """Sweep until nothing changes any more, or a limit is met."""
        limit = start.sweeps + self.max_iter
        while start.sweeps < limit and not start.converged:
            bounds = np.empty(min(self.chunk, limit - start.sweeps))
            made, start.change = sweeps(start.q, self.tol, len(bounds), bounds)
            start.sweeps += made
            start.history.extend(bounds[:made].tolist())
            start.converged = start.change <= self.tol
            self.clock.check()


def penalty(model: MarkovRandomField) -> float:
    """More than all soft terms of any one variable can make up for."""
    return float(10.0 + 4.0 * largest_entries(model).max())


def _spin_sweep(model: MarkovRandomField) -> _Sweep | None:
    form = ising_form(model)
    if form is None:
        return None
    from fastmix.methods.mean_field_kernels import spin_sweeps

    graph = model.adjacency
    indptr, neighbors = graph.indptr.astype(np.uint64), graph.neighbors.astype(np.uint64)
    couplings, local = form.coupling[graph.edge_ids], np.empty(model.num_variables)

    def sweep(q: FloatArray, tol: float, num_sweeps: int, bounds: FloatArray) -> tuple[int, float]:
        means = q[1::2] - q[0::2]
        made, change = spin_sweeps(form.field, indptr, neighbors, couplings, means, local, tol, num_sweeps, bounds)
        bounds[:made] += form.constant
        low = np.exp(-2.0 * np.abs(local))
        q[0::2] = np.where(local >= 0.0, low, 1.0) / (1.0 + low)
        q[1::2] = np.where(local >= 0.0, 1.0, low) / (1.0 + low)
        return int(made), float(change)

    return sweep


def _table_sweep(model: MarkovRandomField, tables: FloatArray, factors: FloatArray) -> _Sweep:
    from fastmix.methods.mean_field_kernels import table_sweeps

    graph, structure = model.adjacency, model.structure
    around = (structure.incident.indptr, structure.incident.factors, structure.scope_starts, structure.scope_variables)

    def sweep(q: FloatArray, tol: float, num_sweeps: int, bounds: FloatArray) -> tuple[int, float]:
        made, change = table_sweeps(
            model.log_unary, model.unary_offsets, graph.indptr, graph.neighbors, graph.edge_ids, model.edges,
            model.pairwise_offsets, tables, *around, structure.factor_offsets, factors, q, tol, num_sweeps, bounds,
        )  # fmt: skip
        bounds[:made] += model.log_constant
        return int(made), float(change)

    return sweep
