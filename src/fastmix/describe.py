"""``describe_model()``: size, structure and zeros of a model as plain data, the library's side of ``fastmix info``."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from fastmix.exact.search import treewidth_bounds
from fastmix.graphs import connected_components
from fastmix.model import Evidence, MarkovRandomField, check_model
from fastmix.results import provenance

__all__ = ["describe_model"]


def describe_model(model: MarkovRandomField, evidence: Evidence | None = None) -> dict[str, Any]:
    """Facts about a model as plain data: its size, its graph, what it forbids and how large its entries are.

    Parameters
    ----------
    model : MarkovRandomField
        The model.
    evidence : mapping, optional
        Observed states. The facts about the graph (components, degrees, treewidth) are then those of what is left.

    Returns
    -------
    dict
        ``num_variables``, ``num_observed``, ``num_states`` (smallest and largest), ``num_edges``, ``kind``
        (``pairwise`` or ``factors``), ``num_factors``, ``max_scope``, ``max_degree``, ``num_components``, ``treewidth``
        (a lower and an upper bound), ``num_forbidden_states``, ``num_forbidden_pairs``, ``largest_table_entry``,
        ``log_constant``, ``seconds`` and ``provenance``.

    Notes
    -----
    The cost grows with the number of entries of the tables: a million variables take seconds.

    Examples
    --------
    >>> from fastmix import MarkovRandomField
    >>> facts = describe_model(MarkovRandomField.ising([(0, 1), (1, 2), (0, 2)], coupling=0.5))
    >>> facts["num_variables"], facts["treewidth"]
    (3, [2, 2])
    """
    start = time.perf_counter()
    check_model(model)
    observed = evidence or {}
    given = model.condition(evidence) if evidence else model

    num_states = given.num_states
    smallest = int(num_states.min()) if len(num_states) else 0
    largest = int(num_states.max()) if len(num_states) else 0
    lower, upper = treewidth_bounds(given.num_variables, given.edges)
    tables = np.concatenate([given.log_pairwise, given.log_factors])
    finite = tables[tables > -np.inf]
    facts: dict[str, Any] = {
        "num_variables": model.num_variables,
        "num_observed": len(observed),
        "num_states": [smallest, largest],
        "num_edges": given.num_edges,
        "kind": "pairwise" if given.num_factors == 0 else "factors",
        "num_factors": given.num_factors,
        "max_scope": given.structure.max_scope,
        "max_degree": int(given.adjacency.degree.max(initial=0)),
        "num_components": int(connected_components(given.num_variables, given.edges)[0]),
        "treewidth": [lower, upper],
        "num_forbidden_states": int((given.log_unary == -np.inf).sum()),
        "num_forbidden_pairs": int((given.drop_forbidden_states().log_pairwise == -np.inf).sum()),
        "largest_table_entry": float(np.abs(finite).max(initial=0.0)),
        "log_constant": given.log_constant,
    }
    facts["seconds"] = time.perf_counter() - start
    facts["provenance"] = provenance(model, evidence={str(k): v for k, v in observed.items()})
    return facts
