"""Exact inference for users: evidence, forbidden states, twins and the junction tree put together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._checks import check_count, check_positive, choose_seed
from fastmix._clock import NO_LIMIT, Clock, OutOfTimeError, Report, listening
from fastmix._memory import available_memory, check_memory
from fastmix.errors import ModelError, ResourceError
from fastmix.estimates import Estimate
from fastmix.exact.junction_tree import JunctionTree, kept_tree, plan_junction_tree
from fastmix.exact.twins import TwinReduction, count_twins
from fastmix.model import Evidence, MarkovRandomField, check_model
from fastmix.model.reduce import Reduction, reduce_model
from fastmix.results import DrawResult, InferenceResult, Status, plain_evidence, provenance

__all__ = ["ExactPlan", "ExactResult", "draw_exact", "infer_exact", "plan_exact", "too_late"]

_DRAW_BYTES = 48  # a state of a draw: as drawn, and five 8-byte arrays in mapping it to the original


_EXPECTATION_DRAWS = 10_000  # exact configurations that expectations of a user's function rest on
_MOST_JOINT = 1 << 20  # entries of a joint table


@dataclass(frozen=True, eq=False, repr=False)
class ExactResult(InferenceResult):
    """Exact marginals and log Z; :meth:`joint` is exact, :meth:`expect` rests on 10,000 independent exact draws."""

    reduction: Reduction | None = None

    def _expansion(self, reduction: Reduction) -> dict[str, Any]:
        return {**super()._expansion(reduction), "reduction": reduction}

    def _joint(self, numbers: list[int]) -> Estimate:
        reduction = self.reduction or reduce_model(self.model)
        shape = self.model.num_states[numbers].tolist()
        if np.prod(shape, dtype=float) > _MOST_JOINT:
            raise ResourceError(f"joint needs a table of at most {_MOST_JOINT} entries, got {shape}: ask for fewer")
        small, where = reduction.model, np.cumsum(reduction.fixed < 0) - 1
        # What is left of each variable in the reduced model, and the states that this is of the original one.
        kept = [int(where[v]) for v in numbers if reduction.fixed[v] < 0]
        axes = []
        for v in numbers:
            first, last = small.unary_offsets[where[v] : where[v] + 2] if reduction.fixed[v] < 0 else (0, 0)
            states = reduction.unary_positions[first:last] - self.model.unary_offsets[v]
            axes.append(states if reduction.fixed[v] < 0 else reduction.fixed[[v]])
        inner = np.ones(1)
        if kept:
            inner = np.zeros(small.num_states[kept])
            *given, last = kept
            whole = infer_exact(small).log_z or 0.0
            for states in product(*(range(int(small.num_states[v])) for v in given)):
                try:
                    part = infer_exact(small, evidence=dict(zip(given, states, strict=True)))
                except ModelError:  # probability zero
                    continue
                inner[states] = np.exp((part.log_z or 0.0) - whole) * part.marginal(last)
        table = np.zeros(shape)
        table[np.ix_(*axes)] = inner.reshape([len(states) for states in axes])
        return Estimate(table, np.zeros(shape))

    def _configurations(self) -> NDArray[Any]:
        reduction = self.reduction or reduce_model(self.model)
        draws = draw_exact(reduction.model, num_draws=_EXPECTATION_DRAWS, seed=0)
        return reduction.expand_states(draws.states)[:, None, :]


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
    when the plain tree does not fit (see :mod:`fastmix.exact.twins`).
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
    tree: JunctionTree
    clock: Clock  # since planning began

    @property
    def seconds(self) -> float:
        """Estimate of the time that :meth:`run` takes, on the safe side by a factor of about two."""
        return self.tree.seconds

    def run(self, clock: Clock = NO_LIMIT, *, edge_marginals: bool = True) -> ExactResult:
        """The answer, without provenance; a :class:`ResourceError` when the clock runs out before."""
        tree, twins, reduction = self.tree, self.twins, self.reduction
        try:
            answer = tree.calibrate(clock, edge_marginals=edge_marginals)
        except OutOfTimeError:
            raise too_late(clock, tree) from None
        nodes, edges = answer.marginals, answer.factor_marginals
        if twins is not None:
            nodes, edges = twins.expand_marginals(nodes, edges)
        every_edge = reduction.expand_edge_marginals(nodes, edges) if edge_marginals else None
        node_marginals = reduction.expand_node_marginals(nodes)
        stats = {
            "treewidth": tree.treewidth,
            "required_bytes": tree.required_bytes,
            "table_entries": tree.total_entries,
            "arithmetic": answer.arithmetic,
            "counting_variables": 0 if twins is None else sum(len(g) > 1 for g in twins.groups),
            "stopped_by": "done",
            **self.clock.stats(),
        }
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
    if reduced and (kept := kept_tree(model, memory_limit)) is not None:
        return ExactPlan(model, Reduction.none(model), None, kept, begun)
    limit = available_memory() / 2 if memory_limit is None else memory_limit
    try:
        reduction = Reduction.none(model) if reduced else reduce_model(model, evidence, fold_single=True, clock=clock)
        try:
            tree = plan_junction_tree(reduction.model, memory_limit=limit, clock=clock)
            return ExactPlan(model, reduction, None, tree, begun)
        except ResourceError:
            twins = count_twins(reduction.model, clock)
            if twins is None:
                raise
            tree = plan_junction_tree(twins.model, memory_limit=limit, clock=clock)
            return ExactPlan(model, reduction, twins, tree, begun)
    except OutOfTimeError:
        raise too_late(clock) from None


def too_late(clock: Clock, tree: JunctionTree | None = None) -> ResourceError:
    """The error for exact inference that cannot end within the limit of a clock."""
    seconds = max(0.0 if tree is None else tree.seconds, clock.limit or 0.0)
    return ResourceError(
        f"exact inference takes about {seconds:.2g} s or more, over the time limit of "
        f"{clock.limit:.3g} s; give it more time, or use an approximate method",
        required_bytes=None if tree is None else tree.required_bytes,
        limit_bytes=None if tree is None else tree.required_bytes,
        treewidth=None if tree is None else tree.treewidth,
    )


def draw_exact(
    model: MarkovRandomField,
    *,
    num_draws: int,
    evidence: Evidence | None = None,
    seed: int | None = None,
    memory_limit: float | None = None,
    time_limit: float | None = None,
    progress: Report = "auto",
) -> DrawResult:
    """Independent exact configurations, ``states`` (num_draws, n), of all variables also with evidence.

    Parameters and errors as for :func:`infer_exact`; the seed is in the provenance, and makes the draws repeatable.
    ``time_limit`` (seconds) and ``progress`` as for :func:`fastmix.infer`, with a :class:`ResourceError` where the time
    would not do, or did not.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1)], coupling=20.0)
    >>> draws = draw_exact(model, num_draws=5, seed=1)
    >>> bool((draws[:, 0] == draws[:, 1]).all())
    True
    """
    check_model(model)
    num_draws = check_count("num_draws", num_draws, least=0)
    seed = choose_seed(seed)
    required = float(num_draws) * _DRAW_BYTES * max(1, model.num_variables)
    check_memory(required, f"num_draws {num_draws}", "draw fewer at a time, each time with another seed")
    rng = np.random.default_rng(seed)
    with listening(progress, "exact draws") as listener:
        clock = Clock(time_limit, listener=listener, what="exact draws")
        plan = plan_exact(model, evidence=evidence, memory_limit=memory_limit, clock=clock)
        try:
            if plan.seconds > clock.left():
                raise OutOfTimeError
            draws = plan.tree.draw(num_draws, rng, clock)
        except OutOfTimeError:
            raise too_late(clock, plan.tree) from None
    if plan.twins is not None:
        draws = plan.twins.expand_draws(draws, rng)
    states = plan.reduction.expand_states(draws)
    given = plain_evidence(evidence)
    return DrawResult.of(
        model,
        states,
        method="exact",
        stats={
            "guarantee": "independent exact draws",
            "treewidth": plan.tree.treewidth,
            "stopped_by": "done",
            **clock.stats(),
        },
        provenance=provenance(
            model, seed=seed, num_draws=num_draws, evidence=given, memory_limit=memory_limit, time_limit=time_limit
        ),
    )
