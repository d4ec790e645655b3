"""The most probable states of some variables, beside the whole table of small models."""

from __future__ import annotations

import numpy as np
import pytest

from fastmix import BayesianNetwork, MarkovRandomField, most_probable
from fastmix.errors import ImpossibleEvidenceError, ModelError, ResourceError
from fastmix.exact.buckets import Table, bucket_order, eliminate
from fastmix.instances import ising_grid
from oracle.networks import given_row, joint_of


def random_network(rng: np.random.Generator, n: int) -> BayesianNetwork:
    """Tables with zeros; parents have smaller numbers."""
    counts = rng.integers(1, 4, n)
    parents = [sorted(rng.choice(i, int(rng.integers(0, min(i, 3) + 1)), replace=False).tolist()) for i in range(n)]
    tables = []
    for i in range(n):
        table = rng.random([*counts[parents[i]], counts[i]]) ** 3
        table[rng.random(table.shape) < 0.2] = 0.0
        table[..., 0] += 0.1
        tables.append(table / table.sum(axis=-1, keepdims=True))
    states = [[f"s{k}" for k in range(count)] for count in counts]
    return BayesianNetwork([f"v{i}" for i in range(n)], states, parents, tables)


@pytest.mark.parametrize("method", ["exact", "search"])
def test_random_networks_against_the_whole_table(method: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(250):
        network = random_network(rng, int(rng.integers(1, 7)))
        n = network.num_variables
        wanted = rng.permutation(n)[: int(rng.integers(1, n + 1))].tolist()
        row = np.full(n, -1)
        evidence = {}
        if rng.random() < 0.5:
            v = int(rng.integers(n))
            row[v] = int(network.sample(1, seed=int(rng.integers(1000)))[0, v])
            evidence[v] = int(row[v])
        table = given_row(joint_of(network), row)
        others = tuple(v for v in range(n) if v not in wanted)
        summed = table.sum(axis=others, keepdims=True)
        result = most_probable(network.to_model(), variables=wanted, evidence=evidence, method=method, seed=0)
        assert result.exact
        assert result.log_weight == pytest.approx(np.log(summed.max()), abs=1e-9)
        place = tuple(int(state) if v in wanted else 0 for v, state in enumerate(result.states))
        assert summed[place] == pytest.approx(summed.max())
        assert all(result.states[v] == -1 for v in others)


def test_it_is_not_the_most_probable_configuration() -> None:
    """One state of a holds most of the mass, another one the heaviest configuration."""
    tables = [[0.4, 0.6], [[1.0, 0.0, 0.0], [0.4, 0.3, 0.3]]]
    network = BayesianNetwork(["a", "b"], [["x", "y"], ["p", "q", "r"]], [[], [0]], tables)
    model = network.to_model()
    assert most_probable(model).named_states == ["x", "p"]
    result = most_probable(model, variables=["a"])
    assert result.named_states == ["y", ""]
    assert result.log_weight == pytest.approx(np.log(0.6))
    assert result.columns() == {"variable": ["a"], "state": ["y"], "number": [1]}
    assert result.to_dict()["variables"] == [0]


def test_a_bound_holds_where_tables_do_not_fit() -> None:
    """Every other node of a grid: the order that this needs is too wide, and the bound must still hold."""
    model = ising_grid(4, 5, coupling_max=1.5, seed=3)
    wanted = list(range(0, 20, 2))
    exact = most_probable(model, variables=wanted, method="exact")
    search = most_probable(model, variables=wanted, method="search", time_limit=2.0, seed=1)
    assert search.log_weight <= exact.log_weight + 1e-9
    assert search.upper_bound >= exact.log_weight - 1e-9
    narrow = most_probable(model, variables=wanted, memory_limit=6000.0, time_limit=2.0, seed=1)
    assert narrow.method == "search"
    assert narrow.log_weight <= exact.log_weight + 1e-9
    assert narrow.upper_bound >= exact.log_weight - 1e-9
    with pytest.raises(ResourceError, match="memory_limit"):
        most_probable(model, variables=wanted, memory_limit=6000.0, method="exact")


def test_split_products_bound_from_above() -> None:
    rng = np.random.default_rng(4)
    for _ in range(100):
        model = MarkovRandomField.from_tables(
            rng.normal(size=(5, 2)), [(i, j) for i in range(5) for j in range(i)], rng.normal(size=(10, 2, 2))
        )
        tables = [Table(tuple(scope), values) for scope, values in model.terms()]
        order = bucket_order([table.scope for table in tables], [2] * 5, range(5))
        values = []
        for limit in (4.0, 8.0, np.inf):
            left, constant, whole = eliminate(tables, order, frozenset({1, 3}), num_states=[2] * 5, limit=limit)
            assert not left
            assert whole == (limit == np.inf)
            values.append(constant)
        exact = most_probable(model, variables=[1, 3], method="exact").log_weight
        assert values[0] >= values[2] - 1e-9
        assert values[1] >= values[2] - 1e-9
        assert values[2] >= exact - 1e-9


def test_refused() -> None:
    model = ising_grid(2, 2, coupling_max=1.0, seed=0)
    with pytest.raises(ModelError, match=r"^variables"):
        most_probable(model, variables=[0, 0])
    with pytest.raises(ModelError, match="got 7"):
        most_probable(model, variables=[7])
    with pytest.raises(ValueError, match="method must be"):
        most_probable(model, variables=[0], method="cut")
    network = BayesianNetwork(["a"], [["x", "y"]], [[]], [[1.0, 0.0]])
    with pytest.raises(ImpossibleEvidenceError):
        most_probable(network.to_model(), variables=["a"], evidence={"a": "y"})
    assert most_probable(model, variables=[]).states.tolist() == [-1] * 4
