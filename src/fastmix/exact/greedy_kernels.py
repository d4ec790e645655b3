"""Compiled greedy elimination on a graph held as rows of bits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix._jit import inner, outer

__all__ = ["eliminate"]

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
# Counting the bits of a word in parallel (Warren 2012, Hacker's Delight, section 5-1): sums of 1, 2 and 4 bits under
# these masks, and a product whose highest byte is the sum of all bytes. All are uint64: mixed with
# signed integers Numba would make other types of words.
_PAIRS_OF_BITS = np.uint64(0x5555555555555555)
_HALF_BYTES = np.uint64(0x3333333333333333)
_BYTES = np.uint64(0x0F0F0F0F0F0F0F0F)
_SUM_OF_BYTES = np.uint64(0x0101010101010101)
_BY_1 = np.uint64(1)
_BY_2 = np.uint64(2)
_BY_4 = np.uint64(4)
_BY_56 = np.uint64(56)

_LARGEST_LOG = 700.0  # nats: exp of more is no finite number


@inner
def _count(x):
    """Number of bits set in a word."""
    x = x - ((x >> _BY_1) & _PAIRS_OF_BITS)
    x = (x & _HALF_BYTES) + ((x >> _BY_2) & _HALF_BYTES)
    x = (x + (x >> _BY_4)) & _BYTES
    return np.int64((x * _SUM_OF_BYTES) >> _BY_56)


@inner
def _members(row, out):
    """Write the places of the bits set in a row to ``out``, and return their number."""
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
def _fill(adjacency, v, around, degree):
    """Number of edges that eliminating v would add; ``around`` has its ``degree`` neighbors."""
    missing = 0
    for k in range(degree):
        u = around[k]
        for w in range(adjacency.shape[1]):
            missing += _count(adjacency[v, w] & ~adjacency[u, w])
    return (missing - degree) // 2  # a neighbor is not its own neighbor


@inner
def _remove(adjacency, v, around, degree):
    """Join the neighbors of v to each other and take v out."""
    words = adjacency.shape[1]
    for k in range(degree):
        u = around[k]
        for w in range(words):
            adjacency[u, w] |= adjacency[v, w]
        adjacency[u, u >> 6] &= ~(_ONE << np.uint64(u & 63))
        adjacency[u, v >> 6] &= ~(_ONE << np.uint64(v & 63))


def eliminate(
    start: NDArray[np.uint64],
    logs: FloatArray,
    noise: FloatArray,
    weights: FloatArray,
    limit: float,
    order: IntArray,
    patience: float = np.inf,
) -> float:
    """Total entries of all clique tables of one greedy elimination, whose order is written to ``order`` (n,).

    The variable with the lowest score is eliminated next. Its score is the sum of ``weights`` (4,) times the log of
    its clique table, the log of one plus its fill, its fill, and whether it has been in no separator yet, plus its
    ``noise`` (n,). ``start`` (n, words) are rows of neighbors, ``logs`` (n,) the logs of the numbers of states. The
    run is given up, with infinite entries, once the tables have more than ``limit`` entries or ``patience`` words of
    rows have been read.
    """
    n, words = start.shape
    # Made here: in compiled code every kind of array that is made takes 0.05 s to compile.
    whole_numbers = (np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64), np.arange(n))
    numbers = (np.empty(n), np.empty(n), np.full(n, weights[3]))
    touched = np.empty(words, dtype=np.uint64)
    total: float = _eliminate(
        start.copy(), logs, noise, weights, limit, order, patience, whole_numbers, numbers, touched
    )
    return total


@outer
def _eliminate(adjacency, logs, noise, weights, limit, order, patience, whole_numbers, numbers, touched):
    """Do what :func:`eliminate` says with rows of neighbors that are changed, and with room for numbers of n variables.

    1. The score of every variable.
    2. The variable of least score is eliminated: its neighbors are joined to each other.
    3. The scores of those that this changed: its neighbors, and with fill the neighbors of these.
    """
    n, words = adjacency.shape
    around, other, alive = whole_numbers
    score, size, outside = numbers
    by_fill = weights[1] != 0.0 or weights[2] != 0.0

    # 1. Scores.
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
        # 2. The elimination.
        best = 0
        for k in range(1, n - step):
            if score[alive[k]] < score[alive[best]]:
                best = k
        v = alive[best]
        alive[best] = alive[n - step - 1]
        order[step] = v
        degree = _members(adjacency[v], around)
        total += np.exp(min(size[v], _LARGEST_LOG))
        if total > limit:
            return np.inf
        _remove(adjacency, v, around, degree)

        # 3. Scores that change.
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
