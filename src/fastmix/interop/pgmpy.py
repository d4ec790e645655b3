"""pgmpy: ``DiscreteMarkovNetwork`` and ``DiscreteBayesianNetwork``, names of variables and states kept."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastmix._checks import require
from fastmix.errors import ModelError
from fastmix.model import MarkovRandomField
from fastmix.model.network import BayesianNetwork

__all__ = ["read", "write"]


def read(source: Any) -> MarkovRandomField | BayesianNetwork:
    """The model of a network of pgmpy; its nodes and states become names."""
    return _read_bayesian(source) if hasattr(source, "get_cpds") else _read_markov(source)


def _read_bayesian(source: Any) -> BayesianNetwork:
    """The Bayesian network of one of pgmpy."""
    nodes = list(source.nodes())
    index = {node: i for i, node in enumerate(nodes)}
    tables = [source.get_cpds(node) for node in nodes]
    if None in tables:
        raise ModelError(f"node {nodes[tables.index(None)]!r} has no table: add_cpds first")
    states = [list(map(str, table.state_names[node])) for table, node in zip(tables, nodes, strict=True)]
    parents = [[index[parent] for parent in table.variables[1:]] for table in tables]
    # A state may have another number in the table of a child: each table is put in the order of its owner.
    arrays = [np.moveaxis(_ordered(table, index, tables), 0, -1) for table in tables]
    return BayesianNetwork(tuple(map(str, nodes)), states, parents, arrays, name=str(source.name or "unknown"))  # type: ignore[arg-type]


def _read_markov(source: Any) -> MarkovRandomField:
    """The model of a Markov network of pgmpy."""
    nodes = list(source.nodes())
    index = {node: i for i, node in enumerate(nodes)}
    factors = list(source.get_factors())
    first: dict[Any, Any] = {}  # the first factor of every node, whose order of its states counts
    for factor in factors:
        for variable in factor.variables:
            first.setdefault(variable, factor)
    if missing := [node for node in nodes if node not in first]:
        raise ModelError(f"node {missing[0]!r} is in no factor: add_factors first")
    owners = [first[node] for node in nodes]
    states = [list(map(str, owner.state_names[node])) for owner, node in zip(owners, nodes, strict=True)]
    scopes = []
    for factor in factors:
        with np.errstate(divide="ignore"):  # a probability of 0 is allowed
            table = np.log(_ordered(factor, index, owners))
        scopes.append(([index[variable] for variable in factor.variables], table))
    return MarkovRandomField.from_factors(
        [len(names) for names in states], scopes, variable_names=list(map(str, nodes)), state_names=states
    )


def write(model: MarkovRandomField | BayesianNetwork) -> Any:
    """A network of pgmpy with the same distribution, without the constant of a model, which pgmpy has no place for."""
    models = require("pgmpy.models", extra="interop", purpose="conversions")
    factors = require("pgmpy.factors.discrete", extra="interop", purpose="conversions")
    if isinstance(model, BayesianNetwork):
        return _write_bayesian(model, models, factors)
    network = models.DiscreteMarkovNetwork()
    nodes = model.names_of_variables()
    labels = model.names_of_states()
    network.add_nodes_from(nodes)
    network.add_edges_from((nodes[i], nodes[j]) for i, j in model.edges.tolist())
    for scope, table in model.terms():
        used = [nodes[v] for v in scope]
        values = np.exp(table - table.max())  # a factor of scale cancels, and the exponentials stay in range
        state_names = dict(zip(used, (labels[v] for v in scope), strict=True))
        network.add_factors(factors.DiscreteFactor(used, list(table.shape), values, state_names=state_names))
    return network


def _write_bayesian(model: BayesianNetwork, models: Any, factors: Any) -> Any:
    """A Bayesian network of pgmpy, with the modules of pgmpy that have networks and tables."""
    names = model.variable_names
    states = model.state_names
    network = models.DiscreteBayesianNetwork()
    network.add_nodes_from(names)
    network.add_edges_from((names[p], names[i]) for i, of_child in enumerate(model.parents) for p in of_child)
    for i, (of_child, table) in enumerate(zip(model.parents, model.tables, strict=True)):
        options: dict[str, Any] = {"state_names": {names[v]: list(states[v]) for v in (i, *of_child)}}
        if of_child:
            options |= {"evidence": [names[p] for p in of_child], "evidence_card": list(table.shape[:-1])}
        rows = np.moveaxis(table, -1, 0).reshape(table.shape[-1], -1)
        network.add_cpds(factors.TabularCPD(names[i], len(states[i]), rows, **options))
    return network


def _ordered(factor: Any, index: dict[Any, int], owners: list[Any]) -> Any:
    """The values of a factor with the states of every variable in the order of the factor that owns it."""
    values = np.asarray(factor.values, dtype=np.float64)
    for axis, variable in enumerate(factor.variables):
        here = factor.state_names[variable]
        there = owners[index[variable]].state_names[variable]
        if set(here) != set(there) or len(here) != len(there):
            raise ModelError(f"the states of {variable!r} must be the same in all tables, got {here} and {there}")
        if list(here) != list(there):
            values = np.take(values, [list(here).index(state) for state in there], axis=axis)
    return values
