"""Compiled: what a bound on an edge costs, and the path of its nearest table; see :mod:`fastmix.projection.edges`."""

from __future__ import annotations

import numpy as np

from fastmix._jit import njit

__all__ = ["bound_at", "bounds_at", "cost_at", "table_path", "table_paths", "total_cost"]

_TINY = 1e-10  # a contrast this close to the span of the active ones moves with them and is not added

# -- costs between knots ----------------------------------------------------------------------------------


# Knots of an item are those from ``first`` up to ``end``; kernels take the whole arrays, because slices are slow.


@njit(cache=True, error_model="numpy")
def bound_at(mu, mus, zs, first, end):  # type: ignore[no-untyped-def]
    """The z(mu) that minimises ``f(z) + mu z``, and its slope: rho at mu = 0, and 0 from the last knot on."""
    if mu <= 0.0:
        return zs[first], 0.0
    if mu >= mus[end - 1]:
        return zs[end - 1], 0.0
    low, high = first, end - 1
    while high - low > 1:
        middle = (low + high) // 2
        if mus[middle] <= mu:
            low = middle
        else:
            high = middle
    slope = (zs[high] - zs[low]) / (mus[high] - mus[low])
    return zs[low] + slope * (mu - mus[low]), slope


@njit(cache=True, error_model="numpy")
def cost_at(z, mus, zs, fs, first, end):  # type: ignore[no-untyped-def]
    """f(z) by the trapezium rule from the knot above, exact because the slope is linear."""
    if z >= zs[first]:
        return 0.0
    if z <= zs[end - 1]:
        return fs[end - 1]
    low, high = first, end - 1
    while high - low > 1:
        middle = (low + high) // 2
        if zs[middle] >= z:
            low = middle
        else:
            high = middle
    mu = mus[low] + (mus[high] - mus[low]) * (zs[low] - z) / (zs[low] - zs[high])
    return fs[low] + 0.5 * (mus[low] + mu) * (zs[low] - z)


@njit(cache=True, error_model="numpy")
def bounds_at(start, mus, zs, loads):  # type: ignore[no-untyped-def]
    """:func:`bound_at` of all items, at what each costs."""
    z = np.empty(len(loads))
    for k in range(len(loads)):
        a, b = start[k], start[k + 1]
        z[k] = bound_at(loads[k], mus, zs, a, b)[0]
    return z


@njit(cache=True, error_model="numpy")
def total_cost(start, mus, zs, fs, z):  # type: ignore[no-untyped-def]
    """Sum of f_e(z_e)."""
    total = 0.0
    for e in range(len(z)):
        a, b = start[e], start[e + 1]
        total += cost_at(z[e], mus, zs, fs, a, b)
    return total


# -- the path of the nearest table as its bound is tightened ----------------------------------------------


@njit(cache=True)
def _gram(position, sign, k, l):  # type: ignore[no-untyped-def]
    total = 0.0
    for a in range(position.shape[1]):
        for b in range(position.shape[1]):
            if position[k, a] == position[l, b]:
                total += sign[k, a] * sign[l, b]
    return total


@njit(cache=True)
def _append(chol, active, count, position, sign, k):  # type: ignore[no-untyped-def]
    """Add contrast k to the Cholesky factor of the active Gram matrix; False if it depends on the others."""
    for a in range(count):
        value = _gram(position, sign, k, active[a])
        for b in range(a):
            value -= chol[count, b] * chol[a, b]
        chol[count, a] = value / chol[a, a]
    size = _gram(position, sign, k, k)
    rest = size
    for a in range(count):
        rest -= chol[count, a] ** 2
    if rest <= _TINY * size:
        return False
    chol[count, count] = np.sqrt(rest)
    active[count] = k
    return True


@njit(cache=True)
def _solve(chol, count, right, out):  # type: ignore[no-untyped-def]
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
def _remove(chol, active, signs, weights, previous, count, place):  # type: ignore[no-untyped-def]
    """Take one contrast out of the active ones; returns the new number.

    Without its row the factor has one entry too many in each row below, which plane rotations of neighboring columns
    remove.
    """
    for a in range(place, count - 1):
        active[a], signs[a], weights[a], previous[a] = active[a + 1], signs[a + 1], weights[a + 1], previous[a + 1]
        for b in range(a + 2):
            chol[a, b] = chol[a + 1, b]
    for c in range(place, count - 1):
        size = np.hypot(chol[c, c], chol[c, c + 1])
        cosine, sine = chol[c, c] / size, chol[c, c + 1] / size
        for a in range(c, count - 1):
            x, y = chol[a, c], chol[a, c + 1]
            chol[a, c], chol[a, c + 1] = cosine * x + sine * y, cosine * y - sine * x
    return count - 1


@njit(cache=True)
def _correlate(values, position, sign, out):  # type: ignore[no-untyped-def]
    for k in range(position.shape[0]):
        total = 0.0
        for a in range(position.shape[1]):
            total += sign[k, a] * values[position[k, a]]
        out[k] = total


@njit(cache=True)
def _combine(direction, active, count, position, sign, out):  # type: ignore[no-untyped-def]
    out[:] = 0.0
    for a in range(count):
        for b in range(position.shape[1]):
            out[position[active[a], b]] += sign[active[a], b] * direction[a]


@njit(cache=True)
def table_path(psi, position, sign, t_stop, knot_t, knot_weight, table):  # type: ignore[no-untyped-def]
    """Number of knots of the path of one flat table psi down to ``t_stop``, or -1 when the walk did not end.

    Contrast k (of M) is the sum of ``sign[k, a] * T[position[k, a]]``. ``knot_t`` and ``knot_weight`` receive the bound
    t and the sum of absolute weights ``|nu|_1`` at the ends of the pieces, ``table`` the nearest table at ``t_stop``.

    Contrasts are linearly dependent, so several can reach the bound together. The direction in which the weights of
    those at the bound change is then itself a small least-squares problem with signs, solved as Lawson and Hanson
    (1974) do: add the contrast that would be violated most, and take out those whose weight would get a wrong sign.
    """
    num_contrasts = position.shape[0]
    rank = len(psi)
    correlation, rate = np.empty(num_contrasts), np.empty(num_contrasts)
    inside = np.zeros(num_contrasts, np.bool_)
    active = np.empty(rank + 1, np.int64)
    chol = np.empty((rank + 1, rank + 1))
    signs, weights = np.zeros(rank + 1), np.zeros(rank + 1)
    direction, previous = np.zeros(rank + 1), np.zeros(rank + 1)
    move = np.zeros(rank)
    for k in range(rank):
        table[k] = psi[k]
    _correlate(table, position, sign, correlation)
    t = np.abs(correlation).max()
    knot_t[0], knot_weight[0] = t, 0.0
    num_knots, count = 1, np.int64(0)  # a plain 0 is a type of its own, for which functions are compiled once more
    floor = max(1e-12 * t, 1e-14 * np.abs(psi).max())  # contrasts below are rounding errors
    if t <= t_stop or t <= floor:
        return num_knots
    for _ in range(20 * num_contrasts + 100):
        _correlate(table, position, sign, correlation)
        # Direction of the weights for the contrasts at the bound.
        for _ in range(4 * num_contrasts + 20):
            if count:
                _solve(chol, count, signs, direction)
            while True:
                # Weights that start from zero must gain; go back to where the first of them stopped, and drop it.
                fraction, place = 2.0, -1
                for a in range(count):
                    gain = direction[a] * signs[a]
                    if weights[a] == 0.0 and gain <= 0.0:
                        share = previous[a] / (previous[a] - gain) if previous[a] > gain else 0.0
                        if share < fraction:
                            fraction, place = share, a
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
            _combine(direction, active, count, position, sign, move)
            _correlate(move, position, sign, rate)
            worst, joining = 1.0 - 1e-9, -1
            for k in range(num_contrasts):
                if not inside[k] and abs(correlation[k]) >= t * (1.0 - 1e-12):
                    speed = rate[k] if correlation[k] > 0 else -rate[k]
                    if speed < worst:
                        worst, joining = speed, k
            if joining < 0:
                break
            if count >= rank or not _append(chol, active, count, position, sign, joining):
                return -1
            signs[count] = 1.0 if correlation[joining] > 0 else -1.0
            weights[count], previous[count] = 0.0, 0.0
            inside[joining] = True
            count += 1
        if count == 0:
            return -1
        # The longest step: to the end, to the next contrast at the bound, or to the next weight at zero.
        step, leaving = t - t_stop, -1
        for k in range(num_contrasts):
            if not inside[k]:
                if 1.0 - rate[k] > 1e-9:
                    step = min(step, max(0.0, (t - correlation[k]) / (1.0 - rate[k])))
                if 1.0 + rate[k] > 1e-9:
                    step = min(step, max(0.0, (t + correlation[k]) / (1.0 + rate[k])))
        for a in range(count):
            if weights[a] * direction[a] < 0.0 and -weights[a] / direction[a] <= step:
                step, leaving = -weights[a] / direction[a], a
        gained = 0.0
        for a in range(count):
            weights[a] += step * direction[a]
            gained += step * direction[a] * signs[a]
        for p in range(rank):
            table[p] -= step * move[p]
        t -= step
        if step > 1e-13 * knot_t[0]:
            if num_knots >= len(knot_t):
                return -1
            knot_t[num_knots] = t
            knot_weight[num_knots] = knot_weight[num_knots - 1] + gained
            num_knots += 1
        elif num_knots > 1:  # a piece of the length of rounding errors: the knot before it moves
            knot_t[num_knots - 1] = t
            knot_weight[num_knots - 1] += gained
        if t <= t_stop or t <= floor:
            return num_knots
        if leaving >= 0:
            inside[active[leaving]] = False
            count = _remove(chol, active, signs, weights, previous, count, leaving)
    return -1


@njit(cache=True)
def table_paths(tables, position, sign, stops, knot_t, knot_weight, ends, counts):  # type: ignore[no-untyped-def]
    """The paths of many tables of one shape, a row each."""
    for e in range(len(tables)):
        counts[e] = table_path(tables[e], position, sign, stops[e], knot_t[e], knot_weight[e], ends[e])
