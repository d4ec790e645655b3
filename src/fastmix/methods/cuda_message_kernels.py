"""CUDA kernels of belief propagation. Import it inside functions only: it needs Numba.

A thread has a variable: it adds up (or multiplies) what came in, and writes what goes out to the slots of the
neighbours, in a second set of messages; the sets change places after every round. All rounds of a call are one launch,
whose blocks wait for each other after every round and stop together after the first round within the tolerance, so the
rounds made are those that the CPU would make. The layout is that of :mod:`fastmix.methods.cuda_layout`; arithmetic
is in double precision, and that of :mod:`fastmix.methods.loopy_bp_kernels` and ``table_message_kernels``.

Arguments that all kernels share: ``messages``, both sets after each other; ``changes`` (num_rounds,), zeros, in which
the largest change of every round is left; ``size``, numbers of a set; ``parity``, 0 or 1, the set to begin with.
"""
# Types inside kernels are those of their compiler.
# mypy: ignore-errors

from __future__ import annotations

import math
from functools import cache
from typing import Any

from numba import cuda, float64, uint64

from fastmix._jit import cuda_jit

__all__ = ["THREADS", "binary_kernel", "table_kernel"]

THREADS = 256  # of a block at most; a power of two


@cuda.jit(device=True)
def _leave_largest(value, best, changes, t):
    """The largest value of a block, put into ``changes[t]`` where it is larger than what other blocks have left."""
    thread = uint64(cuda.threadIdx.x)
    best[thread] = value
    cuda.syncthreads()
    half = uint64(cuda.blockDim.x) >> uint64(1)
    while half > uint64(0):
        if thread < half:
            best[thread] = max(best[thread], best[thread + half])
        cuda.syncthreads()
        half = half >> uint64(1)
    if thread == uint64(0):
        cuda.atomic.max(changes, t, best[uint64(0)])


# -- binary -----------------------------------------------------------------------------------------------------------


@cuda.jit(device=True)
def _new_log_odds(cavity, twice_coupling):
    """2 atanh(tanh(cavity / 2) tanh(J)), to rounding for numbers of any size; see the same function for the CPU."""
    a, b = abs(cavity), abs(twice_coupling)
    small, weight = math.exp(-a), math.exp(-b)
    if small + weight > float64(1e-290):
        value = math.log((float64(1.0) + small * weight) / (small + weight))
    else:
        value = min(a, b) - math.log1p(math.exp(-abs(a - b)))
    return value if (cavity >= float64(0.0)) == (twice_coupling >= float64(0.0)) else -value


@cache
def binary_kernel(logs: bool, most: int) -> Any:
    """The kernel for messages of one number.

    Parameters
    ----------
    logs : bool
        Messages are log-odds, damped by any weight; or odds, damped by halving the change of their logs.
    most : int
        The most neighbours of a variable if they are few: then all that a thread reads is asked for before the first
        number is needed, and held in registers. 0 for any number of neighbours.

    Returns
    -------
    callable
        Kernel of ``reverse`` uint32 (slots,), where the message that answers the one in a slot goes; ``weights``
        float64 (slots,), 2 J or exp(2 J); ``bases`` uint32 (slices + 1,) and ``degrees`` uint32 (places,);
        ``fields`` float64 (places,), log-odds or odds by the fields alone; ``halvings`` and ``damping``, of which odds
        take the first and log-odds the second. The change is the largest ``|log new - log old|`` of log-odds, and of
        odds the largest ``exp`` of it minus 1.
    """
    held = max(1, most)

    @cuda.jit(device=True)
    def renew(total, opposite, weight):
        if logs:
            return _new_log_odds(total - opposite, weight)
        # (cavity w + 1) / (cavity + w), where the cavity is the product over the opposite message.
        return (opposite + total * weight) / (opposite * weight + total)

    @cuda.jit(device=True)
    def distance(value, before):
        if logs:
            return abs(value - before)
        return abs(value - before) / min(value, before)

    @cuda.jit(device=True)
    def damp(value, before, halvings, damping):
        if logs:
            return value + damping * (before - value)
        for _ in range(halvings):
            value = math.sqrt(value * before)
        return value

    @cuda_jit(cache=True)
    def kernel(
        messages, reverse, weights, bases, degrees, fields, changes, size, parity, halvings, damping, tol, num_rounds
    ):
        best = cuda.shared.array(THREADS, float64)
        came, factors = cuda.local.array(held, float64), cuda.local.array(held, float64)
        befores, targets = cuda.local.array(held, float64), cuda.local.array(held, uint64)
        start = uint64(cuda.blockIdx.x) * uint64(cuda.blockDim.x) + uint64(cuda.threadIdx.x)
        step = uint64(cuda.gridDim.x) * uint64(cuda.blockDim.x)
        for t in range(num_rounds):
            odd = (parity + uint64(t)) & uint64(1)
            old, new = odd * size, (uint64(1) - odd) * size
            largest = float64(0.0)
            i = start
            while i < uint64(degrees.shape[0]):
                degree = uint64(degrees[i])
                base = uint64(bases[i >> uint64(5)]) + (i & uint64(31))
                total = fields[i]
                if most > 0:
                    for k in range(most):
                        if uint64(k) < degree:
                            slot = base + uint64(32 * k)
                            came[k], factors[k] = messages[old + slot], weights[slot]
                            targets[k] = uint64(reverse[slot])
                    for k in range(most):
                        if uint64(k) < degree:
                            befores[k] = messages[old + targets[k]]
                    for k in range(most):
                        if uint64(k) < degree:
                            total = total + came[k] if logs else total * came[k]
                    for k in range(most):
                        if uint64(k) < degree:
                            value = renew(total, came[k], factors[k])
                            largest = max(largest, distance(value, befores[k]))
                            messages[new + targets[k]] = damp(value, befores[k], halvings, damping)
                else:
                    slot, end = base, base + uint64(32) * degree
                    while slot < end:
                        total = total + messages[old + slot] if logs else total * messages[old + slot]
                        slot += uint64(32)
                    slot = base
                    while slot < end:
                        target = uint64(reverse[slot])
                        before = messages[old + target]
                        value = renew(total, messages[old + slot], weights[slot])
                        largest = max(largest, distance(value, before))
                        messages[new + target] = damp(value, before, halvings, damping)
                        slot += uint64(32)
                i += step
            _leave_largest(largest, best, changes, uint64(t))
            cuda.cg.this_grid().sync()
            if changes[uint64(t)] <= tol:
                break

    return kernel


# -- any tables -------------------------------------------------------------------------------------------------------


@cache
def table_kernel(width: int, uniform: bool) -> Any:
    """The kernel for messages that are vectors of logs, the largest entry 0.

    Parameters
    ----------
    width : int
        The most states of a variable.
    uniform : bool
        Whether all variables have that many. Then loops have a length that the compiler knows, and small vectors are
        kept in registers.

    Returns
    -------
    callable
        Kernel of ``unary`` float64, one slot a variable; ``reverse`` uint32 (slots,), where the first number of the
        message that answers the one in a slot goes; ``codes`` uint32 (slots,), four times the number of the edge's
        table, plus 2 if it holds logs instead of their exponentials, plus 1 if the variable stands for its columns;
        ``sizes`` uint8 (slots,), states of the neighbours; ``tables`` float64 and ``table_bases`` uint64;
        ``slot_bases``, ``entry_bases``, ``unary_bases`` and ``widths`` uint32 by slice; ``degrees`` and ``counts``
        uint32 by place. The change is the largest of any log.
    """

    @cuda.jit(device=True)
    def move_top_to_zero(out, count):
        top = out[0]
        for b in range(uint64(1), count):
            top = max(top, out[b])
        for b in range(count):
            out[b] -= top

    @cuda.jit(device=True)
    def sum_out(cavity, num_in, num_out, tables, first, step_in, step_out, hard, out):
        """``out[b] = log sum_a exp(cavity[a] + T(a, b))``; the cavity is overwritten."""
        if hard:
            for b in range(num_out):
                best = -math.inf
                for a in range(num_in):
                    best = max(best, cavity[a] + tables[first + a * step_in + b * step_out])
                total = float64(0.0)
                for a in range(num_in):
                    total += math.exp(cavity[a] + tables[first + a * step_in + b * step_out] - best)
                out[b] = best + math.log(total)
            return
        top = cavity[0]
        for a in range(uint64(1), num_in):
            top = max(top, cavity[a])
        for a in range(num_in):
            cavity[a] = math.exp(cavity[a] - top)
        for b in range(num_out):
            total = float64(0.0)
            for a in range(num_in):
                total += cavity[a] * tables[first + a * step_in + b * step_out]
            out[b] = math.log(total)

    @cuda_jit(cache=True)
    def kernel(
        messages, unary, reverse, codes, sizes, tables, table_bases, slot_bases, entry_bases, unary_bases, widths,
        degrees, counts, changes, size, parity, damping, tol, num_rounds,
    ):  # fmt: skip
        best = cuda.shared.array(THREADS, float64)
        totals, cavity = cuda.local.array(width, float64), cuda.local.array(width, float64)
        out, befores = cuda.local.array(width, float64), cuda.local.array(width, float64)
        start = uint64(cuda.blockIdx.x) * uint64(cuda.blockDim.x) + uint64(cuda.threadIdx.x)
        step = uint64(cuda.gridDim.x) * uint64(cuda.blockDim.x)
        for t in range(num_rounds):
            odd = (parity + uint64(t)) & uint64(1)
            old, new = odd * size, (uint64(1) - odd) * size
            largest = float64(0.0)
            i = start
            while i < uint64(degrees.shape[0]):
                which, lane = i >> uint64(5), i & uint64(31)
                num_in = uint64(width) if uniform else uint64(counts[i])
                row = uint64(32) * (
                    uint64(width) if uniform else uint64(widths[which])
                )  # from one message of the variable to the next
                slot = uint64(slot_bases[which]) + lane
                # Where all have as many states, a place follows from a number, and need not be waited for.
                if uniform:
                    entry = old + (slot - lane) * uint64(width) + lane
                    at = which * uint64(32 * width) + lane
                else:
                    entry = old + uint64(entry_bases[which]) + lane
                    at = uint64(unary_bases[which]) + lane
                end = slot + uint64(32) * uint64(degrees[i])
                for a in range(num_in):
                    totals[a] = unary[at + uint64(32) * a]
                back, place = entry, slot
                while place < end:
                    for a in range(num_in):
                        totals[a] += messages[back + uint64(32) * a]
                    back += row
                    place += uint64(32)
                back, place = entry, slot
                while place < end:
                    code, target = uint64(codes[place]), uint64(reverse[place])
                    num_out = uint64(width) if uniform else uint64(sizes[place])
                    edge = code >> uint64(2)
                    if uniform:
                        first = (edge >> uint64(5)) * uint64(32 * width * width) + (edge & uint64(31))
                    else:
                        first = uint64(table_bases[edge >> uint64(5)]) + (edge & uint64(31))
                    step_in, step_out = uint64(32) * num_out, uint64(32)
                    if code & uint64(1):
                        step_in, step_out = uint64(32), uint64(32) * num_in
                    for a in range(num_in):
                        cavity[a] = totals[a] - messages[back + uint64(32) * a]
                    for b in range(num_out):  # asked for before they are needed
                        befores[b] = messages[old + target + uint64(32) * b]
                    hard = (code & uint64(2)) != uint64(0)
                    sum_out(cavity, num_in, num_out, tables, first, step_in, step_out, hard, out)
                    move_top_to_zero(out, num_out)
                    for b in range(num_out):
                        largest = max(largest, abs(out[b] - befores[b]))
                        out[b] += damping * (befores[b] - out[b])
                    if damping > float64(0.0):
                        move_top_to_zero(out, num_out)
                    for b in range(num_out):
                        messages[new + target + uint64(32) * b] = out[b]
                    back += row
                    place += uint64(32)
                i += step
            _leave_largest(largest, best, changes, uint64(t))
            cuda.cg.this_grid().sync()
            if changes[uint64(t)] <= tol:
                break

    return kernel
