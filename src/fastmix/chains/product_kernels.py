"""Compiled Gibbs sweeps of any model: products of exponentiated weights, or sums of logarithms where these are lost.

A product of many weights may leave the range of floating-point numbers. A total outside of ``LEAST_TOTAL`` to
``MOST_TOTAL`` tells that this may have happened; the conditional distribution is then computed again by logarithms.
"""

from __future__ import annotations

import numpy as np
from numba import uint32

from fastmix._jit import inner, outer
from fastmix.chains.random_kernels import next_number, random_site
from fastmix.chains.threshold_kernels import (
    CERTAIN,
    UNIT,
    WHOLE,
    accumulate,
    add_counts,
    add_thresholds,
    copy_values,
    largest,
    raise_states,
)

__all__ = ["fill_factor_rows", "fill_rows", "log_weights", "next_row", "product_sweeps", "random_sweeps"]

#: Least and largest total weight between which no product has lost anything that matters: the range of double
#: precision, 2e-308 to 2e308, with room for weights that are small beside the total. Not measured: it follows from the
#: number format.
LEAST_TOTAL = 1e-280
MOST_TOTAL = 1e300


@inner
def _fill_row(tables, at, step, values, place, count):
    """Fill in the exponentiated entries of a row of a table, scaled to a largest entry of 1."""
    top = -np.inf
    for s in range(count):
        top = max(top, tables[at + s * step])
    for s in range(count):
        value = tables[at + s * step]
        values[place + s] = np.exp(value - top) if value > -np.inf else 0.0


@outer
def fill_rows(entries, begins, owner, theirs, states, starts, own_steps, other_steps, tables, values):
    """Fill in exponentiated rows of the tables of edges.

    ``values[begins[k] + t * L + s]`` is for state s of the owner and state t of its neighbor; the owner has L states.
    Each row has a largest entry of 1, unless the state of the neighbor forbids all of the owner's.
    """
    for k in entries:
        count = states[owner[k]]
        for t in range(theirs[k]):
            _fill_row(tables, starts[k] + t * other_steps[k], own_steps[k], values, begins[k] + t * count, count)


@inner
def next_row(at, digits, first, last, states, members, steps):
    """The place in a factor's table of the next states of its members, the last fastest; -1 after the last."""
    for m in range(last - 1, first - 1, -1):
        digits[m - first] += 1
        at += steps[m]
        if digits[m - first] < states[members[m]]:
            return at
        at -= digits[m - first] * steps[m]
        digits[m - first] = 0
    return -1


@outer
def fill_factor_rows(states, incident, tables, values):
    """Fill in exponentiated rows of larger factors: a row for all states of the owner, by states of the other members.

    Rows are ordered by owner, by factor around it, and by the states of the other members, the last fastest.
    """
    around, _, starts, own_steps, member_starts, members, steps, _ = incident
    digits = np.zeros(len(states), np.int64)
    place = 0
    for i in range(len(states)):
        count = states[i]
        for f in range(around[i], around[i + 1]):
            first = member_starts[f]
            last = member_starts[f + 1]
            digits[: last - first] = 0
            at = starts[f]
            while at >= 0:
                _fill_row(tables, at, own_steps[f], values, place, count)
                place += count
                at = next_row(at, digits, first, last, states, members, steps)


@inner
def _row_of(x, f, begins, member_starts, members, steps):
    """The place in a factor's table that the states of the other members, at least two, lead to."""
    m = member_starts[f]
    at = begins[f] + x[members[m]] * steps[m] + x[members[m + 1]] * steps[m + 1]
    for k in range(m + 2, member_starts[f + 1]):
        at += x[members[k]] * steps[k]
    return at


@inner
def log_weights(i, x, logs, k, out):
    """The total of the conditional weights of site i under set k, and in ``out`` the cumulative weights.

    The weights come from sums of logarithms, scaled to a largest weight of 1; ``logs`` are the arrays of
    :meth:`fastmix.chains.layout.Layout.log_arrays`. Where tables are shared, ``tables`` are the patterns, and every
    direction of an edge has a weight; that of the following pattern, ``sizes`` places further on, may be 0.
    """
    indptr, neighbors, places, unary_at, states, unary, tables, coefficients, incident, shared = logs
    starts, own_steps, other_steps = places
    slot_weights, next_weights, sizes = shared
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
            if len(slot_weights) == 0:
                for s in range(count):
                    out[s] += weight * tables[d, base + s * own_steps[j]]
                continue
            if weight * slot_weights[d, j] != 0.0:
                for s in range(count):
                    out[s] += weight * slot_weights[d, j] * tables[d, base + s * own_steps[j]]
            if len(next_weights) and next_weights[d, j] != 0.0:
                for s in range(count):
                    out[s] += weight * next_weights[d, j] * tables[d, base + sizes[j] + s * own_steps[j]]
        for f in range(around[i], around[i + 1]):
            base = _row_of(x, f, factors_at, member_starts, members, member_steps)
            for s in range(count):
                out[s] += weight * tables[d, base + s * factor_steps[f]]
    return accumulate(out[:count])


@inner
def _some_lost(total):
    """Whether some product of weights may have lost something."""
    lost = 0
    for j in range(len(total)):
        lost += not (LEAST_TOTAL < total[j] < MOST_TOTAL)
    return lost > 0


@inner
def _add_weights(total, weights):
    """Add the weights of a state to the totals of the sites; the weights become cumulative."""
    for j in range(len(total)):
        total[j] += weights[j]
        weights[j] = total[j]


@inner
def _invert(total):
    """Replace every total by the factor that turns weights into thresholds."""
    for j in range(len(total)):
        total[j] = UNIT / total[j]


@inner
def _set_thresholds(threshold, weights, scale):
    """Fill in the thresholds of the sites of a block from cumulative weights of one state."""
    for j in range(len(threshold)):
        value = np.float64(min(weights[j] * scale[j], CERTAIN) + WHOLE)
        threshold[j] = uint32(value.view(np.int64) & 0xFFFFFFFF)


@inner
def _draw_block(width, count, weights, total, u, threshold, state, sums, mode):
    """Draw the states of the sites of a block from cumulative weights (count, width); ``total`` is overwritten."""
    _invert(total)
    state[:] = 0
    for s in range(count - 1):
        rows = slice(s * width, (s + 1) * width)
        _set_thresholds(threshold, weights[rows], total)
        raise_states(state, u, threshold)
        if mode == 1:
            add_thresholds(sums[rows], threshold)
    if mode == 2:
        for s in range(count - 1):
            add_counts(sums[s * width : (s + 1) * width], state, s)


@inner
def _block_starts(order, blocks, states):
    """First entries of every block in the unaries and in the sums."""
    unary_at = np.zeros(len(blocks), np.int64)
    sums_at = np.zeros(len(blocks), np.int64)
    for q in range(len(blocks) - 1):
        count = states[order[blocks[q]]]
        width = blocks[q + 1] - blocks[q]
        unary_at[q + 1] = unary_at[q] + count * width
        sums_at[q + 1] = sums_at[q] + (count - 1) * width
    return unary_at, sums_at


@inner
def _widest_block(blocks):
    """Sites of the largest block, at least 1."""
    result = 1
    for q in range(len(blocks) - 1):
        result = max(result, blocks[q + 1] - blocks[q])
    return result


@outer
def product_sweeps(
    x,
    rung,
    order,
    blocks,
    states,
    indptr,
    neighbors,
    potts,
    begins,
    factors,
    values,
    unary,
    exponentiated,
    logs,
    chunks,
    first_chunk,
    last_chunk,
    streams,
    sums,
    num_sweeps,
    mode,
):
    """Sweeps of configurations x (C, n + 1) of any model, each at its set ``rung`` (C,), over some chunks of the order.

    Sites of a block have one color and as many states: their weights are multiplied side by side, and their
    thresholds found in loops that vectorize. For every block and configuration:

    1. Draw a random number for every site.
    2. If weights are ``exponentiated``, multiply the unary weights by those of all neighbors and factors.
    3. Where a product could have lost something, and for all sites without exponentiated weights, add logarithms up.
    4. Draw the states from the cumulative weights, collect thresholds or counts, and put the states in place.

    ``neighbors`` are by place in the order, from ``indptr`` on. Neighbor m in state t multiplies, if ``potts[m]``, the
    weight of state t by ``values[k, begins[m]]``, else those of all states s by ``values[k, begins[m] + t * L + s]``.
    ``factors`` over more variables do so as well: row starts by place, where their values begin, and the other members
    of each with the steps that their states make.
    ``unary`` (K, entries) and ``sums`` (C', total cuts), of the last C' configurations, are by blocks, states and
    sites; ``chunks`` are numbers of blocks, with ``streams`` (C, 4, chunks).
    """
    widest = _widest_block(blocks)
    weights = np.empty(largest(states) * widest)
    site_weights = np.empty(largest(states))
    totals = np.empty(widest)
    u_block = np.empty(widest, np.uint32)
    threshold_block = np.empty(widest, np.uint32)
    state_block = np.empty(widest, np.uint32)
    skipped = x.shape[0] - sums.shape[0]
    none = np.empty(0, np.uint32)
    around, rows_at, member_starts, members, member_steps = factors
    unary_at, sums_at = _block_starts(order, blocks, states)
    for _ in range(num_sweeps):
        for chunk in range(first_chunk, last_chunk):
            for q in range(chunks[chunk], chunks[chunk + 1]):
                first = blocks[q]
                width = blocks[q + 1] - blocks[q]
                count = states[order[first]]
                u = u_block[:width]
                threshold = threshold_block[:width]
                state = state_block[:width]
                for c in range(x.shape[0]):
                    row = x[c]
                    own = none
                    if mode > 0 and c >= skipped:
                        own = sums[c - skipped, sums_at[q] : sums_at[q + 1]]

                    # 1. Random numbers.
                    s0 = streams[c, 0, chunk]
                    s1 = streams[c, 1, chunk]
                    s2 = streams[c, 2, chunk]
                    s3 = streams[c, 3, chunk]
                    for j in range(width):
                        u[j], s0, s1, s2, s3 = next_number(s0, s1, s2, s3)
                    streams[c, 0, chunk] = s0
                    streams[c, 1, chunk] = s1
                    streams[c, 2, chunk] = s2
                    streams[c, 3, chunk] = s3

                    # 2. Products of weights.
                    k = rung[c]
                    total = totals[:width]
                    total[:] = 0.0  # as if everything was lost
                    if exponentiated:
                        copy_values(weights[: count * width], unary[k, unary_at[q] : unary_at[q + 1]])
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

                    # 3. Sums of logarithms.
                    if _some_lost(total):
                        for j in range(width):
                            if not (LEAST_TOTAL < total[j] < MOST_TOTAL):
                                total[j] = log_weights(np.int64(order[first + j]), row, logs, np.int64(k), site_weights)
                                for s in range(count):
                                    weights[s * width + j] = site_weights[s]

                    # 4. States.
                    _draw_block(width, count, weights, total, u, threshold, state, own, mode if len(own) else 0)
                    for j in range(width):
                        row[order[first + j]] = state[j]


@outer
def random_sweeps(
    x,
    rung,
    order,
    blocks,
    states,
    indptr,
    neighbors,
    potts,
    begins,
    factors,
    values,
    unary,
    exponentiated,
    logs,
    streams,
    sums,
    num_sweeps,
    mode,
):
    """Sweeps of configurations of any model, at sites that are drawn at random, as many as there are in a sweep.

    The arguments are those of :func:`product_sweeps`; every site is a block, and only mode 2 is collected. A site
    takes two random numbers and its state a third. The steps of an update are those of :func:`product_sweeps`, too.
    """
    n = len(order)
    weights = np.empty(largest(states))
    skipped = x.shape[0] - sums.shape[0]
    around, rows_at, member_starts, members, member_steps = factors
    unary_at, sums_at = _block_starts(order, blocks, states)
    for _ in range(num_sweeps):
        for c in range(x.shape[0]):
            row = x[c]
            k = rung[c]
            s0 = streams[c, 0, 0]
            s1 = streams[c, 1, 0]
            s2 = streams[c, 2, 0]
            s3 = streams[c, 3, 0]
            for _ in range(n):
                # 1. Random numbers.
                p, s0, s1, s2, s3 = random_site(n, s0, s1, s2, s3)
                u, s0, s1, s2, s3 = next_number(s0, s1, s2, s3)

                # 2. Products of weights.
                i = order[p]
                total = 0.0
                count = states[i]
                if exponentiated:
                    for s in range(count):
                        weights[s] = unary[k, unary_at[p] + s]
                    for m in range(indptr[p], indptr[p + 1]):
                        t = row[neighbors[m]]
                        if potts[m]:
                            weights[t] *= values[k, begins[m]]
                        else:
                            at = begins[m] + t * count
                            for s in range(count):
                                weights[s] *= values[k, at + s]
                    for f in range(around[p], around[p + 1]):
                        at = _row_of(row, f, rows_at, member_starts, members, member_steps)
                        for s in range(count):
                            weights[s] *= values[k, at + s]
                    for s in range(count):
                        total += weights[s]
                        weights[s] = total

                # 3. Sums of logarithms.
                if not (LEAST_TOTAL < total < MOST_TOTAL):
                    total = log_weights(np.int64(i), row, logs, np.int64(k), weights)

                # 4. The state.
                scale = UNIT / total
                state = 0
                for s in range(count - 1):
                    state += u >= uint32(min(np.rint(weights[s] * scale), CERTAIN))
                row[i] = state
            streams[c, 0, 0] = s0
            streams[c, 1, 0] = s1
            streams[c, 2, 0] = s2
            streams[c, 3, 0] = s3
            if mode == 2 and c >= skipped:
                own = sums[c - skipped]
                for p in range(n):
                    for s in range(states[order[p]] - 1):
                        own[sums_at[p] + s] += uint32(1 << 24) if row[order[p]] <= s else uint32(0)
