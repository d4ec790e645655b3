"""``infer()``: marginals by any method of the registry."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from fastmix._checks import check_flag
from fastmix._clock import Ending, Report
from fastmix._context import DEFAULT_LIMITS, Context
from fastmix._memory import available_memory
from fastmix.inference.tuning import MIN_BRACKET_SECONDS
from fastmix.marginals import InferenceResult
from fastmix.method import Method, answer, make_method, open_method
from fastmix.model import Evidence, MarkovRandomField
from fastmix.results import Status

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = ["infer"]


def infer(
    model: MarkovRandomField,
    *,
    method: str | Method = "auto",
    evidence: Evidence | None = None,
    edge_marginals: bool | None = None,
    log_z: bool = False,
    seed: int | None = None,
    num_threads: int | None = None,
    backend: Literal["cpu", "cuda", "auto"] = "cpu",
    time_limit: float | None = None,
    progress: Report = "auto",
    bracket: bool = False,
    executor: Executor | None = None,
    **options: Any,
) -> InferenceResult:
    """Marginals of every variable, by the method named or the one that fits the model.

    Parameters
    ----------
    model : MarkovRandomField
    method : str or Method
        ``auto`` (exact inference when the treewidth fits the memory and the time, otherwise by the rules of
        docs/choosing.md), ``exact``, ``mean-field``, ``loopy-bp``, ``gibbs``, ``swendsen-wang`` (attractive Ising and
        Potts models), ``tempered`` (replica exchange), ``projected`` (project the model onto one that mixes fast, then
        sample that), ``annealed`` (populations of annealed chains), ``multicanonical`` (chains that walk through all
        energies, for first-order transitions), ``perfect`` (independent exact draws), ``ganak`` (a model counter for
        many zeros, in the extra ``count``), one that was added (:func:`fastmix.register_method`), or a
        :class:`fastmix.Method` with its options, such as ``fastmix.Gibbs(burn_in=10)``.
    evidence : mapping, optional
        Observed states by variable, numbers or names. The answer still lists every variable.
    edge_marginals : bool, optional
        Whether joint probabilities of neighbors are wanted; by default exact inference alone gives them.
    log_z : bool
        Whether log Z is wanted: ``auto`` takes a method that has one, others that have none are refused.
    seed : int, optional
        Drawn and returned when not given. Methods without random numbers, such as ``exact``, make no use of it.
    num_threads : int, optional
        All cores by default. Methods that run on one core make no use of it.
    backend : {"cpu", "cuda", "auto"}
        Where Gibbs sampling or replica exchange runs, see their functions. Other methods run on the CPU, and refuse
        ``cuda``; with ``auto`` it needs a GPU, which is used if one of those two is what is chosen.
    time_limit : float, optional
        Seconds, without those of compiling, after which what has been collected is returned. Without it 60 seconds
        hold (``stats["time_limit"]``), except for exact and perfect inference by name, and for samplers that were told
        their ``num_sweeps``, ``accuracy`` or ``checkpoint``: those run to their end.
    progress : "auto", None or callable
        ``auto`` shows a bar on stderr, in terminals and notebooks, once the call has lasted two seconds; a function is
        called with a :class:`fastmix.Progress`.
    bracket : bool
        Add proven bounds (:func:`fastmix.bracket`) as ``bracket`` of the result, in half of the time limit. A sampler's
        answer that lies outside of them by more than four standard errors has the status ``not_mixed``.
    executor : concurrent.futures.Executor, optional
        Shares the chains of ``gibbs``, ``swendsen-wang`` or ``tempered`` out, see :func:`fastmix.sample`.
    **options
        Of the method, when it is given by name, such as ``burn_in=10`` with ``gibbs``: the fields of its class
        (:class:`fastmix.Gibbs` and so on). An option of another method is refused.

    Returns
    -------
    InferenceResult
        ``method`` is the one that ran; ``stats["guarantee"]`` says what is known about the answer, ``stats["seconds"]``
        how long it took, ``stats["compile_seconds"]`` how many of them went to compiling, ``stats["stopped_by"]`` what
        ended the run (``done``, ``accuracy``, ``time_limit``, ``interrupt``), and with ``auto`` ``stats["reason"]`` why
        the method was chosen. Where ``auto`` had to take a method that guarantees nothing, such as belief propagation,
        its status is ``unverified`` unless proven bounds show that no marginal is off by more than 0.05. Where Z = 0
        is proven, ``log_z`` is -inf, ``log_z_kind`` is ``zero`` and there are no marginals
        (:class:`fastmix.marginals.ZeroResult`).

    Raises
    ------
    ResourceError
        If the method named needs more memory or time than the limit.
    ValueError
        If the method is unknown, or an argument is not valid.
    UnfitMethodError
        If the method cannot handle the model; nothing has been run then. Also where it makes draws and the model has no
        configuration of positive probability.
    ImpossibleEvidenceError
        If the evidence has probability zero.
    Interrupted
        On Ctrl-C: a KeyboardInterrupt whose ``result`` is the answer so far, None before there is one.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1)], coupling=1.0, field=[0.5, 0.0])
    >>> result = infer(model, evidence={0: 1})
    >>> result.method, result.marginal(1).round(4).tolist()
    ('exact', [0.1192, 0.8808])
    >>> infer(model, method="gibbs", burn_in=10, num_sweeps=500, seed=1).stats["burn_in"]
    10
    """
    chosen = make_method(method, options)
    bounded = check_flag("bracket", bracket)
    with open_method(
        chosen, model, evidence=evidence, edge_marginals=edge_marginals, log_z=log_z, seed=seed,
        num_threads=num_threads, backend=backend, time_limit=time_limit, progress=progress, executor=executor,
        certify=True,
    ) as context:  # fmt: skip
        if not bounded:
            return context.finish(answer(chosen, context))
        context = replace(context, options={**context.options, "bracket": True})
        result = answer(chosen, context.within("answer", context.clock.part(0.5)))
        if result.log_z_kind != "zero" and result.status is not Status.INTERRUPTED:
            result = _with_bracket(result, context)
        return context.finish(result)


def _with_bracket(result: InferenceResult, context: Context) -> InferenceResult:
    """The answer with proven bounds beside it; ``not_mixed`` where the answer of a sampler lies outside of them.

    The bounds are found in what is left of the time, in half of the limit at most.
    """
    from fastmix.bounds.bracket import find_bracket

    whole = context.clock
    limited = whole.part(1.0, "bracket")
    limited.limit = DEFAULT_LIMITS["bracket"]
    if whole.limit is not None:
        limited.limit = max(MIN_BRACKET_SECONDS, min(whole.left(), whole.limit / 2.0))
    part = context.within("bracket", limited)
    found = None
    with Ending():
        found = part.complete(find_bracket(result.model, part, memory=available_memory() / 2))
    if found is None or found.status is Status.INTERRUPTED:
        stats = {**result.stats, "stopped_by": "interrupt"}
        return replace(result, bracket=found, status=Status.INTERRUPTED, stats=stats)
    missed = found.misses(result)
    if missed is None:
        return replace(result, bracket=found)
    note = result.stats.get("note")
    stats = {**result.stats, "note": f"{note}; {missed}" if note else missed}
    doubted = result.status is Status.OK and _samples_its_model(result)
    return replace(result, bracket=found, stats=stats, status=Status.NOT_MIXED if doubted else result.status)


def _samples_its_model(result: InferenceResult) -> bool:
    """Whether an answer has standard errors of chains or draws of its model itself, and not of a projected one."""
    from fastmix.inference.projected import ProjectedResult

    return result.std_error is not None and not isinstance(result, ProjectedResult)
