"""The bound by clusters: from every start, and where it is exact or naive mean field."""

from __future__ import annotations

import numpy as np
import pytest
from bounds_models import left_of, random_small, truth

import fastmix
from fastmix import instances
from fastmix._clock import NO_LIMIT
from fastmix.bounds.lower_bound import LowerBound
from fastmix.bounds.reduced_tables import reduce_to_tables
from fastmix.bounds.tractable_parts import Clusters, TractableParts
from strategies import seeds


@pytest.mark.parametrize("seed", seeds(200, quick=12))
def test_any_start_bounds_from_below(seed: int) -> None:
    model = random_small(seed)
    terms = reduce_to_tables(model)
    log_z, by_state = truth(model)
    rng = np.random.default_rng(seed)
    scopes = terms.scopes[terms.num_variables :]
    lower = LowerBound(terms, TractableParts(terms.num_states, scopes, terms.tie_strengths, max_entries=4.0).clusters())
    for _ in range(3):
        draws = rng.standard_exponential(terms.num_unary)
        starts = terms.offsets[: terms.num_variables]
        sums = np.add.reduceat(draws, starts) if len(starts) else draws
        lower.start(draws / np.repeat(sums, terms.num_states))
        try:
            lower.improve(NO_LIMIT, 3)
        except fastmix.ModelError:
            assert model.has_forbidden
        assert lower.log_z <= log_z
        assert (lower.log_weights <= left_of(terms, by_state)).all()


def test_clusters_of_all_variables_are_exact() -> None:
    model = random_small(9, forbidden=False)
    terms = reduce_to_tables(model)
    lower = LowerBound(terms, Clusters(np.zeros(terms.num_variables, dtype=np.int64), list(range(terms.num_variables))))
    lower.start(np.concatenate([np.full(s, 1.0 / s) for s in terms.num_states]))
    lower.improve(NO_LIMIT)
    assert lower.log_z == pytest.approx(truth(model)[0], abs=1e-9)


def test_single_clusters_are_naive_mean_field() -> None:
    model = instances.ising_grid(3, 3, coupling_max=0.3, seed=0)
    terms = reduce_to_tables(model)
    lower = LowerBound(terms, Clusters(np.arange(9), list(range(9))))
    lower.start(np.full(18, 0.5))
    lower.improve(NO_LIMIT)
    assert lower.log_z == pytest.approx(fastmix.mean_field(model, seed=0).log_z_lower, abs=1e-6)
