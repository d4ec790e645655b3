"""``njit`` and ``cuda_jit``: Numba's, except that no clock counts compiling, and that damaged files are made anew.

Numba takes whatever it finds in its cache: a file cut short ends every later run with an error of pickle. A cache that
cannot be written costs time, not the answer.
"""

from __future__ import annotations

import contextlib
import logging
import os
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


def njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator as ``numba.njit`` with these options."""
    return lambda function: _compiled(numba.njit, options, function)


def cuda_jit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator as ``numba.cuda.jit`` with these options."""
    from numba import cuda

    return lambda function: _compiled(cuda.jit, options, function)


def _compiled(jit: Any, options: dict[str, Any], function: Callable[..., Any]) -> Any:
    """The kernel that a decorator makes of a function; its files go through :class:`_MendedFiles`."""
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
        files.__class__ = type("MendedFiles", (_MendedFiles, type(files)), {})
        files._version = f"{files._version}, with its key"  # files without are those of another version
    if hasattr(kernel, "compile"):
        kernel.compile = _timed(kernel.compile, tell=files is None)
    return kernel


def _load(cache: Any, signature: Any, context: Any) -> Any:
    """What was compiled, as ``cache.load_overload`` gives it, which would first load all that can compile: 0.3 s."""
    from numba.core.runtime import rtsys

    rtsys.initialize(context)  # allocations by kernels
    with cache._guard_against_spurious_io_errors():
        return cache._load_overload(signature, context)


def _timed(compile_one: Callable[..., Any], *, tell: bool) -> Callable[..., Any]:
    """What compiles or loads one signature of a kernel, its seconds kept from all clocks."""

    @wraps(compile_one)
    def timed(*arguments: Any, **options: Any) -> Any:
        with compiling():
            if tell:  # without files there is no other place to see that it is compiled
                _tell_compiling()
            return compile_one(*arguments, **options)

    return timed


def _tell_compiling() -> None:
    _tell("compiling", "compiling, which is done once and takes some seconds", logging.INFO)


class _MendedFiles(IndexDataCacheFile):
    """Index and data files of one kernel: those that cannot be read are made anew."""

    def load(self, key: Any) -> Any:
        try:
            found = super().load(key)
        except Exception:  # whatever pickle makes of a damaged file
            with contextlib.suppress(OSError):
                os.remove(self._index_path)
            _tell("damaged", f"{self._index_path} in the compiler's cache, or its code, is damaged: compiling again")
            found = None
        if found is None or found[0] != key:
            _tell_compiling()
            return None  # or a process died between the two files, and this one is of an older time
        return found[1]

    def save(self, key: Any, data: Any) -> None:
        try:
            super().save(key, (key, data))
        except OSError as error:
            _tell("full", f"compiled code is not kept: {self._cache_path}: {error.strerror or error}")


_told: set[str] = set()


def _tell(what: str, text: str, level: int = logging.WARNING) -> None:
    """Say it once in a process: where one file is damaged, or missing, many are."""
    if what not in _told:
        _told.add(what)
        _LOGGER.log(level, "fastmix: %s", printable(text))


# Division follows IEEE rules, because a check for zero would keep loops from being vectorised.
outer = njit(cache=True, nogil=True, error_model="numpy")
"""The decorator of kernels that Python calls."""
inner = njit(cache=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
"""The decorator of those that compiled code alone calls: no entry points from Python, which saves compilation time."""
fused = njit(cache=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True, fastmath={"contract"})
"""The same where products and sums may be one instruction: other last bits, on other processors."""
summing = njit(cache=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True, fastmath={"reassoc"})
"""The same where a sum may be taken in any order, several terms at once."""
