"""Minimum cuts: the most probable configuration of attractive binary models.

A binary model is attractive up to a change of which state is called 0 when no loop has an odd number of repulsive
edges; it is then solved as a maximum flow (Greig, Porteous and Seheult 1989; Kolmogorov and Zabih 2004).
"""

from __future__ import annotations

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix.errors import UnfitMethodError
from fastmix.methods.swendsen_wang import normal_form
from fastmix.model import MarkovRandomField

__all__ = ["cut_states", "minimum_cut"]

_LARGEST = 2.0**29  # of a capacity: two of them are added up in 32 bits with a sign
_ROUNDS = 6
_NEGLIGIBLE = 1e-13  # of all capacities together: the rounding of their sums


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
    form = normal_form(model, "a minimum cut")
    edges = np.stack([form.heads, form.tails], axis=1).astype(np.int64)
    states, rounding = minimum_cut(form.log_unary[1::2] - form.log_unary[::2], edges, form.couplings)
    return states ^ form.flips, rounding
