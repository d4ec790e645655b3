"""Compiled Gibbs sweeps that read tables of thresholds, or log-odds of binary variables.

====================  ====================================================  ==========================================
kernel                conditional distributions                             configurations
====================  ====================================================  ==========================================
``table_sweeps``      thresholds of all patterns of neighbors               many side by side, ``x[i, lane]``
``single_sweeps``     thresholds of all patterns of neighbors               one, ``x[i]``
``four_sweeps``       the same, binary sites with at most four neighbors    one, ``x[i]``
``field_sweeps``      log-odds linear in the neighbors' states, binary      many side by side, ``x[i, lane]`` as floats
``layers_sweeps``     log-odds of two layers of bits                        many side by side, ``x[i, lane]``
``product_sweeps``    products of exponentiated weights                     any number, ``x[c, i]``
``pattern_sweeps``    sums of rows of patterns that edges share             any number, ``x[c, i]``
====================  ====================================================  ==========================================

The last three have files of their own: ``layer_kernels.py``, ``product_kernels.py``, ``pattern_kernels.py``. All read
the arrays of :mod:`fastmix.chains.layout`, and visit the sites in the same order with one stream of random numbers per
configuration (or per chunk of a large one), so that they give the same configurations, up to the rounding of
probabilities.

Sums are 32-bit numbers that must be emptied every 255 sweeps. ``mode`` is 0 to collect nothing, 1 to add the thresholds
of every update, and 2 to add 2^24 for every cut that the state at the end of the sweep is at or below. (A variable with
L states has L - 1 cuts, numbered like its thresholds.) Division follows IEEE rules, because a check for zero would keep
loops from being vectorized.
"""

from __future__ import annotations

import numpy as np
from numba import uint8, uint32

from fastmix._jit import fused, inner, outer
from fastmix.chains.random_kernels import fill_numbers, next_number, random_site
from fastmix.chains.threshold_kernels import add_counts, add_thresholds, draw_by_odds, raise_states, round_threshold

__all__ = ["field_sweeps", "four_sweeps", "single_sweeps", "table_sweeps"]


# -- many configurations, thresholds of all patterns ----------------------------------------------------------------


@inner
def _begin_index(index, rung, size):
    """Point the index of every lane at the table of its parameter set."""
    for c in range(len(index)):
        index[c] = uint32(rung[c] * size)


@inner
def _add_state(index, x, stride):
    """Move the index of every lane on by the state of a neighbor."""
    for c in range(len(index)):
        index[c] = uint32(index[c] + uint32(x[c] * stride))


@inner
def _gather(out, index, table):
    """Look up the entry of every lane."""
    for c in range(len(out)):
        out[c] = table[index[c]]


@outer
def table_sweeps(
    x, rung, order, indptr, neighbors, strides, cuts, sizes, starts, sum_starts, table, streams, sums, num_sweeps, mode
):
    """Sweeps of lanes x (n, W) side by side, each with the conditionals of its parameter set ``rung`` (W,).

    ``neighbors`` of site i, from ``indptr[i]`` on, make ``strides`` in its table, which begins at ``starts[i]`` and
    holds thresholds by set (``sizes[i]`` entries each), pattern of the neighbors, and cut (``cuts[i]``, states minus
    one). Sums (total cuts, C) are those of the last C lanes, from row ``sum_starts[i]`` on.
    """
    width = x.shape[1]
    top = width - sums.shape[1]
    u = np.empty(width, np.uint32)
    index = np.empty(width, np.uint32)
    threshold = np.empty(width, np.uint32)
    s0 = streams[0]
    s1 = streams[1]
    s2 = streams[2]
    s3 = streams[3]
    for _ in range(num_sweeps):
        for i in order:
            fill_numbers(s0, s1, s2, s3, u)
            _begin_index(index, rung, sizes[i])
            for k in range(indptr[i], indptr[i + 1]):
                _add_state(index, x[neighbors[k]], strides[k])

            # The state is the number of cuts whose threshold the random number reaches.
            x[i] = 0
            for j in range(cuts[i]):
                _gather(threshold, index, table[starts[i] + j : starts[i + 1]])
                raise_states(x[i], u, threshold)
                if mode == 1:
                    add_thresholds(sums[sum_starts[i] + j], threshold[top:])
            if mode == 2:
                for j in range(cuts[i]):
                    add_counts(sums[sum_starts[i] + j], x[i, top:], j)


# -- one configuration ------------------------------------------------------------------------------------------------


@outer
def four_sweeps(x, order, around, table, scan, chunks, first_chunk, last_chunk, streams, sums, num_sweeps, mode):
    """Sweeps of one configuration x (n + 1,) of binary sites, with at most four neighbors each, over some chunks.

    Chunk q is ``order[chunks[q]:chunks[q + 1]]`` and uses ``streams[:, q]``. ``around[p]`` holds the neighbors of
    ``order[p]``, padded in front with site n, which stays 0, and ``table[p]`` its 16 thresholds. With ``scan`` 1 the
    site of every update is drawn at random, and only mode 2 is collected.
    """
    n = len(order)
    for _ in range(num_sweeps):
        for q in range(first_chunk, last_chunk):
            s0 = streams[0, q]
            s1 = streams[1, q]
            s2 = streams[2, q]
            s3 = streams[3, q]
            for p in range(chunks[q], chunks[q + 1]):
                if scan == 1:
                    p, s0, s1, s2, s3 = random_site(n, s0, s1, s2, s3)
                u, s0, s1, s2, s3 = next_number(s0, s1, s2, s3)
                pattern = (x[around[p, 0]] << 3) | (x[around[p, 1]] << 2) | (x[around[p, 2]] << 1) | x[around[p, 3]]
                threshold = table[p, pattern]
                state = uint8(u >= threshold)
                x[order[p]] = state
                if mode == 1:
                    sums[order[p]] += round_threshold(threshold)
                elif mode == 2 and scan == 0:
                    sums[order[p]] += uint32(uint32(1 - state) << uint32(24))
            streams[0, q] = s0
            streams[1, q] = s1
            streams[2, q] = s2
            streams[3, q] = s3
        if mode == 2 and scan == 1:
            add_counts(sums, x[:n], 0)


@outer
def single_sweeps(
    x,
    order,
    indptr,
    neighbors,
    strides,
    cuts,
    _sizes,
    starts,
    sum_starts,
    table,
    scan,
    chunks,
    first_chunk,
    last_chunk,
    streams,
    sums,
    num_sweeps,
    mode,
):
    """Sweeps of one configuration x (n + 1,) of any states and any number of neighbors, over some chunks.

    The tables are those of :func:`table_sweeps` for one parameter set, chunks and ``scan`` those of
    :func:`four_sweeps`. Sums (total cuts,) are from entry ``sum_starts[i]`` on.
    """
    n = len(order)
    for _ in range(num_sweeps):
        for q in range(first_chunk, last_chunk):
            s0 = streams[0, q]
            s1 = streams[1, q]
            s2 = streams[2, q]
            s3 = streams[3, q]
            for p in range(chunks[q], chunks[q + 1]):
                if scan == 1:
                    p, s0, s1, s2, s3 = random_site(n, s0, s1, s2, s3)
                u, s0, s1, s2, s3 = next_number(s0, s1, s2, s3)
                i = np.int64(order[p])
                at = starts[i]
                for k in range(indptr[i], indptr[i + 1]):
                    at += np.int64(x[neighbors[k]]) * strides[k]
                state = 0
                for j in range(cuts[i]):
                    threshold = table[at + j]
                    state += u >= threshold
                    if mode == 1:
                        sums[sum_starts[i] + j] += round_threshold(threshold)
                x[i] = state
            streams[0, q] = s0
            streams[1, q] = s1
            streams[2, q] = s2
            streams[3, q] = s3
        if mode == 2:
            for i in order[chunks[first_chunk] : chunks[last_chunk]]:
                for j in range(x[i], cuts[i]):
                    sums[sum_starts[i] + j] += uint32(1 << 24)


# -- many configurations of binary sites, log-odds --------------------------------------------------------------------


@fused
def _add_four(out, x, y, z, w, a, b, d, e):
    """Add four scaled terms at once, so that the sums stay in registers; eight take longer than twice four."""
    for c in range(len(out)):
        out[c] = (((out[c] + a * x[c]) + b * y[c]) + d * z[c]) + e * w[c]


@inner
def _add_scaled(out, part, rung, weights):
    """Add a part to the sum of every lane, with the weight that its parameter set gives it."""
    for c in range(len(out)):
        out[c] += weights[rung[c]] * part[c]


@outer
def field_sweeps(
    x, rung, coefficients, order, indptr, neighbors, weights, offsets, joined, streams, sums, num_sweeps, mode
):
    """Sweeps of lanes side by side for binary variables of any degree.

    ``x`` (n, W) holds 0.0 and 1.0. The log-odds of variable ``i = order[p]`` under theta d are ``offsets[d, i]`` plus,
    if ``joined[d]``, the sum of ``weights[d]`` times x over its neighbors, from ``indptr[p]`` on, a positive multiple
    of four (some of weight 0); ``coefficients[d, rung]`` mixes the thetas.
    """
    width = x.shape[1]
    top = width - sums.shape[1]
    field = np.empty(width)
    part = np.empty(width)
    u = np.empty(width, np.uint32)
    threshold = np.empty(width, np.uint32)
    s0 = streams[0]
    s1 = streams[1]
    s2 = streams[2]
    s3 = streams[3]
    for _ in range(num_sweeps):
        for p, i in enumerate(order):
            fill_numbers(s0, s1, s2, s3, u)
            field[:] = 0.0
            for theta in range(len(joined)):
                w = weights[theta]
                part[:] = offsets[theta, i]
                if joined[theta]:
                    for k in range(indptr[p], indptr[p + 1], 4):
                        first = x[neighbors[k]]
                        second = x[neighbors[k + 1]]
                        third = x[neighbors[k + 2]]
                        fourth = x[neighbors[k + 3]]
                        _add_four(part, first, second, third, fourth, w[k], w[k + 1], w[k + 2], w[k + 3])
                if coefficients.size > 1:
                    _add_scaled(field, part, rung, coefficients[theta])
            draw_by_odds(x[i], part if coefficients.size == 1 else field, u, threshold)
            if mode == 1:
                add_thresholds(sums[i], threshold[top:])
            elif mode == 2:
                add_counts(sums[i], x[i, top:], 0)
