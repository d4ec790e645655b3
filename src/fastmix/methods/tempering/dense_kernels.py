"""Compiled sweeps for variables with too many neighbours to tabulate their conditional distributions."""

from __future__ import annotations

import math

import numpy as np
from numba import uint8, uint32

from fastmix._jit import njit
from fastmix.chains.gibbs_kernels import _fill, _shorten, largest

__all__ = ["dense_sweeps"]

_inner = njit(cache=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
_MOST = 4294967295.0  # the largest threshold, a certainty


@_inner
def _add_entry(total, x, table):  # type: ignore[no-untyped-def]
    for c in range(len(total)):
        total[c] += table[x[c]]


@_inner
def _add_scaled(out, total, rung, weights):  # type: ignore[no-untyped-def]
    """Add totals times the coefficient of the lane's rung, and set them to zero."""
    for c in range(len(out)):
        out[c] += weights[rung[c]] * total[c]
        total[c] = 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def dense_sweeps(  # type: ignore[no-untyped-def]
    x,
    rung,
    weights,
    order,
    indptr,
    neighbors,
    starts,
    tables,
    unary_starts,
    unary,
    sum_starts,
    streams,
    sums,
    num_sweeps,
):
    """Gibbs sweeps of all lanes that add up the logits of every update.

    Parameters
    ----------
    x : uint8 (n, W)
    rung : uint32 (W,)
    weights : float (D, K)
        Coefficients of the unaries and of every set of tables at every rung.
    order : int (n,)
    indptr, neighbors : int
    starts : int (entries of neighbors,)
        Where the tables of a site and its neighbour begin, ``T(s, t) - T(0, t)`` for the states s > 0 of the site and,
        changing faster, t of the neighbour.
    tables : float (D - 1, entries)
    unary_starts : int (n + 1,)
    unary : float (entries,)
    sum_starts, streams, sums, num_sweeps
        As for the tabulated sweeps.
    """
    width = x.shape[1]
    top = width - sums.shape[1]
    num_states = np.empty(len(unary_starts) - 1, np.int64)
    for k in range(len(num_states)):
        num_states[k] = unary_starts[k + 1] - unary_starts[k]
    most = largest(num_states)
    u, total, logits = np.empty(width, np.uint32), np.zeros(width), np.zeros((most, width))
    for _ in range(num_sweeps):
        for i in order:
            _fill(streams[0], streams[1], streams[2], streams[3], u)
            states = num_states[i]
            for s in range(1, states):
                row = logits[s]
                value = unary[unary_starts[i] + s] - unary[unary_starts[i]]
                for c in range(width):
                    row[c] = weights[0, rung[c]] * value
                for d in range(1, len(weights)):
                    for k in range(indptr[i], indptr[i + 1]):
                        j = neighbors[k]
                        begin = starts[k] + (s - 1) * num_states[j]
                        _add_entry(total, x[j], tables[d - 1, begin : begin + num_states[j]])
                    _add_scaled(row, total, rung, weights[d])
            for c in range(width):
                highest = 0.0
                for s in range(1, states):
                    highest = max(highest, logits[s, c])
                norm = math.exp(-highest)
                for s in range(1, states):
                    norm += math.exp(logits[s, c] - highest)
                below, state = math.exp(-highest), 0
                for s in range(1, states):
                    threshold = uint32(int(min(below / norm * 4294967296.0 + 0.5, _MOST)))
                    state += u[c] >= threshold
                    if c >= top:
                        place = sum_starts[i] + s - 1
                        sums[place, c - top] = uint32(sums[place, c - top] + _shorten(threshold))
                    below += math.exp(logits[s, c] - highest)
                x[i, c] = uint8(state)
