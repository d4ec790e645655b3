"""Compiled steps of restricted Boltzmann machines on an NVIDIA GPU.

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

from numba import cuda, float32, uint32, uint64

from fastmix._jit import cuda_jit
from fastmix.chains.cuda.random_kernels import counter_top, philox
from fastmix.chains.cuda.sweep_kernels import barrier

__all__ = ["steps_kernel"]


#: Tags of the counters of random numbers, for the two layers.
HIDDEN_TAG = 32
VISIBLE_TAG = 33


@cache
def steps_kernel(tile: int, depth: int) -> Any:
    """The kernel of some steps of a machine, launched cooperatively with blocks of tile x tile threads."""
    wait = barrier(True)
    rounds = depth // tile
    padded = tile + 1

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
        size = constants[row]
        correct = constants[row + 1]
        forget = constants[row + 2]
        forget_squares = constants[row + 3]
        least = constants[row + 4]
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
        x = cuda.threadIdx.x
        y = cuda.threadIdx.y
        lanes = batch + chains + 1
        across = (hidden + tile - 1) // tile
        down = (visible + tile - 1) // tile
        of_lanes = (lanes + tile - 1) // tile
        of_chains = (chains + tile - 1) // tile
        for s in range(num_steps):
            step = first_step + s
            here = step % 2
            there = 1 - step % 2
            now = here * visible * columns  # where W begins
            count = min(batch, num_rows - s * batch)  # rows of the last batch can be fewer
            rows = order[s * batch :]
            row = 6 * s
            decay = constants[row + 5]

            # Means of the hidden bits, times the weights of their lanes.
            block = cuda.blockIdx.x
            while block < of_lanes * across:
                lane = block // across * tile + y
                j = block % across * tile + x
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
                            u = uniform(lane - batch, j, step, HIDDEN_TAG, key0, key1)
                            h[(lane - batch) * hidden + j] = 1 if u * (float32(1.0) + odds) < float32(1.0) else 0
                        weight = share_of(rows, row_weights, lane, batch, chains, count)
                        fields[lane * hidden + j] = weight / (float32(1.0) + odds)
                block += cuda.gridDim.x
            wait()

            block = cuda.blockIdx.x
            while block < of_chains * down + down * across:
                if block < of_chains * down:  # visible bits of the chains
                    lane = block // down * tile + y
                    i = block % down * tile + x
                    total = float32(0.0)
                    for first in range(0, hidden, depth):
                        for k in range(rounds):
                            j = first + k * tile + x
                            from_i = block % down * tile + y
                            value = float32(0.0)
                            weight = float32(0.0)
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
                        u = uniform(lane, i, step, VISIBLE_TAG, key0, key1)
                        at = (there * chains + lane) * visible + i
                        bits[at] = 1 if u * (float32(1.0) + odds) < float32(1.0) else 0
                else:  # the gradient
                    place = block - of_chains * down
                    i = place // across * tile + y
                    j = place % across * tile + x
                    total = float32(0.0)
                    of_hidden = float32(0.0)
                    of_visible = float32(0.0)
                    for first in range(0, lanes - 1, depth):
                        for k in range(rounds):
                            lane = first + k * tile + y
                            at_i = place // across * tile + x
                            value = float32(0.0)
                            mean = float32(0.0)
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
                        center = fields[(lanes - 1) * hidden + j]
                        at = i * columns + j
                        w = weights[now + at]
                        g = total - mu[i] * of_hidden - float32(0.5) * of_visible - decay * w
                        g = mask[at] * (g - (float32(0.5) - mu[i]) * center)
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
                            g = of_hidden - center
                            gamma[j] = moved(g, gamma[j], j, mean_g, square_g, sum_g, float32(2.0), constants, row)
                block += cuda.gridDim.x
            wait()

    return kernel
