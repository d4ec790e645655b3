"""Two layers of bits: sums that are looked up, sweeps, energies and moments."""

from __future__ import annotations

import numpy as np
import pytest

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


@pytest.mark.parametrize("rows", [1, 4, 7, 130])
@pytest.mark.parametrize("bits", [1, 5, 8, 37])
def test_sums_that_are_looked_up(rows: int, bits: int) -> None:
    rng = np.random.default_rng(rows * bits)
    x = (rng.random((bits, rows)) < 0.5).astype(np.uint8)
    weights = rng.standard_normal((bits, 150)).astype(np.float32)
    groups = -(-bits // 4)
    table = np.zeros((2, groups, 16, layer_kernels.WIDTH), dtype=np.float32)
    pattern = np.empty((groups, rows), dtype=np.uint8)
    layer_kernels.fill_patterns(weights, table)
    layer_kernels.patterns_of(x, np.arange(bits), np.zeros(rows, dtype=np.uint8), pattern)
    for tile in range(2):
        fields = np.ones((rows, layer_kernels.WIDTH), dtype=np.float32)
        layer_kernels.add_fields(pattern, table[tile], fields)
        part = weights[:, tile * layer_kernels.WIDTH : (tile + 1) * layer_kernels.WIDTH]
        expected = 1.0 + x.T.astype(np.float64) @ part
        np.testing.assert_allclose(fields[:, : part.shape[1]], expected, atol=1e-4)


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
