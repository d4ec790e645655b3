"""What :mod:`fastmix.exact.program_kernels` does, to the bit, with NumPy: for a sequence that is run once or twice.

Loading the compiler takes longer than a few hundred steps. Products are rounded one by one and sums are taken in the
order of the compiled loops, so that an answer does not depend on how often the sequence was run before.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fastmix._arrays import FloatArray, IntArray

__all__ = ["DONE", "IMPOSSIBLE", "UNDERFLOW", "fill_leaves", "read_marginals", "run_steps"]


DONE = 0
IMPOSSIBLE = 1
UNDERFLOW = 2


def fill_leaves(
    w: FloatArray, values: FloatArray, leaves: IntArray, members: IntArray, positions: IntArray, ranges: FloatArray
) -> float:
    """Logs of factors joined, their largest entries taken out; the sum of these, -inf where a table is zero."""
    log_scale = 0.0
    places = members[:, 1].tolist()
    for number, start, size, first, last, _ in leaves.tolist():
        table = w[start : start + size]
        for place in places[first:last]:
            table += values[positions[place : place + size]]
        high, finite = float(table.max()), table[table > -np.inf]
        if not len(finite):
            return -math.inf
        log_scale += high
        ranges[number] = high - finite.min()
        table -= high
    return log_scale


def run_steps(
    w: FloatArray,
    steps: IntArray,
    groups: IntArray,
    ranges: FloatArray,
    _: int,
    limits: tuple[float, float, float, float],
    scales: FloatArray,
) -> int:
    """Do all contractions: :data:`DONE`, :data:`IMPOSSIBLE` or :data:`UNDERFLOW`."""
    least, most, most_range, _least_total = limits
    every = groups.tolist()
    for s, step in enumerate(steps.tolist()):
        o, scale, size, (first, second, out) = step[2], step[8], step[9], step[10:]
        if out >= 0 and ranges[first] + ranges[second] > most_range:
            return UNDERFLOW
        _contract(w, step[:3], every[step[6] : step[7]], step[3:6], bool(scale))
        if not size:
            continue
        table = w[o : o + size]
        high, positive = float(table.max()), table[table > 0.0]
        if not high > 0.0:
            return IMPOSSIBLE if out >= 0 else UNDERFLOW
        low = float(positive.min())
        if size == 1 or not least < high < most:
            table /= high
            if out >= 0:
                scales[s] = high
        if out >= 0:
            ranges[out] = math.log(high) - math.log(low)
    return DONE


def _contract(w: FloatArray, starts: list[int], rows: list[list[int]], columns: list[int], scale: bool) -> None:
    """Add the sum of a times b to o, or with ``scale`` multiply o by b."""
    shape, last = [row[0] for row in rows], len(rows) - 1
    a, b, o = [[8 * row[c] for row in rows] for c in columns]
    y = np.ndarray(shape, np.float64, w, 8 * starts[1], b)
    if scale:
        z = np.ndarray(shape, np.float64, w, 8 * starts[2], o)
        z *= y
        return
    product: Any = np.ndarray(shape, np.float64, w, 8 * starts[0], a) * y
    left = [k for k, stride in enumerate(o) if stride]
    summed = [k for k in range(last) if not o[k]]
    if not o[last]:  # the innermost loop has a sum of its own
        product = _in_order(product)
    if summed:
        product = product.transpose([*left, *summed])
        product = _in_order(product.reshape([*[shape[k] for k in left], -1]))
    z = np.ndarray([shape[k] for k in left], np.float64, w, 8 * starts[2], [o[k] for k in left])
    z += product


def _in_order(table: FloatArray) -> FloatArray:
    """Sums over the last axis, from the first term to the last."""
    return np.asarray(np.add.accumulate(table, axis=-1)[..., -1])


def read_marginals(
    w: FloatArray,
    back: int,
    leaves: IntArray,
    members: IntArray,
    positions: IntArray,
    readings: IntArray,
    targets: IntArray,
    least: float,
    wanted: tuple[int, int],
    nodes: FloatArray,
    joint: FloatArray,
) -> bool:
    """Add up the marginals of leaves to those of variables and of factors; whether none has underflown."""
    rows = members.tolist()
    for _, start, size, first, last, in_place in leaves.tolist():
        belief = w[back + start : back + start + size]
        if not in_place:
            belief *= w[start : start + size]
        total = float(np.add.accumulate(belief)[-1])
        if not total > least:
            return False
        belief /= total
        for factor, place in rows[first:last]:
            if wanted[0] <= factor < wanted[1]:
                np.add.at(joint, positions[place : place + size], belief)
    for start, size, place in readings.tolist():
        np.add.at(nodes, targets[place : place + size], w[back + start : back + start + size])
    return True
