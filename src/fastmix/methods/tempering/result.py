"""What tempering returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastmix import _show
from fastmix._arrays import FloatArray, IntArray
from fastmix.methods.sample_result import ChainResult
from fastmix.results import jsonable

__all__ = ["TemperResult"]


@dataclass(frozen=True, eq=False, repr=False)
class TemperResult(ChainResult):
    """Marginals and log Z from replica exchange, with their error bars.

    Attributes
    ----------
    std_error : float array, aligned with ``model.log_unary``
        Standard error of every probability: the spread of the independent ensembles, or that of batches of sweeps if it
        is larger, and one over the number of round trips, because that is how much probability can be overlooked.
    ess, r_hat : float array (n,)
        Effective sample size and split R-hat of every variable over the ensembles; observed ones have the best values.
    log_z_std_error : float or None
        By the jackknife over the ensembles, enlarged for their small number so that three standard errors cover
        99.73 %, with one over the number of round trips as for ``std_error``.
    log_z_lower, log_z_confidence : float or None
        ``log_z_lower <= log Z`` with probability at least ``log_z_confidence``, however badly anything mixed.
    positions, rejection : float array (K,) and (K - 1,)
        The ladder: where the rungs are on the path, and how often the exchange between each and the next is rejected.
    round_trips : int array (num_ensembles,)
    states : int array (ladders, n)
        Where the replicas at the highest rung ended.
    """

    log_z_confidence: float | None = None
    positions: FloatArray = field(default_factory=lambda: np.zeros(0))
    rejection: FloatArray = field(default_factory=lambda: np.zeros(0))
    round_trips: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def half_widths(self, *, confidence: float = 0.95) -> FloatArray:
        """Half the widths of intervals for every probability: a Student quantile times the standard error.

        The quantile has one degree of freedom less than there are ensembles. The intervals are approximate; for a
        certified model, :meth:`fastmix.SampleResult.intervals` are proven.
        """
        return self.std_error * self.student_quantile(confidence)

    def student_quantile(self, confidence: float = 0.95) -> float:
        """How many standard errors an interval of a confidence reaches to either side."""
        from scipy.special import stdtrit

        if not 0.0 < confidence < 1.0:
            raise ValueError(f"confidence must be between 0 and 1, got {confidence!r}")
        freedom = len(self.round_trips) - 1
        return float(stdtrit(freedom, 0.5 + 0.5 * confidence)) if freedom > 0 else np.inf

    def _drawings(self) -> dict[str, Callable[[Any], Any]]:
        drawings = super()._drawings()
        if len(self.positions) > 1:
            drawings["ladder"] = lambda axes: _show.rungs(axes, self.positions, self.rejection)
        return drawings

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data, the shape of the command line's JSON."""
        return {
            **super().to_dict(),
            "log_z_std_error": jsonable(self.log_z_std_error),
            "log_z_lower": jsonable(self.log_z_lower),
            "log_z_confidence": jsonable(self.log_z_confidence),
            "positions": jsonable(self.positions),
            "rejection": jsonable(self.rejection),
            "round_trips": jsonable(self.round_trips),
        }
