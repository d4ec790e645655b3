"""The criteria for random updates: their registry, and what follows from the constants that they find.

The members of a criterion are described in :mod:`fastmix.theory.criterion`. Those of the package are objects in files
of their own, listed in :data:`CRITERIA`; :func:`register_criterion` adds another.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from fastmix._checks import describe
from fastmix._clock import NO_LIMIT, Clock
from fastmix._registry import Registry
from fastmix.model import MarkovRandomField
from fastmix.theory.criterion import Criterion, CriterionConstant
from fastmix.theory.path_criterion import PathCriterion
from fastmix.theory.split_criterion import SplitCriterion
from fastmix.theory.tuning import MARGIN_BISECTIONS
from fastmix.theory.width_criterion import WidthCriterion

__all__ = [
    "CRITERIA", "bias_after_updates", "largest_factor", "num_random_updates", "register_criterion", "scale_couplings",
]  # fmt: skip

C = TypeVar("C", bound=Criterion)

# -- the registry ---------------------------------------------------------------------------------------------------

CRITERIA: Registry[Criterion] = Registry("criterion", "fastmix.criteria", reserved=("auto", "dobrushin"))


def register_criterion(criterion: C) -> C:
    """Add a criterion under its name: :func:`fastmix.certify` and the command line know it from now on.

    Parameters
    ----------
    criterion : Criterion
        An object with the members that :class:`fastmix.theory.criterion.Criterion` describes; it comes back.

    Raises
    ------
    TypeError
        If it has no name or no functions ``unfit`` and ``find``.
    ValueError
        If another criterion has the name.
    """
    if not all(callable(getattr(criterion, member, None)) for member in ("unfit", "find")):
        raise TypeError(f"criterion must have a name and functions unfit and find, got {describe(criterion)}")
    CRITERIA.add(criterion)
    return criterion


register_criterion(WidthCriterion())
register_criterion(PathCriterion())
register_criterion(SplitCriterion())

# -- what follows from a constant -----------------------------------------------------------------------------------


def num_random_updates(model: MarkovRandomField, found: CriterionConstant, accuracy: float) -> float:
    """Random updates after which the joint distribution is within the accuracy from any start; may be infinite.

    With ``H >= ln(1 / p_min)``: ``C n ln(H / (2 eps^2))`` by Pinsker's inequality for the form ``entropy``, ``C n (H
    / 2 + ln(1 / (2 eps)))`` for both forms. H adds up ``ln L_i + range(u_i)`` and the ranges of all tables.
    """
    n = model.num_variables
    largest = _log_least_probability(model)
    factor = 0.5 * largest + math.log(1.0 / (2.0 * accuracy))
    if found.form == "entropy":
        factor = min(factor, math.log(largest / (2.0 * accuracy**2)) if largest > 0.0 else 0.0)
    if found.log_constant > 600.0:
        return math.inf
    return float(math.ceil(max(0.0, math.exp(found.log_constant) * n * factor * (1.0 + 1e-12 + 1e-15 * n))))


def bias_after_updates(model: MarkovRandomField, num_updates: float, *, clock: Clock = NO_LIMIT) -> float:
    """A bound, at most 1, on the bias of the joint distribution after random updates from any start.

    It is the smallest of the bounds by all criteria that apply: the formula of :func:`num_random_updates`, solved for
    the accuracy. States that a unary forbids must have been dropped.
    """
    n = model.num_variables
    largest = _log_least_probability(model)
    if not n or largest == 0.0:
        return 0.0
    best = 1.0
    for criterion in CRITERIA.values():
        if criterion.unfit(model) is not None:
            continue
        found = criterion.find(model, clock=clock)
        if found.log_constant > 600.0:
            continue
        rate = num_updates / (math.exp(found.log_constant) * n * (1.0 + 1e-12 + 1e-15 * n))
        logs = [0.5 * largest - rate - math.log(2.0)]
        if found.form == "entropy":
            logs.append(0.5 * (math.log(0.5 * largest) - rate))
        best = min(best, math.exp(min(0.0, *logs)) * (1.0 + 1e-12))
    return min(1.0, best)


def _log_least_probability(model: MarkovRandomField) -> float:
    """An upper bound on ``ln(1 / p_min)``, p_min the least probability of a configuration that no unary forbids."""
    allowed = model.log_unary > -np.inf  # chains start from states that no unary forbids
    high = np.where(allowed, model.log_unary, -np.inf)
    low = np.where(allowed, model.log_unary, np.inf)
    starts = model.unary_offsets[:-1]
    largest = float(np.log(model.num_states).sum())
    if model.num_variables:
        largest += float((np.maximum.reduceat(high, starts) - np.minimum.reduceat(low, starts)).sum())
    if model.num_edges:
        largest += float((model.largest_of_tables() - model.least_of_tables()).sum())
    if model.num_factors:
        starts = model.factor_offsets[:-1]
        factors = model.log_factors
        largest += float((np.maximum.reduceat(factors, starts) - np.minimum.reduceat(factors, starts)).sum())
    return largest


# -- how far the couplings could grow -------------------------------------------------------------------------------


def scale_couplings(model: MarkovRandomField, factor: float) -> MarkovRandomField:
    """The model with all tables multiplied by a factor."""
    factors = factor * model.log_factors
    if model.shared_tables is not None:
        return model.replace(shared_tables=model.shared_tables.scaled(factor))
    return model.replace(log_pairwise=factor * model.log_pairwise, log_factors=factors)


def largest_factor(certifies: Callable[[float], bool], clock: Clock = NO_LIMIT) -> float:
    """The largest factor found for which ``certifies`` is true, to a few parts in ten thousand; 0 if none is found.

    1. Double the factor, or halve it, until one is certified and its neighbor is not.
    2. Bisect between the two.
    """
    # 1. A power of two below the limit, and one above.
    low = 0.0
    high = math.inf
    factor = 1.0
    while 2.0**-20 < factor < 2.0**20 and not clock.past():
        if certifies(factor):
            low = factor
            factor = 2.0 * factor
        else:
            high = factor
            factor = 0.5 * factor
        if low and high < math.inf:
            break
    if high == math.inf:
        return low if clock.past() else math.inf
    if not low:
        return low

    # 2. Bisection.
    for _ in range(MARGIN_BISECTIONS):
        if clock.past():
            break
        middle = 0.5 * (low + high)
        if certifies(middle):
            low = middle
        else:
            high = middle
    return low
