"""Patches of a graph: small parts with their surroundings, for covariances that vanish over short distances."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from fastmix._arrays import IntArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix.chains.tuning import MAX_PATCH_WORK
from fastmix.model import MarkovRandomField
from fastmix.model.structure import Structure

__all__ = ["Patch", "make_patches", "whole_patch"]


@dataclass(frozen=True, eq=False)
class Patch:
    """A core of variables, edges and factors, with their surroundings; each of them is in the core of one patch."""

    core_variables: IntArray
    core_edges: IntArray
    ends: IntArray  # the core variables and the ends of the core edges
    variables: IntArray  # all variables within reach of the core
    edges: IntArray  # the edges between them
    core_factors: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    factors: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


def whole_patch(model: MarkovRandomField | Structure) -> Patch:
    """The whole graph as one patch."""
    variables = np.arange(model.num_variables)
    edges = np.arange(model.num_edges)
    factors = np.arange(model.num_factors)
    return Patch(
        core_variables=variables,
        core_edges=edges,
        ends=variables,
        variables=variables,
        edges=edges,
        core_factors=factors,
        factors=factors,
    )


def make_patches(
    model: MarkovRandomField | Structure, *, core_size: int, reach: int, clock: Clock = NO_LIMIT
) -> list[Patch]:
    """Patches with cores of about ``core_size`` variables and everything within ``reach`` edges (1 at least) of them.

    Cores are grown by breadth-first search. A graph whose patches would overlap so much that they are more work than
    they save, such as a dense one, is one patch, and so is one with factors over three or more variables.
    """
    if model.num_factors:
        return [whole_patch(model)]
    graph = model.adjacency
    n = model.num_variables
    start = graph.indptr.tolist()
    neighbors = graph.neighbors.tolist()
    edge_ids = graph.edge_ids.tolist()
    owner = [-1] * n
    patches: list[Patch] = []
    work = 0
    for root in range(n):
        if owner[root] >= 0:
            continue
        clock.check()

        # The core: breadth-first search among variables that have no owner yet. The list grows while it is read.
        number = len(patches)
        owner[root] = number
        core = [root]
        for v in core:
            for u in neighbors[start[v] : start[v + 1]]:
                if owner[u] < 0 and len(core) < core_size:
                    owner[u] = number
                    core.append(u)

        # The surroundings, one ring of neighbors after another.
        around = set(core)
        ring = core
        for _ in range(reach):
            ring = [u for v in ring for u in neighbors[start[v] : start[v + 1]] if u not in around]
            around.update(ring)

        # An edge belongs to the core with its first end; its other end is within reach.
        own: list[int] = []
        inside: list[int] = []
        for v in around:
            for k in range(start[v], start[v + 1]):
                if v > neighbors[k]:
                    continue
                if owner[v] == number:
                    own.append(edge_ids[k])
                if neighbors[k] in around:
                    inside.append(edge_ids[k])
        ends = set(core).union(model.edges[own].reshape(-1).tolist())
        patches.append(
            Patch(
                core_variables=_sorted_array(core),
                core_edges=_sorted_array(own),
                ends=_sorted_array(ends),
                variables=_sorted_array(around),
                edges=_sorted_array(inside),
            )
        )
        work += len(around) + len(inside)
        if work > MAX_PATCH_WORK * (n + model.num_edges):
            return [whole_patch(model)]
    return patches


def _sorted_array(numbers: Iterable[int]) -> IntArray:
    """Numbers in ascending order."""
    return np.array(sorted(numbers), dtype=np.int64)
