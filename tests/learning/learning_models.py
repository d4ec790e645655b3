"""Models and rows for the tests of learning."""

from __future__ import annotations

import numpy as np

from fastmix import MarkovRandomField
from fastmix.exact import draw_exact
from fastmix.graphs import complete_edges


def draws(model: MarkovRandomField, count: int, seed: int = 0) -> np.ndarray:
    return np.asarray(draw_exact(model, num_draws=count, seed=seed))


def mixed_model(seed: int = 0, scale: float = 0.6) -> MarkovRandomField:
    rng = np.random.default_rng(seed)
    counts, edges = [2, 3, 2, 4], complete_edges(4)
    tables = [scale * rng.standard_normal((counts[i], counts[j])) for i, j in edges]
    return MarkovRandomField.from_tables([scale * rng.standard_normal(k) for k in counts], edges, tables)
