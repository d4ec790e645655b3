"""``njit`` and ``cuda_jit``: Numba's, except that no clock counts compiling, and that damaged files are made anew.

Numba takes whatever it finds in its cache: a file cut short by a full disk ends every later run with an error of
pickle, and a flipped bit in the machine code may do anything. Here every file begins with a checksum, and is tied to
the source and the signature that it was made for. A cache that cannot be written costs time, not the answer.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import pickle
from collections.abc import Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from fastmix._clock import compiling
from fastmix.errors import printable

with compiling():  # half a second
    import numba

if TYPE_CHECKING:
    from numba.core.caching import IndexDataCacheFile
else:
    IndexDataCacheFile = object  # those of Numba and of its CUDA part are put beside it below

__all__ = ["cuda_jit", "fused", "inner", "njit", "outer", "summing"]

_LOGGER = logging.getLogger(__name__)
_DIGEST = 32  # bytes of SHA-256


def njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator as ``numba.njit`` with these options.

    Examples
    --------
    >>> @njit(error_model="numpy")
    ... def half(x):
    ...     return x / 2
    >>> half(3.0)
    1.5
    """
    return lambda function: _compiled(numba.njit, options, function)


def cuda_jit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator as ``numba.cuda.jit`` with these options."""
    from numba import cuda

    return lambda function: _compiled(cuda.jit, options, function)


def _compiled(jit: Any, options: dict[str, Any], function: Callable[..., Any]) -> Any:
    """The kernel that a decorator makes of a function; its files go through :class:`_CheckedFiles`."""
    try:
        kernel = jit(**options)(function)
    except RuntimeError:
        if not options.get("cache"):
            raise
        _tell("full", "compiled code is not kept: no folder can be written, but NUMBA_CACHE_DIR can name one")
        kernel = jit(**{**options, "cache": False})(function)
    cache = getattr(kernel, "_cache", None)
    files = getattr(cache, "_cache_file", None)  # none without a compiler, or on a simulator
    if jit is numba.njit and cache is not None and files is not None:
        cache.load_overload = partial(_load, cache)
    if files is not None:
        files.__class__ = type("CheckedFiles", (_CheckedFiles, type(files)), {})
        files._version = f"{files._version}, checked"  # files without a checksum are those of another version
    if hasattr(kernel, "compile"):
        kernel.compile = _timed(kernel.compile, tell=files is None)
    return kernel


def _load(cache: Any, signature: Any, context: Any) -> Any:
    """Compiled code from a cache, without the 0.3 s in which ``cache.load_overload`` loads all that can compile."""
    from numba.core.runtime import rtsys

    rtsys.initialize(context)  # allocations by kernels
    with cache._guard_against_spurious_io_errors():
        return cache._load_overload(signature, context)


def _timed(compile_one: Callable[..., Any], *, tell: bool) -> Callable[..., Any]:
    """A function that compiles or loads one signature of a kernel, and keeps its seconds from all clocks."""

    @wraps(compile_one)
    def timed(*arguments: Any, **options: Any) -> Any:
        with compiling():
            if tell:  # without files there is no other place to see that it is compiled
                _tell_compiling()
            return compile_one(*arguments, **options)

    return timed


def _tell_compiling() -> None:
    """Say, once in a process, that something is being compiled."""
    _tell("compiling", "compiling, which is done once and takes some seconds", logging.INFO)


class _CheckedFiles(IndexDataCacheFile):
    """Index and data files of one kernel: a checksum, then what Numba writes."""

    def load(self, key: Any) -> Any:
        """Compiled code that was kept for types of arguments; None if there is none that fits."""
        found = super().load(key)
        if found is None or found[:2] != (self._source_stamp, key):
            _tell_compiling()
            return None  # or a process died between the two files, and this one is of an older time
        return found[2]

    def save(self, key: Any, data: Any) -> None:
        """Keep compiled code for types of arguments; a full disk is told, not raised."""
        try:
            super().save(key, (self._source_stamp, key, data))
        except OSError as error:
            _tell("full", f"compiled code is not kept: {self._cache_path}: {error.strerror or error}")

    def _load_index(self) -> dict[Any, str]:
        """Names of data files by types of arguments; empty where the index is damaged or of another version."""
        try:
            with open(self._index_path, "rb") as file:
                data = file.read()
        except OSError:
            return {}
        head = pickle.dumps(self._version, protocol=-1)
        if not data.startswith(head):
            if not data.startswith(head[:2]):  # else it is whole, and that of another version
                _drop(self._index_path)
            return {}
        found = _verified(self._index_path, data[len(head) :])
        stamp, overloads = (None, {}) if found is None else found
        return overloads if stamp == self._source_stamp else {}

    def _load_data(self, name: str) -> Any:
        """The content of a data file; None if it is damaged."""
        path = self._data_path(name)
        with open(path, "rb") as file:
            return _verified(path, file.read())

    def _dump(self, obj: Any) -> bytes:
        """An object as the bytes of a file: a checksum, then the pickled object."""
        payload = super()._dump(obj)
        return hashlib.sha256(payload).digest() + payload


def _verified(path: str, data: bytes) -> Any:
    """The object that was written to a file; None, and the file is removed, if its checksum does not fit."""
    payload = data[_DIGEST:]
    if hashlib.sha256(payload).digest() == data[:_DIGEST]:
        with contextlib.suppress(AttributeError, ImportError):  # of a class that another version had
            return pickle.loads(payload)
    _drop(path)
    return None


def _drop(path: str) -> None:
    """Remove a damaged file of the cache, and say so."""
    with contextlib.suppress(OSError):
        os.remove(path)
    _tell("damaged", f"{path} in the compiler's cache is damaged or of another version: compiling again")


told: set[str] = set()  # kinds of messages of this process


def _tell(what: str, text: str, level: int = logging.WARNING) -> None:
    """Log a text once in a process for every kind: where one file is damaged, or missing, many are."""
    if what not in told:
        told.add(what)
        _LOGGER.log(level, "fastmix: %s", printable(text))


# Division follows IEEE rules, because a check for zero would keep loops from being vectorized.
outer = njit(cache=True, nogil=True, error_model="numpy")
"""The decorator of kernels that Python calls."""
inner = njit(cache=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
"""The decorator of kernels that compiled code alone calls: without entry points from Python they compile faster."""
fused = njit(cache=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True, fastmath={"contract"})
"""Like :data:`inner`, where products and sums may be one instruction: other last bits, on other processors."""
summing = njit(cache=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True, fastmath={"reassoc"})
"""Like :data:`inner`, where a sum may be taken in any order, several terms at once."""
