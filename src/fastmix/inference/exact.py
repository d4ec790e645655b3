"""Exact inference as a method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fastmix._checks import check_positive, keep_checked
from fastmix._clock import NO_LIMIT, Clock
from fastmix._memory import parse_bytes
from fastmix.exact import ExactPlan, plan_exact
from fastmix.exact.elimination import kept_elimination
from fastmix.exact.solver import too_late
from fastmix.marginals import InferenceResult
from fastmix.method import Context, Method, option
from fastmix.model import Evidence, MarkovRandomField
from fastmix.model.reduce import Reduction, forbid_others, reduce_model

__all__ = ["Exact", "MemoryLimited"]


@dataclass(frozen=True, kw_only=True)
class MemoryLimited(Method):
    """Options of exact inference, and of the automatic choice that may end in it.

    Parameters
    ----------
    memory_limit : float, optional
        Memory in bytes that may be used, such as 4GiB; half of the free memory by default.
    """

    gives_log_z: ClassVar[bool] = True
    takes_factors: ClassVar[bool] = True
    takes_laws: ClassVar[bool] = True
    answers_zero: ClassVar[bool] = True
    share: ClassVar[float] = 1.0  #: of a time limit that a plan which is kept may take

    memory_limit: float | None = option(None, parse=parse_bytes)

    def __post_init__(self) -> None:
        if self.memory_limit is not None:
            limit = check_positive("memory_limit", self.memory_limit, "number of bytes")
            keep_checked(self, memory_limit=limit)

    def reduce(self, model: MarkovRandomField, evidence: Evidence | None, clock: Clock = NO_LIMIT) -> Reduction:
        """The model without variables of a single state.

        Where the graph is so small that its plan is kept, the states that evidence excludes are forbidden instead: the
        plan then serves any evidence.
        """
        kept = kept_elimination(model, self.memory_limit)
        if kept is not None and (clock.limit is None or kept.seconds <= self.share * clock.limit):
            found = forbid_others(model, evidence)
            if found is not None:
                return found
        return reduce_model(model, evidence, fold_single=True, clock=clock)


@dataclass(frozen=True, kw_only=True)
class Exact(MemoryLimited):
    """Exact marginals and log Z, for models of small treewidth; see :func:`fastmix.exact.infer_exact`."""

    name: ClassVar[str] = "exact"
    guarantee: ClassVar[str] = "exact up to rounding"
    seeded: ClassVar[bool] = False
    threaded: ClassVar[bool] = False

    def default_limit(self) -> None:
        """None: exact inference runs as long as it takes."""

    def run(self, model: MarkovRandomField, context: Context, plan: ExactPlan | None = None) -> InferenceResult:
        """Exact marginals and log Z, by a plan that may have been made already.

        A plan that takes longer than the time limit is refused before it runs.
        """
        clock = context.clock
        if plan is None:
            plan = plan_exact(model, memory_limit=self.memory_limit, clock=clock, reduced=True)
            if clock.limit is not None and plan.seconds > clock.left():
                raise too_late(clock, plan.elimination)
        return plan.run(clock, edge_marginals=context.edge_marginals is not False)  # they cost little
