"""The launch of sweeps on a GPU, and what updates share; the updates are in files of their own.

*Updates*, those of ``packed_kernels.py``, ``field_kernels.py`` and ``state_kernels.py``, run over all colors and
sweeps. Sites are numbered by their place in a sweep, so that colors are contiguous. A block owns its chains, and where
a color is shared between blocks (more than one along y) the kernel waits for the whole ``grid``. States are at
``x[site * stride + unit]``, fewer than 2^32 of them, and neighbors are given as ``site * stride`` already. Additions to
sums are atomic not because other threads would add to the same sum, but because the thread then need not wait for them.
"""
# Types inside kernels are those of their compiler, which mypy does not know.
# mypy: ignore-errors

from __future__ import annotations

from functools import cache
from typing import Any

from numba import config, cuda, uint32, uint64

from fastmix._jit import cuda_jit

__all__ = ["SIMULATED", "add_counts", "add_up", "barrier", "sweep_kernel", "update_jit"]

SIMULATED = bool(getattr(config, "ENABLE_CUDASIM", False))  # the simulator's decorators take fewer options

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
    thread = uint32(cuda.threadIdx.x)
    half = uint32(cuda.blockDim.x >> 1)
    shared[thread] = value
    cuda.syncthreads()
    while half > uint32(0):
        if thread < half:
            shared[thread] += shared[uint32(thread + half)]
        cuda.syncthreads()
        half = uint32(half >> uint32(1))


@cache
def sweep_kernel(update: Any, words: int, fastmath: bool) -> Any:
    """The kernel that runs an update, with ``words`` units of chains per thread.

    ``starts`` int64 are the first places of the colors, and their end; ``models`` int32 (units,) the parameter sets of
    the chains of a thread; ``steps`` those of rows, chains of a unit and units in ``sums``. All arrays are flat.
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
