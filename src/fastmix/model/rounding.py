"""Error bounds for sums of many log-potentials: how far rounding can move them, from their number and size."""

from __future__ import annotations

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix.model.flat import largest_entries
from fastmix.model.mrf import MarkovRandomField

__all__ = ["log_size", "rounding", "spread"]

_EPS = float(np.finfo(np.float64).eps)


def spread(values: FloatArray, offsets: IntArray) -> float:
    """The sum over tables of the largest finite absolute entry."""
    return float(largest_entries(values, offsets).sum())


def log_size(model: MarkovRandomField) -> float:
    """The sum over the terms of a model, its constant among them, of the largest finite absolute entry."""
    of_unaries = spread(model.log_unary, model.unary_offsets)
    of_tables = float(model.sizes_of_tables().sum())
    of_factors = spread(model.log_factors, model.factor_offsets)
    return of_unaries + of_tables + of_factors + abs(model.log_constant)


def rounding(num_operations: float, size: float) -> float:
    """A bound on the rounding error of log Z, or of another sum of so many numbers of that total size.

    Every operation is off by a factor of at most ``1 + eps``, so that a product of m tables, summed, is off by at most
    ``m eps`` in its logarithm, and adding m logarithms whose absolute values sum to S by at most ``m eps S``. Four
    times the sum of both is allowed.
    """
    return 4.0 * _EPS * (num_operations + 16.0) * (1.0 + size)
