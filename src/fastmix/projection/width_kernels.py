"""Compiled dual of low rank for the width; see :mod:`fastmix.projection.width_solvers`."""

from __future__ import annotations

import numpy as np

from fastmix._jit import njit

__all__ = ["dual_value"]


@njit(cache=True, error_model="numpy")
def dual_value(rows, cols, b, x, h, gradient):
    """``<Y, B> - ||Y||^2 / 2 - h ||Y||_*``, from below, and its derivatives by x = (U, V), V of any row lengths.

    1. The lengths of the rows of U, V brought to the same lengths, and the term of the nuclear norm.
    2. The entries of edges: value, and derivatives by U and by the V of equal lengths.
    3. Derivatives by what stands for V in x, whose length counts for nothing.
    """
    n = x.shape[0]
    rank = x.shape[1] // 2
    v = np.empty((n, rank))
    lengths = np.empty(n)
    own_lengths = np.empty(n)
    value = 0.0

    # 1. Lengths of rows.
    for i in range(n):
        u_square = 0.0
        v_square = 0.0
        for r in range(rank):
            u_square += x[i, r] * x[i, r]
            v_square += x[i, rank + r] * x[i, rank + r]
        value -= 2.0 * h * u_square
        lengths[i] = np.sqrt(u_square)
        own_lengths[i] = max(np.sqrt(v_square), 1e-300)
        for r in range(rank):
            v[i, r] = x[i, rank + r] * (lengths[i] / own_lengths[i])
            gradient[i, r] = -4.0 * h * x[i, r]
            gradient[i, rank + r] = 0.0

    # 2. Entries of edges.
    for e in range(len(b)):
        i = rows[e]
        j = cols[e]
        y = 0.0
        for r in range(rank):
            y += x[i, r] * x[j, r] - v[i, r] * v[j, r]
        value += (2.0 * b[e] - y) * y
        pull = 2.0 * (b[e] - y)
        for r in range(rank):
            gradient[i, r] += pull * x[j, r]
            gradient[j, r] += pull * x[i, r]
            gradient[i, rank + r] -= pull * v[j, r]
            gradient[j, rank + r] -= pull * v[i, r]

    # 3. v = length(u) times the direction of what stands for it: the part along it acts on u.
    for i in range(n):
        along = 0.0
        for r in range(rank):
            along += gradient[i, rank + r] * x[i, rank + r] / own_lengths[i]
        for r in range(rank):
            gradient[i, r] += along * x[i, r] / max(lengths[i], 1e-300)
            across = gradient[i, rank + r] - along * x[i, rank + r] / own_lengths[i]
            gradient[i, rank + r] = across * lengths[i] / own_lengths[i]
    return value
