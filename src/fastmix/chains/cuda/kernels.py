"""CUDA kernels: random numbers, and packed binary variables with at most four neighbours.

*Random numbers* are those of Philox4x32-10 (Salmon, Moraes, Dror and Shaw, 2011): a bijection of 128 bits, keyed by the
seed, applied to the place where the numbers are used (sweep, variable, chains). There is no state to keep, and neither
the shape of a launch nor the number of chains can change what a chain draws.

*Packed chains.* A 32-bit word holds the states of one variable in 32 chains. A uniform u is compared with a threshold
t = round(p * 2^32) bit by bit for all 32 chains at once: eight random words are the top bits of the 32 uniforms, and
the same bits of the thresholds are selected by the words of the neighbours, plane by plane. One chain in 256 is still
undecided then; it is put aside, and its comparison is ended on its own with 24 more bits, so that all 32 bits count.
A threshold of 2^32 - 1 stands for certainty.

Sites are numbered by their place in a sweep, so that colours are contiguous. Every kernel runs over the colours from
``first`` to ``last`` and over sweeps; a block owns its chains, and where a colour is shared between blocks (more than
one along y) either the launch has a single colour and sweep, or the kernel waits for the whole grid (``grid``). States
are at ``x[site * stride + unit]``, fewer than 2^32 of them, and neighbours are given as ``site * stride`` already.
Additions to sums are atomic not because anybody else would add, but because the thread then need not wait for them.
"""
# Types inside kernels are those of their compiler.
# mypy: ignore-errors

from __future__ import annotations

from functools import cache
from typing import Any

from numba import config, cuda, uint32, uint64

__all__ = [
    "SETTLE_TAG", "add_counts", "all_threads", "barrier", "counter_top", "first_thread", "packed_update", "philox",
    "shorten", "update_jit",
]  # fmt: skip

SETTLE_TAG = 16  # what the counter of the numbers that end a comparison has beside the chain

_MULTIPLIER_0, _MULTIPLIER_1 = 0xD2511F53, 0xCD9E8D57
_WEYL_0, _WEYL_1 = 0x9E3779B9, 0xBB67AE85
_ONES = 0xFFFFFFFF
_QUEUE = 16  # comparisons put aside by a thread before it ends them

# Numba widens mixed integers, and takes a signed index for one that may count from the end: hence all the casts.


def update_jit(**options: Any) -> Any:
    """The decorator of updates: functions that run sweeps over the colours from ``first_colour`` to ``last_colour``.

    A colour's sites are shared by the threads of a block, each of which has a unit of chains, and by those of a
    ``grid`` that waits for all of its blocks after every colour.
    """
    return cuda.jit(
        device=True, **options, **({} if getattr(config, "ENABLE_CUDASIM", False) else {"forceinline": True})
    )


@cache
def barrier(grid: bool) -> Any:
    """A function that waits for all threads of a block, or of a cooperative launch."""

    @cuda.jit(device=True)
    def wait():
        if grid:
            cuda.cg.this_grid().sync()
        else:
            cuda.syncthreads()

    return wait


@cuda.jit(device=True)
def first_thread():
    """The number of this thread among those of a launch along x."""
    return uint64(cuda.blockIdx.x) * uint64(cuda.blockDim.x) + uint64(cuda.threadIdx.x)


@cuda.jit(device=True)
def all_threads():
    """The number of threads of a launch along x."""
    return uint64(cuda.gridDim.x) * uint64(cuda.blockDim.x)


@cuda.jit(device=True)
def shorten(threshold):
    """A threshold rounded to 24 bits."""
    return uint32((threshold >> uint32(8)) + ((threshold >> uint32(7)) & uint32(1)))


@cuda.jit(device=True)
def philox(a, b, c, d, key0, key1):
    """Four random words for the counter (a, b, c, d); a product of 32-bit words is one instruction."""
    for _ in range(10):
        p = uint64(a) * uint64(_MULTIPLIER_0)
        q = uint64(c) * uint64(_MULTIPLIER_1)
        a = uint32(uint32(q >> uint64(32)) ^ b ^ key0)
        c = uint32(uint32(p >> uint64(32)) ^ d ^ key1)
        b = uint32(q)
        d = uint32(p)
        key0 = uint32(uint64(key0) + uint64(_WEYL_0))
        key1 = uint32(uint64(key1) + uint64(_WEYL_1))
    return a, b, c, d


@cuda.jit(device=True)
def counter_top(sweep, tag):
    """The last word of a counter: a tag below 256, and the sweep beyond 32 bits."""
    return uint32(((sweep >> uint64(32)) << uint64(8)) | uint64(tag))


@cuda.jit(device=True)
def _either(select, one, zero):
    return uint32((select & one) | (uint32(~select) & zero))


@cuda.jit(device=True)
def _leaf(word, masks, at, gap):
    """0, all ones, the word or its complement: the word times 0 or +-1, plus 0 or -1.

    A multiplication, because logical operations are what there are most of and multiplications run beside them.
    """
    factor, summand = uint64(uint32(masks[at])), uint64(uint32(masks[at + gap]))
    return uint32(uint64(word) * factor + summand)


@cuda.jit(device=True)
def _bit_plane(masks, at, gap, n0, n1, n2, n3):
    """One bit of the thresholds of 32 chains: leaf j is for the pattern j of the first three neighbours."""
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
    c, one = uint32(chain), uint32(1)
    high = (((n0 >> c) & one) << uint32(3)) | (((n1 >> c) & one) << uint32(2))
    return uint64(high | (((n2 >> c) & one) << one) | ((n3 >> c) & one))


@cuda.jit(device=True)
def _settle(x, around, table, row, word, site, undecided, sweep, key0, key1):
    """Of the undecided chains of a word, those whose uniform is below the threshold after all: 24 more bits."""
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
def add_counts(sums, at, chain_step, zeros, per_chain):
    """Add one sweep, 2^24, for every chain of a word that is in state 0."""
    if per_chain:
        while zeros != uint32(0):
            chain = uint32(cuda.ffs(zeros) - 1)
            zeros = uint32(zeros ^ uint32(uint32(1) << chain))
            cuda.atomic.add(sums, at + uint64(chain) * chain_step, uint32(1 << 24))
    else:
        cuda.atomic.add(sums, at, uint64(cuda.popc(zeros)) << uint64(24))


@cuda.jit(device=True)
def _add_thresholds(sums, at, chain_step, table, row, n0, n1, n2, n3):
    """Add the thresholds of all 32 chains, rounded to 24 bits, each to its own sum."""
    for chain in range(32):
        threshold = table[row * uint64(16) + _pattern(n0, n1, n2, n3, chain)]
        cuda.atomic.add(sums, at + uint64(chain) * chain_step, shorten(threshold))


@cuda.jit(device=True)
def _sum_thresholds(terms, n0, n1, n2, n3):
    """The sum over 32 chains of their thresholds, rounded to 24 bits, from counts of ones.

    A threshold is a polynomial of the four neighbours: ``terms`` holds its 16 coefficients, modulo 2^32, and the sum of
    a product over the chains is a number of ones. The sum itself is below 2^30.
    """
    total = uint64(0)
    for pattern in range(16):
        word = uint32(_ONES)
        if pattern & 8:
            word = uint32(word & n0)
        if pattern & 4:
            word = uint32(word & n1)
        if pattern & 2:
            word = uint32(word & n2)
        if pattern & 1:
            word = uint32(word & n3)
        total += uint64(cuda.popc(word)) * uint64(terms[pattern])
    return uint32(total)


@cache
def packed_update(words: int, lanes: int, mode: int, per_chain: bool, grid: bool) -> Any:
    """The update of binary variables with at most four neighbours, in packed chains.

    A thread has ``words`` words of chains, every ``lanes``-th of those of its block, which has ``lanes`` threads along
    x: with fewer than 32 the threads of a warp update different sites. Its tables are ``around`` uint32 (n, 4), the
    neighbours, padded in front with row n; ``masks`` int8 (models, n, 128), or with few lanes (128, models, n), so that
    those of neighbouring sites are read together; ``table`` and ``terms`` uint32 (models, n, 16), see
    :func:`fastmix.chains.cuda.table_kernels.fill_masks`; n, and n times the number of models.
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
        x, tables, starts, model, sums, steps, stride, word, slot, num_slots, first_colour, last_colour,
        num_sweeps, sweep_begin, key0, key1,
    ):  # fmt: skip
        around, masks, table, terms, num_sites, num_rows = tables
        row_step, chain_step, unit_step = steps
        base = uint64(model) * uint64(num_sites)
        n0, n1 = cuda.local.array(words, uint32), cuda.local.array(words, uint32)
        n2, n3 = cuda.local.array(words, uint32), cuda.local.array(words, uint32)
        r0, r1 = cuda.local.array(words, uint32), cuda.local.array(words, uint32)
        r2, r3 = cuda.local.array(words, uint32), cuda.local.array(words, uint32)
        below, equal = cuda.local.array(words, uint32), cuda.local.array(words, uint32)
        waiting, place = cuda.local.array(_QUEUE, uint32), cuda.local.array(_QUEUE, uint32)
        term = cuda.local.array(16, uint32)
        for s in range(num_sweeps):
            sweep = uint64(sweep_begin) + uint64(s)
            for colour in range(first_colour, last_colour):
                begin, end = uint32(starts[uint64(colour)]), uint32(starts[uint64(colour + 1)])
                site, count = uint32(begin + slot), uint32(0)
                while site < end or count > uint32(0):
                    if site < end:
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
                        row = base + uint64(site)
                        if wide:
                            mask, gap = row * uint64(128), uint64(1)
                        else:
                            mask, gap = row, uint64(num_rows)
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
                    # Neighbours do not change within a colour, so comparisons can wait until many are ended together.
                    if site >= end or count > uint32(_QUEUE - words):
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
