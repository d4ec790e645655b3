"""Compiled ascent on the low-rank dual for the spectral norm; see :mod:`fastmix.projection.spectral`.

Division follows IEEE rules here and in the functions called: the value of a step that overshoots the range of numbers
is NaN, and the step is shortened.
"""

from __future__ import annotations

import numpy as np

from fastmix._jit import njit
from fastmix.chains.threshold_kernels import copy_values
from fastmix.projection.edge_kernels import bound_at, cost_at, item_bound, item_cost

__all__ = ["ascend"]


@njit(cache=True, error_model="numpy")
def _value_and_gradient(edges, pair_starts, pair_edges, pair_weights, items, mus, zs, fs, v, limit, gradient):
    """The negative of the dual at V, and its derivatives by V in ``gradient``.

    1. The term ``c ||V||^2``.
    2. Every factor, at the sum of the prices of its pairs; its scale adds to R of their edges.
    3. Every edge, at the price ``2 v_i . v_j``.
    """
    firsts, ends, scales = items
    rank = v.shape[1]
    m = edges.shape[0]
    num_factors = len(pair_starts) - 1
    value = 0.0

    # 1. The term of the limit.
    for i in range(v.shape[0]):
        for r in range(rank):
            value += limit * v[i, r] * v[i, r]
            gradient[i, r] = 2.0 * limit * v[i, r]

    # 2. Factors, and what they add to R of every edge.
    added = np.zeros(m if num_factors else 0)
    for k in range(num_factors):
        load = 0.0
        for p in range(pair_starts[k], pair_starts[k + 1]):
            load += 2.0 * pair_weights[p] * _dot(v[edges[pair_edges[p], 0]], v[edges[pair_edges[p], 1]])
        first = firsts[m + k]
        end = ends[m + k]
        scale = bound_at(load, mus, zs, first, end)[0]
        value -= load * scale + cost_at(scale, mus, zs, fs, first, end)
        for p in range(pair_starts[k], pair_starts[k + 1]):
            added[pair_edges[p]] += pair_weights[p] * scale

    # 3. Edges.
    for e in range(m):
        i = edges[e, 0]
        j = edges[e, 1]
        product = 0.0
        for r in range(rank):
            product += v[i, r] * v[j, r]
        mu = 2.0 * product
        first = firsts[e]
        end = ends[e]
        z = item_bound(mu, mus, zs, first, end, scales, e)[0]
        value -= mu * z + item_cost(z, mus, zs, fs, first, end, scales, e)
        if num_factors:
            z += added[e]
        z *= 2.0
        for r in range(rank):
            gradient[i, r] -= z * v[j, r]
            gradient[j, r] -= z * v[i, r]
    return value


@njit(cache=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def _dot(x, y):
    """The inner product of two vectors, summed in any order."""
    total = 0.0
    for k in range(len(x)):
        total += x[k] * y[k]
    return total


@njit(cache=True, error_model="numpy")
def _scale(x, factor):
    """Multiply a vector by a number."""
    for k in range(len(x)):
        x[k] *= factor


@njit(cache=True, error_model="numpy")
def _add(x, factor, y):
    """Add a multiple of y to x, in place."""
    for k in range(len(x)):
        x[k] += factor * y[k]


@njit(cache=True, error_model="numpy")
def ascend(
    edges,
    pair_starts,
    pair_edges,
    pair_weights,
    items,
    mus,
    zs,
    fs,
    v,
    limit,
    num_steps,
    steps,
    changes,
    products,
    used,
):
    """Climb the dual by at most ``num_steps`` steps of L-BFGS from v, in place.

    ``steps``, ``changes`` (memory, n * rank) and ``products`` hold the memory of the method between calls, and
    ``used`` how many pairs were ever stored. Returns the dual value, the new ``used`` and whether a step was still
    possible. The negative of the dual is minimized; every step has these parts:

    1. The direction: the gradient times the approximate inverse of the Hessian (two-loop recursion).
    2. Where the direction does not go down, the memory is forgotten; without a memory no step is possible.
    3. The length: halved until the value, or near the end the slope, has fallen far enough; else as in 2.
    4. The pair of changes of the point and of the gradient goes to the memory.
    5. The point moves.
    """
    memory = len(products)
    x = v.reshape(-1)
    gradient = np.empty_like(v)
    trial_gradient = np.empty_like(v)
    trial = np.empty_like(v)
    direction = np.empty(len(x))
    weights = np.empty(memory)
    pairs = (pair_starts, pair_edges, pair_weights)
    value = _value_and_gradient(edges, *pairs, items, mus, zs, fs, v, limit, gradient)
    for _ in range(num_steps):
        # 1. The direction.
        g = gradient.reshape(-1)
        copy_values(direction, g)
        stored = min(used, memory)
        for back in range(stored):
            k = (used - 1 - back) % memory
            weights[k] = _dot(steps[k], direction) / products[k]
            _add(direction, -weights[k], changes[k])
        if stored:
            k = (used - 1) % memory
            _scale(direction, products[k] / _dot(changes[k], changes[k]))
        else:
            _scale(direction, 0.1 / max(1e-300, np.sqrt(_dot(g, g))))
        for back in range(stored - 1, -1, -1):
            k = (used - 1 - back) % memory
            _add(direction, weights[k] - _dot(changes[k], direction) / products[k], steps[k])

        # 2. Forget the memory if the direction does not go down.
        slope = -_dot(g, direction)
        if not slope < 0.0:
            if used == 0:
                return -value, used, False
            used = 0
            continue

        # 3. The length.
        length = 1.0
        accepted = False
        for _ in range(30):
            y = trial.reshape(-1)
            copy_values(y, x)
            _add(y, -length, direction)
            new_value = _value_and_gradient(edges, *pairs, items, mus, zs, fs, trial, limit, trial_gradient)
            # Sufficient descent; near the end, where values differ by rounding only, that of the slope instead
            # (the approximate condition of Hager and Zhang, 2005).
            flat = new_value <= value + 1e-14 * abs(value)
            if new_value <= value + 1e-4 * length * slope or (
                flat and -_dot(trial_gradient.reshape(-1), direction) <= -0.9998 * slope
            ):
                accepted = True
                break
            length *= 0.5
        if not accepted:
            if used == 0:
                return -value, used, False
            used = 0
            continue

        # 4. The pair of changes, computed in the place of the direction and of the old gradient.
        _scale(direction, -length)
        _add(g, -1.0, trial_gradient.reshape(-1))
        product = -_dot(direction, g)
        size = _dot(g, g)
        if product > 1e-12 * size > 0.0:
            k = used % memory
            copy_values(steps[k], direction)
            copy_values(changes[k], g)
            _scale(changes[k], -1.0)
            products[k] = product
            used += 1
        elif size == 0.0:
            return -value, used, False

        # 5. The point.
        copy_values(x, trial.reshape(-1))
        copy_values(g, trial_gradient.reshape(-1))
        value = new_value
    return -value, used, True
