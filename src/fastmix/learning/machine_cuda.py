"""Steps of restricted Boltzmann machines on an NVIDIA GPU: data, chains, weights and gradients stay there.

One cooperative launch makes many steps; its blocks wait for each other twice in each. First come the means of hidden
bits of all lanes (rows of the data, chains, and a lane whose visible values are all 1/2, for the penalty) and draws for
the chains; then draws of the visible bits, beside the gradient with the step of every parameter. Both are products of
matrices, a square tile of the result for each block at a time. What the second phase reads and writes, W, beta and the
visible bits, is there twice. Random numbers are those of Philox4x32-10, addressed by step, chain and variable.
"""
# Types inside kernels are those of their compiler.
# mypy: ignore-errors

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from numba import cuda, float32, uint32, uint64
from numpy.typing import NDArray

from fastmix._arrays import FloatArray
from fastmix._jit import cuda_jit
from fastmix.chains.cuda.device import check_memory, is_simulated, require_cuda, start_kernel
from fastmix.chains.cuda.kernels import barrier, counter_top, philox
from fastmix.chains.generator import make_streams
from fastmix.learning.machines import Machine

__all__ = ["CudaMachine", "steps_kernel"]


_TILE, _DEPTH = 16, 64  # rows and columns of a tile; terms of its sums that are read at a time
_SIMULATED = 2, 8  # the same in the simulator, where every thread is one of the host's
_STREAM = (1 << 40) + 1
_HIDDEN_TAG, _VISIBLE_TAG = 32, 33  # of counters


@cache
def steps_kernel(tile: int, depth: int) -> Any:
    """The kernel of some steps of a machine, launched cooperatively with blocks of tile x tile threads."""
    wait = barrier(True)
    rounds, padded = depth // tile, tile + 1

    @cuda.jit(device=True)
    def uniform(lane, site, step, tag, key0, key1):
        word = philox(uint32(lane), uint32(site), uint32(step), counter_top(uint64(step), uint32(tag)), key0, key1)[0]
        return float32(uint32(word >> uint32(8))) * float32(2.0**-24)

    @cuda.jit(device=True)
    def share_of(rows, row_weights, lane, batch, chains, count):
        """The weight of a lane in the difference of moments; none for rows that a last batch does not have."""
        if lane < count:
            return row_weights[rows[lane]] / float32(count)
        return float32(-1.0) / float32(chains) if lane >= batch and lane < batch + chains else float32(0.0)

    @cuda.jit(device=True)
    def moved(g, x, at, mean, square, total, scale, constants, row):
        """The parameter x after a step along its gradient g, whose running means and sum are at ``at``."""
        size, correct, forget = constants[row], constants[row + 1], constants[row + 2]
        forget_squares, least = constants[row + 3], constants[row + 4]
        total[at] += g
        mean[at] = forget * mean[at] + (float32(1.0) - forget) * g
        square[at] = forget_squares * square[at] + (float32(1.0) - forget_squares) * g * g
        return x + scale * size * mean[at] / (math.sqrt(square[at] * correct) + least)

    @cuda_jit(cache=True)
    def kernel(data, order, row_weights, states, parameters, means, squares, sums, fixed, constants, sizes, key0, key1):
        bits, h, fields = states
        weights, beta, gamma = parameters
        mean_w, mean_b, mean_g = means
        square_w, square_b, square_g = squares
        sum_w, sum_b, sum_g = sums
        mu, mask, scales_w, scales_b = fixed
        visible, hidden, columns, batch, chains, num_rows, num_steps, first_step = sizes
        a = cuda.shared.array((depth, padded), float32)  # a line each: the simulator tells arrays apart by lines
        b = cuda.shared.array((depth, padded), float32)
        share = cuda.shared.array(depth, float32)
        x, y = cuda.threadIdx.x, cuda.threadIdx.y
        lanes = batch + chains + 1
        across, down = (hidden + tile - 1) // tile, (visible + tile - 1) // tile
        of_lanes, of_chains = (lanes + tile - 1) // tile, (chains + tile - 1) // tile
        for s in range(num_steps):
            step = first_step + s
            here, there = step % 2, 1 - step % 2
            now = here * visible * columns  # where W begins
            count = min(batch, num_rows - s * batch)  # rows of the last batch can be fewer
            rows, row = order[s * batch :], 6 * s
            decay = constants[row + 5]

            # Means of the hidden bits, times the weights of their lanes.
            block = cuda.blockIdx.x
            while block < of_lanes * across:
                lane, j = block // across * tile + y, block % across * tile + x
                total = float32(0.0)
                for first in range(0, visible, depth):
                    for k in range(rounds):
                        i = first + k * tile + x
                        value = float32(0.0)
                        if i < visible:
                            if lane < count:
                                value = (
                                    float32(data[uint64(order[s * batch + lane]) * uint64(visible) + uint64(i)]) - mu[i]
                                )
                            elif lane >= batch and lane < batch + chains:
                                value = float32(bits[(here * chains + lane - batch) * visible + i]) - mu[i]
                            elif lane == batch + chains:
                                value = float32(0.5) - mu[i]
                        a[k * tile + x, y] = value
                        i = first + k * tile + y
                        b[k * tile + y, x] = (
                            weights[now + i * columns + j] if i < visible and j < hidden else float32(0.0)
                        )
                    cuda.syncthreads()
                    for k in range(depth):
                        total += a[k, y] * b[k, x]
                    cuda.syncthreads()
                if lane < lanes and j < hidden:
                    field = total + gamma[j]
                    if lane == lanes - 1:
                        fields[lane * hidden + j] = float32(2.0) * decay * field
                    else:
                        odds = math.exp(-min(max(field, float32(-86.0)), float32(86.0)))
                        if lane >= batch:
                            u = uniform(lane - batch, j, step, _HIDDEN_TAG, key0, key1)
                            h[(lane - batch) * hidden + j] = 1 if u * (float32(1.0) + odds) < float32(1.0) else 0
                        weight = share_of(rows, row_weights, lane, batch, chains, count)
                        fields[lane * hidden + j] = weight / (float32(1.0) + odds)
                block += cuda.gridDim.x
            wait()

            block = cuda.blockIdx.x
            while block < of_chains * down + down * across:
                if block < of_chains * down:  # visible bits of the chains
                    lane, i = block // down * tile + y, block % down * tile + x
                    total = float32(0.0)
                    for first in range(0, hidden, depth):
                        for k in range(rounds):
                            j, from_i = first + k * tile + x, block % down * tile + y
                            value, weight = float32(0.0), float32(0.0)
                            if j < hidden:
                                if lane < chains:
                                    value = float32(h[lane * hidden + j]) - float32(0.5)
                                if from_i < visible:
                                    weight = weights[now + from_i * columns + j]
                            a[k * tile + x, y] = value
                            b[k * tile + x, y] = weight
                        cuda.syncthreads()
                        for k in range(depth):
                            total += a[k, y] * b[k, x]
                        cuda.syncthreads()
                    if lane < chains and i < visible:
                        field = total + beta[here * visible + i]
                        odds = math.exp(-min(max(field, float32(-86.0)), float32(86.0)))
                        u = uniform(lane, i, step, _VISIBLE_TAG, key0, key1)
                        at = (there * chains + lane) * visible + i
                        bits[at] = 1 if u * (float32(1.0) + odds) < float32(1.0) else 0
                else:  # the gradient
                    place = block - of_chains * down
                    i, j = place // across * tile + y, place % across * tile + x
                    total, of_hidden, of_visible = float32(0.0), float32(0.0), float32(0.0)
                    for first in range(0, lanes - 1, depth):
                        for k in range(rounds):
                            lane, at_i = first + k * tile + y, place // across * tile + x
                            value, mean = float32(0.0), float32(0.0)
                            if lane < lanes - 1:
                                if at_i < visible:
                                    if lane < count:
                                        value = float32(
                                            data[uint64(order[s * batch + lane]) * uint64(visible) + uint64(at_i)]
                                        )
                                    elif lane >= batch:
                                        value = float32(bits[(here * chains + lane - batch) * visible + at_i])
                                if j < hidden:
                                    mean = fields[lane * hidden + j]
                            a[k * tile + y, x] = value
                            b[k * tile + y, x] = mean
                            if x == 0:
                                share[k * tile + y] = share_of(rows, row_weights, lane, batch, chains, count)
                        cuda.syncthreads()
                        for k in range(depth):
                            total += a[k, y] * b[k, x]
                            of_hidden += b[k, x]
                            of_visible += share[k] * a[k, y]
                        cuda.syncthreads()
                    if i < visible and j < hidden:
                        centre = fields[(lanes - 1) * hidden + j]
                        at = i * columns + j
                        w = weights[now + at]
                        g = total - mu[i] * of_hidden - float32(0.5) * of_visible - decay * w
                        g = mask[at] * (g - (float32(0.5) - mu[i]) * centre)
                        weights[there * visible * columns + at] = moved(
                            g, w, at, mean_w, square_w, sum_w, scales_w[i], constants, row
                        )
                        if j == 0:
                            old = beta[here * visible + i]
                            g = of_visible - float32(2.0) * decay * old
                            beta[there * visible + i] = moved(
                                g, old, i, mean_b, square_b, sum_b, scales_b[i], constants, row
                            )
                        if i == 0:
                            g = of_hidden - centre
                            gamma[j] = moved(g, gamma[j], j, mean_g, square_g, sum_g, float32(2.0), constants, row)
                block += cuda.gridDim.x
            wait()

    return kernel


class CudaMachine(Machine):
    """The same on an NVIDIA GPU; the arrays of the host are copies, up to date after :meth:`fetch`."""

    most_products = 2e11

    def _prepare(self) -> None:
        self._cuda = require_cuda()
        simulated = is_simulated(self._cuda)
        self._tile, depth = _SIMULATED if simulated else (_TILE, _DEPTH)
        self._kernel, self._room = steps_kernel(self._tile, depth), int(simulated)  # blocks
        lanes = self.batch + self.num_chains + 1
        check_memory(
            self._cuda, self.bits.size + 24.0 * self.W.size + 6.0 * lanes * self.W.shape[1] + 12.0 * len(self.bits)
        )
        put = self._cuda.to_device
        self._key = make_streams(self.seed, _STREAM, 1)[:2, 0].copy()
        self._data, self._weights = put(self.bits.reshape(-1)), put(self.row_weights.astype(np.float32))
        mask = np.broadcast_to(self.mask, self.W.shape)
        self._fixed = tuple(put(part.reshape(-1)) for part in (self.mu, mask, *self.scales))
        self._states = (
            put(np.zeros(2 * self.num_chains * self.visible, dtype=np.uint8)),
            put(np.zeros(self.num_chains * self.hidden, dtype=np.uint8)),
            put(np.zeros(lanes * self.hidden, dtype=np.float32)),
        )  # fmt: skip
        self._push()

    def _push(self) -> None:
        """Copy parameters and running means to the device; W and beta to both of their places."""
        put = self._cuda.to_device
        self._parameters = put(np.tile(self.W.reshape(-1), 2)), put(np.tile(self.beta, 2)), put(self.gamma)
        self._means, self._squares, self._sums = (
            tuple(put(part.reshape(-1)) for part in parts) for parts in (self.means, self.squares, self.sums)
        )

    def start(self, visible: NDArray[Any]) -> None:
        """Chains go on from visible states (chains, visible)."""
        self._states[0].copy_to_device(np.tile(np.ascontiguousarray(visible, dtype=np.uint8).reshape(-1), 2))

    def states(self) -> NDArray[Any]:
        """Configurations of the chains, (chains, variables)."""
        bits = self._states[0].copy_to_host().reshape(2, self.num_chains, self.visible)[self.steps % 2]
        return np.hstack([bits, self._states[1].copy_to_host().reshape(self.num_chains, self.hidden)])

    def _more(self) -> dict[str, NDArray[Any]]:
        return {"streams": self._key}

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Go on from what :meth:`pack` gave."""
        super().restore(arrays)
        self._push()

    def clear(self) -> None:
        """Begin the mean of the gradient anew."""
        super().clear()
        for total, part in zip(self._sums, self.sums, strict=True):
            total.copy_to_device(part.reshape(-1))

    def advance(self, rows: NDArray[np.int64], sizes: FloatArray) -> None:
        """Steps of these sizes along gradients over so many batches of rows, and of the chains: one sweep each."""
        put, tile = self._cuda.to_device, self._tile
        numbers = (
            self.visible, self.hidden, self.W.shape[1], self.batch, self.num_chains, len(rows),
            len(sizes), self.steps,
        )  # fmt: skip
        arguments = (
            self._data, put(rows.astype(np.int64)), self._weights, self._states, self._parameters, self._means,
            self._squares, self._sums, self._fixed, put(self.constants(sizes).reshape(-1)),
            tuple(np.int64(k) for k in numbers), *self._key,
        )  # fmt: skip
        if self._room == 0:
            self._kernel = self._kernel.specialize(*arguments)
            self._room = next(iter(self._kernel.overloads.values())).max_cooperative_grid_blocks((tile, tile))
        parts = [-(-k // tile) for k in (self.num_chains, self.visible, self.hidden)]
        most = (parts[0] + parts[2]) * parts[1]
        start_kernel(self._kernel, (min(most, self._room), (tile, tile)), *arguments)
        self._cuda.synchronize()
        self.steps += len(sizes)
        self.collected += len(sizes)

    def fetch(self) -> None:
        """Have parameters, running means and sums in the arrays of the host."""
        pairs = list(
            zip((*self.means, *self.squares, *self.sums), (*self._means, *self._squares, *self._sums), strict=True)
        )
        for part, held in [*pairs, (self.gamma, self._parameters[2])]:
            part[...] = held.copy_to_host().reshape(part.shape)
        for part, held in ((self.W, self._parameters[0]), (self.beta, self._parameters[1])):
            part[...] = held.copy_to_host().reshape(2, *part.shape)[self.steps % 2]
