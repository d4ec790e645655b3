"""Each term once: repeated and reversed edges, and factors over the same variables, are added up.

Edges come out with ``i < j`` in lexicographic order, scopes of larger factors ascending and in lexicographic order, as
:class:`fastmix.MarkovRandomField` stores them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastmix._arrays import FloatArray, IntArray
from fastmix._checks import as_float_array, as_list, check_log_values, describe
from fastmix.errors import ModelError
from fastmix.model.flat import offsets_of, table_positions
from fastmix.model.inputs import check_model_memory

__all__ = ["join_factors", "merge_factors", "merge_pairs"]


def merge_pairs(num_states: IntArray, pairs: IntArray, values: FloatArray) -> tuple[IntArray, FloatArray]:
    """Edges with i < j in lexicographic order and their flat tables: repeated and reversed pairs are added up.

    Cost: linear in the entries when the pairs are in order already, one sort of the pairs otherwise.
    """
    first = pairs.min(axis=1, initial=np.iinfo(np.int64).max)
    second = pairs.max(axis=1, initial=-1)
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
    return edges, _sums_at(target, values, int(starts[-1]))


def _sums_at(positions: IntArray, values: FloatArray, length: int) -> FloatArray:
    """An array (length,) in which every value is added up at its position."""
    sums: FloatArray = np.bincount(positions, values, length).astype(np.float64, copy=False)
    return sums


def merge_factors(num_states: IntArray, factors: Iterable[tuple[Sequence[int], ArrayLike]]) -> dict[str, Any]:
    """The arrays that the constructor of a model takes, from a list of ``(scope, log_table)`` factors."""
    scopes: list[list[int]] = []
    tables: list[FloatArray] = []
    num_entries = 0  # of the factors over three or more variables
    for k, factor in enumerate(as_list("factors", factors, "a list of (scope, log_table) pairs")):
        scope, table = _as_factor(f"factors[{k}]", factor, num_states)
        if len(scope) > 2:
            num_entries += table.size
            check_model_memory(len(num_states), 0, k, num_entries)
        scopes.append(scope)
        tables.append(table.reshape(-1))
    widths = np.array([len(scope) for scope in scopes], dtype=np.int64)
    sizes = np.array([table.size for table in tables], dtype=np.int64)
    members = np.array([v for scope in scopes for v in scope], dtype=np.int64)
    return join_factors(num_states, widths, members, sizes, np.concatenate([np.zeros(0), *tables]))


def _as_factor(name: str, factor: Any, num_states: IntArray) -> tuple[list[int], FloatArray]:
    """The variables and the table of one factor, checked; ``name`` is its name in errors."""
    try:
        scope, given = factor
        variables = [operator.index(v) for v in scope]
    except Exception:  # of whatever objects there are
        raise ModelError(f"{name} must be a pair (variable numbers, log_table), got {describe(factor)}") from None
    table = as_float_array(name, given)
    n = len(num_states)
    unknown = [v for v in variables if not 0 <= v < n]
    if unknown:
        raise ModelError(f"{name} must name variables from 0 to {n - 1}, got {unknown[0]}")
    shape = tuple(int(num_states[v]) for v in variables)
    if table.size != math.prod(shape) or (table.ndim > 1 and table.shape != shape):
        raise ModelError(f"{name} over variables {variables} must have shape {shape}, got {table.shape}")
    check_log_values(name, table)
    if len(set(variables)) < len(variables):
        raise ModelError(f"{name} must join different variables, got {variables}")
    return variables, table


def join_factors(
    num_states: IntArray, widths: IntArray, members: IntArray, sizes: IntArray, values: FloatArray
) -> dict[str, Any]:
    """The arrays that the constructor of a model takes, from factors one after another: equal scopes are added up.

    1. Factors over one variable are added to the unaries, those over none to the constant.
    2. Factors over three or more variables are added up by their scopes.
    3. Factors over two variables are the tables of edges; the pairs of every larger scope are edges, too, with tables
       of zeros where nothing else is given.

    Parameters
    ----------
    num_states : int array (n,)
    widths : int array (f,)
        Number of variables of every factor.
    members : int array (sum of widths,)
        The variables of all factors, in the order of the axes of their tables.
    sizes : int array (f,)
        Number of entries of every factor.
    values : float array (sum of sizes,)
        The tables of all factors.
    """
    unary_offsets = offsets_of(num_states)
    num_entries = int(unary_offsets[-1])
    check_model_memory(len(num_states), num_entries, 0, 0)
    scope_starts = offsets_of(widths)
    width_of_value = np.repeat(np.minimum(widths, 3).astype(np.int8), sizes)
    # 1. The entries of a factor over one variable go to that variable's place.
    owners = members[scope_starts[:-1][widths == 1]]
    counts = num_states[owners]
    places = np.repeat(unary_offsets[owners] - offsets_of(counts)[:-1], counts) + np.arange(counts.sum())
    log_unary = _sums_at(places, values[width_of_value == 1], num_entries)
    # 2.
    tables = _add_up_large(num_states, widths, members, sizes, values)
    scopes = sorted(tables)
    # 3.
    pairs = members[scope_starts[:-1][widths == 2][:, None] + np.arange(2)]
    pairs_of_scopes = sorted({pair for scope in scopes for pair in combinations(scope, 2)})
    added_pairs = np.array(pairs_of_scopes, np.int64).reshape(-1, 2)
    zeros = np.zeros(int(num_states[added_pairs].prod(axis=1).sum()))
    edges, log_pairwise = merge_pairs(
        num_states, np.concatenate([pairs, added_pairs]), np.concatenate([values[width_of_value == 2], zeros])
    )
    return {
        "log_constant": math.fsum(values[width_of_value == 0].tolist()),
        "log_unary": log_unary,
        "edges": edges,
        "log_pairwise": log_pairwise,
        "scope_starts": offsets_of(np.array([len(scope) for scope in scopes], dtype=np.int64)),
        "scope_variables": np.array([v for scope in scopes for v in scope], dtype=np.int64),
        "log_factors": np.concatenate([np.zeros(0), *(tables[scope].reshape(-1) for scope in scopes)]),
    }


def _add_up_large(
    num_states: IntArray, widths: IntArray, members: IntArray, sizes: IntArray, values: FloatArray
) -> dict[tuple[int, ...], FloatArray]:
    """The tables of factors over three or more variables by ascending scope, those of equal scopes added up."""
    scope_starts = offsets_of(widths)
    value_starts = offsets_of(sizes)
    tables: dict[tuple[int, ...], FloatArray] = {}
    for k in np.flatnonzero(widths > 2).tolist():
        given = members[scope_starts[k] : scope_starts[k + 1]].tolist()
        shape = [int(num_states[v]) for v in given]
        order = sorted(range(len(given)), key=given.__getitem__)
        table = values[value_starts[k] : value_starts[k + 1]].reshape(shape).transpose(order)
        scope = tuple(given[axis] for axis in order)
        tables[scope] = tables[scope] + table if scope in tables else table
    return tables
