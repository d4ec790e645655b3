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
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix.exact.tuning import (
    CHANGE_SCALES,
    CHANGED_SHARES,
    CHEAP_ENTRIES,
    FAR_RATIO,
    HOPELESS_ENTRIES,
    LOST_RATIO,
    MAX_BITSET_CORE,
    MAX_BOUNDED_CORE,
    MAX_CANDIDATE_ORDERS,
    MAX_SEARCH_SECONDS,
    MIN_SWEEP_CORE,
    NOISE_SIZES,
    SCOPES_PER_CLOCK_CHECK,
    SCORE_WEIGHTS,
    SEARCH_SHARE,
    SEARCH_SHARE_OVER_LIMIT,
    SECONDS_PER_CLIQUE_ENTRY,
    SECONDS_PER_RUN,
    SECONDS_PER_RUN_VARIABLE,
    SECONDS_PER_RUN_WORD,
    SMALL_CORE,
    TIE_SIZE,
    VARIABLES_PER_CLOCK_CHECK,
    WORDS_PER_SECOND,
)
from fastmix.graphs import degeneracy
from fastmix.graphs.edges import check_graph
from fastmix.graphs.trees import strip_leaves

__all__ = ["EliminationOrder", "find_order", "order_cost", "treewidth_bounds"]


# Logs of entries beyond which they are taken to be this large: exp of more is no finite number.
_LARGEST_LOG = 700.0
_LARGEST_SWEPT_LOG = 690.0  # of tables that are then added up
_BY_RANK = len(SCORE_WEIGHTS) - 1  # row of weights 0: an order given by the ranks of its noise


class EliminationOrder(NamedTuple):
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
) -> EliminationOrder:
    """A cheap order of elimination of the variables of some factors, given by their state counts and scopes.

    At most a third of what is left of the clock is used. The budget, times ``effort``, is counted in operations, so
    that the order does not depend on the machine; above ``max_entries``, what the caller can take, the search goes on
    longer. A greedy run takes ``O(n log n)`` on sparse graphs; a run of the search, compiled, about a microsecond per
    variable and neighbor.

    1. Eliminate the trees that hang on the graph. What is left is the core.
    2. Order a core that is small, or too large to be searched, by one greedy run.
    3. Eliminate the simplicial variables of any other core, which is optimal.
    4. Search for an order of the rest.
    """
    states = np.asarray(num_states, dtype=np.int64)
    logs = np.log(states.astype(float))
    clock.check()
    # 1. Hanging trees.
    stripped, neighbors = _strip(len(states), scopes, clock)
    core = []
    if len(stripped) < len(states):
        core = [v for v in range(len(states)) if neighbors[v]]
    if len(core) > MIN_SWEEP_CORE:
        estimate = _sweep_estimate(len(states), _star_pairs(scopes), logs)
        if estimate.total_entries > HOPELESS_ENTRIES:
            return estimate
    if not core:
        return order_cost(states, scopes, np.array(stripped, dtype=np.int64))
    # 2. One greedy run.
    if not SMALL_CORE < len(core) <= MAX_BITSET_CORE:
        rest = _greedy(neighbors, core, logs.tolist(), clock.part(1.0 / 3.0))
        found = order_cost(states, scopes, np.array(stripped + rest, dtype=np.int64), most=HOPELESS_ENTRIES)
        if len(core) > MAX_BITSET_CORE:
            return _better_of_sweep(found, states, scopes, logs)
        if found.total_entries <= CHEAP_ENTRIES:
            return found
        neighbors = _strip(len(states), scopes, clock)[1]  # anew: the greedy run used them up
    # 3. Simplicial variables.
    rows = _rows_of_bits(neighbors, core)
    simplicial, rest_of_core, rows = _strip_simplicial(rows)
    nodes = np.array(core, dtype=np.int64)
    head = np.concatenate([np.array(stripped, dtype=np.int64), nodes[simplicial]])
    nodes = nodes[rest_of_core]
    if not len(nodes):
        return order_cost(states, scopes, head)
    # 4. The search.
    search = _GreedySearch(
        rows, logs[nodes], clock.part(1 / 3), np.random.default_rng(seed), effort=effort, max_entries=max_entries
    )
    best = search.run()
    if best is None:
        return _sweep_estimate(len(states), _star_pairs(scopes), logs)
    return order_cost(states, scopes, np.concatenate([head, nodes[best]]))


def _better_of_sweep(
    found: EliminationOrder, states: IntArray, scopes: Sequence[tuple[int, ...]], logs: FloatArray
) -> EliminationOrder:
    """The order given, or that of a sweep over the graph if it has fewer entries."""
    sweep = _sweep_estimate(len(states), _star_pairs(scopes), logs)
    if sweep.total_entries >= found.total_entries:
        return found
    swept = order_cost(states, scopes, sweep.order, most=HOPELESS_ENTRIES)
    return min(swept, found, key=lambda order: order.total_entries)


def _rows_of_bits(neighbors: list[set[int]], core: list[int]) -> NDArray[np.uint64]:
    """The graph of a core, as a row of bits for each of its variables, in their order."""
    local = {v: k for k, v in enumerate(core)}
    matrix = np.zeros((len(core), len(core)), dtype=bool)
    for k, v in enumerate(core):
        matrix[k, [local[u] for u in neighbors[v]]] = True
    return _pack(matrix)


def _strip_simplicial(rows: NDArray[np.uint64]) -> tuple[IntArray, NDArray[np.bool_], NDArray[np.uint64]]:
    """Variables whose neighbors are all joined, in order of elimination, a mask of the others, and the graph of these.

    Eliminating simplicial variables first is optimal. Rows of bits are whole numbers of Python here: most variables are
    seen not to be simplicial at their first neighbor, which takes less time than a compiler.
    """
    around = [int.from_bytes(row.tobytes(), "little") for row in rows]
    simplicial: list[int] = []
    stack = list(range(len(rows)))
    is_waiting = [True] * len(rows)
    left = np.ones(len(rows), dtype=bool)
    while stack:
        v = stack.pop()
        is_waiting[v] = False
        if not left[v] or not _is_clique(around, v):
            continue
        simplicial.append(v)
        left[v] = False
        # Its neighbors, which are all joined, lose it, and may have become simplicial.
        for u in _members(around[v]):
            around[u] &= ~(1 << v)
            if not is_waiting[u]:
                is_waiting[u] = True
                stack.append(u)
    order = np.array(simplicial, dtype=np.int64)
    return order, left, _pack(_unpack(rows)[np.ix_(left, left)])


def _members(bits: int) -> Iterator[int]:
    """The places of the bits set in a whole number, rising."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def _is_clique(around: list[int], v: int) -> bool:
    """Whether all neighbors of v are joined to each other."""
    return all(around[v] & ~around[u] == 1 << u for u in _members(around[v]))


def order_cost(
    num_states: Sequence[int] | IntArray, scopes: Sequence[tuple[int, ...]], order: IntArray, *, most: float = math.inf
) -> EliminationOrder:
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
    total = 0.0
    largest = 0.0
    width = 0
    for p, own in enumerate(logs):
        separator = handed.pop(p, None)
        if not separator:
            total += math.exp(own)
            largest = max(largest, math.exp(own))
            continue
        entries = math.exp(min(_LARGEST_LOG, own + sum([logs[u] for u in separator])))
        total += entries
        largest = max(largest, entries)
        width = max(width, len(separator))
        if entries > most:
            return EliminationOrder(order, total, largest, width, is_exact=False)
        if len(separator) > 1:
            first = min(separator)
            separator.remove(first)
            _hand_on(handed, first, separator)
    if total < 2**53:  # a whole number, but for the rounding of exp
        total = float(round(total))
    return EliminationOrder(order, total, largest, width)


def _hand_on(handed: dict[int, set[int]], to: int, members: set[int]) -> None:
    """Add ``members`` to the separator of the variable at place ``to``: the smaller set is merged into the larger."""
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
        if k % SCOPES_PER_CLOCK_CHECK == 0:
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
    """An order of a core, the variable of the smallest clique table first; ``neighbors`` are used up."""
    size = {v: logs[v] + sum([logs[u] for u in neighbors[v]]) for v in core}
    heap = [(s, -logs[v], v) for v, s in size.items()]  # of equal tables the one that leaves the smaller separator
    heapq.heapify(heap)
    order: list[int] = []
    log_hopeless = math.log(HOPELESS_ENTRIES)
    while heap:
        s, _, v = heapq.heappop(heap)
        if size.get(v) != s:
            continue
        del size[v]
        order.append(v)
        if len(order) % VARIABLES_PER_CLOCK_CHECK == 0:
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

    Parameters
    ----------
    num_variables : int
    edges : int array (m, 2)
        Pairs (i, j) with i < j, each once.

    Raises
    ------
    ModelError
        If an edge has a variable that does not exist, or is not written with i < j.

    Examples
    --------
    >>> treewidth_bounds(4, [(0, 1), (0, 3), (1, 2), (2, 3)])
    (2, 2)
    """
    n, pairs = check_graph(num_variables, edges)
    found = None
    if n - len(strip_leaves(n, pairs)[0]) <= MAX_BOUNDED_CORE:
        found = find_order([2] * n, [(i, j) for i, j in pairs.tolist()], effort=0.0)
    if found is None or not found.is_exact:
        found = _sweep_estimate(n, pairs, np.full(n, math.log(2.0)))
    return degeneracy(n, pairs), found.width


def _sweep_estimate(n: int, pairs: IntArray, logs: FloatArray) -> EliminationOrder:
    """The best of four sweeps and its cost from above, by their frontiers.

    The sweeps are the order of the numbers, that of reverse Cuthill-McKee, and both backwards.
    """
    cuthill_mckee = _cuthill_mckee(n, pairs)
    orders = [np.arange(n), np.arange(n)[::-1], cuthill_mckee, cuthill_mckee[::-1]]
    estimates = [_frontier_cost(order, pairs, logs) for order in orders]
    return min(estimates, key=lambda estimate: (estimate.total_entries, estimate.width))


def _frontier_cost(order: IntArray, pairs: IntArray, logs: FloatArray) -> EliminationOrder:
    """The cost of an order from above: each clique is the variable with the whole frontier of the sweep."""
    n = len(order)
    position = np.empty(n, dtype=np.int64)
    position[order] = np.arange(n)
    # The place from which on a variable is in the frontier: its own, or that of its first neighbor.
    first = np.arange(n)
    for ends in (pairs, pairs[:, ::-1]):
        np.minimum.at(first, position[ends[:, 0]], position[ends[:, 1]])
    frontier_logs = _frontier_sums(first, logs[order])
    frontier_sizes = _frontier_sums(first, np.ones(n))
    tables = np.exp(np.minimum(frontier_logs + logs[order], _LARGEST_SWEPT_LOG))
    return EliminationOrder(order, float(tables.sum()), float(tables.max()), round(float(frontier_sizes.max())), False)


def _frontier_sums(first: IntArray, weights: FloatArray) -> FloatArray:
    """Sums of the weights in the frontier at each place of a sweep; each variable enters at ``first``."""
    return np.cumsum(np.bincount(first, weights=weights, minlength=len(first)) - weights)


def _star_pairs(scopes: Sequence[tuple[int, ...]]) -> IntArray:
    """Pairs of the first variable of each scope with each of its others."""
    return np.array([(s[0], v) for s in scopes for v in s[1:]], dtype=np.int64).reshape(-1, 2)


class _Attempt(NamedTuple):
    """Settings of a greedy run: the row of its weights in ``SCORE_WEIGHTS``, and the noise of its scores."""

    kind: int
    noise: FloatArray


class _GreedySearch:
    """The search for an order of a graph, given as rows of bits, by greedy runs.

    After one run of each kind with each size of noise, three runs of four change the noise of one of the best runs, and
    the fourth begins anew.
    """

    def __init__(
        self,
        rows: NDArray[np.uint64],
        logs: FloatArray,
        clock: Clock,
        rng: np.random.Generator,
        *,
        effort: float,
        max_entries: float,
    ) -> None:
        self.rows = rows
        self.logs = logs
        self.clock = clock
        self.rng = rng
        self.effort = effort
        self.max_entries = max_entries
        self.num_runs = 0
        self.last_gain = 0  # the run that last gained 2 % or more
        self.seconds = 0.0  # counted, not measured
        self.least_entries = 0.0  # entries that every order has
        self.best_total = math.inf
        self.best_order: IntArray | None = None
        self.best_runs: list[tuple[float, _Attempt]] = []  # with their entries, ascending
        n = len(rows)
        self.first_attempts = [
            _Attempt(kind, noise * rng.random(n)) for noise in NOISE_SIZES for kind in range(_BY_RANK)
        ]
        # No noise stands for the ranks of Cuthill-McKee, which a search that ends after one run does not need.
        by_rank = [_Attempt(_BY_RANK, np.zeros(0)), _Attempt(_BY_RANK, np.arange(n, dtype=float))]
        self.first_attempts[1:1] = by_rank

    def run(self) -> IntArray | None:
        """The best order found; None where there is none worth having."""
        while True:
            self._try(self._next_attempt())
            if self.num_runs == 1 and self.best_total > CHEAP_ENTRIES:
                width = degeneracy(len(self.rows), np.argwhere(np.triu(_unpack(self.rows))))
                self.least_entries = math.exp(min(_LARGEST_LOG, (width + 1) * float(self.logs.min())))
            if self._is_done():
                return self.best_order

    def _next_attempt(self) -> _Attempt:
        """The weights and the noise of the next run."""
        n = len(self.rows)
        rng = self.rng
        if self.num_runs < len(self.first_attempts):
            attempt = self.first_attempts[self.num_runs]
            if not len(attempt.noise):
                ranks = np.empty(n)
                ranks[_cuthill_mckee(n, np.argwhere(_unpack(self.rows)))] = np.arange(n)
                attempt = _Attempt(_BY_RANK, ranks)
            return attempt
        if self.num_runs % 4 == 0:
            kind = int(rng.integers(_BY_RANK))
            return _Attempt(kind, rng.choice(NOISE_SIZES) * rng.random(n))
        _, (kind, noise) = self.best_runs[int(rng.integers(len(self.best_runs)))]
        changed = rng.random(n) < rng.choice(CHANGED_SHARES)
        scale = rng.choice(CHANGE_SCALES)
        if kind == _BY_RANK:
            return _Attempt(kind, noise + np.where(changed, scale * 0.1 * n * rng.standard_normal(n), 0.0))
        return _Attempt(kind, np.where(changed, scale * rng.random(n), noise))

    def _try(self, attempt: _Attempt) -> None:
        """Do a run, and keep it if it is one of the best."""
        from fastmix.exact.greedy_kernels import eliminate

        n, num_words = self.rows.shape
        order = np.empty(n, dtype=np.int64)
        limit = self.best_runs[-1][0] if len(self.best_runs) == MAX_CANDIDATE_ORDERS else HOPELESS_ENTRIES**2
        patience = WORDS_PER_SECOND * self.clock.left()
        noise = attempt.noise - TIE_SIZE * self.logs
        total = eliminate(self.rows, self.logs, noise, np.array(SCORE_WEIGHTS[attempt.kind]), limit, order, patience)
        self.num_runs += 1
        self.seconds += n * (SECONDS_PER_RUN_VARIABLE + num_words * SECONDS_PER_RUN_WORD)
        if total < limit:
            self.best_runs = sorted([*self.best_runs, (total, attempt)], key=lambda run: run[0])[:MAX_CANDIDATE_ORDERS]
            if total < self.best_total:
                if total < 0.98 * self.best_total:
                    self.last_gain = self.num_runs
                self.best_total = total
                self.best_order = order

    def _is_done(self) -> bool:
        """Whether another run is not worth its time, or there is no time for it."""
        best = self.best_total
        if best <= 2.0 * self.least_entries:
            return True  # no order is much better
        if self.least_entries > self.max_entries and self.best_order is not None:
            return True  # none is good enough
        num_first = len(self.first_attempts)
        far = best > min(1e3 * HOPELESS_ENTRIES, FAR_RATIO * self.max_entries)
        if best > min(HOPELESS_ENTRIES**2, LOST_RATIO * self.max_entries) and self.num_runs >= num_first:
            return True  # no search makes up for so much
        has_stalled = self.num_runs > 2 * num_first + 2 * self.last_gain
        if far and has_stalled:
            return True  # nor one that has come to a halt so far from there
        worth = SECONDS_PER_CLIQUE_ENTRY * min(best, HOPELESS_ENTRIES)
        budget = min(SEARCH_SHARE * worth, MAX_SEARCH_SECONDS) * self.effort
        if best > self.max_entries:
            budget = max(
                budget, min(MAX_SEARCH_SECONDS, SEARCH_SHARE_OVER_LIMIT * worth) - SECONDS_PER_RUN * self.num_runs
            )
        elif has_stalled:
            return True
        return best <= CHEAP_ENTRIES or self.seconds > budget or self.clock.past()


def _cuthill_mckee(n: int, pairs: IntArray) -> IntArray:
    """The reverse of a breadth-first order, neighbors of few neighbors first; pairs may be given both ways."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    graph = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    both_ways = (graph + graph.T).tocsr()
    order: IntArray = reverse_cuthill_mckee(both_ways, symmetric_mode=True).astype(np.int64)
    return order


def _pack(matrix: NDArray[Any]) -> NDArray[np.uint64]:
    """The rows of a square matrix of 0 and 1 as bits, in whole words."""
    n = len(matrix)
    padded = np.zeros((n, -(-n // 64) * 64), dtype=bool)
    padded[:, :n] = matrix
    return np.packbits(padded, axis=1, bitorder="little").view(np.uint64)


def _unpack(rows: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """The square matrix of 0 and 1 that rows of bits stand for."""
    return np.unpackbits(rows.view(np.uint8), axis=1, count=len(rows), bitorder="little")
