"""What runs in the process of Ganak: weighted counts, scaled so that they fit a floating-point number."""

from __future__ import annotations

import math
from typing import NamedTuple

from fastmix._engine import Speaker

__all__ = ["CountRequest", "count", "log_count"]

#: Logs of counts that are numbers with all their digits: the range of float64, and some room.
_LOG_LEAST = -660.0
_LOG_MOST = 700.0
#: Log of the weight of one literal that scales a count, at most.
_LOG_SCALE = 500.0


class CountRequest(NamedTuple):
    """A formula, and what is to be counted.

    Attributes
    ----------
    num_variables, clauses, log_weights, log_range
        As of :class:`fastmix.inference.weighted_formula.WeightedFormula`.
    literals : list of int
        Those whose share of the count is wanted, one after another.
    """

    num_variables: int
    clauses: list[list[int]]
    log_weights: dict[int, float]
    log_range: tuple[float, float]
    literals: list[int]


def count(request: CountRequest, say: Speaker) -> None:
    """Say the log of the weighted count, -inf for zero, and then the share of it in which each literal holds."""
    total = _log_total(request)
    say(total)
    if total == -math.inf:
        return
    for literal in request.literals:
        log_share = log_count(request, -total, [literal])
        say(min(1.0, math.exp(min(0.0, log_share))))


def _log_total(request: CountRequest) -> float:
    """The log of the weighted count, by scales that bring it into the range of float64.

    A count that is too large or too small for its scale halves the range of logs that are possible at least.
    """
    least, most = request.log_range
    least -= 1.0
    most += 1.0
    shift = min(max(0.0, _LOG_LEAST - least), max(0.0, -0.5 * (least + most)))
    if most > _LOG_MOST:
        shift = -0.5 * (least + most)
    while least <= most:
        found = log_count(request, shift, [])
        if found == math.inf:
            least = _LOG_MOST - shift
        elif found == -math.inf:
            most = _LOG_LEAST - shift
        else:
            return found - shift
        shift = -0.5 * (least + most)
    return -math.inf


def log_count(request: CountRequest, shift: float, holding: list[int]) -> float:
    """The log of a weighted count times exp(shift), where some literals hold; infinite where it is out of range."""
    from pyganak import WeightedCounter

    counter = WeightedCounter()
    counter.new_vars(request.num_variables)
    counter.add_clauses(request.clauses)
    for literal, weight in request.log_weights.items():
        counter.set_lit_weight(literal, math.exp(weight))
    for literal in holding:
        counter.add_clause([literal])
    # Literals that hold in any case, whose weights are the scale.
    pieces = math.ceil(abs(shift) / _LOG_SCALE)
    for piece in range(pieces):
        number = request.num_variables + 1 + piece
        counter.add_clause([number])
        counter.set_lit_weight(number, math.exp(shift / pieces))
        counter.set_lit_weight(-number, 1.0)
    found = float(counter.count())
    if not found > math.exp(_LOG_LEAST):
        return -math.inf
    return math.inf if found > math.exp(_LOG_MOST) else math.log(found)
