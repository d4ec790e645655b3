"""Compiled loops of two layers of bits, all of one joined to most of the other: products with a matrix of bits.

A sum of weights over the bits of a layer is looked up for four bits at a time (the method of four Russians): sums of
all 16 patterns are made once for the weights, and a product of a matrix of bits with one of numbers then takes a
quarter of the additions. Sums are in single precision.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import config, float32, types, uint8
from numba.core import cgutils
from numba.extending import intrinsic

from fastmix._jit import inner, outer
from fastmix.chains.field_kernels import _draw_by_odds
from fastmix.chains.kernels import _collect, _count, _fill

__all__ = ["WIDTH", "add_fields", "add_rows", "fill_group", "fill_patterns", "layers_sweeps", "patterns_of"]


WIDTH = 112  # variables of a tile, whose fields are added up together: seven registers of 16 numbers
_GROUPS = 8  # of patterns that are looked up for all lanes before the next: their sums fit into the second cache
_STRIP = 16  # of them that are turned at a time


@inner
def _copy_sum(out, a, b):  # type: ignore[no-untyped-def]
    for j in range(len(out)):
        out[j] = a[j] + b[j]


@inner
def fill_group(weights, row, first, last, out):  # type: ignore[no-untyped-def]
    """Sums of four rows of ``weights`` from ``row`` on, over all patterns, into ``out`` (16, at least last - first).

    Columns from ``first`` to ``last``; rows that are not there count as 0.
    """
    count = last - first
    out[0] = float32(0.0)
    size = 1
    for k in range(row, row + 4):
        for p in range(size):
            new, old = out[size + p, :count], out[p, :count]
            if k < len(weights):
                _copy_sum(new, old, weights[k, first:last])
            else:
                new[:] = old
        size *= 2


@outer
def fill_patterns(weights, table):  # type: ignore[no-untyped-def]
    """Sums of the rows of ``weights`` (k, m) over all patterns of four, into ``table`` (tiles, ceil(k / 4), 16, width).

    Columns are cut into tiles; what the last one has beyond m stays as it is.
    """
    width = table.shape[3]
    for t in range(len(table)):
        for g in range(table.shape[1]):
            fill_group(weights, 4 * g, t * width, min(weights.shape[1], (t + 1) * width), table[t, g])


@inner
def _join(out, a, b, c, d):  # type: ignore[no-untyped-def]
    for k in range(len(out)):
        out[k] = uint8(a[k] + uint8(b[k] << 1) + uint8(c[k] << 2) + uint8(d[k] << 3))


@outer
def patterns_of(x, sites, zeros, out):  # type: ignore[no-untyped-def]
    """Patterns of the rows ``sites`` of bits x (any number, W), four at a time, into ``out`` (groups, W)."""
    for g in range(len(out)):
        k, left = 4 * g, len(sites) - 4 * g
        b = x[sites[k + 1]] if left > 1 else zeros
        c = x[sites[k + 2]] if left > 2 else zeros
        d = x[sites[k + 3]] if left > 3 else zeros
        _join(out[g], x[sites[k]], b, c, d)


def add_rows(fields, table, pattern, lane, at, step, count):  # type: ignore[no-untyped-def]
    """Add rows ``16 g + pattern[at + g * step]`` of the table, for ``count`` groups g, to row ``lane`` of the fields.

    A row is ``WIDTH`` numbers, and arrays are flat.
    """
    for g in range(count):
        row = WIDTH * (16 * g + int(pattern[at + g * step]))
        fields[WIDTH * lane : WIDTH * (lane + 1)] += table[row : row + WIDTH]


@intrinsic
def _add_rows_in_registers(typing_context, fields, table, pattern, lane, at, step, count):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """The same with sums that stay in registers: compiled loops over arrays would store and load them every time."""
    signature = types.void(fields, table, pattern, lane, at, step, count)

    def code(context, builder, call, values):  # type: ignore[no-untyped-def]
        out, rows, choice = (
            context.make_array(kind)(context, builder, value).data
            for kind, value in zip(call.args[:3], values[:3], strict=True)
        )
        lane_at, begin, stride, number = values[3:]
        index, vector = ir.IntType(64), ir.VectorType(ir.FloatType(), 16)
        unit = ir.Constant(index, WIDTH)
        base = builder.gep(out, [builder.mul(lane_at, unit)])
        sums = [cgutils.alloca_once(builder, vector) for _ in range(WIDTH // 16)]
        places = [ir.Constant(index, 16 * k) for k in range(WIDTH // 16)]

        def part(pointer, place):  # type: ignore[no-untyped-def]
            return builder.bitcast(builder.gep(pointer, [place]), vector.as_pointer())

        for total, place in zip(sums, places, strict=True):
            builder.store(builder.load(part(base, place), align=4), total)
        with cgutils.for_range(builder, number, intp=index) as loop:
            g = loop.index
            chosen = builder.load(builder.gep(choice, [builder.add(builder.mul(g, stride), begin)]))
            row = builder.add(builder.shl(g, ir.Constant(index, 4)), builder.zext(chosen, index))
            source = builder.gep(rows, [builder.mul(row, unit)])
            for total, place in zip(sums, places, strict=True):
                value = builder.load(part(source, place), align=4)
                builder.store(builder.fadd(builder.load(total), value), total)
        for total, place in zip(sums, places, strict=True):
            builder.store(builder.load(total), part(base, place), align=4)
        return context.get_dummy_value()

    return signature, code


if not config.DISABLE_JIT:  # type: ignore[attr-defined]
    add_rows = _add_rows_in_registers  # type: ignore[assignment]


@outer
def add_fields(pattern, table, fields):  # type: ignore[no-untyped-def]
    """Add to ``fields`` (W, WIDTH) what patterns (groups, W) look up in the ``table`` (groups, 16, WIDTH) of a tile."""
    groups, lanes = pattern.shape
    flat, rows, choice = fields.reshape(-1), table.reshape(-1), pattern.reshape(-1)
    for first in range(0, groups, _GROUPS):
        count = min(groups - first, _GROUPS)
        part = rows[first * 16 * WIDTH :]
        for lane in range(lanes):
            add_rows(flat, part, choice, lane, first * lanes + lane, lanes, count)


@outer
def layers_sweeps(  # type: ignore[no-untyped-def]
    x, sites, starts, offsets, tables, streams, sums, num_sweeps, mode
):
    """Sweeps of lanes x (n, W) of two layers of bits, ``sites[starts[k]:starts[k + 1]]`` for layer k.

    ``tables[k]`` has the weights of layer k, by patterns of the other; ``offsets`` are by place in ``sites``.
    """
    lanes = x.shape[1]
    turned, zeros = np.empty((_STRIP, lanes)), np.zeros(lanes, np.uint8)
    u, threshold, drawn = np.empty(lanes, np.uint32), np.empty(lanes, np.uint32), np.empty(lanes)
    s0, s1, s2, s3 = streams[0], streams[1], streams[2], streams[3]
    for _ in range(num_sweeps):
        for layer in range(2):
            own, others = sites[starts[layer] : starts[layer + 1]], sites[starts[1 - layer] : starts[2 - layer]]
            table, width = tables[layer], tables[layer].shape[3]
            fields = np.empty((lanes, width), np.float32)
            pattern = np.empty((table.shape[1], lanes), np.uint8)
            patterns_of(x, others, zeros, pattern)
            for tile in range(len(table)):
                first, last = tile * width, min(len(own), (tile + 1) * width)
                for k in range(lanes):
                    fields[k, : last - first] = offsets[starts[layer] + first : starts[layer] + last]
                add_fields(pattern, table[tile], fields)
                for strip in range(0, last - first, _STRIP):
                    count = min(_STRIP, last - first - strip)
                    _turn(fields, strip, count, turned)
                    for j in range(count):
                        i = own[first + strip + j]
                        _fill(s0, s1, s2, s3, u)
                        _draw_by_odds(drawn, turned[j], u, threshold)
                        _to_bits(x[i], drawn)
                        if mode == 1:
                            _collect(sums[i], threshold)
                        elif mode == 2:
                            _count(sums[i], x[i], 0)


@inner
def _turn(fields, first, count, out):  # type: ignore[no-untyped-def]
    for k in range(len(fields)):
        for j in range(count):
            out[j, k] = fields[k, first + j]


@inner
def _to_bits(out, values):  # type: ignore[no-untyped-def]
    for k in range(len(out)):
        out[k] = uint8(values[k])
