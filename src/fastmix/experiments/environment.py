"""What a run is made on: machine and versions, without anything that names a place or a person; optional libraries."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

from fastmix import __version__
from fastmix._memory import format_bytes

__all__ = ["describe_machine", "require"]

_PACKAGES = ("numpy", "scipy", "numba", "matplotlib")


def describe_machine() -> dict[str, str]:
    """Facts about this machine by name.

    Examples
    --------
    >>> sorted(describe_machine())[:3]
    ['Memory', 'Processor', 'Processors']
    """
    facts = {
        "fastmix": __version__,
        "Processor": _processor(),
        "Processors": str(_count()),
        "Memory": _memory(),
        "System": f"{platform.system()} {platform.release()}",
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
    }
    for name in _PACKAGES:
        try:
            facts[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return dict(sorted(facts.items(), key=lambda item: (item[0].islower(), item[0])))


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.lower().startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _count() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def _memory() -> str:
    try:
        return format_bytes(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (ValueError, OSError, AttributeError):
        return "not known"


def require(module: str, *, extra: str, purpose: str) -> Any:
    """The module of that name.

    Raises
    ------
    ImportError
        If it is not installed; one line that names the extra to install.

    Examples
    --------
    >>> require("no_such_module", extra="plot", purpose="figures")
    Traceback (most recent call last):
        ...
    ImportError: figures need no_such_module: pip install 'fastmix[plot]'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if error.name is not None and error.name.split(".")[0] != module.split(".")[0]:
            raise  # it is installed, and something it needs is not
        root = module.split(".")[0]
        raise ImportError(f"{purpose} need {root}: pip install 'fastmix[{extra}]'", name=root) from None
