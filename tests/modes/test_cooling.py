"""Annealing of spins: gains and values kept up to date, the law at a fixed temperature, and what it finds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import fastmix
from fastmix import MarkovRandomField
from fastmix.model.forms import ising_form
from fastmix.modes.cooling import SpinCooling
from fastmix.modes.cooling_kernels import fill_gains


def random_model(seed: int, most: int = 9) -> MarkovRandomField:
    """Binary variables, tables of all kinds on some pairs, unequal unaries."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, most))
    pairs = np.array(list(itertools.combinations(range(n), 2)))
    edges = pairs[rng.random(len(pairs)) < 0.6]
    return MarkovRandomField.from_tables(rng.normal(size=(n, 2)), edges, rng.normal(size=(len(edges), 2, 2)))


def cooling_of(model: MarkovRandomField, seed: int = 0) -> SpinCooling:
    form = ising_form(model)
    assert form is not None
    return SpinCooling(model, form, seed)


@pytest.mark.nojit
@pytest.mark.parametrize("seed", range(20))
def test_gains_and_values_stay_true(seed):
    model = random_model(seed)
    cooling = cooling_of(model, seed)
    rng = np.random.default_rng(seed)
    spins = 2 * rng.integers(0, 2, size=model.num_variables) - 1
    cooling.start(spins)
    before = float(model.log_weight((spins > 0).astype(int)))
    seen = [before]
    for scale in (0.1, 0.5, 2.0):
        cooling.sweep(np.full(1, scale))
        states = (cooling.spins > 0).astype(int)
        now = float(model.log_weight(states))
        seen.append(now)
        assert before + cooling.value == pytest.approx(now, abs=1e-10)
        gains = np.zeros(model.num_variables)
        fill_gains(cooling.spins, cooling.fields, cooling.indptr, cooling.neighbors, cooling.couplings, gains)
        np.testing.assert_allclose(cooling.gains, gains, atol=1e-10)
        flipped = [
            model.log_weight(np.where(np.arange(len(states)) == i, 1 - states, states)) for i in range(len(states))
        ]
        np.testing.assert_allclose(gains, np.array(flipped) - now, atol=1e-10)
    assert before + cooling.best_value == pytest.approx(max(seen), abs=1e-10)
    assert model.log_weight(cooling.best_states()) == pytest.approx(max(seen), abs=1e-10)


def visits(model: MarkovRandomField, scale: float, num_sweeps: int, seed: int) -> np.ndarray:
    """How often each configuration was met after sweeps at one temperature, every tenth of them."""
    cooling = cooling_of(model, seed)
    cooling.start(np.ones(model.num_variables, dtype=np.int64))
    counts = np.zeros(2**model.num_variables, dtype=int)
    powers = 2 ** np.arange(model.num_variables)[::-1]
    ten = np.full(10, scale)
    for _ in range(num_sweeps):
        cooling.sweep(ten)
        counts[(cooling.spins > 0) @ powers] += 1
    return counts


def chi_square(model: MarkovRandomField, scale: float, counts: np.ndarray) -> float:
    states = np.array(list(itertools.product([0, 1], repeat=model.num_variables)))
    weights = np.exp(scale * np.asarray(model.log_weight(states)))
    expected = counts.sum() * weights / weights.sum()
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("seed", range(3))
def test_sweeps_keep_the_law_of_their_temperature(seed):
    """16 configurations: 15 degrees of freedom, of which 60 is beyond 1e-6, and draws are nearly independent."""
    rng = np.random.default_rng(seed)
    edges = [(0, 1), (1, 2), (2, 3), (3, 0)]
    model = MarkovRandomField.ising(edges, coupling=rng.normal(0, 0.4, 4), field=rng.normal(0, 0.4, 4))
    counts = visits(model, 0.8, 20_000, seed)
    assert chi_square(model, 0.8, counts) < 60.0
    assert chi_square(model, 0.6, counts) > 60.0  # the test can fail


@pytest.mark.parametrize("seed", range(30))
def test_finds_what_enumeration_finds(seed):
    model = random_model(seed, most=12)
    states = np.array(list(itertools.product([0, 1], repeat=model.num_variables)))
    best = float(np.max(model.log_weight(states)))
    cooling = cooling_of(model, seed)
    rng = np.random.default_rng(seed)
    found = -np.inf
    for _ in range(50):
        cooling.start(2 * rng.integers(0, 2, size=model.num_variables) - 1)
        for part in cooling.parts(64):
            cooling.sweep(part)
        found = max(found, float(model.log_weight(cooling.best_states())))
    assert found == pytest.approx(best, abs=1e-10)


def test_walls_of_a_ring_meet():
    """Flips that change nothing are coins: a sweep in order would carry all walls along, which then never meet."""
    n = 40
    ring = MarkovRandomField.ising([(i, (i + 1) % n) for i in range(n)], coupling=-1.0)
    cooling = cooling_of(ring, 1)
    rng = np.random.default_rng(1)
    best = []
    for _ in range(10):
        cooling.start(2 * rng.integers(0, 2, size=n) - 1)
        for part in cooling.parts(2000):
            cooling.sweep(part)
        best.append(ring.log_weight(cooling.best_states()))
    assert max(best) == n


def test_reads_are_counted_and_a_seed_repeats_them():
    edges = fastmix.graphs.random_regular_edges(300, 3, seed=3)
    model = MarkovRandomField.ising(edges, coupling=-1.0)
    first, second = (cooling_of(model, 5) for _ in range(2))
    for cooling in (first, second):
        cooling.start(np.ones(300, dtype=np.int64))
        for part in cooling.parts(200):
            cooling.sweep(part)
    assert first.best_value == second.best_value
    assert np.array_equal(first.best, second.best)
    result = fastmix.most_probable(model, method="search", seed=0, time_limit=2.0, progress=None)
    assert result.stats["moves"]["reads of annealing"] >= 1
    assert result.log_weight >= 350  # a random cut of 450 edges has 0


@pytest.mark.parametrize(("scale", "constant"), [(1e-9, 0.0), (1e9, 1e12), (1e80, 0.0)])
def test_scales_of_all_sizes(scale, constant):
    edges = fastmix.graphs.random_regular_edges(20, 3, seed=1)
    rng = np.random.default_rng(0)
    couplings = rng.normal(size=len(edges))
    unit = MarkovRandomField.ising(edges, coupling=couplings)
    exact = fastmix.most_probable(unit, method="exact").states
    product = np.array([[1.0, -1.0], [-1.0, 1.0]])
    tables = scale * couplings[:, None, None] * product
    model = MarkovRandomField.from_tables(np.zeros((20, 2)), edges, tables, log_constant=constant)
    found = fastmix.most_probable(model, method="search", seed=0, time_limit=1.0, progress=None)
    assert np.array_equal(found.states, exact) or np.array_equal(found.states, 1 - exact)
