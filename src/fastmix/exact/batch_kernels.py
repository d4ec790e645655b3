"""Compiled loops of :mod:`fastmix.exact.batch`: the steps of a program for many rows of evidence side by side.

Every table has one more axis than in :mod:`fastmix.exact.program_kernels`, the innermost: the row. So the loops over
rows are vectorized, and what it takes to find the place of an entry is paid once for all of them. Import this module
inside functions only: it needs Numba.
"""

from __future__ import annotations

import math

import numpy as np

from fastmix._jit import njit
from fastmix.exact.program_kernels import SCALE

__all__ = ["ANSWERED", "IMPOSSIBLE", "UNDERFLOW", "fill_leaves", "normalize_leaves", "run_batch_steps"]

#: What became of a row.
ANSWERED = 0
IMPOSSIBLE = 1
UNDERFLOW = 2

_OPTIONS = {"cache": True, "nogil": True, "error_model": "numpy"}
_FAST = {**_OPTIONS, "fastmath": {"nnan", "nsz", "contract"}}


@njit(**_FAST)
def _scale(out, by):
    """Multiply ``out`` by as many numbers."""
    for i in range(len(out)):
        out[i] *= by[i]


@njit(**_FAST)
def _add_product(out, x, y):
    """Add the products of two runs of numbers to a third."""
    for i in range(len(out)):
        out[i] += x[i] * y[i]


@njit(**_FAST)
def _keep_larger_product(out, x, y):
    """Let ``out`` be at least the products of two runs of numbers."""
    for i in range(len(out)):
        value = x[i] * y[i]
        out[i] = value if value > out[i] else out[i]


@njit(**_FAST)
def _keep_larger(out, x):
    """Let ``out`` be at least as large as ``x``."""
    for i in range(len(out)):
        out[i] = x[i] if x[i] > out[i] else out[i]


@njit(**_FAST)
def _keep_smallest_positive(out, x):
    """Let ``out`` be at most the positive ones of ``x``."""
    for i in range(len(out)):
        value = x[i] if x[i] > 0.0 else np.inf
        out[i] = value if value < out[i] else out[i]


@njit(**_OPTIONS)
def run_batch_steps(
    steps, groups, maximize, limits, watched, first, last, width, w, ranges, log_scale, state, high, low, digits
):
    """Do the steps of a program from ``first`` to before ``last``, in ordinary arithmetic, for ``width`` rows.

    1. The table of the step is emptied, and the loops over the entries are walked through.
    2. Where it is to be scaled and the largest entry of some row is out of range, all rows are divided by theirs. Going
       forward the logs of what they were divided by are added to ``log_scale``.
    3. Rows whose largest entry is zero are marked in ``state``: impossible going forward, where ``ranges`` rule
       underflow out, else underflow. With ``watched`` the ranges of tables are measured for every row; otherwise they
       are known to be small enough for all evidence.

    Parameters
    ----------
    steps, groups
        As for :func:`fastmix.exact.program_kernels.run_steps`, whose places are multiplied by ``width`` here.
    maximize : bool
        Largest products in place of sums of products.
    limits : tuple of float
        The range of largest entries without scaling, and the largest log of a ratio of entries of two tables.
    w : float array (places * width,)
    ranges : float array (tables * width,)
        Logs of ratios of positive entries, by table and row; used with ``watched``.
    log_scale, state, high, low : arrays (width,)
        Results, and room for largest and smallest entries.
    digits : int array
        Room for the groups of a step.
    """
    for s in range(first, last):
        step = steps[s]
        a = step[0]
        b = step[1]
        o = step[2]
        start = step[3]
        stop = step[4]
        kind = step[5]
        size = step[6]
        out = step[10]
        inner = groups[stop - 1]
        n = inner[0]
        an = inner[1]
        bn = inner[2]
        on = inner[3]
        count = 1
        for d in range(start, stop - 1):
            digits[d - start] = 0
            count *= groups[d, 0]
        # Step 1.
        if kind != SCALE:
            w[o * width : (o + size) * width] = 0.0
        together = on == 1 and bn == 1 and (kind == SCALE or an == 1)
        for _ in range(count):
            if together:
                z = w[o * width : (o + n) * width]
                y = w[b * width : (b + n) * width]
                if kind == SCALE:
                    _scale(z, y)
                elif maximize:
                    _keep_larger_product(z, w[a * width : (a + n) * width], y)
                else:
                    _add_product(z, w[a * width : (a + n) * width], y)
            else:
                for i in range(n):
                    z = w[(o + i * on) * width : (o + i * on + 1) * width]
                    y = w[(b + i * bn) * width : (b + i * bn + 1) * width]
                    if kind == SCALE:
                        _scale(z, y)
                    elif maximize:
                        _keep_larger_product(z, w[(a + i * an) * width : (a + i * an + 1) * width], y)
                    else:
                        _add_product(z, w[(a + i * an) * width : (a + i * an + 1) * width], y)
            for d in range(stop - 2, start - 1, -1):
                row = groups[d]
                digits[d - start] += 1
                a += row[1]
                b += row[2]
                o += row[3]
                if digits[d - start] < row[0]:
                    break
                digits[d - start] = 0
                a -= row[0] * row[1]
                b -= row[0] * row[2]
                o -= row[0] * row[3]
        if not step[7]:
            continue
        # Step 2.
        forward = out >= 0
        high[:] = 0.0
        for i in range(size):
            _keep_larger(high, w[(o + i) * width : (o + i + 1) * width])
        if forward and watched:
            low[:] = np.inf
            for i in range(size):
                _keep_smallest_positive(low, w[(o + i) * width : (o + i + 1) * width])
            for c in range(width):
                if ranges[step[8] * width + c] + ranges[step[9] * width + c] > limits[2] and state[c] == ANSWERED:
                    state[c] = UNDERFLOW
                ranges[out * width + c] = math.log(high[c] / low[c]) if high[c] > 0.0 else 0.0
        is_scaled = forward and size == 1
        for c in range(width):
            is_scaled = is_scaled or not limits[0] < high[c] < limits[1]
        if not is_scaled:
            continue
        for c in range(width):
            # Step 3.
            if high[c] == 0.0:
                if state[c] == ANSWERED:
                    state[c] = IMPOSSIBLE if forward else UNDERFLOW
                high[c] = 1.0
            if forward:
                log_scale[c] += math.log(high[c])
            low[c] = 1.0 / high[c]
        for i in range(size):
            _scale(w[(o + i) * width : (o + i + 1) * width], low)


@njit(**_OPTIONS)
def fill_leaves(base, gathers, entries, values, terms, holders, digits, rows, first_row, width, w, log_scale):
    """Fill the leaves of ``width`` rows: what does not depend on the row, then tables sliced by its evidence.

    At last the states that evidence excludes are set to zero, for variables that not all rows observe.

    Parameters
    ----------
    base : float array (leaf entries,)
        Products of the factors of every leaf that have no variable that is observed in all rows.
    gathers : int array (m, 5)
        For every factor that has such variables: where its leaf begins, how many entries that has, where in
        ``entries`` the place in the factor of each of them begins, and the first and last of its ``terms``.
    entries : int array
        For the entries of a leaf, their place in ``values`` before evidence is added.
    values : float array
        Tables of the factors.
    terms : int array (k, 2)
        A variable of the evidence, and how far apart its states are in the factor.
    holders : int array (v, 4)
        For every variable that not all rows observe: its number, where the leaf begins that knows of its evidence, how
        many entries that has, and where in ``digits`` the states that they belong to begin.
    digits : int array
    rows : int array (N, n)
        States of the variables by row, negative where they are not observed.
    first_row : int
        Rows beyond the last repeat it.
    w, log_scale
        As for :func:`run_batch_steps`; ``log_scale`` is set to zero.
    """
    for i in range(len(base)):
        for c in range(width):
            w[i * width + c] = base[i]
    log_scale[:] = 0.0
    last = len(rows) - 1
    for g in range(len(gathers)):
        leaf = gathers[g, 0]
        size = gathers[g, 1]
        begin = gathers[g, 2]
        for c in range(width):
            row = min(first_row + c, last)
            shift = 0
            for t in range(gathers[g, 3], gathers[g, 4]):
                shift += rows[row, terms[t, 0]] * terms[t, 1]
            for i in range(size):
                w[(leaf + i) * width + c] *= values[entries[begin + i] + shift]
    for h in range(len(holders)):
        leaf = holders[h, 1]
        begin = holders[h, 3]
        for c in range(width):
            observed = rows[min(first_row + c, last), holders[h, 0]]
            if observed >= 0:
                for i in range(holders[h, 2]):
                    if digits[begin + i] != observed:
                        w[(leaf + i) * width + c] = 0.0


@njit(**_OPTIONS)
def normalize_leaves(starts, sizes, changed, back, width, w, state, smallest, total):
    """Turn the derivatives by leaves into the marginals of their scopes: times the leaves, over their sum.

    ``changed`` tells the leaves that are not in their derivatives yet. Rows whose sum is at most ``smallest`` are
    marked as underflow; ``total`` is room for the sums.
    """
    for k in range(len(starts)):
        first = starts[k]
        total[:] = 0.0
        for i in range(first, first + sizes[k]):
            belief = w[(back + i) * width : (back + i + 1) * width]
            if changed[k]:
                _scale(belief, w[i * width : (i + 1) * width])
            for c in range(width):
                total[c] += belief[c]
        for c in range(width):
            if not total[c] > smallest:
                if state[c] == ANSWERED:
                    state[c] = UNDERFLOW
                total[c] = 1.0
            total[c] = 1.0 / total[c]
        for i in range(first, first + sizes[k]):
            _scale(w[(back + i) * width : (back + i + 1) * width], total)
