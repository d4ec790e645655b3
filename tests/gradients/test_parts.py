"""Shapes of parameters that come in one array or in parts, with axes of a batch."""

from __future__ import annotations

import numpy as np
import pytest

from fastmix import ModelError
from fastmix.gradients.layout import parts_of, read_shapes
from fastmix.model import MarkovRandomField, Structure

LOOP = Structure.of([3] * 4, [(0, 1), (0, 3), (1, 2), (2, 3)])
UNEVEN = Structure.of([2, 3, 1, 2], [(0, 1), (1, 2), (1, 3)])
TRIPLE = MarkovRandomField.from_factors([2, 2, 2], [((0, 1, 2), np.zeros((2, 2, 2)))]).structure


def test_parts_of_structures() -> None:
    assert [tuple(part) for part in parts_of(LOOP)] == [
        ("unary", 12, (4, 3)), ("pairwise", 36, (4, 3, 3)), ("factors", 0, None),
    ]  # fmt: skip
    assert [tuple(part) for part in parts_of(UNEVEN)] == [
        ("unary", 8, None), ("pairwise", 6 + 3 + 6, None), ("factors", 0, None),
    ]  # fmt: skip
    assert [part.size for part in parts_of(TRIPLE)] == [6, 12, 8]  # pairs within the factor are edges


@pytest.mark.parametrize(
    ("structure", "shapes", "own", "batch"),
    [
        (LOOP, [(48,)], [1], ()),
        (LOOP, [(5, 2, 48)], [1], (5, 2)),
        (LOOP, [(12,), (36,)], [1, 1], ()),
        (LOOP, [(4, 3), (4, 3, 3)], [2, 3], ()),
        (LOOP, [(7, 4, 3), (4, 3, 3)], [2, 3], (7,)),
        (LOOP, [(7, 12), (1, 3, 3)], [1, 3], (7,)),
        (LOOP, [(2, 1, 4, 3), (5, 1, 3, 3)], [2, 3], (2, 5)),
        (UNEVEN, [(3, 8), (3, 15)], [1, 1], (3,)),
        (TRIPLE, [(9, 3, 2), (12,), (8,)], [2, 1, 1], (9,)),
    ],
)
def test_axes_of_parts_and_of_the_batch(
    structure: Structure, shapes: list[tuple[int, ...]], own: list[int], batch: tuple[int, ...]
) -> None:
    assert read_shapes(structure, shapes) == (own, batch)


@pytest.mark.parametrize(
    ("structure", "shapes", "named"),
    [
        (LOOP, [(47,)], "parameters"),
        (LOOP, [()], "parameters"),
        (LOOP, [(12,), (36,), (1,)], "parameters"),
        (LOOP, [(11,), (36,)], "unary"),
        (LOOP, [(12,), (2, 3, 3)], "pairwise"),
        (UNEVEN, [(8,), (3, 2, 2)], "pairwise"),
        (TRIPLE, [(6,), (12,), (7,)], "factors"),
        (LOOP, [(2, 12), (3, 36)], "batch"),
    ],
)
def test_what_does_not_fit(structure: Structure, shapes: list[tuple[int, ...]], named: str) -> None:
    with pytest.raises(ModelError, match=named):
        read_shapes(structure, shapes)
