"""Two layers of bits: sums that are looked up, sweeps, energies and moments."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from llvmlite.binding import get_host_cpu_features

from fastmix._jit import njit
from fastmix.chains import layer_kernels
from fastmix.chains.cpu import CpuChains, choose_kernel
from fastmix.model import MarkovRandomField


def machine(seed: int, visible: int = 37, hidden: int = 33, *, missing: float = 0.0) -> MarkovRandomField:
    rng = np.random.default_rng(seed)
    weights = 0.4 * rng.standard_normal((visible, hidden))
    model = MarkovRandomField.rbm(weights, 0.5 * rng.standard_normal(visible), 0.5 * rng.standard_normal(hidden))
    kept = np.flatnonzero(rng.random(model.num_edges) >= missing)
    return MarkovRandomField.from_tables(
        model.log_unary.reshape(-1, 2), model.edges[kept], model.log_pairwise.reshape(-1, 2, 2)[kept]
    )


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("bits", [1, 5, 8, 37, 64, 128])
def test_sums_that_are_looked_up(bits: int, turned: bool) -> None:
    rng = np.random.default_rng(bits)
    x = (rng.random((bits, 312)) < 0.5).astype(np.uint32)
    words = np.zeros((-(-bits // 32), 312), dtype=np.uint32)
    for k in range(bits):
        words[k // 32] |= x[k] << np.uint32(k % 32)
    weights = rng.standard_normal((36, -8 * (-bits // 8))).astype(np.float32)
    out = np.ones((32, 312), dtype=np.float32)
    flat, steps = (weights.T.ravel(), (1, 36)) if turned else (weights.ravel(), (weights.shape[1], 1))
    products(words, bits, flat, 4 * steps[0], *steps, out)
    np.testing.assert_allclose(out, 1.0 + weights[4:, :bits].astype(np.float64) @ x, atol=1e-4)


@njit(cache=True)
def products(words, num_bits, weights, at, row_step, bit_step, out):
    layer_kernels.add_products(words, num_bits, weights, at, row_step, bit_step, out)


@pytest.mark.slow
@pytest.mark.parametrize("features", ["", "+avx,+avx2,+fma"])
def test_sums_on_other_processors(features: str, tmp_path: Path) -> None:
    """As processors with shorter vectors have them, in a process of its own."""
    host = get_host_cpu_features()
    if not all(host.get(name[1:], False) for name in features.split(",") if name):
        pytest.skip("not on this processor")
    code = "\n".join(
        ["import test_layers", "for bits in (1, 5, 8, 37, 64, 128):"]
        + [f"    test_layers.test_sums_that_are_looked_up(bits, {turned})" for turned in (False, True)]
        + ["    print(bits)"]
    )
    name = "haswell" if features else "generic"
    settings = {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, env={**os.environ, **settings}, stdout=subprocess.PIPE
    )
    assert (done.returncode, done.stdout.split()) == (0, [b"1", b"5", b"8", b"37", b"64", b"128"])


@pytest.mark.usefixtures("little_work_by_threads")
@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("estimator", ["rao-blackwell", "counts"])
def test_the_same_draws_as_the_field_kernel(missing: float, estimator: str) -> None:
    model = machine(3, missing=missing)
    assert choose_kernel(model.structure, 100) == "layers"
    engines = [
        CpuChains(model.structure, num_chains=100, seed=5, kernel=k, estimator=estimator, num_threads=t)
        for k, t in (("layers", 1), ("field", 1), ("layers", 2))
    ]
    sums = []
    for chains in engines:
        chains.load(model.parameters)
        chains.set_states(np.zeros((100, model.num_variables), dtype=np.int64))
        chains.sweep(5, collect=True)
        sums.append(chains.take_sums())
    assert (engines[0].get_states() == engines[1].get_states()).all()
    assert (engines[0].get_states() == engines[2].get_states()).all()
    np.testing.assert_allclose(sums[0], sums[1], atol=1e-5)
    np.testing.assert_allclose(engines[0].energies(), engines[1].energies(), atol=1e-3)
    np.testing.assert_allclose(engines[0].energies()[0], model.log_weight(engines[0].get_states()), atol=1e-3)
    np.testing.assert_array_equal(engines[0].moments(), engines[1].moments())


def test_moments_of_dense_models_are_counts() -> None:
    rng = np.random.default_rng(1)
    n = 20
    couplings = np.triu(0.1 * rng.standard_normal((n, n)), 1)
    model = MarkovRandomField.from_couplings(couplings + couplings.T, 0.1 * rng.standard_normal(n))
    chains = CpuChains(model.structure, num_chains=333, seed=2)
    chains.load(model.parameters)
    chains.sweep(4)
    expected = model.sufficient_statistics(chains.get_states()).mean(axis=0)
    np.testing.assert_allclose(chains.moments(), expected, atol=1e-12)
    np.testing.assert_allclose(chains.moments(np.ones(333)), expected, atol=1e-12)


def plain_results() -> list:
    """Configurations and sums of a small machine, for the comparison with the compiler."""
    model = machine(6, 6, 5)
    chains = CpuChains(model.structure, num_chains=5, seed=3, kernel="layers")
    chains.load(model.parameters)
    chains.sweep(2, collect=True)
    return [chains.get_states().tolist(), chains.take_sums().tolist()]
