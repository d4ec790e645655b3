"""``stability``: how often the l1 term finds an edge again in halves of the data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from fastmix._arrays import FloatArray
from fastmix._checks import check_count, check_positive, choose_seed
from fastmix.learning.data import read_data
from fastmix.learning.learn import learn
from fastmix.learning.tuning import MAX_PENALTY, MAX_SUBSAMPLES, STABILITY_TOLERANCE

__all__ = ["stability"]


def stability(
    data: Any,
    *,
    l1: float,
    ridge: float = 1e-3,
    num_subsamples: int = 20,
    weights: ArrayLike | None = None,
    missing: int | Literal["auto"] | None = "auto",
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
    l1 = check_positive("l1", l1, most=MAX_PENALTY)
    ridge = check_positive("ridge", ridge, or_zero=True, most=MAX_PENALTY)
    num_subsamples = check_count("num_subsamples", num_subsamples, least=1, most=MAX_SUBSAMPLES)
    rng = np.random.default_rng(choose_seed(seed))
    table = read_data(data, weights=weights, missing=missing)
    n = len(table.num_states)
    num_rows = len(table.states)
    found = np.zeros((n, n))
    for _ in range(num_subsamples):
        half = rng.choice(num_rows, size=max(1, num_rows // 2), replace=False)
        part = read_data(replace(table, states=table.states[half], num_rows=len(half)), weights=table.weights[half])
        result = learn(
            part, objective="pseudo-likelihood", l1=l1, ridge=ridge, tol=STABILITY_TOLERANCE, seed=0
        )  # fmt: skip
        i, j = result.model.edges.T
        found[i, j] += 1.0
    return (found + found.T) / num_subsamples
