"""Houdayer moves, compiled: exchange of clusters between two ladders, rung by rung."""

from __future__ import annotations

import numpy as np

from fastmix._jit import njit
from fastmix.chains.kernels import _next

__all__ = ["exchange_clusters"]


@njit(cache=True, nogil=True, error_model="numpy")
def exchange_clusters(x, num_ladders, first_rung, indptr, neighbors, streams, counts):  # type: ignore[no-untyped-def]
    """Exchange, with probability 1/2 each, the clusters in which ladders 2 p and 2 p + 1 differ at the same rung.

    ``x`` (n, K * C) has C ladders of K rungs; those below ``first_rung`` are left alone, and the streams (4, K * C) of
    even ladders are used. ``counts`` (K, 3) get, for every rung, the pairs looked at, the sites that differ, and how
    many of them are in the largest cluster.
    """
    n, width = x.shape
    differs, stack = np.empty(n, np.uint8), np.empty(n, np.int32)
    for k in range(first_rung, width // num_ladders):
        for c in range(0, num_ladders, 2):
            lane = k * num_ladders + c
            a, b, d, e = streams[0, lane], streams[1, lane], streams[2, lane], streams[3, lane]
            total, largest = 0, 0
            for i in range(n):
                differs[i] = x[i, lane] != x[i, lane + 1]
            for i in range(n):
                if differs[i] == 0:
                    continue
                u, a, b, d, e = _next(a, b, d, e)
                moves = (u & 65536) != 0  # any bit will do
                differs[i] = 0
                stack[0] = i
                first, last = 0, 1  # members of the cluster so far, and the first of them not yet looked at
                while first < last:
                    j = stack[first]
                    first += 1
                    if moves:
                        x[j, lane], x[j, lane + 1] = x[j, lane + 1], x[j, lane]
                    for place in range(indptr[j], indptr[j + 1]):
                        other = neighbors[place]
                        if differs[other]:
                            differs[other] = 0
                            stack[last] = other
                            last += 1
                total += last
                largest = max(largest, last)
            counts[k, 0] += 1
            counts[k, 1] += total
            counts[k, 2] += largest
            streams[0, lane], streams[1, lane], streams[2, lane], streams[3, lane] = a, b, d, e
