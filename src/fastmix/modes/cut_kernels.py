"""Compiled maximum flow between two terminals, by two trees that grow until they meet (Boykov and Kolmogorov 2004).

Arc ``2 e`` leads from the first end of edge e to its second, ``2 e + 1`` back; ``residual`` is what may still flow over
each. ``excess[i]`` is what may still flow from the source into i, or, if it is negative, from i into the sink. Every
node is free or in the tree of the source or in that of the sink; ``parent`` is its arc to the node before it.
"""

from __future__ import annotations

import numpy as np

from fastmix._jit import njit

__all__ = ["FREE", "arcs_of_nodes", "push_flow", "start_flow"]

FREE = -1  # instead of the arc to a parent: in neither tree
_ROOT = -2  # joined to a terminal
_ORPHAN = -3  # in a tree whose parent is lost, until another one is found
_FAR = 1 << 60
_ENOUGH = 32  # arcs of an orphan to look at for the nearest parent, once there is one: hubs have millions

# Places in the state of a search.
_CURRENT, _PLACE, _FIRST, _COUNT, _TIME = range(5)


@njit(cache=True, nogil=True)
def arcs_of_nodes(num_nodes, edges):
    """The arcs that leave each node, one node after another: where those of each begin, the arcs, and all heads."""
    indptr = np.zeros(num_nodes + 1, dtype=np.int64)
    heads = np.empty(2 * len(edges), dtype=np.int32)
    for e in range(len(edges)):
        heads[2 * e] = edges[e, 1]
        heads[2 * e + 1] = edges[e, 0]
        indptr[edges[e, 0] + 1] += 1
        indptr[edges[e, 1] + 1] += 1
    for i in range(num_nodes):
        indptr[i + 1] += indptr[i]
    place = indptr[:-1].copy()
    arcs = np.empty(2 * len(edges), dtype=np.int32)
    for a in range(2 * len(edges)):
        i = heads[a ^ 1]
        arcs[place[i]] = a
        place[i] += 1
    return indptr, arcs, heads


@njit(cache=True, nogil=True)
def start_flow(excess, parent, in_sink, time, distance, queue, waiting, state):
    """Put every node that is joined to a terminal into the tree of that terminal, and into the queue."""
    state[_CURRENT] = -1
    state[_PLACE] = 0
    state[_FIRST] = 0
    state[_COUNT] = 0
    state[_TIME] = 0
    for i in range(len(excess)):
        parent[i] = FREE
        time[i] = 0
        distance[i] = 1
        waiting[i] = False
        if excess[i] != 0.0:
            parent[i] = _ROOT
            in_sink[i] = excess[i] < 0.0
            _wait(i, queue, waiting, state)


@njit(cache=True, nogil=True)
def push_flow(
    budget, indptr, arcs, heads, residual, excess, parent, in_sink, time, distance, queue, waiting, starts, orphans,
    state,
):  # fmt: skip
    """Whether no path is left; flow is pushed until then, or until about as many arcs as the budget says were seen.

    ``arcs[indptr[i]:indptr[i + 1]]`` are those that leave node i. A call goes on where the one before it ended.
    """
    while budget > 0:
        i = state[_CURRENT]
        place = state[_PLACE]
        if i < 0 or parent[i] == FREE:
            i = -1
            while state[_COUNT] > 0 and i < 0:
                i = queue[state[_FIRST]]
                state[_FIRST] = state[_FIRST] + 1 if state[_FIRST] + 1 < len(queue) else 0
                state[_COUNT] -= 1
                waiting[i] = False
                if parent[i] == FREE:
                    i = -1
            if i < 0:
                state[_CURRENT] = -1
                return True
            place = indptr[i]
        middle = -1
        sink = in_sink[i]
        while place < indptr[i + 1] and middle < 0:
            a = arcs[place]
            budget -= 1
            open_arc = a ^ 1 if sink else a
            if residual[open_arc] > 0.0:
                j = heads[a]
                if parent[j] == FREE:
                    parent[j] = a ^ 1
                    in_sink[j] = sink
                    time[j] = time[i]
                    distance[j] = distance[i] + 1
                    _wait(j, queue, waiting, state)
                elif in_sink[j] != sink:
                    middle = open_arc
                elif time[j] <= time[i] and distance[j] > distance[i] + 1 and parent[j] >= 0:
                    parent[j] = a ^ 1
                    time[j] = time[i]
                    distance[j] = distance[i] + 1
            if middle < 0:
                place += 1
        state[_TIME] += 1
        # The same arc is looked at again: more may fit through it. Whoever loses a neighbor to freedom waits anew.
        state[_CURRENT] = i if middle >= 0 else -1
        state[_PLACE] = place
        if middle >= 0:
            count = _augment(middle, heads, residual, excess, parent, orphans)
            budget -= _adopt(
                count, indptr, arcs, heads, residual, parent, in_sink, time, distance, queue, waiting, starts, orphans,
                state,
            )  # fmt: skip
    return False


@njit(cache=True, nogil=True)
def _wait(i, queue, waiting, state):
    """Put a node at the end of the queue of those whose arcs are to be looked at, unless it is there."""
    if not waiting[i]:
        waiting[i] = True
        last = state[_FIRST] + state[_COUNT]
        queue[last if last < len(queue) else last - len(queue)] = i
        state[_COUNT] += 1


@njit(cache=True, nogil=True)
def _augment(middle, heads, residual, excess, parent, orphans):
    """Number of nodes left without a parent after pushing what fits through the path over an arc between the trees."""
    flow = residual[middle]
    i = heads[middle ^ 1]
    while parent[i] >= 0:
        flow = min(flow, residual[parent[i] ^ 1])
        i = heads[parent[i]]
    flow = min(flow, excess[i])
    i = heads[middle]
    while parent[i] >= 0:
        flow = min(flow, residual[parent[i]])
        i = heads[parent[i]]
    flow = min(flow, -excess[i])

    count = 0
    residual[middle] -= flow
    residual[middle ^ 1] += flow
    i = heads[middle ^ 1]
    while parent[i] >= 0:
        a = parent[i]
        residual[a] += flow
        residual[a ^ 1] -= flow
        following = heads[a]
        if residual[a ^ 1] <= 0.0:
            parent[i] = _ORPHAN
            orphans[count] = i
            count += 1
        i = following
    excess[i] -= flow
    if excess[i] <= 0.0:
        parent[i] = _ORPHAN
        orphans[count] = i
        count += 1
    i = heads[middle]
    while parent[i] >= 0:
        a = parent[i]
        residual[a] -= flow
        residual[a ^ 1] += flow
        following = heads[a]
        if residual[a] <= 0.0:
            parent[i] = _ORPHAN
            orphans[count] = i
            count += 1
        i = following
    excess[i] += flow
    if excess[i] >= 0.0:
        parent[i] = _ORPHAN
        orphans[count] = i
        count += 1
    return count


@njit(cache=True, nogil=True)
def _adopt(
    count, indptr, arcs, heads, residual, parent, in_sink, time, distance, queue, waiting, starts, orphans, state,
):  # fmt: skip
    """Number of arcs looked at to find new parents for orphans, the last ones first, or to set them free.

    ``starts`` is where the search of each node for a parent began last: what was worthless is not met first again.
    """
    work = 0
    now = state[_TIME]
    while count > 0:
        count -= 1
        i = orphans[count]
        sink = in_sink[i]
        first = indptr[i]
        size = indptr[i + 1] - first
        nearest = _FAR
        best = FREE
        place = starts[i]
        for step in range(size):
            a = arcs[first + place]
            if residual[a if sink else a ^ 1] > 0.0:
                j = heads[a]
                if in_sink[j] == sink and parent[j] != FREE:
                    far = 0
                    while True:  # to the root, or to what is known to be joined to it
                        if time[j] == now:
                            far += distance[j]
                            break
                        far += 1
                        work += 1
                        if parent[j] == _ROOT:
                            time[j] = now
                            distance[j] = 1
                            break
                        if parent[j] == _ORPHAN:
                            far = _FAR
                            break
                        j = heads[parent[j]]
                    if far < _FAR:
                        if far < nearest:
                            nearest = far
                            best = a
                            starts[i] = place
                        j = heads[a]
                        while time[j] != now:
                            time[j] = now
                            distance[j] = far
                            far -= 1
                            j = heads[parent[j]]
            work += 1
            if best != FREE and step >= _ENOUGH:
                break
            place = place + 1 if place + 1 < size else 0
        parent[i] = best
        if best != FREE:
            time[i] = now
            distance[i] = nearest + 1
            continue
        for place in range(first, first + size):
            a = arcs[place]
            j = heads[a]
            work += 1
            if in_sink[j] == sink and parent[j] != FREE:
                if residual[a if sink else a ^ 1] > 0.0:
                    _wait(j, queue, waiting, state)
                if parent[j] >= 0 and heads[parent[j]] == i:
                    parent[j] = _ORPHAN
                    orphans[count] = j
                    count += 1
    return work
