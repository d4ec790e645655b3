"""Exact inference for users: evidence, forbidden states, twins and the junction tree put together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray
from fastmix._checks import check_positive
from fastmix._clock import NO_LIMIT, Clock, OutOfTimeError
from fastmix._memory import available_memory
from fastmix.errors import ImpossibleEvidenceError, ImpossibleModelError, ResourceError
from fastmix.estimates import Estimate
from fastmix.exact.conditioning import ConditionedElimination, plan_conditioned
from fastmix.exact.elimination import ModelElimination, kept_elimination, plan_model_elimination
from fastmix.exact.tuning import (
    EXPECTATION_DRAWS,
    MAX_CASES,
    MAX_JOINT_ENTRIES,
)
from fastmix.exact.twins import TwinReduction, count_twins
from fastmix.marginals import InferenceResult
from fastmix.model import Evidence, MarkovRandomField, check_model
from fastmix.model.reduce import Reduction, reduce_model
from fastmix.results import Status, plain_evidence, provenance

__all__ = ["ExactPlan", "ExactResult", "infer_exact", "plan_exact", "too_late"]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ExactResult(InferenceResult):
    """Exact marginals and log Z; :meth:`joint` is exact, :meth:`expect` rests on 10,000 independent exact draws."""

    reduction: Reduction | None = None

    def expansion(self, reduction: Reduction) -> dict[str, Any]:
        """The fields of the result for the original model; the reduction is kept for :meth:`joint`."""
        return {**super().expansion(reduction), "reduction": reduction}

    def _joint(self, numbers: list[int]) -> Estimate:
        """The joint distribution of some variables: that of what is left of them, and point masses for the others."""
        reduction = self.reduction or reduce_model(self.model)
        shape = self.model.num_states[numbers].tolist()
        if np.prod(shape, dtype=float) > MAX_JOINT_ENTRIES:
            raise ResourceError(
                f"joint needs a table of at most {MAX_JOINT_ENTRIES} entries, got {shape}: ask for fewer"
            )
        small = reduction.model
        where = np.cumsum(reduction.fixed < 0) - 1
        # What is left of each variable in the reduced model, and the states that this is of the original one.
        kept = [int(where[v]) for v in numbers if reduction.fixed[v] < 0]
        axes = []
        for v in numbers:
            if reduction.fixed[v] >= 0:
                axes.append(reduction.fixed[[v]])
                continue
            first, end = small.unary_offsets[where[v] : where[v] + 2]
            axes.append(reduction.unary_positions[first:end] - self.model.unary_offsets[v])
        inner = _joint_table(small, kept) if kept else np.ones(1)
        table = np.zeros(shape)
        table[np.ix_(*axes)] = inner.reshape([len(states) for states in axes])
        return Estimate(table, np.zeros(shape))

    def _configurations(self) -> NDArray[Any]:
        """Independent exact configurations (draws, 1, n) of the original model."""
        from fastmix.exact.draw_exact import draw_exact  # which takes its plans from here

        reduction = self.reduction or reduce_model(self.model)
        draws = draw_exact(reduction.model, num_draws=EXPECTATION_DRAWS, seed=0)
        return reduction.expand_states(draws.states)[:, None, :]


def _joint_table(model: MarkovRandomField, variables: list[int]) -> FloatArray:
    """The joint distribution of some variables, an axis for each: P(all but the last) times P(last | the others)."""
    result = np.zeros(model.num_states[variables])
    *given, last = variables
    log_z = infer_exact(model).log_z or 0.0
    for states in product(*(range(int(model.num_states[v])) for v in given)):
        try:
            part = infer_exact(model, evidence=dict(zip(given, states, strict=True)))
        except (ImpossibleModelError, ImpossibleEvidenceError):  # probability zero
            continue
        result[states] = np.exp((part.log_z or 0.0) - log_z) * part.marginal(last)
    return result


def infer_exact(
    model: MarkovRandomField, *, evidence: Evidence | None = None, memory_limit: float | None = None
) -> ExactResult:
    """Exact node marginals, edge marginals and log Z.

    Parameters
    ----------
    model : MarkovRandomField
    evidence : mapping, optional
        Observed states by variable, numbers or names.
    memory_limit : float, optional
        Bytes; half of the memory that is free by default.

    Returns
    -------
    ExactResult
        ``stats`` holds the treewidth, the bytes, the arithmetic used and the seconds.

    Notes
    -----
    Time and memory grow with the number of entries of the largest clique, exponentially in the treewidth: about
    0.1 s for a 16x16 grid of binary variables, 16 times that for 20x20. Interchangeable variables are counted together
    when the plain tree does not fit (see :mod:`fastmix.exact.twins`), and where that is not enough some variables are
    set to each of their states in turn (see :mod:`fastmix.exact.conditioning`).
    """
    result = plan_exact(model, evidence=evidence, memory_limit=memory_limit).run()
    origin = provenance(model, evidence=plain_evidence(evidence), memory_limit=memory_limit)
    return replace(result, provenance=origin)


@dataclass(frozen=True, eq=False)
class ExactPlan:
    """Exact inference ready to run, with its cost known."""

    model: MarkovRandomField
    reduction: Reduction  # what evidence and forbidden states leave of it
    twins: TwinReduction | None  # its interchangeable variables if they had to be counted together
    elimination: ModelElimination | ConditionedElimination
    clock: Clock  # since planning began

    @property
    def seconds(self) -> float:
        """Estimate of the time that :meth:`run` takes, on the safe side by a factor of about two."""
        return self.elimination.seconds

    def run(self, clock: Clock = NO_LIMIT, *, edge_marginals: bool = True) -> ExactResult:
        """The answer, without provenance; a :class:`ResourceError` when the clock runs out before."""
        elimination = self.elimination
        twins = self.twins
        reduction = self.reduction
        try:
            answer = elimination.calibrate(clock, edge_marginals=edge_marginals)
        except OutOfTimeError:
            raise too_late(clock, elimination) from None
        nodes = answer.marginals
        edges = answer.factor_marginals
        if twins is not None:
            nodes, edges = twins.expand_marginals(nodes, edges)
        every_edge = reduction.expand_edge_marginals(nodes, edges) if edge_marginals else None
        node_marginals = reduction.expand_node_marginals(nodes)
        stats = {
            "treewidth": elimination.treewidth,
            "required_bytes": elimination.required_bytes,
            "table_entries": elimination.total_entries,
            "arithmetic": answer.arithmetic,
            "num_counting_variables": 0 if twins is None else sum(len(g) > 1 for g in twins.groups),
            "stopped_by": "done",
            **self.clock.stats(),
        }
        if isinstance(elimination, ConditionedElimination):
            stats["num_cases"] = elimination.num_cases
        return ExactResult(
            model=self.model,
            reduction=reduction,
            method="exact",
            status=Status.OK,
            node_marginals=node_marginals,
            edge_marginals=every_edge,
            log_z=answer.log_z,
            log_z_kind="exact",
            stats=stats,
        )


def plan_exact(
    model: MarkovRandomField,
    *,
    evidence: Evidence | None = None,
    memory_limit: float | None = None,
    clock: Clock = NO_LIMIT,
    reduced: bool = False,
) -> ExactPlan:
    """What exact inference would do and cost, before any table is allocated.

    Parameters and errors as for :func:`infer_exact`; also a :class:`ResourceError` where the time on the clock would
    not do for as many variables, or ends before the plan is made. ``reduced`` says that forbidden and single states
    have been taken out already.
    """
    check_model(model)
    if memory_limit is not None:
        memory_limit = check_positive("memory_limit", memory_limit, "number of bytes")
    begun = Clock()
    if reduced and (kept := kept_elimination(model, memory_limit)) is not None:
        return ExactPlan(model, Reduction.none(model), None, kept, begun)
    limit = available_memory() / 2 if memory_limit is None else memory_limit
    try:
        reduction = Reduction.none(model) if reduced else reduce_model(model, evidence, fold_single=True, clock=clock)
        try:
            elimination = plan_model_elimination(reduction.model, memory_limit=limit, clock=clock)
            return ExactPlan(model, reduction, None, elimination, begun)
        except ResourceError as refusal:
            return _plan_otherwise(model, reduction, refusal, limit, clock, begun)
    except OutOfTimeError:
        raise too_late(clock) from None


def _plan_otherwise(
    model: MarkovRandomField, reduction: Reduction, refusal: ResourceError, limit: float, clock: Clock, begun: Clock
) -> ExactPlan:
    """The plan for a model whose tables do not fit the limit: twins counted together, or else case by case."""
    twins = count_twins(reduction.model, clock)
    if twins is not None:
        try:
            counted = plan_model_elimination(twins.model, memory_limit=limit, clock=clock)
            return ExactPlan(model, reduction, twins, counted, begun)
        except ResourceError as error:
            refusal = error
    if refusal.required_bytes is None or refusal.required_bytes > MAX_CASES * limit:
        raise refusal
    try:
        by_cases = plan_conditioned(reduction.model, memory_limit=limit, clock=clock)
    except ResourceError:
        raise refusal from None
    return ExactPlan(model, reduction, None, by_cases, begun)


def too_late(clock: Clock, elimination: ModelElimination | ConditionedElimination | None = None) -> ResourceError:
    """The error for exact inference that cannot end within the limit of a clock."""
    seconds = max(0.0 if elimination is None else elimination.seconds, clock.limit or 0.0)
    return ResourceError(
        f"exact inference takes about {seconds:.2g} s or more, over the time limit of "
        f"{clock.limit:.3g} s; give it more time, or use an approximate method",
        required_bytes=None if elimination is None else elimination.required_bytes,
        limit_bytes=None if elimination is None else elimination.required_bytes,
        treewidth=None if elimination is None else elimination.treewidth,
    )
