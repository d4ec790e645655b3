"""What the kinds of messages of belief propagation share: their interface, and the arrays that kernels read.

An edge e = (i, j) of m carries two messages: number e goes to j, number m + e goes to i. Those from factors over more
variables follow, in the order of their scopes.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from fastmix._arrays import BoolArray, FloatArray, IntArray, read_only_fields
from fastmix._clock import NO_LIMIT, Clock
from fastmix.model import MarkovRandomField

__all__ = [
    "Advance", "Beliefs", "FactorTables", "Messages", "PairTables", "Receivers", "factor_tables", "factor_work",
    "incoming_messages", "table_work",
]  # fmt: skip


class Advance(NamedTuple):
    """What some iterations have come to."""

    num_iterations: int  #: iterations made
    largest_change: float  #: largest change of the log of a message in the last of them, before damping
    has_converged: bool  #: whether that is within the tolerance


class Beliefs(NamedTuple):
    """What the messages say about the model."""

    node_marginals: FloatArray  #: flat, as the unaries
    edge_marginals: FloatArray  #: flat, as the tables of edges; empty where they were not asked for
    log_z: float  #: the Bethe estimate; NaN without marginals of edges


class Messages(Protocol):
    """The messages of a model, as one of the ways to keep them has it."""

    kernel: str  #: name of the way, for the statistics
    entries_per_iteration: float  #: of tables, about, that an iteration goes through

    def advance(self, num_iterations: int, damping: float, tol: float, clock: Clock = NO_LIMIT) -> Advance:
        """Renew the messages, at most so many times, until none changes by more than the tolerance."""

    def beliefs(self, *, every_edge: bool = True, pairs: bool = True) -> Beliefs:
        """Marginals and log Z from the messages as they stand.

        Without ``every_edge`` edges that carry no messages may be left out; without ``pairs`` there are marginals of
        variables alone.
        """


class Receivers(NamedTuple):
    """The variables, as receivers of messages.

    Variable i has the log-potentials ``unary[starts[i]:starts[i + 1]]`` and receives the messages
    ``incoming[indptr[i]:indptr[i + 1]]``.
    """

    unary: FloatArray
    starts: IntArray
    indptr: IntArray
    incoming: IntArray


class PairTables(NamedTuple):
    """The edges with messages: ends (m, 2), where the table of each begins, all tables, and their exponentials.

    Exponentials (``weights``) are divided by the largest of their table. They are for use where the table is ``tame``:
    none of them vanishes.
    """

    edges: IntArray
    starts: IntArray
    logs: FloatArray
    weights: FloatArray
    tame: BoolArray


class FactorTables(NamedTuple):
    """The factors over three or more variables.

    Factor a has the variables ``members[scope_starts[a]:scope_starts[a + 1]]`` and a table from ``starts[a]`` on.
    """

    scope_starts: IntArray
    members: IntArray
    starts: IntArray
    logs: FloatArray


def factor_tables(model: MarkovRandomField) -> FactorTables:
    """The factors over three or more variables of a model, for kernels."""
    structure = model.structure
    return read_only_fields(
        FactorTables(structure.scope_starts, structure.scope_variables, structure.factor_offsets, model.log_factors)
    )


def factor_work(model: MarkovRandomField) -> FloatArray:
    """Table entries that are visited to renew the messages of every factor: those of its table, times its members."""
    structure = model.structure
    num_entries = np.diff(structure.factor_offsets).astype(float)
    return num_entries * np.diff(structure.scope_starts)


def table_work(model: MarkovRandomField) -> float:
    """Entries of tables of edges, and those of :func:`factor_work`, that an iteration goes through."""
    return float(model.pairwise_offsets[-1] + factor_work(model).sum())


def incoming_messages(model: MarkovRandomField) -> IntArray:
    """Numbers of the messages that variables receive from edges, in the order of the adjacency."""
    graph = model.adjacency
    goes_down = model.structure.directed.owner < graph.neighbors
    return graph.edge_ids + np.where(goes_down, model.num_edges, 0)
