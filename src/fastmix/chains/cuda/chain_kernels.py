"""CUDA kernels of chains: sweeps, rounds of replica exchange, tables of new parameters, energies, counts, resampling.

States lie by the place of a variable in a sweep: configuration c of place p is bit ``c % 32`` of the word
``x[p * stride + c // 32]`` (packed), or the element ``x[p * stride + c]``. A row of zeros follows the last place. So a
variable is an edge to that row, and a *term* is either: two rows, the number of states of the second (1 for a
variable), and where its entries begin in a vector of parameters. In models with factors over more variables a term has
any number of rows, each with the step that its states make.

Sums of floats are added up in an order that depends on the shape of the launch only, so that the same seed gives the
same bits.
"""
# Types inside kernels are those of their compiler.
# mypy: ignore-errors
# ruff: noqa: ARG001

from __future__ import annotations

import math
from functools import cache
from typing import Any

from numba import config, cuda, float32, float64, int8, int64, uint32, uint64

from fastmix._jit import cuda_jit
from fastmix.chains.cuda.kernels import counter_top, philox

__all__ = [
    "EXCHANGE_TAG",
    "MOST_THREADS",
    "PAIR_UNIT",
    "centre_rows",
    "combine",
    "count_kernel",
    "empty_sums",
    "energy_kernel",
    "fill_masks",
    "fill_thresholds",
    "gather_kernel",
    "pair_kernel",
    "rounds_kernel",
    "sum_pieces",
    "sweep_kernel",
]

EXCHANGE_TAG = 64  # what the counter of the numbers that decide on exchanges has beside their place
MOST_THREADS = 128  # of a block that adds up; a power of two
PAIR_UNIT = 1 << 31  # half a unit of an edge marginal
_MOST_SWEEPING = 1024  # threads of a block of rounds
_NOTED = 4096  # words of differing chains that it holds
_ENTRIES = 4  # of a table that are added up in one pass: all of two binary variables
_ROOM = _ENTRIES * MOST_THREADS
_LANES = 16  # threads that share the patterns around a variable: all of those of four binary neighbours
_HISTOGRAM = 1024  # pairs of states that are counted in shared memory
_FULL = 4294967296.0

# Numba widens mixed integers, and takes a signed index for one that may count from the end: hence all the casts.


@cuda.jit(device=True)
def _packed_state(x, row, chain):
    return uint64((x[row + (chain >> uint64(5))] >> uint32(chain & uint64(31))) & uint32(1))


@cuda.jit(device=True)
def _plain_state(x, row, chain):
    return uint64(x[row + chain])


@cache
def _entry(packed: bool, factors: bool) -> Any:
    """The function that finds the entry of a term that a chain is in, beside the first of the term.

    ``terms`` are ``rows`` uint32 (terms, 2), ``steps`` uint32 and ``offsets`` uint64 (terms,); with ``factors`` rows
    and steps are those of all members, and ``starts`` uint32 says where those of each term begin, and their end.
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
        k, end = uint64(starts[term]), uint64(starts[term + uint64(1)])
        while k < end:
            entry += state(x, uint64(rows[k]), chain) * uint64(steps[k])
            k += uint64(1)
        return entry

    return factor if factors else pair


@cuda.jit(device=True)
def _first():
    """The number of this thread among those of a launch along x."""
    return uint64(cuda.blockIdx.x) * uint64(cuda.blockDim.x) + uint64(cuda.threadIdx.x)


@cuda.jit(device=True)
def _all():
    return uint64(cuda.gridDim.x) * uint64(cuda.blockDim.x)


# -- sweeps -----------------------------------------------------------------------------------------------------------


@cache
def sweep_kernel(update: Any, words: int, fastmath: bool) -> Any:
    """The kernel that runs an update over the colours from ``first`` to ``last`` and over sweeps.

    A block owns its chains, ``words`` units of them a thread; where a colour is shared between blocks (more than one
    along y) either the launch has a single colour and sweep, or it is cooperative and waits for the ``grid`` after
    every colour. ``starts`` int64 says where colours begin, ``models`` int32 (units,) which parameters the chains of a
    thread use, and ``steps`` how rows, chains of a unit and units lie in ``sums``. All arrays are flat.
    """

    @cuda_jit(cache=True, fastmath=fastmath)
    def kernel(
        x, tables, starts, models, sums, steps, stride, first, last, num_sweeps, sweep_begin, key0, key1
    ):  # fmt: skip
        unit = uint32(cuda.blockIdx.x * cuda.blockDim.x * words + cuda.threadIdx.x)
        slot = uint32(cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y)
        num_slots = uint32(cuda.gridDim.y * cuda.blockDim.y)
        model = uint32(models[unit])
        update(
            x, tables, starts, model, sums, steps, stride, unit, slot, num_slots, first, last, num_sweeps, sweep_begin,
            key0, key1,
        )  # fmt: skip

    return kernel


@cuda_jit(cache=True)
def empty_sums(sums, totals, num_rows, num_columns, per_group):
    """Move sums (num_rows, num_columns) to the totals of groups of columns; a last group that is not full is dropped.

    Both are flat; ``totals`` is uint64 (num_rows, num_columns // per_group).
    """
    groups = num_columns // per_group
    place = _first()
    while place < num_rows * groups:
        row, group = place // groups, place % groups
        at = row * num_columns + group * per_group
        total, k = uint64(0), uint64(0)
        while k < per_group:
            total += uint64(sums[at + k])
            sums[at + k] = uint32(0)
            k += uint64(1)
        totals[place] = totals[place] + total
        place += _all()


# -- replica exchange -------------------------------------------------------------------------------------------------


@cuda.jit(device=True)
def _logistic(z):
    return float64(1.0) / (float64(1.0) + math.exp(min(-z, float64(700.0))))


@cuda.jit(device=True)
def _decide(
    gaps, shifts, energies, counts, num_sets, num_chains, room, num_energies, low, k, c, round_number, key0, key1
):
    """Whether configurations ``low`` at set k and the one above change places; counts what exchanges add up."""
    high, plane = low + uint64(num_chains), uint64(num_sets - uint32(1)) * uint64(num_chains)
    first = uint64(k) * uint64(num_energies + uint32(1))
    below = gaps[first + uint64(num_energies)]  # what terms leave out
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
    return float64(u) < chance * float64(_FULL)


@cuda.jit(device=True)
def _count_trip(carrier, heading, trips, num_sets, num_chains, c):
    """Replicas that came back to the lowest set from the highest one, and who is on the way to where."""
    bottom = uint64(carrier[c]) * uint64(num_chains) + c
    if heading[bottom] == 2:
        trips[c] += 1
    heading[bottom] = 1
    top = uint64(carrier[uint64(num_sets - uint32(1)) * uint64(num_chains) + c]) * uint64(num_chains) + c
    if heading[top] == 1:
        heading[top] = 2


@cuda.jit(device=True)
def _packed_terms(x, terms, tile, chain, first, last, thread, threads, part, parts):
    """Every ``parts``-th term of a chain of the block: weights of pairs of binary variables in different states.

    The threads of the block note together in which chains the two differ, and then each looks at its own.
    """
    rows, weights = terms
    differ = cuda.shared.array(_NOTED, uint32)
    units = uint32(cuda.blockDim.x)
    most, column = uint32(uint32(_NOTED) // units), uint32(chain >> uint32(5))
    bit = uint32(uint32(1) << uint32(chain & uint32(31)))
    total = float64(0.0)
    while first < last:
        count = uint32(min(most, uint32(last - first)))
        k = thread
        while k < uint32(count * units):
            at, unit = uint32(uint32(2) * uint32(first + k // units)), uint32(tile + k % units)
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


@cuda.jit(device=True)
def _plain_terms(x, terms, tile, chain, first, last, thread, threads, part, parts):
    """The same for any states: entries of ``values``, as in :func:`energy_kernel`."""
    rows, steps, offsets, values = terms
    column = uint32(tile * uint32(4) + chain)
    total = float64(0.0)
    term = uint32(first + part)
    while term < last:
        at = uint32(term * uint32(2))
        one = uint64(x[uint32(rows[at] + column)])
        two = uint64(x[uint32(rows[uint32(at + uint32(1))] + column)])
        total += values[uint64(offsets[term]) + one * uint64(steps[term]) + two]
        term = uint32(term + parts)
    return total


_factor_entry = _entry(packed=False, factors=True)


@cuda.jit(device=True)
def _factor_terms(x, terms, tile, chain, first, last, thread, threads, part, parts):
    """The same for terms over any number of variables."""
    described, values = terms
    column = uint64(tile) * uint64(4) + uint64(chain)
    total = float64(0.0)
    term = uint64(first + part)
    while term < uint64(last):
        total += values[uint64(described[2][term]) + _factor_entry(x, described, term, column)]
        term += uint64(parts)
    return total


# A kernel of so many phases would take more registers than leave room for the threads that hide latencies.
_FEW_REGISTERS = {} if getattr(config, "ENABLE_CUDASIM", False) else {"max_registers": 128}


@cache
def rounds_kernel(update: Any, packed: bool, factors: bool) -> Any:
    """The kernel of whole rounds of replica exchange, launched cooperatively: a sweep, energies, decisions, exchange.

    Blocks take turns at the units of chains, and wait for each other three times in a round. The arguments up to
    ``stride`` are those of :func:`sweep_kernel`; ``states`` is ``x`` as :func:`energy_kernel` takes it; ``terms``, the
    terms of all energies one after the other, as :func:`_packed_terms` and its twins take them, and
    ``pieces`` uint32, where those of each begin; ``ladder``: differences of coefficients (sets - 1, energies and a
    constant), shifts (sets - 1,), room for energies (energies, configurations) and for masks, a word for every unit,
    then what is counted, see :class:`fastmix.chains.base.Exchanges`, the set at which each
    configuration started, where it is heading and round trips; ``sizes``: sets, chains, sites, units of a set, room for
    configurations, energies.
    """
    add_terms = _packed_terms if packed else _factor_terms if factors else _plain_terms
    per_word, bits = (32, 1) if packed else (4, 8)

    @cuda_jit(cache=True, **_FEW_REGISTERS)
    def kernel(
        x, states, tables, starts, models, sums, steps, stride, terms, pieces, ladder, sizes,
        num_units, num_rounds, sweep_begin, key0, key1,
    ):  # fmt: skip
        gaps, shifts, energies, masks, counts, carrier, heading, trips = ladder
        num_sets, num_chains, num_sites, words, room, num_energies = sizes
        partial = cuda.shared.array(_MOST_SWEEPING, float64)
        thread = uint32(cuda.threadIdx.y * cuda.blockDim.x + cuda.threadIdx.x)
        threads = uint32(cuda.blockDim.x * cuda.blockDim.y)
        place, all_threads = uint32(cuda.blockIdx.x * threads + thread), uint32(cuda.gridDim.x * threads)
        # In energies, threads side by side have configurations side by side, and share the terms of each.
        wide = uint32(cuda.blockDim.x * per_word)
        span = uint32(min(threads, wide))
        lane, part, parts = uint32(thread % span), uint32(thread // span), uint32(threads // span)
        for r in range(num_rounds):
            sweep = uint64(sweep_begin) + uint64(r)
            tile = uint32(cuda.blockIdx.x * cuda.blockDim.x)
            while tile < num_units:
                unit = uint32(tile + cuda.threadIdx.x)
                model = uint32(models[unit])
                if cuda.threadIdx.y == 0:
                    masks[unit] = uint32(0)
                update(
                    x, tables, starts, model, sums, steps, stride, unit, uint32(cuda.threadIdx.y),
                    uint32(cuda.blockDim.y), 0, starts.shape[0] - 1, 1, sweep, key0, key1,
                )  # fmt: skip
                chain = lane
                while chain < wide:
                    here = uint64(tile) * uint64(per_word) + uint64(chain)
                    for d in range(num_energies):
                        first, last = pieces[uint64(d)], pieces[uint64(d) + uint64(1)]
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
            parity = uint32(sweep & uint64(1))
            pairs = uint32((num_sets - parity) // uint32(2))
            at = place
            while at < uint32(pairs * num_chains):
                k, c = uint32(parity + uint32(2) * (at // num_chains)), uint32(at % num_chains)
                low = uint64(k) * uint64(num_chains) + uint64(c)
                accepted = _decide(
                    gaps, shifts, energies, counts, num_sets, num_chains, room, num_energies, low, k, c, sweep, key0,
                    key1,
                )  # fmt: skip
                if accepted:
                    mask = uint32(((1 << bits) - 1) << uint32((c % uint32(per_word)) * uint32(bits)))
                    cuda.atomic.or_(masks, low // uint64(per_word), mask)
                    held = carrier[low]
                    carrier[low] = carrier[low + uint64(num_chains)]
                    carrier[low + uint64(num_chains)] = held
                at = uint32(at + all_threads)
            cuda.cg.this_grid().sync()
            at = place
            while at < num_chains:
                _count_trip(carrier, heading, trips, num_sets, num_chains, uint64(at))
                at = uint32(at + all_threads)
            # There are fewer than 2^32 words of states, and these are half of them at most.
            at, across = place, uint32(pairs * words)
            while at < uint32(across * num_sites):
                site, rest = uint32(at // across), uint32(at % across)
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


# -- tables of new parameters -----------------------------------------------------------------------------------------


@cuda_jit(cache=True)
def combine(thetas, coefficients, forbidden, num_thetas, size, out):
    """``coefficients (sets, D) @ thetas (D, size)``, and -inf where ``forbidden`` uint8 (size,), if it is that long."""
    place = _first()
    while place < uint64(out.shape[0]):
        row, column = place // size, place % size
        total = 0.0
        for d in range(num_thetas):
            total += coefficients[row * num_thetas + uint64(d)] * thetas[uint64(d) * size + column]
        if uint64(forbidden.shape[0]) == size and forbidden[column]:
            total = -math.inf
        out[place] = total
        place += _all()


@cuda.jit(device=True)
def _pattern_weight(values, at, links, strides, theirs, site, pattern, state):
    """The log-weight of a state of a variable, for a pattern of its neighbours' states."""
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
    :func:`fastmix.chains.cuda.state_kernels.logit_update`; ``strides``, ``theirs`` (state counts of the neighbours) and
    ``entries`` as for the pattern tables; all of a set are ``model_size`` numbers.
    """
    indptr, cuts = links[0], links[6]
    place = int64(_first())
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
                rounded = min(below / total * _FULL + 0.5, _FULL - 1.0)  # once it is cut to whole numbers
                table[base + pattern * cuts[site] + s] = uint32(rounded)
            pattern += _LANES
        place += int64(_all())


@cuda_jit(cache=True)
def fill_fields(values, size, links, chunks, partial, margins, weights, offsets):
    """What :func:`fastmix.chains.cuda.field_kernels.packed_field_update` reads, for every set and place.

    ``values`` (sets, size) and ``links`` as for :func:`fill_thresholds`; ``chunks`` int64 says where the groups of four
    neighbours of every place begin, and their end.
    """
    indptr, starts, own_steps, other_steps, unary_starts = links[0], links[2], links[3], links[4], links[5]
    num_sites = chunks.shape[0] - 1
    place = int64(_first())
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
        place += int64(_all())


@cuda_jit(cache=True)
def fill_masks(table, num_rows, row_step, entry_step, masks, terms):
    """What :func:`fastmix.chains.cuda.kernels.packed_update` reads, from its thresholds ``table`` (rows, 16).

    With the threshold t of pattern ``8 x_a + 4 x_b + 2 x_c + x_d`` of the neighbours, ``masks`` holds for every bit of
    t from 24 to 31 and every pattern j of the first three neighbours the numbers (m, s) with which ``m x_d + s`` is
    that bit, as a word of 32 chains: s is minus the bit for x_d = 0 and m the difference of the two. Number e of a row
    is at ``masks[row * row_step + e * entry_step]``. ``terms`` (rows, 16) holds the coefficients of t, rounded to 24
    bits, as a polynomial of the four states, modulo 2^32.
    """
    term = cuda.local.array(16, uint32)
    row = _first()
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
            t = table[row * uint64(16) + uint64(pattern)]
            term[pattern] = uint32((t >> uint32(8)) + ((t >> uint32(7)) & uint32(1)))
        for axis in range(4):
            for pattern in range(16):
                if pattern & (1 << axis):
                    term[pattern] = uint32(
                        uint64(term[pattern]) + uint64(1 << 32) - uint64(term[pattern ^ (1 << axis)])
                    )
        for pattern in range(16):
            terms[row * uint64(16) + uint64(pattern)] = term[pattern]
        row += _all()


# -- energies ---------------------------------------------------------------------------------------------------------


@cache
def energy_kernel(packed: bool, factors: bool) -> Any:
    """The kernel that adds up terms, chain by chain.

    ``terms`` as for :func:`_entry`, ``values`` float64 are all parameters; ``pieces`` int64 says where the pieces of
    the list of terms begin, and its end. The result is ``out`` float64 (pieces, chains). Blocks along x share the
    chains, blocks along y the pieces.
    """
    find = _entry(packed, factors)

    @cuda_jit(cache=True)
    def kernel(x, terms, values, pieces, num_chains, out):
        offsets = terms[2]
        chain = _first()
        if chain >= num_chains:
            return
        piece = uint64(cuda.blockIdx.y)
        while piece + uint64(1) < uint64(pieces.shape[0]):
            total = 0.0
            term, end = uint64(pieces[piece]), uint64(pieces[piece + uint64(1)])
            while term < end:
                total += values[uint64(offsets[term]) + find(x, terms, term, chain)]
                term += uint64(1)
            out[piece * num_chains + chain] = total
            piece += uint64(cuda.gridDim.y)

    return kernel


@cuda_jit(cache=True)
def sum_pieces(parts, starts, num_chains, out):
    """Add up the pieces from ``starts[r]`` to ``starts[r + 1]`` for every row r of ``out`` (rows, chains)."""
    place = _first()
    size = uint64(starts.shape[0] - 1) * num_chains
    while place < size:
        row, chain = place // num_chains, place % num_chains
        total = 0.0
        piece, end = uint64(starts[row]), uint64(starts[row + uint64(1)])
        while piece < end:
            total += parts[piece * num_chains + chain]
            piece += uint64(1)
        out[place] = total
        place += _all()


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


# -- counts -----------------------------------------------------------------------------------------------------------


@cache
def count_kernel(packed: bool, factors: bool) -> Any:
    """The kernel that adds up the weights of the chains in every state of every term (block by block).

    ``terms`` as above and ``sizes`` uint64 (terms,), the entries of a term; ``owners`` int64 (terms,), the row of
    ``weights`` float64 (rows, chains) that a term takes; ``out`` float64, aligned with all parameters. The block has a
    power of two of threads.
    """
    find = _entry(packed, factors)

    @cuda_jit(cache=True)
    def kernel(x, terms, sizes, owners, weights, num_chains, out):
        offsets = terms[2]
        shared = cuda.shared.array(_ROOM, float64)
        thread, threads = uint64(cuda.threadIdx.x), uint64(cuda.blockDim.x)
        term = uint64(cuda.blockIdx.x)
        while term < uint64(sizes.shape[0]):
            size = uint64(sizes[term])
            begin, at = uint64(owners[term]) * num_chains, uint64(offsets[term])
            entry = uint64(0)
            while entry < size:
                sum0, sum1, sum2, sum3 = 0.0, 0.0, 0.0, 0.0
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
def pair_kernel(packed: bool, average: bool, factors: bool) -> Any:
    """The kernel that counts the pairs of states on every edge (block by block), in units of ``2 * PAIR_UNIT``.

    With ``average`` it adds half a unit for either end instead: the conditional probabilities of that end's states
    beside the present state of the other. ``ends`` int64 (edges, 2) are places, ``offsets`` where the table of an edge
    begins in ``out`` uint64, and ``links`` as in :func:`fill_thresholds`, for the parameters from ``values[at]`` on;
    with ``factors`` these follow, see ``Incident`` of the structure: ``indptr``, ``starts``, ``own_steps``,
    ``member_starts``, rows and steps of the members. Chains are those from ``first`` to ``last``.
    """
    state = _packed_state if packed else _plain_state

    @cuda.jit(device=True)
    def no_factors(x, links, values, at, site, s, chain):
        return 0.0

    @cuda.jit(device=True)
    def all_factors(x, links, values, at, site, s, chain):
        around, starts, own_steps, member_starts, members, steps = links[7:]
        total = 0.0
        for f in range(around[site], around[site + 1]):
            place = at + starts[f] + s * own_steps[f]
            for m in range(member_starts[f], member_starts[f + 1]):
                place += int64(state(x, uint64(members[m]), chain)) * steps[m]
            total += values[place]
        return total

    factors_of = all_factors if factors else no_factors

    @cuda.jit(device=True)
    def log_weight(x, links, values, at, site, s, chain):
        indptr, rows, starts, own_steps, other_steps = links[0], links[1], links[2], links[3], links[4]
        total = values[at + links[5][site] + s]
        for k in range(indptr[site], indptr[site + 1]):
            near = int64(state(x, uint64(rows[k]), chain))
            total += values[at + starts[k] + s * own_steps[k] + near * other_steps[k]]
        return total + factors_of(x, links, values, at, site, s, chain)

    @cuda_jit(cache=True)
    def kernel(x, ends, offsets, links, values, at, first, last, stride, out):
        counts = cuda.shared.array(_HISTOGRAM, uint64)
        cuts = links[6]
        thread, threads = int64(cuda.threadIdx.x), int64(cuda.blockDim.x)
        edge = int64(cuda.blockIdx.x)
        while edge < offsets.shape[0]:
            columns, begin = cuts[ends[2 * edge + 1]] + 1, offsets[edge]
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
                    site, other = ends[2 * edge + end], ends[2 * edge + 1 - end]
                    own = int64(state(x, uint64(site) * stride, chain))
                    near = int64(state(x, uint64(other) * stride, chain))
                    top, total = 0.0, 1.0
                    if average:
                        top, total = -math.inf, 0.0
                        for s in range(cuts[site] + 1):
                            value = log_weight(x, links, values, at, site, s, chain)
                            if value > top:
                                total = total * math.exp(top - value) + 1.0
                                top = value
                            elif value > -math.inf:
                                total += math.exp(value - top)
                    for s in range(cuts[site] + 1):
                        share = uint64(PAIR_UNIT) if s == own else uint64(0)
                        if average:
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


# -- resampling -------------------------------------------------------------------------------------------------------


@cache
def gather_kernel(packed: bool) -> Any:
    """The kernel that lets chain c of ``out`` have the states of chain ``sources[c]`` of ``x``, for all columns."""

    @cuda_jit(cache=True)
    def kernel(x, sources, stride, num_sites, out):
        place = _first()
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
            place += _all()

    return kernel
