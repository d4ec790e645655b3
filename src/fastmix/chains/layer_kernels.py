"""Compiled loops of two layers of bits, all of one joined to most of the other: products with a matrix of bits.

A sum of weights over four bits has 16 values (the method of four Russians). Those of 32 bits, for 16 rows of weights,
stay in the nearest cache; what a lane adds is found by its bits, 16 sums at a time. Bits are packed, 32 variables in a
word. Sums are in single precision.
"""

# Intrinsics are called without the context of the compiler.
# mypy: disable-error-code=call-arg

from __future__ import annotations

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import config, float32, types, uint32
from numba.core import cgutils
from numba.extending import intrinsic

from fastmix._jit import inner, outer
from fastmix.chains.kernels import _collect, _copy, _count, _draw_by_odds, _fill

__all__ = ["LANES", "ROWS", "add_products", "layers_sweeps"]

LANES = 32  # of which learning has whole blocks
ROWS = 16  # of sums that are made at a time
_AT_ONCE = 256  # lanes whose sums stay in the nearest cache, with the tables
_TILE = 8  # rows and columns of a square that is turned at a time
_INDEX = ir.IntType(64)


def _plain_products(words, num_bits, weights, at, row_step, bit_step, out):  # type: ignore[no-untyped-def]
    """:func:`add_products`, bit by bit."""
    rows = at + row_step * np.arange(len(out))
    for k in range(num_bits):
        bits = words[k // 32] >> np.uint32(k % 32) & np.uint32(1)
        out += np.outer(weights[rows + k * bit_step], bits)


@inner
def add_products(words, num_bits, weights, at, row_step, bit_step, out):  # type: ignore[no-untyped-def]
    """Add to ``out`` (rows, lanes) the weights of the bits that are set in ``words`` (bits / 32, lanes).

    Rows are a multiple of 16, lanes of 8. Bit k has the weight ``weights[at + r * row_step + k * bit_step]`` for row r,
    of a flat array in which one of the steps is 1, and which has finite numbers for whole bytes of bits.
    """
    lanes, flat, target = words.shape[1], words.reshape(-1), out.reshape(-1)
    room = np.empty((_AT_ONCE + 161) * ROWS, np.float32)
    room = room[-(room.ctypes.data >> 2) & 15 :]  # from the beginning of a line of the cache
    tables, block, sums = room[: 128 * ROWS], room[128 * ROWS : 160 * ROWS], room[160 * ROWS :]
    for first in range(0, len(out), ROWS):
        for lane in range(0, lanes, _AT_ONCE):
            count = min(_AT_ONCE, lanes - lane)
            sums[: count * ROWS] = float32(0.0)
            for word in range((num_bits + 31) // 32):
                num_bytes = min(4, (num_bits + 7) // 8 - 4 * word)
                start = at + first * row_step + 32 * word * bit_step
                if row_step == 1:
                    _make_tables(weights, start, bit_step, tables, 2 * num_bytes)
                else:
                    block[:] = float32(0.0)
                    for k in range(0, 8 * num_bytes, _TILE):
                        for r in range(0, ROWS, _TILE):
                            _add_turned(weights, start + r * row_step + k, row_step, block, k * ROWS + r, ROWS)
                    _make_tables(block, 0, ROWS, tables, 2 * num_bytes)
                if num_bytes == 4:
                    _add_words(flat, word * lanes + lane, count, 0, tables, 0, sums)
                else:
                    for k in range(num_bytes):
                        _add_bytes(flat, word * lanes + lane, count, 8 * k, tables, 32 * k * ROWS, sums)
            for k in range(0, count, _TILE):
                for r in range(0, ROWS, _TILE):
                    _add_turned(sums, k * ROWS + r, ROWS, target, (first + r) * lanes + lane + k, lanes)


def _vector(builder, base, place, count):  # type: ignore[no-untyped-def]
    """Where ``count`` numbers from a place on are."""
    return builder.bitcast(builder.gep(base, [place]), ir.VectorType(ir.FloatType(), count).as_pointer())


def _times(builder, value, count):  # type: ignore[no-untyped-def]
    return builder.mul(value, ir.Constant(_INDEX, count))


def _data(context, builder, call, values, *which):  # type: ignore[no-untyped-def]
    return [context.make_array(call.args[k])(context, builder, values[k]).data for k in which]


def _adder(groups):  # type: ignore[no-untyped-def]
    """An intrinsic that adds, for every lane, what tables have for so many groups of four bits of its word."""

    @intrinsic
    def add(_, words, at, lanes, shift, tables, first, sums):  # type: ignore[no-untyped-def]  # noqa: ARG001
        i = types.intp

        def code(context, builder, call, values):  # type: ignore[no-untyped-def]
            words, tables, sums = _data(context, builder, call, values, 0, 4, 6)
            _, at, lanes, shift, _, first, _ = values
            with cgutils.for_range(builder, lanes, intp=_INDEX) as loop:
                word = builder.load(builder.gep(words, [builder.add(at, loop.index)]))
                word = builder.lshr(builder.zext(word, _INDEX), shift)
                place = _vector(builder, sums, _times(builder, loop.index, ROWS), ROWS)
                total = builder.load(place, align=4)
                for group in range(groups):
                    four = builder.and_(builder.lshr(word, ir.Constant(_INDEX, 4 * group)), ir.Constant(_INDEX, 15))
                    entry = builder.add(_times(builder, four, ROWS), ir.Constant(_INDEX, 16 * ROWS * group))
                    entry = _vector(builder, tables, builder.add(first, entry), ROWS)
                    total = builder.fadd(total, builder.load(entry, align=4))
                builder.store(total, place, align=4)
            return context.get_dummy_value()

        return types.void(words, i, i, i, tables, i, sums), code

    return add


_add_words, _add_bytes = _adder(8), _adder(2)


@intrinsic
def _make_tables(_, weights, at, step, tables, groups):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """The 16 sums of every group of four bits, for 16 rows of weights; bit k has those from ``at + k * step`` on."""
    i = types.intp

    def code(context, builder, call, values):  # type: ignore[no-untyped-def]
        weights, tables = _data(context, builder, call, values, 0, 3)
        _, at, step, _, groups = values
        with cgutils.for_range(builder, groups, intp=_INDEX) as loop:
            sums = [ir.Constant(ir.VectorType(ir.FloatType(), ROWS), [0.0] * ROWS)]
            for k in range(4):
                bit = builder.add(_times(builder, loop.index, 4), ir.Constant(_INDEX, k))
                place = _vector(builder, weights, builder.add(at, builder.mul(bit, step)), ROWS)
                row = builder.load(place, align=4)
                sums += [builder.fadd(some, row) if p else row for p, some in enumerate(sums)]
            for p, some in enumerate(sums):
                entry = builder.add(_times(builder, loop.index, 16 * ROWS), ir.Constant(_INDEX, p * ROWS))
                builder.store(some, _vector(builder, tables, entry, ROWS), align=4)
        return context.get_dummy_value()

    return types.void(weights, i, i, tables, i), code


@intrinsic
def _add_turned(_, values, at, step, out, out_at, out_step):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """Add a square of 8 rows of a matrix to 8 columns of another: halves, quarters and single numbers change places."""
    i = types.intp
    integers = ir.VectorType(ir.IntType(32), _TILE)

    def code(context, builder, call, arguments):  # type: ignore[no-untyped-def]
        values, out = _data(context, builder, call, arguments, 0, 3)
        _, at, step, _, out_at, out_step = arguments

        def place(base, first, step, k):  # type: ignore[no-untyped-def]
            return _vector(builder, base, builder.add(first, _times(builder, step, k)), _TILE)

        rows = [builder.load(place(values, at, step, k), align=4) for k in range(_TILE)]
        for width in (4, 2, 1):
            low = ir.Constant(integers, [_TILE + j - width if j & width else j for j in range(_TILE)])
            high = ir.Constant(integers, [_TILE + j if j & width else j + width for j in range(_TILE)])
            for k in range(_TILE):
                if not k & width:
                    pair = rows[k], rows[k + width]
                    rows[k], rows[k + width] = (builder.shuffle_vector(*pair, mask) for mask in (low, high))
        for k, row in enumerate(rows):
            target = place(out, out_at, out_step, k)
            builder.store(builder.fadd(builder.load(target, align=4), row), target, align=4)
        return context.get_dummy_value()

    return types.void(values, i, i, out, i, i), code


if config.DISABLE_JIT:  # type: ignore[attr-defined]
    add_products = _plain_products


@outer
def layers_sweeps(  # type: ignore[no-untyped-def]
    x, sites, starts, offsets, weights, streams, sums, num_sweeps, mode
):
    """Sweeps of lanes x (n, W) of two layers of bits, ``sites[starts[k]:starts[k + 1]]`` for layer k.

    ``weights`` has a row for every site of the first layer and a column for every one of the second, and zeros up to
    multiples of 16; ``offsets`` are by place in ``sites``.
    """
    lanes, step = x.shape[1], weights.shape[1]
    padded = (lanes + _TILE - 1) // _TILE * _TILE
    u, threshold = np.empty(lanes, np.uint32), np.empty(lanes, np.uint32)
    field, drawn = np.empty(lanes), np.empty(lanes)
    fields, flat = np.empty((ROWS, padded), np.float32), weights.reshape(-1)
    s0, s1, s2, s3 = streams[0], streams[1], streams[2], streams[3]
    for _ in range(num_sweeps):
        for layer in range(2):
            own, others = sites[starts[layer] : starts[layer + 1]], sites[starts[1 - layer] : starts[2 - layer]]
            row_step, bit_step = (1, step) if layer else (step, 1)
            words = np.zeros(((len(others) + 31) // 32, padded), np.uint32)
            for k in range(len(others)):
                _put_bits(words[k // 32, :lanes], x[others[k]], uint32(k % 32))
            for first in range(0, len(own), ROWS):
                count = min(ROWS, len(own) - first)
                for k in range(count):
                    fields[k] = offsets[starts[layer] + first + k]
                add_products(words, len(others), flat, first * row_step, row_step, bit_step, fields)
                for k in range(count):
                    i = own[first + k]
                    _fill(s0, s1, s2, s3, u)
                    _copy(field, fields[k, :lanes])
                    _draw_by_odds(drawn, field, u, threshold)
                    _copy(x[i], drawn)
                    if mode == 1:
                        _collect(sums[i], threshold)
                    elif mode == 2:
                        _count(sums[i], x[i], 0)


@inner
def _put_bits(words, bits, shift):  # type: ignore[no-untyped-def]
    for k in range(len(words)):
        words[k] |= uint32(uint32(bits[k]) << shift)
