"""Chains on the device: what changes no bit, other parameters, marginals of edges, refusals.

They run in the CUDA simulator (``test_cuda_simulator.py`` starts it), or on the device where there is one.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from cuda_checks import (
    KERNELS,
    SMALL,
    binary_triples,
    chains_for,
    dense_binary,
    key_of,
    lopsided_binary,
    make_chains,
    mixed_factors,
    model_for,
    needs_cuda,
)

import oracle
from fastmix import MarkovRandomField, ResourceError, UnfitMethodError, sample
from fastmix.chains.base import Chains
from fastmix.chains.cuda import device as cuda_device
from fastmix.chains.cuda.chains import CudaChains
from fastmix.chains.cuda.device import Launch, cuda_available
from oracle import lopsided, random_states
from oracle.cuda import NaiveCuda

pytestmark = needs_cuda


# -- independence -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS)
def test_shapes_of_launches_change_no_bit(kernel):
    model, chains = model_for(kernel), chains_for(kernel)
    if kernel == "packed-field":
        model = dense_binary(5)
    states = random_states(model, chains)
    results = []
    for launch in (Launch(1, 1, 1), Launch(1, 2, 2), Launch(1, 4, 1, 3)):
        engine = make_chains(model, num_chains=chains, seed=7, kernel=kernel, launch=launch)
        engine.set_states(states)
        engine.sweep(2, collect=True)
        results.append((engine.get_states(), engine.take_sums()))
    for other, sums in results[1:]:
        assert np.array_equal(other, results[0][0])
        assert np.array_equal(sums, results[0][1])


@pytest.mark.parametrize("kernel", KERNELS)
def test_chains_depend_on_their_number_only(kernel):
    model, most = model_for(kernel), chains_for(kernel) + 3
    states = random_states(model, most)
    results = []
    for chains in (3, most):
        engine = make_chains(model, num_chains=chains, seed=8, kernel=kernel, launch=SMALL)
        engine.set_states(states[:chains])
        engine.sweep(1)
        results.append(engine.get_states())
    assert np.array_equal(results[0], results[1][:3])
    assert len(np.unique(results[1], axis=0)) > 3


def test_seeds_differ_and_runs_go_on():
    model = lopsided_binary()
    states = random_states(model, 33)

    def run(seed: int, *parts: int) -> np.ndarray:
        engine = make_chains(model, num_chains=33, seed=seed, launch=SMALL)
        engine.set_states(states)
        for part in parts:
            engine.sweep(part)
            other = make_chains(model, num_chains=33, seed=99, launch=SMALL)
            other.set_states(engine.get_states())
            other.set_random_state(engine.get_random_state())
            engine = other
        return engine.get_states()

    assert np.array_equal(run(1, 3), run(1, 1, 2))
    assert not np.array_equal(run(1, 3), run(2, 3))


def test_sums_are_emptied_before_32_bits_overflow():
    assert 256 << 24 == 1 << 32
    model = MarkovRandomField.from_tables([[0.0, -40.0]], [], [])  # always in state 0: the largest sums
    for estimator in ("rao-blackwell", "counts"):
        engine = make_chains(model, num_chains=1, kernel="table", estimator=estimator, launch=Launch(1, 1, 1))
        assert engine._most_collected == 255
        engine._most_collected = 5
        engine.sweep(3, collect=True)
        engine.sweep(9, collect=True)
        assert engine._collected <= 5
        assert engine.take_sums().tolist() == [[12.0], [0.0]]


# -- other models, pairs, exchanges -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS)
def test_another_model_on_the_same_graph(kernel):
    model = model_for(kernel)
    other = model.replace(log_unary=model.log_unary[::-1].copy(), log_pairwise=0.5 * model.log_pairwise)
    engine = make_chains(model, num_chains=4, seed=3, kernel=kernel, launch=SMALL)
    engine.set_states(random_states(model, 4))
    engine.sweep(1)
    arrays = [id(array) for array in engine._tables if hasattr(array, "copy_to_host")]
    engine.load(other.parameters)
    assert [id(array) for array in engine._tables if hasattr(array, "copy_to_host")] == arrays  # nothing allocated
    naive = NaiveCuda(other, engine.get_states(), kernel, key_of(engine), sweep=1)
    engine.sweep(2)
    naive.sweep()
    naive.sweep()
    assert engine.get_states().tolist() == naive.x
    with pytest.raises(ValueError, match=r"thetas.*8 and 1"):
        engine.load(MarkovRandomField.ising([(0, 1)], 1.0).parameters)


@pytest.mark.parametrize(
    ("kernel", "width", "launch"),
    [("packed", 32, Launch(1, 1, 2)), ("packed", 32, Launch(1, 2, 1)), ("table", 4, Launch(1, 2, 2))],
)
def test_sets_of_parameters(kernel, width, launch):
    base = lopsided_binary() if kernel == "packed" else lopsided()
    scales = np.array([0.2, 1.0, 3.0])
    chains = CudaChains(
        base.structure, num_chains=width, num_sets=3, seed=3, kernel=kernel, launch=launch, group_size=1
    )
    states = random_states(base, 3 * width)
    chains.set_states(states)
    assert np.array_equal(chains.get_top_states(), states[-width:])
    chains.load(np.array([base.parameters, np.zeros(base.num_parameters)]), np.stack([scales, scales], axis=1))
    chains.sweep(2, collect=True)
    sums = chains.take_sums()
    for k, scale in enumerate(scales):
        own = slice(k * width, (k + 1) * width)
        naive = NaiveCuda(base.with_parameters(scale * base.parameters), states, kernel, key_of(chains))
        naive.sweep()
        naive.sweep()
        assert np.array_equal(chains.get_states()[own], np.array(naive.x)[own])
    np.testing.assert_allclose(sums, naive.conditionals[:, -width:], atol=2e-7)  # those of the last set


def test_sets_that_no_kernel_holds_are_refused():
    with pytest.raises(ValueError, match=r"num_chains.*32.*got 8"):
        CudaChains(lopsided_binary().structure, num_chains=8, num_sets=2, seed=3)
    with pytest.raises(NotImplementedError):
        Chains.exchange_rounds(make_chains(lopsided_binary(), num_chains=4), 1)


@pytest.mark.parametrize("kernel", [*KERNELS, "triples", "factors"])
def test_edge_marginals_are_those_of_the_cpu(kernel):
    model, chains = {"triples": binary_triples, "factors": mixed_factors}.get(kernel, lambda: model_for(kernel))(), 5
    kernel = {"triples": "packed", "factors": "table"}.get(kernel, kernel)
    engine = make_chains(model, num_chains=chains, seed=3, kernel=kernel, launch=SMALL)
    if kernel == "logit":
        engine = make_chains(model.replace(log_pairwise=0.5 * model.log_pairwise), num_chains=chains, launch=SMALL)
        engine.load(model.parameters)
    states = random_states(model, chains)
    states[:, 0] = 0  # beside this state nothing is forbidden
    engine.set_states(states)
    counts, averages = (np.full(len(model.log_pairwise), 3.0) for _ in range(2))
    engine.add_pairs(counts, average=False)
    engine.add_pairs(averages, average=True)
    expected, means = np.full(len(counts), 3.0), np.full(len(counts), 3.0)
    for x in states.tolist():
        for e, (i, j) in enumerate(model.edges.tolist()):
            table = expected[model.pairwise_offsets[e] : model.pairwise_offsets[e + 1]]
            table.reshape(model.num_states[i], -1)[x[i], x[j]] += 1
            table = means[model.pairwise_offsets[e] : model.pairwise_offsets[e + 1]].reshape(model.num_states[i], -1)
            table[:, x[j]] += 0.5 * np.array(oracle.conditional(model, i, x))
            table[x[i]] += 0.5 * np.array(oracle.conditional(model, j, x))
    np.testing.assert_allclose(counts, expected, atol=1e-12)
    np.testing.assert_allclose(averages, means, atol=1e-8)


@pytest.mark.parametrize("average", [False, True])
def test_edge_marginals_of_many_states(average):
    # More pairs of states than a block counts in shared memory.
    rng = np.random.default_rng(2)
    model = MarkovRandomField.from_tables(rng.normal(size=(2, 33)), [(0, 1)], rng.normal(size=(1, 33, 33)))
    engine = make_chains(model, num_chains=2, launch=SMALL)
    engine.set_states(np.array([[3, 32], [3, 1]]))
    out = np.zeros(33 * 33)
    engine.add_pairs(out, average=average)
    assert out.sum() == pytest.approx(2.0, abs=1e-6)
    assert out.reshape(33, 33)[3, [1, 32]].min() > (1e-6 if average else 0.99)


@pytest.mark.parametrize("estimator", ["rao-blackwell", "counts"])
def test_edge_marginals_mean_what_they_mean_on_the_cpu(estimator, monkeypatch):
    monkeypatch.setattr(cuda_device, "BLOCK_THREADS", dict.fromkeys(cuda_device.BLOCK_THREADS, 1))  # see SMALL
    result = sample(
        lopsided(),
        num_chains=4,
        num_sweeps=2,
        burn_in=0,
        num_draws=2,
        edge_marginals=True,
        backend="cuda",
        seed=1,
        estimator=estimator,
    )
    averages = estimator == "rao-blackwell"
    assert result.stats["edge_marginals"] == ("conditional averages" if averages else "counts of pairs")
    assert result.provenance["device"] == cuda_available()[1]
    assert result.stats["backend"] == f"cuda ({cuda_available()[1]})"
    model = result.model
    i, j = model.edges[0].tolist()
    draws = result.draws.reshape(-1, model.num_variables)
    expected = np.zeros((model.num_states[i], model.num_states[j]))
    for x in draws.tolist():
        if averages:
            expected[:, x[j]] += 0.5 * np.array(oracle.conditional(model, i, x)) / len(draws)
            expected[x[i]] += 0.5 * np.array(oracle.conditional(model, j, x)) / len(draws)
        else:
            expected[x[i], x[j]] += 1.0 / len(draws)
    np.testing.assert_allclose(result.edge_marginal(i, j), expected, atol=1e-8)


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_requests_that_cannot_be_met_are_refused():
    model = lopsided()
    with pytest.raises(UnfitMethodError, match="schedule"):
        sample(model, num_chains=4, num_sweeps=2, burn_in=0, schedule="random", backend="cuda")
    with pytest.raises(ValueError, match=r"group_size.*10.*got 4"):
        make_chains(model, num_chains=10, seed=0, group_size=4)
    full = SimpleNamespace(current_context=lambda: SimpleNamespace(get_memory_info=lambda: (100, 1000)))
    with pytest.raises(ResourceError, match=r"200 B.*95 B") as caught:
        cuda_device.check_memory(full, 200.0)
    assert (caught.value.required_bytes, caught.value.limit_bytes) == (200, 95)
    grid = MarkovRandomField.ising([(0, 1)], 1.0)
    with pytest.raises(ResourceError, match="100,000,000,000 chains"):
        make_chains(grid, num_chains=10**11, seed=0, group_size=10**11)
