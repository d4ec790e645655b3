from __future__ import annotations

import copy
import itertools
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from fastmix import MarkovRandomField, ancestral_sample, certify, convert, draw_exact, infer, sample
from fastmix.errors import ModelError, ResourceError
from fastmix.io import read_model
from fastmix.io.bif import write_bif
from fastmix.model.network import BayesianNetwork, normalize_rows

STATES = [["no", "yes"], ["low", "mid", "high"], ["x", "y"]]
PARENTS = [[], [0], [1, 0]]
TABLES = [
    [0.3, 0.7],
    [[0.2, 0.5, 0.3], [0.0, 0.9, 0.1]],
    [[[0.1, 0.9], [0.6, 0.4]], [[1.0, 0.0], [0.25, 0.75]], [[0.0, 1.0], [0.5, 0.5]]],
]


def small(**changes: object) -> BayesianNetwork:
    arguments = {"variable_names": ["a", "b", "c"], "state_names": STATES, "parents": PARENTS, "tables": TABLES}
    return BayesianNetwork(**(arguments | changes))


def random_network(rng: np.random.Generator, n: int) -> BayesianNetwork:
    """Tables with zeros; the numbers of the variables say nothing about their order."""
    label = rng.permutation(n)
    counts = rng.integers(1, 4, n)
    parents: list[list[int]] = [[] for _ in range(n)]
    tables: list[np.ndarray] = [np.zeros(0)] * n
    for k in range(n):
        i = label[k]
        parents[i] = rng.permutation(label[:k])[: rng.integers(0, 4)].tolist()
        table = rng.random([*counts[parents[i]], counts[i]]) * (rng.random([*counts[parents[i]], counts[i]]) < 0.7)
        table[..., rng.integers(counts[i])] += 0.1
        tables[i] = table / table.sum(axis=-1, keepdims=True)
    states = [[f"s{k}" for k in range(count)] for count in counts]
    return BayesianNetwork([f"v{i}" for i in range(n)], states, parents, tables)


def probability(network: BayesianNetwork, x: tuple[int, ...]) -> float:
    result = 1.0
    for i, parents in enumerate(network.parents):
        result *= float(network.tables[i][(*(x[p] for p in parents), x[i])])
    return result


def configurations(network: BayesianNetwork) -> list[tuple[int, ...]]:
    return list(itertools.product(*map(range, network.num_states)))


class TestConstruction:
    def test_attributes(self):
        network = small(name="net")
        assert network.num_variables == 3
        assert network.num_states.tolist() == [2, 3, 2]
        assert network.parents == ((), (0,), (1, 0))
        assert network.num_entries == 2 + 6 + 12
        assert network.order == (0, 1, 2)
        assert repr(network) == "BayesianNetwork(3 variables, 3 arcs, 20 table entries)"

    def test_arrays_are_copied_and_locked(self):
        table = np.array([0.5, 0.5])
        network = BayesianNetwork(["a"], [["x", "y"]], [[]], [table])
        table[0] = 7
        assert network.tables[0].tolist() == [0.5, 0.5]
        for array in (network.tables[0], network.num_states, pickle.loads(pickle.dumps(network)).tables[0]):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1

    def test_equality(self):
        assert small() == small()
        assert hash(small()) == hash(small())
        assert small() == pickle.loads(pickle.dumps(small()))
        assert small() != small(name="other")
        assert small() != small(tables=[[0.4, 0.6], *TABLES[1:]])
        assert small() != 3

    def test_no_variables(self):
        network = BayesianNetwork([], [], [], [])
        assert network.sample(5, seed=1).shape == (5, 0)
        assert network.to_factors() == ([], [])

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"variable_names": ["a", "b"]}, r"^variable_names .*got 2"),
            ({"variable_names": ["a", "b", "a"]}, r"^variable_names .*got 'a'"),
            ({"variable_names": None}, r"^variable_names .*got None"),
            ({"variable_names": "abc"}, r"^variable_names .*list"),
            ({"state_names": [["no", "no"], *STATES[1:]]}, r"^state_names\[\d\] .*got 'no'"),
            ({"state_names": [[], *STATES[1:]]}, r"^num_states .*from 1"),
            ({"state_names": ["no", *STATES[1:]]}, r"state_names\[0\] must be a list"),
            ({"parents": [[], [0]]}, r"^parents .*got 2"),
            ({"parents": [[], [0], [1, 3]]}, r"^parents\[2\] .*got 3"),
            ({"parents": [[], [0], [1, -1]]}, r"^parents\[2\] .*got -1"),
            ({"parents": [[], [0], [1, 1]]}, r"^parents\[2\] .*once"),
            ({"parents": [[], [0], [1, 2]]}, r"^parents\[2\] .*once"),
            ({"parents": [[1], [0], [1, 0]]}, r"^parents .*cycle.* a -> b -> a"),
            ({"parents": 3}, r"^parents .*list"),
            ({"tables": TABLES[:2]}, r"^tables .*got 2"),
            ({"tables": [[0.5, 0.5, 0.0], *TABLES[1:]]}, r"^tables\[\d\] .*\(2,\).* got \(3,\)"),
            ({"tables": [[0.5, 0.4], *TABLES[1:]]}, r"sum to 1, got \[0.5, 0.4\]"),
            ({"tables": [TABLES[0], [[0.2, 0.5, 0.3], [0.0, 0.9, 0.2]], TABLES[2]]}, r"got .* at \(1,\)"),
            ({"tables": [[1.5, -0.5], *TABLES[1:]]}, r"^tables\[\d\] .*sum to 1"),
            ({"tables": [[math.nan, 1.0], *TABLES[1:]]}, r"^tables\[\d\] .*sum to 1"),
            ({"tables": [[math.inf, 1.0], *TABLES[1:]]}, r"^tables\[\d\] .*sum to 1"),
            ({"tables": [["x", "y"], *TABLES[1:]]}, r"^tables\[\d\] .*numbers"),
        ],
    )
    def test_refused(self, changes, message):
        with pytest.raises(ModelError, match=message):
            small(**changes)

    def test_too_many_parents(self):
        names = [f"v{i}" for i in range(33)]
        tables = [np.ones(1)] * 32 + [np.ones((1,) * 32)]
        with pytest.raises(ModelError, match=r"\b31 .*got 32"):
            BayesianNetwork(names, [["s"]] * 33, [[]] * 32 + [range(32)], tables)

    def test_too_large_a_table(self):
        names = [f"v{i}" for i in range(32)]
        tables: list[object] = [[0.1] * 10] * 31
        with pytest.raises(ResourceError, match=r"'v31'.*use fewer parents"):
            BayesianNetwork(names, [list("0123456789")] * 32, [[]] * 31 + [range(31)], [*tables, [0.0]])


class TestRows:
    def test_rounded_rows_are_normalized(self):
        network = BayesianNetwork(["a"], [["x", "y", "z"]], [[]], [[0.3333, 0.3333, 0.3333]])
        assert network.tables[0].tolist() == pytest.approx([1 / 3] * 3, rel=1e-15)
        with pytest.raises(ModelError, match="sum to 1"):
            BayesianNetwork(["a"], [["x", "y", "z"]], [[]], [[0.3333, 0.3333, 0.3332]])

    @given(st.lists(st.floats(0, 1), min_size=1, max_size=40), st.floats(-9e-5, 9e-5))
    def test_normalizing_again_changes_nothing(self, weights, deviation):
        row = np.array(weights) + 1e-6
        row *= (1 + deviation) / row.sum()
        once, bad = normalize_rows(row[None, :])
        assert bad is None
        assert once.sum() == pytest.approx(1, abs=1e-14)
        again, _ = normalize_rows(once)
        assert np.array_equal(once, again)

    def test_no_negative_zero(self):
        assert not np.signbit(normalize_rows(np.array([[-0.0, 1.0]]))[0]).any()

    def test_the_first_wrong_row(self):
        rows = np.full((5, 2), 0.5)
        rows[3, 0] = rows[4, 0] = 0.7
        assert normalize_rows(rows.reshape(5, 1, 2))[1] == 3


class TestOrder:
    @given(st.integers(0, 10**6))
    def test_parents_come_first(self, seed):
        network = random_network(np.random.default_rng(seed), 8)
        place = {i: k for k, i in enumerate(network.order)}
        assert sorted(place) == list(range(8))
        assert all(place[p] < place[i] for i in range(8) for p in network.parents[i])

    def test_long_chains_need_no_recursion(self):
        n = 5_000  # five times as deep as Python goes
        names, states = [f"v{i}" for i in range(n)], [["s"]] * n
        tables = [np.ones((1, 1))] * n
        order = BayesianNetwork(names, states, [[i + 1] for i in range(n - 1)] + [[]], [*tables[1:], np.ones(1)]).order
        assert order == tuple(range(n))[::-1]
        with pytest.raises(ModelError, match=r"^parents .*cycle.*v") as caught:
            BayesianNetwork(names, states, [[(i + 1) % n] for i in range(n)], tables)
        assert len(str(caught.value)) < 300


class TestFactors:
    @given(st.integers(0, 10**6))
    def test_their_product_is_the_distribution(self, seed):
        network = random_network(np.random.default_rng(seed), 5)
        scopes, log_tables = network.to_factors()
        total = 0.0
        for x in configurations(network):
            log_p = sum(
                float(table[tuple(x[v] for v in scope)]) for scope, table in zip(scopes, log_tables, strict=True)
            )
            assert math.exp(log_p) == pytest.approx(probability(network, x), rel=1e-12)
            total += math.exp(log_p)
        assert total == pytest.approx(1, rel=1e-12)


class TestSampling:
    @given(st.integers(0, 10**6))
    def test_draw_by_draw(self, seed):
        """The same uniforms, one draw and one state at a time."""
        network = random_network(np.random.default_rng(seed), 5)
        draws = network.sample(20, seed=seed)
        rng = np.random.default_rng(seed)
        uniforms = {i: rng.random(20) for i in network.order}
        for k in range(20):
            x = dict.fromkeys(range(5), 0)
            for i in network.order:
                row = network.tables[i][tuple(x[p] for p in network.parents[i])]
                total = 0.0
                for state in np.flatnonzero(row > 0):
                    x[i] = int(state)
                    total += row[state]
                    if uniforms[i][k] < total:
                        break
            assert draws[k].tolist() == list(x.values())

    def test_counts(self):
        network, num_draws = small(), 200_000
        draws = network.sample(num_draws, seed=5)
        expected = {x: probability(network, x) * num_draws for x in configurations(network)}
        counts = dict.fromkeys(expected, 0)
        for x, count in zip(*np.unique(draws, axis=0, return_counts=True), strict=True):
            counts[tuple(x.tolist())] = int(count)
        possible = [x for x in expected if expected[x] > 0]
        assert sum(counts[x] for x in possible) == num_draws
        statistic = sum((counts[x] - expected[x]) ** 2 / expected[x] for x in possible)
        assert chi2.sf(statistic, len(possible) - 1) > 1e-6
        wrong = small(tables=[[0.7, 0.3], *TABLES[1:]])  # which the same test must tell apart
        assert (
            chi2.sf(sum((counts[x] - probability(wrong, x) * num_draws) ** 2 / expected[x] for x in possible), 8) < 1e-6
        )

    def test_rounding_draws_nothing_impossible(self, monkeypatch):
        class Extreme:
            def random(self, count):
                return np.resize([0.0, np.nextafter(1.0, 0.0)], count)

        monkeypatch.setattr(np.random, "default_rng", lambda _: Extreme())
        row = np.array([0.0, *[0.1] * 10, 0.0])  # the sum of these is below 1
        network = BayesianNetwork(["a"], [list("abcdefghijkl")], [[]], [row])
        assert network.sample(2, seed=0)[:, 0].tolist() == [1, 10]

    def test_seed(self):
        network = small()
        assert np.array_equal(network.sample(50, seed=3), network.sample(50, seed=3))
        assert not np.array_equal(network.sample(50, seed=3), network.sample(50, seed=4))
        assert network.sample(50).shape == (50, 3)
        assert network.sample(0, seed=1).shape == (0, 3)

    def test_refused(self):
        with pytest.raises(ValueError, match=r"^num_draws .*-1$"):
            small().sample(-1)
        with pytest.raises(ValueError, match=r"^seed .*-1$"):
            small().sample(1, seed=-1)
        with pytest.raises(ResourceError, match="draw fewer"):
            small().sample(10**15)


def test_where_a_model_is_needed_the_way_to_it_is_named() -> None:
    network = BayesianNetwork(["coin"], [["head", "tail"]], [[]], [[0.25, 0.75]])
    for call in (infer, sample, certify):
        with pytest.raises(TypeError, match=r"^model .*to_model\(\)"):
            call(network)
    with pytest.raises(TypeError, match="from_tables"):
        infer([[0.25, 0.75]])


class TestRemembered:
    """A model made of a network has it, and no other model does."""

    def test_through_files_and_pickles(self, tmp_path):
        network = small(name="net")
        write_bif(network, tmp_path / "net.bif")
        model = read_model(tmp_path / "net.bif")
        assert model.network == network
        assert convert(model, to="network") == network
        assert pickle.loads(pickle.dumps(model)).network == network
        assert copy.copy(model).network == network

    def test_it_changes_no_comparison(self):
        model = small().to_model()
        plain = MarkovRandomField.from_factors(
            [2, 3, 2], zip(*small().to_factors(), strict=True), variable_names=["a", "b", "c"], state_names=STATES
        )
        assert plain.network is None
        assert model == plain
        assert model.content_hash == plain.content_hash
        with pytest.raises(TypeError, match="no Bayesian network"):
            convert(plain, to="network")

    def test_models_made_of_it_have_none(self):
        model = small().to_model()
        derived = [model.condition({0: 1}), model.replace(log_constant=1.0), model.with_parameters(model.parameters)]
        assert [other.network for other in derived] == [None, None, None]


def test_a_frame_of_draws():
    pandas = pytest.importorskip("pandas")
    result = ancestral_sample(small(), num_draws=7, seed=1)
    frame = result.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == ["a", "b", "c"]
    assert frame["b"].tolist() == [STATES[1][state] for state in result.states[:, 1]]
    exact = draw_exact(small().to_model(), num_draws=5, seed=1).to_frame()
    assert exact.shape == (5, 3)
    unnamed = MarkovRandomField.ising([(0, 1)], coupling=0.5)
    assert draw_exact(unnamed, num_draws=4, seed=1).to_frame()["1"].max() <= 1
