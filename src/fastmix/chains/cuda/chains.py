"""Gibbs chains on an NVIDIA GPU: memory, parameters, launches of sweeps and of replica exchange, and sums.

Kernels are imported when first needed, because importing Numba takes half a second.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix._memory import format_bytes
from fastmix.chains.base import Exchanges, sums_by_state
from fastmix.chains.cuda.device import (
    CudaKernel,
    Launch,
    check_memory,
    choose_cuda_kernel,
    is_simulated,
    num_multiprocessors,
    plan_launch,
    start_kernel,
)
from fastmix.chains.cuda.reading import DeviceChains
from fastmix.chains.generator import make_streams
from fastmix.chains.layout import rows_of
from fastmix.chains.tuning import DEVICE_UPDATES_PER_STEP, LINK_BYTES
from fastmix.errors import ResourceError
from fastmix.model.flat import offsets_of
from fastmix.model.structure import Structure

__all__ = ["CudaChains"]


_KEY_STREAM = 1 << 41  # the stream whose first words are the key: far from those that chains on the CPU use
_MODES = {None: 0, "rao-blackwell": 1, "counts": 2}
_MOST_GROUPED = 1 << 30  # sweeps whose units fit into the 64 bits that the sum of a group has
_MOST_STATES = 1 << 32  # kernels number states in 32 bits


def _chains_per_unit(kernel: CudaKernel) -> int:
    """Chains that a thread updates together: a word of 32, one, or four, which use up a call of the generator."""
    if kernel.startswith("packed"):
        return 32
    return 1 if kernel == "field" else 4


class CudaChains(DeviceChains):
    """Gibbs sweeps of any model on an NVIDIA GPU.

    Sweeps are systematic and in the same order as on the CPU, with other random numbers: those of Philox4x32-10,
    addressed by sweep, variable and configuration. For a given kernel, a configuration draws the same numbers whatever
    the shape of the launches and the number of chains. Parameters go to the device, where tables are made from them,
    and sums come back; on one kind of device they are the same bits every time.

    Parameters
    ----------
    structure : Structure
    num_chains, num_sets, seed : int
        With several sets of parameters, chains of a word (32, or four where states are not binary) have the same:
        their number must be a multiple of that, :attr:`width`.
    estimator : {"rao-blackwell", "counts"} or None
        What a sweep adds to the sums; None keeps none.
    group_size : int
        Chains that are added up together in the sums; a divisor of ``num_chains``. With groups of 32 chains (binary
        models) or of four (others), or multiples, the sums cost little; single chains take 12 bytes per entry.
        :func:`fastmix.chains.cuda.device.choose_group_size` says what fits.
    forbidden : bool
        Whether some parameters are -inf.
    kernel : str, optional
        Chosen by :func:`fastmix.chains.cuda.device.choose_cuda_kernel`.
    launch : Launch, optional
        Chosen by the number of chains; for tests and benchmarks.

    Raises
    ------
    UnfitMethodError
        Without a usable device, or for several sets where no kernel can hold their tables.
    ResourceError
        If the device has too little free memory.
    """

    updates_per_step = DEVICE_UPDATES_PER_STEP

    def __init__(
        self,
        structure: Structure,
        *,
        num_chains: int,
        seed: int,
        num_sets: int = 1,
        estimator: Literal["rao-blackwell", "counts"] | None = "rao-blackwell",
        group_size: int = 1,
        forbidden: bool = False,
        kernel: CudaKernel | None = None,
        launch: Launch | None = None,
    ) -> None:
        if group_size < 1 or num_chains % group_size:
            raise ValueError(f"group_size must divide num_chains, {num_chains}, got {group_size}")
        super().__init__(structure, num_chains, num_sets)
        self.group_size = group_size
        if kernel is None:
            kernel = choose_cuda_kernel(structure, num_chains, num_sets=num_sets, forbidden=forbidden)
            if kernel == "field" and self._layout.codes is None:
                kernel = "packed" if structure.adjacency.max_degree <= 4 else "packed-field"
        self.kernel: CudaKernel = kernel
        self._mode = _MODES[estimator]
        words = make_streams(seed, _KEY_STREAM, 1)[:, 0]
        self._key = words[0], words[1]
        self._sweep = 0
        self._packed = self.kernel.startswith("packed")
        self.width = _chains_per_unit(self.kernel)
        if num_sets > 1 and num_chains % self.width:
            raise ValueError(f"num_chains must be a multiple of {self.width} for several sets, got {num_chains}")

        # The launch, and the shape of rows of states: whole tiles, one for each block along x.
        units = -(-self._total // self.width)
        largest = int(np.diff(self._layout.class_starts).max(initial=1))
        if launch is None and largest == 1 and self.kernel == "packed-field" and not self._mode:
            launch = Launch(wide=1, block_x=1, block_y=32)  # a thread for every chain
        self._launch = launch or plan_launch(
            self.kernel, units, largest, num_multiprocessors(self._cuda), several=num_sets > 1
        )
        tile = self._launch.block_x * self._launch.wide
        self._units = -(-units // tile) * tile
        self._capacity = self._units * self.width
        self._stride = self._units if self._packed else self._capacity
        # The kernel ``table`` reads words of four chains of one byte each.
        self._row = self._units if self.kernel == "table" else self._stride

        # The shape of sums, by chain or by groups of chains that are added up together.
        self._per_chain = group_size % self.width != 0 or self.width == 1
        if not self._per_chain:
            self._most_collected = _MOST_GROUPED
        self._lanes = self._capacity if self._per_chain else self._units  # sums of a row as the kernel adds to them
        self._per_total = 1 if self._per_chain else group_size // self.width  # of these sums, in a total
        self._columns = self._lanes // self._per_total
        self._num_rows = int((structure.num_states - 1).sum())
        self._together: dict[Any, tuple[Any, int]] = {}
        self._tables: tuple[Any, ...] = ()
        if self._n:
            self._allocate()

    # -- parameters -------------------------------------------------------------------------------------------------

    def load(self, thetas: ArrayLike, coefficients: ArrayLike | None = None) -> None:
        """Let set k be ``coefficients[k] @ thetas``; see :meth:`fastmix.chains.base.Chains.load`.

        Nothing is compiled or allocated anew. Tables of thresholds are filled on the device.
        """
        self.sets = self._read_sets(thetas, coefficients)
        self._values = None
        if not self._n:
            return
        if self.kernel in ("packed", "packed-field", "table"):
            self._fill_tables()
        elif self.kernel == "logit":
            self._tables = (*self._links[:5], self._load_values(), *self._links[5:7], self._sum_rows)
        else:
            arrays = self._layout.coded_arrays(self.sets.coefficients[0] @ self.sets.thetas)
            self._degree = arrays[1].shape[1]
            self._tables = (*[self._put(f"field {k}", a) for k, a in enumerate(arrays)], np.uint32(self._n))
        if self.num_sets > 1:
            self._load_exchange()

    def _fill_tables(self) -> None:
        """Make the tables of thresholds or log-odds from the loaded parameters, on the device."""
        from fastmix.chains.cuda import threshold_kernels

        if self.kernel == "packed-field":
            _, chunks, partial, margins, _, _, weights, offsets, _ = self._tables
            self._start(
                threshold_kernels.fill_fields,
                self._n * self.num_sets,
                self._load_values(),
                np.int64(self.num_parameters),
                self._links,
                chunks,
                partial,
                margins,
                weights,
                offsets,
            )
            return
        table = self._table
        if self._factors:
            # The host makes the tables of models with factors, as for the CPU.
            filled = np.zeros((self.num_sets, table.size // self.num_sets), np.uint32)
            for k, row in enumerate(filled):
                self._layout.fill_thresholds(self.sets.theta(k), self._table_starts[self._layout.places], row)
            table.copy_to_device(filled.reshape(-1))
        else:
            self._start(
                threshold_kernels.fill_thresholds,
                16 * self._n * self.num_sets,
                self._load_values(),
                np.int64(self.num_parameters),
                self._links,
                *self._patterns,
                np.int64(table.size // self.num_sets),
                table,
            )
        if self.kernel == "packed":
            rows = self._n * self.num_sets
            steps = (128, 1) if self._launch.block_x >= 32 else (1, rows)
            sizes = [np.uint64(k) for k in (rows, *steps)]
            self._start(threshold_kernels.fill_masks, rows, table, *sizes, self._tables[1], self._tables[3])

    def get_random_state(self) -> NDArray[np.uint64]:
        """The key of the random numbers and the number of the next sweep."""
        return np.array([*self._key, self._sweep], dtype=np.uint64)

    def set_random_state(self, state: NDArray[np.uint64]) -> None:
        """Continue with a key and the number of a sweep from :meth:`get_random_state`."""
        self._key = np.uint32(state[0]), np.uint32(state[1])
        self._sweep = int(state[2])

    # -- moving -----------------------------------------------------------------------------------------------------

    def sweep(self, num_sweeps: int, *, collect: bool = False) -> None:
        """Run sweeps, and wait until the device has made them."""
        for count, mode in self._pieces(num_sweeps if self._n else 0, collect):
            self._run(count, mode)
        self._cuda.synchronize()

    def _run(self, num_sweeps: int, mode: int) -> None:
        """Launch sweeps."""
        from fastmix.chains.cuda.sweep_kernels import sweep_kernel

        launch = self._launch
        grid_x = self._units // (launch.block_x * launch.wide)
        grid_y = launch.grid_y
        block = launch.block_x, launch.block_y
        arguments = (*self._arguments, num_sweeps, np.uint64(self._sweep), *self._key)
        kernel: Any = sweep_kernel(self._update(mode, grid_y > 1), launch.wide, self.kernel.endswith("field"))
        if grid_y > 1:
            # Blocks wait for each other: there must be no more than run at once, which are more than those along x.
            kernel, room = self._prepare_together(kernel, block, arguments)
            grid_y = min(grid_y, room // grid_x)
        start_kernel(kernel, ((grid_x, grid_y), block), *arguments)
        self._sweep += num_sweeps

    def _prepare_together(self, kernel: Any, block: tuple[int, int], arguments: tuple[Any, ...]) -> tuple[Any, int]:
        """A kernel to be launched cooperatively, and how many of its blocks run at once."""
        if kernel not in self._together:
            special = kernel
            room = 1
            if not is_simulated(self._cuda):
                special = kernel.specialize(*arguments)
                room = next(iter(special.overloads.values())).max_cooperative_grid_blocks(block)
            self._together[kernel] = special, room
        return self._together[kernel]

    @property
    def _arguments(self) -> tuple[Any, ...]:
        """Arguments of every launch of sweeps: states, tables, colors, sets and sums."""
        steps = tuple(np.uint64(k) for k in self._sum_steps)
        states = self._x.view(np.uint32) if self.kernel == "table" else self._x
        return states, self._tables, self._starts, self._models, self._sums, steps, np.uint32(self._row)

    def _update(self, mode: int, grid: bool = False) -> Any:
        """The update that kernels run; with ``grid`` it waits for all blocks, not only for its own."""
        from fastmix.chains.cuda import field_kernels, packed_kernels, state_kernels

        per_chain = self._per_chain
        if self.kernel == "packed":
            return packed_kernels.packed_update(self._launch.wide, self._launch.block_x, mode, per_chain, grid)
        if self.kernel == "packed-field":
            return field_kernels.packed_field_update(self._launch.block_x < 16, mode, per_chain, grid)
        if self.kernel == "field":
            return field_kernels.field_update(self._degree, mode, grid)
        if self.kernel == "logit":
            return state_kernels.logit_update(mode, grid)
        return state_kernels.table_update(self._small, mode, per_chain, grid)

    # -- replica exchange -------------------------------------------------------------------------------------------

    def set_shifts(self, shifts: ArrayLike) -> None:
        """Set guesses (K - 1,) of ``log Z_{k+1} / Z_k`` for the acceptance ratio estimator; they are zeros at first."""
        self._shifts.copy_to_device(np.ascontiguousarray(shifts, dtype=np.float64))

    def _load_exchange(self) -> None:
        """Put the terms of every theta that are not zero on the device, with the differences of the coefficients."""
        thetas = self.sets.thetas
        constants = np.zeros(len(thetas))
        if self._packed:
            terms, lists, constants = self._load_binary_terms()
        else:
            terms, lists = self._load_terms()
        pieces = offsets_of(np.array([len(part) for part in lists]))
        gaps = np.diff(self.sets.coefficients, axis=0)
        gaps = np.concatenate([gaps, (gaps @ constants)[:, None]], axis=1)
        energies = self._room("energies of all", len(lists) * self._capacity)
        ladder = self._put("gaps", gaps), self._shifts, energies, *self._replicas
        self._round_arrays = terms, self._put("term pieces", pieces.astype(np.uint32)), ladder

    def _load_binary_terms(self) -> tuple[tuple[Any, ...], list[IntArray], FloatArray]:
        """Terms of binary states on the device: rows and weights; their numbers for every theta; constants (D,).

        They are weights of variables in state 1, and of edges whose ends differ: x_i x_j is (x_i + x_j - differ) / 2.
        """
        linear, joint, constants = self._layout.binary_terms(self.sets.thetas)
        for end in self.structure.edges.T:
            linear += [np.bincount(end, 0.5 * weights, minlength=self._n) for weights in joint]
        weights = np.concatenate([linear, -0.5 * joint], axis=1)
        lists = [np.flatnonzero(row) for row in weights]
        rows = self._describe(np.concatenate(lists))[0]
        numbers = np.concatenate([row[part] for row, part in zip(weights, lists, strict=True)])
        return (self._put("term rows", rows), self._put("term weights", numbers)), lists, constants

    def _load_terms(self) -> tuple[tuple[Any, ...], list[IntArray]]:
        """Terms of any states on the device: their description and all parameters; their numbers for every theta."""
        thetas = self.sets.thetas
        lists = [np.flatnonzero(np.add.reduceat(theta != 0.0, self._term_offsets[:-1])) for theta in thetas]
        owner = np.repeat(np.arange(len(lists)), [len(part) for part in lists])
        rows, steps, offsets, starts = self._describe_members(np.concatenate(lists))
        offsets = offsets + (owner * self.num_parameters).astype(np.uint64)
        described = tuple(self._put(f"term {k}", a) for k, a in enumerate((rows, steps, offsets, starts)))
        return (described, self._put("term values", thetas)), lists

    def exchange_rounds(self, num_rounds: int, *, collect: bool = False) -> None:
        """Run rounds of replica exchange, many of them in one launch; see :class:`fastmix.chains.base.Chains`."""
        for count, mode in self._pieces(num_rounds, collect):
            self._run_rounds(count, mode)
        self._cuda.synchronize()

    def _run_rounds(self, num_rounds: int, mode: int) -> None:
        """Launch rounds of replica exchange."""
        from fastmix.chains.cuda.exchange_kernels import rounds_kernel

        launch = self._launch
        words = self.num_chains // self.width
        block = launch.block_x, launch.block_y
        numbers = self.num_sets, self.num_chains, self._n, words, self._capacity, len(self.sets.thetas)
        sizes = tuple(np.uint32(k) for k in numbers)
        states, *rest = self._arguments
        arguments = (
            states,
            self._x,
            *rest,
            *self._round_arrays,
            sizes,
            np.uint32(self._units),
            num_rounds,
            np.uint64(self._sweep),
            *self._key,
        )
        kernel = rounds_kernel(self._update(mode), self.kernel)
        kernel, most = self._prepare_together(kernel, block, arguments)
        start_kernel(kernel, ((min(most, self._units // launch.block_x), 1), block), *arguments)
        self._sweep += num_rounds

    def exchanges(self) -> Exchanges:
        """Sums over the proposals of exchanges since the chains were made, or since :meth:`clear`."""
        shape = 6, self.num_sets - 1, self.num_chains
        return Exchanges(self._counts.copy_to_host().reshape(shape), self._trips.copy_to_host())

    def clear(self) -> None:
        """Forget the sums of sweeps and of exchanges."""
        self.take_sums()
        if self.num_sets > 1:
            for array in (self._counts, self._trips):
                array.copy_to_device(np.zeros(array.size, dtype=array.dtype))

    # -- sums -------------------------------------------------------------------------------------------------------

    def take_sums(self) -> FloatArray:
        """Sums of the states since the last call, added up over the chains of every group, (entries, groups)."""
        groups = self.num_chains // self.group_size
        if not self._n or not self._mode:
            return np.zeros((int(self.structure.unary_offsets[-1]), groups))
        self._empty_sums()
        totals = self._totals.copy_to_host()[: self._num_rows * self._columns]
        self._totals.copy_to_device(np.zeros(self._totals.size, dtype=np.uint64))
        if self._per_chain:
            row, chain, unit = (8 * step for step in self._sum_steps)
            shape = self._num_rows, self._units, self.width
            single = np.lib.stride_tricks.as_strided(totals, shape, (row, unit, chain))
            single = single.reshape(self._num_rows, self._capacity)
            single = single[:, self._total - self.num_chains : self._total]
            totals = single.reshape(self._num_rows, groups, self.group_size).sum(axis=2)
        else:
            last = self._total // self.group_size
            totals = totals.reshape(self._num_rows, -1)[:, last - groups : last]

        # Rows lie by place, and are returned by variable.
        rows = rows_of(offsets_of(self._layout.place_cuts), self._layout.places)[1]
        sweeps = self._swept
        self._swept = 0
        return sums_by_state(self.structure, totals[rows].astype(np.float64), sweeps * self.group_size)

    def _empty_sums(self) -> None:
        """Move the sums of the kernels to the totals of groups, which have 64 bits."""
        if self._collected and self._num_rows:
            from fastmix.chains.cuda.reading_kernels import empty_sums

            sizes = [np.uint64(k) for k in (self._num_rows, self._lanes, self._per_total)]
            self._start(empty_sums, self._num_rows * self._columns, self._sums, self._totals, *sizes)
        super()._empty_sums()

    @property
    def _sum_steps(self) -> tuple[int, int, int]:
        """Steps of rows, of chains of a unit and of units in the sums; what a warp adds to lies side by side."""
        if not self._per_chain:
            return self._units, 0, 1
        if not self._packed:
            return self._capacity, 1, self.width
        if self._launch.block_x >= 32:
            return 32 * self._stride, self._stride, 1
        return 1, self._n, 32 * self._n

    # -- memory -----------------------------------------------------------------------------------------------------

    def _allocate(self) -> None:
        """Allocate the arrays on the device, after a check that they fit."""
        structure = self.structure
        num_states = (self._n + 1) * self._stride
        if num_states >= _MOST_STATES:
            raise ResourceError(
                f"the GPU sampler takes fewer than 2^32 {'words of 32 states' if self._packed else 'states'}, and "
                f"{self._total:,} chains of {self._n:,} variables have {num_states:,}; run fewer chains at a time"
            )
        large = not self._packed and structure.num_states.max() > 256
        dtype = np.dtype(np.uint32 if self._packed else np.uint16 if large else np.uint8)
        sum_dtype = np.dtype(np.uint32 if self._per_chain else np.uint64)
        sums = self._num_rows * self._lanes if self._mode else 0
        totals = self._num_rows * self._columns if self._mode else 0
        entries = self._table_entries()
        required: float = num_states * dtype.itemsize + sums * sum_dtype.itemsize + 8 * totals
        required += self._other_bytes(entries, num_states * dtype.itemsize)
        check_memory(self._cuda, required)
        try:
            self._x = self._zeros(num_states, dtype)
            self._starts = self._put("starts", self._layout.class_starts)
            sets = np.minimum(np.arange(self._units) * self.width // self.num_chains, self.num_sets - 1)
            self._models = self._put("models", sets.astype(np.int32))
            self._sums = self._zeros(sums, sum_dtype)
            self._totals = self._zeros(totals, np.uint64)
            if self.kernel in ("packed", "packed-field", "table"):
                self._allocate_tables(entries)
            if self.num_sets > 1:
                self._allocate_ladder()
        except Exception as error:
            if "MEMORY" not in str(error).upper():
                raise
            raise ResourceError(
                f"the GPU could not allocate {format_bytes(required)}; run fewer chains, or use the CPU",
                required_bytes=int(required),
            ) from None

    def _table_entries(self) -> int:
        """Entries of the tables of thresholds or log-odds of all sets; 0 for kernels that have none."""
        if self._packed:
            return self.num_sets * 16 * int(self._layout.groups[0][-1])
        if self.kernel != "table":
            return 0
        entries = self.num_sets * int(self._layout.patterns[0] @ self._layout.cuts)
        if entries >= _MOST_STATES:
            raise ResourceError(f"the GPU sampler takes tables of fewer than 2^32 entries, got {entries:,}")
        return entries

    def _other_bytes(self, entries: int, state_bytes: int) -> float:
        """Bytes of the arrays beside states and sums: an estimate from above."""
        required = 4 * self._units + LINK_BYTES * (self._n + 2 * self.structure.num_edges)
        required += (16 if self.kernel == "packed" else 4) * entries
        if self.kernel != "field":
            required += 8 * self.num_parameters * (self.num_sets + 1)
        if not self._mode:
            # A descent has spare and saved states, energies with their pieces, and lists of terms.
            required += 3.0 * state_bytes + self._reading_bytes
        return required

    def _allocate_ladder(self) -> None:
        """Allocate the arrays of replica exchange."""
        rungs = np.repeat(np.arange(self.num_sets, dtype=np.int64), self.num_chains)
        self._shifts = self._zeros(self.num_sets - 1, np.float64)
        self._counts = self._zeros(6 * (len(rungs) - self.num_chains), np.float64)
        self._trips = self._zeros(self.num_chains, np.int64)
        masks = self._zeros(self._units, np.uint32)
        carrier = self._cuda.to_device(rungs)  # the set at which each configuration started
        heading = self._zeros(len(rungs), np.uint8)
        self._replicas = masks, self._counts, carrier, heading, self._trips

    def _allocate_tables(self, entries: int) -> None:
        """Allocate the tables of thresholds or log-odds, with the arrays that do not depend on parameters."""
        if self.kernel == "packed-field":
            self._allocate_fields(entries)
            return
        layout = self._layout
        patterns = layout.patterns[0][layout.order]
        strides = layout.patterns[1][layout.by_place[1]]
        cuts = layout.place_cuts
        begin = 16 * np.arange(self._n) if self.kernel == "packed" else offsets_of(cuts * patterns)[:-1]
        self._table_starts = begin
        theirs = self.structure.num_states[layout.order][layout.neighbors]
        self._patterns = self._put("strides", strides), self._put("theirs", theirs), self._put("begin", begin)
        self._table = self._zeros(entries, np.uint32)
        if self.kernel == "packed":
            self._tables = (
                self._put("around", self._rows(layout.groups[1])),
                self._zeros(8 * entries, np.int8),
                self._table,
                self._zeros(entries, np.uint32),
                np.uint32(self._n),
                np.uint64(self._n * self.num_sets),
            )
        else:
            self._small = int(patterns.max(initial=1)) <= 256
            rows = (layout.neighbors.astype(np.int64) * self._row).astype(np.uint32)
            self._tables = (
                self._links[0],
                self._put("near rows", rows),
                self._put("near strides", strides.astype(np.int32)),
                self._put("cuts", cuts.astype(np.int32)),
                self._patterns[2],
                self._table,
                self._sum_rows,
                np.uint32(entries // self.num_sets),
            )

    def _allocate_fields(self, entries: int) -> None:
        """Allocate the tables of log-odds of groups of four neighbors."""
        chunks, around = self._layout.groups
        sites = self._n * self.num_sets
        links = 2 * self.structure.num_edges * self.num_sets
        self._tables = (
            self._put("around", self._rows(around)),
            self._put("chunks", chunks),
            self._zeros(entries, np.float32),
            self._zeros(sites, np.float32),
            *self._links[:2],
            self._zeros(links, np.float64),
            self._zeros(sites, np.float64),
            np.uint32(np.diff(chunks).max()),
        )

    @cached_property
    def _sum_rows(self) -> Any:
        """The first row of every place in the sums, on the device."""
        return self._put("sum rows", offsets_of(self._layout.place_cuts)[:-1])
