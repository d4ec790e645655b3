"""The pool of chains on the device against the one on the CPU, on the same configurations, and against naive sweeps.

They run in the CUDA simulator (``test_cuda_simulator.py`` starts it), or on the device where there is one.
"""

from __future__ import annotations

import numpy as np
import pytest
from cuda_checks import dense_binary, key_of, lopsided_binary, random_states
from naive_cuda import NaiveCuda

import oracle
from fastmix import MarkovRandomField, ResourceError, project
from fastmix.chains.cuda import device as cuda_device
from fastmix.chains.cuda import gibbs as cuda
from fastmix.chains.cuda import pool_engine
from fastmix.chains.cuda.device import Launch
from fastmix.chains.cuda.gibbs import cuda_available
from fastmix.chains.cuda.pool import CudaPool
from fastmix.chains.patches import make_patches, whole_patch
from fastmix.chains.pool import Pool
from fastmix.instances import ising_grid, random_tables
from fastmix.projection import FixedStep, ReversedKL
from fastmix.projection.reversed_kl import make_pool

pytestmark = pytest.mark.skipif(
    not cuda_available()[0], reason=f"run in the simulator by test_cuda_simulator.py; here {cuda_available()[1]}"
)

SMALL = Launch(1, 1, 2)  # the simulator has a Python thread for every thread of a block
SIMULATED = "simulator" in cuda_available()[1]
CHAINS = 35  # not a whole number of words, and not of any group of chains


@pytest.fixture(autouse=True)
def few_blocks(monkeypatch):
    """In the simulator blocks take longer than what they do: few of them, which go through all the work in turns."""
    if SIMULATED:
        monkeypatch.setattr(cuda, "_SUPPORT_BLOCKS", 3)
        monkeypatch.setattr(pool_engine, "_MOST_BLOCKS", 3)


def mixed_states(scale: float = 0.8) -> MarkovRandomField:
    """Unequal state counts, asymmetric tables, a cycle and a variable of one state."""
    edges = [(0, 1), (0, 3), (1, 2), (1, 4), (2, 5), (3, 4), (4, 5)]
    return random_tables(edges, [2, 3, 1, 5, 2, 2], scale=scale, seed=1)


MODELS = {"packed": lopsided_binary, "packed-field": dense_binary, "table": mixed_states}
LAYOUTS = ("packed", "table")


def other_parameters(model: MarkovRandomField, seed: int = 0) -> np.ndarray:
    return 0.7 * np.random.default_rng(seed).standard_normal(model.num_parameters)


def pools(kernel: str) -> tuple[CudaPool, Pool]:
    """A pool on the device and one on the CPU with the same configurations."""
    model = MODELS[kernel]()
    states = random_states(model, CHAINS, seed=2)
    one, two = CudaPool(model, num_chains=CHAINS, seed=5, launch=SMALL), Pool(model, num_chains=CHAINS, seed=5)
    assert one._engine.kernel == kernel
    one.set_states(states)
    two.set_states(states)
    np.testing.assert_array_equal(one.get_states(), states)
    return one, two


# -- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", MODELS)
def test_energies_are_those_of_the_cpu(kernel):
    one, two = pools(kernel)
    change = other_parameters(one.graph)
    np.testing.assert_allclose(one.energies(change), two.energies(change), rtol=0, atol=1e-9)
    patch = make_patches(one.graph, core_size=2, reach=1)[-1]
    np.testing.assert_allclose(one.energies(change, patch), two.energies(change, patch), rtol=0, atol=1e-9)
    states = one.get_states()
    states[3, 4] ^= 1
    two.set_states(states)
    assert np.flatnonzero(np.abs(one.energies(change) - two.energies(change)) > 1e-9).tolist() == [3]


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
    change = other_parameters(one.graph)
    patches = make_patches(one.graph, core_size=2, reach=1)
    assert len(patches) > 2
    for given in ([whole_patch(one.graph)], patches):
        np.testing.assert_allclose(one.covariances(change, given), two.covariances(change, given), rtol=0, atol=1e-12)
    # The same in batches of two patches, each of them in several pieces.
    monkeypatch.setattr(pool_engine, "_BATCH_NUMBERS", 2 * CHAINS)
    monkeypatch.setattr(pool_engine, "_LEAST_TERMS", 2)
    batches = one._engine.make_batches(patches)
    assert len(batches) == -(-len(patches) // 2)
    assert batches[0].num_pieces > 2 * batches[0].num_patches
    found = one._engine.products(change, batches) / (CHAINS - 1)
    np.testing.assert_allclose(found, two.covariances(change, patches), rtol=0, atol=1e-12)


# -- moving -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["packed", "packed-field", "table", "logit"])
def test_sweeps_follow_the_new_parameters(kernel, monkeypatch):
    model = MODELS.get(kernel, mixed_states)()
    if kernel == "logit":
        monkeypatch.setattr(cuda_device, "_TABLE_ENTRIES", 0)
    pool = CudaPool(model, num_chains=CHAINS, seed=3, launch=SMALL)
    assert pool._engine.kernel == kernel
    pool.set_states(random_states(model, CHAINS))
    naive = NaiveCuda(model, pool.get_states(), kernel, key_of(pool._engine))
    for seed in range(2 if kernel in LAYOUTS else 1):
        naive.model = model.with_parameters(other_parameters(model, seed))
        naive.sweep()
        pool.sweep(naive.model.parameters)
        assert pool.get_states().tolist() == naive.x
    if kernel not in LAYOUTS:
        return
    # A start draws from the unaries alone, whatever the states.
    alone = other_parameters(model, 9)
    alone[len(model.log_unary) :] = 0.0
    naive.model = model.with_parameters(alone)
    naive.sweep()
    pool.start(other_parameters(model, 9))
    assert pool.get_states().tolist() == naive.x


@pytest.mark.parametrize(
    ("kernel", "launch"), [("packed", SMALL), ("packed", Launch(1, 32, 1)), ("table", SMALL)], ids=str
)
def test_tables_filled_on_the_device_are_those_of_the_host(kernel, launch):
    model = MODELS[kernel]()
    engine = CudaPool(model, num_chains=CHAINS, seed=3, launch=launch)._engine
    for scale in (1.0, 1e3):  # the second has thresholds of 0 and of certainty
        parameters = scale * other_parameters(model, 4)
        engine.set_parameters(parameters)
        host = engine._host_tables([model.with_parameters(parameters)])
        # An exponential may be rounded in another way.
        table = host["table"].reshape(-1)
        found = engine._tables["table"].copy_to_host()[: table.size]
        assert np.abs(found.astype(np.int64) - table.astype(np.int64)).max() <= 1
        if kernel == "packed":
            bits = (found.reshape(-1, 1, 8, 2) >> np.arange(24, 32, dtype=np.uint32)[:, None, None]) & np.uint32(1)
            low, high = np.moveaxis(bits.astype(np.int8), -1, 0)
            masks = np.stack([high - low, -low], axis=-1).reshape(model.num_variables, 128)
            masks = masks if launch.block_x >= 32 else masks.T
            np.testing.assert_array_equal(engine._tables["masks"].copy_to_host(), masks.reshape(-1))


@pytest.mark.parametrize("kernel", LAYOUTS)
def test_resampled_chains_are_copies(kernel):
    one, two = pools(kernel)
    states = one.get_states()
    for chosen in (np.sort(np.random.default_rng(0).integers(0, CHAINS, CHAINS)), np.arange(CHAINS)[::-1]):
        one._take(chosen)
        states = states[chosen]
        np.testing.assert_array_equal(one.get_states(), states)
    # By weights, as the CPU does it: the same seed draws the same places.
    one, two = pools(kernel)
    weights = np.random.default_rng(1).standard_normal(CHAINS)
    assert one._resample(weights) == two._resample(weights)
    np.testing.assert_array_equal(one.get_states(), two.get_states())


def test_saved_configurations_come_back():
    for pool in pools("packed"):
        states = pool.get_states()
        saved = pool.save()
        pool.sweep(other_parameters(pool.graph), 2)
        assert not np.array_equal(pool.get_states(), states)
        for _ in range(2):
            pool.restore(saved)
            np.testing.assert_array_equal(pool.get_states(), states)
            pool.sweep(other_parameters(pool.graph))  # what was saved does not follow


@pytest.mark.parametrize("method", ["anneal", "anneal_population"])
def test_log_z_is_estimated(method):
    model = mixed_states(scale=0.3)
    pool = CudaPool(model, num_chains=32, seed=0, launch=SMALL)
    # Log-weights of so weak a model vary by about 0.3: over 32 chains the estimate is good to 0.05.
    assert getattr(pool, method)(model.parameters, 3) == pytest.approx(
        oracle.log_z(model) - model.log_constant, abs=0.2
    )


# -- projection -------------------------------------------------------------------------------------------------------


def test_a_short_descent_ends_within_the_bound(monkeypatch):
    if SIMULATED:
        monkeypatch.setattr(cuda_device, "_THREADS", dict.fromkeys(cuda_device._THREADS, 1))  # see SMALL
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
    def refuse(cuda, required, limit=None):
        raise ResourceError("no room", required_bytes=int(required), limit_bytes=0)

    monkeypatch.setattr(pool_engine, "check_memory", refuse)
    model = lopsided_binary()
    with pytest.raises(ResourceError, match="no room"):
        make_pool(model, "cuda", num_chains=8, seed=0)
    pool, place = make_pool(model, "auto", num_chains=8, seed=0)
    assert isinstance(pool, Pool)
    assert place == "cpu (no room)"
    monkeypatch.undo()
    assert isinstance(make_pool(model, "auto", num_chains=8, seed=0)[0], CudaPool)
