"""Compiled steps of restricted Boltzmann machines on the CPU: conditional means, draws, gradient and step in one call.

Products with bits are looked up four bits at a time (:mod:`fastmix.chains.layer_kernels`), a few groups of four for all
lanes before the next, so that their sums stay in the caches. Everything is in single precision.
"""

from __future__ import annotations

import numpy as np
from numba import float32, uint8, uint32, uint64

from fastmix._jit import njit
from fastmix.chains.kernels import _fill
from fastmix.chains.layer_kernels import WIDTH, add_rows, fill_group

__all__ = ["machine_step"]

_inner = njit(cache=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
_fused = njit(cache=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True, fastmath={"contract"})
_outer = njit(cache=True, nogil=True, error_model="numpy")

_ONE, _HALF = np.float32(1.0), np.float32(0.5)
_LARGEST = np.float32(86.0)  # of log-odds
_LOG2E, _MAGIC = np.float32(1.4426950408889634), np.float32(12582912.0)  # adding 1.5 2^23 rounds to whole numbers
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_P2, _P3, _P4 = np.float32(0.5), np.float32(1.66666666e-1), np.float32(4.16666418e-2)
_P5, _P6 = np.float32(8.33345e-3), np.float32(1.39036e-3)
_EXPONENT = np.int32(127 << 23)
_UNIT = np.float32(2.0**-24)


@_fused
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


@_inner
def _draw(odds, u, out):  # type: ignore[no-untyped-def]
    """Bits that are 1 with probability ``1 / (1 + odds)``."""
    for j in range(len(out)):
        uniform = np.float32(np.int32(u[j] >> uint32(8))) * _UNIT
        out[j] = uint8(1) if np.float32(uniform * np.float32(_ONE + odds[j])) < _ONE else uint8(0)


@_inner
def _weigh(odds, weight, out):  # type: ignore[no-untyped-def]
    for j in range(len(out)):
        out[j] = weight / (_ONE + odds[j])


@_inner
def _nibbles(words, out):  # type: ignore[no-untyped-def]
    """Patterns of four bytes that are 0 or 1, taken for a word: a product puts them side by side."""
    for g in range(len(out)):
        out[g] = uint8((uint64(words[g]) * uint64(0x01020408)) >> uint64(24) & uint64(15))


@_inner
def _join(out, a, b, c, d):  # type: ignore[no-untyped-def]
    for k in range(len(out)):
        out[k] = uint8(a[k] | uint8(b[k] << 1) | uint8(c[k] << 2) | uint8(d[k] << 3))


@_inner
def _add(out, row):  # type: ignore[no-untyped-def]
    for j in range(len(out)):
        out[j] += row[j]


@njit(cache=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True, fastmath={"reassoc"})
def _sum(row):  # type: ignore[no-untyped-def]
    total = float32(0.0)
    for j in range(len(row)):
        total += row[j]
    return total


@_inner
def _add_times(out, row, factor):  # type: ignore[no-untyped-def]
    for j in range(len(out)):
        out[j] += factor * row[j]


@_inner
def _turn(matrix, first, last, out):  # type: ignore[no-untyped-def]
    """Rows from first to last of a matrix become the columns of ``out``, 16 at a time."""
    for block in range(first, last, 16):
        for j in range(len(out)):
            for i in range(block, min(block + 16, last)):
                out[j, i - first] = matrix[i, j]


@_inner
def _centred_row(out, products, of_hidden, weights, centre, mask, mu, half, decay):  # type: ignore[no-untyped-def]
    """A row of the gradient with respect to W."""
    shift = _HALF - mu
    for j in range(len(out)):
        out[j] = mask[j] * (products[j] - mu * of_hidden[j] - half - decay * weights[j] - shift * centre[j])


@_inner
def _scaled_row(x, gradient, mean, square, total, scale, constants):  # type: ignore[no-untyped-def]
    size, correct, forget, forget_squares, least = constants[0], constants[1], constants[2], constants[3], constants[4]
    for j in range(len(x)):
        g = gradient[j]
        total[j] += g
        mean[j] = forget * mean[j] + (_ONE - forget) * g
        square[j] = forget_squares * square[j] + (_ONE - forget_squares) * g * g
        x[j] += scale * size * mean[j] / (np.sqrt(square[j] * correct) + least)


@_outer
def machine_step(  # type: ignore[no-untyped-def]
    data, chosen, weights, lanes, hidden_lanes, room, parameters, constant, means, squares, sums, constants
):
    """One step: means and draws of the hidden bits, draws of the chains, and a step along the gradient.

    ``data`` uint8 (rows, 4 groups) has bits, padded with zeros; ``chosen`` rows of it are the first lanes, the chains
    the others, with the ``weights`` (lanes,) of a difference of moments. See :class:`fastmix.learning.machines.Machine`
    for the other arrays; ``room`` is what is written before it is read.
    """
    bits, words, patterns, streams = lanes
    h, h_words, h_patterns = hidden_lanes
    fields, table, across, products, turned, u, odds = room
    W, beta, gamma, c, b, column_sums = parameters
    mu, mask, scales_w, scales_b, num_hidden = constant
    at_once = len(table)
    visible, groups, num_lanes = len(W), patterns.shape[1], len(bits)
    first_chain, tiles = num_lanes - len(h), len(fields)
    s0, s1, s2, s3 = streams[0], streams[1], streams[2], streams[3]
    flat_table, flat_patterns, flat_across = table.reshape(-1), patterns.reshape(-1), across.reshape(-1)

    for r in range(len(chosen)):
        bits[r] = data[chosen[r]]
    for r in range(num_lanes):
        _nibbles(words[r], patterns[r])
    for g in range(len(across)):
        _join(across[g], bits[4 * g], bits[4 * g + 1], bits[4 * g + 2], bits[4 * g + 3])

    # Means of the hidden bits, times the weights; those of chains are drawn.
    of_hidden = np.zeros(len(gamma), np.float32)
    for t in range(tiles):
        tile, columns = fields[t], slice(t * WIDTH, (t + 1) * WIDTH)
        count = min(WIDTH, num_hidden - t * WIDTH)
        for r in range(num_lanes):
            tile[r] = c[columns]
        for first in range(0, groups, at_once):
            some = min(at_once, groups - first)
            for g in range(some):
                fill_group(W, 4 * (first + g), t * WIDTH, (t + 1) * WIDTH, table[g])
            for r in range(num_lanes):
                add_rows(tile.reshape(-1), flat_table, flat_patterns, r, r * groups + first, 1, some)
        for r in range(num_lanes):
            _odds(tile[r], odds)
            if r >= first_chain and count > 0:
                _fill(s0, s1, s2, s3, u)
                _draw(odds[:count], u, h[r - first_chain, t * WIDTH : t * WIDTH + count])
            _weigh(odds, weights[r], tile[r])
            if count < WIDTH:
                tile[r, count:] = float32(0.0)
                tile[r, count] = weights[r]  # one more column adds the visible bits up
            _add(of_hidden[columns], tile[r])
    of_hidden[num_hidden:] = float32(0.0)

    # The chains' visible bits.
    for r in range(len(h)):
        _nibbles(h_words[r], h_patterns[r])
    h_groups, flat_h = (num_hidden + 3) // 4, h_patterns.reshape(-1)
    tile = products[: len(h)]
    for first in range(0, visible, WIDTH):
        last = min(visible, first + WIDTH)
        _turn(W, first, last, turned)
        for r in range(len(h)):
            tile[r, : last - first] = b[first:last]
        for begin in range(0, h_groups, at_once):
            some = min(at_once, h_groups - begin)
            for g in range(some):
                fill_group(turned, 4 * (begin + g), 0, WIDTH, table[g])
            for r in range(len(h)):
                add_rows(tile.reshape(-1), flat_table, flat_h, r, r * h_patterns.shape[1] + begin, 1, some)
        for r in range(len(h)):
            _odds(tile[r], odds)
            _fill(s0, s1, s2, s3, u)
            _draw(odds, u, bits[first_chain + r, first:last])

    # The gradient, and a step of every row of W; the penalty of hidden fields is that where all visible ones are 1/2.
    decay = constants[5]
    ridge = float32(2.0) * decay
    centre, row = ridge * (c + _HALF * column_sums), np.empty(WIDTH, np.float32)
    of_visible, row_sums = np.empty(visible, np.float32), np.zeros(visible, np.float32)
    c[:], column_sums[:] = float32(0.0), float32(0.0)
    for t in range(tiles - 1, -1, -1):  # the last has the sums of the visible bits
        products[:visible] = float32(0.0)
        for begin in range(0, len(across), at_once):
            some = min(at_once, len(across) - begin)
            for g in range(some):
                fill_group(fields[t], 4 * (begin + g), 0, WIDTH, table[g])
            step = across.shape[1]
            for i in range(visible):
                add_rows(products.reshape(-1), flat_table, flat_across, i, begin * step + i, step, some)
        if t == tiles - 1:
            of_visible[:] = products[:visible, num_hidden - t * WIDTH]
        part = slice(t * WIDTH, (t + 1) * WIDTH)
        for i in range(visible):
            w = W[i, part]
            _centred_row(
                row, products[i], of_hidden[part], w, centre[part], mask[i, part], mu[i], _HALF * of_visible[i], decay
            )
            _scaled_row(w, row, means[0][i, part], squares[0][i, part], sums[0][i, part], scales_w[i], constants)
            _add(column_sums[part], w)
            _add_times(c[part], w, -mu[i])
            row_sums[i] += _sum(w)
    for i in range(visible):
        one = slice(i, i + 1)
        _scaled_row(
            beta[one], of_visible[one] - ridge * beta[one], means[1][one], squares[1][one], sums[1][one], scales_b[i],
            constants,
        )  # fmt: skip
        b[i] = beta[i] - _HALF * row_sums[i]
    _scaled_row(gamma, of_hidden - centre, means[2], squares[2], sums[2], float32(2.0), constants)
    c += gamma
