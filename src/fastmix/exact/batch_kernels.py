"""Compiled loops of :mod:`fastmix.exact.batch`: the steps of a program for many rows of evidence side by side.

Every table has one more axis than in :mod:`fastmix.exact.program_kernels`, the innermost: the row. So the loops over
rows are vectorized, and what it takes to find the place of an entry is paid once for all of them. Import this module
inside functions only: it needs Numba.

Beside every entry there can be its tangent, the derivative along a direction of the parameters. What tables are divided
by counts as a constant: it cancels when marginals are normalized.
"""

from __future__ import annotations

import math

import numpy as np

from fastmix._jit import njit
from fastmix.exact.program_kernels import SCALE

__all__ = [
    "ANSWERED",
    "IMPOSSIBLE",
    "UNDERFLOW",
    "add_up_leaf",
    "center_parameters",
    "fill_leaves",
    "fill_leaves_by_parameters",
    "normalize_leaves",
    "run_batch_steps",
]

#: What became of a row.
ANSWERED = 0
IMPOSSIBLE = 1
UNDERFLOW = 2

_OPTIONS = {"cache": True, "nogil": True, "error_model": "numpy"}
_FAST = {**_OPTIONS, "fastmath": {"nnan", "nsz", "contract"}}


@njit(**_FAST)
def _copy(out, x):
    """Copy as many numbers into ``out``; assigned as a slice, they take a second longer to compile."""
    for i in range(len(out)):
        out[i] = x[i]


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
def _add_multiple(out, x, factor):
    """Add a multiple of a run of numbers to another."""
    for i in range(len(out)):
        out[i] += x[i] * factor


@njit(**_FAST)
def _add_number(out, number):
    """Add a number to all of ``out``."""
    for i in range(len(out)):
        out[i] += number


@njit(**_FAST)
def _scale_alike(out, factor):
    """Multiply ``out`` by one number."""
    for i in range(len(out)):
        out[i] *= factor


@njit(**{**_FAST, "fastmath": {"nnan", "nsz", "contract", "reassoc"}})
def _weighted_sum(x, weights):
    """The sum of as many products."""
    total = 0.0
    for i in range(len(x)):
        total += x[i] * weights[i]
    return total


@njit(**_FAST)
def _add_product_of_tangents(out, x, dx, y, dy):
    """Add the tangents of the products of two runs of numbers to a third."""
    for i in range(len(out)):
        out[i] += dx[i] * y[i] + x[i] * dy[i]


@njit(**_FAST)
def _scale_tangents(d_out, out, by, d_by):
    """Turn tangents of ``out`` into those of its products with ``by``."""
    for i in range(len(d_out)):
        d_out[i] = d_out[i] * by[i] + out[i] * d_by[i]


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


@njit(**_FAST)
def _keep_smallest_finite(out, x):
    """Let ``out`` be at most those of ``x`` that are finite."""
    for i in range(len(out)):
        value = x[i] if x[i] > -np.inf else np.inf
        out[i] = value if value < out[i] else out[i]


@njit(**_FAST)
def _subtract(out, x):
    """Subtract as many numbers from ``out``."""
    for i in range(len(out)):
        out[i] -= x[i]


@njit(**_OPTIONS)
def run_batch_steps(
    steps, groups, maximize, limits, watched, first, last, width, alike, w, tangents, ranges, log_scale, state,
    high, low, digits,
):  # fmt: skip
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
    alike : bool array (steps, 2), or empty
        For every step, whether the first and the second table have the same entries in all rows, of which only those of
        the first row are read. Where there are any, there are no tangents, and no largest products.
    w : float array (places * width,)
    tangents : float array (places * width,), or empty
        Where there are any, those of sums of products are computed beside them.
    ranges : float array (tables * width,)
        Logs of ratios of positive entries, by table and row; used with ``watched``.
    log_scale, state, high, low : arrays (width,)
        Results, and room for largest and smallest entries.
    digits : int array
        Room for the groups of a step.
    """
    has_tangents = len(tangents) > 0
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
            if has_tangents:
                tangents[o * width : (o + size) * width] = 0.0
        a_alike = len(alike) > 0 and alike[s, 0] and kind != SCALE
        b_alike = len(alike) > 0 and alike[s, 1]
        # Whether the entries of the innermost loop follow each other, so that it is one run.
        together = on == 1 and bn == (0 if b_alike else 1) and (kind == SCALE or an == (0 if a_alike else 1))
        for _ in range(count):
            runs = 1 if together else n
            length = n * width if together else width
            for i in range(runs):
                at = (a + i * an) * width
                bt = (b + i * bn) * width
                ot = (o + i * on) * width
                z = w[ot : ot + length]
                if a_alike or b_alike:
                    if kind == SCALE:
                        _scale_alike(z, w[bt])
                    elif a_alike and b_alike:
                        _add_number(z, w[at] * w[bt])
                    elif b_alike:
                        _add_multiple(z, w[at : at + length], w[bt])
                    else:
                        _add_multiple(z, w[bt : bt + length], w[at])
                    continue
                y = w[bt : bt + length]
                if kind == SCALE:
                    if has_tangents:
                        _scale_tangents(tangents[ot : ot + length], z, y, tangents[bt : bt + length])
                    _scale(z, y)
                    continue
                x = w[at : at + length]
                if maximize:
                    _keep_larger_product(z, x, y)
                    continue
                _add_product(z, x, y)
                if has_tangents:
                    dx = tangents[at : at + length]
                    dy = tangents[bt : bt + length]
                    _add_product_of_tangents(tangents[ot : ot + length], x, dx, y, dy)
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
            if has_tangents:
                _scale(tangents[(o + i) * width : (o + i + 1) * width], low)


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
def center_parameters(starts, leaf_of, values, width, ranges, log_scale, high, low):
    """Subtract from the parameters of every factor their largest, in each row of a block.

    What was subtracted is added to ``log_scale``, and the log of the ratio of the largest and the smallest positive
    entry to the ``ranges`` of the leaf that the factor is part of.

    Parameters
    ----------
    starts : int array (f + 1,)
        Where the parameters of every factor begin, and the end.
    leaf_of : int array (f,)
        The table that a factor is part of.
    values : float array (parameters * width,)
    ranges, log_scale, high, low
        As for :func:`run_batch_steps`.
    """
    for f in range(len(leaf_of)):
        high[:] = -np.inf
        low[:] = np.inf
        for i in range(starts[f], starts[f + 1]):
            x = values[i * width : (i + 1) * width]
            _keep_larger(high, x)
            _keep_smallest_finite(low, x)
        for c in range(width):
            if high[c] == -np.inf:
                high[c] = 0.0
                low[c] = 0.0
            log_scale[c] += high[c]
            ranges[leaf_of[f] * width + c] += high[c] - low[c]
        for i in range(starts[f], starts[f + 1]):
            _subtract(values[i * width : (i + 1) * width], high)


@njit(**_OPTIONS)
def fill_leaves_by_parameters(members, entries, values, directions, width, w, tangents):
    """Fill the leaves with products of factors that have parameters of their own in every row.

    Parameters
    ----------
    members : int array (m, 4)
        For every factor of a leaf: where the leaf begins, how many entries that has, where in ``entries`` the place in
        ``values`` of each of them begins, and whether it is the first of its leaf.
    entries : int array
    values : float array (parameters * width,)
        The factors, in ordinary arithmetic.
    directions : float array (parameters * width,), or empty
        Derivatives of their logs; with them the tangents of the leaves are computed.
    w, tangents
        As for :func:`run_batch_steps`.
    """
    has_tangents = len(directions) > 0
    for m in range(len(members)):
        leaf = members[m, 0]
        begin = members[m, 2]
        is_first = members[m, 3] == 1
        for i in range(members[m, 1]):
            at = entries[begin + i] * width
            y = values[at : at + width]
            z = w[(leaf + i) * width : (leaf + i + 1) * width]
            if has_tangents:
                dy = directions[at : at + width]
                dz = tangents[(leaf + i) * width : (leaf + i + 1) * width]
                for c in range(width):
                    dz[c] = y[c] * dy[c] if is_first else y[c] * (dz[c] + z[c] * dy[c])
            if is_first:
                _copy(z, y)
            else:
                _scale(z, y)


@njit(**_OPTIONS)
def normalize_leaves(starts, sizes, changed, back, width, w, tangents, state, smallest, total, slope):
    """Turn the derivatives by leaves into the marginals of their scopes: times the leaves, over their sum.

    ``changed`` tells the leaves that are not in their derivatives yet. Rows whose sum is at most ``smallest`` are
    marked as underflow; ``total`` and ``slope`` are room for the sums and their tangents.
    """
    has_tangents = len(tangents) > 0
    for k in range(len(starts)):
        first = starts[k]
        total[:] = 0.0
        slope[:] = 0.0
        for i in range(first, first + sizes[k]):
            belief = w[(back + i) * width : (back + i + 1) * width]
            if changed[k]:
                leaf = w[i * width : (i + 1) * width]
                if has_tangents:
                    d_leaf = tangents[i * width : (i + 1) * width]
                    _scale_tangents(tangents[(back + i) * width : (back + i + 1) * width], belief, leaf, d_leaf)
                _scale(belief, leaf)
            for c in range(width):
                total[c] += belief[c]
                if has_tangents:
                    slope[c] += tangents[(back + i) * width + c]
        for c in range(width):
            if not total[c] > smallest:
                if state[c] == ANSWERED:
                    state[c] = UNDERFLOW
                total[c] = 1.0
            total[c] = 1.0 / total[c]
            slope[c] *= -total[c]
        for i in range(first, first + sizes[k]):
            belief = w[(back + i) * width : (back + i + 1) * width]
            if has_tangents:
                # Of the quotient: tangent over total, less the quotient times the tangent of the total over it.
                d_belief = tangents[(back + i) * width : (back + i + 1) * width]
                for c in range(width):
                    d_belief[c] = total[c] * (d_belief[c] + belief[c] * slope[c])
            _scale(belief, total)


@njit(**_OPTIONS)
def add_up_leaf(first, size, entries, is_changed, back, width, w, weights, state, smallest, total, out):
    """Add the marginals of a leaf, weighted by row and added up over the rows, to the ``entries`` of ``out``.

    The leaf, of which only the entries of the first row are there, is not normalized before; ``is_changed`` tells
    whether it is missing in its derivatives. Rows that are not answered count nothing; other arguments are those of
    :func:`normalize_leaves`.
    """
    total[:] = 0.0
    for i in range(first, first + size):
        _add_multiple(total, w[(back + i) * width : (back + i + 1) * width], w[i * width] if is_changed else 1.0)
    has_left_out = False
    for c in range(width):
        if not total[c] > smallest and state[c] == ANSWERED:
            state[c] = UNDERFLOW
        if state[c] == ANSWERED:
            total[c] = weights[c] / total[c]
        else:
            total[c] = 0.0
            has_left_out = True
    for i in range(first, first + size):
        slopes = w[(back + i) * width : (back + i + 1) * width]
        if has_left_out:
            for c in range(width):
                if state[c] != ANSWERED:
                    slopes[c] = 0.0
        out[entries[i - first]] += _weighted_sum(slopes, total) * (w[i * width] if is_changed else 1.0)
