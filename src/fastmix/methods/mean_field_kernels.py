"""Compiled coordinate ascent of mean field. Import it inside functions only: it needs Numba."""

from __future__ import annotations

import numpy as np

from fastmix._jit import njit

__all__ = ["spin_sweeps", "table_sweeps"]

# Functions called only from compiled code need no entry points from Python, which saves compilation time.
_inner = njit(cache=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
_entry = njit(cache=True, nogil=True, error_model="numpy")


# -- binary, in spins -----------------------------------------------------------------------------------------------


@_entry
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


@_inner
def _expected_row(table, first, width, q, start):  # type: ignore[no-untyped-def]
    """``sum_b q(b) table[b]`` over a row; an entry of minus infinity counts only where q is positive."""
    total = 0.0
    for b in range(width):
        if q[start + b] > 0.0:
            total += q[start + b] * table[first + b]
    return total


@_inner
def _bound(unary, unary_offsets, edges, offsets, table, q):  # type: ignore[no-untyped-def]
    """Expected log-weight plus entropy of a product distribution; minus infinity if it allows a forbidden pair."""
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
    return total


@_entry
def table_sweeps(unary, unary_offsets, indptr, neighbors, edge_ids, edges, offsets, table, q, tol, num_sweeps, bounds):  # type: ignore[no-untyped-def]
    """Sweeps of ``q_i(a) ~ exp(u_i(a) + sum_j sum_b q_j(b) T_ij(a, b))``, each with the newest q of the others.

    With forbidden pairs, q must avoid them at the start; then it does throughout, because an update leaves a state only
    what all states of the neighbors allow. ``tol``, ``num_sweeps``, ``bounds`` and what comes back as in spin_sweeps.
    """
    n = len(unary_offsets) - 1
    widest = 0
    for i in range(n):
        widest = max(widest, unary_offsets[i + 1] - unary_offsets[i])
    logits = np.empty(widest)
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
        bounds[sweep] = _bound(unary, unary_offsets, edges, offsets, table, q)
        if largest <= tol:
            return sweep + 1, largest
    return num_sweeps, largest
