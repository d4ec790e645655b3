"""The dependency matrix by its definition: enumeration of what the neighbors of a variable can do.

Definition 3 of Liu and Domke (2014), in the form of their Lemma 9.
"""

from __future__ import annotations

import numpy as np

from fastmix._arrays import FloatArray
from fastmix.errors import ResourceError
from fastmix.model import MarkovRandomField

__all__ = ["exact_dependencies", "joint_logits"]

# Limits: each takes a few seconds.
_MAX_EVALUATIONS = 5e6  # conditional distributions
_MAX_COMPARISONS = 4e9  # entries of pairs of conditional distributions


def exact_dependencies(model: MarkovRandomField) -> FloatArray:
    """R by its definition (m, 2), for a model without forbidden states."""
    graph, counts, n = model.adjacency, model.num_states, model.num_variables
    result = np.zeros((model.num_edges, 2))
    owner = np.repeat(np.arange(n), graph.degree)
    with np.errstate(over="ignore"):
        evaluations = np.exp(np.bincount(owner, np.log(counts[graph.neighbors]), minlength=n)) * (graph.degree > 0)
        comparisons = evaluations * counts * np.bincount(owner, counts[graph.neighbors], minlength=n)
    if evaluations.sum() > _MAX_EVALUATIONS or comparisons.sum() > _MAX_COMPARISONS:
        raise ResourceError(
            f"dependency='exact' would enumerate {evaluations.sum():.3g} conditional distributions (variable "
            f"{evaluations.argmax()} takes most; the largest degree is {graph.max_degree}), more than the limit of "
            f"{_MAX_EVALUATIONS:.3g} of them or {_MAX_COMPARISONS:.3g} comparisons of their entries; "
            "dependency='sigmoid' enumerates nothing"
        )
    for i in np.flatnonzero(graph.degree).tolist():
        edges = graph.edge_ids[graph.indptr[i] : graph.indptr[i + 1]]
        gaps = dict(zip(*_largest_gaps(*joint_logits(model, i)), strict=True))
        around = graph.neighbors_of(i).tolist()
        result[edges, [int(i > j) for j in around]] = [gaps.get(j, 0.0) for j in around]
    return result


def joint_logits(model: MarkovRandomField, i: int, *, hard: bool = False) -> tuple[list[int], FloatArray]:
    """Neighbors of a variable that have several states, and its logits (own states, states of these neighbors).

    With ``hard`` only terms that forbid something, and the neighbors in them, count.
    """
    graph, incident, counts = model.adjacency, model.structure.incident, model.num_states
    terms = []
    for p in range(graph.indptr[i], graph.indptr[i + 1]):
        e, j = graph.edge_ids[p], int(graph.neighbors[p])
        table = model.log_pairwise[model.pairwise_offsets[e] : model.pairwise_offsets[e + 1]]
        terms.append(([j], table.reshape(counts[i], -1) if i < j else table.reshape(-1, counts[i]).T))
    for k in incident.factors[incident.indptr[i] : incident.indptr[i + 1]].tolist():
        scope, table = model.factor(k)
        axis = int(np.searchsorted(scope, i))
        terms.append((np.delete(scope, axis).tolist(), np.moveaxis(table, axis, 0)))
    if hard:
        terms = [(others, table) for others, table in terms if table.min() == -np.inf]
    axes = sorted({j for others, _ in terms for j in others if counts[j] > 1})
    logits = np.zeros((counts[i], *counts[axes])) + model.unary(i).reshape(-1, *[1] * len(axes))
    for others, table in terms:
        logits += table.reshape(-1, *(counts[j] if j in others else 1 for j in axes))
    return axes, logits


def _largest_gaps(axes: list[int], logits: FloatArray) -> tuple[list[int], list[float]]:
    """For every neighbor the largest total variation distance between two of the distributions that it leads to.

    Two undefined ones are no distance apart; one beside a defined one is 1 away from it.
    """
    top = logits.max(axis=0)
    undefined = top == -np.inf
    hard = bool(undefined.any())
    p = np.exp(logits - (np.where(undefined, 0.0, top) if hard else top))
    p /= np.where(undefined, 1.0, p.sum(axis=0))
    gaps = []
    for k in range(len(axes)):
        columns, closed, best = p.swapaxes(1, k + 1), undefined.swapaxes(0, k), 0.0
        for a in range(len(closed) - 1):
            distance = np.abs(columns[:, a : a + 1] - columns[:, a + 1 :]).sum(axis=0)
            if hard:
                distance[closed[a] != closed[a + 1 :]] = 2.0
            best = max(best, float(distance.max()))
        gaps.append(min(0.5 * best, 1.0))
    return axes, gaps
