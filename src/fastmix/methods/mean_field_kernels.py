"""Compiled coordinate ascent of mean field. Import it inside functions only: it needs Numba."""

from __future__ import annotations

import numpy as np

from fastmix._jit import inner, outer

__all__ = ["spin_sweeps", "table_sweeps"]


# -- binary, in spins -----------------------------------------------------------------------------------------------


@outer
def spin_sweeps(field, indptr, neighbors, couplings, means, local, tol, num_sweeps, bounds):  # type: ignore[no-untyped-def]
    """Sweeps of ``means_i = tanh(field_i + sum_j J_ij means_j)``, each variable with the newest means of the others.

    ``means`` of the spins are changed, and half their log-odds written to ``local``; indices are unsigned, because
    signed ones would be checked for counting from the end. ``bounds`` gets the lower bound on log Z after each sweep,
    without the constant. The sweeps made, at most ``num_sweeps``, and the largest change of a probability in the last
    one come back: a change of at most ``tol`` ends the run.
    """
    n = len(field)
    largest = 0.0
    for sweep in range(num_sweeps):
        largest, entropy = 0.0, 0.0
        for i in range(n):
            value = field[i]
            for p in range(indptr[i], indptr[np.uint64(i) + np.uint64(1)]):
                value += couplings[p] * means[neighbors[p]]
            size = abs(value)
            # exp(-2 |t|) gives tanh and the entropy log(2 cosh t) - t tanh t, both without cancellation.
            small = np.exp(-2.0 * size)
            mean = (1.0 - small) / (1.0 + small)
            entropy += np.log1p(small) + 2.0 * size * small / (1.0 + small)
            if value < 0.0:
                mean = -mean
            largest = max(largest, abs(mean - means[i]))
            means[i], local[i] = mean, value
        energy = 0.0
        for i in range(n):
            value = 0.0
            for p in range(indptr[i], indptr[np.uint64(i) + np.uint64(1)]):
                value += couplings[p] * means[neighbors[p]]
            energy += means[i] * (field[i] + 0.5 * value)
        bounds[sweep] = energy + entropy
        if 0.5 * largest <= tol:
            return sweep + 1, 0.5 * largest
    return num_sweeps, 0.5 * largest


# -- any tables -----------------------------------------------------------------------------------------------------


@inner
def _expected_row(table, first, width, q, start):  # type: ignore[no-untyped-def]
    """``sum_b q(b) table[b]`` over a row; an entry of minus infinity counts only where q is positive."""
    total = 0.0
    for b in range(width):
        if q[start + b] > 0.0:
            total += q[start + b] * table[first + b]
    return total


@inner
def _expected_factor(table, first, scope, offsets, q, at, out, digits, weights):  # type: ignore[no-untyped-def]
    """Add the mean of a factor under q to ``out``, for every state of its member ``at``, or to ``out[0]`` for -1.

    ``digits`` and ``weights`` are room for the states of all members but the last, and products of their q. Where such
    a product is 0, an entry of minus infinity does not count.
    """
    last = len(scope) - 1
    start, width = offsets[scope[last]], offsets[scope[last] + 1] - offsets[scope[last]]
    weights[0], changed = 1.0, 0
    for d in range(last):
        digits[d] = 0
    while changed >= 0:
        for d in range(changed, last):
            weights[d + 1] = weights[d] if d == at else weights[d] * q[offsets[scope[d]] + digits[d]]
        if weights[last] > 0.0:
            if at == last:
                for b in range(width):
                    out[b] += weights[last] * table[first + b]
            else:
                out[digits[at] if at >= 0 else 0] += weights[last] * _expected_row(table, first, width, q, start)
        first += width
        changed = last - 1
        while changed >= 0:
            digits[changed] += 1
            if digits[changed] < offsets[scope[changed] + 1] - offsets[scope[changed]]:
                break
            digits[changed] = 0
            changed -= 1


@inner
def _bound(unary, unary_offsets, edges, offsets, table, scope_starts, scopes, factor_offsets, factors, q, room):  # type: ignore[no-untyped-def]
    """Expected log-weight plus entropy of a product distribution; minus infinity if it allows what is forbidden."""
    total = 0.0
    for k in range(len(unary)):
        if q[k] > 0.0:
            total += q[k] * (unary[k] - np.log(q[k]))
    for e in range(len(edges)):
        i, start = unary_offsets[edges[e, 0]], unary_offsets[edges[e, 1]]
        width = unary_offsets[edges[e, 1] + 1] - start
        for a in range(unary_offsets[edges[e, 0] + 1] - i):
            if q[i + a] > 0.0:
                total += q[i + a] * _expected_row(table, offsets[e] + a * width, width, q, start)
    digits, weights, mean = room
    mean[0] = 0.0
    for k in range(len(factor_offsets) - 1):
        scope = scopes[scope_starts[k] : scope_starts[k + 1]]
        _expected_factor(factors, factor_offsets[k], scope, unary_offsets, q, -1, mean, digits, weights)
    return total + mean[0]


@outer
def table_sweeps(  # type: ignore[no-untyped-def]
    unary, unary_offsets, indptr, neighbors, edge_ids, edges, offsets, table, around, factors_around, scope_starts,
    scopes, factor_offsets, factors, q, tol, num_sweeps, bounds,
):  # fmt: skip
    """Sweeps of ``q_i(a) ~ exp(u_i(a) + E_q[all else])``, each with the newest q of the others.

    Factors over three or more variables around variable i are ``factors_around[around[i]:around[i + 1]]``. With
    forbidden entries, q must avoid them at the start; then it does throughout, because an update leaves a state only
    what all states of the neighbors allow. ``tol``, ``num_sweeps``, ``bounds`` and what comes back as in spin_sweeps.
    """
    n = len(unary_offsets) - 1
    widest = 0
    for i in range(n):
        widest = max(widest, unary_offsets[i + 1] - unary_offsets[i])
    logits = np.empty(widest)
    longest = 1
    for k in range(len(scope_starts) - 1):
        longest = max(longest, scope_starts[k + 1] - scope_starts[k])
    digits, weights, mean = np.empty(longest, np.int64), np.empty(longest), np.empty(1)
    largest = 0.0
    for sweep in range(num_sweeps):
        largest = 0.0
        for i in range(n):
            base, count = unary_offsets[i], unary_offsets[i + 1] - unary_offsets[i]
            for a in range(count):
                logits[a] = unary[base + a]
            for p in range(indptr[i], indptr[i + 1]):
                j, first = neighbors[p], offsets[edge_ids[p]]
                start, width = unary_offsets[j], unary_offsets[j + 1] - unary_offsets[j]
                if i < j:
                    for a in range(count):
                        logits[a] += _expected_row(table, first + a * width, width, q, start)
                else:
                    for b in range(width):
                        weight = q[start + b]
                        if weight > 0.0:
                            for a in range(count):
                                logits[a] += weight * table[first + b * count + a]
            for p in range(around[i], around[i + 1]):
                k, at = factors_around[p], 0
                scope = scopes[scope_starts[k] : scope_starts[k + 1]]
                while scope[at] != i:
                    at += 1
                _expected_factor(factors, factor_offsets[k], scope, unary_offsets, q, at, logits, digits, weights)
            top = -np.inf
            for a in range(count):
                top = max(top, logits[a])
            total = 0.0
            for a in range(count):
                logits[a] = np.exp(logits[a] - top)
                total += logits[a]
            for a in range(count):
                value = logits[a] / total
                largest = max(largest, abs(value - q[base + a]))
                q[base + a] = value
        bounds[sweep] = _bound(
            unary, unary_offsets, edges, offsets, table, scope_starts, scopes, factor_offsets, factors, q,
            (digits, weights, mean),
        )  # fmt: skip
        if largest <= tol:
            return sweep + 1, largest
    return num_sweeps, largest
