"""Gibbs chains on the CPU: the choice of a kernel, configurations in blocks, threads, sums and replica exchange."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix._checks import check_threads
from fastmix._memory import aligned_zeros
from fastmix.chains.base import Exchanges, ParameterSets, sums_by_state
from fastmix.chains.generator import make_streams
from fastmix.chains.host import HostChains
from fastmix.chains.layout import Layout, tables_fit
from fastmix.chains.threads import Threads
from fastmix.chains.tuning import (
    BLOCK_CHAINS,
    BLOCK_SITES,
    KEPT_NEIGHBORS_PER_CHAIN,
    LARGE_MODEL,
    LAYER_BLOCK_CHAINS,
    MIN_FIELD_NEIGHBORS,
    MIN_KEPT_NEIGHBORS,
    MIN_LAYER,
    MIN_SIDE_BY_SIDE,
    MIN_SIDE_BY_SIDE_FOUR,
    SUM_CHUNK_ENTRIES,
)
from fastmix.model.shared import SharedTables
from fastmix.model.structure import Structure

__all__ = ["CpuChains", "Kernel", "choose_kernel"]

Kernel = Literal["table", "four", "single", "kept", "field", "layers", "product", "pattern"]

#: A function ``move(block, x, streams)`` that changes the configurations and streams of a block in place.
LaneMove = Callable[["_Block", NDArray[Any], NDArray[np.uint32]], object]


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

    The modules of the kernels describe them: ``sweep_kernels.py``, ``kept_kernels.py``, ``layer_kernels.py`` and
    ``product_kernels.py``. A
    structure is ``steady`` if its parameters stay for many sweeps, so that filling tables is worth it, and
    ``forbidden`` says that some are -inf.

    Examples
    --------
    >>> from fastmix.instances import ising_grid
    >>> grid = ising_grid(4, 4, coupling_max=1.0, seed=0).structure
    >>> choose_kernel(grid, 1), choose_kernel(grid, 1000)
    ('four', 'table')
    """
    binary = bool((structure.num_states == 2).all())
    large = structure.num_variables >= LARGE_MODEL
    four = binary and num_sets == 1 and structure.adjacency.max_degree <= 4
    fit = tables_fit(structure, num_sets=num_sets, num_chains=None if steady else num_chains)
    one_by_one: Kernel = "single" if fit and num_sets == 1 and structure.num_factors else "product"
    linear = binary and not structure.num_factors
    keeps = linear and num_sets == 1 and steady and not forbidden and not large
    if keeps and _fields_are_worth_keeping(structure, 1 if schedule == "random" else num_chains):
        return "kept"
    if schedule == "random":
        return "four" if four else one_by_one

    # Tables of thresholds come first: for four neighbors, then for many configurations side by side, unless variables
    # have so many neighbors that tables leave the caches.
    if four and (num_chains < MIN_SIDE_BY_SIDE_FOUR or large):
        return "four"
    many = num_chains * num_sets >= MIN_SIDE_BY_SIDE
    wide = linear and num_sets == 1 and not forbidden and not large and _mean_degree(structure) >= MIN_FIELD_NEIGHBORS
    if fit and (num_sets > 1 or (many and not large and not wide)):
        return "table"

    # Where tables do not fit, log-odds of many configurations side by side; they cannot hold -inf.
    if (fit and not wide) or forbidden or not linear or not many:
        return one_by_one
    return "layers" if num_sets == 1 and _two_layers(structure) else "field"


def _fields_are_worth_keeping(structure: Structure, num_chains: int) -> bool:
    """Whether variables have so many neighbors that configurations go faster one by one, with log-odds that are kept.

    Adding up log-odds takes time in proportion to the neighbors, but many configurations share it side by side.
    """
    degree = _mean_degree(structure)
    few = num_chains < MIN_SIDE_BY_SIDE or not _two_layers(structure)
    return few and degree >= max(MIN_KEPT_NEIGHBORS, KEPT_NEIGHBORS_PER_CHAIN * num_chains)


def _mean_degree(structure: Structure) -> float:
    """Neighbors of a variable on average."""
    return 2.0 * structure.num_edges / max(1, structure.num_variables)


def _two_layers(structure: Structure) -> bool:
    """Whether variables fall into two layers, with at least half of all possible edges between them and none within."""
    if 8 * structure.num_edges < structure.num_variables * MIN_LAYER:
        return False
    sizes = np.diff(structure.visit_order[1])
    return len(sizes) == 2 and sizes.min() >= MIN_LAYER and 2 * structure.num_edges >= sizes[0] * sizes[1]


@dataclass(eq=False)
class _Block:
    """Configurations of some chains at all sets, with their random streams and the sums of their exchanges.

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
        """Make the sums of exchanges: see :func:`fastmix.chains.reading_kernels.exchange`."""
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
    layout : Layout, optional
        The layout of other chains with a systematic schedule on the same structure, so that it is made once.

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
        layout: Layout | None = None,
    ) -> None:
        self.structure = structure
        self.num_chains = num_chains
        self.num_sets = num_sets
        self.threads = Threads(check_threads(num_threads))
        self._steady = steady

        # A random schedule can only count.
        self._scan = int(schedule == "random")
        self._mode = 2 if estimator == "counts" or schedule == "random" else 1
        self.kernel: Kernel = kernel or choose_kernel(
            structure, num_chains, num_sets=num_sets, schedule=schedule, forbidden=forbidden, steady=steady
        )
        self.layout = layout or Layout(structure, block_sites=1 if self._scan else BLOCK_SITES)
        self._shifts = np.zeros(num_sets - 1)
        self._round = 0
        self._size = structure.num_variables * num_chains * num_sets  # updates of a sweep
        self._totals = np.zeros((int(self.layout.cuts.sum()), num_chains))
        self.blocks = [self._make_block(first, last - first, seed) for first, last in pairwise(self._bounds())]

    @property
    def _side_by_side(self) -> bool:
        """Whether the kernel takes configurations as columns, many at a time."""
        return self.kernel in ("table", "field", "layers")

    @property
    def _one_by_one(self) -> bool:
        """Whether the kernel takes a single configuration."""
        return self.kernel in ("four", "single", "kept")

    @cached_property
    def _dtype(self) -> Any:
        """The smallest type that holds all states."""
        return np.uint8 if self.structure.num_states.max(initial=1) <= 256 else np.uint16

    def _bounds(self) -> list[int]:
        """The first chain of every block, and the number of chains."""
        chains = self.num_chains
        if not self._side_by_side:
            return [0, chains]
        if self.num_sets == 1:
            size = LAYER_BLOCK_CHAINS if self.kernel == "layers" else BLOCK_CHAINS
            return [*range(0, chains, size), chains]

        # Replica exchange has a block for every thread, in which chains 2 p and 2 p + 1 stay together.
        unit = 2 - chains % 2
        shares = min(self.threads.count, chains // unit)
        return [unit * (chains // unit * k // shares) for k in range(shares + 1)]

    def _make_block(self, first: int, width: int, seed: int) -> _Block:
        """A block of chains with zeros for states; every chain has a stream of the seed for each set and chunk."""
        n = self.structure.num_variables
        num_sets = self.num_sets
        cuts = len(self._totals)
        rung = np.repeat(np.arange(num_sets, dtype=np.uint32), width)
        streams: NDArray[np.uint32]
        if self._side_by_side:
            drawn = make_streams(seed, first * num_sets, width * num_sets).reshape(4, width, num_sets)
            streams = np.ascontiguousarray(drawn.transpose(0, 2, 1)).reshape(4, -1)
            x = aligned_zeros((n, len(rung)), np.float64 if self.kernel == "field" else self._dtype)
            return _Block(first, width, x, rung, streams, aligned_zeros((cuts, width), np.uint32))

        # Every chunk of a configuration has a stream of its own.
        count = len(self.layout.chunks) - 1
        each = make_streams(seed, first * num_sets * count, len(rung) * count).reshape(4, width, num_sets, count)
        streams = np.ascontiguousarray(each.transpose(2, 1, 0, 3)).reshape(-1, 4, count)
        # Padding neighbors point to one more site than there are, which stays 0.
        x = np.zeros((len(rung), n + 1), dtype=self._dtype)
        return _Block(first, width, x, rung, streams, np.zeros((width, cuts), dtype=np.uint32))

    # -- parameters -------------------------------------------------------------------------------------------------

    def load(self, thetas: ArrayLike, coefficients: ArrayLike | None = None) -> None:
        """Let set k be ``coefficients[k] @ thetas``; states, random numbers and sums stay as they are.

        The tables that sweeps read are made by the next sweep: energies and exchanges need none.
        """
        self._take_sets(self._read_sets(thetas, coefficients))

    def load_shared(self, thetas: ArrayLike, tables: SharedTables, coefficients: ArrayLike | None = None) -> None:
        """Let set k be ``coefficients[k] @ thetas``, unaries and weights of patterns; see :class:`Chains`.

        Tables are laid out in full where chains read thresholds, which is faster where these fit, and where several
        sets forbid pairs: a forbidden pair is forbidden in all of them, whatever its weight.
        """
        sets = self._read_shared(thetas, tables, coefficients)
        forbids_in_some = tables.has_forbidden and (self.num_sets > 1 or len(sets.thetas) > 1)
        if self.kernel not in ("product", "pattern") or forbids_in_some:
            super().load_shared(thetas, tables, coefficients)
        else:
            self._take_sets(sets)

    def _take_sets(self, sets: ParameterSets) -> None:
        """Go on with these sets, by the kernel that takes them."""
        self.sets = sets
        self._gaps = sets.coefficients[1:] - sets.coefficients[:-1]
        self._arrays = None
        if self.kernel in ("product", "pattern"):
            kernel = self._kernel_of_sets()
            if kernel != self.kernel:
                self._move_sums()  # their order is another one
                self.kernel = kernel
                self.__dict__.pop("_sweep_kernel", None)

    def _kernel_of_sets(self) -> Kernel:
        """The kernel that takes the loaded sets, for chains that read no thresholds."""
        if self.sets.tables is None or self._scan or self.layout.multiplies_potts(self.sets):
            return "product"
        return "pattern"

    def prepare(self) -> None:
        """Make the tables that sweeps read from the loaded parameters; without this, the first sweep makes them."""
        if self._arrays is not None:
            return
        if self.kernel == "product":
            visits = None if self._steady else float(self.num_chains)
            self._arrays = self.layout.product_arrays(self.sets, visits)
        else:
            make_arrays: dict[str, Callable[[ParameterSets], tuple[Any, ...]]] = {
                "table": self.layout.table_arrays,
                "single": self.layout.table_arrays,
                "four": self.layout.four_arrays,
                "kept": self.layout.kept_arrays,
                "field": self.layout.field_arrays,
                "pattern": self.layout.pattern_arrays,
                "layers": self.layout.layers_arrays,
            }
            self._arrays = make_arrays[self.kernel](self.sets)

    #: Arrays of the layout for the loaded parameters; None until they are needed.
    _arrays: tuple[Any, ...] | None = None

    # -- configurations ---------------------------------------------------------------------------------------------

    def _lanes(self) -> NDArray[Any]:
        """Configurations (n, K * C) of all blocks, not to be changed."""
        n = self.structure.num_variables
        num_sets = self.num_sets
        if not self._side_by_side:
            return np.ascontiguousarray(self.blocks[0].x[:, :n].T)
        parts = [block.x.reshape(n, num_sets, block.width) for block in self.blocks]
        lanes = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=2)
        return lanes.reshape(n, num_sets * self.num_chains).astype(self._dtype, copy=False)

    def _put(self, lanes: NDArray[Any]) -> None:
        """Put configurations (n, K * C) into the blocks."""
        n = self.structure.num_variables
        num_sets = self.num_sets
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
        """The state of some chains: configurations, streams, sums, and the sums of exchanges."""
        self._empty_sums()
        parts: dict[str, Any] = {"counts": (self._round, self._swept), "totals": None}
        if self._swept:
            parts["totals"] = self._totals[:, first:last].copy()
        names = ["x", "streams"]
        if self.num_sets > 1:
            names += ["exchanges", "carrier", "heading", "trips"]
        for name in names:
            views = [view[..., own] for view, own, _ in self._views(name, first, last)]
            dtype = self._dtype if name == "x" else None  # states may lie in blocks as floating-point numbers
            parts[name] = np.concatenate(views, axis=-1, dtype=dtype, casting="unsafe")
        return parts

    def unpack(self, first: int, last: int, parts: dict[str, Any]) -> None:
        """Let some chains continue from a state that :meth:`pack` returned."""
        self._round, self._swept = parts["counts"]
        self._collected = 0
        self._totals[:, first:last] = 0.0 if parts["totals"] is None else parts["totals"]
        for name in parts.keys() - {"counts", "totals"}:
            for view, own, given in self._views(name, first, last):
                view[..., own] = parts[name][..., given]

    def _views(self, name: str, first: int, last: int) -> Iterator[tuple[NDArray[Any], slice, slice]]:
        """Views of an array in all blocks that hold some of the chains ``first`` to ``last``.

        Each view has chains along its last axis and comes with two slices: of the chains within the view, and of the
        same chains within those that were asked for.
        """
        for block in self.blocks:
            begin = max(first, block.first)
            end = min(last, block.first + block.width)
            if begin >= end:
                continue
            array = getattr(block, name)
            if name in ("x", "streams") and not self._side_by_side:
                view = array.reshape(self.num_sets, block.width, -1).swapaxes(1, 2)
            else:
                view = array.reshape(-1, block.width)
            yield view, slice(begin - block.first, end - block.first), slice(begin - first, end - first)

    # -- moving -----------------------------------------------------------------------------------------------------

    def sweep(self, num_sweeps: int, *, collect: bool = False) -> None:
        """Run sweeps; with ``collect`` those of the last set add to the sums."""
        if self.sharing is not None and self.sharing.call(self, "sweep", num_sweeps, collect=collect):
            return
        self.prepare()
        for count, mode in self._pieces(num_sweeps if self.structure.num_variables else 0, collect):
            self._run(count, mode)

    def _run(self, num_sweeps: int, mode: int) -> None:
        """Run sweeps without emptying the sums, with the threads that pay."""
        size = num_sweeps * self._size
        if self._side_by_side:
            self.threads.run([partial(self._run_block, block, num_sweeps, mode) for block in self.blocks], size)
        elif len(self.layout.chunks) == 2 or self._scan:
            count = len(self.blocks[0].x)
            shares = count if self._one_by_one else min(self.threads.count, count)
            bounds = [count * k // max(1, shares) for k in range(shares + 1)]
            tasks = [partial(self._run_rows, (0, len(self.layout.chunks) - 1), rows) for rows in pairwise(bounds)]
            self.threads.run([partial(task, num_sweeps, mode) for task in tasks], size)
        elif self._one_by_one:
            # Large configurations go one after another: each fills the caches with its tables.
            for c in range(self.num_chains):
                self._run_chunked((c, c + 1), num_sweeps, mode)
        else:
            self._run_chunked((0, len(self.blocks[0].x)), num_sweeps, mode)

    @cached_property
    def _sweep_kernel(self) -> Any:
        """The compiled sweeps, imported when first needed: importing Numba takes half a second."""
        if self.kernel == "product":
            from fastmix.chains import product_kernels

            return product_kernels.random_sweeps if self._scan else product_kernels.product_sweeps
        if self.kernel == "pattern":
            from fastmix.chains import pattern_kernels

            return pattern_kernels.pattern_sweeps
        if self.kernel == "kept":
            from fastmix.chains import kept_kernels

            return kept_kernels.kept_sweeps
        if self.kernel == "layers":
            from fastmix.chains import layer_kernels

            return layer_kernels.layers_sweeps
        from fastmix.chains import sweep_kernels

        return getattr(sweep_kernels, f"{self.kernel}_sweeps")

    @property
    def _loaded_arrays(self) -> tuple[Any, ...]:
        """The arrays of the layout for the loaded parameters, which :meth:`prepare` has made."""
        assert self._arrays is not None
        return self._arrays

    def _run_block(self, block: _Block, num_sweeps: int, mode: int) -> None:
        """Run sweeps of the configurations of a block, side by side."""
        rung = () if self.kernel == "layers" else (block.rung,)
        self._sweep_kernel(block.x, *rung, *self._loaded_arrays, block.streams, block.sums, num_sweeps, mode)

    def _run_rows(self, chunks: tuple[int, int], rows: tuple[int, int], num_sweeps: int, mode: int) -> None:
        """Run sweeps of some configurations (``rows``, first and last) over some chunks (first and last)."""
        block = self.blocks[0]
        first, last = rows
        if self._one_by_one:
            self._sweep_kernel(
                block.x[first],
                *self._loaded_arrays,
                self._scan,
                self.layout.chunks,
                *chunks,
                block.streams[first],
                block.sums[first],
                num_sweeps,
                mode,
            )
            return

        # Only configurations at the last set have sums.
        below = len(block.x) - self.num_chains
        sums = block.sums[max(0, first - below) : max(0, last - below)]
        bounds = () if self._scan else (self._chunk_blocks, *chunks)
        self._sweep_kernel(
            block.x[first:last],
            block.rung[first:last],
            *self._loaded_arrays,
            *bounds,
            block.streams[first:last],
            sums,
            num_sweeps,
            mode,
        )

    @property
    def _chunk_blocks(self) -> IntArray:
        """The first block of every chunk, and their number; places in the order where there are no blocks."""
        if self.kernel == "pattern":
            return self.layout.chunks
        return np.searchsorted(self.layout.blocks, self.layout.chunks)

    def _run_chunked(self, rows: tuple[int, int], num_sweeps: int, mode: int) -> None:
        """Run sweeps of large configurations; threads share the chunks of every color."""
        if self.threads.count == 1:
            self._run_rows((0, len(self.layout.chunks) - 1), rows, num_sweeps, mode)
        else:
            self.threads.run_stages(lambda part: self._run_rows(part, rows, 1, mode), self._stages, num_sweeps)

    @cached_property
    def _stages(self) -> list[list[tuple[int, int]]]:
        """Ranges of chunks of every color: long ranges first, so that threads do not wait long for a slower core."""
        stages = []
        for begin, last in pairwise(np.searchsorted(self.layout.chunks, self.layout.class_starts).tolist()):
            bounds = [begin]
            while bounds[-1] < last:
                bounds.append(bounds[-1] + max(1, math.ceil((last - bounds[-1]) / (2 * self.threads.count))))
            stages.append(list(pairwise(bounds)))
        return stages

    # -- replica exchange -------------------------------------------------------------------------------------------

    def set_shifts(self, shifts: ArrayLike) -> None:
        """Set guesses (K - 1,) of ``log Z_{k+1} / Z_k`` for the acceptance ratio estimator; they are zeros at first."""
        self._shifts = np.asarray(shifts, dtype=np.float64)

    def exchange_rounds(self, num_rounds: int, *, collect: bool = False) -> None:
        """Run rounds of replica exchange: a sweep, then exchanges of configurations between neighboring sets."""
        self.prepare()
        for count, mode in self._pieces(num_rounds, collect):
            if self._side_by_side:
                # Every thread has ladders of its own, and need not wait for others between rounds.
                tasks = [partial(self._run_rounds, block, count, mode) for block in self.blocks]
                self.threads.run(tasks, count * self._size)
            else:
                for r in range(self._round, self._round + count):
                    self._run(1, mode)
                    self.on_lanes(partial(self._exchange, r))
            self._round += count

    def _run_rounds(self, block: _Block, num_rounds: int, mode: int) -> None:
        """Run rounds of replica exchange of a block."""
        for r in range(self._round, self._round + num_rounds):
            self._run_block(block, 1, mode)
            self._on_block(partial(self._exchange, r), block)

    def _exchange(self, r: int, block: _Block, lanes: NDArray[Any], streams: NDArray[np.uint32]) -> None:
        """Propose the exchanges of round r."""
        from fastmix.chains.reading_kernels import exchange

        exchange(
            lanes,
            r % 2,
            self._gaps,
            self._loaded_energies(lanes),
            streams,
            self._shifts,
            block.exchanges,
            block.carrier,
            block.heading,
            block.trips,
        )

    def on_lanes(self, move: LaneMove) -> None:
        """Call ``move(block, x, streams)`` for every block of chains: other moves, which change both in place.

        ``x`` is (n, K * width), lane ``k * width + c`` for chain c of the block at set k; ``streams`` (4, K * width).
        """
        self.threads.run([partial(self._on_block, move, block) for block in self.blocks], self._size)

    def _on_block(self, move: LaneMove, block: _Block) -> None:
        """Call a move for one block, in which states are converted to columns of whole numbers if they are not."""
        if self.kernel == "table":
            move(block, block.x, block.streams)
        elif self._side_by_side:
            lanes = block.x.astype(np.uint8)
            move(block, lanes, block.streams)
            block.x[...] = lanes
        else:
            lanes = self._lanes()
            streams = np.ascontiguousarray(block.streams[:, :, 0].T)
            move(block, lanes, streams)
            block.streams[:, :, 0] = streams.T
            self._put(lanes)

    def exchanges(self) -> Exchanges:
        """Sums over the proposals of exchanges since the chains were made, or since :meth:`clear`."""
        sums = np.concatenate([block.exchanges for block in self.blocks], axis=2)
        return Exchanges(sums, np.concatenate([block.trips for block in self.blocks]))

    def clear(self) -> None:
        """Forget the sums of sweeps and of exchanges."""
        for block in self.blocks:
            block.exchanges[...] = 0.0
            block.trips[...] = 0
            block.sums[...] = 0
        self._totals[...] = 0.0
        self._collected = 0
        self._swept = 0

    # -- sums -------------------------------------------------------------------------------------------------------

    def take_sums(self) -> FloatArray:
        """Sums of the states at the last set since the last call, (entries of log_unary, num_chains)."""
        self._empty_sums()
        result = sums_by_state(self.structure, self._totals, self._swept)
        self._swept = 0
        self._totals[...] = 0
        return result

    def _empty_sums(self) -> None:
        """Move the 32-bit sums of all blocks to the totals, which are in double precision."""
        self._move_sums()
        super()._empty_sums()

    def _move_sums(self) -> None:
        """Add the 32-bit sums of all blocks to the totals, in the order of the variables."""
        chunk = max(1, SUM_CHUNK_ENTRIES // max(1, self.num_chains))
        for block in self.blocks:
            totals = self._totals[:, block.first : block.first + block.width]
            for first in range(0, len(totals), chunk):
                rows = slice(first, first + chunk)
                if self._side_by_side:
                    totals[rows] += block.sums[rows]
                else:
                    places = self._sum_places[rows] if self.kernel == "product" else rows
                    totals[rows] += block.sums[:, places].T
            block.sums[...] = 0

    @cached_property
    def _sum_places(self) -> IntArray:
        """Places of the sums of the product kernel, which lie by blocks."""
        return self.layout.block_places(self.layout.cuts)
