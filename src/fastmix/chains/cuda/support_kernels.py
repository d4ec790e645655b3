"""CUDA kernels for what is done between sweeps: emptying sums, counting pairs of states."""
# Types inside kernels are those of their compiler.
# mypy: ignore-errors

from __future__ import annotations

from numba import cuda, int32, uint32, uint64

from fastmix._jit import cuda_jit

__all__ = ["count_packed_pairs", "count_state_pairs", "empty_sums"]

_HISTOGRAM = 1024  # pairs of states that are counted in shared memory


@cuda_jit(cache=True)
def empty_sums(sums, totals, num_rows, num_columns, per_group):
    """Move sums (num_rows, num_columns) to the totals of groups of columns; a last group that is not full is dropped.

    Both are flat; ``totals`` is uint64 (num_rows, num_columns // per_group).
    """
    groups = num_columns // per_group
    place = uint64(cuda.blockIdx.x) * uint64(cuda.blockDim.x) + uint64(cuda.threadIdx.x)
    while place < num_rows * groups:
        row, group = place // groups, place % groups
        at = row * num_columns + group * per_group
        total, k = uint64(0), uint64(0)
        while k < per_group:
            total += uint64(sums[at + k])
            sums[at + k] = uint32(0)
            k += uint64(1)
        totals[place] = totals[place] + total
        place += uint64(cuda.gridDim.x) * uint64(cuda.blockDim.x)


@cuda_jit(cache=True)
def count_packed_pairs(x, ends, stride, num_words, last_mask, out):
    """Add the pairs of states of every edge (block by block) over all chains to ``out`` uint64 (edges * 4,).

    ``ends`` holds the places of both ends of every edge, and ``last_mask`` the chains that the last word has.
    """
    edge = uint64(cuda.blockIdx.x)
    while edge < uint64(ends.shape[0] // 2):
        one = uint64(ends[edge * uint64(2)]) * stride
        two = uint64(ends[edge * uint64(2) + uint64(1)]) * stride
        both, first, second, chains = uint64(0), uint64(0), uint64(0), uint64(0)
        word = uint64(cuda.threadIdx.x)
        while word < num_words:
            mask = uint32(0xFFFFFFFF) if word + uint64(1) < num_words else last_mask
            a, b = uint32(x[one + word] & mask), uint32(x[two + word] & mask)
            both += uint64(cuda.popc(uint32(a & b)))
            first += uint64(cuda.popc(a))
            second += uint64(cuda.popc(b))
            chains += uint64(cuda.popc(mask))
            word += uint64(cuda.blockDim.x)
        at = edge * uint64(4)
        cuda.atomic.add(out, at, chains + both - first - second)
        cuda.atomic.add(out, at + uint64(1), second - both)
        cuda.atomic.add(out, at + uint64(2), first - both)
        cuda.atomic.add(out, at + uint64(3), both)
        edge += uint64(cuda.gridDim.x)


@cuda_jit(cache=True)
def count_state_pairs(x, ends, sizes, offsets, stride, num_chains, out):
    """The same for any states: ``sizes`` holds both state counts of every edge, ``offsets`` where its pairs begin."""
    counts = cuda.shared.array(_HISTOGRAM, int32)
    edge = uint64(cuda.blockIdx.x)
    while edge < uint64(ends.shape[0] // 2):
        one = uint64(ends[edge * uint64(2)]) * stride
        two = uint64(ends[edge * uint64(2) + uint64(1)]) * stride
        columns = uint64(sizes[edge * uint64(2) + uint64(1)])
        size = uint64(sizes[edge * uint64(2)]) * columns
        begin = uint64(offsets[edge])
        k = uint64(cuda.threadIdx.x)
        while k < uint64(_HISTOGRAM):
            counts[k] = int32(0)
            k += uint64(cuda.blockDim.x)
        cuda.syncthreads()
        chain = uint64(cuda.threadIdx.x)
        while chain < num_chains:
            pair = uint64(x[one + chain]) * columns + uint64(x[two + chain])
            if size <= uint64(_HISTOGRAM):
                cuda.atomic.add(counts, pair, int32(1))
            else:
                cuda.atomic.add(out, begin + pair, uint64(1))
            chain += uint64(cuda.blockDim.x)
        cuda.syncthreads()
        if size <= uint64(_HISTOGRAM):
            k = uint64(cuda.threadIdx.x)
            while k < size:
                out[begin + k] = out[begin + k] + uint64(counts[k])
                k += uint64(cuda.blockDim.x)
        cuda.syncthreads()
        edge += uint64(cuda.gridDim.x)
