"""Constants that leave their tables: the same distribution, to the last digit."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pytest

from fastmix import MarkovRandomField
from fastmix.model.centre import move_constants, take_offsets
from fastmix.model.reduce import reduce_model
from oracle.decimals import exact_states
from strategies import seeds


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
