"""The fit of a conditional random field: weights that make the objective least, and a verdict on them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import Clock, Ending
from fastmix._context import Context
from fastmix.crf.design import Layout
from fastmix.crf.examples import UNKNOWN, Examples
from fastmix.crf.loss import Loss, Moments, ObjectiveName, make_loss
from fastmix.crf.sampled import SampledMoments, descend, remaining
from fastmix.crf.tuning import (
    LBFGS_MEMORY,
    LINE_SEARCHES,
    MAX_ITER,
    NUM_CHAINS,
    NUM_ROUNDS,
    SAMPLED_TOL,
    TOL,
    TOL_WITHIN,
)
from fastmix.learning import NormBall
from fastmix.results import Status

__all__ = ["FitSettings", "Fitted", "fit_weights"]


@dataclass(frozen=True)
class FitSettings:
    """What is asked of a fit, checked."""

    objective: ObjectiveName
    moments: Moments
    within: NormBall | None
    ridge: float
    num_chains: int | None
    tol: float | None
    max_iter: int | None


@dataclass
class Fitted:
    """The best weights so far, and what is known of them."""

    w: FloatArray
    value: float | None = None
    status: Status = Status.NOT_CONVERGED
    moments: str = "none"
    price: float | None = None
    stopped_by: str = "done"
    history: list[dict[str, Any]] = field(default_factory=list)
    stats: dict[str, Any] = field(default_factory=dict)


def fit_weights(examples: Examples, codes: IntArray, layout: Layout, settings: FitSettings, context: Context) -> Fitted:
    """The weights of least objective, from 0 on; after Ctrl-C or the time limit the best by then.

    1. Exact objectives, without a set, are minimized by L-BFGS. So is the pseudo-likelihood before a sampled one.
    2. With a set, the search goes on from there through the projection.
    3. Sampled ones go on by noisy steps.
    """
    clock = context.clock
    make = {"objective": settings.objective, "moments": settings.moments, "ridge": settings.ridge}
    scales = layout.scales(examples)
    loss = make_loss(examples, codes, layout, within=settings.within, **make)  # type: ignore[arg-type]
    first = loss
    if loss.sampled is not None:
        first_of: dict[str, Any] = {**make, "objective": "pseudo-likelihood"}
        first = make_loss(examples, codes, layout, within=None, **first_of)
    elif settings.within is not None:
        first = make_loss(examples, codes, layout, within=None, **make)  # type: ignore[arg-type]
    fitted = Fitted(np.zeros(layout.size), moments=loss.methods)
    with Ending() as ending:
        _lbfgs(first, fitted, scales, settings.tol or TOL, settings.max_iter or MAX_ITER, clock)
        if loss is not first and loss.sampled is None:
            _within_set(loss, fitted, scales, settings, int((codes != UNKNOWN).sum()), clock)
        elif loss is not first:
            _sampled(loss, fitted, scales, settings, context)
    if ending.by != "done":
        fitted.stopped_by = ending.by
        fitted.status = Status.INTERRUPTED if ending.interrupted else Status.NOT_CONVERGED
    fitted.stats["num_iterations"] = len(fitted.history) or fitted.stats.get("num_iterations", 0)
    if settings.within is not None:
        fitted.stats["projection_seconds"] = loss.projection_seconds
    return fitted


def _lbfgs(loss: Loss, fitted: Fitted, scales: FloatArray, tol: float, max_iter: int, clock: Clock) -> None:
    """Go down by L-BFGS in scaled coordinates, from the weights of ``fitted`` on, and keep the best."""
    from scipy.optimize import minimize

    norm = math.inf
    calls = 0
    fitted.value = None

    def evaluate(z: FloatArray) -> tuple[float, FloatArray]:
        """Value and derivative at z, which is kept if it is the best."""
        nonlocal norm, calls
        if calls:
            clock.check()
        calls += 1
        value, gradient = loss.evaluate(z / scales, clock)
        scaled = gradient / scales
        if fitted.value is None or value <= fitted.value:
            fitted.value = value
            fitted.w = z / scales
            norm = float(np.abs(scaled).max(initial=0.0))
        return value, scaled

    def step(_: FloatArray) -> None:
        """Note an iteration."""
        entry = {"iteration": len(fitted.history) + 1, "value": fitted.value, "gradient_norm": norm}
        fitted.history.append(entry)
        clock.report(len(fitted.history), None, "iterations", details={"value": fitted.value or 0.0})

    options = {
        "maxiter": max_iter, "maxfun": LINE_SEARCHES * max_iter + 20, "maxcor": LBFGS_MEMORY, "ftol": 0.0, "gtol": tol,
    }  # fmt: skip
    minimize(evaluate, fitted.w * scales, jac=True, method="L-BFGS-B", callback=step, options=options)
    fitted.status = Status.OK if norm <= tol else Status.NOT_CONVERGED
    fitted.stats["gradient_norm"] = norm


def _within_set(
    loss: Loss, fitted: Fitted, scales: FloatArray, settings: FitSettings, num_labels: int, clock: Clock
) -> None:
    """Go on through the projection, and say what the set costs per label."""
    free = fitted.value
    converged = fitted.status is Status.OK
    fitted.value = None
    _lbfgs(loss, fitted, scales, settings.tol or TOL_WITHIN, settings.max_iter or MAX_ITER, clock)
    if free is not None and converged and fitted.value is not None:
        fitted.price = (fitted.value - free) * loss.num_examples / max(1, num_labels)


def _sampled(loss: Loss, fitted: Fitted, scales: FloatArray, settings: FitSettings, context: Context) -> None:
    """Go on by noisy steps, and judge where they lead to."""
    assert loss.sampled is not None
    assert loss.sampled_codes is not None
    clock = context.clock
    fitted.history.clear()
    fitted.value = None
    fitted.status = Status.NOT_CONVERGED
    num_chains = settings.num_chains or NUM_CHAINS
    moments = SampledMoments(loss.sampled, loss.sampled_codes, loss.sampled_within, num_chains, context)
    num_rounds = settings.max_iter or NUM_ROUNDS
    fitted.w, made = descend(loss, moments, fitted.w, scales, num_rounds, clock)
    fitted.stats |= {"num_iterations": made, "num_chains": num_chains}
    gap, mixed = remaining(loss, moments, fitted.w, scales, max(1, num_rounds // 4), clock)
    fitted.stats |= {"gap": gap}
    fitted.stats.pop("gradient_norm", None)
    if not mixed:
        fitted.status = Status.NOT_MIXED
    elif made == num_rounds and gap <= (settings.tol or SAMPLED_TOL):
        fitted.status = Status.OK
