"""Compiled bounding chains: what is known about every variable, whatever the configuration was in the past.

A set of states per variable, as bits, holds all values that the variable can have. An update reads random numbers that
do not depend on the sets, and keeps the states that some choice from the neighbors' sets would select.
"""

from __future__ import annotations

import math

import numpy as np
from numba import uint64

from fastmix._jit import inner, njit
from fastmix.chains.product_kernels import next_row
from fastmix.chains.random_kernels import next_uniform
from fastmix.chains.threshold_kernels import largest

__all__ = ["bound_binary", "bound_general"]


@njit(cache=True, nogil=True)
def bound_binary(sets, order, indptr, neighbors, odds, offsets, stream, num_sweeps):
    """Sweeps of the sets of binary variables (uint8 (n,), values 1, 2 and 3), with the numbers of one stream.

    ``odds[k]`` holds what the k-th neighbor adds to the log-odds of state 1, in its states 0 and 1. A variable takes
    state 1 when its log-odds exceed a logistic number; over the neighbors' sets they fill an interval.
    """
    s0 = stream[0]
    s1 = stream[1]
    s2 = stream[2]
    s3 = stream[3]
    for _ in range(num_sweeps):
        for i in order:
            u, s0, s1, s2, s3 = next_uniform(s0, s1, s2, s3)
            level = math.log(u) - math.log1p(-u)
            low = offsets[i]
            high = offsets[i]
            never = False
            always = False
            for k in range(indptr[i], indptr[i + 1]):
                known = sets[neighbors[k]]
                if known == 3:
                    least = min(odds[k, 0], odds[k, 1])
                    most = max(odds[k, 0], odds[k, 1])
                else:
                    least = odds[k, known - 1]
                    most = least
                # Infinite odds decide on their own; a sum of both signs belongs to no configuration.
                never |= most == -np.inf
                always |= least == np.inf
                low += least
                high += most
            states = 0
            if never or not (always or low > level):
                states |= 1
            if always or not (never or high <= level):
                states |= 2
            sets[i] = states
    stream[0] = s0
    stream[1] = s1
    stream[2] = s2
    stream[3] = s3


@inner
def _best_lead(sets, states, incident, tables, f, s, t, digits):
    """The most by which a factor can prefer state s to t of its owner, for any choice from the sets of the others."""
    _, _, starts, own_steps, member_starts, members, steps, _ = incident
    first = member_starts[f]
    last = member_starts[f + 1]
    digits[: last - first] = 0
    best = -np.inf
    at = starts[f]
    while at >= 0:
        known = True
        for m in range(first, last):
            known = known and (sets[members[m]] >> uint64(digits[m - first])) & uint64(1) > 0
        if known and tables[at + s * own_steps[f]] > -np.inf:
            best = max(best, tables[at + s * own_steps[f]] - tables[at + t * own_steps[f]])
        at = next_row(at, digits, first, last, states, members, steps)
    return best


@njit(cache=True, nogil=True)
def bound_general(
    sets, order, indptr, neighbors, table_starts, row_steps, col_steps, tables, unary_starts, unary, states, incident,
    stream, num_sweeps,
):  # fmt: skip
    """Sweeps of the sets of variables of up to 64 states (uint64 (n,)), with factors over more of them (``incident``).

    A variable takes the state with the largest sum of its log-weight and a Gumbel number. State s stays in the set
    unless some state t beats it for every choice from the neighbors' sets. Tables as in ``logit_one``.
    """
    around = incident[0]
    digits = np.zeros(len(states), np.int64)
    noise = np.empty(largest(states))
    s0 = stream[0]
    s1 = stream[1]
    s2 = stream[2]
    s3 = stream[3]
    for _ in range(num_sweeps):
        for i in order:
            count = states[i]
            for s in range(count):
                u, s0, s1, s2, s3 = next_uniform(s0, s1, s2, s3)
                noise[s] = unary[unary_starts[i] + s] - math.log(-math.log(u))
            kept = uint64(0)
            for s in range(count):
                possible = True
                for t in range(count):
                    if t == s:
                        continue
                    lead = noise[s] - noise[t]
                    for k in range(indptr[i], indptr[i + 1]):
                        known = sets[neighbors[k]]
                        best = -np.inf
                        x = 0
                        while known:
                            if known & uint64(1):
                                base = table_starts[k] + x * col_steps[k]
                                own = tables[base + s * row_steps[k]]
                                if own > -np.inf:  # otherwise s is impossible beside x
                                    best = max(best, own - tables[base + t * row_steps[k]])
                            known >>= uint64(1)
                            x += 1
                        lead += best
                    for f in range(around[i], around[i + 1]):
                        lead += _best_lead(sets, states, incident, tables, f, s, t, digits)
                    # What one neighbor forbids no other allows: the sum is -inf, or NaN. Ties have probability zero;
                    # the smaller state wins them, so that exactly one is left in the end.
                    if not (lead > 0.0 or (lead == 0.0 and s < t)):
                        possible = False
                        break
                if possible:
                    kept |= uint64(1) << uint64(s)
            sets[i] = kept
    stream[0] = s0
    stream[1] = s1
    stream[2] = s2
    stream[3] = s3
