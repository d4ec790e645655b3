"""Samplers with the interface of dimod: dimod's own conformance tests, and answers against enumeration."""

from __future__ import annotations

import itertools
import unittest

import numpy as np
import pytest

dimod = pytest.importorskip("dimod")

from dimod.testing import assert_sampler_api, load_sampler_bqm_tests  # noqa: E402

from fastmix.dimod import AnnealSampler, MostProbableSampler, TemperSampler  # noqa: E402

SAMPLERS = (MostProbableSampler, AnnealSampler, TemperSampler)


class QuickTemperSampler(TemperSampler):
    """With few sweeps: the conformance tests look at the form of answers."""

    def sample(self, bqm, **options):
        return super().sample(bqm, **({"num_sweeps": 20, "num_reads": 5} | options))


@load_sampler_bqm_tests(MostProbableSampler)
@load_sampler_bqm_tests(AnnealSampler)
@load_sampler_bqm_tests(QuickTemperSampler)
class TestConformance(unittest.TestCase):
    """The tests that dimod has for all samplers."""


@pytest.mark.parametrize("kind", SAMPLERS)
def test_the_interface(kind):
    sampler = kind()
    assert_sampler_api(sampler)
    assert isinstance(sampler, dimod.PolySampler)
    with pytest.raises(TypeError):
        sampler.sample(dimod.BinaryQuadraticModel("SPIN"), bogus=1)
    with pytest.raises(TypeError, match="bqm"):
        sampler.sample({"a": 1})


def random_problem(seed: int):
    """A binary quadratic model with labels of several kinds, spins or bits."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 9))
    labels = [("x", 1), "a", 0, 1, "0", 2.5, frozenset([3]), "b"][:n]
    pairs = [pair for pair in itertools.combinations(labels, 2) if rng.random() < 0.6]
    linear = {label: float(rng.normal()) for label in labels}
    quadratic = {pair: float(rng.normal()) for pair in pairs}
    return dimod.BinaryQuadraticModel(linear, quadratic, float(rng.normal()), "SPIN" if seed % 2 else "BINARY")


@pytest.mark.parametrize("seed", range(20))
def test_least_energies(seed):
    problem = random_problem(seed)
    least = dimod.ExactSolver().sample(problem).first.energy
    exact = MostProbableSampler().sample(problem)
    assert exact.first.energy == pytest.approx(least)
    assert exact.info["exact"]
    assert exact.info["lower_bound"] == pytest.approx(least)
    annealed = AnnealSampler().sample(problem, num_reads=20, num_sweeps=100, seed=seed)
    assert annealed.first.energy == pytest.approx(least)
    assert len(annealed) <= 20
    assert annealed.record.num_occurrences.sum() == 20


def random_polynomial(seed: int):
    rng = np.random.default_rng([seed, 7])
    labels = ["a", "b", 3, ("d",), "e"]
    terms = {}
    for size in range(5):
        for term in itertools.combinations(labels, size):
            if rng.random() < 0.5:
                terms[term] = float(rng.normal())
    terms.setdefault(("a",), 1.0)
    return dimod.BinaryPolynomial(terms, "SPIN" if seed % 2 else "BINARY")


@pytest.mark.parametrize("seed", range(20))
def test_polynomials(seed):
    polynomial = random_polynomial(seed)
    least = dimod.ExactPolySolver().sample_poly(polynomial).first.energy
    found = MostProbableSampler().sample_poly(polynomial)
    assert found.vartype is polynomial.vartype
    assert found.first.energy == pytest.approx(least)
    assert found.first.energy == pytest.approx(polynomial.energy(found.first.sample))


def test_polynomials_are_annealed():
    polynomial = dimod.BinaryPolynomial({("a", "b"): 1.0, ("a",): -0.5, (): 2.0}, "SPIN")
    assert AnnealSampler().sample_poly(polynomial, seed=0).first.energy == pytest.approx(0.5)
    for seed in range(10):
        polynomial = random_polynomial(seed)
        least = dimod.ExactPolySolver().sample_poly(polynomial).first.energy
        found = AnnealSampler().sample_poly(polynomial, num_reads=4, num_sweeps=200, seed=seed)
        assert found.vartype is polynomial.vartype
        assert len(found) == 4
        assert found.first.energy == pytest.approx(least)
        again = AnnealSampler().sample_poly(polynomial, num_reads=4, num_sweeps=200, seed=seed)
        assert (found.record.sample == again.record.sample).all()
    constant = AnnealSampler().sample_poly(dimod.BinaryPolynomial({(): 1.0}, "SPIN"), seed=0)
    assert constant.first.energy == 1.0


def test_draws_follow_the_temperature():
    """Counts of the 8 states of three spins: 7 degrees of freedom, of which 45 is beyond 1e-6, with a factor for
    draws that depend on each other a little."""
    problem = dimod.BinaryQuadraticModel({0: 0.3, 1: -0.2, 2: 0.0}, {(0, 1): -1.0, (1, 2): 0.7}, 0.0, "SPIN")
    draws = TemperSampler().sample(problem, num_reads=4000, temperature=2.0, num_sweeps=4000, seed=1)
    assert draws.info["status"] == "ok"
    states = np.array(list(itertools.product([-1, 1], repeat=3)))
    weights = np.exp(-problem.energies((states, [0, 1, 2])) / 2.0)
    order = [list(draws.variables).index(label) for label in (0, 1, 2)]
    counts = np.zeros(8)
    for sample, times in zip(draws.record.sample[:, order], draws.record.num_occurrences, strict=True):
        counts[((sample + 1) // 2) @ [4, 2, 1]] += times
    assert counts.sum() == 4000

    def chi_square(law):
        expected = 4000 * law / law.sum()
        return ((counts - expected) ** 2 / expected).sum()

    assert chi_square(weights) < 2 * 45.0
    assert chi_square(weights**2) > 2 * 45.0  # the test can fail


@pytest.mark.parametrize("kind", SAMPLERS)
def test_a_seed_repeats(kind):
    problem = random_problem(3)
    first, second = (kind().sample(problem, seed=5) for _ in range(2))
    assert np.array_equal(first.record.sample, second.record.sample)
    assert first.info["seed"] == 5
