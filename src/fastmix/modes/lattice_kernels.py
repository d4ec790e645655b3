"""Compiled maximum flow on lattices, whose arcs need no lists: by two trees, as in :mod:`fastmix.modes.cut_kernels`.

The arcs of a lattice lead from every node i to ``i + steps[d]``, for few directions d; those of an even number lead
upward, and ``d ^ 1`` is the way back. ``residual[D i + d]`` is what may still flow over an arc, 0 where the lattice has
none. Nodes are counted from ``pad``, the largest step, so that no arc leads out of the arrays. ``excess`` is what may
still flow from the source into a node, or, below 0, from it into the sink; ``parent`` the direction to the node before
it in its tree. ``stamps[2 i]`` tells when a node was last known to be joined to its terminal, and ``stamps[2 i + 1]``
how far it was from there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import BoolArray, IntArray
from fastmix._jit import inner, outer

__all__ = ["LatticeTrees", "differences_of", "missed_on_lattice", "push_on_lattice", "set_capacities", "start_trees"]

_FREE = -1  # instead of a direction: in neither tree
_ROOT = -2  # joined to a terminal
_ORPHAN = -3  # in a tree whose parent is lost, until another one is found
_FAR = 1 << 60

# Places in the state of a search.
_CURRENT, _FIRST, _COUNT, _TIME = range(4)


class LatticeTrees(NamedTuple):
    """The two trees of a search, what is known of their nodes, and those that are still to be looked at."""

    parent: NDArray[np.int8]
    in_sink: BoolArray
    stamps: IntArray
    queue: NDArray[np.int32]
    waiting: BoolArray
    orphans: NDArray[np.int32]
    state: IntArray

    @classmethod
    def empty(cls, num_places: int) -> LatticeTrees:
        """Room for trees over so many nodes."""
        flags: Any = [np.zeros(num_places, dtype=np.bool_) for _ in range(2)]
        lists: Any = [np.zeros(num_places, dtype=np.int32) for _ in range(2)]
        parent = np.full(num_places, _FREE, dtype=np.int8)
        stamps = np.zeros(2 * num_places, dtype=np.int64)
        return cls(parent, flags[0], stamps, lists[0], flags[1], lists[1], np.zeros(4, dtype=np.int64))

    def reached(self, pad: int, num_nodes: int) -> BoolArray:
        """Whether each node is in the tree of the source."""
        nodes = slice(pad, pad + num_nodes)
        return np.asarray((self.parent[nodes] != _FREE) & ~self.in_sink[nodes])


@outer
def differences_of(edges, most):
    """The different distances between the numbers of two ends, -1 alone where there are more than ``most``."""
    found = np.zeros(most, dtype=np.int64)
    count = 0
    for e in range(len(edges)):
        distance = abs(edges[e, 1] - edges[e, 0])
        k = 0
        while k < count and found[k] != distance:
            k += 1
        if k == count:
            if count == most:
                return np.full(1, -1, dtype=np.int64)
            found[count] = distance
            count += 1
    return found[:count]


@outer
def set_capacities(residual, steps, pad, edges, coupling):
    """Write the couplings of all edges, those of equal edges together, as capacities in both directions."""
    num_directions = len(steps)
    residual[:] = 0.0
    for e in range(len(edges)):
        low = min(edges[e, 0], edges[e, 1])
        high = max(edges[e, 0], edges[e, 1])
        d = 0
        while steps[d] != high - low:
            d += 2
        residual[num_directions * (pad + low) + d] += coupling[e]
        residual[num_directions * (pad + high) + d + 1] += coupling[e]


@outer
def start_trees(residual, excess, steps, pad, trees):
    """Push what fits over single arcs, then put every node that is joined to a terminal into its tree."""
    num_directions = len(steps)
    trees.parent[:] = _FREE
    trees.waiting[:] = False
    trees.stamps[:] = 0
    trees.state[:] = 0
    trees.state[_CURRENT] = -1
    for i in range(pad, len(excess) - pad):
        left = excess[i]
        d = 0
        while left > 0.0 and d < num_directions:
            j = i + steps[d]
            flow = min(residual[num_directions * i + d], left, -excess[j])
            if flow > 0.0:
                residual[num_directions * i + d] -= flow
                residual[num_directions * j + (d ^ 1)] += flow
                excess[j] += flow
                left -= flow
            d += 1
        if excess[i] > 0.0:
            excess[i] = left
    for i in range(pad, len(excess) - pad):
        if excess[i] != 0.0:
            trees.parent[i] = _ROOT
            trees.in_sink[i] = excess[i] < 0.0
            _wait(i, trees)


@outer
def push_on_lattice(budget, residual, excess, steps, trees):
    """Whether no path is left; flow is pushed until then, or until about as many arcs as the budget says were seen.

    1. The next node that waits, of those in a tree, grows it over its open arcs, until one leads to the other tree.
    2. Flow goes along the path that this arc closes.
    3. Whatever lost its parent finds another one, or is set free.

    A call goes on where the one before it ended.
    """
    parent = trees.parent
    state = trees.state
    while budget > 0:
        i = state[_CURRENT]
        if i < 0 or parent[i] == _FREE:
            i = _next(trees)
            if i < 0:
                return True
        # 1.
        middle = _grow(i, residual, steps, trees)
        budget -= len(steps)
        # The same node is looked at again: more may fit through it.
        state[_CURRENT] = i if middle >= 0 else -1
        if middle < 0:
            continue
        state[_TIME] += 1
        if trees.in_sink[i]:
            count = _augment(i + steps[middle], middle ^ 1, residual, excess, steps, trees)  # 2.
        else:
            count = _augment(i, middle, residual, excess, steps, trees)
        budget -= _adopt(count, residual, steps, trees)  # 3.
    return False


@inner
def _next(trees):
    """The next node that waits and is in a tree, -1 where there is none."""
    state = trees.state
    while state[_COUNT] > 0:
        i = trees.queue[state[_FIRST]]
        state[_FIRST] = state[_FIRST] + 1 if state[_FIRST] + 1 < len(trees.queue) else 0
        state[_COUNT] -= 1
        trees.waiting[i] = False
        if trees.parent[i] != _FREE:
            return np.int64(i)
    state[_CURRENT] = -1
    return np.int64(-1)


@inner
def _wait(i, trees):
    """Put a node at the end of the queue of those whose arcs are to be looked at, unless it is there."""
    if not trees.waiting[i]:
        trees.waiting[i] = True
        last = trees.state[_FIRST] + trees.state[_COUNT]
        trees.queue[last if last < len(trees.queue) else last - len(trees.queue)] = i
        trees.state[_COUNT] += 1


@inner
def _grow(i, residual, steps, trees):
    """The direction of an open arc to the other tree, or -1 once all neighbors that can be are in that of node i."""
    parent = trees.parent
    stamps = trees.stamps
    num_directions = len(steps)
    sink = trees.in_sink[i]
    for d in range(num_directions):
        j = i + steps[d]
        if residual[num_directions * j + (d ^ 1) if sink else num_directions * i + d] <= 0.0:
            continue
        is_free = parent[j] == _FREE
        if not is_free and trees.in_sink[j] != sink:
            return d
        is_nearer = stamps[2 * j] <= stamps[2 * i] and stamps[2 * j + 1] > stamps[2 * i + 1] + 1
        if is_free or (is_nearer and parent[j] >= 0):
            parent[j] = d ^ 1
            trees.in_sink[j] = sink
            stamps[2 * j] = stamps[2 * i]
            stamps[2 * j + 1] = stamps[2 * i + 1] + 1
        if is_free:
            _wait(j, trees)
    return -1


@inner
def _augment(start, middle, residual, excess, steps, trees):
    """Number of nodes left without a parent after pushing what fits over a path.

    It leads from the source down to node ``start``, over the arc in direction ``middle``, and from there to the sink.
    """
    parent = trees.parent
    orphans = trees.orphans
    num_directions = len(steps)
    flow = residual[num_directions * start + middle]
    i = start
    while parent[i] >= 0:
        before = i + steps[parent[i]]
        flow = min(flow, residual[num_directions * before + (parent[i] ^ 1)])
        i = before
    flow = min(flow, excess[i])
    i = start + steps[middle]
    while parent[i] >= 0:
        flow = min(flow, residual[num_directions * i + parent[i]])
        i += steps[parent[i]]
    flow = min(flow, -excess[i])

    count = 0
    residual[num_directions * start + middle] -= flow
    residual[num_directions * (start + steps[middle]) + (middle ^ 1)] += flow
    i = start
    while parent[i] >= 0:
        before = i + steps[parent[i]]
        arc = num_directions * before + (parent[i] ^ 1)
        residual[num_directions * i + parent[i]] += flow
        residual[arc] -= flow
        if residual[arc] <= 0.0:
            parent[i] = _ORPHAN
            orphans[count] = i
            count += 1
        i = before
    excess[i] -= flow
    if excess[i] <= 0.0:
        parent[i] = _ORPHAN
        orphans[count] = i
        count += 1
    i = start + steps[middle]
    while parent[i] >= 0:
        after = i + steps[parent[i]]
        arc = num_directions * i + parent[i]
        residual[num_directions * after + (parent[i] ^ 1)] += flow
        residual[arc] -= flow
        if residual[arc] <= 0.0:
            parent[i] = _ORPHAN
            orphans[count] = i
            count += 1
        i = after
    excess[i] += flow
    if excess[i] >= 0.0:
        parent[i] = _ORPHAN
        orphans[count] = i
        count += 1
    return count


@inner
def _adopt(count, residual, steps, trees):
    """Number of arcs looked at to find new parents for orphans, the last ones first, or to set them free."""
    parent = trees.parent
    in_sink = trees.in_sink
    stamps = trees.stamps
    orphans = trees.orphans
    num_directions = len(steps)
    now = trees.state[_TIME]
    work = 0
    while count > 0:
        count -= 1
        i = orphans[count]
        sink = in_sink[i]
        nearest = _FAR
        best = _FREE
        for d in range(num_directions):
            j = i + steps[d]
            if in_sink[j] != sink or parent[j] == _FREE:
                continue
            if residual[num_directions * i + d if sink else num_directions * j + (d ^ 1)] <= 0.0:
                continue
            far = 0
            while stamps[2 * j] != now and parent[j] >= 0:  # to the root, or to what is known to be joined to it
                far += 1
                j += steps[parent[j]]
            work += far
            if stamps[2 * j] == now:
                far += stamps[2 * j + 1]
            elif parent[j] == _ROOT:
                far += 1
                stamps[2 * j] = now
                stamps[2 * j + 1] = 1
            else:
                continue  # to an orphan
            if far < nearest:
                nearest = far
                best = d
            j = i + steps[d]
            while stamps[2 * j] != now:
                stamps[2 * j] = now
                stamps[2 * j + 1] = far
                far -= 1
                j += steps[parent[j]]
        work += num_directions
        parent[i] = best
        if best != _FREE:
            stamps[2 * i] = now
            stamps[2 * i + 1] = nearest + 1
            continue
        for d in range(num_directions):
            j = i + steps[d]
            if in_sink[j] != sink or parent[j] == _FREE:
                continue
            if residual[num_directions * i + d if sink else num_directions * j + (d ^ 1)] > 0.0:
                _wait(j, trees)
            if parent[j] >= 0 and j + steps[parent[j]] == i:
                parent[j] = _ORPHAN
                orphans[count] = j
                count += 1
    return work


@outer
def missed_on_lattice(gain, capacity, residual, excess, steps, pad, reached):
    """How far the capacity of a cut can be from the least, by the flow that was pushed, and the sum of all capacities.

    What flows out of the source is a lower bound, less what rounding lets the nodes swallow. The difference is a sum of
    what arcs out of the cut have left, and of what nodes swallow on the side of the sink or lack on that of the source:
    numbers that are all at least 0, and tiny where the flow is the largest.
    """
    num_directions = len(steps)
    missed = 0.0
    total = 0.0
    for k in range(len(gain)):
        i = pad + k
        entering = min(max(gain[k] - excess[i], min(gain[k], 0.0)), max(gain[k], 0.0))
        swallowed = entering
        for d in range(num_directions):
            limit = capacity[num_directions * i + d]
            if limit <= 0.0:
                continue
            total += 0.5 * limit  # of an arc and the way back
            flow = 0.5 * (residual[num_directions * (i + steps[d]) + (d ^ 1)] - residual[num_directions * i + d])
            flow = min(max(flow, -limit), limit)
            swallowed -= flow
            if reached[k] and not reached[k + steps[d]]:
                missed += limit - flow
        total += abs(gain[k])
        if reached[k]:
            missed += max(-gain[k], 0.0) + min(entering, 0.0) + max(-swallowed, 0.0)
        else:
            missed += max(gain[k], 0.0) - max(entering, 0.0) + max(swallowed, 0.0)
    return missed, total
