"""CUDA kernels that fill tables from new parameters, and empty sums."""
# Types inside kernels are those of their compiler.
# mypy: ignore-errors

from __future__ import annotations

import math

from numba import cuda, int8, int64, uint32, uint64

from fastmix._jit import cuda_jit
from fastmix.chains.cuda.kernels import all_threads, first_thread, shorten

__all__ = ["empty_sums", "fill_masks", "fill_thresholds"]

_LANES = 16  # threads that share the patterns around a variable: all of those of four binary neighbours
_FULL = 4294967296.0


@cuda.jit(device=True)
def _pattern_weight(values, at, links, strides, theirs, site, pattern, state):
    """The log-weight of a state of a variable, for a pattern of its neighbours' states."""
    indptr, starts, own_steps, other_steps = links[0], links[2], links[3], links[4]
    total = values[at + links[5][site] + state]
    for k in range(indptr[site], indptr[site + 1]):
        other = (pattern // strides[k]) % theirs[k]
        total += values[at + starts[k] + state * own_steps[k] + other * other_steps[k]]
    return total


@cuda_jit(cache=True)
def fill_thresholds(values, size, links, strides, theirs, entries, model_size, table):
    """Cumulative conditional probabilities of every variable and pattern, as 32-bit thresholds, for every set.

    ``values`` (sets, size); ``links`` as in :func:`fastmix.chains.cuda.reading_kernels.weigh_states`; ``strides``,
    ``theirs`` (state counts of the neighbours) and ``entries`` as for the pattern tables; all of a set are
    ``model_size`` numbers.
    """
    indptr, cuts = links[0], links[6]
    place = int64(first_thread())
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
                rounded = min(below / total * _FULL + 0.5, _FULL - 1.0)  # once it is cut to whole numbers
                table[base + pattern * cuts[site] + s] = uint32(rounded)
            pattern += _LANES
        place += int64(all_threads())


@cuda_jit(cache=True)
def fill_masks(table, num_rows, row_step, entry_step, masks, terms):
    """What :func:`fastmix.chains.cuda.kernels.packed_update` reads, from its thresholds ``table`` (rows, 16).

    With the threshold t of pattern ``8 x_a + 4 x_b + 2 x_c + x_d`` of the neighbours, ``masks`` holds for every bit of
    t from 24 to 31 and every pattern j of the first three neighbours the numbers (m, s) with which ``m x_d + s`` is
    that bit, as a word of 32 chains: s is minus the bit for x_d = 0 and m the difference of the two. Number e of a row
    is at ``masks[row * row_step + e * entry_step]``. ``terms`` (rows, 16) holds the coefficients of t, rounded to 24
    bits, as a polynomial of the four states, modulo 2^32.
    """
    term = cuda.local.array(16, uint32)
    row = first_thread()
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
            term[pattern] = shorten(table[row * uint64(16) + uint64(pattern)])
        for axis in range(4):
            for pattern in range(16):
                if pattern & (1 << axis):
                    term[pattern] = uint32(
                        uint64(term[pattern]) + uint64(1 << 32) - uint64(term[pattern ^ (1 << axis)])
                    )
        for pattern in range(16):
            terms[row * uint64(16) + uint64(pattern)] = term[pattern]
        row += all_threads()


@cuda_jit(cache=True)
def empty_sums(sums, totals, num_rows, num_columns, per_group):
    """Move sums (num_rows, num_columns) to the totals of groups of columns; a last group that is not full is dropped.

    Both are flat; ``totals`` is uint64 (num_rows, num_columns // per_group).
    """
    groups = num_columns // per_group
    place = first_thread()
    while place < num_rows * groups:
        row, group = place // groups, place % groups
        at = row * num_columns + group * per_group
        total, k = uint64(0), uint64(0)
        while k < per_group:
            total += uint64(sums[at + k])
            sums[at + k] = uint32(0)
            k += uint64(1)
        totals[place] = totals[place] + total
        place += all_threads()
