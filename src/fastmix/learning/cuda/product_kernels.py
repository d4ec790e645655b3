"""Hessians and pseudo-likelihoods on an NVIDIA GPU: products of the rows of the data with matrices and with rows.

Products are made in square tiles, of which a thread has a small square in its registers. Hessians are in single
precision, pseudo-likelihoods in double: a search for their optimum compares values.
"""
# Types inside kernels are those of their compiler.
# mypy: ignore-errors

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from numba import cuda, float32, float64, uint64
from numpy.typing import NDArray

from fastmix._jit import cuda_jit
from fastmix.chains.cuda.device import check_memory, is_simulated, require_cuda, start_kernel
from fastmix.chains.cuda.sweep_kernels import add_up

__all__ = ["MAX_BLOCKS", "MAX_STATES", "Products", "center_kernel", "energy_kernel", "residual_kernel"]


#: Threads of a tile along an axis, numbers of a thread along one, and terms that are read at a time.
SIZES = (16, 4, 16)
#: The same in the simulator, where every thread is one of the host's.
SIMULATED_SIZES = (2, 2, 2)
#: Blocks that share the terms of a product of rows, about.
MAX_BLOCKS = 1024
#: States of a variable.
MAX_STATES = 64


@cache
def _product_kernel(threads: int, own: int, depth: int, real: Any) -> Any:
    """``y (rows, width) @ matrix (width, width)``; blocks along x have tiles of rows, those along y of columns."""
    tile = threads * own
    squares = own * own
    padded = threads * own + 1
    loads = tile * depth // (threads * threads)

    @cuda_jit(cache=True, fastmath=True)
    def kernel(y, matrix, rows, width, out):
        """``y @ matrix`` into ``out``, all flat."""
        a = cuda.shared.array((depth, padded), real)  # a line each: the simulator tells arrays apart by lines
        b = cuda.shared.array((depth, tile), real)
        total = cuda.local.array(squares, real)
        tx = cuda.threadIdx.x
        ty = cuda.threadIdx.y
        thread = ty * threads + tx
        top = cuda.blockIdx.x * tile
        left = cuda.blockIdx.y * tile
        for i in range(squares):
            total[i] = real(0.0)
        for first in range(0, width, depth):
            for i in range(loads):
                k = i * threads * threads + thread
                row = top + k // depth
                column = first + k % depth
                inside = row < rows and column < width
                a[k % depth, k // depth] = y[uint64(row) * uint64(width) + uint64(column)] if inside else real(0.0)
                row = first + k // tile
                column = left + k % tile
                inside = row < width and column < width
                b[k // tile, k % tile] = matrix[row * width + column] if inside else real(0.0)
            cuda.syncthreads()
            for k in range(depth):
                for i in range(own):
                    value = a[k, ty + i * threads]
                    for j in range(own):
                        total[i * own + j] += value * b[k, tx + j * threads]
            cuda.syncthreads()
        for i in range(own):
            for j in range(own):
                row = top + ty + i * threads
                column = left + tx + j * threads
                if row < rows and column < width:
                    out[uint64(row) * uint64(width) + uint64(column)] = total[i * own + j]

    return kernel


@cache
def _gram_kernel(threads: int, own: int, depth: int, real: Any) -> Any:
    """``sum_r scales_r x_r y_r'`` over every slice of the rows, into ``out`` (slices, width, width).

    Blocks along x have the tiles, those along y the slices.
    """
    tile = threads * own
    squares = own * own
    loads = tile * depth // (threads * threads)

    @cuda_jit(cache=True, fastmath=True)
    def kernel(x, scales, y, rows, width, rows_each, out):
        """Products of the rows of one slice, with a tile for every block."""
        a = cuda.shared.array((depth, tile), real)
        b = cuda.shared.array((depth, tile), real)
        total = cuda.local.array(squares, real)
        tx = cuda.threadIdx.x
        ty = cuda.threadIdx.y
        thread = ty * threads + tx
        across = (width + tile - 1) // tile
        top = cuda.blockIdx.x // across * tile
        left = cuda.blockIdx.x % across * tile
        begin = cuda.blockIdx.y * rows_each
        end = min(begin + rows_each, rows)
        for i in range(squares):
            total[i] = real(0.0)
        for first in range(begin, end, depth):
            for i in range(loads):
                k = i * threads * threads + thread
                row = first + k // tile
                column = k % tile
                value = real(0.0)
                other = real(0.0)
                if row < end:
                    at = uint64(row) * uint64(width)
                    if top + column < width:
                        value = scales[row] * x[at + uint64(top + column)]
                    if left + column < width:
                        other = y[at + uint64(left + column)]
                a[k // tile, column] = value
                b[k // tile, column] = other
            cuda.syncthreads()
            for k in range(depth):
                for i in range(own):
                    value = a[k, ty + i * threads]
                    for j in range(own):
                        total[i * own + j] += value * b[k, tx + j * threads]
            cuda.syncthreads()
        base = uint64(cuda.blockIdx.y) * uint64(width) * uint64(width)
        for i in range(own):
            for j in range(own):
                row = top + ty + i * threads
                column = left + tx + j * threads
                if row < width and column < width:
                    out[base + uint64(row * width + column)] = total[i * own + j]

    return kernel


@cuda_jit(cache=True)
def _add_slices(parts, slices, size, out):
    """The sum of the slices."""
    place = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if place < size:
        total = float64(0.0)
        for k in range(slices):
            total += parts[uint64(k) * uint64(size) + uint64(place)]
        out[place] = total


@cache
def energy_kernel(threads: int) -> Any:
    """``out_r = x_r . y_r / 2``, a row for every line of threads of a block."""
    padded = threads + 1

    @cuda_jit(cache=True)
    def kernel(x, y, rows, width, out):
        """Half of the product of every row of x with that of y."""
        parts = cuda.shared.array((threads, padded), float32)
        tx = cuda.threadIdx.x
        ty = cuda.threadIdx.y
        row = cuda.blockIdx.x * threads + ty
        total = float32(0.0)
        if row < rows:
            for k in range(tx, width, threads):
                at = uint64(row) * uint64(width) + uint64(k)
                total += x[at] * y[at]
        parts[ty, tx] = total
        cuda.syncthreads()
        if tx == 0 and row < rows:
            for k in range(1, threads):
                total += parts[ty, k]
            out[row] = float32(0.5) * total

    return kernel


@cache
def center_kernel(threads: int) -> Any:
    """``values_r = weights_r (values_r - weights @ values)``, by one block of a power of two of threads."""

    @cuda_jit(cache=True)
    def kernel(values, weights, rows):
        """Values less their mean, times the weights, in place."""
        shared = cuda.shared.array(threads, float64)
        thread = cuda.threadIdx.x
        total = float64(0.0)
        for k in range(thread, rows, threads):
            total += float64(weights[k]) * float64(values[k])
        add_up(shared, total)
        mean = float32(shared[0])
        for k in range(thread, rows, threads):
            values[k] = weights[k] * (values[k] - mean)

    return kernel


@cache
def residual_kernel(threads: int) -> Any:
    """Residuals of all conditionals in place of the fields (rows, width), and sums of their log-probabilities.

    As :func:`fastmix.learning.residual_kernels.conditional_residuals`; ``out`` has a sum for every block.
    """

    @cuda_jit(cache=True)
    def kernel(fields, states, weights, num_states, starts, tables, table_starts, rows, width, out):
        """Residuals in place of the fields, and the sums of a block."""
        shared = cuda.shared.array(threads, float64)
        scores = cuda.local.array(MAX_STATES, float64)
        thread = cuda.threadIdx.x
        n = num_states.shape[0]
        sum_of_logs = float64(0.0)
        for place in range(cuda.blockIdx.x * threads + thread, rows * n, cuda.gridDim.x * threads):
            row = place // n
            i = place % n
            count = num_states[i]
            x = states[place]
            weight = weights[row]
            table = table_starts[i]
            at = uint64(row) * uint64(width) + uint64(starts[i])
            top = float64(-math.inf)
            for s in range(count):
                score = float64(0.0)
                for k in range(count - 1):
                    score += tables[table + s * (count - 1) + k] * fields[at + uint64(k)]
                scores[s] = score
                top = max(top, score)
            norm = float64(0.0)
            own = scores[x] - top
            for s in range(count):
                scores[s] = math.exp(scores[s] - top)
                norm += scores[s]
            sum_of_logs += weight * (own - math.log(norm))
            for k in range(count - 1):
                mean = float64(0.0)
                for s in range(count):
                    mean += scores[s] * tables[table + s * (count - 1) + k]
                fields[at + uint64(k)] = weight * (mean / norm - tables[table + x * (count - 1) + k])
        add_up(shared, sum_of_logs)
        if thread == 0:
            out[cuda.blockIdx.x] = shared[0]

    return kernel


class Products:
    """Rows y (rows, width) on the device, with room for products."""

    def __init__(self, y: NDArray[Any]) -> None:
        self.cuda = require_cuda()
        sizes = SIMULATED_SIZES if is_simulated(self.cuda) else SIZES
        real = float32 if y.dtype == np.float32 else float64
        self._side = sizes[0]
        self._tile = sizes[0] * sizes[1]
        self.threads = self._side**2
        self._product = _product_kernel(*sizes, real)
        self._gram = _gram_kernel(*sizes, real)
        self.rows, self.width = y.shape
        self._across = -(-self.width // self._tile)

        # Slices of the rows, so that there are blocks enough.
        slices = max(1, min(MAX_BLOCKS // self._across**2, self.rows // self._tile))
        self._rows_each = -(-self.rows // slices)
        self._slices = -(-self.rows // self._rows_each)
        size = self.width**2
        check_memory(self.cuda, y.itemsize * (2.0 * y.size + 2.0 * self.rows + (self._slices + 2.0) * size))
        self.y = self.cuda.to_device(y.reshape(-1))
        self.product = self.cuda.device_array(y.size, y.dtype)
        self._parts = self.cuda.device_array(self._slices * size, y.dtype)
        self._matrix = self.cuda.device_array(size, y.dtype)
        self._image = self.cuda.device_array(size, y.dtype)

    def multiply(self, matrix: NDArray[Any]) -> None:
        """``y @ matrix`` into :attr:`product`."""
        self._matrix.copy_to_device(np.ascontiguousarray(matrix, dtype=self._matrix.dtype).reshape(-1))
        blocks = (-(-self.rows // self._tile), self._across)
        shape = (blocks, (self._side, self._side))
        start_kernel(self._product, shape, self.y, self._matrix, self.rows, self.width, self.product)

    def gram(self, x: Any, scales: Any) -> NDArray[Any]:
        """``x' diag(scales) y``, (width, width)."""
        shape = ((self._across**2, self._slices), (self._side, self._side))
        start_kernel(self._gram, shape, x, scales, self.y, self.rows, self.width, self._rows_each, self._parts)
        size = self.width**2
        blocks = -(-size // self.threads)
        start_kernel(_add_slices, (blocks, self.threads), self._parts, self._slices, size, self._image)
        return np.asarray(self._image.copy_to_host().reshape(self.width, self.width))
