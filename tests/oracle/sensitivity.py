"""Naive sensitivities: sums over all configurations, and differences of posteriors."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from fastmix import MarkovRandomField


def joint(model: MarkovRandomField, evidence: dict[int, Any]) -> tuple[np.ndarray, np.ndarray]:
    """All configurations (C, n), and their probabilities given hard and soft evidence."""
    every = np.array(list(product(*(range(int(count)) for count in model.num_states))), dtype=np.int64)
    weights = np.atleast_1d(model.log_weight(every))
    for variable, state in evidence.items():
        likelihood = np.asarray(state, dtype=float)
        if likelihood.ndim == 0:
            likelihood = (np.arange(model.num_states[variable]) == state).astype(float)
        with np.errstate(divide="ignore"):
            weights = weights + np.log(likelihood)[every[:, variable]]
    probabilities = np.exp(weights - np.logaddexp.reduce(weights))
    return every, probabilities


def posterior(model: MarkovRandomField, query: int, evidence: dict[int, Any]) -> np.ndarray:
    """Probabilities of the states of a variable."""
    every, probabilities = joint(model, evidence)
    return np.bincount(every[:, query], probabilities, int(model.num_states[query]))


def derivatives(model: MarkovRandomField, query: int, evidence: dict[int, Any], step: float = 1e-5) -> np.ndarray:
    """Of the posterior by all parameters (K, P), by central differences; 0 by parameters that are -inf."""
    theta = model.parameters
    found = np.zeros((int(model.num_states[query]), len(theta)))
    for k in np.flatnonzero(np.isfinite(theta)):
        moved = theta.copy()
        moved[k] += step
        above = posterior(model.with_parameters(moved), query, evidence)
        moved[k] -= 2.0 * step
        below = posterior(model.with_parameters(moved), query, evidence)
        found[:, k] = (above - below) / (2.0 * step)
    return found


def pair(model: MarkovRandomField, i: int, j: int, evidence: dict[int, Any]) -> np.ndarray:
    """The joint distribution of two variables."""
    every, probabilities = joint(model, evidence)
    table = np.zeros((int(model.num_states[i]), int(model.num_states[j])))
    np.add.at(table, (every[:, i], every[:, j]), probabilities)
    return table


def information(table: np.ndarray) -> float:
    """The mutual information of a joint distribution, entry by entry."""
    total = 0.0
    for a, b in np.ndindex(table.shape):
        if table[a, b] > 0.0:
            total += table[a, b] * np.log(table[a, b] / (table[a].sum() * table[:, b].sum()))
    return float(total)
