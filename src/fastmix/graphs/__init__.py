"""Undirected graphs as arrays of edges: adjacency, families, colorings, cores and spanning trees.

Every graph is a number of variables ``n`` and an ``int64`` array of shape ``(m, 2)`` whose rows ``(i, j)`` have
``i < j``, are sorted lexicographically and appear once; :func:`canonical_edges` brings any list of pairs to this
form. Elimination orders are in :mod:`fastmix.exact.search`.
"""

from fastmix.graphs.colors import check_coloring, coloring, degeneracy
from fastmix.graphs.components import connected_components
from fastmix.graphs.edges import Adjacency, adjacency, canonical_edges
from fastmix.graphs.families import (
    complete_bipartite_edges,
    complete_edges,
    cubic_edges,
    cycle_edges,
    erdos_renyi_edges,
    grid_edges,
    hexagonal_edges,
    path_edges,
    random_regular_edges,
    random_tree_edges,
    triangular_edges,
)
from fastmix.graphs.trees import covering_spanning_trees

__all__ = [
    "Adjacency",
    "adjacency",
    "canonical_edges",
    "check_coloring",
    "coloring",
    "complete_bipartite_edges",
    "complete_edges",
    "connected_components",
    "covering_spanning_trees",
    "cubic_edges",
    "cycle_edges",
    "degeneracy",
    "erdos_renyi_edges",
    "grid_edges",
    "hexagonal_edges",
    "path_edges",
    "random_regular_edges",
    "random_tree_edges",
    "triangular_edges",
]
