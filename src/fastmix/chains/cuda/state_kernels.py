"""CUDA updates of variables with any number of states.

A thread updates a site in four chains, so that the numbers of one Philox call are used up.
"""
# Types inside kernels are those of their compiler, which mypy does not know; all updates have the same arguments.
# mypy: ignore-errors
# ruff: noqa: ARG001

from __future__ import annotations

import math
from functools import cache
from typing import Any

from numba import cuda, float64, uint32, uint64

from fastmix.chains.cuda.random_kernels import counter_top, philox
from fastmix.chains.cuda.sweep_kernels import barrier, update_jit
from fastmix.chains.cuda.threshold_kernels import is_below, share_of, threshold_of

__all__ = ["logit_update", "table_update"]


@cache
def table_update(small: bool, mode: int, per_chain: bool, grid: bool) -> Any:
    """The update of up to 256 states from pattern tables.

    ``x`` is given as words of four chains of one byte each (and ``rows`` and ``stride`` count words); ``small`` says
    that no site has more than 256 patterns: the numbers of four of them are then computed in one word. For every site:

    1. Find the patterns of the neighbors in four chains.
    2. Draw four random numbers, and compare each with the thresholds of its pattern; collect thresholds or counts.
    3. Put the four states in place.

    The tables are ``indptr`` and ``rows`` uint32, the neighbors, with ``strides`` (of their states in the number of a
    pattern); by place, ``cuts`` (the number of states minus one), ``entries``, the first threshold of a variable in
    ``table``, which has those of all models one after the other, and ``sum_rows``, the first row in the sums, which
    have one for every state but the last; the size of the tables of a model.
    """
    wait = barrier(grid)

    @update_jit()
    def update(
        x, tables, starts, model, sums, steps, stride, unit, slot, num_slots, num_sweeps, sweep_begin, key0, key1
    ):
        indptr, rows, strides, cuts, entries, table, sum_rows, model_size = tables
        row_step, chain_step, unit_step = steps
        base = uint32(uint32(model) * model_size)
        own_sum = uint64(unit) * unit_step
        index = cuda.local.array(4, uint32)
        state = cuda.local.array(4, uint32)
        u = cuda.local.array(4, uint32)
        for s in range(num_sweeps):
            sweep = uint64(sweep_begin) + uint64(s)
            for color in range(starts.shape[0] - 1):
                begin = uint32(starts[uint64(color)])
                end = uint32(starts[uint64(color + 1)])
                site = uint32(begin + slot)
                while site < end:
                    # 1. Patterns.
                    for j in range(4):
                        index[j] = uint32(0)
                        state[j] = uint32(0)
                    together = uint32(0)
                    k = uint32(indptr[site])
                    stop = uint32(indptr[uint64(site) + uint64(1)])
                    while k < stop:
                        weight = uint32(strides[k])
                        four = x[uint32(rows[k] + unit)]
                        if small:
                            together = uint32(together + four * weight)
                        else:
                            for j in range(4):
                                near = uint32((four >> uint32(8 * j)) & uint32(255))
                                index[j] = uint32(index[j] + near * weight)
                        k = uint32(k + uint32(1))
                    if small:
                        for j in range(4):
                            index[j] = uint32((together >> uint32(8 * j)) & uint32(255))

                    # 2. Comparisons.
                    tag = counter_top(sweep, uint32(0))
                    u[0], u[1], u[2], u[3] = philox(unit, site, uint32(sweep), tag, key0, key1)
                    count = uint32(cuts[site])
                    entry = uint32(base + uint32(entries[site]))
                    for j in range(4):
                        index[j] = uint32(entry + index[j] * count)
                    k = uint32(0)
                    at = uint64(sum_rows[site]) * row_step + own_sum if mode != 0 else uint64(0)
                    while k < count:
                        total = uint32(0)
                        for j in range(4):
                            threshold = table[uint32(index[j] + k)]
                            below = is_below(u[j], threshold)
                            if not below:
                                state[j] = uint32(state[j] + uint32(1))
                            if mode != 0:
                                share = share_of(threshold)
                                if mode == 2:  # cumulative thresholds: the state is at most k where u is below
                                    share = uint32(1 << 24) if below else uint32(0)
                                if per_chain:
                                    cuda.atomic.add(sums, at + uint64(j) * chain_step, share)
                                else:
                                    total = uint32(total + share)
                        if mode != 0:
                            if not per_chain:
                                cuda.atomic.add(sums, at, uint64(total))
                            at += row_step
                        k = uint32(k + uint32(1))

                    # 3. States.
                    four = uint32(0)
                    for j in range(4):
                        four = uint32(four | uint32(state[j] << uint32(8 * j)))
                    x[uint32(site * stride + unit)] = four
                    site = uint32(site + num_slots)
                wait()

    return update


@cuda.jit(device=True)
def _log_weight(x, tables, first, site, state, chain):
    """The log-weight of a state, given those of the neighbors; arguments as in :func:`logit_update`."""
    indptr, rows, table_starts, own_steps, other_steps, values = tables[:6]
    total = values[first + state]
    k = uint64(indptr[site])
    stop = uint64(indptr[uint64(site) + uint64(1)])
    while k < stop:
        near = uint64(x[uint32(rows[k] + chain)])
        total += values[uint64(table_starts[k]) + state * uint64(own_steps[k]) + near * uint64(other_steps[k])]
        k += uint64(1)
    return total


@cache
def logit_update(mode: int, grid: bool) -> Any:
    """The update of any model: conditional distributions in double precision every time, one chain after another.

    The tables are ``indptr``, ``rows``; by entry of these, ``table_starts``, ``own_steps``, ``other_steps``:
    the log-potential of own state s and neighbor's state t is ``values[table_starts[k] + s * own_steps[k] + t *
    other_steps[k]]``; ``unary_starts`` by place; ``cuts`` and ``sum_rows`` as in :func:`table_update`.
    """
    wait = barrier(grid)

    @update_jit()
    def update(
        x, tables, starts, model, sums, steps, stride, unit, slot, num_slots, num_sweeps, sweep_begin, key0, key1
    ):
        unary_starts, cuts, sum_rows = tables[6:]
        row_step, chain_step, unit_step = steps
        for s in range(num_sweeps):
            sweep = uint64(sweep_begin) + uint64(s)
            for color in range(starts.shape[0] - 1):
                begin = uint32(starts[uint64(color)])
                end = uint32(starts[uint64(color + 1)])
                site = uint32(begin + slot)
                while site < end:
                    first = uint64(unary_starts[site])
                    count = uint64(cuts[site])
                    row = uint64(sum_rows[site])
                    chain = uint32(unit * uint32(4))
                    tag = counter_top(sweep, uint32(0))
                    a, b, c, d = philox(unit, site, uint32(sweep), tag, key0, key1)
                    for j in range(4):
                        # The largest log-weight and the total in one pass: the total is rescaled as the largest grows.
                        top = float64(-math.inf)
                        total = float64(0.0)
                        state = uint64(0)
                        while state <= count:
                            value = _log_weight(x, tables, first, site, state, chain)
                            if value > top:
                                total = total * math.exp(top - value) + float64(1.0)
                                top = value
                            elif value > float64(-math.inf):
                                total += math.exp(value - top)
                            state += uint64(1)
                        part = float64(0.0)
                        result = uint32(0)
                        state = uint64(0)
                        while state < count:
                            value = _log_weight(x, tables, first, site, state, chain)
                            part += math.exp(value - top)
                            threshold = threshold_of(part / total * float64(4294967296.0))
                            below = is_below(a, threshold)
                            if not below:
                                result = uint32(result + uint32(1))
                            if mode != 0:
                                share = share_of(threshold)
                                if mode == 2:
                                    share = uint32(1 << 24) if below else uint32(0)
                                at = (row + state) * row_step + uint64(unit) * unit_step + uint64(j) * chain_step
                                cuda.atomic.add(sums, at, share)
                            state += uint64(1)
                        x[uint32(site * stride + chain)] = result
                        chain = uint32(chain + uint32(1))
                        a, b, c = b, c, d
                    site = uint32(site + num_slots)
                wait()

    return update
