"""Belief propagation for many rows of evidence on one model: messages of all rows side by side.

The fixed points are those of :func:`fastmix.loopy_bp`; variables send their messages in turn, forward and back, so that
one pass each way is all that a tree needs. Rows that do not settle are begun anew with more damping, without the
others, so that the answer for a row does not depend on how many there are beside it, but for the tolerance.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from fastmix._arrays import BoolArray, FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix._memory import check_memory
from fastmix.graphs import connected_components
from fastmix.model import MarkovRandomField, check_pairwise
from fastmix.variational.tuning import (
    DAMPINGS,
    PASSES_PER_CALL,
    PRODUCT_LOG_RANGE,
    ROW_BYTES,
    ROW_PASSES,
    ROW_TOL,
    ROWS_SIDE_BY_SIDE,
)

__all__ = ["RowBeliefs", "RowMessages"]


@dataclass(frozen=True, eq=False)
class RowBeliefs:
    """Beliefs of rows of evidence.

    Attributes
    ----------
    node_marginals : float array (N, states of all variables)
        Of the last messages; NaN in rows that are lost.
    log_z : float array (N,)
        The Bethe estimate; NaN where messages have not converged.
    converged : bool array (N,)
        Whether the last pass changed no message by more than the tolerance.
    is_lost : bool array (N,)
        Rows in which all products of messages were zero: what is observed is impossible together, or so unlikely that
        it is out of range.
    """

    node_marginals: FloatArray
    log_z: FloatArray
    converged: BoolArray
    is_lost: BoolArray


class RowMessages:
    """A model of pairs, ready for rows of evidence: where messages and tables lie.

    Parameters
    ----------
    model : MarkovRandomField
        Pairs of variables; forbidden states and pairs are fine.
    """

    def __init__(self, model: MarkovRandomField) -> None:
        check_pairwise(model, "belief propagation for rows side by side")
        self.model = model
        structure = model.structure
        adjacency = structure.adjacency
        directed = structure.directed
        counts = structure.num_states
        # The two directions of an edge have its number.
        pairs = np.argsort(adjacency.edge_ids, kind="stable").reshape(-1, 2)
        back = np.empty(len(adjacency.neighbors), dtype=np.int64)
        back[pairs[:, 0]] = pairs[:, 1]
        back[pairs[:, 1]] = pairs[:, 0]
        starts = np.concatenate([[0], np.cumsum(counts[adjacency.neighbors])]).astype(np.int64)
        self.graph = (
            structure.unary_offsets, adjacency.indptr, adjacency.neighbors, back, starts, directed.starts,
            directed.own_steps, directed.other_steps,
        )  # fmt: skip
        self.num_entries = int(starts[-1])
        most_neighbors = int(adjacency.degree.max(initial=0))
        self.room = (most_neighbors + 4, int(counts.max(initial=1)))
        self._read_tables()
        num_components, _ = connected_components(model.num_variables, model.edges)
        self.is_forest = model.num_edges == model.num_variables - num_components

    def _read_tables(self) -> None:
        """Take exponentials of tables and unaries, over the largest, and note where products may be out of range."""
        model = self.model
        log_tables = model.log_pairwise
        tops, ranges = _tops_and_ranges(log_tables, model.pairwise_offsets)
        self.tables = np.exp(log_tables - np.repeat(tops, np.diff(model.pairwise_offsets)))
        unary_tops, _ = _tops_and_ranges(model.log_unary, model.unary_offsets)
        self.unary = np.exp(model.log_unary - np.repeat(unary_tops, model.num_states))
        self.log_constant = float(tops.sum() + unary_tops.sum()) + model.log_constant
        around = np.zeros(model.num_variables)
        np.add.at(around, model.edges.reshape(-1), np.repeat(ranges, 2))
        self.is_wide = around > PRODUCT_LOG_RANGE

    def unanswered(self, count: int) -> RowBeliefs:
        """What is known of so many rows before they are answered."""
        nothing = np.zeros(count, dtype=bool)
        return RowBeliefs(np.full((count, len(self.unary)), np.nan), np.full(count, np.nan), nothing, nothing.copy())

    def answer(self, rows: IntArray, found: RowBeliefs, *, num_threads: int = 1, clock: Clock = NO_LIMIT) -> None:
        """Write beliefs for rows (N, n) of observed states, negative where a variable is open.

        Where the time ends, ``found`` has what is known by then.
        """
        stages = list(zip(DAMPINGS, ROW_PASSES, strict=True))
        if self.is_forest:
            stages = [(0.0, 2 * self.model.num_variables + 2)]
        left = np.arange(len(rows))
        for damping, num_passes in stages:
            if not len(left):
                break
            width = self._width(len(left))
            numbers = self.num_entries + 2 * len(self.unary) + self.room[0] * self.room[1]
            check_memory(8.0 * num_threads * width * numbers, f"rows {len(rows)}", "ask fewer threads")
            blocks = [left[first : first + width] for first in range(0, len(left), width)]

            def go(block: IntArray, stage: tuple[float, int, int] = (damping, num_passes, width)) -> None:
                self._answer_block(rows, block, stage, found, clock)

            if num_threads > 1 and len(blocks) > 1:
                with ThreadPoolExecutor(num_threads) as pool:
                    list(pool.map(go, blocks))
            else:
                for block in blocks:
                    go(block)
            left = left[~found.converged[left] & ~found.is_lost[left]]

    def _width(self, count: int) -> int:
        """Rows side by side: no more than there are, and than their messages have room."""
        fitting = min(ROW_BYTES // (8 * max(1, self.num_entries)), ROWS_SIDE_BY_SIDE, count)
        return max(1, 8 * (fitting // 8)) if fitting < count else count

    def _answer_block(
        self, rows: IntArray, block: IntArray, stage: tuple[float, int, int], found: RowBeliefs, clock: Clock
    ) -> None:
        """Answer the rows of a block with one damping, so many passes, and a place for each row."""
        from fastmix.variational.row_kernels import pass_messages, read_beliefs

        clock.check()
        damping, num_passes, width = stage
        own = np.concatenate([block, np.full(width - len(block), block[-1])])  # places beyond the last row repeat it
        unary = self._observed(rows[own])
        messages = np.ones((self.num_entries, width))
        products = np.empty((*self.room, width))
        is_lost = np.zeros(width, dtype=bool)
        change = np.zeros(width)
        order = np.arange(self.model.num_variables)
        made = 0
        while made < num_passes:
            # Few passes at a time, so that the clock is read.
            some = min(PASSES_PER_CALL, num_passes - made)
            done = pass_messages(
                order, self.graph, self.tables, unary, self.is_wide, messages, products, damping, ROW_TOL, some,
                is_lost, change,
            )  # fmt: skip
            made += done
            if done < some or change.max() <= ROW_TOL or clock.past():  # late messages are read as they stand
                break
        beliefs = np.empty_like(unary)
        log_z = np.full(width, self.log_constant)
        read_beliefs(self.graph, self.tables, unary, self.is_wide, messages, products, is_lost, beliefs, log_z)
        count = len(block)
        converged = (change <= ROW_TOL) & ~is_lost
        found.converged[block] = converged[:count]
        found.is_lost[block] = is_lost[:count]
        found.node_marginals[block] = np.where(is_lost, np.nan, beliefs).T[:count]
        found.log_z[block] = np.where(converged, log_z, np.nan)[:count]

    def _observed(self, rows: IntArray) -> FloatArray:
        """Exponentials of the unaries (entries, W), zero for states that are not those that a row observes."""
        counts = self.model.num_states
        owner = np.repeat(np.arange(len(counts)), counts)
        state = np.arange(len(owner)) - np.repeat(self.model.unary_offsets[:-1], counts)
        seen = rows.T[owner]
        return np.where((seen < 0) | (seen == state[:, None]), self.unary[:, None], 0.0)


def _tops_and_ranges(logs: FloatArray, offsets: IntArray) -> tuple[FloatArray, FloatArray]:
    """Largest entries of tables, one after another, and how far the smallest are below; 0 where nothing is allowed."""
    if len(offsets) < 2:
        return np.zeros(0), np.zeros(0)
    tops = np.maximum.reduceat(logs, offsets[:-1])
    tops[tops == -np.inf] = 0.0
    return tops, tops - np.minimum.reduceat(logs, offsets[:-1])
