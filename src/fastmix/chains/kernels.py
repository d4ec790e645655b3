"""Compiled Gibbs sweeps, four kinds, and what fills the arrays they read (see :mod:`fastmix.chains.layout`).

====================  ====================================================  ==========================================
kernel                conditional distributions                             configurations
====================  ====================================================  ==========================================
``table_sweeps``      thresholds of all patterns of neighbors               many side by side, ``x[i, lane]``
``four_sweeps``       the same, binary sites with at most four neighbors    one, ``x[i]``
``field_sweeps``      log-odds linear in the neighbors' states, binary      many side by side, ``x[i, lane]`` as floats
``product_sweeps``    products of exponentiated weights                     any number, ``x[c, i]``
====================  ====================================================  ==========================================

All visit the sites in the same order with one stream of random numbers per configuration (or per chunk of a large one),
so that they give the same configurations, up to the rounding of probabilities. A threshold is a cumulative probability
in units of 2^-32 (see :mod:`fastmix.chains.generator`). What is added up are thresholds rounded to 24 bits: conditional
probabilities, so that Rao-Blackwellisation costs one addition. Sums are 32-bit numbers that must be emptied every 255
sweeps; ``mode`` is 0 to collect nothing, 1 to add thresholds, 2 to add 2^24 for every sweep that ends at or below a
cut.

Loops touch few arrays each: the compiler checks at run time that arrays do not overlap, and gives up on vectorising
when there are many to check.
"""

from __future__ import annotations

import numpy as np
from numba import uint8, uint32, uint64

from fastmix._jit import njit
from fastmix.chains.layout import BLOCK_SITES

__all__ = [
    "field_sweeps", "fill_factor_rows", "fill_rows", "fill_thresholds", "four_sweeps", "largest", "log_weights",
    "next_row", "product_sweeps", "table_sweeps",
]  # fmt: skip

# Functions called only from compiled code need no entry points from Python, which saves compilation time.
# Division follows IEEE rules, because a check for zero would keep loops from being vectorised.
_inner = njit(cache=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
# The same with multiplications and additions contracted, which is both faster and more accurate.
_fused = njit(cache=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True, fastmath={"contract"})
_outer = njit(cache=True, nogil=True, error_model="numpy")

_UNIT = 4294967296.0  # 2^32
_MOST = 4294967295.0  # the largest threshold, a certainty
_INTEGER, _INTEGER_BITS = 4503599627370496.0, 0x433 << 52  # 2^52: adding it leaves a whole number in the low bits
_LEAST_TOTAL, _MOST_TOTAL = 1e-280, 1e300  # between them no product has lost anything that matters


# -- random numbers -------------------------------------------------------------------------------------------------


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
def _uniform(a, b, d, e):  # type: ignore[no-untyped-def]
    """A number strictly between 0 and 1, a multiple of 2^-54 that is odd, from 53 random bits, and the next state."""
    high, a, b, d, e = _next(a, b, d, e)
    low, a, b, d, e = _next(a, b, d, e)
    bits = (uint64(high) << uint64(21)) | (uint64(low) >> uint64(11))
    return (np.float64(bits) + 0.5) * (1.0 / 9007199254740992.0), a, b, d, e


@_inner
def _random_site(n, a, b, d, e):  # type: ignore[no-untyped-def]
    """A site below n from two random numbers, uniform to about 2^-32."""
    high, a, b, d, e = _next(a, b, d, e)
    low, a, b, d, e = _next(a, b, d, e)
    carry = uint64(uint64(low) * uint64(n)) >> uint64(32)
    return np.int64(uint64(uint64(high) * uint64(n) + carry) >> uint64(32)), a, b, d, e


@_inner
def _fill(s0, s1, s2, s3, out):  # type: ignore[no-untyped-def]
    for c in range(len(out)):
        out[c], s0[c], s1[c], s2[c], s3[c] = _next(s0[c], s1[c], s2[c], s3[c])


# -- thresholds and sums --------------------------------------------------------------------------------------------


@_inner
def largest(counts):  # type: ignore[no-untyped-def]
    """The largest count, at least 1; the method ``max`` of arrays takes most of a second to compile."""
    most = 1
    for count in counts:
        if count > most:
            most = count
    return most


@_inner
def _shorten(threshold):  # type: ignore[no-untyped-def]
    """A threshold rounded to 24 bits: unbiased, 0 and 2^24 for the certain ones."""
    return uint32(uint32(threshold >> uint32(8)) + uint32(uint32(threshold >> uint32(7)) & uint32(1)))


@_inner
def _collect(sums, threshold):  # type: ignore[no-untyped-def]
    for c in range(len(sums)):
        sums[c] = uint32(sums[c] + _shorten(threshold[c]))


@_inner
def _count(sums, x, k):  # type: ignore[no-untyped-def]
    for c in range(len(sums)):
        sums[c] = uint32(sums[c] + (uint32(1 << 24) if x[c] <= k else uint32(0)))


@_outer
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


@_inner
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


@_inner
def _place(index, rung, size):  # type: ignore[no-untyped-def]
    for c in range(len(index)):
        index[c] = uint32(rung[c] * size)


@_inner
def _place_four(index, rung, size, x0, x1, x2, x3, s0, s1, s2, s3):  # type: ignore[no-untyped-def]
    for c in range(len(index)):
        near = uint32(uint32(x0[c] * s0) + uint32(x1[c] * s1))
        far = uint32(uint32(x2[c] * s2) + uint32(x3[c] * s3))
        index[c] = uint32(uint32(rung[c] * size) + uint32(near + far))


@_inner
def _add_state(index, x, stride):  # type: ignore[no-untyped-def]
    for c in range(len(index)):
        index[c] = uint32(index[c] + uint32(x[c] * stride))


@_inner
def _gather(out, index, table):  # type: ignore[no-untyped-def]
    for c in range(len(out)):
        out[c] = table[index[c]]


@_inner
def _compare(x, u, threshold):  # type: ignore[no-untyped-def]
    for c in range(len(x)):
        x[c] = u[c] >= threshold[c]


@_inner
def _compare_more(x, u, threshold):  # type: ignore[no-untyped-def]
    for c in range(len(x)):
        x[c] += uint8(u[c] >= threshold[c])


@_outer
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
            k, last = indptr[i], indptr[i + 1]
            if last - k >= 4:
                _place_four(
                    index, rung, sizes[i],
                    x[neighbors[k]], x[neighbors[k + 1]], x[neighbors[k + 2]], x[neighbors[k + 3]],
                    strides[k], strides[k + 1], strides[k + 2], strides[k + 3],
                )  # fmt: skip
                k += 4
            else:
                _place(index, rung, sizes[i])
            for j in range(k, last):
                _add_state(index, x[neighbors[j]], strides[j])
            for j in range(cuts[i]):
                _gather(threshold, index, table[starts[i] + j : starts[i + 1]])
                if j:
                    _compare_more(x[i], u, threshold)
                else:
                    _compare(x[i], u, threshold)
                if mode == 1:
                    _collect(sums[sum_starts[i] + j], threshold[top:])
            if mode == 2:
                for j in range(cuts[i]):
                    _count(sums[sum_starts[i] + j], x[i, top:], j)


# -- one configuration of binary sites with few neighbors -----------------------------------------------------------


@_outer
def four_sweeps(x, order, around, table, scan, chunks, first_chunk, last_chunk, streams, sums, num_sweeps, mode):  # type: ignore[no-untyped-def]
    """Sweeps of one configuration x (n + 1,) of binary sites, with at most four neighbors each, over some chunks.

    Chunk q is ``order[chunks[q]:chunks[q + 1]]`` and uses ``streams[:, q]``. ``around[p]`` holds the neighbors of
    ``order[p]``, padded in front with site n, which stays 0, and ``table[p]`` its 16 thresholds. ``scan`` is as for
    :func:`product_sweeps`.
    """
    n = len(order)
    place = np.empty(n * scan, np.int64)
    for p in range(n * scan):
        place[order[p]] = p
    for _ in range(num_sweeps):
        if scan == 1:
            a, b, d, e = streams[0, 0], streams[1, 0], streams[2, 0], streams[3, 0]
            for _ in range(n):
                i, a, b, d, e = _random_site(n, a, b, d, e)
                u, a, b, d, e = _next(a, b, d, e)
                p = place[i]
                index = (x[around[p, 0]] << 3) | (x[around[p, 1]] << 2) | (x[around[p, 2]] << 1) | x[around[p, 3]]
                x[i] = uint8(u >= table[p, index])
            streams[0, 0], streams[1, 0], streams[2, 0], streams[3, 0] = a, b, d, e
            if mode == 2:
                _count(sums, x[:n], 0)
            continue
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


@_outer
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
                i = np.int64(order[p])
                if scan == 1:
                    i, a, b, d, e = _random_site(n, a, b, d, e)
                u, a, b, d, e = _next(a, b, d, e)
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


# -- many configurations of binary sites with any number of neighbors -----------------------------------------------

_LOG2E, _MAGIC = 1.4426950408889634, 6755399441055744.0  # 1.5 * 2^52: adding it leaves the nearest integer behind
_LN2_HIGH, _LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10
_EXPONENT = 1023 << 52


@_fused
def _set_four(out, value, x, y, z, w, a, b, d, e):  # type: ignore[no-untyped-def]
    for c in range(len(out)):
        out[c] = (((value + a * x[c]) + b * y[c]) + d * z[c]) + e * w[c]


@_fused
def _add_four(out, x, y, z, w, a, b, d, e):  # type: ignore[no-untyped-def]
    """Four terms at once, so that the sums stay in registers; eight take longer than twice four."""
    for c in range(len(out)):
        out[c] = (((out[c] + a * x[c]) + b * y[c]) + d * z[c]) + e * w[c]


@_inner
def _add_scaled(out, part, rung, weights):  # type: ignore[no-untyped-def]
    for c in range(len(out)):
        out[c] += weights[rung[c]] * part[c]


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
        value = np.float64(min(_UNIT / (1.0 + p * power), _MOST) + _INTEGER)
        x[c] = 1.0 if np.int64(np.int64(u[c]) + _INTEGER_BITS).view(np.float64) >= value else 0.0
        threshold[c] = uint32(value.view(np.int64) & 0xFFFFFFFF)


@_outer
def field_sweeps(  # type: ignore[no-untyped-def]
    x, rung, coefficients, order, indptr, neighbors, weights, offsets, joined, streams, sums, num_sweeps, mode
):
    """Sweeps of lanes side by side for binary variables of any degree.

    ``x`` (n, W) holds 0.0 and 1.0. The log-odds of variable i under theta d are ``offsets[d, i]`` plus, if
    ``joined[d]``, the sum of ``weights[d]`` times x over its neighbors, of which every variable has a positive multiple
    of four (some of weight 0); ``coefficients[d, rung]`` mixes the thetas.
    """
    width = x.shape[1]
    top = width - sums.shape[1]
    field, part = np.empty(width), np.empty(width)
    u, threshold = np.empty(width, np.uint32), np.empty(width, np.uint32)
    s0, s1, s2, s3 = streams[0], streams[1], streams[2], streams[3]
    for _ in range(num_sweeps):
        for i in order:
            _fill(s0, s1, s2, s3, u)
            field[:] = 0.0
            for theta in range(len(joined)):
                w = weights[theta]
                if joined[theta]:
                    for k in range(indptr[i], indptr[i + 1], 4):
                        y, z, v, t = x[neighbors[k]], x[neighbors[k + 1]], x[neighbors[k + 2]], x[neighbors[k + 3]]
                        if k == indptr[i]:
                            _set_four(part, offsets[theta, i], y, z, v, t, w[k], w[k + 1], w[k + 2], w[k + 3])
                        else:
                            _add_four(part, y, z, v, t, w[k], w[k + 1], w[k + 2], w[k + 3])
                else:
                    part[:] = offsets[theta, i]
                if coefficients.size > 1:
                    _add_scaled(field, part, rung, coefficients[theta])
            _draw_by_odds(x[i], part if coefficients.size == 1 else field, u, threshold)
            if mode == 1:
                _collect(sums[i], threshold[top:])
            elif mode == 2:
                _count(sums[i], x[i, top:], 0)


# -- any model: products of exponentiated weights -------------------------------------------------------------------


@_outer
def fill_rows(entries, begins, owner, theirs, states, starts, own_steps, other_steps, tables, values):  # type: ignore[no-untyped-def]
    """Exponentiated rows of tables, ``values[begins[k] + t * L + s]`` for states s of the owner and t of its neighbor.

    Each row has a largest entry of 1, unless the state of the neighbor forbids all of the owner's.
    """
    for k in entries:
        count = states[owner[k]]
        for t in range(theirs[k]):
            top = -np.inf
            for s in range(count):
                top = max(top, tables[starts[k] + s * own_steps[k] + t * other_steps[k]])
            for s in range(count):
                value = tables[starts[k] + s * own_steps[k] + t * other_steps[k]]
                values[begins[k] + t * count + s] = np.exp(value - top) if value > -np.inf else 0.0


@_inner
def next_row(at, digits, first, last, states, members, steps):  # type: ignore[no-untyped-def]
    """Where the next states of the members of a factor, the last fastest, lead in its table; -1 after the last."""
    for m in range(last - 1, first - 1, -1):
        digits[m - first] += 1
        at += steps[m]
        if digits[m - first] < states[members[m]]:
            return at
        at -= digits[m - first] * steps[m]
        digits[m - first] = 0
    return -1


@_outer
def fill_factor_rows(states, incident, tables, values):  # type: ignore[no-untyped-def]
    """The same for factors over more variables: of every variable, every factor around it, and its other members."""
    around, _, starts, own_steps, member_starts, members, steps, _ = incident
    digits = np.zeros(len(states), np.int64)
    place = 0
    for i in range(len(states)):
        count = states[i]
        for f in range(around[i], around[i + 1]):
            first, last = member_starts[f], member_starts[f + 1]
            digits[: last - first] = 0
            at = starts[f]
            while at >= 0:
                top = -np.inf
                for s in range(count):
                    top = max(top, tables[at + s * own_steps[f]])
                for s in range(count):
                    value = tables[at + s * own_steps[f]]
                    values[place + s] = np.exp(value - top) if value > -np.inf else 0.0
                place += count
                at = next_row(at, digits, first, last, states, members, steps)


@_inner
def _row_of(x, f, begins, member_starts, members, steps):  # type: ignore[no-untyped-def]
    """Where the states of the other members of a factor, two at least, lead in its table."""
    m = member_starts[f]
    at = begins[f] + x[members[m]] * steps[m] + x[members[m + 1]] * steps[m + 1]
    for k in range(m + 2, member_starts[f + 1]):
        at += x[members[k]] * steps[k]
    return at


@_inner
def log_weights(i, x, logs, k, out):  # type: ignore[no-untyped-def]
    """Cumulative conditional weights of site i under set k, scaled to a largest weight of one; their total."""
    indptr, neighbors, starts, own_steps, other_steps, unary_at, states, unary, tables, coefficients, incident = logs
    around, _, factors_at, factor_steps, member_starts, members, member_steps, _ = incident
    count = states[i]
    for s in range(count):
        out[s] = 0.0
    for d in range(len(unary)):
        weight = coefficients[k, d]
        for s in range(count):
            out[s] += weight * unary[d, unary_at[i] + s]
        for j in range(indptr[i], indptr[i + 1]):
            base = starts[j] + x[neighbors[j]] * other_steps[j]
            for s in range(count):
                out[s] += weight * tables[d, base + s * own_steps[j]]
        for f in range(around[i], around[i + 1]):
            base = _row_of(x, f, factors_at, member_starts, members, member_steps)
            for s in range(count):
                out[s] += weight * tables[d, base + s * factor_steps[f]]
    return _accumulate(out[:count])


@_inner
def _set_weights(out, values):  # type: ignore[no-untyped-def]
    for j in range(len(out)):
        out[j] = values[j]


@_inner
def _some_lost(total):  # type: ignore[no-untyped-def]
    """Whether some product of weights may have lost something."""
    lost = 0
    for j in range(len(total)):
        lost += not (_LEAST_TOTAL < total[j] < _MOST_TOTAL)
    return lost > 0


@_inner
def _add_weights(total, weights):  # type: ignore[no-untyped-def]
    """Weights become cumulative."""
    for j in range(len(total)):
        total[j] += weights[j]
        weights[j] = total[j]


@_inner
def _invert(total):  # type: ignore[no-untyped-def]
    for j in range(len(total)):
        total[j] = _UNIT / total[j]


@_inner
def _set_thresholds(threshold, weights, scale):  # type: ignore[no-untyped-def]
    for j in range(len(threshold)):
        value = np.float64(min(weights[j] * scale[j], _MOST) + _INTEGER)
        threshold[j] = uint32(value.view(np.int64) & 0xFFFFFFFF)


@_inner
def _draw_block(width, count, weights, total, u, threshold, state, sums, mode):  # type: ignore[no-untyped-def]
    """States of the sites of a block from cumulative weights (count rows of width); total is overwritten."""
    _invert(total)
    state[:] = 0
    for s in range(count - 1):
        rows = slice(s * width, (s + 1) * width)
        _set_thresholds(threshold, weights[rows], total)
        _compare_more(state, u, threshold)
        if mode == 1:
            _collect(sums[rows], threshold)
    if mode == 2:
        for s in range(count - 1):
            _count(sums[s * width : (s + 1) * width], state, s)


@_outer
def product_sweeps(  # type: ignore[no-untyped-def]
    x, rung, order, blocks, states, indptr, neighbors, potts, begins, factors, values, unary, exponentiated, logs, scan,
    chunks, first_chunk, last_chunk, streams, sums, num_sweeps, mode,
):  # fmt: skip
    """Sweeps of configurations x (C, n + 1) of any model, each at its set ``rung`` (C,), over some chunks of the order.

    Sites of a block have one color and as many states: their weights are multiplied side by side, and their
    thresholds found in loops that vectorise. Where a product of weights could have lost something, and for all sites
    if weights are not ``exponentiated``, logarithms are added up instead.

    ``neighbors`` are by place in the order, from ``indptr`` on. Neighbor m in state t multiplies, if ``potts[m]``, the
    weight of state t by ``values[k, begins[m]]``, else those of all states s by ``values[k, begins[m] + t * L + s]``.
    ``factors`` over more variables do so as well: row starts by place, where their values begin, and the other members
    of each with the steps that their states make.
    ``unary`` (K, entries) and ``sums`` (C', total cuts), of the last C' configurations, are by blocks, states and
    sites; ``chunks`` are numbers of blocks, with ``streams`` (C, 4, chunks). With ``scan`` 1 the site of every update
    is drawn at random (two random numbers), and only mode 2 is collected.
    """
    n, most = len(order), largest(states)
    weights, work = np.empty(most * BLOCK_SITES), np.empty(most)
    totals, u_block = np.empty(BLOCK_SITES), np.empty(BLOCK_SITES, np.uint32)
    threshold_block, state_block = np.empty(BLOCK_SITES, np.uint32), np.empty(BLOCK_SITES, np.uint32)
    skipped = x.shape[0] - sums.shape[0]
    none = np.empty(0, np.uint32)
    around, rows_at, member_starts, members, member_steps = factors
    unary_at, sums_at = np.empty(len(blocks), np.int64), np.empty(len(blocks), np.int64)
    unary_at[0], sums_at[0] = 0, 0
    place, firsts, steps = np.empty(n * scan, np.int64), np.empty(n * scan, np.int64), np.empty(n * scan, np.int64)
    for q in range(len(blocks) - 1):
        count, width = states[order[blocks[q]]], blocks[q + 1] - blocks[q]
        unary_at[q + 1], sums_at[q + 1] = unary_at[q] + count * width, sums_at[q] + (count - 1) * width
        if scan == 1:
            for j in range(width):
                i = order[blocks[q] + j]
                place[i], firsts[i], steps[i] = blocks[q] + j, unary_at[q] + j, width
    for _ in range(num_sweeps):
        if scan == 1:
            for c in range(x.shape[0]):
                _random_sweep(
                    x[c], rung[c], order, place, firsts, steps, states, indptr, neighbors, potts, begins, factors,
                    values, unary, exponentiated, logs, streams[c], work,
                )  # fmt: skip
        for chunk in range(first_chunk, last_chunk):
            for q in range(chunks[chunk], chunks[chunk + 1]):
                first, width = blocks[q], blocks[q + 1] - blocks[q]
                count = states[order[first]]
                u, threshold, state = u_block[:width], threshold_block[:width], state_block[:width]
                for c in range(x.shape[0]):
                    row, own = x[c], none
                    if mode > 0 and c >= skipped:
                        own = sums[c - skipped, sums_at[q] : sums_at[q + 1]]
                    if scan == 1:
                        if len(own):
                            for j in range(width):
                                state[j] = row[order[first + j]]
                            for s in range(count - 1):
                                _count(own[s * width : (s + 1) * width], state, s)
                        continue
                    a, b, d, e = streams[c, 0, chunk], streams[c, 1, chunk], streams[c, 2, chunk], streams[c, 3, chunk]
                    for j in range(width):
                        u[j], a, b, d, e = _next(a, b, d, e)
                    streams[c, 0, chunk], streams[c, 1, chunk], streams[c, 2, chunk], streams[c, 3, chunk] = a, b, d, e
                    k, total = rung[c], totals[:width]
                    total[:] = 0.0  # as if everything was lost
                    if exponentiated:
                        _set_weights(weights[: count * width], unary[k, unary_at[q] : unary_at[q + 1]])
                        for j in range(width):
                            for m in range(indptr[first + j], indptr[first + j + 1]):
                                t = row[neighbors[m]]
                                if potts[m]:
                                    weights[t * width + j] *= values[k, begins[m]]
                                else:
                                    at = begins[m] + t * count
                                    for s in range(count):
                                        weights[s * width + j] *= values[k, at + s]
                        if len(rows_at):
                            for j in range(width):
                                for f in range(around[first + j], around[first + j + 1]):
                                    at = _row_of(row, f, rows_at, member_starts, members, member_steps)
                                    for s in range(count):
                                        weights[s * width + j] *= values[k, at + s]
                        for s in range(count):
                            _add_weights(total, weights[s * width : (s + 1) * width])
                    if _some_lost(total):
                        for j in range(width):
                            if not (_LEAST_TOTAL < total[j] < _MOST_TOTAL):
                                total[j] = log_weights(order[first + j], row, logs, k, work)
                                for s in range(count):
                                    weights[s * width + j] = work[s]
                    _draw_block(width, count, weights, total, u, threshold, state, own, mode if len(own) else 0)
                    for j in range(width):
                        row[order[first + j]] = state[j]


@_inner
def _random_sweep(  # type: ignore[no-untyped-def]
    x, k, order, place, firsts, steps, states, indptr, neighbors, potts, begins, factors, values, unary, exponentiated,
    logs, streams, work,
):  # fmt: skip
    """Updates of as many sites as there are, drawn at random; the unary of state s is at ``firsts + s * steps``."""
    n = len(order)
    around, rows_at, member_starts, members, member_steps = factors
    a, b, d, e = streams[0, 0], streams[1, 0], streams[2, 0], streams[3, 0]
    for _ in range(n):
        i, a, b, d, e = _random_site(n, a, b, d, e)
        u, a, b, d, e = _next(a, b, d, e)
        total, count = 0.0, states[i]
        if exponentiated:
            for s in range(count):
                work[s] = unary[k, firsts[i] + s * steps[i]]
            for m in range(indptr[place[i]], indptr[place[i] + 1]):
                t = x[neighbors[m]]
                if potts[m]:
                    work[t] *= values[k, begins[m]]
                else:
                    at = begins[m] + t * count
                    for s in range(count):
                        work[s] *= values[k, at + s]
            for f in range(around[place[i]], around[place[i] + 1]):
                at = _row_of(x, f, rows_at, member_starts, members, member_steps)
                for s in range(count):
                    work[s] *= values[k, at + s]
            for s in range(count):
                total += work[s]
                work[s] = total
        if not (_LEAST_TOTAL < total < _MOST_TOTAL):
            total = log_weights(i, x, logs, k, work)
        scale, state = _UNIT / total, 0
        for s in range(count - 1):
            state += u >= uint32(min(np.rint(work[s] * scale), _MOST))
        x[i] = state
    streams[0, 0], streams[1, 0], streams[2, 0], streams[3, 0] = a, b, d, e
