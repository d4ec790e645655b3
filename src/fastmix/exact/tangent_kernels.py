"""The compiled loop of :mod:`fastmix.exact.tangents`: the steps of a program with the tangent of every entry beside it.

Import this module inside functions only: it needs Numba.
"""

from __future__ import annotations

import math

from fastmix._jit import njit
from fastmix.exact.program_kernels import DONE, IMPOSSIBLE, LINEAR, LOG, PRODUCT, SCALE, UNDERFLOW

__all__ = ["run_tangent_steps"]


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"nnan", "nsz"})
def run_tangent_steps(
    steps, groups, arithmetic, limits, first, last, scratch, w, ranges, scale, digits, tangents,
):  # fmt: skip
    """Do the steps from ``first`` to before ``last`` as :func:`fastmix.exact.program_kernels.run_steps` does.

    ``tangents`` has the derivative of every entry of ``w`` along a direction of the parameters; in logarithms, that of
    its logarithm. What tables are divided by counts as a constant: it cancels when marginals are normalized.
    """
    for s in range(first, last):
        step = steps[s]
        a = step[0]
        b = step[1]
        o = step[2]
        start = step[3]
        stop = step[4]
        kind = step[5]
        size = step[6]
        out = step[10]
        if arithmetic == LINEAR and out >= 0 and ranges[step[8]] + ranges[step[9]] > limits[2]:
            return UNDERFLOW
        inner = groups[stop - 1]
        n = inner[0]
        an = inner[1]
        bn = inner[2]
        on = inner[3]
        count = 1
        is_sum = on == 0
        for d in range(start, stop - 1):
            digits[d - start] = 0
            count *= groups[d, 0]
            is_sum = is_sum or groups[d, 3] == 0
        rounds = 2 if arithmetic == LOG and kind != SCALE and is_sum else 1
        if kind == PRODUCT and arithmetic == LINEAR:
            rounds = 0
        elif kind != SCALE:
            w[o : o + size] = 0.0 if arithmetic == LINEAR else -math.inf
            tangents[o : o + size] = 0.0
        for turn in range(rounds):
            ia = a
            ib = b
            io = o
            away = 0
            if turn == 1:  # the largest terms are known: add up the exponentials beside them
                away = scratch - o
                w[scratch : scratch + size] = 0.0
                tangents[scratch : scratch + size] = 0.0
            for _ in range(count):
                if arithmetic == LINEAR and kind == SCALE:
                    for i in range(n):
                        x = io + i * on
                        y = ib + i * bn
                        tangents[x] = tangents[x] * w[y] + w[x] * tangents[y]
                        w[x] *= w[y]
                elif arithmetic == LINEAR and on == 0:
                    total = 0.0
                    slope = 0.0
                    for i in range(n):
                        x = ia + i * an
                        y = ib + i * bn
                        total += w[x] * w[y]
                        slope += tangents[x] * w[y] + w[x] * tangents[y]
                    w[io] += total
                    tangents[io] += slope
                elif arithmetic == LINEAR:
                    for i in range(n):
                        x = ia + i * an
                        y = ib + i * bn
                        w[io + i * on] += w[x] * w[y]
                        tangents[io + i * on] += tangents[x] * w[y] + w[x] * tangents[y]
                elif kind == SCALE:
                    for i in range(n):
                        w[io + i * on] += w[ib + i * bn]
                        tangents[io + i * on] += tangents[ib + i * bn]
                elif turn == 0:
                    for i in range(n):
                        z = io + i * on
                        w[z] = max(w[z], w[ia + i * an] + w[ib + i * bn])
                        if not is_sum:
                            tangents[z] = tangents[ia + i * an] + tangents[ib + i * bn]
                else:
                    for i in range(n):
                        x = ia + i * an
                        y = ib + i * bn
                        value = w[x] + w[y]
                        if value > -math.inf:
                            share = math.exp(value - w[io + i * on])
                            w[io + away + i * on] += share
                            tangents[io + away + i * on] += share * (tangents[x] + tangents[y])
                for d in range(stop - 2, start - 1, -1):
                    row = groups[d]
                    digits[d - start] += 1
                    ia += row[1]
                    ib += row[2]
                    io += row[3]
                    if digits[d - start] < row[0]:
                        break
                    digits[d - start] = 0
                    ia -= row[0] * row[1]
                    ib -= row[0] * row[2]
                    io -= row[0] * row[3]
            if turn == 1:
                for i in range(size):
                    if w[scratch + i] > 0.0:
                        w[o + i] += math.log(w[scratch + i])
                        tangents[o + i] = tangents[scratch + i] / w[scratch + i]
        if not step[7]:
            continue
        least = 0.0 if arithmetic == LINEAR else -math.inf
        high = least
        low = math.inf
        for i in range(o, o + size):
            high = max(high, w[i])
            low = min(low, w[i] if w[i] > least else math.inf)
        if high == least:
            return UNDERFLOW if out < 0 and arithmetic == LINEAR else IMPOSSIBLE
        is_scaled = arithmetic != LINEAR or size == 1 or not limits[0] < high < limits[1]
        for i in range(o, o + size if is_scaled else o):
            if arithmetic == LINEAR:
                w[i] /= high
                tangents[i] /= high
            else:
                w[i] -= high
        if out >= 0:
            taken = math.log(high) if arithmetic == LINEAR else high
            ranges[out] = taken - (math.log(low) if arithmetic == LINEAR else low)
            scale[0] += taken if is_scaled else 0.0
    return DONE
