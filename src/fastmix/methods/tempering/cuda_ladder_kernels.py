"""CUDA kernels of replica exchange: energies of all replicas, decisions, and the exchange of configurations.

Replica k of ladder c is chain ``k * C + c`` of the sampler. Words of 32 bits hold the states of 32 chains, or of four
with a byte each; C is a multiple of that number, so that words are exchanged as a whole, under masks.
"""
# Types inside kernels are those of their compiler.
# mypy: ignore-errors

from __future__ import annotations

import math
from functools import cache
from typing import Any

from numba import cuda, float64, uint32, uint64

from fastmix._jit import cuda_jit
from fastmix.chains.cuda.kernels import counter_top, philox

__all__ = ["EXCHANGE_TAG", "decide", "energy_kernel", "exchange_words"]

EXCHANGE_TAG = 64  # what the counter of the numbers that decide on exchanges has beside their place


@cuda.jit(device=True)
def _state(x, row, place, chain, per_word, bits):
    word = x[uint64(place) * row + uint64(chain // per_word)]
    return uint64((word >> uint32((chain % per_word) * bits)) & uint32((uint32(1) << bits) - uint32(1)))


@cache
def energy_kernel(count: int, chains: int, parts: int) -> Any:
    """The kernel that adds up ``count`` energies of every chain: of the unaries, and of each set of tables.

    Parameters
    ----------
    count, chains, parts : int
        Energies, and the threads of a block: over chains, and over parts of the sums of each.

    Returns
    -------
    callable
        Kernel of ``x`` as words with rows of ``row``, chains in a word and bits of each; ``places`` of the variables,
        ``unary_starts`` and ``unary``; ``ends``, the places of both ends of every edge, ``pair_starts``, ``columns``,
        the state counts of the second ends, ``tables`` (count - 1, size); the number of chains; ``out``
        (count, chains).
    """

    @cuda_jit(cache=True)
    def kernel(
        x, row, per_word, bits, places, unary_starts, unary, ends, pair_starts, columns, tables, size, num_chains, out
    ):
        partial = cuda.shared.array((count, parts, chains), float64)
        total = cuda.local.array(count, float64)
        lane, part = cuda.threadIdx.x, cuda.threadIdx.y
        chain = uint32(cuda.blockIdx.x * chains + lane)
        for d in range(count):
            total[d] = float64(0.0)
        if chain < num_chains:
            k = uint64(part)
            while k < uint64(places.shape[0]):
                total[0] += unary[uint64(unary_starts[k]) + _state(x, row, places[k], chain, per_word, bits)]
                k += uint64(parts)
            k = uint64(part)
            while k < uint64(pair_starts.shape[0]):
                one = _state(x, row, ends[uint64(2) * k], chain, per_word, bits)
                two = _state(x, row, ends[uint64(2) * k + uint64(1)], chain, per_word, bits)
                at = uint64(pair_starts[k]) + one * uint64(columns[k]) + two
                for d in range(1, count):
                    total[d] += tables[uint64(d - 1) * size + at]
                k += uint64(parts)
        for d in range(count):
            partial[d, part, lane] = total[d]
        cuda.syncthreads()
        if part == 0 and chain < num_chains:
            for d in range(count):
                whole = float64(0.0)
                for p in range(parts):
                    whole += partial[d, p, lane]
                out[uint64(d) * uint64(num_chains) + uint64(chain)] = whole

    return kernel


@cuda.jit(device=True)
def _logistic(z):
    return float64(1.0) / (float64(1.0) + math.exp(min(-z, float64(700.0))))


@cuda_jit(cache=True)
def decide(
    energies, gaps, shifts, num_energies, num_rungs, num_ladders, round_number, key0, key1, per_word, bits,
    masks, sums, carrier, heading, trips,
):  # fmt: skip
    """Decide, for every ladder, on the exchange of rungs k and k + 1 for every k of the parity of the round.

    The same as :func:`fastmix.methods.tempering.kernels.exchange`, by a thread for every ladder, except that nothing is
    exchanged: ``masks`` (rungs, words of a rung) gets the chains of rung k that are to change places with those above.
    ``energies`` (num_energies, rungs * ladders), ``gaps`` (rungs - 1, num_energies), ``sums`` (6, rungs - 1, ladders)
    and the rest are flat.
    """
    c = uint32(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
    inside = c < num_ladders
    lanes = uint64(num_rungs) * uint64(num_ladders)
    words = uint64(num_ladders // per_word)
    plane = uint64(num_rungs - uint32(1)) * uint64(num_ladders)
    chain_mask = uint32(((uint32(1) << bits) - uint32(1)) << uint32((c % per_word) * bits))
    k = uint32(round_number & uint64(1))
    while uint32(k + uint32(1)) < num_rungs:
        at = uint64(k) * words + uint64(c // per_word)
        if inside and c % per_word == uint32(0):
            masks[at] = uint32(0)
        cuda.syncthreads()  # the chains of a word are threads of one block
        if inside:
            low = uint64(k) * uint64(num_ladders) + uint64(c)
            high = low + uint64(num_ladders)
            below, above = float64(0.0), float64(0.0)
            for d in range(num_energies):
                gap = gaps[uint64(k) * uint64(num_energies) + uint64(d)]
                below += gap * energies[uint64(d) * lanes + low]
                above += gap * energies[uint64(d) * lanes + high]
            chance = math.exp(min(float64(0.0), below - above))
            sums[low] += float64(1.0)
            sums[plane + low] += float64(1.0) - chance
            sums[plane * uint64(2) + low] += below
            sums[plane * uint64(3) + low] += above
            sums[plane * uint64(4) + low] += _logistic(below - shifts[uint64(k)])
            sums[plane * uint64(5) + low] += _logistic(shifts[uint64(k)] - above)
            u, _, _, _ = philox(c, k, uint32(round_number), counter_top(round_number, uint32(EXCHANGE_TAG)), key0, key1)
            if float64(u) < chance * float64(4294967296.0):
                cuda.atomic.or_(masks, at, chain_mask)
                held = carrier[low]
                carrier[low] = carrier[high]
                carrier[high] = held
        k = uint32(k + uint32(2))
    if inside:
        bottom = uint64(carrier[uint64(c)]) * uint64(num_ladders) + uint64(c)
        if heading[bottom] == 2:
            trips[uint64(c)] += 1
        heading[bottom] = 1
        top = uint64(carrier[lanes - uint64(num_ladders) + uint64(c)]) * uint64(num_ladders) + uint64(c)
        if heading[top] == 1:
            heading[top] = 2


@cuda_jit(cache=True)
def exchange_words(x, row, masks, num_rungs, words, parity, num_sites):
    """Exchange the states under the masks between rungs k and k + 1 for every k of a parity."""
    pairs = uint64(num_rungs - parity) // uint64(2)
    place = uint64(cuda.blockIdx.x) * uint64(cuda.blockDim.x) + uint64(cuda.threadIdx.x)
    while place < pairs * uint64(words) * uint64(num_sites):
        word = place % uint64(words)
        rest = place // uint64(words)
        k = uint64(parity) + uint64(2) * (rest % pairs)
        site = rest // pairs
        mask = masks[k * uint64(words) + word]
        if mask != uint32(0):
            low = site * uint64(row) + k * uint64(words) + word
            high = low + uint64(words)
            change = uint32((x[low] ^ x[high]) & mask)
            x[low] = uint32(x[low] ^ change)
            x[high] = uint32(x[high] ^ change)
        place += uint64(cuda.gridDim.x) * uint64(cuda.blockDim.x)
