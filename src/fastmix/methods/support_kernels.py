"""Compiled handling of forbidden pairs, and a heap. Import it inside functions only: it needs Numba.

The search for a configuration that is allowed, and the heap of changing keys, largest first, that it and residual
belief propagation use. The search takes the model as its state counts and offsets, its adjacency, where the entry of a
pair lies (:class:`fastmix.model.structure.Directed`), and its factors (:class:`fastmix.model.structure.Incident`).
"""

from __future__ import annotations

import numpy as np

from fastmix._jit import inner, outer

__all__ = ["find_configuration", "order_heap", "settle"]


@outer
def find_configuration(  # type: ignore[no-untyped-def]
    counts, offsets, indptr, neighbors, hard, starts, own_steps, other_steps, table, hard_factors, incident, scores,
    budget, states,
):  # fmt: skip
    """Search for a configuration that nothing forbids: depth first, the variable with fewest states left next.

    A variable gets its best state by score; states that this forbids to the last variable of a pair or factor without
    one are taken away. When a variable has none left, the last choice is undone and its state counts as refuted
    (Haralick and Elliott, 1980). 1 when a configuration was found, and is in ``states``; 0 when there is none; -1 when
    ``budget`` choices did not do. ``hard`` and ``hard_factors`` are the pairs and factors that forbid something.
    """
    n = len(counts)
    allowed = np.ones(len(scores), np.bool_)
    left = counts.copy()
    # Fewest states first: keys are negative counts, and minus infinity once a variable has its state.
    keys = -counts.astype(np.float64)
    heap, place = np.arange(n), np.arange(n)
    order_heap(heap, place, keys)
    trail, owner = np.empty(len(scores), np.int64), np.empty(len(scores), np.int64)
    marks, chosen = np.empty(n, np.int64), np.empty(n, np.int64)
    size, depth = 0, 0
    around, _, factor_starts, factor_steps, member_starts, members, steps, _ = incident
    while depth < n:
        if budget == 0:
            return -1
        budget -= 1
        i = heap[0]
        best = -1
        for a in range(counts[i]):
            k = offsets[i] + a
            if allowed[k] and (best < 0 or scores[k] > scores[offsets[i] + best]):
                best = a
        chosen[depth], marks[depth], states[i] = i, size, best
        depth += 1
        keys[i] = -np.inf
        settle(heap, place, keys, i)
        possible = True
        num_pairs = indptr[i + 1] - indptr[i]
        for term in range(num_pairs + around[i + 1] - around[i]):
            p, f = indptr[i] + term, around[i] + term - num_pairs  # factors follow the neighbors
            num_open, j, at, step = 0, 0, 0, 0
            if term < num_pairs:
                if hard[p] and keys[neighbors[p]] > -np.inf:
                    num_open, j, step = 1, neighbors[p], other_steps[p]
                    at = starts[p] + best * own_steps[p]
            elif hard_factors[f]:
                at = factor_starts[f] + best * factor_steps[f]
                for m in range(member_starts[f], member_starts[f + 1]):
                    if keys[members[m]] == -np.inf:
                        at += states[members[m]] * steps[m]
                    else:
                        num_open, j, step = num_open + 1, members[m], steps[m]
            if num_open != 1:  # the last one open is looked at when the one before gets its state
                continue
            for b in range(counts[j]):
                if allowed[offsets[j] + b] and table[at + b * step] == -np.inf:
                    size = _take_away(offsets[j] + b, j, allowed, left, trail, owner, size)
            if keys[j] != -left[j]:
                keys[j] = -left[j]
                settle(heap, place, keys, j)
            if left[j] == 0:
                possible = False
                break
        while not possible:
            if depth == 0:
                return 0
            depth -= 1
            while size > marks[depth]:
                size -= 1
                allowed[trail[size]] = True
                j = owner[size]
                left[j] += 1
                if keys[j] > -np.inf:
                    keys[j] = -left[j]
                    settle(heap, place, keys, j)
            # The state is refuted as long as the choices before it stand.
            i = chosen[depth]
            size = _take_away(offsets[i] + states[i], i, allowed, left, trail, owner, size)
            keys[i] = -left[i]
            settle(heap, place, keys, i)
            possible = left[i] > 0
    return 1


@inner
def _take_away(k, i, allowed, left, trail, owner, size):  # type: ignore[no-untyped-def]
    """Disallow entry k, a state of variable i, and note that at the end of the trail, whose new length comes back."""
    allowed[k] = False
    trail[size], owner[size] = k, i
    left[i] -= 1
    return size + 1


# -- heap -------------------------------------------------------------------------------------------------------------
# ``heap`` holds items in the order of the heap, ``place`` the position of every item, ``keys`` the key of every item.


@inner
def _sink(heap, place, keys, at):  # type: ignore[no-untyped-def]
    """Four children each: half the levels of two, and those of an item lie side by side."""
    item = heap[at]
    key = keys[item]
    while 4 * at + 1 < len(heap):
        child, largest = 4 * at + 1, keys[heap[4 * at + 1]]
        for k in range(4 * at + 2, min(4 * at + 5, len(heap))):
            if keys[heap[k]] > largest:
                child, largest = k, keys[heap[k]]
        if largest <= key:
            break
        heap[at] = heap[child]
        place[heap[at]] = at
        at = child
    heap[at] = item
    place[item] = at


@inner
def order_heap(heap, place, keys):  # type: ignore[no-untyped-def]
    """Bring items in any order into that of a heap; ``place`` is written."""
    for at in range(len(heap)):
        place[heap[at]] = at
    for at in range((len(heap) + 2) // 4 - 1, -1, -1):
        _sink(heap, place, keys, at)


@inner
def settle(heap, place, keys, item):  # type: ignore[no-untyped-def]
    """Move one item whose key has changed to where it belongs; all others must be in order."""
    at, key = place[item], keys[item]
    while at > 0 and keys[heap[(at - 1) // 4]] < key:
        heap[at] = heap[(at - 1) // 4]
        place[heap[at]] = at
        at = (at - 1) // 4
    heap[at] = item
    _sink(heap, place, keys, at)
