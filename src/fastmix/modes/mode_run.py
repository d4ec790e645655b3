"""What is known of the most probable configuration while it is looked for: the best one so far, and an upper bound."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._context import Context
from fastmix._memory import available_memory
from fastmix.graphs.components import label_components
from fastmix.marginals import best_states
from fastmix.model import MarkovRandomField
from fastmix.model.flat import reduce_tables
from fastmix.modes.apart import Apart
from fastmix.modes.descents import SearchArrays, entries_of_sweep, search_arrays
from fastmix.modes.dual_messages import DualMessages
from fastmix.modes.pattern_arrays import pattern_tables, variables_of
from fastmix.modes.tuning import ENTRIES_PER_CALL, MAX_DESCENT_SWEEPS, SUM_ROUNDING

__all__ = ["ModeRun", "term_ranges"]


class ModeRun:
    """The best configuration so far and the smallest upper bound, for one call of :func:`fastmix.most_probable`.

    Routes give what they find to :meth:`offer`, :meth:`cross` and :meth:`lower_bound`, and stop when :attr:`is_over`.

    Parameters
    ----------
    model : MarkovRandomField
        The model that evidence has been taken out of.
    context : Context
    tol : float
        Gap that is small enough.
    memory_limit : float, optional
        Bytes; half of the memory that is free by default.
    apart : Apart, optional
        Configurations from which the one looked for must differ; what does not is not kept.

    Attributes
    ----------
    states : int array (n,), or None
        The best configuration of positive probability so far, if there is one.
    log_weight : float
        Its log-weight; -inf where there is none.
    upper_bound : float
        No configuration has a larger log-weight, up to :attr:`rounding`.
    is_alone : bool
        Whether a route that was asked for by name has all the time to itself.
    stats, moves : dict
        What the result says about the work, and how many moves of which kind were made.
    engines : dict
        Other libraries that worked for it, with their versions, for the provenance.
    """

    def __init__(
        self,
        model: MarkovRandomField,
        context: Context,
        *,
        tol: float = 0.0,
        memory_limit: float | None = None,
        apart: Apart | None = None,
    ) -> None:
        self.model = model
        self.context = context
        self.apart = apart
        self.clock = context.clock
        self.tol = tol
        self.memory_limit = available_memory() / 2 if memory_limit is None else memory_limit
        self.states: IntArray | None = None
        self.log_weight = -np.inf
        largest, _ = term_ranges(model)
        self.upper_bound = model.log_constant + float(largest.sum())
        magnitudes = np.abs(largest[largest > -np.inf])
        self.rounding = SUM_ROUNDING * (abs(model.log_constant) + float(magnitudes.sum()))
        self.stats: dict[str, Any] = {}
        self.moves: dict[str, int] = {}
        self.engines: dict[str, str] = {}
        self.is_alone = False
        self._alone: IntArray | None = None  # the best states of the unaries, until a descent has begun there
        self._arrays: SearchArrays | None = None
        self._dual_messages: DualMessages | None = None

    @property
    def gap(self) -> float:
        """How much the bound leaves open."""
        return self.upper_bound - self.log_weight

    @property
    def is_exact(self) -> bool:
        """Whether what the bound leaves open is no more than the rounding of the sums behind it."""
        return self.states is not None and self.gap <= self.rounding

    @property
    def is_over(self) -> bool:
        """Whether the gap is small enough, or the time is over."""
        if self.states is not None and self.gap <= max(self.tol, self.rounding):
            return True
        return self.clock.past()

    @property
    def arrays(self) -> SearchArrays:
        """The arrays of descents, made once."""
        if self._arrays is None:
            self._arrays = search_arrays(self.model)
        return self._arrays

    @property
    def dual_messages(self) -> DualMessages:
        """The messages of a model of pairs, as far as they have come."""
        if self._dual_messages is None:
            self._dual_messages = DualMessages(self.model)
        return self._dual_messages

    # -- what is found ----------------------------------------------------------------------------------------------

    def offer(self, states: IntArray) -> float:
        """The log-weight of a configuration, which is kept if it is better than what there is; -inf if not allowed."""
        if self.apart is not None and not self.apart.allows(states):
            return -np.inf
        log_weight = float(self.model.log_weight(states))
        if log_weight > self.log_weight:
            self.states = states.copy()
            self.log_weight = log_weight
        return log_weight

    def offer_from_messages(self) -> None:
        """Offer what the latest pass of messages has led to, where that seems to be better than what there is."""
        messages = self.dual_messages
        if self.states is None or messages.log_weight > self.log_weight + self.rounding:
            self.offer(messages.states)

    def settle(self, states: IntArray) -> None:
        """Take a configuration as a most probable one."""
        self.upper_bound = self.offer(states)

    def lower_bound(self, upper_bound: float, rounding: float) -> None:
        """Keep an upper bound that is computed up to ``rounding`` if it is better than what there is."""
        if upper_bound + rounding < self.upper_bound:
            self.upper_bound = upper_bound + rounding
            # The bound may be too high by the rounding, and is raised by it.
            self.rounding = max(self.rounding, 2.0 * rounding)

    def prove(self, upper_bound: float, rounding: float, *, counts: bool) -> None:
        """Keep an upper bound that rests on an optimum found with some rounding.

        The best configuration counts as most probable within that rounding only where it is small (``counts``);
        otherwise it is part of the gap.
        """
        self.upper_bound = min(self.upper_bound, upper_bound + rounding)
        if counts:
            self.rounding = max(self.rounding, 2.0 * rounding)

    def count(self, move: str, number: int = 1) -> None:
        """Remember that moves of a kind were made, for the statistics."""
        if number:
            self.moves[move] = self.moves.get(move, 0) + number

    def cross(self, states: IntArray) -> None:
        """Take from a configuration whatever is better than in the best one, piece by piece.

        The variables in which the two differ fall into connected pieces that do not touch each other, so that each can
        be taken or left on its own.
        """
        best = self.states
        if best is None or np.array_equal(states, best):
            self.offer(states)
            return
        model = self.model
        differs = states != best
        inside = differs[model.edges].all(axis=1)
        num_pieces, label = label_components(model.num_variables, model.edges[inside])
        piece = np.where(differs, label, -1)
        # The piece that each term touches, -1 for none: terms over one, two and more variables.
        of_scopes = np.maximum.reduceat(piece[model.scope_variables], model.structure.scope_starts[:-1])
        of_terms = np.concatenate([piece, piece[model.edges].max(axis=1, initial=-1), of_scopes])
        touched = of_terms >= 0
        # The best configuration has a finite weight, so that no difference is undefined.
        gain = self._term_values(states)[touched] - self._term_values(best)[touched]
        gains = np.bincount(of_terms[touched], gain, minlength=num_pieces)
        self.offer(np.where(differs & (gains > 0.0)[piece], states, best))

    def _term_values(self, states: IntArray) -> FloatArray:
        """The log-potential of every term in a configuration: of one, two, and more variables."""
        model = self.model
        unary, _, factors = model.entry_positions(states[None])
        i, j = model.edges.T
        of_edges = model.table_entries(np.arange(model.num_edges), states[i], states[j])
        return np.concatenate([model.log_unary[unary[0]], of_edges, model.log_factors[factors[0]]])

    # -- what all routes begin with -----------------------------------------------------------------------------------

    def begin(self) -> None:
        """Offer the best states of the unaries: an answer, whatever takes too long afterwards."""
        self._alone = best_states(self.model, self.model.log_unary)
        self.offer(self._alone)

    def start_descent(self) -> None:
        """Descend from the best states of the unaries, once, if there is time."""
        if self._alone is not None and not self.clock.past():
            self.descend(self._alone)
        self._alone = None

    def descend(self, states: IntArray) -> IntArray:
        """Set single variables of a configuration to their best states until nothing changes, and offer it."""
        from fastmix.modes.descent_kernels import descend, descend_shared

        model = self.model
        row = states[None].copy()
        num_sweeps = max(1, min(MAX_DESCENT_SWEEPS, int(ENTRIES_PER_CALL / max(1.0, entries_of_sweep(model)))))
        for _ in range(0, MAX_DESCENT_SWEEPS, num_sweeps):
            before = row.copy()
            if model.shared_tables is None:
                descend(row, *self.arrays, num_sweeps)
            else:
                descend_shared(row[0], variables_of(model), pattern_tables(model)[0], num_sweeps)
            if self.clock.past() or np.array_equal(row, before):
                break
        self.count("descents")
        self.offer(row[0])
        return np.asarray(row[0])

    def changes(self, states: IntArray) -> FloatArray:
        """By how much the log-weight changes with each state of each variable, the others as in a configuration.

        Aligned with the unaries of the model; what is forbidden has a large penalty.
        """
        from fastmix.modes.descent_kernels import fill_changes

        found = np.zeros(len(self.model.log_unary))
        fill_changes(found, states, *self.arrays)
        return found


def term_ranges(model: MarkovRandomField) -> tuple[FloatArray, FloatArray]:
    """The largest entry of every term, and by how much its finite ones differ; 0 where all is forbidden."""
    parts = [_ranges(model.log_unary, model.unary_offsets)]
    if model.shared_tables is None:
        parts.append(_ranges(model.log_pairwise, model.pairwise_offsets))
    else:
        parts.append((model.largest_of_tables(), model.shared_tables.least_finite()))
    parts.append(_ranges(model.log_factors, model.factor_offsets))
    largest, smallest = (np.concatenate(of_terms) for of_terms in zip(*parts, strict=True))
    return largest, np.maximum(largest - smallest, 0.0)


def _ranges(values: FloatArray, offsets: IntArray) -> tuple[FloatArray, FloatArray]:
    """The largest entry of every term, and the smallest finite one."""
    if len(offsets) == 1:
        return np.zeros(0), np.zeros(0)
    smallest = values
    if values.min() == -np.inf:
        smallest = np.where(values > -np.inf, values, np.inf)
    return reduce_tables(np.maximum, values, offsets), reduce_tables(np.minimum, smallest, offsets)
