"""How much memory there is to plan with."""

from __future__ import annotations

import os
import re
from pathlib import Path

__all__ = ["available_memory", "format_bytes", "parse_bytes"]


def available_memory() -> int:
    """Bytes that can be allocated now without swapping, within the limits of the container if there are any."""
    candidates = [_meminfo("MemAvailable") or _physical()]
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        try:
            candidates.append(int(Path(limit).read_text()) - int(Path(used).read_text()))
        except (OSError, ValueError):
            continue
    return max(0, min(candidates))


def format_bytes(count: float) -> str:
    """A count of bytes for people.

    Examples
    --------
    >>> format_bytes(3 * 2**30)
    '3 GiB'
    """
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} EiB"


def parse_bytes(text: str) -> int:
    """Bytes from text such as ``500MB``, ``4GiB`` or ``1e9``.

    Examples
    --------
    >>> parse_bytes("4GiB")
    4294967296
    """
    match = re.fullmatch(r"\s*([0-9.]+(?:[eE][0-9]+)?)\s*([kKMGTP]?)(i?)[bB]?\s*", text)
    try:
        number = float(match[1]) if match else 0.0
    except ValueError:
        number = 0.0
    if not match or not number > 0:
        raise ValueError(f"a size must be a positive number with a unit such as 500MB or 4GiB, got {text!r}")
    power = " KMGTP".index(match[2].upper()) if match[2] else 0
    return int(number * (1024 if match[3] else 1000) ** power)


def _meminfo(field: str) -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def _physical() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 4 * 2**30
