"""Errors of annealed populations cover what all of them have missed."""

from __future__ import annotations

import numpy as np
import pytest

from error_families import attractive, strongly_coupled
from fastmix import MarkovRandomField, infer
from fastmix.denoising import anneal
from fastmix.instances import ising_grid
from fastmix.results import Status
from fastmix.sampling.annealed_errors import known_probabilities


def test_populations_that_agree_to_the_last_bit_have_an_error():
    """Chains whose clusters never broke agree on probabilities that are off by what they have not met."""
    num_ok = 0
    for seed in range(32):
        model = attractive(seed)
        exact = infer(model, method="exact")
        result = anneal(model, num_steps=20, sweeps_per_step=2, seed=seed, num_threads=1)
        assert result.log_z_lower is None or result.log_z_lower <= exact.log_z
        if result.status != Status.OK:
            assert result.log_z is None
            assert "more chains" in result.advice
            continue
        num_ok += 1
        error = np.abs(result.node_marginals - exact.node_marginals)
        assert (error <= 5.0 * result.std_error + 1e-12).all(), seed
        assert result.log_z is None or abs(result.log_z - exact.log_z) <= 5.0 * result.log_z_std_error + 1e-9
    assert num_ok > 15


def random_models() -> dict[str, MarkovRandomField]:
    """Models that are not attractive: mixed signs, several states, factors, forbidden states and pairs."""
    rng = np.random.default_rng(5)
    edges = [(0, 1), (1, 2), (0, 2), (2, 3), (3, 4)]
    counts = [2, 3, 2, 4, 2]
    unaries = [rng.normal(size=count) for count in counts]
    tables = [1.5 * rng.normal(size=(counts[i], counts[j])) for i, j in edges]
    cubic = [([0, 1, 2], 1.5 * rng.normal(size=(2, 3, 2))), ([2, 3, 4], 1.5 * rng.normal(size=(2, 4, 2)))]
    hard_tables = [table.copy() for table in tables]
    hard_tables[1][2, 0] = -np.inf
    hard_unaries = [*unaries[:3], np.append(unaries[3][:3], -np.inf), unaries[4]]
    return {
        "glass": ising_grid(3, 4, coupling_max=2.0, seed=3),
        "mixed counts": MarkovRandomField.from_tables(unaries, edges, tables),
        "factors": MarkovRandomField.from_factors(counts, cubic),
        "forbidden states": MarkovRandomField.from_tables(hard_unaries, edges, tables),
        "forbidden pairs": MarkovRandomField.from_tables(unaries, edges, hard_tables),
    }


@pytest.mark.parametrize("name", random_models())
def test_models_that_are_not_attractive(name):
    """Marginals and log Z within five standard errors, with and without evidence."""
    model = random_models()[name]
    for evidence in (None, {0: 1}):
        exact = infer(model, method="exact", evidence=evidence)
        result = anneal(model, evidence=evidence, num_chains=200, seed=1)
        assert result.status == Status.OK
        assert (np.abs(result.node_marginals - exact.node_marginals) < 5.0 * result.std_error + 1e-12).all()
        assert result.states.shape == (800, model.num_variables)
        if name == "forbidden pairs":
            assert result.log_z is None
        else:
            assert abs(result.log_z - exact.log_z) < 5.0 * result.log_z_std_error
        assert result.log_z_lower <= exact.log_z + 1e-9


def test_strongly_coupled_models_are_right_or_not_mixed():
    """Too few chains for many valleys: what is called ok holds, within five standard errors."""
    num_ok = 0
    for seed in range(30):
        if seed % 5 == 1:  # attractive
            continue
        model = strongly_coupled(seed, 30)
        exact = infer(model, method="exact")
        result = anneal(model, num_steps=60, sweeps_per_step=4, seed=seed, num_threads=1)
        if result.status != Status.OK:
            assert result.log_z is None
            continue
        num_ok += 1
        error = np.abs(result.node_marginals - exact.node_marginals)
        assert (error <= 5.0 * result.std_error + 1e-12).all(), seed
        assert result.log_z is None or abs(result.log_z - exact.log_z) <= 5.0 * result.log_z_std_error + 1e-9
    assert num_ok > 5


def test_weights_of_flips_are_those_of_the_model():
    model = random_models()["factors"]
    mode = np.array([1, 2, 0, 3, 1])
    known = known_probabilities(model, mode[None], 50.0)
    entry = 0
    for i, count in enumerate(model.num_states.tolist()):
        for state in range(count):
            changed = mode.copy()
            changed[i] = state
            assert known[entry] == pytest.approx(np.exp(model.log_weight(changed) - 50.0))
            entry += 1
