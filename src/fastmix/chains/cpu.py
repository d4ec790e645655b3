"""Gibbs chains on the CPU: the kernel for a structure and a number of chains, configurations, threads and sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from importlib import import_module
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix._checks import check_threads
from fastmix._memory import aligned_zeros
from fastmix.chains.base import Exchanges, sums_by_state
from fastmix.chains.generator import make_streams
from fastmix.chains.host import HostChains
from fastmix.chains.layout import BLOCK_SITES, Layout, tables_fit
from fastmix.chains.threads import Threads
from fastmix.model.structure import Structure

__all__ = ["CpuChains", "choose_kernel"]

Kernel = Literal["table", "four", "single", "field", "layers", "product"]

_SIDE_BY_SIDE = 8  # configurations from which on they go side by side
_MANY_FOUR = 16  # the same where a single one has a kernel of its own
_BLOCK = 512  # chains of one block: their numbers and thresholds for one site stay in the first cache
_LAYER_BLOCK = 128  # the same where configurations are two layers of bits
_LEAST_LAYER = 16  # variables of a layer from which on sums are looked up
_LARGE = 1 << 16  # variables from which on configurations do not fit into a cache side by side


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
    binary, large = bool((structure.num_states == 2).all()), structure.num_variables >= _LARGE
    four = binary and num_sets == 1 and structure.adjacency.max_degree <= 4
    fit = tables_fit(structure, num_sets=num_sets, num_chains=None if steady else num_chains)
    single: Kernel = "single" if fit and num_sets == 1 and structure.num_factors else "product"
    if schedule == "random":
        return "four" if four else single
    if four and (num_chains < _MANY_FOUR or large):
        return "four"
    many = num_chains * num_sets >= _SIDE_BY_SIDE
    if fit and (num_sets > 1 or (many and not large)):
        return "table"
    linear = binary and not structure.num_factors
    if not (linear and many and not (fit or forbidden)):
        return single
    return "layers" if num_sets == 1 and _two_layers(structure) else "field"


def _two_layers(structure: Structure) -> bool:
    """Whether variables fall into two layers with most edges between them, and none within."""
    if 8 * structure.num_edges < structure.num_variables * _LEAST_LAYER:
        return False
    sizes = np.diff(structure.visit_order[1])
    return len(sizes) == 2 and sizes.min() >= _LEAST_LAYER and 2 * structure.num_edges >= sizes[0] * sizes[1]


@dataclass(eq=False)
class _Block:
    """The configurations of some chains at all sets, and what their exchanges have added up.

    Number ``k * width + c`` is chain ``first + c`` at set k: a column of ``x`` (n, K * width) where configurations go
    side by side, else a row of ``x`` (K * width, n + 1). Streams are (4, K * width) or (K * width, 4, chunks), sums
    (cuts, width) or (width, cuts).
    """

    first: int
    width: int
    x: NDArray[Any]
    rung: NDArray[np.uint32]
    streams: NDArray[np.uint32]
    sums: NDArray[np.uint32]

    def __post_init__(self) -> None:
        num_sets = len(self.rung) // max(1, self.width)
        self.exchanges = np.zeros((6, max(0, num_sets - 1), self.width))
        self.carrier = self.rung.astype(np.int64)
        self.heading = np.zeros(len(self.rung), dtype=np.uint8)
        self.trips = np.zeros(self.width, dtype=np.int64)


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
        self.threads = Threads(check_threads(num_threads))
        self._scan = int(schedule == "random")
        self._mode = 2 if estimator == "counts" or schedule == "random" else 1
        self.kernel: Kernel = kernel or choose_kernel(
            structure, num_chains, num_sets=num_sets, schedule=schedule, forbidden=forbidden, steady=steady
        )
        self.layout = Layout(structure, num_sets, block_sites=1 if self._scan else BLOCK_SITES)
        self._shifts = np.zeros(num_sets - 1)
        self._round = 0
        self._size = structure.num_variables * num_chains * num_sets  # updates of a sweep
        self._totals = np.zeros((int(self.layout.cuts.sum()), num_chains))
        self.blocks = [self._make_block(first, last - first, seed) for first, last in pairwise(self._bounds())]

    @property
    def _side_by_side(self) -> bool:
        return self.kernel in ("table", "field", "layers")

    @property
    def _one_by_one(self) -> bool:
        return self.kernel in ("four", "single")

    @cached_property
    def _dtype(self) -> Any:
        return np.uint8 if self.structure.num_states.max(initial=1) <= 256 else np.uint16

    def _bounds(self) -> list[int]:
        """Where blocks of chains begin."""
        chains = self.num_chains
        if not self._side_by_side:
            return [0, chains]
        if self.num_sets == 1:
            return [*range(0, chains, _LAYER_BLOCK if self.kernel == "layers" else _BLOCK), chains]
        unit = 2 - chains % 2  # a block for every thread, chains 2 p and 2 p + 1 together
        shares = min(self.threads.count, chains // unit)
        return [unit * (chains // unit * k // shares) for k in range(shares + 1)]

    def _make_block(self, first: int, width: int, seed: int) -> _Block:
        n, num_sets, cuts = self.structure.num_variables, self.num_sets, len(self._totals)
        rung = np.repeat(np.arange(num_sets, dtype=np.uint32), width)
        streams: NDArray[np.uint32]
        if self._side_by_side:
            drawn = make_streams(seed, first * num_sets, width * num_sets).reshape(4, width, num_sets)
            streams = np.ascontiguousarray(drawn.transpose(0, 2, 1)).reshape(4, -1)
            x = aligned_zeros((n, len(rung)), np.float64 if self.kernel == "field" else self._dtype)
            return _Block(first, width, x, rung, streams, aligned_zeros((cuts, width), np.uint32))
        count = len(self.layout.chunks) - 1
        each = make_streams(seed, first * num_sets * count, len(rung) * count).reshape(4, width, num_sets, count)
        streams = np.ascontiguousarray(each.transpose(2, 1, 0, 3)).reshape(-1, 4, count)
        # One more site than there are: padding neighbors point to it, and it stays 0.
        x = np.zeros((len(rung), n + 1), dtype=self._dtype)
        return _Block(first, width, x, rung, streams, np.zeros((width, cuts), dtype=np.uint32))

    # -- parameters -------------------------------------------------------------------------------------------------

    def load(self, thetas: ArrayLike, coefficients: ArrayLike | None = None) -> None:
        """Set k becomes ``coefficients[k] @ thetas``; states, random numbers and sums stay as they are."""
        self.sets = sets = self._read_sets(thetas, coefficients)
        self._gaps = sets.coefficients[1:] - sets.coefficients[:-1]
        self._arrays = getattr(self.layout, f"{'table' if self.kernel == 'single' else self.kernel}_arrays")(sets)

    # -- configurations ---------------------------------------------------------------------------------------------

    def _lanes(self) -> NDArray[Any]:
        n, num_sets = self.structure.num_variables, self.num_sets
        if not self._side_by_side:
            return np.ascontiguousarray(self.blocks[0].x[:, :n].T)
        parts = [block.x.reshape(n, num_sets, block.width) for block in self.blocks]
        lanes = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=2)
        return lanes.reshape(n, num_sets * self.num_chains).astype(self._dtype, copy=False)

    def _put(self, lanes: NDArray[Any]) -> None:
        n, num_sets = self.structure.num_variables, self.num_sets
        if not self._side_by_side:
            self.blocks[0].x[:, :n] = lanes.T
            return
        parts = lanes.reshape(n, num_sets, self.num_chains)
        for block in self.blocks:
            block.x.reshape(n, num_sets, block.width)[...] = parts[:, :, block.first : block.first + block.width]

    def get_random_state(self) -> NDArray[np.uint64]:
        """The streams of all configurations, flat."""
        return np.concatenate([block.streams.reshape(-1) for block in self.blocks]).astype(np.uint64)

    def set_random_state(self, state: NDArray[np.uint64]) -> None:
        """Continue with streams from :meth:`get_random_state`."""
        start = 0
        for block in self.blocks:
            part = state[start : start + block.streams.size]
            block.streams[...] = part.reshape(block.streams.shape).astype(np.uint32)
            start += block.streams.size

    # -- parts ------------------------------------------------------------------------------------------------------

    def pack(self, first: int, last: int) -> dict[str, Any]:
        """All that changes about some chains: configurations, streams, sums and what exchanges have added up."""
        self._empty_sums()
        parts: dict[str, Any] = {"counts": (self._round, self._swept), "totals": None}
        if self._swept:
            parts["totals"] = self._totals[:, first:last].copy()
        for name in ("x", "streams", *(("exchanges", "carrier", "heading", "trips") if self.num_sets > 1 else ())):
            views = [view[..., own] for view, own, _ in self._views(name, first, last)]
            parts[name] = np.concatenate(views, axis=-1, dtype=self._dtype if name == "x" else None, casting="unsafe")
        return parts

    def unpack(self, first: int, last: int, parts: dict[str, Any]) -> None:
        """Let some chains go on from what others were."""
        (self._round, self._swept), totals = parts["counts"], parts["totals"]
        self._collected = 0
        self._totals[:, first:last] = 0.0 if totals is None else totals
        for name in parts.keys() - {"counts", "totals"}:
            for view, own, given in self._views(name, first, last):
                view[..., own] = parts[name][..., given]

    def _views(self, name: str, first: int, last: int) -> Iterator[tuple[NDArray[Any], slice, slice]]:
        """An array of every block that holds some of the chains, chains last; which these are there, and in a part."""
        for block in self.blocks:
            begin, end = max(first, block.first), min(last, block.first + block.width)
            if begin < end:
                array = getattr(block, name)
                if name in ("x", "streams") and not self._side_by_side:
                    view = array.reshape(self.num_sets, block.width, -1).swapaxes(1, 2)
                else:
                    view = array.reshape(-1, block.width)
                yield view, slice(begin - block.first, end - block.first), slice(begin - first, end - first)

    # -- moving -----------------------------------------------------------------------------------------------------

    def sweep(self, num_sweeps: int, *, collect: bool = False) -> None:
        """Run sweeps, and empty the 32-bit sums before they can overflow."""
        if self.sharing is not None and self.sharing.call(self, "sweep", num_sweeps, collect=collect):
            return
        for count, mode in self._pieces(num_sweeps if self.structure.num_variables else 0, collect):
            self._run(count, mode)

    def _run(self, num_sweeps: int, mode: int) -> None:
        size = num_sweeps * self._size
        if self._side_by_side:
            self.threads.run([partial(self._run_block, block, num_sweeps, mode) for block in self.blocks], size)
        elif len(self.layout.chunks) == 2 or self._scan:
            count = len(self.blocks[0].x)
            shares = count if self._one_by_one else min(self.threads.count, count)
            bounds = [count * k // max(1, shares) for k in range(shares + 1)]
            tasks = [partial(self._run_rows, (0, len(self.layout.chunks) - 1), rows) for rows in pairwise(bounds)]
            self.threads.run([partial(task, num_sweeps, mode) for task in tasks], size)
        elif self._one_by_one:  # one after another: a large configuration and its tables fill the caches
            for c in range(self.num_chains):
                self._run_chunked((c, c + 1), num_sweeps, mode)
        else:
            self._run_chunked((0, len(self.blocks[0].x)), num_sweeps, mode)

    @cached_property
    def _sweeps(self) -> Any:
        """The compiled sweeps, imported when first needed: importing Numba takes half a second."""
        module = {"layers": "layer_kernels", "product": "product_kernels"}.get(self.kernel, "kernels")
        found = import_module(f"fastmix.chains.{module}")
        return getattr(found, "random_sweeps" if self.kernel == "product" and self._scan else f"{self.kernel}_sweeps")

    def _run_block(self, block: _Block, num_sweeps: int, mode: int) -> None:
        rung = () if self.kernel == "layers" else (block.rung,)
        self._sweeps(block.x, *rung, *self._arrays, block.streams, block.sums, num_sweeps, mode)

    def _run_rows(self, chunks: tuple[int, int], rows: tuple[int, int], num_sweeps: int, mode: int) -> None:
        """Sweeps of some configurations over some chunks."""
        (first, last), block = rows, self.blocks[0]
        if self._one_by_one:
            x, streams, sums = block.x[first], block.streams[first], block.sums[first]
            self._sweeps(x, *self._arrays, self._scan, self.layout.chunks, *chunks, streams, sums, num_sweeps, mode)
            return
        part, below = slice(first, last), len(block.x) - self.num_chains
        sums = block.sums[max(0, first - below) : max(0, last - below)]
        bounds = () if self._scan else (self._chunk_blocks, *chunks)
        self._sweeps(
            block.x[part], block.rung[part], *self._arrays, *bounds, block.streams[part], sums, num_sweeps, mode
        )

    @cached_property
    def _chunk_blocks(self) -> IntArray:
        return np.searchsorted(self.layout.blocks, self.layout.chunks)

    def _run_chunked(self, rows: tuple[int, int], num_sweeps: int, mode: int) -> None:
        """Sweeps of large configurations, the chunks of every color shared out among the threads."""
        if self.threads.count == 1:
            self._run_rows((0, len(self.layout.chunks) - 1), rows, num_sweeps, mode)
        else:
            self.threads.run_stages(lambda part: self._run_rows(part, rows, 1, mode), self._stages, num_sweeps)

    @cached_property
    def _stages(self) -> list[list[tuple[int, int]]]:
        """Ranges of chunks of every color: large ones first, so that nobody waits long for a slower core."""
        stages = []
        for begin, last in pairwise(np.searchsorted(self.layout.chunks, self.layout.class_starts).tolist()):
            bounds = [begin]
            while bounds[-1] < last:
                bounds.append(bounds[-1] + max(1, math.ceil((last - bounds[-1]) / (2 * self.threads.count))))
            stages.append(list(pairwise(bounds)))
        return stages

    # -- replica exchange -------------------------------------------------------------------------------------------

    def set_shifts(self, shifts: ArrayLike) -> None:
        """Guesses (K - 1,) of ``log Z_{k+1} / Z_k`` for the acceptance ratio estimator; zeros at first."""
        self._shifts = np.asarray(shifts, dtype=np.float64)

    def exchange_rounds(self, num_rounds: int, *, collect: bool = False) -> None:
        """Rounds of replica exchange: a sweep, then the exchange of configurations between neighboring sets."""
        for count, mode in self._pieces(num_rounds, collect):
            if self._side_by_side:  # every thread has ladders of its own
                tasks = [partial(self._run_rounds, block, count, mode) for block in self.blocks]
                self.threads.run(tasks, count * self._size)
            else:
                for r in range(self._round, self._round + count):
                    self._run(1, mode)
                    self.on_lanes(partial(self._exchange, r))
            self._round += count

    def _run_rounds(self, block: _Block, num_rounds: int, mode: int) -> None:
        for r in range(self._round, self._round + num_rounds):
            self._run_block(block, 1, mode)
            self._on_block(partial(self._exchange, r), block)

    def _exchange(self, r: int, block: _Block, lanes: NDArray[Any], streams: NDArray[np.uint32]) -> None:
        from fastmix.chains.reading_kernels import exchange

        exchange(
            lanes, r % 2, self._gaps, self._loaded_energies(lanes), streams, self._shifts, block.exchanges,
            block.carrier, block.heading, block.trips,
        )  # fmt: skip

    def on_lanes(self, work: Callable[[_Block, NDArray[Any], NDArray[np.uint32]], object]) -> None:
        """Call ``work(block, x, streams)`` for every block of chains: other moves, which change both in place.

        ``x`` is (n, K * width), lane ``k * width + c`` for chain c of the block at set k; ``streams`` (4, K * width).
        """
        self.threads.run([partial(self._on_block, work, block) for block in self.blocks], self._size)

    def _on_block(self, work: Callable[[_Block, NDArray[Any], NDArray[np.uint32]], object], block: _Block) -> None:
        if self.kernel == "table":
            work(block, block.x, block.streams)
        elif self._side_by_side:
            lanes = block.x.astype(np.uint8)
            work(block, lanes, block.streams)
            block.x[...] = lanes
        else:
            lanes, streams = self._lanes(), np.ascontiguousarray(block.streams[:, :, 0].T)
            work(block, lanes, streams)
            block.streams[:, :, 0] = streams.T
            self._put(lanes)

    def exchanges(self) -> Exchanges:
        """What exchanges have added up since the chains were made, or since :meth:`clear`."""
        sums = np.concatenate([block.exchanges for block in self.blocks], axis=2)
        return Exchanges(sums, np.concatenate([block.trips for block in self.blocks]))

    def clear(self) -> None:
        """Forget the sums of sweeps and of exchanges."""
        for block in self.blocks:
            block.exchanges[...] = 0.0
            block.trips[...] = 0
        self.take_sums()

    # -- sums -------------------------------------------------------------------------------------------------------

    def take_sums(self) -> FloatArray:
        """Sums of the states at the last set since the last call, (entries of log_unary, num_chains)."""
        self._empty_sums()
        sweeps, self._swept = self._swept, 0
        result = sums_by_state(self.structure, self._totals, sweeps)
        self._totals[...] = 0
        return result

    def _empty_sums(self) -> None:
        for block in self.blocks:
            sums = block.sums
            if not self._side_by_side:
                sums = sums.T if self._one_by_one else sums[:, self._sum_places].T
            self._totals[:, block.first : block.first + block.width] += sums
            block.sums[...] = 0
        super()._empty_sums()

    @cached_property
    def _sum_places(self) -> IntArray:
        return self.layout.block_places(self.layout.cuts)
