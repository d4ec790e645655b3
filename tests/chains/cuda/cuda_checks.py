"""Models and comparisons for the tests of the CUDA kernels, in the simulator and on devices."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import oracle
from fastmix import draw_exact
from fastmix.chains.cuda.chains import CudaChains
from fastmix.chains.cuda.device import CudaKernel, Launch, cuda_available
from fastmix.instances import random_tables
from fastmix.model import MarkovRandomField
from oracle import random_states
from oracle.cuda import NaiveCuda

needs_cuda = pytest.mark.skipif(
    not cuda_available()[0], reason=f"run in the simulator by test_cuda_simulator.py; here {cuda_available()[1]}"
)

SMALL = Launch(1, 1, 2)  # the simulator has a Python thread for every thread of a block
KERNELS: tuple[CudaKernel, ...] = ("packed", "packed-field", "field", "table", "logit")
ESTIMATORS = ("rao-blackwell", "counts")

# A conditional probability as it is added up: cut to 24 bits; where it was computed in single precision, also rounded.
CUT = {"packed": 2.0**-24, "table": 2.0**-24, "logit": 2.0**-24, "packed-field": 2.0**-20, "field": 2.0**-20}


def chains_for(kernel: str) -> int:
    return {"packed": 35, "packed-field": 34, "field": 3}.get(kernel, 6)


def make_chains(model: MarkovRandomField, *, seed: int = 1, **options: Any) -> CudaChains:
    """Chains with one set of parameters, those of a model."""
    chains = CudaChains(model.structure, seed=seed, forbidden=model.has_forbidden, **options)
    chains.load(model.parameters)
    return chains


def key_of(engine: CudaChains) -> tuple[int, int]:
    state = engine.get_random_state()
    return int(state[0]), int(state[1])


def check_against_naive(
    model: MarkovRandomField,
    kernel: CudaKernel,
    *,
    num_chains: int,
    num_sweeps: int = 2,
    launch: Launch | None = None,
    group_size: int = 1,
    estimators: Sequence[str] = ESTIMATORS,
    seed: int = 1,
    together: bool = False,
) -> None:
    """All states after every sweep (or after all, in one call), and the sums, are those of the naive sampler."""
    if model.num_factors and model.has_forbidden:
        states = draw_exact(model, num_draws=num_chains, seed=seed)
    else:
        states = random_states(model, num_chains, seed)
    for estimator in estimators:
        engine = make_chains(
            model,
            num_chains=num_chains,
            seed=seed,
            kernel=kernel,
            launch=launch,
            group_size=group_size,
            estimator=estimator,
        )
        engine.set_states(states)
        assert np.array_equal(engine.get_states(), states)
        naive = NaiveCuda(model, states, kernel, key_of(engine))
        for _ in range(num_sweeps):
            naive.sweep()
            if not together:
                engine.sweep(1, collect=True)
                assert engine.get_states().tolist() == naive.x
        if together:
            engine.sweep(num_sweeps, collect=True)
            assert engine.get_states().tolist() == naive.x
        expected = naive.sums(estimator).reshape(len(model.log_unary), -1, group_size).sum(axis=2)
        sums = engine.take_sums()
        np.testing.assert_allclose(sums, expected, rtol=0, atol=1.01 * CUT[kernel] * num_sweeps * group_size)
        if model.num_variables:
            totals = np.add.reduceat(sums, model.unary_offsets[:-1])
            np.testing.assert_allclose(totals, num_sweeps * group_size, rtol=1e-12)
        assert not engine.take_sums().any()


def applies(kernel: str, model: MarkovRandomField) -> bool:
    binary = model.num_variables > 0 and bool((model.num_states == 2).all())
    if model.num_factors and kernel != "packed":
        return kernel == "table"
    if kernel == "packed":
        return binary and model.adjacency.max_degree <= 4
    return kernel in ("table", "logit") or (binary and not model.has_forbidden)


def lopsided_binary(seed: int = 6) -> MarkovRandomField:
    """A triangle with a tail, a site of degree four and an isolated variable, asymmetric tables."""
    rng = np.random.default_rng(seed)
    pairs = [(0, 1), (0, 2), (1, 2), (2, 3), (2, 4)]
    tables = [1.2 * rng.normal(size=(2, 2)) for _ in pairs]
    return MarkovRandomField.from_tables([0.7 * rng.normal(size=2) for _ in range(6)], pairs, tables)


def dense_binary(n: int = 6, seed: int = 7) -> MarkovRandomField:
    """A complete graph: more neighbors than the packed tables take."""
    rng = np.random.default_rng(seed)
    pairs = list(itertools.combinations(range(n), 2))
    return MarkovRandomField.from_tables(
        0.5 * rng.normal(size=(n, 2)), pairs, 0.6 * rng.normal(size=(len(pairs), 2, 2))
    )


def mixed_states(scale: float = 0.8) -> MarkovRandomField:
    """Unequal state counts, asymmetric tables, a cycle and a variable of one state."""
    edges = [(0, 1), (0, 3), (1, 2), (1, 4), (2, 5), (3, 4), (4, 5)]
    return random_tables(edges, [2, 3, 1, 5, 2, 2], scale=scale, seed=1)


def binary_triples(scale: float = 1.0) -> MarkovRandomField:
    """Factors over three binary variables that have at most four neighbors, and a pair."""
    rng = np.random.default_rng(8)
    factors = [(scope, scale * rng.normal(size=(2,) * len(scope))) for scope in ((0, 1, 2), (2, 3, 4), (1, 5), (4,))]
    return MarkovRandomField.from_factors([2] * 6, factors)


def mixed_factors(scale: float = 1.0) -> MarkovRandomField:
    """Factors over three and four variables with unequal state counts, pairs of their own and an isolated variable."""
    rng, counts = np.random.default_rng(9), [2, 3, 1, 4, 2, 3]
    scopes = ((0, 1, 3), (1, 2, 3, 4), (0, 1), (4,), (5,))
    return MarkovRandomField.from_factors(
        counts, [(scope, scale * rng.normal(size=[counts[v] for v in scope])) for scope in scopes]
    )


def model_for(kernel: str) -> MarkovRandomField:
    return {"packed": lopsided_binary, "packed-field": dense_binary, "field": lopsided_binary}.get(
        kernel, oracle.lopsided
    )()
