from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import oracle
import strategies
from fastmix.graphs import complete_edges, grid_edges
from fastmix.model import MarkovRandomField
from fastmix.modes import descents
from fastmix.modes.descent_kernels import descend
from fastmix.modes.descents import find_modes, search_arrays
from fastmix.results import Status
from fastmix.sampling.sample import sample
from fastmix.sampling.starts import dispersed_states, random_states

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
INF = math.inf

# Under 1e-6 false alarms: the normal distribution has less than that beyond 4.9 standard deviations.
NORMAL_QUANTILE = 4.9


def starts_of(model: MarkovRandomField, count: int, seed: int) -> tuple[IntArray, IntArray]:
    return dispersed_states(
        model, count, find_modes(model, rng=np.random.default_rng(seed)), np.random.default_rng(seed)
    )


def has_row(states: IntArray, row: Sequence[int] | IntArray) -> bool:
    return bool((states == np.asarray(row)).all(axis=1).any())


def many_modes(num_pairs: int = 12) -> MarkovRandomField:
    """Pairs of variables that are strongly coupled: ``2 ** num_pairs`` local maxima."""
    return MarkovRandomField.ising([(2 * k, 2 * k + 1) for k in range(num_pairs)], 2.0, 0.01)


def planted(labels: IntArray, num_states: int = 16) -> MarkovRandomField:
    """A first-order transition: random configurations, or all variables at their labels, with the larger weight."""
    n = len(labels)
    edges = complete_edges(n)
    coupling = (n * (math.log(num_states) + 2.0) + 3.0) / len(edges)
    states = np.arange(num_states)
    tables = [coupling * np.outer(states == labels[i], states == labels[j]) for i, j in edges.tolist()]
    return MarkovRandomField.from_tables([-2.0 * (states == label) for label in labels], edges, tables)


# -- local maxima ---------------------------------------------------------------------------------------------------


def assert_local_maximum(model: MarkovRandomField, x: Sequence[int]) -> None:
    """No change of a single variable leads to a larger weight."""
    weight = oracle.log_weight(model, x)
    assert weight > -INF, "a configuration of weight 0"
    for i, count in enumerate(model.num_states.tolist()):
        for state in range(count):
            other = oracle.log_weight(model, [*x[:i], state, *x[i + 1 :]])
            assert other <= weight + 1e-9 * max(1.0, abs(weight)), f"state {state} of variable {i} is better"


def test_local_maxima_can_be_told() -> None:
    model = MarkovRandomField.ising([(0, 1), (1, 2)], 1.0, 0.1)
    assert_local_maximum(model, [1, 1, 1])
    assert_local_maximum(model, [0, 0, 0])
    with pytest.raises(AssertionError, match="state 1 of variable 0 "):
        assert_local_maximum(model, [0, 1, 1])


@given(model=strategies.models(max_variables=5), seed=st.integers(0, 2**32 - 1), count=st.sampled_from([16, 2, 1, 0]))
def test_modes_of_tiny_models(model: MarkovRandomField, seed: int, count: int) -> None:
    modes = find_modes(model, rng=np.random.default_rng(seed), count=count)
    assert modes.dtype == np.int64
    assert modes.shape[1:] == (model.num_variables,)
    assert len(modes) <= count
    assert len(np.unique(modes, axis=0)) == len(modes)
    if not model.num_edges:
        assert not len(modes)
    elif count and not (model.log_pairwise == -INF).any():
        assert len(modes)
    for x in modes.tolist():
        assert_local_maximum(model, x)
    if len(modes):
        weights = [oracle.log_weight(model, x) for x in modes.tolist()]
        assert weights[0] >= max(weights) - 1e-9 * max(1.0, abs(weights[0]))
    np.testing.assert_array_equal(find_modes(model, rng=np.random.default_rng(seed), count=count), modes)


@pytest.mark.parametrize("forbidden", [0.0, 0.3])
def test_the_most_probable_configuration_of_small_models_is_the_first(forbidden: float) -> None:
    found = 0
    for seed in range(100):
        model = oracle.random_model(np.random.default_rng(seed), 6, 3, 0.6, 1.0, forbidden)
        modes = find_modes(model, rng=np.random.default_rng(seed))
        best = max(oracle.log_weights(model))
        found += len(modes) > 0 and oracle.log_weight(model, modes[0].tolist()) >= best - 1e-9
    assert found >= 95


def test_modes_are_far_from_each_other() -> None:
    modes = find_modes(many_modes(), rng=np.random.default_rng(0))
    assert modes.shape == (16, 24)
    assert modes[0].tolist() == [1] * 24
    assert modes[1].tolist() == [0] * 24
    distances = (modes[:, None, :] != modes[None, :, :]).sum(axis=2)
    for k in range(1, 16):
        nearest = distances[k:, :k].min(axis=1)  # of each to those before
        assert nearest[0] == nearest.max()


def test_modes_depend_on_the_seed_alone() -> None:
    model = many_modes()
    np.testing.assert_array_equal(
        find_modes(model, rng=np.random.default_rng(3)), find_modes(model, rng=np.random.default_rng(3))
    )
    assert not np.array_equal(
        find_modes(model, rng=np.random.default_rng(3)), find_modes(model, rng=np.random.default_rng(4))
    )


def test_large_models_are_searched_less(monkeypatch: pytest.MonkeyPatch) -> None:
    model = many_modes()
    entries = len(model.log_unary) + 2 * len(model.log_pairwise)
    for most in (0, 1, 2, 5, 11):
        monkeypatch.setattr(descents, "ENTRIES_PER_SECOND", 10.0 * entries * (most + 0.5))
        modes = find_modes(model, rng=np.random.default_rng(0))
        # And one more, the opposite of the best.
        assert len(modes) <= (most + 1 if most else 0)
        assert bool(len(modes)) == bool(most)
        assert all(has_row(find_modes(model, rng=np.random.default_rng(0)), x) for x in modes)


# -- ordered phases -------------------------------------------------------------------------------------------------

GRAPHS = {"grid": (grid_edges(6, 6), 0.5), "complete": (complete_edges(24), 0.08), "ladder": (grid_edges(2, 10), 1.0)}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("field", [0.0, 0.1])
@pytest.mark.parametrize("name", GRAPHS)
def test_both_ordered_configurations_of_attractive_models(name: str, field: float, seed: int) -> None:
    edges, coupling = GRAPHS[name]
    n = int(edges.max()) + 1
    fields = field * np.random.default_rng(seed).uniform(-1.0, 1.0, n)
    modes = find_modes(MarkovRandomField.ising(edges, coupling, fields), rng=np.random.default_rng(seed))
    assert has_row(modes, [0] * n)
    assert has_row(modes, [1] * n)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("name", "field"), [("grid", 0.02), ("grid", -0.3), ("complete", 0.0), ("ladder", 0.1)])
def test_both_ordered_configurations_behind_random_flips(name: str, field: float, seed: int) -> None:
    # The model of Mattis: no state is special to all variables, so that no constant start leads there.
    edges, coupling = GRAPHS[name]
    n = int(edges.max()) + 1
    flips = np.random.default_rng(seed).choice([-1, 1], n)
    couplings = coupling * flips[edges[:, 0]] * flips[edges[:, 1]]
    modes = find_modes(MarkovRandomField.ising(edges, couplings, field * flips), rng=np.random.default_rng(seed))
    ordered = (flips + 1) // 2
    assert has_row(modes, ordered)
    assert has_row(modes, 1 - ordered)
    if field:
        assert modes[0].tolist() == (ordered if field > 0.0 else 1 - ordered).tolist()


def test_ordered_configurations_of_potts_models() -> None:
    modes = find_modes(MarkovRandomField.potts(grid_edges(5, 5), 1.5, 4), rng=np.random.default_rng(0))
    for state in range(4):
        assert has_row(modes, [state] * 25)


@pytest.mark.parametrize(("num_variables", "num_states"), [(24, 16), (40, 8), (12, 30)])
def test_planted_configurations_are_found(num_variables: int, num_states: int) -> None:
    by_chance = 0
    for seed in range(10):
        labels = np.random.default_rng(seed).integers(num_states, size=num_variables)
        model = planted(labels, num_states)
        assert find_modes(model, rng=np.random.default_rng(seed))[0].tolist() == labels.tolist()
        found = random_states(model, 16, np.random.default_rng([seed, 1]))
        descend(found, *search_arrays(model), 100)
        by_chance += has_row(found, labels)
    assert by_chance <= 7  # mostly, descents from random configurations would not have found it


def test_two_phases_that_share_states() -> None:
    # One half of the variables orders by itself, and descents find that. The other half joins it only together: beside
    # the ordered half alone (6 for its label, 9 against it) nobody does, nor without that half (7 for, 9 against), so
    # that it is found with all states of all variables free, and not without those of the first phase.
    for seed in range(10):
        labels = np.random.default_rng(seed).integers(12, size=16)
        states = np.arange(12)
        edges = complete_edges(16)
        couplings = np.where((edges[:, 0] < 8) & (edges[:, 1] >= 8), 0.75, 1.0)
        tables = [
            c * np.outer(states == labels[i], states == labels[j])
            for c, (i, j) in zip(couplings, edges.tolist(), strict=True)
        ]
        unaries = [(0.0 if i < 8 else -9.0) * (states == label) for i, label in enumerate(labels)]
        modes = find_modes(MarkovRandomField.from_tables(unaries, edges, tables), rng=np.random.default_rng(seed))
        assert modes[0].tolist() == labels.tolist()
        assert (modes[1:, :8] == labels[:8]).all(axis=1).any()


def planted_marginal(num_variables: int, num_states: int = 16) -> float:
    """P(x_i = label) in :func:`planted`, from the number k of variables at their labels."""
    n = num_variables
    coupling = (n * (math.log(num_states) + 2.0) + 3.0) / (n * (n - 1) / 2)
    logs = [
        math.log(math.comb(n, k)) + (n - k) * math.log(num_states - 1) - 2.0 * k + coupling * k * (k - 1) / 2
        for k in range(n + 1)
    ]
    total = oracle.log_sum_exp(logs)
    return math.fsum(k / n * math.exp(w - total) for k, w in enumerate(logs))


@pytest.mark.parametrize("num_chains", [1, 2, 4, 16, pytest.param(64, marks=pytest.mark.slow)])
def test_first_order_models_are_not_believed(num_chains: int) -> None:
    assert planted_marginal(24) == pytest.approx(0.982, abs=0.001)
    for seed in range(2):
        labels = np.random.default_rng(seed).integers(16, size=24)
        model = planted(labels)
        result = sample(model, num_chains=num_chains, num_sweeps=500, seed=seed)
        error = abs(result.node_marginals[labels[0]] - planted_marginal(24))
        assert result.status == Status.NOT_MIXED or error < 0.1, result.stats["note"]


# -- forbidden pairs and states -------------------------------------------------------------------------------------


def coloring(edges: IntArray, num_states: int) -> MarkovRandomField:
    table = np.where(np.eye(num_states) == 1.0, -INF, 0.0)
    return MarkovRandomField.from_tables([np.zeros(num_states)] * (int(edges.max()) + 1), edges, [table] * len(edges))


def test_modes_of_colorings() -> None:
    modes = find_modes(coloring(complete_edges(3), 3), rng=np.random.default_rng(0))
    assert set(map(tuple, modes.tolist())) <= set(itertools.permutations(range(3)))
    assert len(modes) >= 2
    model = coloring(grid_edges(5, 5), 3)
    modes = find_modes(model, rng=np.random.default_rng(0))
    assert len(modes)
    assert (model.log_weight(modes) == 0.0).all()


def test_descents_go_on_where_every_state_is_forbidden() -> None:
    # Graphs of 20 variables that 3 colors are enough for: a descent to which all forbidden states are the same would
    # stay where it is, and find a coloring for every second graph.
    found = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        colors = rng.integers(3, size=20)
        edges = np.array([(i, j) for i, j in complete_edges(20).tolist() if colors[i] != colors[j]])
        model = coloring(edges[np.sort(rng.choice(len(edges), 40, replace=False))], 3)
        modes = find_modes(model, rng=np.random.default_rng(seed))
        assert (model.log_weight(modes) == 0.0).all()
        found += len(modes) > 0
    assert found >= 22


def test_no_modes_where_nothing_is_allowed() -> None:
    assert find_modes(coloring(complete_edges(4), 3), rng=np.random.default_rng(0)).shape == (0, 4)
    states, places = starts_of(coloring(complete_edges(4), 3), 8, 0)
    assert states.shape == (8, 4)
    assert places.shape == (0,)


def test_descents_leave_forbidden_configurations() -> None:
    # The best state of the unary of each is forbidden beside that of the other, at any size of the log-potentials.
    for scale in (1.0, 1e3):
        table = [[0.0, 0.0], [0.0, -INF]]
        model = MarkovRandomField.from_tables([[0.0, scale], [0.0, 0.9 * scale]], [(0, 1)], [table])
        assert find_modes(model, rng=np.random.default_rng(0)).tolist() == [[1, 0], [0, 1]]


LOPSIDED = MarkovRandomField.from_tables(
    [[-INF, 0.0, -INF, 1.0], [0.0], [5.0, -3.0], [-INF, 0.0], [0.0, 0.0, -INF], [0.0, 9.0, -9.0, -INF, -INF]], [], []
)


def assert_uniform(states: IntArray, model: MarkovRandomField) -> None:
    """No state that a unary forbids, the others equally often: each within 4.9 standard deviations."""
    count = len(states)
    assert states.shape == (count, model.num_variables)
    for i, vector in enumerate(oracle.unary_vectors(model)):
        allowed = sum(value > -INF for value in vector)
        seen = np.bincount(states[:, i], minlength=len(vector))
        assert len(seen) == len(vector), f"variable {i} has a state that does not exist"
        for state, value in enumerate(vector):
            p = 0.0 if value == -INF else 1.0 / allowed
            slack = NORMAL_QUANTILE * math.sqrt(p * (1.0 - p) * count)
            assert abs(seen[state] - p * count) <= slack, f"state {state} of variable {i} was drawn {seen[state]} times"


def test_random_states_are_uniform_over_what_is_allowed() -> None:
    states = random_states(LOPSIDED, 20_000, np.random.default_rng(0))
    assert states.dtype == np.int64
    assert_uniform(states, LOPSIDED)
    # Variables are independent of each other.
    a, b = states[:, 0] == 1, states[:, 2] == 1
    assert abs((a & b).sum() - 5000) < NORMAL_QUANTILE * math.sqrt(20_000 * 3 / 16)
    # And what is not uniform is seen.
    other = states.copy()
    other[:1000, 2] = 0
    with pytest.raises(AssertionError, match="variable 2 "):
        assert_uniform(other, LOPSIDED)
    other = states.copy()
    other[0, 4] = 2
    with pytest.raises(AssertionError, match=r"state 2 of variable 4 .* 1 "):
        assert_uniform(other, LOPSIDED)


def test_random_states_of_nothing() -> None:
    rng = np.random.default_rng(0)
    assert random_states(MarkovRandomField.from_tables([], [], []), 3, rng).shape == (3, 0)
    assert random_states(LOPSIDED, 0, rng).shape == (0, 6)


@given(model=strategies.models(max_variables=5), seed=st.integers(0, 2**32 - 1), count=st.integers(1, 40))
def test_starts_of_tiny_models(model: MarkovRandomField, seed: int, count: int) -> None:
    states, places = starts_of(model, count, seed)
    assert states.shape == (count, model.num_variables)
    assert len(places) <= min(16, count // 2)
    for row in states.tolist():
        assert all(vector[state] > -INF for vector, state in zip(oracle.unary_vectors(model), row, strict=True))
    for row in states[places].tolist():
        assert_local_maximum(model, row)


# -- starts of chains -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 16, 31, 32, 33, 64, 1000])
def test_half_of_the_chains_start_at_modes(count: int) -> None:
    model = many_modes()
    states, places = starts_of(model, count, 5)
    assert states.shape == (count, model.num_variables)
    assert len(places) == min(16, count // 2)
    if len(places):
        assert places[0] >= 0
        assert places[-1] < count
        # Evenly spaced, also from the first to the last, round about.
        gaps = np.diff([*places, places[0] + count])
        assert gaps.min() >= 1
        assert np.ptp(gaps) <= 1
    modes = states[places]
    assert len(np.unique(modes, axis=0)) == len(modes)
    assert (modes[:, ::2] == modes[:, 1::2]).all()
    # The others are random: a pair agrees with probability 1/2.
    others = np.delete(states, places, axis=0)
    agreeing = (others[:, ::2] == others[:, 1::2]).sum()
    size = others[:, ::2].size
    assert abs(agreeing - size / 2) <= NORMAL_QUANTILE * math.sqrt(size / 4)
    for again, same in [
        (starts_of(model, count, 5), True),
        (starts_of(model, count, 6), False),
    ]:
        assert np.array_equal(again[0], states) == same
        np.testing.assert_array_equal(again[1], places)


def test_fewer_modes_than_places() -> None:
    model = MarkovRandomField.ising(complete_edges(6), 1.0)  # two modes
    states, places = starts_of(model, 16, 0)
    assert places.tolist() == [4, 12]
    assert sorted(states[places].tolist()) == [[0] * 6, [1] * 6]
