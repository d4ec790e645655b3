"""Independent models of data: shares of the states of every variable, and what follows from them."""

from __future__ import annotations

import numpy as np

from fastmix._arrays import FloatArray
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.dataset import MISSING, Dataset
from fastmix.learning.tuning import MAX_COUNTED_STATES
from fastmix.model import MarkovRandomField
from fastmix.model.flat import offsets_of

__all__ = ["independent_parameters", "moments_of_contrasts", "observed_shares", "uniform_parameters"]


def observed_shares(data: Dataset) -> tuple[FloatArray, FloatArray]:
    """Shares (S,) of the states of every variable in turn among observed values, and the weight (n,) of these."""
    offsets = offsets_of(data.num_states)
    starts = offsets[:-1]
    num_entries = int(offsets[-1])
    if not num_entries:
        return np.zeros(0), np.zeros(0)
    step = max(1, MAX_COUNTED_STATES // len(starts))
    if num_entries == 2 * len(starts) and (data.num_states == 2).all() and not data.has_missing:
        sums = np.zeros((len(starts), 2))
        for first in range(0, len(data.states), step):
            rows = data.states[first : first + step].astype(np.float64)
            weights = data.weights[first : first + step]
            sums[:, 0] += weights @ (1.0 - rows)
            sums[:, 1] += weights @ rows
        totals = sums.sum(axis=1, keepdims=True)
        shares = np.divide(sums, totals, out=np.zeros_like(sums), where=totals > 0.0)
        return shares.reshape(-1), totals[:, 0]
    counts = np.zeros(num_entries)
    for first in range(0, len(data.states), step):
        rows = data.states[first : first + step]
        seen = rows != MISSING
        entries = (rows + starts)[seen]
        weights = np.broadcast_to(data.weights[first : first + step, None], rows.shape)[seen]
        counts += np.bincount(entries, weights, minlength=num_entries)
    seen_weights = np.add.reduceat(counts, starts)
    totals = seen_weights.repeat(data.num_states)
    return np.divide(counts, totals, out=np.zeros(num_entries), where=totals > 0.0), seen_weights


def uniform_parameters(model: MarkovRandomField) -> FloatArray:
    """Parameters of the model of equally probable configurations; its log Z is 0."""
    theta = np.zeros(model.num_parameters)
    theta[: len(model.log_unary)] = np.repeat(-np.log(model.num_states), model.num_states)
    return theta


def independent_parameters(model: MarkovRandomField, data: Dataset) -> FloatArray:
    """Parameters of the independent model with the (smoothed) marginals of the data; its log Z is 0."""
    theta = np.zeros(model.num_parameters)
    shares, seen = observed_shares(data)
    uniform = 1.0 / np.repeat(model.num_states, model.num_states)
    shares = np.where(np.repeat(seen > 0.0, model.num_states), shares, uniform)
    theta[: len(shares)] = np.log(0.99 * shares + 0.01 * uniform)
    return theta


def moments_of_contrasts(coordinates: Coordinates, data: Dataset) -> tuple[FloatArray, FloatArray]:
    """Means and variances (D,) of the contrasts over what is observed; 0 and 1/2 for what never is."""
    shares, seen = observed_shares(data)
    means = np.empty(coordinates.num_contrasts)
    squares = np.empty(coordinates.num_contrasts)
    offsets = coordinates.structure.unary_offsets
    for i, q in enumerate(coordinates.tables):
        own = slice(coordinates.starts[i], coordinates.starts[i + 1])
        p = shares[offsets[i] : offsets[i + 1]]
        means[own] = p @ q
        squares[own] = p @ q**2
    variances = np.maximum(0.0, squares - means**2)
    never = np.repeat(seen == 0.0, np.diff(coordinates.starts))
    return means, np.where(never, 0.5, variances)
