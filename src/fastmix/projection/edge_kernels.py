"""Compiled: what a bound on an edge costs, and the path of its nearest table; see :mod:`fastmix.projection.edges`.

Knots lie one after another: those of an item from ``first`` up to ``end``. Kernels take the whole arrays, because
slices are slow. ``items`` are the first knot, the end and the scale of every item: with scale w, an item that has the
knots of ``f`` costs ``w^2 f(z / w)``, so that one path serves all edges that share a table. An item that has knots of
its own has scale 1. None in place of the scales stands for 1 everywhere; a kernel that is given both compiles twice.
"""

from __future__ import annotations

import numpy as np

from fastmix._jit import njit
from fastmix.chains.threshold_kernels import copy_values

__all__ = [
    "bound_at", "bounds_at", "cost_at", "item_bound", "item_cost", "item_last_slope", "table_path", "table_paths",
    "total_cost",
]  # fmt: skip

# Squared distance, relative to its length, below which a contrast is in the span of the active ones: it moves with them
# and is not added.
_IN_SPAN = 1e-10

# -- costs between knots ----------------------------------------------------------------------------------


@njit(cache=True, error_model="numpy")
def bound_at(mu, mus, zs, first, end):
    """The z(mu) that minimizes ``f(z) + mu z``, and its slope by mu.

    It is rho at mu = 0, and 0 from the last knot on.
    """
    if mu <= 0.0:
        return zs[first], 0.0
    if mu >= mus[end - 1]:
        return zs[end - 1], 0.0
    low = first
    high = end - 1
    while high - low > 1:
        middle = (low + high) // 2
        if mus[middle] <= mu:
            low = middle
        else:
            high = middle
    slope = (zs[high] - zs[low]) / (mus[high] - mus[low])
    return zs[low] + slope * (mu - mus[low]), slope


@njit(cache=True, error_model="numpy")
def cost_at(z, mus, zs, fs, first, end):
    """The cost f(z), by the trapezium rule from the knot above, which is exact because the slope is linear."""
    if z >= zs[first]:
        return 0.0
    if z <= zs[end - 1]:
        return fs[end - 1]
    low = first
    high = end - 1
    while high - low > 1:
        middle = (low + high) // 2
        if zs[middle] >= z:
            low = middle
        else:
            high = middle
    mu = mus[low] + (mus[high] - mus[low]) * (zs[low] - z) / (zs[low] - zs[high])
    return fs[low] + 0.5 * (mus[low] + mu) * (zs[low] - z)


@njit(cache=True, error_model="numpy")
def item_bound(mu, mus, zs, first, end, scales, k):
    """The z(mu) of item k, and its slope by mu, see :func:`bound_at`."""
    if scales is None:
        return bound_at(mu, mus, zs, first, end)
    scale = scales[k]
    if scale == 0.0:
        return 0.0, 0.0
    bound, slope = bound_at(mu / scale, mus, zs, first, end)
    return scale * bound, slope


@njit(cache=True, error_model="numpy")
def item_cost(z, mus, zs, fs, first, end, scales, k):
    """The cost of item k at z, see :func:`cost_at`."""
    if scales is None:
        return cost_at(z, mus, zs, fs, first, end)
    scale = scales[k]
    if scale == 0.0:
        return 0.0
    return scale * scale * cost_at(z / scale, mus, zs, fs, first, end)


@njit(cache=True, error_model="numpy")
def item_last_slope(mus, end, scales, k):
    """The slope at which item k reaches 0."""
    if scales is None:
        return mus[end - 1]
    return scales[k] * mus[end - 1]


@njit(cache=True, error_model="numpy")
def bounds_at(items, mus, zs, loads):
    """The z(load) of every item, see :func:`bound_at`."""
    firsts, ends, scales = items
    z = np.empty(len(loads))
    for k in range(len(loads)):
        z[k] = item_bound(loads[k], mus, zs, firsts[k], ends[k], scales, k)[0]
    return z


@njit(cache=True, error_model="numpy")
def total_cost(items, mus, zs, fs, z):
    """Sum of the costs f_k(z_k) of all items."""
    firsts, ends, scales = items
    total = 0.0
    for k in range(len(z)):
        total += item_cost(z[k], mus, zs, fs, firsts[k], ends[k], scales, k)
    return total


# -- the path of the nearest table as its bound is tightened ----------------------------------------------


@njit(cache=True)
def _gram(position, sign, k, l):
    """The inner product of two contrasts."""
    total = 0.0
    for a in range(position.shape[1]):
        for b in range(position.shape[1]):
            if position[k, a] == position[l, b]:
                total += sign[k, a] * sign[l, b]
    return total


@njit(cache=True)
def _append(chol, active, count, position, sign, k):
    """Add contrast k to the Cholesky factor of the active Gram matrix; returns False if it depends on the others."""
    for a in range(count):
        value = _gram(position, sign, k, active[a])
        for b in range(a):
            value -= chol[count, b] * chol[a, b]
        chol[count, a] = value / chol[a, a]
    size = _gram(position, sign, k, k)
    rest = size
    for a in range(count):
        rest -= chol[count, a] ** 2
    if rest <= _IN_SPAN * size:
        return False
    chol[count, count] = np.sqrt(rest)
    active[count] = k
    return True


@njit(cache=True)
def _solve(chol, count, right, out):
    """Solve the system of the active Gram matrix, from its Cholesky factor, forward and back."""
    for a in range(count):
        value = right[a]
        for b in range(a):
            value -= chol[a, b] * out[b]
        out[a] = value / chol[a, a]
    for a in range(count - 1, -1, -1):
        value = out[a]
        for b in range(a + 1, count):
            value -= chol[b, a] * out[b]
        out[a] = value / chol[a, a]


@njit(cache=True)
def _remove(chol, active, signs, weights, previous, count, place):
    """Take one contrast out of the active ones; returns the new number.

    Without its row the factor has one entry too many in each row below, which plane rotations of neighboring columns
    remove.
    """
    for a in range(place, count - 1):
        active[a] = active[a + 1]
        signs[a] = signs[a + 1]
        weights[a] = weights[a + 1]
        previous[a] = previous[a + 1]
        for b in range(a + 2):
            chol[a, b] = chol[a + 1, b]
    for c in range(place, count - 1):
        size = np.hypot(chol[c, c], chol[c, c + 1])
        cosine = chol[c, c] / size
        sine = chol[c, c + 1] / size
        for a in range(c, count - 1):
            x = chol[a, c]
            y = chol[a, c + 1]
            chol[a, c] = cosine * x + sine * y
            chol[a, c + 1] = cosine * y - sine * x
    return count - 1


@njit(cache=True)
def _correlate(values, position, sign, out):
    """Write the contrasts of a flat table to ``out``."""
    for k in range(position.shape[0]):
        total = 0.0
        for a in range(position.shape[1]):
            total += sign[k, a] * values[position[k, a]]
        out[k] = total


@njit(cache=True)
def _largest_size(values):
    """The largest absolute value."""
    result = 0.0
    for k in range(len(values)):
        result = max(result, abs(values[k]))
    return result


@njit(cache=True)
def _combine(direction, active, count, position, sign, out):
    """Write the sum of the active contrasts, weighted by ``direction``, to ``out`` as a flat table."""
    out[:] = 0.0
    for a in range(count):
        for b in range(position.shape[1]):
            out[position[active[a], b]] += sign[active[a], b] * direction[a]


@njit(cache=True)
def table_path(psi, position, sign, t_stop, knot_t, knot_weight, table, knot_tables):
    """Number of knots of the path of one flat table psi down to ``t_stop``, or -1 when the walk did not end.

    Contrast k (of M) is the sum of ``sign[k, a] * T[position[k, a]]``. ``knot_t`` and ``knot_weight`` receive the bound
    t and the sum of absolute weights ``|nu|_1`` at the ends of the pieces, ``table`` the nearest table at ``t_stop``,
    and ``knot_tables`` (knots, entries), which may be empty, those at the knots.

    Contrasts are linearly dependent, so several can reach the bound together. The direction in which the weights of
    those at the bound change is then itself a small least-squares problem with signs, solved as Lawson and Hanson
    (1974) do: add the contrast that would be violated most, and take out those whose weight would get a wrong sign.

    1. The path begins at the largest contrast, where the table is psi.
    2. On every piece: the direction of the weights for the contrasts at the bound.

       a. The least-squares solution for the active contrasts.
       b. Active contrasts whose weight would get a wrong sign leave, one after another.
       c. The contrast at the bound that would be violated most joins; again from a, until there is none.

    3. The length of the piece: to the end, to the next contrast at the bound, or to the next weight at zero.
    4. The step to the end of the piece, where a knot is noted.
    5. The contrast whose weight has become zero leaves.
    """
    num_contrasts = position.shape[0]
    rank = len(psi)
    correlation = np.empty(num_contrasts)
    rate = np.empty(num_contrasts)
    inside = np.zeros(num_contrasts, np.bool_)
    active = np.empty(rank + 1, np.int64)
    chol = np.empty((rank + 1, rank + 1))
    signs = np.zeros(rank + 1)
    weights = np.zeros(rank + 1)
    direction = np.zeros(rank + 1)
    previous = np.zeros(rank + 1)
    move = np.zeros(rank)

    # 1. The beginning of the path.
    copy_values(table, psi)
    _correlate(table, position, sign, correlation)
    t = _largest_size(correlation)
    knot_t[0] = t
    knot_weight[0] = 0.0
    if len(knot_tables):
        copy_values(knot_tables[0], table)
    num_knots = 1
    count = np.int64(0)  # a plain 0 is a type of its own, for which functions are compiled once more
    floor = max(1e-12 * t, 1e-14 * _largest_size(psi))  # contrasts below are rounding errors
    if t <= t_stop or t <= floor:
        return num_knots

    for _ in range(20 * num_contrasts + 100):
        # 2. The direction of the weights for the contrasts at the bound.
        _correlate(table, position, sign, correlation)
        for _ in range(4 * num_contrasts + 20):
            # 2a. The least-squares solution.
            if count:
                _solve(chol, count, signs, direction)

            # 2b. Weights that start from zero must gain; go back to where the first of them stopped, and drop it.
            while True:
                fraction = 2.0
                place = np.int64(-1)  # not a literal, for which functions would be compiled once more
                for a in range(count):
                    gain = direction[a] * signs[a]
                    if weights[a] == 0.0 and gain <= 0.0:
                        share = previous[a] / (previous[a] - gain) if previous[a] > gain else 0.0
                        if share < fraction:
                            fraction = share
                            place = np.int64(a)
                if place < 0:
                    break
                for a in range(count):
                    previous[a] += fraction * (direction[a] * signs[a] - previous[a])
                inside[active[place]] = False
                count = _remove(chol, active, signs, weights, previous, count, place)
                if count:
                    _solve(chol, count, signs, direction)
            for a in range(count):
                previous[a] = direction[a] * signs[a]

            # 2c. The contrast at the bound that falls most slowly behind it joins.
            _combine(direction, active, count, position, sign, move)
            _correlate(move, position, sign, rate)
            worst = 1.0 - 1e-9
            joining = np.int64(-1)
            for k in range(num_contrasts):
                if not inside[k] and abs(correlation[k]) >= t * (1.0 - 1e-12):
                    speed = rate[k] if correlation[k] > 0 else -rate[k]
                    if speed < worst:
                        worst = speed
                        joining = np.int64(k)
            if joining < 0:
                break
            if count >= rank or not _append(chol, active, count, position, sign, joining):
                return -1
            signs[count] = 1.0 if correlation[joining] > 0 else -1.0
            weights[count] = 0.0
            previous[count] = 0.0
            inside[joining] = True
            count += 1
        if count == 0:
            return -1

        # 3. The length of the piece.
        step = t - t_stop
        leaving = np.int64(-1)
        for k in range(num_contrasts):
            if not inside[k]:
                if 1.0 - rate[k] > 1e-9:
                    step = min(step, max(0.0, (t - correlation[k]) / (1.0 - rate[k])))
                if 1.0 + rate[k] > 1e-9:
                    step = min(step, max(0.0, (t + correlation[k]) / (1.0 + rate[k])))
        for a in range(count):
            if weights[a] * direction[a] < 0.0 and -weights[a] / direction[a] <= step:
                step = -weights[a] / direction[a]
                leaving = np.int64(a)

        # 4. The step to its end.
        gained = 0.0
        for a in range(count):
            weights[a] += step * direction[a]
            gained += step * direction[a] * signs[a]
        for p in range(rank):
            table[p] -= step * move[p]
        t -= step
        if step > 1e-13 * knot_t[0]:
            if num_knots >= len(knot_t) or (len(knot_tables) and num_knots >= len(knot_tables)):
                return -1
            knot_t[num_knots] = t
            knot_weight[num_knots] = knot_weight[num_knots - 1] + gained
            num_knots += 1
        elif num_knots > 1:  # a piece of the length of rounding errors: the knot before it moves
            knot_t[num_knots - 1] = t
            knot_weight[num_knots - 1] += gained
        if len(knot_tables) and num_knots > 1:
            copy_values(knot_tables[num_knots - 1], table)
        if t <= t_stop or t <= floor:
            return num_knots

        # 5. The contrast that leaves.
        if leaving >= 0:
            inside[active[leaving]] = False
            count = _remove(chol, active, signs, weights, previous, count, leaving)
    return -1


@njit(cache=True)
def table_paths(tables, position, sign, stops, knot_t, knot_weight, ends, counts):
    """Follow the paths of many tables of one shape, a row each; ``counts`` gets what :func:`table_path` returns."""
    none = np.empty((0, 0))
    for e in range(len(tables)):
        counts[e] = table_path(tables[e], position, sign, stops[e], knot_t[e], knot_weight[e], ends[e], none)
