"""What chains return: marginals with error bars, intervals that the certificate proves, and log Z of ladders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np

from fastmix._arrays import FloatArray
from fastmix.errors import UnfitMethodError
from fastmix.marginals import ChainResult, expand_errors
from fastmix.model import MarkovRandomField
from fastmix.model.reduce import Reduction, reduce_model
from fastmix.theory.bias import bias_after
from fastmix.theory.comparison import comparison_bounds, original_intervals
from fastmix.theory.criteria import bias_after_updates
from fastmix.theory.dependency import Dependency
from fastmix.theory.intervals import Intervals, rigorous_intervals

__all__ = ["CONFIDENCE", "SampleResult", "arviz_data", "bias_bounds"]

CONFIDENCE = 0.95
# Probabilities are met to 4e-10 by the thresholds and averages to 3e-8 by the 24-bit sums: widened by more than both.
_ROUNDING = 1e-6


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
        Effective sample size and rank-normalized split R-hat of every variable; observed ones have the best values.
    states : int array (num_chains, n)
        Where the chains ended: give the result as ``start`` to go on from there.
    draws : int array (num_chains, num_draws, n), or None
        Configurations that were kept.
    history : sequence of mappings
        The running ``marginals`` (aligned with ``model.log_unary``) after every ``sweep`` of ``history_at``.
    chain_variances : float array, aligned with ``model.log_unary``, or None
        Variance over the chains of their averages, from which :meth:`intervals` come.
    reduction : Reduction or None
        What evidence and forbidden states left of the model; None where there was nothing to reduce.
    """

    bias_bound: FloatArray | None = None
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

    def contents(self) -> dict[str, Any]:
        """The contents of every result of chains, with ``bias_bound``, None where it is not known."""
        return {**super().contents(), "bias_bound": self.by_variable(self.bias_bound)}

    def state_columns(self) -> dict[str, Any]:
        """Columns of :meth:`to_frame` and of a ``.csv`` file by name; adds ``bias_bound`` where it is known."""
        columns = super().state_columns()
        return columns if self.bias_bound is None else columns | {"bias_bound": self.bias_bound}

    def arrays(self) -> dict[str, Any]:
        """Arrays of an ``.npz`` file by name, with ``bias_bound`` where it is known."""
        arrays = super().arrays()
        return arrays if self.bias_bound is None else arrays | {"bias_bound": self.bias_bound}

    def facts(self) -> dict[str, str]:
        """The facts of every result of chains, and the bias that is possible, where that is known."""
        known = super().facts()
        if self.bias_bound is not None and len(self.bias_bound):
            known["largest bias that the certificate leaves possible"] = f"{self.bias_bound.max():.2g}"
        return known

    def to_arviz(self) -> Any:
        """The draws as ArviZ's data object (extra ``interop``); the run must have kept some (``num_draws``)."""
        return arviz_data(self)

    def expansion(self, reduction: Reduction) -> dict[str, Any]:
        """The fields for the original model; the reduction is kept for :meth:`intervals`."""
        values = super().expansion(reduction)
        if self.bias_bound is not None:
            values["bias_bound"] = expand_errors(reduction, self.bias_bound)
        expand = reduction.expand_node_marginals
        history = [{**entry, "marginals": expand(entry["marginals"])} for entry in self.history]
        return {**values, "history": history, "reduction": reduction}


def arviz_data(result: ChainResult) -> Any:
    """The draws of a result as ArviZ's data object; a ValueError where there are none."""
    from fastmix.interop.arviz import to_arviz

    if result.draws is None:
        raise ValueError("to_arviz needs draws: run sample() or temper() with num_draws")
    return to_arviz(result.draws, result.model)


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
