"""Compiled loops behind the width: the ascent that finds a diagonal, and the recurrence that proves a norm."""

from __future__ import annotations

import numpy as np

from fastmix._jit import njit

__all__ = ["ascend", "chebyshev_step"]


@njit(cache=True, error_model="numpy")
def ascend(indptr, indices, data, a, b, r, diagonal):
    """The value of the dual after one pass over all coordinates, before r is changed.

    The vectors ``a`` and ``b`` (n, rank) and ``r`` (n,) of :class:`fastmix.theory.width.Ascent` are changed in place,
    and the diagonal e is written to ``diagonal``.

    1. For every coordinate, add up the vectors of its neighbors.
    2. Turn its own vectors to these sums, and note what they say about e, r and the value.
    3. Move r by a power step.
    """
    n, rank = a.shape
    g = np.empty(rank)
    f = np.empty(rank)
    new = np.empty(n)
    value = 0.0
    for i in range(n):
        # 1. The sums.
        g[:] = 0.0
        f[:] = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            weight = data[p] * r[j]
            for k in range(rank):
                g[k] += weight * a[j, k]
                f[k] += weight * b[j, k]
        # 2. The vectors of the coordinate.
        up = 0.0
        down = 0.0
        for k in range(rank):
            up += g[k] * g[k]
            down += f[k] * f[k]
        up = np.sqrt(up)
        down = np.sqrt(down)
        if up > 0.0:
            for k in range(rank):
                a[i, k] = g[k] / up
        if down > 0.0:
            for k in range(rank):
                b[i, k] = -f[k] / down
        diagonal[i] = 0.5 * (down - up) / r[i]
        new[i] = up + down
        value += r[i] * new[i]
    # 3. A power step with the identity added: the spectrum need not be positive.
    total = 0.0
    for i in range(n):
        r[i] = max(new[i] + 0.5 * value * r[i], 1e-150)
        total += r[i] * r[i]
    total = 1.0 / np.sqrt(total)
    for i in range(n):
        r[i] *= total
    return value


@njit(cache=True, error_model="numpy")
def chebyshev_step(indptr, indices, data, diagonal, factor, now, before, following):
    """Set ``following = factor * (B + diag(e)) now - before``; ``following`` may be the array of ``before``."""
    n, columns = now.shape
    total = np.empty(columns)
    for i in range(n):
        for c in range(columns):
            total[c] = diagonal[i] * now[i, c]
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            weight = data[p]
            for c in range(columns):
                total[c] += weight * now[j, c]
        for c in range(columns):
            following[i, c] = factor * total[c] - before[i, c]
