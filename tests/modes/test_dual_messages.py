"""Passes of messages: bounds that no configuration beats, the same for shared tables and for tables in full."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given

import strategies
from fastmix import MarkovRandomField, most_probable
from fastmix.errors import UnfitMethodError
from fastmix.instances import ising_grid
from fastmix.modes.dual_messages import DualMessages
from strategies import Shared


def largest(model: MarkovRandomField) -> float:
    states = np.array(list(np.ndindex(*model.num_states.tolist())))
    return float(np.max(model.log_weight(states)))


def bounds_of(model: MarkovRandomField, num_passes: int) -> tuple[list[float], list[np.ndarray]]:
    """The bounds of passes there and back, and the configurations that they led to."""
    messages = DualMessages(model)
    bounds = []
    found = []
    for number in range(2 * num_passes):
        bounds.append(messages.make_pass(forward=number % 2 == 0))
        found.append(messages.states.copy())
        if not model.has_forbidden:
            assert messages.log_weight == pytest.approx(model.log_weight(messages.states), rel=1e-12, abs=1e-10)
    return bounds, found


def check_twins(twins: Shared) -> None:
    """Bounds hold, do not rise from one return to the next, and do not depend on how tables are kept."""
    bounds, found = bounds_of(twins.shared, 6)
    assert "log_pairwise" not in vars(twins.shared)
    truth = largest(twins.full)
    slack = DualMessages(twins.shared).rounding
    assert min(bounds) + slack >= truth
    assert (np.diff(bounds[1::2]) <= slack).all()
    for states in found:
        assert twins.full.log_weight(states) <= truth + 1e-9
    if not twins.full.has_forbidden:  # penalties differ
        others, _ = bounds_of(twins.full, 6)
        np.testing.assert_allclose(bounds, others, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("seed", range(60))
def test_bounds_of_pictures(seed: int) -> None:
    check_twins(strategies.picture_twins(seed, scale=[0.2, 1.0, 30.0][seed % 3]))


@given(strategies.shared_models(min_variables=1))
def test_bounds_of_shared_tables(twins: Shared) -> None:
    check_twins(twins)


@pytest.mark.parametrize("seed", range(10))
def test_bounds_are_tight_on_trees(seed: int) -> None:
    twins = strategies.picture_twins(seed, num_variables=4)
    kept = twins.full.edges[:, 1] == twins.full.edges[:, 0] + 1
    tables = twins.full.log_pairwise.reshape(len(kept), -1)[kept]
    count = int(twins.full.num_states[0])
    path = MarkovRandomField.from_tables(
        twins.full.log_unary.reshape(-1, count), twins.full.edges[kept], tables.reshape(-1, count, count)
    )
    bounds, found = bounds_of(path, 2)
    assert bounds[-1] == pytest.approx(largest(path), abs=1e-12)
    assert path.log_weight(found[-1]) == pytest.approx(largest(path), abs=1e-12)


def test_a_message_that_is_too_small_would_be_noticed() -> None:
    """The comparison with the truth can fail: a table whose entries are taken for smaller ones."""
    twins = strategies.picture_twins(3, scale=1.0, mixed=False)
    messages = DualMessages(twins.shared)
    messages._forms = messages._forms._replace(
        step=np.minimum(messages._forms.step, 0.0) - 1.0, level=messages._forms.level
    )
    assert min(messages.make_pass(forward=k % 2 == 0) for k in range(12)) < largest(twins.full)


@pytest.mark.parametrize("method", ["auto", "messages", "search"])
def test_pictures_are_proven(method: str) -> None:
    rng = np.random.default_rng(4)
    scores = 2.0 * rng.normal(size=(24, 30, 8))
    states = np.arange(8)
    distance = -0.2 * np.minimum(np.abs(np.subtract.outer(states, states)), 3.0)
    for table in (np.eye(8), distance):
        model = MarkovRandomField.image(scores, table, weights=rng.uniform(0.3, 0.6, 24 * 29 + 23 * 30))
        assert model.shared_tables is not None
        result = most_probable(model, method=method, seed=0, time_limit=3.0)
        alone = model.log_weight(scores.argmax(axis=2).ravel())
        assert result.gap <= 1e-3 * (result.log_weight - alone)
        assert "log_pairwise" not in vars(model)
        assert result.stats["moves"]["passes"] > 0


def test_messages_need_pairs() -> None:
    triples = MarkovRandomField.from_factors([2, 2, 2], [((0, 1, 2), np.arange(8.0).reshape(2, 2, 2))])
    with pytest.raises(UnfitMethodError):
        most_probable(triples, method="messages")
    assert most_probable(ising_grid(4, 4, coupling_max=0.3, seed=0), method="messages").gap < math.inf
