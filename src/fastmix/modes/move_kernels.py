"""Compiled terms of moves of many variables at once, from tables that edges may share.

All variables have ``num_labels`` states. The arrays of tables are those of :mod:`fastmix.modes.pattern_arrays`, whose
patterns are square here.
"""

from __future__ import annotations

import numpy as np

from fastmix._jit import inner, outer

__all__ = ["expansion_terms", "gain_of_move", "metric_slacks", "swap_terms"]


@inner
def _entry(patterns, at, weight, after, next_weight):
    """A log-potential: an entry of a weighted pattern, and that of the following pattern where the table has both."""
    value = weight * patterns[at]
    if next_weight != 0.0:
        value += next_weight * patterns[at + after]
    return value


@outer
def expansion_terms(label, x, unary, edges, tables, num_labels, gain, coupling):
    """Write what variables gain by taking a label, (n,), and what edges gain if both ends take it or neither, (m,).

    Of the table of an edge, where its ends keep their labels or take the new one, a part below 0 that rewards one end
    alone is left out: metrics have none.
    """
    patterns, starts, of_edge, turned, weights, next_weights = tables
    after = num_labels * num_labels
    is_mixed = len(next_weights) > 0
    for i in range(len(x)):
        base = i * num_labels
        gain[i] = unary[base + label] - unary[base + x[i]]
    for e in range(len(edges)):
        i = edges[e, 0]
        j = edges[e, 1]
        row = 1 if turned[e] else num_labels
        col = num_labels if turned[e] else 1
        start = starts[of_edge[e]]
        weight = weights[e]
        following = next_weights[e] if is_mixed else 0.0
        stay = _entry(patterns, start + x[i] * row + x[j] * col, weight, after, following)
        both = _entry(patterns, start + label * (row + col), weight, after, following)
        first = _entry(patterns, start + label * row + x[j] * col, weight, after, following)
        second = _entry(patterns, start + x[i] * row + label * col, weight, after, following)
        gain[i] += 0.5 * (first + both - stay - second)
        gain[j] += 0.5 * (second + both - stay - first)
        coupling[e] = max(0.5 * (stay + both - first - second), 0.0)


@outer
def swap_terms(own, other, x, unary, edges, tables, num_labels, gain, coupling):
    """The same of variables with one of two labels, for which state 1 is the second of these; others gain nothing."""
    patterns, starts, of_edge, turned, weights, next_weights = tables
    after = num_labels * num_labels
    is_mixed = len(next_weights) > 0
    for i in range(len(x)):
        base = i * num_labels
        gain[i] = unary[base + other] - unary[base + own] if x[i] == own or x[i] == other else 0.0
    for e in range(len(edges)):
        i = edges[e, 0]
        j = edges[e, 1]
        first_moves = x[i] == own or x[i] == other
        second_moves = x[j] == own or x[j] == other
        coupling[e] = 0.0
        if not first_moves and not second_moves:
            continue
        row = 1 if turned[e] else num_labels
        col = num_labels if turned[e] else 1
        start = starts[of_edge[e]]
        weight = weights[e]
        following = next_weights[e] if is_mixed else 0.0
        # The states that each end chooses from: twice the same where it does not move.
        low = start + (own if first_moves else x[i]) * row
        high = start + (other if first_moves else x[i]) * row
        left = (own if second_moves else x[j]) * col
        right = (other if second_moves else x[j]) * col
        neither = _entry(patterns, low + left, weight, after, following)
        both = _entry(patterns, high + right, weight, after, following)
        first = _entry(patterns, high + left, weight, after, following)
        second = _entry(patterns, low + right, weight, after, following)
        if first_moves:
            gain[i] += 0.5 * (first + both - neither - second)
        if second_moves:
            gain[j] += 0.5 * (second + both - neither - first)
        if first_moves and second_moves:
            coupling[e] = max(0.5 * (neither + both - first - second), 0.0)


@outer
def gain_of_move(x, y, unary, edges, tables, num_labels):
    """By how much the log-weight of labels y is larger than that of x."""
    patterns, starts, of_edge, turned, weights, next_weights = tables
    after = num_labels * num_labels
    is_mixed = len(next_weights) > 0
    gain = 0.0
    for i in range(len(x)):
        if x[i] != y[i]:
            gain += unary[i * num_labels + y[i]] - unary[i * num_labels + x[i]]
    for e in range(len(edges)):
        i = edges[e, 0]
        j = edges[e, 1]
        if x[i] == y[i] and x[j] == y[j]:
            continue
        row = 1 if turned[e] else num_labels
        col = num_labels if turned[e] else 1
        start = starts[of_edge[e]]
        following = next_weights[e] if is_mixed else 0.0
        gain += _entry(patterns, start + y[i] * row + y[j] * col, weights[e], after, following)
        gain -= _entry(patterns, start + x[i] * row + x[j] * col, weights[e], after, following)
    return gain


@outer
def metric_slacks(patterns, starts, begin, end, num_labels, only_pairs):
    """The least and the largest of what a table must have at least 0 of, for each of some patterns: (end - begin, 2).

    That is ``P(a, b) + P(c, c) - P(a, c) - P(c, b)`` for all states, or with ``only_pairs``, for a = b.
    """
    slacks = np.empty((end - begin, 2))
    for number in range(begin, end):
        start = starts[number]
        least = np.inf
        most = -np.inf
        for a in range(num_labels):
            for c in range(num_labels):
                one = patterns[start + c * num_labels + c] - patterns[start + a * num_labels + c]
                for b in range(a if only_pairs else 0, a + 1 if only_pairs else num_labels):
                    slack = patterns[start + a * num_labels + b] + one - patterns[start + c * num_labels + b]
                    least = min(least, slack)
                    most = max(most, slack)
        slacks[number - begin, 0] = least
        slacks[number - begin, 1] = most
    return slacks
