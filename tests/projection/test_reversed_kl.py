"""The pool of chains and the reversed KL-divergence: first without randomness, then against exact numbers."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

import oracle
from fastmix import MarkovRandomField, UnfitMethodError, project, sample
from fastmix._checks import INSTALL_EXTRA
from fastmix.chains import annealing
from fastmix.chains.base import Chains
from fastmix.chains.patches import make_patches, whole_patch
from fastmix.exact import draw_exact
from fastmix.graphs import complete_edges, grid_edges
from fastmix.instances import ising_grid, random_tables
from fastmix.projection import FixedStep, ReversedKL
from fastmix.projection.reversed_kl import PoolObjective, anneal, anneal_population, match_marginals
from oracle import divergences as naive

# Two-sided tail of a normal variable beyond 6.5 standard errors: 8e-11, times at most 2,000 comparisons in this file.
SIGMAS = 6.5


def lopsided(seed, states=(2, 3, 1, 4, 2, 2), scale=0.8):
    """Unequal state counts, asymmetric tables, a cycle and a variable of one state."""
    edges = [(0, 1), (0, 3), (1, 2), (1, 4), (2, 5), (3, 4), (4, 5)]
    return random_tables(edges, list(states), scale=scale, seed=seed)


# -- without randomness ---------------------------------------------------------------------------------------------


def make_pool(model: MarkovRandomField, *, num_chains: int, seed: int) -> Chains:
    """Chains that are draws from the unaries of a model, which is loaded."""
    pool, _ = annealing.make_pool(model, "cpu", num_chains=num_chains, seed=seed)
    start(pool, model)
    return pool


def start(pool: Chains, model: MarkovRandomField) -> None:
    pool.load(model.replace(log_pairwise=np.zeros(len(model.log_pairwise))).parameters)
    pool.sweep(1)
    pool.load(model.parameters)


@pytest.mark.parametrize("states", [(2,) * 6, (2, 3, 1, 4, 2, 2), (6,) * 6])
def test_energies_and_moments_are_plain_sums(states):
    model = lopsided(1, states, scale=0.2)
    pool = make_pool(model, num_chains=60, seed=3)
    x = pool.get_states()
    np.testing.assert_allclose(
        pool.energies(model.parameters)[0],
        [oracle.log_weight(model, row) - model.log_constant for row in x],
        atol=1e-12,
    )
    weights = np.random.default_rng(0).standard_normal(60)
    unary, pairwise, _ = model.entry_positions(x)
    expected = np.zeros(model.num_parameters)
    for c in range(60):
        expected[unary[c]] += weights[c] / 60
        expected[len(model.log_unary) + pairwise[c]] += weights[c] / 60
    np.testing.assert_allclose(pool.moments(weights), expected, atol=1e-14)
    assert pool.moments()[: len(model.log_unary)].sum() == pytest.approx(model.num_variables)


def test_covariance_is_that_of_the_chains():
    psi, theta = lopsided(0), lopsided(1)
    objective = PoolObjective(psi, ReversedKL(pool_size=40), 0)
    start(objective.pool, theta)
    gradient = objective.pool.covariances(theta.parameters - psi.parameters, objective.patches)
    rows = []
    for x in objective.pool.get_states():
        unary, pairwise, _ = theta.entry_positions(x[None, :])
        row = np.zeros(theta.num_parameters)
        row[unary[0]] = 1.0
        row[len(theta.log_unary) + pairwise[0]] = 1.0
        rows.append(row)
    f = np.array(rows)
    expected = np.cov(f.T, f @ (theta.parameters - psi.parameters))[-1, :-1]
    np.testing.assert_allclose(gradient, expected, atol=1e-12)


def test_the_naive_gradient_is_the_derivative():
    psi, theta = lopsided(0), lopsided(1)
    numeric = naive.numeric_gradient(lambda t: naive.kl(t, psi), theta)
    np.testing.assert_allclose(naive.reversed_gradient(theta, psi), numeric, atol=1e-6)


def test_matched_marginals_are_exact_without_tables():
    theta = lopsided(0).replace(log_pairwise=np.zeros(len(lopsided(0).log_pairwise)))
    wanted = naive.moments(lopsided(1))
    matched = match_marginals(theta, wanted)
    split = len(theta.log_unary)
    np.testing.assert_allclose(naive.moments(matched)[:split], wanted[:split], atol=1e-12)


@pytest.mark.parametrize(("core_size", "reach"), [(1, 1), (4, 2), (7, 3), (100, 1)])
def test_patches_cover_everything_once(core_size, reach):
    model = random_tables(grid_edges(5, 6), 2, scale=1.0, seed=0)
    patches = make_patches(model, core_size=core_size, reach=reach)
    assert sorted(np.concatenate([p.core_variables for p in patches]).tolist()) == list(range(30))
    assert sorted(np.concatenate([p.core_edges for p in patches]).tolist()) == list(range(model.num_edges))
    for p in patches:
        assert len(p.core_variables) <= core_size
        around = {int(v) for v in p.variables}
        grown = {int(v) for v in p.core_variables}
        for _ in range(reach):
            grown |= {u for v in grown for u in model.adjacency.neighbors_of(v).tolist()}
        assert around == grown
        assert set(p.ends.tolist()) <= around
        inside = [e for e, (i, j) in enumerate(model.edges.tolist()) if i in around and j in around]
        assert p.edges.tolist() == inside
    dense = MarkovRandomField.ising(complete_edges(40), 1.0)
    assert len(make_patches(dense, core_size=1, reach=1)) == 1


def test_covariances_of_patches_are_those_of_their_energies():
    psi, theta = lopsided(0), lopsided(1)
    pool = make_pool(psi, num_chains=50, seed=0)
    start(pool, theta)
    change = theta.parameters - psi.parameters
    patches = make_patches(psi, core_size=2, reach=1)
    assert len(patches) > 1
    found = pool.covariances(change, patches)
    split = len(psi.log_unary)
    for p in patches:
        inside = np.zeros(psi.num_parameters, dtype=bool)
        for v in p.variables:
            inside[psi.unary_offsets[v] : psi.unary_offsets[v + 1]] = True
        for e in p.edges:
            inside[split + psi.pairwise_offsets[e] : split + psi.pairwise_offsets[e + 1]] = True
        whole = pool.covariances(np.where(inside, change, 0.0), [whole_patch(psi)])
        for v in p.core_variables:
            part = slice(psi.unary_offsets[v], psi.unary_offsets[v + 1])
            np.testing.assert_allclose(found[part], whole[part], atol=1e-13)
        for e in p.core_edges:
            part = slice(split + psi.pairwise_offsets[e], split + psi.pairwise_offsets[e + 1])
            np.testing.assert_allclose(found[part], whole[part], atol=1e-13)


# -- statistical ----------------------------------------------------------------------------------------------------


def gradient_deviation(seed, *, sabotage=None, num_chains=20_000):
    """Largest deviation of the pool's gradient from the exact one, in standard errors of the exact distribution.

    The chains start from exact draws of theta, so that they are independent draws of it after a sweep too.
    """
    psi, theta = lopsided(seed), lopsided(seed + 50)
    pool_model = psi if sabotage == "wrong model" else theta
    objective = PoolObjective(psi, ReversedKL(pool_size=num_chains), seed)
    pool: Any = objective.pool
    pool.set_states(draw_exact(theta, num_draws=num_chains, seed=seed))
    if sabotage == "wrong order":
        sizes, steps = pool.layout.patterns
        pool.layout.patterns = sizes, steps[::-1].copy()
    pool.load(pool_model.parameters)
    pool.sweep(2)
    if sabotage == "not centered":
        [energies] = pool.energies(theta.parameters - psi.parameters)
        gradient = pool.moments(energies)
    else:
        gradient = pool.covariances(theta.parameters - psi.parameters, objective.patches)
        gradient *= -1.0 if sabotage == "sign" else 1.0
    p, f = naive.features(theta)
    energy = f @ (theta.parameters - psi.parameters)
    products = (energy - p @ energy)[:, None] * (f - p @ f)
    exact = p @ products
    error = np.sqrt(np.maximum(p @ products**2 - exact**2, 0.0) / num_chains)
    return float(np.max(np.abs(gradient - exact) / (error + 1e-10)))


@pytest.mark.parametrize("seed", range(5))
def test_the_pool_estimates_the_gradient(seed):
    assert gradient_deviation(seed) < SIGMAS


@pytest.mark.parametrize("sabotage", ["wrong model", "wrong order", "not centered", "sign"])
def test_the_test_of_the_gradient_can_fail(sabotage):
    assert gradient_deviation(0, sabotage=sabotage) > SIGMAS


def annealed(method, pool, parameters, num_sweeps):
    if method == "anneal":
        return anneal(pool, parameters, num_sweeps)
    return anneal_population(pool, parameters, num_sweeps, np.random.default_rng(pool.get_random_state()[:2]))


def weight_deviation(method, *, shift=0.0, repeats=60):
    """Deviation of the mean of Z / exact Z over independent pools from 1, in its own standard errors."""
    model = lopsided(2)
    exact = oracle.log_z(model) - model.log_constant
    values = []
    for seed in range(repeats):
        pool = make_pool(model, num_chains=300, seed=seed)
        values.append(np.exp(annealed(method, pool, model.parameters, 4) - exact + shift))
    return abs(np.mean(values) - 1.0) / (np.std(values, ddof=1) / np.sqrt(repeats))


@pytest.mark.parametrize("method", ["anneal", "anneal_population"])
def test_estimates_of_z_are_unbiased(method):
    # Student's t with 59 degrees of freedom is beyond 6.5 with probability 2e-8.
    assert weight_deviation(method) < SIGMAS
    assert weight_deviation(method, shift=0.2) > SIGMAS


def test_annealed_chains_are_draws_of_the_model():
    """After annealing and many sweeps the marginals agree; a population is near them at once."""
    model = lopsided(3)
    exact = naive.moments(model)
    error = np.sqrt(exact * (1.0 - exact) / 20_000) + 1e-9
    pool = make_pool(model, num_chains=20_000, seed=1)
    anneal(pool, model.parameters, 10)
    pool.sweep(30)
    assert np.max(np.abs(pool.moments() - exact) / error) < SIGMAS
    annealed("anneal_population", pool, model.parameters, 20)
    assert np.max(np.abs(pool.moments() - exact)) < 0.05


def test_values_are_near_the_divergence():
    """On tiny models all the estimates behind a value are good: 20,000 chains leave a standard error below 0.02."""
    for seed in range(3):
        psi, theta = lopsided(seed, scale=0.5), lopsided(seed + 9, scale=0.5)
        objective = PoolObjective(psi, ReversedKL(pool_size=20_000, annealing_sweeps=20), seed)
        value = objective.value(theta)
        assert value + objective.constant == pytest.approx(naive.kl(theta, psi), abs=0.1)
        assert objective.facts()["log_z_bound"] <= oracle.log_z(psi) + 0.1
        # The path from there to another model, and the value there.
        for t in np.linspace(0.1, 1.0, 10):
            between = theta.with_parameters((1 - t) * theta.parameters + t * psi.parameters)
            followed = objective.evaluate(between)[0]
        assert followed + objective.constant == pytest.approx(0.0, abs=0.1)


def test_many_neighbors():
    star = MarkovRandomField.ising([(0, k) for k in range(1, 31)], 0.2, 0.1)
    pool: Any = make_pool(star, num_chains=4000, seed=0)
    assert pool.kernel == "field"
    for _ in range(8):
        pool.sweep(2)
    from fastmix.exact import infer_exact

    exact = infer_exact(star).node_marginals
    error = np.sqrt(exact * (1 - exact) / 4000)
    assert np.max(np.abs(pool.moments()[: len(exact)] - exact) / error) < SIGMAS
    result = project(star, norm_bound=0.9, divergence=ReversedKL(pool_size=50, num_starts=2, start_steps=2), seed=0)
    assert result.norm_after <= 0.9


def test_many_states_need_two_bytes():
    model = random_tables([(0, 1)], [300, 2], scale=0.5, seed=0)
    pool = make_pool(model, num_chains=50, seed=0)
    pool.sweep(3)
    assert 255 < pool.get_states().max() < 300


def test_saved_configurations_come_back():
    model = lopsided(0)
    pool = make_pool(model, num_chains=20, seed=0)
    states = pool.get_states()
    assert states.shape == (20, model.num_variables)
    saved = pool.save()
    for _ in range(2):
        pool.sweep(1)
        assert not np.array_equal(pool.get_states(), states)
        pool.restore(saved)
        np.testing.assert_array_equal(pool.get_states(), states)
    pool.set_states(states[::-1])
    np.testing.assert_array_equal(pool.get_states(), states[::-1])


# -- the descent ----------------------------------------------------------------------------------------------------


def test_descent_lowers_the_exact_divergence():
    for seed in range(4):
        model = ising_grid(3, 3, coupling_max=2.0, seed=seed)
        nearest = project(model, norm_bound=1.0)
        errors = []
        for k in range(5):
            result = project(model, norm_bound=1.0, divergence=ReversedKL(), seed=10 * seed + k)
            exact = naive.kl(result.model, model)
            assert exact < 0.7 * naive.kl(nearest.model, model)
            errors.append(abs(result.divergence_value - exact))
        # Values rest on the largest of a few estimates of log Z, one of which can be an outlier.
        assert np.median(errors) <= 0.3


def test_starts_find_the_lower_valley():
    """A ring of strong couplings with fields that pull one way: the descent from the nearest model splits it."""
    model = ising_grid(16, 16, coupling_max=4.0, attractive=True, seed=2)
    one = project(model, norm_bound=2.5, divergence=ReversedKL(num_starts=1), seed=0)
    several = project(model, norm_bound=2.5, divergence=ReversedKL(), seed=0)
    # Minus the free energy bounds log Z from below: tens of nats more are another valley, not noise.
    assert several.stats["log_z_bound"] > one.stats["log_z_bound"] + 10.0


def test_large_models_go_down_with_few_chains():
    """1,600 variables and 100 chains: without patches the noise of the covariances drives the descent up."""
    model = ising_grid(40, 40, coupling_max=1.5, attractive=True, seed=0)
    options = {"pool_size": 100, "num_starts": 1, "annealing_sweeps": 20}
    step = FixedStep(num_steps=25, coordinates="fisher")
    local = project(model, norm_bound=2.5, divergence=ReversedKL(**options), step=step, seed=0)
    whole = project(model, norm_bound=2.5, divergence=ReversedKL(patch_size=None, **options), step=step, seed=0)
    assert local.stats["log_z_bound"] > whole.stats["log_z_bound"] + 20.0
    assert local.history[-1]["value"] < 0.5 * local.history[0]["value"]


def test_seeds_and_settings_reproduce():
    model = ising_grid(4, 4, coupling_max=2.0, seed=0)
    options = {"norm_bound": 1.5, "divergence": ReversedKL(pool_size=100, num_starts=2), "step": FixedStep(num_steps=8)}
    one, two, other = (project(model, seed=s, **options) for s in (5, 5, 6))
    assert one.model == two.model
    assert one.history == two.history
    assert one.model != other.model
    drawn = project(model, **options)
    assert drawn.seed is not None
    again = project(model, seed=drawn.seed, **options)
    assert again.model == drawn.model


@pytest.mark.parametrize(
    "settings",
    [
        {"pool_size": 1},
        {"sweeps_per_step": 0},
        {"num_starts": 0},
        {"start_steps": 1.5},
        {"annealing_sweeps": 0},
        {"population_sweeps": -1},
        {"patch_size": 0},
        {"backend": "gpu"},
    ],
)
def test_settings_check_themselves(settings):
    [(name, value)] = settings.items()
    with pytest.raises(ValueError, match=f"^{name} .*{value}"):
        ReversedKL(**settings)


def test_without_a_device_the_backend_is_refused_or_avoided(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "numba_cuda" else find(name))
    model = ising_grid(3, 3, coupling_max=2.0, seed=0)
    options = {"norm_bound": 1.0, "step": FixedStep(num_steps=2), "seed": 0}
    settings = {"pool_size": 20, "num_starts": 1, "annealing_sweeps": 3}
    reason = f"the package numba-cuda is not installed: {INSTALL_EXTRA.format(extra='gpu')}"
    sentence = f"backend must be cpu here, got cuda: {reason}"
    with pytest.raises(UnfitMethodError) as caught:
        project(model, divergence=ReversedKL(backend="cuda", **settings), **options)
    assert str(caught.value) == sentence
    with pytest.raises(UnfitMethodError) as caught:
        sample(model, num_sweeps=1, backend="cuda")
    assert str(caught.value) == sentence
    auto = project(model, divergence=ReversedKL(backend="auto", **settings), **options)
    cpu = project(model, divergence=ReversedKL(**settings), **options)
    assert auto.model == cpu.model
    assert (cpu.stats["backend"], auto.stats["backend"]) == ("cpu", f"cpu ({sentence})")


def test_strong_models_stay_finite():
    model = random_tables(grid_edges(3, 3), [2, 3, 2, 3, 2, 3, 2, 3, 2], scale=1e3, seed=0)
    result = project(model, norm_bound=2.0, divergence=ReversedKL(pool_size=50), step=FixedStep(num_steps=5), seed=0)
    assert result.norm_after <= 2.0
    assert np.isfinite(result.model.parameters).all()
    assert np.isfinite([entry["value"] for entry in result.history]).all()
