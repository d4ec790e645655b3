"""Compiled forward and backward passes over many trees at once, in logarithms.

Nodes are numbered so that children come before their parents and the trees of a piece lie together. ``potentials`` is
flat: node k has ``states[k]`` entries from ``node_at[k]`` on, and the link to its parent a table of (own states, states
of the parent) from ``link_at[k]`` on.
"""

from __future__ import annotations

import numpy as np

from fastmix._jit import njit
from fastmix.chains.kernels import largest

__all__ = ["pass_down", "pass_up"]


@njit(cache=True, nogil=True, error_model="numpy")
def pass_up(potentials, states, node_at, parent, link_at, piece_of, beliefs, messages, log_z):  # type: ignore[no-untyped-def]
    """Log Z of every piece; ``beliefs`` (like the node entries) and ``messages`` are left for the way down."""
    log_z[:] = 0.0
    for k in range(len(states)):
        for s in range(states[k]):
            beliefs[node_at[k] + s] = potentials[node_at[k] + s]
    work = np.empty(largest(states))
    for k in range(len(states)):
        own, count = node_at[k], states[k]
        if parent[k] < 0:
            top = beliefs[own]
            for s in range(1, count):
                top = max(top, beliefs[own + s])
            total = 0.0
            for s in range(count):
                total += np.exp(beliefs[own + s] - top)
            log_z[piece_of[k]] += top + np.log(total)
            continue
        width, base = states[parent[k]], link_at[k]
        for t in range(width):
            top = -np.inf
            for s in range(count):
                work[s] = beliefs[own + s] + potentials[base + s * width + t]
                top = max(top, work[s])
            total = 0.0
            for s in range(count):
                total += np.exp(work[s] - top)
            value = top + np.log(total)
            # The message takes the first row of the place that the table has among the potentials.
            messages[base + t] = value
            beliefs[node_at[parent[k]] + t] += value


@njit(cache=True, nogil=True, error_model="numpy")
def pass_down(  # type: ignore[no-untyped-def]
    potentials, states, node_at, parent, link_at, first, last, beliefs, messages, marginals
):
    """Marginals of the nodes ``first`` to ``last - 1`` and of their links, laid out as the potentials."""
    for k in range(last - 1, first - 1, -1):
        own, count = node_at[k], states[k]
        if parent[k] < 0:
            top = beliefs[own]
            for s in range(1, count):
                top = max(top, beliefs[own + s])
            total = 0.0
            for s in range(count):
                marginals[own + s] = np.exp(beliefs[own + s] - top)
                total += marginals[own + s]
            for s in range(count):
                marginals[own + s] /= total
            continue
        width, base, above = states[parent[k]], link_at[k], node_at[parent[k]]
        for s in range(count):
            total = 0.0
            for t in range(width):
                # p(s | t) p(t): the message is the log of the sum over s.
                value = np.exp(beliefs[own + s] + potentials[base + s * width + t] - messages[base + t])
                value *= marginals[above + t]
                marginals[base + s * width + t] = value
                total += value
            marginals[own + s] = total
