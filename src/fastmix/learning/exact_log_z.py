"""Log Z without chains: exact, by listing all configurations or a junction tree, or a lower bound."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastmix._clock import Clock
from fastmix.errors import ResourceError
from fastmix.exact.solver import plan_exact
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.dataset import Dataset
from fastmix.learning.independent import independent_parameters, uniform_parameters
from fastmix.learning.model_moments import Enumerated, is_enumerable
from fastmix.learning.tuning import EXACT_TIME_SHARE, MAX_EXACT_SECONDS
from fastmix.model import MarkovRandomField
from fastmix.results import Status

__all__ = ["LogZ", "exact_log_z", "lower_bound", "obstacle", "upper_bound", "without_idle_tables"]


@dataclass(frozen=True)
class LogZ:
    """Log Z, what is known of it (as in results), its standard error, and how it was found."""

    log_z: float
    kind: str = "exact"
    std_error: float = 0.0
    method: str = "enumeration"
    bracket: tuple[float, float] | None = None
    status: Status = Status.OK
    place: str = "cpu"  # where chains ran
    stats: Mapping[str, Any] = field(default_factory=dict)


def obstacle(model: MarkovRandomField) -> str | None:
    """What a model has that learnt ones have not."""
    if model.num_factors:
        return "larger factors"
    return "forbidden states or pairs" if model.has_forbidden else None


def exact_log_z(model: MarkovRandomField, clock: Clock, *, asked: bool) -> LogZ | None:
    """Exact log Z; None where it takes too much memory or time, unless it was asked for."""
    if is_enumerable(model.num_states) and not obstacle(model):
        coordinates = Coordinates(model.structure)
        v, constant = coordinates.from_parameters(model.parameters)
        return LogZ(Enumerated(coordinates).evaluate(v)[0] + constant + model.log_constant)
    try:
        plan = plan_exact(model, clock=clock if asked else clock.part(EXACT_TIME_SHARE))
        if not asked and plan.seconds > min(MAX_EXACT_SECONDS, EXACT_TIME_SHARE * clock.left()):
            return None
        # Twice as much time as planned, if the estimate is wrong.
        answer = plan.run(clock if asked else clock.part(2.0 * EXACT_TIME_SHARE), edge_marginals=False)
    except ResourceError:
        if asked:
            raise
        return None
    log_z = -math.inf if answer.log_z is None else float(answer.log_z)
    return LogZ(log_z, "exact" if log_z > -math.inf else "zero", method="junction tree")


def without_idle_tables(model: MarkovRandomField) -> MarkovRandomField:
    """The same model without the tables that have the same number everywhere, which is added to the constant."""
    if model.num_factors or not model.num_edges:
        return model
    starts = model.pairwise_offsets[:-1]
    first = model.log_pairwise[starts]
    idle = (np.maximum.reduceat(model.log_pairwise, starts) == first) & np.isfinite(first)
    idle &= np.minimum.reduceat(model.log_pairwise, starts) == first
    if not idle.any():
        return model
    entries = np.repeat(~idle, np.diff(model.pairwise_offsets))
    constant = model.log_constant + math.fsum(first[idle].tolist())
    return MarkovRandomField(
        model.num_states, model.log_unary, model.edges[~idle], model.log_pairwise[entries], constant
    )


def lower_bound(model: MarkovRandomField, data: Dataset) -> LogZ:
    """A number that log Z is not below, by Gibbs and Bogoliubov: mean log-weight plus entropy of independent models.

    These are the uniform one and that of the data, in the time that it takes to read the parameters once.
    """
    found = []
    for theta in (uniform_parameters(model), independent_parameters(model, data)):
        logs = theta[: len(model.log_unary)]
        p = np.exp(logs)
        value = float(p @ (model.log_unary - logs))
        for rows, cols, edges in model.structure.table_shapes:
            i = model.unary_offsets[model.edges[edges, 0]][:, None]
            j = model.unary_offsets[model.edges[edges, 1]][:, None]
            entries = model.pairwise_offsets[edges][:, None] + np.arange(rows * cols)
            tables = model.log_pairwise[entries].reshape(-1, rows, cols)
            value += float(np.einsum("eab,ea,eb->", tables, p[i + np.arange(rows)], p[j + np.arange(cols)]))
        found.append(value + model.log_constant)
    return LogZ(
        max(found), "bound", math.inf, "lower bound", status=Status.TIME_LIMIT, stats={"stopped_by": "time_limit"}
    )


def upper_bound(model: MarkovRandomField) -> float:
    """A number that log Z is not above: every table by its largest entry, which leaves independent variables.

    In the time that it takes to read the parameters once.
    """
    starts = model.unary_offsets[:-1]
    fields = np.logaddexp.reduceat(model.log_unary, starts) if len(starts) else np.zeros(0)
    tables = np.maximum.reduceat(model.log_pairwise, model.pairwise_offsets[:-1]) if model.num_edges else np.zeros(0)
    bound = math.fsum([*fields.tolist(), *tables.tolist(), float(model.log_constant)])
    return bound + 1e-12 * (1.0 + float(np.abs(fields).sum() + np.abs(tables).sum()))  # for rounding
