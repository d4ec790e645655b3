"""Thresholds of CUDA kernels: compared with random numbers, added up, and made in tables from new parameters.

The other tables that updates read are made on the host, by :mod:`fastmix.chains.layout`.
"""
# Types inside kernels are those of their compiler, which mypy does not know.
# mypy: ignore-errors

from __future__ import annotations

import math

from numba import cuda, float32, float64, int8, int64, uint32, uint64

from fastmix._jit import cuda_jit

__all__ = ["fill_fields", "fill_masks", "fill_thresholds", "is_below", "share_of", "threshold_of"]

_ONES = 0xFFFFFFFF
_LANES = 16  # threads that share the patterns around a variable: all of those of four binary neighbors
_UNIT = 4294967296.0  # 2^32

# Numba widens mixed integers, and takes a signed index for one that may count from the end: hence all the casts.


@cuda.jit(device=True)
def threshold_of(scaled):
    """A probability times 2^32 as a 32-bit threshold."""
    return uint32(min(math.floor(scaled + float64(0.5)), float64(4294967295.0)))


@cuda.jit(device=True)
def is_below(u, threshold):
    """Whether a number of 32 bits is below a threshold, of which the largest stands for certainty."""
    return u < threshold or threshold == uint32(_ONES)


@cuda.jit(device=True)
def share_of(threshold):
    """A threshold as it is added to sums: rounded to 24 bits."""
    return uint32((threshold >> uint32(8)) + ((threshold >> uint32(7)) & uint32(1)))


# -- tables of updates from new parameters ----------------------------------------------------------------------------


@cuda.jit(device=True)
def _pattern_weight(values, at, links, strides, theirs, site, pattern, state):
    """The log-weight of a state of a variable, for a pattern of its neighbors' states."""
    indptr = links[0]
    starts = links[2]
    own_steps = links[3]
    other_steps = links[4]
    total = values[at + links[5][site] + state]
    for k in range(indptr[site], indptr[site + 1]):
        other = (pattern // strides[k]) % theirs[k]
        total += values[at + starts[k] + state * own_steps[k] + other * other_steps[k]]
    return total


@cuda_jit(cache=True)
def fill_thresholds(values, size, links, strides, theirs, entries, model_size, table):
    """Fill in the thresholds of every variable and pattern of its neighbors, for every set.

    ``values`` (sets, size); ``links`` are ``indptr``, ``rows``, ``starts``, ``own_steps``, ``other_steps``,
    ``unary_starts`` and ``cuts``, int64 but for the rows and by place, see
    :func:`fastmix.chains.cuda.state_kernels.logit_update`; ``strides``, ``theirs`` (state counts of the neighbors) and
    ``entries`` as for the pattern tables; all of a set are ``model_size`` numbers.
    """
    indptr = links[0]
    cuts = links[6]
    place = cuda.grid(1)
    num_sites = cuts.shape[0]
    while place < (values.shape[0] // size) * num_sites * _LANES:
        pattern = place % _LANES
        row = place // _LANES
        site = row % num_sites
        at = (row // num_sites) * size
        base = (row // num_sites) * model_size + entries[site]
        patterns = int64(1)
        for k in range(indptr[site], indptr[site + 1]):
            patterns *= theirs[k]
        while pattern < patterns:
            top = -math.inf
            for s in range(cuts[site] + 1):
                top = max(top, _pattern_weight(values, at, links, strides, theirs, site, pattern, s))
            total = 0.0
            for s in range(cuts[site] + 1):
                total += math.exp(_pattern_weight(values, at, links, strides, theirs, site, pattern, s) - top)
            below = 0.0
            for s in range(cuts[site]):
                below += math.exp(_pattern_weight(values, at, links, strides, theirs, site, pattern, s) - top)
                table[base + pattern * cuts[site] + s] = threshold_of(below / total * _UNIT)
            pattern += _LANES
        place += cuda.gridsize(1)


@cuda_jit(cache=True)
def fill_fields(values, size, links, chunks, partial, margins, weights, offsets):
    """Fill in the log-odds of :func:`fastmix.chains.cuda.field_kernels.packed_field_update`, for every set and place.

    ``values`` (sets, size) and ``links`` are as for :func:`fill_thresholds`; ``chunks`` int64 are the starts of the
    groups of four neighbors of every place, and their end.
    """
    indptr = links[0]
    starts = links[2]
    own_steps = links[3]
    other_steps = links[4]
    unary_starts = links[5]
    num_sites = chunks.shape[0] - 1
    place = cuda.grid(1)
    while place < (values.shape[0] // size) * num_sites:
        model = place // num_sites
        site = place % num_sites
        at = model * size
        to = model * indptr[num_sites]
        offset = 0.0
        for k in range(indptr[site], indptr[site + 1]):
            first = at + starts[k]
            zero = values[first + own_steps[k]] - values[first]
            weights[to + k] = values[first + own_steps[k] + other_steps[k]] - values[first + other_steps[k]] - zero
            offset += zero
        offset = values[at + unary_starts[site] + 1] - values[at + unary_starts[site]] + offset
        offsets[place] = offset
        first = to + indptr[site]
        groups = chunks[site + 1] - chunks[site]
        degree = indptr[site + 1] - indptr[site]
        total = 0.0
        for group in range(groups):
            padding = 4 * groups - degree if group == groups - 1 else 0
            largest = 0.0
            to_group = (model * chunks[num_sites] + chunks[site] + group) * 16
            for pattern in range(16):
                value = offset if group == 0 else 0.0
                for k in range(padding, 4):
                    if (pattern >> (3 - k)) & 1:
                        value += weights[first + 4 * group + k - padding]
                partial[to_group + pattern] = float32(value)
                largest = max(largest, abs(value))
            total += largest
        margins[place] = float32(2.0**-20 + (groups + 2) * total * 2.0**-25)
        place += cuda.gridsize(1)


@cuda_jit(cache=True)
def fill_masks(table, num_rows, row_step, entry_step, masks, terms):
    """Fill in the masks of :func:`fastmix.chains.cuda.packed_kernels.packed_update` from thresholds (rows, 16).

    With the threshold t of pattern ``8 x_a + 4 x_b + 2 x_c + x_d`` of the neighbors, ``masks`` holds for every bit of
    t from 24 to 31 and every pattern j of the first three neighbors the numbers (m, s) with which ``m x_d + s`` is
    that bit, as a word of 32 chains: s is minus the bit for x_d = 0 and m the difference of the two. Number e of a row
    is at ``masks[row * row_step + e * entry_step]``. ``terms`` (rows, 16) holds the coefficients of t, rounded to 24
    bits, as a polynomial of the four states, modulo 2^32.
    """
    term = cuda.local.array(16, uint32)
    row = uint64(cuda.grid(1))
    while row < num_rows:
        to = row * row_step
        for plane in range(8):
            for pattern in range(0, 16, 2):
                low = int64((table[row * uint64(16) + uint64(pattern)] >> uint32(24 + plane)) & uint32(1))
                high = int64((table[row * uint64(16) + uint64(pattern + 1)] >> uint32(24 + plane)) & uint32(1))
                masks[to] = int8(high - low)
                masks[to + entry_step] = int8(-low)
                to += entry_step * uint64(2)
        for pattern in range(16):
            term[pattern] = share_of(table[row * uint64(16) + uint64(pattern)])
        for axis in range(4):
            for pattern in range(16):
                if pattern & (1 << axis):
                    term[pattern] = uint32(
                        uint64(term[pattern]) + uint64(1 << 32) - uint64(term[pattern ^ (1 << axis)])
                    )
        for pattern in range(16):
            terms[row * uint64(16) + uint64(pattern)] = term[pattern]
        row += uint64(cuda.gridsize(1))
