from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Sequence

import numba
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats
from test_generator import Stream, chance_below, rotate

import oracle
import strategies
from fastmix import MarkovRandomField, ModelError, UnfitMethodError, draw_exact
from fastmix.chains import conditionals, cpu, kernels, layout
from fastmix.chains.conditionals import check_conditionals
from fastmix.chains.cpu import CpuChains, choose_kernel
from fastmix.chains.generator import MAX_THRESHOLD, make_streams
from fastmix.chains.layout import Layout, ParameterSets, tables_fit
from fastmix.model.reduce import reduce_model
from fastmix.theory import dependency

SYSTEMATIC = ("table", "four", "single", "field", "product")
RANDOM = ("random",)
KERNELS = SYSTEMATIC + RANDOM
ESTIMATORS = ("rao-blackwell", "counts")

CUT = 2.0**-24 + 2.0**-30  # of a conditional probability as it is added up: cut to 24 bits, after rounding to 32

# -- the naive sampler -----------------------------------------------------------------------------------------------


class Naive:
    """Gibbs sampling with loops over everything, from given streams and a given order."""

    def __init__(
        self,
        model: MarkovRandomField,
        states: np.ndarray,
        seed: int,
        order: Sequence[int] | None = None,
        chunks: Sequence[int] | None = None,
    ) -> None:
        self.model = model
        self.n = model.num_variables
        self.x = [list(map(int, row)) for row in states]
        self.order = order  # None for a random schedule
        self.chunks = list(itertools.pairwise(chunks if chunks is not None else [0, self.n]))
        count = len(self.chunks)
        streams = make_streams(seed, 0, count * len(self.x))
        self.streams = [[Stream(streams[:, c * count + q]) for q in range(count)] for c in range(len(self.x))]
        self.counts = np.zeros((len(model.log_unary), len(self.x)))
        self.conditionals = np.zeros_like(self.counts)
        self.around: list[list[int]] = [[] for _ in range(self.n)]
        for i, j in model.edges.tolist():
            self.around[i].append(j)
            self.around[j].append(i)
        self.known: dict[tuple[int, ...], np.ndarray] = {}

    def conditional(self, i: int, x: list[int]) -> np.ndarray:
        key = (i, *(x[j] for j in self.around[i]))
        if key not in self.known:
            p = oracle.conditional(self.model, i, x)
            assert p is not None
            self.known[key] = p
        return self.known[key]

    def update(self, c: int, i: int, u: int) -> None:
        p = self.conditional(i, self.x[c])
        cuts = [min(round(float(q) * 2**32), MAX_THRESHOLD) for q in np.cumsum(p)[:-1]]
        self.x[c][i] = sum(u >= cut for cut in cuts)
        start = self.model.unary_offsets[i]
        self.conditionals[start : start + len(p), c] += p

    def sweep(self) -> None:
        for c, x in enumerate(self.x):
            for q, (first, last) in enumerate(self.chunks):
                stream = self.streams[c][q]
                for place in range(first, last):
                    i = stream.site(self.n) if self.order is None else self.order[place]
                    self.update(c, i, stream.draw())
            for i, state in enumerate(x):
                self.counts[self.model.unary_offsets[i] + state, c] += 1

    def sums(self, estimator: str) -> np.ndarray:
        return self.conditionals if estimator == "rao-blackwell" and self.order is not None else self.counts


def applies(kernel: str, model: MarkovRandomField) -> bool:
    binary = bool((model.num_states == 2).all())
    if kernel == "four":
        return binary and model.adjacency.max_degree <= 4
    return kernel != "field" or (binary and not model.has_forbidden)


class Engine(CpuChains):
    """Chains that know their model."""

    model: MarkovRandomField


def make(model: MarkovRandomField, kernel: str, *, num_chains: int = 3, seed: int = 1, **options) -> Engine:
    options.setdefault("num_threads", 1)
    options |= {"schedule": "random"} if kernel in RANDOM else {"kernel": kernel}
    engine = Engine(model.structure, num_chains=num_chains, seed=seed, forbidden=model.has_forbidden, **options)
    engine.model = model
    engine.load(model.parameters)
    return engine


def order_for(model: MarkovRandomField, kernel: str) -> list[int] | None:
    return None if kernel in RANDOM else model.structure.visit_order[0].tolist()


def random_states(model: MarkovRandomField, num_chains: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(0, model.num_states, size=(num_chains, model.num_variables))


def lopsided_binary(seed: int = 6) -> MarkovRandomField:
    """A triangle with a tail and an isolated variable, asymmetric tables."""
    rng = np.random.default_rng(seed)
    pairs = [(0, 1), (0, 2), (1, 2), (2, 3)]
    tables = [1.2 * rng.normal(size=(2, 2)) for _ in pairs]
    return MarkovRandomField.from_tables([0.7 * rng.normal(size=2) for _ in range(5)], pairs, tables)


def models_for(kernel: str) -> MarkovRandomField:
    return lopsided_binary() if kernel in ("four", "field") else oracle.lopsided()


# -- tables and order -------------------------------------------------------------------------------------------------


@given(strategies.models(max_variables=5))
def test_visit_order_goes_by_colour(model):
    order, starts = model.structure.visit_order
    assert sorted(order.tolist()) == list(range(model.num_variables))
    assert starts[0] == 0
    assert starts[-1] == model.num_variables
    colour = np.empty(model.num_variables, dtype=int)
    for k, (a, b) in enumerate(itertools.pairwise(starts.tolist())):
        assert (np.diff(order[a:b]) > 0).all()
        colour[order[a:b]] = k
    assert all(colour[i] != colour[j] for i, j in model.edges.tolist())


@given(strategies.models(max_variables=4))
def test_tables_hold_every_conditional(model):
    model = reduce_model(model).model
    if not oracle.is_defined(model):
        with pytest.raises(ModelError, match="has no allowed state for some states of its neighbours"):
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
            assert (np.abs(cuts - np.cumsum(expected)[:-1]) <= 2.0**-32 + 1e-15).all()


class Patterns:
    """The arrays of the table kernel by name."""

    def __init__(self, model: MarkovRandomField) -> None:
        arrays = Layout(model.structure).table_arrays(ParameterSets.of(model.parameters))
        self.order, self.indptr, self.neighbors, self.strides, self.cuts, _, self.starts, _, self.table = arrays

    def row(self, i: int, x: Sequence[int]) -> list[int]:
        """Thresholds of site i for the states of its neighbors in x."""
        slots = range(self.indptr[i], self.indptr[i + 1])
        first = int(self.starts[i]) + sum(int(self.strides[k]) * x[self.neighbors[k]] for k in slots)
        return self.table[first : first + int(self.cuts[i])].tolist()


def test_conditionals_that_cannot_be_checked_are_refused(monkeypatch):
    unequal = np.where(np.eye(3, dtype=bool), -np.inf, 0.0)
    model = MarkovRandomField.from_tables(np.zeros((4, 3)), [(0, 1), (0, 2), (0, 3)], [unequal] * 3)
    monkeypatch.setattr(dependency, "_MAX_COVERS", 1)
    with pytest.raises(UnfitMethodError, match="variable 0 has forbidden pairs and too many neighbours to check"):
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
    monkeypatch.setattr(layout, "_MOST_ENTRIES", 3)
    assert not tables_fit(mixed)
    assert choose_kernel(mixed, 100) == "product"
    assert choose_kernel(binary, 1) == "four"
    assert choose_kernel(binary, 100) == "field"
    assert choose_kernel(binary, 100, forbidden=True) == "product"
    monkeypatch.undo()
    monkeypatch.setattr(cpu, "_LARGE", 5)
    assert choose_kernel(mixed, 100) == choose_kernel(dense, 100) == "product"
    assert choose_kernel(binary, 100) == "four"


# -- no randomness: the same numbers, the same states -----------------------------------------------------------------


def check_against_naive(model: MarkovRandomField, kernel: str, *, num_chains: int, num_sweeps: int, seed: int) -> None:
    states = random_states(model, num_chains, seed)
    naive = Naive(model, states, seed, order_for(model, kernel))
    engines = [make(model, kernel, num_chains=num_chains, seed=seed, estimator=e) for e in ESTIMATORS]
    for engine in engines:
        engine.set_states(states)
    for _ in range(num_sweeps):
        naive.sweep()
        for engine in engines:
            engine.sweep(1, collect=True)
            assert engine.get_states().tolist() == naive.x
    for engine, estimator in zip(engines, ESTIMATORS, strict=True):
        check_sums(engine.take_sums(), naive.sums(estimator), model, num_sweeps)


def check_sums(sums: np.ndarray, expected: np.ndarray, model: MarkovRandomField, num_sweeps: int) -> None:
    np.testing.assert_allclose(sums, expected, rtol=0, atol=num_sweeps * CUT)
    if model.num_variables:
        totals = np.add.reduceat(sums, model.unary_offsets[:-1])
        np.testing.assert_allclose(totals, num_sweeps, rtol=0, atol=num_sweeps * 1e-12)
    assert (sums >= 0).all()


@given(strategies.models(max_variables=5), st.integers(0, 2**32 - 1))
def test_every_kernel_matches_the_naive_sampler_draw_by_draw(model, seed):
    model = reduce_model(model).model
    assume(oracle.is_defined(model))
    for kernel in KERNELS:
        if applies(kernel, model):
            check_against_naive(model, kernel, num_chains=2, num_sweeps=3, seed=seed)


@settings(max_examples=40)
@given(strategies.ising_models(max_variables=6), st.integers(0, 2**32 - 1))
def test_binary_kernels_match_the_naive_sampler_draw_by_draw(model, seed):
    for kernel in ("table", "four", "field"):
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
        engine.set_states(random_states(model, 6))
        engine.sweep(200, collect=True)
        results.append((engine.get_states(), engine.take_sums()))
    for states, sums in results[1:]:
        np.testing.assert_array_equal(states, results[0][0])
        # Thresholds may differ by one where exp() differs in its last bit: one 24-bit step in rare updates.
        np.testing.assert_allclose(sums, results[0][1], rtol=0, atol=200 * 2.0**-24)


@pytest.mark.parametrize("kernel", [k for k in SYSTEMATIC if k != "four"])
def test_every_number_of_neighbors(kernel):
    # Variables i and j are joined where i + j is at least 12: all numbers of neighbours from 0 to 10 occur.
    rng, n = np.random.default_rng(2), 12
    pairs = [(i, j) for i, j in itertools.combinations(range(n), 2) if i + j >= n]
    model = MarkovRandomField.from_tables(rng.normal(size=(n, 2)), pairs, rng.normal(size=(len(pairs), 2, 2)))
    assert set(model.adjacency.degree.tolist()) == set(range(n - 1))
    check_against_naive(model, kernel, num_chains=9, num_sweeps=40, seed=6)


def potts_like(seed: int, strength: float = 1.0) -> MarkovRandomField:
    """Potts tables of either sign, two of them with constants, one that forbids equal states, a full and an odd one."""
    rng = np.random.default_rng(seed)
    counts, pairs = [3, 3, 3, 3, 2, 3], [(0, 1), (0, 2), (1, 2), (2, 3), (3, 4), (1, 5), (3, 5)]
    tables = [strength * rng.normal() * np.eye(counts[i]) if counts[i] == counts[j] else None for i, j in pairs]
    tables[0] += 7.0
    tables[1] -= 1.5
    tables[2][np.diag_indices(3)] = -np.inf
    tables[3], tables[4] = strength * rng.normal(size=(3, 3)), strength * rng.normal(size=(3, 2))
    return MarkovRandomField.from_tables([rng.normal(size=k) for k in counts], pairs, tables)


def test_potts_tables_are_taken_as_what_they_are():
    model = potts_like(1)
    arrays = Layout(model.structure).product_arrays(ParameterSets.of(model.parameters))
    potts, begins = arrays[5], arrays[6]
    assert potts.sum() == 2 * 5  # all but a full table and one of unequal state counts, in both directions
    assert begins[-1] == 10 + 2 * 9 + 2 * 6
    centered = potts_like(1, 1e3)  # too strong for products: rows, and logarithms where these are too small
    assert not Layout(centered.structure).product_arrays(ParameterSets.of(centered.parameters))[5].all()


@pytest.mark.parametrize("exponentiated", [True, False])
@pytest.mark.parametrize("strength", [1.0, 30.0, 1e3])
def test_products_match_the_naive_sampler(strength, exponentiated, monkeypatch):
    monkeypatch.setattr(layout, "BLOCK_SITES", 2)
    if not exponentiated:
        monkeypatch.setattr(layout, "_MOST_VALUES", 0)
    for seed in range(4):
        check_against_naive(potts_like(seed, strength), "product", num_chains=3, num_sweeps=40, seed=seed)


def test_more_states_than_a_byte_holds():
    rng = np.random.default_rng(1)
    model = MarkovRandomField.from_tables(
        [rng.normal(size=300), rng.normal(size=2)], [(0, 1)], [rng.normal(size=(300, 2))]
    )  # fmt: skip
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
    states = np.array([[0, 5, 7, rotate(v, 25)] for v in values], dtype=np.uint64)
    engine.set_random_state((states.T if kernel in ("table", "field") else states).reshape(-1))
    engine.sweep(1, collect=False)
    return engine.get_states()[:, 0].tolist()


def test_thresholds_of_log_odds():
    odds = np.concatenate([np.linspace(-45.0, 45.0, 400_001), [-1e9, -701.0, -700.0, 700.0, 701.0, 1e9]])
    rng = np.random.default_rng(0)
    u = rng.integers(0, 2**32 - 1, size=odds.size, dtype=np.uint32)
    x, found = np.full(odds.size, 0.5), np.zeros(odds.size, dtype=np.uint32)
    numba.njit(lambda *arrays: kernels._draw_by_odds(*arrays))(x, odds, u, found)
    exact = np.rint(np.ldexp(1.0 / (1.0 + np.exp(odds.clip(-700.0, 700.0).astype(np.longdouble))), 32))
    exact = np.minimum(exact, MAX_THRESHOLD).astype(np.int64)
    assert np.abs(found - exact).max() <= 1
    assert (found != exact).mean() < 1e-3  # only where rounding is a close call
    np.testing.assert_array_equal(x, (u >= found).astype(float))


# -- the transition matrix --------------------------------------------------------------------------------------------


def site_matrix(model: MarkovRandomField, tables: Patterns, i: int) -> np.ndarray:
    """Transition probabilities of one update between all configurations, from the thresholds."""
    configurations = oracle.all_configurations(model)
    number = {x: k for k, x in enumerate(configurations)}
    matrix = np.zeros((len(configurations), len(configurations)))
    for x in configurations:
        below = [0, *(chance_below(t) for t in tables.row(i, x)), 2**32]
        for state, (a, b) in enumerate(itertools.pairwise(below)):
            matrix[number[x], number[(*x[:i], state, *x[i + 1 :])]] += (b - a) / 2.0**32
    return matrix


@pytest.mark.parametrize("seed", range(4))
def test_target_is_fixed_by_a_sweep(seed):
    model = oracle.lopsided(seed) if seed % 2 else lopsided_binary(seed)
    tables = Patterns(model)
    target = oracle.joint(model).reshape(-1)
    updates = [site_matrix(model, tables, i) for i in range(model.num_variables)]
    # A cumulative probability is rounded by at most half a unit of 2^-32 and joining the middle values adds at most
    # one, so an update of L states moves the target by at most (L - 1) * 1.5 * 2^-32 in total variation.
    tolerance = 1.5 * 2.0**-32 * float((model.num_states - 1).sum()) + 1e-14
    after = target
    for i in tables.order:
        np.testing.assert_allclose(updates[i].sum(axis=1), 1.0, atol=1e-15)
        after = after @ updates[i]
        # Every single update is reversible, up to the same rounding.
        flow = target[:, None] * updates[i]
        assert np.abs(flow - flow.T).sum() < 2 * tolerance
    assert np.abs(after - target).sum() / 2 < tolerance
    random_scan = sum(updates) / len(updates)
    assert np.abs(target @ random_scan - target).sum() / 2 < tolerance
    # The same sum must notice a neighbour that is left out.
    left_out = target
    for i in tables.order:
        wrong = Patterns(without_edge(model, 0)) if i == int(model.edges[0, 0]) else tables
        left_out = left_out @ site_matrix(model, wrong, i)
    assert np.abs(left_out - target).sum() / 2 > 1e-3


def without_edge(model: MarkovRandomField, e: int) -> MarkovRandomField:
    tables = list(oracle.edge_tables(model).items())
    del tables[e]
    return MarkovRandomField.from_tables(
        oracle.unary_vectors(model), [ends for ends, _ in tables], [t for _, t in tables]
    )


def with_table(model: MarkovRandomField, e: int, change: Callable[[np.ndarray], np.ndarray]) -> MarkovRandomField:
    tables = {ends: np.array(t) for ends, t in oracle.edge_tables(model).items()}
    ends = list(tables)[e]
    tables[ends] = change(tables[ends])
    return MarkovRandomField.from_tables(oracle.unary_vectors(model), list(tables), list(tables.values()))


# -- joint counts of independent chains started from exact draws ------------------------------------------------------

NUM_DRAWS = 20_000
FALSE_ALARM = 1e-6


def copies(model: MarkovRandomField, count: int) -> MarkovRandomField:
    """Several independent copies side by side, one model: one chain of it is that many chains."""
    edges = (model.edges[None, :, :] + model.num_variables * np.arange(count)[:, None, None]).reshape(-1, 2)
    return MarkovRandomField(
        np.tile(model.num_states, count), np.tile(model.log_unary, count), edges, np.tile(model.log_pairwise, count)
    )


def goodness(model: MarkovRandomField, states: np.ndarray) -> float:
    """P-value of the chi-square test of joint counts; 0 when an impossible configuration occurs.

    Configurations with fewer than 10 expected are put together.
    """
    expected = oracle.joint(model).reshape(-1) * len(states)
    cells = np.ravel_multi_index(tuple(states.T), tuple(model.num_states))
    counts = np.bincount(cells, minlength=len(expected))
    if counts[expected == 0].any():
        return 0.0
    common = expected >= 10
    observed, wanted = counts[common].astype(float), expected[common]
    if (rest := expected[~common].sum()) > 0:
        observed, wanted = np.append(observed, counts[~common].sum()), np.append(wanted, rest)
        if rest < 10:  # too few for a cell of their own
            smallest = int(wanted[:-1].argmin())
            observed[smallest] += observed[-1]
            wanted[smallest] += wanted[-1]
            observed, wanted = observed[:-1], wanted[:-1]
    return float(stats.chi2.sf(((observed - wanted) ** 2 / wanted).sum(), len(wanted) - 1))


def run_chains(
    target: MarkovRandomField,
    kernel: str,
    *,
    sampled: MarkovRandomField | None = None,
    stale: int | None = None,
    estimator: str | None = None,
    num_sweeps: int = 3,
    seed: int = 11,
) -> np.ndarray:
    """Configurations after some sweeps from exact draws of the target.

    The sabotaged: ``sampled`` is another model than the target, and ``stale`` a variable whose update is seen by its
    neighbours but not kept.
    """
    n = target.num_variables
    per_chain = 20 if kernel in ("table", "field") else NUM_DRAWS // 4
    num_chains = NUM_DRAWS // per_chain
    side_by_side = copies(sampled or target, per_chain)
    options = {"seed": seed, "num_threads": 2, "estimator": estimator or "rao-blackwell"}
    engine = make(side_by_side, kernel, num_chains=num_chains, **options)
    states = draw_exact(target, num_draws=NUM_DRAWS, seed=seed).reshape(num_chains, -1)
    engine.set_states(states)
    for _ in range(num_sweeps):
        before = engine.get_states().reshape(-1, n)
        engine.sweep(1, collect=estimator is not None)
        if stale is not None:
            after = engine.get_states().reshape(-1, n)
            after[:, stale] = before[:, stale]
            engine.set_states(after.reshape(num_chains, -1))
    return engine.get_states().reshape(-1, n)


@pytest.mark.parametrize("estimator", [None, *ESTIMATORS])
@pytest.mark.parametrize("kernel", KERNELS)
def test_joint_counts(kernel, estimator):
    model = models_for(kernel)
    assert goodness(model, run_chains(model, kernel, estimator=estimator)) > FALSE_ALARM


@pytest.mark.parametrize("kernel", KERNELS)
def test_sabotaged_joint_counts_fail(kernel):
    model = models_for(kernel)
    flipped = with_table(model, 1, lambda table: -table)
    assert goodness(model, run_chains(model, kernel, sampled=flipped)) < FALSE_ALARM
    skipped = without_edge(model, 1)
    assert goodness(model, run_chains(model, kernel, sampled=skipped)) < FALSE_ALARM
    # The first variable of a sweep that has neighbours: they have all seen the value that is not kept.
    order = model.structure.visit_order[0].tolist()
    stale = next(i for i in order if model.adjacency.degree[i] > 1)
    assert goodness(model, run_chains(model, kernel, stale=stale)) < FALSE_ALARM


@pytest.mark.parametrize("kernel", ["four", "single", "product"])
def test_joint_counts_of_chunks(kernel, monkeypatch):
    monkeypatch.setattr(layout, "_CHUNKED_SITES", 100)
    monkeypatch.setattr(layout, "_CHUNK", 1000)
    model = models_for(kernel)
    states = run_chains(model, kernel)
    assert goodness(model, states) > FALSE_ALARM


def test_goodness_of_exact_draws_is_uniform():
    # The test itself: p-values of exact draws are uniform (Kolmogorov at 1e-6), and small changes are seen.
    model = oracle.lopsided()
    draws = draw_exact(model, num_draws=200 * 2000, seed=1).reshape(200, 2000, -1)
    p = [goodness(model, part) for part in draws]
    assert stats.kstest(p, "uniform").pvalue > FALSE_ALARM
    spoiled = draws.reshape(-1, model.num_variables)[:NUM_DRAWS].copy()
    spoiled[: NUM_DRAWS // 10, 0] = 0
    assert goodness(model, spoiled) < FALSE_ALARM


# -- sums -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_sums_over_hundreds_of_sweeps(kernel, estimator):
    # Nearly certain states in both places: these are what overflows 32 bits first.
    model = MarkovRandomField.ising([(0, 1), (1, 2)], [0.8, -0.5], [0.2, 15.0, -15.0])
    naive = Naive(model, np.zeros((2, 3), dtype=int), 9, order_for(model, kernel))
    engine = make(model, kernel, num_chains=2, seed=9, estimator=estimator)
    engine.sweep(0, collect=True)
    for count in (1, 254, 2, 300, 256, 43):
        engine.sweep(count, collect=True)
    for _ in range(856):
        naive.sweep()
    check_sums(engine.take_sums(), naive.sums(estimator), model, 856)
    assert (engine.take_sums() == 0).all()
    # After emptying, and with sweeps in between that are not collected.
    naive.counts[:], naive.conditionals[:] = 0, 0
    engine.sweep(5, collect=True)
    for _ in range(5):
        naive.sweep()
    expected = naive.sums(estimator).copy()
    engine.sweep(300, collect=False)
    check_sums(engine.take_sums(), expected, model, 5)
    for _ in range(300):
        naive.sweep()
    assert engine.get_states().tolist() == naive.x


@pytest.mark.parametrize("kernel", KERNELS)
def test_no_variables_and_one_state(kernel):
    empty = MarkovRandomField.from_factors([], [])
    engine = make(empty, kernel, num_chains=4)
    engine.sweep(10, collect=True)
    assert engine.get_states().shape == (4, 0)
    assert engine.take_sums().shape == (0, 4)
    if kernel not in ("four", "field"):
        single = MarkovRandomField.from_tables([[0.3], [0.1]], [(0, 1)], [[[0.2]]])
        engine = make(single, kernel, num_chains=4)
        engine.sweep(300, collect=True)
        assert (engine.take_sums() == 300).all()
        assert (engine.get_states() == 0).all()


# -- threads, blocks, chunks, resumption ------------------------------------------------------------------------------


def grid(rows: int, cols: int, states: int, seed: int = 0) -> MarkovRandomField:
    from fastmix.graphs import grid_edges

    rng, edges = np.random.default_rng(seed), grid_edges(rows, cols)
    return MarkovRandomField.from_tables(
        rng.normal(size=(rows * cols, states)), edges, rng.normal(size=(len(edges), states, states))
    )


CASES = [(kernel, False) for kernel in KERNELS] + [("four", True), ("single", True), ("product", True)]


def case_engine(kernel: str, chunked: bool, monkeypatch, *, num_threads: int = 1, seed: int = 3, **options) -> Engine:
    monkeypatch.setattr(cpu, "_BLOCK", 7)
    if chunked:
        monkeypatch.setattr(layout, "_CHUNKED_SITES", 10)
        monkeypatch.setattr(layout, "_CHUNK", 4)
    model = grid(5, 5, 2 if kernel in ("four", "field") else 3)
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
    engine.set_states(random_states(model, engine.num_chains))
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

    monkeypatch.setattr(kernels, "four_sweeps", broken)
    with pytest.raises(MemoryError, match="no more"):
        engine.sweep(20, collect=True)
    assert next(calls) < 20


@pytest.mark.parametrize("kernel", ["table", "field"])
def test_blocks_do_not_matter(kernel, monkeypatch):
    engine = case_engine(kernel, False, monkeypatch)
    engine.sweep(20, collect=True)
    monkeypatch.undo()
    whole = make(engine.model, kernel, num_chains=20, seed=3)
    whole.set_states(random_states(engine.model, 20))
    whole.sweep(20, collect=True)
    np.testing.assert_array_equal(engine.get_states(), whole.get_states())
    np.testing.assert_array_equal(engine.take_sums(), whole.take_sums())


@pytest.mark.parametrize(("kernel", "chunked"), CASES)
def test_chains_do_not_depend_on_their_number(kernel, chunked, monkeypatch):
    engine = case_engine(kernel, chunked, monkeypatch)
    engine.sweep(10, collect=False)
    fewer = make(engine.model, kernel, num_chains=2, seed=3)
    fewer.set_states(random_states(engine.model, 20)[:2])
    fewer.sweep(10, collect=False)
    np.testing.assert_array_equal(fewer.get_states(), engine.get_states()[:2])


@pytest.mark.parametrize("kernel", ["four", "product"])
def test_chunks_match_the_naive_sampler(kernel, monkeypatch):
    engine = case_engine(kernel, True, monkeypatch, num_threads=2)
    states = random_states(engine.model, 3)
    naive = LocalNaive(engine.model, states, 3, order_for(engine.model, kernel), engine.layout.chunks.tolist())
    engine.sweep(4, collect=True)
    for _ in range(4):
        naive.sweep()
    assert engine.get_states().tolist() == naive.x
    check_sums(engine.take_sums(), naive.conditionals, engine.model, 4)


class LocalNaive(Naive):
    """The same with conditionals from the terms of one variable: for models too large for the oracle's sums."""

    def conditional(self, i: int, x: list[int]) -> np.ndarray:
        return self.model.conditional(i, np.array(x))


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


# -- strong couplings and hard constraints ----------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_couplings_of_a_thousand(kernel, estimator):
    edges, signs = [(0, 1), (1, 2), (2, 3), (0, 3)], np.array([1.0, -1.0, 1.0, -1.0])
    model = MarkovRandomField.ising(edges, 1e3 * signs, [0.1, -0.2, 0.3, 0.0])
    engine = make(model, kernel, num_chains=4, estimator=estimator)
    engine.set_states(np.array([[0, 0, 1, 1], [1, 1, 0, 0], [0, 1, 0, 1], [1, 1, 1, 1]]))
    engine.sweep(300, collect=True)
    states, sums = engine.get_states(), engine.take_sums()
    assert np.isfinite(sums).all()
    assert (sums >= 0).all()
    assert set(states.ravel().tolist()) <= {0, 1}
    # No frustration: both ground states hold for ever, and the other chains have fallen into one of them.
    assert states[:2].tolist() == [[0, 0, 1, 1], [1, 1, 0, 0]]
    assert all(row in ([0, 0, 1, 1], [1, 1, 0, 0]) for row in states.tolist())


def colouring_model(colours: int) -> MarkovRandomField:
    """Proper colourings of a cycle of five with a tail, some colours preferred."""
    edges = [(0, 1), (1, 2), (2, 3), (3, 4), (0, 4), (4, 5)]
    table = np.where(np.eye(colours, dtype=bool), -np.inf, 0.0)
    unary = np.random.default_rng(4).normal(size=(6, colours))
    return MarkovRandomField.from_tables(unary, edges, [table] * len(edges))


def hard_core() -> MarkovRandomField:
    """No two neighbours of a cycle of six are both 1."""
    edges = [(i, (i + 1) % 6) for i in range(6)]
    return MarkovRandomField.from_tables(
        np.random.default_rng(4).normal(size=(6, 2)), edges, [np.array([[0.0, 0.0], [0.0, -np.inf]])] * 6
    )


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("kernel", [k for k in KERNELS if k != "field"])
def test_forbidden_pairs_are_never_visited(kernel, estimator):
    model = hard_core() if kernel == "four" else colouring_model(4)
    start = draw_exact(model, num_draws=20, seed=1)
    engine = make(model, kernel, num_chains=20, estimator=estimator)
    engine.set_states(start)
    for _ in range(60):
        engine.sweep(1, collect=True)
        assert (model.log_weight(engine.get_states()) > -np.inf).all()
    sums = engine.take_sums()
    assert np.isfinite(sums).all()
    assert (sums >= 0).all()


def test_forbidden_starts_are_left_in_one_sweep():
    model = colouring_model(4)
    for kernel in ("table", "product"):
        engine = make(model, kernel, num_chains=16)
        engine.set_states(np.zeros((16, 6), dtype=int))
        engine.sweep(1, collect=False)
        assert (model.log_weight(engine.get_states()) > -np.inf).all()


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


# -- hard models that single updates cannot cover -------------------------------------------------------------------


@pytest.mark.parametrize("seed", strategies.seeds(30, quick=10))
def test_groups_of_allowed_pairs_match_a_search(seed):
    rng = np.random.default_rng(seed)
    allowed = rng.random((rng.integers(1, 6), rng.integers(1, 6))) < 0.35
    cells = {(int(r), int(c)) for r, c in np.argwhere(allowed)}
    groups = 0
    while cells:
        groups += 1
        waiting = [cells.pop()]
        while waiting:
            r, c = waiting.pop()
            near = {cell for cell in cells if cell[0] == r or cell[1] == c}
            cells -= near
            waiting += near
    assert conditionals._num_groups(allowed) == groups


def test_an_edge_that_no_single_update_crosses_is_refused():
    apart = np.array([[0.0, -np.inf, -np.inf], [0.0, 0.0, -np.inf], [-np.inf, -np.inf, 0.0]])
    joined = np.array([[0.0, -np.inf, -np.inf], [0.0, 0.0, -np.inf], [-np.inf, 0.0, 0.0]])
    for table, refused in ((apart, True), (joined, False)):
        model = MarkovRandomField.from_tables(np.zeros((3, 3)), [(0, 1), (1, 2)], [np.zeros((3, 3)), table])
        if refused:
            with pytest.raises(UnfitMethodError, match=r"edge \(1, 2\) split its states into 2 groups"):
                check_conditionals(model)
        else:
            check_conditionals(model)
