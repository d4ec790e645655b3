"""CUDA kernels of packed binary variables with at most four neighbors.

A 32-bit word holds the states of one variable in 32 chains. A uniform u is compared with a threshold
t = round(p * 2^32) bit by bit for all 32 chains at once: eight random words are the top bits of the 32 uniforms, and
the same bits of the thresholds are selected by the words of the neighbors, plane by plane. One chain in 256 is still
undecided then; it is put aside, and its comparison is ended on its own with 24 more bits, so that all 32 bits count.
A threshold of 2^32 - 1 stands for certainty.
"""
# Types inside kernels are those of their compiler, which mypy does not know.
# mypy: ignore-errors

from __future__ import annotations

from functools import cache
from typing import Any

from numba import cuda, uint32, uint64

from fastmix.chains.cuda.random_kernels import counter_top, philox
from fastmix.chains.cuda.sweep_kernels import add_counts, barrier, update_jit
from fastmix.chains.cuda.threshold_kernels import share_of

__all__ = ["SETTLE_TAG", "packed_update"]

#: Tag in the counters of the random numbers that end a comparison; the chain is added to it.
SETTLE_TAG = 16
#: Undecided comparisons that a thread puts aside before it ends them together (benchmarks/gpu.py).
QUEUE = 16

_ONES = 0xFFFFFFFF


@cuda.jit(device=True)
def _either(select, one, zero):
    """The bits of ``one`` where ``select`` is set, and of ``zero`` elsewhere."""
    return uint32((select & one) | (uint32(~select) & zero))


@cuda.jit(device=True)
def _leaf(word, masks, at, gap):
    """The word times 0 or +-1, plus 0 or -1: that is 0, all ones, the word or its complement.

    It is computed by a multiplication, because these run beside the logical operations, which are most of the work.
    """
    factor = uint64(uint32(masks[at]))
    summand = uint64(uint32(masks[at + gap]))
    return uint32(uint64(word) * factor + summand)


@cuda.jit(device=True)
def _bit_plane(masks, at, gap, n0, n1, n2, n3):
    """One bit of the thresholds of 32 chains: leaf j is for the pattern j of the first three neighbors."""
    two = gap * uint64(2)
    low = _either(
        n1,
        _either(n2, _leaf(n3, masks, at + two * uint64(3), gap), _leaf(n3, masks, at + two * uint64(2), gap)),
        _either(n2, _leaf(n3, masks, at + two, gap), _leaf(n3, masks, at, gap)),
    )
    high = _either(
        n1,
        _either(n2, _leaf(n3, masks, at + two * uint64(7), gap), _leaf(n3, masks, at + two * uint64(6), gap)),
        _either(n2, _leaf(n3, masks, at + two * uint64(5), gap), _leaf(n3, masks, at + two * uint64(4), gap)),
    )
    return _either(n0, high, low)


@cuda.jit(device=True)
def _pattern(n0, n1, n2, n3, chain):
    """The number of the pattern of four neighbors in a chain."""
    c = uint32(chain)
    one = uint32(1)
    high = (((n0 >> c) & one) << uint32(3)) | (((n1 >> c) & one) << uint32(2))
    return uint64(high | (((n2 >> c) & one) << one) | ((n3 >> c) & one))


@cuda.jit(device=True)
def _settle(x, around, table, row, word, site, undecided, sweep, key0, key1):
    """The undecided chains of a word whose uniform is below the threshold, as 24 more bits of it show."""
    at = uint64(site) * uint64(4)
    n0 = x[uint32(around[at] + word)]
    n1 = x[uint32(around[at + uint64(1)] + word)]
    n2 = x[uint32(around[at + uint64(2)] + word)]
    n3 = x[uint32(around[at + uint64(3)] + word)]
    below = uint32(0)
    while undecided != uint32(0):
        chain = uint32(cuda.ffs(undecided) - 1)
        bit = uint32(uint32(1) << chain)
        undecided = uint32(undecided ^ bit)
        threshold = table[row * uint64(16) + _pattern(n0, n1, n2, n3, chain)]
        tag = counter_top(sweep, uint32(SETTLE_TAG) + chain)
        u, _, _, _ = philox(word, site, uint32(sweep), tag, key0, key1)
        if uint32(u >> uint32(8)) < uint32(threshold & uint32(0xFFFFFF)) or threshold == uint32(_ONES):
            below = uint32(below | bit)
    return below


@cuda.jit(device=True)
def _add_thresholds(sums, at, chain_step, table, row, n0, n1, n2, n3):
    """Add the thresholds of all 32 chains, rounded to 24 bits, each to its own sum."""
    for chain in range(32):
        threshold = table[row * uint64(16) + _pattern(n0, n1, n2, n3, chain)]
        cuda.atomic.add(sums, at + uint64(chain) * chain_step, share_of(threshold))


@cuda.jit(device=True)
def _sum_thresholds(terms, n0, n1, n2, n3):
    """The sum over 32 chains of their thresholds, rounded to 24 bits, from counts of ones.

    A threshold is a polynomial of the four neighbors: ``terms`` holds its 16 coefficients, modulo 2^32, and the sum of
    a product over the chains is a number of ones. The sum itself is below 2^30.
    """
    n23 = n2 & n3
    n13 = n1 & n3
    n03 = n0 & n3
    n12 = n1 & n2
    n02 = n0 & n2
    n01 = n0 & n1
    total = uint64(32) * uint64(terms[0])
    total += uint64(cuda.popc(n3)) * uint64(terms[1])
    total += uint64(cuda.popc(n2)) * uint64(terms[2])
    total += uint64(cuda.popc(n23)) * uint64(terms[3])
    total += uint64(cuda.popc(n1)) * uint64(terms[4])
    total += uint64(cuda.popc(n13)) * uint64(terms[5])
    total += uint64(cuda.popc(n12)) * uint64(terms[6])
    total += uint64(cuda.popc(n1 & n23)) * uint64(terms[7])
    total += uint64(cuda.popc(n0)) * uint64(terms[8])
    total += uint64(cuda.popc(n03)) * uint64(terms[9])
    total += uint64(cuda.popc(n02)) * uint64(terms[10])
    total += uint64(cuda.popc(n0 & n23)) * uint64(terms[11])
    total += uint64(cuda.popc(n01)) * uint64(terms[12])
    total += uint64(cuda.popc(n01 & n3)) * uint64(terms[13])
    total += uint64(cuda.popc(n01 & n2)) * uint64(terms[14])
    total += uint64(cuda.popc(n01 & n23)) * uint64(terms[15])
    return uint32(total)


@cache
def packed_update(words: int, lanes: int, mode: int, per_chain: bool, grid: bool) -> Any:
    """The update of binary variables with at most four neighbors, in packed chains.

    A thread has ``words`` words of chains, every ``lanes``-th of those of its block, which has ``lanes`` threads along
    x: with fewer than 32 the threads of a warp update different sites. Its tables are ``around`` uint32 (n, 4), the
    neighbors, padded in front with row n; ``masks`` int8 (models, n, 128), or with few lanes (128, models, n), so that
    those of neighboring sites are read together; ``table`` and ``terms`` uint32 (models, n, 16), see
    :func:`fastmix.chains.cuda.threshold_kernels.fill_masks`; n, and n times the number of models.

    1. Read the words of the neighbors.
    2. Compare the top eight bits of the uniforms with those of the thresholds, plane by plane from the low bits up.
    3. Put the states in place, put the undecided chains aside, and collect thresholds or counts.
    4. End the comparisons of the undecided chains, many together: neighbors do not change within a color.
    """
    wide = lanes >= 32

    @cuda.jit(device=True)
    def compare(masks, at, gap, n0, n1, n2, n3, random, below, equal):
        for w in range(words):
            threshold = _bit_plane(masks, at, gap, n0[w], n1[w], n2[w], n3[w])
            zero = uint32(~random[w])
            # From the low bits up: below stays where the bits are equal, and is the threshold's bit where not.
            below[w] = uint32((zero & threshold) | (below[w] & (zero | threshold)))
            equal[w] = uint32(equal[w] & uint32(~(random[w] ^ threshold)))

    wait = barrier(grid)

    @update_jit()
    def update(
        x, tables, starts, model, sums, steps, stride, word, slot, num_slots, num_sweeps, sweep_begin, key0, key1
    ):
        around, masks, table, terms, num_sites, num_rows = tables
        row_step, chain_step, unit_step = steps
        base = uint64(model) * uint64(num_sites)
        n0 = cuda.local.array(words, uint32)
        n1 = cuda.local.array(words, uint32)
        n2 = cuda.local.array(words, uint32)
        n3 = cuda.local.array(words, uint32)
        r0 = cuda.local.array(words, uint32)
        r1 = cuda.local.array(words, uint32)
        r2 = cuda.local.array(words, uint32)
        r3 = cuda.local.array(words, uint32)
        below = cuda.local.array(words, uint32)
        equal = cuda.local.array(words, uint32)
        waiting = cuda.local.array(QUEUE, uint32)
        place = cuda.local.array(QUEUE, uint32)
        term = cuda.local.array(16, uint32)
        for s in range(num_sweeps):
            sweep = uint64(sweep_begin) + uint64(s)
            for color in range(starts.shape[0] - 1):
                begin = uint32(starts[uint64(color)])
                end = uint32(starts[uint64(color + 1)])
                site = uint32(begin + slot)
                count = uint32(0)
                while site < end or count > uint32(0):
                    if site < end:
                        # 1. The neighbors.
                        at = uint64(site) * uint64(4)
                        a0 = uint32(around[at] + word)
                        a1 = uint32(around[at + uint64(1)] + word)
                        a2 = uint32(around[at + uint64(2)] + word)
                        a3 = uint32(around[at + uint64(3)] + word)
                        for w in range(words):
                            n0[w] = x[uint64(a0) + uint64(w * lanes)]
                            n1[w] = x[uint64(a1) + uint64(w * lanes)]
                            n2[w] = x[uint64(a2) + uint64(w * lanes)]
                            n3[w] = x[uint64(a3) + uint64(w * lanes)]
                            below[w] = uint32(0)
                            equal[w] = uint32(_ONES)

                        # 2. The comparison.
                        row = base + uint64(site)
                        if wide:
                            mask = row * uint64(128)
                            gap = uint64(1)
                        else:
                            mask = row
                            gap = uint64(num_rows)
                        for half in range(2):
                            tag = counter_top(sweep, uint32(half))
                            for w in range(words):
                                r0[w], r1[w], r2[w], r3[w] = philox(
                                    uint32(word + uint32(w * lanes)), site, uint32(sweep), tag, key0, key1
                                )
                            compare(masks, mask, gap, n0, n1, n2, n3, r0, below, equal)
                            compare(masks, mask + gap * uint64(16), gap, n0, n1, n2, n3, r1, below, equal)
                            compare(masks, mask + gap * uint64(32), gap, n0, n1, n2, n3, r2, below, equal)
                            compare(masks, mask + gap * uint64(48), gap, n0, n1, n2, n3, r3, below, equal)
                            mask = mask + gap * uint64(64)

                        # 3. The states.
                        spot = uint32(site * stride + word)
                        if mode == 1 and not per_chain:
                            for k in range(16):
                                term[k] = terms[row * uint64(16) + uint64(k)]
                        for w in range(words):
                            here = uint32(word + uint32(w * lanes))
                            x[uint64(spot) + uint64(w * lanes)] = uint32(~below[w])
                            if equal[w] != uint32(0):
                                waiting[count] = equal[w]
                                place[count] = uint32(site * uint32(words) + uint32(w))
                                count = uint32(count + uint32(1))
                            if mode != 0:
                                sum_at = uint64(site) * row_step + uint64(here) * unit_step
                                if mode == 2:
                                    add_counts(sums, sum_at, chain_step, below[w], per_chain)
                                elif per_chain:
                                    _add_thresholds(sums, sum_at, chain_step, table, row, n0[w], n1[w], n2[w], n3[w])
                                else:
                                    more = _sum_thresholds(term, n0[w], n1[w], n2[w], n3[w])
                                    cuda.atomic.add(sums, sum_at, uint64(more))
                        site = uint32(site + num_slots)

                    # 4. Undecided chains.
                    if site >= end or count > uint32(QUEUE - words):
                        while count > uint32(0):
                            count = uint32(count - uint32(1))
                            old = uint32(place[count] // uint32(words))
                            here = uint32(word + uint32((place[count] % uint32(words)) * uint32(lanes)))
                            spot = uint32(old * stride + here)
                            zeros = _settle(
                                x, around, table, base + uint64(old), here, old, waiting[count], sweep, key0, key1
                            )
                            x[spot] = uint32(x[spot] & uint32(~zeros))
                            if mode == 2:
                                sum_at = uint64(old) * row_step + uint64(here) * unit_step
                                add_counts(sums, sum_at, chain_step, zeros, per_chain)
                wait()

    return update
