"""Compiled functions for a whole sequence of small sums of products, forward and backward, in one flat array.

All tables lie one after another, then a one, then the derivatives in the same order. A contraction is given by rows of
a size and three strides, as in :mod:`fastmix.exact.loops`. Sums are in the order of the loops and nothing is fused, so
that :mod:`fastmix.exact.plain_program`, which needs no compiler, gives the same bits.
"""

from __future__ import annotations

import math

import numpy as np

from fastmix._jit import njit
from fastmix.exact.plain_program import DONE, IMPOSSIBLE, UNDERFLOW

__all__ = ["fill_leaves", "read_marginals", "run_steps"]

_inner = njit(cache=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, error_model="numpy")


@_inner
def _add_scaled(o, x, y):  # type: ignore[no-untyped-def]
    for i in range(len(o)):
        o[i] += x[i] * y


@_inner
def _add_product(o, x, y):  # type: ignore[no-untyped-def]
    for i in range(len(o)):
        o[i] += x[i] * y[i]


@_inner
def _contract(w, ia, ib, io, rows, ca, cb, co, scale, digits):  # type: ignore[no-untyped-def]
    """Add the sum of a times b to o, or with ``scale`` multiply o by b; the last row is the innermost loop."""
    depth = len(rows) - 1
    n, an, bn, on = rows[depth, 0], rows[depth, ca], rows[depth, cb], rows[depth, co]
    steps = 1
    for d in range(depth):
        digits[d] = 0
        steps *= rows[d, 0]
    for _ in range(steps):
        if scale:
            for i in range(n):
                w[io + i * on] *= w[ib + i * bn]
        elif on == 0:
            total = 0.0
            for i in range(n):
                total += w[ia + i * an] * w[ib + i * bn]
            w[io] += total
        elif n >= 8 and on == 1 and max(an, bn) == 1:
            if an == 1 and bn == 1:
                _add_product(w[io : io + n], w[ia : ia + n], w[ib : ib + n])
            elif an == 1:
                _add_scaled(w[io : io + n], w[ia : ia + n], w[ib])
            else:
                _add_scaled(w[io : io + n], w[ib : ib + n], w[ia])
        else:
            for i in range(n):
                w[io + i * on] += w[ia + i * an] * w[ib + i * bn]
        for d in range(depth - 1, -1, -1):
            digits[d] += 1
            ia, ib, io = ia + rows[d, ca], ib + rows[d, cb], io + rows[d, co]
            if digits[d] < rows[d, 0]:
                break
            digits[d] = 0
            ia, ib = ia - rows[d, 0] * rows[d, ca], ib - rows[d, 0] * rows[d, cb]
            io -= rows[d, 0] * rows[d, co]


@njit(cache=True, nogil=True, error_model="numpy")
def fill_leaves(w, values, leaves, members, positions, ranges):  # type: ignore[no-untyped-def]
    """Logs of factors joined, their largest entries taken out; the sum of these, -inf where a table is zero.

    Parameters
    ----------
    w : float array
        All tables; those of leaves are zeros.
    values : float array
        The logs of all factors, one table after another.
    leaves : int array (leaves, 6)
        Number of the table, where it lies, its size, the first row of ``members`` and that after the last, and whether
        the table multiplies another in place.
    members : int array (members, 2)
        Number of a factor, and where its ``positions`` begin.
    positions : int array
        By entry of a leaf, the entry of ``values`` that belongs to it.
    ranges : float array
        By table, the logarithm of the largest ratio of its entries: filled in for leaves.
    """
    log_scale = 0.0
    for k in range(len(leaves)):
        size = leaves[k, 2]
        table = w[leaves[k, 1] : leaves[k, 1] + size]
        for m in range(leaves[k, 3], leaves[k, 4]):
            place = positions[members[m, 1] : members[m, 1] + size]
            for i in range(size):
                table[i] += values[place[i]]
        high, low = -np.inf, np.inf
        for i in range(size):
            high = max(high, table[i])
            if table[i] > -np.inf:
                low = min(low, table[i])
        if high == -np.inf:
            return -np.inf
        log_scale += high
        ranges[leaves[k, 0]] = high - low
        for i in range(size):
            table[i] -= high
    return log_scale


@njit(cache=True, nogil=True, error_model="numpy")
def run_steps(w, steps, groups, ranges, depth, limits, scales):  # type: ignore[no-untyped-def]
    """Do all contractions: :data:`DONE`, :data:`IMPOSSIBLE` or :data:`UNDERFLOW`.

    Parameters
    ----------
    w : float array
        All tables, those of leaves filled in.
    steps : int array (steps, 13)
        Where the tables a, b and o lie; the columns of their strides; the first row of ``groups`` and that after the
        last; whether o is multiplied by b; the entries of o to look at, 0 where that is not needed; and going forward
        the numbers of the tables a, b and o, -1 going back.
    groups : int array (groups, 4)
        Sizes and strides.
    ranges : float array
        Of the tables, see :func:`fill_leaves`.
    depth : int
        The most groups of a step.
    limits : tuple of float
        Range in which tables are not scaled, largest logarithm of a ratio of entries, and least sum of a marginal.
    scales : float array (steps,)
        Ones: filled in with what tables going forward are divided by.
    """
    digits = np.empty(depth, np.int64)
    least, most, most_range, _ = limits
    for s in range(len(steps)):
        o, size, out = steps[s, 2], steps[s, 9], steps[s, 12]
        if out >= 0 and ranges[steps[s, 10]] + ranges[steps[s, 11]] > most_range:
            return UNDERFLOW
        rows = groups[steps[s, 6] : steps[s, 7]]
        a, b, columns = steps[s, 0], steps[s, 1], steps[s, 3:6]
        _contract(w, a, b, o, rows, columns[0], columns[1], columns[2], steps[s, 8] > 0, digits)
        if size == 0:
            continue
        high, low = 0.0, np.inf
        for i in range(o, o + size):
            high = max(high, w[i])
            if w[i] > 0.0:
                low = min(low, w[i])
        if not high > 0.0:
            return IMPOSSIBLE if out >= 0 else UNDERFLOW
        if size == 1 or not least < high < most:
            for i in range(o, o + size):
                w[i] /= high
            if out >= 0:
                scales[s] = high
        if out >= 0:
            ranges[out] = math.log(high) - math.log(low)
    return DONE


@njit(cache=True, nogil=True, error_model="numpy")
def read_marginals(w, back, leaves, members, positions, readings, targets, least, wanted, nodes, joint):  # type: ignore[no-untyped-def]
    """Add up the marginals of leaves to those of variables and of factors; whether none has underflown.

    Parameters
    ----------
    w : float array
        All tables and, from ``back`` on, their derivatives.
    readings : int array (readings, 3)
        Where the leaf of a variable lies, its size, and where its ``targets`` begin.
    targets : int array
        By entry of a leaf, the entry of ``nodes`` that it belongs to.
    least : float
        Sum of a marginal below which it has underflown.
    wanted : tuple of int
        The first factor whose marginals are added to ``joint``, and that after the last.
    nodes, joint : float arrays
        Zeros; marginals of variables, and of factors, laid out as ``values``.
    """
    for k in range(len(leaves)):
        start, size = leaves[k, 1], leaves[k, 2]
        belief = w[back + start : back + start + size]
        if not leaves[k, 5]:
            for i in range(size):
                belief[i] *= w[start + i]
        total = 0.0
        for i in range(size):
            total += belief[i]
        if not total > least:
            return False
        for i in range(size):
            belief[i] /= total
        for m in range(leaves[k, 3], leaves[k, 4]):
            if wanted[0] <= members[m, 0] < wanted[1]:
                place = positions[members[m, 1] : members[m, 1] + size]
                for i in range(size):
                    joint[place[i]] += belief[i]
    for r in range(len(readings)):
        start, place = back + readings[r, 0], readings[r, 2]
        for i in range(readings[r, 1]):
            nodes[targets[place + i]] += w[start + i]
    return True
