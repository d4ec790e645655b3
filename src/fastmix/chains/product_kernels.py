"""Compiled Gibbs sweeps of any model: products of exponentiated weights, or sums of logarithms where these are lost."""

from __future__ import annotations

import numpy as np
from numba import uint32

from fastmix._jit import inner, outer
from fastmix.chains.kernels import (
    _INTEGER,
    _MOST,
    _UNIT,
    _accumulate,
    _collect,
    _compare,
    _copy,
    _count,
    _next,
    _random_site,
    largest,
)  # fmt: skip
from fastmix.chains.layout import BLOCK_SITES

__all__ = ["fill_factor_rows", "fill_rows", "log_weights", "next_row", "product_sweeps", "random_sweeps"]

_LEAST_TOTAL, _MOST_TOTAL = 1e-280, 1e300  # between them no product has lost anything that matters


@inner
def _fill_row(tables, at, step, values, place, count):  # type: ignore[no-untyped-def]
    """The exponentiated entries of a row of a table."""
    top = -np.inf
    for s in range(count):
        top = max(top, tables[at + s * step])
    for s in range(count):
        value = tables[at + s * step]
        values[place + s] = np.exp(value - top) if value > -np.inf else 0.0


@outer
def fill_rows(entries, begins, owner, theirs, states, starts, own_steps, other_steps, tables, values):  # type: ignore[no-untyped-def]
    """Exponentiated rows of tables, ``values[begins[k] + t * L + s]`` for states s of the owner and t of its neighbor.

    Each row has a largest entry of 1, unless the state of the neighbor forbids all of the owner's.
    """
    for k in entries:
        count = states[owner[k]]
        for t in range(theirs[k]):
            _fill_row(tables, starts[k] + t * other_steps[k], own_steps[k], values, begins[k] + t * count, count)


@inner
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


@outer
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
                _fill_row(tables, at, own_steps[f], values, place, count)
                place += count
                at = next_row(at, digits, first, last, states, members, steps)


@inner
def _row_of(x, f, begins, member_starts, members, steps):  # type: ignore[no-untyped-def]
    """Where the states of the other members of a factor, two at least, lead in its table."""
    m = member_starts[f]
    at = begins[f] + x[members[m]] * steps[m] + x[members[m + 1]] * steps[m + 1]
    for k in range(m + 2, member_starts[f + 1]):
        at += x[members[k]] * steps[k]
    return at


@inner
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


@inner
def _some_lost(total):  # type: ignore[no-untyped-def]
    """Whether some product of weights may have lost something."""
    lost = 0
    for j in range(len(total)):
        lost += not (_LEAST_TOTAL < total[j] < _MOST_TOTAL)
    return lost > 0


@inner
def _add_weights(total, weights):  # type: ignore[no-untyped-def]
    """Weights become cumulative."""
    for j in range(len(total)):
        total[j] += weights[j]
        weights[j] = total[j]


@inner
def _invert(total):  # type: ignore[no-untyped-def]
    for j in range(len(total)):
        total[j] = _UNIT / total[j]


@inner
def _set_thresholds(threshold, weights, scale):  # type: ignore[no-untyped-def]
    for j in range(len(threshold)):
        value = np.float64(min(weights[j] * scale[j], _MOST) + _INTEGER)
        threshold[j] = uint32(value.view(np.int64) & 0xFFFFFFFF)


@inner
def _draw_block(width, count, weights, total, u, threshold, state, sums, mode):  # type: ignore[no-untyped-def]
    """States of the sites of a block from cumulative weights (count rows of width); total is overwritten."""
    _invert(total)
    state[:] = 0
    for s in range(count - 1):
        rows = slice(s * width, (s + 1) * width)
        _set_thresholds(threshold, weights[rows], total)
        _compare(state, u, threshold)
        if mode == 1:
            _collect(sums[rows], threshold)
    if mode == 2:
        for s in range(count - 1):
            _count(sums[s * width : (s + 1) * width], state, s)


@inner
def _block_starts(order, blocks, states):  # type: ignore[no-untyped-def]
    """Where blocks begin in unaries and in sums."""
    unary_at, sums_at = np.zeros(len(blocks), np.int64), np.zeros(len(blocks), np.int64)
    for q in range(len(blocks) - 1):
        count, width = states[order[blocks[q]]], blocks[q + 1] - blocks[q]
        unary_at[q + 1], sums_at[q + 1] = unary_at[q] + count * width, sums_at[q] + (count - 1) * width
    return unary_at, sums_at


@outer
def product_sweeps(  # type: ignore[no-untyped-def]
    x, rung, order, blocks, states, indptr, neighbors, potts, begins, factors, values, unary, exponentiated, logs,
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
    sites; ``chunks`` are numbers of blocks, with ``streams`` (C, 4, chunks).
    """
    most = largest(states)
    weights, work = np.empty(most * BLOCK_SITES), np.empty(most)
    totals, u_block = np.empty(BLOCK_SITES), np.empty(BLOCK_SITES, np.uint32)
    threshold_block, state_block = np.empty(BLOCK_SITES, np.uint32), np.empty(BLOCK_SITES, np.uint32)
    skipped = x.shape[0] - sums.shape[0]
    none = np.empty(0, np.uint32)
    around, rows_at, member_starts, members, member_steps = factors
    unary_at, sums_at = _block_starts(order, blocks, states)
    for _ in range(num_sweeps):
        for chunk in range(first_chunk, last_chunk):
            for q in range(chunks[chunk], chunks[chunk + 1]):
                first, width = blocks[q], blocks[q + 1] - blocks[q]
                count = states[order[first]]
                u, threshold, state = u_block[:width], threshold_block[:width], state_block[:width]
                for c in range(x.shape[0]):
                    row, own = x[c], none
                    if mode > 0 and c >= skipped:
                        own = sums[c - skipped, sums_at[q] : sums_at[q + 1]]
                    a, b, d, e = streams[c, 0, chunk], streams[c, 1, chunk], streams[c, 2, chunk], streams[c, 3, chunk]
                    for j in range(width):
                        u[j], a, b, d, e = _next(a, b, d, e)
                    streams[c, 0, chunk], streams[c, 1, chunk], streams[c, 2, chunk], streams[c, 3, chunk] = a, b, d, e
                    k, total = rung[c], totals[:width]
                    total[:] = 0.0  # as if everything was lost
                    if exponentiated:
                        _copy(weights[: count * width], unary[k, unary_at[q] : unary_at[q + 1]])
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


@outer
def random_sweeps(  # type: ignore[no-untyped-def]
    x, rung, order, blocks, states, indptr, neighbors, potts, begins, factors, values, unary, exponentiated, logs,
    streams, sums, num_sweeps, mode,
):  # fmt: skip
    """The same with sites that are drawn at random (two random numbers each), as many as there are in a sweep.

    Every site is a block. Only mode 2 is collected.
    """
    n, work = len(order), np.empty(largest(states))
    skipped = x.shape[0] - sums.shape[0]
    around, rows_at, member_starts, members, member_steps = factors
    unary_at, sums_at = _block_starts(order, blocks, states)
    for _ in range(num_sweeps):
        for c in range(x.shape[0]):
            row, k = x[c], rung[c]
            a, b, d, e = streams[c, 0, 0], streams[c, 1, 0], streams[c, 2, 0], streams[c, 3, 0]
            for _ in range(n):
                p, a, b, d, e = _random_site(n, a, b, d, e)
                u, a, b, d, e = _next(a, b, d, e)
                i, total = order[p], 0.0
                count = states[i]
                if exponentiated:
                    for s in range(count):
                        work[s] = unary[k, unary_at[p] + s]
                    for m in range(indptr[p], indptr[p + 1]):
                        t = row[neighbors[m]]
                        if potts[m]:
                            work[t] *= values[k, begins[m]]
                        else:
                            at = begins[m] + t * count
                            for s in range(count):
                                work[s] *= values[k, at + s]
                    for f in range(around[p], around[p + 1]):
                        at = _row_of(row, f, rows_at, member_starts, members, member_steps)
                        for s in range(count):
                            work[s] *= values[k, at + s]
                    for s in range(count):
                        total += work[s]
                        work[s] = total
                if not (_LEAST_TOTAL < total < _MOST_TOTAL):
                    total = log_weights(i, row, logs, k, work)
                scale, state = _UNIT / total, 0
                for s in range(count - 1):
                    state += u >= uint32(min(np.rint(work[s] * scale), _MOST))
                row[i] = state
            streams[c, 0, 0], streams[c, 1, 0], streams[c, 2, 0], streams[c, 3, 0] = a, b, d, e
            if mode == 2 and c >= skipped:
                own = sums[c - skipped]
                for p in range(n):
                    for s in range(states[order[p]] - 1):
                        own[sums_at[p] + s] += uint32(1 << 24) if row[order[p]] <= s else uint32(0)
