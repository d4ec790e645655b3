"""Masses of rows: the logarithms of their weights under a model, missing values summed over."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import BoolArray, FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock, OutOfTimeError
from fastmix._memory import available_memory
from fastmix.errors import ResourceError
from fastmix.exact.batch import plan_batch
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.data_moments import DataTerm
from fastmix.learning.dataset import MISSING, Dataset
from fastmix.learning.exact_log_z import obstacle
from fastmix.learning.pseudo_likelihood import is_dense
from fastmix.learning.tuning import (
    CHUNK_NUMBERS,
    MAX_COMPLETIONS,
    MAX_SECONDS_PER_GAP,
    MEAN_FIELD_STEPS,
    MIN_DENSE_TERMS,
    SECONDS_PER_DENSE_ENTRY,
)
from fastmix.model import MarkovRandomField

__all__ = ["least_log_masses", "log_masses"]


def log_masses(model: MarkovRandomField, data: Dataset, clock: Clock = NO_LIMIT) -> FloatArray:
    """Log of the unnormalized mass of every row, missing values summed over; NaN where the time ended before."""
    result = np.full(len(data.states), np.nan)
    gaps = np.zeros(0, dtype=np.int64)
    if data.has_missing:
        gaps = np.flatnonzero((data.states == MISSING).any(axis=1))
    whole = np.delete(np.arange(len(result)), gaps)
    with contextlib.suppress(OutOfTimeError):
        for some, masses in _masses_of_whole(model, data.states, whole, clock):
            result[some] = masses
            clock.check()
        if len(gaps):
            _write_gaps(model, data, gaps, clock, result)
    return result


def least_log_masses(model: MarkovRandomField, data: Dataset, clock: Clock = NO_LIMIT) -> tuple[FloatArray, bool]:
    """The same, with lower bounds where missing values have too many joint states, and whether there are any bounds.

    The bounds are those of independent missing values (mean field), whose probabilities are found by iteration.
    """
    if not data.has_missing:
        return log_masses(model, data, clock), False
    sizes = np.where(data.states == MISSING, np.log(model.num_states), 0.0).sum(axis=1)
    is_hard = sizes > math.log(MAX_COMPLETIONS)
    result = np.empty(len(is_hard))
    result[~is_hard] = log_masses(model, _some_rows(data, ~is_hard), clock)
    if not is_hard.any():
        return result, False
    hard = _some_rows(data, is_hard)
    try:
        result[is_hard] = log_masses(model, hard, clock)
    except ResourceError:
        if obstacle(model):
            raise
        result[is_hard] = _mean_field_masses(model, hard.states)
        return result, True
    return result, False


def _some_rows(data: Dataset, chosen: BoolArray) -> Dataset:
    """Some rows of the data with their weights, whatever these add up to."""
    return replace(data, states=data.states[chosen], weights=data.weights[chosen])


def _mean_field_masses(model: MarkovRandomField, states: NDArray[Any]) -> FloatArray:
    """Lower bounds on the masses of rows (rows, n) with missing values, by Gibbs and Bogoliubov.

    Of independent values with the means m of the contrasts it is ``c.m + m'Mm / 2`` plus their entropy. Half a step to
    the stationary point, as often as it takes for all rows side by side; the best on the way is the answer.
    """
    coordinates = Coordinates(model.structure)
    v, constant = coordinates.from_parameters(model.parameters)
    c = v[: coordinates.num_contrasts]
    matrix = coordinates.matrix(v)
    starts = coordinates.starts
    result = np.empty(len(states))
    step = max(1, CHUNK_NUMBERS // max(1, coordinates.num_contrasts))
    for first in range(0, len(states), step):
        some = states[first : first + step]
        gone = some == MISSING
        columns = np.flatnonzero(gone.any(axis=0))
        means = coordinates.encode(some)
        best = np.full(len(some), -np.inf)
        shares = {i: np.full((int(gone[:, i].sum()), len(q)), 1.0 / len(q)) for i, q in _own(coordinates, columns)}
        for _ in range(MEAN_FIELD_STEPS):
            fields = means @ matrix
            values = means @ c + 0.5 * np.einsum("rk,rk->r", fields, means)
            for i, q in _own(coordinates, columns):
                rows = gone[:, i]
                own = slice(starts[i], starts[i + 1])
                p = shares[i]
                values[rows] -= (p * np.log(np.maximum(p, 1e-300))).sum(axis=1)
                logits = (fields[rows][:, own] + c[own]) @ q.T
                wanted = np.exp(logits - logits.max(axis=1, keepdims=True))
                shares[i] = 0.5 * (p + wanted / wanted.sum(axis=1, keepdims=True))
                means[rows, own] = shares[i] @ q
            best = np.maximum(best, values)
        result[first : first + step] = best
    return result + constant + model.log_constant


def _own(coordinates: Coordinates, variables: IntArray) -> Iterator[tuple[int, FloatArray]]:
    """Some variables, and the contrasts (states, contrasts) of each."""
    for i in variables.tolist():
        yield i, coordinates.tables[i]


def _write_gaps(model: MarkovRandomField, data: Dataset, gaps: IntArray, clock: Clock, result: FloatArray) -> None:
    """Write the masses of rows with missing values: by lists of these, or, where they are too many, by elimination."""
    try:
        if obstacle(model):
            result[gaps] = _listed_masses(model, data.states[gaps], clock)
        else:
            _sum_gaps(model, data, gaps, clock, result)
    except ResourceError:
        try:
            plan = plan_batch(model, memory_limit=available_memory() / 2, clock=clock)
        except ResourceError:
            plan = None
        if plan is None or plan.seconds_per_row > MAX_SECONDS_PER_GAP:
            raise
        rows = data.states[gaps].astype(np.int64)
        result[gaps] = plan.answer(rows, marginals=False, clock=clock).log_z


def _masses_of_whole(
    model: MarkovRandomField, states: NDArray[Any], rows: IntArray, clock: Clock
) -> Iterator[tuple[IntArray, FloatArray]]:
    """Rows without missing values, some at a time, and the logarithms of their masses."""
    n = model.num_variables
    num_edges = model.num_edges
    is_late = clock.left() < SECONDS_PER_DENSE_ENTRY * len(model.log_pairwise)
    if len(rows) * num_edges < MIN_DENSE_TERMS or model.num_factors or is_late or not is_dense(model):
        step = max(1, CHUNK_NUMBERS // max(1, n + num_edges + len(model.structure.scope_variables)))
        for first in range(0, len(rows), step):
            some = rows[first : first + step]
            yield some, np.asarray(model.log_weight(states[some]))
        return
    coordinates = Coordinates(model.structure)
    v, constant = coordinates.from_parameters(model.parameters)
    c = v[: coordinates.num_contrasts]
    matrix = coordinates.matrix(v)
    step = max(1, CHUNK_NUMBERS // max(1, coordinates.num_contrasts))
    for first in range(0, len(rows), step):
        some = rows[first : first + step]
        y = coordinates.encode(states[some])
        masses = y @ c + 0.5 * np.einsum("rk,rk->r", y @ matrix, y)
        yield some, masses + constant + model.log_constant


def _sum_gaps(model: MarkovRandomField, data: Dataset, gaps: IntArray, clock: Clock, result: FloatArray) -> None:
    """Write the masses of rows with missing values into ``result``, part by part of these."""
    coordinates = Coordinates(model.structure)
    v, constant = coordinates.from_parameters(model.parameters)
    matrix = coordinates.matrix(v)
    part = replace(data, states=data.states[gaps], weights=data.weights[gaps])
    for pattern in DataTerm(coordinates, part, clock=clock).patterns:
        result[gaps[pattern.rows]] = pattern.log_masses(v, matrix) + constant + model.log_constant
        clock.check()


def _listed_masses(model: MarkovRandomField, states: NDArray[Any], clock: Clock) -> FloatArray:
    """Masses of rows (rows, n) with missing values under any model: all their joint states are listed."""
    result = np.empty(len(states))
    masks, where = np.unique(states == MISSING, axis=0, return_inverse=True)
    for k, mask in enumerate(masks):
        counts = model.num_states[mask]
        rows = np.flatnonzero(where.reshape(-1) == k)
        total = math.prod(counts.tolist())
        if total > MAX_COMPLETIONS:
            raise ResourceError(
                f"missing values must have at most {MAX_COMPLETIONS:,} joint states where the model has "
                f"{obstacle(model)}, got {total:.4g} for {len(counts)} variables of one row"
            )
        listed = np.stack(np.unravel_index(np.arange(total), counts), axis=1)
        step = max(1, MAX_COMPLETIONS // total)
        for first in range(0, len(rows), step):
            some = rows[first : first + step]
            whole = np.repeat(states[some], total, axis=0)
            whole[:, mask] = np.tile(listed, (len(some), 1))
            result[some] = np.logaddexp.reduce(model.log_weight(whole).reshape(-1, total), axis=1)
            clock.check()
    return result
