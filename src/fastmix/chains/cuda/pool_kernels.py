"""CUDA kernels of a pool of chains that follow a changing model.

States are those of :class:`fastmix.chains.cuda.gibbs.CudaGibbs`, flat and by the place of a variable in a sweep:
chain c of place p is bit ``c % 32`` of the word ``x[p * stride + c // 32]`` (packed), or the element ``x[p * stride +
c]``. A row of zeros follows the last place. So a variable is an edge to that row, and a *term* is either: two rows,
the number of states of the second (1 for a variable), and where its entries begin in the vector of all parameters.

Threads run along chains, which lie side by side. Sums are added up in an order that depends on the shape of the launch
only, so that the same seed gives the same bits.
"""
# Types inside kernels are those of their compiler.
# mypy: ignore-errors

from __future__ import annotations

import math
from functools import cache
from typing import Any

from numba import cuda, float64, int8, int64, uint32, uint64

from fastmix._jit import cuda_jit

__all__ = [
    "MOST_THREADS",
    "centre_rows",
    "count_kernel",
    "energy_kernel",
    "fill_masks",
    "fill_thresholds",
    "gather_packed",
    "gather_states",
    "sum_pieces",
]

MOST_THREADS = 128  # of a block; a power of two
_ENTRIES = 4  # of a table that are added up in one pass: all of two binary variables
_ROOM = _ENTRIES * MOST_THREADS
_LANES = 16  # threads that share the patterns around a variable: all of those of four binary neighbours
_FULL = 4294967296.0

# Numba widens mixed integers, and takes a signed index for one that may count from the end: hence all the casts.


@cuda.jit(device=True)
def _packed_state(x, row, chain):
    return uint64((x[row + (chain >> uint64(5))] >> uint32(chain & uint64(31))) & uint32(1))


@cuda.jit(device=True)
def _plain_state(x, row, chain):
    return uint64(x[row + chain])


# -- energies ---------------------------------------------------------------------------------------------------------


@cache
def energy_kernel(packed: bool) -> Any:
    """The kernel that adds up terms, chain by chain.

    Returns
    -------
    callable
        Kernel of ``x``; ``rows`` uint32 (terms, 2), ``steps`` uint32 and ``offsets`` uint64 (terms,); ``values``
        float64, all parameters; ``pieces`` int64, where the pieces of the list of terms begin, and its end; the number
        of chains; ``out`` float64 (pieces, chains). Blocks along x share the chains, blocks along y the pieces.
    """
    state = _packed_state if packed else _plain_state

    @cuda_jit(cache=True)
    def kernel(x, rows, steps, offsets, values, pieces, num_chains, out):
        chain = uint64(cuda.blockIdx.x) * uint64(cuda.blockDim.x) + uint64(cuda.threadIdx.x)
        if chain >= num_chains:
            return
        piece = uint64(cuda.blockIdx.y)
        while piece + uint64(1) < uint64(pieces.shape[0]):
            total = 0.0
            term, end = uint64(pieces[piece]), uint64(pieces[piece + uint64(1)])
            while term < end:
                one = state(x, uint64(rows[term * uint64(2)]), chain)
                two = state(x, uint64(rows[term * uint64(2) + uint64(1)]), chain)
                total += values[uint64(offsets[term]) + one * uint64(steps[term]) + two]
                term += uint64(1)
            out[piece * num_chains + chain] = total
            piece += uint64(cuda.gridDim.y)

    return kernel


@cuda_jit(cache=True)
def sum_pieces(parts, starts, num_chains, out):
    """Add up the pieces from ``starts[r]`` to ``starts[r + 1]`` for every row r of ``out`` (rows, chains)."""
    place = uint64(cuda.blockIdx.x) * uint64(cuda.blockDim.x) + uint64(cuda.threadIdx.x)
    size = uint64(starts.shape[0] - 1) * num_chains
    while place < size:
        row, chain = place // num_chains, place % num_chains
        total = 0.0
        piece, end = uint64(starts[row]), uint64(starts[row + uint64(1)])
        while piece < end:
            total += parts[piece * num_chains + chain]
            piece += uint64(1)
        out[place] = total
        place += uint64(cuda.gridDim.x) * uint64(cuda.blockDim.x)


@cuda_jit(cache=True)
def centre_rows(values, num_rows, num_chains):
    """Subtract the mean of every row (block by block) of ``values`` (rows, chains)."""
    shared = cuda.shared.array(MOST_THREADS, float64)
    thread, threads = uint64(cuda.threadIdx.x), uint64(cuda.blockDim.x)
    row = uint64(cuda.blockIdx.x)
    while row < num_rows:
        begin = row * num_chains
        total = 0.0
        chain = thread
        while chain < num_chains:
            total += values[begin + chain]
            chain += threads
        shared[thread] = total
        cuda.syncthreads()
        half = threads >> uint64(1)
        while half > uint64(0):
            if thread < half:
                shared[thread] += shared[thread + half]
            cuda.syncthreads()
            half >>= uint64(1)
        mean = shared[0] / float64(num_chains)
        chain = thread
        while chain < num_chains:
            values[begin + chain] -= mean
            chain += threads
        cuda.syncthreads()
        row += uint64(cuda.gridDim.x)


# -- weighted counts --------------------------------------------------------------------------------------------------


@cache
def count_kernel(packed: bool) -> Any:
    """The kernel that adds up the weights of the chains in every state of every term (block by block).

    Returns
    -------
    callable
        Kernel of ``x``; ``rows``, ``steps``, ``offsets`` as above and ``sizes`` uint64 (terms,), the entries of a term;
        ``owners`` int64 (terms,), the row of ``weights`` float64 (rows, chains) that a term takes; the number of
        chains; ``out`` float64, aligned with all parameters. The block has a power of two of threads.
    """
    state = _packed_state if packed else _plain_state

    @cuda_jit(cache=True)
    def kernel(x, rows, steps, offsets, sizes, owners, weights, num_chains, out):
        shared = cuda.shared.array(_ROOM, float64)
        thread, threads = uint64(cuda.threadIdx.x), uint64(cuda.blockDim.x)
        term = uint64(cuda.blockIdx.x)
        while term < uint64(sizes.shape[0]):
            one, two = uint64(rows[term * uint64(2)]), uint64(rows[term * uint64(2) + uint64(1)])
            step, size = uint64(steps[term]), uint64(sizes[term])
            begin, at = uint64(owners[term]) * num_chains, uint64(offsets[term])
            entry = uint64(0)
            while entry < size:
                sum0, sum1, sum2, sum3 = 0.0, 0.0, 0.0, 0.0
                chain = thread
                while chain < num_chains:
                    found = state(x, one, chain) * step + state(x, two, chain)
                    weight = weights[begin + chain]
                    sum0 += weight if found == entry else 0.0
                    sum1 += weight if found == entry + uint64(1) else 0.0
                    sum2 += weight if found == entry + uint64(2) else 0.0
                    sum3 += weight if found == entry + uint64(3) else 0.0
                    chain += threads
                mine = thread * uint64(_ENTRIES)
                shared[mine] = sum0
                shared[mine + uint64(1)] = sum1
                shared[mine + uint64(2)] = sum2
                shared[mine + uint64(3)] = sum3
                cuda.syncthreads()
                half = threads >> uint64(1)
                while half > uint64(0):
                    if thread < half:
                        other = mine + half * uint64(_ENTRIES)
                        for k in range(_ENTRIES):
                            shared[mine + uint64(k)] += shared[other + uint64(k)]
                    cuda.syncthreads()
                    half >>= uint64(1)
                # In a loop: a block of a small launch may have fewer threads than there are entries.
                k = thread
                while k < uint64(_ENTRIES) and entry + k < size:
                    out[at + entry + k] = shared[k]
                    k += threads
                cuda.syncthreads()
                entry += uint64(_ENTRIES)
            term += uint64(cuda.gridDim.x)

    return kernel


# -- resampling -------------------------------------------------------------------------------------------------------


@cuda_jit(cache=True)
def gather_packed(x, sources, stride, num_sites, out):
    """Let chain c of ``out`` have the states of chain ``sources[c]`` of ``x``; ``sources`` uint32 (32 * stride,)."""
    place = uint64(cuda.blockIdx.x) * uint64(cuda.blockDim.x) + uint64(cuda.threadIdx.x)
    while place < num_sites * stride:
        row, word = (place // stride) * stride, place % stride
        bits = uint32(0)
        for k in range(32):
            bit = _packed_state(x, row, uint64(sources[word * uint64(32) + uint64(k)]))
            bits = uint32(bits | uint32(uint32(bit) << uint32(k)))
        out[place] = bits
        place += uint64(cuda.gridDim.x) * uint64(cuda.blockDim.x)


@cuda_jit(cache=True)
def gather_states(x, sources, stride, num_sites, out):
    """The same for chains of bytes; ``sources`` uint32 (stride,)."""
    place = uint64(cuda.blockIdx.x) * uint64(cuda.blockDim.x) + uint64(cuda.threadIdx.x)
    while place < num_sites * stride:
        chain = place % stride
        out[place] = x[place - chain + uint64(sources[chain])]
        place += uint64(cuda.gridDim.x) * uint64(cuda.blockDim.x)


# -- tables of a new model --------------------------------------------------------------------------------------------


@cuda.jit(device=True)
def _log_weight(values, own, first, last, theirs, tables_at, own_steps, their_steps, strides, pattern, state):
    """The log-weight of a state of a variable, for a pattern of its neighbours' states."""
    total = values[own + state]
    for k in range(first, last):
        other = (pattern // strides[k]) % theirs[k]
        total += values[tables_at[k] + state * own_steps[k] + other * their_steps[k]]
    return total


@cuda_jit(cache=True)
def fill_thresholds(
    values, states, unary_at, indptr, theirs, tables_at, own_steps, their_steps, strides, starts, table
):
    """Cumulative conditional probabilities of every variable and pattern, as 32-bit thresholds.

    What :func:`fastmix.chains.pool_kernels.fill_thresholds` does, with ``values`` for all parameters, and
    ``tables_at`` counted from the first of them. All index arrays are int64.
    """
    place = int64(cuda.blockIdx.x) * int64(cuda.blockDim.x) + int64(cuda.threadIdx.x)
    while place < states.shape[0] * _LANES:
        site, pattern = place // _LANES, place % _LANES
        count, first, last = states[site], indptr[site], indptr[site + 1]
        own, patterns = unary_at[site], int64(1)
        for k in range(first, last):
            patterns *= theirs[k]
        while pattern < patterns:
            top = -math.inf
            for s in range(count):
                here = _log_weight(
                    values, own, first, last, theirs, tables_at, own_steps, their_steps, strides, pattern, s
                )
                top = max(top, here)
            total = 0.0
            for s in range(count):
                here = _log_weight(
                    values, own, first, last, theirs, tables_at, own_steps, their_steps, strides, pattern, s
                )
                total += math.exp(here - top)
            below = 0.0
            for s in range(count - 1):
                here = _log_weight(
                    values, own, first, last, theirs, tables_at, own_steps, their_steps, strides, pattern, s
                )
                below += math.exp(here - top)
                rounded = min(below / total * _FULL + 0.5, _FULL - 1.0)  # once it is cut to whole numbers
                table[starts[site] + pattern * (count - 1) + s] = uint32(rounded)
            pattern += _LANES
        place += int64(cuda.gridDim.x) * int64(cuda.blockDim.x)


@cuda_jit(cache=True)
def fill_masks(table, num_sites, site_step, entry_step, masks):
    """The masks of :func:`fastmix.chains.cuda.tables.packed_tables` from its table (n, 16).

    Entry e of a site is at ``masks[site * site_step + e * entry_step]``.
    """
    place = uint64(cuda.blockIdx.x) * uint64(cuda.blockDim.x) + uint64(cuda.threadIdx.x)
    while place < num_sites * uint64(64):
        site, pair = place % num_sites, place // num_sites
        shift, pattern = uint32(uint64(24) + (pair >> uint64(3))), (pair & uint64(7)) * uint64(2)
        at = site * uint64(16) + pattern
        low = int64((table[at] >> shift) & uint32(1))
        high = int64((table[at + uint64(1)] >> shift) & uint32(1))
        to = site * site_step + pair * uint64(2) * entry_step
        masks[to] = int8(high - low)
        masks[to + entry_step] = int8(-low)
        place += uint64(cuda.gridDim.x) * uint64(cuda.blockDim.x)
