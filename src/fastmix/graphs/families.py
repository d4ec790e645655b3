"""Edges of grids, complete graphs, paths, cycles and random graphs: int64 arrays (m, 2), canonical."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fastmix._arrays import IntArray
from fastmix._checks import as_array, as_float_array, check_count, check_flag, check_seed, describe
from fastmix.errors import ModelError
from fastmix.graphs.edges import canonical_edges, check_graph_memory, check_size

__all__ = [
    "complete_bipartite_edges", "complete_edges", "cubic_edges", "cycle_edges", "erdos_renyi_edges", "grid_edges",
    "hexagonal_edges", "path_edges", "random_regular_edges", "random_tree_edges", "triangular_edges",
]  # fmt: skip


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
    return lattice_edges({"rows": rows, "cols": cols}, [(0, 1), (1, 0)], torus)


def triangular_edges(rows: int, cols: int, torus: bool = False) -> IntArray:
    """Edges of a triangular lattice: a grid, see :func:`grid_edges`, with one diagonal in every square.

    Examples
    --------
    >>> triangular_edges(2, 2).tolist()
    [[0, 1], [0, 2], [0, 3], [1, 3], [2, 3]]
    """
    return lattice_edges({"rows": rows, "cols": cols}, [(0, 1), (1, 0), (1, 1)], torus)


def hexagonal_edges(rows: int, cols: int, torus: bool = False) -> IntArray:
    """Edges of a hexagonal lattice drawn as a wall of bricks: rows are paths, every other rung between them is there.

    On a torus both sides must be even.

    Examples
    --------
    >>> hexagonal_edges(2, 3).tolist()
    [[0, 1], [0, 3], [1, 2], [2, 5], [3, 4], [4, 5]]
    """
    rows = check_size("rows", rows)
    cols = check_size("cols", cols)
    if check_flag("torus", torus) and (rows % 2 or cols % 2):
        raise ModelError(f"rows and cols must be even for a hexagonal lattice on a torus, got {rows} and {cols}")
    edges = grid_edges(rows, cols, torus)
    r, c = np.divmod(edges[:, 0], cols)
    down = edges[:, 1] // cols
    upper = np.where((down - r) % max(rows, 1) == 1, r, down)  # the row from which a rung goes down
    return edges[(r == down) | ((upper + c) % 2 == 0)]


def cubic_edges(depth: int, rows: int, cols: int, torus: bool = False) -> IntArray:
    """Edges of a cubic lattice whose node at layer ``d``, row ``r``, column ``c`` is ``(d * rows + r) * cols + c``.

    Examples
    --------
    >>> len(cubic_edges(2, 2, 2)), len(cubic_edges(3, 3, 3, torus=True))
    (12, 81)
    """
    return lattice_edges({"depth": depth, "rows": rows, "cols": cols}, [(0, 0, 1), (0, 1, 0), (1, 0, 0)], torus)


def lattice_edges(box: dict[str, int], steps: Sequence[tuple[int, ...]], torus: bool = False) -> IntArray:
    """Edges that join every node of a box to the nodes at given steps from it, in the order of their numbers.

    ``box`` has the sides by name. On a torus steps go past the sides, where that makes new edges.
    """
    torus = check_flag("torus", torus)
    sizes = tuple(check_size(name, size) for name, size in box.items())
    n = check_size(" * ".join(box), math.prod(sizes))
    check_graph_memory(n, len(steps) * n)
    sides = np.array(sizes)[:, None]
    place = np.stack(np.unravel_index(np.arange(n), sizes)) if n else np.zeros((len(sizes), 0), dtype=np.int64)
    keep = np.empty((n, len(steps)), dtype=bool)
    other = np.empty((n, len(steps)), dtype=np.int64)
    for k, step in enumerate(steps):
        move = np.array(step)[:, None]
        target = place + move
        inside = (target >= 0) & (target < sides)
        if torus:
            inside |= (sides > 2) | (move == 0)
        keep[:, k] = inside.all(axis=0)
        other[:, k] = np.ravel_multi_index(tuple(target), sizes, mode="wrap") if n else 0
    tail, which = np.nonzero(keep)  # in order, but for edges that go past a side
    edges = np.stack([tail, other[tail, which]], axis=1)
    return canonical_edges(n, edges) if torus else edges


def complete_edges(num_variables: int) -> IntArray:
    """Edges of a complete graph: all pairs of variables.

    Examples
    --------
    >>> complete_edges(3).tolist()
    [[0, 1], [0, 2], [1, 2]]
    """
    n = check_size("num_variables", num_variables)
    check_graph_memory(n, n * (n - 1) / 2)
    return _pairs_from_index(n, np.arange(n * (n - 1) // 2, dtype=np.int64))


def complete_bipartite_edges(left: int, right: int) -> IntArray:
    """Edges of a complete bipartite graph: each of the first ``left`` variables with each of the next ``right``.

    Examples
    --------
    >>> complete_bipartite_edges(2, 2).tolist()
    [[0, 2], [0, 3], [1, 2], [1, 3]]
    """
    left = check_size("left", left)
    right = check_size("right", right)
    check_graph_memory(left + right, left * right)
    first = np.repeat(np.arange(left, dtype=np.int64), right)
    return np.stack([first, np.tile(np.arange(left, left + right, dtype=np.int64), left)], axis=1)


def path_edges(num_variables: int) -> IntArray:
    """Edges ``(v, v + 1)`` of a path.

    Examples
    --------
    >>> path_edges(3).tolist()
    [[0, 1], [1, 2]]
    """
    return grid_edges(1, check_size("num_variables", num_variables))


def cycle_edges(num_variables: int) -> IntArray:
    """Edges of a cycle through all variables in order; a path when there are fewer than three.

    Examples
    --------
    >>> cycle_edges(3).tolist()
    [[0, 1], [0, 2], [1, 2]]
    """
    return grid_edges(1, check_size("num_variables", num_variables), torus=True)


def erdos_renyi_edges(num_variables: int, probability: float, seed: int) -> IntArray:
    """Edges of a random graph in which each pair is joined independently with the same probability.

    Notes
    -----
    The gaps between chosen pairs are geometric, so time and memory are ``O(n + m)``, never ``O(n^2)``.

    Examples
    --------
    >>> len(erdos_renyi_edges(10, 1.0, seed=0)), len(erdos_renyi_edges(10, 0.0, seed=0))
    (45, 0)
    """
    n = check_size("num_variables", num_variables)
    p = math.nan
    if as_array("probability", probability, "be a number").ndim == 0:
        p = float(as_float_array("probability", probability))
    if not 0.0 <= p <= 1.0:
        raise ModelError(f"probability must be between 0 and 1, got {describe(probability)}")
    rng = np.random.default_rng(check_seed(seed))
    total = n * (n - 1) // 2
    check_graph_memory(n, total * p)
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


def _pairs_from_index(n: int, index: IntArray) -> IntArray:
    """Pairs ``i < j`` at the given places of the lexicographic list of all ``n (n - 1) / 2`` pairs."""
    node = np.arange(n, dtype=np.int64)
    starts = node * (2 * n - node - 1) // 2
    low = np.searchsorted(starts, index, side="right") - 1
    return np.stack([low, index - starts[low] + low + 1], axis=1)


def random_tree_edges(num_variables: int, seed: int) -> IntArray:
    """Edges of a tree drawn uniformly among the ``n^(n-2)`` labeled trees.

    Notes
    -----
    Aldous (1990): join node ``i`` to ``min(U, i - 1)``, ``U`` uniform on all nodes, then shuffle the labels. The law
    is that of a uniform Prüfer code, without its sequential decoding. ``O(n log n)``.

    Examples
    --------
    >>> len(random_tree_edges(5, seed=1))
    4
    """
    n = check_size("num_variables", num_variables)
    rng = np.random.default_rng(check_seed(seed))
    check_graph_memory(n, n)
    node = np.arange(1, max(n, 1), dtype=np.int64)
    parent = np.minimum(rng.integers(0, max(n, 1), size=len(node)), node - 1)
    label = rng.permutation(n)
    return canonical_edges(n, np.stack([label[node], label[parent]], axis=1))


def random_regular_edges(num_variables: int, degree: int, seed: int) -> IntArray:
    """Edges of a random simple graph in which every variable has the same number of neighbors.

    Parameters
    ----------
    num_variables : int
    degree : int
        Less than the number of variables; their product must be even.
    seed : int

    Raises
    ------
    ModelError
        If there is no such graph.

    Notes
    -----
    Half-edges are paired at random; loops and repeated edges are then switched with random other edges until none is
    left. The law is close to uniform for ``degree`` small against ``n``, not exactly uniform. Dense graphs are drawn
    as complements.

    Examples
    --------
    >>> from fastmix.graphs import adjacency
    >>> edges = random_regular_edges(10, 3, seed=0)
    >>> set(adjacency(10, edges).degree.tolist())
    {3}
    """
    n = check_size("num_variables", num_variables)
    d = check_count("degree", degree, least=0, error=ModelError)
    rng = np.random.default_rng(check_seed(seed))
    if d >= max(n, 1):
        raise ModelError(f"degree must be less than num_variables = {n}, got {d}")
    if n * d % 2:
        raise ModelError(f"num_variables * degree must be even, got {n} * {d}; change one of them by 1")
    check_graph_memory(n, n * d / 2)
    if 2 * d > n - 1:
        absent = _random_regular(n, n - 1 - d, rng)
        everything = complete_edges(n)
        keep = ~np.isin(everything[:, 0] * n + everything[:, 1], absent[:, 0] * n + absent[:, 1])
        return everything[keep]
    return _random_regular(n, d, rng)


def _random_regular(n: int, d: int, rng: np.random.Generator) -> IntArray:
    """Edges of a random simple graph of degree d: half-edges are paired anew until the switches make it simple."""
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
            new_first = key(i, k)
            new_second = key(j, l)
            if other == e or i == k or j == l or new_first == new_second or copies(new_first) or copies(new_second):
                continue
            for old in (key(i, j), key(k, l)):
                change[old] = change.get(old, 0) - 1
            for new in (new_first, new_second):
                change[new] = change.get(new, 0) + 1
            pairs[e] = (i, k)
            pairs[other] = (j, l)
        else:
            return False
    return True
