"""Compiled Gibbs sweeps from tables of thresholds, and what all kinds of sweeps share.

====================  ====================================================  ==========================================
kernel                conditional distributions                             configurations
====================  ====================================================  ==========================================
``table_sweeps``      thresholds of all patterns of neighbors               many side by side, ``x[i, lane]``
``single_sweeps``     the same                                              one, ``x[i]``
``four_sweeps``       the same, binary sites with at most four neighbors    one, ``x[i]``
``field_sweeps``      log-odds linear in the neighbors' states, binary      many side by side, ``x[i, lane]`` as floats
``product_sweeps``    products of exponentiated weights                     any number, ``x[c, i]``
====================  ====================================================  ==========================================

The last has a file of its own, and so have two layers of bits. They read the arrays of
:mod:`fastmix.chains.layout`, and all visit the sites in the same order with one stream of random numbers per
configuration (or per chunk of a large one), so that they give the same configurations, up to the rounding of
probabilities. A threshold is a cumulative probability in units of 2^-32 (see :mod:`fastmix.chains.generator`). What is
added up are thresholds rounded to 24 bits: conditional probabilities, so that Rao-Blackwellisation costs one addition.
Sums are 32-bit numbers that must be emptied every 255 sweeps; ``mode`` is 0 to collect nothing, 1 to add thresholds, 2
to add 2^24 for every sweep that ends at or below a cut.

Loops touch few arrays each: the compiler checks at run time that arrays do not overlap, and gives up on vectorising
when there are many to check. Division follows IEEE rules, because a check for zero would keep them from it, too.
"""

from __future__ import annotations

import numpy as np
from numba import uint8, uint32, uint64

from fastmix._jit import fused, inner, outer

__all__ = ["field_sweeps", "fill_thresholds", "four_sweeps", "largest", "single_sweeps", "table_sweeps"]

_UNIT = 4294967296.0  # 2^32
_MOST = 4294967295.0  # the largest threshold, a certainty
_INTEGER = 4503599627370496.0  # 2^52: adding it leaves a whole number in the low bits
_INTEGER_BITS = 0x433 << 52  # of 2^52
_LOG2E, _MAGIC = 1.4426950408889634, 6755399441055744.0  # 1.5 * 2^52: adding it leaves the nearest integer behind
_LN2_HIGH, _LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10
_EXPONENT = 1023 << 52


# -- random numbers -------------------------------------------------------------------------------------------------


@inner
def _rotate(x, k):  # type: ignore[no-untyped-def]
    return uint32(uint32(x << uint32(k)) | uint32(x >> uint32(32 - k)))


@inner
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


@inner
def _uniform(a, b, d, e):  # type: ignore[no-untyped-def]
    """A number strictly between 0 and 1, a multiple of 2^-54 that is odd, from 53 random bits, and the next state."""
    high, a, b, d, e = _next(a, b, d, e)
    low, a, b, d, e = _next(a, b, d, e)
    bits = (uint64(high) << uint64(21)) | (uint64(low) >> uint64(11))
    return (np.float64(bits) + 0.5) * (1.0 / 9007199254740992.0), a, b, d, e


@inner
def _random_site(n, a, b, d, e):  # type: ignore[no-untyped-def]
    """A site below n from two random numbers, uniform to about 2^-32."""
    high, a, b, d, e = _next(a, b, d, e)
    low, a, b, d, e = _next(a, b, d, e)
    carry = uint64(uint64(low) * uint64(n)) >> uint64(32)
    return np.int64(uint64(uint64(high) * uint64(n) + carry) >> uint64(32)), a, b, d, e


@inner
def _fill(s0, s1, s2, s3, out):  # type: ignore[no-untyped-def]
    for c in range(len(out)):
        out[c], s0[c], s1[c], s2[c], s3[c] = _next(s0[c], s1[c], s2[c], s3[c])


@inner
def _copy(out, values):  # type: ignore[no-untyped-def]
    for k in range(len(out)):
        out[k] = values[k]


# -- thresholds and sums --------------------------------------------------------------------------------------------


@inner
def largest(counts):  # type: ignore[no-untyped-def]
    """The largest count, at least 1; the method ``max`` of arrays takes most of a second to compile."""
    most = 1
    for count in counts:
        if count > most:
            most = count
    return most


@inner
def _shorten(threshold):  # type: ignore[no-untyped-def]
    """A threshold rounded to 24 bits: unbiased, 0 and 2^24 for the certain ones."""
    return uint32(uint32(threshold >> uint32(8)) + uint32(uint32(threshold >> uint32(7)) & uint32(1)))


@inner
def _collect(sums, threshold):  # type: ignore[no-untyped-def]
    for c in range(len(sums)):
        sums[c] = uint32(sums[c] + _shorten(threshold[c]))


@inner
def _count(sums, x, k):  # type: ignore[no-untyped-def]
    for c in range(len(sums)):
        sums[c] = uint32(sums[c] + (uint32(1 << 24) if x[c] <= k else uint32(0)))


@outer
def fill_thresholds(  # type: ignore[no-untyped-def]
    states, indptr, neighbors, tables_at, own_steps, their_steps, unary_at, unary, tables, incident, starts, table
):
    """Thresholds of every site and pattern of neighbors; a site that has no state for some pattern, or -1.

    ``tables[tables_at[k] + s * own_steps[k] + t * their_steps[k]]`` is the log-potential of state s of the site and t
    of its k-th neighbor; ``incident`` are the larger factors (:class:`fastmix.model.structure.Incident`). In the number
    of a pattern the first neighbor counts most. Pattern p of site i has its ``L_i - 1`` thresholds from
    ``table[starts[i] + p * (L_i - 1)]`` on; those of a pattern without a state are 0.
    """
    around, _, factors_at, factor_steps, member_starts, _, member_steps, slots = incident
    site = -1
    room = 1
    for i in range(len(states)):
        entries = states[i]
        for k in range(indptr[i], indptr[i + 1]):
            entries *= states[neighbors[k]]
        room = max(room, entries)
    logits = np.empty(room)
    place_in = np.empty(room if len(factors_at) else 0, np.int64)  # the pattern in the table of a factor
    for i in range(len(states)):
        count = states[i]
        for s in range(count):
            logits[s] = unary[unary_at[i] + s]
        patterns = 1
        for k in range(indptr[i], indptr[i + 1]):
            # Every pattern so far splits into one for each state of this neighbor: from the back, in place.
            theirs = states[neighbors[k]]
            for p in range(patterns - 1, -1, -1):
                for t in range(theirs - 1, -1, -1):
                    base = tables_at[k] + t * their_steps[k]
                    for s in range(count):
                        logits[(p * theirs + t) * count + s] = logits[p * count + s] + tables[base + s * own_steps[k]]
            patterns *= theirs
        for f in range(around[i], around[i + 1]):
            place_in[0], patterns, m = factors_at[f], 1, member_starts[f]
            for k in range(indptr[i], indptr[i + 1]):
                theirs, step = states[neighbors[k]], 0
                if m < member_starts[f + 1] and slots[m] == k:  # members ascend, as neighbors do
                    step, m = member_steps[m], m + 1
                for p in range(patterns - 1, -1, -1):
                    for t in range(theirs - 1, -1, -1):
                        place_in[p * theirs + t] = place_in[p] + t * step
                patterns *= theirs
            for p in range(patterns):
                for s in range(count):
                    logits[p * count + s] += tables[place_in[p] + s * factor_steps[f]]
        place = starts[i]
        for p in range(patterns):
            total = _accumulate(logits[p * count : (p + 1) * count])
            if not total > 0.0 and site < 0:
                site = i
            for s in range(count - 1):
                value = min(np.rint(logits[p * count + s] / total * _UNIT), _MOST) if total > 0.0 else 0.0
                table[place] = uint32(value)  # type: ignore[arg-type]
                place += 1
    return site


@inner
def _accumulate(logits):  # type: ignore[no-untyped-def]
    """Logarithms become cumulative weights, scaled to a largest weight of one; their total, 0 if all are -inf."""
    top = -np.inf
    for s in range(len(logits)):
        top = max(top, logits[s])
    if top == -np.inf:
        return 0.0
    total = 0.0
    for s in range(len(logits)):
        total += np.exp(logits[s] - top)
        logits[s] = total
    return total


# -- many configurations, thresholds of all patterns ----------------------------------------------------------------


@inner
def _place(index, rung, size):  # type: ignore[no-untyped-def]
    for c in range(len(index)):
        index[c] = uint32(rung[c] * size)


@inner
def _add_state(index, x, stride):  # type: ignore[no-untyped-def]
    for c in range(len(index)):
        index[c] = uint32(index[c] + uint32(x[c] * stride))


@inner
def _gather(out, index, table):  # type: ignore[no-untyped-def]
    for c in range(len(out)):
        out[c] = table[index[c]]


@inner
def _compare(x, u, threshold):  # type: ignore[no-untyped-def]
    for c in range(len(x)):
        x[c] += uint8(u[c] >= threshold[c])


@outer
def table_sweeps(  # type: ignore[no-untyped-def]
    x, rung, order, indptr, neighbors, strides, cuts, sizes, starts, sum_starts, table, streams, sums, num_sweeps, mode
):
    """Sweeps of lanes x (n, W) side by side, each with the conditionals of its parameter set ``rung`` (W,).

    ``neighbors`` of site i, from ``indptr[i]`` on, make ``strides`` in its table, which begins at ``starts[i]`` and
    holds thresholds by set (``sizes[i]`` entries each), pattern of the neighbors, and cut (``cuts[i]``, states minus
    one). Sums (total cuts, C) are those of the last C lanes, from row ``sum_starts[i]`` on.
    """
    width = x.shape[1]
    top = width - sums.shape[1]
    u, index, threshold = np.empty(width, np.uint32), np.empty(width, np.uint32), np.empty(width, np.uint32)
    s0, s1, s2, s3 = streams[0], streams[1], streams[2], streams[3]
    for _ in range(num_sweeps):
        for i in order:
            _fill(s0, s1, s2, s3, u)
            _place(index, rung, sizes[i])
            for k in range(indptr[i], indptr[i + 1]):
                _add_state(index, x[neighbors[k]], strides[k])
            x[i] = 0
            for j in range(cuts[i]):
                _gather(threshold, index, table[starts[i] + j : starts[i + 1]])
                _compare(x[i], u, threshold)
                if mode == 1:
                    _collect(sums[sum_starts[i] + j], threshold[top:])
            if mode == 2:
                for j in range(cuts[i]):
                    _count(sums[sum_starts[i] + j], x[i, top:], j)


# -- one configuration of binary sites with few neighbors -----------------------------------------------------------


@outer
def four_sweeps(x, order, around, table, scan, chunks, first_chunk, last_chunk, streams, sums, num_sweeps, mode):  # type: ignore[no-untyped-def]
    """Sweeps of one configuration x (n + 1,) of binary sites, with at most four neighbors each, over some chunks.

    Chunk q is ``order[chunks[q]:chunks[q + 1]]`` and uses ``streams[:, q]``. ``around[p]`` holds the neighbors of
    ``order[p]``, padded in front with site n, which stays 0, and ``table[p]`` its 16 thresholds. With ``scan`` 1 the
    site of every update is drawn at random, and only mode 2 is collected.
    """
    n = len(order)
    for _ in range(num_sweeps):
        for q in range(first_chunk, last_chunk):
            a, b, d, e = streams[0, q], streams[1, q], streams[2, q], streams[3, q]
            for p in range(chunks[q], chunks[q + 1]):
                if scan == 1:
                    p, a, b, d, e = _random_site(n, a, b, d, e)
                u, a, b, d, e = _next(a, b, d, e)
                index = (x[around[p, 0]] << 3) | (x[around[p, 1]] << 2) | (x[around[p, 2]] << 1) | x[around[p, 3]]
                threshold = table[p, index]
                state = uint8(u >= threshold)
                x[order[p]] = state
                if mode == 1:
                    sums[order[p]] += _shorten(threshold)
                elif mode == 2 and scan == 0:
                    sums[order[p]] += uint32(uint32(1 - state) << uint32(24))
            streams[0, q], streams[1, q], streams[2, q], streams[3, q] = a, b, d, e
        if mode == 2 and scan == 1:
            _count(sums, x[:n], 0)


@outer
def single_sweeps(  # type: ignore[no-untyped-def]
    x, order, indptr, neighbors, strides, cuts, _sizes, starts, sum_starts, table, scan, chunks, first_chunk,
    last_chunk, streams, sums, num_sweeps, mode,
):  # fmt: skip
    """The same for any states and any number of neighbors, with the tables of :func:`table_sweeps` for one set.

    Sums (total cuts,) are from entry ``sum_starts[i]`` on.
    """
    n = len(order)
    for _ in range(num_sweeps):
        for q in range(first_chunk, last_chunk):
            a, b, d, e = streams[0, q], streams[1, q], streams[2, q], streams[3, q]
            for p in range(chunks[q], chunks[q + 1]):
                if scan == 1:
                    p, a, b, d, e = _random_site(n, a, b, d, e)
                u, a, b, d, e = _next(a, b, d, e)
                i = np.int64(order[p])
                at = starts[i]
                for k in range(indptr[i], indptr[i + 1]):
                    at += np.int64(x[neighbors[k]]) * strides[k]
                state = 0
                for j in range(cuts[i]):
                    threshold = table[at + j]
                    state += u >= threshold
                    if mode == 1:
                        sums[sum_starts[i] + j] += _shorten(threshold)
                x[i] = state
            streams[0, q], streams[1, q], streams[2, q], streams[3, q] = a, b, d, e
        if mode == 2:
            for i in order[chunks[first_chunk] : chunks[last_chunk]]:
                for j in range(x[i], cuts[i]):
                    sums[sum_starts[i] + j] += uint32(1 << 24)


# -- many configurations of binary sites, log-odds; fused where that is both faster and more accurate ---------------


@fused
def _add_four(out, x, y, z, w, a, b, d, e):  # type: ignore[no-untyped-def]
    """Four terms at once, so that the sums stay in registers; eight take longer than twice four."""
    for c in range(len(out)):
        out[c] = (((out[c] + a * x[c]) + b * y[c]) + d * z[c]) + e * w[c]


@inner
def _add_scaled(out, part, rung, weights):  # type: ignore[no-untyped-def]
    for c in range(len(out)):
        out[c] += weights[rung[c]] * part[c]


@fused
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
        value = np.float64(min(_UNIT / (1.0 + p * power), _MOST) + _INTEGER)
        x[c] = 1.0 if np.int64(np.int64(u[c]) + _INTEGER_BITS).view(np.float64) >= value else 0.0
        threshold[c] = uint32(value.view(np.int64) & 0xFFFFFFFF)


@outer
def field_sweeps(  # type: ignore[no-untyped-def]
    x, rung, coefficients, order, indptr, neighbors, weights, offsets, joined, streams, sums, num_sweeps, mode
):
    """Sweeps of lanes side by side for binary variables of any degree.

    ``x`` (n, W) holds 0.0 and 1.0. The log-odds of variable ``i = order[p]`` under theta d are ``offsets[d, i]`` plus,
    if ``joined[d]``, the sum of ``weights[d]`` times x over its neighbors, from ``indptr[p]`` on, a positive multiple
    of four (some of weight 0); ``coefficients[d, rung]`` mixes the thetas.
    """
    width = x.shape[1]
    top = width - sums.shape[1]
    field, part = np.empty(width), np.empty(width)
    u, threshold = np.empty(width, np.uint32), np.empty(width, np.uint32)
    s0, s1, s2, s3 = streams[0], streams[1], streams[2], streams[3]
    for _ in range(num_sweeps):
        for p, i in enumerate(order):
            _fill(s0, s1, s2, s3, u)
            field[:] = 0.0
            for theta in range(len(joined)):
                w, part[:] = weights[theta], offsets[theta, i]
                if joined[theta]:
                    for k in range(indptr[p], indptr[p + 1], 4):
                        y, z, v, t = x[neighbors[k]], x[neighbors[k + 1]], x[neighbors[k + 2]], x[neighbors[k + 3]]
                        _add_four(part, y, z, v, t, w[k], w[k + 1], w[k + 2], w[k + 3])
                if coefficients.size > 1:
                    _add_scaled(field, part, rung, coefficients[theta])
            _draw_by_odds(x[i], part if coefficients.size == 1 else field, u, threshold)
            if mode == 1:
                _collect(sums[i], threshold[top:])
            elif mode == 2:
                _count(sums[i], x[i, top:], 0)
