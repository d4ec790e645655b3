"""Exact marginals, log Z and independent draws by message passing on an elimination tree.

Eliminating variables one after another gives every variable v a clique: v and the neighbors it has at that moment,
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
from fastmix.exact.messages import LocalFactor, Messages, UnderflowError
from fastmix.exact.orders import EliminationOrder, elimination_cliques, elimination_order
from fastmix.graphs import degeneracy
from fastmix.model import MarkovRandomField, check_model

__all__ = ["Calibration", "Factors", "JunctionTree", "plan_junction_tree"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

# Factors of one variable are joined into tables of at most this many entries before they meet a clique table.
_LOCAL_ENTRIES = 256


class Factors(NamedTuple):
    """What a tree multiplies: tables over any scopes, their last variable fastest, one after another in ``values``.

    Factor f is over ``scopes[f]``, and its logs are ``values[starts[f]:starts[f + 1]]``.
    """

    num_states: list[int]
    scopes: list[tuple[int, ...]]
    starts: list[int]
    values: FloatArray
    log_constant: float

    @classmethod
    def of(cls, model: MarkovRandomField) -> Factors:
        """Those of a model, in the order of its parameters."""
        scopes: list[tuple[int, ...]] = [(v,) for v in range(model.num_variables)]
        scopes += map(tuple, model.edges.tolist())
        starts = np.append(model.unary_offsets[:-1], len(model.log_unary) + model.pairwise_offsets)
        return cls(model.num_states.tolist(), scopes, starts.tolist(), model.parameters, model.log_constant)


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
        For every variable its neighbors at elimination, in the order in which they are eliminated themselves.
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
                nodes, edges = np.split(messages.distribute(), [len(self.model.log_unary)])
                return Calibration(messages.log_z, nodes, edges, arithmetic)
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
    def factors(self) -> Factors:
        """The factors of the model."""
        return Factors.of(self.model)

    @cached_property
    def locals(self) -> list[list[LocalFactor]]:
        """The factors that each variable is the first eliminated of, joined while small."""
        counts, scopes, starts, values, _ = self.factors
        place = np.empty(len(counts), dtype=np.int64)
        place[self.order.order] = np.arange(len(counts))
        position: list[int] = place.tolist()
        mine: list[list[tuple[int, int]]] = [[] for _ in counts]
        for f, members in enumerate(scopes):
            places = [position[u] for u in members]
            mine[members[places.index(min(places))]].append((max(places), f))
        result = []
        for v, numbers in enumerate(mine):
            table, joined = np.zeros(counts[v]), []
            scope: tuple[int, ...] = (v,)
            ids: tuple[int, ...] = ()
            for _, f in sorted(numbers):
                new, members = values[starts[f] : starts[f + 1]], scopes[f]
                ordered = tuple(sorted(members, key=position.__getitem__, reverse=True))
                if ordered != members:
                    new = new.reshape([counts[u] for u in members]).transpose([members.index(u) for u in ordered])
                wide = _union(scope, ordered, position)
                if len(scope) > 1 and math.prod([counts[u] for u in wide]) > _LOCAL_ENTRIES:
                    joined.append(_scaled(table, scope, ids))
                    scope, table, ids, wide = (v,), np.zeros(counts[v]), (), ordered
                table = _spread(new, ordered, wide, counts) + _spread(table, scope, wide, counts)
                scope, ids = wide, (*ids, f)
            joined.append(_scaled(table, scope, ids))
            result.append(joined)
        return result


def _union(scope: tuple[int, ...], other: tuple[int, ...], position: list[int]) -> tuple[int, ...]:
    """Variables of two scopes, the one eliminated last first."""
    return tuple(sorted({*scope, *other}, key=position.__getitem__, reverse=True))


def _spread(table: FloatArray, scope: tuple[int, ...], wide: tuple[int, ...], counts: list[int]) -> FloatArray:
    """A table over a scope with an axis of length one for every other variable of a wider one."""
    return table.reshape([counts[u] if u in scope else 1 for u in wide])


def plan_junction_tree(model: MarkovRandomField, *, memory_limit: float, clock: Clock = NO_LIMIT) -> JunctionTree:
    """An elimination tree that fits a limit in bytes, found before any table is allocated.

    Variables should have at least two states (:func:`fastmix.model.reduce.reduce_model` folds single ones). An
    :class:`fastmix._clock.OutOfTimeError` ends planning that takes too long.

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
    order = elimination_order(n, model.edges, model.num_states, clock=clock)
    # All messages are stored, and while a clique is visited the new ones to its children; a message is a clique
    # without its first variable. The separators themselves can be large too when the width is.
    most = float(model.num_states.max()) if n else 1.0
    least_required = 8.0 * order.total_entries / most
    if least_required > memory_limit:
        _refuse(str(order.width), order.width, least_required, memory_limit, "at least ")
    separators = elimination_cliques(n, model.edges, order.order, clock=clock)
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


def _scaled(table: FloatArray, scope: tuple[int, ...], members: tuple[int, ...]) -> LocalFactor:
    top = float(table.max())
    if top == -np.inf:
        raise ModelError("no configuration has positive probability: the factors of a variable forbid all its states")
    low = float(np.min(table, where=table > -np.inf, initial=top))
    return LocalFactor((table - top).reshape(-1), scope, members, top, top - low)
