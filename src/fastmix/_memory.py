"""Memory: how much can be allocated, refusals of requests that are too large, and aligned arrays."""

from __future__ import annotations

import contextlib
import math
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fastmix.errors import ResourceError

__all__ = ["aligned_zeros", "available_memory", "check_memory", "format_bytes", "parse_bytes"]

#: Bytes of a cache line, on which aligned arrays begin.
CACHE_LINE_BYTES = 64
#: Bytes that are allocated without a look at the free memory (not measured: far below what any machine has).
UNCHECKED_BYTES = 1 << 24
#: Bytes of memory that are assumed where the system does not tell (not measured: a small machine of today).
ASSUMED_PHYSICAL_BYTES = 4 * 2**30

_MEMINFO = Path("/proc/meminfo")  # in KiB


class ControlGroup(NamedTuple):
    """Files in which a version of Linux control groups tells the limit on the memory of a container."""

    folder: Path
    limit: str  # the file of the limit
    usage: str  # the file of the use
    cached: str  # the line of memory.stat that says how much of the use is cached files


_CONTROL_GROUPS = (
    ControlGroup(Path("/sys/fs/cgroup"), "memory.max", "memory.current", "inactive_file"),
    ControlGroup(
        Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
    ),
)


def aligned_zeros(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """An array of zeros that begins at a cache line, because unaligned vector loops take up to twice as long."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    raw = np.zeros(size + CACHE_LINE_BYTES, dtype=np.uint8)
    address = raw.__array_interface__["data"][0]
    first = -address % CACHE_LINE_BYTES
    return raw[first : first + size].view(dtype).reshape(shape)


def available_memory() -> int:
    """Bytes that can be allocated now without swapping, within the limits of the container if there are any.

    Linux tells in a file. On other systems psutil is asked (the extra ``system``); without it, all physical memory is
    taken to be free.
    """
    available = _number_after(_MEMINFO, "MemAvailable:")
    candidates = [_free_elsewhere() if available is None else 1024 * available]
    for group in _CONTROL_GROUPS:
        try:
            limit = int((group.folder / group.limit).read_text("utf-8"))
            used = int((group.folder / group.usage).read_text("utf-8"))
        except (OSError, ValueError):  # no such control group, or one without a limit
            continue
        # Cached files count as used, but the system drops them when the memory is needed.
        cached = _number_after(group.folder / "memory.stat", group.cached) or 0
        candidates.append(limit - used + cached)
    return max(0, min(candidates))


def check_memory(required: float, what: str, way_out: str) -> None:
    """Raise a :class:`ResourceError` if an allocation needs more bytes than half of the free memory.

    It is called before the allocation. ``required`` must be computed in Python numbers, which do not overflow;
    ``way_out`` says what the user can do instead.
    """
    if required <= UNCHECKED_BYTES:
        return
    limit = available_memory() / 2
    if required > limit:
        raise ResourceError(
            f"{what} needs {format_bytes(required)}, over the limit of {format_bytes(limit)}, half of the free memory; "
            f"{way_out}",
            required_bytes=int(required),
            limit_bytes=int(limit),
        )


def format_bytes(count: float) -> str:
    """A number of bytes as readable text, such as ``3 GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if count < 1024:
            return f"{count:.3g} {unit}" if count < 100 else f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.3g} EiB"


def parse_bytes(text: str) -> int:
    """The number of bytes that a text such as ``500MB``, ``4GiB`` or ``1e9`` stands for."""
    match = re.fullmatch(r"\s*([0-9.]+(?:[eE][0-9]+)?)\s*([kKMGTP]?)(i?)[bB]?\s*", text)
    count = 0.0
    if match:
        number, prefix, binary = match.groups()
        power = " KMGTP".index(prefix.upper()) if prefix else 0
        base = 1024 if binary else 1000
        with contextlib.suppress(ValueError):  # such as 1.2.3, refused below
            count = float(number) * base**power
    if not 1 <= count < math.inf:
        raise ValueError(f"a size must be a positive number with a unit such as 500MB or 4GiB, got {text!r}")
    return round(count)


def _number_after(path: Path, name: str) -> int | None:
    """The number that follows a name at the start of a line of a file; None if there is none."""
    try:
        for line in path.read_text("utf-8").splitlines():
            words = line.split()
            if words and words[0] == name:
                return int(words[1])
    except (OSError, ValueError, IndexError):
        pass
    return None


def _free_elsewhere() -> int:
    """Bytes of free memory on systems without Linux's file: by psutil where it is installed."""
    try:
        import psutil
    except ImportError:
        return _physical()
    return int(psutil.virtual_memory().available)


def _physical() -> int:
    """Bytes of physical memory of this machine, or a guess on systems that do not tell (Windows)."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return ASSUMED_PHYSICAL_BYTES
