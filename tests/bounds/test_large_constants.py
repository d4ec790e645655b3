"""Brackets of models whose terms have constants of up to 1e12, against enumeration in decimals of 60 digits."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fastmix
from fastmix import MarkovRandomField
from fastmix._clock import NO_LIMIT
from fastmix.bounds.lower_bound import LowerBound
from fastmix.bounds.reduced_tables import reduce_to_tables
from fastmix.bounds.tractable_parts import TractableParts
from fastmix.bounds.upper_bound import crude_upper
from fastmix.model.forms import move_constants
from oracle.bounds import missed, random_with_constants
from oracle.decimals import exact_states

WAYS: list[dict[str, Any]] = [
    {}, {"memory_limit": 64, "time_limit": 0.05}, {"memory_limit": 64, "time_limit": 0.001},
]  # fmt: skip


@pytest.mark.parametrize("seed", range(60))
def test_no_bracket_misses_the_truth(seed: int) -> None:
    model, evidence = random_with_constants(seed)
    for way in WAYS:
        result = fastmix.bracket(model, evidence=evidence, seed=seed, **way)
        assert missed(result, model, evidence) == []


@pytest.mark.parametrize("seed", range(40))
def test_mean_field_bounds_from_below(seed: int) -> None:
    model, evidence = random_with_constants(seed)
    found = fastmix.mean_field(model, evidence=evidence, num_starts=2, seed=seed)
    assert found.log_z_lower <= exact_states(model, evidence)[0]


@pytest.mark.parametrize("seed", range(20))
def test_certificates_do_not_meet_constants(seed: int) -> None:
    model, _ = random_with_constants(seed, scales=(0.05, 0.1, 0.2))
    found, bare = (fastmix.certify(m) for m in (model, move_constants(model)))
    assert found.norm_value == bare.norm_value
    assert found.num_sweeps == bare.num_sweeps


def test_the_check_can_fail() -> None:
    model, _ = random_with_constants(1)
    result = fastmix.bracket(model, seed=0)
    object.__setattr__(result, "log_z_lower", float(exact_states(model)[0]) + 1.0)
    assert len(missed(result, model)) == 1


@pytest.mark.parametrize("seed", range(20))
def test_constants_widen_brackets_by_their_rounding_alone(seed: int) -> None:
    model, evidence = random_with_constants(seed, scales=(0.1, 1.0, 10.0))
    bare = move_constants(model, unseen=0.0, of_spread=2.0)
    constant = bare.log_constant
    bare = bare.replace(log_constant=0.0)
    with_it = fastmix.bracket(model, evidence=evidence)
    without = fastmix.bracket(bare, evidence=evidence)
    rounding = 6.0 * sum(math.ulp(x) for x in (constant, with_it.log_z_upper, without.log_z_upper))
    assert with_it.gap <= without.gap * (1.0 + 1e-9) + rounding
    # The bounds that need no time are the same whatever the clock says.
    rough, rough_bare = (
        reduce_to_tables(move_constants(m, unseen=0.0, of_spread=2.0), evidence) for m in (model, bare)
    )
    upper, upper_bare = (crude_upper(replace(t, log_constant=0.0))[0] for t in (rough, rough_bare))
    assert upper == upper_bare


@pytest.mark.parametrize("seed", range(10))
def test_a_start_that_does_not_add_up_to_one_proves_nothing_false(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tables = [-abs(rng.normal(size=(2, 2))) - 5.0 for _ in range(3)]
    model = MarkovRandomField.from_tables(rng.normal(size=(3, 2)), [(0, 1), (1, 2), (0, 2)], tables)
    terms = reduce_to_tables(model)
    parts = TractableParts(terms.num_states, terms.scopes[3:], terms.tie_strengths, max_entries=2.0)
    for start in (np.zeros(6), np.full(6, 1e-3), np.full(6, 40.0)):
        lower = LowerBound(terms, parts.clusters())
        lower.start(start)
        lower.improve(NO_LIMIT, 1)
        assert lower.log_z <= exact_states(model)[0]


# -- Z = 0 ------------------------------------------------------------------------------------------------------------


def never(seed: int) -> MarkovRandomField:
    """A model without any configuration: an odd cycle in two colors, with other variables and soft terms around it."""
    rng = np.random.default_rng(seed)
    length = int(rng.choice([3, 5, 7]))
    n = length + int(rng.integers(0, 4))
    different = np.array([[-np.inf, 0.0], [0.0, -np.inf]])
    factors: list[tuple[tuple[int, ...], Any]] = [((i,), rng.normal(size=2)) for i in range(n)]
    factors += [((i, (i + 1) % length), different + rng.normal()) for i in range(length)]
    factors += [((int(rng.integers(length)), i), rng.normal(size=(2, 2))) for i in range(length, n)]
    return MarkovRandomField.from_factors([2] * n, factors)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("way", WAYS)
def test_no_configuration_is_an_answer(seed: int, way: dict[str, Any]) -> None:
    model = never(seed)
    result = fastmix.bracket(model, seed=seed, **way)
    if "time_limit" not in way:  # else the clock decides
        assert result.log_z_kind == "zero"
    if result.log_z_kind == "zero":
        assert result.log_z_lower == result.log_z_upper == -math.inf
        assert result.marginals_lower is result.marginals_upper is None
        assert result.gap == 0.0
        assert result.status == "ok"
        data = result.to_dict()
        assert data["log_z_lower"] is data["marginals_lower"] is None
        assert "Z = 0" in repr(result)
        with pytest.raises(fastmix.ModelError, match="marginals"):
            result.marginal(0)
    with pytest.raises(fastmix.ModelError, match="evidence"):
        fastmix.bracket(model, evidence={0: 0}, seed=seed)


def test_kinds_of_log_z() -> None:
    model = fastmix.instances.ising_grid(6, 6, coupling_max=1.0, seed=0)
    assert fastmix.bracket(model, seed=0).log_z_kind == "exact"
    assert fastmix.bracket(model, memory_limit=64, time_limit=0.05, seed=0).log_z_kind == "bound"
