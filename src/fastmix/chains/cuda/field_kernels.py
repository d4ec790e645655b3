"""CUDA kernels for binary variables with any number of neighbors, from their log-odds.

The log-odds f of a state 1 are a sum over the neighbors, taken in single precision. A uniform u is compared with
p = 1 / (1 + exp(f)) through the sign of ``u (1 + exp(f)) - 1``, with a margin that is larger than all rounding errors
together; what falls within (about one update in a million) is computed again in double precision, rounded to a 32-bit
threshold and compared exactly. So the states do not depend on how single-precision arithmetic was compiled.

The margin: with T terms of which the largest add up to S, inputs and sums are off by at most (T + 1) S 2^-24, and p by
a quarter of that; the exponential function, the products and u as a float add less than 2^-22. The kernels use
``2^-20 + (T + 2) S 2^-25``.
"""
# Types inside kernels are those of their compiler, which mypy does not know; all updates have the same arguments.
# mypy: ignore-errors
# ruff: noqa: ARG001

from __future__ import annotations

import math
from functools import cache
from typing import Any

from numba import cuda, float32, float64, uint32, uint64

from fastmix.chains.cuda.random_kernels import counter_top, philox
from fastmix.chains.cuda.sweep_kernels import add_counts, barrier, update_jit
from fastmix.chains.cuda.threshold_kernels import is_below, threshold_of

__all__ = ["field_update", "packed_field_update"]

#: Tables of 16 numbers that a block holds in shared memory: 32 KiB.
HELD_TABLES = 512
#: Numbers in these tables.
HELD_NUMBERS = 16 * HELD_TABLES

_NIBBLES = 0x11111111  # every fourth bit
_LIMIT = 60.0  # log-odds beyond this are certain in 32 bits, and exp() stays finite
_SCALE = 2.0**-32


@cuda.jit(device=True)
def _threshold(log_odds):
    """The probability of state 0 as a 32-bit threshold."""
    odds = math.exp(min(max(log_odds, float64(-700.0)), float64(700.0)))
    return threshold_of(float64(4294967296.0) / (float64(1.0) + odds))


@cuda.jit(device=True)
def _pick(a, b, c, d, which):
    """The one of four numbers that has the number ``which``."""
    low = b if which & uint32(1) else a
    high = d if which & uint32(1) else c
    return high if which & uint32(2) else low


@cuda.jit(device=True)
def _drawn(word, site, chain, sweep, key0, key1):
    """The random number of a chain of a word: chains k, k + 4, .., k + 28 have the numbers of two counters."""
    number = uint32(chain >> uint32(2))
    tag = counter_top(sweep, uint32((chain & uint32(3)) * uint32(2) + (number >> uint32(2))))
    u0, u1, u2, u3 = philox(word, site, uint32(sweep), tag, key0, key1)
    return _pick(u0, u1, u2, u3, number)


@cuda.jit(device=True, fastmath=True)
def _decide(log_odds, u, margin):
    """Whether u is at least the probability of state 0, whether that is in doubt, and one over that probability."""
    scale = float32(1.0) + math.exp(min(max(log_odds, float32(-_LIMIT)), float32(_LIMIT)))
    excess = float32(u) * float32(_SCALE) * scale - float32(1.0)
    return excess >= float32(0.0), abs(excess) <= margin * scale, scale


@cache
def packed_field_update(few: bool, mode: int, per_chain: bool, grid: bool) -> Any:
    """The update of binary variables with any number of neighbors, in packed chains, 32 of them by a thread.

    Neighbors are taken four at a time: their 16 patterns have tables of partial log-odds, which the block holds in
    shared memory; it has at most 512 threads along y. Every fourth bit of a word makes room for patterns: those of
    chains k, k + 4, .., k + 28 fill a word. For every color:

    1. If it is a single site, and a block has 32 threads for one word, each thread has a chain (complete graphs).
    2. Otherwise a thread adds up the partial log-odds of a site in all 32 chains. All threads go through the same
       rounds, also those without a site, because they wait for each other.
    3. It draws the 32 states; the doubtful ones are settled in double precision.

    The tables are ``around`` uint32 (groups, 4), the neighbors, padded in front with row n; ``chunks`` int64 (n + 1,),
    the starts of the groups of four; ``partial`` float32 (groups, 16), the first group of a site with its offset;
    ``margins`` float32 (n,); ``indptr``, ``rows`` (the neighbors again), ``weights`` and ``offsets``, which are the
    log-odds in double precision for the doubtful states; the most groups of a site. Of several sets, ``partial``,
    ``margins``, ``weights`` and ``offsets`` follow one another; words of a block have the same set. Blocks of a ``few``
    words fetch tables together; others have threads enough along x, and take fewer registers then.
    """

    @cuda.jit(device=True)
    def gather(field, k, index, held, at):
        for i in range(8):
            entry = uint32((index >> uint32(4 * i)) & uint32(15))
            field[8 * k + i] += held[uint32(at | entry)]

    @cuda.jit(device=True)
    def draw(field, k, word, site, sweep, key0, key1, margin, sums, sum_at, chain_step, result):
        u = cuda.local.array(8, uint32)
        for h in range(2):
            tag = counter_top(sweep, uint32(2 * k + h))
            u[4 * h], u[4 * h + 1], u[4 * h + 2], u[4 * h + 3] = philox(word, site, uint32(sweep), tag, key0, key1)
        for i in range(8):
            bit = uint32(1 << (4 * i + k))
            one, doubtful, scale = _decide(field[8 * k + i], u[i], margin)
            if one:
                result[0] = uint32(result[0] | bit)
            if doubtful:
                result[1] = uint32(result[1] | bit)
            if mode == 1:
                share = uint32(float32(16777216.0) / scale + float32(0.5))
                if per_chain:
                    cuda.atomic.add(sums, sum_at + uint64(4 * i + k) * chain_step, share)
                else:
                    result[2] = uint32(result[2] + share)

    @cuda.jit(device=True)
    def settle(x, indptr, rows, weights, links, offset, word, site, undecided, ones, sweep, key0, key1):
        while undecided != uint32(0):
            chain = uint32(cuda.ffs(undecided) - 1)
            bit = uint32(uint32(1) << chain)
            undecided = uint32(undecided ^ bit)
            total = offset
            for k in range(indptr[site], indptr[uint64(site) + uint64(1)]):
                if (x[uint32(rows[uint64(k)] + word)] >> chain) & uint32(1):
                    total += weights[links + uint64(k)]
            ones = uint32(ones & uint32(~bit))
            if not is_below(_drawn(word, site, chain, sweep, key0, key1), _threshold(total)):
                ones = uint32(ones | bit)
        return ones

    @cuda.jit(device=True)
    def fetch_own(held, partial, group, count, own):
        """The threads of a site fetch its tables."""
        cuda.syncthreads()
        k = uint32(cuda.threadIdx.x)
        while k < uint32(count * uint32(16)):
            held[uint32(own + k)] = partial[group * uint64(16) + uint64(k)]
            k = uint32(k + uint32(cuda.blockDim.x))
        cuda.syncthreads()

    @cuda.jit(device=True)
    def fetch(held, partial, chunks, groups, first, count, depth, done, most):
        """All threads of the block fetch the tables of some sites, from group ``done`` of each on."""
        cuda.syncthreads()
        width = uint32(min(depth, uint32(most - done)) * uint32(16))
        k = uint32(cuda.threadIdx.y * cuda.blockDim.x + cuda.threadIdx.x)
        while k < uint32(count * width):
            j = uint32(k // width)
            entry = uint32(k - uint32(j * width))
            site = uint64(first + j)
            group = uint32(uint32(chunks[site]) + done)
            if uint32(group + uint32(entry >> uint32(4))) < uint32(chunks[site + uint64(1)]):
                to = uint32(uint32(j * depth) * uint32(16) + entry)
                held[to] = partial[(groups + uint64(group)) * uint64(16) + uint64(entry)]
            k = uint32(k + uint32(cuda.blockDim.x * cuda.blockDim.y))
        cuda.syncthreads()

    wait = barrier(grid)

    @update_jit(fastmath=True)
    def update(
        x, tables, starts, model, sums, steps, stride, word, slot, num_slots, num_sweeps, sweep_begin, key0, key1
    ):
        around, chunks, partial, margins, indptr, rows, weights, offsets, most = tables
        row_step, chain_step, unit_step = steps
        # Groups, sites and links of the sets before this one.
        num_sites = uint64(chunks.shape[0] - 1)
        groups = uint64(model) * uint64(chunks[num_sites])
        sites = uint64(model) * num_sites
        links = uint64(model) * uint64(indptr[num_sites])
        held = cuda.shared.array(HELD_NUMBERS, float32)
        depth = uint32(HELD_TABLES // cuda.blockDim.y)  # groups of a site that are held at once
        own = uint32(cuda.threadIdx.y * depth * uint32(16))
        field = cuda.local.array(32, float32)
        result = cuda.local.array(3, uint32)
        shared_word = cuda.shared.array(1, uint32)
        lanes = few and mode == 0 and cuda.blockDim.x == 1 and cuda.blockDim.y == 32 and cuda.gridDim.y == 1
        for s in range(num_sweeps):
            sweep = uint64(sweep_begin) + uint64(s)
            for color in range(starts.shape[0] - 1):
                begin = uint32(starts[uint64(color)])
                end = uint32(starts[uint64(color + 1)])

                # 1. A single site: a thread for each chain of the word.
                if lanes and uint32(end - begin) == uint32(1):
                    chain = uint32(cuda.threadIdx.y)
                    total = float32(0.0)
                    done = uint32(0)
                    near = uint64(chunks[begin])
                    final = uint64(chunks[uint64(begin) + uint64(1)])
                    while done < most:
                        fetch(held, partial, chunks, groups, begin, uint32(1), depth, done, most)
                        at = uint32(0)
                        last = min(final, near + uint64(depth))
                        while near < last:
                            entry = uint32(0)
                            for k in range(4):
                                bits = x[uint32(around[near * uint64(4) + uint64(k)] + word)]
                                entry = uint32(uint32(entry << uint32(1)) | uint32((bits >> chain) & uint32(1)))
                            total += held[uint32(at | entry)]
                            at = uint32(at + uint32(16))
                            near += uint64(1)
                        done = uint32(done + depth)
                    bit = uint32(uint32(1) << chain)
                    at_site = sites + uint64(begin)
                    u = _drawn(word, begin, chain, sweep, key0, key1)
                    one, doubtful, _scale = _decide(total, u, margins[at_site])
                    mine = settle(
                        x,
                        indptr,
                        rows,
                        weights,
                        links,
                        offsets[at_site],
                        word,
                        begin,
                        bit if doubtful else uint32(0),
                        bit if one else uint32(0),
                        sweep,
                        key0,
                        key1,
                    )
                    if chain == uint32(0):
                        shared_word[0] = uint32(0)
                    cuda.syncthreads()
                    cuda.atomic.or_(shared_word, 0, mine)
                    cuda.syncthreads()
                    if chain == uint32(0):
                        x[uint32(begin * stride + word)] = shared_word[0]
                    begin = end

                # 2. Log-odds in all chains of a word.
                while begin < end:
                    site = uint32(begin + slot)
                    active = site < end
                    here = site if active else uint32(begin)
                    chunk = uint32(chunks[here])
                    stop = uint32(chunks[uint64(here) + uint64(1)])
                    if not active:
                        stop = chunk
                    for i in range(32):
                        field[i] = float32(0.0)
                    done = uint32(0)
                    while done < most:
                        count = uint32(min(stop - chunk, depth))
                        if few:
                            first = uint32(site - cuda.threadIdx.y)
                            lively = uint32(min(end - first, cuda.blockDim.y)) if first < end else uint32(0)
                            fetch(held, partial, chunks, groups, first, lively, depth, done, most)
                        else:
                            fetch_own(held, partial, groups + uint64(chunk), count, own)
                        at = own
                        near = uint64(chunk) * uint64(4)
                        for _ in range(count):
                            a = x[uint32(around[near] + word)]
                            b = x[uint32(around[near + uint64(1)] + word)]
                            c = x[uint32(around[near + uint64(2)] + word)]
                            d = x[uint32(around[near + uint64(3)] + word)]
                            gather(field, 0, _weave(a, b, c, d, uint32(0)), held, at)
                            gather(field, 1, _weave(a, b, c, d, uint32(1)), held, at)
                            gather(field, 2, _weave(a, b, c, d, uint32(2)), held, at)
                            gather(field, 3, _weave(a, b, c, d, uint32(3)), held, at)
                            at = uint32(at + uint32(16))
                            near += uint64(4)
                        chunk = uint32(chunk + count)
                        done = uint32(done + depth)

                    # 3. States.
                    if active:
                        margin = margins[sites + uint64(site)]
                        offset = offsets[sites + uint64(site)]
                        sum_at = uint64(site) * row_step + uint64(word) * unit_step
                        result[0] = uint32(0)
                        result[1] = uint32(0)
                        result[2] = uint32(0)
                        draw(field, 0, word, site, sweep, key0, key1, margin, sums, sum_at, chain_step, result)
                        draw(field, 1, word, site, sweep, key0, key1, margin, sums, sum_at, chain_step, result)
                        draw(field, 2, word, site, sweep, key0, key1, margin, sums, sum_at, chain_step, result)
                        draw(field, 3, word, site, sweep, key0, key1, margin, sums, sum_at, chain_step, result)
                        ones = settle(
                            x, indptr, rows, weights, links, offset, word, site, result[1], result[0], sweep, key0, key1
                        )
                        spot = uint32(site * stride + word)
                        x[spot] = ones
                        if mode == 1 and not per_chain:
                            cuda.atomic.add(sums, sum_at, uint64(result[2]))
                        elif mode == 2:
                            add_counts(sums, sum_at, chain_step, uint32(~ones), per_chain)
                    begin = uint32(begin + num_slots)
                wait()

    return update


@cuda.jit(device=True)
def _weave(a, b, c, d, k):
    """Bits k, k + 4, .. of four words as eight numbers of four bits, a's the highest."""
    mask = uint32(_NIBBLES)
    high = uint32(((a >> k) & mask) << uint32(3)) | uint32(((b >> k) & mask) << uint32(2))
    return uint32(high | uint32(((c >> k) & mask) << uint32(1)) | ((d >> k) & mask))


@cuda.jit(device=True)
def _place(group, j, begin, end, otherwise):
    """Place j of the four that a group updates, or another number if it is not in the color."""
    site = uint32(((group >> uint32(5)) << uint32(7)) + (group & uint32(31)) + uint32(32) * uint32(j))
    return uint32(site) if begin <= site < end else uint32(otherwise)


@cache
def field_update(degree: int, mode: int, grid: bool) -> Any:
    """The update of binary variables of few chains, one byte per state: a thread updates four sites of one chain.

    Places 128 a + 32 j + l with j from 0 to 3 are updated together: the threads of a warp then read neighboring
    places, and the four numbers of one Philox call are used up. For every group of four places:

    1. Ask for the codes, weights and offsets of later groups: an iteration early, and codes, without which no other
       address is known, two. How much is under way at once is what the speed of large models depends on.
    2. Read the states of the neighbors, and add up log-odds and margins.
    3. Draw the four states; the doubtful ones are settled in double precision.
    4. Put the states in place, and collect thresholds or counts.

    Every site has ``degree`` neighbors, given by a code
    for the distances to them (``codes``, and ``steps`` for every code), with weights ``weights[k * n + site]``: codes
    save almost half of the memory traffic. Log-odds are in two single-precision parts, ``weights`` and ``offsets`` with
    ``weight_rests`` and ``offset_rests``; n is the last of the tables.
    """
    loads = 4 * degree

    @cuda.jit(device=True)
    def exact_odds(x, codes, steps, weights, weight_rests, offsets, offset_rests, site, num_sites, stride, chain):
        total = float64(offsets[site]) + float64(offset_rests[site])
        for k in range(degree):
            near = uint32(uint64(site) + uint64(uint32(steps[uint64(codes[site]) * uint64(degree) + uint64(k)])))
            at = uint64(site) + uint64(k) * uint64(num_sites)
            if x[uint32(near * stride + chain)]:
                total += float64(weights[at]) + float64(weight_rests[at])
        return total

    wait = barrier(grid)

    @update_jit(fastmath=True)
    def update(
        x, tables, starts, model, sums, sum_steps, stride, chain, slot, num_slots, num_sweeps, sweep_begin, key0, key1
    ):
        codes, steps, weights, weight_rests, offsets, offset_rests, num_sites = tables
        sites = cuda.local.array(4, uint32)
        u = cuda.local.array(4, uint32)
        field = cuda.local.array(4, float32)
        size = cuda.local.array(4, float32)
        scales = cuda.local.array(4, float32)
        read = cuda.local.array(4, uint32)
        held_codes = cuda.local.array(4, uint32)
        next_codes = cuda.local.array(4, uint32)
        later_codes = cuda.local.array(4, uint32)
        next_offsets = cuda.local.array(4, float32)
        held_weights = cuda.local.array(loads, float32)
        next_weights = cuda.local.array(loads, float32)
        held_states = cuda.local.array(loads, uint32)
        for s in range(num_sweeps):
            sweep = uint64(sweep_begin) + uint64(s)
            for color in range(starts.shape[0] - 1):
                begin = uint32(starts[uint64(color)])
                end = uint32(starts[uint64(color + 1)])
                group = uint32((begin >> uint32(7)) * uint32(32) + slot)
                for j in range(4):
                    place = _place(group, j, begin, end, begin)
                    next_codes[j] = uint32(codes[place])
                    later_codes[j] = uint32(codes[_place(uint32(group + num_slots), j, begin, end, begin)])
                    next_offsets[j] = offsets[place]
                    for k in range(degree):
                        next_weights[j * degree + k] = weights[uint32(place + uint32(k) * num_sites)]
                while uint32((group >> uint32(5)) << uint32(7)) < end:
                    following = uint32(group + num_slots)
                    # 1. Values of later groups.
                    for j in range(4):
                        sites[j] = _place(group, j, begin, end, num_sites)
                        read[j] = _place(group, j, begin, end, begin)  # some place that can be read
                        held_codes[j], next_codes[j] = next_codes[j], later_codes[j]
                        later_codes[j] = uint32(codes[_place(uint32(following + num_slots), j, begin, end, begin)])
                        place = _place(following, j, begin, end, begin)
                        field[j] = next_offsets[j]
                        next_offsets[j] = offsets[place]
                        for k in range(degree):
                            held_weights[j * degree + k] = next_weights[j * degree + k]
                            next_weights[j * degree + k] = weights[uint32(place + uint32(k) * num_sites)]
                        size[j] = abs(field[j])
                    if min(min(sites[0], sites[1]), min(sites[2], sites[3])) >= num_sites:
                        group = following
                        continue

                    # 2. Log-odds and margins.
                    for j in range(4):
                        for k in range(degree):
                            step = uint32(steps[uint32(held_codes[j] * uint32(degree) + uint32(k))])
                            near = uint32(uint64(read[j]) + uint64(step))
                            held_states[j * degree + k] = uint32(x[uint32(near * stride + chain)])
                    for j in range(4):
                        for k in range(degree):
                            weight = held_weights[j * degree + k]
                            field[j] += weight * float32(held_states[j * degree + k])
                            size[j] += abs(weight)
                        size[j] *= float32(degree + 3)

                    # 3. States.
                    u0, u1, u2, u3 = philox(chain, group, uint32(sweep), counter_top(sweep, uint32(0)), key0, key1)
                    u[0] = u0
                    u[1] = u1
                    u[2] = u2
                    u[3] = u3
                    ones = uint32(0)
                    undecided = uint32(0)
                    for j in range(4):
                        margin = float32(2.0**-20) + float32(2.0**-25) * size[j]
                        one, doubtful, scales[j] = _decide(field[j], u[j], margin)
                        if one:
                            ones = uint32(ones | uint32(1 << j))
                        if doubtful and sites[j] < num_sites:
                            undecided = uint32(undecided | uint32(1 << j))
                    while undecided != uint32(0):
                        which = uint32(cuda.ffs(undecided) - 1)
                        bit = uint32(uint32(1) << which)
                        undecided = uint32(undecided ^ bit)
                        t = _threshold(
                            exact_odds(
                                x,
                                codes,
                                steps,
                                weights,
                                weight_rests,
                                offsets,
                                offset_rests,
                                _place(group, which, begin, end, begin),
                                num_sites,
                                stride,
                                chain,
                            )
                        )
                        ones = uint32(ones & uint32(~bit))
                        if not is_below(_pick(u0, u1, u2, u3, which), t):
                            ones = uint32(ones | bit)

                    # 4. Results.
                    for j in range(4):
                        if sites[j] < num_sites:
                            state = uint32((ones >> uint32(j)) & uint32(1))
                            spot = uint32(sites[j] * stride + chain)
                            x[spot] = state
                            if mode == 1:
                                share = uint32(float32(16777216.0) / scales[j] + float32(0.5))
                                cuda.atomic.add(sums, uint64(spot), share)
                            elif mode == 2:
                                cuda.atomic.add(sums, uint64(spot), uint32((uint32(1) - state) << uint32(24)))
                    group = following
                wait()

    return update
