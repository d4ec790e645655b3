"""Conditional distributions of every site for every pattern of its neighbours, ready for the compiled loops."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastmix.chains.generator import thresholds
from fastmix.errors import ModelError
from fastmix.model import MarkovRandomField
from fastmix.model.build import offsets_of

__all__ = ["PatternTables", "log_odds", "pattern_tables"]

IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PatternTables:
    """Arrays for :mod:`fastmix.chains.gibbs_kernels`, see there.

    ``order`` visits the sites by colour, and ``class_starts`` says where each colour begins: sites of one colour have
    no edge between them and can be updated in any order or at once.
    """

    order: NDArray[np.int32]
    class_starts: IntArray
    indptr: IntArray
    neighbors: NDArray[np.int32]
    strides: NDArray[np.int32]
    cuts: NDArray[np.int32]
    starts: IntArray
    table: NDArray[np.uint32]
    sum_starts: IntArray


def log_odds(model: MarkovRandomField) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Log-odds of state 1 of binary variables: by the unaries (n,), and what either state of a neighbor adds (2 m, 2).

    The second is aligned with ``adjacency.neighbors``.

    Examples
    --------
    >>> unary, odds = log_odds(MarkovRandomField.ising([(0, 1)], coupling=1.0, field=0.5))
    >>> unary.tolist(), odds.tolist()
    ([1.0, 1.0], [[-2.0, 2.0], [-2.0, 2.0]])
    """
    _, starts, own_steps, other_steps = model.structure.directed
    zero = starts[:, None] + other_steps[:, None] * np.arange(2)
    odds = model.log_pairwise[zero + own_steps[:, None]] - model.log_pairwise[zero]
    return model.log_unary[1::2] - model.log_unary[::2], odds


def pattern_tables(model: MarkovRandomField) -> PatternTables:
    """All conditional distributions of a model; refuse larger ones by ``structure.pattern_entries`` first.

    Sites of equal shape (own states, neighbours' states) are done together.

    Raises
    ------
    ModelError
        If some pattern forbids every state of a site: a Gibbs update is undefined there.
    """
    n, adjacency = model.num_variables, model.adjacency
    degree = adjacency.degree
    order, class_starts = model.structure.visit_order
    shapes: dict[tuple[int, ...], list[int]] = {}
    if n and (model.num_states == model.num_states[0]).all():
        for d in np.unique(degree).tolist():
            shapes[(int(model.num_states[0]),) * (d + 1)] = np.flatnonzero(degree == d).tolist()
    else:
        counts, indptr = model.num_states.tolist(), adjacency.indptr.tolist()
        for i in range(n):
            around = adjacency.neighbors[indptr[i] : indptr[i + 1]]
            shapes.setdefault((counts[i], *[counts[j] for j in around]), []).append(i)
    strides = np.zeros(len(adjacency.neighbors), dtype=np.int32)
    sizes = np.zeros(n, dtype=np.int64)
    for shape, sites in shapes.items():
        sizes[sites] = (shape[0] - 1) * math.prod(shape[1:])
        steps = [math.prod(shape[k + 2 :]) for k in range(len(shape) - 1)]
        for k, step in enumerate(steps):
            strides[adjacency.indptr[sites] + k] = step
    starts = offsets_of(sizes)
    table = np.empty(int(starts[-1]), dtype=np.uint32)
    for shape, sites in shapes.items():
        block = max(1, (1 << 20) // max(1, math.prod(shape)))
        for first in range(0, len(sites), block):
            part = np.array(sites[first : first + block])
            values = thresholds(_cumulative(model, part, shape))
            positions = starts[part][:, None] + np.arange(values.shape[1])
            table[positions.reshape(-1)] = values.reshape(-1)
    return PatternTables(
        order, class_starts, adjacency.indptr, adjacency.neighbors.astype(np.int32), strides,
        (model.num_states - 1).astype(np.int32), starts, table, offsets_of(model.num_states - 1)[:-1].copy(),
    )  # fmt: skip


def _cumulative(model: MarkovRandomField, sites: IntArray, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Cumulative conditional probabilities (sites, patterns * (L - 1)) of sites that share a shape."""
    adjacency = model.adjacency
    states, degree = shape[0], len(shape) - 1
    logits = model.log_unary[model.unary_offsets[sites][:, None] + np.arange(states)]
    logits = logits.reshape(len(sites), *(1,) * degree, states)
    for k in range(degree):
        slot = adjacency.indptr[sites] + k
        start, own, theirs = (a[slot][:, None, None] for a in model.structure.directed[1:])
        # Rows for the neighbor's state, columns for the site's own.
        places = start + own * np.arange(states) + theirs * np.arange(shape[k + 1])[:, None]
        values = model.log_pairwise[places]
        axes = [1] * (degree + 2)
        axes[0], axes[k + 1], axes[-1] = len(sites), shape[k + 1], states
        logits = logits + values.reshape(axes)
    top = logits.max(axis=-1, keepdims=True)
    if (top == -np.inf).any():
        site = int(sites[np.argwhere(top == -np.inf)[0][0]])
        raise ModelError(f"variable {site} has no allowed state for some states of its neighbours")
    weights = np.exp(logits - top)
    total = np.cumsum(weights, axis=-1)
    return (total[..., :-1] / total[..., -1:]).reshape(len(sites), -1)
