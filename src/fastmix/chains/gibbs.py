"""Univariate Gibbs sampling: the engine that picks a kernel for the model and the number of chains."""

from __future__ import annotations

import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fastmix._checks import check_threads
from fastmix._memory import aligned_zeros
from fastmix.chains.engine import Engine, sums_by_state
from fastmix.chains.generator import make_streams
from fastmix.chains.pattern_tables import PatternTables, log_odds, pattern_tables
from fastmix.errors import UnfitMethodError
from fastmix.model import MarkovRandomField
from fastmix.theory.dependency import undefined_conditional

__all__ = ["Gibbs", "check_conditionals", "choose_kernel", "logit_arrays"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Kernel = Literal["table-many", "table-one", "four-one", "logit-one", "random-one", "logit-random", "field-many"]

_TABLE_ENTRIES = 1 << 25  # 128 MiB of thresholds; beyond, conditionals are computed at every update
_MANY_CHAINS = 16  # from here on chains go side by side
_FIELD_CHAINS = 8  # the same for binary variables with many neighbours
_BLOCK = 512  # chains of one block: their numbers and thresholds for one site stay in the first cache
_CHUNK = 8192  # sites that share a stream in a large model
_CHUNKED_SITES = 1 << 16  # from here on the chunks of a colour can be shared between threads
_MOST_COLLECTED = 255  # sweeps whose full units fit into 32 bits: 256 of them would be 2^32, that is 0


def choose_kernel(model: MarkovRandomField, num_chains: int, schedule: str) -> Kernel:
    """The kernel for a model and a number of chains; all give the same configurations where several apply.

    Examples
    --------
    >>> from fastmix.instances import ising_grid
    >>> grid = ising_grid(4, 4, coupling_max=1.0, seed=0)
    >>> choose_kernel(grid, 1, "systematic"), choose_kernel(grid, 1000, "systematic")
    ('four-one', 'table-many')
    """
    tables = model.structure.pattern_entries <= _TABLE_ENTRIES
    if schedule == "random":
        return "random-one" if tables else "logit-random"
    binary = bool((model.num_states == 2).all())
    if not tables:
        side_by_side = num_chains >= _FIELD_CHAINS and binary and not model.has_forbidden
        return "field-many" if side_by_side else "logit-one"
    if num_chains >= _MANY_CHAINS and model.num_variables < _CHUNKED_SITES:
        return "table-many"
    return "four-one" if binary and model.adjacency.max_degree <= 4 else "table-one"


class Gibbs(Engine):
    """Gibbs sweeps on any model.

    A systematic sweep updates every variable once, colour by colour; a random one makes as many updates at variables
    drawn at random.

    Parameters
    ----------
    model : MarkovRandomField
        Without states that a unary forbids.
    num_chains, seed : int
    schedule : {"systematic", "random"}
    estimator : {"rao-blackwell", "counts"}
        What a sweep adds to the sums; a random schedule can only count.
    num_threads : int, optional
        All cores by default; the numbers drawn do not depend on it.
    kernel : str, optional
        Chosen by :func:`choose_kernel`; for tests and benchmarks.
    """

    def __init__(
        self,
        model: MarkovRandomField,
        *,
        num_chains: int,
        seed: int,
        schedule: Literal["systematic", "random"] = "systematic",
        estimator: Literal["rao-blackwell", "counts"] = "rao-blackwell",
        num_threads: int | None = None,
        kernel: Kernel | None = None,
    ) -> None:
        self.model = model
        self.num_chains = num_chains
        self.kernel: Kernel = kernel or choose_kernel(model, num_chains, schedule)
        counts = estimator == "counts" or schedule == "random"
        self.mode = 2 if counts else 1
        self.num_threads = check_threads(num_threads)
        n = model.num_variables
        dtype = np.uint8 if not n or model.num_states.max() <= 256 else np.uint16
        self._collected = 0
        self._x: list[NDArray[Any]]
        self._streams: list[NDArray[np.uint32]]
        self._sums: list[NDArray[np.uint32]]
        self._sums_width = int((model.num_states - 1).sum())
        if self.kernel.startswith(("logit", "field")):
            self._order, _ = model.structure.visit_order
            self._arrays: tuple[Any, ...] = logit_arrays(model) if self.kernel != "field-many" else _field_arrays(model)
            self._classes = np.array([0, n])
        else:
            tables = pattern_tables(model)
            self._order, self._classes = tables.order, tables.class_starts
            self._arrays = _four_arrays(model, tables) if self.kernel == "four-one" else _table_arrays(tables)
            if self.kernel == "four-one":
                self._order = self._order.astype(np.int32)  # a large model is limited by the bytes it reads
        if self._side_by_side:
            cuts = range(0, num_chains, _BLOCK)
            self._blocks = [(first, min(_BLOCK, num_chains - first)) for first in cuts]
            side_dtype = np.float64 if self.kernel == "field-many" else dtype
            self._x = [aligned_zeros((n, width), side_dtype) for _, width in self._blocks]
            self._streams = [make_streams(seed, first, width) for first, width in self._blocks]
            self._sums = [aligned_zeros((self._sums_width, width), np.uint32) for _, width in self._blocks]
        else:
            self._blocks = [(c, 1) for c in range(num_chains)]
            self._chunks = self._make_chunks(n)
            count = len(self._chunks) - 1
            # One more site than the model has: padding neighbours point to it, and it stays 0.
            self._x = [np.zeros(n + 1, dtype=dtype) for _ in range(num_chains)]
            streams = make_streams(seed, 0, num_chains * count).reshape(4, num_chains, count)
            self._streams = list(np.ascontiguousarray(streams.transpose(1, 0, 2)))
            self._sums = [np.zeros(self._sums_width, dtype=np.uint32) for _ in range(num_chains)]
        self._totals = np.zeros((self._sums_width, num_chains))
        self._swept = 0
        self._pool: ThreadPoolExecutor | None = None

    @property
    def _side_by_side(self) -> bool:
        return self.kernel.endswith("many")

    def _make_chunks(self, n: int) -> IntArray:
        """Where chunks of the order begin: one for everything, or pieces of the colours of a large model."""
        if n < _CHUNKED_SITES or self.kernel not in ("four-one", "table-one"):
            return np.array([0, n], dtype=np.int64)
        pieces = [np.arange(a, b, _CHUNK) for a, b in pairwise(self._classes)]
        return np.append(np.concatenate(pieces), n).astype(np.int64)

    # -- the interface ----------------------------------------------------------------------------------------------

    def get_states(self) -> IntArray:
        """Current configurations (num_chains, n)."""
        n = self.model.num_variables
        if self._side_by_side:
            return np.concatenate([x.T for x in self._x]).astype(np.int64)
        return np.array([x[:n] for x in self._x], dtype=np.int64).reshape(self.num_chains, n)

    def set_states(self, states: IntArray) -> None:
        """Start from these configurations (num_chains, n)."""
        for k, (first, width) in enumerate(self._blocks):
            part = states[first : first + width]
            if self._side_by_side:
                self._x[k][...] = part.T
            else:
                self._x[k][: self.model.num_variables] = part[0]

    def get_random_state(self) -> NDArray[np.uint64]:
        """The streams of all chains, flat."""
        return np.concatenate([s.reshape(-1) for s in self._streams]).astype(np.uint64)

    def set_random_state(self, state: NDArray[np.uint64]) -> None:
        """Continue with streams from :meth:`get_random_state`."""
        start = 0
        for streams in self._streams:
            streams[...] = state[start : start + streams.size].reshape(streams.shape).astype(np.uint32)
            start += streams.size

    def advance(self, num_sweeps: int, *, collect: bool) -> None:
        """Run sweeps, and empty the 32-bit sums before they can overflow."""
        while num_sweeps > 0 and self.model.num_variables:
            room = _MOST_COLLECTED - self._collected if collect else num_sweeps
            if room == 0:
                self._empty_sums()
                continue
            count = min(num_sweeps, room)
            self._run(count, self.mode if collect else 0)
            self._collected += count if collect else 0
            num_sweeps -= count

    def take_sums(self) -> FloatArray:
        """Sums of the states since the last call, (entries of log_unary, num_chains)."""
        self._empty_sums()
        sweeps, self._swept = self._swept, 0
        result = sums_by_state(self.model, self._totals, sweeps)
        self._totals[...] = 0
        return result

    # -- inside -----------------------------------------------------------------------------------------------------

    def _empty_sums(self) -> None:
        for (first, width), sums in zip(self._blocks, self._sums, strict=True):
            self._totals[:, first : first + width] += sums.reshape(-1, width)
            sums[...] = 0
        self._swept += self._collected
        self._collected = 0

    def _run(self, num_sweeps: int, mode: int) -> None:
        """Sweeps of every block: blocks in parallel, or, for a large model, the chunks of every colour."""
        if not self._side_by_side and len(self._chunks) > 2:
            for k in range(len(self._blocks)):
                self._run_chunked(k, num_sweeps, mode)
            return
        self._parallel([partial(self._run_block, k, num_sweeps, mode) for k in range(len(self._blocks))])

    def _run_block(self, k: int, num_sweeps: int, mode: int) -> None:
        x, streams, sums = self._x[k], self._streams[k], self._sums[k]
        kernels = _kernels()
        if self.kernel == "table-many":
            kernels.table_many(x, self._order, *self._arrays, streams, sums, num_sweeps, mode)
        elif self.kernel == "field-many":
            kernels.field_many(x, self._order, *self._arrays, streams, sums, num_sweeps, mode)
        elif self.kernel == "random-one":
            kernels.random_one(x, *self._arrays, streams, sums, num_sweeps, mode)
        elif self.kernel.startswith("logit"):
            scan = int(self.kernel == "logit-random")
            kernels.logit_one(x, self._order, scan, *self._arrays, streams, sums, num_sweeps, mode)
        else:
            run = kernels.four_one if self.kernel == "four-one" else kernels.table_one
            run(x, self._order, self._chunks, 0, 1, *self._arrays, streams, sums, num_sweeps, mode)

    def _run_chunked(self, k: int, num_sweeps: int, mode: int) -> None:
        """Sweeps of one large chain, the chunks of every colour shared out among the threads.

        Threads take parts of the order by tickets that run through all sweeps, and wait only until the colours before
        their part are done: large parts first, small ones last, so that nobody waits long for a slower core.
        """
        kernels = _kernels()

        run = kernels.four_one if self.kernel == "four-one" else kernels.table_one
        static = (*self._arrays, self._streams[k], self._sums[k])
        x, last = self._x[k], len(self._chunks) - 1
        if self.num_threads == 1:
            run(x, self._order, self._chunks, 0, last, *static, num_sweeps, mode)
            return
        parts, before = self._parts
        tickets, stopped = itertools.count(), False
        done: list[None] = []  # as long as there are parts that were finished

        def work() -> None:
            nonlocal stopped
            try:
                while not stopped and (ticket := next(tickets)) < num_sweeps * len(parts):
                    sweep, place = divmod(ticket, len(parts))
                    while len(done) < sweep * len(parts) + before[place] and not stopped:
                        time.sleep(0)  # a fraction of a millisecond: sleeping threads would take as long to wake up
                    if not stopped:
                        run(x, self._order, self._chunks, *parts[place], *static, 1, mode)
                        done.append(None)
            except BaseException:
                stopped = True
                raise

        self._parallel([work] * self.num_threads)

    @cached_property
    def _parts(self) -> tuple[list[tuple[int, int]], list[int]]:
        """Ranges of chunks that threads take at a time, for one sweep; and how many must be done before each."""
        parts: list[tuple[int, int]] = []
        before: list[int] = []
        for first, last in pairwise(np.searchsorted(self._chunks, self._classes).tolist()):
            earlier, begin = len(parts), first
            while begin < last:
                end = begin + max(1, math.ceil((last - begin) / (2 * self.num_threads)))
                parts.append((begin, end))
                before.append(earlier)
                begin = end
        return parts, before

    def _parallel(self, tasks: Sequence[Callable[[], object]]) -> None:
        if self.num_threads == 1 or len(tasks) == 1:
            for task in tasks:
                task()
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.num_threads - 1)
        waiting = deque(tasks)

        def work() -> None:
            while waiting:
                try:
                    task = waiting.popleft()
                except IndexError:  # another thread was faster
                    return
                task()

        # This thread works too: with the few tasks of a large model the other one is already awake.
        futures = [self._pool.submit(work) for _ in range(min(self.num_threads, len(tasks)) - 1)]
        try:
            work()
            for done in futures:
                done.result()
        finally:
            waiting.clear()
            wait(futures)  # also after Ctrl-C: states must not be read while threads write them


def _kernels() -> Any:
    """The compiled kernels, imported when first needed: importing Numba takes half a second."""
    from fastmix.chains import gibbs_kernels

    return gibbs_kernels


def _table_arrays(tables: PatternTables) -> tuple[Any, ...]:
    return (
        tables.indptr, tables.neighbors, tables.strides.astype(np.uint32), tables.cuts.astype(np.uint32),
        tables.starts, tables.table, tables.sum_starts,
    )  # fmt: skip


def _four_arrays(model: MarkovRandomField, tables: PatternTables) -> tuple[Any, ...]:
    """Neighbours (n, 4), padded in front by the site n, and thresholds (n, 16), in the order of a sweep."""
    n, degree = model.num_variables, model.adjacency.degree
    around = np.full((n, 4), n, dtype=np.int32)
    table = np.zeros((n, 16), dtype=np.uint32)
    for d in range(5):
        sites = np.flatnonzero(degree == d)
        if sites.size:
            around[sites, 4 - d :] = tables.neighbors[tables.indptr[sites][:, None] + np.arange(d)]
            table[sites, : 2**d] = tables.table[tables.starts[sites][:, None] + np.arange(2**d)]
    return around[tables.order], table[tables.order]


def logit_arrays(model: MarkovRandomField) -> tuple[Any, ...]:
    """Neighbors with the place and the steps of their tables, for both directions of every edge."""
    graph, directed = model.adjacency, model.structure.directed
    cuts = np.cumsum(model.num_states - 1) - (model.num_states - 1)
    return (
        graph.indptr, graph.neighbors, directed.starts, directed.own_steps, directed.other_steps,
        model.log_pairwise.copy(), model.unary_offsets[:-1].copy(), model.log_unary.copy(), model.num_states.copy(),
        cuts,
    )  # fmt: skip


def _field_arrays(model: MarkovRandomField) -> tuple[Any, ...]:
    """Neighbours, and the log-odds of state 1 as a linear function of their states, for binary models.

    Variables have four neighbours or a multiple of it: some of weight 0 are added, so that one loop does for all.
    """
    adjacency, owner = model.adjacency, model.structure.directed.owner
    unary, odds = log_odds(model)
    offsets = unary + np.bincount(owner, odds[:, 0], minlength=model.num_variables)
    padded = 4 * np.maximum(1, -(-adjacency.degree // 4))
    indptr = np.concatenate([[0], np.cumsum(padded)])
    places = np.arange(owner.size) + (indptr[:-1] - adjacency.indptr[:-1])[owner]
    neighbors, weights = np.zeros(indptr[-1], dtype=np.int64), np.zeros(indptr[-1])
    neighbors[places], weights[places] = adjacency.neighbors, odds[:, 1] - odds[:, 0]
    return indptr, neighbors, weights, offsets


def check_conditionals(model: MarkovRandomField) -> None:
    """Refuse a model on which updates of single variables are undefined, or provably cannot reach everything.

    Undefined: some states of the neighbours forbid every state of a variable, reached or not, see
    :func:`fastmix.theory.dependency.undefined_conditional`. Out of reach: the allowed pairs of an edge fall into groups
    without a common row or column, so that no single update leads from one to another. Groups that only several edges
    together keep apart are not found.

    Raises
    ------
    UnfitMethodError
        With the edge that keeps groups apart, or the variable whose conditional distribution is undefined.
    """
    if not model.has_forbidden:
        return
    _check_groups(model)
    if (undefined := undefined_conditional(model)) is not None:
        raise UnfitMethodError(
            f"Gibbs sampling is undefined: {undefined[1]}; use exact inference or loopy belief propagation"
        )


def _check_groups(model: MarkovRandomField) -> None:
    hard = np.flatnonzero(np.minimum.reduceat(model.log_pairwise, model.pairwise_offsets[:-1]) == -np.inf)
    counts: dict[tuple[bytes, int], int] = {}  # many edges share a table
    for e in hard.tolist():
        i, j = model.edges[e].tolist()
        allowed = model.log_pairwise[model.pairwise_offsets[e] : model.pairwise_offsets[e + 1]] > -np.inf
        key = (allowed.tobytes(), int(model.num_states[j]))
        if key not in counts:
            counts[key] = _num_groups(allowed.reshape(model.num_states[i], model.num_states[j]))
        if counts[key] > 1:
            names = model.variable_names
            edge = f"({i}, {j})" if names is None else f"({names[i]!r}, {names[j]!r})"
            raise UnfitMethodError(
                f"Gibbs sampling cannot reach every configuration: the forbidden pairs of edge {edge} split its states "
                f"into {counts[key]} groups, and an update of one variable never leads from one to another; use exact "
                "inference or loopy belief propagation"
            )


def _num_groups(allowed: NDArray[np.bool_]) -> int:
    """Groups of allowed pairs that share rows or columns, directly or through others."""
    rows = np.flatnonzero(allowed.any(axis=1)).tolist()
    groups = 0
    while rows:
        groups += 1
        reached = allowed[rows[0]]
        while True:
            grown = allowed[(allowed & reached).any(axis=1)].any(axis=0)
            if np.array_equal(grown, reached):
                break
            reached = grown
        rows = [r for r in rows if not (allowed[r] & reached).any()]
    return groups
