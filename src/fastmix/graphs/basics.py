"""Checked edges, adjacency, connected components, colors and trees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from fastmix._arrays import BoolArray, IntArray
from fastmix._checks import as_array, as_edges, as_index, check_count, check_seed
from fastmix._clock import NO_LIMIT, Clock
from fastmix._memory import check_memory
from fastmix.errors import ModelError

__all__ = [
    "Adjacency", "adjacency", "build_adjacency", "canonical_edges", "check_coloring", "check_graph",
    "check_graph_memory", "check_size", "coloring", "connected_components", "covering_spanning_trees", "degeneracy",
    "label_components", "run_loop", "strip_leaves", "two_sides",
]  # fmt: skip

# Keys i * n + j must fit in int64, and indices of the double cover (2 n nodes) in the int32 of scipy.sparse.csgraph.
_MAX_VARIABLES = 2**30 - 1
_MOST_ESTIMATED = 2**100  # variables, the product of three sides: an estimate of their memory is no infinity
# Numbers in a graph up to which loops over it run in Python: that takes less time than loading the compiler.
_IN_PYTHON = 200_000


def check_size(name: str, value: object) -> int:
    """A number of variables or rows that was checked; ``name`` is for the message.

    More than can be numbered is refused for its memory first, where that is short, as all that is too large for it.
    """
    if isinstance(value, int) and _MAX_VARIABLES < value < _MOST_ESTIMATED:
        check_graph_memory(value, 0)
    return check_count(name, value, least=0, most=_MAX_VARIABLES, error=ModelError)


def check_graph_memory(num_variables: int, num_edges: float) -> None:
    """A :class:`fastmix.ResourceError` if a graph of this size cannot be built: 64 bytes per variable and edge."""
    check_memory(
        64.0 * (num_variables + num_edges),
        f"a graph of {num_variables} variables and {num_edges:.0f} edges",
        "build a smaller one",
    )


def check_graph(num_variables: object, edges: npt.ArrayLike) -> tuple[int, IntArray]:
    """The number of variables and the edges, if these are canonical."""
    n = check_size("num_variables", num_variables)
    pairs = as_edges(edges, n)
    check_graph_memory(n, len(pairs))
    bad = np.flatnonzero(pairs[:, 0] > pairs[:, 1])
    if bad.size:
        raise ModelError(
            f"edges must have i < j in each row, got {pairs[bad[0]].tolist()}; use canonical_edges(...) first"
        )
    keys = pairs[:, 0] * n + pairs[:, 1]
    bad = np.flatnonzero(keys[1:] <= keys[:-1])
    if bad.size:
        first, second = pairs[bad[0]].tolist(), pairs[bad[0] + 1].tolist()
        raise ModelError(
            f"edges must be sorted and unique, got {second} right after {first}; use canonical_edges(...) first"
        )
    return n, pairs


def canonical_edges(num_variables: int, pairs: npt.ArrayLike) -> IntArray:
    """Edges with ``i < j``, sorted and unique, from pairs in any order, direction and multiplicity.

    ``pairs`` have shape (k, 2), the edges (m, 2); a :class:`ModelError` if a pair is out of range or joins a variable
    to itself.

    Examples
    --------
    >>> canonical_edges(3, [(2, 0), (0, 1), (0, 2)]).tolist()
    [[0, 1], [0, 2]]
    """
    n = check_size("num_variables", num_variables)
    ends = as_edges(pairs, n)
    keys = np.sort(np.minimum(ends[:, 0], ends[:, 1]) * n + np.maximum(ends[:, 0], ends[:, 1]))
    keys = keys[np.diff(keys, prepend=-1) > 0]  # several times faster than np.unique
    return np.stack([keys // max(n, 1), keys % max(n, 1)], axis=1)


@dataclass(frozen=True, eq=False)
class Adjacency:
    """Neighbors of every variable in compressed rows.

    The neighbors of ``v``, ascending, are ``neighbors[indptr[v]:indptr[v + 1]]``, and ``edge_ids`` holds at the same
    places the row of ``edges`` each came from. In that row ``v`` is the first endpoint where ``v < neighbor``.

    Attributes
    ----------
    indptr : ndarray of int64, shape (n + 1,)
    neighbors, edge_ids : ndarray of int64, shape (2 m,)

    Examples
    --------
    >>> graph = adjacency(3, [(0, 1), (1, 2)])
    >>> graph.neighbors_of(1).tolist(), graph.degree.tolist()
    ([0, 2], [1, 2, 1])
    """

    indptr: IntArray
    neighbors: IntArray
    edge_ids: IntArray

    @property
    def num_variables(self) -> int:
        """Number of variables ``n``."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Number of edges ``m``."""
        return len(self.neighbors) // 2

    @property
    def degree(self) -> IntArray:
        """Number of neighbors of each variable, shape ``(n,)``."""
        return np.diff(self.indptr)

    @property
    def max_degree(self) -> int:
        """Largest number of neighbors; 0 without variables."""
        return int(self.degree.max(initial=0))

    def neighbors_of(self, variable: int) -> IntArray:
        """Neighbors of one variable, ascending (a view)."""
        variable = as_index("variable", variable, {}, self.num_variables)
        return self.neighbors[self.indptr[variable] : self.indptr[variable + 1]]


def adjacency(num_variables: int, edges: npt.ArrayLike) -> Adjacency:
    """Compressed adjacency of a graph.

    ``edges`` are canonical, shape (m, 2); a :class:`ModelError` if they are out of range or not canonical.

    Notes
    -----
    ``O(n + m log m)`` time, ``O(n + m)`` memory.

    Examples
    --------
    >>> graph = adjacency(3, [(0, 1), (0, 2)])
    >>> graph.indptr.tolist(), graph.neighbors.tolist(), graph.edge_ids.tolist()
    ([0, 2, 3, 4], [1, 2, 0, 0], [0, 1, 0, 1])
    """
    return build_adjacency(*check_graph(num_variables, edges))


def build_adjacency(n: int, edges: IntArray) -> Adjacency:
    """The same for edges that were checked."""
    low, high = edges.T
    # Edges are sorted: among the smaller neighbors of a variable, and among the larger ones, which come after them, the
    # order is right already, and a stable sort by the variable keeps it.
    owner = np.concatenate([high, low])
    order = np.argsort(owner, kind="stable")
    indptr = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(owner, minlength=n), out=indptr[1:])
    return Adjacency(indptr, np.concatenate([low, high])[order], order % max(len(edges), 1))


def connected_components(num_variables: int, edges: npt.ArrayLike) -> tuple[int, IntArray]:
    """Number of connected components and the component of each variable.

    Returns
    -------
    count : int
    labels : ndarray of int64, shape (n,)
        In ``0 .. count - 1``, numbered by their smallest variable.

    Examples
    --------
    >>> count, labels = connected_components(4, [(0, 2), (1, 3)])
    >>> count, labels.tolist()
    (2, [0, 1, 0, 1])
    """
    return label_components(*check_graph(num_variables, edges))


def label_components(n: int, edges: IntArray) -> tuple[int, IntArray]:
    """Roots of trees that grow together, the smallest variable of each; scipy would take half a second to load.

    In every round each root with smaller ones beside it is hung onto the smallest, and all paths are cut short. Two
    rounds leave at most half of the roots: one that nothing was hung onto has smaller ones beside it in the second.
    """
    root = np.arange(n, dtype=np.int64)
    i, j = edges[:, 0], edges[:, 1]
    while len(i):
        first, second = root[i], root[j]
        apart = np.flatnonzero(first != second)
        i, j, first, second = i[apart], j[apart], first[apart], second[apart]
        np.minimum.at(root, np.maximum(first, second), np.minimum(first, second))
        while not np.array_equal(higher := root[root], root):
            root = higher
    is_root = root == np.arange(n)
    return int(is_root.sum()), (np.cumsum(is_root) - 1)[root]


def two_sides(n: int, edges: IntArray, apart: BoolArray) -> IntArray:
    """The side, 0 or 1, of every variable: another one across edges that are ``apart``, the same across the others.

    The smallest variable of a component is on side 0; all variables of one where that cannot be are on side 2.
    """
    # Two copies of every variable, one for each side: edges join those that go together, and a contradiction both.
    across = np.stack([np.zeros(len(edges), dtype=np.int64), np.where(apart, n, 0)], axis=1)
    _, label = label_components(2 * n, np.concatenate([edges + across, edges + n - across]))
    return np.where(label[:n] == label[n:], 2, label[n:] < label[:n])


# -- colors, in which neighbors differ, and the degeneracy that bounds their number ------------------------------------


def degeneracy(num_variables: int, edges: npt.ArrayLike) -> int:
    """Largest minimum degree of a subgraph, a lower bound on the treewidth.

    Notes
    -----
    ``O(n + m)`` time and memory.

    Examples
    --------
    >>> from fastmix.graphs import complete_edges, grid_edges
    >>> degeneracy(9, grid_edges(3, 3)), degeneracy(5, complete_edges(5))
    (2, 4)
    """
    return peel(adjacency(num_variables, edges))[0]


def peel(graph: Adjacency) -> tuple[int, IntArray]:
    """Degeneracy, and an order in which each variable has at most that many neighbors after it."""
    n = graph.num_variables
    order, left = np.zeros(n, dtype=np.int64), np.arange(n)
    k = run_loop(_peel, (graph.indptr, graph.neighbors), (graph.degree, order, left))
    return int(k), order


def _peel(start: Any, neighbors: Any, degree: Any, order: Any, left: Any) -> Any:
    """Batagelj and Zaversnik's cores without buckets, in O(n + m).

    Variables of degree at most ``k`` are queued as they appear, and ``k`` grows only when the queue runs dry. A
    variable is rescanned no more often than its core number, which is at most its degree.
    """
    queued, count, k = 0, len(left), -1
    while True:
        kept = 0
        for p in range(count):
            if degree[left[p]] > k:
                left[kept] = left[p]
                kept += 1
        if kept == 0:
            return max(k, 0)
        count, k = kept, degree[left[0]]
        for p in range(count):
            k = min(k, degree[left[p]])
        done = queued
        for p in range(count):
            if degree[left[p]] == k:
                order[queued] = left[p]
                queued += 1
        while done < queued:
            v = order[done]
            done += 1
            for p in range(start[v], start[v + 1]):
                u = neighbors[p]
                if degree[u] > k:  # others are queued or gone
                    degree[u] -= 1
                    if degree[u] == k:
                        order[queued] = u
                        queued += 1


def coloring(num_variables: int, edges: npt.ArrayLike) -> IntArray:
    """Colors ``0, 1, ...`` such that neighbors differ, few of them.

    A bipartite component gets at most two colors; any other is colored greedily in smallest-last order, with at most
    ``degeneracy + 1`` colors.

    Returns
    -------
    ndarray of int64, shape (n,)

    Notes
    -----
    ``O(n + m)``; compiled for large graphs.

    Examples
    --------
    >>> from fastmix.graphs import cycle_edges
    >>> coloring(4, cycle_edges(4)).tolist(), sorted(coloring(3, cycle_edges(3)).tolist())
    ([0, 1, 0, 1], [0, 1, 2])
    """
    n, edges = check_graph(num_variables, edges)
    colors = two_sides(n, edges, np.ones(len(edges), dtype=bool))
    if (odd := colors == 2).any():
        graph = build_adjacency(n, edges)
        several, taken = np.full(n, -1), np.full(graph.max_degree + 2, -1)
        run_loop(_greedy, (graph.indptr, graph.neighbors, peel(graph)[1]), (several, taken))
        colors[odd] = several[odd]
    check_coloring(edges, colors)
    return colors


def _greedy(start: Any, neighbors: Any, order: Any, colors: Any, taken: Any) -> None:
    """The first color that no neighbor has, from the last of an order to the first."""
    for p in range(len(order) - 1, -1, -1):
        v = order[p]
        for q in range(start[v], start[v + 1]):
            if colors[neighbors[q]] >= 0:
                taken[colors[neighbors[q]]] = v
        c = 0
        while taken[c] == v:
            c += 1
        colors[v] = c


def check_coloring(edges: npt.ArrayLike, colors: npt.ArrayLike) -> None:
    """Raise unless no edge joins two variables of the same color.

    Raises
    ------
    ModelError
        If the colors are not a vector of non-negative integers, one for each variable, or two neighbors share one.

    Examples
    --------
    >>> check_coloring([(0, 1)], [0, 1])
    >>> check_coloring([(0, 1)], [2, 2])
    Traceback (most recent call last):
    fastmix.errors.ModelError: colors must differ along every edge, got 2 at both ends of edge [0, 1]
    """
    values = as_array("colors", colors, "be a vector of integers")
    if values.ndim != 1 or (values.size and not np.issubdtype(values.dtype, np.integer)):
        raise ModelError(f"colors must be a vector of integers, got dtype {values.dtype} and shape {values.shape}")
    if values.size and values.min() < 0:
        raise ModelError(f"colors must be non-negative, got {values.min()}")
    pairs = as_edges(edges, len(values))
    clash = np.flatnonzero(values[pairs[:, 0]] == values[pairs[:, 1]]) if len(pairs) else pairs
    if clash.size:
        i, j = pairs[clash[0]].tolist()
        raise ModelError(f"colors must differ along every edge, got {values[i]} at both ends of edge [{i}, {j}]")


# -- trees -----------------------------------------------------------------------------------------------------------


def covering_spanning_trees(
    num_variables: int, edges: npt.ArrayLike, seed: int, *, clock: Clock = NO_LIMIT
) -> list[IntArray]:
    """Random spanning forests that together contain every edge, each as places in ``edges``.

    Each prefers the edges not yet covered, in random order, so that at least one more is covered each time; the
    number of forests is close to the largest ratio of edges to nodes among subgraphs. At least one is returned.

    Returns
    -------
    list of ndarray of int64, each ascending

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
    """Variables of degree 0 or 1, removed until none is left, and the neighbor (or -1) of each when it was."""
    degree = np.bincount(edges.ravel(), minlength=n)
    leaves = np.flatnonzero(degree <= 1)
    queue, neighbor = np.full(n, -1), np.zeros(n, dtype=np.int64)
    if len(leaves):
        queue[: len(leaves)] = leaves
        # The exclusive-or of the neighbors that are left is, for a leaf, its one neighbor.
        for a, b in ((0, 1), (1, 0)):
            np.bitwise_xor.at(neighbor, edges[:, a], edges[:, b])
        count = run_loop(_strip, (len(leaves),), (queue, degree, neighbor))
        queue = queue[:count]
    return (removed := queue[queue >= 0]), neighbor[removed]


def _strip(count: int, queue: Any, degree: Any, neighbor: Any) -> int:
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


# -- loops ------------------------------------------------------------------------------------------------------------


def run_loop(
    loop: Callable[..., Any],
    inputs: tuple[Any, ...],
    changed: tuple[npt.NDArray[Any], ...],
    *,
    compiled: bool | None = None,
) -> Any:
    """What a plain loop over arrays gives; it changes some of them. Compiled, if nobody says, where the graph is large.

    So the same few lines serve graphs of ten variables, for which a compiler would take half a second to load, and of
    millions, on which Python would take seconds.
    """
    if compiled is None:
        compiled = sum(len(array) for array in (*inputs, *changed) if isinstance(array, np.ndarray)) > _IN_PYTHON
    if compiled:
        return _compiled(loop)(*inputs, *changed)
    lists = [array.tolist() for array in changed]
    result = loop(*(x.tolist() if isinstance(x, np.ndarray) else x for x in inputs), *lists)
    for array, values in zip(changed, lists, strict=True):
        array[:] = values
    return result


@cache
def _compiled(loop: Callable[..., Any]) -> Callable[..., Any]:
    from fastmix._jit import njit

    compiled: Callable[..., Any] = njit(cache=True, nogil=True, error_model="numpy")(loop)
    return compiled
