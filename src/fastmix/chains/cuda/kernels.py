"""What CUDA kernels share: random numbers, the launch of updates, which are in other files, and their tables.

*Random numbers* are those of Philox4x32-10 (Salmon, Moraes, Dror and Shaw, 2011): a bijection of 128 bits, keyed by the
seed, applied to the place where the numbers are used (sweep, variable, chains). There is no state to keep, and neither
the shape of a launch nor the number of chains can change what a chain draws.

*Updates*, those of ``packed_kernels.py``, ``field_kernels.py`` and ``state_kernels.py``, run over all colors and
sweeps. Sites are numbered by their place in a sweep, so that colors are contiguous. A block owns its chains, and where
a color is shared between blocks (more than one along y) the kernel waits for the whole ``grid``. States are at
``x[site * stride + unit]``, fewer than 2^32 of them, and neighbors are given as ``site * stride`` already. Additions to
sums are atomic not because anybody else would add, but because the thread then need not wait for them.
"""
# Types inside kernels are those of their compiler.
# mypy: ignore-errors

from __future__ import annotations

import math
from functools import cache
from typing import Any

from numba import config, cuda, float32, float64, int8, int64, uint32, uint64

from fastmix._jit import cuda_jit

__all__ = [
    "SIMULATED", "add_counts", "add_up", "barrier", "counter_top", "fill_fields", "fill_masks", "fill_thresholds",
    "is_below", "philox", "share_of", "sweep_kernel", "threshold_of", "update_jit",
]  # fmt: skip

SIMULATED = bool(getattr(config, "ENABLE_CUDASIM", False))  # whose decorators take fewer options

_MULTIPLIER_0, _MULTIPLIER_1 = 0xD2511F53, 0xCD9E8D57
_WEYL_0, _WEYL_1 = 0x9E3779B9, 0xBB67AE85
_ONES = 0xFFFFFFFF
_LANES = 16  # threads that share the patterns around a variable: all of those of four binary neighbors
_FULL = 4294967296.0

# Numba widens mixed integers, and takes a signed index for one that may count from the end: hence all the casts.


def update_jit(**options: Any) -> Any:
    """The decorator of updates, functions that run sweeps: a color's sites are shared by threads along y."""
    return cuda.jit(device=True, **options, **({} if SIMULATED else {"forceinline": True}))


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
def add_up(shared, value):
    """The sum of the values of a block's threads, a power of two of them along x, into ``shared[0]``."""
    thread, half = uint32(cuda.threadIdx.x), uint32(cuda.blockDim.x >> 1)
    shared[thread] = value
    cuda.syncthreads()
    while half > uint32(0):
        if thread < half:
            shared[thread] += shared[uint32(thread + half)]
        cuda.syncthreads()
        half = uint32(half >> uint32(1))


@cache
def sweep_kernel(update: Any, words: int, fastmath: bool) -> Any:
    """The kernel that runs an update, with ``words`` units of chains a thread.

    ``starts`` int64 says where colors begin, ``models`` int32 (units,) which parameters the chains of a thread use, and
    ``steps`` how rows, chains of a unit and units lie in ``sums``. All arrays are flat.
    """

    @cuda_jit(cache=True, fastmath=fastmath)
    def kernel(x, tables, starts, models, sums, steps, stride, num_sweeps, sweep_begin, key0, key1):
        unit = uint32(cuda.blockIdx.x * cuda.blockDim.x * words + cuda.threadIdx.x)
        slot = uint32(cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y)
        num_slots = uint32(cuda.gridDim.y * cuda.blockDim.y)
        model = uint32(models[unit])
        update(
            x, tables, starts, model, sums, steps, stride, unit, slot, num_slots, num_sweeps, sweep_begin, key0, key1
        )

    return kernel


# -- tables of updates from new parameters; ``layout.py`` makes the rest on the host ----------------------------------


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
