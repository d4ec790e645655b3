"""Compiled loops of :mod:`fastmix.methods.swendsen_wang`, and its generator. Import it inside functions only: Numba.

A sweep of one chain has two parts. *Bonds*: every edge takes one random number; an edge whose ends agree is kept when
the number is below its threshold, and its ends are united. *Clusters*: in the order of their smallest variables, every
cluster of more than one state takes one random number and draws the state of all its variables. So the draws are
fixed by the model alone, not by how clusters are found.

Clusters are found by Rem's union-find: every variable points to one that is not larger, and of two pointers that
differ the larger is moved to the smaller on the way up (splicing; Patwary, Blair and Manne 2010). It needs no sizes,
the root is the smallest variable of its cluster, and one pass in ascending order points all variables to their roots.

Random numbers are those of xoshiro256++ (Blackman and Vigna 2021), four words of state a chain, started by SplitMix64.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fastmix._jit import njit

__all__ = ["run_binary", "run_general", "start_generators"]

UintArray = NDArray[np.uint64]

_BLOCK = 1024  # edges whose bonds are drawn before their ends are united: the list stays in the first cache

# Unsigned throughout: Numba turns a sum of signed and unsigned numbers into a float.
_11, _17, _19, _23, _41, _45 = (np.uint64(k) for k in (11, 17, 19, 23, 41, 45))
_UNIT = 2.0**-53
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # the step of SplitMix64, 2**64 over the golden ratio

# Functions called only from compiled code need no entry points from Python, which saves compilation time.
_inner = njit(cache=True, nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)


# -- random numbers -------------------------------------------------------------------------------------------------


def start_generators(seed: int, num_chains: int) -> UintArray:
    """States (num_chains, 4) of one xoshiro256++ generator a chain, from the seed and the number of the chain.

    The four words are outputs of SplitMix64, started from a hash of seed and chain by the same function. It is one to
    one, so that chains of one seed, and seeds below 2**64, start differently, and no state is all zeros.
    """
    key = np.zeros(1, dtype=np.uint64)
    while True:  # 64 bits of the seed at a time
        key = _mix(key ^ np.uint64(seed & 0xFFFFFFFFFFFFFFFF))
        seed >>= 64
        if not seed:
            break
    start = _mix(key + np.arange(num_chains, dtype=np.uint64) * _GOLDEN)
    return _mix(start[:, None] + np.arange(4, dtype=np.uint64) * _GOLDEN)


def _mix(counter: UintArray) -> UintArray:
    """The output of SplitMix64 that follows a counter; arrays only, whose products wrap around without a warning."""
    z = counter + _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@_inner
def _next(s0, s1, s2, s3):  # type: ignore[no-untyped-def]
    """53 random bits and the next state. The words go in and out as numbers, to stay in registers."""
    total = s0 + s3
    bits = (((total << _23) | (total >> _41)) + s0) >> _11
    shifted = s1 << _17
    s2 ^= s0
    s3 ^= s1
    s1 ^= s2
    s0 ^= s3
    s2 ^= shifted
    s3 = (s3 << _45) | (s3 >> _19)
    return bits, s0, s1, s2, s3


# -- bonds ----------------------------------------------------------------------------------------------------------


@_inner
def _unite(parent, i, j):  # type: ignore[no-untyped-def]
    """Make i and j members of one cluster."""
    p, q = parent[i], parent[j]
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


@_inner
def _bond(heads, tails, thresholds, x, parent, bonds, random):  # type: ignore[no-untyped-def]
    """Draw the bonds given the states and point every variable towards the smallest of its cluster."""
    for i in range(len(parent)):
        parent[i] = i
    s0, s1, s2, s3 = random[0], random[1], random[2], random[3]
    for start in range(0, len(heads), _BLOCK):
        # Without branches, which nobody could predict: an edge is noted always, but counted only if it holds.
        count = np.uint64(0)
        for e in range(np.uint64(start), np.uint64(min(start + _BLOCK, len(heads)))):
            bits, s0, s1, s2, s3 = _next(s0, s1, s2, s3)
            bonds[count] = e
            count += np.uint64((x[heads[e]] == x[tails[e]]) & (bits < thresholds[e]))
        for k in range(count):
            e = bonds[k]
            _unite(parent, np.uint64(heads[e]), np.uint64(tails[e]))
    random[0], random[1], random[2], random[3] = s0, s1, s2, s3


# -- clusters -------------------------------------------------------------------------------------------------------


@_inner
def _assign_binary(fields, x, parent, work, random, sums, collect):  # type: ignore[no-untyped-def]
    """Draw the states of the clusters, all variables binary, and add the probabilities of state 0 to the sums."""
    for i in range(np.uint64(len(parent))):
        root = parent[np.uint64(parent[i])]  # what i points to is smaller, hence points to its root already
        parent[i] = root
        if root == i:
            work[i] = fields[i]
        else:
            work[root] += fields[i]
    s0, s1, s2, s3 = random[0], random[1], random[2], random[3]
    for i in range(np.uint64(len(parent))):
        root = parent[i]
        if root == i:
            z = math.exp(-abs(work[i]))
            probability = (1.0 if work[i] >= 0.0 else z) / (1.0 + z)
            bits, s0, s1, s2, s3 = _next(s0, s1, s2, s3)
            x[i] = 0 if bits * _UNIT < probability else 1
            work[i] = probability
        else:
            x[i] = x[root]
        if collect:
            sums[i] += work[root]
    random[0], random[1], random[2], random[3] = s0, s1, s2, s3


@_inner
def _assign_general(offsets, log_unary, x, parent, work, random, sums, collect):  # type: ignore[no-untyped-def]
    """Draw the states of the clusters and add the probabilities of all their states to the sums."""
    for i in range(len(parent)):
        root = parent[parent[i]]
        parent[i] = root
        begin, target = offsets[i], offsets[root]
        for s in range(offsets[i + 1] - begin):
            if root == i:
                work[target + s] = log_unary[begin + s]
            else:
                work[target + s] += log_unary[begin + s]
    s0, s1, s2, s3 = random[0], random[1], random[2], random[3]
    for i in range(len(parent)):
        root = parent[i]
        begin, source = offsets[i], offsets[root]
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
                bits, s0, s1, s2, s3 = _next(s0, s1, s2, s3)
                level, passed = bits * _UNIT * total, 0.0
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
    random[0], random[1], random[2], random[3] = s0, s1, s2, s3


# -- sweeps ---------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def run_binary(  # type: ignore[no-untyped-def]
    heads, tails, thresholds, fields, states, random_states, sums, first, last, num_sweeps, collect
):
    """Sweeps of the chains from ``first`` to ``last - 1`` of a model whose variables are all binary.

    Parameters
    ----------
    heads, tails : uint32 array (m,)
        Ends of the edges.
    thresholds : uint64 array (m,)
        Probability of a bond between equal ends, times 2**53.
    fields : float array (n,)
        Log-potential of state 0 less that of state 1; may be infinite.
    states : uint8 or uint32 array (num_chains, n)
        Changed in place.
    random_states : uint64 array (num_chains, 4)
        Changed in place.
    sums : float array (num_chains, n)
        With ``collect``, the probabilities of state 0 given the bonds are added; without, one row of any length.
    """
    n = len(fields)
    parent, work, bonds = np.empty(n, np.uint32), np.empty(n), np.empty(_BLOCK, np.uint64)
    for c in range(first, last):
        x, random, row = states[c], random_states[c], sums[c if collect else 0]
        for _ in range(num_sweeps):
            _bond(heads, tails, thresholds, x, parent, bonds, random)
            _assign_binary(fields, x, parent, work, random, row, collect)


@njit(cache=True, nogil=True)
def run_general(  # type: ignore[no-untyped-def]
    heads, tails, thresholds, offsets, log_unary, states, random_states, sums, first, last, num_sweeps, collect
):
    """The same for any numbers of states: log-potentials and sums are flat, with offsets (n + 1,) of the variables."""
    n = len(offsets) - 1
    parent, work, bonds = np.empty(n, np.uint32), np.empty(len(log_unary)), np.empty(_BLOCK, np.uint64)
    for c in range(first, last):
        x, random, row = states[c], random_states[c], sums[c if collect else 0]
        for _ in range(num_sweeps):
            _bond(heads, tails, thresholds, x, parent, bonds, random)
            _assign_general(offsets, log_unary, x, parent, work, random, row, collect)
