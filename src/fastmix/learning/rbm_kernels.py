"""Compiled steps of restricted Boltzmann machines on the CPU: conditional means, draws, gradient and step in one call.

Products with bits are those of :mod:`fastmix.chains.layer_kernels`: rows and chains are the lanes; for
the gradient the visible variables are. Everything is in single precision.
"""

from __future__ import annotations

import numpy as np
from numba import float32, uint32

from fastmix._jit import fused, inner, outer, summing
from fastmix.chains.layer_kernels import ROWS, add_products
from fastmix.chains.random_kernels import fill_numbers

__all__ = ["machine_steps"]


ONE = np.float32(1.0)
HALF = np.float32(0.5)
#: Log-odds beyond which nothing changes in single precision.
MAX_LOG_ODDS = np.float32(86.0)
LOG2_OF_E = np.float32(1.4426950408889634)
#: 1.5 2^23: adding it rounds to whole numbers.
ROUNDER = np.float32(12582912.0)
#: The logarithm of 2 as a sum of a number with few digits and the rest, so that products with the first are exact.
LN2_HIGH = np.float32(0.693359375)
LN2_LOW = np.float32(-2.12194440e-4)
#: Coefficients of the exponential series, fitted on half a unit around 0.
P2 = np.float32(0.5)
P3 = np.float32(1.66666666e-1)
P4 = np.float32(4.16666418e-2)
P5 = np.float32(8.33345e-3)
P6 = np.float32(1.39036e-3)
#: The bits of 1.0.
EXPONENT_OF_ONE = np.int32(127 << 23)
#: Random numbers of 24 bits times this are below 1.
UNIFORM_UNIT = np.float32(2.0**-24)


@fused
def _odds(fields, out):
    """``exp(-field)``: 2^k times a polynomial, with a relative error of about 1e-7."""
    for j in range(len(out)):
        f = min(max(-fields[j], -MAX_LOG_ODDS), MAX_LOG_ODDS)
        shifted = np.float32(f * LOG2_OF_E + ROUNDER)
        power = np.int32(np.int32(shifted.view(np.int32) << np.int32(23)) + EXPONENT_OF_ONE).view(np.float32)
        count = np.float32(shifted - ROUNDER)
        r = np.float32(np.float32(f - count * LN2_HIGH) - count * LN2_LOW)
        p = np.float32(P6 * r + P5)
        p = np.float32(p * r + P4)
        p = np.float32(p * r + P3)
        p = np.float32(p * r + P2)
        p = np.float32(p * r + ONE)
        out[j] = np.float32(np.float32(p * r + ONE) * power)


@inner
def _draw(odds, u, words, shift):
    """Set a bit of the words with probability ``1 / (1 + odds)``."""
    for k in range(len(words)):
        uniform = np.float32(np.int32(u[k] >> uint32(8))) * UNIFORM_UNIT
        bit = uint32(1) if np.float32(uniform * np.float32(ONE + odds[k])) < ONE else uint32(0)
        words[k] |= uint32(bit << shift)


@inner
def _weigh(odds, weights, out):
    """Probabilities ``1 / (1 + odds)`` times weights, into ``out``."""
    for k in range(len(out)):
        out[k] = weights[k] / (ONE + odds[k])


@inner
def _turn_bits(words, across):
    """Packed variables (words, lanes) as packed lanes (lanes / 32, variables)."""
    across[:] = uint32(0)
    for lane in range(words.shape[1]):
        shift = uint32(lane % 32)
        for k in range(len(words)):
            _spread_bits(words[k, lane], shift, across[lane // 32, 32 * k : 32 * k + 32])


@inner
def _spread_bits(word, shift, out):
    """Set bit ``shift`` of the 32 words of ``out`` to the bits of one word."""
    for k in range(32):
        out[k] |= uint32(uint32(uint32(word >> uint32(k)) & uint32(1)) << shift)


@summing
def _sum(row):
    """The sum of a row, in any order."""
    total = float32(0.0)
    for k in range(len(row)):
        total += row[k]
    return total


@summing
def _dot(row, other):
    """The product of two rows, added up in any order."""
    total = float32(0.0)
    for k in range(len(row)):
        total += row[k] * other[k]
    return total


@inner
def _add(out, row):
    """Add a row to ``out``."""
    for k in range(len(out)):
        out[k] += row[k]


@inner
def _less_penalty(gradient, rate, x, out):
    """A gradient less that of a quadratic penalty on parameters x, into ``out``."""
    for i in range(len(out)):
        out[i] = gradient[i] - rate * x[i]


@inner
def _penalty_of_fields(ridge, c, column_sums, out):
    """The derivative of the penalty of hidden fields, into ``out``."""
    for j in range(len(out)):
        out[j] = ridge * (c[j] + HALF * column_sums[j])


@inner
def _gradient(g, products, mu, of_visible, mean, center, w, mask, decay):
    """The gradient of the weights w of one hidden bit, into ``g``."""
    for i in range(len(g)):
        of_moments = products[i] - mu[i] * mean - HALF * of_visible[i] - (HALF - mu[i]) * center
        g[i] = mask[i] * (of_moments - decay * w[i])


@inner
def _step(x, g, mean, square, total, scales, constants):
    """A step of parameters x along their gradient g, after their running means and sums."""
    size = constants[0]
    correct = constants[1]
    least = constants[4]
    share = ONE - constants[2]
    share_of_squares = ONE - constants[3]
    for i in range(len(x)):
        total[i] += g[i]
        mean[i] += share * (g[i] - mean[i])
        square[i] += share_of_squares * (g[i] * g[i] - square[i])
        x[i] += scales[i] * size * mean[i] / (np.sqrt(square[i] * correct) + least)


@outer
def machine_steps(data, rows, row_weights, num_chains, lanes, parameters, constant, means, squares, sums, constants):
    """Steps, one for each row of ``constants``: means and draws of hidden bits, draws of the chains, and the gradient.

    ``data`` uint32 (rows, words) has packed bits; ``rows`` are those of one batch after another. Lanes are a batch,
    then the chains. ``parameters`` begin with W, its running means and its sum, (4, hidden, visible), padded. See
    :class:`fastmix.learning.rbm.Machine`.
    """
    words, h, streams, batch = lanes
    weights, beta, gamma, c, b, column_sums = parameters
    W = weights[0]
    means_w = weights[1]
    squares_w = weights[2]
    sums_w = weights[3]
    mu, mask, scales_w, scales_b, num_hidden = constant
    columns, padded = W.shape
    visible = len(beta)
    num_lanes = words.shape[1]
    num_chain_lanes = streams.shape[1]
    first_chain = num_lanes - num_chain_lanes
    s0 = streams[0]
    s1 = streams[1]
    s2 = streams[2]
    s3 = streams[3]
    flat = W.reshape(-1)
    none = np.int64(0)  # a plain 0 is a type of its own, for which functions are compiled once more
    one = np.int64(1)
    fields = np.zeros((columns, num_lanes), np.float32)
    across = np.zeros((num_lanes // 32, padded), np.uint32)
    odds = np.empty(num_lanes, np.float32)
    u = np.empty(num_chain_lanes, np.uint32)
    shares = fields[num_hidden]  # of the lanes in the difference of moments
    some = np.empty((32, num_chain_lanes), np.float32)
    products = np.empty((ROWS, padded), np.float32)
    g = np.empty(visible, np.float32)
    of_hidden = np.zeros(columns, np.float32)
    of_visible = np.empty(visible, np.float32)
    row_sums = np.empty(visible, np.float32)
    center = np.empty(columns, np.float32)
    change = np.empty(columns, np.float32)
    twos = np.full(columns, float32(2.0))

    for step in range(len(constants)):
        chosen = rows[step * batch : (step + 1) * batch]
        shares[:] = float32(0.0)
        shares[first_chain : first_chain + num_chains] = float32(-1.0 / num_chains)
        for r in range(len(chosen)):
            for k in range(len(words)):
                words[k, r] = data[chosen[r], k]
            shares[r] = float32(row_weights[chosen[r]] / len(chosen))
        _turn_bits(words, across)

        # Means of the hidden bits, times the weights; those of chains are drawn. One more row adds the visible bits up.
        for j in range(num_hidden):
            fields[j] = c[j]
        add_products(words, visible, flat, none, padded, one, fields[: (num_hidden + ROWS - 1) // ROWS * ROWS])
        h[:] = uint32(0)
        for j in range(num_hidden):
            _odds(fields[j], odds)
            fill_numbers(s0, s1, s2, s3, u)
            _draw(odds[first_chain:], u, h[j // 32], uint32(j % 32))
            _weigh(odds, shares, fields[j])
            of_hidden[j] = _sum(fields[j])

        # The chains' visible bits.
        for k in range(len(words)):
            count = min(32, visible - 32 * k)
            chain_words = words[k, first_chain:]
            for i in range(count):
                some[i] = b[32 * k + i]
            add_products(h, num_hidden, flat, 32 * k, one, padded, some)
            chain_words[:] = uint32(0)
            for i in range(count):
                _odds(some[i], odds[:num_chain_lanes])
                fill_numbers(s0, s1, s2, s3, u)
                _draw(odds[:num_chain_lanes], u, chain_words, uint32(i))

        # The gradient, and a step of W by rows; the penalty of hidden fields is that where all visible ones are 1/2.
        decay = constants[step, 5]
        ridge = float32(2.0) * decay
        _penalty_of_fields(ridge, c, column_sums, center)
        row_sums[:] = float32(0.0)
        for first in range(num_hidden // ROWS * ROWS, -1, -ROWS):  # the last has the sums of the visible bits
            products[:] = float32(0.0)
            add_products(across, num_lanes, fields.reshape(-1), first * num_lanes, num_lanes, one, products)
            if first + ROWS > num_hidden:
                for i in range(visible):
                    of_visible[i] = products[num_hidden - first, i]
            for j in range(first, min(first + ROWS, num_hidden)):
                w = W[j, :visible]
                kept = mask[min(j, len(mask) - 1), :visible]
                _gradient(g, products[j - first, :visible], mu, of_visible, of_hidden[j], center[j], w, kept, decay)
                mean = means_w[j, :visible]
                square = squares_w[j, :visible]
                _step(w, g, mean, square, sums_w[j, :visible], scales_w, constants[step])
                column_sums[j] = _sum(w)
                c[j] = -_dot(w, mu)
                _add(row_sums, w)
        _less_penalty(of_visible, ridge, beta, g)
        _step(beta, g, means[0], squares[0], sums[0], scales_b, constants[step])
        for i in range(visible):
            b[i] = beta[i] - HALF * row_sums[i]
        _less_penalty(of_hidden, ONE, center, change)
        _step(gamma, change, means[1], squares[1], sums[1], twos, constants[step])
        _add(c, gamma)
