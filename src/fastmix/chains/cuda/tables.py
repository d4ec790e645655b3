"""What the CUDA kernels read: the tables of a model in the order of a sweep, as flat arrays on the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix.chains.pattern_tables import log_odds, pattern_tables
from fastmix.model import MarkovRandomField
from fastmix.model.build import offsets_of

__all__ = [
    "Order",
    "field_tables",
    "find_order",
    "logit_tables",
    "make_tables",
    "most_patterns",
    "packed_field_tables",
    "packed_tables",
    "pattern_arrays",
]

IntArray = NDArray[np.int64]
Arrays = dict[str, NDArray[Any]]

_CHUNK_SITES = 1 << 16  # sites whose masks are made at once: 32 MiB a temporary
_MOST_CODES = 1 << 16  # different surroundings of a site for which a 16-bit code pays


@dataclass(frozen=True, eq=False)
class Order:
    """Places of the variables in a sweep: variable ``sites[p]`` is at place p, colours begin at ``starts``.

    ``indptr`` and ``neighbors`` are the adjacency by place, and ``entries`` the places of these neighbours in the
    adjacency of the model.
    """

    sites: IntArray
    places: IntArray
    starts: IntArray
    indptr: IntArray
    neighbors: NDArray[np.int32]
    entries: IntArray


def find_order(model: MarkovRandomField) -> Order:
    """The order of a systematic sweep, which is that of the other samplers."""
    adjacency = model.adjacency
    order, starts = model.structure.visit_order
    sites = order.astype(np.int64)
    places = np.empty_like(sites)
    places[sites] = np.arange(len(sites))
    degree = adjacency.degree[sites]
    indptr = offsets_of(degree)
    entries = np.repeat(adjacency.indptr[sites] - indptr[:-1], degree) + np.arange(indptr[-1])
    return Order(sites, places, starts, indptr, places[adjacency.neighbors[entries]].astype(np.int32), entries)


def make_tables(
    kernel: str, models: Sequence[MarkovRandomField], order: Order, *, stride: int, lanes: int
) -> tuple[Arrays, int]:
    """The arrays of a kernel, in the order of its parameters, and the degree they are padded to where they are.

    Parameters
    ----------
    kernel : str
        See :func:`fastmix.chains.cuda.device.choose_cuda_kernel`.
    models : sequence of MarkovRandomField
        Several for ``packed`` and ``table`` only.
    order : Order
    stride : int
        Elements of a row of states.
    lanes : int
        Threads of a block along the chains.
    """
    if kernel == "packed":
        return packed_tables(models, order, stride=stride, lanes=lanes), 0
    if kernel == "packed-field":
        return packed_field_tables(models[0], order, stride=stride), 0
    if kernel == "table":
        return pattern_arrays(models, order, stride=stride), 0
    if kernel == "logit":
        return logit_tables(models[0], order, stride=stride), 0
    return field_tables(models[0], order)


def packed_tables(models: Sequence[MarkovRandomField], order: Order, *, stride: int, lanes: int) -> Arrays:
    """Arrays for :func:`fastmix.chains.cuda.kernels.packed_kernel`, of models on the same graph.

    With the threshold t of pattern ``8 x_a + 4 x_b + 2 x_c + x_d`` of the neighbours, ``masks`` holds for every bit of
    t from 24 to 31 and every pattern j of the first three neighbours the numbers (m, s) with which ``m x_d + s`` is
    that bit, as a word of 32 chains: s is minus the bit for x_d = 0 and m the difference of the two. ``terms`` holds
    the coefficients of t, rounded to 24 bits, as a polynomial of the four states, modulo 2^32.
    """
    n = len(order.sites)
    around = np.full((n, 4), n, dtype=np.int32)
    table = np.zeros((len(models), n, 16), dtype=np.uint32)
    degree = np.diff(order.indptr)
    tables = [pattern_tables(model) for model in models]
    for d in range(5):
        here = np.flatnonzero(degree == d)
        if not here.size:
            continue
        around[here, 4 - d :] = order.neighbors[order.indptr[here][:, None] + np.arange(d)]
        for k, values in enumerate(tables):
            table[k, here, : 2**d] = values.table[values.starts[order.sites[here]][:, None] + np.arange(2**d)]
    masks = np.empty((len(models), n, 8, 8, 2), dtype=np.int8)
    shifts = np.arange(24, 32, dtype=np.uint32)[:, None]
    for k, first in np.ndindex(len(models), -(-n // _CHUNK_SITES)):
        part = slice(first * _CHUNK_SITES, (first + 1) * _CHUNK_SITES)
        pairs = ((table[k, part, None, :] >> shifts) & np.uint32(1)).astype(np.int8).reshape(-1, 8, 8, 2)
        masks[k, part, ..., 0] = pairs[..., 1] - pairs[..., 0]
        masks[k, part, ..., 1] = -pairs[..., 0]
    terms = ((table >> np.uint32(8)) + ((table >> np.uint32(7)) & np.uint32(1))).reshape(-1, 2, 2, 2, 2)
    for axis in range(1, 5):
        low, high = np.moveaxis(terms, axis, 0)
        high -= low
    if lanes < 32:
        masks = np.ascontiguousarray(masks.reshape(len(models), n, 128).transpose(2, 0, 1))
    return {"around": _rows(around, stride), "masks": masks, "table": table, "terms": terms}


def _rows(places: NDArray[Any], stride: int) -> NDArray[np.uint32]:
    """Where the rows of places begin; there are fewer than 2^32 states."""
    return (places.astype(np.int64) * stride).astype(np.uint32)


def _log_odds(model: MarkovRandomField, order: Order) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Offsets by place, and weights along ``order.neighbors``: log-odds of state 1 are linear in binary states."""
    unary, odds = log_odds(model)
    offsets, odds = unary[order.sites], odds[order.entries]
    places = np.repeat(np.arange(len(order.sites)), np.diff(order.indptr))
    return offsets + np.bincount(places, odds[:, 0], minlength=len(offsets)), odds[:, 1] - odds[:, 0]


def packed_field_tables(model: MarkovRandomField, order: Order, *, stride: int) -> Arrays:
    """Arrays for :func:`fastmix.chains.cuda.field_kernels.packed_field_kernel`."""
    n, degree = len(order.sites), np.diff(order.indptr)
    offsets, weights = _log_odds(model, order)
    groups = np.maximum(1, -(-degree // 4))
    chunks = offsets_of(groups)
    around = np.full(4 * int(chunks[-1]), n, dtype=np.int32)
    four = np.zeros(len(around))
    # Neighbour k of a site is slot k of its groups; the last group is padded in front.
    slots = np.arange(len(weights)) - np.repeat(order.indptr[:-1], degree)
    padding = np.repeat(4 * groups - degree, degree)
    full = np.repeat(4 * (groups - 1), degree)
    target = np.repeat(4 * chunks[:-1], degree) + slots + np.where(slots >= full, padding, 0)
    around[target], four[target] = order.neighbors, weights
    patterns = (np.arange(16)[:, None] >> np.array([3, 2, 1, 0])) & 1
    partial = four.reshape(-1, 4) @ patterns.T.astype(np.float64)
    partial[chunks[:-1]] += offsets[:, None]
    largest = np.abs(partial).max(axis=1, initial=0.0)
    size = np.add.reduceat(largest, chunks[:-1]) if n else np.zeros(0)
    return {
        "around": _rows(around, stride), "chunks": chunks, "partial": partial.astype(np.float32),
        "margins": (2.0**-20 + (groups + 2) * size * 2.0**-25).astype(np.float32),
        "indptr": order.indptr, "rows": _rows(order.neighbors, stride), "weights": weights, "offsets": offsets,
    }  # fmt: skip


def field_tables(model: MarkovRandomField, order: Order) -> tuple[Arrays, int]:
    """Arrays for :func:`fastmix.chains.cuda.field_kernels.site_field_kernel`, and the degree they are padded to.

    The degree is 0 where the surroundings are too different for codes, and the arrays are those of the adjacency.
    """
    offsets, weights = _log_odds(model, order)
    coded, arrays, degree = _codes(order), Arrays(), 0
    if coded is None:
        arrays |= {"codes": np.zeros(1, dtype=np.uint16), "steps": np.zeros(1, dtype=np.int32)}
        arrays |= {"indptr": order.indptr, "neighbors": order.neighbors}
    else:
        codes, steps, places = coded
        degree = steps.shape[1]
        padded = np.zeros(degree * len(order.sites))
        padded[places] = weights
        weights = padded
        arrays |= {"codes": codes, "steps": steps}
        arrays |= {"indptr": np.zeros(1, dtype=np.int64), "neighbors": np.zeros(1, dtype=np.int32)}
    for name, values in (("weight", weights), ("offset", offsets)):
        rounded = values.astype(np.float32)
        arrays |= {name + "s": rounded, name + "_rests": (values - rounded).astype(np.float32)}
    return arrays, degree


def _codes(order: Order) -> tuple[NDArray[np.uint16], NDArray[np.int32], IntArray] | None:
    """A code for the distances to the neighbours of every site, the distances of every code, and where weights go.

    Missing neighbours have distance 0, the site itself, and weight 0. None if the codes or the padding do not pay.
    """
    n, degrees = len(order.sites), np.diff(order.indptr)
    degree = max(1, int(degrees.max(initial=0)))
    if n == 0 or degree * n > 2 * len(order.neighbors) + 4 * n:
        return None
    owner = np.repeat(np.arange(n), degrees)
    slot = np.arange(len(owner)) - np.repeat(order.indptr[:-1], degrees)
    distances = order.neighbors - owner
    # Rows are told apart by a random linear function; equal keys are then checked to be equal rows.
    factors = np.random.default_rng(0).integers(1, 2**63, size=degree, dtype=np.uint64)
    key = np.zeros(n, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for k in range(degree):
            longer = degrees > k
            key[longer] += distances[order.indptr[:-1][longer] + k].astype(np.uint64) * factors[k]
    kinds, some, codes = np.unique(key, return_index=True, return_inverse=True)
    if len(kinds) > min(_MOST_CODES, max(1, n // 8)):
        return None
    steps = np.zeros((len(kinds), degree), dtype=np.int32)
    for k, site in enumerate(some.tolist()):
        steps[k, : degrees[site]] = distances[order.indptr[site] : order.indptr[site + 1]]
    if (steps[codes[owner], slot] != distances).any() or (degrees[some][codes] != degrees).any():
        return None
    return codes.astype(np.uint16), steps, slot * n + owner


def pattern_arrays(models: Sequence[MarkovRandomField], order: Order, *, stride: int) -> Arrays:
    """Arrays for :func:`fastmix.chains.cuda.state_kernels.table_kernel`, of models on the same graph."""
    tables = pattern_tables(models[0])
    cuts = (models[0].num_states - 1)[order.sites]
    values = np.concatenate([tables.table, *[pattern_tables(model).table for model in models[1:]]])
    return {
        "indptr": order.indptr, "rows": _rows(order.neighbors, stride), "strides": tables.strides[order.entries],
        "cuts": cuts.astype(np.int32), "entries": tables.starts[:-1][order.sites], "table": values,
        "sum_rows": offsets_of(cuts)[:-1],
    }  # fmt: skip


def most_patterns(model: MarkovRandomField) -> float:
    """The most patterns that the neighbours of a variable can have."""
    logs = np.log(model.num_states.astype(np.float64))[model.adjacency.neighbors]
    return float(np.rint(np.exp(np.bincount(model.structure.directed.owner, logs, minlength=1).max(initial=0.0))))


def logit_tables(model: MarkovRandomField, order: Order, *, stride: int) -> Arrays:
    """Arrays for :func:`fastmix.chains.cuda.state_kernels.logit_kernel`."""
    _, starts, own_steps, other_steps = model.structure.directed
    cuts = (model.num_states - 1)[order.sites]
    return {
        "indptr": order.indptr, "rows": _rows(order.neighbors, stride),
        "tables": starts[order.entries], "row_steps": own_steps[order.entries].astype(np.int32),
        "col_steps": other_steps[order.entries].astype(np.int32),
        "values": model.log_pairwise, "unary_starts": model.unary_offsets[:-1][order.sites],
        "unary": model.log_unary, "cuts": cuts.astype(np.int32), "sum_rows": offsets_of(cuts)[:-1],
    }  # fmt: skip
