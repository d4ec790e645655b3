"""Bounds on marginals: by the neighbors of a variable, and from bounds on weights."""

from __future__ import annotations

import numpy as np
import pytest
from bounds_models import left_of, random_small, truth

from fastmix.bounds.marginal_bounds import blanket_bounds, combine, tighten
from fastmix.bounds.reduced_tables import reduce_to_tables


@pytest.mark.parametrize("seed", range(20))
def test_blankets(seed: int) -> None:
    model = random_small(seed)
    terms = reduce_to_tables(model)
    log_z, by_state = truth(model)
    low, high = (terms.reduction.expand_node_marginals(x) for x in blanket_bounds(terms))
    p = np.exp(by_state - log_z)
    assert (low <= p + 1e-12).all()
    assert (p <= high + 1e-12).all()


@pytest.mark.parametrize("seed", range(30))
def test_bounds_on_weights_make_bounds_on_marginals(seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = random_small(seed, forbidden=False)
    terms = reduce_to_tables(model)
    log_z, by_state = truth(model)
    by_state = left_of(terms, by_state)
    for width in (0.0, 0.1, 3.0):
        lower, upper = (by_state + s * width * rng.random(len(by_state)) for s in (-1.0, 1.0))
        bounds = log_z - width * rng.random(), log_z + width * rng.random()
        (least, most), low, high = tighten(bounds, lower - 1e-12, upper + 1e-12, terms)
        assert bounds[0] <= least <= log_z + 1e-9
        assert log_z - 1e-9 <= most <= bounds[1]
        low, high = combine([(low, high)], terms)
        p = np.exp(by_state - log_z)
        assert (low <= p + 1e-9).all()
        assert (p <= high + 1e-9).all()
