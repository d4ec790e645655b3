"""Compiled loops over configurations side by side: energies, counts, pairs of states; and replica exchange.

``x[i, l]`` is the state of site i in lane l, so that loops over lanes run along memory and vectorize.
"""

from __future__ import annotations

import math

import numpy as np
from numba import float32, uint8

from fastmix._jit import inner, njit, outer
from fastmix.chains.product_kernels import log_weights
from fastmix.chains.random_kernels import fill_numbers
from fastmix.chains.threshold_kernels import UNIT, largest

__all__ = [
    "add_energies", "add_shared_energies", "average_pairs", "binary_energies", "count_in_patterns", "exchange",
    "shared_statistics", "weighted_counts",
]  # fmt: skip


#: Sites whose energies are added up in single precision before they join the total: a compromise between speed and
#: rounding. Not measured here.
FLUSHED_SITES = 16
#: Inner states of a table from which on one pass with scattered sums beats a pass for each state. Not measured here.
SCATTERED_STATES = 16


# -- energies -------------------------------------------------------------------------------------------------------


@inner
def _add_two(total, x, x0, x1, weight, w0, w1):
    """Add a site's own weight and those to two neighbors, where the site is in state 1."""
    for c in range(len(total)):
        total[c] += float32(x[c]) * (weight + w0 * float32(x0[c]) + w1 * float32(x1[c]))


@inner
def _flush(out, total):
    """Move totals in single precision to ``out``."""
    for c in range(len(out)):
        out[c] += total[c]
        total[c] = float32(0.0)


@outer
def binary_energies(x, linear, joined, indptr, later, weights, constants, total, out):
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
            # Neighbors go two at a time; the first two take the site's own weight along.
            weight = linear[d, i]
            k = indptr[i]
            last = indptr[i + 1] if joined[d] else indptr[i]
            while last - k >= 2:
                w = weights[d]
                _add_two(total[d], x[i], x[later[k]], x[later[k + 1]], weight, w[k], w[k + 1])
                weight = none
                k += 2
            if last - k == 1:
                _add_two(total[d], x[i], x[later[k]], x[later[k]], weight, weights[d, k], none)
            elif weight != none:
                _add_two(total[d], x[i], x[i], x[i], weight, none, none)
        if i % FLUSHED_SITES == FLUSHED_SITES - 1 or i == x.shape[0] - 1:
            for d in range(count):
                _flush(out[d], total[d])


@inner
def _is_zero(values):
    """Whether all values are zero."""
    nonzero = 0
    for value in values:
        nonzero += value != 0.0
    return nonzero == 0


@inner
def _find_entries(index, x, variables, strides):
    """Fill in the places in a table that the states of its scope in x (n, chains) lead to."""
    index[:] = 0
    for v, stride in zip(variables, strides):  # noqa: B905  # not known to the compiler
        own = x[v]
        for c in range(len(index)):
            index[c] += own[c] * stride


@outer
def add_energies(x, states, edges, unary_at, unary, pairwise_at, tables, variables, chosen, scopes, factors, out):
    """Add the log-weights of some variables, edges and factors to ``out`` (chains,), for every chain's configuration.

    ``chosen`` are rows of ``edges`` and ``factors`` numbers of ``scopes``, all between the given variables. ``scopes``
    are starts of the scopes, their variables and strides, and starts of their tables, which come after those of the
    edges in ``tables``.

    Between binary variables a table is ``t00 + (t10 - t00) x_i + (t01 - t00) x_j + (t11 - t10 - t01 + t00) x_i x_j``:
    the linear terms are collected by variable, and the product that is left needs no lookup. The steps are:

    1. Edges.
    2. Variables, with the linear terms of their edges.
    3. Factors.
    4. The constant.
    """
    num_chains = x.shape[1]
    slope = np.zeros(len(states))
    constant = 0.0

    # 1. Edges.
    for e in chosen:
        i = edges[e, 0]
        j = edges[e, 1]
        one = x[i]
        two = x[j]
        base = pairwise_at[e]
        step = states[j]
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

    # 2. Variables.
    for i in variables:
        own = x[i]
        base = unary_at[i]
        if states[i] == 2:
            constant += unary[base]
            weight = slope[i] + unary[base + 1] - unary[base]
            for c in range(num_chains):
                out[c] += weight * own[c]
        else:
            values = unary[base : unary_at[i + 1]]
            for c in range(num_chains):
                out[c] += values[own[c]]

    # 3. Factors.
    index = np.empty(num_chains if len(factors) else 0, np.int64)
    scope_starts, scope_variables, strides, tables_at = scopes
    for a in factors:
        values = tables[tables_at[a] : tables_at[a + 1]]
        first = scope_starts[a]
        last = scope_starts[a + 1]
        if not _is_zero(values):
            _find_entries(index, x, scope_variables[first:last], strides[first:last])
            for c in range(num_chains):
                out[c] += values[index[c]]

    # 4. The constant.
    for c in range(num_chains):
        out[c] += constant


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def weighted_counts(
    x, states, edges, unary_at, pairwise_at, variables, chosen, scopes, factors, weights, unary, tables
):
    """Fill in the sums of the weights (chains,) of the chains in every state of some variables, edges and factors.

    The arguments are those of :func:`add_energies`; ``unary`` and ``tables`` are filled in. The steps are:

    1. Variables: a pass for each state but the first, which has the rest.
    2. Edges: large tables in one pass with scattered sums; of others the inner states by a pass each, the first row
       and the first column as the rest.
    3. Factors: one pass with scattered sums.
    """
    num_chains = x.shape[1]
    whole = 0.0
    for c in range(num_chains):
        whole += weights[c]

    # 1. Variables.
    for i in variables:
        own = x[i]
        rest = whole
        for s in range(1, states[i]):
            total = 0.0
            for c in range(num_chains):
                total += weights[c] * (own[c] == s)
            unary[unary_at[i] + s] = total
            rest -= total
        unary[unary_at[i]] = rest

    # 2. Edges.
    for e in chosen:
        i = edges[e, 0]
        j = edges[e, 1]
        one = x[i]
        two = x[j]
        base = pairwise_at[e]
        step = states[j]
        if (states[i] - 1) * (states[j] - 1) > SCATTERED_STATES:
            tables[base : pairwise_at[e + 1]] = 0.0
            for c in range(num_chains):
                tables[base + one[c] * step + two[c]] += weights[c]
            continue
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

    # 3. Factors.
    index = np.empty(num_chains if len(factors) else 0, np.int64)
    scope_starts, scope_variables, strides, tables_at = scopes
    for a in factors:
        first = scope_starts[a]
        last = scope_starts[a + 1]
        base = tables_at[a]
        tables[base : tables_at[a + 1]] = 0.0
        _find_entries(index, x, scope_variables[first:last], strides[first:last])
        for c in range(num_chains):
            tables[base + index[c]] += weights[c]


@outer
def add_shared_energies(x, edges, places, patterns, weights, out):
    """Add the log-weights of edges that share patterns to ``out`` (chains,), for every chain's configuration.

    ``places`` are, for every edge, where its pattern begins, and the steps in it by a state of either variable.
    """
    starts, first_steps, second_steps = places
    for e in range(len(edges)):
        weight = weights[e]
        if weight == 0.0:
            continue
        one = x[edges[e, 0]]
        two = x[edges[e, 1]]
        for c in range(len(out)):
            out[c] += weight * patterns[starts[e] + one[c] * first_steps[e] + two[c] * second_steps[e]]


@outer
def shared_statistics(x, edges, places, patterns, weights, out):
    """Fill in the sums over chains, with weights (chains,), of the entry of its pattern that every edge is at."""
    starts, first_steps, second_steps = places
    for e in range(len(edges)):
        one = x[edges[e, 0]]
        two = x[edges[e, 1]]
        total = 0.0
        for c in range(len(weights)):
            total += weights[c] * patterns[starts[e] + one[c] * first_steps[e] + two[c] * second_steps[e]]
        out[e] = total


@outer
def count_in_patterns(x, edges, places, of_edges, weights, out):
    """Add the weights of the chains, times those of the edges, to the entry of its pattern that every edge is at."""
    starts, first_steps, second_steps = places
    for e in range(len(edges)):
        one = x[edges[e, 0]]
        two = x[edges[e, 1]]
        for c in range(len(weights)):
            out[starts[e] + one[c] * first_steps[e] + two[c] * second_steps[e]] += of_edges[e] * weights[c]


# -- pairs of states ------------------------------------------------------------------------------------------------


@outer
def average_pairs(x, logs, k, places, out):
    """Add conditional probabilities of the pairs on every edge, given all but one end, in configurations x.

    An edge gets half a unit from either end: the probability, under parameter set k, of that end's states beside the
    present state of the other. ``logs`` are the arrays of :meth:`fastmix.chains.layout.Layout.log_arrays`, and
    ``places`` say where each direction of an edge has its table in ``out``; x is (any number, n).
    """
    indptr, neighbors, _, _, states, _, _, _, _, _ = logs
    starts, own_steps, other_steps = places
    weights = np.empty(largest(states))
    for c in range(x.shape[0]):
        row = x[c]
        for i in range(len(states)):
            if indptr[i] == indptr[i + 1]:
                continue
            # Cumulative weights become probabilities, halved.
            half = 0.5 / log_weights(i, row, logs, k, weights)
            for s in range(states[i] - 1, 0, -1):
                weights[s] = (weights[s] - weights[s - 1]) * half
            weights[0] *= half
            for j in range(indptr[i], indptr[i + 1]):
                base = starts[j] + row[neighbors[j]] * other_steps[j]
                for s in range(states[i]):
                    out[base + s * own_steps[j]] += weights[s]


# -- exchange -------------------------------------------------------------------------------------------------------


@inner
def _difference(out, a, b, mask):
    """The bits in which the states of two lanes differ, 0 where the mask is 0."""
    for c in range(len(out)):
        out[c] = (a[c] ^ b[c]) & mask[c]


@inner
def _toggle(a, difference):
    """Change the bits of the states that differ."""
    for c in range(len(a)):
        a[c] ^= difference[c]


@inner
def _logistic(z):
    """1 / (1 + exp(-z)), without overflow."""
    return 1.0 / (1.0 + math.exp(min(-z, 700.0)))


@outer
def exchange(x, parity, gaps, energies, streams, shifts, sums, carrier, heading, trips):
    """Propose the exchange of configurations between rungs k and k + 1, for every k of one parity, in every ladder.

    See :meth:`fastmix.chains.base.Chains.exchange_rounds`. ``D_k = gaps[k] @ energies[:, lane]``, with gaps (K - 1, D)
    and energies (D, K * C); every lane draws a number, and those of the lower rungs decide. ``sums`` (6, K - 1, C) are
    those of :class:`fastmix.chains.base.Exchanges`. A lane holds replica ``carrier`` (K * C,) of its ladder, whose
    ``heading``, at ``replica * C + ladder``, is 1 on its way up from the lowest rung, 2 on its way down from the
    highest, and 0 before its first visit to the lowest; ``trips`` (C,) counts the replicas that came back. The steps
    are:

    1. Draw the random numbers.
    2. Decide on every pair of lanes, and note the accepted ones in a mask.
    3. Exchange the states of the accepted pairs, site by site.
    4. Count round trips at the lowest and the highest rung.
    """
    num_ladders = len(trips)
    width = x.shape[1]
    num_rungs = width // num_ladders
    rest = width - num_ladders

    # 1. Random numbers.
    u = np.empty(width, np.uint32)
    mask = np.empty(rest, np.uint8)
    fill_numbers(streams[0], streams[1], streams[2], streams[3], u)
    for c in range(rest):
        mask[c] = uint8(0)

    # 2. Decisions.
    accepted = 0
    for k in range(parity, num_rungs - 1, 2):
        for c in range(num_ladders):
            low = k * num_ladders + c
            high = low + num_ladders
            below = 0.0
            above = 0.0
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
            if u[low] < chance * UNIT:
                mask[low] = 255
                accepted += 1
                carrier[low], carrier[high] = carrier[high], carrier[low]

    # 3. Exchanges.
    if accepted:
        difference = np.empty(rest, np.uint8)
        for i in range(x.shape[0]):
            lower = x[i, :rest]
            upper = x[i, num_ladders:]
            _difference(difference, lower, upper, mask)
            _toggle(lower, difference)
            _toggle(upper, difference)

    # 4. Round trips.
    for c in range(num_ladders):
        bottom = carrier[c] * num_ladders + c
        if heading[bottom] == 2:
            trips[c] += 1
        heading[bottom] = 1
        top = carrier[width - num_ladders + c] * num_ladders + c
        if heading[top] == 1:
            heading[top] = 2
