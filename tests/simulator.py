"""The CUDA simulator of numba-cuda with less to do: the threads of a block take turns.

Numba's own starts a Python thread for every thread of a block and asks all of them, again and again, whether they wait
at a barrier. Here one runs at a time, up to a barrier or to its end, and only those that others wait for at a barrier
have a Python thread of their own. Blocks begin with their first and with their last thread in turns: what may be read
only after a barrier is read too early in one of them. Entries of arrays, casts and calls of functions of the device, of
which there are millions, take the short way.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

__all__ = ["take_turns"]


def take_turns() -> None:
    """From now on the simulator runs kernels as above."""
    from numba.core import types
    from numba.cuda.simulator import kernel, kernelapi

    kernelapi.threading = SimpleNamespace(current_thread=lambda: _Block.running)
    kernel.BlockManager = _Block
    kernel.FakeWithinKernelCUDAArray = lambda array: array._ary
    kernelapi.FakeCUDAShared.array = _shared_array(kernelapi)
    kernel.FakeCUDAKernel.__call__ = _call(kernel, kernel.FakeCUDAKernel.__call__)
    for kind in (types.Integer, types.Float):
        kind.__call__ = _cast(kind.__call__)


class _Aborted(Exception):  # noqa: N818  no error: another thread has one
    pass


class _Thread:
    """One thread of a block: what ``numba.cuda`` asks of it."""

    def __init__(self, block: _Block, block_index: Any, index: Any) -> None:
        self.blockIdx, self.threadIdx, self._block = block_index, index, block
        self.turn: Any = None  # a lock that is released for its next turn

    @property
    def thread_id(self) -> int:
        x, y, _ = self._block.shape
        return self.threadIdx.x + x * (self.threadIdx.y + y * self.threadIdx.z)

    def syncthreads(self) -> None:
        block = self._block
        if self.turn is None:
            self.turn = threading.Lock()
            self.turn.acquire()
        block.waiting.append(self)
        if block.fresh:
            threading.Thread(target=block.work, daemon=True).start()
        else:
            block.waiting.popleft().turn.release()  # perhaps its own
        self.turn.acquire()
        if block.error is not None:
            raise _Aborted
        _Block.running = self


class _Block:
    """A block of threads, as the ``BlockManager`` of the simulator.

    Threads at a barrier stand in a queue. One that comes to the next barrier stands behind all of those that are not
    there yet: it is its turn when all of them are.
    """

    running: _Thread
    _number = 0

    def __init__(self, function: Callable[..., None], grid: Any, shape: Any, debug: bool) -> None:
        self.shape = tuple(shape)
        self.error: Exception | None = None
        self.fresh: deque[_Thread] = deque()
        self.waiting: deque[_Thread] = deque()
        self._left, self._ended = 0, threading.Event()
        self._function = function

    def run(self, block_index: Any, *arguments: Any) -> None:
        from numba.cuda.simulator.kernelapi import Dim3

        at = Dim3(*block_index)
        self.fresh.extend(_Thread(self, at, Dim3(*point)) for point in np.ndindex(*self.shape))
        _Block._number += 1
        if _Block._number % 2 == 0:
            self.fresh.reverse()
        self._left, self._arguments = len(self.fresh), arguments
        self.work()
        self._ended.wait()
        if self.error is not None:
            raise self.error

    def work(self) -> None:
        """Threads that have not begun, until none is left; then it is the turn of those that wait."""
        while self.fresh:
            _Block.running = thread = self.fresh.popleft()
            try:
                self._function(*self._arguments)
            except _Aborted:
                pass
            except Exception as error:
                error.add_note(f"in thread {thread.threadIdx} of block {thread.blockIdx}")
                self.error = error
                self._left -= len(self.fresh)
                self.fresh.clear()
            self._left -= 1
        if self.waiting:
            self.waiting.popleft().turn.release()
        elif self._left == 0:
            self._ended.set()


def _shared_array(kernelapi: Any) -> Callable[..., Any]:
    """Arrays that a block shares, known by the line that asks for them, which the simulator reads off a whole stack."""
    make, types, as_dtype = kernelapi.FakeCUDAShared.array, kernelapi.types, kernelapi.numpy_support.as_dtype

    def array(self: Any, shape: Any, dtype: Any, alignment: Any = None) -> Any:
        if shape == 0 or alignment is not None:  # room whose size the launch says; a refusal
            return make(self, shape, dtype, alignment)
        asking = sys._getframe(1)
        line = asking.f_code.co_filename, asking.f_lineno
        if line not in self._allocations:
            self._allocations[line] = np.empty(shape, as_dtype(dtype) if isinstance(dtype, types.Type) else dtype)
        return self._allocations[line]

    return array


def _call(kernel: Any, launch: Callable[..., Any]) -> Callable[..., Any]:
    """What calls a kernel, or from inside of one a function of the device, which gets the same ``cuda``."""
    swapped: list[tuple[dict[str, Any], Any]] = []

    def call(self: Any, *arguments: Any) -> Any:
        module, names = kernel._kernel_context, self.fn.__globals__
        if module is not None:
            if names.get("cuda", module) is not module:
                swapped.append((names, names["cuda"]))
                names["cuda"] = module
                _cast_by_numpy(names)
            return self.fn(*arguments)
        _cast_by_numpy(names)
        try:
            return launch(self, *map(_plain, arguments))
        finally:
            while swapped:
                names, names["cuda"] = swapped.pop()

    return call


def _plain(argument: Any) -> Any:
    """An argument of a kernel; arrays inside of it are those of NumPy."""
    if isinstance(argument, tuple):
        return tuple(getattr(part, "_ary", part) for part in map(_plain, argument))
    return argument


def _cast_by_numpy(names: dict[str, Any]) -> None:
    """Types of Numba that a module of kernels has by names of its own become those of NumPy, which cast for them."""
    from numba.core import types

    scalars = types.integer_domain | types.real_domain
    for name, value in names.items():
        if isinstance(value, types.Type) and value in scalars:
            names[name] = getattr(np, value.name)


def _cast(call: Callable[..., Any]) -> Callable[..., Any]:
    """What casts a number to a type of Numba, as NumPy does; types make a signature, as they did."""

    def cast(self: Any, *values: Any) -> Any:
        value = values[0] if len(values) == 1 else None
        kind = type(value)
        if kind is int:  # the same few again and again
            known = self.__dict__.setdefault("_known", {})
            if value not in known:
                known[value] = call(self, value)
            return known[value]
        if isinstance(value, np.generic):
            to = getattr(np, self.name)
            return value if kind is to else to(value)
        return call(self, *values)

    return cast
