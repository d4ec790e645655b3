"""Euclidean projection onto the spectral-norm ball: compiled ascent on its low-rank dual.

The constraint ``lambda_max(Z) <= c`` has one positive semidefinite multiplier W = V V^T (Burer and Monteiro, 2003).
Only its entries on the edges matter, so the dual ``sum_e h_e(2 v_i . v_j) - c ||V||^2`` with
``h(mu) = min_z f(z) + mu z`` needs no decomposition; a factor adds h of its scale, at the weighted sum over its pairs.
The negative of the dual is minimised here by limited-memory BFGS (Nocedal, 1980). A step may overshoot beyond the range
of numbers; division follows IEEE rules here and in the functions called, so that its value is NaN and the step is
shortened.

Liu and Domke (2014, section 5.2) clip singular values instead.
"""

from __future__ import annotations

import numpy as np

from fastmix._jit import njit
from fastmix.projection.edge_kernels import bound_at, bounds_at, cost_at
from fastmix.projection.edges import EdgeCosts
from fastmix.projection.euclidean import Solution, Target, repeat
from fastmix.theory.dependency import to_matrix
from fastmix.theory.norms import matrix_norm

__all__ = ["solve_spectral"]

_RANK = 8
_MEMORY = 8
_BLOCK = 50  # steps between two looks at the norm
_NORM_SLACK = 2e-10  # by which two safe-side norms of nearly the same matrix can differ
_SHARE, _NORM_SHARE = 0.6, 0.3  # of the time for steps, and of the rest for a norm: a measure and more come after it
_WORK = 5e8  # numbers that one compiled call may go through: the clock is read between calls


def solve_spectral(costs: EdgeCosts, target: Target) -> Solution:
    """Projection onto ``lambda_max(Z) <= limit``; the multipliers are the factor V (n, 8) of W = V V^T.

    At the optimum ``W (c I - Z) = 0``, so that the rank of W is at most the multiplicity of the largest eigenvalue of
    Z; 8 is enough unless more eigenvalues than that meet at the limit. The dual is concave in W and not in V, but any V
    gives a valid lower bound: an ascent that gets stuck, or lacks the rank, is reported as not converged.
    """
    model = costs.model
    n, (first, second) = model.num_variables, model.edges.T
    if target.start is not None and target.start.ndim == 2 and target.start.shape[0] == n:
        v = np.ascontiguousarray(target.start, dtype=np.float64).copy()
    else:
        # Any start off the saddle at 0 will do; a fixed generator keeps the answer the same in every run.
        v = np.random.default_rng(0).normal(scale=0.5 / np.sqrt(_RANK), size=(n, _RANK))
    steps, changes = np.zeros((_MEMORY, v.size)), np.zeros((_MEMORY, v.size))
    products = np.zeros(_MEMORY)
    solution = Solution(np.zeros(len(costs.start) - 1), v)
    knots = (model.edges, *costs.pairs, costs.start, costs.mu, costs.z)
    at_once = int(min(_BLOCK, 1 + _WORK / (4.0 * _MEMORY * v.size + 4.0 * v.shape[1] * model.num_edges)))
    used, last_dual = 0, -np.inf

    def step() -> bool:
        nonlocal used, last_dual
        last, moving = min(solution.iterations + _BLOCK, target.max_iter), True
        while moving and solution.iterations < last:
            count = min(at_once, last - solution.iterations)
            dual, used, moving = _ascend(*knots, costs.f, v, target.limit, count, steps, changes, products, used)
            solution.iterations += count
            if target.clock.past(_SHARE):
                break
        late, gain = target.clock.past(_SHARE), dual - last_dual
        last_dual = dual
        if moving and not late and solution.iterations < target.max_iter and gain > target.tol * (1.0 + dual):
            return False  # the gap cannot be known to be closed: no need of the norm, which takes longer than steps
        z = bounds_at(costs.start, costs.mu, costs.z, costs.loads(2.0 * np.sum(v[first] * v[second], axis=1)))
        clock = target.clock.part(_NORM_SHARE)
        norm = matrix_norm(to_matrix(model, costs.dependencies(z)), "spectral", clock=clock)
        if norm > (cap := target.cap * (1.0 - min(_NORM_SLACK, 0.01 * target.tol))):
            z *= cap / norm
        done = solution.update(costs.cost(z), dual, z, target.tol) or not moving
        solution.late = late and not solution.converged
        return done or late

    repeat(step, solution, target)
    return solution


# -- compiled -------------------------------------------------------------------------------------------------------


@njit(cache=True, error_model="numpy")
def _value_and_gradient(edges, pair_starts, pair_edges, pair_weights, start, mus, zs, fs, v, limit, gradient):  # type: ignore[no-untyped-def]
    rank, m, num_factors = v.shape[1], edges.shape[0], len(pair_starts) - 1
    value = 0.0
    for i in range(v.shape[0]):
        for r in range(rank):
            value += limit * v[i, r] * v[i, r]
            gradient[i, r] = 2.0 * limit * v[i, r]
    added = np.zeros(m if num_factors else 0)  # to R of every edge by factors
    for k in range(num_factors):
        load = 0.0
        for p in range(pair_starts[k], pair_starts[k + 1]):
            load += 2.0 * pair_weights[p] * _dot(v[edges[pair_edges[p], 0]], v[edges[pair_edges[p], 1]])
        a, b = start[m + k], start[m + k + 1]
        scale = bound_at(load, mus, zs, a, b)[0]
        value -= load * scale + cost_at(scale, mus, zs, fs, a, b)
        for p in range(pair_starts[k], pair_starts[k + 1]):
            added[pair_edges[p]] += pair_weights[p] * scale
    for e in range(m):
        i, j = edges[e, 0], edges[e, 1]
        product = 0.0
        for r in range(rank):
            product += v[i, r] * v[j, r]
        a, b = start[e], start[e + 1]
        mu = 2.0 * product
        z = bound_at(mu, mus, zs, a, b)[0]
        value -= mu * z + cost_at(z, mus, zs, fs, a, b)
        if num_factors:
            z += added[e]
        z *= 2.0
        for r in range(rank):
            gradient[i, r] -= z * v[j, r]
            gradient[j, r] -= z * v[i, r]
    return value


@njit(cache=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def _dot(x, y):  # type: ignore[no-untyped-def]
    total = 0.0
    for k in range(len(x)):
        total += x[k] * y[k]
    return total


@njit(cache=True, error_model="numpy")
def _add(x, factor, y):  # type: ignore[no-untyped-def]
    for k in range(len(x)):
        x[k] += factor * y[k]


@njit(cache=True, error_model="numpy")
def _ascend(  # type: ignore[no-untyped-def]
    edges, pair_starts, pair_edges, pair_weights, start, mus, zs, fs, v, limit, num_steps, steps, changes, products,
    used,
):  # fmt: skip
    """At most ``num_steps`` steps of L-BFGS from v, in place.

    ``steps``, ``changes`` (memory, n * rank) and ``products`` hold the memory of the method between calls, and
    ``used`` how many pairs were ever stored. Returns the dual value, the new ``used`` and whether a step was still
    possible.
    """
    memory = len(products)
    x = v.reshape(-1)
    gradient, trial_gradient = np.empty_like(v), np.empty_like(v)
    trial = np.empty_like(v)
    direction = np.empty(len(x))
    weights = np.empty(memory)
    pairs = (pair_starts, pair_edges, pair_weights)
    value = _value_and_gradient(edges, *pairs, start, mus, zs, fs, v, limit, gradient)
    for _ in range(num_steps):
        g = gradient.reshape(-1)
        direction[:] = g
        stored = min(used, memory)
        for back in range(stored):
            k = (used - 1 - back) % memory
            weights[k] = _dot(steps[k], direction) / products[k]
            _add(direction, -weights[k], changes[k])
        if stored:
            k = (used - 1) % memory
            direction *= products[k] / _dot(changes[k], changes[k])
        else:
            direction *= 0.1 / max(1e-300, np.sqrt(_dot(g, g)))
        for back in range(stored - 1, -1, -1):
            k = (used - 1 - back) % memory
            _add(direction, weights[k] - _dot(changes[k], direction) / products[k], steps[k])
        slope = -_dot(g, direction)
        if not slope < 0.0:
            if used == 0:
                return -value, used, False
            used = 0
            continue
        length, accepted = 1.0, False
        for _ in range(30):
            y = trial.reshape(-1)
            y[:] = x
            _add(y, -length, direction)
            new_value = _value_and_gradient(edges, *pairs, start, mus, zs, fs, trial, limit, trial_gradient)
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
        direction *= -length
        _add(g, -1.0, trial_gradient.reshape(-1))
        product, size = -_dot(direction, g), _dot(g, g)
        if product > 1e-12 * size > 0.0:
            k = used % memory
            steps[k, :] = direction
            changes[k, :] = g
            changes[k] *= -1.0
            products[k] = product
            used += 1
        elif size == 0.0:
            return -value, used, False
        x[:] = trial.reshape(-1)
        gradient[:, :] = trial_gradient
        value = new_value
    return -value, used, True
