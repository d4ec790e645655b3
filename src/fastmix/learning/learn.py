"""``learn``: a model fitted to data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix._checks import as_edges, check_choice, check_count, check_positive, choose_seed, describe
from fastmix._clock import Clock, Report, listening
from fastmix.chains.base import Chains
from fastmix.errors import ModelError, NotConvergedError, ResourceError, UnfitMethodError
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
from fastmix.learning.optimise import Scaling, minimise, table_norms
from fastmix.learning.resume import Ledger, fingerprint
from fastmix.learning.sampled import Sampled, sampled_likelihood
from fastmix.learning.score import LogZ, log_masses, log_normaliser, make_pool, pseudo_log_likelihoods
from fastmix.learning.structure import chow_liu, edge_gains
from fastmix.model import MarkovRandomField
from fastmix.projection import project
from fastmix.results import Status, jsonable, provenance
from fastmix.theory import norms
from fastmix.theory.dependency import dependency_matrix

__all__ = ["LearnResult", "NormBall", "ball_by_name", "learn", "stability"]

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

    def __str__(self) -> str:
        return f"{self.norm}:{self.bound:g}"


def ball_by_name(text: str) -> NormBall:
    """The set that a text such as ``spectral:2.5`` or ``inf:0.9`` names.

    Examples
    --------
    >>> ball_by_name("inf:0.9")
    NormBall(norm='inf', bound=0.9)
    """
    kind, _, number = text.partition(":")
    rule = f"within must be a norm and a bound such as spectral:2.5, with one of {', '.join(norms.NORMS)}"
    try:
        bound = float(number)
    except ValueError:
        raise ValueError(f"{rule}, got {text!r}") from None
    if kind not in norms.NORMS or not 0.0 < bound < math.inf:
        raise ValueError(f"{rule}, got {text!r}")
    return NormBall(cast("Any", kind), bound)


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
        How moments of the model were found: ``closed form``, ``enumeration``, ``junction tree``, ``sampled`` or
        ``tempered`` (sampled by replica exchange); ``none`` for the pseudo-likelihood.
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
        An entry for every iteration with the seconds since the call, the ``moment_error``, the length of the ``step``
        and the ``norms`` of the model (exact objectives: after 1, 2, 4, 8, .. iterations); exact objectives have their
        ``value`` and ``gradient_norm``, sampled ones what is left to gain (``gap``), how much of that is ``noise``,
        ``num_sweeps`` and, in a set with a bound below 1, the ``bias_bound`` of that step.
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
    moments: Literal["auto", "exact", "sampled", "tempered"] = "auto",
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
        NaN, None, masked entries and, in arrays, -1 are missing: the likelihood sums over them.
    edges : {"complete", "chow-liu", "l1", "grow"} or array (m, 2)
        The graph. ``chow-liu`` is the best tree; with the likelihood it is learnt in closed form, smoothed by one row,
        without penalties. ``l1`` learns a graph by the pseudo-likelihood with the l1 term, and fits it again without.
        ``grow`` adds edges to the tree, those first that promise most, while the pseudo-likelihood of the validation
        data gains by it.
    objective : {"likelihood", "pseudo-likelihood"}
        The pseudo-likelihood (the sum over variables of ``log p(x_i | x_others)``) needs no moments and is quick, and
        a little worse.
    moments : {"auto", "exact", "sampled", "tempered"}
        How to find moments of the model for the likelihood: exact where the model is small or of low treewidth, else
        sampled by persistent chains, from the optimum of the pseudo-likelihood on. ``tempered`` chains are ladders of
        replica exchange from the independent model on, for data with modes far apart; they also take over where plain
        chains do not follow the parameters three rounds running.
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
        log-likelihood that is still promised: 2e-3, or, of small models, 2e-6 or a hundredth of what chance makes of N
        rows, 1/(2 N), for each parameter.
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
        seed: after an interrupt, or at the end of the time. A run without a time limit then ends with the same bits as
        one that was never interrupted. Sampled likelihoods go on from their last round; exact objectives are cheap,
        and of a search for penalties the fits that were finished are not made again.
    progress : "auto", None or callable
        As for :func:`fastmix.sample`; the :class:`fastmix.Progress` has the moment error in its ``details``.

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
    check_choice("objective", objective, ("likelihood", "pseudo-likelihood"))
    check_choice("moments", moments, ("auto", "exact", "sampled", "tempered"))
    if within is not None and not isinstance(within, NormBall):
        raise TypeError(f"within must be a NormBall or None, got {describe(within)}")
    for name, value in (("ridge", ridge), ("l1", l1)):
        if isinstance(value, str):
            check_choice(name, value, ("auto",))
            if validation is None:
                raise ValueError(f"{name}='auto' is chosen on validation data: give validation=")
        else:
            check_positive(name, value, or_zero=True)
    if within is not None and (l1 == "auto" or l1):
        raise ValueError("l1 must be 0 within a set: there is no step for both at once")
    hidden = check_count("hidden", hidden, least=0)
    tol = None if tol is None else check_positive("tol", tol)
    max_iter = None if max_iter is None else check_count("max_iter", max_iter, least=1)
    num_chains = None if num_chains is None else check_count("num_chains", num_chains, least=64)
    check_positive("checkpoint_seconds", checkpoint_seconds, "number of seconds", or_zero=True)
    ledger = Ledger(checkpoint, checkpoint_seconds)
    seed = choose_seed(ledger.seed if seed is None else seed)
    options = {
        "edges": edges if isinstance(edges, str) else "given", "objective": objective, "moments": moments,
        "within": None if within is None else [within.norm, within.bound], "ridge": ridge, "l1": l1, "hidden": hidden,
        "num_chains": num_chains, "tol": tol, "max_iter": max_iter, "backend": backend,
    }  # fmt: skip
    with listening(progress, "learn") as listener:
        clock = Clock(time_limit, listener=listener, what="learn")
        table = read_data(data, weights=weights, num_states=num_states)
        checked = (
            None
            if validation is None
            else read_data(validation, model=table.blank_model(), name="validation").with_hidden(hidden)
        )
        job = _Job(
            table, checked, objective, moments, within, hidden, num_chains, tol, max_iter, seed, clock, backend, ledger
        )
        if ledger.keeps:
            graph = edges if isinstance(edges, str) else np.asarray(edges)
            ledger.resume(fingerprint(table, checked, graph, options), seed)
        result = _run(job, edges, ridge, l1)
    device = str(result.stats.get("device", "cpu"))
    return replace(
        result,
        stats={**result.stats, **clock.stats()},
        provenance=provenance(result.model, seed=seed, device=device, **options, time_limit=time_limit),
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
    ledger: Ledger
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
        grown = _grow(job, ridge)
        if grown.status is Status.INTERRUPTED:
            return grown
        edges = grown.model.edges
    graph = _graph(edges, n, job.hidden)
    if isinstance(edges, str) and edges == "l1":
        if l1 == 0.0:
            raise ValueError("edges='l1' needs a positive l1, or l1='auto' with validation data")
        first = replace(job, objective="pseudo-likelihood", within=None)
        found = _search(first, graph, ridge, l1)
        if found.status is Status.INTERRUPTED:
            return found
        kept = _search(job, found.model.edges, ridge, 0.0)
        return replace(kept, l1=found.l1)
    return _search(job, graph, ridge, l1)


def _grow(job: _Job, ridge: float | str) -> LearnResult:
    """The best tree with edges added, a tenth of what is there at a time, while the validation data gain by it."""
    if job.validation is None:
        raise ValueError("edges='grow' stops by validation data: give validation=")
    if job.hidden:
        raise ValueError("hidden variables need edges='complete' or a list of edges")
    quick = replace(job, objective="pseudo-likelihood", within=None, rough=True)
    weight, data = 1e-3 if ridge == "auto" else ridge, job.data.merged()[0]
    best = _fit(quick, chow_liu(data).edges, weight, 0.0)
    n = best.model.num_variables
    while best.status is not Status.INTERRUPTED:
        pairs, gains = edge_gains(best.model, data)
        new = pairs[: max(1, best.model.num_edges // 10)][gains[: max(1, best.model.num_edges // 10)] > 0.0]
        if not len(new):
            break
        wider = _fit(quick, canonical_edges(n, np.concatenate([best.model.edges, new])), weight, 0.0, best.model)
        if wider.status is Status.INTERRUPTED:
            return _interrupted(best)
        if _quality(wider) <= _quality(best):
            break
        best = wider
    return best


def _interrupted(best: LearnResult) -> LearnResult:
    """The best fit so far, of a search that Ctrl-C ended."""
    return replace(best, status=Status.INTERRUPTED, stats={**best.stats, "stopped_by": "interrupt"})


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
        tried = []
        for value in (0.0, *_L1S):
            tried.append(_fit(quick, graph, weight, value))
            if tried[-1].status is Status.INTERRUPTED:
                return _interrupted(max(tried, key=_quality))
        best = max(tried, key=_quality)
        if job.objective == "pseudo-likelihood" and ridge != "auto":
            return replace(best, stats={**best.stats, "tried": _tried(tried)})
        l1 = best.l1
    if ridge == "auto":
        tried, start = [], None
        ridges = sorted((r for r in _RIDGES if not l1 or r <= _LEAST_RIDGE), reverse=True)
        for k, value in enumerate(ridges):
            share = 1.0 / (len(ridges) - k + 2)  # the last fit, of the best, gets twice as much
            part = job.clock.part(share, f"learn with ridge {value:g}")
            tried.append(_fit(replace(job, rough=True, clock=part), graph, value, l1, start))
            start = tried[-1].model
            if tried[-1].status is Status.INTERRUPTED:
                return _interrupted(max(tried, key=_quality))
            if len(tried) > 2 and _quality(tried[-1]) < _quality(tried[-2]) < _quality(tried[-3]):
                break  # it gets worse
        best = max(tried, key=_quality)
        if best.moments in ("sampled", "tempered"):
            last = _fit(job, graph, best.ridge, l1, best.model)
            best = _interrupted(best) if last.status is Status.INTERRUPTED and not last.history else last
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


class _Projector:
    """The Euclidean projection of tables onto a set, begun where the last one ended.

    The centred vectors b of v stay as they are, so that it is Euclidean in (b, C).
    """

    def __init__(self, template: MarkovRandomField, within: NormBall, scaling: Scaling) -> None:
        self.template, self.within, self.scaling = template, within, scaling
        self.memory: FloatArray | None = None

    def __call__(self, v: FloatArray) -> FloatArray:
        coordinates, within = self.scaling.coordinates, self.within
        model = self.template.with_parameters(coordinates.to_parameters(v))
        try:
            result = project(model, norm_bound=within.bound, norm=within.norm, warm_start=self.memory, progress=None)
        except NotConvergedError as error:
            if error.result.stats["stopped_by"] == "interrupt":
                raise KeyboardInterrupt from None
            result = error.result  # inside, but not quite the closest
        if result.model is not model:
            self.memory = result.multipliers
        new = coordinates.from_parameters(result.model.parameters)[0]
        d, z = coordinates.num_contrasts, self.scaling.from_v(v)
        z[d:] = new[d:] / self.scaling.scales[d:]
        return self.scaling.to_v(z)


def _fit(
    job: _Job, graph: IntArray, ridge: float | str, l1: float | str, start: MarkovRandomField | None = None
) -> LearnResult:
    """One fit with given penalties; if the checkpoint has it, what is there."""
    assert not isinstance(ridge, str)
    assert not isinstance(l1, str)
    data = job.data.merged()[0].with_hidden(job.hidden)
    template = data.blank_model(graph)
    coordinates = Coordinates(template.structure)
    known = job.ledger.next_fit()
    v, facts = _solve(job, template, coordinates, data, ridge, l1, start) if known is None else known
    model = _without_empty_tables(template.with_parameters(coordinates.to_parameters(v)), coordinates, v, l1)
    facts["status"] = Status(facts["status"])
    if known is None:
        stopped_by = facts["stats"]["stopped_by"]
        try:
            validation, normaliser = (None, None) if stopped_by == "interrupt" else _validate(job, model, data)
        except KeyboardInterrupt:
            validation = normaliser = None
            facts["status"], facts["stats"]["stopped_by"] = Status.INTERRUPTED, "interrupt"
        facts["validation_log_likelihood"] = validation
        if normaliser is not None:
            facts["stats"] |= {"validation_std_error": normaliser.std_error, "log_z_method": normaliser.method}
            if normaliser.status is Status.INTERRUPTED:
                facts["status"], facts["stats"]["stopped_by"] = Status.INTERRUPTED, "interrupt"
        if facts["stats"]["stopped_by"] == "done":
            job.ledger.keep_fit(v, facts)
    return LearnResult(
        model=model, objective=job.objective, ridge=ridge, l1=l1, within=job.within, norms=_norms(model),
        num_rows=job.data.num_rows, seed=job.seed, **facts,
    )  # fmt: skip


def _solve(
    job: _Job, template: MarkovRandomField, coordinates: Coordinates, data: Dataset, ridge: float, l1: float,
    start: MarkovRandomField | None,
) -> tuple[FloatArray, dict[str, Any]]:  # fmt: skip
    """The optimum v, and what a :class:`LearnResult` says about the way there, as plain data."""
    means, variances = _moments_of_contrasts(coordinates, data)
    if ridge == 0.0:
        _check_seen(data, template.edges, job.hidden, pairs=job.within is None and not l1)
    alike = "all" if job.within is not None else "edges" if l1 else "entries"
    scaling = Scaling.of(coordinates, means, variances, alike)
    ball = None if job.within is None else _Projector(template, job.within, scaling)
    v = _first(coordinates, data, job, start, template)
    history: list[dict[str, Any]] = []

    def report(entry: dict[str, Any], at: FloatArray) -> None:
        k = entry["iteration"]
        often = "gap" in entry or k & (k - 1) == 0  # they take longer than a small exact step
        here = _norms(template.with_parameters(coordinates.to_parameters(at))) if often else None
        history.append({**entry, "norms": here, "seconds": job.clock.seconds()})
        shown = {name: entry[name] for name in ("value", "moment_error", "gap") if entry.get(name) is not None}
        job.clock.report(k, None, "rounds" if "gap" in entry else "iterations", details=shown)

    common: dict[str, Any] = {"ridge": ridge, "l1": l1, "ball": ball}
    pseudo = job.objective == "pseudo-likelihood"
    if pseudo and job.hidden:
        raise UnfitMethodError("the pseudo-likelihood needs every value: hidden variables need objective='likelihood'")
    term = None if pseudo else _model_term(coordinates, job.moments)
    error = bias = value = None
    if pseudo or term is not None:
        goal: Objective
        if term is None:
            goal = PseudoLikelihood(coordinates, data)
        else:
            goal = ExactLikelihood(term, DataTerm(coordinates, data))
        tol, max_iter = _TOL if job.tol is None else job.tol, job.max_iter or 1000
        outcome = minimise(goal, v, scaling, **common, tol=tol, max_iter=max_iter, clock=job.clock, report=report)
        v, value, stopped_by = outcome.v, outcome.value, outcome.stopped_by
        stats: dict[str, Any] = {"num_iterations": outcome.num_iterations, "gradient_norm": outcome.gradient_norm}
        status = _verdict(stopped_by)
        how = "none" if term is None else term.method
        if isinstance(goal, ExactLikelihood):
            error = goal.moment_error(goal.evaluate(v)[1])
    else:
        answer, device = _sample(job, template, data, v, scaling, common, start, history, report)
        v, error, bias, stopped_by = answer.v, answer.moment_error, answer.bias_bound, answer.stopped_by
        stats = {
            "num_iterations": answer.num_rounds, "gap": answer.gap, "noise": answer.noise,
            "num_chains": answer.num_chains, "num_rungs": answer.num_rungs, "num_sweeps": answer.num_sweeps,
            "device": device,
            "correlations": {str(k): c for k, c in answer.correlations.items()},
            "correlation_of_modes": answer.correlation,
        }  # fmt: skip
        how, status = "sampled" if answer.num_rungs == 1 else "tempered", _verdict(stopped_by)
        if not answer.mixed and status is not Status.INTERRUPTED:
            status = Status.NOT_MIXED
    if ridge == 0.0 and float(np.abs(v).max(initial=0.0)) > _LARGEST and status is Status.OK:
        status = Status.NOT_CONVERGED  # some states decide others: the optimum is at infinity
    stats = {"stopped_by": "done" if stopped_by == "max_iter" else stopped_by, **stats}
    return v, {
        "moments": how, "status": str(status), "value": value, "moment_error": error, "bias_bound": bias,
        "history": history, "stats": stats,
    }  # fmt: skip


def _sample(
    job: _Job, template: MarkovRandomField, data: Dataset, v: FloatArray, scaling: Scaling, common: dict[str, Any],
    start: MarkovRandomField | None, history: list[dict[str, Any]], report: Callable[..., None],
) -> tuple[Sampled, str]:  # fmt: skip
    """The sampled likelihood from a tame optimum of the pseudo-likelihood, an earlier model or a checkpoint on."""
    coordinates = scaling.coordinates
    plain = not common["l1"] and common["ball"] is None and not job.data.has_missing and job.moments != "tempered"
    machine = plain and is_machine(template.structure, job.hidden)
    data_term = None if machine else DataTerm(coordinates, data)
    saved = job.ledger.take_state()
    if data_term is not None and data_term.fixed and start is None and saved is None:
        # With little ridge its optimum can be far from that of the likelihood, with modes of its own.
        ridge = max(common["ridge"], _TAME) if coordinates.num_contrasts > 32 else common["ridge"]
        tame = {**common, "ridge": ridge, "tol": 1e-3, "max_iter": 200}
        first = minimise(PseudoLikelihood(coordinates, data), v, scaling, **tame, clock=job.clock)
        v = first.v
        if first.stopped_by == "interrupt":
            return Sampled(v, stopped_by="interrupt"), "cpu"
    clock = job.clock.part(0.7) if job.validation is not None else job.clock
    device = "cpu"

    def make(num_chains: int, num_sets: int) -> Chains:
        nonlocal device
        chains, device = make_pool(template, job.backend, num_chains=num_chains, num_sets=num_sets, seed=job.seed)
        return chains

    if saved is not None:
        history += saved[1]["history"]

    def keep(arrays: dict[str, NDArray[Any]], facts: dict[str, Any], *, now: bool) -> None:
        job.ledger.keep_state(arrays, {**facts, "history": history}, now=now)

    shared: dict[str, Any] = {"clock": clock, "report": report, "saved": saved}
    shared["keep"] = keep if job.ledger.keeps else None
    if data_term is None:
        chains = make(job.num_chains or MACHINE_CHAINS, 1)
        answer = learn_machine(
            chains, job.data.with_hidden(job.hidden), coordinates, v, job.hidden, ridge=common["ridge"],
            max_iter=job.max_iter, seed=job.seed, **shared,
        )  # fmt: skip
        return answer, device
    # Parameters fitted to N rows are worth about 1/(2 N) each, by chance: a hundredth of that decides nothing.
    each = max(_SAMPLED_TOL_EACH, 0.005 / job.data.num_rows)
    enough = min(_SAMPLED_TOL, each * coordinates.size) * (_ROUGH if job.rough else 1.0)
    answer = sampled_likelihood(
        template, make, data, data_term, v, scaling, **common,
        num_chains=job.num_chains or _default_chains(coordinates), tempered=job.moments == "tempered",
        certified=job.within is not None and job.within.certified, tol=job.tol or enough, max_iter=job.max_iter or 200,
        rng=np.random.default_rng([job.seed, 2]), **shared,
    )  # fmt: skip
    return answer, device


def _verdict(stopped_by: str) -> Status:
    verdicts = {"done": Status.OK, "interrupt": Status.INTERRUPTED, "time_limit": Status.NOT_CONVERGED}
    return verdicts.get(stopped_by, Status.NOT_CONVERGED)


def _model_term(coordinates: Coordinates, moments: str) -> ModelTerm | None:
    """Exact moments, or None where they are to be sampled."""
    if moments in ("sampled", "tempered"):
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
