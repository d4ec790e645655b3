"""``score``: the log-likelihood of data under a model, with a standard error where log Z has to be sampled."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix import _show
from fastmix._arrays import FloatArray, IntArray
from fastmix._checks import as_list, check_backend, check_choice, check_count, check_positive, choose_seed, describe
from fastmix._clock import NO_LIMIT, Clock, OutOfTimeError, Report, listening
from fastmix.chains.base import device_of
from fastmix.errors import Interrupted, ResourceError
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.data import MISSING, Dataset, read_data
from fastmix.learning.log_z import NUM_GROUPS, log_normaliser, obstacle
from fastmix.learning.objectives import MOST_COMPLETIONS, DataTerm, PseudoLikelihood
from fastmix.model import MarkovRandomField, check_model
from fastmix.model.build import table_positions
from fastmix.results import Framed, Status, as_plain, provenance

__all__ = ["ScoreResult", "log_masses", "pseudo_log_likelihoods", "score"]


_MASS_SHARE, _PSEUDO_SHARE = 0.5, 0.3  # of a time limit for the masses of rows, and of the rest for pseudo-likelihoods
# Variables up to which couplings make a dense matrix in any case, the density from which on they do, and entries of
# conditional distributions that are made at once.
_SMALL_DENSE, _LEAST_DENSITY, _CHUNK_ENTRIES = 2000, 0.1, 1 << 22
_MANY_TERMS = 1 << 24  # edges times rows from which on that is worth it for their masses
_DENSE_SECONDS = 5e-8  # that such a matrix takes, or a sparse one, for every entry of a table


_NOT_MIXED = "Annealing there and back disagree, or the standard error is large: allow more num_chains or time_limit."
_BOUND = (
    "The time ended before log Z was known: it is at least this, so no log-likelihood is larger: allow more time_limit."
)
_FACTS = (  # of a result, in the order of its JSON
    "log_likelihood", "std_error", "std_error_data", "log_z", "log_z_kind", "log_z_std_error", "log_z_method",
    "log_z_bracket",
    "pseudo_log_likelihood", "conditional_log_likelihood", "num_rows",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class ScoreResult(Framed):
    """How probable data are under a model.

    Attributes
    ----------
    model : MarkovRandomField
    log_likelihood : float
        Mean over the rows of log p(x); missing values are summed over. NaN where the time ended before all rows had
        been looked at.
    std_error : float
        Its standard error because of log Z; 0 where log Z is exact, infinite where it is a bound.
    std_error_data : float
        Standard error of the mean over the rows, as a sample of all that could have been.
    per_row : float array (rows,)
        Log-likelihood of every row; NaN of those that were not looked at in time.
    log_z, log_z_std_error : float
    log_z_kind : {"exact", "estimate", "bound", "zero"}
        What is known of log Z. ``estimate``: with the standard error. ``bound``: log Z is not below this number, for
        better ones there was no time, and log-likelihoods are not above those of the result. ``zero``: Z = 0 is proven.
    log_z_method : str
        ``enumeration``, ``junction tree``, ``annealing`` (in both directions), ``lower bound``.
    log_z_bracket : (float, float) or None
        Estimates of log Z by annealing from independent models to this one, which err downwards, and back, which err
        upwards.
    pseudo_log_likelihood : float or None
        Mean over the rows of ``sum_i log p(x_i | x_others)``; None where values are missing, for larger factors, and
        where there was no time for it.
    conditional_log_likelihood : float or None
        Mean over the rows of the log-probability of the ``target`` variables given the others.
    num_rows : int
    status : Status
        ``not_mixed`` where the two directions disagree, or the standard error is above 0.1; ``time_limit`` where there
        was no time for all rows, or for more than a bound.
    stats, provenance : mapping
        ``stats["stopped_by"]`` is ``accuracy`` if annealing has reached ``tol``, else ``time_limit``, ``interrupt`` or
        ``done``, also where log Z is exact.
    """

    model: MarkovRandomField
    log_likelihood: float
    std_error: float
    std_error_data: float
    per_row: FloatArray
    log_z: float
    log_z_kind: str
    log_z_std_error: float
    log_z_method: str
    log_z_bracket: tuple[float, float] | None
    pseudo_log_likelihood: float | None
    conditional_log_likelihood: float | None
    num_rows: int
    status: Status
    stats: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        error = f" +- {self.std_error:.2g}" if self.std_error else ""
        text = f"log_likelihood={self.log_likelihood:.6g}{error}, status={str(self.status)!r}, {self.num_rows:,} rows"
        return f"ScoreResult({text})"

    @property
    def advice(self) -> str:
        """What the status means for a score, in one sentence."""
        if self.log_z_kind == "bound":
            return _BOUND
        return _NOT_MIXED if self.status is Status.NOT_MIXED else self.status.advice

    def columns(self) -> dict[str, Any]:
        """Columns of :meth:`to_frame` by name: the log-likelihood of every row."""
        return {"row": np.arange(len(self.per_row)), "log_likelihood": self.per_row}

    def plot(self, axes: Any = None) -> Any:
        """How often rows have which log-likelihood (Matplotlib, extra ``plot``); the axes come back."""
        axes = _show.new_axes(axes)
        axes.set_title(f"mean log-likelihood {self.log_likelihood:.6g} ({self.status})")
        return _show.counts(axes, self.per_row, self.log_likelihood, label="log-likelihood of a row")

    def _repr_html_(self) -> str:
        facts = [("status", self.status), ("rows", f"{self.num_rows:,}")]
        rows = [
            (name.replace("_", " "), f"{value:.6g}" if isinstance(value, float) else value)
            for name in _FACTS
            if (value := getattr(self, name)) is not None and name not in ("num_rows", "log_z_bracket")
        ]
        return _show.html_table(repr(self.model), facts, rows, ("of the data", ""))

    def to_dict(self) -> dict[str, Any]:
        """The result without rows and model as plain data, the shape of the command line's JSON."""
        return as_plain(self, " ".join(_FACTS))


def score(
    model: MarkovRandomField,
    data: Any,
    *,
    weights: ArrayLike | None = None,
    target: Sequence[int | str] | None = None,
    method: Literal["auto", "exact", "annealing"] = "auto",
    tol: float = 0.01,
    missing: int | Literal["auto"] | None = "auto",
    num_chains: int = 1024,
    seed: int | None = None,
    time_limit: float | None = None,
    backend: str = "cpu",
    progress: Report = "auto",
) -> ScoreResult:
    """A :class:`ScoreResult`: the mean log-likelihood of data under a model.

    Log Z is exact where the model is small or of low treewidth. Else chains are annealed to this model from two others,
    the independent one with the marginals of the data and the uniform one, which finds modes that the data are not in,
    and back; both ways and directions together (Bennett's acceptance ratio) give log Z with a standard error, and
    either direction an estimate of its own, which must agree. Where the time ends before, there is a lower bound.

    Parameters
    ----------
    model : MarkovRandomField
    data
        As for :func:`fastmix.learn`; states that the model does not know are an error.
    weights : array_like (rows,), optional
    target : sequence of variables, optional
        Numbers or names; also the conditional log-likelihood of these given all others, as far as they are observed.
        They may not have more than 65,536 joint states where they depend on each other (all together in models with
        forbidden states or larger factors); the same holds for missing values.
    method : {"auto", "exact", "annealing"}
        How to find log Z.
    tol : float
        Standard error of log Z to reach; the annealing is made slower until then.
    missing : int, "auto" or None
        As for :func:`fastmix.learn`.
    num_chains : int
        Of the annealing.
    seed, time_limit, backend, progress
        As for :func:`fastmix.sample`.

    Raises
    ------
    ModelError
        If the data do not fit the model.
    ResourceError
        If ``method="exact"`` needs too much memory or time, or missing values have too many joint states.
    Interrupted
        On Ctrl-C: a KeyboardInterrupt whose ``result`` has log Z as well as it is known, None before it is.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1)], coupling=0.5)
    >>> result = score(model, [[0, 0], [1, 1], [0, 1]])
    >>> round(result.log_likelihood, 4), round(result.pseudo_log_likelihood, 4), result.log_z_method
    (-1.3397, -1.2932, 'enumeration')
    """
    check_model(model)
    check_choice("method", method, ("auto", "exact", "annealing"))
    check_backend(backend)
    tol = check_positive("tol", tol)
    num_chains = check_count("num_chains", num_chains, least=2 * NUM_GROUPS)
    targets = None if target is None else _check_target(model, target)
    options = {
        "method": method, "tol": tol, "num_chains": num_chains, "backend": backend, "time_limit": time_limit,
        "target": targets, "missing": missing,
    }  # fmt: skip
    seed = choose_seed(seed)
    with listening(progress, "score") as listener:
        clock = Clock(time_limit, listener=listener, what="score")
        table = read_data(data, weights=weights, model=model, missing=missing)
        merged, where = table.merged()
        masses, conditional = log_masses(model, merged, clock.part(_MASS_SHARE)), None
        if targets is not None:
            conditional = _conditional(model, merged, masses, targets, clock)
        pseudo = None
        if not table.has_missing and not model.num_factors:
            with contextlib.suppress(OutOfTimeError):
                pseudo = _mean(merged, pseudo_log_likelihoods(model, merged, clock.part(_PSEUDO_SHARE)))
        answer = log_normaliser(
            model, merged, method=method, tol=tol, num_chains=num_chains, seed=seed, clock=clock, backend=backend
        )
    if np.isnan(masses).any():
        late = {"stopped_by": "time_limit"}
        verdict = Status.TIME_LIMIT if answer.status is Status.OK else answer.status
        answer = replace(answer, status=verdict, stats={**answer.stats, **late})
    rows = (masses - answer.log_z)[where]
    mean = _mean(table, rows)
    effective = 1.0 / float((table.weights**2).sum())
    spread = _mean(table, (rows - mean) ** 2) if math.isfinite(mean) else math.inf
    result = ScoreResult(
        model=model, log_likelihood=mean, std_error=answer.std_error,
        std_error_data=math.sqrt(spread / max(1.0, effective - 1.0)), per_row=rows, log_z=answer.log_z,
        log_z_kind=answer.kind, log_z_std_error=answer.std_error, log_z_method=answer.method,
        log_z_bracket=answer.bracket,
        pseudo_log_likelihood=pseudo, conditional_log_likelihood=conditional, num_rows=table.num_rows,
        status=answer.status, stats={"stopped_by": "done", "backend": answer.place, **answer.stats, **clock.stats()},
        provenance=provenance(model, seed=seed, device=device_of(answer.place), **options),
    )  # fmt: skip
    if result.status is Status.INTERRUPTED:
        raise Interrupted("the annealing was interrupted; the result so far is in this exception", result)
    return result


def _mean(data: Dataset, values: FloatArray) -> float:
    """The mean over the rows of a value for each; rows without weight may have any."""
    heavy = data.weights > 0.0
    return float(data.weights[heavy] @ values[heavy])


def _check_target(model: MarkovRandomField, target: Sequence[int | str]) -> list[Any]:
    """The variables whose probability given the others is asked for, as they were named."""
    if isinstance(target, Mapping):  # of variables to states, which are not asked for
        raise ValueError(f"target must be a list of variables, got {describe(target)}")
    targets = as_list("target", target, "a list of variables")
    numbers = [model.variable_index(variable) for variable in targets]
    if not numbers or len(set(numbers)) < len(numbers):
        raise ValueError(f"target must be one variable or more, each once, got {describe(targets)}")
    return targets


def _conditional(
    model: MarkovRandomField, data: Dataset, masses: FloatArray, targets: Sequence[int | str], clock: Clock
) -> float:
    """The mean over the rows of the log-probability of some variables given the others."""
    others = data.states.copy()
    others[:, [model.variable_index(i) for i in targets]] = MISSING
    given = log_masses(model, replace(data, states=others), clock.part(_MASS_SHARE))
    # Where a row has probability 0, so have its targets, also if the others alone are impossible.
    return _mean(data, masses - np.where(masses == -math.inf, 0.0, given))


def log_masses(model: MarkovRandomField, data: Dataset, clock: Clock = NO_LIMIT) -> FloatArray:
    """Log of the unnormalised mass of every row, missing values summed over; NaN where the time ended before."""
    result = np.full(len(data.states), np.nan)
    gaps = np.flatnonzero((data.states == MISSING).any(axis=1)) if data.has_missing else np.zeros(0, dtype=np.int64)
    whole = np.delete(np.arange(len(result)), gaps)
    with contextlib.suppress(OutOfTimeError):
        for some, masses in _masses_of_whole(model, data.states, whole, clock):
            result[some] = masses
            clock.check()
        if len(gaps) and obstacle(model):
            result[gaps] = _listed_masses(model, data.states[gaps], clock)
        elif len(gaps):
            coordinates = Coordinates(model.structure)
            v, constant = coordinates.from_parameters(model.parameters)
            matrix = coordinates.matrix(v)
            part = replace(data, states=data.states[gaps], weights=data.weights[gaps])
            for pattern in DataTerm(coordinates, part, clock=clock).patterns:
                result[gaps[pattern.rows]] = pattern.log_masses(v, matrix) + constant + model.log_constant
                clock.check()
    return result


def _masses_of_whole(
    model: MarkovRandomField, states: NDArray[Any], rows: IntArray, clock: Clock
) -> Iterator[tuple[IntArray, FloatArray]]:
    """Rows without missing values, some at a time, and the logarithms of their masses."""
    n, num_edges = model.num_variables, model.num_edges
    late = clock.left() < _DENSE_SECONDS * len(model.log_pairwise)
    if len(rows) * num_edges < _MANY_TERMS or model.num_factors or late or not _is_dense(model):
        step = max(1, _CHUNK_ENTRIES // max(1, n + num_edges + len(model.structure.scope_variables)))
        for first in range(0, len(rows), step):
            some = rows[first : first + step]
            yield some, np.asarray(model.log_weight(states[some]))
        return
    coordinates = Coordinates(model.structure)
    v, constant = coordinates.from_parameters(model.parameters)
    c, matrix = v[: coordinates.num_contrasts], coordinates.matrix(v)
    step = max(1, _CHUNK_ENTRIES // max(1, coordinates.num_contrasts))
    for first in range(0, len(rows), step):
        some = rows[first : first + step]
        y = coordinates.encode(states[some])
        masses = y @ c + 0.5 * np.einsum("rk,rk->r", y @ matrix, y)
        yield some, masses + constant + model.log_constant


def _is_dense(model: MarkovRandomField) -> bool:
    """Whether products with a matrix of all couplings are quicker than looking at every edge."""
    n = model.num_variables
    return not model.has_forbidden and 2.0 * model.num_edges >= _LEAST_DENSITY * n * n


def _listed_masses(model: MarkovRandomField, states: NDArray[Any], clock: Clock) -> FloatArray:
    """The same of rows (rows, n) with missing values, for any model: all their joint states are listed."""
    result = np.empty(len(states))
    masks, where = np.unique(states == MISSING, axis=0, return_inverse=True)
    for k, mask in enumerate(masks):
        counts, rows = model.num_states[mask], np.flatnonzero(where.reshape(-1) == k)
        total = math.prod(counts.tolist())
        if total > MOST_COMPLETIONS:
            raise ResourceError(
                f"missing values must have at most {MOST_COMPLETIONS:,} joint states where the model has "
                f"{obstacle(model)}, got {total:.4g} for {len(counts)} variables of one row"
            )
        listed = np.stack(np.unravel_index(np.arange(total), counts), axis=1)
        step = max(1, MOST_COMPLETIONS // total)
        for first in range(0, len(rows), step):
            some = rows[first : first + step]
            whole = np.repeat(states[some], total, axis=0)
            whole[:, mask] = np.tile(listed, (len(some), 1))
            result[some] = np.logaddexp.reduce(model.log_weight(whole).reshape(-1, total), axis=1)
            clock.check()
    return result


def pseudo_log_likelihoods(model: MarkovRandomField, data: Dataset, clock: Clock = NO_LIMIT) -> FloatArray:
    """``sum_i log p(x_i | x_others)`` of every row, -inf where the row has no weight.

    Through a dense matrix of couplings, or, of large models with few edges and of those that forbid something, through
    a sparse one; an :class:`fastmix._clock.OutOfTimeError` where that takes too long.
    """
    n, entries = model.num_variables, len(model.log_unary)
    result = np.empty(len(data.states))
    if clock.left() < _DENSE_SECONDS * len(model.log_pairwise):
        raise OutOfTimeError
    if _is_dense(model) or (n <= _SMALL_DENSE and not model.has_forbidden):
        coordinates = Coordinates(model.structure)
        v = coordinates.from_parameters(model.parameters)[0]
        chunk = max(1, _CHUNK_ENTRIES // max(1, coordinates.num_contrasts))
        for begin in range(0, len(result), chunk):
            clock.check()
            rows = slice(begin, begin + chunk)
            part = replace(data, states=data.states[rows], weights=data.weights[rows])
            result[rows] = PseudoLikelihood(coordinates, part).rows(v)[0]
        return result
    from scipy.sparse import coo_array, csr_array

    edge, row, col = table_positions(model.num_states, model.edges)
    starts = model.unary_offsets[:-1]
    first, second = starts[model.edges[edge, 0]] + row, starts[model.edges[edge, 1]] + col
    ends = np.concatenate([first, second]), np.concatenate([second, first])
    tables = csr_array(coo_array((np.tile(model.log_pairwise, 2), ends), shape=(entries, entries)))
    chunk = max(1, _CHUNK_ENTRIES // max(1, entries))
    for begin in range(0, len(result), chunk):
        clock.check()
        at = starts + data.states[begin : begin + chunk]
        chosen = csr_array((np.ones(at.size), at.ravel(), np.arange(0, at.size + 1, n)), shape=(len(at), entries))
        logits = (chosen @ tables).toarray() + model.log_unary
        own, top = np.take_along_axis(logits, at, axis=1), np.maximum.reduceat(logits, starts, axis=1)
        possible = (own > -np.inf).all(axis=1)
        top[~possible] = 0.0
        weights = np.exp(logits - np.repeat(top, model.num_states, axis=1))
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = own - top - np.log(np.add.reduceat(weights, starts, axis=1))
        result[begin : begin + chunk] = np.where(possible, shares.sum(axis=1), -np.inf)
    return result
