"""The tables that bounds are computed from, against the model of the user, entry by entry."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from bounds_models import random_small

from fastmix import MarkovRandomField
from fastmix.bounds.reduced_tables import ReducedTables, folding_error, reduce_to_tables
from fastmix.bounds.tuning import HARD_TIE_STRENGTH


def all_states(tables: ReducedTables) -> Any:
    """Every configuration of the variables that are left."""
    states = list(itertools.product(*[range(count) for count in tables.num_states]))
    return np.array(states, dtype=np.int64).reshape(len(states), tables.num_variables)


@pytest.mark.parametrize("seed", range(30))
def test_weights_are_those_of_the_model(seed: int) -> None:
    model = random_small(seed)
    rng = np.random.default_rng(seed)
    best = tables_states = None
    for evidence in (None, {0: int(rng.integers(model.num_states[0]))}):
        if evidence is not None and best is not None:
            evidence = {0: int(best[0])}  # one that is possible
        tables = reduce_to_tables(model, evidence)
        tables_states = all_states(tables)
        expanded = tables.reduction.expand_states(tables_states)
        expected = model.log_weight(expanded)
        np.testing.assert_allclose(tables.log_weights(tables_states), expected, rtol=1e-12, atol=1e-9)
        best = expanded[int(np.argmax(expected))]


@pytest.mark.parametrize("seed", range(15))
def test_tables_by_shape_and_by_number_have_the_same_entries(seed: int) -> None:
    tables = reduce_to_tables(random_small(seed))
    by_scope = {}
    for shape, (scopes, positions) in tables.groups.items():
        for scope, places in zip(scopes.tolist(), positions, strict=True):
            assert tuple(tables.num_states[v] for v in scope) == shape
            by_scope[tuple(scope)] = tables.values[places].ravel().tolist()
    parts = tables.split(tables.values, range(tables.num_tables))
    assert by_scope == {scope: part.tolist() for scope, part in zip(tables.scopes, parts, strict=True)}
    assert tables.factor_scopes == [scope for scope in tables.scopes if len(scope) > 1]
    assert tables.is_product == (not tables.factor_scopes)


@pytest.mark.parametrize("seed", range(15))
def test_facts_of_tables(seed: int) -> None:
    tables = reduce_to_tables(random_small(seed))
    parts = tables.split(tables.values, range(tables.num_tables))
    single = parts[: tables.num_variables]
    assert tables.best_unary_states.tolist() == [int(np.argmax(part)) for part in single]
    largest = [np.abs(part[np.isfinite(part)]).max(initial=0.0) for part in parts]
    np.testing.assert_array_equal(tables.largest, largest)
    assert tables.size == pytest.approx(sum(largest) + abs(tables.log_constant))
    strengths = []
    for part in parts[tables.num_variables :]:
        spread = part.max() - part.min() if np.isfinite(part).all() else HARD_TIE_STRENGTH
        strengths.append(min(spread, HARD_TIE_STRENGTH) + 1e-3)
    np.testing.assert_allclose(tables.tie_strengths, strengths)


def test_some_of_the_tables() -> None:
    tables = reduce_to_tables(random_small(9, forbidden=False))
    n = tables.num_variables
    members = np.array([*range(n), *range(n + 1, tables.num_tables, 2)])
    some = tables.keep(members)
    assert some.scopes == [tables.scopes[k] for k in members]
    parts = tables.split(tables.values, members)
    np.testing.assert_array_equal(some.values, np.concatenate(parts))
    places = [np.arange(tables.offsets[k], tables.offsets[k + 1]) for k in members]
    np.testing.assert_array_equal(tables.positions(members), np.concatenate(places))


def test_fixed_variables_keep_one_state() -> None:
    tables = reduce_to_tables(random_small(9, forbidden=False))
    fixed = {0: 0, tables.num_variables - 1: 1}
    states = all_states(tables)
    agree = np.all([states[:, v] == state for v, state in fixed.items()], axis=0)
    expected = np.where(agree, tables.log_weights(states), -np.inf)
    np.testing.assert_array_equal(tables.with_fixed(fixed).log_weights(states), expected)


def test_other_values_share_the_scopes() -> None:
    tables = reduce_to_tables(random_small(9, forbidden=False))
    groups = tables.groups
    other = tables.with_values(2.0 * tables.values, log_constant=3.0)
    assert other.groups is groups
    states = all_states(tables)
    expected = 2.0 * (tables.log_weights(states) - tables.log_constant) + 3.0
    np.testing.assert_allclose(other.log_weights(states), expected)
    np.testing.assert_allclose(
        tables.log_weights(states, tables.values), tables.log_weights(states) - tables.log_constant
    )


def test_pairs_without_a_table_are_no_factors() -> None:
    """The pairs of a factor are edges of its model, with tables of zeros."""
    factor = np.random.default_rng(0).normal(size=(2, 2, 2))
    tables = reduce_to_tables(MarkovRandomField.from_factors([2, 2, 2], [((0, 1, 2), factor)]))
    assert tables.factor_scopes == [(0, 1, 2)]
    assert reduce_to_tables(MarkovRandomField.from_tables(np.zeros((2, 2)), [], [])).is_product


def test_folding_rounds_only_where_something_is_folded() -> None:
    model = random_small(9, forbidden=False)
    assert folding_error(model, None, reduce_to_tables(model).reduction) == 0.0
    evidence = {0: 0}
    error = folding_error(model, evidence, reduce_to_tables(model, evidence).reduction)
    assert 0.0 < error < 1e-9
