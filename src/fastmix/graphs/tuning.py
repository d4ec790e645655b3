"""Numbers that tune the functions on graphs."""

from __future__ import annotations

__all__ = ["MAX_NUMPY_EDGES"]

#: Edges up to which NumPy finds neighbors, components and sides: there it takes some milliseconds, and compiled loops,
#: which take a fifth of its time, would first have to be loaded (``benchmarks/cold_start.py`` has the seconds of that).
MAX_NUMPY_EDGES = 50_000
