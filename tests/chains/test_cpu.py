from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Sequence

import numba
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from test_chain_statistics import Patterns

import oracle
import strategies
from fastmix import MarkovRandomField, ModelError, UnfitMethodError
from fastmix.chains import cpu, layout, sweep_kernels, threshold_kernels
from fastmix.chains.base import ParameterSets
from fastmix.chains.conditionals import check_conditionals
from fastmix.chains.cpu import choose_kernel
from fastmix.chains.generator import MAX_THRESHOLD
from fastmix.chains.layout import Layout, tables_fit
from fastmix.chains.threads import Threads
from fastmix.model.reduce import reduce_model
from oracle.chains import (
    ESTIMATORS,
    KERNELS,
    RANDOM,
    SYSTEMATIC,
    Engine,
    Naive,
    applies,
    check_against_naive,
    check_sums,
    lopsided_binary,
    make,
    models_for,
    order_for,
)

# -- tables and order -------------------------------------------------------------------------------------------------


@given(strategies.models(max_variables=5))
def test_visit_order_goes_by_color(model):
    order, starts = model.structure.visit_order
    assert sorted(order.tolist()) == list(range(model.num_variables))
    assert starts[0] == 0
    assert starts[-1] == model.num_variables
    color = np.empty(model.num_variables, dtype=int)
    for k, (a, b) in enumerate(itertools.pairwise(starts.tolist())):
        assert (np.diff(order[a:b]) > 0).all()
        color[order[a:b]] = k
    assert all(color[i] != color[j] for i, j in model.edges.tolist())


@given(strategies.models(max_variables=4))
def test_tables_hold_every_conditional(model):
    model = reduce_model(model).model
    if not oracle.is_defined(model):
        with pytest.raises(ModelError, match=r"^variable \d+"):
            Patterns(model)
        with pytest.raises((ModelError, UnfitMethodError)):
            check_conditionals(model)
        return
    with contextlib.suppress(UnfitMethodError):  # defined, but pairs fall into groups that updates do not join
        check_conditionals(model)
    tables = Patterns(model)
    assert len(tables.table) == round(model.structure.pattern_entries)
    for i in range(model.num_variables):
        for x in oracle.all_configurations(model):
            expected = oracle.conditional(model, i, x)
            cuts = np.array(tables.row(i, x)) / 2.0**32
            rounding = 2.0**-52 * 8 * len(expected)  # of the exponentials, of their sum, and of the sum here
            assert (np.abs(cuts - np.cumsum(expected)[:-1]) <= 2.0**-32 + rounding).all()


def test_conditionals_that_cannot_be_checked_are_refused(monkeypatch):
    unequal = np.where(np.eye(3, dtype=bool), -np.inf, 0.0)
    model = MarkovRandomField.from_tables(np.zeros((4, 3)), [(0, 1), (0, 2), (0, 3)], [unequal] * 3)
    monkeypatch.setattr("fastmix.theory.conditionals.MAX_JOINT_STATES", 1)
    monkeypatch.setattr("fastmix.theory.conditionals.MAX_FORBIDDEN_SETS", 1)
    with pytest.raises(UnfitMethodError, match=r"variable 0.*neighbors"):
        check_conditionals(model)
    check_conditionals(oracle.lopsided())  # too few states are ever forbidden
    check_conditionals(lopsided_binary())  # nothing is forbidden


def test_kernels_are_chosen_for_the_model(monkeypatch):
    binary, mixed = lopsided_binary().structure, oracle.lopsided().structure
    dense = MarkovRandomField.ising(list(itertools.combinations(range(7), 2)), 0.1).structure
    assert choose_kernel(binary, 1) == "four"
    assert choose_kernel(mixed, 1) == choose_kernel(dense, 1) == "product"
    assert choose_kernel(binary, 16) == choose_kernel(mixed, 100) == choose_kernel(dense, 100) == "table"
    assert choose_kernel(mixed, 1, num_sets=3) == choose_kernel(binary, 2, num_sets=2) == "table"
    assert choose_kernel(mixed, 100, schedule="random") == "product"
    assert choose_kernel(dense, 8, steady=False) == "field"  # 64 patterns of six neighbors for eight chains
    assert choose_kernel(dense, 8, steady=False, forbidden=True) == "product"
    assert choose_kernel(dense, 100, steady=False) == "table"
    monkeypatch.setattr(layout, "MAX_TABLE_ENTRIES", 3)
    assert not tables_fit(mixed)
    assert choose_kernel(mixed, 100) == "product"
    assert choose_kernel(binary, 1) == "four"
    assert choose_kernel(binary, 100) == "field"
    assert choose_kernel(binary, 100, forbidden=True) == "product"
    monkeypatch.undo()
    monkeypatch.setattr(cpu, "LARGE_MODEL", 5)
    assert choose_kernel(mixed, 100) == choose_kernel(dense, 100) == "product"
    assert choose_kernel(binary, 100) == "four"


def test_log_odds_are_kept_where_neighbors_are_many():
    for n, num_chains in ((13, 1), (40, 8), (200, 64)):
        dense = MarkovRandomField.ising(list(itertools.combinations(range(n), 2)), 0.1).structure
        assert choose_kernel(dense, num_chains) == "kept"
        assert choose_kernel(dense, num_chains, schedule="random") == "kept"
        assert choose_kernel(dense, n) != "kept"
        for other in ({"num_sets": 2}, {"forbidden": True}, {"steady": False}):
            assert choose_kernel(dense, num_chains, **other) != "kept"
    layers = MarkovRandomField.ising([(i, 40 + j) for i in range(40) for j in range(40)], 0.1).structure
    assert (choose_kernel(layers, 1), choose_kernel(layers, 8)) == ("kept", "layers")
    ten = MarkovRandomField.ising(list(itertools.combinations(range(11), 2)), 0.1).structure  # neighbors
    assert (choose_kernel(ten, 1), choose_kernel(ten, 8)) == ("product", "field")
    assert choose_kernel(ten, 8, num_sets=2) == choose_kernel(ten, 8, forbidden=True) == "table"
    three = MarkovRandomField.potts(list(itertools.combinations(range(14), 2)), 0.1, 3).structure
    assert choose_kernel(three, 1) == "product"


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3, 1e30])
@pytest.mark.parametrize("density", [0.15, 0.9])
def test_kept_log_odds_are_those_of_all_neighbors(density, scale):
    """Dense and sparse rows, weak and huge weights: the states of many sweeps are those of the product kernel.

    In calls of any length: log-odds are added up exactly, so that the bits are the same.
    """
    rng = np.random.default_rng(5)
    edges = [pair for pair in itertools.combinations(range(50), 2) if rng.random() < density]
    model = MarkovRandomField.from_tables(
        rng.normal(size=(50, 2)), edges, scale * rng.normal(size=(len(edges), 2, 2)) / 4.0
    )
    found = []
    for kernel, calls in (("product", [120]), ("kept", [120]), ("kept", [1, 50, 69])):
        engine = make(model, kernel, num_chains=3, seed=4)
        engine.set_states(oracle.random_states(model, 3))
        for count in calls:
            engine.sweep(count, collect=True)
        found.append((engine.get_states(), engine.take_sums()))
    for states, sums in found[1:]:
        np.testing.assert_array_equal(states, found[0][0])
        np.testing.assert_allclose(sums, found[0][1], rtol=0, atol=120 * 2.0**-23)
    np.testing.assert_array_equal(found[1][1], found[2][1])


@given(strategies.models(max_variables=5), st.integers(0, 2**32 - 1))
def test_every_kernel_matches_the_naive_sampler_draw_by_draw(model, seed):
    model = reduce_model(model).model
    assume(oracle.is_defined(model))
    for kernel in KERNELS:
        if applies(kernel, model):
            check_against_naive(model, kernel, num_chains=2, num_sweeps=3, seed=seed)


@given(strategies.ising_models(max_variables=6), st.integers(0, 2**32 - 1))
def test_binary_kernels_match_the_naive_sampler_draw_by_draw(model, seed):
    for kernel in ("table", "four", "field", "kept"):
        if applies(kernel, model):
            check_against_naive(model, kernel, num_chains=2, num_sweeps=3, seed=seed)


@pytest.mark.parametrize("kernel", KERNELS)
def test_lopsided_model_matches_the_naive_sampler(kernel):
    check_against_naive(models_for(kernel), kernel, num_chains=5, num_sweeps=30, seed=3)


@pytest.mark.parametrize("kernels", [SYSTEMATIC, RANDOM])
def test_kernels_give_the_same_states(kernels):
    # More variables and sweeps than the naive sampler could follow.
    rng = np.random.default_rng(2)
    edges = [(i, j) for i, j in itertools.combinations(range(60), 2) if j - i in (1, 7)]
    model = MarkovRandomField.from_tables(rng.normal(size=(60, 2)), edges, rng.normal(size=(len(edges), 2, 2)))
    results = []
    for kernel in kernels:
        engine = make(model, kernel, num_chains=6, seed=4)
        engine.set_states(oracle.random_states(model, 6))
        engine.sweep(200, collect=True)
        results.append((engine.get_states(), engine.take_sums()))
    for states, sums in results[1:]:
        np.testing.assert_array_equal(states, results[0][0])
        # Thresholds may differ by one where exp() differs in its last bit: one 24-bit step in rare updates.
        np.testing.assert_allclose(sums, results[0][1], rtol=0, atol=200 * 2.0**-24)


@pytest.mark.parametrize("kernel", [k for k in SYSTEMATIC if k != "four"])
def test_every_number_of_neighbors(kernel):
    # Variables i and j are joined where i + j is at least 12: all numbers of neighbors from 0 to 10 occur.
    rng, n = np.random.default_rng(2), 12
    pairs = [(i, j) for i, j in itertools.combinations(range(n), 2) if i + j >= n]
    model = MarkovRandomField.from_tables(rng.normal(size=(n, 2)), pairs, rng.normal(size=(len(pairs), 2, 2)))
    assert set(model.adjacency.degree.tolist()) == set(range(n - 1))
    check_against_naive(model, kernel, num_chains=9, num_sweeps=40, seed=6)


def potts_like(seed: int, strength: float = 1.0) -> MarkovRandomField:
    """Potts tables of either sign, two of them with constants, one that forbids equal states; and others.

    These are a full table, one of unequal state counts, and a reward for one state, constant off its diagonal only.
    """
    rng = np.random.default_rng(seed)
    counts, pairs = [3, 3, 3, 3, 2, 3], [(0, 1), (0, 2), (1, 2), (2, 3), (3, 4), (1, 5), (3, 5)]
    tables = [strength * rng.normal() * np.eye(counts[i]) if counts[i] == counts[j] else None for i, j in pairs]
    tables[0] += 7.0
    tables[1] -= 1.5
    tables[2][np.diag_indices(3)] = -np.inf
    tables[3], tables[4] = strength * rng.normal(size=(3, 3)), strength * rng.normal(size=(3, 2))
    tables[5][2, 2] += 2.0 * strength
    return MarkovRandomField.from_tables([rng.normal(size=k) for k in counts], pairs, tables)


def test_potts_tables_are_taken_as_what_they_are():
    model = potts_like(1)
    arrays = Layout(model.structure).product_arrays(ParameterSets.of(model.parameters))
    potts, begins = arrays[5], arrays[6]
    assert potts.sum() == 2 * 4  # in both directions
    assert begins[-1] == 8 + 4 * 9 + 2 * 6
    some = np.where(np.arange(9) == 8, -np.inf, 0.0).reshape(3, 3)  # one pair of equal states is forbidden, not all
    forbidding = MarkovRandomField.from_tables(np.zeros((2, 3)), [(0, 1)], [some])
    assert not Layout(forbidding.structure)._potts_edges(ParameterSets.of(forbidding.parameters)).any()
    centered = potts_like(1, 1e3)  # too strong for products: rows, and logarithms where these are too small
    assert not Layout(centered.structure).product_arrays(ParameterSets.of(centered.parameters))[5].all()


@pytest.mark.parametrize(("strength", "exponentiated"), strategies.each([1.0, 30.0, 1e3], [True, False]))
def test_products_match_the_naive_sampler(strength, exponentiated, monkeypatch):
    monkeypatch.setattr(cpu, "BLOCK_SITES", 2)
    if not exponentiated:
        monkeypatch.setattr(layout, "MAX_VALUES", 0)
    for seed in range(4):
        check_against_naive(potts_like(seed, strength), "product", num_chains=3, num_sweeps=40, seed=seed)


def test_more_states_than_a_byte_holds():
    rng = np.random.default_rng(1)
    model = MarkovRandomField.from_tables(
        [rng.normal(size=300), rng.normal(size=2)], [(0, 1)], [rng.normal(size=(300, 2))]
    )
    for kernel in ("table", "product"):
        check_against_naive(model, kernel, num_chains=2, num_sweeps=10, seed=5)


@pytest.mark.parametrize("kernel", SYSTEMATIC)
def test_numbers_at_a_threshold(kernel):
    # One binary variable, and streams whose first number is exactly v: the state is 1 from the threshold on.
    p = 0.3
    model = MarkovRandomField.from_tables([[math.log(p), math.log(1 - p)]], [], [])
    t = round(p * 2**32)
    assert states_for(model, kernel, [0, t - 1, t, 2**32 - 1]) == [0, 0, 1, 1]
    sure = MarkovRandomField.from_tables([[0.0, -60.0]], [], [])
    assert states_for(sure, kernel, [0, 2**31, 2**32 - 2, 2**32 - 1]) == [0, 0, 0, 0]
    never = MarkovRandomField.from_tables([[-60.0, 0.0]], [], [])
    assert states_for(never, kernel, [0, 1, 2**31, 2**32 - 1]) == [1, 1, 1, 1]


def states_for(model: MarkovRandomField, kernel: str, values: Sequence[int]) -> list[int]:
    engine = make(model, kernel, num_chains=len(values))
    # The number after a state (0, ., ., s3) is s3 turned left by 7.
    states = np.array([[0, 5, 7, oracle.rotate(v, 25)] for v in values], dtype=np.uint64)
    engine.set_random_state((states.T if kernel in ("table", "field") else states).reshape(-1))
    engine.sweep(1, collect=False)
    return engine.get_states()[:, 0].tolist()


def test_thresholds_of_log_odds():
    odds = np.concatenate([np.linspace(-45.0, 45.0, 400_001), [-1e9, -701.0, -700.0, 700.0, 701.0, 1e9]])
    rng = np.random.default_rng(0)
    u = rng.integers(0, 2**32 - 1, size=odds.size, dtype=np.uint32)
    x, found = np.full(odds.size, 0.5), np.zeros(odds.size, dtype=np.uint32)
    numba.njit(lambda *arrays: threshold_kernels.draw_by_odds(*arrays))(x, odds, u, found)
    exact = np.rint(np.ldexp(1.0 / (1.0 + np.exp(odds.clip(-700.0, 700.0).astype(np.longdouble))), 32))
    exact = np.minimum(exact, MAX_THRESHOLD).astype(np.int64)
    assert np.abs(found - exact).max() <= 1
    assert (found != exact).mean() < 1e-3  # only where rounding is a close call
    np.testing.assert_array_equal(x, (u >= found).astype(float))


# -- threads, blocks, chunks, resumption ------------------------------------------------------------------------------


def grid(rows: int, cols: int, states: int, seed: int = 0) -> MarkovRandomField:
    from fastmix.graphs import grid_edges

    rng, edges = np.random.default_rng(seed), grid_edges(rows, cols)
    return MarkovRandomField.from_tables(
        rng.normal(size=(rows * cols, states)), edges, rng.normal(size=(len(edges), states, states))
    )


CASES = [(kernel, False) for kernel in KERNELS] + [("four", True), ("single", True), ("product", True)]


def case_engine(kernel: str, chunked: bool, monkeypatch, *, num_threads: int = 1, seed: int = 3, **options) -> Engine:
    monkeypatch.setattr(cpu, "BLOCK_CHAINS", 7)
    monkeypatch.setattr(Threads, "min_updates", 0)
    if chunked:
        monkeypatch.setattr(layout, "CHUNKED_SITES", 10)
        monkeypatch.setattr(layout, "CHUNK_SITES", 4)
    model = grid(5, 5, 2 if kernel in ("four", "field", "kept") else 3)
    engine = make(model, kernel, num_chains=20 if not chunked else 3, seed=seed, num_threads=num_threads, **options)
    if chunked:
        assert engine.layout.chunks.tolist() == [
            0,
            4,
            8,
            12,
            13,
            17,
            21,
            25,
        ]  # colors: 13 + 12
    engine.set_states(oracle.random_states(model, engine.num_chains))
    return engine


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize(("kernel", "chunked"), CASES)
def test_threads_do_not_matter(kernel, chunked, estimator, monkeypatch):
    results = []
    for num_threads in (1, 2, 3):
        engine = case_engine(kernel, chunked, monkeypatch, num_threads=num_threads, estimator=estimator)
        engine.sweep(20, collect=True)
        results.append((engine.get_states(), engine.take_sums(), engine.get_random_state()))
    for result in results[1:]:
        for a, b in zip(result, results[0], strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_errors_in_a_thread_end_all_of_them(num_threads, monkeypatch):
    engine = case_engine("four", True, monkeypatch, num_threads=num_threads)
    calls = itertools.count()

    def broken(*arguments):
        if next(calls) == 7 * (num_threads > 1):
            raise MemoryError("no more")

    monkeypatch.setattr(sweep_kernels, "four_sweeps", broken)
    with pytest.raises(MemoryError, match="no more"):
        engine.sweep(20, collect=True)
    assert next(calls) < 20


@pytest.mark.parametrize("kernel", ["table", "field"])
def test_blocks_do_not_matter(kernel, monkeypatch):
    engine = case_engine(kernel, False, monkeypatch)
    engine.sweep(20, collect=True)
    monkeypatch.undo()
    whole = make(engine.model, kernel, num_chains=20, seed=3)
    whole.set_states(oracle.random_states(engine.model, 20))
    whole.sweep(20, collect=True)
    np.testing.assert_array_equal(engine.get_states(), whole.get_states())
    np.testing.assert_array_equal(engine.take_sums(), whole.take_sums())


@pytest.mark.parametrize(("kernel", "chunked"), CASES)
def test_chains_do_not_depend_on_their_number(kernel, chunked, monkeypatch):
    engine = case_engine(kernel, chunked, monkeypatch)
    engine.sweep(10, collect=False)
    fewer = make(engine.model, kernel, num_chains=2, seed=3)
    fewer.set_states(oracle.random_states(engine.model, 20)[:2])
    fewer.sweep(10, collect=False)
    np.testing.assert_array_equal(fewer.get_states(), engine.get_states()[:2])


@pytest.mark.parametrize("kernel", ["four", "product"])
def test_chunks_match_the_naive_sampler(kernel, monkeypatch):
    engine = case_engine(kernel, True, monkeypatch, num_threads=2)
    states = oracle.random_states(engine.model, 3)
    naive = LocalNaive(engine.model, states, 3, order_for(engine.model, kernel), engine.layout.chunks.tolist())
    engine.sweep(4, collect=True)
    for _ in range(4):
        naive.sweep()
    assert engine.get_states().tolist() == naive.x
    check_sums(engine.take_sums(), naive.conditionals, engine.model, 4)


class LocalNaive(Naive):
    """The same with conditionals from the terms of one variable: for models too large for the oracle's sums."""

    def conditional(self, i: int, x: list[int]) -> np.ndarray:
        graph = self.model.adjacency
        around = graph.neighbors[graph.indptr[i] : graph.indptr[i + 1]].tolist()
        logits = self.model.unary(i) + sum(self.model.table(i, j)[:, x[j]] for j in around)
        weights = np.exp(logits - logits.max())
        return weights / weights.sum()


@pytest.mark.parametrize(("kernel", "chunked"), CASES)
def test_resuming_gives_the_same_bits(kernel, chunked, monkeypatch):
    first = case_engine(kernel, chunked, monkeypatch)
    first.sweep(7, collect=True)
    first.take_sums()
    second = case_engine(kernel, chunked, monkeypatch, seed=99)
    second.set_states(first.get_states())
    second.set_random_state(first.get_random_state())
    for engine in (first, second):
        engine.sweep(9, collect=True)
    np.testing.assert_array_equal(first.get_states(), second.get_states())
    np.testing.assert_array_equal(first.take_sums(), second.take_sums())
    np.testing.assert_array_equal(first.get_random_state(), second.get_random_state())
    assert first.get_random_state().dtype == np.uint64


def test_seeds_matter(monkeypatch):
    engines = [case_engine("table", False, monkeypatch, seed=seed) for seed in (0, 1)]
    for engine in engines:
        engine.sweep(5, collect=False)
    assert (engines[0].get_states() != engines[1].get_states()).mean() > 0.2


# -- without compilation ----------------------------------------------------------------------------------------------


def plain_results() -> list:
    """States and sums of every kernel on tiny models, as plain lists."""
    results = []
    for kernel in KERNELS:
        for estimator in ESTIMATORS:
            model = models_for(kernel)
            engine = make(model, kernel, num_chains=2, seed=8, estimator=estimator)
            engine.sweep(4, collect=True)
            results.append([engine.get_states().tolist(), engine.take_sums().tolist()])
    return results
