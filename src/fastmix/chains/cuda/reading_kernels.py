"""CUDA kernels that read chains: energies, counts, pairs of states, sums of sweeps, resampling.

States lie by the place of a variable in a sweep: configuration c of place p is bit ``c % 32`` of the word
``x[p * stride + c // 32]`` (packed), or the element ``x[p * stride + c]``. A row of zeros follows the last place. So a
variable is an edge to that row, and a *term* is a variable or an edge: two rows, the number of states of the second (1
for a variable), and the start of its entries in a vector of parameters. In models with factors over more variables a
term has any number of rows, each with the step that its states make.

Sums of floats are added up in an order that depends on the shape of the launch only, so that the same seed gives the
same bits.
"""
# Types inside kernels are those of their compiler, which mypy does not know.
# mypy: ignore-errors

from __future__ import annotations

import math
from functools import cache
from typing import Any

from numba import cuda, float64, int64, uint32, uint64

from fastmix._jit import cuda_jit
from fastmix.chains.cuda.sweep_kernels import add_up

__all__ = [
    "PAIR_UNIT",
    "center_rows",
    "count_kernel",
    "empty_sums",
    "energy_kernel",
    "entry_finder",
    "gather_kernel",
    "pair_kernel",
    "sum_pieces",
]

#: Half a unit of an edge marginal, in the whole numbers that are added up.
PAIR_UNIT = 1 << 31

_MOST_THREADS = 128  # threads of a block that adds up, at most; see ``READING_THREADS``
_ENTRIES = 4  # entries of a table that are added up in one pass: all of two binary variables
_ROOM = _ENTRIES * _MOST_THREADS
_HISTOGRAM = 1024  # pairs of states that are counted in shared memory

# Numba widens mixed integers, and takes a signed index for one that may count from the end: hence all the casts.


@cuda.jit(device=True)
def _packed_state(x, row, chain):
    """The state of a packed chain: a bit."""
    return uint64((x[row + (chain >> uint64(5))] >> uint32(chain & uint64(31))) & uint32(1))


@cuda.jit(device=True)
def _plain_state(x, row, chain):
    """The state of a chain: an element."""
    return uint64(x[row + chain])


@cache
def entry_finder(packed: bool, factors: bool) -> Any:
    """The function that finds the entry of a term that a chain is in, counted from the first of the term.

    ``terms`` are ``rows`` uint32 (terms, 2), ``steps`` uint32 and ``offsets`` uint64 (terms,); with ``factors`` rows
    and steps are those of all members, and ``starts`` uint32 are the first member of each term, and their number.
    """
    state = _packed_state if packed else _plain_state

    @cuda.jit(device=True)
    def pair(x, terms, term, chain):
        rows, steps, _ = terms
        one = state(x, uint64(rows[term * uint64(2)]), chain)
        two = state(x, uint64(rows[term * uint64(2) + uint64(1)]), chain)
        return one * uint64(steps[term]) + two

    @cuda.jit(device=True)
    def factor(x, terms, term, chain):
        rows, steps, _, starts = terms
        entry = uint64(0)
        k = uint64(starts[term])
        end = uint64(starts[term + uint64(1)])
        while k < end:
            entry += state(x, uint64(rows[k]), chain) * uint64(steps[k])
            k += uint64(1)
        return entry

    return factor if factors else pair


# -- energies ---------------------------------------------------------------------------------------------------------


@cache
def energy_kernel(packed: bool, factors: bool) -> Any:
    """The kernel that adds up terms, chain by chain.

    ``terms`` are as for :func:`entry_finder`, ``values`` float64 are all parameters; ``pieces`` int64 are the starts of
    the pieces of the list of terms, and its end. The result is ``out`` float64 (pieces, chains). Blocks along x share
    the chains, blocks along y the pieces.
    """
    find = entry_finder(packed, factors)

    @cuda_jit(cache=True)
    def kernel(x, terms, values, pieces, num_chains, out):
        offsets = terms[2]
        chain = uint64(cuda.grid(1))
        if chain >= num_chains:
            return
        piece = uint64(cuda.blockIdx.y)
        while piece + uint64(1) < uint64(pieces.shape[0]):
            total = 0.0
            term = uint64(pieces[piece])
            end = uint64(pieces[piece + uint64(1)])
            while term < end:
                total += values[uint64(offsets[term]) + find(x, terms, term, chain)]
                term += uint64(1)
            out[piece * num_chains + chain] = total
            piece += uint64(cuda.gridDim.y)

    return kernel


@cuda_jit(cache=True)
def sum_pieces(parts, starts, num_chains, out):
    """Add up the pieces from ``starts[r]`` to ``starts[r + 1]`` for every row r of ``out`` (rows, chains)."""
    place = uint64(cuda.grid(1))
    size = uint64(starts.shape[0] - 1) * num_chains
    while place < size:
        row = place // num_chains
        chain = place % num_chains
        total = 0.0
        piece = uint64(starts[row])
        end = uint64(starts[row + uint64(1)])
        while piece < end:
            total += parts[piece * num_chains + chain]
            piece += uint64(1)
        out[place] = total
        place += uint64(cuda.gridsize(1))


@cuda_jit(cache=True)
def center_rows(values, num_rows, num_chains):
    """Subtract the mean of every row (block by block) of ``values`` (rows, chains)."""
    shared = cuda.shared.array(_MOST_THREADS, float64)
    thread = uint64(cuda.threadIdx.x)
    threads = uint64(cuda.blockDim.x)
    row = uint64(cuda.blockIdx.x)
    while row < num_rows:
        begin = row * num_chains
        total = 0.0
        chain = thread
        while chain < num_chains:
            total += values[begin + chain]
            chain += threads
        add_up(shared, total)
        mean = shared[0] / float64(num_chains)
        chain = thread
        while chain < num_chains:
            values[begin + chain] -= mean
            chain += threads
        cuda.syncthreads()
        row += uint64(cuda.gridDim.x)


# -- counts -----------------------------------------------------------------------------------------------------------


@cache
def count_kernel(packed: bool, factors: bool) -> Any:
    """The kernel that adds up the weights of the chains in every state of every term (block by block).

    ``terms`` are as for :func:`entry_finder`; ``sizes`` uint64 (terms,) are the numbers of entries; ``owners`` int64
    (terms,) are the rows of ``weights`` float64 (rows, chains) that terms take; ``out`` float64 is aligned with all
    parameters. The number of threads of a block is a power of two.
    """
    find = entry_finder(packed, factors)

    @cuda_jit(cache=True)
    def kernel(x, terms, sizes, owners, weights, num_chains, out):
        offsets = terms[2]
        shared = cuda.shared.array(_ROOM, float64)
        thread = uint64(cuda.threadIdx.x)
        threads = uint64(cuda.blockDim.x)
        term = uint64(cuda.blockIdx.x)
        while term < uint64(sizes.shape[0]):
            size = uint64(sizes[term])
            begin = uint64(owners[term]) * num_chains
            at = uint64(offsets[term])
            entry = uint64(0)
            while entry < size:
                sum0 = 0.0
                sum1 = 0.0
                sum2 = 0.0
                sum3 = 0.0
                chain = thread
                while chain < num_chains:
                    found = find(x, terms, term, chain)
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


@cache
def pair_kernel(packed: bool) -> Any:
    """The kernel that adds up probabilities of the pairs of states on every edge (block by block).

    Either end adds ``PAIR_UNIT``, half a unit: the conditional probabilities of its states beside the present state of
    the other end. ``ends`` int64 (edges, 2) are places, and ``offsets`` the starts of the tables of edges in ``out``
    uint64. ``links`` are as in :func:`fastmix.chains.cuda.threshold_kernels.fill_thresholds`, for the parameters from
    ``values[at]`` on, then the factors, see ``Incident`` of the structure: ``indptr``, ``starts``, ``own_steps``,
    ``member_starts``, rows and steps of the members. Chains are those from ``first`` to ``last``.
    """
    state = _packed_state if packed else _plain_state

    @cuda.jit(device=True)
    def log_weight(x, links, values, at, site, s, chain):
        indptr = links[0]
        rows = links[1]
        starts = links[2]
        own_steps = links[3]
        other_steps = links[4]
        total = values[at + links[5][site] + s]
        for k in range(indptr[site], indptr[site + 1]):
            near = int64(state(x, uint64(rows[k]), chain))
            total += values[at + starts[k] + s * own_steps[k] + near * other_steps[k]]
        around, factors_at, factor_steps, member_starts, members, steps = links[7:]
        for f in range(around[site], around[site + 1]):
            place = at + factors_at[f] + s * factor_steps[f]
            for m in range(member_starts[f], member_starts[f + 1]):
                place += int64(state(x, uint64(members[m]), chain)) * steps[m]
            total += values[place]
        return total

    @cuda_jit(cache=True)
    def kernel(x, ends, offsets, links, values, at, first, last, stride, out):
        counts = cuda.shared.array(_HISTOGRAM, uint64)
        cuts = links[6]
        thread = int64(cuda.threadIdx.x)
        threads = int64(cuda.blockDim.x)
        edge = int64(cuda.blockIdx.x)
        while edge < offsets.shape[0]:
            columns = cuts[ends[2 * edge + 1]] + 1
            begin = offsets[edge]
            size = (cuts[ends[2 * edge]] + 1) * columns
            held = size <= _HISTOGRAM
            k = thread
            while k < _HISTOGRAM:
                counts[k] = uint64(0)
                k += threads
            cuda.syncthreads()
            chain = uint64(first) + uint64(thread)
            while chain < last:
                for end in range(2):
                    site = ends[2 * edge + end]
                    other = ends[2 * edge + 1 - end]
                    near = int64(state(x, uint64(other) * stride, chain))
                    top = -math.inf
                    total = 0.0
                    for s in range(cuts[site] + 1):
                        value = log_weight(x, links, values, at, site, s, chain)
                        if value > top:
                            total = total * math.exp(top - value) + 1.0
                            top = value
                        elif value > -math.inf:
                            total += math.exp(value - top)
                    for s in range(cuts[site] + 1):
                        value = log_weight(x, links, values, at, site, s, chain)
                        share = uint64(math.exp(value - top) / total * float64(PAIR_UNIT) + 0.5)
                        pair = s * columns + near if end == 0 else near * columns + s
                        if held:
                            cuda.atomic.add(counts, pair, share)
                        else:
                            cuda.atomic.add(out, begin + pair, share)
                chain += uint64(threads)
            cuda.syncthreads()
            k = thread
            while held and k < size:
                out[begin + k] = counts[k]
                k += threads
            cuda.syncthreads()
            edge += int64(cuda.gridDim.x)

    return kernel


# -- sums of sweeps ----------------------------------------------------------------------------------------------------


@cuda_jit(cache=True)
def empty_sums(sums, totals, num_rows, num_columns, per_group):
    """Move sums (num_rows, num_columns) to the totals of groups of columns; a last group that is not full is dropped.

    Both are flat; ``totals`` is uint64 (num_rows, num_columns // per_group).
    """
    groups = num_columns // per_group
    place = uint64(cuda.grid(1))
    while place < num_rows * groups:
        row = place // groups
        group = place % groups
        at = row * num_columns + group * per_group
        total = uint64(0)
        k = uint64(0)
        while k < per_group:
            total += uint64(sums[at + k])
            sums[at + k] = uint32(0)
            k += uint64(1)
        totals[place] = totals[place] + total
        place += uint64(cuda.gridsize(1))


# -- resampling -------------------------------------------------------------------------------------------------------


@cache
def gather_kernel(packed: bool) -> Any:
    """The kernel that lets chain c of ``out`` have the states of chain ``sources[c]`` of ``x``, for all columns."""

    @cuda_jit(cache=True)
    def kernel(x, sources, stride, num_sites, out):
        place = uint64(cuda.grid(1))
        while place < num_sites * stride:
            column = place % stride
            row = place - column
            if packed:
                bits = uint32(0)
                for k in range(32):
                    bit = _packed_state(x, row, uint64(sources[column * uint64(32) + uint64(k)]))
                    bits = uint32(bits | uint32(uint32(bit) << uint32(k)))
                out[place] = bits
            else:
                out[place] = x[row + uint64(sources[column])]
            place += uint64(cuda.gridsize(1))

    return kernel
