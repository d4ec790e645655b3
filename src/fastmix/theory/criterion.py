"""The interface of a criterion for random updates: what it is asked, and the constant that it answers with.

A criterion finds a constant C with ``Ent(f) <= C sum_i E Ent_i(f)`` for every positive function f of the model (form
``entropy``), or the same with variances only (form ``variance``). One update of a variable chosen at random then
contracts the relative entropy, or the variance of the density, by ``1 - 1 / (C n)`` from any start. See docs/theory.md.

To add one, write an object with the members of :class:`Criterion` in a file of its own, and a line in
:mod:`fastmix.theory.criteria`; from outside the package, call :func:`fastmix.theory.criteria.register_criterion`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from fastmix._clock import NO_LIMIT, Clock
from fastmix.model import MarkovRandomField

__all__ = ["Criterion", "CriterionConstant"]


@dataclass(frozen=True)
class CriterionConstant:
    """The constant C that a criterion found for a model, with its reason in words."""

    log_constant: float  # logarithm of C, infinite if there is none
    form: str = "entropy"  # or "variance"
    width: float | None = None  # upper bound on the width that C rests on, if it does
    reason: str = ""  # why C is what it is, or why there is none


class Criterion(Protocol):
    """A way to find a constant for random updates."""

    @property
    def name(self) -> str:
        """The word by which ``certify(criterion=...)`` knows the criterion."""

    def unfit(self, model: MarkovRandomField) -> str | None:
        """The reason why the criterion does not apply to a model; None if it does."""

    def find(self, model: MarkovRandomField, *, clock: Clock = NO_LIMIT) -> CriterionConstant:
        """The constant of a model to which the criterion applies, without states that a unary forbids."""
