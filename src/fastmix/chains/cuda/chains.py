"""Chains on an NVIDIA GPU; kernels are imported when first needed, because importing Numba takes half a second."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix._arrays import FloatArray
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
from fastmix.errors import ResourceError
from fastmix.model.build import offsets_of
from fastmix.model.structure import Structure

__all__ = ["CudaChains"]


_KEY_STREAM = 1 << 41  # the stream whose first words are the key: far from those that chains on the CPU use
_MODES = {None: 0, "rao-blackwell": 1, "counts": 2}
_MOST_GROUPED = 1 << 30  # sweeps whose units fit into the 64 bits that the sum of a group has
_MOST_STATES = 1 << 32  # the kernels number them in 32 bits
_LINK_BYTES = 96.0  # of a variable or a direction of an edge, in the tables of log-odds


class CudaChains(DeviceChains):
    """Gibbs sweeps on an NVIDIA GPU, for any structure: what :class:`fastmix.chains.base.Chains` promises.

    Systematic sweeps in the same order as on the CPU, with other random numbers: those of Philox4x32-10, addressed by
    sweep, variable and configuration. A configuration draws the same numbers whatever the shape of the launches and the
    number of chains, for a given kernel. Parameters go to the device, where tables are made from them, and sums come
    back; on one kind of device they are the same bits every time.

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
        models) or of four (others), or multiples, the sums cost little; single chains take 12 bytes an entry.
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

    updates_per_step = 2e10

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
        # Chains of a thread: four states of any kind, so that a call of the generator is used up.
        self.width = 32 if self._packed else 1 if self.kernel == "field" else 4
        if num_sets > 1 and num_chains % self.width:
            raise ValueError(f"num_chains must be a multiple of {self.width} for several sets, got {num_chains}")
        units = -(-self._total // self.width)
        largest = int(np.diff(self._layout.class_starts).max(initial=1))
        if launch is None and largest == 1 and self.kernel == "packed-field" and not self._mode:
            launch = Launch(1, 1, 32)  # a thread for every chain
        self._launch = launch or plan_launch(
            self.kernel, units, largest, num_multiprocessors(self._cuda), several=num_sets > 1
        )
        tile = self._launch.block_x * self._launch.wide
        self._units = -(-units // tile) * tile
        self._capacity = self._units * self.width
        self._stride = self._units if self._packed else self._capacity
        # Elements of a row as the kernel takes them: tables have four chains of one byte each for a word.
        self._row = self._units if self.kernel == "table" else self._stride
        self._per_chain = group_size % self.width != 0 or self.width == 1
        if not self._per_chain:
            self._most_collected = _MOST_GROUPED
        self._lanes = self._capacity if self._per_chain else self._units  # sums of a row as the kernel adds to them
        self._per_total = 1 if self._per_chain else group_size // self.width  # of these
        self._columns = self._lanes // self._per_total
        self._num_rows = int((structure.num_states - 1).sum())
        self._together: dict[Any, tuple[Any, int]] = {}
        self._tables: tuple[Any, ...] = ()
        if self._n:
            self._allocate()

    # -- parameters -------------------------------------------------------------------------------------------------

    def load(self, thetas: ArrayLike, coefficients: ArrayLike | None = None) -> None:
        """Set k becomes ``coefficients[k] @ thetas``; see :meth:`fastmix.chains.base.Chains.load`.

        Nothing is compiled or allocated anew. Tables of thresholds are filled on the device.
        """
        self.sets, self._values = self._read_sets(thetas, coefficients), None
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
        from fastmix.chains.cuda import kernels

        if self.kernel == "packed-field":
            _, chunks, partial, margins, _, _, weights, offsets, _ = self._tables
            self._start(
                kernels.fill_fields, self._n * self.num_sets, self._load_values(), np.int64(self.num_parameters),
                self._links, chunks, partial, margins, weights, offsets,
            )  # fmt: skip
            return
        table = self._table
        if self._factors:  # as for the CPU
            filled = np.zeros((self.num_sets, table.size // self.num_sets), np.uint32)
            for k, row in enumerate(filled):
                self._layout.fill_thresholds(self.sets.theta(k), self._table_starts[self._layout.places], row)
            table.copy_to_device(filled.reshape(-1))
        else:
            self._start(
                kernels.fill_thresholds, 16 * self._n * self.num_sets, self._load_values(),
                np.int64(self.num_parameters), self._links, *self._patterns, np.int64(table.size // self.num_sets),
                table,
            )  # fmt: skip
        if self.kernel == "packed":
            rows = self._n * self.num_sets
            steps = (128, 1) if self._launch.block_x >= 32 else (1, rows)
            sizes = [np.uint64(k) for k in (rows, *steps)]
            self._start(kernels.fill_masks, rows, table, *sizes, self._tables[1], self._tables[3])

    def get_random_state(self) -> NDArray[np.uint64]:
        """The key and the number of the next sweep."""
        return np.array([*self._key, self._sweep], dtype=np.uint64)

    def set_random_state(self, state: NDArray[np.uint64]) -> None:
        """Continue with a key and a sweep from :meth:`get_random_state`."""
        self._key = np.uint32(state[0]), np.uint32(state[1])
        self._sweep = int(state[2])

    # -- moving -----------------------------------------------------------------------------------------------------

    def sweep(self, num_sweeps: int, *, collect: bool = False) -> None:
        """Run sweeps, and wait for the device at the end."""
        for count, mode in self._pieces(num_sweeps if self._n else 0, collect):
            self._run(count, mode)
        self._cuda.synchronize()

    def _run(self, num_sweeps: int, mode: int) -> None:
        from fastmix.chains.cuda.kernels import sweep_kernel

        launch = self._launch
        grid_x, grid_y = self._units // (launch.block_x * launch.wide), launch.grid_y
        block = launch.block_x, launch.block_y
        arguments = (*self._arguments, num_sweeps, np.uint64(self._sweep), *self._key)
        kernel: Any = sweep_kernel(self._update(mode, grid_y > 1), launch.wide, self.kernel.endswith("field"))
        if grid_y > 1:  # blocks that wait for each other: as many as run at once, which are more than along x
            kernel, room = self._prepare_together(kernel, block, arguments)
            grid_y = min(grid_y, room // grid_x)
        start_kernel(kernel, ((grid_x, grid_y), block), *arguments)
        self._sweep += num_sweeps

    def _prepare_together(self, kernel: Any, block: tuple[int, int], arguments: tuple[Any, ...]) -> tuple[Any, int]:
        """A kernel to be launched cooperatively, and how many of its blocks run at once."""
        if kernel not in self._together:
            special, room = kernel, 1
            if not is_simulated(self._cuda):
                special = kernel.specialize(*arguments)
                room = next(iter(special.overloads.values())).max_cooperative_grid_blocks(block)
            self._together[kernel] = special, room
        return self._together[kernel]

    @property
    def _arguments(self) -> tuple[Any, ...]:
        """What every sweep takes: states, tables, colors, sets, sums."""
        steps = tuple(np.uint64(k) for k in self._sum_steps)
        states = self._x.view(np.uint32) if self.kernel == "table" else self._x
        return states, self._tables, self._starts, self._models, self._sums, steps, np.uint32(self._row)

    def _update(self, mode: int, grid: bool = False) -> Any:
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
        """Guesses (K - 1,) of ``log Z_{k+1} / Z_k`` for the acceptance ratio estimator; zeros at first."""
        self._shifts.copy_to_device(np.ascontiguousarray(shifts, dtype=np.float64))

    def _load_exchange(self) -> None:
        """The terms of every theta that are not zero, and how coefficients differ from set to set."""
        thetas = self.sets.thetas
        constants = np.zeros(len(thetas))
        if self._packed:
            # Weights of variables in state 1, and of edges whose ends differ: x_i x_j is half of x_i + x_j less that.
            linear, joint, constants = self._layout.binary_terms(thetas)
            for end in self.structure.edges.T:
                linear += [np.bincount(end, 0.5 * weights, minlength=self._n) for weights in joint]
            weights = np.concatenate([linear, -0.5 * joint], axis=1)
            lists = [np.flatnonzero(row) for row in weights]
            rows = self._describe(np.concatenate(lists))[0]
            numbers = np.concatenate([row[part] for row, part in zip(weights, lists, strict=True)])
            terms: tuple[Any, ...] = self._put("term rows", rows), self._put("term weights", numbers)
        else:
            lists = [np.flatnonzero(np.add.reduceat(theta != 0.0, self._term_offsets[:-1])) for theta in thetas]
            owner = np.repeat(np.arange(len(lists)), [len(part) for part in lists])
            rows, steps, offsets, starts = self._describe_members(np.concatenate(lists))
            offsets = offsets + (owner * self.num_parameters).astype(np.uint64)
            described = tuple(self._put(f"term {k}", a) for k, a in enumerate((rows, steps, offsets, starts)))
            terms = described, self._put("term values", thetas)
        pieces = offsets_of(np.array([len(part) for part in lists]))
        gaps = np.diff(self.sets.coefficients, axis=0)
        gaps = np.concatenate([gaps, (gaps @ constants)[:, None]], axis=1)
        energies = self._room("energies of all", len(lists) * self._capacity)
        ladder = self._put("gaps", gaps), self._shifts, energies, *self._replicas
        self._round_arrays = terms, self._put("term pieces", pieces.astype(np.uint32)), ladder

    def exchange_rounds(self, num_rounds: int, *, collect: bool = False) -> None:
        """Rounds of replica exchange, many of them in one launch; see :class:`fastmix.chains.base.Chains`."""
        for count, mode in self._pieces(num_rounds, collect):
            self._run_rounds(count, mode)
        self._cuda.synchronize()

    def _run_rounds(self, num_rounds: int, mode: int) -> None:
        from fastmix.chains.cuda.exchange_kernels import rounds_kernel

        launch, words = self._launch, self.num_chains // self.width
        block = launch.block_x, launch.block_y
        numbers = self.num_sets, self.num_chains, self._n, words, self._capacity, len(self.sets.thetas)
        sizes = tuple(np.uint32(k) for k in numbers)
        states, *rest = self._arguments
        arguments = (
            states, self._x, *rest, *self._round_arrays, sizes, np.uint32(self._units), num_rounds,
            np.uint64(self._sweep), *self._key,
        )  # fmt: skip
        kernel = rounds_kernel(self._update(mode), self.kernel)
        kernel, most = self._prepare_together(kernel, block, arguments)
        start_kernel(kernel, ((min(most, self._units // launch.block_x), 1), block), *arguments)
        self._sweep += num_rounds

    def exchanges(self) -> Exchanges:
        """What exchanges have added up."""
        shape = 6, self.num_sets - 1, self.num_chains
        return Exchanges(self._counts.copy_to_host().reshape(shape), self._trips.copy_to_host())

    def clear(self) -> None:
        """Forget the sums of sweeps and of exchanges."""
        self.take_sums()
        for array in (self._counts, self._trips) if self.num_sets > 1 else ():
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
        # Rows lie by place, and are wanted by variable.
        rows = rows_of(offsets_of(self._layout.place_cuts), self._layout.places)[1]
        sweeps, self._swept = self._swept, 0
        return sums_by_state(self.structure, totals[rows].astype(np.float64), sweeps * self.group_size)

    def _empty_sums(self) -> None:
        if self._collected and self._num_rows:
            from fastmix.chains.cuda.reading_kernels import empty_sums

            sizes = [np.uint64(k) for k in (self._num_rows, self._lanes, self._per_total)]
            self._start(empty_sums, self._num_rows * self._columns, self._sums, self._totals, *sizes)
        super()._empty_sums()

    @property
    def _sum_steps(self) -> tuple[int, int, int]:
        """Steps of rows, chains of a unit and units in the sums: together lies what the threads of a warp add to."""
        if not self._per_chain:
            return self._units, 0, 1
        if not self._packed:
            return self._capacity, 1, self.width
        if self._launch.block_x >= 32:
            return 32 * self._stride, self._stride, 1
        return 1, self._n, 32 * self._n

    # -- memory -----------------------------------------------------------------------------------------------------

    def _allocate(self) -> None:
        structure, n = self.structure, self._n
        states = (n + 1) * self._stride
        if states >= _MOST_STATES:
            raise ResourceError(
                f"the GPU sampler takes fewer than 2^32 {'words of 32 states' if self._packed else 'states'}, and "
                f"{self._total:,} chains of {n:,} variables have {states:,}; run fewer chains at a time"
            )
        large = not self._packed and structure.num_states.max() > 256
        dtype = np.dtype(np.uint32 if self._packed else np.uint16 if large else np.uint8)
        sum_dtype = np.dtype(np.uint32 if self._per_chain else np.uint64)
        sums, totals = (self._num_rows * k if self._mode else 0 for k in (self._lanes, self._columns))
        entries = self.num_sets * 16 * int(self._layout.groups[0][-1]) if self._packed else 0
        if self.kernel == "table":
            entries = self.num_sets * int(self._layout.patterns[0] @ self._layout.cuts)
            if entries >= _MOST_STATES:
                raise ResourceError(f"the GPU sampler takes tables of fewer than 2^32 entries, got {entries:,}")
        required: float = states * dtype.itemsize + 4 * self._units + sums * sum_dtype.itemsize + 8 * totals
        required += _LINK_BYTES * (n + 2 * structure.num_edges) + (16 if self.kernel == "packed" else 4) * entries
        required += 0 if self.kernel == "field" else 8 * self.num_parameters * (self.num_sets + 1)
        if not self._mode:  # a descent: spare and saved states, energies with their pieces, lists of terms
            required += 3.0 * states * dtype.itemsize + self._reading_bytes
        check_memory(self._cuda, required)
        try:
            self._x, self._starts = self._zeros(states, dtype), self._put("starts", self._layout.class_starts)
            sets = np.minimum(np.arange(self._units) * self.width // self.num_chains, self.num_sets - 1)
            self._models = self._put("models", sets.astype(np.int32))
            self._sums, self._totals = self._zeros(sums, sum_dtype), self._zeros(totals, np.uint64)
            if self.kernel in ("packed", "packed-field", "table"):
                self._allocate_tables(entries)
            if self.num_sets > 1:
                rungs = np.repeat(np.arange(self.num_sets, dtype=np.int64), self.num_chains)
                self._shifts = self._zeros(self.num_sets - 1, np.float64)
                self._counts = self._zeros(6 * (len(rungs) - self.num_chains), np.float64)
                self._trips = self._zeros(self.num_chains, np.int64)
                # Masks, counts, who started where, where it is heading, and round trips.
                self._replicas = (
                    self._zeros(self._units, np.uint32), self._counts, self._cuda.to_device(rungs),
                    self._zeros(len(rungs), np.uint8), self._trips,
                )  # fmt: skip
        except Exception as error:
            if "MEMORY" not in str(error).upper():
                raise
            raise ResourceError(
                f"the GPU could not allocate {format_bytes(required)}; run fewer chains, or use the CPU",
                required_bytes=int(required),
            ) from None

    def _allocate_tables(self, entries: int) -> None:
        """Room for thresholds or log-odds, and what does not depend on parameters."""
        structure, layout, n = self.structure, self._layout, self._n
        if self.kernel == "packed-field":
            chunks, around = layout.groups
            sites, links = n * self.num_sets, 2 * structure.num_edges * self.num_sets
            self._tables = (
                self._put("around", self._rows(around)), self._put("chunks", chunks),
                self._zeros(entries, np.float32), self._zeros(sites, np.float32), *self._links[:2],
                self._zeros(links, np.float64), self._zeros(sites, np.float64), np.uint32(np.diff(chunks).max()),
            )  # fmt: skip
            return
        patterns, strides = layout.patterns[0][layout.order], layout.patterns[1][layout.by_place[1]]
        cuts = layout.place_cuts
        begin = 16 * np.arange(n) if self.kernel == "packed" else offsets_of(cuts * patterns)[:-1]
        self._table_starts = begin
        theirs = structure.num_states[layout.order][layout.neighbors]
        self._patterns = tuple(
            self._put(name, a) for name, a in (("strides", strides), ("theirs", theirs), ("begin", begin))
        )
        self._table = self._zeros(entries, np.uint32)
        if self.kernel == "packed":
            self._tables = (
                self._put("around", self._rows(layout.groups[1])), self._zeros(8 * entries, np.int8),
                self._table, self._zeros(entries, np.uint32), np.uint32(n), np.uint64(n * self.num_sets),
            )  # fmt: skip
        else:
            self._small = int(patterns.max(initial=1)) <= 256
            rows = (layout.neighbors.astype(np.int64) * self._row).astype(np.uint32)
            self._tables = (
                self._links[0], self._put("near rows", rows), self._put("near strides", strides.astype(np.int32)),
                self._put("cuts", cuts.astype(np.int32)), self._patterns[2], self._table, self._sum_rows,
                np.uint32(entries // self.num_sets),
            )  # fmt: skip

    @cached_property
    def _sum_rows(self) -> Any:
        return self._put("sum rows", offsets_of(self._layout.place_cuts)[:-1])
