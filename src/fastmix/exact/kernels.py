"""Compiled loops over clique tables that are too large for NumPy to be fast.

A clique table is never stored. It is visited in slices that stay in the cache: its innermost axes vary within a slice,
the others from slice to slice. What happens in a slice is a short program of four operations on contiguous arrays,
written once per clique and carried out for every slice:

- ``INSERT``: x[a, k, b] = y[a, b];
- ``MULTIPLY``: x[a, k, b] *= y[a, b];
- ``SUM``: x[a, b] = sum over k of y[a, k, b];
- ``ADD``: x[b] += y[b];

each with k < n and b < inner; and the same for tables of logarithms.
"""

from __future__ import annotations

import numpy as np

from fastmix._jit import njit

__all__ = ["SLICE", "run", "write_program"]

_INSERT, _MULTIPLY, _SUM, _ADD = 0, 1, 2, 3

SLICE = 4096  # entries of a slice: with its scratch space it fits the first two levels of cache

# Sums may be reordered to vectorise; NaN and inf keep their meaning.
_FAST = {"reassoc", "contract", "nsz"}

# Functions called only from compiled code need no entry points from Python, which saves compilation time.
_inner = njit(cache=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)
_sum = njit(cache=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, fastmath=_FAST)


@_inner
def _multiply_row(x, y):  # type: ignore[no-untyped-def]
    for i in range(len(x)):
        x[i] *= y[i]


@_inner
def _add_row(x, y):  # type: ignore[no-untyped-def]
    for i in range(len(x)):
        x[i] += y[i]


@_inner
def _copy_row(x, y):  # type: ignore[no-untyped-def]
    for i in range(len(x)):
        x[i] = y[i]


@_inner
def _multiply_pairs(x, y):  # type: ignore[no-untyped-def]
    for i in range(len(y)):
        x[2 * i] *= y[i]
        x[2 * i + 1] *= y[i]


@_inner
def _copy_pairs(x, y):  # type: ignore[no-untyped-def]
    for i in range(len(y)):
        x[2 * i] = y[i]
        x[2 * i + 1] = y[i]


@_inner
def _sum_pairs(x, y):  # type: ignore[no-untyped-def]
    for i in range(len(x)):
        x[i] = y[2 * i] + y[2 * i + 1]


@_inner
def _scale_by_two(x, a, b):  # type: ignore[no-untyped-def]
    for i in range(len(x) // 2):
        x[2 * i] *= a
        x[2 * i + 1] *= b


@_inner
def _scale_by_four(x, a, b, c, d):  # type: ignore[no-untyped-def]
    for i in range(len(x) // 4):
        x[4 * i] *= a
        x[4 * i + 1] *= b
        x[4 * i + 2] *= c
        x[4 * i + 3] *= d


@_sum
def _sum_row(x):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(len(x)):
        total += x[i]
    return total


@_sum
def _sum_strided_two(x):  # type: ignore[no-untyped-def]
    a, b = 0.0, 0.0
    for i in range(len(x) // 2):
        a += x[2 * i]
        b += x[2 * i + 1]
    return a, b


@_sum
def _sum_strided_four(x):  # type: ignore[no-untyped-def]
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    for i in range(len(x) // 4):
        a += x[4 * i]
        b += x[4 * i + 1]
        c += x[4 * i + 2]
        d += x[4 * i + 3]
    return a, b, c, d


@_inner
def _insert(big, small, n, inner):  # type: ignore[no-untyped-def]
    """big[a, k, b] = small[a, b] for k < n and b < inner."""
    if inner == 1 and n == 2:
        _copy_pairs(big, small)
        return
    for a in range(len(small) // inner):
        row = small[a * inner : (a + 1) * inner]
        block = big[a * n * inner : (a + 1) * n * inner]
        if inner == 1:
            block[:] = row[0]
        else:
            _copy_row(block[:inner], row)
            done = inner
            while done < len(block):  # doubling keeps the copies long
                more = min(done, len(block) - done)
                _copy_row(block[done : done + more], block[:more])
                done += more


@_inner
def _multiply_insert(big, small, n, inner):  # type: ignore[no-untyped-def]
    """big[a, k, b] *= small[a, b] for k < n and b < inner."""
    if inner == 1 and n == 2:
        _multiply_pairs(big, small)
        return
    for a in range(len(small) // inner):
        block = big[a * n * inner : (a + 1) * n * inner]
        if inner == 1:
            value = small[a]
            for k in range(n):
                block[k] *= value
        elif inner == 2:
            _scale_by_two(block, small[2 * a], small[2 * a + 1])
        elif inner == 4:
            _scale_by_four(block, small[4 * a], small[4 * a + 1], small[4 * a + 2], small[4 * a + 3])
        else:
            row = small[a * inner : (a + 1) * inner]
            for k in range(n):
                _multiply_row(block[k * inner : (k + 1) * inner], row)


@_inner
def _sum_out(small, big, n, inner):  # type: ignore[no-untyped-def]
    """small[a, b] = sum over k < n of big[a, k, b], b < inner."""
    if inner == 1 and n == 2:
        _sum_pairs(small, big)
        return
    for a in range(len(small) // inner):
        block = big[a * n * inner : (a + 1) * n * inner]
        if inner == 1:
            small[a] = _sum_row(block)
        elif inner == 2:
            small[2 * a], small[2 * a + 1] = _sum_strided_two(block)
        elif inner == 4:
            small[4 * a], small[4 * a + 1], small[4 * a + 2], small[4 * a + 3] = _sum_strided_four(block)
        else:
            row = small[a * inner : (a + 1) * inner]
            _copy_row(row, block[:inner])
            for k in range(1, n):
                _add_row(row, block[k * inner : (k + 1) * inner])


@_inner
def _add_insert(big, small, n, inner):  # type: ignore[no-untyped-def]
    """big[a, k, b] += small[a, b]: multiplication of logs."""
    for a in range(len(small) // inner):
        for k in range(n):
            _add_row(big[(a * n + k) * inner : (a * n + k + 1) * inner], small[a * inner : (a + 1) * inner])


@_inner
def _log_sum_out(small, big, n, inner):  # type: ignore[no-untyped-def]
    """small[a, b] = log of the sum over k < n of exp(big[a, k, b])."""
    if n == 2:
        for a in range(len(small) // inner):
            for b in range(inner):
                x, y = big[2 * a * inner + b], big[(2 * a + 1) * inner + b]
                high, low = max(x, y), min(x, y)
                small[a * inner + b] = high + np.log1p(np.exp(low - high)) if low > -np.inf else high
        return
    for a in range(len(small) // inner):
        for b in range(inner):
            top = -np.inf
            for k in range(n):
                top = max(top, big[(a * n + k) * inner + b])
            total = 0.0
            if top > -np.inf:
                for k in range(n):
                    total += np.exp(big[(a * n + k) * inner + b] - top)
                top += np.log(total)
            small[a * inner + b] = top


@_inner
def _log_accumulate(x, y):  # type: ignore[no-untyped-def]
    for i in range(len(x)):
        if y[i] > -np.inf:
            low, high = min(x[i], y[i]), max(x[i], y[i])
            x[i] = high + np.log1p(np.exp(low - high))


@_inner
def _append(program, count, operation, x, x_length, y, y_length, n, inner):  # type: ignore[no-untyped-def]
    program[count, 0], program[count, 1], program[count, 2], program[count, 3] = operation, x, x_length, y
    program[count, 4], program[count, 5], program[count, 6] = y_length, n, inner
    return count + 1


@njit(cache=True)
def write_program(sizes, here, num_inputs):  # type: ignore[no-untyped-def]
    """The program that multiplies the first tables over a clique and sums the product into the others.

    ``sizes`` are those of the axes of the clique, outermost first, ``here`` says which of them each table has. Program,
    strides and outer sizes come back for :func:`run`, and the entries of a slice: three scratch arrays of that length
    follow the tables.
    """
    num_tables, depth = here.shape
    first, length = depth - 1, sizes[depth - 1]
    while first > 0 and length * sizes[first - 1] <= SLICE:
        first -= 1
        length *= sizes[first]
    strides = np.zeros((num_tables + 3, first), np.int64)
    program = np.empty((num_tables * (depth - first + 2), 7), np.int64)
    group, inside = np.empty(depth, np.int64), np.empty(depth, np.bool_)
    count, work = 0, num_tables
    for t in range(num_tables):
        # Merge neighboring axes of the slice that are both present or both absent into groups.
        num_groups, entries = 0, 1
        for axis in range(first, depth):
            if here[t, axis]:
                entries *= sizes[axis]
            if num_groups and inside[num_groups - 1] == here[t, axis]:
                group[num_groups - 1] *= sizes[axis]
            else:
                group[num_groups], inside[num_groups] = sizes[axis], here[t, axis]
                num_groups += 1
        stride = entries
        for axis in range(first - 1, -1, -1):
            if here[t, axis]:
                strides[t, axis] = stride
                stride *= sizes[axis]
        scratch = work + 1
        if t < num_inputs:
            # Insert the absent groups, innermost first; the outermost one is inserted while multiplying.
            source, inner = t, 1
            last = 0 if not inside[0] else 1
            for g in range(num_groups - 1, last, -1):
                if not inside[g]:
                    count = _append(
                        program, count, _INSERT, scratch, entries * group[g], source, entries, group[g], inner
                    )
                    entries *= group[g]
                    source, scratch = scratch, 2 * work + 3 - scratch
                inner *= group[g]
            n = 1
            if last < num_groups:
                n = group[last]
            elif num_groups == 1:
                inner = length
            operation = _MULTIPLY if t else _INSERT  # the first table fills the slice
            count = _append(program, count, operation, work, length, source, entries, n, inner)
        else:
            # Sum out the absent groups, outermost first, and add what is left to the table.
            source, inner, left = work, length, length
            for g in range(num_groups):
                inner //= group[g]
                if not inside[g]:
                    count = _append(program, count, _SUM, scratch, left // group[g], source, left, group[g], inner)
                    left //= group[g]
                    source, scratch = scratch, 2 * work + 3 - scratch
            count = _append(program, count, _ADD, t, left, source, left, 1, left)
    return program[:count], strides, sizes[:first].copy(), length


@_inner
def _advance(base, strides, digits, sizes):  # type: ignore[no-untyped-def]
    """One step of the odometer over the outer axes: the tables' offsets for the next slice."""
    for axis in range(len(digits) - 1, -1, -1):
        digits[axis] += 1
        for t in range(len(base)):
            base[t] += strides[t, axis]
        if digits[axis] < sizes[axis]:
            return
        for t in range(len(base)):
            base[t] -= strides[t, axis] * sizes[axis]
        digits[axis] = 0


@njit(cache=True, nogil=True)
def run(pool, base, strides, sizes, digits, program, num_slices, log):  # type: ignore[no-untyped-def]
    """Carry out a program for some slices, from where ``base`` and ``digits`` stand, which move on.

    ``pool`` has all tables and scratch space, ``base`` where each begins in this slice; ``strides`` say how far that
    moves when an outer axis does (0 for scratch space), ``digits`` where on these axes, of ``sizes``, the slice is. A
    row of the program is operation, table x, its length, table y, its length, n, inner. ``log``: tables of logarithms.
    """
    for _ in range(num_slices):
        for p in range(len(program)):
            x = pool[base[program[p, 1]] : base[program[p, 1]] + program[p, 2]]
            y = pool[base[program[p, 3]] : base[program[p, 3]] + program[p, 4]]
            operation, n, inner = program[p, 0], program[p, 5], program[p, 6]
            if operation == _INSERT:
                _insert(x, y, n, inner)
            elif operation == _MULTIPLY:
                if log:
                    _add_insert(x, y, n, inner)
                else:
                    _multiply_insert(x, y, n, inner)
            elif operation == _SUM:
                if log:
                    _log_sum_out(x, y, n, inner)
                else:
                    _sum_out(x, y, n, inner)
            elif log:
                _log_accumulate(x, y)
            else:
                _add_row(x, y)
        _advance(base, strides, digits, sizes)
