"""Gibbs sampling on NVIDIA GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix._memory import format_bytes
from fastmix.chains.cuda import tables as cuda_tables
from fastmix.chains.cuda.device import (
    CudaKernel,
    Launch,
    check_memory,
    choose_cuda_kernel,
    choose_group_size,
    cuda_available,
    num_multiprocessors,
    plan_launch,
    require_cuda,
    start_kernel,
)
from fastmix.chains.cuda.host import pack_states, sums_by_entry, unpack_states
from fastmix.chains.engine import Engine
from fastmix.chains.generator import make_streams
from fastmix.errors import ModelError, ResourceError, UnfitMethodError
from fastmix.model import MarkovRandomField

__all__ = ["CudaGibbs", "choose_cuda_kernel", "choose_group_size", "cuda_available"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_KEY_STREAM = 1 << 41  # the stream whose first words are the key: far from those that chains on the CPU use
_MOST_COLLECTED = 255  # sweeps whose full units, 2^24 each, fit into the 32 bits that a single chain's sum has
_MOST_STATES = 1 << 32  # the kernels number them in 32 bits
_SUPPORT_BLOCKS, _SUPPORT_THREADS = 1024, 128


class CudaGibbs(Engine):
    """Gibbs sweeps on an NVIDIA GPU, for any model.

    Systematic sweeps in the same order as :class:`fastmix.chains.gibbs.Gibbs`, with other random numbers: those of
    Philox4x32-10, addressed by sweep, variable and chain. A chain draws the same numbers whatever the shape of the
    launches and the number of chains, for a given kernel.

    Parameters
    ----------
    model : MarkovRandomField
        Without states that a unary forbids.
    num_chains, seed : int
    schedule : {"systematic"}
        A random schedule is refused: chains that touch different variables cannot share a word or a table.
    estimator : {"rao-blackwell", "counts"}
        What a sweep adds to the sums.
    group_size : int
        Chains that are added up together in the sums; a divisor of ``num_chains``. With groups of 32 chains (binary
        models) or of four (others), or multiples, the sums cost little; single chains take 12 bytes an entry.
        :func:`choose_group_size` says what fits.
    kernel : str, optional
        Chosen by :func:`choose_cuda_kernel`.
    launch : Launch, optional
        Chosen by the number of chains; for tests and benchmarks.
    memory_limit : float, optional
        Bytes of the device that may be used; what is free by default.

    Attributes
    ----------
    num_groups : int
        Columns of :meth:`take_sums`.
    updates_per_step : float
        Updates, of all chains together, that are worth a call of :meth:`advance`: a fraction of a second of work.

    Raises
    ------
    UnfitMethodError
        Without a usable device, or for a random schedule.
    ResourceError
        If the device has too little free memory.
    """

    updates_per_step = 2e10

    def __init__(
        self,
        model: MarkovRandomField,
        *,
        num_chains: int,
        seed: int,
        schedule: Literal["systematic", "random"] = "systematic",
        estimator: Literal["rao-blackwell", "counts"] = "rao-blackwell",
        group_size: int = 1,
        kernel: CudaKernel | None = None,
        launch: Launch | None = None,
        memory_limit: float | None = None,
    ) -> None:
        if schedule != "systematic":
            raise UnfitMethodError(f"schedule must be systematic on the GPU, got {schedule!r}; use backend='cpu'")
        if group_size < 1 or num_chains % group_size:
            raise ValueError(f"group_size must divide num_chains, {num_chains}, got {group_size}")
        self._cuda = require_cuda()
        self.model, self.num_chains, self.group_size = model, num_chains, group_size
        self.num_groups = num_chains // group_size
        self.kernel: CudaKernel = choose_cuda_kernel(model, num_chains) if kernel is None else kernel
        self.mode = 2 if estimator == "counts" else 1
        words = make_streams(seed, _KEY_STREAM, 1)[:, 0]
        self._key = words[0], words[1]
        self._sweep = self._collected = self._swept = 0
        self._order = cuda_tables.find_order(model)
        self._packed = self.kernel.startswith("packed")
        # Chains of a thread: four states of any kind, so that a call of the generator is used up.
        self._width = 32 if self._packed else 1 if self.kernel == "field" or num_chains == 1 else 4
        units = -(-num_chains // self._width)
        largest = int(np.diff(self._order.starts).max(initial=1))
        self._launch = launch or plan_launch(self.kernel, units, largest, num_multiprocessors(self._cuda))
        tile = self._launch.block_x * self._launch.wide
        self._units = -(-units // tile) * tile
        self._per_chain = group_size % self._width != 0 or self._width == 1
        self._num_rows = int((model.num_states - 1).sum())
        self._tables: dict[str, Any] = {}
        self._together: dict[int, tuple[Any, int]] = {}
        self._degree, self._num_models = 0, 1
        self._small = self.kernel == "table" and cuda_tables.most_patterns(model) <= 256
        self._chunks = max(1, -(-int(np.diff(self._order.indptr).max(initial=0)) // 4))
        if model.num_variables:
            self._allocate(memory_limit)

    # -- the interface ----------------------------------------------------------------------------------------------

    def get_states(self) -> IntArray:
        """Current configurations (num_chains, n)."""
        return self.draw_states().astype(np.int64)

    def draw_states(self) -> NDArray[Any]:
        """The same in one byte a state, or two for more than 256 states."""
        if not self._n:
            return np.zeros((self.num_chains, 0), dtype=np.uint8)
        rows = self._x.copy_to_host().reshape(self._n + 1, -1)
        return unpack_states(rows, self._order, self.num_chains, packed=self._packed)

    def set_states(self, states: IntArray) -> None:
        """Start from these configurations (num_chains, n)."""
        if self._n:
            rows = pack_states(np.asarray(states), self._order, self._stride, self._x.dtype, packed=self._packed)
            self._x.copy_to_device(rows.reshape(-1))

    def get_random_state(self) -> NDArray[np.uint64]:
        """The key and the number of the next sweep."""
        return np.array([*self._key, self._sweep], dtype=np.uint64)

    def set_random_state(self, state: NDArray[np.uint64]) -> None:
        """Continue with a key and a sweep from :meth:`get_random_state`."""
        self._key = np.uint32(state[0]), np.uint32(state[1])
        self._sweep = int(state[2])

    def advance(self, num_sweeps: int, *, collect: bool, wait: bool = True) -> None:
        """Run sweeps; wait for the device at the end, unless more is to follow that it can begin with at once."""
        while num_sweeps > 0 and self._n:
            count = num_sweeps
            if collect and self._per_chain:
                if self._collected == _MOST_COLLECTED:
                    self._empty_sums()
                count = min(count, _MOST_COLLECTED - self._collected)
            self._run(count, self.mode if collect else 0)
            self._collected += count if collect else 0
            num_sweeps -= count
        if wait:
            self._cuda.synchronize()

    def take_sums(self) -> FloatArray:
        """Sums of the states since the last call, added up over the chains of every group, (entries, num_groups)."""
        if not self._n:
            return np.zeros((0, self.num_groups))
        self._empty_sums()
        shape = self._num_rows, self._num_columns
        totals = self._totals.copy_to_host()[: self._num_rows * self._num_columns].reshape(shape)
        self._totals.copy_to_device(np.zeros(self._totals.size, dtype=np.uint64))
        if self._per_chain:
            if self._packed:
                site, chain, word = (8 * step for step in self._sum_steps)
                view = np.lib.stride_tricks.as_strided(totals, (self._n, self._units, 32), (site, word, chain))
                totals = view.reshape(shape)
            grouped = totals[:, : self.num_chains].reshape(self._num_rows, self.num_groups, self.group_size)
            totals = grouped.sum(axis=2)
        sweeps, self._swept = self._swept, 0
        return sums_by_entry(self.model, self._order, totals[:, : self.num_groups], float(sweeps) * self.group_size)

    # -- beyond the interface ---------------------------------------------------------------------------------------

    def set_model(self, model: MarkovRandomField) -> None:
        """Go on with another model on the same graph; states, sums and random numbers stay.

        Nothing is compiled or allocated anew. For a loop that changes the parameters after every few sweeps.

        Raises
        ------
        ModelError
            If the variables, states or edges are others.
        """
        self.set_models([model])

    def set_models(self, models: Sequence[MarkovRandomField], model_of_chain: ArrayLike | None = None) -> None:
        """Give chains different models on the same graph, such as the rungs of a ladder of temperatures.

        Parameters
        ----------
        models : sequence of MarkovRandomField
        model_of_chain : int array (num_chains,), optional
            Number of the model of every chain; the chains that a thread updates together must have the same: 32 k to
            32 k + 31 with the kernel ``packed``, 4 k to 4 k + 3 with ``table``. Not needed for one model.

        Raises
        ------
        ModelError
            If the variables, states or edges are others.
        UnfitMethodError
            For several models, unless the kernel is ``packed`` (binary, at most four neighbours, several chains) or
            ``table`` (any states, few neighbours).
        ValueError
            If chains that are updated together have different models.
        """
        for model in models:
            same = np.array_equal(model.num_states, self.model.num_states)
            if not same or not np.array_equal(model.edges, self.model.edges):
                raise ModelError("model must have the variables, states and edges that the sampler was made for")
        if len(models) > 1 and self.kernel not in ("packed", "table"):
            raise UnfitMethodError(
                f"several models at once need the kernel packed or table, and this is {self.kernel}: use a sampler for "
                "each"
            )
        if not self._n:
            return
        words = np.zeros(self._units, dtype=np.int32)
        if len(models) > 1:
            width = self._width
            given = np.zeros(self._units * width, dtype=np.int32)
            given[: self.num_chains] = np.asarray(model_of_chain, dtype=np.int32)
            given[self.num_chains :] = given[self.num_chains - 1]
            grouped = given.reshape(-1, width)
            if (grouped != grouped[:, :1]).any() or given.min() < 0 or given.max() >= len(models):
                raise ValueError(
                    f"model_of_chain must be from 0 to {len(models) - 1} and equal for chains {width} k to {width} k + "
                    f"{width - 1}"
                )
            words = grouped[:, 0].copy()
            # Words side by side in a thread would read the same tables.
            self._launch = Launch(1, self._launch.block_x, self._launch.block_y, self._launch.grid_y)
        tables = self._host_tables(models)
        if self.kernel == "table" and tables["table"].size >= _MOST_STATES:
            raise ResourceError(
                f"the GPU sampler takes tables of fewer than 2^32 entries, got {tables['table'].size:,}"
            )
        self._set_tables(tables)
        self._models.copy_to_device(words)
        self._num_models = len(models)
        self.model = models[0]

    def count_pairs(self, out: IntArray) -> None:
        """Add the pairs of states on every edge, over all chains, to ``out`` (aligned with ``model.log_pairwise``)."""
        from fastmix.chains.cuda import support_kernels as kernels

        model = self.model
        if not model.num_edges:
            return
        ends = self._cuda.to_device(self._order.places[model.edges].reshape(-1))
        counts = self._cuda.to_device(np.zeros(len(model.log_pairwise), dtype=np.uint64))
        shape = min(model.num_edges, 1 << 16), self._support_shape(self.num_chains)[1]
        stride, chains = np.uint64(self._stride), np.uint64(self.num_chains)
        if self._packed:
            words = -(-self.num_chains // 32)
            last = np.uint32((1 << (self.num_chains - 32 * (words - 1))) - 1)
            start_kernel(kernels.count_packed_pairs, shape, self._x, ends, stride, np.uint64(words), last, counts)
        else:
            sizes = self._cuda.to_device(model.num_states[model.edges].reshape(-1))
            offsets = self._cuda.to_device(model.pairwise_offsets[:-1].copy())
            start_kernel(kernels.count_state_pairs, shape, self._x, ends, sizes, offsets, stride, chains, counts)
        out += counts.copy_to_host().astype(np.int64)

    def words(self) -> tuple[Any, int, int]:
        """The states on the device as words of 32 bits, the words of a row, and the bits of a state.

        There is a row for every variable, at its number in :attr:`places`. For kernels that read or change states
        beside the sweeps.
        """
        return self._x if self._packed else self._x.view(np.uint32), self._row, 1 if self._packed else 8

    @property
    def places(self) -> IntArray:
        """The row of every variable: its place in the order of a sweep."""
        return self._order.places

    # -- sizes ------------------------------------------------------------------------------------------------------

    @property
    def _n(self) -> int:
        return self.model.num_variables

    @property
    def _stride(self) -> int:
        """Columns of a row of states: words, or chains."""
        return self._units if self._packed else self._units * self._width

    @property
    def _bytewise(self) -> bool:
        """Whether the kernel takes four chains of one byte each for a word."""
        return self.kernel == "table" and self._width == 4 and int(self.model.num_states.max()) <= 256

    @property
    def _row(self) -> int:
        """Elements of a row of states as the kernel takes them."""
        return self._units if self._bytewise else self._stride

    @property
    def _lanes(self) -> int:
        """Sums of a row as the kernel adds to them."""
        return self._units * self._width if self._per_chain else self._units

    @property
    def _num_columns(self) -> int:
        """Sums of a row as they are kept: of every chain, or of every group."""
        return self._lanes if self._per_chain else self._lanes * self._width // self.group_size

    @property
    def _sum_steps(self) -> tuple[int, int, int]:
        """Steps of sites, chains of a word and words in the sums: together lies what the threads of a warp add to."""
        if not self._per_chain:
            return self._stride, 0, 1
        if self._launch.block_x >= 32:
            return 32 * self._stride, self._stride, 1
        return 1, self._n, 32 * self._n

    # -- memory -----------------------------------------------------------------------------------------------------

    def _host_tables(self, models: Sequence[MarkovRandomField]) -> dict[str, NDArray[Any]]:
        lanes = self._launch.block_x
        arrays, self._degree = cuda_tables.make_tables(self.kernel, models, self._order, stride=self._row, lanes=lanes)
        return arrays

    def _allocate(self, memory_limit: float | None) -> None:
        states = (self._n + 1) * self._stride
        if states >= _MOST_STATES:
            raise ResourceError(
                f"the GPU sampler takes fewer than 2^32 {'words of 32 states' if self._packed else 'states'}, and "
                f"{self.num_chains:,} chains of {self._n:,} variables have {states:,}; run fewer chains at a time"
            )
        tables = self._host_tables([self.model])
        large = not self._packed and self.model.num_states.max() > 256
        dtype = np.dtype(np.uint32 if self._packed else np.uint16 if large else np.uint8)
        sum_dtype = np.dtype(np.uint32 if self._per_chain else np.uint64)
        sums, totals = self._num_rows * self._lanes, self._num_rows * self._num_columns
        required = sum(a.nbytes for a in tables.values()) + states * dtype.itemsize + 4 * self._units
        required += sums * sum_dtype.itemsize + 8 * totals + self._order.starts.nbytes
        check_memory(self._cuda, required, memory_limit)
        try:
            self._set_tables(tables)
            self._starts = self._cuda.to_device(self._order.starts)
            self._models = self._cuda.to_device(np.zeros(self._units, dtype=np.int32))
            self._x = self._zeros(states, dtype)
            self._sums, self._totals = self._zeros(sums, sum_dtype), self._zeros(totals, np.uint64)
        except Exception as error:
            if "MEMORY" not in str(error).upper():
                raise
            raise ResourceError(
                f"the GPU could not allocate {format_bytes(required)}; run fewer chains, or use the CPU",
                required_bytes=int(required),
            ) from None

    def _zeros(self, size: int, dtype: Any) -> Any:
        return self._cuda.to_device(np.zeros(max(1, size), dtype=dtype))

    def _set_tables(self, tables: dict[str, NDArray[Any]]) -> None:
        for name, values in tables.items():
            flat = np.ascontiguousarray(values).reshape(-1)
            flat = flat if flat.size else np.zeros(1, dtype=flat.dtype)
            if name in self._tables and self._tables[name].size == flat.size:
                self._tables[name].copy_to_device(flat)
            else:
                self._tables[name] = self._cuda.to_device(flat)

    # -- launches ---------------------------------------------------------------------------------------------------

    def _find_kernel(self, mode: int, grid: bool) -> Any:
        # Imported here: importing Numba takes half a second.
        from fastmix.chains.cuda.field_kernels import packed_field_kernel, site_field_kernel
        from fastmix.chains.cuda.kernels import packed_kernel
        from fastmix.chains.cuda.state_kernels import logit_kernel, table_kernel

        per_chain, width = self._per_chain, self._width
        if self.kernel == "packed":
            return packed_kernel(self._launch.wide, self._launch.block_x, mode, per_chain, grid)
        if self.kernel == "packed-field":
            return packed_field_kernel(mode, per_chain, grid)
        if self.kernel == "field":
            return site_field_kernel(self._degree, mode, grid)
        if self.kernel == "logit":
            return logit_kernel(width, mode, per_chain, grid)
        return table_kernel(width, self._bytewise, self._small, mode, per_chain, grid)

    def _run(self, num_sweeps: int, mode: int) -> None:
        launch = self._launch
        shape = (self._units // (launch.block_x * launch.wide), launch.grid_y), (launch.block_x, launch.block_y)
        arrays: tuple[Any, ...] = (self._x.view(np.uint32) if self._bytewise else self._x, *self._tables.values())
        arrays += (self._starts, self._models) if self.kernel in ("packed", "table") else (self._starts,)
        arrays += (self._sums, *map(np.uint64, self._sum_steps)) if self._packed else (self._sums,)
        arrays += (np.uint32(self._row),)
        if self.kernel == "packed":
            arrays += (np.uint32(self._n), np.uint64(self._tables["table"].size // 16))
        elif self.kernel == "table":
            arrays += (np.uint32(self._tables["table"].size // self._num_models),)
        elif self.kernel == "packed-field":
            arrays += (np.uint32(self._chunks),)
        elif self.kernel == "field":
            arrays += (np.uint32(self._n),)
        colours = len(self._order.starts) - 1
        if launch.grid_y == 1:
            sizes = 0, colours, num_sweeps, np.uint64(self._sweep)
            start_kernel(self._find_kernel(mode, False), shape, *arrays, *sizes, *self._key)
        elif not self._run_together(arrays, shape, num_sweeps, mode):
            kernel = self._find_kernel(mode, False)
            for sweep in range(self._sweep, self._sweep + num_sweeps):
                for colour in range(colours):
                    start_kernel(kernel, shape, *arrays, colour, colour + 1, 1, np.uint64(sweep), *self._key)
        self._sweep += num_sweeps

    def _run_together(self, arrays: tuple[Any, ...], shape: Any, num_sweeps: int, mode: int) -> bool:
        """Run all sweeps in one launch whose blocks wait for each other, if there is room for all blocks at once."""
        (grid_x, grid_y), block = shape
        arguments = (*arrays, 0, len(self._order.starts) - 1, num_sweeps, np.uint64(self._sweep), *self._key)
        if mode not in self._together:
            kernel, room = self._find_kernel(mode, True), 1
            if hasattr(self._cuda.get_current_device(), "MULTIPROCESSOR_COUNT"):  # not in the simulator
                kernel = kernel.specialize(*arguments)
                room = next(iter(kernel.overloads.values())).max_cooperative_grid_blocks(block)
            self._together[mode] = kernel, min(grid_y, room // grid_x)
        kernel, grid_y = self._together[mode]
        if grid_y < 1:
            return False
        start_kernel(kernel, ((grid_x, grid_y), block), *arguments)
        return True

    def _support_shape(self, count: int) -> tuple[int, int]:
        threads = min(_SUPPORT_THREADS, self._launch.block_x * self._launch.block_y)
        return min(_SUPPORT_BLOCKS, max(1, -(-count // threads))), threads

    def _empty_sums(self) -> None:
        if self._collected and self._num_rows:
            from fastmix.chains.cuda.support_kernels import empty_sums

            per_group = 1 if self._per_chain else self.group_size // self._width
            shape = self._support_shape(self._num_rows * (self._lanes // per_group))
            sizes = (np.uint64(self._num_rows), np.uint64(self._lanes), np.uint64(per_group))
            start_kernel(empty_sums, shape, self._sums, self._totals, *sizes)
        self._swept += self._collected
        self._collected = 0
