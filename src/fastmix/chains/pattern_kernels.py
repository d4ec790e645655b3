"""Compiled Gibbs sweeps of models whose edges share tables: sums of rows of patterns, each times a weight.

The logarithms of the conditional weights of a site are the unary and, for every neighbor, the row of the pattern that
the neighbor's state leads to, times the weight of the edge. The patterns stay in the cache, so that an update reads
little more than the unary. Rows have the states of the site side by side, and all loops over states vectorize. Loops
take whole arrays and places in them: slices are counted references, which would take half of the time. Places are
unsigned, so that no check for negative ones keeps loops from being vectorized.
"""

from __future__ import annotations

import numpy as np
from numba import uint32

from fastmix._jit import fused, inner, outer
from fastmix.chains.random_kernels import next_number
from fastmix.chains.threshold_kernels import CERTAIN, UNIT, WHOLE, exponential, largest, round_threshold

__all__ = ["pattern_sweeps"]


@fused
def _add_row(logits, width, rows, at, weight):
    """Add a row of a pattern, times a weight."""
    for s in range(width):
        logits[s] += weight * rows[at + np.uint64(s)]


@fused
def _add_two_rows(logits, width, rows, at, weight, next_weight):
    """Add a row of a pattern and that of the following pattern, which is next to it, each times a weight."""
    after = at + np.uint64(width)
    for s in range(width):
        logits[s] += weight * rows[at + np.uint64(s)] + next_weight * rows[after + np.uint64(s)]


@inner
def _begin(logits, width, unary, k, at, count):
    """Fill in the unary of a site under set k, and -inf beyond its end."""
    for s in range(count):
        logits[s] = unary[k, np.uint64(at) + np.uint64(s)]
    for s in range(count, width):
        logits[s] = -np.inf


@inner
def _top(logits, width):
    """The largest entry; four at a time, because one comparison would wait for the one before it."""
    a = logits[0]
    b = logits[1]
    c = logits[2]
    d = logits[3]
    for s in range(4, width, 4):
        a = logits[s] if logits[s] > a else a
        b = logits[s + 1] if logits[s + 1] > b else b
        c = logits[s + 2] if logits[s + 2] > c else c
        d = logits[s + 3] if logits[s + 3] > d else d
    a = a if a > b else b
    c = c if c > d else d
    return a if a > c else c


@fused
def _exponentiate(values, width, top):
    """Replace logarithms by weights, the largest 1: those of -inf and below -700 are too small to be drawn."""
    for s in range(width):
        values[s] = exponential(max(values[s] - top, -700.0))


@inner
def _cumulate(values, width):
    """The total; values become cumulative, four at a time, because one sum would wait for the one before it."""
    total = 0.0
    for s in range(0, width, 4):
        two = values[s] + values[s + 1]
        three = two + values[s + 2]
        four = two + (values[s + 2] + values[s + 3])
        values[s] += total
        values[s + 1] = total + two
        values[s + 2] = total + three
        total += four
        values[s + 3] = total
    return total


@inner
def _set_thresholds(threshold, cuts, weights, scale):
    """Fill in thresholds from cumulative weights."""
    for s in range(cuts):
        value = np.float64(min(weights[s] * scale, CERTAIN) + WHOLE)
        threshold[s] = uint32(value.view(np.int64) & 0xFFFFFFFF)


@inner
def _count_reached(threshold, cuts, u):
    """The number of thresholds that a random number reaches: the state."""
    state = uint32(0)
    for s in range(cuts):
        state += uint32(u >= threshold[s])
    return state


@inner
def _collect(sums, c, first, threshold, cuts, state, mode):
    """Add a sweep to the sums of a site: its thresholds, or for mode 2 a unit at and after its state."""
    if mode == 1:
        for s in range(cuts):
            place = np.uint64(first) + np.uint64(s)
            sums[c, place] = uint32(sums[c, place] + round_threshold(threshold[s]))
    else:
        for s in range(cuts):
            place = np.uint64(first) + np.uint64(s)
            sums[c, place] = uint32(sums[c, place] + (uint32(1 << 24) if state <= s else uint32(0)))


@outer
def pattern_sweeps(
    x,
    rung,
    order,
    states,
    widths,
    indptr,
    neighbors,
    rows_at,
    row_steps,
    weights,
    next_weights,
    rows,
    unary_at,
    unary,
    sum_starts,
    chunks,
    first_chunk,
    last_chunk,
    streams,
    sums,
    num_sweeps,
    mode,
):
    """Sweeps of configurations x (C, n + 1) of a model that shares tables, each at its set ``rung`` (C,).

    ``neighbors`` are by place in the order, from ``indptr`` on. Neighbor m in state t adds to the logits of a site the
    row from ``rows[rows_at[m] + t * row_steps[m]]`` on, times ``weights[k, m]`` under set k; and, if its entry of
    ``next_weights`` (which may be empty) is not 0, that of the following pattern, which is the row after it. Rows of a
    site are filled up with zeros to its entry of ``widths``, a multiple of four, so that loops of vectors have no rest.
    ``unary`` (K, entries) and ``sums`` (C', total cuts), of the last C' configurations, are by site, from ``unary_at``
    and ``sum_starts`` on; ``chunks`` are places in the order, with ``streams`` (C, 4, chunks).
    """
    logits = np.empty(largest(widths))
    threshold = np.empty(largest(states), np.uint32)
    skipped = x.shape[0] - sums.shape[0]
    for _ in range(num_sweeps):
        for chunk in range(first_chunk, last_chunk):
            for c in range(x.shape[0]):
                k = rung[c]
                s0 = streams[c, 0, chunk]
                s1 = streams[c, 1, chunk]
                s2 = streams[c, 2, chunk]
                s3 = streams[c, 3, chunk]
                for p in range(chunks[chunk], chunks[chunk + 1]):
                    u, s0, s1, s2, s3 = next_number(s0, s1, s2, s3)
                    i = np.int64(order[p])
                    cuts = states[i] - 1
                    width = widths[i]
                    _begin(logits, width, unary, k, unary_at[i], states[i])
                    for m in range(indptr[p], indptr[p + 1]):
                        at = np.uint64(rows_at[m]) + np.uint64(x[c, neighbors[m]]) * np.uint64(row_steps[m])
                        weight = weights[k, m]
                        if len(next_weights) and next_weights[k, m] != 0.0:
                            _add_two_rows(logits, width, rows, at, weight, next_weights[k, m])
                        elif weight != 0.0:
                            _add_row(logits, width, rows, at, weight)
                    _exponentiate(logits, width, _top(logits, width))
                    total = _cumulate(logits, width)
                    _set_thresholds(threshold, cuts, logits, UNIT / total)
                    state = _count_reached(threshold, cuts, u)
                    x[c, i] = state
                    if mode > 0 and c >= skipped:
                        _collect(sums, c - skipped, sum_starts[i], threshold, cuts, state, mode)
                streams[c, 0, chunk] = s0
                streams[c, 1, chunk] = s1
                streams[c, 2, chunk] = s2
                streams[c, 3, chunk] = s3
