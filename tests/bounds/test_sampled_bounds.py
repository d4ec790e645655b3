"""Bounds by draws of the mixture of covers."""

from __future__ import annotations

import numpy as np
from bounds_models import left_of, random_small, rough_covers, truth

from fastmix._clock import NO_LIMIT, Clock
from fastmix.bounds.sampled_bounds import draw_configurations, sampled_bounds


def test_weights_of_draws_are_bounded_and_right_on_average() -> None:
    model = random_small(6, forbidden=False)
    _, upper = rough_covers(model)
    upper.improve(NO_LIMIT, 5)
    log_z, by_state = truth(model)
    found, _ = sampled_bounds(upper, 1.0 - 1e-6, 50_000, np.random.default_rng(0), Clock())
    assert found is not None
    assert found.log_z[0] <= log_z <= found.log_z[1]
    assert found.log_z[1] - found.log_z[0] < 0.3
    terms = upper.tables
    by_state = left_of(terms, by_state)
    assert (found.lower <= by_state).all()
    assert (by_state <= found.upper).all()


def test_one_draw_makes_no_bounds() -> None:
    _, upper = rough_covers(random_small(6, forbidden=False))
    upper.improve(NO_LIMIT, 2)
    found, drawn = sampled_bounds(upper, 0.9, 1, np.random.default_rng(0), Clock())
    assert found is None
    assert drawn.shape == (1, upper.tables.num_variables)


def test_a_single_cover_draws_from_the_model() -> None:
    """Then every ratio is 1: all that is left between the bounds is the half-width of a sum without variance."""
    model = random_small(6, forbidden=False)
    terms, upper = rough_covers(model, max_entries=1e6)
    upper.improve(NO_LIMIT, 1)
    log_z, by_state = truth(model)
    num_draws = 20_000
    found, _ = sampled_bounds(upper, 0.999, num_draws, np.random.default_rng(1), Clock())
    assert found is not None
    assert found.log_z[0] <= log_z <= found.log_z[1] < found.log_z[0] + 0.01
    drawn = draw_configurations(upper, num_draws, np.random.default_rng(2), Clock())
    frequencies = [np.bincount(drawn[:, i], minlength=count) for i, count in enumerate(terms.num_states)]
    p = np.exp(left_of(terms, by_state) - log_z)
    # Five standard errors for every state: fewer than one false alarm in a million for each.
    assert (np.abs(np.concatenate(frequencies) / num_draws - p) <= 5.0 * np.sqrt(p / num_draws) + 1e-9).all()
