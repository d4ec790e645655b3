"""``infer()``: marginals by any method of the registry."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fastmix._checks import check_flag, check_seconds
from fastmix._clock import Report
from fastmix.errors import Interrupted
from fastmix.methods.base import Method, make_method, run_method
from fastmix.model import Evidence, MarkovRandomField
from fastmix.results import InferenceResult, Status

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
    backend: str | None = None,
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
        sample that), ``annealed`` (populations of annealed Swendsen-Wang chains), ``perfect`` (independent exact
        draws), one that was added (:func:`fastmix.methods.base.register`), or a :class:`fastmix.Method` with its
        options, such as ``fastmix.Gibbs(burn_in=10)``.
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
    backend : {"cpu", "cuda", "auto"}, optional
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
        (:class:`fastmix.results.ZeroResult`).

    Raises
    ------
    ResourceError
        If the method named needs more memory or time than the limit.
    UnfitMethodError
        If the method is unknown, or cannot handle the model; nothing has been run then. Also where it makes draws and
        the model has no configuration of positive probability.
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
    limit = check_seconds(time_limit)
    bracket = check_flag("bracket", bracket)
    share = limit / 2.0 if bracket and limit is not None else limit
    result = run_method(
        chosen, model, evidence=evidence, edge_marginals=edge_marginals, log_z=log_z, seed=seed,
        num_threads=num_threads, backend=backend, time_limit=share, progress=progress, executor=executor,
    )  # fmt: skip
    return _with_bracket(result, evidence, limit, progress) if bracket and result.log_z_kind != "zero" else result


def _with_bracket(
    result: InferenceResult, evidence: Evidence | None, limit: float | None, progress: Report
) -> InferenceResult:
    """The answer with bounds beside it, found in half of the limit; not mixed where a sampler's lies outside."""
    from fastmix.bounds import bracket

    options = {**result.provenance["options"], "time_limit": limit, "bracket": True}
    result = replace(result, provenance={**result.provenance, "options": options})
    seed, share = result.provenance.get("seed"), None if limit is None else limit / 2.0
    try:
        found = bracket(result.model, evidence=evidence, time_limit=share, seed=seed, progress=progress)
    except KeyboardInterrupt as stop:
        stats = {**result.stats, "stopped_by": "interrupt"}
        kept = replace(result, bracket=getattr(stop, "result", None), status=Status.INTERRUPTED, stats=stats)
        raise Interrupted("the bracket was interrupted; the result so far is in this exception", kept) from None
    missed = found.misses(result)
    stats, status = dict(result.stats), result.status
    for name in ("seconds", "compile_seconds", "time_limit"):
        if None not in (stats[name], found.stats[name]):
            stats[name] += found.stats[name]
    if missed is not None:
        stats["note"] = f"{stats['note']}; {missed}" if stats.get("note") else missed
        is_sampler = getattr(result, "std_error", None) is not None and result.method != "projected"
        if result.status == Status.OK and is_sampler:
            status = Status.NOT_MIXED
    return replace(result, bracket=found, stats=stats, status=status)
