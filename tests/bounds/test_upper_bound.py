"""The bound by covers: at every point, its slopes, and the one by largest entries."""

from __future__ import annotations

import math

import numpy as np
import pytest
from bounds_models import left_of, random_small, rough_covers, truth

from fastmix._clock import NO_LIMIT
from fastmix.bounds.upper_bound import crude_upper
from strategies import seeds


@pytest.mark.parametrize("seed", seeds(200, quick=12))
def test_any_point_bounds_every_state(seed: int) -> None:
    model = random_small(seed)
    terms, upper = rough_covers(model)
    log_z, by_state = truth(model)
    rng = np.random.default_rng(seed)
    for scale in (0.0, 0.5, 3.0):
        upper.log_z, upper.log_weights = math.inf, np.full(terms.num_unary, np.inf)
        upper._evaluate(scale * rng.normal(size=len(upper.point)), NO_LIMIT)
        assert upper.log_z >= log_z
        assert (upper.log_weights >= left_of(terms, by_state)).all()
    crude, states = crude_upper(terms)
    assert crude >= log_z
    assert (states >= left_of(terms, by_state)).all()


def test_slopes_are_those_of_the_bound() -> None:
    for seed in (0, 4, 7):
        _, upper = rough_covers(random_small(seed))
        rng = np.random.default_rng(seed)
        x, step = 0.3 * rng.normal(size=len(upper.point)), 1e-5
        _, slope = upper._evaluate(x, NO_LIMIT)
        for _ in range(4):
            d = rng.normal(size=len(x))
            high, low = (upper._evaluate(x + s * step * d, NO_LIMIT)[0] for s in (1.0, -1.0))
            assert slope @ d == pytest.approx((high - low) / (2.0 * step), rel=1e-4, abs=1e-6)
