"""Minimum cuts: the most probable configuration of attractive binary models, and expansion moves for labels.

A binary model is attractive up to a change of which state is called 0 when no loop has an odd number of repulsive
edges; it is then solved as a maximum flow (Greig, Porteous and Seheult 1989; Kolmogorov and Zabih 2004). Several labels
are improved by expansion moves (Boykov, Veksler and Zabih 2001): in each, every variable keeps its label or takes a
given one, all at once and best possible.
"""

from __future__ import annotations

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix.errors import UnfitMethodError
from fastmix.methods.swendsen_wang import normal_form
from fastmix.model import MarkovRandomField, check_pairwise

__all__ = ["best_expansion", "check_expansion", "cut_states", "minimum_cut"]

_LARGEST = 2.0**29  # of a capacity: two of them are added up in 32 bits with a sign
_ROUNDS = 6
_NEGLIGIBLE = 1e-13  # of all capacities together: the rounding of their sums
_SLACK = 1e-9  # by which a table may miss being attractive, relative to its entries: rounding
_MOST_CHECKED = 1 << 22  # numbers at once in the check of expansion moves


def minimum_cut(gain: FloatArray, edges: IntArray, coupling: FloatArray) -> tuple[IntArray, float]:
    """The binary states (n,) that maximise ``sum g_i x_i + sum c_ij [x_i = x_j]``, and by how much that may be missed.

    Gains (n,) of either sign, edges (m, 2), and their couplings (m,), which are at least zero.

    Capacities of SciPy's maximum flow are whole numbers of 32 bits, so that the flow is found in rounds, each in what
    the one before has left, capacities rounded down. It is then a feasible flow, and how much less it is than the cut
    is how much can be missed.
    """
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    n, (i, j) = len(gain), edges.T
    source, sink = n, n + 1
    up, down = np.flatnonzero(gain > 0), np.flatnonzero(gain < 0)
    rows = np.concatenate([np.full(len(up), source), down, i, j])
    cols = np.concatenate([up, np.full(len(down), sink), j, i])
    capacity = np.concatenate([gain[up], -gain[down], coupling, coupling])
    left = coo_matrix((capacity, (rows, cols)), shape=(n + 2, n + 2)).tocsr()
    states, flow, missed = np.zeros(n, dtype=np.int64), 0.0, float(capacity[: len(up)].sum())
    total = float(capacity.sum())
    for _ in range(_ROUNDS):
        scale = _LARGEST / max(min(float(left.data.max(initial=0.0)), missed), 1e-300)
        whole = left.copy()
        whole.data = np.minimum(np.floor(left.data * scale), _LARGEST).astype(np.int32)
        found = maximum_flow(whole, source, sink)
        flow += found.flow_value / scale
        left = (left - found.flow / scale).tocsr()
        left.data = np.maximum(left.data, 0.0)
        open_arcs = (whole - found.flow).tocsr()
        open_arcs.data = (open_arcs.data > 0).astype(np.int8)
        open_arcs.eliminate_zeros()
        reached = np.zeros(n + 2, dtype=np.bool_)
        reached[breadth_first_order(open_arcs, source, return_predecessors=False)] = True
        cut = float(capacity[reached[rows] & ~reached[cols]].sum())
        states, missed = reached[:n].astype(np.int64), max(0.0, cut - flow)
        if missed <= _NEGLIGIBLE * total:
            return states, 0.0
    return states, missed


def cut_states(model: MarkovRandomField) -> tuple[IntArray, float]:
    """The most probable configuration (n,) of a binary model whose loops can all be satisfied, and what may be missed.

    What may be missed is by rounding. An :class:`UnfitMethodError` if the model is another one.
    """
    if (model.num_states != 2).any():
        raise UnfitMethodError("a minimum cut needs variables of two states")
    form = normal_form(model, "a minimum cut", unit=0.0)  # couplings of any size decide
    edges = np.stack([form.heads, form.tails], axis=1).astype(np.int64)
    states, rounding = minimum_cut(form.log_unary[1::2] - form.log_unary[::2], edges, form.couplings)
    return states ^ form.flips, rounding


def check_expansion(model: MarkovRandomField) -> None:
    """An :class:`UnfitMethodError` unless every expansion move of the model is a minimum cut."""
    check_pairwise(model, "an expansion move")
    counts = np.unique(model.num_states)
    if len(counts) > 1 or model.has_forbidden:
        raise UnfitMethodError("expansion moves need equal state counts and no forbidden states")
    k = int(counts[0]) if len(counts) else 1
    tables = model.log_pairwise.reshape(-1, k, k)
    chunk = max(1, _MOST_CHECKED // k**3)
    for start in range(0, len(tables), chunk):
        part = tables[start : start + chunk]
        diagonal = np.einsum("eaa->ea", part)
        # T(a, b) + T(c, c) - T(a, c) - T(c, b), by a, b, c
        slack = part[:, :, :, None] + diagonal[:, None, None, :] - part[:, :, None, :] - part.swapaxes(1, 2)[:, None]
        if len(part) and slack.min() < -_SLACK * (1.0 + np.abs(part).max()):
            edge = model.edges[start + int(np.unravel_index(slack.argmin(), slack.shape)[0])].tolist()
            raise UnfitMethodError(f"expansion moves need attractive tables; that of edge {edge} is not")


def best_expansion(model: MarkovRandomField, start: IntArray, clock: Clock = NO_LIMIT) -> IntArray:
    """A configuration (n,) that no expansion move improves, or the best one found when the clock ran out."""
    n, (i, j) = model.num_variables, model.edges.T
    k = int(model.num_states[0]) if n else 1
    unary, tables = model.log_unary.reshape(n, k), model.log_pairwise.reshape(-1, k, k)
    x, value = start.copy(), model.log_weight(start)
    edge, variable = np.arange(model.num_edges), np.arange(n)
    since, label = 0, 0
    while since < k and not clock.past():
        stay, move = tables[edge, x[i], x[j]], tables[:, label, label]
        first, second = tables[edge, label, x[j]], tables[edge, x[i], label]  # one end moves only
        gain = unary[:, label] - unary[variable, x]
        # A table is a + b_i x_i + b_j x_j + c [x_i = x_j] with c at least zero up to rounding.
        gain += np.bincount(i, 0.5 * (first + move - stay - second), minlength=n)
        gain += np.bincount(j, 0.5 * (second + move - stay - first), minlength=n)
        moved, _ = minimum_cut(gain, model.edges, np.maximum(0.5 * (stay + move - first - second), 0.0))
        proposal = np.where(moved == 1, label, x)
        gained = model.log_weight(proposal)
        since += 1
        if gained > value + 1e-12 * abs(value):
            x, value, since = proposal, gained, 1
        label = (label + 1) % k
        clock.report(since, k, "labels without a gain")
    return x
