"""``project()``: the closest model whose Gibbs sampler mixes fast, in the divergence of choice."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fastmix import _show
from fastmix._arrays import FloatArray
from fastmix._checks import (
    as_float_array,
    check_choice,
    check_count,
    check_log_values,
    check_positive,
    choose_seed,
    describe,
)
from fastmix._clock import Clock, Report, listening
from fastmix.chains.base import device_of
from fastmix.errors import Interrupted, NotConvergedError, UnfitMethodError
from fastmix.model import Evidence, MarkovRandomField, check_model
from fastmix.model.centre import centre_factors, centre_pairs
from fastmix.model.reduce import Reduction, reduce_model
from fastmix.projection.descent import Divergence, Euclidean, StepRule, Trace, descend, divergence_by_name
from fastmix.projection.edges import check_finite
from fastmix.projection.euclidean import Solution
from fastmix.projection.feasible import FeasibleSet
from fastmix.projection.paper_dual import PaperDual
from fastmix.projection.width import WidthSet
from fastmix.results import Framed, Status, as_plain, plain_evidence, provenance
from fastmix.theory.dependency import edge_dependencies
from fastmix.theory.norms import NORMS, Norm

__all__ = ["ProjectionResult", "project"]

_STATUS = {"time_limit": Status.TIME_LIMIT, "interrupted": Status.INTERRUPTED, "max_iter": Status.NOT_CONVERGED}
_STOPPED_BY = {"time_limit": "time_limit", "interrupted": "interrupt"}
_HUGE = 1e6  # times the bound: the rounding of such entries is a billionth of it
_SO_FAR = "the best point is in the result of this exception and is within the bound"


@dataclass(frozen=True, eq=False, repr=False)
class ProjectionResult(Framed):
    """The closest model within a norm bound, and how close it is.

    Attributes
    ----------
    model : MarkovRandomField
        The projected model; always within the bound.
    status : Status
        ``time_limit`` when the clock ended it; the model is within the bound all the same.
    norm, dependency : str, str or None
        Which norm of which bound on the dependencies; None for the width.
    norm_before, norm_after, norm_bound : float
        Safe upper bounds on the norm of the dependency matrix (the larger of both directions on every edge), or on the
        width, and what was asked for.
    squared_distance : float
        Sum over edges of the squared Frobenius distance between the tables, and the same for factors, counted with what
        can be moved from factors into tables moved there; unaries are not counted.
    duality_gap : float
        ``squared_distance`` minus a proven lower bound on it; infinite for other divergences, unless the model met the
        bound already.
    divergence, divergence_value : Divergence, float
        What was minimised, and its value at the model returned, estimated where the divergence is sampled.
    seed : int or None
        Of the descent; None for the Euclidean projection, which draws nothing.
    multipliers : float array
        Where the solver ended, for a warm start of a later call on the same graph.
    dependencies : float array (m,)
        The bound z of every edge.
    factor_scales : float array (f,)
        What every factor over three or more variables was multiplied by, from 0 to 1, after its parts that depend on
        one or two variables had been moved into the unaries and tables. Empty for models of pairs.
    history : list of (int, float, float)
        Iteration of the solver or step of the descent, value of the divergence there, and the proven lower bound on the
        least value that there is by then; -inf where nothing is proven, as in all descents.
    stats, provenance : mapping
    original : MarkovRandomField
        The model that was projected.
    """

    model: MarkovRandomField
    status: Status
    norm: str
    dependency: str | None
    norm_before: float
    norm_after: float
    norm_bound: float
    squared_distance: float
    duality_gap: float
    multipliers: FloatArray
    dependencies: FloatArray
    factor_scales: FloatArray = field(default_factory=lambda: np.zeros(0))
    divergence: Divergence = field(default_factory=Euclidean)
    divergence_value: float = math.nan
    seed: int | None = None
    history: list[tuple[int, float, float]] = field(default_factory=list)
    stats: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    original: MarkovRandomField | None = None

    def __repr__(self) -> str:
        close = f"squared_distance={self.squared_distance:.6g}, duality_gap={self.duality_gap:.3g}"
        if not isinstance(self.divergence, Euclidean):
            close = f"divergence={self.divergence}, divergence_value={self.divergence_value:.6g}"
        scales = self.factor_scales
        if len(scales):
            close += f", factors scaled by {scales.min():.4g} to {scales.max():.4g}"
        return (
            f"ProjectionResult(status={str(self.status)!r}, norm_before={self.norm_before:.6g}, "
            f"norm_after={self.norm_after:.6g}, {close}, {self.model})"
        )

    @property
    def certified(self) -> bool:
        """Whether the norm is below 1, so that Gibbs sampling provably mixes fast (see :func:`fastmix.certify`).

        Below a width of 1 that is proven for updates in random order.
        """
        return self.norm_after < 1.0

    @property
    def relative_gap(self) -> float:
        """The gap that ``tol`` is compared with: ``duality_gap / (1 + squared_distance)``."""
        return self.duality_gap / (1.0 + self.squared_distance)

    def columns(self) -> dict[str, Any]:
        """Columns of :meth:`to_frame` by name, with a row for every edge: its size before and after.

        That is the ``range`` bound on its dependency (:func:`fastmix.theory.dependency.edge_dependencies`), of an Ising
        coupling its absolute value.
        """
        before, after = self._couplings()
        names = self.model.names_of_variables()
        first, second = ([names[i] for i in self.model.edges[:, k]] for k in (0, 1))
        return {"first": first, "second": second, "before": before, "after": after}

    def plot(self, axes: Any = None) -> Any:
        """The size of every edge after the projection against that before it (Matplotlib, extra ``plot``)."""
        axes = _show.new_axes(axes)
        before, after = self._couplings()
        axes.set_title(f"norm {self.norm_before:.4g} to {self.norm_after:.4g}")
        return _show.scatter(axes, before, after, xlabel="size of an edge before", ylabel="after")

    def _couplings(self) -> tuple[FloatArray, FloatArray]:
        if self.original is None or not _same_graph(self.original, self.model):
            raise ValueError("the result has no original model with the same edges to compare with")
        before, after = (
            edge_dependencies(model, dependency="range").reshape(model.num_edges, -1).max(axis=1, initial=0.0)
            for model in (self.original, self.model)
        )
        return before, after

    def _repr_html_(self) -> str:
        facts = [("status", self.status), (f"norm ({self.norm}, {self.dependency})", f"{self.norm_after:.6g}")]
        rows = [
            ("norm before", f"{self.norm_before:.6g}"),
            ("bound", f"{self.norm_bound:.6g}"),
            ("squared distance", f"{self.squared_distance:.6g}"),
            ("divergence", f"{self.divergence}: {self.divergence_value:.6g}"),
        ]
        return _show.html_table(repr(self.model), facts, rows, ("of the projection", ""))

    def to_dict(self) -> dict[str, Any]:
        """The result without the model as plain data, the shape of the command line's JSON."""
        names = "norm dependency norm_before norm_after norm_bound squared_distance duality_gap relative_gap certified"
        scales = self.factor_scales if len(self.factor_scales) else None
        return as_plain(self, f"{names} divergence_value seed", divergence=repr(self.divergence), factor_scales=scales)


def project(
    model: MarkovRandomField,
    *,
    norm_bound: float,
    norm: Norm | Literal["width"] = "inf",
    divergence: Divergence | str = Euclidean(),  # noqa: B008 (frozen)
    dependency: Literal["range", "linf"] = "range",
    solver: Literal["fast"] | PaperDual = "fast",
    step: StepRule | None = None,
    tol: float = 1e-6,
    max_iter: int = 10_000,
    evidence: Evidence | None = None,
    warm_start: ProjectionResult | FloatArray | None = None,
    seed: int | None = None,
    time_limit: float | None = None,
    progress: Report = "auto",
) -> ProjectionResult:
    """The closest model whose dependency matrix has a norm of at most ``norm_bound``.

    Minimises a divergence subject to ``||R(T)|| <= norm_bound``, where R is the bound on the dependency in both
    directions of every edge. With the Euclidean divergence, ``sum over edges ||T_e - psi_e||_F^2``, that is a convex
    problem with a proven gap (Liu and Domke, 2014, Eq. 3). Other divergences (Eq. 7) are minimised by gradient steps,
    each followed by the Euclidean projection (Algorithm 1 there); the unaries are free then. Below 1 the projected
    model provably mixes fast; the paper's practical choice is 2.5, which proves nothing (see docs/theory.md).

    Parameters
    ----------
    model : MarkovRandomField
        States forbidden by a unary are left alone; -inf in a table or factor is refused. Factors over three or more
        variables take the Euclidean divergence: what depends on one or two of their variables is moved into unaries and
        tables, and the rest of every factor is scaled as a whole (``factor_scales``), the best scales there are.
    norm_bound : float
        Positive.
    norm : {"inf", "spectral", "1", "frobenius", "width"}
        The norm that is bounded; one must be chosen, unlike in :func:`fastmix.certify`. inf is the fastest; spectral
        changes the model least among them. 1 equals inf here, because both directions share one bound. ``width``
        bounds the width of the couplings instead (criterion ``width`` of :func:`fastmix.certify`, for updates in random
        order): a larger set for dense models and mixed signs. It takes the Euclidean divergence, the fast solver, and
        no factors. The relative gap is at least 1e-3 where fewer than a tenth of all pairs are edges, and about 1e-2
        beyond 3,000 coordinates (states of all variables but one of each).
    divergence : Divergence or str
        :class:`~fastmix.projection.Euclidean`, :class:`~fastmix.projection.KL`,
        :class:`~fastmix.projection.PiecewiseKL`, :class:`~fastmix.projection.ReversedKL`, or one of your own; or its
        name (``euclidean``, ``kl``, ``piecewise-kl``, ``reversed-kl``) for the default settings.
    dependency : {"range", "linf"}
        Bound on R, see :func:`fastmix.theory.dependency.edge_dependencies`: ``range`` is the tighter one and ignores
        terms of one variable; ``linf`` is the paper's.
        Where entries of tables are over a million times the bound, what depends on one variable of a table is moved
        into the unaries under ``range``, so that rounding does not break the bound.
    solver : "fast" or PaperDual
        The exact route that eliminates the tables, or the paper's dual (docs/theory.md).
    step : StepRule, optional
        How the descent steps; what the divergence finds best by default. Not for the Euclidean divergence.
    tol : float
        Relative duality gap of every Euclidean projection: gap / (1 + squared distance).
    max_iter : int
        Of every Euclidean projection: passes (inf), steps (spectral, frobenius), outer iterations (the paper's dual),
        eigendecompositions (width, dense graphs) or blocks of 20 steps (width, sparse graphs).
    evidence : mapping, optional
        Observed state by variable: the model of the other variables given these is projected and returned.
    warm_start : ProjectionResult or its multipliers, optional
        An earlier result for the same norm on the same graph (any other counts as none), or its multipliers: these
        start the first projection, and a descent begins at the model of the result.
    seed : int, optional
        Of descents with random parts; drawn and returned when not given.
    time_limit : float, optional
        Seconds after which the model that was reached is returned with the status ``time_limit``: within the bound, if
        not the closest. Where there was no time for tables of many states, everything is scaled.
    progress : "auto", None or callable
        See :func:`fastmix.infer`; told after every step of a descent, or block of iterations.

    Returns
    -------
    ProjectionResult
        A model that already meets the bound comes back unchanged.

    Raises
    ------
    NotConvergedError
        If the Euclidean projection does not reach ``tol`` in ``max_iter``; its ``result`` is the best point, which is
        within the bound.
    Interrupted
        On Ctrl-C: a KeyboardInterrupt whose ``result`` is the best point so far, within the bound; None before there is
        one.
    UnfitMethodError
        If a table or factor has -inf entries, the solver cannot handle the bound, or the divergence or solver cannot
        handle the graph or factors.
    ResourceError
        If a divergence needs exact inference beyond the memory.

    Notes
    -----
    Euclidean: about a millisecond for a 16x16 Ising grid (inf), seconds for a million variables; spectral takes tens of
    milliseconds, and about a second for 10,000 variables. Descents: tenths of a second for a 16x16 grid.

    Examples
    --------
    >>> from fastmix.instances import ising_grid
    >>> from fastmix.projection import ReversedKL
    >>> model = ising_grid(4, 4, coupling_max=3.0, seed=0)
    >>> result = project(model, norm_bound=0.9)
    >>> result.norm_after <= 0.9, result.certified, result.duality_gap < 1e-4
    (True, True, True)
    >>> result = project(model, norm_bound=2.5, divergence=ReversedKL(), seed=1)
    >>> result.norm_after <= 2.5, result.certified
    (True, False)
    """
    check_model(model)
    norm_bound = check_positive("norm_bound", norm_bound)
    check_choice("norm", norm, (*NORMS, "width"))
    check_choice("dependency", dependency, ("range", "linf"))
    if not isinstance(solver, PaperDual) and not (isinstance(solver, str) and solver == "fast"):
        raise ValueError(f"solver must be 'fast' or a PaperDual, got {describe(solver)}")
    if isinstance(solver, PaperDual) and norm in ("frobenius", "width"):
        raise ValueError(f"norm must be inf, 1 or spectral with the paper's dual, got {norm!r}")
    if norm == "width" and dependency != "range":
        raise ValueError(f"dependency must be left out with norm='width', which bounds no R, got {dependency!r}")
    tol = check_positive("tol", tol)
    max_iter = check_count("max_iter", max_iter, least=1)
    chosen = divergence_by_name(divergence) if isinstance(divergence, str) else divergence
    if not isinstance(chosen, Divergence):
        came = describe(divergence)
        raise ValueError(f"divergence must be a Divergence such as ReversedKL(), or its name, got {came}")
    if step is not None and not isinstance(step, StepRule):
        raise ValueError(f"step must be a StepRule such as FixedStep(), got {describe(step)}")
    start = _as_start(warm_start)
    seed = choose_seed(seed)
    euclidean = isinstance(chosen, Euclidean)
    if euclidean and step is not None:
        raise ValueError("step must be left out for the Euclidean divergence, which is solved without a descent")
    if norm == "width" and not euclidean:
        raise UnfitMethodError(f"norm='width' takes the Euclidean divergence only, got {chosen}")
    rule = None if euclidean else chosen.default_step if step is None else step

    options: dict[str, Any] = {
        "norm_bound": norm_bound, "norm": norm, "dependency": dependency, "tol": tol, "max_iter": max_iter,
        "solver": str(solver), "divergence": repr(chosen), "step": None if rule is None else repr(rule),
        "warm_start": None if warm_start is None else "given", "time_limit": time_limit,
    }  # fmt: skip
    with listening(progress, "projection") as listener:
        clock = Clock(time_limit, listener=listener, what="projection")
        if evidence is not None:
            model = model.condition(evidence)
        options["evidence"] = plain_evidence(evidence)
        reduction = reduce_model(model)
        small = reduction.model
        if small.num_factors and not (euclidean and solver == "fast"):
            what = "the paper's dual" if euclidean else f"the divergence {chosen}"
            raise UnfitMethodError(
                f"{what} takes no factors over three or more variables, of which the model has {small.num_factors}; "
                "the Euclidean divergence with the fast solver scales them"
            )
        kind = WidthSet if norm == "width" else FeasibleSet
        feasible = kind(
            small,
            norm_bound=norm_bound,
            norm=norm,  # type: ignore[arg-type]
            dependency=dependency,
            solver=solver,
            tol=tol,
            max_iter=max_iter,
            clock=clock if euclidean else clock.part(1.0, quiet=True),
        )
        _, norm_before = feasible.measure(small, clock.part(0.2))
        theta, solution = small, Solution(np.zeros(0), np.zeros(0), 0.0, 0.0, converged=True)
        fits = norm_before <= norm_bound
        if not fits:
            check_finite(small)
            small = theta = _in_small_numbers(small, norm_bound, dependency)
            if not isinstance(warm_start, ProjectionResult):
                _check_start(start, small, norm, solver)
            # Half of the time for the start of a descent, if it takes as long.
            theta, solution = feasible.nearest(
                small, start=start, clock=clock if euclidean else clock.part(0.5, quiet=True)
            )

        def build(reason: str, lower: float, stats: Mapping[str, Any], **facts: Any) -> ProjectionResult:
            settled, z, norm_after = feasible.settle(theta)
            reason = "time_limit" if feasible.cut_short and reason == "tol" else reason
            distance = float(np.sum((settled.log_pairwise - small.log_pairwise) ** 2))
            distance += float(np.sum((settled.log_factors - small.log_factors) ** 2))
            device = device_of(str(stats.get("backend", "cpu")))
            whole = _expand(reduction, settled)
            feasible.remember(whole)
            return ProjectionResult(
                model=whole,
                status=_STATUS.get(reason, Status.OK),
                norm=norm,
                dependency=None if norm == "width" else dependency,
                norm_before=norm_before,
                norm_after=norm_after,
                norm_bound=float(norm_bound),
                squared_distance=distance,
                duality_gap=max(0.0, distance - lower),
                multipliers=solution.multipliers,
                dependencies=z,
                factor_scales=_scales(small, settled),
                stats={"stopped": reason, "stopped_by": _STOPPED_BY.get(reason, "done"), **stats, **clock.stats()},
                provenance=provenance(model, seed=facts.get("seed"), device=device, **options),
                original=model,
                **{"divergence_value": distance, **facts},
            )

        reason = "tol" if solution.converged else "max_iter"
        reason = "interrupted" if solution.interrupted else "time_limit" if solution.late else reason
        if rule is None or reason in ("interrupted", "max_iter"):
            stats = {"iterations": solution.iterations, **solution.facts}
            result = build(reason, solution.dual, stats, history=solution.history)
            if reason == "interrupted":
                raise Interrupted(f"the projection was interrupted; {_SO_FAR}", result)
            if reason == "max_iter":
                raise NotConvergedError(
                    f"the projection did not converge in {solution.iterations} iterations: relative gap "
                    f"{result.relative_gap:.3g}, tol {tol:.3g}; {_SO_FAR}; raise max_iter or tol",
                    result,
                )
            return result

        trace, value, constant, facts = Trace(clock, getattr(rule, "num_steps", None)), 0.0, 0.0, {}
        if not fits and clock.left() < chosen.least_seconds(small):
            trace.reason, value = "time_limit", math.nan
        elif not fits:
            objective = chosen.start(small, seed=seed)
            objective.watch(clock)
            several = reason == "tol"  # out of time, the Euclidean projection is the only start
            if isinstance(warm_start, ProjectionResult) and _same_graph(warm_start.model, model):
                theta = feasible.project(warm_start.model.parameters[_positions(reduction)], "indicator")
                several = False
            theta, value = descend(objective, theta, feasible, rule, trace, several=several)
            constant, facts = objective.constant, dict(objective.facts())
        num_steps = max(0, len(trace.values) - 1)
        counts = {"num_projections": feasible.num_projections, "num_inexact": feasible.num_inexact}
        result = build(
            trace.reason,
            0.0 if fits else -math.inf,
            {"num_steps": num_steps, **counts, **facts},
            history=[(k, v + constant, -math.inf) for k, v in enumerate(trace.values)],
            divergence=chosen,
            divergence_value=value + constant,
            seed=seed,
        )
        if trace.reason == "interrupted":
            raise Interrupted(f"the descent was interrupted after {num_steps} steps; {_SO_FAR}", result)
        return result


def _as_start(warm_start: Any) -> FloatArray | None:
    """The multipliers of an earlier result, or those given; None where there are none."""
    if warm_start is None:
        return None
    if isinstance(warm_start, ProjectionResult):
        warm_start = warm_start.multipliers
    start = as_float_array("warm_start", warm_start)
    if not np.isfinite(start).all():
        raise ValueError("warm_start must hold finite multipliers, got NaN or infinite ones")
    check_log_values("warm_start", start)
    return start if start.size else None


def _check_start(
    start: FloatArray | None, model: MarkovRandomField, norm: str, solver: Literal["fast"] | PaperDual
) -> None:
    """A ValueError for multipliers, given as an array, of a shape that the solver does not take."""
    if start is None or norm == "width" or isinstance(solver, PaperDual):
        return  # their shapes depend on how they are solved
    n, m = model.num_variables, model.num_edges
    shape: tuple[Any, ...] = (m,) if norm == "frobenius" else (n, "rank") if norm == "spectral" else (n,)
    if start.ndim != len(shape) or start.shape[0] != shape[0]:
        raise ValueError(
            f"warm_start must be a result of the same norm, or multipliers of shape {shape} for norm={norm!r}, got "
            f"shape {start.shape}"
        )


def _in_small_numbers(model: MarkovRandomField, norm_bound: float, dependency: str) -> MarkovRandomField:
    """The same distribution with what nothing bounds moved out of factors, and out of tables of huge entries.

    There its rounding would be more than what the bound leaves.
    """
    model = centre_factors(model)
    largest = float(np.abs(model.log_pairwise).max(initial=0.0))
    return centre_pairs(model, means_only=dependency != "range") if largest > _HUGE * norm_bound else model


def _expand(reduction: Reduction, theta: MarkovRandomField) -> MarkovRandomField:
    """The model of all variables and states with the parameters of the reduced one."""
    original = reduction.original
    if theta is reduction.model:
        return original
    parameters = original.parameters.copy()
    parameters[_positions(reduction)] = theta.parameters
    return original.with_parameters(parameters).replace(log_constant=theta.log_constant)


def _positions(reduction: Reduction) -> NDArray[np.int64]:
    """Places of the reduced parameters in the vector of all parameters."""
    original = reduction.original
    first, second = len(original.log_unary), len(original.log_unary) + len(original.log_pairwise)
    parts = [reduction.unary_positions, first + reduction.pairwise_positions]
    kept = np.zeros(first, dtype=bool)
    kept[reduction.unary_positions] = True
    for a, scope in enumerate(original.structure.scopes):
        states = [np.flatnonzero(kept[original.unary_offsets[v] : original.unary_offsets[v + 1]]) for v in scope]
        entries = np.ravel_multi_index(np.ix_(*states), original.num_states[scope])
        parts.append(second + original.factor_offsets[a] + entries.ravel())
    return np.concatenate(parts)


def _scales(before: MarkovRandomField, after: MarkovRandomField) -> FloatArray:
    """What every factor was multiplied by; 1 for those that have nothing of their own."""
    if not before.num_factors:
        return np.zeros(0)
    starts = before.factor_offsets[:-1]
    squares = np.add.reduceat(before.log_factors**2, starts)
    products = np.add.reduceat(before.log_factors * after.log_factors, starts)
    return np.divide(products, squares, out=np.ones(len(starts)), where=squares > 0.0)


def _same_graph(one: MarkovRandomField, other: MarkovRandomField) -> bool:
    return np.array_equal(one.num_states, other.num_states) and np.array_equal(one.edges, other.edges)
