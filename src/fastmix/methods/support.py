"""Support for the answer of a method that guarantees nothing: proven bounds on the same marginals."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fastmix._arrays import FloatArray
from fastmix._clock import Clock
from fastmix.errors import ImpossibleModelError, ResourceError
from fastmix.methods.base import Context
from fastmix.model import MarkovRandomField
from fastmix.results import InferenceResult, Status

__all__ = ["Support", "error_bounds", "supported"]

TOLERANCE = 0.05  # largest error of a marginal (total variation), and of log Z where it was asked for
_SHARE = 0.5  # of the time that is left
_LEAST_SECONDS, _MOST_SECONDS = 1e-3, 10.0  # for bounds; at most where no limit was asked for
_FIRST_SHARE, _GROWTH = 0.05, 4.0  # of that time, for bounds that show whether more time is worth it
_LEAST_GAIN = 0.8  # mean error bound after more time, as a fraction of that before, beyond which it is given up


@dataclass(frozen=True)
class Support:
    """What bounds say of an answer."""

    is_enough: bool
    text: str
    largest_error: float
    log_z_lower: float | None = None


def supported(result: InferenceResult, context: Context, memory_limit: float | None) -> InferenceResult:
    """The answer with the status ``ok`` where bounds support it, and otherwise ``unverified``.

    The guarantee in its ``stats`` says what was proven, the note why it is not enough; ``log_z_lower`` is the proven
    lower bound. After Ctrl-C the status is ``interrupted``.
    """
    try:
        support = _find_support(result, context, memory_limit)
    except KeyboardInterrupt:
        stats = {**result.stats, "stopped_by": "interrupt"}
        return replace(result, status=Status.INTERRUPTED, stats=stats)
    except ResourceError as error:
        support = Support(False, f"bounds were not found: {error}", 1.0)
    stats = dict(result.stats)
    stats["largest_error_bound"] = support.largest_error
    stats["guarantee" if support.is_enough else "note"] = support.text
    status = Status.OK if support.is_enough else Status.UNVERIFIED
    return replace(result, status=status, stats=stats, log_z_lower=support.log_z_lower)


def _find_support(result: InferenceResult, context: Context, memory_limit: float | None) -> Support:
    """What brackets of all marginals say, each with more time than the last as long as that narrows them.

    An :class:`fastmix.ImpossibleModelError` where they prove that Z = 0.
    """
    from fastmix.bounds import bracket

    clock = context.clock
    limit = min(clock.rest(_SHARE) or np.inf, _MOST_SECONDS if clock.asked is None else np.inf)
    whole = Clock(limit)
    share, before = _FIRST_SHARE, np.inf
    while True:
        seconds = max(_LEAST_SECONDS, min(share * limit, whole.left()))
        found = bracket(result.model, memory_limit=memory_limit, time_limit=seconds, seed=context.seed, progress=None)
        if found.node_lower is None or found.node_upper is None:
            raise ImpossibleModelError(found.stats["reason"])
        bounds = error_bounds(result.model, result.node_marginals, found.node_lower, found.node_upper)
        support = _judge(result, bounds, (found.log_z_lower, found.log_z_upper), context.log_z)
        mean = float(bounds.mean()) if len(bounds) else 0.0
        is_last = whole.past(0.5) or found.stats["stopped_by"] == "done" or not mean < _LEAST_GAIN * before
        if support.is_enough or is_last:
            return support
        share, before = _GROWTH * share, mean


def _judge(result: InferenceResult, bounds: FloatArray, log_z: tuple[float, float], log_z_asked: bool) -> Support:
    """Whether bounds on the errors of all marginals, and on log Z where it was asked for, support an answer."""
    largest = float(bounds.max(initial=0.0))
    lower, upper = log_z
    known = None if lower == -np.inf else lower
    if largest > TOLERANCE:
        share = float((bounds <= TOLERANCE).mean())
        text = f"bounds prove only {share:.0%} of the marginals to be within {TOLERANCE:g}"
        return Support(False, text, largest, known)
    if log_z_asked and result.log_z is not None and not max(upper - result.log_z, result.log_z - lower) <= TOLERANCE:
        text = f"the marginals are proven, but of log Z only that it is between {lower:.6g} and {upper:.6g}"
        return Support(False, text, largest, known)
    return Support(True, f"no marginal is off by more than {largest:.2g}, by proven bounds on all", largest, known)


def error_bounds(model: MarkovRandomField, marginals: FloatArray, lower: FloatArray, upper: FloatArray) -> FloatArray:
    """The most that each marginal can be off, (n,), in total variation, where probabilities lie between bounds.

    States gain together what the others lose: no more than the sum of what the bounds leave on either side; one state
    of two gains alone.
    """
    if not model.num_variables:
        return np.zeros(0)
    starts = model.unary_offsets[:-1]
    gain = np.maximum(upper - marginals, 0.0)
    loss = np.maximum(marginals - lower, 0.0)
    most = np.minimum(np.add.reduceat(gain, starts), np.add.reduceat(loss, starts))
    either = np.maximum(np.maximum.reduceat(gain, starts), np.maximum.reduceat(loss, starts))
    return np.where(model.num_states == 2, either, np.maximum(most, 0.0))
