"""What CUDA kernels share: random numbers, the numbers of threads, and the launch of updates, which are in other files.

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

from numba import config, cuda, float64, uint32, uint64

from fastmix._jit import cuda_jit

__all__ = [
    "SIMULATED",
    "add_counts",
    "add_up",
    "barrier",
    "counter_top",
    "is_below",
    "philox",
    "share_of",
    "sweep_kernel",
    "threshold_of",
    "update_jit",
]

SIMULATED = bool(getattr(config, "ENABLE_CUDASIM", False))  # whose decorators take fewer options

_MULTIPLIER_0, _MULTIPLIER_1 = 0xD2511F53, 0xCD9E8D57
_WEYL_0, _WEYL_1 = 0x9E3779B9, 0xBB67AE85
_ONES = 0xFFFFFFFF

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
