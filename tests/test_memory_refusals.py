"""What grows with an argument is refused with a number before it is allocated, where the memory is too small for it."""

from __future__ import annotations

import gc
import tracemalloc
import zlib
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import fastmix
from fastmix import MarkovRandomField, ResourceError, _memory, denoising, graphs, instances, learning
from fastmix.model.network import BayesianNetwork
from fastmix.theory.comparison import comparison_bounds
from fastmix.theory.dependency import edge_dependencies
from fastmix.theory.norms import matrix_norm

PEAK = 2**26  # bytes that a refused call may allocate, those of modules that it loads included
RANDOM = {"coupling_max": 1.0, "seed": 0}


@cache
def grid(side: int = 4, num_states: int = 2) -> MarkovRandomField:
    return MarkovRandomField.potts(graphs.grid_edges(side, side), 0.1, num_states=num_states)


@cache
def in_full(model: MarkovRandomField) -> MarkovRandomField:
    """The model with a table of its own for every edge."""
    return model.replace(log_pairwise=model.log_pairwise)


@cache
def network() -> BayesianNetwork:
    return BayesianNetwork(["a", "b"], [["x", "y"]] * 2, [[], [0]], [[0.5, 0.5], [[0.5, 0.5], [0.1, 0.9]]])


def spread(*shape: int, dtype: Any = float) -> Any:
    """An array of any shape that takes no memory."""
    return np.broadcast_to(np.zeros(1, dtype=dtype), shape)


# Calls by their name, with one number for their size: from the square of it on all are beyond any memory.
HUGE: dict[str, Callable[[int], Any]] = {
    "grid_edges": lambda n: graphs.grid_edges(n, n),
    "triangular_edges": lambda n: graphs.triangular_edges(n, n),
    "hexagonal_edges": lambda n: graphs.hexagonal_edges(n, n),
    "cubic_edges": lambda n: graphs.cubic_edges(n, n, n),
    "complete_edges": graphs.complete_edges,
    "complete_bipartite_edges": lambda n: graphs.complete_bipartite_edges(n, n),
    "path_edges": lambda n: graphs.path_edges(n * n),
    "cycle_edges": lambda n: graphs.cycle_edges(n * n),
    "erdos_renyi_edges": lambda n: graphs.erdos_renyi_edges(n, 0.5, 0),
    "random_tree_edges": lambda n: graphs.random_tree_edges(n * n, 0),
    "random_regular_edges": lambda n: graphs.random_regular_edges(2 * n * n, 3, 0),
    "adjacency": lambda n: graphs.adjacency(n * n, [(0, 1)]),
    "connected_components": lambda n: graphs.connected_components(n * n, [(0, 1)]),
    "canonical_edges": lambda n: graphs.canonical_edges(n * n, [(0, 1)]),
    "ising_grid": lambda n: instances.ising_grid(n, n, **RANDOM),
    "ising_random": lambda n: instances.ising_random(num_variables=n, edge_probability=0.5, **RANDOM),
    "ising_regular": lambda n: instances.ising_regular(num_variables=2 * n * n, degree=3, **RANDOM),
    "ising_tree": lambda n: instances.ising_tree(n * n, **RANDOM),
    "ising_bipartite": lambda n: instances.ising_bipartite(n, n, **RANDOM),
    "potts_grid": lambda n: instances.potts_grid(3, 3, num_states=n, **RANDOM),
    "random_tables": lambda n: instances.random_tables([(0, 1)], [n, n], scale=1.0, seed=0),
    "ising": lambda n: MarkovRandomField.ising([(0, n * n)], 1.0),
    "potts": lambda n: MarkovRandomField.potts([(0, 1)], 1.0, num_states=n),
    "image": lambda n: MarkovRandomField.image(spread(n, n, 2), 0.5),
    "from_couplings": lambda n: MarkovRandomField.from_couplings(spread(n, n)),
    "rbm": lambda n: MarkovRandomField.rbm(spread(n, n)),
    "model": lambda n: MarkovRandomField(spread(n * n, dtype=int), [], [], []),
    "matrix_norm": lambda n: matrix_norm(spread(n, n), "frobenius"),
    "draw_exact": lambda n: fastmix.draw_exact(grid(), num_draws=n * n),
    "ancestral_sample": lambda n: fastmix.ancestral_sample(network(), num_draws=n * n),
    "network.sample": lambda n: network().sample(n * n),
    "perfect_sample": lambda n: fastmix.perfect_sample(grid(), num_draws=n * n),
    "perfect": lambda n: fastmix.infer(grid(), method="perfect", num_draws=n * n),
    "sample chains": lambda n: fastmix.sample(grid(), num_chains=n * n, num_sweeps=10),
    "sample draws": lambda n: fastmix.sample(grid(), num_chains=2, num_sweeps=n * n, num_draws=n * n),
    "sample history": lambda n: fastmix.sample(grid(), num_chains=2, num_sweeps=n * n, history_at=range(n * n)),
    "gibbs": lambda n: fastmix.infer(grid(), method="gibbs", num_chains=n * n),
    "swendsen-wang": lambda n: fastmix.infer(grid(), method="swendsen-wang", num_chains=n * n),
    "mean_field": lambda n: fastmix.mean_field(grid(), num_starts=n * n),
    "temper": lambda n: fastmix.temper(grid(), num_sweeps=10, num_ensembles=n * n),
    "anneal": lambda n: fastmix.anneal(grid(), num_chains=n * n),
    "populations": lambda n: fastmix.anneal(grid(), num_populations=n * n),
    "learn hidden": lambda n: fastmix.learn(np.eye(4, dtype=int), hidden=n * n),
    "learn states": lambda n: fastmix.learn(np.eye(4, dtype=int), num_states=min(n * n, 2**31 - 1)),
    "read_data": lambda n: learning.read_data(spread(n, n, dtype=np.int8)),
    "add_noise": lambda n: denoising.add_noise(spread(n, n), seed=0),
    "binarize": lambda n: denoising.binarize(spread(n, n)),
    "denoise": lambda n: denoising.denoise(spread(n, n), seed=0),
    "denoise labels": lambda n: denoising.denoise(np.eye(8), num_labels=n),
    "denoising_model": lambda n: denoising.denoising_model(spread(n, n)),
}  # fmt: skip


@pytest.mark.parametrize("name", HUGE)
def test_sizes_beyond_any_memory(name: str) -> None:
    """Drawn anew for every call: from a million to thirty millions, and the square of that."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    for size in (10.0 ** rng.uniform(6.0, 7.5, size=3)).astype(int).tolist():
        grid(), network()
        tracemalloc.start()
        try:
            with pytest.raises(ResourceError) as error:
                HUGE[name](size)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert error.value.required_bytes > error.value.limit_bytes
        assert peak < PEAK
        assert len(str(error.value)) < 400


# Calls of a size that is measured: what they take, they are refused for where half of the memory is less.
MEASURED: dict[str, Callable[[], Any]] = {
    "grid_edges": lambda: graphs.grid_edges(1000, 1100),
    "complete_edges": lambda: graphs.complete_edges(1500),
    "complete_bipartite_edges": lambda: graphs.complete_bipartite_edges(1000, 1400),
    "erdos_renyi_edges": lambda: graphs.erdos_renyi_edges(3000, 0.3, 0),
    "random_tree_edges": lambda: graphs.random_tree_edges(1_000_000, 0),
    "ising_grid": lambda: instances.ising_grid(700, 800, **RANDOM),
    "random_tables": lambda: instances.random_tables([(0, 1)], [1500, 1600], scale=1.0, seed=0),
    "edge_dependencies": lambda: edge_dependencies(grid(700)),
    "comparison_bounds": lambda: comparison_bounds(grid(500), grid(500)),
    "comparison_bounds of tables": lambda: comparison_bounds(in_full(grid(20, 80)), in_full(grid(20, 80))),
    "matrix_norm": lambda: matrix_norm(np.ones((1300, 1300)), "spectral"),
    "draw_exact": lambda: fastmix.draw_exact(grid(), num_draws=100_000, seed=0),
    "ancestral_sample": lambda: fastmix.ancestral_sample(network(), num_draws=2_000_000, seed=0),
    "read_data": lambda: learning.read_data(np.resize([0, 1, 1], (35_000, 100))),
    "binarize": lambda: denoising.binarize(np.resize([0.0, 1.0, 1.0], (1500, 1500))),
    "add_noise": lambda: denoising.add_noise(np.eye(1500), seed=0),
}


@pytest.mark.parametrize("name", MEASURED)
def test_estimates_are_what_is_taken(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At least a half of it, and at most eight times as much."""
    call = MEASURED[name]
    call()  # what is loaded, compiled and remembered does not count
    gc.collect()
    tracemalloc.start()
    try:
        call()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak > 2 * _memory.UNCHECKED_BYTES, "too small to be measured"
    monkeypatch.setattr(_memory, "available_memory", lambda: peak)
    with pytest.raises(ResourceError):
        call()
    monkeypatch.setattr(_memory, "available_memory", lambda: 16 * peak)
    call()


def test_more_variables_than_can_be_numbered(monkeypatch: pytest.MonkeyPatch) -> None:
    """These are refused whatever the memory."""
    monkeypatch.setattr(_memory, "available_memory", lambda: 2**80)
    with pytest.raises(ValueError, match=r"rows \* cols"):
        graphs.grid_edges(2**20, 2**20)


def test_lengths_that_are_only_stated() -> None:
    """A list that says it is long is refused by what it says."""
    with pytest.raises(ResourceError):
        fastmix.sample(grid(), num_chains=2, history_at=range(10**15))
