from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

import oracle
from fastmix import MarkovRandomField, draw_exact, instances
from fastmix._clock import Clock
from fastmix.chains import cpu, layout
from fastmix.chains.conditionals import check_conditionals
from fastmix.chains.cpu import CpuChains
from fastmix.sampling import cluster_kernels as swendsen_wang_kernels
from fastmix.sampling.tempering import ladder as ladder_module
from fastmix.sampling.tempering.capacity import Capacity
from fastmix.sampling.tempering.ladder import Ladder, TemperingPath, make_path
from fastmix.sampling.tempering.temper import Tempered
from oracle.ladder import NaiveLadder, model_at

FALSE_ALARM = 1e-7  # each test; a few dozen of them


def mixed(seed: int = 3, *, forbidden: bool = False) -> MarkovRandomField:
    """Mixed state counts, a one-state and an isolated variable, one variable of five neighbors."""
    rng = np.random.default_rng(seed)
    counts, pairs = [2, 3, 1, 2, 2, 2, 2], [(0, 1), (0, 3), (1, 2), (1, 3), (1, 4), (1, 5), (3, 4)]
    tables = [1.2 * rng.normal(size=(counts[i], counts[j])) for i, j in pairs]
    if forbidden:
        tables[0][1, 2] = -np.inf
    return MarkovRandomField.from_tables([rng.normal(size=k) for k in counts], pairs, tables, log_constant=0.7)


def binary(seed: int = 4) -> MarkovRandomField:
    """A square with a diagonal and a tail, asymmetric tables."""
    rng = np.random.default_rng(seed)
    pairs = [(0, 1), (0, 2), (0, 3), (1, 2), (2, 3), (3, 4)]
    tables = [1.2 * rng.normal(size=(2, 2)) for _ in pairs]
    return MarkovRandomField.from_tables([0.7 * rng.normal(size=2) for _ in range(5)], pairs, tables)


def star(seed: int = 5) -> MarkovRandomField:
    """A hub of six neighbors: four at once and the rest one by one."""
    rng = np.random.default_rng(seed)
    pairs = [(0, j) for j in range(1, 7)]
    return MarkovRandomField.ising(pairs, rng.uniform(-1, 1, 6), rng.uniform(-1, 1, 7))


def attractive(seed: int = 6) -> MarkovRandomField:
    rng = np.random.default_rng(seed)
    return MarkovRandomField.ising(
        [(0, 1), (0, 2), (1, 3), (2, 3)], rng.uniform(0.2, 1.2, 4), rng.uniform(-0.8, 0.8, 4)
    )


MODELS = {"mixed": mixed, "binary": binary, "star": star, "attractive": attractive}
POSITIONS = np.array([0.0, 0.2, 0.45, 0.8, 1.0])


def random_states(model: MarkovRandomField, num_rungs: int, num_ladders: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(0, model.num_states, size=(num_rungs, num_ladders, model.num_variables))


def make(path: TemperingPath, positions: np.ndarray, states: np.ndarray, seed: int = 1, **options) -> Ladder:
    options.setdefault("num_threads", 1)
    result = Ladder(path, seed=seed, **options)
    result.set_rungs(positions, states)
    return result


# -- paths ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_split_tables_change_no_weight(name):
    model = MODELS[name]()
    split = make_path(model).model
    oracle.assert_same_weights(model, split)
    for i, j in split.edges.tolist():
        np.testing.assert_allclose(split.table(i, j).sum(axis=0), 0.0, atol=1e-12)
        np.testing.assert_allclose(split.table(i, j).sum(axis=1), 0.0, atol=1e-12)


def test_the_path_does_not_depend_on_how_a_model_is_written():
    model = binary()
    rng = np.random.default_rng(0)
    shift = rng.normal(size=2)
    tables = [model.table(*edge).copy() for edge in model.edges.tolist()]
    unary = [model.unary(i).copy() for i in range(5)]
    tables[0] += shift[:, None]  # edge (0, 1)
    unary[0] -= shift
    other = MarkovRandomField.from_tables(unary, model.edges, tables)
    one, two = make_path(model), make_path(other)
    np.testing.assert_allclose(one.model.log_unary, two.model.log_unary, atol=1e-12)
    np.testing.assert_allclose(one.model.log_pairwise, two.model.log_pairwise, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_paths_lead_from_what_is_known_to_the_model(name):
    model = MODELS[name]()
    path = make_path(model)
    oracle.assert_same_weights(model, model_at(path, 1.0))
    start = model_at(path, 0.0)
    assert not start.log_pairwise.any()
    oracle.assert_log_close(path.log_z, oracle.log_z(start))
    for s in (0.0, 0.3, 0.5, 0.7, 1.0):
        assert np.isfinite(path.coefficients([s])).all()


def test_forbidden_pairs_stay_forbidden_along_the_path():
    model = mixed(forbidden=True)
    path = make_path(model)
    assert path.log_z is None
    for s in (0.0, 0.5, 1.0):
        at = model_at(path, s)
        assert np.array_equal(at.log_pairwise == -np.inf, model.log_pairwise == -np.inf)


# -- no randomness --------------------------------------------------------------------------------------------------


def energies(path: TemperingPath, states: np.ndarray) -> np.ndarray:
    chains = CpuChains(path.model.structure, num_chains=len(states), seed=0)
    chains.load(path.thetas, path.coefficients([1.0]))
    chains.set_states(states)
    return chains.energies()


@pytest.mark.parametrize("name", MODELS)
def test_energies_are_log_weights(name):
    path = make_path(MODELS[name]())
    configurations = np.array(oracle.all_configurations(path.model))
    values = energies(path, configurations)
    for s in (0.0, 0.3, 0.6, 1.0):
        expected = oracle.log_weights(model_at(path, s))
        actual = path.coefficients([s])[0] @ values + path.model.log_constant
        np.testing.assert_allclose(actual, expected, atol=1e-5)  # single precision within


def test_energies_of_many_sites_are_exact_in_double_precision():
    # Terms that single precision holds exactly: nothing is lost when sums of a few join the total.
    n = 3000
    rng = np.random.default_rng(1)
    edges = [(i, i + 1) for i in range(n - 1)]
    model = MarkovRandomField.ising(edges, rng.integers(-8, 9, n - 1) / 4.0, rng.integers(-8, 9, n) / 4.0)
    path = make_path(model)
    x = rng.integers(0, 2, size=(5, n))
    values = energies(path, x)
    np.testing.assert_allclose(values.sum(axis=0), model.log_weight(x), atol=1e-9)


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_rounds_match_the_naive_ladder(name, pairs, monkeypatch):
    monkeypatch.setattr(ladder_module, "PAIRS_EVERY", 3)
    path = make_path(MODELS[name]())
    states = random_states(path.model, len(POSITIONS), 4)
    fast = make(path, POSITIONS, states, pairs=pairs)
    slow = NaiveLadder(path, POSITIONS, states, seed=1)
    moved = False
    for number in range(24):
        fast.advance(1, collect=True)
        slow.round(number)
        if pairs and number % 3 == 2:
            slow.exchange_clusters()
        assert np.array_equal(fast.get_states(), slow.states()), f"round {number}"
        moved |= not np.array_equal(np.sort(slow.replica, axis=0), slow.replica)
    assert moved
    counts = fast.chains.exchanges()
    np.testing.assert_allclose(counts.sums, slow.exchanges, atol=1e-4)
    assert counts.trips.tolist() == slow.trips
    np.testing.assert_allclose(fast.chains.take_sums(), slow.sums, atol=24 * 2.0**-24)


def test_round_trips_are_counted_as_the_naive_ladder_does():
    path = make_path(attractive())
    states = random_states(path.model, 3, 4)
    positions = np.array([0.0, 0.6, 1.0])
    fast, slow = make(path, positions, states), NaiveLadder(path, positions, states, seed=1)
    for number in range(60):
        slow.round(number)
    fast.advance(60, collect=False)
    assert np.array_equal(fast.get_states(), slow.states())
    assert fast.chains.exchanges().trips.tolist() == slow.trips
    assert min(slow.trips) >= 3


def test_forbidden_pairs_match_the_naive_ladder():
    model = mixed(forbidden=True)
    check_conditionals(model)
    path = make_path(model)
    allowed = draw_exact(model, num_draws=10, seed=0).states.reshape(5, 2, -1)
    fast, slow = make(path, POSITIONS, allowed), NaiveLadder(path, POSITIONS, allowed, seed=1)
    for number in range(12):
        slow.round(number)
    fast.advance(12, collect=False)
    assert np.array_equal(fast.get_states(), slow.states())


@pytest.mark.parametrize("name", MODELS)
def test_all_kernels_draw_the_same_states(name, monkeypatch):
    monkeypatch.setattr(ladder_module, "PAIRS_EVERY", 3)
    path = make_path(MODELS[name]())
    states = random_states(path.model, len(POSITIONS), 4)
    runs: list[Any] = [make(path, POSITIONS, states, pairs=True)]
    monkeypatch.setattr(layout, "MAX_TABLE_ENTRIES", 0)  # products, or fields if binary
    runs.append(make(path, POSITIONS, states, pairs=True))
    monkeypatch.setattr(layout, "MAX_VALUES", 0)  # logarithms
    monkeypatch.setattr(cpu, "MIN_SIDE_BY_SIDE", 1000)
    runs.append(make(path, POSITIONS, states, pairs=True))
    binary = (path.model.num_states == 2).all()
    assert [run.chains.kernel for run in runs] == ["table", "field" if binary else "product", "product"]
    for run in runs:
        run.advance(20, collect=True)
    sums = [run.chains.take_sums() for run in runs]
    for k in (1, 2):
        assert np.array_equal(runs[0].get_states(), runs[k].get_states())
        np.testing.assert_allclose(runs[0].chains.exchanges().sums, runs[k].chains.exchanges().sums, atol=1e-9)
        np.testing.assert_allclose(sums[0], sums[k], atol=20 * 2.0**-23)


def test_sums_do_not_overflow():
    model = MarkovRandomField.from_tables([[0.0, 30.0], [30.0, 0.0]], [(0, 1)], [[[0.1, 0.0], [0.0, 0.1]]])
    path = make_path(model)
    run = make(path, np.array([0.0, 1.0]), random_states(model, 2, 2))
    run.advance(700, collect=True)
    sums = run.chains.take_sums()
    np.testing.assert_allclose(sums[:, 0], [0.0, 700.0, 700.0, 0.0], atol=1e-3)
    assert not run.chains.take_sums().any()


@pytest.mark.usefixtures("little_work_by_threads")
@pytest.mark.parametrize("pairs", [False, True])
def test_the_same_bits_for_any_number_of_threads(pairs):
    path = make_path(attractive())
    states = random_states(path.model, 4, 6)
    results = []
    for num_threads in (1, 2, 3, 16):
        run = make(path, POSITIONS[1:], states, pairs=pairs, num_threads=num_threads)
        run.advance(110, collect=True)
        results.append(
            (run.get_states(), run.chains.take_sums(), run.chains.exchanges().sums, run.chains.exchanges().trips)
        )
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert np.array_equal(a, b)


# -- the distribution at every rung, and of neighboring rungs together ---------------------------------------------


def exact_start(path: TemperingPath, positions: np.ndarray, num_ladders: int, seed: int) -> np.ndarray:
    return np.stack(
        [draw_exact(model_at(path, s), num_draws=num_ladders, seed=seed + k) for k, s in enumerate(positions.tolist())]
    )


def p_values(run: Ladder) -> list[float]:
    """Chi-square tests of the configurations at every rung, and of those at neighboring rungs being independent."""
    path, states = run.path, run.get_states().astype(np.int64)
    shape = tuple(path.model.num_states.tolist())
    size = math.prod(shape)
    numbers = np.stack([np.ravel_multi_index(tuple(x.T), shape) for x in states])
    laws = [oracle.joint(model_at(path, s)).reshape(-1) for s in run.positions.tolist()]
    result = [chi_square(np.bincount(row, minlength=size), law) for row, law in zip(numbers, laws, strict=True)]
    for k in range(len(laws) - 1):
        both = np.outer(laws[k], laws[k + 1]).reshape(-1)
        result.append(chi_square(np.bincount(numbers[k] * size + numbers[k + 1], minlength=size**2), both))
    return result


def chi_square(counts: np.ndarray, law: np.ndarray) -> float:
    """P-value of counts, with cells of small expectation put together."""
    expected = law * counts.sum()
    order = np.argsort(expected)
    groups = np.floor(np.cumsum(expected[order]) / 20.0).astype(int)  # at least 20 in each but the last
    groups = np.minimum(groups, max(0, groups[-1] - 1))
    observed, expected = np.bincount(groups, counts[order]), np.bincount(groups, expected[order])
    kept = expected > 0
    statistic = float(np.sum((observed[kept] - expected[kept]) ** 2 / expected[kept]))
    return float(stats.chi2.sf(statistic, max(1, kept.sum() - 1)))


def small() -> MarkovRandomField:
    """Three variables, one of three states; strong enough that exchanges are rejected."""
    rng = np.random.default_rng(8)
    counts, pairs = [2, 3, 2], [(0, 1), (1, 2), (0, 2)]
    tables = [2.0 * rng.normal(size=(counts[i], counts[j])) for i, j in pairs]
    return MarkovRandomField.from_tables([rng.normal(size=k) for k in counts], pairs, tables)


RUNGS = np.array([0.0, 0.4, 0.7, 1.0])


@pytest.mark.parametrize("pairs", [False, True])
def test_exact_draws_stay_exact_at_every_rung(pairs, monkeypatch):
    monkeypatch.setattr(ladder_module, "PAIRS_EVERY", 1)
    path = make_path(small())
    states = exact_start(path, RUNGS, 40_000, seed=1)
    run = make(path, RUNGS, states, pairs=pairs)
    run.advance(4, collect=False)
    rejection = run.chains.exchanges().rejection
    assert ((rejection > 0.02) & (rejection < 0.98)).all()
    assert min(p_values(run)) > FALSE_ALARM
    assert not np.array_equal(run.get_states(), states)


def wrong_sign(run: Any, monkeypatch) -> None:
    run.chains._gaps = -run.chains._gaps


def always(run: Any, monkeypatch) -> None:
    run.chains._gaps = 0.0 * run.chains._gaps


def shifted_rungs(run: Any, monkeypatch) -> None:
    for block in run.chains.blocks:
        block.rung[:] = np.maximum(block.rung.astype(int) - 1, 0)


def single_sites(run: Ladder, monkeypatch) -> None:
    """Exchange a variable without the rest of its cluster."""

    def swap(x, num_ladders, *_):
        for k in range(x.shape[1] // num_ladders):
            even = slice(k * num_ladders, (k + 1) * num_ladders, 2)
            odd = slice(k * num_ladders + 1, (k + 1) * num_ladders, 2)
            x[0, even], x[0, odd] = x[0, odd].copy(), x[0, even].copy()

    monkeypatch.setattr(swendsen_wang_kernels, "exchange_clusters", swap)


@pytest.mark.parametrize("sabotage", [wrong_sign, always, shifted_rungs, single_sites])
def test_sabotage_is_noticed(sabotage, monkeypatch):
    monkeypatch.setattr(ladder_module, "PAIRS_EVERY", 1)
    path = make_path(small())
    run = make(path, RUNGS, exact_start(path, RUNGS, 40_000, seed=1), pairs=True)
    sabotage(run, monkeypatch)
    run.advance(4, collect=False)
    assert min(p_values(run)) < FALSE_ALARM


# -- cluster moves ----------------------------------------------------------------------------------------------------


def test_clusters_are_found():
    # Two ladders that differ in {0, 1} and in {3}: two clusters of sizes 2 and 1.
    path = make_path(MarkovRandomField.ising([(0, 1), (1, 2), (2, 3)], 0.5))
    states = np.zeros((2, 2, 4), dtype=np.uint8)
    states[:, 1, [0, 1, 3]] = 1
    run: Any = make(path, np.array([0.0, 1.0]), states, pairs=True)
    run.chains.on_lanes(run._exchange_clusters)
    for after in run.get_states():
        assert np.array_equal(np.sort(after, axis=0), states[1])
        assert after[0, 0] == after[0, 1]


# -- without the compiler -------------------------------------------------------------------------------------------


def plain_results() -> list:
    results = []
    for model in (mixed(), binary()):
        path = make_path(model)
        run = make(path, POSITIONS, random_states(model, 5, 2), pairs=True)
        run.advance(21, collect=True)
        counts = run.chains.exchanges()
        results.append([run.get_states().tolist(), run.chains.take_sums().tolist(), counts.sums.tolist()])
    return results


# -- what there is time for -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sweep_seconds", [0.0, 1e-6, 1.0])
def test_ladders_that_time_has_no_room_for_have_two_ensembles(sweep_seconds: float) -> None:
    model = instances.ising_grid(200, 200, coupling_max=0.3, seed=0)
    ladder = Ladder(make_path(model), seed=0, num_threads=1)
    for clock in (Clock(), Clock(10.0)):
        capacity = Capacity(ladder, Tempered(num_replicas=32), clock)
        in_haste = clock.asked is not None and sweep_seconds == 1.0
        assert capacity.ensembles_of(32, 64, sweep_seconds) == (2 if in_haste else 4)
        chosen = Capacity(ladder, Tempered(num_replicas=32, num_ensembles=5), clock)
        assert chosen.ensembles_of(32, 64, sweep_seconds) == 5
