"""Compiled loops of two layers of bits, all of one joined to most of the other: products with a matrix of bits.

A sum of weights over four bits has 16 values (the method of four Russians). They fit into one register of a processor
with AVX-512, where an instruction picks those of 16 lanes; registers of half that size (AVX2) hold the 8 values of
three bits. Other processors multiply bits by weights. Bits are packed, 32 variables in a word. Sums are in single
precision.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import config, types, uint32
from numba.core import cgutils
from numba.extending import intrinsic

from fastmix._jit import inner, outer
from fastmix.chains.field_kernels import _draw_by_odds
from fastmix.chains.kernels import _collect, _count, _fill

__all__ = ["LANES", "ROWS", "add_block", "add_products", "layers_sweeps"]

ROWS = 4  # of a block of sums,
LANES = 64  # which is 16 registers
_STRIP = 8  # rows of sums that are made before the next
_WORD, _INDEX = ir.IntType(32), ir.IntType(64)


def add_block(words, word_at, word_step, weights, at, row_step, bit_step, out, out_at, out_step, num_bytes):  # type: ignore[no-untyped-def]
    """Add to 4 x 64 sums the weights of the bits that are set; all arrays are flat.

    Bit k of lane l is in ``words[word_at + k // 32 * word_step + l]``, its weight for row r is ``weights[at +
    r * row_step + k * bit_step]``, and sums are at ``out[out_at + r * out_step + l]``; there are whole bytes of bits.
    """
    for k in range(8 * num_bytes):
        place = word_at + k // 32 * word_step
        bits = words[place : place + LANES] >> np.uint32(k % 32) & np.uint32(1)
        for r in range(ROWS):
            out[out_at + r * out_step : out_at + r * out_step + LANES] += (
                bits.astype(np.float32) * weights[at + r * row_step + k * bit_step]
            )


@intrinsic
def _add_block(_, words, word_at, word_step, weights, at, row_step, bit_step, out, out_at, out_step, num_bytes):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """The same in registers, by the instructions that the processor has."""
    i = types.intp
    signature = types.void(words, i, i, weights, i, i, i, out, i, i, i)

    def code(context, builder, call, values):  # type: ignore[no-untyped-def]
        features = context.codegen()._tm_features.split(",")
        pick, count, size, rows, bits = None, 8, 2, 4, [1] * 8  # vectors of 8 numbers, 2 x 4 of them at a time
        if "+avx512f" in features:
            pick, count, size, rows, bits = "llvm.x86.avx512.permvar.sf.512", 16, 4, 4, [4, 4]
        elif "+avx2" in features:
            pick, count, size, rows, bits = "llvm.x86.avx2.permps", 8, 4, 2, [3, 3, 2]
        for row in range(0, ROWS, rows):
            for lane in range(0, LANES, size * count):
                _emit(context, builder, call, values, (row, rows), (lane, size), count, bits, pick)
        return context.get_dummy_value()

    return signature, code


def _emit(context, builder, call, values, some_rows, some_vectors, count, bits, pick):  # type: ignore[no-untyped-def]
    """The loop over bytes for some rows, and for some vectors of ``count`` lanes from a lane on."""
    words, weights, out = (context.make_array(call.args[k])(context, builder, values[k]).data for k in (0, 3, 7))
    _, word_at, word_step, _, at, row_step, bit_step, _, out_at, out_step, num_bytes = values
    (first_row, num_rows), (first_lane, num_vectors) = some_rows, some_vectors
    numbers, integers = ir.VectorType(ir.FloatType(), count), ir.VectorType(_WORD, count)
    look = pick and cgutils.get_or_insert_function(builder.module, ir.FunctionType(numbers, [numbers, integers]), pick)
    # Entry p of a table has the weight of bit q if p has.
    patterns = [ir.Constant(numbers, [float(p >> q & 1) for p in range(count)]) for q in range(max(bits))]

    def whole(k):  # type: ignore[no-untyped-def]
        return ir.Constant(_INDEX, k)

    def vector(base, place, kind):  # type: ignore[no-untyped-def]
        return builder.bitcast(builder.gep(base, [place]), kind.as_pointer())

    def spread(value, kind):  # type: ignore[no-untyped-def]
        single = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(_WORD, 0))
        return builder.shuffle_vector(single, ir.Constant(kind, ir.Undefined), ir.Constant(integers, [0] * count))

    cells = [(r, c) for r in range(num_rows) for c in range(num_vectors)]
    places, sums = {}, {}
    for r, c in cells:
        row = builder.add(out_at, builder.mul(whole(first_row + r), out_step))
        places[r, c] = vector(out, builder.add(row, whole(first_lane + count * c)), numbers)
        sums[r, c] = cgutils.alloca_once(builder, numbers)
        builder.store(builder.load(places[r, c], align=4), sums[r, c])
    with cgutils.for_range(builder, num_bytes, intp=_INDEX) as loop:
        byte = loop.index
        row = builder.add(word_at, builder.mul(builder.lshr(byte, whole(2)), word_step))
        shift = builder.shl(builder.and_(byte, whole(3)), whole(3))
        shifts = spread(builder.trunc(shift, _WORD), integers)
        states = []
        for c in range(num_vectors):
            place = vector(words, builder.add(row, whole(first_lane + count * c)), integers)
            states.append(builder.lshr(builder.load(place, align=4), shifts))
        bit = builder.shl(byte, whole(3))
        for some in bits:
            if look is None:
                ones = [builder.and_(state, ir.Constant(integers, [1] * count)) for state in states]
                ones = [builder.uitofp(one, numbers) for one in ones]
            for r in range(num_rows):
                start = builder.add(at, builder.mul(whole(first_row + r), row_step))
                table = None
                for q in range(some):
                    place = builder.add(start, builder.mul(builder.add(bit, whole(q)), bit_step))
                    weight = spread(builder.load(builder.gep(weights, [place])), numbers)
                    if look is not None:
                        weight = builder.fmul(weight, patterns[q], flags=("contract",))
                    table = weight if table is None else builder.fadd(table, weight, flags=("contract",))
                for c in range(num_vectors):
                    if look is None:
                        value = builder.fmul(table, ones[c], flags=("contract",))
                    else:
                        value = builder.call(look, [table, states[c]])  # by the low bits of a state
                    total = builder.fadd(builder.load(sums[r, c]), value, flags=("contract",))
                    builder.store(total, sums[r, c])
            bit = builder.add(bit, whole(some))
            states = [builder.lshr(state, ir.Constant(integers, [some] * count)) for state in states]
    for cell in cells:
        builder.store(builder.load(sums[cell]), places[cell], align=4)


if not config.DISABLE_JIT:  # type: ignore[attr-defined]
    add_block = _add_block  # type: ignore[assignment]


@inner
def add_products(words, num_bits, weights, at, row_step, bit_step, out):  # type: ignore[no-untyped-def]
    """Add to ``out`` (rows, lanes) the weights of the bits that are set in ``words`` (bits / 32, lanes).

    Rows are a multiple of 4, lanes of 64. Bit k has the weight ``weights[at + r * row_step + k * bit_step]`` for row r,
    of a flat array which has finite numbers for whole bytes of bits.
    """
    lanes, num_bytes = words.shape[1], (num_bits + 7) // 8
    flat, sums = words.reshape(-1), out.reshape(-1)
    for r in range(0, len(out), ROWS):
        for lane in range(0, lanes, LANES):
            add_block(
                flat,
                lane,
                lanes,
                weights,
                at + r * row_step,
                row_step,
                bit_step,
                sums,
                r * lanes + lane,
                lanes,
                num_bytes,
            )


@outer
def layers_sweeps(  # type: ignore[no-untyped-def]
    x, sites, starts, offsets, weights, streams, sums, num_sweeps, mode
):
    """Sweeps of lanes x (n, W) of two layers of bits, ``sites[starts[k]:starts[k + 1]]`` for layer k.

    ``weights`` has a row for every site of the first layer and a column for every one of the second, and zeros up to
    multiples of 8; ``offsets`` are by place in ``sites``.
    """
    lanes, step = x.shape[1], weights.shape[1]
    padded = (lanes + LANES - 1) // LANES * LANES
    u, threshold = np.empty(lanes, np.uint32), np.empty(lanes, np.uint32)
    field, drawn = np.empty(lanes), np.empty(lanes)
    fields, flat = np.empty((_STRIP, padded), np.float32), weights.reshape(-1)
    s0, s1, s2, s3 = streams[0], streams[1], streams[2], streams[3]
    for _ in range(num_sweeps):
        for layer in range(2):
            own, others = sites[starts[layer] : starts[layer + 1]], sites[starts[1 - layer] : starts[2 - layer]]
            row_step, bit_step = (1, step) if layer else (step, 1)
            words = np.zeros(((len(others) + 31) // 32, padded), np.uint32)
            for k in range(len(others)):
                _put_bits(words[k // 32, :lanes], x[others[k]], uint32(k % 32))
            for first in range(0, len(own), _STRIP):
                for k in range(min(_STRIP, len(own) - first)):
                    fields[k] = offsets[starts[layer] + first + k]
                add_products(words, len(others), flat, first * row_step, row_step, bit_step, fields)
                for k in range(min(_STRIP, len(own) - first)):
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


@inner
def _copy(out, values):  # type: ignore[no-untyped-def]
    for k in range(len(out)):
        out[k] = values[k]
