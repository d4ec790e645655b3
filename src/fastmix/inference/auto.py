"""``Auto``: the method that fits a model is chosen and run, and another one where it has no answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from fastmix._clock import Ending
from fastmix._context import Context
from fastmix.errors import FastmixError, NotConvergedError, ResourceError, UnfitMethodError
from fastmix.exact import ExactPlan
from fastmix.inference.choice import Choice, choose, choose_approximate, choose_counting
from fastmix.inference.exact import Exact, MemoryLimited
from fastmix.inference.support import supported
from fastmix.inference.tuning import EXACT_ESTIMATE_SHARE, EXACT_RUN_SHARE, TRIAL_SHARE
from fastmix.marginals import InferenceResult
from fastmix.method import Method
from fastmix.model import MarkovRandomField
from fastmix.results import Status

__all__ = ["Auto"]


class _Outcome(NamedTuple):
    """The method that answered, its answer, and why it was chosen."""

    method: Method
    result: InferenceResult
    reason: str


@dataclass(frozen=True, kw_only=True)
class Auto(MemoryLimited):
    """The method that fits the model, the memory and the time; see :func:`fastmix.infer`.

    ``memory_limit`` (bytes) is for exact inference, half of the memory that is free by default.
    """

    name: ClassVar[str] = "auto"
    shares: ClassVar[bool] = True
    on_gpu: ClassVar[bool] = True
    share: ClassVar[float] = EXACT_ESTIMATE_SHARE / 2  # within it, exact inference is surely chosen

    def run(self, model: MarkovRandomField, context: Context) -> InferenceResult:
        """The answer of the first method that has one, with the reason for the method in ``stats``.

        A method that guarantees nothing has the status ``unverified`` unless bounds support it
        (:func:`fastmix.inference.support.supported`).
        """
        if context.backend == "cuda":
            from fastmix.chains.cuda.device import require_cuda

            require_cuda()  # without a GPU no other method is an answer to that
            context = replace(context, backend="auto")
        refusals: list[FastmixError] = []
        for choice in _choices(model, self.memory_limit, context, refusals):
            try:
                outcome = self._follow(choice, model, context)
            except (NotConvergedError, ResourceError, UnfitMethodError) as error:
                refusals.append(error)
                continue
            stats = {"guarantee": outcome.method.guarantee, **outcome.result.stats, "reason": outcome.reason}
            result = replace(outcome.result, stats=stats)
            has_verdict = result.status is not Status.OK or result.log_z_kind == "exact"
            if has_verdict or not outcome.method.needs_support:
                return result
            return supported(result, context, self.memory_limit)
        for_want_of_resources = any(isinstance(error, ResourceError) for error in refusals)
        kind = ResourceError if for_want_of_resources else UnfitMethodError
        raise kind("no method has an answer: " + "; ".join(dict.fromkeys(map(str, refusals))))

    def _follow(self, choice: Choice, model: MarkovRandomField, context: Context) -> _Outcome:
        """The outcome of a choice: of its plan for exact inference, of a trial that ends ``ok``, or of its method."""
        if choice.plan is not None:
            return self._run_exact(choice.plan, choice.reason, model, context)
        if choice.trial is not None:
            return _run_with_trial(choice, choice.trial, model, context)
        result, stopped_by = _run_in_time(choice.chosen, model, context)
        if result is None:
            context.raise_nothing(stopped_by)
        return _Outcome(choice.chosen, result, choice.reason)

    def _run_exact(self, plan: ExactPlan, reason: str, model: MarkovRandomField, context: Context) -> _Outcome:
        """The outcome of exact inference, which stops early enough for another method if the estimate was wrong."""
        limited = replace(context, clock=context.clock.part(EXACT_RUN_SHARE))
        exact = Exact(memory_limit=self.memory_limit)
        return _Outcome(exact, exact.run(model, limited, plan), reason)


def _choices(
    model: MarkovRandomField, memory_limit: float | None, context: Context, refusals: list[FastmixError]
) -> Iterator[Choice]:
    """The methods to try, the most fitting first, each after those before it have refused.

    Last come those that guarantee nothing but can answer for any model.
    """
    from fastmix.sampling.sample import Gibbs
    from fastmix.variational.loopy_bp import LoopyBP
    from fastmix.variational.mean_field import MeanField

    clock = context.clock
    first = choose(model, memory_limit, clock.part(1.0), context.log_z)
    if first.plan is None and (counting := choose_counting(model, memory_limit)) is not None:
        yield counting
    if context.model is not None and context.model.num_hidden:
        if first.plan is not None:
            yield first
        fallbacks: tuple[Method, ...] = (LoopyBP(), MeanField())
        for fallback in fallbacks:
            yield Choice(fallback, "exact inference does not fit, and belief propagation takes laws")
        return
    yield first
    tried = {first.chosen.name}
    if first.plan is not None:
        too_much = "exact inference took longer than it seemed to"
        second = choose_approximate(model, too_much, clock, context.log_z)
        tried.add(second.chosen.name)
        yield second
    last: tuple[Method, ...] = (LoopyBP(),) if context.log_z else (Gibbs(), LoopyBP(), MeanField())
    for method in last:
        if method.name not in tried and method.fits(model) is None:
            yield Choice(method, str(refusals[-1]))


def _run_with_trial(choice: Choice, trial: Method, model: MarkovRandomField, context: Context) -> _Outcome:
    """The outcome of a trial that mixes in a share of the time, and otherwise of the method that was chosen.

    A trial that mixes but was cut short runs again, with all the time that is left. Where the second run has nothing to
    report, the answer is that of the trial.
    """
    quiet = context.clock.part(TRIAL_SHARE, quiet=True)
    tried = _run(trial, model, context.within("trial", quiet))
    chosen = choice.chosen
    reason = choice.reason
    if tried.status is Status.INTERRUPTED:
        return _Outcome(trial, tried, reason)
    if tried.status is Status.OK:
        chosen = trial
        reason += "; but chains from many starts agree after a short run"
        if tried.stats["stopped_by"] == "done":
            return _Outcome(trial, tried, reason)
    result, stopped_by = _run_in_time(chosen, model, context)
    if result is not None:
        return _Outcome(chosen, result, reason)
    status = Status.INTERRUPTED if stopped_by == "interrupt" else tried.status
    return _Outcome(trial, replace(tried, status=status, stats={**tried.stats, "stopped_by": stopped_by}), reason)


def _run_in_time(method: Method, model: MarkovRandomField, context: Context) -> tuple[InferenceResult | None, str]:
    """The answer of a method in the time that is left, or None, and what ended the run."""
    result: InferenceResult | None = None
    with Ending() as ending:
        result = _run(method, model, context.within(method.name, context.clock.part(1.0)))
    return result, ending.by


def _run(method: Method, model: MarkovRandomField, context: Context) -> InferenceResult:
    """The answer of a method for a model from which evidence, but perhaps not all forbidden states, has been taken.

    Loopy belief propagation also takes out states without a partner. States that a unary forbids are left where a plan
    for exact inference is kept: its limit may be over before it runs.
    """
    from fastmix.variational.loopy_bp import LoopyBP

    own = context if method.on_gpu else replace(context, backend="cpu")
    has_more_to_reduce = isinstance(method, LoopyBP) or bool((model.log_unary == -np.inf).any())
    if not has_more_to_reduce:
        return method.run(model, own)
    inner = method.reduce(model, None, context.clock)
    return method.run(inner.model, own).expanded(inner)
