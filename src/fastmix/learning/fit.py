"""One fit with given penalties: exact, sampled or by the pseudo-likelihood."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock, OutOfTimeError
from fastmix._memory import check_memory
from fastmix.chains.annealing import make_pool
from fastmix.chains.base import Chains
from fastmix.chains.cuda.device import cuda_available
from fastmix.errors import Interrupted, ModelError, NotConvergedError, ResourceError, UnfitMethodError
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.data import MISSING, Dataset, column_label
from fastmix.learning.log_z import LogZ, independent_parameters, log_normaliser, observed_shares
from fastmix.learning.machines import MACHINE_CHAINS, is_machine, learn_machine
from fastmix.learning.objectives import (
    DataTerm,
    ExactLikelihood,
    Objective,
    PseudoLikelihood,
    exact_model_term,
)
from fastmix.learning.optimise import Scaling, minimise, table_norms
from fastmix.learning.result import LearnResult, NormBall
from fastmix.learning.resume import Ledger
from fastmix.learning.sampled import Sampled, sampled_likelihood
from fastmix.learning.score import log_masses, pseudo_log_likelihoods
from fastmix.model import MarkovRandomField
from fastmix.projection import project
from fastmix.results import Status
from fastmix.theory import norms
from fastmix.theory.dependency import dependency_matrix

__all__ = ["Job", "Size", "fit", "independent_fit", "model_norms", "moments_of_contrasts", "validate"]


_TOL = 1e-5  # of exact objectives, in scaled coordinates
# Of the sampled likelihood, in its own units, for each parameter: a share of what chance makes, the second for so many
# contrasts, where it is enough to reach the last, if that is less than the first.
_CHANCE, _LITTLE_CHANCE, _SMALL, _SAMPLED_TOL = 0.1, 0.01, 64, 2e-6
_TAME = 1e-2  # least ridge of the pseudo-likelihood where the sampled likelihood begins
_ROUGH, _MOST_ROUGH = 5.0, 0.01  # times the tolerance where penalties are chosen, and the largest that this makes
_DEVICE_CHAINS, _DEVICE_ANNEALED = 1 << 14, 1 << 13  # on a GPU, where more of them take little longer
# Entries of a table beyond which an unpenalised optimum is at infinity, from which on that is looked into, and by how
# much those of a smaller tolerance are larger then.
_LARGEST, _SUSPECT, _GROWTH = 40.0, 5.0, 0.5
# Entries of tables whose norms take long, the seconds that they take for each, and the share of a limit after which
# histories have none.
_MANY_ENTRIES, _NORM_SECONDS, _NORM_SHARE = 80_000, 5e-8, 0.3
# Seconds and bytes that a fit takes for every edge, entry of a table and pair of contrasts on an edge: the model, its
# coordinates, twenty gradients and the norms; and for every pair of contrasts at all, and that times the rows.
_EDGE_SECONDS, _ENTRY_SECONDS, _PAIR_SECONDS, _DENSE_SECONDS, _PRODUCT_SECONDS = 4e-7, 5e-8, 1e-7, 2e-8, 1e-10
_EDGE_BYTES, _ENTRY_BYTES, _PAIR_BYTES = 100.0, 50.0, 500.0
# Chains at least, and what a sweep of all may take: a share of a time limit, by pairs of neighbors per second.
_FEWEST_CHAINS, _SWEEP_SHARE, _PAIRS_PER_SECOND = 64, 0.02, 2e9
_TOLD = 0.5  # residual, below which the state of a variable has more than half of the probability


@dataclass(frozen=True, eq=False)
class Job:
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
    judge: str | None = None  # the objective that validation data are scored by, if it is another one
    scale: float = 1.0  # times the penalties of the results, for this objective
    found: list[LearnResult] = field(default_factory=list)  # all fits so far, for an interrupt between two of them

    @property
    def on_device(self) -> bool:
        """Whether a GPU is to be used, and there is one."""
        return self.backend != "cpu" and cuda_available()[0]


@dataclass(frozen=True)
class Size:
    """How large a fit is: edges, entries of their tables, pairs of contrasts on them, and contrasts of variables."""

    num_edges: float
    num_entries: float
    num_pairs: float
    num_contrasts: float

    @classmethod
    def of_graph(cls, num_states: IntArray, graph: IntArray) -> Size:
        """That of a fit on the edges of a graph (m, 2)."""
        first, second = num_states[graph.T].astype(np.float64)
        pairs = float(((first - 1.0) * (second - 1.0)).sum())
        return cls(len(graph), float((first * second).sum()), pairs, float((num_states - 1).sum()))

    @classmethod
    def of_complete(cls, num_states: IntArray, hidden: int) -> Size:
        """That of a fit on all edges, or on all between variables and hidden ones."""
        states = num_states.astype(np.float64)
        inner = states - 1.0
        if hidden:
            pairs = hidden * float(inner.sum())
            return cls(len(states) * hidden, 2.0 * hidden * float(states.sum()), pairs, float(inner.sum()) + hidden)
        num_edges = len(states) * (len(states) - 1) / 2.0
        entries, pairs = (0.5 * float(some.sum() ** 2 - (some**2).sum()) for some in (states, inner))
        return cls(num_edges, entries, pairs, float(inner.sum()))

    def check(self, job: Job) -> None:
        """A :class:`ResourceError` without the memory for a fit, an :class:`OutOfTimeError` without the time."""
        required = _EDGE_BYTES * self.num_edges + _ENTRY_BYTES * self.num_entries + _PAIR_BYTES * self.num_pairs
        what = f"a graph of {self.num_edges:,.0f} edges with {self.num_entries:.4g} entries of tables"
        check_memory(required, what, "take fewer hidden variables, or give edges")
        seconds = _EDGE_SECONDS * self.num_edges + _ENTRY_SECONDS * self.num_entries + _PAIR_SECONDS * self.num_pairs
        dense = self.num_contrasts**2
        seconds += dense * (_DENSE_SECONDS + _PRODUCT_SECONDS * len(job.data.states))
        if seconds > job.clock.left():
            raise OutOfTimeError


def fit(
    job: Job, graph: IntArray, ridge: float | str, l1: float | str, start: MarkovRandomField | None = None
) -> LearnResult:
    """One fit with given penalties; if the checkpoint has it, what is there."""
    assert not isinstance(ridge, str)
    assert not isinstance(l1, str)
    known = job.ledger.next_fit()
    data = job.data.merged()[0].with_hidden(job.hidden)
    if known is None:
        Size.of_graph(data.num_states, graph).check(job)
    template = data.blank_model(graph)
    coordinates = Coordinates(template.structure)
    scaled = job.scale * ridge, job.scale * l1
    v, facts = _solve(job, template, coordinates, data, *scaled, start) if known is None else known
    model = _without_empty_tables(template.with_parameters(coordinates.to_parameters(v)), coordinates, v, l1)
    facts = {"validation_log_likelihood": None, **facts, "status": Status(facts["status"])}
    try:
        if known is None and facts["stats"]["stopped_by"] != "interrupt":
            facts["validation_log_likelihood"], normaliser = validate(job, model, data)
            if normaliser is not None:
                facts["stats"] |= {"validation_std_error": normaliser.std_error, "log_z_method": normaliser.method}
                if normaliser.status is Status.INTERRUPTED:
                    raise KeyboardInterrupt
            if facts["stats"]["stopped_by"] == "done":
                job.ledger.keep_fit(v, facts)
        sizes = model_norms(model, job.clock)
    except KeyboardInterrupt:  # the model is there
        facts["status"], facts["stats"]["stopped_by"] = Status.INTERRUPTED, "interrupt"
        sizes = model_norms(model, job.clock)
    result = LearnResult(
        model=model, objective=job.objective, ridge=ridge, l1=l1, within=job.within, norms=sizes,
        num_rows=job.data.num_rows, seed=job.seed, **facts,
    )  # fmt: skip
    job.found.append(result)
    return result


def independent_fit(job: Job, ridge: float | str, l1: float | str) -> LearnResult:
    """The independent model with the marginals of the data, which is no fit: for when there is no time for one."""
    data = job.data.with_hidden(job.hidden)
    blank = data.blank_model()
    coordinates = Coordinates(blank.structure)
    v = coordinates.from_fields(independent_parameters(blank, data))
    model = blank.with_parameters(coordinates.to_parameters(v))
    chosen = [0.0 if isinstance(value, str) else value for value in (ridge, l1)]
    return LearnResult(
        model=model, objective=job.objective, moments="none", status=Status.NOT_CONVERGED, value=None,
        ridge=chosen[0], l1=chosen[1], within=job.within, norms={"spectral": 0.0, "inf": 0.0}, moment_error=None,
        bias_bound=None, validation_log_likelihood=None, num_rows=job.data.num_rows, seed=job.seed,
        stats={"stopped_by": "time_limit", "num_iterations": 0},
    )  # fmt: skip


def _solve(
    job: Job, template: MarkovRandomField, coordinates: Coordinates, data: Dataset, ridge: float, l1: float,
    start: MarkovRandomField | None,
) -> tuple[FloatArray, dict[str, Any]]:  # fmt: skip
    """The optimum v, and what a :class:`LearnResult` says about the way there, as plain data."""
    means, variances = moments_of_contrasts(coordinates, data)
    if ridge == 0.0:
        _check_seen(data, template.edges, job.hidden, pairs=job.within is None and not l1)
    alike = "all" if job.within is not None else "edges" if l1 else "entries"
    scaling = Scaling.of(coordinates, means, variances, alike)
    ball = None if job.within is None else _Projector(template, job.within, scaling)
    v = _first(coordinates, data, job, start, template)
    history: list[dict[str, Any]] = []

    def report(entry: dict[str, Any], at: FloatArray) -> None:
        k = entry["iteration"]
        often = "gap" in entry or (k & (k - 1) == 0 and k % 3 == 1)  # 1, 4, 16, ..: longer than a small exact step
        often = often and not job.clock.past(_NORM_SHARE)
        here = model_norms(template.with_parameters(coordinates.to_parameters(at))) if often else None
        history.append({**entry, "norms": here, "seconds": job.clock.seconds()})
        shown = {name: entry[name] for name in ("value", "moment_error", "gap") if entry.get(name) is not None}
        job.clock.report(k, None, "rounds" if "gap" in entry else "iterations", details=shown)

    common: dict[str, Any] = {"ridge": ridge, "l1": l1, "ball": ball}
    pseudo = job.objective == "pseudo-likelihood"
    if pseudo and job.hidden:
        raise UnfitMethodError("the pseudo-likelihood needs every value: hidden variables need objective='likelihood'")
    if job.validation is not None and job.validation.has_missing:  # what cannot be scored is refused before the fit
        if (job.judge or job.objective) == "pseudo-likelihood":
            raise ModelError("validation must have every value for the pseudo-likelihood, and some are missing")
        DataTerm(coordinates, job.validation.merged()[0])
    goal = _pseudo_likelihood(job, coordinates, data) if pseudo else _exact_likelihood(job, coordinates, data)
    error = bias = value = None
    mixed = True
    if goal is not None:
        tol, max_iter = _TOL if job.tol is None else job.tol, job.max_iter or 1000
        outcome = minimise(goal, v, scaling, **common, tol=tol, max_iter=max_iter, clock=job.clock, report=report)
        v, value, error, stopped_by = outcome.v, outcome.value, outcome.moment_error, outcome.stopped_by
        stats: dict[str, Any] = {"num_iterations": outcome.num_iterations, "gradient_norm": outcome.gradient_norm}
        how = goal.method
    else:
        answer, place = _sample(job, template, data, v, scaling, common, start, history, report)
        v, error, bias, stopped_by = answer.v, answer.moment_error, answer.bias_bound, answer.stopped_by
        stats = {
            "num_iterations": answer.num_rounds, "gap": answer.gap, "noise": answer.noise,
            "num_chains": answer.num_chains, "num_rungs": answer.num_rungs, "num_sweeps": answer.num_sweeps,
            "backend": place,
            "correlations": {str(k): c for k, c in answer.correlations.items()},
            "correlation_of_modes": answer.correlation,
        }  # fmt: skip
        how, mixed = "sampled" if answer.num_rungs == 1 else "tempered", answer.mixed
    verdicts = {"done": Status.OK, "interrupt": Status.INTERRUPTED}
    status = verdicts.get(stopped_by, Status.NOT_CONVERGED)
    if not mixed and status is not Status.INTERRUPTED:
        status = Status.NOT_MIXED
    if ridge == 0.0 and not l1 and ball is None and status is Status.OK and _is_infinite(job, goal, data, v, scaling):
        status = Status.NOT_CONVERGED
    stats = {"stopped_by": "done" if stopped_by == "max_iter" else stopped_by, **stats}
    return v, {
        "moments": how, "status": str(status), "value": value, "moment_error": error, "bias_bound": bias,
        "history": history, "stats": stats,
    }  # fmt: skip


def _is_infinite(job: Job, goal: Objective | None, data: Dataset, v: FloatArray, scaling: Scaling) -> bool:
    """Whether the optimum of an objective without penalties is at infinity, as far as v shows: states decide others.

    Parameters are large, and the others of every row tell the state of a variable: no finite optimum of the
    pseudo-likelihood is like that, and hardly one of the likelihood. Where values are missing, large parameters grow
    with a hundredth of the tolerance, if it does not happen to be met already.
    """
    coordinates, largest = scaling.coordinates, float(np.abs(v).max(initial=0.0))
    if largest < _SUSPECT or largest > _LARGEST:
        return largest > _LARGEST
    if not job.hidden and not data.has_missing:
        residuals = PseudoLikelihood(coordinates, data).rows(v)[1]
        first = coordinates.starts[:-1][np.diff(coordinates.starts) > 0]
        return bool((np.add.reduceat(residuals**2, first, axis=1).max(axis=0) < _TOLD**2).any())
    if goal is None:
        return False
    later = minimise(goal, v, scaling, ridge=0.0, tol=1e-2 * (job.tol or _TOL), max_iter=1000, clock=job.clock)
    return float(np.abs(later.v - v).max()) > _GROWTH


def _sample(
    job: Job, template: MarkovRandomField, data: Dataset, v: FloatArray, scaling: Scaling, common: dict[str, Any],
    start: MarkovRandomField | None, history: list[dict[str, Any]], report: Callable[..., None],
) -> tuple[Sampled, str]:  # fmt: skip
    """The sampled likelihood from a tame optimum of the pseudo-likelihood, an earlier model or a checkpoint on."""
    coordinates = scaling.coordinates
    plain = not common["l1"] and common["ball"] is None and not job.data.has_missing and job.moments != "tempered"
    machine = plain and is_machine(template.structure, job.hidden)
    data_term = None if machine else DataTerm(coordinates, data, sampled=True)
    saved = job.ledger.take_state()
    if data_term is not None and data_term.fixed and start is None and saved is None:
        # With little ridge its optimum can be far from that of the likelihood, with modes of its own.
        ridge, tol = (max(common["ridge"], _TAME), 0.03) if coordinates.num_contrasts > 32 else (common["ridge"], 1e-3)
        tame = {**common, "ridge": ridge, "l1": 2.0 * common["l1"], "tol": tol, "max_iter": 200}
        first = minimise(_pseudo_likelihood(job, coordinates, data), v, scaling, **tame, clock=job.clock)
        v = first.v
        if first.stopped_by == "interrupt":
            return Sampled(v, stopped_by="interrupt"), "cpu"
    if job.clock.past():
        return Sampled(v, stopped_by="time_limit"), "cpu"
    clock = job.clock.part(0.7) if job.validation is not None else job.clock
    place = "cpu"

    def make(num_chains: int, num_sets: int) -> Chains:
        nonlocal place
        chains, place = make_pool(template, job.backend, num_chains=num_chains, num_sets=num_sets, seed=job.seed)
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
        return answer, place
    # Parameters fitted to N rows are worth about 1/(2 N) each, by chance: a small share of that decides nothing
    # (Bottou and Bousquet, 2008). Tables that an l1 term has made 0 are no parameters.
    share = _CHANCE if coordinates.num_contrasts > _SMALL else _LITTLE_CHANCE
    # No more of them are by chance than there are rows.
    size = min(np.count_nonzero(v) if common["l1"] else coordinates.size, job.data.num_rows)
    enough = min(max(_SAMPLED_TOL, 0.5 * share / job.data.num_rows), 0.5 * _CHANCE / job.data.num_rows) * size
    if job.rough:
        enough = max(enough, min(_ROUGH * enough, _MOST_ROUGH))
    # By Dobrushin's criterion, whose bias the rounds follow; widths are for random updates.
    proven = job.within is not None and job.within.certified and job.within.norm != "width"
    usual = _DEVICE_CHAINS if job.on_device else 1024 if coordinates.num_contrasts <= 32 else 4096
    if job.clock.limit is not None:  # the limit that was given, not what is left of it: chains do not depend on speed
        affordable = _SWEEP_SHARE * job.clock.limit * _PAIRS_PER_SECOND / max(1, template.num_edges)
        usual = max(_FEWEST_CHAINS, min(usual, int(affordable)))
    answer = sampled_likelihood(
        template, make, data, data_term, v, scaling, **common, num_chains=job.num_chains or usual,
        tempered=job.moments == "tempered", certified=proven,
        tol=job.tol or enough, max_iter=job.max_iter or 200,
        rng=np.random.default_rng([job.seed, 2]), **shared,
    )  # fmt: skip
    return answer, place


def _pseudo_likelihood(job: Job, coordinates: Coordinates, data: Dataset) -> PseudoLikelihood:
    """The pseudo-likelihood, on the device if there is one and it was asked for."""
    if job.on_device:
        from fastmix.learning.products_cuda import CudaPseudoLikelihood  # importing Numba takes half a second

        if CudaPseudoLikelihood.fits(coordinates):
            return CudaPseudoLikelihood(coordinates, data)
    return PseudoLikelihood(coordinates, data)


def _exact_likelihood(job: Job, coordinates: Coordinates, data: Dataset) -> ExactLikelihood | None:
    """The likelihood with exact moments, or None where they are to be sampled."""
    if job.moments in ("sampled", "tempered"):
        return None
    try:
        term = exact_model_term(coordinates, asked=job.moments == "exact", clock=job.clock)
        return ExactLikelihood(term, DataTerm(coordinates, data, clock=job.clock))
    except ResourceError:
        if job.moments == "exact":
            raise
        return None


def moments_of_contrasts(coordinates: Coordinates, data: Dataset) -> tuple[FloatArray, FloatArray]:
    """Means and variances (D,) of the contrasts over what is observed; 0 and 1/2 for what never is."""
    shares, seen = observed_shares(data)
    means, squares = np.empty(coordinates.num_contrasts), np.empty(coordinates.num_contrasts)
    offsets = coordinates.structure.unary_offsets
    for i, q in enumerate(coordinates.tables):
        own = slice(coordinates.starts[i], coordinates.starts[i + 1])
        p = shares[offsets[i] : offsets[i + 1]]
        means[own] = p @ q
        squares[own] = p @ q**2
    variances = np.maximum(0.0, squares - means**2)
    never = np.repeat(seen == 0.0, np.diff(coordinates.starts))
    return means, np.where(never, 0.5, variances)


def _check_seen(data: Dataset, graph: IntArray, hidden: int, *, pairs: bool) -> None:
    """A :class:`ModelError` where a state, or a pair on an edge, never occurs and nothing keeps it finite."""
    column = partial(column_label, data.variable_names)
    instead = "so without a penalty its parameter is infinite: give a positive ridge"
    visible = len(data.num_states) - hidden
    for i, count in enumerate(data.num_states[:visible].tolist()):
        counts = np.bincount(data.states[data.states[:, i] != MISSING, i], minlength=count)
        if (counts == 0).any():
            state = int(np.flatnonzero(counts == 0)[0])
            raise ModelError(f"state {state} of {column(i)} never occurs, {instead}, or leave the column out")
    if not pairs or data.has_missing:
        return
    for i, j in graph.tolist():
        sizes = (int(data.num_states[i]), int(data.num_states[j]))
        counts = np.bincount(data.states[:, i] * np.int64(sizes[1]) + data.states[:, j], minlength=sizes[0] * sizes[1])
        if (counts == 0).any():
            a, b = divmod(int(np.flatnonzero(counts == 0)[0]), sizes[1])
            where = f"state {a} of {column(i)} and state {b} of {column(j)}"
            raise ModelError(f"{where} never occur together, {instead}")


def _first(
    coordinates: Coordinates, data: Dataset, job: Job, start: MarkovRandomField | None, template: MarkovRandomField
) -> FloatArray:
    """Where to begin: an earlier model on the same graph, else the independent one."""
    if start is not None:  # an l1 term may have removed some of its edges
        own = Coordinates(start.structure)
        v, _ = own.from_parameters(start.parameters)
        return coordinates.gather(v[: own.num_contrasts], own.matrix(v))
    v = coordinates.from_fields(independent_parameters(template, data))
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
    kept = table_norms(coordinates, v) > 0.0
    entries = np.repeat(kept, np.diff(model.pairwise_offsets))
    return MarkovRandomField(
        model.num_states, model.log_unary, model.edges[kept], model.log_pairwise[entries],
        variable_names=model.variable_names, state_names=model.state_names,
    )  # fmt: skip


def validate(job: Job, model: MarkovRandomField, data: Dataset) -> tuple[float | None, LogZ | None]:
    """The mean log-(pseudo-)likelihood of the validation data."""
    if job.validation is None:
        return None, None
    table = job.validation.merged()[0]
    if (job.judge or job.objective) == "pseudo-likelihood":
        return float(table.weights @ pseudo_log_likelihoods(model, table)), None
    accuracy, count = 0.03 if job.rough else 0.01, _DEVICE_ANNEALED if job.on_device else 1024
    try:
        answer = log_normaliser(
            model, data, tol=accuracy, num_chains=count, seed=job.seed, clock=job.clock, backend=job.backend
        )
    except ResourceError:  # no memory, or no time is left: the model matters more
        return None, None
    if answer.kind == "bound":
        return None, None
    return float(table.weights @ log_masses(model, table)) - answer.log_z, answer


def model_norms(model: MarkovRandomField, clock: Clock = NO_LIMIT) -> dict[str, float]:
    """Norms of the dependency matrix of a model, ``spectral`` and ``inf``; NaN of a large one once the time is over."""
    entries = len(model.log_pairwise)
    if entries > _MANY_ENTRIES and clock.left() <= _NORM_SECONDS * entries:
        return {"spectral": math.nan, "inf": math.nan}
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
            result = error.result  # inside, but not quite the closest
        except Interrupted:  # whose result is none of this call
            raise KeyboardInterrupt from None
        if result.model is not model:
            self.memory = result.multipliers
        new = coordinates.from_parameters(result.model.parameters)[0]
        d, z = coordinates.num_contrasts, self.scaling.from_v(v)
        z[d:] = new[d:] / self.scaling.scales[d:]
        return self.scaling.to_v(z)
