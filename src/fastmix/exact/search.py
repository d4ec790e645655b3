"""Elimination orders for factors over any scopes, chosen by the entries of all tables within a budget of time.

Eliminating a variable joins all its remaining neighbors, its separator, to each other; the variable with its separator
is a clique whose entries inference must visit. Variables that hang on the graph are eliminated first. The first order
of what is left is greedy by table size; the search for better ones goes on for as long as it is likely to save more
time than it takes: greedy runs that weigh table size and fill differently, with random scores, and then changes of the
random scores of the best run.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix.graphs import degeneracy
from fastmix.graphs.basics import check_graph, strip_leaves

__all__ = ["CHEAP", "Order", "find_order", "order_cost", "treewidth_bounds"]


# Searching stops where tables of so many entries come up: an hour of work and a hundred terabytes.
_HOPELESS = 1e13
# Orders of fewer entries than this are not improved: what is left to save is less than a run of the search.
CHEAP = 1 << 17
_SECONDS_PER_ENTRY = 3e-9  # of two passes over a clique table
# A search may take this share of the time that the best order so far would take.
_SHARE = 0.15
_MAX_SECONDS = 20.0
_SECONDS_PER_RUN = 1e-4  # beside what is counted, which matters where runs are many
_WORDS_PER_SECOND = 3e8  # of rows that a run reads, about
_OVER = 10.0  # the same, in times, where that order is more than the caller can take
_FAR = 100.0  # times what the caller can take: given up after one run of each kind
_SMALL_CORE = 64  # variables of a core whose first order needs no compiler
_MAX_CORE = 8192  # variables of a core that is searched: its rows of bits take 8 MiB
_MAX_BOUNDED = 2000  # variables of a core whose width is bounded by an order
_HUGE = 100_000  # variables of a core beyond which a hopeless sweep is believed without a greedy run
# Weights of log size, log fill, fill and distance from what is eliminated; and the random part of the scores. Fill
# alone is the best on many graphs of equal state counts, size where they are unequal, the logarithm of the fill on most
# others, and going on beside what is eliminated on grids.
_SCORES = (
    (0.0, 1.0, 0.0, 0.0),
    (0.0, 0.0, 1.0, 0.0),
    (1.0, 0.0, 0.0, 0.0),
    (0.5, 1.0, 0.0, 0.0),
    (1.0, 1.0, 0.0, 0.0),
    (1.0, 0.0, 0.0, 1e6),
    (0.0, 0.0, 0.0, 0.0),
)
_BY_RANK = len(_SCORES) - 1  # an order given by its ranks
_NOISES = (0.01, 1.0, 0.3)
_CHECK = 1 << 14  # scopes gone through between two looks at the clock
_KEPT = 3  # runs that the search goes on from


class Order(NamedTuple):
    """An order of elimination and its cost: entries of all clique tables, of the largest one, and its width.

    ``is_exact`` is False where the numbers are an estimate, on graphs far too large for any order.
    """

    order: IntArray
    total_entries: float
    max_entries: float
    width: int
    is_exact: bool = True


def find_order(
    num_states: Sequence[int] | IntArray,
    scopes: Sequence[tuple[int, ...]],
    *,
    clock: Clock = NO_LIMIT,
    seed: int = 0,
    effort: float = 1.0,
    max_entries: float = math.inf,
) -> Order:
    """A cheap order of elimination of the variables of some factors, given by their state counts and scopes.

    At most a third of what is left of the clock is used. The budget, times ``effort``, is counted in operations, so
    that the order does not depend on the machine; above ``max_entries``, what the caller can take, the search goes on
    longer. A greedy run takes ``O(n log n)`` on sparse graphs; a run of the search, compiled, about a microsecond per
    variable and neighbor.
    """
    states = np.asarray(num_states, dtype=np.int64)
    logs = np.log(states.astype(float))
    clock.check()
    stripped, neighbors = _strip(len(states), scopes, clock)
    core = [v for v in range(len(states)) if neighbors[v]] if len(stripped) < len(states) else []
    if len(core) > _HUGE:
        estimate = _sweep_estimate(len(states), _star_pairs(scopes), logs)
        if estimate.total_entries > _HOPELESS:
            return estimate
    if not core:
        return order_cost(states, scopes, np.array(stripped, dtype=np.int64))
    if not _SMALL_CORE < len(core) <= _MAX_CORE:
        rest = _greedy(neighbors, core, logs.tolist(), clock.part(1.0 / 3.0))
        found = order_cost(states, scopes, np.array(stripped + rest, dtype=np.int64), most=_HOPELESS)
        if len(core) > _MAX_CORE:
            sweep = _sweep_estimate(len(states), _star_pairs(scopes), logs)
            if sweep.total_entries < found.total_entries:
                swept = order_cost(states, scopes, sweep.order, most=_HOPELESS)
                found = min(swept, found, key=lambda o: o.total_entries)
            return found
        if found.total_entries <= CHEAP:
            return found
        neighbors = _strip(len(states), scopes, clock)[1]
    from fastmix.exact.greedy import strip_simplicial

    nodes, local = np.array(core, dtype=np.int64), {v: k for k, v in enumerate(core)}
    matrix = np.zeros((len(core), len(core)), dtype=bool)
    for k, v in enumerate(core):
        matrix[k, [local[u] for u in neighbors[v]]] = True
    rows = _pack(matrix)
    simplicial = np.empty(len(core), dtype=np.int64)
    simplicial = simplicial[: strip_simplicial(rows, simplicial)]
    left = np.ones(len(core), dtype=bool)
    left[simplicial] = False
    head = np.concatenate([np.array(stripped, dtype=np.int64), nodes[simplicial]])
    nodes = nodes[left]
    if not len(nodes):
        return order_cost(states, scopes, head)
    rows = _pack(_unpack(rows)[np.ix_(left, left)])
    best = _improve(rows, logs[nodes], clock.part(1 / 3), np.random.default_rng(seed), effort, max_entries)
    if best is None:
        return _sweep_estimate(len(states), _star_pairs(scopes), logs)
    return order_cost(states, scopes, np.concatenate([head, nodes[best]]))


def order_cost(
    num_states: Sequence[int] | IntArray, scopes: Sequence[tuple[int, ...]], order: IntArray, *, most: float = math.inf
) -> Order:
    """The cost of an order: the cliques of elimination, variable by variable.

    The separator of a variable, less its first member, is part of the separator of that first member, so it is handed
    on to it; merging the smaller set into the larger makes this linear in the members of all separators. The rest is
    not looked at beyond ``most`` entries.
    """
    logs = np.log(np.asarray(num_states, dtype=float)).tolist()
    position = np.empty(len(logs), dtype=np.int64)
    position[order] = np.arange(len(logs))
    place = position.tolist()
    handed: dict[int, set[int]] = {}
    for scope in scopes:
        if len(scope) > 1:
            later = {place[v] for v in scope}
            first = min(later)
            later.remove(first)
            _hand_on(handed, first, later)
    logs = [logs[v] for v in order.tolist()]
    total, largest, width = 0.0, 0.0, 0
    for p, own in enumerate(logs):
        separator = handed.pop(p, None)
        if not separator:
            total += math.exp(own)
            largest = max(largest, math.exp(own))
            continue
        entries = math.exp(min(700.0, own + sum([logs[u] for u in separator])))
        total, largest, width = total + entries, max(largest, entries), max(width, len(separator))
        if entries > most:
            return Order(order, total, largest, width, is_exact=False)
        if len(separator) > 1:
            first = min(separator)
            separator.remove(first)
            _hand_on(handed, first, separator)
    return Order(order, float(round(total)) if total < 2**53 else total, largest, width)


def _hand_on(handed: dict[int, set[int]], to: int, members: set[int]) -> None:
    other = handed.get(to)
    if other is None:
        handed[to] = members
    elif len(other) < len(members):
        members |= other
        handed[to] = members
    else:
        other |= members


def _strip(n: int, scopes: Sequence[tuple[int, ...]], clock: Clock = NO_LIMIT) -> tuple[list[int], list[set[int]]]:
    """Isolated variables and trees that hang on the graph, leaves inwards, and the neighbors that are left."""
    neighbors: list[set[int]] = [set() for _ in range(n)]
    for k, scope in enumerate(scopes):
        if k % _CHECK == 0:
            clock.check()
        if len(scope) == 2:
            neighbors[scope[0]].add(scope[1])
            neighbors[scope[1]].add(scope[0])
        elif len(scope) > 2:
            for v in scope:
                neighbors[v].update(scope)
    for v, around in enumerate(neighbors):
        around.discard(v)
    order = [v for v in range(n) if not neighbors[v]]
    stack = [v for v in range(n) if len(neighbors[v]) == 1]
    while stack:
        v = stack.pop()
        order.append(v)
        if neighbors[v]:
            u = neighbors[v].pop()
            neighbors[u].discard(v)
            if len(neighbors[u]) == 1:
                stack.append(u)
            elif not neighbors[u] and u not in stack:
                order.append(u)
    return order, neighbors


def _greedy(neighbors: list[set[int]], core: list[int], logs: list[float], clock: Clock) -> list[int]:
    """The variable of the smallest table first; the neighbors are used up."""
    size = {v: logs[v] + sum([logs[u] for u in neighbors[v]]) for v in core}
    heap = [(s, -logs[v], v) for v, s in size.items()]  # of equal tables the one that leaves the smaller separator
    heapq.heapify(heap)
    order: list[int] = []
    log_hopeless = math.log(_HOPELESS)
    while heap:
        s, _, v = heapq.heappop(heap)
        if size.get(v) != s:
            continue
        del size[v]
        order.append(v)
        if len(order) % 1024 == 0:
            clock.check()
        separator = neighbors[v]
        if s > log_hopeless:
            order += sorted(size, key=size.__getitem__)
            break
        for u in separator:
            around = neighbors[u]
            before = len(around)
            missing = separator - around
            around |= missing
            around.discard(u)
            around.remove(v)
            if len(around) != before:
                size[u] += sum([logs[w] for w in missing if w != u]) - logs[v]
            else:
                size[u] = logs[u] + sum([logs[w] for w in around])
            heapq.heappush(heap, (size[u], -logs[u], u))
    return order


def treewidth_bounds(num_variables: int, edges: ArrayLike) -> tuple[int, int]:
    """A lower and an upper bound on the treewidth, cheaply: a few seconds for a million variables.

    The lower bound is the degeneracy. The upper bound is the width of a greedy order, and for more than 2,000 variables
    beside hanging trees the smallest frontier of four sweeps (a path decomposition).
    """
    n, pairs = check_graph(num_variables, edges)
    found = None
    if n - len(strip_leaves(n, pairs)[0]) <= _MAX_BOUNDED:
        found = find_order([2] * n, [(i, j) for i, j in pairs.tolist()], effort=0.0)
    if found is None or not found.is_exact:
        found = _sweep_estimate(n, pairs, np.full(n, math.log(2.0)))
    return degeneracy(n, pairs), found.width


def _sweep_estimate(n: int, pairs: IntArray, logs: FloatArray) -> Order:
    """The cost from above of four sweeps, by their frontiers: the order given, reverse Cuthill-McKee, and both back."""
    other, best = _cuthill_mckee(n, pairs), None
    for order in (np.arange(n), np.arange(n)[::-1], other, other[::-1]):
        position = np.empty(n, dtype=np.int64)
        position[order] = np.arange(n)
        first = np.arange(n)
        for scope_pairs in (pairs, pairs[:, ::-1]):
            np.minimum.at(first, position[scope_pairs[:, 0]], position[scope_pairs[:, 1]])
        sizes = [np.cumsum(np.bincount(first, weights=w, minlength=n) - w) for w in (logs[order], np.ones(n))]
        tables = np.exp(np.minimum(sizes[0] + logs[order], 690.0))
        estimate = Order(order, float(tables.sum()), float(tables.max()), round(float(sizes[1].max())), False)
        if best is None or (estimate.total_entries, estimate.width) < (best.total_entries, best.width):
            best = estimate
    assert best is not None
    return best


def _star_pairs(scopes: Sequence[tuple[int, ...]]) -> IntArray:
    """A star of pairs for each scope."""
    return np.array([(s[0], v) for s in scopes for v in s[1:]], dtype=np.int64).reshape(-1, 2)


def _improve(
    rows: NDArray[np.uint64],
    logs: FloatArray,
    clock: Clock,
    rng: np.random.Generator,
    effort: float,
    max_entries: float,
) -> IntArray | None:
    """The best order found; None where there is none worth having."""
    from fastmix.exact.greedy import eliminate

    n = len(rows)
    best_total, best = math.inf, None
    runs: list[tuple[float, int, FloatArray]] = []  # what the best runs scored, with what weights and noise
    order = np.empty(n, dtype=np.int64)
    spent, run, last_gain = 0.0, 0, 0
    lower = 0.0  # entries that every order has
    first = [(which, noise * rng.random(n)) for noise in _NOISES for which in range(_BY_RANK)]
    first[1:1] = [(_BY_RANK, np.zeros(0)), (_BY_RANK, np.arange(n, dtype=float))]
    while True:
        if run < len(first):
            which, noise = first[run]
            if not len(noise):  # not needed by a search that ends after one run
                noise = np.empty(n)
                noise[_cuthill_mckee(n, np.argwhere(_unpack(rows)))] = np.arange(n)
        elif run % 4 == 0:
            which, noise = int(rng.integers(_BY_RANK)), rng.choice(_NOISES) * rng.random(n)
        else:
            _, which, noise = runs[int(rng.integers(len(runs)))]
            change = rng.random(n) < rng.choice([0.02, 0.1, 0.4])
            scale = rng.choice([0.3, 1.0, 2.0])
            if which == _BY_RANK:
                noise = noise + np.where(change, scale * 0.1 * n * rng.standard_normal(n), 0.0)
            else:
                noise = np.where(change, scale * rng.random(n), noise)
        limit = runs[-1][0] if len(runs) == _KEPT else _HOPELESS**2
        patience = _WORDS_PER_SECOND * clock.left()
        total = eliminate(rows, logs, noise - 1e-3 * logs, np.array(_SCORES[which]), limit, order, patience)
        run += 1
        spent += n * (0.3e-6 + rows.shape[1] * 0.5e-7)
        if total < limit:
            runs = sorted([*runs, (total, which, noise)], key=lambda item: item[0])[:_KEPT]
            if total < best_total:
                if total < 0.98 * best_total:
                    last_gain = run
                best_total, best = total, order.copy()
        if run == 1 and best_total > CHEAP:
            width = degeneracy(n, np.argwhere(np.triu(_unpack(rows))))
            lower = math.exp(min(700.0, (width + 1) * float(logs.min())))
        if best_total <= 2.0 * lower or (lower > max_entries and best is not None):
            return best  # no order is much better, or none is good enough
        worth = _SECONDS_PER_ENTRY * min(best_total, _HOPELESS)
        budget = min(_SHARE * worth, _MAX_SECONDS) * effort
        far = best_total > min(1e3 * _HOPELESS, _FAR * max_entries)
        if best_total > _HOPELESS**2 or (far and run >= len(first)):
            return best  # no search makes up for so much
        if best_total > max_entries:
            budget = max(budget, min(_MAX_SECONDS, _OVER * worth) - _SECONDS_PER_RUN * run)
        elif run > 2 * len(first) + 2 * last_gain:
            return best
        if best_total <= CHEAP or spent > budget or clock.past():
            return best


def _cuthill_mckee(n: int, pairs: IntArray) -> IntArray:
    """The reverse of a breadth-first order, neighbors of few neighbors first; pairs may be given both ways."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    graph = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    order: IntArray = reverse_cuthill_mckee((graph + graph.T).tocsr(), symmetric_mode=True).astype(np.int64)
    return order


def _pack(matrix: NDArray[Any]) -> NDArray[np.uint64]:
    """Rows of bits, in whole words."""
    n = len(matrix)
    padded = np.zeros((n, -(-n // 64) * 64), dtype=bool)
    padded[:, :n] = matrix
    return np.packbits(padded, axis=1, bitorder="little").view(np.uint64)


def _unpack(rows: NDArray[np.uint64]) -> NDArray[np.uint8]:
    return np.unpackbits(rows.view(np.uint8), axis=1, count=len(rows), bitorder="little")
