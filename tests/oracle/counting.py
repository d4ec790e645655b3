"""The weighted count of a formula, by splitting on one variable after another."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

__all__ = ["weighted_count"]


def weighted_count(
    num_variables: int, clauses: Sequence[Sequence[int]], log_weights: Mapping[int, float], first: int = 1
) -> float:
    """The sum of the weights of all assignments that satisfy every clause."""
    if any(len(clause) == 0 for clause in clauses):
        return 0.0
    if first > num_variables:
        return 1.0
    total = 0.0
    for literal in (first, -first):
        left = [[other for other in clause if other != -literal] for clause in clauses if literal not in clause]
        weight = math.exp(log_weights.get(literal, 0.0))
        total += weight * weighted_count(num_variables, left, log_weights, first + 1)
    return total
