"""Trees in a graph: spanning forests that cover all edges, and the trees that hang on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fastmix._arrays import FloatArray, IntArray
from fastmix._checks import check_seed
from fastmix._clock import NO_LIMIT, Clock
from fastmix._loops import run_loop
from fastmix.graphs.edges import check_graph

__all__ = ["covering_spanning_trees", "heaviest_tree", "strip_leaves"]


def covering_spanning_trees(
    num_variables: int, edges: npt.ArrayLike, seed: int, *, clock: Clock = NO_LIMIT
) -> list[IntArray]:
    """Random spanning forests that together contain every edge, each as places in ``edges``.

    Each prefers the edges not yet covered, in random order, so that at least one more is covered each time; the
    number of forests is close to the largest ratio of edges to nodes among subgraphs. At least one is returned.

    Parameters
    ----------
    num_variables : int
    edges : int array (m, 2)
        Canonical edges.
    seed : int
    clock : Clock
        An :class:`fastmix._clock.OutOfTimeError` once its limit is over.

    Returns
    -------
    list of ndarray of int64, each ascending

    Raises
    ------
    ModelError
        If the edges are out of range or not canonical.

    Examples
    --------
    >>> from fastmix.graphs import complete_edges
    >>> trees = covering_spanning_trees(4, complete_edges(4), seed=0)
    >>> sorted(set(np.concatenate(trees).tolist()))
    [0, 1, 2, 3, 4, 5]
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import minimum_spanning_tree

    n, edges = check_graph(num_variables, edges)
    rng = np.random.default_rng(check_seed(seed))
    covered = np.zeros(len(edges), dtype=bool)
    trees: list[IntArray] = []
    while not trees or not covered.all():
        clock.check()
        shuffled = rng.permutation(len(edges))
        ranking = np.concatenate([shuffled[~covered[shuffled]], shuffled[covered[shuffled]]])
        weight = np.empty(len(edges))
        weight[ranking] = np.arange(1, len(edges) + 1)  # a weight of 0 would be no edge
        forest = minimum_spanning_tree(csr_array((weight, tuple(edges.T.astype(np.int32))), shape=(n, n)))
        tree = np.sort(ranking[forest.data.astype(np.int64) - 1])
        covered[tree] = True
        trees.append(tree)
    return trees


def strip_leaves(n: int, edges: IntArray) -> tuple[IntArray, IntArray]:
    """The variables of the trees that hang on a graph, leaves first, and the neighbor each had when it was removed.

    Variables of degree 0 or 1 are removed until none is left; the neighbor of those of degree 0 is -1.
    """
    degree = np.bincount(edges.ravel(), minlength=n)
    leaves = np.flatnonzero(degree <= 1)
    queue = np.full(n, -1)
    neighbor = np.zeros(n, dtype=np.int64)
    if len(leaves):
        queue[: len(leaves)] = leaves
        # The exclusive-or of the neighbors that are left is, for a leaf, its one neighbor.
        for a, b in ((0, 1), (1, 0)):
            np.bitwise_xor.at(neighbor, edges[:, a], edges[:, b])
        count = run_loop(_strip, (len(leaves),), (queue, degree, neighbor))
        queue = queue[:count]
    removed = queue[queue >= 0]
    return removed, neighbor[removed]


def _strip(count: int, queue: Any, degree: Any, neighbor: Any) -> int:
    """The number of variables removed, which ``queue`` then has; it begins with ``count`` leaves.

    ``neighbor`` has the exclusive-or of the neighbors that are left of every variable, and -1 in the end for a variable
    that was removed without one.
    """
    done = 0
    while done < count:
        v = queue[done]
        done += 1
        if degree[v]:
            u = neighbor[v]
            neighbor[u] ^= v
            degree[u] -= 1
            if degree[u] == 1:
                queue[count] = u
                count += 1
        else:
            neighbor[v] = -1
    return count


def heaviest_tree(gains: FloatArray, allowed: IntArray | None = None) -> IntArray:
    """Edges (n - 1, 2), in order, of the tree with the largest sum of gains (n, n), of those that are ``allowed``."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import minimum_spanning_tree

    n = len(gains)
    i, j = (np.stack(np.triu_indices(n, 1), axis=1) if allowed is None else allowed).T
    # The smallest total of 1 - gain is the largest gain; all weights must be positive to count.
    weights = 1.0 + gains[i, j].max(initial=0.0) - gains[i, j]
    tree = minimum_spanning_tree(coo_array((weights, (i, j)), shape=(n, n))).tocoo()
    edges = np.sort(np.stack([tree.row, tree.col], axis=1), axis=1).astype(np.int64)
    ordered: IntArray = edges[np.lexsort((edges[:, 1], edges[:, 0]))]
    return ordered
