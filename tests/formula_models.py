"""Small models for formulas, and their weights by enumeration."""

from __future__ import annotations

import numpy as np

from fastmix import MarkovRandomField
from fastmix._arrays import FloatArray, IntArray

__all__ = ["some_model", "weights_of"]


def some_model(seed: int) -> MarkovRandomField:
    """Up to four variables of up to three states, few different weights, a third of the entries forbidden."""
    rng = np.random.default_rng([seed, 83])
    counts = rng.integers(1, 4, rng.integers(1, 5)).tolist()
    factors = []
    for _ in range(rng.integers(1, 4)):
        scope = rng.permutation(len(counts))[: rng.integers(1, 4)].tolist()
        weights = rng.normal(size=rng.integers(1, 4))
        table = rng.choice(weights, size=[counts[v] for v in scope])
        if len(scope) > 1:
            table[rng.random(table.shape) < 1 / 3] = -np.inf
        factors.append((scope, table))
    return MarkovRandomField.from_factors(counts, factors)


def weights_of(model: MarkovRandomField) -> tuple[IntArray, FloatArray]:
    """All configurations, and their weights."""
    states = np.array(list(np.ndindex(*model.num_states.tolist())))
    return states, np.exp(np.atleast_1d(model.log_weight(states)))
