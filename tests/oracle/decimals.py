"""Enumeration in decimals of 60 digits: what bounds and models with large constants are compared with."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from decimal import Decimal, localcontext

from fastmix.model import MarkovRandomField
from oracle import agrees, edge_tables, factor_tables, unary_vectors

__all__ = ["exact_decimal", "exact_states"]

_DIGITS = 60


def exact_decimal(value: float) -> Decimal:
    """A float as the decimal that it is."""
    return Decimal(value)


def exact_states(model: MarkovRandomField, evidence: Mapping[int, int] | None = None) -> tuple[Decimal, list[Decimal]]:
    """Log Z, and the probability of every state laid out as ``log_unary``; log Z is -Infinity where Z = 0."""
    given = evidence or {}
    counts = model.num_states.tolist()
    scores: dict[tuple[int, ...], Decimal] = {}
    with localcontext() as context:
        context.prec = _DIGITS
        unary = [[Decimal(value) for value in vector] for vector in unary_vectors(model)]
        tables = {edge: [[Decimal(v) for v in row] for row in table] for edge, table in edge_tables(model).items()}
        factors = [(scope, table) for scope, table in factor_tables(model)]
        for x in itertools.product(*(range(count) for count in counts)):
            if not agrees(x, given):
                continue
            score = Decimal(model.log_constant)
            score += sum((unary[i][s] for i, s in enumerate(x)), Decimal(0))
            score += sum((table[x[i]][x[j]] for (i, j), table in tables.items()), Decimal(0))
            score += sum((Decimal(float(table[tuple(x[v] for v in scope)])) for scope, table in factors), Decimal(0))
            scores[x] = score
        top = max(scores.values())
        if not top.is_finite():
            return top, []
        weights = {x: (score - top).exp() if score.is_finite() else Decimal(0) for x, score in scores.items()}
        total = sum(weights.values(), Decimal(0))
        nodes = [[Decimal(0)] * count for count in counts]
        for x, weight in weights.items():
            for i, s in enumerate(x):
                nodes[i][s] += weight
        return top + total.ln(), [p / total for vector in nodes for p in vector]
