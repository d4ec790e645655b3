"""Messages over shared tables against plain ones, and their speed-ups against sums that are written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_loopy_bp import TINY, assert_equals_naive

import strategies
from fastmix import MarkovRandomField, loopy_bp
from fastmix._arrays import FloatArray
from fastmix._jit import njit
from fastmix.variational import pattern_message_kernels as kernels
from fastmix.variational import pattern_messages, tuning
from fastmix.variational.loopy_bp import make_messages
from fastmix.variational.pattern_messages import PatternMessages
from oracle.variational import NaiveBP
from strategies import Shared

DAMPINGS = [0.0, 0.5, 0.3]


def check_iterations(model: MarkovRandomField, num_iterations: int, damping: float) -> None:
    """So many iterations give what plain message passing gives, and lay no tables out."""
    alone = loopy_bp(model, damping=damping, max_iter=num_iterations, tol=TINY)
    if alone.stats["kernel"] == "odds":  # binary models, whose messages start as others
        return
    fits = PatternMessages.fits(model)
    assert (alone.stats["kernel"] == "patterns") == fits
    if fits and model.num_states.max(initial=0) > 2:  # couplings are read from tables in full
        assert "log_pairwise" not in vars(model)
    result = loopy_bp(model, damping=damping, max_iter=num_iterations, tol=TINY, edge_marginals=True)
    np.testing.assert_array_equal(alone.node_marginals, result.node_marginals)
    naive = NaiveBP(model)
    naive.parallel(result.stats["num_iterations"], damping)
    assert_equals_naive(result, naive)


@pytest.mark.parametrize("seed", range(60))
def test_iterations_equal_plain_message_passing(seed: int) -> None:
    for scale in (0.5, 3.0, 30.0):
        model = strategies.picture_twins(seed, scale=scale).shared
        check_iterations(model, 1 + seed % 5, DAMPINGS[seed % 3])


@given(strategies.shared_models(allow_forbidden=False), st.integers(1, 5), st.sampled_from(DAMPINGS))
def test_iterations_of_any_shapes(twins: Shared, num_iterations: int, damping: float) -> None:
    check_iterations(twins.shared, num_iterations, damping)


@pytest.mark.parametrize("seed", range(20))
def test_logs_and_numbers_are_the_same_messages(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with tables grouped by their weights, or not."""
    twins = strategies.picture_twins(seed)
    options = {"max_iter": 4, "tol": TINY, "damping": DAMPINGS[seed % 3], "edge_marginals": True}
    numbers = loopy_bp(twins.shared, **options)
    monkeypatch.setattr(pattern_messages, "PRODUCT_LOG_RANGE", -1.0)
    logs = loopy_bp(twins.shared, **options)
    monkeypatch.setattr(pattern_messages, "MAX_GROUPED_TABLES", -1)
    for result in (logs, loopy_bp(twins.shared, **options), loopy_bp(twins.full, **options)):
        np.testing.assert_allclose(result.node_marginals, numbers.node_marginals, rtol=0, atol=1e-12)
        np.testing.assert_allclose(result.edge_marginals, numbers.edge_marginals, rtol=0, atol=1e-12)
        assert result.largest_change == pytest.approx(numbers.largest_change, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_converged_runs_agree_with_tables_in_full(seed: int) -> None:
    twins = strategies.picture_twins(seed, scale=0.4)
    shared = loopy_bp(twins.shared)
    full = loopy_bp(twins.full)
    assert shared.status == full.status == "ok"
    assert shared.log_z == pytest.approx(full.log_z, rel=1e-11)
    np.testing.assert_allclose(shared.node_marginals, full.node_marginals, rtol=0, atol=1e-12)


def test_residual_order_and_forbidden_pairs_take_tables_in_full() -> None:
    differ = np.where(np.eye(3) > 0, -np.inf, 0.0)
    edges = [(0, 1), (1, 2)]
    model = MarkovRandomField.from_patterns(np.arange(9.0).reshape(3, 3) / 9.0, edges, [differ])
    full = MarkovRandomField.from_tables(np.arange(9.0).reshape(3, 3) / 9.0, edges, [differ] * 2)
    for order in ("parallel", "residual"):
        found = loopy_bp(model, message_order=order)
        assert found.stats["kernel"] != "patterns"
        np.testing.assert_array_equal(found.node_marginals, loopy_bp(full, message_order=order).node_marginals)


def test_strong_tables_are_kept_as_logs() -> None:
    """Beliefs whose products leave the range of doubles."""
    rng = np.random.default_rng(3)
    scores = rng.normal(scale=300.0, size=(3, 3, 5))
    model = MarkovRandomField.from_patterns(
        scores.reshape(9, 5), [(0, 1), (1, 2), (3, 4), (0, 3), (1, 4)], [np.eye(5)], weights=250.0
    )
    messages = make_messages(model, message_order="parallel")
    assert isinstance(messages, PatternMessages)
    assert messages.as_logs
    check_iterations(model, 5, 0.0)


# -- sums -------------------------------------------------------------------------------------------------------------


@njit(error_model="numpy")
def through_linear(weights, step, factor, reach, ends, out):
    kernels._through_linear(weights, np.uint64(len(weights)), step, factor, reach, ends, out)


@njit(error_model="numpy")
def through_potts(weights, step, factor, out):
    kernels._through_potts(weights, np.uint64(len(weights)), step, factor, out)


@njit(error_model="numpy")
def exponentiate(values, out):
    kernels._exponentiate(values, 0, len(values), 1.0, 0, 0.0, 0.0, out)


def relative_error(found: FloatArray, weights: FloatArray, table: FloatArray) -> float:
    expected = [math.fsum(weights * table[:, t]) for t in range(len(weights))]
    return float(np.max(np.abs(found / expected - 1.0)))


@pytest.mark.parametrize("seed", range(40))
def test_sums_keep_their_relative_error(seed: int) -> None:
    """Even beside entries that are 1e12, or 1e200, times as large: nothing is lost by subtracting."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 40))
    smallest = [1e-12, 1e-200][seed % 2]
    weights = smallest ** rng.random(count)
    weights[rng.integers(count)] = 1.0
    states = np.arange(count)
    distance = np.abs(np.subtract.outer(states, states)).astype(float)
    out = np.empty(count)
    for reach in (1.0, 1.5, 2.0, 4.7, float(count // 2 + 1), float(count)):
        for step in (-3.0, -0.1, 0.4):
            through_linear(weights, step, math.exp(step), reach, np.empty(count), out)
            table = np.exp(step * np.minimum(distance, reach))
            assert relative_error(out, weights, table) <= 2e-15 * (count + 5)
    for step in (-40.0, -1.0, 0.0, 2.0, 100.0):
        through_potts(weights, step, math.exp(step), out)
        assert relative_error(out, weights, np.exp(step * (distance == 0.0))) <= 2e-15 * (count + 5)


def test_exponentials() -> None:
    values = np.concatenate([np.linspace(-300.0, 0.0, 20_001), [-0.0, -1e-300]])
    found = np.empty(len(values))
    exponentiate(values, found)
    np.testing.assert_allclose(found, np.exp(values), rtol=6e-16, atol=0)


def test_ranges_leave_room_for_products() -> None:
    """What the reasons of the two constants assume of each other."""
    assert 3.0 * tuning.PRODUCT_LOG_RANGE + 37.0 < 745.0
    assert tuning.TAME_LOG_RANGE < 700.0
