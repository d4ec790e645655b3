"""Compiled loops of the pseudo-likelihood, and of steps of restricted Boltzmann machines."""

from __future__ import annotations

import math

import numpy as np

from fastmix._jit import njit

__all__ = ["conditional_residuals", "scaled_step"]

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


@njit(cache=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
def _scaled_row(x, gradient, mean, square, total, scale, constants):  # type: ignore[no-untyped-def]
    size, correct, forget, forget_squares, least = constants[0], constants[1], constants[2], constants[3], constants[4]
    one = np.float32(1.0)
    for j in range(len(x)):
        g = gradient[j]
        total[j] += g
        mean[j] = forget * mean[j] + (one - forget) * g
        square[j] = forget_squares * square[j] + (one - forget_squares) * g * g
        x[j] += scale * size * mean[j] / (np.sqrt(square[j] * correct) + least)


@njit(cache=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
def _centred_row(out, products, of_hidden, weights, centre, mask, mu, half, decay):  # type: ignore[no-untyped-def]
    """A row of the gradient with respect to W."""
    shift = np.float32(0.5) - mu
    for j in range(len(out)):
        out[j] = mask[j] * (products[j] - mu * of_hidden[j] - half - decay * weights[j] - shift * centre[j])


@njit(cache=True, nogil=True, error_model="numpy")
def scaled_step(  # type: ignore[no-untyped-def]
    W, beta, gamma, products, of_visible, of_hidden, mu, centre, mask, mean_w, mean_b, mean_g, square_w, square_b,
    square_g, sum_w, sum_b, sum_g, scales_w, scales_b, constants,
):  # fmt: skip
    """A step of a restricted Boltzmann machine along its centred gradient, scaled for every parameter.

    See :class:`fastmix.learning.machines._Machine`; ``centre`` is half the ridge times the fields of hidden variables
    where all visible ones are 1/2.
    """
    decay = constants[5]
    row = np.empty(W.shape[1], np.float32)
    for i in range(len(W)):
        _centred_row(
            row, products[i], of_hidden, W[i], centre, mask[i], mu[i], np.float32(0.5) * of_visible[i], decay
        )  # fmt: skip
        _scaled_row(W[i], row, mean_w[i], square_w[i], sum_w[i], scales_w[i], constants)
    ridge = np.float32(2.0) * decay
    for i in range(len(beta)):
        part = slice(i, i + 1)
        _scaled_row(
            beta[part], of_visible[part] - ridge * beta[part], mean_b[part], square_b[part], sum_b[part], scales_b[i],
            constants,
        )  # fmt: skip
    _scaled_row(gamma, of_hidden - centre, mean_g, square_g, sum_g, np.float32(2.0), constants)
