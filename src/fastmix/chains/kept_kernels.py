"""Compiled Gibbs sweeps of binary variables that keep the log-odds of all of them, and change these where one flips.

An update reads one number, and only a flip costs a step for each neighbor. That pays where variables have many
neighbors and configurations are too few to go side by side. Log-odds are whole multiples of a power of two, so that
their sums are exact: what is drawn depends neither on when they were added up, nor in what order.
"""

from __future__ import annotations

import numpy as np

from fastmix._jit import inner, outer
from fastmix.chains.random_kernels import next_number, random_site
from fastmix.chains.threshold_kernels import add_counts, round_threshold, threshold_of_odds

__all__ = ["kept_sweeps"]


@inner
def _add_row(fields, row):
    """Add a row of a matrix to the fields."""
    for j in range(len(fields)):
        fields[j] += row[j]


@inner
def _take_row(fields, row):
    """Take a row of a matrix off the fields."""
    for j in range(len(fields)):
        fields[j] -= row[j]


@inner
def _change_fields(fields, i, sign, indptr, neighbors, weights, rows):
    """Change the fields of the neighbors of variable i, whose state has changed by ``sign``."""
    if len(rows):
        if sign > 0:
            _add_row(fields, rows[i])
        else:
            _take_row(fields, rows[i])
        return
    for k in range(indptr[i], indptr[i + 1]):
        fields[neighbors[k]] += sign * weights[k]


@outer
def kept_sweeps(
    x,
    order,
    indptr,
    neighbors,
    weights,
    rows,
    offsets,
    unit,
    scan,
    _chunks,
    _first_chunk,
    _last_chunk,
    streams,
    sums,
    num_sweeps,
    mode,
):
    """Sweeps of one configuration x (n + 1,) of binary variables.

    The log-odds of state 1 of variable i are, in ``unit``, ``offsets[i]`` plus the sum of ``weights[k]`` over its
    neighbors in state 1, from ``indptr[i]`` on; all are integers. Where many pairs are neighbors ``rows`` (n, n) has
    the weights again, with zeros between, otherwise no row. Updates are in the ``order`` of a sweep, or at random where
    ``scan`` is 1. All sites are one chunk.
    """
    n = len(order)
    fields = offsets.copy()
    for j in range(n):
        if x[j]:
            _change_fields(fields, j, 1, indptr, neighbors, weights, rows)
    s0 = streams[0, 0]
    s1 = streams[1, 0]
    s2 = streams[2, 0]
    s3 = streams[3, 0]
    for _ in range(num_sweeps):
        for p in range(n):
            if scan == 1:
                p, s0, s1, s2, s3 = random_site(n, s0, s1, s2, s3)
            u, s0, s1, s2, s3 = next_number(s0, s1, s2, s3)
            i = np.int64(order[p])
            threshold = threshold_of_odds(unit * fields[i])
            if mode == 1:
                sums[i] += round_threshold(threshold)
            state = u >= threshold
            if state != x[i]:
                x[i] = state
                _change_fields(fields, i, 1 if state else -1, indptr, neighbors, weights, rows)
        if mode == 2:
            add_counts(sums, x[:n], 0)
    streams[0, 0] = s0
    streams[1, 0] = s1
    streams[2, 0] = s2
    streams[3, 0] = s3
