"""Estimates of the seconds that decompositions of dense matrices take on this machine.

Decompositions cannot be interrupted, so whoever has a time limit asks here before one begins. The estimates come from
the time of one small product of matrices, measured once in a process, and from the operations of the decomposition
beside those of a product.
"""

from __future__ import annotations

import time
from functools import cache

import numpy as np

from fastmix.theory.tuning import EIGENVALUE_COSTS, EIGENVECTOR_COSTS, PROBE_REPEATS, PROBE_ROWS

__all__ = ["eigenvalue_seconds", "eigenvector_seconds", "product_seconds"]


@cache
def _seconds_per_cube() -> float:
    """Seconds of a product of two square matrices, divided by the cube of their rows."""
    matrix = np.full((PROBE_ROWS, PROBE_ROWS), 0.5)
    seconds = []
    for _ in range(PROBE_REPEATS):
        begin = time.perf_counter()
        matrix @ matrix
        seconds.append(time.perf_counter() - begin)
    return max(min(seconds), 1e-9) / PROBE_ROWS**3


def product_seconds(n: int) -> float:
    """Estimated seconds of a product of two dense matrices with n rows."""
    return _seconds_per_cube() * float(n) ** 3


def eigenvalue_seconds(n: int) -> float:
    """Estimated seconds of all eigenvalues of a dense symmetric matrix with n rows."""
    return _seconds_per_cube() * (EIGENVALUE_COSTS[0] * float(n) ** 3 + EIGENVALUE_COSTS[1] * float(n) ** 2)


def eigenvector_seconds(n: int) -> float:
    """Estimated seconds of all eigenvalues and eigenvectors of a dense symmetric matrix with n rows."""
    return _seconds_per_cube() * (EIGENVECTOR_COSTS[0] * float(n) ** 3 + EIGENVECTOR_COSTS[1] * float(n) ** 2)
