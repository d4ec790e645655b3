"""Hypothesis strategies for tiny models.

Sizes, state counts and edges are drawn by Hypothesis, so that failures shrink to small graphs; the entries come from a
generator with a drawn seed, because hundreds of drawn floats an example would be slow and shrink no further.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import strategies as st

import oracle
from fastmix.model import MarkovRandomField
from fastmix.model.shared import SharedTables, TableUse

# Strengths of the entries: none, ordinary, and so strong that exp() of a weight overflows.
SCALES = (0.0, 0.3, 1.0, 5.0, 1e3)

_seeds = st.integers(0, 2**32 - 1)


def seeds(count: int, *, quick: int) -> list[object]:
    """Values for ``parametrize``: the first are for every run, the others for `make verify`."""
    return [*range(quick), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(quick, count))]


def each(*lists: Iterable[Any]) -> list[Any]:
    """Combinations for ``parametrize``: every value is in one of every run, the others are for `make verify`."""
    values = [list(one) for one in lists]
    quick = {tuple(k % len(one) for one in values) for k in range(max(map(len, values)))}
    return [
        pytest.param(*map(list.__getitem__, values, at), marks=[] if at in quick else pytest.mark.slow)
        for at in itertools.product(*(range(len(one)) for one in values))
    ]


@st.composite
def graphs(draw: st.DrawFn, num_variables: int) -> list[tuple[int, int]]:
    """Edges i < j in order over a number of variables, from none to all; isolated variables are common."""
    pairs = list(itertools.combinations(range(num_variables), 2))
    return sorted(draw(st.lists(st.sampled_from(pairs), unique=True))) if pairs else []


@st.composite
def models(
    draw: st.DrawFn,
    *,
    min_variables: int = 0,
    max_variables: int = 5,
    min_states: int = 1,
    max_states: int = 4,
    allow_forbidden: bool = True,
    scales: Sequence[float] = SCALES,
    named: bool = False,
) -> MarkovRandomField:
    """Models of every kind that some configuration is possible in.

    No variables, isolated variables, one-state variables, mixed state counts, strong entries, a constant, and
    (unless excluded) -inf in unaries and tables. With ``named`` the variables are "v0", "v1", .. and the states of
    each are "a", "b", ..
    """
    n = draw(st.integers(min_variables, max_variables))
    counts = draw(st.lists(st.integers(min_states, max_states), min_size=n, max_size=n))
    edges = draw(graphs(n))
    scale = draw(st.sampled_from(list(scales)))
    forbidden = draw(st.sampled_from([0.0, 0.2, 0.6])) if allow_forbidden else 0.0
    model = oracle.random_entries(np.random.default_rng(draw(_seeds)), counts, edges, scale, forbidden)
    return with_names(model) if named else model


class Shared(NamedTuple):
    """A model that shares tables, and the same model with its tables in full."""

    shared: MarkovRandomField
    full: MarkovRandomField


@st.composite
def shared_models(
    draw: st.DrawFn,
    *,
    min_variables: int = 0,
    max_variables: int = 5,
    max_states: int = 4,
    allow_forbidden: bool = True,
    allow_mixtures: bool = True,
    scales: Sequence[float] = (0.3, 1.0, 5.0),
) -> Shared:
    """Models that share tables, beside their twins in full: patterns of all shapes, turned, with weights of any sign.

    Weights of 0 and repeated patterns are common. With ``allow_mixtures`` some tables lie between two patterns.
    """
    n = draw(st.integers(min_variables, max_variables))
    counts = draw(st.lists(st.integers(1, max_states), min_size=n, max_size=n))
    edges = draw(graphs(n))
    rng = np.random.default_rng(draw(_seeds))
    scale = draw(st.sampled_from(list(scales)))
    forbidden = draw(st.sampled_from([0.0, 0.0, 0.3])) if allow_forbidden else 0.0
    mixed = allow_mixtures and forbidden == 0.0 and draw(st.booleans())
    shapes = sorted({tuple(sorted((counts[i], counts[j]))) for i, j in edges})
    patterns: list[Any] = []
    first: dict[tuple[int, ...], int] = {}
    for shape in shapes:
        first[shape] = len(patterns)
        for _ in range(3):
            pattern = rng.normal(size=shape)
            pattern[rng.random(shape) < forbidden] = -math.inf
            pattern[0] = 0.0  # some state is always possible
            patterns.append(pattern)
    turned = [counts[i] > counts[j] or (counts[i] == counts[j] and bool(rng.integers(2))) for i, j in edges]
    chosen = [first[tuple(sorted((counts[i], counts[j])))] + int(rng.integers(2)) for i, j in edges]
    weights = scale * rng.choice([0.0, 1.0, 1.0, 0.3, 2.0], size=len(edges))
    if not forbidden:
        weights *= rng.choice([-1.0, 1.0], size=len(edges))
    following = scale * rng.normal(size=len(edges)) * rng.integers(0, 2, len(edges)) if mixed else None
    unary = scale * rng.normal(size=sum(counts))
    use = TableUse(
        np.array(shapes, dtype=np.int64).reshape(-1, 2).repeat(3, axis=0),
        np.array(chosen, dtype=np.int32),
        np.array(turned, dtype=bool),
    )
    flat = np.concatenate([np.zeros(0), *(pattern.reshape(-1) for pattern in patterns)])
    shared = SharedTables.checked(use, flat, weights, following)
    pairs = np.array(edges, dtype=np.int64).reshape(-1, 2)
    full = np.concatenate([np.zeros(0), *oracle.laid_out(patterns, chosen, turned, weights, following)])
    empty = np.zeros(0)
    return Shared(
        MarkovRandomField(np.array(counts), unary, pairs, empty, 0.25, shared_tables=shared),
        MarkovRandomField(np.array(counts), unary, pairs, full, 0.25),
    )


def picture_twins(seed: int, *, num_variables: int = 5, scale: float = 1.0, mixed: bool | None = None) -> Shared:
    """Models of equal state counts that share tables as pictures do, beside their twins in full.

    Potts and truncated linear patterns of either sign, with a level, that end at or between states; truncated squares
    and random ones, turned or not. Neighboring patterns are of one kind, so that mixtures of two often are.
    """
    rng = np.random.default_rng([seed, 29])
    count = int(rng.integers(2, 7))
    states = np.arange(count)
    distance = np.abs(np.subtract.outer(states, states)).astype(float)
    reach = rng.choice([1.0, 1.5, 2.0, float(count)])
    patterns = [0.3 + np.eye(count), -1.2 * np.eye(count) - 0.1]
    patterns += [0.2 - size * np.minimum(distance, reach) for size in (0.5, 0.8, -0.4)]
    patterns += [-np.minimum(distance**2, 3.0), rng.normal(size=(count, count)), rng.normal(size=(count, count))]
    pairs = [pair for pair in itertools.combinations(range(num_variables), 2) if rng.random() < 0.7]
    mixed = bool(rng.integers(2)) if mixed is None else mixed
    chosen = rng.integers(0, len(patterns) - 1, len(pairs))
    turned = rng.random(len(pairs)) < 0.5
    weights = scale * rng.choice([0.0, -1.0, 0.7, 1.0, 1.6], len(pairs))
    following = scale * rng.normal(size=len(pairs)) * rng.integers(0, 2, len(pairs)) if mixed else None
    unary = scale * rng.normal(size=num_variables * count)
    use = TableUse(np.tile([count, count], (len(patterns), 1)), chosen.astype(np.int32), turned)
    shared = SharedTables.checked(use, np.concatenate([np.ravel(p) for p in patterns]), weights, following)
    edges = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    full = np.concatenate([np.zeros(0), *oracle.laid_out(patterns, chosen, turned, weights, following)])
    counts = np.full(num_variables, count)
    return Shared(
        MarkovRandomField(counts, unary, edges, np.zeros(0), -0.5, shared_tables=shared),
        MarkovRandomField(counts, unary, edges, full, -0.5),
    )


@st.composite
def factor_models(
    draw: st.DrawFn,
    *,
    max_variables: int = 4,
    max_states: int = 3,
    allow_forbidden: bool = True,
    scales: Sequence[float] = SCALES,
) -> MarkovRandomField:
    """Models with one to three factors over three or four variables beside terms of one and two."""
    n = draw(st.integers(3, max_variables))
    counts = draw(st.lists(st.integers(1, max_states), min_size=n, max_size=n))
    larger = [scope for size in (3, 4) for scope in itertools.combinations(range(n), size)]
    scopes = draw(st.lists(st.sampled_from(larger), unique=True, min_size=1, max_size=3))
    scale = draw(st.sampled_from(list(scales)))
    forbidden = draw(st.sampled_from([0.0, 0.05, 0.3])) if allow_forbidden else 0.0
    rng = np.random.default_rng(draw(_seeds))
    kept = rng.integers(0, counts)  # a configuration that stays possible
    factors = []
    for scope in [*scopes, *draw(graphs(n)), *[(i,) for i in range(n)]]:
        table = scale * rng.normal(size=[counts[v] for v in scope])
        table[rng.random(table.shape) < forbidden] = -math.inf
        table[tuple(kept[list(scope)])] = scale * rng.normal()
        factors.append((scope, table))
    return MarkovRandomField.from_factors(counts, factors)


@st.composite
def ising_models(
    draw: st.DrawFn,
    *,
    min_variables: int = 1,
    max_variables: int = 6,
    max_coupling: float = 3.0,
    max_field: float = 2.0,
    attractive: bool = False,
) -> MarkovRandomField:
    """Ising models with couplings up to a bound, all positive if asked for."""
    n = draw(st.integers(min_variables, max_variables))
    edges = draw(graphs(n))
    rng = np.random.default_rng(draw(_seeds))
    fields = max_field * rng.uniform(-1.0, 1.0, n)
    couplings = draw(st.floats(0.0, max_coupling)) * rng.uniform(0.0 if attractive else -1.0, 1.0, len(edges))
    return MarkovRandomField.ising(edges, couplings, fields)


@st.composite
def potts_models(
    draw: st.DrawFn,
    *,
    min_variables: int = 1,
    max_variables: int = 5,
    max_states: int = 4,
    max_coupling: float = 3.0,
    attractive: bool = False,
) -> MarkovRandomField:
    """Potts models with a unary for each state and couplings up to a bound, all positive if asked for."""
    n, states = draw(st.integers(min_variables, max_variables)), draw(st.integers(2, max_states))
    edges = draw(graphs(n))
    rng = np.random.default_rng(draw(_seeds))
    couplings = draw(st.floats(0.0, max_coupling)) * rng.uniform(0.0 if attractive else -1.0, 1.0, len(edges))
    return MarkovRandomField.potts(edges, couplings, states, rng.uniform(-1.0, 1.0, (n, states)))


def configurations(model: MarkovRandomField) -> st.SearchStrategy[tuple[int, ...]]:
    """Configurations of a model, allowed or not."""
    return st.tuples(*(st.integers(0, count - 1) for count in model.num_states.tolist()))


def allowed_configurations(model: MarkovRandomField) -> st.SearchStrategy[tuple[int, ...]]:
    """Configurations of positive probability."""
    pairs = zip(oracle.all_configurations(model), oracle.log_weights(model), strict=True)
    return st.sampled_from([x for x, weight in pairs if weight > -math.inf])


@st.composite
def evidences(draw: st.DrawFn, model: MarkovRandomField) -> dict[int, int]:
    """Possible evidence, by number: some of the states of an allowed configuration; none and all occur."""
    x = draw(allowed_configurations(model))
    observed = draw(st.lists(st.booleans(), min_size=len(x), max_size=len(x)))
    return {i: state for i, state in enumerate(x) if observed[i]}


def with_names(model: MarkovRandomField) -> MarkovRandomField:
    """The same model with names for variables and states."""
    return MarkovRandomField(
        model.num_states,
        model.log_unary,
        model.edges,
        model.log_pairwise,
        model.log_constant,
        tuple(f"v{i}" for i in range(model.num_variables)),
        tuple(tuple("abcdefgh"[:count]) for count in model.num_states.tolist()),
    )


def relabel(model: MarkovRandomField, order: Sequence[int]) -> MarkovRandomField:
    """The model with variable ``order[k]`` as number k, through :meth:`MarkovRandomField.from_tables`.

    The edges keep their order and direction of before, so that many arrive backwards and out of order.
    """
    unary, tables = oracle.unary_vectors(model), oracle.edge_tables(model)
    number = {old: new for new, old in enumerate(order)}
    return MarkovRandomField.from_tables(
        [unary[i] for i in order],
        [(number[i], number[j]) for i, j in tables],
        list(tables.values()),
        log_constant=model.log_constant,
    )
