"""Configurations drawn exactly."""

from __future__ import annotations

import numpy as np
import pytest

from fastmix import MarkovRandomField, draw_exact, infer
from fastmix.exact import enumerate_model
from fastmix.instances import ising_grid


def chi_square_p(model, draws):
    """Honest p-value: independent draws, joint counts, rare cells pooled."""
    from scipy.stats import chi2

    answer = enumerate_model(model)
    index = np.ravel_multi_index(tuple(draws.states.T), tuple(model.num_states))
    counts = np.bincount(index, minlength=len(answer.probabilities))
    assert counts[answer.probabilities == 0].sum() == 0
    expected = answer.probabilities * len(draws)
    common = expected >= 5
    observed = np.append(counts[common], counts[~common].sum())
    expected = np.append(expected[common], expected[~common].sum())
    keep = expected > 0
    statistic = ((observed - expected)[keep] ** 2 / expected[keep]).sum()
    return float(chi2.sf(statistic, keep.sum() - 1))


@pytest.mark.parametrize("arithmetic", ["linear", "log"])
def test_draws_have_the_joint_distribution(arithmetic):
    rng = np.random.default_rng(1)
    unary = [rng.normal(size=L) for L in (2, 3, 4)]
    tables = [rng.normal(size=(2, 3)), rng.normal(size=(3, 4)), rng.normal(size=(2, 4))]
    tables[1][0, 2] = -np.inf
    if arithmetic == "log":  # a large term moved from a unary into a table changes no probability
        for i, k in ((0, 0), (1, 1), (2, 2)):
            shift = 2000.0 * np.arange(len(unary[i]))
            unary[i] -= shift
            tables[k] += shift[:, None] if i < 2 else shift[None, :]
    model = MarkovRandomField.from_tables(unary, [(0, 1), (1, 2), (0, 2)], tables)
    assert infer(model).stats["arithmetic"] == arithmetic
    draws = draw_exact(model, num_draws=20_000, seed=3)
    assert chi_square_p(model, draws) > 1e-6
    wrong = model.replace(log_unary=model.log_unary + np.eye(len(model.log_unary))[1] * 0.3)
    assert chi_square_p(wrong, draws) < 1e-6


def test_draws_of_a_large_grid_match_its_marginals():
    model = ising_grid(14, 14, coupling_max=1.0, seed=2)
    draws = draw_exact(model, num_draws=4000, seed=7)
    p = infer(model).node_marginals[1::2]
    z = (draws.states.mean(axis=0) - p) / np.sqrt(p * (1 - p) / 4000)
    assert np.abs(z).max() < 5.7  # 196 variables at a false-alarm rate of 1e-6 together
    assert np.array_equal(draws, draw_exact(model, num_draws=4000, seed=7))
    assert not np.array_equal(draws, draw_exact(model, num_draws=4000, seed=8))


def test_draws_with_evidence_and_none():
    model = ising_grid(3, 3, coupling_max=1.0, seed=2)
    draws = draw_exact(model, num_draws=50, evidence={4: 1}, seed=0)
    assert (draws[:, 4] == 1).all()
    assert draw_exact(model, num_draws=0, seed=0).states.shape == (0, 9)
    with pytest.raises(ValueError, match="num_draws"):
        draw_exact(model, num_draws=-1)
