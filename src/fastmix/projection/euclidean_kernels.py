"""Compiled passes over the nodes for the infinity norm; see :mod:`fastmix.projection.euclidean`.

The dual has one multiplier lam_i per node, the price of the row sum of R at that node.
"""

from __future__ import annotations

import numpy as np

from fastmix._jit import njit
from fastmix.projection.edge_kernels import item_bound, item_cost, item_last_slope

__all__ = ["ascend_general", "ascend_quadratic", "ascend_rows", "dual_and_primal"]


@njit(cache=True, error_model="numpy")
def ascend_quadratic(indptr, neighbors, steepest, lam, limit, relaxation):
    """One pass over the nodes for ``f = k (rho - z)^2``, with the steepest slopes ``2 k rho`` and 2 k times the limit.

    With the others fixed, the best lam_i makes ``sum_j (2 k rho_ij - lam_j - lam_i)_+`` equal to the limit, or is 0:
    the threshold of a projection onto the l1 ball. Newton's method from where it was takes one or two looks, of which
    the last changes nothing (from 0, Michelot 1986). Going beyond it by the factor ``relaxation`` (successive
    over-relaxation) saves most of the passes.
    """
    for i in range(len(lam)):
        best = lam[i]
        for look in range(2 + indptr[i + 1] - indptr[i]):
            # Values above the threshold are summed up; the threshold is right if it separates them from the others.
            total = -limit
            count = 0
            lowest = np.inf
            highest = -np.inf
            for k in range(indptr[i], indptr[i + 1]):
                value = steepest[k] - lam[neighbors[k]]
                if value > best:
                    total += value
                    count += 1
                    lowest = min(lowest, value)
                else:
                    highest = max(highest, value)
            if count == 0 and look > 0:  # the threshold is the largest value, but for rounding
                break
            best = max(0.0, total / count) if count else 0.0
            if highest <= best < lowest:
                break
        lam[i] = max(0.0, lam[i] + relaxation * (best - lam[i]))


@njit(cache=True, error_model="numpy")
def ascend_general(indptr, around, weights, items, mus, zs, lam, loads, limit, relaxation):
    """One pass over the nodes for general costs, multipliers lam, and ``loads``, what they make every item cost.

    The best multiplier of a node solves ``sum_k w_k z_k(load_k) = limit`` over its items, whose loads grow by w_k with
    it: a decreasing piecewise linear equation, solved by Newton's method with a bracket. For every node:

    1. The sum at the multiplier 0, and the smallest multiplier at which all items are 0.
    2. If that sum is above the limit: Newton's method, and bisection where it leaves the bracket.
    3. A step from the old multiplier beyond the best one by the factor ``relaxation``, and the loads that follow.
    """
    firsts, ends, scales = items
    for i in range(len(lam)):
        # 1. The sum at the multiplier 0, and the end of the bracket.
        low = 0.0
        high = 0.0
        total = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            k = around[p]
            weight = weights[p]
            other = loads[k] - weight * lam[i]
            end = ends[k]
            total += weight * item_bound(other, mus, zs, firsts[k], end, scales, k)[0]
            high = max(high, (item_last_slope(mus, end, scales, k) - other) / weight)

        # 2. Newton's method with a bracket.
        best = 0.0
        if total > limit:
            best = min(max(lam[i], low), high)
            for _ in range(100):
                total = 0.0
                slope = 0.0
                for p in range(indptr[i], indptr[i + 1]):
                    k = around[p]
                    weight = weights[p]
                    load = loads[k] + weight * (best - lam[i])
                    bound, tilt = item_bound(load, mus, zs, firsts[k], ends[k], scales, k)
                    total += weight * bound
                    slope += weight * weight * tilt
                if total > limit:
                    low = best
                else:
                    high = best
                if abs(total - limit) <= 1e-15 * limit or high - low <= 1e-16 * high:
                    break
                best = best - (total - limit) / slope if slope < 0.0 else 0.5 * (low + high)
                if not low < best < high:
                    best = 0.5 * (low + high)

        # 3. The step, and the loads that follow.
        following = max(0.0, lam[i] + relaxation * (best - lam[i]))
        for p in range(indptr[i], indptr[i + 1]):
            loads[around[p]] += weights[p] * (following - lam[i])
        lam[i] = following


@njit(cache=True, error_model="numpy")
def dual_and_primal(indptr, around, weights, items, mus, zs, fs, lam, loads, limit, cap, z):
    """Dual value for the limit, and the cost of the point next to lam that meets the cap, which is left in ``z``.

    The cap is the limit less a margin for rounding.

    1. ``loads`` are made anew from lam, so that rounding does not add up over the passes.
    2. The bound of every item at its load, and the dual value.
    3. The factor by which items must shrink, so that no node is over the cap.
    4. The shrunk point and its cost.
    """
    firsts, ends, scales = items
    # 1. Loads.
    loads[:] = 0.0
    dual = 0.0
    for i in range(len(lam)):
        dual -= limit * lam[i]
        for p in range(indptr[i], indptr[i + 1]):
            loads[around[p]] += weights[p] * lam[i]

    # 2. Bounds and the dual value.
    for k in range(len(z)):
        first = firsts[k]
        end = ends[k]
        z[k] = item_bound(loads[k], mus, zs, first, end, scales, k)[0]
        dual += item_cost(z[k], mus, zs, fs, first, end, scales, k) + loads[k] * z[k]

    # 3. Factors: the smallest over the nodes at which an item counts.
    share = np.ones(len(z))
    for i in range(len(lam)):
        total = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            total += weights[p] * z[around[p]]
        if total > cap:
            for p in range(indptr[i], indptr[i + 1]):
                share[around[p]] = min(share[around[p]], cap / total)

    # 4. The feasible point and its cost.
    primal = 0.0
    for k in range(len(z)):
        z[k] *= share[k]
        primal += item_cost(z[k], mus, zs, fs, firsts[k], ends[k], scales, k)
    return dual, primal


@njit(cache=True, error_model="numpy")
def ascend_rows(graph, incidence, items, costs, steepest, lam, z, goal, effort):
    """Passes over the nodes for many rows of tables on one graph, each until its own gap is small.

    Multipliers are left in ``lam`` (N, n), and bounds in ``z`` (N, m). ``items`` are the first knots and the ends
    (N, m) of every item, ``steepest`` (N, 2m) the slopes of :func:`ascend_quadratic`, or without columns where costs
    are general. ``goal`` is the limit, the cap, the relative gap and 2 k; ``effort`` the passes between two looks at
    the gap, the most looks, and the relaxation.
    """
    indptr, neighbors = graph
    around, weights = incidence
    firsts, ends = items
    mus, zs, fs = costs
    limit, cap, tol, steepness = goal
    num_passes, num_looks, relaxation = effort
    for r in range(len(lam)):
        own = (firsts[r], ends[r], None)
        loads = np.zeros(z.shape[1])
        for _ in range(num_looks):
            dual, primal = dual_and_primal(indptr, around, weights, own, mus, zs, fs, lam[r], loads, limit, cap, z[r])
            if primal - dual <= tol * (1.0 + primal):
                break
            for _ in range(num_passes):
                if steepest.shape[1]:
                    ascend_quadratic(indptr, neighbors, steepest[r], lam[r], steepness * limit, relaxation)
                else:
                    ascend_general(indptr, around, weights, own, mus, zs, lam[r], loads, limit, relaxation)
