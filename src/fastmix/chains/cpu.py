"""Gibbs chains on the CPU: the kernel for a structure and a number of chains, configurations, threads and sums."""

from __future__ import annotations

import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix._checks import check_threads
from fastmix._memory import aligned_zeros
from fastmix.chains.base import Chains, Exchanges, sums_by_state
from fastmix.chains.generator import make_streams
from fastmix.chains.layout import Layout, ParameterSets, tables_fit
from fastmix.chains.patches import Patch, whole_patch
from fastmix.model.build import offsets_of
from fastmix.model.structure import Structure

__all__ = ["CpuChains", "HostChains", "choose_kernel"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Kernel = Literal["table", "four", "field", "product"]

_SIDE_BY_SIDE = 8  # configurations from which on they go side by side
_MANY_FOUR = 16  # the same where a single one has a kernel of its own
_BLOCK = 512  # chains of one block: their numbers and thresholds for one site stay in the first cache
_LARGE = 1 << 16  # variables from which on configurations do not fit into a cache side by side
_MOST_COLLECTED = 255  # sweeps whose full units fit into 32 bits: 256 of them would be 2^32, that is 0


class HostChains(Chains):
    """What is read from configurations in the memory of the host, wherever they come from."""

    sets = ParameterSets.of(np.zeros((1, 0)))  # until some are loaded
    layout: Layout

    def _lanes(self) -> NDArray[Any]:
        """Configurations (n, K * C), not to be changed."""
        raise NotImplementedError

    def _put(self, lanes: NDArray[Any]) -> None:
        """Go on from configurations (n, K * C)."""
        raise NotImplementedError

    def get_states(self) -> IntArray:
        """Current configurations (K * C, n)."""
        return self._lanes().T.astype(np.int64)

    def set_states(self, states: NDArray[Any]) -> None:
        """Go on from these configurations (K * C, n)."""
        self._put(np.asarray(states).T)

    def get_top_states(self) -> IntArray:
        """Configurations (C, n) at the last set, that of the target."""
        return self._lanes()[:, -self.num_chains :].T.astype(np.int64)

    def save(self) -> NDArray[Any]:
        """A copy of the configurations for :meth:`restore`."""
        return self._lanes().copy()

    def restore(self, saved: NDArray[Any]) -> None:
        """Go back to the configurations that :meth:`save` returned."""
        self._put(saved)

    def take(self, chosen: IntArray) -> None:
        """Let configuration i be that of ``chosen[i]`` (K * C,)."""
        self._put(self._lanes()[:, chosen])

    # -- energies ---------------------------------------------------------------------------------------------------

    def energies(self, thetas: ArrayLike | None = None) -> FloatArray:
        """``thetas[d] @ f(x)`` of every configuration, (D, K * C); those loaded by default, in single precision."""
        lanes = self._lanes()
        if thetas is None:
            return self._loaded_energies(lanes)
        return self._energies(lanes, np.atleast_2d(np.asarray(thetas, dtype=np.float64)), self._whole)

    def _energies(self, lanes: NDArray[Any], thetas: FloatArray, patch: Patch) -> FloatArray:
        from fastmix.chains.reading_kernels import add_energies

        structure, result = self.structure, np.zeros((len(thetas), lanes.shape[1]))
        split = int(structure.unary_offsets[-1])
        for theta, out in zip(thetas, result, strict=True):
            add_energies(
                lanes, structure.num_states, structure.edges, structure.unary_offsets, theta[:split],
                structure.pairwise_offsets, theta[split:], patch.variables, patch.edges, out,
            )  # fmt: skip
        return result

    def _loaded_energies(self, lanes: NDArray[Any]) -> FloatArray:
        if not (self.structure.num_states == 2).all():
            return self._energies(lanes, self.sets.thetas, self._whole)
        from fastmix.chains.reading_kernels import binary_energies

        out = np.empty((len(self.sets.thetas), lanes.shape[1]))
        binary_energies(lanes, *self._binary_terms, np.empty(out.shape, dtype=np.float32), out)
        return out

    @property
    def _binary_terms(self) -> tuple[NDArray[Any], ...]:
        """The loaded thetas of a binary model as quadratic functions of states, kept while they are loaded."""
        if self._terms is not None and self._terms[0] is self.sets.thetas:
            return self._terms[1]
        structure, thetas = self.structure, self.sets.thetas
        n, edges, split = structure.num_variables, structure.edges, int(structure.unary_offsets[-1])
        tables = thetas[:, split:].reshape(len(thetas), -1, 2, 2)
        zero, row, col = tables[..., 0, 0], tables[..., 1, 0], tables[..., 0, 1]
        linear = thetas[:, 1:split:2] - thetas[:, :split:2]
        for d in range(len(thetas)):
            linear[d] += np.bincount(edges[:, 0], row[d] - zero[d], minlength=n)
            linear[d] += np.bincount(edges[:, 1], col[d] - zero[d], minlength=n)
        weights = tables[..., 1, 1] - row - col + zero
        constants = thetas[:, :split:2].sum(axis=1) + zero.sum(axis=1)
        terms = (
            linear.astype(np.float32), weights.any(axis=1), np.searchsorted(edges[:, 0], np.arange(n + 1)),
            edges[:, 1].astype(np.int32), np.ascontiguousarray(weights, dtype=np.float32), constants,
        )  # fmt: skip
        self._terms = thetas, terms
        return terms

    _terms: tuple[FloatArray, tuple[NDArray[Any], ...]] | None = None

    # -- moments ----------------------------------------------------------------------------------------------------

    @cached_property
    def _whole(self) -> Patch:
        return whole_patch(self.structure)

    def moments(self, weights: FloatArray | None = None) -> FloatArray:
        """Mean over the configurations of ``weight * f(x)``, (P,); plain means without weights (K * C,)."""
        lanes, split = self._lanes(), int(self.structure.unary_offsets[-1])
        result = np.empty(split + int(self.structure.pairwise_offsets[-1]))
        values = np.ones(lanes.shape[1]) if weights is None else weights
        self._count(lanes, self._whole, values, result[:split], result[split:])
        result /= lanes.shape[1]
        return result

    def covariances(self, theta: FloatArray, patches: Sequence[Patch]) -> FloatArray:
        """Covariance over the configurations of every indicator with ``theta @ f(x)``, (P,)."""
        structure, lanes, split = self.structure, self._lanes(), int(self.structure.unary_offsets[-1])
        result, sums = np.empty(len(theta)), np.empty(split)
        for patch in patches:
            self.clock.check()
            [energies] = self._energies(lanes, theta[None], patch)
            energies -= energies.mean()
            self._count(lanes, patch, energies, sums, result[split:])
            core = patch.core_variables
            counts = structure.num_states[core]
            first = np.repeat(structure.unary_offsets[core] - offsets_of(counts)[:-1], counts)
            entries = first + np.arange(counts.sum())
            result[entries] = sums[entries]
        result /= lanes.shape[1] - 1  # unbiased: the mean is estimated too
        return result

    def _count(
        self, lanes: NDArray[Any], patch: Patch, weights: FloatArray, unary: FloatArray, tables: FloatArray
    ) -> None:
        from fastmix.chains.reading_kernels import weighted_counts

        structure = self.structure
        weighted_counts(
            lanes, structure.num_states, structure.edges, structure.unary_offsets, structure.pairwise_offsets,
            patch.ends, patch.core_edges, weights, unary, tables,
        )  # fmt: skip

    def add_pairs(self, out: FloatArray, *, average: bool) -> None:
        """Add conditional probabilities of the pairs on every edge, or the present pairs, to ``out``."""
        from fastmix.chains.reading_kernels import average_pairs, count_pairs

        rows, structure = np.ascontiguousarray(self._lanes()[:, -self.num_chains :].T), self.structure
        if average:
            average_pairs(rows, self.layout.log_arrays(self.sets), self.num_sets - 1, out)
        else:
            count_pairs(rows, structure.edges, structure.num_states, structure.pairwise_offsets, out)


def choose_kernel(
    structure: Structure,
    num_chains: int,
    *,
    num_sets: int = 1,
    schedule: str = "systematic",
    forbidden: bool = False,
    steady: bool = True,
) -> Kernel:
    """The kernel for a structure and numbers of chains and parameter sets.

    Examples
    --------
    >>> from fastmix.instances import ising_grid
    >>> grid = ising_grid(4, 4, coupling_max=1.0, seed=0).structure
    >>> choose_kernel(grid, 1), choose_kernel(grid, 1000)
    ('four', 'table')
    """
    if schedule == "random":
        return "product"
    binary, large = bool((structure.num_states == 2).all()), structure.num_variables >= _LARGE
    four = binary and num_sets == 1 and structure.adjacency.max_degree <= 4
    if four and (num_chains < _MANY_FOUR or large):
        return "four"
    fit = tables_fit(structure, num_sets=num_sets, num_chains=None if steady else num_chains)
    many = num_chains * num_sets >= _SIDE_BY_SIDE
    if fit and (num_sets > 1 or (many and not large)):
        return "table"
    return "field" if binary and many and not (fit or forbidden) else "product"


@dataclass(eq=False)
class _Replicas:
    """Where the replicas of some ladders are, and what their exchanges have added up."""

    sums: FloatArray
    carrier: IntArray
    heading: NDArray[np.uint8]
    trips: IntArray

    @classmethod
    def of(cls, num_sets: int, width: int) -> _Replicas:
        carrier = np.repeat(np.arange(num_sets), width)
        heading, trips = np.zeros(num_sets * width, dtype=np.uint8), np.zeros(width, dtype=np.int64)
        return cls(np.zeros((6, num_sets - 1, width)), carrier, heading, trips)


@dataclass(eq=False)
class _Block:
    """Some chains side by side; lane ``k * width + c`` is chain ``first + c`` at set k."""

    first: int
    width: int
    x: NDArray[Any]
    rung: NDArray[np.uint32]
    streams: NDArray[np.uint32]
    sums: NDArray[np.uint32]
    replicas: _Replicas


class CpuChains(HostChains):
    """Gibbs sweeps of any model on the CPU.

    A systematic sweep updates every variable once, color by color; a random one makes as many updates at variables
    drawn at random.

    Parameters
    ----------
    structure : Structure
    num_chains, seed : int
    num_sets : int
        Sets of parameters side by side. Parameters must be loaded before the first sweep, without states that a unary
        forbids.
    schedule : {"systematic", "random"}
    estimator : {"rao-blackwell", "counts"}
        What a sweep adds to the sums; a random schedule can only count.
    num_threads : int, optional
        All cores by default; the numbers drawn do not depend on it.
    forbidden : bool
        Whether some parameters are -inf.
    steady : bool
        False if the parameters change after every few sweeps: tables then have to be worth filling.
    kernel : str, optional
        Chosen by :func:`choose_kernel`; for tests and benchmarks.

    Examples
    --------
    >>> from fastmix import MarkovRandomField
    >>> model = MarkovRandomField.ising([(0, 1)], coupling=0.5, field=[0.3, 0.0])
    >>> chains = CpuChains(model.structure, num_chains=1000, seed=0)
    >>> chains.load(model.parameters)
    >>> chains.sweep(20)
    >>> bool(abs(chains.moments()[1] - 0.632) < 0.05)
    True
    """

    def __init__(
        self,
        structure: Structure,
        *,
        num_chains: int,
        seed: int,
        num_sets: int = 1,
        schedule: Literal["systematic", "random"] = "systematic",
        estimator: Literal["rao-blackwell", "counts"] = "rao-blackwell",
        num_threads: int | None = None,
        forbidden: bool = False,
        steady: bool = True,
        kernel: Kernel | None = None,
    ) -> None:
        self.structure, self.num_chains, self.num_sets = structure, num_chains, num_sets
        self.num_threads = check_threads(num_threads)
        self._scan = int(schedule == "random")
        self._mode = 2 if estimator == "counts" or schedule == "random" else 1
        self.kernel: Kernel = kernel or choose_kernel(
            structure, num_chains, num_sets=num_sets, schedule=schedule, forbidden=forbidden, steady=steady
        )
        self.layout = Layout(structure, num_sets)
        self._shifts = np.zeros(num_sets - 1)
        self._round = self._collected = self._swept = 0
        self._pool: ThreadPoolExecutor | None = None
        self._totals = np.zeros((int(self.layout.cuts.sum()), num_chains))
        if self._side_by_side:
            self._set_up_blocks(seed)
        else:
            self._set_up_rows(seed)

    @property
    def _side_by_side(self) -> bool:
        return self.kernel in ("table", "field")

    @property
    def _dtype(self) -> Any:
        return np.uint8 if self.structure.num_states.max(initial=1) <= 256 else np.uint16

    def _set_up_blocks(self, seed: int) -> None:
        n, num_sets, chains = self.structure.num_variables, self.num_sets, self.num_chains
        bounds = [*range(0, chains, _BLOCK), chains]
        if num_sets > 1:  # a block for every thread, chains 2 p and 2 p + 1 together
            unit = 2 - chains % 2
            shares = min(self.num_threads, chains // unit)
            bounds = [unit * (chains // unit * k // shares) for k in range(shares + 1)]
        dtype = np.float64 if self.kernel == "field" else self._dtype
        self.blocks: list[_Block] = []
        for first, last in pairwise(bounds):
            width = last - first
            lanes = num_sets * width
            streams = make_streams(seed, first * num_sets, lanes)
            if num_sets > 1:
                streams = np.ascontiguousarray(streams.reshape(4, width, num_sets).transpose(0, 2, 1)).reshape(4, lanes)
            x, sums = aligned_zeros((n, lanes), dtype), aligned_zeros((len(self._totals), width), np.uint32)
            rung = np.repeat(np.arange(num_sets, dtype=np.uint32), width)
            self.blocks.append(_Block(first, width, x, rung, streams, sums, _Replicas.of(num_sets, width)))

    def _set_up_rows(self, seed: int) -> None:
        n, num_sets, chains = self.structure.num_variables, self.num_sets, self.num_chains
        count = len(self.layout.chunks) - 1
        # One more site than there are: padding neighbors point to it, and it stays 0.
        self._x = np.zeros((num_sets * chains, n + 1), dtype=self._dtype)
        streams = make_streams(seed, 0, num_sets * chains * count).reshape(4, chains, num_sets, count)
        streams = streams.transpose(2, 1, 0, 3).reshape(num_sets * chains, 4, count)
        self._streams = np.ascontiguousarray(streams)
        self._rung = np.repeat(np.arange(num_sets), chains)
        self._sums = np.zeros((chains, len(self._totals)), dtype=np.uint32)
        self._replicas = _Replicas.of(num_sets, chains)

    # -- parameters -------------------------------------------------------------------------------------------------

    def load(self, thetas: ArrayLike, coefficients: ArrayLike | None = None) -> None:
        """Set k becomes ``coefficients[k] @ thetas``; states, random numbers and sums stay as they are."""
        same = self.sets.source is thetas
        sets = self.sets.scaled(coefficients) if same else ParameterSets.of(thetas, coefficients)
        if sets.num_sets != self.num_sets:
            raise ValueError(f"there must be {self.num_sets} sets of parameters, got {sets.num_sets}")
        self.sets, self._gaps = sets, np.diff(sets.coefficients, axis=0)
        arrange = {
            "table": self.layout.table_arrays, "four": self.layout.four_arrays, "field": self.layout.field_arrays,
            "product": self.layout.product_arrays,
        }  # fmt: skip
        self._arrays = arrange[self.kernel](sets)

    # -- configurations ---------------------------------------------------------------------------------------------

    def _lanes(self) -> NDArray[Any]:
        n, num_sets = self.structure.num_variables, self.num_sets
        if not self._side_by_side:
            return np.ascontiguousarray(self._x[:, :n].T)
        parts = [block.x.reshape(n, num_sets, block.width) for block in self.blocks]
        lanes = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=2)
        return lanes.reshape(n, num_sets * self.num_chains).astype(self._dtype, copy=False)

    def _put(self, lanes: NDArray[Any]) -> None:
        n, num_sets = self.structure.num_variables, self.num_sets
        if not self._side_by_side:
            self._x[:, :n] = lanes.T
            return
        parts = lanes.reshape(n, num_sets, self.num_chains)
        for block in self.blocks:
            block.x.reshape(n, num_sets, block.width)[...] = parts[:, :, block.first : block.first + block.width]

    def _all_streams(self) -> list[NDArray[np.uint32]]:
        return [block.streams for block in self.blocks] if self._side_by_side else [self._streams]

    def get_random_state(self) -> NDArray[np.uint64]:
        """The streams of all configurations, flat."""
        return np.concatenate([s.reshape(-1) for s in self._all_streams()]).astype(np.uint64)

    def set_random_state(self, state: NDArray[np.uint64]) -> None:
        """Continue with streams from :meth:`get_random_state`."""
        start = 0
        for streams in self._all_streams():
            streams[...] = state[start : start + streams.size].reshape(streams.shape).astype(np.uint32)
            start += streams.size

    # -- moving -----------------------------------------------------------------------------------------------------

    def sweep(self, num_sweeps: int, *, collect: bool = False) -> None:
        """Run sweeps, and empty the 32-bit sums before they can overflow."""
        while num_sweeps > 0 and self.structure.num_variables:
            count = self._make_room(num_sweeps, collect)
            self._run(count, self._mode if collect else 0)
            num_sweeps -= count

    def _make_room(self, num_sweeps: int, collect: bool) -> int:
        """Sweeps that can be made at once."""
        if not collect:
            return num_sweeps
        if self._collected == _MOST_COLLECTED:
            self._empty_sums()
        count = min(num_sweeps, _MOST_COLLECTED - self._collected)
        self._collected += count
        return count

    def _run(self, num_sweeps: int, mode: int) -> None:
        if self._side_by_side:
            self.parallel([partial(self._run_block, block, num_sweeps, mode) for block in self.blocks])
        elif len(self.layout.chunks) == 2 or self._scan:
            count = len(self._x)
            shares = count if self.kernel == "four" else min(self.num_threads, count)
            bounds = [count * k // max(1, shares) for k in range(shares + 1)]
            tasks = [partial(self._run_rows, (0, len(self.layout.chunks) - 1), rows) for rows in pairwise(bounds)]
            self.parallel([partial(task, num_sweeps, mode) for task in tasks])
        elif self.kernel == "four":  # one after another: a large configuration and its tables fill the caches
            for c in range(len(self._x)):
                self._run_chunked((c, c + 1), num_sweeps, mode)
        else:
            self._run_chunked((0, len(self._x)), num_sweeps, mode)

    def _run_block(self, block: _Block, num_sweeps: int, mode: int) -> None:
        from fastmix.chains import kernels

        run: Any = kernels.table_sweeps if self.kernel == "table" else kernels.field_sweeps
        run(block.x, block.rung, *self._arrays, block.streams, block.sums, num_sweeps, mode)

    def _run_rows(self, chunks: tuple[int, int], rows: tuple[int, int], num_sweeps: int, mode: int) -> None:
        """Sweeps of some configurations over some chunks."""
        from fastmix.chains import kernels

        (first, last), below = rows, len(self._x) - self.num_chains
        if self.kernel == "four":
            x, streams, sums = self._x[first], self._streams[first], self._sums[first]
            kernels.four_sweeps(x, *self._arrays, self.layout.chunks, *chunks, streams, sums, num_sweeps, mode)
            return
        part, sums = slice(first, last), self._sums[max(0, first - below) : max(0, last - below)]
        bounds = np.searchsorted(self.layout.blocks, self.layout.chunks)
        run: Any = kernels.product_sweeps
        run(
            self._x[part], self._rung[part], *self._arrays, self._scan, bounds, *chunks, self._streams[part], sums,
            num_sweeps, mode,
        )  # fmt: skip

    def _run_chunked(self, rows: tuple[int, int], num_sweeps: int, mode: int) -> None:
        """Sweeps of large configurations, the chunks of every color shared out among the threads.

        Threads take parts of the order by tickets that run through all sweeps, and wait only until the colors before
        their part are done: large parts first, small ones last, so that nobody waits long for a slower core.
        """
        if self.num_threads == 1:
            self._run_rows((0, len(self.layout.chunks) - 1), rows, num_sweeps, mode)
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
                        self._run_rows(parts[place], rows, 1, mode)
                        done.append(None)
            except BaseException:
                stopped = True
                raise

        self.parallel([work] * self.num_threads)

    @cached_property
    def _parts(self) -> tuple[list[tuple[int, int]], list[int]]:
        """Ranges of chunks that threads take at a time, for one sweep; and how many must be done before each."""
        parts: list[tuple[int, int]] = []
        before: list[int] = []
        for first, last in pairwise(np.searchsorted(self.layout.chunks, self.layout.class_starts).tolist()):
            earlier, begin = len(parts), first
            while begin < last:
                end = begin + max(1, math.ceil((last - begin) / (2 * self.num_threads)))
                parts.append((begin, end))
                before.append(earlier)
                begin = end
        return parts, before

    def parallel(self, tasks: Sequence[Callable[[], object]]) -> None:
        """Do all tasks, on as many threads as there are."""
        if self.num_threads == 1 or len(tasks) <= 1:
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

    # -- replica exchange -------------------------------------------------------------------------------------------

    def set_shifts(self, shifts: ArrayLike) -> None:
        """Guesses (K - 1,) of ``log Z_{k+1} / Z_k`` for the acceptance ratio estimator; zeros at first."""
        self._shifts = np.asarray(shifts, dtype=np.float64)

    def exchange_rounds(self, num_rounds: int, *, collect: bool = False) -> None:
        """Rounds of replica exchange: a sweep, then the exchange of configurations between neighboring sets."""
        while num_rounds > 0:
            count = self._make_room(num_rounds, collect)
            mode = self._mode if collect else 0
            if self.kernel == "table":  # in place: every thread has ladders of its own
                self.parallel([partial(self._run_rounds, block, count, mode) for block in self.blocks])
            else:
                for r in range(self._round, self._round + count):
                    self._run(1, mode)
                    self.on_lanes(lambda k, x, streams, r=r: self._exchange(r, x, streams, self._all_replicas()[k]))
            self._round += count
            num_rounds -= count

    def _run_rounds(self, block: _Block, num_rounds: int, mode: int) -> None:
        for r in range(self._round, self._round + num_rounds):
            self._run_block(block, 1, mode)
            self._exchange(r, block.x, block.streams, block.replicas)

    def _exchange(self, r: int, lanes: NDArray[Any], streams: NDArray[np.uint32], replicas: _Replicas) -> None:
        from fastmix.chains.reading_kernels import exchange

        exchange(
            lanes, r % 2, self._gaps, self._loaded_energies(lanes), streams, self._shifts, replicas.sums,
            replicas.carrier, replicas.heading, replicas.trips,
        )  # fmt: skip

    @property
    def shares(self) -> list[tuple[int, int]]:
        """First chain and number of chains of the blocks that :meth:`on_lanes` works on."""
        return [(b.first, b.width) for b in self.blocks] if self._side_by_side else [(0, self.num_chains)]

    def on_lanes(self, work: Callable[[int, NDArray[Any], NDArray[np.uint32]], None]) -> None:
        """Call ``work(k, x, streams)`` for every block k of chains: other moves, which change both in place.

        ``x`` is (n, K * width), lane ``k * width + c`` for chain c of the block at set k; ``streams`` (4, K * width).
        """
        if self.kernel == "table":
            self.parallel([partial(work, k, block.x, block.streams) for k, block in enumerate(self.blocks)])
        elif self._side_by_side:
            for k, block in enumerate(self.blocks):
                lanes = block.x.astype(np.uint8)
                work(k, lanes, block.streams)
                block.x[...] = lanes
        else:
            lanes, streams = self._lanes(), np.ascontiguousarray(self._streams[:, :, 0].T)
            work(0, lanes, streams)
            self._streams[:, :, 0] = streams.T
            self._put(lanes)

    def _all_replicas(self) -> list[_Replicas]:
        return [block.replicas for block in self.blocks] if self._side_by_side else [self._replicas]

    def exchanges(self) -> Exchanges:
        """What exchanges have added up since the chains were made, or since :meth:`clear`."""
        parts = self._all_replicas()
        return Exchanges(np.concatenate([p.sums for p in parts], axis=2), np.concatenate([p.trips for p in parts]))

    def clear(self) -> None:
        """Forget the sums of sweeps and of exchanges."""
        for replicas in self._all_replicas():
            replicas.sums[...] = 0.0
            replicas.trips[...] = 0
        self._empty_sums()
        self._totals[...] = 0.0
        self._swept = 0

    # -- sums -------------------------------------------------------------------------------------------------------

    def take_sums(self) -> FloatArray:
        """Sums of the states at the last set since the last call, (entries of log_unary, num_chains)."""
        self._empty_sums()
        sweeps, self._swept = self._swept, 0
        result = sums_by_state(self.structure, self._totals, sweeps)
        self._totals[...] = 0
        return result

    def _empty_sums(self) -> None:
        if self._side_by_side:
            for block in self.blocks:
                self._totals[:, block.first : block.first + block.width] += block.sums
                block.sums[...] = 0
        else:
            places = slice(None) if self.kernel == "four" else self._sum_places
            self._totals += self._sums[:, places].T
            self._sums[...] = 0
        self._swept += self._collected
        self._collected = 0

    @cached_property
    def _sum_places(self) -> IntArray:
        return self.layout.block_places(self.layout.cuts)
