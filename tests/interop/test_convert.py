"""Models to neighboring packages and back: the same distribution, the same names."""

from __future__ import annotations

import sys
import types
import warnings
from typing import Any

import numpy as np
import pytest

import fastmix
import strategies
from fastmix import MarkovRandomField, convert
from fastmix.errors import ModelError
from fastmix.instances import ising_grid
from fastmix.interop import dimod as our_dimod
from fastmix.interop.arviz import to_arviz
from fastmix.model.network import BayesianNetwork


def imported(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name)


def some_model(rng: np.random.Generator) -> MarkovRandomField:
    """Unequal state counts, a factor of three, a zero, names."""
    counts = [2, 3, 4, 2]
    tables = [((0, 1), (2, 3)), ((2, 0), (4, 2)), ((1, 2, 3), (3, 4, 2)), ((3,), (2,))]
    factors = [(scope, rng.normal(size=shape)) for scope, shape in tables]
    factors[0][1][1, 2] = -np.inf
    names = [[f"s{i}{k}" for k in range(count)] for i, count in enumerate(counts)]
    return MarkovRandomField.from_factors(counts, factors, variable_names=list("dbca"), state_names=names)


def some_network(rng: np.random.Generator) -> BayesianNetwork:
    counts, parents = [3, 2, 4, 2], [[2], [], [1], [2, 0]]
    tables = []
    for i, of_child in enumerate(parents):
        table = rng.gamma(1.0, size=[counts[v] for v in (*of_child, i)])
        tables.append(table / table.sum(axis=-1, keepdims=True))
    states = [[f"{i}_{k}" for k in range(count)] for i, count in enumerate(counts)]
    return BayesianNetwork(["z", "b", "m", "a"], states, parents, tables)


def probabilities(model: MarkovRandomField, order: list[str] | None = None) -> np.ndarray:
    """The whole table of a small model, an axis for each variable, in the order of names."""
    states = np.array(list(np.ndindex(*model.num_states.tolist())))
    weights = np.exp(model.log_weight(states))
    table = (weights / weights.sum()).reshape(model.num_states)
    return table if order is None else np.moveaxis(table, [model.variable_index(n) for n in order], range(table.ndim))


def same(one: MarkovRandomField, two: MarkovRandomField) -> None:
    names = one.names_of_variables()
    assert sorted(names) == sorted(two.names_of_variables())
    for name in names:
        i, j = one.variable_index(name), two.variable_index(name)
        assert one.names_of_states()[i] == two.names_of_states()[j]
    np.testing.assert_allclose(probabilities(one, names), probabilities(two, names), atol=1e-12)


@pytest.mark.parametrize("package", ["pgmpy", "pyagrum"])
@pytest.mark.parametrize("seed", strategies.seeds(3, quick=1))
def test_models_and_networks_go_and_come_back(package: str, seed: int) -> None:
    imported(package)
    rng = np.random.default_rng(seed)
    model, network = some_model(rng), some_network(rng)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the neighbors
        there = convert(model, to=package)
        same(convert(there), model)
        bayes = convert(network, to=package)
        again = convert(bayes, to="network")
    same(again.to_model(), network.to_model())
    same(convert(bayes), network.to_model())
    by_name = {name: i for i, name in enumerate(again.variable_names)}
    for i, name in enumerate(network.variable_names):
        parents = {network.variable_names[p] for p in network.parents[i]}
        assert {again.variable_names[p] for p in again.parents[by_name[name]]} == parents


def test_pgmpy_itself_says_the_same() -> None:
    elimination = imported("pgmpy.inference").VariableElimination
    rng = np.random.default_rng(5)
    network, model = some_network(rng), some_model(rng)
    for ours, there in ((network.to_model(), convert(network, to="pgmpy")), (model, convert(model, to="pgmpy"))):
        result = fastmix.infer(ours)
        for name in ours.variable_names:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                answer = elimination(there).query([name], show_progress=False)
            shares = answer.values / answer.values.sum()  # pgmpy leaves those of Markov networks as they are
            np.testing.assert_allclose(result.marginal(name), shares, atol=1e-9)
            i = ours.variable_index(name)
            assert list(answer.state_names[name]) == list(ours.state_names[i])


def test_pyagrum_itself_says_the_same() -> None:
    gum = imported("pyagrum")
    rng = np.random.default_rng(6)
    network, model = some_network(rng), some_model(rng)
    for ours, there, engine in (
        (network.to_model(), convert(network, to="pyagrum"), gum.LazyPropagation),
        (model, convert(model, to="pyagrum"), gum.ShaferShenoyMRFInference),
    ):
        inference = engine(there)
        inference.makeInference()
        result = fastmix.infer(ours)
        for name in ours.variable_names:
            np.testing.assert_allclose(result.marginal(name), inference.posterior(name).toarray(), atol=1e-9)


def test_pgmpy_states_in_another_order_in_the_table_of_a_child() -> None:
    tables, models = imported("pgmpy.factors.discrete"), imported("pgmpy.models")
    there = models.DiscreteBayesianNetwork([("a", "b")])
    labels = {"b": ["n", "y"], "a": ["hi", "lo"]}
    there.add_cpds(tables.TabularCPD("a", 2, [[0.9], [0.1]], state_names={"a": ["lo", "hi"]}))
    there.add_cpds(
        tables.TabularCPD("b", 2, [[0.2, 0.7], [0.8, 0.3]], evidence=["a"], evidence_card=[2], state_names=labels)
    )
    network = convert(there, to="network")
    assert network.tables[network.variable_names.index("b")].tolist() == [[0.7, 0.3], [0.2, 0.8]]


@pytest.mark.parametrize("seed", strategies.seeds(3, quick=1))
def test_dimod_energies(seed: int) -> None:
    dimod = imported("dimod")
    rng = np.random.default_rng(seed)
    for vartype in ("SPIN", "BINARY"):
        linear = {name: float(rng.normal()) for name in "cab"}
        pairs = {("c", "a"): 0.7, ("a", "b"): float(rng.normal())}
        problem = dimod.BinaryQuadraticModel(linear, pairs, 0.3, vartype)
        model = convert(problem, temperature=2.0)
        values = [-1, 1] if vartype == "SPIN" else [0, 1]
        for states in np.ndindex(2, 2, 2):
            names = model.variable_names
            energy = problem.energy({name: values[s] for name, s in zip(names, states, strict=True)})
            assert model.log_weight(states) == pytest.approx(-energy / 2.0)
        back = convert(model, to="dimod", temperature=2.0)
        for spins in np.ndindex(2, 2, 2):
            spin = {name: 2 * s - 1 for name, s in zip(model.variable_names, spins, strict=True)}
            own = {name: values[s] for name, s in zip(model.variable_names, spins, strict=True)}
            assert back.energy(spin) == pytest.approx(problem.energy(own))


def test_draws_as_a_sample_set() -> None:
    imported("dimod")
    model = ising_grid(2, 2, coupling_max=1.0, seed=0)
    result = fastmix.sample(model, num_chains=4, num_sweeps=20, num_draws=5, seed=0)
    samples = our_dimod.sample_set(result, temperature=3.0)
    assert len(samples) == 20
    states = (samples.record.sample + 1) // 2
    np.testing.assert_allclose(samples.record.energy, -3.0 * model.log_weight(states))
    with pytest.raises(ModelError, match="binary"):
        convert(some_model(np.random.default_rng(0)), to="dimod")


def test_graphs() -> None:
    networkx = imported("networkx")
    model = MarkovRandomField.from_tables(
        [[0, 1], [0, 2, 3]], [(0, 1)], [[[1, 2, 3], [4, 5, 6]]], variable_names=["x", "y"]
    )
    graph = convert(model, to="networkx")
    assert isinstance(graph, networkx.Graph)
    assert convert(graph) == model
    network = some_network(np.random.default_rng(0))
    assert set(convert(network, to="networkx").edges) == {("m", "z"), ("b", "m"), ("m", "a"), ("z", "a")}
    with pytest.raises(ModelError, match="larger factors"):
        convert(some_model(np.random.default_rng(0)), to="networkx")


def test_what_cannot_be_converted() -> None:
    with pytest.raises(TypeError, match=r"^convert .*pgmpy"):
        convert([1, 2])
    model = ising_grid(2, 2, coupling_max=1.0, seed=0)
    assert convert(model) is model
    with pytest.raises(ValueError, match=r"^to .*'excel'$"):
        convert(model, to="excel")
    with pytest.raises(TypeError, match="no Bayesian network"):
        convert(model, to="network")


def test_frames_of_polars() -> None:
    polars = imported("polars")
    result = fastmix.infer(ising_grid(2, 2, coupling_max=1.0, seed=0))
    frame = result.to_frame("polars")
    assert isinstance(frame, polars.DataFrame)
    assert frame["probability"].to_list() == result.node_marginals.tolist()
    with pytest.raises(ValueError, match="library must be"):
        result.to_frame("excel")


# -- ArviZ ------------------------------------------------------------------------------------------------------------


def free_model(num_states: list[int]) -> MarkovRandomField:
    return MarkovRandomField.from_factors(num_states, [])


def test_to_arviz() -> None:
    imported("arviz")
    model = MarkovRandomField.ising([(0, 1), (1, 2)], 0.3, variable_names=["a", "b", "c"])
    draws = np.random.default_rng(0).integers(0, 2, (4, 50, 3))
    data = to_arviz(draws, model)
    x = data["posterior"]["x"]
    assert x.dims == ("chain", "draw", "variable")
    np.testing.assert_array_equal(x.values, draws)
    assert x.coords["variable"].values.tolist() == ["a", "b", "c"]
    unnamed = MarkovRandomField.ising([(0, 1), (1, 2)], 0.3)
    assert to_arviz(draws, unnamed)["posterior"]["x"].coords["variable"].values.tolist() == [0, 1, 2]


def test_to_arviz_from_version_one_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}

    def from_dict(data: dict[str, Any], *, coords: Any = None, dims: Any = None) -> str:
        seen.update(data=data, coords=coords, dims=dims)
        return "tree"

    monkeypatch.setitem(sys.modules, "arviz", types.SimpleNamespace(from_dict=from_dict))
    assert to_arviz(np.zeros((2, 5, 1)), free_model([2])) == "tree"
    assert seen["data"]["posterior"]["x"].shape == (2, 5, 1)
    assert (seen["coords"], seen["dims"]) == ({"variable": [0]}, {"x": ["variable"]})


def test_to_arviz_refuses() -> None:
    with pytest.raises(ModelError, match=r"^draws .*got shape \(5, 2\)"):
        to_arviz(np.zeros((5, 2)), free_model([2, 2]))
    with pytest.raises(ModelError, match=r"^states of variable 1 .*got 2"):
        to_arviz(np.full((1, 1, 2), [0, 2]), free_model([2, 2]))


def test_to_arviz_without_arviz(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match=r"ArviZ.*\[interop\]"):
        to_arviz(np.zeros((1, 1, 1)), free_model([2]))
