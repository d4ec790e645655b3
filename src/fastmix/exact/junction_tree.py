"""Exact marginals, log Z and independent draws by message passing on an elimination tree.

Eliminating variables one after another gives every variable v a clique: v and the neighbours it has at that moment,
its separator. The cliques form a tree (the parent of v is the first variable of its separator to be eliminated), and
two passes over it, leaves to roots and back, give the marginal of every clique. Only the messages between cliques are
stored; a clique table is rebuilt when it is needed, and in the compiled version only slices of it.

Tables are kept in ordinary arithmetic, scaled to a largest entry of one, as long as the smallest positive entries of
the tables in a product rule out underflow; if they do not, the whole computation is done again with logarithms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmix._clock import NO_LIMIT, Clock
from fastmix._memory import format_bytes
from fastmix.errors import ModelError, ResourceError
from fastmix.exact.orders import EliminationOrder, elimination_cliques, elimination_order
from fastmix.exact.propagation import LocalFactor, Messages, UnderflowError
from fastmix.graphs import degeneracy
from fastmix.model import MarkovRandomField, check_model

__all__ = ["Calibration", "JunctionTree", "plan_junction_tree"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

# Factors of one variable are joined into tables of at most this many entries before they meet a clique table.
_LOCAL_ENTRIES = 256


class Calibration(NamedTuple):
    """What two passes give: log Z and flat node and edge marginals aligned with the model's arrays."""

    log_z: float
    node_marginals: FloatArray
    edge_marginals: FloatArray
    arithmetic: str


@dataclass(frozen=True)
class JunctionTree:
    """An elimination tree for one model, with its cost known before anything is allocated.

    Attributes
    ----------
    model : MarkovRandomField
    order : EliminationOrder
    separators : list of int arrays
        For every variable its neighbours at elimination, in the order in which they are eliminated themselves.
    required_bytes : int
        Peak memory of :meth:`calibrate`: all messages, the work space, factors and marginals.
    work_entries : int
        Entries of the work space.
    """

    model: MarkovRandomField
    order: EliminationOrder
    separators: list[IntArray]
    required_bytes: int
    work_entries: int

    @property
    def treewidth(self) -> int:
        """Largest clique minus one: an upper bound on the treewidth of the graph."""
        return self.order.width

    def calibrate(self, clock: Clock = NO_LIMIT) -> Calibration:
        """Log Z, node and edge marginals; an :class:`fastmix._clock.OutOfTimeError` where the time does not do.

        Time is proportional to ``order.total_entries``, memory to ``required_bytes``.

        Raises
        ------
        ModelError
            If no configuration has positive probability.
        """
        for arithmetic in ("linear", "log"):
            messages = Messages(self, arithmetic, clock)
            try:
                messages.collect()
                return Calibration(messages.log_z, *messages.distribute(), arithmetic)
            except UnderflowError:
                continue
        raise AssertionError("log arithmetic has no range to leave")

    def draw(self, num_draws: int, rng: np.random.Generator) -> IntArray:
        """Independent exact configurations (num_draws, n): variables drawn in reverse order of elimination."""
        messages = Messages(self, "linear")
        try:
            messages.collect()
        except UnderflowError:
            messages = Messages(self, "log")
            messages.collect()
        return messages.draw(num_draws, rng)

    @cached_property
    def parents(self) -> IntArray:
        """Parent clique of every variable, -1 for roots."""
        return np.array([s[0] if len(s) else -1 for s in self.separators], dtype=np.int64)

    @cached_property
    def children(self) -> list[list[int]]:
        """Child cliques of every variable."""
        result: list[list[int]] = [[] for _ in self.separators]
        for v in self.order.order.tolist():
            if self.parents[v] >= 0:
                result[self.parents[v]].append(v)
        return result

    @cached_property
    def locals(self) -> list[list[LocalFactor]]:
        """Unary and edge factors of every variable with the variables eliminated after it, joined while small."""
        model = self.model
        position = np.empty(model.num_variables, dtype=np.int64)
        position[self.order.order] = np.arange(model.num_variables)
        later: list[list[tuple[int, int, int]]] = [[] for _ in range(model.num_variables)]
        for e, (i, j) in enumerate(model.edges.tolist()):
            v, u = (i, j) if position[i] < position[j] else (j, i)
            later[v].append((int(position[u]), u, e))
        offsets, counts = model.pairwise_offsets.tolist(), model.num_states.tolist()
        result = []
        for v, factors in enumerate(later):
            table: FloatArray = model.unary(v)
            scope: tuple[int, ...] = ()
            edges: tuple[int, ...] = ()
            joined: list[tuple[FloatArray, tuple[int, ...], tuple[int, ...]]] = []
            for _, u, e in sorted(factors):
                pair = model.log_pairwise[offsets[e] : offsets[e + 1]]
                pair = pair.reshape(counts[u], counts[v]) if u < v else pair.reshape(counts[v], counts[u]).T
                if table.size * counts[u] > _LOCAL_ENTRIES and scope:
                    joined.append((table, scope, edges))
                    table, scope, edges = np.zeros(counts[v]), (), ()
                table = pair.reshape(counts[u], *(1,) * len(scope), counts[v]) + table
                scope, edges = (u, *scope), (e, *edges)
            joined.append((table, scope, edges))
            result.append([_scaled(*item) for item in joined])
        return result


def plan_junction_tree(
    model: MarkovRandomField, *, memory_limit: float, method: str = "auto", clock: Clock = NO_LIMIT
) -> JunctionTree:
    """An elimination tree that fits the memory limit, found before any table is allocated.

    Parameters
    ----------
    model : MarkovRandomField
        Variables should have at least two states (:func:`fastmix.model.reduce.reduce_model` folds single ones).
    memory_limit : float
        Bytes.
    method : str
        How to find the order, see :func:`fastmix.exact.orders.elimination_order`.
    clock : Clock
        An :class:`fastmix._clock.OutOfTimeError` ends the planning between its parts.

    Raises
    ------
    ResourceError
        If the memory needed is over the limit; it carries the treewidth and the bytes.
    """
    check_model(model)
    n = model.num_variables
    least = int(model.num_states.min()) if n else 1
    lower = degeneracy(n, model.edges)
    if least > 1 and lower * math.log2(least) + 3 > math.log2(memory_limit):
        required = 8.0 * float(least) ** lower if lower * math.log2(least) < 1000 else 1e300
        _refuse(f"at least {lower}", lower, required, memory_limit, "at least ")
    order = elimination_order(n, model.edges, model.num_states, method=method)  # type: ignore[arg-type]
    clock.check()
    # All messages are stored, and while a clique is visited the new ones to its children; a message is a clique
    # without its first variable. The separators themselves can be large too when the width is.
    most = float(model.num_states.max()) if n else 1.0
    least_required = 8.0 * order.total_entries / most
    if least_required > memory_limit:
        _refuse(str(order.width), order.width, least_required, memory_limit, "at least ")
    separators = elimination_cliques(n, model.edges, order.order)
    clock.check()
    entries = [math.prod(model.num_states[s].tolist()) for s in separators]
    # While a clique is visited its message and those of its children are in the work space, the latter twice, and
    # the joined factors of its variable, twice too.
    work = [float(e) for e in entries]
    for v, s in enumerate(separators):
        if len(s):
            work[s[0]] += 2.0 * entries[v]
    joined = _LOCAL_ENTRIES * (order.width + 1) + int((np.diff(model.pairwise_offsets)).max(initial=0)) * order.width
    work_entries = max(work, default=0.0) + 2.0 * joined
    required = 8.0 * (sum(entries) + work_entries + 3.0 * (len(model.log_pairwise) + len(model.log_unary)))
    if required > memory_limit:
        _refuse(str(order.width), order.width, required, memory_limit)
    return JunctionTree(model, order, separators, int(required), int(work_entries))


def _refuse(width: str, treewidth: int, required: float, limit: float, qualifier: str = "") -> None:
    raise ResourceError(
        f"exact inference needs {qualifier}{format_bytes(required)} (treewidth {width}), "
        f"over the limit of {format_bytes(limit)}; "
        "raise memory_limit, give evidence that cuts the graph, or use an approximate method",
        required_bytes=int(min(required, 2.0**62)),
        limit_bytes=int(limit),
        treewidth=treewidth,
    )


def _scaled(table: FloatArray, scope: tuple[int, ...], edges: tuple[int, ...]) -> LocalFactor:
    top = float(table.max())
    if top == -np.inf:
        raise ModelError("no configuration has positive probability: the factors of a variable forbid all its states")
    low = float(np.min(table, where=table > -np.inf, initial=top))
    return LocalFactor((table - top).reshape(-1), scope, edges, top, top - low)
