"""Compiled coordinate ascent of mean field. Import it inside functions only: it needs Numba."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._jit import inner, outer

__all__ = ["MeanFieldTerms", "spin_sweeps", "table_sweeps"]


# -- binary, in spins -----------------------------------------------------------------------------------------------


@outer
def spin_sweeps(field, indptr, neighbors, couplings, means, half_log_odds, tol, num_sweeps, bounds):
    """Sweeps made of ``means_i = tanh(field_i + sum_j J_ij means_j)``, and the largest change of a probability.

    Each variable is set with the newest means of the others. ``means`` of the spins are changed, and half their
    log-odds written; indices are unsigned, because signed ones would be checked for counting from the end. ``bounds``
    gets the lower bound on log Z after each sweep, without the constant. A change of at most ``tol`` ends the run.
    """
    n = len(field)
    largest = 0.0
    for sweep in range(num_sweeps):
        largest = 0.0
        entropy = 0.0
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
            means[i] = mean
            half_log_odds[i] = value
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


class MeanFieldTerms(NamedTuple):
    """A model, as the kernels read it.

    Variable i has the log-potentials ``unary[unary_starts[i]:unary_starts[i + 1]]``, the neighbors
    ``neighbors[indptr[i]:indptr[i + 1]]`` over the edges ``edge_ids`` of the same places, and is in the factors
    ``factors_around[factor_indptr[i]:factor_indptr[i + 1]]``. Edge e has the ends ``edges[e]`` and a table from
    ``table_starts[e]`` on; factor k, over three or more variables, has ``scopes[scope_starts[k]:scope_starts[k + 1]]``
    and a table from ``factor_starts[k]`` on.
    """

    unary: FloatArray
    unary_starts: IntArray
    indptr: IntArray
    neighbors: IntArray
    edge_ids: IntArray
    edges: IntArray
    table_starts: IntArray
    tables: FloatArray
    factor_indptr: IntArray
    factors_around: IntArray
    scope_starts: IntArray
    scopes: IntArray
    factor_starts: IntArray
    factors: FloatArray


@inner
def _expected_row(table, first, width, q, start):
    """``sum_b q(b) table[b]`` over a row; an entry of minus infinity counts only where q is positive."""
    total = 0.0
    for b in range(width):
        if q[start + b] > 0.0:
            total += q[start + b] * table[first + b]
    return total


@inner
def _add_expected_factor(table, first, scope, starts, q, at, out, digits, weights):
    """Add the mean of a factor under q to ``out``, for every state of its member ``at``, or to ``out[0]`` for -1.

    ``digits`` and ``weights`` are room for the states of all members but the last, and products of their q. Where such
    a product is 0, an entry of minus infinity does not count.
    """
    last = len(scope) - 1
    start = starts[scope[last]]
    width = starts[scope[last] + 1] - start
    weights[0] = 1.0
    changed = 0
    for d in range(last):
        digits[d] = 0
    while changed >= 0:
        for d in range(changed, last):
            weights[d + 1] = weights[d] if d == at else weights[d] * q[starts[scope[d]] + digits[d]]
        if weights[last] > 0.0:
            if at == last:
                for b in range(width):
                    out[b] += weights[last] * table[first + b]
            else:
                expected = _expected_row(table, first, width, q, start)
                out[digits[at] if at >= 0 else 0] += weights[last] * expected
        first += width
        # The next states of all members but the last.
        changed = last - 1
        while changed >= 0:
            digits[changed] += 1
            if digits[changed] < starts[scope[changed] + 1] - starts[scope[changed]]:
                break
            digits[changed] = 0
            changed -= 1


@inner
def _expected_pairs(unary, starts, edges, table_starts, tables, q):
    """Expected log-potentials of variables and edges plus entropy; minus infinity if q allows what is forbidden."""
    total = 0.0
    for k in range(len(unary)):
        if q[k] > 0.0:
            total += q[k] * (unary[k] - np.log(q[k]))
    for e in range(len(edges)):
        first = starts[edges[e, 0]]
        second = starts[edges[e, 1]]
        width = starts[edges[e, 1] + 1] - second
        for a in range(starts[edges[e, 0] + 1] - first):
            if q[first + a] > 0.0:
                total += q[first + a] * _expected_row(tables, table_starts[e] + a * width, width, q, second)
    return total


@inner
def _largest_change(q, base, count, logits):
    """The largest change of a probability of one variable, whose marginals in q become those of the logits."""
    top = -np.inf
    for a in range(count):
        top = max(top, logits[a])
    total = 0.0
    for a in range(count):
        logits[a] = np.exp(logits[a] - top)
        total += logits[a]
    largest = 0.0
    for a in range(count):
        value = logits[a] / total
        largest = max(largest, abs(value - q[base + a]))
        q[base + a] = value
    return largest


@outer
def table_sweeps(terms, q, tol, num_sweeps, bounds):
    """Sweeps made of ``q_i(a) ~ exp(u_i(a) + E_q[all else])``, and the largest change of a probability in the last.

    Each variable is set with the newest q of the others. With forbidden entries, q must avoid them at the start; then
    it does throughout, because an update leaves a state only what all states of the neighbors allow. ``bounds`` gets
    the lower bound on log Z after each sweep, without the constant. A change of at most ``tol`` ends the run.
    """
    (
        unary, starts, indptr, neighbors, edge_ids, edges, table_starts, tables, factor_indptr, factors_around,
        scope_starts, scopes, factor_starts, factors,
    ) = terms  # fmt: skip
    n = len(starts) - 1
    widest = 0
    for i in range(n):
        widest = max(widest, starts[i + 1] - starts[i])
    logits = np.empty(widest)
    longest = 1
    for k in range(len(scope_starts) - 1):
        longest = max(longest, scope_starts[k + 1] - scope_starts[k])
    digits = np.empty(longest, np.int64)
    weights = np.empty(longest)
    mean = np.empty(1)
    largest = 0.0
    for sweep in range(num_sweeps):
        largest = 0.0
        for i in range(n):
            base = starts[i]
            count = starts[i + 1] - base
            for a in range(count):
                logits[a] = unary[base + a]
            for p in range(indptr[i], indptr[i + 1]):
                j = neighbors[p]
                first = table_starts[edge_ids[p]]
                start = starts[j]
                width = starts[j + 1] - start
                if i < j:  # the states of i are the rows of the table
                    for a in range(count):
                        logits[a] += _expected_row(tables, first + a * width, width, q, start)
                else:
                    for b in range(width):
                        weight = q[start + b]
                        if weight > 0.0:
                            for a in range(count):
                                logits[a] += weight * tables[first + b * count + a]
            for p in range(factor_indptr[i], factor_indptr[i + 1]):
                k = factors_around[p]
                scope = scopes[scope_starts[k] : scope_starts[k + 1]]
                at = np.int64(0)
                while scope[at] != i:
                    at += 1
                _add_expected_factor(factors, factor_starts[k], scope, starts, q, at, logits, digits, weights)
            largest = max(largest, _largest_change(q, base, count, logits))
        mean[0] = 0.0
        for k in range(len(factor_starts) - 1):
            scope = scopes[scope_starts[k] : scope_starts[k + 1]]
            _add_expected_factor(factors, factor_starts[k], scope, starts, q, np.int64(-1), mean, digits, weights)
        bounds[sweep] = _expected_pairs(unary, starts, edges, table_starts, tables, q) + mean[0]
        if largest <= tol:
            return sweep + 1, largest
    return num_sweeps, largest
