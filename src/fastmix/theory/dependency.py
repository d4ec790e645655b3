"""The dependency matrix R of a model: how far one variable can move the conditional distribution of another.

``R_ij`` is the largest total variation distance between ``p(X_i | x)`` and ``p(X_i | y)`` over configurations x and y
that differ only at variable j (Dobrushin's interdependence matrix; Definition 3 of Liu and Domke, 2014). It is zero
unless i and j share an edge.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import BoolArray, FloatArray, IntArray
from fastmix._checks import check_choice
from fastmix._clock import NO_LIMIT, Clock, OutOfTimeError
from fastmix._memory import check_memory
from fastmix.errors import ResourceError
from fastmix.model import MarkovRandomField, check_model
from fastmix.model.reduce import reduce_model

__all__ = [
    "DEPENDENCIES", "Dependency", "dependency_matrix", "edge_dependencies", "factor_dependencies", "largest_entries",
    "of_pairs", "rounding_margins", "to_matrix", "undefined_conditional",
]  # fmt: skip

Dependency = Literal["exact", "field", "sigmoid", "range", "l1", "linf"]
DEPENDENCIES: tuple[str, ...] = get_args(Dependency)

_EPS = float(np.finfo(np.float64).eps)
_CHUNK_ENTRIES = 1 << 18  # table entries worked on at once: 2 MiB a temporary, which stays in the cache
# Limits of enumerations, a few seconds each.
_MAX_EVALUATIONS = 5e6  # conditional distributions
_MAX_COMPARISONS = 4e9  # entries of pairs of conditional distributions
_MAX_JOINT = 1 << 20  # states of the neighbors of a variable that are tried for one that leaves it none,
_FEW_COLUMNS = 4  # of tables whose sizes take no longer than the ranges of their rows and columns
_MAX_SETS = 1 << 16  # or sets of its states that they can forbid together


def edge_dependencies(
    model: MarkovRandomField, *, dependency: Dependency = "sigmoid", clock: Clock = NO_LIMIT
) -> FloatArray:
    """Bounds (m, 2) on the two dependencies of every edge, R_ij in column 0 and R_ji in column 1 for edge (i, j).

    With rows of the table T for x_i, columns for x_j and ``range(v) = max v - min v``, R_ij is bounded by

    ============  ========================================================================
    ``exact``     its definition (Definition 3 of the paper), by enumeration of the other neighbors of i
    ``field``     for binary x_i, ``(tanh(z + d) - tanh(z - d)) / 2`` with 2 d the range of the field that x_j puts on
                  x_i, at the total field z nearest to 0 that the others can leave; else ``sigmoid``
    ``sigmoid``   ``max_ab tanh(range(T[:, a] - T[:, b]) / 4)``, the largest over all fields
    ``range``     ``max_ab range(T[:, a] - T[:, b]) / 4``, Theorem 12
    ``l1``        ``max_ab norm(T[:, a] - T[:, b], 1) / 4``, Corollary 13
    ``linf``      ``max_ab norm(T[:, a] - T[:, b], inf) / 2``, Theorem 6
    ============  ========================================================================

    ordered ``exact <= field <= sigmoid <= range <= l1, linf``. Where factors over three or more variables contain both
    i and j, every range or norm is a sum over T and these factors, of each the largest over the states of its rest.
    ``range`` and ``sigmoid`` are the same both ways for tables without -inf, and do not change when functions of x_i or
    of x_j alone are added to T. States that a unary forbids are dropped first, with factors also those that some table
    leaves no configuration. Where a state of x_i is forbidden under one of two states of x_j and not under the other,
    or two states of x_j forbid every state of x_i, ``sigmoid`` is 1 and ``range``, ``l1`` and ``linf`` are infinite.
    For ``exact``, configurations of the other neighbors under which both conditionals are undefined do not count, and
    one defined beside one undefined counts as 1.

    ``O(L^2 L')`` time for an edge of L and L' states; ``exact`` enumerates the product of the state counts of the other
    neighbors, and refuses more than about 5e6 conditional distributions.
    Values are accurate to rounding, on neither side; :func:`rounding_margins` bounds the error.
    Once the limit of the clock is over, tables and factors that are left get larger bounds, from the ranges of their
    rows and columns, in ``O(L L')``; ``exact`` is ``sigmoid`` then.

    The bounds and their order are in Liu and Domke (2014), "Projecting Markov random field parameters for fast
    mixing", Theorem 6 and its proof (Lemmas 8 to 11, Theorem 12, Corollary 13); ``sigmoid`` is attained by a field that
    puts equal weight on the two extreme states.
    """
    check_model(model)
    check_choice("dependency", dependency, DEPENDENCIES)
    largest = max((rows * cols for rows, cols, _ in model.structure.table_shapes), default=0)
    required = 200.0 * model.num_edges + 16.0 * largest
    check_memory(required, f"the dependencies of {model.num_edges:,} edges", "take a smaller model")
    model = _without_forbidden(model)
    if dependency == "exact":
        # The minimum repairs rounding only: the enumeration is never above the maximum over all fields.
        bounds = _column_bounds(model, "sigmoid", clock)
        try:
            return np.minimum(_exact_dependencies(model, clock), bounds)
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

    graph, n = model.adjacency, model.num_variables
    index = np.int32 if 2 * model.num_edges < 2**31 else np.int64
    place = graph.edge_ids
    if values.ndim == 2:
        place = 2 * place + (np.repeat(np.arange(n), graph.degree) > graph.neighbors)
    data = values.ravel()[place]
    matrix = csr_array((data, graph.neighbors.astype(index), graph.indptr.astype(index)), shape=(n, n))
    matrix.has_sorted_indices = True
    return matrix


def rounding_margins(model: MarkovRandomField, *, dependency: Dependency = "sigmoid") -> FloatArray:
    """Bounds on the absolute rounding error of :func:`edge_dependencies`, of the same shape (m, 2).

    The formulas have absolute error of about eps times the largest finite table entry, from the two subtractions (the
    relative error of the other operations, at most a few eps, is left to the caller). For ``exact`` and ``field`` the
    logits of x_i are sums over all its terms, so the scale is the sum of their largest entries.
    """
    structure = model.structure
    num_terms: Any = 1.0
    table_scale = _largest_finite(model.log_pairwise, model.pairwise_offsets)
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
    n, structure = model.num_variables, model.structure
    scale = _largest_finite(model.log_unary, model.unary_offsets)
    for end in model.edges.T:
        scale = scale + np.bincount(end, _largest_finite(model.log_pairwise, model.pairwise_offsets), minlength=n)
    factors = _largest_finite(model.log_factors, model.factor_offsets)
    in_scopes = np.repeat(factors, np.diff(structure.scope_starts))
    return scale + np.bincount(structure.scope_variables, in_scopes, minlength=n)


def undefined_conditional(model: MarkovRandomField) -> tuple[int, str] | None:
    """A variable for which some states of its neighbors leave no state, and that in words; None if there is none.

    There Gibbs sampling is undefined, and so is R. Whether chains reach such states of the neighbors is not asked:
    they may start from them, as from any states that have a finite unary. A variable with too many states of its
    neighbors to try is named, too, in other words.
    """
    if not model.has_forbidden:
        return None
    reduced = reduce_model(model)
    lost = model.log_unary > -np.inf
    lost[reduced.unary_positions] = False
    if lost.any():
        i = int(np.searchsorted(model.unary_offsets, np.flatnonzero(lost)[0], side="right")) - 1
        name = model.names_of_variables()[i]
        return i, f"variable {name} has a state that its unary allows and that leaves its neighbors no state"
    model = reduced.model
    starts, n = model.unary_offsets[:-1], model.num_variables
    at_risk = np.zeros(len(model.log_unary), dtype=bool)  # states that some neighbor can forbid
    most = np.zeros(n, dtype=np.int64)  # states that all neighbors together can forbid, or more
    log_joint = np.zeros(n)  # logarithm of the number of states of those neighbors that can forbid some, or more

    def count(owner: IntArray, forbidden: BoolArray) -> None:
        """Take in what terms (states of the owner, states of the rest, number of terms) forbid."""
        np.logical_or.at(at_risk, starts[owner] + np.arange(len(forbidden))[:, None], forbidden.any(axis=1))
        np.add.at(most, owner, forbidden.sum(axis=0).max(axis=0))
        np.add.at(log_joint, owner, forbidden.any(axis=(0, 1)) * math.log(forbidden.shape[1]))

    for places, tables in _table_groups(model):
        for end, table in enumerate((tables, tables.transpose(1, 0, 2))):
            count(model.edges[places, end], table == -np.inf)
    for group in model.structure.factor_groups(_CHUNK_ENTRIES):
        forbidden = model.log_factors[group.places] == -np.inf
        for axis, owner in enumerate(group.scopes.T):
            rows = np.moveaxis(forbidden, (axis + 1, 0), (0, -1))
            count(owner, rows.reshape(len(rows), -1, len(owner)))
    doubtful = np.logical_and.reduceat(at_risk, starts) & (most >= model.num_states) if n else at_risk
    for i in np.flatnonzero(doubtful).tolist():
        name = model.names_of_variables()[i]
        closed: bool | None
        if log_joint[i] > math.log(_MAX_JOINT):
            closed = _forbids_all(model, i)
        else:
            closed = bool((_joint_logits(model, i, hard=True)[1].max(axis=0) == -np.inf).any())
        if closed is None:
            return i, f"variable {name} has forbidden pairs and too many neighbors to check that it always has a state"
        if closed:
            return i, f"variable {name} has no allowed state for some states of its neighbors"
    return None


def _forbids_all(model: MarkovRandomField, i: int) -> bool | None:
    """Whether neighbors can forbid all states of a variable, by the sets of states (bits) that its terms can forbid.

    None where these sets are too many, or where they could but terms share neighbors, which cannot do all at once.
    """
    everything, sets, around = (1 << int(model.num_states[i])) - 1, {0}, []
    for others, table in _terms_around(model, i):
        columns = np.unique((table == -np.inf).reshape(len(table), -1), axis=1).T
        own = {sum(1 << s for s in np.flatnonzero(column).tolist()) for column in columns}
        if own == {0}:
            continue
        around += others
        own = {a for a in own if not any(a != b and a & b == a for b in own)}  # smaller sets add nothing
        sets = {a | b for a in sets for b in own}
        if len(sets) > _MAX_SETS:
            return None
    if everything not in sets:
        return False
    return True if len(set(around)) == len(around) else None


def _without_forbidden(model: MarkovRandomField) -> MarkovRandomField:
    """The model without states that a unary or, where it has factors, all tables around them forbid."""
    forbidden = model.has_forbidden if model.num_factors else model.log_unary.size and model.log_unary.min() == -np.inf
    return model.drop_forbidden_states() if forbidden else model


def _largest_finite(values: FloatArray, offsets: IntArray) -> FloatArray:
    """Largest finite absolute value of each stretch; stretches are never empty."""
    if len(offsets) < 2:
        return np.zeros(0)
    size = np.abs(values)
    size[size == np.inf] = 0.0
    return np.maximum.reduceat(size, offsets[:-1])


# -- formulas over columns ------------------------------------------------------------------------------------------


def _column_bounds(model: MarkovRandomField, dependency: str, clock: Clock) -> FloatArray:
    sizes = np.empty((model.num_edges, 2))
    with np.errstate(invalid="ignore", over="ignore"):  # -inf - -inf, and differences beyond the largest number
        for places, tables in _table_groups(model):
            sizes[places] = _sizes_in_time(tables, dependency, clock)
        if model.num_factors:
            of_pairs = _factor_sizes(model, dependency, clock)
            for end in (0, 1):
                sizes[:, end] += np.bincount(model.structure.scope_pairs, of_pairs[:, end], minlength=model.num_edges)
    return _finish(sizes, dependency)


def factor_dependencies(model: MarkovRandomField, dependency: Literal["range", "linf"]) -> FloatArray:
    """What every factor over three or more variables adds to the bounds of its pairs, both directions.

    Aligned with ``model.structure.scope_pairs`` (pairs of all scopes), shape (pairs, 2). The bound of an edge is that
    of its table and these: a seminorm of each factor, so that scaling a factor scales them.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        return _finish(_factor_sizes(model, dependency), dependency)


def _factor_sizes(model: MarkovRandomField, kind: str, clock: Clock = NO_LIMIT) -> FloatArray:
    """Largest range or norm of a difference of columns, over all states of the rest of a factor, for all its pairs.

    Or more, for factors that the clock leaves no time for.
    """
    result = np.empty((len(model.structure.scope_pairs), 2))
    for group in model.structure.factor_groups(_CHUNK_ENTRIES):
        tables = model.log_factors[group.places]
        for t, (p, q) in enumerate(combinations(range(group.scopes.shape[1]), 2)):
            if clock.past():
                result[group.first_pairs + t] = _sizes_from_extremes(tables, p, q, kind)
                continue
            columns = np.moveaxis(tables, (p + 1, q + 1), (0, 1))
            sizes = _sizes_of_tables(columns.reshape(*columns.shape[:2], -1), kind)
            result[group.first_pairs + t] = sizes.reshape(len(tables), -1, sizes.shape[1]).max(axis=1)
    return result


def of_pairs(model: MarkovRandomField, of_factor: NDArray[Any]) -> NDArray[Any]:
    """A number of every factor for each of its pairs, aligned with ``model.structure.scope_pairs``."""
    sizes = np.diff(model.structure.scope_starts)
    return np.concatenate([np.repeat(of_factor[sizes == s], s * (s - 1) // 2) for s in np.unique(sizes).tolist()])


def _table_groups(model: MarkovRandomField) -> Iterator[tuple[Any, FloatArray]]:
    """Pieces of edges of equal shape: their places, and their tables with the edges along the LAST axis."""
    shapes = model.structure.table_shapes
    for rows, cols, members in shapes:
        chunk = max(1, _CHUNK_ENTRIES // (rows * cols))
        for start in range(0, len(members), chunk):
            places: Any = members[start : start + chunk]
            if len(shapes) == 1:
                places = slice(start, start + len(places))
                flat = model.log_pairwise.reshape(-1, rows * cols)[places]
            else:
                flat = model.log_pairwise[model.pairwise_offsets[places][:, None] + np.arange(rows * cols)]
            yield places, np.ascontiguousarray(flat.T).reshape(rows, cols, len(flat))


def _sizes_in_time(tables: FloatArray, kind: str, clock: Clock) -> FloatArray:
    """What :func:`_sizes_of_tables` gives, or more where there is no time for tables with many pairs of columns."""
    if max(tables.shape[:2]) <= _FEW_COLUMNS:
        return _sizes_of_tables(tables, kind)
    try:
        return _sizes_of_tables(tables, kind, clock)
    except OutOfTimeError:
        return _sizes_from_ranges(tables, kind)


def _sizes_from_ranges(tables: FloatArray, kind: str) -> FloatArray:
    """At least the sizes in both directions of tables (rows, cols, k), (k, 2), by the ranges of rows and columns.

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


def _sizes_from_extremes(tables: FloatArray, p: int, q: int, kind: str) -> FloatArray:
    """At least the sizes (k, 2) of the columns of two variables of factors (k, ..), by the range of all entries."""
    axes = tuple(range(1, tables.ndim))
    low = tables.min(axis=axes)
    size = tables.max(axis=axes) - low
    counts = {"range": (2, 2), "sigmoid": (2, 2), "l1": (tables.shape[p + 1], tables.shape[q + 1]), "linf": (1, 1)}
    sizes = np.multiply.outer(size, np.array(counts[kind], dtype=np.float64))
    sizes[low == -np.inf] = np.inf
    return sizes


def _sizes_of_tables(tables: FloatArray, kind: str, clock: Clock = NO_LIMIT) -> FloatArray:
    """Sizes in both directions for tables (rows, cols, k), shape (k, 2), or (k, 1) where they are the same."""
    finite = not (tables.size and tables.min() == -np.inf)
    if not finite:
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
        # The same in both directions, and cheaper over pairs of the fewer states.
        return _over_columns(tables if tables.shape[1] <= tables.shape[0] else swapped, kind, clock=clock)[:, None]
    return np.stack([_over_columns(t, kind, clock=clock) for t in (tables, swapped)], axis=1)


def _finish(size: FloatArray, kind: str) -> FloatArray:
    """R from the largest range or norm of a difference of columns."""
    # Beyond the largest number, inf - inf: unknown, so unbounded.
    np.copyto(size, np.inf, where=np.isnan(size))
    size /= 2.0 if kind == "linf" else 4.0
    # tanh x <= x also where the library's tanh rounds up
    return np.minimum(np.tanh(size), size) if kind == "sigmoid" else size


def _over_columns(
    tables: FloatArray, kind: str, allowed: BoolArray | None = None, *, clock: Clock = NO_LIMIT
) -> FloatArray:
    """Largest range or norm (k,) of the difference of two columns of tables (rows, cols, k).

    For tables with -inf ``allowed`` says where they are not: rows forbidden in both columns do not count, in one of
    them they give inf.
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
            one = (allowed[:, a : a + 1] != allowed[:, a + 1 :]).any(axis=0)
            size[one | ~both.any(axis=0)] = np.inf
        np.maximum(best, size.max(axis=0), out=best)
    return best


def _field_bounds(model: MarkovRandomField) -> FloatArray:
    """R (m, 2) from the interval of fields that the other neighbors can put on a binary variable; 1 for others.

    The field on x_i is half its log-odds. A neighbor k puts between ``low_k`` and ``high_k`` on it, so that without j
    the others leave an interval, and x_j moves the field by its own range around the middle of its own interval.
    """
    n, m = model.num_variables, model.num_edges
    low, high = np.empty((m, 2)), np.empty((m, 2))
    for places, tables in _table_groups(model):
        for end, table in enumerate((tables, tables.transpose(1, 0, 2))):
            if len(table) == 2:
                field = 0.5 * (table[1] - table[0])
                low[places, end], high[places, end] = field.min(axis=0), field.max(axis=0)
            else:
                low[places, end] = high[places, end] = np.nan
    binary = model.num_states == 2
    own = np.full(n, np.nan)
    starts = model.unary_offsets[:-1][binary]
    own[binary] = 0.5 * (model.log_unary[starts + 1] - model.log_unary[starts])
    owner = model.edges
    least, most = (own + np.bincount(owner.ravel(), part.ravel(), minlength=n) for part in (low, high))
    for group in model.structure.factor_groups(_CHUNK_ENTRIES):
        for axis, variables in enumerate(group.scopes.T):
            table = np.moveaxis(model.log_factors[group.places], axis + 1, 0)
            if len(table) == 2:
                field = 0.5 * (table[1] - table[0]).reshape(len(variables), -1)
                np.add.at(least, variables, field.min(axis=1))
                np.add.at(most, variables, field.max(axis=1))
    # The total field when x_j is in the middle of its interval.
    middle = 0.5 * (low + high)
    d = 0.5 * (high - low)
    begin, end_ = least[owner] - low + middle, most[owner] - high + middle
    if model.num_factors:
        # A factor's part of the middle can be anywhere between its least and its most, and the edge's own with it.
        of_pairs = 0.25 * _factor_sizes(model, "range")
        for end in (0, 1):
            d[:, end] += np.bincount(model.structure.scope_pairs, of_pairs[:, end], minlength=m)
        shared = np.bincount(model.structure.scope_pairs, minlength=m)[:, None] > 0
        begin, end_ = np.where(shared, least[owner], begin), np.where(shared, most[owner], end_)
    z = np.clip(0.0, np.minimum(begin, end_), np.maximum(begin, end_))
    result = 0.5 * (np.tanh(z + d) - np.tanh(z - d))
    return np.where(np.isfinite(result), result, 1.0)


# -- by enumeration of what the neighbors can do (Definition 3, in the form of Lemma 9) ----------------------------


def _exact_dependencies(model: MarkovRandomField, clock: Clock) -> FloatArray:
    """R by its definition (m, 2), for a model without forbidden states."""
    graph, counts, n = model.adjacency, model.num_states, model.num_variables
    result = np.zeros((model.num_edges, 2))
    owner = np.repeat(np.arange(n), graph.degree)
    with np.errstate(over="ignore"):
        evaluations = np.exp(np.bincount(owner, np.log(counts[graph.neighbors]), minlength=n)) * (graph.degree > 0)
        comparisons = evaluations * counts * np.bincount(owner, counts[graph.neighbors], minlength=n)
    if evaluations.sum() > _MAX_EVALUATIONS or comparisons.sum() > _MAX_COMPARISONS:
        raise ResourceError(
            f"dependency='exact' would enumerate {evaluations.sum():.3g} conditional distributions (variable "
            f"{evaluations.argmax()} takes most; the largest degree is {graph.max_degree}), more than the limit of "
            f"{_MAX_EVALUATIONS:.3g} of them or {_MAX_COMPARISONS:.3g} comparisons of their entries; "
            "dependency='sigmoid' enumerates nothing"
        )
    for i in np.flatnonzero(graph.degree).tolist():
        clock.check()
        edges = graph.edge_ids[graph.indptr[i] : graph.indptr[i + 1]]
        gaps = dict(zip(*_largest_gaps(*_joint_logits(model, i)), strict=True))
        around = graph.neighbors_of(i).tolist()
        result[edges, [int(i > j) for j in around]] = [gaps.get(j, 0.0) for j in around]
    return result


def _terms_around(model: MarkovRandomField, i: int) -> Iterator[tuple[list[int], FloatArray]]:
    """For every pair and factor of a variable its other variables, ascending, and its table (own states, ..)."""
    graph, incident, count = model.adjacency, model.structure.incident, model.num_states[i]
    for p in range(graph.indptr[i], graph.indptr[i + 1]):
        e, j = graph.edge_ids[p], int(graph.neighbors[p])
        table = model.log_pairwise[model.pairwise_offsets[e] : model.pairwise_offsets[e + 1]]
        yield [j], table.reshape(count, -1) if i < j else table.reshape(-1, count).T
    for k in incident.factors[incident.indptr[i] : incident.indptr[i + 1]].tolist():
        scope, table = model.factor(k)
        axis = int(np.searchsorted(scope, i))
        yield np.delete(scope, axis).tolist(), np.moveaxis(table, axis, 0)


def _joint_logits(model: MarkovRandomField, i: int, *, hard: bool = False) -> tuple[list[int], FloatArray]:
    """Neighbors of a variable that have several states, and its logits (own states, states of these neighbors).

    With ``hard`` only terms that forbid something, and the neighbors in them, count.
    """
    counts = model.num_states
    terms = [(others, table) for others, table in _terms_around(model, i) if not hard or table.min() == -np.inf]
    axes = sorted({j for others, _ in terms for j in others if counts[j] > 1})
    logits = np.zeros((counts[i], *counts[axes])) + model.unary(i).reshape(-1, *[1] * len(axes))
    for others, table in terms:
        logits += table.reshape(-1, *(counts[j] if j in others else 1 for j in axes))
    return axes, logits


def _largest_gaps(axes: list[int], logits: FloatArray) -> tuple[list[int], list[float]]:
    """For every neighbor the largest total variation distance between two of the distributions that it leads to.

    Two undefined ones are no distance apart; one beside a defined one is 1 away from it.
    """
    top = logits.max(axis=0)
    undefined = top == -np.inf
    hard = bool(undefined.any())
    p = np.exp(logits - (np.where(undefined, 0.0, top) if hard else top))
    p /= np.where(undefined, 1.0, p.sum(axis=0))
    gaps = []
    for k in range(len(axes)):
        columns, closed, best = p.swapaxes(1, k + 1), undefined.swapaxes(0, k), 0.0
        for a in range(len(closed) - 1):
            distance = np.abs(columns[:, a : a + 1] - columns[:, a + 1 :]).sum(axis=0)
            if hard:
                distance[closed[a] != closed[a + 1 :]] = 2.0
            best = max(best, float(distance.max()))
        gaps.append(min(0.5 * best, 1.0))
    return axes, gaps
