"""What passes of messages and descents read of a model whose edges may share tables."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import BoolArray, FloatArray, IntArray, read_only_fields
from fastmix.model import MarkovRandomField
from fastmix.model.pattern_forms import tables_as_patterns
from fastmix.model.shared import SharedTables
from fastmix.modes.tuning import MAX_WEIGHT_RATIO

__all__ = ["PatternTables", "Variables", "pattern_tables", "variables_of"]


class Variables(NamedTuple):
    """Unaries and neighbors of all variables.

    Variable i has the log-potentials ``unary[starts[i]:starts[i + 1]]``, the neighbors
    ``neighbors[indptr[i]:indptr[i + 1]]``, which ascend, and edges to these with the numbers ``edge_ids`` of the same
    places.
    """

    unary: FloatArray
    starts: IntArray
    indptr: IntArray
    neighbors: IntArray
    edge_ids: IntArray


class PatternTables(NamedTuple):
    """The tables of all edges as patterns with weights, see :class:`fastmix.model.shared.SharedTables`.

    The pattern of edge e begins at ``starts[of_edge[e]]``; ``next_weights`` is empty where no table is a mixture.
    """

    patterns: FloatArray
    starts: IntArray
    of_edge: NDArray[np.int32]
    turned: BoolArray
    weights: FloatArray
    next_weights: FloatArray


def variables_of(model: MarkovRandomField) -> Variables:
    """The variables of a model; what their unaries forbid has a large penalty."""
    graph = model.adjacency
    unary = model.log_unary
    if unary.size and unary.min() == -np.inf:
        unary = np.maximum(unary, _least_entry(model))
    return read_only_fields(Variables(unary, model.unary_offsets, graph.indptr, graph.neighbors, graph.edge_ids))


def pattern_tables(model: MarkovRandomField) -> tuple[PatternTables, SharedTables]:
    """The tables of a model, as kernels read them and as they stand there; what they forbid has a large penalty."""
    tables = tables_as_patterns(model)
    if tables.has_forbidden:
        tables = _without_forbidden(tables, _least_entry(model))
    following: Any = np.zeros(0) if tables.next_weights is None else tables.next_weights
    use = tables.use
    arrays = PatternTables(tables.patterns, use.starts, use.of_edge, use.turned, tables.weights, following)
    return read_only_fields(arrays), tables


def _least_entry(model: MarkovRandomField) -> float:
    """The penalty for -inf: far below everything else, for a descent must tell bad from worse."""
    finite = model.log_unary[model.log_unary > -np.inf]
    largest = max(float(np.abs(finite).max(initial=0.0)), float(model.sizes_of_tables().max(initial=0.0)))
    return -1e3 * (1.0 + largest)


def _without_forbidden(tables: SharedTables, least: float) -> SharedTables:
    """The same tables with a penalty in place of -inf, at least about as large on every edge with a usual weight.

    Penalties are in proportion to the weights, as all entries are: those of edges whose weight is far below the largest
    are smaller. Any penalty leaves a bound valid.
    """
    positive = tables.weights[tables.weights > 0.0]
    unit = max(float(positive.min()), float(positive.max()) / MAX_WEIGHT_RATIO)
    patterns = np.maximum(tables.patterns, least / unit)
    return SharedTables(tables.use, patterns, tables.weights, tables.next_weights)
