"""Patches of a graph: small parts with their surroundings, for covariances that are local."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fastmix._arrays import IntArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix.model import MarkovRandomField
from fastmix.model.structure import Structure

__all__ = ["Patch", "make_patches", "whole_patch"]

_MOST_WORK = 16  # times the work on the whole graph, beyond which patches do not pay


@dataclass(frozen=True, eq=False)
class Patch:
    """Some variables, edges and factors, the core, and what lies around them; each is in the core of one patch."""

    core_variables: IntArray
    core_edges: IntArray
    ends: IntArray  # the core variables and the ends of the core edges
    variables: IntArray  # all within reach of the core
    edges: IntArray  # between them
    core_factors: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    factors: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


def whole_patch(model: MarkovRandomField | Structure) -> Patch:
    """The whole graph as one patch."""
    variables, edges, factors = np.arange(model.num_variables), np.arange(model.num_edges), np.arange(model.num_factors)
    return Patch(variables, edges, variables, variables, edges, factors, factors)


def make_patches(
    model: MarkovRandomField | Structure, *, core_size: int, reach: int, clock: Clock = NO_LIMIT
) -> list[Patch]:
    """Patches with cores of about ``core_size`` variables and everything within ``reach`` edges (1 at least) of them.

    Cores are grown by breadth-first search. A graph whose patches would overlap so much that they are more work than
    they save, such as a dense one, is one patch, and so is one with factors over three or more variables.
    """
    if model.num_factors:
        return [whole_patch(model)]
    graph, n = model.adjacency, model.num_variables
    start, neighbors, edge_ids = graph.indptr.tolist(), graph.neighbors.tolist(), graph.edge_ids.tolist()
    owner = [-1] * n
    patches: list[Patch] = []
    work = 0
    for root in range(n):
        if owner[root] >= 0:
            continue
        clock.check()
        number, core = len(patches), [root]
        owner[root] = number
        for v in core:  # grows while it is read
            for u in neighbors[start[v] : start[v + 1]]:
                if owner[u] < 0 and len(core) < core_size:
                    owner[u] = number
                    core.append(u)
        around, ring = set(core), core
        for _ in range(reach):
            ring = [u for v in ring for u in neighbors[start[v] : start[v + 1]] if u not in around]
            around.update(ring)
        larger = [
            (edge_ids[k], neighbors[k], v) for v in around for k in range(start[v], start[v + 1]) if v < neighbors[k]
        ]
        inside = [e for e, u, _ in larger if u in around]
        # An edge goes with its first end; its other end is within reach.
        own = [e for e, _, v in larger if owner[v] == number]
        ends = set(core).union(model.edges[own].reshape(-1).tolist())
        patches.append(Patch(*(np.array(sorted(part), dtype=np.int64) for part in (core, own, ends, around, inside))))
        work += len(around) + len(inside)
        if work > _MOST_WORK * (n + model.num_edges):
            return [whole_patch(model)]
    return patches
