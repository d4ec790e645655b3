"""Exact inference on factors over any scopes: log Z, marginals, draws and the most probable configuration.

Eliminating the variables one by one, in an order of :mod:`fastmix.exact.search`, multiplies the tables that have the
variable and sums it out. The tables of one variable are joined in pairs, the smallest first, and the last product is
summed on the way, so that no clique table is stored. The result is one sequence of sums of products of two tables.

Its derivatives, in reverse, give every marginal without a division: the marginal of a factor is its table times the
derivative of Z with respect to it. Tables are kept in ordinary arithmetic, scaled, as long as the smallest positive
entries rule out underflow; if they do not, all is done again in logarithms. Draws and the most probable configuration
go back through the same sequence, variable by variable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmix._clock import NO_LIMIT, Clock
from fastmix._memory import format_bytes
from fastmix.errors import ModelError, ResourceError
from fastmix.exact.search import Order, find_order
from fastmix.exact.support import Factors

__all__ = ["Answer", "Tree", "plan_tree"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_JOINED = 256  # entries up to which the factors of one variable are joined beforehand
# A sequence whose tables and operations are below these is done with NumPy, and needs no compiler.
_NUMPY_ENTRIES = 1 << 13
_NUMPY_TOTAL = 1 << 18
_SMALL_SHARE = 64  # of a clique that its factors may take when joined
_LAYOUT_ENTRIES = 1 << 15  # of a clique whose layouts are chosen with care
_RUN = 64  # entries of the innermost run of a table that is kept
_PIECE = 1 << 26  # entries worked off between two looks at the clock
# Tables are scaled when their largest entry leaves this range. A product of tables whose positive entries range over
# less than exp(_LOG_RANGE) cannot underflow: the smallest normal double is exp(-708).
_SCALES = 1e-15, 1e15
_LOG_RANGE = 600.0
_SMALLEST_TOTAL = 1e-200  # of what derivatives times tables must add up to
_SECONDS_PER_ENTRY = 3e-9  # of a clique visited three times
_SECONDS_PER_BYTE = 5e-10  # of memory touched for the first time
_SECONDS_PER_STEP = 4e-5


class _UnderflowError(Exception):
    """A product of tables in ordinary arithmetic could underflow: use logs."""


class _Step(NamedTuple):
    """``out`` = sum of ``first`` times ``second`` over ``groups``; in place where ``out`` is ``first``."""

    out: int
    first: int
    second: int  # -1 for a table of ones
    groups: IntArray
    entries: float
    gemm: tuple[int, int, int, int] | None  # number and sizes of matrix products, where it is that


class _Leaf(NamedTuple):
    """Factors joined: their numbers, and the flat table of logs with the largest entry taken out."""

    members: list[int]
    log_table: FloatArray
    log_scale: float


class Answer(NamedTuple):
    """Log Z, the marginal of every variable and, where asked for, of every factor (flat, as its table)."""

    log_z: float
    marginals: list[FloatArray]
    factor_marginals: list[FloatArray] | None
    arithmetic: str


@dataclass(frozen=True, eq=False)
class Tree:
    """The sequence of sums and products for one set of factors, its cost known before anything is allocated.

    Attributes
    ----------
    factors : Factors
    order : Order
    scopes : list of tuples
        Of all tables, the outermost axis first: leaves, then those that are computed.
    sizes : list of int
        Their entries.
    leaves : dict
        Tables that are factors joined.
    steps : list
    moves : dict
        Tables that are computed in another layout than they are stored in.
    last : list of tuples
        By variable, the tables whose product is summed over it.
    required_bytes : int
        Peak memory of :meth:`marginals`.
    """

    factors: Factors
    order: Order
    scopes: list[tuple[int, ...]]
    sizes: list[int]
    leaves: dict[int, _Leaf]
    steps: list[_Step]
    moves: dict[int, IntArray]
    last: list[tuple[int, ...]]
    required_bytes: int

    @property
    def treewidth(self) -> int:
        """Largest clique minus one: an upper bound on the treewidth of the graph."""
        return self.order.width

    @property
    def seconds(self) -> float:
        """Estimate of the time that :meth:`marginals` takes, touching its memory included."""
        entries = sum([s.entries for s in self.steps])
        steps = _SECONDS_PER_STEP * len(self.steps)
        return _SECONDS_PER_ENTRY * entries + _SECONDS_PER_BYTE * self.required_bytes + steps

    def with_tables(self, tables: Sequence[FloatArray]) -> Tree:
        """The same sequence for other tables of the same factors."""
        factors = self.factors._replace(tables=tables)
        leaves = {t: _leaf(factors, leaf.members, self.scopes[t]) for t, leaf in self.leaves.items()}
        return replace(self, factors=factors, leaves=leaves)

    def log_z(self, clock: Clock = NO_LIMIT) -> float:
        """Log Z alone, a third of the time of :meth:`marginals`."""
        return self._collect(clock).log_z

    def marginals(self, *, of_factors: bool = False, clock: Clock = NO_LIMIT) -> Answer:
        """Log Z and all marginals.

        Parameters
        ----------
        of_factors : bool
            Whether to give the marginal of every factor's scope too. A factor of zeros asks for the marginal of any
            other scope.
        clock : Clock
            An :class:`fastmix._clock.OutOfTimeError` where it runs out.

        Raises
        ------
        ModelError
            If no configuration has positive probability.
        """
        try:
            run = self._collect(clock)
            beliefs = run.beliefs()
        except _UnderflowError:
            run = _Run(self, "log", clock)
            run.collect()
            beliefs = run.beliefs()
        return self._read(run, beliefs, of_factors)

    def draw(self, num_draws: int, rng: np.random.Generator, clock: Clock = NO_LIMIT) -> IntArray:
        """Independent exact configurations (num_draws, n)."""
        return self._collect(clock).trace(num_draws, rng)

    def most_probable(self, clock: Clock = NO_LIMIT) -> tuple[float, IntArray]:
        """The largest log-weight of a configuration, and one that has it."""
        run = _Run(self, "max", clock)
        run.collect()
        return run.log_z, run.trace(1, None)[0]

    def _collect(self, clock: Clock) -> _Run:
        run = _Run(self, "linear", clock)
        try:
            run.collect()
        except _UnderflowError:
            run = _Run(self, "log", clock)
            run.collect()
        return run

    def _read(self, run: _Run, beliefs: dict[int, FloatArray], of_factors: bool) -> Answer:
        factors, states = self.factors, self.factors.num_states
        by_factor: list[FloatArray] = [np.empty(0)] * len(factors.scopes) if of_factors else []
        by_variable: list[FloatArray | None] = [None] * len(states)
        for t, leaf in self.leaves.items():
            scope = self.scopes[t]
            belief = beliefs[t].reshape([states[v] for v in scope])
            for axis, v in enumerate(scope):
                if by_variable[v] is None:
                    by_variable[v] = belief.sum(axis=tuple([a for a in range(len(scope)) if a != axis]))
            if of_factors:
                place = {v: axis for axis, v in enumerate(scope)}
                for f in leaf.members:
                    axes = [place[v] for v in factors.scopes[f]]
                    rest = tuple([a for a in range(len(scope)) if a not in axes])
                    table = belief.sum(axis=rest) if rest else belief
                    kept = sorted(axes)
                    by_factor[f] = table.transpose([kept.index(a) for a in axes]).reshape(-1)
        marginals = [np.full(s, 1.0 / s) if m is None else m for s, m in zip(states, by_variable, strict=True)]
        return Answer(run.log_z, marginals, by_factor if of_factors else None, run.arithmetic)


def plan_tree(
    factors: Factors,
    *,
    memory_limit: float = math.inf,
    order: Order | None = None,
    clock: Clock = NO_LIMIT,
    seed: int = 0,
) -> Tree:
    """The sequence for some factors, within a memory limit, before any table is allocated.

    Parameters
    ----------
    factors : Factors
        Reduced by evidence; variables of one state are allowed.
    memory_limit : float
        Bytes.
    order : Order, optional
        Searched for by default.
    clock : Clock
    seed : int
        Of the search.

    Raises
    ------
    ResourceError
        If the memory needed is over the limit; it carries the treewidth and the bytes.

    Examples
    --------
    >>> factors = Factors([2, 2], [(0, 1)], [np.log([0.1, 0.2, 0.3, 0.4])])
    >>> answer = plan_tree(factors).marginals()
    >>> round(answer.log_z, 12) + 0.0, answer.marginals[1].round(3).tolist()
    (0.0, [0.4, 0.6])
    """
    if order is None:
        states = [int(s) for s in factors.num_states]
        order = find_order(states, factors.scopes, clock=clock, seed=seed, max_entries=memory_limit / 8)
    # A message is a clique without its first variable.
    most = float(max(factors.num_states, default=1))
    if 8.0 * order.total_entries / most > memory_limit:
        _refuse(order, 8.0 * order.total_entries / most, memory_limit, "at least ")
    clock.check()
    tree = _Planner(factors, order).plan()
    if tree.required_bytes > memory_limit:
        _refuse(order, tree.required_bytes, memory_limit)
    clock.check()
    return tree


def _refuse(order: Order, required: float, limit: float, qualifier: str = "") -> None:
    raise ResourceError(
        f"exact inference needs {qualifier}{format_bytes(required)} "
        f"(treewidth {'' if order.is_exact else 'about '}{order.width}), "
        f"over the limit of {format_bytes(limit)}; "
        "raise memory_limit, give evidence that cuts the graph, or use an approximate method",
        required_bytes=int(min(required, 2.0**62)),
        limit_bytes=int(min(limit, 2.0**62)),
        treewidth=order.width,
    )


class _Planner:
    """Goes through an order of elimination and writes the steps.

    A table has two layouts: ``scopes``, the order of axes in which it is best computed, and ``stored``, that in which
    it is best read. The second is known when the table is used, after the first.
    """

    def __init__(self, factors: Factors, order: Order) -> None:
        self.factors, self.order = factors, order
        self.states = [int(s) for s in factors.num_states]
        self.sequence = order.order.tolist()
        self.place = [0] * len(self.sequence)
        for p, v in enumerate(self.sequence):
            self.place[v] = p
        self.scopes: list[tuple[int, ...]] = []
        self.stored: list[tuple[int, ...]] = []
        self.sizes: list[int] = []
        self.leaves: dict[int, list[int]] = {}
        self.plain: list[tuple[int, int, int, bool]] = []

    def plan(self) -> Tree:
        place = self.place
        own: list[list[int]] = [[] for _ in self.sequence]
        for f, scope in enumerate(self.factors.scopes):
            if scope:
                own[min(scope, key=place.__getitem__)].append(f)
        waiting: list[list[int]] = [[] for _ in self.sequence]
        last: list[tuple[int, ...]] = [()] * len(self.sequence)
        for v in self.sequence:
            items = self._join(waiting[v], self._add_leaves(own[v], waiting[v]))
            last[v] = tuple(items)
            if not items:
                continue
            out = self._product(items[0], items[1] if len(items) > 1 else -1, v)
            if self.scopes[out]:
                waiting[min(self.scopes[out], key=place.__getitem__)].append(out)
        steps = [self._step(*step) for step in self.plain]
        moves = {
            t: np.array(_merge(self.states, scope, _strides(self.states, scope), _strides(self.states, stored), {}))
            for t, (scope, stored) in enumerate(zip(self.scopes, self.stored, strict=True))
            if scope != stored and t not in self.leaves
        }
        leaves = {t: _leaf(self.factors, members, self.stored[t]) for t, members in self.leaves.items()}
        moved = max([self.sizes[t] for t in moves], default=0)
        required = 8.0 * (sum(self.sizes) + moved + self._peak_of_derivatives(steps))
        return Tree(
            self.factors, self.order, self.stored, self.sizes, leaves, steps, moves, last, int(min(required, 2.0**62))
        )

    def _table(self, scope: tuple[int, ...]) -> int:
        self.scopes.append(scope)
        self.stored.append(scope)
        self.sizes.append(math.prod([self.states[v] for v in scope]))
        return len(self.scopes) - 1

    def _add_leaves(self, members: list[int], messages: list[int]) -> list[int]:
        """The factors of one variable, joined while they are small beside its clique."""
        states, tables, scopes = self.states, self.factors.tables, self.factors.scopes
        limit = _JOINED
        if messages and len(members) > 1:
            clique = {v for t in messages for v in self.scopes[t]}.union(*[scopes[f] for f in members])
            limit = max(limit, math.prod([states[v] for v in clique]) // _SMALL_SHARE)
        groups: list[tuple[set[int], list[int]]] = []
        for f in sorted(members, key=lambda f: -len(tables[f])):
            for union, group in groups:
                both = union.union(scopes[f])
                if len(both) == len(union) or math.prod([states[v] for v in both]) <= limit:
                    union |= both
                    group.append(f)
                    break
            else:
                groups.append((set(scopes[f]), [f]))
        result = []
        for union, group in groups:
            t = self._table(tuple(sorted(union, key=self.place.__getitem__)))
            self.leaves[t] = group
            result.append(t)
        return result

    def _join(self, messages: list[int], leaves: list[int]) -> list[int]:
        """Multiply tables of one variable, the smallest unions first, until two are left."""
        items = messages + leaves
        if len(items) > 2 and messages:  # leaves that fit into a message change it in place
            for t in leaves:
                within = [m for m in messages if set(self.scopes[t]).issubset(self.scopes[m])]
                if within:
                    smallest = min(within, key=self.sizes.__getitem__)
                    self.plain.append((smallest, smallest, t, False))
                    items.remove(t)
        if len(items) > 2:
            by_scope: dict[frozenset[int], int] = {}
            for t in items:
                key = frozenset(self.scopes[t])
                by_scope[key] = self._product(by_scope[key], t) if key in by_scope else t
            items = list(by_scope.values())
        while len(items) > 2:
            items.sort(key=self.sizes.__getitem__)
            best, pair = math.inf, (0, 1)
            for i in range(min(len(items), 12)):
                for j in range(i):
                    scope = self.scopes[items[i]]
                    union = self.sizes[items[i]] * math.prod(
                        [self.states[v] for v in self.scopes[items[j]] if v not in scope]
                    )
                    if union < best:
                        best, pair = union, (j, i)
            second, first = items.pop(pair[1]), items.pop(pair[0])
            items.append(self._product(second, first))
        if len(items) == 2 and self.sizes[items[0]] < self.sizes[items[1]]:
            items.reverse()
        return items

    def _product(self, first: int, second: int, summed: int = -1) -> int:
        """The table of the product, summed over one variable, with the layouts that make it the fastest."""
        a = self.scopes[first]
        b = self.scopes[second] if second >= 0 else ()
        new = tuple([v for v in b if v not in a])
        shared = tuple([v for v in a if v in b and v != summed])
        own = tuple([v for v in a if v not in b and v != summed])
        sums = (summed,) if summed >= 0 else ()
        size = {name: math.prod([self.states[v] for v in c]) for name, c in (("b", shared), ("m", own), ("n", new))}
        count = self.states[summed] if summed >= 0 else 1
        entries = size["b"] * size["m"] * size["n"] * count
        gemm = False
        scope = new + shared + own
        if second >= 0 and entries >= _LAYOUT_ENTRIES:
            plain = tuple([v for v in a if v != summed])
            # For each way the layouts of the two tables and of the product, and the time by entry.
            ways: list[tuple[float, tuple[int, ...], tuple[int, ...], tuple[int, ...], bool]] = []
            # The innermost run stays: new variables go outside of it, so that those next to be summed are not in it.
            cut, run = len(plain), 1
            while cut and run < _RUN:
                cut -= 1
                run *= self.states[plain[cut]]
            for out in (plain[:cut] + new + plain[cut:], scope, new + plain):
                bare = b if second not in self.leaves else tuple([v for v in a if v in b]) + new
                rate = self._rate(_merge(self.states, new + a, *[_strides(self.states, c) for c in (a, bare, out)]))
                ways.append((rate * entries, a, bare, out, False))
            # Where a table is copied, what is summed last goes innermost.
            own, shared, new = [tuple(sorted(c, key=self.place.__getitem__)) for c in (own, shared, new)]
            if size["b"] >= 16:
                ways.append((2.0 * entries, sums + own + shared, sums + new + shared, new + own + shared, False))
            if size["m"] >= 16:
                ways.append((1.8 * entries, shared + sums + own, shared + sums + new, shared + new + own, False))
            if sums and min(count, size["m"], size["n"]) >= 4 and count * size["m"] * size["n"] >= 2048:
                ways.append((0.5 * entries, shared + own + sums, shared + sums + new, shared + own + new, True))
            costs = []
            for cost, x, y, _, _ in ways:
                for t, layout in ((first, x), (second, y)):
                    if layout != self.scopes[t] and t not in self.leaves:
                        cost += 4.0 * self.sizes[t]
                costs.append(cost)
            _, self.stored[first], self.stored[second], scope, gemm = ways[costs.index(min(costs))]
        out_table = self._table(scope)
        self.plain.append((out_table, first, second, gemm))
        return out_table

    @staticmethod
    def _rate(rows: list[tuple[int, int, int, int]]) -> float:
        """Nanoseconds by entry of the three sums of a step, measured once: runs in steps of one are fast."""
        total = 0.0
        for out in (1, 2, 3):
            best = 2.0
            for row in rows:
                if max(row[1:]) <= 1 and row[0] >= 8:
                    best = min(best, (0.6 if row[0] >= 16 else 0.9) + (0.1 if row[out] == 0 else 0.0))
            total += best
        return total

    def _step(self, out: int, first: int, second: int, gemm: bool) -> _Step:
        states = self.states
        a = self.stored[first]
        b = self.stored[second] if second >= 0 else ()
        o = self.stored[out] if out == first else self.scopes[out]
        order = tuple([v for v in b if v not in a]) + a
        entries = math.prod([states[v] for v in order])
        if len(order) > 1 and entries > 64:  # the layout of the largest table goes first: its axes merge
            largest = max((a, b, o), key=len)
            order = tuple([v for v in order if v not in largest]) + largest
        rows = _merge(states, order, _strides(states, a), _strides(states, b), _strides(states, o))
        shape = None
        if gemm:
            shared = [states[v] for v in a if v in b and v in o]
            shape = (
                math.prod(shared),
                math.prod([states[v] for v in a if v not in b]),
                math.prod([states[v] for v in a if v not in o]),
                math.prod([states[v] for v in b if v not in a]),
            )
        return _Step(out, first, second, np.array(rows, dtype=np.int64), float(entries), shape)

    def _peak_of_derivatives(self, steps: list[_Step]) -> int:
        """Entries of all derivatives that are held at once, going back through the steps."""
        held = most = 0
        for step in reversed(steps):
            if step.out != step.first:
                held += self.sizes[step.first] + (self.sizes[step.second] if step.second >= 0 else 0)
                most = max(most, held)
                held -= self.sizes[step.out]
                held -= sum([self.sizes[t] for t in (step.first, step.second) if t in self.leaves])
        return most


def _leaf(factors: Factors, members: list[int], scope: tuple[int, ...]) -> _Leaf:
    """The sum of the tables of some factors over the union of their scopes."""
    states, scopes, tables = factors.num_states, factors.scopes, factors.tables
    total: FloatArray | float = 0.0
    axis_of = {v: axis for axis, v in enumerate(scope)}
    for f in members:
        axes = sorted(range(len(scopes[f])), key=[axis_of[v] for v in scopes[f]].__getitem__)
        table = tables[f].reshape([states[v] for v in scopes[f]]).transpose(axes)
        if len(members) > 1:
            table = table.reshape([states[v] if v in scopes[f] else 1 for v in scope])
        total = total + table
    flat = np.ascontiguousarray(total, dtype=np.float64).reshape(-1)
    top = float(flat.max())
    if top == -np.inf:
        raise ModelError("no configuration has positive probability: the factors of a variable forbid all")
    return _Leaf(members, flat - top, top)


def _strides(states: list[int], scope: tuple[int, ...]) -> dict[int, int]:
    stride, strides = 1, {}
    for v in reversed(scope):
        strides[v] = stride
        stride *= states[v]
    return strides


def _merge(
    states: list[int], order: tuple[int, ...], a: dict[int, int], b: dict[int, int], o: dict[int, int]
) -> list[tuple[int, int, int, int]]:
    """Rows of sizes and strides of axes in three tables, those that follow each other in all of them as one."""
    rows: list[tuple[int, int, int, int]] = []
    size, x, y, z = 1, 0, 0, 0
    for v in order:
        n = states[v]
        if n == 1:
            continue
        i, j, k = a.get(v, 0), b.get(v, 0), o.get(v, 0)
        if size > 1 and x == n * i and y == n * j and z == n * k:
            size *= n
        else:
            if size > 1:
                rows.append((size, x, y, z))
            size = n
        x, y, z = i, j, k
    rows.append((size, x, y, z))
    return rows


class _Run:
    """The tables of one run through the steps of a tree."""

    def __init__(self, tree: Tree, arithmetic: str, clock: Clock) -> None:
        self.tree, self.arithmetic, self.clock = tree, arithmetic, clock
        self.is_log = arithmetic != "linear"
        self.tables: list[FloatArray] = []
        self.log_z = sum([leaf.log_scale for leaf in tree.leaves.values()])
        self.log_z += sum([float(t[0]) for s, t in zip(tree.factors.scopes, tree.factors.tables, strict=True) if not s])
        self.log_z += sum(
            [math.log(s) for s, items in zip(tree.factors.num_states, tree.last, strict=True) if not items]
        )
        if arithmetic == "max":
            self.log_z -= sum(
                [math.log(s) for s, items in zip(tree.factors.num_states, tree.last, strict=True) if not items]
            )
        self.ranges: list[float] = [0.0] * len(tree.scopes)
        self.one = np.zeros(1) if self.is_log else np.ones(1)
        small = max(tree.sizes, default=0) <= _NUMPY_ENTRIES and tree.order.total_entries <= _NUMPY_TOTAL
        self.contract: Callable[..., None] = _numpy_contract
        self.extremes: Callable[[FloatArray], tuple[float, float]] = _numpy_extremes
        if not small:
            from fastmix.exact.loops import extremes

            self.contract, self.extremes = _compiled_contract, extremes

    def collect(self) -> None:
        """Forward: all tables and log Z."""
        tree = self.tree
        arena = np.empty(sum(tree.sizes))
        ends = np.cumsum(tree.sizes).tolist()
        self.tables = [arena[b - size : b] for size, b in zip(tree.sizes, ends, strict=True)]
        if tree.leaves:
            flat = np.concatenate([leaf.log_table for leaf in tree.leaves.values()])
            stops = np.cumsum([len(leaf.log_table) for leaf in tree.leaves.values()]).tolist()
            starts = [0, *stops[:-1]]
            if not self.is_log:
                lows = np.minimum.reduceat(np.where(flat == -np.inf, 0.0, flat), starts)
                for t, low in zip(tree.leaves, lows.tolist(), strict=True):
                    self.ranges[t] = -low
                flat = np.exp(flat)
            for t, start, stop in zip(tree.leaves, starts, stops, strict=True):
                self.tables[t] = flat[start:stop]
        spare = np.empty(max([tree.sizes[t] for t in tree.moves], default=0))
        for step in tree.steps:
            self.clock.check()
            a, o = self.tables[step.first], self.tables[step.out]
            b = self.tables[step.second] if step.second >= 0 else self.one
            log_range = self.ranges[step.first] + (self.ranges[step.second] if step.second >= 0 else 0.0)
            if not self.is_log and log_range > _LOG_RANGE:
                raise _UnderflowError
            if step.out == step.first:
                self.contract(a, b, o, step, 1, 2, 3, "log scale" if self.is_log else "scale", self.clock)
            elif step.out in tree.moves:
                table = spare[: len(o)]
                self.contract(a, b, table, step, 1, 2, 3, self.arithmetic, self.clock)
                _permute(table, o, tree.moves[step.out])
            else:
                self.contract(a, b, o, step, 1, 2, 3, self.arithmetic, self.clock)
            self._normalise(step.out, o)

    def _normalise(self, t: int, table: FloatArray) -> None:
        if self.is_log:
            high = float(table.max())
            if high > -np.inf:
                table -= high
                self.log_z += high
        else:
            high, low = self.extremes(table)
            if high > 0.0:
                self.ranges[t] = math.log(high / low) if low > 1e-290 else math.log(high) - math.log(low)
                if not _SCALES[0] < high < _SCALES[1] or len(table) == 1:
                    table /= high
                    self.log_z += math.log(high)
                return
        if high <= (-np.inf if self.is_log else 0.0):
            raise ModelError("no configuration has positive probability: hard constraints contradict each other")

    def beliefs(self) -> dict[int, FloatArray]:
        """Backward: the marginal of every leaf."""
        tree, log = self.tree, self.is_log
        slopes: dict[int, FloatArray] = {}
        beliefs: dict[int, FloatArray] = {}
        spare = _Spare()
        pending: dict[int, list[_Step]] = {}
        for step in reversed(tree.steps):
            self.clock.check()
            slope = slopes.pop(step.out, None)
            if slope is None:  # a root
                slope = self.one
            a = self.tables[step.first]
            b = self.tables[step.second] if step.second >= 0 else self.one
            if step.out == step.first:
                belief = np.empty(len(b))
                self.contract(a, slope, belief, step, 1, 3, 2, self.arithmetic, self.clock)
                beliefs[step.second] = self._probabilities(belief)
                slopes[step.out] = slope
                pending.setdefault(step.out, []).append(step)
                continue
            # What was multiplied in place is in the table for good, so it comes to the derivative at the end.
            for scaling in pending.pop(step.out, ()):
                factor = self.tables[scaling.second]
                self.contract(slope, factor, slope, scaling, 1, 2, 3, "log scale" if log else "scale", self.clock)
            if step.out in tree.moves:
                moved = spare.take(len(slope))
                _permute(slope, moved, tree.moves[step.out][:, [0, 2, 1]])
                spare.give(slope)
                slope = moved
            for t, other, co, ci in ((step.second, a, 2, 1), (step.first, b, 1, 2)):
                if t < 0:
                    continue
                table = spare.take(tree.sizes[t])
                self.contract(other, slope, table, step, ci, 3, co, self.arithmetic, self.clock)
                if t in tree.leaves:
                    product = table + self.tables[t] if log else table * self.tables[t]
                    beliefs[t] = self._probabilities(product)
                    spare.give(table)
                    continue
                high = float(table.max()) if log else self.extremes(table)[0]
                if log:
                    table -= high
                elif not high > 0.0:
                    raise _UnderflowError
                elif not _SCALES[0] < high < _SCALES[1]:
                    table /= high
                slopes[t] = table
            spare.give(slope)
        return beliefs

    def _probabilities(self, table: FloatArray) -> FloatArray:
        if self.is_log:
            table = np.exp(table - table.max())
        total = table.sum()
        if not total > _SMALLEST_TOTAL:
            raise _UnderflowError
        return np.asarray(table / total)

    def trace(self, num_draws: int, rng: np.random.Generator | None) -> IntArray:
        """Configurations drawn backwards through the order, or the most probable without a generator."""
        tree = self.tree
        states = np.zeros((num_draws, len(tree.last)), dtype=np.int64)
        for v in reversed(tree.order.order.tolist()):
            count = int(tree.factors.num_states[v])
            logits = np.zeros((num_draws, count))
            for t in tree.last[v]:
                index = np.zeros(num_draws, dtype=np.int64)
                stride, own = 1, 1
                for u in reversed(tree.scopes[t]):
                    if u == v:
                        own = stride
                    else:
                        index += stride * states[:, u]
                    stride *= int(tree.factors.num_states[u])
                values = self.tables[t][index[:, None] + own * np.arange(count)]
                if not self.is_log:
                    with np.errstate(divide="ignore"):
                        values = np.log(values)
                logits += values
            if rng is None:
                states[:, v] = logits.argmax(axis=1)
                continue
            cumulative = np.cumsum(np.exp(logits - logits.max(axis=1, keepdims=True)), axis=1)
            # random() is at most 1 - 2**-53, so the product is below the total also after rounding.
            threshold = rng.random(num_draws) * cumulative[:, -1]
            states[:, v] = (cumulative <= threshold[:, None]).sum(axis=1)
        return states


class _Spare:
    """Arrays that are used again: memory touched for the first time costs as much as a sum over it."""

    def __init__(self) -> None:
        self.free: list[FloatArray] = []

    def take(self, size: int) -> FloatArray:
        fits = [k for k, buffer in enumerate(self.free) if size <= len(buffer) <= 2 * size]
        if size < 4096 or not fits:
            return np.empty(size)
        return self.free.pop(min(fits, key=lambda k: len(self.free[k])))[:size]

    def give(self, table: FloatArray) -> None:
        if len(table) >= 4096:
            self.free.append(table if table.base is None else table.base)


def _numpy_extremes(table: FloatArray) -> tuple[float, float]:
    """Largest entry and the smallest positive one."""
    high, low = float(table.max()), float(table.min())
    if low == 0.0 < high:
        low = float(table[table > 0.0].min())
    return high, low


def _permute(source: FloatArray, target: FloatArray, groups: IntArray) -> None:
    """Copy a table to another layout."""
    if len(source) > _NUMPY_ENTRIES:
        from fastmix.exact.loops import permute

        permute(source, target, groups)
        return
    shape = groups[:, 0].tolist()
    views = [np.ndarray(shape, np.float64, t, 0, (8 * groups[:, c]).tolist()) for t, c in ((source, 1), (target, 2))]
    views[1][...] = views[0]


def _numpy_contract(
    a: FloatArray, b: FloatArray, o: FloatArray, step: _Step, ca: int, cb: int, co: int, mode: str, _: Clock
) -> None:
    """Fill o with the sum of a times b over the groups, whose strides are in the columns given."""
    groups = step.groups
    shape, outs = groups[:, 0].tolist(), groups[:, co].tolist()
    x = np.ndarray(shape, np.float64, a, 0, (8 * groups[:, ca]).tolist())
    y = np.ndarray(shape, np.float64, b, 0, (8 * groups[:, cb]).tolist())
    summed = tuple([k for k, stride in enumerate(outs) if not stride])
    left = [k for k, stride in enumerate(outs) if stride]
    z = np.ndarray([shape[k] for k in left], np.float64, o, 0, [8 * outs[k] for k in left])
    if mode == "scale":
        z *= y.reshape(z.shape)
    elif mode == "log scale":
        z += y.reshape(z.shape)
    elif mode == "linear":
        every = list(range(len(shape)))
        z[...] = np.einsum(x, every, y, every, left)
    else:
        total = x + y
        top = np.asarray(total.max(axis=summed)) if summed else total
        if mode == "log" and summed:
            safe = np.where(top == -np.inf, 0.0, top)
            sums = np.exp(total - np.expand_dims(safe, summed)).sum(axis=summed)
            with np.errstate(divide="ignore"):
                top = np.log(sums) + safe
        z[...] = top


def _compiled_contract(
    a: FloatArray, b: FloatArray, o: FloatArray, step: _Step, ca: int, cb: int, co: int, mode: str, clock: Clock
) -> None:
    from fastmix.exact import loops

    if step.gemm is not None and mode == "linear":
        count, m, k, n = step.gemm
        shapes = {1: (count, m, k), 2: (count, k, n), 3: (count, m, n)}
        x, y, z = a.reshape(shapes[ca]), b.reshape(shapes[cb]), o.reshape(shapes[co])
        if co == 3:
            np.matmul(x, y, out=z)
        elif co == 1:
            np.matmul(y, x.transpose(0, 2, 1), out=z)
        else:
            np.matmul(x.transpose(0, 2, 1), y, out=z)
        return
    if mode == "linear":
        o.fill(0.0)
        passes = [loops.SUM]
    elif mode == "scale":
        passes = [loops.SCALE]
    elif mode == "log scale":
        passes = [loops.SCALE_LOG]
    else:
        o.fill(-np.inf)
        passes = [loops.MAX] if mode == "max" else [loops.MAX, loops.SUM_EXP]
    top, target = o, o
    for which in passes:
        if which == loops.SUM_EXP:
            target = np.zeros(len(o))
        if step.entries <= _PIECE:
            loops.contract(a, b, target, step.groups, ca, cb, co, which, top, 0, -1)
            continue
        steps = loops.outer_count(step.groups, ca, cb, co)
        pieces = min(steps, int(step.entries // _PIECE) + 1)
        cuts = [steps * k // pieces for k in range(pieces + 1)]
        for start, stop in pairwise(cuts):
            clock.check()
            loops.contract(a, b, target, step.groups, ca, cb, co, which, top, start, stop)
    if target is not o:
        with np.errstate(divide="ignore"):
            o += np.log(target)
