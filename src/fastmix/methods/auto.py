"""Exact inference as a method, and the automatic choice among all methods.

The thresholds of the choice are measured, see docs/choosing.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fastmix._checks import check_positive, keep_checked
from fastmix._clock import NO_LIMIT, Clock
from fastmix._memory import format_bytes, parse_bytes
from fastmix.errors import FastmixError, Interrupted, NotConvergedError, ResourceError, UnfitMethodError
from fastmix.exact import ExactPlan, plan_exact
from fastmix.exact.junction_tree import kept_tree
from fastmix.exact.solver import too_late
from fastmix.methods.base import DEFAULT_SECONDS, Context, Method, option
from fastmix.methods.support import supported
from fastmix.model import Evidence, MarkovRandomField
from fastmix.model.reduce import Reduction, forbid_others, reduce_model
from fastmix.results import InferenceResult, Status

__all__ = ["Auto", "Choice", "Exact"]

_EXACT_SHARE = 0.8  # of the time limit that the estimate may take
_EXACT_RUN = 0.7  # of the time that is left, after which exact inference makes room for another method
_TEMPERED_SHARE = 0.5  # of the time limit that round trips may take
_MOST_TEMPERED_STATES = 256
# Dependencies per variable on average, up to which plain Gibbs sampling is more accurate than replica exchange, and
# than one that has no time for its round trips.
_WEAK, _STRONG = 2.3, 3.0
_UNARY_SPAN = (0.7, 6.0)  # of log-unaries on average, beyond which Gibbs sampling beats clusters; two, more states
_TRIAL = 0.15  # of the time, for Gibbs sampling to show that it mixes where replica exchange would be taken
_LATE = 4.0  # times too large for replica exchange, up to which it is still more accurate than the others
_UPDATES_PER_SECOND = 3e8
_MANY_NEIGHBORS = 40.0  # beyond which an update takes longer in proportion
_NUM_SWEEPS = 10_000
_MOST_WIDTH = 100_000  # variables for whose width there is time
_SECONDS_PER_DEPENDENCY = 4e-9  # of a table entry, for every pair of variables that a factor holds
_DEPENDENCY_SHARE = 0.25  # of the time, beyond which dependencies, which samplers need several times, are not found


@dataclass(frozen=True)
class _MemoryLimited(Method):
    """What exact inference and the choice that may end in it have in common."""

    gives_log_z: ClassVar[bool] = True
    takes_factors: ClassVar[bool] = True
    answers_zero: ClassVar[bool] = True
    share: ClassVar[float] = 1.0  # of a time limit that a plan that is kept may take

    memory_limit: float | None = option(help="Such as 4GiB; half of the free memory by default.", parse=parse_bytes)

    def __post_init__(self) -> None:
        if self.memory_limit is not None:
            limit = check_positive("memory_limit", self.memory_limit, "number of bytes")
            keep_checked(self, memory_limit=limit)

    def reduce(self, model: MarkovRandomField, evidence: Evidence | None, clock: Clock = NO_LIMIT) -> Reduction:
        """Without variables of a single state.

        Where the graph is so small that its plan is kept, all other states are forbidden instead: the plan serves any
        evidence.
        """
        kept = kept_tree(model, self.memory_limit)
        if kept is not None and (clock.limit is None or kept.seconds <= self.share * clock.limit):
            found = forbid_others(model, evidence)
            if found is not None:
                return found
        return reduce_model(model, evidence, fold_single=True, clock=clock)


@dataclass(frozen=True)
class Exact(_MemoryLimited):
    """Exact marginals and log Z, for models of small treewidth; see :func:`fastmix.exact.infer_exact`.

    ``memory_limit`` (bytes) is half of the memory that is free by default.
    """

    name: ClassVar[str] = "exact"
    guarantee: ClassVar[str] = "exact up to rounding"
    seeded: ClassVar[bool] = False
    threaded: ClassVar[bool] = False

    def budget(self) -> None:
        """As long as it takes."""

    def run(self, model: MarkovRandomField, context: Context, plan: ExactPlan | None = None) -> InferenceResult:
        """The answer, by a plan that has been made already if there is one; a time limit is met by refusing."""
        clock = context.clock
        if plan is None:
            plan = plan_exact(model, memory_limit=self.memory_limit, clock=clock, reduced=True)
            if clock.limit is not None and plan.seconds > clock.left():
                raise too_late(clock, plan.tree)
        return plan.run(clock, edge_marginals=context.edge_marginals is not False)  # they cost little


@dataclass(frozen=True)
class Auto(_MemoryLimited):
    """The method that fits the model, the memory and the time; see :func:`fastmix.infer`.

    ``memory_limit`` (bytes) is for exact inference, half of the memory that is free by default.
    """

    name: ClassVar[str] = "auto"
    shares: ClassVar[bool] = True
    on_gpu: ClassVar[bool] = True
    share: ClassVar[float] = _EXACT_SHARE / 2  # surely chosen

    def run(self, model: MarkovRandomField, context: Context) -> InferenceResult:
        """The answer of the first method that has one, with the reason in ``stats``.

        A method that guarantees nothing has the status ``unverified`` unless bounds support it
        (:func:`fastmix.methods.support.supported`).
        """
        if context.backend == "cuda":
            from fastmix.chains.cuda.device import require_cuda

            require_cuda()  # no other method is an answer to that
            context = replace(context, backend="auto")
        refusals: list[FastmixError] = []
        choices = _choices(model, self.memory_limit, context, refusals)
        while (choice := _next_choice(choices)) is not None:
            try:
                method, result, reason = self._answer(choice, model, context)
            except (NotConvergedError, ResourceError, UnfitMethodError) as error:
                refusals.append(error)
                continue
            stats = {"guarantee": method.guarantee, **result.stats, "reason": reason}
            result = replace(result, stats=stats)
            judged = result.status is not Status.OK or result.log_z_kind == "exact"
            return result if judged or not method.needs_support else supported(result, context, self.memory_limit)
        kind = ResourceError if any(isinstance(error, ResourceError) for error in refusals) else UnfitMethodError
        raise kind("no method has an answer: " + "; ".join(dict.fromkeys(map(str, refusals))))

    def _answer(
        self, choice: Choice, model: MarkovRandomField, context: Context
    ) -> tuple[Method, InferenceResult, str]:
        """What a choice led to: the method that answered, its answer, and the reason for it."""
        clock = context.clock
        if choice.plan is not None:
            limit = clock.part(_EXACT_RUN)  # by its estimate there is time, which may be wrong
            exact = Exact(self.memory_limit)
            return exact, exact.run(model, replace(context, clock=limit), choice.plan), choice.reason
        tried: InferenceResult | None = None
        if choice.trial is not None:
            tried = _run(choice.trial, model, context, clock.part(_TRIAL, quiet=True))
            reason = choice.reason
            if tried.status is Status.OK:
                reason += "; but chains from many starts agree after a short run"
            if tried.status is Status.INTERRUPTED or (
                tried.status is Status.OK and tried.stats["stopped_by"] == "done"
            ):
                return choice.trial, tried, reason
            if tried.status is Status.OK:
                choice = Choice(choice.trial, reason, trial=choice.trial)
        try:
            return choice.chosen, _run(choice.chosen, model, context, clock.part(1.0)), choice.reason
        except KeyboardInterrupt:
            if tried is None or choice.trial is None:
                raise
            stats = {**tried.stats, "stopped_by": "interrupt"}
            return choice.trial, replace(tried, status=Status.INTERRUPTED, stats=stats), choice.reason


def _choices(
    model: MarkovRandomField, memory_limit: float | None, context: Context, refusals: list[FastmixError]
) -> Iterator[Choice]:
    """The methods to try, the most fitting first, each after those before it have refused.

    Last come those that guarantee nothing but can answer for any model.
    """
    from fastmix.methods.loopy_bp import LoopyBP
    from fastmix.methods.mean_field import MeanField
    from fastmix.methods.sampler import Gibbs

    clock = context.clock
    first = _choose(model, memory_limit, clock.part(1.0), context.log_z)
    yield first
    made = {first.chosen.name}
    if first.plan is not None:
        second = _choose_other(model, "exact inference took longer than it seemed to", clock, context.log_z)
        made.add(second.chosen.name)
        yield second
    last: tuple[Method, ...] = (LoopyBP(),) if context.log_z else (Gibbs(), LoopyBP(), MeanField())
    for method in last:
        if method.name not in made and method.fits(model) is None:
            yield Choice(method, str(refusals[-1]))


def _next_choice(choices: Iterator[Choice]) -> Choice | None:
    """The next choice, None after the last."""
    try:
        return next(choices, None)
    except KeyboardInterrupt:
        raise Interrupted("interrupted while a method was chosen, before there was anything to report") from None


def _run(method: Method, model: MarkovRandomField, context: Context, clock: Clock) -> InferenceResult:
    """The answer of a method, in the time of a clock."""
    own = replace(context, clock=clock, backend=context.backend if method.on_gpu else "cpu")
    # Loopy belief propagation takes out states without a partner; a limit may be over before a kept plan runs.
    left_over = method.name == "loopy-bp" or bool((model.log_unary == -np.inf).any())
    if not left_over:
        return method.run(model, own)
    inner = method.reduce(model, None, clock)
    return method.run(inner.model, own).expanded(inner)


@dataclass(frozen=True, eq=False)
class Choice:
    """A method for a model, and the reason in a sentence."""

    chosen: Method
    reason: str
    plan: ExactPlan | None = None  # the elimination tree, when the method is exact inference
    trial: Method | None = None  # another, which is taken instead if it says ``ok`` after a share of the time


def _choose(model: MarkovRandomField, memory_limit: float | None, clock: Clock, log_z: bool) -> Choice:
    allowed = _EXACT_SHARE * (clock.limit or DEFAULT_SECONDS)
    try:
        plan = plan_exact(model, memory_limit=memory_limit, clock=Clock(allowed), reduced=True)
        if plan.seconds <= allowed:
            reason = f"treewidth {plan.tree.treewidth} is small enough for exact inference"
            return Choice(Exact(memory_limit), reason, plan)
        too_much = f"exact inference would take about {plan.seconds:.2g} s (treewidth {plan.tree.treewidth})"
    except ResourceError as error:
        if error.required_bytes is None:
            too_much = f"exact inference would take more than {allowed:.2g} s"
        else:
            too_much = f"exact inference would need {format_bytes(error.required_bytes)}"
    return _choose_other(model, too_much, clock, log_z)


def _choose_other(model: MarkovRandomField, too_much: str, clock: Clock, log_z: bool) -> Choice:
    """Where exact inference does not do."""
    if log_z:
        return _choose_log_z(model, too_much)
    from fastmix.methods.sampler import Gibbs
    from fastmix.methods.sampling_run import MOST_BURN_IN, certified_sweeps, certify_quickly

    if _dependency_seconds(model) > _DEPENDENCY_SHARE * clock.left():
        from fastmix.methods.loopy_bp import LoopyBP

        return Choice(LoopyBP(), f"{too_much}, and the factors are so large that there is no time to sample")
    certificate = certify_quickly(model, "systematic", clock)
    if certificate.certified and certificate.num_sweeps is not None and certificate.num_sweeps <= MOST_BURN_IN:
        reason = f"{too_much}, and Gibbs sampling provably mixes (dependency norm {certificate.norm_value:.3g})"
        return Choice(Gibbs(num_sweeps=_NUM_SWEEPS, burn_in=certificate.num_sweeps), reason)
    if model.num_variables <= _MOST_WIDTH and not model.num_factors and not model.has_forbidden:
        by_random = certify_quickly(model, "random-burn-in", clock)
        if by_random.certified:
            burn_in = certified_sweeps(by_random)
            reason = f"{too_much}, and Gibbs sampling provably mixes ({by_random.criterion}, random updates first)"
            return Choice(Gibbs(num_sweeps=_NUM_SWEEPS, burn_in=burn_in, schedule="random-burn-in"), reason)
    slow = f"{too_much}, and Gibbs sampling is not certified to mix (dependency norm {certificate.norm_value:.3g})"
    if (undefined := Gibbs().fits(model)) is not None:  # updates of single variables cannot do
        from fastmix.methods.loopy_bp import LoopyBP

        return Choice(LoopyBP(), f"{too_much}, and {undefined}")
    return _choose_sampler(model, slow, clock.limit or DEFAULT_SECONDS)


def _choose_log_z(model: MarkovRandomField, too_much: str) -> Choice:
    """Among the methods that have a log Z; at the start of the path of replica exchange pairs must not be forbidden."""
    from fastmix.methods.loopy_bp import LoopyBP
    from fastmix.methods.tempering.api import Tempered

    tempered = Tempered()
    if not model.has_forbidden and tempered.fits(model) is None:
        return Choice(tempered, f"{too_much}, and replica exchange estimates log Z")
    return Choice(LoopyBP(), f"{too_much}, and replica exchange has no log Z of a model with forbidden pairs")


def _choose_sampler(model: MarkovRandomField, slow: str, seconds: float) -> Choice:
    """For models that Gibbs sampling is not certified for."""
    from fastmix.methods.sampler import Gibbs, SwendsenWang
    from fastmix.methods.swendsen_wang import is_swendsen_wang
    from fastmix.methods.tempering.api import Tempered
    from fastmix.theory.dependency import edge_dependencies

    times = _ladder_seconds(model) / (_TEMPERED_SHARE * seconds)
    fits = bool(model.num_states.max(initial=1) <= _MOST_TEMPERED_STATES)
    attractive = is_swendsen_wang(model)
    total = 2.0 * float(edge_dependencies(model).max(axis=1, initial=0.0).sum()) / max(1, model.num_variables)
    gibbs = Gibbs(num_sweeps=_NUM_SWEEPS)
    if total <= _WEAK and not attractive:
        return Choice(gibbs, f"{slow}, but dependencies are weak, {total:.2g} per variable on average")
    if times <= 1.0 and fits:
        # Of attractive models chains can agree in one of two phases that they never leave.
        return Choice(Tempered(), slow, trial=None if attractive else gibbs)
    why_not = "it is large for replica exchange"
    if attractive and model.num_variables:
        starts = model.unary_offsets[:-1]
        allowed = np.where(model.log_unary > -np.inf, model.log_unary, np.inf)
        span = float((np.maximum.reduceat(model.log_unary, starts) - np.minimum.reduceat(allowed, starts)).mean())
        if span > _UNARY_SPAN[int(model.num_states.max()) > 2]:
            # Pictures to be labelled: the unaries hold clusters where they are (benchmarks/choice.py).
            return Choice(gibbs, f"{slow}; {why_not}, and unaries that span {span:.2g} leave little to cluster moves")
        reason = f"{slow}; {why_not}, and cluster moves fit this attractive model"
        return Choice(SwendsenWang(num_sweeps=_NUM_SWEEPS), reason)
    if times <= _LATE and fits and total > _STRONG:
        return Choice(Tempered(), f"{slow}; {why_not}, but the most accurate even if it does not mix")
    return Choice(gibbs, f"{slow}; {why_not}")


def _dependency_seconds(model: MarkovRandomField) -> float:
    """Time that the dependencies between the variables of all factors take, roughly."""
    structure = model.structure
    members = np.diff(structure.scope_starts).astype(float)
    entries = np.diff(structure.factor_offsets).astype(float)
    return _SECONDS_PER_DEPENDENCY * float((entries * members * (members - 1.0) / 2.0).sum())


def _ladder_seconds(model: MarkovRandomField) -> float:
    """Least time for replica exchange to make its round trips, by the size of the model: a rough guess.

    A ladder needs about 2 sqrt(n) rungs, some round trips of as many sweeps each, and four ensembles or more.
    """
    n, rungs = model.num_variables, 2.0 * model.num_variables**0.5 + 1.0
    work = max(1.0, 2.0 * model.num_edges / max(1, n) / _MANY_NEIGHBORS)
    return 4.0 * rungs * (20.0 * rungs) * n * work / _UPDATES_PER_SECOND
