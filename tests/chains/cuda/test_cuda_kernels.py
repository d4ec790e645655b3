"""The CUDA kernels against a naive sampler, draw by draw.

They run in the CUDA simulator (``test_cuda_simulator.py`` starts it), or on the device where there is one.
"""

from __future__ import annotations

import numpy as np
import pytest
from cuda_checks import (
    KERNELS,
    applies,
    check_against_naive,
    dense_binary,
    is_defined,
    key_of,
    lopsided,
    lopsided_binary,
    model_for,
    random_states,
)
from naive_cuda import NaiveCuda, philox, uniform

import oracle
import strategies
from fastmix import MarkovRandomField, ModelError, ResourceError, UnfitMethodError, sample
from fastmix.chains.cuda import device as cuda_device
from fastmix.chains.cuda.device import Launch
from fastmix.chains.cuda.gibbs import CudaGibbs, cuda_available
from fastmix.model.reduce import reduce_model
from fastmix.testing import conformance_models

pytestmark = pytest.mark.skipif(
    not cuda_available()[0], reason=f"run in the simulator by test_cuda_simulator.py; here {cuda_available()[1]}"
)

SMALL = Launch(1, 1, 2)  # the simulator has a Python thread for every thread of a block


def chains_for(kernel: str) -> int:
    return {"packed": 35, "packed-field": 34, "field": 3}.get(kernel, 6)


# -- random numbers ---------------------------------------------------------------------------------------------------


def test_generator_gives_the_published_numbers():
    # Known answers of the authors' Random123 library, for the naive one and for the kernels'.
    known = {
        ((0, 0, 0, 0), (0, 0)): (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2): (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)): (
            0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1,
        ),
    }  # fmt: skip
    from numba import cuda

    from fastmix.chains.cuda import kernels as cuda_kernels

    draw = cuda_kernels.philox

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
    for sweep in (2**32 - 1, 2**32, 2**40 + 3):
        engine = CudaGibbs(model, num_chains=6, seed=2, kernel=kernel, launch=SMALL)
        engine.set_random_state(np.array([*key_of(engine), sweep], dtype=np.uint64))
        naive = NaiveCuda(model, engine.get_states(), kernel, key_of(engine), sweep)
        engine.advance(2, collect=False)
        naive.sweep()
        naive.sweep()
        assert engine.get_states().tolist() == naive.x


@pytest.mark.parametrize("kernel", KERNELS)
def test_numbers_at_a_threshold(kernel):
    # One variable whose threshold is the very number that a chain draws, or one more.
    probe = CudaGibbs(
        MarkovRandomField.from_tables([[0.0, 0.0]], [], []), num_chains=3, seed=4, kernel=kernel, launch=SMALL
    )
    for chain in range(3):
        u = uniform(kernel, key_of(probe), 0, 0, chain)
        for threshold, state in ((u, 1), (u + 1, 0)):
            p = threshold / 2.0**32
            model = MarkovRandomField.from_tables([[np.log(p), np.log1p(-p)]], [], [])
            engine = CudaGibbs(model, num_chains=3, seed=4, kernel=kernel, launch=SMALL)
            engine.advance(1, collect=False)
            assert engine.get_states()[chain, 0] == state


@pytest.mark.parametrize("kernel", KERNELS)
def test_certainties_are_certain(kernel):
    model = MarkovRandomField.ising([(0, 1), (1, 2)], [500.0, -300.0], [1e3, 0.0, 0.0])
    chains = chains_for(kernel)
    engine = CudaGibbs(model, num_chains=chains, seed=0, kernel=kernel, launch=SMALL)
    engine.set_states(random_states(model, chains))
    engine.advance(1, collect=False)  # sites 0 and 2 come first, then 1
    assert (engine.get_states()[:, :2] == 1).all()
    engine.advance(1, collect=False)
    assert (engine.get_states() == [1, 1, 0]).all()


# -- the naive sampler ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_match_the_naive_sampler(kernel):
    check_against_naive(model_for(kernel), kernel, num_chains=chains_for(kernel), num_sweeps=2, launch=SMALL, seed=3)


@pytest.mark.parametrize(
    ("kernel", "launch", "num_chains", "group_size"),
    [
        ("packed", Launch(2, 1, 2), 64, 32),
        ("packed", Launch(4, 1, 1), 128, 64),
        ("packed", Launch(1, 2, 2, 2), 64, 2),
        ("packed-field", Launch(1, 2, 2), 64, 32),
        ("field", Launch(1, 2, 2, 2), 4, 4),
        ("table", Launch(1, 1, 2), 1, 1),
        ("table", Launch(1, 2, 2), 8, 8),
        ("table", Launch(1, 1, 3, 2), 6, 2),
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


@pytest.mark.parametrize("seed", strategies.seeds(10, quick=4))
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
            engine = CudaGibbs(small, num_chains=num_chains, seed=1, launch=SMALL)
            assert applies(engine.kernel, small), name
            engine.set_states(random_states(small, num_chains))
            naive = NaiveCuda(small, engine.get_states(), engine.kernel, key_of(engine))
            engine.advance(1, collect=True)
            naive.sweep()
            assert engine.get_states().tolist() == naive.x, name
            assert engine.take_sums().shape == (len(small.log_unary), num_chains)


def test_many_states():
    rng = np.random.default_rng(1)
    model = MarkovRandomField.from_tables(
        [rng.normal(size=300), rng.normal(size=2)], [(0, 1)], [rng.normal(size=(300, 2))]
    )  # fmt: skip
    check_against_naive(model, "table", num_chains=2, launch=SMALL, num_sweeps=1)
    wide = MarkovRandomField.from_tables(
        rng.normal(size=(4, 7)), [(0, 1), (0, 2), (0, 3)], rng.normal(size=(3, 7, 7))
    )  # fmt: skip
    check_against_naive(
        wide, "table", num_chains=2, launch=SMALL, num_sweeps=1
    )  # 343 patterns, more than a byte numbers


def test_colours_longer_than_a_group_of_places():
    # 140 sites of one colour: groups of 128 places, the second of them not full.
    edges = [(i, 140 + i % 3) for i in range(140)]
    model = MarkovRandomField.ising(edges, 0.3, np.linspace(-1, 1, 143))
    for launch in (Launch(1, 1, 8), Launch(1, 1, 4, 3)):
        check_against_naive(model, "field", num_chains=1, launch=launch, num_sweeps=1, estimators=["counts"])


def cancelling() -> MarkovRandomField:
    """Log-odds of variable 0 that are small differences of numbers of 3e8, in which single precision errs by 30."""
    large = 1e9 / 3
    tables = [[[0.0, 0.0], [0.0, -large / 6 + 0.05]]] * 6
    return MarkovRandomField.from_tables([[0.0, large]] * 7, [(0, i) for i in range(1, 7)], tables)


@pytest.mark.parametrize(("kernel", "name"), [("packed-field", "margins"), ("field", "offset_rests")])
def test_the_doubtful_are_computed_in_double_precision(kernel, name, monkeypatch):
    options = {"num_chains": 12, "num_sweeps": 2, "launch": SMALL, "estimators": ["counts"]}
    check_against_naive(cancelling(), kernel, **options)
    original = CudaGibbs._host_tables
    monkeypatch.setattr(
        CudaGibbs, "_host_tables", lambda self, models: (t := original(self, models)) | {name: np.zeros_like(t[name])}
    )
    with pytest.raises(AssertionError):
        check_against_naive(cancelling(), kernel, **options)


# -- independence -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS)
def test_shapes_of_launches_change_no_bit(kernel):
    model, chains = model_for(kernel), chains_for(kernel)
    if kernel == "packed-field":
        model = dense_binary(5)
    states = random_states(model, chains)
    results = []
    for launch in (SMALL, Launch(1, 2, 3), Launch(1, 1, 1, 3)):
        engine = CudaGibbs(model, num_chains=chains, seed=7, kernel=kernel, launch=launch)
        engine.set_states(states)
        engine.advance(1, collect=True)
        if launch.grid_y > 1:  # once in a launch for all colours, once in one for each
            engine._run_together = lambda *arguments: False
        engine.advance(1, collect=True)
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
        engine = CudaGibbs(model, num_chains=chains, seed=8, kernel=kernel, launch=SMALL)
        engine.set_states(states[:chains])
        engine.advance(1, collect=False)
        results.append(engine.get_states())
    assert np.array_equal(results[0], results[1][:3])
    assert len(np.unique(results[1], axis=0)) > 3


def test_seeds_differ_and_runs_go_on():
    model = lopsided_binary()
    states = random_states(model, 33)

    def run(seed: int, *parts: int) -> np.ndarray:
        engine = CudaGibbs(model, num_chains=33, seed=seed, launch=SMALL)
        engine.set_states(states)
        for part in parts:
            engine.advance(part, collect=False)
            other = CudaGibbs(model, num_chains=33, seed=99, launch=SMALL)
            other.set_states(engine.get_states())
            other.set_random_state(engine.get_random_state())
            engine = other
        return engine.get_states()

    assert np.array_equal(run(1, 3), run(1, 1, 2))
    assert not np.array_equal(run(1, 3), run(2, 3))


def test_sums_of_more_sweeps_than_32_bits_hold():
    model = MarkovRandomField.from_tables([[0.0, -40.0]], [], [])  # always in state 0: the largest sums
    for estimator in ("rao-blackwell", "counts"):
        engine = CudaGibbs(model, num_chains=1, seed=0, kernel="table", estimator=estimator, launch=Launch(1, 1, 1))
        engine.advance(200, collect=True)
        engine.advance(60, collect=True)
        assert engine.take_sums().tolist() == [[260.0], [0.0]]


# -- other models, pairs, exchanges -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS)
def test_another_model_on_the_same_graph(kernel):
    model = model_for(kernel)
    other = model.replace(log_unary=model.log_unary[::-1].copy(), log_pairwise=0.5 * model.log_pairwise)
    engine = CudaGibbs(model, num_chains=4, seed=3, kernel=kernel, launch=SMALL)
    engine.set_states(random_states(model, 4))
    engine.advance(1, collect=False)
    arrays = {name: id(array) for name, array in engine._tables.items()}
    engine.set_model(other)
    assert {name: id(array) for name, array in engine._tables.items()} == arrays
    naive = NaiveCuda(other, engine.get_states(), kernel, key_of(engine), sweep=1)
    engine.advance(2, collect=False)
    naive.sweep()
    naive.sweep()
    assert engine.get_states().tolist() == naive.x
    with pytest.raises(ModelError, match="edges that the sampler was made for"):
        engine.set_model(MarkovRandomField.ising([(0, 1)], 1.0))


@pytest.mark.parametrize(
    ("kernel", "width", "launch"),
    [
        ("packed", 32, Launch(2, 1, 2)),
        ("packed", 32, Launch(1, 2, 1)),
        ("table", 4, SMALL),
        ("table", 4, Launch(1, 2, 2)),
    ],
)
def test_a_model_for_chains_that_are_updated_together(kernel, width, launch):
    base = lopsided_binary() if kernel == "packed" else lopsided()
    models = [base.replace(log_unary=t * base.log_unary, log_pairwise=t * base.log_pairwise) for t in (0.2, 1.0, 3.0)]
    count = 2 * width + min(6, width // 2)
    which = np.repeat([2, 0, 1], width)[:count]
    engine = CudaGibbs(base, num_chains=count, seed=3, kernel=kernel, launch=launch)
    states = random_states(base, count)
    engine.set_states(states)
    engine.set_models(models, which)
    engine.advance(2, collect=True)
    sums = engine.take_sums()
    for k, model in enumerate(models):
        naive = NaiveCuda(model, states, kernel, key_of(engine))
        naive.sweep()
        naive.sweep()
        assert np.array_equal(engine.get_states()[which == k], np.array(naive.x)[which == k])
        np.testing.assert_allclose(sums[:, which == k], naive.conditionals[:, which == k], atol=2e-7)
    with pytest.raises(ValueError, match=rf"equal for chains {width} k to {width} k \+ {width - 1}"):
        engine.set_models([base, base], np.arange(count) % 2)


def test_models_that_cannot_go_together_are_refused():
    base = lopsided_binary()
    engine = CudaGibbs(base, num_chains=64, seed=3, kernel="packed", launch=SMALL)
    with pytest.raises(ValueError, match="from 0 to 1"):
        engine.set_models([base, base], np.full(64, 2))
    other = CudaGibbs(base, num_chains=2, seed=3, kernel="field", launch=SMALL)
    with pytest.raises(UnfitMethodError, match="need the kernel packed or table, and this is field"):
        other.set_models([base, base], [0, 1])


@pytest.mark.parametrize("kernel", KERNELS)
def test_pairs_of_states_are_counted(kernel):
    model, chains = model_for(kernel), 37
    engine = CudaGibbs(model, num_chains=chains, seed=3, kernel=kernel, launch=SMALL)
    states = random_states(model, chains)
    engine.set_states(states)
    out = np.full(len(model.log_pairwise), 3, dtype=np.int64)
    engine.count_pairs(out)
    expected = np.full_like(out, 3)
    for e, (i, j) in enumerate(model.edges.tolist()):
        np.add.at(expected, model.pairwise_offsets[e] + states[:, i] * model.num_states[j] + states[:, j], 1)
    assert np.array_equal(out, expected)


def test_edge_marginals_say_that_they_are_counts(monkeypatch):
    monkeypatch.setattr(cuda_device, "_THREADS", dict.fromkeys(cuda_device._THREADS, 1))  # see SMALL
    result = sample(
        lopsided(), num_chains=4, num_sweeps=2, burn_in=0, num_draws=2, edge_marginals=True, backend="cuda", seed=1
    )
    assert result.stats["edge_marginals"] == "counts of pairs"
    assert result.provenance["device"] == cuda_available()[1]
    i, j = result.model.edges[0].tolist()
    draws = result.draws.reshape(-1, result.model.num_variables)
    expected = np.zeros((result.model.num_states[i], result.model.num_states[j]))
    np.add.at(expected, (draws[:, i], draws[:, j]), 1.0 / len(draws))
    np.testing.assert_allclose(result.edge_marginal(i, j), expected, atol=1e-12)


# -- refusals, and that the comparisons can fail ----------------------------------------------------------------------


def test_requests_that_cannot_be_met_are_refused():
    model = lopsided()
    with pytest.raises(UnfitMethodError, match="schedule must be systematic on the GPU, got 'random'"):
        CudaGibbs(model, num_chains=4, seed=0, schedule="random")
    with pytest.raises(ValueError, match="group_size must divide num_chains, 10, got 4"):
        CudaGibbs(model, num_chains=10, seed=0, group_size=4)
    with pytest.raises(ResourceError, match=r"needs .* of its memory, over the limit of 100 B") as caught:
        CudaGibbs(model, num_chains=10, seed=0, memory_limit=100)
    assert caught.value.required_bytes > caught.value.limit_bytes == 100
    grid = MarkovRandomField.ising([(0, 1)], 1.0)
    with pytest.raises(ResourceError, match=r"fewer than 2\^32 words of 32 states, and 100,000,000,000 chains"):
        CudaGibbs(grid, num_chains=10**11, seed=0, group_size=10**11)


@pytest.mark.parametrize(
    ("kernel", "name", "change"),
    [
        ("packed", "masks", lambda a: -a),
        ("packed", "around", lambda a: np.roll(a, 1)),
        ("packed-field", "partial", lambda a: -a),
        ("field", "weights", lambda a: -a),
        ("table", "table", lambda a: np.roll(a, 1)),
        ("logit", "values", lambda a: -a),
    ],
)
def test_a_wrong_table_is_noticed(kernel, name, change, monkeypatch):
    original = CudaGibbs._host_tables

    def sabotaged(self, models):
        tables = original(self, models)
        return tables | {name: np.ascontiguousarray(change(tables[name]))}

    monkeypatch.setattr(CudaGibbs, "_host_tables", sabotaged)
    with pytest.raises(AssertionError):
        check_against_naive(model_for(kernel), kernel, num_chains=8, num_sweeps=3, launch=SMALL)
