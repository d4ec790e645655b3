"""Elimination orders: their exact cost, good ones, and cheap bounds on the treewidth.

Eliminating a variable joins all its remaining neighbors, its *separator*, to each other; the variable with its
separator is a clique whose table exact inference must hold. Edges are as in :mod:`fastmix.graphs`.
"""

from __future__ import annotations

import heapq
import math
import random
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from fastmix._checks import check_choice, check_seed, describe
from fastmix._clock import NO_LIMIT, Clock
from fastmix.errors import ModelError
from fastmix.graphs.basics import (
    Adjacency,
    IntArray,
    build_adjacency,
    check_graph,
    label_components,
    sparse_matrix,
    strip_leaves,
)
from fastmix.graphs.colors import peel

__all__ = ["EliminationOrder", "elimination_cliques", "elimination_order", "treewidth_bounds"]

_METHODS = ("auto", "min-fill", "sweep")

# Searching stops for good where no order found can be run: 1e13 entries are half a day at 5 ns each.
_HOPELESS = 1e13
# Measured: a unit of work of a min-fill run takes about 0.4 microseconds, a table entry of an inference 5 ns.
_SECONDS_PER_WORK = 4e-7
_SECONDS_PER_ENTRY = 5e-9
# A search may take this part of the time of the inference it prepares, this many min-fill runs and this long.
_SEARCH_FRACTION = 0.12
_MAX_RUNS = 30
_MAX_SEARCH_SECONDS = 3.0
# In a connected core of more variables than this, "auto" runs min-fill only if the sweep is costly enough;
_LARGE_CORE = 20_000
_HUGE_CORE = 200_000  # not even looked at again when the sweep is hopeless: seconds for the sets of neighbors alone
# those of fewer variables than this are ordered together, because each alone would cost a millisecond.
_SMALL_CORE = 32
# Members of all separators beyond which an order is bounded by its frontier, not evaluated (about 3 seconds), with 50
# more for each variable. Tables of two or more states have then sum 2^|separator| > 1e13 entries.
_MAX_MEMBERS = 30_000_000
_CHECK = 1 << 12  # variables eliminated between two looks at the clock


@dataclass(frozen=True, eq=False)
class EliminationOrder:
    """An order of elimination, first eliminated first, and what it costs.

    ``width`` is the size of the largest clique minus one, an upper bound on the treewidth; ``total_entries`` and
    ``max_entries`` are those of all clique tables and of the largest, ``inf`` beyond the range of a float;
    ``log_total_entries`` is always finite except without variables. ``is_exact`` is False where the separators are so
    large that the four numbers are upper bounds, from the frontier between eliminated and other variables: that takes
    more than 1e13 entries, or variables of one state.

    Examples
    --------
    >>> from fastmix.graphs import path_edges
    >>> result = elimination_order(3, path_edges(3))
    >>> result.width, result.total_entries, result.max_entries
    (1, 10.0, 4.0)
    """

    order: IntArray
    width: int
    total_entries: float
    max_entries: float
    log_total_entries: float
    is_exact: bool = True


_NOTHING = EliminationOrder(np.zeros(0, dtype=np.int64), 0, 0.0, 0.0, -math.inf)


class _Part(NamedTuple):
    """A graph to order: local edges, and the number of states of each variable."""

    n: int
    edges: IntArray
    states: list[float]
    clock: Clock = NO_LIMIT


def elimination_order(
    num_variables: int,
    edges: npt.ArrayLike,
    num_states: npt.ArrayLike | None = None,
    *,
    method: Literal["auto", "min-fill", "sweep"] = "auto",
    seed: int = 0,
    clock: Clock = NO_LIMIT,
) -> EliminationOrder:
    """A good order of elimination, with its exact cost.

    Trees that hang on the graph are eliminated first, leaves inwards, which is optimal; the connected parts of the
    remaining core are then ordered one by one.

    Parameters
    ----------
    num_variables, edges
        A graph with canonical edges.
    num_states : array_like of int, shape (n,), or int, optional
        Number of states of each variable; 2 by default.
    method : {"auto", "min-fill", "sweep"}
        ``"min-fill"`` eliminates the variable that adds the fewest edges, ties at random, in one run. ``"sweep"``
        takes the better of the reverse Cuthill-McKee order and the given one, good for grids and long thin graphs.
        ``"auto"`` takes the cheapest of a sweep and of several min-fill runs: as many, up to 30, as take about an
        eighth of the time that an inference with that order would.
    seed : int
        Seed of the random ties. The same seed gives the same order on any machine.
    clock : Clock
        An :class:`fastmix._clock.OutOfTimeError` where the search takes longer.

    Raises
    ------
    ModelError
        If the edges are not canonical or a number of states is not positive.

    Notes
    -----
    A min-fill run takes about 6 ms on a 16 x 16 grid. A million variables in a tree, or in a grid of 1000 x 1000
    (where no order can be run), take a few seconds.

    Examples
    --------
    >>> from fastmix.graphs import grid_edges
    >>> elimination_order(12, grid_edges(3, 4), method="min-fill").width
    3
    """
    n, edges = check_graph(num_variables, edges)
    states = _check_states(n, num_states)
    check_choice("method", method, _METHODS)
    rng = random.Random(check_seed(seed))
    removed, neighbor = strip_leaves(n, edges)
    orders = [_strip_order(removed, neighbor, states)]
    for nodes, part in _core_parts(n, edges, states, removed, clock):
        if method == "min-fill":
            found = _evaluate(part, _min_fill(part, _neighbor_sets(part), rng)[0])
        else:
            found = _sweep(part) if method == "sweep" else _search(part, rng)
        orders.append(replace(found, order=nodes[found.order]))
    return _joined(orders)


def elimination_cliques(
    num_variables: int, edges: npt.ArrayLike, order: npt.ArrayLike, clock: Clock = NO_LIMIT
) -> list[IntArray]:
    """For each variable its neighbors at the moment it is eliminated, first eliminated first.

    Item ``v`` is the separator of ``v``; its first member is the parent of ``v`` in the elimination tree. Time and
    memory are proportional to the members of all separators: check the cost of the order first.

    Examples
    --------
    >>> from fastmix.graphs import cycle_edges
    >>> [s.tolist() for s in elimination_cliques(4, cycle_edges(4), [0, 2, 1, 3])]
    [[1, 3], [3], [1, 3], []]
    """
    n, edges = check_graph(num_variables, edges)
    permutation = np.asarray(order)
    if permutation.shape != (n,) or (np.sort(permutation) != np.arange(n)).any():
        raise ModelError(f"order must hold each variable 0 to {n - 1} once, got {describe(order)}")
    permutation = permutation.astype(np.int64)
    members, ends = array("q"), array("q", [0])
    for separator in _separators(n, edges, permutation, clock):
        members.extend(sorted(separator))
        ends.append(len(members))
    flat = permutation[np.frombuffer(members, dtype=np.int64)] if members else np.zeros(0, dtype=np.int64)
    cliques = [flat] * n
    for p, v in enumerate(permutation.tolist()):
        cliques[v] = flat[ends[p] : ends[p + 1]]
    return cliques


def treewidth_bounds(num_variables: int, edges: npt.ArrayLike) -> tuple[int, int]:
    """A lower and an upper bound on the treewidth, cheaply.

    The lower bound is the degeneracy. The upper bound is the smallest vertex separation (a path decomposition) of
    the reverse Cuthill-McKee and the given order, and for at most 2,000 variables also the width of a min-fill run.

    Returns
    -------
    lower, upper : int

    Notes
    -----
    ``O(n + m)`` but for sorting: a few seconds for a million variables.

    Examples
    --------
    >>> from fastmix.graphs import complete_edges, path_edges
    >>> treewidth_bounds(5, complete_edges(5)), treewidth_bounds(5, path_edges(5))
    ((4, 4), (1, 1))
    """
    n, edges = check_graph(num_variables, edges)
    if not len(edges):
        return 0, 0
    removed, _ = strip_leaves(n, edges)
    if len(removed) == n:
        return 1, 1
    core, nodes = _core(n, edges, removed)
    size = len(nodes)
    lower = peel(build_adjacency(size, core))[0]
    ones = np.ones(size)
    upper = size - 1
    for order in (_cuthill_mckee(size, core), np.arange(size)):
        for direction in (order, order[::-1]):
            upper = min(upper, int(_frontier(size, core, direction, ones).max()))
    if size <= 2000 and lower < upper:
        part = _Part(size, core, [2.0] * size)
        order, complete, _ = _min_fill(part, _neighbor_sets(part), random.Random(0), max_seconds=0.5)
        if complete:
            upper = min(upper, _evaluate(part, order).width)
    return lower, upper


def _check_states(n: int, num_states: npt.ArrayLike | None) -> npt.NDArray[np.float64]:
    states = np.asarray(2 if num_states is None else num_states)
    if states.size and not np.issubdtype(states.dtype, np.integer):
        raise ModelError(f"num_states must be integers, got dtype {states.dtype}")
    if states.shape not in ((), (n,)):
        raise ModelError(f"num_states must be one integer or have shape ({n},), got shape {states.shape}")
    if states.size and states.min() < 1:
        raise ModelError(f"num_states must be positive, got {states.min()}")
    return np.broadcast_to(states, (n,)).astype(np.float64)


def _joined(orders: list[EliminationOrder]) -> EliminationOrder:
    """Orders of parts one after another."""
    total = sum(o.total_entries for o in orders)
    logs = np.array([o.log_total_entries for o in orders])
    return EliminationOrder(
        order=np.concatenate([o.order for o in orders]),
        width=max(o.width for o in orders),
        total_entries=total,
        max_entries=max(o.max_entries for o in orders),
        log_total_entries=math.log(total) if 0.0 < total < math.inf else float(np.logaddexp.reduce(logs)),
        is_exact=all(o.is_exact for o in orders),
    )


def _core(n: int, edges: IntArray, removed: IntArray) -> tuple[IntArray, IntArray]:
    """Edges of the graph without the removed variables, in its own numbering, and the variables left."""
    if not len(removed):
        return edges, np.arange(n)
    alive = np.ones(n, dtype=bool)
    alive[removed] = False
    return (np.cumsum(alive) - 1)[edges[alive[edges].all(axis=1)]], np.flatnonzero(alive)


def _core_parts(
    n: int, edges: IntArray, states: npt.NDArray[np.float64], removed: IntArray, clock: Clock
) -> Iterator[tuple[IntArray, _Part]]:
    """Connected parts of the core, the small ones as one: their variables, and the graph in its own numbering."""
    if len(removed) == n:
        return
    core, nodes = _core(n, edges, removed)
    count, labels = label_components(len(nodes), core)
    big = np.bincount(labels, minlength=count) >= _SMALL_CORE
    labels = np.where(big, np.cumsum(big), 0)[labels]
    labels -= labels.min()
    count = int(labels.max()) + 1
    by_label = np.argsort(labels, kind="stable")
    sizes = np.bincount(labels, minlength=count)
    starts = np.cumsum(sizes) - sizes
    local = np.empty(len(nodes), dtype=np.int64)
    local[by_label] = np.arange(len(nodes)) - np.repeat(starts, sizes)
    edge_labels = labels[core[:, 0]]
    parts = local[core[np.argsort(edge_labels, kind="stable")]]  # local numbers ascend with the old, so still sorted
    edge_ends = np.cumsum(np.bincount(edge_labels, minlength=count)).tolist()
    first_edge = 0
    for start, size, edge_end in zip(starts.tolist(), sizes.tolist(), edge_ends, strict=True):
        variables = nodes[by_label[start : start + size]]
        yield variables, _Part(size, parts[first_edge:edge_end], states[variables].tolist(), clock)
        first_edge = edge_end


def _strip_order(removed: IntArray, neighbor: IntArray, states: npt.NDArray[np.float64]) -> EliminationOrder:
    if not len(removed):
        return _NOTHING
    entries = states[removed] * np.where(neighbor >= 0, states[neighbor], 1.0)
    total = float(entries.sum())
    return EliminationOrder(removed, int((neighbor >= 0).any()), total, float(entries.max()), math.log(total))


def _end_positions(n: int, edges: IntArray, order: IntArray) -> tuple[IntArray, IntArray]:
    """Positions in the order of the two ends of each edge, the earlier and the later."""
    position = np.empty(n, dtype=np.int64)
    position[order] = np.arange(n)
    a, b = position[edges[:, 0]], position[edges[:, 1]]
    return np.minimum(a, b), np.maximum(a, b)


def _separators(n: int, edges: IntArray, order: IntArray, clock: Clock = NO_LIMIT) -> Iterator[set[int]]:
    """Separators in the order of elimination, as sets of positions in it, each valid until the next is drawn.

    The separator of a variable, less its first member, is part of the separator of that first member, so it is handed
    on to it; merging the smaller set into the larger makes this at most linear in the members of all separators.
    """
    earlier, later_end = _end_positions(n, edges, order)
    later = later_end[np.argsort(earlier, kind="stable")].tolist()
    stops = np.cumsum(np.bincount(earlier, minlength=n)).tolist()
    handed: dict[int, set[int]] = {}
    start = 0
    for p, stop in enumerate(stops):
        if p % _CHECK == 0:
            clock.check()
        separator = handed.pop(p, None)
        if separator is None:
            separator = set(later[start:stop])
        elif start < stop:
            separator.update(later[start:stop])
        start = stop
        yield separator
        if len(separator) > 1:
            parent = min(separator)
            separator.remove(parent)
            other = handed.get(parent)
            if other is None:
                handed[parent] = separator
            elif len(other) < len(separator):
                separator |= other
                handed[parent] = separator
            else:
                other |= separator


def _evaluate(part: _Part, order: IntArray, limit: float = math.inf) -> EliminationOrder:
    """An order with its cost; an upper bound where it is above the limit or its separators have too many members."""
    if not part.n:
        return _NOTHING
    states = [part.states[v] for v in order.tolist()]
    uniform = min(states) == max(states)
    powers, log_states = [states[0]], np.log(states).tolist()
    width, total, members = 0, 0.0, 0
    largest: float = 0.0
    max_members = _MAX_MEMBERS + 50 * part.n
    logs = array("d")  # of the entries, for totals beyond the range of a float
    for p, separator in enumerate(_separators(part.n, part.edges, order, part.clock)):
        size = len(separator)
        members += size
        # Products of floats are exact up to 2^53 and quietly become infinite.
        if uniform:
            while len(powers) <= size:
                powers.append(powers[-1] * powers[0])
            entries = powers[size]
            logs.append((size + 1) * log_states[0])
        else:
            entries = math.prod([states[u] for u in separator], start=states[p])
            logs.append(log_states[p] + sum([log_states[u] for u in separator]))
        width = max(width, size)
        largest = max(largest, entries)
        total += entries
        if total > limit or members > (max_members if total < _HOPELESS else _MAX_MEMBERS // 10):
            return _bounded(part, order)
    return EliminationOrder(order, width, total, largest, _log_sum(np.frombuffer(logs)))


def _log_sum(logs: npt.NDArray[np.float64]) -> float:
    top = float(logs.max())
    return top + math.log(float(np.exp(logs - top).sum()))


def _frontier(n: int, edges: IntArray, order: IntArray, weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """At each step, the weight of the variables still there that are joined to an eliminated one; indexed by step.

    This set contains the separator of the variable just eliminated. Its largest size is the vertex separation of the
    reversed order, so an upper bound on pathwidth and treewidth.
    """
    earlier, later = _end_positions(n, edges, order)
    first = np.full(n, n, dtype=np.int64)
    np.minimum.at(first, later, earlier)
    touched = np.flatnonzero(first < n)
    weight = weights[order[touched]]
    change = np.bincount(first[touched], weights=weight, minlength=n).astype(np.float64, copy=False)
    change[touched] -= weight
    return np.cumsum(change)


def _bounded(part: _Part, order: IntArray) -> EliminationOrder:
    """An order with upper bounds on its cost."""
    log_states = np.log(part.states)
    logs = log_states[order] + _frontier(part.n, part.edges, order, log_states)
    width = int(_frontier(part.n, part.edges, order, np.ones(part.n)).max())
    log_total = _log_sum(logs)
    return EliminationOrder(order, width, _exp(log_total), _exp(float(logs.max())), log_total, is_exact=False)


def _exp(x: float) -> float:
    return math.exp(x) if x < 709.0 else math.inf


def _cuthill_mckee(n: int, edges: IntArray) -> IntArray:
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    upper = sparse_matrix(n, edges)
    return reverse_cuthill_mckee((upper + upper.T).tocsr(), symmetric_mode=True).astype(np.int64)


def _cheaper(new: EliminationOrder, old: EliminationOrder) -> EliminationOrder:
    better = new.is_exact >= old.is_exact and new.log_total_entries < old.log_total_entries
    return new if better else old


def _sweep(part: _Part) -> EliminationOrder:
    given = _evaluate(part, np.arange(part.n))
    return _cheaper(_evaluate(part, _cuthill_mckee(part.n, part.edges), limit=given.total_entries), given)


def _search(part: _Part, rng: random.Random) -> EliminationOrder:
    """The cheapest of a sweep and of as many min-fill runs as are worth their time."""
    best = _sweep(part)
    hopeless = best.total_entries > _HOPELESS
    if hopeless and part.n > _HUGE_CORE:
        return best
    base = _neighbor_sets(part)
    large = part.n > _LARGE_CORE
    if hopeless and _is_hopeless(base, part.states):
        return best
    spent = run_seconds = 0.0
    longest = _MAX_SEARCH_SECONDS
    if large and hopeless:
        longest /= 10.0  # where a sweep is so far off, min-fill helps only on graphs that it gets through at once
    for run in range(_MAX_RUNS):
        total = best.total_entries
        worth = min(_SEARCH_FRACTION * _SECONDS_PER_ENTRY * total, longest)
        # One run in any case, except on a large core, where it takes some 20 microseconds for each variable.
        if run and (spent + run_seconds > worth or total > _HOPELESS):
            break
        if large and total <= _HOPELESS and spent + 2e-5 * part.n > worth:
            break
        seconds = max(worth - spent, 0.0) if large else 1.0
        copies = [set(s) for s in base]
        order, complete, run_seconds = _min_fill(part, copies, rng, limit=total, max_seconds=seconds, strict=large)
        spent += run_seconds
        if complete:
            best = _cheaper(_evaluate(part, order, limit=total), best)
    return best


def _neighbor_sets(part: _Part) -> list[set[int]]:
    graph = build_adjacency(part.n, part.edges)
    start, neighbors = graph.indptr.tolist(), graph.neighbors.tolist()
    return [set(neighbors[start[v] : start[v + 1]]) for v in range(part.n)]


def _min_fill(
    part: _Part, neighbors: list[set[int]], rng: random.Random, *, limit: float = math.inf, max_seconds: float = 3.0,
    strict: bool = False,
) -> tuple[IntArray, bool, float]:  # fmt: skip
    """A min-fill order of a graph, whether it was run to its end, and the seconds it took, by count, no clock.

    A run is cut short and completed by current degree where its total passes the limit, or where it would take
    longer than ``max_seconds`` and is either hopeless or ``strict``. The neighbors are used up.
    """
    n, states = part.n, part.states
    work = n * 5.0 + sum([len(a) * (0.5 + 0.05 * len(a)) for a in neighbors])
    order: list[int] = []
    total = 0.0
    if work * _SECONDS_PER_WORK > max_seconds and _is_hopeless(neighbors, states):
        limit = 0.0
    fill = [0] * n
    if limit > 0.0:
        for v, around in enumerate(neighbors):
            d = len(around)
            fill[v] = (d * (d - 1) - sum([len(around & neighbors[u]) for u in around])) // 2
    # Heap items are fill, 20 random bits, variable, packed in one integer; all but the last pushed are stale.
    bits, mask, push = rng.getrandbits, (1 << 32) - 1, heapq.heappush
    current = [(fill[v] << 52) | (bits(20) << 32) | v for v in range(n)]
    heap = current.copy()
    heapq.heapify(heap)
    while len(order) < n:
        item = heapq.heappop(heap)
        v = item & mask
        if current[v] != item:
            continue
        separator = neighbors[v]
        d = len(separator)
        total += math.prod([states[u] for u in separator], start=states[v])
        work += 5 + fill[v] * (3 + 0.5 * d) + 0.05 * d * d
        slow = work * _SECONDS_PER_WORK > max_seconds
        if total > limit or (slow and (strict or total > _HOPELESS)):
            break
        if len(order) % 64 == 0:  # on dense graphs that takes long enough
            part.clock.check()
        order.append(v)
        current[v] = -1
        if not fill[v] and d == n - len(order):  # what is left is a clique: any order will do
            order += separator
            break
        changed = set(separator)
        if fill[v]:
            for a in separator:
                around_a = neighbors[a]
                missing = separator - around_a
                missing.discard(a)
                for b in missing:
                    # Joining a and b: a misses b's side of pairs, and whoever sees both misses one pair less.
                    around_b = neighbors[b]
                    common = around_a & around_b
                    fill[a] += len(around_a) - len(common)
                    fill[b] += len(around_b) - len(common)
                    for w in common:
                        fill[w] -= 1
                    changed |= common
                    around_a.add(b)
                    around_b.add(a)
            changed.discard(v)
        for u in separator:
            around_u = neighbors[u]
            around_u.remove(v)
            fill[u] -= len(around_u) - d + 1  # pairs of v with a neighbor of u outside the separator
        work += len(changed)
        for u in changed:
            item = (fill[u] << 52) | (bits(20) << 32) | u
            current[u] = item
            push(heap, item)
    complete = len(order) == n
    if not complete:
        order += sorted([v for v in range(n) if current[v] >= 0], key=lambda v: len(neighbors[v]))
    return np.array(order, dtype=np.int64), complete, work * _SECONDS_PER_WORK


def _is_hopeless(neighbors: list[set[int]], states: list[float]) -> bool:
    """Whether the degeneracy alone makes every order hopeless."""
    indptr = np.cumsum([0] + [len(a) for a in neighbors])
    flat = np.array([u for a in neighbors for u in a], dtype=np.int64)
    lower = peel(Adjacency(indptr, flat, flat))[0]
    return (lower + 1) * math.log(min(states)) > math.log(_HOPELESS)
