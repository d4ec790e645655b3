"""Minimum cuts: the most probable configuration of attractive binary models, and expansion moves for labels.

A binary model is attractive up to a change of which state is called 0 when no loop has an odd number of repulsive
edges; it is then solved as a maximum flow (Greig, Porteous and Seheult 1989; Kolmogorov and Zabih 2004). Several labels
are improved by expansion moves (Boykov, Veksler and Zabih 2001): in each, every variable keeps its label or takes a
given one, all at once and best possible.
"""

from __future__ import annotations

import numpy as np

from fastmix._arrays import BoolArray, FloatArray, IntArray, read_only
from fastmix._clock import NO_LIMIT, Clock
from fastmix._memory import check_memory
from fastmix.errors import UnfitMethodError
from fastmix.model import MarkovRandomField, check_pairwise
from fastmix.model.attractive import attractive_form
from fastmix.modes.tuning import (
    ARCS_PER_CALL,
    ATTRACTIVE_SLACK,
    EXPANSION_GAIN,
    MAX_CHECKED_NUMBERS,
    NEGLIGIBLE_MISS,
)

__all__ = ["best_expansion", "check_expansion", "cut_states", "minimum_cut"]

Arcs = tuple[IntArray, IntArray, IntArray]


def minimum_cut(
    gain: FloatArray, edges: IntArray, coupling: FloatArray, clock: Clock = NO_LIMIT, arcs: Arcs | None = None
) -> tuple[IntArray, float]:
    """The binary states (n,) that maximize ``sum g_i x_i + sum c_ij [x_i = x_j]``, and by how much that may be missed.

    Gains (n,) of either sign, edges (m, 2), and their couplings (m,), which are at least zero; ``arcs`` are
    :func:`arcs_of` the edges, for callers that cut one graph many times. When the clock runs out the states are those
    of the flow so far, which says how much better others can be.
    """
    from fastmix.modes.cut_kernels import FREE, push_flow, start_flow

    n = len(gain)
    arcs = arcs_of(n, edges) if arcs is None else arcs
    residual = np.repeat(coupling.astype(np.float64), 2)
    excess = gain.astype(np.float64)
    parent, distance, queue, orphans = (np.zeros(n, dtype=np.int32) for _ in range(4))
    time, starts = (np.zeros(n, dtype=np.int64) for _ in range(2))
    in_sink, waiting = (np.zeros(n, dtype=np.bool_) for _ in range(2))
    state = np.zeros(5, dtype=np.int64)
    start_flow(excess, parent, in_sink, time, distance, queue, waiting, state)
    trees = parent, in_sink, time, distance, queue, waiting, starts, orphans, state
    while not push_flow(ARCS_PER_CALL, *arcs, residual, excess, *trees) and not clock.past():
        pass
    reached = (parent != FREE) & ~in_sink
    return reached.astype(np.int64), _missed(gain, edges, coupling, excess, residual, reached)


def _missed(
    gain: FloatArray,
    edges: IntArray,
    coupling: FloatArray,
    excess: FloatArray,
    residual: FloatArray,
    reached: BoolArray,
) -> float:
    """How far the capacity of a cut can be from the least, by the flow that was pushed.

    What flows out of the source is a lower bound, less what rounding lets the nodes swallow.
    """
    i, j = edges.T
    down = np.minimum(gain, 0.0)
    up = np.maximum(gain, 0.0)
    entering = np.clip(gain - excess, down, up)
    flow = np.clip(0.5 * (residual[1::2] - residual[::2]), -coupling, coupling)
    swallowed = entering - np.bincount(i, flow, minlength=len(gain)) + np.bincount(j, flow, minlength=len(gain))
    lower = float(entering[gain > 0.0].sum()) - float(np.maximum(swallowed, 0.0).sum())
    cut = float(up[~reached].sum() - down[reached].sum() + coupling[reached[i] != reached[j]].sum())
    total = float(np.abs(gain).sum() + coupling.sum())
    return cut - lower if cut - lower > NEGLIGIBLE_MISS * total else 0.0


def arcs_of(num_nodes: int, edges: IntArray) -> Arcs:
    """The arcs that leave each node: where those of each begin, which they are, and where all lead to."""
    from fastmix.modes.cut_kernels import arcs_of_nodes

    check_memory(80.0 * (num_nodes + len(edges)), "a minimum cut", "use method='search'")
    return arcs_of_nodes(num_nodes, read_only(np.ascontiguousarray(edges)))


def cut_states(model: MarkovRandomField, clock: Clock = NO_LIMIT) -> tuple[IntArray, float]:
    """The most probable configuration (n,) of a binary model whose loops can all be satisfied, and what may be missed.

    What may be missed is by rounding, or because the clock ran out. An :class:`UnfitMethodError` if the model is
    another one.
    """
    if (model.num_states != 2).any():
        raise UnfitMethodError("a minimum cut needs variables of two states")
    form = attractive_form(model, "a minimum cut", unit=0.0)  # couplings of any size decide
    edges = np.stack([form.heads, form.tails], axis=1).astype(np.int64)
    clock.check()
    states, missed = minimum_cut(form.log_unary[1::2] - form.log_unary[::2], edges, form.couplings, clock)
    return states ^ form.flips, missed


def check_expansion(model: MarkovRandomField, clock: Clock = NO_LIMIT) -> None:
    """An :class:`UnfitMethodError` unless every expansion move of the model is a minimum cut.

    An :class:`fastmix._clock.OutOfTimeError` when the clock runs out before all tables are checked.
    """
    check_pairwise(model, "an expansion move")
    counts = np.unique(model.num_states)
    if len(counts) > 1 or model.has_forbidden:
        raise UnfitMethodError("expansion moves need equal state counts and no forbidden states")
    k = int(counts[0]) if len(counts) else 1
    tables = model.log_pairwise.reshape(-1, k, k)
    # T(a, b) + T(c, c) - T(a, c) - T(c, b), by a, b, for some tables and labels c at a time
    many = max(1, MAX_CHECKED_NUMBERS // k**2)
    labels = max(1, many // max(1, min(len(tables), many)))
    for start in range(0, len(tables), many):
        part = tables[start : start + many]
        bound = -ATTRACTIVE_SLACK * (1.0 + np.abs(part).max(axis=(1, 2)))
        for first in range(0, k, labels):
            clock.check()
            chosen = slice(first, first + labels)
            itself = np.einsum("eaa->ea", part)[:, chosen]
            slack = part[:, :, :, None] + itself[:, None, None, :]
            slack -= part[:, :, None, chosen]
            slack -= part.swapaxes(1, 2)[:, None, :, chosen]
            wrong = slack.min(axis=(1, 2, 3)) < bound
            if wrong.any():
                edge = model.edges[start + int(wrong.argmax())].tolist()
                raise UnfitMethodError(f"expansion moves need attractive tables; that of edge {edge} is not")


def best_expansion(model: MarkovRandomField, start: IntArray, clock: Clock = NO_LIMIT) -> tuple[IntArray, int]:
    """A configuration (n,) that no expansion move improves, or the best one found when the clock ran out.

    The number of moves that were made comes back with it.
    """
    n = model.num_variables
    i, j = model.edges.T
    k = int(model.num_states[0]) if n else 1
    unary = model.log_unary.reshape(n, k)
    tables = model.log_pairwise.reshape(-1, k, k)
    edge = np.arange(model.num_edges)
    variable = np.arange(n)
    arcs = arcs_of(n, model.edges)
    x = start.copy()
    value = model.log_weight(start)
    label = 0
    since = 0  # labels tried since the last gain
    moves = 0
    while since < k and not clock.past():
        # Log-potentials of edges when no end moves, both do, or one only.
        stay = tables[edge, x[i], x[j]]
        move = tables[:, label, label]
        first = tables[edge, label, x[j]]
        second = tables[edge, x[i], label]
        gain = unary[:, label] - unary[variable, x]
        # A table is a + b_i x_i + b_j x_j + c [x_i = x_j] with c at least zero up to rounding.
        gain += np.bincount(i, 0.5 * (first + move - stay - second), minlength=n)
        gain += np.bincount(j, 0.5 * (second + move - stay - first), minlength=n)
        coupling = np.maximum(0.5 * (stay + move - first - second), 0.0)
        moved, _ = minimum_cut(gain, model.edges, coupling, clock, arcs)
        proposal = np.where(moved == 1, label, x)
        gained = model.log_weight(proposal)
        since += 1
        moves += 1
        if gained > value + EXPANSION_GAIN * abs(value):
            x = proposal
            value = gained
            since = 1
        label = (label + 1) % k
        clock.report(since, k, "labels without a gain")
    return x, moves
