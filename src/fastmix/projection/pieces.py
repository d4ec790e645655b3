"""Cutting a model into pieces on which exact inference is cheap."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastmix._memory import available_memory, format_bytes
from fastmix.errors import ResourceError, UnfitMethodError
from fastmix.graphs import grid_edges
from fastmix.model import MarkovRandomField

__all__ = ["grid_ladders", "grid_lines", "grid_shape", "ladder_bytes"]

IntArray = NDArray[np.int64]

_ENTRY_BYTES = 80  # a potential: two index arrays and two matrices over it, its marginal, its message


def grid_shape(model: MarkovRandomField) -> tuple[int, int] | None:
    """Rows and columns, if the graph is a four-neighbour grid whose variables are numbered row by row; else None.

    Examples
    --------
    >>> from fastmix.instances import ising_grid, ising_tree
    >>> grid_shape(ising_grid(3, 5, coupling_max=1.0, seed=0))
    (3, 5)
    >>> grid_shape(ising_grid(3, 5, coupling_max=1.0, torus=True, seed=0)) is None
    True
    """
    n = model.num_variables
    if not model.num_edges:
        return None
    # One row, or the second neighbour of the first variable is the first of the next row; one column comes last.
    for cols in (n, *model.adjacency.neighbors_of(0)[::-1].tolist()):
        if n % cols == 0 and np.array_equal(model.edges, grid_edges(n // cols, cols)):
            return n // cols, cols
    return None


def grid_lines(model: MarkovRandomField, name: str) -> list[IntArray]:
    """The edges of every row and of every column of a grid."""
    _, cols = _shape_or_refuse(model, name)
    (row, other_row), (col, _) = (model.edges // cols).T, (model.edges % cols).T
    lines: list[IntArray] = []
    for along, number in ((row == other_row, row), (row != other_row, col)):
        chosen = np.flatnonzero(along)
        order = chosen[np.argsort(number[chosen], kind="stable")]
        lines += np.split(order, np.flatnonzero(np.diff(number[order])) + 1) if len(order) else []
    return lines


def grid_ladders(model: MarkovRandomField, name: str) -> list[IntArray]:
    """The variables (2, k) of every two neighbouring rows and every two neighbouring columns of a grid.

    Raises
    ------
    UnfitMethodError
        If the graph is no grid, or a single line, which has no neighbour.
    ResourceError
        If there are so many states that the merged tables do not fit.
    """
    rows, cols = _shape_or_refuse(model, name)
    if min(rows, cols) < 2:
        raise UnfitMethodError(f"pieces={name!r} needs two lines at least, and the grid is {rows}x{cols}: it is one")
    required, limit = ladder_bytes(model, (rows, cols)), available_memory() / 2
    if required > limit:
        raise ResourceError(
            f"pieces={name!r} needs {format_bytes(required)} for merged tables, over the limit of "
            f"{format_bytes(limit)}; use pieces='rows-and-columns'",
            required_bytes=int(min(required, 2.0**62)),
            limit_bytes=int(limit),
        )
    return _ladders((rows, cols))


def ladder_bytes(model: MarkovRandomField, shape: tuple[int, int]) -> float:
    """Memory for the merged tables of a grid's ladders: one entry for all states of four variables, link by link.

    Examples
    --------
    >>> from fastmix.instances import potts_grid
    >>> model = potts_grid(2, 3, num_states=3, coupling_max=1.0, seed=0)
    >>> ladder_bytes(model, (2, 3)) / _ENTRY_BYTES
    324.0
    """
    rungs = [model.num_states[ladder].astype(np.float64).prod(axis=0) for ladder in _ladders(shape)]
    return _ENTRY_BYTES * sum(float(r[:-1] @ r[1:]) for r in rungs)


def _ladders(shape: tuple[int, int]) -> list[IntArray]:
    rows, cols = shape
    numbers = np.arange(rows * cols).reshape(shape)
    return [numbers[k : k + 2] for k in range(rows - 1)] + [numbers[:, k : k + 2].T for k in range(cols - 1)]


def _shape_or_refuse(model: MarkovRandomField, name: str) -> tuple[int, int]:
    shape = grid_shape(model)
    if shape is None:
        raise UnfitMethodError(
            f"pieces={name!r} needs a four-neighbour grid numbered row by row, and this graph with "
            f"{model.num_variables} variables and {model.num_edges} edges is none; use pieces='spanning-trees', or "
            "give the edges of every piece"
        )
    return shape
