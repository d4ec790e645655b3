"""CUDA kernels that fill the tables of updates from new parameters; ``layout.py`` makes the rest on the host."""
# Types inside kernels are those of their compiler.
# mypy: ignore-errors

from __future__ import annotations

import math

from numba import cuda, float32, int8, int64, uint32, uint64

from fastmix._jit import cuda_jit
from fastmix.chains.cuda.kernels import share_of, threshold_of

__all__ = ["fill_fields", "fill_masks", "fill_thresholds"]

_LANES = 16  # threads that share the patterns around a variable: all of those of four binary neighbors
_FULL = 4294967296.0


@cuda.jit(device=True)
def _pattern_weight(values, at, links, strides, theirs, site, pattern, state):
    """The log-weight of a state of a variable, for a pattern of its neighbors' states."""
    indptr, starts, own_steps, other_steps = links[0], links[2], links[3], links[4]
    total = values[at + links[5][site] + state]
    for k in range(indptr[site], indptr[site + 1]):
        other = (pattern // strides[k]) % theirs[k]
        total += values[at + starts[k] + state * own_steps[k] + other * other_steps[k]]
    return total


@cuda_jit(cache=True)
def fill_thresholds(values, size, links, strides, theirs, entries, model_size, table):
    """Cumulative conditional probabilities of every variable and pattern, as 32-bit thresholds, for every set.

    ``values`` (sets, size); ``links`` are ``indptr``, ``rows``, ``starts``, ``own_steps``, ``other_steps``,
    ``unary_starts`` and ``cuts``, int64 but for the rows and by place, see
    :func:`fastmix.chains.cuda.state_kernels.logit_update`; ``strides``, ``theirs`` (state counts of the neighbors) and
    ``entries`` as for the pattern tables; all of a set are ``model_size`` numbers.
    """
    indptr, cuts = links[0], links[6]
    place = cuda.grid(1)
    num_sites = cuts.shape[0]
    while place < (values.shape[0] // size) * num_sites * _LANES:
        pattern, row = place % _LANES, place // _LANES
        site, at = row % num_sites, (row // num_sites) * size
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
                table[base + pattern * cuts[site] + s] = threshold_of(below / total * _FULL)
            pattern += _LANES
        place += cuda.gridsize(1)


@cuda_jit(cache=True)
def fill_fields(values, size, links, chunks, partial, margins, weights, offsets):
    """What :func:`fastmix.chains.cuda.field_kernels.packed_field_update` reads, for every set and place.

    ``values`` (sets, size) and ``links`` as for :func:`fill_thresholds`; ``chunks`` int64 says where the groups of four
    neighbors of every place begin, and their end.
    """
    indptr, starts, own_steps, other_steps, unary_starts = links[0], links[2], links[3], links[4], links[5]
    num_sites = chunks.shape[0] - 1
    place = cuda.grid(1)
    while place < (values.shape[0] // size) * num_sites:
        model, site = place // num_sites, place % num_sites
        at, to = model * size, model * indptr[num_sites]
        offset = 0.0
        for k in range(indptr[site], indptr[site + 1]):
            first = at + starts[k]
            zero = values[first + own_steps[k]] - values[first]
            weights[to + k] = values[first + own_steps[k] + other_steps[k]] - values[first + other_steps[k]] - zero
            offset += zero
        offset = values[at + unary_starts[site] + 1] - values[at + unary_starts[site]] + offset
        offsets[place] = offset
        first, groups = to + indptr[site], chunks[site + 1] - chunks[site]
        degree, total = indptr[site + 1] - indptr[site], 0.0
        for group in range(groups):
            padding = 4 * groups - degree if group == groups - 1 else 0
            largest, to_group = 0.0, (model * chunks[num_sites] + chunks[site] + group) * 16
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
    """What :func:`fastmix.chains.cuda.packed_kernels.packed_update` reads, from its thresholds ``table`` (rows, 16).

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
