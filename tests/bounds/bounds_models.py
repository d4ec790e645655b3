"""Small random models of all kinds, the truth about them by enumeration, and checks of bounds."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fastmix
from fastmix import MarkovRandomField
from fastmix.bounds.reduced_tables import ReducedTables, reduce_to_tables
from fastmix.bounds.tractable_parts import TractableParts
from fastmix.bounds.upper_bound import UpperBound

FloatArray = NDArray[np.float64]

__all__ = ["assert_holds", "assert_inside", "left_of", "random_small", "rough_covers", "truth"]


def random_small(seed: int, forbidden: bool | None = None) -> MarkovRandomField:
    """Binary or 3 to 4 states or mixed, dense or sparse, mixed sign or not, lopsided fields, pairs and factors."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 7))
    counts = rng.choice([[2] * n, rng.integers(3, 5, n).tolist(), rng.integers(1, 5, n).tolist()][seed % 3], n)
    scale = float(rng.choice([0.2, 1.0, 3.0, 20.0]))
    sign = rng.choice([0.0, -1.0])
    factors: list[tuple[tuple[int, ...], Any]] = [
        ((i,), rng.normal(size=counts[i]) * rng.choice([0.0, 0.5, 3.0])) for i in range(n)
    ]
    keep = rng.choice([0.3, 0.7, 1.0])
    pairs = [pair for pair in itertools.combinations(range(n), 2) if rng.random() < keep]
    factors += [(pair, scale * rng.uniform(sign, 1.0, counts[list(pair)])) for pair in pairs]
    for _ in range(int(rng.integers(0, 3)) if n > 3 else 0):
        scope = tuple(rng.permutation(n)[: int(rng.integers(3, 5))].tolist())
        factors.append((scope, scale * rng.normal(size=counts[list(scope)])))
    if rng.random() < 0.3 if forbidden is None else forbidden:
        allowed = [int(rng.integers(c)) for c in counts]  # one configuration stays possible
        for k, (scope, table) in enumerate(factors):
            if len(scope) > 1:
                bare = np.where(rng.random(table.shape) < 0.4, -np.inf, table)
                bare[tuple(allowed[v] for v in scope)] = 0.0
                factors[k] = scope, bare
    return MarkovRandomField.from_factors(counts, [*factors, ((), float(rng.normal()))])


def truth(model: MarkovRandomField) -> tuple[float, FloatArray]:
    """Log Z and the log-weight of every state, by enumeration."""
    states = np.array(list(itertools.product(*[range(s) for s in model.num_states])), dtype=np.int64)
    scores = model.log_weight(states) if len(states) else np.zeros(0)
    by_state = np.full(len(model.log_unary), -np.inf)
    for i, first in enumerate(model.unary_offsets[:-1]):
        np.logaddexp.at(by_state, first + states[:, i], scores)
    return float(np.logaddexp.reduce(scores)), by_state


def left_of(terms: ReducedTables, values: FloatArray) -> FloatArray:
    """Numbers of the states of the user's model that are left in the terms."""
    marks = terms.reduction.expand_node_marginals(10.0 + np.arange(terms.num_unary))
    return values[np.flatnonzero(marks >= 10.0)]


def assert_holds(result: fastmix.BracketResult, slack: float = 1e-12) -> None:
    log_z, by_state = truth(result.model)
    assert result.log_z_lower <= log_z <= result.log_z_upper
    p = np.exp(by_state - log_z)
    assert (result.node_lower <= p + slack).all()
    assert (p <= result.node_upper + slack).all()


def rough_covers(model: MarkovRandomField, max_entries: float = 4.0) -> tuple[Any, UpperBound]:
    terms = reduce_to_tables(model)
    scopes = terms.scopes[terms.num_variables :]
    parts_of = TractableParts(terms.num_states, scopes, terms.tie_strengths, max_entries=max_entries)
    return terms, UpperBound(terms, parts_of.covers(rng=np.random.default_rng(0)))


def assert_inside(result: fastmix.BracketResult, model: MarkovRandomField) -> None:
    answer = fastmix.infer(model, method="exact")
    assert answer.log_z is not None
    assert result.log_z_lower <= answer.log_z <= result.log_z_upper
    assert result.misses(answer) is None
