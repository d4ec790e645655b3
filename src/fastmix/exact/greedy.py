"""Compiled greedy elimination on a graph held as rows of bits."""

from __future__ import annotations

import numpy as np

from fastmix._jit import inner, outer

__all__ = ["eliminate", "strip_simplicial"]

_ONE = np.uint64(1)
_ZERO = np.uint64(0)
_M1, _M2 = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333)
_M4, _H01 = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x0101010101010101)
_S1, _S2, _S4, _S56 = np.uint64(1), np.uint64(2), np.uint64(4), np.uint64(56)


@inner
def _count(x):  # type: ignore[no-untyped-def]
    """Bits set in a word."""
    x = x - ((x >> _S1) & _M1)
    x = (x & _M2) + ((x >> _S2) & _M2)
    x = (x + (x >> _S4)) & _M4
    return np.int64((x * _H01) >> _S56)


@inner
def _members(row, out):  # type: ignore[no-untyped-def]
    """Places of the bits set in a row, and their number."""
    count = 0
    for w in range(len(row)):
        word = row[w]
        while word != _ZERO:
            low = word & (~word + _ONE)
            out[count] = 64 * w + _count(low - _ONE)
            count += 1
            word ^= low
    return count


@inner
def _fill(adjacency, v, around, degree):  # type: ignore[no-untyped-def]
    """Edges that eliminating v would add; ``around`` has its neighbors."""
    missing = 0
    for k in range(degree):
        u = around[k]
        for w in range(adjacency.shape[1]):
            missing += _count(adjacency[v, w] & ~adjacency[u, w])
    return (missing - degree) // 2  # a neighbor is not its own neighbor


@inner
def _remove(adjacency, v, around, degree):  # type: ignore[no-untyped-def]
    """Join the neighbors of v to each other and take v out."""
    words = adjacency.shape[1]
    for k in range(degree):
        u = around[k]
        for w in range(words):
            adjacency[u, w] |= adjacency[v, w]
        adjacency[u, u >> 6] &= ~(_ONE << np.uint64(u & 63))
        adjacency[u, v >> 6] &= ~(_ONE << np.uint64(v & 63))


@outer
def strip_simplicial(adjacency, order):  # type: ignore[no-untyped-def]
    """Eliminate, in place, variables whose neighbors are all joined, which is optimal; how many, first in ``order``."""
    n = len(adjacency)
    around = np.empty(n, np.int64)
    waiting, queue = np.ones(n, np.bool_), np.arange(n)
    gone = np.zeros(n, np.bool_)
    count, size = 0, n
    while size:
        size -= 1
        v = queue[size]
        waiting[v] = False
        if gone[v]:
            continue
        degree = _members(adjacency[v], around)
        if _fill(adjacency, v, around, degree) > 0:
            continue
        _remove(adjacency, v, around, degree)
        gone[v] = True
        order[count] = v
        count += 1
        for k in range(degree):  # only the neighbors of v lost a pair of neighbors that were not joined
            u = around[k]
            if not waiting[u]:
                waiting[u] = True
                queue[size] = u
                size += 1
    return count


@outer
def eliminate(start, logs, noise, weights, limit, order, patience=np.inf):  # type: ignore[no-untyped-def]
    """One greedy run: the entries of all tables.

    ``start`` (n, words) are rows of neighbors, ``logs`` (n,) those of the numbers of states, ``noise`` (n,) is added to
    the scores, of which the lowest is next: the ``weights`` are those of the log of the table, of the log of one plus
    the fill, of the fill, and of not having been in a separator yet. The run ends, with infinite entries, where the
    tables have more than ``limit``, or after ``patience`` words of rows have been read; ``order`` (n,) is filled.
    """
    n, words = start.shape
    adjacency = start.copy()
    around, other = np.empty(n, np.int64), np.empty(n, np.int64)
    score, size = np.empty(n), np.empty(n)
    alive = np.arange(n)
    touched = np.empty(words, np.uint64)
    outside = np.full(n, weights[3])
    by_fill = weights[1] != 0.0 or weights[2] != 0.0
    for v in range(n):
        degree = _members(adjacency[v], around)
        size[v] = logs[v]
        for k in range(degree):
            size[v] += logs[around[k]]
        score[v] = weights[0] * size[v] + noise[v] + outside[v]
        if by_fill:
            fill = _fill(adjacency, v, around, degree)
            score[v] += weights[1] * np.log(1.0 + fill) + weights[2] * fill
            patience -= degree * words
        if patience < 0.0:
            return np.inf
    total = 0.0
    for step in range(n):
        best = 0
        for k in range(1, n - step):
            if score[alive[k]] < score[alive[best]]:
                best = k
        v = alive[best]
        alive[best] = alive[n - step - 1]
        order[step] = v
        degree = _members(adjacency[v], around)
        total += np.exp(min(size[v], 700.0))
        if total > limit:
            return np.inf
        _remove(adjacency, v, around, degree)
        for w in range(words):  # whole rows would bring 3 s of compiling with them
            touched[w] = adjacency[v, w]
            if by_fill:
                for k in range(degree):
                    touched[w] |= adjacency[around[k], w]
        count = _members(touched, around)
        for k in range(count):
            u = around[k]
            inside = (adjacency[v, u >> 6] >> np.uint64(u & 63)) & _ONE != _ZERO
            if not inside and not by_fill:
                continue
            more = _members(adjacency[u], other)
            patience -= words + (more * words if by_fill else 0)
            if inside:
                outside[u] = 0.0
                size[u] = logs[u]
                for j in range(more):
                    size[u] += logs[other[j]]
            score[u] = weights[0] * size[u] + noise[u] + outside[u]
            if by_fill:
                fill = _fill(adjacency, u, other, more)
                score[u] += weights[1] * np.log(1.0 + fill) + weights[2] * fill
        if patience < 0.0:
            return np.inf
    return total
