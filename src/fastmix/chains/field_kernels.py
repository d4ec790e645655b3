"""Compiled Gibbs sweeps of many configurations of binary sites with any number of neighbors, from their log-odds."""

from __future__ import annotations

import numpy as np
from numba import uint32

from fastmix._jit import fused, inner, outer
from fastmix.chains.kernels import _INTEGER, _MOST, _UNIT, _collect, _count, _fill

__all__ = ["field_sweeps"]

# Functions are fused where that is both faster and more accurate.
_INTEGER_BITS = 0x433 << 52  # of 2^52
_LOG2E, _MAGIC = 1.4426950408889634, 6755399441055744.0  # 1.5 * 2^52: adding it leaves the nearest integer behind
_LN2_HIGH, _LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10
_EXPONENT = 1023 << 52


@fused
def _add_four(out, x, y, z, w, a, b, d, e):  # type: ignore[no-untyped-def]
    """Four terms at once, so that the sums stay in registers; eight take longer than twice four."""
    for c in range(len(out)):
        out[c] = (((out[c] + a * x[c]) + b * y[c]) + d * z[c]) + e * w[c]


@inner
def _add_scaled(out, part, rung, weights):  # type: ignore[no-untyped-def]
    for c in range(len(out)):
        out[c] += weights[rung[c]] * part[c]


@fused
def _draw_by_odds(x, field, u, threshold):  # type: ignore[no-untyped-def]
    """Draw 0.0 or 1.0 by log-odds, and leave the thresholds of 1 / (1 + exp(field)).

    The exponential is 2^k times a polynomial on abs(r) <= ln(2) / 2, the best one of degree 8 for the relative error
    (by Remez's algorithm): at most 7.8e-13, which moves a threshold by less than a thousandth of a unit of 2^-32.
    Whole numbers are compared as they are in the low bits of floating-point numbers from 2^52 on.
    """
    for c in range(len(x)):
        f = min(max(field[c], -700.0), 700.0)
        shifted = np.float64(f * _LOG2E + _MAGIC)
        power = np.int64((shifted.view(np.int64) << 52) + _EXPONENT).view(np.float64)
        count = shifted - _MAGIC
        r = (f - count * _LN2_HIGH) - count * _LN2_LOW
        p = 2.472714171532563e-05
        p = p * r + 0.0001991549591761959
        p = p * r + 0.0013889179223924085
        p = p * r + 0.008333266899922726
        p = p * r + 0.04166666421271249
        p = p * r + 0.16666666886100032
        p = p * r + 0.5000000000620699
        p = p * r + 0.9999999999805461
        p = p * r + 0.9999999999997612
        value = np.float64(min(_UNIT / (1.0 + p * power), _MOST) + _INTEGER)
        x[c] = 1.0 if np.int64(np.int64(u[c]) + _INTEGER_BITS).view(np.float64) >= value else 0.0
        threshold[c] = uint32(value.view(np.int64) & 0xFFFFFFFF)


@outer
def field_sweeps(  # type: ignore[no-untyped-def]
    x, rung, coefficients, order, indptr, neighbors, weights, offsets, joined, streams, sums, num_sweeps, mode
):
    """Sweeps of lanes side by side for binary variables of any degree.

    ``x`` (n, W) holds 0.0 and 1.0. The log-odds of variable ``i = order[p]`` under theta d are ``offsets[d, i]`` plus,
    if ``joined[d]``, the sum of ``weights[d]`` times x over its neighbors, from ``indptr[p]`` on, a positive multiple
    of four (some of weight 0); ``coefficients[d, rung]`` mixes the thetas.
    """
    width = x.shape[1]
    top = width - sums.shape[1]
    field, part = np.empty(width), np.empty(width)
    u, threshold = np.empty(width, np.uint32), np.empty(width, np.uint32)
    s0, s1, s2, s3 = streams[0], streams[1], streams[2], streams[3]
    for _ in range(num_sweeps):
        for p, i in enumerate(order):
            _fill(s0, s1, s2, s3, u)
            field[:] = 0.0
            for theta in range(len(joined)):
                w, part[:] = weights[theta], offsets[theta, i]
                if joined[theta]:
                    for k in range(indptr[p], indptr[p + 1], 4):
                        y, z, v, t = x[neighbors[k]], x[neighbors[k + 1]], x[neighbors[k + 2]], x[neighbors[k + 3]]
                        _add_four(part, y, z, v, t, w[k], w[k + 1], w[k + 2], w[k + 3])
                if coefficients.size > 1:
                    _add_scaled(field, part, rung, coefficients[theta])
            _draw_by_odds(x[i], part if coefficients.size == 1 else field, u, threshold)
            if mode == 1:
                _collect(sums[i], threshold[top:])
            elif mode == 2:
                _count(sums[i], x[i, top:], 0)
