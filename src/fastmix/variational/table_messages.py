"""Messages as vectors of logs, for tables of any shape and factors over any number of variables."""

from __future__ import annotations

import math
from itertools import combinations, pairwise

import numpy as np

from fastmix._arrays import BoolArray, FloatArray, IntArray, read_only_fields
from fastmix._clock import NO_LIMIT, Clock
from fastmix.model import MarkovRandomField
from fastmix.model.flat import offsets_of
from fastmix.variational.messages import (
    Advance,
    Beliefs,
    PairTables,
    Receivers,
    factor_tables,
    factor_work,
    incoming_messages,
    table_work,
)
from fastmix.variational.tuning import COMPARED_ENTRIES, ENTRIES_PER_CALL, TAME_LOG_RANGE

__all__ = ["TableMessages"]


class TableMessages:
    """Messages that start at logs of 0, and are all renewed at once.

    Edges of zeros between variables of a factor are there for the graph alone, and carry no messages. Every state must
    have an allowed partner at every neighbor.
    """

    def __init__(self, model: MarkovRandomField) -> None:
        self.model = model
        self.kernel = "factors" if model.num_factors else "tables"
        self.entries_per_iteration = table_work(model)
        self._carries = _carries_messages(model)
        self.pairs = read_only_fields(_pair_tables(model, self._carries))
        self.factors = factor_tables(model)
        self.receivers, self.starts = _receivers(model, self.pairs)
        num_entries = int(self.starts[-1])
        self.messages = np.zeros(num_entries)
        self.spare = np.zeros(num_entries)  # for the new messages
        # Working space of the kernels: log-beliefs of all variables, vectors of one, and the table of one factor.
        widest = int(model.num_states.max(initial=0))
        self.totals = np.empty(len(model.log_unary))
        self.cavity = np.empty(widest)
        self.work = np.empty(widest)
        self._table = np.empty(int(np.diff(self.factors.starts).max(initial=0)))
        self._parts = _parts_of_iteration(factor_work(model))

    def advance(self, num_iterations: int, damping: float, tol: float, clock: Clock = NO_LIMIT) -> Advance:
        """Renew all messages at once, at most so many times.

        Iterations so long that the clock must be read within them are made in parts; one that it ends does not count.
        """
        from fastmix.variational.table_kernels import table_rounds

        found = Advance(0, math.inf, False)
        if len(self._parts) > 2:
            num_iterations = 1
        for first, stop in pairwise(self._parts):
            if first and clock.past():
                break
            num_made, change, has_converged = table_rounds(
                self.receivers, self.pairs, self.factors, self.starts, self.messages, self.spare, self.totals,
                self.cavity, self.work, self._table, damping, tol, num_iterations, first, stop,
            )  # fmt: skip
            found = Advance(int(num_made), float(change), bool(has_converged))
        return found

    def beliefs(self, *, every_edge: bool = True, pairs: bool = True) -> Beliefs:
        """Marginals and log Z; without ``every_edge`` edges that carry no messages may be left out."""
        from fastmix.variational.belief_kernels import node_beliefs, table_beliefs

        model = self.model
        nodes = np.empty(len(model.log_unary))
        if not pairs:
            node_beliefs(self.receivers, self.starts, self.messages, nodes)
            return Beliefs(nodes, np.zeros(0), math.nan)
        edges = np.empty(len(model.log_pairwise))
        of_factors = np.empty(len(model.log_factors))
        # The tables that are used may be one for all edges, but each has beliefs of its own.
        own_starts = model.pairwise_offsets[:-1][self._carries]
        tables = read_only_fields(self.pairs._replace(starts=own_starts, logs=model.log_pairwise))
        log_z = table_beliefs(
            self.receivers, tables, self.factors, self.starts, self.messages, nodes, edges, of_factors
        )
        if every_edge:
            self._fill_edges(edges, of_factors)
        return Beliefs(nodes, edges, model.log_constant + float(log_z))

    def _fill_edges(self, edges: FloatArray, of_factors: FloatArray) -> None:
        """Write the beliefs of edges without messages, from the first factor that holds both ends."""
        model = self.model
        starts = model.pairwise_offsets.tolist()
        missing = {tuple(model.edges[e].tolist()): e for e in np.flatnonzero(~self._carries)}
        tables = np.split(of_factors, model.structure.factor_offsets[1:-1])
        for scope, values in zip(model.structure.scopes, tables, strict=False):
            table = values.reshape(model.num_states[scope])
            for (row_axis, row), (column_axis, column) in combinations(enumerate(scope.tolist()), 2):
                e = missing.pop((row, column), None)
                if e is not None:
                    others = tuple(axis for axis in range(len(scope)) if axis not in (row_axis, column_axis))
                    edges[starts[e] : starts[e + 1]] = table.sum(axis=others).reshape(-1)


def _carries_messages(model: MarkovRandomField) -> BoolArray:
    """For each edge whether it carries messages: not if it is of zeros and between variables of one factor."""
    carries = np.ones(model.num_edges, dtype=bool)
    within_factors = model.structure.scope_pairs
    if len(within_factors):
        sizes = np.maximum.reduceat(np.abs(model.log_pairwise), model.pairwise_offsets[:-1])
        carries[within_factors] = sizes[within_factors] > 0.0
    return carries


def _receivers(model: MarkovRandomField, pairs: PairTables) -> tuple[Receivers, IntArray]:
    """The variables with the messages that they receive, and where each message begins."""
    to_first = pairs.edges[:, 0]
    to_second = pairs.edges[:, 1]
    receiver = np.concatenate([to_second, to_first, model.structure.scope_variables])
    indptr = model.adjacency.indptr
    if model.num_factors:
        indptr = offsets_of(np.bincount(receiver, minlength=model.num_variables))
        incoming = np.argsort(receiver, kind="stable")
    else:
        incoming = incoming_messages(model)
    starts = offsets_of(model.num_states[receiver])
    return read_only_fields(Receivers(model.log_unary, model.unary_offsets, indptr, incoming)), starts


def _pair_tables(model: MarkovRandomField, carries: BoolArray) -> PairTables:
    """The tables of edges with messages, and their exponentials, each divided by the largest of its table.

    Where all edges have the same table, as in pictures, it is there once: then messages are not as slow as the memory,
    and no exponentials of millions of equal entries are taken.
    """
    edges = model.edges[carries]
    tables = model.log_pairwise
    offsets = model.pairwise_offsets
    if not model.num_edges:
        return PairTables(edges, offsets[:-1][carries], tables, np.zeros(0), np.zeros(0, dtype=np.bool_))
    if is_one_table(model):
        tables = tables[: offsets[1]]
        offsets = offsets[:2]
    starts = offsets[:-1]
    top = np.maximum.reduceat(tables, starts)
    is_tame = top - np.minimum.reduceat(tables, starts) <= TAME_LOG_RANGE
    weights = tables - np.repeat(top, np.diff(offsets))
    np.exp(weights, out=weights)
    if len(starts) == 1:
        count = int(np.count_nonzero(carries))
        return PairTables(edges, np.zeros(count, dtype=np.int64), tables, weights, np.repeat(is_tame, count))
    return PairTables(edges, starts[carries], tables, weights, is_tame[carries])


def is_one_table(model: MarkovRandomField) -> bool:
    """Whether all edges have the same table, of two or more; the first that differs ends the search."""
    shapes = model.structure.table_shapes
    if len(shapes) != 1 or model.num_edges < 2:
        return False
    tables = model.log_pairwise.reshape(model.num_edges, -1)
    step = max(1, COMPARED_ENTRIES // tables.shape[1])
    return all(bool((tables[k : k + step] == tables[0]).all()) for k in range(0, len(tables), step))


def _parts_of_iteration(work: FloatArray) -> list[int]:
    """Factors with which parts of an iteration begin, and the end: each is about as much work as one call may be."""
    part = np.floor(np.cumsum(work) / ENTRIES_PER_CALL)
    return [0, *(np.flatnonzero(np.diff(part)) + 1).tolist(), len(work)]
