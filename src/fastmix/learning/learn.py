"""``learn``: a model fitted to data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from fastmix._checks import as_edges, as_path, check_backend, check_count, check_positive, describe
from fastmix._clock import Ending, Report
from fastmix._context import open_context
from fastmix.chains.place import device_of
from fastmix.learning.cheap import CheapModels, with_held_out_rows
from fastmix.learning.data import read_data
from fastmix.learning.fit import independent_fit
from fastmix.learning.gaps import without_gaps
from fastmix.learning.graph_search import learn_graph
from fastmix.learning.likelihood import Likelihood
from fastmix.learning.mixture import Mixture, better_of_both, check_mixture, learn_mixture
from fastmix.learning.objective import LearningObjective, objective_of
from fastmix.learning.penalty_search import best_found, interrupted, late
from fastmix.learning.problem import Problem
from fastmix.learning.pseudo_likelihood import PseudoLikelihood
from fastmix.learning.result import LearnResult, NormBall
from fastmix.learning.resume import Ledger, fingerprint
from fastmix.learning.set_path import learn_along_sets
from fastmix.learning.tuning import MAX_PENALTY

__all__ = ["check_penalty", "learn"]


def learn(
    data: Any,
    *,
    edges: ArrayLike | Literal["auto", "complete", "chow-liu", "l1", "grow"] = "auto",
    objective: LearningObjective | str = "likelihood",
    moments: Literal["auto", "exact", "sampled", "tempered"] = "auto",
    within: NormBall | Literal["auto"] | None = None,
    ridge: float | Literal["auto"] = 1e-3,
    l1: float | Literal["auto"] = 0.0,
    hidden: int | Mixture | Literal["auto"] = 0,
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

    Minimizes ``-(mean over the rows of log p(x)) + ridge/2 |theta|^2 + l1 sum_e |T_e|``, over a set if one is given,
    where theta are the vectors and tables of the model (which add up to 0 over every index: an Ising field counts
    ``2 h^2`` and a coupling ``4 J^2``) and ``|T_e|`` is the Frobenius norm of a table (``2 |J|``).

    What comes back is never worse, on validation data, than the independent model and the best tree: they are always
    candidates. Without validation data all are compared on the rows themselves, less what chance makes there, and,
    where rows are few, on parts of them that are held out.

    Parameters
    ----------
    data : array_like (rows, n), pandas or polars frame, or scipy.sparse matrix
        Whole numbers from 0 are states; values of a frame, and text, are categories, whose names the model keeps.
        NaN, None, masked entries and, in arrays, -1 are missing: the likelihood sums over them, or samples them given
        the others where they have too many joint states; the pseudo-likelihood, and graphs found by it, take several
        completions drawn by a pairwise model; the best tree is found by expectation maximization.
    edges : {"auto", "complete", "chow-liu", "l1", "grow"} or array (m, 2) of numbers or names of columns
        The graph. ``auto`` is the complete one, but for sparse data of many binary variables, where it is that of
        ``grow``, by a tenth of the rows where there are no validation data. ``chow-liu`` is the best tree; with the
        likelihood it is learnt in closed form, smoothed by one row, without penalties. ``l1`` learns a graph by the
        pseudo-likelihood with the l1 term, and fits it again without. ``grow`` adds edges to the tree, those first that
        promise most, while the validation data gain by it: by the likelihood for binary variables with all values, else
        by the pseudo-likelihood.
    objective : {"likelihood", "pseudo-likelihood"} or LearningObjective
        The pseudo-likelihood (the sum over variables of ``log p(x_i | x_others)``) needs no moments and is quick, and
        a little worse. One of your own derives from :class:`fastmix.learning.LearningObjective`.
    moments : {"auto", "exact", "sampled", "tempered"}
        How to find moments of the model for the likelihood: exact where the model is small or of low treewidth, else
        sampled by persistent chains. ``tempered`` chains are ladders of replica exchange, for data with modes far
        apart; they also take over where plain chains do not follow the parameters three rounds running.
    within : NormBall, WidthBall or "auto", optional
        The set to stay in. Inside one with a bound below 1, the bias of every moment is bounded at every step. ``auto``
        widens spectral balls, each fit begun at the one before, while the validation data gain and chains mix:
        ``stats["path"]`` has the score in every set, which is the price of certainty.
    ridge, l1 : float or "auto"
        Penalties; ``auto`` chooses on the validation data. Tables that the l1 term makes 0 are no edges of the model.
    hidden : int, Mixture or "auto"
        Binary variables that are never observed, joined to all others: a restricted Boltzmann machine if ``edges`` is
        ``complete``. Edges that are given may name them, as variables n, n + 1, .. A :class:`fastmix.Mixture` is one
        hidden variable of many states, with a tree of its own in place of ``edges``. ``auto`` learns the model without
        hidden variables in half of the time, then mixtures, and gives the one that the validation data like best.
    weights : array_like (rows,), optional
    num_states : int or int array (n,), optional
        State counts of whole numbers; by default one more than the largest that is seen, and 2 at least.
    validation : optional
        Data as above, for ``auto``, for :attr:`LearnResult.validation_log_likelihood` and to compare models.
    missing : int, "auto" or None
        The number that stands for a missing value: -1 in arrays by default. A table with -1 but without any 0 is
        refused then, as it may hold spins; None makes -1 and 1 the states, as categories.
    num_chains : int, optional
        Persistent chains; 1,024 to 4,096 by default.
    tol : float, optional
        Largest entry of the gradient (in scaled coordinates) at which to stop, 1e-5; or, sampled, the gain in the mean
        log-likelihood that is still promised: for each parameter a small share of what chance makes of N rows, 1/(2 N);
        5e-7 of them at least.
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
        If the data are not a table of states, or a state never occurs and nothing is penalized.
    UnfitMethodError
        If the pseudo-likelihood meets hidden variables.
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
    asked = _objective(objective, moments)
    check_backend(backend)
    ridge = check_penalty("ridge", ridge)
    l1 = check_penalty("l1", l1)
    _check_together(ridge, l1, within, has_validation=validation is not None)
    mixture = check_mixture(hidden, edges, asked, within, validation)
    num_hidden = 0 if mixture is not None else check_count("hidden", hidden, least=0)
    tol = None if tol is None else check_positive("tol", tol)
    max_iter = None if max_iter is None else check_count("max_iter", max_iter, least=1)
    num_chains = None if num_chains is None else check_count("num_chains", num_chains, least=64)
    checkpoint_seconds = check_positive("checkpoint_seconds", checkpoint_seconds, "number of seconds", or_zero=True)
    saved = None if checkpoint is None else (as_path("checkpoint", checkpoint), checkpoint_seconds)
    options = {
        "edges": edges if isinstance(edges, str) else "given",
        "objective": str(asked) if asked.name else repr(asked),
        "moments": moments,
        "within": [within.norm, within.bound] if isinstance(within, NormBall) else within,
        "ridge": ridge,
        "l1": l1,
        "hidden": hidden if isinstance(hidden, str) else num_hidden if mixture is None else str(mixture),
        "missing": missing,
        "num_chains": num_chains,
        "tol": tol,
        "max_iter": max_iter,
        "backend": backend,
    }
    with open_context(
        "learn", seed=seed, time_limit=time_limit, backend=backend, progress=progress, checkpoint=saved, options=options
    ) as context:
        rows = read_data(data, weights=weights, num_states=num_states, missing=missing)
        judges = None
        if validation is not None:
            judges = read_data(validation, model=rows.blank_model(), name="validation", missing=missing)
            judges = judges.with_hidden(num_hidden)
        edges = rows.with_hidden(num_hidden).edge_numbers(edges)
        ledger = Ledger(context.checkpoint)
        if ledger.keeps:
            graph = edges if isinstance(edges, str) else np.asarray(edges)
            ledger.resume(fingerprint(rows, judges, graph, options), context.seed)
        one_set = within if isinstance(within, NormBall) else None
        problem = Problem(rows, judges, asked, one_set, num_hidden, num_chains, tol, max_iter, context, ledger)
        if isinstance(asked, PseudoLikelihood):
            problem = without_gaps(problem)
        is_usual = moments == "auto" and l1 == 0.0 and num_chains is None and max_iter is None
        if isinstance(edges, str) and edges == "auto" and mixture is None and is_usual:
            problem = with_held_out_rows(problem)
        if hidden == "auto":
            result = better_of_both(problem, lambda pairs: _best_in_time(pairs, edges, ridge, l1))
        elif mixture is not None:
            result = learn_mixture(problem, mixture)
        else:
            result = _best_in_time(problem, edges, ridge, l1, along_sets=within == "auto")
        device = device_of(str(result.stats.get("backend", "cpu")))
        return context.finish(replace(result, provenance={"device": device}))


def _best_in_time(
    problem: Problem, edges: Any, ridge: float | str, l1: float | str, *, along_sets: bool = False
) -> LearnResult:
    """What was asked for, or, where the time or Ctrl-C ends it, the best there is by then."""
    if not isinstance(edges, str):
        n = len(problem.data.num_states) + problem.hidden
        edges = as_edges(edges, n)
    result = None
    cheap = CheapModels(problem, edges)

    def of_rows(part: Problem) -> LearnResult:
        """The fit to some rows."""
        if along_sets:
            return learn_along_sets(part, edges, ridge)
        # What is "auto" is a matter of all data, and of what is given to validate them.
        graph = "complete" if isinstance(edges, str) and edges == "auto" and part is not problem else edges
        return learn_graph(part, graph, ridge, l1)

    with Ending() as ending:
        cheap.prepare(of_rows)
        result = of_rows(problem)
    if result is None and problem.found:
        best = best_found(problem.found)
        result = interrupted(best) if ending.interrupted else late(best)
    if result is None and ending.interrupted:
        problem.context.raise_nothing(ending.by)
    return cheap.best(independent_fit(problem, ridge, l1) if result is None else result, of_rows)


# -- arguments --------------------------------------------------------------------------------------------------------


def _objective(objective: LearningObjective | str, moments: str) -> LearningObjective:
    """The objective that was asked for, by itself or by its name; moments are those of the likelihood."""
    of_moments = Likelihood(moments)
    if isinstance(objective, str) and objective == Likelihood.name:
        return of_moments
    return objective_of(objective)


def check_penalty(name: str, value: Any) -> float | Literal["auto"]:
    """A penalty as a number, or ``auto``."""
    if isinstance(value, str):
        if value != "auto":
            raise ValueError(f"{name} must be a number of at least 0 or 'auto', got {describe(value)}")
        return "auto"
    return check_positive(name, value, or_zero=True, most=MAX_PENALTY)


def _check_together(ridge: float | str, l1: float | str, within: Any, *, has_validation: bool) -> None:
    """Refuse what does not go together: ``auto`` without validation data, and an l1 term within a set."""
    is_path = isinstance(within, str) and within == "auto"
    if within is not None and not is_path and not isinstance(within, NormBall):
        raise TypeError(f"within must be a NormBall, a WidthBall, 'auto' or None, got {describe(within)}")
    for name, value in (("within", "auto" if is_path else None), ("ridge", ridge), ("l1", l1)):
        if value == "auto" and not has_validation:
            raise ValueError(f"{name}='auto' is chosen on validation data: give validation=")
    if within is not None and l1 != 0.0:
        raise ValueError("l1 must be 0 within a set: there is no step for both at once")
