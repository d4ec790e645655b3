"""Maximum flow between two terminals, on any graph and, faster and in less memory, on lattices."""

from __future__ import annotations

import numpy as np

from fastmix._arrays import BoolArray, FloatArray, IntArray, read_only
from fastmix._clock import NO_LIMIT, Clock
from fastmix._memory import check_memory
from fastmix.modes.tuning import ARCS_PER_CALL, MAX_LATTICE_ROOM, MAX_LATTICE_STEPS, NEGLIGIBLE_MISS

__all__ = ["ArcFlow", "LatticeFlow", "flow_on"]


def flow_on(num_nodes: int, edges: IntArray) -> ArcFlow | LatticeFlow:
    """What pushes flow over the edges (m, 2) of a graph: that of lattices where few steps lead to all neighbors.

    A grid is one, of any number of dimensions, with or without diagonals, and with edges or whole parts missing.
    """
    from fastmix.modes.lattice_kernels import differences_of

    edges = read_only(np.ascontiguousarray(edges))
    differences = differences_of(edges, MAX_LATTICE_STEPS)
    is_lattice = len(differences) > 0 and differences[0] > 0
    if is_lattice and len(differences) * (num_nodes + 2 * differences.max()) <= MAX_LATTICE_ROOM * len(edges):
        return LatticeFlow(num_nodes, edges, np.sort(differences))
    return ArcFlow(num_nodes, edges)


class ArcFlow:
    """Flow on a graph whose nodes have lists of their arcs."""

    def __init__(self, num_nodes: int, edges: IntArray) -> None:
        from fastmix.modes.cut_kernels import arcs_of_nodes

        check_memory(120.0 * (num_nodes + len(edges)), "a minimum cut", "use method='search'")
        self.num_nodes = num_nodes
        self.edges = edges
        self._arcs = arcs_of_nodes(num_nodes, edges)
        self._residual = np.zeros(0)
        self._excess = np.zeros(0)

    def push(self, gain: FloatArray, coupling: FloatArray, clock: Clock = NO_LIMIT) -> BoolArray:
        """Which nodes the source still reaches, (n,), after all flow, or as much as there was time for.

        Gains (n,) above 0 are capacities from the source, those below 0 to the sink; couplings (m,) of both directions.
        """
        from fastmix.modes.cut_kernels import FREE, push_flow, start_flow

        n = self.num_nodes
        self._residual = np.repeat(coupling, 2)
        self._excess = gain.copy()
        parent, distance, queue, orphans = (np.zeros(n, dtype=np.int32) for _ in range(4))
        time, starts = (np.zeros(n, dtype=np.int64) for _ in range(2))
        in_sink, waiting = (np.zeros(n, dtype=np.bool_) for _ in range(2))
        state = np.zeros(5, dtype=np.int64)
        start_flow(self._excess, parent, in_sink, time, distance, queue, waiting, state)
        trees = parent, in_sink, time, distance, queue, waiting, starts, orphans, state
        while not push_flow(ARCS_PER_CALL, *self._arcs, self._residual, self._excess, *trees) and not clock.past():
            pass
        return np.asarray((parent != FREE) & ~in_sink)

    def missed(self, gain: FloatArray, coupling: FloatArray, reached: BoolArray) -> float:
        """How far the capacity of a cut can be from the least, by the flow that was pushed for these capacities.

        What flows out of the source is a lower bound, less what rounding lets the nodes swallow.
        """
        i, j = self.edges.T
        down = np.minimum(gain, 0.0)
        up = np.maximum(gain, 0.0)
        entering = np.clip(gain - self._excess, down, up)
        flow = np.clip(0.5 * (self._residual[1::2] - self._residual[::2]), -coupling, coupling)
        swallowed = entering - np.bincount(i, flow, minlength=len(gain)) + np.bincount(j, flow, minlength=len(gain))
        lower = float(entering[gain > 0.0].sum()) - float(np.maximum(swallowed, 0.0).sum())
        cut = float(up[~reached].sum() - down[reached].sum() + coupling[reached[i] != reached[j]].sum())
        total = float(np.abs(gain).sum() + coupling.sum())
        return cut - lower if cut - lower > NEGLIGIBLE_MISS * total else 0.0


class LatticeFlow:
    """Flow on a lattice, whose arcs lead from every node to those some steps further; as :class:`ArcFlow`."""

    def __init__(self, num_nodes: int, edges: IntArray, differences: IntArray) -> None:
        from fastmix.modes.lattice_kernels import LatticeTrees

        self._steps = np.column_stack([differences, -differences]).reshape(-1)
        self._pad = int(differences.max())
        num_places = num_nodes + 2 * self._pad
        num_arcs = len(self._steps) * num_places
        check_memory(16.0 * num_arcs + 40.0 * num_places, "a minimum cut", "use method='search'")
        self.num_nodes = num_nodes
        self.edges = edges
        self._residual = np.zeros(num_arcs)
        self._excess = np.zeros(num_places)
        self._trees = LatticeTrees.empty(num_places)

    def push(self, gain: FloatArray, coupling: FloatArray, clock: Clock = NO_LIMIT) -> BoolArray:
        """As :meth:`ArcFlow.push`."""
        from fastmix.modes.lattice_kernels import push_on_lattice, set_capacities, start_trees

        set_capacities(self._residual, self._steps, self._pad, self.edges, coupling)
        self._excess[self._pad : self._pad + self.num_nodes] = gain
        flow = self._residual, self._excess, self._steps
        start_trees(*flow, self._pad, self._trees)
        while not push_on_lattice(ARCS_PER_CALL, *flow, self._trees) and not clock.past():
            pass
        return self._trees.reached(self._pad, self.num_nodes)

    def missed(self, gain: FloatArray, coupling: FloatArray, reached: BoolArray) -> float:
        """As :meth:`ArcFlow.missed`."""
        from fastmix.modes.lattice_kernels import missed_on_lattice, set_capacities

        capacity = np.empty_like(self._residual)
        set_capacities(capacity, self._steps, self._pad, self.edges, coupling)
        missed, total = missed_on_lattice(gain, capacity, self._residual, self._excess, self._steps, self._pad, reached)
        return float(missed) if missed > NEGLIGIBLE_MISS * total else 0.0
