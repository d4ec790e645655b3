"""Checked flat arrays out of what users have: vectors, tables, weights, graphs, matrices and pictures.

The functions here turn ragged input into the arrays that :class:`fastmix.MarkovRandomField` stores. Everything is
vectorized over edges, because models with millions of them are ordinary.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastmix._arrays import FloatArray, IntArray
from fastmix._checks import as_edges, as_float_array, as_list, check_count, check_positive
from fastmix._memory import check_memory
from fastmix.errors import ModelError
from fastmix.graphs.families import lattice_edges
from fastmix.model.sharing import pays_to_share
from fastmix.model.tuning import MOST_PLAUSIBLE_LABELS, SYMMETRY_TOLERANCE

__all__ = [
    "check_labels_last", "check_model_memory", "edges_of_matrix", "flatten_tables", "flatten_unary", "image_edges",
    "log_of_weights", "note_on_numbering", "sized_graph",
]  # fmt: skip

_LOG = logging.getLogger(__name__)

Triples = tuple[IntArray, IntArray, FloatArray]  # rows, columns and values of the entries of a matrix


def check_model_memory(num_variables: int, num_states: int, num_edges: int, num_table_entries: int) -> None:
    """Raise a :class:`fastmix.ResourceError` if a model of this size (states and table entries in all) cannot be built.

    Counts 8 bytes per entry and 24 bytes per variable or edge, three times: as given, in order, and as stored.
    """
    required = 3.0 * 8.0 * (3 * num_variables + num_states + 3 * num_edges + num_table_entries)
    check_memory(
        required,
        f"a model of {num_variables} variables with {num_states} states in all and {num_table_entries} table entries",
        "build a smaller one",
    )


def flatten_unary(values: ArrayLike | Sequence[ArrayLike], name: str = "log_unary") -> tuple[IntArray, FloatArray]:
    """State counts and flat unary entries, from a 2-D array (n, L) or a sequence of n vectors.

    ``name`` is the name of the argument in errors.
    """
    if isinstance(values, np.ndarray) and values.dtype != object:
        array = as_float_array(name, values)
        if array.shape == (0,):
            array = array.reshape(0, 1)
        if array.ndim != 2:
            raise ModelError(f"{name} must be 2-D (variables, states) or a list of vectors, got shape {array.shape}")
        if len(array) and not array.size:
            raise ModelError(f"{name} must have at least one state per variable, got shape {array.shape}")
        return np.full(array.shape[0], array.shape[1], dtype=np.int64), array.reshape(-1)
    vectors = _float_arrays(name, values, "a 2-D array or a list of vectors")
    for i, vector in enumerate(vectors):
        if vector.ndim != 1 or vector.size == 0:
            raise ModelError(f"{name}[{i}] must be a vector with one entry per state, got shape {vector.shape}")
    counts = np.array([vector.size for vector in vectors], dtype=np.int64)
    return counts, np.concatenate([np.zeros(0), *vectors])


def flatten_tables(
    edges: IntArray,
    num_states: IntArray,
    values: ArrayLike | Sequence[ArrayLike],
    name: str = "log_pairwise",
) -> FloatArray:
    """Flat edge tables, each of shape (L_i, L_j) for its edge (i, j) in the direction given.

    ``name`` is the name of the argument in errors.
    """
    rows = num_states[edges[:, 0]]
    cols = num_states[edges[:, 1]]
    if isinstance(values, np.ndarray) and values.dtype != object:
        array = as_float_array(name, values)
        if array.size == 0 and len(edges) == 0:
            return np.zeros(0)
        if array.ndim != 3 or len(array) != len(edges):
            raise ModelError(
                f"{name} must have shape ({len(edges)}, L_i, L_j), one table per edge, got shape {array.shape}"
            )
        wrong = np.flatnonzero((rows != array.shape[1]) | (cols != array.shape[2]))
        if wrong.size:
            _raise_table_shape(name, int(wrong[0]), edges, num_states, array.shape[1:])
        return array.reshape(-1)
    tables = _float_arrays(name, values, "a 3-D array or a list of tables")
    if len(tables) != len(edges):
        raise ModelError(f"{name} must have one table per edge, {len(edges)}, got {len(tables)}")
    for e, table in enumerate(tables):
        if table.shape != (rows[e], cols[e]):
            _raise_table_shape(name, e, edges, num_states, table.shape)
    return np.concatenate([np.zeros(0), *(table.reshape(-1) for table in tables)])


def log_of_weights(name: str, weights: FloatArray) -> FloatArray:
    """Logarithms of weights, which must be at least 0: a ModelError for a negative one."""
    if weights.size and not float(weights.min()) >= 0.0:
        raise ModelError(f"{name} must hold weights of at least 0, got {weights.min():g}")
    with np.errstate(divide="ignore"):
        return np.log(weights)


def sized_graph(
    edges: ArrayLike, field: ArrayLike, num_variables: int | None, num_states: int
) -> tuple[IntArray, FloatArray, int]:
    """Checked edges and fields, and the number of variables that follows from these or is given.

    Without ``num_variables`` a vector of fields tells the number of variables, and otherwise the largest index does.
    """
    pairs = as_edges(edges)
    fields = as_float_array("field", field)
    num_needed = int(pairs.max(initial=-1)) + 1
    if num_variables is not None:
        n = check_count("num_variables", num_variables, least=0, error=ModelError)
    elif fields.ndim:
        n = len(fields)
    else:
        n = num_needed
    if n < num_needed:
        raise ModelError(f"edges must hold indices below the number of variables, {n}, got {num_needed - 1}")
    num_entries = len(pairs) * num_states**2
    if pays_to_share(len(pairs), num_states**2):
        num_entries = 3 * len(pairs) + num_states**2  # weights and numbers of patterns, and the one pattern
    check_model_memory(n, n * num_states, len(pairs), num_entries)
    if num_variables is None and not fields.ndim:
        note = note_on_numbering(n, pairs)
        if note:
            _LOG.warning("%s", note)
    return pairs, fields, n


def note_on_numbering(num_variables: int, edges: IntArray) -> str | None:
    """A note for a user whose edges seem to be numbered from 1, because variable 0 alone has none; else None.

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


def edges_of_matrix(name: str, matrix: Any) -> tuple[IntArray, FloatArray, int]:
    """Edges (m, 2), couplings (m,) and the number of variables of a symmetric matrix, dense or of scipy.sparse.

    ``name`` is the name of the argument in errors.
    """
    (row, col, values), num_variables = _entries_of_matrix(name, matrix)
    kept = values != 0.0
    row = row[kept]
    col = col[kept]
    values = values[kept]
    if (row == col).any():
        diagonal = int(row[row == col][0])
        raise ModelError(f"{name} must be 0 on its diagonal (fields are apart), got an entry for {diagonal}")
    # Symmetric: sorted by (row, column), the entries are the same as sorted by (column, row).
    keys = np.int64(num_variables) * row + col
    mirrored_keys = np.int64(num_variables) * col + row
    order = np.argsort(keys)
    mirrored_order = np.argsort(mirrored_keys)
    same = keys[order] == mirrored_keys[mirrored_order]
    same &= np.abs(values[order] - values[mirrored_order]) <= SYMMETRY_TOLERANCE * np.abs(values[order])
    if not same.all():
        i, j = divmod(int(keys[order][np.flatnonzero(~same)[0]]), num_variables)
        raise ModelError(
            f"{name} must be symmetric, and ({i}, {j}) and ({j}, {i}) differ: give the mean of it and its transpose"
        )
    upper = order[row[order] < col[order]]
    return np.stack([row[upper], col[upper]], axis=1).reshape(-1, 2), values[upper], num_variables


def _entries_of_matrix(name: str, matrix: Any) -> tuple[Triples, int]:
    """The entries of a square matrix, all of them finite, and its number of rows."""
    if hasattr(matrix, "tocoo"):
        entries = matrix.tocsr().tocoo()  # repeated entries add up
        shape = tuple(matrix.shape)
        values = as_float_array(name, entries.data)
    else:
        entries = None
        dense = as_float_array(name, matrix)
        shape = dense.shape
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ModelError(f"{name} must be a square matrix, got shape {shape}")
    if entries is not None:
        row = np.asarray(entries.row, np.int64)
        col = np.asarray(entries.col, np.int64)
    else:
        row, col = np.nonzero(dense)
        values = dense[row, col]
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        k = int(bad[0])
        raise ModelError(f"{name} must be finite, got {values[k]} at {(int(row[k]), int(col[k]))}")
    return (row, col, values), shape[0]


def check_labels_last(name: str, scores: FloatArray, picture: FloatArray | None) -> None:
    """Raise a :class:`ModelError` unless scores have shape (H, W, K), as many rows and columns as the picture.

    Scores with the labels first, (K, H, W), are recognized: by the picture, or by one axis that is far the shortest.
    """
    if scores.ndim != 3 or 0 in scores.shape:
        raise ModelError(f"{name} must have shape (H, W, K), rows, columns and labels, got shape {scores.shape}")
    rows, cols, num_labels = scores.shape
    fits_turned = picture is not None and picture.shape[:2] == (cols, num_labels)
    fits = picture is not None and picture.shape[:2] == (rows, cols)
    looks_turned = num_labels > MOST_PLAUSIBLE_LABELS and 4 * rows <= min(cols, num_labels)
    if (fits_turned and not fits) or looks_turned:
        raise ModelError(
            f"{name} must have shape (H, W, K) with the labels last, got shape {scores.shape}, where they seem to "
            f"come first: numpy.moveaxis({name}, 0, -1) puts them last"
        )


def image_edges(
    shape: tuple[int, int], connectivity: int, contrast: ArrayLike | None, scale: float | None
) -> tuple[IntArray, FloatArray]:
    """Pairs of neighboring pixels in order (m, 2), and the weight by which the table of each is multiplied (m,)."""
    if check_count("connectivity", connectivity, least=4, most=8, error=ModelError) not in (4, 8):
        raise ModelError(f"connectivity must be 4 or 8, got {connectivity!r}")
    rows, cols = shape
    check_model_memory(rows * cols, 0, rows * cols * connectivity // 2, 0)
    steps = [(0, 1), (1, 0)] if connectivity == 4 else [(0, 1), (1, -1), (1, 0), (1, 1)]
    edges = lattice_edges({"rows": rows, "columns": cols}, steps)
    row_steps, col_steps = np.diff(np.divmod(edges, cols), axis=2)[:, :, 0]
    weights = 1.0 / np.hypot(row_steps, col_steps)
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
    if scale > 0.0:  # 0 in a picture of one color
        weights = weights * np.exp(-distance / (2.0 * scale))
    return edges, weights


def _float_arrays(name: str, values: Any, rule: str) -> list[FloatArray]:
    """One array per item of a sequence; ``rule`` says in the error what it must be."""
    return [as_float_array(f"{name}[{k}]", array) for k, array in enumerate(as_list(name, values, rule))]


def _raise_table_shape(name: str, e: int, edges: IntArray, num_states: IntArray, got: tuple[int, ...]) -> None:
    """Raise the :class:`ModelError` for a table that does not have the shape of its edge."""
    i, j = edges[e].tolist()
    raise ModelError(
        f"{name}[{e}] for edge ({i}, {j}) must have shape ({num_states[i]}, {num_states[j]}), "
        f"rows for variable {i} and columns for variable {j}, got {tuple(got)}"
    )
