"""Compiled rounds of replica exchange: many replicas of many ladders side by side.

``x[i, l]`` is the state of site i in lane l. A block of C ladders with K rungs has K * C lanes; lane ``k * C + c``
holds the configuration of ladder c at rung k, so that an exchange moves configurations, and lanes keep their rungs.
Loops over all lanes of a row vectorise: a site is updated in all replicas at once, each with the conditional
distributions of its own rung, which are found by an offset into a table that has all rungs of a site together.

Loops touch few arrays each: the compiler checks at run time that arrays do not overlap, and gives up on vectorising
when there are many to check.
"""

from __future__ import annotations

import math

import numpy as np
from numba import float32, uint8, uint32

from fastmix._jit import njit
from fastmix.chains.gibbs_kernels import _fill, _shorten

__all__ = ["binary_energies", "exchange", "general_energies", "table_sweeps"]

# Functions called only from compiled code need no entry points from Python, which saves compilation time.
_inner = njit(cache=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
_outer = njit(cache=True, nogil=True, error_model="numpy")

_UNIT = 4294967296.0  # random numbers are below 2^32
_FLUSH = 16  # sites whose energies are added up in single precision before they join the total


# -- conditional distributions --------------------------------------------------------------------------------------


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
def _compare(x, u, threshold, kept):  # type: ignore[no-untyped-def]
    for c in range(len(x)):
        x[c] = uint8(uint8(x[c] & kept) + uint8(u[c] >= threshold[c]))


@_inner
def _collect(sums, threshold):  # type: ignore[no-untyped-def]
    for c in range(len(sums)):
        sums[c] = uint32(sums[c] + _shorten(threshold[c]))


@_outer
def table_sweeps(  # type: ignore[no-untyped-def]
    x, rung, order, indptr, neighbors, strides, cuts, sizes, starts, table, sum_starts, streams, sums, num_sweeps
):
    """Gibbs sweeps of all lanes, each with the conditional distributions of its rung.

    Parameters
    ----------
    x : uint8 (n, W)
    rung : uint32 (W,)
    order : int (n,)
        Sites in the order of a sweep.
    indptr, neighbors, strides : int
        Neighbours of every site and the steps in its table that their states make.
    cuts, sizes : uint32 (n,)
        States of every site minus one, and the entries of its table for one rung.
    starts : int (n + 1,)
        Where the tables of every site begin: cumulative thresholds by rung, pattern of the neighbours, and cut.
    table : uint32
    sum_starts : int (n,)
        First row of every site in the sums.
    streams : uint32 (4, W)
    sums : uint32 (total cuts, C)
        The thresholds, cut to 24 bits, of the last C lanes are added; nothing for C = 0.
    num_sweeps : int
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
                _compare(x[i], u, threshold, uint8(0) if j == 0 else uint8(255))
                if top < width:
                    _collect(sums[sum_starts[i] + j], threshold[top:])


# -- energies -------------------------------------------------------------------------------------------------------


@_inner
def _start(out, total, constant):  # type: ignore[no-untyped-def]
    for c in range(len(out)):
        out[c] = constant
        total[c] = float32(0.0)


@_inner
def _add_one(total, x, weight):  # type: ignore[no-untyped-def]
    for c in range(len(total)):
        total[c] += float32(x[c]) * weight


@_inner
def _add_two(total, x, x0, x1, weight, w0, w1):  # type: ignore[no-untyped-def]
    for c in range(len(total)):
        total[c] += float32(x[c]) * (weight + w0 * float32(x0[c]) + w1 * float32(x1[c]))


@_inner
def _flush(out, total):  # type: ignore[no-untyped-def]
    for c in range(len(out)):
        out[c] += total[c]
        total[c] = float32(0.0)


@_outer
def binary_energies(x, unary, linear, indptr, later, weights, constants, total, out):  # type: ignore[no-untyped-def]
    """Energies of all lanes of a binary model: the unary part, and one for every set of tables.

    ``out[0] = sum_i unary[i] x_i`` and ``out[d] = sum_i x_i (linear[d - 1, i] + sum_j weights[d - 1, ij] x_j)`` plus
    constants, with j over the neighbours after i.

    Parameters
    ----------
    x : uint8 (n, W)
    unary : float32 (n,)
    linear : float32 (D - 1, n)
    indptr, later : int
        Neighbours of every site that come after it.
    weights : float32 (D - 1, m)
    constants : float (D,)
    total : float32 (D, W)
        Room for partial sums over a few sites in single precision.
    out : float (D, W)
        Their sums in double precision.
    """
    count = len(constants)
    for d in range(count):
        _start(out[d], total[d], constants[d])
    none = float32(0.0)
    for i in range(x.shape[0]):
        _add_one(total[0], x[i], unary[i])
        for d in range(1, count):
            weight = linear[d - 1, i]
            k, last = indptr[i], indptr[i + 1]
            while last - k >= 2:
                w = weights[d - 1]
                _add_two(total[d], x[i], x[later[k]], x[later[k + 1]], weight, w[k], w[k + 1])
                weight = none
                k += 2
            if last - k == 1:
                _add_two(total[d], x[i], x[later[k]], x[later[k]], weight, weights[d - 1, k], none)
            elif weight != none:
                _add_one(total[d], x[i], weight)
        if i % _FLUSH == _FLUSH - 1 or i == x.shape[0] - 1:
            for d in range(count):
                _flush(out[d], total[d])


@_inner
def _pair(index, x0, x1, width):  # type: ignore[no-untyped-def]
    for c in range(len(index)):
        index[c] = uint32(uint32(x0[c] * width) + x1[c])


@_inner
def _add_entry(total, index, table):  # type: ignore[no-untyped-def]
    for c in range(len(total)):
        total[c] += table[index[c]]


@_outer
def general_energies(x, states, unary_starts, unary, edges, starts, tables, constants, total, out):  # type: ignore[no-untyped-def]
    """The same for any numbers of states, with ``unary`` (entries,) and ``tables`` (D - 1, entries) as in a model.

    ``states`` (n,) holds the state counts, ``edges`` (m, 2) the ends, ``starts`` (m + 1,) the places of the tables.
    """
    count, index = len(constants), np.empty(x.shape[1], np.uint32)
    for d in range(count):
        _start(out[d], total[d], constants[d])
    for i in range(x.shape[0]):
        _add_entry(total[0], x[i], unary[unary_starts[i] : unary_starts[i + 1]])
        if i % _FLUSH == _FLUSH - 1 or i == x.shape[0] - 1:
            _flush(out[0], total[0])
    for e in range(edges.shape[0]):
        _pair(index, x[edges[e, 0]], x[edges[e, 1]], states[edges[e, 1]])
        for d in range(1, count):
            _add_entry(total[d], index, tables[d - 1, starts[e] : starts[e + 1]])
            if e % _FLUSH == _FLUSH - 1 or e == edges.shape[0] - 1:
                _flush(out[d], total[d])


# -- exchange -------------------------------------------------------------------------------------------------------


@_inner
def _difference(out, a, b, mask):  # type: ignore[no-untyped-def]
    for c in range(len(out)):
        out[c] = (a[c] ^ b[c]) & mask[c]


@_inner
def _toggle(a, difference):  # type: ignore[no-untyped-def]
    for c in range(len(a)):
        a[c] ^= difference[c]


@_inner
def _logistic(z):  # type: ignore[no-untyped-def]
    return 1.0 / (1.0 + math.exp(min(-z, 700.0)))


@_outer
def exchange(x, parity, gaps, energies, streams, shifts, sums, carrier, heading, trips):  # type: ignore[no-untyped-def]
    """Propose the exchange of configurations between rungs k and k + 1, for every k of one parity, in every ladder.

    With the log-weights ``w_k`` of the rungs and ``D_k = w_{k+1} - w_k``, the exchange of y at rung k and z at rung
    k + 1 is accepted with probability ``min(1, exp(D_k(y) - D_k(z)))``.

    Parameters
    ----------
    x : uint8 (n, K * C)
    parity : int
    gaps : float (K - 1, D)
        ``D_k(x) = gaps[k] @ energies[:, lane]``.
    energies : float (D, K * C)
    streams : uint32 (4, K * C)
        Every lane draws a number; those of the lower rungs decide.
    shifts : float (K - 1,)
        Guesses s_k of ``log Z_{k+1} / Z_k`` for the acceptance ratio estimator.
    sums : float (6, K - 1, C)
        What is added up: proposals, rejection probabilities, D at the lower and at the upper rung,
        ``logistic(D - s)`` at the lower rung, and ``logistic(s - D)`` at the upper one.
    carrier : int (K * C,)
        Which replica, numbered within its ladder, a lane holds.
    heading : uint8 (K * C,)
        For replica r of ladder c at ``r * C + c``: 1 on its way up from the lowest rung, 2 on its way down from the
        highest, 0 before its first visit to the lowest.
    trips : int (C,)
        Completed round trips of every ladder.
    """
    num_ladders = len(trips)
    width = x.shape[1]
    num_rungs = width // num_ladders
    rest = width - num_ladders
    u, mask = np.empty(width, np.uint32), np.empty(rest, np.uint8)
    _fill(streams[0], streams[1], streams[2], streams[3], u)
    for c in range(rest):
        mask[c] = uint8(0)
    accepted = 0
    for k in range(parity, num_rungs - 1, 2):
        for c in range(num_ladders):
            low = k * num_ladders + c
            high = low + num_ladders
            below, above = 0.0, 0.0
            for d in range(gaps.shape[1]):
                below += gaps[k, d] * energies[d, low]
                above += gaps[k, d] * energies[d, high]
            chance = math.exp(min(0.0, below - above))
            sums[0, k, c] += 1.0
            sums[1, k, c] += 1.0 - chance
            sums[2, k, c] += below
            sums[3, k, c] += above
            sums[4, k, c] += _logistic(below - shifts[k])
            sums[5, k, c] += _logistic(shifts[k] - above)
            if u[low] < chance * _UNIT:
                mask[low] = 255
                accepted += 1
                carrier[low], carrier[high] = carrier[high], carrier[low]
    if accepted:
        difference = np.empty(rest, np.uint8)
        for i in range(x.shape[0]):
            lower, upper = x[i, :rest], x[i, num_ladders:]
            _difference(difference, lower, upper, mask)
            _toggle(lower, difference)
            _toggle(upper, difference)
    for c in range(num_ladders):
        bottom = carrier[c] * num_ladders + c
        if heading[bottom] == 2:
            trips[c] += 1
        heading[bottom] = 1
        top = carrier[width - num_ladders + c] * num_ladders + c
        if heading[top] == 1:
            heading[top] = 2
