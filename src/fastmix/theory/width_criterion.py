"""The criterion ``width``: with couplings of width w below 1, ``C = 1 / (1 - w)`` for entropies.

It suits dense models of mixed signs, and takes variables of any number of states. The width itself is computed in
:mod:`fastmix.theory.width`.
"""

from __future__ import annotations

import math
from typing import ClassVar

from fastmix._clock import NO_LIMIT, Clock
from fastmix.model import MarkovRandomField
from fastmix.theory.criterion import CriterionConstant
from fastmix.theory.tuning import MAX_WIDTH_STATES

__all__ = ["WidthCriterion", "unfit_for_width"]


class WidthCriterion:
    """The criterion that bounds C by the width of all couplings."""

    name: ClassVar[str] = "width"

    def unfit(self, model: MarkovRandomField) -> str | None:
        """The reason why the width of a model is not defined or too large to compute; None if there is none."""
        return unfit_for_width(model)

    def find(self, model: MarkovRandomField, *, clock: Clock = NO_LIMIT) -> CriterionConstant:
        """The constant by the width, infinite where the width is not below 1 or there is no time to compute it."""
        from fastmix.theory.width import model_width, width_seconds

        if width_seconds(model) > clock.left():
            return CriterionConstant(math.inf, width=math.inf, reason="there was no time to compute the width")
        width = model_width(model, clock=clock)
        if width.value < 1.0:
            reason = f"the width is {width.value:.4g} (proved by {width.proof})"
            return CriterionConstant(-math.log1p(-width.value) + 1e-14, width=width.value, reason=reason)
        return CriterionConstant(math.inf, width=width.value, reason=f"the width is {width.value:.4g}, not below 1")


def unfit_for_width(model: MarkovRandomField) -> str | None:
    """The reason why the width of a model is not defined or too large to compute; None if there is none."""
    if model.num_factors:
        return f"the model has factors over three or more variables ({model.num_factors} of them)"
    if model.tables_forbid:
        return "a table forbids pairs of states (-inf)"
    most_states = int(model.num_states.max(initial=0))
    if most_states > MAX_WIDTH_STATES:
        return f"a variable has {most_states:,} states, more than the {MAX_WIDTH_STATES:,} whose width is computed"
    return None
