"""Compiled Gibbs updates.

One byte a variable: ``x[i, c]`` where many chains go side by side (loops over c vectorise), ``x[i]`` where one chain is
followed. All kernels visit the same sites in the same order with the same stream of random numbers per chain, so they
give the same configurations whichever is chosen.

Conditional distributions come from *pattern tables* where these fit: for a site and every pattern of its neighbours'
states, the cumulative probabilities as 32-bit thresholds (see :mod:`fastmix.chains.generator`). What is added up are
those thresholds, rounded to 24 bits: conditional probabilities, so that Rao-Blackwellisation costs one addition. The
sums are 32-bit numbers and must be emptied every 255 sweeps.
"""

from __future__ import annotations

import numpy as np
from numba import uint8, uint32, uint64

from fastmix._jit import njit

__all__ = [
    "average_pairs",
    "count_pairs",
    "descend",
    "field_many",
    "four_one",
    "hopeful",
    "largest",
    "logit_one",
    "random_one",
    "table_many",
    "table_one",
]

# Functions called only from compiled code need no entry points from Python, which saves compilation time.
# Division follows IEEE rules, because a check for zero would keep loops from being vectorised.
_inner = njit(cache=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)


# The same with multiplications and additions contracted, which is both faster and more accurate.
_fused = njit(cache=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True, fastmath={"contract"})


@_inner
def _rotate(x, k):  # type: ignore[no-untyped-def]
    return uint32(uint32(x << uint32(k)) | uint32(x >> uint32(32 - k)))


@_inner
def _next(a, b, d, e):  # type: ignore[no-untyped-def]
    """A number up to 2^32 - 2 and the next state. Every operation is wrapped, because Numba widens 32-bit integers."""
    value = uint32(_rotate(uint32(a + e), 7) + a)
    t = uint32(b << uint32(9))
    d = uint32(d ^ a)
    e = uint32(e ^ b)
    b = uint32(b ^ d)
    a = uint32(a ^ e)
    d = uint32(d ^ t)
    e = _rotate(e, 11)
    return uint32(value - uint32(value >> uint32(31))), a, b, d, e


@_inner
def _shorten(threshold):  # type: ignore[no-untyped-def]
    """A threshold rounded to 24 bits: unbiased, 0 and 2^24 for the certain ones."""
    return uint32(uint32(threshold >> uint32(8)) + uint32(uint32(threshold >> uint32(7)) & uint32(1)))


@_inner
def _random_site(n, a, b, d, e):  # type: ignore[no-untyped-def]
    """A site below n from two random numbers, uniform to about 2^-32."""
    high, a, b, d, e = _next(a, b, d, e)
    low, a, b, d, e = _next(a, b, d, e)
    carry = uint64(uint64(low) * uint64(n)) >> uint64(32)
    return np.int64(uint64(uint64(high) * uint64(n) + carry) >> uint64(32)), a, b, d, e


@_inner
def largest(counts):  # type: ignore[no-untyped-def]
    """The largest count, at least 1; the method ``max`` of arrays takes most of a second to compile."""
    most = 1
    for count in counts:
        if count > most:
            most = count
    return most


@_inner
def _fill(s0, s1, s2, s3, out):  # type: ignore[no-untyped-def]
    for c in range(len(out)):
        out[c], s0[c], s1[c], s2[c], s3[c] = _next(s0[c], s1[c], s2[c], s3[c])


@_inner
def _index_first(index, x, stride):  # type: ignore[no-untyped-def]
    for c in range(len(index)):
        index[c] = uint32(x[c] * stride)


@_inner
def _index_next(index, x, stride):  # type: ignore[no-untyped-def]
    for c in range(len(index)):
        index[c] = uint32(index[c] + uint32(x[c] * stride))


@_inner
def _gather(out, index, table, cuts, k):  # type: ignore[no-untyped-def]
    for c in range(len(out)):
        out[c] = table[uint32(index[c] * cuts) + k]


@_inner
def _compare(x, u, threshold):  # type: ignore[no-untyped-def]
    for c in range(len(x)):
        x[c] = u[c] >= threshold[c]


@_inner
def _compare_more(x, u, threshold):  # type: ignore[no-untyped-def]
    for c in range(len(x)):
        x[c] += uint8(u[c] >= threshold[c])


@_inner
def _collect(sums, threshold):  # type: ignore[no-untyped-def]
    for c in range(len(sums)):
        sums[c] = uint32(sums[c] + _shorten(threshold[c]))


@_inner
def _count(sums, x, k):  # type: ignore[no-untyped-def]
    for c in range(len(sums)):
        sums[c] = uint32(sums[c] + (uint32(1 << 24) if x[c] <= k else uint32(0)))


@njit(cache=True, nogil=True)
def table_many(x, order, indptr, neighbors, strides, cuts, starts, table, sum_starts, streams, sums, num_sweeps, mode):  # type: ignore[no-untyped-def]
    """Sweeps over chains side by side.

    Parameters
    ----------
    x : uint8 (n, C)
    order : int (n,)
        Sites in the order of a sweep.
    indptr, neighbors, strides : int
        Neighbours of every site and the weight of their state in the number of the pattern.
    cuts : uint32 (n,)
        States of every site minus one.
    starts : int (n + 1,)
        Where the table of every site begins.
    table : uint32
        Cumulative thresholds, ``cuts`` for every pattern.
    sum_starts : int (n,)
        First row of every site in the sums.
    streams : uint32 (4, C)
    sums : uint32 (total cuts, C)
    mode : int
        0 collects nothing, 1 adds thresholds, 2 adds 2^24 for every sweep that ends at or below a cut.
    """
    num_chains = x.shape[1]
    u, index, threshold = (
        np.empty(num_chains, np.uint32),
        np.zeros(num_chains, np.uint32),
        np.empty(num_chains, np.uint32),
    )
    s0, s1, s2, s3 = streams[0], streams[1], streams[2], streams[3]
    for _ in range(num_sweeps):
        for i in order:
            _fill(s0, s1, s2, s3, u)
            first, last = indptr[i], indptr[i + 1]
            if first == last:
                index[:] = 0
            else:
                _index_first(index, x[neighbors[first]], strides[first])
                for k in range(first + 1, last):
                    _index_next(index, x[neighbors[k]], strides[k])
            own = table[starts[i] : starts[i + 1]]
            for k in range(cuts[i]):
                _gather(threshold, index, own, cuts[i], k)
                if k:
                    _compare_more(x[i], u, threshold)
                else:
                    _compare(x[i], u, threshold)
                if mode == 1:
                    _collect(sums[sum_starts[i] + k], threshold)
                elif mode == 2 and k + 1 == cuts[i]:
                    for j in range(cuts[i]):
                        _count(sums[sum_starts[i] + j], x[i], j)


@njit(cache=True, nogil=True)
def table_one(  # type: ignore[no-untyped-def]
    x,
    order,
    chunks,
    first_chunk,
    last_chunk,
    indptr,
    neighbors,
    strides,
    cuts,
    starts,
    table,
    sum_starts,
    streams,
    sums,
    num_sweeps,
    mode,
):
    """Sweeps of one chain x (n,) over some chunks of the order, each with its own stream.

    Chunk q is ``order[chunks[q]:chunks[q + 1]]`` and uses ``streams[:, q]``. Other arguments as in :func:`table_many`.
    """
    for _ in range(num_sweeps):
        for q in range(first_chunk, last_chunk):
            a, b, d, e = streams[0, q], streams[1, q], streams[2, q], streams[3, q]
            for place in range(chunks[q], chunks[q + 1]):
                i = order[place]
                u, a, b, d, e = _next(a, b, d, e)
                index = 0
                for k in range(indptr[i], indptr[i + 1]):
                    index += x[neighbors[k]] * strides[k]
                base = starts[i] + index * cuts[i]
                state = 0
                for k in range(cuts[i]):
                    threshold = table[base + k]
                    state += u >= threshold
                    if mode == 1:
                        sums[sum_starts[i] + k] += _shorten(threshold)
                x[i] = state
                if mode == 2:
                    for k in range(state, cuts[i]):
                        sums[sum_starts[i] + k] += uint32(1 << 24)
            streams[0, q], streams[1, q], streams[2, q], streams[3, q] = a, b, d, e


@njit(cache=True, nogil=True)
def four_one(x, order, chunks, first_chunk, last_chunk, around, table, streams, sums, num_sweeps, mode):  # type: ignore[no-untyped-def]
    """The same as :func:`table_one` for binary sites with at most four neighbours.

    ``around[p]`` holds the neighbours of ``order[p]``, padded in front with the number of a site that stays 0, and
    ``table[p]`` its 16 thresholds; sums have one row a site.
    """
    for _ in range(num_sweeps):
        for q in range(first_chunk, last_chunk):
            a, b, d, e = streams[0, q], streams[1, q], streams[2, q], streams[3, q]
            for p in range(chunks[q], chunks[q + 1]):
                u, a, b, d, e = _next(a, b, d, e)
                index = (x[around[p, 0]] << 3) | (x[around[p, 1]] << 2) | (x[around[p, 2]] << 1) | x[around[p, 3]]
                threshold = table[p, index]
                state = uint8(u >= threshold)
                x[order[p]] = state
                if mode == 1:
                    sums[order[p]] += _shorten(threshold)
                elif mode == 2:
                    sums[order[p]] += uint32(uint32(1 - state) << uint32(24))
            streams[0, q], streams[1, q], streams[2, q], streams[3, q] = a, b, d, e


_LOG2E, _MAGIC = 1.4426950408889634, 6755399441055744.0  # 1.5 * 2^52: adding it leaves the nearest integer behind
_LN2_HIGH, _LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10
_EXPONENT = 1023 << 52
_INTEGER, _INTEGER_BITS = 4503599627370496.0, 0x433 << 52  # 2^52: adding it leaves a whole number in the low bits


@_fused
def _set_four(out, value, x, y, z, w, a, b, d, e):  # type: ignore[no-untyped-def]
    for c in range(len(out)):
        out[c] = (((value + a * x[c]) + b * y[c]) + d * z[c]) + e * w[c]


@_fused
def _add_four(out, x, y, z, w, a, b, d, e):  # type: ignore[no-untyped-def]
    """Four terms at once, so that the sums stay in registers; eight take longer than twice four."""
    for c in range(len(out)):
        out[c] = (((out[c] + a * x[c]) + b * y[c]) + d * z[c]) + e * w[c]


@_fused
def _draw_by_odds(x, field, u, threshold):  # type: ignore[no-untyped-def]
    """Draw 0.0 or 1.0 by log-odds, and leave the thresholds of 1 / (1 + exp(field)).

    The exponential is 2^k times a polynomial on abs(r) <= ln(2) / 2, the best one of degree 8 for the relative error
    (by Remez's algorithm): at most 7.8e-13, which moves a threshold by less than a thousandth of a unit of 2^-32.
    Whole numbers are compared as they are in the low bits of floating-point numbers from 2^52 on.
    """
    for c in range(len(x)):
        f = min(max(field[c], -700.0), 700.0)
        shifted = np.float64(f * _LOG2E + _MAGIC)
        power = np.int64((shifted.view(np.int64) << 52) + _EXPONENT).view(np.float64)
        count = shifted - _MAGIC
        r = (f - count * _LN2_HIGH) - count * _LN2_LOW
        p = 2.472714171532563e-05
        p = p * r + 0.0001991549591761959
        p = p * r + 0.0013889179223924085
        p = p * r + 0.008333266899922726
        p = p * r + 0.04166666421271249
        p = p * r + 0.16666666886100032
        p = p * r + 0.5000000000620699
        p = p * r + 0.9999999999805461
        p = p * r + 0.9999999999997612
        value = np.float64(min(4294967296.0 / (1.0 + p * power), 4294967295.0) + _INTEGER)
        x[c] = 1.0 if np.int64(np.int64(u[c]) + _INTEGER_BITS).view(np.float64) >= value else 0.0
        threshold[c] = uint32(value.view(np.int64) & 0xFFFFFFFF)


@_inner
def _count_values(sums, x):  # type: ignore[no-untyped-def]
    for c in range(len(sums)):
        sums[c] = uint32(sums[c] + (uint32(0) if x[c] > 0.0 else uint32(1 << 24)))


@njit(cache=True, nogil=True)
def field_many(x, order, indptr, neighbors, weights, offsets, streams, sums, num_sweeps, mode):  # type: ignore[no-untyped-def]
    """Sweeps of chains side by side for binary variables of any degree.

    ``x`` (n, C) holds 0.0 and 1.0; the log-odds of variable i are ``offsets[i]`` plus the sum of ``weights`` times x
    over its neighbours, of which every variable has a positive multiple of four (some of weight 0).
    """
    num_chains = x.shape[1]
    field = np.empty(num_chains)
    u, threshold = np.empty(num_chains, np.uint32), np.empty(num_chains, np.uint32)
    s0, s1, s2, s3 = streams[0], streams[1], streams[2], streams[3]
    for _ in range(num_sweeps):
        for i in order:
            _fill(s0, s1, s2, s3, u)
            for k in range(indptr[i], indptr[i + 1], 4):
                y, z, v, w = x[neighbors[k]], x[neighbors[k + 1]], x[neighbors[k + 2]], x[neighbors[k + 3]]
                a, b, d, e = weights[k], weights[k + 1], weights[k + 2], weights[k + 3]
                if k == indptr[i]:
                    _set_four(field, offsets[i], y, z, v, w, a, b, d, e)
                else:
                    _add_four(field, y, z, v, w, a, b, d, e)
            _draw_by_odds(x[i], field, u, threshold)
            if mode == 1:
                _collect(sums[i], threshold)
            elif mode == 2:
                _count_values(sums[i], x[i])


@_inner
def _logits(i, x, indptr, neighbors, table_starts, row_steps, col_steps, tables, unary_starts, unary, states, out):  # type: ignore[no-untyped-def]
    """Cumulative conditional weights of site i, scaled to a largest weight of one; their total."""
    count = states[i]
    for s in range(count):
        out[s] = unary[unary_starts[i] + s]
    for k in range(indptr[i], indptr[i + 1]):
        base = table_starts[k] + x[neighbors[k]] * col_steps[k]
        for s in range(count):
            out[s] += tables[base + s * row_steps[k]]
    top = -np.inf
    for s in range(count):
        top = max(top, out[s])
    total = 0.0
    for s in range(count):
        total += np.exp(out[s] - top)
        out[s] = total
    return total


@njit(cache=True, nogil=True)
def logit_one(  # type: ignore[no-untyped-def]
    x,
    order,
    scan,
    indptr,
    neighbors,
    table_starts,
    row_steps,
    col_steps,
    tables,
    unary_starts,
    unary,
    states,
    sum_starts,
    streams,
    sums,
    num_sweeps,
    mode,
):
    """Sweeps of one chain for any model: conditional distributions computed at every update.

    ``tables[table_starts[k] + s * row_steps[k] + t * col_steps[k]]`` is the log-potential of state s of the site and t
    of its k-th neighbour. With ``scan`` 1 the site of every update is drawn at random, and only mode 2 is collected.
    """
    n = len(order)
    work = np.empty(largest(states))
    a, b, d, e = streams[0, 0], streams[1, 0], streams[2, 0], streams[3, 0]
    for _ in range(num_sweeps):
        for place in range(n):
            if scan == 1:
                i, a, b, d, e = _random_site(n, a, b, d, e)
            else:
                i = order[place]
            u, a, b, d, e = _next(a, b, d, e)
            total = _logits(
                i, x, indptr, neighbors, table_starts, row_steps, col_steps, tables, unary_starts, unary, states, work
            )
            state, last = 0, states[i] - 1
            for k in range(last):
                threshold = uint32(min(np.rint(work[k] / total * 4294967296.0), 4294967295.0))
                state += u >= threshold
                if mode == 1:
                    sums[sum_starts[i] + k] += _shorten(threshold)
            x[i] = state
            if mode == 2 and scan == 0:
                for k in range(state, last):
                    sums[sum_starts[i] + k] += uint32(1 << 24)
        if mode == 2 and scan == 1:
            for i in range(n):
                for k in range(x[i], states[i] - 1):
                    sums[sum_starts[i] + k] += uint32(1 << 24)
    streams[0, 0], streams[1, 0], streams[2, 0], streams[3, 0] = a, b, d, e


@njit(cache=True, nogil=True)
def random_one(x, indptr, neighbors, strides, cuts, starts, table, sum_starts, streams, sums, num_sweeps, mode):  # type: ignore[no-untyped-def]
    """Sweeps of n updates at sites drawn at random, from pattern tables; mode 2 counts the state after each sweep."""
    n = len(cuts)
    a, b, d, e = streams[0, 0], streams[1, 0], streams[2, 0], streams[3, 0]
    for _ in range(num_sweeps):
        for _ in range(n):
            i, a, b, d, e = _random_site(n, a, b, d, e)
            u, a, b, d, e = _next(a, b, d, e)
            index = 0
            for k in range(indptr[i], indptr[i + 1]):
                index += x[neighbors[k]] * strides[k]
            base = starts[i] + index * cuts[i]
            state = 0
            for k in range(cuts[i]):
                state += u >= table[base + k]
            x[i] = state
        if mode == 2:
            for i in range(n):
                for k in range(x[i], cuts[i]):
                    sums[sum_starts[i] + k] += uint32(1 << 24)
    streams[0, 0], streams[1, 0], streams[2, 0], streams[3, 0] = a, b, d, e


@njit(cache=True, nogil=True)
def count_pairs(x, edges, states, starts, out):  # type: ignore[no-untyped-def]
    """Add the pairs of states on every edge in configurations x (chains, n) to ``out``."""
    for e in range(edges.shape[0]):
        i, j = edges[e, 0], edges[e, 1]
        for c in range(x.shape[0]):
            out[starts[e] + x[c, i] * states[j] + x[c, j]] += 1


@njit(cache=True, nogil=True)
def average_pairs(  # type: ignore[no-untyped-def]
    x, indptr, neighbors, table_starts, row_steps, col_steps, tables, unary_starts, unary, states, out
):
    """Add conditional probabilities of the pairs on every edge, given all but one end, in configurations x (chains, n).

    An edge gets half a unit from either end: the probability of that end's states beside the present state of the
    other. Arguments as in :func:`logit_one`; ``out`` is laid out as ``tables``.
    """
    n = len(states)
    work = np.empty(largest(states))
    for c in range(x.shape[0]):
        row = x[c]
        for i in range(n):
            if indptr[i] == indptr[i + 1]:
                continue
            total = _logits(
                i, row, indptr, neighbors, table_starts, row_steps, col_steps, tables, unary_starts, unary, states, work
            )
            half = 0.5 / total
            for s in range(states[i] - 1, 0, -1):
                work[s] = (work[s] - work[s - 1]) * half
            work[0] *= half
            for k in range(indptr[i], indptr[i + 1]):
                base = table_starts[k] + row[neighbors[k]] * col_steps[k]
                for s in range(states[i]):
                    out[base + s * row_steps[k]] += work[s]


@njit(cache=True, nogil=True)
def descend(  # type: ignore[no-untyped-def]
    x, indptr, neighbors, table_starts, row_steps, col_steps, tables, unary_starts, unary, states, max_sweeps
):
    """Set single variables of configurations x (any number, n) to their best states until nothing changes.

    Ties keep the present state. Arguments as in :func:`logit_one`; all log-potentials must be finite.
    """
    for c in range(x.shape[0]):
        row = x[c]
        for _ in range(max_sweeps):
            changed = False
            for i in range(len(states)):
                best, most = row[i], 0.0
                for turn in range(states[i]):
                    # The present state first, which the others must exceed.
                    s = row[i] if turn == 0 else turn - 1 if turn <= row[i] else turn
                    value = unary[unary_starts[i] + s]
                    for k in range(indptr[i], indptr[i + 1]):
                        value += tables[table_starts[k] + s * row_steps[k] + row[neighbors[k]] * col_steps[k]]
                    if turn == 0 or value > most:
                        best, most = s, value
                if best != row[i]:
                    row[i] = best
                    changed = True
            if not changed:
                break


@njit(cache=True, nogil=True)
def hopeful(  # type: ignore[no-untyped-def]
    x, free, indptr, neighbors, table_starts, row_steps, col_steps, tables, unary_starts, unary, states
):
    """Write to x (n,) the free states that are best beside those of neighbours set before, and hoped for of the others.

    Variables are set in breadth-first order; a neighbour that is not set yet is hoped to take its best free state.
    ``free`` is laid out as ``unary``, with at least one free state for every variable. Arguments as in
    :func:`logit_one`.
    """
    n = len(states)
    queue = np.empty(n, dtype=np.int64)
    reached, done = np.zeros(n, dtype=np.uint8), np.zeros(n, dtype=np.uint8)
    first, last = 0, 0
    for root in range(n):
        if reached[root]:
            continue
        queue[last] = root
        reached[root] = 1
        last += 1
        while first < last:
            i = queue[first]
            first += 1
            most = -np.inf
            for s in range(states[i]):
                if not free[unary_starts[i] + s]:
                    continue
                value = unary[unary_starts[i] + s]
                for k in range(indptr[i], indptr[i + 1]):
                    j = neighbors[k]
                    base = table_starts[k] + s * row_steps[k]
                    if done[j]:
                        value += tables[base + x[j] * col_steps[k]]
                        continue
                    best = -np.inf
                    for t in range(states[j]):
                        if free[unary_starts[j] + t]:
                            best = max(best, tables[base + t * col_steps[k]])
                    value += best
                if value > most or most == -np.inf:
                    x[i], most = s, value
            done[i] = 1
            for k in range(indptr[i], indptr[i + 1]):
                j = neighbors[k]
                if not reached[j]:
                    queue[last] = j
                    reached[j] = 1
                    last += 1
