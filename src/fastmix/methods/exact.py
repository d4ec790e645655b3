"""Exact inference as a method: the junction tree, refused where memory or time would not do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fastmix._checks import check_positive
from fastmix._clock import NO_LIMIT, Clock
from fastmix._memory import parse_bytes
from fastmix.errors import ImpossibleEvidenceError, ModelError
from fastmix.exact import ExactPlan, plan_exact
from fastmix.exact.junction_tree import kept_tree
from fastmix.exact.solver import too_late
from fastmix.methods.base import Context, Method, option
from fastmix.model import Evidence, MarkovRandomField
from fastmix.model.reduce import Reduction, forbid_others, reduce_model
from fastmix.results import InferenceResult

__all__ = ["Exact", "MemoryLimited"]


@dataclass(frozen=True)
class MemoryLimited(Method):
    """What exact inference and the choice that may end in it have in common."""

    gives_log_z: ClassVar[bool] = True
    takes_factors: ClassVar[bool] = True
    share: ClassVar[float] = 1.0  # of a time limit that a plan that is kept may take

    memory_limit: float | None = option(help="Such as 4GiB; half of the free memory by default.", parse=parse_bytes)

    def __post_init__(self) -> None:
        if self.memory_limit is not None:
            check_positive("memory_limit", self.memory_limit, "number of bytes")

    def reduce(self, model: MarkovRandomField, evidence: Evidence | None, clock: Clock = NO_LIMIT) -> Reduction:
        """Without variables of a single state.

        Where the graph is so small that its plan is kept, all other states are forbidden instead: the plan serves any
        evidence.
        """
        kept = kept_tree(model, self.memory_limit)
        if kept is not None and (clock.limit is None or kept.seconds <= self.share * clock.limit):
            found = forbid_others(model, evidence)
            if found is not None:
                return found
        return reduce_model(model, evidence, fold_single=True, clock=clock)


@dataclass(frozen=True)
class Exact(MemoryLimited):
    """Exact marginals and log Z, for models of small treewidth; see :func:`fastmix.exact.infer_exact`.

    ``memory_limit`` (bytes) is half of the memory that is free by default.
    """

    name: ClassVar[str] = "exact"
    guarantee: ClassVar[str] = "exact up to rounding"
    seeded: ClassVar[bool] = False
    threaded: ClassVar[bool] = False

    def budget(self) -> None:
        """As long as it takes."""

    def run(self, model: MarkovRandomField, context: Context, plan: ExactPlan | None = None) -> InferenceResult:
        """The answer, by a plan that has been made already if there is one; a time limit is met by refusing."""
        clock = context.clock
        if plan is None:
            plan = plan_exact(model, memory_limit=self.memory_limit, clock=clock, reduced=True)
            if clock.limit is not None and plan.seconds > clock.left():
                raise too_late(clock, plan.seconds, plan.tree)
        try:
            return plan.run(clock, edge_marginals=context.edge_marginals is not False)  # they cost little
        except ModelError as error:
            if context.given and "impossible" not in str(error):
                reason = str(error).partition(": ")[2] or str(error)
                message = f"evidence must have positive probability, but it is impossible: {reason}"
                raise ImpossibleEvidenceError(message) from None
            raise
