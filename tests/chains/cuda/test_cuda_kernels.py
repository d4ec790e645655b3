"""The CUDA kernels against a naive sampler, draw by draw.

They run in the CUDA simulator (``test_cuda_simulator.py`` starts it), or on the device where there is one.
"""

from __future__ import annotations

import itertools

import numba
import numpy as np
import pytest
from cuda_checks import (
    KERNELS,
    SMALL,
    applies,
    binary_triples,
    chains_for,
    check_against_naive,
    dense_binary,
    key_of,
    lopsided_binary,
    make_chains,
    mixed_factors,
    mixed_states,
    model_for,
    needs_cuda,
)

import oracle
import strategies
from fastmix import MarkovRandomField, UnfitMethodError, infer, sample
from fastmix.chains.cuda import device as cuda_device
from fastmix.chains.cuda.chains import CudaChains
from fastmix.chains.cuda.device import Launch, cuda_available
from fastmix.chains.generator import MAX_THRESHOLD
from fastmix.model.reduce import reduce_model
from fastmix.testing import conformance_models
from oracle import is_defined, random_states
from oracle.cuda import NaiveCuda, philox, uniform

pytestmark = needs_cuda


# -- random numbers ---------------------------------------------------------------------------------------------------


def test_generator_gives_the_published_numbers():
    # Known answers of the authors' Random123 library, for the naive one and for the kernels'.
    known = {
        ((0, 0, 0, 0), (0, 0)): (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2): (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)): (
            0xD16CFE09,
            0x94FDCCEB,
            0x5001E420,
            0x24126EA1,
        ),
    }
    from numba import cuda

    from fastmix.chains.cuda import random_kernels

    draw = random_kernels.philox

    @cuda.jit
    def kernel(counter, key, out):
        out[0], out[1], out[2], out[3] = draw(counter[0], counter[1], counter[2], counter[3], key[0], key[1])

    for (counter, key), expected in known.items():
        assert philox(counter, key) == expected
        out = np.zeros(4, dtype=np.uint32)
        kernel[1, 1](np.array(counter, dtype=np.uint32), np.array(key, dtype=np.uint32), out)
        assert tuple(out.tolist()) == expected


@pytest.mark.parametrize("kernel", KERNELS)
def test_sweeps_beyond_32_bits_have_numbers_of_their_own(kernel):
    model = MarkovRandomField.from_tables([[0.0, 0.1], [0.3, 0.0]], [], [])
    for sweep in (2**32 - 1, 2**40 + 3):
        engine = make_chains(model, num_chains=6, seed=2, kernel=kernel, launch=SMALL)
        engine.set_random_state(np.array([*key_of(engine), sweep], dtype=np.uint64))
        naive = NaiveCuda(model, engine.get_states(), kernel, key_of(engine), sweep)
        engine.sweep(2)
        naive.sweep()
        naive.sweep()
        assert engine.get_states().tolist() == naive.x


@pytest.mark.parametrize("kernel", KERNELS)
def test_numbers_at_a_threshold(kernel):
    # One variable whose threshold is the very number that a chain draws, or one more.
    probe = make_chains(
        MarkovRandomField.from_tables([[0.0, 0.0]], [], []), num_chains=3, seed=4, kernel=kernel, launch=SMALL
    )
    for chain in range(1, 3):
        u = uniform(kernel, key_of(probe), 0, 0, chain)
        for threshold, state in ((u, 1), (u + 1, 0)):
            p = threshold / 2.0**32
            model = MarkovRandomField.from_tables([[np.log(p), np.log1p(-p)]], [], [])
            engine = make_chains(model, num_chains=3, seed=4, kernel=kernel, launch=SMALL)
            engine.sweep(1)
            assert engine.get_states()[chain, 0] == state


@pytest.mark.parametrize("kernel", KERNELS)
def test_certainties_are_certain(kernel):
    model = MarkovRandomField.ising([(0, 1), (1, 2)], [500.0, -300.0], [1e3, 0.0, 0.0])
    chains = chains_for(kernel)
    engine = make_chains(model, num_chains=chains, seed=0, kernel=kernel, launch=SMALL)
    engine.set_states(random_states(model, chains))
    engine.sweep(1)  # sites 0 and 2 come first, then 1
    assert (engine.get_states()[:, :2] == 1).all()
    engine.sweep(1)
    assert (engine.get_states() == [1, 1, 0]).all()


# -- the naive sampler ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_match_the_naive_sampler(kernel):
    check_against_naive(model_for(kernel), kernel, num_chains=chains_for(kernel), num_sweeps=1, launch=SMALL, seed=3)


@pytest.mark.parametrize(
    ("kernel", "launch", "num_chains", "group_size"),
    [
        ("packed", Launch(2, 1, 2), 64, 32),
        ("packed", Launch(4, 1, 1), 128, 64),
        ("packed", Launch(1, 2, 2, 2), 64, 2),
        ("packed-field", Launch(1, 2, 2), 64, 32),
        ("field", Launch(1, 4, 2, 2), 4, 4),
        ("table", Launch(1, 1, 2), 1, 1),
        ("table", Launch(1, 2, 2), 8, 8),
        ("table", Launch(1, 2, 3, 2), 6, 2),
        ("logit", Launch(1, 1, 2), 1, 1),
        ("logit", Launch(1, 2, 1), 8, 4),
    ],
)
def test_launches_and_groups(kernel, launch, num_chains, group_size):
    model = lopsided_binary() if kernel in ("packed", "packed-field") else model_for(kernel)
    check_against_naive(
        model, kernel, num_chains=num_chains, launch=launch, group_size=group_size, num_sweeps=2, together=True
    )


@pytest.mark.parametrize("group_size", [1, 32])
def test_threads_of_a_warp_on_one_site(group_size):
    # 32 threads along the chains: masks and sums lie otherwise than for fewer.
    model = MarkovRandomField.ising([(0, 1)], 0.7, [0.3, -0.5])
    check_against_naive(
        model, "packed", num_chains=64, launch=Launch(1, 32, 1), group_size=group_size, num_sweeps=1, together=True
    )


@pytest.mark.parametrize("seed", strategies.seeds(10, quick=2))
def test_random_models_match_the_naive_sampler(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 6))
    counts = [2] * n if seed % 3 else rng.integers(1, 5, size=n).tolist()
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n) if rng.random() < 0.6]
    scale, forbidden = [0.5, 2.0, 1e3][seed % 3], 0.2 if seed % 4 == 3 else 0.0
    model = reduce_model(oracle.random_entries(rng, counts, pairs, scale, forbidden)).model
    if not is_defined(model):
        return
    for kernel in KERNELS:
        if applies(kernel, model):
            check_against_naive(
                model, kernel, num_chains=2, num_sweeps=2, launch=SMALL, seed=seed, estimators=["rao-blackwell"]
            )


def test_hard_small_models_are_taken():
    for name, model in conformance_models():
        small = reduce_model(model).model
        for num_chains in (1, 9):
            engine = make_chains(small, num_chains=num_chains, seed=1, launch=SMALL)
            assert applies(engine.kernel, small), name
            engine.set_states(random_states(small, num_chains))
            naive = NaiveCuda(small, engine.get_states(), engine.kernel, key_of(engine))
            engine.sweep(1, collect=True)
            naive.sweep()
            assert engine.get_states().tolist() == naive.x, name
            assert engine.take_sums().shape == (len(small.log_unary), num_chains)


def test_many_states():
    rng = np.random.default_rng(1)
    model = MarkovRandomField.from_tables(
        [rng.normal(size=300), rng.normal(size=2)], [(0, 1)], [rng.normal(size=(300, 2))]
    )
    check_against_naive(model, "logit", num_chains=2, launch=SMALL, num_sweeps=1)
    wide = MarkovRandomField.from_tables(rng.normal(size=(4, 7)), [(0, 1), (0, 2), (0, 3)], rng.normal(size=(3, 7, 7)))
    check_against_naive(
        wide, "table", num_chains=2, launch=SMALL, num_sweeps=1
    )  # 343 patterns, more than a byte numbers


def test_colors_longer_than_a_group_of_places():
    # 140 sites of one color: groups of 128 places, the second of them not full.
    edges = [(i, 140 + i) for i in range(3)]
    model = MarkovRandomField.ising(edges, 0.3, np.linspace(-1, 1, 143))
    for launch in (Launch(1, 1, 2), Launch(1, 1, 2, 3)):
        check_against_naive(model, "field", num_chains=1, launch=launch, num_sweeps=1, estimators=["counts"])


def canceling() -> MarkovRandomField:
    """Log-odds of variable 0 that are small differences of numbers of 3e8, in which single precision errs by 30."""
    large = 1e9 / 3
    tables = [[[0.0, 0.0], [0.0, -large / 6 + 0.05]]] * 6
    return MarkovRandomField.from_tables([[0.0, large]] * 7, [(0, i) for i in range(1, 7)], tables)


def sabotage(monkeypatch, index, change):
    """Change one of the tables that the updates read, after every load."""
    load = CudaChains.load

    def changed(self, thetas, coefficients=None):
        load(self, thetas, coefficients)
        table = self._tables[index]
        table.copy_to_device(np.ascontiguousarray(change(table.copy_to_host())))

    monkeypatch.setattr(CudaChains, "load", changed)


@pytest.mark.parametrize(("kernel", "index"), [("packed-field", 3), ("field", 5)])
def test_the_doubtful_are_computed_in_double_precision(kernel, index, monkeypatch):
    options = {"num_chains": 12, "num_sweeps": 2, "launch": SMALL, "estimators": ["counts"]}
    check_against_naive(canceling(), kernel, **options)
    sabotage(monkeypatch, index, np.zeros_like)
    with pytest.raises(AssertionError):
        check_against_naive(canceling(), kernel, **options)


@pytest.mark.parametrize(("kernel", "lanes"), [("packed", 1), ("packed", 32), ("table", 1)])
def test_tables_hold_the_bits_of_every_threshold(kernel, lanes):
    """Filled on the device, for two sets of which the second is that of the model, with certainties as well."""
    for scale in (1.0, 1e3):
        model = lopsided_binary() if kernel == "packed" else mixed_states()
        model = model.with_parameters(scale * model.parameters)
        chains = CudaChains(
            model.structure, num_chains=32, num_sets=2, seed=0, kernel=kernel, launch=Launch(1, lanes, 1)
        )
        chains.load(np.array([0.3 * model.parameters, model.parameters]))
        layout, n = chains._layout, model.num_variables
        table = chains._table.copy_to_host().astype(np.int64)
        begin = chains._patterns[2].copy_to_host() + len(table) // 2
        for place, site in enumerate(layout.order.tolist()):
            near = layout.order[layout.neighbors[slice(*layout.by_place[0][place : place + 2])]]
            patterns = itertools.product(*[range(k) for k in model.num_states[near]])
            for pattern, states in enumerate(patterns):
                x = np.zeros(n, dtype=np.int64)
                x[near] = states
                cuts = np.cumsum(oracle.conditional(model, site, x.tolist()))[:-1]
                at = begin[place] + pattern * len(cuts)
                expected = np.minimum(np.rint(cuts * 2.0**32), MAX_THRESHOLD)
                assert np.abs(table[at : at + len(cuts)] - expected).max(initial=0.0) <= 1
        if kernel == "table":
            continue
        masks, terms = chains._tables[1].copy_to_host(), chains._tables[3].copy_to_host().reshape(-1, 16)
        masks = masks.reshape(2 * n, 8, 8, 2) if lanes == 32 else masks.reshape(128, -1).T.reshape(2 * n, 8, 8, 2)
        bits = (table.reshape(2 * n, 1, 8, 2) >> np.arange(24, 32)[:, None, None]) & 1
        low, high = np.moveaxis(bits, -1, 0)
        np.testing.assert_array_equal(masks, np.stack([high - low, -low], axis=-1))
        for pattern in range(16):
            subsets = [k for k in range(16) if k & pattern == k]
            short = (table.reshape(-1, 16)[:, pattern] + 128) >> 8
            np.testing.assert_array_equal(terms[:, subsets].astype(np.int64).sum(axis=1) % 2**32, short)


def test_partial_log_odds_add_up_within_their_margins():
    """Filled on the device, for two sets of which the second is that of the model."""
    for model in (lopsided_binary(), dense_binary(), MarkovRandomField.ising([(0, 1)], 0.7, num_variables=3)):
        chains = CudaChains(
            model.structure, num_chains=32, num_sets=2, seed=0, kernel="packed-field", launch=Launch(1, 1, 2)
        )
        chains.load(np.stack([model.parameters, -model.parameters]), np.array([[0.5, 0.2], [1.5, 0.5]]))
        layout, n = chains._layout, model.num_variables
        around, chunks, partial, margins, indptr, _, weights, offsets = (a.copy_to_host() for a in chains._tables[:-1])
        around, partial = around.reshape(-1, 4) // chains._stride, partial.reshape(2, -1, 16)[1]
        for x in random_states(model, 5):
            by_place = np.append(x[layout.order], 0)
            for place in range(n):
                p = oracle.conditional(model, int(layout.order[place]), x.tolist())
                expected = np.log(p[1]) - np.log(p[0])
                groups = range(chunks[place], chunks[place + 1])
                patterns = [int("".join(map(str, by_place[around[c]])), 2) for c in groups]
                total = sum(float(partial[c, q]) for c, q in zip(groups, patterns, strict=True))
                assert abs(total - expected) / 4 < margins[n + place]
                near = slice(indptr[place], indptr[place + 1])
                exact = weights[indptr[-1] :][near] @ by_place[layout.neighbors[near]]
                assert offsets[n + place] + exact == pytest.approx(expected, abs=1e-9)


def test_complete_graphs_have_a_thread_for_every_chain(monkeypatch):
    """Draw by draw; with more groups of four neighbors than a block holds at once: 16, in the simulator 2."""
    from fastmix.chains.cuda import field_kernels

    simulated = getattr(numba.config, "ENABLE_CUDASIM", False)
    if simulated:
        monkeypatch.setattr(field_kernels, "HELD_TABLES", 2 * 32)
    num_sweeps = 1 if simulated else 2
    complete = dense_binary(10 if simulated else 70)
    for model in (complete, canceling()):
        states = random_states(model, 33)
        engine = CudaChains(model.structure, num_chains=33, seed=7, kernel="packed-field", estimator=None)
        if model is complete:
            assert (engine._launch.block_x, engine._launch.block_y) == (1, 32)
        engine.load(model.parameters)
        engine.set_states(states)
        engine.sweep(num_sweeps)
        slow = CudaChains(
            model.structure, num_chains=33, seed=7, kernel="packed-field", estimator=None, launch=Launch(1, 2, 1)
        )
        slow.load(model.parameters)
        slow.set_states(states)
        slow.sweep(num_sweeps)
        assert (engine.get_states() != states).any()
        np.testing.assert_array_equal(engine.get_states(), slow.get_states())


# -- factors over three or more variables -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "make", "num_chains"),
    [
        ("packed", binary_triples, 35),
        ("table", binary_triples, 6),
        ("table", mixed_factors, 6),
        ("table", mixed_factors, 1),
    ],
)
def test_factors_match_the_naive_sampler(kernel, make, num_chains):
    check_against_naive(make(), kernel, num_chains=num_chains, num_sweeps=2, launch=SMALL, seed=3)


@pytest.mark.parametrize("seed", strategies.seeds(20, quick=3))
def test_random_factors_match_the_naive_sampler(seed):
    rng = np.random.default_rng(seed)
    model = oracle.random_factors(rng, 5, [2, 3][seed % 2], 3, [0.5, 2.0, 300.0][seed % 3], [0.0, 0.15][seed % 2])
    model = reduce_model(model).model
    for kernel in KERNELS:
        if model.num_factors and applies(kernel, model):
            check_against_naive(
                model, kernel, num_chains=3, num_sweeps=2, launch=SMALL, seed=seed, estimators=["rao-blackwell"]
            )


def test_a_factor_that_is_left_out_is_noticed(monkeypatch):
    model = mixed_factors()
    less = model.replace(log_factors=np.zeros(len(model.log_factors)))
    engine = make_chains(less, num_chains=6, seed=3, launch=SMALL)
    states = random_states(model, 6, 3)
    engine.set_states(states)
    naive = NaiveCuda(model, states, "table", key_of(engine))
    for _ in range(3):
        naive.sweep()
        engine.sweep(1)
    assert engine.get_states().tolist() != naive.x


def test_samples_of_factors(monkeypatch):
    monkeypatch.setattr(cuda_device, "BLOCK_THREADS", dict.fromkeys(cuda_device.BLOCK_THREADS, 1))  # see SMALL
    model = mixed_factors(0.5)
    result = sample(model, num_chains=8, num_sweeps=60, burn_in=5, backend="cuda", seed=1)
    assert result.stats["backend"] == f"cuda ({cuda_available()[1]})"
    error = np.abs(result.node_marginals - infer(model, method="exact").node_marginals)
    assert (error <= 6 * result.std_error + 1e-6).all()
    monkeypatch.setattr(cuda_device, "MAX_DEVICE_TABLE_ENTRIES", 10)
    with pytest.raises(UnfitMethodError, match=r"^backend.*factors"):
        sample(model, num_chains=8, num_sweeps=2, burn_in=0, backend="cuda")
    assert "tables of all patterns" in sample(model, num_sweeps=50, seed=0, backend="auto").stats["backend"]


# -- the comparisons can fail ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "index", "change"),
    [
        ("packed", 1, lambda a: -a),
        ("packed", 0, lambda a: np.roll(a, 1)),
        ("packed-field", 2, lambda a: -a),
        ("field", 2, lambda a: -a),
        ("table", 5, lambda a: np.roll(a, 1)),
        ("logit", 5, lambda a: -a),
    ],
)
def test_a_wrong_table_is_noticed(kernel, index, change, monkeypatch):
    sabotage(monkeypatch, index, change)
    with pytest.raises(AssertionError):
        check_against_naive(
            model_for(kernel), kernel, num_chains=8, num_sweeps=3, launch=SMALL, estimators=["rao-blackwell"]
        )
