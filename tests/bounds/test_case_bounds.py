"""Bounds by cases: they hold after every split, and all cases together are exact."""

from __future__ import annotations

import math

import numpy as np
import pytest
from bounds_models import left_of, random_small, rough_covers, truth

from fastmix._clock import NO_LIMIT
from fastmix.bounds import case_bounds
from fastmix.bounds.case_bounds import CaseBounds
from fastmix.bounds.lower_bound import LowerBound
from fastmix.bounds.tractable_parts import TractableParts


@pytest.mark.parametrize(
    ("seed", "num_splits"),
    [*((seed, 4) for seed in range(4)), *(pytest.param(seed, 30, marks=pytest.mark.slow) for seed in range(200))],
)
def test_cases_hold_after_every_split(seed: int, num_splits: int) -> None:
    model = random_small(seed)
    terms, upper = rough_covers(model)
    if not terms.num_variables:
        return
    log_z, by_state = truth(model)
    by_state = left_of(terms, by_state)
    slack = 1e-12 * (1.0 + abs(log_z))  # of the enumeration
    scopes = terms.scopes[terms.num_variables :]
    lower = LowerBound(terms, TractableParts(terms.num_states, scopes, terms.tie_strengths, max_entries=4.0).clusters())
    upper.improve(NO_LIMIT, 3)
    start = np.full(terms.num_unary, -np.inf), upper.log_weights
    cases = CaseBounds(upper, lower, (-math.inf, upper.log_z), start)
    widths = [upper.log_z - log_z]
    for _ in range(num_splits):
        if not cases.split(NO_LIMIT):
            break
        assert cases.log_z[0] <= log_z <= cases.log_z[1]
        assert (cases.log_weights[0] <= np.where(np.isfinite(by_state), by_state + slack, by_state)).all()
        assert (by_state <= cases.log_weights[1] + slack).all()
        widths.append(cases.log_z[1] - log_z)
    assert widths[-1] <= widths[0]


def test_all_cases_are_exact() -> None:
    model = random_small(9, forbidden=False)
    _, upper = rough_covers(model)
    upper.improve(NO_LIMIT, 3)
    cases = CaseBounds(
        upper, None, (-math.inf, upper.log_z), (np.full(len(upper.log_weights), -np.inf), upper.log_weights)
    )
    while cases.split(NO_LIMIT):
        pass
    assert cases.log_z[1] == pytest.approx(truth(model)[0], abs=1e-8)


@pytest.mark.parametrize("seed", [1, 4, 9])
def test_cases_that_are_not_kept_still_count(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for two cases, the narrowest are closed at every split, and the sum of all still holds."""
    monkeypatch.setattr(case_bounds, "LEAST_NUM_CASES", 2)
    model = random_small(seed, forbidden=False)
    terms, upper = rough_covers(model)
    log_z, by_state = truth(model)
    by_state = left_of(terms, by_state)
    slack = 1e-12 * (1.0 + abs(log_z))
    upper.improve(NO_LIMIT, 3)
    start = np.full(terms.num_unary, -np.inf), upper.log_weights
    cases = CaseBounds(upper, None, (-math.inf, upper.log_z), start, memory_limit=1.0)
    num_splits = 0
    while num_splits < 6 and cases.split(NO_LIMIT):
        num_splits += 1
        assert cases.log_z[1] >= log_z - slack
        assert (by_state <= cases.log_weights[1] + slack).all()
    assert num_splits > 0
