"""Compiled loops of the fast Euclidean projection.

An edge's cost is given by knots with ascending slope mu and descending bound z (see :mod:`fastmix.projection.edges`).
Its conjugate is ``h(mu) = min_z f(z) + mu z``, and the minimiser z(mu) is piecewise linear: it is rho at mu = 0 and 0
from the last knot on.
"""

from __future__ import annotations

import numpy as np

from fastmix._jit import njit

__all__ = ["dual_and_primal", "frobenius_bounds", "quadratic_dual_and_primal", "quadratic_sweep", "sweep", "total_cost"]

_SORTED = 64  # neighbours up to which sorting by insertion is fastest


@njit(cache=True, error_model="numpy")
def _bound_at(mu, mus, zs):  # type: ignore[no-untyped-def]
    """z(mu), its slope, and the piece it is on."""
    last = len(mus) - 1
    if mu <= 0.0:
        return zs[0], 0.0, 0
    if mu >= mus[last]:
        return zs[last], 0.0, last
    low, high = 0, last
    while high - low > 1:
        middle = (low + high) // 2
        if mus[middle] <= mu:
            low = middle
        else:
            high = middle
    slope = (zs[high] - zs[low]) / (mus[high] - mus[low])
    return zs[low] + slope * (mu - mus[low]), slope, low


@njit(cache=True, error_model="numpy")
def _cost_at(z, mus, zs, fs):  # type: ignore[no-untyped-def]
    """f(z) by the trapezium rule from the knot above, exact because the slope is linear."""
    last = len(zs) - 1
    if z >= zs[0]:
        return 0.0
    if z <= zs[last]:
        return fs[last]
    low, high = 0, last
    while high - low > 1:
        middle = (low + high) // 2
        if zs[middle] >= z:
            low = middle
        else:
            high = middle
    mu = mus[low] + (mus[high] - mus[low]) * (zs[low] - z) / (zs[low] - zs[high])
    return fs[low] + 0.5 * (mus[low] + mu) * (zs[low] - z)


@njit(cache=True, error_model="numpy")
def total_cost(start, mus, zs, fs, z):  # type: ignore[no-untyped-def]
    """Sum of f_e(z_e)."""
    total = 0.0
    for e in range(len(z)):
        a, b = start[e], start[e + 1]
        total += _cost_at(z[e], mus[a:b], zs[a:b], fs[a:b])
    return total


@njit(cache=True, error_model="numpy")
def quadratic_sweep(indptr, neighbors, rho, tau, limit, relaxation):  # type: ignore[no-untyped-def]
    """One pass over the nodes for ``f = 4 (rho - z)^2`` and multipliers ``8 tau``, largest change returned.

    With the others fixed, the best tau_i makes ``sum_j (rho_ij - tau_j - tau_i)_+`` equal to the limit, or is 0: the
    threshold of a projection onto the l1 ball (Duchi et al., 2008), here on a handful of sorted values; of many, those
    below it are dropped until none is left (Michelot, 1986). Going beyond it by the factor ``relaxation`` (successive
    over-relaxation) saves most of the passes.
    """
    widest = 0
    for i in range(len(tau)):
        widest = max(widest, indptr[i + 1] - indptr[i])
    values = np.empty(widest)
    largest = 0.0
    for i in range(len(tau)):
        total, count = 0.0, 0
        few = indptr[i + 1] - indptr[i] <= _SORTED
        for k in range(indptr[i], indptr[i + 1]):
            value = rho[k] - tau[neighbors[k]]
            if value > 0.0:
                total += value
                place = count
                while few and place > 0 and values[place - 1] < value:
                    values[place] = values[place - 1]
                    place -= 1
                values[place] = value
                count += 1
        best = 0.0
        if total > limit and few:
            total = 0.0
            for k in range(count):
                total += values[k]
                best = (total - limit) / (k + 1)
                if k + 1 == count or best >= values[k + 1]:
                    break
        elif total > limit:
            dropped = 1
            while dropped > 0 and count > 0:
                best, kept = (total - limit) / count, 0
                total = 0.0
                for k in range(count):
                    if values[k] > best:
                        values[kept] = values[k]
                        total += values[k]
                        kept += 1
                dropped = count - kept
                count = kept
        change = best - tau[i]
        largest = max(largest, abs(change))
        tau[i] = max(0.0, tau[i] + relaxation * change)
    return largest


@njit(cache=True, error_model="numpy")
def quadratic_dual_and_primal(edges, rho, tau, limit, cap, z, sums):  # type: ignore[no-untyped-def]
    """Dual value for the limit, and the cost of the point next to tau that meets the cap, which is left in ``z``.

    The cap is the limit less a margin for rounding.
    """
    sums[:] = 0.0
    dual = 0.0
    for e in range(len(rho)):
        i, j = edges[e, 0], edges[e, 1]
        shift = tau[i] + tau[j]
        z[e] = max(0.0, rho[e] - shift)
        sums[i] += z[e]
        sums[j] += z[e]
        dual += 4.0 * shift * (2.0 * rho[e] - shift) if z[e] > 0.0 else 4.0 * rho[e] ** 2
    for i in range(len(tau)):
        dual -= 8.0 * limit * tau[i]
    primal = 0.0
    for e in range(len(rho)):
        most = max(sums[edges[e, 0]], sums[edges[e, 1]])
        if most > cap:
            z[e] *= cap / most
        primal += 4.0 * (rho[e] - z[e]) ** 2
    return dual, primal


@njit(cache=True, error_model="numpy")
def sweep(indptr, neighbors, edge_ids, start, mus, zs, lam, limit, relaxation):  # type: ignore[no-untyped-def]
    """One pass over the nodes for general costs, largest change returned.

    The best multiplier of a node solves ``sum_e z_e(lam_i + lam_j) = limit``, a decreasing piecewise linear equation:
    Newton's method with a bracket.
    """
    largest = 0.0
    for i in range(len(lam)):
        low, high = 0.0, 0.0
        total = 0.0
        for k in range(indptr[i], indptr[i + 1]):
            a, b = start[edge_ids[k]], start[edge_ids[k] + 1]
            other = lam[neighbors[k]]
            total += _bound_at(other, mus[a:b], zs[a:b])[0]
            high = max(high, mus[b - 1] - other)
        best = 0.0
        if total > limit:
            best = min(max(lam[i], low), high)
            for _ in range(100):
                total, slope = 0.0, 0.0
                for k in range(indptr[i], indptr[i + 1]):
                    a, b = start[edge_ids[k]], start[edge_ids[k] + 1]
                    bound, tilt, _ = _bound_at(best + lam[neighbors[k]], mus[a:b], zs[a:b])
                    total += bound
                    slope += tilt
                if total > limit:
                    low = best
                else:
                    high = best
                if abs(total - limit) <= 1e-15 * limit or high - low <= 1e-16 * high:
                    break
                best = best - (total - limit) / slope if slope < 0.0 else 0.5 * (low + high)
                if not low < best < high:
                    best = 0.5 * (low + high)
        change = best - lam[i]
        largest = max(largest, abs(change))
        lam[i] = max(0.0, lam[i] + relaxation * change)
    return largest


@njit(cache=True, error_model="numpy")
def dual_and_primal(edges, start, mus, zs, fs, lam, limit, cap, z, sums):  # type: ignore[no-untyped-def]
    """The same as :func:`quadratic_dual_and_primal` for general costs and multipliers lam."""
    sums[:] = 0.0
    dual = 0.0
    for e in range(len(z)):
        i, j = edges[e, 0], edges[e, 1]
        a, b = start[e], start[e + 1]
        mu = lam[i] + lam[j]
        z[e] = _bound_at(mu, mus[a:b], zs[a:b])[0]
        dual += _cost_at(z[e], mus[a:b], zs[a:b], fs[a:b]) + mu * z[e]
        sums[i] += z[e]
        sums[j] += z[e]
    for i in range(len(lam)):
        dual -= limit * lam[i]
    primal = 0.0
    for e in range(len(z)):
        a, b = start[e], start[e + 1]
        most = max(sums[edges[e, 0]], sums[edges[e, 1]])
        if most > cap:
            z[e] *= cap / most
        primal += _cost_at(z[e], mus[a:b], zs[a:b], fs[a:b])
    return dual, primal


@njit(cache=True, error_model="numpy")
def frobenius_bounds(start, mus, zs, eta):  # type: ignore[no-untyped-def]
    """The z of every edge that minimises ``f_e(z) + 2 eta z^2``: where its slope mu is ``4 eta z``."""
    z = np.empty(len(start) - 1)
    for e in range(len(z)):
        k, last = start[e], start[e + 1] - 1
        while k < last and mus[k + 1] <= 4.0 * eta * zs[k + 1]:
            k += 1
        if k == last:
            z[e] = zs[last]
        else:
            # On this piece z = zs[k] + slope (mu - mus[k]) and mu = 4 eta z.
            slope = (zs[k + 1] - zs[k]) / (mus[k + 1] - mus[k])
            z[e] = (zs[k] - slope * mus[k]) / (1.0 - 4.0 * eta * slope)
    return z
