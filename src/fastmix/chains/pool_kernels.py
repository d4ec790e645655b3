"""Compiled loops over a pool of chains that follow a changing model.

States are one byte a variable, ``x[i, c]`` for variable i in chain c, so that the loops over chains run along memory.
The conditional distributions of every variable for every pattern of its neighbours' states are 32-bit thresholds, as in
:mod:`fastmix.chains.pattern_tables`; here they are filled by a compiled loop, because the model changes with every
step of a descent.
"""

from __future__ import annotations

import numpy as np
from numba import uint32

from fastmix._jit import njit

__all__ = ["add_energies", "fill_thresholds", "sweep", "weighted_counts"]

_SCATTERED = 16  # inner states of a table from which one pass with scattered sums beats a pass for each


@njit(cache=True, nogil=True, error_model="numpy")
def fill_thresholds(  # type: ignore[no-untyped-def]
    states, indptr, neighbors, tables_at, own_steps, their_steps, unary_at, unary, pairwise, starts, table
):
    """Cumulative conditional probabilities of every variable and pattern, as thresholds.

    ``pairwise[tables_at[k] + s * own_steps[k] + t * their_steps[k]]`` is the log-potential of state s of the variable
    and t of its k-th neighbour. In the number of a pattern the first neighbour counts most. Pattern p of variable i has
    its ``L_i - 1`` thresholds from ``table[starts[i] + p * (L_i - 1)]`` on.
    """
    room = 1
    for i in range(len(states)):
        entries = states[i]
        for k in range(indptr[i], indptr[i + 1]):
            entries *= states[neighbors[k]]
        room = max(room, entries)
    logits = np.empty(room)
    for i in range(len(states)):
        count = states[i]
        for s in range(count):
            logits[s] = unary[unary_at[i] + s]
        patterns = 1
        for k in range(indptr[i], indptr[i + 1]):
            # Every pattern so far splits into one for each state of this neighbour: from the back, in place.
            theirs = states[neighbors[k]]
            for p in range(patterns - 1, -1, -1):
                for t in range(theirs - 1, -1, -1):
                    base = tables_at[k] + t * their_steps[k]
                    for s in range(count):
                        logits[(p * theirs + t) * count + s] = logits[p * count + s] + pairwise[base + s * own_steps[k]]
            patterns *= theirs
        place = starts[i]
        for p in range(patterns):
            first = p * count
            top = logits[first]
            for s in range(1, count):
                top = max(top, logits[first + s])
            total = 0.0
            for s in range(count):
                total += np.exp(logits[first + s] - top)
                logits[first + s] = total
            scale = 4294967296.0 / total
            for s in range(count - 1):
                table[place] = uint32(min(np.rint(logits[first + s] * scale), 4294967295.0))
                place += 1


@njit(cache=True, nogil=True, error_model="numpy")
def sweep(x, order, states, indptr, neighbors, strides, starts, table, numbers):  # type: ignore[no-untyped-def]
    """Update the variables of ``order`` in all chains; ``numbers`` (len(order), chains) are uniform 32-bit numbers.

    ``strides`` are the weights of the neighbours' states in the number of a pattern.
    """
    num_chains = x.shape[1]
    index = np.empty(num_chains, np.uint32)
    for place in range(len(order)):
        i = order[place]
        own, u = x[i], numbers[place]
        index[:] = uint32(starts[i])
        for k in range(indptr[i], indptr[i + 1]):
            other, weight = x[neighbors[k]], uint32(strides[k] * (states[i] - 1))
            for c in range(num_chains):
                index[c] = uint32(index[c] + uint32(uint32(other[c]) * weight))
        if states[i] == 2:
            for c in range(num_chains):
                own[c] = u[c] >= table[index[c]]
        else:
            for c in range(num_chains):
                state = 0
                for s in range(states[i] - 1):
                    state += u[c] >= table[index[c] + s]
                own[c] = state


@njit(cache=True, nogil=True, error_model="numpy")
def add_energies(x, states, edges, unary_at, unary, pairwise_at, pairwise, variables, chosen, out):  # type: ignore[no-untyped-def]
    """Add the log-weight of every chain's configuration to ``out`` (chains,), of some variables and edges only.

    ``chosen`` are rows of ``edges``, which join these variables.

    Between binary variables a table is ``t00 + (t10 - t00) x_i + (t01 - t00) x_j + (t11 - t10 - t01 + t00) x_i x_j``:
    the linear terms are collected by variable, and what is left is a product that needs no lookup.
    """
    num_chains = x.shape[1]
    slope, constant = np.zeros(len(states)), 0.0
    for e in chosen:
        i, j = edges[e, 0], edges[e, 1]
        one, two, base, step = x[i], x[j], pairwise_at[e], states[j]
        if states[i] == 2 and step == 2:
            constant += pairwise[base]
            slope[i] += pairwise[base + 2] - pairwise[base]
            slope[j] += pairwise[base + 1] - pairwise[base]
            weight = pairwise[base + 3] - pairwise[base + 2] - pairwise[base + 1] + pairwise[base]
            for c in range(num_chains):
                out[c] += weight * (one[c] & two[c])
        else:
            values = pairwise[base : pairwise_at[e + 1]]
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
    for c in range(num_chains):
        out[c] += constant


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def weighted_counts(x, states, edges, unary_at, pairwise_at, variables, chosen, weights, unary, pairwise):  # type: ignore[no-untyped-def]
    """Sum of the weights (chains,) of the chains in every state of some variables and edges.

    ``chosen`` are rows of ``edges``, which join these variables.
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
            pairwise[base : pairwise_at[e + 1]] = 0.0
            for c in range(num_chains):
                pairwise[base + one[c] * step + two[c]] += weights[c]
            continue
        # Inner states by a pass each, the first row and column by what is left.
        for b in range(step):
            pairwise[base + b] = unary[unary_at[j] + b]
        for a in range(1, states[i]):
            rest = unary[unary_at[i] + a]
            for b in range(1, step):
                total = 0.0
                for c in range(num_chains):
                    total += weights[c] * ((one[c] == a) & (two[c] == b))
                pairwise[base + a * step + b] = total
                pairwise[base + b] -= total
                rest -= total
            pairwise[base + a * step] = rest
            pairwise[base] -= rest
