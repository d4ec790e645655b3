"""``score``: the log-likelihood of data under a model, with a standard error where log Z has to be sampled."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from fastmix import _show
from fastmix._arrays import FloatArray
from fastmix._checks import as_list, check_backend, check_choice, check_count, check_positive, describe
from fastmix._clock import Clock, OutOfTimeError, Report
from fastmix._context import Context, open_context
from fastmix._memory import available_memory
from fastmix.bounds.bracket import find_bracket
from fastmix.chains.place import device_of
from fastmix.errors import Interrupted
from fastmix.learning.data import read_data
from fastmix.learning.dataset import MISSING, Dataset
from fastmix.learning.exact_log_z import LogZ, lower_bound, upper_bound
from fastmix.learning.log_z import log_normalizer
from fastmix.learning.masses import log_masses
from fastmix.learning.pseudo_likelihood import pseudo_log_likelihoods
from fastmix.learning.tuning import (
    BOUNDS_MEMORY_PART,
    BOUNDS_TIME_SHARE,
    MASS_TIME_SHARE,
    NUM_GROUPS,
    PSEUDO_TIME_SHARE,
)
from fastmix.model import MarkovRandomField, check_model
from fastmix.results import Result, Status

__all__ = ["ScoreResult", "score"]


#: What to do about a result that is but a bound.
BOUND_ADVICE = (
    "The time ended before log Z was known: it is at least this, so no log-likelihood is larger: allow more time_limit."
)
#: Fields of a result, in the order of its JSON.
FACTS = (
    "log_likelihood", "std_error", "std_error_data", "log_z", "log_z_kind", "log_z_std_error", "log_z_method",
    "log_z_both_ways", "log_z_bounds",
    "pseudo_log_likelihood", "conditional_log_likelihood", "num_rows",
)  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ScoreResult(Result):
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
    log_z_both_ways : (float, float) or None
        Estimates of log Z by annealing from independent models to this one, which err downwards, and back, which err
        upwards.
    log_z_bounds : (float, float)
        Log Z is proven to be between these, whatever the chains did; both are log Z where that is exact. The mean
        log-likelihood is then within as much of that of the result.
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

    advice_by_status: ClassVar[Mapping[Status, str]] = {
        Status.NOT_MIXED: "Annealing there and back disagree, or the standard error is large: allow more num_chains or "
        "time_limit."
    }

    log_likelihood: float
    std_error: float
    std_error_data: float
    per_row: FloatArray
    log_z: float
    log_z_kind: str
    log_z_std_error: float
    log_z_method: str
    log_z_both_ways: tuple[float, float] | None
    log_z_bounds: tuple[float, float]
    pseudo_log_likelihood: float | None
    conditional_log_likelihood: float | None
    num_rows: int

    def __repr__(self) -> str:
        error = f" +- {self.std_error:.2g}" if self.std_error else ""
        text = f"log_likelihood={self.log_likelihood:.6g}{error}, status={str(self.status)!r}, {self.num_rows:,} rows"
        return f"ScoreResult({text})"

    @property
    def advice(self) -> str:
        """What the status means for a score, and what to do next."""
        return BOUND_ADVICE if self.log_z_kind == "bound" else super().advice

    def columns(self) -> dict[str, Any]:
        """Columns of :meth:`to_frame` by name: the log-likelihood of every row."""
        return {"row": np.arange(len(self.per_row)), "log_likelihood": self.per_row}

    def title(self) -> str:
        """How log Z was found."""
        return f"score ({self.log_z_method})"

    def facts(self) -> dict[str, str]:
        """The likelihood and log Z with their errors, and the other scores, as far as they are known."""
        known = {}
        for name in FACTS:
            value = getattr(self, name)
            if value is None or name in ("log_z_both_ways", "log_z_bounds"):
                continue
            if isinstance(value, float):
                value = f"{value:.6g}"
            elif isinstance(value, int):
                value = f"{value:,}"
            known[name.replace("_", " ")] = value
        if self.log_z_kind in ("estimate", "bound"):
            low, high = self.log_z_bounds
            known["log z, proven"] = f"from {low:.6g} to {high:.6g}"
        return known

    def contents(self) -> dict[str, Any]:
        """All scores and what is known of log Z; rows and model are left out."""
        return {name: getattr(self, name) for name in FACTS}

    def plot(self, axes: Any = None) -> Any:
        """How often rows have which log-likelihood (Matplotlib, extra ``plot``); the axes come back."""
        axes = super().plot(axes)
        axes.set_title(f"mean log-likelihood {self.log_likelihood:.6g} ({self.status})")
        return _show.counts(axes, self.per_row, self.log_likelihood, label="log-likelihood of a row")


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
    either direction an estimate of its own, which must agree. Where the time ends before, there is a lower bound. In
    any case log Z is between two bounds that are proven, ``log_z_bounds``, tighter ones where there is a time limit, a
    tenth of which is for them.

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
    options = {"method": method, "tol": tol, "num_chains": num_chains, "target": targets, "missing": missing}
    with open_context(
        "score", model, seed=seed, time_limit=time_limit, backend=backend, progress=progress, options=options
    ) as context:
        table = read_data(data, weights=weights, model=model, missing=missing)
        rows, where = table.merged()
        masses = log_masses(model, rows, context.clock.part(MASS_TIME_SHARE))
        conditional = None
        if targets is not None:
            conditional = _conditional(model, rows, masses, targets, context.clock)
        pseudo = _pseudo(model, rows, context)
        annealing = context.within("log Z", _all_but_bounds(context.clock))
        answer = log_normalizer(model, rows, annealing, method=method, tol=tol, num_chains=num_chains)
        answer, bounds = _with_bounds(model, rows, answer, context)
        if np.isnan(masses).any():
            verdict = Status.TIME_LIMIT if answer.status is Status.OK else answer.status
            answer = replace(answer, status=verdict, stats={**answer.stats, "stopped_by": "time_limit"})
        result = _result(model, table, (masses - answer.log_z)[where], answer, bounds)
        return context.finish(replace(result, pseudo_log_likelihood=pseudo, conditional_log_likelihood=conditional))


def _all_but_bounds(clock: Clock) -> Clock:
    """The clock for log Z, which leaves some of a limit for bounds on it."""
    return clock if clock.limit is None else clock.part(1.0 - BOUNDS_TIME_SHARE)


def _with_bounds(
    model: MarkovRandomField, data: Dataset, answer: LogZ, context: Context
) -> tuple[LogZ, tuple[float, float]]:
    """What is known of log Z, and proven bounds on it: better ones than the simplest where there is a time limit."""
    if answer.kind in ("exact", "zero"):
        return answer, (answer.log_z, answer.log_z)
    low = lower_bound(model, data).log_z
    high = upper_bound(model)
    if context.clock.limit is not None and not context.clock.past():
        try:
            found = find_bracket(model, context.within("bounds"), memory=available_memory() / BOUNDS_MEMORY_PART)
            stopped = found.status is Status.INTERRUPTED
            low = max(low, found.log_z_lower)
            high = min(high, found.log_z_upper)
        except Interrupted:  # before it had any
            stopped = True
        if stopped:
            answer = replace(answer, status=Status.INTERRUPTED, stats={**answer.stats, "stopped_by": "interrupt"})
    if answer.kind == "bound":
        answer = replace(answer, log_z=max(answer.log_z, low))
    return answer, (low, high)


def _result(
    model: MarkovRandomField, data: Dataset, rows: FloatArray, answer: LogZ, bounds: tuple[float, float]
) -> ScoreResult:
    """The result for log-likelihoods of all rows, and for what is known of log Z."""
    mean = _mean(data, rows)
    spread = _mean(data, (rows - mean) ** 2) if math.isfinite(mean) else math.inf
    effective_rows = 1.0 / float((data.weights**2).sum())
    return ScoreResult(
        model=model,
        log_likelihood=mean,
        std_error=answer.std_error,
        std_error_data=math.sqrt(spread / max(1.0, effective_rows - 1.0)),
        per_row=rows,
        log_z=answer.log_z,
        log_z_kind=answer.kind,
        log_z_std_error=answer.std_error,
        log_z_method=answer.method,
        log_z_both_ways=answer.bracket,
        log_z_bounds=bounds,
        pseudo_log_likelihood=None,
        conditional_log_likelihood=None,
        num_rows=data.num_rows,
        status=answer.status,
        stats={"backend": answer.place, **answer.stats},
        provenance={"device": device_of(answer.place)},
    )


def _pseudo(model: MarkovRandomField, data: Dataset, context: Context) -> float | None:
    """The mean log-pseudo-likelihood; None where values are missing, with factors, and without the time for it."""
    if data.has_missing or model.num_factors:
        return None
    with contextlib.suppress(OutOfTimeError):
        return _mean(data, pseudo_log_likelihoods(model, data, context.clock.part(PSEUDO_TIME_SHARE)))
    return None


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
    given = log_masses(model, replace(data, states=others), clock.part(MASS_TIME_SHARE))
    # Where a row has probability 0, so have its targets, also if the others alone are impossible.
    return _mean(data, masses - np.where(masses == -math.inf, 0.0, given))
