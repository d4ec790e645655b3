"""What a model is, in numbers: the facts behind ``fastmix info``."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from fastmix.elimination import treewidth_bounds
from fastmix.graphs import connected_components
from fastmix.model import Evidence, MarkovRandomField, check_model
from fastmix.results import provenance

__all__ = ["describe_model"]


def describe_model(model: MarkovRandomField, evidence: Evidence | None = None) -> dict[str, Any]:
    """Facts about a model as plain data, cheap also for a million variables.

    The graph facts (components, degrees, treewidth) are those of the model given the evidence.

    Examples
    --------
    >>> facts = describe_model(MarkovRandomField.ising([(0, 1), (1, 2), (0, 2)], coupling=0.5))
    >>> facts["num_variables"], facts["treewidth"]
    (3, [2, 2])
    """
    start = time.perf_counter()
    check_model(model)
    given = model.condition(evidence) if evidence else model
    lower, upper = treewidth_bounds(given.num_variables, given.edges)
    states, degrees = given.num_states, given.adjacency.degree
    spread = [int(states.min()), int(states.max())] if len(states) else [0, 0]
    finite = given.log_pairwise[given.log_pairwise > -np.inf]
    facts: dict[str, Any] = {
        "num_variables": model.num_variables,
        "num_observed": len(evidence or {}),
        "num_states": spread,
        "num_edges": given.num_edges,
        "max_degree": int(degrees.max(initial=0)),
        "num_components": int(connected_components(given.num_variables, given.edges)[0]),
        "treewidth": [lower, upper],
        "num_forbidden_states": int((given.log_unary == -np.inf).sum()),
        "num_forbidden_pairs": int((given.drop_forbidden_states().log_pairwise == -np.inf).sum()),
        "largest_table_entry": float(np.abs(finite).max(initial=0.0)),
        "log_constant": given.log_constant,
    }
    facts["seconds"] = time.perf_counter() - start
    facts["provenance"] = provenance(model, evidence={str(k): v for k, v in (evidence or {}).items()})
    return facts
