"""Bounds on the dependency matrix R of a model: how far one variable can move the conditional of another.

``R_ij`` is the largest total variation distance between ``p(X_i | x)`` and ``p(X_i | y)`` over configurations x and y
that differ only at variable j (Dobrushin's interdependence matrix; Definition 3 of Liu and Domke, 2014). It is zero
unless i and j share an edge.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np

from fastmix._arrays import BoolArray, FloatArray, IntArray
from fastmix._checks import check_choice
from fastmix._clock import NO_LIMIT, Clock, OutOfTimeError
from fastmix._memory import check_memory
from fastmix.model import MarkovRandomField, check_model
from fastmix.model.shared import SharedTables
from fastmix.theory.conditionals import exact_dependencies
from fastmix.theory.factors import factor_sizes, of_pairs
from fastmix.theory.table_groups import table_groups
from fastmix.theory.tuning import CHUNK_ENTRIES, FEW_COLUMNS

__all__ = [
    "DEPENDENCIES", "Dependency", "dependency_matrix", "edge_dependencies", "factor_dependencies", "largest_entries",
    "rounding_margins", "to_matrix",
]  # fmt: skip

Dependency = Literal["exact", "field", "sigmoid", "range", "l1", "linf"]
DEPENDENCIES: tuple[str, ...] = get_args(Dependency)

_EPS = float(np.finfo(np.float64).eps)


def edge_dependencies(
    model: MarkovRandomField, *, dependency: Dependency = "sigmoid", clock: Clock = NO_LIMIT
) -> FloatArray:
    """Bounds (m, 2) on the two dependencies of every edge, R_ij in column 0 and R_ji in column 1 for edge (i, j).

    Let T be the table of the edge, its rows for x_i and its columns for x_j, and ``range(v) = max v - min v``. Then
    R_ij is bounded by

    ============  ========================================================================
    ``exact``     its definition (Definition 3 of the paper), by enumeration of the other neighbors of i
    ``field``     for binary x_i, ``(tanh(z + d) - tanh(z - d)) / 2`` with 2 d the range of the field that x_j puts on
                  x_i, at the total field z nearest to 0 that the others can leave; else ``sigmoid``
    ``sigmoid``   ``max_ab tanh(range(T[:, a] - T[:, b]) / 4)``, the largest over all fields
    ``range``     ``max_ab range(T[:, a] - T[:, b]) / 4``, Theorem 12
    ``l1``        ``max_ab norm(T[:, a] - T[:, b], 1) / 4``, Corollary 13
    ``linf``      ``max_ab norm(T[:, a] - T[:, b], inf) / 2``, Theorem 6
    ============  ========================================================================

    in the order ``exact <= field <= sigmoid <= range <= l1, linf``. Where factors over three or more variables contain
    both i and j, every range or norm is a sum over T and these factors, of each the largest over the states of its
    rest. ``range`` and ``sigmoid`` are the same both ways for tables without -inf, and do not change when functions of
    x_i or of x_j alone are added to T. States that a unary forbids are dropped first, with factors also those that some
    table leaves no configuration. Where a state of x_i is forbidden under one of two states of x_j and not under the
    other, or two states of x_j forbid every state of x_i, ``sigmoid`` is 1 and ``range``, ``l1`` and ``linf`` are
    infinite. For ``exact``, configurations of the other neighbors under which both conditionals are undefined do not
    count, and one defined beside one undefined counts as 1.

    Parameters
    ----------
    model : MarkovRandomField
    dependency : {"exact", "field", "sigmoid", "range", "l1", "linf"}
    clock : Clock
        Once its limit is over, tables and factors that are left get larger bounds, from the ranges of their rows and
        columns, in ``O(L L')``; ``exact`` is ``sigmoid`` then.

    Returns
    -------
    ndarray of float64, shape (m, 2)
        Accurate to rounding, on neither side; :func:`rounding_margins` bounds the error.

    Raises
    ------
    ResourceError
        If ``dependency="exact"`` would enumerate more than about 5e6 conditional distributions.

    Notes
    -----
    ``O(L^2 L')`` time for an edge of L and L' states; ``exact`` enumerates the product of the state counts of the other
    neighbors.

    The bounds and their order are in Liu and Domke (2014), "Projecting Markov random field parameters for fast
    mixing", Theorem 6 and its proof (Lemmas 8 to 11, Theorem 12, Corollary 13); ``sigmoid`` is attained by a field that
    puts equal weight on the two extreme states.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1)], coupling=0.5)
    >>> edge_dependencies(model, dependency="range").tolist()
    [[0.5, 0.5]]
    """
    check_model(model)
    check_choice("dependency", dependency, DEPENDENCIES)
    largest = max((rows * cols for rows, cols, _ in model.structure.table_shapes), default=0)
    required = 200.0 * model.num_edges + 16.0 * largest
    check_memory(required, f"the dependencies of {model.num_edges:,} edges", "take a smaller model")
    model = _drop_forbidden(model)
    if dependency == "exact":
        # The minimum repairs rounding only: the enumeration is never above the maximum over all fields.
        bounds = _column_bounds(model, "sigmoid", clock)
        try:
            return np.minimum(exact_dependencies(model, clock), bounds)
        except OutOfTimeError:
            return bounds
    if dependency == "field":
        with np.errstate(invalid="ignore", over="ignore"):  # forbidden pairs: unknown, and left to the other bound
            field = _field_bounds(model)
        return np.minimum(field, _column_bounds(model, "sigmoid", clock))
    return _column_bounds(model, dependency, clock)


def dependency_matrix(model: MarkovRandomField, *, dependency: Dependency = "sigmoid") -> Any:
    """The bound on R as a sparse matrix, with a stored entry for both directions of every edge.

    Parameters
    ----------
    model, dependency
        As for :func:`edge_dependencies`.

    Returns
    -------
    scipy.sparse.csr_array (n, n)
        Entry (i, j) bounds how far x_j moves the conditional of x_i. Column numbers are sorted within each row.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1), (1, 2)], coupling=[0.5, -0.2])
    >>> dependency_matrix(model, dependency="range").toarray().tolist()
    [[0.0, 0.5, 0.0], [0.5, 0.0, 0.2], [0.0, 0.2, 0.0]]
    """
    return to_matrix(model, edge_dependencies(model, dependency=dependency))


def to_matrix(model: MarkovRandomField, values: FloatArray) -> Any:
    """The sparse matrix (n, n) of one value per edge, (m,), or per edge and direction, (m, 2)."""
    from scipy.sparse import csr_array

    graph = model.adjacency
    n = model.num_variables
    index = np.int32 if 2 * model.num_edges < 2**31 else np.int64
    place = graph.edge_ids
    if values.ndim == 2:
        place = 2 * place + (np.repeat(np.arange(n), graph.degree) > graph.neighbors)
    data = values.ravel()[place]
    matrix = csr_array((data, graph.neighbors.astype(index), graph.indptr.astype(index)), shape=(n, n))
    matrix.has_sorted_indices = True
    return matrix


def rounding_margins(model: MarkovRandomField, *, dependency: Dependency = "sigmoid") -> FloatArray:
    """Bounds (m, 2) on the absolute rounding errors of :func:`edge_dependencies`.

    The formulas have an absolute error of about eps times the largest finite table entry, from the two subtractions
    (the relative error of the other operations, at most a few eps, is left to the caller). For ``exact`` and ``field``
    the logits of x_i are sums over all its terms, so the scale is the sum of their largest entries.
    """
    structure = model.structure
    num_terms: Any = 1.0
    table_scale = model.sizes_of_tables()
    if dependency not in ("exact", "field"):
        # For v = T[:, a] - T[:, b]: |v| <= 2 s, each entry off by eps s, max - min by 2 eps s plus its own
        # rounding of 2 eps s, all over 4 (over 2, but without the last subtraction, for linf). Sums add one per term.
        if model.num_factors:
            in_pairs = of_pairs(model, _largest_finite(model.log_factors, model.factor_offsets))
            table_scale = table_scale + np.bincount(structure.scope_pairs, in_pairs, minlength=model.num_edges)
            num_terms += np.bincount(structure.scope_pairs, minlength=model.num_edges)
        return np.repeat(((1.0 + num_terms) * _EPS * table_scale)[:, None], 2, axis=1)
    num_terms += np.bincount(structure.scope_variables, minlength=model.num_variables) + model.adjacency.degree
    scale = largest_entries(model)
    # Logits are off by (terms + 3) eps scale from summation; total variation by half the range of that, twice for the
    # two conditionals; exp, sum and quotient add a few eps per state.
    logits = (num_terms + 3) * _EPS * scale
    return (2.0 * logits + (model.num_states + 8) * _EPS)[model.edges]


def largest_entries(model: MarkovRandomField) -> FloatArray:
    """For every variable the sum over all its terms of their largest finite absolute entry (n,)."""
    n = model.num_variables
    structure = model.structure
    scale = _largest_finite(model.log_unary, model.unary_offsets)
    for end in model.edges.T:
        scale = scale + np.bincount(end, model.sizes_of_tables(), minlength=n)
    factors = _largest_finite(model.log_factors, model.factor_offsets)
    in_scopes = np.repeat(factors, np.diff(structure.scope_starts))
    return scale + np.bincount(structure.scope_variables, in_scopes, minlength=n)


def _drop_forbidden(model: MarkovRandomField) -> MarkovRandomField:
    """The model without states that a unary or, where it has factors, all tables around them forbid."""
    if model.num_factors:
        forbidden = model.has_forbidden
    else:
        forbidden = bool(model.log_unary.size and model.log_unary.min() == -np.inf)
    return model.drop_forbidden_states() if forbidden else model


def _largest_finite(values: FloatArray, offsets: IntArray) -> FloatArray:
    """Largest finite absolute value of each stretch that begins at an offset; stretches are never empty."""
    if len(offsets) < 2:
        return np.zeros(0)
    size = np.abs(values)
    size[size == np.inf] = 0.0
    return np.maximum.reduceat(size, offsets[:-1])


# -- formulas over columns ------------------------------------------------------------------------------------------


def _column_bounds(model: MarkovRandomField, dependency: str, clock: Clock) -> FloatArray:
    """R (m, 2) by one of the formulas over differences of columns: ``sigmoid``, ``range``, ``l1`` or ``linf``."""
    sizes = np.empty((model.num_edges, 2))
    with np.errstate(invalid="ignore", over="ignore"):  # -inf - -inf, and differences beyond the largest number
        if model.shared_tables is not None:
            sizes = _sizes_of_shared(model.shared_tables, dependency, clock)
        else:
            for places, tables in table_groups(model):
                sizes[places] = _sizes_in_time(tables, dependency, clock)
        if model.num_factors:
            by_factors = factor_sizes(model, dependency, clock)
            for end in (0, 1):
                sizes[:, end] += np.bincount(model.structure.scope_pairs, by_factors[:, end], minlength=model.num_edges)
    return _finish(sizes, dependency)


def _sizes_of_shared(shared: SharedTables, kind: str, clock: Clock) -> FloatArray:
    """Sizes (m, 2) of the tables of all edges, from those of the patterns: a size grows in proportion to the weight.

    The size of a table between two patterns is at most the sum of their shares, and is just that on the path of a
    projection.
    """
    use = shared.use
    of_patterns = np.empty((use.num_patterns, 2))
    for rows, cols in np.unique(use.shapes, axis=0).tolist():
        members = np.flatnonzero((use.shapes == [rows, cols]).all(axis=1))
        chunk = max(1, CHUNK_ENTRIES // (rows * cols))
        for begin in range(0, len(members), chunk):
            some = members[begin : begin + chunk]
            tables = shared.patterns[use.starts[some] + np.arange(rows * cols)[:, None]]
            of_patterns[some] = _sizes_in_time(tables.reshape(rows, cols, -1), kind, clock)
    sizes = _weighted_sizes(of_patterns[use.of_edge], shared.weights)
    if shared.next_weights is not None:
        following = np.minimum(use.of_edge + 1, use.num_patterns - 1)
        sizes += _weighted_sizes(of_patterns[following], shared.next_weights)
    return np.where(use.turned[:, None], sizes[:, ::-1], sizes)


def _weighted_sizes(sizes: FloatArray, weights: FloatArray) -> FloatArray:
    """Sizes (m, 2) times the absolute weights (m,), where 0 times infinity is 0."""
    return np.where(weights[:, None] == 0.0, 0.0, np.abs(weights)[:, None] * sizes)


def factor_dependencies(model: MarkovRandomField, dependency: Literal["range", "linf"]) -> FloatArray:
    """Parts (pairs, 2) that factors over three or more variables add to the bounds of their pairs, in both directions.

    They are aligned with ``model.structure.scope_pairs`` (pairs of all scopes). The bound of an edge is the sum of the
    part of its table and of these. Each is a seminorm of its factor, so that scaling a factor scales it.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        return _finish(factor_sizes(model, dependency), dependency)


def _sizes_in_time(tables: FloatArray, kind: str, clock: Clock) -> FloatArray:
    """Sizes by :func:`_sizes_of_tables`, or larger ones where there is no time for tables with many columns."""
    if max(tables.shape[:2]) <= FEW_COLUMNS:
        return _sizes_of_tables(tables, kind)
    try:
        return _sizes_of_tables(tables, kind, clock)
    except OutOfTimeError:
        return _sizes_from_ranges(tables, kind)


def _sizes_from_ranges(tables: FloatArray, kind: str) -> FloatArray:
    """Upper bounds (k, 2) on the sizes of tables (rows, cols, k) in both directions, by ranges of rows and columns.

    Entries of ``T[:, a] - T[:, b]`` are at most as large as the range of their row, and their range is at most the sum
    of those of both columns.
    """
    hard = tables.min(axis=(0, 1), initial=np.inf) == -np.inf
    of_rows = tables.max(axis=1) - tables.min(axis=1)
    of_columns = tables.max(axis=0) - tables.min(axis=0)
    if kind in ("range", "sigmoid"):
        both_ways = 2.0 * np.minimum(of_rows.max(axis=0), of_columns.max(axis=0))
        sizes = np.stack([both_ways, both_ways], axis=1)
    else:
        total = np.sum if kind == "l1" else np.max
        sizes = np.stack([total(of_rows, axis=0), total(of_columns, axis=0)], axis=1)
    sizes[hard] = np.inf
    return sizes


def _sizes_of_tables(tables: FloatArray, kind: str, clock: Clock = NO_LIMIT) -> FloatArray:
    """Sizes (k, 2) of tables (rows, cols, k) in both directions, or (k, 1) where these are the same.

    A size is the largest range or norm of a difference of two columns.
    """
    if tables.size and tables.min() == -np.inf:
        # -inf somewhere: the slower rules for those tables alone.
        hard = (tables == -np.inf).any(axis=(0, 1))
        result = np.empty((len(hard), 2))
        if not hard.all():
            result[~hard] = _sizes_of_tables(np.ascontiguousarray(tables[:, :, ~hard]), kind, clock)
        some = np.ascontiguousarray(tables[:, :, hard])
        for end, table in enumerate((some, some.transpose(1, 0, 2))):
            result[hard, end] = _over_columns(table, kind, table > -np.inf, clock=clock)
        return result
    swapped = tables.transpose(1, 0, 2)
    if kind in ("range", "sigmoid"):
        # Equal in both directions, and cheaper over pairs of the fewer states.
        return _over_columns(tables if tables.shape[1] <= tables.shape[0] else swapped, kind, clock=clock)[:, None]
    return np.stack([_over_columns(t, kind, clock=clock) for t in (tables, swapped)], axis=1)


def _finish(size: FloatArray, kind: str) -> FloatArray:
    """R from the largest range or norm of a difference of columns; ``size`` is changed in place."""
    # NaN comes from inf - inf, beyond the largest number: unknown, so unbounded.
    np.copyto(size, np.inf, where=np.isnan(size))
    size /= 2.0 if kind == "linf" else 4.0
    # tanh x <= x also where the library's tanh rounds up
    return np.minimum(np.tanh(size), size) if kind == "sigmoid" else size


def _over_columns(
    tables: FloatArray, kind: str, allowed: BoolArray | None = None, *, clock: Clock = NO_LIMIT
) -> FloatArray:
    """Largest range or norm (k,) of the difference of two columns of tables (rows, cols, k).

    For tables with -inf ``allowed`` is true where entries are finite: rows that are forbidden in both columns do not
    count, and rows that are forbidden in one of them give inf.
    """
    cols = tables.shape[1]
    best = np.zeros(tables.shape[2])
    for a in range(cols - 1):
        clock.check()
        difference = tables[:, a : a + 1] - tables[:, a + 1 :]
        both: Any = True if allowed is None else allowed[:, a : a + 1] & allowed[:, a + 1 :]
        if kind in ("range", "sigmoid"):
            high = difference.max(axis=0, where=both, initial=-np.inf)
            size = high - difference.min(axis=0, where=both, initial=np.inf)
        else:
            np.abs(difference, out=difference)
            total = difference.sum if kind == "l1" else difference.max
            size = total(axis=0, where=both, initial=0.0)
        if allowed is not None:
            in_one_only = (allowed[:, a : a + 1] != allowed[:, a + 1 :]).any(axis=0)
            size[in_one_only | ~both.any(axis=0)] = np.inf
        np.maximum(best, size.max(axis=0), out=best)
    return best


def _field_bounds(model: MarkovRandomField) -> FloatArray:
    """R (m, 2) from the interval of fields that the other neighbors can put on a binary variable; 1 for others.

    The field on x_i is half its log-odds. A neighbor k adds between ``low_k`` and ``high_k`` to it, so that without j
    the others leave an interval, and x_j moves the field by its own range around the middle of its own interval.

    1. Find the least and the largest field that each edge puts on its ends.
    2. Add up the unary, the edges and the factors around every variable.
    3. For every end of an edge, find the interval of the total field with the other end in the middle of its own.
    4. The bound is largest at the point of that interval nearest to 0.
    """
    n = model.num_variables
    m = model.num_edges
    # 1. The fields of the edges.
    low = np.empty((m, 2))
    high = np.empty((m, 2))
    for places, tables in table_groups(model):
        for end, table in enumerate((tables, tables.transpose(1, 0, 2))):
            if len(table) == 2:
                field = 0.5 * (table[1] - table[0])
                low[places, end] = field.min(axis=0)
                high[places, end] = field.max(axis=0)
            else:
                low[places, end] = np.nan
                high[places, end] = np.nan
    # 2. The least and the largest total field of every variable.
    binary = model.num_states == 2
    own = np.full(n, np.nan)
    starts = model.unary_offsets[:-1][binary]
    own[binary] = 0.5 * (model.log_unary[starts + 1] - model.log_unary[starts])
    owner = model.edges
    least = own + np.bincount(owner.ravel(), low.ravel(), minlength=n)
    most = own + np.bincount(owner.ravel(), high.ravel(), minlength=n)
    for group in model.structure.factor_groups(CHUNK_ENTRIES):
        for axis, variables in enumerate(group.scopes.T):
            table = np.moveaxis(model.log_factors[group.places], axis + 1, 0)
            if len(table) == 2:
                field = 0.5 * (table[1] - table[0]).reshape(len(variables), -1)
                np.add.at(least, variables, field.min(axis=1))
                np.add.at(most, variables, field.max(axis=1))
    # 3. The total field when x_j is in the middle of its interval.
    middle = 0.5 * (low + high)
    d = 0.5 * (high - low)
    field_low = least[owner] - low + middle
    field_high = most[owner] - high + middle
    if model.num_factors:
        # A factor's part of the middle can be anywhere between its least and its most, and the edge's own with it.
        by_factors = 0.25 * factor_sizes(model, "range")
        for end in (0, 1):
            d[:, end] += np.bincount(model.structure.scope_pairs, by_factors[:, end], minlength=m)
        shared = np.bincount(model.structure.scope_pairs, minlength=m)[:, None] > 0
        field_low = np.where(shared, least[owner], field_low)
        field_high = np.where(shared, most[owner], field_high)
    # 4. The bound.
    z = np.clip(0.0, np.minimum(field_low, field_high), np.maximum(field_low, field_high))
    result = 0.5 * (np.tanh(z + d) - np.tanh(z - d))
    return np.where(np.isfinite(result), result, 1.0)
