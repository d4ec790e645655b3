"""CUDA kernels of replica exchange: whole rounds in one launch.

States and terms are laid out as ``reading_kernels.py`` describes.
"""
# Types inside kernels are those of their compiler, which mypy does not know.
# mypy: ignore-errors
# ruff: noqa: ARG001

from __future__ import annotations

import math
from functools import cache
from typing import Any

from numba import cuda, float64, uint32, uint64

from fastmix._jit import cuda_jit
from fastmix.chains.cuda.random_kernels import counter_top, philox
from fastmix.chains.cuda.reading_kernels import entry_finder
from fastmix.chains.cuda.sweep_kernels import SIMULATED

__all__ = ["EXCHANGE_TAG", "rounds_kernel"]

#: Tag in the counters of the random numbers that decide on exchanges; those of sweeps are smaller.
EXCHANGE_TAG = 64
#: Threads of a block at most: a limit of the device.
MAX_ROUND_THREADS = 1024
#: Words of differing chains that a block holds, by kernel. With the tables that ``packed-field`` holds, and
#: ``partial``, they must fit into 48 KiB: devices before Hopper have no more shared memory for arrays of fixed sizes
#: (benchmarks/gpu_temper.py).
NOTED_WORDS = {"packed": 4096, "packed-field": 1024}

_UNIT = 4294967296.0  # 2^32

# Numba widens mixed integers, and takes a signed index for one that may count from the end: hence all the casts.


@cuda.jit(device=True)
def _logistic(z):
    """1 / (1 + exp(-z)), without overflow."""
    return float64(1.0) / (float64(1.0) + math.exp(min(-z, float64(700.0))))


@cuda.jit(device=True)
def _decide(
    gaps, shifts, energies, counts, num_sets, num_chains, room, num_energies, low, k, c, round_number, key0, key1
):
    """Whether configuration ``low`` at set k and the one above it change places; adds to the sums of exchanges."""
    high = low + uint64(num_chains)
    plane = uint64(num_sets - uint32(1)) * uint64(num_chains)
    first = uint64(k) * uint64(num_energies + uint32(1))
    below = gaps[first + uint64(num_energies)]  # constants, which terms leave out
    above = below
    for d in range(num_energies):
        gap = gaps[first + uint64(d)]
        below += gap * energies[uint64(d) * uint64(room) + low]
        above += gap * energies[uint64(d) * uint64(room) + high]
    chance = math.exp(min(float64(0.0), below - above))
    counts[low] += float64(1.0)
    counts[plane + low] += float64(1.0) - chance
    counts[plane * uint64(2) + low] += below
    counts[plane * uint64(3) + low] += above
    counts[plane * uint64(4) + low] += _logistic(below - shifts[uint64(k)])
    counts[plane * uint64(5) + low] += _logistic(shifts[uint64(k)] - above)
    top = counter_top(round_number, uint32(EXCHANGE_TAG))
    u, _, _, _ = philox(uint32(c), uint32(k), uint32(round_number), top, key0, key1)
    return float64(u) < chance * float64(_UNIT)


@cuda.jit(device=True)
def _count_trip(carrier, heading, trips, num_sets, num_chains, c):
    """Count the replica that came back from the highest set to the lowest; set the headings of those at both ends."""
    bottom = uint64(carrier[c]) * uint64(num_chains) + c
    if heading[bottom] == 2:
        trips[c] += 1
    heading[bottom] = 1
    top = uint64(carrier[uint64(num_sets - uint32(1)) * uint64(num_chains) + c]) * uint64(num_chains) + c
    if heading[top] == 1:
        heading[top] = 2


@cache
def _packed_terms(noted: int) -> Any:
    """The function that adds up terms of packed chains; a block holds ``noted`` words."""

    @cuda.jit(device=True)
    def add_terms(x, terms, tile, chain, first, last, thread, threads, part, parts):
        """The sum of every ``parts``-th term of a chain: weights of pairs of binary variables whose states differ.

        The threads of the block note together in which chains the two differ, and then each looks at its own.
        """
        rows, weights = terms
        differ = cuda.shared.array(noted, uint32)
        units = uint32(cuda.blockDim.x)
        most = uint32(uint32(noted) // units)
        column = uint32(chain >> uint32(5))
        bit = uint32(uint32(1) << uint32(chain & uint32(31)))
        total = float64(0.0)
        while first < last:
            count = uint32(min(most, uint32(last - first)))
            k = thread
            while k < uint32(count * units):
                at = uint32(uint32(2) * uint32(first + k // units))
                unit = uint32(tile + k % units)
                differ[k] = uint32(x[uint32(rows[at] + unit)] ^ x[uint32(rows[uint32(at + uint32(1))] + unit)])
                k = uint32(k + threads)
            cuda.syncthreads()
            term = part
            while uint32(term + uint32(3) * parts) < count:
                for _ in range(4):  # so that several loads are under way
                    weight = weights[uint32(first + term)]
                    total += weight if differ[uint32(term * units + column)] & bit else float64(0.0)
                    term = uint32(term + parts)
            while term < count:
                total += weights[uint32(first + term)] if differ[uint32(term * units + column)] & bit else float64(0.0)
                term = uint32(term + parts)
            cuda.syncthreads()
            first = uint32(first + count)
        return total

    return add_terms


_factor_entry = entry_finder(packed=False, factors=True)


@cuda.jit(device=True)
def _state_terms(x, terms, tile, chain, first, last, thread, threads, part, parts):
    """The sum of every ``parts``-th term of a chain, for any states: entries of ``values``, see ``energy_kernel``."""
    described, values = terms
    column = uint64(tile) * uint64(4) + uint64(chain)
    total = float64(0.0)
    term = uint64(first + part)
    while term < uint64(last):
        total += values[uint64(described[2][term]) + _factor_entry(x, described, term, column)]
        term += uint64(parts)
    return total


# With more registers, which a kernel of so many phases would take, too few threads would be left to hide latencies.
_FEW_REGISTERS = {} if SIMULATED else {"max_registers": 128}


@cache
def rounds_kernel(update: Any, name: str) -> Any:
    """The kernel of whole rounds of replica exchange, launched cooperatively.

    Blocks take turns at the units of chains, and wait for each other three times in a round:

    1. A sweep of every unit, then the energies of its chains. Threads side by side have chains side by side, and share
       the terms of each.
    2. Decisions on pairs of configurations; accepted ones are noted in masks.
    3. Round trips are counted, and the states of accepted pairs exchanged.

    The arguments up to ``stride`` are those of :func:`fastmix.chains.cuda.sweep_kernels.sweep_kernel`; ``states`` is
    ``x`` as ``energy_kernel`` takes it; ``terms`` are the terms of all energies, one energy after the other, as
    :func:`_packed_terms` and :func:`_state_terms` take them, and ``pieces`` uint32 the first term of each. ``ladder``
    are differences of coefficients (sets - 1, energies and a constant), shifts (sets - 1,), room for energies
    (energies, configurations) and for masks, a word for every unit; then the sums of exchanges, see
    :class:`fastmix.chains.base.Exchanges`, the set at which each configuration started, its heading, and round trips.
    ``sizes`` are sets, chains, sites, units of a set, room for configurations, energies.
    """
    packed = name in NOTED_WORDS
    add_terms = _packed_terms(NOTED_WORDS[name]) if packed else _state_terms
    per_word, bits = (32, 1) if packed else (4, 8)

    @cuda_jit(cache=True, **_FEW_REGISTERS)
    def kernel(
        x,
        states,
        tables,
        starts,
        models,
        sums,
        steps,
        stride,
        terms,
        pieces,
        ladder,
        sizes,
        num_units,
        num_rounds,
        sweep_begin,
        key0,
        key1,
    ):
        gaps, shifts, energies, masks, counts, carrier, heading, trips = ladder
        num_sets, num_chains, num_sites, words, room, num_energies = sizes
        partial = cuda.shared.array(MAX_ROUND_THREADS, float64)
        thread = uint32(cuda.threadIdx.y * cuda.blockDim.x + cuda.threadIdx.x)
        threads = uint32(cuda.blockDim.x * cuda.blockDim.y)
        place = uint32(cuda.blockIdx.x * threads + thread)
        all_threads = uint32(cuda.gridDim.x * threads)
        # The shape of the work on energies.
        wide = uint32(cuda.blockDim.x * per_word)
        span = uint32(min(threads, wide))
        lane = uint32(thread % span)
        part = uint32(thread // span)
        parts = uint32(threads // span)
        for r in range(num_rounds):
            # 1. Sweeps and energies.
            sweep = uint64(sweep_begin) + uint64(r)
            tile = uint32(cuda.blockIdx.x * cuda.blockDim.x)
            while tile < num_units:
                unit = uint32(tile + cuda.threadIdx.x)
                model = uint32(models[unit])
                if cuda.threadIdx.y == 0:
                    masks[unit] = uint32(0)
                update(
                    x,
                    tables,
                    starts,
                    model,
                    sums,
                    steps,
                    stride,
                    unit,
                    uint32(cuda.threadIdx.y),
                    uint32(cuda.blockDim.y),
                    1,
                    sweep,
                    key0,
                    key1,
                )
                chain = lane
                while chain < wide:
                    here = uint64(tile) * uint64(per_word) + uint64(chain)
                    for d in range(num_energies):
                        first = pieces[uint64(d)]
                        last = pieces[uint64(d) + uint64(1)]
                        total = add_terms(states, terms, tile, chain, first, last, thread, threads, part, parts)
                        partial[thread] = total
                        cuda.syncthreads()
                        if part == uint32(0):
                            other = uint32(thread + span)
                            while other < threads:
                                total += partial[other]
                                other = uint32(other + span)
                            energies[uint64(d) * uint64(room) + here] = total
                        cuda.syncthreads()
                    chain = uint32(chain + span)
                tile = uint32(tile + cuda.gridDim.x * cuda.blockDim.x)
            cuda.cg.this_grid().sync()

            # 2. Decisions.
            parity = uint32(sweep & uint64(1))
            pairs = uint32((num_sets - parity) // uint32(2))
            at = place
            while at < uint32(pairs * num_chains):
                k = uint32(parity + uint32(2) * (at // num_chains))
                c = uint32(at % num_chains)
                low = uint64(k) * uint64(num_chains) + uint64(c)
                accepted = _decide(
                    gaps,
                    shifts,
                    energies,
                    counts,
                    num_sets,
                    num_chains,
                    room,
                    num_energies,
                    low,
                    k,
                    c,
                    sweep,
                    key0,
                    key1,
                )
                if accepted:
                    mask = uint32(((1 << bits) - 1) << uint32((c % uint32(per_word)) * uint32(bits)))
                    cuda.atomic.or_(masks, low // uint64(per_word), mask)
                    held = carrier[low]
                    carrier[low] = carrier[low + uint64(num_chains)]
                    carrier[low + uint64(num_chains)] = held
                at = uint32(at + all_threads)
            cuda.cg.this_grid().sync()

            # 3. Round trips and exchanges. Of all states, which are fewer than 2^32 words, half take part at most.
            at = place
            while at < num_chains:
                _count_trip(carrier, heading, trips, num_sets, num_chains, uint64(at))
                at = uint32(at + all_threads)
            at = place
            across = uint32(pairs * words)
            while at < uint32(across * num_sites):
                site = uint32(at // across)
                rest = uint32(at % across)
                unit = uint32(rest + (parity + rest // words) * words)
                mask = masks[unit]
                if mask != uint32(0):
                    spot = uint32(site * stride + unit)
                    above = uint32(spot + words)
                    change = uint32((x[spot] ^ x[above]) & mask)
                    x[spot] = uint32(x[spot] ^ change)
                    x[above] = uint32(x[above] ^ change)
                at = uint32(at + all_threads)
            cuda.cg.this_grid().sync()

    return kernel
