"""networkx: graphs whose nodes and edges carry their potentials."""

from __future__ import annotations

from typing import Any

from fastmix._checks import require
from fastmix.errors import ModelError
from fastmix.model import MarkovRandomField
from fastmix.model.network import BayesianNetwork

__all__ = ["read", "write"]


read = MarkovRandomField.from_networkx


def write(model: MarkovRandomField | BayesianNetwork) -> Any:
    """A graph with ``log_unary`` and ``states`` at its nodes and ``log_pairwise`` at its edges, rows for the first end.

    A Bayesian network gives a directed graph from parents to children, with ``table`` and ``states`` at its nodes.
    """
    networkx = require("networkx", extra="interop", purpose="conversions")
    if isinstance(model, BayesianNetwork):
        names = model.variable_names
        directed = networkx.DiGraph(name=model.name)
        for name, states, table in zip(names, model.state_names, model.tables, strict=True):
            directed.add_node(name, states=list(states), table=table)
        directed.add_edges_from((names[p], names[i]) for i, of_child in enumerate(model.parents) for p in of_child)
        return directed
    if model.num_factors:
        raise ModelError(f"a graph has tables at its edges only; the model has {model.num_factors} larger factors")
    graph = networkx.Graph()
    keys = list(model.variable_names or range(model.num_variables))
    for i, (key, labels) in enumerate(zip(keys, model.names_of_states(), strict=True)):
        graph.add_node(key, log_unary=model.unary(i), states=labels)
    for i, j in model.edges.tolist():
        graph.add_edge(keys[i], keys[j], log_pairwise=model.table(i, j))
    return graph
