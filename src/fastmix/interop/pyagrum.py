"""pyAgrum: ``MarkovRandomField`` and ``BayesNet``, names of variables and labels kept."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastmix._checks import require
from fastmix.errors import ModelError
from fastmix.model import MarkovRandomField
from fastmix.model.network import BayesianNetwork

__all__ = ["read", "write"]


def read(source: Any) -> MarkovRandomField | BayesianNetwork:
    """The model of a network of pyAgrum."""
    ids = sorted(source.nodes())
    variables = [source.variable(node) for node in ids]
    names = [variable.name() for variable in variables]
    states = [list(variable.labels()) for variable in variables]
    index = {name: i for i, name in enumerate(names)}
    if hasattr(source, "cpt"):
        parents = []
        tables = []
        for name in names:
            scope, array = _axes(source.cpt(name))
            parents.append([index[parent] for parent in scope if parent != name])
            tables.append(np.moveaxis(array, scope.index(name), -1))
        return BayesianNetwork(names, states, parents, tables)  # type: ignore[arg-type]
    factors = []
    for key in source.factors():
        scope, array = _axes(source.factor(key))
        if (array < 0.0).any():
            raise ModelError(f"the factor over {', '.join(scope)} must have no negative numbers")
        with np.errstate(divide="ignore"):
            factors.append(([index[name] for name in scope], np.log(array)))
    return MarkovRandomField.from_factors(
        [len(labels) for labels in states], factors, variable_names=names, state_names=states
    )


def write(model: MarkovRandomField | BayesianNetwork) -> Any:
    """A network of pyAgrum with the same distribution, without the constant of a model, which it has no place for."""
    gum = require("pyagrum", extra="interop", purpose="conversions")
    network = isinstance(model, BayesianNetwork)
    names = list(model.variable_names) if isinstance(model, BayesianNetwork) else model.names_of_variables()
    states = model.state_names if isinstance(model, BayesianNetwork) else model.names_of_states()
    found = gum.BayesNet() if network else gum.MarkovRandomField()
    for name, labels in zip(names, states, strict=True):
        found.add(gum.LabelizedVariable(name, name, list(labels)))
    if isinstance(model, BayesianNetwork):
        for i, of_child in enumerate(model.parents):
            for parent in of_child:
                found.addArc(names[parent], names[i])
        for i, (of_child, table) in enumerate(zip(model.parents, model.tables, strict=True)):
            _fill(found.cpt(names[i]), [names[v] for v in (*of_child, i)], table)
        return found
    for scope, table in model.terms():
        used = [names[v] for v in scope]
        _fill(found.addFactor(used), used, np.exp(table - table.max()))
    return found


def _axes(tensor: Any) -> tuple[list[str], Any]:
    """The variables of a tensor and its values; the array has the last variable of ``names`` as its first axis."""
    return list(tensor.names)[::-1], np.asarray(tensor.toarray(), dtype=np.float64)


def _fill(tensor: Any, scope: list[str], values: Any) -> None:
    """Put values, whose axes are a scope, into a tensor."""
    order = [scope.index(name) for name in list(tensor.names)[::-1]]
    tensor.fillWith(np.ascontiguousarray(np.transpose(values, order)).reshape(-1).tolist())
