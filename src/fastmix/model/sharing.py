"""Tables that edges share: checked and in order out of what users give, and found by content among full tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fastmix import _checks
from fastmix._arrays import BoolArray, FloatArray, IntArray
from fastmix.errors import ModelError
from fastmix.model.shared import SharedTables, TableUse, weighted
from fastmix.model.tuning import (
    FACTOR_TOLERANCE,
    GATHERED_TABLE_ENTRIES,
    MAX_CUT_PATTERNS,
    MAX_FOUND_PATTERNS,
    MAX_PATTERN_ENTRY,
    MIN_SHARED_EDGES,
    MIN_SHARED_ENTRIES,
    MIN_SHARED_TABLE,
    PATTERN_DIGITS,
    SAMPLED_TABLES,
)

if TYPE_CHECKING:
    from fastmix.model.mrf import MarkovRandomField

__all__ = ["cut_tables", "find_shared", "paste_tables", "pays_to_share", "share_patterns"]


def pays_to_share(num_edges: int, num_entries: int) -> bool:
    """Whether tables of so many entries each are worth finding and keeping as one pattern with weights."""
    if num_edges < MIN_SHARED_EDGES or num_entries < MIN_SHARED_TABLE:
        return False
    return num_edges * num_entries >= MIN_SHARED_ENTRIES


# -- patterns that users give -----------------------------------------------------------------------------------------


def share_patterns(
    num_states: IntArray,
    pairs: IntArray,
    patterns: ArrayLike | Sequence[ArrayLike],
    pattern_of_edge: ArrayLike,
    weights: ArrayLike,
) -> tuple[IntArray, SharedTables]:
    """Edges with i < j in lexicographic order, and their shared tables: repeated and reversed pairs are added up.

    1. Patterns that are equal, or each other's transposes, become one.
    2. Every edge is turned so that its first variable is the smaller one, and the edges are put in order.
    3. The tables of repeated pairs are added up: weights where these use one pattern in one way, else a new pattern.
    """
    given = _as_patterns(patterns)
    of_edge = _checks.as_array("pattern_of_edge", pattern_of_edge, "be a number or a vector of whole numbers")
    if of_edge.ndim == 0:
        of_edge = np.full(len(pairs), of_edge)
    shapes = np.array([pattern.shape for pattern in given], dtype=np.int64).reshape(-1, 2)
    use = TableUse.checked(shapes, of_edge, np.zeros(len(pairs), dtype=bool), num_states[pairs])
    values = _checks.per_item("weights", weights, len(pairs), "edge")

    # 1.
    different, same_as, is_turned = _distinct(given)
    number = same_as[use.of_edge]
    symmetric = np.array([np.array_equal(pattern, pattern.T) for pattern in different], dtype=bool)

    # 2.
    turned = (pairs[:, 0] > pairs[:, 1]) ^ is_turned[use.of_edge]
    if len(different):
        turned &= ~symmetric[number]
    ends = np.sort(pairs, axis=1)
    keys = ends[:, 0] * np.int64(len(num_states)) + ends[:, 1]
    if not (np.diff(keys) > 0).all():
        order = np.argsort(keys, kind="stable")
        ends = ends[order]
        keys = keys[order]
        number = number[order]
        turned = turned[order]
        values = values[order]
        if (np.diff(keys) == 0).any():
            # 3.
            ends, number, turned, values = _add_up(ends, keys, number, turned, values, different)
    shapes = np.array([pattern.shape for pattern in different], dtype=np.int64).reshape(-1, 2)
    flat = np.concatenate([np.zeros(0), *(pattern.reshape(-1) for pattern in different)])
    use = TableUse.checked(shapes, number, turned, num_states[ends])
    return ends, SharedTables.checked(use, flat, values)


def _as_patterns(patterns: ArrayLike | Sequence[ArrayLike]) -> list[FloatArray]:
    """Patterns as matrices, out of an array (p, rows, columns) or a sequence of matrices."""
    given = _checks.as_list("patterns", patterns, "a 3-D array or a list of tables")
    matrices = [_checks.as_float_array(f"patterns[{k}]", pattern) for k, pattern in enumerate(given)]
    for k, matrix in enumerate(matrices):
        if matrix.ndim != 2 or not matrix.size:
            raise ModelError(f"patterns[{k}] must be a table, rows and columns, got shape {matrix.shape}")
        _checks.check_log_values(f"patterns[{k}]", matrix)
        matrix += 0.0  # -0.0 becomes 0.0, so that equal patterns have equal bytes
    return matrices


def _distinct(patterns: list[FloatArray]) -> tuple[list[FloatArray], IntArray, BoolArray]:
    """Patterns that differ, the number among these of every pattern that was given, and whether it is the transpose."""
    numbers: dict[tuple[tuple[int, ...], bytes], int] = {}
    different: list[FloatArray] = []
    same_as = np.zeros(len(patterns), dtype=np.int64)
    is_turned = np.zeros(len(patterns), dtype=bool)
    for k, pattern in enumerate(patterns):
        key = (pattern.shape, pattern.tobytes())
        turned_key = (pattern.T.shape, pattern.T.tobytes())
        if key in numbers:
            same_as[k] = numbers[key]
        elif turned_key in numbers:
            same_as[k] = numbers[turned_key]
            is_turned[k] = True
        else:
            numbers[key] = len(different)
            same_as[k] = len(different)
            different.append(pattern)
    return different, same_as, is_turned


def _add_up(
    ends: IntArray,
    keys: IntArray,
    number: IntArray,
    turned: BoolArray,
    weights: FloatArray,
    patterns: list[FloatArray],
) -> tuple[IntArray, IntArray, BoolArray, FloatArray]:
    """Edges in order, each once, with pattern, turn and weight; patterns that sums need are appended to the list."""
    first = np.append(True, np.diff(keys) > 0)
    starts = np.flatnonzero(first)
    group = np.cumsum(first) - 1
    alike = (number == number[starts][group]) & (turned == turned[starts][group])
    one_way = np.logical_and.reduceat(alike, starts)
    total = np.bincount(group, weights, len(starts)).astype(np.float64, copy=False)
    new_number = number[starts].copy()
    new_turned = turned[starts].copy()
    for g in np.flatnonzero(~one_way).tolist():
        total_table = np.zeros(())
        for k in range(starts[g], starts[g + 1] if g + 1 < len(starts) else len(keys)):
            pattern = patterns[number[k]].T if turned[k] else patterns[number[k]]
            total_table = total_table + weighted(pattern.reshape(1, -1), weights[k : k + 1]).reshape(pattern.shape)
        new_number[g] = len(patterns)
        new_turned[g] = False
        total[g] = 1.0
        patterns.append(total_table)
    return ends[starts], new_number, new_turned, total


# -- patterns without some states -------------------------------------------------------------------------------------


def cut_tables(
    model: MarkovRandomField, tables: SharedTables, kept_edges: BoolArray, kept_states: BoolArray
) -> SharedTables | None:
    """The shared tables of the edges that are kept, without the states that are not; None where they are too different.

    Edges that use one pattern, and keep the same states of it, share what is left of it.

    Parameters
    ----------
    model : MarkovRandomField
    tables : SharedTables
        The tables of all edges of the model.
    kept_edges : bool array (m,)
    kept_states : bool array, as ``model.log_unary``
    """
    edges = np.flatnonzero(kept_edges)
    use = tables.use
    left = tables.of(edges)
    is_whole = np.logical_and.reduceat(kept_states, model.unary_offsets[:-1]) if len(kept_states) else kept_states
    if is_whole[model.edges[edges]].all():
        return left
    if tables.next_weights is not None:
        return None
    # What is left of a pattern follows from the sets of states that are kept of its rows and of its columns.
    sets = _numbers_of_sets(model.num_states, kept_states, model.unary_offsets)
    ends = np.where(use.turned[edges][:, None], model.edges[edges][:, ::-1], model.edges[edges])
    keys = np.column_stack([left.use.of_edge, sets[ends]])
    different, first, number = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    if len(different) > MAX_CUT_PATTERNS:
        return None
    patterns = []
    for k, edge in enumerate(first.tolist()):
        rows, cols = (kept_states[model.unary_offsets[v] : model.unary_offsets[v + 1]] for v in ends[edge].tolist())
        patterns.append(tables.pattern(int(different[k, 0]))[np.ix_(rows, cols)])
    shapes = np.array([pattern.shape for pattern in patterns], dtype=np.int64).reshape(-1, 2)
    flat = np.concatenate([pattern.reshape(-1) for pattern in patterns])
    new_use = TableUse(shapes, number.reshape(-1).astype(np.int32), left.use.turned)
    return SharedTables(new_use, flat, left.weights)


def paste_tables(tables: SharedTables, edges: BoolArray, changed: SharedTables) -> SharedTables:
    """Shared tables of which those of some edges, flags (m,), are replaced by others in the same order.

    The patterns of both follow each other, so that mixtures of two neighbors stay what they are.
    """
    use = tables.use
    of_edge = use.of_edge.copy()
    of_edge[edges] = use.num_patterns + changed.use.of_edge
    turned = use.turned.copy()
    turned[edges] = changed.use.turned
    weights = tables.weights.copy()
    weights[edges] = changed.weights
    following: FloatArray | None = None
    if tables.next_weights is not None or changed.next_weights is not None:
        following = np.zeros(len(weights)) if tables.next_weights is None else tables.next_weights.copy()
        following[edges] = 0.0 if changed.next_weights is None else changed.next_weights
    new_use = TableUse(np.concatenate([use.shapes, changed.use.shapes]), of_edge, turned)
    return SharedTables(new_use, np.concatenate([tables.patterns, changed.patterns]), weights, following)


def _numbers_of_sets(num_states: IntArray, kept_states: BoolArray, offsets: IntArray) -> IntArray:
    """A number for every variable that tells its number of states, and which of them are kept."""
    numbers = np.empty(len(num_states), dtype=np.int64)
    begin = 0
    for count in np.unique(num_states).tolist():
        members = np.flatnonzero(num_states == count)
        kept = kept_states[offsets[members][:, None] + np.arange(count)]
        _, inverse = np.unique(np.packbits(kept, axis=1), axis=0, return_inverse=True)
        numbers[members] = begin + inverse.reshape(-1)
        begin += int(inverse.max()) + 1
    return numbers


# -- patterns found by content ----------------------------------------------------------------------------------------


class _Match(NamedTuple):
    """Which tables are a pattern times a weight, whether turned, and the weights; arrays (k,)."""

    fits: BoolArray
    turned: BoolArray
    weights: FloatArray


def find_shared(ends: IntArray, tables: FloatArray) -> SharedTables | None:
    """The flat tables of edges as few patterns with weights; None where they are not, or it would not pay.

    Tables count as shared if they are equal to a pattern times a number: exactly where some scale of the pattern makes
    them so, else to a few roundings. Models whose tables are all different are recognized by some of their tables.

    Parameters
    ----------
    ends : int array (m, 2)
        State counts of both ends of every edge; tables are searched where these are the same for all.
    tables : float array (sum of the sizes,)
    """
    num_edges = len(ends)
    if not num_edges or (ends != ends[0]).any():
        return None
    num_rows, num_cols = ends[0].tolist()
    if not pays_to_share(num_edges, num_rows * num_cols):
        return None
    flat = tables.reshape(num_edges, -1)
    number = np.zeros(num_edges, dtype=np.int64)
    turned = np.zeros(num_edges, dtype=bool)
    weights = np.zeros(num_edges)
    left = np.arange(num_edges)
    patterns: list[FloatArray] = []
    while len(left):
        if len(patterns) == MAX_FOUND_PATTERNS:
            return None
        sample = left[:: max(1, len(left) // SAMPLED_TABLES)]
        pattern = _scale_that_fits(flat[left[0]], flat[sample], num_rows, num_cols)
        if pattern is None:
            return None
        found = np.zeros(len(left), dtype=bool)
        for part in _chunks(len(left), num_rows * num_cols):
            edges = left[part]
            match = _match(pattern, flat[edges], num_rows, num_cols)
            kept = edges[match.fits]
            number[kept] = len(patterns)
            turned[kept] = match.turned[match.fits]
            weights[kept] = match.weights[match.fits]
            found[part] = match.fits
        patterns.append(pattern)
        left = left[~found]
    shapes = np.tile([num_rows, num_cols], (len(patterns), 1)).astype(np.int64)
    return SharedTables(
        TableUse(shapes, number.astype(np.int32), turned), np.concatenate(patterns) + 0.0, weights + 0.0
    )


def _chunks(count: int, num_entries: int) -> Iterator[slice]:
    """Slices of rows whose tables are gathered at once."""
    size = max(1, GATHERED_TABLE_ENTRIES // num_entries)
    for start in range(0, count, size):
        yield slice(start, start + size)


def _scale_that_fits(table: FloatArray, sample: FloatArray, num_rows: int, num_cols: int) -> FloatArray | None:
    """A table at the scale at which a pattern gives most of a sample of tables exactly; None where hardly any is alike.

    Tables were often made as a weight times a matrix of plain numbers. Dividing by an entry gives these back, and
    rounding to twelve digits takes the rounding of the products away.
    """
    candidates = [table]
    is_finite = np.isfinite(table)
    sizes = np.abs(table[is_finite])
    if sizes.any():
        for unit in (sizes.max(), sizes[sizes > 0.0].min()):
            scaled = table.copy()
            with np.errstate(over="ignore"):
                scaled[is_finite] /= unit
            if np.abs(scaled[is_finite]).max() < MAX_PATTERN_ENTRY:
                rounded = scaled.copy()
                rounded[is_finite] = np.round(scaled[is_finite], PATTERN_DIGITS)
                candidates += [scaled, rounded]
    matches = [_match(pattern, sample, num_rows, num_cols, exactly=True).fits.sum() for pattern in candidates]
    best = int(np.argmax(matches))
    pattern = candidates[best]
    if matches[best] == len(sample):
        return pattern
    # Without a scale that gives all of them exactly, the table itself is the pattern: weights are ratios.
    if matches[best] <= 1:
        pattern = table
    num_alike = int(_match(pattern, sample, num_rows, num_cols).fits.sum())
    return pattern if num_alike > max(1, len(sample) // MAX_FOUND_PATTERNS) or len(sample) == 1 else None


def _match(pattern: FloatArray, tables: FloatArray, num_rows: int, num_cols: int, *, exactly: bool = False) -> _Match:
    """Which tables (k, entries) are a pattern, or its transpose, times a weight."""
    straight = _match_straight(pattern, tables, exactly=exactly)
    turned = np.zeros(len(tables), dtype=bool)
    if num_rows != num_cols or straight.fits.all():
        return straight
    matrix = pattern.reshape(num_rows, num_cols)
    if np.array_equal(matrix, matrix.T):
        return straight
    other = _match_straight(np.ascontiguousarray(matrix.T).reshape(-1), tables, exactly=exactly)
    turned = other.fits & ~straight.fits
    return _Match(straight.fits | other.fits, turned, np.where(turned, other.weights, straight.weights))


def _match_straight(pattern: FloatArray, tables: FloatArray, *, exactly: bool) -> _Match:
    """Which tables (k, entries) are a pattern times a weight, not turned."""
    sizes = np.where(np.isfinite(pattern), np.abs(pattern), -1.0)
    place = int(sizes.argmax())
    weights = np.ones(len(tables))
    if sizes[place] > 0.0:
        with np.errstate(invalid="ignore", over="ignore"):
            weights = tables[:, place] / pattern[place]
    usable = np.isfinite(weights)
    if pattern.min() == -np.inf:
        usable &= weights >= 0.0
    weights = np.where(usable, weights, 0.0)
    again = weighted(pattern, weights)
    if exactly:
        fits = (again == tables).all(axis=1)
    else:
        with np.errstate(invalid="ignore"):
            close = np.abs(again - tables) <= FACTOR_TOLERANCE * np.abs(tables)
        fits = ((again == tables) | close).all(axis=1)
    return _Match(fits & usable, np.zeros(len(tables), dtype=bool), weights)
