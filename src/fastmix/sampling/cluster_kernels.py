"""Compiled Swendsen-Wang sweeps and Houdayer moves of clusters. Import it inside functions only: it needs Numba.

A sweep draws bonds, with a random number for every edge, and then clusters in the order of their smallest variables,
with two numbers for each that has a choice: the draws do not depend on how clusters are found. That is by Rem's
union-find (Patwary, Blair and Manne 2010): every variable points to one that is not larger, and of two pointers that
differ the larger is moved to the smaller on the way up. The root is the smallest variable of its cluster, and one pass
in ascending order points all variables to their roots.
"""

from __future__ import annotations

import math

import numpy as np

from fastmix._jit import inner, outer
from fastmix.chains.random_kernels import next_number, next_uniform

__all__ = ["exchange_clusters", "sweep_clusters"]

_BLOCK = 1024  # edges whose bonds are drawn before their ends are united: the list stays in the first cache


@inner
def _unite(parent, i, j):
    """Make i and j members of one cluster."""
    p = parent[i]
    q = parent[j]
    while p != q:
        if p > q:
            parent[i] = q
            if p == i:
                return
            i = np.uint64(p)
            p = parent[i]
        else:
            parent[j] = p
            if q == j:
                return
            j = np.uint64(q)
            q = parent[j]


@inner
def _bond(heads, tails, thresholds, x, parent, bonds, random):
    """Draw the bonds given the states and point every variable toward the smallest of its cluster."""
    for i in range(len(parent)):
        parent[i] = i
    s0 = random[0]
    s1 = random[1]
    s2 = random[2]
    s3 = random[3]
    for start in range(0, len(heads), _BLOCK):
        # Without branches, which nobody could predict: an edge is noted always, but counted only if it holds.
        count = np.uint64(0)
        for e in range(np.uint64(start), np.uint64(min(start + _BLOCK, len(heads)))):
            number, s0, s1, s2, s3 = next_number(s0, s1, s2, s3)
            bonds[count] = e
            count += np.uint64((x[heads[e]] == x[tails[e]]) & (number < thresholds[e]))
        for k in range(count):
            e = bonds[k]
            _unite(parent, np.uint64(heads[e]), np.uint64(tails[e]))
    random[0] = s0
    random[1] = s1
    random[2] = s2
    random[3] = s3


@inner
def _assign_binary(fields, x, parent, work, random, sums, collect):
    """Draw the states of the clusters, all variables binary, and add the probabilities of state 0 to the sums."""
    for i in range(np.uint64(len(parent))):
        root = parent[np.uint64(parent[i])]  # what i points to is smaller, hence points to its root already
        parent[i] = root
        if root == i:
            work[i] = fields[i]
        else:
            work[root] += fields[i]
    s0 = random[0]
    s1 = random[1]
    s2 = random[2]
    s3 = random[3]
    for i in range(np.uint64(len(parent))):
        root = parent[i]
        if root == i:
            z = math.exp(-abs(work[i]))
            probability = (1.0 if work[i] >= 0.0 else z) / (1.0 + z)
            uniform, s0, s1, s2, s3 = next_uniform(s0, s1, s2, s3)
            x[i] = 0 if uniform < probability else 1
            work[i] = probability
        else:
            x[i] = x[root]
        if collect:
            sums[2 * i] += work[root]
    random[0] = s0
    random[1] = s1
    random[2] = s2
    random[3] = s3


@inner
def _assign_general(offsets, log_unary, x, parent, work, random, sums, collect):
    """Draw the states of the clusters and add the probabilities of all their states to the sums."""
    for i in range(len(parent)):
        root = parent[parent[i]]
        parent[i] = root
        begin = offsets[i]
        target = offsets[root]
        for s in range(offsets[i + 1] - begin):
            if root == i:
                work[target + s] = log_unary[begin + s]
            else:
                work[target + s] += log_unary[begin + s]
    s0 = random[0]
    s1 = random[1]
    s2 = random[2]
    s3 = random[3]
    for i in range(len(parent)):
        root = parent[i]
        begin = offsets[i]
        source = offsets[root]
        num_states = offsets[i + 1] - begin
        if root == i:
            top = work[begin]
            for s in range(1, num_states):
                top = max(top, work[begin + s])
            total = 0.0
            for s in range(num_states):
                work[begin + s] = math.exp(work[begin + s] - top)
                total += work[begin + s]
            state = 0
            if num_states > 1:
                uniform, s0, s1, s2, s3 = next_uniform(s0, s1, s2, s3)
                level = uniform * total
                passed = 0.0
                for s in range(num_states):
                    if work[begin + s] > 0.0:
                        state = s  # the last possible one, should the level be rounded up to the total
                        passed += work[begin + s]
                        if level < passed:
                            break
            for s in range(num_states):
                work[begin + s] /= total
            x[i] = state
        else:
            x[i] = x[root]
        if collect:
            for s in range(num_states):
                sums[begin + s] += work[source + s]
    random[0] = s0
    random[1] = s1
    random[2] = s2
    random[3] = s3


@outer
def sweep_clusters(
    heads, tails, thresholds, offsets, log_unary, fields, states, random_states, sums, first, last, num_sweeps, collect
):
    """Sweeps of the chains from ``first`` to ``last - 1``.

    ``heads`` and ``tails`` (m,) are the ends of the edges, ``thresholds`` (m,) the probabilities of a bond between
    equal ends; log-potentials are flat, with offsets (n + 1,) of the variables, and may be -inf. With ``collect`` the
    probabilities of the states given the bonds are added to ``sums`` (num_chains, entries). If all variables are
    binary, ``fields`` (n,) has log-potentials of state 0 less those of state 1, and those of state 0 alone are added;
    otherwise it is empty.
    """
    n = len(offsets) - 1
    parent = np.empty(n, np.uint32)
    work = np.empty(len(log_unary))
    bonds = np.empty(_BLOCK, np.uint64)
    for c in range(first, last):
        x = states[c]
        random = random_states[c]
        row = sums[c]
        for _ in range(num_sweeps):
            _bond(heads, tails, thresholds, x, parent, bonds, random)
            if len(fields):
                _assign_binary(fields, x, parent, work, random, row, collect)
            else:
                _assign_general(offsets, log_unary, x, parent, work, random, row, collect)


@outer
def exchange_clusters(x, num_ladders, indptr, neighbors, streams):
    """Exchange, with probability 1/2 each, the clusters in which ladders 2 p and 2 p + 1 differ at the same rung.

    ``x`` (n, K * C) has C ladders of K rungs; of the streams (4, K * C) those of even ladders are used.
    """
    n, width = x.shape
    differs = np.empty(n, np.uint8)
    stack = np.empty(n, np.int32)
    for k in range(width // num_ladders):
        for c in range(0, num_ladders, 2):
            lane = k * num_ladders + c
            s0 = streams[0, lane]
            s1 = streams[1, lane]
            s2 = streams[2, lane]
            s3 = streams[3, lane]
            for i in range(n):
                differs[i] = x[i, lane] != x[i, lane + 1]
            for i in range(n):
                if differs[i] == 0:
                    continue
                u, s0, s1, s2, s3 = next_number(s0, s1, s2, s3)
                moves = (u & 65536) != 0  # any bit will do
                differs[i] = 0
                stack[0] = i
                # members of the cluster so far, and the first of them not yet looked at
                first = 0
                last = 1
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
            streams[0, lane] = s0
            streams[1, lane] = s1
            streams[2, lane] = s2
            streams[3, lane] = s3
