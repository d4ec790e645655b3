"""Compiled steps of restricted Boltzmann machines on the CPU: conditional means, draws, gradient and step in one call.

Products with bits are those of :mod:`fastmix.chains.layer_kernels`: rows and chains are the lanes; for
the gradient the visible variables are. Everything is in single precision.
"""

from __future__ import annotations

import numpy as np
from numba import float32, uint32

from fastmix._jit import fused, inner, outer, summing
from fastmix.chains.kernels import _fill
from fastmix.chains.layer_kernels import ROWS, add_products

__all__ = ["machine_steps"]


_ONE, _HALF = np.float32(1.0), np.float32(0.5)
_LARGEST = np.float32(86.0)  # of log-odds
_LOG2E, _MAGIC = np.float32(1.4426950408889634), np.float32(12582912.0)  # adding 1.5 2^23 rounds to whole numbers
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_P2, _P3, _P4 = np.float32(0.5), np.float32(1.66666666e-1), np.float32(4.16666418e-2)
_P5, _P6 = np.float32(8.33345e-3), np.float32(1.39036e-3)
_EXPONENT = np.int32(127 << 23)
_UNIT = np.float32(2.0**-24)


@fused
def _odds(fields, out):  # type: ignore[no-untyped-def]
    """``exp(-field)``: 2^k times a polynomial, with a relative error of about 1e-7."""
    for j in range(len(out)):
        f = min(max(-fields[j], -_LARGEST), _LARGEST)
        shifted = np.float32(f * _LOG2E + _MAGIC)
        power = np.int32(np.int32(shifted.view(np.int32) << np.int32(23)) + _EXPONENT).view(np.float32)
        count = np.float32(shifted - _MAGIC)
        r = np.float32(np.float32(f - count * _LN2_HIGH) - count * _LN2_LOW)
        p = np.float32(_P6 * r + _P5)
        p = np.float32(p * r + _P4)
        p = np.float32(p * r + _P3)
        p = np.float32(p * r + _P2)
        p = np.float32(p * r + _ONE)
        out[j] = np.float32(np.float32(p * r + _ONE) * power)


@inner
def _draw(odds, u, words, shift):  # type: ignore[no-untyped-def]
    """Set a bit of the words with probability ``1 / (1 + odds)``."""
    for k in range(len(words)):
        uniform = np.float32(np.int32(u[k] >> uint32(8))) * _UNIT
        bit = uint32(1) if np.float32(uniform * np.float32(_ONE + odds[k])) < _ONE else uint32(0)
        words[k] |= uint32(bit << shift)


@inner
def _weigh(odds, weights, out):  # type: ignore[no-untyped-def]
    for k in range(len(out)):
        out[k] = weights[k] / (_ONE + odds[k])


@inner
def _turn_bits(words, across):  # type: ignore[no-untyped-def]
    """Packed variables (words, lanes) as packed lanes (lanes / 32, variables)."""
    across[:] = uint32(0)
    for lane in range(words.shape[1]):
        shift = uint32(lane % 32)
        for k in range(len(words)):
            _spread_bits(words[k, lane], shift, across[lane // 32, 32 * k : 32 * k + 32])


@inner
def _spread_bits(word, shift, out):  # type: ignore[no-untyped-def]
    for k in range(32):
        out[k] |= uint32(uint32(uint32(word >> uint32(k)) & uint32(1)) << shift)


@summing
def _sum(row):  # type: ignore[no-untyped-def]
    total = float32(0.0)
    for k in range(len(row)):
        total += row[k]
    return total


@summing
def _dot(row, other):  # type: ignore[no-untyped-def]
    total = float32(0.0)
    for k in range(len(row)):
        total += row[k] * other[k]
    return total


@inner
def _add(out, row):  # type: ignore[no-untyped-def]
    for k in range(len(out)):
        out[k] += row[k]


@inner
def _gradient(g, products, mu, of_visible, mean, centre, w, mask, decay):  # type: ignore[no-untyped-def]
    for i in range(len(g)):
        of_moments = products[i] - mu[i] * mean - _HALF * of_visible[i] - (_HALF - mu[i]) * centre
        g[i] = mask[i] * (of_moments - decay * w[i])


@inner
def _step(x, g, mean, square, total, scales, constants):  # type: ignore[no-untyped-def]
    """A step of parameters x along their gradient g, after their running means and sums."""
    size, correct, least = constants[0], constants[1], constants[4]
    share, share_of_squares = _ONE - constants[2], _ONE - constants[3]
    for i in range(len(x)):
        total[i] += g[i]
        mean[i] += share * (g[i] - mean[i])
        square[i] += share_of_squares * (g[i] * g[i] - square[i])
        x[i] += scales[i] * size * mean[i] / (np.sqrt(square[i] * correct) + least)


@outer
def machine_steps(  # type: ignore[no-untyped-def]
    data, rows, row_weights, num_chains, lanes, parameters, constant, means, squares, sums, constants
):
    """Steps, one for each row of ``constants``: means and draws of hidden bits, draws of the chains, and the gradient.

    ``data`` uint32 (rows, words) has packed bits; ``rows`` are those of one batch after another. Lanes are a batch,
    then the chains. ``parameters`` begin with W, its running means and its sum, (4, hidden, visible), padded. See
    :class:`fastmix.learning.machines.Machine`.
    """
    words, h, streams, batch = lanes
    weights, beta, gamma, c, b, column_sums = parameters
    W, means_w, squares_w, sums_w = weights[0], weights[1], weights[2], weights[3]
    mu, mask, scales_w, scales_b, num_hidden = constant
    columns, padded = W.shape
    visible, num_lanes, num_chain_lanes = len(beta), words.shape[1], streams.shape[1]
    first_chain = num_lanes - num_chain_lanes
    s0, s1, s2, s3 = streams[0], streams[1], streams[2], streams[3]
    flat = W.reshape(-1)
    none, one = np.int64(0), np.int64(1)  # a plain 0 is a type of its own, for which functions are compiled once more
    fields, across = np.zeros((columns, num_lanes), np.float32), np.zeros((num_lanes // 32, padded), np.uint32)
    odds, u = np.empty(num_lanes, np.float32), np.empty(num_chain_lanes, np.uint32)
    shares = fields[num_hidden]  # of the lanes in the difference of moments
    some, products = np.empty((32, num_chain_lanes), np.float32), np.empty((ROWS, padded), np.float32)
    g = np.empty(visible, np.float32)
    of_hidden, of_visible = np.zeros(columns, np.float32), np.empty(visible, np.float32)
    row_sums, twos = np.empty(visible, np.float32), np.full(columns, float32(2.0))

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
            _fill(s0, s1, s2, s3, u)
            _draw(odds[first_chain:], u, h[j // 32], uint32(j % 32))
            _weigh(odds, shares, fields[j])
            of_hidden[j] = _sum(fields[j])

        # The chains' visible bits.
        for k in range(len(words)):
            count, chain_words = min(32, visible - 32 * k), words[k, first_chain:]
            for i in range(count):
                some[i] = b[32 * k + i]
            add_products(h, num_hidden, flat, 32 * k, one, padded, some)
            chain_words[:] = uint32(0)
            for i in range(count):
                _odds(some[i], odds[:num_chain_lanes])
                _fill(s0, s1, s2, s3, u)
                _draw(odds[:num_chain_lanes], u, chain_words, uint32(i))

        # The gradient, and a step of W by rows; the penalty of hidden fields is that where all visible ones are 1/2.
        decay = constants[step, 5]
        ridge = float32(2.0) * decay
        centre = ridge * (c + _HALF * column_sums)
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
                _gradient(g, products[j - first, :visible], mu, of_visible, of_hidden[j], centre[j], w, kept, decay)
                _step(
                    w, g, means_w[j, :visible], squares_w[j, :visible], sums_w[j, :visible], scales_w,
                    constants[step],
                )  # fmt: skip
                column_sums[j], c[j] = _sum(w), -_dot(w, mu)
                _add(row_sums, w)
        _step(beta, of_visible - ridge * beta, means[0], squares[0], sums[0], scales_b, constants[step])
        for i in range(visible):
            b[i] = beta[i] - _HALF * row_sums[i]
        _step(gamma, of_hidden - centre, means[1], squares[1], sums[1], twos, constants[step])
        c += gamma
