"""Messages over tables that edges share, in time and memory in proportion to the states for Potts and linear tables."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastmix._arrays import FloatArray, IntArray, read_only, read_only_fields
from fastmix._clock import NO_LIMIT, Clock
from fastmix._memory import check_memory
from fastmix.model import MarkovRandomField
from fastmix.model.flat import offsets_of
from fastmix.model.pattern_forms import ANY, EdgeForms, edge_forms
from fastmix.model.shared import SharedTables
from fastmix.model.tuning import GATHERED_TABLE_ENTRIES
from fastmix.modes.pattern_arrays import pattern_tables
from fastmix.variational.messages import Advance, Beliefs, Receivers
from fastmix.variational.tuning import MAX_GROUPED_TABLES, PRODUCT_LOG_RANGE, TAME_LOG_RANGE

__all__ = ["PatternMessages"]


class _Room(NamedTuple):
    """Working space of the kernels: cavities of both ends, a message, sums of its parts, and one table."""

    first_cavity: FloatArray
    second_cavity: FloatArray
    out: FloatArray
    ends: FloatArray
    table: FloatArray


class PatternMessages:
    """Messages that start uniform, and are all renewed at once, of a model whose edges share tables.

    They are kept as they are where no product of the messages that a variable receives can leave the range of doubles,
    otherwise as logs. The model must fit, see :meth:`fits`.
    """

    kernel = "patterns"

    def __init__(self, model: MarkovRandomField) -> None:
        arrays, shared = pattern_tables(model)
        ranges = _ranges(shared)
        self.model = model
        self.as_logs = _largest_range_at_variable(model, ranges) > PRODUCT_LOG_RANGE
        self.tables = arrays
        self.forms: EdgeForms = read_only_fields(edge_forms(shared))
        self.entries_per_iteration = _work(model, self.forms)
        self._tops = read_only(model.largest_of_tables())
        self._factors = read_only(np.exp(self.forms.step))
        self._order = read_only(_order_of_edges(shared, self.forms))
        counts = model.num_states
        ends = counts[model.edges].reshape(-1, 2)
        self.starts = read_only(offsets_of(ends.sum(axis=1)))
        self.receivers = read_only_fields(_receivers(model, self.starts, ends, self.as_logs))
        self._unary_tops = _tops_of_unaries(model)
        self.messages = np.full(int(self.starts[-1]), 0.0 if self.as_logs else 1.0)
        self.totals = np.empty(len(model.log_unary))
        widest = int(counts.max(initial=0))
        largest = int(shared.use.shapes.prod(axis=1).max(initial=0)) if (self.forms.kind == ANY).any() else 0
        first, second, out, parts = np.empty((4, widest))
        self._room = _Room(first, second, out, parts, np.empty(largest))

    @staticmethod
    def fits(model: MarkovRandomField) -> bool:
        """Whether edges share tables, none of which has a range that exponentials of its entries leave."""
        shared = model.shared_tables
        if shared is None or model.has_forbidden:
            return False
        return bool(_ranges(shared).max(initial=0.0) <= TAME_LOG_RANGE)

    def advance(
        self,
        num_iterations: int,
        damping: float,
        tol: float,
        clock: Clock = NO_LIMIT,  # noqa: ARG002 (iterations are short)
    ) -> Advance:
        """Renew all messages at once, at most so many times."""
        from fastmix.variational.pattern_message_kernels import pattern_rounds

        num_made, change, has_converged = pattern_rounds(
            self.receivers, self.model.edges, self._order, self.tables, self.forms, self._factors, self._tops,
            self.starts, self.messages, self.totals, self._room, self.as_logs, damping, tol, num_iterations,
        )  # fmt: skip
        return Advance(int(num_made), float(change), bool(has_converged))

    def beliefs(self, *, every_edge: bool = True, pairs: bool = True) -> Beliefs:
        """Marginals and log Z; there are none of edges without ``every_edge``, which need a table for each."""
        from fastmix.variational.pattern_message_kernels import pattern_beliefs

        model = self.model
        edges = self._edge_beliefs() if every_edge and pairs else np.zeros(0)
        log_z = pattern_beliefs(
            self.receivers, model.edges, self.tables, self.forms, self._factors, self._tops, self.starts, self.messages,
            self.totals, self._room, self.as_logs, pairs,
        )  # fmt: skip
        nodes = self.totals
        self.totals = np.empty(len(nodes))
        if not pairs:
            return Beliefs(nodes, edges, float("nan"))
        return Beliefs(nodes, edges, model.log_constant + float(self._unary_tops.sum()) + float(log_z))

    def _edge_beliefs(self) -> FloatArray:
        """The beliefs of all edges, laid out as the tables in full."""
        model = self.model
        num_entries = int(model.pairwise_offsets[-1])
        check_memory(16.0 * num_entries, "edge_marginals", "leave them out")
        logs = self.messages if self.as_logs else np.log(self.messages)
        totals = model.log_unary.copy()
        to_second = self.starts[:-1]
        to_first = to_second + model.num_states[model.edges[:, 1]]
        for ends, places in ((model.edges[:, 1], to_second), (model.edges[:, 0], to_first)):
            counts = model.num_states[ends]
            local = np.arange(counts.sum()) - np.repeat(offsets_of(counts)[:-1], counts)
            receiving = np.repeat(model.unary_offsets[ends], counts) + local
            totals += np.bincount(receiving, logs[np.repeat(places, counts) + local], len(totals))
        result = np.empty(num_entries)
        for num_rows, num_cols, members in model.structure.table_shapes:
            chunk = max(1, GATHERED_TABLE_ENTRIES // (num_rows * num_cols))
            for begin in range(0, len(members), chunk):
                some = members[begin : begin + chunk]
                first, second = model.unary_offsets[model.edges[some]].T
                rows = np.arange(num_rows)
                cols = np.arange(num_cols)
                of_first = totals[first[:, None] + rows] - logs[to_first[some][:, None] + rows]
                of_second = totals[second[:, None] + cols] - logs[to_second[some][:, None] + cols]
                values = model.edge_tables(some, num_rows, num_cols).reshape(-1, num_rows, num_cols)
                values = values + of_first[:, :, None] + of_second[:, None, :]
                values -= values.max(axis=(1, 2), keepdims=True)
                np.exp(values, out=values)
                values /= values.sum(axis=(1, 2), keepdims=True)
                places = model.pairwise_offsets[some][:, None] + np.arange(num_rows * num_cols)
                result[places] = values.reshape(len(some), -1)
        return result


def _ranges(shared: SharedTables) -> FloatArray:
    """The largest less the least entry of the table of every edge: what a log of a message can differ by."""
    least, largest = shared.least_and_largest()
    return largest - least


def _largest_range_at_variable(model: MarkovRandomField, ranges: FloatArray) -> float:
    """The largest sum of the ranges of the tables around a variable."""
    sums = np.bincount(model.edges.reshape(-1), np.repeat(ranges, 2), model.num_variables)
    return float(sums.max(initial=0.0))


def _work(model: MarkovRandomField, forms: EdgeForms) -> float:
    """Entries of messages, and of tables without a special form, that are visited in an iteration."""
    ends = model.num_states[model.edges].reshape(-1, 2)
    tables = ends.prod(axis=1)[forms.kind == ANY]
    return float(ends.sum() + tables.sum() + len(model.log_unary))


def _order_of_edges(shared: SharedTables, forms: EdgeForms) -> IntArray:
    """The edges, those of one pattern and weight one after another where exponentials are taken and these are few."""
    edges = np.arange(shared.use.num_edges)
    if not (forms.kind == ANY).any():
        return edges
    columns = [shared.use.of_edge.astype(np.float64), shared.weights]
    if shared.next_weights is not None:
        columns.append(shared.next_weights)
    order = np.lexsort(columns)
    changes = np.zeros(max(len(edges) - 1, 0), dtype=bool)
    for column in columns:
        changes |= column[order[1:]] != column[order[:-1]]
    return order if np.count_nonzero(changes) < MAX_GROUPED_TABLES else edges


def _tops_of_unaries(model: MarkovRandomField) -> FloatArray:
    """The largest unary entry of every variable."""
    if not model.num_variables:
        return np.zeros(0)
    return np.asarray(np.maximum.reduceat(model.log_unary, model.unary_offsets[:-1]))


def _receivers(model: MarkovRandomField, starts: IntArray, ends: IntArray, as_logs: bool) -> Receivers:
    """The variables, with unaries whose largest is 0, or exponentials of these, and places of incoming messages."""
    graph = model.adjacency
    unary = model.log_unary - np.repeat(_tops_of_unaries(model), model.num_states)
    if not as_logs:
        np.exp(unary, out=unary)
    is_first = model.structure.directed.owner < graph.neighbors
    places = starts[graph.edge_ids] + np.where(is_first, ends[graph.edge_ids, 1], 0)
    return Receivers(unary, model.unary_offsets, graph.indptr, places)
