"""Compiled loops that read configurations side by side: energies, counts, pairs; and replica exchange.

``x[i, l]`` is the state of site i in lane l, so that loops over lanes run along memory and vectorise.
"""

from __future__ import annotations

import math

import numpy as np
from numba import float32, uint8

from fastmix._jit import inner, njit, outer
from fastmix.chains.kernels import _UNIT, _fill, largest
from fastmix.chains.product_kernels import log_weights

__all__ = ["add_energies", "average_pairs", "binary_energies", "exchange", "weighted_counts"]


_FLUSH = 16  # sites whose energies are added up in single precision before they join the total
_SCATTERED = 16  # inner states of a table from which one pass with scattered sums beats a pass for each


# -- energies -------------------------------------------------------------------------------------------------------


@inner
def _add_two(total, x, x0, x1, weight, w0, w1):  # type: ignore[no-untyped-def]
    for c in range(len(total)):
        total[c] += float32(x[c]) * (weight + w0 * float32(x0[c]) + w1 * float32(x1[c]))


@inner
def _flush(out, total):  # type: ignore[no-untyped-def]
    for c in range(len(out)):
        out[c] += total[c]
        total[c] = float32(0.0)


@outer
def binary_energies(x, linear, joined, indptr, later, weights, constants, total, out):  # type: ignore[no-untyped-def]
    """Energies (D, W) of all lanes x (n, W) of a binary model under every theta.

    ``out[d] = constants[d] + sum_i x_i (linear[d, i] + sum_j weights[d, ij] x_j)`` with j over the neighbors after i,
    the second term only if ``joined[d]``. Sums over a few sites are in single precision, in ``total`` (D, W).
    """
    count = len(constants)
    none = float32(0.0)
    total[:] = none
    for d in range(count):
        out[d] = constants[d]
    for i in range(x.shape[0]):
        for d in range(count):
            weight = linear[d, i]
            k, last = indptr[i], indptr[i + 1] if joined[d] else indptr[i]
            while last - k >= 2:
                w = weights[d]
                _add_two(total[d], x[i], x[later[k]], x[later[k + 1]], weight, w[k], w[k + 1])
                weight = none
                k += 2
            if last - k == 1:
                _add_two(total[d], x[i], x[later[k]], x[later[k]], weight, weights[d, k], none)
            elif weight != none:
                _add_two(total[d], x[i], x[i], x[i], weight, none, none)
        if i % _FLUSH == _FLUSH - 1 or i == x.shape[0] - 1:
            for d in range(count):
                _flush(out[d], total[d])


@inner
def _is_zero(values):  # type: ignore[no-untyped-def]
    nonzero = 0
    for value in values:
        nonzero += value != 0.0
    return nonzero == 0


@inner
def _find_entries(index, x, variables, strides):  # type: ignore[no-untyped-def]
    """Where the configurations x (n, chains) of a scope are in its table."""
    index[:] = 0
    for v, stride in zip(variables, strides):  # noqa: B905  # not known to the compiler
        own = x[v]
        for c in range(len(index)):
            index[c] += own[c] * stride


@outer
def add_energies(  # type: ignore[no-untyped-def]
    x, states, edges, unary_at, unary, pairwise_at, tables, variables, chosen, scopes, factors, out
):
    """Add the log-weight of every chain's configuration to ``out`` (chains,), of some variables, edges and factors.

    ``chosen`` are rows of ``edges``, and ``factors`` numbers of ``scopes``, both between these variables: where the
    scopes and their tables begin, their variables and strides. Factors come after the edges in ``tables``.

    Between binary variables a table is ``t00 + (t10 - t00) x_i + (t01 - t00) x_j + (t11 - t10 - t01 + t00) x_i x_j``:
    the linear terms are collected by variable, and what is left is a product that needs no lookup.
    """
    num_chains = x.shape[1]
    slope, constant = np.zeros(len(states)), 0.0
    for e in chosen:
        i, j = edges[e, 0], edges[e, 1]
        one, two, base, step = x[i], x[j], pairwise_at[e], states[j]
        values = tables[base : pairwise_at[e + 1]]
        if _is_zero(values):
            continue
        if states[i] == 2 and step == 2:
            constant += values[0]
            slope[i] += values[2] - values[0]
            slope[j] += values[1] - values[0]
            weight = values[3] - values[2] - values[1] + values[0]
            for c in range(num_chains):
                out[c] += weight * (one[c] & two[c])
        else:
            for c in range(num_chains):
                out[c] += values[one[c] * step + two[c]]
    for i in variables:
        own, base = x[i], unary_at[i]
        if states[i] == 2:
            constant += unary[base]
            weight = slope[i] + unary[base + 1] - unary[base]
            for c in range(num_chains):
                out[c] += weight * own[c]
        else:
            values = unary[base : unary_at[i + 1]]
            for c in range(num_chains):
                out[c] += values[own[c]]
    index = np.empty(num_chains if len(factors) else 0, np.int64)
    scope_starts, scope_variables, strides, tables_at = scopes
    for a in factors:
        values, first, last = tables[tables_at[a] : tables_at[a + 1]], scope_starts[a], scope_starts[a + 1]
        if not _is_zero(values):
            _find_entries(index, x, scope_variables[first:last], strides[first:last])
            for c in range(num_chains):
                out[c] += values[index[c]]
    for c in range(num_chains):
        out[c] += constant


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def weighted_counts(  # type: ignore[no-untyped-def]
    x, states, edges, unary_at, pairwise_at, variables, chosen, scopes, factors, weights, unary, tables
):
    """Sum of the weights (chains,) of the chains in every state of some variables, edges and factors.

    The arguments are those of :func:`add_energies`.
    """
    num_chains = x.shape[1]
    whole = 0.0
    for c in range(num_chains):
        whole += weights[c]
    for i in variables:
        own, rest = x[i], whole
        for s in range(1, states[i]):
            total = 0.0
            for c in range(num_chains):
                total += weights[c] * (own[c] == s)
            unary[unary_at[i] + s] = total
            rest -= total
        unary[unary_at[i]] = rest
    for e in chosen:
        i, j = edges[e, 0], edges[e, 1]
        one, two, base, step = x[i], x[j], pairwise_at[e], states[j]
        if (states[i] - 1) * (states[j] - 1) > _SCATTERED:
            tables[base : pairwise_at[e + 1]] = 0.0
            for c in range(num_chains):
                tables[base + one[c] * step + two[c]] += weights[c]
            continue
        # Inner states by a pass each, the first row and column by what is left.
        for b in range(step):
            tables[base + b] = unary[unary_at[j] + b]
        for a in range(1, states[i]):
            rest = unary[unary_at[i] + a]
            for b in range(1, step):
                total = 0.0
                for c in range(num_chains):
                    total += weights[c] * ((one[c] == a) & (two[c] == b))
                tables[base + a * step + b] = total
                tables[base + b] -= total
                rest -= total
            tables[base + a * step] = rest
            tables[base] -= rest
    index = np.empty(num_chains if len(factors) else 0, np.int64)
    scope_starts, scope_variables, strides, tables_at = scopes
    for a in factors:
        first, last, base = scope_starts[a], scope_starts[a + 1], tables_at[a]
        tables[base : tables_at[a + 1]] = 0.0
        _find_entries(index, x, scope_variables[first:last], strides[first:last])
        for c in range(num_chains):
            tables[base + index[c]] += weights[c]


# -- pairs of states ------------------------------------------------------------------------------------------------


@outer
def average_pairs(x, logs, k, out):  # type: ignore[no-untyped-def]
    """Add conditional probabilities of the pairs on every edge, given all but one end, in configurations x.

    An edge gets half a unit from either end: the probability, under parameter set k, of that end's states beside the
    present state of the other. ``out`` is laid out as the tables in ``logs``, see
    :meth:`fastmix.chains.layout.Layout.log_arrays`; x is (any number, n).
    """
    indptr, neighbors, starts, own_steps, other_steps, states = logs[0], logs[1], logs[2], logs[3], logs[4], logs[6]
    work = np.empty(largest(states))
    for c in range(x.shape[0]):
        row = x[c]
        for i in range(len(states)):
            if indptr[i] == indptr[i + 1]:
                continue
            half = 0.5 / log_weights(i, row, logs, k, work)
            for s in range(states[i] - 1, 0, -1):
                work[s] = (work[s] - work[s - 1]) * half
            work[0] *= half
            for j in range(indptr[i], indptr[i + 1]):
                base = starts[j] + row[neighbors[j]] * other_steps[j]
                for s in range(states[i]):
                    out[base + s * own_steps[j]] += work[s]


# -- exchange -------------------------------------------------------------------------------------------------------


@inner
def _difference(out, a, b, mask):  # type: ignore[no-untyped-def]
    for c in range(len(out)):
        out[c] = (a[c] ^ b[c]) & mask[c]


@inner
def _toggle(a, difference):  # type: ignore[no-untyped-def]
    for c in range(len(a)):
        a[c] ^= difference[c]


@inner
def _logistic(z):  # type: ignore[no-untyped-def]
    return 1.0 / (1.0 + math.exp(min(-z, 700.0)))


@outer
def exchange(x, parity, gaps, energies, streams, shifts, sums, carrier, heading, trips):  # type: ignore[no-untyped-def]
    """Propose the exchange of configurations between rungs k and k + 1, for every k of one parity, in every ladder.

    See :meth:`fastmix.chains.base.Chains.exchange_rounds`. ``D_k = gaps[k] @ energies[:, lane]``, with gaps (K - 1, D)
    and energies (D, K * C); every lane draws a number, and those of the lower rungs decide. Added up in ``sums`` (6, K
    - 1, C) is what :class:`fastmix.chains.base.Exchanges` has. A lane holds replica ``carrier`` (K * C,) of its ladder,
    whose ``heading``, at ``replica * C + ladder``, is 1 on its way up from the lowest rung, 2 on its way down from the
    highest, and 0 before its first visit to the lowest; ``trips`` (C,) counts what came back.
    """
    num_ladders = len(trips)
    width = x.shape[1]
    num_rungs = width // num_ladders
    rest = width - num_ladders
    u, mask = np.empty(width, np.uint32), np.empty(rest, np.uint8)
    _fill(streams[0], streams[1], streams[2], streams[3], u)
    for c in range(rest):
        mask[c] = uint8(0)
    accepted = 0
    for k in range(parity, num_rungs - 1, 2):
        for c in range(num_ladders):
            low = k * num_ladders + c
            high = low + num_ladders
            below, above = 0.0, 0.0
            for d in range(gaps.shape[1]):
                below += gaps[k, d] * energies[d, low]
                above += gaps[k, d] * energies[d, high]
            chance = math.exp(min(0.0, below - above))
            sums[0, k, c] += 1.0
            sums[1, k, c] += 1.0 - chance
            sums[2, k, c] += below
            sums[3, k, c] += above
            sums[4, k, c] += _logistic(below - shifts[k])
            sums[5, k, c] += _logistic(shifts[k] - above)
            if u[low] < chance * _UNIT:
                mask[low] = 255
                accepted += 1
                carrier[low], carrier[high] = carrier[high], carrier[low]
    if accepted:
        difference = np.empty(rest, np.uint8)
        for i in range(x.shape[0]):
            lower, upper = x[i, :rest], x[i, num_ladders:]
            _difference(difference, lower, upper, mask)
            _toggle(lower, difference)
            _toggle(upper, difference)
    for c in range(num_ladders):
        bottom = carrier[c] * num_ladders + c
        if heading[bottom] == 2:
            trips[c] += 1
        heading[bottom] = 1
        top = carrier[width - num_ladders + c] * num_ladders + c
        if heading[top] == 1:
            heading[top] = 2
