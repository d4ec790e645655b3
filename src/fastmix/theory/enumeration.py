"""The dependency matrix by its definition: enumeration of what the neighbors of a variable can do.

Definition 3 of Liu and Domke (2014), in the form of their Lemma 9.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix.errors import ResourceError
from fastmix.model import MarkovRandomField

__all__ = ["MERGE_WIDTH", "exact_dependencies"]

_CHUNK_ENTRIES = 1 << 18  # table entries worked on at once: 2 MiB a temporary, which stays in the cache

# Limits: each takes a few seconds.
_MAX_EVALUATIONS = 20_000_000  # conditional distributions
_MAX_COMPARISONS = 4_000_000_000  # entries of pairs of conditional distributions
_BATCHED_EVALUATIONS = 4096  # up to this many an entry of R are enumerated side by side, without merging
MERGE_WIDTH = 64 * float(np.finfo(np.float64).eps)  # summed effects this close, relative to their scale, count as one


def exact_dependencies(model: MarkovRandomField) -> FloatArray:
    """R by its definition (m, 2), for a model without forbidden states."""
    graph, counts = model.adjacency, model.num_states
    result = np.zeros(2 * model.num_edges)
    if not len(result):
        return result.reshape(0, 2)
    owner = np.repeat(np.arange(model.num_variables), graph.degree)
    other = graph.neighbors
    # Every directed edge p = (owner <- other): its own states, and the product over the owner's other neighbors.
    log_counts = np.log(counts.astype(np.float64))
    log_total = np.bincount(owner, log_counts[other], minlength=model.num_variables)[owner]
    with np.errstate(over="ignore"):
        evaluations = np.exp(log_total)  # the product with the neighbor itself: conditional distributions
    weight = counts[owner] * counts[other]  # comparisons are this many times more
    target = 2 * graph.edge_ids + (owner > other)
    alone = (np.diff(model.structure.incident.indptr) == 0)[owner]
    batched = alone & (evaluations <= _BATCHED_EVALUATIONS + 0.5)
    budget = _Budget(float(evaluations.sum()), owner[int(evaluations.argmax())], graph.max_degree)
    budget.spend(float(evaluations[batched].sum()), float((evaluations * weight)[batched].sum()))
    for places, slots in _alike(model, owner, batched):
        result[target[places]] = _enumerate_batch(model, places, slots)
    for p in np.flatnonzero(alone & ~batched).tolist():
        result[target[p]] = _enumerate_merged(model, int(owner[p]), p, budget)
    for p in np.flatnonzero(~alone).tolist():
        budget.spend(float(evaluations[p]), float(evaluations[p] * weight[p]))
        result[target[p]] = _enumerate_jointly(model, int(owner[p]), int(other[p]))
    return result.reshape(-1, 2)


class _Budget:
    """What an enumeration may still cost."""

    def __init__(self, estimate: float, variable: int, max_degree: int) -> None:
        self._estimate, self._variable, self._degree = estimate, variable, max_degree
        self._evaluations = self._comparisons = 0.0

    def spend(self, evaluations: float, comparisons: float) -> None:
        self._evaluations += evaluations
        self._comparisons += comparisons
        if self._evaluations > _MAX_EVALUATIONS or self._comparisons > _MAX_COMPARISONS:
            raise ResourceError(
                f"dependency='exact' would enumerate up to {self._estimate:.3g} conditional distributions (variable "
                f"{self._variable} takes most; the largest degree is {self._degree}), more than the limit of "
                f"{_MAX_EVALUATIONS:.3g} of them or {_MAX_COMPARISONS:.3g} comparisons of their entries; "
                "dependency='sigmoid' enumerates nothing"
            )

    def check(self, evaluations: float) -> None:
        """Refuse before an allocation of this many."""
        self.spend(evaluations, 0.0)
        self._evaluations -= evaluations


def _alike(model: MarkovRandomField, owner: IntArray, wanted: NDArray[np.bool_]) -> Iterator[tuple[IntArray, IntArray]]:
    """Groups of directed edges with equal state counts of owner, neighbor and other neighbors, in pieces.

    Yields the directed edges (g,) and the owner's other directed edges (g, degree - 1), by falling state counts.
    """
    graph, counts = model.adjacency, model.num_states
    degree = graph.degree[owner]
    for d in np.unique(degree[wanted]).tolist():
        places = np.flatnonzero(wanted & (degree == d))
        slots = graph.indptr[owner[places]][:, None] + np.arange(d)
        others = slots[slots != places[:, None]].reshape(len(places), d - 1)
        states = counts[graph.neighbors[others]]
        order = np.argsort(-states, axis=1, kind="stable")
        others, states = np.take_along_axis(others, order, 1), np.take_along_axis(states, order, 1)
        signature = np.column_stack([counts[owner[places]], counts[graph.neighbors[places]], states])
        if (signature == signature[0]).all():
            kinds, group = signature[:1], np.zeros(len(places), dtype=np.int64)
        else:
            kinds, group = np.unique(signature, axis=0, return_inverse=True)
        for k, kind in enumerate(kinds):
            members = np.flatnonzero(group.ravel() == k)
            chunk = max(1, _CHUNK_ENTRIES // math.prod(kind.tolist()))
            for start in range(0, len(members), chunk):
                some = members[start : start + chunk]
                yield places[some], others[some]


def _columns(model: MarkovRandomField, places: IntArray) -> FloatArray:
    """Tables of g directed edges of equal shape, (states of the owner, states of the neighbor, g)."""
    graph, counts = model.adjacency, model.num_states
    edge, neighbor = graph.edge_ids[places], graph.neighbors[places]
    owner = model.edges[edge].sum(axis=1) - neighbor
    rows, cols = int(counts[owner[0]]), int(counts[neighbor[0]])
    r, c = np.arange(rows)[:, None, None], np.arange(cols)[None, :, None]
    local = np.where(owner < neighbor, r * cols + c, c * rows + r)
    return model.log_pairwise[model.pairwise_offsets[edge] + local]


def _enumerate_batch(model: MarkovRandomField, places: IntArray, others: IntArray) -> FloatArray:
    graph = model.adjacency
    owner = model.edges[graph.edge_ids[places]].sum(axis=1) - graph.neighbors[places]
    states = int(model.num_states[owner[0]])
    field = model.log_unary[model.unary_offsets[owner] + np.arange(states)[:, None]][:, None]
    for k in range(others.shape[1]):
        effect = _columns(model, others[:, k])
        field = (field[:, :, None] + effect[:, None]).reshape(states, -1, len(places))
    return _largest_gap(field[:, :, None] + _columns(model, places)[:, None])


def _enumerate_merged(model: MarkovRandomField, owner: int, place: int, budget: _Budget) -> float:
    graph = model.adjacency
    own = _columns(model, np.array([place]))
    field = model.unary(owner)[:, None]
    scale = float(np.abs(field[np.isfinite(field)]).max(initial=0.0))
    slots = [p for p in range(int(graph.indptr[owner]), int(graph.indptr[owner + 1])) if p != place]
    # Equal tables one after another: their sums merge before they are many.
    effects = sorted((_columns(model, np.array([p]))[:, :, 0] for p in slots), key=lambda t: (t.shape[1], t.tolist()))
    for effect in effects:
        # The owner's other directed edges will need about as many.
        budget.check(float(field.shape[1]) * effect.shape[1] * (len(slots) + 1))
        scale += float(np.abs(effect[np.isfinite(effect)]).max(initial=0.0))
        field = _merge((field[:, :, None] + effect[:, None]).reshape(len(field), -1), scale)
    states, number = own.shape[1], float(field.shape[1])
    budget.spend(number * states, number * states * states * len(field))
    chunk = max(1, _CHUNK_ENTRIES // (len(field) * states))
    pieces = (field[:, None, None, start : start + chunk] for start in range(0, field.shape[1], chunk))
    return max(float(_largest_gap(piece + own[:, None]).max()) for piece in pieces)


def _enumerate_jointly(model: MarkovRandomField, i: int, j: int) -> float:
    """R_ij of a variable in some factors, whose effects depend on several neighbors at once."""
    graph, around, counts = model.adjacency, model.structure.incident, model.num_states.tolist()
    factors = [model.factor(k) for k in around.factors[around.indptr[i] : around.indptr[i + 1]].tolist()]
    others = [v for v in graph.neighbors[graph.indptr[i] : graph.indptr[i + 1]].tolist() if v != j]
    shape = [counts[v] for v in others]
    first, last = np.arange(counts[i])[:, None, None], np.arange(counts[j])
    best, number, chunk = 0.0, math.prod(shape), max(1, _CHUNK_ENTRIES // (counts[i] * counts[j]))
    for start in range(0, number, chunk):
        digits = np.unravel_index(np.arange(start, min(number, start + chunk)), shape) if shape else ()
        states = {v: d[:, None] for v, d in zip(others, digits, strict=True)} | {i: first, j: last}
        logits = model.unary(i)[first] + np.zeros((1, min(chunk, number - start), 1))
        for v in (j, *others):
            logits = logits + model.table(i, v)[first, states[v]]
        for scope, table in factors:
            logits = logits + table[tuple(states[v] for v in scope.tolist())]
        best = max(best, float(_largest_gap(logits[..., None])[0]))
    return best


def _merge(field: FloatArray, scale: float) -> FloatArray:
    """Columns of logits without those that repeat another up to a constant and to rounding."""
    top = field.max(axis=0)
    top[top == -np.inf] = 0.0  # every state forbidden: all such columns are one
    field = field - top
    width = scale * MERGE_WIDTH
    keys = (np.rint(field / width) if width > 0.0 else field) + 0.0
    # Sorting by one number a column is many times faster than by all its entries; neighbors are compared in full.
    mix = np.random.default_rng(0).random(len(keys)) + 0.5
    with np.errstate(invalid="ignore"):
        order = np.argsort(np.where(keys == -np.inf, -1.0, mix[:, None] * keys).sum(axis=0), kind="stable")
    keys = keys[:, order]
    fresh = np.ones(len(order), dtype=bool)
    fresh[1:] = (keys[:, 1:] != keys[:, :-1]).any(axis=0)
    return field[:, order[fresh]]


def _largest_gap(logits: FloatArray) -> FloatArray:
    """Largest total variation distance (g,) between two of C distributions with logits (L, K, C, g), over all K."""
    top = logits.max(axis=0)
    undefined = top == -np.inf
    hard = bool(undefined.any())
    if hard:
        top[undefined] = 0.0
    logits -= top
    p = np.exp(logits, out=logits)
    total = p.sum(axis=0)
    if hard:
        total[undefined] = 1.0
    p /= total
    best = np.zeros(p.shape[-1])
    for a in range(p.shape[2] - 1):
        distance = np.abs(p[:, :, a : a + 1] - p[:, :, a + 1 :]).sum(axis=0)
        if hard:
            left, right = undefined[:, a : a + 1], undefined[:, a + 1 :]
            distance[left & right] = 0.0
            distance[left != right] = 2.0
        np.maximum(best, distance.max(axis=(0, 1)), out=best)
    return np.minimum(0.5 * best, 1.0)
