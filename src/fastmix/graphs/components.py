"""Connected components, and the two sides of bipartite ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fastmix._arrays import BoolArray, IntArray
from fastmix._loops import run_loop
from fastmix.graphs.edges import check_graph, edge_ends
from fastmix.graphs.tuning import MAX_NUMPY_EDGES

__all__ = ["connected_components", "label_components", "two_sides"]


def connected_components(num_variables: int, edges: npt.ArrayLike) -> tuple[int, IntArray]:
    """Number of connected components, and the component of each variable.

    Parameters
    ----------
    num_variables : int
    edges : int array (m, 2)
        Canonical edges.

    Returns
    -------
    count : int
    labels : ndarray of int64, shape (n,)
        Numbers from 0 to ``count - 1``, in the order of the smallest variables of the components.

    Raises
    ------
    ModelError
        If the edges are out of range or not canonical.

    Examples
    --------
    >>> count, labels = connected_components(4, [(0, 2), (1, 3)])
    >>> count, labels.tolist()
    (2, [0, 1, 0, 1])
    """
    return label_components(*check_graph(num_variables, edges))


def label_components(n: int, edges: IntArray) -> tuple[int, IntArray]:
    """Number of connected components, and the component of each variable, for edges that were checked."""
    root = _find_roots(n, edges) if len(edges) <= MAX_NUMPY_EDGES else _join_all(n, edges, None)[0]
    is_root = root == np.arange(n)
    return int(is_root.sum()), (np.cumsum(is_root) - 1)[root]


def _find_roots(n: int, edges: IntArray) -> IntArray:
    """The smallest variable of the component of each variable, without loading the compiler.

    Every variable points to a root, at first to itself. In every round each root that has smaller roots beside it is
    hung onto the smallest of them, and all paths are cut short. Two rounds leave at most half of the roots: one that
    nothing was hung onto has smaller ones beside it in the second.
    """
    root = np.arange(n, dtype=np.int64)
    # Ends of the edges that are left: those whose roots are not known to be one.
    i = edges[:, 0]
    j = edges[:, 1]
    while len(i):
        first = root[i]
        second = root[j]
        apart = np.flatnonzero(first != second)
        i = i[apart]
        j = j[apart]
        first = first[apart]
        second = second[apart]
        np.minimum.at(root, np.maximum(first, second), np.minimum(first, second))
        while True:
            higher = root[root]
            if np.array_equal(higher, root):
                break
            root = higher
    return root


def two_sides(n: int, edges: IntArray, apart: BoolArray) -> IntArray:
    """The side, 0 or 1, of every variable: ends of edges that are ``apart`` are on different sides, of others on one.

    The smallest variable of a component is on side 0. Where there are no such sides, all variables of the component get
    side 2.
    """
    if len(edges) > MAX_NUMPY_EDGES:
        root, side, broken = _join_all(n, edges, apart)
        return np.where(broken[root], 2, side)
    # Every variable has two copies, one for each side. Edges join copies that go together, so that the two copies of a
    # variable are in one component only where there is a contradiction.
    across = np.stack([np.zeros(len(edges), dtype=np.int64), np.where(apart, n, 0)], axis=1)
    _, label = label_components(2 * n, np.concatenate([edges + across, edges + n - across]))
    return np.where(label[:n] == label[n:], 2, label[n:] < label[:n])


def _join_all(n: int, edges: IntArray, apart: BoolArray | None) -> tuple[IntArray, IntArray, BoolArray]:
    """For every variable the smallest one of its component, its side beside that, and whether that is contradicted.

    The third answer is for the smallest variable of a component. Without ``apart`` all ends are on one side.
    """
    root = np.arange(n, dtype=np.int64)
    side = np.zeros(n, dtype=np.int64)
    broken = np.zeros(n, dtype=np.bool_)
    if apart is None:
        apart = np.zeros(len(edges), dtype=np.bool_)
    run_loop(_join, (*edge_ends(edges), apart), (root, side, broken), compiled=True)
    return root, side, broken


def _join(first: Any, second: Any, apart: Any, root: Any, side: Any, broken: Any) -> None:
    """Join the components of the ends of every edge: trees whose roots are their smallest variables.

    ``side`` is the side of a variable beside its parent, and in the end beside its root.

    1. Climb from both ends to their roots, and halve the paths on the way.
    2. Where the roots are one, compare the sides; else hang the larger root onto the smaller one.
    3. Let all variables point to their roots.
    """
    for e in range(len(first)):
        # 1. The roots.
        i = first[e]
        j = second[e]
        differ = 1 if apart[e] else 0
        while root[i] != i:
            side[i] ^= side[root[i]]
            root[i] = root[root[i]]
            differ ^= side[i]
            i = root[i]
        while root[j] != j:
            side[j] ^= side[root[j]]
            root[j] = root[root[j]]
            differ ^= side[j]
            j = root[j]
        # 2. The join.
        if i == j:
            if differ == 1:
                broken[i] = True
        else:
            low = min(i, j)
            high = max(i, j)
            root[high] = low
            side[high] = differ
            if broken[high]:
                broken[low] = True
    # 3. Parents are smaller, so that they point to their roots already.
    for v in range(len(root)):
        side[v] ^= side[root[v]]
        root[v] = root[root[v]]
