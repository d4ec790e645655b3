"""Chains under strong couplings and hard constraints, and models that updates of single variables cannot cover."""

from __future__ import annotations

import numpy as np
import pytest

from fastmix import MarkovRandomField, draw_exact
from oracle.chains import (
    ESTIMATORS,
    KERNELS,
    make,
)

# -- strong couplings and hard constraints ----------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_couplings_of_a_thousand(kernel, estimator):
    edges, signs = [(0, 1), (1, 2), (2, 3), (0, 3)], np.array([1.0, -1.0, 1.0, -1.0])
    model = MarkovRandomField.ising(edges, 1e3 * signs, [0.1, -0.2, 0.3, 0.0])
    engine = make(model, kernel, num_chains=4, estimator=estimator)
    engine.set_states(np.array([[0, 0, 1, 1], [1, 1, 0, 0], [0, 1, 0, 1], [1, 1, 1, 1]]))
    engine.sweep(300, collect=True)
    states, sums = engine.get_states(), engine.take_sums()
    assert np.isfinite(sums).all()
    assert (sums >= 0).all()
    assert set(states.ravel().tolist()) <= {0, 1}
    # No frustration: both ground states hold for ever, and the other chains have fallen into one of them.
    assert states[:2].tolist() == [[0, 0, 1, 1], [1, 1, 0, 0]]
    assert all(row in ([0, 0, 1, 1], [1, 1, 0, 0]) for row in states.tolist())


def coloring_model(colors: int) -> MarkovRandomField:
    """Proper colorings of a cycle of five with a tail, some colors preferred."""
    edges = [(0, 1), (1, 2), (2, 3), (3, 4), (0, 4), (4, 5)]
    table = np.where(np.eye(colors, dtype=bool), -np.inf, 0.0)
    unary = np.random.default_rng(4).normal(size=(6, colors))
    return MarkovRandomField.from_tables(unary, edges, [table] * len(edges))


def hard_core() -> MarkovRandomField:
    """No two neighbors of a cycle of six are both 1."""
    edges = [(i, (i + 1) % 6) for i in range(6)]
    return MarkovRandomField.from_tables(
        np.random.default_rng(4).normal(size=(6, 2)), edges, [np.array([[0.0, 0.0], [0.0, -np.inf]])] * 6
    )


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("kernel", [k for k in KERNELS if k not in ("field", "kept")])
def test_forbidden_pairs_are_never_visited(kernel, estimator):
    model = hard_core() if kernel == "four" else coloring_model(4)
    start = draw_exact(model, num_draws=20, seed=1)
    engine = make(model, kernel, num_chains=20, estimator=estimator)
    engine.set_states(start)
    for _ in range(60):
        engine.sweep(1, collect=True)
        assert (model.log_weight(engine.get_states()) > -np.inf).all()
    sums = engine.take_sums()
    assert np.isfinite(sums).all()
    assert (sums >= 0).all()


def test_forbidden_starts_are_left_in_one_sweep():
    model = coloring_model(4)
    for kernel in ("table", "product"):
        engine = make(model, kernel, num_chains=16)
        engine.set_states(np.zeros((16, 6), dtype=int))
        engine.sweep(1, collect=False)
        assert (model.log_weight(engine.get_states()) > -np.inf).all()


# -- hard models that single updates cannot cover -------------------------------------------------------------------
