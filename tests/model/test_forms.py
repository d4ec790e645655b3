"""Forms of a model: constants that leave their tables, centered tables, couplings and fields."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strategies
from fastmix import MarkovRandomField, ModelError, UnfitMethodError
from fastmix.graphs import grid_edges
from fastmix.model import factor_forms
from fastmix.model.attractive import attractive_form
from fastmix.model.factor_forms import center_factors
from fastmix.model.forms import center_pairs, move_constants, take_offsets
from fastmix.model.reduce import reduce_model
from oracle.decimals import exact_states
from strategies import models, seeds


def with_constants(seed: int) -> MarkovRandomField:
    """A tiny model whose tables have constants of up to 1e12, some of which cancel, and some forbidden entries."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 4))
    counts = rng.integers(1, 4, n)
    factors = [((i,), rng.normal(size=counts[i])) for i in range(n)]
    factors += [((i, j), rng.normal(size=counts[[i, j]])) for i in range(n) for j in range(i)]
    if n == 3:
        factors.append(((0, 1, 2), rng.normal(size=counts)))
    size = 10.0 ** rng.uniform(0, 12)
    moved = []
    for scope, table in factors:
        bare = np.where(rng.random(table.shape) < 0.2, -np.inf, table)
        bare.flat[0] = table.flat[0]
        moved.append((scope, bare + size * rng.choice([-1.0, 0.0, 1.0, rng.normal()])))
    return MarkovRandomField.from_factors(counts, [*moved, ((), float(rng.normal()))])


@pytest.mark.parametrize("seed", seeds(300, quick=40))
def test_moving_constants_changes_nothing_but_the_rounding_of_one_number(seed: int) -> None:
    model = with_constants(seed)
    for moved in (move_constants(model), move_constants(model, unseen=0.0, of_spread=2.0)):
        log_z, nodes = exact_states(model)
        found, found_nodes = exact_states(moved)
        assert abs(float(found - log_z)) <= math.ulp(moved.log_constant)
        assert nodes == pytest.approx(found_nodes, rel=Decimal("1e-40"), abs=Decimal("1e-40"))


@pytest.mark.parametrize("seed", seeds(300, quick=40))
def test_evidence_is_folded_as_if_there_were_no_constants(seed: int) -> None:
    model = with_constants(seed)
    log_z, nodes = exact_states(model, {0: 0})
    reduction = reduce_model(model, {0: 0}, drop_forbidden=False)
    found, found_nodes = exact_states(reduction.model)
    assert abs(float(found - log_z)) <= 2.0 * math.ulp(float(log_z)) + 1e-12
    expanded = reduction.expand_node_marginals(np.array([float(p) for p in found_nodes]))
    assert expanded == pytest.approx([float(p) for p in nodes], abs=1e-12)


def test_ordinary_models_stay_the_same_object() -> None:
    rng = np.random.default_rng(0)
    model = MarkovRandomField.from_tables(3.0 * rng.normal(size=(3, 2)), [(0, 1)], [rng.normal(size=(2, 2))])
    assert move_constants(model) is model
    assert reduce_model(model).model is model


def test_offsets_leave_what_is_lost_in_the_spread() -> None:
    values = np.array([-np.inf, -np.inf, 1e12, -1e12, 1e9, 1e9 + 1.0, 1e9, -np.inf])
    offsets = np.array([0, 2, 4, 6, 8])
    left, taken = take_offsets(values, offsets)
    assert taken.tolist() == [0.0, 0.0, 1e9 + 1.0, 1e9]
    assert left.tolist() == [-np.inf, -np.inf, 1e12, -1e12, -1.0, 0.0, 0.0, -np.inf]


def with_factors(rng: np.random.Generator) -> MarkovRandomField:
    """Up to seven variables of 1 to 4 states, and factors over one to five of them."""
    n = int(rng.integers(3, 8))
    counts = rng.integers(1, 5, size=n)
    factors = []
    for _ in range(int(rng.integers(1, 6))):
        scope = rng.permutation(n)[: int(rng.integers(1, min(n, 5) + 1))].tolist()
        factors.append((scope, rng.normal(scale=2.0, size=counts[scope])))
    return MarkovRandomField.from_factors(counts.tolist(), [*factors, ([0, 1, 2], rng.normal(size=counts[:3]))])


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("seed", seeds(40, quick=8))
def test_factors_keep_what_no_pair_of_their_variables_can_hold(
    seed: int, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(factor_forms, "MAX_PYTHON_ENTRIES", 0 if compiled else math.inf)
    model = with_factors(np.random.default_rng(seed))
    centered = center_factors(model)
    states = list(itertools.product(*map(range, model.num_states.tolist())))
    np.testing.assert_allclose(centered.log_weight(states), model.log_weight(states), atol=1e-12)
    for k in range(model.num_factors):
        scope, before = model.factor(k)
        expected = before.copy()
        for size in (0, 1, 2):  # the analysis of variance, one part after the other
            for kept in itertools.combinations(range(len(scope)), size):
                others = tuple(axis for axis in range(len(scope)) if axis not in kept)
                expected -= expected.mean(axis=others, keepdims=True) if others else expected
        np.testing.assert_allclose(centered.factor(k)[1], expected, atol=1e-13)


# -- couplings and fields ---------------------------------------------------------------------------------------------


@given(model=models(min_states=2, max_states=2, allow_forbidden=False), seed=st.integers(0, 99))
def test_couplings_and_fields_make_the_same_binary_model(model: MarkovRandomField, seed: int) -> None:
    again = MarkovRandomField.ising(model.edges, model.couplings(), model.fields())
    x = np.random.default_rng(seed).integers(2, size=(20, model.num_variables))
    difference = np.asarray(again.log_weight(x)) - np.asarray(model.log_weight(x))
    size = 1.0 + np.abs(model.parameters).max(initial=0.0)
    np.testing.assert_allclose(difference, difference[0], atol=1e-12 * size)


def test_couplings_and_fields_of_potts_models_however_they_are_written() -> None:
    rng = np.random.default_rng(0)
    edges = grid_edges(3, 3)
    couplings = rng.normal(size=len(edges))
    model = MarkovRandomField.potts(edges, couplings, 4, rng.normal(size=(9, 4)))
    moved = center_pairs(model)  # as learning writes tables
    for some in (model, moved):
        np.testing.assert_allclose(some.couplings(), couplings, atol=1e-12)
    np.testing.assert_allclose(model.fields(), moved.fields(), atol=1e-12)
    np.testing.assert_allclose(model.fields().sum(axis=1), 0.0, atol=1e-12)


def test_tables_without_a_coupling_are_refused_by_their_edge() -> None:
    table = [[0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 2.0]]
    model = MarkovRandomField.from_tables(np.zeros((3, 3)), [(0, 1), (1, 2)], [np.eye(3), table])
    with pytest.raises(ModelError, match=r"edge \(1, 2\)"):
        model.couplings()
    forbids = MarkovRandomField.from_tables(np.zeros((2, 2)), [(0, 1)], [[[0.0, -np.inf], [0.0, 0.0]]])
    for ask in (forbids.couplings, forbids.fields):
        with pytest.raises(ModelError):
            ask()
    with pytest.raises(ModelError, match="state counts"):
        MarkovRandomField.from_tables([[0.0, 0.0], [0.0, 0.0, 0.0]], [], []).fields()


@given(seed=st.integers(0, 99))
def test_models_from_probabilities_are_those_of_their_logarithms(seed: int) -> None:
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 4, size=4)
    edges = [(0, 1), (2, 1), (3, 0)]
    unary = [np.append(rng.random(k - 1) * (rng.random(k - 1) < 0.8), 1.0) for k in counts]
    tables = [rng.random((counts[i], counts[j])) * (rng.random((counts[i], counts[j])) < 0.8) for i, j in edges]
    with np.errstate(divide="ignore"):
        expected = MarkovRandomField.from_tables(list(map(np.log, unary)), edges, list(map(np.log, tables)))
    assert MarkovRandomField.from_probabilities(unary, edges, tables) == expected
    with pytest.raises(ModelError, match="pairwise"):
        MarkovRandomField.from_probabilities(unary, edges, [-table - 1.0 for table in tables])


@pytest.mark.parametrize("seed", range(40))
def test_attractive_forms_of_shared_tables(seed: int) -> None:
    """Found from patterns and weights, the same as from tables in full, with the same reasons where there is none."""
    found: list[Any] = []
    for model in strategies.picture_twins(seed, num_variables=2 + seed % 2):
        try:
            found.append(attractive_form(model))
        except UnfitMethodError as error:
            found.append(str(error))
    shared, full = found
    if isinstance(full, str):
        assert shared == full
        return
    np.testing.assert_allclose(shared.couplings, full.couplings, rtol=0, atol=1e-12)
    np.testing.assert_allclose(shared.log_unary, full.log_unary, rtol=0, atol=1e-12)
    for name in ("heads", "tails", "flips"):
        np.testing.assert_array_equal(getattr(shared, name), getattr(full, name))
