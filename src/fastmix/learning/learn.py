"""``learn``: a model fitted to data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix._checks import as_edges, check_choice, check_count, check_positive, choose_seed, describe
from fastmix._clock import Clock
from fastmix.errors import ModelError, ResourceError, UnfitMethodError
from fastmix.graphs import complete_bipartite_edges, complete_edges
from fastmix.graphs.basics import canonical_edges
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.data import MISSING, Dataset, read_data
from fastmix.learning.machines import MACHINE_CHAINS, is_machine, learn_machine
from fastmix.learning.objectives import (
    DataTerm,
    ExactLikelihood,
    ModelTerm,
    Objective,
    PseudoLikelihood,
    exact_model_term,
)
from fastmix.learning.optimise import Ball, Scaling, minimise, table_norms
from fastmix.learning.sampled import sampled_likelihood
from fastmix.learning.score import LogZ, log_masses, log_normaliser, make_pool, pseudo_log_likelihoods
from fastmix.learning.structure import chow_liu, edge_gains
from fastmix.model import MarkovRandomField
from fastmix.projection import ProjectionResult, project
from fastmix.results import Status, jsonable, provenance
from fastmix.theory import norms
from fastmix.theory.dependency import dependency_matrix

__all__ = ["LearnResult", "NormBall", "learn", "stability"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_RIDGES = (1e-4, 1e-3, 1e-2, 1e-1)  # that "auto" tries
_LEAST_RIDGE = 1e-3  # beside an l1 term only ridges up to it are tried
_L1S = (1e-3, 3e-3, 1e-2, 2e-2, 4e-2)
_TOL = 1e-5  # of exact objectives, in scaled coordinates
_SAMPLED_TOL = 2e-3  # of the sampled likelihood, in its own units; or, of small models, as much per parameter
_SAMPLED_TOL_EACH = 2e-6
_TAME = 1e-2  # least ridge of the pseudo-likelihood where the sampled likelihood begins
_ROUGH = 5.0  # times the tolerance where penalties are chosen
_LARGEST = 40.0  # entries of a table beyond which an unpenalised optimum is at infinity
_LARGEST_GRAPH = 5000  # variables of a complete graph


@dataclass(frozen=True)
class NormBall:
    """The models whose dependency matrix (bound ``range``) has a norm of at most ``bound``: a convex set.

    With ``bound < 1`` Gibbs sampling provably mixes fast there (:func:`fastmix.certify`); 2.5 is the paper's practical
    choice.

    Examples
    --------
    >>> NormBall(norm="inf", bound=0.9).certified
    True
    """

    norm: Literal["spectral", "inf", "1", "frobenius"] = "spectral"
    bound: float = 2.5

    def __post_init__(self) -> None:
        check_choice("norm", self.norm, norms.NORMS)
        check_positive("bound", self.bound)

    @property
    def certified(self) -> bool:
        """Whether all models within mix fast."""
        return self.bound < 1.0


@dataclass(frozen=True, eq=False, repr=False)
class LearnResult:
    """A model fitted to data, and what is known about the fit.

    Attributes
    ----------
    model : MarkovRandomField
        With the names of the data; its vectors and tables add up to 0 over every index. Hidden variables come last.
    objective : str
        ``likelihood`` or ``pseudo-likelihood``.
    moments : str
        How moments of the model were found: ``closed form``, ``enumeration``, ``junction tree``, ``sampled``; ``none``
        for the pseudo-likelihood.
    status : Status
        ``not_converged`` if the optimum was not reached, ``not_mixed`` if the chains did not follow the model.
    value : float or None
        The objective that was minimised, penalties included; None where it was sampled.
    ridge, l1 : float
        As given, or as chosen on the validation data.
    within : NormBall or None
    norms : mapping
        Norms of the dependency matrix (bound ``sigmoid``) of the model: ``spectral`` and ``inf``. Below 1 Gibbs
        sampling provably mixes fast.
    moment_error : float or None
        Largest difference between probabilities of states and pairs of the model and of the data. Penalties and a set
        to stay in keep it above 0.
    bias_bound : float or None
        In a set with a bound below 1: no moment of the last step had a larger bias.
    validation_log_likelihood : float or None
        Mean over the validation data (of the log-pseudo-likelihood, for that objective).
    num_rows : int
    seed : int
    history : list of dict
        Iterations with the objective or the norm of its gradient, the moment error, the step.
    stats, provenance : mapping
    """

    model: MarkovRandomField
    objective: str
    moments: str
    status: Status
    value: float | None
    ridge: float
    l1: float
    within: NormBall | None
    norms: Mapping[str, float]
    moment_error: float | None
    bias_bound: float | None
    validation_log_likelihood: float | None
    num_rows: int
    seed: int
    history: list[dict[str, Any]] = field(default_factory=list)
    stats: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return (
            f"LearnResult({self.objective}, status={str(self.status)!r}, ridge={self.ridge:g}, l1={self.l1:g}, "
            f"spectral norm {self.norms['spectral']:.3g}, {self.model})"
        )

    def to_dict(self) -> dict[str, Any]:
        """The result without the model as plain data, the shape of the command line's JSON."""
        within = None if self.within is None else {"norm": self.within.norm, "bound": self.within.bound}
        facts = {
            "objective": self.objective,
            "moments": self.moments,
            "value": self.value,
            "num_rows": self.num_rows,
            "num_variables": self.model.num_variables,
            "num_edges": self.model.num_edges,
            "ridge": self.ridge,
            "l1": self.l1,
            "within": within,
            "norms": dict(self.norms),
            "moment_error": self.moment_error,
            "bias_bound": self.bias_bound,
            "validation_log_likelihood": self.validation_log_likelihood,
            "seed": self.seed,
        }
        return {
            "status": str(self.status),
            **jsonable(facts),
            "seconds": self.stats.get("seconds"),
            "stats": jsonable(dict(self.stats)),
            "provenance": jsonable(dict(self.provenance)),
        }


def learn(
    data: Any,
    *,
    edges: ArrayLike | Literal["complete", "chow-liu", "l1", "grow"] = "complete",
    objective: Literal["likelihood", "pseudo-likelihood"] = "likelihood",
    moments: Literal["auto", "exact", "sampled"] = "auto",
    within: NormBall | None = None,
    ridge: float | Literal["auto"] = 1e-3,
    l1: float | Literal["auto"] = 0.0,
    hidden: int = 0,
    weights: ArrayLike | None = None,
    num_states: ArrayLike | None = None,
    validation: Any = None,
    num_chains: int | None = None,
    tol: float | None = None,
    max_iter: int | None = None,
    seed: int | None = None,
    time_limit: float | None = None,
    backend: str = "cpu",
    progress: Callable[[Mapping[str, Any]], None] | None = None,
) -> LearnResult:
    """A :class:`LearnResult`: the model that makes the data most probable.

    Minimises ``-(mean over the rows of log p(x)) + ridge/2 |theta|^2 + l1 sum_e |T_e|``, over a set if one is given,
    where theta are the vectors and tables of the model (which add up to 0 over every index: an Ising field counts
    ``2 h^2`` and a coupling ``4 J^2``) and ``|T_e|`` is the Frobenius norm of a table (``2 |J|``).

    Parameters
    ----------
    data : array_like (rows, n), pandas or polars frame, or scipy.sparse matrix
        Whole numbers from 0 are states; values of a frame, and text, are categories, whose names the model keeps.
        NaN, None, masked entries and, in arrays, -1 are missing: the likelihood sums over them.
    edges : {"complete", "chow-liu", "l1", "grow"} or array (m, 2)
        The graph. ``chow-liu`` is the best tree; with the likelihood it is learnt in closed form, smoothed by one row,
        without penalties. ``l1`` learns a graph by the pseudo-likelihood with the l1 term, and fits it again without.
        ``grow`` adds edges to the tree, those first that promise most, while the pseudo-likelihood of the validation
        data gains by it.
    objective : {"likelihood", "pseudo-likelihood"}
        The pseudo-likelihood (the sum over variables of ``log p(x_i | x_others)``) needs no moments and is quick, and
        a little worse.
    moments : {"auto", "exact", "sampled"}
        How to find moments of the model for the likelihood: exact where the model is small or of low treewidth, else
        sampled by persistent chains, from the optimum of the pseudo-likelihood on.
    within : NormBall, optional
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
    num_chains : int, optional
        Persistent chains; 1,024 to 4,096 by default.
    tol : float, optional
        Largest entry of the gradient (in scaled coordinates) at which to stop, 1e-5; or, sampled, the gain in the mean
        log-likelihood that is still promised, 2e-3, or 2e-6 for each parameter of a small model.
    max_iter : int, optional
        Iterations (1,000), or, sampled, rounds of sweeps (200).
    seed : int, optional
        Drawn and returned when not given.
    time_limit : float, optional
        Seconds, compiling not included; the best model by then is returned.
    backend : {"cpu", "cuda", "auto"}
        Where chains run.
    progress : callable, optional
        Called with the latest entry of the history.

    Raises
    ------
    ModelError
        If the data are not a table of states, or a state never occurs and nothing is penalised.
    UnfitMethodError
        If the pseudo-likelihood meets missing values or hidden variables.
    ResourceError
        If exact moments, or missing values, have too many states.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.integers(0, 2, size=(1000, 1))
    >>> data = np.hstack([x, x ^ (rng.random((1000, 2)) < 0.1)])
    >>> result = learn(data, ridge=1e-4)
    >>> result.status, result.moments, bool(result.moment_error < 0.01)
    (<Status.OK: 'ok'>, 'enumeration', True)
    """
    clock = Clock(time_limit)
    check_choice("objective", objective, ("likelihood", "pseudo-likelihood"))
    check_choice("moments", moments, ("auto", "exact", "sampled"))
    if within is not None and not isinstance(within, NormBall):
        raise TypeError(f"within must be a NormBall or None, got {describe(within)}")
    for name, value in (("ridge", ridge), ("l1", l1)):
        if isinstance(value, str):
            check_choice(name, value, ("auto",))
            if validation is None:
                raise ValueError(f"{name}='auto' is chosen on validation data: give validation=")
        else:
            check_positive(name, value, or_zero=True)
    hidden = check_count("hidden", hidden, least=0)
    tol = None if tol is None else check_positive("tol", tol)
    max_iter = None if max_iter is None else check_count("max_iter", max_iter, least=1)
    num_chains = None if num_chains is None else check_count("num_chains", num_chains, least=64)
    seed = choose_seed(seed)
    table = read_data(data, weights=weights, num_states=num_states)
    if within is not None and (l1 == "auto" or l1):
        raise ValueError("l1 must be 0 within a set: there is no step for both at once")
    job = _Job(
        table, None, objective, moments, within, hidden, num_chains, tol, max_iter, seed, clock, backend, progress
    )
    if validation is not None:
        job = replace(job, validation=_extended(_validation(validation, table), hidden))
    result = _run(job, edges, ridge, l1)
    options = {
        "edges": edges if isinstance(edges, str) else "given", "objective": objective, "moments": moments,
        "within": None if within is None else [within.norm, within.bound], "ridge": ridge, "l1": l1, "hidden": hidden,
        "num_chains": num_chains, "tol": tol, "max_iter": max_iter, "time_limit": time_limit, "backend": backend,
    }  # fmt: skip
    device = str(result.stats.get("device", "cpu"))
    return replace(
        result,
        stats={**result.stats, **clock.stats()},
        provenance=provenance(result.model, seed=seed, device=device, **options),
    )


def _validation(validation: Any, table: Dataset) -> Dataset:
    """Validation data with the names and states of the training data."""
    n = len(table.num_states)
    model = MarkovRandomField(
        table.num_states, np.zeros(int(table.num_states.sum())), np.zeros((0, 2), dtype=np.int64), np.zeros(0), 0.0,
        table.variable_names, table.state_names,
    )  # fmt: skip
    result = read_data(validation, model=model, name="validation")
    assert result.states.shape[1] == n
    return result


def _extended(data: Dataset, hidden: int) -> Dataset:
    """The data with columns of hidden variables, all missing."""
    if not hidden:
        return data
    names = data.variable_names and (*data.variable_names, *(f"hidden {k}" for k in range(hidden)))
    labels = data.state_names and (*data.state_names, *(("0", "1"),) * hidden)
    return replace(
        data,
        states=np.hstack([data.states, np.full((len(data.states), hidden), MISSING, dtype=data.states.dtype)]),
        num_states=np.concatenate([data.num_states, np.full(hidden, 2)]),
        variable_names=names,
        state_names=labels,
    )


@dataclass(frozen=True, eq=False)
class _Job:
    """What a call asks for, but the graph and the penalties."""

    data: Dataset
    validation: Dataset | None
    objective: str
    moments: str
    within: NormBall | None
    hidden: int
    num_chains: int | None
    tol: float | None
    max_iter: int | None
    seed: int
    clock: Clock
    backend: str
    progress: Callable[[Mapping[str, Any]], None] | None
    rough: bool = False  # sampled only as well as a choice of penalties needs


def _graph(edges: Any, n: int, hidden: int) -> IntArray:
    if isinstance(edges, str):
        check_choice("edges", edges, ("complete", "chow-liu", "l1", "grow"))
        if n > _LARGEST_GRAPH:
            raise ResourceError(
                f"a complete graph of {n:,} variables is too large: give edges, or use edges='chow-liu'"
            )
        return complete_bipartite_edges(n, hidden) if hidden else complete_edges(n)
    return canonical_edges(n + hidden, as_edges(edges, n + hidden))


def _run(job: _Job, edges: Any, ridge: float | str, l1: float | str) -> LearnResult:
    n = len(job.data.num_states)
    if isinstance(edges, str) and edges == "chow-liu":
        if job.hidden:
            raise ValueError("hidden variables need edges='complete' or a list of edges")
        tree = chow_liu(job.data.merged()[0])
        if job.objective == "likelihood" and job.within is None:
            return _closed_form(job, tree)
        edges = tree.edges
    if isinstance(edges, str) and edges == "grow":
        edges = _grow(job, ridge)
    graph = _graph(edges, n, job.hidden)
    if isinstance(edges, str) and edges == "l1":
        if l1 == 0.0:
            raise ValueError("edges='l1' needs a positive l1, or l1='auto' with validation data")
        first = replace(job, objective="pseudo-likelihood", within=None)
        found = _search(first, graph, ridge, l1)
        kept = _search(job, found.model.edges, ridge, 0.0)
        return replace(kept, l1=found.l1)
    return _search(job, graph, ridge, l1)


def _grow(job: _Job, ridge: float | str) -> IntArray:
    """Edges added to the best tree, a tenth of what is there at a time, while the validation data gain by it."""
    if job.validation is None:
        raise ValueError("edges='grow' stops by validation data: give validation=")
    if job.hidden:
        raise ValueError("hidden variables need edges='complete' or a list of edges")
    quick = replace(job, objective="pseudo-likelihood", within=None, rough=True)
    weight, data = 1e-3 if ridge == "auto" else ridge, job.data.merged()[0]
    best = _fit(quick, chow_liu(data).edges, weight, 0.0)
    n = best.model.num_variables
    while True:
        pairs, gains = edge_gains(best.model, data)
        new = pairs[: max(1, best.model.num_edges // 10)][gains[: max(1, best.model.num_edges // 10)] > 0.0]
        if not len(new):
            return best.model.edges
        wider = _fit(quick, canonical_edges(n, np.concatenate([best.model.edges, new])), weight, 0.0, best.model)
        if _quality(wider) <= _quality(best):
            return best.model.edges
        best = wider


def stability(
    data: Any,
    *,
    l1: float,
    ridge: float = 1e-3,
    num_subsamples: int = 20,
    weights: ArrayLike | None = None,
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
    check_positive("l1", l1)
    check_count("num_subsamples", num_subsamples, least=1)
    table = read_data(data, weights=weights)
    rng = np.random.default_rng(choose_seed(seed))
    n, rows = len(table.num_states), len(table.states)
    found = np.zeros((n, n))
    for _ in range(num_subsamples):
        part = table.take(rng.choice(rows, size=max(1, rows // 2), replace=False))
        i, j = learn(part, objective="pseudo-likelihood", l1=l1, ridge=ridge, tol=1e-4, seed=0).model.edges.T
        found[i, j] += 1.0
    return (found + found.T) / num_subsamples


def _closed_form(job: _Job, tree: MarkovRandomField) -> LearnResult:
    coordinates = Coordinates(tree.structure)
    v, _ = coordinates.from_parameters(tree.parameters)
    model = tree.with_parameters(coordinates.to_parameters(v)).replace(log_constant=0.0)
    term = exact_model_term(coordinates, asked=True)
    log_z, expected = term.evaluate(v)
    observed = DataTerm(coordinates, job.data.merged()[0]).complete
    error = float(np.abs(coordinates.to_probabilities(expected - observed)).max(initial=0.0))
    validation = None
    if job.validation is not None:
        validation = float(job.validation.weights @ log_masses(model, job.validation)) - log_z
    return LearnResult(
        model=model, objective="likelihood", moments="closed form", status=Status.OK, value=log_z - float(observed @ v),
        ridge=0.0, l1=0.0, within=None, norms=_norms(model), moment_error=error, bias_bound=None,
        validation_log_likelihood=validation, num_rows=job.data.num_rows, seed=job.seed,
        stats={"stopped_by": "done", "num_iterations": 0},
    )  # fmt: skip


def _search(job: _Job, graph: IntArray, ridge: float | str, l1: float | str) -> LearnResult:
    """The fit with penalties as given, or the best on the validation data of those that ``auto`` tries."""
    if l1 == "auto":
        # The graph is chosen by the pseudo-likelihood, which is quick and not noisy; 0 is among the candidates.
        quick = replace(job, objective="pseudo-likelihood") if not _incomplete(job) else job
        weight = min(_RIDGES) if ridge == "auto" else ridge
        tried = [_fit(quick, graph, weight, value) for value in (0.0, *_L1S)]
        best = max(tried, key=_quality)
        if job.objective == "pseudo-likelihood" and ridge != "auto":
            return replace(best, stats={**best.stats, "tried": _tried(tried)})
        l1 = best.l1
    if ridge == "auto":
        tried, start = [], None
        ridges = sorted((r for r in _RIDGES if not l1 or r <= _LEAST_RIDGE), reverse=True)
        for k, value in enumerate(ridges):
            part = job.clock.part(1.0 / (len(ridges) - k + 2))  # the last fit, of the best, gets twice as much
            tried.append(_fit(replace(job, rough=True, clock=part), graph, value, l1, start))
            start = tried[-1].model
            if tried[-1].status is Status.INTERRUPTED:
                break
            if len(tried) > 2 and _quality(tried[-1]) < _quality(tried[-2]) < _quality(tried[-3]):
                break  # it gets worse
        best = max(tried, key=_quality)
        if best.moments == "sampled" and best.status is not Status.INTERRUPTED:
            best = _fit(job, graph, best.ridge, l1, best.model)
        return replace(best, stats={**best.stats, "tried": _tried(tried)})
    return _fit(job, graph, ridge, l1)


def _incomplete(job: _Job) -> bool:
    return job.hidden > 0 or job.data.has_missing


def _quality(result: LearnResult) -> float:
    value = result.validation_log_likelihood
    return -math.inf if value is None or math.isnan(value) else value


def _tried(results: Sequence[LearnResult]) -> list[dict[str, Any]]:
    return [
        {"ridge": r.ridge, "l1": r.l1, "num_edges": r.model.num_edges, "validation_log_likelihood": _quality(r)}
        for r in results
    ]


def _norms(model: MarkovRandomField) -> dict[str, float]:
    matrix = dependency_matrix(model)
    return {"spectral": norms.matrix_norm(matrix, "spectral"), "inf": norms.matrix_norm(matrix, "inf")}


def _projector(template: MarkovRandomField, within: NormBall, coordinates: Coordinates) -> Ball:
    """The Euclidean projection of the tables of v, begun where the last one ended."""
    last: list[ProjectionResult | None] = [None]

    def ball(v: FloatArray) -> FloatArray:
        model = template.with_parameters(coordinates.to_parameters(v))
        result = project(model, norm_bound=within.bound, norm=within.norm, warm_start=last[0])
        if result.model is not model:
            last[0] = result
        return coordinates.from_parameters(result.model.parameters)[0]

    return ball


def _fit(
    job: _Job, graph: IntArray, ridge: float | str, l1: float | str, start: MarkovRandomField | None = None
) -> LearnResult:
    """One fit with given penalties."""
    assert not isinstance(ridge, str)
    assert not isinstance(l1, str)
    data = _extended(job.data.merged()[0], job.hidden)
    unary = np.zeros(int(data.num_states.sum()))
    ends = data.num_states[graph]
    template = MarkovRandomField(
        data.num_states, unary, graph, np.zeros(int((ends[:, 0] * ends[:, 1]).sum())), 0.0, data.variable_names,
        data.state_names,
    )  # fmt: skip
    coordinates = Coordinates(template.structure)
    means, variances = _moments_of_contrasts(coordinates, data)
    if ridge == 0.0:
        _check_seen(data, graph, job.hidden, pairs=job.within is None and not l1)
    alike = "all" if job.within is not None else "edges" if l1 else "entries"
    scaling = Scaling.of(coordinates, means, variances, alike)
    ball = None if job.within is None else _Centred(scaling, _projector(template, job.within, coordinates))
    v = _first(coordinates, data, job, start, template)
    history: list[dict[str, Any]] = []

    def report(iteration: int, value: float, norm: float, _: FloatArray) -> None:
        history.append({"iteration": iteration, "value": value, "gradient_norm": norm, "seconds": job.clock.seconds()})
        if job.progress is not None:
            job.progress(history[-1])

    common: dict[str, Any] = {"ridge": ridge, "l1": l1, "ball": ball}
    rough: dict[str, Any] = {
        "tol": _TOL if job.tol is None else job.tol,
        "max_iter": job.max_iter or 1000,
        "clock": job.clock,
    }
    pseudo = job.objective == "pseudo-likelihood"
    if pseudo and job.hidden:
        raise UnfitMethodError("the pseudo-likelihood needs every value: hidden variables need objective='likelihood'")
    term = None if pseudo else _model_term(coordinates, job.moments)
    stats: dict[str, Any] = {}
    error = bias = value = None
    if pseudo or term is not None:
        goal: Objective
        data_term = None
        if term is None:
            goal = PseudoLikelihood(coordinates, data)
        else:
            data_term = DataTerm(coordinates, data)
            goal = ExactLikelihood(term, data_term)
        outcome = minimise(goal, v, scaling, **common, **rough, report=report)
        v, value, stopped_by = outcome.v, outcome.value, outcome.stopped_by
        stats = {"num_iterations": outcome.num_iterations, "gradient_norm": outcome.gradient_norm}
        status = _verdict(stopped_by)
        how = "none" if term is None else term.method
        if term is not None and data_term is not None:
            difference = term.evaluate(v)[1] - data_term.evaluate(v)[1]
            error = float(np.abs(coordinates.to_probabilities(difference)).max(initial=0.0))
    else:
        how = "sampled"
        machine = not l1 and ball is None and not job.data.has_missing and is_machine(template.structure, job.hidden)
        data_term = None if machine else DataTerm(coordinates, data)
        if data_term is not None and data_term.fixed and start is None:
            # With little ridge its optimum can be far from that of the likelihood, with modes of its own.
            tame: dict[str, Any] = {
                **common,
                "ridge": max(ridge, _TAME) if coordinates.num_contrasts > 32 else ridge,
                "tol": 1e-3,
                "max_iter": 200,
            }
            first = minimise(PseudoLikelihood(coordinates, data), v, scaling, **tame, clock=job.clock)
            v = first.v
        num_chains = job.num_chains or (MACHINE_CHAINS if machine else _default_chains(coordinates))
        chains, device = make_pool(template, job.backend, num_chains=num_chains, seed=job.seed)
        clock = job.clock.part(0.7) if job.validation is not None else job.clock
        chains.clock = clock
        enough = min(_SAMPLED_TOL, _SAMPLED_TOL_EACH * coordinates.size) * (_ROUGH if job.rough else 1.0)
        rng = np.random.default_rng([job.seed, 2])
        answer = learn_machine(
            chains, _extended(job.data, job.hidden), coordinates, v, job.hidden, ridge=ridge, max_iter=job.max_iter,
            rng=rng, clock=clock, report=job.progress,
        ) if data_term is None else sampled_likelihood(
            template, chains, data, data_term, v, scaling, ridge=ridge, l1=l1, ball=ball,
            certified=job.within is not None and job.within.certified, tol=job.tol or enough,
            max_iter=job.max_iter or 200, rng=rng, clock=clock,
            report=job.progress,
        )  # fmt: skip
        v, error, bias, stopped_by = answer.v, answer.moment_error, answer.bias_bound, answer.stopped_by
        history = answer.history
        stats = {
            "num_iterations": answer.num_rounds, "gap": answer.gap, "noise": answer.noise,
            "num_chains": chains.num_chains, "num_sweeps": answer.num_sweeps, "device": device,
            "correlations": {str(k): c for k, c in answer.correlations.items()},
        }  # fmt: skip
        status = _verdict(stopped_by) if answer.mixed else Status.NOT_MIXED
    if ridge == 0.0 and float(np.abs(v).max(initial=0.0)) > _LARGEST:
        status = Status.NOT_CONVERGED  # some states decide others: the optimum is at infinity
    model = _without_empty_tables(template.with_parameters(coordinates.to_parameters(v)), coordinates, v, l1)
    validation, normaliser = _validate(job, model, data)
    stats = {"stopped_by": "done" if stopped_by == "max_iter" else stopped_by, **stats}
    if normaliser is not None:
        stats |= {"validation_std_error": normaliser.std_error, "log_z_method": normaliser.method}
    return LearnResult(
        model=model, objective=job.objective, moments=how, status=status, value=value, ridge=ridge, l1=l1,
        within=job.within, norms=_norms(model), moment_error=error, bias_bound=bias,
        validation_log_likelihood=validation, num_rows=job.data.num_rows, seed=job.seed, history=history, stats=stats,
    )  # fmt: skip


class _Centred:
    """A projection of tables that keeps the centred vectors b of v, so that it is Euclidean in (b, C)."""

    def __init__(self, scaling: Scaling, ball: Ball) -> None:
        self.scaling, self.ball = scaling, ball

    def __call__(self, v: FloatArray) -> FloatArray:
        d = self.scaling.coordinates.num_contrasts
        z, new = self.scaling.from_v(v), self.ball(v)
        z[d:] = new[d:] / self.scaling.scales[d:]
        return self.scaling.to_v(z)


def _verdict(stopped_by: str) -> Status:
    verdicts = {"done": Status.OK, "interrupt": Status.INTERRUPTED, "time_limit": Status.NOT_CONVERGED}
    return verdicts.get(stopped_by, Status.NOT_CONVERGED)


def _model_term(coordinates: Coordinates, moments: str) -> ModelTerm | None:
    """Exact moments, or None where they are to be sampled."""
    if moments == "sampled":
        return None
    try:
        return exact_model_term(coordinates, asked=moments == "exact")
    except ResourceError:
        if moments == "exact":
            raise
        return None


def _default_chains(coordinates: Coordinates) -> int:
    return 1024 if coordinates.num_contrasts <= 32 else 4096


def _moments_of_contrasts(coordinates: Coordinates, data: Dataset) -> tuple[FloatArray, FloatArray]:
    """Means and variances (D,) of the contrasts over what is observed; 0 and 1/2 for what never is."""
    y = coordinates.encode(data.states)
    width = np.diff(coordinates.starts)
    seen = np.repeat(data.weights @ (data.states != MISSING), width)
    never = seen == 0.0
    seen = np.where(never, 1.0, seen)
    means = (data.weights @ y) / seen
    variances = np.maximum(0.0, (data.weights @ y**2) / seen - means**2)
    return means, np.where(never, 0.5, variances)


def _check_seen(data: Dataset, graph: IntArray, hidden: int, *, pairs: bool) -> None:
    """A :class:`ModelError` where a state, or a pair on an edge, never occurs and nothing keeps it finite."""
    instead = "so without a penalty its parameter is infinite: give a positive ridge"
    visible = len(data.num_states) - hidden
    for i, count in enumerate(data.num_states[:visible].tolist()):
        counts = np.bincount(data.states[data.states[:, i] != MISSING, i], minlength=count)
        if (counts == 0).any():
            state = int(np.flatnonzero(counts == 0)[0])
            raise ModelError(f"state {state} of {_column(data, i)} never occurs, {instead}, or leave the column out")
    if not pairs or data.has_missing:
        return
    for i, j in graph.tolist():
        sizes = (int(data.num_states[i]), int(data.num_states[j]))
        counts = np.bincount(data.states[:, i] * np.int64(sizes[1]) + data.states[:, j], minlength=sizes[0] * sizes[1])
        if (counts == 0).any():
            a, b = divmod(int(np.flatnonzero(counts == 0)[0]), sizes[1])
            where = f"state {a} of {_column(data, i)} and state {b} of {_column(data, j)}"
            raise ModelError(f"{where} never occur together, {instead}")


def _column(data: Dataset, i: int) -> str:
    return f"column {i}" if data.variable_names is None else f"column {data.variable_names[i]!r}"


def _first(
    coordinates: Coordinates, data: Dataset, job: _Job, start: MarkovRandomField | None, template: MarkovRandomField
) -> FloatArray:
    """Where to begin: an earlier model on the same graph, else the independent one."""
    if start is not None:
        theta = np.zeros(template.num_parameters)
        theta[: len(start.log_unary)] = start.log_unary
        where = [template.edge_index(i, j) for i, j in start.edges.tolist()]  # an l1 term may have removed edges
        sizes = np.diff(start.pairwise_offsets)
        places = np.repeat(template.pairwise_offsets[where] - start.pairwise_offsets[:-1], sizes)
        theta[len(start.log_unary) + places + np.arange(len(start.log_pairwise))] = start.log_pairwise
        return coordinates.from_parameters(theta)[0]
    theta = np.zeros(template.num_parameters)
    for i, count in enumerate(template.num_states.tolist()):
        seen = data.states[:, i] != MISSING
        counts = np.bincount(data.states[seen, i], data.weights[seen], minlength=count) + 1.0 / data.num_rows
        theta[template.unary_offsets[i] : template.unary_offsets[i + 1]] = np.log(counts / counts.sum())
    v = coordinates.from_parameters(theta)[0]
    if job.hidden:  # hidden variables must differ from each other to become different
        rng = np.random.default_rng([job.seed, 3])
        v[coordinates.num_contrasts :] = 0.02 * rng.standard_normal(coordinates.size - coordinates.num_contrasts)
    return v


def _without_empty_tables(
    model: MarkovRandomField, coordinates: Coordinates, v: FloatArray, l1: float
) -> MarkovRandomField:
    """The model without the edges whose tables the l1 term made 0."""
    if not l1:
        return model
    kept = np.flatnonzero(table_norms(coordinates, v) > 0.0)
    if len(kept) == model.num_edges:
        return model
    sizes = np.diff(model.pairwise_offsets)
    entries = np.repeat(np.isin(np.arange(model.num_edges), kept), sizes)
    return MarkovRandomField(
        model.num_states,
        model.log_unary,
        model.edges[kept],
        model.log_pairwise[entries],
        0.0,
        model.variable_names,
        model.state_names,
    )


def _validate(job: _Job, model: MarkovRandomField, data: Dataset) -> tuple[float | None, LogZ | None]:
    """The mean log-(pseudo-)likelihood of the validation data."""
    if job.validation is None:
        return None, None
    table = job.validation.merged()[0]
    if job.objective == "pseudo-likelihood":
        if table.has_missing:
            raise ModelError("validation must have every value for the pseudo-likelihood, and some are missing")
        return float(table.weights @ pseudo_log_likelihoods(model, table)), None
    accuracy = 0.03 if job.rough else 0.01
    try:
        answer = log_normaliser(model, data, tol=accuracy, seed=job.seed, clock=job.clock, backend=job.backend)
    except ResourceError:  # no time is left: the model matters more
        return None, None
    return float(table.weights @ log_masses(model, table)) - answer.log_z, answer
