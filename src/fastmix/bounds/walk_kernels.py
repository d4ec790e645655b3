"""Compiled walks for :mod:`fastmix.bounds.walk_bounds`. Import it inside functions only: it needs Numba."""

from __future__ import annotations

import numpy as np

from fastmix._jit import njit
from fastmix.bounds.tuning import MAX_WALK_LENGTH

__all__ = ["follow_walks"]


@njit(cache=True, error_model="numpy")
def _log_cosh(x):
    """``log(2 cosh x)``, without overflow."""
    x = abs(x)
    return x + np.log1p(np.exp(-2.0 * x))


@njit(cache=True, error_model="numpy")
def _message(coupling, field):
    """``atanh(tanh J tanh h)``; infinite fields give +-J."""
    if abs(field) > 1e3 + abs(coupling):
        return coupling if field > 0.0 else -coupling
    return 0.5 * (_log_cosh(field + coupling) - _log_cosh(field - coupling))


@njit(cache=True, error_model="numpy")
def follow_walks(
    indptr,
    indices,
    couplings,
    low,
    high,
    mirror,
    reach,
    roots,
    threshold,
    max_nodes,
    path,
    out_low,
    out_high,
    out_nodes,
):
    """Write the interval of half the log-odds of every root, and the number of nodes of its tree of walks.

    A depth-first search goes through the self-avoiding walks from every root and adds up messages on its way back:

    1. A node without further neighbors sends its interval to its parent; the root's is the answer.
    2. The neighbor that the walk came from is left out.
    3. A neighbor that is on the walk closes a loop: its copy has a fixed state.
    4. A neighbor beyond which nothing matters, or nothing more may be visited, can be in any state: its field lies
       between what its own field and all its other neighbors together allow.
    5. Any other neighbor becomes the next node of the walk.

    ``low``, ``high`` and ``reach`` are by variable: the ends of its field, and the sum of its absolute couplings.
    ``mirror[k]`` is the entry of the other direction of the k-th. ``path`` is -1 everywhere, before and after.
    """
    depth_limit = min(len(low), MAX_WALK_LENGTH)
    node = np.empty(depth_limit + 1, dtype=np.int64)
    entry = np.empty(depth_limit + 1, dtype=np.int64)  # the next neighbor to look at
    taken = np.empty(depth_limit + 1, dtype=np.int64)  # the entry of the edge that the walk left by
    least = np.empty(depth_limit + 1)
    largest = np.empty(depth_limit + 1)
    weight = np.empty(depth_limit + 1)  # the product of tanh|J| along the walk
    for r in range(len(roots)):
        root = roots[r]
        depth = 0
        count = 1
        node[0] = root
        entry[0] = indptr[root]
        weight[0] = 1.0
        least[0] = low[root]
        largest[0] = high[root]
        path[root] = 0
        while True:
            v = node[depth]
            # 1. Back to the parent.
            if entry[depth] == indptr[v + 1]:
                path[v] = -1
                if depth == 0:
                    break
                depth -= 1
                coupling = couplings[taken[depth]]
                from_least = _message(coupling, least[depth + 1])
                from_largest = _message(coupling, largest[depth + 1])
                least[depth] += min(from_least, from_largest)
                largest[depth] += max(from_least, from_largest)
                continue
            e = entry[depth]
            entry[depth] += 1
            w = indices[e]
            coupling = couplings[e]
            # 2. No step back.
            if depth > 0 and w == node[depth - 1]:
                continue
            count += 1
            # 3. A closed loop: the copy is + if this edge comes after the one that the walk left w by.
            if path[w] >= 0:
                state = 1.0 if mirror[e] > taken[path[w]] else -1.0
                least[depth] += state * coupling
                largest[depth] += state * coupling
                continue
            # 4. The end of a walk.
            influence = weight[depth] * np.tanh(abs(coupling))
            if influence < threshold or count > max_nodes or depth + 1 > depth_limit - 1:
                others = reach[w] - abs(coupling)
                from_least = _message(coupling, low[w] - others)
                from_largest = _message(coupling, high[w] + others)
                least[depth] += min(from_least, from_largest)
                largest[depth] += max(from_least, from_largest)
                continue
            # 5. A step forward.
            taken[depth] = e
            depth += 1
            node[depth] = w
            entry[depth] = indptr[w]
            weight[depth] = influence
            least[depth] = low[w]
            largest[depth] = high[w]
            path[w] = depth
        out_low[r] = least[0]
        out_high[r] = largest[0]
        out_nodes[r] = count
