"""Criteria past Dobrushin's: constants C by which random updates contract entropy or variance.

A criterion finds a constant C with ``Ent(f) <= C sum_i E Ent_i(f)`` for every positive function f of the model (form
``entropy``), or the same with variances only (form ``variance``). One update of a variable chosen at random then
contracts the relative entropy, or the variance of the density, by ``1 - 1 / (C n)`` from any start. The criteria are
small objects in a registry, :data:`CRITERIA`; :func:`register_criterion` adds another.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fastmix._clock import NO_LIMIT, Clock
from fastmix.model import MarkovRandomField

__all__ = ["CRITERIA", "Criterion", "Finding", "bias_after_updates", "num_random_updates", "register_criterion"]

_MARGIN_STEPS = 14  # of a bisection between powers of two


@dataclass(frozen=True)
class Finding:
    """What a criterion found."""

    log_constant: float  # logarithm of C, infinite if there is none
    form: str = "entropy"  # or "variance"
    width: float | None = None  # the width behind it, if there is one
    reason: str = ""  # the finding in words, or what failed


class Criterion(Protocol):
    """A way to find a constant for random updates."""

    @property
    def name(self) -> str:
        """The word by which ``certify(criterion=...)`` knows it."""

    def unfit(self, model: MarkovRandomField) -> str | None:
        """Why the criterion does not apply to a model; None if it does."""

    def find(self, model: MarkovRandomField, *, clock: Clock = NO_LIMIT) -> Finding:
        """The constant of a model to which it applies, without states that a unary forbids."""


def num_random_updates(model: MarkovRandomField, finding: Finding, accuracy: float) -> float:
    """Random updates after which the joint distribution is within the accuracy from any start; may be infinite.

    With ``H >= ln(1 / p_min)``: ``C n ln(H / (2 eps^2))`` by Pinsker's inequality for the form ``entropy``, ``C n (H
    / 2 + ln(1 / (2 eps)))`` for both forms. H adds up ``ln L_i + range(u_i)`` and the ranges of all tables.
    """
    n, largest = model.num_variables, _log_least(model)
    factor = 0.5 * largest + math.log(1.0 / (2.0 * accuracy))
    if finding.form == "entropy":
        factor = min(factor, math.log(largest / (2.0 * accuracy**2)) if largest > 0.0 else 0.0)
    if finding.log_constant > 600.0:
        return math.inf
    return float(math.ceil(max(0.0, math.exp(finding.log_constant) * n * factor * (1.0 + 1e-12 + 1e-15 * n))))


def bias_after_updates(model: MarkovRandomField, num_updates: float, *, clock: Clock = NO_LIMIT) -> float:
    """How far the joint distribution can still be from a model's after random updates from any start, at most 1.

    The smallest of the distances by all criteria that apply: what :func:`num_random_updates` says, solved for the
    accuracy. States that a unary forbids must have been dropped.
    """
    n, largest = model.num_variables, _log_least(model)
    if not n or largest == 0.0:
        return 0.0
    best = 1.0
    for criterion in CRITERIA.values():
        if criterion.unfit(model) is not None:
            continue
        finding = criterion.find(model, clock=clock)
        if finding.log_constant > 600.0:
            continue
        rate = num_updates / (math.exp(finding.log_constant) * n * (1.0 + 1e-12 + 1e-15 * n))
        logs = [0.5 * largest - rate - math.log(2.0)]
        if finding.form == "entropy":
            logs.append(0.5 * (math.log(0.5 * largest) - rate))
        best = min(best, math.exp(min(0.0, *logs)) * (1.0 + 1e-12))
    return min(1.0, best)


def _log_least(model: MarkovRandomField) -> float:
    """``ln(1 / p_min)`` of what no unary forbids, from above."""
    allowed = model.log_unary > -np.inf  # chains start from states that no unary forbids
    high = np.where(allowed, model.log_unary, -np.inf)
    low = np.where(allowed, model.log_unary, np.inf)
    starts = model.unary_offsets[:-1]
    largest = float(np.log(model.num_states).sum())
    if model.num_variables:
        largest += float((np.maximum.reduceat(high, starts) - np.minimum.reduceat(low, starts)).sum())
    terms = (model.log_pairwise, model.pairwise_offsets), (model.log_factors, model.factor_offsets)
    for tables, starts in ((values, offsets[:-1]) for values, offsets in terms if len(values)):
        largest += float((np.maximum.reduceat(tables, starts) - np.minimum.reduceat(tables, starts)).sum())
    return largest


# -- the registry ---------------------------------------------------------------------------------------------------


CRITERIA: dict[str, Criterion] = {}


def register_criterion(criterion: Criterion) -> None:
    """Add a criterion under its name: :func:`fastmix.certify` and the command line know it from now on.

    Raises
    ------
    ValueError
        If the name is taken.
    """
    if criterion.name in (*CRITERIA, "auto", "dobrushin"):
        raise ValueError(f"criterion {criterion.name!r} is there already; the names are {', '.join(CRITERIA)}")
    CRITERIA[criterion.name] = criterion


class _Width:
    name = "width"

    def unfit(self, model: MarkovRandomField) -> str | None:
        if model.num_factors:
            return f"the model has factors over three or more variables ({model.num_factors} of them)"
        if model.log_pairwise.size and model.log_pairwise.min() == -np.inf:
            return "a table forbids pairs of states (-inf)"
        return None

    def find(self, model: MarkovRandomField, *, clock: Clock = NO_LIMIT) -> Finding:
        from fastmix.theory.width import model_width

        width = model_width(model, clock=clock)
        if width.value < 1.0:
            reason = f"the width is {width.value:.4g} (proved by {width.proof})"
            return Finding(-math.log1p(-width.value) + 1e-14, width=width.value, reason=reason)
        return Finding(math.inf, width=width.value, reason=f"the width is {width.value:.4g}, not below 1")


class _Path(_Width):
    name = "path"

    def unfit(self, model: MarkovRandomField) -> str | None:
        most = int(model.num_states.max(initial=0))
        if most > 2 and not model.num_factors:
            name = model.names_of_variables()[int(model.num_states.argmax())]
            return f"the path is for binary variables, and variable {name} has {most} states"
        return super().unfit(model)

    def find(self, model: MarkovRandomField, *, clock: Clock = NO_LIMIT) -> Finding:
        from fastmix.theory.paths import path_constant
        from fastmix.theory.width import coupling_matrix, model_width

        width = model_width(model, clock=clock.part(0.5)).value
        matrix, error = coupling_matrix(model)
        matrix.data = np.abs(matrix.data) + error
        log_constant, last = path_constant(matrix, width, clock=clock)
        reason = f"the largest eigenvalue of the covariance is at most {last:.4g}, the width {width:.4g}"
        if log_constant == math.inf:
            reason = "walks that do not turn back have an infinite sum: the couplings are beyond the tree's threshold"
        return Finding(log_constant, "entropy", width, reason)


class _Split(_Width):
    name = "split"

    def find(self, model: MarkovRandomField, *, clock: Clock = NO_LIMIT) -> Finding:
        from fastmix.theory.splits import split_model

        width, norm = split_model(model, clock=clock)
        total = (width + norm) * (1.0 + 1e-15)
        words = f"the width {width:.4g} of one part and the norm {norm:.4g} of the other"
        if total < 1.0:
            return Finding(-math.log1p(-total) + 1e-14, "variance", width, words)
        return Finding(math.inf, "variance", width, f"{words} add up to {total:.4g}, not below 1")


for _criterion in (_Width(), _Path(), _Split()):
    register_criterion(_criterion)


# -- how far the couplings could grow -------------------------------------------------------------------------------


def scale_couplings(model: MarkovRandomField, factor: float) -> MarkovRandomField:
    """The model with all tables multiplied by a factor."""
    return model.replace(log_pairwise=factor * model.log_pairwise, log_factors=factor * model.log_factors)


def largest_factor(certifies: Callable[[float], bool], clock: Clock = NO_LIMIT) -> float:
    """The largest factor found for which ``certifies`` is true, to a few parts in ten thousand; 0 if none is found."""
    low, high = 0.0, math.inf
    factor = 1.0
    while 2.0**-20 < factor < 2.0**20 and not clock.past():
        if certifies(factor):
            low, factor = factor, 2.0 * factor
        else:
            high, factor = factor, 0.5 * factor
        if low and high < math.inf:
            break
    if not low or high == math.inf:
        return low if high < math.inf or clock.past() else math.inf
    for _ in range(_MARGIN_STEPS):
        if clock.past():
            break
        middle = 0.5 * (low + high)
        low, high = (middle, high) if certifies(middle) else (low, middle)
    return low
