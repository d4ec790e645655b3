"""Compiled search for a configuration that nothing forbids. Import it inside functions only: it needs Numba.

It takes the model as its state counts and offsets, its adjacency, where the entry of a
pair lies (:class:`fastmix.model.structure.Directed`), and its factors (:class:`fastmix.model.structure.Incident`).
"""

from __future__ import annotations

import numpy as np

from fastmix._jit import inner, outer
from fastmix.modes.heap_kernels import order_heap, settle

__all__ = ["find_configuration"]


@outer
def find_configuration(
    counts, offsets, indptr, neighbors, hard, starts, own_steps, other_steps, table, hard_factors, incident, scores,
    budget, states,
):  # fmt: skip
    """1 when a configuration was found that nothing forbids, 0 when there is none, -1 when the budget was too small.

    The search goes depth first, the variable with fewest states left next.

    A variable gets its best state by score; states that this forbids to the last variable of a pair or factor without
    one are taken away. When a variable has none left, the last choice is undone and its state counts as refuted
    (Haralick and Elliott, 1980). What was found is in ``states``; ``budget`` is the number of choices at most; ``hard``
    and ``hard_factors`` are the pairs and factors that forbid something.
    """
    n = len(counts)
    allowed = np.ones(len(scores), np.bool_)
    left = counts.copy()
    # Fewest states first: keys are negative counts, and minus infinity once a variable has its state.
    keys = -counts.astype(np.float64)
    heap = np.arange(n)
    place = np.arange(n)
    order_heap(heap, place, keys)
    # States that were taken away, in order, and the variables whose they are.
    trail = np.empty(len(scores), np.int64)
    owner = np.empty(len(scores), np.int64)
    size = 0
    # The variables that have a state, in order, and how long the trail was before each of these choices.
    chosen = np.empty(n, np.int64)
    marks = np.empty(n, np.int64)
    depth = 0
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
        chosen[depth] = i
        marks[depth] = size
        states[i] = best
        depth += 1
        keys[i] = -np.inf
        settle(heap, place, keys, i)
        possible = True
        num_pairs = indptr[i + 1] - indptr[i]
        for term in range(num_pairs + around[i + 1] - around[i]):
            p = indptr[i] + term
            f = around[i] + term - num_pairs  # factors follow the neighbors
            # The variables of the term without a state, the last of them, and where its entries are in the table.
            num_open = 0
            j = 0
            at = 0
            step = 0
            if term < num_pairs:
                if hard[p] and keys[neighbors[p]] > -np.inf:
                    num_open = 1
                    j = neighbors[p]
                    step = other_steps[p]
                    at = starts[p] + best * own_steps[p]
            elif hard_factors[f]:
                at = factor_starts[f] + best * factor_steps[f]
                for m in range(member_starts[f], member_starts[f + 1]):
                    if keys[members[m]] == -np.inf:
                        at += states[members[m]] * steps[m]
                    else:
                        num_open += 1
                        j = members[m]
                        step = steps[m]
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
def _take_away(k, i, allowed, left, trail, owner, size):
    """The new length of the trail, after entry k, a state of variable i, is disallowed and noted at its end."""
    allowed[k] = False
    trail[size] = k
    owner[size] = i
    left[i] -= 1
    return size + 1
