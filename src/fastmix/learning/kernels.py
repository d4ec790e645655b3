"""Compiled loops of the pseudo-likelihood."""

from __future__ import annotations

import math

import numpy as np

from fastmix._jit import njit

__all__ = ["conditional_residuals"]

_GROUP = 16  # factors of at most 2 whose product is taken before its logarithm


@njit(cache=True, nogil=True, error_model="numpy")
def conditional_residuals(fields, states, weights, num_states, starts, tables, table_starts, logs):  # type: ignore[no-untyped-def]
    """Log-probabilities of all conditionals of every row into ``logs``, and residuals in place of the fields.

    ``fields[r, starts[i]:starts[i + 1]]`` comes as the field a of variable i, in contrasts: ``p(s) ~ exp(Q_i[s] . a)``.
    It becomes ``weight * (E[Q_i[s]] - Q_i[x_i])``.
    """
    n = len(num_states)
    root = math.sqrt(2.0)
    probabilities = np.empty(num_states.max())
    for r in range(len(fields)):
        total, product, count, weight = 0.0, 1.0, 0, weights[r]
        for i in range(n):
            first, states_i, x = starts[i], num_states[i], states[r, i]
            if states_i == 2:
                sign = root if x == 1 else -root
                t = sign * fields[r, first]
                e = math.exp(-abs(t))
                if t < 0.0:
                    total += t
                fields[r, first] = -weight * sign * (e if t > 0.0 else 1.0) / (1.0 + e)
                product *= 1.0 + e
                count += 1
                if count == _GROUP:
                    total -= math.log(product)
                    product, count = 1.0, 0
                continue
            width, at = states_i - 1, table_starts[i]
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
                fields[r, first + k] = weight * (mean / norm - tables[at + x * width + k])
        logs[r] = total - math.log(product)
