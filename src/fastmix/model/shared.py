"""Shared tables: patterns that many edges use, each edge with a weight of its own.

The table of edge e is ``w_e P_k``, or its transpose, with the pattern ``P_k`` that the edge uses. It may also lie
between two patterns that follow each other, ``w_e P_k + v_e P_(k+1)``: the tables of a projected model are points of
the path on which a pattern shrinks, and two neighboring breakpoints of the path give such a point.

Which pattern an edge uses, and whether turned, belongs to the structure of a model (:class:`TableUse`), as the graph
does; patterns and weights are its parameters (:class:`SharedTables`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from fastmix._arrays import BoolArray, FloatArray, IntArray
from fastmix._checks import MAX_LOG_VALUE, as_whole_numbers, check_log_values
from fastmix.errors import ModelError
from fastmix.model.flat import offsets_of
from fastmix.model.tuning import GATHERED_TABLE_ENTRIES

__all__ = ["SharedTables", "TableUse", "weighted"]


def weighted(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Rows of ``values`` (k, entries), or one row for all, times ``weights`` (k,); 0 times -inf is 0."""
    with np.errstate(invalid="ignore"):
        tables = weights[:, None] * values
    if values.size and values.min() == -np.inf:
        tables[weights == 0.0] = 0.0
    tables += 0.0  # -0.0 becomes 0.0, as in all tables of models
    return tables


@dataclass(frozen=True, eq=False, repr=False)
class TableUse:
    """Which pattern the table of every edge is made of, and whether it is turned: part of a structure.

    Attributes
    ----------
    shapes : int array (p, 2)
        Rows and columns of every pattern.
    of_edge : int32 array (m,)
        The pattern of every edge.
    turned : bool array (m,)
        Whether the rows of the pattern are for the second variable of the edge.
    starts : int array (p + 1,)
        Where the patterns begin in the flat array of all patterns, and its end.
    """

    shapes: IntArray
    of_edge: Any
    turned: BoolArray
    starts: IntArray = field(init=False)

    def __post_init__(self) -> None:
        self.__dict__["starts"] = offsets_of(self.shapes.prod(axis=1))
        for array in (self.shapes, self.of_edge, self.turned, self.starts):
            array.setflags(write=False)

    @classmethod
    def checked(cls, shapes: Any, of_edge: Any, turned: Any, ends: IntArray) -> TableUse:
        """Which patterns edges use, checked against the state counts of their ends (m, 2)."""
        num_edges = len(ends)
        patterns = as_whole_numbers("pattern_of_edge", of_edge)
        if patterns.shape != (num_edges,):
            raise ModelError(f"pattern_of_edge must hold one pattern per edge, {num_edges}, got {patterns.shape}")
        if num_edges and not 0 <= patterns.min() <= patterns.max() < len(shapes):
            raise ModelError(f"pattern_of_edge must be from 0 to {len(shapes) - 1}")
        flags = np.asarray(turned, dtype=bool)
        if flags.shape != (num_edges,):
            raise ModelError(f"turned must hold one flag per edge, {num_edges}, got {flags.shape}")
        wanted = np.where(flags[:, None], ends[:, ::-1], ends)
        wrong: Any = []
        if num_edges:
            wrong = np.flatnonzero((np.asarray(shapes)[patterns] != wanted).any(axis=1))
        if len(wrong):
            e = int(wrong[0])
            raise ModelError(
                f"patterns must have the shapes of their edges: edge {e} joins {ends[e, 0]} and {ends[e, 1]} states, "
                f"but its pattern has shape {tuple(np.asarray(shapes)[patterns[e]].tolist())}"
            )
        return cls(np.asarray(shapes, dtype=np.int64).reshape(-1, 2), patterns.astype(np.int32), flags)

    @property
    def num_patterns(self) -> int:
        """Number of patterns p."""
        return len(self.shapes)

    @property
    def num_edges(self) -> int:
        """Number of edges m."""
        return len(self.of_edge)

    def of(self, edges: Any) -> TableUse:
        """The same patterns for some of the edges alone."""
        return TableUse(self.shapes, self.of_edge[edges], self.turned[edges])

    @cached_property
    def by_size(self) -> list[tuple[int, IntArray]]:
        """Numbers of entries of tables, each with the edges whose tables have as many."""
        sizes = self.shapes.prod(axis=1)
        different = np.unique(sizes).tolist()
        if len(different) == 1:
            return [(int(different[0]), np.arange(self.num_edges))]
        of_edge = sizes[self.of_edge]
        return [(int(size), np.flatnonzero(of_edge == size)) for size in different]

    def __reduce__(self) -> tuple[Any, ...]:
        # Arrays come back from a pickle writable: going through the constructor locks them again.
        return TableUse, (self.shapes, self.of_edge, self.turned)


@dataclass(frozen=True, eq=False, repr=False)
class SharedTables:
    """Tables of edges as patterns with weights; the arrays are read-only.

    Attributes
    ----------
    use : TableUse
        Which pattern the table of every edge is made of.
    patterns : float array (sum of their sizes,)
        The patterns one after another, row by row.
    weights : float array (m,)
        By what the pattern of every edge is multiplied. A weight of 0 gives a table of zeros; patterns that hold -inf
        take no weight below 0.
    next_weights : float array (m,), optional
        By what the following pattern, which has the same shape, is multiplied and added.
    """

    use: TableUse
    patterns: FloatArray
    weights: FloatArray
    next_weights: FloatArray | None = None

    def __post_init__(self) -> None:
        for array in (self.patterns, self.weights, self.next_weights):
            if array is not None:
                array.setflags(write=False)

    @classmethod
    def checked(
        cls, use: TableUse, patterns: FloatArray, weights: FloatArray, next_weights: FloatArray | None = None
    ) -> SharedTables:
        """Shared tables out of arrays that are copied and checked; a :class:`ModelError` where they do not fit."""
        entries = np.array(patterns, dtype=np.float64) + 0.0
        if entries.shape != (int(use.starts[-1]),):
            raise ModelError(f"patterns must have {use.starts[-1]} entries to fit their shapes, got {entries.shape}")
        check_log_values("patterns", entries)
        tables = cls(use, entries, _as_weights("weights", weights, use), _as_weights("next_weights", next_weights, use))
        tables._check_forbidden()
        tables._check_neighbors()
        largest = tables.largest_entries()
        if largest.max(initial=0.0) > MAX_LOG_VALUE:
            e = int(largest.argmax())
            raise ModelError(f"weights must leave tables up to {MAX_LOG_VALUE:g}, got {largest[e]:g} on edge {e}")
        return tables

    def _check_forbidden(self) -> None:
        """Raise a :class:`ModelError` where a weight below 0, or a mixture, meets a pattern that holds -inf."""
        forbids = self.forbids
        if not forbids.any():
            return
        unfit = forbids[self.use.of_edge] & (self.weights < 0.0)
        if self.next_weights is not None:
            following = np.append(forbids[1:], False)
            unfit |= (forbids | following)[self.use.of_edge] & (self.next_weights != 0.0)
        if unfit.any():
            e = int(unfit.argmax())
            raise ModelError(
                f"weights must be at least 0 where a pattern holds -inf, got {self.weights[e]:g} for edge {e}"
            )

    def _check_neighbors(self) -> None:
        """Raise a :class:`ModelError` where the pattern after that of an edge is wanted and has another shape."""
        if self.next_weights is None:
            return
        mixed = np.unique(self.use.of_edge[self.next_weights != 0.0])
        shapes = self.use.shapes
        if len(mixed) and (mixed[-1] + 1 >= len(shapes) or (shapes[mixed] != shapes[mixed + 1]).any()):
            raise ModelError("next_weights must be 0 where the following pattern has another shape, or is missing")

    # -- patterns -------------------------------------------------------------------------------------------------

    def pattern(self, number: int) -> FloatArray:
        """A pattern as a matrix (a read-only view)."""
        first, end = self.use.starts[number : number + 2]
        return self.patterns[first:end].reshape(self.use.shapes[number])

    @cached_property
    def forbids(self) -> BoolArray:
        """Whether each pattern (p,) holds -inf."""
        if not len(self.patterns):
            return np.zeros(self.use.num_patterns, dtype=bool)
        return np.asarray(np.minimum.reduceat(self.patterns, self.use.starts[:-1]) == -np.inf)

    @property
    def has_forbidden(self) -> bool:
        """Whether the table of some edge holds -inf."""
        return bool((self.forbids[self.use.of_edge] & (self.weights > 0.0)).any()) if self.forbids.any() else False

    @property
    def num_bytes(self) -> int:
        """Bytes of all arrays."""
        arrays = [self.patterns, self.weights, self.use.of_edge, self.use.turned, self.use.shapes, self.use.starts]
        if self.next_weights is not None:
            arrays.append(self.next_weights)
        return sum(array.nbytes for array in arrays)

    # -- tables ---------------------------------------------------------------------------------------------------

    def of_edges(self, edges: Any, num_rows: int, num_cols: int) -> FloatArray:
        """Tables (k, entries) of some edges, an array or a slice, all of which have this shape."""
        begins = self.use.starts[self.use.of_edge[edges]]
        turned = self.use.turned[edges]
        local = np.arange(num_rows * num_cols)
        places = begins[:, None] + local
        if turned.any():
            flipped = local.reshape(num_cols, num_rows).T.reshape(-1)
            places = begins[:, None] + np.where(turned[:, None], flipped, local)
        elif len(begins) and (begins == begins[0]).all():
            places = (begins[0] + local)[None]
        return self._mixed(edges, places, len(local))

    def _mixed(self, edges: Any, places: IntArray, size: int) -> FloatArray:
        """Tables (k, entries) of some edges from the places of the entries of their patterns."""
        tables = weighted(self.patterns[places], self.weights[edges])
        if self.next_weights is not None:
            following = self.next_weights[edges]
            mixed = np.flatnonzero(following)
            places = np.broadcast_to(places, (len(following), size))[mixed]
            tables[mixed] += weighted(self.patterns[places + size], following[mixed])
        return tables

    def entries(self, edges: IntArray, rows: IntArray, cols: IntArray) -> FloatArray:
        """One entry of the table of each of some edges, all arrays of one shape (or that broadcast)."""
        use = self.use
        pattern = use.of_edge[edges]
        turned = use.turned[edges]
        width = use.shapes[pattern, 1]
        places = use.starts[pattern] + np.where(turned, cols * width + rows, rows * width + cols)
        shape = places.shape
        flat = np.broadcast_to(edges, shape).reshape(-1)
        values = weighted(self.patterns[places].reshape(-1, 1), self.weights[flat])
        if self.next_weights is not None:
            mixed = np.flatnonzero(self.next_weights[flat])
            sizes = use.shapes[use.of_edge[flat[mixed]]].prod(axis=1)
            following = self.patterns[places.reshape(-1)[mixed] + sizes][:, None]
            values[mixed] += weighted(following, self.next_weights[flat[mixed]])
        return values.reshape(shape)

    def flat(self, offsets: IntArray, shapes: list[tuple[int, int, IntArray]]) -> FloatArray:
        """All tables one after another, as ``log_pairwise`` has them.

        ``offsets`` are where they begin, ``shapes`` those of :attr:`fastmix.Structure.table_shapes`.
        """
        result = np.empty(int(offsets[-1]))
        for num_rows, num_cols, members in shapes:
            size = num_rows * num_cols
            chunk = max(1, GATHERED_TABLE_ENTRIES // size)
            for start in range(0, len(members), chunk):
                edges = members[start : start + chunk]
                tables = self.of_edges(edges, num_rows, num_cols)
                if len(shapes) == 1:
                    result[start * size : (start + len(edges)) * size] = tables.reshape(-1)
                else:
                    result[offsets[edges][:, None] + np.arange(size)] = tables
        return result

    # -- numbers of tables ----------------------------------------------------------------------------------------

    def least_and_largest(self) -> tuple[FloatArray, FloatArray]:
        """The least and the largest entry of the table of every edge, (m,) each; -inf where entries are forbidden."""
        if self.next_weights is not None:
            least = np.empty(self.use.num_edges)
            largest = np.empty(self.use.num_edges)
            for edges, tables in self._unturned():
                least[edges] = tables.min(axis=1)
                largest[edges] = tables.max(axis=1)
            return least, largest
        return self._extremes(self.patterns, self.patterns)

    def least_finite(self) -> FloatArray:
        """The least finite entry of the table of every edge (m,), 0 where there is none."""
        if self.next_weights is not None or not self.forbids.any():
            return self.least_and_largest()[0]
        finite = self.patterns > -np.inf
        least, _ = self._extremes(np.where(finite, self.patterns, np.inf), self.patterns)
        return np.where(np.isfinite(least), least, 0.0)

    def largest_entries(self) -> FloatArray:
        """The largest finite absolute entry of the table of every edge (m,), 0 where there is none."""
        if self.next_weights is not None:
            least, largest = self.least_and_largest()
            return np.maximum(np.abs(least), np.abs(largest))
        if not len(self.patterns):
            return np.zeros(self.use.num_edges)
        sizes = np.where(self.patterns > -np.inf, np.abs(self.patterns), 0.0)
        of_patterns = np.maximum.reduceat(sizes, self.use.starts[:-1])
        return np.asarray(np.abs(self.weights) * of_patterns[self.use.of_edge])

    def _extremes(self, low_values: FloatArray, high_values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The least and the largest entries of tables from those of patterns: products with a weight keep the order."""
        if not len(self.patterns):
            return np.zeros(self.use.num_edges), np.zeros(self.use.num_edges)
        starts = self.use.starts[:-1]
        low = np.minimum.reduceat(low_values, starts)[self.use.of_edge]
        high = np.maximum.reduceat(high_values, starts)[self.use.of_edge]
        below = self.weights < 0.0
        with np.errstate(invalid="ignore"):
            least = np.where(self.weights == 0.0, 0.0, self.weights * np.where(below, high, low)) + 0.0
            largest = np.where(self.weights == 0.0, 0.0, self.weights * np.where(below, low, high)) + 0.0
        return least, largest

    def _unturned(self) -> Iterator[tuple[IntArray, FloatArray]]:
        """Edges and their tables (k, entries), some at a time, with rows and columns as in the patterns."""
        for size, members in self.use.by_size:
            chunk = max(1, GATHERED_TABLE_ENTRIES // size)
            for start in range(0, len(members), chunk):
                edges = members[start : start + chunk]
                places = self.use.starts[self.use.of_edge[edges]][:, None] + np.arange(size)
                yield edges, self._mixed(edges, places, size)

    # -- other shared tables --------------------------------------------------------------------------------------

    def edges_with(self, pattern: int) -> Iterator[tuple[IntArray, FloatArray]]:
        """The edges with a pattern and its weights there; then those that mix it with the one before it, if any."""
        edges = np.flatnonzero(self.use.of_edge == pattern)
        yield edges, self.weights[edges]
        if self.next_weights is not None and pattern > 0:
            edges = np.flatnonzero((self.use.of_edge == pattern - 1) & (self.next_weights != 0.0))
            yield edges, self.next_weights[edges]

    def scaled(self, factor: float) -> SharedTables:
        """All tables times a factor of at least 0."""
        following = None if self.next_weights is None else factor * self.next_weights
        return replace(self, weights=factor * self.weights, next_weights=following)

    def with_weights(self, vector: FloatArray) -> SharedTables:
        """The same patterns with the weights of a vector: those of all edges, then those of following patterns."""
        num_edges = self.use.num_edges
        following = None if self.next_weights is None else vector[num_edges:].copy()
        return SharedTables(self.use, self.patterns, vector[:num_edges].copy(), following)

    def of(self, edges: Any) -> SharedTables:
        """The tables of some of the edges alone."""
        following = None if self.next_weights is None else self.next_weights[edges]
        return SharedTables(self.use.of(edges), self.patterns, self.weights[edges], following)

    def __reduce__(self) -> tuple[Any, ...]:
        return SharedTables, (self.use, self.patterns, self.weights, self.next_weights)


def _as_weights(name: str, values: Any, use: TableUse) -> Any:
    """A checked copy of weights, one finite number per edge; None stays None."""
    if values is None:
        return None
    weights = np.array(values, dtype=np.float64) + 0.0
    if weights.shape != (use.num_edges,) or not np.isfinite(weights).all():
        raise ModelError(f"{name} must be one finite number per edge, {use.num_edges}, got shape {weights.shape}")
    return weights
