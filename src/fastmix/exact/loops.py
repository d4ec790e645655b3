"""Compiled sums of products of two tables: o[...] = sum of a[...] * b[...] over any axes, in place of any layout.

A contraction is given by groups of axes: rows of a size and the strides of three tables, 0 where a table lacks the
group. The same rows serve the sum upwards and both of its derivatives, with the three tables in other roles.
"""

from __future__ import annotations

import numpy as np

from fastmix._jit import njit

__all__ = ["COPY", "MAX", "SCALE", "SCALE_LOG", "SUM", "SUM_EXP", "contract", "extremes"]

SUM = 0
MAX = 1
SUM_EXP = 2
SCALE = 3
SCALE_LOG = 4
COPY = 5

_PLAIN, _TILED, _PLACED = 0, 1, 2
_TILE, _COPIED = 512, 2048  # entries of a tile that is visited by offsets, and of one that is copied
_CHUNK = 1024  # entries of a run that stay in the first level of cache while an axis is summed

# Sums may be reordered to vectorise; NaN and inf keep their meaning.
_FAST = {"reassoc", "contract", "nsz"}
_inner = njit(cache=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, fastmath=_FAST)


@_inner
def _dot(x, y):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(len(x)):
        total += x[i] * y[i]
    return total


@_inner
def _total(x):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(len(x)):
        total += x[i]
    return total


@_inner
def _add_scaled(o, x, y):  # type: ignore[no-untyped-def]
    for i in range(len(o)):
        o[i] += x[i] * y


@_inner
def _add_product(o, x, y):  # type: ignore[no-untyped-def]
    for i in range(len(o)):
        o[i] += x[i] * y[i]


@_inner
def _add_value(o, y):  # type: ignore[no-untyped-def]
    for i in range(len(o)):
        o[i] += y


@_inner
def _scale(o, y):  # type: ignore[no-untyped-def]
    for i in range(len(o)):
        o[i] *= y


@_inner
def _scale_by(o, y):  # type: ignore[no-untyped-def]
    for i in range(len(o)):
        o[i] *= y[i]


@_inner
def _plane(a, ia, b, ib, o, io, m, am, bm, om, n, an, bn, on):  # type: ignore[no-untyped-def]
    """O += a * b over two axes, the inner one with any strides."""
    if on == 1 and an == 1 and bn == 0:
        for _ in range(m):
            _add_scaled(o[io : io + n], a[ia : ia + n], b[ib])
            ia, ib, io = ia + am, ib + bm, io + om
    elif on == 1 and an == 1 and bn == 1:
        for _ in range(m):
            _add_product(o[io : io + n], a[ia : ia + n], b[ib : ib + n])
            ia, ib, io = ia + am, ib + bm, io + om
    elif on == 0 and an == 1 and bn == 1:
        for _ in range(m):
            o[io] += _dot(a[ia : ia + n], b[ib : ib + n])
            ia, ib, io = ia + am, ib + bm, io + om
    elif on == 0 and an == 1 and bn == 0:
        for _ in range(m):
            o[io] += _total(a[ia : ia + n]) * b[ib]
            ia, ib, io = ia + am, ib + bm, io + om
    elif on == 1 and an == 0 and bn == 0:
        for _ in range(m):
            _add_value(o[io : io + n], a[ia] * b[ib])
            ia, ib, io = ia + am, ib + bm, io + om
    elif on == 0:
        for _ in range(m):
            total = 0.0
            for i in range(n):
                total += a[ia + i * an] * b[ib + i * bn]
            o[io] += total
            ia, ib, io = ia + am, ib + bm, io + om
    else:
        for _ in range(m):
            for i in range(n):
                o[io + i * on] += a[ia + i * an] * b[ib + i * bn]
            ia, ib, io = ia + am, ib + bm, io + om


@_inner
def _other_plane(mode, top, a, ia, b, ib, o, io, m, am, bm, om, n, an, bn, on):  # type: ignore[no-untyped-def]
    """The same in logarithms, and products in place."""
    for _ in range(m):
        if mode == SCALE:
            if on == 1 and bn == 1:
                _scale_by(o[io : io + n], b[ib : ib + n])
            elif on == 1 and bn == 0:
                _scale(o[io : io + n], b[ib])
            else:
                for i in range(n):
                    o[io + i * on] *= b[ib + i * bn]
        elif mode == SCALE_LOG:
            for i in range(n):
                o[io + i * on] += b[ib + i * bn]
        elif mode == MAX:
            for i in range(n):
                o[io + i * on] = max(o[io + i * on], a[ia + i * an] + b[ib + i * bn])
        else:
            for i in range(n):
                value = a[ia + i * an] + b[ib + i * bn]
                if value > -np.inf:
                    o[io + i * on] += np.exp(value - top[io + i * on])
        ia, ib, io = ia + am, ib + bm, io + om


@_inner
def _choose(groups, ca, cb, co):  # type: ignore[no-untyped-def]
    """The groups to loop over innermost, and next to it."""
    inner, mid, best = 0, -1, -1.0
    for k in range(len(groups)):
        longest = max(groups[k, ca], groups[k, cb], groups[k, co])
        value = float(min(groups[k, 0], 64))
        if longest > 1:
            value /= 8.0
        elif groups[k, co] == 0:
            value *= 0.7
        if value > best:
            inner, best = k, value
    best = -1.0
    for k in range(len(groups)):
        if k != inner:
            value = float(groups[k, 0])
            if groups[k, co] == 0:
                value += 1e9
            if value > best:
                mid, best = k, value
    return inner, mid


@_inner
def _tile(groups, columns, limit, inside):  # type: ignore[no-untyped-def]
    """Offsets of the entries of a tile in each of the tables: the groups of the smallest strides, marked ``inside``.

    A group is taken in turn from each of the tables, so that a tile holds contiguous pieces of them all. Groups that
    the first table, the result, lacks vary slowest: none of its entries is changed twice in a row.
    """
    count, size = len(groups), 1
    inside[:] = False
    while True:
        added = False
        for c in columns:
            best = -1
            for k in range(count):
                if not inside[k] and groups[k, c] > 0 and (best < 0 or groups[k, c] < groups[best, c]):
                    best = k
            if best >= 0 and size * groups[best, 0] <= limit:
                inside[best] = True
                size *= groups[best, 0]
                added = True
        if not added:
            break
    offsets = np.zeros((len(columns), size), np.int64)
    filled = 1
    for late in range(2):
        for k in range(count - 1, -1, -1):
            if inside[k] and (groups[k, columns[0]] == 0) == (late == 1):
                for j in range(1, groups[k, 0]):
                    for t in range(len(columns)):
                        shift = j * groups[k, columns[t]]
                        for i in range(filled):
                            offsets[t, j * filled + i] = offsets[t, i] + shift
                filled *= groups[k, 0]
    return offsets


@_inner
def _contract_tile(a, ia, pa, b, ib, pb, o, io, po):  # type: ignore[no-untyped-def]
    for i in range(len(po)):
        o[io + po[i]] += a[ia + pa[i]] * b[ib + pb[i]]


@_inner
def _copy_tile(a, ia, pa, o, io, po):  # type: ignore[no-untyped-def]
    for i in range(len(po)):
        o[io + po[i]] = a[ia + pa[i]]


@_inner
def _scale_tile(b, ib, pb, o, io, po):  # type: ignore[no-untyped-def]
    for i in range(len(po)):
        o[io + po[i]] *= b[ib + pb[i]]


@_inner
def _loops(groups, ca, cb, co, mode):  # type: ignore[no-untyped-def]
    """The groups of the innermost loops, and whether they are plain, tiles by offsets, or sums put in place at the end.

    The last is for sums of runs that are contiguous in both tables but not in the result.
    """
    inner, mid = _choose(groups, ca, cb, co)
    if mode == COPY:
        return inner, mid, _TILED
    if mode not in (SUM, SCALE) or not _is_broken(groups, inner, ca, cb, co):
        return inner, mid, _PLAIN
    if mode == SUM:
        run, summed = -1, -1
        for k in range(len(groups)):
            size = groups[k, 0]
            if size >= 8 and max(groups[k, ca], groups[k, cb]) <= 1 and groups[k, co] > 1:
                if run < 0 or size > groups[run, 0]:
                    run = k
            elif size >= 8 and groups[k, co] == 0 and (summed < 0 or size > groups[summed, 0]):
                summed = k
        if run >= 0 and summed >= 0:
            return run, summed, _PLACED
    return inner, mid, _TILED


@_inner
def _is_broken(groups, inner, ca, cb, co):  # type: ignore[no-untyped-def]
    """Whether the longest run is so short, in a table that is not, that offsets are faster than loops."""
    if groups[inner, 0] >= 8 and max(groups[inner, ca], groups[inner, cb], groups[inner, co]) <= 1:
        return False
    entries = 1
    for k in range(len(groups)):
        entries *= groups[k, 0]
    return entries >= 32 * _TILE


@njit(cache=True, nogil=True)
def contract(a, b, o, groups, ca, cb, co, mode, top, start, stop):  # type: ignore[no-untyped-def]
    """Add the sum of products of the flat tables a and b to o, or what the mode says.

    ``groups`` (groups, 4) are sizes, and strides of three tables in the columns ca, cb and co. ``MAX`` is that of sums;
    ``SUM_EXP`` of exp(a + b - top), top as o; ``SCALE`` and ``SCALE_LOG`` are o times b; ``COPY`` is a, in the layout
    of o. Steps ``start`` to ``stop`` of the outer loops are made, all of them by a stop of -1; how many there are comes
    back.
    """
    inner, mid, kind = _loops(groups, ca, cb, co, mode)
    depth = 0
    outer = np.empty(len(groups), np.int64)
    steps = 1
    inside = np.zeros(len(groups), np.bool_)
    offsets = np.zeros((3, 0), np.int64)
    if kind == _TILED:
        offsets = _tile(groups, (co, ca, cb), _COPIED if mode == COPY else _TILE, inside)
    else:
        inside[inner] = True
        if mid >= 0:
            inside[mid] = True
    for k in range(len(groups)):
        if not inside[k]:
            # The largest strides outermost, so that tables are gone through piece by piece.
            reach = groups[k, ca] + groups[k, cb] + groups[k, co]
            d = depth
            while d > 0 and groups[outer[d - 1], ca] + groups[outer[d - 1], cb] + groups[outer[d - 1], co] < reach:
                outer[d] = outer[d - 1]
                d -= 1
            outer[d] = k
            depth += 1
            steps *= groups[k, 0]
    if stop < 0:
        stop = steps
    m, am, bm, om = 1, 0, 0, 0
    if mid >= 0:
        m, am, bm, om = groups[mid, 0], groups[mid, ca], groups[mid, cb], groups[mid, co]
    n, an, bn, on = groups[inner, 0], groups[inner, ca], groups[inner, cb], groups[inner, co]
    if mode == SUM and kind != _TILED and an == 0 and bn == 1:  # so that _plane sees the longer run in a
        a, b, ca, cb = b, a, cb, ca
        am, bm, an, bn = bm, am, bn, an
    chunk = _CHUNK if kind == _PLAIN and om == 0 and on != 0 else n
    sums = np.zeros(n if kind == _PLACED else 0)
    digits = np.zeros(len(groups), np.int64)
    none, one = np.int64(0), np.int64(1)  # a plain 0 is a type of its own, for which functions are compiled once more
    ia, ib, io = none, none, none
    rest = start
    for d in range(depth - 1, -1, -1):
        k = outer[d]
        digits[d] = rest % groups[k, 0]
        rest //= groups[k, 0]
        ia, ib, io = ia + digits[d] * groups[k, ca], ib + digits[d] * groups[k, cb], io + digits[d] * groups[k, co]
    for _ in range(start, stop):
        if mode == COPY:
            _copy_tile(a, ia, offsets[1], o, io, offsets[0])
        elif kind == _TILED and mode == SUM:
            _contract_tile(a, ia, offsets[1], b, ib, offsets[2], o, io, offsets[0])
        elif kind == _TILED:
            _scale_tile(b, ib, offsets[2], o, io, offsets[0])
        elif kind == _PLACED:
            sums[:] = 0.0
            _plane(a, ia, b, ib, sums, none, m, am, bm, none, n, an, bn, one)
            for i in range(n):
                o[io + i * on] += sums[i]
        elif mode == SUM:
            for done in range(0, n, chunk):
                size = min(chunk, n - done)
                ja, jb, jo = ia + done * an, ib + done * bn, io + done * on
                _plane(a, ja, b, jb, o, jo, m, am, bm, om, size, an, bn, on)
        else:
            _other_plane(mode, top, a, ia, b, ib, o, io, m, am, bm, om, n, an, bn, on)
        for d in range(depth - 1, -1, -1):
            k = outer[d]
            digits[d] += 1
            ia, ib, io = ia + groups[k, ca], ib + groups[k, cb], io + groups[k, co]
            if digits[d] < groups[k, 0]:
                break
            digits[d] = 0
            ia, ib = ia - groups[k, 0] * groups[k, ca], ib - groups[k, 0] * groups[k, cb]
            io -= groups[k, 0] * groups[k, co]
    return steps


@njit(cache=True, nogil=True, fastmath={"nnan", "reassoc", "nsz"})
def extremes(x):  # type: ignore[no-untyped-def]
    """Largest entry, and the smallest positive one."""
    high, low = 0.0, np.inf
    for i in range(len(x)):
        high = max(high, x[i])
        low = min(low, x[i] if x[i] > 0.0 else np.inf)
    return high, low
