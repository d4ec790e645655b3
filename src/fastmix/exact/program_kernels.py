"""A whole sequence of small sums of products, forward and backward, in one flat array.

All tables lie one after another, then a one, then the derivatives in the same order. A contraction is given by rows of
a size and three strides, as in :mod:`fastmix.exact.loops`.

The functions are loops that run compiled, on arrays, or as they are, on lists: a sequence that is run once or twice
needs no compiler. Sums are in the order of the loops and nothing is fused, so that both give the same bits.
"""

from __future__ import annotations

import math
from typing import Any

__all__ = ["DONE", "IMPOSSIBLE", "UNDERFLOW", "fill_leaves", "read_marginals", "run_steps"]

DONE = 0
IMPOSSIBLE = 1
UNDERFLOW = 2


def fill_leaves(leaves: Any, members: Any, positions: Any, values: Any, w: Any, ranges: Any) -> float:
    """Logs of factors joined, their largest entries taken out; the sum of these, -inf where a table is zero.

    A row of ``leaves`` has the number of a table, where it lies in ``w``, its size, its first row of ``members`` and
    that after its last, and whether it multiplies another table in place. A row of ``members`` has the number of a
    factor, and where its ``positions`` begin: by entry of the leaf, the entry of ``values`` that belongs to it.
    ``ranges`` get the logarithm of the largest ratio of the entries of every leaf.
    """
    log_scale = 0.0
    for k in range(len(leaves)):
        leaf = leaves[k]
        start, size = leaf[1], leaf[2]
        for m in range(leaf[3], leaf[4]):
            place = members[m][1]
            for i in range(size):
                w[start + i] += values[positions[place + i]]
        high, low = -math.inf, math.inf
        for i in range(start, start + size):
            high = max(high, w[i])
            if w[i] > -math.inf:
                low = min(low, w[i])
        if high == -math.inf:
            return high
        log_scale += high
        ranges[leaf[0]] = high - low
        for i in range(start, start + size):
            w[i] -= high
    return log_scale


def run_steps(steps: Any, groups: Any, limits: Any, w: Any, ranges: Any, scales: Any, digits: Any) -> int:
    """Do all contractions: :data:`DONE`, :data:`IMPOSSIBLE` or :data:`UNDERFLOW`.

    A row of ``steps`` has where the tables a, b and o lie; the columns of their strides in ``groups``; its first row
    there and that after its last, the innermost loop; whether o is multiplied by b, instead of adding the sum of a
    times b to it; the entries of o to look at, 0 where that is not needed; and going forward the numbers of the three
    tables, -1 going back. ``limits`` as of :func:`fastmix.exact.passes.limits`; ``scales``, ones, get what tables are
    divided by going forward; ``digits`` is room for the groups of a step.
    """
    least, most, most_range = limits[0], limits[1], limits[2]
    for s in range(len(steps)):
        step = steps[s]
        ia, ib, io, ca, cb, co, first, last = step[0], step[1], step[2], step[3], step[4], step[5], step[6], step[7]
        scale, size, out = step[8], step[9], step[12]
        if out >= 0 and ranges[step[10]] + ranges[step[11]] > most_range:
            return UNDERFLOW
        begin, inner = io, groups[last - 1]
        n, an, bn, on = inner[0], inner[ca], inner[cb], inner[co]
        count = 1
        for d in range(first, last - 1):
            digits[d - first] = 0
            count *= groups[d][0]
        for _ in range(count):
            if scale:
                for i in range(n):
                    w[io + i * on] *= w[ib + i * bn]
            elif on == 0:
                total = 0.0
                for i in range(n):
                    total += w[ia + i * an] * w[ib + i * bn]
                w[io] += total
            else:
                for i in range(n):
                    w[io + i * on] += w[ia + i * an] * w[ib + i * bn]
            for d in range(last - 2, first - 1, -1):
                row = groups[d]
                digits[d - first] += 1
                ia, ib, io = ia + row[ca], ib + row[cb], io + row[co]
                if digits[d - first] < row[0]:
                    break
                digits[d - first] = 0
                ia, ib, io = ia - row[0] * row[ca], ib - row[0] * row[cb], io - row[0] * row[co]
        if size == 0:
            continue
        high, low = 0.0, math.inf
        for i in range(begin, begin + size):
            high = max(high, w[i])
            if w[i] > 0.0:
                low = min(low, w[i])
        if not high > 0.0:
            return IMPOSSIBLE if out >= 0 else UNDERFLOW
        if size == 1 or not least < high < most:
            for i in range(begin, begin + size):
                w[i] /= high
            if out >= 0:
                scales[s] = high
        if out >= 0:
            ranges[out] = math.log(high) - math.log(low)
    return DONE


def read_marginals(
    leaves: Any, members: Any, positions: Any, readings: Any, targets: Any, back: int, least: float, wanted: Any,
    w: Any, nodes: Any, joint: Any,
) -> bool:  # fmt: skip
    """Add up the marginals of leaves to those of variables and of factors; whether none has underflown.

    Derivatives begin at ``back`` in ``w``. A row of ``readings`` has where the leaf of a variable lies, its size, and
    where its ``targets`` begin: by entry of the leaf, the entry of ``nodes`` that it belongs to. ``wanted`` are the
    first factor whose marginals are added to ``joint``, laid out as the values, and that after the last.
    """
    for k in range(len(leaves)):
        leaf = leaves[k]
        start, size = leaf[1], leaf[2]
        begin = back + start
        total = 0.0
        for i in range(size):
            if not leaf[5]:
                w[begin + i] *= w[start + i]
            total += w[begin + i]
        if not total > least:
            return False
        for i in range(size):
            w[begin + i] /= total
        for m in range(leaf[3], leaf[4]):
            place = members[m][1]
            if wanted[0] <= members[m][0] < wanted[1]:
                for i in range(size):
                    joint[positions[place + i]] += w[begin + i]
    for r in range(len(readings)):
        begin, place = back + readings[r][0], readings[r][2]
        for i in range(readings[r][1]):
            nodes[targets[place + i]] += w[begin + i]
    return True
