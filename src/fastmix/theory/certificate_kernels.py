"""Compiled loops of :mod:`fastmix.theory.bias`. Import it inside functions only: it needs Numba."""

from __future__ import annotations

import numpy as np

from fastmix._jit import njit

__all__ = ["SMALLEST", "sweep_in_place"]

# Positive values are kept from falling below: rounded up, and never subnormal, which would be slow.
SMALLEST = 1e-250


@njit(cache=True, nogil=True)
def sweep_in_place(indptr, indices, data, order, delta, largest_total, largest_entry, max_sweeps):  # type: ignore[no-untyped-def]
    """Sweeps of ``delta_i <- min(1, sum_j R_ij delta_j)`` until the sum and the largest entry are small enough.

    Returns the number of sweeps made, and whether the last one reached both limits.
    """
    # Unsigned numbers: signed ones are checked for counting from the end, which costs a fifth of the time.
    one = np.uint64(1)
    for sweep in range(max_sweeps):
        total = 0.0
        top = 0.0
        for k in range(len(order)):
            i = np.uint64(order[k])
            value = 0.0
            for p in range(np.uint64(indptr[i]), np.uint64(indptr[i + one])):
                value += data[p] * delta[indices[p]]
            if value > 1.0:
                value = 1.0
            elif 0.0 < value < SMALLEST:
                value = SMALLEST
            delta[i] = value
            total += value
            top = max(top, value)
        if total <= largest_total and top <= largest_entry:
            return sweep + 1, True
    return max_sweeps, False
