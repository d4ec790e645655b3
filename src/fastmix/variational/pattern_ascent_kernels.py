"""Compiled sweeps of mean field over tables that edges share. Import it inside functions only: it needs Numba.

Places are unsigned, so that no check for negative ones keeps loops from being vectorized.
"""

from __future__ import annotations

import numpy as np
from numba import uint64

from fastmix._jit import inner, outer, summing
from fastmix.model.pattern_forms import LINEAR, POTTS

__all__ = ["pattern_ascent"]


@summing
def _product(values, at, others, begin, count):
    """The scalar product of parts of two arrays."""
    total = 0.0
    for s in range(count):
        total += values[at + s] * others[begin + s]
    return total


@inner
def _add_linear(logits, q, at, count, step, reach, sums):
    """Add ``step sum_t q(t) min(|s - t|, reach)`` to the logits of all states s.

    From one state to the next, the distance of those at most as far behind as ``reach`` grows by 1, and that of those
    ahead falls by 1; at the ends of both windows it changes by the part of ``reach`` beyond the whole number. The
    windows are differences of ``sums``, of probabilities.
    """
    sums[0] = 0.0
    for t in range(count):
        sums[t + uint64(1)] = sums[t] + q[at + t]
    length = min(count, uint64(min(reach, np.float64(count))))
    part = min(reach, np.float64(count)) - np.float64(length)
    expected = 0.0
    for t in range(count):
        expected += q[at + t] * min(np.float64(t), reach)
    for s in range(count):
        logits[s] += step * expected
        after = s + uint64(1)
        ahead = min(count, after + length)
        behind = after - length if after > length else uint64(0)
        change = (sums[after] - sums[behind]) - (sums[ahead] - sums[after])
        if behind > uint64(0):
            change += part * q[at + behind - uint64(1)]
        if ahead < count:
            change -= part * q[at + ahead]
        expected += change


@inner
def _add_pattern(logits, count, q, at, num_other, patterns, start, weight, by_rows):
    """Add the mean of a pattern under the q of a neighbor, times a weight; with ``by_rows`` its states are the rows."""
    if by_rows:
        for t in range(num_other):
            share = weight * q[at + t]
            row = start + t * count
            for s in range(count):
                logits[s] += share * patterns[row + s]
    else:
        for s in range(count):
            logits[s] += weight * _product(q, at, patterns, start + s * num_other, num_other)


@inner
def _set_marginals(logits, count, q, base):
    """Set the q of a variable to the exponentials of the logits; the largest change of a probability, and the entropy.

    The entropy is the log of the normalizer less the mean of the logits.
    """
    top = logits[0]
    for s in range(uint64(1), count):
        top = max(top, logits[s])
    total = 0.0
    mean = 0.0
    for s in range(count):
        below = logits[s] - top
        weight = np.exp(below)
        logits[s] = weight
        total += weight
        mean += weight * below
    largest = 0.0
    scale = 1.0 / total
    for s in range(count):
        value = scale * logits[s]
        largest = max(largest, abs(value - q[base + s]))
        q[base + s] = value
    return largest, np.log(total) - scale * mean


@outer
def pattern_ascent(variables, tables, forms, q, tol, num_sweeps, bounds):
    """Sweeps made of ``q_i(a) ~ exp(u_i(a) + E_q[all else])``, and the largest change of a probability in the last.

    As :func:`fastmix.variational.mean_field_kernels.table_sweeps`, for models without forbidden entries. Neighbors
    ascend: when a variable is set, those before it have their q of the end of the sweep, so that its unary and the
    tables to these are all that it adds to the mean of the log-weight.
    """
    unary, starts, indptr, neighbors, edge_ids = variables
    patterns, pattern_starts, of_edge, turned, weights, next_weights = tables
    kinds, levels, steps, reaches = forms
    n = len(starts) - 1
    widest = 1
    for i in range(n):
        widest = max(widest, starts[i + 1] - starts[i])
    logits = np.empty(widest)
    own = np.empty(widest)
    sums = np.empty(widest + 1)
    is_mixed = len(next_weights) > 0
    constant = 0.0
    for e in range(len(levels)):
        constant += levels[e]
    largest = 0.0
    for sweep in range(num_sweeps):
        largest = 0.0
        bound = constant
        for i in range(n):
            base = uint64(starts[i])
            count = uint64(starts[i + 1]) - base
            for s in range(count):
                logits[s] = unary[base + s]
            is_noted = False
            for p in range(indptr[i], indptr[i + 1]):
                j = neighbors[p]
                e = edge_ids[p]
                if j > i and not is_noted:
                    is_noted = True
                    for s in range(count):
                        own[s] = logits[s]
                at = uint64(starts[j])
                if kinds[e] == POTTS:
                    step = steps[e]
                    for s in range(count):
                        logits[s] += step * q[at + s]
                elif kinds[e] == LINEAR:
                    _add_linear(logits, q, at, count, steps[e], reaches[e], sums)
                else:
                    num_other = uint64(starts[j + 1]) - at
                    start = uint64(pattern_starts[of_edge[e]])
                    by_rows = (j < i) != turned[e]
                    _add_pattern(logits, count, q, at, num_other, patterns, start, weights[e], by_rows)
                    if is_mixed and next_weights[e] != 0.0:
                        start += count * num_other
                        _add_pattern(logits, count, q, at, num_other, patterns, start, next_weights[e], by_rows)
            if not is_noted:
                for s in range(count):
                    own[s] = logits[s]
            change, entropy = _set_marginals(logits, count, q, base)
            largest = max(largest, change)
            bound += entropy + _product(q, base, own, uint64(0), count)
        bounds[sweep] = bound
        if largest <= tol:
            return sweep + 1, largest
    return num_sweeps, largest
