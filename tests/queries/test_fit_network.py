"""Networks fitted to data, beside counting and expectation maximization over all configurations."""

from __future__ import annotations

import itertools
import warnings
from dataclasses import replace

import numpy as np
import pytest

import fastmix
from fastmix import BayesianNetwork, fit_network
from fastmix.errors import ModelError, ResourceError
from fastmix.learning import read_data
from oracle import networks as oracle


def random_network(rng: np.random.Generator, n: int) -> BayesianNetwork:
    """Positive tables; parents have smaller numbers."""
    counts = rng.integers(2, 4, n)
    parents = [sorted(rng.choice(i, int(rng.integers(0, min(i, 2) + 1)), replace=False).tolist()) for i in range(n)]
    tables = [rng.dirichlet(np.ones(counts[i]), size=tuple(counts[parents[i]])) for i in range(n)]
    states = [[f"s{k}" for k in range(count)] for count in counts]
    return BayesianNetwork([f"v{i}" for i in range(n)], states, parents, tables)


def with_gaps(rng: np.random.Generator, rows: np.ndarray, share: float) -> np.ndarray:
    return np.where(rng.random(rows.shape) < share, -1, rows)


def test_complete_data_against_counting() -> None:
    rng = np.random.default_rng(0)
    for _ in range(100):
        network = random_network(rng, int(rng.integers(1, 5)))
        rows = network.sample(int(rng.integers(1, 30)), seed=int(rng.integers(100)))
        pseudo_count = float(rng.choice([0.0, 0.5, 1.0]))
        fit = fit_network(rows, structure=network, pseudo_count=pseudo_count)
        counts, _ = oracle.expected_counts(network, rows)
        for ours, expected in zip(fit.network.tables, oracle.next_tables(counts, pseudo_count), strict=True):
            np.testing.assert_allclose(ours, expected, atol=1e-12)
        _, total = oracle.expected_counts(fit.network, rows)
        assert fit.log_likelihood == pytest.approx(total / len(rows))
        assert fit.status == "ok"
        assert fit.stats["num_iterations"] == 0


def test_each_iteration_against_all_configurations() -> None:
    """From the tables of a given network: the first iterations, the likelihoods, and an objective that never falls."""
    rng = np.random.default_rng(1)
    for _ in range(100):
        network = random_network(rng, int(rng.integers(2, 5)))
        rows = with_gaps(rng, network.sample(int(rng.integers(2, 12)), seed=int(rng.integers(100))), 0.3)
        rows[0, 0] = -1
        pseudo_count = float(rng.choice([0.1, 1.0]))
        options = {"structure": network, "start": "network", "pseudo_count": pseudo_count, "tol": 0.0}
        fit = fit_network(rows, max_iter=4, **options)
        current = network
        for entry in fit.history:
            counts, total = oracle.expected_counts(current, rows)
            assert entry["log_likelihood"] == pytest.approx(total / len(rows), abs=1e-10)
            last = current
            current = replace(current, tables=tuple(oracle.next_tables(counts, pseudo_count)))
        for ours, expected in zip(fit.network.tables, last.tables, strict=True):
            np.testing.assert_allclose(ours, expected, atol=1e-10)
        objectives = [entry["objective"] for entry in fit.history]
        assert np.diff(objectives).min(initial=0.0) > -1e-12


def test_data_missing_at_random_lead_back_to_the_tables() -> None:
    network = random_network(np.random.default_rng(2), 4)
    rows = with_gaps(np.random.default_rng(3), network.sample(20_000, seed=1), 0.2)
    fit = fit_network(rows, structure=network, pseudo_count=0.0, seed=0)
    assert fit.status == "ok"
    # About six standard errors of a share from a tenth of the rows at the least.
    for ours, true in zip(fit.network.tables, network.tables, strict=True):
        np.testing.assert_allclose(ours, true, atol=0.1)


def test_a_hidden_variable_explains_what_independence_does_not() -> None:
    """A frame without its column: two symptoms that go together for a reason that nobody saw."""
    pandas = pytest.importorskip("pandas")
    tables = [[0.5, 0.5], *[[[0.9, 0.1], [0.2, 0.8]]] * 3]
    names = ["cause", "a", "b", "c"]
    network = BayesianNetwork(names, [["no", "yes"]] * 4, [[], [0], [0], [0]], tables)
    rows = network.sample(4000, seed=0)
    frame = pandas.DataFrame({name: rows[:, k] for k, name in enumerate(names) if k})
    frame = frame.replace({0: "no", 1: "yes"})
    fit = fit_network(frame, structure=network, seed=0, tol=1e-8, max_iter=2000)
    alone = fit_network(rows[:, 1:], structure={})
    _, truth = oracle.expected_counts(network, np.unique(rows, axis=0))
    assert fit.log_likelihood > alone.log_likelihood + 0.1
    assert fit.num_missing == 4000
    assert np.isfinite(truth)


def test_trees_against_all_spanning_trees() -> None:
    rng = np.random.default_rng(4)
    for _ in range(30):
        n = int(rng.integers(3, 6))
        rows = random_network(rng, n).sample(30, seed=int(rng.integers(100)))
        pairs = {(i, j): oracle.information(rows, i, j) for i, j in itertools.combinations(range(n), 2)}
        fit = fit_network(rows, target=1)
        arcs = [(min(p, i), max(p, i)) for i, of_child in enumerate(fit.network.parents) for p in of_child]
        assert fit.network.parents[1] == ()
        assert sum(pairs[arc] for arc in arcs) == pytest.approx(oracle.largest_tree(range(n), pairs))


def test_tree_augmented_networks_against_all_spanning_trees() -> None:
    rng = np.random.default_rng(5)
    for _ in range(30):
        n = int(rng.integers(3, 6))
        rows = random_network(rng, n).sample(40, seed=int(rng.integers(100)))
        others = [v for v in range(n) if v != 2]
        pairs = {(i, j): oracle.information(rows, i, j, given=2) for i, j in itertools.combinations(others, 2)}
        parents = fit_network(rows, structure="tree-augmented", target=2).network.parents
        assert parents[2] == ()
        assert all(parents[v][0] == 2 and len(parents[v]) <= 2 for v in others)
        arcs = [(min(p, v), max(p, v)) for v in others for p in parents[v][1:]]
        assert sum(pairs[arc] for arc in arcs) == pytest.approx(oracle.largest_tree(others, pairs))


def test_trees_of_rows_with_gaps() -> None:
    rng = np.random.default_rng(6)
    rows = with_gaps(rng, random_network(rng, 4).sample(200, seed=0), 0.2)
    fit = fit_network(rows, seed=1)
    assert sum(map(len, fit.network.parents)) == 3
    assert fit.status == "ok"


def test_names_and_weights() -> None:
    data = read_data([["sun", "dry"], ["rain", "wet"], ["rain", None]], names=["sky", "street"], weights=[1, 2, 1])
    fit = fit_network(data, structure={"street": ["sky"]}, pseudo_count=0.0, seed=0, tol=0.0)
    network = fit.network
    assert network.variable_names == ("sky", "street")
    assert network.tables[0].round(6).tolist() == [0.75, 0.25]  # rain, sun
    assert network.tables[1][0].round(3).tolist() == [0.0, 1.0]
    assert fit.model.network == network
    assert fit.to_frame()["parents"].tolist() == ["", "sky"] if pytest.importorskip("pandas") else True


def test_priors() -> None:
    rows = [[0, 0], [0, 1], [0, 0]]
    spread = fit_network(rows, structure={1: [0]}, equivalent_size=4.0).network
    np.testing.assert_allclose(spread.tables[0], [5 / 7, 2 / 7])
    np.testing.assert_allclose(spread.tables[1], [[3 / 5, 2 / 5], [0.5, 0.5]])
    assert fit_network(rows, structure={1: [0]}, pseudo_count=0.0).network.tables[1][1].tolist() == [0.5, 0.5]


def test_pgmpy_says_the_same() -> None:
    pandas = pytest.importorskip("pandas")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        models = pytest.importorskip("pgmpy.models")
        network = random_network(np.random.default_rng(7), 4)
        rows = network.sample(200, seed=3)
        frame = pandas.DataFrame(rows, columns=list(network.variable_names))
        for v, names in enumerate(network.state_names):
            frame[network.variable_names[v]] = np.array(names, dtype=object)[rows[:, v]]
        arcs = [(f"v{p}", f"v{i}") for i, of_child in enumerate(network.parents) for p in of_child]
        there = models.DiscreteBayesianNetwork(arcs)
        there.add_nodes_from(network.variable_names)
        there.fit(frame)
    fit = fit_network(frame, structure=network, pseudo_count=0.0)
    theirs = fastmix.convert(there, to="network")
    for i, name in enumerate(network.variable_names):
        k = theirs.variable_index(name)
        moved = [theirs.parents[k].index(theirs.variable_index(f"v{p}")) for p in network.parents[i]]
        np.testing.assert_allclose(fit.network.tables[i], theirs.tables[k].transpose(*moved, -1), atol=1e-12)


def test_refused() -> None:
    rows = [[0, 1], [1, 0]]
    network = BayesianNetwork(["a", "b"], [["x", "y"]] * 2, [[], [0]], [[1.0, 0.0], [[0.5, 0.5]] * 2])
    with pytest.raises(ModelError, match=r"^target"):
        fit_network(rows, structure="tree-augmented")
    with pytest.raises(ModelError, match="cycle"):
        fit_network(rows, structure={0: [1], 1: [0]})
    with pytest.raises(ModelError, match=r"^structure"):
        fit_network(rows, structure={0: 1})
    with pytest.raises(ModelError, match=r"^structure"):
        fit_network(rows, start="network")
    with pytest.raises(ModelError, match=r"^data .*\[1, -1\]"):
        fit_network([[0, -1], [1, -1]], structure=network, start="network")
    with pytest.raises(ValueError, match=r"^structure must be"):
        fit_network(rows, structure="k2")
    with pytest.raises(ResourceError, match="memory_limit"):
        fit_network([[0, -1], [1, -1]], structure=network, memory_limit=8.0)


def test_an_iteration_that_ends_early_says_so() -> None:
    rng = np.random.default_rng(8)
    rows = with_gaps(rng, random_network(rng, 4).sample(50, seed=0), 0.3)
    fit = fit_network(rows, structure={1: [0], 2: [0]}, max_iter=2, tol=0.0, seed=0)
    assert fit.status == "not_converged"
    again = fit_network(rows, structure={1: [0], 2: [0]}, max_iter=2, tol=0.0, seed=0)
    assert all(map(np.array_equal, fit.network.tables, again.network.tables))
