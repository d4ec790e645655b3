"""Minimum cuts: the most probable configuration of attractive binary models.

A binary model is attractive up to a change of which state is called 0 when no loop has an odd number of repulsive
edges; it is then solved as a maximum flow (Greig, Porteous and Seheult 1989; Kolmogorov and Zabih 2004).
"""

from __future__ import annotations

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix.errors import UnfitMethodError
from fastmix.graphs.components import two_sides
from fastmix.model import MarkovRandomField, check_pairwise
from fastmix.modes.flows import flow_on
from fastmix.modes.tuning import COUPLING_TOLERANCE

__all__ = ["cut_states", "minimum_cut"]


def minimum_cut(
    gain: FloatArray, edges: IntArray, coupling: FloatArray, clock: Clock = NO_LIMIT
) -> tuple[IntArray, float]:
    """The binary states (n,) that maximize ``sum g_i x_i + sum c_ij [x_i = x_j]``, and by how much that may be missed.

    Gains (n,) of either sign, edges (m, 2), and their couplings (m,), which are at least zero. When the clock runs out
    the states are those of the flow so far, which says how much better others can be.
    """
    gain = gain.astype(np.float64)
    coupling = coupling.astype(np.float64)
    flow = flow_on(len(gain), edges)
    reached = flow.push(gain, coupling, clock)
    return reached.astype(np.int64), flow.missed(gain, coupling, reached)


def cut_states(model: MarkovRandomField, clock: Clock = NO_LIMIT) -> tuple[IntArray, float]:
    """The most probable configuration (n,) of a binary model whose loops can all be satisfied, and what may be missed.

    What may be missed is by rounding, or because the clock ran out. An :class:`UnfitMethodError` if the model is
    another one.
    """
    check_pairwise(model, "a minimum cut")
    if (model.num_states != 2).any():
        raise UnfitMethodError("a minimum cut needs variables of two states")
    if len(model.log_unary) and model.log_unary.min() == -np.inf:
        raise UnfitMethodError("a minimum cut needs finite log-potentials: drop what is forbidden first")
    gain, coupling = _gains_and_couplings(model)
    flips = np.zeros(model.num_variables, dtype=bool)
    is_negative = coupling < 0.0
    if is_negative.any():
        kept = np.flatnonzero(coupling)
        sides = two_sides(model.num_variables, model.edges[kept], is_negative[kept])
        # Side 2 is that of components in which a loop has an odd number of negative couplings.
        is_broken = is_negative & (sides[model.edges[:, 0]] > 1)
        if is_broken.any():
            edge = int(is_broken.argmax())
            raise UnfitMethodError(
                f"a minimum cut needs attractive couplings, but that of edge {model.edges[edge].tolist()} is "
                f"{coupling[edge]:.6g}, and no exchange of states removes it: a loop has an odd number of such edges; "
                "use another method"
            )
        flips = sides == 1
    clock.check()
    states, missed = minimum_cut(np.where(flips, -gain, gain), model.edges, np.abs(coupling), clock)
    return states ^ flips, missed


def _gains_and_couplings(model: MarkovRandomField) -> tuple[FloatArray, FloatArray]:
    """What state 1 of every variable has more than state 0, (n,), and what equal states of edges gain, (m,).

    The log-weight is ``sum g_i x_i + sum c_ij [x_i = x_j]`` and a constant: the entries of a table are
    ``k + c, k + b, k + a, k + a + b + c`` for some k, c, and a and b, which join the gains of its two variables.
    """
    gain = model.log_unary[1::2] - model.log_unary[::2]
    if not model.num_edges:
        return gain, np.zeros(0)
    tables = model.edge_tables(slice(None), 2, 2)
    size = model.sizes_of_tables()
    if model.least_of_tables().min() == -np.inf:
        edge = model.edges[int(model.least_of_tables().argmin())].tolist()
        raise UnfitMethodError(f"a minimum cut needs finite tables, but that of edge {edge} forbids a pair of states")
    both = 0.5 * (tables[:, 3] - tables[:, 0])
    apart = 0.5 * (tables[:, 2] - tables[:, 1])
    coupling = 0.5 * (tables[:, 0] + tables[:, 3] - tables[:, 1] - tables[:, 2])
    coupling[np.abs(coupling) <= COUPLING_TOLERANCE * size] = 0.0
    i, j = model.edges.T
    gain = gain + np.bincount(i, both + apart, minlength=model.num_variables)
    gain += np.bincount(j, both - apart, minlength=model.num_variables)
    return gain, coupling
