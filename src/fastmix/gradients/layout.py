"""How parameters come in parts: unaries, edge tables and factors, flat or with axes for variables and states."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fastmix.errors import ModelError
from fastmix.gradients.partition import count_parameters
from fastmix.model import Structure

__all__ = ["Part", "parts_of", "read_shapes"]

NAMES = ("unary", "pairwise", "factors")


class Part(NamedTuple):
    """A part of the parameters: its number of entries, and its axes where all of its tables have one shape."""

    name: str
    size: int
    axes: tuple[int, ...] | None


def parts_of(structure: Structure) -> list[Part]:
    """The unaries, the edge tables and the factors of a structure."""
    counts = structure.num_states
    n = structure.num_variables
    m = structure.num_edges
    same = n > 0 and bool((counts == counts[0]).all())
    num_states = int(counts[0]) if same else 0
    sizes = [int(o[-1]) for o in (structure.unary_offsets, structure.pairwise_offsets, structure.factor_offsets)]
    return [
        Part(NAMES[0], sizes[0], (n, num_states) if same else None),
        Part(NAMES[1], sizes[1], (m, num_states, num_states) if same else None),
        Part(NAMES[2], sizes[2], None),
    ]


def read_shapes(structure: Structure, shapes: list[tuple[int, ...]]) -> tuple[list[int], tuple[int, ...]]:
    """By part, how many of its last axes are not of the batch; and the axes of the batch, which are broadcast.

    One shape is that of all parameters (.., P). Several are those of the unaries (.., entries) or (.., n, L), of the
    tables (.., entries) or (.., m, L, L), m or 1 of them, and of the factors (.., entries), where there are any.
    """
    if len(shapes) == 1:
        num_parameters = count_parameters(structure)
        if not shapes[0] or shapes[0][-1] != num_parameters:
            raise ModelError(
                f"parameters must have shape (.., {num_parameters}) to fit the structure, got {tuple(shapes[0])}"
            )
        return [1], tuple(shapes[0][:-1])
    parts = [part for part in parts_of(structure) if part.size or part.name == "unary"]
    if len(parts) != len(shapes):
        names = ", ".join([part.name for part in parts])
        raise ModelError(f"parameters must be one array, or those of {names}, got {len(shapes)} arrays")
    num_own = [_count_own_axes(part, tuple(shape)) for part, shape in zip(parts, shapes, strict=True)]
    batches = [tuple(shape[: len(shape) - own]) for shape, own in zip(shapes, num_own, strict=True)]
    try:
        return num_own, np.broadcast_shapes(*batches)
    except ValueError:
        raise ModelError(f"parameters must have axes of a batch that go together, got {batches}") from None


def _count_own_axes(part: Part, shape: tuple[int, ...]) -> int:
    """How many of the last axes of an array are those of a part."""
    if part.axes is not None and len(shape) >= len(part.axes):
        own = shape[len(shape) - len(part.axes) :]
        shared = part.name == "pairwise" and own == (1, *part.axes[1:])
        if own == part.axes or shared:
            return len(part.axes)
    if shape and shape[-1] == part.size:
        return 1
    allowed = f"(.., {part.size})"
    if part.axes is not None:
        allowed += f" or (.., {', '.join(map(str, part.axes))})"
    raise ModelError(f"{part.name} must have shape {allowed}, got {shape}, {math.prod(shape)} numbers")
