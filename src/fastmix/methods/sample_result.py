"""What chains return: marginals with error bars, intervals that the certificate proves, and log Z of ladders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from fastmix import _show
from fastmix._arrays import FloatArray, IntArray
from fastmix.errors import UnfitMethodError
from fastmix.model import MarkovRandomField
from fastmix.model.reduce import Reduction, reduce_model
from fastmix.results import InferenceResult, Status, jsonable
from fastmix.theory.bias import bias_after
from fastmix.theory.comparison import comparison_bounds, original_intervals
from fastmix.theory.criteria import bias_after_updates
from fastmix.theory.dependency import Dependency
from fastmix.theory.intervals import Intervals, rigorous_intervals

__all__ = ["CONFIDENCE", "ChainResult", "SampleResult", "TemperResult", "bias_bounds"]

CONFIDENCE = 0.95
_NOT_TRAVELED = (
    "The replicas have not traveled the ladder often enough, or the ensembles disagree: run longer, or with more "
    "replicas."
)
# Probabilities are met to 4e-10 by the thresholds and averages to 3e-8 by the 24-bit sums: widened by more than both.
_ROUNDING = 1e-6


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ChainResult(InferenceResult):
    """Marginals from chains, with their error bars and what the chains say about themselves."""

    std_error: FloatArray
    ess: FloatArray
    r_hat: FloatArray
    states: IntArray

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data; adds ``std_error``, ``r_hat_max``, ``ess_min`` and ``updates_per_second``."""
        return {
            **super().to_dict(),
            "std_error": self._by_variable(self.std_error),
            "r_hat_max": jsonable(float(self.r_hat.max(initial=1.0))),
            "ess_min": jsonable(float(self.ess.min(initial=np.inf))),
            "updates_per_second": self.stats.get("updates_per_second"),
        }


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SampleResult(ChainResult):
    """Marginals from sampling, with their error bars.

    Attributes
    ----------
    std_error : float array, aligned with ``model.log_unary``
        Monte Carlo standard error of every probability, by batch means over all chains.
    bias_bound : float array, aligned with ``model.log_unary``, or None
        With an ``accuracy``: what the certificate proves that every probability is off by at most, but for chance,
        because chains burn in for a finite time. It is no part of ``std_error``: ``hypot(std_error, bias_bound)`` is
        the scale of the whole error. None where nothing was certified.
    ess, r_hat : float array (n,)
        Effective sample size and rank-normalised split R-hat of every variable; observed ones have the best values.
    states : int array (num_chains, n)
        Where the chains ended: give the result as ``start`` to go on from there.
    """

    bias_bound: FloatArray | None = None
    draws: NDArray[np.integer[Any]] | None = None  #: (num_chains, num_draws, n)
    history: list[tuple[int, FloatArray]] = field(default_factory=list)  #: sweeps (``history_at``), running marginals
    chain_variances: FloatArray | None = None
    reduction: Reduction | None = None

    def intervals(
        self,
        *,
        confidence: float = CONFIDENCE,
        simultaneous: bool = False,
        dependency: Dependency = "sigmoid",
        original: MarkovRandomField | None = None,
    ) -> Intervals:
        """Intervals that hold the marginals with a proven confidence: bias by the certificate, deviation by the chains.

        Parameters
        ----------
        confidence : float
        simultaneous : bool
            Whether all intervals shall hold at once.
        dependency : str
            Dependency bound behind the bias, see :func:`fastmix.certify`. After a burn-in of random updates the other
            criteria bound it too. For a model that cannot be certified the bias stays 1, and the intervals say so in
            ``vacuous``.
        original : MarkovRandomField, optional
            The model that the sampled one is a projection of: the intervals are then for its marginals, by the
            comparison theorem of Dobrushin.

        Raises
        ------
        UnfitMethodError
            For cluster moves, whose mixing no certificate bounds.
        """
        if self.method != "gibbs":
            raise UnfitMethodError(f"intervals need the certificate of Gibbs sampling, and this is {self.method}")
        reduction = self.reduction or reduce_model(self.model)  # None where there was nothing to reduce
        small = reduction.model
        bias = bias_bounds(small, int(self.stats["burn_in"]), self.provenance["options"]["schedule"], dependency)
        kept = reduction.unary_positions
        inner = rigorous_intervals(
            small, self.node_marginals[kept], num_chains=int(self.stats["num_chains"]), bias=bias,
            variances=self.chain_variances, confidence=confidence, simultaneous=simultaneous,
        )  # fmt: skip
        lower = reduction.expand_node_marginals(np.maximum(inner.lower - _ROUNDING, 0.0))
        upper = reduction.expand_node_marginals(np.minimum(inner.upper + _ROUNDING, 1.0))
        vacuous = np.zeros(len(lower), dtype=bool)
        vacuous[kept] = inner.vacuous
        result = Intervals(lower, upper, vacuous, inner.confidence, inner.simultaneous)
        if original is None:
            return result
        if (reduction.fixed >= 0).any():
            raise UnfitMethodError("original needs a run without evidence: condition both models first")
        return original_intervals(original, result, comparison_bounds(self.model, original))

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data; adds ``bias_bound``, None where it is not known."""
        return super().to_dict() | {"bias_bound": self._by_variable(self.bias_bound)}

    def columns(self) -> dict[str, Any]:
        """Columns of :meth:`to_frame` and of a ``.csv`` file by name; adds ``bias_bound`` where it is known."""
        columns = super().columns()
        return columns if self.bias_bound is None else columns | {"bias_bound": self.bias_bound}

    def arrays(self) -> dict[str, Any]:
        """What an ``.npz`` file holds, by name; adds ``bias_bound`` where it is known."""
        arrays = super().arrays()
        return arrays if self.bias_bound is None else arrays | {"bias_bound": self.bias_bound}

    def summary(self) -> str:
        """A few lines of text, one of them about the bias that is possible, where that is known."""
        text = super().summary()
        if self.bias_bound is None or not len(self.bias_bound):
            return text
        return f"{text}\nlargest bias that the certificate leaves possible: {self.bias_bound.max():.2g}"

    def to_arviz(self) -> Any:
        """The draws as ArviZ's data object (extra ``interop``); the run must have kept some (``num_draws``)."""
        from fastmix.interop.arviz import to_arviz

        if self.draws is None:
            raise ValueError("to_arviz needs draws: run sample() with num_draws")
        return to_arviz(self.draws, self.model)

    def _expansion(self, reduction: Reduction) -> dict[str, Any]:
        values = super()._expansion(reduction)
        history = [(t, reduction.expand_node_marginals(m)) for t, m in self.history]
        if self.bias_bound is not None:
            values["bias_bound"] = np.zeros(len(reduction.original.log_unary))
            values["bias_bound"][reduction.unary_positions] = self.bias_bound
        return {**values, "history": history, "reduction": reduction}


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TemperResult(ChainResult):
    """Marginals and log Z from replica exchange, with their error bars.

    Attributes
    ----------
    std_error : float array, aligned with ``model.log_unary``
        Standard error of every probability: the spread of the independent ensembles, or that of batches of sweeps if it
        is larger, and one over the number of round trips, because that is how much probability can be overlooked.
    ess, r_hat : float array (n,)
        Effective sample size and split R-hat of every variable over the ensembles; observed ones have the best values.
    log_z : float or None
        None where replicas have not mixed, and not every ensemble made a round trip: they can agree on any number.
    log_z_lower : float or None
        What log Z is at least, with the probability ``log_z_confidence`` (1 for bounds that do not rest on draws).
    log_z_std_error : float or None
        By the jackknife over the ensembles, enlarged for their small number so that three standard errors cover
        99.73 %, with one over the number of round trips as for ``std_error``.
    states : int array (ladders, n)
        Where the replicas at the highest rung ended.
    """

    #: ``log_z_lower <= log Z`` with at least this probability, however badly anything mixed
    log_z_confidence: float | None = None
    positions: FloatArray  #: (K,), the ladder: where the rungs are on the path
    rejection: FloatArray  #: (K - 1,), how often the exchange between each rung and the next is rejected
    round_trips: IntArray  #: (num_ensembles,)

    @property
    def advice(self) -> str:
        """What the status means, in one sentence."""
        return _NOT_TRAVELED if self.status == Status.NOT_MIXED else self.status.advice

    def _drawings(self) -> dict[str, Callable[[Any], Any]]:
        drawings = super()._drawings()
        if len(self.positions) > 1:
            drawings["ladder"] = lambda axes: _show.rungs(axes, self.positions, self.rejection)
        return drawings

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data, the shape of the command line's JSON."""
        own = ("log_z_std_error", "log_z_lower", "log_z_confidence", "positions", "rejection", "round_trips")
        return super().to_dict() | {name: jsonable(getattr(self, name)) for name in own}


def bias_bounds(model: MarkovRandomField, burn_in: int, schedule: str, dependency: Dependency) -> FloatArray:
    """Bounds on the bias of what is averaged first (n,), after the burn-in."""
    n = model.num_variables
    if schedule == "random-burn-in":
        # Whatever comes after it: the joint distribution is as close as this, and no sweep takes it away.
        bias = bias_after(model, burn_in, schedule="random", dependency=dependency)
        bias = np.full(n, min(1.0, float(bias.sum()) * (1.0 + 1e-12)))
    else:
        order = model.structure.visit_order[0].astype(np.int64) if schedule == "systematic" else None
        known = cast("Literal['systematic', 'random']", schedule)
        bias = bias_after(model, burn_in + 1, schedule=known, order=order, dependency=dependency)
    if schedule != "systematic" and bias.max(initial=0.0) > _ROUNDING:
        bias = np.minimum(bias, bias_after_updates(model, float(burn_in) * n))
    return bias
