"""The messages of belief propagation kept and renewed on an NVIDIA GPU; beliefs are computed on the host.

The classes are those of :mod:`fastmix.methods.messages` as far as the loop of
:func:`fastmix.methods.loopy_bp` is concerned: the same start, the same iterations and the same stopping rule, all
in double precision. A call of ``advance`` is one launch, and one number an iteration comes back.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix.chains.cuda.device import check_memory, require_cuda
from fastmix.errors import ResourceError, UnfitMethodError
from fastmix.methods.cuda_layout import SLICE, MessageLayout, lay_out_messages, lay_out_tables
from fastmix.methods.ising_form import IsingForm, ising_form
from fastmix.methods.messages import (
    Messages,
    binary_beliefs,
    exponentials,
    fit_odds,
    halvings_of,
    message_starts,
    tabled_beliefs,
)
from fastmix.model import MarkovRandomField
from fastmix.model.build import offsets_of

__all__ = ["LEAST_MESSAGES", "MOST_STATES", "make_cuda_messages", "why_not_cuda"]

FloatArray = NDArray[np.float64]

# Messages, two an edge, from which backend="auto" takes the device. On an H200 whole runs are faster from 260,000 on
# (benchmarks/gpu_loopy_bp.py), but starting a device takes a second or so, once.
LEAST_MESSAGES = 1 << 20
MOST_STATES = 64  # vectors of a thread that a cache holds
_MOST_NEIGHBORS = 1024  # a thread goes through all neighbours of its variable alone: beyond, "auto" stays on the CPU
_FEW_NEIGHBORS = (4, 8)  # up to which they are held in registers
_SMALL = 8  # states of all variables up to which vectors are held in registers
_WIDTHS = (8, 16, 32, 64)
_MOST_NUMBERS = 1 << 32  # of a set of messages: their places have 32 bits
_MOST_EDGES = 1 << 30  # of tables: the codes of edges have two bits more
_SIMULATED = 2  # threads of a block in the simulator, each of which is one of Python's


def why_not_cuda(model: MarkovRandomField) -> str | None:
    """Why belief propagation on this model had better stay on the CPU, or None.

    Examples
    --------
    >>> why_not_cuda(MarkovRandomField.ising([(0, 1)], 0.5))
    'a model of 2 messages, fewer than 1,048,576, takes less time there'
    """
    count = 2 * model.num_edges
    if count < LEAST_MESSAGES:
        return f"a model of {count:,} messages, fewer than {LEAST_MESSAGES:,}, takes less time there"
    most = model.adjacency.max_degree
    if most > _MOST_NEIGHBORS:
        return f"a variable with {most:,} neighbours, more than {_MOST_NEIGHBORS:,}, would keep the GPU waiting"
    return None


def make_cuda_messages(model: MarkovRandomField, *, damping: float | None) -> Messages:
    """Messages on the device for the parallel schedule; ``damping`` None stands for 0, 1/2 and 3/4.

    Raises
    ------
    UnfitMethodError
        Without a usable device, or if a variable has more than 64 states.
    ResourceError
        If the device has too little free memory, or there are more messages than 32 bits can number.
    """
    require_cuda()
    form = ising_form(model)
    if form is not None:
        return _CudaBinaryMessages(model, form, logs=not fit_odds(model, form, damping))
    most = int(model.num_states.max(initial=1))
    if most > MOST_STATES:
        raise UnfitMethodError(
            f"backend must be cpu for variables of more than {MOST_STATES} states, got cuda and a variable of {most}"
        )
    return _CudaTableMessages(model)


class _CudaMessages:
    """What is common: arrays on the device, launches, and the changes that come back."""

    chunk_work = 1e10
    model: MarkovRandomField

    def __init__(self, layout: MessageLayout, arrays: dict[str, NDArray[Any]], start: float) -> None:
        self._cuda = require_cuda()
        self._layout, self._parity = layout, 0
        self._launch: tuple[Any, int, int] | None = None
        self._changes: Any = None
        if not len(layout.order):
            return
        numbers = 2 * layout.num_entries
        check_memory(
            self._cuda, sum(a.nbytes for a in arrays.values()) + 8.0 * numbers, work="belief propagation on the GPU",
            advice="use the CPU",
        )  # fmt: skip
        self._arrays = {name: self._cuda.to_device(np.ascontiguousarray(a)) for name, a in arrays.items()}
        self._messages = self._cuda.to_device(np.full(numbers, start))

    def _find_kernel(self) -> Any:
        raise NotImplementedError

    def _run(self, num_iterations: int, tol: float, *settings: Any) -> FloatArray:
        """Launch; the largest change of each iteration made, with the last of them within tol or all made."""
        if self._changes is None or self._changes.size < num_iterations:
            self._changes = self._cuda.device_array(num_iterations, dtype=np.float64)
        self._changes.copy_to_device(np.zeros(self._changes.size))
        arguments = (
            self._messages, *self._arrays.values(), self._changes, np.uint64(self._layout.num_entries),
            np.uint64(self._parity), *settings, np.float64(tol), np.uint64(num_iterations),
        )  # fmt: skip
        if self._launch is None:
            self._launch = self._plan(arguments)
        kernel, blocks, threads = self._launch
        _start(kernel, blocks, threads, arguments)
        changes: FloatArray = self._changes.copy_to_host()[:num_iterations]
        within = np.flatnonzero(changes <= tol)
        made = int(within[0]) + 1 if len(within) else num_iterations
        self._parity ^= made & 1
        return changes[:made]

    def _plan(self, arguments: tuple[Any, ...]) -> tuple[Any, int, int]:
        """The kernel, and as many blocks as there is work for, of those that run at once: they wait for each other."""
        from fastmix.methods.cuda_message_kernels import THREADS

        kernel = self._find_kernel()
        if not hasattr(self._cuda.get_current_device(), "MULTIPROCESSOR_COUNT"):  # the simulator
            return kernel, 1, _SIMULATED
        _start(kernel, 1, THREADS, (*arguments[:-1], np.uint64(0)))  # no round: compiles, or finds the code on disk
        room = next(iter(kernel.overloads.values())).max_cooperative_grid_blocks(THREADS)
        return kernel, max(1, min(room, -(-len(self._layout.order) // THREADS))), THREADS

    def _numbers(self) -> FloatArray:
        """The current set of messages, as it lies on the device."""
        size = self._layout.num_entries
        numbers: FloatArray = self._messages[self._parity * size : (self._parity + 1) * size].copy_to_host()
        return numbers


class _CudaBinaryMessages(_CudaMessages):
    def __init__(self, model: MarkovRandomField, form: IsingForm, *, logs: bool) -> None:
        self.model, self.form, self._logs = model, form, logs
        self.kernel = "cuda log-odds" if logs else "cuda odds"
        layout = lay_out_messages(model, np.ones(model.num_variables, dtype=np.int64))
        _check_sizes(layout, 0)
        weights, fields = 2.0 * form.coupling, 2.0 * form.field[layout.order]
        if not logs:
            weights, fields = np.exp(weights), np.exp(fields)
        arrays = {
            "reverse": layout.by_slot(layout.slots[layout.opposite], np.uint32),
            "weights": layout.by_slot(np.tile(weights, 2), np.float64),
            "bases": layout.slot_bases.astype(np.uint32),
            "degrees": layout.degrees.astype(np.uint32),
            "fields": fields,
        }
        super().__init__(layout, arrays, 0.0 if logs else 1.0)

    def _find_kernel(self) -> Any:
        from fastmix.methods.cuda_message_kernels import binary_kernel

        most = self.model.adjacency.max_degree
        return binary_kernel(self._logs, next((few for few in _FEW_NEIGHBORS if most <= few), 0))

    def advance(self, num_iterations: int, damping: float, tol: float) -> tuple[int, float, bool]:
        if not self.model.num_edges:
            return 1, 0.0, True
        halvings = 0 if self._logs else halvings_of(damping)
        assert halvings is not None
        changes = self._run(num_iterations, tol, np.uint64(halvings), np.float64(damping))
        last = float(changes[-1])
        return len(changes), last if self._logs else math.log1p(last), last <= tol

    def beliefs(self) -> tuple[FloatArray, FloatArray, float]:
        messages = self._numbers()[self._layout.slots] if self.model.num_edges else np.zeros(0)
        return binary_beliefs(self.model, self.form, messages if self._logs else np.log(messages))


class _CudaTableMessages(_CudaMessages):
    kernel = "cuda tables"

    def __init__(self, model: MarkovRandomField) -> None:
        self.model = model
        layout = lay_out_messages(model, model.num_states)
        _check_sizes(layout, model.num_edges)
        i, j = model.edges.T
        weights, tame = exponentials(model)
        tables = lay_out_tables(
            model, layout, np.where(np.repeat(tame, np.diff(model.pairwise_offsets)), weights, model.log_pairwise)
        )
        code = 4 * tables.numbers + 2 * ~tame
        arrays = {
            "unary": layout.by_place(model.log_unary, model.unary_offsets[:-1], model.num_states),
            "reverse": layout.by_slot(layout.entries[layout.opposite], np.uint32),
            # Message e comes to j, which stands for the columns; what answers it goes to i.
            "codes": layout.by_slot(np.concatenate([code + 1, code]), np.uint32),
            "sizes": layout.by_slot(model.num_states[np.concatenate([i, j])], np.uint8),
            "tables": tables.values,
            "table_bases": tables.bases.astype(np.uint64),
            "slot_bases": layout.slot_bases.astype(np.uint32),
            "entry_bases": layout.entry_bases.astype(np.uint32),
            "unary_bases": offsets_of(SLICE * layout.widths).astype(np.uint32),
            "widths": layout.widths.astype(np.uint32),
            "degrees": layout.degrees.astype(np.uint32),
            "counts": model.num_states[layout.order].astype(np.uint32),
        }
        self._starts = message_starts(model)
        super().__init__(layout, arrays, 0.0)

    def _find_kernel(self) -> Any:
        from fastmix.methods.cuda_message_kernels import table_kernel

        counts = self.model.num_states[self._layout.order]
        most = int(counts.max())
        if most <= _SMALL and int(counts.min()) == most:
            return table_kernel(most, True)
        return table_kernel(next(width for width in _WIDTHS if most <= width), False)

    def advance(self, num_iterations: int, damping: float, tol: float) -> tuple[int, float, bool]:
        if not self.model.num_edges:
            return 1, 0.0, True
        changes = self._run(num_iterations, tol, np.float64(damping))
        return len(changes), float(changes[-1]), bool(changes[-1] <= tol)

    def beliefs(self) -> tuple[FloatArray, FloatArray, float]:
        starts = self._starts
        counts = np.diff(starts)
        within = np.arange(starts[-1]) - np.repeat(starts[:-1], counts)
        messages = np.zeros(0)
        if len(counts):
            messages = self._numbers()[np.repeat(self._layout.entries, counts) + SLICE * within]
        return tabled_beliefs(self.model, starts, messages)


def _start(kernel: Any, blocks: int, threads: int, arguments: tuple[Any, ...]) -> None:
    """Launch a kernel; that few blocks do not fill the device is known, and no reason for a warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*will likely result in GPU under-utilization")
        kernel[blocks, threads](*arguments)


def _check_sizes(layout: MessageLayout, num_tables: int) -> None:
    if layout.num_entries >= _MOST_NUMBERS or num_tables >= _MOST_EDGES:
        raise ResourceError(
            f"belief propagation on the GPU takes fewer than 2^32 numbers in messages and 2^30 tables, and the model "
            f"has {layout.num_entries:,} and {num_tables:,}; use the CPU"
        )
