"""Compiled thresholds: made from log-potentials or log-odds, compared with random numbers, added up in sums.

A threshold is a cumulative conditional probability in units of 2^-32 (see :mod:`fastmix.chains.generator`): a site is
above state k where its random number is at least threshold k. What sweeps add up are thresholds rounded to 24 bits,
that is conditional probabilities, so that Rao-Blackwellisation costs one addition.

Loops touch few arrays each: the compiler checks at run time that arrays do not overlap, and gives up on vectorizing
when there are many to check.
"""

from __future__ import annotations

import numpy as np
from numba import uint8, uint32

from fastmix._jit import fused, inner, outer

__all__ = [
    "CERTAIN",
    "UNIT",
    "WHOLE",
    "accumulate",
    "add_counts",
    "add_thresholds",
    "copy_values",
    "draw_by_odds",
    "exponential",
    "fill_thresholds",
    "largest",
    "raise_states",
    "round_threshold",
    "threshold_of_odds",
]

#: 2^32: a probability of one in units of thresholds.
UNIT = 4294967296.0
#: 2^32 - 1: the largest threshold, which no random number reaches.
CERTAIN = 4294967295.0
#: 2^52: adding it leaves a whole number in the low bits.
WHOLE = 4503599627370496.0

_WHOLE_BITS = 0x433 << 52  # of 2^52 as a floating-point number
_ONE_BITS = 1023 << 52  # of 1.0
_LOG2_E = 1.4426950408889634
_NEAREST = 6755399441055744.0  # 1.5 * 2^52: adding it leaves the nearest whole number in the low bits
_LN2_HIGH = 0.6931471803691238  # ln(2) in two parts, the first with zeros at its end
_LN2_LOW = 1.9082149292705877e-10


# -- small loops over arrays ----------------------------------------------------------------------------------------


@inner
def largest(counts):
    """The largest count, at least 1; the method ``max`` of arrays takes most of a second to compile."""
    result = 1
    for count in counts:
        if count > result:
            result = count
    return result


@inner
def copy_values(out, values):
    """Copy values, converted to the type of ``out``; assigned as a slice, they take a second longer to compile.

    That second goes into the message of the error for arrays of unequal shapes.
    """
    for k in range(len(out)):
        out[k] = values[k]


@fused
def exponential(f):
    """The exponential of a number from -700 to 700, with a relative error of at most 7.8e-13; loops over it vectorize.

    It is 2^k times a polynomial on abs(r) <= ln(2) / 2, the best one of degree 8 for the relative error (by Remez's
    algorithm).
    """
    shifted = np.float64(f * _LOG2_E + _NEAREST)
    power = np.int64((shifted.view(np.int64) << 52) + _ONE_BITS).view(np.float64)
    count = shifted - _NEAREST
    r = (f - count * _LN2_HIGH) - count * _LN2_LOW
    p = 2.472714171532563e-05
    p = p * r + 0.0001991549591761959
    p = p * r + 0.0013889179223924085
    p = p * r + 0.008333266899922726
    p = p * r + 0.04166666421271249
    p = p * r + 0.16666666886100032
    p = p * r + 0.5000000000620699
    p = p * r + 0.9999999999805461
    p = p * r + 0.9999999999997612
    return p * power


# -- comparing and adding up ----------------------------------------------------------------------------------------


@inner
def raise_states(x, u, threshold):
    """Raise the state of every lane whose random number is not below its threshold by one."""
    for c in range(len(x)):
        x[c] += uint8(u[c] >= threshold[c])


@inner
def round_threshold(threshold):
    """A threshold rounded to 24 bits: unbiased, 0 and 2^24 for the certain ones."""
    return uint32(uint32(threshold >> uint32(8)) + uint32(uint32(threshold >> uint32(7)) & uint32(1)))


@inner
def add_thresholds(sums, threshold):
    """Add the threshold of every lane, rounded to 24 bits, to its sum."""
    for c in range(len(sums)):
        sums[c] = uint32(sums[c] + round_threshold(threshold[c]))


@inner
def add_counts(sums, x, k):
    """Add one sweep, 2^24, to the sum of every lane whose state is at most k."""
    for c in range(len(sums)):
        sums[c] = uint32(sums[c] + (uint32(1 << 24) if x[c] <= k else uint32(0)))


# -- from log-potentials --------------------------------------------------------------------------------------------


@inner
def accumulate(logits):
    """The total weight, 0 if all are -inf; logarithms become cumulative weights, scaled to a largest weight of 1."""
    top = -np.inf
    for s in range(len(logits)):
        top = max(top, logits[s])
    if top == -np.inf:
        return 0.0
    total = 0.0
    for s in range(len(logits)):
        total += np.exp(logits[s] - top)
        logits[s] = total
    return total


@inner
def _most_entries(states, indptr, neighbors):
    """The most entries, patterns of the neighbors times own states, that the table of a site has."""
    room = 1
    for i in range(len(states)):
        entries = states[i]
        for k in range(indptr[i], indptr[i + 1]):
            entries *= states[neighbors[k]]
        room = max(room, entries)
    return room


@outer
def fill_thresholds(
    states, indptr, neighbors, tables_at, own_steps, their_steps, unary_at, unary, tables, incident, starts, table
):
    """A site that has no allowed state for some pattern of its neighbors, or -1; fills in the thresholds of all.

    ``tables[tables_at[k] + s * own_steps[k] + t * their_steps[k]]`` is the log-potential of state s of the site and t
    of its k-th neighbor; ``incident`` are the larger factors (:class:`fastmix.model.structure.Incident`). In the number
    of a pattern the first neighbor counts most. Pattern p of site i has its ``L_i - 1`` thresholds from
    ``table[starts[i] + p * (L_i - 1)]`` on; those of a pattern without a state are 0.

    For every site:

    1. The log-potentials of its unary are those of the one pattern of no neighbors.
    2. Every neighbor splits each pattern into one for each of its states, and adds its table.
    3. Every larger factor adds its entries: the pattern's place in its table is found in the same way.
    4. The log-potentials of each pattern become cumulative probabilities, and these thresholds.
    """
    around, _, factors_at, factor_steps, member_starts, _, member_steps, slots = incident
    site = -1
    room = _most_entries(states, indptr, neighbors)
    logits = np.empty(room)
    place_in = np.empty(room if len(factors_at) else 0, np.int64)  # the pattern in the table of a factor
    for i in range(len(states)):
        # 1. The unary.
        count = states[i]
        for s in range(count):
            logits[s] = unary[unary_at[i] + s]
        patterns = 1

        # 2. The neighbors. Patterns are split from the back, in place.
        for k in range(indptr[i], indptr[i + 1]):
            theirs = states[neighbors[k]]
            for p in range(patterns - 1, -1, -1):
                for t in range(theirs - 1, -1, -1):
                    base = tables_at[k] + t * their_steps[k]
                    for s in range(count):
                        logits[(p * theirs + t) * count + s] = logits[p * count + s] + tables[base + s * own_steps[k]]
            patterns *= theirs

        # 3. The larger factors. Their members ascend, as neighbors do; other neighbors make no step in the table.
        for f in range(around[i], around[i + 1]):
            place_in[0] = factors_at[f]
            patterns = 1
            m = member_starts[f]
            for k in range(indptr[i], indptr[i + 1]):
                theirs = states[neighbors[k]]
                step = 0
                if m < member_starts[f + 1] and slots[m] == k:
                    step = member_steps[m]
                    m += 1
                for p in range(patterns - 1, -1, -1):
                    for t in range(theirs - 1, -1, -1):
                        place_in[p * theirs + t] = place_in[p] + t * step
                patterns *= theirs
            for p in range(patterns):
                for s in range(count):
                    logits[p * count + s] += tables[place_in[p] + s * factor_steps[f]]

        # 4. The thresholds.
        place = starts[i]
        for p in range(patterns):
            total = accumulate(logits[p * count : (p + 1) * count])
            if not total > 0.0 and site < 0:
                site = i
            for s in range(count - 1):
                if total > 0.0:
                    table[place] = uint32(min(np.rint(logits[p * count + s] / total * UNIT), CERTAIN))
                else:
                    table[place] = uint32(0)
                place += 1
    return site


# -- from log-odds; fused where that is both faster and more accurate -------------------------------------------------


@fused
def threshold_of_odds(field):
    """The threshold of 1 / (1 + exp(field)), by the polynomial of :func:`exponential`."""
    f = min(max(field, -700.0), 700.0)
    value = np.float64(min(UNIT / (1.0 + exponential(f)), CERTAIN) + WHOLE)
    return uint32(value.view(np.int64) & 0xFFFFFFFF)


@fused
def draw_by_odds(x, field, u, threshold):
    """Draw 0.0 or 1.0 by log-odds, and leave the thresholds of 1 / (1 + exp(field)).

    The error of :func:`exponential` moves a threshold by less than a thousandth of a unit of 2^-32. Whole numbers are
    compared as they are in the low bits of floating-point numbers from 2^52 on.
    """
    for c in range(len(x)):
        f = min(max(field[c], -700.0), 700.0)
        value = np.float64(min(UNIT / (1.0 + exponential(f)), CERTAIN) + WHOLE)
        x[c] = 1.0 if np.int64(np.int64(u[c]) + _WHOLE_BITS).view(np.float64) >= value else 0.0
        threshold[c] = uint32(value.view(np.int64) & 0xFFFFFFFF)
