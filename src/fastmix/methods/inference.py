"""Marginal inference by any method, under one roof, and the automatic choice among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast

from fastmix._checks import check_seconds, check_seed, check_threads
from fastmix._clock import NO_LIMIT, Clock
from fastmix._memory import format_bytes
from fastmix.errors import FastmixError, ResourceError, UnfitMethodError
from fastmix.exact import ExactPlan, plan_exact
from fastmix.exact.solver import too_late
from fastmix.model import Evidence, MarkovRandomField, check_model
from fastmix.results import InferenceResult, Status
from fastmix.theory.norms import Norm

if TYPE_CHECKING:
    from fastmix.projection import Divergence
    from fastmix.theory.certificates import Certificate

__all__ = ["METHODS", "Choice", "choose_method", "infer"]

_SAMPLER = ("num_chains", "num_sweeps", "burn_in", "seed", "num_threads", "time_limit", "edge_marginals", "progress")
_TEMPERED = tuple(name for name in _SAMPLER if name != "num_chains")
_PROJECTION = ("divergence", "norm", "norm_bound")
# The options that each method takes, besides the model and the evidence.
_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "auto": ("memory_limit", "seed", "num_threads", "time_limit", "edge_marginals", "progress"),
    "exact": ("memory_limit", "edge_marginals", "time_limit"),
    "mean-field": ("seed", "time_limit", "edge_marginals"),
    "loopy-bp": ("time_limit", "edge_marginals", "backend"),
    "gibbs": (*_SAMPLER, "accuracy", "checkpoint", "backend"),
    "swendsen-wang": (*_SAMPLER, "checkpoint"),
    "tempered": (*_TEMPERED, "accuracy", "backend", "norm_bound"),
    "projected": (*_SAMPLER, *_PROJECTION, "checkpoint"),
}
METHODS = tuple(_OPTIONS)

_EXACT_SECONDS = 60.0  # what the automatic choice spends on exact inference when there is no time limit
_EXACT_SHARE = 0.8  # of the time limit that the estimate may take
_TEMPERED_SHARE = 0.5  # of the time limit that round trips may take
_BIAS = 1e-3  # of every marginal after the burn-in, for certified models
_TEMPERED_SECONDS = 300.0  # of replica exchange at least, beyond which projected sampling is tried instead
_MOST_TEMPERED_STATES = 256
# Dependencies a variable on average, up to which plain Gibbs sampling is more accurate than replica exchange, and than
# a projection.
_WEAK, _STRONG = 2.3, 3.0
_LATE = 4.0  # times too large for replica exchange, up to which it is still more accurate than the others
_UPDATES_PER_SECOND = 3e8
_MOST_BURN_IN = 5000  # sweeps: half of the sweeps that are averaged by default


def infer(
    model: MarkovRandomField,
    *,
    method: str = "auto",
    evidence: Evidence | None = None,
    edge_marginals: bool | None = None,
    memory_limit: float | None = None,
    num_chains: int | None = None,
    num_sweeps: int | None = None,
    burn_in: int | None = None,
    accuracy: float | None = None,
    divergence: Divergence | None = None,
    norm: Norm | None = None,
    norm_bound: float | None = None,
    seed: int | None = None,
    num_threads: int | None = None,
    time_limit: float | None = None,
    checkpoint: str | None = None,
    backend: str | None = None,
    progress: Callable[[int, int, float], None] | None = None,
) -> InferenceResult:
    """Marginals of every variable, by the method named or the one that fits the model.

    Parameters
    ----------
    model : MarkovRandomField
    method : str
        ``auto`` (see Notes), ``exact`` (junction tree, for small treewidth), ``mean-field``, ``loopy-bp``, ``gibbs``,
        ``swendsen-wang`` (attractive Ising and Potts models), ``tempered`` (replica exchange, for strong couplings, see
        :func:`fastmix.temper`) or ``projected`` (project the model onto one that mixes fast, then sample that).
    evidence : mapping, optional
        Observed states by variable, numbers or names. The answer still lists every variable.
    edge_marginals : bool, optional
        Whether joint probabilities of neighbours are wanted; by default exact inference alone gives them.
    memory_limit : float, optional
        Bytes; half of the memory that is free by default. Exact inference only.
    num_chains, num_sweeps, burn_in, accuracy, num_threads, checkpoint
        As for :func:`fastmix.sample`. Samplers only.
    backend : {"cpu", "cuda", "auto"}, optional
        Where Gibbs sampling, replica exchange or loopy belief propagation runs: see :func:`fastmix.sample`,
        :func:`fastmix.temper` and :func:`fastmix.loopy_bp`.
    divergence, norm, norm_bound
        As for :func:`fastmix.methods.projected.infer_projected`. Projected sampling only, except that ``norm_bound``
        also says where the path of replica exchange begins.
    seed : int, optional
        Drawn and returned when not given.
    time_limit : float, optional
        Seconds, without those of compiling, after which what has been collected is returned.
    progress : callable, optional
        Called by samplers with sweeps done, sweeps in all and updates per second.

    Returns
    -------
    InferenceResult
        ``method`` is the one that ran; ``stats["guarantee"]`` says what is known about the answer, ``stats["seconds"]``
        how long it took, ``stats["compile_seconds"]`` how many of them went to compiling, ``stats["stopped_by"]`` what
        ended the run (``done``, ``accuracy``, ``time_limit``, ``interrupt``), and with ``auto`` ``stats["reason"]`` why
        the method was chosen.

    Raises
    ------
    ResourceError
        If the method named needs more memory or time than the limit.
    UnfitMethodError
        If the method named cannot handle the model; nothing has been run then.
    ModelError
        If the evidence has probability zero.

    Notes
    -----
    The automatic choice: exact inference when the treewidth fits the memory limit and the time; otherwise Gibbs
    sampling when the model is certified to mix, or when dependencies are weak and not all attractive; otherwise replica
    exchange, which answers for the model itself and says when it did not mix. For models so large that replicas would
    not make their round trips in the time there is: Swendsen-Wang if they are attractive, Gibbs sampling if
    dependencies are moderate, and projected sampling if not. Loopy belief propagation where updates of single variables
    provably cannot reach everything.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1)], coupling=1.0, field=[0.5, 0.0])
    >>> result = infer(model, evidence={0: 1})
    >>> result.method, result.marginal(1).round(4).tolist()
    ('exact', [0.1192, 0.8808])
    """
    clock = Clock(time_limit)
    check_model(model)
    if seed is not None:
        check_seed(seed)
    if num_threads is not None:
        check_threads(num_threads)
    if method not in _OPTIONS:
        raise UnfitMethodError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    options: dict[str, Any] = {
        "edge_marginals": edge_marginals, "memory_limit": memory_limit, "num_chains": num_chains,
        "num_sweeps": num_sweeps, "burn_in": burn_in, "accuracy": accuracy, "divergence": divergence, "norm": norm,
        "norm_bound": norm_bound, "seed": seed, "num_threads": num_threads, "time_limit": time_limit,
        "checkpoint": checkpoint, "backend": backend,
    }  # fmt: skip
    given = {name: value for name, value in options.items() if value is not None}
    _check_options(method, given)
    if progress is not None:
        given["progress"] = progress
    if method != "auto":
        return _run(model, method, evidence, given)
    choice = choose_method(model, evidence=evidence, memory_limit=memory_limit, time_limit=time_limit)
    given.update(choice.options)
    if time_limit is not None:
        given["time_limit"] = clock.rest()
    if choice.plan is None:
        result = _run(model, choice.method, evidence, given)
    else:
        result = _stated(_answer(choice.plan, edge_marginals is not False))
    return replace(result, stats={**result.stats, "reason": choice.reason, **clock.stats()})


@dataclass(frozen=True, eq=False)
class Choice:
    """A method for a model.

    Attributes
    ----------
    method : str
    reason : str
        In a sentence.
    options : mapping
        What the method is run with beyond the defaults.
    plan : ExactPlan or None
        The elimination tree, when the method is exact inference.
    """

    method: str
    reason: str
    options: Mapping[str, Any]
    plan: ExactPlan | None = None


def choose_method(
    model: MarkovRandomField,
    *,
    evidence: Evidence | None = None,
    memory_limit: float | None = None,
    time_limit: float | None = None,
) -> Choice:
    """The method that ``infer(method="auto")`` runs, see there.

    Examples
    --------
    >>> from fastmix.instances import ising_grid
    >>> choose_method(ising_grid(4, 4, coupling_max=1.0, seed=0)).method
    'exact'
    """
    time_limit = check_seconds(time_limit)
    allowed = _EXACT_SECONDS if time_limit is None else _EXACT_SHARE * time_limit
    try:
        plan = plan_exact(model, evidence=evidence, memory_limit=memory_limit, clock=Clock(allowed))
        if plan.seconds <= allowed:
            return Choice("exact", f"treewidth {plan.tree.treewidth} is small enough for exact inference", {}, plan)
        too_much = f"exact inference would take about {plan.seconds:.2g} s (treewidth {plan.tree.treewidth})"
    except ResourceError as error:
        if error.required_bytes is None:
            too_much = f"exact inference would take more than {allowed:.2g} s"
        else:
            too_much = f"exact inference would need {format_bytes(error.required_bytes)}"
    from fastmix.model.reduce import reduce_model

    small = reduce_model(model, evidence).model
    certificate = _certify_sweeps(small)
    if certificate.certified and certificate.num_sweeps is not None and certificate.num_sweeps <= _MOST_BURN_IN:
        reason = f"{too_much}, and Gibbs sampling provably mixes (dependency norm {certificate.norm_value:.3g})"
        return Choice("gibbs", reason, {"burn_in": certificate.num_sweeps})
    slow = f"{too_much}, and Gibbs sampling is not certified to mix (dependency norm {certificate.norm_value:.3g})"
    return _choose_without_updates(small, too_much) or _choose_sampler(small, slow, time_limit)


def _choose_without_updates(model: MarkovRandomField, too_much: str) -> Choice | None:
    """The choice where updates of single variables cannot do; None where they can."""
    from fastmix.chains.gibbs import check_conditionals

    try:
        check_conditionals(model)
    except UnfitMethodError as error:
        return Choice("loopy-bp", f"{too_much}, and {error}", {})
    return None


def _choose_sampler(model: MarkovRandomField, slow: str, time_limit: float | None) -> Choice:
    """For models that Gibbs sampling is not certified for; the thresholds are measured, see docs/choosing.md."""
    from fastmix.methods.swendsen_wang import is_swendsen_wang
    from fastmix.theory.dependency import edge_dependencies

    times = _ladder_seconds(model) / (_TEMPERED_SECONDS if time_limit is None else _TEMPERED_SHARE * time_limit)
    fits = bool(model.num_states.max(initial=1) <= _MOST_TEMPERED_STATES)
    attractive = is_swendsen_wang(model)
    total = 2.0 * float(edge_dependencies(model).max(axis=1, initial=0.0).sum()) / max(1, model.num_variables)
    if total <= _WEAK and not attractive:
        return Choice("gibbs", f"{slow}, but dependencies are weak, {total:.2g} a variable on average", {})
    if times <= 1.0 and fits:
        return Choice("tempered", slow, {})
    why_not = "it is large for replica exchange"
    if attractive:
        return Choice("swendsen-wang", f"{slow}; {why_not}, and cluster moves fit this attractive model", {})
    if model.has_forbidden:
        return Choice("gibbs", f"{slow}; {why_not}, and forbidden pairs rule out a projection", {})
    if total <= _STRONG:
        reason = f"{slow}; {why_not}, but its dependencies, {total:.2g} a variable, are weak enough for Gibbs sampling"
        return Choice("gibbs", reason, {})
    if times <= _LATE and fits:
        return Choice("tempered", f"{slow}; {why_not}, but the most accurate even if it does not mix", {})
    return Choice("projected", f"{slow}; {why_not}", {})


def _ladder_seconds(model: MarkovRandomField) -> float:
    """Least time for replica exchange to make its round trips, by the size of the model: a rough guess.

    A ladder needs about 2 sqrt(n) rungs, some round trips of as many sweeps each, and four ensembles or more.
    """
    rungs = 2.0 * model.num_variables**0.5 + 1.0
    sweeps = 20.0 * rungs
    return 4.0 * rungs * sweeps * model.num_variables / _UPDATES_PER_SECOND


def _check_options(method: str, given: Mapping[str, Any]) -> None:
    for name in given:
        if name not in _OPTIONS[method]:
            takers = [other for other, names in _OPTIONS.items() if name in names and other != "auto"]
            raise ValueError(f"{name} must not be given with method {method!r}: it is for {', '.join(takers)}")


def _run(model: MarkovRandomField, method: str, evidence: Evidence | None, options: dict[str, Any]) -> InferenceResult:
    run = _exact if method == "exact" else _method(method)
    known = {name: value for name, value in options.items() if name in _OPTIONS[method]}
    return _stated(run(model, evidence=evidence, **known))


def _method(name: str) -> Callable[..., InferenceResult]:
    """The function behind a method, imported when it is needed."""
    if name == "mean-field":
        from fastmix.methods.mean_field import mean_field

        return mean_field
    if name == "loopy-bp":
        from fastmix.methods.loopy_bp import loopy_bp

        return loopy_bp
    if name == "tempered":
        from fastmix.methods.tempering import temper

        return temper
    if name == "projected":
        from fastmix.methods.projected import infer_projected

        return infer_projected
    from fastmix.methods.sampler import sample

    return partial(sample, method=cast("Literal['gibbs', 'swendsen-wang']", name))


def _exact(
    model: MarkovRandomField,
    *,
    evidence: Evidence | None,
    memory_limit: float | None = None,
    edge_marginals: bool = True,
    time_limit: float | None = None,
) -> InferenceResult:
    """Exact inference; edge marginals come unless they are not wanted, and a time limit is met by refusing."""
    clock = Clock(time_limit)
    plan = plan_exact(model, evidence=evidence, memory_limit=memory_limit, clock=clock)
    if plan.seconds > clock.left():
        raise too_late(clock, plan.seconds, plan.tree)
    return _answer(plan, edge_marginals, clock)


def _answer(plan: ExactPlan, edge_marginals: bool, clock: Clock = NO_LIMIT) -> InferenceResult:
    """The answer of a plan, with edge marginals (which cost next to nothing) or without."""
    result = plan.run(clock)
    return result if edge_marginals else replace(result, edge_marginals=None)


_GUARANTEES = {
    "exact": "exact up to rounding",
    "mean-field": "none about the marginals; the bound on log Z is proven",
    "loopy-bp": "none, except on forests, where a converged answer is exact",
    "swendsen-wang": "exact in the limit of many sweeps; the standard errors are estimates",
    "gibbs": "exact in the limit of many sweeps; the standard errors are estimates",
    "tempered": "exact in the limit of many sweeps; standard errors are estimates, the lower bound on log Z is proven",
}


def _stated(result: InferenceResult) -> InferenceResult:
    """The result with what is guaranteed about it."""
    if "guarantee" in result.stats:
        return result
    text = _GUARANTEES[result.method]
    if result.method == "gibbs" and (text_of := _certified_text(result)):
        text = text_of
    return replace(result, stats={**result.stats, "guarantee": text})


def _certify_sweeps(model: MarkovRandomField) -> Certificate:
    """The certificate for marginals, in the order in which the sampler visits the variables."""
    from fastmix.theory.certificates import certify

    order = model.structure.visit_order[0].astype("int64")
    return certify(
        model, accuracy=_BIAS, criterion="dobrushin", per_variable=True, norm="inf", order=order
    )  # the cheapest of the norms


def _certified_text(result: InferenceResult) -> str | None:
    from fastmix.methods.sampler import SampleResult

    if not isinstance(result, SampleResult) or result.reduction is None or result.status != Status.OK:
        return None
    try:
        certificate = _certify_sweeps(result.reduction.model)
    except FastmixError:  # too large for a certificate: nothing to promise
        return None
    burn_in = int(result.stats["burn_in"])
    if not certificate.certified or certificate.num_sweeps is None or certificate.num_sweeps > burn_in:
        return None
    return f"after {burn_in} sweeps no marginal is off by more than {_BIAS:g} but for chance; intervals() are proven"
