"""Memory: what there is to plan with, and arrays laid out for vector loops."""

from __future__ import annotations

import contextlib
import math
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fastmix.errors import ResourceError

__all__ = ["aligned_zeros", "available_memory", "check_memory", "format_bytes", "parse_bytes"]

_LINE = 64  # bytes
_SMALL = 1 << 24  # bytes that nobody need ask for
_MEMINFO = Path("/proc/meminfo")  # in KiB
# Folder, limit, use, and the name in memory.stat of the part of the use that is cached files: both generations.
_CGROUPS = (
    (Path("/sys/fs/cgroup"), "memory.max", "memory.current", "inactive_file"),
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def aligned_zeros(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Zeros that begin with a cache line: vector loops over arrays across two lines take up to twice as long."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    raw = np.zeros(size + _LINE, dtype=np.uint8)
    first = -raw.__array_interface__["data"][0] % _LINE
    return raw[first : first + size].view(dtype).reshape(shape)


def available_memory() -> int:
    """Bytes that can be allocated now without swapping, within the limits of the container if there are any."""
    available = _field(_MEMINFO, "MemAvailable:")
    candidates = [_physical() if available is None else 1024 * available]
    for folder, limit, used, cache in _CGROUPS:
        try:
            free = int((folder / limit).read_text()) - int((folder / used).read_text())
        except (OSError, ValueError):
            continue
        # What is used includes files kept in memory, which are dropped when the memory is needed.
        candidates.append(free + (_field(folder / "memory.stat", cache) or 0))
    return max(0, min(candidates))


def check_memory(required: float, what: str, way_out: str) -> None:
    """A :class:`ResourceError` if something needs more bytes than half of the free memory, before it is allocated.

    ``required`` is computed in Python's numbers, which do not wrap.
    """
    if required <= _SMALL:
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
    """A count of bytes for people, such as ``3 GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if count < 1024:
            return f"{count:.3g} {unit}" if count < 100 else f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.3g} EiB"


def parse_bytes(text: str) -> int:
    """Bytes from text such as ``500MB``, ``4GiB`` or ``1e9``."""
    match = re.fullmatch(r"\s*([0-9.]+(?:[eE][0-9]+)?)\s*([kKMGTP]?)(i?)[bB]?\s*", text)
    count = 0.0
    if match:
        power = " KMGTP".index(match[2].upper()) if match[2] else 0
        with contextlib.suppress(ValueError):
            count = float(match[1]) * (1024 if match[3] else 1000) ** power
    if not 1 <= count < math.inf:
        raise ValueError(f"a size must be a positive number with a unit such as 500MB or 4GiB, got {text!r}")
    return round(count)


def _field(path: Path, name: str) -> int | None:
    """The number after a name at the start of a line."""
    try:
        for line in path.read_text().splitlines():
            words = line.split()
            if words and words[0] == name:
                return int(words[1])
    except (OSError, ValueError, IndexError):
        pass
    return None


def _physical() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 4 * 2**30
