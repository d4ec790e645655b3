"""Statistical verification on a CUDA device: skipped without one, because the simulator is too slow for it.

False alarms: every check below fails with probability under 1e-7 for a correct sampler; seeds are fixed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_checks import (
    KERNELS,
    applies,
    binary_triples,
    dense_binary,
    lopsided_binary,
    make_chains,
    mixed_factors,
)
from scipy import stats

from fastmix import MarkovRandomField, draw_exact, infer
from fastmix.chains.cuda.chains import CudaChains
from fastmix.chains.cuda.device import choose_group_size, cuda_available
from fastmix.chains.patches import whole_patch
from fastmix.exact.enumeration import enumerate_model
from fastmix.instances import ising_grid, potts_grid, random_tables
from fastmix.model.reduce import reduce_model
from fastmix.projection.reversed_kl import anneal, anneal_population
from oracle import lopsided

USABLE, REASON = cuda_available()
pytestmark = pytest.mark.skipif(not USABLE or "simulator" in REASON, reason=f"needs a CUDA device: {REASON}")

LEVEL = 1e-7
CHAINS = 1 << 18


def joint_counts(model: MarkovRandomField, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Counts of all joint configurations, and their probabilities."""
    steps = np.append(np.cumprod(model.num_states[::-1])[::-1][1:], 1)
    size = int(np.prod(model.num_states))
    grid = np.stack(np.unravel_index(np.arange(size), tuple(model.num_states)), axis=1)
    weights = np.array([model.log_weight(x) for x in grid])
    return np.bincount(states @ steps, minlength=size), np.exp(weights - enumerate_model(model).log_z)


def p_value(counts: np.ndarray, p: np.ndarray) -> float:
    assert not counts[p == 0].any()
    order = np.argsort(p)
    expected, seen = (p * counts.sum())[order], counts[order].astype(float)
    small = max(int(np.searchsorted(expected, 20.0)), 1)  # rare configurations together
    expected = np.append(expected[:small].sum(), expected[small:])
    seen = np.append(seen[:small].sum(), seen[small:])
    keep = expected > 5
    statistic = ((seen - expected)[keep] ** 2 / expected[keep]).sum()
    return float(stats.chi2.sf(statistic, int(keep.sum()) - 1))


def grid_of_triangles(side: int, scale: float) -> MarkovRandomField:
    """Factors over three variables of every square of a grid: six neighbors."""
    rng, at = np.random.default_rng(0), np.arange(side * side).reshape(side, side)
    upper = np.stack([at[:-1, :-1], at[:-1, 1:], at[1:, :-1]], axis=-1).reshape(-1, 3)
    lower = np.stack([at[:-1, 1:], at[1:, :-1], at[1:, 1:]], axis=-1).reshape(-1, 3)
    scopes = np.concatenate([upper, lower]).tolist()
    return MarkovRandomField.from_factors([2] * side**2, [(s, scale * rng.normal(size=(2, 2, 2))) for s in scopes])


def models() -> list[MarkovRandomField]:
    return [lopsided_binary(), dense_binary(6), reduce_model(lopsided()).model, binary_triples(), mixed_factors()]


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_joint_distribution_is_kept(kernel):
    tested = 0
    for model in models():
        if not applies(kernel, model):
            continue
        start = draw_exact(model, num_draws=CHAINS, seed=3)
        engine = make_chains(model, num_chains=CHAINS, seed=11, kernel=kernel, group_size=CHAINS)
        engine.set_states(start)
        engine.sweep(3)
        assert p_value(*joint_counts(model, engine.get_states())) > LEVEL
        tested += 1
    assert tested


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_wrong_model_is_noticed(kernel):
    model = next(m for m in models() if applies(kernel, m))
    wrong = model.replace(log_unary=model.log_unary + 0.02 * np.arange(len(model.log_unary)))
    engine = make_chains(wrong, num_chains=CHAINS, seed=11, kernel=kernel, group_size=CHAINS)
    engine.set_states(draw_exact(model, num_draws=CHAINS, seed=3))
    engine.sweep(3)
    assert p_value(*joint_counts(model, engine.get_states())) < LEVEL


@pytest.mark.parametrize("kernel", KERNELS)
def test_chains_sweeps_and_sites_are_independent(kernel):
    # Variables without edges: neighboring chains, sites and successive sweeps must not know of each other.
    model = MarkovRandomField.from_tables([[0.0, 0.4]] * 6, [], [])
    engine = make_chains(model, num_chains=CHAINS, seed=5, kernel=kernel, group_size=CHAINS)
    engine.sweep(1)
    one = engine.get_states()
    engine.sweep(1)
    two = engine.get_states()
    p = 1 / (1 + np.exp(-0.4))
    assert stats.binomtest(int(one.sum()), one.size, p).pvalue > LEVEL
    pairs = [(one[:-k], one[k:]) for k in (1, 2, 4, 8, 16, 31, 32, 64, 128)]
    pairs += [(one[:, :-1], one[:, 1:]), (one[:, :3], one[:, 3:]), (one, two), (one[1:], two[:-1])]
    for a, b in pairs:
        z = ((a - p) * (b - p)).sum() / (p * (1 - p) * np.sqrt(a.size))
        assert abs(z) < stats.norm.isf(LEVEL / 2)


@pytest.mark.parametrize("estimator", ["rao-blackwell", "counts"])
def test_marginals_of_grids(estimator):
    for model in (ising_grid(12, 12, coupling_max=1.0, seed=0), potts_grid(12, 5, coupling_max=1.0, seed=1)):
        exact = infer(model).node_marginals
        for chains in (1 << 18, 1 << 12, 1 << 6):
            group = max(choose_group_size(model.structure, chains), min(1 << 10, chains // 64))
            engine = make_chains(model, num_chains=chains, seed=2, estimator=estimator, group_size=group)
            engine.set_states(draw_exact(model, num_draws=chains, seed=4))
            sweeps = 64
            engine.sweep(sweeps, collect=True)
            means = engine.take_sums() / (sweeps * group)
            error = means.std(axis=1, ddof=1) / np.sqrt(means.shape[1])
            # 64 groups: Student with 63 degrees of freedom, two-sided 1e-9 a variable.
            assert (np.abs(means.mean(axis=1) - exact) <= 7.2 * error + 1e-6).all()


@pytest.mark.parametrize("method", ["gibbs", "tempered"])
def test_marginals_of_factors(method):
    for model in (binary_triples(2.0), mixed_factors(1.5), grid_of_triangles(8, 1.0)):
        exact = infer(model, method="exact", edge_marginals=True)
        result: Any = infer(model, method=method, backend="cuda", num_sweeps=4000, edge_marginals=True, seed=1)
        assert result.stats["backend"].startswith("cuda")
        assert result.status == "ok"
        assert (np.abs(result.node_marginals - exact.node_marginals) <= 7.0 * result.std_error + 1e-6).all()
        assert np.abs(result.edge_marginals - exact.edge_marginals).max() < 0.03
        if method == "tempered":
            assert abs(result.log_z - exact.log_z) < 7.0 * result.log_z_std_error + 1e-6


def test_one_chain_of_a_large_model():
    # Copies of a small grid: exact marginals, and every copy is a sample of its own.
    grid = ising_grid(16, 16, coupling_max=0.6, seed=0)
    exact = infer(grid).node_marginals[1::2]
    copies = 1024
    edges = (grid.edges[None] + 256 * np.arange(copies)[:, None, None]).reshape(-1, 2)
    model = MarkovRandomField(
        np.tile(grid.num_states, copies), np.tile(grid.log_unary, copies), edges, np.tile(grid.log_pairwise, copies)
    )
    engine = make_chains(model, num_chains=1, seed=3)
    assert engine.kernel == "field"
    assert engine._launch.grid_y > 1
    engine.set_states(draw_exact(grid, num_draws=copies, seed=1).states.reshape(1, -1))
    engine.sweep(50, collect=True)
    means = (engine.take_sums()[1::2, 0] / 50).reshape(copies, 256)
    error = means.std(axis=0, ddof=1) / np.sqrt(copies)
    assert (np.abs(means.mean(axis=0) - exact) <= 6.3 * error).all()  # two-sided 3e-10 a variable


# -- the pool of the reversed KL projection ---------------------------------------------------------------------------


def pool_models(kernel: str) -> tuple[MarkovRandomField, MarkovRandomField]:
    """A model to project and one that chains are on."""
    if kernel == "packed":
        return lopsided_binary(1), lopsided_binary(2)
    edges = [(0, 1), (0, 3), (1, 2), (1, 4), (2, 5), (3, 4), (4, 5)]
    psi, theta = (random_tables(edges, [2, 3, 1, 4, 2, 2], scale=0.8, seed=seed) for seed in (1, 2))
    return psi, theta


def gradient_deviation(kernel: str, *, wrong: bool = False) -> float:
    """Largest deviation of the pool's covariances from the exact ones, in standard errors.

    The chains start from exact draws, and are independent draws after sweeps too.
    """
    psi, theta = pool_models(kernel)
    change = theta.parameters - psi.parameters
    pool = CudaChains(theta.structure, num_chains=CHAINS, seed=7, estimator=None)
    assert pool.kernel == kernel
    pool.set_states(draw_exact(theta, num_draws=CHAINS, seed=8))
    pool.load((psi if wrong else theta).parameters)
    pool.sweep(2)
    found = pool.covariances(change, [whole_patch(theta)])
    size = int(np.prod(theta.num_states))
    grid = np.stack(np.unravel_index(np.arange(size), tuple(theta.num_states)), axis=1)
    p = joint_counts(theta, grid)[1]
    unary, pairwise, _ = theta.entry_positions(grid)
    f = np.zeros((size, theta.num_parameters))
    np.put_along_axis(f, unary, 1.0, axis=1)
    np.put_along_axis(f, len(theta.log_unary) + pairwise, 1.0, axis=1)
    energy = f @ change
    products = (energy - p @ energy)[:, None] * (f - p @ f)
    exact = p @ products
    error = np.sqrt(np.maximum(p @ products**2 - exact**2, 0.0) / CHAINS)
    return float(np.max(np.abs(found - exact) / (error + 1e-10)))


@pytest.mark.parametrize("kernel", ["packed", "table"])
def test_the_pool_estimates_the_gradient(kernel):
    assert gradient_deviation(kernel) < 6.5  # two-sided 8e-11 an entry, of fewer than 100
    assert gradient_deviation(kernel, wrong=True) > 6.5


@pytest.mark.parametrize("kernel", ["packed", "table"])
@pytest.mark.parametrize("method", ["anneal", "anneal_population"])
def test_the_pool_estimates_z_without_bias(kernel, method):
    model = pool_models(kernel)[0]
    exact = enumerate_model(model).log_z - model.log_constant
    values = []
    for seed in range(60):
        pool = CudaChains(model.structure, num_chains=300, seed=seed, estimator=None)
        if method == "anneal":
            log_z = anneal(pool, model.parameters, 4)
        else:
            log_z = anneal_population(pool, model.parameters, 4, np.random.default_rng(seed))
        values.append(np.exp(log_z - exact))
    error = np.std(values, ddof=1) / np.sqrt(len(values))
    assert abs(np.mean(values) - 1.0) < 6.5 * error  # Student with 59 degrees of freedom: 2e-8
    assert abs(np.exp(0.2) * np.mean(values) - 1.0) > 6.5 * error
