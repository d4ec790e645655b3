"""Slow, obvious versions of what learning computes: loops over rows, variables and configurations."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix import MarkovRandomField


def pseudo_log_likelihood(model: MarkovRandomField, row: NDArray[Any]) -> float:
    """``sum_i log p(x_i | x_others)`` from weights of whole configurations."""
    total = 0.0
    for i in range(model.num_variables):
        weights = []
        for s in range(model.num_states[i]):
            other = row.copy()
            other[i] = s
            weights.append(np.exp(model.log_weight(other)))
        total += np.log(weights[row[i]] / sum(weights))
    return total


def log_mass(model: MarkovRandomField, row: NDArray[Any]) -> float:
    """The log of the sum of the weights of all configurations that agree with a row where it is not -1."""
    ranges = [range(model.num_states[i]) if s < 0 else [s] for i, s in enumerate(row)]
    return float(np.log(sum(np.exp(model.log_weight(x)) for x in itertools.product(*ranges))))


def log_likelihood(model: MarkovRandomField, rows: NDArray[Any]) -> NDArray[np.float64]:
    """Log-likelihood of every row, missing values summed over."""
    log_z = log_mass(model, np.full(model.num_variables, -1))
    return np.array([log_mass(model, row) - log_z for row in rows])


def random_model(num_states: list[int], edges: Any, seed: int, scale: float = 1.0) -> MarkovRandomField:
    rng = np.random.default_rng(seed)
    unary = [scale * rng.standard_normal(count) for count in num_states]
    tables = [scale * rng.standard_normal((num_states[i], num_states[j])) for i, j in edges]
    return MarkovRandomField.from_tables(unary, edges, tables)
