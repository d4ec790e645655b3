"""Undirected graphs as arrays of edges: adjacency, families, colourings, cores and spanning trees.

Every graph is a number of variables ``n`` and an ``int64`` array of shape ``(m, 2)`` whose rows ``(i, j)`` have
``i < j``, are sorted lexicographically and appear once; :func:`canonical_edges` brings any list of pairs to this
form. Elimination orders are in :mod:`fastmix.elimination`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastmix.errors import ModelError

__all__ = [
    "Adjacency",
    "adjacency",
    "canonical_edges",
    "check_colouring",
    "colouring",
    "complete_bipartite_edges",
    "complete_edges",
    "connected_components",
    "covering_spanning_trees",
    "cycle_edges",
    "degeneracy",
    "erdos_renyi_edges",
    "grid_edges",
    "path_edges",
    "random_regular_edges",
    "random_spanning_tree_edges",
    "random_tree_edges",
]

IntArray = npt.NDArray[np.int64]

# Keys i * n + j must fit in int64, and indices of the double cover (2 n nodes) in the int32 of scipy.sparse.csgraph.
_MAX_VARIABLES = 2**30 - 1


# Variables and edges up to which a graph is searched in Python: faster than importing a sparse-matrix library.
_SEARCHED = 50_000


def _check_count(name: str, value: object, minimum: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ModelError(f"{name} must be an integer, got {value!r}")
    if not minimum <= value <= _MAX_VARIABLES:
        raise ModelError(f"{name} must be between {minimum} and {_MAX_VARIABLES}, got {value}")
    return int(value)


def _check_seed(seed: object) -> int:
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ModelError(f"seed must be a non-negative integer, got {seed!r}")
    return int(seed)


def _as_pairs(num_variables: int, edges: npt.ArrayLike) -> IntArray:
    pairs = np.asarray(edges)
    if pairs.size == 0:
        return np.zeros((0, 2), dtype=np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise ModelError(f"edges must have shape (m, 2), got {pairs.shape}")
    if not np.issubdtype(pairs.dtype, np.integer):
        raise ModelError(f"edges must be integers, got dtype {pairs.dtype}")
    pairs = pairs.astype(np.int64, copy=False)
    low, high = int(pairs.min()), int(pairs.max())
    if low < 0 or high >= num_variables:
        raise ModelError(f"edges must join variables 0 to {num_variables - 1}, got variable {low if low < 0 else high}")
    loops = np.flatnonzero(pairs[:, 0] == pairs[:, 1])
    if loops.size:
        raise ModelError(f"edges must join two different variables, got {pairs[loops[0]].tolist()}")
    return pairs


def _check_graph(num_variables: object, edges: npt.ArrayLike) -> tuple[int, IntArray]:
    n = _check_count("num_variables", num_variables)
    pairs = _as_pairs(n, edges)
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

    Parameters
    ----------
    num_variables : int
        Number of variables ``n``.
    pairs : array_like of int, shape (k, 2)
        Pairs of different variables.

    Returns
    -------
    ndarray of int64, shape (m, 2)

    Raises
    ------
    ModelError
        If a pair is out of range or joins a variable to itself.

    Examples
    --------
    >>> canonical_edges(3, [(2, 0), (0, 1), (0, 2)]).tolist()
    [[0, 1], [0, 2]]
    """
    n = _check_count("num_variables", num_variables)
    ends = _as_pairs(n, pairs)
    keys = np.sort(np.minimum(ends[:, 0], ends[:, 1]) * n + np.maximum(ends[:, 0], ends[:, 1]))
    keys = keys[np.diff(keys, prepend=-1) > 0]  # several times faster than np.unique
    return np.stack([keys // max(n, 1), keys % max(n, 1)], axis=1)


@dataclass(frozen=True, eq=False)
class Adjacency:
    """Neighbours of every variable in compressed rows.

    The neighbours of ``v``, ascending, are ``neighbors[indptr[v]:indptr[v + 1]]``, and ``edge_ids`` holds at the same
    places the row of ``edges`` each came from. In that row ``v`` is the first endpoint where ``v < neighbor``.

    Attributes
    ----------
    indptr : ndarray of int64, shape (n + 1,)
    neighbors, edge_ids : ndarray of int64, shape (2 m,)

    Examples
    --------
    >>> graph = adjacency(3, path_edges(3))
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
        """Number of neighbours of each variable, shape ``(n,)``."""
        return np.diff(self.indptr)

    @property
    def max_degree(self) -> int:
        """Largest number of neighbours; 0 without variables."""
        return int(self.degree.max(initial=0))

    def neighbors_of(self, variable: int) -> IntArray:
        """Neighbours of one variable, ascending (a view)."""
        return self.neighbors[self.indptr[variable] : self.indptr[variable + 1]]


def adjacency(num_variables: int, edges: npt.ArrayLike) -> Adjacency:
    """Compressed adjacency of a graph.

    Parameters
    ----------
    num_variables : int
        Number of variables ``n``.
    edges : array_like of int, shape (m, 2)
        Canonical edges.

    Returns
    -------
    Adjacency

    Raises
    ------
    ModelError
        If the edges are out of range or not canonical.

    Notes
    -----
    ``O(n + m log m)`` time, ``O(n + m)`` memory.

    Examples
    --------
    >>> graph = adjacency(3, [(0, 1), (0, 2)])
    >>> graph.indptr.tolist(), graph.neighbors.tolist(), graph.edge_ids.tolist()
    ([0, 2, 3, 4], [1, 2, 0, 0], [0, 1, 0, 1])
    """
    return _adjacency(*_check_graph(num_variables, edges))


def _adjacency(n: int, edges: IntArray) -> Adjacency:
    m = len(edges)
    low, high = edges[:, 0], edges[:, 1]
    smaller, larger = np.bincount(high, minlength=n), np.bincount(low, minlength=n)
    indptr = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(smaller + larger, out=indptr[1:])
    neighbors, edge_ids = np.empty(2 * m, dtype=np.int64), np.empty(2 * m, dtype=np.int64)
    ids = np.arange(m)
    # A row holds the smaller neighbours first. Edges are sorted by their low end, so the larger neighbours are in
    # place already; a stable sort by the high end puts the smaller ones in place, still ascending.
    place = ids + (indptr[:-1] + smaller - (np.cumsum(larger) - larger))[low]
    neighbors[place], edge_ids[place] = high, ids
    by_high = np.argsort(high, kind="stable")
    place = ids + (indptr[:-1] - (np.cumsum(smaller) - smaller))[high[by_high]]
    neighbors[place], edge_ids[place] = low[by_high], by_high
    return Adjacency(indptr, neighbors, edge_ids)


def grid_edges(rows: int, cols: int, torus: bool = False) -> IntArray:
    """Edges of a grid whose node in row ``r`` and column ``c`` is ``r * cols + c``.

    Parameters
    ----------
    rows, cols : int
        Sides of the grid.
    torus : bool
        Also join the last row to the first and the last column to the first. A side of 1 or 2 gets no wrapping
        edge, which would be a self-edge or a repeated one.

    Returns
    -------
    ndarray of int64, shape (m, 2)

    Examples
    --------
    >>> grid_edges(2, 2).tolist()
    [[0, 1], [0, 2], [1, 3], [2, 3]]
    >>> len(grid_edges(3, 3, torus=True))
    18
    """
    rows, cols = _check_count("rows", rows), _check_count("cols", cols)
    _check_count("rows * cols", rows * cols)
    node = np.arange(rows * cols, dtype=np.int64)
    row, col = np.divmod(node, max(cols, 1))
    # In each node's row the four candidates ascend, so keeping some of them needs no sort.
    offsets = np.array([1, cols - 1, cols, (rows - 1) * cols], dtype=np.int64)
    wrap_cols, wrap_rows = torus and cols > 2, torus and rows > 2
    keep = np.stack([col + 1 < cols, (col == 0) & wrap_cols, row + 1 < rows, (row == 0) & wrap_rows], axis=1)
    tail, which = np.nonzero(keep)
    return np.stack([tail, tail + offsets[which]], axis=1)


def _pairs_from_index(n: int, index: IntArray) -> IntArray:
    """Pairs ``i < j`` at the given places of the lexicographic list of all ``n (n - 1) / 2`` pairs."""
    node = np.arange(n, dtype=np.int64)
    starts = node * (2 * n - node - 1) // 2
    low = np.searchsorted(starts, index, side="right") - 1
    return np.stack([low, index - starts[low] + low + 1], axis=1)


def erdos_renyi_edges(num_variables: int, probability: float, seed: int) -> IntArray:
    """Edges of a random graph in which each pair is joined independently with the same probability.

    Parameters
    ----------
    num_variables : int
        Number of variables ``n``.
    probability : float
        Probability of each edge, in [0, 1].
    seed : int
        Seed of the generator.

    Returns
    -------
    ndarray of int64, shape (m, 2)

    Notes
    -----
    The gaps between chosen pairs are geometric, so time and memory are ``O(n + m)``, never ``O(n^2)``.

    Examples
    --------
    >>> len(erdos_renyi_edges(10, 1.0, seed=0)), len(erdos_renyi_edges(10, 0.0, seed=0))
    (45, 0)
    """
    n = _check_count("num_variables", num_variables)
    p = float(probability)
    if not 0.0 <= p <= 1.0:
        raise ModelError(f"probability must be between 0 and 1, got {probability}")
    rng = np.random.default_rng(_check_seed(seed))
    total = n * (n - 1) // 2
    if total == 0 or p == 0.0:
        return np.zeros((0, 2), dtype=np.int64)
    chunks: list[IntArray] = []
    last = -1
    while last < total:
        left = (total - last) * p
        gaps = np.minimum(rng.geometric(p, size=int(left + 6 * left**0.5) + 16), total + 1)
        places = last + np.cumsum(gaps)
        # The sum may wrap around, but only after a first place beyond the end, where reading stops.
        beyond = np.flatnonzero((places >= total) | (places < 0))
        chunks.append(places[: beyond[0]] if beyond.size else places)
        last = total if beyond.size else int(places[-1])
    return _pairs_from_index(n, np.concatenate(chunks))


def complete_edges(num_variables: int) -> IntArray:
    """All pairs of variables.

    Examples
    --------
    >>> complete_edges(3).tolist()
    [[0, 1], [0, 2], [1, 2]]
    """
    n = _check_count("num_variables", num_variables)
    return _pairs_from_index(n, np.arange(n * (n - 1) // 2, dtype=np.int64))


def complete_bipartite_edges(left: int, right: int) -> IntArray:
    """All pairs of one of the first ``left`` variables with one of the following ``right``.

    Examples
    --------
    >>> complete_bipartite_edges(2, 2).tolist()
    [[0, 2], [0, 3], [1, 2], [1, 3]]
    """
    left, right = _check_count("left", left), _check_count("right", right)
    first = np.repeat(np.arange(left, dtype=np.int64), right)
    return np.stack([first, np.tile(np.arange(left, left + right, dtype=np.int64), left)], axis=1)


def path_edges(num_variables: int) -> IntArray:
    """Edges ``(v, v + 1)`` of a path.

    Examples
    --------
    >>> path_edges(3).tolist()
    [[0, 1], [1, 2]]
    """
    return grid_edges(1, _check_count("num_variables", num_variables))


def cycle_edges(num_variables: int) -> IntArray:
    """Edges of a cycle through all variables in order; a path when there are fewer than three.

    Examples
    --------
    >>> cycle_edges(3).tolist()
    [[0, 1], [0, 2], [1, 2]]
    """
    return grid_edges(1, _check_count("num_variables", num_variables), torus=True)


def random_tree_edges(num_variables: int, seed: int) -> IntArray:
    """Edges of a tree drawn uniformly among the ``n^(n-2)`` labelled trees.

    Notes
    -----
    Aldous (1990): join node ``i`` to ``min(U, i - 1)``, ``U`` uniform on all nodes, then shuffle the labels. The law
    is that of a uniform Prüfer code, without its sequential decoding. ``O(n log n)``.

    Examples
    --------
    >>> len(random_tree_edges(5, seed=1))
    4
    """
    n = _check_count("num_variables", num_variables)
    rng = np.random.default_rng(_check_seed(seed))
    node = np.arange(1, max(n, 1), dtype=np.int64)
    parent = np.minimum(rng.integers(0, max(n, 1), size=len(node)), node - 1)
    label = rng.permutation(n)
    return canonical_edges(n, np.stack([label[node], label[parent]], axis=1))


def random_regular_edges(num_variables: int, degree: int, seed: int) -> IntArray:
    """Edges of a random simple graph in which every variable has the same number of neighbours.

    Parameters
    ----------
    num_variables, degree : int
        Number of variables ``n`` and of neighbours of each; ``degree < n`` and ``n * degree`` even.
    seed : int
        Seed of the generator.

    Returns
    -------
    ndarray of int64, shape (n * degree / 2, 2)

    Notes
    -----
    Half-edges are paired at random; loops and repeated edges are then switched with random other edges until none is
    left. The law is close to uniform for ``degree`` small against ``n``, not exactly uniform. Dense graphs are drawn
    as complements.

    Examples
    --------
    >>> edges = random_regular_edges(10, 3, seed=0)
    >>> set(adjacency(10, edges).degree.tolist())
    {3}
    """
    n, d = _check_count("num_variables", num_variables), _check_count("degree", degree)
    rng = np.random.default_rng(_check_seed(seed))
    if d >= max(n, 1):
        raise ModelError(f"degree must be less than num_variables = {n}, got {d}")
    if n * d % 2:
        raise ModelError(f"num_variables * degree must be even, got {n} * {d}; change one of them by 1")
    if 2 * d > n - 1:
        absent = _random_regular(n, n - 1 - d, rng)
        everything = complete_edges(n)
        keep = ~np.isin(everything[:, 0] * n + everything[:, 1], absent[:, 0] * n + absent[:, 1])
        return everything[keep]
    return _random_regular(n, d, rng)


def _random_regular(n: int, d: int, rng: np.random.Generator) -> IntArray:
    while True:
        pairs = rng.permutation(np.repeat(np.arange(n, dtype=np.int64), d)).reshape(-1, 2)
        if _switch_to_simple(n, pairs, rng):
            return canonical_edges(n, pairs)


def _switch_to_simple(n: int, pairs: IntArray, rng: np.random.Generator) -> bool:
    """Rewire loops and repeated edges in place by random switches; False when stuck."""
    keys = pairs.min(axis=1) * n + pairs.max(axis=1)
    by_key = np.argsort(keys, kind="stable")
    ordered = keys[by_key]
    repeated = by_key[1:][ordered[1:] == ordered[:-1]]
    loops = np.flatnonzero(pairs[:, 0] == pairs[:, 1])
    change: dict[int, int] = {}  # copies of an edge now, less those in `ordered`

    def key(i: int, j: int) -> int:
        return i * n + j if i < j else j * n + i

    def copies(k: int) -> int:
        return int(ordered.searchsorted(k, "right") - ordered.searchsorted(k)) + change.get(k, 0)

    for e in np.union1d(repeated, loops).tolist():
        for _ in range(200):
            i, j = pairs[e].tolist()
            if i != j and copies(key(i, j)) == 1:
                break
            other = int(rng.integers(len(pairs)))
            k, l = pairs[other].tolist()[:: 1 if rng.random() < 0.5 else -1]
            new_first, new_second = key(i, k), key(j, l)
            if other == e or i == k or j == l or new_first == new_second or copies(new_first) or copies(new_second):
                continue
            for old in (key(i, j), key(k, l)):
                change[old] = change.get(old, 0) - 1
            for new in (new_first, new_second):
                change[new] = change.get(new, 0) + 1
            pairs[e], pairs[other] = (i, k), (j, l)
        else:
            return False
    return True


def _sparse(n: int, edges: IntArray, data: npt.NDArray[Any] | None = None) -> Any:
    """Upper-triangular CSR matrix of the graph; edges are sorted, so no conversion is needed."""
    from scipy.sparse import csr_array

    indptr = np.zeros(n + 1, dtype=np.int32)  # what scipy.sparse.csgraph works with
    np.cumsum(np.bincount(edges[:, 0], minlength=n), out=indptr[1:])
    values = np.ones(len(edges)) if data is None else data
    return csr_array((values, edges[:, 1].astype(np.int32), indptr), shape=(n, n))


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
    return _components(*_check_graph(num_variables, edges))


def _components(n: int, edges: IntArray) -> tuple[int, IntArray]:
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


def _peel(graph: Adjacency) -> tuple[int, list[int]]:
    """Degeneracy, and an order in which each variable has at most that many neighbours after it.

    Batagelj and Zaversnik's cores without buckets: variables of degree at most ``k`` are queued as they appear, and
    ``k`` grows only when the queue runs dry. A variable is rescanned no more often than its core number, which is at
    most its degree, so O(n + m).
    """
    start, neighbors, degree = graph.indptr.tolist(), graph.neighbors.tolist(), graph.degree.tolist()
    order: list[int] = []
    left = list(range(graph.num_variables))
    k = -1
    while left:
        left = [v for v in left if degree[v] > k]
        if not left:
            break
        k = min([degree[v] for v in left])
        done = len(order)
        order += [v for v in left if degree[v] == k]
        while done < len(order):
            v = order[done]
            done += 1
            for u in neighbors[start[v] : start[v + 1]]:
                d = degree[u]
                if d > k:  # others are queued or gone
                    degree[u] = d - 1
                    if d - 1 == k:
                        order.append(u)
    return max(k, 0), order


def degeneracy(num_variables: int, edges: npt.ArrayLike) -> int:
    """Largest minimum degree of a subgraph, a lower bound on the treewidth.

    Notes
    -----
    ``O(n + m)`` time and memory.

    Examples
    --------
    >>> degeneracy(9, grid_edges(3, 3)), degeneracy(5, complete_edges(5))
    (2, 4)
    """
    return _peel(adjacency(num_variables, edges))[0]


def colouring(num_variables: int, edges: npt.ArrayLike) -> IntArray:
    """Colours ``0, 1, ...`` such that neighbours differ, few of them.

    A bipartite component gets at most two colours; any other is coloured greedily in smallest-last order, with at
    most ``degeneracy + 1`` colours.

    Returns
    -------
    ndarray of int64, shape (n,)

    Notes
    -----
    ``O(n + m)``; vectorised where the graph is bipartite.

    Examples
    --------
    >>> colouring(4, cycle_edges(4)).tolist(), sorted(colouring(3, cycle_edges(3)).tolist())
    ([0, 1, 0, 1], [0, 1, 2])
    """
    n, edges = _check_graph(num_variables, edges)
    if n == 0:
        return np.zeros(0, dtype=np.int64)
    graph = _adjacency(n, edges)
    colours, odd = _search_two_colours(graph) if n + len(edges) <= _SEARCHED else _cover_two_colours(graph)
    if odd.any():
        local = np.cumsum(odd) - 1
        if not odd.all():
            graph = _adjacency(int(odd.sum()), local[edges[odd[edges[:, 0]]]])
        colours[odd] = _greedy_colours(graph, _peel(graph)[1][::-1])
    check_colouring(edges, colours)
    return colours


def _search_two_colours(graph: Adjacency) -> tuple[IntArray, npt.NDArray[np.bool_]]:
    """Two colours by breadth-first search, the smallest variable of a component first, and who has an odd cycle."""
    start, neighbors = graph.indptr.tolist(), graph.neighbors.tolist()
    colours = [-1] * graph.num_variables
    odd = np.zeros(graph.num_variables, dtype=bool)
    for root in range(graph.num_variables):
        if colours[root] >= 0:
            continue
        colours[root] = 0
        component, is_odd = [root], False
        for v in component:
            other = 1 - colours[v]
            for u in neighbors[start[v] : start[v + 1]]:
                if colours[u] < 0:
                    colours[u] = other
                    component.append(u)
                elif colours[u] != other:
                    is_odd = True
        if is_odd:
            odd[component] = True
    return np.array(colours, dtype=np.int64), odd


def _cover_two_colours(graph: Adjacency) -> tuple[IntArray, npt.NDArray[np.bool_]]:
    """The same for large graphs, vectorised.

    Double cover: nodes v and v + n, edges (i, j + n) and (j, i + n). A bipartite component falls into two parts that
    separate its colour classes; any other stays connected.
    """
    n = graph.num_variables
    owner = np.repeat(np.arange(n), graph.degree)
    _, labels = _components(2 * n, np.stack([owner, graph.neighbors + n], axis=1))
    # Labels are numbered by smallest node, so the part with the smallest variable v itself comes first: colour 0.
    return (labels[:n] > labels[n:]).astype(np.int64), labels[:n] == labels[n:]


def _greedy_colours(graph: Adjacency, order: list[int]) -> list[int]:
    start, neighbors = graph.indptr.tolist(), graph.neighbors.tolist()
    colours = [-1] * graph.num_variables
    for v in order:
        taken = {colours[u] for u in neighbors[start[v] : start[v + 1]]}
        c = 0
        while c in taken:
            c += 1
        colours[v] = c
    return colours


def check_colouring(edges: npt.ArrayLike, colours: npt.ArrayLike) -> None:
    """Nothing, when no edge joins two variables of the same colour.

    Raises
    ------
    ModelError
        If the colours are not a vector of non-negative integers, one for each variable, or two neighbours share one.

    Examples
    --------
    >>> check_colouring([(0, 1)], [0, 1])
    >>> check_colouring([(0, 1)], [2, 2])
    Traceback (most recent call last):
    fastmix.errors.ModelError: colours must differ along every edge, got 2 at both ends of edge [0, 1]
    """
    values = np.asarray(colours)
    if values.ndim != 1 or (values.size and not np.issubdtype(values.dtype, np.integer)):
        raise ModelError(f"colours must be a vector of integers, got dtype {values.dtype} and shape {values.shape}")
    if values.size and values.min() < 0:
        raise ModelError(f"colours must be non-negative, got {values.min()}")
    pairs = _as_pairs(len(values), edges)
    if not len(pairs):
        return
    clash = np.flatnonzero(values[pairs[:, 0]] == values[pairs[:, 1]])
    if clash.size:
        i, j = pairs[clash[0]].tolist()
        raise ModelError(f"colours must differ along every edge, got {values[i]} at both ends of edge [{i}, {j}]")


def _strip_leaves(n: int, edges: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Variables of degree 0 or 1, removed until none is left: themselves, then neighbour and edge (or -1) of each."""
    degree_array = np.bincount(edges.ravel(), minlength=n)
    queue = np.flatnonzero(degree_array <= 1).tolist()
    if not queue:
        none = np.zeros(0, dtype=np.int64)
        return none, none, none
    # The exclusive-or of the neighbours that are left is, for a leaf, its one neighbour.
    pairs, ids = np.zeros((2, n), dtype=np.int64), np.arange(len(edges))
    for a, b in ((0, 1), (1, 0)):
        np.bitwise_xor.at(pairs[0], edges[:, a], edges[:, b])
        np.bitwise_xor.at(pairs[1], edges[:, a], ids)
    degree, neighbor, edge = degree_array.tolist(), pairs[0].tolist(), pairs[1].tolist()
    for v in queue:  # grows while it is read
        if degree[v]:
            u = neighbor[v]
            neighbor[u] ^= v
            edge[u] ^= edge[v]
            degree[u] -= 1
            if degree[u] == 1:
                queue.append(u)
        else:
            neighbor[v] = edge[v] = -1
    removed = np.array(queue, dtype=np.int64)
    return removed, np.array(neighbor, dtype=np.int64)[removed], np.array(edge, dtype=np.int64)[removed]


def random_spanning_tree_edges(num_variables: int, edges: npt.ArrayLike, seed: int, uniform: bool = True) -> IntArray:
    """Places in ``edges`` of a random spanning forest: a spanning tree of every connected component.

    Parameters
    ----------
    num_variables : int
        Number of variables ``n``.
    edges : array_like of int, shape (m, 2)
        Canonical edges.
    seed : int
        Seed of the generator.
    uniform : bool
        If true, every spanning forest has the same probability (Wilson's algorithm); if false, the minimum spanning
        forest of random weights, which is not uniform but takes ``O(m log m)`` on any graph.

    Returns
    -------
    ndarray of int64, ascending
        ``n`` less the number of components of them.

    Notes
    -----
    Wilson's algorithm takes a number of random steps like a mean hitting time: about ``n log n`` on grids and random
    graphs, but ``n^2`` on a long cycle. Trees hanging on the graph are taken beforehand and cost nothing.

    Examples
    --------
    >>> len(random_spanning_tree_edges(9, grid_edges(3, 3), seed=0))
    8
    """
    n, edges = _check_graph(num_variables, edges)
    rng = np.random.default_rng(_check_seed(seed))
    if not uniform:
        return _kruskal(n, edges, rng.permutation(len(edges)))
    removed, _, forced = _strip_leaves(n, edges)
    forced = forced[forced >= 0]
    if len(removed) == n:
        return np.sort(forced)
    return np.sort(np.concatenate([forced, _wilson(n, edges, removed, rng)]))


def _wilson(n: int, edges: IntArray, removed: IntArray, rng: np.random.Generator) -> IntArray:
    """Edges of a uniform spanning forest of what is left without the removed variables."""
    alive = np.ones(n, dtype=bool)
    alive[removed] = False
    core_ids = np.flatnonzero(alive[edges].all(axis=1))
    local = np.cumsum(alive) - 1
    graph = _adjacency(int(alive.sum()), local[edges[core_ids]])
    size = graph.num_variables
    _, labels = _components(size, local[edges[core_ids]])
    in_tree = np.zeros(size, dtype=bool)
    in_tree[np.unique(labels, return_index=True)[1]] = True  # one root in each component; any will do
    done, start, degree = in_tree.tolist(), graph.indptr.tolist(), graph.degree.tolist()
    neighbors = graph.neighbors.tolist()
    exit_place = [-1] * size  # last step of the walk out of each node; overwriting it erases loops
    chosen: list[int] = []
    draws: list[float] = []
    for root in range(size):
        v = root
        while not done[v]:
            if not draws:
                draws = rng.random(65536 if size > 4096 else 16 * size).tolist()
            place = start[v] + int(draws.pop() * degree[v])
            exit_place[v] = place
            v = neighbors[place]
        v = root
        while not done[v]:
            done[v] = True
            place = exit_place[v]
            chosen.append(place)
            v = neighbors[place]
    return core_ids[graph.edge_ids[np.array(chosen, dtype=np.int64)]]


def _kruskal(n: int, edges: IntArray, ranking: IntArray) -> IntArray:
    """Places of the spanning forest that prefers edges early in the ranking (a permutation of the places)."""
    if not len(edges):
        return np.zeros(0, dtype=np.int64)
    from scipy.sparse.csgraph import minimum_spanning_tree

    weight = np.empty(len(edges))
    weight[ranking] = np.arange(1, len(edges) + 1)  # a weight of 0 would be no edge
    forest = minimum_spanning_tree(_sparse(n, edges, weight))
    return np.sort(ranking[forest.data.astype(np.int64) - 1])


def covering_spanning_trees(num_variables: int, edges: npt.ArrayLike, seed: int) -> list[IntArray]:
    """Random spanning forests that together contain every edge, each as places in ``edges``.

    Each prefers the edges not yet covered, in random order, so that at least one more is covered each time; the
    number of forests is close to the largest ratio of edges to nodes among subgraphs. At least one is returned.

    Returns
    -------
    list of ndarray of int64, each ascending

    Examples
    --------
    >>> trees = covering_spanning_trees(4, complete_edges(4), seed=0)
    >>> sorted(set(np.concatenate(trees).tolist()))
    [0, 1, 2, 3, 4, 5]
    """
    n, edges = _check_graph(num_variables, edges)
    rng = np.random.default_rng(_check_seed(seed))
    covered = np.zeros(len(edges), dtype=bool)
    trees: list[IntArray] = []
    while not trees or not covered.all():
        shuffled = rng.permutation(len(edges))
        tree = _kruskal(n, edges, np.concatenate([shuffled[~covered[shuffled]], shuffled[covered[shuffled]]]))
        covered[tree] = True
        trees.append(tree)
    return trees
