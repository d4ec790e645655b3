"""Random models with constants of any size, and what of a bracket misses the truth in decimals of 60 digits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from decimal import Decimal

import numpy as np

import fastmix
from fastmix import MarkovRandomField
from oracle.decimals import exact_states

__all__ = ["missed", "random_with_constants"]

_MOST_CONFIGURATIONS = 80


def random_with_constants(
    seed: int, *, scales: tuple[float, ...] = (0.01, 0.1, 1.0, 1.0, 1.0, 10.0, 100.0, 1e3, 1e6, 1e9, 1e12)
) -> tuple[MarkovRandomField, dict[int, int]]:
    """A tiny model and evidence: pairs and triples, several states, forbidden entries, scales and constants to 1e12.

    One configuration, which the evidence agrees with, is never forbidden.
    """
    rng = np.random.default_rng([seed, 77])
    n = int(rng.integers(1, 6))
    counts = np.array([2] * n) if seed % 2 else rng.integers(1, 4, n)
    while math.prod(counts.tolist()) > _MOST_CONFIGURATIONS:
        counts[int(np.argmax(counts))] = 1
    scale = float(rng.choice(scales))
    factors = [((i,), rng.normal(size=counts[i]) * rng.choice([0.0, 1.0, scale])) for i in range(n)]
    density = rng.choice([0.3, 0.7, 1.0])
    pairs = [pair for pair in itertools.combinations(range(n), 2) if rng.random() < density]
    factors += [(pair, scale * rng.normal(size=counts[list(pair)])) for pair in pairs]
    for _ in range(int(rng.integers(0, 3)) if n > 2 else 0):
        scope = tuple(rng.permutation(n)[:3].tolist())
        factors.append((scope, scale * rng.normal(size=counts[list(scope)])))
    allowed = rng.integers(0, counts)
    forbid = 0.3 if rng.random() < 0.3 else 0.0
    size = 10.0 ** float(rng.choice([0, 3, 6, 7, 9, 12])) if rng.random() < 0.8 else 0.0
    same = rng.random() < 0.5  # all constants alike, or all different
    moved = []
    for scope, table in factors:
        hard = rng.random(table.shape) < forbid
        hard[tuple(allowed[list(scope)])] = False
        constant = -size if same else size * rng.normal()
        moved.append((scope, np.where(hard, -np.inf, table + constant * (rng.random() < 0.8))))
    moved.append(((), np.array(rng.normal() * rng.choice([1.0, size]))))
    given = int(rng.integers(n))
    evidence = {given: int(allowed[given])} if rng.random() < 0.3 else {}
    return MarkovRandomField.from_factors(counts, moved), evidence


def missed(
    result: fastmix.BracketResult, model: MarkovRandomField, evidence: Mapping[int, int] | None = None
) -> list[str]:
    """What of the truth lies outside of a bracket, without any allowance."""
    log_z, nodes = exact_states(model, evidence)
    assert result.node_lower is not None
    assert result.node_upper is not None
    bounds = [("log Z", result.log_z_lower, result.log_z_upper, log_z)]
    sides = zip(result.node_lower.tolist(), result.node_upper.tolist(), nodes, strict=True)
    bounds += [(f"state {a}", low, high, p) for a, (low, high, p) in enumerate(sides)]
    return [
        f"{what} = {truth:.20g} is outside [{low!r}, {high!r}]"
        for what, low, high, truth in bounds
        if not Decimal(low) <= truth <= Decimal(high)
    ]
