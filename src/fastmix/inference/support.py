"""Support for the answer of a method that guarantees nothing: proven bounds on the same marginals."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fastmix._arrays import FloatArray
from fastmix._clock import Clock, Ending
from fastmix._context import Context
from fastmix._memory import available_memory
from fastmix.errors import ImpossibleModelError, ResourceError
from fastmix.inference.tuning import (
    FIRST_SUPPORT_SHARE,
    MAX_SUPPORT_SECONDS,
    MIN_SUPPORT_SECONDS,
    SUPPORT_GROWTH,
    SUPPORT_SHARE,
    TOLERANCE,
    USELESS_SUPPORT,
)
from fastmix.marginals import InferenceResult
from fastmix.model import MarkovRandomField
from fastmix.results import Status

__all__ = ["Support", "error_bounds", "supported"]


@dataclass(frozen=True)
class Support:
    """Whether proven bounds support an answer, and in words how far.

    Attributes
    ----------
    is_enough : bool
        Whether the errors that they leave possible are small enough for the status ``ok``.
    text : str
        What was proven, or why it is not enough.
    largest_error : float
        What a marginal can be off by at most (total variation).
    log_z_lower : float or None
    """

    is_enough: bool
    text: str
    largest_error: float
    log_z_lower: float | None = None


def supported(result: InferenceResult, context: Context, memory_limit: float | None) -> InferenceResult:
    """The answer with the status ``ok`` where bounds support it, and otherwise ``unverified``.

    The guarantee in its ``stats`` says what was proven, the note why it is not enough; ``log_z_lower`` is the proven
    lower bound. After Ctrl-C the status is ``interrupted``.
    """
    support = Support(False, "there was no time for bounds", 1.0)
    with Ending() as ending:
        try:
            support = _find_support(result, context.within("support"), memory_limit)
        except ResourceError as error:
            support = Support(False, f"bounds were not found: {error}", 1.0)
    if ending.interrupted:
        stats = {**result.stats, "stopped_by": "interrupt"}
        return replace(result, status=Status.INTERRUPTED, stats=stats)
    stats = dict(result.stats)
    stats["largest_error_bound"] = support.largest_error
    stats["guarantee" if support.is_enough else "note"] = support.text
    status = Status.OK if support.is_enough else Status.UNVERIFIED
    return replace(result, status=status, stats=stats, log_z_lower=support.log_z_lower)


def _find_support(result: InferenceResult, context: Context, memory_limit: float | None) -> Support:
    """What brackets of all marginals say, each found in more time than the last for as long as that narrows them.

    Raises
    ------
    ImpossibleModelError
        If they prove that Z = 0.
    """
    from fastmix.bounds.bracket import find_bracket

    memory = available_memory() / 2 if memory_limit is None else memory_limit
    clock = context.clock
    limit = clock.rest(SUPPORT_SHARE) or np.inf
    if clock.asked is None:
        limit = min(limit, MAX_SUPPORT_SECONDS)
    whole = Clock(limit)
    share = FIRST_SUPPORT_SHARE
    mean_before = np.inf
    while True:
        seconds = max(MIN_SUPPORT_SECONDS, min(share * limit, whole.left()))
        part = replace(context.within(f"after {share:g} of the time", Clock(seconds)), evidence=None)
        found = find_bracket(result.model, part, memory=memory)
        if found.node_lower is None or found.node_upper is None:
            raise ImpossibleModelError(found.stats["reason"])
        bounds = error_bounds(result.model, result.node_marginals, found.node_lower, found.node_upper)
        support = _judge(result, bounds, found.log_z_lower, found.log_z_upper, context.log_z)
        mean = float(bounds.mean()) if len(bounds) else 0.0
        has_narrowed = mean < USELESS_SUPPORT * mean_before
        is_final = found.stats["stopped_by"] == "done"
        if support.is_enough or is_final or not has_narrowed or whole.past(0.5):
            return support
        share = SUPPORT_GROWTH * share
        mean_before = mean


def _judge(
    result: InferenceResult, bounds: FloatArray, log_z_lower: float, log_z_upper: float, log_z_asked: bool
) -> Support:
    """Whether bounds on the errors of all marginals, and on log Z where it was asked for, support an answer."""
    largest = float(bounds.max(initial=0.0))
    proven = None if log_z_lower == -np.inf else log_z_lower
    if largest > TOLERANCE:
        share = float((bounds <= TOLERANCE).mean())
        text = f"bounds prove only {share:.0%} of the marginals to be within {TOLERANCE:g}"
        return Support(False, text, largest, proven)
    if log_z_asked and result.log_z is not None:
        error = max(log_z_upper - result.log_z, result.log_z - log_z_lower)
        if not error <= TOLERANCE:  # also where it is not a number
            between = f"between {log_z_lower:.6g} and {log_z_upper:.6g}"
            text = f"the marginals are proven, but of log Z only that it is {between}"
            return Support(False, text, largest, proven)
    return Support(True, f"no marginal is off by more than {largest:.2g}, by proven bounds on all", largest, proven)


def error_bounds(model: MarkovRandomField, marginals: FloatArray, lower: FloatArray, upper: FloatArray) -> FloatArray:
    """Largest error of each marginal (n,), in total variation, that bounds on the probabilities of all states allow.

    Some states gain together what the others lose: no more than the sum of what the bounds leave on either side. Of two
    states one gains alone.
    """
    if not model.num_variables:
        return np.zeros(0)
    starts = model.unary_offsets[:-1]
    gain = np.maximum(upper - marginals, 0.0)
    loss = np.maximum(marginals - lower, 0.0)
    together = np.minimum(np.add.reduceat(gain, starts), np.add.reduceat(loss, starts))
    alone = np.maximum(np.maximum.reduceat(gain, starts), np.maximum.reduceat(loss, starts))
    return np.where(model.num_states == 2, alone, np.maximum(together, 0.0))
