"""What a bracket is: bounds on log Z and on every marginal, and how they came about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastmix._arrays import FloatArray
from fastmix.model import MarkovRandomField
from fastmix.results import InferenceResult, Status, as_plain

__all__ = ["BracketResult"]


@dataclass(frozen=True, eq=False)
class BracketResult:
    """Bounds on log Z and on the probability of every state.

    Attributes
    ----------
    model : MarkovRandomField
    log_z_lower, log_z_upper : float
        Log Z lies between them; the lower one is -inf where no configuration was found.
    node_lower, node_upper : float arrays, aligned with ``model.log_unary``
        The probability of each state lies between them.
    confidence : float or None
        None: the bounds are proven outright. A number: draws made some of them tighter, and all of them hold together
        with this probability.
    methods : mapping
        What gave the bounds: ``lower``, ``upper`` and ``marginals``.
    exact : bool
        Whether exact inference gave them, so that only rounding is between them.
    status : Status
        ``ok``, or ``interrupted``: the bounds hold all the same.
    stats, provenance : mapping
        Counts and seconds; what is needed to run it again.
    """

    model: MarkovRandomField
    log_z_lower: float
    log_z_upper: float
    node_lower: FloatArray
    node_upper: FloatArray
    confidence: float | None
    methods: Mapping[str, str]
    exact: bool
    status: Status
    stats: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        between = f"{self.log_z_lower:.6g} <= log Z <= {self.log_z_upper:.6g}"
        held = "proven" if self.confidence is None else f"confidence {self.confidence:g}"
        return f"BracketResult({between}, {held}, {self.model})"

    @property
    def gap(self) -> float:
        """What is between the bounds on log Z."""
        return self.log_z_upper - self.log_z_lower

    @property
    def marginals_lower(self) -> list[FloatArray]:
        """Lower bounds, one vector per variable."""
        return self._split(self.node_lower)

    @property
    def marginals_upper(self) -> list[FloatArray]:
        """Upper bounds, one vector per variable."""
        return self._split(self.node_upper)

    def marginal(self, variable: int | str) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bounds on the probabilities of one variable, given by number or name."""
        i = self.model.variable_index(variable)
        place = slice(int(self.model.unary_offsets[i]), int(self.model.unary_offsets[i + 1]))
        return self.node_lower[place], self.node_upper[place]

    def _split(self, values: FloatArray) -> list[FloatArray]:
        return np.split(values, self.model.unary_offsets[1:-1]) if self.model.num_variables else []

    def misses(self, result: InferenceResult, *, num_errors: float = 4.0) -> str | None:
        """What of an answer lies outside by more than a number of its standard errors, in a sentence; None if nothing.

        The standard error is at least that of as many independent draws from the bound itself: a state that was never
        drawn has an estimated error of zero. Answers without standard errors have an allowance of 1e-6.
        """
        p, error = result.node_marginals, getattr(result, "std_error", None)
        slack = np.full(len(p), 1e-6)
        below, above = self.node_lower - p, p - self.node_upper
        if error is not None:
            num_draws = np.maximum(1.0, np.repeat(_num_draws(result), self.model.num_states))
            edge = np.where(below > above, self.node_lower, self.node_upper)
            slack += num_errors * np.maximum(error, np.sqrt(edge * (1.0 - edge) / num_draws))
        below, above = below - slack, above - slack
        worst = int(np.argmax(np.maximum(below, above))) if len(below) else 0
        if len(below) and max(below[worst], above[worst]) > 0.0:
            i = int(np.searchsorted(self.model.unary_offsets, worst, side="right")) - 1
            state = self.model.names_of_states()[i][worst - self.model.unary_offsets[i]]
            return (
                f"the probability {p[worst]:.4g} of state {state} of variable {self.model.names_of_variables()[i]} "
                f"is outside its bracket [{self.node_lower[worst]:.4g}, {self.node_upper[worst]:.4g}]"
            )
        if result.log_z is not None and result.log_z_kind in ("exact", "estimate"):
            room = 1e-6 * (1.0 + abs(result.log_z)) + num_errors * (result.log_z_std_error or 0.0)
            if not self.log_z_lower - room <= result.log_z <= self.log_z_upper + room:
                return (
                    f"log Z = {result.log_z:.6g} is outside its bracket [{self.log_z_lower:.6g}, "
                    f"{self.log_z_upper:.6g}]"
                )
        return None

    def to_dict(self) -> dict[str, Any]:
        """The result as plain Python data, the shape of the command line's JSON; a bound that is not finite is None."""
        names = "log_z_lower log_z_upper marginals_lower marginals_upper confidence methods exact"
        return as_plain(self, names)


def _num_draws(result: InferenceResult) -> FloatArray:
    """For every variable how many independent draws an answer is worth."""
    ess = getattr(result, "ess", None)
    if ess is not None and len(ess) == result.model.num_variables:
        return np.asarray(ess, dtype=float)
    return np.full(result.model.num_variables, float(max(1, len(getattr(result, "states", ())))))
