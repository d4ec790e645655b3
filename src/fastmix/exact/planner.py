"""The plan of sums of products of two tables that eliminates all variables, with layouts that make it fast."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from fastmix._arrays import FloatArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix.exact.search import EliminationOrder
from fastmix.exact.tuning import (
    JOIN_CANDIDATES,
    MAX_JOINED_ENTRIES,
    MAX_OVERSIZE,
    MIN_LAYOUT_ENTRIES,
    MIN_LOOP_ORDER_ENTRIES,
    NS_COPY,
    NS_LONG_RUNS,
    NS_MATRICES,
    NS_OWN_INSIDE,
    NS_RUNS,
    NS_SHARED_INSIDE,
    NS_SHORT_RUNS,
    PROTECTED_RUN_ENTRIES,
    SMALL_CLIQUE_SHARE,
    VARIABLES_PER_PLANNING_CHECK,
)

if TYPE_CHECKING:
    from fastmix.exact.program import Program

__all__ = ["AxisRow", "EliminationPlan", "Factors", "ProductStep", "merge", "strides"]


AxisRow = tuple[int, int, int, int]  # the size of an axis, and its strides in three tables


class Factors(NamedTuple):
    """A model as a product of tables.

    ``scopes`` has one tuple of distinct variables per factor, ``values`` the logs of their tables, one after another,
    the last variable of a scope fastest; -inf forbids.
    """

    num_states: Sequence[int]
    scopes: Sequence[tuple[int, ...]]
    values: FloatArray


@dataclass(eq=False)
class ProductStep:
    """``out`` = sum of ``first`` times ``second`` over ``rows``; in place where ``out`` is ``first``."""

    out: int
    first: int
    second: int  # -1 for a table of ones
    rows: list[AxisRow]
    entries: float
    gemm: tuple[int, int, int, int] | None = None  # number and sizes of matrix products, where it is that


class _Layout(NamedTuple):
    """Orders of the axes of two tables and of their product, and whether the product is one of matrices."""

    nanoseconds: float
    first: tuple[int, ...]
    second: tuple[int, ...]
    out: tuple[int, ...]
    gemm: bool = False


class _Axes(NamedTuple):
    """The variables of a product of two tables: of the second alone, of both, of the first alone, and summed out."""

    new: tuple[int, ...]
    shared: tuple[int, ...]
    own: tuple[int, ...]
    sums: tuple[int, ...]


class _PlannedProduct(NamedTuple):
    """The tables of a step by number, before their layouts are known."""

    out: int
    first: int
    second: int
    gemm: bool


class EliminationPlan:
    """The steps that eliminate all variables of some factors in a given order, and the memory they take.

    A table has two layouts: ``computed``, the order of axes in which it is best computed, and ``scopes``, that in which
    it is best read and stored, the outermost axis first. The second is known when the table is used, after the first.

    1. Every factor belongs to the first of its variables in the order.
    2. Variable by variable, the tables that have it are joined until two are left, whose product is summed over it. The
       result belongs to the next of its variables.
    3. With all layouts known, the products become steps, loops over axes with strides in three tables.
    4. Derivatives are given places, and the memory of a run is added up.

    Factors that are ``alone`` are tables of their own, not joined with others before there are numbers.
    """

    def __init__(
        self,
        factors: Factors,
        order: EliminationOrder,
        clock: Clock = NO_LIMIT,
        alone: frozenset[int] = frozenset(),
    ) -> None:
        self.factors = factors
        self.alone = alone
        self.states = [int(s) for s in factors.num_states]
        self.factor_sizes = [math.prod([self.states[v] for v in scope]) for scope in factors.scopes]
        order_list = order.order.tolist()
        self.place = [0] * len(order_list)
        for p, v in enumerate(order_list):
            self.place[v] = p
        self.computed: list[tuple[int, ...]] = []  # of all tables: leaves, and those that are computed
        self.scopes: list[tuple[int, ...]] = []
        self.sizes: list[int] = []  # their entries
        self.leaves: dict[int, list[int]] = {}  # tables that are factors joined: the numbers of these
        self.products: list[_PlannedProduct] = []
        self.last: list[tuple[int, ...]] = [()] * len(order_list)  # by variable, the tables whose product is summed
        self.num_runs = 0
        self.program: Program | None = None  # made for the first run
        self._eliminate(order_list, clock)  # steps 1 and 2
        self.steps = [self._step(*product) for product in self.products]  # step 3
        # Tables that are computed in another layout than they are stored in: how they get there.
        self.moves = {
            t: merge(self.states, scope, strides(self.states, scope), {}, strides(self.states, stored))
            for t, (scope, stored) in enumerate(zip(self.computed, self.scopes, strict=True))
            if scope != stored and t not in self.leaves
        }
        # Where the derivatives by tables are kept, and by those that are moved in the layout they are computed in.
        self.slopes, self.moved_slopes, self.num_slopes = self._place_slopes()  # step 4
        self.required_bytes = self._count_bytes()  # peak memory of a run forward and backward
        self.leaf_entries = self._leaf_entries()

    def _eliminate(self, order: list[int], clock: Clock) -> None:
        """Plan the products of tables that sum out all variables in their order."""
        place = self.place
        own: list[list[int]] = [[] for _ in order]
        for f, scope in enumerate(self.factors.scopes):
            if scope:
                own[min(scope, key=place.__getitem__)].append(f)
        waiting: list[list[int]] = [[] for _ in order]
        for p, v in enumerate(order):
            if p % VARIABLES_PER_PLANNING_CHECK == 0:
                clock.check()
            items = self._join(waiting[v], self._add_leaves(own[v], waiting[v]))
            self.last[v] = tuple(items)
            if not items:
                continue
            out = self._product(items[0], items[1] if len(items) > 1 else -1, v)
            if self.computed[out]:
                waiting[min(self.computed[out], key=place.__getitem__)].append(out)

    def _count_bytes(self) -> int:
        """Peak memory of a run forward and backward, in bytes."""
        moved = max([self.sizes[t] for t in self.moves], default=0)
        tables = sum(self.sizes) + max(self.sizes, default=0) + moved + self.num_slopes
        leaves = sum([self.sizes[t] for t in self.leaves])
        # Beside the tables and their derivatives: the values of the factors and their marginals, and two arrays more
        # while leaves are normalized and marginals copied.
        required = 8.0 * (tables + leaves + max(leaves, sum(self.factor_sizes)) + 2.0 * sum(self.factor_sizes))
        return int(min(required, 2.0**62))

    def _leaf_entries(self) -> float:
        """Number of entries visited to make leaves from factors, and to read marginals of variables and pairs off them.

        Each factor is added to the whole table of its leaf, and each marginal is a sum over all of it.
        """
        seen: set[int] = set()
        entries = 0.0
        for t, members in self.leaves.items():
            scope = self.computed[t]
            num_pairs = sum([len(self.factors.scopes[f]) == 2 for f in members])
            num_new = len(set(scope) - seen)
            seen.update(scope)
            entries += float(self.sizes[t]) * (len(members) + num_pairs + num_new)
        return entries

    def _table(self, scope: tuple[int, ...]) -> int:
        """The number of a new table over a scope."""
        self.computed.append(scope)
        self.scopes.append(scope)
        self.sizes.append(math.prod([self.states[v] for v in scope]))
        return len(self.computed) - 1

    def _add_leaves(self, members: list[int], messages: list[int]) -> list[int]:
        """New tables for the factors of one variable, joined while they are small beside its clique."""
        states = self.states
        scopes = self.factors.scopes
        sizes = self.factor_sizes
        limit = MAX_JOINED_ENTRIES
        if messages and len(members) > 1:
            clique = {v for t in messages for v in self.computed[t]}.union(*[scopes[f] for f in members])
            limit = max(limit, math.prod([states[v] for v in clique]) // SMALL_CLIQUE_SHARE)
        groups: list[tuple[set[int], list[int]]] = []
        for f in sorted(members, key=lambda f: -sizes[f]):
            for union, group in groups:
                if f in self.alone or group[0] in self.alone:
                    continue
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
                within = [m for m in messages if set(self.computed[t]).issubset(self.computed[m])]
                if within:
                    smallest = min(within, key=self.sizes.__getitem__)
                    self.products.append(_PlannedProduct(smallest, smallest, t, False))
                    items.remove(t)
        if len(items) > 2:
            by_scope: dict[frozenset[int], int] = {}
            for t in items:
                key = frozenset(self.computed[t])
                by_scope[key] = self._product(by_scope[key], t) if key in by_scope else t
            items = list(by_scope.values())
        while len(items) > 2:
            items.sort(key=self.sizes.__getitem__)
            first, second = self._smallest_union(items[:JOIN_CANDIDATES])
            larger = items.pop(second)
            smaller = items.pop(first)
            items.append(self._product(larger, smaller))
        if len(items) == 2 and self.sizes[items[0]] < self.sizes[items[1]]:
            items.reverse()
        return items

    def _smallest_union(self, items: list[int]) -> tuple[int, int]:
        """Places, ascending, of the two tables whose product has the fewest entries."""
        best = math.inf
        pair = (0, 1)
        for i in range(len(items)):
            scope = self.computed[items[i]]
            for j in range(i):
                added = [self.states[v] for v in self.computed[items[j]] if v not in scope]
                union = self.sizes[items[i]] * math.prod(added)
                if union < best:
                    best = union
                    pair = (j, i)
        return pair

    def _product(self, first: int, second: int, summed: int = -1) -> int:
        """The number of the table of a product, summed over one variable, with the layouts that make it the fastest."""
        a = self.computed[first]
        b = self.computed[second] if second >= 0 else ()
        axes = _Axes(
            new=tuple([v for v in b if v not in a]),
            shared=tuple([v for v in a if v in b and v != summed]),
            own=tuple([v for v in a if v not in b and v != summed]),
            sums=(summed,) if summed >= 0 else (),
        )
        gemm = False
        scope = axes.new + axes.shared + axes.own
        entries = math.prod([self.states[v] for v in scope + axes.sums])
        if second >= 0 and entries >= MIN_LAYOUT_ENTRIES:
            layout = self._choose_layout(first, second, axes, entries)
            self.scopes[first] = layout.first
            self.scopes[second] = layout.second
            scope = layout.out
            gemm = layout.gemm
        out_table = self._table(scope)
        self.products.append(_PlannedProduct(out_table, first, second, gemm))
        return out_table

    def _choose_layout(self, first: int, second: int, axes: _Axes, entries: int) -> _Layout:
        """The layout of two tables and their product that takes the least time, copies included."""
        layouts = self._layouts_as_stored(first, second, axes, entries) + self._layouts_of_copies(axes, entries)
        costs = []
        for layout in layouts:
            cost = layout.nanoseconds
            for t, scope in ((first, layout.first), (second, layout.second)):
                if scope != self.computed[t] and t not in self.leaves:
                    cost += NS_COPY * self.sizes[t]
            costs.append(cost)
        return layouts[costs.index(min(costs))]

    def _layouts_as_stored(self, first: int, second: int, axes: _Axes, entries: int) -> list[_Layout]:
        """Layouts in which tables that were computed stay as they are, and leaves follow the first table."""
        a = self.computed[first]
        b = self.computed[second]
        new = axes.new
        kept = tuple([v for v in a if v not in axes.sums])
        # The innermost run stays: new variables go outside of it, so that those next to be summed are not in it.
        cut = len(kept)
        run = 1
        while cut and run < PROTECTED_RUN_ENTRIES:
            cut -= 1
            run *= self.states[kept[cut]]
        if second in self.leaves:
            b = tuple([v for v in a if v in b]) + new
        result = []
        for out in (kept[:cut] + new + kept[cut:], new + axes.shared + axes.own, new + kept):
            rows = merge(self.states, new + a, *[strides(self.states, scope) for scope in (a, b, out)])
            run = max([row[0] for row in rows if max(row[1:]) <= 1], default=1)
            if run >= 16:
                rate = NS_LONG_RUNS
            elif run >= 8:
                rate = NS_RUNS
            else:
                rate = NS_SHORT_RUNS
            result.append(_Layout(rate * entries, a, b, out))
        return result

    def _layouts_of_copies(self, axes: _Axes, entries: int) -> list[_Layout]:
        """Layouts of tables that may have to be copied, in which what is summed last is innermost."""
        new, shared, own = [tuple(sorted(some, key=self.place.__getitem__)) for some in axes[:3]]
        sums = axes.sums
        num_new, num_shared, num_own, num_summed = [math.prod([self.states[v] for v in some]) for some in axes]
        result = []
        if num_shared >= 16:
            cost = NS_SHARED_INSIDE * entries
            result.append(_Layout(cost, sums + own + shared, sums + new + shared, new + own + shared))
        if num_own >= 16:
            cost = NS_OWN_INSIDE * entries
            result.append(_Layout(cost, shared + sums + own, shared + sums + new, shared + new + own))
        if sums and min(num_summed, num_own, num_new) >= 4 and num_summed * num_own * num_new >= 2048:
            cost = NS_MATRICES * entries
            result.append(_Layout(cost, shared + own + sums, shared + sums + new, shared + own + new, gemm=True))
        return result

    def _step(self, out: int, first: int, second: int, gemm: bool) -> ProductStep:
        """The loops of a product, in the layouts of its tables."""
        states = self.states
        a = self.scopes[first]
        b = self.scopes[second] if second >= 0 else ()
        o = self.scopes[out] if out == first else self.computed[out]
        order = tuple([v for v in b if v not in a]) + a
        entries = math.prod([states[v] for v in order])
        if (
            len(order) > 1 and entries > MIN_LOOP_ORDER_ENTRIES
        ):  # the layout of the largest table goes first: its axes merge
            largest = max((a, b, o), key=len)
            order = tuple([v for v in order if v not in largest]) + largest
        rows = merge(states, order, strides(states, a), strides(states, b), strides(states, o))
        shape = None
        if gemm:
            shared = [states[v] for v in a if v in b and v in o]
            shape = (
                math.prod(shared),
                math.prod([states[v] for v in a if v not in b]),
                math.prod([states[v] for v in a if v not in o]),
                math.prod([states[v] for v in b if v not in a]),
            )
        return ProductStep(out, first, second, rows, float(entries), shape)

    def _place_slopes(self) -> tuple[dict[int, int], dict[int, int], int]:
        """Places for derivatives by tables, going back through the steps, in both layouts, and the end.

        They are used again: memory touched for the first time costs as much as a sum over it.
        """
        blocks: dict[tuple[int, bool], tuple[int, int]] = {}  # by table and layout: size and place
        free: list[tuple[int, int]] = []
        end = 0
        for step in reversed(self.steps):
            if step.out == step.first:
                continue
            own = step.out, False
            wanted = [(t, False) for t in (step.first, step.second) if t >= 0 and t not in self.leaves]
            if step.out in self.moves:
                wanted.insert(0, (step.out, True))
            for key in wanted:
                size = self.sizes[key[0]]
                k = bisect_left(free, (size, 0))
                if k < len(free) and free[k][0] <= MAX_OVERSIZE * size:
                    blocks[key] = free.pop(k)
                else:
                    blocks[key] = size, end
                    end += size
                if key[1] and own in blocks:
                    insort(free, blocks[own])
                    own = key
            if own in blocks:
                insort(free, blocks[own])
        slopes = {t: place for (t, is_moved), (_, place) in blocks.items() if not is_moved}
        moved = {t: place for (t, is_moved), (_, place) in blocks.items() if is_moved}
        return slopes, moved, end


def strides(states: Sequence[int], scope: tuple[int, ...]) -> dict[int, int]:
    """Strides of a table by variable, in entries; the last variable is the fastest."""
    step = 1
    steps = {}
    for v in reversed(scope):
        steps[v] = step
        step *= states[v]
    return steps


def merge(
    states: Sequence[int], order: tuple[int, ...], a: dict[int, int], b: dict[int, int], o: dict[int, int]
) -> list[AxisRow]:
    """Sizes and strides of axes in three tables (rows), after axes that follow each other in all three are joined."""
    rows: list[AxisRow] = []
    size = 1
    x = 0
    y = 0
    z = 0
    for v in order:
        n = states[v]
        if n == 1:
            continue
        i = a.get(v, 0)
        j = b.get(v, 0)
        k = o.get(v, 0)
        if size > 1 and x == n * i and y == n * j and z == n * k:
            size *= n
        else:
            if size > 1:
                rows.append((size, x, y, z))
            size = n
        x = i
        y = j
        z = k
    rows.append((size, x, y, z))
    return rows
