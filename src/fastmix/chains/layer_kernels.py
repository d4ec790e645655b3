"""Compiled sweeps of two layers of binary variables, between which most pairs are joined, and none within a layer.

Log-odds are then products of a matrix of weights with a matrix of bits. A sum of weights over four bits has 16 values
(the method of four Russians): tables of these sums, for 32 bits and 16 rows of weights, stay in the nearest cache, and
every lane looks up by its bits what it adds, 16 sums at a time. Bits are packed, 32 variables in a word; sums are in
single precision. The loops that look up are written in the intermediate language of LLVM.
"""

# Intrinsics are called without the context of the compiler.
# mypy: disable-error-code=call-arg

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import config, float32, types, uint32
from numba.core import cgutils
from numba.extending import intrinsic

from fastmix._jit import inner, outer
from fastmix.chains.random_kernels import fill_numbers
from fastmix.chains.threshold_kernels import add_counts, add_thresholds, copy_values, draw_by_odds

__all__ = ["LANES", "ROWS", "add_products", "layers_sweeps"]

#: Learning takes rows of data in multiples of so many lanes.
LANES = 32
#: Rows of sums that are made at a time: a cache line of single-precision numbers.
ROWS = 16
#: Lanes whose sums stay in the nearest cache together with the tables: 16 KiB (benchmarks/rbm.py has the speed).
LANES_AT_ONCE = 256

_TILE = 8  # rows and columns of a square that is transposed at a time: vectors of 256 bits
_INDEX = ir.IntType(64)


def _plain_products(words, num_bits, weights, at, row_step, bit_step, out):
    """Add the products bit by bit: what :func:`add_products` is without the compiler."""
    rows = at + row_step * np.arange(len(out))
    for k in range(num_bits):
        bits = words[k // 32] >> np.uint32(k % 32) & np.uint32(1)
        out += np.outer(weights[rows + k * bit_step], bits)


@inner
def add_products(words, num_bits, weights, at, row_step, bit_step, out):
    """Add to ``out`` (rows, lanes) the weights of the bits that are set in ``words`` (bits / 32, lanes).

    Rows are a multiple of 16, lanes of 8. Bit k has the weight ``weights[at + r * row_step + k * bit_step]`` for row r,
    of a flat array in which one of the steps is 1, and which has finite numbers for whole bytes of bits.
    """
    lanes = words.shape[1]
    flat = words.reshape(-1)
    target = out.reshape(-1)
    room = np.empty((LANES_AT_ONCE + 161) * ROWS, np.float32)
    room = room[-(room.ctypes.data >> 2) & 15 :]  # from the beginning of a line of the cache
    tables = room[: 128 * ROWS]
    block = room[128 * ROWS : 160 * ROWS]
    sums = room[160 * ROWS :]
    for first in range(0, len(out), ROWS):
        for lane in range(0, lanes, LANES_AT_ONCE):
            count = min(LANES_AT_ONCE, lanes - lane)
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


def _vector(builder, base, place, count):
    """A pointer to ``count`` numbers from a place of an array on."""
    return builder.bitcast(builder.gep(base, [place]), ir.VectorType(ir.FloatType(), count).as_pointer())


def _times(builder, value, count):
    """The instruction that multiplies a value by a constant."""
    return builder.mul(value, ir.Constant(_INDEX, count))


def _data(context, builder, call, values, *which):
    """Pointers to the data of those arguments of an intrinsic that are arrays."""
    return [context.make_array(call.args[k])(context, builder, values[k]).data for k in which]


def _adder(groups):
    """An intrinsic that adds to every lane's sums the table entries of so many groups of four bits of its word."""

    @intrinsic
    def add(_, words, at, lanes, shift, tables, first, sums):  # noqa: ARG001
        i = types.intp

        def code(context, builder, call, values):
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


_add_words = _adder(8)
_add_bytes = _adder(2)


@intrinsic
def _make_tables(_, weights, at, step, tables, groups):  # noqa: ARG001
    """Fill in the 16 sums of every group of four bits, for 16 rows; bit k has the weights from ``at + k * step``."""
    i = types.intp

    def code(context, builder, call, values):
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
def _add_turned(_, values, at, step, out, out_at, out_step):  # noqa: ARG001
    """Add 8 rows of a matrix to 8 columns of another: by exchanges of halves, quarters and entries."""
    i = types.intp
    integers = ir.VectorType(ir.IntType(32), _TILE)

    def code(context, builder, call, arguments):
        values, out = _data(context, builder, call, arguments, 0, 3)
        _, at, step, _, out_at, out_step = arguments

        def place(base, first, step, k):
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


if config.DISABLE_JIT:  # type: ignore[attr-defined]  # Numba makes it from the environment
    add_products = _plain_products


@outer
def layers_sweeps(x, sites, starts, offsets, weights, streams, sums, num_sweeps, mode):
    """Sweeps of lanes x (n, W) of two layers of bits, ``sites[starts[k]:starts[k + 1]]`` for layer k.

    ``weights`` has a row for every site of the first layer and a column for every one of the second, and zeros up to
    multiples of 16; ``offsets`` are by place in ``sites``. For each layer:

    1. Pack the states of the other layer into words of bits.
    2. Add the products of weights and bits to the offsets, 16 sites at a time.
    3. Draw the states of these sites, and collect thresholds or counts.
    """
    lanes = x.shape[1]
    step = weights.shape[1]
    padded = (lanes + _TILE - 1) // _TILE * _TILE
    u = np.empty(lanes, np.uint32)
    threshold = np.empty(lanes, np.uint32)
    field = np.empty(lanes)
    drawn = np.empty(lanes)
    fields = np.empty((ROWS, padded), np.float32)
    flat = weights.reshape(-1)
    s0 = streams[0]
    s1 = streams[1]
    s2 = streams[2]
    s3 = streams[3]
    for _ in range(num_sweeps):
        for layer in range(2):
            own = sites[starts[layer] : starts[layer + 1]]
            others = sites[starts[1 - layer] : starts[2 - layer]]
            row_step, bit_step = (1, step) if layer else (step, 1)

            # 1. Bits of the other layer.
            words = np.zeros(((len(others) + 31) // 32, padded), np.uint32)
            for k in range(len(others)):
                _put_bits(words[k // 32, :lanes], x[others[k]], uint32(k % 32))
            for first in range(0, len(own), ROWS):
                # 2. Log-odds.
                count = min(ROWS, len(own) - first)
                for k in range(count):
                    fields[k] = offsets[starts[layer] + first + k]
                add_products(words, len(others), flat, first * row_step, row_step, bit_step, fields)

                # 3. States.
                for k in range(count):
                    i = own[first + k]
                    fill_numbers(s0, s1, s2, s3, u)
                    copy_values(field, fields[k, :lanes])
                    draw_by_odds(drawn, field, u, threshold)
                    copy_values(x[i], drawn)
                    if mode == 1:
                        add_thresholds(sums[i], threshold)
                    elif mode == 2:
                        add_counts(sums[i], x[i], 0)


@inner
def _put_bits(words, bits, shift):
    """Put one bit of every lane into its word."""
    for k in range(len(words)):
        words[k] |= uint32(uint32(bits[k]) << shift)
