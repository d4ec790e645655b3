"""Compiled handling of forbidden pairs, and a heap. Import it inside functions only: it needs Numba.

The search for a configuration that is allowed, and the heap of changing keys, largest first, that it and residual
belief propagation use. The search takes the model as its state counts and offsets, its adjacency with the tables that
have forbidden pairs (``hard``; the others support everything), and where the entry of a pair lies
(:class:`fastmix.model.structure.Directed`).
"""

from __future__ import annotations

import numpy as np

from fastmix._jit import inner, outer

__all__ = ["find_configuration", "order_heap", "settle"]


@outer
def find_configuration(  # type: ignore[no-untyped-def]
    counts, offsets, indptr, neighbors, hard, starts, own_steps, other_steps, table, factors, scores, budget, states
):
    """Search for a configuration that nothing forbids: depth first, the variable with fewest states left next.

    A variable gets its best state by score; states of its neighbors that this forbids are taken away, and those that
    are left without support in a factor around it. ``factors`` are those around every variable
    (:class:`fastmix.model.structure.Incident`), which of them forbid something, and their scopes with where their
    tables begin. When a variable
    has none left, the last choice is undone and its state counts as refuted (Haralick and Elliott, 1980). 1 when a
    configuration was found, and is in ``states``; 0 when there is none; -1 when ``budget`` choices did not do.
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
    around, numbers, hard_factors, scope_starts, scope_variables, tables_at = factors
    widest, most = 0, 0
    for a in range(len(hard_factors)):
        widest = max(widest, scope_starts[a + 1] - scope_starts[a])
    for i in range(n):
        most = max(most, counts[i])
    digits, seen = np.empty(widest, np.int64), np.empty((widest, most), np.bool_)
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
        for p in range(indptr[i], indptr[i + 1]):
            j = neighbors[p]
            # A neighbor that has its state was looked at from the other side: its state left this one allowed.
            if not hard[p] or keys[j] == -np.inf:
                continue
            before = left[j]
            for b in range(counts[j]):
                k = offsets[j] + b
                if allowed[k] and table[starts[p] + best * own_steps[p] + b * other_steps[p]] == -np.inf:
                    size = _take_away(k, j, allowed, left, trail, owner, size)
            if left[j] < before:
                keys[j] = -left[j]
                settle(heap, place, keys, j)
            if left[j] == 0:
                possible = False
                break
        for f in range(around[i], around[i + 1]):
            a = numbers[f]
            if not possible or not hard_factors[a]:
                continue
            members = scope_variables[scope_starts[a] : scope_starts[a + 1]]
            values = table[tables_at[a] : tables_at[a + 1]]
            possible = _find_supports(members, values, counts, offsets, allowed, keys, states, digits, seen)
            for m in range(len(members)):
                j = members[m]
                if not possible or keys[j] == -np.inf:
                    continue
                before = left[j]
                for b in range(counts[j]):
                    k = offsets[j] + b
                    if allowed[k] and not seen[m, b]:
                        size = _take_away(k, j, allowed, left, trail, owner, size)
                if left[j] < before:
                    keys[j] = -left[j]
                    settle(heap, place, keys, j)
                possible = left[j] > 0
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


@inner
def _find_supports(members, values, counts, offsets, allowed, keys, states, digits, seen):  # type: ignore[no-untyped-def]
    """Mark in ``seen`` the states of a factor's members that some entry of its table supports; whether there are any.

    A member whose key is minus infinity has its state, the others those that are allowed.
    """
    seen[: len(members)] = False
    digits[: len(members)] = 0
    any_left = False
    for entry in range(len(values)):
        fits = values[entry] > -np.inf
        for m in range(len(members)):
            v = members[m]
            fits = fits and (digits[m] == states[v] if keys[v] == -np.inf else allowed[offsets[v] + digits[m]])
        if fits:
            any_left = True
            for m in range(len(members)):
                seen[m, digits[m]] = True
        for m in range(len(members) - 1, -1, -1):
            digits[m] += 1
            if digits[m] < counts[members[m]]:
                break
            digits[m] = 0
    return any_left


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
