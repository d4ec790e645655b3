"""Compiled loops over rows of data: of the pseudo-likelihood, and of chains given what is observed."""

from __future__ import annotations

import math

import numpy as np

from fastmix._jit import fused, outer, summing
from fastmix.chains.threshold_kernels import largest

__all__ = ["binary_residuals", "clamped_sweep", "conditional_residuals"]


#: Factors of at most 2 whose product is taken before its logarithm.
GROUP = 512
#: Exponents below it make no difference, and would leave the range of doubles.
MIN_EXPONENT = -700.0
LOG2_OF_E = 1.4426950408889634
#: 1.5 2^52: adding it rounds to whole numbers.
ROUNDER = 6755399441055744.0
#: The logarithm of 2 as a sum of a number with few digits and the rest, so that products with the first are exact.
LN2_HIGH = 0.693147180369123816490
LN2_LOW = 1.90821492927058770002e-10
#: Coefficients of the exponential series, one over the factorials of 2 to 11.
P2 = 1.0 / 2.0
P3 = 1.0 / 6.0
P4 = 1.0 / 24.0
P5 = 1.0 / 120.0
P6 = 1.0 / 720.0
P7 = 1.0 / 5040.0
P8 = 1.0 / 40320.0
P9 = 1.0 / 362880.0
P10 = 1.0 / 3628800.0
P11 = 1.0 / 39916800.0


@fused
def _residuals(fields, y, norms):
    """``E[Q] - y`` in place of the fields a, and ``1 + exp(-|t|)`` with ``t = 2 y a``: ``p(x) = 1 / (1 + exp(-t))``.

    The exponential is 2^k times a series, so that processors do several variables at once.
    """
    for i in range(len(fields)):
        sign = 2.0 * y[i]
        t = sign * fields[i]
        exponent = max(-abs(t), MIN_EXPONENT)
        shifted = np.float64(exponent * LOG2_OF_E + ROUNDER)
        power = np.int64((shifted.view(np.int64) + np.int64(1023)) << np.int64(52)).view(np.float64)
        count = shifted - ROUNDER
        r = (exponent - count * LN2_HIGH) - count * LN2_LOW
        p = P11 * r + P10
        p = p * r + P9
        p = p * r + P8
        p = p * r + P7
        p = p * r + P6
        p = p * r + P5
        p = p * r + P4
        p = p * r + P3
        p = p * r + P2
        p = p * r + 1.0
        e = (p * r + 1.0) * power
        norms[i] = 1.0 + e
        fields[i] = -sign * (e if t > 0.0 else 1.0) / (1.0 + e)


@summing
def _product(factors):
    """The product of all factors, in any order."""
    result = 1.0
    for i in range(len(factors)):
        result *= factors[i]
    return result


@summing
def _negative_scores(fields, y):
    """Twice the sum of the negative ones among ``fields * y``."""
    total = 0.0
    for i in range(len(fields)):
        total += min(fields[i] * y[i], 0.0)
    return 2.0 * total


@outer
def binary_residuals(fields, y, logs):
    """As :func:`conditional_residuals` where all variables are binary, with contrasts ``y`` (rows, n)."""
    norms = np.empty(GROUP)
    for r in range(len(fields)):
        logs[r] = 0.0
        for first in range(0, fields.shape[1], GROUP):
            a = fields[r, first : first + GROUP]
            own = y[r, first : first + GROUP]
            logs[r] += _negative_scores(a, own)
            _residuals(a, own, norms)
            logs[r] -= math.log(_product(norms[: len(a)]))


@outer
def conditional_residuals(fields, states, num_states, starts, tables, table_starts, logs):
    """Log-probabilities of all conditionals of every row into ``logs``, and residuals in place of the fields.

    ``fields[r, starts[i]:starts[i + 1]]`` comes as the field a of variable i, in contrasts: ``p(s) ~ exp(Q_i[s] . a)``.
    It becomes ``E[Q_i[s]] - Q_i[x_i]``.
    """
    probabilities = np.empty(largest(num_states))
    for r in range(len(fields)):
        total = 0.0
        for i in range(len(num_states)):
            first = starts[i]
            states_i = num_states[i]
            x = states[r, i]
            width = states_i - 1
            at = table_starts[i]
            top = -np.inf
            for s in range(states_i):
                score = 0.0
                for k in range(width):
                    score += tables[at + s * width + k] * fields[r, first + k]
                probabilities[s] = score
                top = max(top, score)
            norm = 0.0
            total += probabilities[x] - top
            for s in range(states_i):
                probabilities[s] = math.exp(probabilities[s] - top)
                norm += probabilities[s]
            total -= math.log(norm)
            for k in range(width):
                mean = 0.0
                for s in range(states_i):
                    mean += probabilities[s] * tables[at + s * width + k]
                fields[r, first + k] = mean / norm - tables[at + x * width + k]
        logs[r] = total


@summing
def _dot(x, y):
    """The product of two vectors, added up in any order."""
    total = 0.0
    for i in range(len(x)):
        total += x[i] * y[i]
    return total


@outer
def clamped_sweep(y, states, bounds, missing, uniforms, c, matrix, num_states, starts, tables, table_starts):
    """Draw anew the variables ``missing[bounds[r]:bounds[r + 1]]`` of every row, one after another given the others.

    Their fields, in contrasts, are ``c + matrix @ y[r]``; every draw has a number of ``uniforms``.
    """
    weights = np.empty(largest(num_states))
    field = np.empty(largest(num_states))
    for r in range(len(y)):
        for m in range(bounds[r], bounds[r + 1]):
            i = missing[m]
            first = starts[i]
            count = num_states[i]
            at = table_starts[i]
            width = count - 1
            for k in range(width):
                field[k] = c[first + k] + _dot(matrix[first + k], y[r])
            top = -np.inf
            for s in range(count):
                weights[s] = 0.0
                for k in range(width):
                    weights[s] += tables[at + s * width + k] * field[k]
                top = max(top, weights[s])
            total = 0.0
            for s in range(count):
                total += math.exp(weights[s] - top)
                weights[s] = total
            state = 0
            while state < width and uniforms[m] * total >= weights[state]:
                state += 1
            states[r, i] = state
            for k in range(width):
                y[r, first + k] = tables[at + state * width + k]
