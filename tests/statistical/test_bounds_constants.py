"""Brackets, and the bounds of other methods, where terms have constants of up to 1e12; run by ``make verify``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import fastmix
from oracle.bounds import missed, random_with_constants

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

Tell = Callable[[str, str, str], None]

MODELS, BLOCKS = 10_000, 20
WAYS: list[dict[str, Any]] = [
    {}, {"memory_limit": 64, "time_limit": 0.05}, {"memory_limit": 64, "time_limit": 0.001},
    {"memory_limit": 200, "time_limit": 0.1, "confidence": 1.0 - 1e-9, "num_draws": 200},
]  # fmt: skip


@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_bracket_misses_the_truth(block: int, tell: Tell) -> None:
    size = MODELS // BLOCKS
    wrong, brackets = [], 0
    for seed in range(1000 + block * size, 1000 + (block + 1) * size):
        model, evidence = random_with_constants(seed)
        # Draws take most of the time: every fourth model has them.
        for way in WAYS if seed % 4 == 0 else WAYS[:-1]:
            result = fastmix.bracket(model, evidence=evidence, seed=seed, progress=None, **way)
            brackets += 1
            wrong += [f"{seed} {way}: {what}" for what in missed(result, model, evidence)]
    tell("brackets with constants up to 1e12", f"models {block * size} to {(block + 1) * size - 1}",
         f"{len(wrong)} bounds violated by {brackets} brackets of {size} models")  # fmt: skip
    assert wrong == []
