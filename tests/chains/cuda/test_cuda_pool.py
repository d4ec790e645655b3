"""The pool of chains on the device against the one on the CPU, on the same configurations, and against naive sweeps.

They run in the CUDA simulator (``test_cuda_simulator.py`` starts it), or on the device where there is one.
"""

from __future__ import annotations

import numpy as np
import pytest
from cuda_checks import (
    SMALL,
    binary_triples,
    dense_binary,
    key_of,
    lopsided_binary,
    mixed_factors,
    mixed_states,
    needs_cuda,
)

import oracle
from fastmix import MarkovRandomField, ResourceError, learn, project
from fastmix.chains.annealing import make_pool, systematic
from fastmix.chains.cpu import CpuChains
from fastmix.chains.cuda import chains as cuda_chains
from fastmix.chains.cuda import device as cuda_device
from fastmix.chains.cuda import reading as cuda_reading
from fastmix.chains.cuda.chains import CudaChains
from fastmix.chains.cuda.device import Launch, cuda_available
from fastmix.chains.patches import make_patches, whole_patch
from fastmix.instances import ising_grid
from fastmix.model.structure import Structure
from fastmix.projection import FixedStep, ReversedKL
from fastmix.projection.reversed_kl import anneal, anneal_population
from oracle import random_states
from oracle.cuda import NaiveCuda

pytestmark = needs_cuda

SIMULATED = "simulator" in cuda_available()[1]
CHAINS = 35  # not a whole number of words, and not of any group of chains


@pytest.fixture(autouse=True)
def few_blocks(monkeypatch):
    """In the simulator blocks take longer than what they do: few of them, which go through all the work in turns."""
    if SIMULATED:
        monkeypatch.setattr(cuda_reading, "MAX_READING_BLOCKS", 3)
        monkeypatch.setattr(cuda_reading, "MAX_GRID", 3)


MODELS = {"packed": lopsided_binary, "packed-field": dense_binary, "table": mixed_states}
LAYOUTS = ("packed", "table")


def other_parameters(graph: MarkovRandomField | Structure, seed: int = 0) -> np.ndarray:
    count = int(graph.unary_offsets[-1] + graph.pairwise_offsets[-1] + graph.factor_offsets[-1])
    return 0.7 * np.random.default_rng(seed).standard_normal(count)


def make(model: MarkovRandomField, *, num_chains: int = CHAINS, seed: int = 5) -> CudaChains:
    return CudaChains(model.structure, num_chains=num_chains, seed=seed, estimator=None, launch=SMALL)


def pools(kernel: str, model: MarkovRandomField | None = None) -> tuple[CudaChains, CpuChains]:
    """Chains on the device and on the CPU with the same configurations."""
    model = model or MODELS[kernel]()
    states = random_states(model, CHAINS, seed=2)
    one, two = make(model), CpuChains(model.structure, num_chains=CHAINS, seed=5, steady=False)
    assert one.kernel == kernel
    one.set_states(states)
    two.set_states(states)
    np.testing.assert_array_equal(one.get_states(), states)
    return one, two


# -- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", MODELS)
def test_energies_are_those_of_the_cpu(kernel):
    one, two = pools(kernel)
    change = other_parameters(one.structure)
    np.testing.assert_allclose(one.energies(change), two.energies(change), rtol=0, atol=1e-9)
    states = one.get_states()
    states[3, 4] ^= 1
    two.set_states(states)
    assert np.flatnonzero(np.abs(one.energies(change) - two.energies(change))[0] > 1e-9).tolist() == [3]


def test_reading_leaves_the_tables_alone():
    """With fewer chains than neighbors, whose list is not to be taken for room."""
    model = dense_binary(9)
    chains = CudaChains(
        model.structure, num_chains=32, seed=0, estimator=None, kernel="packed-field", launch=Launch(1, 1, 2)
    )
    chains.load(model.parameters)
    states = random_states(model, 32)
    chains.set_states(states)
    before = [table.copy_to_host() for table in chains._tables[:-1]]
    np.testing.assert_allclose(chains.energies()[0], model.log_weight(states), rtol=0, atol=1e-9)
    chains.moments()
    for table, held in zip(chains._tables[:-1], before, strict=True):
        np.testing.assert_array_equal(table.copy_to_host(), held)


@pytest.mark.parametrize("kernel", LAYOUTS)
def test_counts_are_those_of_the_cpu(kernel):
    one, two = pools(kernel)
    weights = np.random.default_rng(1).standard_normal(CHAINS)
    for given in (None, weights):
        np.testing.assert_allclose(one.moments(given), two.moments(given), rtol=0, atol=1e-12)
    states = one.get_states()
    states[3, 4] ^= 1
    two.set_states(states)
    assert np.abs(one.moments() - two.moments()).max() == pytest.approx(1 / CHAINS)


@pytest.mark.parametrize("kernel", LAYOUTS)
def test_covariances_are_those_of_the_cpu(kernel, monkeypatch):
    one, two = pools(kernel)
    change = other_parameters(one.structure)
    patches = make_patches(one.structure, core_size=2, reach=1)
    assert len(patches) > 2
    for given in ([whole_patch(one.structure)], patches):
        np.testing.assert_allclose(one.covariances(change, given), two.covariances(change, given), rtol=0, atol=1e-12)
    # The same in batches of two patches, each of them in several pieces.
    monkeypatch.setattr(cuda_reading, "MAX_BATCH_ENERGIES", 2 * CHAINS)
    monkeypatch.setattr(cuda_reading, "MIN_PIECE_TERMS", 2)
    found = one.covariances(change, list(patches))
    batches = one._batches[1]
    assert len(batches) == -(-len(patches) // 2)
    assert batches[0].num_pieces > 2 * batches[0].num_patches
    np.testing.assert_allclose(found, two.covariances(change, patches), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("kernel", "model"), [("packed", binary_triples()), ("table", mixed_factors())])
def test_factors_are_read_as_on_the_cpu(kernel, model):
    one, two = pools(kernel, model)
    change = other_parameters(model)
    np.testing.assert_allclose(one.energies(change), two.energies(change), rtol=0, atol=1e-9)
    weights = np.random.default_rng(1).standard_normal(CHAINS)
    np.testing.assert_allclose(one.moments(weights), two.moments(weights), rtol=0, atol=1e-12)
    whole = [whole_patch(model)]
    np.testing.assert_allclose(one.covariances(change, whole), two.covariances(change, whole), rtol=0, atol=1e-12)
    change[-1] += 0.1
    assert not np.allclose(one.energies(change), two.energies(other_parameters(model)), rtol=0, atol=1e-3)


# -- moving -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["packed", "packed-field", "table", "logit"])
def test_sweeps_follow_the_new_parameters(kernel, monkeypatch):
    model = MODELS.get(kernel, mixed_states)()
    if kernel == "logit":
        monkeypatch.setattr(cuda_device, "MAX_DEVICE_TABLE_ENTRIES", 0)
    pool = make(model, seed=3)
    assert pool.kernel == kernel
    pool.set_states(random_states(model, CHAINS))
    naive = NaiveCuda(model, pool.get_states(), kernel, key_of(pool))
    for seed in range(2 if kernel in LAYOUTS else 1):
        naive.use(model.with_parameters(other_parameters(model, seed)))
        naive.sweep()
        pool.load(naive.model.parameters)
        pool.sweep(1)
        assert pool.get_states().tolist() == naive.x


@pytest.mark.parametrize("kernel", LAYOUTS)
def test_resampled_chains_are_copies(kernel):
    one, two = pools(kernel)
    states = one.get_states()
    for chosen in (np.sort(np.random.default_rng(0).integers(0, CHAINS, CHAINS)), np.arange(CHAINS)[::-1]):
        one.take(chosen)
        states = states[chosen]
        np.testing.assert_array_equal(one.get_states(), states)
    # By weights, as the CPU does it.
    one, two = pools(kernel)
    chosen, _ = systematic(np.random.default_rng(1).standard_normal((1, CHAINS)), np.random.default_rng(2))
    for pool in (one, two):
        pool.take(chosen[0])
    np.testing.assert_array_equal(one.get_states(), two.get_states())


def test_saved_configurations_come_back():
    for pool in pools("packed"):
        states = pool.get_states()
        saved = pool.save()
        pool.load(other_parameters(pool.structure))
        pool.sweep(2)
        assert not np.array_equal(pool.get_states(), states)
        for _ in range(2):
            pool.restore(saved)
            np.testing.assert_array_equal(pool.get_states(), states)
            pool.sweep(1)  # what was saved does not follow


@pytest.mark.parametrize("method", ["anneal", "anneal_population"])
def test_log_z_is_estimated(method):
    model = mixed_states(scale=0.3)
    pool = make(model, num_chains=32, seed=0)
    if method == "anneal":
        log_z = anneal(pool, model.parameters, 3)
    else:
        log_z = anneal_population(pool, model.parameters, 3, np.random.default_rng(0))
    # Log-weights of so weak a model vary by about 0.3: over 32 chains the estimate is good to 0.05.
    assert log_z == pytest.approx(oracle.log_z(model) - model.log_constant, abs=0.2)


# -- projection -------------------------------------------------------------------------------------------------------


def test_a_short_descent_ends_within_the_bound(monkeypatch):
    if SIMULATED:
        monkeypatch.setattr(cuda_device, "BLOCK_THREADS", dict.fromkeys(cuda_device.BLOCK_THREADS, 1))  # see SMALL
    model = ising_grid(2, 2, coupling_max=2.0, seed=0)
    divergence = ReversedKL(
        pool_size=9, num_starts=2, start_steps=1, annealing_sweeps=2, population_sweeps=2, backend="cuda"
    )
    options = {"norm_bound": 1.0, "divergence": divergence, "step": FixedStep(num_steps=2, coordinates="fisher")}
    one = project(model, seed=4, **options)
    assert one.norm_after <= 1.0
    assert one.model != model
    assert one.provenance["device"] == cuda_available()[1]
    assert one.stats["backend"] == f"cuda ({cuda_available()[1]})"
    assert np.isfinite(one.model.parameters).all()
    if not SIMULATED:
        two = project(model, seed=4, **options)
        assert one.model == two.model  # to the bit
        assert one.history == two.history


def test_too_little_memory_is_refused_or_avoided(monkeypatch):
    def refuse(cuda, required):
        raise ResourceError("no room", required_bytes=int(required), limit_bytes=0)

    monkeypatch.setattr(cuda_chains, "check_memory", refuse)
    model = lopsided_binary()
    with pytest.raises(ResourceError, match="no room"):
        make_pool(model, "cuda", num_chains=8, seed=0)
    pool, place = make_pool(model, "auto", num_chains=8, seed=0)
    assert isinstance(pool, CpuChains)
    assert place == "cpu (no room)"
    monkeypatch.undo()
    assert isinstance(make_pool(model, "auto", num_chains=8, seed=0)[0], CudaChains)


def test_a_machine_is_learnt():
    rows = (np.random.default_rng(0).random((40, 5)) < 0.4).astype(np.int8)
    result = learn(rows, hidden=2, moments="sampled", max_iter=1, num_chains=64, seed=0, backend="cuda")
    assert result.stats["backend"].startswith("cuda (")
    assert np.isfinite(result.model.parameters).all()
    assert result.stats["num_sweeps"] == 1
    assert result.model.log_pairwise.any()
