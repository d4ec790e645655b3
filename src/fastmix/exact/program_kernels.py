"""The loop that runs a plan of sums of products of two tables, in ordinary arithmetic or in logarithms.

All tables lie in one flat array. A sum of products is given by where its three tables begin and by rows of a size and
three strides, 0 where a table lacks the axes.

The function runs compiled, on arrays, or as it is, on lists and views of memory: a plan that is run once or twice
needs no compiler. Sums are in the order of the loops and nothing is fused, so that both give the same bits.
"""

from __future__ import annotations

import math
from typing import Any

__all__ = ["DONE", "IMPOSSIBLE", "LINEAR", "LOG", "MAX", "PRODUCT", "SCALE", "SUM", "UNDERFLOW", "run_steps"]

DONE = 0
IMPOSSIBLE = 1
UNDERFLOW = 2

LINEAR = 0
LOG = 1
MAX = 2

SUM = 0
SCALE = 1
PRODUCT = 2

#: Entries of an innermost loop from which on views of its own are worth it. Its effect is in the column `seconds` of
#: ``benchmarks/exact.py``; it stands here because it is compiled into the loop.
MIN_SLICE_LENGTH = 8


def run_steps(
    steps: Any, groups: Any, arithmetic: int, limits: Any, first: int, last: int, scratch: int, w: Any, ranges: Any,
    scale: Any, digits: Any,
) -> int:  # fmt: skip
    """Do the steps from ``first`` to before ``last``: :data:`DONE`, :data:`IMPOSSIBLE` or :data:`UNDERFLOW`.

    A row of ``steps`` has where the tables a, b and o begin in ``w``; its first row of ``groups`` and that after its
    last, the innermost loop; what to do (:data:`SUM` fills o with the sum of a times b, :data:`SCALE` multiplies o by
    b, :data:`PRODUCT` is a sum that was a matrix product and is done, in ordinary arithmetic); the entries of o, 0 if
    the sum is added to what is there; whether these are to be scaled; and going forward the numbers of the three
    tables, -1 going back. ``limits`` are the range in which tables are not scaled and the largest log of a ratio of
    entries; ``ranges`` have these logs by table; to ``scale`` the logs are added of what tables are divided by going
    forward. From ``scratch`` on there is room for a table, and in ``digits`` for the groups of a step.
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
            count *= groups[d][0]
            is_sum = is_sum or groups[d][3] == 0
        rounds = 2 if arithmetic == LOG and kind != SCALE and is_sum else 1
        if kind == PRODUCT and arithmetic == LINEAR:
            rounds = 0
        elif kind != SCALE:
            for i in range(o, o + size):
                w[i] = 0.0 if arithmetic == LINEAR else -math.inf
        for turn in range(rounds):
            ia = a
            ib = b
            io = o
            away = 0
            if turn == 1:  # the largest terms are known: add up the exponentials beside them
                away = scratch - o
                for i in range(scratch, scratch + size):
                    w[i] = 0.0
            for _ in range(count):
                if arithmetic == LINEAR and kind != SCALE and on == 0:
                    # Four sums, so that no term waits for the one before.
                    even = 0.0
                    odd = 0.0
                    third = 0.0
                    fourth = 0.0
                    m = n // 4 * 4
                    for i in range(0, m, 4):
                        ja = ia + i * an
                        jb = ib + i * bn
                        even += w[ja] * w[jb]
                        odd += w[ja + an] * w[jb + bn]
                        third += w[ja + 2 * an] * w[jb + 2 * bn]
                        fourth += w[ja + 3 * an] * w[jb + 3 * bn]
                    for i in range(m, n):
                        even += w[ia + i * an] * w[ib + i * bn]
                    w[io] += (even + odd) + (third + fourth)
                elif arithmetic == LINEAR and n >= MIN_SLICE_LENGTH and on == 1 and an == 1 and bn <= 1:
                    x = w[ia : ia + n]
                    y = w[ib : ib + n]
                    z = w[io : io + n]
                    factor = w[ib]
                    if kind == SCALE and bn == 0:
                        for i in range(n):
                            z[i] *= factor
                    elif kind == SCALE:
                        for i in range(n):
                            z[i] *= y[i]
                    elif bn == 0:
                        for i in range(n):
                            z[i] += x[i] * factor
                    else:
                        for i in range(n):
                            z[i] += x[i] * y[i]
                elif arithmetic == LINEAR and kind == SCALE:
                    for i in range(n):
                        w[io + i * on] *= w[ib + i * bn]
                elif arithmetic == LINEAR:
                    for i in range(n):
                        w[io + i * on] += w[ia + i * an] * w[ib + i * bn]
                elif kind == SCALE:
                    for i in range(n):
                        w[io + i * on] += w[ib + i * bn]
                elif turn == 0:
                    for i in range(n):
                        w[io + i * on] = max(w[io + i * on], w[ia + i * an] + w[ib + i * bn])
                else:
                    for i in range(n):
                        value = w[ia + i * an] + w[ib + i * bn]
                        if value > -math.inf:
                            w[io + away + i * on] += math.exp(value - w[io + i * on])
                for d in range(stop - 2, start - 1, -1):
                    row = groups[d]
                    digits[d - start] += 1
                    ia, ib, io = ia + row[1], ib + row[2], io + row[3]
                    if digits[d - start] < row[0]:
                        break
                    digits[d - start] = 0
                    ia, ib, io = ia - row[0] * row[1], ib - row[0] * row[2], io - row[0] * row[3]
            if turn == 1:
                for i in range(size):
                    if w[scratch + i] > 0.0:
                        w[o + i] += math.log(w[scratch + i])
        if not step[7]:
            continue
        least = 0.0 if arithmetic == LINEAR else -math.inf
        high = least
        low = math.inf
        z = w[o : o + size]
        for i in range(size):
            high = max(high, z[i])
            low = min(low, z[i] if z[i] > least else math.inf)
        if high == least:
            return UNDERFLOW if out < 0 and arithmetic == LINEAR else IMPOSSIBLE
        is_scaled = arithmetic != LINEAR or size == 1 or not limits[0] < high < limits[1]
        for i in range(size if is_scaled else 0):
            z[i] = z[i] - high if arithmetic != LINEAR else z[i] / high
        if out >= 0:
            taken = math.log(high) if arithmetic == LINEAR else high
            ranges[out] = taken - (math.log(low) if arithmetic == LINEAR else low)
            scale[0] += taken if is_scaled else 0.0
    return DONE
