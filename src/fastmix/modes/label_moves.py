"""Expansion moves and swap moves: the labels of many variables change at once, in the best possible way.

In an expansion every variable keeps its label or takes a given one; in a swap those with one of two labels choose
between these (Boykov, Veksler and Zabih 2001). The best move is a minimum cut, for an expansion if all tables are
metrics up to their sign, ``T(a, b) + T(c, c) >= T(a, c) + T(c, b)``, for a swap if that holds for a = b.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from fastmix._arrays import FloatArray, IntArray, read_only
from fastmix._clock import NO_LIMIT, Clock
from fastmix.errors import UnfitMethodError
from fastmix.model import MarkovRandomField, check_pairwise
from fastmix.model.pattern_forms import tables_as_patterns
from fastmix.modes.flows import flow_on
from fastmix.modes.pattern_arrays import pattern_tables, variables_of
from fastmix.modes.tuning import LEAST_MOVE_GAIN, MAX_CHECKED_NUMBERS, METRIC_SLACK

__all__ = ["best_expansion", "best_swap", "check_expansion", "check_swap"]


def check_expansion(model: MarkovRandomField, clock: Clock = NO_LIMIT) -> None:
    """An :class:`UnfitMethodError` unless every expansion move of the model is a minimum cut.

    An :class:`fastmix._clock.OutOfTimeError` when the clock runs out before all tables are checked.
    """
    _check_tables(model, clock, "an expansion move", only_pairs=False)


def check_swap(model: MarkovRandomField, clock: Clock = NO_LIMIT) -> None:
    """The same for swap moves."""
    _check_tables(model, clock, "a swap move", only_pairs=True)


def _check_tables(model: MarkovRandomField, clock: Clock, move: str, *, only_pairs: bool) -> None:
    """Raise where a table does not fit a move: the numbers of a table are those of its patterns times its weights."""
    check_pairwise(model, move)
    counts = np.unique(model.num_states)
    if len(counts) > 1 or model.has_forbidden:
        raise UnfitMethodError(f"{move} needs equal state counts and no forbidden states")
    if not model.num_edges:
        return
    tables = tables_as_patterns(model)
    slacks = _slacks_of_patterns(tables.patterns, tables.use.starts, int(counts[0]), clock, only_pairs=only_pairs)
    of_edge = tables.use.of_edge
    least = _scaled_slacks(slacks[of_edge], tables.weights)
    if tables.next_weights is not None:
        following = np.minimum(of_edge + 1, len(slacks) - 1)
        least = least + _scaled_slacks(slacks[following], tables.next_weights)
    wrong = least < -METRIC_SLACK * (1.0 + tables.largest_entries())
    if wrong.any():
        edge = model.edges[int(wrong.argmax())].tolist()
        kind = "prefer equal states" if only_pairs else "are metrics"
        raise UnfitMethodError(f"{move} needs tables that {kind}; that of edge {edge} is none; use method='messages'")


def _slacks_of_patterns(
    patterns: FloatArray, starts: IntArray, num_labels: int, clock: Clock, *, only_pairs: bool
) -> FloatArray:
    """The least and the largest slack of every pattern, (p, 2)."""
    from fastmix.modes.move_kernels import metric_slacks

    num_patterns = len(starts) - 1
    patterns = read_only(patterns)
    starts = read_only(starts)
    chunk = max(1, MAX_CHECKED_NUMBERS // num_labels**3)
    parts = []
    for begin in range(0, num_patterns, chunk):
        clock.check()
        parts.append(metric_slacks(patterns, starts, begin, min(begin + chunk, num_patterns), num_labels, only_pairs))
    return np.concatenate(parts)


def _scaled_slacks(slacks: FloatArray, weights: FloatArray) -> FloatArray:
    """The least slack of weighted patterns: a negative weight turns the largest into the least."""
    return np.where(weights < 0.0, weights * slacks[:, 1], weights * slacks[:, 0])


def best_expansion(model: MarkovRandomField, start: IntArray, clock: Clock = NO_LIMIT) -> tuple[IntArray, int]:
    """A configuration (n,) that no expansion move improves, or the best one found when the clock ran out.

    The number of moves that were tried comes back with it.
    """
    moves = _LabelMoves(model, start)
    return moves.make([(label,) for label in range(moves.num_labels)], clock)


def best_swap(model: MarkovRandomField, start: IntArray, clock: Clock = NO_LIMIT) -> tuple[IntArray, int]:
    """The same for swap moves."""
    moves = _LabelMoves(model, start)
    pairs = list(itertools.combinations(range(moves.num_labels), 2))
    return moves.make(pairs, clock)


class _LabelMoves:
    """Moves from a configuration, with room for the capacities of their cuts."""

    def __init__(self, model: MarkovRandomField, start: IntArray) -> None:
        self.num_labels = int(model.num_states[0]) if model.num_variables else 1
        self.states = start.astype(np.int64)
        self._value = float(model.log_weight(start))
        self._unary = variables_of(model).unary
        self._edges = read_only(np.ascontiguousarray(model.edges))
        self._tables, _ = pattern_tables(model)
        self._flow = flow_on(model.num_variables, model.edges)
        self._gain = np.zeros(model.num_variables)
        self._coupling = np.zeros(model.num_edges)

    def make(self, choices: Sequence[tuple[int, ...]], clock: Clock) -> tuple[IntArray, int]:
        """The states after moves to one label, or between two, until none of the choices is a gain; and their number.

        No move is made that is no gain, so that tables which do not fit, or a flow that was stopped, do no harm.
        """
        since = 0  # choices tried since the last gain
        num_moves = 0
        for labels in itertools.cycle(choices):
            if since >= len(choices) or clock.past():
                break
            num_moves += 1
            since = 1 if self._improve(labels, clock) else since + 1
            clock.report(since, len(choices), "moves without a gain")
        return self.states, num_moves

    def _improve(self, labels: tuple[int, ...], clock: Clock) -> bool:
        """Whether the best move to these labels was a gain, and made."""
        from fastmix.modes.move_kernels import expansion_terms, gain_of_move, swap_terms

        x = self.states
        terms = self._unary, self._edges, self._tables, self.num_labels
        if len(labels) == 1:
            expansion_terms(labels[0], read_only(x), *terms, self._gain, self._coupling)
            reached = self._flow.push(self._gain, self._coupling, clock)
            proposal = np.where(reached, labels[0], x)
        else:
            own, other = labels
            swap_terms(own, other, read_only(x), *terms, self._gain, self._coupling)
            reached = self._flow.push(self._gain, self._coupling, clock)
            proposal = np.where((x == own) | (x == other), np.where(reached, other, own), x)
        gain = float(gain_of_move(read_only(x), read_only(proposal), *terms))
        if gain <= LEAST_MOVE_GAIN * abs(self._value):
            return False
        self.states = proposal
        self._value += gain
        return True
