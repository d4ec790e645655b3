"""The sequence of sums of products of two tables that eliminates all variables, with layouts that make it fast."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from fastmix._arrays import FloatArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix.exact.search import Order

if TYPE_CHECKING:
    from fastmix.exact.program import Program

__all__ = ["Factors", "Row", "Sequence", "Step", "merge", "strides"]


Row = tuple[int, int, int, int]  # the size of an axis, and its strides in three tables


_JOINED = 256  # entries up to which the factors of one variable are joined beforehand
_SMALL_SHARE = 64  # of a clique that its factors may take when joined
_LAYOUT_ENTRIES = 1 << 15  # of a clique whose layouts are chosen with care
_RUN = 64  # entries of the innermost run of a table that is kept
_WASTE = 4  # times the memory that a table needs, which it may get
_CHECK = 256  # variables planned between two looks at the clock


class Factors(NamedTuple):
    """A model as a product of tables.

    ``scopes`` has one tuple of distinct variables per factor, ``values`` the logs of their tables, one after another,
    the last variable of a scope fastest; -inf forbids.
    """

    num_states: Items[int]
    scopes: Items[tuple[int, ...]]
    values: FloatArray


@dataclass(eq=False)
class Step:
    """``out`` = sum of ``first`` times ``second`` over ``rows``; in place where ``out`` is ``first``."""

    out: int
    first: int
    second: int  # -1 for a table of ones
    rows: list[Row]
    entries: float
    gemm: tuple[int, int, int, int] | None = None  # number and sizes of matrix products, where it is that


class Sequence:
    """What is to be done: goes through an order of elimination and writes the steps.

    A table has two layouts: ``computed``, the order of axes in which it is best computed, and ``scopes``, that in which
    it is best read and stored, the outermost axis first. The second is known when the table is used, after the first.
    """

    def __init__(self, factors: Factors, order: Order, clock: Clock = NO_LIMIT) -> None:
        self.factors = factors
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
        self.plain: list[tuple[int, int, int, bool]] = []
        self.last: list[tuple[int, ...]] = [()] * len(order_list)  # by variable, the tables whose product is summed
        self.num_runs = 0
        self.program: Program | None = None  # made for the first run
        place = self.place
        own: list[list[int]] = [[] for _ in order_list]
        for f, scope in enumerate(factors.scopes):
            if scope:
                own[min(scope, key=place.__getitem__)].append(f)
        waiting: list[list[int]] = [[] for _ in order_list]
        for p, v in enumerate(order_list):
            if p % _CHECK == 0:
                clock.check()
            items = self._join(waiting[v], self._add_leaves(own[v], waiting[v]))
            self.last[v] = tuple(items)
            if not items:
                continue
            out = self._product(items[0], items[1] if len(items) > 1 else -1, v)
            if self.computed[out]:
                waiting[min(self.computed[out], key=place.__getitem__)].append(out)
        self.steps = [self._step(*step) for step in self.plain]
        # Tables that are computed in another layout than they are stored in: how they get there.
        self.moves = {
            t: merge(self.states, scope, strides(self.states, scope), {}, strides(self.states, stored))
            for t, (scope, stored) in enumerate(zip(self.computed, self.scopes, strict=True))
            if scope != stored and t not in self.leaves
        }
        # Where the derivatives by tables are kept, and by those that are moved in the layout they are computed in.
        self.slopes, self.moved_slopes, self.num_slopes = self._place_slopes()
        moved = max([self.sizes[t] for t in self.moves], default=0)
        tables = sum(self.sizes) + max(self.sizes, default=0) + moved + self.num_slopes
        leaves = sum([self.sizes[t] for t in self.leaves])
        # Beside the tables and their derivatives: the values of the factors and their marginals, and two arrays more
        # while leaves are normalized and marginals copied.
        required = 8.0 * (tables + leaves + max(leaves, sum(self.factor_sizes)) + 2.0 * sum(self.factor_sizes))
        self.required_bytes = int(min(required, 2.0**62))  # peak memory of a run forward and backward
        self.leaf_entries = self._leaf_entries()

    def _leaf_entries(self) -> float:
        """Entries visited while leaves are joined from factors and marginals of variables and pairs are read off them.

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
        self.computed.append(scope)
        self.scopes.append(scope)
        self.sizes.append(math.prod([self.states[v] for v in scope]))
        return len(self.computed) - 1

    def _add_leaves(self, members: list[int], messages: list[int]) -> list[int]:
        """The factors of one variable, joined while they are small beside its clique."""
        states, scopes, sizes = self.states, self.factors.scopes, self.factor_sizes
        limit = _JOINED
        if messages and len(members) > 1:
            clique = {v for t in messages for v in self.computed[t]}.union(*[scopes[f] for f in members])
            limit = max(limit, math.prod([states[v] for v in clique]) // _SMALL_SHARE)
        groups: list[tuple[set[int], list[int]]] = []
        for f in sorted(members, key=lambda f: -sizes[f]):
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
                within = [m for m in messages if set(self.computed[t]).issubset(self.computed[m])]
                if within:
                    smallest = min(within, key=self.sizes.__getitem__)
                    self.plain.append((smallest, smallest, t, False))
                    items.remove(t)
        if len(items) > 2:
            by_scope: dict[frozenset[int], int] = {}
            for t in items:
                key = frozenset(self.computed[t])
                by_scope[key] = self._product(by_scope[key], t) if key in by_scope else t
            items = list(by_scope.values())
        while len(items) > 2:
            items.sort(key=self.sizes.__getitem__)
            best, pair = math.inf, (0, 1)
            for i in range(min(len(items), 12)):
                for j in range(i):
                    scope = self.computed[items[i]]
                    union = self.sizes[items[i]] * math.prod(
                        [self.states[v] for v in self.computed[items[j]] if v not in scope]
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
        a = self.computed[first]
        b = self.computed[second] if second >= 0 else ()
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
                rows = merge(self.states, new + a, *[strides(self.states, c) for c in (a, bare, out)])
                run = max([row[0] for row in rows if max(row[1:]) <= 1], default=1)
                rate = 1.9 if run >= 16 else 2.8 if run >= 8 else 6.0  # nanoseconds for all three sums
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
                    if layout != self.computed[t] and t not in self.leaves:
                        cost += 8.0 * self.sizes[t]
                costs.append(cost)
            _, self.scopes[first], self.scopes[second], scope, gemm = ways[costs.index(min(costs))]
        out_table = self._table(scope)
        self.plain.append((out_table, first, second, gemm))
        return out_table

    def _step(self, out: int, first: int, second: int, gemm: bool) -> Step:
        states = self.states
        a = self.scopes[first]
        b = self.scopes[second] if second >= 0 else ()
        o = self.scopes[out] if out == first else self.computed[out]
        order = tuple([v for v in b if v not in a]) + a
        entries = math.prod([states[v] for v in order])
        if len(order) > 1 and entries > 64:  # the layout of the largest table goes first: its axes merge
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
        return Step(out, first, second, rows, float(entries), shape)

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
                if k < len(free) and free[k][0] <= _WASTE * size:
                    blocks[key] = free.pop(k)
                else:
                    blocks[key] = size, end
                    end += size
                if key[1] and own in blocks:
                    insort(free, blocks[own])
                    own = key
            if own in blocks:
                insort(free, blocks[own])
        slopes, moved = [{t: b[1] for (t, is_moved), b in blocks.items() if is_moved == k} for k in (False, True)]
        return slopes, moved, end


def strides(states: Items[int], scope: tuple[int, ...]) -> dict[int, int]:
    """By variable of a table, how far apart its states are; the last variable is fastest."""
    step, steps = 1, {}
    for v in reversed(scope):
        steps[v] = step
        step *= states[v]
    return steps


def merge(
    states: Items[int], order: tuple[int, ...], a: dict[int, int], b: dict[int, int], o: dict[int, int]
) -> list[Row]:
    """Rows of sizes and strides of axes in three tables, those that follow each other in all of them as one."""
    rows: list[Row] = []
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
