"""CUDA kernels for variables with any number of states.

One byte (or two) per state; a thread updates a site in four chains, so that the numbers of one Philox call are used up,
or in a single one.
"""
# Types inside kernels are those of their compiler.
# mypy: ignore-errors

from __future__ import annotations

import math
from functools import cache
from typing import Any

from numba import cuda, float64, uint32, uint64

from fastmix._jit import cuda_jit
from fastmix.chains.cuda.kernels import counter_top, philox

__all__ = ["logit_kernel", "table_kernel"]

_ONES = 0xFFFFFFFF


@cache
def table_kernel(width: int, bytewise: bool, small: bool, mode: int, per_chain: bool, grid: bool) -> Any:
    """The kernel for any states, from pattern tables.

    Parameters
    ----------
    width : int
        1 or 4 chains by a thread.
    bytewise : bool
        Whether ``x`` is given as words of four chains of one byte each (and ``rows`` and ``stride`` count words).
    small : bool
        Whether no site has more than 256 patterns: the numbers of four of them are then computed in one word.
    mode, per_chain, grid
        As in :func:`fastmix.chains.cuda.kernels.packed_kernel`; sums are ``sums[row * chains + chain]`` with the
        chains that there is room for, or one for every thread's chains, ``sums[row * units + unit]``, with a row for
        every state but the last.

    Returns
    -------
    callable
        Kernel of ``x``; ``rows`` uint32, the neighbours, with ``indptr`` and ``strides`` (of their states in the number
        of a pattern); ``cuts``, ``entries`` and ``table`` as in
        :class:`fastmix.chains.pattern_tables.PatternTables`, by place, with the tables of all models one after the
        other; ``sum_rows``, the first row of every site in the sums; ``starts``; ``models`` int32, which tables the
        chains of a thread use; ``sums``, stride, the size of the tables of a model, and so on.
    """

    @cuda_jit(cache=True)
    def kernel(
        x, indptr, rows, strides, cuts, entries, table, sum_rows, starts, models, sums,
        stride, model_size, first, last, num_sweeps, sweep_begin, key0, key1,
    ):  # fmt: skip
        unit = uint32(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
        units = uint64(cuda.gridDim.x * cuda.blockDim.x)
        chain = uint32(unit * uint32(width))
        base = uint32(uint32(models[unit]) * model_size)
        slot = uint32(cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y)
        num_slots = uint32(cuda.gridDim.y * cuda.blockDim.y)
        index, state = cuda.local.array(width, uint32), cuda.local.array(width, uint32)
        u = cuda.local.array(4, uint32)
        for s in range(num_sweeps):
            sweep = uint64(sweep_begin) + uint64(s)
            for colour in range(first, last):
                site = uint32(starts[uint64(colour)] + slot)
                end = uint32(starts[uint64(colour + 1)])
                while site < end:
                    for j in range(width):
                        index[j] = uint32(0)
                        state[j] = uint32(0)
                    together = uint32(0)
                    k, stop = uint32(indptr[site]), uint32(indptr[uint64(site) + uint64(1)])
                    while k < stop:
                        weight = uint32(strides[k])
                        if bytewise:
                            four = x[uint32(rows[k] + unit)]
                            if small:
                                together = uint32(together + four * weight)
                            else:
                                for j in range(width):
                                    near = uint32((four >> uint32(8 * j)) & uint32(255))
                                    index[j] = uint32(index[j] + near * weight)
                        else:
                            for j in range(width):
                                near = uint32(x[uint32(rows[k] + chain + uint32(j))])
                                index[j] = uint32(index[j] + near * weight)
                        k = uint32(k + uint32(1))
                    if bytewise and small:
                        for j in range(width):
                            index[j] = uint32((together >> uint32(8 * j)) & uint32(255))
                    u[0], u[1], u[2], u[3] = philox(
                        uint32(chain >> uint32(2)), site, uint32(sweep), counter_top(sweep, uint32(0)), key0, key1
                    )
                    count, entry = uint32(cuts[site]), uint32(base + uint32(entries[site]))
                    for j in range(width):
                        index[j] = uint32(entry + index[j] * count)
                    k = uint32(0)
                    while k < count:
                        total = uint32(0)
                        row = uint64(sum_rows[site]) + uint64(k) if mode != 0 else uint64(0)
                        for j in range(width):
                            threshold = table[uint32(index[j] + k)]
                            below = u[j] < threshold or threshold == uint32(_ONES)
                            if not below:
                                state[j] = uint32(state[j] + uint32(1))
                            if mode != 0:
                                share = uint32((threshold >> uint32(8)) + ((threshold >> uint32(7)) & uint32(1)))
                                if mode == 2:  # cumulative thresholds: the state is at most k where u is below
                                    share = uint32(1 << 24) if below else uint32(0)
                                if per_chain:
                                    at = row * units * uint64(width) + uint64(chain) + uint64(j)
                                    cuda.atomic.add(sums, at, share)
                                else:
                                    total = uint32(total + share)
                        if mode != 0 and not per_chain:
                            cuda.atomic.add(sums, row * units + uint64(unit), uint64(total))
                        k = uint32(k + uint32(1))
                    if bytewise:
                        four = uint32(0)
                        for j in range(width):
                            four = uint32(four | uint32(state[j] << uint32(8 * j)))
                        x[uint32(site * stride + unit)] = four
                    else:
                        for j in range(width):
                            x[uint32(site * stride + chain + uint32(j))] = state[j]
                    site = uint32(site + num_slots)
                if grid:
                    cuda.cg.this_grid().sync()
                else:
                    cuda.syncthreads()

    return kernel


@cache
def logit_kernel(width: int, mode: int, per_chain: bool, grid: bool) -> Any:
    """The kernel for any model: conditional distributions in double precision at every update.

    Parameters
    ----------
    width, mode, per_chain, grid
        As in :func:`table_kernel`, with a state for every element of ``x``.

    Returns
    -------
    callable
        Kernel of ``x``; ``indptr``, ``rows``; ``tables``, ``row_steps``, ``col_steps`` by entry of these: the
        log-potential of own state s and neighbour's state t is ``values[tables[k] + s * row_steps[k] +
        t * col_steps[k]]``; ``unary_starts`` by place and ``unary``; ``cuts``, ``sum_rows``, ``starts``, ``sums``,
        stride and so on.
    """

    @cuda.jit(device=True)
    def logit(x, indptr, rows, tables, row_steps, col_steps, values, start, site, state, chain):
        total = start
        k, stop = uint64(indptr[site]), uint64(indptr[uint64(site) + uint64(1)])
        while k < stop:
            near = uint64(x[uint32(rows[k] + chain)])
            total += values[uint64(tables[k]) + state * uint64(row_steps[k]) + near * uint64(col_steps[k])]
            k += uint64(1)
        return total

    @cuda_jit(cache=True)
    def kernel(
        x, indptr, rows, tables, row_steps, col_steps, values, unary_starts, unary, cuts, sum_rows, starts, sums,
        stride, first, last, num_sweeps, sweep_begin, key0, key1,
    ):  # fmt: skip
        unit = uint32(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
        units = uint64(cuda.gridDim.x * cuda.blockDim.x)
        slot = uint32(cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y)
        num_slots = uint32(cuda.gridDim.y * cuda.blockDim.y)
        for s in range(num_sweeps):
            sweep = uint64(sweep_begin) + uint64(s)
            for colour in range(first, last):
                site = uint32(starts[uint64(colour)] + slot)
                end = uint32(starts[uint64(colour + 1)])
                while site < end:
                    begin, count, row = uint64(unary_starts[site]), uint64(cuts[site]), uint64(sum_rows[site])
                    chain = uint32(unit * uint32(width))
                    a, b, c, d = philox(
                        uint32(chain >> uint32(2)), site, uint32(sweep), counter_top(sweep, uint32(0)), key0, key1
                    )
                    for _ in range(width):
                        # The largest log-weight and the total in one pass: the total is rescaled as the largest grows.
                        top, total = float64(-math.inf), float64(0.0)
                        state = uint64(0)
                        while state <= count:
                            value = logit(
                                x, indptr, rows, tables, row_steps, col_steps, values,
                                unary[begin + state], site, state, chain,
                            )  # fmt: skip
                            if value > top:
                                total = total * math.exp(top - value) + float64(1.0)
                                top = value
                            elif value > float64(-math.inf):
                                total += math.exp(value - top)
                            state += uint64(1)
                        part, result, state = float64(0.0), uint32(0), uint64(0)
                        while state < count:
                            value = logit(
                                x, indptr, rows, tables, row_steps, col_steps, values,
                                unary[begin + state], site, state, chain,
                            )  # fmt: skip
                            part += math.exp(value - top)
                            scaled = math.floor(part / total * float64(4294967296.0) + float64(0.5))
                            threshold = uint32(min(scaled, float64(4294967295.0)))
                            below = a < threshold or threshold == uint32(_ONES)
                            if not below:
                                result = uint32(result + uint32(1))
                            if mode != 0:
                                share = uint32((threshold >> uint32(8)) + ((threshold >> uint32(7)) & uint32(1)))
                                if mode == 2:
                                    share = uint32(1 << 24) if below else uint32(0)
                                at = (row + state) * units + uint64(unit)
                                if per_chain:
                                    at = (row + state) * units * uint64(width) + uint64(chain)
                                cuda.atomic.add(sums, at, share)
                            state += uint64(1)
                        x[uint32(site * stride + chain)] = result
                        chain = uint32(chain + uint32(1))
                        a, b, c = b, c, d
                    site = uint32(site + num_slots)
                if grid:
                    cuda.cg.this_grid().sync()
                else:
                    cuda.syncthreads()

    return kernel
