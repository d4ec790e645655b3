"""Plain loops over arrays that run as they are where there is little to do, and compiled where there is much."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["MAX_PYTHON_NUMBERS", "run_loop"]

#: Numbers in all arrays up to which loops over them run in Python: that takes less time than loading the compiler,
#: half a second (``benchmarks/cold_start.py``).
MAX_PYTHON_NUMBERS = 200_000


def run_loop(
    loop: Callable[..., Any],
    inputs: tuple[Any, ...],
    changed: tuple[npt.NDArray[Any], ...],
    *,
    compiled: bool | None = None,
) -> Any:
    """The value of ``loop(*inputs, *changed)``, a plain loop over arrays that may change those in ``changed``.

    The same few lines then serve graphs of ten variables, for which a compiler would take half a second to load, and of
    millions, on which Python would take seconds.

    Parameters
    ----------
    loop : callable
        A function that Numba can compile. Without the compiler it gets lists in place of arrays.
    inputs : tuple
        Arguments that the loop reads: arrays and numbers.
    changed : tuple of ndarray
        Arguments that follow, and that the loop may write to.
    compiled : bool, optional
        By default the loop is compiled if its arrays have more than 200,000 numbers together.

    Examples
    --------
    >>> def double(values, out):
    ...     for i in range(len(values)):
    ...         out[i] = 2 * values[i]
    >>> result = np.zeros(2)
    >>> run_loop(double, (np.array([1.0, 2.0]),), (result,))
    >>> result.tolist()
    [2.0, 4.0]
    """
    if compiled is None:
        arrays = [array for array in (*inputs, *changed) if isinstance(array, np.ndarray)]
        compiled = sum(len(array) for array in arrays) > MAX_PYTHON_NUMBERS
    if compiled:
        return _compile(loop)(*inputs, *changed)
    arguments = [value.tolist() if isinstance(value, np.ndarray) else value for value in inputs]
    lists = [array.tolist() for array in changed]
    result = loop(*arguments, *lists)
    for array, values in zip(changed, lists, strict=True):
        array[:] = values
    return result


@cache
def _compile(loop: Callable[..., Any]) -> Callable[..., Any]:
    """The compiled form of a loop, made once."""
    from fastmix._jit import njit

    compiled: Callable[..., Any] = njit(cache=True, nogil=True, error_model="numpy")(loop)
    return compiled
