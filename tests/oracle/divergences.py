"""The divergences from their definitions, by enumeration of all configurations: for tiny models only.

Nothing here calls the code under test.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import oracle
from fastmix.model import MarkovRandomField

FloatArray = NDArray[np.float64]


def kl(p: MarkovRandomField, q: MarkovRandomField) -> float:
    """Sum over all configurations of p log(p / q)."""
    a, b = oracle.joint(p), oracle.joint(q)
    return float(np.sum(a * (np.log(a) - np.log(b))))


def moments(model: MarkovRandomField) -> FloatArray:
    """All node and edge marginals, aligned with the parameters."""
    nodes, edges = oracle.node_marginals(model), oracle.edge_marginals(model)
    return np.concatenate([np.zeros(0), *nodes, *[table.reshape(-1) for table in edges]])


def features(model: MarkovRandomField) -> tuple[FloatArray, FloatArray]:
    """Probability of every configuration (N,) and its indicators (N, parameters)."""
    p = oracle.joint(model)
    rows, probabilities = [], []
    for x in oracle.all_configurations(model):
        row = []
        for i, count in enumerate(model.num_states.tolist()):
            row += [float(x[i] == s) for s in range(count)]
        for i, j in model.edges.tolist():
            row += [
                float((x[i], x[j]) == (a, b)) for a in range(model.num_states[i]) for b in range(model.num_states[j])
            ]
        rows.append(row)
        probabilities.append(p[x])
    return np.array(probabilities), np.array(rows)


def reversed_gradient(theta: MarkovRandomField, psi: MarkovRandomField) -> FloatArray:
    """Cov_theta(f, (theta - psi) . f) from the definition of a covariance."""
    p, f = features(theta)
    energy = f @ (theta.parameters - psi.parameters)
    return (p * (energy - p @ energy)) @ (f - p @ f)


def piece(model: MarkovRandomField, edges: list[int]) -> MarkovRandomField:
    """The unaries and tables of some edges, and nothing else."""
    variables = sorted({v for e in edges for v in model.edges[e].tolist()})
    number = {v: k for k, v in enumerate(variables)}
    return MarkovRandomField.from_tables(
        [model.unary(v) for v in variables],
        [(number[i], number[j]) for i, j in model.edges[edges].tolist()],
        [model.table(i, j) for i, j in model.edges[edges].tolist()],
    )


def numeric_gradient(function, theta: MarkovRandomField, h: float = 1e-5) -> FloatArray:
    """Central differences by every parameter."""
    result = np.zeros(theta.num_parameters)
    for k in range(len(result)):
        shift = np.zeros(len(result))
        shift[k] = h
        up, down = (function(theta.with_parameters(theta.parameters + s * shift)) for s in (1.0, -1.0))
        result[k] = (up - down) / (2.0 * h)
    return result
