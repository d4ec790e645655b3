"""The work of one call of :func:`fastmix.project`: its settings, and the steps from the model to the result."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from fastmix._arrays import FloatArray
from fastmix._checks import as_float_array, check_choice, check_count, check_log_values, check_positive, describe
from fastmix._context import Context
from fastmix.chains.place import device_of
from fastmix.errors import UnfitMethodError
from fastmix.model import MarkovRandomField
from fastmix.model.factor_forms import center_factors
from fastmix.model.forms import center_pairs
from fastmix.model.reduce import Reduction
from fastmix.projection.contrasts import Bound
from fastmix.projection.descent import StepRule, Trace, descend
from fastmix.projection.divergence import Divergence, Euclidean, divergence_by_name
from fastmix.projection.edges import check_finite
from fastmix.projection.expansion import expand, factor_scales, kept_positions
from fastmix.projection.feasible import FeasibleSet
from fastmix.projection.paper_dual import PaperDual
from fastmix.projection.result import ProjectionResult, same_graph
from fastmix.projection.solution import Solution
from fastmix.projection.tuning import DESCENT_START_SHARE, HUGE_ENTRIES, NORM_BEFORE_SHARE
from fastmix.projection.width import WidthSet
from fastmix.results import Status
from fastmix.theory.norms import NORMS, Norm
from fastmix.theory.table_groups import table_groups

__all__ = ["ProjectionSettings", "Projector", "WarmStart"]

# The verdict on a result, by the rule that ended the work; ``ok`` for all other rules.
_STATUS = {
    "time_limit": Status.TIME_LIMIT,
    "interrupt": Status.INTERRUPTED,
    "max_iter": Status.NOT_CONVERGED,
}


# -- what was asked for -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProjectionSettings:
    """Options of one call of :func:`fastmix.project`, checked; ``step`` is None for the Euclidean divergence."""

    norm_bound: float
    norm: Norm | Literal["width"]
    dependency: Bound
    solver: Literal["fast"] | PaperDual
    divergence: Divergence
    step: StepRule | None
    tol: float
    max_iter: int

    @classmethod
    def checked(
        cls,
        *,
        norm_bound: float,
        norm: Norm | Literal["width"] = "inf",
        dependency: Bound = "range",
        solver: Literal["fast"] | PaperDual = "fast",
        divergence: Divergence | str = Euclidean(),  # noqa: B008 (frozen)
        step: StepRule | None = None,
        tol: float = 1e-6,
        max_iter: int = 10_000,
    ) -> ProjectionSettings:
        """The settings that a user asked for; a ValueError, or an UnfitMethodError, where they do not fit together."""
        norm_bound = check_positive("norm_bound", norm_bound)
        check_choice("norm", norm, (*NORMS, "width"))
        check_choice("dependency", dependency, ("range", "linf"))
        _check_solver(solver, norm)
        if norm == "width" and dependency != "range":
            raise ValueError(f"dependency must be left out with norm='width', which bounds no R, got {dependency!r}")
        tol = check_positive("tol", tol)
        max_iter = check_count("max_iter", max_iter, least=1)
        chosen = _as_divergence(divergence)
        rule = _as_rule(step, chosen)
        if norm == "width" and not isinstance(chosen, Euclidean):
            raise UnfitMethodError(f"norm='width' takes the Euclidean divergence only, got {chosen}")
        return cls(norm_bound, norm, dependency, solver, chosen, rule, tol, max_iter)

    @property
    def euclidean(self) -> bool:
        """Whether the divergence is the Euclidean one, which takes no descent."""
        return isinstance(self.divergence, Euclidean)

    def options(self) -> dict[str, Any]:
        """The settings as the provenance of the result shows them."""
        return {
            "norm_bound": self.norm_bound,
            "norm": self.norm,
            "dependency": self.dependency,
            "tol": self.tol,
            "max_iter": self.max_iter,
            "solver": str(self.solver),
            "divergence": repr(self.divergence),
            "step": None if self.step is None else repr(self.step),
        }


def _check_solver(solver: object, norm: str) -> None:
    """A ValueError if there is no such solver, or it cannot handle the norm."""
    if isinstance(solver, PaperDual):
        if norm in ("frobenius", "width"):
            raise ValueError(f"norm must be inf, 1 or spectral with the paper's dual, got {norm!r}")
    elif not isinstance(solver, str) or solver != "fast":
        raise ValueError(f"solver must be 'fast' or a PaperDual, got {describe(solver)}")


def _as_divergence(divergence: Divergence | str) -> Divergence:
    """The divergence that was asked for, maybe by name."""
    chosen = divergence_by_name(divergence) if isinstance(divergence, str) else divergence
    if not isinstance(chosen, Divergence):
        came = describe(divergence)
        raise ValueError(f"divergence must be a Divergence such as ReversedKL(), or its name, got {came}")
    return chosen


def _as_rule(step: StepRule | None, divergence: Divergence) -> StepRule | None:
    """The rule of the descent; None for the Euclidean divergence, which takes none."""
    if step is not None and not isinstance(step, StepRule):
        raise ValueError(f"step must be a StepRule such as FixedStep(), got {describe(step)}")
    if not isinstance(divergence, Euclidean):
        return divergence.default_step if step is None else step
    if step is not None:
        raise ValueError("step must be left out for the Euclidean divergence, which is solved without a descent")
    return None


@dataclass(frozen=True, eq=False)
class WarmStart:
    """Multipliers to begin the Euclidean projection with, and the earlier result that they come from, if any."""

    multipliers: FloatArray | None = None
    earlier: ProjectionResult | None = None

    @classmethod
    def checked(cls, warm_start: ProjectionResult | FloatArray | None) -> WarmStart:
        """The start that a user gave: an earlier result, its multipliers, or nothing."""
        if warm_start is None:
            return cls()
        if isinstance(warm_start, ProjectionResult):
            earlier = warm_start
            given = warm_start.multipliers
        else:
            earlier = None
            given = warm_start
        multipliers = as_float_array("warm_start", given)
        if not np.isfinite(multipliers).all():
            raise ValueError("warm_start must hold finite multipliers, got NaN or infinite ones")
        check_log_values("warm_start", multipliers)
        return cls(multipliers if multipliers.size else None, earlier)

    def check_shape(self, model: MarkovRandomField, settings: ProjectionSettings) -> None:
        """A ValueError if a user gave an array of a shape that the solver does not take.

        An earlier result on another graph counts as none, and so do arrays for the width and the paper's dual, whose
        shapes depend on how they are solved.
        """
        if self.multipliers is None or self.earlier is not None:
            return
        if settings.norm == "width" or settings.solver != "fast":
            return
        shape: tuple[int, ...] | tuple[int, str]
        if settings.norm == "frobenius":
            shape = (model.num_edges,)
        elif settings.norm == "spectral":
            shape = (model.num_variables, "rank")
        else:
            shape = (model.num_variables,)
        given = self.multipliers.shape
        if len(given) != len(shape) or given[0] != shape[0]:
            raise ValueError(
                f"warm_start must be a result of the same norm, or multipliers of shape {shape} for "
                f"norm={settings.norm!r}, got shape {given}"
            )


# -- the work ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _DescentEnd:
    """The value of the divergence where a descent ended, less its constant; the constant; what else is known."""

    value: float
    constant: float = 0.0
    facts: Mapping[str, Any] | None = None


class Projector:
    """The closest point that is known so far, on the way from the model to the result.

    Attributes
    ----------
    original : MarkovRandomField
        The model that the user asked about, given the evidence.
    model : MarkovRandomField
        The model that is projected: without forbidden states, and in small numbers once that is known to matter.
    feasible : FeasibleSet
        The models within the bound.
    norm_before : float
        The norm of the model, from above.
    theta : MarkovRandomField
        The closest point so far.
    solution : Solution
        How the Euclidean projection was found.
    stopping_rule : str
        The rule that ended the latest part of the work.
    """

    def __init__(self, reduction: Reduction, settings: ProjectionSettings, context: Context) -> None:
        self.original = reduction.original
        self.settings = settings
        self.context = context
        self.reduction = reduction
        self.model = reduction.model
        _check_factors(self.model, settings)
        self.feasible = _feasible_set(self.model, settings, context)
        self.norm_before = self.feasible.size(self.model, context.clock.part(NORM_BEFORE_SHARE))
        self.theta = self.model
        self.solution = Solution(np.zeros(0), np.zeros(0), 0.0, 0.0, converged=True)
        self.stopping_rule = "tol"

    @property
    def meets_bound(self) -> bool:
        """Whether the model is within the bound as it is."""
        return self.norm_before <= self.settings.norm_bound

    def find_nearest(self, start: WarmStart) -> None:
        """Move to the Euclidean projection, which is where a descent begins."""
        if self.meets_bound:
            return
        check_finite(self.model)
        self.model = _in_small_numbers(self.model, self.settings)
        start.check_shape(self.model, self.settings)
        clock = self.context.clock
        if not self.settings.euclidean:
            clock = clock.part(DESCENT_START_SHARE, quiet=True)
        self.theta, self.solution = self.feasible.nearest(self.model, start=start.multipliers, clock=clock)
        if self.solution.interrupted:
            self.stopping_rule = "interrupt"
        elif self.solution.late:
            self.stopping_rule = "time_limit"
        elif not self.solution.converged:
            self.stopping_rule = "max_iter"

    @property
    def can_descend(self) -> bool:
        """Whether a descent follows: the divergence asks for one, and the Euclidean projection is good enough."""
        return self.settings.step is not None and self.stopping_rule not in ("interrupt", "max_iter")

    def descend(self, earlier: ProjectionResult | None) -> ProjectionResult:
        """The result of a descent from the Euclidean projection, or from the model of an earlier result."""
        rule = self.settings.step
        assert rule is not None
        trace = Trace(self.context.clock, getattr(rule, "num_steps", None))
        if self.meets_bound:
            end = _DescentEnd(value=0.0)
        elif self.context.clock.left() < self.settings.divergence.least_seconds(self.model):
            trace.stopping_rule = "time_limit"
            end = _DescentEnd(value=math.nan)
        else:
            end = self._walk_down(rule, trace, earlier)
        self.stopping_rule = trace.stopping_rule
        return self._descent_result(trace, end)

    def _walk_down(self, rule: StepRule, trace: Trace, earlier: ProjectionResult | None) -> _DescentEnd:
        """Move to where a descent ends."""
        objective = self.settings.divergence.start(self.model, seed=self.context.seed_of("divergence"))
        objective.watch(self.context.clock)
        # Out of time, the Euclidean projection is the only start, and so is the model of an earlier result.
        search_start = self.stopping_rule == "tol"
        if earlier is not None and same_graph(earlier.model, self.original):
            parameters = earlier.model.parameters[kept_positions(self.reduction)]
            self.theta = self.feasible.project(parameters, "indicator")
            search_start = False
        self.theta, value = descend(objective, self.theta, self.feasible, rule, trace, search_start=search_start)
        return _DescentEnd(value, objective.constant, objective.facts())

    # -- results ------------------------------------------------------------------------------------------------------

    def euclidean_result(self) -> ProjectionResult:
        """The result at the Euclidean projection."""
        solution = self.solution
        result = self._result(solution.dual, {"num_iterations": solution.iterations, **solution.facts})
        history = [
            {"iteration": iteration, "value": value, "lower_bound": lower_bound}
            for iteration, value, lower_bound in solution.history
        ]
        return replace(result, history=history)

    def _descent_result(self, trace: Trace, end: _DescentEnd) -> ProjectionResult:
        """The result at the end of a descent; nothing is proven unless the model met the bound already."""
        facts = dict(end.facts or {})
        counts = {
            "num_steps": max(0, len(trace.values) - 1),
            "num_projections": self.feasible.num_projections,
            "num_inexact": self.feasible.num_inexact,
        }
        result = self._result(0.0 if self.meets_bound else -math.inf, {**counts, **facts})
        history = [
            {"iteration": step, "value": value + end.constant, "lower_bound": -math.inf}
            for step, value in enumerate(trace.values)
        ]
        return replace(
            result,
            provenance={"device": device_of(str(facts.get("backend", "cpu")))},
            history=history,
            divergence=self.settings.divergence,
            divergence_value=end.value + end.constant,
        )

    def _result(self, lower_bound: float, stats: Mapping[str, Any]) -> ProjectionResult:
        """The result at the present point, moved into the set, by a lower bound on the least squared distance."""
        settled, dependencies, norm_after = self.feasible.settle(self.theta)
        if self.feasible.cut_short and self.stopping_rule == "tol":
            self.stopping_rule = "time_limit"
        ended_by = self.stopping_rule
        whole = expand(self.reduction, settled)
        self.feasible.remember(whole)
        distance = _squared_distance(settled, self.model)
        return ProjectionResult(
            model=whole,
            status=_STATUS.get(ended_by, Status.OK),
            norm=self.settings.norm,
            dependency=None if self.settings.norm == "width" else self.settings.dependency,
            norm_before=self.norm_before,
            norm_after=norm_after,
            norm_bound=self.settings.norm_bound,
            squared_distance=distance,
            duality_gap=max(0.0, distance - lower_bound),
            multipliers=self.solution.multipliers,
            dependencies=dependencies,
            factor_scales=factor_scales(self.model, settled),
            stats={
                "stopped_by": ended_by if ended_by in ("time_limit", "interrupt") else "done",
                "stopping_rule": ended_by,
                **stats,
            },
            original=self.original,
            divergence_value=distance,
        )


def _check_factors(model: MarkovRandomField, settings: ProjectionSettings) -> None:
    """An UnfitMethodError if the model has factors that the divergence or the solver cannot handle."""
    if not model.num_factors or (settings.euclidean and settings.solver == "fast"):
        return
    what = "the paper's dual" if settings.euclidean else f"the divergence {settings.divergence}"
    raise UnfitMethodError(
        f"{what} takes no factors over three or more variables, of which the model has "
        f"{model.num_factors}; the Euclidean divergence with the fast solver scales them"
    )


def _feasible_set(model: MarkovRandomField, settings: ProjectionSettings, context: Context) -> FeasibleSet:
    """The models on the graph of a model that are within the bound."""
    clock = context.clock
    if not settings.euclidean:
        clock = clock.part(1.0, quiet=True)  # the descent reports its own steps
    if settings.norm == "width":
        return WidthSet(
            model, norm_bound=settings.norm_bound, tol=settings.tol, max_iter=settings.max_iter, clock=clock
        )
    return FeasibleSet(
        model,
        norm_bound=settings.norm_bound,
        norm=settings.norm,
        dependency=settings.dependency,
        solver=settings.solver,
        tol=settings.tol,
        max_iter=settings.max_iter,
        clock=clock,
    )


def _in_small_numbers(model: MarkovRandomField, settings: ProjectionSettings) -> MarkovRandomField:
    """The same distribution with what nothing bounds moved out of factors, and out of tables of huge entries.

    The rounding of huge entries would be more than what the bound leaves.
    """
    model = center_factors(model)
    largest = float(model.sizes_of_tables().max(initial=0.0))
    if largest <= HUGE_ENTRIES * settings.norm_bound:
        return model
    return center_pairs(model, means_only=settings.dependency != "range")


def _squared_distance(one: MarkovRandomField, other: MarkovRandomField) -> float:
    """Sum of the squared differences of the entries of tables and factors."""
    if one.shared_tables is None and other.shared_tables is None:
        distance = float(np.sum((one.log_pairwise - other.log_pairwise) ** 2))
    else:
        pieces = zip(table_groups(one), table_groups(other), strict=True)
        distance = math.fsum([float(np.sum((left - right) ** 2)) for (_, left), (_, right) in pieces])
    return distance + float(np.sum((one.log_factors - other.log_factors) ** 2))
