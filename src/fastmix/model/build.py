"""Flat parameter arrays out of the tables, factors and graphs that users have.

The functions here turn ragged input into the arrays that :class:`fastmix.MarkovRandomField` stores: unary entries and
edge tables one after another, edges with ``i < j`` in lexicographic order, repeated and reversed edges merged.
Everything is vectorised over edges, because models with millions of them are ordinary.
"""

from __future__ import annotations

import logging
import math
import operator
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastmix._arrays import FloatArray, IntArray
from fastmix._checks import as_edges, as_float_array, as_list, check_count, check_log_values, check_positive, describe
from fastmix._memory import check_memory
from fastmix.errors import ModelError
from fastmix.graphs.families import lattice_edges

__all__ = [
    "check_model_memory", "edges_of_matrix", "flatten_tables", "flatten_unary", "image_edges", "join_factors",
    "merge_factors", "merge_pairs", "note_on_numbering", "offsets_of", "reduce_tables", "sized_graph",
    "table_positions",
]  # fmt: skip

_LOG = logging.getLogger(__name__)

_MOST_ENTRIES = 2.0**62  # positions are 64-bit numbers
_FEW_RUNS = 16  # of tables of one size
_FEW_COLUMNS = 32  # entries of a table, up to which columns are faster than rows


def check_model_memory(num_variables: int, num_states: int, num_edges: int, num_table_entries: int) -> None:
    """A :class:`fastmix.ResourceError` if a model of this size (states and table entries in all) cannot be built.

    Counts 8 bytes per entry and 24 bytes per variable or edge, three times: as given, in order, and as stored.
    """
    required = 3.0 * 8.0 * (3 * num_variables + num_states + 3 * num_edges + num_table_entries)
    check_memory(
        required,
        f"a model of {num_variables} variables with {num_states} states in all and {num_table_entries} table entries",
        "build a smaller one",
    )


def offsets_of(sizes: IntArray) -> IntArray:
    """Start of each block when blocks of the given sizes lie one after another, with the total at the end."""
    if (total := sizes.sum(dtype=np.float64)) > _MOST_ENTRIES:
        raise ModelError(f"the states and the table entries of a model must be fewer than 2^62 each, got {total:.3g}")
    offsets = np.zeros(len(sizes) + 1, dtype=np.int64)
    sizes.cumsum(out=offsets[1:])
    return offsets


def reduce_tables(operation: np.ufunc, values: FloatArray, offsets: IntArray) -> Any:
    """What an operation such as ``np.maximum`` makes of every table, one number (or flag) for each.

    The tables lie one after another, begin at ``offsets`` and have an entry at least. The same as ``reduceat``, but by
    columns where many tables of one small size follow each other: several times as fast.
    """
    sizes = np.diff(offsets)
    ends = np.append(np.flatnonzero(sizes[1:] != sizes[:-1]) + 1, len(sizes))
    if not len(sizes):
        return np.zeros(0)
    if len(ends) > _FEW_RUNS:
        return operation.reduceat(values, offsets[:-1])
    parts, begin = [], 0
    for end in ends.tolist():
        block = values[offsets[begin] : offsets[end]].reshape(end - begin, -1)
        if block.shape[1] > _FEW_COLUMNS or block.shape[1] == 1:
            parts.append(operation.reduce(block, axis=1))
        else:
            part = operation(block[:, 0], block[:, 1])
            for column in block.T[2:]:
                part = operation(part, column)
            parts.append(part)
        begin = end
    return np.concatenate(parts)


def flatten_unary(log_unary: ArrayLike | Sequence[ArrayLike]) -> tuple[IntArray, FloatArray]:
    """State counts and flat unary entries of a 2-D array (n, L) or of a sequence of n vectors."""
    if isinstance(log_unary, np.ndarray) and log_unary.dtype != object:
        array = as_float_array("log_unary", log_unary)
        if array.shape == (0,):
            array = array.reshape(0, 1)
        if array.ndim != 2:
            raise ModelError(f"log_unary must be 2-D (variables, states) or a list of vectors, got shape {array.shape}")
        if len(array) and not array.size:
            raise ModelError(f"log_unary must have at least one state per variable, got shape {array.shape}")
        return np.full(array.shape[0], array.shape[1], dtype=np.int64), array.reshape(-1)
    vectors = _float_arrays("log_unary", log_unary, "a 2-D array or a list of vectors")
    for i, vector in enumerate(vectors):
        if vector.ndim != 1 or vector.size == 0:
            raise ModelError(f"log_unary[{i}] must be a vector with one entry per state, got shape {vector.shape}")
    counts = np.array([v.size for v in vectors], dtype=np.int64)
    return counts, np.concatenate([np.zeros(0), *vectors])


def flatten_tables(edges: IntArray, num_states: IntArray, log_pairwise: ArrayLike | Sequence[ArrayLike]) -> FloatArray:
    """Flat edge tables, each of shape (L_i, L_j) for its edge (i, j) in the direction given."""
    rows, cols = num_states[edges[:, 0]], num_states[edges[:, 1]]
    if isinstance(log_pairwise, np.ndarray) and log_pairwise.dtype != object:
        array = as_float_array("log_pairwise", log_pairwise)
        if array.size == 0 and len(edges) == 0:
            return np.zeros(0)
        if array.ndim != 3 or len(array) != len(edges):
            raise ModelError(
                f"log_pairwise must have shape ({len(edges)}, L_i, L_j), one table per edge, got shape {array.shape}"
            )
        wrong = np.flatnonzero((rows != array.shape[1]) | (cols != array.shape[2]))
        if wrong.size:
            _raise_table_shape(int(wrong[0]), edges, num_states, array.shape[1:])
        return array.reshape(-1)
    tables = _float_arrays("log_pairwise", log_pairwise, "a 3-D array or a list of tables")
    if len(tables) != len(edges):
        raise ModelError(f"log_pairwise must have one table per edge, {len(edges)}, got {len(tables)}")
    for e, table in enumerate(tables):
        if table.shape != (rows[e], cols[e]):
            _raise_table_shape(e, edges, num_states, table.shape)
    return np.concatenate([np.zeros(0), *(t.reshape(-1) for t in tables)])


def sized_graph(
    edges: ArrayLike, field: ArrayLike, num_variables: int | None, num_states: int
) -> tuple[IntArray, FloatArray, int]:
    """Edges, fields, and the number of variables that these or the argument say, checked to fit the memory."""
    pairs, fields = as_edges(edges), as_float_array("field", field)
    needed = int(pairs.max(initial=-1)) + 1
    if num_variables is None:
        n = len(fields) if fields.ndim else needed
    else:
        n = check_count("num_variables", num_variables, least=0, error=ModelError)
    if n < needed:
        raise ModelError(f"edges must hold indices below the number of variables, {n}, got {needed - 1}")
    check_model_memory(n, n * num_states, len(pairs), len(pairs) * num_states**2)
    if num_variables is None and not fields.ndim and (note := note_on_numbering(n, pairs)):
        _LOG.warning("%s", note)
    return pairs, fields, n


def note_on_numbering(num_variables: int, edges: IntArray) -> str | None:
    """What to tell somebody whose edges seem to be numbered from 1: all variables are in one but the first.

    Examples
    --------
    >>> note_on_numbering(3, np.array([[1, 2]]))
    'variable 0 has no edge, and all others have one: variables are numbered from 0; subtract 1 from 1-based edges'
    >>> note_on_numbering(3, np.array([[0, 2]]))
    """
    joined = np.zeros(num_variables, dtype=bool)
    joined[edges.reshape(-1)] = True
    if num_variables < 3 or joined[0] or not joined[1:].all():
        return None
    return (
        "variable 0 has no edge, and all others have one: variables are numbered from 0; subtract 1 from 1-based edges"
    )


def edges_of_matrix(J: Any) -> tuple[IntArray, FloatArray, int]:
    """Edges (m, 2), couplings (m,) and the number of variables of a symmetric matrix, dense or of scipy.sparse."""
    if hasattr(J, "tocoo"):
        entries = J.tocsr().tocoo()  # repeated entries add up
        shape, (row, col) = tuple(J.shape), (np.asarray(entries.row, np.int64), np.asarray(entries.col, np.int64))
        values = as_float_array("J", entries.data)
    else:
        matrix = as_float_array("J", J)
        shape = matrix.shape
        row, col = np.nonzero(matrix) if matrix.ndim == 2 else (np.zeros(0, int), np.zeros(0, int))
        values = matrix[row, col] if matrix.ndim == 2 else matrix.reshape(-1)
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ModelError(f"J must be a square matrix, got shape {shape}")
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise ModelError(f"J must be finite, got {values[bad[0]]} at {(int(row[bad[0]]), int(col[bad[0]]))}")
    kept = values != 0.0
    row, col, values = row[kept], col[kept], values[kept]
    if (row == col).any():
        raise ModelError(f"J must be 0 on its diagonal (fields are h), got an entry for {int(row[row == col][0])}")
    keys, others = np.int64(shape[0]) * row + col, np.int64(shape[0]) * col + row
    here, there = np.argsort(keys), np.argsort(others)
    same = keys[here] == others[there]
    same &= np.abs(values[here] - values[there]) <= 1e-12 * np.abs(values[here])
    if not same.all():
        i, j = divmod(int(keys[here][np.flatnonzero(~same)[0]]), shape[0])
        raise ModelError(f"J must be symmetric, and ({i}, {j}) and ({j}, {i}) differ: give (J + J.T) / 2")
    upper = here[row[here] < col[here]]
    return np.stack([row[upper], col[upper]], axis=1).reshape(-1, 2), values[upper], shape[0]


def image_edges(
    shape: tuple[int, int], connectivity: int, contrast: ArrayLike | None, scale: float | None
) -> tuple[IntArray, FloatArray]:
    """Pairs of neighbors of a picture in order, and what the table of each is multiplied by."""
    if check_count("connectivity", connectivity, least=4, most=8, error=ModelError) not in (4, 8):
        raise ModelError(f"connectivity must be 4 or 8, got {connectivity!r}")
    rows, cols = shape
    check_model_memory(rows * cols, 0, rows * cols * connectivity // 2, 0)
    steps = [(0, 1), (1, 0)] if connectivity == 4 else [(0, 1), (1, -1), (1, 0), (1, 1)]
    edges = lattice_edges({"rows": rows, "columns": cols}, steps)
    weights = 1.0 / np.hypot(*np.diff(np.divmod(edges, cols), axis=2)[:, :, 0])
    if contrast is None:
        if scale is not None:
            raise ModelError("contrast_scale must come with contrast, the picture itself")
        return edges, weights
    values = as_float_array("contrast", contrast)
    if values.ndim not in (2, 3) or values.shape[:2] != shape:
        raise ModelError(f"contrast must have shape {shape} or {(*shape, 'channels')}, got shape {values.shape}")
    if not np.isfinite(values).all():
        raise ModelError("contrast must hold finite numbers")
    flat = values.reshape(rows * cols, -1)
    distance = ((flat[edges[:, 0]] - flat[edges[:, 1]]) ** 2).sum(axis=1)
    if scale is None:
        scale = float(distance.mean()) if len(distance) else 1.0
    else:
        scale = check_positive("contrast_scale", scale)
    return edges, weights * np.exp(-distance / (2.0 * scale)) if scale > 0.0 else weights


def table_positions(num_states: IntArray, pairs: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """For every entry of the tables of ``pairs`` in turn: the pair it belongs to, its row and its column."""
    cols = num_states[pairs[:, 1]]
    sizes = num_states[pairs[:, 0]] * cols
    owner = np.repeat(np.arange(len(pairs)), sizes)
    local = np.arange(len(owner)) - offsets_of(sizes)[owner]
    row = local // cols[owner]
    return owner, row, local - row * cols[owner]


def merge_pairs(num_states: IntArray, pairs: IntArray, values: FloatArray) -> tuple[IntArray, FloatArray]:
    """Edges with i < j in lexicographic order and their flat tables: repeated and reversed pairs added up.

    Cost: linear in the entries when the pairs are in order already, one sort of the pairs otherwise.
    """
    first, second = pairs.min(axis=1, initial=np.iinfo(np.int64).max), pairs.max(axis=1, initial=-1)
    key = first * np.int64(len(num_states)) + second
    flipped = pairs[:, 0] > pairs[:, 1]
    if not flipped.any() and (np.diff(key) > 0).all():
        return pairs, values
    unique, inverse = np.unique(key, return_inverse=True)
    edges = np.stack([unique // len(num_states), unique % len(num_states)], axis=1)
    starts = offsets_of(num_states[edges[:, 0]] * num_states[edges[:, 1]])
    owner, row, col = table_positions(num_states, pairs)
    num_cols = num_states[second][owner]
    target = starts[inverse[owner]] + np.where(flipped[owner], col * num_cols + row, row * num_cols + col)
    # bincount adds in float64; the cast, free of charge, tells the type checker so.
    return edges, np.bincount(target, weights=values, minlength=int(starts[-1])).astype(np.float64, copy=False)


def merge_factors(num_states: IntArray, factors: Iterable[tuple[Sequence[int], ArrayLike]]) -> dict[str, Any]:
    """The flat arrays of a list of ``(scope, log_table)`` factors, see :func:`join_factors`."""
    n, entries = len(num_states), 0
    scopes: list[list[int]] = []
    tables: list[FloatArray] = []
    for k, factor in enumerate(as_list("factors", factors, "a list of (scope, log_table) pairs")):
        try:
            scope, table = factor
            variables = [operator.index(v) for v in scope]
        except Exception:  # of whatever objects there are
            raise ModelError(
                f"factors[{k}] must be a pair (variable numbers, log_table), got {describe(factor)}"
            ) from None
        array = as_float_array(f"factors[{k}]", table)
        if bad := [v for v in variables if not 0 <= v < n]:
            raise ModelError(f"factors[{k}] must name variables from 0 to {n - 1}, got {bad[0]}")
        shape = tuple(int(num_states[v]) for v in variables)
        if array.size != math.prod(shape) or (array.ndim > 1 and array.shape != shape):
            raise ModelError(f"factors[{k}] over variables {variables} must have shape {shape}, got {array.shape}")
        check_log_values(f"factors[{k}]", array)
        if len(set(variables)) < len(variables):
            raise ModelError(f"factors[{k}] must join different variables, got {variables}")
        if len(variables) > 2:
            entries += array.size
            check_model_memory(n, 0, k, entries)
        scopes.append(variables)
        tables.append(array.reshape(-1))
    kinds, sizes = (np.array([*map(len, lists)], dtype=np.int64) for lists in (scopes, tables))
    members = np.array([v for scope in scopes for v in scope], dtype=np.int64)
    return join_factors(num_states, kinds, members, sizes, np.concatenate([np.zeros(0), *tables]))


def join_factors(
    num_states: IntArray, kinds: IntArray, variables: IntArray, sizes: IntArray, values: FloatArray
) -> dict[str, Any]:
    """What the constructor of a model takes, from factors one after another: equal scopes added up, in order.

    ``kinds`` are their numbers of variables, ``sizes`` those of the entries of their tables. The pairs of every scope
    over three or more variables are edges, with tables of zeros where nothing else is given.
    """
    offsets, scopes, starts = offsets_of(num_states), offsets_of(kinds), offsets_of(sizes)
    check_model_memory(len(num_states), int(offsets[-1]), 0, 0)
    kind_of_value = np.repeat(np.minimum(kinds, 3).astype(np.int8), sizes)
    owners = variables[scopes[:-1][kinds == 1]]
    counts = num_states[owners]
    places = np.repeat(offsets[owners] - offsets_of(counts)[:-1], counts) + np.arange(counts.sum())
    tables: dict[tuple[int, ...], FloatArray] = {}
    for k in np.flatnonzero(kinds > 2).tolist():
        given = variables[scopes[k] : scopes[k + 1]].tolist()
        order = sorted(range(len(given)), key=given.__getitem__)
        table = values[starts[k] : starts[k + 1]].reshape([int(num_states[v]) for v in given]).transpose(order)
        scope = tuple(given[v] for v in order)
        tables[scope] = tables[scope] + table if scope in tables else table
    inside = sorted({pair for scope in tables for pair in combinations(scope, 2)})
    pairs = [variables[scopes[:-1][kinds == 2][:, None] + np.arange(2)], np.array(inside, np.int64).reshape(-1, 2)]
    zeros = np.zeros(int(num_states[pairs[1]].prod(axis=1).sum()))
    edges, log_pairwise = merge_pairs(
        num_states, np.concatenate(pairs), np.concatenate([values[kind_of_value == 2], zeros])
    )
    ordered = sorted(tables)
    return {
        "log_constant": math.fsum(values[kind_of_value == 0].tolist()),
        "log_unary": np.bincount(places, values[kind_of_value == 1], int(offsets[-1])).astype(np.float64, copy=False),
        "edges": edges,
        "log_pairwise": log_pairwise,
        "scope_starts": offsets_of(np.array([len(scope) for scope in ordered], dtype=np.int64)),
        "scope_variables": np.array([v for scope in ordered for v in scope], dtype=np.int64),
        "log_factors": np.concatenate([np.zeros(0), *(tables[scope].reshape(-1) for scope in ordered)]),
    }


def _float_arrays(name: str, values: Any, rule: str) -> list[FloatArray]:
    return [as_float_array(f"{name}[{k}]", array) for k, array in enumerate(as_list(name, values, rule))]


def _raise_table_shape(e: int, edges: IntArray, num_states: IntArray, got: tuple[int, ...]) -> None:
    i, j = edges[e].tolist()
    raise ModelError(
        f"log_pairwise[{e}] for edge ({i}, {j}) must have shape ({num_states[i]}, {num_states[j]}), "
        f"rows for variable {i} and columns for variable {j}, got {tuple(got)}"
    )
