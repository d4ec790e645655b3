"""``learn``: a model fitted to data."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from fastmix._arrays import FloatArray, IntArray
from fastmix._checks import (
    as_edges,
    as_path,
    check_backend,
    check_choice,
    check_count,
    check_positive,
    choose_seed,
    describe,
)
from fastmix._clock import Clock, OutOfTimeError, Report, listening
from fastmix.chains.base import device_of
from fastmix.errors import Interrupted, ResourceError
from fastmix.graphs import complete_bipartite_edges, complete_edges
from fastmix.graphs.basics import canonical_edges
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.data import MISSING, Dataset, read_data
from fastmix.learning.fit import Job, Size, fit, independent_fit, model_norms, moments_of_contrasts, validate
from fastmix.learning.objectives import DataTerm, ExactLikelihood, exact_model_term
from fastmix.learning.optimise import table_norms
from fastmix.learning.result import LearnResult, NormBall
from fastmix.learning.resume import Ledger, fingerprint
from fastmix.learning.structure import best_tree, edge_gains
from fastmix.model import MarkovRandomField
from fastmix.results import Status, provenance

__all__ = ["learn", "stability"]


_RIDGES = (1e-1, 1e-2, 1e-3, 1e-4)  # that "auto" tries, in this order
_LEAST_RIDGE = 1e-3  # beside an l1 term only ridges up to it are tried
_HALVINGS = range(2, 9)  # of the least l1 that leaves no edge, for those that "auto" tries, before 0
_LARGEST_PENALTY = 1e12  # parameters are then 0 up to rounding, and squares of steps still far from overflowing
_MOST_SUBSAMPLES = 1_000_000  # by which shares are known to 0.0005, and every one is a fit
_LARGEST_GRAPH = 5000  # variables of a complete graph


def learn(
    data: Any,
    *,
    edges: ArrayLike | Literal["complete", "chow-liu", "l1", "grow"] = "complete",
    objective: Literal["likelihood", "pseudo-likelihood"] = "likelihood",
    moments: Literal["auto", "exact", "sampled", "tempered"] = "auto",
    within: NormBall | None = None,
    ridge: float | Literal["auto"] = 1e-3,
    l1: float | Literal["auto"] = 0.0,
    hidden: int = 0,
    weights: ArrayLike | None = None,
    num_states: ArrayLike | None = None,
    validation: Any = None,
    missing: int | Literal["auto"] | None = "auto",
    num_chains: int | None = None,
    tol: float | None = None,
    max_iter: int | None = None,
    seed: int | None = None,
    time_limit: float | None = None,
    backend: str = "cpu",
    checkpoint: str | None = None,
    checkpoint_seconds: float = 30.0,
    progress: Report = "auto",
) -> LearnResult:
    """A :class:`LearnResult`: the model that makes the data most probable.

    Minimises ``-(mean over the rows of log p(x)) + ridge/2 |theta|^2 + l1 sum_e |T_e|``, over a set if one is given,
    where theta are the vectors and tables of the model (which add up to 0 over every index: an Ising field counts
    ``2 h^2`` and a coupling ``4 J^2``) and ``|T_e|`` is the Frobenius norm of a table (``2 |J|``).

    Parameters
    ----------
    data : array_like (rows, n), pandas or polars frame, or scipy.sparse matrix
        Whole numbers from 0 are states; values of a frame, and text, are categories, whose names the model keeps.
        NaN, None, masked entries and, in arrays, -1 are missing: the likelihood sums over them, or samples them given
        the others where they have too many joint states.
    edges : {"complete", "chow-liu", "l1", "grow"} or array (m, 2) of numbers or names of columns
        The graph. ``chow-liu`` is the best tree; with the likelihood it is learnt in closed form, smoothed by one row,
        without penalties. ``l1`` learns a graph by the pseudo-likelihood with the l1 term, and fits it again without.
        ``grow`` adds edges to the tree, those first that promise most, while the pseudo-likelihood of the validation
        data gains by it.
    objective : {"likelihood", "pseudo-likelihood"}
        The pseudo-likelihood (the sum over variables of ``log p(x_i | x_others)``) needs no moments and is quick, and
        a little worse.
    moments : {"auto", "exact", "sampled", "tempered"}
        How to find moments of the model for the likelihood: exact where the model is small or of low treewidth, else
        sampled by persistent chains. ``tempered`` chains are ladders of replica exchange, for data with modes far
        apart; they also take over where plain chains do not follow the parameters three rounds running.
    within : NormBall or WidthBall, optional
        The set to stay in. Inside one with a bound below 1, the bias of every moment is bounded at every step.
    ridge, l1 : float or "auto"
        Penalties; ``auto`` chooses on the validation data. Tables that the l1 term makes 0 are no edges of the model.
    hidden : int
        Binary variables that are never observed, joined to all others: a restricted Boltzmann machine if ``edges`` is
        ``complete``. Edges that are given may name them, as variables n, n + 1, ..
    weights : array_like (rows,), optional
    num_states : int or int array (n,), optional
        State counts of whole numbers; by default one more than the largest that is seen, and 2 at least.
    validation : optional
        Data as above, for ``auto`` and for :attr:`LearnResult.validation_log_likelihood`.
    missing : int, "auto" or None
        The number that stands for a missing value: -1 in arrays by default. A table with -1 but without any 0 is
        refused then, as it may hold spins; None makes -1 and 1 the states, as categories.
    num_chains : int, optional
        Persistent chains; 1,024 to 4,096 by default.
    tol : float, optional
        Largest entry of the gradient (in scaled coordinates) at which to stop, 1e-5; or, sampled, the gain in the mean
        log-likelihood that is still promised: for each parameter a small share of what chance makes of N rows, 1/(2 N).
    max_iter : int, optional
        Iterations (1,000), or, sampled, rounds of sweeps (200).
    seed : int, optional
        Drawn and returned when not given.
    time_limit : float, optional
        Seconds, compiling not included; the best model by then is returned.
    backend : {"cpu", "cuda", "auto"}
        Where chains run.
    checkpoint : str, optional
        A file to which the run is saved every ``checkpoint_seconds``, and from which it goes on if it exists, with its
        seed: sampled likelihoods from their last round, a search for penalties after its last finished fit. A run
        without a time limit then ends with the same bits as one that was never interrupted.
    progress : "auto", None or callable
        As for :func:`fastmix.sample`; the :class:`fastmix.Progress` has the moment error in its ``details``.

    Raises
    ------
    ModelError
        If the data are not a table of states, or a state never occurs and nothing is penalised.
    UnfitMethodError
        If the pseudo-likelihood meets missing values or hidden variables.
    ResourceError
        If exact moments have too many states, of the model or of missing values.
    Interrupted
        On Ctrl-C: a KeyboardInterrupt whose ``result`` is the best model so far, None before there is one.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.integers(0, 2, size=(1000, 1))
    >>> data = np.hstack([x, x ^ (rng.random((1000, 2)) < 0.1)])
    >>> result = learn(data, ridge=1e-4)
    >>> result.status, result.moments, bool(result.moment_error < 0.01)
    (<Status.OK: 'ok'>, 'enumeration', True)
    """
    check_choice("objective", objective, ("likelihood", "pseudo-likelihood"))
    check_choice("moments", moments, ("auto", "exact", "sampled", "tempered"))
    check_backend(backend)
    if within is not None and not isinstance(within, NormBall):
        raise TypeError(f"within must be a NormBall, a WidthBall or None, got {describe(within)}")
    for name, value in (("ridge", ridge), ("l1", l1)):
        if isinstance(value, str) and value == "auto" and validation is None:
            raise ValueError(f"{name}='auto' is chosen on validation data: give validation=")
    ridge = _check_penalty("ridge", ridge)
    l1 = _check_penalty("l1", l1)
    if within is not None and (l1 == "auto" or l1):
        raise ValueError("l1 must be 0 within a set: there is no step for both at once")
    hidden = check_count("hidden", hidden, least=0)
    tol = None if tol is None else check_positive("tol", tol)
    max_iter = None if max_iter is None else check_count("max_iter", max_iter, least=1)
    num_chains = None if num_chains is None else check_count("num_chains", num_chains, least=64)
    if checkpoint is not None:
        checkpoint = as_path("checkpoint", checkpoint)
    checkpoint_seconds = check_positive("checkpoint_seconds", checkpoint_seconds, "number of seconds", or_zero=True)
    ledger = Ledger(checkpoint, checkpoint_seconds)
    seed = choose_seed(ledger.seed if seed is None else seed)
    options = {
        "edges": edges if isinstance(edges, str) else "given", "objective": objective, "moments": moments,
        "within": None if within is None else [within.norm, within.bound], "ridge": ridge, "l1": l1, "hidden": hidden,
        "missing": missing, "num_chains": num_chains, "tol": tol, "max_iter": max_iter, "backend": backend,
    }  # fmt: skip
    with listening(progress, "learn") as listener:
        clock = Clock(time_limit, listener=listener, what="learn")
        table = read_data(data, weights=weights, num_states=num_states, missing=missing)
        checked = None
        if validation is not None:
            checked = read_data(validation, model=table.blank_model(), name="validation", missing=missing).with_hidden(
                hidden
            )
        edges = table.with_hidden(hidden).edge_numbers(edges)
        job = Job(
            table, checked, objective, moments, within, hidden, num_chains, tol, max_iter, seed, clock, backend, ledger
        )
        if ledger.keeps:
            graph = edges if isinstance(edges, str) else np.asarray(edges)
            ledger.resume(fingerprint(table, checked, graph, options), seed)
        try:
            result = _run(job, edges, ridge, l1)
        except KeyboardInterrupt:
            if not job.found:
                raise
            result = _interrupted(_best_found(job))
        except OutOfTimeError:
            result = _late(_best_found(job)) if job.found else independent_fit(job, ridge, l1)
    device = device_of(str(result.stats.get("backend", "cpu")))
    result = replace(
        result,
        stats={**result.stats, **clock.stats()},
        provenance=provenance(result.model, seed=seed, device=device, **options, time_limit=time_limit),
    )
    if result.status is Status.INTERRUPTED:
        raise Interrupted("learning was interrupted; the best model so far is in this exception", result)
    return result


def _check_penalty(name: str, value: Any) -> float | Literal["auto"]:
    """A penalty as a number, or ``auto``."""
    if isinstance(value, str):
        if value != "auto":
            raise ValueError(f"{name} must be a number of at least 0 or 'auto', got {describe(value)}")
        return "auto"
    return check_positive(name, value, or_zero=True, most=_LARGEST_PENALTY)


def _graph(job: Job, edges: Any) -> IntArray:
    n, hidden = len(job.data.num_states), job.hidden
    if isinstance(edges, str):
        check_choice("edges", edges, ("complete", "chow-liu", "l1", "grow"))
        if n > _LARGEST_GRAPH:
            raise ResourceError(
                f"a complete graph of {n:,} variables is too large: give edges, or use edges='chow-liu'"
            )
        Size.of_complete(job.data.num_states, hidden).check(job)
        return complete_bipartite_edges(n, hidden) if hidden else complete_edges(n)
    return canonical_edges(n + hidden, as_edges(edges, n + hidden))


def _run(job: Job, edges: Any, ridge: float | str, l1: float | str) -> LearnResult:
    if isinstance(edges, str) and edges == "chow-liu":
        if job.hidden:
            raise ValueError("hidden variables need edges='complete' or a list of edges")
        tree = best_tree(job.data.merged()[0], 1.0, job.clock)
        if job.objective == "likelihood" and job.within is None:
            return _closed_form(job, tree)
        edges = tree.edges
    if isinstance(edges, str) and edges == "grow":
        grown = _grow(job, ridge)
        if grown.status is Status.INTERRUPTED:
            return grown
        edges = grown.model.edges
    graph = _graph(job, edges)
    if isinstance(edges, str) and edges == "l1":
        if l1 == 0.0:
            raise ValueError("edges='l1' needs a positive l1, or l1='auto' with validation data")
        first = replace(job, objective="pseudo-likelihood", within=None)
        found = _search(first, graph, ridge, l1)
        if found.status is Status.INTERRUPTED:
            return found
        kept = _search(job, found.model.edges, ridge, 0.0)
        if found.stats["stopped_by"] == "time_limit" and kept.status is Status.OK:
            kept = _late(kept)  # the graph is that of an unfinished fit
        return replace(kept, l1=found.l1)
    return _search(job, graph, ridge, l1)


def _grow(job: Job, ridge: float | str) -> LearnResult:
    """The best tree with edges added, a tenth of what is there at a time, while the validation data gain by it."""
    if job.validation is None:
        raise ValueError("edges='grow' stops by validation data: give validation=")
    if job.hidden:
        raise ValueError("hidden variables need edges='complete' or a list of edges")
    quick = replace(job, objective="pseudo-likelihood", within=None, rough=True)
    weight, data = 1e-3 if ridge == "auto" else ridge, job.data.merged()[0]
    best = fit(quick, best_tree(data, 1.0, job.clock).edges, weight, 0.0)
    while best.status is not Status.INTERRUPTED:
        model = best.model
        Size.of_complete(data.num_states, 0).check(job)  # as many pairs are looked at
        pairs, gains = edge_gains(model, data)
        new = pairs[gains > 0.0][: max(1, model.num_edges // 10)]
        if not len(new):
            break
        edges = canonical_edges(model.num_variables, np.concatenate([model.edges, new]))
        wider = fit(quick, edges, weight, 0.0, model)
        if wider.status is Status.INTERRUPTED:
            return _interrupted(best)
        if _quality(wider) <= _quality(best):
            break
        best = wider
    return best


def _interrupted(best: LearnResult) -> LearnResult:
    """The best fit so far, of a search that Ctrl-C ended."""
    return replace(best, status=Status.INTERRUPTED, stats={**best.stats, "stopped_by": "interrupt"})


def _late(best: LearnResult) -> LearnResult:
    """The best fit so far, of a search that had no time for the rest."""
    return replace(best, status=Status.NOT_CONVERGED, stats={**best.stats, "stopped_by": "time_limit"})


def _best_found(job: Job) -> LearnResult:
    """The best of the fits that have the objective of the last one."""
    alike = [r for r in job.found if r.objective == job.found[-1].objective]
    return max(reversed(alike), key=_quality)


def stability(
    data: Any,
    *,
    l1: float,
    ridge: float = 1e-3,
    num_subsamples: int = 20,
    weights: ArrayLike | None = None,
    missing: int | Literal["auto"] | None = "auto",
    seed: int | None = None,
) -> FloatArray:
    """How often (n, n) every pair is an edge of the graph that the l1 term leaves, over random halves of the rows.

    Pairs near 1 are found again and again; those near 0.5 depend on which rows happen to be there [1]_.

    References
    ----------
    .. [1] N. Meinshausen and P. Buehlmann, "Stability selection", Journal of the Royal Statistical Society B 72, 2010.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.integers(0, 2, size=(400, 3))
    >>> x[:, 1] = x[:, 0] ^ (rng.random(400) < 0.1)
    >>> stability(x, l1=0.2, num_subsamples=5, seed=0).tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    l1 = check_positive("l1", l1, most=_LARGEST_PENALTY)
    ridge = check_positive("ridge", ridge, or_zero=True, most=_LARGEST_PENALTY)
    num_subsamples = check_count("num_subsamples", num_subsamples, least=1, most=_MOST_SUBSAMPLES)
    rng = np.random.default_rng(choose_seed(seed))
    table = read_data(data, weights=weights, missing=missing)
    n, rows = len(table.num_states), len(table.states)
    found = np.zeros((n, n))
    for _ in range(num_subsamples):
        half = rng.choice(rows, size=max(1, rows // 2), replace=False)
        part = read_data(replace(table, states=table.states[half], num_rows=len(half)), weights=table.weights[half])
        i, j = learn(part, objective="pseudo-likelihood", l1=l1, ridge=ridge, tol=1e-4, seed=0).model.edges.T
        found[i, j] += 1.0
    return (found + found.T) / num_subsamples


def _closed_form(job: Job, tree: MarkovRandomField) -> LearnResult:
    coordinates = Coordinates(tree.structure)
    v, _ = coordinates.from_parameters(tree.parameters)
    model = tree.with_parameters(coordinates.to_parameters(v)).replace(log_constant=0.0)
    data = job.data.merged()[0]
    value = error = None
    with contextlib.suppress(OutOfTimeError):  # the tree is there
        goal = ExactLikelihood(exact_model_term(coordinates, asked=True), DataTerm(coordinates, data, clock=job.clock))
        value, gradient = goal.evaluate(v)
        error = coordinates.moment_error(gradient)
    validation, _ = validate(job, model, data)
    return LearnResult(
        model=model, objective="likelihood", moments="closed form", status=Status.OK, value=value,
        ridge=0.0, l1=0.0, within=None, norms=model_norms(model, job.clock), moment_error=error,
        bias_bound=None, validation_log_likelihood=validation, num_rows=job.data.num_rows, seed=job.seed,
        stats={"stopped_by": "done", "num_iterations": 0},
    )  # fmt: skip


def _search(job: Job, graph: IntArray, ridge: float | str, l1: float | str) -> LearnResult:
    """The fit with penalties as given, or the best on the validation data of those that ``auto`` tries."""
    tried: list[LearnResult] = []
    start = None
    # Where their tables are 0 hidden variables have no gradient, so the weakest penalties come first: from there on a
    # penalty can make tables 0 that the data do not need.
    order = -1 if job.hidden else 1
    if l1 == "auto":
        quick = job
        if job.objective == "likelihood" and not job.hidden and not job.data.has_missing:
            # Fits of the pseudo-likelihood, which is quick, are judged by the likelihood. Penalties must be twice as
            # large for the same effect: a table is in the conditionals of both of its variables.
            quick = replace(job, objective="pseudo-likelihood", judge="likelihood", scale=2.0)
        weight = float(min(_RIDGES) if ridge == "auto" else ridge)
        last = job.objective == "pseudo-likelihood" and ridge != "auto"
        path = _l1_path(job.data.merged()[0].with_hidden(job.hidden), graph)[::order]
        tried = _try(quick, graph, [(weight, value) for value in path], 0 if last else len(path) // 2)
        best = max(tried, key=_quality)
        if tried[-1].status is Status.INTERRUPTED:
            return _interrupted(best)
        if last:
            return replace(best, stats={**best.stats, "tried": _tried(tried)})
        l1, start = best.l1, best.model if best.l1 else None  # without it there can be modes that the data do not have
    if ridge == "auto":
        ridges = [r for r in _RIDGES if not l1 or r <= _LEAST_RIDGE][::order]
        fits = _try(job, graph, [(value, l1) for value in ridges], 2, start)
        tried += fits
        best = max(fits, key=_quality)
        if fits[-1].status is Status.INTERRUPTED:
            return _interrupted(best)
        if best.moments not in ("sampled", "tempered"):
            return replace(best, stats={**best.stats, "tried": _tried(tried)})
        ridge, start = best.ridge, best.model
    if job.hidden and l1 and start is None:
        start = fit(replace(job, rough=True), graph, ridge, 0.0).model
    found = fit(job, graph, ridge, l1, start)
    if not tried:
        return found
    if found.status is Status.INTERRUPTED and not found.history:
        found = _interrupted(best)
    if found.status is Status.OK and any(math.isinf(_quality(r)) for r in tried):
        found = replace(found, status=Status.NOT_CONVERGED)  # no time was left to judge some of them
    return replace(found, stats={**found.stats, "tried": _tried(tried)})


def _l1_path(data: Dataset, graph: IntArray) -> list[float]:
    """L1 terms to try: halves, quarters, .. of the least one that leaves the independent model as it is; 0 last.

    The gradient of the likelihood there, in the table of an edge, is the covariance of its contrasts over the data.
    """
    coordinates = Coordinates(data.blank_model(graph).structure)
    means, _ = moments_of_contrasts(coordinates, data)
    seen = np.repeat(data.states != MISSING, np.diff(coordinates.starts), axis=1)
    centred = np.where(seen, coordinates.encode(data.states) - means, 0.0)
    products = centred.T @ (data.weights[:, None] * centred)
    largest = float(table_norms(coordinates, coordinates.gather(means, products)).max(initial=0.0))
    return [(largest or 0.5) * 2.0**-k for k in _HALVINGS] + [0.0]  # 1/2: no covariance of two contrasts is larger


def _try(
    job: Job, graph: IntArray, penalties: Sequence[tuple[Any, Any]], rest: int, start: MarkovRandomField | None = None
) -> list[LearnResult]:
    """Fits with penalties (ridge, l1), each from the model before, until they get worse twice or an interrupt.

    All have the same share of the time, and ``rest`` such shares are left. One that cannot be judged in its share is
    the last: those after it would take longer.
    """
    tried: list[LearnResult] = []
    for k, (ridge, l1) in enumerate(penalties):
        clock = job.clock.part(1.0 / (len(penalties) - k + rest), f"learn with ridge {ridge:g}, l1 {l1:g}")
        tried.append(fit(replace(job, rough=True, clock=clock), graph, ridge, l1, start))
        start = tried[-1].model
        worse = len(tried) > 2 and _quality(tried[-1]) < _quality(tried[-2]) < _quality(tried[-3])
        if worse or tried[-1].status is Status.INTERRUPTED or math.isinf(_quality(tried[-1])):
            break
    return tried


def _quality(result: LearnResult) -> float:
    value = result.validation_log_likelihood
    return -math.inf if value is None or math.isnan(value) else value


def _tried(results: Sequence[LearnResult]) -> list[dict[str, Any]]:
    return [
        {"ridge": r.ridge, "l1": r.l1, "num_edges": r.model.num_edges, "validation_log_likelihood": _quality(r)}
        for r in results
    ]
