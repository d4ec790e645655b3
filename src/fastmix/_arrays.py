"""Types of arrays for signatures, and arrays that kernels only read."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["BoolArray", "FloatArray", "IntArray", "read_only", "read_only_fields"]

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

A = TypeVar("A", bound=NDArray[Any])
F = TypeVar("F", bound=tuple[Any, ...])


def read_only(array: A) -> A:
    """A view of an array that cannot be written to.

    Compiled code is made anew for arrays that it may not write to, so that a kernel which reads an array is compiled
    twice if some callers give it such ones and some do not: whoever calls kernels gives what they read in this form.

    Examples
    --------
    >>> read_only(np.zeros(2)).flags.writeable
    False
    """
    view = array.view()
    view.setflags(write=False)
    return view


def read_only_fields(arrays: F) -> F:
    """A named tuple of the same arrays as views that cannot be written to, see :func:`read_only`."""
    return type(arrays)._make(map(read_only, arrays))  # type: ignore[attr-defined]
